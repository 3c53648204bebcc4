"""What the workers of a run share, in PostgreSQL: its cap, and the limits of the servers they ask.

Each question is one round trip and one transaction of its own, on a connection of its own: a process
that stops in the middle of anything holds no lock.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from judgeq.judge.leases import HORIZON, Ask, Keeper, Lease, Limits, Piece, Slice
from judgeq.judge.limiter import CUT, LEAST, RECOVERY
from judgeq.judge.spending import MARGIN
from judgeq.store.postgres.address import Address, connect_async, in_schema, problem

if TYPE_CHECKING:
    import psycopg

MOST = 2**62
"""Nano-dollars of a cap that are kept: what is more is none that anybody reaches."""
HELD = 15.0
"""Seconds for which what a holder says, and its calls in flight, count without another word of it."""
DEAF = 2.0
"""Seconds after a refusal in which others say nothing new: their calls were sent before it."""
TURN = 2.0
"""Seconds for which a holder may have calls in flight where there are more holders than such calls."""

# Both locks come first, in statements of their own: what is read after them is what others left. Its own
# row may be locked by what the worker is just committing: nobody else waits for that.
LOCK_MONEY = """
SELECT FROM @.workers WHERE worker = %(worker)s FOR NO KEY UPDATE;
SELECT FROM @.runs WHERE run = %(run)s FOR NO KEY UPDATE;
"""
# The worker's own row is set to what it holds by its own account: an answer that was lost with its
# connection gave it nothing.
RESERVE = """
WITH us AS (
    SELECT spent + at_risk AS gone, coalesce(%(held)s - spent - at_risk - handed, 0) AS free
    FROM @.workers WHERE worker = %(worker)s AND NOT over),
others AS (
    SELECT coalesce(sum(spent + at_risk), 0) AS gone,
        coalesce(sum(greatest(free, 0)) FILTER (WHERE NOT over), 0) AS free,
        coalesce(bool_or(free > 0 OR reserved > 0) FILTER (WHERE NOT over), false) AS pending
    FROM @.workers WHERE run = %(run)s AND worker <> %(worker)s),
room AS (
    SELECT us.free, others.pending, cap,
        cap - others.gone - others.free - us.gone - greatest(us.free, 0) AS room
    FROM us, others, @.runs WHERE run = %(run)s),
given AS MATERIALIZED (
    SELECT *, CASE WHEN room >= greatest(%(least)s, 0) THEN least(%(wanted)s, room) ELSE 0 END::bigint
        AS granted FROM room)
UPDATE @.workers w SET free = given.free + granted, reserved = %(reserved)s + granted
FROM given WHERE w.worker = %(worker)s AND NOT w.over
RETURNING granted, w.spent + w.at_risk + w.handed + w.free, pending
"""
TOTALS = """
SELECT coalesce(sum(spent + at_risk), 0)::bigint, coalesce(sum(at_risk), 0)::bigint,
    (SELECT cap FROM @.runs WHERE run = %(run)s)
FROM @.workers WHERE run = %(run)s
"""
CAP = "UPDATE @.runs SET cap = %s WHERE run = %s"

NEW_BUCKET = "INSERT INTO @.buckets (bucket) VALUES (%(bucket)s) ON CONFLICT DO NOTHING;"
# Whatever the default of the database or the role is: what is read after a lock is what others left.
COMMITTED = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;"
# What a server that falls loses of limits is less than a second's.
NOT_FLUSHED = "SET LOCAL synchronous_commit = off;"
LOCK_BUCKET = "SELECT FROM @.buckets WHERE bucket = %(bucket)s FOR UPDATE;"
# A limit is a line of time, along which calls are strung at the rate that is allowed: what is `ahead`
# of now is leased already, and at most HORIZON seconds of it are leased ahead. A part of what is wanted
# of both lines, the same part, is given. (Merged into one expression, they would take 5 times as long to
# plan.)
LEASE = """
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS now),
others AS MATERIALIZED (
    SELECT s.* FROM @.shares s, clock
    WHERE s.bucket = %(bucket)s AND s.holder <> %(holder)s AND s.until > clock.now),
