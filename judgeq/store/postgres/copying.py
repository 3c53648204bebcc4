"""A run copied between its SQLite file and a PostgreSQL store, in one transaction, losing nothing.

What only says who works on it now stays behind: leases, what people have, and the lead's holder; a job
that was running is pending again, as it is for the next that leads, unless a batch has it. Calls are
numbered anew, in their order.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgeq.errors import RunError
from judgeq.store import batches, files, people, rows
from judgeq.store.damage import refuse
from judgeq.store.postgres import statements
from judgeq.store.postgres.address import Address, in_schema
from judgeq.store.postgres.runs import RunRow, connected, damage_in
from judgeq.store.schema import TOTAL

if TYPE_CHECKING:
    import psycopg

COPIER = "judgeq store copy"
"""The worker that a copied run's calls are listed under."""
_BLOCK = 10_000
# Each table of a store, and where its rows come from in a file.
_IN = {
    "items (run, row, id, gold)": "SELECT row, id, gold FROM items ORDER BY row",
    "rounds (run, round, first, last, epoch, ratings, active)": (
        "SELECT round, first, last, epoch, ratings, active FROM rounds ORDER BY round"
    ),
    "matches (run, id, items, judge, ordered, repeat)": (
        "SELECT id, items, judge, ordered <> 0, repeat FROM jobs ORDER BY id"
    ),
    "verdicts (run, job, ranking, ties, score, answered_by)": (
        "SELECT job, ranking, ties, score, answered_by FROM verdicts ORDER BY job"
    ),
    "people (run, number, name, token, quota, state, since)": people.PEOPLE,
    "checks (run, number, items, person, repeats, known, lease, ranking, ties, score, seconds, at)": (
        people.CHECKS
    ),
}
_JOBS_IN = """
SELECT id, CASE WHEN state = 'running' AND coalesce(worker, '') NOT IN (SELECT name FROM batches)
    THEN 'pending' ELSE state END, attempts, unusable, open, unbounded, at_risk, judge, error, worker
FROM jobs ORDER BY id
"""
_BATCHES_IN = """
SELECT name, judge, api, address, form, made, jobs, reserved, tokens, state, remote, status, total, done,
    failed, seen, expires, cost, answered, error, sent FROM batches ORDER BY id
"""
_CALLS_IN = """
SELECT job, attempt, outcome, input, cached, output, reasoning, cost, latency, reply, at,
    answered_by
FROM calls ORDER BY id
"""
# Each table of a file, and where its rows come from in a store.
_OUT = {
    "INSERT INTO lead VALUES (1, ?, ?, ?)": (
        "SELECT epoch, holder, 0.0::float8 FROM @.lead WHERE run = %s"
    ),
    "INSERT INTO items VALUES (?, ?, ?)": (
        "SELECT row, id, gold FROM @.items WHERE run = %s ORDER BY row"
    ),
    "INSERT INTO rounds VALUES (?, ?, ?, ?, ?, ?)": (
        "SELECT round, first, last, epoch, ratings, active FROM @.rounds WHERE run = %s ORDER BY round"
    ),
    """INSERT INTO jobs (id, items, state, attempts, unusable, worker, error, open, at_risk, unbounded,
    judge, ordered, repeat) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""": (
        "SELECT j.id, m.items, CASE WHEN j.state = 'running' AND b.worker IS NULL THEN 'pending' "
        "ELSE j.state END, j.attempts, j.unusable, w.name, j.error, j.open, j.at_risk, j.unbounded, "
        "m.judge, m.ordered::int, m.repeat FROM @.jobs j JOIN @.matches m USING (run, id) "
        "LEFT JOIN @.workers w ON w.worker = j.worker AND w.run = j.run "
        "LEFT JOIN @.batches b ON b.worker = j.worker AND b.run = j.run WHERE j.run = %s ORDER BY j.id"
    ),
    batches.INSERT: (
        "SELECT w.name, judge, api, address, form, made, jobs, b.reserved, tokens, state, remote, "
        "status, total, b.done, failed, b.seen, expires, cost, answered, error, sent FROM @.batches b "
        "JOIN @.workers w ON w.worker = b.worker AND w.run = b.run WHERE b.run = %s ORDER BY b.worker"
    ),
    """INSERT INTO calls (job, attempt, outcome, input, cached, output, reasoning, cost, latency, reply,
    at, answered_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""": (
        "SELECT job, attempt, outcome, input, cached, output, reasoning, cost, latency, reply, at, "
        "answered_by FROM @.calls WHERE run = %s ORDER BY id"
    ),
    "INSERT INTO verdicts VALUES (?, ?, ?, ?, ?)": (
        "SELECT job, ranking, ties, score, answered_by FROM @.verdicts WHERE run = %s ORDER BY job"
    ),
    people.PUT_PERSON: statements.PEOPLE,
    people.PUT_CHECK: statements.CHECKS,
}


