"""The curvature A = H + 1/σ² of a posterior: applied, solved, its inverse's diagonal, its determinant.

H is kept as the rankings' own Hessians, of shape (rankings, k, k) and single precision: A itself, of n²
numbers, is never formed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from judgeq.errors import NotConvergedError
from judgeq.rating.rankings import AT_ONCE, Rankings, Values
from judgeq.types import Floats, Offsets

WIDE = 10.0
"""Up to this σ single precision leaves four digits of an inverse."""


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

    @cached_property
    def returns(self) -> tuple[Floats, Floats]:
        """With A = D⁻¹ − E, the weights of the ways from each item back to itself by one other item of a
        list, and by two: the diagonals of D·E·D·E and of D·E·D·E·D·E list by list, each of shape (n,).
        A pair that meets in several lists counts by list."""
        n = self.rankings.n
        inverse = 1 / self.diagonal[:n]
        totals = np.zeros((2, n))

        def back(matrices: Values, items: Offsets) -> tuple[Values, Values]:
            off = -matrices
            each = np.arange(off.shape[1])
            off[:, each, each] = 0
            bent = off * inverse[items].astype(off.dtype)[:, None, :]
            twice = bent @ off
            one = np.einsum("lii->li", twice)
            return one, np.einsum("lij,lij->li", twice, bent)

        items_of = self.rankings.by_list.items
        for items, ways in zip(
            items_of, self.rankings.map(back, self.matrices, items_of), strict=True
        ):
            for total, way in zip(totals, ways, strict=True):
                total += np.bincount(items.reshape(-1), way.reshape(-1), n)
        return inverse * totals[0], inverse * totals[1]

    def variance(self) -> Floats:
        """The diagonal of A⁻¹ of the items given the covariates, shape (n,): D/(1 − the ways back),
        0.2 to 0.9 % off."""
        one, two = self.returns
        variance: Floats = 1 / self.diagonal[: self.rankings.n] / (1 - np.minimum(one + two, 0.9))
        return variance

    def log_determinant(self) -> float:
        """log|A| = −Σ log D − tr((DE)²)/2 − tr((DE)³)/3 − …: differences between priors are right."""
        one, two = self.returns
        return float(np.log(self.diagonal).sum() - one.sum() / 2 - two.sum() / 3)


def dots(a: Values, b: Values) -> Floats:
    """The inner product of each column, shape (samples,): not by BLAS, whose last bits depend on its
    number of threads."""
    parts: list[Any] = [
        np.einsum("ij,ij->j", a[begin : begin + AT_ONCE], b[begin : begin + AT_ONCE])
        for begin in range(0, len(a), AT_ONCE)
    ]
    total: Floats = np.sum(parts, axis=0, dtype=np.float64)
    return total
