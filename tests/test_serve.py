"""The served pages: what is asked for is looked up, escaped and only read; and who may ask for it."""

import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from judgeq import run_places
from judgeq.run_places import RunFolder
from judgeq.web import serve
from judgeq.web.guard import Guard
from judgeq.web.serve import key_of
from tests.browser import Seen, opened, violations
from tests.cli import environment, judgeq
from tests.test_report import Structure
from tests.web import Answer, answer_of, in_thread

pytestmark = pytest.mark.usefixtures("undrawn")

SAFE = {"Cache-Control": "private, no-store", "X-Content-Type-Options": "nosniff"}
SAFE |= {"Referrer-Policy": "no-referrer", "Server": "judgeq"}
"""Headers of every answer."""
NAMES = (
    "<script>alert(1)<\u2044script>",
    "a'b\"c ?#%2F",
    "...",
    "~" + "0" * 32,
    "😀\n\x1b[31m",
    "\udcff\udcfe",
    "last",
)
"""Names of folders, which somebody else made."""


@dataclass
class Served:
    guard: Guard
    folder: Path

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        return answer_of(self.guard.port, path, method, **headers)

    def page(self, path: str, status: int = 200) -> str:
        """A page that is well formed; of a status."""
        answer = self.ask(path)
        assert answer.status == status, answer.text
        structure = Structure.of(answer.text)
        local = ("/", "#", "data:")
        assert all(link.startswith(local) and link[1:2] != "/" for link in structure.links)
        return answer.text

    def run(self, *more: object, name: str = "") -> str:
        """The path of a run, by its folder's name, or of the one that was made here; and beneath it."""
        folder = self.folder / "runs" / name if name else original(self.folder)
        return "/".join(["/runs", key_of(run_places.RunFolder(folder)), *map(str, more)])


def original(folder: Path) -> Path:
    """The run that was made there, and not copied."""
    (run,) = (folder / "runs").glob("texts-*")
    return run


@contextmanager
def served(folder: Path, **how: Any) -> Iterator[Served]:
    root = how.pop("runs", None) or run_places.runs_in(folder / "runs")
    with in_thread(serve.serving(root, how.pop("host", "127.0.0.1"), 0, **how)) as guard:
        yield Served(guard, folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run of this user's own, and copies of it by hostile names."""
    folder = tmp_path_factory.mktemp("serve")
    rows = [f"{row},{row} plain {row} <script>window.hacked = 1</script>" for row in range(56)]
    (folder / "texts.csv").write_text("\n".join(["id,text", *rows]))
    job = ("run", "-d", "texts.csv", "--latent-column", "id", "--id-column", "id", "--quiet")
    judgeq(folder, *job, "-s", "listwise6x2")
    run = original(folder)
    for name in NAMES:
        shutil.copytree(run, run.parent / name)
    with pytest.MonkeyPatch.context() as patch:  # by which the run is known as this user's own
        patch.setenv("XDG_STATE_HOME", environment(folder)["XDG_STATE_HOME"])
        yield folder


@pytest.fixture(scope="module")
def here(folder: Path) -> Iterator[Served]:
    with served(folder) as here:
        yield here


def test_all_runs_are_listed_by_links_that_lead_to_them(here: Served) -> None:
    page = here.page("/")
    for name in ("", *NAMES):
        assert f'href="{here.run(name=name)}"' in page
    for name in (NAMES[0], "\udcff\udcfe"):
        assert here.ask(here.run(name=name)).status == 200
    assert "<script>alert" not in page
    assert "finished" in page
    assert "20/20" in page


@pytest.mark.parametrize("more", [(), ("report",)])
def test_a_finished_run_opens_on_its_report(here: Served, more: tuple[str, ...]) -> None:
    report = here.ask(here.run(*more))
    assert report.status == 200
    assert "For your paper" in report.text
    assert 'href="/"' in report.text
    assert "live.js" not in report.text
    assert "script-src 'sha256-" in report.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "path",
    [
        *("/nothing", "/runs", "/runs/", "/runs/nothing", "/runs/nothing/report", "/runs/good/x"),
        *("/runs/..", "/runs/%2e%2e", "/runs/..%2fgood", "/runs/%2e%2e/report"),
        *("/runs/good/items", "/runs/good/items/1", "/runs/%00", "/runs/%FF"),
        f"/runs/{'x' * 5000}",
        *("/assets/report.html", "/assets/../server.py", "/assets/%2e%2e%2fhtml.py", "/assets/"),
        *("/runs/nothing/status", "//evil.example/"),
    ],
)
def test_what_is_not_there_is_a_plain_page(here: Served, path: str) -> None:
    answer = here.ask(path)
    assert answer.status == 404
    assert "Not found" in answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["Server"] == "judgeq"


