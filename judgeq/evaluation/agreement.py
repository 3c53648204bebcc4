"""How well judges agree: how they coded the same pairs in questions in common, Krippendorff's α of that,
and Kendall's τ between the ratings by each alone.

A question is a set of items, whoever was asked about it, and in whatever order. For each two of its
items (a unit) a judge codes 1 where the lower row is placed higher, 0 where the other is, ½ for a tie;
so that a tie is half as far from a win as a loss is. Of an item judged alone the coding is its score.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.engine.results import Result
from judgeq.evaluation.metrics import Measured, bootstrap
from judgeq.evaluation.scale import fitted
from judgeq.rating import Fit, comparisons, ranks
from judgeq.rating.correlation import Kendall, pearson, point
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats, Offsets, Verdicts

_CONSTANT = 1e-12
"""A variance of so little of the mean square is what rounding leaves of a constant."""


class Codings(NamedTuple):
    """What judges said of two items (a unit), 0 to 1, by unit and judge: a row for all that a judge said
    of a unit, m in all. Of items judged alone the counts are 0, for their scores say nothing of an
    order."""

    question: Offsets  # of each unit, shape (units,)
    unit: Offsets
    judge: Offsets
    value: Floats  # the mean
    counts: Floats  # of 0, ½ and 1, shape (m, 3)


def codings(verdicts: Verdicts) -> Codings:
    """All codings that verdicts imply: k(k−1)/2 of a ranking of k, none between items of which a partial
    one knows no order. Questions are numbered by size and then by items, so that the order of the
    verdicts is no matter."""
    alone = bool(verdicts.scored.all())
    if alone:
        judge, value = verdicts.judges, verdicts.scores
        question = unit = verdicts.items.astype(np.int64)
    else:
        rows, row = np.unique(verdicts.items, return_inverse=True)
        first, second, tie = comparisons.pairs_of(verdicts)
        one, other, of = row[first], row[second], verdicts.of_slot[first]
        judge, value = verdicts.judges[of], np.where(tie, 0.5, one < other)
        question = _questions(verdicts)[of]
        unit = (question * len(rows) + np.minimum(one, other)) * len(rows) + np.maximum(one, other)
    judges = int(judge.max(initial=0)) + 1
    _, at, number = np.unique(unit, return_index=True, return_inverse=True)
    row_of, which = np.unique(number * judges + judge, return_inverse=True)
    counts = np.zeros((len(row_of), 3))
    if not alone:
        np.add.at(counts, (which, (2 * value).astype(np.int64)), 1)
    mean = np.bincount(which, value) / np.bincount(which)
    return Codings(question[at], row_of // judges, row_of % judges, mean, counts)


def _questions(verdicts: Verdicts) -> Offsets:
    """The number of each verdict's set of items, shape (verdicts,)."""
    question, count = np.zeros(len(verdicts), np.int64), 0
    for slots in comparisons.slots_by_size(verdicts):
        sets = np.sort(verdicts.items[slots], axis=0)
        different, number = np.unique(sets, axis=1, return_inverse=True)
        question[verdicts.of_slot[slots[0]]] = count + number.reshape(-1)
        count += different.shape[1]
    return question


def alpha(given: Codings, times: int, rng: np.random.Generator) -> tuple[Measured, int]:
    """Krippendorff's α, None where it is undefined, with its 95 % percentile interval from `times`
    resamples of the questions; and of how many units that several judges coded.

    1 is agreement, 0 what chance gives, less is discord: α = 1 − Do / De, of squared differences, Do
    being their mean within the units, De that of any two values (Krippendorff 2011, "Computing
    Krippendorff's alpha-reliability", for interval data). Of what a judge said of one unit several times
    the mean counts: it says nothing of agreement with others. Each pair counts both ways round: else
    what chance gives would depend on how the items are numbered. So without ties α is 1 − 2 · (how often
    two judges differ) but for a small sample's correction.
    """
    sums = (np.bincount(given.unit, given.value**power, len(given.question)) for power in range(3))
    several = np.bincount(given.unit, minlength=len(given.question)) > 1
    n, total, squares, question = (of[several] for of in (*sums, given.question))
    # Σ (v − v′)² over the ordered pairs of n values is 2 (n Σ v² − (Σ v)²).
    within = 2 * np.maximum(n * squares - total**2, 0) / (n - 1)
    if given.counts.any():  # of a value v the other way round is 1 − v
        n, total, squares, within = 2 * n, n, 2 * (squares - total) + n, 2 * within
    questions, number = np.unique(question, return_inverse=True)
    of_question = [np.bincount(number, of) for of in (n, total, squares, within)]

    def measure(weights: Floats) -> Floats:
        n, total, squares, within = (weights @ of for of in of_question)
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


