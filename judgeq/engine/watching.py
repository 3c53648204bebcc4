"""A run that other processes work on, followed by its ledger alone: looked at again and again, and
reported as the events that a face folds.

Nothing is written. Each look is some short statements, each a transaction of its own, which keep no
writer waiting; of a large ledger they take longer, and come more seldom. Whether a process is at a
run of a folder is asked by trying its lock, so only where its ledger hasn't changed for some looks, and
once nobody is, not again until it does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from judgeq.engine import extent, results
from judgeq.engine.ranking import round_rated
from judgeq.errors import StoreAwayError
from judgeq.events import EndedEarly, Event, Looked, Notice, RunStarted
from judgeq.runs import RunInfo, RunPlace
from judgeq.store import Store
from judgeq.types import Counts, Failure, Floats, Totals

EVERY = 1.0
"""Seconds between two looks, where these are quick."""
QUIET = 5
"""Looks in a row that see nothing new, before it is asked whether somebody still works on the run."""
SHARE = 0.05
"""Of the time may be spent looking."""
Sleep = Callable[[float], Awaitable[None]]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a look saw: the jobs of the planned rounds, whether no more come, what calls add up to."""

    planned: Sequence[Counts] = ()
    over: bool = False
    totals: Totals = Totals()  # noqa: RUF009  (immutable)

    @property
    def round(self) -> int:
        """The round that is judged: the first that isn't complete, or the last; 0 before the first."""
        left = (number for number, counts in enumerate(self.planned, start=1) if counts.left)
        return next(left, len(self.planned))

    @property
    def left(self) -> bool:
        """Whether jobs of the planned rounds are left."""
        return any(counts.left for counts in self.planned)

    def whole(self, info: RunInfo) -> bool:
        """Whether nothing is left to be judged."""
        n = len(self.planned)
        over = self.over or n >= info.rounds or info.ended_after(n)
        return over and not self.left


@dataclass(slots=True, eq=False)
class Watch:
    """A run that is watched, and where what is seen is reported to. `texts` are those of its items,
    where they are had; `wanted` says whether anybody still looks on.
    """

    run: RunPlace
    emit: Callable[[Event], None]
    texts: Sequence[str] | None = None
    wanted: Callable[[], bool] = lambda: True
    sleep: Sleep = asyncio.sleep
    clock: Clock = time.monotonic
    running: bool = False
    finished: bool = False
    _seen: Seen = Seen()
    _rated: int = 0
    _quiet: int = 0
    _retries: int = 0
    _failure: Failure | None = None
    _ids: Sequence[str] = ()

    async def follow(self, *, once: bool = False) -> bool:
        """Look until the run is finished, which is True; or once, or until nobody looks on.

        Raises RunError where the run can't be read, or isn't there any more.
        """
        self.running = self.run.is_running()
        if not self.run.begun:
            self.emit(Notice(f"Nothing of run {self.run.id} was asked yet."))
        while not self.run.begun:
            if once or not self.wanted():
                return False
            await self.sleep(EVERY)
        store = self.run.store(read_only=True)
        store.report_to(self.emit)
        try:
            info = await self._begin(store)
            while True:
                began = self.clock()
                info = await self._look(store, info)
                if self.finished:
                    return True
                if once or not self.wanted():
                    return False
                await self.sleep(max(EVERY, (self.clock() - began) / SHARE))
        finally:
            await store.close()

    async def _begin(self, store: Store) -> RunInfo:
        """Report what was there before the first look; returns what the run is."""
        info, self._seen = self.run.info(), await _seen(store)
        self._ids = (await store.items()).ids
        settings, sizes = info.settings, list[int]()
        if not info.imported:
            sizes = extent.sizes(settings.make_strategy(), settings, info.items)
        self._rated = max(0, self._seen.round - 2)  # of the rounds before, the last is reported
        self.emit(
            RunStarted(
                self.run.id,
                info.items,
                info.rounds,
                info.judge,
                self._seen.planned,
                self._seen.totals,
                sizes,
                watched=True,
                people=settings.only_people,
            )
        )
        if not self.running and not self._seen.whole(info):
            self.emit(Notice(self._nobody()))
        return info

    def _nobody(self) -> str:
        return f"Nobody works on the run now: `judgeq resume {self.run.argument}` goes on with it."

    async def _look(self, store: Store, info: RunInfo) -> RunInfo:
        """Look once, and report it; returns what the run is now."""
        before, self._seen = self._seen, await _seen(store)
        await self._note_failure(store, before)
        if self._seen == before or not self._seen.left:
            info = self.run.info()  # it may have ended early, or been deleted
        whole = self._seen.whole(info)
        await self._note_running(before, whole)
        rated = info.settings.people is None  # whose rounds were all planned before any answer
        for number in range(self._rated + 1, self._seen.round if rated else 0):
            ratings = [await store.ratings(round) for round in (number, number + 1)]
            self._report_rated(number, *ratings)
        self.emit(self._looked(self._seen.round))
        self.finished = whole and not self.running
        if self.finished:
            await self._report_end(store, info)
        return info

    def _looked(self, round: int) -> Looked:
        seen = self._seen
        return Looked(round, seen.planned, seen.totals, self._failure, self.running)

    async def _note_failure(self, store: Store, before: Seen) -> None:
        """Ask for the last call without an answer only where there was one since: it takes a while."""
        totals = self._seen.totals
        if totals.retries != self._retries:
            self._retries, self._failure = totals.retries, await store.last_failure()
        elif self._failure is not None and totals.calls > before.totals.calls:
            self._failure = self._failure._replace(in_a_row=0)

    async def _note_running(self, before: Seen, whole: bool) -> None:
        """Whether a process works on the run: who changes the ledger does."""
        was, self._quiet = self.running, self._quiet + 1
        if self._seen != before:
            self.running, self._quiet = True, 0
        elif was and (whole or self._quiet >= QUIET):
            with suppress(StoreAwayError):  # then it isn't known
                self.running = await asyncio.to_thread(self.run.is_running)
        if self.running and not was:
            self.emit(Notice("Somebody works on the run again."))
        if was and not self.running and not whole:
            self.emit(Notice(self._nobody()))

    def _report_rated(self, number: int, before: Floats | None, after: Floats | None) -> None:
        if before is not None and after is not None:
            self.emit(self._looked(number))
            self.emit(round_rated(number, before, after, self._ids, self.texts))
        self._rated = number

    async def _report_end(self, store: Store, info: RunInfo) -> None:
        """Report the ranking after the last round, which no later one was made from."""
        last = len(self._seen.planned)
        if last < info.rounds:
            self.emit(EndedEarly(last))
        if last and any(counts.done for counts in self._seen.planned):
            history = await results.replayed(info, store)
            self._report_rated(last, await store.ratings(last), history.latest[1])


async def _seen(store: Store) -> Seen:
    planned, over = await extent.planned(store)
    return Seen(planned, over, await store.totals())
