"""How often a person and another judge order the same items alike, question by question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from judgeq.evaluation.agreement import sets
from judgeq.rating.comparisons import slots_by_size, tie_groups
from judgeq.types import Bools, Floats, Offsets, Rows, Verdicts

AT_ONCE = 4_000_000
"""So many pairs of items are held at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Couples:
    """Each two answers of different judges to one question (a set of items), one of them a person's at
    least: arrays of shape (m,). `one` and `other` are the judges' numbers; of the `pairs` of items whose
    order both know they order as many `alike` (where one has a tie and the other not, ½)."""

    question: Offsets
    one: Rows
    other: Rows
    alike: Floats
    pairs: Floats

    def where(self, chosen: Bools) -> Couples:
        """Those alone for which `chosen`, shape (m,), is true."""
        return Couples(
            self.question[chosen],
            self.one[chosen],
            self.other[chosen],
            self.alike[chosen],
            self.pairs[chosen],
        )

    def between(self, these: Bools, those: Bools) -> Couples:
        """Those of one of `these` judges and one of `those`, both of shape (judges,)."""
        one, other = self.one, self.other
        return self.where((these[one] & those[other]) | (those[one] & these[other]))

    @property
    def questions(self) -> int:
        """About how many questions they are."""
        return len(np.unique(self.question))

    @property
    def share(self) -> float | None:
        """The share of the pairs of items that they order alike; None without any."""
        pairs = float(self.pairs.sum())
        return float(self.alike.sum()) / pairs if pairs else None


def couples(verdicts: Verdicts, people: Bools) -> Couples:
    """All couples in the verdicts; `people`, shape (judges,), says which judges are people. Without
    items judged alone, which have no order."""
    judges = np.zeros(len(verdicts), np.int32) if verdicts.judges is None else verdicts.judges
    question = sets(verdicts)
    asked = np.isin(question, question[people[judges]]) & (np.diff(verdicts.offsets) > 1)
    verdicts, judges, question = verdicts.where(asked), judges[asked], question[asked]
    group, parts = tie_groups(verdicts), []
    for slots in slots_by_size(verdicts):
        at = np.searchsorted(verdicts.offsets, slots[0])
        order = np.argsort(verdicts.items[slots], axis=0)
        places = np.take_along_axis(group[slots], order, axis=0)
        partial = None if verdicts.partial is None else verdicts.partial[at]
        one, other = _same(question[at])
        kept = (judges[at[one]] != judges[at[other]]) & (
            people[judges[at[one]]] | people[judges[at[other]]]
        )
        one, other = one[kept], other[kept]
        alike, pairs = _compared(places, partial, one, other)
        parts.append((question[at[one]], judges[at[one]], judges[at[other]], alike, pairs))
    if not parts:
        none = np.empty(0)
        rows = np.empty(0, np.int32)
        return Couples(np.empty(0, np.int64), rows, rows, none, none)
    return Couples(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _same(question: Offsets) -> tuple[Offsets, Offsets]:
    """The places of each two that are equal, each two once."""
    order = np.argsort(question, kind="stable")
    ordered, ones, others = question[order], [order[:0]], [order[:0]]
    for step in range(1, len(order)):
        both = np.flatnonzero(ordered[step:] == ordered[:-step])
        if not len(both):
            break
        ones.append(order[both])
        others.append(order[both + step])
    return np.concatenate(ones), np.concatenate(others)


def signs(places: Offsets) -> Offsets:
    """How each two of k items are ordered by their `places`, shape (k, …): -1, 0 (tied) or 1, shape
    (k(k−1)/2, …)."""
    low, high = np.triu_indices(len(places), 1)
    ordered: Offsets = np.sign(places[low] - places[high])
    return ordered


def agreeing(first: Offsets, second: Offsets) -> Floats:
    """By how much two agree on each pair of items, of which they have the signs: 1 where they order it
    alike, ½ where one of them alone has a tie."""
    same: Floats = 1 - np.abs(first - second) / 2
    return same


def _compared(
    places: Offsets, partial: Bools | None, one: Offsets, other: Offsets
) -> tuple[Floats, Floats]:
    """How many pairs of items each two rankings order alike, of how many; `places`, shape (k, rankings),
    are those of the items in one order, equal where they are tied, or unknown of a `partial` one."""
    k = len(places)
    alike, pairs = np.empty(len(one)), np.empty(len(one))
    step = max(1, AT_ONCE // (k * (k - 1) // 2))
    for begin in range(0, len(one), step):
        part = slice(begin, begin + step)
        first, second = (signs(places[:, of[part]]) for of in (one, other))
        same = agreeing(first, second)
        known = np.ones_like(same)
        if partial is not None:
            for ordered, of in ((first, one), (second, other)):
                known[(ordered == 0) & partial[of[part]]] = 0
        alike[part], pairs[part] = (same * known).sum(axis=0), known.sum(axis=0)
    return alike, pairs
