"""`judgeq show` and `judgeq explain`: which items are looked at, and the evidence behind a score."""

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import judgeq as package
from judgeq.engine.results import Result
from judgeq.evaluation import items
from judgeq.evaluation.items import explanation, trails
from judgeq.rating import scale_quality
from judgeq.rating.comparisons import joined
from tests.cli import execute, json_of, judgeq
from tests.fakes import ADDING_UP
from tests.mock import mock
from tests.postgres import new_store
from tests.test_export import cells

pytestmark = pytest.mark.usefixtures("rated_once")


N = ("-d", "demo", "--sample", "40")
JOBS: Mapping[str, tuple[str, ...]] = {
    "lists": (*N, "-s", "listwise10x3"),
    "pairs": (*N, "-s", "pairwise6", "--both-orders", "--sim-accuracy", "0.6"),
    "panel": (*N, "-s", "direct", *2 * ("--judge", "simulated"), "--ensemble", "each"),
    "hybrid": (*N, "-s", "hybrid5x2"),
    "paper": (*N, "-s", "pairwise4", "--rating", "bt-mm"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("explain")
    for name, job in JOBS.items():
        judgeq(path, "run", *job, "--quiet", "--runs-dir", name)
    return path


def opened(runs: Path, name: str = "lists") -> Result:
    return package.open_run(runs_dir=runs / name)


def opened_with_texts(runs: Path, name: str = "lists") -> Result:
    run = opened(runs, name)
    texts = [f"Text {row} of ÄPFEL" for row in range(len(run.scores.ids))]
    return replace(run, scores=replace(run.scores, texts=texts))


def test_the_ends_of_the_ranking(runs: Path) -> None:
    run = opened_with_texts(runs)
    top, bottom = items.ends(run, 5)
    ranks = run.scores.rank
    assert ranks[list(top.rows)].tolist() == [1, 2, 3, 4, 5]
    assert ranks[list(bottom.rows)].tolist() == [36, 37, 38, 39, 40]
    (whole,) = items.ends(run, 20)
    assert (whole.name, len(whole.rows)) == ("all", 40)
    never = replace(run, scores=replace(run.scores, matches=np.zeros(40, dtype=np.int64)))
    (none,) = items.ends(never, 5)
    assert list(none.rows) == []


def test_around_an_item_are_its_neighbours(runs: Path) -> None:
    run = opened_with_texts(runs)
    ranks = run.scores.rank
    for rank, expected in ((30, [28, 29, 30, 31, 32]), (1, [1, 2, 3]), (40, [38, 39, 40])):
        row = int(np.flatnonzero(ranks == rank)[0])
        view = items.around(run, 2, row)
        assert (ranks[list(view.rows)].tolist(), view.marked) == (expected, row)
    matches = run.scores.matches.copy()
    matches[0] = 0
    never = replace(run, scores=replace(run.scores, matches=matches))
    assert items.around(never, 2, 0).why == "this item was never judged"
    # Another component's items aren't neighbours.
    component = np.where(ranks % 2 == 0, 1, 2)
    apart = replace(run, scores=replace(run.scores, component=component))
    row = int(np.flatnonzero(ranks == 30)[0])
    assert (ranks[list(items.around(apart, 2, row).rows)] % 2 == 0).all()


def test_uncertain_and_contested_are_those_of_the_largest_measures(runs: Path) -> None:
    run = opened_with_texts(runs)
    uncertain = items.uncertain(run, 3)
    assert list(uncertain.rows) == np.argsort(-run.scores.se, kind="stable")[:3].tolist()
    contested = items.contested(run, 3)
    fit = scale_quality.fit_of_items(joined(run.history.verdicts), run.scores.main[1])
    assert list(contested.rows) == np.argsort(-fit.z, kind="stable")[:3].tolist()
    assert_allclose(contested.measures["infit"], fit.infit)
    paper = opened_with_texts(runs, "paper")
    assert items.uncertain(paper, 3).why == "the rating bt-mm has no standard errors"
    few = items.contested(paper, 3)
    assert few.why == "no item was in 10 comparisons, which this takes"


def test_against_gold_are_those_whose_ranks_differ_most(runs: Path) -> None:
    run = opened_with_texts(runs)
    values = np.array([3.0, 2.0, 1.0, 0.0, 9.0, 5.0])
    gold = np.array([0.0, 1.0, 1.0, 0.0, np.nan, 1.0])
    matches, component = np.array([1, 1, 1, 1, 1, 0]), np.ones(6, dtype=np.int64)
    known: dict[str, Any] = {"matches": matches, "gold": gold, "component": component}
    one = replace(run.scores, ids=list("abcdef"), ratings={"pl": values}, **known)
    expected = [(4 - 1.5) / 4, (3 - 3.5) / 4, (2 - 3.5) / 4, (1 - 1.5) / 4, np.nan, np.nan]
    assert_allclose(items.gap_to_gold(one), expected)
    view = items.against_gold(run, 40)
    assert (np.diff(np.abs(view.measures["gap"][list(view.rows)])) <= 0).all()
    unlabelled = replace(run, scores=replace(run.scores, gold=np.full(40, np.nan)))
    assert items.against_gold(unlabelled, 3).why == "no judged item has a gold label"


def test_show_prints_the_ends_with_their_texts(runs: Path) -> None:
    shown = judgeq(runs, "show", "--runs-dir", "lists", "--n", "3").stdout
    assert "The 3 highest of 40 items, by score (pl)" in shown
    assert "The 3 lowest of 40 items, by score (pl)" in shown
    caution = "The scores form two groups"
    lines = [line for line in shown.splitlines() if line.strip() and caution not in line]
    assert len(lines) == 11
    without = judgeq(runs, "show", "--runs-dir", "lists", "--n", "3", "--no-texts").stdout
    assert " text\n" in shown
    assert " text\n" not in without


def test_show_writes_json_and_csv_alike(runs: Path) -> None:
    flags = ("--runs-dir", "lists", "--uncertain", "--against-gold", "--n", "4")
    found = json_of(runs, "show", *flags, "--csv", "t.csv")
    rows = cells(runs / "t.csv")
    assert list(rows[0])[:8] == ["view", "id", "rank", "elo", "pl", "se", "low", "high"]
    assert [row["view"] for row in rows] == ["uncertain"] * 4 + ["against gold"] * 4
    listed = [item for view in found["views"] for item in view["items"]]
    assert [row["id"] for row in rows] == [item["id"] for item in listed]
    for row, item in zip(rows, listed, strict=True):
        assert float(row["pl"]) == item["pl"]
        assert float(row["gold"]) == item["gold"]
        assert row["gap"] == str(item.get("gap", ""))
        assert item["text"].startswith(row["text"][:20])
    run = opened_with_texts(runs)
    inside = run.run.path / "x.csv"
    assert "judgeq's own" in judgeq(runs, "show", *flags, "--csv", inside, expect=2).stderr


HOSTILE = "[bold red]x[/] \x1b[31m\x1b]0;title\x07\u202eabc <script>\n=cmd()|" + "y" * 100_000
NEVER = {"\x1b", "\x07", "\x00", "\u202e"}


def recorded(folder: Path, ids: Sequence[str], text: str, *rankings: Sequence[Any]) -> None:
    """Import these rankings of items with such texts, as a run; `{}` in a text is the id."""
    lines = [{"id": name, "text": text.replace("{}", name)} for name in ids]
    (folder / "texts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    judged = [
        {"ordered": False, "presented": sorted(chain(*ranking)), "ranking": [*ranking]}
        for ranking in rankings
    ]
    (folder / "judged.jsonl").write_text("\n".join(map(json.dumps, judged)))
    judgeq(folder, "import", "judged.jsonl", "-d", "texts.jsonl", "--id-column", "id", "-q")


def test_hostile_ids_and_texts_stay_text(tmp_path: Path) -> None:
    recorded(tmp_path, "abcdef", HOSTILE, "ab", "bc", "cd", "de", "ef")
    with_texts = judgeq(tmp_path, "show").stdout
    assert "[bold red]x[/]" in with_texts
    assert not set(with_texts) & NEVER
    # A run's file may be a stranger's: ids that no dataset could have had.
    (tmp_path / "texts.jsonl").unlink()
    change(tmp_path, ("UPDATE items SET id = '=' || id || ?", (HOSTILE.replace(" ", "\0"),)))
    shown = judgeq(tmp_path, "show", "--csv", "o.csv").stdout
    assert "[boldred]x[/]" in shown
    assert not set(shown) & NEVER
    assert max(map(len, shown.splitlines())) <= 160
    assert all(row["id"].startswith("'=") for row in cells(tmp_path / "o.csv"))


def some(runs: Path, name: str, n: int = 1) -> list[str]:
    """Some items of a run: the highest."""
    shown = json_of(runs, "show", "--runs-dir", name, "--n", str(n))
    return [item["id"] for item in shown["views"][0]["items"]]


def explained(runs: Path, name: str, item: str, *flags: str) -> Any:
    return json_of(runs, "explain", "last", item, "--runs-dir", name, *flags)


def change(folder: Path, *statements: str | tuple[str, Sequence[object]]) -> None:
    """Change the database of the folder's only run."""
    (path,) = folder.glob("**/run.db")
    execute(path, *statements)


@pytest.mark.parametrize("name", JOBS)
def test_trails_hold_all_that_was_asked(runs: Path, name: str) -> None:
    run = opened(runs, name)
    every = trails(run, range(len(run.scores.ids)))
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
    recorded(folder, "abcdefghi", "text {}", *rankings)
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


@pytest.mark.parametrize("name", JOBS)
def test_a_score_is_explained(runs: Path, name: str) -> None:
    (item,) = some(runs, name)
    found = explained(runs, name, item)
    shown = judgeq(runs, "explain", "last", item, "--runs-dir", name).stdout
    assert shown.startswith(f"{item} in ")
    assert ("score " if name == "panel" else " of ") in shown
    assert len(found["judgments"]) == found["items"][0]["matches"] * (2 if name == "pairs" else 1)
    assert found["replies"] is None
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
    flags = ("--vs", other, "--runs-dir", "lists", "--replies")
    shown = judgeq(runs, "explain", "last", one, *flags).stdout
    assert f" > {other[:10]}" in shown or f" < {other[:10]}" in shown
    assert shown.count("attempt 1: ok") == len(found["judgments"])
    paper = some(runs, "paper", 2)
    none = judgeq(runs, "explain", "last", paper[0], "--vs", paper[1], "--runs-dir", "paper").stdout
    assert "–: no judgments connect the two" in none


def test_what_is_not_there_is_said(runs: Path) -> None:
    (item,) = some(runs, "lists")
    flags = ("--runs-dir", "lists")
    error = judgeq(runs, "explain", "last", item[:-1], *flags, expect=2).stderr
    assert "has no item" in error
    for odd in ("", "\x1b[31m\x00"[:5], HOSTILE):
        error = judgeq(runs, "explain", "last", odd, *flags, expect=2).stderr
        assert "has no item" in error
        assert not set(error) & NEVER
        assert len(error) < 300
    for against, wrong in (("x", "has no item 'x'"), (item, "name another item")):
        done = judgeq(runs, "explain", "last", item, "--vs", against, *flags, expect=2)
        assert wrong in done.stderr


def test_partial_runs_and_items_that_were_never_judged(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", *N, "-s", "listwise10x2", "-q")
    items = some(tmp_path, "runs", 40)
    unusable = "UPDATE calls SET outcome = 'unusable', reply = ? WHERE job = 1"
    change(
        tmp_path,
        *("DELETE FROM verdicts WHERE job > 0", "DELETE FROM calls WHERE job > 1"),
        "UPDATE jobs SET state = CASE id WHEN 1 THEN 'invalid' ELSE 'pending' END WHERE id > 0",
        *((unusable, [HOSTILE]), *ADDING_UP),
    )
    found = [explained(tmp_path, "runs", item, "--replies") for item in items]
    never = next(one for one in found if not one["judgments"])
    assert never["items"][0]["rank"] is None
    shown = judgeq(tmp_path, "explain", "last", never["items"][0]["id"], "--replies").stdout
    assert "(the run isn't finished)" in shown
    assert "–: it was never judged" in shown
    assert not set(shown) & NEVER
    judged = next(one for one in found if one["judgments"])
    one, other = (found["items"][0]["id"] for found in (judged, never))
    both = judgeq(tmp_path, "explain", "last", one, "--vs", other).stdout
    assert "no judgments connect the two" in both
    change(tmp_path, "DELETE FROM verdicts", "UPDATE jobs SET state = 'pending'")
    error = judgeq(tmp_path, "explain", "last", items[0], expect=7).stderr
    assert "has no verdict" in error


def test_texts_that_are_gone_are_missed_aloud(tmp_path: Path) -> None:
    ids = [f"t{at}" for at in range(8)]
    recorded(tmp_path, ids, HOSTILE, *([[one, other]] for one, other in pairwise(ids)))
    for item in ("t1", "t0"):
        shown = judgeq(tmp_path, "explain", "last", item, "--replies").stdout
        assert "[bold red]x[/]" in shown
        assert "more characters)" in shown
        assert not set(shown) & NEVER
        assert "since the judgments were imported" in shown
        assert max(map(len, shown.splitlines())) < 600
    (tmp_path / "texts.jsonl").write_text(json.dumps({"id": "t0", "text": HOSTILE}))
    gone = judgeq(tmp_path, "explain", "last", "t1")
    assert gone.stdout.startswith("t1 in ")
    assert "the texts aren't here" in gone.stderr
    assert not judgeq(tmp_path, "show", "--no-texts").stderr


def test_reasons_and_replies_of_models_on_a_store(tmp_path: Path) -> None:
    store = new_store()
    with mock(tmp_path) as url:
        asked = ("--judge", "m", "--base-url", url, "--reasons", "-q", "--price", "1,2")
        judgeq(tmp_path, "run", *N, "-s", "listwise10x1", *asked, "--store", store)
    listed = json_of(tmp_path, "show", "--store", store)
    item = listed["views"][0]["items"][0]["id"]
    flags = ("explain", "last", item, "--store", store)
    found = json_of(tmp_path, *flags)
    (judgment,) = found["judgments"]
    reason = found["reasons"][str(judgment["job"])]
    assert reason
    assert found["replies"] is None
    shown = judgeq(tmp_path, *flags).stdout
    assert [word in shown for word in ("The judge's reasons", reason[:30])] == [True, True]
    assert "Replies" not in shown
    replies = json_of(tmp_path, *flags, "--replies")["replies"]
    (call,) = replies[str(judgment["job"])]
    assert reason[:30] in call["reply"]
    assert call["cost"] > 0
