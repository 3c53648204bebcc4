"""The dataset of a run: the texts that it was given, after those of the runs that it is placed onto."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from operator import eq
from typing import Any

import numpy as np

from judgeq import datasets, trust
from judgeq.config import Settings
from judgeq.datasets import STDIN, Dataset
from judgeq.datasets.columns import kind_of
from judgeq.datasets.dataset import MergedRows
from judgeq.datasets.tables import Table, display, listed
from judgeq.engine import rounds
from judgeq.engine.interrupts import awaited
from judgeq.errors import DataError, JudgeqError, RunError, UsageError
from judgeq.escaping import shell_word
from judgeq.run_places import RunInfo, RunPlace, Runs
from judgeq.text import several
from judgeq.types import Floats

LOOKED_AT = 10
"""So many of the latest runs are looked at for texts that were judged before."""
MOSTLY = 0.5
"""Where more of the ids that both have stand for other texts, ids don't say which texts are the same."""
Given = Mapping[str, Sequence[str]]
"""The texts of runs, by their ids, where the user has them at hand."""


def load(
    settings: Settings,
    onto: Sequence[RunPlace],
    *,
    frame: Table | None = None,
    download: bool = True,
) -> Dataset:
    """The dataset of settings, whose items follow those of the runs `onto` which it is placed; `frame`
    as in `datasets.load`. Raises as that, and DataError where texts of these runs can't be had."""
    dataset = datasets.load(settings, seed=settings.seed, frame=frame, download=download)
    return placed(dataset, onto, {}) if onto else dataset


def placed(dataset: Dataset, onto: Sequence[RunPlace], given: Given) -> Dataset:
    """The items of runs, and after them those of the dataset that are new. Raises DataError where texts
    can't be had, and UsageError where none is new."""
    settled, there = _of_run(onto[0], dataset, given), {*_judged_in(onto[0])}
    for place in onto[1:]:
        own, judged_in = _of_run(place, dataset, given), _judged_in(place)
        rows = [row for row, run in enumerate(judged_in) if run not in there]
        there.update(judged_in)
        settled = concatenated(settled, own, rows, [own.ids[row] for row in rows])
    rows, ids, changed = _new(settled, dataset)
    if not rows:
        raise UsageError(
            f"--onto: all {len(dataset):,} texts of {dataset.name} were judged before: nothing is new."
        )
    notices = [
        f"{several(len(rows), 'text')} of {dataset.name} are new, and judged next to some of "
        f"{len(settled):,} that are settled."
    ]
    if changed:
        notices.append(
            f"{several(len(changed), 'text')} changed under the same id, and are new items: "
            f"{listed([f'{dataset.name}:{name}' for name in changed])}."
        )
    joined = concatenated(settled, dataset, rows, ids)
    return replace(joined, notices=(*dataset.notices, *notices))


def _judged_in(place: RunPlace) -> list[str]:
    """By row, the run that judged an item first: this one, or one that it was placed onto."""
    info = place.info()
    judged = [(one.run, one.items) for one in info.onto] + [(place.id, info.new_items)]
    return [run for run, items in judged for _ in range(items)]


def _new(settled: Dataset, dataset: Dataset) -> tuple[list[int], list[str], list[str]]:
    """The rows of a dataset that aren't settled, the ids that they get, and the ids under which a text
    has changed. An item is settled where its id and its text are; where ids are row numbers, its text
    alone says so. A changed text is new, under another id.

    Raises DataError where most ids of both stand for other texts, and for an id that can't be used.
    """
    old, texts, there = settled.texts or (), dataset.texts or (), {*settled.ids}
    by_text = numbered(settled.ids) or numbered(dataset.ids)
    known = {*old} if by_text else {*zip(settled.ids, old, strict=False)}
    keys = texts if by_text else zip(dataset.ids, texts, strict=False)
    pairs = zip_longest(range(len(dataset)), keys)
    rows = [row for row, key in pairs if key not in known]
    names = [dataset.ids[row] for row in rows]
    changed = [name for name in names if name in there] if old and texts and not by_text else []
    shared = there.intersection(dataset.ids)
    if len(changed) > max(2, MOSTLY * len(shared)):
        raise DataError(
            f"{dataset.name}: {len(changed):,} of {len(shared):,} ids that were judged before now stand "
            f"for other texts, among them {listed(changed)}. Give --id-column, or ids of their own to "
            "the new texts."
        )
    ids = [f"{dataset.name}:{name}" if name in there else name for name in names]
    if twice := next((name for name in ids if name in there), None):
        raise DataError(f"{dataset.name}: the id {display(twice)} is taken. Rename the new item.")
    return rows, ids, changed


