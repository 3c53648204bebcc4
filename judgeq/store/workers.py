"""The workers of a run, in the tables of a database: what they claim, begin and settle.

A worker is known by a name to this process and by a row to the database, which says whether it is
over: then it gets a new row when it claims again, and what it has still to say of older jobs counts
for the row that had them. See TABLES in schema.py for rows, leases and money.

Where a commit's answer is lost, all of it is sent again: an attempt or an outcome that is known by its
number is left as it is, and jobs that were claimed without our knowing go back into the queue.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from judgeq.errors import RunError, StoreAwayError
from judgeq.judge.slices import Keeper
from judgeq.store import rows
from judgeq.store import statements as sql
from judgeq.store.protocol import Database
from judgeq.store.reader import SqlReader
from judgeq.store.rows import Work
from judgeq.store.statements import NEVER
from judgeq.types import (
    Attempt,
    Job,
    JobState,
    Outcome,
)

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="SqlWorkers")
_EVERY_NUMBER = 2**31 - 1
Told = tuple[Outcome, int, tuple[Any, ...]]
"""An outcome, the row of its worker, and what it says about its job (rows.update)."""


def whole(
    method: Callable[Concatenate[S, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """A method of a store that is one transaction, done again while the database is away: it may be done
    twice."""

    async def again(store: S, /, *args: P.args, **values: P.kwargs) -> T:
        async def once() -> T:
            async with store._db.transaction():
                return await method(store, *args, **values)

        return await store._db.again(once)

    return again


@dataclass(slots=True)
class _Worker:
    """A worker of this process: its rows in the database, the latest last, and which row has a job. That
    of a `batch` is everybody's: it has no lease, and stays when we leave."""

    lease: float
    rows: list[int] = field(default_factory=list)
    jobs: dict[int, int] = field(default_factory=dict)
    batch: bool = False


@dataclass(slots=True)
class _Turn:
    """What a transaction changes, by the row of the worker; of which the lock of some is held. Once it
    is committed, `taken` and `ended` are jobs that workers of this process have, or have no longer, and
    `back` is as rows.back, of the latest row. Under a cap a locked row has so much `free` of it;
    `overdrawn`: an attempt was refused for want of it."""

    lease: float = 0.0
    work: dict[int, Work] = field(default_factory=dict)
    locked: set[int] = field(default_factory=set)
    free: dict[int, int | None] = field(default_factory=dict)
    overdrawn: bool = False
    taken: list[tuple[_Worker, int, list[int]]] = field(default_factory=list)
    ended: list[int] = field(default_factory=list)
    back: tuple[int, int] = (0, 0)

    async def __aenter__(self) -> _Turn:
        return self

    async def __aexit__(self, *_: object) -> None:
        """What is done inside is a part of it."""

    def add(self, row: int, work: Work) -> None:
        """Add to what a worker's row changes by."""
        before = self.work.get(row)
        self.work[row] = work if before is None else before.plus(work)