def test_runs_that_cannot_be_read_say_why(tmp_path: Path, folder: Path) -> None:
    good = original(folder)
    for name, content in (("broken", b"{"), ("<b>", b'{"judgeq": "<i>"}'), ("empty", b"")):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").write_bytes(content)
    shutil.copytree(good, tmp_path / "runs" / "damaged")
    (tmp_path / "runs" / "damaged" / "run.db").write_bytes(b"not a database, or is it?" * 100)
    shutil.copytree(good, tmp_path / "runs" / "begun")
    (tmp_path / "runs" / "begun" / "run.db").unlink()
    with served(tmp_path) as here:
        page = here.page("/")
        assert "Runs that can't be read" in page
        assert page.count("can&#39;t be read: ") == 3
        for name in ("broken", "<b>", "empty", "damaged", "begun"):
            for more in ((), ("report",)):
                here.page(here.run(*more, name=name), 422)


def test_texts_are_left_out_where_they_are_unwanted_or_a_stranger_names_their_file(
    folder: Path, tmp_path: Path
) -> None:
    with served(folder, with_texts=False) as here:
        assert "20 plain 20" not in here.ask(here.run()).text
    # Somebody else's folder says where texts lie: that file isn't opened for it.
    shutil.copytree(original(folder), tmp_path / "runs" / "strange")
    with served(tmp_path) as here:
        assert "20 plain 20" not in here.ask(here.run(name="strange")).text
    with served(folder) as here:
        assert "20 plain 20" in here.ask(here.run()).text


def test_a_run_is_followed_while_somebody_works_on_it(here: Served) -> None:
    over = here.ask(here.run("status"))
    assert (over.status, over.text) == (205, "")
    with RunFolder(original(here.folder)).locked():
        part = here.ask(here.run("status"))
        assert part.status == 200
        assert "20 of 20 done" in part.text
        assert "<html" not in part.text
        assert "live.js" in here.page(here.run())


