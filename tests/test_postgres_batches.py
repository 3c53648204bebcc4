"""What only a store that many processes share must do with batches; the rest is in
test_store_batches.py."""

from __future__ import annotations

import asyncio

import pytest

from judgeq.errors import RunError
from judgeq.judge.slices import Slices
from judgeq.store.link import Address
from judgeq.types import Attempt, Batch, Counts, Line
from tests.fakes import Clock
from tests.postgres import new_run
from tests.test_postgres import answer, does_not_add_up, opened, planned, sql, stories

HALF = 500_000_000  # nano-dollars
JOBS = 60
LEASE = 10.0


@stories
async def test_a_batch_is_no_worker_and_outlives_all(
    address: Address, run: int, clock: Clock
) -> None:
    async with opened(address, run, clock) as store:
        async with opened(address, run, clock) as first:
            await planned(first, 3)
            jobs = await first.claim("w", 2, LEASE)
            settled: list[tuple[int, int]] = []
            first.keeper.settled = lambda reserved, freed: settled.append((reserved, freed))
            batch = Batch("b", 0, "a", "h", "f", 1.0, 2, 1.0, 1.0)
            await first.hand_over("w", batch, [Line(job, 0.5, 1) for job in jobs])
            assert settled == [(2 * HALF, 0)]
            # What is sent again gives nothing of the batch back.
            first._doubtful = True
            async with first.together():
                await first.claim("w", 0, LEASE)
            assert await first.counts() == Counts(pending=1, running=2)
        clock.now += 1e9
        assert await store.reap() == 0
        crew = await store.crew()
        assert [worker.label for worker in crew.workers] == ["w"]
        assert crew.cap.at_risk == 1.0
        assert await store.counts() == Counts(pending=1, running=2)
        async with opened(address, run, clock) as other:
            for _ in range(2):  # as after a commit whose answer was lost: its other job stays
                other._doubtful = True
                await other.settle("b", [answer(0)])
            assert [batch.left for batch in await other.batches()] == [1]
        assert await store.counts() == Counts(pending=1, running=1, done=1)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE @.batches SET state = 'odd'",
        "UPDATE @.batches SET made = 'nan'",
        "UPDATE @.batches SET seen = 'infinity'",
        "UPDATE @.batches SET cost = -1",
        "UPDATE @.batches SET reserved = 'infinity'",
        "UPDATE @.batches SET answered = -1",
        "UPDATE @.batches SET sent = '\\x00'",
        "UPDATE @.batches SET sent = ''",
        "UPDATE @.batches SET sent = overlay(sent placing '\\x07' from 1)",
        "UPDATE @.batches SET worker = worker + 1",
        "UPDATE @.workers SET until = 1e9 WHERE name = 'b'",
        "UPDATE @.workers SET name = '../b' WHERE name = 'b'",
    ],
)
def test_a_batch_that_judgeq_never_wrote_is_refused(change: str) -> None:
    async def story() -> None:
        address, run = new_run()
        async with opened(address, run) as store:
            await planned(store, 1)
            jobs = await store.claim("w", 1, LEASE)
            await store.hand_over(
                "w", Batch("b", 0, "a", "h", "f", 1.0, 1, 1.0, 1.0), [Line(jobs[0], 0.5, 1)]
            )
        sql(address, change)
        if does_not_add_up(address, run):
            return
        async with opened(address, run) as store:
            read = await asyncio.gather(store.batches(), store.lines("b"), return_exceptions=True)
        errors = [error for error in read if isinstance(error, BaseException)]
        assert errors
        for error in errors:
            assert isinstance(error, RunError)
            assert "run named of" in str(error)
            assert "is damaged" in str(error)

    asyncio.run(story())


# The cap


@stories
async def test_what_was_reserved_before_one_was_found_dead_is_not_spent_afterwards(
    address: Address, run: int, clock: Clock
) -> None:
    """A call that was let go under another number of its worker made room for one that nobody paid."""
    async with opened(address, run, clock) as store, opened(address, run, clock) as other:
        await planned(store, 6)
        sql(address, "UPDATE @.runs SET cap = %s", 2 * HALF)
        (lost,) = await store.claim("w", 1, LEASE)
        slices = Slices(store.keeper, clock=clock)
        await slices.ask()

        async def reserve() -> None:
            while slices.reserve(HALF) != 0:
                clock.now += 1.0
                await slices.ask()

        await reserve()
        sql(address, "UPDATE @.workers SET over = true")
        sql(address, "UPDATE @.jobs SET state = 'pending'")
        await other.claim("w", 1, LEASE)
        assert (await other.keeper.reserve(None, HALF, HALF, 0)).granted == HALF
        first, second = await store.claim("w", 2, LEASE)
        await reserve()
        assert await store.begin("w", [Attempt(lost.match.id, 0.5)])
        slices.release(HALF)
        assert slices.reserve(HALF) == 0  # of nothing
        assert await store.begin("w", [Attempt(first.match.id, 0.5)]) == set()
        assert await store.begin("w", [Attempt(second.match.id, 0.5)]) == {second.match.id}
        assert await store.counts() == Counts(pending=4, running=2)
        ((committed,),) = sql(address, "SELECT sum(spent + at_risk) FROM @.workers")
        assert committed == HALF
        assert slices.reserve(HALF) != 0  # it has learned
