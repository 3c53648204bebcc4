"""People as judges, as frozen data: who they are, what they have, what checks them; and their words, as
calls keep them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Any, NamedTuple

import orjson

from judgeq.types import Call, Verdict


class PersonState(StrEnum):
    """Whether a person is asked questions."""

    ACTIVE = "active"
    REMOVED = "removed"


class Person(NamedTuple):
    """One of the people who judge a run, numbered from 0."""

    number: int
    name: str
    token: bytes
    """The SHA-256 of the token in their link."""
    quota: int | None = None
    """How many answers they are asked for; None: as many as there are."""
    state: PersonState = PersonState.ACTIVE
    since: float = 0.0
    """When they were added, in seconds since the epoch."""


class Handed(NamedTuple):
    """The question that a person has, at most one each: about a job, or a check."""

    person: int
    lease: str
    """Different each time a question is handed out; an answer names it."""
    at: float
    """When it was handed out, in seconds since the epoch."""
    job: int | None = None
    check: int | None = None


class Check(NamedTuple):
    """A question that checks a person, and decides no score: one that they answered before, in reverse
    order, or one with a known answer."""

    number: int
    items: tuple[int, ...]
    """In the order presented."""
    person: int | None = None
    """None: a known answer that nobody has been asked for yet."""
    repeats: int | None = None
    """The job that is repeated."""
    known: tuple[int, ...] = ()
    """The items in their known order, most of the feature first."""
    lease: str = ""
    """Of the answer, as the fields below."""
    verdict: Verdict | None = None
    seconds: float = 0.0
    at: float = 0.0


class Said(NamedTuple):
    """What a run's people did, apart from their verdicts."""

    first: int
    """A person's number among all judges is this plus their own."""
    people: Sequence[Person]
    checks: Sequence[Check]
    seconds: Mapping[int, Sequence[float]]
    """The time of each answer that was not taken back, by person."""
    skipped: Mapping[int, int]
    """How often each person skipped a question."""
    calls: int = 0
    """All calls of people, also skips and answers that were taken back."""

    @property
    def judged(self) -> int:
        """How many people answered something."""
        return sum(map(bool, self.seconds.values()))

    @property
    def median(self) -> float | None:
        """The median time of an answer in seconds; None without answers."""
        seconds = [one for of_person in self.seconds.values() for one in of_person]
        return median(seconds) if seconds else None


def lease_of(reply: str) -> str:
    """The lease of the question that a kept reply answers; "" if it names none."""
    return str(_content(reply).get("question", ""))


def remark(call: Call) -> str | None:
    """A person's own words about a question: their note, or why they skipped it. None without any, and
    of a model's call. To be escaped where it is shown (escaping.py)."""
    if call.judge is None:
        return None
    content = _content(call.reply or "")
    parts = [content.get("skipped"), content.get("note")]
    words = ": ".join(part for part in parts if isinstance(part, str) and part)
    return words.encode(errors="replace").decode().strip() or None


def _content(reply: str) -> dict[str, Any]:
    try:
        content = orjson.loads(reply)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}
