"""The served pages: what is asked for is looked up, escaped and only read; and who may ask for it."""

from __future__ import annotations

import asyncio
import csv
import http.client
import json
import re
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit
from urllib.request import urlopen

import pytest

from judgeq import runs
from judgeq.engine import results
from judgeq.runs import RunFolder
from judgeq.ui.web import beside, desk
from judgeq.ui.web.beside import BusyError, Shelf
from judgeq.ui.web.guard import Guard, is_local
from judgeq.ui.web.server import serving
from tests.cli import environment, judgeq, start
from tests.postgres import new_store
from tests.test_report import Structure
from tests.web import in_thread

pytestmark = pytest.mark.usefixtures("undrawn")

HOSTILE = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "../../../etc/passwd",
    "..",
    "a/b%2Fc?d#e",
    "[bold]=cmd()|' /C calc'!A0 <!-- -->",
    "😀 مرحبا",
    "id" * 5_000,
)
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
class Answer:
    """What was answered."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def words(self) -> str:
        """What the page says, without its markup."""
        return re.sub(r"<[^>]*>", " ", self.text)


@dataclass
class Served:
    """A server that listens."""

    guard: Guard
    folder: Path

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """What is answered; `Host` is as a browser would say it, if it isn't given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.guard.port, timeout=60)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, headers=named)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()

    def page(self, path: str, status: int = 200) -> str:
        """A page that is well formed; of a status."""
        answer = self.ask(path)
        assert answer.status == status, answer.words
        structure = Structure()
        structure.feed(answer.text)
        assert structure.open == []
        assert len(set(structure.ids)) == len(structure.ids)
        local = ("/", "#", "data:")
        assert all(link.startswith(local) and link[1:2] != "/" for link in structure.links)
        return answer.text

    def run(self, *more: object, name: str = "") -> str:
        """The path of a run, by its folder's name, or of the one that was made here; and beneath it."""
        folder = self.folder / "runs" / name if name else original(self.folder)
        return "/".join(["/runs", desk.key_of(runs.RunFolder(folder)), *map(str, more)])


def original(folder: Path) -> Path:
    """The run that was made there, and not copied."""
    (run,) = (folder / "runs").glob("texts-*")
    return run


@contextmanager
def served(folder: Path, **how: Any) -> Iterator[Served]:
    root = how.pop("runs", None) or runs.runs_in(folder / "runs")
    with in_thread(serving(root, how.pop("host", "127.0.0.1"), 0, **how)) as guard:
        yield Served(guard, folder)