def between(given: Codings, these: Bools, those: Bools) -> Shared:
    """Of `these` judges and `those`, both of shape (judges,), who may be both; nobody with themselves.
    The share of two items is the mean over all couples of answers."""

    def by_unit(columns: Floats, judges: Bools) -> Floats:
        """Sums over these judges' rows, shape (units, columns)."""
        theirs = columns.T * judges[given.judge]
        sums = [np.bincount(given.unit, of, len(given.question)) for of in theirs]
        return np.stack(sums, axis=1)

    own = by_unit(_couples(given.counts, given.counts), these & those)
    every = _couples(by_unit(given.counts, these), by_unit(given.counts, those))
    alike, couples = (every - own).T
    share = np.divide(alike, couples, out=np.zeros_like(alike), where=couples > 0)
    sums = (np.bincount(given.question, of) for of in (share, couples > 0))
    return Shared(*(of.astype(np.float64) for of in sums))


def _couples(one: Floats, other: Floats) -> Floats:
    """How many couples of codings, counted by value, are alike, and how many there are: two columns."""
    alike, every = ((one @ ALIKE) * other).sum(axis=1), one.sum(axis=1) * other.sum(axis=1)
    return np.stack([alike, every], axis=1)


# The judges of a run

PEOPLE = "people"
"""The name of all people together."""
MOST = 10
"""Of more people or imported judges none is rated by their own verdicts alone."""
MOST_PAIRS = 2_000_000
"""Of more pairs of items α takes long: a result's screen does without it."""
IN_PART, HARDLY = 0.8, 0.5
"""The correlations of two judges' scores, without the noise of few answers, below which they agree only
in part, and hardly."""
ASSUMED_RHO = 0.8
"""The correlation of one judge's scores with those by endless answers, where no errors are known."""
LOW_ALPHA, ENOUGH_PAIRS = 0.1, 100
"""The α of many judges below which they hardly agree, if they judged so many pairs in common."""


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
    # The two listed judges that agree least, by their places, where they disagree; and the correlation
    # of what they would say in endless answers.
    apart: tuple[int, int] | None = field(default=None, metadata=LEFT_OUT)
    apart_by: float = field(default=1.0, metadata=LEFT_OUT)

    @property
    def taus(self) -> list[float]:
        """Kendall's τ-b between each two judges, where it is defined."""
        below = self.kendall[np.tril_indices(len(self.names), -1)]
        return [tau for tau in below.tolist() if not np.isnan(tau)]

    @property
    def cautions(self) -> list[str]:
        """That judges disagree, in a sentence; [] where they agree, or nobody knows."""
        alpha = self.krippendorff_alpha.value if self.judged_by_several else None
        if self.apart is not None:
            first, second = (self.names[place] for place in self.apart)
            by = [] if alpha is None else [f"Krippendorff's α {alpha:.2f}"]
            by.append(f"Kendall's τ {self.kendall[self.apart]:.2f}")
            more = ", most of all judges" if len(self.names) > 2 else ""
            hardly = self.apart_by < HARDLY
            how = "disagree" if hardly else "agree only in part"
            what = "may mean nothing" if hardly else "mix two views"
            return [
                f"{first} and {second} {how}{more} ({', '.join(by)}): their pooled scores {what}. "
                "See `judgeq evaluate`."
            ]
        too_low = alpha is not None and alpha < LOW_ALPHA and self.judged_by_several >= ENOUGH_PAIRS
        if self.others and too_low:
            return [
                f"The judges hardly agree (Krippendorff's α {alpha:.2f}, over "
                f"{self.judged_by_several:,} pairs that several judged): scores of all judges together "
                "may mean nothing."
            ]
        return []


