"""Workers on a running cluster, Dask's or Ray's: submitted through its own client, watched, stopped.

What is sent there is what the workers' user gave, as plain data, and this module's name. Keys never are:
they come from the environment there, as does a store's password that doesn't stand in its address.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from typing import Any, NamedTuple

from judgeq.engine import remote_worker
from judgeq.engine.interrupts import Interrupts, run_loop
from judgeq.engine.remote_worker import Tally, WorkerOptions
from judgeq.errors import JudgeqError, UsageError
from judgeq.events import Event, Notice
from judgeq.run_places import whoami

Stop = Callable[[], object]
POLL = 1.0
"""Seconds between two looks: whether a worker is to stop, and whether one has ended."""
NOTICES = 20
"""Warnings of a worker that are sent back, the last ones."""


class Report(NamedTuple):
    """How a worker ended; `error` says why, if not because there was no more to do."""

    where: str = "the cluster"
    tally: Mapping[str, Any] = {}
    warnings: Sequence[str] = ()
    error: str = ""
    exit_code: int = 0


def work(given: Mapping[str, Any], stopped: Callable[[], bool]) -> Report:
    """Be a worker, on a machine of the cluster, until all is done or it is `stopped`."""
    here = {"store": os.environ["JUDGEQ_STORE"]} if os.environ.get("JUDGEQ_STORE") else {}
    mine = WorkerOptions(**{**given, "settings": here | given["settings"]})
    interrupts, tally, warnings = Interrupts(), Tally(), list[str]()

    def emit(event: Event) -> None:
        if isinstance(event, Notice) and event.warning:
            warnings.append(event.text)

    async def stop() -> None:
        while not await asyncio.to_thread(stopped):  # noqa: ASYNC110 - of another machine
            await asyncio.sleep(POLL)
        interrupts.interrupt()

    error, code = "", 0
    try:
        run_loop(remote_worker.join(mine, emit, tally, beside=stop, interrupts=interrupts))
    except JudgeqError as ended:
        error, code = str(ended), ended.exit_code
    did = {name: value for name, value in asdict(tally).items() if name != "latencies"}
    return Report(whoami(), did, warnings[-NOTICES:], error, code)


def _on_dask(given: Mapping[str, Any], name: str) -> Report:
    dask: Any = import_module("distributed")
    return work(given, dask.Event(name, client=dask.get_client()).is_set)


def _on_ray(given: Mapping[str, Any], stop: Any) -> Report:
    ray: Any = import_module("ray")
    return work(given, lambda: ray.get(stop.is_set.remote()))


@contextmanager
def submitted(
    on: str, given: WorkerOptions, n: int
) -> Iterator[tuple[Sequence[Future[Report]], Stop]]:
    """n workers on the cluster that "dask=ADDRESS" or "ray=ADDRESS" names, which begin as soon as there
    is room, and what asks them to stop. One runs again where the machine that had it is lost. Raises
    UsageError for a cluster that can't be reached, and without its package."""
    kind, _, address = on.partition("=")
    if kind not in ("dask", "ray") or not address:
        raise UsageError(f"--on {on}: give dask=tcp://HOST:8786, ray=auto or ray=ray://HOST:10001.")
    try:
        package: Any = import_module("distributed" if kind == "dask" else "ray")
        if kind == "dask":
            client = package.Client(address, timeout=30)
        else:
            package.init(address=address, log_to_driver=False, ignore_reinit_error=True)
    except ImportError as error:
        raise UsageError(f"--on {kind} needs a package: pip install 'judgeq[{kind}]'") from error
    except (OSError, ValueError, RuntimeError) as error:  # TimeoutError is an OSError
        raise UsageError(f"--on {on} can't be reached: {error}.") from error
    if kind == "dask":
        with client:
            name, pool = f"judgeq-{secrets.token_hex(6)}", client.get_executor(pure=False)
            stop = package.Event(name, client=client)
            yield [pool.submit(_on_dask, asdict(given), name) for _ in range(n)], stop.set
        return
    try:
        stop = package.remote(num_cpus=0)(threading.Event).remote()
        task = package.remote(num_cpus=1, max_retries=-1)(_on_ray)
        refs = [task.remote(asdict(given), stop) for _ in range(n)]
        yield [ref.future() for ref in refs], lambda: package.get(stop.set.remote())
    finally:
        package.shutdown()


def watch(
    tasks: Sequence[Future[Report]], stop: Stop, ended: Callable[[int, Report], None]
) -> None:
    """Wait until all workers have ended; `ended` is called with the number, from 1, and the report of
    each. Ctrl-C asks them to stop, and is raised when it comes again."""
    left, stopping = set(tasks), False
    while left:
        try:
            done, left = wait(left, timeout=POLL, return_when=FIRST_COMPLETED)
        except KeyboardInterrupt:
            if stopping:
                raise
            stopping = True
            stop()
            continue
        for task in done:
            lost = task.exception()
            failed = Report(error=f"it was lost: {lost}", exit_code=1)
            ended(tasks.index(task) + 1, task.result() if lost is None else failed)
