"""What every store must do, tested through the protocol alone."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast

import numpy as np
import pytest

from judgeq.errors import RunError, StoreAwayError
from judgeq.person import Check, Handed, Person
from judgeq.store import Items, Spent, Store
from judgeq.store.schema import ADDED_UP, refuse
from judgeq.store.shared import PostgresStore
from judgeq.store.sqlite import SqliteStore
from judgeq.types import Attempt, Bools, Call, Counts, JobState, Matches, Outcome, Usage, Verdict
from tests.cli import execute
from tests.fakes import Clock, call
from tests.postgres import new_run, sql

N = 6
LEASE = 10.0
PENDING, RUNNING, DONE, INVALID, FAILED = JobState


@dataclass(frozen=True)
class Place:
    """Where a store is, which may be opened again and again, and closes when left; a statement changes
    it, as a stranger could."""

    clock: Clock
    open: Callable[[], AbstractAsyncContextManager[Store]]
    change: Callable[[str], object]


Story: TypeAlias = Callable[[Store, Clock], Awaitable[None]]


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    # In the future: the server was started long before.
    postgres = request.param == "postgres"
    clock, run = Clock(time.time() + 86_400), new_run() if postgres else None

    @asynccontextmanager
    async def opened() -> AsyncIterator[Store]:
        store: Store = (
            SqliteStore(tmp_path / "run.db", clock=clock)
            if run is None
            else PostgresStore(*run, clock=clock)
        )
        try:
            yield store
        finally:
            await store.close()

    def change(statement: str) -> None:
        if run is None:
            execute(tmp_path / "run.db", statement.replace("@.", ""))
        else:
            sql(run[0], re.sub(r"x'(\w*)'", r"'\\x\1'::bytea", statement))

    return Place(clock, opened, change)


def contract(story: Story) -> Callable[[Place], None]:
    """A test of a new store, which is told as a coroutine."""

    def test(place: Place) -> None:
        async def told() -> None:
            async with place.open() as store:
                await story(store, place.clock)

        asyncio.run(told())

    return test


def most() -> Bools:
    return np.array([row != 2 for row in range(N)])


def pairs(n: int) -> Matches:
    """Match m presents items m and m + 1 (modulo N)."""
    items = np.array([[m % N, (m + 1) % N] for m in range(n)], dtype=np.int32).reshape(-1)
    return Matches(items, np.arange(n + 1) * 2)


async def begun(store: Store, jobs: int) -> int:
    """Put in N items and a round of pairs; the epoch."""
    await store.set_items(Items([f"i{row}" for row in range(N)], None, {}))
    epoch = await store.lead("scheduler", 60)
    await store.plan_round(1, epoch, most(), pairs(jobs))
    return epoch


async def claimed(store: Store, worker: str, n: int = 1) -> list[int]:
    """Jobs claimed, and an attempt of each begun that may cost $0.5."""
    jobs = [job.match.id for job in await store.claim(worker, n, LEASE)]
    await store.begin(worker, [Attempt(job, 0.5) for job in jobs])
    return jobs


async def die(store: Store, clock: Clock) -> None:
    """All workers die, and another process goes on."""
    clock.now += 60 + 2 * LEASE
    await store.lead("another", LEASE)
    await store.reap()


def answer(job: int, *items: int, attempt: int = 1) -> Outcome:
    return Outcome(job, DONE, Verdict(items), (call(attempt),))


@contract
async def test_items_come_back_and_gold_may_change(store: Store, clock: Clock) -> None:
    ids = ["a", "β", "'; drop"]
    first = Items(ids, None, {})
    await store.set_items(first)
    assert (await store.items()).same_as(first)
    gold = np.array([0.1, np.nan, -1e300])
    labelled = Items(ids, gold, {"test": np.array([True, False, True])})
    await store.set_items(labelled)
    kept = await store.items()
    assert kept.same_as(labelled)
    assert not kept.same_as(first)
    other = Items(ids, np.array([np.nan, 2.0, 3.0]), {"dev": np.array([False, True, True])})
    await store.set_items(other)
    assert (await store.items()).same_as(other)


@contract
async def test_a_planned_round_is_there_whole(store: Store, clock: Clock) -> None:
    epoch = await begun(store, 3)
    assert await store.round_state(1) == Counts(pending=3)
    assert await store.round_state(2) is None
    await store.plan_round(2, epoch, most(), pairs(2))
    jobs = await store.claim("a", 10, LEASE)
    first, second = ((0, (0, 1)), (1, (1, 2)), (2, (2, 3))), ((3, (0, 1)), (4, (1, 2)))
    assert [(j.match.id, j.match.items) for j in jobs] == [*first, *second]
    assert [j.match.round for j in jobs] == [1, 1, 1, 2, 2]


@contract
async def test_an_old_epoch_can_plan_nothing(store: Store, clock: Clock) -> None:
    old = await begun(store, 2)
    clock.now += 61
    new = await store.lead("another", 60)
    assert new > old
    with pytest.raises(RunError, match=r"taken the run over.*nothing was changed"):
        await store.plan_round(2, old, most(), pairs(3))
    assert await store.round_state(2) is None
    assert await store.counts() == Counts(pending=2)
    await store.plan_round(2, new, most(), pairs(1))
    assert await store.counts() == Counts(pending=3)


@contract
async def test_claims_take_the_lowest_numbers_and_no_more_than_there_are(
    store: Store, clock: Clock
) -> None:
    await begun(store, 5)
    assert await claimed(store, "a", 2) == [0, 1]
    await store.settle("a", [Outcome(0, PENDING)])
    assert await claimed(store, "b", 2) == [0, 2]
    assert await claimed(store, "a", 9) == [3, 4]
    assert await claimed(store, "a", 9) == []


@contract
async def test_what_may_have_been_paid_is_bounded(store: Store, clock: Clock) -> None:
    await begun(store, 4)
    assert await claimed(store, "a", 3) == [0, 1, 2]
    assert (await store.totals()).at_risk == 1.5
    await store.settle("a", [answer(0, 1, 0)])
    lost = call(1, "timeout", None)._replace(bound=0.5)
    await store.settle("a", [Outcome(1, FAILED, None, (lost,)), Outcome(2, PENDING)])
    totals = await store.totals()
    assert (totals.at_risk, totals.unknown, totals.unpriced) == (1.0, 1, 1)
    assert await claimed(store, "a") == [2]
    await store.settle("a", [Outcome(2, RUNNING, None, (lost._replace(attempt=2),))])
    assert (await store.totals()).at_risk == 1.5
    assert await store.last_failure() == ("a reply", 1000.0, 2)
    await store.begin("a", [Attempt(2, 0.5)])
    assert (await store.totals()).at_risk == 2.0
    await store.settle("a", [answer(2, 2, 3, attempt=3)])
    assert (await store.totals()).at_risk == 1.5
    await store.claim("a", 9, LEASE)
    await store.begin("a", [Attempt(3, None)])
    assert (await store.totals()).at_risk is None
    refused = call(1, "rate_limited", 0.0)._replace(bound=None)
    await store.settle("a", [Outcome(3, RUNNING, None, (refused,))])
    assert (await store.totals()).at_risk == 1.5


@contract
async def test_an_answer_from_the_cache_is_no_call(store: Store, clock: Clock) -> None:
    await begun(store, 1)
    await store.claim("a", 1, LEASE)
    await store.settle("a", [Outcome(0, DONE, Verdict((1, 0)), (call(0, "cached", 0.25),))])
    totals = await store.totals()
    assert (totals.calls, totals.cost, totals.usage, totals.unknown) == (0, 0.0, Usage(), 0)
    assert (totals.hits, totals.saved, totals.at_risk) == (1, 0.25, 0.0)
    assert (await store.verdicts()).items.tolist() == [1, 0]


@contract
async def test_verdicts_are_kept_in_match_order_with_their_ties(store: Store, clock: Clock) -> None:
    epoch = await begun(store, 2)
    lists = Matches(np.array([4, 2, 0, 1] * 2, dtype=np.int32), np.array([0, 4, 8]))
    await store.plan_round(2, epoch, most(), lists)
    await claimed(store, "a", 4)
    groups = [[0], [4, 1], [2]]
    await store.settle("a", [Outcome(2, DONE, Verdict.of(groups), (call(),))])
    await store.settle("a", [answer(1, 2, 1), answer(0, 0, 1)])
    every = await store.verdicts()
    assert every.matches.tolist() == [0, 1, 2]
    assert every.items.tolist() == [0, 1, 2, 1, 0, 4, 1, 2]
    assert every.offsets.tolist() == [0, 2, 4, 8]
    assert every.tied.tolist() == [False] * 6 + [True, False]
    assert not every.partial.any()
    assert [every.items.dtype, every.tied.dtype] == [np.dtype("i4"), np.dtype("?")]
    await store.settle("a", [Outcome(3, DONE, Verdict.of(groups, partial=True), (call(),))])
    partial = await store.verdicts(2)
    assert partial.partial.tolist() == [False, True]
    assert partial.tied.tolist() == [False, False, True, False] * 2
    assert (await store.verdicts(1)).items.tolist() == [0, 1, 2, 1]
    assert partial.matches.tolist() == [2, 3]
    assert len(await store.verdicts(3)) == 0


@contract
async def test_the_ledger_adds_up(store: Store, clock: Clock) -> None:
    await begun(store, 4)
    await claimed(store, "a", 4)
    await store.begin("a", [Attempt(1)])
    outcomes = [
        Outcome(0, DONE, Verdict((0, 1)), (call(1, "ok", 0.5, Usage(1, 2, 3, 1)),)),
        Outcome(1, FAILED, None, (call(1, "timeout", None), call(2, "connection", 0.0))),
        Outcome(2, INVALID, None, (call(1, "unusable", 0.25, Usage(100, 200, 300, 100)),)),
    ]
    await store.settle("a", outcomes)
    totals = await store.totals()
    assert totals.usage == Usage(101 + 20, 202 + 4, 303 + 10, 101 + 6)
    assert (totals.calls, totals.retries, totals.unpriced, totals.cost) == (4, 2, 1, 0.75)
    assert (totals.unusable, totals.uncounted) == (1, 0)
    assert (totals.unknown, totals.in_flight) == (0, 1)  # job 3 is running


@contract
async def test_the_dearest_call_above_its_bound_is_found(store: Store, clock: Clock) -> None:
    epoch = await begun(store, 3)
    other = pairs(2)
    await store.plan_round(
        2, epoch, most(), Matches(other.items, other.offsets, np.array([1, 1], np.int32))
    )
    assert await store.overpricing(range(2), 1.0, 0.0) == 0
    await claimed(store, "a", 5)
    above = call(1, cost=2.0)._replace(overpriced_bytes=100)
    outcomes = [
        Outcome(0, DONE, Verdict((0, 1)), (call(1, cost=9.0),)),  # within a higher bound
        Outcome(1, INVALID, None, (above._replace(outcome="unusable"),)),
        Outcome(2, DONE, Verdict((2, 3)), (above._replace(cost=3.0, overpriced_bytes=300),)),
        Outcome(3, DONE, Verdict((0, 1)), (above._replace(cost=50.0),)),
        Outcome(4, DONE, Verdict((1, 2)), (call(0, "cached", 99.0),)),
    ]
    await store.settle("a", outcomes)
    assert await store.overpricing([0], 1.0, 0.0) == 3.0
    assert await store.overpricing([0], 0.0, 0.01) == pytest.approx(2.0)
    assert await store.overpricing([0], 0.5, 0.005) == pytest.approx(2.0)
    assert await store.overpricing([1], 2.0, 0.0) == pytest.approx(25.0)
    assert await store.overpricing([0, 1], 1.0, 0.0) == 50.0
    assert await store.overpricing([2], 1.0, 0.0) == 0
    assert (await store.calls([1]))[1][0].overpriced_bytes == 100


@contract
async def test_what_questions_took_is_listed(store: Store, clock: Clock) -> None:
    await begun(store, 4)
    jobs = await store.claim("a", 4, LEASE)
    unusable, reply = call(1, "unusable", 0.25, Usage(100, 200, 300, 100)), call(2)
    cached = call(0, "cached", 0.125)
    await store.settle("a", [Outcome(2, DONE, Verdict((0, 1)), (unusable, reply))])
    await store.settle("a", [Outcome(0, DONE, Verdict((0, 1)), (call(1, "ok", None),))])
    await store.settle("a", [Outcome(1, FAILED, None, (call(1, "timeout", None),))])
    await store.settle("a", [Outcome(3, DONE, Verdict((0, 1)), (cached,))])
    matches = [job.match for job in jobs]
    assert await store.spent(100) == [
        Spent(matches[0], reply.usage, None, 0.5),
        Spent(matches[2], Usage(110, 202, 305, 103), 0.5, 1.0),
        Spent(matches[3], cached.usage, 0.125, 0.0),
    ]
    assert len(await store.spent(2)) == 1


@contract
async def test_the_calls_about_a_job_are_read_again(store: Store, clock: Clock) -> None:
    await begun(store, 4)
    await claimed(store, "a", 4)
    unusable, reply = call(1, "unusable", None), call(2)._replace(reply="a > b\n\x1b[31m é \u202e")
    timeout = call(1, "timeout", None)._replace(reply="no answer in 60 s")
    await store.settle("a", [Outcome(1, RUNNING, None, (unusable,))])
    await store.settle("a", [Outcome(2, FAILED, None, (timeout,)), answer(0, 0, 1)])
    await store.settle("a", [Outcome(1, DONE, Verdict((2, 1)), (reply,))])
    unusable, reply, timeout = (one._replace(bound=0.0) for one in (unusable, reply, timeout))
    kept = {1: [unusable, reply], 2: [timeout]}
    assert await store.calls([1, 2, 3, 99]) == kept
    assert await store.calls([]) == {}
    assert list(await store.calls(range(10_000))) == [1, 2, 0]
    assert await store.calls(range(1, 3)) == kept
    assert await store.calls(range(3, 3)) == await store.calls(range(3, 100)) == {}
    assert list(await store.calls(range(0, 4, 2))) == [2, 0]


@contract
async def test_an_attempt_that_nobody_answered_is_unknown(store: Store, clock: Clock) -> None:
    await begun(store, 3)
    await claimed(store, "lost", 2)
    assert (await store.totals()).unknown == 0
    await die(store, clock)
    assert (await store.totals()).unknown == 2
    await claimed(store, "a", 3)
    assert (await store.totals()).unknown == 2
    await store.settle("a", [answer(job, job, job + 1) for job in range(3)])
    assert (await store.totals()).unknown == 2


@contract
async def test_reopened_jobs_start_afresh(store: Store, clock: Clock) -> None:
    await begun(store, 4)
    await claimed(store, "a", 3)
    twice = (call(1, "unusable"), call(2, "unusable"))
    invalid = Outcome(0, INVALID, None, twice, "missing: B")
    failed = Outcome(1, FAILED, error="no network")
    await store.settle("a", [invalid, failed, answer(2, 2, 3)])
    assert await store.reopen() == 2
    assert await store.reopen() == 0
    assert await store.counts() == Counts(pending=3, done=1)
    jobs = await store.claim("a", 9, LEASE)
    assert [(j.match.id, j.unusable, j.error) for j in jobs] == [(n, 0, None) for n in (0, 1, 3)]
    await store.settle("a", [answer(0, 1, 0, attempt=3)])
    assert (await store.verdicts()).items.tolist() == [1, 0, 2, 3]


async def taken_over(store: Store, clock: Clock) -> None:
    """Job 0 is claimed by a, whose lease ends, and then by b."""
    await begun(store, 1)
    assert await claimed(store, "a") == [0]
    await die(store, clock)
    assert await claimed(store, "b") == [0]


@contract
async def test_the_first_answer_counts_and_a_later_one_is_a_duplicate(
    store: Store, clock: Clock
) -> None:
    await taken_over(store, clock)
    await store.settle("a", [answer(0, 1, 0)])
    assert await store.counts() == Counts(done=1)
    for late in (answer(0, 0, 1, attempt=2), Outcome(0, INVALID), Outcome(0, FAILED, error="x")):
        await store.settle("b", [late])
        assert await store.counts() == Counts(done=1)
        assert (await store.verdicts()).items.tolist() == [1, 0]
    totals = await store.totals()
    assert (totals.calls, totals.cost, totals.unknown) == (2, 0.5, 0)
    assert [one.outcome for one in (await store.calls([0]))[0]] == ["ok", "duplicate"]


@contract
async def test_without_an_answer_a_late_worker_changes_nothing(store: Store, clock: Clock) -> None:
    await taken_over(store, clock)
    for calls, late in enumerate((PENDING, FAILED, INVALID, RUNNING), 1):
        await store.settle("a", [Outcome(0, late, None, (call(calls, "timeout"),))])
        assert await store.counts() == Counts(running=1)
        assert (await store.totals()).calls == calls
    await store.settle("b", [answer(0, 0, 1, attempt=5)])
    assert await store.counts() == Counts(done=1)


@contract
async def test_what_is_sent_again_changes_nothing(store: Store, clock: Clock) -> None:
    """As after a commit whose answer was lost."""
    await begun(store, 4)
    assert len(await store.claim("a", 3, LEASE)) == 3
    for _ in range(2):
        assert not await store.begin("a", [Attempt(0, 0.5, 1), Attempt(1, 0.5, 1)])
    note = Outcome(1, RUNNING, None, (call(1, "unusable"),), "missing: B")
    for _ in range(2):
        await store.settle("a", [answer(0, 1, 0), note])
    for _ in range(2):
        assert not await store.begin("a", [Attempt(1, 0.5, 2)])
    totals = await store.totals()
    assert (totals.calls, totals.unusable, totals.in_flight, totals.at_risk) == (2, 1, 1, 0.5)
    assert await store.counts() == Counts(pending=1, running=2, done=1)
    cached = Outcome(2, DONE, Verdict((2, 3)), (call(0, "cached"),))
    for _ in range(2):
        await store.settle("a", [cached])
        await store.settle("a", [answer(1, 1, 2, attempt=2), Outcome(3, FAILED)])
    totals = await store.totals()
    assert (totals.calls, totals.hits, totals.unknown) == (3, 1, 0)
    assert await store.counts() == Counts(pending=1, done=3)


@contract
async def test_what_is_done_together_is_one_transaction(store: Store, clock: Clock) -> None:
    await begun(store, 3)
    await claimed(store, "a", 2)
    before = await store.totals()
    unkeepable = call()._replace(reply=cast("str", object()))

    async def all_together() -> None:
        async with store.together():
            await store.settle("a", [answer(0, 1, 0)])
            await store.begin("a", [Attempt(1, 0.5)])
            assert len(await store.claim("a", 1, LEASE)) == 1
            await store.settle("a", [Outcome(1, RUNNING, calls=(unkeepable,))])

    with pytest.raises(RunError):
        await all_together()
    assert await store.totals() == before
    assert await store.counts() == Counts(pending=1, running=2)
    async with store.together():
        await store.settle("a", [answer(0, 1, 0)])
        assert len(await store.claim("a", 1, LEASE)) == 1
    assert await store.counts() == Counts(running=2, done=1)


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


@contract
async def test_several_outcomes_of_one_job_in_one_batch(store: Store, clock: Clock) -> None:
    await begun(store, 2)
    await claimed(store, "a", 2)
    await store.begin("a", [Attempt(0)])
    note = Outcome(0, RUNNING, calls=(call(1, "unusable"),), error="missing: B")
    await store.settle("a", [note, answer(1, 1, 2), answer(0, 1, 0, attempt=2)])
    assert await store.counts() == Counts(done=2)
    assert (await store.totals()).calls == 3
    assert (await store.verdicts()).items.tolist() == [1, 0, 1, 2]


@contract
async def test_a_row_that_was_not_committed_counts_nothing(store: Store, clock: Clock) -> None:
    """A worker that was found dead begins anew, in a transaction that the database doesn't keep; what it
    had in flight is counted all the same."""
    await begun(store, 3)
    (job,) = await claimed(store, "w")
    await die(store, clock)
    with suppress(StoreAwayError):
        async with store.together():
            await store.claim("w", 1, LEASE)
            raise StoreAwayError("gone")
    await store.settle("w", [answer(job, 0, 1)])
    refuse("the ledger", *await store._read(ADDED_UP))


@contract
async def test_what_another_task_claimed_meanwhile_is_known(store: Store, clock: Clock) -> None:
    """A transaction that waited for its turn knows what was claimed before it."""
    await begun(store, 4)
    (first,) = await claimed(store, "w")
    started = asyncio.Event()

    async def other() -> None:
        async with store.together():
            started.set()
            await asyncio.sleep(0)
            await store.claim("w", 1, LEASE)

    async def late() -> None:
        await started.wait()
        await store.settle("w", [answer(first, 0, 1)])

    await asyncio.gather(other(), late())
    with suppress(StoreAwayError):
        async with store.together():
            raise StoreAwayError("gone")
    assert await store.begin("w", [Attempt(1, 0.5)]) == set()


@contract
async def test_each_call_is_its_workers(store: Store, clock: Clock) -> None:
    await begun(store, 2)
    for worker in "ab":
        (job,) = await claimed(store, worker)
        await store.settle(worker, [answer(job, job, job + 1)])
    called = (
        "SELECT w.name, c.job FROM @.calls c JOIN @.workers w ON w.worker = c.worker ORDER BY c.id"
    )
    assert [(name[0], job) for name, job in await store._read(called)] == [("a", 0), ("b", 1)]
