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
    by_id = {name: row for row, name in enumerate(settled.ids)}
    by_text = numbered(settled.ids) or numbered(dataset.ids)
    old, texts = settled.texts, dataset.texts
    there = set(old or ()) if by_text else set[str]()
    rows, ids, changed, shared = list[int](), list[str](), list[str](), 0
    for row, name in enumerate(dataset.ids):
        at = by_id.get(name)
        if by_text:
            if texts is not None and texts[row] in there:
                continue
        elif at is not None and old is not None and texts is not None:
            shared += 1
            if old[at] == texts[row]:
                continue
            changed.append(name)
        rows.append(row)
        ids.append(name if at is None else f"{dataset.name}:{name}")
    if len(changed) > max(2, MOSTLY * shared):
        raise DataError(
            f"{dataset.name}: {len(changed):,} of {shared:,} ids that were judged before now stand "
            f"for other texts, among them {listed(changed)}. Give --id-column, or ids of their own to "
            "the new texts."
        )
    if twice := next((name for name in ids if name in by_id), None):
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
        parts = [np.full(len(settled), np.nan) if old is None else old]
        parts.append(np.full(len(rows), np.nan) if new is None else new[rows])
        return np.concatenate(parts)

    texts = None
    if settled.texts is not None and dataset.texts is not None:
        texts = [*settled.texts, *(dataset.texts[row] for row in rows)]
    gold, kinds = column(settled.gold, dataset.gold), {settled.gold_kind, dataset.gold_kind}
    kind = next(iter(kinds - {None}), None)
    if gold is not None and len(kinds - {None}) > 1:
        kind = kind_of(gold)
    none = np.zeros(len(settled), dtype=np.bool_)
    first = dataset if dataset.gold is not None else settled
    return replace(
        dataset,
        ids=[*settled.ids, *ids],
        texts=texts,
        gold=gold,
        gold_kind=kind,
        gold_meaning=first.gold_meaning,
        latent=column(settled.latent, dataset.latent),
        subsets={
            name: np.concatenate([settled.subsets.get(name, none), subset[rows]])
            for name, subset in dataset.subsets.items()
        },
        columns={},
        prompt=dataset.prompt or settled.prompt,
        known_as=None,
    )
