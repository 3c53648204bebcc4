"""What only a store that many processes share must do with batches; the rest is in
test_store_batches.py."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from judgeq.errors import RunError
from judgeq.judge.slices import Slices
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.store import PostgresStore
from judgeq.types import Attempt, Batch, Counts, Job, JobState, Line, Outcome, Verdict
from tests.fakes import Clock, call
from tests.postgres import new_run
from tests.test_postgres import answer, opened, planned, sql, stories
from tests.test_shared_spending import Unheard

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
        attempts = [Attempt(job.match.id, 0.5) for job in (first, second)]
        assert await store.begin("w", attempts) == {second.match.id}
        assert await store.counts() == Counts(pending=4, running=2)
        ((committed,),) = sql(address, "SELECT sum(spent + at_risk) FROM @.workers")
        assert committed == HALF
        assert slices.reserve(HALF) != 0  # it has learned


class Process:
    """One that works on the run: its store, its slices, and what it reserved for jobs that it has."""

    def __init__(self, store: PostgresStore, clock: Callable[[], float]) -> None:
        self.store = store
        self.keeper = Unheard(store.keeper)
        self.slices = Slices(self.keeper, clock=clock)
        self.jobs: list[Job] = []
        self.granted: list[int] = []  # halves of dollars


class Batches(RuleBasedStateMachine):
    """Processes that hand jobs over, ask about others themselves, and die; whoever is there collects."""

    @initialize(cap=st.integers(10, 60))
    def begin_run(self, cap: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.address, self.run = new_run()
        self.cap = cap * HALF
        self.processes: list[Process] = []
        self.opened: list[PostgresStore] = []
        self.now = 0.0
        self.paid = 0
        self.flying: list[tuple[Process, Job, int]] = []
        self.held: list[tuple[str, Job, int]] = []  # by batches
        self.lost: list[tuple[str, Job, int]] = []  # given back by batches, perhaps answered
        self.made = 0
        self.do(planned(self.new(), JOBS))
        sql(self.address, "UPDATE @.runs SET cap = %s", self.cap)
        self.join()

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for store in self.opened:
                self.do(store.close())
            self.loop.close()
            sql(self.address, f'DROP SCHEMA "{self.address.schema}" CASCADE')

    def new(self) -> PostgresStore:
        self.opened.append(PostgresStore(self.address, self.run))
        return self.opened[-1]

    def do(self, work: Awaitable[Any]) -> Any:
        async def done() -> Any:
            return await work

        return self.loop.run_until_complete(done())

    def process(self, which: int) -> Process:
        return self.processes[which % len(self.processes)]

    @precondition(lambda self: len(self.processes) < 3)
    @rule()
    def join(self) -> None:
        process = Process(self.new(), lambda: self.now)
        self.processes.append(process)
        process.jobs += self.do(process.store.claim("w", 4, 600))
        self.do(process.slices.ask())

    @rule(
        which=st.integers(0, 2),
        amounts=st.lists(st.integers(0, 9), min_size=1, max_size=4),
        then=st.sampled_from(["hand over", "hand over unheard", "begin", "keep"]),
        lost=st.booleans(),
    )
    def spend(self, which: int, amounts: list[int], then: str, lost: bool) -> None:
        """Reserve what jobs may cost, and what was reserved before as well is handed over or begun."""
        process = self.process(which)
        for amount in amounts:
            if process.slices.reserve(amount * HALF) != 0:
                self.ask(process, lost)
                if process.slices.reserve(amount * HALF) != 0:
                    continue
            process.granted.append(amount)
        if len(process.jobs) < len(process.granted):
            process.jobs += self.do(process.store.claim("w", 8, 600))
        chosen = list(zip(process.jobs, process.granted, strict=False))
        if then == "keep" or not chosen:
            return
        del process.jobs[: len(chosen)], process.granted[: len(chosen)]
        if then == "begin":
            attempts = [Attempt(job.match.id, amount / 2) for job, amount in chosen]
            gone = self.do(process.store.begin("w", attempts))
            self.flying += [(process, *one) for one in self.taken(process, chosen, gone)]
        else:
            self.hand_over(process, chosen, heard=then == "hand over")

    def taken(
        self, process: Process, chosen: list[tuple[Job, int]], gone: Collection[int]
    ) -> list[tuple[Job, int]]:
        """All but those that were answered meanwhile, late: a batch had given them back."""
        for job, amount in chosen:
            if job.match.id in gone:
                process.slices.release(amount * HALF)
        return [(job, amount) for job, amount in chosen if job.match.id not in gone]

    def ask(self, process: Process, lost: bool) -> None:
        self.now += 0.5
        process.keeper.lost = lost
        self.do(process.slices.ask())

    def hand_over(self, process: Process, chosen: list[tuple[Job, int]], heard: bool) -> None:
        """Unheard: the answer to the COMMIT is lost, and the process never learns that it held."""
        name, self.made = f"b{self.made}", self.made + 1
        batch = Batch(name, 0, "a", "h", "f", 1.0, len(chosen), None, 1.0)
        lines = [Line(job, amount / 2, 1) for job, amount in chosen]
        if not heard:
            process.store.keeper.settled = lambda reserved, freed: None
        gone = self.do(process.store.hand_over("w", batch, lines))
        process.store.keeper.settled = process.slices.settled
        self.held += [(name, *one) for one in self.taken(process, chosen, gone)]

    def outcome(self, job: Job, amount: int, share: int) -> Outcome:
        """An answer that cost so many quarters of what it might."""
        self.paid += amount * HALF * share // 4
        said = call(job.attempts + 1, cost=amount / 2 * share / 4)._replace(bound=amount / 2)
        return Outcome(job.match.id, JobState.DONE, Verdict(job.match.items), (said,))

    @precondition(lambda self: self.flying)
    @rule(share=st.integers(0, 4))
    def settle(self, share: int) -> None:
        process, job, amount = self.flying.pop(0)
        self.do(process.store.settle("w", [self.outcome(job, amount, share)]))

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 2), share=st.integers(0, 4), kind=st.sampled_from("aapu"))
    def collect(self, which: int, share: int, kind: str) -> None:
        """An answer, none at no cost, or nobody knows."""
        name, job, amount = self.held.pop(0)
        outcome = Outcome(job.match.id, JobState.PENDING)
        if kind == "a":
            outcome = self.outcome(job, amount, share)
        elif kind == "p":
            expired = call(job.attempts + 1, "expired", 0.0)._replace(bound=amount / 2)
            outcome = outcome._replace(calls=(expired,))
        else:
            self.lost.append((name, job, amount))
        self.do(self.process(which).store.settle(name, [outcome]))

    @precondition(lambda self: self.lost)
    @rule(which=st.integers(0, 2), share=st.integers(0, 4))
    def come_late(self, which: int, share: int) -> None:
        name, job, amount = self.lost.pop(0)
        self.do(self.process(which).store.settle(name, [self.outcome(job, amount, share)]))

    @precondition(lambda self: len(self.processes) > 1)
    @rule(which=st.integers(0, 2), killed=st.booleans())
    def end(self, which: int, killed: bool) -> None:
        process = self.processes.pop(which % len(self.processes))
        if killed:
            dead = process.store.keeper.worker
            sql(self.address, "UPDATE @.workers SET over = true WHERE worker = %s", dead)
            given_back = (
                "UPDATE @.jobs SET state = 'pending' WHERE state = 'running' AND worker = %s"
            )
            sql(self.address, given_back, dead)
        else:
            self.do(process.store.close())
            self.opened.remove(process.store)
        self.paid += sum(amount * HALF for p, _, amount in self.flying if p is process)
        self.flying = [flying for flying in self.flying if flying[0] is not process]

    @invariant()
    def never_more_than_the_cap(self) -> None:
        if not hasattr(self, "loop"):
            return
        ((committed, at_risk, free, stuck, jobs),) = sql(
            self.address,
            "SELECT coalesce(sum(spent + at_risk), 0), coalesce(sum(at_risk), 0), "
            "coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0), "
            "coalesce(sum(abs(free)) FILTER (WHERE until = 'infinity'), 0), "
            "(SELECT sum(at_risk) FROM @.jobs) FROM @.workers",
        )
        assert committed + free <= self.cap
        assert stuck == 0
        assert at_risk == jobs
        open_ = [amount for _, _, amount in [*self.flying, *self.held, *self.lost]]
        assert self.paid + sum(open_) * HALF == committed
        for process in self.processes:
            row = process.store.keeper.worker
            ((own,),) = sql(self.address, "SELECT free FROM @.workers WHERE worker = %s", row)
            assert 0 <= process.slices.free + sum(process.granted) * HALF <= own
        for batch in self.do(self.opened[0].batches()):
            mine = [amount for name, _, amount in self.held if name == batch.name]
            assert batch.left <= len(mine)  # some may have been answered late, for another batch

    @rule()
    def all_that_is_left_is_there_for_a_newcomer(self) -> None:
        store = self.new()
        self.do(store.row_of("newcomer"))
        ((gone,),) = sql(
            self.address,
            "SELECT sum(spent + at_risk + CASE WHEN over THEN 0 ELSE greatest(free, 0) END) "
            "FROM @.workers",
        )
        left = self.cap - int(gone)
        given = self.do(store.keeper.reserve(None, left, 10 * self.cap, 0))
        assert given.granted == left
        assert self.do(store.keeper.reserve(given.held, 1, 10 * self.cap, 0)).granted == 0
        self.do(store.keeper.reserve(0, 0, 0, 0))
        self.do(store.close())
        self.opened.remove(store)


TestBatches = pytest.mark.long(Batches.TestCase)
TestBatches.settings = settings(
    max_examples=12, stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip
