"""Who works on a run of a store that many machines share, and what they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from judgeq.text import LEFT_OUT

Doing = Literal["working", "waiting", "silent", "left"]


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker of the run. Times are seconds since the epoch on the database's clock, which read `now`;
    `over`: it left or was found dead; `lapsed`: it gave no sign for as long as its lease. `running`
    counts the jobs that it has now, `rate` its calls a second in about the last minute, `spent` the
    nano-dollars of its calls."""

    number: int = field(metadata=LEFT_OUT)
    name: str
    host: str
    pid: int
    since: float
    seen: float
    over: bool = field(metadata=LEFT_OUT)
    lapsed: bool = field(metadata=LEFT_OUT)
    done: int
    calls: int
    errors: int
    running: int
    now: float = field(metadata=LEFT_OUT)
    rate: float
    spent: int
    JSON_KEYS: ClassVar = {
        "state": "doing",
        "calls_a_second": "rate",
        "spent": "dollars",
    }

    @property
    def doing(self) -> Doing:
        """What it does, in a word; "silent" is one that may be dead or cut off."""
        if self.over:
            return "left"
        if self.lapsed:
            return "silent"
        return "working" if self.running else "waiting"

    @property
    def label(self) -> str:
        """Its name without what tells it from its namesakes."""
        return self.name.rpartition(" (")[0] or self.name

    @property
    def dollars(self) -> float:
        """What its calls cost."""
        return self.spent / 1e9


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads the run; or led it last, unless `leads`."""

    name: str
    epoch: int
    leads: bool


@dataclass(frozen=True, slots=True)
class Cap:
    """The run's cap in dollars (None: none), and what is gone of it: spent, possibly to be paid for
    calls in flight or lost, and held by workers for their next calls."""

    max_cost: float | None
    spent: float
    at_risk: float
    held: float


@dataclass(frozen=True, slots=True)
class Crew:
    """All of it; workers in the order in which they came."""

    leader: Leader | None
    workers: Sequence[WorkerState]
    cap: Cap
    JSON_KEYS: ClassVar = {"calls_a_second": "rate"}

    @property
    def rate(self) -> float:
        """Calls a second in about the last minute."""
        return sum(worker.rate for worker in self.workers)


class Prospect(NamedTuple):
    """A run: whether jobs of it wait, or are held; how many rounds are planned, and whether the last
    of them says that no more come."""

    name: str
    fingerprint: str
    pending: bool
    running: bool
    planned: int
    ended: bool
