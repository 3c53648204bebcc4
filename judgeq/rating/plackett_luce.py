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
from judgeq.rating.comparisons import components, settled, slots_by_shape, tie_groups
from judgeq.rating.curvature import Block, Rankings
from judgeq.rating.posterior import AveragedPosterior, Posterior, choose_sigma
from judgeq.types import Floats, Offsets, Verdicts

BOTH = (True, False)
"""From the top and from the bottom."""


def fit(
    verdicts: Verdicts,
    n: int,
    parameters: Parameters,
    go_on: GoOn = always,
    *,
    implied: bool = False,
    loadings: Floats | None = None,
    component: Offsets | None = None,
    known: tuple[Floats, Block] | None = None,
    **more: Any,
) -> Fit:
    """`pl`: the posterior of θ at its maximum, whose means are the scores, 0 for items that were never
    compared. Of the comparisons that lists imply (`implied`): `bt`.

    With covariates of which an item has these `loadings`, shape (n, p), wherever it stands; the effect
    of the place presented, if it is estimated, is the last one. With what is `known` of the first items:
    θ, and a likelihood of it. `component` and `more` are fields of the posterior. σ is chosen by the
    evidence where it isn't given, but of implied comparisons, which are no probability of a list; where
    answers don't repeat, nothing tells it, and it is averaged over. Raises NotConvergedError.
    """
    position = bool(parameters.position)
    loadings = np.empty((n, 0)) if loadings is None else loadings
    numbers, loadings = position_bias.covariates(verdicts, loadings, position=position)
    rankings = rankings_of(verdicts, n, numbers, go_on, () if implied else BOTH)
    sigma, start = parameters.sigma, np.zeros(n + rankings.p)
    if known is not None:
        theta, block = known
        rankings = rankings.with_known(np.arange(len(theta)), block)
        start[: len(theta)] = theta
    chosen = sigma is None and rankings.repeated and not implied
    if chosen:
        sigma, start = choose_sigma(rankings_of(verdicts, n, numbers, go_on, (True,)))
    kind = AveragedPosterior if sigma is None and not rankings.repeated else Posterior
    sigma = UNKNOWN if sigma is None else sigma
    what = f"{'Bradley-Terry' if implied else 'Plackett-Luce'} (MAP, σ = {sigma:g})"
    best = curvature.maximum(rankings, sigma, start=start, what=what).parameters
    component = components(verdicts, n) if component is None else component
    posterior = kind(rankings, best, sigma, component, loadings, **more)
    return Fit(posterior=posterior, chosen=chosen, position=position)


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
    first, or as the mean of both; or else in pairs."""
    k = len(group)
    place, tied = np.arange(k), bool((group[1:] == group[:-1]).any())
    if not ways or k == 2:
        return _Implied(group if tied else place[:, None], unknown)
    down, up, way = slice(None), slice(None, None, -1), _Way.among
    if unknown is None:
        ends = [(way(down, k - 1), way(up, k - 1, -1))]
        if tied:
            turned = np.broadcast_to(-place[:, None], group.shape)
            order = np.lexsort((turned, group), axis=0)
            ends.append((way(order, k - 1), way(order[::-1], k - 1, -1)))
        return _Lists([both[not top] for both in ends for top in ways], len(ends) * len(ways))
    top, bottom = unknown.start, k - unknown.stop
    below = slice(k - 1, top - 1 if top else None, -1)
    first = {
        True: (way(down, top), way(below, bottom, -1)),
        False: (way(slice(unknown.stop), top), way(up, bottom, -1)),
    }
    each = (one for top_first in ways for one in first[top_first])
    return _Lists([one for one in each if one.choices], len(ways))


class _Way(NamedTuple):
    """One way in which lists of one size are chosen: so many `choices`, the first of them first, by θ or
    (`sign` −1) by −θ. `places` takes those of an array by place in the order of choice, `pairs` each two
    of them of one by two places."""

    places: tuple[Any, ...]
    pairs: tuple[Any, ...]
    choices: int
    sign: int

    @classmethod
    def among(cls, places: slice | Offsets, choices: int, sign: int = 1) -> _Way:
        """The way among places of the list, a slice of them or by list, shape (L, lists)."""
        if isinstance(places, slice):
            return cls((places,), (places, places), choices, sign)
        lists = np.arange(len(places.T))
        return cls((places, lists), (places[:, None], places, lists), choices, sign)

    def stages(self, eta: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """The loss by choice; exp of how much θ is below the largest that is left, in the order of
        choice; by how much the largest falls from stage to stage; and 1/S, 0 where nothing is chosen."""
        theta = self.sign * eta[self.places]
        largest = np.maximum.accumulate(theta[::-1])[::-1]
        e, fall = np.exp(theta - largest), np.exp(np.diff(largest, axis=0))
        inverse = 1 / _summed(e[::-1], fall[::-1])[::-1]
        loss = ((largest - theta) - np.log(inverse))[: self.choices]
        inverse[self.choices :] = 0
        return loss, e, fall, inverse


class _Lists:
    """Lists of one size, chosen in some `ways`: a sum of likelihoods, over a `number`.

    Of one way ℓ(r; θ) = Σ_a [θ_{r_a} − log Σ_{b≥a} exp θ_{r_b}]: stage a chooses one of those from place
    a on, whose weights add up to S_a. The gradient of −ℓ is Σ_{c≤a} exp θ_a/S_c less 1 for a choice, and
    its Hessian a graph's Laplacian of the weights exp(θ_a + θ_b)·Σ_{c≤min(a,b)} S_c⁻². All are kept
    relative to the largest weight that is left in a stage, so that they are numbers however far apart
    items are.
    """

    def __init__(self, ways: Sequence[_Way], number: int) -> None:
        self._ways, self._number = ways, number

    def loss(self, eta: Floats) -> float:
        return sum(float(way.stages(eta)[0].sum()) for way in self._ways) / self._number

    def bent(self, eta: Floats) -> tuple[float, Floats, Floats]:
        total, slopes, weights = 0.0, np.zeros_like(eta), np.zeros((len(eta), *eta.shape))
        for way in self._ways:
            loss, e, fall, inverse = way.stages(eta)
            total += float(loss.sum())
            slope = e * _summed(inverse, fall)
            slope[: way.choices] -= 1
            slopes[way.places] += way.sign * slope
            factor, pairs = e * _summed(inverse**2, fall**2), np.zeros((len(e), *e.shape))
            for a in range(len(e) - 2, -1, -1):
                e[a + 1 :] *= fall[a]
                np.multiply(e[a + 1 :], factor[a], out=pairs[a, a + 1 :])
            weights[way.pairs] += pairs
        matrices = _laplacian((weights + weights.transpose(1, 0, 2)) / self._number)
        return total / self._number, slopes / self._number, matrices


def _summed(values: Floats, fall: Floats) -> Floats:
    """Sums over each place and those before it, each less by the falls between them."""
    sums = values.copy()
    for place in range(1, len(sums)):
        sums[place] += sums[place - 1] * fall[place - 1]
    return sums


class _Implied:
    """Rankings as the comparisons that they imply, of each place with those after it: it won 1, ½
    against one of its group, and 0 where theirs is no known order, of `known` 1, 1 and 0."""

    def __init__(self, group: Offsets, unknown: slice | None) -> None:
        self._pairs = above, below = np.triu_indices(len(group), 1)
        tied = group[above] == group[below]
        self._known: Floats = np.ones(tied.shape)
        if unknown is not None:
            within = [(unknown.start <= side) & (side < unknown.stop) for side in self._pairs]
            self._known[within[0] & within[1]] = 0
        self._won: Floats = np.where(tied, self._known / 2, self._known)

    def loss(self, eta: Floats) -> float:
        above, below = self._pairs
        gap = eta[below] - eta[above]
        surprise = self._known * (np.log1p(np.exp(-np.abs(gap))) + np.maximum(gap, 0))
        return float((surprise - (self._known - self._won) * gap).sum())

    def bent(self, eta: Floats) -> tuple[float, Floats, Floats]:
        above, below = self._pairs
        # To win; tanh overflows nowhere.
        chance = 0.5 - 0.5 * np.tanh((eta[below] - eta[above]) / 2)
        slopes, weights = np.zeros((2, len(eta), *eta.shape))
        slopes[above, below] = self._known * chance - self._won
        slopes[below, above] = -slopes[above, below]
        weights[above, below] = weights[below, above] = self._known * chance * (1 - chance)
        return self.loss(eta), slopes.sum(axis=1), _laplacian(weights)


def _laplacian(weights: Floats) -> Floats:
    """Hessians, (k, k, rankings), of the weights of each two places, 0 on the diagonal."""
    total: Floats = -weights
    np.einsum("iim->im", total)[:] = weights.sum(axis=1)
    return total
