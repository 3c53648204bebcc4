"""scores.csv, DataFrames; and a run as tables: scores, comparisons and calls, in three formats."""

import asyncio
import csv
import json
import sys
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import judgeq as package
from judgeq.engine import export, results
from judgeq.engine.results import Result
from judgeq.engine.scores import SURE, Scores, write_scores
from judgeq.escaping import excerpt
from judgeq.imports import recordings
from judgeq.rating.ranks import Intervals
from tests import python
from tests.cli import execute, judgeq, only_run, query, score_columns, scores
from tests.fakes import ADDING_UP, faults


def scores_of(values: list[float], component: list[int] | None = None) -> Scores:
    n = len(values)
    parts = np.array(component or [1] * n, dtype=np.int64)
    ids, ratings = [str(row) for row in range(n)], {"elo": np.zeros(n), "pl": np.array(values)}
    left_after, gold = np.zeros(n, dtype=np.int64), np.full(n, np.nan)
    return Scores(ids, ratings, parts.astype(np.int64), np.zeros(n), left_after, gold, parts)


def test_a_text_is_one_line_of_200_characters_that_no_spreadsheet_runs(tmp_path: Path) -> None:
    texts = ["=1+1\nand more", "x" * 300, "\x1b[31m -1"]
    write_scores(replace(scores_of([1.0, 2.0, 3.0]), texts=texts), tmp_path / "scores.csv")
    columns = score_columns(tmp_path)
    assert list(columns)[:2] == ["id", "rank"]
    assert list(columns)[-1] == "text"
    assert columns["text"] == ["'=1+1 and more", "x" * 200, "'-1"]
    assert len(excerpt("é " * 10_000_000, 200)) == 199


DATA = "id,text,gold\n=a,-first,0\nb,second,1\nc,third,2\nd,fourth,3\n"
RUN = ("run", "-d", "d.csv", "--gold-column", "gold", "-s", "pairwise3")


@pytest.fixture
def four(tmp_path: Path) -> Path:
    (tmp_path / "d.csv").write_text(DATA, encoding="utf-8")
    shown = " ".join(judgeq(tmp_path, *RUN).stdout.split())
    assert "4 texts of d ranked, judged by the simulated judge" in shown
    assert "second" in shown
    return only_run(tmp_path)


def test_ids_are_exact_and_texts_can_be_left_out(tmp_path: Path, four: Path) -> None:
    whole = scores(four)
    columns = score_columns(four)
    assert columns["id"] == ["=a", "b", "c", "d"]
    assert columns["text"] == ["'-first", "second", "third", "fourth"]
    assert sorted(columns["rank"])[0] == "1"
    assert "fourth" not in judgeq(tmp_path, *RUN, "--no-texts").stdout
    assert "text" not in score_columns(four)
    # What is asked for once isn't what the run is.
    judgeq(tmp_path, "show", "--write")
    assert scores(four) == whole
    judgeq(tmp_path, "resume", "--no-texts")
    assert "text" not in score_columns(four)
    judgeq(tmp_path, "resume")
    assert scores(four) == whole


def test_how_sure_each_rating_is_stands_beside_it(tmp_path: Path, four: Path) -> None:
    assert {*SURE} <= {*score_columns(four)}
    assert "median standard error" in judgeq(tmp_path, "status").stdout
    assert "95 % interval" in judgeq(tmp_path, "show", "--write").stdout
    assert "95 %" not in judgeq(tmp_path, "show", "--write", "--rating", "bt-mm").stdout
    assert not {*SURE} & {*score_columns(four)}
    paper = package.open_run(four.name, runs_dir=tmp_path / "runs", rating="bt-mm")
    assert np.isnan(paper.scores.se).all()


def test_what_was_never_judged_has_no_errors(tmp_path: Path) -> None:
    numbers, ranks = np.array([0.0, 1.0, 2.0]), np.array([1, 2, 0])
    sure = Intervals(numbers, numbers, numbers, ranks, ranks, ranks, 1.0)
    some = replace(scores_of([1.0, 0.5, 0.0], [1, 1, 0]), intervals=sure)
    write_scores(some, tmp_path / "scores.csv")
    assert [cells[2] for name, cells in score_columns(tmp_path).items() if name in SURE] == [""] * 6
    np.testing.assert_array_equal(some.se, [0, 1, np.nan])


