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
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from judgeq.errors import RunError
from judgeq.judge.budget import Keeper, rounded_up
from judgeq.store import rows
from judgeq.store.reader import SqlReader
from judgeq.store.rows import NEVER, Update
from judgeq.store.schema import CALL_TYPES, Bulk, inserts
from judgeq.types import Attempt, Job, JobState, Outcome

LEASE = 60.0
"""Seconds for which a worker, or the scheduler, is believed to live without a sign of it."""

T = TypeVar("T")
P = ParamSpec("P")
S = TypeVar("S", bound="SqlWorkers")
_EVERY_NUMBER = 2**31 - 1
# Whoever holds this row's lock is not found dead. What it has of the cap, if there is one.
FENCE = """
SELECT CASE WHEN (SELECT cap FROM @.runs WHERE run = @run) IS NULL THEN NULL ELSE free END
FROM @.workers WHERE worker = :worker AND NOT over @lock
"""
# An attempt that was begun already, by a commit whose answer was lost, isn't begun again.
BEGIN = Bulk(
    "id bigint, number int, at_risk bigint, unbounded int, holder bigint, heir bigint",
    "UPDATE @.jobs SET attempts = attempts + 1, open = open + 1, at_risk = at_risk + :at_risk, "
    "unbounded = unbounded + :unbounded, worker = :heir "
    "@rows WHERE run = @run AND id = :id AND state = 'running' AND worker = :holder "
    "AND attempts < :number",
)
_UNKNOWN = (
    "(SELECT count(*) FROM @.calls WHERE run = @run AND job = :id AND attempt = :attempt "
    "AND outcome <> 'cached' AND answered_by IS NULL) = 0"
)
# An outcome changes its job while that is open; else its calls are paid duplicates. One whose last
# attempt is known was settled before; a final one has then closed its job.
SETTLE = Bulk(
    "id bigint, attempt int, worker bigint, final boolean, new_state text, unusable int, open int, "
    "at_risk bigint, unbounded int, error text",
    "UPDATE @.jobs SET state = CASE "
    "WHEN :final OR (worker = :worker AND :new_state <> 'running') THEN :new_state ELSE state END, "
    "unusable = unusable + :unusable, open = open - :open, "
    "at_risk = at_risk - :at_risk, unbounded = unbounded - :unbounded, "
    "error = coalesce(:error, error) "
    "@rows WHERE run = @run AND id = :id AND state IN ('pending', 'running') "
    f"AND (:final OR {_UNKNOWN})",
)
_RELEASE = Bulk(
    "id bigint, attempt int, open int, at_risk bigint, unbounded int",
    "UPDATE @.jobs SET open = open - :open, at_risk = at_risk - :at_risk, "
    f"unbounded = unbounded - :unbounded @rows WHERE run = @run AND id = :id AND {_UNKNOWN}",
)
_CALLS = inserts("calls", f"{CALL_TYPES}, worker bigint")
VERDICTS = inserts(
    "verdicts", "job bigint, ranking bytea, ties bytea, score float8, answered_by int"
)
WORKED = """
UPDATE @.workers SET seen = @now,
    until = CASE WHEN over OR until > @now + :lease THEN until ELSE @now + :lease END,
    done = done + :done, calls = calls + :calls, errors = errors + :errors, tokens = tokens + :tokens,
    hits = hits + :hits, saved = saved + :saved, spent = spent + :spent, at_risk = at_risk + :at_risk,
    free = CASE WHEN over OR until = :never OR (SELECT cap FROM @.runs WHERE run = @run) IS NULL
                THEN free ELSE free + :free END
WHERE worker = :worker
"""
_IDLE = dict.fromkeys(
    ("done", "calls", "errors", "tokens", "hits", "saved", "spent", "at_risk", "free"), 0
)


