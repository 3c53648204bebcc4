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

from judgeq.rating import UNKNOWN, Fit, GoOn, Parameters, always, curvature, position_bias
from judgeq.rating.comparisons import components, settled, slots_by_shape, tie_groups
from judgeq.rating.curvature import Block, Rankings
from judgeq.rating.posterior import Posterior, choose_sigma
from judgeq.types import Floats, Offsets, Verdicts

BOTH = (True, False)
"""From the top and from the bottom."""


class Maximum(NamedTuple):
    """The `parameters` at the maximum of a likelihood and a prior of `sigma`; `chosen`: by the evidence.
    `loadings`, shape (n, p), are what items have of each covariate, and `position` is whether the last
    of these is the effect of the place presented."""

    rankings: Rankings
    parameters: Floats
    sigma: float
    chosen: bool
    loadings: Floats
    position: bool

    def fit(
        self, component: Offsets, share: float | None = None, reliability: float | None = None
    ) -> Fit:
        """With its posterior, whose `share` was found by that reliability."""
        at = (self.rankings, self.parameters, self.sigma)
        posterior = Posterior(*at, component, self.loadings, share)
        return Fit(posterior.theta, posterior, self.chosen, self.position, reliability)


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
    found = maximum(verdicts, n, parameters, go_on=go_on, implied=implied)
    return found.fit(components(verdicts, n))


