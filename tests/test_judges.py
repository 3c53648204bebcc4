"""`judgeq judges`: who judges a run is changed by the process that has it, or by the command itself."""

import asyncio
import csv
import json
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgeq import run_places
from judgeq.engine import session
from judgeq.errors import RunError, StoppedError
from judgeq.files import remembered
from judgeq.people.people import People
from judgeq.people.registry import Change
from judgeq.rating.comparisons import joined
from judgeq.run_places import RunPlace
from judgeq.web import control
from judgeq.web.control import HOST, controlled
from tests import people as them
from tests.cli import LONGEST, judgeq, only_run, start
from tests.web import answer_of


def begun(folder: Path, **more: Any) -> RunPlace:
    """A run that asks people, and that no process has any longer."""

    @asynccontextmanager
    async def page(_: People) -> AsyncIterator[None]:
        raise StoppedError("enough")
        yield

    prepared = session.prepare(them.settings(folder, **more), folder / "runs")
    with pytest.raises(StoppedError):
        session.execute(prepared, lambda _: None, page=page)
    return prepared.folder


def served(folder: Path, story: Callable[[RunPlace], None]) -> RunPlace:
    """A run of people, while whose page is open this is done, in another thread than the page's."""

    @asynccontextmanager
    async def page(people: People) -> AsyncIterator[None]:
        async with controlled(people, prepared.folder, "http://lab/#{}".format):
            await asyncio.to_thread(story, prepared.folder)
        raise StoppedError("enough")
        yield

    prepared = session.prepare(them.settings(folder), folder / "runs")
    with pytest.raises(StoppedError, match="enough"):
        session.execute(prepared, lambda _: None, page=page)
    return prepared.folder


def changed(folder: Path, what: str, *words: str, expect: int = 0) -> Any:
    """What a command prints with --json, which its schema allows."""
    text = judgeq(folder, "annotate", what, *words, "--json", expect=expect).stdout
    return json.loads(text)


def people(place: RunPlace) -> list[tuple[str, str, int | None]]:
    async def read() -> list[tuple[str, str, int | None]]:
        store = place.store(read_only=True)
        try:
            return [(one.name, str(one.state), one.quota) for one in await store.people()]
        finally:
            await store.close()

    return asyncio.run(read())


