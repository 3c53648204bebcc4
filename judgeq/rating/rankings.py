"""Rankings as blocks of arrays, by which likelihoods are worked out: Bradley-Terry's, Plackett-Luce's.

A block holds rankings of one size k. Values by item are spread over the places of its rankings, shape
(k, rankings), and added up again. Working on places rather than on k(k−1)/2 columns of comparisons reads
all in order: several times faster, in a fraction of the memory.

Beside the items a likelihood may have covariates: what stands in a slot is then not the item's
parameter alone but that plus Σ x·(the covariate's parameter), where x is a number a slot. So an
effect of the place presented, or a direct score, is estimated jointly with the items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from judgeq.rating import GoOn, always
from judgeq.rating.comparisons import repeated, settled, slots_by_shape, tie_groups
from judgeq.types import Floats, Verdicts

Values: TypeAlias = NDArray[Any]
"""Of any precision; of several vectors the last axis is theirs."""
T = TypeVar("T")
_Apply: TypeAlias = Callable[..., Iterable[Any]]
AT_ONCE = 16384
"""Slots handled together: their arrays stay in the processor's cache."""
TURNS = 32
Groups: TypeAlias = NDArray[np.int64]


class Block(Protocol):
    """A likelihood of some rankings of one size; all by place, shape (k, rankings)."""

    def loss(self, eta: Floats) -> float:
        """−log likelihood."""

    def gradient(self, eta: Floats) -> Floats:
        """Of the loss; keeps the curvature for what follows."""

    def matrices(self) -> Floats:
        """The Hessians themselves, (rankings, k, k)."""