def test_texts_that_changed_or_are_gone_are_not_shown(tmp_path: Path, four: Path) -> None:
    (tmp_path / "d.csv").write_text(DATA.replace("third", "other"), encoding="utf-8")
    for _ in range(2):
        judgeq(tmp_path, "show", "--write")
        assert "text" not in score_columns(four)
        (tmp_path / "d.csv").unlink(missing_ok=True)


PART = replace(
    scores_of([-0.0, 0.1 + 0.2, np.nan, 1e-300], [1, 2, 0, 2]),
    ids=["=1", "007", "", "x\x00y"],
    gold=np.array([1.0, np.nan, 0.0, 2.0]),
    texts=["=1+1\n", "b" * 300, "", "d"],
)


def test_data_frames_hold_what_the_scores_do() -> None:
    pytest.importorskip("pandas")
    frame = PART.to_pandas()
    assert list(frame.columns) == list(PART.table)
    assert list(frame["id"]) == PART.ids
    assert list(frame["text"]) == PART.texts  # whole: no spreadsheet runs it
    for name, values in PART.numbers.items():
        column, is_float = frame[name], values.dtype.kind == "f"
        assert str(column.dtype) == ("float64" if is_float else "Int64")
        none = np.isnan(values) if is_float else (values == 0) & (name != "matches")
        assert list(column.isna()) == none.tolist(), name
        had = column.to_numpy(values.dtype, na_value=0)[~none]
        assert had.tobytes() == values[~none].tobytes(), name
    assert scores_of([]).to_pandas().shape == (0, 9)


def test_a_data_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(package.UsageError, match="needs pandas: pip install pandas"):
        PART.to_pandas()


pytestmark = pytest.mark.usefixtures("rated_once")

HOSTILE = ["=cmd()", "+1", "-2", "@me", "\tx", "＝SUM(A1)", "'=", 'say "hi",\n\r', "\x1b[31m"]
HOSTILE.append("é\u202e")


def run(folder: Path, dataset: str = "demo", **settings: Any) -> Result:
    return python.run(dataset, runs_dir=folder / "runs", **settings)


def rows(folder: Path, name: str, *flags: str) -> list[dict[str, Any]]:
    told = judgeq(folder, "export", "--table", name, "--format", "jsonl", *flags).stdout
    return [json.loads(line) for line in told.splitlines()]


def same_in_all_formats(folder: Path, name: str, *flags: str) -> list[dict[str, Any]]:
    """The rows, once CSV and Parquet were found to hold the same."""
    parquet = pytest.importorskip("pyarrow.parquet")
    exact = rows(folder, name, *flags)
    judgeq(folder, "export", "--table", name, "--out", "t.parquet", *flags)
    assert parquet.read_table(folder / "t.parquet").to_pylist() == exact
    judgeq(folder, "export", "--table", name, "--out", "t.csv", *flags)
    for line, row in zip(cells(folder / "t.csv"), exact, strict=True):
        assert list(line) == list(row)
        for cell, value in zip(line.values(), row.values(), strict=True):
            if isinstance(value, float | int):
                assert float(cell) == value
            elif value is None:
                assert cell == ""
            else:
                assert cell in (value, f"'{value}")
    return exact


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("strategy", ["hybrid10", "streak"])
def test_scores_are_those_of_scores_csv(tmp_path: Path, strategy: str) -> None:
    result = run(tmp_path, strategy=strategy)
    scores, exact = result.scores, same_in_all_formats(tmp_path, "scores")
    assert list(exact[0]) == [name for name in scores.table if name != "text"]
    assert [row["id"] for row in exact] == list(scores.ids)
    assert [row["rank"] or 0 for row in exact] == scores.rank.tolist()
    for name, values in scores.ratings.items():
        given = [np.nan if row[name] is None else row[name] for row in exact]
        np.testing.assert_array_equal(given, values)
    for line, row in zip(cells(result.run.scores), exact, strict=True):
        for name, value in row.items():
            assert (line.get(name, "") == "") == (value is None), name
            if isinstance(value, float):
                assert float(line[name]) == round(value, 4)