def test_every_answer_says_what_may_be_done_with_it(here: Served) -> None:
    for path in ("/", "/nothing", "/assets/style.css", here.run(), here.run("report")):
        headers = here.ask(path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "script-src 'unsafe-inline'" not in policy
        assert "frame-ancestors 'none'" in policy
        same = ("Cross-Origin-Opener-Policy", "Cross-Origin-Resource-Policy")
        expected = SAFE | dict.fromkeys(same, "same-origin")
        assert {name: headers[name] for name in expected} == expected
        assert not {"Access-Control-Allow-Origin", "Set-Cookie"} & {*headers}


def test_it_answers_by_its_own_names_only(here: Served) -> None:
    port = here.guard.port
    for name in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
        assert here.ask("/", Host=f"{name}:{port}").status == 200
    # A page of another site may be followed from, as annotate's tests check of the same rules; no more.
    assert here.ask("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    for host in (
        *("evil.example", f"evil.example:{port}", f"localhost.evil.example:{port}", "localhost"),
        *("127.0.0.1", f"127.0.0.1:{port + 1}", f"127.0.0.1:{port}@evil", "", f"0.0.0.0:{port}"),
        *(f"[::ffff:127.0.0.1]:{port}", f"localhost.:{port}", f" 127.0.0.1:{port}x"),
    ):
        answer = here.ask("/", Host=host)
        assert answer.status in (400, 421), host
        assert "texts-" not in answer.text


@pytest.mark.parametrize(
    "head",
    [
        "GET / HTTP/1.0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        "\x1b[31m nonsense\r\n\r\n",
    ],
)
def test_what_no_browser_sends_is_refused(
    here: Served, head: str, capfd: pytest.CaptureFixture[str]
) -> None:
    head = head.replace("{own}", f"127.0.0.1:{here.guard.port}")
    with socket.create_connection(("127.0.0.1", here.guard.port), timeout=60) as connection:
        connection.sendall(head.encode())
        answer = connection.makefile(encoding="utf-8").read()
    assert re.match(r"HTTP/1\.[01] 4\d\d ", answer), answer[:200]
    assert "texts-" not in answer
    assert capfd.readouterr().err == ""


def test_nothing_can_be_changed(here: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
        assert here.ask("/", method).status == 405
        assert here.ask("/nothing", method).status == 405
    assert here.ask("/", "HEAD").text == ""
    assert here.ask(here.run("status"), "POST").status == 405


def test_the_token_comes_in_a_header_and_never_as_a_cookie(folder: Path) -> None:
    """A cookie would be sent to every port of this machine, and to whoever listens there."""
    with served(folder, token="the-secret") as here:
        paths = ("/", here.run(), here.run("report"), here.run("status"))
        wrong = [
            {"Authorization": word} for word in ("Bearer no", "the-secret", "Bearer thé-secret")
        ]
        wrong += [{}, {"Cookie": f"judgeq-{here.guard.port}=the-secret"}]
        for path, headers in product((*paths, "/?token=the-secret"), wrong):
            answer = here.ask(path, **headers)
            assert answer.status == 401
            assert not re.search("texts-|the-secret", answer.text)
            assert "Set-Cookie" not in answer.headers
        good = {"Authorization": "Bearer the-secret"}
        for path in paths:
            answer = here.ask(path, **good)
            assert answer.status in (200, 205)
            assert "Set-Cookie" not in answer.headers
        assert here.ask("/", Host="evil.example", **good).status == 421
        assert here.ask("/assets/style.css").status == 200
        assert here.ask("/assets/token.js").status == 200
        assert here.guard.address.endswith("/#token=the-secret")
        assert "the-secret" not in repr(here.guard)


def test_a_browser_is_opened_without_the_token_in_a_commands_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []

    def launch(url: str) -> None:
        path = Path(unquote(urlsplit(url).path))
        seen.append((url, path.read_text() if url.startswith("file:") else ""))
        raise KeyboardInterrupt

    monkeypatch.setattr("click.launch", launch)
    shown = judgeq(tmp_path, "serve", "--port", "0", "--open").stdout
    assert seen.pop() == (shown.split("\n")[0], "")
    shown = judgeq(tmp_path, "serve", "--port", "0", "--open", "--token").stdout
    link = shown.split("\n")[0]
    ((url, content),) = seen
    assert "#token=" in link
    assert "token" not in url
    assert f'url={link}"' in content
    assert not Path(unquote(urlsplit(url).path)).exists()


@contextmanager
def seen_at(here: Served, path: str, **context: Any) -> Iterator[Seen]:
    """A page in a browser, in which nothing goes wrong, and which asks nobody else."""
    home = here.guard.address
    with opened(home.rstrip("/") + path, **context) as seen:
        yield seen
        assert seen.errors == []
        assert [address for address in seen.asked if not address.startswith(home)] == []
        assert seen.page.evaluate("window.hacked") is None


@pytest.mark.browser
@pytest.mark.parametrize(
    ("scheme", "width"), [("dark", 390), pytest.param("light", 1200, marks=pytest.mark.long)]
)
def test_all_pages_are_accessible_and_fit(here: Served, scheme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    with seen_at(here, "/", color_scheme=scheme, viewport=size) as seen:
        for path in ("/", here.run(), "/nothing"):
            seen.page.goto(here.guard.address.rstrip("/") + path)
            assert violations(seen.page) == []
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        seen.errors[:] = [error for error in seen.errors if "404 (Not Found)" not in error]


@pytest.mark.browser
def test_the_link_with_the_token_lets_in(here: Served) -> None:
    with served(here.folder, token="of-a-test") as guarded:
        with opened(guarded.guard.address) as seen:
            page = seen.page
            page.get_by_role("heading", name="All runs").wait_for()
            assert page.url == guarded.guard.address_shown
            page.get_by_role("link", name=original(here.folder).name).click()
            page.wait_for_selector("#table tbody tr")  # by the report's own script
            assert page.evaluate("getComputedStyle(document.body).margin") == "0px"
            page.get_by_role("link", name="All runs").click()
            page.get_by_role("heading", name="All runs").wait_for()
            page.go_back()
            page.wait_for_selector("#table tbody tr")
            another = page.context.new_page()
            another.goto(guarded.guard.address_shown + "#token=of-somebody-else")
            another.get_by_role("heading", name="All runs").wait_for()
            assert violations(page) == []
            assert [error for error in seen.errors if "401" not in error] == []
            assert page.evaluate("document.cookie + window.hacked") == "undefined"
        with opened(guarded.guard.address_shown) as other:
            other.page.get_by_role("heading", name="A token is needed").wait_for()
        with opened(guarded.guard.address, java_script_enabled=False) as other:
            assert "need JavaScript" in other.page.locator("noscript").inner_text()


@pytest.mark.browser
def test_a_path_that_reads_like_another_server_is_asked_for_here(here: Served) -> None:
    """The token goes with what the page asks for: `//evil.example/x` would name another server."""
    with served(here.folder, token="of-a-test") as guarded:
        address = guarded.guard.address_shown.rstrip("/") + "//evil.example/x"
        with opened(f"{address}#token=of-a-test") as seen:
            seen.page.get_by_role("heading", name="Not found").wait_for()
            assert [*seen.asked].count(address) == 2
            assert not [asked for asked in seen.asked if asked.startswith("http://evil")]
            assert not [error for error in seen.errors if "Security Policy" in error]


@pytest.mark.browser
def test_a_run_is_followed_to_its_end(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(original(folder), tmp_path / "runs" / "one")
    with served(tmp_path) as here, ExitStack() as work:
        work.enter_context(RunFolder(tmp_path / "runs" / "one").locked())
        with seen_at(here, here.run(name="one")) as seen:
            seen.page.get_by_text("20 of 20 done").wait_for()
            work.close()
            seen.page.wait_for_selector("#table tbody tr")  # the report, once nobody works on it
