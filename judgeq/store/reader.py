"""The reading side of a store: items, rounds, verdicts, batches, people, and what the ledger adds up to.

A store may be anybody's: what can't have been written by us raises RunError.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from judgeq.errors import RunError
from judgeq.events import Event
from judgeq.person import Check, Handed, Person
from judgeq.store import rows
from judgeq.store.protocol import (
    Answered,
    Database,
    Items,
    PromptCount,
    ReplyProblem,
    Spent,
)
from judgeq.store.schema import CALL, JOB, SPAN
from judgeq.types import (
    Batch,
    Bools,
    Call,
    Counts,
    Failure,
    Job,
    JobState,
    Line,
    Match,
    Matches,
    Totals,
    Usage,
    Verdicts,
)

T = TypeVar("T")
_AT_ONCE = 10_000
"""So many numbers stand in one statement."""
# What the ledger adds up to, as Totals has it. A stranger's may say that money came in; a cap must not
# grow by it. Dollars are added up as decimals where the database has them: their sum doesn't depend on
# the order of the rows. A running job's last attempt may still be waited for.
_TOTALS = f"""
SELECT calls, retries, input, cached, output, reasoning, cost, unpriced, in_flight, unknown,
    CASE WHEN unbounded = 0 THEN at_risk / CAST(1e9 AS float8) END, hits, saved, unusable, uncounted
FROM (
    SELECT count(CASE WHEN outcome <> 'cached' THEN 1 END) AS calls,
        count(CASE WHEN outcome NOT IN ('ok', 'unusable', 'duplicate', 'cached', 'skipped', 'undone')
              THEN 1 END) AS retries,
        CAST(coalesce(sum(CASE WHEN outcome <> 'cached' THEN input END), 0) AS bigint) AS input,
        CAST(coalesce(sum(CASE WHEN outcome <> 'cached' THEN cached END), 0) AS bigint) AS cached,
        CAST(coalesce(sum(CASE WHEN outcome <> 'cached' THEN output END), 0) AS bigint) AS output,
        CAST(coalesce(sum(CASE WHEN outcome <> 'cached' THEN reasoning END), 0) AS bigint) AS reasoning,
        CAST(coalesce(sum(CASE WHEN outcome <> 'cached' AND cost > 0 THEN CAST(cost AS numeric) END), 0)
             AS float8) AS cost,
        count(CASE WHEN outcome <> 'cached' AND cost IS NULL THEN 1 END) AS unpriced,
        count(CASE WHEN outcome = 'cached' THEN 1 END) AS hits,
        CAST(coalesce(sum(CASE WHEN outcome = 'cached' THEN CAST(cost AS numeric) END), 0) AS float8)
            AS saved,
        count(CASE WHEN outcome = 'unusable' THEN 1 END) AS unusable,
        count(CASE WHEN outcome IN ('ok', 'unusable', 'duplicate') AND cost IS NULL
                   AND input + cached + output = 0 THEN 1 END) AS uncounted
    FROM @.calls WHERE run = @run AND job {SPAN}) AS c, (
    SELECT count(CASE WHEN state = 'running' AND open > 0 THEN 1 END) AS in_flight,
        CAST(coalesce(sum(CASE WHEN state = 'running' AND open > 0 THEN open - 1
                               WHEN open > 0 THEN open END), 0) AS bigint) AS unknown,
        CAST(coalesce(sum(CASE WHEN at_risk > 0 THEN at_risk END), 0) AS float8) AS at_risk,
        count(CASE WHEN unbounded > 0 THEN 1 END) AS unbounded
    FROM @.jobs WHERE run = @run AND (open > 0 OR at_risk > 0 OR unbounded > 0) AND id {SPAN}) AS j
"""
_SPENT = """
SELECT j.id, j.round, j.items, j.judge, j.repeat, 0, 0, NULL,
    CAST(sum(CASE WHEN input > 0 THEN input ELSE 0 END) AS bigint),
    CAST(sum(CASE WHEN cached > 0 THEN cached ELSE 0 END) AS bigint),
    CAST(sum(CASE WHEN output > 0 THEN output ELSE 0 END) AS bigint),
    CAST(sum(CASE WHEN reasoning > 0 THEN reasoning ELSE 0 END) AS bigint),
    CASE WHEN count(CASE WHEN cost IS NULL THEN 1 END) = 0
         THEN CAST(sum(CASE WHEN cost > 0 THEN CAST(cost AS numeric) ELSE 0 END) AS float8) END,
    CAST(sum(CASE WHEN outcome <> 'cached' AND latency > 0 THEN CAST(latency AS numeric) ELSE 0 END)
         AS float8)