said AS (
    SELECT least(min(requests), %(said_requests)s::float8) AS requests,
        least(min(tokens), %(said_tokens)s::float8) AS tokens,
        least(min(most), %(said_calls)s::int) AS calls
    FROM others),
bucket AS MATERIALIZED (
    SELECT now, said.*, b.slowed, requests_level, tokens_level,
        greatest(0, extract(epoch FROM now - at))::float8 AS since,
        greatest(b.paused_until, now + %(pause)s * interval '1 second') AS paused_until,
        %(refused)s AND coalesce(b.slowed < now - %(deaf)s * interval '1 second', true) AS slows,
        least(1, b.pace + greatest(0, extract(epoch FROM now - at)) * %(recovery)s)::float8 AS pace
    FROM @.buckets b, clock, said WHERE b.bucket = %(bucket)s),
paced AS MATERIALIZED (
    SELECT *, CASE WHEN slows THEN greatest(%(slowest)s, pace * %(cut)s) ELSE pace END AS paced,
        greatest(0, extract(epoch FROM paused_until - now))::float8 AS paused
    FROM bucket),
rates AS MATERIALIZED (
    SELECT *, requests / 60 * %(margin)s * paced AS r, tokens / 60 * %(margin)s * paced AS t
    FROM paced),
ahead AS MATERIALIZED (
    SELECT *, coalesce(greatest(0, requests_level - since * r), 0) AS r_ahead,
        coalesce(greatest(0, tokens_level - since * t), 0) AS t_ahead
    FROM rates),
part AS MATERIALIZED (
    SELECT *, least(1, (r * %(horizon)s - r_ahead) / greatest(%(wanted)s, 1),
        (t * %(horizon)s - t_ahead) / greatest(%(tokens)s, 1)) AS part
    FROM ahead),
given AS MATERIALIZED (
    SELECT *,
        CASE WHEN r IS NULL OR part <= 0 OR paused > 0 OR %(wanted)s = 0 THEN 0
            ELSE greatest(1, ceil(part * %(wanted)s - 1e-6)) END::float8 AS r_given,
        CASE WHEN t IS NULL OR part <= 0 OR paused > 0 OR %(wanted)s = 0 THEN 0
            ELSE greatest(%(least)s, part * %(tokens)s) END::float8 AS t_given,
        greatest(0, r_ahead / r - %(horizon)s, t_ahead / t - %(horizon)s)::float8 AS wait
    FROM part)
"""
# The asker's part of the calls in flight: those of others, and what they could fairly claim, left out.
SHARE = """,
everyone AS (
    SELECT holder, calls, wanted FROM others WHERE greatest(calls, wanted) > 0
    UNION ALL SELECT %(holder)s, %(in_flight)s, %(calls)s),
ranked AS (
    SELECT *, row_number() OVER (ORDER BY holder) - 1 AS rank, count(*) OVER () AS n FROM everyone),
fair AS (
    SELECT e.holder, e.calls, e.wanted, given.calls AS most, given.calls / n + ((rank
        + floor(extract(epoch FROM now) / %(turn)s)::bigint * (given.calls %% n)) %% n
        < given.calls %% n)::int AS fair
    FROM ranked e, given WHERE given.calls IS NOT NULL),
share AS (
    SELECT greatest(0, least(%(calls)s,
        most - coalesce(sum(calls) FILTER (WHERE holder <> %(holder)s), 0),
        greatest(max(fair) FILTER (WHERE holder = %(holder)s), most - coalesce(
            sum(greatest(calls, least(wanted, fair))) FILTER (WHERE holder <> %(holder)s), 0))
        ))::int AS share FROM fair GROUP BY most)