def whole(
    method: Callable[Concatenate[S, P], Awaitable[T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """A method of a store that is one transaction, done again while the database is away: it may be done
    twice."""

    async def again(store: S, /, *args: P.args, **values: P.kwargs) -> T:
        async def once() -> T:
            async with store._transaction():
                return await method(store, *args, **values)

        return await store.again(once)

    return again


@dataclass(slots=True)
class _Turn:
    """What a transaction changes."""

    claimed: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    """Jobs that this process has from now on, and has no more."""
    work: defaultdict[int, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By the row of the worker."""
    free: dict[int, int | None] = field(default_factory=dict)
    """The rows whose lock is held, and what they have of the cap (None: there is no cap)."""
    reserved: int = 0
    freed: int = 0
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
    worker: int | None = None
    """The row of this process, once it has one."""
    judges: Sequence[int] | None = None
    """The judges whose jobs are claimed; None: those of all."""
    asks_again = False
    """Whether claims are of questions that are asked again (`plan_round`)."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, int] = {}  # of its workers
        self._jobs_now: set[int] = set()  # that this process has claimed
        self._lease = self.lease
        self._turn: _Turn | None = None
        self._doubtful = False  # whether a commit's answer may have been lost

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

    @asynccontextmanager
    async def _writing(self) -> AsyncIterator[_Turn]:
        """A transaction that ends by changing the workers' rows; inside another it is a part of it."""
        if self._turn is not None and self._inside:
            yield self._turn
            return
        turn = _Turn()
        try:
            async with self._transaction():
                self._turn = turn
                try:
                    if self._doubtful:
                        await self._look_again()
                    yield turn
                    for row, work in sorted(turn.work.items()):
                        values = {"worker": row, "lease": self._lease, "never": NEVER}
                        await self._change(WORKED, **values, **_IDLE | work)
                finally:
                    self._turn = None
        except BaseException:
            self._doubtful = True
            raise
        self._doubtful = False
        self._jobs_now = (self._jobs_now | turn.claimed) - turn.ended
        if self.keeper is not None:
            if turn.reserved or turn.freed:
                self.keeper.settled(turn.reserved, turn.freed)
            if turn.overdrawn:
                self.keeper.recount()

    async def _look_again(self) -> None:
        """The last transaction may have been committed or not: jobs that it claimed, of which we don't
        know, go back; and a row that it made for a worker may not be there."""
        if self.worker is not None:
            await self._put_back(self.worker, "NOT IN", self._jobs_now)
        there = {
            row for (row,) in await self._read("SELECT worker FROM @.workers WHERE run = @run")
        }
        self._rows = {name: row for name, row in self._rows.items() if row in there}

    async def _put_back(self, row: int, which: str, jobs: Collection[int]) -> None:
        numbers = ", ".join(map(str, jobs)) or f"{2**62}"  # no job's
        back = f"""
        UPDATE @.jobs SET state = 'pending' WHERE run = @run AND state = 'running'
        AND worker = :worker AND id {which} ({numbers})
        """
        await self._change(back, worker=row)

    async def _insert(self, table: str, conflict: str = "", **values: object) -> int:
        """Add a row of the run to a table; how many were added or changed."""
        row = f"(run, {', '.join(values)}) VALUES (@run, :{', :'.join(values)})"
        return await self._change(f"INSERT INTO @.{table} {row} {conflict}", **values)

    async def _number(self, name: str) -> int | None:
        """The row of the worker, or batch, of this name; None where there is none."""
        found = await self._one(
            "SELECT worker FROM @.workers WHERE run = @run AND name = :name", name=name
        )
        return found and int(found[0])

    async def _live(self, turn: _Turn, worker: str) -> int | None:
        """A worker's row, if it isn't over; and it isn't before this transaction ends."""
        row = self._rows.get(worker)
        if row is not None and row not in turn.free:
            there = await self._one(FENCE, worker=row)
            if there is None:
                return None
            (turn.free[row],) = there
        return row

    async def _register(self, worker: str) -> int:
        """Give a worker of this process a row, in place of one that is over."""
        # A token tells it from others of its name.
        name, host, pid = f"{worker} ({secrets.token_hex(4)})", socket.gethostname(), os.getpid()
        register = """
        INSERT INTO @.workers (run, name, host, pid, since, seen, until, again)
        VALUES (@run, :name, :host, :pid, @now, @now, @now + :lease, :again)
        """
        values = {"name": name, "host": host, "pid": pid, "lease": self._lease}
        await self._change(register, **values, again=self.asks_again)
        self._rows[worker] = row = await self._number(name) or 0
        self.worker = row
        return row

    async def claim(self, worker: str, n: int, lease: float) -> list[Job]:
        """Take up to n pending jobs, lowest numbers first, for `lease` seconds."""
        self._lease = lease
        which = "id < 0" if self.asks_again else "id >= 0"
        if self.judges is not None:
            which += f" AND judge IN ({', '.join(map(str, self.judges))})"
        async with self._writing() as turn:
            row = await self._live(turn, worker) or await self._register(worker)
            turn.work[row].update()  # a sign of life
            jobs = await self._jobs(await self._claim(row, n, which))
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
        given: list[tuple[int, ...]] = [
            (job, number or _EVERY_NUMBER, rounded_up(bound), int(bound is None), row, heir)
            for job, bound, number in attempts
        ]
        free = turn.free.get(row)
        wanted = sum(risk for _, _, risk, *_ in given)
        if self.keeper is not None and free is not None and wanted > free + turn.work[row]["free"]:
            given = await self._affordable(turn, row, heir, given)
        changed = await self._each(BEGIN, given)
        begun = [one for one, done in zip(given, changed, strict=True) if done]
        risk = sum(at_risk for _, _, at_risk, *_ in begun)
        turn.work[row].update(free=-risk)
        turn.work[heir].update(at_risk=risk)
        jobs = {job for job, *_ in begun}
        # Perhaps the others were begun by a commit whose answer was lost.
        return jobs if all(changed) else jobs | await self._begun(heir, given)

    async def _begun(self, row: int, given: Sequence[tuple[int, ...]]) -> set[int]:
        """The jobs of a worker's row whose attempts, by their numbers, were begun before."""
        held = """
        SELECT id, attempts FROM @.jobs WHERE run = @run AND state = 'running' AND worker = :worker
        """
        ours = dict(await self._read(held, worker=row))
        return {job for job, number, *_ in given if number <= ours.get(job, -1)}

    async def _affordable(
        self, turn: _Turn, row: int, heir: int, given: Sequence[tuple[int, ...]]
    ) -> list[tuple[int, ...]]:
        """Those attempts that cost nothing or were begun before: the process has lost count of what it
        holds, since it was found dead, say. The jobs of the others go back into the queue, so that the
        cap is the database's to hold, whatever processes believe."""
        begun = await self._begun(heir, given)
        refused = {job for job, _, risk, *_ in given if risk and job not in begun}
        if refused:
            turn.overdrawn = True
            turn.ended |= refused
            await self._put_back(row, "IN", refused)
        return [one for one in given if one[0] not in refused]

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
            # A batch is known by its name alone, whoever made it.
            row = self._rows.get(worker) or await self._number(worker)
            row = row or await self._register(worker)
            try:
                told = [(outcome, rows.update(outcome, row)) for outcome in outcomes]
                settled = await self._settle(told)
                calls = [call for outcome, _ in settled for call in rows.calls(outcome, row)]
            except (AttributeError, TypeError, ValueError) as error:
                raise RunError(f"an outcome can't be kept: {error}.") from error
            await self._each(_CALLS, calls)
            await self._each(VERDICTS, rows.verdict_rows(o for o, _ in settled))
            turn.work[row].update(rows.work(settled))
            if self.keeper is not None and row == self.worker:
                turn.reserved += sum(rows.reserved(outcome) for outcome in outcomes)
                turn.freed += rows.work(told)["free"]
            turn.ended |= {o.job for o in outcomes if o.state is not JobState.RUNNING}

    async def _settle(self, told: list[tuple[Outcome, Update]]) -> list[tuple[Outcome, Update]]:
        """Change the jobs of outcomes; those that are to be written down: as they are, or as late. What
        was settled before is left out."""
        kept = await self._each(SETTLE, [update for _, update in told])
        if all(kept):
            return told
        late = [
            (of.job, of.attempt, of.open, of.at_risk, of.unbounded)
            for (_, of), done in zip(told, kept, strict=True)
            if not done
        ]
        is_new = iter(await self._each(_RELEASE, late))
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

    def check(self) -> None:
        """Raise RunError where the run's files are no longer in their place: a database has none."""
