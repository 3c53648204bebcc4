"""A likelihood of rankings, the maximum of its posterior, the curvature A = H + 1/σ² there, and V = A⁻¹
as far as it is asked for.

Rankings are blocks of arrays, each of rankings of one size k. Values by item are spread over the places
of its rankings, shape (k, rankings), and added up again. Working on places rather than on k(k−1)/2
columns of comparisons reads all in order: several times faster, in a fraction of the memory.

Beside the items a likelihood may have covariates: what stands in a slot is then not the item's
parameter alone but that plus Σ x·(the covariate's parameter), where x is a number a slot. So an
effect of the place presented, or a direct score, is estimated jointly with the items.

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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from judgeq import seeds
from judgeq.errors import NotConvergedError
from judgeq.rating import GoOn
from judgeq.rating.comparisons import repeated
from judgeq.types import Bools, Floats, Offsets

Values: TypeAlias = NDArray[Any]
"""Of any precision."""
T = TypeVar("T")
AT_ONCE = 16384
"""Slots handled together: their arrays stay in the processor's cache."""
WIDE = 10.0
"""Up to this σ single precision leaves four digits of an inverse."""
STIFF = 1e5
"""How many times 1/σ² A's diagonal may be until an inverse by single precision isn't exact enough."""
DENSE = 2000
"""The most items of which V is exact."""
LOOSE = 100.0
"""The σ of covariates, which is as good as flat."""
SIGMAS = (1e-3, 100.0)
"""The least and the largest σ of items: below, all θ are equal but for the digits that are shown."""
SAMPLE = 20_000
"""φ is a mean over rankings, which needs no more of them."""
THREADS = 4
"""More would wait for what one of them does alone: spreading and adding up."""


class Block(Protocol):
    """A likelihood of some rankings of one size, of η by place, shape (k, rankings)."""

    def loss(self, eta: Floats) -> float:
        """−log likelihood."""

    def bent(self, eta: Floats) -> tuple[float, Floats, Floats]:
        """The loss, its gradient, shape (k, rankings), and its Hessians, (k, k, rankings)."""