class SqlWorkers(SqlReader):
    """What workers write."""

    keeper: Keeper | None = None
    """What the processes that work on the run share; None where only one does."""
    processes = 1
    """How many processes work on the runs of the store now, this one included."""
    lease = 600.0
    """Seconds for which jobs, and the run, are held without a sign of life; of a run in PostgreSQL those
    of its address (LEASE in postgres/address.py)."""

    def __init__(self, database: Database, damage: Sequence[str] = ()) -> None:
        super().__init__(database, damage)
        self._token = secrets.token_hex(4)  # tells this process from others of its name
        self._workers: dict[str, _Worker] = {}
        self._judges: list[int] | None = None
        self._turn: _Turn | None = None
        self._doubtful = False  # whether a commit's answer may have been lost
        self._row_now: int | None = None

    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        """What `work` returns, done again while the store can't be reached or can't commit just now: it
        may be done twice. Raises StoreAwayError when that takes too long (see `hurry`)."""
        return await self._db.again(work)

    def together(self) -> AbstractAsyncContextManager[Any]:
        """What the task does inside is one transaction: a commit costs more than what it commits.

        Raises RunError, before anything is done, where the run's files are no longer in their place:
        what is settled by itself is kept all the same, if they are still anywhere. Raises
        StoreAwayError where the store can't be reached or can't commit just now. It may have been
        committed all the same: numbered attempts and outcomes are then sent again, which changes
        nothing, and what was claimed goes back into the queue.
        """
        self.check()
        return self._writing()

    def _writing(self) -> AbstractAsyncContextManager[_Turn]:
        """A transaction that ends by changing the workers' rows; inside another it is a part of it."""
        if self._turn is not None and self._db.inside:
            return self._turn
        return self._whole()

    @asynccontextmanager
    async def _whole(self) -> AsyncIterator[_Turn]:
        turn = _Turn()
        try:
            async with self._db.transaction():
                self._turn = turn
                try:
                    if self._doubtful:
                        await self._put_back()
                    yield turn
                    for row, work in sorted(turn.work.items()):
                        values = {"lease": turn.lease, "never": NEVER, "worker": row}
                        await self._db.change(sql.WORKED, **values, **work._asdict())
                finally:
                    self._turn = None
        except StoreAwayError:
            self._doubtful = True
            raise
        self._doubtful = False
        for worker, row, jobs in turn.taken:
            worker.jobs.update(dict.fromkeys(jobs, row))
        for worker in self._workers.values():
            for job in turn.ended:
                worker.jobs.pop(job, None)
        if self.keeper is not None:
            if turn.back != (0, 0):
                self.keeper.settled(*turn.back)
            if turn.overdrawn:
                self.keeper.recount()

    async def _put_back(self) -> None:
        """Put the jobs back in the queue that we don't know of: a commit claimed them whose answer was
        lost."""
        for worker in self._workers.values():
            if worker.rows and not worker.batch:
                known = ", ".join(map(str, worker.jobs)) or "-1"
                unknown = sql.PUT_BACK.format(f"NOT IN ({known})")
                await self._db.change(unknown, worker=worker.rows[-1])

    def _worker(self, worker: str) -> _Worker:
        return self._workers.setdefault(worker, _Worker(self.lease))

    async def row_of(self, worker: str) -> int:
        """The number of a worker's row, which is made now if there is none yet, or it is over."""
        async with self._writing() as turn:
            return await self._row(turn, worker)

    async def _row(self, turn: _Turn, worker: str) -> int:
        row = await self._live(turn, worker)
        return await self._register(turn, worker) if row is None else row

    async def _live(self, turn: _Turn, worker: str) -> int | None:
        """A worker's row, if it isn't over; and it isn't before this transaction ends."""
        known = self._worker(worker)
        if not known.rows:
            return None
        latest = known.rows[-1]
        if latest not in turn.locked:
            there = await self._one(sql.FENCE, worker=latest)
            if there is None:
                return None
            turn.locked.add(latest)
            turn.free[latest] = there[0]
        return latest

    async def _register(self, turn: _Turn, worker: str) -> int:
        known = self._worker(worker)
        number = f"-{len(known.rows)}" if known.rows else ""
        name = f"{worker} ({self._token}{number})"
        host, pid = socket.gethostname(), os.getpid()
        await self._db.change(sql.REGISTER, name=name, host=host, pid=pid, lease=known.lease)
        ((row,),) = await self._db.read(sql.WORKER, name=name)
        await self._registered(row, known.rows[-1] if known.rows else None)
        known.rows.append(row)
        turn.locked.add(row)
        self._row_now = int(row)
        return int(row)

    async def _registered(self, row: int, before: int | None) -> None:
        """A worker of this process has got a row, in place of one that is over."""

    def claim_for(self, judges: Sequence[int]) -> None:
        """Have claims be of jobs for these judges alone, from now on."""
        self._judges = list(judges)

    async def claim(self, worker: str, n: int, lease: float) -> list[Job]:
        """Take up to n pending jobs, lowest numbers first, for `lease` seconds."""
        known = self._worker(worker)
        known.lease = lease
        async with self._writing() as turn:
            row = await self._row(turn, worker)
            turn.lease = lease
            turn.add(row, Work())
            jobs = await self._jobs(await self._db.claim(row, n, self._judges))
            turn.taken.append((known, row, [job.match.id for job in jobs]))
        return jobs

    async def begin(self, worker: str, attempts: Sequence[Attempt]) -> Collection[int]:
        """Commit one more attempt of each of these claimed jobs: the intent to pay, and the most it
        can cost, before anything is sent. An attempt whose number was begun isn't begun again. Nothing
        is committed for jobs that are returned: they are no longer this worker's, or cost more than it
        holds of the cap, and went back into the queue."""
        lost = {attempt.job for attempt in attempts}
        async with self._writing() as turn:
            row = await self._live(turn, worker)
            if row is not None and attempts:
                lost -= await self._begin(turn, worker, row, row, attempts)
        return lost

    async def _begin(
        self, turn: _Turn, worker: str, row: int, heir: int, attempts: Sequence[Attempt]
    ) -> set[int]:
        """Begin attempts on jobs that a worker's row has, which the row `heir` has then; the jobs."""
        given = []
        for attempt in attempts:
            number = _EVERY_NUMBER if attempt.number is None else attempt.number
            given.append((attempt.job, number, *rows.nano(attempt.bound), row, heir))
        refused = await self._beyond(turn, row, heir, given)
        given = [one for one in given if one[0] not in refused]
        changed = await self._db.each(sql.BEGIN, given)
        begun = {job for (job, *_), done in zip(given, changed, strict=True) if done}
        risk = sum(one[2] for one, done in zip(given, changed, strict=True) if done)
        if not all(changed):  # perhaps by a commit whose answer was lost
            ours = dict(await self._db.read(sql.STILL_OURS, worker=heir))
            begun |= {job for job, number, *_ in given if number <= ours.get(job, -1)}
        turn.lease = self._worker(worker).lease
        turn.add(row, Work(free=-risk) if heir != row else Work(at_risk=risk, free=-risk))
        if heir != row:
            turn.add(heir, Work(at_risk=risk))
        return begun

    async def _beyond(
        self, turn: _Turn, row: int, heir: int, given: Sequence[tuple[int, ...]]
    ) -> set[int]:
        """The jobs whose attempts a worker's row holds no money for, which go back into the queue: the
        process has lost count of what it holds, since it was found dead, say. So the cap is the
        database's to hold, whatever processes believe."""
        free = turn.free.get(row)
        if self.keeper is None or free is None:
            return set()
        left, refused = free + turn.work.get(row, Work()).free, set[int]()
        if sum(risk for _, _, risk, *_ in given) <= left:
            return refused
        begun = dict(await self._db.read(sql.STILL_OURS, worker=heir))
        for job, number, risk, *_ in given:
            if number <= begun.get(job, -1):
                continue
            if risk > max(0, left):
                refused.add(job)
            else:
                left -= risk
        if refused:
            turn.overdrawn = True
            turn.ended += refused
            these = sql.PUT_BACK.format(f"IN ({', '.join(map(str, refused))})")
            await self._db.change(these, worker=row)
        return refused

    async def settle(self, worker: str, outcomes: Sequence[Outcome]) -> None:
        """In one transaction: the calls, verdicts and new states of these jobs.

        An answer to a job that is still open is kept, whoever holds it now; one to a job that was
        settled meanwhile goes into the ledger as a paid "duplicate" and changes nothing else.
        Without a verdict, only the worker that has the job changes its state. A RUNNING outcome
        leaves it as it is and only adds its calls. An outcome without an error leaves the last one
        standing. One whose attempt is in the ledger was settled before, and is left out.
        """
        if not outcomes:
            return
        known = self._worker(worker)
        async with self._writing() as turn:
            if not known.rows and not await self._find(worker):
                await self._register(turn, worker)
            latest = known.rows[-1]
            of = [known.jobs.get(outcome.job, latest) for outcome in outcomes]
            try:
                updates = [rows.update(*one) for one in zip(outcomes, of, strict=True)]
                kept = await self._db.each(sql.SETTLE, updates)
                told = list(zip(outcomes, of, updates, strict=True))
                if not all(kept):
                    told = await self._late(told, kept)
                calls = [row for outcome, by, _ in told for row in rows.calls(outcome, by)]
            except (AttributeError, TypeError, ValueError) as error:
                raise RunError(f"an outcome can't be kept: {error}.") from error
            if calls:
                await self._db.each(sql.INSERT_CALL, calls)
            verdicts = rows.verdicts_of(outcome for outcome, _, _ in told)
            if verdicts:
                await self._db.each(sql.INSERT_VERDICT, verdicts)
            for row in set(of):
                ours = [(outcome, update) for outcome, by, update in told if by == row]
                turn.add(row, rows.work(ours))
            if self.keeper is not None:
                mine = [o for o, by in zip(outcomes, of, strict=True) if by == self._row_now]
                turn.back = added(turn.back, rows.back(mine))
            turn.ended += [o.job for o in outcomes if o.state is not JobState.RUNNING]

    async def _late(self, told: list[Told], kept: list[bool]) -> list[Told]:
        """Outcomes with workers and updates, of which those that weren't kept are late; without what
        was settled before."""
        late = [update for (_, _, update), done in zip(told, kept, strict=True) if not done]
        is_new = iter(await self._db.each(sql.RELEASE, [(*one[:2], *one[6:9]) for one in late]))
        return [
            one if done else (rows.late(one[0]), *one[1:])
            for one, done in zip(told, kept, strict=True)
            if done or next(is_new)
        ]

    async def renew(self, worker: str, lease: float) -> None:
        """Hold this worker's running jobs for `lease` seconds from now."""
        known = self._workers.get(worker)
        async with self._writing():
            for row in known.rows if known is not None else ():
                await self._db.change(sql.RENEW, worker=row, lease=lease)

    @whole
    async def reap(self) -> int:
        """Put running jobs whose lease is over back in the queue; how many they were."""
        return await self._db.end_dead()

    @whole
    async def take_unbegun(self) -> int:
        """Put jobs back in the queue that others claimed and haven't begun: of one who has nothing to
        do. How many they were."""
        ours = [row for worker in self._workers.values() for row in worker.rows]
        return await self._db.put_back_unbegun(ours)

    async def _find(self, worker: str) -> bool:
        """Whether that is a batch, whoever made it; its row is known then."""
        found = await self._db.read(sql.IS_BATCH, name=worker, never=NEVER)
        if found:
            known = self._worker(worker)
            known.rows, known.batch = [row for (row,) in found], True
        return bool(found)

    def check(self) -> None:
        """Raise RunError where the run's files are no longer in their place: a database has none."""

    async def close(self) -> None:
        """Write everything out and let go of the run."""
        await self._db.close()


def added(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    """The sums of both."""
    return one[0] + other[0], one[1] + other[1]