def to_store(
    file: Path, address: Address, name: str, fingerprint: str, info: str, prompt: str | None
) -> None:
    """Make the run of this name, which isn't there yet, out of the ledger in `file`, which the caller
    holds. Raises RunError where it is there, or for a file that is no run's."""
    insert: Any = in_schema(
        "INSERT INTO @.runs (name, fingerprint, info, prompt) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (name) DO NOTHING RETURNING run",
        address.schema,
    )
    try:
        with (
            closing(files.connect(file, read_only=True)) as ledger,
            connected(address, write=True) as connection,
            connection.transaction(),
        ):
            made = connection.execute(insert, (name, fingerprint, info, prompt)).fetchone()
            if made is None:
                raise RunError(f"{address.shown}#{name} is there already. Nothing was changed.")
            _Inward(ledger, connection, address, made[0]).copy()
    except (sqlite3.Error, OSError) as error:
        raise files.problem(file, error) from error
    except ValueError as error:  # a text that PostgreSQL can't keep
        raise RunError(f"{file} can't be kept in PostgreSQL: {error}.") from error


class _Inward:
    """A ledger's rows on their way into a store."""

    def __init__(
        self,
        ledger: sqlite3.Connection,
        connection: psycopg.Connection[Any],
        address: Address,
        run: int,
    ) -> None:
        self._ledger = ledger
        self._connection = connection
        self._address = address
        self._run = run
        self._spent = 0  # nano-dollars

    def copy(self) -> None:
        self._execute(
            "INSERT INTO @.lead (run, epoch, holder, until) VALUES (%s, %s, %s, '-infinity')",
            *(self._ledger.execute("SELECT epoch, holder FROM lead").fetchone() or (0, COPIER)),
        )
        for table, select in _IN.items():
            self._rows(table, self._ledger.execute(select))
        for name, members in self._subsets():
            self._execute("INSERT INTO @.subsets VALUES (%s, %s, %s)", name, members)
        copier = self._worker(COPIER)
        names = self._ledger.execute("SELECT DISTINCT worker FROM jobs WHERE worker IS NOT NULL")
        workers = self._batches()
        for (name,) in names.fetchall():
            if name not in workers:
                workers[name] = self._worker(name)
        self._rows(
            "jobs (run, id, state, attempts, unusable, open, unbounded, at_risk, judge, error, worker)",
            ((*job[:-1], workers.get(job[-1])) for job in self._ledger.execute(_JOBS_IN)),
        )
        self._rows(
            "calls (run, job, attempt, outcome, input, cached, output, reasoning, cost, latency, "
            "reply, at, answered_by, worker)",
            self._calls(copier),
        )
        self._count(copier)

    def _execute(self, statement: str, *values: object) -> Any:
        query: Any = in_schema(statement, self._address.schema)
        return self._connection.execute(query, (self._run, *values))

    def _rows(self, table: str, read: Iterable[Sequence[Any]]) -> None:
        query: Any = in_schema(f"COPY @.{table} FROM STDIN", self._address.schema)
        with self._connection.cursor().copy(query) as copying:
            for row in read:
                copying.write_row((self._run, *row))

    def _subsets(self) -> Iterator[tuple[str, bytes]]:
        for (name,) in self._ledger.execute("SELECT DISTINCT name FROM subsets").fetchall():
            select = "SELECT row FROM subsets WHERE name = ? ORDER BY row"
            members = [row for (row,) in self._ledger.execute(select, (name,))]
            yield name, struct.pack(f"<{len(members)}i", *members)

    def _worker(self, name: str) -> int:
        """The row of a worker that is over."""
        statement = (
            "INSERT INTO @.workers (run, name, until, over) VALUES (%s, %s, now(), true) "
            "ON CONFLICT (run, name) DO UPDATE SET over = true RETURNING worker"
        )
        number: int = self._execute(statement, name).fetchone()[0]
        return number

    def _batches(self) -> dict[str, int]:
        """The rows of the batches, by name: of workers that never die, and hold what their jobs may
        cost."""
        at_risk = {name: risk for name, _, risk, *_ in self._ledger.execute(batches.HELD)}
        made = {}
        for name, *fields, sent in self._ledger.execute(_BATCHES_IN):
            batches.read((name, *fields), batches.Held())
            statement = (
                "INSERT INTO @.workers (run, name, until, at_risk) VALUES (%s, %s, 'infinity', %s) "
                "RETURNING worker"
            )
            (number,) = self._execute(statement, name, at_risk.get(name, 0)).fetchone()
            self._execute(statements.INSERT_BATCH, number, *fields, sent)
            made[name] = int(number)
        return made

    def _calls(self, worker: int) -> Iterator[Sequence[Any]]:
        for *call, cost, latency, reply, at, judge in self._ledger.execute(_CALLS_IN):
            if call[2] != rows.CACHED and cost is not None:
                self._spent += rows.nano(max(cost, 0.0))[0]
            yield *call, cost, latency, rows.text(reply), at, judge, worker

    def _count(self, worker: int) -> None:
        """What the run has cost counts against its cap from now on."""
        ((at_risk,),) = self._ledger.execute(
            "SELECT coalesce(sum(max(at_risk, 0)), 0) FROM jobs "
            "WHERE state <> 'running' OR coalesce(worker, '') NOT IN (SELECT name FROM batches)"
        ).fetchall()
        ((calls,),) = self._ledger.execute(
            "SELECT count(*) FROM calls WHERE outcome <> 'cached'"
        ).fetchall()
        ((done,),) = self._ledger.execute("SELECT count(*) FROM verdicts").fetchall()
        query: Any = in_schema(
            "UPDATE @.workers SET done = %s, calls = %s, spent = %s, at_risk = %s WHERE worker = %s",
            self._address.schema,
        )
        self._connection.execute(query, (done, calls, self._spent, at_risk, worker))


