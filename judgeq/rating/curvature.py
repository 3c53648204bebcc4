"""The curvature A = H + 1/σ² of a posterior, applied, solved and drawn from for several vectors at once.

H is kept as the rankings' own Hessians, of shape (rankings, k, k) and single precision: A itself, of n²
numbers, is never formed. With x of A x = b, and b of the covariance A, x has the covariance A⁻¹: so the
posterior is drawn from by conjugate gradients. b is a factor of each ranking's Hessian times standard
normal numbers, and those of the prior.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from judgeq import seeds
from judgeq.errors import NotConvergedError
from judgeq.rating.rankings import AT_ONCE, Rankings, Values
from judgeq.types import Floats

WIDE = 10.0
"""Up to this σ single precision leaves four digits of an inverse."""
TOGETHER = 16
"""Vectors handled together: of single precision, those of an item fill a line of the cache."""


class Curvature:
    """A of some rankings; `matrices` are their Hessians by block, `precision` is 1/σ² by parameter,
    shape (n + p,)."""

    def __init__(self, rankings: Rankings, precision: Floats, matrices: Sequence[Values]) -> None:
        self.rankings = rankings
        self.precision = precision
        self.matrices = matrices

    @classmethod
    def kept(cls, rankings: Rankings, precision: Floats) -> Curvature:
        """The curvature where `rankings` last took a gradient: in double precision where the prior is so
        wide that rounding would hide it."""
        kind = np.float32 if precision.min() >= WIDE**-2 else np.float64
        matrices = rankings.map(lambda block: block.matrices().astype(kind), rankings.blocks)
        return cls(rankings, precision, matrices)

    @cached_property
    def diagonal(self) -> Floats:
        """A's diagonal, shape (n + p,)."""
        rankings = self.rankings
        diagonals = [
            np.diagonal(matrices, axis1=1, axis2=2)[:, :, None].astype(np.float64)
            for matrices in self.matrices
        ]
        total: Floats = self.precision.copy()
        if not diagonals:
            return total
        total[: rankings.n] += rankings.sums(diagonals)[: rankings.n, 0]
        for matrices, numbers in zip(self.matrices, rankings.by_list.covariates, strict=True):
            if numbers is not None:
                bent = matrices @ numbers
                total[rankings.n :] += np.einsum("mkp,mkp->p", numbers, bent, optimize=False)
        return total

    def times(self, vectors: Values) -> Values:
        """A times each of some vectors, shape (n + p, samples)."""
        product = self.precision.astype(vectors.dtype)[:, None] * vectors
        if self.matrices:
            parts = self.rankings.each(lambda part, of: of @ part, vectors, self.matrices)
            product += self.rankings.sums(parts)
        return product

    def solve(self, b: Values, tolerance: float = 1e-3, most: int = 2000) -> Values:
        """x of A x = b for the columns of b, shape (n + p, samples), in their precision, by conjugate
        gradients, preconditioned by the diagonal. Each column's residual is at most `tolerance` of b.
        Raises NotConvergedError.
        """
        scale = b.dtype.type
        inverse = (1 / self.diagonal).astype(b.dtype)[:, None]
        x = np.zeros_like(b)
        residual = b.copy()
        scaled = inverse * residual
        direction = scaled.copy()
        length = dots(residual, scaled)
        enough = tolerance**2 * dots(b, b)
        for _ in range(most):
            if (dots(residual, residual) <= enough).all():
                return x
            product = self.times(direction)
            pull = dots(direction, product)
            along = np.divide(length, pull, out=np.zeros_like(length), where=pull > 0)
            x += along.astype(scale) * direction
            residual -= along.astype(scale) * product
            np.multiply(inverse, residual, out=scaled)
            length, last = dots(residual, scaled), length
            ratio = np.divide(length, last, out=np.zeros_like(length), where=last > 0)
            direction *= ratio.astype(scale)
            direction += scaled
        raise NotConvergedError("the standard errors did not converge; try a smaller --sigma.")

    def log_determinant(self) -> float:
        """log|A| = Σ log A_ii − tr((DE)²)/2 − tr((DE)³)/3 − …, with A = D⁻¹ − E: the ways from an item
        back to itself by one other item of a list, and by two. A pair that meets in several lists
        counts by list; what longer ways add hardly depends on the prior."""
        inverse = (1 / self.diagonal[: self.rankings.n]).astype(np.float32)

        def back(matrices: Values, items: Values) -> float:
            off = matrices * inverse[items][:, None, :]
            each = np.arange(off.shape[1])
            off[:, each, each] = 0
            twice = off @ off
            ways = np.einsum("lii->", twice) / 2 - np.einsum("lij,lji->", twice, off) / 3
            return float(ways)

        ways = self.rankings.map(back, self.matrices, self.rankings.by_list.items)
        return float(np.log(self.diagonal).sum()) - sum(ways)

    def noise(self, seed: int, *names: str | int) -> Values:
        """TOGETHER normal vectors of the covariance A, shape (n + p, TOGETHER): which, `seed` and the
        names say, and nothing else does."""
        rng = seeds.rng(seed, *names, "prior")
        b = rng.standard_normal((len(self.precision), TOGETHER), dtype=np.float32)
        b *= np.sqrt(self.precision).astype(np.float32)[:, None]

        def drawn(number: int, factor: Values) -> Values:
            rng = seeds.rng(seed, *names, number)
            rankings, free = factor.shape[:2]
            normal = rng.standard_normal((rankings, free, TOGETHER), dtype=np.float32)
            some = factor @ normal
            # A ranking says nothing of the mean of its items.
            return np.concatenate([some, -some.sum(axis=1, keepdims=True)], axis=1)

        if self.matrices:
            parts = self.rankings.map(drawn, range(len(self.matrices)), self._factors)
            b += self.rankings.sums(parts)
        return b

    @cached_property
    def _factors(self) -> list[Values]:
        """Of each ranking's Hessian, without its last item, a factor: (rankings, k − 1, k − 1)."""

        def factor(matrices: Values) -> Values:
            whole = matrices.astype(np.float64)
            each = np.arange(whole.shape[1])
            whole[:, each, each] = 0
            diagonal = -whole.sum(axis=2)
            # Of items that are far apart the Hessian is 0 but for rounding.
            whole[:, each, each] = diagonal * (1 + 1e-12) + 1e-30
            return np.linalg.cholesky(whole[:, :-1, :-1]).astype(np.float32)

        return self.rankings.map(factor, self.matrices)


def dots(a: Values, b: Values) -> Floats:
    """The inner product of each column, shape (samples,): not by BLAS, whose last bits depend on its
    number of threads."""
    parts: list[Any] = [
        np.einsum("ij,ij->j", a[begin : begin + AT_ONCE], b[begin : begin + AT_ONCE])
        for begin in range(0, len(a), AT_ONCE)
    ]
    total: Floats = np.sum(parts, axis=0, dtype=np.float64)
    return total
