"""Real kills, and stops by signals, notebooks, terminals that go away: what was committed is kept, and
never asked again."""

import asyncio
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from judgeq.engine.interrupts import Interrupts, Stop, in_thread, run_stoppable
from judgeq.errors import StoppedError
from judgeq.rating import GoOn
from tests.chaos import KINDS, trial
from tests.cli import (
    answered,
    in_flight,
    judgeq,
    look,
    only_run,
    query,
    scores,
    start,
    started,
    wait_until,
)

EVENTS = ("worker", "pause", "cut", "scheduler", "worker", "cut", "database")
"""After a database comes back nobody is found dead for a while: it is last."""


def test_whatever_goes_wrong_nothing_is_lost_or_bought_twice(tmp_path: Path) -> None:
    result = trial(tmp_path, 3, EVENTS, workers=3, n=600, apart=0.3)
    assert set(result["events"]) == set(KINDS)
    assert result["unknown"], "nothing was in flight when it went wrong"


JOB = ("run", "--dataset", "synthetic:normal", "--n", "1000", "--quiet", "--concurrency", "10")
JOBS = 300
KILLS = 5
BEGINNING = ("runs", "runs/*/run.db", "runs/*/config.json")
"""What is there at the first kills, before anything is answered."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("uninterrupted")
    judgeq(folder, *JOB)
    return scores(only_run(folder))


def done_jobs(folder: Path) -> dict[int, int]:
    """The committed jobs, and their attempts; none before the ledger is there."""
    sql = "SELECT id, attempts FROM jobs WHERE state = 'done'"
    return {row[0]: row[1] for row in look(folder, sql)}


def begun(folder: Path, *flags: str) -> subprocess.Popen[str]:
    """A run that has begun; its handlers of signals are there."""
    process = start(folder, *JOB[:-3], *flags)
    assert process.stderr is not None
    assert "new run" in process.stderr.readline()
    return process


def test_killed_five_times_the_scores_are_the_same(tmp_path: Path, uninterrupted: str) -> None:
    moments = random.Random(20)
    committed: dict[int, int] = {}
    for kill in range(KILLS):
        process = start(tmp_path, *JOB, "--sim-latency", "0.1")
        if kill < len(BEGINNING):
            wait_until(lambda: [*tmp_path.glob(BEGINNING[kill])], process)  # noqa: B023
        else:
            enough = len(committed) + moments.randint(12, 30)
            wait_until(lambda: answered(tmp_path) >= enough, process)  # noqa: B023
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        now = done_jobs(tmp_path)
        assert committed.items() <= now.items()  # kept, and not attempted again
        committed = now
    assert 30 < len(committed) < JOBS, "the kills fell neither all before the work nor all after"
    judgeq(tmp_path, *JOB)
    run = only_run(tmp_path)
    assert scores(run) == uninterrupted
    assert committed.items() <= done_jobs(tmp_path).items()
    assert query(run, "SELECT count(*), count(DISTINCT job) FROM calls") == [(JOBS, JOBS)]
    assert query(run, "SELECT count(*) FROM verdicts") == [(JOBS,)]
    ((attempts,),) = query(run, "SELECT sum(attempts) FROM jobs")
    assert attempts - JOBS <= KILLS * 10, "at most what was in flight at the kills is asked twice"


@pytest.mark.parametrize(
    "numbers",
    [
        [signal.SIGINT],
        pytest.param([signal.SIGTERM], marks=pytest.mark.long),
        [signal.SIGHUP] * 2,  # of a terminal that closes: by the shell, and by the kernel
    ],
)
def test_a_signal_stops_cleanly_and_says_how_to_go_on(
    tmp_path: Path, uninterrupted: str, numbers: list[signal.Signals]
) -> None:
    process = begun(tmp_path, "--concurrency", "10", "--sim-latency", "0.3")
    wait_until(lambda: in_flight(tmp_path) > 1, process)
    first, *again = numbers
    process.send_signal(first)
    wait_for("stopping: letting", process.stderr)
    for number in again:
        process.send_signal(number)
    _, err = process.communicate(timeout=30)
    run = only_run(tmp_path)
    assert process.returncode == 5, err
    assert f"judgeq resume {run.name}" in err
    assert query(run, "SELECT count(*) > 0 FROM calls") == [(1,)]
    assert query(run, "SELECT count(*) FROM jobs WHERE state = 'running'") == [(0,)]
    assert query(run, "SELECT sum(attempts) FROM jobs") == query(run, "SELECT count(*) FROM calls")
    done = judgeq(tmp_path, "resume", "last", "--sim-latency", "0")
    assert "resumed: " in done.stderr
    assert scores(run) == uninterrupted


def test_the_second_signal_stops_at_once(tmp_path: Path, uninterrupted: str) -> None:
    process = begun(tmp_path, "--concurrency", "10", "--sim-latency", "100")
    assert process.stderr is not None
    taken = "SELECT count(*) FROM jobs WHERE state = 'running'"
    wait_until(lambda: query(only_run(tmp_path), taken) == [(10,)], process)
    process.send_signal(signal.SIGINT)
    assert "letting 1 call finish" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 5, err
    judgeq(tmp_path, "resume", "last", "--sim-latency", "0", "--quiet")
    assert scores(only_run(tmp_path)) == uninterrupted
    status = judgeq(tmp_path, "status", "--json").stdout
    assert '"unknown_attempts": 1,' in status


def test_a_second_process_gets_a_clear_error(tmp_path: Path) -> None:
    process = begun(tmp_path, "--sim-latency", "100")
    done = judgeq(tmp_path, *JOB, expect=7)
    assert f"in use by process {process.pid}" in done.stderr
    assert '"state": "running"' in judgeq(tmp_path, "status", "--json").stdout


def python(folder: Path, code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a piece of Python in `folder`."""
    return started(folder, sys.executable, "-c", code, *arguments)


