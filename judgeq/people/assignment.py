"""Which person has which question, and whose the others may be: as the store has it, kept in memory.

Whoever calls sees to it that one thing is done at a time, and after an error reads the store again
(`forget`): what is in memory may be ahead of it.
"""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from judgeq.errors import RunError, StaleError, StoreAwayError, UnknownPersonError
from judgeq.people import checks
from judgeq.people.answers import lease_of
from judgeq.people.registry import digest
from judgeq.person import Check, Handed, Person, PersonState
from judgeq.store import Store
from judgeq.types import Call, JobState, Match, Outcome, Usage, Verdict

LEASE = 120.0
"""Seconds without a sign of a person's page after which others may get their question."""
PRESENT = 60.0
"""Seconds without a sign of a person's page after which they count as absent."""
SKIPS = 3
"""Times that a question may be skipped before it is left out."""
NEVER = float("-inf")
WORKER = "people"
DAMAGED = "the run's record is damaged: it has answers of people, or checks, that don't exist."
STALE = "This question is no longer yours: it was answered in another window, or given to another judge."


@dataclass(slots=True)
class LastAnswer:
    """The last answer of a person."""

    at: float
    lease: str
    match: Match
    reply: str
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
    """How often they judged a set of items in a round."""
    seen: set[frozenset[int]] = field(default_factory=set)
    """The sets of items that they judged."""
    skipped: set[int] = field(default_factory=set)
    """The jobs that they skipped."""
    answered: list[Match] = field(default_factory=list)
    """What their answers are about, the oldest first, without checks."""
    checks: dict[int, Check] = field(default_factory=dict)
    """The checks that they were asked, by number."""
    seconds: float = 0.0
    """The time that all answers took."""
    last: LastAnswer | None = None
    notified_end: bool = False
    """Whether their page knows that the run is over."""

    @property
    def done(self) -> int:
        """Their answers, also to checks."""
        return len(self.answered) + sum(one.verdict is not None for one in self.checks.values())

    @property
    def may_be_asked(self) -> bool:
        """Whether they are active, and gave fewer answers than they are asked for."""
        quota = self.person.quota
        return self.person.state is PersonState.ACTIVE and (quota is None or self.done < quota)

    def add_call(self, match: Match, call: Call) -> None:
        """Count an answer or a skip; an answer that was taken back is neither."""
        if call.outcome == "skipped":
            self.skipped.add(match.id)
        elif call.outcome == "ok":
            items, reply = frozenset(match.items), call.reply or ""
            self.seen.add(items)
            self.judged[match.round, items] += 1
            self.answered.append(match)
            self._add(LastAnswer(call.at, lease_of(reply), match, reply), call.latency)

    def add_check(self, match: Match, check: Check, reply: str = "") -> None:
        """Count a check, and the answer to it, if it has one."""
        self.checks[check.number] = check
        if check.verdict is not None:
            self._add(LastAnswer(check.at, check.lease, match, reply, check), check.seconds)

    def _add(self, answer: LastAnswer, seconds: float) -> None:
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
    order: int | None = None
    """The seed of the order of questions within a round."""

    def __post_init__(self) -> None:
        self.people: dict[int, PersonProgress] = {}
        """By number."""
        self.matches: dict[int, Match] = {}
        """Those that people have yet to answer, by job, in the order in which they are asked."""
        self._checks: dict[int, Check] = {}
        self._known: list[tuple[int, ...]] = []
        self._skips: Counter[int] = Counter()
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
        kept, calls, out = (
            await self.store.checks(),
            await self.store.people_calls(),
            await self.store.handed(),
        )
        left = [await self.store.left(round) for round in range(1, self._rounds + 1)]
        await self.learn()
        # From here on without a pause: others look at it meanwhile.
        self.people = {
            number: PersonProgress(before.person, before.last_seen)
            for number, before in self.people.items()
        }
        matches = [match for of_round in left for match in of_round if match.judge == self.judge]
        matches.sort(key=lambda match: (match.round, self._random.random()))
        self.matches = {match.id: match for match in matches}
        self._checks = {check.number: check for check in kept}
        self._known = [check.known for check in kept if check.person is None]
        self._skips = Counter(match.id for match, call in calls if call.outcome == "skipped")
        try:
            for match, call in calls:
                self.people[(call.judge or 0) - len(self.panel)].add_call(match, call)
            for number in range(len(kept)):
                check = self._checks[number]
                if check.person is not None:
                    self.people[check.person].add_check(self._match_of(check), check)
            for handed in out:
                if handed.job is None or handed.job in self.matches:
                    self.match(handed)
                    self.people[handed.person].handed = handed
        except KeyError as error:
            raise RunError(DAMAGED) from error
        self._loaded = True

    async def learn(self) -> None:
        """Read who the people are."""
        people = await self.store.people()
        if [person.number for person in people] != [*range(len(people))]:
            raise RunError(DAMAGED)
        self._tokens = {person.token: person.number for person in people}
        for person in people:
            self.people.setdefault(person.number, PersonProgress(person)).person = person

    # Who is there

    async def find(self, token: str) -> PersonProgress | None:
        """The person of a token; None if it is nobody's."""
        if digest(token) not in self._tokens or not self.store.blocking:
            await self.learn()
        number = self._tokens.get(digest(token))
        return None if number is None else self.people[number]

    async def person(self, token: str) -> PersonProgress:
        """The person of a token, who is seen now. Raises UnknownPersonError."""
        person = await self.find(token)
        if person is None:
            raise UnknownPersonError("This link isn't known here. Ask whoever gave it to you.")
        person.last_seen = self.clock()
        return person

    def is_present(self, person: PersonProgress) -> bool:
        """Whether a person's page is open."""
        return self.clock() - person.last_seen < PRESENT

    def active(self) -> list[PersonProgress]:
        """Those who may be asked."""
        return [one for one in self.people.values() if one.may_be_asked]

    def expected(self, person: PersonProgress) -> int:
        """About how many answers a person will have given in the end, if those who are present share
        what is left."""
        present = sum(map(self.is_present, self.active()))
        expected, quota = person.done - (-len(self.matches) // max(1, present)), person.person.quota
        return expected if quota is None else min(expected, quota)

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
        job, repeated = None, None
        holders = self._holders()
        for number, match in self.matches.items():
            if (number in holders and self._holds(holders[number])) or not self._may(person, match):
                continue
            if frozenset(match.items) not in person.seen:
                job = number
                break
            repeated = number if repeated is None else repeated
        job = repeated if job is None else job
        if job is None:
            return False
        holder, out = holders.get(job), self._new(person, job)
        check = checks.due(
            person.checks, self._known, person.answered, self.repeats, self.seed, out.person
        )
        if check is not None:
            check = check._replace(number=len(self._checks))
            holder, out = None, self._new(person, check=check.number)
        await self._exchange(None if holder is None else holder.handed, check, out)
        if check is not None:
            self._checks[check.number] = person.checks[check.number] = check
        if holder is not None:
            holder.handed = None
        person.handed = out
        return True

    async def give_back(self, person: PersonProgress) -> None:
        """Take a person's question from them, if they have one."""
        handed, person.handed = person.handed, None
        if handed is not None:
            await self.store.take_back(handed.lease)

    async def settle(
        self, person: PersonProgress, reply: str, seconds: float, verdict: Verdict | None
    ) -> None:
        """Commit the answer to the question that a person has; without a verdict they skipped it."""
        handed, person.handed, at = person.handed, None, self.now()
        if handed is None:
            raise StaleError(STALE)
        match, check, outcomes = self.match(handed), None, []
        if handed.check is not None:
            check = self._checks[handed.check]._replace(
                lease=handed.lease, verdict=verdict, seconds=seconds, at=at
            )
            self._checks[check.number] = check
            person.add_check(match, check, reply)
        else:
            outcome = "skipped" if verdict is None else "ok"
            judge = len(self.panel) + handed.person
            call = Call(1, outcome, Usage(), 0.0, seconds, reply, at, judge=judge)
            person.add_call(match, call)
            state, error = JobState.DONE, None
            if verdict is None:
                self._skips[match.id] += 1
                state = JobState.PENDING
                if self._is_refused(match):
                    state, error = JobState.INVALID, "skipped by the people who were asked"
            outcomes.append(Outcome(match.id, state, verdict, (call,), error))
            if state is not JobState.PENDING:
                del self.matches[match.id]
        await self._exchange(handed, check, outcomes=outcomes)

    async def take_back(self, person: PersonProgress, last: LastAnswer) -> None:
        """Take a person's last answer back: its question is theirs again."""
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
        outcomes: Sequence[Outcome] = (),
        retracted: tuple[int, int] | None = None,
    ) -> None:
        """In one transaction retract an answer, keep a check, take a question back, hand another out,
        settle outcomes. Raises StoreAwayError if another process changed who has what."""
        async with self.store.together():
            if check is not None:
                await self.store.put_check(check)
            if (
                (retracted is not None and not await self.store.retract(*retracted))
                or (back is not None and not await self.store.take_back(back.lease))
                or (out is not None and not await self.store.hand_out(out))
            ):
                raise StoreAwayError("The question was given to another judge. Try again.")
            if outcomes:
                await self.store.settle(WORKER, outcomes)

    # Who may be asked what

    def awaited(self) -> list[str] | None:
        """The names of absent people who may be asked, where nobody who is here has a question, though
        some are left; else None."""
        if not self.matches or any(map(self._holds, self._holders().values())):
            return None
        return sorted(one.person.name for one in self.active() if not self.is_present(one))

    def _holders(self) -> dict[int | None, PersonProgress]:
        """Who has which job."""
        return {one.handed.job: one for one in self.people.values() if one.handed is not None}

    def _holds(self, person: PersonProgress) -> bool:
        """Whether what a person has is still theirs, as far as this process can tell."""
        return self.clock() - max(self._began, person.last_seen) <= LEASE

    def _judged(self, person: PersonProgress, match: Match) -> bool:
        """Whether a person judged these items in this round as often as they may."""
        return person.judged[match.round, frozenset(match.items)] >= self.most

    def _is_left(self, match: Match, people: Iterable[PersonProgress]) -> bool:
        """Whether a question is for one of these, who neither judged nor skipped it."""
        return any(match.id not in one.skipped and not self._judged(one, match) for one in people)

    def _may(self, person: PersonProgress, match: Match) -> bool:
        """Whether a person may be asked a question: of those that they skipped, what is for nobody
        else."""
        skipped = match.id in person.skipped
        return not self._judged(person, match) and not (
            skipped and self._is_left(match, self.active())
        )

    def _is_refused(self, match: Match) -> bool:
        """Whether a question is asked no more: it was skipped SKIPS times, or by all there are."""
        skips, state = self._skips[match.id], PersonState.ACTIVE
        there = [one for one in self.people.values() if one.person.state is state]
        by_all = not self.open_to_all and skips and not self._is_left(match, there)
        return skips >= SKIPS or bool(by_all)
