"""New items placed onto settled ones: a scale that grows, and keeps what was published.

The rankings of a batch hold new items and some settled ones, its anchors. Of these is known what
was published, N(θ, V) with V without φ, as if one more ranking said it. New items are θ_i = m + e_i,
with e ~ N(0, σ²) and m as good as flat: a batch has a mean of its own, since with the settled items'
as prior a batch that lies a standard deviation higher is pulled back by 0.4 to 0.8. It has a spread of
its own, too: σ is found by the new rankings (EM), where that of the settled items counts as much as
PRIOR_ITEMS of the batch. Under the settled σ the intervals of a batch that is spread twice as wide
covered 87 %. Published ratings stay as they are; new ones stand next to them. φ is pooled over all
rankings, old and new.

Do the anchors keep their places? With d = θ − θ_old of all that is known now less what was published,
and C = V_old − V, d has the covariance φC where nothing has changed (Hausman 1978). C is of one rank
less than there are anchors, since new rankings know no zero of the scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, ClassVar, cast

import numpy as np

from judgeq.errors import RunError
from judgeq.rating import (
    ESTIMATORS,
    LIMITS,
    UNKNOWN,
    Fit,
    GoOn,
    Parameters,
    always,
    plackett_luce,
    position_bias,
    with_position,
)
from judgeq.rating.comparisons import components, joined
from judgeq.rating.posterior import Posterior
from judgeq.text import LEFT_OUT
from judgeq.types import Floats, Offsets, Verdicts

RIDGE = 1e-3
"""What is added to variances, as a share of them, so that they have an inverse."""
ARRAYS = ("theta", "mean", "errors", "errors_apart", "errors_across", "interval")
"""What a posterior says by item."""
PRIOR_ITEMS = 10.0
"""So many items of a batch say as much of its spread as the spread of the settled items does."""
MAX_EM_STEPS = 40
EM_TOLERANCE = 0.01
"""The change of log σ from step to step below which σ is found."""
LOOSE = 0.1
"""The error of a link, in standard deviations of θ, above which it is warned of."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Items that were judged together. Their rows follow those of the batches before, and so do the
    rounds in which they were judged. Its anchors are items of the batches numbered in `onto`; the first
    batch has none, and is rated by itself. What its `parameters` leave open is as it was where the
    batch was placed."""

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
    """The fit of one batch by itself: of its `anchors`, whose rows in the whole these are, and then of
    its own items, whose rows are those from `first` on."""

    fit: Fit
    anchors: Offsets
    first: int

    @property
    def posterior(self) -> Posterior:
        """Of its anchors and its items."""
        return cast("Posterior", self.fit.posterior)

    @property
    def rows(self) -> slice:
        """Rows of its own items in the whole."""
        return slice(self.first, self.first + len(self.posterior.component) - len(self.anchors))


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """How sure the ratings of all batches are, each by the posterior of its own batch: what results ask
    of a `Posterior`; `sigma` and `dispersion` are those of the last batch."""

    theta: Floats
    mean: Floats
    errors: Floats
    errors_apart: Floats
    errors_across: Floats
    interval: Floats
    component: Offsets
    sigma: float
    dispersion: float
    is_repeated: bool
    share: Any = None

    probability_above = Posterior.probability_above


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
    parts = settled(batches, rounds, go_on, parts)
    last = parts[-1].fit
    if len(parts) == 1:
        return last
    link = _link(batches[-1], parts)
    if refit:
        return replace(_together(batches, rounds, n, go_on), link=link)
    own = parts[-1].posterior
    placed = Placed(
        **{name: _of_all(parts, name) for name in ARRAYS},
        component=components(joined(rounds), n),
        sigma=own.sigma,
        dispersion=own.dispersion,
        is_repeated=own.is_repeated,
    )
    return replace(last, posterior=placed, link=link)


def _of_all(parts: Sequence[Part], name: str) -> Floats:
    """What the parts' posteriors say of their own items, by item."""
    each = [np.array(getattr(part.posterior, name))[..., len(part.anchors) :] for part in parts]
    return np.concatenate(each, axis=-1)


def settled(
    batches: Sequence[Batch],
    rounds: Sequence[Verdicts],
    go_on: GoOn = always,
    before: Sequence[Part] = (),
) -> list[Part]:
    """The parts of all batches, each fitted by its own verdicts and by what is known of its anchors; of
    the first ones those `before`: a part never changes once its verdicts are all there."""
    parts = list(before)
    for number in range(len(parts), len(batches)):
        batch, done = batches[number], sum(one.rounds for one in batches[:number])
        first = sum(one.items for one in batches[:number])
        verdicts = joined(rounds[done : done + batch.rounds])
        if number:
            onto = [parts[one] for one in batch.onto]
            parts.append(_placed(batch, first, verdicts, onto, go_on))
        else:
            alone = ESTIMATORS["pl"].fit(verdicts, batch.items, batch.parameters, go_on)
            parts.append(Part(alone, np.empty(0, np.int64), first))
    return parts