def to_file(address: Address, row: RunRow, file: Path) -> None:
    """Make the ledger of a run, of which nobody is at work, in `file`, which isn't there yet.

    Raises RunError while a process leads the run or works on it.
    """
    try:
        with closing(files.connect(file, read_only=False)) as ledger:
            with connected(address) as connection, connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                _refuse_running(connection, address, row)
                refuse(f"{address.shown}#{row.name}", damage_in(connection, address, row.run))
                ledger.execute("BEGIN IMMEDIATE")
                for insert, select in _OUT.items():
                    ledger.executemany(insert, _read(connection, address, select, row.run))
                members = "SELECT name, members FROM @.subsets WHERE run = %s ORDER BY name"
                for name, packed in _read(connection, address, members, row.run):
                    numbers = struct.unpack(f"<{len(packed) // 4}i", packed)
                    ledger.executemany(
                        "INSERT INTO subsets VALUES (?, ?)", ((name, row) for row in numbers)
                    )
                ledger.execute(TOTAL)
                ledger.execute("COMMIT")
            ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except (sqlite3.Error, OSError, OverflowError, struct.error) as error:
        raise files.problem(file, error) from error


def _read(
    connection: psycopg.Connection[Any], address: Address, select: str, run: int
) -> Iterator[Any]:
    query: Any = in_schema(select, address.schema)
    with connection.cursor(name="judgeq_copy") as cursor:
        cursor.itersize = _BLOCK
        cursor.execute(query, (run,))
        yield from cursor


def _refuse_running(connection: psycopg.Connection[Any], address: Address, row: RunRow) -> None:
    at_work: Any = in_schema(
        "SELECT name FROM @.workers WHERE run = %s AND NOT over AND until > now() "
        "AND until < 'infinity' LIMIT 1",
        address.schema,
    )
    worker = connection.execute(at_work, (row.run,)).fetchone()
    if row.leader is not None or worker is not None:
        raise RunError(
            f"run {row.name} is being worked on by {row.leader or (worker and worker[0])}: copy it when "
            "it is finished or stopped."
        )