def numbered(ids: Sequence[str]) -> bool:
    """Whether ids are nothing but the row numbers."""
    return all(name == str(row) for row, name in enumerate(ids))


def concatenated(
    settled: Dataset, dataset: Dataset, rows: Sequence[int], ids: Sequence[str]
) -> Dataset:
    """The items of one dataset, and after them these rows of another, under these ids, with the columns
    that the other one keeps."""

    def column(old: Any, new: Any, none: object) -> list[Any]:
        first = [none] * len(settled) if old is None else old
        return [*first, *([none] * len(rows) if new is None else (new[row] for row in rows))]

    def numbers(old: Floats | None, new: Floats | None) -> Floats | None:
        return None if old is None and new is None else np.array(column(old, new, np.nan))

    texts = None
    if settled.texts is not None and dataset.texts is not None:
        texts = [*settled.texts, *(dataset.texts[row] for row in rows)]
    gold = numbers(settled.gold, dataset.gold)
    merged = _merged(settled, dataset, rows, ids)
    kinds = {settled.gold_kind, dataset.gold_kind} - {None}
    return replace(
        dataset,
        ids=[*settled.ids, *ids],
        texts=texts,
        gold=gold,
        gold_kind=kind_of(gold) if gold is not None and len(kinds) > 1 else next(iter(kinds), None),
        gold_meaning=(settled if dataset.gold is None else dataset).gold_meaning,
        latent=numbers(settled.latent, dataset.latent),
        subsets={
            name: np.array(column(settled.subsets.get(name), subset, False))
            for name, subset in dataset.subsets.items()
        },
        columns={
            name: column(settled.columns.get(name), cells, None)
            for name, cells in dataset.columns.items()
        },
        prompt=dataset.prompt or settled.prompt,
        known_as=None,
        rows=merged,
    )


def _merged(
    settled: Dataset, dataset: Dataset, rows: Sequence[int], ids: Sequence[str]
) -> MergedRows | None:
    """Return the rows of two tables, of which one at least has merged texts: those of the settled items,
    then those of the new ones, and of settled ones under other ids. None where nothing was merged."""
    if settled.rows is None and dataset.rows is None:
        return None
    first = settled.rows or MergedRows(settled.ids, np.arange(len(settled)), settled.gold)
    second = dataset.rows or MergedRows(dataset.ids, np.arange(len(dataset)), dataset.gold)
    number = np.full(len(dataset), -1, dtype=np.int64)
    number[[*rows]] = np.arange(len(rows)) + len(settled)
    by_text = {text: row for row, text in enumerate(settled.texts or ())}
    for row, text in enumerate(dataset.texts or ()):
        if number[row] < 0:
            number[row] = by_text.get(text, -1)
    new_ids = dict(zip((dataset.ids[row] for row in rows), ids, strict=True))
    there = {*first.ids}
    second_ids = [new_ids.get(name, name) for name in second.ids]
    kept = [
        row
        for row, name in enumerate(second_ids)
        if name not in there and number[second.item[row]] >= 0
    ]
    second = replace(second, ids=second_ids).of_rows(np.array(kept, dtype=np.int64), number)
    gold = None
    if first.gold is not None or second.gold is not None:
        none = [np.full(len(part.ids), np.nan) for part in (first, second)]
        gold = np.concatenate(
            [
                none[0] if first.gold is None else first.gold,
                none[1] if second.gold is None else second.gold,
            ]
        )
    columns = {
        name: [*first.columns.get(name, [None] * len(first.ids)), *cells]
        for name, cells in second.columns.items()
    }
    item = np.concatenate([first.item, second.item])
    return MergedRows(ids=[*first.ids, *second.ids], item=item, gold=gold, columns=columns)


