"""Which person has which question, and whose the others may be: as the store has it, kept in memory.

Whoever calls sees to it that one thing is done at a time, and after an error reads the store again
(`forget`): what is in memory may be ahead of it.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from judgeq.errors import BehindError, RunError, StaleError, UnknownPersonError
from judgeq.people.checks import Checks
from judgeq.people.progress import LastAnswer, PersonProgress
from judgeq.people.registry import digest
from judgeq.person import Check, Handed, Person, PersonState
from judgeq.store import Store
from judgeq.types import Call, JobState, Match, Outcome, Usage, Verdict

LEASE = 120.0
"""Seconds without a sign of a person's page after which others may get their question."""
PRESENT = 60.0
"""Seconds without a sign of a person's page after which they count as absent."""
AWAITED = 86_400.0
"""Seconds for which an absent person is waited for."""
SKIPS = 3
"""Times that a question may be skipped before it is left out."""
WORKER = "people"
STALE = "This question is no longer yours: it was answered in another window, or given to another judge."


@dataclass(slots=True)
class Waiting:
    """Questions that none of the people who are present may answer."""

    for_absent: int = 0
    """Those that people who are absent may answer."""
    for_nobody: int = 0
    """Those that nobody may answer."""
    absent: set[str] = field(default_factory=set)
    """The names of those who may."""
    substitutes: set[str] = field(default_factory=set)
    """The names of those who get them once nobody else may: they skipped them."""


