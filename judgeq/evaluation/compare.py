"""Which of several runs has the better scores, by differences on the same resamples; and whether they
rank alike.

Two things make a difference uncertain: which items were judged, and what the judges happened to answer.
For the first, items are drawn again (a bootstrap), as if the errors of items were independent. Those of
one list aren't: so the second is measured by itself, by leaving out one part of the judgments after the
other (a jackknife). An interval is as wide as the wider of the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    moves = [
        _moves(run, order, of_run, gold, mask, plan) if gold and plan.resamples else {}
        for run, order, of_run in zip(runs, orders, ratings, strict=True)
    ]
    differences, agreement = [], []
    for against, run in combinations(range(len(runs)), 2):
        for this, that in _in_common(ratings[run], ratings[against]):
            names = (run + 1, this.run, this.name, against + 1, that.run, that.name)
            both = mask & ~np.isnan(this.scores + that.scores)
            n, x, y = int(both.sum()), this.scores[both], that.scores[both]
            whole = that.part if this.part is None else this.part
            part = None if whole is None else whole[both]
            alike = {
                name: Measured(correlation.point(correlation.CORRELATION[name](x, y, part), n))
                for name in ("kendall", "spearman")
            }
            agreement.append(Pair(*names, n, alike))
            if gold is not None and not against:
                one, other = (
                    assess(each._replace(part=whole), gold, items, both, plan)
                    for each in (this, that)
                )
                error = moves[run].get(this.name, UNKNOWN).error(moves[0].get(that.name, UNKNOWN))
                differences.append(Pair(*names, one.n, _differences(one, other, error)))
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
    """What may make the comparison doubtful: runs given twice, groups that nothing connects, and what
    the ids don't show: that items of the same id may not be the same, or not labelled so."""
    first, ids = runs[0], [run.run.id for run in runs]
    for number, (name, run, order) in enumerate(zip(ids, runs, orders, strict=True)):
        if (earlier := ids.index(name)) < number:
            yield f"Runs {earlier + 1} and {number + 1} are the same run, {name}."
        elif (note := apart(run.scores)) is not None:
            yield f"Run {name}: {note}"
        if run.info.facts.get("dataset") != first.info.facts.get("dataset"):
            yield (
                f"Runs {ids[0]} and {name} have the same ids, but not the same dataset "
                f"({first.info.source}, {run.info.source}): are these the same items?"
            )
        labels, known = run.items.gold, None if gold is None else gold.values
        if known is not first.items.gold or known is None or labels is None:
            continue
        if not np.array_equal(known, labels[order], equal_nan=True):
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


def _differences(one: Assessment, other: Assessment, error: Floats) -> dict[str, Measured]:
    """One minus the other of each measure, paired by resample; as uncertain as its standard `error`
    says, shape (measures,) or (1,), if that is more."""
    differences = {}
    reaches = np.broadcast_to(Z * error, len(one.measures)).tolist()
    for (name, a), reach in zip(one.measures.items(), reaches, strict=True):
        b = other.measures[name]
        if name in COUNTS:
            continue
        if a.value is None or b.value is None:
            differences[name] = Measured(None)
            continue
        value = a.value - b.value
        drawn = None if a.resampled is None or b.resampled is None else a.resampled - b.resampled
        found = measured(value, drawn)
        if found.low is not None and found.high is not None:
            low, high = min(found.low, value - reach), max(found.high, value + reach)
            found = replace(found, low=low, high=high)
        differences[name] = found
    return differences


class Moves(NamedTuple):
    """By how much a run's measures move without each part of its judgments, shape (PARTS, measures); and
    √(1/m) of what they would move by if each item moved up or down by itself, m being the judgments of
    an item.

    The squares of the first add up to the variance, but what is left out of a mean of m judgments moves
    it m/(m − 1) times too far, in squares, as far as it is the item's own error. What all items of a
    list share, as where a judge weighs qualities of the texts anew in each, moves them together, and no
    further than it should: so the squares of the second are taken off those of the first.
    """

    together: Floats
    apart: Floats

    def error(self, other: Moves) -> Floats:
        """The standard error of the difference to another run's measures by what the judges happened to
        answer, shape (measures,)."""
        together, apart = self.together - other.together, self.apart - other.apart
        error: Floats = np.sqrt(np.maximum((together**2 - apart**2).sum(axis=0), 0))
        return error


UNKNOWN = Moves(np.zeros((PARTS, 1)), np.zeros((PARTS, 1)))


def _moves(
    run: Result, order: Offsets, ratings: Sequence[Rating], gold: Gold, mask: Bools, plan: Plan
) -> dict[str, Moves]:
    """Of each of these ratings of a run; none where there are too few judgments, or one of each item,
    which don't tell how they scatter."""
    verdicts, n = comparisons.joined(run.history.verdicts), len(order)
    m = len(verdicts.items) / max(1, len(np.unique(verdicts.items)))
    if len(verdicts) < PARTS or m <= 1:
        return {}
    # Numbered by match, so that runs that share answers leave out the same ones together.
    rng = seeds.rng(0, "jackknife")
    blocks = np.tile(np.arange(PARTS), (int(verdicts.matches.max()) // PARTS + 1, 1))
    part = rng.permuted(blocks, axis=1).reshape(-1)[verdicts.matches]
    signs, parameters = seeds.rng(0, "signs").choice([-1.0, 1.0], (PARTS, n)), fitted(run)

    def measures(of: Rating, scores: Floats) -> list[float | None]:
        moved = assess(of._replace(scores=scores), gold, "", mask, replace(plan, resamples=0))
        return [one.value for one in moved.measures.values()]

    moves, by_name = {}, {one.name: one for one in ratings}
    for estimator in rating.of_run(run.rating, run.history.basis):
        if (of := by_name.get(estimator.column)) is None:
            continue
        without = np.stack(
            [
                quick(estimator).fit(verdicts.where(part != left_out), n, parameters).theta[order]
                for left_out in range(PARTS)
            ]
        )
        alone = of.scores + signs * (without - without.mean(axis=0))
        values = np.array(
            [[measures(of, scores) for scores in several] for several in (without, alone)],
            dtype=np.float64,
        )
        values = np.nan_to_num(values - values.mean(axis=1, keepdims=True))
        moves[of.name] = Moves(values[0], values[1] / m**0.5)
    return moves
