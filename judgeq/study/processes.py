"""Simulations that don't depend on one another, spread over processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import TypeVar

THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What says how many threads NumPy's linear algebra has, by who made it."""
Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


def spread(
    work: Callable[[Task], Outcome], tasks: Sequence[Task], jobs: int
) -> Iterator[tuple[Task, Outcome]]:
    """Each task with its outcome, as they end; with one job here, in order. Raises what `work` raises,
    and BrokenProcessPool when a process was killed."""
    if jobs == 1:
        for task in tasks:
            yield task, work(task)
        return
    # Not forked: a thread of ours (the progress bar's) may hold a lock that a fork would copy.
    spawn = multiprocessing.get_context("spawn")
    # Threads of several processes hinder one another. This process has read its environment.
    for name in THREADS:
        os.environ.setdefault(name, "1")
    with ProcessPoolExecutor(jobs, spawn, _serve) as pool:
        waiting = {pool.submit(work, task): task for task in tasks}
        try:
            while waiting:
                ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield waiting.pop(future), future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _serve() -> None:
    """Ctrl-C is for the process that began; when that one is killed, so are we, for we would wait for
    it for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def default_jobs() -> int:
    """As many processes as there are cores for us."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