def of_run(
    run: Result, resamples: int, seed: int, *, summary: bool = False
) -> PanelAgreement | None:
    """Return how well a run's judges agree, and people together with models; None unless two answered
    something. The `summary` that a result shows has no α where that would take long."""
    first, n = 0 if run.said is None else run.said.first, len(run.scores.ids)
    # Each order of a pair is answered by another person.
    every = comparisons.joined(run.history.verdicts if run.said is None else run.history.asked)
    there = np.unique(every.judges)
    if len(there) < 2:
        return None
    listed = there if len(there) <= MOST else there[there < first]
    judge_names = run.judges
    groups = [(judge_names[number], [number]) for number in listed.tolist()]
    if there[0] < first <= there[-1]:
        groups.insert(0, (PEOPLE, there[there >= first].tolist()))
    parts = [every.where(np.isin(every.judges, group)) for _, group in groups]
    components = [comparisons.components(part, n, scored=True) for part in parts]
    parameters = fitted(run)
    fits = [run.main.fit(part, n, parameters) for part in parts]
    ratings = [
        np.where(component, fit.maximum, np.nan)
        for fit, component in zip(fits, components, strict=True)
    ]
    found, several = Measured(None, why="there are many pairs"), 0
    if not summary or (every.sizes * (every.sizes - 1) // 2).sum() <= MOST_PAIRS:
        rng = seeds.rng(seed, "bootstrap", "agreement")
        found, several = alpha(codings(every), resamples, rng)
    group = run.history.group
    rhos = [
        _rho(fit, component > 0, group) for fit, component in zip(fits, components, strict=True)
    ]
    apart, apart_by = furthest_apart(ratings, rhos, group)
    return PanelAgreement(
        rating=run.main.column,
        names=[name for name, _ in groups],
        verdicts=[*map(len, parts)],
        ratings=ratings,
        components=components,
        kendall=kendall_by_pair(ratings, group),
        krippendorff_alpha=found,
        judged_by_several=several,
        others=len(there) - len(listed),
        apart=apart,
        apart_by=apart_by,
    )


def _rho(fit: Fit, judged: Bools, group: Offsets | None) -> float:
    """Return ρ̂ of one judge: how its order correlates with that by endless answers of it."""
    sure = fit.posterior
    if sure is None or judged.sum() < 2:
        return ASSUMED_RHO
    of = None if group is None else group[judged]
    return ranks.reliability(sure.mean[judged], sure.errors_apart[judged], of)


def furthest_apart(
    ratings: Sequence[Floats], rhos: Sequence[float], group: Offsets | None = None
) -> tuple[tuple[int, int] | None, float]:
    """Return the two judges whose ratings agree least, and their correlation without the noise of few
    answers; None where no two agree less than IN_PART.

    The correlation of two ratings is divided by what it would be if the judges were one: the product
    of their correlations with endless answers, `rhos` (Spearman 1904). Two judges are apart
    where the upper end of a one-sided 95 % interval (Fisher's z) is too low, of all pairs of judges at
    once (Bonferroni). Ratings have shape (n,), nan of items that a judge didn't see.
    """
    least, lowest = None, IN_PART
    pairs = [*combinations(range(len(ratings)), 2)]
    z = NormalDist().inv_cdf(1 - 0.05 / max(1, len(pairs)))
    for a, b in pairs:
        both = ~np.isnan(ratings[a] + ratings[b])
        part, n = None if group is None else group[both], int(both.sum())
        r = point(pearson(ratings[a][both], ratings[b][both], part), n) if n > 3 else None
        most = rhos[a] * rhos[b]
        if r is None or most <= 0:
            continue
        high = math.tanh(math.atanh(min(r, 1 - 1e-9)) + z / math.sqrt(n - 3))
        if high / most < IN_PART and r / most < lowest:
            least, lowest = (b, a), r / most
    return least, lowest


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
