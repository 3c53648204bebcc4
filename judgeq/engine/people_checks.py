"""Questions that check the people who judge: their own earlier ones turned round, and those whose answer
is known. Nothing waits for them, and no score knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from judgeq import seeds
from judgeq.errors import DataError, RunError
from judgeq.imports import votes
from judgeq.people import Check
from judgeq.store import Store
from judgeq.types import Match

EVERY = 10
"""One of so many questions is one whose answer is known, while there are such."""
APART = 5
"""Answers that lie between a question and its repetition, at least."""


def known_in(path: Path, ids: Sequence[str], texts: Sequence[str] | None) -> list[tuple[int, ...]]:
    """The rankings of the table that --anchors names, over the dataset with these ids and texts. Raises
    DataError for a table that can't be read so, for ties, and for what it says both ways."""
    votes_there = votes.read(path, votes.Columns(("left", "right"), "winner", ties=()), ids, texts)
    rankings = {vote.verdict.items: vote.verdict for vote in votes_there.judgments}
    for ranking, verdict in rankings.items():
        pair = " and ".join(repr(ids[row]) for row in ranking)
        if any(verdict.tied):
            raise DataError(f"--anchors {path}: {pair} are a tie, which is no known answer.")
        if ranking[::-1] in rankings:
            raise DataError(f"--anchors {path}: of {pair} each wins once. Leave one row out.")
    return list(rankings)


class Checks:
    """The checks of a run: `repeats` is the share of their questions that people are asked again."""

    def __init__(self, store: Store, *, repeats: float = 0.0, seed: int = 0) -> None:
        self._store = store
        self._repeats = repeats
        self._seed = seed
        self._all: dict[int, Check] = {}

    async def load(self) -> None:
        """Read them from the store."""
        self._all = {check.number: check for check in await self._store.checks()}
        if self._all.keys() != set(range(len(self._all))):
            raise RunError("the run's ledger is damaged: its checks aren't numbered from 0.")

    async def add_known(self, rankings: Sequence[tuple[int, ...]]) -> int:
        """Have questions asked whose answer is known, most of the feature first; how many are new."""
        await self.load()
        there = {check.known for check in self._all.values() if check.person is None}
        new = [ranking for ranking in dict.fromkeys(rankings) if ranking not in there]
        for number, ranking in enumerate(new, start=len(self._all)):
            check = Check(number, ranking, known=ranking)
            await self._store.put_check(check)
            self.put(check)
        return len(new)

    def of(self, number: int) -> Check:
        """A check by its number."""
        return self._all[number]

    def put(self, check: Check) -> None:
        """Note a check as it is in the store."""
        self._all[check.number] = check

    def undone(self, number: int) -> Check:
        """A check without its answer."""
        check = self._all[number]._replace(lease="", verdict=None, seconds=0.0, at=0.0)
        self.put(check)
        return check

    @property
    def numbers(self) -> set[int]:
        """The numbers of all of them."""
        return set(self._all)

    @property
    def answered(self) -> list[Check]:
        """Those that have an answer."""
        return [check for check in self._all.values() if check.verdict is not None]

    def due(self, person: int, answered: Sequence[Match], more: bool) -> Check | None:
        """The check that a person is to be asked now, who gave these answers, if any; not put in the
        store. Only while there is `more` to be asked, so that nobody is checked for its own sake."""
        if not more:
            return None
        ours = [check for check in self._all.values() if check.person == person]
        repeated = {check.repeats for check in ours if check.repeats is not None}
        if int(self._repeats * len(answered)) > len(repeated):
            able = [match for match in answered[:-APART] if match.id not in repeated]
            if able:
                rng = seeds.rng(self._seed, "repeat", person, len(repeated))
                match = able[int(rng.integers(len(able)))]
                return Check(len(self._all), match.items[::-1], person, repeats=match.id)
        asked = {check.known for check in ours if check.known}
        left = [
            check.known
            for check in self._all.values()
            if check.person is None and check.known not in asked
        ]
        if left and len(answered) // EVERY > len(asked):
            rng = seeds.rng(self._seed, "known", person, len(asked))
            known = left[int(rng.integers(len(left)))]
            items = tuple(known[place] for place in rng.permutation(len(known)))
            return Check(len(self._all), items, person, known=known)
        return None