@dataclass(frozen=True, slots=True, eq=False)
class Rankings:
    """Verdicts as `blocks` of a likelihood in n items and in p covariates (plackett_luce.py makes them).

    `shapes` are those of the blocks, (k, rankings), `slots` the slots of the verdicts in their order,
    and `items` the items there; `covariates` are numbers by slot, shape (slots, p). The first `lists`
    blocks are of rankings; one after them says what is known of items. Parameters are vectors of shape
    (n + p,): the items', then the covariates'. Blocks are worked on by the `pool` of threads (NumPy lets
    go of the interpreter lock) and added up in their order, so that the number of threads changes no
    bit. `go_on` is called before each pass.
    """

    n: int
    blocks: Sequence[Block]
    shapes: Sequence[tuple[int, ...]]
    slots: Offsets
    items: NDArray[np.intp]
    covariates: Floats
    lists: int
    go_on: GoOn
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(THREADS))

    @property
    def p(self) -> int:
        """How many covariates there are."""
        return len(self.covariates.T)

    @property
    def size(self) -> float:
        """The mean number of items of a ranking."""
        return len(self.slots) / max(1, sum(m for _, m in self.shapes[: self.lists]))

    @property
    def repeated(self) -> bool:
        """Whether they compare items often enough (`comparisons.repeated`)."""
        return repeated(np.bincount(self.items[: len(self.slots)]))

    def precision(self, sigma: float) -> Floats:
        """1/σ² by parameter, shape (n + p,), of the prior θ ~ N(0, σ²) of items. Raises ValueError for a
        σ outside SIGMAS."""
        least, largest = SIGMAS
        if not least <= sigma <= largest:
            raise ValueError(f"σ must be from {least:g} to {largest:g}, not {sigma:g}")
        return np.repeat([sigma**-2, LOOSE**-2], [self.n, self.p])

    def with_covariates(self, covariates: Floats) -> Rankings:
        """The same with more covariates, shape (slots of the verdicts, q), after its own."""
        more = np.zeros((len(self.items), covariates.shape[1]))
        more[: len(self.slots)] = covariates[self.slots]
        return replace(self, covariates=np.concatenate([self.covariates, more], axis=1))

    def with_known(self, rows: Offsets, known: Block) -> Rankings:
        """The same with what is known of some items before, as if a ranking of them all said it."""
        return replace(
            self,
            blocks=[*self.blocks, known],
            shapes=[*self.shapes, (len(rows), 1)],
            items=np.concatenate([self.items, rows]),
            covariates=np.concatenate([self.covariates, np.zeros((len(rows), self.p))]),
        )

    def map(self, work: Callable[..., T], *values: Iterable[Any]) -> list[T]:
        """What `work` makes of each of some values: of many slots by several threads."""
        many = len(self.items) >= 2 * AT_ONCE
        return list((self.pool.map if many else map)(work, *values))

    def by_block(self, flat: Values) -> list[Values]:
        """Values by slot as arrays by place, one a block."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes], dtype=np.int64)
        parts = zip(np.split(flat, ends), self.shapes, strict=False)
        return [part.reshape(*shape, *flat.shape[1:]) for part, shape in parts]

    def spread(self, parameters: Values) -> list[Values]:
        """Parameters, shape (n + p,), as arrays by place, one a block."""
        self.go_on()
        flat = parameters[self.items]
        if self.p:
            flat += self.covariates @ parameters[self.n :]
        return self.by_block(flat)

    def added_up(self, parts: Iterable[Values]) -> Floats:
        """By parameter, shape (n + p,), what blocks have by place."""
        flat = np.concatenate([np.empty(0), *(part.reshape(-1) for part in parts)])
        of_items = np.bincount(self.items, flat, self.n)
        return np.concatenate([of_items, (self.covariates * flat[:, None]).sum(axis=0)])

    def loss(self, parameters: Floats) -> float:
        """−log likelihood."""
        parts = self.spread(parameters)
        return float(sum(self.map(lambda block, eta: block.loss(eta), self.blocks, parts)))


def dispersion(scatter: Floats) -> float:
    """φ of how far rankings scatter, and how far they should if the model held, shape (2,). At least 1:
    of a judge that scatters less than the model expects the ratings aren't taken to be surer than the
    model says."""
    observed, expected = scatter.tolist()
    return max(1.0, observed / expected) if expected > 0 else 1.0


class Curvature:
    """The posterior at some `parameters`, shape (n + p,), up to a constant: its −log, the `loss`, the
    `gradient` of that, and A with its `diagonal`. `precision` is 1/σ² by parameter. `slopes` are the
    gradients of the likelihood alone by place, one a block."""

    def __init__(self, rankings: Rankings, parameters: Floats, precision: Floats) -> None:
        self.rankings, self.parameters, self.precision = rankings, parameters, precision
        # Double precision where the prior is so wide that rounding would hide it.
        self._kind = np.float32 if precision.min() >= WIDE**-2 else np.float64

        def bent(block: Block, eta: Floats) -> tuple[float, Floats, Values]:
            loss, slope, matrices = block.bent(eta)
            return loss, slope, matrices.astype(self._kind, copy=False)

        found = rankings.map(bent, rankings.blocks, rankings.spread(parameters))
        self.slopes: list[Floats] = [slope for _, slope, _ in found]
        self._matrices: list[Values] = [matrices for *_, matrices in found]
        pull = precision * parameters
        self.loss = float(sum(loss for loss, *_ in found)) + dot(parameters, pull) / 2
        self.gradient: Floats = rankings.added_up(self.slopes) + pull
        self._items: list[Offsets] = rankings.by_block(rankings.items)
        diagonals = (np.einsum("iim->im", matrices) for matrices in self._matrices)
        self.diagonal: Floats = precision + rankings.added_up(diagonals)
        for at in range(rankings.n, len(precision)):
            unit = np.zeros(len(precision))
            unit[at] = 1
            self.diagonal[at] = self.times(unit)[at]

    def times(self, vector: Floats) -> Floats:
        """A times a vector, shape (n + p,)."""

        spread = self.rankings.spread(vector.astype(self._kind))
        bent = partial(np.einsum, "ijm,jm->im")
        return self.precision * vector + self.rankings.added_up(
            self.rankings.map(bent, self._matrices, spread)
        )

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
        matrix = np.diag(self.precision[:n])
        for matrices, items in zip(self._matrices, self._items, strict=True):
            np.add.at(
                matrix.reshape(-1), (items[:, None] * n + items).reshape(-1), matrices.reshape(-1)
            )
        return matrix

    @property
    def exact(self) -> bool:
        """Whether V itself is worked out: of up to DENSE items."""
        return self.rankings.n <= DENSE

    @cached_property
    def _inverse(self) -> Floats | None:
        """V, shape (n, n); None where it isn't exact."""
        if not self.exact:
            return None
        rankings, matrix, weak = (
            self.rankings,
            self._matrix,
            float(self.precision[: self.rankings.n].max()),
        )
        known = len(rankings.blocks) > rankings.lists
        if known or self.diagonal[: rankings.n].max(initial=0) <= STIFF * weak:
            return np.linalg.inv(matrix).astype(np.float64, copy=False)
        # Rankings say nothing of the mean of a component: A's own value there is 1/σ², next to nothing.
        # It is replaced by a large one, the inverse of which is known, too.
        parts = _connected(matrix)
        stiff: Floats = matrix.astype(np.float64)
        strong = [float(stiff[part, part].mean()) for part in parts]
        for part, value in zip(parts, strong, strict=True):
            stiff[np.ix_(part, part)] += value / len(part)
        inverse: Floats = np.linalg.inv(stiff).astype(np.float64, copy=False)
        for part, value in zip(parts, strong, strict=True):
            inverse[np.ix_(part, part)] += (1 / weak - 1 / (weak + value)) / len(part)
        return inverse

    @cached_property
    def _returns(self) -> list[Floats]:
        """The ways from each item back to itself by one other item of a ranking, and by two: the
        diagonals of DEDE and of DEDEDE, each of shape (n,). A pair that meets in several rankings counts
        by ranking."""
        n, added_up = self.rankings.n, self.rankings.added_up
        inverse = (1 / self.diagonal[:n]).astype(self._kind)

        def back(matrices: Values, items: Offsets) -> tuple[Values, Values]:
            bent = _off(matrices) * inverse[items.T][:, None, :]
            twice = bent @ bent
            return np.einsum("lii->il", twice).copy(), np.einsum("lij,lji->il", twice, bent)

        ways = self.rankings.map(back, self._matrices, self._items)
        return [added_up(way[others] for way in ways)[:n] for others in (0, 1)]

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
        units = np.eye(p, n + p, n)
        solved = np.array([self.solve(unit, 1e-6) for unit in units]).reshape(p, n + p).T
        return -solved[:n] @ np.linalg.inv(solved[n:]), solved[n:]

    def log_determinant(self) -> float:
        """log|A|: of many items −Σ log D − tr((DE)²)/2 − tr((DE)³)/3 − …, of which differences between
        priors are right."""
        if self.exact:
            total = 2 * np.log(np.linalg.cholesky(self._matrix).diagonal()).sum()
        else:
            one, two = self._returns
            total = (np.log(self.diagonal[: self.rankings.n]) - one / 2 - two / 3).sum()
        return float(total - np.linalg.slogdet(self.shared[1])[1])

    def scatter(self, among: Bools | None = None) -> Floats:
        """Σ g_lᵀ V_l g_l and Σ tr(V_l (H_l − H_l V_l H_l)), of which φ is the ratio, with g_l (of
        `slopes`), H_l and V_l the gradient, the Hessian and the block of V of ranking l; of the items
        `among` them, shape (n,), alone, if given.

        What is subtracted is what fitting takes off the residuals of a ranking, as 1 − leverage
        does in regression: with one number for all it is a sandwich estimator (McCullagh and Nelder
        1989, section 9.2.4, of clusters).
        """
        rankings, sums = self.rankings, np.zeros(2)
        share = min(1.0, SAMPLE / max(1, sum(m for _, m in rankings.shapes)))
        drawn = seeds.rng(0, "dispersion")
        covariates, (shared, spread) = rankings.by_block(rankings.covariates), self.shared
        for at in range(rankings.lists):
            lists = drawn.random(self._items[at].shape[1]) < share
            items, g = self._items[at][:, lists], self.slopes[at][:, lists]
            h = self._matrices[at][:, :, lists]
            v = self._of_lists(h, items)
            through = covariates[at][:, lists].transpose(1, 0, 2) - shared[items.T]
            v = v + through @ spread @ through.transpose(0, 2, 1)
            h = h.transpose(2, 0, 1)
            left = h - h @ v @ h
            if among is not None:
                v = v * (among[items.T][:, :, None] & among[items.T][:, None])
            sums += np.einsum("lij,jl,il->", v, g, g), np.einsum("lij,lji->", v, left)
        return sums

    def _of_lists(self, matrices: Values, items: Offsets) -> Floats:
        """V of rankings, (rankings, k, k), by their Hessians."""
        if self._inverse is not None:
            return self._inverse[items.T[:, :, None], items.T[:, None]]
        d = 1 / self.diagonal[items.T]
        bent = _off(matrices).astype(np.float64) * d[:, None, :]
        v: Floats = d[:, :, None] * (bent + bent @ bent + bent @ bent @ bent)
        np.einsum("lii->li", v)[:] = self.variance[items.T]
        return v


