"""What PostgreSQL does its own way.

It runs a bulk statement over arrays, so that many rows are one statement and one round trip; claims pass
over the rows that others have locked; blocks of verdicts and matches are packed by the database, since a
row for each would take 20 times as long to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np

from judgeq.store import statements as sql
from judgeq.store.statements import Bulk
from judgeq.store.verdicts import assembled
from judgeq.store.verdicts import matches as questions
from judgeq.types import Matches, Verdicts

BLOCK = 100_000
"""Rows of a block."""
# What is read after a lock is what others left, whatever a database's or role's own default is. The
# statements of workers look up a few rows by an index, and join them by their hashes. While a round is
# worked on the tables' statistics are old, and the planner would choose otherwise: read all of a table.
# Who is paused in a transaction, or cut off, must not block others for longer than its lease.
BEGIN = """
BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_sort = off;
SET LOCAL enable_nestloop = off; SET LOCAL enable_mergejoin = off; SET LOCAL jit = off;
SET LOCAL idle_in_transaction_session_timeout = {patience}; SET LOCAL lock_timeout = {patience}
"""
BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
CLAIM = f"""
UPDATE @.jobs SET state = 'running', worker = :worker
WHERE run = @run AND id = ANY(ARRAY(
    SELECT id FROM @.jobs WHERE run = @run AND state = 'pending'
    AND (CAST(:judges AS int[]) IS NULL OR judge = ANY(CAST(:judges AS int[])))
    ORDER BY id LIMIT :n FOR UPDATE SKIP LOCKED))
RETURNING {sql.JOB}
"""  # noqa: S608
# Who could have been kept from renewing its lease since the database started is given the time. Who has
# its row locked is alive.
END_DEAD = """
WITH dead AS (
    UPDATE @.workers SET over = true WHERE worker IN (
        SELECT worker FROM @.workers WHERE run = @run AND NOT over AND until < @now
        AND extract(epoch FROM pg_postmaster_start_time()) + :grace < @now
        ORDER BY worker FOR UPDATE SKIP LOCKED)
    RETURNING worker)
UPDATE @.jobs SET state = 'pending'
WHERE run = @run AND state = 'running' AND worker IN (SELECT worker FROM dead)
"""
# Those that somebody is just beginning are locked. One that was asked before may be about to be again.
PUT_BACK_UNBEGUN = """
UPDATE @.jobs SET state = 'pending' WHERE run = @run AND state = 'running' AND id = ANY(ARRAY(
    SELECT id FROM @.jobs WHERE run = @run AND state = 'running' AND attempts = 0
    AND worker <> ALL(CAST(:ours AS bigint[])) FOR UPDATE SKIP LOCKED))
"""
# By the partial indexes: all that isn't pending, running or lost is done, and needn't be counted.
COUNTS = """
WITH lost AS (
    SELECT state, count(*) AS n FROM @.jobs
    WHERE run = @run AND state IN ('invalid', 'failed') AND id BETWEEN :first AND :last GROUP BY state
    UNION ALL SELECT 'pending', count(*) FROM @.jobs
    WHERE run = @run AND state = 'pending' AND id BETWEEN :first AND :last
    UNION ALL SELECT 'running', count(*) FROM @.jobs
    WHERE run = @run AND state = 'running' AND id BETWEEN :first AND :last)
SELECT state, n FROM lost
UNION ALL SELECT 'done', (SELECT coalesce(sum(last - first + 1), 0)::bigint FROM @.rounds
    WHERE run = @run AND first BETWEEN :first AND :last) - (SELECT coalesce(sum(n), 0)::bigint FROM lost)
"""
MATCHES = """
SELECT count(*), max(id), string_agg(items, ''), string_agg(int4send(length(items)), ''),
    string_agg(int4send(judge), '')
FROM (SELECT id, items, judge FROM @.jobs
      WHERE run = @run AND id BETWEEN :first AND :last ORDER BY id LIMIT :block) AS block
"""
VERDICTS = """
SELECT count(*), max(job), string_agg(int8send(job), ''), string_agg(ranking, ''),
    string_agg(int4send(length(ranking)), ''), string_agg(items, ''),
    string_agg(int4send(length(items)), ''),
    string_agg(coalesce(ties, decode(repeat('00', length(ranking) / 4), 'hex')), ''),
    string_agg(float8send(coalesce(score, 'nan')), ''), string_agg(int4send(judge), ''),
    string_agg(boolsend(ordered), '')
FROM (SELECT v.job, v.ranking, v.ties, v.score, j.items, j.ordered,
             coalesce(v.answered_by, j.judge) AS judge
      FROM @.verdicts v JOIN @.jobs j ON j.run = v.run AND j.id = v.job
      WHERE v.run = @run AND v.job BETWEEN :first AND :last ORDER BY v.job LIMIT :block) AS block
"""


@cache
def over_arrays(bulk: Bulk) -> tuple[str, list[tuple[str, str]]]:
    """A bulk statement that takes an array for each column, and the columns with their types. Of an
    UPDATE it returns the places of the rows that changed anything."""
    columns = [(name, kind) for name, kind in map(str.split, bulk.columns.split(", "))]
    arrays = ", ".join(f":{name}::{kind}[]" for name, kind in columns)
    names = ", ".join(f"p_{name}" for name, _ in columns)
    text = re.sub(r"(?<!:):(\w+)", r"given.p_\1", bulk.text).replace(
        "@rows", f"FROM unnest({arrays}) WITH ORDINALITY AS given ({names}, place)"
    )
    if text.startswith("UPDATE"):
        text += " AND id = ANY(:id::bigint[]) RETURNING place"
    return text, columns


def array(values: Iterable[Any], kind: str) -> str | list[Any]:
    """Values as an array: numbers as its text, which is made in a third of psycopg's time."""
    if kind in ("text", "bytea"):
        return list(values)
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def waves(numbers: Sequence[int]) -> list[list[int]]:
    """The places of numbers, in their order, in parts that have each number at most once."""
    parts: list[list[int]] = []
    seen: dict[int, int] = {}
    for place, number in enumerate(numbers):
        part = seen.get(number, 0)
        seen[number] = part + 1
        if part == len(parts):
            parts.append([])
        parts[part].append(place)
    return parts


def _column(blocks: Sequence[Sequence[bytes | None]], column: int, kind: str) -> Any:
    """A column of several blocks, each of which holds it packed, as an array of the kind given."""
    array = np.frombuffer(b"".join(block[column] or b"" for block in blocks), dtype=kind)
    return array.astype(array.dtype.newbyteorder("="))


def verdicts(blocks: Sequence[Sequence[Any]], n: int) -> Verdicts:
    """The verdicts that VERDICTS packed, over n items. Raises ValueError where they can't be."""
    kinds = (">i8", "<i4", ">i4", "<i4", ">i4", "u1", ">f8", ">i4", "?")
    return assembled(n, *(_column(blocks, number, kind) for number, kind in enumerate(kinds)))


def matches(blocks: Sequence[Sequence[Any]]) -> Matches:
    """The questions that MATCHES packed. Raises ValueError where they can't be."""
    items = b"".join(items or b"" for items, *_ in blocks)
    return questions(items, _column(blocks, 1, ">i4"), _column(blocks, 2, ">i4"))
