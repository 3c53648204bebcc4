"""scores.csv: ranks, and the texts beside the numbers."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import judgeq as package
from judgeq.engine.scores import SURE, Scores, write_scores
from judgeq.escaping import excerpt
from judgeq.rating.order import Intervals
from tests.cli import judgeq, only_run, score_columns, scores


def scores_of(values: list[float], component: list[int] | None = None) -> Scores:
    n = len(values)
    parts = np.array(component or [1] * n)
    return Scores(
        ids=[str(row) for row in range(n)],
        ratings={"elo": np.zeros(n), "pl": np.array(values)},
        matches=parts.astype(np.int64),
        wins=np.zeros(n),
        left_after=np.zeros(n, dtype=np.int64),
        gold=np.full(n, np.nan),
        component=parts,
    )


def test_the_highest_rating_has_rank_1_and_ties_share_the_lowest() -> None:
    assert scores_of([0.5, 2.0, 0.5, -1.0]).rank.tolist() == [2, 1, 2, 4]


def test_each_component_is_ranked_by_itself_and_what_was_never_judged_has_no_rank() -> None:
    ranked = scores_of([1.0, 5.0, 0.0, 3.0, 3.0], [1, 2, 0, 1, 2])
    assert ranked.rank.tolist() == [2, 1, 0, 1, 2]
    assert scores_of([1.0, np.nan]).rank.tolist() == [1, 0]
    assert scores_of([0.0, 0.0], [0, 0]).rank.tolist() == [0, 0]


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
def run(tmp_path: Path) -> Path:
    (tmp_path / "d.csv").write_text(DATA, encoding="utf-8")
    shown = " ".join(judgeq(tmp_path, *RUN).stdout.split())
    assert "4 texts of d ranked, judged by the simulated judge" in shown
    assert "second" in shown
    return only_run(tmp_path)


def test_ids_are_exact_and_texts_can_be_left_out(tmp_path: Path, run: Path) -> None:
    whole = scores(run)
    columns = score_columns(run)
    assert columns["id"] == ["=a", "b", "c", "d"]
    assert columns["text"] == ["'-first", "second", "third", "fourth"]
    assert sorted(columns["rank"])[0] == "1"
    assert "fourth" not in judgeq(tmp_path, *RUN, "--no-texts").stdout
    assert "text" not in score_columns(run)
    # What is asked for once isn't what the run is.
    judgeq(tmp_path, "show", "--write")
    assert scores(run) == whole
    judgeq(tmp_path, "resume", "--no-texts")
    assert "text" not in score_columns(run)
    judgeq(tmp_path, "resume")
    assert scores(run) == whole


def test_how_sure_each_rating_is_stands_beside_it(tmp_path: Path, run: Path) -> None:
    columns = {name: score_columns(run)[name] for name in ("rank", "pl", *SURE)}
    result = package.open_run(run.name, runs_dir=tmp_path / "runs")
    assert result.scores.intervals is not None
    for name in SURE:
        expected = getattr(result.scores.intervals, name)
        written = [float(cell) for cell in columns[name]]
        np.testing.assert_array_equal(written, np.round(expected, 4))
    for row in zip(*(map(float, cells) for cells in columns.values()), strict=True):
        rank, theta, se, low, high, rank_low, rank_high, tier = row
        assert 0 < se < 2
        assert low < theta < high
        assert 1 <= rank_low <= rank <= rank_high <= 4
        assert 1 <= tier <= rank
    assert "median standard error" in judgeq(tmp_path, "status").stdout
    assert "95 % interval" in judgeq(tmp_path, "show", "--write").stdout
    assert "95 %" not in judgeq(tmp_path, "show", "--write", "--rating", "bt-mm").stdout
    assert not {*SURE} & {*score_columns(run)}
    paper = package.open_run(run.name, runs_dir=tmp_path / "runs", rating="bt-mm")
    assert np.isnan(paper.scores.se).all()


def test_what_was_never_judged_has_no_errors(tmp_path: Path) -> None:
    numbers, ranks = np.array([0.0, 1.0, 2.0]), np.array([1, 2, 0])
    sure = Intervals(numbers, numbers, numbers, ranks, ranks, ranks, 1.0)
    some = replace(scores_of([1.0, 0.5, 0.0], [1, 1, 0]), intervals=sure)
    write_scores(some, tmp_path / "scores.csv")
    assert [cells[2] for name, cells in score_columns(tmp_path).items() if name in SURE] == [""] * 6
    np.testing.assert_array_equal(some.se, [0, 1, np.nan])


def test_no_file_is_opened_that_anothers_folder_names(tmp_path: Path, run: Path) -> None:
    moved = tmp_path / "runs" / "elsewhere"
    run.rename(moved)
    done = judgeq(tmp_path, "show", "--write", moved)
    assert "fourth" not in done.stdout
    assert "text" not in score_columns(moved)


def test_texts_that_changed_or_are_gone_are_not_shown(tmp_path: Path, run: Path) -> None:
    (tmp_path / "d.csv").write_text(DATA.replace("third", "other"), encoding="utf-8")
    judgeq(tmp_path, "show", "--write")
    assert "text" not in score_columns(run)
    (tmp_path / "d.csv").unlink()
    judgeq(tmp_path, "show", "--write")
    assert "text" not in score_columns(run)


def test_scores_csv_is_for_people(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("text,value\na,1\nb,2\nc,3\nd,4\n")
    job = ("run", "-d", "d.csv", "-s", "listwise4x2", "--latent-column", "value")
    judgeq(tmp_path, *job)
    columns = score_columns(only_run(tmp_path))
    assert not {"gold", "left_after"} & set(columns)
    numbers = [cell for name in ("elo", "pl", "se", "wins") for cell in columns[name]]
    assert all(len(cell.partition(".")[2]) <= 4 for cell in numbers)
    result = package.open_run(runs_dir=tmp_path / "runs")
    np.testing.assert_allclose(list(map(float, columns["pl"])), result.scores.main[1], atol=5e-5)


# DataFrames

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
        column = frame[name]
        if isinstance(values, list):
            assert str(column.dtype) == "Int64"
            assert [
                None if none else value for none, value in zip(column.isna(), column, strict=True)
            ] == values
        else:
            assert str(column.dtype) == "float64"
            assert column.to_numpy().tobytes() == values.tobytes(), name
    assert scores_of([]).to_pandas().shape == (0, 9)


def test_a_data_frame_without_pandas_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(package.UsageError, match="needs pandas: pip install pandas"):
        PART.to_pandas()
