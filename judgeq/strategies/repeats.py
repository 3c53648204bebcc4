"""How often a run asked the same before: what is asked again on purpose is another question.

So the reply cache gives one answer to a question that two runs have in common, and not one answer to a
question that one run asks ten times to learn how sure its judge is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from judgeq.types import Matches, Rows

_U64 = NDArray[np.uint64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Repeats:
    """Numbers the questions of a run, round by round: 0 for one about these items in this order to
    this judge that wasn't asked before, 1 for the second of its kind, and so on.

    Questions are known by 64 bits of a hash: 12 million of them are mistaken for one another with a
    chance of 4 in a million, and then one is asked that the cache could have answered.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self._asked: _U64 = np.zeros(0, dtype=np.uint64)

    def add(self, matches: Matches) -> Rows:
        """The numbers of the next round's questions, shape (matches,)."""
        self.rounds += 1
        before, self._asked = len(self._asked), np.concatenate([self._asked, _names(matches)])
        order, place = np.argsort(self._asked, kind="stable"), np.arange(len(self._asked))
        same = self._asked[order[1:]] == self._asked[order[:-1]]
        first = np.where(np.append(False, same)[: len(place)], 0, place)
        number = np.empty(len(place), dtype=np.int32)
        number[order] = place - np.maximum.accumulate(first)
        return number[before:]


def _names(matches: Matches) -> _U64:
    """A hash of each match's judge, and of its items with their places."""
    if not len(matches):
        return np.zeros(0, dtype=np.uint64)
    place = np.arange(len(matches.items)) - np.repeat(matches.offsets[:-1], matches.sizes)
    slots = _mixed(matches.items.astype(np.uint64) + (place.astype(np.uint64) << np.uint64(32)))
    names: _U64 = np.add.reduceat(slots, matches.offsets[:-1])
    judges = np.zeros(len(matches)) if matches.judges is None else matches.judges
    return _mixed(names ^ _mixed(judges.astype(np.uint64) + _GOLDEN))


def _mixed(values: _U64) -> _U64:
    """Each number's bits well mixed: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    values = values + _GOLDEN
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