def _connected(matrix: Values) -> list[Offsets]:
    """Return the rows of each component of a symmetric matrix, which connect where it isn't 0."""
    parts, found = list[Offsets](), np.zeros(len(matrix), np.bool_)
    for row in range(len(matrix)):
        if found[row]:
            continue
        part, reached = found.copy(), np.array([row])
        while len(reached):
            found[reached] = True
            reached = np.flatnonzero((matrix[reached] != 0).any(axis=0) & ~found)
        parts.append(np.flatnonzero(found & ~part))
    return parts


def _off(matrices: Values) -> Values:
    """E of rankings, (rankings, k, k), from their Hessians, (k, k, rankings)."""
    off = np.negative(matrices.transpose(2, 0, 1), order="C")
    np.einsum("lii->li", off)[:] = 0
    return off


def maximum(
    rankings: Rankings,
    sigma: float,
    tolerance: float = 1e-9,
    start: Floats | None = None,
    *,
    what: str = "the ratings",
) -> Curvature:
    """The posterior's curvature at its maximum, under the prior of `sigma`; its parameters are found by
    backtracking from `start` (Nocedal and Wright 2006, algorithm 7.1).

    The objective is strongly convex with modulus min(precision), so that |x − x*| ≤
    |gradient|/min(precision): by that bound the items are `tolerance` off at most, in the mean square,
    or as near as rounding lets it come (5e−8 at σ = 100). Raises NotConvergedError.
    """
    precision = rankings.precision(sigma)
    x: Floats = np.zeros(len(precision)) if start is None else start
    # Rounding leaves a gradient of about this size at the optimum itself.
    eps = np.finfo(float).eps
    floor = 4 * eps * sum(m * k * (k - 1) for k, m in rankings.shapes)
    # A sum of c terms about as large as 1 is off by c^1.5 roundings: much of few items with many votes.
    terms = np.bincount(rankings.items).astype(np.float64)
    floor = max(floor, 2 * eps * math.sqrt(float((terms**3).sum())))
    least = float(precision[: rankings.n].min(initial=1.0))
    target = max(tolerance * math.sqrt(rankings.n) * least, floor)
    here = Curvature(rankings, x, precision)
    for _ in range(200):
        size = math.sqrt(dot(here.gradient, here.gradient))
        if size <= target:
            return here
        exactly = min(0.01, size**0.5)  # for superlinear convergence
        x, value, step = here.parameters, here.loss, -here.solve(here.gradient, exactly, what)
        slope, scale = dot(here.gradient, step), 1.0
        del here  # of many items one of them is large
        here = Curvature(rankings, x + step, precision)
        # The second test: a step so small that rounding hides whether it descends.
        while here.loss > value + 1e-4 * scale * slope and scale * abs(slope) >= 1e-12 * abs(value):
            scale /= 2
            here = Curvature(rankings, x + scale * step, precision)
    raise NotConvergedError(f"{what} did not converge; try a smaller --sigma.")


def dot(a: Floats, b: Floats) -> float:
    """The inner product by NumPy's own sum: BLAS's last bits depend on its number of threads."""
    return float((a * b).sum())
