"""The run before a new one that differs from it by its texts alone: the same data, with a row more."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from judgeq.datasets import Dataset
from judgeq.datasets.dataset import RowIds
from judgeq.errors import RunError
from judgeq.run_places import RunPlace, Runs, id_of


@dataclass(frozen=True, slots=True)
class Predecessor:
    """The earlier run, and how the new one stands to it."""

    run: str
    new_texts: int | None  # of the new run; None unless all of the earlier one's are in it
    questions: int  # of the new run's first round
    known: int  # of these, answered by the cache


def find(there: Runs, name: str, facts: Mapping[str, Any]) -> RunPlace | None:
    """The latest run whose id begins with `name` and that differs from `facts` by its texts alone."""

    def but_texts(facts: Mapping[str, Any]) -> dict[str, Any]:
        return {name: fact for name, fact in facts.items() if name not in ("dataset", "labels")}

    for place in there.all():
        with suppress(RunError):
            mine = place.id.startswith(id_of(name, "")) and (its := place.info().facts) != facts
            if mine and but_texts(its) == but_texts(facts):
                return place
    return None


async def new_texts(dataset: Dataset, earlier: RunPlace) -> int | None:
    """How many texts an earlier run doesn't have. A run keeps no texts: None unless their checksum says
    that all of its are in the dataset, or where its record is damaged."""
    try:
        info, store = earlier.info(), earlier.store(read_only=True)
        try:
            ids = (await store.items()).ids
        finally:
            await store.close()
    except RunError:
        return None
    rows, texts = {name: row for row, name in enumerate(dataset.ids)}, dataset.texts or ()
    kept = [texts[rows[name]] for name in ids if name in rows]
    names = RowIds(len(ids)) if isinstance(dataset.ids, RowIds) else ids
    its = Dataset(dataset.name, names, kept, dataset.source)
    if len(kept) < len(ids) or its.content != info.facts.get("dataset"):
        return None
    return len(dataset) - len(ids)
