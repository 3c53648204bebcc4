"""The people of a run: added with a link each, removed, forgotten."""

from __future__ import annotations

import hashlib
import secrets
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from judgeq.errors import UsageError
from judgeq.escaping import plain
from judgeq.person import Person, PersonState
from judgeq.run_places import RunPlace
from judgeq.store import Store

LONGEST = 80
"""Characters of a name."""
LISTED = 10
"""Names that a message lists."""
What = Literal["add", "join", "remove", "forget"]


@dataclass(frozen=True, slots=True)
class Change:
    """What to do with the people of these names. Who joins adds themselves, and can't take the name of
    a person who was removed."""

    what: What
    names: Annotated[tuple[str, ...], Field(min_length=1, max_length=10_000)]
    quota: Annotated[int, Field(ge=1, lt=2**31)] | None = None
    """Of those who are added."""


class Changed(NamedTuple):
    """A person after a change; `link` is their new one, if they were given one, which is shown once."""

    name: str
    state: PersonState
    quota: int | None
    link: str | None


def digest(token: str) -> bytes:
    """What is kept of a link's token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


async def apply(
    store: Store,
    change: Change,
    now: float,
    panel: Sequence[str] = (),
    make_link: Callable[[str], str] = str,
) -> tuple[Changed, ...]:
    """Change the people in a store: those who were changed, those who are added with a link, which
    `make_link` makes of its token. A person who was removed, and is added again, is the same person with
    another link. Raises UsageError for a name that isn't possible, is taken (also by
    one of the run's `panel`), or isn't there; then nothing is changed."""
    people = {person.name.casefold(): person for person in await store.people()}
    taken, changed = {name.casefold() for name in panel}, dict[int, tuple[Person, str]]()
    for given in change.names:
        name = " ".join(unicodedata.normalize("NFC", given).split())
        key, token, before = name.casefold(), "", people.get(name.casefold())
        if change.what in ("add", "join"):
            removed = before is not None and before.state is PersonState.REMOVED
            comes_back = removed and change.what == "add"
            if not name or plain(name, LONGEST) != name:
                wrong = plain(name, LONGEST)
                raise UsageError(
                    f"A judge can't be named {wrong!r}: give 1 to {LONGEST} visible characters."
                )
            if key in taken or (before and not comes_back):
                raise UsageError(f"There is a judge named {name!r} already: take another name.")
            token = secrets.token_urlsafe(24)
            person = before or Person(len(people), name, b"", since=now)
            quota = person.quota if change.quota is None else change.quota
            person = person._replace(token=digest(token), quota=quota, state=PersonState.ACTIVE)
        else:
            person = _ended(people, name, change.what)
        people[key] = person
        changed[person.number] = person, token
    async with store.together():
        for person, _ in changed.values():
            await store.put_person(person)
    return tuple(
        Changed(person.name, person.state, person.quota, make_link(token) if token else None)
        for person, token in changed.values()
    )


async def change(
    place: RunPlace, change: Change, make_link: Callable[[str], str]
) -> tuple[Changed, ...]:
    """As `apply`, in a run that no process has open."""
    store = place.store()
    try:
        return await apply(store, change, time.time(), place.info().judge_names, make_link)
    finally:
        await store.close()


def _ended(people: dict[str, Person], name: str, what: What) -> Person:
    """A person who is removed, or forgotten: then their name is a number, and no link is theirs. Raises
    UsageError for a name that isn't there."""
    if (person := people.get(name.casefold())) is None:
        listed = ", ".join(plain(one.name, LONGEST) for one in [*people.values()][:LISTED])
        listed += " …" if len(people) > LISTED else ""
        raise UsageError(
            f"There is no judge named {plain(name, LONGEST)!r}; there are: {listed or 'none'}."
        )
    person = person._replace(state=PersonState.REMOVED)
    if what == "remove":
        return person
    number = f"person {person.number + 1}"
    while number in people and people[number].number != person.number:
        number += "'"
    return person._replace(name=number, token=digest(secrets.token_urlsafe(24)))
