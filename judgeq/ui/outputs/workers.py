"""What worker and workers print with `--json`."""

from __future__ import annotations

from judgeq.ui.outputs.runs import ErrorFacts, Output


class WorkerJobs(Output):
    """Jobs that a worker took, by what became of them."""

    done: int
    invalid: int
    failed: int
    given_back: int


class WorkerOutput(Output):
    """What a worker process did, in all the `runs` that it worked on."""

    left: str
    """Why it ended: idle, done, or an error's name (StoppedError: by a signal, or --max-hours)."""
    runs: list[str]
    jobs: WorkerJobs
    calls: int
    cached: int
    cost: float | None
    """Dollars; null where that of all calls is unknown."""
    unpriced_calls: int
    error: ErrorFacts | None = None


class WorkerCounts(Output):
    """What a worker on a cluster did; empty of one that was lost."""

    done: int = 0
    invalid: int = 0
    failed: int = 0
    given_back: int = 0
    calls: int = 0
    cached: int = 0
    cost: float = 0.0
    unpriced: int = 0


class WorkerReport(Output):
    """How one of the workers on a cluster ended."""

    number: int
    where: str
    """Its process and machine."""
    tally: WorkerCounts
    warnings: list[str]
    error: str
    """Why it ended, if not because there was no more to do."""
    exit_code: int