@pytest.mark.parametrize(
    "settings",
    [
        {"strategy": "listwise7x2", "judge": ["simulated", "simulated"], "ensemble": "each"},
        {"strategy": "hybrid10"},
        {"strategy": "pairwise2", "both_orders": True},
        {"strategy": "listwise10x1", "unreadable": 0.5},
    ],
)
def test_comparisons_are_those_that_are_rated(tmp_path: Path, settings: dict[str, Any]) -> None:
    with faults(unreadable=settings.pop("unreadable", 0.0)):
        result = run(tmp_path, **settings)
    exact = same_in_all_formats(tmp_path, "comparisons")
    won = Counter[str]()
    for row in exact:
        won[row["winner"]] += row["weight"]
    assert [won[name] for name in result.scores.ids] == result.scores.wins.tolist()
    assert [row["job"] for row in exact] == sorted(row["job"] for row in exact)
    assert {row["judge"] for row in exact} == set(result.judges)
    assert {row["round"] for row in exact} <= {1, 2, 3}
    (jobs,) = query(result.run.path, "SELECT count(*) FROM verdicts JOIN jobs ON id = job "
                    "WHERE length(items) > 4")  # fmt: skip
    if "both_orders" not in settings:
        assert len({row["job"] for row in exact}) == jobs[0]
    else:
        assert {row["weight"] for row in exact} == {0.5, 1.0}


