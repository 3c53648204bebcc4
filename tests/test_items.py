"""Which items are looked at: conditions, orders, and `judgeq show`."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from rich.console import Console

import judgeq as package
from judgeq.engine.results import Result
from judgeq.errors import UsageError
from judgeq.evaluation import items
from judgeq.rating import misfit
from judgeq.rating.comparisons import joined
from judgeq.types import Bools
from judgeq.ui.sections import Column, Section, numbers, terminal, words
from tests.cli import judgeq

pytestmark = pytest.mark.usefixtures("rated_once")

N = ("-d", "demo", "--sample", "60")
JOBS: Mapping[str, tuple[str, ...]] = {
    "lists": (*N, "-s", "listwise6x4"),
    "alone": (*N, "-s", "direct"),
    "panel": (*N, "-s", "direct", *2 * ("--judge", "simulated"), "--ensemble", "each"),
    "paper": (*N, "-s", "pairwise4", "--rating", "bt-mm"),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("items")
    for name, job in JOBS.items():
        judgeq(path, "run", *job, "--quiet", "--runs-dir", name)
    return path


def opened(runs: Path, name: str = "lists") -> Result:
    run = package.open_run(runs_dir=runs / name)
    texts = [f"Text {row} of ÄPFEL" for row in range(len(run.scores.ids))]
    return replace(run, scores=replace(run.scores, texts=texts))


def every(run: Result) -> Bools:
    return np.ones(len(run.scores.ids), dtype=np.bool_)


# Conditions


def test_conditions_compare_columns_of_scores(runs: Path) -> None:
    run = opened(runs)
    scores, sure = run.scores, run.scores.intervals
    assert sure is not None
    for condition, holds in {
        "rank<=20": scores.rank <= 20,
        " rank > 20 ": scores.rank > 20,
        "gold=1": scores.gold == 1,
        "gold!=1": scores.gold != 1,
        "GOLD==1": scores.gold == 1,
        "matches>=4": scores.matches >= 4,
        "tier=2": sure.tier == 2,
        "pl<-1.5": scores.ratings["pl"] < -1.5,
        "elo>1.5e3": scores.ratings["elo"] > 1500,
        "left_after>0": scores.left_after > 0,
        "se<inf": every(run),
        f"id={scores.ids[3].upper()}": np.arange(60) == 3,
        "text~äpfel": every(run),
        "text!~TEXT 1": np.array(["Text 1" not in text for text in scores.texts or []]),
        "text~": every(run),
    }.items():
        assert np.array_equal(items.left(run, [condition]), holds), condition
    both = items.left(run, ["rank<=20", "gold>2"])
    assert np.array_equal(both, (scores.rank <= 20) & (scores.gold > 2))


def test_what_an_item_has_not_satisfies_no_condition_but_that(runs: Path) -> None:
    run = opened(runs)
    gold = run.scores.gold.copy()
    gold[:5] = np.nan
    matches = run.scores.matches.copy()
    matches[7] = 0
    run = replace(run, scores=replace(run.scores, gold=gold, matches=matches))
    none = np.arange(60) < 5
    assert np.array_equal(items.left(run, ["gold="]), none)
    assert np.array_equal(items.left(run, ["gold!="]), ~none)
    assert not (items.left(run, ["gold!=9"]) & none).any()
    for column in ("rank", "tier", "component", "se"):
        assert np.array_equal(items.left(run, [f"{column}="]), np.arange(60) == 7), column
    assert items.left(run, ["matches<1"]).sum() == 1


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("rnak<3", "Did you mean 'rank'"),
        ("rank", "is no condition"),
        ("", "is no condition"),
        ("rank<", "'' is no number"),
        ("rank<many", "'many' is no number"),
        ("rank~3", "a number takes"),
        ("id<3", "id takes =, !=, ~, !~"),
        ("subset=x", "no such subset. It has none"),
        ("__import__('os')", "is no condition"),
        ("rank.__class__=1", "is no condition"),
        ("x" * 10_000 + "=1", "there is no field 'xxx"),
        ("\x1b[31mrank=1", "is no condition"),
    ],
)
def test_other_conditions_are_refused(runs: Path, condition: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        items.left(opened(runs), [condition])
    assert message in str(refused.value)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


FIELDS = ("rank", "gold", "id", "text", "subset", "pl", "Ä", "")


@given(
    st.sampled_from(FIELDS),
    st.sampled_from(("<", "<=", "=", "!=", "~", "!~", "==", "", "<>")),
    st.text(max_size=20) | st.floats().map(str),
)
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_condition_is_applied_or_refused(runs: Path, name: str, sign: str, value: str) -> None:
    with suppress(UsageError):
        assert items.left(cached(runs), [f"{name}{sign}{value}"]).shape == (60,)


@cache
def cached(runs: Path) -> Result:
    return opened(runs)


def test_conditions_on_texts_need_them_and_subsets_are_named(runs: Path) -> None:
    run = opened(runs)
    with pytest.raises(UsageError, match="the texts of this run aren't here"):
        items.left(replace(run, scores=replace(run.scores, texts=None)), ["text~a"])
    half = np.arange(60) < 30
    run = replace(run, items=replace(run.items, subsets={"test": half}))
    assert np.array_equal(items.left(run, ["subset=test"]), half)
    assert np.array_equal(items.left(run, ["subset!=test"]), ~half)
    with pytest.raises(UsageError, match="There are 'test'"):
        items.left(run, ["subset=train"])


# Orders


def test_the_ends_of_the_ranking(runs: Path) -> None:
    run = opened(runs)
    top, bottom = items.ends(run, every(run), 5)
    ranks = run.scores.rank
    assert ranks[list(top.rows)].tolist() == [1, 2, 3, 4, 5]
    assert ranks[list(bottom.rows)].tolist() == [56, 57, 58, 59, 60]
    (whole,) = items.ends(run, items.left(run, ["rank<=10"]), 5)
    assert (whole.name, len(whole.rows)) == ("all", 10)
    (none,) = items.ends(run, ~every(run), 5)
    assert list(none.rows) == []


def test_around_an_item_are_its_neighbours(runs: Path) -> None:
    run = opened(runs)
    ranks = run.scores.rank
    for rank, expected in ((30, [28, 29, 30, 31, 32]), (1, [1, 2, 3]), (60, [58, 59, 60])):
        row = int(np.flatnonzero(ranks == rank)[0])
        view = items.around(run, every(run), 2, row)
        assert (ranks[list(view.rows)].tolist(), view.marked) == (expected, row)
        alone = items.around(run, ~every(run), 2, row)
        assert list(alone.rows) == [row]
    matches = run.scores.matches.copy()
    matches[0] = 0
    never = replace(run, scores=replace(run.scores, matches=matches))
    assert items.around(never, every(run), 2, 0).why == "this item was never judged"
    # Another component's items aren't neighbours.
    component = np.where(ranks % 2 == 0, 1, 2)
    apart = replace(run, scores=replace(run.scores, component=component))
    row = int(np.flatnonzero(ranks == 30)[0])
    assert (ranks[list(items.around(apart, every(run), 2, row).rows)] % 2 == 0).all()


def test_uncertain_and_contested_are_those_of_the_largest_measures(runs: Path) -> None:
    run = opened(runs)
    uncertain = items.uncertain(run, every(run), 3)
    assert list(uncertain.rows) == np.argsort(-run.scores.se, kind="stable")[:3].tolist()
    contested = items.contested(run, every(run), 3)
    fit = misfit.fit_of_items(joined(run.history.verdicts), run.scores.main[1])
    assert list(contested.rows) == np.argsort(-fit.z, kind="stable")[:3].tolist()
    assert_allclose(contested.measures["infit"], fit.infit)
    paper = opened(runs, "paper")
    assert items.uncertain(paper, every(paper), 3).why == "the rating bt-mm has no standard errors"
    few = items.contested(paper, every(paper), 3)
    assert few.why == "no item was in 10 comparisons, which this takes"


def test_of_scores_alone_those_of_several_judges_may_differ(runs: Path) -> None:
    alone, panel = opened(runs, "alone"), opened(runs, "panel")
    assert items.contested(alone, every(alone), 3).why == "no item was given two scores that differ"
    view = items.contested(panel, every(panel), 3)
    judged = joined(panel.history.verdicts)
    assert judged.scores is not None
    worst = judged.scores[judged.items == view.rows[0]]
    assert view.measures["spread"][view.rows[0]] == pytest.approx(np.std(worst, ddof=1))
    assert view.measures["spread"][view.rows[0]] == np.nanmax(view.measures["spread"])


def test_against_gold_are_those_whose_ranks_differ_most(runs: Path) -> None:
    run = opened(runs)
    values = np.array([3.0, 2.0, 1.0, 0.0, 9.0, 5.0])
    gold = np.array([0.0, 1.0, 1.0, 0.0, np.nan, 1.0])
    one = replace(
        run.scores,
        ids=list("abcdef"),
        ratings={"pl": values},
        matches=np.array([1, 1, 1, 1, 1, 0]),
        gold=gold,
        component=np.ones(6, dtype=np.int64),
    )
    gap = items.gap_to_gold(one)
    assert_allclose(
        gap, [(4 - 1.5) / 4, (3 - 3.5) / 4, (2 - 3.5) / 4, (1 - 1.5) / 4, np.nan, np.nan]
    )
    view = items.against_gold(run, every(run), 60)
    assert (np.diff(np.abs(view.measures["gap"][list(view.rows)])) <= 0).all()
    unlabelled = replace(run, scores=replace(run.scores, gold=np.full(60, np.nan)))
    assert items.against_gold(unlabelled, every(run), 3).why == "no judged item has a gold label"


# The command


def test_show_prints_the_ends_with_their_texts(runs: Path) -> None:
    shown = judgeq(runs, "show", "--runs-dir", "lists", "--n", "3").stdout
    assert "The highest 3 of 60 items, by pl" in shown
    assert "The lowest 3 of 60 items, by pl" in shown
    assert len([line for line in shown.splitlines() if line.strip()]) == 13
    without = judgeq(runs, "show", "--runs-dir", "lists", "--n", "3", "--no-texts").stdout
    assert " text " in shown
    assert " text " not in without
    none = judgeq(runs, "show", "--runs-dir", "lists", "--where", "rank>60").stdout
    assert "–: there is none." in none


def test_show_says_which_item_is_not_there(runs: Path) -> None:
    run = opened(runs)
    near = run.scores.ids[0][:-1] + "x"
    error = judgeq(runs, "show", "--runs-dir", "lists", "--around", near, expect=2).stderr
    assert f"has no item '{near}'. Did you mean" in error
    for odd in ("\x1b[31m", "x" * 100_000, ""):
        error = judgeq(runs, "show", "--runs-dir", "lists", "--around", odd, expect=2).stderr
        assert "has no item" in error
        assert len(error) < 300


def test_show_writes_json_and_csv_alike(runs: Path) -> None:
    flags = ("--runs-dir", "lists", "--uncertain", "--against-gold", "--n", "4")
    found = json.loads(
        judgeq(runs, "show", *flags, "--where", "gold<=2", "--csv", "t.csv", "--json").stdout
    )
    with (runs / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["view"] for row in rows] == ["uncertain"] * 4 + ["against gold"] * 4
    listed = [item for view in found["views"] for item in view["items"]]
    assert [row["id"] for row in rows] == [item["id"] for item in listed]
    for row, item in zip(rows, listed, strict=True):
        assert float(row["pl"]) == item["ratings"]["pl"]
        assert float(row["gold"]) == item["gold"] <= 2
        assert row["gap"] == str(item["measures"].get("gap", ""))
        assert item["text"].startswith(row["text"][:20])
    run = opened(runs)
    assert found["items_left"] == int((run.scores.gold <= 2).sum())
    inside = run.run.path / "x.csv"
    assert "judgeq's own" in judgeq(runs, "show", *flags, "--csv", inside, expect=2).stderr


HOSTILE = '[bold red]x[/] \x1b[31m\x1b]0;title\x07\u202eabc\x00\n=cmd()|"<script>' + "y" * 100_000


def test_hostile_ids_and_texts_stay_text(tmp_path: Path) -> None:
    texts = [{"id": f"{at}", "text": HOSTILE.replace("\x00", "")} for at in range(6)]
    (tmp_path / "h.jsonl").write_text("\n".join(map(json.dumps, texts)))
    job = ("-d", "h.jsonl", "--id-column", "id")
    lines = [
        {"round": 1, "group": at, "presented": [at, at + 1], "ranking": [at, at + 1]}
        for at in range(5)
    ]
    (tmp_path / "j.jsonl").write_text("\n".join(map(json.dumps, lines)))
    judgeq(tmp_path, "import", "j.jsonl", *job, "-q")
    # A run's file may be a stranger's: ids that no dataset could have had.
    with closing(sqlite3.connect(next(tmp_path.glob("runs/*/run.db")), isolation_level=None)) as db:
        db.execute("UPDATE items SET id = '=' || id || ?", (HOSTILE,))
    shown = judgeq(tmp_path, "show", "--csv", "o.csv").stdout
    assert "[bold red]x[/]" in shown
    assert not set(shown) & set("\x1b\x07\x00\u202e")
    assert max(map(len, shown.splitlines())) <= 160
    with (tmp_path / "o.csv").open(newline="") as file:
        assert all(row["id"].startswith("'=") for row in csv.DictReader(file))


def printed(section: Section, width: int) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width)
    for part in terminal([section], width):
        console.print(part, markup=False)
    return [line.rstrip() for line in file.getvalue().splitlines() if line.strip()]


def test_narrow_terminals_get_shorter_texts_and_then_fewer_columns() -> None:
    section = Section(
        columns=[
            *numbers("rank"),
            Column("range", whole=True, spare=1),
            Column("item", at_most=20, least=6),
            Column("text", at_most=40, least=10, spare=2),
        ],
        rows=[(1, "100 to 200", "a-long-item", "word " * 20), (12, "2 to 3", "b", "short")],
    )
    wide, narrow = printed(section, 100), printed(section, 50)
    assert len(wide) == len(narrow) == 4
    assert "100 to 200" in narrow[2]
    assert narrow[2].endswith("…")
    assert max(map(len, narrow)) <= 50
    slim = printed(section, 35)
    assert slim[0].split() == ["rank", "range", "item"]
    assert "a-long-item" in slim[2]
    slim = printed(section, 20)
    assert slim[0].split() == ["rank", "item"]
    assert max(map(len, slim)) <= 20
    assert len(printed(Section(columns=words("a", "b"), rows=[("x" * 30, "y" * 30)]), 20)) > 4