FROM (SELECT * FROM @.calls WHERE run = @run ORDER BY id LIMIT :n) AS c
JOIN @.jobs j ON j.run = c.run AND j.id = c.job
WHERE c.outcome IN ('ok', 'unusable', 'cached') AND j.state IN ('done', 'invalid')
GROUP BY j.id, j.round, j.items, j.judge, j.repeat ORDER BY j.id
"""
_LAST_FAILURE = """
SELECT coalesce(reply, ''), at, (SELECT count(*) FROM @.calls WHERE run = @run AND id > coalesce(
    (SELECT max(id) FROM @.calls WHERE run = @run AND outcome IN ('ok', 'cached', 'unusable')), 0))
FROM @.calls WHERE run = @run AND job >= 0 AND outcome NOT IN (
    'ok', 'cached', 'unusable', 'duplicate', 'stepped_down', 'skipped', 'undone')
ORDER BY id DESC LIMIT 1
"""
_BATCHES = """
SELECT w.name, b.judge, api, address, form, made, b.jobs, b.reserved, b.tokens, state, remote, status,
    total, b.done, failed, b.seen, expires, cost, answered, error, doubt,
    doubted_since, doubted_looks, coalesce(held.jobs, 0),
    CASE WHEN held.unbounded > 0 THEN NULL ELSE coalesce(held.at_risk, 0) END
FROM @.batches b JOIN @.workers w ON w.worker = b.worker AND w.run = b.run
LEFT JOIN (
    SELECT worker, count(*) AS jobs,
        CAST(sum(CASE WHEN at_risk > 0 THEN at_risk ELSE 0 END) AS float8) / 1e9 AS at_risk,
        count(CASE WHEN unbounded > 0 THEN 1 END) AS unbounded
    FROM @.jobs WHERE run = @run AND state = 'running' GROUP BY worker) held ON held.worker = b.worker
