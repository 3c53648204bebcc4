from __future__ import annotations

import asyncio
import math
import random
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from judgeq.errors import BudgetError, RunError
from judgeq.judge.budget import Budget
from judgeq.judge.leases import LATE, Ask, Bucket, Lease, Limits, Line, Piece, Slice
from judgeq.judge.limiter import CUT, Limiter
from judgeq.judge.shared_spending import AGAIN, Purse, SharedSpending
from judgeq.judge.spending import MARGIN, NANO
from judgeq.store.postgres.address import connect, in_schema, parse
from judgeq.store.postgres.sharing import CONSTANTS, HELD, Sharing
from tests.cli import command, environment
from tests.fakes import Clock, turns
from tests.mock import mock, stats
from tests.postgres import new_run, new_store
from tests.test_joining import planning, waited_for


class Database:
    """A run in a store, of which tests see and change everything. Time passes for it when told."""

    def __init__(self) -> None:
        self.address, self.run = new_run()
        self.connection = connect(self.address)
        self.connection.execute("SET synchronous_commit = off")
        self.passed = 0.0

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(in_schema(statement, self.address.schema), values)
        return cursor.fetchall() if cursor.description else []

    def worker(self) -> int:
        name = f"worker {random.random()}"
        ((number,),) = self.rows(
            "INSERT INTO @.workers (run, name, until) VALUES (%s, %s, 'infinity') RETURNING worker",
            self.run,
            name,
        )
        return int(number)

    def sharing(self, worker: int | None = None) -> Sharing:
        return Sharing(self.address, self.run, lambda: worker)

    def now(self) -> float:
        """The time by this process's clock; it goes on by itself as well."""
        return self.passed + asyncio.get_running_loop().time()

    def sleep(self, seconds: float) -> None:
        """As if so much time had passed."""
        self.passed += seconds
        by = f"interval '{seconds:.6f} s'"
        self.connection.execute(
            in_schema(
                f"UPDATE @.buckets SET at = at - {by}, slowed = slowed - {by}, "
                f"paused_until = paused_until - {by}; UPDATE @.shares SET until = until - {by}",
                self.address.schema,
            )
        )


def story(tell: Callable[[Database], Coroutine[Any, Any, None]]) -> None:
    database = Database()
    try:
        asyncio.run(tell(database))
    finally:
        database.connection.close()


# What is held of a limit


def test_what_is_leased_goes_at_its_time_and_lapses() -> None:
    line = Line()
    assert line.wait(0.0, 1.0) is None
    line.add(Piece(3, 0.5, 10.0), 0.0)  # at 0.5, 0.6 and 0.7
    assert line.wait(0.0, 1.0) == 0.5
    line.take(1.0)
    assert line.wait(0.5, 1.0) == pytest.approx(0.1)
    line.take(1.0)
    assert line.wait(0.7 + LATE - 0.01, 1.0) == 0.0
    assert line.wait(0.8 + LATE + 0.01, 1.0) is None
    assert line.left(10.0) == 0.0


def test_tokens_that_a_call_did_not_take_are_taken_again_and_a_debt_is_paid() -> None:
    line = Line()
    line.add(Piece(100, 0.0, 100.0), 0.0)
    assert line.wait(0.0, 100.0) == 0.0
    line.take(100.0)
    line.settle(-60.0)
    assert line.wait(0.0, 60.0) == 0.0
    line.take(60.0)
    line.settle(25.0)
    assert line.lacks(10.0) == 35.0
    line.add(Piece(35, 0.0, 100.0), 0.0)
    assert line.wait(0.0, 10.0) == 0.0
    line.take(10.0)
    assert line.wait(0.0, 1.0) is None


def test_what_is_not_due_is_given_back() -> None:
    line = Line()
    line.add(Piece(10, 0.0, 10.0), 0.0)
    assert line.give_back(0.25) == pytest.approx(7.5)
    assert line.left(0.25) == 0.0


# Limits that several processes share


