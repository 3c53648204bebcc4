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
from typing import Any, NamedTuple

import numpy as np

from judgeq.rating import UNKNOWN, Fit, GoOn, Parameters, always, curvature, position_bias
from judgeq.rating.comparisons import components
from judgeq.rating.posterior import Posterior
from judgeq.rating.prior import Prior, choose_sigma
from judgeq.rating.rankings import Block, Rankings
from judgeq.types import Floats, Offsets, Verdicts

NAME = "Plackett-Luce"
BOTH = (True, False)
"""From the top and from the bottom."""


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
    places = position_bias.numbers(verdicts) if position else None
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
        sigma, start = choose_sigma(from_the_top)
    prior = Prior(UNKNOWN if sigma is None else sigma)
    what = f"{'Bradley-Terry' if implied else NAME} (MAP, σ = {prior.sigma:g})"
    best = curvature.maximum(rankings, prior.precision(rankings), start=start, what=what)
    return Maximum(rankings, best, prior, chosen)


def rankings_of(
    verdicts: Verdicts,
    n: int,
    covariates: Floats | None = None,
    go_on: GoOn = always,
    ways: Sequence[bool] = BOTH,
) -> Rankings:
    """The likelihood of verdicts over n items. `covariates`, shape (slots, p), stand in the order
    of `verdicts.items`. `ways`: lists are
    chosen from the top (True), from the bottom, or as the mean of both; none: as the comparisons
    that they imply. One way alone is a probability of all that a judge may say, adding up to 1."""

    def make(k: int, groups: Offsets | None, unknown: slice | None) -> Block:
        if not ways or (unknown is None and k == 2):
            return _Implied(_wins(k, groups, unknown))
        if unknown is not None:
            return _partial(k, unknown, ways)
        orders: list[slice | Offsets] = [slice(None)]
        if groups is not None:
            orders.append(_ties_turned(groups))
        blocks = [_Way(order, k - 1, up=up) for order in orders for up in ways]
        return _Mean(blocks, 1 / len(blocks))

    return Rankings(verdicts, n, make, covariates, go_on)


def _wins(k: int, groups: Offsets | None, unknown: slice | None) -> Floats:
    """What each place of rankings won against each other, shape (k, k, rankings): 1 against those after
    it, ½ against those of its group, and 0 where theirs is no known order."""
    number = np.arange(k)[:, None] if groups is None else groups
    won = np.where(number[:, None] < number, 1.0, np.where(number[:, None] > number, 0.0, 0.5))
    if unknown is not None:
        won[unknown, unknown] = 0
    np.einsum("iim->im", won)[:] = 0
    return won


def _partial(k: int, unknown: slice, ways: Sequence[bool]) -> Block:
    """Partial rankings of k items, of which the places `unknown` are in no known order: the top is
    chosen and then the bottom (True), the bottom and then the top, or the mean of both."""
    top, bottom = unknown.start, k - unknown.stop
    blocks = []
    for top_first in ways:
        of_top, of_bottom = slice(None), slice(top, None)
        if not top_first:
            of_top, of_bottom = slice(unknown.stop), slice(None)
        blocks += [_Way(of_top, top, up=True)] if top else []
        blocks += [_Way(of_bottom, bottom, up=False)] if bottom else []
    return _Mean(blocks, 1 / len(ways))


def _ties_turned(groups: Offsets) -> Offsets:
    """The places, shape (k, lists), in the order in which each group of tied items is reversed."""
    place = np.broadcast_to(np.arange(len(groups))[:, None], groups.shape)
    return np.lexsort((-place, groups), axis=0)


class _Mean:
    """A sum of likelihoods of the same rankings, each of the same weight."""

    def __init__(self, blocks: Sequence[Block], weight: float) -> None:
        self._blocks, self._weight = blocks, weight

    def loss(self, eta: Floats) -> float:
        return self._weight * sum(block.loss(eta) for block in self._blocks)

    def gradient(self, eta: Floats) -> Floats:
        total = self._blocks[0].gradient(eta)
        for block in self._blocks[1:]:
            total += block.gradient(eta)
        total *= self._weight
        return total

    def matrices(self) -> Floats:
        total = self._blocks[0].matrices()
        for block in self._blocks[1:]:
            total += block.matrices()
        total *= self._weight
        return total


