"""Student's t distribution by the normal one, without SciPy: its import takes longer than to judge all
of BABE. Of few degrees of freedom more is taken for chance than there is, and never less: with 10 the
quantile of 95 % is 1 % too large, with 3 it is 38 %. Source: Abramowitz and Stegun (1972), 26.7.8.
"""

from __future__ import annotations

import math
from statistics import NormalDist


def two_sided(t: float, df: int) -> float:
    """The probability of a value further than `t` from 0, with `df` ≥ 1 degrees of freedom."""
    away = math.inf if math.isinf(t) else abs(t) / math.sqrt(1 + t * t / (2 * df))
    return 2 * NormalDist().cdf(-away * (1 - 1 / (4 * df)))


def quantile(level: float, df: int) -> float:
    """The t within which, on both sides of 0, lies `level` of the distribution; infinite where there are
    too few degrees of freedom to tell."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    room = (1 - 1 / (4 * df)) ** 2 - z * z / (2 * df)
    return z / math.sqrt(room) if room > 0 else math.inf
