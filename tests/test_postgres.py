"""What only a store that many processes share must do; the rest is in test_store.py and
test_store_batches.py."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from judgeq.engine.interrupts import Stop
from judgeq.engine.queue import Queue
from judgeq.errors import LedError, RunError
from judgeq.judge.budget import Slices
from judgeq.store.link import Address, connect, parse
from judgeq.store.protocol import Cap
from judgeq.store.shared import PART, Heartbeat, PostgresStore
from judgeq.types import Attempt, Batch, Counts, Line, Outcome, Verdict
from judgeq.ui.show.status import crew as sections
from tests.chaos import Cutter, Database
from tests.fakes import Clock, call
from tests.postgres import new_run, server, sql, unix_socket
from tests.test_sections import printed
from tests.test_store import DONE, FAILED, LEASE, PENDING, RUNNING, N, begun, most, pairs


def answer(job: int, *, attempt: int = 1, cost: float | None = 0.25) -> Outcome:
    return Outcome(job, DONE, Verdict((job % N, (job + 1) % N)), (call(attempt, cost=cost),))


class Shared:
    """A run in a store, and a clock that is ahead of the server's."""

    def __init__(self, store: str = "") -> None:
        self.address, self.run = new_run(store)
        self.clock = Clock(time.time() + 86_400)

    @asynccontextmanager
    async def opened(
        self, address: Address | None = None, **how: Any
    ) -> AsyncIterator[PostgresStore]:
        """It, by its own address or another."""

        async def sleep(seconds: float) -> None:
            await asyncio.sleep(min(seconds, 0.02))

        how = {"name": "named", "clock": self.clock, "sleep": sleep} | how
        store = PostgresStore(address or self.address, self.run, **how)
        try:
            yield store
        finally:
            await store.close()

    def sql(self, statement: str, *values: object) -> list[Any]:
        return sql(self.address, statement, *values)


@pytest.fixture
def at() -> Shared:
    return Shared()


async def test_a_worker_that_was_found_dead_begins_nothing_and_starts_anew(at: Shared) -> None:
    async with at.opened() as one, at.opened() as other:
        await begun(one, 3)
        assert len(await one.claim("a", 2, LEASE)) == 2
        assert await one.begin("a", [Attempt(0, 0.5)]) == set()
        at.clock.now += LEASE + 1
        assert await other.reap() == 2
        assert [job.match.id for job in await other.claim("b", 1, LEASE)] == [0]
        assert await one.begin("a", [Attempt(0, 0.5), Attempt(1, 0.5)]) == {0, 1}
        assert (await one.totals()).at_risk == 0.5  # of the attempt before
        assert [job.match.id for job in await one.claim("a", 9, LEASE)] == [1, 2]
        assert await one.begin("a", [Attempt(1, 0.5)]) == set()
        await one.settle("a", [answer(0)])  # late, and the first
        await other.settle("b", [answer(0, attempt=2)])
        states = [(worker.over, worker.running, worker.calls) for worker in await one.workers()]
        assert states == [(True, 0, 0), (False, 0, 1), (False, 2, 1)]
        assert await one.counts() == Counts(running=2, done=1)


async def test_the_dead_are_found_also_while_all_others_are_busy(at: Shared) -> None:
    """Else what a dead worker holds of the cap is what all others wait for."""
    short = at.address._replace(lease=1.0)
    async with at.opened(short, clock=None) as dead, at.opened(short, clock=None) as alive:
        await begun(alive, 2)
        await dead.claim("a", 1, 1.0)
        await alive.claim("b", 1, 1.0)
        dead._heartbeat.stop()
        while not at.sql("SELECT worker FROM @.workers WHERE over"):
            pass  # the loop is as busy as can be
        assert at.sql("SELECT id FROM @.jobs WHERE state = 'pending'") == [(0,)]


def test_who_was_cut_off_gives_others_the_time_to_renew_their_leases(at: Shared) -> None:
    heart = Heartbeat(PostgresStore(at.address, at.run), at.clock)
    assert heart.is_steady
    for seconds, steady in (
        (heart.grace, True),
        (1.5 * heart.grace, True),  # a try that failed
        (3 * heart.grace, False),
        (heart.grace / 2, False),
        (heart.grace / 2, True),
    ):
        heart.renewed()
        at.clock.now += seconds
        heart.renewed()
        assert heart.is_steady is steady, seconds


