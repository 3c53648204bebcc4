"""The store of one run in a PostgreSQL database: what the workers write.

A worker is known by a name to this process and by a row to the database, which says whether it is
over: then it gets a new row when it claims again, and what it has still to say of older jobs counts
for the row that had them. See SCHEMA in schema.py for rows, leases and money.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from judgeq.errors import RunError, StoreAwayError
from judgeq.judge.budget import rounded_up
from judgeq.store import batches, rows
from judgeq.store.postgres import columns, statements
from judgeq.store.postgres.address import Address
from judgeq.store.postgres.heartbeat import PART, Heartbeat
from judgeq.store.postgres.link import Link
from judgeq.store.postgres.people import PostgresPeople
from judgeq.store.postgres.scheduling import PostgresScheduler
from judgeq.store.postgres.sharing import Sharing
from judgeq.types import Attempt, Batch, Job, JobState, Line, Outcome

_NOTHING = (0, 0, 0, 0, 0, 0)


@dataclass(slots=True)
class _Turn:
    """What a transaction changes of workers' rows: by row, as columns.spent."""

    worker: str | None = None
    number: int = 0
    lease: float = 0.0
    changes: dict[int, tuple[int, ...]] = field(default_factory=dict)
    fenced: set[int] = field(default_factory=set)
    ended: list[int] = field(default_factory=list)
    back: tuple[int, int] = (0, 0)
    """As columns.back, of the latest row."""

    def add(self, row: int, changes: Sequence[int]) -> None:
        before = self.changes.get(row, _NOTHING)
        self.changes[row] = tuple(a + b for a, b in zip(before, changes, strict=True))


@dataclass(slots=True)
class _Worker:
    """A worker of this process: its rows in the database, the latest last, and which row has a job. That
    of a `batch` is everybody's: it has no lease, and stays when we leave."""

    lease: float
    rows: list[int] = field(default_factory=list)
    jobs: dict[int, int] = field(default_factory=dict)
    batch: bool = False


