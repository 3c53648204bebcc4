"""The items, as every dataset becomes, with checksums of what they are; and a part of them, for a
pilot."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from judgeq.datasets.tables import TEXT, listed
from judgeq.errors import DataError, UsageError
from judgeq.seeds import rng
from judgeq.settings.run import DatasetSpec
from judgeq.text import several
from judgeq.types import Bools, Floats, GoldKind, Offsets

STDIN = "-"
"""The dataset that is given with the command, on standard input or from Python."""


def refuse(spec: DatasetSpec, settings: Sequence[str], reason: str) -> None:
    """Raise UsageError for one of these settings that is given, and isn't for this dataset."""
    for setting in settings:
        if getattr(spec, setting) not in (None, False):
            flag = "--" + setting.replace("_", "-")
            raise UsageError(f"{flag} {reason}; leave it out with --dataset {spec.dataset}")


class DatasetInfo(BaseModel, frozen=True, extra="forbid"):
    """What can be loaded by name: of a corpus its dataset.toml, which names columns and levels as
    the settings do.

    `labels` names a file beside it with the gold of every row, without texts. Cells of gold that are
    `unlabelled` mean none. A subset is the rows whose cell of a column is equal to a value. `where` is
    the file found for it, `size` its bytes.
    """

    name: str
    title: str
    description: str
    licence: str = ""
    citation: str = ""
    file: str = ""
    notice: str = ""
    homepage: str | None = None
    url: str | None = None
    sha256: str | None = None
    size: int | None = None
    items: int | None = None
    prompt: str | None = None
    labels: str | None = None
    text_column: str = TEXT
    id_column: str | None = None
    gold_column: str | None = None
    gold_levels: tuple[str, ...] | None = None
    delimiter: str | None = None
    gold_kind: GoldKind | None = None
    gold_meaning: str = ""
    unlabelled: tuple[str, ...] = ()
    subsets: Mapping[str, tuple[str, str]] = {}
    where: Path | None = None


@dataclass(frozen=True, slots=True)
class RowIds(Sequence[str]):
    """The row numbers as ids, without a string for each of millions."""

    n: int

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[str]:
        return map(str, range(self.n))

    def __getitem__(self, key: Any) -> Any:
        rows = range(self.n)[key]
        return [*map(str, rows)] if isinstance(key, slice) else str(rows)


@dataclass(frozen=True, eq=False)
class MergedRows:
    """The rows of a table of which equal texts are judged as one item, each with what is its own."""

    ids: Sequence[str]
    item: Offsets
    """The item that each row is judged as."""
    gold: Floats | None = None
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """The user's other columns, where they are kept."""

    def of_items(self, chosen: Offsets, n: int) -> MergedRows:
        """Return the rows of these of n items, which are numbered anew in this order."""
        number = np.full(n, -1, dtype=np.int64)
        number[chosen] = np.arange(len(chosen))
        return self.of_rows(np.flatnonzero(number[self.item] >= 0), number)

    def of_rows(self, kept: Offsets, number: Offsets) -> MergedRows:
        """Return these rows, and of their items the new numbers."""
        rows = kept.tolist()
        return MergedRows(
            ids=[self.ids[row] for row in rows],
            item=number[self.item[kept]],
            gold=None if self.gold is None else self.gold[kept],
            columns={name: [cells[row] for row in rows] for name, cells in self.columns.items()},
        )


@dataclass(frozen=True, eq=False)
class Dataset:
    """The items, as columns of length n.

    `texts` is None where only labels are here, or none exist; `missing_texts` then says what to do
    (it is the error of a judge that reads). `gold` is nan where unlabelled. `latent` is what a
    simulated judge sees: as it is where synthetic (1..1000), else raw numbers. `groups` names the group
    of each item, within which alone it is compared; None: all are one. `known_as` names items
    that are known by a name or a file's checksum, whether or not the texts are here. `columns` are the
    user's other ones, as the table has them, where they are kept. `notices` are sentences that the
    user must read, `cautions` those to be read before anything is paid for. `rows` are those of the
    table, where equal texts of it were merged into one item.
    """

    name: str
    ids: Sequence[str]
    texts: Sequence[str] | None
    source: str
    gold: Floats | None = None
    gold_kind: GoldKind | None = None
    gold_meaning: str = ""
    latent: Floats | None = None
    groups: Sequence[str] | None = None
    subsets: Mapping[str, Bools] = field(default_factory=dict)
    columns: Mapping[str, Sequence[object]] = field(default_factory=dict)
    prompt: str | None = None
    known_as: str | None = None
    licence: str = ""
    notices: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    missing_texts: str = ""
    rows: MergedRows | None = None

    @cached_property
    def content(self) -> str:
        """Which items these are: `known_as`, else a sha256 of ids and texts."""
        return self.known_as or _sha256("items", ids=self.ids, texts=self.texts or ())

    @cached_property
    def labels(self) -> str:
        """A sha256 of gold and latent: of what a simulated judge answers from."""
        return _sha256("labels", gold=self.gold, latent=self.latent)

    @cached_property
    def grouping(self) -> str | None:
        """A sha256 of the groups; None without any."""
        return None if self.groups is None else _sha256("groups", groups=self.groups)

    @property
    def sizes(self) -> list[int]:
        """How many items each group has."""
        return [len(self)] if self.groups is None else [*Counter(self.groups).values()]

    def __post_init__(self) -> None:
        for array in (self.gold, self.latent, *self.subsets.values()):
            if array is not None:
                array.flags.writeable = False  # `labels` was made of it

    def __repr__(self) -> str:
        return f"<Dataset {self.name}: {len(self):,} items>"

    def __len__(self) -> int:
        return len(self.ids)


