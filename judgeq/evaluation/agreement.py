"""How well the judges of a run agree: Krippendorff's α over the pairs that their verdicts imply, and
Kendall's τ between the ratings by each alone.

For α a pair of items is a unit, and a judge codes it: 1 where the first of the two is placed higher, 0
where the second is, ½ for a tie; so that a tie is half as far from a win as a loss is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from judgeq import seeds
from judgeq.engine.results import Result
from judgeq.evaluation.metrics import Measured, bootstrap
from judgeq.evaluation.scale import fitted
from judgeq.rating import Estimator, Parameters, comparisons
from judgeq.rating.comparisons import pairs_of
from judgeq.rating.correlation import Kendall, point
from judgeq.strategies import History
from judgeq.text import LEFT_OUT
from judgeq.types import Floats, Offsets, Rows, Verdicts

Ints: TypeAlias = NDArray[np.integer[Any]]

_CONSTANT = 1e-12
"""A variance of so little of the mean square is what rounding leaves of a constant."""


def implied(verdicts: Verdicts) -> tuple[Offsets, Offsets, Floats]:
    """Every pair that a verdict implies, by which verdict and how: (pairs, verdict, value), each (m,).

    A ranking of k gives k(k−1)/2. A pair's number is `low * n + high` of its two rows, with n one more
    than the highest row of the verdicts. `value` is 1 where the lower row is placed first, 0 where it
    is placed second, ½ for a tie. Sorted like `comparisons.pairs_of`. Of items judged alone: the item,
    and its score.
    """
    if verdicts.scores is not None and alone(verdicts):
        return verdicts.items.astype(np.int64), np.arange(len(verdicts)), verdicts.scores
    n = int(verdicts.items.max(initial=-1)) + 1
    verdict_of = np.repeat(np.arange(len(verdicts)), np.diff(verdicts.offsets))
    first, second, tie = pairs_of(verdicts)
    # A pair's number may be beyond int32.
    before, after = (verdicts.items[at].astype(np.int64) for at in (first, second))
    value = (before < after).astype(np.float64)
    value[tie] = 0.5
    return np.minimum(before, after) * n + np.maximum(before, after), verdict_of[first], value


def alpha(verdicts: Verdicts, times: int, rng: np.random.Generator) -> Measured:
    """Krippendorff's α of the judges over the pairs of items, with its 95 % percentile interval from
    `times` resamples; None where it is undefined. Of items judged alone that of their scores, without an
    interval.

    Each pair counts both ways round, as (low, high) and as (high, low): else the agreement expected by
    chance would depend on how the items are numbered, and be near 1 where they come in their true
    order. So without ties De is ½ but for a small sample's correction, and α is 1 − 2 · (how often two
    judges differ).

    What is drawn is a set of items with all that any judge answered about it, since the pairs of one
    list hang together. A pair that was asked about in several sets belongs to them by parts, which is
    sound where the judges were asked about the same sets; where each was asked about its own, the
    interval is too narrow. Sets are in the order of their items: that of the verdicts is no matter.
    """
    measure = _Alpha(*_both_ways(verdicts))
    # One set drawn again and again would give an interval of no width.
    n = measure.groups
    return bootstrap({"": measure}, n, times if n > 1 else 0, rng)[""]


def kendall_by_pair(ratings: Sequence[Floats]) -> Floats:
    """Kendall's τ-b between the ratings of each two of j judges, shape (j, j).

    Each rating is of shape (n,), nan where a judge doesn't rate an item: it is left out where either
    is nan. 1 on the diagonal; nan where τ is undefined, as of a constant.
    """
    matrix = np.eye(len(ratings))
    for (a, one), (b, other) in combinations(enumerate(ratings), 2):
        both = ~np.isnan(one + other)
        tau = point(Kendall(one[both], other[both]), int(both.sum()))
        matrix[a, b] = matrix[b, a] = np.nan if tau is None else tau
    return matrix


def judges_of(verdicts: Verdicts) -> Rows:
    """Which judge gave each verdict, shape (verdicts,)."""
    return np.zeros(len(verdicts), np.int32) if verdicts.judges is None else verdicts.judges


def _both_ways(verdicts: Verdicts) -> tuple[Offsets, Rows, Floats, Offsets]:
    """(unit, judge, value, group): what is implied of each pair as (low, high), then as (high, low),
    and of which set of items it is. Of items judged alone their scores, all of one group."""
    units, verdict, value = implied(verdicts)
    judges = judges_of(verdicts)[verdict]
    if alone(verdicts):
        return units, judges, value, np.zeros_like(units)
    return (
        np.concatenate([units, -1 - units]),
        np.tile(judges, 2),
        np.concatenate([value, 1 - value]),
        np.tile(sets(verdicts)[verdict], 2),
    )


def alone(verdicts: Verdicts) -> bool:
    """Whether they are scores of items judged alone, and compare none."""
    return verdicts.scores is not None and not comparisons.compares(verdicts)


def sets(verdicts: Verdicts) -> Offsets:
    """The number of each verdict's set of items, by size and then by the items; shape (verdicts,)."""
    items = verdicts.items.tolist()
    every = [tuple(sorted(items[a:b])) for a, b in pairwise(verdicts.offsets.tolist())]
    number = {
        some: at for at, some in enumerate(sorted(set(every), key=lambda some: (len(some), some)))
    }
    return np.array([number[some] for some in every], dtype=np.int64)


