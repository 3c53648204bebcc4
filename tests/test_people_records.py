"""What is reported of each of the people who judge a run, and how models agree with them."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from judgeq.errors import RunError
from judgeq.evaluation import people
from judgeq.evaluation.agreement import Orders, codings
from judgeq.evaluation.people import Share
from judgeq.person import Check, Person, PersonState, Said
from judgeq.types import Verdict, Verdicts
from tests import judging as them


def of(answers: list[tuple[int, tuple[int, ...], Verdict]]) -> Verdicts:
    """The verdicts of (judge, presented, verdict), one a match."""
    sizes = [len(verdict.items) for _, _, verdict in answers]
    scores = [np.nan if verdict.score is None else verdict.score for *_, verdict in answers]
    return Verdicts(
        matches=np.arange(len(answers)),
        items=np.concatenate([verdict.items for *_, verdict in answers]).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        tied=np.concatenate(
            [verdict.tied or (False,) * k for (*_, verdict), k in zip(answers, sizes, strict=True)]
        ),
        presented=np.concatenate([presented for _, presented, _ in answers]).astype(np.int32),
        scores=None if np.isnan(scores).all() else np.array(scores),
        judges=np.array([judge for judge, *_ in answers], np.int32),
        partial=np.array([verdict.partial for *_, verdict in answers]),
    )


def test_couples_are_two_answers_to_one_question_by_hand() -> None:
    full, turned = Verdict((0, 1, 2)), Verdict((2, 1, 0))
    tied = Verdict.of([(0, 1), (2,)])
    best = Verdict.of([(0,), (1, 2)], partial=True)
    verdicts = of(
        [
            (1, (0, 1, 2), full),
            (2, (1, 0, 2), turned),
            (3, (2, 1, 0), tied),
            (0, (0, 2, 1), best),
            (0, (3, 4), Verdict((3, 4))),  # nobody else
            (0, (5, 6), Verdict((5, 6))),  # models alone
            (4, (6, 5), Verdict((5, 6))),
            (1, (7, 8), Verdict((8, 7))),
            (0, (8, 7), Verdict((8, 7))),
        ]
    )
    judges = np.arange(5)
    is_person = (judges > 0) & (judges < 4)
    found = Orders(codings(verdicts), 5)
    counted = {}
    for one, other in combinations(range(5), 2):
        if is_person[one] or is_person[other]:
            two = found.between(judges == one, judges == other)
            counted[one, other] = two.alike.sum(), two.pairs.sum()
    assert {between: found for between, found in counted.items() if found[1]} == {
        (1, 2): (0, 3),
        (1, 3): (2.5, 3),
        (2, 3): (0.5, 3),
        (0, 1): (2 + 1, 2 + 1),
        (0, 2): (0, 2),
        (0, 3): (1.5, 2),
    }
    among = found.between(is_person, is_person)
    assert len(among.questions) == 1
    assert among.alike.sum() / among.pairs.sum() == pytest.approx(1 / 3)
    model = found.between(is_person, judges == 0)
    assert len(model.questions) == 2
    # Of two items the mean over all couples of answers, then over the pairs of items.
    assert model.alike.sum() / model.pairs.sum() == pytest.approx((0.5 + 2 / 3 + 1) / 3)
    nobody = judges > 9
    assert not len(found.between(nobody, nobody).questions)


def test_a_share_has_wilsons_interval() -> None:
    measured = Share(8, 10).measured
    assert measured.value == 0.8
    assert measured.low == pytest.approx(0.4902, abs=1e-4)
    assert measured.high == pytest.approx(0.9433, abs=1e-4)
    assert Share().measured.value is None


def said(checks: list[Check]) -> Said:
    return Said(1, [Person(0, "Ann", b"x" * 32, 9)], checks, {0: [1.0, 5.0, 2.0]}, {0: 2})


def test_checks_are_counted_by_hand() -> None:
    own = of(
        [
            (1, (0, 1), Verdict((0, 1))),
            (1, (2, 3), Verdict((2, 3))),
            (1, (4, 5, 6), Verdict((4, 5, 6))),
            (1, (7, 8), Verdict.of([(7, 8)])),
        ]
    )
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
    assert record.first_by_slot == pytest.approx((3.5 / 4, 0.5 / 4, 0))
    assert record.agreement == Share()


def test_repeated_single_texts_are_alike_within_a_step_of_the_scale() -> None:
    own = of([(1, (row,), Verdict((row,), score=5 / 9)) for row in range(3)])
    checks = [
        Check(row, (row,), 0, repeats=row, verdict=Verdict((row,), score=score))
        for row, score in enumerate((5 / 9, 6 / 9, 7 / 9))
    ]
    (record,) = people.records(said(checks), own)
    assert record.repeats == Share(2, 3)
    assert record.first_by_slot == ()


def test_everybody_is_listed_before_anything_is_answered_and_in_a_run_that_goes_on(
    tmp_path: Path,
) -> None:
    begun = them.stopped(tmp_path, 0)
    before = asyncio.run(people.read(begun.folder))
    assert [(one.name, one.state, one.done, one.seconds) for one in before] == [
        ("Ann", PersonState.ACTIVE, 0, None),
        ("Bob", PersonState.ACTIVE, 0, None),
    ]
    begun = them.stopped(tmp_path, 12, each=2)
    ann, bob = asyncio.run(people.read(begun.folder))
    assert (ann.done, bob.done, ann.quota) == (12, 12, 12)
    assert sum(ann.first_by_slot) == pytest.approx(1)


def test_noisy_people_beside_a_judge_that_is_none(tmp_path: Path) -> None:
    result = them.run(
        tmp_path,
        ["Ann", "Bob"],
        noise=4.0,
        repeats=0.2,
        each=2,
        judge=("people", "simulated"),
        ensemble="each",
        latent_column="gold",
        strategy="listwise6x3",
    )
    ann, bob = asyncio.run(people.read(result.run))
    assert ann.agreement == bob.agreement
    assert ann.agreement.total == 12
    assert 0.6 < (ann.agreement.measured.value or 0) < 1
    assert 1 <= ann.repeats.total <= 9


def test_a_run_of_models_has_no_people(tmp_path: Path) -> None:
    result = them.run(tmp_path, (), judge=("simulated",), feature=None)
    assert asyncio.run(people.read(result.run)) == []


def test_a_check_that_repeats_another_question_is_a_damaged_ledger(tmp_path: Path) -> None:
    result = them.run(tmp_path, ["Ann"], repeats=0.2)
    with closing(sqlite3.connect(result.run.database)) as ledger, ledger:
        changed = "UPDATE checks SET {} = x'0000000001000000' WHERE repeats IS NOT NULL"
        for column in ("items", "ranking"):
            ledger.execute(changed.format(column))
    with pytest.raises(RunError, match=r"damaged: check \d+ repeats a question about other items"):
        asyncio.run(people.read(result.run))
