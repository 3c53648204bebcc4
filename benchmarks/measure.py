"""One process, from start to end: its CPU, wall time and peak memory."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PYTHON = sys.executable
JUDGEQ = (str(Path(sys.executable).with_name("judgeq")),)


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of CPU (user + system), seconds of wall time, peak memory in MB."""

    cpu: float
    wall: float
    memory: float


def cost(command: Sequence[str], *, terminal: bool = False) -> Cost:
    """What a command costs, run in an empty folder without network; its output is thrown away.

    `terminal` gives it a pseudo-terminal for standard error, so that the dashboard is drawn.
    """
    environment = os.environ | {"JUDGEQ_OFFLINE": "1", "TERM": "xterm-256color"}
    # As it is installed: what was imported before isn't compiled again.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    ours, theirs = pty.openpty() if terminal else (-1, -1)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=theirs if terminal else subprocess.DEVNULL,
        )
        if terminal:
            os.close(theirs)
            threading.Thread(target=_swallow, args=(ours,), daemon=True).start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    unit = 1024 if sys.platform != "darwin" else 1024 * 1024
    return Cost(usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / unit)


def _swallow(terminal: int) -> None:
    """Read a terminal until its other end is closed."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(terminal)


def by_turns(times: int, *commands: tuple[Sequence[str], bool]) -> list[list[Cost]]:
    """Each command (with or without a terminal) measured `times` times, taking turns."""
    found: list[list[Cost]] = [[] for _ in commands]
    for _ in range(times):
        for costs, (command, terminal) in zip(found, commands, strict=True):
            costs.append(cost(command, terminal=terminal))
    return found


def cpu(costs: Sequence[Cost]) -> float:
    """The median CPU seconds."""
    return median(cost.cpu for cost in costs)
