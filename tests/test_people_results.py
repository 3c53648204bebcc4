"""What is reported of the people who judge a run, in every output; and people as the yardstick."""

import asyncio
import csv
import io
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import judgeq as package
from judgeq.errors import RunError
from judgeq.evaluation import people
from judgeq.evaluation.agreement import between, codings
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.people import ModelAgreement, Share, shares_alike, yardstick
from judgeq.people.people import Answer
from judgeq.person import Check, Person, Said
from judgeq.types import Verdict, Verdicts
from judgeq.ui.show.people import sentence
from tests import people as them
from tests.build import judged
from tests.cli import execute, json_of, judgeq

Answered = tuple[int, tuple[int, ...], Verdict]


def of(given: list[Answered]) -> Verdicts:
    return judged([answer[1:] for answer in given], [judge for judge, *_ in given])


def test_couples_are_two_answers_to_one_question_by_hand() -> None:
    answers: list[Answered] = [
        (1, (0, 1, 2), Verdict((0, 1, 2))),
        (2, (1, 0, 2), Verdict((2, 1, 0))),
        (3, (2, 1, 0), Verdict.of([(0, 1), (2,)])),
        (0, (0, 2, 1), Verdict.of([(0,), (1, 2)], partial=True)),
        (0, (3, 4), Verdict((3, 4))),  # nobody else
        (0, (5, 6), Verdict((5, 6))),  # models alone
        (4, (6, 5), Verdict((5, 6))),
        (1, (7, 8), Verdict((8, 7))),
        (0, (8, 7), Verdict((8, 7))),
    ]
    judges = np.arange(5)
    is_person = (judges > 0) & (judges < 4)
    given = codings(of(answers))
    people_alike = {(1, 2): (0, 3), (1, 3): (2.5, 3), (2, 3): (0.5, 3)}
    models_alike = {(0, 1): (2 + 1, 2 + 1), (0, 2): (0, 2), (0, 3): (1.5, 2)}
    for one, other in combinations(range(5), 2):
        if is_person[one] or is_person[other]:
            two = between(given, judges == one, judges == other)
            expected = (people_alike | models_alike).get((one, other), (0, 0))
            assert (two.alike.sum(), two.pairs.sum()) == expected
    among = between(given, is_person, is_person)
    assert (among.pairs > 0).sum() == 1
    assert among.alike.sum() / among.pairs.sum() == pytest.approx(1 / 3)
    model = between(given, is_person, judges == 0)
    assert (model.pairs > 0).sum() == 2
    # Of two items the mean over all couples of answers, then over the pairs of items.
    assert model.alike.sum() / model.pairs.sum() == pytest.approx((0.5 + 2 / 3 + 1) / 3)
    nobody = judges > 9
    assert not between(given, nobody, nobody).pairs.any()


def said(checks: list[Check]) -> Said:
    return Said(1, [Person(0, "Ann", b"x" * 32, 9)], checks, {0: [1.0, 5.0, 2.0]}, {0: 2})


def test_checks_are_counted_by_hand() -> None:
    asked = ((0, 1), (2, 3), (4, 5, 6))
    answers: list[Answered] = [(1, items, Verdict(items)) for items in asked]
    own = of([*answers, (1, (7, 8), Verdict.of([(7, 8)]))])
    checks = [
        Check(0, (1, 0), 0, repeats=0, verdict=Verdict((0, 1))),  # alike
        Check(1, (3, 2), 0, repeats=1, verdict=Verdict((3, 2))),  # the same place
        Check(2, (6, 5, 4), 0, repeats=2, verdict=Verdict((4, 6, 5))),
        Check(3, (8, 7), 0, repeats=3, verdict=Verdict((7, 8))),  # was a tie
        Check(4, (9, 8), 0, repeats=9, verdict=Verdict((8, 9))),  # taken back since
        Check(5, (0, 5), 0, known=(5, 0), verdict=Verdict((5, 0))),
        Check(6, (0, 6), 0, known=(6, 0), verdict=Verdict((0, 6))),
        Check(7, (0, 7), 0, known=(7, 0)),  # not answered
        Check(8, (0, 8), None, known=(8, 0)),
    ]
    (record,) = people.records(said(checks), own)
    assert record.repeats.count == pytest.approx(1 + 0 + 2 / 3 + 0.5)
    assert record.repeats.total == 4
    assert record.known == Share(1, 2)
    assert (record.done, record.skipped, record.seconds) == (11, 2, 2.0)
    assert record.first_by_slot == [1, 0, 0]
    assert record.agreement == Share()


