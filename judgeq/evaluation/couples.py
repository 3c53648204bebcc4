"""Couples of answers: how often two judges order the same items alike, question by question (a question
is a set of items).

The share of a question is the mean over all couples of answers to it. So a model as good as one more
person has the share of two people on the same questions, however many people answered each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.evaluation.agreement import judges_of, sets
from judgeq.evaluation.metrics import Measured, interval, resamples
from judgeq.rating import comparisons
from judgeq.types import Bools, Floats, Offsets, Verdicts

LEAST = 10
"""Questions below which a share has no interval: resamples of a few that agree mean nothing."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The share of pairs of items ordered alike in `questions` that both answered; None without any."""

    share: float | None = None
    questions: int = 0


class Couples(NamedTuple):
    """Each two answers of different judges to one question, at least one of them a person's: arrays of
    shape (m,). `one` and `other` are the judges' numbers; of the `pairs` of items whose order both know
    they order `alike` many the same way (a tie of one alone counts ½)."""

    question: Offsets
    one: Offsets
    other: Offsets
    alike: Floats
    pairs: Floats

    def between(self, these: Bools, those: Bools) -> Couples:
        """The couples of one of `these` judges and one of `those`, both of shape (judges,)."""
        one, other = self.one, self.other
        chosen = (these[one] & those[other]) | (those[one] & these[other])
        return Couples._make(column[chosen] for column in self)

    @property
    def questions(self) -> Offsets:
        """The numbers of their questions."""
        return np.unique(self.question)

    @property
    def agreement(self) -> Agreement:
        """How well the two of each couple agree."""
        return Agreement(self.share, len(self.questions))

    @property
    def share(self) -> float | None:
        """The share of the pairs of items ordered alike; None without any."""
        pairs = float(self.pairs.sum())
        return float(self.alike.sum()) / pairs if pairs else None

    def by_question(self, questions: Offsets) -> Floats:
        """The pairs of items ordered alike and all pairs, for these questions: the means over the
        couples, shape (2, questions)."""
        chosen = np.isin(self.question, questions)
        at, n = np.searchsorted(questions, self.question[chosen]), len(questions)
        counts = np.maximum(np.bincount(at, minlength=n), 1)
        columns = (self.alike[chosen], self.pairs[chosen])
        return np.stack([np.bincount(at, column, n) / counts for column in columns])


def couples(verdicts: Verdicts, people: Bools) -> Couples:
    """All couples in the verdicts; `people`, shape (judges,), tells which judges are people. Items
    judged alone have no order, and are in none."""
    judges, question = judges_of(verdicts), sets(verdicts)
    asked = np.isin(question, question[people[judges]]) & (np.diff(verdicts.offsets) > 1)
    place = comparisons.tie_groups(verdicts)
    answers: dict[int, list[tuple[int, Offsets, Bools]]] = defaultdict(list)
    found: list[tuple[float, ...]] = []
    for at in np.flatnonzero(asked).tolist():
        slots = slice(verdicts.offsets[at], verdicts.offsets[at + 1])
        judge, mine = int(judges[at]), signs(place[slots][np.argsort(verdicts.items[slots])])
        known = mine != 0 if verdicts.partial is not None and verdicts.partial[at] else mine == mine
        for other, theirs, also in answers[int(question[at])]:
            if other != judge and (people[other] or people[judge]):
                both = known & also
                alike = ordered_alike(mine[both], theirs[both]).sum()
                found.append((question[at], other, judge, alike, both.sum()))
        answers[int(question[at])].append((judge, mine, known))
    table = np.array(found, dtype=np.float64).reshape(-1, 5).T
    return Couples(*table[:3].astype(np.int64), *table[3:])


def signs(places: Offsets) -> Offsets:
    """How each two of k items are ordered by their `places`: -1, 0 (tied) or 1, shape (k(k−1)/2,)."""
    low, high = np.triu_indices(len(places), 1)
    ordered: Offsets = np.sign(places[low] - places[high])
    return ordered


def ordered_alike(first: Offsets, second: Offsets) -> Floats:
    """By the signs of two answers: 1 for each pair ordered alike, ½ for a tie in one of them."""
    alike: Floats = 1 - np.abs(first - second) / 2
    return alike


def shares_alike(sides: Sequence[Couples], why: str, times: int, seed: int) -> list[Measured]:
    """The share of pairs ordered alike by each side's couples, on the questions that all sides have; of
    two sides also the first less the second. All on the same resamples of the questions; `why` there is
    none without a question."""
    questions = reduce(np.intersect1d, [side.questions for side in sides])
    n = len(questions)
    if not n:
        return [Measured(None, why=why)] * len(sides)
    drawn = [np.ones((1, n))]
    if n >= LEAST and times:
        drawn += resamples(n, times, seeds.rng(seed, "bootstrap", "alike"))
    found = []
    for side in sides:
        parts = side.by_question(questions).T
        alike, pairs = np.concatenate([weights @ parts for weights in drawn]).T
        found.append(np.divide(alike, pairs, out=np.full(len(alike), np.nan), where=pairs > 0))
    if len(found) == 2:
        found.append(found[0] - found[1])
    return [Measured(float(share[0]), *interval(share[1:])) for share in found]
