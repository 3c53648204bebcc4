"""New items placed onto settled ones: a scale that grows, and keeps what was published.

The rankings of a batch hold new items and some settled ones, its anchors. Of these is known what
was published, N(θ, V) with V without φ, as if one more ranking said it. New items are θ_i = m + e_i,
with e ~ N(0, σ²) and m as good as flat: a batch has a mean of its own, since with the settled items'
as prior a batch that lies a standard deviation higher is pulled back by 0.4 to 0.8. Published ratings
stay as they are; new ones stand next to them. φ is pooled over all rankings, old and new.

Do the anchors keep their places? With d = θ − θ_old of all that is known now less what was published,
and C = V_old − V, d has the covariance φC where nothing has changed (Hausman 1978). C is of one rank
less than there are anchors, since new rankings know no zero of the scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from judgeq.errors import RunError
from judgeq.rating import (
    ESTIMATORS,
    UNKNOWN,
    Fit,
    GoOn,
    Parameters,
    always,
    curvature,
    plackett_luce,
    position_bias,
    with_position,
)
from judgeq.rating.comparisons import components, joined
from judgeq.rating.curvature import Scatter
from judgeq.rating.posterior import Posterior
from judgeq.text import LEFT_OUT
from judgeq.types import Bools, Floats, Offsets, Verdicts

RIDGE = 1e-3
"""What is added to variances, as a share of them, so that they have an inverse."""
LOOSE = 0.1
"""The error of a link, in standard deviations of θ, above which it is warned of."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Items that were judged together. Their rows follow those of the batches before, and so do the
    rounds in which they were judged. Its anchors are items of the batches numbered in `onto`, or of
    those that they were placed onto; the first batch has none, and is rated by itself. `parameters`
    are those of its own; what they leave open is as it was where the batch was placed."""

    items: int
    rounds: int
    onto: tuple[int, ...] = ()
    parameters: Parameters = field(default_factory=Parameters)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """How well a batch is tied to the settled scale by its `anchors`, whose rows these are; arrays of
    shape (anchors,)."""

    anchors: Offsets = field(metadata=LEFT_OUT)
    error: float
    """The standard error of the mean of the new items on the settled scale."""
    ratio: float
    """The same in standard deviations of the settled θ."""
    published: Floats = field(metadata=LEFT_OUT)
    """θ of each anchor, as published."""
    published_errors: Floats = field(metadata=LEFT_OUT)
    found: Floats = field(metadata=LEFT_OUT)
    """θ of each anchor by the new rankings, and by where the others were published."""
    found_errors: Floats = field(metadata=LEFT_OUT)
    z: Floats = field(metadata=LEFT_OUT)
    """How far the two are apart, in standard errors of that."""
    p: float
    """The probability of anchors that have moved as far together, if nothing has changed."""
    p_item: float
    """The probability that one of them has moved as far as the one that did most (Bonferroni)."""
    JSON_KEYS: ClassVar = {"anchors": "anchors.size", "holds": "holds"}

    @property
    def least_p(self) -> float:
        """The smaller probability of both tests, as far as it counts after two of them."""
        return min(1.0, 2 * min(self.p, self.p_item))

    @property
    def holds(self) -> bool:
        """Whether the anchors keep their places, as far as is seen."""
        return self.least_p >= 0.05

    @property
    def cautions(self) -> list[str]:
        """That the link doesn't hold, and that it is loose, in sentences."""
        found = []
        if not self.holds:
            found.append(
                "The settled texts don't keep their places in the new answers (p = "
                f"{self.least_p:.2g}): the judge may have changed, and new scores may not be on the "
                "settled scale. The figure `link` of `judgeq report` shows which texts moved; "
                "`judgeq drift` asks the judge again."
            )
        if self.ratio > LOOSE:
            found.append(
                "The new texts are tied to the settled ones loosely: how far all of them lie from these "
                f"is known to ±{1.96 * self.error:.2f} only, where scores have an sd of "
                f"{self.error / self.ratio:.2f}. Further rounds tie them closer."
            )
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The fit of one batch by itself: its local rows are first its anchors, then its own items, whose
    rows in the whole are `anchors` and from `first` on."""

    fit: Fit
    anchors: Offsets
    first: int
    items: int
    closure: frozenset[int]
    """The numbers of the batches that it rests on, its own among them."""

    @property
    def posterior(self) -> Posterior:
        """Of its anchors and items, by local row."""
        posterior: Posterior = self.fit.posterior  # type: ignore[assignment]
        return posterior

    @property
    def own(self) -> slice:
        """Local rows of its own items."""
        return slice(len(self.anchors), None)

    @property
    def rows(self) -> slice:
        """Rows of these in the whole."""
        return slice(self.first, self.first + self.items)


class Placed:
    """How sure the ratings of all batches are, each by the posterior of its own batch: a `Posterior`
    of what was published and what is new, as far as results ask for one."""

    share = None

    def __init__(self, parts: Sequence[Part], component: Offsets) -> None:
        self._parts, self.component = parts, component
        self.sigma = parts[-1].posterior.sigma

    def _all(self, name: str) -> Floats:
        """An array by item of each part's posterior."""
        return np.concatenate([getattr(part.posterior, name)[part.own] for part in self._parts])

    @cached_property
    def theta(self) -> Floats:
        """As `Posterior.theta`."""
        return self._all("theta")

    @cached_property
    def mean(self) -> Floats:
        """As `Posterior.mean`."""
        return self._all("mean")

    @cached_property
    def errors(self) -> Floats:
        """As `Posterior.errors`."""
        return self._all("errors")

    @cached_property
    def errors_apart(self) -> Floats:
        """As `Posterior.errors_apart`."""
        return self._all("errors_apart")

    @cached_property
    def errors_across(self) -> Floats:
        """As `Posterior.errors_across`."""
        return self._all("errors_across")

    @property
    def dispersion(self) -> float:
        """φ of the last batch, pooled with those that it rests on."""
        return self._parts[-1].posterior.dispersion

    @cached_property
    def interval(self) -> tuple[Floats, Floats]:
        """As `Posterior.interval`."""
        of_parts = [(part.own, part.posterior.interval) for part in self._parts]
        low, high = (np.concatenate([ends[at][own] for own, ends in of_parts]) for at in (0, 1))
        return low, high

    def probability_above(self, i: int, j: int) -> float:
        """P(θi > θj) of two items, given by their rows."""
        apart = float(np.hypot(*self.errors_apart[[i, j]]))
        return 0.5 if i == j else NormalDist().cdf(float(self.mean[i] - self.mean[j]) / apart)


