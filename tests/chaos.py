"""Chaos: while a scheduler and workers judge over HTTP, processes are killed and stopped, the database
is killed and started again, and connections are cut in the middle of a COMMIT.

tests/test_kill.py does a little of it; `python -m tests.chaos --events 100 --seed 1` a lot.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeAlias

import psutil
import psycopg

from judgeq.errors import StoreAwayError
from tests.cli import command, environment, judgeq, only_run, scores
from tests.mock import mock, mock_process, stats
from tests.postgres import sql, started
from tests.web import in_thread

LEASE = 2.0
"""Seconds of a lease in these runs."""
KINDS = {"worker": 6, "scheduler": 3, "database": 2, "pause": 2, "cut": 7}
"""What goes wrong, and how often: a worker or the scheduler is killed, or the database, which is started
again; a worker is paused for longer than its lease; a connection is cut in the middle of a COMMIT."""
SETTLED = 120.0
"""Seconds that a run may take after the last event."""
Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter
MODEL = ("--judge", "m", "--price", "1,10")
DECIDING = ("--max-output-tokens", "200", "--prompt", "bias", "--strategy", "listwise5x3")


class Database:
    """A PostgreSQL server that can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self._server = started(folder)
        self.address: str = self._server.get_uri()

    @property
    def socket(self) -> str:
        """The unix socket that it listens on."""
        info = self._server.get_postmaster_info()
        return f"{info.socket_dir}/.s.PGSQL.{info.port}"

    def kill(self) -> None:
        """Kill it with all its processes; nothing is written down any more."""
        postmaster = psutil.Process(self._server.get_pid())
        processes = [postmaster, *postmaster.children(recursive=True)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)

    def start(self) -> None:
        """Start it again, on the same data."""
        with self._server._lock:
            self._server.ensure_postgres_running()

    def close(self) -> None:
        """Stop it for good, and remove its data."""
        self._server.cleanup()


class Cutter:
    """A way to the database that can cut a connection in the middle of what is sent, by default of a
    COMMIT: half of the times before the database has it, half of them after, but before the answer.

    `due` says whether to cut: by the number of the connection since the last `arm`, of the message on
    it, and what that says."""

    def __init__(
        self, socket: Callable[[], str], due: Callable[[int, int, bytes], bool] | None = None
    ) -> None:
        self._socket = socket
        self._due = due or (lambda _, __, data: b"COMMIT\0" in data)  # and not READ COMMITTED
        self._armed = 0
        self.connections = 0
        self.cuts = 0
        self.port = 0

    @contextmanager
    def running(self) -> Iterator[Self]:
        """In a thread, while inside."""
        with in_thread(self._running()) as self.port:
            yield self

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        yield server.sockets[0].getsockname()[1]
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def arm(self) -> None:
        """Cut the next connection that is due."""
        self._armed += 1
        self.connections = 0

    def store(self, schema: str) -> str:
        """The address of a store behind it."""
        return (
            f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
            f"?schema={schema}&lease={LEASE:g}&sslmode=disable&gssencmode=disable"
        )

    async def _serve(self, reader: Reader, writer: Writer) -> None:
        try:
            there = await asyncio.open_unix_connection(self._socket())
        except OSError:
            writer.close()
            return
        cut = asyncio.Event()
        self.connections += 1
        ways = [
            asyncio.ensure_future(self._up(reader, there[1], cut, self.connections)),
            asyncio.ensure_future(self._down(there[0], writer, cut)),
        ]
        with suppress(asyncio.CancelledError, OSError):
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (writer, there[1]):
            end.transport.abort()

    async def _up(self, reader: Reader, to: Writer, cut: asyncio.Event, connection: int) -> None:
        messages = 0
        with suppress(OSError):
            while data := await reader.read(65536):
                messages += 1
                if self._armed and self._due(connection, messages, data):
                    self._armed -= 1
                    self.cuts += 1
                    cut.set()
                    if self.cuts % 2:
                        return  # the database never has it
                to.write(data)
                await to.drain()
                if cut.is_set():
                    await asyncio.sleep(0.05)  # it has it, and answers to nobody
                    return

    async def _down(self, reader: Reader, to: Writer, cut: asyncio.Event) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                if not cut.is_set():
                    to.write(data)
                    await to.drain()