def wait_for(words: str, stream: IO[str] | None) -> None:
    """Read lines until one with these words."""
    assert stream is not None
    assert any(words in line for line in stream), f"it ended without {words!r}"


@pytest.fixture(autouse=True, scope="module")
def _hangups_reach_our_processes() -> Iterator[None]:
    """Also where the tests themselves run under nohup: a handler, unlike SIG_IGN, isn't inherited."""
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


NOTEBOOK = """
import asyncio, sys, judgeq
from judgeq.errors import StoppedError

async def cell():
    try:
        judgeq.run("synthetic:normal", concurrency=10,
                   settings={"n": 1000, "sim_latency": float(sys.argv[1])},
                   on_event=lambda event: print(type(event).__name__, flush=True))
    except StoppedError as error:
        print("stopped:", error, error.__context__)

asyncio.run(cell())
"""


def test_stop_in_a_notebook_stops_the_run(tmp_path: Path, uninterrupted: str) -> None:
    process = python(tmp_path, NOTEBOOK, "0.2")
    wait_for("CallEnded", process.stdout)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "stopped: stopped in round 1" in out
    assert out.rstrip().endswith(" None")
    run = only_run(tmp_path)
    assert query(run, "SELECT count(*) FROM jobs WHERE state = 'running'") == [(0,)]
    assert query(run, "SELECT sum(open) FROM jobs") == [(0,)], "calls in flight were let finish"
    judgeq(tmp_path, "resume", "last", "--sim-latency", "0", "--quiet")
    assert scores(run) == uninterrupted


def test_an_interrupt_before_the_loop_listens_is_not_lost() -> None:
    async def work(stop: Stop) -> str:
        with pytest.raises(StoppedError):
            await stop.sleep(60)
        return "stopped"

    interrupts = Interrupts([signal.SIGINT])
    assert run_stoppable(work, lambda _: None, interrupts=interrupts) == "stopped"
    assert not interrupts


ENDLESS = """
import sys, time
from judgeq.rating import plackett_luce

def endless(verdicts, n, parameters, go_on):
    print("fitting", flush=True)
    while True:
        go_on()
        time.sleep(0.001)

plackett_luce.fit = endless
from judgeq.cli import app
app()
"""


def test_the_final_fit_can_be_given_up(tmp_path: Path, uninterrupted: str) -> None:
    process = python(tmp_path, ENDLESS, *JOB)
    wait_for("fitting", process.stdout)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 5, err
    assert "Traceback" not in err
    run = only_run(tmp_path)
    assert f"judgeq resume {run.name}" in err
    assert err.count("judgeq: ") == 1
    assert all(line.startswith("    ") for line in err.splitlines()[1:])
    assert query(run, "SELECT count(*) FROM jobs WHERE state = 'done'") == [(JOBS,)]
    judgeq(tmp_path, "show", "--write", "--quiet")
    assert scores(run) == uninterrupted
    assert query(run, "SELECT count(*) FROM calls") == [(JOBS,)]


async def test_work_in_a_thread_ends_when_nobody_waits_for_it() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(go_on: GoOn) -> None:
        begun.set()
        try:
            while True:
                go_on()
        finally:
            ended.set()

    task = asyncio.create_task(in_thread(work))
    await asyncio.to_thread(begun.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(ended.wait, 60)
