"""Rounds that flow into one another: where people are asked adaptively the next round is planned once
those who are there would run out of questions, so that nobody waits for the last answer of a round.

Ratings that are folded round by round are then a little behind; in the end all is folded anew.
"""

from __future__ import annotations

from judgeq.engine import extent, results
from judgeq.engine.assembly import Run
from judgeq.engine.people import People
from judgeq.store import Store
from judgeq.strategies import History

AHEAD = 2
"""A round holds so many questions for each person who is there."""
MOST = 2_000
"""There are about so many rounds at most: each keeps the ratings of all items."""


class Flow:
    """The rounds of a run that have answers to come, while later ones are planned."""

    def __init__(self, run: Run, store: Store, people: People) -> None:
        self._run = run
        self._store = store
        self._people = people
        self._open: set[int] = set()
        """The rounds that were folded with questions open."""

    def begin(self, history: History) -> None:
        """Have rounds go on until as many questions are planned as the strategy asks."""
        run = self._run
        history.most_matches = extent.most_calls(run.strategy, run.settings, len(run.dataset))

    async def look(self, history: History) -> None:
        """Before a round is planned: take in what was answered of earlier ones, and say how many
        questions are needed, and which items are in some already."""
        for round in sorted(self._open):
            history.replace(round, await self._store.verdicts(round))
            counts = await self._store.round_state(round)
            if counts is None or not counts.left:
                self._open.discard(round)
        settings = self._run.settings
        times = extent.times(settings)
        size = settings.round_size or AHEAD * max(1, self._people.present) // settings.each
        every = (history.most_matches or 0) // times
        left = every - history.matches // times
        history.questions = max(1, min(max(size, every // MOST), left))
        history.busy = sorted({item for match in self._people.left for item in match.items})

    async def folded(self, round: int) -> None:
        """A round was folded: answers to it may still come."""
        counts = await self._store.round_state(round)
        if counts is not None and counts.left:
            self._open.add(round)

    async def folded_anew(self) -> History:
        """All rounds, folded anew from the ledger."""
        return await results.replayed(self._run.folder.info(), self._store)