@dataclass
class Chaos:
    """One run under chaos: where it is, who works on it, and what was done to them."""

    folder: Path
    database: Database
    cutter: Cutter
    schema: str
    job: tuple[str, ...]
    asking: tuple[str, ...]
    moments: random.Random
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)
    events: Counter[str] = field(default_factory=Counter)
    codes: list[tuple[str, int, str]] = field(default_factory=list)

    @property
    def store(self) -> str:
        """The store's address, straight."""
        joint = "&" if "?" in self.database.address else "?"
        return f"{self.database.address}{joint}schema={self.schema}&lease={LEASE:g}"

    def start(self, name: str) -> None:
        """Start a worker, or the scheduler; each second worker behind the cutter."""
        if name == "scheduler":
            words = ["run", *self.job, *self.asking, "--store", self.store, "--quiet"]
            if "--max-cost" not in self.job:  # else it ends when no call fits any more
                words += ["--workers", "0"]
        else:
            store = self.cutter.store(self.schema) if int(name) % 2 else self.store
            words = ["worker", *self.asking, *self.job[:2], "--store", store, "--exit-when", "done"]
            words.append("--quiet")
        place = self.folder / name
        place.mkdir(exist_ok=True)
        errors = (place / "errors").open("a")
        self.processes[name] = subprocess.Popen(
            command(*words),
            cwd=place,
            env=environment(self.folder) | {"JUDGEQ_OFFLINE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=errors,
            text=True,
        )
        errors.close()

    def has(self, table: str) -> bool:
        """Whether there is anything in a table."""
        try:
            return bool(self.query(f"SELECT 1 FROM @.{table} LIMIT 1"))
        except (psycopg.Error, StoreAwayError):
            return False

    def look(self) -> bool:
        """Start again what ended before its time; whether the scheduler is still at it."""
        for name, process in list(self.processes.items()):
            code = process.poll()
            if code is None:
                continue
            if name == "scheduler" and code in (0, 6):
                return False
            assert code != 2, self.errors(name)
            if name == "scheduler" or code != 0:
                self.codes.append((name, code, self.errors(name)))
                self.start(name)
        return True

    def leave(self) -> None:
        """Have all that still work let their calls in flight finish, and end: one may be asking what no
        other has the money for."""
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            process.wait(SETTLED)

    def errors(self, name: str) -> str:
        """What a process last said."""
        return (self.folder / name / "errors").read_text()[-2000:]

    def event(self, kind: str) -> None:
        """Something goes wrong."""
        workers = [name for name in self.processes if name != "scheduler"]
        if kind == "worker":
            self._kill(self.moments.choice(self._asking() or workers))
        elif kind == "scheduler":
            self._kill("scheduler")
        elif kind == "pause":
            paused = self.processes[self.moments.choice(workers)]
            if paused.poll() is None:
                paused.send_signal(signal.SIGSTOP)
                time.sleep(LEASE * 1.5)
                paused.send_signal(signal.SIGCONT)
        elif kind == "database":
            self.database.kill()
            time.sleep(self.moments.uniform(0.0, LEASE))
            self.database.start()
        else:
            self.cutter.arm()
        self.events[kind] += 1

    def _asking(self) -> list[str]:
        """The workers that have calls in flight, once there are some; none if the run is over before."""
        while self.processes["scheduler"].poll() is None:
            pids = {
                pid
                for (pid,) in self.query(
                    "SELECT DISTINCT w.pid FROM @.jobs j JOIN @.workers w ON w.worker = j.worker "
                    "WHERE j.state = 'running' AND j.open > 0 AND NOT w.over"
                )
            }
            asking = [name for name, process in self.processes.items() if process.pid in pids]
            if asking := [name for name in asking if name != "scheduler"]:
                return asking
            time.sleep(0.02)
        return []

    def _kill(self, name: str) -> None:
        process = self.processes[name]
        if process.poll() is None:
            process.kill()
            process.wait(10)
            self.start(name)

    def close(self) -> None:
        """End all processes."""
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
                process.wait(10)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """What the ledger says; tables are named as `@.`."""
        return sql(self.store, statement)


@contextmanager
def chaos(
    folder: Path, seed: int, workers: int, url: str, job: tuple[str, ...], *more: str
) -> Iterator[Chaos]:
    """A run that has begun, with so many workers, and everything that it takes."""
    database = Database(Path(tempfile.mkdtemp(prefix="judgeq-chaos-")))
    asking = (*MODEL, "--base-url", url, "--no-cache", "--concurrency", "6", *more)
    with closing(database), Cutter(lambda: database.socket).running() as cutter:
        under = Chaos(folder, database, cutter, f"chaos_{seed}", job, asking, random.Random(seed))
        with closing(under):
            under.start("scheduler")
            while not under.has("rounds"):
                time.sleep(0.05)
            for number in range(workers):
                under.start(str(number))
            yield under


def go_through(under: Chaos, events: Sequence[str], apart: float) -> None:
    """Have these things go wrong, some seconds apart, and wait for the run to end."""
    while not under.has("verdicts"):
        time.sleep(0.05)
    for event in events:
        time.sleep(under.moments.uniform(0.2, 1.8) * apart)
        if not under.look():
            break
        under.event(event)
    until = time.monotonic() + SETTLED
    while under.look():
        if time.monotonic() > until:
            raise AssertionError({name: under.errors(name) for name in under.processes})
        time.sleep(0.1)
    under.leave()


def check(under: Chaos, url: str, expected: str | None, cap: float | None) -> dict[str, Any]:
    """Hold the ledger against what the server saw, and the scores against those of a run without
    chaos; what it came to."""
    jobs, done, attempts, unknown, at_risk = under.query(
        "SELECT count(*), count(*) FILTER (WHERE state = 'done'), sum(attempts), sum(open), "
        "sum(at_risk) FROM @.jobs"
    )[0]
    calls, answers, cost = under.query(
        "SELECT count(*), count(*) FILTER (WHERE outcome IN ('ok', 'unusable', 'duplicate')), "
        "coalesce(sum(cost), 0) FROM @.calls WHERE outcome <> 'cached'"
    )[0]
    duplicates = under.query("SELECT count(*) FROM @.calls WHERE outcome = 'duplicate'")[0][0]
    twice = under.query(
        "SELECT count(*) FROM (SELECT job FROM @.calls WHERE outcome = 'ok' "
        "GROUP BY job HAVING count(*) > 1) AS j"
    )[0][0]
    seen = stats(url)
    assert twice == 0, "a job has two answers that count"
    assert attempts == calls + unknown, (attempts, calls, unknown)
    assert seen["requests"] <= attempts, "the server was asked what the ledger doesn't know"
    assert seen["requests"] >= calls - unknown
    assert not seen["refused_by_limits"], "the limit was not held"
    assert seen["answered"] - answers <= unknown, "an answer is neither kept nor on the list"
    if cap is not None:
        assert cost + float(at_risk) / 1e9 <= cap + 1e-9, (cost, at_risk, cap)
    if expected is not None:
        assert done == jobs
        name = under.query("SELECT name FROM @.runs")[0][0]
        run = next(under.folder.rglob(f"{name}/scores.csv")).parent
        assert scores(run, "--store", under.store) == expected, "the scores differ"
    return {
        "jobs": jobs, "done": done, "calls": calls, "unknown": unknown, "duplicates": duplicates,
        "requests": seen["requests"], "answered": seen["answered"],
        "cost": round(cost, 6), "events": dict(under.events), "cuts": under.cutter.cuts,
    }  # fmt: skip


def drawn(number: int, seed: int) -> list[str]:
    """So many things that go wrong."""
    return random.Random(seed).choices(list(KINDS), list(KINDS.values()), k=number)


def trial(
    folder: Path,
    seed: int,
    events: Sequence[str],
    *,
    workers: int,
    n: int,
    apart: float,
    cap: float | None = None,
    rpm: float | None = None,
) -> dict[str, Any]:
    """One run under chaos, checked; with a cap in dollars it may end before it is finished. The server
    refuses what exceeds `rpm`."""
    file = folder / "texts.csv"
    file.write_text("text\n" + "".join(f"text number {number}\n" for number in range(n)))
    job: tuple[str, ...] = ("--dataset", str(file), *DECIDING)
    (calm := folder / "calm").mkdir()
    limit = () if rpm is None else ("--rpm", str(rpm))
    expected = None
    if cap is None:
        with mock(folder) as url:
            judgeq(calm, "run", *job, *MODEL, "--base-url", url, "--no-cache", "--quiet")
        expected = scores(only_run(calm))
    else:
        job += ("--max-cost", str(cap))
    with (
        mock_process(folder, "--latency", "0.5", *limit) as url,
        chaos(folder, seed, workers, url, job, *limit) as under,
    ):
        go_through(under, events, apart)
        return check(under, url, expected, cap) | {
            "restarts": [(name, code, said[-300:]) for name, code, said in under.codes]
        }


def main() -> None:
    """From the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--each", type=int, default=20, help="events in each run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--items", type=int, default=600)
    parser.add_argument("--apart", type=float, default=1.0, help="seconds between two events")
    parser.add_argument("--rpm", type=float, help="requests a minute that the server allows")
    parser.add_argument("--cap", type=float, help="dollars that each run may cost")
    given = parser.parse_args()
    seed, happened = given.seed, Counter[str]()
    while happened.total() < given.events:  # a run may end before all of its own have
        number = min(given.each, given.events - happened.total())
        with tempfile.TemporaryDirectory(prefix="judgeq-chaos-") as folder:
            result = trial(
                Path(folder), seed, drawn(number, seed), workers=given.workers, n=given.items,
                apart=given.apart, cap=given.cap, rpm=given.rpm,
            )  # fmt: skip
        print(json.dumps(result), flush=True)
        happened.update(result["events"])
        seed += 1
    print(f"{happened.total()} events: {dict(happened)}")


if __name__ == "__main__":
    os.environ.setdefault("XDG_STATE_HOME", tempfile.mkdtemp())
    main()