def _placed(
    batch: Batch, first: int, verdicts: Verdicts, onto: Sequence[Part], go_on: GoOn
) -> Part:
    """A batch whose first row is `first`, placed onto parts."""
    anchors = np.unique(verdicts.items[verdicts.items < first]).astype(np.int64)
    theta, covariance = _known(anchors, onto)
    base = onto[0].fit
    settled_sigma = base.sigma or UNKNOWN
    position = base.position if batch.parameters.position is None else batch.parameters.position

    a, n = len(anchors), len(anchors) + batch.items
    local = np.append(anchors, np.arange(first, first + batch.items))
    verdicts = replace(
        verdicts,
        items=np.searchsorted(local, verdicts.items).astype(np.int32),
        presented=np.searchsorted(local, verdicts.presented).astype(np.int32),
    )
    component = components(verdicts, n)
    component[np.isin(component, component[:a])] = 1  # what is known connects the anchors

    def fit_with(sigma: float) -> Fit:
        return plackett_luce.fit(
            verdicts,
            n,
            Parameters(sigma, position),
            go_on,
            loadings=(np.arange(n)[:, None] >= a).astype(np.float64),
            known=(theta, _Known(theta, covariance, sigma)) if a else None,
            component=component,
            centred=np.full(n, np.inf),
            earlier=np.sum([part.posterior.scatter for part in onto], axis=0),
        )

    chosen = batch.parameters.sigma is None
    if chosen:
        own = np.flatnonzero(component[a:]) + a
        found = _fit_own_spread(fit_with, settled_sigma, own)
    else:
        found = fit_with(cast("float", batch.parameters.sigma))
    posterior = cast("Posterior", found.posterior)
    effect = position_bias.effect(posterior, verdicts, joint=position, go_on=go_on)
    return Part(replace(found, chosen=chosen, effect=effect), anchors, first)


def _fit_own_spread(fit_with: Callable[[float], Fit], settled_sigma: float, rows: Offsets) -> Fit:
    """Return the fit under the σ of the items in `rows`: the mode of its posterior, found by EM.

    The prior of σ² is what PRIOR_ITEMS items of the settled spread say (a scaled inverse χ²). Where no
    item in `rows` was judged, σ stays that of the settled items.
    """
    sigma = settled_sigma
    fit = fit_with(sigma)
    for _ in range(MAX_EM_STEPS if len(rows) else 0):
        squares = cast("Posterior", fit.posterior).squares(rows).sum()
        expected = (PRIOR_ITEMS * settled_sigma**2 + squares) / (PRIOR_ITEMS + len(rows))
        before, sigma = sigma, float(np.clip(math.sqrt(expected), *LIMITS))
        fit = fit_with(sigma)
        if abs(math.log(sigma / before)) < EM_TOLERANCE:
            break
    return fit


class _Known:
    """What is known of items, as a block of one ranking: N(`mean`, `covariance`) in all, of which the
    prior N(0, σ²) of each is there already."""

    def __init__(self, mean: Floats, covariance: Floats, sigma: float) -> None:
        precision = np.linalg.inv(covariance)
        self._matrix = (precision + precision.T) / 2 - np.eye(len(mean)) / sigma**2
        self._pull = (precision @ mean)[:, None]

    def loss(self, eta: Floats) -> float:
        return float((eta * (self._matrix @ eta / 2 - self._pull)).sum())

    def bent(self, eta: Floats) -> tuple[float, Floats, Floats]:
        return self.loss(eta), self._matrix @ eta - self._pull, self._matrix[:, :, None].copy()


def _known(rows: Offsets, parts: Sequence[Part]) -> tuple[Floats, Floats]:
    """What parts say of some rows: their scores, and V without φ, in which batches are independent.
    Raises RunError for a row that is of none of them."""
    theta, covariance = np.full(len(rows), np.nan), np.zeros((len(rows), len(rows)))
    for part in parts:
        own = np.flatnonzero((rows >= part.rows.start) & (rows < part.rows.stop))
        local = rows[own] - part.first + len(part.anchors)
        theta[own] = part.posterior.mean[local]
        covariance[np.ix_(own, own)] = part.posterior.covariance(local)
    if np.isnan(theta).any():
        raise RunError(
            "the run's record is damaged: new texts were compared with some that they aren't placed "
            "onto."
        )
    covariance[np.diag_indices(len(rows))] *= 1 + RIDGE  # the mean of all of a batch is exactly 0
    return theta, covariance


def _link(batch: Batch, parts: Sequence[Part]) -> Link | None:
    """That of the last part; None as long as it has no anchors."""
    part = parts[-1]
    a, posterior = len(part.anchors), part.posterior
    if not a:
        return None
    published, before = _known(part.anchors, [parts[one] for one in batch.onto])
    # φ of the anchors alone: a judge that errs at random scatters those more that lie apart.
    phi = posterior.dispersion_of(np.arange(len(posterior.theta)) < a)
    moved = posterior.theta[:a] - published
    gone = before - posterior.covariance(np.arange(a))
    # What is known now of one is the mean of both, by their precisions.
    old, own = np.diag(before), np.maximum(np.diag(gone), 1e-6 * np.diag(before))
    z = moved / np.sqrt(phi * own)
    values, vectors = np.linalg.eigh((gone + gone.T) / 2)
    sure = values > 1e-6 * values.max(initial=1e-9)
    statistic = float(((moved @ vectors)[sure] ** 2 / values[sure]).sum()) / phi
    fresh = a + np.flatnonzero(posterior.component[a:] == 1)
    error = posterior.error_of_mean(fresh) if len(fresh) else math.inf
    return Link(
        anchors=part.anchors,
        error=error,
        ratio=error / max(float(_of_all(parts[:-1], "mean").std()), 1e-9),
        published=published,
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
    verdicts = joined(rounds)
    component = components(verdicts, n)
    number = np.repeat(np.arange(len(batches)), [batch.items for batch in batches])
    means = (number[:, None] == np.arange(1, len(batches))).astype(np.float64)
    of_first = np.bincount(component[: batches[0].items], minlength=len(component) + 1)[component]
    centred = np.where(of_first > 0, np.maximum(of_first, 2.0), np.inf)

    def rate(parameters: Parameters) -> Fit:
        more = {"loadings": means, "component": component, "centred": centred}
        return plackett_luce.fit(verdicts, n, parameters, go_on, **more)

    return with_position(rate, verdicts, batches[-1].parameters, go_on)
