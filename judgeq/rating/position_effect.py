"""How much the place presented is worth: γ, in the units of θ, one a judge.

What stands in slot s of k (from 0, in the order presented) is judged as if its rating were
γ·(s/(k − 1) − ½) higher: the last one γ higher than the first. γ is a covariate's parameter, estimated
jointly with θ; what is left in θ is without the effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from judgeq.rating import GoOn, always, newton
from judgeq.rating.comparisons import presented_at, settled
from judgeq.rating.curvature import Curvature
from judgeq.rating.posterior import LEVEL, Posterior, Z
from judgeq.types import Bools, Floats, Offsets, Verdicts

ENOUGH = 30
"""So many matches, with their order known, a judge needs for a γ of its own."""
MOST = 10
"""And one part in so many of all matches: the others, as those of a crowd, share one."""
_NEAR = 1e-4
"""How near γ and its errors are worked out: far less than an error."""


class Columns(NamedTuple):
    """Covariates: `numbers`, shape (slots, p), in the order of `settled(verdicts).items`; the `judges`
    of each column, and in how many `matches` it has a say, shape (p,)."""

    numbers: Floats
    judges: tuple[tuple[int, ...], ...]
    matches: Offsets


def numbers(verdicts: Verdicts) -> Floats:
    """s/(k − 1) − ½ of each slot of `settled(verdicts).items`, shape (slots,); 0 where the order
    presented isn't known, and for an item judged alone."""
    sizes = np.diff(verdicts.offsets)
    slot = np.arange(len(verdicts.items)) - np.repeat(verdicts.offsets[:-1], sizes)
    value: Floats = slot / np.maximum(np.repeat(sizes, sizes) - 1, 1) - 0.5
    value[~np.repeat(_with_order(verdicts), sizes)] = 0
    return value[presented_at(settled(verdicts))]


def _with_order(verdicts: Verdicts) -> Bools:
    """Which verdicts compare items presented in an order that is known."""
    several: Bools = np.diff(verdicts.offsets) > 1
    return several if verdicts.ordered is None else several & verdicts.ordered


def columns(verdicts: Verdicts) -> Columns:
    """A column for each judge with ENOUGH matches, and 1/MOST of all, and one for the others; none for
    those of whose matches the order isn't known."""
    value, sizes = numbers(verdicts), np.diff(verdicts.offsets)
    judge = np.zeros(len(sizes), np.int64) if verdicts.judges is None else verdicts.judges
    count = np.bincount(judge[_with_order(verdicts)])
    own = np.flatnonzero((count >= ENOUGH) & (count * MOST >= count.sum())).tolist()
    rest = np.setdiff1d(np.flatnonzero(count), own).tolist()
    if len(rest) == 1:
        own, rest = sorted(own + rest), []
    groups = [*((number,) for number in own), *([tuple(rest)] if rest else [])]
    spread = np.zeros((len(value), len(groups)))
    for column, group in zip(spread.T, groups, strict=True):
        mine = np.repeat(np.isin(judge, group), sizes)
        column[mine] = value[mine]
    matches = np.array([int(count[list(group)].sum()) for group in groups], dtype=np.int64)
    return Columns(spread, tuple(groups), matches)


class Effect(NamedTuple):
    """γ of the judges of these numbers: its `value`, standard error and 95 % interval, from so many
    matches."""

    judges: tuple[int, ...]
    value: float
    se: float
    low: float
    high: float
    matches: int


def significant(effects: Sequence[Effect]) -> bool:
    """Whether some judge's γ is further from 0 than that of one in twenty panels without any effect
    (Šidák 1967)."""
    if not effects:
        return False
    reach = NormalDist().inv_cdf((1 + LEVEL ** (1 / len(effects))) / 2)
    return max(abs(one.value) / one.se for one in effects) > reach


def effects(
    posterior: Posterior, verdicts: Verdicts, *, joint: bool, go_on: GoOn = always
) -> list[Effect]:
    """γ of the judges of some verdicts, of which `posterior` is; none where too few of them are known
    to have been presented in an order.

    `joint`: the last of its covariates are `columns(verdicts)`. Else they are taken into the same
    model here, with the same σ and dispersion: θ of the posterior is left as it is. Both give γ at the
    joint maximum, with the errors of the curvature there. Raises NotConvergedError.
    """
    taken = columns(verdicts)
    rankings, parameters, p = posterior.rankings, posterior.parameters, len(taken.judges)
    if not p:
        return []
    go_on()
    with rankings.threads():
        precision = posterior.prior.precision(rankings)
        if not joint:
            rankings = rankings.beside(taken.numbers)
            precision = posterior.prior.precision(rankings)
            start = np.concatenate([parameters, np.zeros(p)])
            what = "the effect of the place"
            parameters = newton.maximum(rankings, precision, _NEAR, start, what=what)
        rankings.gradient(parameters)
        _, variance = Curvature(rankings, precision).shared
    value = parameters[-p:]
    se = np.sqrt(posterior.dispersion * np.diagonal(variance)[-p:])
    return [
        Effect(judges, at, error, at - Z * error, at + Z * error, count)
        for judges, at, error, count in zip(
            taken.judges, value.tolist(), se.tolist(), taken.matches.tolist(), strict=True
        )
        if count >= ENOUGH
    ]
