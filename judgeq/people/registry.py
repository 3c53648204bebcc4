"""The people of a run: added with a link each, removed, forgotten."""

from __future__ import annotations

import hashlib
import secrets
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
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
MOST = 100_000
"""People of a run."""
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


def with_links(
    changed: Sequence[tuple[Person, str]], make_link: Callable[[str], str]
) -> tuple[Changed, ...]:
    """Add each person's link, made of their token."""
    return tuple(
        Changed(person.name, person.state, person.quota, make_link(token) if token else None)
        for person, token in changed
    )


async def apply(
    store: Store, change: Change, now: float, panel: Sequence[str] = ()
) -> list[tuple[Person, str]]:
    """Change the people in a store: those who were changed, each with the token of their new link, or
    "". Raises UsageError for a name that isn't possible, is taken (also by one of the run's `panel`), or
    isn't there; then nothing is changed."""
    people = await store.people()
    if change.what in ("add", "join"):
        changed = [*_added(people, change, now, panel)]
    else:
        changed = [(_ended(one, people, change.what), "") for one in _find(people, change.names)]
    async with store.together():
        for person, _ in changed:
            await store.put_person(person)
    return changed


async def change(
    place: RunPlace, change: Change, make_link: Callable[[str], str]
) -> tuple[Changed, ...]:
    """As `apply`, in a run that no process has open."""
    store = place.store()
    try:
        changed = await apply(store, change, time.time(), place.info().judge_names)
        return with_links(changed, make_link)
    finally:
        await store.close()


def forget_imported(place: RunPlace, change: Change) -> tuple[Changed, ...]:
    """Forget the names that an imported run's judgments came with. Raises UsageError for another change,
    and for a name that isn't there."""
    if change.what != "forget":
        raise UsageError(
            f"run {place.id} was imported: its judges can't be asked anything. Only their names can be "
            "forgotten, with `judgeq annotate forget`."
        )
    info = place.info()
    names, forgotten = list(info.judges), dict[int, str]()
    for name in change.names:
        if name not in info.judges or not name:
            raise _unknown(name, [one for one in names if one])
        number = info.judges.index(name)
        names[number] = forgotten[number] = nameless(number, names[:number] + names[number + 1 :])
    place.write_info(info.model_copy(update={"judges": tuple(names)}))
    return tuple(Changed(name, PersonState.REMOVED, None, None) for name in forgotten.values())


def nameless(number: int, others: Sequence[str]) -> str:
    """What the person of a number (from 0) is called whose name is forgotten; none of `others`."""
    name, taken = f"person {number + 1}", {other.casefold() for other in others}
    while name in taken:
        name += " (forgotten)"
    return name


def _added(
    people: Sequence[Person], change: Change, now: float, panel: Sequence[str]
) -> Iterator[tuple[Person, str]]:
    """New people, each with the token of their link. A person who was removed, and is added again, is
    the same person with another link."""
    by_name = {person.name.casefold(): person for person in people}
    count, taken = len(people), {name.casefold() for name in panel}
    for name in map(_checked, change.names):
        key = name.casefold()
        before = by_name.get(key)
        comes_back = change.what == "add" and before and before.state is PersonState.REMOVED
        if key in taken or (before and not comes_back):
            raise UsageError(f"There is a judge named {name!r} already: take another name.")
        taken.add(key)
        token = secrets.token_urlsafe(24)
        person = before or Person(count, name, b"", since=now)
        count += before is None
        if count > MOST:
            raise UsageError(f"A run can have {MOST:,} judges at most.")
        quota = person.quota if change.quota is None else change.quota
        yield person._replace(token=digest(token), quota=quota, state=PersonState.ACTIVE), token


def _ended(person: Person, people: Sequence[Person], what: What) -> Person:
    """A person who is removed, or forgotten: then their name is a number, and no link is theirs."""
    person = person._replace(state=PersonState.REMOVED)
    if what == "remove":
        return person
    others = [other.name for other in people if other.number != person.number]
    return person._replace(
        name=nameless(person.number, others), token=digest(secrets.token_urlsafe(24))
    )


def _checked(name: str) -> str:
    """A name as it is kept. Raises UsageError for one that isn't possible."""
    name = _as_kept(name)
    if not name or len(name) > LONGEST or plain(name, LONGEST) != name:
        raise UsageError(
            f"A judge can't be named {plain(name, LONGEST)!r}: give 1 to {LONGEST} visible characters."
        )
    return name


def _as_kept(name: str) -> str:
    return " ".join(unicodedata.normalize("NFC", name).split())


def _find(people: Sequence[Person], names: Sequence[str]) -> list[Person]:
    """The people of these names, each once. Raises UsageError for one that isn't there."""
    by_name = {person.name.casefold(): person for person in people}
    found = dict[int, Person]()
    for name in names:
        person = by_name.get(_as_kept(name).casefold())
        if person is None:
            raise _unknown(name, [one.name for one in people])
        found[person.number] = person
    return list(found.values())


def _unknown(name: str, names: Sequence[str]) -> UsageError:
    listed = ", ".join(plain(one, LONGEST) for one in names[:LISTED])
    listed += " …" if len(names) > LISTED else ""
    return UsageError(
        f"There is no judge named {plain(name, LONGEST)!r}; there are: {listed or 'none'}."
    )
