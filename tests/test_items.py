"""Which items are looked at: conditions, orders, and `judgeq show`."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import judgeq as package
from judgeq.engine.results import Result
from judgeq.evaluation import items
from judgeq.rating import scale_quality
from judgeq.rating.comparisons import joined
from tests.cli import judgeq

pytestmark = pytest.mark.usefixtures("rated_once")

N = ("-d", "demo", "--sample", "60")
JOBS: Mapping[str, tuple[str, ...]] = {
    "lists": (*N, "-s", "listwise6x4"),
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


# Orders


def test_the_ends_of_the_ranking(runs: Path) -> None:
    run = opened(runs)
    top, bottom = items.ends(run, 5)
    ranks = run.scores.rank
    assert ranks[list(top.rows)].tolist() == [1, 2, 3, 4, 5]
    assert ranks[list(bottom.rows)].tolist() == [56, 57, 58, 59, 60]
    (whole,) = items.ends(run, 30)
    assert (whole.name, len(whole.rows)) == ("all", 60)
    never = replace(run, scores=replace(run.scores, matches=np.zeros(60, dtype=np.int64)))
    (none,) = items.ends(never, 5)
    assert list(none.rows) == []


def test_around_an_item_are_its_neighbours(runs: Path) -> None:
    run = opened(runs)
    ranks = run.scores.rank
    for rank, expected in ((30, [28, 29, 30, 31, 32]), (1, [1, 2, 3]), (60, [58, 59, 60])):
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
    run = opened(runs)
    uncertain = items.uncertain(run, 3)
    assert list(uncertain.rows) == np.argsort(-run.scores.se, kind="stable")[:3].tolist()
    contested = items.contested(run, 3)
    fit = scale_quality.fit_of_items(joined(run.history.verdicts), run.scores.main[1])
    assert list(contested.rows) == np.argsort(-fit.z, kind="stable")[:3].tolist()
    assert_allclose(contested.measures["infit"], fit.infit)
    paper = opened(runs, "paper")
    assert items.uncertain(paper, 3).why == "the rating bt-mm has no standard errors"
    few = items.contested(paper, 3)
    assert few.why == "no item was in 10 comparisons, which this takes"


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
    view = items.against_gold(run, 60)
    assert (np.diff(np.abs(view.measures["gap"][list(view.rows)])) <= 0).all()
    unlabelled = replace(run, scores=replace(run.scores, gold=np.full(60, np.nan)))
    assert items.against_gold(unlabelled, 3).why == "no judged item has a gold label"


# The command


def test_show_prints_the_ends_with_their_texts(runs: Path) -> None:
    shown = judgeq(runs, "show", "--runs-dir", "lists", "--n", "3").stdout
    assert "The 3 highest of 60 items, by score (pl)" in shown
    assert "The 3 lowest of 60 items, by score (pl)" in shown
    assert len([line for line in shown.splitlines() if line.strip()]) == 11
    without = judgeq(runs, "show", "--runs-dir", "lists", "--n", "3", "--no-texts").stdout
    assert " text\n" in shown
    assert " text\n" not in without


def test_show_says_which_item_is_not_there(runs: Path) -> None:
    run = opened(runs)
    near = run.scores.ids[0][:-1] + "x"
    error = judgeq(runs, "show", "--runs-dir", "lists", "--around", near, expect=2).stderr
    assert f"has no item '{near}'" in error
    for odd in ("\x1b[31m", "x" * 100_000, ""):
        error = judgeq(runs, "show", "--runs-dir", "lists", "--around", odd, expect=2).stderr
        assert "has no item" in error
        assert len(error) < 300


def test_show_writes_json_and_csv_alike(runs: Path) -> None:
    flags = ("--runs-dir", "lists", "--uncertain", "--against-gold", "--n", "4")
    found = json.loads(judgeq(runs, "show", *flags, "--csv", "t.csv", "--json").stdout)
    with (runs / "t.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0])[:8] == ["view", "id", "rank", "elo", "pl", "se", "low", "high"]
    assert [row["view"] for row in rows] == ["uncertain"] * 4 + ["against gold"] * 4
    listed = [item for view in found["views"] for item in view["items"]]
    assert [row["id"] for row in rows] == [item["id"] for item in listed]
    for row, item in zip(rows, listed, strict=True):
        assert float(row["pl"]) == item["pl"]
        assert float(row["gold"]) == item["gold"]
        assert row["gap"] == str(item.get("gap", ""))
        assert item["text"].startswith(row["text"][:20])
    run = opened(runs)
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
