"""What the server knows of the runs: looked up among those that are there, only read, and kept until
their ledgers change.

A run in an address is a key that is compared with those of the runs; it never becomes a path.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgeq.engine import results, session, status
from judgeq.engine.results import Result
from judgeq.engine.status import State, Unreadable
from judgeq.errors import RunError
from judgeq.evaluation import record, trail
from judgeq.evaluation.evaluate import Plan
from judgeq.evaluation.trail import Evidence, Ledger, Trail
from judgeq.runs import RunPlace, Runs
from judgeq.types import Offsets
from judgeq.ui.report import page, texts
from judgeq.ui.web.beside import Shelf, beside

_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,230}")
STATES = "states"
"""The key of what is known of all runs."""


class MissingError(Exception):
    """There is nothing by this address; the message says what isn't there."""


def key_of(run: RunPlace) -> str:
    """What stands for a run in an address: its id, or a digest of one that others wrote."""
    if _PLAIN.fullmatch(run.id):
        return run.id
    return f"~{hashlib.sha256(os.fsencode(run.id)).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class Opened:
    """A run that was read: the evidence behind its scores, with the texts where they are had; and its
    rows in the order of the ranking, items that were never judged last."""

    evidence: Evidence
    order: Offsets
    stamp: object
    """The run's, of before it was read."""

    @property
    def run(self) -> Result:
        """The run, rated."""
        return self.evidence.run

    def sought(self, words: str) -> list[int]:
        """The rows, in their order, of the items in whose id or text all words are, whatever their
        case."""
        order: list[int] = self.order.tolist()
        wanted, scores = words.casefold().split(), self.run.scores
        if not wanted:
            return order
        held = [
            f"{name}\n{'' if scores.texts is None else scores.texts[row]}".casefold()
            for row, name in enumerate(scores.ids)
        ]
        return [row for row in order if all(word in held[row] for word in wanted)]


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a run: the judgments that it was in, what the ledger holds of them, and the rows that
    are next to it in the ranking."""

    opened: Opened
    trail: Trail
    ledger: Ledger
    above: int | None
    below: int | None


class Desk:
    """The runs, as the pages ask for them. `shown`: with texts, as far as they are here."""

    def __init__(self, runs: Runs, *, shown: bool = True) -> None:
        self.runs = runs
        self._shown = shown
        self._known: dict[str, tuple[object, State | Unreadable]] = {}
        self._seen: dict[str, State] = {}
        self._progress: Shelf[State] = Shelf(64, at_once=2)
        self._states: Shelf[list[State | Unreadable]] = Shelf(1)
        self._opened: Shelf[Opened] = Shelf(4, at_once=2)
        # One at a time: Matplotlib's settings are those of the process.
        self._reports: Shelf[str] = Shelf(4)

    async def close(self) -> None:
        """Give up what is being read."""
        for shelf in (self._states, self._progress, self._opened, self._reports):
            await shelf.close()

    async def find(self, key: str) -> RunPlace:
        """The run of a key. Raises MissingError, and RunError where runs can't be listed."""

        async def listed() -> Sequence[RunPlace]:
            return self.runs.all()

        for run in await beside(listed):
            if key_of(run) == key:
                return run
        raise MissingError("There is no such run.")

    async def states(self) -> list[State | Unreadable]:
        """How far all runs are: those that run first, then the latest. Raises RunError where they can't
        be listed."""
        states = await self._states.get(STATES, object(), self._look)
        return sorted(states, key=lambda state: not getattr(state, "running", False))

    async def _look(self) -> list[State | Unreadable]:
        """A run whose ledger is as it was, and that nobody was at, isn't read again: whether somebody is
        at it now is asked by trying its lock."""
        known = {}
        for run in self.runs.all():
            stamp, state = _stamp(run), None
            if run.id in self._known and self._known[run.id][0] == stamp:
                state = self._known[run.id][1]
            if state is None or not isinstance(state, State) or state.running:
                state = await _state(run)
            known[run.id] = (stamp, state)
        self._known = known
        return [state for _, state in known.values()]

    async def state(self, run: RunPlace) -> State:
        """How far a run is. Raises RunError."""

        before = self._seen.get(run.id)

        async def look() -> State:
            return await status.state(run, ratings=True, before=before)

        self._seen[run.id] = state = await self._progress.get(run.id, object(), look)
        return state

    def _wanted(self, run: RunPlace) -> bool:
        return self._shown and run.info().settings.texts

    async def opened(self, run: RunPlace) -> Opened:
        """A run with its scores and the evidence behind them. Raises RunError, NotConvergedError."""

        stamp = await self._stamp(run)

        async def read() -> Opened:
            result = await results.read(run, run.info().settings)
            if self._wanted(run):
                dataset = session.dataset_of(run)
                result = session.with_texts(result, result.info.settings, dataset)
            return Opened(trail.gathered(result), _order(result), stamp)

        return await self._opened.get(run.id, stamp, read)

    async def report(self, run: RunPlace, home: str) -> str:
        """A run's report as a page, which leads back `home`. Raises as `opened`, and DataError."""
        opened = await self.opened(run)

        async def write() -> str:
            made = await record.of_run(
                opened.run, Plan(), shown=self._wanted(run), evidence=opened.evidence
            )
            return page.page(made, await texts.gathered(made), home)

        # It is of the scores that were opened, which may be kept a moment longer than the ledger's.
        return await self._reports.get(run.id, opened.stamp, write)

    async def sought(self, opened: Opened, words: str) -> list[int]:
        """See Opened."""

        async def look() -> list[int]:
            return opened.sought(words)

        return await beside(look)

    async def item(self, opened: Opened, row: int, *, replies: bool) -> Item:
        """An item by its row; with the raw `replies` of its judgments, which are otherwise read only
        where reasons were asked for. Raises MissingError, RunError."""
        run = opened.run
        if not 0 <= row < len(run.scores.ids):
            raise MissingError("The run has no such item.")

        async def read() -> Item:
            (one,) = trail.trails(opened.evidence, [row])
            ledger = await trail.from_ledger(run, [one], replies=replies)
            order = opened.order.tolist()
            at = order.index(row)
            above = order[at - 1] if at else None
            below = order[at + 1] if at + 1 < len(order) else None
            return Item(opened, one, ledger, above, below)

        return await beside(read)

    async def _stamp(self, run: RunPlace) -> object:
        async def look() -> object:
            return _stamp(run)

        return await beside(look)


def _stamp(run: RunPlace) -> object:
    """What changes with a run's ledger, or where another run takes its place."""
    try:
        info = run.info()
    except RunError as error:
        return str(error)
    return info, run.touched()


async def _state(run: RunPlace) -> State | Unreadable:
    try:
        return await status.state(run)
    except (RunError, OSError) as error:
        return Unreadable(run, str(error))


def _order(result: Result) -> Offsets:
    """The rows by the main rating, each component by itself; then the items without one."""
    scores = result.scores
    values = np.where(scores.rank > 0, scores.main[1], -np.inf)
    order: Offsets = np.lexsort((-values, scores.component, scores.rank == 0))
    return order
