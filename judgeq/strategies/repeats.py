"""How often a run asked the same before: what is asked again on purpose is another question.

So the reply cache gives one answer to a question that two runs have in common, and not one answer to a
question that one run asks ten times to learn how sure its judge is.
"""

from __future__ import annotations

from itertools import repeat

import numpy as np

from judgeq.types import Matches, Offsets, Rows


class Repeats:
    """Numbers the questions of a run, round by round: 0 for one about these items in this order to
    this judge that wasn't asked before, 1 for the second of its kind, and so on.

    Questions are known by 64 bits of a hash: 12 million of them are mistaken for one another with a
    chance of 4 in a million, and then one is asked that the cache could have answered.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self._asked: Offsets = np.zeros(0, dtype=np.int64)

    def add(self, matches: Matches) -> Rows:
        """The numbers of the next round's questions, shape (matches,)."""
        judges = repeat(0) if matches.judges is None else matches.judges.tolist()
        new = [
            hash((judge, items.tobytes())) for judge, items in zip(judges, matches, strict=False)
        ]
        self.rounds += 1
        before, self._asked = len(self._asked), np.append(self._asked, np.array(new, np.int64))
        order, place = np.argsort(self._asked, kind="stable"), np.arange(len(self._asked))
        ordered = self._asked[order]
        first = np.where(np.diff(ordered, prepend=ordered[:1] - 1) == 0, 0, place)
        number = np.empty(len(place), dtype=np.int32)
        number[order] = place - np.maximum.accumulate(first)
        return number[before:]
