"""`judgeq explain`: the evidence behind one score, and what is known of two items."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import judgeq as package
from judgeq.engine.results import Result
from judgeq.evaluation.items import Appearance, explanation, trails
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


def opened(runs: Path, name: str) -> Result:
    return package.open_run(runs_dir=runs / name)


def all_trails(run: Result) -> list[list[Appearance]]:
    return trails(run, range(len(run.scores.ids)))


@pytest.mark.parametrize("name", JOBS)
def test_trails_hold_all_that_was_asked(runs: Path, name: str) -> None:
    run = opened(runs, name)
    every = all_trails(run)
    asked = sum(len(part.items) for part in run.history.asked)
    assert sum(len(one) for one in every) == asked
    for name, one in zip(run.scores.ids, every, strict=True):
        jobs = [appearance.job for appearance in one]
        assert jobs == sorted(set(jobs))
        for appearance in one:
            judgment = appearance
            assert judgment.presented[appearance.slot - 1] == name  # type: ignore[operator]
            assert sorted(judgment.presented) == sorted(chain(*judgment.groups))
            assert 1 <= judgment.round <= run.rounds
            met = appearance.comparisons
            assert met == len(judgment.presented) - 1
            others = [other for other in judgment.presented if other != name]
            assert appearance.wins == sum(judgment.above(name, other) or 0 for other in others)
            assert not met or 0 <= appearance.expected <= met
            assert (judgment.judge is None) == (len(run.judges) == 1)
    if run.history.basis == "comparisons" and not run.history.both_orders:
        wins = [sum(one.wins for one in item) for item in every]
        assert_allclose(wins, run.scores.wins)
        assert [len(item) for item in every] == run.scores.matches.tolist()


def imported(folder: Path, rankings: list[str]) -> Result:
    """The run of such rankings of the items a to i."""
    lines = [{"id": name, "text": f"text {name}"} for name in "abcdefghi"]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    judged = [
        {"round": 1, "group": at, "presented": sorted(names), "ranking": [*names], "ordered": False}
        for at, names in enumerate(rankings)
    ]
    (folder / "judged.jsonl").write_text("\n".join(map(json.dumps, judged)))
    judgeq(folder, "import", "judged.jsonl", "-d", "texts.jsonl", "--id-column", "id", "-q")
    return package.open_run(runs_dir=folder / "runs")


def test_what_is_known_of_two_items(tmp_path: Path) -> None:
    run = imported(tmp_path, ["ab", "ab", "ba", "acb", "ad", "db", "eb", "ea", "af", "bf", "gh"])

    def versus(row: int, other: int) -> Any:
        return asyncio.run(explanation(run, row, other))

    known = versus(0, 1)
    assert known.direct == {"met": 4, "above": 3, "below": 1, "tied": 0}
    assert [one.round for one in known.judgments] == [1, 1, 1, 1]
    back = versus(1, 0)
    assert (back.direct["above"], back.direct["below"]) == (1, 3)
    assert known.probability == run.probability_above("a", "b")
    assert back.probability == pytest.approx(1 - known.probability)
    apart = versus(0, 6)
    assert (apart.judgments, apart.probability) == ([], None)
    assert versus(0, 8).probability is None


def test_imported_judgments_have_no_slots_and_no_replies(tmp_path: Path) -> None:
    run = imported(tmp_path, ["ab", "bc", "a"])
    one, never = trails(run, [0, 8])
    assert [appearance.slot for appearance in one][:1] == [None]
    alone = one[-1]
    assert np.isnan(alone.residual)
    assert never == []
    for row in (0, 8):
        found = asyncio.run(explanation(run, row, replies=True))
        assert found.replies == {}


# As a user sees it


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
        wins = sum(judgment["wins"] for judgment in found["judgments"])
        assert wins == found["items"][0]["wins"] or name == "pairs"
    counts = Counter(one["outcome"] for one in found["judgments"])
    assert all(f"{n} {outcome}" in shown for outcome, n in counts.items() if outcome)
    for judgment in found["judgments"]:
        residual, outcome = judgment["residual"], judgment["outcome"]
        assert (residual is None) == (len(judgment["presented"]) == 1)
        words = {True: "higher" if (residual or 0) > 0 else "lower", False: "as expected"}
        assert outcome == (None if residual is None else words[abs(residual) > 1.6])


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
    assert "–: no judgments connect the two" in none


def test_what_is_not_there_is_said(runs: Path) -> None:
    item, other = some(runs, "lists", 2)
    flags = ("--runs-dir", "lists")
    error = judgeq(runs, "explain", "last", item[:-1], *flags, expect=2).stderr
    assert "has no item" in error
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
    never = next(one for one in found if not one["judgments"])
    assert never["items"][0]["rank"] is None
    shown = judgeq(tmp_path, "explain", "last", never["items"][0]["id"], "--replies").stdout
    assert "(the run isn't finished)" in shown
    assert "–: it was never judged" in shown
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