class Process:
    """One that sends calls as fast as it may; each takes `tokens`, by its estimate `guess`."""

    def __init__(
        self, database: Database, limits: Limits, guess: float = 1.0, tokens: float = 1.0
    ) -> None:
        self.bucket = Bucket()
        self.bucket.say(limits)
        self.sharing = database.sharing()
        self.guess, self.tokens = guess, tokens
        self.sent: list[float] = []
        self.asked = 0
        self._database = database

    async def go_on(self) -> float:
        """Send what may be sent now; the time of the next."""
        now = self._database.now()
        while (wait := self.bucket.take(now, self.guess)) == 0:
            self.sent.append(now)
            self.bucket.settle_tokens(self.tokens - self.guess)
            self.bucket.ended()
        if self.bucket.due(now) <= now:
            self.asked += 1
            lease = await self.sharing.lease("a", self.bucket.ask(now))
            self.bucket.answered(self._database.now(), lease)
            return now
        return now + wait


async def sending(database: Database, processes: list[Process], seconds: float) -> list[float]:
    """When the processes sent calls, by the end of so many seconds more."""
    end = database.now() + seconds
    while database.now() < end:
        following = min([await process.go_on() for process in processes])
        if following > database.now():
            database.sleep(min(following, end) - database.now())
    return sorted(time for process in processes for time in process.sent)


def most(times: list[float], seconds: float) -> int:
    """The most calls in any so many seconds."""
    first, found = 0, 0
    for last, time in enumerate(times):
        while times[first] <= time - seconds:
            first += 1
        found = max(found, last - first + 1)
    return found


def test_several_processes_get_all_of_a_limit_and_no_more_whoever_dies() -> None:
    async def tell(database: Database) -> None:
        processes = [Process(database, Limits(300)) for _ in range(3)]
        times = await sending(database, processes, 40)
        assert sum(process.asked for process in processes) <= 3 * 40 * 2.6
        assert min(len(process.sent) for process in processes) > len(times) / 8
        # One dies with all that it holds, one begins, one is quiet.
        new = Process(database, Limits(300))
        await sending(database, [processes[1], new], 40)
        times = sorted(time for process in (*processes, new) for time in process.sent)
        for process in (*processes, new):
            await process.sharing.close()
        assert most(times, 60.0) <= 300
        assert len(times) >= 80 * 5 * MARGIN * 0.97

    story(tell)


def test_a_low_limit_is_kept_evenly() -> None:
    async def tell(database: Database) -> None:
        processes = [Process(database, Limits(6)) for _ in range(3)]
        times = await sending(database, processes, 200)
        gaps = [late - early for early, late in pairwise(times)]
        assert len(times) >= 200 / 10 * 0.95
        assert min(gaps) >= 10 / MARGIN - LATE - 0.1
        for process in processes:
            await process.sharing.close()

    story(tell)


@pytest.mark.parametrize("wrong", [0.5, 2.0])
def test_a_limit_of_tokens_is_kept_though_estimates_are_wrong(wrong: float) -> None:
    async def tell(database: Database) -> None:
        limits = Limits(None, 60_000)
        processes = [Process(database, limits, 300 * wrong, 300.0) for _ in range(2)]
        times = await sending(database, processes, 60)
        assert len(times) * 300 == pytest.approx(60_000 * MARGIN, rel=0.06)
        for process in processes:
            await process.sharing.close()

    story(tell)


def test_the_lowest_limit_that_a_living_process_says_holds() -> None:
    async def tell(database: Database) -> None:
        one, two = database.sharing(), database.sharing()
        await one.lease("a", Ask(Limits(600, None, 9)))
        lease = await two.lease("a", Ask(Limits(900, 5000)))
        assert lease.limits == Limits(600, 5000, 9)
        database.sleep(HELD + 1)
        assert (await two.lease("a", Ask(Limits(900, 5000)))).limits == Limits(900, 5000)
        await two.leave("a", Ask(Limits()))
        assert (await one.lease("a", Ask(Limits()))).limits == Limits()
        await one.close()
        await two.close()

    story(tell)


