"""What a run shows in the end: the answer first, on few lines that fit."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest
from rich.cells import cell_len

import judgeq as package
from judgeq.engine.results import Result
from judgeq.evaluation.evaluate import evaluated
from judgeq.rating.position_bias import Effect
from judgeq.types import Counts, Totals
from judgeq.ui.json import plain
from judgeq.ui.sections import terminal
from judgeq.ui.show import run as show_run


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
    assert result.slots is not None
    troubled = replace(
        result,
        counts=Counts(done=15, invalid=3, failed=2),
        totals=Totals(calls=20, cost=0.5, unknown=2, at_risk=0.25, saved=1.0),
        slots=replace(result.slots, favoured=2, slighted=None, chance=0.0004),
        effects=[Effect((0,), -0.5, 0.2, -0.9, -0.1, 20)],
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
    ):
        assert sentence in text


def test_a_field_that_a_result_gets_is_in_the_json(result: Result) -> None:
    @dataclass(frozen=True, eq=False)
    class Longer(Result):
        more: float = 0.5

    assert "more" not in {field.name for field in fields(Result)}
    known = {field.name: getattr(result, field.name) for field in fields(result)}
    assert plain(Longer(**known))["more"] == 0.5