def fit(
    batches: Sequence[Batch],
    rounds: Sequence[Verdicts],
    n: int,
    go_on: GoOn = always,
    *,
    refit: bool = False,
    parts: Sequence[Part] = (),
) -> Fit:
    """The ratings of n items of some batches, by verdicts round by round; of the last batch some may be
    missing. `refit`: all verdicts are rated together, each batch around a mean of its own, and settled
    ratings move. `parts`: those of the first batches, if they are fitted already (`settled`). Raises
    NotConvergedError, and RunError for an anchor of a batch that isn't `onto`.
    """
    parts = [*parts, *settled(batches, rounds, go_on, parts)]
    component = components(joined(rounds), n)
    placed = Placed(parts, component)
    last = parts[-1].fit
    if len(batches) == 1:
        return last
    together = _together(batches, rounds, n, go_on) if refit else None
    return replace(
        together or last,
        theta=placed.theta if together is None else together.theta,
        posterior=placed if together is None else together.posterior,
        link=_link(placed.theta, parts),
    )


def settled(
    batches: Sequence[Batch],
    rounds: Sequence[Verdicts],
    go_on: GoOn = always,
    before: Sequence[Part] = (),
) -> list[Part]:
    """The parts of the batches that follow those `before`, each fitted by its own verdicts and by what
    is known of its anchors: a part never changes once its verdicts are all there."""
    parts = list(before)
    for number in range(len(parts), len(batches)):
        batch, done = batches[number], sum(one.rounds for one in batches[:number])
        first = sum(one.items for one in batches[:number])
        verdicts = joined(rounds[done : done + batch.rounds])
        if number:
            parts.append(_placed(batch, number, first, verdicts, parts, go_on))
        else:
            alone = ESTIMATORS["pl"].fit(verdicts, batch.items, batch.parameters, go_on)
            none = np.empty(0, np.int64)
            parts.append(Part(alone, none, first, batch.items, frozenset([number])))
    return parts[len(before) :]


