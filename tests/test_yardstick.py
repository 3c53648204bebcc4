"""People among themselves as the yardstick, and models held against it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgeq.evaluation import agreement
from judgeq.evaluation.agreement import between, codings
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.people import (
    ModelAgreement,
    Yardstick,
    shares_alike,
    yardstick,
)
from judgeq.ui.show.people import sentence
from tests import judging as them
from tests.cli import judgeq

pytestmark = pytest.mark.usefixtures("rated_once")

PEOPLE = ["Ann", "Bob", "<b>Eve</b>", "=1+1"]
BESIDE: dict[str, Any] = {
    "judge": ("people", "simulated"),
    "ensemble": "each",
    "latent_column": "gold",
    "strategy": "listwise6x3",
    "each": 2,
}


def of(folder: Path, names: list[str] = PEOPLE, noise: float = 3.0, **more: Any) -> Yardstick:
    measured = yardstick(them.run(folder, names, noise=noise, **more), 200, 0)
    assert measured is not None
    return measured


def test_a_model_is_held_against_two_people_on_the_same_questions(tmp_path: Path) -> None:
    measured = of(tmp_path, **BESIDE)
    assert (measured.n, measured.verdicts, measured.questions) == (4, 24, 12)
    (held,) = measured.models
    assert (held.name, held.verdicts, held.questions) == ("simulated", 12, 12)
    assert held.people_agreement == measured.agreement
    assert held.agreement.value is not None
    assert held.difference.value == pytest.approx(
        held.agreement.value - (held.people_agreement.value or 0)
    )
    low, value, high = held.difference.low, held.difference.value, held.difference.high
    assert (low or 0) < (value or 0) < (high or 0)


def test_each_question_counts_alike_however_many_people_answered_it() -> None:
    from judgeq.types import Verdict
    from tests.test_people_results import of as verdicts_of

    up, down = Verdict((0, 1)), Verdict((1, 0))
    answers: list[tuple[int, tuple[int, ...], Verdict]] = [
        (1, (0, 1), up),
        (2, (0, 1), up),
        (3, (1, 0), up),
        (0, (0, 1), down),
    ]
    answers += [(1, (2, 3), Verdict((2, 3))), (2, (3, 2), Verdict((3, 2)))]
    answers += [(0, (2, 3), Verdict((2, 3)))]
    persons = np.arange(4) > 0
    given = codings(verdicts_of(answers))
    two = between(given, persons, persons)
    _, (alone, *_) = shares_alike(two, two, 0, 0)
    assert alone.value == pytest.approx((1 + 0) / 2)
    own = between(given, persons, ~persons)
    questions, (alike, among, difference) = shares_alike(own, two, 0, 0)
    assert questions == 2
    assert alike.value == pytest.approx((0 + 0.5) / 2)
    assert among.value == 0.5
    assert difference.value == pytest.approx(-0.25)
    assert difference.low is None


def test_people_together_stand_beside_models_and_nobody_stands_there_without_an_answer(
    tmp_path: Path,
) -> None:
    result = them.run(tmp_path, PEOPLE, **BESIDE)
    panel = agreement.of_run(result, 0, 0)
    assert panel is not None
    assert list(panel.names) == ["people", "simulated", *PEOPLE]
    assert list(panel.verdicts[:2]) == [24, 12]
    assert sum(panel.verdicts[2:]) == 24
    (tmp_path / "alone").mkdir()
    panel = agreement.of_run(them.run(tmp_path / "alone", each=2), 0, 0)
    assert panel is not None
    assert list(panel.names) == ["Ann", "Bob"]
    (tmp_path / "one").mkdir()
    assert (
        agreement.of_run(them.run(tmp_path / "one", ["Ann"], strategy="listwise6x3"), 0, 0) is None
    )


def test_evaluate_says_it_in_a_sentence_in_json_and_in_csv(tmp_path: Path) -> None:
    them.run(tmp_path, PEOPLE, noise=3.0, **BESIDE)
    runs = ("--resamples", "200")
    shown = judgeq(tmp_path, "evaluate", *runs).stdout
    assert "simulated and a person" in shown
    assert "on the same 12 questions" in " ".join(shown.split())
    numbers = tmp_path / "numbers.csv"
    said = json.loads(judgeq(tmp_path, "evaluate", *runs, "--json", "--csv", str(numbers)).stdout)
    (held,) = said["people"]["models"]
    assert held["questions"] == said["people"]["questions"] == 12
    assert said["judges"]["names"][:2] == ["people", "simulated"]
    rows = [*csv.DictReader(numbers.read_text("utf-8").splitlines())]
    by_name = {(row["key"], row["name"]): row["value"] for row in rows}
    agreement = said["people"]["agreement"]["value"]
    assert float(by_name["people.agreement", ""]) == agreement
    held = said["people"]["models"][0]["difference"]["value"]
    assert float(by_name["people.models.difference", "simulated"]) == held
    assert by_name["people.models.questions", "simulated"] == "12"
    assert not [row for row in rows if any(cell.startswith("=") for cell in row.values())]


@pytest.mark.parametrize(
    ("low", "high", "means"),
    [
        (-0.1, 0.1, "as good as one more person, as far"),
        (-0.2, -0.1, "not as good as one more person"),
        (0.1, 0.2, "in closer agreement with people"),
    ],
)
def test_what_a_difference_means(low: float, high: float, means: str) -> None:
    some = Measured(0.8, 0.7, 0.9)
    held = ModelAgreement("m", 9, 9, some, some, Measured((low + high) / 2, low, high))
    assert means in sentence(held)