async def test_nobody_is_found_dead_just_after_the_database_was_started(at: Shared) -> None:
    at.clock.now = at.sql("SELECT extract(epoch FROM pg_postmaster_start_time())::float8")[0][0]
    at.clock.now += at.address.lease / PART - 1
    async with at.opened() as dead, at.opened() as alive:
        await begun(alive, 3)
        await dead.claim("a", 2, -1.0)
        assert await alive.reap() == 0
        at.clock.now += 2
        assert await alive.reap() == 2


async def test_what_others_have_not_begun_is_taken_by_who_has_nothing_to_do(at: Shared) -> None:
    async with at.opened() as slow, at.opened() as idle:
        await begun(slow, 4)
        await slow.claim("slow", 4, LEASE)
        await slow.begin("slow", [Attempt(0, 0.5, 1), Attempt(1, 0.5, 1)])
        await slow.settle("slow", [Outcome(1, RUNNING, None, (call(1, "timeout"),))])
        assert await slow.take_unbegun() == 0  # its own
        assert await idle.take_unbegun() == 2
        assert [job.match.id for job in await idle.claim("idle", 9, LEASE)] == [2, 3]
        assert await slow.begin("slow", [Attempt(2, 0.5, 1)]) == {2}
        assert await slow.begin("slow", [Attempt(1, 0.5, 2)]) == set()
        assert await slow.counts() == Counts(running=4)


async def test_a_worker_in_a_transaction_is_not_found_dead_nor_waited_for(
    at: Shared,
) -> None:
    async with at.opened() as store, at.opened() as other:
        await begun(store, 3)
        await store.claim("a", 2, LEASE)
        at.clock.now += LEASE + 1
        async with store.together():
            assert await store.begin("a", [Attempt(0, 0.5)]) == set()
            assert await asyncio.wait_for(other.reap(), 10) == 0
        assert await other.reap() == 0  # it was alive, and its lease is renewed
        # Who is paused there is cut off by the database before it can block others for long.
        shown = at.sql("SELECT current_setting('idle_in_transaction_session_timeout')")
        assert shown == [("0",)]
        async with store.together():
            ((patience,),) = await store._read(
                "SELECT current_setting('idle_in_transaction_session_timeout')"
            )
        assert patience == "1min"


async def test_jobs_of_a_process_that_ends_are_free_at_once(at: Shared) -> None:
    async with at.opened() as store:
        async with at.opened() as leaving:
            await begun(leaving, 3)
            await leaving.claim("a", 2, LEASE)
        assert await store.counts() == Counts(pending=3)
        (worker,) = await store.workers()
        assert worker.over
        assert worker.name.startswith("a (")
        assert await store.lead("another", 60) == 2  # nor does it lead any longer


async def test_one_process_leads_until_its_time_is_over(at: Shared) -> None:
    async with at.opened() as one, at.opened() as other:
        epoch = await begun(one, 1)
        with pytest.raises(LedError, match="is led by scheduler"):
            await other.lead("another", 60)
        at.clock.now += 61
        assert await other.lead("another", 60) == epoch + 1


async def test_who_works_on_a_run_and_what_they_share(at: Shared) -> None:
    async with at.opened() as store, at.opened() as hostile:
        await begun(store, 6)
        await store.claim("a", 2, LEASE)
        await store.begin("a", [Attempt(0, 0.5), Attempt(1, 0.5)])
        await store.settle("a", [answer(0)])
        await hostile.claim("\x1b]0;owned\x07b", 1, 10 * LEASE)
        at.sql("UPDATE @.runs SET cap = 9000000000")
        at.clock.now += 2 * LEASE
        crew = await store.crew()
        assert [worker.doing for worker in crew.workers] == ["silent", "working"]
        assert crew.cap == Cap(9.0, 0.25, 0.5, 0.0)
        shown = " ".join(printed(*sections(crew)).split())
        assert "led by scheduler workers 2;" in shown
        assert "cap $0.25 of $9.00 spent, $0.50 more at risk" in shown
        assert "\x1b" not in shown