def test_repeated_single_texts_are_alike_within_a_step_of_the_scale() -> None:
    own = of([(1, (row,), Verdict((row,), score=5 / 9)) for row in range(3)])
    checks = [
        Check(row, (row,), 0, repeats=row, verdict=Verdict((row,), score=score))
        for row, score in enumerate((5 / 9, 6 / 9, 7 / 9))
    ]
    (record,) = people.records(said(checks), own)
    assert record.repeats == Share(2, 3)
    assert record.first_by_slot == []


def test_a_check_that_repeats_another_question_is_a_damaged_ledger(tmp_path: Path) -> None:
    result = them.run(tmp_path, ["Ann"], repeats=0.2)
    changed = "UPDATE checks SET {} = x'0000000001000000' WHERE repeats IS NOT NULL"
    execute(result.run.database, *map(changed.format, ("items", "ranking")))
    with pytest.raises(RunError, match=r"damaged: a check repeats a question about other items"):
        asyncio.run(people.read(result.run))


@pytest.fixture(scope="module")
def remarks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remarks")
    note = "=HYPERLINK(1) \x1b[31m<img src=x onerror=alert(1)>\u202e"
    them.remarked(folder, note, "broken <b>text</b>\x1b[2J", strategy="listwise6x2")
    return folder


def table(text: str) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(text))]


def test_exports_name_who_answered(remarks: Path) -> None:
    calls = table(judgeq(remarks, "export", "--table", "calls", "--replies").stdout)
    assert sorted({call["judge"] for call in calls}) == ["Ann", "Bob"]
    (skipped,) = [call for call in calls if call["outcome"] == "skipped"]
    assert (skipped["judge"], skipped["reply"]) == ("Bob", "")
    assert skipped["error"].startswith("broken")
    answered = [call for call in calls if call["outcome"] == "ok"]
    assert all(call["reason"].startswith("'=HYPERLINK") for call in answered)
    compared = table(judgeq(remarks, "export", "--table", "comparisons").stdout)
    assert {row["judge"] for row in compared} == {"Ann"}
    recorded = [json.loads(line) for line in judgeq(remarks, "export").stdout.splitlines()]
    assert {line["judge"] for line in recorded} == {"Ann"}


ALONE = ("--judge", "people", "--dataset", "texts.csv", "--feature", "how large the number is")


def test_an_estimate_says_how_many_answers_are_needed_and_no_dollars(tmp_path: Path) -> None:
    them.dataset(tmp_path)
    shown = judgeq(tmp_path, "estimate", *ALONE, "--strategy", "pairwise2", "--each", "2").stdout
    assert "48, 2 people a question" in shown
    assert "$" not in shown
    both = (*ALONE, "--judge", "gpt-5-mini", "--ensemble", "each", "--strategy", "pairwise2")
    said = json_of(tmp_path, "run", "--dry-run", *both)
    assert (said["answers"], said["calls"]) == (24, 24)
    assert said["cost"] is not None


def test_a_result_counts_answers_and_no_dollars(remarks: Path) -> None:
    shown = " ".join(judgeq(remarks, "show", "--write").stdout.split())
    assert "judged by 1 person" in shown
    assert "8 by 1 person, 0 s each (median), 1 skipped" in shown
    assert "$" not in shown


HOSTILE = ["<script>alert(1)</script>", "=1+1", "[red]Ann[/red]", "Bob"]
BESIDE: dict[str, Any] = {"strategy": "listwise6x3", "each": 2, "latent_column": "gold"}
BESIDE |= {"judge": ("people", "simulated"), "ensemble": "each"}
"""A run of people and a simulated judge."""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    them.run(folder, HOSTILE, noise=3.0, repeats=0.2, **BESIDE)
    return folder


