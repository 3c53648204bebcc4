"""What a run shows in the end: the answer first, on few lines that fit; and names of runs."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import pytest
from rich.cells import cell_len

import judgeq as package
from judgeq.engine import status
from judgeq.engine.results import Result
from judgeq.evaluation.evaluate import evaluated
from judgeq.rating.position_bias import Effect
from judgeq.run_places import FolderRuns
from judgeq.types import Counts, Totals
from judgeq.ui.json import plain
from judgeq.ui.sections import terminal
from judgeq.ui.show import run as show_run
from judgeq.ui.show import status as show_status
from tests.cli import judgeq, only_run, score_columns

JOB = ("run", "-d", "demo", "--sample", "60", "-s", "listwise6x2")


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    folder = tmp_path_factory.mktemp("result")
    return evaluated(
        package.run("demo", sample=60, strategy="listwise6x2", runs_dir=folder, progress=False)
    )


def lines(result: Result, width: int) -> list[str]:
    sections = [*show_run.result(result), show_run.ending(result, "")]
    return [str(line) for line in terminal(sections, width)]


def test_the_answer_comes_first_and_fits(result: Result) -> None:
    shown = lines(result, 80)
    assert len(shown) <= 25
    assert all(cell_len(line) <= 80 or "scores.csv" in line for line in shown)
    assert shown[0] == '60 texts of demo ranked by "biased wording", judged by the simulated judge'
    order = ["60", "rank", "1", "60", "Reliability", "Gold", "Cost", "The", "Scores", "Next"]
    assert [line.split()[0] for line in shown if line and line.split()[0] in order] == order
    best = result.scores.ids[int(result.scores.main[1].argmax())]
    for width in (80, 200):
        row = next(line for line in lines(result, width) if line.split()[:1] == ["1"])
        assert best in row
        assert f"{result.scores.main[1].max():.2f}" in row
    assert shown[-3:] == [
        "Next    judgeq report --open",
        f"        judgeq explain {best}",
        "        judgeq resume --rounds 3",
    ]


def test_only_what_matters_is_warned_of(result: Result) -> None:
    text = " ".join(" ".join(lines(result, 100)).split())
    for word in (
        "Position bias",
        "Being shown last",
        "failed,left",
        "may have been paid",
        "groups",
    ):
        assert word not in text
    assert result.slots is not None
    troubled = replace(
        result,
        counts=Counts(done=15, invalid=3, failed=2),
        totals=Totals(calls=20, cost=0.5, unknown=2, at_risk=0.25, saved=1.0),
        slots=replace(result.slots, favoured=2, slighted=None, chance=0.0004),
        effects=[Effect((0,), -0.5, 0.2, -0.9, -0.1, 20)],
        damage=["rows are missing"],
    )
    text = " ".join(" ".join(lines(troubled, 100)).split())
    for sentence in (
        "2 jobs failed and 3 jobs got no usable answer, left out of the scores: `judgeq resume",
        "2 calls got no answer and may have been paid: up to $0.25.",
        f"Position bias: position 2 wins more often than chance ({result.slots.rate[1]:.3f} of its",
        "comparisons), p < 0.001. See `judgeq evaluate`.",
        "Being shown last instead of first changes a score by -0.50 (95 % interval -0.90 to -0.10)",
        "Cost $0.50, and possibly up to $0.25 for 2 calls of unknown cost for 20 calls; 2 failed, 3",
        "the cache saved $1.00",
        "rows are missing",
    ):
        assert sentence in text


def test_a_field_that_a_result_gets_is_in_the_json(result: Result) -> None:
    @dataclass(frozen=True, eq=False)
    class Longer(Result):
        more: float = 0.5

    assert "more" not in {field.name for field in fields(Result)}
    known = {field.name: getattr(result, field.name) for field in fields(result)}
    assert plain(Longer(**known))["more"] == 0.5


# Names


def test_a_name_tells_runs_apart_and_is_taken_for_the_id(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "first try", "-q")
    before = only_run(tmp_path)
    judgeq(tmp_path, *JOB, "--seed", "1", "-q")
    listed = json.loads(judgeq(tmp_path, "runs", "--json").stdout)
    assert [(one["name"], one["feature"]) for one in listed] == [
        (None, "biased wording"),
        ("first try", "biased wording"),
    ]
    shown = judgeq(tmp_path, "runs").stdout
    assert f"{before.name}  first try  finished" in shown
    assert "Scores" in judgeq(tmp_path, "show", "--write", "first try").stdout
    assert FolderRuns(tmp_path / "runs").find("first try").path == before
    assert (
        "judgeq report 'first try' --open"
        in judgeq(tmp_path, "show", "--write", "first try").stdout
    )
    # It decides nothing, and goes with the same run; the same command gives it another.
    judgeq(tmp_path, *JOB, "-q")
    judgeq(tmp_path, *JOB, "--name", "second", "-q")
    assert len([*before.parent.iterdir()]) == 2
    assert before.name in judgeq(tmp_path, "status", "second").stdout


@pytest.mark.parametrize("name", ["last", "a/b", "", "x" * 61, "\x1b[2J", " a"])
def test_a_name_that_can_not_be_is_refused(tmp_path: Path, name: str) -> None:
    assert "--name" in judgeq(tmp_path, *JOB, "--name", name, expect=2).stderr
    assert not (tmp_path / "runs").exists()


def test_a_name_is_given_once(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "mine", "-q")
    run = only_run(tmp_path)
    for name in ("mine", run.name):
        done = judgeq(tmp_path, *JOB, "--seed", "1", "--name", name, expect=2)
        assert f"run {run.name} has that name. Choose another." in done.stderr
    assert only_run(tmp_path) == run


def test_a_strangers_names_neither_style_the_terminal_nor_widen_the_list(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "mine", "-q")
    run = only_run(tmp_path)
    info = json.loads((run / "config.json").read_text())
    info["facts"]["prompt"]["feature"] = "\x1b[31m[red]evil " * 50
    (run / "config.json").write_text(json.dumps(info))
    run = run.rename(run.with_name("\x1b[2J[bold]evil"))
    shown = judgeq(tmp_path, "runs").stdout
    assert "\x1b" not in shown
    assert "[bold]evil" in shown
    assert max(map(len, shown.splitlines())) <= 120
    info["settings"]["name"] = "\x1b[2Jmine"
    (run / "config.json").write_text(json.dumps(info))
    done = judgeq(tmp_path, "runs")
    assert "unreadable" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_the_id_outlasts_all_else_on_a_narrow_terminal(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "a name of many characters", "-q")
    states = [*asyncio.run(status.states(FolderRuns(tmp_path / "runs").all()))]
    run = only_run(tmp_path).name
    for width in (80, 60, 40, 20):
        shown = [str(line) for line in terminal([show_status.runs(states)], width)]
        assert shown[1].startswith(run)
        assert len(shown[1]) <= max(width, len(run))


# scores.csv


def test_a_second_rating_keeps_those_that_are_there(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "-q")
    run = only_run(tmp_path)
    first = score_columns(run)
    judgeq(tmp_path, *JOB, "-q", "--rating", "bt")
    both = score_columns(run)
    assert list(both)[:5] == ["id", "rank", "elo", "pl", "bt"]
    assert both["pl"] == first["pl"]
    judgeq(tmp_path, *JOB, "-q")
    assert {name: score_columns(run)[name] for name in first} == first
    # Of other judgments, or damaged, they are not.
    judgeq(tmp_path, "resume", "--rounds", "3", "-q")
    assert list(score_columns(run))[:5] == ["id", "rank", "elo", "pl", "se"]
    for damaged in ("", "id\n", "id,matches,wins,bt\n1,2\n", "\x00"):
        (run / "scores.csv").write_text(damaged)
        judgeq(tmp_path, *JOB, "-q")
        assert list(score_columns(run))[:5] == ["id", "rank", "elo", "pl", "se"]
    elsewhere = tmp_path / "elsewhere"
    (run / "scores.csv").rename(elsewhere)
    (run / "scores.csv").symlink_to(elsewhere)
    judgeq(tmp_path, *JOB, "-q", "--rating", "bt")
    assert "pl" not in score_columns(run)
    assert "bt" not in elsewhere.read_text().splitlines()[0].split(",")


def test_scores_csv_is_for_people(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("text,value\na,1\nb,2\nc,3\nd,4\n")
    job = ("run", "-d", "d.csv", "-s", "listwise4x2", "--latent-column", "value", "-q")
    judgeq(tmp_path, *job)
    columns = score_columns(only_run(tmp_path))
    assert not {"gold", "left_after"} & set(columns)
    numbers = [cell for name in ("elo", "pl", "se", "wins") for cell in columns[name]]
    assert all(len(cell.partition(".")[2]) <= 4 for cell in numbers)
    result = package.open_run(runs_dir=tmp_path / "runs")
    np.testing.assert_allclose(list(map(float, columns["pl"])), result.scores.main[1], atol=5e-5)
