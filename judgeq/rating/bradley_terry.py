"""Bradley-Terry: P(i beats j) = σ(θi − θj)  (Bradley and Terry 1952).

`fit_map` is judgeq's `bt`: unique, finite, fast. `fit_mm` is the paper's estimator, `bt-mm`.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import expit

from judgeq.errors import JudgeqError
from judgeq.types import Comparisons, Floats

SIGMA = 2.0


class NotConvergedError(JudgeqError):
    """A fit did not reach its tolerance; its numbers are not shown."""


class _Graph:
    """Who met whom: a symmetric sparse pattern whose weights change from step to step."""

    def __init__(self, comparisons: Comparisons, n: int) -> None:
        w, l = comparisons.winner, comparisons.loser  # noqa: E741
        edges = np.arange(len(w), dtype=np.int64)
        pattern = coo_array(
            (np.concatenate([edges, edges]), (np.concatenate([w, l]), np.concatenate([l, w]))),
            shape=(n, n),
        )
        # Built by hand instead of by tocsr(), which would add up the edges of a pair met twice.
        order = np.argsort(pattern.coords[0], kind="stable")
        self.edge = np.concatenate([edges, edges])[order]
        self.indices = np.concatenate([l, w])[order]
        self.indptr = np.zeros(n + 1, dtype=np.int64)
        np.cumsum(np.bincount(pattern.coords[0], minlength=n), out=self.indptr[1:])
        self.n = n

    def weighted(self, edge_weights: Floats) -> csr_array:
        """The symmetric matrix with edge c's weight at (winner, loser) and (loser, winner)."""
        return csr_array(
            (edge_weights[self.edge], self.indices, self.indptr), shape=(self.n, self.n)
        )


def fit_map(
    comparisons: Comparisons, n: int, sigma: float = SIGMA, tolerance: float = 1e-8
) -> Floats:
    """The MAP of θ under θ ~ N(0, σ²), shape (n,), within `tolerance` of the optimum.

    Newton steps by conjugate gradients (Nocedal and Wright 2006, algorithm 7.1). The objective is
    strongly convex with modulus 1/σ², so that |θ − θ*| ≤ σ²·|gradient|: that bound is what is
    tested. Items never compared get 0. Raises NotConvergedError.
    """
    theta = np.zeros(n)
    if not len(comparisons):
        return theta
    w, l, weight = comparisons.winner, comparisons.loser, comparisons.weight  # noqa: E741
    graph = _Graph(comparisons, n)
    degree = np.bincount(w, weight, n) + np.bincount(l, weight, n)
    # Rounding leaves a gradient of about this size at the optimum itself.
    floor = 64 * np.finfo(float).eps * float(np.linalg.norm(degree))
    target = max(tolerance / sigma**2, floor)
    prior = 1 / sigma**2

    def objective(theta: Floats) -> float:
        loss = weight @ np.logaddexp(0, theta[l] - theta[w])
        return float(loss) + prior / 2 * float(theta @ theta)

    value = objective(theta)
    for _ in range(200):
        upset = expit(theta[l] - theta[w])  # the probability of the opposite outcome
        push = weight * upset
        gradient = np.bincount(l, push, n) - np.bincount(w, push, n) + prior * theta
        norm = float(np.linalg.norm(gradient))
        if norm <= target:
            return theta
        step = _newton_step(graph, push * (1 - upset), prior, gradient, norm)
        slope = float(gradient @ step)
        scale = 1.0
        while True:
            tried = theta + scale * step
            new = objective(tried)
            if new <= value + 1e-4 * scale * slope or scale * abs(slope) < 1e-12 * abs(value):
                break
            scale /= 2
        theta, value = tried, new
    raise NotConvergedError(
        f"Bradley-Terry (MAP, σ = {sigma:g}) did not converge; try a smaller --bt-sigma."
    )


def _newton_step(
    graph: _Graph, curvature: Floats, prior: float, gradient: Floats, norm: float
) -> Floats:
    """Solve (Laplacian of `curvature` + prior·I) step = −gradient, as exactly as it pays."""
    adjacency = graph.weighted(curvature)
    diagonal = np.asarray(adjacency.sum(axis=1)).reshape(-1) + prior
    hessian = LinearOperator(
        adjacency.shape, matvec=lambda v: diagonal * v - adjacency @ v, dtype=np.float64
    )
    jacobi = LinearOperator(adjacency.shape, matvec=lambda v: v / diagonal, dtype=np.float64)
    step, _ = cg(hessian, -gradient, rtol=min(0.1, norm**0.5), maxiter=1000, M=jacobi)
    return np.asarray(step)


def fit_mm(
    comparisons: Comparisons,
    n: int,
    prior: float = 1e-6,
    tolerance: float = 1e-6,
    sweeps: int = 200_000,
) -> Floats:
    """The paper's estimator, θ of shape (n,) with mean 0.

    π ← (W+λ)/(Σ m/(πi+πj)+λ) with λ = `prior`, geometric mean 1, until the largest change in θ in a
    sweep is below `tolerance` (Hunter 2004, with Haak and Schaer's λ). Slow on sparse graphs, and
    items that won or lost everything end near ±27. Raises NotConvergedError after `sweeps`.
    """
    if not len(comparisons):
        return np.zeros(n)
    wins = np.bincount(comparisons.winner, comparisons.weight, n)
    low = np.minimum(comparisons.winner, comparisons.loser).astype(np.int64)
    high = np.maximum(comparisons.winner, comparisons.loser).astype(np.int64)
    edge, which = np.unique(low * n + high, return_inverse=True)
    a, b = edge // n, edge % n
    met = np.bincount(which.reshape(-1), comparisons.weight)
    theta: Floats = np.zeros(n)
    for _ in range(sweeps):
        strength = np.exp(theta)
        rate = met / (strength[a] + strength[b])
        new = np.log(wins + prior) - np.log(
            np.bincount(a, rate, n) + np.bincount(b, rate, n) + prior
        )
        new -= new.mean()
        change = float(np.abs(new - theta).max())
        theta = new
        if change < tolerance:
            return theta
    raise NotConvergedError(
        f"bt-mm did not converge in {sweeps:,} sweeps; `--rating bt` always does."
    )