def _placed(
    batch: Batch,
    number: int,
    first: int,
    verdicts: Verdicts,
    parts: Sequence[Part],
    go_on: GoOn,
) -> Part:
    """A batch whose first row is `first`, placed onto parts."""
    before = frozenset[int]().union(*(parts[one].closure for one in batch.onto))
    anchors = np.unique(verdicts.items[verdicts.items < first]).astype(np.int64)
    theta, covariance, there = _known(anchors, [parts[one] for one in sorted(before)])
    if not there.all():
        raise RunError(
            "the run's record is damaged: new texts were compared with some that they aren't placed "
            "onto."
        )
    base = parts[batch.onto[0]].fit
    sigma = batch.parameters.sigma or base.sigma or UNKNOWN
    position = base.position if batch.parameters.position is None else batch.parameters.position

    a, n = len(anchors), len(anchors) + batch.items
    local = np.append(anchors, np.arange(first, first + batch.items))
    verdicts = replace(
        verdicts,
        items=np.searchsorted(local, verdicts.items).astype(np.int32),
        presented=np.searchsorted(local, verdicts.presented).astype(np.int32),
    )
    means = np.ones((n, 1))
    means[:a] = 0
    numbers, loadings = position_bias.covariates(verdicts, means, position=position)
    rankings = plackett_luce.rankings_of(verdicts, n, numbers, go_on)
    if a:
        rankings = rankings.with_known(np.arange(a), _Known(theta, covariance, sigma))
    start = np.concatenate([theta, np.zeros(n - a + rankings.p)])
    what = "the placing of new items"
    best = curvature.maximum(rankings, sigma, start=start, what=what)
    component = components(verdicts, n)
    component[np.isin(component, component[:a])] = 1  # what is known connects the anchors
    earlier = Scatter(*np.sum([parts[one].posterior.scatter for one in before], axis=0).tolist())
    posterior = Posterior(
        rankings, best, sigma, component, loadings, centred=np.full(n, np.inf), earlier=earlier
    )
    effect = position_bias.effect(posterior, verdicts, joint=position, go_on=go_on)
    alone = Fit(posterior.theta, posterior, chosen=base.chosen, position=position, effect=effect)
    return Part(alone, anchors, first, batch.items, before | {number})


class _Known:
    """What is known of items, as a block of one ranking: N(`mean`, `covariance`) in all, of which the
    prior N(0, σ²) of each is there already."""

    def __init__(self, mean: Floats, covariance: Floats, sigma: float) -> None:
        precision = np.linalg.inv(covariance)
        self._matrix = (precision + precision.T) / 2 - np.eye(len(mean)) / sigma**2
        self._pull = (precision @ mean)[:, None]

    def loss(self, eta: Floats) -> float:
        return float((eta * (self._matrix @ eta / 2 - self._pull)).sum())

    def gradient(self, eta: Floats) -> Floats:
        slope: Floats = self._matrix @ eta - self._pull
        return slope

    def matrices(self) -> Floats:
        return self._matrix[:, :, None].copy()


