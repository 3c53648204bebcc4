"""Where two groups of scores part: a mixture of two Gaussians, fitted by EM, and where its components
cross; and whether the scores have two humps.

For classes that are as they are, and not half of the items each: a score of 0 is in the middle of the
items, whatever they are; where two components cross depends on how many each has. No label is read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from judgeq.text import LEFT_OUT
from judgeq.types import Floats

FEWEST = 30
"""Of fewer scores nothing is fitted."""
SMALLEST = 5
"""A component with fewer items than this is a few outliers, and no class."""
AT_MOST = 5_000
"""Of more scores so many evenly spaced quantiles are fitted."""
FLOOR = 0.05
"""The least standard deviation of a component, as a share of that of all scores: without one the
likelihood has no maximum, for a component may shrink onto a single score."""
EVIDENCE = 5.5
"""By so much the log-likelihood of two components must be above that of one. Scores that are of one
Gaussian gain so much in 5 of 100 cases, in 300 sets each of 30, 100 and 1,000 (6.1, 5.3, 5.6)."""
VALLEY = 0.9
"""Between two humps the density is at most this share of that of the lower one."""
VALLEY_POINTS = 201
"""Points between the two means at which the density is looked at."""
_SPLITS = np.array([0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95])
"""EM starts from the lower and the upper scores, parted at these shares."""
_SHORT, _LONG = 50, 3_000
_CLOSE = 1e-10
_LOG_ROOT = 0.5 * math.log(2 * math.pi)


class Mixture(NamedTuple):
    """Two Gaussian components, the one with the lower mean first: arrays of shape (2,). `likelihood`
    is the mean log-likelihood of a score, `one` that of a single Gaussian."""

    weights: Floats
    means: Floats
    deviations: Floats
    likelihood: float
    one: float


@dataclass(frozen=True, slots=True)
class Threshold:
    """Over which score an item is labelled positive, by the `rule` "default", "given" or "mixture"; None
    where there is no such score, and `why`. `mixture` is what was fitted, if anything was."""

    value: float | None
    why: str | None = None
    rule: str = "mixture"
    mixture: Mixture | None = field(default=None, compare=False, metadata=LEFT_OUT)


def threshold(scores: Floats) -> Threshold:
    """The score between the two means where both components of `fit` have the same (weighted) density:
    above it a score is more probably of the upper one.

    None where fewer than FEWEST items have a score, where all have the same, where two components
    describe the scores hardly better than one (EVIDENCE), where one is a few outliers, and where they
    don't cross between their means. A score that is nan is none.
    """
    known = scores[np.isfinite(scores)]
    n = len(known)
    if n < FEWEST:
        return Threshold(None, f"a mixture needs {FEWEST} scores, and there are {n}")
    if np.ptp(known) == 0:
        return Threshold(None, "all scores are equal: a mixture has nothing to part")
    mixture = fit(known)
    if n * (mixture.likelihood - mixture.one) < EVIDENCE:
        return Threshold(
            None, "two components describe the scores hardly better than one: nothing parts them"
        )
    if n * mixture.weights.min() < SMALLEST:
        return Threshold(None, f"one component of the mixture has fewer than {SMALLEST} items")
    # In units in which the means are at -1 and 1, so that no difference is of large numbers, the upper
    # component's logarithm is larger by bend·x² + slope·x + level: a parabola, which has exactly one
    # root between two points at which its signs differ.
    low, high = mixture.means.tolist()
    scale = (high - low) / 2
    lower, upper = ((scale / mixture.deviations) ** 2).tolist()
    one, other = np.log(mixture.weights / mixture.deviations).tolist()
    bend, slope = (lower - upper) / 2, lower + upper
    level = other - one + bend
    if not bend - slope + level < 0 < bend + slope + level:
        return Threshold(None, "the components of the mixture don't cross between their means")
    x = -2 * level / (slope + math.sqrt(slope**2 - 4 * bend * level))
    return Threshold((low + high) / 2 + scale * x, mixture=mixture)


def has_two_humps(scores: Floats) -> bool:
    """Whether the density of the scores, shape (n,), has two humps with a valley between them.

    That is more than a `threshold`: two components that overlap, as of skew scores, have one too. With
    two humps a prior of one normal distribution doesn't fit, and the order within a hump is less sure
    than it says. `benchmarks humps` counts how often normally distributed items have two.
    """
    mixture = threshold(scores).mixture
    if mixture is None:
        return False
    low, high = mixture.means.tolist()
    points = np.linspace(low, high, VALLEY_POINTS)
    off = (points - mixture.means[:, None]) / mixture.deviations[:, None]
    heights = (mixture.weights / mixture.deviations)[:, None] * np.exp(-(off**2) / 2)
    density = heights.sum(axis=0)
    lowest = int(density.argmin())
    lower_hump = min(density[: lowest + 1].max(), density[lowest:].max())
    return bool(density[lowest] <= VALLEY * lower_hump)


def fit(scores: Floats) -> Mixture:
    """The two-component Gaussian mixture of scores of shape (n,) with the highest likelihood of several
    starts (Dempster, Laird and Rubin 1977). The same scores give the same mixture, in any order.

    Of more than AT_MOST scores as many evenly spaced quantiles are fitted. All starts run for _SHORT
    steps, the best one until the likelihood of a score grows by less than _CLOSE in a step, or for _LONG
    steps: components that EM can't settle by then overlap so much that nothing parts them.
    """
    ordered = np.sort(scores)
    if len(ordered) > AT_MOST:
        places = (np.arange(AT_MOST) + 0.5) / AT_MOST * len(ordered)
        ordered = ordered[places.astype(np.int64)]
    centre, spread = float(ordered.mean()), float(ordered.std())
    z, place = (ordered - centre) / spread, np.arange(len(ordered)) / len(ordered)
    upper = (place >= _SPLITS[:, None]).astype(np.float64)
    share, before = np.stack([1 - upper, upper], axis=1), np.array(-np.inf)
    for step in range(_LONG):
        items = np.maximum(share.sum(axis=2), 1e-9)
        means = (share * z).sum(axis=2) / items
        off = z - means[:, :, None]
        deviations = np.sqrt(np.maximum((share * off**2).sum(axis=2) / items, FLOOR**2))
        heights = np.log(items / len(z) / deviations) - _LOG_ROOT
        parts = heights[:, :, None] - (off / deviations[:, :, None]) ** 2 / 2
        total = np.logaddexp(parts[:, 0], parts[:, 1])
        likelihood, share = total.mean(axis=1), np.exp(parts - total[:, None])
        if step == _SHORT:
            share, likelihood = share[[likelihood.argmax()]], likelihood.max(keepdims=True)
        elif step > _SHORT and likelihood[0] - before[0] < _CLOSE:
            break
        before = likelihood
    order = np.argsort(means[0], kind="stable")
    return Mixture(
        items[0, order] / len(z),
        means[0, order] * spread + centre,
        deviations[0, order] * spread,
        float(likelihood[0]) - math.log(spread),
        -0.5 - _LOG_ROOT - math.log(spread),
    )