def test_what_is_given_back_is_leased_again_if_it_is_the_last() -> None:
    async def tell(database: Database) -> None:
        one, two = database.sharing(), database.sharing()
        lease = await one.lease("a", Ask(Limits(60), 1))
        assert lease.requests is not None
        await one.leave("a", Ask(Limits(60), last=lease.at, unused=(1.0, 0.0)))
        lease = await two.lease("a", Ask(Limits(60), 1))
        assert lease.requests is not None
        assert (lease.requests.amount, lease.requests.start) == (1, 0)
        lease = await one.lease("a", Ask(Limits(60), 1))
        assert lease.requests is not None
        assert lease.requests.amount == 0 or lease.requests.start > 0.8
        await two.leave("a", Ask(Limits(60), last="2001-01-01", unused=(1.0, 0.0)))
        ((ahead,),) = database.rows("SELECT requests_level FROM @.buckets")
        assert ahead > 0.5
        await one.close()
        await two.close()

    story(tell)


def test_a_refusal_seen_by_one_slows_all_once_and_passes() -> None:
    async def tell(database: Database) -> None:
        one, two = database.sharing(), database.sharing()
        limits = Limits(600)
        lease = await one.lease("a", Ask(limits, 10))
        assert lease.requests is not None
        full = lease.requests.rate
        await one.lease("a", Ask(limits, refused=True, pause=4.0))
        lease = await two.lease("a", Ask(limits, 10, refused=True))  # of the same burst
        assert lease.paused == pytest.approx(4.0, abs=0.2)
        assert lease.requests is not None
        assert lease.requests.amount == 0
        assert lease.requests.rate == pytest.approx(full * CUT, 1e-3)
        bucket = Bucket()
        bucket.take(0.0, 1.0)
        bucket.answered(0.0, lease)
        assert bucket.take(1.0, 1.0) == pytest.approx(3.0, abs=0.2)
        database.sleep(10)
        lease = await two.lease("a", Ask(limits, 10))
        assert lease.requests is not None
        assert (lease.requests.amount, lease.paused) == (9, 0)
        assert lease.requests.rate == pytest.approx(full * (CUT + 0.1), rel=0.01)
        await one.close()
        await two.close()

    story(tell)


# Calls in flight


def test_calls_in_flight_are_shared_fairly_and_those_of_the_dead_lapse() -> None:
    async def tell(database: Database) -> None:
        limits = Limits(calls=10)
        one, two = database.sharing(), database.sharing()

        async def share(who: Sharing, in_flight: int, wanted: int) -> int | None:
            return (await who.lease("a", Ask(limits, 0, in_flight=in_flight, calls=wanted))).calls

        assert await share(one, 0, 50) == 10
        assert await share(two, 0, 50) == 0  # none is free
        assert await share(one, 10, 50) == 5  # as its own end it begins no more
        assert await share(one, 7, 50) == 5
        assert await share(two, 0, 50) == 3
        assert await share(one, 4, 50) == 5
        assert await share(two, 3, 50) == 5
        assert await share(one, 5, 2) == 2  # it needs no more
        assert await share(one, 2, 2) == 2
        assert await share(two, 5, 50) == 8
        database.sleep(HELD + 1)
        assert await share(two, 8, 50) == 10
        await one.close()
        await two.close()

    story(tell)


def test_more_processes_than_calls_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONSTANTS, "turn", 0.03)

    async def tell(database: Database) -> None:
        sharings = [database.sharing() for _ in range(5)]
        had = dict.fromkeys(range(5), 0)
        flying = dict.fromkeys(range(5), 0)
        while min(had.values()) < 3:
            for number, sharing in enumerate(sharings):
                ask = Ask(Limits(calls=2), 0, in_flight=flying[number], calls=3)
                calls = (await sharing.lease("a", ask)).calls
                had[number] += bool(calls)
                flying[number] = calls or 0
                assert sum(flying.values()) <= 2
        for sharing in sharings:
            await sharing.close()

    story(tell)


