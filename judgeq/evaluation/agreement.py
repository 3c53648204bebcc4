"""How well judges agree: how they coded the same pairs in questions in common, Krippendorff's α of that,
and Kendall's τ between the ratings by each alone.

A question is a set of items, whoever was asked about it, and in whatever order. For each two of its
items a judge codes 1 where the lower row is placed higher, 0 where the other is, ½ for a tie; so that a
tie is half as far from a win as a loss is. Of an item judged alone the coding is its score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.engine.results import Result
from judgeq.evaluation.metrics import Measured, bootstrap
from judgeq.evaluation.scale import fitted
from judgeq.rating import Estimator, Parameters, comparisons
from judgeq.rating.correlation import Kendall, point
from judgeq.strategies import History
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats, Offsets, Rows, Verdicts

_CONSTANT = 1e-12
"""A variance of so little of the mean square is what rounding leaves of a constant."""


class Codings(NamedTuple):
    """What `judge` said of two items (`unit`) of a `question`, 0 to 1; each of shape (m,). `alone`: of
    items judged alone, whose scores say nothing of their order."""

    question: Offsets
    unit: Offsets
    judge: Rows
    value: Floats
    alone: bool = False

    def where(self, chosen: Bools) -> Codings:
        """Those alone for which `chosen`, shape (m,), is true."""
        question, unit, judge, value, alone = self
        return Codings(question[chosen], unit[chosen], judge[chosen], value[chosen], alone)


def codings(verdicts: Verdicts) -> Codings:
    """All codings that verdicts imply: k(k−1)/2 of a ranking of k, none between items of which a partial
    one knows no order. Questions are numbered by size and then by items, so that the order of the
    verdicts is no matter."""
    judges = comparisons.judges_of(verdicts)
    if verdicts.scores is not None and not comparisons.compares(verdicts):
        units = verdicts.items.astype(np.int64)
        return Codings(units, units, judges, verdicts.scores, alone=True)
    question, count, largest = np.zeros(len(verdicts), np.int64), 0, 0
    place = np.zeros(len(verdicts.items), np.int64)  # of each slot's item in its question
    of = np.repeat(np.arange(len(verdicts)), np.diff(verdicts.offsets))
    for slots in comparisons.slots_by_size(verdicts):
        items, largest = verdicts.items[slots], len(slots)
        sets, number = np.unique(np.sort(items, axis=0), axis=1, return_inverse=True)
        question[of[slots[0]]] = count + number.reshape(-1)
        count += sets.shape[1]
        place[slots] = items.argsort(axis=0).argsort(axis=0)
    first, second, tie = comparisons.pairs_of(verdicts)
    one, other, at = place[first], place[second], question[of[first]]
    value = (one < other).astype(np.float64)
    value[tie] = 0.5
    unit = (at * largest + np.minimum(one, other)) * largest + np.maximum(one, other)
    return Codings(at, unit, judges[of[first]], value)


# Krippendorff's α


def alpha(given: Codings, times: int, rng: np.random.Generator) -> tuple[Measured, int]:
    """Krippendorff's α, None where it is undefined, with its 95 % percentile interval from `times`
    resamples of the questions; and of how many units that several judges coded.

    1 is agreement, 0 what chance gives, less is discord: α = 1 − Do / De, of squared differences, Do
    being their mean within the units, De that of any two values (Krippendorff 2011, "Computing
    Krippendorff's alpha-reliability", for interval data). What a judge said of one unit several times is
    averaged first: it says nothing of agreement with others. Each pair counts both ways round: else what
    chance gives would depend on how the items are numbered. So without ties α is 1 − 2 · (how often two
    judges differ) but for a small sample's correction.
    """
    judges = int(given.judge.max(initial=0)) + 1
    coded, at = np.unique(given.unit * judges + given.judge, return_inverse=True)
    mean = np.bincount(at, given.value) / np.bincount(at)
    units, unit = np.unique(coded // judges, return_inverse=True)
    n, total, squares = (np.bincount(unit, mean**power) for power in range(3))
    question = np.zeros(len(units), np.int64)
    question[unit[at]] = given.question
    several = n > 1
    n, total, squares, question = (of[several] for of in (n, total, squares, question))
    # Σ (v − v′)² over the ordered pairs of n values is 2 (n Σ v² − (Σ v)²).
    within = 2 * np.maximum(n * squares - total**2, 0) / (n - 1)
    if not given.alone:  # of a value v the other way round is 1 − v
        n, total, squares, within = 2 * n, n, 2 * (squares - total) + n, 2 * within
    questions, number = np.unique(question, return_inverse=True)
    sums = np.stack([np.bincount(number, of) for of in (n, total, squares, within)], axis=1)

    def measure(weights: Floats) -> Floats:
        n, total, squares, within = (weights @ sums).T
        spread = n * squares - total**2
        spread[(n <= 1) | (spread <= _CONSTANT * n * squares)] = np.nan
        values: Floats = 1 - within * (n - 1) / (2 * spread)
        return values

    return bootstrap({"": measure}, len(questions), times, rng)[""], int(several.sum())


# How often two judges order items the same

ALIKE = np.array([[1, 0.5, 0], [0.5, 1, 0.5], [0, 0.5, 1]])
"""How far two codings, each 0, ½ or 1, order two items the same."""


class Shared(NamedTuple):
    """How often two judges, of two groups of them, order two items the same: `alike` is the sum of that
    over the `pairs` of items of each question, both of shape (questions,)."""

    alike: Floats
    pairs: Floats


class Orders:
    """How judges ordered each two items of questions; of those judged alone nothing is known."""

    def __init__(self, given: Codings) -> None:
        if given.alone:
            given = given.where(np.zeros(len(given.unit), dtype=np.bool_))
        judges = int(given.judge.max(initial=0)) + 1
        units, unit = np.unique(given.unit, return_inverse=True)
        self._question = np.zeros(len(units), np.int64)
        self._question[unit] = given.question
        coded, at = np.unique(unit * judges + given.judge, return_inverse=True)
        self._unit, self._judge = coded // judges, coded % judges
        self._counts = np.zeros((len(coded), 3))  # of each value
        np.add.at(self._counts, (at, (2 * given.value).astype(np.int64)), 1)

    def between(self, these: Bools, those: Bools) -> Shared:
        """Of `these` judges and `those`, both of shape (judges,), who may be both; nobody with
        themselves. The share of two items is the mean over all couples of answers."""
        one, other = (self._by_unit(self._counts, chosen) for chosen in (these, those))
        own = self._by_unit(_couples(self._counts, self._counts), these & those)
        alike, couples = (_couples(one, other) - own).T
        share = np.divide(alike, couples, out=np.zeros_like(alike), where=couples > 0)
        n = int(self._question.max(initial=-1)) + 1
        sums = (np.bincount(self._question, of, n) for of in (share, couples > 0))
        return Shared(*(of.astype(np.float64) for of in sums))

    def _by_unit(self, columns: Floats, judges: Bools) -> Floats:
        """Sums over these judges' codings, shape (units, columns)."""
        of, n = judges[self._judge], len(self._question)
        sums = [np.bincount(self._unit[of], column[of], n) for column in columns.T]
        return np.stack(sums, axis=1)


def _couples(one: Floats, other: Floats) -> Floats:
    """How many couples of codings, counted by value, are alike, and how many there are: two columns."""
    alike, every = ((one @ ALIKE) * other).sum(axis=1), one.sum(axis=1) * other.sum(axis=1)
    return np.stack([alike, every], axis=1)


# The judges of a run

PEOPLE = "people"
"""The name of all people together."""
MOST = 10
"""Of more people or imported judges none is rated by their own verdicts alone."""


@dataclass(frozen=True, slots=True, eq=False)
class PanelAgreement:
    """How well the judges of a run agree, by `rating`, its main one. PEOPLE together are listed first,
    if models judge too."""

    rating: str
    names: Sequence[str]
    verdicts: Sequence[int]  # how many each gave
    # By each judge's verdicts alone, shape (n,): the rating, nan of items that it didn't see, and the
    # groups of items that its comparisons connect.
    ratings: Sequence[Floats] = field(metadata=LEFT_OUT)
    components: Sequence[Offsets] = field(metadata=LEFT_OUT)
    kendall: Floats  # τ-b between the judges' ratings, shape (judges, judges)
    krippendorff_alpha: Measured  # of all judges, over pairs in questions in common, or over items
    judged_by_several: int  # such pairs, or items
    others: int = 0  # judges that aren't listed


def of_run(run: Result, resamples: int, seed: int) -> PanelAgreement | None:
    """How well a run's judges agree, and people together with models; None of one judge alone."""
    first = None if run.said is None else run.said.first
    of = (run.history, run.judges, run.main, fitted(run))
    found = panel_agreement(*of, resamples, seed, first) if len(run.judges) > 1 else None
    return found if found is not None and len(found.names) + found.others > 1 else None


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
    judges = comparisons.judges_of(every)
    counts = np.bincount(judges, minlength=len(names))
    there = [number for number in range(len(names)) if people is None or counts[number]]
    models = [number for number in there if people is not None and number < people]
    listed = there if len(there) <= MOST else models
    groups = [(names[number], [number]) for number in listed]
    if 0 < len(models) < len(there):
        groups.insert(0, (PEOPLE, [number for number in there if number not in models]))
    parts = [every.where(np.isin(judges, group)) for _, group in groups]
    components = [comparisons.components(part, n, scored=True) for part in parts]
    ratings = [
        np.where(component, estimator.fit(part, n, parameters).theta, np.nan)
        for part, component in zip(parts, components, strict=True)
    ]
    found, several = alpha(codings(every), resamples, seeds.rng(seed, "bootstrap", "agreement"))
    return PanelAgreement(
        rating=estimator.column,
        names=[name for name, _ in groups],
        verdicts=[*map(len, parts)],
        ratings=ratings,
        components=components,
        kendall=kendall_by_pair(ratings, history.group),
        krippendorff_alpha=found,
        judged_by_several=several,
        others=len(there) - len(listed),
    )


def kendall_by_pair(ratings: Sequence[Floats], group: Offsets | None = None) -> Floats:
    """Kendall's τ-b between each two of j ratings of shape (n,), over the items that both have (nan: it
    doesn't), within a `group`, shape (j, j): 1 on the diagonal; nan where τ is undefined, as of a
    constant."""
    matrix = np.eye(len(ratings))
    for (a, one), (b, other) in combinations(enumerate(ratings), 2):
        both = ~np.isnan(one + other)
        part = None if group is None else group[both]
        tau = point(Kendall(one[both], other[both], part), int(both.sum()))
        matrix[a, b] = matrix[b, a] = np.nan if tau is None else tau
    return matrix
