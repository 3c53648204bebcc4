"""Rankings as blocks of arrays, by which likelihoods are worked out: Bradley-Terry's, Plackett-Luce's.

A block holds rankings of one size k. Values by item are spread over the places of its rankings, shape
(k, rankings), and added up again. Working on places rather than on k(k−1)/2 columns of comparisons reads
all in order: several times faster, in a fraction of the memory.

Beside the items a likelihood may have covariates: what stands in a slot is then not the item's
parameter alone but that plus Σ x·(the covariate's parameter), where x is a number a slot. So an
effect of the place presented, or a direct score, is estimated jointly with the items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from judgeq.rating import GoOn, always
from judgeq.rating.comparisons import repeated, settled, slots_by_shape, tie_groups
from judgeq.types import Floats, Offsets, Verdicts

Values: TypeAlias = NDArray[Any]
"""Of any precision."""
T = TypeVar("T")
AT_ONCE = 16384
"""Slots handled together: their arrays stay in the processor's cache."""


class Block(Protocol):
    """A likelihood of some rankings of one size; all by place, shape (k, rankings)."""

    def loss(self, eta: Floats) -> float:
        """−log likelihood."""

    def gradient(self, eta: Floats) -> Floats:
        """Of the loss; keeps the curvature for what follows."""

    def matrices(self) -> Floats:
        """The Hessians themselves, (k, k, rankings)."""


class Rankings:
    """Verdicts as blocks of a likelihood in n items and in p covariates.

    `make` makes the block of some rankings of a size k, given k; numbers by place, shape (k, rankings),
    that are the same for tied places (None where nothing is tied); and, of partial rankings, the places
    whose order isn't known, the same of all (else None). Tied items stand in the order presented
    (`comparisons.settled`). Parameters are vectors of shape (n + p,): the items', then the covariates',
    whose numbers by slot are `covariates`, shape (slots, p), in the order of `verdicts.items`. Blocks
    are worked on by threads (NumPy lets go of the interpreter lock) and added up in their order, so that
    the number of threads changes no bit. `go_on` is called before each pass.
    """

    def __init__(
        self,
        verdicts: Verdicts,
        n: int,
        make: Callable[[int, Offsets | None, slice | None], Block],
        covariates: Floats | None = None,
        go_on: GoOn = always,
    ) -> None:
        self.n = n
        self.go_on = go_on
        self.blocks: list[Block] = []
        self.shapes: list[tuple[int, int]] = []
        order = settled(verdicts)
        groups = tie_groups(verdicts) if verdicts.tied.any() else None
        slots = [np.empty(0, np.int64)]
        for alike, unknown in slots_by_shape(verdicts):
            k = len(alike)
            if k < 2:  # an item judged alone is compared with nothing
                continue
            for begin in range(0, alike.shape[1], max(1, AT_ONCE // k)):
                part = alike[:, begin : begin + max(1, AT_ONCE // k)]
                tied = None if groups is None or unknown is not None else groups[part]
                self.blocks.append(make(k, tied, unknown))
                self.shapes.append((k, part.shape[1]))
                slots.append(order[part].reshape(-1))
        self.slots = np.concatenate(slots)
        self.items: NDArray[np.intp] = verdicts.items[self.slots].astype(np.intp)
        self.covariates = np.empty((len(self.items), 0))
        if covariates is not None:
            self.covariates = covariates[self.slots]
        self.lists = len(self.blocks)
        """How many blocks are of rankings; one after them says what is known of items (`with_known`)."""
        self._bounds = [0, *np.cumsum([k * m for k, m in self.shapes]).tolist()]

    @property
    def p(self) -> int:
        """How many covariates there are."""
        return self.covariates.shape[1]

    @property
    def size(self) -> float:
        """The mean number of items of a ranking."""
        rankings = sum(rankings for _, rankings in self.shapes[: self.lists])
        return len(self.slots) / max(1, rankings)

    @property
    def repeated(self) -> bool:
        """Whether they compare items often enough (`comparisons.repeated`)."""
        return repeated(np.bincount(self.items[: len(self.slots)]))

    @property
    def degree(self) -> float:
        """The length of the vector of how many comparisons each parameter is in."""
        others = np.repeat([k - 1.0 for k, _ in self.shapes], np.diff(self._bounds))
        of_items = np.bincount(self.items, others, self.n)
        of_covariates = np.abs(self.covariates).sum(axis=0)
        return float(np.sqrt((of_items**2).sum() + (of_covariates**2).sum()))

    def with_covariates(self, covariates: Floats) -> Rankings:
        """The same with more covariates, shape (slots, q), after its own. The blocks are the same, and
        keep the curvature of whichever took a gradient last."""
        other, more = copy(self), np.zeros((len(self.items), covariates.shape[1]))
        more[: len(self.slots)] = covariates[self.slots]
        other.covariates = np.concatenate([self.covariates, more], axis=1)
        return other

    def with_known(self, rows: Offsets, known: Block) -> Rankings:
        """The same with what is known of some items before, as if a ranking of them all said it."""
        other = copy(self)
        other.blocks = [*self.blocks, known]
        other.shapes = [*self.shapes, (len(rows), 1)]
        other.items = np.concatenate([self.items, rows])
        other.covariates = np.concatenate([self.covariates, np.zeros((len(rows), self.p))])
        other._bounds = [*self._bounds, len(other.items)]
        return other

    def map(self, work: Callable[..., T], *values: Iterable[Any]) -> list[T]:
        """What `work` makes of each of some values: of many slots by several threads."""
        if len(self.items) < 2 * AT_ONCE:
            return list(map(work, *values))
        with ThreadPoolExecutor() as pool:
            return list(pool.map(work, *values))

    def by_block(self, flat: Values) -> list[Values]:
        """Values by slot as arrays by place, one a block."""
        bounds = zip(pairwise(self._bounds), self.shapes, strict=True)
        return [flat[begin:end].reshape(*shape, *flat.shape[1:]) for (begin, end), shape in bounds]

    def spread(self, parameters: Floats) -> list[Floats]:
        """Parameters, shape (n + p,), as arrays by place, one a block."""
        self.go_on()
        flat = parameters[self.items] + self.covariates @ parameters[self.n :]
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

    def slopes(self, parameters: Floats) -> list[Floats]:
        """The loss's gradient by place, one a block; keeps the curvature there."""
        parts = self.spread(parameters)
        return self.map(lambda block, eta: block.gradient(eta), self.blocks, parts)

    def gradient(self, parameters: Floats) -> Floats:
        """Of the loss, shape (n + p,); keeps the curvature there for what follows."""
        return self.added_up(self.slopes(parameters))
