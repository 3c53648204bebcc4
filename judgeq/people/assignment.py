"""Which person has which question, and whose the others may be: as the store has it, kept in memory.

Whoever calls sees to it that one thing is done at a time, and after an error reads the store again
(`forget`): what is in memory may be ahead of it.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from judgeq.errors import RunError, StoreAwayError
from judgeq.people import checks
from judgeq.people.registry import digest
from judgeq.person import Check, Handed, Person, PersonState, lease_of
from judgeq.store import Store
from judgeq.types import Call, JobState, Match, Outcome, Usage, Verdict

T = TypeVar("T", Check, Person)
LEASE = 120.0
"""Seconds without a sign of a person's page after which others may get their question."""
PRESENT = 60.0
"""Seconds without a sign of a person's page after which they count as absent."""
MAX_UNDONE = 20
"""Answers that a person may take back, one after the other: those before them stand."""
SKIPS = 3
"""Times that a question may be skipped before it is left out."""
NEVER = float("-inf")
ROUNDING_ERROR = 1e-6
"""Answers. Sums of shares are less exact than whole numbers."""
WORKER = "people"
DAMAGED = "the run's record is damaged: it has answers of people, or checks, that don't exist."
STALE = "This question is no longer yours: it was answered in another window, or given to another judge."


class LastAnswer(NamedTuple):
    """The last answer of a person."""

    at: float
    lease: str
    match: Match
    reply: str = ""
    """As the call keeps it; "" of a check that was read from the store."""
    check: Check | None = None


@dataclass(slots=True, eq=False)
class PersonProgress:
    """A person, what they have, and what they did in this run, as their calls and checks say it."""

    person: Person
    last_seen: float = NEVER
    """When their page last asked for something, by the monotonic clock."""
    handed: Handed | None = None
    """The question that they have."""
    judged: Counter[tuple[int, frozenset[int]]] = field(default_factory=Counter)
    """How often they judged a set of items in a round; in round 0 in all rounds."""
    skipped: set[int] = field(default_factory=set)
    """The jobs that they skipped."""
    answered: list[Match] = field(default_factory=list)
    """What their answers are about, the oldest first, without checks."""
    done: int = 0
    """Their answers, also to checks."""
    seconds: float = 0.0
    """The time that all answers took."""
    last: LastAnswer | None = None
    undone_since: int = 0
    """How many answers they gave after the last one that stands, and took back."""
    notified_end: bool = False
    """Whether their page knows that the run is over."""

    @property
    def may_be_asked(self) -> bool:
        """Whether they are active, and gave fewer answers than they are asked for."""
        quota = self.person.quota
        return self.person.state is PersonState.ACTIVE and (quota is None or self.done < quota)

    @property
    def may_take_back(self) -> bool:
        """Return whether they may take their last answer back: they are asked, and have taken back fewer
        than MAX_UNDONE of the answers that they gave after it."""
        is_active = self.person.state is PersonState.ACTIVE
        return self.last is not None and is_active and self.undone_since < MAX_UNDONE

    def add_call(self, match: Match, call: Call) -> None:
        """Count an answer or a skip; an answer that was taken back is neither."""
        if call.outcome == "undone":
            self.undone_since += 1
        if call.outcome == "skipped":
            self.skipped.add(match.id)
        elif call.outcome == "ok":
            self.undone_since = 0
            items, reply = frozenset(match.items), call.reply or ""
            self.judged.update([(0, items), (match.round, items)])
            self.answered.append(match)
            self.add(LastAnswer(call.at, lease_of(reply), match, reply), call.latency)

    def add(self, answer: LastAnswer, seconds: float) -> None:
        """Count an answer, to a question or a check."""
        self.done += 1
        self.seconds += seconds
        if self.last is None or answer.at >= self.last.at:
            self.last = answer


