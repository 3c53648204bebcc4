"""Which of several runs has the better scores, by differences on the same resamples; and whether they
rank alike."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np

from judgeq.datasets.tables import shown
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
from judgeq.evaluation.gold import Gold, Plan, gold_if_any
from judgeq.evaluation.metrics import COUNTS, Measured, measured
from judgeq.rating import correlation
from judgeq.types import Bools, Offsets


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
    """Several runs over the same items. Without gold labels there is the agreement alone."""

    runs: Sequence[Result]
    plan: Plan
    gold: Gold | None
    items: str
    assessments: Sequence[Sequence[Assessment]]  # by run and rating
    differences: Sequence[Pair]  # of the measures to the first run's
    agreement: Sequence[Pair]  # of each two runs, by Kendall's τ-b and Spearman's ρ
    notices: Sequence[str]  # what may make it doubtful


def compare(runs: Sequence[Result], plan: Plan, gold: Gold | None = None) -> Comparison:
    """Runs over the same items, each compared with the first; `gold` (None: as planned) is in the order
    of its items.

    Compared are the ratings that two runs have in common; and, if these have other names, their main
    ratings. Raises RunError if the items differ, or
    some runs are rehearsals, and UsageError or DataError.
    """
    first = runs[0]
    made_up = [run.run.id for run in runs if run.info.settings.rehearsal]
    if 0 < len(made_up) < len(runs):
        raise RunError(
            f"run {made_up[0]} is a rehearsal, and its answers are made up: it can't be compared with "
            "a real run."
        )
    gold = gold or gold_if_any(first, plan)
    ((items, mask),) = masks_of(first.items, plan.subset or "all").items()
    orders = [_order(first, run) for run in runs]
    ratings = [ratings_of(run, gold, plan, order) for run, order in zip(runs, orders, strict=True)]
    assessments = [
        {} if gold is None else {one.name: assess(one, gold, items, mask, plan) for one in of_run}
        for of_run in ratings
    ]
    differences = []
    for run in range(1, len(runs)):
        if gold is None:
            break
        for this, that in _pairs(ratings[run], ratings[0]):
            both = mask & ~np.isnan(this.scores) & ~np.isnan(that.scores)
            n = int((both & ~np.isnan(gold.values)).sum())
            one, other = (
                known if known.n == n else assess(rating, gold, items, both, plan)
                for rating, known in (
                    (this, assessments[run][this.name]),
                    (that, assessments[0][that.name]),
                )
            )
            differences.append(_pair(run, this, 0, that, n, _differences(one, other)))
    return Comparison(
        runs=runs,
        plan=plan,
        gold=gold,
        items=items,
        assessments=[list(by_name.values()) for by_name in assessments],
        differences=differences,
        agreement=[
            _agreement(run, this, against, that, mask)
            for against, run in combinations(range(len(runs)), 2)
            for this, that in _pairs(ratings[run], ratings[against])
        ],
        notices=[*_notices(runs, orders, gold)],
    )


def _notices(runs: Sequence[Result], orders: Sequence[Offsets], gold: Gold | None) -> Iterator[str]:
    """What may make the comparison doubtful: runs given twice, and what the ids don't show: that items
    of the same id may not be the same, or not labelled so."""
    first, ids = runs[0], [run.run.id for run in runs]
    for number, run in enumerate(runs):
        if (earlier := ids.index(run.run.id)) < number:
            yield f"Runs {earlier + 1} and {number + 1} are the same run, {run.run.id}."
        elif (note := apart(run.scores)) is not None:
            yield f"Run {run.run.id}: {note}"
    for other, order in zip(runs[1:], orders[1:], strict=True):
        if other.info.facts.get("dataset") != first.info.facts.get("dataset"):
            yield (
                f"Runs {first.run.id} and {other.run.id} have the same ids, but not the same dataset "
                f"({first.info.source}, {other.info.source}): are these the same items?"
            )
        theirs = other.items.gold
        if theirs is None or gold is None or gold.values is not first.items.gold:
            continue
        if not np.array_equal(gold.values, theirs[order], equal_nan=True):
            yield (
                f"The gold labels of run {other.run.id} differ from those of {first.run.id}, which are "
                "used."
            )


def _order(first: Result, other: Result) -> Offsets:
    """The rows of the first run's items in the other run."""
    rows = {name: row for row, name in enumerate(other.items.ids)}
    for run, missing in (
        (first, set(first.items.ids) - rows.keys()),
        (other, rows.keys() - set(first.items.ids)),
    ):
        if missing:
            raise RunError(
                f"runs {first.run.id} and {other.run.id} are not over the same items: "
                f"{shown(min(missing))} is in {run.run.id} only. Compare runs of one dataset."
            )
    return np.array([rows[name] for name in first.items.ids], dtype=np.int64)


def _pairs(these: Sequence[Rating], those: Sequence[Rating]) -> list[tuple[Rating, Rating]]:
    """The ratings in common, and the main ratings (the last ones) if their names differ."""
    by_name = {rating.name: rating for rating in those}
    pairs = [(rating, by_name[rating.name]) for rating in these if rating.name in by_name]
    main = (these[-1], those[-1])
    return pairs if main[0].name == main[1].name else [*pairs, main]


def _pair(
    run: int, this: Rating, against: int, that: Rating, n: int, measures: Mapping[str, Measured]
) -> Pair:
    """Two ratings of the runs of these numbers, from 0."""
    return Pair(run + 1, this.run, this.name, against + 1, that.run, that.name, n, measures)


def _differences(one: Assessment, other: Assessment) -> dict[str, Measured]:
    """One minus the other of each measure, paired by resample."""
    differences = {}
    for name, a in one.measures.items():
        b = other.measures[name]
        if name not in COUNTS:
            known = a.resampled is not None and b.resampled is not None
            differences[name] = measured(
                None if a.value is None or b.value is None else a.value - b.value,
                a.resampled - b.resampled if known else None,  # type: ignore[operator]
            )
    return differences


def _agreement(run: int, this: Rating, against: int, that: Rating, mask: Bools) -> Pair:
    """How alike two ratings rank."""
    both = mask & ~np.isnan(this.scores) & ~np.isnan(that.scores)
    n = int(both.sum())
    x, y = this.scores[both], that.scores[both]
    measures = {
        name: Measured(correlation.point(correlation.CORRELATION[name](x, y), n) if n > 1 else None)
        for name in ("kendall", "spearman")
    }
    return _pair(run, this, against, that, n, measures)