class Rankings:
    """Verdicts as blocks of a likelihood in n items and in p covariates.

    `make` makes the block of some rankings of a size k, given k; numbers by place, shape (k,
    rankings), that are the same for tied places (None where nothing is tied); and, of partial rankings,
    the places whose order isn't known, the same of all (else None). Tied items stand in the order
    presented (`comparisons.settled`). Parameters are vectors of shape (n + p,): the items', then
    the covariates', whose numbers by slot are `covariates`, shape (slots, p). Blocks are worked on by
    threads while inside of `threads()` (NumPy lets go of the interpreter lock) and added up in their
    order, so that the number of threads changes no bit. `go_on` is called before each pass.
    """

    def __init__(
        self,
        verdicts: Verdicts,
        n: int,
        make: Callable[[int, Groups | None, slice | None], Block],
        covariates: Floats | None = None,
        go_on: GoOn = always,
    ) -> None:
        self.n = n
        self.p = 0 if covariates is None else covariates.shape[1]
        self.go_on = go_on
        self.blocks: list[Block] = []
        self._shapes: list[tuple[int, int]] = []
        verdicts = settled(verdicts)
        groups = tie_groups(verdicts) if verdicts.tied.any() else None
        slots = [np.empty(0, np.int64)]
        for alike, unknown in slots_by_shape(verdicts):
            if len(alike) < 2:  # an item judged alone is compared with nothing
                continue
            at_once = max(1, AT_ONCE // len(alike))
            for begin in range(0, alike.shape[1], at_once):
                part = alike[:, begin : begin + at_once]
                tied = None if groups is None or unknown is not None else groups[part]
                self.blocks.append(make(len(part), tied, unknown))
                self._shapes.append((part.shape[0], part.shape[1]))
                slots.append(part.reshape(-1))
        self._slots = np.concatenate(slots)
        self.items: NDArray[np.intp] = verdicts.items[self._slots].astype(np.intp)
        self._covariates = None if covariates is None else covariates[self._slots]
        self._bounds = [0, *np.cumsum([k * m for k, m in self._shapes]).tolist()]
        self._map: _Apply = map

    @property
    def size(self) -> float:
        """The mean number of items of a ranking."""
        return len(self.items) / max(1, sum(rankings for _, rankings in self._shapes))

    def beside(self, covariates: Floats) -> Rankings:
        """The same with more covariates, shape (slots, q), after its own. The blocks are the same, and
        keep the curvature of whichever took a gradient last."""
        other = copy(self)
        more = covariates[self._slots]
        own = [] if self._covariates is None else [self._covariates]
        other._covariates = np.concatenate([*own, more], axis=1)
        other.p = self.p + more.shape[1]
        other.__dict__.pop("by_list", None)
        return other

    @contextmanager
    def threads(self) -> Iterator[None]:
        """While inside, several threads work on the blocks, where there is work for them."""
        if self._bounds[-1] < 2 * AT_ONCE or self._map is not map:
            yield
            return
        with ThreadPoolExecutor() as pool:
            self._map = pool.map
            try:
                yield
            finally:
                self._map = map

    @property
    def repeated(self) -> bool:
        """Whether they compare items often enough (`comparisons.repeated`)."""
        return repeated(np.bincount(self.items))

    def spread(self, values: Floats) -> list[Floats]:
        """Parameters, shape (n + p,), as arrays by place, one a block."""
        self.go_on()
        flat = values[self.items]
        for number, column in enumerate(() if self._covariates is None else self._covariates.T):
            flat += column * values[self.n + number]
        return self._by_block(flat)

    def _by_block(self, flat: Values) -> list[Values]:
        """Values by slot as arrays by place, one a block."""
        return [
            flat[begin:end].reshape(*shape, *flat.shape[1:])
            for (begin, end), shape in zip(pairwise(self._bounds), self._shapes, strict=True)
        ]

    def _of_items(self, parts: Iterable[Floats]) -> tuple[Floats, Floats]:
        """What blocks have by place: by slot, and added up by item, shape (n,)."""
        flat = np.concatenate([np.empty(0), *(part.reshape(-1) for part in parts)])
        return flat, np.bincount(self.items, flat, self.n).astype(np.float64, copy=False)

    def added_up(self, parts: Iterable[Floats]) -> Floats:
        """By parameter, shape (n + p,), what blocks have by place."""
        flat, total = self._of_items(parts)
        if self._covariates is None:
            return total
        effects = [float((column * flat).sum()) for column in self._covariates.T]
        return np.concatenate([total, effects])

    def loss(self, parameters: Floats) -> float:
        """−log likelihood."""
        losses = self._map(lambda block, eta: block.loss(eta), self.blocks, self.spread(parameters))
        return float(sum(losses))

    def slopes(self, parameters: Floats) -> list[Floats]:
        """The loss's gradient by place, one a block; keeps the curvature there."""
        parts = self.spread(parameters)
        return list(self._map(lambda block, eta: block.gradient(eta), self.blocks, parts))

    def gradient(self, parameters: Floats) -> Floats:
        """Of the loss, shape (n + p,); keeps the curvature there for what follows."""
        return self.added_up(self.slopes(parameters))

    def degree(self) -> Floats:
        """In how many comparisons each item is; for a covariate the sum of its numbers' sizes."""
        _, total = self._of_items(np.full(shape, shape[0] - 1.0) for shape in self._shapes)
        if self._covariates is None:
            return total
        return np.concatenate([total, np.abs(self._covariates).sum(axis=0)])

    @cached_property
    def by_list(self) -> ByList:
        """The blocks by ranking, for several vectors at once."""
        covariates = None if self._covariates is None else self._by_block(self._covariates)
        return ByList(self._by_block(self.items), covariates)

    def each(self, work: Callable[..., T], vectors: Values, *more: Iterable[Any]) -> list[T]:
        """What `work(part, …)` makes of each block: `part` are the values by ranking, shape
        (rankings, k, samples), of vectors of shape (n + p, samples); of `more` one for each block."""
        self.go_on()

        def at(items: NDArray[np.intp], covariates: Floats | None, *rest: Any) -> T:
            part = np.take(vectors, items, axis=0)
            if covariates is not None:
                part += covariates.astype(vectors.dtype) @ vectors[self.n :]
            return work(part, *rest)

        return self.map(at, self.by_list.items, self.by_list.covariates, *more)

    def map(self, work: Callable[..., T], *more: Iterable[Any]) -> list[T]:
        """What `work` makes of each of some values, by the threads."""
        return list(self._map(work, *more))

    def sums(self, parts: Sequence[Values]) -> Values:
        """By parameter, shape (n + p, samples), what blocks have by ranking, (rankings, k, samples)."""
        samples = parts[0].shape[2]
        flat = np.concatenate([part.reshape(-1, samples) for part in parts])
        total = np.zeros((self.n + self.p, samples), dtype=flat.dtype)
        self.by_list.add(flat, total)
        for covariates, part in zip(self.by_list.covariates, parts, strict=True):
            if covariates is not None:
                effects = np.einsum("mkp,mks->ps", covariates, part, optimize=False)
                total[self.n :] += effects.astype(flat.dtype)
        return total


class ByList:
    """Blocks by ranking: their items, (rankings, k), their covariates, (rankings, k, p); and the
    turns in which what they have by slot is added up by item, no item twice in a turn."""

    def __init__(
        self, items: Sequence[NDArray[np.intp]], covariates: Sequence[Floats] | None
    ) -> None:
        """Of blocks by place, shapes (k, rankings) and (k, rankings, p)."""
        self.items = [np.ascontiguousarray(of.T) for of in items]
        self.covariates: list[Floats | None] = [None] * len(items)
        if covariates is not None:
            self.covariates = [np.ascontiguousarray(of.transpose(1, 0, 2)) for of in covariates]
        flat = np.concatenate([np.empty(0, np.intp), *(of.reshape(-1) for of in self.items)])
        order = np.argsort(flat, kind="stable")
        ordered = flat[order]
        starts = (
            np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])) if len(flat) else order
        )
        lengths = np.diff([*starts, len(flat)])
        self._turns = []
        for turn in range(TURNS):
            if not len(starts):
                break
            slots = order[starts + turn]
            self._turns.append((flat[slots], slots))
            more = lengths > turn + 1
            starts, lengths = starts[more], lengths[more]
        # Of an item in many rankings the others: summed in one go, which is slower for a few.
        lengths = lengths - TURNS
        begins = np.cumsum([0, *lengths])
        within = np.arange(begins[-1]) - np.repeat(begins[:-1], lengths)
        self._rest = order[np.repeat(starts + TURNS, lengths) + within] if len(starts) else starts
        self._begins, self._items_of_rest = begins[:-1], ordered[starts]

    def add(self, flat: Values, total: Values) -> None:
        """Add to `total`, by item, what `flat` has by slot, of shape (slots, samples)."""
        for items, slots in self._turns:
            for begin in range(0, len(items), AT_ONCE):
                some = slice(begin, begin + AT_ONCE)
                total[items[some]] += np.take(flat, slots[some], axis=0)
        if len(self._rest):
            rest = np.take(flat, self._rest, axis=0)
            total[self._items_of_rest] += np.add.reduceat(rest, self._begins, axis=0)