@dataclass
class Assignment:
    """The questions of one run's people."""

    store: Store
    panel: Sequence[str] = ("people",)
    """The run's judges by name; a person's number among all judges comes after these."""
    judge: int = 0
    """Which of the panel stands for people."""
    open_to_all: bool = False
    most: int = 1
    """How often a person may be asked about the same items in one round."""
    repeats: float = 0.0
    """The share of their questions that people are asked again."""
    seed: int = 0
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.people: dict[int, PersonProgress] = {}
        """By number."""
        self.matches: dict[int, Match] = {}
        """Those that people have yet to answer, by job, in the order in which they are asked."""
        self._open: Counter[tuple[int, frozenset[int]]] = Counter()
        """How many of the matches are about a set of items in a round."""
        self._checks: list[Check] = []
        """By number."""
        self._skips: Counter[int] = Counter()
        self._began = self.clock()
        self._loaded = False

    # What the store has

    def forget(self) -> None:
        """Read the store again before anything else is done."""
        self._loaded = False

    async def ready(self) -> None:
        """Read the store, if that is needed. Raises RunError for people and checks that don't exist."""
        if self._loaded:
            return
        kept, calls, out = (
            await self.store.checks(),
            await self.store.people_calls(),
            await self.store.handed(),
        )
        left, round = list[Match](), 1
        while await self.store.round_state(round) is not None:
            left += await self.store.left(round)
            round += 1
        await self.learn()
        # From here on without a pause: others look at it meanwhile.
        self.people = {
            number: PersonProgress(before.person, before.last_seen)
            for number, before in self.people.items()
        }
        matches = [match for match in left if match.judge == self.judge]
        order = random.Random(self.seed)  # noqa: S311  (of questions)
        matches.sort(key=lambda match: (match.round, order.random()))
        self.matches = {match.id: match for match in matches}
        self._open = Counter((match.round, frozenset(match.items)) for match in matches)
        self._checks = _numbered(kept)
        self._skips = Counter(match.id for match, call in calls if call.outcome == "skipped")
        try:
            for match, call in calls:
                self.people[(call.judge or 0) - len(self.panel)].add_call(match, call)
            for check in kept:
                if check.person is not None:
                    self._add_check(self.people[check.person], check)
            for handed in out:
                if handed.job is None or handed.job in self.matches:
                    self.match(handed)
                    self.people[handed.person].handed = handed
        except LookupError as error:
            raise RunError(DAMAGED) from error
        self._loaded = True

    async def learn(self) -> None:
        """Read who the people are."""
        for person in _numbered(await self.store.people()):
            self.people.setdefault(person.number, PersonProgress(person)).person = person

    def _add_check(self, person: PersonProgress, check: Check, reply: str = "") -> None:
        """Count a person's answer to a check, if it has one."""
        if check.verdict is not None:
            answer = LastAnswer(check.at, check.lease, self._match_of(check), reply, check)
            person.add(answer, check.seconds)

    # Who is there

    async def find(self, token: str) -> PersonProgress | None:
        """The person of a token; None if it is nobody's."""
        await self.learn()
        known = digest(token)
        return next((one for one in self.people.values() if one.person.token == known), None)

    def is_present(self, person: PersonProgress) -> bool:
        """Whether a person's page is open."""
        return self.clock() - person.last_seen < PRESENT

    def active(self) -> list[PersonProgress]:
        """Those who may be asked."""
        return [one for one in self.people.values() if one.may_be_asked]

    def expected(self, person: PersonProgress) -> int:
        """Return about how many answers a person will have given in the end: those that they gave, and
        the questions that they can still be asked. A question that needs fewer answers than those who
        are present can give counts as their share of it."""
        present = [one for one in self.active() if self.is_present(one) and one is not person]
        present.append(person)
        shares = {
            open_now: self._share(open_now, [self.most] * len(present))
            for open_now in set(self._open.values())
        }
        left = sum(map(shares.__getitem__, self._open.values()))
        for key in set().union(*(one.judged for one in present)):
            open_now = self._open.get(key, 0)
            if open_now:  # those of round 0 are never open
                left += self._share_of(present, key) - shares[open_now]
        for job in person.skipped & self.matches.keys():
            match = self.matches[job]
            if not self._may(person, match):
                left -= self._share_of(present, (match.round, frozenset(match.items)))
        expected = person.done + math.ceil(max(0.0, left) - ROUNDING_ERROR)
        quota = person.person.quota
        return expected if quota is None else min(expected, quota)

    def _share_of(
        self, present: Sequence[PersonProgress], key: tuple[int, frozenset[int]]
    ) -> float:
        """Return the answers about a set of items in a round that the last of these will give."""
        return self._share(
            self._open[key], [max(0, self.most - one.judged[key]) for one in present]
        )

    @staticmethod
    def _share(open_now: int, room: Sequence[int]) -> float:
        """Return the answers that the last of some people will give, if they share those that are
        needed. `room`: how many answers each may give."""
        may = [min(open_now, one) for one in room]
        return may[-1] * min(1.0, open_now / max(1, sum(may)))

    # Who has what

    def match(self, handed: Handed) -> Match:
        """What a question is about."""
        if handed.check is not None:
            return self._match_of(self._checks[handed.check])
        return self.matches[handed.job or 0]

    def _match_of(self, check: Check) -> Match:
        return Match(check.number, 0, check.items, self.judge)

    async def next(self, person: PersonProgress) -> bool:
        """Hand out a person's next question; whether there is one. It is one that nobody has, or whose
        holder is absent, of the earliest round, about items that are new to them if possible; or a check
        that is due."""
        holders = {one.handed.job: one for one in self.people.values() if one.handed is not None}
        match = self._next_match(person, {job for job, one in holders.items() if self._holds(one)})
        if match is None:
            return False
        holder, out = holders.get(match.id), self._new(person, match.id)
        of = self.repeats, self.seed, person.person.number
        if check := checks.due(self._checks, person.answered, *of):
            holder, out = None, self._new(person, check=check.number)
        await self._exchange(None if holder is None else holder.handed, check, out)
        if check is not None:
            self._checks.append(check)
        if holder is not None:
            holder.handed = None
        person.handed = out
        return True

    def _next_match(self, person: PersonProgress, held: set[int | None]) -> Match | None:
        able = (
            one for one in self.matches.values() if one.id not in held and self._may(person, one)
        )
        repeated = None
        for match in able:
            if not person.judged[0, frozenset(match.items)]:
                return match
            repeated = repeated or match
        return repeated

    async def give_back(self, person: PersonProgress) -> None:
        """Take a person's question from them, if they have one."""
        handed, person.handed = person.handed, None
        if handed is not None:
            await self.store.take_back(handed.lease)

    async def settle(
        self,
        person: PersonProgress,
        handed: Handed,
        reply: str,
        seconds: float,
        verdict: Verdict | None,
    ) -> Call | None:
        """Commit the answer to the question that a person has; without a verdict they skipped it. The
        call that it is; None for a check."""
        person.handed, at = None, self.now()
        if handed.check is not None:
            check = self._checks[handed.check]._replace(
                lease=handed.lease, verdict=verdict, seconds=seconds, at=at
            )
            self._checks[check.number] = check
            self._add_check(person, check, reply)
            await self._exchange(handed, check)
            return None
        match, state, error = self.match(handed), JobState.DONE, None
        outcome = "skipped" if verdict is None else "ok"
        judge = len(self.panel) + handed.person
        call = Call(1, outcome, Usage(), 0.0, seconds, reply, at, judge=judge)
        person.add_call(match, call)
        if verdict is None:
            self._skips[match.id] += 1
            state = JobState.PENDING
            if self._is_refused(match):
                state, error = JobState.INVALID, "skipped by the people who were asked"
        if state is not JobState.PENDING:
            del self.matches[match.id]
            key = match.round, frozenset(match.items)
            self._open[key] -= 1
        await self._exchange(handed, outcome=Outcome(match.id, state, verdict, (call,), error))
        return call

    async def take_back(self, person: PersonProgress, last: LastAnswer) -> PersonProgress:
        """Take a person's last answer back: its question is theirs again. The person then."""
        check, retracted = None, None
        if last.check is None:
            out = self._new(person, last.match.id)
            retracted = last.match.id, len(self.panel) + out.person
        else:
            out = self._new(person, check=last.check.number)
            check = last.check._replace(lease="", verdict=None, seconds=0.0, at=0.0)
        await self._exchange(person.handed, check, out, retracted=retracted)
        self.forget()
        await self.ready()
        return self.people[person.person.number]

    def _new(
        self, person: PersonProgress, job: int | None = None, check: int | None = None
    ) -> Handed:
        """A question for a person, under a new lease."""
        return Handed(person.person.number, secrets.token_hex(8), self.now(), job, check)

    async def _exchange(
        self,
        back: Handed | None,
        check: Check | None = None,
        out: Handed | None = None,
        *,
        outcome: Outcome | None = None,
        retracted: tuple[int, int] | None = None,
    ) -> None:
        """In one transaction retract an answer, keep a check, take a question back, hand another out,
        settle an outcome. Raises StoreAwayError if another process changed who has what."""
        async with self.store.together():
            if check is not None:
                await self.store.put_check(check)
            if (
                (retracted is not None and not await self.store.retract(*retracted))
                or (back is not None and not await self.store.take_back(back.lease))
                or (out is not None and not await self.store.hand_out(out))
            ):
                raise StoreAwayError("The question was given to another judge. Try again.")
            if outcome is not None:
                await self.store.settle(WORKER, [outcome])

    # Who may be asked what

    def awaited(self) -> list[str] | None:
        """The names of absent people who may be asked, where nobody who is here has a question, though
        some are left; else None."""
        held = any(one.handed is not None and self._holds(one) for one in self.people.values())
        if held or not self.matches:
            return None
        return sorted(one.person.name for one in self.active() if not self.is_present(one))

    def _holds(self, person: PersonProgress) -> bool:
        """Whether what a person has is still theirs, as far as this process can tell."""
        return self.clock() - max(self._began, person.last_seen) <= LEASE

    def _judged(self, person: PersonProgress, match: Match) -> bool:
        """Whether a person judged these items in this round as often as they may."""
        return person.judged[match.round, frozenset(match.items)] >= self.most

    def _is_left(self, match: Match, people: Sequence[PersonProgress]) -> bool:
        """Whether a question is for one of these, who neither judged nor skipped it."""
        return any(match.id not in one.skipped and not self._judged(one, match) for one in people)

    def _may(self, person: PersonProgress, match: Match) -> bool:
        """Whether a person may be asked a question: of those that they skipped, what is for nobody
        else."""
        if self._judged(person, match):
            return False
        return match.id not in person.skipped or not self._is_left(match, self.active())

    def _is_refused(self, match: Match) -> bool:
        """Whether a question that was skipped is asked no more: SKIPS times, or by all there are."""
        state = PersonState.ACTIVE
        there = [one for one in self.people.values() if one.person.state is state]
        by_all = not self.open_to_all and not self._is_left(match, there)
        return by_all or self._skips[match.id] >= SKIPS


def _numbered(things: Sequence[T]) -> list[T]:
    """The same. Raises RunError unless their numbers are 0, 1 and so on."""
    if [one.number for one in things] != [*range(len(things))]:
        raise RunError(DAMAGED)
    return list(things)
