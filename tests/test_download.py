from __future__ import annotations

import hashlib
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread

import pytest

from judgeq import files
from judgeq.datasets import load
from judgeq.datasets.corpora import fetch
from judgeq.errors import DataError
from judgeq.settings.run import DatasetSpec

BODY = b"text\n" + b"".join(b"text %d\n" % row for row in range(20_000))
SHA256 = hashlib.sha256(BODY).hexdigest()


class Faulty(BaseHTTPRequestHandler):
    """A server whose paths are named after what goes wrong."""

    release: Event

    def do_GET(self) -> None:
        fault = self.path.rsplit("/", 1)[-1]
        if fault == "silent":
            self.release.wait(10)
        elif fault == "missing":
            self.send_error(404)
        elif fault == "redirect":
            self.answer(302, b"", Location="/good")
        elif fault == "stall":
            self.answer(200, BODY[:100], length=len(BODY))
            self.release.wait(10)
        elif fault == "truncated":
            self.answer(200, BODY[:100], length=len(BODY))
        elif fault == "truncated_without_length":
            self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + BODY[:100])
        elif fault == "wrong":
            self.answer(200, b"x" * len(BODY))
        elif fault == "short":
            self.answer(200, b"<html>Please log in")
        elif fault == "long":
            self.answer(200, BODY * 2)
        elif fault == "garbage":
            self.wfile.write(b"nonsense\r\n\r\n")
        else:
            self.answer(200, BODY)

    def answer(self, status: int, body: bytes, length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        with suppress(ConnectionError):  # "long": the other side has had enough
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the base class's name
        pass


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    Faulty.release = Event()
    with ThreadingHTTPServer(("127.0.0.1", 0), Faulty) as running:
        running.daemon_threads = True
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        Faulty.release.set()
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy of the machine's between the test and its own server."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def get(url: str, target: Path) -> str:
    return fetch(url, target, sha256=SHA256, size=len(BODY), timeout=0.3)


@pytest.mark.parametrize("path", ["good", "redirect"])
def test_the_right_file_is_put_in_place(path: str, server: str, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "f.csv"
    assert get(f"{server}/{path}", target) == ""
    assert target.read_bytes() == BODY
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("silent", r"127\.0\.0\.1:\d+ was silent for 0\.3 s"),
        ("missing", "answered 404 Not Found"),
        ("stall", "was silent"),
        ("truncated", "broke off"),
        ("truncated_without_length", "broke off"),
        ("garbage", "can't be reached"),
    ],
)
def test_no_way_to_the_file_is_a_reason(path: str, why: str, server: str, tmp_path: Path) -> None:
    assert re.search(why, get(f"{server}/{path}", tmp_path / "f.csv"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "got"), [("wrong", "got [0-9a-f]{64}"), ("short", "got"), ("long", "more than")]
)
def test_a_wrong_file_is_an_error_and_not_kept(
    path: str, got: str, server: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=rf"expected sha256 {SHA256}, .*{got}"):
        get(f"{server}/{path}", tmp_path / "f.csv")
    assert list(tmp_path.iterdir()) == []


def test_a_refused_connection(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/f"
        assert "can't be reached" in get(url, tmp_path / "f.csv")


def test_the_proxy_of_the_environment_is_used(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", server)
    monkeypatch.setenv("no_proxy", "")
    assert get("http://nowhere.invalid/good", tmp_path / "f.csv") == ""


def test_a_folder_that_cannot_be_made(server: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert "can't be written to" in get(f"{server}/good", tmp_path / "file" / "f.csv")


def test_load_downloads_once(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shipped" / "mini"
    folder.mkdir(parents=True)
    (folder / "dataset.toml").write_text(
        f"""
        title = "Mini"
        description = "Texts."
        licence = "MIT"
        citation = "none"
        url = "{server}/good"
        sha256 = "{SHA256}"
        size = {len(BODY)}
        file = "mini.csv"
        """
    )
    monkeypatch.setattr(files, "shipped", lambda kind: folder.parent)
    monkeypatch.setattr(files, "user_cache", lambda: tmp_path / "cache")
    monkeypatch.delenv("JUDGEQ_OFFLINE", raising=False)
    monkeypatch.delenv("JUDGEQ_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    data = load(DatasetSpec(dataset="mini"))
    assert data.source == str(tmp_path / "cache/datasets/mini/mini.csv")
    assert len(data) == 20_000
    again = load(DatasetSpec(dataset="mini"), download=False)
    assert (again.source, again.content) == (data.source, data.content)
