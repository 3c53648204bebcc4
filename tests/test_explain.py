"""`judgeq explain`: the audit trail of one score, and what is known of two items."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.cli import judgeq
from tests.fakes import ADDING_UP
from tests.mock import mock
from tests.postgres import new_store

pytestmark = pytest.mark.usefixtures("rated_once")

N = ("-d", "demo", "--sample", "40")
JOBS: Mapping[str, tuple[str, ...]] = {
    "lists": (*N, "-s", "listwise10x3"),
    "pairs": (*N, "-s", "pairwise6", "--both-orders", "--sim-accuracy", "0.6"),
    "panel": (*N, "-s", "direct", *2 * ("--judge", "simulated"), "--ensemble", "each"),
    "hybrid": (*N, "-s", "hybrid5x2"),
    "paper": (*N, "-s", "pairwise4", "--rating", "bt-mm"),
}
HOSTILE = "[bold red]x[/] \x1b[31m\x1b]0;title\x07\u202eabc <script>\n=cmd()|" + "y" * 100_000
NEVER = {"\x1b", "\x07", "\x00", "\u202e"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explain")
    for name, job in JOBS.items():
        judgeq(path, "run", *job, "--quiet", "--runs-dir", name)
    return path


def some(runs: Path, name: str, n: int = 1) -> list[str]:
    """Some items of a run: the highest."""
    shown = judgeq(runs, "show", "--runs-dir", name, "--n", str(n), "--json").stdout
    return [item["id"] for item in json.loads(shown)["views"][0]["items"]]


def explained(runs: Path, name: str, item: str, *flags: str) -> Any:
    found = judgeq(runs, "explain", "last", item, "--runs-dir", name, *flags, "--json").stdout
    return json.loads(found)


@contextmanager
def changed(folder: Path) -> Iterator[sqlite3.Connection]:
    """The database of the folder's only run."""
    (path,) = folder.glob("**/run.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db


@pytest.mark.parametrize("name", JOBS)
def test_a_score_is_explained(runs: Path, name: str) -> None:
    (item,) = some(runs, name)
    found = explained(runs, name, item)
    shown = judgeq(runs, "explain", "last", item, "--runs-dir", name).stdout
    assert shown.startswith(f"{item} in ")
    assert ("score " if name == "panel" else " of ") in shown
    assert len(found["judgments"]) == found["items"][0]["matches"] * (2 if name == "pairs" else 1)
    for judgment in found["judgments"]:
        assert judgment["presented"][judgment["slot"] - 1] == item
        assert sorted(judgment["presented"]) == sorted(chain(*judgment["groups"]))
    assert found["replies"] is None
    if name != "panel":
        (elo,) = (line for line in shown.splitlines() if line.startswith("Elo by round"))
        assert elo.split()[3] == "1500"
        assert elo.split()[-1] == f"{found['items'][0]['elo']:.0f}"
        wins = sum(judgment["wins"] for judgment in found["judgments"])
        assert wins == found["items"][0]["wins"] or name == "pairs"
    counts = Counter(one["outcome"] for one in found["judgments"] if one["rated"])
    assert all(f"{n} {outcome}" in shown for outcome, n in counts.items() if outcome)
    for judgment in found["judgments"]:
        residual, outcome = judgment["residual"], judgment["outcome"]
        assert (residual is None) == (len(judgment["presented"]) == 1)
        words = {True: "higher" if (residual or 0) > 0 else "lower", False: "as expected"}
        assert outcome == (None if residual is None else words[abs(residual) > 1.6])


def test_an_item_alone_is_of_the_last_run(runs: Path) -> None:
    (item,) = some(runs, "lists")
    flags = ("--runs-dir", "lists")
    shown = judgeq(runs, "explain", item, *flags).stdout
    assert shown == judgeq(runs, "explain", "last", item, *flags).stdout
    error = judgeq(runs, "explain", "last", item, "x", *flags, expect=2).stderr
    assert "Compare two items with --vs" in error


def test_the_texts_next_to_it_are_shown(runs: Path) -> None:
    (item,) = some(runs, "lists")
    found = explained(runs, "lists", item)
    items = json.loads(judgeq(runs, "show", "--runs-dir", "lists", "--n", "40", "--json").stdout)[
        "views"
    ][0]["items"]
    texts = {one["id"]: one["text"] for one in items}
    shown = judgeq(runs, "explain", item, "--runs-dir", "lists").stdout
    for judgment in found["judgments"]:
        groups = judgment["groups"]
        at = groups.index([item])
        for sign, place in (("<", at - 1), (">", at + 1)):
            if 0 <= place < len(groups):
                (other,) = groups[place]
                lines = [one for one in shown.splitlines() if f" {sign} {other} " in one]
                assert lines
                assert all(texts[other][:15] in line for line in lines)


def test_replies_are_read_on_demand(runs: Path) -> None:
    (item,) = some(runs, "lists")
    found = explained(runs, "lists", item, "--replies")
    shown = judgeq(runs, "explain", "last", item, "--runs-dir", "lists", "--replies").stdout
    for judgment in found["judgments"]:
        (call,) = found["replies"][str(judgment["job"])]
        assert call["outcome"] == "ok"
        assert f"job {judgment['job']}" in shown
        assert f"\n  {call['reply']}" in shown


def test_two_items_are_held_together(runs: Path) -> None:
    one, other = some(runs, "lists", 2)
    found = explained(runs, "lists", one, "--vs", other, "--replies")
    back = explained(runs, "lists", other, "--vs", one)
    assert [item["id"] for item in found["items"]] == [one, other]
    assert found["probability_above"] == pytest.approx(1 - back["probability_above"])
    assert found["direct"]["met"] == len(found["judgments"]) > 0
    assert found["direct"]["above"] == back["direct"]["below"]
    assert found["replies"].keys() == {str(judgment["job"]) for judgment in found["judgments"]}
    assert all(found["replies"].values())
    shown = judgeq(
        runs, "explain", "last", one, "--vs", other, "--runs-dir", "lists", "--replies"
    ).stdout
    assert "that " + one in shown
    assert "the other" in shown
    assert f" > {other[:10]}" in shown or f" < {other[:10]}" in shown
    assert shown.count("attempt 1: ok") == len(found["judgments"])
    paper = some(runs, "paper", 2)
    none = judgeq(runs, "explain", "last", paper[0], "--vs", paper[1], "--runs-dir", "paper").stdout
    assert "–: the rating bt-mm has no errors" in none


def test_what_is_not_there_is_said(runs: Path) -> None:
    item, other = some(runs, "lists", 2)
    flags = ("--runs-dir", "lists")
    error = judgeq(runs, "explain", "last", item[:-1], *flags, expect=2).stderr
    assert "Did you mean" in error
    for odd in ("", "\x1b[31m\x00"[:5], HOSTILE):
        error = judgeq(runs, "explain", "last", odd, *flags, expect=2).stderr
        assert "has no item" in error
        assert not set(error) & NEVER
        assert len(error) < 300
    assert (
        "has no item 'x'"
        in judgeq(runs, "explain", "last", item, "--vs", "x", *flags, expect=2).stderr
    )
    same = judgeq(runs, "explain", "last", item, "--vs", item, *flags, expect=2).stderr
    assert "name another item" in same
    assert other


def test_partial_runs_and_items_that_were_never_judged(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", *N, "-s", "listwise10x2", "-q")
    items = some(tmp_path, "runs", 40)
    with changed(tmp_path) as db:
        db.execute("DELETE FROM verdicts WHERE job > 0")
        db.execute("UPDATE jobs SET state = 'pending' WHERE id > 1")
        db.execute("UPDATE jobs SET state = 'invalid' WHERE id = 1")
        db.execute("UPDATE calls SET outcome = 'unusable', reply = ? WHERE job = 1", (HOSTILE,))
        db.execute("DELETE FROM calls WHERE job > 1")
        for statement in ADDING_UP:
            db.execute(statement)
    found = [explained(tmp_path, "runs", item, "--replies") for item in items]
    never = next(
        one
        for one in found
        if not one["judgments"] and any(part["job"] == 1 for part in one["without_verdict"])
    )
    assert never["items"][0]["rank"] is None
    shown = judgeq(tmp_path, "explain", "last", never["items"][0]["id"], "--replies").stdout
    assert "(the run isn't finished)" in shown
    assert "–: it was never judged" in shown
    assert "Questions without a verdict" in shown
    assert "unusable" in shown
    assert "more characters; --json has all)" in shown
    assert not set(shown) & NEVER
    judged = next(one for one in found if one["judgments"])
    both = judgeq(
        *(tmp_path, "explain", "last", judged["items"][0]["id"], "--vs", never["items"][0]["id"])
    ).stdout
    assert "no judgments connect the two" in both
    with changed(tmp_path) as db:
        db.execute("DELETE FROM verdicts")
        db.execute("UPDATE jobs SET state = 'pending'")
    error = judgeq(tmp_path, "explain", "last", items[0], expect=7).stderr
    assert "has no verdict" in error


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE verdicts SET ranking = x'00' WHERE job = 3",
        "UPDATE jobs SET items = x'00' WHERE id = 7",
        "UPDATE rounds SET active = x'00' WHERE round = 2",
        "UPDATE calls SET cost = 9e999",
    ],
)
def test_a_damaged_ledger_is_said_to_be_one(tmp_path: Path, damage: str) -> None:
    judgeq(tmp_path, "run", *N, "-s", "listwise10x2", "-q")
    (item,) = some(tmp_path, "runs")
    with changed(tmp_path) as db:
        db.execute(damage)
    error = judgeq(tmp_path, "explain", "last", item, "--replies", expect=7).stderr
    assert "is damaged" in error


