"""A result in Python: a DataFrame with the input, what commands show, a report; errors in its words."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import judgeq
from tests.cli import judgeq as command

TEXTS = [f"text {'x' * n}" for n in range(1, 13)]
GOLD = [float(len(text)) for text in TEXTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("python")


@pytest.fixture(scope="module")
def result(folder: Path) -> judgeq.Result:
    pandas = pytest.importorskip("pandas")
    made = {"key": [f"k{n}" for n in range(12)], "body": TEXTS, "gold": GOLD, "rank": range(12)}
    frame = pandas.DataFrame(made | {"day": pandas.date_range("2026-01-01", periods=12)})
    return judgeq.run(
        frame,
        "how long it is",
        text="body",
        gold="gold",
        id="key",
        sample=8,
        strategy="listwise4",
        runs_dir=folder / "runs",
        progress=False,
    )


def test_df_has_the_scores_and_the_columns_of_the_input(result: judgeq.Result) -> None:
    frame = result.df
    assert len(frame) == 8
    assert list(frame["id"]) == list(result.scores.ids)
    assert frame.columns[1] == "rank"
    # A column of the input that is called as one of the scores keeps its values, under another name.
    assert [f"k{number}" for number in frame["data_rank"]] == list(frame["id"])
    assert [str(day)[8:10] for day in frame["day"]] == [f"{n + 1:02}" for n in frame["data_rank"]]
    assert frame["text"].equals(frame["data_rank"].map(dict(enumerate(TEXTS))))


def test_what_commands_show_is_data_that_shows_itself(result: judgeq.Result, folder: Path) -> None:
    top = result.show(2)
    assert [len(view["items"]) for view in top["views"]] == [2, 2]
    assert repr(top).count("text x") == 4
    assert "<table" in top._repr_html_()
    first = top["views"][0]["items"][0]["id"]
    assert [view["name"] for view in result.show(around=first, uncertain=True)["views"]] == [
        "around",
        "uncertain",
    ]
    assert first in repr(result.explain(first))
    other = judgeq.run(TEXTS, "length", gold=GOLD, id=[f"k{n}" for n in range(12)], sample=8,
                       strategy="direct", runs_dir=folder / "runs")  # fmt: skip
    compared = result.compare(other, resamples=10)
    assert "Spearman" in repr(compared)
    assert result.evaluate(resamples=0)["run"] == result.run.id or "run" in result.evaluate(
        resamples=0
    )
    printed = command(folder, "show", result.run.id, "--n", "2").stdout
    assert {*re.findall(r"\bk\d+\b", printed)} == {*re.findall(r"\bk\d+\b", repr(top))}


def test_runs_are_listed_as_the_command_lists_them(result: judgeq.Result, folder: Path) -> None:
    listed = judgeq.runs(runs_dir=folder / "runs")
    assert result.run.id in [run["run"] for run in listed]
    printed = json.loads(command(folder, "runs", "--json").stdout)
    assert [run["run"] for run in printed] == [run["run"] for run in listed]
    assert judgeq.runs(runs_dir=folder / "none") == []


def test_a_report_is_written_where_it_is_wanted(result: judgeq.Result, tmp_path: Path) -> None:
    for name in ("report.html", "mine.md"):
        path = result.report(tmp_path / name)
        assert path == tmp_path / name
        assert TEXTS[0].split()[0] in path.read_text()
    assert result.report() == result.run.path / "report.html"
    with pytest.raises(judgeq.UsageError, match="html or md"):
        result.report(tmp_path / "report.pdf")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: judgeq.run("demo", sample=1), r"(?<!-)\bsample\b"),
        (lambda: judgeq.run(TEXTS, settings={"n": 4}), r"^n is for synthetic datasets only"),
        (lambda: judgeq.run(TEXTS, judge="simulated"), r"Give gold or latent_column, or judge reh"),
        (lambda: judgeq.open_run().evaluate(threshold="bset"), r"^threshold bset"),
    ],
)
def test_errors_name_parameters_in_one_paragraph(
    call: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    judgeq.run("demo", sample=10, strategy="direct")
    with pytest.raises(judgeq.JudgeqError) as caught:
        call()
    words = str(caught.value)
    assert re.search(message, words)
    assert "--" not in re.sub("`[^`]*`", "", words)
    assert "\n" not in words