"""
NO_SHARE = ", share AS (SELECT NULL::int AS share)"
KEPT = """,
kept AS (
    INSERT INTO @.shares AS s (bucket, holder, requests, tokens, most, calls, wanted, until)
    SELECT %(bucket)s, %(holder)s, %(said_requests)s, %(said_tokens)s, %(said_calls)s,
        greatest(%(in_flight)s, (SELECT share FROM share)), %(calls)s,
        now + %(held)s * interval '1 second' FROM clock
    ON CONFLICT (bucket, holder) DO UPDATE SET requests = excluded.requests,
        tokens = excluded.tokens, most = excluded.most, calls = excluded.calls,
        wanted = excluded.wanted, until = excluded.until),
gone AS (
    DELETE FROM @.shares s USING clock WHERE s.bucket = %(bucket)s AND s.holder <> %(holder)s
        AND s.until < clock.now - interval '1 minute')
"""
LEASED = """
UPDATE @.buckets b SET requests = given.requests, tokens = given.tokens, calls = given.calls,
    requests_level = r_ahead + r_given, tokens_level = t_ahead + t_given, pace = paced,
    slowed = CASE WHEN slows THEN now ELSE given.slowed END,
    paused_until = CASE WHEN paused > 0 THEN given.paused_until END, at = now
FROM given WHERE b.bucket = %(bucket)s
RETURNING r_given, r_ahead / r, r, t_given, t_ahead / t, t, wait, paused, b.requests, b.tokens,
    b.calls, (SELECT share FROM share), (SELECT cap FROM @.runs WHERE run = %(run)s), b.at::text
"""
CONSTANTS = {
    "deaf": DEAF, "turn": TURN, "held": HELD, "horizon": HORIZON, "margin": MARGIN,
    "cut": CUT, "slowest": LEAST, "recovery": RECOVERY,
}  # fmt: skip
# What is given back is the end of its line only where nobody has asked since.
LEAVE = """
UPDATE @.buckets SET requests_level = greatest(0, requests_level - %(unused_requests)s),
    tokens_level = greatest(0, tokens_level - %(unused_tokens)s)
