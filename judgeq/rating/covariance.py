"""The exact covariance of ratings: V = (H + 1/σ²)⁻¹, inverted component by component."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from judgeq.rating.curvature import WIDE, Curvature
from judgeq.rating.rankings import Rankings, Values
from judgeq.types import Bools, Floats, Offsets

EXACT = 4000
"""The most parameters that are inverted together. Components are, the smallest first, as long as all of
them take no more work than one of this size."""
_BASE = 256
_SMALL = 64
"""Up to this size many matrices are inverted at once."""
_AT_ONCE = 4_000_000
"""Numbers of matrices handled together."""


class Part(NamedTuple):
    """Some components of one size s: their parameters' `rows`, shape (components, s), and V, shape
    (components, s, s). `number` is that of each parameter's component among them (−1: not there), and
    `place` its place there."""

    rows: Offsets
    covariance: Values
    number: Offsets
    place: Offsets


def exact(component: Offsets, rankings: Rankings) -> Bools:
    """Which items' covariance is inverted, shape (n,): none or all, where there are covariates, which
    connect all components. Not those that were never judged."""
    judged = component > 0
    if rankings.p:
        return judged & (rankings.n + rankings.p <= EXACT)
    sizes = np.bincount(component)
    sizes[0] = 0
    order = np.argsort(sizes, kind="stable")
    work = np.cumsum(sizes[order].astype(np.float64) ** 3)
    small = np.zeros(len(sizes), dtype=np.bool_)
    small[order] = work <= EXACT**3
    chosen: Bools = small[component] & judged
    return chosen


def parts(curvature: Curvature, component: Offsets, chosen: Bools) -> Iterator[Part]:
    """V of the components whose items are `chosen`, shape (n,), by size."""
    if curvature.rankings.p:
        if chosen.any():
            yield _inverted(curvature, np.arange(len(curvature.precision))[None])
        return
    items = np.flatnonzero(chosen)
    items = items[np.argsort(component[items], kind="stable")]
    sizes = np.bincount(component[items])
    of_item = sizes[component[items]]
    for size in np.unique(of_item).tolist():
        rows = items[of_item == size].reshape(-1, size)
        at_once = max(1, _AT_ONCE // size**2)
        for begin in range(0, len(rows), at_once):
            yield _inverted(curvature, rows[begin : begin + at_once])


def _inverted(curvature: Curvature, rows: Offsets) -> Part:
    number, place = _places(rows, len(curvature.precision))
    matrices = _information(curvature, rows, number, place)
    if rows.shape[1] <= _SMALL:
        return Part(rows, np.linalg.inv(matrices), number, place)
    if curvature.precision.min() >= WIDE**-2:
        matrices = matrices.astype(np.float32)
    return Part(rows, np.stack([inverse(matrix) for matrix in matrices]), number, place)


def information(curvature: Curvature) -> Floats:
    """A = H + 1/σ² itself, shape (n + p, n + p)."""
    n = len(curvature.precision)
    rows = np.arange(n)[None]
    matrix: Floats = _information(curvature, rows, *_places(rows, n))[0]
    return matrix


def _places(rows: Offsets, n: int) -> tuple[Offsets, Offsets]:
    """Of each of n parameters the number of the component, or −1, and its place there."""
    number = np.full(n, -1)
    place = np.zeros(n, dtype=np.int64)
    number[rows], place[rows] = np.arange(len(rows))[:, None], np.arange(rows.shape[1])
    return number, place


def _information(curvature: Curvature, rows: Offsets, number: Offsets, place: Offsets) -> Floats:
    """A of some components of one size s, shape (components, s, s)."""
    count, size = rows.shape
    flat = np.zeros(count * size * size)
    by_list = curvature.rankings.by_list
    for matrices, items, numbers in zip(
        curvature.matrices, by_list.items, by_list.covariates, strict=True
    ):
        lists = np.flatnonzero(number[items[:, 0]] >= 0)
        if not len(lists):
            continue
        of, at = matrices[lists], items[lists]
        if numbers is not None:
            of, at = _with_covariates(of, at, numbers[lists], curvature.rankings.n)
        first = number[at[:, 0]][:, None, None] * size + place[at][:, :, None]
        cell = first * size + place[at][:, None, :]
        if cell.size < len(flat):  # bincount would make all of the many cells
            np.add.at(flat, cell.reshape(-1), of.reshape(-1).astype(np.float64))
        else:
            flat += np.bincount(cell.reshape(-1), of.reshape(-1), len(flat))
    matrix = flat.reshape(count, size, size)
    each = np.arange(size)
    matrix[:, each, each] += curvature.precision[rows]
    return matrix


def _with_covariates(
    matrices: Values, at: NDArray[np.intp], numbers: Floats, n: int
) -> tuple[Values, NDArray[np.intp]]:
    """Hessians by place, (lists, k, k), as Hessians by parameter, and which these are, (lists, k +
    p)."""
    slots = by_parameter(numbers)
    return slots.transpose(0, 2, 1) @ matrices @ slots, with_covariates(at, numbers, n)


def by_parameter(numbers: Floats) -> Floats:
    """What slots have of their list's items and of the covariates, (lists, k, k + p)."""
    lists, k, _ = numbers.shape
    return np.concatenate([np.broadcast_to(np.eye(k), (lists, k, k)), numbers], axis=2)


def with_covariates(at: NDArray[np.intp], numbers: Floats, n: int) -> NDArray[np.intp]:
    """The parameters of lists: their items, and then the covariates, (lists, k + p)."""
    lists, _, p = numbers.shape
    return np.concatenate([at, np.broadcast_to(np.arange(n, n + p), (lists, p))], axis=1)


def inverse(matrix: Values) -> Values:
    """The inverse of a symmetric positive definite matrix, by halves: almost all of it is products of
    matrices, twice as fast as NumPy's general inverse."""
    n = len(matrix)
    if n <= _BASE:
        return np.linalg.inv(matrix)
    half = n // 2
    first = inverse(matrix[:half, :half])
    across = first @ matrix[:half, half:]
    second = inverse(matrix[half:, half:] - matrix[half:, :half] @ across)
    result = np.empty_like(matrix)
    result[half:, half:] = second
    result[:half, half:] = -across @ second
    result[half:, :half] = result[:half, half:].T
    result[:half, :half] = first - across @ result[half:, :half]
    return result