def part(dataset: Dataset, spec: DatasetSpec, seed: int) -> Dataset:
    """The items that `sample` keeps, in their order; all of them where it isn't less.

    A sample is drawn by `seed`, and holds all smaller ones of the same items. The kind of gold stays
    that of the whole.
    """
    n = len(dataset)
    if spec.sample is None or spec.sample >= n:
        return dataset
    chosen = np.sort(rng(seed, "sample").permutation(n)[: spec.sample])
    notice = f"{len(chosen):,} of {n:,} items only (--sample {spec.sample}, by --seed {seed})."
    return _of_rows(dataset, chosen, notice)


def without_repeated(dataset: Dataset, *, merge: bool) -> Dataset:
    """Return the dataset with a notice of how many texts repeat an earlier one of their group.

    With `merge` it is the dataset without these, which knows all rows of the table.
    """
    texts = dataset.texts or ()
    groups = dataset.groups or [""] * len(texts)
    keys = [*zip(groups, texts, strict=True)]
    repeated = len(texts) - len(set(keys))
    if not repeated:
        return dataset
    notice = f"{repeated:,} of {len(dataset):,} texts repeat an earlier one, and "
    if not merge:
        notice += "each is judged as an item of its own (--merge-duplicates judges each text once)."
        return replace(dataset, notices=(*dataset.notices, notice))
    items = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    item = np.array([items[key] for key in keys], dtype=np.int64)
    first = np.unique(item, return_index=True)[1]
    count = f"{len(items):,} texts for {len(dataset):,} rows"
    notice += f"are judged once with it (--merge-duplicates): {count}."
    rows = MergedRows(dataset.ids, item, dataset.gold, dataset.columns)
    return replace(_of_rows(dataset, first, notice), rows=rows)


def tokens_of(text: str) -> float:
    """About how many tokens a text has: one for four characters of ASCII, and for each other one."""
    plain = len(text if text.isascii() else text.encode("ascii", "ignore"))
    return plain / 4 + len(text) - plain


def without_long(dataset: Dataset, longest: float | None) -> Dataset:
    """The items without texts of more than `longest` tokens (None: all items)."""
    if longest is None or dataset.texts is None:
        return dataset
    short = np.array([tokens_of(text) <= longest for text in dataset.texts], dtype=np.bool_)
    long = [dataset.ids[row] for row in np.flatnonzero(~short).tolist()]
    if not long:
        return dataset
    notice = (
        f"{len(long):,} of {len(dataset):,} texts are left out (--skip-long), each of more than about "
        f"{longest:,.0f} tokens: {listed(long)}."
    )
    return _of_rows(dataset, np.flatnonzero(short), notice)


def without_alone(dataset: Dataset) -> Dataset:
    """The items without those that are alone in their group: nothing is compared with them. Raises
    DataError where none is left."""
    if dataset.groups is None:
        return dataset
    sizes = Counter(dataset.groups)
    alone = [name for name, size in sizes.items() if size == 1]
    if not alone:
        return dataset
    if len(alone) == len(sizes):
        raise DataError(
            f"{dataset.name}: each of its {len(sizes):,} groups has one text, so nothing can be "
            "compared. Name another --group-column, or leave it out."
        )
    notice = f"{several(len(alone), 'text')} left out, alone in a group: {listed(alone, 5)}."
    kept = [row for row, name in enumerate(dataset.groups) if sizes[name] > 1]
    return _of_rows(dataset, np.array(kept), notice)


def _of_rows(dataset: Dataset, chosen: Offsets, notice: str) -> Dataset:
    """These rows of a dataset, with a notice of what they are."""

    def of_rows(column: Any) -> Any:
        if isinstance(column, np.ndarray):
            return column[chosen]
        return column and [column[row] for row in chosen.tolist()]

    columns = ("ids", "texts", "gold", "latent", "groups")
    kept = {name: of_rows(getattr(dataset, name)) for name in columns}
    if dataset.gold is not None and np.isnan(kept["gold"]).all():
        kept |= {"gold": None, "gold_kind": None}
    subsets = {name: of_rows(subset) for name, subset in dataset.subsets.items()}
    rows = hashlib.sha256(chosen.astype("<i8").tobytes()).hexdigest()
    return replace(
        dataset,
        **kept,
        subsets={name: subset for name, subset in subsets.items() if subset.any()},
        columns={name: of_rows(cells) for name, cells in dataset.columns.items()},
        known_as=dataset.known_as and f"{dataset.known_as} rows={rows}",
        rows=dataset.rows and dataset.rows.of_items(chosen, len(dataset)),
        notices=(*dataset.notices, notice),
    )


def _sha256(what: str, **columns: Sequence[str] | Floats | None) -> str:
    """A sha256 that two datasets share only if these columns are the same, bit for bit on every machine.
    Strings go in with their lengths, so that no two can run together."""
    digest = hashlib.sha256(f"judgeq {what} 1\n".encode())
    for name, column in columns.items():
        if column is None:
            continue
        numbered = isinstance(column, RowIds)
        digest.update(f"{'rows' if numbered else name} {len(column)}\n".encode())
        if isinstance(column, np.ndarray):
            # One nan and one zero only: both have several bit patterns.
            plain = np.where(np.isnan(column), np.nan, column + 0.0)
            digest.update(plain.astype("<f8", copy=False).data)
        elif not numbered:
            digest.update(np.fromiter(map(len, column), "<i8", len(column)).data)
            for start in range(0, len(column), 10_000):
                digest.update("".join(column[start : start + 10_000]).encode())
    return digest.hexdigest()
