"""The people of a run: added with a token each, removed, forgotten."""

from __future__ import annotations

import hashlib
import secrets
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from judgeq.errors import UsageError
from judgeq.escaping import plain
from judgeq.people import Person, PersonState
from judgeq.runs import RunPlace
from judgeq.store import Store

LONGEST = 80
"""Characters of a name."""
MOST = 100_000
NAMED = 10
"""Of more judges than this, a message names the first."""
What = Literal["add", "join", "remove", "forget"]


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of people of these names; `quota` is that of those who are added. Who joins adds
    themselves, and takes no name of those who were removed."""

    what: What
    names: tuple[str, ...]
    quota: int | None = None


class Changed(NamedTuple):
    """Somebody as they are now; `link` is their new one, where they were given one, and shown once."""

    name: str
    state: PersonState
    quota: int | None
    link: str | None


def linked(
    changed: Sequence[tuple[Person, str]], link: Callable[[str], str]
) -> tuple[Changed, ...]:
    """Those who were changed, with what leads them to the page: `link` makes it of a token."""
    return tuple(
        Changed(person.name, person.state, person.quota, link(token) if token else None)
        for person, token in changed
    )


async def change(
    place: RunPlace, change: Change, link: Callable[[str], str]
) -> tuple[Changed, ...]:
    """As `make`, in a run that nobody else has."""
    store = place.store()
    try:
        return linked(await make(store, change, time.time(), place.info().judge_names), link)
    finally:
        await store.close()


def forget_imported(place: RunPlace, change: Change) -> tuple[Changed, ...]:
    """Forget the names that an imported run's judgments came with. Raises UsageError for another change,
    and for a name that isn't there."""
    if change.what != "forget":
        raise UsageError(
            f"run {place.id} was imported: its judges are known by name alone, and are asked nothing. "
            "Their names can be forgotten."
        )
    info = place.info()
    names, forgotten = list(info.judges), dict[int, str]()
    for name in change.names:
        if name not in info.judges or not name:
            raise _unknown(name, [known for known in names if known])
        number = info.judges.index(name)
        others = [*names[:number], *names[number + 1 :]]
        names[number] = forgotten[number] = nameless(number, others)
    place.write_info(info.model_copy(update={"judges": tuple(names)}))
    return tuple(Changed(name, PersonState.REMOVED, None, None) for name in forgotten.values())


async def make(
    store: Store, change: Change, now: float, panel: Sequence[str] = ()
) -> list[tuple[Person, str]]:
    """Those who were changed, each with the token of their new link, if they have one. Raises UsageError
    for a name that can't be, is taken (also by one of the run's `panel`), or isn't there: then nothing
    is changed."""
    if change.what in ("add", "join"):
        return await add(store, change, now, panel)
    if change.what == "forget":
        changed = await forget(store, change.names)
    else:
        found = await find(store, change.names)
        changed = [person._replace(state=PersonState.REMOVED) for person in found]
        await _put(store, changed)
    return [(person, "") for person in changed]


def token_for() -> tuple[str, bytes]:
    """A new token, and what is kept of it."""
    token = secrets.token_urlsafe(24)
    return token, hashlib.sha256(token.encode()).digest()


async def add(
    store: Store, change: Change, now: float, panel: Sequence[str] = ()
) -> list[tuple[Person, str]]:
    """New people, each with the token of their link, which isn't kept; who was removed, and is added
    again, is the same person with another link. Raises UsageError for a name that can't be, or is taken:
    then nobody is added."""
    there = {person.name.casefold(): person for person in await store.people()}
    count, taken = len(there), {name.casefold() for name in panel}
    added = list[tuple[Person, str]]()
    for name in change.names:
        name = checked(name)
        before = there.get(name.casefold())
        again = before and change.what == "add" and before.state is PersonState.REMOVED
        if name.casefold() in taken or (before and not again):
            raise UsageError(f"There is a judge named {name!r} already: take another name.")
        taken.add(name.casefold())
        token, digest = token_for()
        person = before or Person(count, name, digest, since=now)
        count += before is None
        quota = person.quota if change.quota is None else change.quota
        person = person._replace(token=digest, quota=quota, state=PersonState.ACTIVE)
        added.append((person, token))
    if count > MOST:
        raise UsageError(f"There can be {MOST:,} judges at most.")
    await _put(store, [person for person, _ in added])
    return added


async def _put(store: Store, people: Sequence[Person]) -> None:
    """Write people down, all or none."""
    async with store.together():
        for person in people:
            await store.put_person(person)


def checked(name: str) -> str:
    """A name as it is kept. Raises UsageError for one that can't be."""
    name = _as_kept(name)
    if not name or len(name) > LONGEST or plain(name, LONGEST) != name:
        raise UsageError(
            f"A judge can't be named {plain(name, LONGEST)!r}: give 1 to {LONGEST} characters that can "
            "be seen."
        )
    return name


def _as_kept(name: str) -> str:
    return " ".join(unicodedata.normalize("NFC", name).split())


async def find(store: Store, names: Sequence[str]) -> list[Person]:
    """The people of these names, each once. Raises UsageError for one that isn't there."""
    by_name = {person.name.casefold(): person for person in await store.people()}
    named = dict[int, Person]()
    for name in names:
        person = by_name.get(_as_kept(name).casefold())
        if person is None:
            raise _unknown(name, [known.name for known in by_name.values()])
        named[person.number] = person
    return list(named.values())


def _unknown(name: str, known: Sequence[str]) -> UsageError:
    there = ", ".join(plain(one, LONGEST) for one in known[:NAMED])
    there += " …" if len(known) > NAMED else ""
    return UsageError(
        f"There is no judge named {plain(name, LONGEST)!r}; there are: {there or 'none'}."
    )


async def forget(store: Store, names: Sequence[str]) -> list[Person]:
    """Replace names by numbers; the links of these people open nothing any more. Their answers stay."""
    there = await store.people()
    forgotten = []
    for person in await find(store, names):
        name = nameless(person.number, [other.name for other in there if other != person])
        _, nobody = token_for()
        forgotten.append(person._replace(name=name, token=nobody, state=PersonState.REMOVED))
    await _put(store, forgotten)
    return forgotten


def nameless(number: int, taken: Sequence[str]) -> str:
    """What the person of a number (from 0) is called whose name is forgotten; none of those `taken`."""
    name, others = f"person {number + 1}", {other.casefold() for other in taken}
    while name in others:
        name += " (forgotten)"
    return name
