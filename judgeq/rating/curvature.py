"""The maximum of a posterior, its curvature A = H + 1/σ² there, and V = A⁻¹ as far as it is asked for.

H is kept as the rankings' own Hessians, (k, k, rankings) in single precision: A itself, of n²
numbers, is formed only of few items, whose V is exact. Of more V's diagonal and log|A| have closed
forms. With D = 1/diagonal(A) and A = D⁻¹ − E, V is D + DED + DEDED + …: the ways
back to an item by one other of a ranking and by two, resummed, leave out next to nothing.

Covariates are many slots' own. With A = [[A₀, B], [Bᵀ, C]] and G = A₀⁻¹B, V of the items is A₀⁻¹ +
G·S⁻¹·Gᵀ, S = C − BᵀG being as small as there are covariates.

Newton steps and conjugate gradients are our own because importing scipy.sparse.linalg takes half as long
as a whole run over BABE.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.errors import NotConvergedError
from judgeq.rating.rankings import Rankings, Values
from judgeq.types import Bools, Floats, Offsets

WIDE = 10.0
"""Up to this σ single precision leaves four digits of an inverse."""
DENSE = 2000
"""The most items of which V is exact."""
SAMPLE = 20_000
"""φ is a mean over rankings, which needs no more of them."""


class Scatter(NamedTuple):
    """How far rankings scatter, and how far they should if the model held."""

    observed: float = 0.0
    expected: float = 0.0

    @property
    def dispersion(self) -> float:
        """φ, at least 1: of a judge that scatters less than the model expects the ratings aren't taken
        to be surer than the model says."""
        return max(1.0, self.observed / self.expected) if self.expected > 0 else 1.0


class Curvature:
    """A where `rankings` last took a gradient; `precision` is 1/σ² by parameter, shape (n + p,)."""

    def __init__(self, rankings: Rankings, precision: Floats) -> None:
        self.rankings, self.precision = rankings, precision
        # Double precision where the prior is so wide that rounding would hide it.
        self._kind = np.float32 if precision.min() >= WIDE**-2 else np.float64
        blocks = rankings.blocks
        self.matrices: Sequence[Values] = rankings.map(
            lambda block: block.matrices().astype(self._kind, copy=False), blocks
        )
        self.items: list[Offsets] = rankings.by_block(rankings.items)

    @cached_property
    def diagonal(self) -> Floats:
        """A's diagonal, shape (n + p,)."""
        rankings, n = self.rankings, self.rankings.n
        diagonals = [np.einsum("iim->im", matrices) for matrices in self.matrices]
        total: Floats = self.precision + rankings.added_up(diagonals)
        for number in range(rankings.p):
            unit = np.zeros(len(total))
            unit[n + number] = 1
            total[n + number] = self.times(unit)[n + number]
        return total

    def times(self, vector: Floats) -> Floats:
        """A times a vector, shape (n + p,)."""
        rankings = self.rankings

        def bent(matrices: Values, part: Floats) -> Values:
            one: Values = np.einsum("ijm,jm->im", matrices, part.astype(self._kind))
            return one

        parts = rankings.map(bent, self.matrices, rankings.spread(vector))
        return self.precision * vector + rankings.added_up(parts)

    def solve(self, b: Floats, tolerance: float, what: str = "the standard errors") -> Floats:
        """x of A x = b, shape (n + p,), by conjugate gradients, preconditioned by the diagonal: the
        residual's length is at most `tolerance` of b's. Raises NotConvergedError."""
        x, residual = np.zeros_like(b), b.copy()
        direction = residual / self.diagonal
        length, enough = dot(residual, direction), tolerance**2 * dot(b, b)
        for _ in range(2000):
            if dot(residual, residual) <= enough:
                return x
            product = self.times(direction)
            along = length / dot(direction, product)
            x += along * direction
            residual -= along * product
            scaled = residual / self.diagonal
            length, last = dot(residual, scaled), length
            direction = scaled + length / last * direction
        raise NotConvergedError(f"{what} did not converge; try a smaller --sigma.")

    # V of the items, given the covariates

    @cached_property
    def _matrix(self) -> Floats:
        """A₀ itself, shape (n, n), of few items."""
        n = self.rankings.n
        flat = np.zeros(n * n)
        for matrices, items in zip(self.matrices, self.items, strict=True):
            cells = items[:, None] * n + items
            np.add.at(flat, cells.reshape(-1), matrices.reshape(-1).astype(np.float64))
        flat[:: n + 1] += self.precision[:n]
        return flat.reshape(n, n)

    @property
    def exact(self) -> bool:
        """Whether V itself is worked out: of up to DENSE items."""
        return self.rankings.n <= DENSE

    @cached_property
    def _inverse(self) -> Floats | None:
        """V, shape (n, n); None where it isn't exact."""
        if not self.exact:
            return None
        return np.linalg.inv(self._matrix).astype(np.float64, copy=False)

    @cached_property
    def _returns(self) -> tuple[Floats, Floats]:
        """The ways from each item back to itself by one other item of a ranking, and by two: the
        diagonals of DEDE and of DEDEDE, each of shape (n,). A pair that meets in several rankings counts
        by ranking."""
        n = self.rankings.n
        inverse = (1 / self.diagonal[:n]).astype(self._kind)
        totals = np.zeros((2, n))

        def back(matrices: Values, items: Offsets) -> tuple[Values, Values]:
            bent = _off(matrices) * inverse[items.T][:, None, :]
            twice = bent @ bent
            return np.einsum("lii->il", twice), np.einsum("lij,lji->il", twice, bent)

        ways = self.rankings.map(back, self.matrices, self.items)
        for items, both in zip(self.items, ways, strict=True):
            for total, way in zip(totals, both, strict=True):
                total += np.bincount(items.reshape(-1), way.reshape(-1), n)
        return totals[0], totals[1]

    @cached_property
    def variance(self) -> Floats:
        """V's diagonal, shape (n,): of many items 0.2 to 0.9 % off."""
        if self._inverse is not None:
            return self._inverse.diagonal()
        one, two = self._returns
        variance: Floats = 1 / self.diagonal[: self.rankings.n] / (1 - np.minimum(one + two, 0.9))
        return variance

    def covariance(self, rows: Offsets) -> Floats:
        """V between some items, shape (a, a), given the covariates; of many items its diagonal alone, as
        the rest is next to nothing."""
        if self._inverse is None:
            return np.diag(self.variance[rows])
        return self._inverse[np.ix_(rows, rows)]

    @cached_property
    def shared(self) -> tuple[Floats, Floats]:
        """G, shape (n, p), and S⁻¹, shape (p, p)."""
        n, p = self.rankings.n, self.rankings.p
        columns = np.zeros((n + p, p))
        columns[n:] = np.eye(p)
        solved = np.stack([self.solve(column, 1e-6) for column in columns.T], axis=1).reshape(-1, p)
        return -solved[:n] @ np.linalg.inv(solved[n:]), solved[n:]

    def log_determinant(self) -> float:
        """log|A|: of many items −Σ log D − tr((DE)²)/2 − tr((DE)³)/3 − …, of which differences between
        priors are right."""
        if self.exact:
            total = float(np.linalg.slogdet(self._matrix)[1])
        else:
            one, two = self._returns
            total = float((np.log(self.diagonal[: self.rankings.n]) - one / 2 - two / 3).sum())
        return total - (float(np.linalg.slogdet(self.shared[1])[1]) if self.rankings.p else 0.0)

    def scatter(self, slopes: Sequence[Floats], among: Bools | None = None) -> Scatter:
        """φ = Σ g_lᵀ V_l g_l / Σ tr(V_l (H_l − H_l V_l H_l)), with g_l (`slopes`, by block), H_l and V_l
        the gradient, the Hessian and the block of V of ranking l; of the items `among` them, shape (n,),
        alone, if given.

        What is subtracted is what fitting takes off the residuals of a ranking, as 1 − leverage
        does in regression: with one number for all it is a sandwich estimator (McCullagh and Nelder
        1989, section 9.2.4, of clusters).
        """
        sums = np.zeros(2)
        share = min(1.0, SAMPLE / max(1, sum(m for _, m in self.rankings.shapes)))
        drawn = seeds.rng(0, "dispersion")
        covariates = self.rankings.by_block(self.rankings.covariates)
        blocks = zip(self.matrices, slopes, self.items, covariates, strict=True)
        for matrices, slope, items, numbers in islice(blocks, self.rankings.lists):
            lists = drawn.random(items.shape[1]) < share
            at, h, g = items[:, lists], matrices[:, :, lists].transpose(2, 0, 1), slope[:, lists]
            v = self._of_lists(matrices[:, :, lists], at)
            if self.rankings.p:
                shared, spread = self.shared
                through = numbers[:, lists].transpose(1, 0, 2) - shared[at.T]
                v = v + through @ spread @ through.transpose(0, 2, 1)
            left = h - h @ v @ h
            if among is not None:
                v = v * (among[at.T][:, :, None] & among[at.T][:, None])
            sums += np.einsum("lij,jl,il->", v, g, g), np.einsum("lij,lji->", v, left)
        return Scatter(*sums.tolist())

    def _of_lists(self, matrices: Values, items: Offsets) -> Floats:
        """V of rankings, (rankings, k, k), by their Hessians."""
        if self._inverse is not None:
            return self._inverse[items.T[:, :, None], items.T[:, None]]
        d = 1 / self.diagonal[items.T]
        bent = _off(matrices).astype(np.float64) * d[:, None, :]
        v: Floats = d[:, :, None] * (bent + bent @ bent + bent @ bent @ bent)
        np.einsum("lii->li", v)[:] = self.variance[items.T]
        return v


def _off(matrices: Values) -> Values:
    """E of rankings, (rankings, k, k), from their Hessians, (k, k, rankings)."""
    off = np.negative(matrices.transpose(2, 0, 1), order="C")
    np.einsum("lii->li", off)[:] = 0
    return off


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


def dot(a: Floats, b: Floats) -> float:
    """The inner product by NumPy's own sum: BLAS's last bits depend on its number of threads."""
    return float((a * b).sum())
