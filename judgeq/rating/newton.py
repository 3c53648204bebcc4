"""The maximum of a posterior: Newton steps, each solved by conjugate gradients as exactly as it pays.

Our own because importing scipy.sparse.linalg takes half as long as a whole run over BABE.
"""

from __future__ import annotations

import math

import numpy as np

from judgeq.errors import NotConvergedError
from judgeq.rating.curvature import Curvature, dot
from judgeq.rating.rankings import Rankings
from judgeq.types import Floats


def maximum(
    rankings: Rankings,
    precision: Floats,
    tolerance: float = 1e-8,
    start: Floats | None = None,
    *,
    what: str = "the ratings",
) -> Floats:
    """The parameters, shape (n + p,), at the maximum of the likelihood under a normal prior of mean
    0 and this precision, 1/σ², shape (n + p,); the curvature there is kept by `rankings`.

    Backtracking from `start` (Nocedal and Wright 2006, algorithm 7.1). The objective is strongly convex
    with modulus min(precision), so that |x − x*| ≤ |gradient|/min(precision): that bound is what is
    tested, to `tolerance` of the items, or as near as rounding lets it come (5e−8 at σ = 100). Raises
    NotConvergedError.
    """
    x: Floats = np.zeros(len(precision)) if start is None else start.copy()
    # Rounding leaves a gradient of about this size at the optimum itself.
    floor = 64 * np.finfo(float).eps * rankings.degree
    target = max(tolerance * float(precision[: rankings.n].min(initial=1.0)), floor)

    def objective(x: Floats) -> float:
        return rankings.loss(x) + dot(x, precision * x) / 2

    value = objective(x)
    for _ in range(200):
        gradient = rankings.gradient(x) + precision * x
        size = math.sqrt(dot(gradient, gradient))
        if size <= target:
            return x
        exactly = min(0.1, size**0.5)  # for superlinear convergence
        step = -Curvature(rankings, precision).solve(gradient, exactly, what)
        slope = dot(gradient, step)
        scale = 1.0
        while True:
            tried = x + scale * step
            new = objective(tried)
            # The second test: a step so small that rounding hides whether it descends.
            if new <= value + 1e-4 * scale * slope or scale * abs(slope) < 1e-12 * abs(value):
                break
            scale /= 2
        x, value = tried, new
    raise NotConvergedError(f"{what} did not converge; try a smaller --sigma.")