async def test_money_moves_with_calls(at: Shared) -> None:
    money = "SELECT spent, at_risk, free FROM @.workers ORDER BY worker"
    async with at.opened() as store:
        await begun(store, 4)
        await store.claim("a", 4, LEASE)
        await store.begin("a", [Attempt(0, 0.5)])
        await store.settle("a", [answer(0)])
        assert at.sql(money) == [(250_000_000, 0, 0)]  # without a cap nothing is free or not
        at.sql("UPDATE @.runs SET cap = 9000000000")
        at.sql("UPDATE @.workers SET free = 1500000000")
        await store.begin("a", [Attempt(1, 0.5), Attempt(2, 0.5)])
        assert at.sql(money) == [(250_000_000, 1_000_000_000, 500_000_000)]
        lost = call(1, "timeout", None)
        await store.settle("a", [answer(1), Outcome(2, FAILED, None, (lost,))])
        assert at.sql(money) == [(500_000_000, 500_000_000, 750_000_000)]
        await store.begin("a", [Attempt(3, 0.5)])
        at.clock.now += LEASE + 1
        await store.reap()
        await store.settle("a", [answer(3)])  # nothing is free for one that is over
        assert at.sql(money) == [(750_000_000, 500_000_000, 250_000_000)]
        assert (await store.totals()).at_risk == 0.5


async def judged(
    store: PostgresStore, jobs: int, workers: int, at: Callable[[int], object]
) -> Counter[int]:
    """Workers empty the queue; how often each job was asked. `at` learns how many were."""
    asked: Counter[int] = Counter()

    async def work(queue: Queue) -> None:
        while (job := await queue.get()) is not None:
            number = job.match.id
            await queue.begin(Attempt(number, 0.5, job.attempts + 1))
            asked[number] += 1
            at(asked.total())
            await asyncio.sleep(0)
            queue.settle(answer(number, attempt=job.attempts + 1))

    async with asyncio.timeout(60), Queue(store, "w", Stop()) as queue:
        await asyncio.gather(*(work(queue) for _ in range(workers)))
    return asked


async def test_a_commit_whose_answer_is_lost_is_not_done_twice(at: Shared) -> None:
    socket = unix_socket()
    with Cutter(lambda: socket).running() as cutter:
        async with at.opened(parse(cutter.store(at.address.schema))) as store:
            epoch = await begun(store, 200)
            asked = await judged(store, 200, 8, lambda n: cutter.arm() if n % 25 == 20 else None)
            assert set(asked.values()) == {1}
            totals = await store.totals()
            assert (totals.calls, totals.cost, totals.unknown) == (200, 50.0, 0)
            assert await store.counts() == Counts(done=200)
            assert cutter.cuts == 8  # each second before the database has it, the others after
            assert at.sql("SELECT spent, at_risk FROM @.workers") == [(50_000_000_000, 0)]
            # Nor is a round planned twice.
            for round in (2, 3):
                cutter.arm()
                await store.plan_round(round, epoch, most(), pairs(3))
            assert cutter.cuts == 10
            assert (await store.counts()).pending == 6
            await store.plan_round(3, epoch, most(), pairs(3))
            assert (await store.counts()).pending == 6
            with pytest.raises(RunError, match="round 5 can't follow round 3"):
                await store.plan_round(5, epoch, most(), pairs(3))


@pytest.mark.parametrize("answer_is_lost", [False, True])
async def test_a_first_connection_that_is_cut_as_it_opens_is_made_again(
    at: Shared, answer_is_lost: bool
) -> None:
    async with at.opened() as store:
        await begun(store, 3)
    socket = unix_socket()
    with Cutter(lambda: socket, lambda *seen: seen[:2] == (1, 1)).running() as cutter:
        cutter.cuts = int(answer_is_lost)
        cutter.arm()
        async with at.opened(parse(cutter.store(at.address.schema))) as store:
            assert await store.counts() == Counts(pending=3)
        assert cutter.cuts == 1 + answer_is_lost


