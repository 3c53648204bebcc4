"""Plackett-Luce, symmetrised: whole lists at once  (Plackett 1975; Luce 1959).

A list is chosen from the top, each time one of those that are left: item i with probability exp(θi)
/ Σ exp(θj). Chosen from the bottom, by −θ, it is another model of the same list; the log likelihood
here is the mean of the two, ½[ℓ(r; θ) + ℓ(reversed r; −θ)], so that neither end is read more
closely than the other and θ only changes its sign where all lists are turned round. For two items
both are Bradley-Terry's.

Ties: a list with ties counts as two of half the weight each, with the tied items in the order in which
they were presented and in the reverse of it. Of two items that is a half win each way.

Partial rankings know no order of the items between the first and the last places: only the best and the
worst of a list were named, or the first two of five. They are the mean of two models of what is known,
of which each chooses one item after the other from those that are left: first the places at the
top, each by θ, then those at the bottom, each by −θ; or first the bottom. Each is a probability
of all that a judge may say, adding up to 1, and nothing is said of an order that wasn't asked for. Of
the best b and the worst w of S that is

    ½[f(b|S) + g(w|S∖b)] + ½[g(w|S) + f(b|S∖w)],
    f(x|S) = θx − log Σ_S exp(θ),  g(x|S) = −θx − log Σ_S exp(−θ),

the mean of best-worst and worst-best choice (Marley and Louviere 2005; Marley and Islam 2012). Where
all places are known the two are the whole list's from the top and from the bottom: for three items the
best and the worst say as much as a ranking, and count the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from judgeq.rating import UNKNOWN, Fit, GoOn, Parameters, always, evidence, newton, position_effect
from judgeq.rating.comparisons import components
from judgeq.rating.posterior import Posterior, Prior
from judgeq.rating.rankings import Block, Rankings
from judgeq.types import Bools, Floats, Offsets, Verdicts

NAME = "Plackett-Luce"
BOTH = (True, False)
"""From the top and from the bottom."""
WIDEST = 300.0
"""The largest distance within one list of whose exponential the square is sure to be a number."""


class Maximum(NamedTuple):
    """The `parameters` at the maximum of a likelihood and a prior; `chosen`: its σ, by the evidence."""

    rankings: Rankings
    parameters: Floats
    prior: Prior
    chosen: bool


def fit(
    verdicts: Verdicts,
    n: int,
    parameters: Parameters,
    go_on: GoOn = always,
    *,
    implied: bool = False,
) -> Fit:
    """`pl`: θ by the MAP, 0 for items that were never compared, with their posterior. Of the comparisons
    that lists imply (`implied`): `bt`."""
    position = bool(parameters.position)
    places = position_effect.columns(verdicts).numbers if position else None
    found = maximum(verdicts, n, parameters, places, go_on, implied=implied)
    component = components(verdicts, n)
    posterior = Posterior(found.rankings, found.parameters, found.prior, component)
    return Fit(posterior.theta, posterior, found.chosen, position)


def maximum(
    verdicts: Verdicts,
    n: int,
    parameters: Parameters,
    covariates: Floats | None = None,
    go_on: GoOn = always,
    *,
    implied: bool = False,
) -> Maximum:
    """The maximum, with covariates as of `rankings_of`; σ is chosen by the evidence where it isn't
    given, but of implied comparisons, which are no probability of a list. Raises
    NotConvergedError."""
    ways = () if implied else BOTH
    rankings = rankings_of(verdicts, n, covariates, go_on, ways)
    sigma, start = parameters.sigma, None
    chosen = sigma is None and rankings.repeated and not implied
    if chosen:
        from_the_top = rankings_of(verdicts, n, covariates, go_on, (True,))
        with from_the_top.threads():
            sigma, start = evidence.sigma(from_the_top, components(verdicts, n))
    prior = Prior(UNKNOWN if sigma is None else sigma)
    with rankings.threads():
        what = f"{'Bradley-Terry' if implied else NAME} (MAP, σ = {prior.sigma:g})"
        best = newton.maximum(rankings, prior.precision(rankings), start=start, what=what)
    return Maximum(rankings, best, prior, chosen)


def rankings_of(
    verdicts: Verdicts,
    n: int,
    covariates: Floats | None = None,
    go_on: GoOn = always,
    ways: Sequence[bool] = BOTH,
) -> Rankings:
    """The likelihood of verdicts over n items. `covariates`, shape (slots, p), stand in the order
    of `verdicts.items`, tied ones in the order presented (`comparisons.settled`). `ways`: lists are
    chosen from the top (True), from the bottom, or as the mean of both; none: as the comparisons
    that they imply. One way alone is a probability of all that a judge may say, adding up to 1."""

    def make(k: int, groups: Offsets | None, unknown: slice | None) -> Block:
        if not ways or (unknown is None and k == 2):
            return Pairs(groups, unknown)
        if unknown is None:
            chosen = [_Way(order, up=up) for order in _orders(groups) for up in ways]
            return _Lists(chosen, 1 / len(chosen))
        chosen = [way for up in ways for way in _partial_ways(k, unknown, top_first=up)]
        return _Lists(chosen, 1 / len(ways))

    return Rankings(verdicts, n, make, covariates, go_on)


class Pairs:
    """Some rankings of one size k, as the comparisons that they imply."""

    def __init__(self, groups: Offsets | None, unknown: slice | None = None) -> None:
        """`groups`, shape (k, rankings), number the groups of tied items; None where nothing is tied.
        `unknown` are the places of partial rankings whose order isn't known."""
        self._groups = groups
        self._unknown = unknown
        self._curvature: list[Floats] = []

    def _after(self, place: int) -> slice:
        """The places after `place` that are compared with it."""
        unknown = self._unknown
        if unknown is not None and unknown.start <= place < unknown.stop:
            return slice(unknown.stop, None)
        return slice(place + 1, None)

    def _tied(self, place: int) -> Bools | None:
        """Which items after `place` are tied with it, shape (k − 1 − place, rankings)."""
        return None if self._groups is None else self._groups[place + 1 :] == self._groups[place]

    def loss(self, theta: Floats) -> float:
        """−log likelihood."""
        total = 0.0
        for place in range(len(theta) - 1):
            gap = theta[self._after(place)] - theta[place]
            loss = np.log1p(np.exp(-np.abs(gap)))  # log(1 + exp(gap)) = this + max(gap, 0)
            loss += np.maximum(gap, 0)
            tied = self._tied(place)
            if tied is not None:
                loss -= np.where(tied, gap / 2, 0)
            total += float(loss.sum())
        return total

    def gradient(self, theta: Floats) -> Floats:
        """Of the loss; keeps the curvature for `matrices`."""
        slope = np.zeros_like(theta)
        self._curvature = []
        for place in range(len(theta) - 1):
            # The probability of the opposite outcome; tanh overflows nowhere.
            after = self._after(place)
            upset = 0.5 + 0.5 * np.tanh((theta[after] - theta[place]) / 2)
            self._curvature.append(upset * (1 - upset))
            tied = self._tied(place)
            if tied is not None:
                upset -= np.where(tied, 0.5, 0)
            slope[place] -= upset.sum(axis=0)
            slope[after] += upset
        return slope

    def matrices(self) -> Floats:
        """The Hessians themselves, (k, k, rankings)."""
        k, rankings = len(self._curvature) + 1, self._curvature[0].shape[1]
        total = np.zeros((k, k, rankings))
        for place, curvature in enumerate(self._curvature):
            after = self._after(place)
            total[place, after] = total[after, place] = -curvature
        np.einsum("iim->im", total)[:] = -total.sum(axis=1)
        return total


