"""Several judges of one run: the ratings of each by itself, and how well they agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judgeq import results, seeds
from judgeq.config import Rating
from judgeq.rating import agreement, comparisons, elo
from judgeq.rating.quality import Estimate
from judgeq.results import Judged
from judgeq.types import Bools, Floats, Rows, Verdicts


@dataclass(frozen=True, slots=True, eq=False)
class Ensemble:
    """The judges of a run, each with `verdicts` of its own and `ratings` made of them alone (by name,
    shape (n,); nan where a judge saw nothing of an item).

    `kendall` is τ-b between the judges' ratings, by rating, shape (judges, judges). `alpha` is
    Krippendorff's α on the pairs that their verdicts imply (interval metric: a tie is half a
    disagreement), or on the scores of items judged alone; `shared` are the pairs, or items, that
    several of them judged.
    """

    names: Sequence[str]
    verdicts: Sequence[int]
    ratings: Sequence[Mapping[str, Floats]]
    kendall: Mapping[str, Floats]
    alpha: Estimate
    shared: int


def ensemble(
    judged: Judged, names: Sequence[str], rating: Rating, sigma: float, resamples: int, seed: int
) -> Ensemble:
    """What the judges of a run say, each by itself and about one another."""
    n = len(judged.elo)
    every = comparisons.joined(judged.verdicts)
    ratings = []
    counts = []
    for number in range(len(names)):
        rounds = [some.where(_by(some, number)) for some in judged.verdicts]
        counts.append(sum(map(len, rounds)))
        ratings.append(_rated(rounds, n, rating, sigma, direct=judged.direct is not None))
    value, low, high = _alpha(every, resamples, seed)
    return Ensemble(
        names=names,
        verdicts=counts,
        ratings=ratings,
        kendall={
            name: agreement.kendall_by_pair([each[name] for each in ratings]) for name in ratings[0]
        },
        alpha=Estimate(value, low, high),
        shared=_shared(every),
    )


def _by(verdicts: Verdicts, judge: int) -> Bools:
    by: Bools = _judges(verdicts) == judge
    return by


def _rated(
    rounds: Sequence[Verdicts], n: int, rating: Rating, sigma: float, *, direct: bool
) -> dict[str, Floats]:
    verdicts = comparisons.joined(rounds)
    unseen = comparisons.matches_of(verdicts, n) == 0
    if direct:
        return {"direct": comparisons.scores_of([verdicts], n)}
    ratings = elo.start(n)
    for some in rounds:
        ratings = elo.fold(ratings, some)
    found = {"elo": ratings, "bt": results.fit(verdicts, n, rating, sigma)}
    return {name: np.where(unseen, np.nan, values) for name, values in found.items()}


def _alpha(
    verdicts: Verdicts, resamples: int, seed: int
) -> tuple[float | None, float | None, float | None]:
    if verdicts.scores is not None:
        found = agreement.krippendorff(verdicts.items, _judges(verdicts), verdicts.scores)
        return found, None, None
    rng = seeds.rng(seed, "bootstrap", "agreement")
    return agreement.alpha(verdicts), *agreement.interval(verdicts, resamples, rng)


def _judges(verdicts: Verdicts) -> Rows:
    if verdicts.judges is None:
        return np.zeros(len(verdicts), dtype=np.int32)
    return verdicts.judges


def _shared(verdicts: Verdicts) -> int:
    """How many pairs, or items, more than one of them judged."""
    if verdicts.scores is None:
        unit, judge, _ = agreement.implied(verdicts)
    else:
        unit, judge = verdicts.items.astype(np.int64), _judges(verdicts)
    both = np.unique(np.stack([unit, judge], axis=1), axis=0)
    _, judges = np.unique(both[:, 0], return_counts=True)
    return int((judges > 1).sum())