@dataclass
class Assignment:
    """The questions of one run's people."""

    store: Store
    checks: Checks
    panel: Sequence[str] = ("people",)
    """The run's judges by name; a person's number among all judges comes after these."""
    judge: int = 0
    """Which of the panel stands for people."""
    open_to_all: bool = False
    most: int = 1
    """How often a person may be asked about the same items in one round."""
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    order: int | None = None
    """The seed of the order of questions within a round."""

    def __post_init__(self) -> None:
        self.progress: dict[int, PersonProgress] = {}
        self.handed: dict[int, Handed] = {}
        """By person."""
        self.matches: dict[int, Match] = {}
        """Those that people have yet to answer, by job."""
        self._persons: dict[bytes, Person] = {}
        self._random = random.Random(self.order)  # noqa: S311  (of questions)
        self._began = self.clock()
        self._rounds = 0
        self._loaded = False

    # What the store has

    def forget(self) -> None:
        """Read the store again before anything else is done."""
        self._loaded = False

    async def begin(self, rounds: int) -> None:
        """Hand out the questions of all `rounds`."""
        self._rounds, self._loaded = rounds, False
        await self.ready()

    async def ready(self) -> None:
        """Read the store, if that is needed. Raises RunError for people and checks that don't exist."""
        if self._loaded:
            return
        await self.checks.load()
        calls, out = await self.store.said(), await self.store.handed()
        left = [await self.store.left(round) for round in range(1, self._rounds + 1)]
        await self.learn()
        # From here on without a pause: others look at it meanwhile.
        seen = {number: progress.last_seen for number, progress in self.progress.items()}
        self.progress = {number: PersonProgress(last_seen=at) for number, at in seen.items()}
        for match, call in calls:
            self._of((call.judge or 0) - len(self.panel)).add_call(match, call)
        for check in self.checks.by_number.values():
            if check.person is not None:
                self._of(check.person).add_check(self._match_of(check), check)
        self.matches = {
            match.id: match for of_round in left for match in of_round if match.judge == self.judge
        }
        people = {person.number for person in self._persons.values()}
        if not (
            self.progress.keys() | {handed.person for handed in out} <= people
            and {handed.check for handed in out} <= {None, *self.checks.by_number}
        ):
            raise RunError(
                "the run's record is damaged: it has answers or questions of people or checks that "
                "don't exist."
            )
        self.handed = {
            handed.person: handed
            for handed in out
            if handed.job is None or handed.job in self.matches
        }
        # What was left out, and is asked again (--retry-failed), is also for those who skipped it.
        for match in filter(self._is_refused, self.matches.values()):
            for progress in self.progress.values():
                if match.id in progress.skipped:
                    progress.ask_again(match)
        self._loaded = True

    async def learn(self) -> None:
        """Read who the people are."""
        self._persons = {person.token: person for person in await self.store.people()}
        for person in self._persons.values():
            self._of(person.number)

    def _of(self, number: int) -> PersonProgress:
        return self.progress.setdefault(number, PersonProgress())

    # Who is there

    async def knows(self, token: str) -> bool:
        """Whether it is a person's token. A store that only this process writes to isn't read."""
        if digest(token) not in self._persons and not self.store.blocking:
            await self.learn()
        return digest(token) in self._persons

    async def person(self, token: str) -> Person:
        """The person of a token, who is seen now. Raises UnknownPersonError."""
        if digest(token) not in self._persons or not self.store.blocking:
            await self.learn()
        person = self._persons.get(digest(token))
        if person is None:
            raise UnknownPersonError("This link isn't known here. Ask whoever gave it to you.")
        self.progress[person.number].last_seen = self.clock()
        return person

    def is_present(self, number: int) -> bool:
        """Whether a person's page is open."""
        return self.clock() - self.progress[number].last_seen < PRESENT

    def may_be_asked(self, person: Person) -> bool:
        """Whether a person has answered fewer questions than they are asked for."""
        if person.state is not PersonState.ACTIVE:
            return False
        return person.quota is None or self.progress[person.number].done < person.quota

    @property
    def present(self) -> int:
        """How many people are present who may be asked."""
        return sum(map(self.is_present, (one.number for one in self._asked())))

    @property
    def all_notified(self) -> bool:
        """Whether all who are present know that the run is over."""
        return not any(
            self.is_present(number) and not progress.notified_end
            for number, progress in self.progress.items()
        )

    def expected(self, person: Person) -> int:
        """About how many answers a person will have given in the end, if those who are present share
        what is left."""
        progress = self.progress[person.number]
        theirs = {
            (match.round, frozenset(match.items))
            for match in self.matches.values()
            if not self._has_judged(person, match)
        }
        share = -(-len(self.matches) // max(1, self.present))
        expected = progress.done + min(self.most * len(theirs), share)
        return expected if person.quota is None else min(expected, person.quota)

    # Who has what

    def match(self, handed: Handed) -> Match:
        """What a question is about."""
        if handed.check is not None:
            return self._match_of(self.checks.by_number[handed.check])
        return self.matches[handed.job or 0]

    def _match_of(self, check: Check) -> Match:
        return Match(check.number, 0, check.items, self.judge)

    def theirs(self, person: Person, lease: str) -> Handed:
        """The question that a person has under this lease. Raises StaleError."""
        handed = self.handed.get(person.number)
        if handed is None or handed.lease != lease:
            raise StaleError(STALE)
        return handed

    async def next(self, person: Person) -> Handed | None:
        """Hand out a person's next question: a check that is due; else one that nobody has, or whose
        holder is absent, of the earliest round, about items that are new to them if possible. None if
        none may be theirs."""
        free, check = self._free(), None
        if None in free.values():
            check = self.checks.due(person.number, self.progress[person.number].answered)
        if check is not None:
            return await self._hand_out(person, check=check)
        jobs = sorted(
            free, key=lambda job: (self.matches[job].round, bool(free[job]), self._random.random())
        )
        for may in (self._is_new, self._may_repeat):
            for job in jobs:
                if may(person, self.matches[job]):
                    return await self._hand_out(person, job, free[job])
        return None

    def _free(self) -> dict[int, Handed | None]:
        """The jobs that nobody has, or whose lease is over: then with who has them."""
        out = {handed.job: handed for handed in self.handed.values()}
        return {
            job: out.get(job)
            for job in self.matches
            if job not in out or not self._was_seen(out[job].person, LEASE)
        }

    async def _hand_out(
        self,
        person: Person,
        job: int | None = None,
        before: Handed | None = None,
        *,
        check: Check | None = None,
    ) -> Handed:
        """Give a person a job, which another had `before`, or a new check."""
        handed = self._new(person, job, None if check is None else check.number)
        async with self.store.together():
            await self._exchange(before, check, handed)
        if check is not None:
            self.checks.by_number[check.number] = check
        if before is not None:
            del self.handed[before.person]
        self.handed[person.number] = handed
        return handed

    async def give_back(self, person: Person) -> None:
        """Take a person's question from them, if they have one."""
        handed = self.handed.pop(person.number, None)
        if handed is not None:
            await self.store.take_back(handed.lease)

    async def settle(
        self, handed: Handed, reply: str, seconds: float, verdict: Verdict | None
    ) -> None:
        """Commit the answer to a question; without a verdict it was skipped. Raises BehindError if the
        question isn't theirs in the store."""
        match, progress, at = self.match(handed), self.progress[handed.person], self.now()
        check, outcomes = None, []
        if handed.check is not None:
            check = self.checks.by_number[handed.check]._replace(
                lease=handed.lease, verdict=verdict, seconds=seconds, at=at
            )
            self.checks.by_number[check.number] = check
            progress.add_check(match, check, reply)
        else:
            outcome = "skipped" if verdict is None else "ok"
            judge = len(self.panel) + handed.person
            call = Call(1, outcome, Usage(), 0.0, seconds, reply, at, judge=judge)
            progress.add_call(match, call)
            state, error = JobState.DONE, None
            if verdict is None:
                state = JobState.PENDING
                if self._is_refused(match):
                    state, error = JobState.INVALID, "skipped by the people who were asked"
            outcomes.append(Outcome(match.id, state, verdict, (call,), error))
            if state is not JobState.PENDING:
                del self.matches[match.id]
        del self.handed[handed.person]
        async with self.store.together():
            await self._exchange(handed, check)
            if outcomes:
                await self.store.settle(WORKER, outcomes)

    async def take_back(self, person: Person, last: LastAnswer) -> None:
        """Take a person's last answer back: its question is theirs again. Raises BehindError."""
        check = None
        async with self.store.together():
            if last.check is None:
                handed = self._new(person, last.match.id)
                if not await self.store.retract(last.match.id, len(self.panel) + person.number):
                    raise BehindError("The answer isn't there any more.")
            else:
                handed = self._new(person, check=last.check)
                check = self.checks.by_number[last.check]._replace(
                    lease="", verdict=None, seconds=0.0, at=0.0
                )
            await self._exchange(self.handed.get(person.number), check, handed)
        self.forget()
        await self.ready()

    def _new(self, person: Person, job: int | None = None, check: int | None = None) -> Handed:
        """A question for a person, under a new lease."""
        return Handed(person.number, secrets.token_hex(8), self.now(), job, check)

    async def _exchange(
        self, back: Handed | None, check: Check | None = None, out: Handed | None = None
    ) -> None:
        """Keep a check, take a question back and hand another out, in the store. Raises BehindError if
        another process changed who has what."""
        if check is not None:
            await self.store.put_check(check)
        if (back is not None and not await self.store.take_back(back.lease)) or (
            out is not None and not await self.store.hand_out(out)
        ):
            raise BehindError("The question was given to another judge. Try again.")

    # Who may be asked what

    def waiting(self) -> Waiting:
        """What nobody who is present may answer."""
        waiting = Waiting()
        for match in (self.matches[job] for job in self._free() if self._persons):
            able = self._able(match)
            if any(self.is_present(person.number) for person in able):
                continue
            waiting.for_absent += bool(able)
            waiting.for_nobody += not able
            waiting.absent |= {person.name for person in able}
            waiting.substitutes |= {
                person.name for person in self._asked() if able and self._has_skipped(person, match)
            }
        return waiting

    def _asked(self) -> list[Person]:
        return [person for person in self._persons.values() if self.may_be_asked(person)]

    def _was_seen(self, number: int, within: float) -> bool:
        """Whether a person's page was open in the last seconds, as far as this process can tell."""
        return self.clock() - max(self._began, self.progress[number].last_seen) <= within

    def _is_new(self, person: Person, match: Match) -> bool:
        return self.progress[person.number].is_new(match)

    def _may_repeat(self, person: Person, match: Match) -> bool:
        """Whether a person may be asked about items that they judged in another round, or skipped:
        those that are new to somebody else who is present are theirs; and of one who skipped them only
        if nobody else may be asked."""
        if self._has_judged(person, match):
            return False
        others = [other for other in self._able(match) if other != person]
        if self._has_skipped(person, match):
            return not others
        return not any(
            self.is_present(other.number) and self._is_new(other, match) for other in others
        )

    def _able(self, match: Match) -> list[Person]:
        """Who may be asked a question: they haven't judged or skipped it, and were here within AWAITED
        seconds."""
        return [
            person
            for person in self._asked()
            if not self._has_skipped(person, match)
            and not self._has_judged(person, match)
            and self._was_seen(person.number, AWAITED)
        ]

    def _has_judged(self, person: Person, match: Match) -> bool:
        """Whether a person judged these items in this round as often as they may."""
        return self.progress[person.number].times_judged(match) >= self.most

    def _has_skipped(self, person: Person, match: Match) -> bool:
        return match.id in self.progress[person.number].skipped

    def _is_refused(self, match: Match) -> bool:
        """Whether a question is asked no more: it was skipped SKIPS times, or by all there are."""
        skips = sum(progress.skipped[match.id] for progress in self.progress.values())
        if skips >= SKIPS or not skips or self.open_to_all:
            return skips >= SKIPS
        return all(
            person.state is PersonState.REMOVED
            or self._has_skipped(person, match)
            or self._has_judged(person, match)
            for person in self._persons.values()
        )
