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
from judgeq.person import Check, Handed, PersonState
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
        self.people: dict[int, PersonProgress] = {}
        """By number."""
        self.matches: dict[int, Match] = {}
        """Those that people have yet to answer, by job."""
        self._tokens: dict[bytes, int] = {}
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
        calls, out = await self.store.people_calls(), await self.store.handed()
        left = [await self.store.left(round) for round in range(1, self._rounds + 1)]
        await self.learn()
        # From here on without a pause: others look at it meanwhile.
        self.people = {
            number: PersonProgress(before.person, before.last_seen)
            for number, before in self.people.items()
        }
        self.matches = {
            match.id: match for of_round in left for match in of_round if match.judge == self.judge
        }
        try:
            for match, call in calls:
                self.people[(call.judge or 0) - len(self.panel)].add_call(match, call)
            for check in self.checks.by_number.values():
                if check.person is not None:
                    self.people[check.person].add_check(self._match_of(check), check)
            for handed in out:
                if handed.job is None:
                    self.match(handed)
                if handed.job is None or handed.job in self.matches:
                    self.people[handed.person].handed = handed
        except KeyError as error:
            raise RunError(
                "the run's record is damaged: it has answers or questions of people or checks that "
                "don't exist."
            ) from error
        # What was left out, and is asked again (--retry-failed), is also for those who skipped it.
        for match in filter(self._is_refused, self.matches.values()):
            for progress in self.people.values():
                progress.ask_again(match)
        self._loaded = True

    async def learn(self) -> None:
        """Read who the people are."""
        people = await self.store.people()
        self._tokens = {person.token: person.number for person in people}
        for person in people:
            self.people.setdefault(person.number, PersonProgress(person)).person = person

    # Who is there

    async def knows(self, token: str) -> bool:
        """Whether it is a person's token. A store that only this process writes to isn't read."""
        if digest(token) not in self._tokens and not self.store.blocking:
            await self.learn()
        return digest(token) in self._tokens

    async def person(self, token: str) -> PersonProgress:
        """The person of a token, who is seen now. Raises UnknownPersonError."""
        if digest(token) not in self._tokens or not self.store.blocking:
            await self.learn()
        number = self._tokens.get(digest(token))
        if number is None:
            raise UnknownPersonError("This link isn't known here. Ask whoever gave it to you.")
        self.people[number].last_seen = self.clock()
        return self.people[number]

    def is_present(self, person: PersonProgress) -> bool:
        """Whether a person's page is open."""
        return self.clock() - person.last_seen < PRESENT

    @property
    def present(self) -> int:
        """How many people are present who may be asked."""
        return sum(map(self.is_present, self._active()))

    @property
    def all_notified(self) -> bool:
        """Whether all who are present know that the run is over."""
        return all(one.notified_end for one in self.people.values() if self.is_present(one))

    def expected(self, person: PersonProgress) -> int:
        """About how many answers a person will have given in the end, if those who are present share
        what is left."""
        theirs = {
            (match.round, frozenset(match.items))
            for match in self.matches.values()
            if person.times_judged(match) < self.most
        }
        share = -(-len(self.matches) // max(1, self.present))
        expected, quota = person.done + min(self.most * len(theirs), share), person.person.quota
        return expected if quota is None else min(expected, quota)

    # Who has what

    def match(self, handed: Handed) -> Match:
        """What a question is about."""
        if handed.check is not None:
            return self._match_of(self.checks.by_number[handed.check])
        return self.matches[handed.job or 0]

    def _match_of(self, check: Check) -> Match:
        return Match(check.number, 0, check.items, self.judge)

    async def next(self, person: PersonProgress) -> bool:
        """Hand out a person's next question; whether there is one. It is a check that is due; else one
        that nobody has, or whose holder is absent, of the earliest round, about items that are new to
        them if possible."""
        free, check = self._free(), None
        if None in free.values():
            check = self.checks.due(person.person.number, person.answered)
        if check is not None:
            await self._hand_out(person, check=check)
            return True
        jobs = sorted(
            free, key=lambda job: (self.matches[job].round, bool(free[job]), self._random.random())
        )
        for may in (PersonProgress.is_new, self._may_repeat):
            for job in jobs:
                if may(person, self.matches[job]):
                    await self._hand_out(person, job, free[job])
                    return True
        return False

    def _free(self) -> dict[int, PersonProgress | None]:
        """The jobs that nobody has, or whose lease is over: then with who has them."""
        out = {one.handed.job: one for one in self.people.values() if one.handed is not None}
        return {
            job: out.get(job)
            for job in self.matches
            if job not in out or not self._was_seen(out[job], LEASE)
        }

    async def _hand_out(
        self,
        person: PersonProgress,
        job: int | None = None,
        holder: PersonProgress | None = None,
        *,
        check: Check | None = None,
    ) -> None:
        """Give a person a job, which an absent `holder` had, or a new check."""
        handed = self._new(person, job, None if check is None else check.number)
        async with self.store.together():
            await self._exchange(None if holder is None else holder.handed, check, handed)
        if check is not None:
            self.checks.by_number[check.number] = check
        if holder is not None:
            holder.handed = None
        person.handed = handed

    async def give_back(self, person: PersonProgress) -> None:
        """Take a person's question from them, if they have one."""
        handed, person.handed = person.handed, None
        if handed is not None:
            await self.store.take_back(handed.lease)

    async def settle(
        self, person: PersonProgress, reply: str, seconds: float, verdict: Verdict | None
    ) -> None:
        """Commit the answer to the question that a person has; without a verdict they skipped it. Raises
        BehindError if it isn't theirs in the store."""
        handed, person.handed, at = person.handed, None, self.now()
        if handed is None:
            raise StaleError(STALE)
        match, check, outcomes = self.match(handed), None, []
        if handed.check is not None:
            check = self.checks.by_number[handed.check]._replace(
                lease=handed.lease, verdict=verdict, seconds=seconds, at=at
            )
            self.checks.by_number[check.number] = check
            person.add_check(match, check, reply)
        else:
            outcome = "skipped" if verdict is None else "ok"
            judge = len(self.panel) + handed.person
            call = Call(1, outcome, Usage(), 0.0, seconds, reply, at, judge=judge)
            person.add_call(match, call)
            state, error = JobState.DONE, None
            if verdict is None:
                state = JobState.PENDING
                if self._is_refused(match):
                    state, error = JobState.INVALID, "skipped by the people who were asked"
            outcomes.append(Outcome(match.id, state, verdict, (call,), error))
            if state is not JobState.PENDING:
                del self.matches[match.id]
        async with self.store.together():
            await self._exchange(handed, check)
            if outcomes:
                await self.store.settle(WORKER, outcomes)

    async def take_back(self, person: PersonProgress, last: LastAnswer) -> None:
        """Take a person's last answer back: its question is theirs again. Raises BehindError."""
        check = None
        async with self.store.together():
            if last.check is None:
                handed = self._new(person, last.match.id)
                if not await self.store.retract(last.match.id, len(self.panel) + handed.person):
                    raise BehindError("The answer isn't there any more.")
            else:
                handed = self._new(person, check=last.check)
                check = self.checks.by_number[last.check]._replace(
                    lease="", verdict=None, seconds=0.0, at=0.0
                )
            await self._exchange(person.handed, check, handed)
        self.forget()
        await self.ready()

    def _new(
        self, person: PersonProgress, job: int | None = None, check: int | None = None
    ) -> Handed:
        """A question for a person, under a new lease."""
        return Handed(person.person.number, secrets.token_hex(8), self.now(), job, check)

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
        for match in (self.matches[job] for job in self._free() if self.people):
            able = self._able(match)
            if any(map(self.is_present, able)):
                continue
            waiting.for_absent += bool(able)
            waiting.for_nobody += not able
            waiting.absent |= {one.person.name for one in able}
            waiting.substitutes |= {
                one.person.name for one in self._active() if able and match.id in one.skipped
            }
        return waiting

    def _active(self) -> list[PersonProgress]:
        return [one for one in self.people.values() if one.may_be_asked]

    def _was_seen(self, person: PersonProgress, within: float) -> bool:
        """Whether a person's page was open in the last seconds, as far as this process can tell."""
        return self.clock() - max(self._began, person.last_seen) <= within

    def _able(self, match: Match) -> list[PersonProgress]:
        """Who may be asked a question: they haven't judged or skipped it, and were here within AWAITED
        seconds."""
        return [
            one
            for one in self._active()
            if match.id not in one.skipped
            and one.times_judged(match) < self.most
            and self._was_seen(one, AWAITED)
        ]

    def _may_repeat(self, person: PersonProgress, match: Match) -> bool:
        """Whether a person may be asked about items that they judged in another round, or skipped:
        those that are new to somebody else who is present are theirs; and of one who skipped them only
        if nobody else may be asked."""
        if person.times_judged(match) >= self.most:
            return False
        others = [one for one in self._able(match) if one is not person]
        if match.id in person.skipped:
            return not others
        return not any(self.is_present(one) and one.is_new(match) for one in others)

    def _is_refused(self, match: Match) -> bool:
        """Whether a question is asked no more: it was skipped SKIPS times, or by all there are."""
        skips = sum(one.skipped[match.id] for one in self.people.values())
        if skips >= SKIPS or not skips or self.open_to_all:
            return skips >= SKIPS
        return all(
            one.person.state is PersonState.REMOVED
            or match.id in one.skipped
            or one.times_judged(match) >= self.most
            for one in self.people.values()
        )