class PostgresStore(PostgresScheduler, PostgresPeople):
    """See `Store`. Nothing is opened before it is needed; `name` is the run's for users, and `judges`
    are the numbers of those that claims are for (None: all)."""

    blocking = False

    def __init__(
        self,
        address: Address,
        run: int,
        *,
        name: str = "",
        read_only: bool = False,
        judges: Sequence[int] | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        damage: Sequence[str] = (),
    ) -> None:
        token, heartbeat = secrets.token_hex(4), Heartbeat(address, run)
        super().__init__(Link(address, clock=clock, sleep=sleep), run, token, heartbeat, name)
        self.read_only = read_only
        self.damage = damage
        self.lease = address.lease
        self._judges = None if judges is None else list(judges)
        self._workers: dict[str, _Worker] = {}
        self._turns = 0
        self._failures: list[StoreAwayError] = []  # of the last transactions
        self._turn: _Turn | None = None
        self._row_now: int | None = None
        self._in_doubt: _Turn | None = None
        self.keeper = Sharing(address, run, lambda: self._row_now, self._link.again)

    @property
    def processes(self) -> int:
        """See Store."""
        return self._heartbeat.processes

    def turn(self) -> int:
        """See Store."""
        self._turns += 1
        return self._turns

    @asynccontextmanager
    async def together(self, worker: str | None = None, turn: int = 0) -> AsyncIterator[None]:
        """See Store."""
        try:
            async with self._writing(_Turn(worker, turn)):
                yield
        except StoreAwayError as error:
            self._failures.append(error)
            raise
        self._failures.clear()

    @asynccontextmanager
    async def _writing(self, new: _Turn | None = None) -> AsyncIterator[_Turn]:
        """A transaction that ends by changing the workers' rows; inside another it is a part of it."""
        if self._link.inside and self._turn is not None:
            yield self._turn
            return
        turn = new or _Turn()
        self._in_doubt = turn if turn.number else self._in_doubt
        async with self._link.transaction(statements.BEGIN_WORK):
            self._turn = turn
            try:
                yield turn
                await self._end(turn)
            finally:
                self._turn = None
        self._committed(turn)

    def _committed(self, turn: _Turn) -> None:
        self._in_doubt = None
        for worker in self._workers.values():
            for job in turn.ended:
                worker.jobs.pop(job, None)
        if turn.back != (0, 0):
            self.keeper.settled(*turn.back)

    async def _end(self, turn: _Turn) -> None:
        current = self._workers.get(turn.worker or "")
        ours = current.rows if current and turn.number else []
        if ours:
            turn.add(ours[-1], _NOTHING)
        for row, changes in sorted(turn.changes.items()):
            number = turn.number if row in ours else 0
            await self._link.query(statements.WORKED, number, turn.lease, *changes, row)

    def _known(self, worker: str) -> _Worker:
        return self._workers.setdefault(worker, _Worker(self.lease))

    async def row_of(self, worker: str) -> int:
        """The number of a worker's row, which is made now if there is none yet, or it is over."""
        async with self._writing() as turn:
            row = await self._fenced(turn, worker)
            return await self._register(turn, worker) if row is None else row

    async def _fenced(self, turn: _Turn, worker: str) -> int | None:
        """A worker's row, if it isn't over; and it isn't before this transaction ends."""
        known = self._known(worker)
        if not known.rows:
            return None
        latest = known.rows[-1]
        if latest not in turn.fenced:
            if not await self._link.query(statements.FENCE, latest):
                return None
            turn.fenced.add(latest)
        return latest

    def _name(self, worker: str, number: int) -> str:
        """What the database knows the row of this number of a worker by."""
        return f"{worker} ({self._token}{f'-{number}' if number else ''})"

    async def _register(self, turn: _Turn, worker: str) -> int:
        from psycopg.errors import ForeignKeyViolation

        known = self._known(worker)
        name = self._name(worker, len(known.rows))
        given = (socket.gethostname(), os.getpid(), known.lease)
        try:
            ((row,),) = await self._link.query(statements.REGISTER, self._run, name, *given)
        except ForeignKeyViolation as error:
            raise RunError(f"{self._shown} isn't there any more: it was deleted.") from error
        if known.rows:
            self._heartbeat.let_go(known.rows[-1])
        known.rows.append(row)
        turn.fenced.add(row)
        self._row_now = int(row)
        ((self._heartbeat.processes,),) = await self._link.query(statements.PROCESSES)
        self._heartbeat.hold(row)
        return int(row)

    def claim_for(self, judges: Sequence[int]) -> None:
        """See Store."""
        self._judges = list(judges)

    async def claim(self, worker: str, n: int, lease: float) -> list[Job]:
        """See Store."""
        self._known(worker).lease = lease
        async with self._writing() as turn:
            row = await self.row_of(worker)
            turn.lease = lease
            turn.add(row, _NOTHING)
            given = {"run": self._run, "worker": row, "n": n, "judges": self._judges}
            taken = await self._link.query_named(statements.CLAIM, given)
        rounds, items = await self._rounds_of([job[0] for job in taken]), await self._n()
        with self._reading():
            jobs = [rows.job(job, round, items) for job, round in zip(taken, rounds, strict=True)]
        self._workers[worker].jobs.update((job.match.id, row) for job in jobs)
        return jobs

    async def begin(self, worker: str, attempts: Sequence[Attempt]) -> Collection[int]:
        """See Store."""
        if not attempts:
            return ()
        added, arrays = columns.attempts(attempts)
        known = self._known(worker)
        begun: set[int] = set()
        async with self._writing() as turn:
            row = await self._fenced(turn, worker)
            if row is not None:
                begun = {
                    job
                    for (job,) in await self._link.query(statements.BEGIN, *arrays, self._run, row)
                }
                risk = sum(added[job][1] for job in begun)
                turn.lease = known.lease
                turn.add(row, (0, 0, 0, 0, risk, -risk))
        return added.keys() - begun

    async def hand_over(self, worker: str, batch: Batch, lines: Sequence[Line]) -> Collection[int]:
        """See Store."""
        wanted = [Attempt(line.job.match.id, line.bound) for line in lines]
        added, arrays = columns.attempts(wanted) if wanted else ({}, [])
        async with self._writing() as turn:
            row = await self._fenced(turn, worker)
            if row is None or not lines:
                return added.keys()
            made = await self._link.query(statements.REGISTER_BATCH, self._run, batch.name)
            if not made:
                raise RunError(f"{self._shown}: there is a batch {batch.name!r} already.")
            ((number,),) = made
            taken = await self._link.query(statements.HAND_OVER, *arrays, number, self._run, row)
            ours = {job for (job,) in taken}
            gone = added.keys() - ours
            if not ours:
                await self._link.query("DELETE FROM @.workers WHERE worker = %s", number)
                return gone
            _, *kept = batches.row(batches.taken(batch, lines, gone))
            sent = batches.packed(lines, gone)
            await self._link.query(statements.INSERT_BATCH, self._run, number, *kept, sent)
            risk = sum(added[job][1] for job in ours)
            await self._link.query(statements.HANDED, risk, row)
            turn.lease = self._known(worker).lease
            turn.add(row, (0, 0, 0, 0, 0, -risk))
            turn.add(number, (0, 0, 0, 0, risk, 0))
            turn.ended += ours
            if row == self._row_now:
                reserved = sum(rounded_up(a.bound) for a in wanted if a.job in ours)
                turn.back = (turn.back[0] + reserved, turn.back[1] + reserved - risk)
        return gone

    async def note_batch(self, batch: Batch) -> None:
        """See Store."""
        name, *known = batches.row(batch)
        if await self._row(statements.NOTE_BATCH, *known, self._run, name) is None:
            raise RunError(f"{self._shown} has no batch {name!r}.")

    async def _find(self, worker: str) -> bool:
        """Whether that is a batch, whoever made it; its row is known then."""
        found = await self._link.query(statements.BATCH, self._run, worker)
        if found:
            known = self._known(worker)
            known.rows, known.batch = [row for (row,) in found], True
        return bool(found)

    async def settle(self, worker: str, outcomes: Sequence[Outcome]) -> None:
        """See Store."""
        if not outcomes:
            return
        known = self._known(worker)
        async with self._writing() as turn:
            if not known.rows and not await self._find(worker):
                await self._register(turn, worker)
            latest = known.rows[-1]
            await self._settle(turn, outcomes, lambda job: known.jobs.get(job, latest))
            turn.ended += [o.job for o in outcomes if o.state is not JobState.RUNNING]

    async def _settle(
        self, turn: _Turn, outcomes: Sequence[Outcome], row_of: Callable[[int], int]
    ) -> None:
        for wave in columns.waves(outcomes):
            by = [row_of(outcome.job) for outcome in wave]
            try:
                given = columns.settled(self._run, wave, by)
            except (AttributeError, TypeError, ValueError) as error:
                raise RunError(f"an outcome can't be kept: {error}.") from error
            await self._link.query(statements.SETTLE, *given)
            for row in set(by):
                mine = [o for o, whose in zip(wave, by, strict=True) if whose == row]
                turn.add(row, columns.spent(mine))
                if row == self._row_now:
                    reserved, free = columns.back(mine)
                    turn.back = (turn.back[0] + reserved, turn.back[1] + free)

    async def renew(self, worker: str, lease: float) -> None:
        """See Store."""
        known = self._workers.get(worker)
        if known is not None:
            await self._link.query(statements.RENEW, lease, known.rows)

    async def reap(self) -> int:
        """See Store. Where the database was away, live workers are given time to renew their leases."""
        grace = 2 * self.lease / PART
        if self._link.back is not None and time.monotonic() - self._link.back < grace:
            return 0
        return int((await self._row(statements.REAP, self._run, grace, self._run))[0])

    async def recover(self, worker: str, turn: int, jobs: Collection[int]) -> set[int] | None:
        """See Store."""
        known = self._known(worker)
        if self._failures:
            await self._link.hold_back(len(self._failures), self._failures[-1])

        async def look() -> set[int] | None:
            async with self._link.transaction():
                found = None
                if known.rows:
                    found = await self._link.query(statements.TURN, known.rows[-1])
                if not found or found[0][0] < turn:
                    return None
                listed = columns.array(jobs)
                if not known.batch:
                    row = known.rows[-1]
                    await self._link.query(statements.GIVE_BACK, self._run, row, listed)
                ours = await self._link.query(statements.STILL_OURS, self._run, known.rows, listed)
                return {job for (job,) in ours}

        doubtful, self._in_doubt = self._in_doubt, None
        ours = await self._link.again(look)
        if ours is not None and doubtful is not None and doubtful.number == turn:
            self._committed(doubtful)
        return ours

    def check(self) -> None:
        """See Store. A database has no place that could change."""

    async def close(self) -> None:
        """See Store. The jobs that this process still has go back into the queue at once."""
        self._heartbeat.stop()
        workers = [worker for worker in self._workers.values() if not worker.batch]
        ours = [row for worker in workers for row in worker.rows]
        try:
            with suppress(StoreAwayError):
                if ours:
                    await self._link.query(statements.LEAVE, ours, self._run)
                await self._end_lead()
        finally:
            await self.keeper.close()
            await self._link.close()
