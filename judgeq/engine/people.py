"""The people who judge a run: questions handed to them one at a time, and what they answer.

What somebody has, and what they said, is in the store before it is acknowledged. A question is handed
out under a lease of its own, and an answer names it: so two windows, a second click or a lost
connection can neither answer twice nor answer what somebody else has.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import orjson

from judgeq.engine import people_said, registering
from judgeq.engine.handing import GONE, NEVER, Handing
from judgeq.engine.people_checks import Checks
from judgeq.engine.people_said import LONGEST, About, Answer, Last, Question, Turn, Why
from judgeq.errors import BadAnswerError, BehindError, StaleError, UnusableReplyError, UsageError
from judgeq.events import CallEnded, Event, Notice
from judgeq.judge.backend import Reply
from judgeq.judge.judge import Questions
from judgeq.people import Handed, Person, PersonState
from judgeq.store import Store
from judgeq.types import Call, JobState, Outcome, Usage, Verdict

P = ParamSpec("P")
T = TypeVar("T")
FAREWELL = 5.0
"""Seconds, at most, in which those who are there learn that the run is over."""
LOOK = 20.0
"""Seconds after which it is looked again for whose answers the others wait."""
NAMED = 3
"""So many of them are named."""
WORKER = "people"


def _alone(
    does: Callable[Concatenate[People, P], Awaitable[T]],
) -> Callable[Concatenate[People, P], Coroutine[Any, Any, T]]:
    """Does what a person asks with nothing else beside it; once more where another process changed who
    has which question."""

    @wraps(does)
    async def done(self: People, /, *args: P.args, **named: P.kwargs) -> T:
        with suppress(BehindError):
            async with self._locked():
                return await does(self, *args, **named)
        async with self._locked():
            return await does(self, *args, **named)

    return done


class People:
    """The people of one run; `judge` is their number on its `panel`, as judges are named;
    `most` as in Handing."""

    def __init__(
        self,
        store: Store,
        questions: Questions,
        checks: Checks,
        *,
        judge: int = 0,
        panel: Sequence[str] = ("people",),
        open_to_all: bool = False,
        most: int = 1,
        emit: Callable[[Event], None] = lambda event: None,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        order: int | None = None,
    ) -> None:
        self.open_to_all = open_to_all
        self._panel = panel
        self._store = store
        self._questions = questions
        self._handing = Handing(
            store,
            checks,
            judge=judge,
            judges=len(panel),
            open_to_all=open_to_all,
            most=most,
            now=now,
            clock=clock,
            order=order,
        )
        self._emit = emit
        self._now, self._clock = now, clock
        self._lock = asyncio.Lock()
        self._changed = asyncio.Event()
        self._over = False
        self._reported = ""
        self._looked = NEVER

    @property
    def about(self) -> About:
        """What is asked."""
        if self._questions.prompt is None:
            raise UsageError("people have to be told what to judge: --prompt or --feature says it.")
        return people_said.about(self._questions.prompt)

    # What the runner asks

    async def begin(self, rounds: int) -> None:
        """Hand out the questions of all rounds, which are so many."""
        async with self._locked():
            await self._handing.begin(rounds)
            self._report()
        self._announce()

    async def close(self) -> bool:
        """Whether the store has an answer to all questions: from then on nothing is undone."""
        self._handing.forget()
        async with self._locked():
            self._over = not self._handing.matches
        return self._over

    async def finish(self) -> None:
        """Returns when all who are there know that the run has all its answers, or after FAREWELL
        seconds."""
        self._announce()
        until = self._clock() + FAREWELL
        while self._clock() < until and any(
            not own.told and self._handing.is_here(own) for own in self._handing.own.values()
        ):
            await self.changed(0.2)

    async def changed(self, seconds: float) -> None:
        """Wait until something was answered, or for so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), seconds)

    async def all_done(self, seconds: float) -> None:
        """Wait until no question is left, or for so many seconds."""
        until = self._clock() + seconds
        while self._handing.matches and (left := until - self._clock()) > 0:
            await self.changed(left)

    @property
    def present(self) -> int:
        """How many people are there, and to be asked more."""
        return self._handing.present

    # What those who run it ask

    async def change(self, change: registering.Change) -> list[tuple[Person, str]]:
        """As `registering.make`, known here at once: who is to be asked no more has nothing."""
        async with self._locked():
            changed = await registering.make(self._store, change, self._now(), self._panel)
            await self._handing.learn()
            for person, _ in changed:
                if person.state is not PersonState.ACTIVE:
                    await self._handing.give_back(person)
            self._report()
        self._announce()
        return changed

    # What people ask

    async def knows(self, token: str) -> bool:
        """As Handing.knows."""
        return await self._handing.knows(token)

    async def turn(self, token: str) -> Turn:
        """The question that a person has, or the next. Raises UnknownPersonError."""
        async with self._locked():
            return await self._turn(await self._handing.person(token))

    @_alone
    async def answer(self, token: str, question: str, answer: Answer) -> Turn:
        """Take an answer; the next turn. The same answer again, as after a lost connection, is taken as
        the first. Raises StaleError for a question that is no longer theirs, and BadAnswerError."""
        person = await self._handing.person(token)
        own, handed = self._handing.own[person.number], self._handing.handed.get(person.number)
        if handed is None or handed.lease != question:
            last = own.last
            if last is None or last.lease != question:
                raise StaleError(GONE)
            if last.said != people_said.said(answer, len(last.match.items)):
                raise StaleError("You answered this in another window, and that answer stands.")
            return await self._turn(person)
        match = self._handing.match(handed)
        said = people_said.said(answer, len(match.items))
        try:
            verdict = self._questions.read(Reply(said, Usage(), 0.0), match)
        except UnusableReplyError as error:
            raise BadAnswerError(f"This can't be an answer: {error}") from error
        seconds = min(max(0.0, answer.seconds), max(0.0, self._now() - handed.at))
        await self._settle(person, handed, said, answer.note, seconds, verdict)
        own.seconds += seconds
        own.last = Last(handed.lease, said, match, handed.check)
        if handed.check is None:
            own.add(match)
        else:
            own.checked += 1
            own.seen.add(frozenset(match.items))
        return await self._turn(person)

    @_alone
    async def skip(self, token: str, question: str, reason: str, note: str = "") -> Turn:
        """Pass a question on to others; the next turn. Raises StaleError."""
        person = await self._handing.person(token)
        handed = self._handing.theirs(person, question)
        said = orjson.dumps({"skipped": reason[:LONGEST]}).decode()
        seconds = max(0.0, self._now() - handed.at)
        await self._settle(person, handed, said, note, seconds, None)
        return await self._turn(person)

    @_alone
    async def undo(self, token: str) -> Turn:
        """Take the last answer back: its question is this person's again. Raises StaleError where the
        run is over, or there is none."""
        person = await self._handing.person(token)
        handing, own = self._handing, self._handing.own[person.number]
        last, before = own.last, handing.handed.get(person.number)
        if last is None or self._over:
            raise StaleError("Your last answer can't be taken back any more.")
        job = last.match.id if last.check is None else None
        handed = Handed(person.number, secrets.token_hex(8), self._now(), job, last.check)
        async with self._store.together():
            if before is not None:
                await handing.take_back(before)
            if last.check is None:
                await handing.retract(last.match, person)
            else:
                await self._store.put_check(handing.checks.undone(last.check))
            await self._store.hand_out(handed)
        if before is not None:
            handing.put_back(before)
        own.last = None
        if last.check is None:
            handing.matches[last.match.id] = last.match
            own.retract(last.match)
        else:
            own.checked -= 1
        handing.handed[person.number] = handed
        return await self._turn(person)

    async def renew(self, token: str, question: str) -> None:
        """The page is still open. Raises StaleError where the question is no longer theirs."""
        async with self._locked():
            self._handing.theirs(await self._handing.person(token), question)

    async def leave(self, token: str, question: str) -> None:
        """Give a question back: somebody makes a pause."""
        async with self._locked():
            person = await self._handing.person(token)
            self._handing.own[person.number].sign = NEVER
            handed = self._handing.handed.get(person.number)
            if handed is not None and handed.lease == question:
                await self._handing.give_back(person)
        self._announce()

    async def join(self, name: str) -> str:
        """The token of a new person, where the run is open to all. Raises UsageError for a name that
        can't be, or is taken."""
        if not self.open_to_all:
            raise UsageError("Whoever wants to take part needs a link of their own.")
        ((_, token),) = await self.change(registering.Change("join", (name,)))
        return token

    # Inside

    def _report(self, every: float = 0.0) -> None:
        """Report for whose answers the others wait, or that nobody is left to give them, where that is
        new; not more often than `every` so many seconds."""
        if self._clock() - self._looked < every:
            return
        self._looked, text = self._clock() if every else self._looked, ""
        names, nobody = self._handing.awaited
        if nobody and not self.open_to_all:
            text = "1 question is" if nobody == 1 else f"{nobody:,} questions are"
            text += (
                " left for nobody: all who judge have answered or skipped what they may be asked, have "
                "reached their quota, or are removed. `judgeq judges add` adds people."
            )
        elif every and names:
            named = sorted(names)[:NAMED]
            named += [f"{len(names) - NAMED:,} more"] if len(names) > NAMED else []
            text = (
                f"The questions that are left are for {' and '.join(named)}. `judgeq judges list` shows "
                "how far each is; `judgeq judges remove` gives theirs to others."
            )
        before, self._reported = self._reported, text
        if text and text != before:
            self._emit(Notice(text, warning=not names or bool(nobody)))

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def _locked(self) -> AsyncIterator[None]:
        """One thing at a time. What raised in the middle of something may have left us with another
        opinion than the store's: it is read anew."""
        async with self._lock:
            await self._handing.ready()
            try:
                yield
            except (StaleError, BadAnswerError, UsageError):
                raise
            except BaseException:
                self._handing.forget()
                raise

    async def _turn(self, person: Person) -> Turn:
        """What a person is to do now; a question is handed out where there is one for them."""
        try:
            return await self._turn_as_known(person)
        except BehindError:
            self._handing.forget()
            await self._handing.ready()
            return await self._turn_as_known(person)

    async def _turn_as_known(self, person: Person) -> Turn:
        """As _turn. Raises BehindError where another process changed who has what."""
        handing, own = self._handing, self._handing.own[person.number]
        handed = handing.handed.get(person.number)
        why: Why = ""
        if person.state is not PersonState.ACTIVE:
            why = "removed"
            await handing.give_back(person)
            handed = None
        elif handed is None:
            if self._over:
                why, own.told = "over", True
            elif not handing.may_be_asked(person):
                why = "quota"
                self._report()
            else:
                handed = await handing.next(person)
                why = "" if handed is not None else "wait"
        if why == "wait":
            self._report(LOOK)
        self._announce()
        return Turn(
            name=person.name,
            question=None if handed is None else self._shown(handed),
            why=why,
            done=own.done,
            quota=person.quota,
            seconds=own.seconds,
            undo=own.last is not None and not self._over,
        )

    def _shown(self, handed: Handed) -> Question:
        match, texts = self._handing.match(handed), self._questions.texts
        if texts is None:
            raise UsageError("people judge texts, and there are none.")
        return Question(handed.lease, match.kind, tuple(texts[item] for item in match.items))

    async def _settle(
        self,
        person: Person,
        handed: Handed,
        said: str,
        note: str,
        seconds: float,
        verdict: Verdict | None,
    ) -> None:
        """Commit what a person said of the question that they have, which they then have no longer;
        without a verdict they skipped it."""
        handing, match, at = self._handing, self._handing.match(handed), self._now()
        if handed.check is not None:
            check = handing.checks.of(handed.check)._replace(
                lease=handed.lease, verdict=verdict, seconds=seconds, at=at
            )
            async with self._store.together():
                await handing.take_back(handed)
                await self._store.put_check(check)
            handing.checks.put(check)
            del handing.handed[person.number]
            return
        state, error = JobState.DONE, None
        if verdict is None:
            state = JobState.PENDING
            if handing.skip(person, match):
                state, error = JobState.INVALID, "those who were asked skipped it"
        outcome = "ok" if verdict is not None else "skipped"
        kept = people_said.noted(said, handed.lease, note)
        judge = handing.number_of(person)
        call = Call(1, outcome, Usage(), 0.0, seconds, kept, at, judge=judge)
        async with self._store.together():
            await handing.take_back(handed)
            await self._store.settle(WORKER, [Outcome(match.id, state, verdict, (call,), error)])
        if state is not JobState.PENDING:
            handing.matches.pop(match.id)
        handing.put_back(handed)
        self._emit(CallEnded(outcome, Usage(), 0.0, seconds))