class _Alpha:
    """Krippendorff's α for interval data, for any weighting of groups of answers (a `Measure`): 1 is
    agreement, 0 what chance gives, less is discord; nan where all values are equal.

    Judge `judge[c]` has given `unit[c]` the value `value[c]`, in the group `group[c]`, all of shape
    (m,), without nan. What a judge said of one unit several times is averaged first: it says nothing of
    agreement with others. Units of fewer than two judges are left out.

    α = 1 − Do / De, of squared differences: Do is their mean within the units, De that of any two
    values (Krippendorff 2011, "Computing Krippendorff's alpha-reliability").

    α is made of four sums over the units, and what each group adds to them is worked out once. A unit
    all of whose answers are of one group is that group's. Of one whose answers are of several, a group
    has what the unit's sums grow by as it gains weight, where the judges' means are weighted and the
    unit weighs the mean of its answers: to first order, which adds up to the unit's sums. (Weighting
    the means themselves would bias α downwards: a group drawn twice brings no second opinion.)
    """

    def __init__(self, unit: Ints, judge: Ints, value: Floats, group: Ints) -> None:
        if len(value):
            # α knows neither zero nor scale; between 0 and 1 squares keep their digits.
            value = (value - value.min()) / (np.ptp(value) or 1.0)
        judges = int(judge.max(initial=0)) + 1
        unit = np.unique(unit, return_inverse=True)[1].reshape(-1)
        # What each judge said of a unit, its mean, and sums over the judges of each unit.
        codings, coding = np.unique(unit * judges + judge, return_inverse=True)
        counts = np.bincount(coding)
        mean = np.bincount(coding, value) / counts
        n, total, squares = (np.bincount(codings // judges, mean**power) for power in range(3))
        # Σ (v − v′)² over the ordered pairs of n values is 2 (n Σ v² − (Σ v)²).
        within = 2 * np.maximum(n * squares - total**2, 0) / np.maximum(n - 1, 1)
        kept = n[unit] > 1
        unit, coding, value = unit[kept], coding[kept], value[kept]
        there = np.bincount(group[kept]) > 0
        group = (np.cumsum(there) - 1)[group[kept]]
        self.groups = int(there.sum())
        """How many groups there are that say anything of agreement."""

        share = 1 / np.bincount(unit)[unit]
        mean, n_here, total_here = mean[coding], n[unit], total[unit]
        gain = (value - mean) / counts[coding]
        adds = (
            share * n_here,
            share * total_here + gain,
            share * squares[unit] + 2 * mean * gain,
            share * within[unit] + 4 * (n_here * mean - total_here) / (n_here - 1) * gain,
        )
        self._sums = np.stack([np.bincount(group, part, self.groups) for part in adds], axis=1)

    def __call__(self, weights: Floats) -> Floats:
        """α of shape (b,) for weights of shape (b, groups); nan where it is undefined."""
        n, total, squares, within = (weights @ self._sums).T
        spread = n * squares - total**2
        spread[(n <= 1) | (spread <= _CONSTANT * n * squares)] = np.nan
        alpha: Floats = 1 - np.maximum(within, 0) * (n - 1) / (2 * spread)
        return alpha


# The judges of a run

PEOPLE = "people"
"""The name of all people together."""
MOST = 10
"""So many judges, those with the most verdicts, are rated by themselves."""


@dataclass(frozen=True, slots=True, eq=False)
class PanelAgreement:
    """How well the judges of a run agree, by `rating`, its main one. PEOPLE together are listed first,
    if models judge too; of more than MOST judges only those with the most verdicts are listed."""

    rating: str
    names: Sequence[str]
    verdicts: Sequence[int]  # how many each gave
    # By each judge's verdicts alone, shape (n,): the rating, nan of items that it didn't see, and the
    # groups of items that its comparisons connect.
    ratings: Sequence[Floats] = field(metadata=LEFT_OUT)
    components: Sequence[Offsets] = field(metadata=LEFT_OUT)
    kendall: Floats  # τ-b between the judges' ratings, shape (judges, judges)
    krippendorff_alpha: Measured  # of all judges, over the pairs that verdicts imply, or over items
    judged_by_several: int  # such pairs, or items
    others: int = 0  # judges that aren't listed
    others_verdicts: int = 0


def of_run(run: Result, resamples: int, seed: int) -> PanelAgreement | None:
    """How well a run's judges agree, and people together with models; None of one judge alone."""
    names = run.info.judges or run.info.settings.judges
    if len(names) < 2:
        return None
    first = None if run.said is None else run.said.first
    found = panel_agreement(run.history, names, run.main, fitted(run), resamples, seed, first)
    return found if len(found.names) > 1 else None


def panel_agreement(
    history: History,
    names: Sequence[str],
    estimator: Estimator,
    parameters: Parameters,
    resamples: int,
    seed: int,
    people: int | None = None,
) -> PanelAgreement:
    """How well the judges of a history agree. Those from number `people` on are people: of them only
    who answered something is listed."""
    n = len(history.standings.elo)
    # Each order of a pair is answered by another person.
    every = comparisons.joined(history.verdicts if people is None else history.asked)
    judges = judges_of(every)
    counts = np.bincount(judges, minlength=len(names)).tolist()
    there = [number for number in range(len(names)) if people is None or counts[number]]
    listed = there
    if len(there) > MOST:
        listed = sorted(there, key=lambda number: -counts[number])[:MOST]
    groups = [(names[number], [number]) for number in listed]
    if people is not None and there[0] < people <= there[-1]:
        groups.insert(0, (PEOPLE, [number for number in there if number >= people]))
    parts = [every.where(np.isin(judges, group)) for _, group in groups]
    components = [comparisons.components(part, n, scored=True) for part in parts]
    ratings = [
        np.where(component, estimator.fit(part, n, parameters).theta, np.nan)
        for part, component in zip(parts, components, strict=True)
    ]
    units, at, _ = implied(every)
    # By each judge once. With counts np.unique sorts; else it hashes, which can take 20 times as long.
    judged = np.unique(units * len(names) + judges[at], return_counts=True)[0] // len(names)
    return PanelAgreement(
        rating=estimator.column,
        names=[name for name, _ in groups],
        verdicts=[*map(len, parts)],
        ratings=ratings,
        components=components,
        kendall=kendall_by_pair(ratings),
        krippendorff_alpha=alpha(every, resamples, seeds.rng(seed, "bootstrap", "agreement")),
        judged_by_several=int((np.unique(judged, return_counts=True)[1] > 1).sum()),
        others=len(there) - len(listed),
        others_verdicts=sum(counts) - sum(counts[number] for number in listed),
    )