@contextmanager
def with_texts(folder: Path, rows: Sequence[tuple[str, str]]) -> Iterator[None]:
    """While inside, there is a run over these ids and texts in a folder, which is this user's own."""
    with (folder / "texts.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["id", "text", "gold"])
        table.writerows((*row, number % 3) for number, row in enumerate(rows))
    job = ("run", "-d", "texts.csv", "--id-column", "id", "--gold-column", "gold", "--quiet")
    judgeq(folder, *job, "-s", "listwise6x2")
    with pytest.MonkeyPatch.context() as patch:  # by which the run is known as this user's own
        patch.setenv("XDG_STATE_HOME", environment(folder)["XDG_STATE_HOME"])
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a run over hostile texts with hostile ids, and copies of it by hostile names."""
    folder = tmp_path_factory.mktemp("serve")
    ids = [*HOSTILE, *(f"plain {number}" for number in range(len(HOSTILE), 56))]
    rows = [(name, f"{number} {name[:900]} \x1b[31m \u202e <b>") for number, name in enumerate(ids)]
    with with_texts(folder, rows):
        run = original(folder)
        for name in NAMES:
            shutil.copytree(run, run.parent / name)
        yield folder


@pytest.fixture(scope="module")
def here(folder: Path) -> Iterator[Served]:
    with served(folder) as here:
        yield here


# The pages


def test_all_runs_are_listed_by_links_that_lead_to_them(here: Served) -> None:
    page = here.page("/")
    for name in ("", *NAMES):
        assert f'href="{here.run(name=name)}"' in page
        assert here.ask(here.run(name=name)).status == 200
        assert here.ask(here.run("items", name=name)).status == 200
    assert "<script>alert" not in page
    assert "finished" in page
    assert "20 of 20" in page


def test_a_run_is_shown_with_its_report_and_items(here: Served) -> None:
    page = here.page(here.run())
    assert f"{original(here.folder).name}: finished" in page
    assert here.run("report") in page
    assert "live.js" not in page
    report = here.ask(here.run("report"))
    assert report.status == 200
    assert "For a methods section" in report.text
    assert f'href="{here.run()}"' in report.text
    policy = report.headers["Content-Security-Policy"]
    assert "script-src 'sha256-" in policy
    assert "frame-ancestors 'none'" in policy


def test_a_run_is_rated_once_for_its_items_and_its_report(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rated: list[object] = []
    read = results.read

    async def noted(*how: Any) -> results.Result:
        rated.append(how)
        return await read(*how)

    monkeypatch.setattr(results, "read", noted)
    with served(folder) as here:
        for more in ("items", "report", "items/0", "report"):
            here.page(here.run(more)) if more != "report" else here.ask(here.run(more))
        assert len(rated) == 1


def test_a_report_is_of_the_scores_that_were_opened_and_is_made_again_with_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept a moment longer than the ledger's may not be kept for good."""
    stamps = iter("abbb")
    made: list[results.Result] = []

    async def of_run(run: results.Result, *_: Any, **__: Any) -> Any:
        made.append(run)
        return made

    async def gathered(_: Any) -> None:
        return None

    monkeypatch.setattr(desk, "_stamp", lambda _: next(stamps))
    monkeypatch.setattr("judgeq.evaluation.record.of_run", of_run)
    monkeypatch.setattr("judgeq.ui.report.texts.gathered", gathered)
    monkeypatch.setattr("judgeq.ui.report.page.page", lambda *_: f"report {len(made)}")
    slow = iter([0.0, 100.0])  # it took long to open, and stays good as long

    async def reports() -> list[str]:
        known = desk.Desk(runs.runs_in(folder / "runs"))
        known._opened = Shelf(4, clock=lambda: next(slow, 101.0))
        known._reports = Shelf(4, clock=lambda: 0.0)
        place = runs.RunFolder(original(folder))
        try:
            first = [await known.report(place, "/") for _ in range(2)]
            known._opened = Shelf(4)
            return [*first, await known.report(place, "/"), await known.report(place, "/")]
        finally:
            await known.close()

    assert asyncio.run(reports()) == ["report 1", "report 1", "report 2", "report 2"]


def test_items_are_in_the_order_of_the_ranking_page_by_page(here: Served) -> None:
    shown = json.loads(
        judgeq(here.folder, "show", original(here.folder).name, "--n", "100", "--json").stdout
    )
    (view,) = shown["views"]
    ranked = [item["id"] for item in view["items"]]
    first = here.page(here.run("items"))
    assert "1 to 50 of 56 items" in first
    pattern = r'<a href="[^"]*/items/(\d+)">'
    rows = re.findall(pattern, first + here.page(here.run("items?page=2")))
    ids = [*HOSTILE, *(f"plain {number}" for number in range(len(HOSTILE), 56))]
    assert [ids[int(row)] for row in rows] == ranked
    for number in ("0", "-1", "99999999999", "x", "%00", "9" * 4000):
        assert here.ask(here.run(f"items?page={number}")).status == 200


@pytest.mark.parametrize("words", ["plain 10", "PLAIN  10", "10 plain"])
def test_items_are_searched_by_words_whatever_their_case(here: Served, words: str) -> None:
    page = here.page(here.run(f"items?q={quote(words)}"))
    assert "1 to 1 of 1 item<" in page


def test_what_is_searched_for_is_shown_as_text(here: Served) -> None:
    words = '"><script>window.hacked = 1</script>'
    page = here.page(here.run(f"items?q={quote(words)}"))
    assert "No item matches." in page
    assert "<script>window" not in page
    assert here.ask(here.run("items?q=%FF%00%ED%A0%80")).status == 200


@pytest.mark.parametrize("row", range(len(HOSTILE)))
def test_items_of_hostile_ids_are_shown_by_their_rows(here: Served, row: int) -> None:
    page = here.page(here.run("items", row))
    assert "<script>window" not in page
    assert "<img src=x" not in page
    assert not set(page) & {"\x1b", "\u202e"}
    assert "Judgments, in the order asked" in page
    assert "The items that it met" in page
    assert "&lt;b&gt;" in page  # the text, in full
    assert "raw replies</a>" in page


def test_raw_replies_are_shown_when_they_are_asked_for(here: Served) -> None:
    without = here.page(here.run("items", 9))
    assert "attempt 1: ok" not in without
    page = here.page(here.run("items", "9?replies=1"))
    assert "attempt 1: ok" in page
    assert "&#34;ranking&#34;" in page


@pytest.mark.parametrize(
    "path",
    [
        *("/nothing", "/runs", "/runs/", "/runs/nothing", "/runs/nothing/report", "/runs/good/x"),
        *("/runs/..", "/runs/../good", "/runs/%2e%2e", "/runs/..%2fgood", "/runs/%2e%2e/items/1"),
        *("/runs/good/items/56", "/runs/good/items/-1", "/runs/good/items/x"),
        *("/runs/good/items/999999999", "/runs/%00", "/runs/%FF", "/runs/" + "x" * 5000),
        *("/assets/report.html", "/assets/../server.py", "/assets/%2e%2e%2fhtml.py", "/assets/"),
        *("/runs/nothing/status", "//evil.example/", "/favicon.ico", "/runs/goo"),
    ],
)
def test_what_is_not_there_is_a_plain_page(here: Served, path: str) -> None:
    answer = here.ask(path)
    assert answer.status == 404
    assert "Not here" in answer.text
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
        for name in ("broken", "<b>", "empty", "damaged"):
            for more in ((), ("report",), ("items",), ("items", 3)):
                here.page(here.run(*more, name=name), 422)
        here.page(here.run(name="begun"))
        assert here.ask(here.run("report", name="begun")).status in (404, 422)


def test_a_place_without_runs_says_so(tmp_path: Path) -> None:
    with served(tmp_path) as here:
        assert "There are no runs here yet" in here.page("/")


def test_a_run_that_was_not_finished_is_shown_as_far_as_it_is(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(original(folder), tmp_path / "runs" / "part")
    database = tmp_path / "runs" / "part" / "run.db"
    sql = "UPDATE jobs SET state = 'pending' WHERE id > {0}; DELETE FROM verdicts WHERE job > {0};"
    for upto, words in ((11, "isn&#39;t finished"), (-1, "Nothing is judged yet")):
        _change(database, sql.format(upto))
        with served(tmp_path) as here:
            page = here.page(here.run(name="part"))
            assert "part: stopped" in page
            report = here.ask(here.run("report", name="part"))
            assert words in (report.text if upto > 0 else page)
            assert report.status == (200 if upto > 0 else 404)
            items = here.ask(here.run("items", name="part"))
            assert ("The run isn't finished" if upto > 0 else "Nothing is judged yet") in items.text


def _change(database: Path, statements: str) -> None:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.executescript(statements)


def test_texts_are_left_out_where_they_are_unwanted_or_a_stranger_names_their_file(
    folder: Path, tmp_path: Path
) -> None:
    with served(folder, shown=False) as here:
        page = here.page(here.run("items", 20))
        assert "The text" not in page
        assert "20 plain 20" not in page
        assert "20 plain 20" not in here.page(here.run("items?q=plain"))
        assert "20 plain 20" not in here.ask(here.run("report")).text
    # Somebody else's folder says where texts lie: that file isn't opened for it.
    shutil.copytree(original(folder), tmp_path / "runs" / "strange")
    with served(tmp_path) as here:
        assert "the texts aren&#39;t here" in here.page(here.run("items", name="strange"))
        assert "20 plain 20" not in here.page(here.run("items", 20, name="strange"))


def test_runs_on_a_store_are_shown_too(tmp_path: Path) -> None:
    store = new_store()
    judgeq(tmp_path, "run", "-d", "demo", "--sample", "30", "-q", "--store", store)
    with served(tmp_path, runs=runs.runs_in(tmp_path, store)) as here:
        page = here.page("/")
        (path,) = re.findall(r'<a href="(/runs/[^"]*)">', page)
        assert "finished" in here.page(path)
        assert "1 to 30 of 30 items" in here.page(f"{path}/items")
        assert "Judgments, in the order asked" in here.page(f"{path}/items/3?replies=1")
        assert "For a methods section" in here.page(f"{path}/report")
        assert here.ask(f"{path}/status").status == 205


def test_nothing_in_the_runs_is_changed(here: Served) -> None:
    run = original(here.folder)
    before = {path: path.read_bytes() for path in run.iterdir() if path.suffix != ".db-shm"}
    for more in ((), ("report",), ("items",), ("items", 3)):
        here.page(here.run(*more))
    assert all(path.read_bytes() == content for path, content in before.items())
    assert {path.name for path in run.iterdir()} - {path.name for path in before} <= {"run.db-shm"}


# Live


def test_a_run_is_followed_while_somebody_works_on_it(here: Served) -> None:
    over = here.ask(here.run("status"))
    assert (over.status, over.text) == (205, "")
    with RunFolder(original(here.folder)).locked():
        while (part := here.ask(here.run("status"))).status == 205:
            time.sleep(0.01)  # what was seen is good for as long as it took to see
        assert part.status == 200
        assert "20 of 20 done" in part.text
        assert "<html" not in part.text
        assert "live.js" in here.page(here.run())


# Who may ask


def test_every_answer_says_what_may_be_done_with_it(here: Served) -> None:
    for path in ("/", "/nothing", "/assets/style.css", here.run(), here.run("report")):
        headers = here.ask(path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "script-src 'unsafe-inline'" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["Cache-Control"] == "private, no-store"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Server"] == "judgeq"
        assert "Access-Control-Allow-Origin" not in headers
        assert "Set-Cookie" not in headers


def test_it_answers_by_its_own_names_only(here: Served) -> None:
    port = here.guard.port
    for name in ("localhost", "127.0.0.1", "[::1]", "LOCALHOST"):
        assert here.ask("/", Host=f"{name}:{port}").status == 200
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
        "GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: {own}\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        "\x1b[31m nonsense\r\n\r\n",
        "GET /?q=" + "x" * 20_000 + " HTTP/1.1\r\nHost: {own}\r\n\r\n",
    ],
)
def test_what_no_browser_sends_is_refused(
    here: Served, head: str, capfd: pytest.CaptureFixture[str]
) -> None:
    head = head.replace("{own}", f"127.0.0.1:{here.guard.port}")
    with socket.create_connection(("127.0.0.1", here.guard.port), timeout=60) as connection:
        connection.sendall(head.encode())
        parts = []
        while part := connection.recv(65536):
            parts.append(part)
    answer = b"".join(parts).decode()
    assert re.match(r"HTTP/1\.[01] 4\d\d ", answer), answer[:200]
    assert "texts-" not in answer
    assert capfd.readouterr().err == ""


def test_nothing_can_be_changed(here: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
        assert here.ask("/", method).status == 405
        assert here.ask("/nothing", method).status == 405
    assert here.ask("/", "HEAD").text == ""
    assert here.ask(here.run("status"), "POST").status == 405


def test_other_sites_may_lead_here_and_no_more(here: Served) -> None:
    def ask(site: str, mode: str, use: str) -> int:
        named = {"Sec_Fetch_Site": site, "Sec_Fetch_Mode": mode, "Sec_Fetch_Dest": use}
        return here.ask("/", **named).status

    for site in ("cross-site", "same-site"):
        assert ask(site, "navigate", "document") == 200
        for mode, use in (
            *(("no-cors", "script"), ("no-cors", "image"), ("cors", "empty")),
            *(("navigate", "iframe"), ("navigate", "embed"), ("websocket", "websocket")),
        ):
            assert ask(site, mode, use) == 403
    assert ask("same-origin", "cors", "empty") == 200
    assert ask("none", "navigate", "document") == 200


def test_the_token_comes_in_a_header_and_never_as_a_cookie(folder: Path) -> None:
    """A cookie would be sent to every port of this machine, and to whoever listens there."""
    with served(folder, token="the-secret") as here:
        paths = ("/", here.run(), here.run("report"), here.run("items"), here.run("status"))
        for path in (*paths, "/?token=the-secret"):
            for wrong in ({}, {"Authorization": "Bearer no"}, {"Authorization": "the-secret"},
                          {"Authorization": "Bearer thé-secret"},
                          {"Cookie": f"judgeq-{here.guard.port}=the-secret"}):  # fmt: skip
                answer = here.ask(path, **wrong)
                assert answer.status == 401
                assert "texts-" not in answer.text
                assert "the-secret" not in answer.text
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


def test_only_this_machines_addresses_need_no_token() -> None:
    assert all(map(is_local, ("127.0.0.1", "::1", "localhost", "127.8.8.8")))
    assert not any(
        map(is_local, ("0.0.0.0", "::", "", "10.0.0.1", "localhost.evil.example", "127.0.0.1.x"))
    )


def test_all_addresses_are_answered_by_the_one_that_was_reached(folder: Path) -> None:
    with served(folder, host="0.0.0.0", token="t") as here:
        port = here.guard.port
        for host, status in (
            *(("127.0.0.1", 200), (socket.gethostname(), 200)),
            *(("10.11.12.13", 421), ("0.0.0.0", 421)),
        ):
            answer = here.ask("/", Host=f"{host}:{port}", Authorization="Bearer t")
            assert answer.status == status
        assert here.guard.address == f"http://{socket.gethostname()}:{port}/#token=t"


# Work beside the event loop


def test_what_was_made_is_kept_until_its_stamp_changes() -> None:
    made: list[int] = []
    now = [0.0]

    async def make() -> int:
        made.append(len(made))
        return made[-1]

    async def story() -> None:
        shelf: Shelf[int] = Shelf(2, clock=lambda: now[0])
        assert await asyncio.gather(*(shelf.get("a", 1, make) for _ in range(5))) == [0] * 5
        assert await shelf.get("a", 1, make) == 0
        assert await shelf.get("a", 2, make) == 1
        assert [await shelf.get(key, 2, make) for key in "bca"] == [2, 3, 4]  # two are kept

        async def slow() -> int:
            now[0] += 3
            return await make()

        assert await shelf.get("d", 1, slow) == 5
        now[0] += 3 * beside.AGAIN - 1
        assert await shelf.get("d", 2, slow) == 5
        now[0] += 1
        assert await shelf.get("d", 2, slow) == 6

    asyncio.run(story())


def test_what_fails_is_made_again_and_too_much_at_once_is_refused() -> None:
    async def fail() -> int:
        raise ValueError("no")

    async def make() -> int:
        return 1

    async def wait() -> int:
        await asyncio.Event().wait()
        return 0

    async def story() -> None:
        shelf: Shelf[int] = Shelf(2)
        with pytest.raises(ValueError, match="no"):
            await shelf.get("a", 1, fail)
        assert await shelf.get("a", 1, make) == 1
        waiting = [
            asyncio.create_task(shelf.get(str(number), 1, wait)) for number in range(beside.WAITING)
        ]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await shelf.get("one more", 1, make)
        assert await shelf.get("a", 1, make) == 1
        await shelf.close()
        gone = await asyncio.gather(*waiting, return_exceptions=True)
        assert {type(one) for one in gone} == {asyncio.CancelledError}

    asyncio.run(story())


# The command


def test_it_says_where_it_is_and_ctrl_c_ends_it(tmp_path: Path) -> None:
    process = start(tmp_path, "serve", "--port", "0", "--json")
    assert process.stdout is not None
    line = process.stdout.readline()
    address = json.loads(line)["address"]
    parts = urlsplit(address)
    assert (parts.scheme, parts.hostname, parts.path, parts.query) == ("http", "127.0.0.1", "/", "")
    assert parts.port is not None
    with urlopen(address, timeout=60) as answer:
        assert answer.status == 200
    taken = judgeq(tmp_path, "serve", "--port", str(parts.port), expect=2)
    assert f"port {parts.port}: it is in use" in taken.stderr
    assert "--port" in taken.stderr
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_a_browser_is_opened_without_the_token_in_a_commands_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, str]] = []

    def launch(url: str) -> None:
        path = Path(unquote(urlsplit(url).path))
        seen.append((url, path.read_text() if url.startswith("file:") else ""))
        raise KeyboardInterrupt

    monkeypatch.setattr("typer.launch", launch)
    shown = judgeq(tmp_path, "serve", "--port", "0", "--open").stdout
    assert seen.pop() == (shown.split("\n")[0], "")
    shown = judgeq(tmp_path, "serve", "--port", "0", "--open", "--token").stdout
    link = shown.split("\n")[0]
    ((url, content),) = seen
    assert "#token=" in link
    assert "token" not in url
    assert f'url={link}"' in content
    assert not Path(unquote(urlsplit(url).path)).exists()


def test_addresses_that_cannot_be_are_named(tmp_path: Path) -> None:
    for host in ("203.0.113.7", "no.such.name.invalid", "a b"):
        assert "can't listen on" in judgeq(tmp_path, "serve", "--host", host, expect=2).stderr
    assert judgeq(tmp_path, "serve", "--store", "nonsense", expect=2).stderr