class _Implied:
    """Some rankings of one size, as the comparisons that they imply: their `wins`."""

    def __init__(self, won: Floats) -> None:
        self._won, self._known = won, won + won.transpose(1, 0, 2)
        self._curvature = won

    def loss(self, eta: Floats) -> float:
        gap = eta - eta[:, None]
        return float((self._won * (np.log1p(np.exp(-np.abs(gap))) + np.maximum(gap, 0))).sum())

    def gradient(self, eta: Floats) -> Floats:
        chance = 0.5 - 0.5 * np.tanh((eta - eta[:, None]) / 2)  # to win; tanh overflows nowhere
        self._curvature = self._known * chance * (1 - chance)
        slope: Floats = (self._known * chance - self._won).sum(axis=1)
        return slope

    def matrices(self) -> Floats:
        return _laplacian(self._curvature)


class _Way:
    """One way in which lists of one size are chosen: so many `choices` among these places of the list
    (an array, (k, lists), where lists differ), the first of them first; from the top (`up`), or else
    from the last of them backwards, by −θ.

    ℓ(r; θ) = Σ_a [θ_{r_a} − log Σ_{b≥a} exp θ_{r_b}]: stage a chooses one of those from place a on, of
    weights e_b = exp θ_b whose sum is S_a. The Hessian of −ℓ is a graph's Laplacian of the weights
    e_a·e_b·Σ_{c≤min(a,b)} S_c⁻². All are kept relative to the largest weight that is left in a stage, so
    that they are numbers however far apart items are.
    """

    def __init__(self, places: slice | Offsets, choices: int, *, up: bool) -> None:
        self._choices, self._way = choices, 1 if up else -1
        self._one: tuple[Any, ...] = (places,)
        self._two: tuple[Any, ...] = (places, places)
        if not isinstance(places, slice):
            each = np.arange(places.shape[1])
            self._one, self._two = (places, each), (places[:, None], places, each)

    def _stages(self, eta: Floats) -> tuple[Floats, Floats]:
        """θ in the order of choice, and the largest of it in each stage; keeps e, the S, and by how
        much the largest falls from stage to stage."""
        theta = self._way * eta[self._one][:: self._way]
        largest = np.maximum.accumulate(theta[::-1])[::-1]
        self._e, self._fall = np.exp(theta - largest), np.exp(largest[1:] - largest[:-1])
        sums = self._e.copy()
        for place in range(len(sums) - 2, -1, -1):
            sums[place] += sums[place + 1] * self._fall[place]
        self._sums = sums[: self._choices]
        return theta, largest

    def _added(self, values: Floats, fall: Floats) -> Floats:
        """Sums over each place and the stages before it, each less as the largest falls."""
        sums: Floats = np.zeros_like(self._e)
        sums[: len(values)] = values
        for place in range(1, len(sums)):
            sums[place] += sums[place - 1] * fall[place - 1]
        return sums

    def loss(self, eta: Floats) -> float:
        theta, largest = self._stages(eta)
        return float(np.log(self._sums).sum() + (largest - theta)[: self._choices].sum())

    def gradient(self, eta: Floats) -> Floats:
        self._stages(eta)
        slope: Floats = self._e * self._added(1 / self._sums, self._fall)
        slope[: self._choices] -= 1
        total = np.zeros_like(eta)
        total[self._one] = self._way * slope[:: self._way]
        self._shape = eta.shape
        return total

    def matrices(self) -> Floats:
        factor = self._e * self._added(self._sums**-2.0, self._fall**2)
        e, weights = self._e.copy(), np.zeros((len(self._e), *self._e.shape))
        for a in range(len(e) - 2, -1, -1):
            e[a + 1 :] *= self._fall[a]
            weights[a, a + 1 :] = weights[a + 1 :, a] = e[a + 1 :] * factor[a]
        total = np.zeros((self._shape[0], *self._shape))
        total[self._two] = weights[:: self._way, :: self._way]
        return _laplacian(total)


def _laplacian(weights: Floats) -> Floats:
    """Hessians, (k, k, rankings), of the weights of each two places, 0 on the diagonal."""
    total: Floats = -weights
    np.einsum("iim->im", total)[:] = weights.sum(axis=1)
    return total
