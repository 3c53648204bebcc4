"""New items after settled ones: which of a dataset's texts are new, and the items of both together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from judgeq.datasets.columns import kind_of
from judgeq.datasets.dataset import Dataset
from judgeq.datasets.tables import display, listed
from judgeq.errors import DataError
from judgeq.types import Floats

MOSTLY = 0.5
"""Where more of the ids that both have stand for other texts, ids don't say which texts are the same."""


class Union(NamedTuple):
    """The settled items and, after them, the new ones; and the ids of items whose text has changed."""

    dataset: Dataset
    new: int
    changed: Sequence[str]


def union(settled: Dataset, dataset: Dataset) -> Union:
    """The items of both. An item is settled where its id and its text are; where ids are row numbers,
    its text alone says so. A text that has changed under its id is new, under another id.

    Raises DataError where most ids of both stand for other texts, and for an id that can't be used.
    """
    by_text = numbered(settled.ids) or numbered(dataset.ids)
    old, texts, there = settled.texts or (), dataset.texts or (), {*settled.ids}
    keys: Sequence[object] = texts if by_text else [*zip(dataset.ids, texts, strict=False)]
    known = {*old} if by_text else {*zip(settled.ids, old, strict=False)}
    rows = [row for row in range(len(dataset)) if row >= len(keys) or keys[row] not in known]
    names = [dataset.ids[row] for row in rows]
    changed, shared = list[str](), there.intersection(dataset.ids)
    if old and texts and not by_text:
        changed = [name for name in names if name in there]
    if len(changed) > max(2, MOSTLY * len(shared)):
        raise DataError(
            f"{dataset.name}: {len(changed):,} of {len(shared):,} ids that were judged before now stand "
            f"for other texts, among them {listed(changed)}. Give --id-column, or ids of their own to "
            "the new texts."
        )
    ids = [f"{dataset.name}:{name}" if name in there else name for name in names]
    if twice := next((name for name in ids if name in there), None):
        raise DataError(f"{dataset.name}: the id {display(twice)} is taken. Rename the new item.")
    return Union(concatenated(settled, dataset, rows, ids), len(rows), changed)


def numbered(ids: Sequence[str]) -> bool:
    """Whether ids are nothing but the row numbers."""
    return all(name == str(row) for row, name in enumerate(ids))


def concatenated(
    settled: Dataset, dataset: Dataset, rows: Sequence[int], ids: Sequence[str]
) -> Dataset:
    """The items of one dataset, and after them these rows of another, under these ids."""

    def column(old: Floats | None, new: Floats | None) -> Floats | None:
        if old is None and new is None:
            return None
        first = np.full(len(settled), np.nan) if old is None else old
        return np.append(first, np.full(len(rows), np.nan) if new is None else new[rows])

    texts = None
    if settled.texts is not None and dataset.texts is not None:
        texts = [*settled.texts, *(dataset.texts[row] for row in rows)]
    gold = column(settled.gold, dataset.gold)
    kinds = {settled.gold_kind, dataset.gold_kind} - {None}
    none = np.zeros(len(settled), dtype=np.bool_)
    return replace(
        dataset,
        ids=[*settled.ids, *ids],
        texts=texts,
        gold=gold,
        gold_kind=kind_of(gold) if gold is not None and len(kinds) > 1 else next(iter(kinds), None),
        gold_meaning=(settled if dataset.gold is None else dataset).gold_meaning,
        latent=column(settled.latent, dataset.latent),
        subsets={
            name: np.append(settled.subsets.get(name, none), subset[rows])
            for name, subset in dataset.subsets.items()
        },
        columns={},
        prompt=dataset.prompt or settled.prompt,
        known_as=None,
    )
