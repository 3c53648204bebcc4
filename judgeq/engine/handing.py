"""Who of the people has which question, and which of the others may be theirs: kept as the store has it.

A lease that lapsed holds until another person is in need of a question.
"""

from __future__ import annotations

import hashlib
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from judgeq.engine.people_checks import Checks
from judgeq.engine.people_said import Last, last_of
from judgeq.errors import BehindError, RunError, StaleError, UnknownPersonError
from judgeq.people import Check, Handed, Person, PersonState
from judgeq.store import Store
from judgeq.types import Match

LEASE = 120.0
"""Seconds after the last sign of their page for which a question is a person's alone."""
HERE = 60.0
"""Seconds after the last sign of their page for which a person counts as there."""
SKIPS = 3
"""A question that was skipped so often is asked no more."""
NEVER = float("-inf")
GONE = (
    "This question is no longer yours: it was answered in another window, or went to somebody else."
)


@dataclass(slots=True)
class Own:
    """What is known of a person: the sets of items that they have judged or skipped, what they answered
    in their order, how many checks, the seconds that this took, and their last answer, while it isn't
    taken back; how often they `judged` items in a round; `sign` is when their page was last heard of,
    by the monotonic clock. `told`: that the run is over."""

    seen: set[frozenset[int]] = field(default_factory=set)
    answered: list[Match] = field(default_factory=list)
    judged: Counter[tuple[int, frozenset[int]]] = field(default_factory=Counter)
    checked: int = 0
    seconds: float = 0.0
    last: Last | None = None
    sign: float = NEVER
    told: bool = False

    @property
    def done(self) -> int:
        """Their answers that stand."""
        return len(self.answered) + self.checked

    def add(self, match: Match) -> None:
        """Note an answer."""
        items = frozenset(match.items)
        self.seen.add(items)
        self.judged[match.round, items] += 1
        self.answered.append(match)

    def retract(self, match: Match) -> None:
        """Note that an answer was taken back."""
        items = frozenset(match.items)
        self.answered.remove(match)
        self.judged[match.round, items] -= 1
        if not any(frozenset(other.items) == items for other in self.answered):
            self.seen.discard(items)


