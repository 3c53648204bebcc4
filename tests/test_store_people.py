"""What every store keeps of people who judge, tested through the protocol alone."""

from __future__ import annotations

import numpy as np
import pytest

from judgeq.errors import RunError
from judgeq.person import Check, Handed, Person
from judgeq.store import Store
from judgeq.types import Call, Counts, JobState, Outcome, Usage, Verdict
from tests.fakes import Clock
from tests.test_store import DONE, begun, contract, place

__all__ = ["place"]
ANN = Person(0, "Ann", b"a" * 32, 60, since=5.0)
BOB = Person(1, "Bob", b"b" * 32)


def said(
    job: int, person: int, *items: int, state: JobState = DONE, outcome: str = "ok"
) -> Outcome:
    call = Call(1, outcome, Usage(), 0.0, 2.5, '{"ranking": ["A", "B"]}', 1000.0, judge=person)
    return Outcome(job, state, Verdict(items) if items else None, (call,))


@contract
async def test_a_number_a_name_and_a_token_are_one_persons(store: Store, clock: Clock) -> None:
    await store.put_person(ANN)
    for other in (BOB._replace(name="Ann"), BOB._replace(token=ANN.token)):
        with pytest.raises(RunError, match="already"):
            await store.put_person(other)
    with pytest.raises(RunError, match="at the same time"):
        await store.put_person(ANN._replace(name="Eve", token=BOB.token, since=ANN.since + 1))
    with pytest.raises(ValueError, match="can't be kept"):
        await store.put_person(BOB._replace(name=" "))
    assert await store.people() == [ANN]


@contract
async def test_a_question_is_handed_to_one_at_a_time(store: Store, clock: Clock) -> None:
    await begun(store, 3)
    first = Handed(0, "lease 1", 7.0, job=0)
    assert await store.hand_out(first)
    assert await store.handed() == [first]
    assert not await store.hand_out(Handed(1, "lease 2", 7.0, job=0)), "Ann has it"
    assert not await store.hand_out(Handed(0, "lease 3", 7.0, job=1)), "she has one"
    assert not await store.hand_out(Handed(1, "lease 4", 7.0, job=99)), "there is no such job"
    check = Handed(1, "lease 5", 7.5, check=4)
    assert await store.hand_out(check)
    assert await store.handed() == [first, check]
    assert await store.take_back("lease 1")
    assert not await store.take_back("lease 1")
    assert await store.hand_out(Handed(2, "lease 6", 8.0, job=0))


@contract
async def test_what_is_out_stays_pending_and_no_other_judge_claims_it(
    store: Store, clock: Clock
) -> None:
    await begun(store, 3)
    store.judges = [1]
    assert await store.claim("w", 3, 10) == []
    await store.hand_out(Handed(0, "lease", 7.0, job=0))
    assert await store.counts() == Counts(pending=3)
    store.judges = [0]
    assert [job.match.id for job in await store.claim("w", 3, 10)] == [0, 1, 2]
    assert not await store.hand_out(Handed(1, "other", 7.0, job=1)), "a worker has it"


@contract
async def test_an_answer_is_its_persons(store: Store, clock: Clock) -> None:
    await begun(store, 3)
    await store.settle("people", [said(0, 3, 1, 0), said(1, 2, 1, 2)])
    verdicts = await store.verdicts(1)
    assert verdicts.judges is not None
    np.testing.assert_array_equal(verdicts.judges, [3, 2])
    assert await store.counts() == Counts(pending=1, done=2)
    totals = await store.totals()
    assert (totals.calls, totals.unknown, totals.in_flight, totals.at_risk) == (2, 0, 0, 0.0)
    (first, call), _ = await store.people_calls()
    assert (first.id, first.items, call.judge, call.latency) == (0, (0, 1), 3, 2.5)
    assert (await store.calls([0]))[0] == [call]


@contract
async def test_an_answer_that_is_taken_back_is_no_verdict(store: Store, clock: Clock) -> None:
    await begun(store, 3)
    await store.settle("people", [said(0, 2, 1, 0)])
    assert not await store.retract(0, 3), "it is another's"
    assert await store.retract(0, 2)
    assert not await store.retract(0, 2)
    assert len(await store.verdicts(1)) == 0
    assert await store.counts() == Counts(pending=3)
    assert await store.hand_out(Handed(0, "lease", 7.0, job=0))
    await store.settle("people", [said(0, 2, 0, 1)])
    assert (await store.verdicts(1)).items.tolist() == [0, 1]
    assert [call.outcome for _, call in await store.people_calls()] == ["undone", "ok"]
    assert await store.last_failure() is None


@contract
async def test_checks_are_kept(store: Store, clock: Clock) -> None:
    await begun(store, 3)
    known = Check(0, (1, 0), known=(0, 1))
    asked = Check(1, (1, 0), person=0, repeats=5, lease="l", at=9.0)
    for check in (known, asked):
        await store.put_check(check)
    assert await store.checks() == [known, asked]
    for verdict in (Verdict((1, 0)), Verdict((1, 0), (False, True)), Verdict((1, 0), (), None)):
        answered = asked._replace(verdict=verdict, seconds=2.0)
        await store.put_check(answered)
        assert await store.checks() == [known, answered]
    assert await store.counts() == Counts(pending=3), "they are no jobs"