WHERE bucket = %(bucket)s AND at = %(last)s::timestamptz;
DELETE FROM @.shares WHERE bucket = %(bucket)s AND holder = %(holder)s;
"""


Work = Callable[[], Awaitable[Any]]
Again = Callable[[Work], Awaitable[Any]]
"""What tries something again, and returns what that returns at last; see Link.again."""


async def _once(work: Work) -> Any:
    return await work()


class Sharing(Keeper):
    """See Keeper: that of one process, for one run. `worker` gives the number of its row in workers;
    `again` tries what it is given again while the database is away."""

    def __init__(
        self,
        address: Address,
        run: int,
        worker: Callable[[], int | None],
        again: Again = _once,
    ) -> None:
        self._address = address
        self._run = run
        self._worker = worker
        self._again = again
        self._holder = uuid.uuid4().hex
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._known: set[str] = set()
        self._crowded: set[str] = set()  # where calls in flight are limited
        self._kept: dict[str, tuple[Limits, float]] = {}  # what was said last, and when
        self._busy = asyncio.Lock()
        self.settled: Callable[[int, int], None] = lambda reserved, freed: None
        """What the store calls as Keeper.on_settled says."""

    @property
    def worker(self) -> int | None:
        """See Keeper."""
        return self._worker()

    def on_settled(self, settled: Callable[[int, int], None]) -> None:
        """See Keeper."""
        self.settled = settled

    async def set_cap(self, cap: int | None) -> None:
        """See Keeper."""
        given = None if cap is None else min(cap, MOST), self._run
        await self._again(lambda: self._do(CAP, given))

    async def reserve(self, held: int | None, least: int, wanted: int, reserved: int) -> Slice:
        """See Keeper."""
        given = {
            "run": self._run,
            "worker": self.worker,
            "held": held,
            "least": least,
            "wanted": max(least, wanted),
            "reserved": reserved,
        }
        # A run can't begin without the first answer; for others its task asks again.
        again = self._again if held is None else _once
        rows = await again(lambda: self._do(f"{LOCK_MONEY}{RESERVE};{TOTALS}", given))
        (spent, at_risk, cap), answer = rows[-1][0], rows[-2]
        if not answer:
            return Slice(0, None, cap, spent, at_risk, pending=True)
        granted, holds, pending = answer[0]
        return Slice(granted, holds, cap, spent, at_risk, pending)

    async def lease(self, bucket: str, ask: Ask) -> Lease:
        """See Keeper."""
        given = {
            **CONSTANTS,
            **self._of(bucket),
            "said_requests": ask.said.requests,
            "said_tokens": ask.said.tokens,
            "said_calls": ask.said.calls,
            "wanted": ask.requests,
            "tokens": ask.tokens,
            "least": ask.least,
            "in_flight": ask.in_flight,
            "calls": ask.calls,
            "refused": ask.refused,
            "pause": ask.pause,
        }
        shares = ask.said.calls is not None or bucket in self._crowded
        now, kept = time.monotonic(), self._kept.get(bucket)
        keeps = shares or kept is None or kept[0] != ask.said or now - kept[1] > HELD / 3
        statement = LOCK_BUCKET + LEASE + (SHARE if shares else NO_SHARE)
        statement = NOT_FLUSHED + statement + (KEPT if keeps else "") + LEASED
        rows: list[list[Any]] = []
        if bucket in self._known:
            rows = await self._do(statement, given)
        if not rows or not rows[-1]:  # a new one, or its row was removed meanwhile
            rows = await self._do(NEW_BUCKET + statement, given)
            self._known.add(bucket)
        if keeps:
            self._kept[bucket] = ask.said, now
        *pieces, wait, paused, requests, tokens, calls, share, cap, at = rows[-1][0]
        if calls is None:
            self._crowded.discard(bucket)
        elif (
            share is None
        ):  # another process knows of a limit: no more calls until our part is known
            self._crowded.add(bucket)
            share = ask.in_flight
        of_requests, of_tokens = (
            None if rate is None else Piece(amount, start, rate)
            for amount, start, rate in (pieces[:3], pieces[3:])
        )
        limits = Limits(requests, tokens, calls)
        return Lease(of_requests, of_tokens, wait or 0.0, paused or 0.0, limits, share, cap, at)

    async def leave(self, bucket: str, ask: Ask) -> None:
        """See Keeper."""
        requests, tokens = ask.unused
        self._kept.pop(bucket, None)
        unused = {"unused_requests": requests, "unused_tokens": tokens, "last": ask.last}
        await self._do(LOCK_BUCKET + LEAVE, {**self._of(bucket), **unused})

    async def close(self) -> None:
        """See Keeper."""
        await self._drop()

    def _of(self, bucket: str) -> dict[str, Any]:
        return {"bucket": bucket, "holder": self._holder, "run": self._run}

    async def _do(
        self, statements: str, given: Mapping[str, Any] | tuple[Any, ...]
    ) -> list[list[Any]]:
        """The rows of each statement. They are sent together, and are one transaction."""
        import psycopg

        async with self._busy:
            try:
                if self._connection is None or self._connection.closed:
                    self._connection = await connect_async(self._address)
                cursor = psycopg.AsyncClientCursor(self._connection)
                await cursor.execute(in_schema(COMMITTED + statements, self._address.schema), given)
                rows = [await cursor.fetchall() if cursor.description else []]
                while cursor.nextset():
                    rows.append(await cursor.fetchall() if cursor.description else [])
                return rows
            except BaseException as error:
                # Cancelled in the middle, too: what comes next on it is the answer to another question.
                await self._drop()
                if isinstance(error, psycopg.Error):
                    raise problem(self._address, error) from error
                raise

    async def _drop(self) -> None:
        import psycopg

        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, OSError):
                await connection.close()
