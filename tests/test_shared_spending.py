import asyncio
import math
import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from judgeq.errors import BudgetError, RunError
from judgeq.judge.budget import NANO, Allowance, Budget, Slice, Slices
from judgeq.judge.limiter import SLACK
from judgeq.store.link import connect, in_schema, parse
from judgeq.store.shared import PostgresStore
from tests.cli import start
from tests.fakes import Clock
from tests.mock import mock, stats
from tests.postgres import new_run, new_store, sql
from tests.test_worker_processes import planning, waited_for


class Unheard(PostgresStore):
    """A store whose next answer is lost with the connection, if `lost`: what was asked was done."""

    lost = False

    async def reserve(self, held: int | None, least: int, wanted: int, reserved: int) -> Slice:
        given = await super().reserve(held, least, wanted, reserved)
        if self.lost:
            raise RunError("the connection broke.")
        return given


class Database:
    """A run in a store, of which tests see and change everything."""

    def __init__(self) -> None:
        self.address, self.run = new_run()
        self.opened: list[Unheard] = []
        self.connection = connect(self.address)
        self.connection.execute("SET synchronous_commit = off")

    def rows(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        cursor = self.connection.execute(in_schema(statement, self.address.schema), values)
        return cursor.fetchall() if cursor.description else []

    def worker(self) -> int:
        name = f"worker {random.random()}"
        put = (
            "INSERT INTO @.workers (run, name, until) VALUES (%s, %s, 'infinity') RETURNING worker"
        )
        ((number,),) = self.rows(put, self.run, name)
        return int(number)

    def sharing(self, worker: int | None = None, store: str = "") -> Unheard:
        address = parse(store) if store else self.address
        self.opened.append(Unheard(address, self.run))
        self.opened[-1].worker = worker
        return self.opened[-1]

    async def close(self) -> None:
        while self.opened:
            await self.opened.pop().close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
        self.connection.close()


def most(times: list[float], seconds: float) -> int:
    """The most calls in any so many seconds."""
    first, found = 0, 0
    for last, at in enumerate(times):
        while times[first] <= at - seconds:
            first += 1
        found = max(found, last - first + 1)
    return found


async def test_all_of_a_cap_is_used_and_the_error_says_by_what() -> None:
    async with Database() as database:
        sharings = [database.sharing(database.worker()) for _ in range(3)]
        await sharings[0].set_cap(NANO)
        several = [Slices(sharing) for sharing in sharings]
        paid = 0.0

        async def work(slices: Slices, sharing: PostgresStore) -> None:
            nonlocal paid
            await slices.open()
            budget = Budget(shared=slices)
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
                await slices.close()

        works = [work(*pair) for pair in zip(several, sharings, strict=True)]
        async with asyncio.timeout(30):
            done = await asyncio.gather(*works, return_exceptions=True)
        assert [type(error) for error in done] == [BudgetError] * 3
        assert 0.96 < paid <= 1.0
        assert f"--max-cost 1: ${paid:.6g} is spent, and" in str(done[-1])
        assert database.rows("SELECT sum(free), sum(reserved) FROM @.workers") == [(0, 0)]


async def moved(
    database: Database, sharing: PostgresStore, spent: int, at_risk: int, free: int
) -> None:
    """As a store does in the transaction that begins or settles a call."""
    database.rows(
        "UPDATE @.workers SET spent = spent + %s, at_risk = at_risk + %s, "
        "free = CASE WHEN over THEN free ELSE free + %s END WHERE worker = %s",
        spent, at_risk, free, sharing.worker,
    )  # fmt: skip


class Worker:
    """A process with a cap of its own and slices of the run's; and its calls: reserved, and begun."""

    def __init__(self, database: Database, clock: Callable[[], float], own: int) -> None:
        self.number = database.worker()
        self.sharing = database.sharing(self.number)
        self.slices = Slices(self.sharing, clock=clock)
        self.allowance = Allowance(own / NANO)
        self.budget = Budget(self.allowance, self.slices)
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
            self.do(self.database.close())
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
    @rule(own=st.integers(0, 200))
    def join(self, own: int) -> None:
        worker = Worker(self.database, lambda: self.now, own)
        self.workers.append(worker)
        self.do(worker.slices.ask())

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), amount=st.integers(0, 60), lost=st.booleans())
    def ask(self, which: int, amount: int, lost: bool) -> None:
        worker = self.workers[which % len(self.workers)]
        self.now += 0.5
        wait = worker.budget.reserve_now(amount / NANO)
        if wait == 0:
            worker.granted.append(amount)
        else:
            # Never is right only while no call in flight can give anything back: one of 0 can't.
            own = worker.allowance.exhausted
            flying = [worker] if own else self.workers
            assert wait is not None or not any(sum(each.begun) for each in flying)
        worker.sharing.lost = lost
        self.do(worker.slices.ask())
        worker.sharing.lost = False

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
            worker.budget.release(amount / NANO)

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
        worker.sharing.settled(bound, bound - cost)
        worker.budget.settle(bound / NANO, cost / NANO if known else None)

    @precondition(lambda self: self.workers)
    @rule(which=st.integers(0, 3), answers=st.integers(0, 3))
    def die(self, which: int, answers: int) -> None:
        worker = self.workers.pop(which % len(self.workers))
        self.database.rows("UPDATE @.workers SET over = true WHERE worker = %s", worker.number)
        self.paid += sum(worker.begun)  # for all that anybody knows
        for bound in worker.begun[:answers]:  # which are handed in late
            self.move(worker, bound, -bound, 0)
        assert self.do(worker.sharing.reserve(0, 0, 10, 0)).held is None

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
            of = "SELECT free FROM @.workers WHERE worker = %s"
            ((free,),) = self.database.rows(of, worker.number)
            assert 0 <= worker.slices.free + sum(worker.granted) <= free
            own = worker.allowance
            assert own.cap is not None
            assert own.spent + own.reserved <= own.cap
            assert own.reserved == sum(worker.granted) + sum(worker.begun)


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


