"""Has a judge changed since it answered? Its answers of then and of now to the same questions.

Without drift the two answers to a question are exchangeable, whatever the judge's noise, dependence
or habit of repeating itself: each could as well have been the other. So all tests are by the signs
of what differs, question by question. With g the gradients of the log likelihood at θ fitted to all
answers, d_l those of question l now less those of then, and a contrast x by slot, u_l = xᵀd_l, and

    r = Σu/√Σu²,  t = r·√((Q − 1)/(Q − r²))

has Student's t distribution of Q − 1 degrees of freedom (Efron 1969). How large a change is comes
from the maximum of the likelihood along x, of each set of answers. Whether some items have shifted,
whichever, is asked of the largest (c_i + Σ s_l·d_li/2)²/h_i over the items, c being the mean
gradient of both answers and h its curvature, which is the same for all signs s, against FLIPS
random ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.rating.curvature import Curvature, Rankings
from judgeq.rating.plackett_luce import rankings_of
from judgeq.rating.position_bias import numbers
from judgeq.rating.posterior import LEVEL, Z
from judgeq.types import Floats, Verdicts

FLIPS = 499
POWER = 0.9
"""The least drift that would have been found is that which is found so often."""
STEPS = 50
SPREAD, PLACE, ITEMS, GROUP = "spread", "position", "items", "group "


class Drift(NamedTuple):
    """One way in which a judge may have drifted; `kind` is SPREAD, PLACE, ITEMS or the GROUP of a name.
    `p` is after Bonferroni.

    `change`, with its 95 % interval, is relative of the spread: −0.2, differences between texts count
    a fifth less. Else it is in standard deviations of θ: of the last position against the first, or of
    a group. `least` is the change that would have been found. They are None of unknown items, and
    where nothing differs.
    """

    kind: str
    p: float
    change: float | None = None
    low: float | None = None
    high: float | None = None
    least: float | None = None

    @property
    def found(self) -> bool:
        """Whether it is significant."""
        return self.p < 1 - LEVEL


def tests(
    before: Verdicts, after: Verdicts, theta: Floats, groups: Mapping[str, Floats]
) -> list[Drift]:
    """All tests of a judge's answers `after` to the questions that it answered `before`, in the same
    order. `theta`, shape (n,), is fitted to all verdicts, these among them; `groups` are masks of the
    items by name, of shape (n,)."""
    both, sd = (before, after), float(theta[np.unique(before.items)].std()) or 1.0
    contrasts = {
        SPREAD: [theta[one.items] for one in both],
        PLACE: [numbers(one)[:, 0] for one in both],
    }
    contrasts |= {GROUP + name: [of[one.items] for one in both] for name, of in groups.items()}
    several, normal, found = len(contrasts) + 1, NormalDist(), list[Drift]()
    reach = normal.inv_cdf(1 - (1 - LEVEL) / (2 * several)) + normal.inv_cdf(POWER)
    for kind, xs in contrasts.items():
        then, now = (_climbed(one, theta, x) for one, x in zip(both, xs, strict=True))
        p, sizes = min(1.0, several * by_signs(now.pulls - then.pulls)), tuple[float, ...]()
        if not np.array_equal(now.pulls, then.pulls):
            unit = 1 + then.at if kind == SPREAD else sd
            change = (now.at - then.at) / unit
            se = float(np.linalg.norm(now.steps - then.steps)) / abs(unit)
            sizes = change, change - Z * se, change + Z * se, reach * se
        found.append(Drift(kind, p, *sizes))
    return [*found, Drift(ITEMS, min(1.0, several * _of_items(both, theta)))]


def by_signs(u: Floats) -> float:
    """The probability of a sum as far from 0 as that of `u`, shape (questions,), if all signs are as
    likely: by Student's t, which is taken for a normal z (Wallace 1959)."""
    q, squares = len(u), float((u**2).sum())
    if q < 2 or not squares:
        return 1.0
    r2, df = float(u.sum()) ** 2 / squares, q - 1
    t2 = r2 * df / max(q - r2, 1e-9)
    z = (8 * df + 1) / (8 * df + 3) * math.sqrt(df * math.log1p(t2 / df))
    return 2 * NormalDist().cdf(-z)


class _Climbed(NamedTuple):
    """How each question pulls θ along x, shape (questions,); `at` which c the likelihood of θ + c·x is
    largest, and the last step there, by question."""

    pulls: Floats
    at: float
    steps: Floats


def _climbed(verdicts: Verdicts, theta: Floats, x: Floats) -> _Climbed:
    """By Newton's steps, for the likelihood is concave."""
    rankings, at, pulls = rankings_of(verdicts, len(theta), x[:, None]), 0.0, list[Floats]()
    for _ in range(STEPS):
        gradient, curvature = _bent(rankings, np.append(theta, at))
        pulls.append(np.add.reduceat(gradient * x, verdicts.offsets[:-1]))
        steps = pulls[-1] / max(curvature[-1], 1e-9)
        step = float(np.clip(steps.sum(), -1, 1))
        at += step
        if abs(step) <= 1e-6:
            break
    return _Climbed(pulls[0], at, steps)


def _bent(rankings: Rankings, parameters: Floats) -> tuple[Floats, Floats]:
    """The gradient of the log likelihood by slot, and its curvature by parameter."""
    bent = Curvature(rankings, parameters, np.zeros(len(parameters)))
    gradient = np.zeros(len(rankings.slots))
    gradient[rankings.slots] = -np.concatenate([part.reshape(-1) for part in bent.slopes])
    return gradient, bent.diagonal


def _of_items(both: Sequence[Verdicts], theta: Floats) -> float:
    """The probability of an item that has shifted as far as the one that has most, without drift."""
    rows, q = np.unique(both[0].items), len(both[0])
    (then, now), curvature = np.zeros((2, q, len(rows))), np.zeros(len(theta))
    for sums, verdicts in zip((then, now), both, strict=True):
        gradient, bent = _bent(rankings_of(verdicts, len(theta)), theta)
        sums[verdicts.of_slot, np.searchsorted(rows, verdicts.items)] = gradient
        curvature += bent
    signs = np.where(seeds.rng(0, "drift").random((FLIPS + 1, q)) < 0.5, 0.5, -0.5)
    signs[0] = 0.5
    drawn = (then + now).sum(axis=0) / 2 + signs @ (now - then)
    largest = (drawn**2 / np.maximum(curvature[rows], 1e-9)).max(axis=1)
    return float((largest >= largest[0] * (1 - 1e-12)).mean())