def test_ties_are_a_comparison_each_way(tmp_path: Path) -> None:
    lines = [
        {"round": 1, "presented": [3, 1, 2], "ranking": [1, [3, 2]], "judge": "=me"},
        {"round": 1, "presented": [0, 4], "winner": "tie", "judge": "you"},
        {"round": 2, "presented": [4, 0], "winner": 4},
    ]
    (tmp_path / "r.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    judgeq(tmp_path, "import", "-d", "synthetic:linear", "--n", "5", "r.jsonl", "--quiet")
    exact = same_in_all_formats(tmp_path, "comparisons")
    assert [tuple(row.values()) for row in exact] == [
        *((*pair, 1.0, 1, "=me", 0) for pair in ("13", "12")),
        *((*pair, 0.5, 1, "=me", 0) for pair in ("32", "23")),
        *((*pair, 0.5, 1, "you", 1) for pair in ("04", "40")),
        ("4", "0", 1.0, 2, "unnamed", 2),
    ]
    assert rows(tmp_path, "calls") == []


def test_calls_are_those_of_the_ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with faults(rate_limited=0.2, unreadable=0.1):
        result = run(tmp_path, strategy="pairwise2")
    exact = same_in_all_formats(tmp_path, "calls")
    assert len(exact) == result.totals.calls
    assert [row["job"] for row in exact] == sorted(row["job"] for row in exact)
    outcomes = Counter(row["outcome"] for row in exact)
    assert outcomes["rate_limited"] == result.totals.retries > 0
    assert outcomes["unusable"] == result.totals.unusable > 0
    for row in exact:
        assert (row["error"] is None) == (row["outcome"] not in ("rate_limited", "unusable"))
        assert row["round"] == (1 if row["job"] < 120 else 2)
        assert row["judge"] == "simulated"
    assert "reply" not in exact[0]
    monkeypatch.setattr(export, "ROWS", 7)
    assert rows(tmp_path, "calls") == exact


def test_replies_and_their_reasons_on_demand(tmp_path: Path) -> None:
    with faults(rate_limited=0.3):
        run(tmp_path, strategy="listwise10x1", reasons=True)
    exact = same_in_all_formats(tmp_path, "calls", "--replies")
    for row in exact:
        if row["outcome"] == "ok":
            assert json.loads(row["reply"])["reason"] == row["reason"]
        else:
            assert row["reply"] is row["reason"] is None
            assert "rate" in row["error"]


def test_what_a_spreadsheet_would_run_is_defused_in_csv_alone(tmp_path: Path) -> None:
    result = run(tmp_path, dataset="synthetic:linear", n=len(HOSTILE), strategy="pairwise1")
    # As a stranger's may be: ids are refused where they hold control characters.
    named = [("UPDATE items SET id = ? WHERE row = ?", pair) for pair in zip(HOSTILE, count())]
    reply = ("UPDATE calls SET reply = ? WHERE job = 0", ("=cmd()\0 \x1b[2J",))
    execute(result.run.database, *named, reply)
    ids = [row["id"] for row in same_in_all_formats(tmp_path, "scores")]
    assert ids == HOSTILE
    for line, name in zip(cells(tmp_path / "t.csv"), ids, strict=True):
        assert line["id"] == (f"'{name}" if name[0] in "=+-\t＝" else name)
    assert {row["winner"] for row in same_in_all_formats(tmp_path, "comparisons")} < set(ids)
    assert rows(tmp_path, "calls", "--replies")[0]["reply"] == "=cmd()\0 \x1b[2J"
    assert ",'=cmd()" in judgeq(tmp_path, "export", "--table", "calls", "--replies").stdout


def test_a_run_without_a_verdict_and_one_that_was_stopped(tmp_path: Path) -> None:
    result = run(tmp_path, strategy="pairwise2")
    left = "UPDATE jobs SET state = 'pending' WHERE id >= 20"
    execute(result.run.database, "DELETE FROM verdicts WHERE job >= 20", left)
    done = judgeq(tmp_path, "export", "--table", "comparisons")
    assert "this is what there is so far" in done.stderr
    assert len(done.stdout.splitlines()) == 21
    nothing = ("UPDATE jobs SET state = 'pending'", "DELETE FROM verdicts", "DELETE FROM calls")
    execute(result.run.database, *nothing, *ADDING_UP)
    for name in ("comparisons", "calls"):
        assert len(judgeq(tmp_path, "export", "--table", name).stdout.splitlines()) == 1
    refused = judgeq(tmp_path, "export", "--table", "scores", "--out", "s.csv", expect=7)
    assert "no verdict" in refused.stderr
    assert not (tmp_path / "s.csv").exists()


def test_a_recording_is_what_is_written_where_no_table_is_asked_for(tmp_path: Path) -> None:
    result = run(tmp_path, strategy="pairwise1")
    ids, rounds, judges = asyncio.run(results.judgments(result.run))
    lines = list(recordings.lines(recordings.of(rounds, judges), ids))
    assert judgeq(tmp_path, "export").stdout.splitlines() == lines
    assert judgeq(tmp_path, "export", "--out", "-").stdout.splitlines() == lines
    assert not (tmp_path / "-").exists()
    judgeq(tmp_path, "export", "--out", "run.jsonl")
    assert (tmp_path / "run.jsonl").read_text().splitlines() == lines
    done = judgeq(tmp_path, "export", "--out", "scores.csv", expect=2)
    assert "--out scores.csv: a recording is JSONL" in done.stderr
    assert not (tmp_path / "scores.csv").exists()


def test_a_table_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = run(tmp_path, strategy="pairwise1")
    wrong = {
        ("--table", "scores", "--out", "s.ods"): "--out s.ods: its name ends in none of csv, jsonl",
        ("--replies",): "--replies goes with --table calls",
        ("--table", "scores", "--replies"): "--replies goes with --table calls",
        ("--table", "calls", "--by", "id"): "--by goes with a recording",
        ("--table", "calls", "--sigma", "2"): "go with --table scores",
        ("--table", "scores", "--out", "no/where.csv"): "--out no/where.csv can't be written",
        ("--table", "scores", "--out", str(result.run.path / "x.csv")): "is in a run's folder",
    }
    for flags, message in wrong.items():
        assert message in judgeq(tmp_path, "export", "last", *flags, expect=2).stderr
    execute(result.run.database, "UPDATE jobs SET judge = 3 WHERE id = 100")
    (tmp_path / "calls.csv").write_text("before")
    told = judgeq(tmp_path, "export", "--table", "calls", "--out", "calls.csv", expect=7).stderr
    assert "a judge that isn't there" in told
    assert (tmp_path / "calls.csv").read_text() == "before"
    assert judgeq(tmp_path, "export", "--table", "calls", expect=7).stdout == ""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    told = judgeq(tmp_path, "export", "--table", "calls", "--out", "c.parquet", expect=2).stderr
    assert "pip install 'judgeq[parquet]'" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["calls.csv", "runs"]
