"""Which of several runs has the better scores, by differences on the same resamples; and whether they
rank alike.

Two things make a difference uncertain: which items were judged, and what the judges happened to answer.
For the first, items are drawn again (a bootstrap), as if the errors of items were independent. Those of
one list aren't: so the second is measured by itself, by leaving out one part of the judgments after the
other (a jackknife). An interval is as wide as the wider of the two.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar, NamedTuple

import numpy as np

from judgeq import rating, seeds
from judgeq.datasets.tables import display
from judgeq.engine.results import Result
from judgeq.errors import RunError
from judgeq.evaluation.evaluate import (
    Assessment,
    Rating,
    apart,
    assess,
    masks_of,
    ratings_of,
)
from judgeq.evaluation.gold import Gold, Plan, gold_for
from judgeq.evaluation.metrics import COUNTS, Measured, measured
from judgeq.evaluation.scale import fitted, quick
from judgeq.rating import comparisons, correlation
from judgeq.types import Bools, Floats, Offsets

PARTS = 20
"""Parts of the judgments, each of which is left out once."""
Z = 1.96
"""So many standard errors to each side hold 95 %."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """`rating` of a run and `against_rating` of another, over the `n` items that have both scores; the
    runs by id, and by number in the comparison (from 1)."""

    number: int
    run: str
    rating: str
    against_number: int
    against: str
    against_rating: str
    n: int
    measures: Mapping[str, Measured]
    JSON_KEYS: ClassVar = {"zero_outside": "zero_outside"}

    @property
    def zero_outside(self) -> list[str]:
        """The measures whose interval doesn't contain 0."""
        return [name for name, found in self.measures.items() if found.zero_outside]


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Several runs over the same items, each with its `evaluation` against the gold of the comparison.
    Without gold labels there is the agreement alone."""

    runs: Sequence[Result]
    plan: Plan
    gold: Gold | None
    items: str
    differences: Sequence[Pair]  # of the measures to the first run's
    agreement: Sequence[Pair]  # of each two runs, by Kendall's τ-b and Spearman's ρ
    notices: Sequence[str]  # what may make it doubtful


def compare(runs: Sequence[Result], plan: Plan, gold: Gold | None = None) -> Comparison:
    """Runs over the same items, each compared with the first; `gold` (None: as planned) is in the order
    of its items.

    Compared are the ratings that two runs have in common; and, if these have other names, their main
    ratings. Raises RunError if the items differ, or some runs are rehearsals, and UsageError or
    DataError.
    """
    first = runs[0]
    made_up = [run.run.id for run in runs if run.info.settings.rehearsal]
    if 0 < len(made_up) < len(runs):
        raise RunError(
            f"run {made_up[0]} is a rehearsal, and its answers are made up: it can't be compared with "
            "a real run."
        )
    gold = gold or gold_for(first, plan)
    ((items, mask),) = masks_of(first.items, plan.subset or "all").items()
    orders = [_order(first, run) for run in runs]
    ratings = [ratings_of(run, gold, plan, order) for run, order in zip(runs, orders, strict=True)]
    refits = [
        _refits(run, order, {one.name for one in of_run}) if gold and plan.resamples else None
        for run, order, of_run in zip(runs, orders, ratings, strict=True)
    ]
    differences, agreement = [], []
    for against, run in combinations(range(len(runs)), 2):
        for this, that in _in_common(ratings[run], ratings[against]):
            names = (run + 1, this.run, this.name, against + 1, that.run, that.name)
            both = mask & ~np.isnan(this.scores + that.scores)
            n, x, y = int(both.sum()), this.scores[both], that.scores[both]
            alike = {
                name: Measured(correlation.point(correlation.CORRELATION[name](x, y), n))
                for name in ("kendall", "spearman")
            }
            agreement.append(Pair(*names, n, alike))
            if gold is not None and not against:
                one, other = (assess(each, gold, items, both, plan) for each in (this, that))
                mine = _moves(this, refits[run], gold, both, plan)
                theirs = _moves(that, refits[0], gold, both, plan)
                differences.append(Pair(*names, one.n, _differences(one, other, mine - theirs)))
    return Comparison(
        runs=[
            replace(
                run, evaluation=[assess(one, gold, items, mask, plan) for one in of_run if gold]
            )
            for run, of_run in zip(runs, ratings, strict=True)
        ],
        plan=plan,
        gold=gold,
        items=items,
        differences=differences,
        agreement=agreement,
        notices=[*_notices(runs, orders, gold)],
    )


def _notices(runs: Sequence[Result], orders: Sequence[Offsets], gold: Gold | None) -> Iterator[str]:
    """What may make the comparison doubtful: runs given twice, and what the ids don't show: that items
    of the same id may not be the same, or not labelled so."""
    first, ids = runs[0], [run.run.id for run in runs]
    for number, (run, order) in enumerate(zip(runs, orders, strict=True)):
        name, labels = run.run.id, run.items.gold
        if (earlier := ids.index(name)) < number:
            yield f"Runs {earlier + 1} and {number + 1} are the same run, {name}."
        elif (note := apart(run.scores)) is not None:
            yield f"Run {name}: {note}"
        if run.info.facts.get("dataset") != first.info.facts.get("dataset"):
            yield (
                f"Runs {ids[0]} and {name} have the same ids, but not the same dataset "
                f"({first.info.source}, {run.info.source}): are these the same items?"
            )
        if gold is None or gold.values is not first.items.gold or labels is None:
            continue
        if not np.array_equal(gold.values, labels[order], equal_nan=True):
            yield f"The gold labels of run {name} differ from those of {ids[0]}, which are used."


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


def _in_common(these: Sequence[Rating], those: Sequence[Rating]) -> list[tuple[Rating, Rating]]:
    """The ratings in common, and the main ratings (the last ones) if their names differ."""
    by_name = {rating.name: rating for rating in those}
    pairs = [(rating, by_name[rating.name]) for rating in these if rating.name in by_name]
    main = (these[-1], those[-1])
    return pairs if main[0].name == main[1].name else [*pairs, main]


def _differences(one: Assessment, other: Assessment, moves: Floats) -> dict[str, Measured]:
    """One minus the other of each measure, paired by resample; as uncertain as it `moves` without parts
    of the judgments, shape (PARTS, measures), if that says more."""
    differences = {}
    reaches = np.broadcast_to(Z * np.sqrt((moves**2).sum(axis=0)), len(one.measures))
    for (name, a), reach in zip(one.measures.items(), reaches.tolist(), strict=True):
        b = other.measures[name]
        if name in COUNTS:
            continue
        if a.value is None or b.value is None:
            differences[name] = Measured(None)
            continue
        drawn = None if a.resampled is None or b.resampled is None else a.resampled - b.resampled
        found = measured(a.value - b.value, drawn)
        if found.low is not None and found.high is not None:
            low, high = a.value - b.value - reach, a.value - b.value + reach
            found = replace(found, low=min(found.low, low), high=max(found.high, high))
        differences[name] = found
    return differences


class Refits(NamedTuple):
    """The ratings of a run, by name, without each of PARTS parts of its judgments, shape (PARTS, n).
    Times `factor` = √(1 − 1/m), m being the judgments of an item, their scatter is the standard error:
    what is left out of a mean of m moves it too far (HC2 and HC3 of MacKinnon and White 1985)."""

    factor: float
    ratings: Mapping[str, Floats]


def _refits(run: Result, order: Offsets, names: Container[str]) -> Refits | None:
    """None where there are too few judgments, or one of each item, which don't tell how they scatter."""
    verdicts, n = comparisons.joined(run.history.verdicts), len(order)
    judged = len(np.unique(verdicts.items))
    if len(verdicts) < PARTS or len(verdicts.items) <= judged:
        return None
    # Numbered by match, so that runs that share answers leave out the same ones together.
    blocks = np.tile(np.arange(PARTS), (int(verdicts.matches.max()) // PARTS + 1, 1))
    part = seeds.rng(0, "jackknife").permuted(blocks, axis=1).reshape(-1)[verdicts.matches]
    kept, parameters = [verdicts.where(part != left_out) for left_out in range(PARTS)], fitted(run)
    ratings = {
        one.column: np.stack([quick(one).fit(some, n, parameters).theta[order] for some in kept])
        for one in rating.of_run(run.rating, run.history.basis)
        if one.column in names
    }
    return Refits((1 - judged / len(verdicts.items)) ** 0.5, ratings)


def _moves(rated: Rating, refits: Refits | None, gold: Gold, mask: Bools, plan: Plan) -> Floats:
    """By how much leaving out each part of the judgments moves each measure, shape (PARTS, measures):
    the root of the sum of squares is its standard error. 0 where that isn't known."""
    if refits is None:
        return np.zeros((PARTS, 1))
    cut = None if rated.threshold is None else rated.threshold.value
    values = []
    for scores in refits.ratings[rated.name]:
        without = rated._replace(scores=scores, labelled=None if cut is None else scores > cut)
        found = assess(without, gold, "", mask, replace(plan, resamples=0)).measures
        values.append([one.value for one in found.values()])
    known = np.array(values, dtype=np.float64)
    moves: Floats = np.nan_to_num(known - known.mean(axis=0)) * refits.factor
    return moves
