"""Which of several runs has the better scores, by differences on the same resamples; and whether they
rank alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from judgeq.datasets.tables import shown
from judgeq.errors import RunError
from judgeq.evaluation import (
    COUNTS,
    Case,
    Plan,
    Row,
    Sample,
    Scored,
    cases_of,
    estimate_of,
    known,
    masks_of,
    row_of,
    sampled,
)
from judgeq.gold import Gold
from judgeq.rating import quality
from judgeq.rating.quality import Estimate
from judgeq.types import Bools, Offsets

MAIN = ("bt", "direct", "elo")
"""A run's main rating is the first of these that it has."""


@dataclass(frozen=True, slots=True, eq=False)
class Difference:
    """`rating` of run `run` minus `against_rating` of run `against`, both by their number in the
    comparison (from 0), over the `n` items that have gold and both scores."""

    run: int
    against: int
    rating: str
    against_rating: str
    n: int
    measures: Mapping[str, Estimate]


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """Do two runs (by number) rank the `n` items that both scored in the same order? Gold is no
    matter. None where a rating is constant."""

    run: int
    against: int
    rating: str
    against_rating: str
    n: int
    kendall: float | None
    spearman: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Several runs over the same items: `rows` by run (in the order given) and rating, differences
    to the first run, agreement of each two."""

    items: str
    rows: Sequence[Sequence[Row]]
    differences: Sequence[Difference]
    agreement: Sequence[Agreement]


def zero_outside(estimate: Estimate) -> bool:
    """Whether a difference's interval leaves 0 out."""
    return (
        estimate.low is not None
        and estimate.high is not None
        and (estimate.low > 0 or estimate.high < 0)
    )


def compare(runs: Sequence[Scored], gold: Gold, plan: Plan) -> Comparison:
    """Runs over the same items, each held against the first; `gold` is in the order of its items.

    Compared are the ratings that two runs have in common; and, where these have other names, their
    main ratings. Raises RunError where the items differ, and UsageError.
    """
    first = runs[0]
    ((items, mask),) = masks_of(first.items, plan.subset or "all").items()
    cases = [
        cases_of(run, gold, plan, None if run is first else _order(first, run)) for run in runs
    ]
    samples = [
        {case.rating: sampled(case, gold, known(gold, mask, case), plan) for case in some}
        for some in cases
    ]
    differences = []
    for number in range(1, len(runs)):
        for this, that in _pairs(cases[number], cases[0]):
            rows = known(gold, mask, this, that)
            one, other = (
                sample if len(sample.rows) == len(rows) else sampled(case, gold, rows, plan)
                for case, sample in (
                    (this, samples[number][this.rating]),
                    (that, samples[0][that.rating]),
                )
            )
            found = _differences(one, other)
            differences.append(Difference(number, 0, this.rating, that.rating, len(rows), found))
    return Comparison(
        items=items,
        rows=[
            [row_of(case, gold, items, mask, samples[number][case.rating]) for case in some]
            for number, some in enumerate(cases)
        ],
        differences=differences,
        agreement=[
            _agreement((a, this), (b, that), mask)
            for b, a in combinations(range(len(runs)), 2)
            for this, that in _pairs(cases[a], cases[b])
        ],
    )


def notices(runs: Sequence[Scored], gold: Gold) -> list[str]:
    """What the ids can't tell: that items of the same id may not be the same, or not labelled so."""
    first, *others = runs
    found = []
    for other in others:
        if other.info.facts.get("dataset") != first.info.facts.get("dataset"):
            found.append(
                f"Runs {first.id} and {other.id} have the same ids, but not the same dataset "
                f"({first.info.source}, {other.info.source}): are these the same items?"
            )
        if gold.values is first.items.gold and other.items.gold is not None:
            order = _order(first, other)
            theirs = other.items.gold if order is None else other.items.gold[order]
            if not np.array_equal(gold.values, theirs, equal_nan=True):
                found.append(
                    f"The gold labels of run {other.id} are others; those of {first.id} are used."
                )
    return found


def _order(first: Scored, other: Scored) -> Offsets | None:
    """Where the first run's items stand in the other run; None: at the same places."""
    if list(first.items.ids) == list(other.items.ids):
        return None
    rows = {name: row for row, name in enumerate(other.items.ids)}
    for one, ids, among in (
        (first, first.items.ids, rows),
        (other, other.items.ids, set(first.items.ids)),
    ):
        missing = next((name for name in ids if name not in among), None)
        if missing is not None:
            raise RunError(
                f"runs {first.id} and {other.id} are not over the same items: {shown(missing)} is in "
                f"{one.id} only. Compare runs of one dataset."
            )
    return np.array([rows[name] for name in first.items.ids], dtype=np.int64)


def _pairs(these: Sequence[Case], those: Sequence[Case]) -> list[tuple[Case, Case]]:
    """The ratings in common, and the main ratings where their names differ."""
    by_name = {case.rating: case for case in those}
    pairs = [(case, by_name[case.rating]) for case in these if case.rating in by_name]
    this, that = (min(some, key=lambda case: MAIN.index(case.rating)) for some in (these, those))
    return pairs if this.rating == that.rating else [*pairs, (this, that)]


def _differences(one: Sample, other: Sample) -> dict[str, Estimate]:
    """One minus the other of each measure, paired by resample."""
    found = {}
    for name in one.values:
        if name in COUNTS:
            continue
        a, b = one.values[name], other.values[name]
        value = None if a is None or b is None else a - b
        found[name] = estimate_of(
            value, one.drawn[name] - other.drawn[name] if name in one.drawn else None
        )
    return found


def _agreement(one: tuple[int, Case], other: tuple[int, Case], mask: Bools) -> Agreement:
    (run, this), (against, that) = one, other
    both = mask & ~(np.isnan(this.scores) | np.isnan(that.scores))
    n = int(both.sum())
    kendall = spearman = None
    if n > 1:
        measures = quality.correlation(this.scores[both], that.scores[both])
        kendall, spearman = (quality.point(measures[name], n) for name in ("kendall", "spearman"))
    return Agreement(run, against, this.rating, that.rating, n, kendall, spearman)