class _Lists:
    """Lists of one size k in the ways in which they are chosen, each of the same weight."""

    def __init__(self, ways: Sequence[_Way], weight: float) -> None:
        self._ways, self._weight = ways, weight
        self._stages: list[tuple[_Way, _Stages | _WideStages]] = []
        self._shape: tuple[int, ...] = (0, 0)

    def loss(self, eta: Floats) -> float:
        return self._weight * sum(way.stages(eta).loss() for way in self._ways)

    def gradient(self, eta: Floats) -> Floats:
        total = np.zeros_like(eta)
        self._shape, self._stages = eta.shape, []
        for way in self._ways:
            stages = way.stages(eta)
            way.add(stages.gradient(), total)
            self._stages.append((way, stages))
        total *= self._weight
        return total

    def matrices(self) -> Floats:
        k, lists = self._shape
        total = np.zeros((k, k, lists))
        for way, stages in self._stages:
            way.add_matrices(stages.weights(), total)
        total *= -self._weight
        np.einsum("iim->im", total)[:] = -total.sum(axis=1)
        return total


def _orders(groups: Offsets | None) -> list[Offsets | None]:
    """The orders of the places in which lists are chosen: as they stand (None), and where there are
    ties, with the tied items the other way round."""
    turned = None if groups is None else _ties_turned(groups)
    tied = turned is not None and bool((turned != np.arange(len(turned))[:, None]).any())
    return [None, turned] if tied else [None]


def _partial_ways(k: int, unknown: slice, *, top_first: bool) -> list[_Way]:
    """The ways in which partial rankings of k items are chosen, of which the places `unknown` are in no
    known order: the top and then the bottom, or the bottom and then the top."""
    top, bottom = unknown.start, k - unknown.stop
    ends = (slice(0, k), slice(top, k)) if top_first else (slice(0, unknown.stop), slice(0, k))
    ways = [_Way(None, up=True, choices=top, part=ends[0])] if top else []
    return ways + ([_Way(None, up=False, choices=bottom, part=ends[1])] if bottom else [])


def _ties_turned(groups: Offsets) -> Offsets:
    """The places, shape (k, lists), in the order in which each group of tied items is reversed."""
    k = len(groups)
    place = np.broadcast_to(np.arange(k)[:, None], groups.shape)
    return np.lexsort((-place, groups), axis=0)