def maximum(
    verdicts: Verdicts,
    n: int,
    parameters: Parameters,
    loadings: Floats | None = None,
    go_on: GoOn = always,
    *,
    implied: bool = False,
) -> Maximum:
    """The maximum, with covariates of which an item has these `loadings`, shape (n, p), wherever it
    stands; σ is chosen by the evidence where it isn't given, but of implied comparisons, which are no
    probability of a list. Raises NotConvergedError."""
    position = bool(parameters.position)
    loadings = np.empty((n, 0)) if loadings is None else loadings
    numbers, loadings = position_bias.covariates(verdicts, loadings, position=position)
    rankings = rankings_of(verdicts, n, numbers, go_on, () if implied else BOTH)
    sigma, start = parameters.sigma, None
    chosen = sigma is None and rankings.repeated and not implied
    if chosen:
        sigma, start = choose_sigma(rankings_of(verdicts, n, numbers, go_on, (True,)))
    sigma = UNKNOWN if sigma is None else sigma
    what = f"{'Bradley-Terry' if implied else 'Plackett-Luce'} (MAP, σ = {sigma:g})"
    best = curvature.maximum(rankings, sigma, start=start, what=what)
    return Maximum(rankings, best, sigma, chosen, loadings, position)


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
    order, group = settled(verdicts), tie_groups(verdicts)
    blocks: list[Block] = []
    slots = [np.empty((0, 0), np.int64)]
    for alike, unknown in slots_by_shape(verdicts):
        if len(alike) < 2:  # an item judged alone is compared with nothing
            continue
        at_once = max(1, curvature.AT_ONCE // len(alike))
        for begin in range(0, alike.shape[1], at_once):
            part = alike[:, begin : begin + at_once]
            blocks.append(_block(group[part], unknown, ways))
            slots.append(order[part])
    flat = np.concatenate([part.reshape(-1) for part in slots])
    items, shapes = verdicts.items[flat].astype(np.intp), [part.shape for part in slots[1:]]
    none = np.empty((len(flat), 0))
    rankings = Rankings(n, blocks, shapes, flat, items, none, len(blocks), go_on)
    return rankings if covariates is None else rankings.with_covariates(covariates)


def _block(group: Offsets, unknown: slice | None, ways: Sequence[bool]) -> Block:
    """Rankings of k items, of which `group`, shape (k, rankings), numbers those that are tied, or the
    places `unknown` are in no known order: they are chosen from the top first (True), from the bottom
    first, or as the mean of both."""
    k = len(group)
    place = np.arange(k)
    tied = bool((group[1:] == group[:-1]).any())
    if not ways or (unknown is None and k == 2):
        return _Implied(group if tied else place[:, None], unknown)
    if unknown is None:
        orders = [place]
        if tied:
            turned = np.broadcast_to(-place[:, None], group.shape)
            orders.append(np.lexsort((turned, group), axis=0))
        both = [(_Way(order, k - 1), _Way(order[::-1], k - 1, -1)) for order in orders]
        return _Mean(k, [of[not up] for of in both for up in ways], len(orders) * len(ways))
    top, bottom = unknown.start, k - unknown.stop
    chosen = {
        True: (_Way(place, top), _Way(place[top:][::-1], bottom, -1)),
        False: (_Way(place[: unknown.stop], top), _Way(place[::-1], bottom, -1)),
    }
    each = (way for top_first in ways for way in chosen[top_first])
    return _Mean(k, [way for way in each if way.choices], len(ways))


class _Mean:
    """A sum of likelihoods of the same rankings, over their `number`."""

    def __init__(self, k: int, ways: Sequence[_Way], number: int) -> None:
        self._k, self._ways, self._number = k, ways, number

    def loss(self, eta: Floats) -> float:
        return sum(way.loss(eta) for way in self._ways) / self._number

    def gradient(self, eta: Floats) -> Floats:
        return sum((way.gradient(eta) for way in self._ways), np.zeros(1)) / self._number

    def matrices(self) -> Floats:
        return _laplacian(
            sum((way.weights(self._k) for way in self._ways), np.zeros(1)) / self._number
        )


class _Way:
    """One way in which lists of one size are chosen: so many `choices` among these places of the list,
    shape (L,) or (L, lists), the first of them first, by θ or (`sign` −1) by −θ.

    ℓ(r; θ) = Σ_a [θ_{r_a} − log Σ_{b≥a} exp θ_{r_b}]: stage a chooses one of those from place a on,
    whose weights add up to S_a. The gradient of −ℓ is Σ_{c≤a} exp θ_a/S_c less 1 for a choice, and its
    Hessian a graph's Laplacian of the weights exp(θ_a + θ_b)·Σ_{c≤min(a,b)} S_c⁻². All are kept relative
    to the largest weight that is left in a stage, so that they are numbers however far apart items are.
    """

    def __init__(self, places: Offsets, choices: int, sign: int = 1) -> None:
        self.choices, self._places, self._sign = choices, places, sign
        self._lists = () if places.ndim == 1 else (np.arange(places.shape[1]),)

    def _stages(self, eta: Floats) -> Floats:
        """By how much θ is below the largest that is left, in the order of choice; keeps exp of that, by
        how much the largest falls from stage to stage, and 1/S, 0 where nothing is chosen."""
        theta = self._sign * eta[self._places, *self._lists]
        largest = np.maximum.accumulate(theta[::-1])[::-1]
        self._e, self._fall = np.exp(theta - largest), np.exp(np.diff(largest, axis=0))
        self._inverse = 1 / _summed(self._e[::-1], self._fall[::-1])[::-1]
        self._inverse[self.choices :] = 0
        below: Floats = largest - theta
        return below

    def loss(self, eta: Floats) -> float:
        below = self._stages(eta)
        return float((below[: self.choices] - np.log(self._inverse[: self.choices])).sum())

    def gradient(self, eta: Floats) -> Floats:
        self._stages(eta)
        slope = self._e * _summed(self._inverse, self._fall)
        slope[: self.choices] -= 1
        total = np.zeros_like(eta)
        total[self._places, *self._lists] = self._sign * slope
        return total

    def weights(self, k: int) -> Floats:
        """Those of the Laplacian, shape (k, k, lists)."""
        e, factor = self._e.copy(), self._e * _summed(self._inverse**2, self._fall**2)
        total = np.zeros((k, k, e.shape[1]))
        for a in range(len(e) - 2, -1, -1):
            e[a + 1 :] *= self._fall[a]
            one, others = self._places[a], self._places[a + 1 :]
            weight = e[a + 1 :] * factor[a]
            total[one, others, *self._lists] = total[others, one, *self._lists] = weight
        return total


def _summed(values: Floats, fall: Floats) -> Floats:
    """Sums over each place and those before it, each less by the falls between them."""
    sums = values.copy()
    for place in range(1, len(sums)):
        sums[place] += sums[place - 1] * fall[place - 1]
    return sums


class _Implied:
    """Rankings as the comparisons that they imply: each place won 1 against those after it, ½ against
    those of its group, and 0 where theirs is no known order."""

    def __init__(self, group: Offsets, unknown: slice | None) -> None:
        self._won = (np.sign(group - group[:, None]) + 1) / 2
        if unknown is not None:
            self._won[unknown, unknown] = 0
        np.einsum("iim->im", self._won)[:] = 0
        self._known = self._won + self._won.transpose(1, 0, 2)
        self._curvature = self._won

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


def _laplacian(weights: Floats) -> Floats:
    """Hessians, (k, k, rankings), of the weights of each two places, 0 on the diagonal."""
    total: Floats = -weights
    np.einsum("iim->im", total)[:] = weights.sum(axis=1)
    return total