# One budget


def test_all_of_a_cap_is_used_and_the_error_says_by_what() -> None:
    async def tell(database: Database) -> None:
        sharings = [database.sharing(database.worker()) for _ in range(3)]
        await sharings[0].set_cap(NANO)
        both = [SharedSpending(sharing) for sharing in sharings]
        paid = 0.0

        async def work(spending: SharedSpending, sharing: Sharing) -> None:
            nonlocal paid
            await spending.open()
            budget = Budget(spending)
            try:
                while True:
                    await budget.reserve(0.04)
                    await moved(database, sharing, 0, 40_000_000, -40_000_000)
                    await asyncio.sleep(0)
                    paid += 0.01
                    await moved(database, sharing, 10_000_000, -40_000_000, 30_000_000)
                    budget.settle(0.04, 0.01)
                    sharing.settled(40_000_000, 30_000_000)
            finally:
                await spending.close()

        done = await asyncio.wait_for(
            asyncio.gather(
                *[work(*pair) for pair in zip(both, sharings, strict=True)], return_exceptions=True
            ),
            30,
        )
        assert [type(error) for error in done] == [BudgetError] * 3
        assert 0.96 < paid <= 1.0
        assert f"--max-cost 1: ${paid:.6g} is spent, and" in str(done[-1])
        assert database.rows("SELECT sum(free), sum(reserved) FROM @.workers") == [(0, 0)]

    story(tell)


async def moved(database: Database, sharing: Sharing, spent: int, at_risk: int, free: int) -> None:
    """As a store does in the transaction that begins or settles a call."""
    database.rows(
        "UPDATE @.workers SET spent = spent + %s, at_risk = at_risk + %s, "
        "free = CASE WHEN over THEN free ELSE free + %s END WHERE worker = %s",
        spent, at_risk, free, sharing.worker,
    )  # fmt: skip


class Worker:
    """A process with a purse, and its calls: reserved, and begun."""

    def __init__(self, database: Database) -> None:
        self.number = database.worker()
        self.sharing = database.sharing(self.number)
        self.purse = Purse()
        self.granted: list[int] = []
        self.begun: list[int] = []


