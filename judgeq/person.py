"""People as judges, as frozen data: who they are, what they have, what is asked to check them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import NamedTuple

from judgeq.types import Verdict


class PersonState(StrEnum):
    """Whether a person is handed questions."""

    ACTIVE = "active"
    REMOVED = "removed"


class Person(NamedTuple):
    """One of the people who judge a run, numbered from 0. `token` is the SHA-256 of what their link
    holds. `quota` is how many answers they are asked for (None: as many as there are), `since` when they
    came, in seconds since the epoch."""

    number: int
    name: str
    token: bytes
    quota: int | None = None
    state: PersonState = PersonState.ACTIVE
    since: float = 0.0


class Handed(NamedTuple):
    """A question that a person has: at most one each, under a `lease` that nothing else has, since `at`
    (seconds since the epoch). It is about a `job`, or a `check`."""

    person: int
    lease: str
    at: float
    job: int | None = None
    check: int | None = None


class Check(NamedTuple):
    """A question whose answer is held against another, and decides no score: one that a person answered
    before, turned round (`repeats`, its job), or one whose answer is known (`known`, its items, most of
    the feature first). `items` are in the order presented. `person` is None of a known answer that
    nobody was asked for. `lease`, `verdict`, `seconds` and `at` are those of the answer."""

    number: int
    items: tuple[int, ...]
    person: int | None = None
    repeats: int | None = None
    known: tuple[int, ...] = ()
    lease: str = ""
    verdict: Verdict | None = None
    seconds: float = 0.0
    at: float = 0.0


class Said(NamedTuple):
    """What is on record of a run's people beside their verdicts. A person's number among all judges is
    `first` plus their own. By person: `seconds` that each of their answers took which stand, and how
    often they `skipped`. `calls` counts all that the ledger has of theirs."""

    first: int
    people: Sequence[Person]
    checks: Sequence[Check]
    seconds: Mapping[int, Sequence[float]]
    skipped: Mapping[int, int]
    calls: int = 0

    @property
    def judged(self) -> int:
        """How many of them answered something."""
        return sum(map(bool, self.seconds.values()))

    @property
    def median(self) -> float | None:
        """Seconds that an answer took, the median; None without answers."""
        seconds = [one for of_person in self.seconds.values() for one in of_person]
        return median(seconds) if seconds else None
