"""Stopping: signals to real processes, notebooks, terminals that go away, fits that are given up."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from judgeq.engine.interrupts import Interrupts, in_thread
from judgeq.rating import GoOn
from tests.cli import (
    command,
    environment,
    in_flight,
    judgeq,
    only_run,
    query,
    scores,
    start,
    started,
    wait_until,
)

JOB = ("run", "--dataset", "synthetic:normal", "--n", "200", "--concurrency", "4")
UNKNOWN = "SELECT sum(open) FROM jobs"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run, which nobody stopped."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    judgeq(folder, *JOB, "--quiet")
    return folder


@pytest.fixture(scope="module")
def uninterrupted(finished: Path) -> str:
    return scores(only_run(finished))


def python(folder: Path, code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a piece of Python in `folder`."""
    return started(folder, sys.executable, "-c", code, *arguments)


def wait_for(line: str, stream: IO[str] | None) -> None:
    """Read lines until this one."""
    assert stream is not None
    for read in stream:
        if read.strip() == line:
            return
    raise AssertionError(f"it ended without {line!r}")


@pytest.fixture(autouse=True, scope="module")
def _hangups_reach_our_processes() -> Iterator[None]:
    """Also where the tests themselves run under nohup: a handler, unlike SIG_IGN, isn't inherited."""
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, before)


# Notebooks

NOTEBOOK = """
import asyncio, sys, judgeq
from judgeq.errors import StoppedError

async def cell():
    try:
        judgeq.run("synthetic:normal", concurrency=4,
                   settings={"n": 200, "sim_latency": float(sys.argv[1])},
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
    assert query(run, UNKNOWN) == [(0,)], "calls in flight were let finish"
    judgeq(tmp_path, "resume", "last", "--sim-latency", "0", "--quiet")
    assert scores(run) == uninterrupted


def test_an_interrupt_before_the_loop_listens_is_not_lost() -> None:
    interrupts, reactions = Interrupts(), []
    interrupts.interrupt()

    async def work() -> None:
        with interrupts.listening(lambda: reactions.append("early")):
            assert reactions == ["early"]
        interrupts.interrupt()  # nobody listens any longer

    asyncio.run(work())
    assert reactions == ["early"]


# Terminals that go away


def test_hanging_up_twice_lets_calls_in_flight_finish(tmp_path: Path, uninterrupted: str) -> None:
    """A closing terminal may say so twice: the shell to its jobs, and the kernel."""
    process = start(tmp_path, *JOB, "--sim-latency", "0.3")
    wait_until(lambda: in_flight(tmp_path) > 1, process)
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    while "stopping: letting" not in (line := process.stderr.readline()):
        assert line, "it ended without a word"
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 5, err
    run = only_run(tmp_path)
    assert query(run, "SELECT sum(attempts) FROM jobs") == query(run, "SELECT count(*) FROM calls")
    judgeq(tmp_path, "resume", "last", "--sim-latency", "0", "--quiet")
    assert scores(run) == uninterrupted


def test_a_terminal_that_goes_away_stops_the_run_cleanly(
    tmp_path: Path, uninterrupted: str
) -> None:
    import fcntl
    import termios

    master, slave = os.openpty()

    def leading() -> None:  # a session of its own, of which this is the terminal
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with subprocess.Popen(
        command(*JOB, "--sim-latency", "0.3"),
        cwd=tmp_path,
        env=environment(tmp_path) | {"TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=leading,  # noqa: PLW1509
    ) as process:
        os.close(slave)
        wait_until(lambda: in_flight(tmp_path) > 1, process)
        os.close(master)
        assert process.wait(timeout=120) == 5
    run = only_run(tmp_path)
    assert query(run, "SELECT sum(attempts) FROM jobs") == query(run, "SELECT count(*) FROM calls")
    judgeq(tmp_path, "resume", "last", "--sim-latency", "0", "--quiet")
    assert scores(run) == uninterrupted


# Fits

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
    assert query(run, "SELECT count(*) FROM jobs WHERE state = 'done'") == [(60,)]
    judgeq(tmp_path, "show", "--write", "--quiet")
    assert scores(run) == uninterrupted
    assert query(run, "SELECT count(*) FROM calls") == [(60,)]


UNSEEN = ENDLESS.replace(
    "    while True:",
    """    import signal, threading
    time.sleep(0.5)  # the loop's thread sleeps by now
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)  # which doesn't wake it
    while True:""",
)


@pytest.mark.long
def test_a_signal_that_does_not_wake_the_loop_is_seen(finished: Path) -> None:
    """As one that comes just before the loop sleeps."""
    process = python(finished, UNSEEN, "show", "--write")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (5, "judgeq: stopped.\n")


def test_work_in_a_thread_ends_when_nobody_waits_for_it() -> None:
    begun, ended = threading.Event(), threading.Event()

    def work(go_on: GoOn) -> None:
        begun.set()
        try:
            while True:
                go_on()
        finally:
            ended.set()

    async def cancelled() -> None:
        task = asyncio.create_task(in_thread(work))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await asyncio.to_thread(ended.wait, 60)

    asyncio.run(cancelled())