class Spenders(RuleBasedStateMachine):
    """Workers that reserve, begin, pay, lose answers, and die at any moment."""

    @initialize(cap=st.integers(0, 200))
    def begin_run(self, cap: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.database, self.cap = DATABASES.pop() if DATABASES else Database(), cap
        self.workers: list[Worker] = []
        self.now = 0.0
        self.paid = 0
        self.database.rows("UPDATE @.runs SET cap = %s", cap)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for worker in self.workers:
                self.do(worker.sharing.close())
            self.loop.close()
            self.database.rows("DELETE FROM @.workers")
            DATABASES.append(self.database)

    def do(self, work: Awaitable[Any]) -> Any:
        async def done() -> Any:
            return await work

        return self.loop.run_until_complete(done())

    def move(self, worker: Worker, spent: int, at_risk: int, free: int) -> None:
        self.do(moved(self.database, worker.sharing, spent, at_risk, free))

    @precondition(lambda self: len(self.workers) < 4)
    @rule()
    def join(self) -> None:
        worker = Worker(self.database)
        self.workers.append(worker)
        worker.purse.answered(self.now, self.do(worker.sharing.reserve(None, 0, 0, 0)))

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), amount=st.integers(0, 60), lost=st.booleans())
    def ask(self, which: int, amount: int, lost: bool) -> None:
        worker = self.workers[which % len(self.workers)]
        self.now += 0.5
        grant = worker.purse.reserve(self.now, amount)
        if grant.granted:
            worker.granted.append(amount)
        else:
            # Never is right only while no call in flight can give anything back: one of 0 can't.
            assert grant.wait is not None or not any(sum(each.begun) for each in self.workers)
        question = worker.purse.ask(self.now)
        given = self.do(worker.sharing.reserve(*question))
        if lost:  # with the connection: the question was answered, and nobody heard it
            worker.purse.unanswered(self.now, 1.0)
        else:
            worker.purse.answered(self.now, given)

    @precondition(lambda self: any(worker.granted for worker in self.workers))
    @rule(which=st.integers(0, 3), sent=st.booleans())
    def begin(self, which: int, sent: bool) -> None:
        holders = [worker for worker in self.workers if worker.granted]
        worker = holders[which % len(holders)]
        amount = worker.granted.pop()
        if sent:
            worker.begun.append(amount)
            self.move(worker, 0, amount, -amount)
        else:
            worker.purse.release(amount)

    @precondition(lambda self: any(worker.begun for worker in self.workers))
    @rule(which=st.integers(0, 3), share=st.floats(0, 1), known=st.booleans())
    def settle(self, which: int, share: float, known: bool) -> None:
        flying = [worker for worker in self.workers if worker.begun]
        worker = flying[which % len(flying)]
        bound = worker.begun.pop(0)
        cost = math.ceil(bound * share)
        self.paid += cost
        if known:
            self.move(worker, cost, -bound, bound - cost)
        else:  # no answer: possibly paid
            self.move(worker, 0, -(bound - cost), bound - cost)
        worker.purse.settled(bound, bound - cost)

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), answers=st.integers(0, 3))
    def die(self, which: int, answers: int) -> None:
        worker = self.workers.pop(which % len(self.workers))
        self.database.rows("UPDATE @.workers SET over = true WHERE worker = %s", worker.number)
        self.paid += sum(worker.begun)  # for all that anybody knows
        for bound in worker.begun[:answers]:  # which are handed in late
            self.move(worker, bound, -bound, 0)
        assert self.do(worker.sharing.reserve(0, 0, 10, 0)).held is None
        self.do(worker.sharing.close())

    @invariant()
    def never_more_than_the_cap(self) -> None:
        if not hasattr(self, "loop"):
            return
        ((committed, given),) = self.database.rows(
            "SELECT coalesce(sum(spent + at_risk), 0), "
            "coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0) FROM @.workers"
        )
        assert committed + given <= self.cap
        assert self.paid + sum(sum(worker.begun) for worker in self.workers) <= committed
        for worker in self.workers:
            ((free,),) = self.database.rows(
                "SELECT free FROM @.workers WHERE worker = %s", worker.number
            )
            assert 0 <= worker.purse.free + sum(worker.granted) <= free


DATABASES: list[Database] = []


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    yield
    while DATABASES:
        DATABASES.pop().connection.close()


TestSpenders = Spenders.TestCase
TestSpenders.settings = settings(
    max_examples=25, stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # to shrink takes longer than a test may
)  # fmt: skip


# What a process makes of the answers


class Keeper:
    """Answers as it is scripted; without a script it gives all that is wanted."""

    worker = 1

    def __init__(self) -> None:
        self.slices: list[Slice | RunError] = []
        self.leases: list[Lease | RunError] = []
        self.asked: list[tuple[Any, ...]] = []
        self.settled: Callable[[int, int], None] = lambda reserved, free: None
        self.cap: int | None = NANO

    async def set_cap(self, cap: int | None) -> None:
        self.cap = cap

    def on_settled(self, settled: Callable[[int, int], None]) -> None:
        self.settled = settled

    async def reserve(self, held: int | None, least: int, wanted: int, reserved: int) -> Slice:
        self.asked.append((held, least, wanted, reserved))
        if not self.slices:
            return Slice(wanted, (held or 0) + wanted, self.cap, 0, 0, pending=False)
        answer = self.slices.pop(0)
        if isinstance(answer, RunError):
            raise answer
        return answer

    async def lease(self, bucket: str, ask: Ask) -> Lease:
        self.asked.append((bucket, ask))
        answer = self.leases.pop(0) if self.leases else None
        if isinstance(answer, RunError):
            raise answer
        return answer or Lease(None, None, 0.0, 0.0, ask.said, None, self.cap, "now")

    async def leave(self, bucket: str, ask: Ask) -> None:
        self.asked.append(("left", bucket))

    async def close(self) -> None:
        self.asked.append(("closed",))