def _known(rows: Offsets, parts: Sequence[Part]) -> tuple[Floats, Floats, Bools]:
    """What parts say of some rows: θ, and V without φ, in which batches are independent; and whether
    they hold each row."""
    theta, there = np.zeros(len(rows)), np.zeros(len(rows), np.bool_)
    covariance = np.zeros((len(rows), len(rows)))
    for part in parts:
        own = np.flatnonzero((rows >= part.first) & (rows < part.first + part.items))
        local = rows[own] - part.first + len(part.anchors)
        there[own], theta[own] = True, part.posterior.theta[local]
        covariance[np.ix_(own, own)] = part.posterior.covariance(local)
    covariance[np.diag_indices(len(rows))] *= 1 + RIDGE  # the mean of all of a batch is exactly 0
    return theta, covariance, there


def _link(theta: Floats, parts: Sequence[Part]) -> Link | None:
    """That of the last part; None as long as it has no anchors."""
    part = parts[-1]
    a, posterior = len(part.anchors), part.posterior
    if not a:
        return None
    published, before, _ = _known(part.anchors, parts[:-1])
    phi, rows = posterior.dispersion, np.arange(a)
    now = posterior.covariance(rows)
    fresh = a + np.flatnonzero(posterior.component[a:] == 1)
    moved, gone = posterior.theta[:a] - published, before - now
    # What is known now of one is the mean of both, by their precisions.
    old, own = np.diag(before), np.maximum(np.diag(gone), 1e-6 * np.diag(before))
    z = moved / np.sqrt(phi * own)
    values, vectors = np.linalg.eigh((gone + gone.T) / 2)
    sure = values > 1e-6 * values.max(initial=1e-9)
    statistic = float(((moved @ vectors)[sure] ** 2 / values[sure]).sum()) / phi
    settled_theta = np.concatenate([one.posterior.theta[one.own] for one in parts[:-1]])
    error = posterior.error_of_mean(fresh) if len(fresh) else math.inf
    return Link(
        anchors=part.anchors,
        error=error,
        ratio=error / max(float(settled_theta.std()), 1e-9),
        published=published,
        published_errors=np.sqrt(phi * old),
        found=published + moved * old / own,
        found_errors=np.sqrt(phi * old * np.maximum(old / own - 1, 0)),
        z=z,
        p=chi_square(statistic, int(sure.sum())),
        p_item=min(1.0, 2 * a * NormalDist().cdf(-float(np.abs(z).max()))),
    )


def chi_square(x: float, df: int) -> float:
    """The probability of a larger χ² of so many degrees of freedom (Wilson and Hilferty 1931)."""
    if not df:
        return 1.0
    spread = 2 / (9 * df)
    return 1 - NormalDist().cdf(((x / df) ** (1 / 3) - (1 - spread)) / math.sqrt(spread))


def _together(batches: Sequence[Batch], rounds: Sequence[Verdicts], n: int, go_on: GoOn) -> Fit:
    """All verdicts in one fit. The zero of its scale is the mean of the first batch."""
    verdicts, component = joined(rounds), components(joined(rounds), n)
    number = np.repeat(np.arange(len(batches)), [batch.items for batch in batches])
    means = (number[:, None] == np.arange(1, len(batches))).astype(np.float64)
    of_first = np.bincount(component[number == 0], minlength=component.max(initial=0) + 1)[
        component
    ]
    centred = np.where(of_first > 0, np.maximum(of_first, 2.0), np.inf)

    def rate(parameters: Parameters) -> Fit:
        found = plackett_luce.maximum(verdicts, n, parameters, means, go_on)
        at = (found.rankings, found.parameters, found.sigma)
        posterior = Posterior(*at, component, found.loadings, centred=centred)
        return Fit(posterior.theta, posterior, found.chosen, found.position)

    return with_position(rate, verdicts, batches[-1].parameters, go_on)