async def test_a_killed_database_loses_nothing_and_nothing_is_asked_again() -> None:
    killing: list[asyncio.Future[None]] = []

    def kill_and_start() -> None:
        database.kill()
        database.start()

    def at(count: int) -> None:
        if count == 100:
            killing.append(asyncio.ensure_future(asyncio.to_thread(kill_and_start)))

    with closing(Database(Path(tempfile.mkdtemp(prefix="judgeq-postgres-")))) as database:
        async with Shared(database.address).opened() as store:
            await begun(store, 1000)
            asked = await judged(store, 1000, 16, at)
            await asyncio.gather(*killing)
            assert len(killing) == 1
            assert set(asked.values()) == {1}
            totals = await store.totals()
            assert (totals.calls, totals.unknown, totals.in_flight) == (1000, 0, 0)
            assert await store.counts() == Counts(done=1000)
            assert len(await store.verdicts()) == 1000


async def test_a_wrong_address_is_reported_at_once(tmp_path: Path) -> None:
    address = parse(f"postgresql://u:secret@/db?host={tmp_path}")
    with pytest.raises(RunError, match="can't be used") as error:
        await PostgresStore(address, 1).counts()
    assert "secret" not in str(error.value)


async def test_texts_that_postgresql_can_not_hold(at: Shared) -> None:
    async with at.opened() as store:
        await begun(store, 1)
        await store.claim("a", 1, LEASE)
        await store.begin("a", [Attempt(0)])
        odd = call(1, "unusable")._replace(reply='a\0b"{},\\ NULL')
        await store.settle("a", [Outcome(0, PENDING, None, (odd,), "x\0y")])
        assert at.sql("SELECT reply FROM @.calls") == [('a\ufffdb"{},\\ NULL',)]
        (job,) = await store.claim("a", 1, LEASE)
        assert job.error == "x\ufffdy"
        half = Outcome(0, PENDING, None, (odd._replace(attempt=2),), "half a character: \ud83d.")
        await store.settle("a", [half])
        (job,) = await store.claim("a", 1, LEASE)
        assert job.error == "half a character: ?."


async def test_a_role_that_reads_backslashes_as_escapes_is_refused(at: Shared) -> None:
    joint = "&" if "?" in server() else "?"
    odd = parse(f"{server()}{joint}options=-c%20standard_conforming_strings%3Doff")
    with pytest.raises(RunError, match="SET standard_conforming_strings = on"):
        connect(odd)


HALF = 500_000_000  # nano-dollars


async def test_a_batch_is_no_worker_and_outlives_all(at: Shared) -> None:
    async with at.opened() as store:
        async with at.opened() as first:
            await begun(first, 3)
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
        at.clock.now += 1e9
        assert await store.reap() == 0
        crew = await store.crew()
        assert [worker.label for worker in crew.workers] == ["w"]
        assert crew.cap.at_risk == 1.0
        assert await store.counts() == Counts(pending=1, running=2)
        async with at.opened() as other:
            for _ in range(2):  # as after a commit whose answer was lost: its other job stays
                other._doubtful = True
                await other.settle("b", [answer(0)])
            assert [batch.left for batch in await other.batches()] == [1]
        assert await store.counts() == Counts(pending=1, running=1, done=1)


async def test_what_was_reserved_before_one_was_found_dead_is_not_spent_afterwards(
    at: Shared,
) -> None:
    """A call that was let go under another number of its worker made room for one that nobody paid."""
    async with at.opened() as store, at.opened() as other:
        await begun(store, 6)
        at.sql("UPDATE @.runs SET cap = %s", 2 * HALF)
        (lost,) = await store.claim("w", 1, LEASE)
        slices = Slices(store.keeper, clock=at.clock)
        await slices.ask()

        async def reserve() -> None:
            while slices.reserve(HALF) != 0:
                at.clock.now += 1.0
                await slices.ask()

        await reserve()
        at.sql("UPDATE @.workers SET over = true")
        at.sql("UPDATE @.jobs SET state = 'pending'")
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
        ((committed,),) = at.sql("SELECT sum(spent + at_risk) FROM @.workers")
        assert committed == HALF
        assert slices.reserve(HALF) != 0  # it has learned