def test_a_cap_is_held_whatever_isolation_is_the_databases_default() -> None:
    async def tell(database: Database) -> None:
        address = parse(
            f"{new_store().partition('schema=')[0]}schema={database.address.schema}"
            "&options=-c%20default_transaction_isolation=repeatable%5C%20read"
        )
        first, second = database.worker(), database.worker()
        database.rows("UPDATE @.runs SET cap = 10")
        sharing = Sharing(address, database.run, lambda: second)
        with database.connection.transaction():
            database.rows("SELECT FROM @.runs FOR NO KEY UPDATE")
            asked = asyncio.create_task(sharing.reserve(None, 1, 10, 0))
            waiting = "SELECT pid FROM pg_locks WHERE NOT granted"
            while not (database.rows(waiting) or asked.done()):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            database.rows("UPDATE @.workers SET free = 8 WHERE worker = %s", first)
        assert (await asked).granted == 2
        await sharing.close()

    story(tell)


def test_a_cap_of_any_size_is_kept() -> None:
    async def tell(database: Database) -> None:
        sharing = database.sharing(database.worker())
        await sharing.set_cap(10**30)
        assert (await sharing.reserve(None, 1, 10, 0)).granted == 10
        await sharing.close()

    story(tell)


def test_money_that_others_may_give_back_is_asked_for_again() -> None:
    async def tell() -> None:
        clock, keeper = Clock(), Keeper()
        spending = SharedSpending(keeper, clock=clock)
        await spending.open()
        keeper.slices = [Slice(0, 0, NANO, NANO // 2, 0, pending=True)]
        assert spending.reserve(NANO).wait is not None
        await spending.turn()
        assert spending.due() == math.inf  # until somebody still wants it
        grant = spending.reserve(NANO)
        assert grant.wait is not None
        assert spending.due() == clock.now + AGAIN
        clock.now += AGAIN
        keeper.slices = [Slice(0, 0, NANO, NANO // 2, 0, pending=False)]
        await spending.turn()
        assert spending.reserve(NANO).wait is None
        assert spending.spent == NANO // 2
        await spending.close()
        assert keeper.asked[-1] == ("closed",)

    asyncio.run(tell())


def test_money_that_nobody_wants_is_given_back() -> None:
    async def tell() -> None:
        clock, keeper = Clock(), Keeper()
        spending = SharedSpending(keeper, clock=clock)
        await spending.open()
        spending.reserve(1000)
        await spending.turn()
        assert spending.reserve(1000).granted
        keeper.settled(1000, 400)
        clock.now = spending.due()
        await spending.turn()
        while (due := spending.due()) < math.inf:
            clock.now = due
            await spending.turn()
        held, least, wanted, reserved = keeper.asked[-1]
        assert (held, least, wanted, reserved) == (600, 0, 0, 0)
        assert spending.reserved == 0
        await spending.close()

    asyncio.run(tell())


def test_calls_wait_while_the_store_is_away_and_the_user_is_notified_once() -> None:
    async def tell() -> None:
        clock, keeper = Clock(), Keeper()
        notices: list[str] = []
        spending = SharedSpending(keeper, clock=clock, notify=notices.append)
        spending.set_limits("a", 60, None)
        keeper.leases = [RunError("It is away."), RunError("It is away."), RunError("It is away.")]
        assert spending.take("a", 1.0, 1.0) > 0
        spending.slow_down("a")
        waits = []
        for _ in range(3):
            await spending.turn()
            waits.append(spending.due() - clock.now if spending.due() > clock.now else 0.0)
            clock.now += 60
        piece = Piece(1, 0.0, 1.0)
        keeper.leases = [Lease(piece, None, 0.0, 0.0, Limits(60), None, None, "now")]
        await spending.turn()
        assert keeper.asked[-1][1].refused  # which nobody heard before
        assert spending.take("a", 1.0, 1.0) == 0
        assert len(notices) == 1
        assert "It is away" in notices[0]

    asyncio.run(tell())


def test_the_limiter_slows_all_and_keeps_to_its_part_of_the_calls() -> None:
    async def tell() -> None:
        keeper = Keeper()
        spending = SharedSpending(keeper)
        await spending.open()
        limiter = Limiter(concurrency=8, spending=spending, bucket="a")
        keeper.leases = [Lease(None, None, 0.0, 0.0, Limits(calls=9), 2, None, "now")]
        first = await limiter.acquire(1.0)
        limiter.succeeded(first)
        await limiter.acquire(1.0)
        third = asyncio.create_task(limiter.acquire(1.0))
        await turns()
        assert not third.done()
        limiter.slow_down(first, 30.0)
        limiter.at_most(5)
        while not any(len(each) == 2 and each[1].pause for each in keeper.asked if each[0] == "a"):
            await turns()
        *_, (_, ask) = [each for each in keeper.asked if each[0] == "a"]
        assert (ask.refused, ask.pause, ask.said.calls, ask.in_flight) == (True, 30.0, 5, 2)
        limiter.abort()
        with suppress(Exception):
            await third
        await spending.close()
        assert ("left", "a") in keeper.asked

    asyncio.run(tell())


# Processes


def test_processes_keep_to_one_limit_and_one_cap_though_one_is_killed(tmp_path: Path) -> None:
    store = f"{new_store()}&lease=3"
    texts = tmp_path / "texts.csv"
    texts.write_text("id,text\n" + "".join(f"{n},text {n}\n" for n in range(60)))
    with mock(tmp_path, "--latency", "0.3") as url:
        own = ["-j", "m", "--base-url", url, "--price", "1,1"]
        own += ["--rpm", "1500", "--no-cache", "--concurrency", "6"]
        asked = ["-d", str(texts), "-s", "pairwise9", "--feature", "length", "--max-cost", "0.025"]
        asked += ["--max-output-tokens", "16"]
        with planning(tmp_path, store, *asked, *own, ends=False):
            processes = [
                subprocess.Popen(
                    command("worker", "--store", store, "-d", texts, *own, "--exit-when", "done"),
                    cwd=tmp_path,
                    env=environment(tmp_path),
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for _ in range(3)
            ]
            all_begun = "SELECT count(*) / 3 FROM @.workers WHERE calls > 3"
            waited_for(store, all_begun)
            processes[0].kill()
            _, *said = [process.communicate(timeout=60)[1] for process in processes]
        tokens = stats(url)["tokens"]
    assert [process.returncode for process in processes[1:]] == [6, 6]
    assert all("--max-cost 0.025" in text for text in said)
    address = parse(store)
    with connect(address) as connection:

        def rows(statement: str) -> list[tuple[Any, ...]]:
            return connection.execute(in_schema(statement, address.schema)).fetchall()

        ((spent, at_risk),) = rows("SELECT sum(spent), sum(at_risk) FROM @.workers")
        times = [time for (time,) in rows("SELECT at - latency AS sent FROM @.calls ORDER BY sent")]
        ((cost,),) = rows("SELECT round(sum(cost) * 1e9) FROM @.calls")
        assert rows("SELECT count(*) FROM @.workers WHERE calls > 3") == [(3,)]
    assert spent == cost
    assert (tokens["input"] + tokens["output"]) * 1000 <= spent + at_risk <= 25_000_000
    assert spent + at_risk > 25_000_000 - 1_200_000
    # What is sent at once after a wait was leased before; a call's `at` is written down a little later.
    assert most(times, 1.0) <= 25 * (1 + LATE + 0.1)