class Handing:
    """The questions of one run's people. `judge` is their number on its panel, of `judges`; a person's
    own number among all judges comes after these. Nobody is asked more than `most` times in one round
    about the same items. Whoever calls sees to it that one thing is done at a time."""

    def __init__(
        self,
        store: Store,
        checks: Checks,
        *,
        judge: int,
        judges: int,
        open_to_all: bool,
        most: int = 1,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        order: int | None = None,
    ) -> None:
        self.checks = checks
        self.own: dict[int, Own] = {}
        self.handed: dict[int, Handed] = {}
        self.matches: dict[int, Match] = {}
        """Those of people that have no outcome, by job."""
        self.open: list[int] = []
        """The jobs of those that nobody has."""
        self._store = store
        self._judge = judge
        self._first = judges
        self._open_to_all = open_to_all
        self._most = most
        self._now, self._clock = now, clock
        self._random = random.Random(order)  # noqa: S311  (of questions)
        self._persons: dict[bytes, Person] = {}
        self._skipped: dict[int, list[int]] = {}
        self._began = clock()
        self._rounds = 0
        self._loaded = False

    def number_of(self, person: Person) -> int:
        """A person's number among all judges."""
        return self._first + person.number

    # What the store says

    def forget(self) -> None:
        """The store may say something else by now: it is read before anything else is done."""
        self._loaded = False

    async def ready(self) -> None:
        """Read the store, where that is needed."""
        if self._loaded:
            return
        before, self.own, self._skipped = self.own, {}, {}
        await self.checks.load()
        await self.learn()
        for match, call in await self._store.said():
            number = (call.judge or 0) - self._first
            own = self.own.setdefault(number, Own())
            if call.outcome == "skipped":
                own.seen.add(frozenset(match.items))
                self._skipped.setdefault(match.id, []).append(number)
            elif call.outcome == "ok":
                own.add(match)
                own.seconds += call.latency
                own.last = last_of(match, call.reply or "")
        for check in self.checks.answered:
            own = self.own.setdefault(check.person or 0, Own())
            own.checked += 1
            own.seconds += check.seconds
            own.seen.add(frozenset(check.items))
        self.handed = {handed.person: handed for handed in await self._store.handed()}
        self._check()
        for number, own in self.own.items():
            own.sign = before.get(number, own).sign
        self.matches = {
            match.id: match
            for round in range(1, self._rounds + 1)
            for match in await self._store.left(round)
            if match.judge == self._judge
        }
        self.handed = {
            number: handed
            for number, handed in self.handed.items()
            if handed.job is None or handed.job in self.matches
        }
        out = {handed.job for handed in self.handed.values()}
        self.open = [job for job in self.matches if job not in out]
        # What nobody was left for was asked for again (--retry-failed): by those who skipped it, too.
        for job in [job for job in self._skipped if job in self.matches]:
            if self.is_refused(self.matches[job]):
                for number in self._skipped.pop(job):
                    self.own[number].seen.discard(frozenset(self.matches[job].items))
        self._loaded = True

    def _check(self) -> None:
        """Raise RunError for what can't have been written by us."""
        numbers, checks = {one.number for one in self._persons.values()}, self.checks.numbers
        asked = {handed.check for handed in self.handed.values()} - {None}
        if not (self.handed.keys() | self.own.keys() <= numbers and asked <= checks):
            raise RunError(
                "the run's ledger is damaged: it holds answers or questions of people or checks that "
                "aren't there."
            )

    async def learn(self) -> None:
        """Read who there is."""
        self._persons = {person.token: person for person in await self._store.people()}
        for person in self._persons.values():
            self.own.setdefault(person.number, Own())

    async def begin(self, rounds: int) -> None:
        """Hand out the questions of all rounds, which are so many."""
        self._rounds, self._loaded = rounds, False
        await self.ready()

    # Who is there

    async def knows(self, token: str) -> bool:
        """Whether it is somebody's token. A store that only this process writes to isn't asked."""
        digest = _digest(token)
        if digest not in self._persons and not self._store.blocking:
            await self.learn()
        return digest in self._persons

    async def person(self, token: str) -> Person:
        """Whose token it is, who gave a sign just now. Raises UnknownPersonError."""
        digest = _digest(token)
        if digest not in self._persons or not self._store.blocking:  # which others may write to
            await self.learn()
        person = self._persons.get(digest)
        if person is None:
            raise UnknownPersonError("This link isn't known here. Ask whoever gave it to you.")
        self.own[person.number].sign = self._clock()
        return person

    def is_here(self, own: Own) -> bool:
        """Whether somebody's page is open."""
        return self._clock() - own.sign < HERE

    def may_be_asked(self, person: Person) -> bool:
        """Whether a person has answered fewer questions than they are asked for."""
        if person.state is not PersonState.ACTIVE:
            return False
        return person.quota is None or self.own[person.number].done < person.quota

    @property
    def present(self) -> int:
        """How many people are there, and to be asked more."""
        return sum(
            self.is_here(self.own[person.number]) and self.may_be_asked(person)
            for person in self._persons.values()
        )

    # Who has what

    def match(self, handed: Handed) -> Match:
        """What a question that is out is about."""
        if handed.check is not None:
            return Match(handed.check, 0, self.checks.of(handed.check).items, self._judge)
        return self.matches[handed.job or 0]

    def theirs(self, person: Person, lease: str) -> Handed:
        """What a person has under a lease. Raises StaleError."""
        handed = self.handed.get(person.number)
        if handed is None or handed.lease != lease:
            raise StaleError(GONE)
        return handed

    async def next(self, person: Person) -> Handed | None:
        """Hand out a person's next question: a check that is due, one that nobody has, or one whose
        holder gave no sign for long; first those about items that are new to them, and of these any of
        the earliest round. None where there is none for them."""
        own = self.own[person.number]
        check = self.checks.due(person.number, own.answered, bool(self.open))
        if check is not None:
            handed = await self._hand_out(person, check=check)
            self.checks.put(check)
            return handed
        start = self._random.randrange(len(self.open)) if self.open else 0
        lapsed = {
            handed.job: handed
            for handed in self.handed.values()
            if handed.job is not None and self._is_lapsed(handed.person)
        }
        jobs = [*self.open[start:], *self.open[:start], *lapsed]
        jobs.sort(key=lambda job: self.matches[job].round)
        for may in (partial(self._is_new, own), partial(self._is_theirs_again, person)):
            for job in jobs:
                if may(self.matches[job]):
                    return await self._hand_out(person, job, lapsed=lapsed.get(job))
        return None

    async def _hand_out(
        self,
        person: Person,
        job: int | None = None,
        *,
        check: Check | None = None,
        lapsed: Handed | None = None,
    ) -> Handed:
        """Give a person a job, which somebody had until it `lapsed`, or a new check."""
        number = None if check is None else check.number
        handed = Handed(person.number, secrets.token_hex(8), self._now(), job, number)
        async with self._store.together():
            if check is not None:
                await self._store.put_check(check)
            if lapsed is not None:
                await self._store.take_back(lapsed.lease)
            out = await self._store.hand_out(handed)
        if not out:
            raise BehindError("The question went elsewhere. Try again.")
        if lapsed is not None:
            del self.handed[lapsed.person]
        elif job is not None:
            self.open.remove(job)
        self.handed[person.number] = handed
        return handed

    def _is_lapsed(self, person: int) -> bool:
        """Whether somebody gave no sign for so long that what they have is for others, too."""
        return self._clock() - max(self._began, self.own[person].sign) > LEASE

    def _is_new(self, own: Own, match: Match) -> bool:
        return frozenset(match.items) not in own.seen

    def _is_theirs_again(self, person: Person, match: Match) -> bool:
        """Whether a question may be a person's who judged or skipped its items before: not twice in one
        round, and not while somebody else is there to whom they are new, nor what they skipped while
        somebody else may be asked."""
        if self._has_judged(person, match):
            return False
        others = [other for other in self._able(match) if other != person]
        if person.number in self._skipped.get(match.id, ()):
            return not others
        return not any(
            self.is_here(own) and self._is_new(own, match)
            for own in (self.own[other.number] for other in others)
        )

    def _able(self, match: Match) -> list[Person]:
        """Who may be asked a question, and hasn't judged it, nor skipped it."""
        skipped = self._skipped.get(match.id, ())
        return [
            person
            for person in self._persons.values()
            if self.may_be_asked(person)
            and person.number not in skipped
            and not self._has_judged(person, match)
        ]

    @property
    def awaited(self) -> tuple[set[str], int]:
        """The names of those who are waited for, and how many questions are for nobody."""
        nobody, names = 0, set[str]()
        for match in map(self.matches.__getitem__, self.open if self._persons else ()):
            able = self._able(match)
            new = [one for one in able if self._is_new(self.own[one.number], match)]
            names |= {person.name for person in new or able}
            nobody += not able
        holders = {handed.person for handed in self.handed.values() if handed.job is not None}
        return names | {one.name for one in self._persons.values() if one.number in holders}, nobody

    def _has_judged(self, person: Person, match: Match) -> bool:
        """Whether a person judged these items in this round, as often as they are asked in it."""
        judged = self.own[person.number].judged
        return judged[match.round, frozenset(match.items)] >= self._most

    async def take_back(self, handed: Handed) -> None:
        """What somebody has is no longer theirs in the store. Raises BehindError where it wasn't."""
        if not await self._store.take_back(handed.lease):
            raise BehindError("The question went elsewhere. Try again.")

    async def retract(self, match: Match, person: Person) -> None:
        """An answer is taken back in the store. Raises BehindError where it isn't there."""
        if not await self._store.retract(match.id, self.number_of(person)):
            raise BehindError("The answer isn't there any more.")

    async def give_back(self, person: Person) -> None:
        """A person has nothing any more; what they had is anybody's."""
        handed = self.handed.get(person.number)
        if handed is not None:
            await self._store.take_back(handed.lease)
            self.put_back(handed)

    def put_back(self, handed: Handed) -> None:
        """Note that the store has taken back what a person had."""
        self.handed.pop(handed.person, None)
        if handed.job is not None and handed.job in self.matches:
            self.open.append(handed.job)

    # What was skipped

    def skip(self, person: Person, match: Match) -> bool:
        """A person doesn't want a question; whether it is to be asked no more."""
        self.own[person.number].seen.add(frozenset(match.items))
        self._skipped.setdefault(match.id, []).append(person.number)
        return self.is_refused(match)

    def is_refused(self, match: Match) -> bool:
        """Whether a question was skipped so often that it is asked no more: SKIPS times, or by all that
        there are."""
        skipped = self._skipped.get(match.id, [])
        if len(skipped) >= SKIPS:
            return True
        able = any(
            person.state is not PersonState.REMOVED
            and person.number not in skipped
            and not self._has_judged(person, match)
            for person in self._persons.values()
        )
        return bool(skipped) and not able and not self._open_to_all


def _digest(token: str) -> bytes:
    """What is kept of a link's token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