def dataset_of(
    folder: RunPlace, *, frame: Table | None = None, **changes: object
) -> Dataset | None:
    """The dataset of a run that is only looked at, if it can be had at once: downloads nothing, reads
    no standard input, and opens no file that somebody else's folder names. `frame` as in
    `datasets.load`; `changes` are settings of how it is read, that don't decide the run."""
    info = folder.info()
    settings = info.settings.model_copy(update=changes)
    with suppress(JudgeqError):  # gone, changed or unreadable: a run's scores need no texts
        names = ("dataset", "data_dir", "onto")
        if frame is not None or (settings.dataset != STDIN and trust.owns(folder, info, *names)):
            dataset = load(settings, runs_onto(folder, info), frame=frame, download=False)
            return dataset if dataset.content == info.facts.get("dataset") else None
    return None


def check_ids(label: str, ids: Sequence[str], dataset: Dataset) -> None:
    """Raise RunError unless a run's record has the ids of its dataset, in the same order."""
    if len(ids) != len(dataset.ids) or not all(map(eq, ids, dataset.ids)):
        raise RunError(
            f"{label} holds other items than the dataset: something changed its ids. Put back a copy of "
            "the record that nothing else wrote to; nothing was changed."
        )


def runs_onto(folder: RunPlace, info: RunInfo) -> list[RunPlace]:
    """The runs that a run was placed onto. Raises RunError where one is gone."""
    return [folder.runs().find(name) for name in info.settings.onto]


def judged_before(
    dataset: Dataset,
    prompt: Mapping[str, Any] | None,
    there: Runs,
    can_be_base: Callable[[RunPlace, RunInfo], bool],
) -> str:
    """Return a sentence where one of the latest runs judged some of the texts by the same prompt.

    "" where none did, or one judged all. `can_be_base`: whether texts can be placed onto a run.
    """
    if dataset.texts is None or prompt is None or dataset.groups is not None:
        return ""
    texts = set(dataset.texts)
    for place in there.all()[:LOOKED_AT]:
        with suppress(JudgeqError):
            info = place.info()
            simulated = info.settings.rehearsal or "simulated" in info.settings.judge
            if info.facts.get("prompt") != prompt or simulated or info.items > rounds.LARGE:
                continue
            own = _of_run(place, dataset, {})
            if shared := sum(text in texts for text in own.texts or ()):
                if shared >= len(dataset):
                    return ""
                if not can_be_base(place, info):
                    continue
                return (
                    f"{shared:,} of these {len(dataset):,} texts were judged before, in run {place.id}. "
                    f"With `--onto {shell_word(place.id)}` only the others are judged, and get scores "
                    "on its scale."
                )
    return ""


def _of_run(place: RunPlace, dataset: Dataset, given: Given) -> Dataset:
    """The items of a settled run: as it was begun, or as they were given, or as they are among the new
    ones."""
    info = place.info()
    if (own := dataset_of(place, keep_columns=bool(dataset.columns))) is not None:
        return own
    ids = awaited(_ids(place))
    texts = given.get(place.id)
    if texts is None and dataset.texts is not None:
        by_id = dict(zip(dataset.ids, dataset.texts, strict=True))
        if all(name in by_id for name in ids):
            texts = [by_id[name] for name in ids]
    if texts is not None:
        own = Dataset(info.dataset, ids, texts, info.source, prompt=dataset.prompt)
        if own.content == info.facts.get("dataset"):
            return own
    raise DataError(
        f"run {place.id} has settled items whose texts aren't at hand ({display(info.source)}): put the "
        "file back where it was, or give a table of old and new texts together."
    )


async def _ids(place: RunPlace) -> Sequence[str]:
    async with rounds.reading(place) as store:
        return (await store.items()).ids
