"""Whether two runs' scores differ by more than the errors of both: what noise alone explains.

A score is the mean of what an item's place may be, with an error; so the true places scatter by
var(θ) + mean(se²), and the scores' reliability is var(θ) over that. Of two independent sets of
judgments the correlation of the scores is that of the true places times the root of both
reliabilities (Spearman 1904).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from judgeq.json_marks import LEFT_OUT
from judgeq.rating import correlation
from judgeq.types import Bools, Floats

FALSE = 0.05
"""The share of items that may be named wrongly."""


@dataclass(frozen=True, slots=True, eq=False)
class Noise:
    """Two ratings of the same items: Spearman's ρ `corrected` for the noise in both (None where it is
    undefined), and which items differ by more than it explains, shape (n,)."""

    corrected: float | None
    beyond: Bools = field(metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {
        "spearman_without_noise": "corrected",
        "items_beyond_noise": "beyond.sum",
    }


def noise(one: Floats, one_errors: Floats, other: Floats, other_errors: Floats) -> Noise:
    """Two ratings with their standard errors, each of shape (n,), without nan.

    Both are put on the scale on which the true places have mean 0 and variance 1. Items beyond noise are
    those of Benjamini and Hochberg (1995), of which at most FALSE are expected to be wrong.
    """
    n = len(one)
    rho = correlation.point(correlation.spearman(one, other), n) if n > 1 else None
    if rho is None:
        return Noise(None, np.zeros(n, dtype=np.bool_))
    (a, a_errors, a_reliability), (b, b_errors, b_reliability) = (
        _scaled(one, one_errors),
        _scaled(other, other_errors),
    )
    corrected = max(-1.0, min(1.0, rho / (a_reliability * b_reliability) ** 0.5))
    z = np.abs(a - b) / np.sqrt(2 * (a_errors**2 + b_errors**2))
    chance = np.array([math.erfc(value) for value in z.tolist()])
    order = np.argsort(chance)
    passed = np.flatnonzero(chance[order] <= FALSE * np.arange(1, n + 1) / n)
    beyond = np.zeros(n, dtype=np.bool_)
    beyond[order[: passed[-1] + 1 if len(passed) else 0]] = True
    return Noise(corrected, beyond)


def _scaled(theta: Floats, errors: Floats) -> tuple[Floats, Floats, float]:
    """Scores and errors on the common scale, and their reliability."""
    variance = float(theta.var())
    whole = variance + float((errors**2).mean())
    return (theta - theta.mean()) / whole**0.5, errors / whole**0.5, variance / whole