def test_texts_that_are_gone_are_missed_aloud(tmp_path: Path) -> None:
    texts = [{"id": f"t{at}", "text": HOSTILE} for at in range(8)]
    (tmp_path / "h.jsonl").write_text("\n".join(map(json.dumps, texts)))
    judged = [
        {"round": 1, "group": at, "presented": [at, at + 1], "ranking": [[at, at + 1]]}
        for at in range(7)
    ]
    (tmp_path / "j.jsonl").write_text("\n".join(map(json.dumps, judged)))
    judgeq(tmp_path, "import", "j.jsonl", "-d", "h.jsonl", "--id-column", "id", "-q")
    for item in ("t1", "t0"):
        shown = judgeq(tmp_path, "explain", "last", item, "--replies").stdout
        assert "[bold red]x[/]" in shown
        assert "more characters)" in shown
        assert not set(shown) & NEVER
        assert "since the judgments were imported" in shown
        assert max(map(len, shown.splitlines())) < 600
    (tmp_path / "h.jsonl").write_text(json.dumps(texts[0]))
    gone = judgeq(tmp_path, "explain", "last", "t1")
    assert gone.stdout.startswith("t1 in ")
    assert "the texts aren't here" in gone.stderr
    assert not judgeq(tmp_path, "show", "--no-texts").stderr


def test_reasons_and_replies_of_models_on_a_store(tmp_path: Path) -> None:
    store = new_store()
    with mock(tmp_path) as url:
        judgeq(
            *(tmp_path, "run", *N, "-s", "listwise10x1", "--judge", "m", "--base-url", url),
            *("--store", store, "--reasons", "-q", "--price", "1,2"),
        )
    listed = json.loads(judgeq(tmp_path, "show", "--store", store, "--json").stdout)
    item = listed["views"][0]["items"][0]["id"]
    flags = ("explain", "last", item, "--store", store)
    found = json.loads(judgeq(tmp_path, *flags, "--json").stdout)
    (judgment,) = found["judgments"]
    reason = found["reasons"][str(judgment["job"])]
    assert reason
    assert found["replies"] is None
    shown = judgeq(tmp_path, *flags).stdout
    assert "The judge's reasons" in shown
    assert reason[:30] in shown
    assert "Replies" not in shown
    replies = json.loads(judgeq(tmp_path, *flags, "--replies", "--json").stdout)["replies"]
    (call,) = replies[str(judgment["job"])]
    assert reason[:30] in call["reply"]
    assert call["cost"] > 0
