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
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from judgeq.errors import RunError, StoreAwayError
from judgeq.judge.budget import Keeper
from judgeq.store import rows
from judgeq.store import statements as sql
from judgeq.store.protocol import Database
from judgeq.store.reader import SqlReader
from judgeq.store.rows import Update, Work
from judgeq.store.statements import NEVER
from judgeq.types import Attempt, Job, JobState, Outcome

LEASE = 60.0
"""Seconds for which a worker, or the scheduler, is believed to live without a sign of it."""

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="SqlWorkers")
_EVERY_NUMBER = 2**31 - 1


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
class _Turn:
    """What a transaction changes."""

    work: defaultdict[int, Work] = field(default_factory=lambda: defaultdict(Work))
    """By the row of the worker."""
    free: dict[int, int | None] = field(default_factory=dict)
    """The rows whose lock is held, and what they have of the cap (None: there is no cap)."""
    claimed: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    """Jobs that this process has, or has no longer, once it is committed."""
    back: tuple[int, int] = (0, 0)
    """What had been reserved for calls of this process, and what of it may be spent again."""
    overdrawn: bool = False
    """Whether an attempt was refused for want of money."""


class SqlWorkers(SqlReader):
    """What workers write."""

    keeper: Keeper | None = None
    """What the processes that work on the run share; None where only one does."""
    processes = 1
    """How many processes work on the runs of the store now, this one included."""
    lease = LEASE
    """Seconds for which jobs, and the run, are held without a sign of life; of a run in PostgreSQL those
    of its address."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._token = secrets.token_hex(4)  # tells this process from others of its name
        self._rows: dict[str, int] = {}  # of workers and batches
        self._batches: set[int] = (
            set()
        )  # which of them: these are everybody's, and stay when we leave
        self._row_now: int | None = None  # of this process
        self._jobs_now: set[int] = set()  # that it has claimed
        self._lease = self.lease
        self._judges: list[int] | None = None
        self._again = False
        self._turn: _Turn | None = None
        self._doubtful = False  # whether a commit's answer may have been lost

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
            return nullcontext(self._turn)
        return self._whole()

    @asynccontextmanager
    async def _whole(self) -> AsyncIterator[_Turn]:
        turn = _Turn()
        try:
            async with self._db.transaction():
                self._turn = turn
                try:
                    if self._doubtful and self._row_now is not None:
                        # Perhaps that commit claimed jobs of which we don't know.
                        await self._put_back(self._row_now, "NOT IN", self._jobs_now)
                    yield turn
                    for row, work in sorted(turn.work.items()):
                        values = {"lease": self._lease, "never": NEVER, "worker": row}
                        await self._db.change(sql.WORKED, **values, **work._asdict())
                finally:
                    self._turn = None
        except StoreAwayError:
            self._doubtful = True
            raise
        self._doubtful = False
        self._jobs_now = (self._jobs_now | turn.claimed) - turn.ended
        if self.keeper is not None:
            if turn.back != (0, 0):
                self.keeper.settled(*turn.back)
            if turn.overdrawn:
                self.keeper.recount()

    async def _put_back(self, row: int, which: str, jobs: Collection[int]) -> None:
        numbers = ", ".join(map(str, jobs)) or f"{2**62}"  # no job's
        await self._db.change(sql.PUT_BACK.format(f"{which} ({numbers})"), worker=row)

    async def _row(self, turn: _Turn, worker: str) -> int:
        row = await self._live(turn, worker)
        return await self._register(turn, worker) if row is None else row

    async def _live(self, turn: _Turn, worker: str) -> int | None:
        """A worker's row, if it isn't over; and it isn't before this transaction ends."""
        row = self._rows.get(worker)
        if row is not None and row not in turn.free:
            there = await self._one(sql.FENCE, worker=row)
            if there is None:
                return None
            (turn.free[row],) = there
        return row

    async def _register(self, turn: _Turn, worker: str) -> int:
        # A token tells it from others of its name.
        name, host, pid = f"{worker} ({secrets.token_hex(4)})", socket.gethostname(), os.getpid()
        who = {"name": name, "host": host, "pid": pid, "lease": self._lease, "again": self._again}
        await self._db.change(sql.REGISTER, **who)
        (row,) = await self._one(sql.WORKER, name=name)
        await self._registered(row, self._rows.get(worker))
        self._rows[worker] = self._row_now = row
        turn.free[row] = None
        return int(row)

    async def _registered(self, row: int, before: int | None) -> None:
        """A worker of this process has got a row, in place of one that is over."""

    def claim_for(self, judges: Sequence[int]) -> None:
        """Have claims be of jobs for these judges alone, from now on."""
        self._judges = list(judges)

    def claim_again(self) -> None:
        """Have claims be of questions that are asked again (`plan_again`), from now on."""
        self._again = True

    async def claim(self, worker: str, n: int, lease: float) -> list[Job]:
        """Take up to n pending jobs, lowest numbers first, for `lease` seconds."""
        self._lease = lease
        async with self._writing() as turn:
            row = await self._row(turn, worker)
            turn.work[row] += Work()  # a sign of life
            jobs = await self._jobs(await self._db.claim(row, n, self._judges, again=self._again))
            turn.claimed |= {job.match.id for job in jobs}
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
                lost -= await self._begin(turn, row, row, attempts)
        return lost

    async def _begin(
        self, turn: _Turn, row: int, heir: int, attempts: Sequence[Attempt]
    ) -> set[int]:
        """Begin attempts on jobs that a worker's row has, which the row `heir` has then; the jobs."""
        given = [
            (a.job, _EVERY_NUMBER if a.number is None else a.number, *rows.nano(a.bound), row, heir)
            for a in attempts
        ]
        refused = await self._beyond(turn, row, heir, given)
        given = [one for one in given if one[0] not in refused]
        changed = await self._db.each(sql.BEGIN, given)
        begun = [one for one, done in zip(given, changed, strict=True) if done]
        risk = sum(at_risk for _, _, at_risk, *_ in begun)
        turn.work[row] += Work(free=-risk)
        turn.work[heir] += Work(at_risk=risk)
        jobs = {job for job, *_ in begun}
        # Perhaps the others were begun by a commit whose answer was lost.
        return jobs if all(changed) else jobs | await self._begun(heir, given)

    async def _begun(self, row: int, given: Sequence[tuple[int, ...]]) -> set[int]:
        """The jobs of a worker's row whose attempts, by their numbers, were begun before."""
        ours = dict(await self._db.read(sql.STILL_OURS, worker=row))
        return {job for job, number, *_ in given if number <= ours.get(job, -1)}

    async def _beyond(
        self, turn: _Turn, row: int, heir: int, given: Sequence[tuple[int, ...]]
    ) -> set[int]:
        """The jobs whose attempts a worker's row holds no money for, which go back into the queue: the
        process has lost count of what it holds, since it was found dead, say. So the cap is the
        database's to hold, whatever processes believe."""
        free = turn.free.get(row)
        if self.keeper is None or free is None:
            return set()
        if sum(risk for _, _, risk, *_ in given) <= free + turn.work[row].free:
            return set()
        begun = await self._begun(heir, given)
        refused = {job for job, _, risk, *_ in given if risk and job not in begun}
        if refused:
            turn.overdrawn = True
            turn.ended |= refused
            await self._put_back(row, "IN", refused)
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
        async with self._writing() as turn:
            row = self._rows.get(worker)
            if row is None and (row := await self._batch(worker)) is None:
                row = await self._register(turn, worker)
            try:
                told = [(outcome, rows.update(outcome, row)) for outcome in outcomes]
                settled = await self._settle(told)
                calls = [call for outcome, _ in settled for call in rows.calls(outcome, row)]
            except (AttributeError, TypeError, ValueError) as error:
                raise RunError(f"an outcome can't be kept: {error}.") from error
            await self._db.each(sql.INSERT_CALL, calls)
            await self._db.each(sql.INSERT_VERDICT, rows.verdict_rows(o for o, _ in settled))
            for outcome, update in settled:
                turn.work[row] += rows.work(outcome, update.at_risk)
            if self.keeper is not None and row == self._row_now:
                reserved = sum(rows.reserved(outcome) for outcome in outcomes)
                free = sum(rows.work(outcome, update.at_risk).free for outcome, update in told)
                turn.back = turn.back[0] + reserved, turn.back[1] + free
            turn.ended |= {o.job for o in outcomes if o.state is not JobState.RUNNING}

    async def _settle(self, told: list[tuple[Outcome, Update]]) -> list[tuple[Outcome, Update]]:
        """Change the jobs of outcomes; those that are to be written down: as they are, or as late. What
        was settled before is left out."""
        kept = await self._db.each(sql.SETTLE, [update for _, update in told])
        if all(kept):
            return told
        late = [of for (_, of), done in zip(told, kept, strict=True) if not done]
        free = [(of.job, of.attempt, of.open, of.at_risk, of.unbounded) for of in late]
        is_new = iter(await self._db.each(sql.RELEASE, free))
        return [
            (outcome if done else rows.late(outcome), of)
            for (outcome, of), done in zip(told, kept, strict=True)
            if done or next(is_new)
        ]

    async def reap(self) -> int:
        """Put running jobs whose worker gave no sign for as long as its lease back in the queue; how
        many they were. None where one process has all workers."""
        return 0

    async def take_unbegun(self) -> int:
        """Put jobs back in the queue that others claimed and haven't begun: of one who has nothing to
        do. How many they were."""
        return 0

    async def _batch(self, name: str) -> int | None:
        """The row of the batch of this name, whoever made it; None where there is none."""
        found = await self._one(sql.IS_BATCH, name=name, never=NEVER)
        if found is None:
            return None
        (self._rows[name],) = found
        self._batches.add(self._rows[name])
        return self._rows[name]

    def check(self) -> None:
        """Raise RunError where the run's files are no longer in their place: a database has none."""

    async def close(self) -> None:
        """Write everything out and let go of the run."""
        await self._db.close()
