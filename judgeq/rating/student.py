"""Student's t distribution, without SciPy: its import takes longer than to judge all of BABE.

Source: Abramowitz and Stegun (1972), 26.7.3, 26.7.4 and 26.7.8.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

_SERIES = 10_000
"""Up to so many degrees of freedom the series is added up; above it the normal distribution is as
near as 1e-8."""


def two_sided(t: float, df: int) -> float:
    """The probability of a value further than `t` from 0, with `df` ≥ 1 degrees of freedom."""
    t = abs(t)
    if math.isinf(t):
        return 0.0
    if df > _SERIES:
        z = t * (1 - 1 / (4 * df)) / math.sqrt(1 + t * t / (2 * df))
        return 2 * NormalDist().cdf(-z)
    angle = math.atan2(t, math.sqrt(df))
    first = 2 if df % 2 == 0 else 3
    factors = np.arange(first - 1, df - 2, 2) / np.arange(first, df - 1, 2)
    terms = np.cumprod(factors * math.cos(angle) ** 2)
    if df % 2 == 0:
        within = math.sin(angle) * (1 + float(terms.sum()))
    elif df == 1:
        within = 2 / math.pi * angle
    else:
        series = math.cos(angle) * (1 + float(terms.sum()))
        within = 2 / math.pi * (angle + math.sin(angle) * series)
    return max(0.0, 1 - within)


def quantile(level: float, df: int) -> float:
    """The t within which, on both sides of 0, lies `level` of the distribution; by bisection."""
    low, high = 0.0, 1.0
    while two_sided(high, df) > 1 - level:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        if two_sided(middle, df) > 1 - level:
            low = middle
        else:
            high = middle
    return high