@pytest.mark.usefixtures("undrawn")
def test_a_report_says_how_many_people_judged_and_how_well_they_agree(hostile: Path) -> None:
    judgeq(hostile, "report")
    (page,) = (hostile / "runs").glob("*/report.html")
    html = page.read_text("utf-8")
    assert "<script>alert" not in html
    for said in (
        "&lt;script&gt;alert",
        "4 people and simulated answered 36 questions",
        "Each question for people was judged by 2 people; an answer took",
        "Two people agreed on the order of 0.",
        "Agreement of people: the share of pairs of texts ordered alike",
    ):
        assert said in html


@pytest.mark.parametrize(
    "command", ["show --write", "evaluate", "explain last", "annotate list last", "status"]
)
def test_names_can_do_no_harm(hostile: Path, command: str) -> None:
    words = command.split()
    if command == "explain last":  # an item that Ann judged
        run = package.open_run(runs_dir=hostile / "runs")
        first, ann = run.history.asked[0], list(run.judges).index("[red]Ann[/red]")
        words.append(run.scores.ids[first.items[first.offsets[:-1][first.judges == ann][0]]])
    shown = judgeq(hostile, *words).stdout
    assert "\x1b" not in shown
    if command in ("explain last", "annotate list last"):
        assert "[red]Ann[/red]" in shown


pytestmark = pytest.mark.usefixtures("rated_once")


def test_a_model_is_held_against_two_people_on_the_same_questions(hostile: Path) -> None:
    measured = yardstick(package.open_run(runs_dir=hostile / "runs"), 200, 0)
    assert measured
    assert (measured.n, measured.verdicts, measured.questions) == (4, 24, 12)
    (held,) = measured.models
    assert (held.name, held.verdicts, held.questions) == ("simulated", 12, 12)
    assert held.people_agreement == measured.agreement
    model, people, difference = held.agreement, held.people_agreement, held.difference
    assert difference.value == pytest.approx((model.value or 0) - (people.value or 0))
    assert (difference.low or 0) < (difference.value or 0) < (difference.high or 0)


def test_each_question_counts_alike_however_many_people_answered_it() -> None:
    up, down = Verdict((0, 1)), Verdict((1, 0))
    answers: list[Answered] = [(judge, (0, 1), up) for judge in (1, 2)]
    answers += [(3, (1, 0), up), (0, (0, 1), down)]
    answers += [(1, (2, 3), Verdict((2, 3))), (2, (3, 2), Verdict((3, 2)))]
    answers += [(0, (2, 3), Verdict((2, 3)))]
    persons = np.arange(4) > 0
    given = codings(of(answers))
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


def test_evaluate_says_it_in_a_sentence_in_json_and_in_csv(hostile: Path, tmp_path: Path) -> None:
    runs = ("--resamples", "50")
    shown = judgeq(hostile, "evaluate", *runs).stdout
    assert "simulated and a person" in shown
    assert "on the same 12 questions" in " ".join(shown.split())
    numbers = tmp_path / "numbers.csv"
    said = json_of(hostile, "evaluate", *runs, "--csv", numbers)
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


def test_people_who_always_take_the_second_text_are_warned_of_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    second = Answer((1, 0), seconds=0.9)
    monkeypatch.setattr(them, "answered", lambda *_: second)
    result = them.run(tmp_path, strategy="pairwise2", each=2)
    said = "chose position 2 in all 24 answers"
    warned = [caution for caution in result.cautions if said in caution]
    assert [caution.partition(" ")[0] for caution in warned] == ["Ann", "Bob"]
    assert all("these answers don't depend on the texts" in caution for caution in warned)
    for command in (("annotate", "list"), ("show",), ("evaluate",)):
        shown = judgeq(tmp_path, *command)
        words = " ".join((shown.stdout + shown.stderr).split())
        for name in ("Ann", "Bob"):
            assert f"{name} {said}" in words, command
        assert "that may be chance" not in words
        assert "Too few different questions" not in words