def test_judges_are_added_changed_and_forgotten(tmp_path: Path) -> None:
    place = begun(tmp_path)
    done = judgeq(tmp_path, "annotate", "add", "last", "Ann", "Bob Jones", "--quota", "60")
    first, second, *notes = done.stdout.splitlines()
    assert first.startswith("Ann        http://127.0.0.1:8766/#")
    assert second.startswith("Bob Jones  http://127.0.0.1:8766/#")
    assert len(first.partition("#")[2]) == 32
    assert "shown only now" in notes[0]
    assert f"`judgeq annotate {place.id}`" in notes[1]
    assert notes[2].startswith("The links work on this machine only")
    judgeq(tmp_path, "annotate", "remove", "last", "Ann")
    done = judgeq(tmp_path, "annotate", "add", "last", "Ann", "--url-prefix", "https://lab.example")
    assert "on this machine only" not in done.stdout
    prefix = ("--url-prefix", "https://lab.example/a/")
    (eve,) = changed(tmp_path, "add", "last", "Eve Adams", *prefix)["judges"]
    assert eve["link"].startswith("https://lab.example/a/#")
    assert changed(tmp_path, "remove", place.id, "eve adams")["judges"][0]["state"] == "removed"
    flags = ("--port", "9000", "--quota", "5")
    (again,) = changed(tmp_path, "add", place.id, "eve adams", *flags)["judges"]
    assert again["link"].startswith("http://127.0.0.1:9000/#")
    assert (again["name"], again["quota"]) == ("Eve Adams", 5)
    changed(tmp_path, "remove", "last", "Eve Adams")
    told = judgeq(tmp_path, "annotate", "remove", "last", "Bob  Jones").stdout
    assert "Bob Jones is removed." in told
    gone = [("Bob Jones", "removed", 60), ("Eve Adams", "removed", 5)]
    assert people(place) == [("Ann", "active", 60), *gone]
    told = judgeq(tmp_path, "annotate", "forget", "last", "Bob Jones", "Eve Adams").stdout
    assert told.startswith("Forgotten; called person 2, person 3 from now on.")
    assert people(place)[1:] == [("person 2", "removed", 60), ("person 3", "removed", 5)]
    for path in place.path.rglob("*"):
        kept = path.read_bytes()
        assert not [name for name in (b"Bob Jones", b"Eve Adams") if name in kept], path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("add", "Ann"), "There is a judge named 'Ann' already"),
        (("add", "Bob", "bob"), "There is a judge named 'bob' already"),
        (("add", "a\x1b[2J"), "A judge can't be named 'a'"),
        (("add", "Bob", "--port", "0"), "--port 0 is any free one"),
        (("add", "Bob", "--url-prefix", "ftp://x"), "'ftp://x' is neither"),
        (("add", "Bob", "--quota", "0"), "'--quota': 0 is not in the range 1 to 2"),
        (("add",), "Missing argument"),
        (("remove", "Ann", "Eve\x1b[2J"), "There is no judge named 'Eve'; there are: Ann."),
        (("forget", ""), "There is no judge named ''"),
    ],
)
def test_what_can_not_be_done_changes_nothing(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    place = begun(tmp_path)
    judgeq(tmp_path, "annotate", "add", "last", "Ann")
    what, *rest = words
    assert message in changed(tmp_path, what, "last", *rest, expect=2)["error"]["message"]
    assert people(place) == [("Ann", "active", None)]


def test_a_command_reaches_the_process_that_has_the_run(tmp_path: Path) -> None:
    them.dataset(tmp_path)
    words = ("--dataset", "texts.csv", "--judge", "people", "--feature", "size", "--port", "0")
    process = start(tmp_path, "run", *words, "--quiet")
    assert process.stderr is not None
    said = process.stderr.readline()
    assert said.startswith("People judge at http://127.0.0.1:")
    told = judgeq(tmp_path, "annotate", "add", "last", "Ann", "--port", "9000").stdout
    assert told.startswith(f"Ann  {said.split()[3].rstrip('.,/')}/#")
    assert f"judgeq annotate {only_run(tmp_path).name}" not in told
    assert changed(tmp_path, "remove", "last", "Ann")["open"] is True
    told = judgeq(tmp_path, "annotate", "remove", "last", "Eve", expect=2).stderr
    assert "There is no judge named 'Eve'; there are: Ann." in told
    (file,) = (tmp_path / "state" / "judgeq" / "people").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    process.kill()  # and leaves its file behind
    process.wait(LONGEST)
    assert changed(tmp_path, "add", "last", "Ann")["open"] is False
    place = run_places.runs_in(tmp_path / "runs").find("last")
    assert people(place) == [("Ann", "active", None)]
    with place.locked():
        file.unlink()
        told = judgeq(tmp_path, "annotate", "remove", "last", "Ann", expect=7).stderr
        assert "is in use by process" in told


def test_nobody_without_the_secret_changes_anything(tmp_path: Path) -> None:
    def story(place: RunPlace) -> None:
        file = remembered("people", place.identity)
        said = json.loads(file.read_text())
        asked = json.dumps({"what": "add", "names": ["Mallory"]})

        def status(host: str = "", body: str = asked, **headers: str) -> int:
            named = {"Host": host or f"{HOST}:{said['port']}", **headers}
            return answer_of(said["port"], "/", "POST", body, **named).status

        secret = f"Bearer {said['secret']}"
        assert status() == 401
        assert status(Authorization="Bearer x") == 401
        assert status("evil.example", Authorization=secret) == 421
        wrong = ('{"what": "rob", "names": ["Ann"]}', '{"what": "add", "names": []}')
        for body in ("", "{", "[]", *wrong):
            assert status(body=body, Authorization=secret) == 400
        ann = json.dumps({"what": "add", "names": ["Ann"]})
        assert [status(body=ann, Authorization=secret) for _ in range(2)] == [200, 400]
        file.write_text(json.dumps(said | {"secret": "x" * 43}))
        assert control.change(place, Change("add", ("Eve",))) is None
        with pytest.raises(RunError, match="in use"), place.locked():
            pass
        for text in ("", "[]", '{"port": 0, "secret": "x"}', "\0"):
            file.write_text(text)
            assert control.change(place, Change("add", ("Eve",))) is None
        file.write_text(json.dumps(said))

    place = served(tmp_path, story)
    assert people(place) == [("Ann", "active", None)]
    assert not remembered("people", place.identity).exists()


def test_the_list_says_how_far_judges_are_and_how_they_do(tmp_path: Path) -> None:
    anchors = tmp_path / "anchors.csv"
    anchors.write_text("left,right,winner\nt23,t0,t23\nt1,t22,t22\n")
    more: dict[str, Any] = {"each": 2, "repeats": 0.2, "anchors": anchors}
    result = them.run(tmp_path, ["Ann", "=Bob<b>"], strategy="pairwise3", **more)
    pairs = np.sort(joined(result.history.asked).items.reshape(-1, 2), axis=1)
    questions = len(np.unique(pairs, axis=0))
    assert questions > 30
    known = changed(tmp_path, "list", "last")
    listed, listed_run = known["judges"], known["run"]
    assert [one["name"] for one in listed] == ["Ann", "=Bob<b>"]
    for one in listed:
        assert one["done"] == 36 + one["repeats"]["total"] + one["known"]["total"]
        assert one["known"] == {"count": 2, "total": 2}
        assert one["repeats"]["count"] == one["repeats"]["total"] > 3
        assert one["agreement"] == {"count": questions, "total": questions}
        assert sum(one["first_by_slot"]) == pytest.approx(1)
    text = judgeq(tmp_path, "annotate", "list", "--csv", "judges.csv").stdout
    for words in ("2 judges", "=Bob<b>", "active", "2 of 2", "100%"):
        assert words in text
    assert "quota" not in text
    assert "answers in " in text
    assert "with people" not in text
    with (tmp_path / "judges.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["key", "run", "name", "state", "value"]
    assert {row["name"] for row in rows} == {"Ann", "'=Bob<b>"}
    assert {(row["run"], row["state"]) for row in rows} == {(listed_run, "active")}
    numbers = {(row["key"], row["name"]): row for row in rows}
    for slot, share in enumerate(one["first_by_slot"], start=1):
        assert float(numbers[f"judges.first_by_slot.{slot}", "'=Bob<b>"]["value"]) == share