class _Way:
    """One way in which lists are chosen: places in this order (None: as they stand), from the top
    or from the bottom. Of partial rankings it is `part` of the places, and so many `choices` (None: all)
    among them."""

    def __init__(
        self,
        order: Offsets | None,
        *,
        up: bool,
        choices: int | None = None,
        part: slice = slice(None),
    ) -> None:
        self._order, self._up, self._choices, self._part = order, up, choices, part

    def stages(self, eta: Floats) -> _Stages | _WideStages:
        """The choices of lists, shape (k, lists)."""
        theta = self.of(eta)
        wide = bool((np.ptp(theta, axis=0) > WIDEST).any()) if theta.size else False
        choices = len(theta) - 1 if self._choices is None else self._choices
        return _WideStages(theta, choices) if wide else _Stages(theta, choices)

    def of(self, values: Floats) -> Floats:
        """Values by place as the stages read them."""
        values = values[self._part]
        if self._order is not None:
            values = np.take_along_axis(values, self._order, axis=0)
        return values if self._up else -values[::-1]

    def add(self, values: Floats, total: Floats) -> None:
        """Add to `total`, by place, the gradient of the stages."""
        if not self._up:
            values = -values[::-1]
        if self._order is None:
            total[self._part] += values
            return
        back = np.empty_like(values)
        np.put_along_axis(back, self._order, values, axis=0)
        total += back

    def add_matrices(self, weights: Floats, total: Floats) -> None:
        """Add to `total`, (k, k, lists), the weights of pairs by stage, (k, k, lists)."""
        if not self._up:
            weights = weights[::-1, ::-1]
        if self._order is None:
            total[self._part, self._part] += weights
            return
        back = np.argsort(self._order, axis=0)
        of_rows = np.take_along_axis(weights, back[:, None], axis=0)
        total += np.take_along_axis(of_rows, back[None], axis=1)


class _Stages:
    """ℓ(r; θ) = Σ_{a<k} [θ_{r_a} − log Σ_{b≥a} exp θ_{r_b}]: stage a chooses one of those from
    place a on, of weights e = exp θ whose sum is S_a. Values by place, shape (k, lists). The sum is over
    the first `choices` stages, k − 1 at most: the last chooses one of one.

    The Hessian of −ℓ is a graph's Laplacian of the weights e_a·e_b·Σ_{c≤min(a,b)} S_c⁻².
    """

    def __init__(self, theta: Floats, choices: int) -> None:
        self._choices = choices
        self._shifted = theta - theta.max(axis=0)
        self.e = np.exp(self._shifted)
        self._sums = _from_below(self.e)[:choices]

    def loss(self) -> float:
        """−ℓ."""
        return float(np.log(self._sums).sum() - self._shifted[: self._choices].sum())

    def gradient(self) -> Floats:
        """Of −ℓ; keeps what `weights` needs."""
        self._inverse = 1 / self._sums
        slope: Floats = self.e * _from_above(self._inverse, len(self.e))
        slope[: self._choices] -= 1
        return slope

    def weights(self) -> Floats:
        """Of each two places, (k, k, lists), with 0 on the diagonal."""
        k, lists = self.e.shape
        squares = _from_above(self._inverse**2, k)
        weights = np.zeros((k, k, lists))
        for a in range(k - 1):
            weights[a, a + 1 :] = self.e[a + 1 :] * (self.e[a] * squares[a])
            weights[a + 1 :, a] = weights[a, a + 1 :]
        return weights


class _WideStages:
    """As _Stages, for lists whose items are so far apart that their weights are no numbers: by the
    probability of each item in each stage, in k² steps."""

    def __init__(self, theta: Floats, choices: int) -> None:
        self._choices = choices
        logs = np.logaddexp.accumulate(theta[::-1], axis=0)[::-1][:choices]
        self._loss = float((logs - theta[:choices]).sum())
        later = np.arange(len(theta)) >= np.arange(len(logs))[:, None]
        gaps = np.where(later[:, :, None], theta - logs[:, None], -np.inf)
        self._chances: Floats = np.exp(gaps)  # (choices, k, lists)

    def loss(self) -> float:
        return self._loss

    def gradient(self) -> Floats:
        slope: Floats = self._chances.sum(axis=0)
        slope[: self._choices] -= 1
        return slope

    def weights(self) -> Floats:
        weights: Floats = np.einsum("aim,ajm->ijm", self._chances, self._chances)
        np.einsum("iim->im", weights)[:] = 0
        return weights


def _from_below(values: Floats) -> Floats:
    """Sums over each place and all after it, same shape."""
    sums = values.copy()
    for place in range(len(values) - 2, -1, -1):
        sums[place] += sums[place + 1]
    return sums


def _from_above(values: Floats, k: int) -> Floats:
    """Sums over each of k places and all before it, of values that are 0 after the first places."""
    sums = np.empty((k, *values.shape[1:]))
    sums[0] = values[0]
    for place in range(1, len(values)):
        np.add(sums[place - 1], values[place], out=sums[place])
    sums[len(values) :] = sums[len(values) - 1]
    return sums