WHERE b.run = @run ORDER BY b.worker
"""


class SqlReader(Database):
    """What a store reads. Rounds count from 1; those of questions that were asked again have negative
    numbers."""

    def __init__(self) -> None:
        self.emit: Callable[[Event], None] = lambda event: None
        self._n_items = 0  # once that is known

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Say so where a row holds what we never wrote."""
        try:
            yield
        except (KeyError, TypeError, ValueError, struct.error) as error:
            raise RunError(f"{self.label} is damaged: {error}.") from error

    async def _one(self, statement: str, **values: object) -> Any:
        """The first row of a statement, or None."""
        found = await self._read(statement, **values)
        return found[0] if found else None

    async def _decoded(
        self, codec: Callable[[Sequence[Any]], T], statement: str, **values: object
    ) -> list[T]:
        """What the rows of a statement stand for."""
        kept = await self._read(statement, **values)
        with self._reading():
            return [codec(row) for row in kept]

    async def _jobs(self, kept: Sequence[Sequence[Any]]) -> list[Job]:
        """The jobs of rows that begin with schema.JOB."""
        n = await self.n_items()
        with self._reading():
            return [rows.job(row, n) for row in kept]

    async def n_items(self) -> int:
        """How many items there are; it never changes once there are any."""
        if not self._n_items:
            n = "SELECT coalesce(max(row), -1) + 1 FROM @.items WHERE run = @run"
            (self._n_items,) = await self._one(n)
        return self._n_items

    async def items(self) -> Items:
        """The items as they were put in; none (n = 0) before `set_items`."""
        every = "SELECT id, gold, part FROM @.items WHERE run = @run ORDER BY row"
        subsets = "SELECT name, members FROM @.subsets WHERE run = @run ORDER BY name"
        kept, members = await self._read(every), await self._read(subsets)
        return rows.items(kept, members)

    async def round_state(self, round: int) -> Counts | None:
        """The round's jobs by state (the barrier: `left` is 0); None before it is planned."""
        planned = "SELECT 1 FROM @.rounds WHERE run = @run AND round = :round"
        return await self.counts(round) if await self._read(planned, round=round) else None

    async def counts(self, round: int | None = None) -> Counts:
        """The jobs of a round, or of all that are planned, by state."""
        numbers = dict(await self._read(self.COUNTS, round=round))
        with self._reading():
            return Counts(**{JobState(state): count for state, count in numbers.items()})

    async def left(self, round: int) -> list[Match]:
        """The matches of a planned round that have no outcome yet."""
        left = f"""
        SELECT {JOB} FROM @.jobs WHERE run = @run AND state = 'pending' AND id {SPAN} UNION ALL
        SELECT {JOB} FROM @.jobs WHERE run = @run AND state = 'running' AND id {SPAN} ORDER BY id
        """
        return [job.match for job in await self._jobs(await self._read(left, round=round))]

    async def matches(self, round: int) -> Matches:
        """A planned round's questions, with their judges; none before it is planned."""
        questions = f"SELECT items, judge FROM @.jobs WHERE run = @run AND id {SPAN} ORDER BY id"
        kept = await self._read(questions, round=round)
        with self._reading():
            return rows.matches(kept)

    async def verdicts(self, round: int | None = None) -> Verdicts:
        """The verdicts of one round, or of all, in match order.

        Raises RunError when they don't fit the matches they answer (a damaged file).
        """
        n = await self.n_items()
        with self._reading():
            return await self._verdicts(round, n)

    async def active(self, round: int) -> Bools | None:
        """The items that could be asked about in a planned round, shape (n,); None before it is
        planned."""
        active = "SELECT active FROM @.rounds WHERE run = @run AND round = :round"
        kept = await self._one(active, round=round)
        return None if kept is None else rows.chosen(kept[0])

    async def totals(self, round: int | None = None) -> Totals:
        """What the ledger adds up to: that of the run, or of one round's questions."""
        made, retries, *known = await self._one(_TOTALS, round=round)
        return Totals(made, retries, Usage(*known[:4]), *known[4:])

    async def last_again(self) -> int:
        """The round of the questions that were asked again last, a negative number; 0 if none were."""
        last = "SELECT coalesce(min(round), 0) FROM @.rounds WHERE run = @run AND round < 0"
        return int((await self._one(last))[0])

    async def spent(self, n: int) -> list[Spent]:
        """What the replies to the questions with an outcome took, in match order; of about the first n
        calls."""
        kept = await self._read(_SPENT, n=n)
        jobs = await self._jobs(kept)
        return [
            Spent(job.match, Usage(*row[8:12]), *row[12:])
            for job, row in zip(jobs, kept, strict=True)
        ]

    async def answered(self, round: int | None = None) -> list[Answered]:
        """Which models their providers say answered, in the order in which they did first: in the
        run, or in one round."""
        answerers = f"""
        SELECT j.judge, c.model, c.fingerprint, count(*)
        FROM @.calls c JOIN @.jobs j ON j.run = c.run AND j.id = c.job
        WHERE c.run = @run AND c.model IS NOT NULL AND c.job {SPAN}
        GROUP BY j.judge, c.model, c.fingerprint ORDER BY min(c.id)
        """
        return await self._decoded(lambda row: Answered(*row), answerers, round=round)

    async def prompt_counts(
        self, smallest: int, characters_a_token: int, band: int
    ) -> list[PromptCount]:
        """Return how many tokens servers counted for questions of at least this size, by judge, count,
        and bands of so many characters."""
        counted = """
        SELECT j.judge, c.outcome = 'cached' AS is_cached, c.input + c.cached AS tokens, count(*),
            min(c.prompt_size), max(c.prompt_size),
            count(CASE WHEN (c.input + c.cached) * :characters < c.prompt_size THEN 1 END)
        FROM @.calls c JOIN @.jobs j ON j.run = c.run AND j.id = c.job
        WHERE c.run = @run AND c.job >= 0 AND c.prompt_size >= :smallest AND c.input + c.cached > 0
        GROUP BY j.judge, c.outcome = 'cached', c.input + c.cached, c.prompt_size / :band
        ORDER BY 1, 2, 3, 5
        """
        return await self._decoded(
            lambda row: PromptCount(*row),
            counted,
            smallest=smallest,
            characters=characters_a_token,
            band=band,
        )

    async def reply_problems(self) -> list[ReplyProblem]:
        """Return what was wrong with unusable replies by their exact words, the most frequent first."""
        problems = """
        SELECT problem, count(*) FROM @.calls
        WHERE run = @run AND job >= 0 AND outcome = 'unusable' AND problem IS NOT NULL
        GROUP BY problem ORDER BY count(*) DESC, min(id)
        """
        return await self._decoded(lambda row: ReplyProblem(*row), problems)

    async def models(self) -> dict[int, str | None]:
        """The model that gave the verdict on each job, as its provider says; None where it doesn't."""
        models = """
        SELECT job, model FROM @.calls WHERE run = @run AND outcome IN ('ok', 'cached') ORDER BY id
        """
        return dict(await self._read(models))

    async def calls(self, jobs: Sequence[int]) -> Mapping[int, Sequence[Call]]:
        """The calls about these jobs, by job, in the order in which they ended, without what their
        attempts were begun with; nothing for a job that had none. `reply` is raw, and says of a call
        without an answer why: replies may be long, and only those asked for are read."""
        by_job = defaultdict[int, list[Call]](list)
        for at in range(0, len(jobs), _AT_ONCE):
            numbers = ", ".join(str(int(job)) for job in jobs[at : at + _AT_ONCE])
            calls = (
                f"SELECT {CALL} FROM @.calls WHERE run = @run AND job IN ({numbers}) ORDER BY id"
            )
            for row in await self._read(calls):
                by_job[row[0]].append(rows.call(row))
        return by_job

    async def overpricing(
        self, judges: Sequence[int], dollars_a_call: float, dollars_a_byte: float
    ) -> float:
        """Return how many times its price the dearest call of these judges cost, of those that broke
        their bound; 0 where none did. A call's price is one part for the call, one for its bytes."""
        numbers = ", ".join(str(int(judge)) for judge in judges)
        dearest = f"""
        SELECT coalesce(max(c.cost
            / (CAST(:a_call AS float8) + CAST(:a_byte AS float8) * c.overpriced_bytes)), 0)
        FROM @.calls c JOIN @.jobs j ON j.run = c.run AND j.id = c.job
        WHERE c.run = @run AND c.overpriced_bytes IS NOT NULL AND c.cost > 0
            AND j.judge IN ({numbers})
        """
        (times,) = await self._one(dearest, a_call=dollars_a_call, a_byte=dollars_a_byte)
        return float(times)

    async def last_failure(self) -> Failure | None:
        """The last call that brought no answer; None if there was none."""
        found = await self._one(_LAST_FAILURE)
        return None if found is None else Failure(*found)

    async def batches(self) -> list[Batch]:
        """All batches, in the order in which they were made. Raises RunError for one that can't be."""
        return await self._decoded(rows.batch, _BATCHES)

    async def lines(self, batch: str) -> list[Line]:
        """The jobs that a batch still has, by number, with just what they were given with. They are
        settled in the batch's name, as its worker; a PENDING outcome gives one back."""
        sent = """
        SELECT b.worker, sent FROM @.batches b
        JOIN @.workers w ON w.worker = b.worker AND w.run = b.run WHERE b.run = @run AND w.name = :name
        """
        held = f"""
        SELECT {JOB} FROM @.jobs
        WHERE run = @run AND state = 'running' AND worker = :worker ORDER BY id
        """
        kept = await self._one(sent, name=batch)
        if kept is None:
            return []
        jobs = await self._jobs(await self._read(held, worker=kept[0]))
        with self._reading():
            return rows.lines(kept[1], jobs)

    async def people(self) -> list[Person]:
        """All of them, by number. Raises RunError for one that can't be."""
        people = """
        SELECT number, name, token, quota, state, since FROM @.people WHERE run = @run ORDER BY number
        """
        return await self._decoded(rows.person, people)

    async def handed(self) -> list[Handed]:
        """What people have now."""
        handed = """
        SELECT person, lease, at, job, checking FROM @.handed WHERE run = @run ORDER BY person
        """
        return await self._decoded(lambda row: Handed(*row), handed)

    async def people_calls(self) -> list[tuple[Match, Call]]:
        """All calls of people, in the order in which they came, each with what it is about."""
        said = f"""
        SELECT j.id, j.round, j.items, j.judge, j.repeat, 0, 0, NULL, {CALL}
        FROM @.calls c JOIN @.jobs j ON j.run = c.run AND j.id = c.job
        WHERE c.run = @run AND c.answered_by IS NOT NULL ORDER BY c.id
        """
        kept = await self._read(said)
        jobs = await self._jobs(kept)
        return [(job.match, rows.call(row[8:])) for job, row in zip(jobs, kept, strict=True)]

    async def checks(self) -> list[Check]:
        """All checks, by number."""
        checks = """
        SELECT number, items, person, repeats, known, lease, ranking, ties, score, seconds, at
        FROM @.checks WHERE run = @run ORDER BY number
        """
        n = await self.n_items()
        return await self._decoded(lambda row: rows.check(row, n), checks)