async def test_a_cap_is_held_whatever_isolation_is_the_databases_default() -> None:
    async with Database() as database:
        store = f"{new_store().partition('schema=')[0]}schema={database.address.schema}"
        store += "&options=-c%20default_transaction_isolation=repeatable%5C%20read"
        first, second = database.worker(), database.worker()
        database.rows("UPDATE @.runs SET cap = 10")
        sharing = database.sharing(second, store)
        with database.connection.transaction():
            database.rows("SELECT FROM @.runs FOR NO KEY UPDATE")
            asked = asyncio.create_task(sharing.reserve(None, 1, 10, 0))
            waiting = "SELECT pid FROM pg_locks WHERE NOT granted"
            while not (database.rows(waiting) or asked.done()):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            database.rows("UPDATE @.workers SET free = 8 WHERE worker = %s", first)
        assert (await asked).granted == 2


async def test_what_is_left_of_a_slice_is_given_back() -> None:
    async with Database() as database:
        sharing = database.sharing(database.worker())
        await sharing.set_cap(NANO)
        slices = Slices(sharing, clock=Clock())
        await slices.open()
        assert slices.reserve(NANO // 10)
        await slices.ask()
        free = "SELECT free > 0 FROM @.workers"
        assert database.rows(free) == [(True,)]
        await slices.close()
        assert database.rows(free) == [(False,)]


async def test_nobody_gets_more_than_a_share_of_what_is_left_unless_one_call_needs_it() -> None:
    """A worker that asked for most of the cap, after its first tenth of a second, kept all others
    waiting until it was used up."""
    async with Database() as database:
        first, second = (database.sharing(database.worker()) for _ in range(2))
        database.rows("UPDATE @.workers SET until = 9e9")
        database.worker()  # a batch, which spends nothing more
        await first.set_cap(1000)
        assert (await first.reserve(None, 10, 900, 0)).granted == 500
        assert (await second.reserve(None, 10, 900, 0)).granted == 250
        assert (await second.reserve(250, 200, 900, 0)).granted == 200
        assert (await second.reserve(450, 51, 900, 0)).granted == 0
        database.rows("UPDATE @.workers SET over = true, free = 0 WHERE worker = %s", second.worker)
        assert (await first.reserve(500, 10, 900, 0)).granted == 500


async def test_each_process_takes_its_part_of_a_limit_while_others_live() -> None:
    async with Database() as database:
        where = (database.address, database.run)
        stores = [PostgresStore(*where, clock=lambda: 1000.0) for _ in range(2)]
        here = database.rows("SELECT count(*) FROM @.workers WHERE NOT over")
        assert here == [(0,)]
        assert [store.processes for store in stores] == [1, 1]
        await stores[0].claim("one", 0, 60)
        database.rows("UPDATE @.workers SET host = 'another'")
        await stores[1].claim("two", 0, 60)
        assert [store.processes for store in stores] == [1, 2]
        await stores[0].close()
        await stores[1].claim("three", 0, 60)
        assert stores[1].processes == 1
        await stores[1].close()


def test_processes_keep_to_one_cap_and_divide_one_limit_though_one_is_killed(
    tmp_path: Path,
) -> None:
    store = f"{new_store()}&lease=3"
    texts = tmp_path / "texts.csv"
    texts.write_text("id,text\n" + "".join(f"{n},text {n}\n" for n in range(300)))
    gate = threading.Event()
    with mock(tmp_path, "--latency", "0.3", gate=gate) as url:
        own = ["-j", "m", "--base-url", url, "--price", "1,1"]
        own += ["--rpm", "600", "--no-cache", "--concurrency", "6"]
        asked = ["-d", str(texts), "-s", "pairwise1", "--feature", "length", "--max-cost", "0.016"]
        asked += ["--max-output-tokens", "16"]
        with planning(tmp_path, store, *asked, *own, ends=False):
            worker = ("worker", "--store", store, "-d", str(texts), *own, "--exit-when", "done")
            (elsewhere := tmp_path / "elsewhere").mkdir()  # of another user, so to say
            processes = [start(elsewhere, *worker) for _ in range(3)]
            # Before the third asks, two could use up the cap.
            waited_for(store, "SELECT count(DISTINCT worker) / 3 FROM @.jobs WHERE open > 0")
            opened = time.time()
            gate.set()
            waited_for(store, "SELECT count(*) / 3 FROM @.workers WHERE calls > 3")
            processes[0].kill()
            _, *said = [process.communicate(timeout=60)[1] for process in processes]
        tokens = stats(url)["tokens"]
    assert [process.returncode for process in processes[1:]] == [6, 6]
    assert all("--max-cost 0.016" in text for text in said)
    ((spent, at_risk),) = sql(store, "SELECT sum(spent), sum(at_risk) FROM @.workers")
    # From when the last of the three counted them all, until the death of one is known.
    all_sent = sql(store, "SELECT at - latency AS sent FROM @.calls ORDER BY sent")
    times = [sent for (sent,) in all_sent if sent > opened + 1.5]
    ((cost,),) = sql(store, "SELECT round(sum(cost) * 1e9) FROM @.calls")
    assert sql(store, "SELECT count(*) FROM @.workers WHERE calls > 3") == [(3,)]
    assert spent == cost
    assert (tokens["input"] + tokens["output"]) * 1000 <= spent + at_risk <= 16_000_000
    assert spent + at_risk > 16_000_000 * 0.9
    assert len(times) > 30
    assert most(times, 1.0) <= 10 * (1 + SLACK) + 3
