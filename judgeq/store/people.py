"""How people stand in the rows of a store: who they are, what they have, what they said.

A store may be anybody's: what can't have been written by us raises ValueError or struct.error.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from judgeq.errors import RunError
from judgeq.person import Check, Handed, Person, PersonState
from judgeq.store import rows
from judgeq.types import Verdict

_MANY = 2**31
_LATEST = 1e11  # seconds since the epoch
_DIGEST = 32


def person_columns(person: Person) -> dict[str, Any]:
    """A person's row. Raises ValueError for one that can't be kept."""
    if not person.name.strip() or len(person.token) != _DIGEST:
        raise ValueError(f"a person can't be kept as {person.name!r}")
    state = PersonState(person.state).value
    return {**person._asdict(), "name": rows.text(person.name), "state": state}


def name_conflict(person: Person) -> RunError:
    """That the number of a new person is another's: two processes added somebody at the same time."""
    return RunError(
        f"{person.name!r} can't be added just now: somebody else added a judge at the same time. Try "
        "again."
    )


def person(row: Sequence[Any]) -> Person:
    """The person of a row. Raises ValueError or TypeError for one that can't be."""
    number, name, token, quota, state, since = row
    read = Person(number, name, bytes(token), quota, PersonState(state), since)
    if not 0 <= number < _MANY or len(read.token) != _DIGEST or not 0 <= since < _LATEST:
        raise ValueError("a person can't be")
    if quota is not None and not 0 <= quota < _MANY:
        raise ValueError("a person's quota can't be")
    return read


def everybody(kept: Iterable[Sequence[Any]]) -> list[Person]:
    """The people of all rows, in their order. Raises ValueError or TypeError for what can't be."""
    there = [person(row) for row in kept]
    if [one.number for one in there] != list(range(len(there))):
        raise ValueError("people aren't numbered from 0")
    return there


def handed(row: Sequence[Any]) -> Handed:
    """What a person has. Raises ValueError for what can't be."""
    read = Handed(*row)
    if not math.isfinite(read.at) or (read.job is None) is (read.check is None):
        raise ValueError("what a person has can't be")
    return read


def check_columns(check: Check) -> dict[str, Any]:
    """A check's row."""
    ranking, ties, score = None, None, None
    if check.verdict is not None:
        _, ranking, ties, score = rows.verdict(0, check.verdict)
    packed = {"items": _packed(check.items), "known": _packed(check.known)}
    return {**check._asdict(), **packed, "ranking": ranking, "ties": ties, "score": score}


def check(row: Sequence[Any], n: int) -> Check:
    """The check of a row, over n items. Raises ValueError or struct.error for one that can't be."""
    number, items, person, repeats, known, lease, ranking, ties, score, seconds, at = row
    presented, true = _unpacked(items), _unpacked(known)
    verdict = None
    if ranking is not None:
        verdict = Verdict(_unpacked(ranking), tuple(map(bool, ties or b"")), score)
    for ranked in (presented, true or presented, presented if verdict is None else verdict.items):
        if sorted(ranked) != sorted(presented) or not all(0 <= row < n for row in ranked):
            raise ValueError(f"check {number} is about an item that isn't there")
    if not presented or len(set(presented)) < len(presented):
        raise ValueError(f"check {number} is about no item, or about one twice")
    if not math.isfinite(seconds) or not math.isfinite(at):
        raise ValueError(f"check {number} has a time that can't be")
    return Check(number, presented, person, repeats, true, lease, verdict, seconds, at)


def _packed(items: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(items)}i", *items)


def _unpacked(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}i", data)
