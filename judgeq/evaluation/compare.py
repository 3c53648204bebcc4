"""Which of several runs has the better scores, and whether they rank alike.

The runs are over the same items, so what makes a difference uncertain is what the judges happened to
answer. Answers to one list hang together, so the judgments are divided into PARTS, and each part is left
out once (a jackknife).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from judgeq import seeds
from judgeq.datasets.tables import display
from judgeq.engine.results import Result
from judgeq.errors import RunError
from judgeq.evaluation.evaluate import (
    Assessment,
    Rating,
    assess,
    masks_of,
    ratings_of,
    with_agreement,
)
from judgeq.evaluation.gold import Gold, Plan, gold_for
from judgeq.evaluation.metrics import COUNTS, Measured, measured
from judgeq.evaluation.scale import fitted, quick
from judgeq.rating import comparisons, of_run
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats, Offsets

PARTS = 20
"""Parts of the judgments, each of which is left out once."""
ALIKE = ("kendall", "spearman")
"""How alike two runs rank is measured by these."""
REACH = 2.093
"""So many standard errors to each side hold 95 %, where they are from so few parts (Student's t)."""


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """A run next to the first one: how alike they rank the `n` items that have both scores, and the
    `differences` of its measures to the first one's, over the `n_gold` of these that have gold."""

    number: int  # of the run, from 2
    run: str
    rating: str
    n: int
    agreement: Mapping[str, Measured]
    n_gold: int
    differences: Mapping[str, Measured]
    # Within so many groups agreement is measured; None where all items are on one scale.
    parts: int | None = field(default=None, metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {"zero_outside": "zero_outside"}

    @property
    def zero_outside(self) -> list[str]:
        """The measures of whose difference the interval doesn't contain 0."""
        return [name for name, found in self.differences.items() if found.zero_outside]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Several runs over the same items, each with its `evaluation` against the gold of the comparison;
    `rating` is the first one's, with which the `others` are compared. Without gold labels there is the
    agreement alone."""

    runs: Sequence[Result]
    plan: Plan
    gold: Gold | None
    items: str
    rating: str
    others: Sequence[Compared]
    notices: Sequence[str]  # what may make it doubtful


def compare(runs: Sequence[Result], plan: Plan, gold: Gold | None = None) -> Comparison:
    """Runs over the same items, each compared with the first; `gold` (None: as planned) is in the order
    of its items.

    Compared are their main ratings, or those that the plan names. Raises RunError if the items differ,
    or some runs are rehearsals, and UsageError or DataError.
    """
    runs = [with_agreement(run) for run in runs]
    first = runs[0]
    made_up = [run.run.id for run in runs if run.info.settings.rehearsal]
    if 0 < len(made_up) < len(runs):
        raise RunError(
            f"run {made_up[0]} is a rehearsal, and its answers are made up: it can't be compared with "
            "a real run."
        )
    gold = gold or gold_for(first, plan)
    ((items, mask),) = masks_of(first.items, plan.subset or "all").items()
    ratings, moves, evaluated, notices = list[Rating](), [], [], list[str]()
    for run in runs:
        order = _order(first, run)
        rating = ratings_of(run, gold, plan)[-1]
        part = None if rating.part is None else rating.part[order]
        rating = rating._replace(scores=rating.scores[order], part=part)
        ratings.append(rating)
        moves.append(_moves(run, order, rating, gold, mask, plan) if gold else None)
        found = [assess(rating, gold, items, mask, plan)] if gold else []
        evaluated.append(replace(run, evaluation=found))
        notices += _notices(first, run, order, gold)
    others = []
    for at, this in enumerate(ratings[1:], 1):
        part = ratings[0].part if this.part is None else this.part
        this, that = (rating._replace(part=part) for rating in (this, ratings[0]))
        as_gold = Gold(that.scores, that.name, None, "")
        alike = assess(
            this, as_gold, items, mask, replace(plan, resamples=0, measures=frozenset(ALIKE))
        )
        n_gold, differences = 0, dict[str, Measured]()
        if gold is not None:
            both = mask & ~np.isnan(this.scores + that.scores)
            one, other = (assess(rating, gold, items, both, plan) for rating in (this, that))
            n_gold, differences = one.n, _differences(one, other, moves[at], moves[0])
        compared = alike.n, alike.measures, n_gold, differences
        others.append(Compared(at + 1, runs[at].run.id, this.name, *compared, parts=alike.parts))
    return Comparison(evaluated, plan, gold, items, ratings[0].name, others, notices)


def _notices(first: Result, run: Result, order: Offsets, gold: Gold | None) -> Iterator[str]:
    """Yield what the ids don't show: that items of one id may not be the same, or not labelled so."""
    name, labels = run.run.id, run.items.gold
    if run.info.facts.get("dataset") != first.info.facts.get("dataset"):
        yield (
            f"Runs {first.run.id} and {name} have the same ids, but not the same dataset "
            f"({first.info.source}, {run.info.source}): are these the same items?"
        )
    if gold is None or gold.values is not first.items.gold or labels is None:
        return
    if not np.array_equal(gold.values, labels[order], equal_nan=True):
        yield f"The gold labels of run {name} differ from those of {first.run.id}, which are used."


def _order(first: Result, other: Result) -> Offsets:
    """The rows of the first run's items in the other run."""
    rows = {name: row for row, name in enumerate(other.items.ids)}
    if apart := rows.keys() ^ set(first.items.ids):
        odd = min(apart)
        raise RunError(
            f"runs {first.run.id} and {other.run.id} are not over the same items: {display(odd)} is in "
            f"{(other if odd in rows else first).run.id} only. Compare runs of one dataset."
        )
    return np.array([rows[name] for name in first.items.ids], dtype=np.int64)


def _differences(
    one: Assessment, other: Assessment, moves: Floats | None, others: Floats | None
) -> dict[str, Measured]:
    """One minus the other of each measure, with its interval by what `_moves` has of both; if it has
    nothing of one, by drawing the same items for both."""
    reach = None
    if moves is not None and others is not None:
        together, apart = ((moves - others) ** 2).sum(axis=1)
        reach = REACH * np.sqrt(np.maximum(together - apart, 0))
    differences = {}
    for at, (name, a) in enumerate(one.measures.items()):
        b = other.measures[name]
        if a.value is None or b.value is None:
            differences[name] = Measured(None)
            continue
        gap = a.value - b.value
        differences[name] = (
            measured(gap, a.resampled - b.resampled)
            if reach is None
            else Measured(gap, gap - float(reach[at]), gap + float(reach[at]))
        )
    return {name: gap for name, gap in differences.items() if name not in COUNTS}


def _moves(
    run: Result, order: Offsets, of: Rating, gold: Gold, mask: Bools, plan: Plan
) -> Floats | None:
    """By how much the measures of this rating of a run move without each part of its judgments; and
    √(1/m) of what they would move by if each item moved up or down by itself, m being the judgments of
    an item: two arrays of shape (PARTS, measures). None where no intervals are asked for, or where there
    are too few judgments, or one of each item, which don't tell how they scatter.

    The squares of the first add up to the variance, but what is left out of a mean of m judgments moves
    it m/(m − 1) times too far, in squares, as far as it is the item's own error. What all items of a
    list share, as where a judge weighs qualities of the texts anew in each, moves them together, and no
    further than it should: so the squares of the second are taken off those of the first.
    """
    verdicts, n = comparisons.joined(run.history.verdicts), len(order)
    m = len(verdicts.items) / max(1, len(np.unique(verdicts.items)))
    if not plan.resamples or len(verdicts) < PARTS or m <= 1:
        return None
    # Numbered by match, so that runs that share answers leave out the same ones together.
    rng = seeds.rng(0, "jackknife")
    blocks = np.tile(np.arange(PARTS), (int(verdicts.matches.max()) // PARTS + 1, 1))
    part = rng.permuted(blocks, axis=1).reshape(-1)[verdicts.matches]
    signs, parameters = seeds.rng(0, "signs").choice([-1.0, 1.0], (PARTS, n)), fitted(run)

    def measures(scores: Floats) -> list[float | None]:
        moved = assess(of._replace(scores=scores), gold, "", mask, replace(plan, resamples=0))
        return [one.value for one in moved.measures.values()]

    every = of_run(run.rating, run.history.basis)
    fit = quick(next(one for one in every if one.column == of.name)).fit
    without = np.stack(
        [fit(verdicts.where(part != out), n, parameters).theta[order] for out in range(PARTS)]
    )
    alone = of.scores + signs * (without - without.mean(axis=0))
    values = [[measures(scores) for scores in several] for several in (without, alone)]
    moves = np.array(values, dtype=np.float64)
    moves = np.nan_to_num(moves - moves.mean(axis=1, keepdims=True))
    of_both: Floats = moves / np.array([1.0, m**0.5])[:, None, None]
    return of_both
