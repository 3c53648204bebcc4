"""Tables for other programs, as CSV, JSONL, Parquet or Excel; those of a run are its scores, the
comparisons they are made of, and its calls.

Made and written in batches, so that a large run needs no object for each of its rows at once. Items are
named by their ids; no prompts, and texts only in the scores for Excel.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import orjson

from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.datasets.tables import packages
from judgeq.engine import results, rounds
from judgeq.engine.scores import TEXT, cells, mark_columns
from judgeq.errors import RunError, UsageError
from judgeq.escaping import excerpt, for_spreadsheet
from judgeq.person import remark
from judgeq.rating import comparisons
from judgeq.replies import reason_in
from judgeq.run_places import RunPlace
from judgeq.types import Call, Floats, Offsets, Rows, Verdicts

Format: TypeAlias = Literal["csv", "jsonl", "parquet", "xlsx"]
FORMATS: tuple[Format, ...] = get_args(Format)
Batch: TypeAlias = Sequence[Any]
"""Some rows: a sequence or an array of cells for each column, None (of numbers: nan) for no value."""
ROWS = 1 << 16
"""So many of a table's rows are made at once."""
ANSWERED = frozenset({"ok", "unusable", "cached", "duplicate", "undone"})
"""The outcomes of calls that brought a reply; of the others, and of unusable replies, there is an
error."""
COMPARISONS = {
    "winner": str,
    "loser": str,
    "weight": float,
    "round": int,
    "judge": str,
    "job": int,
}
CALLS = {
    "job": int,
    "round": int,
    "judge": str,
    "attempt": int,
    "outcome": str,
    "input_tokens": int,
    "cached_tokens": int,
    "output_tokens": int,
    "reasoning_tokens": int,
    "cost": float,
    "latency": float,
    "at": float,
    "model": str,
    "fingerprint": str,
    "error": str,
}
REPLIES = {"reply": str, "reason": str}


class Table(NamedTuple):
    """A table: str, int or float for each column by name, and the rows in batches."""

    columns: Mapping[str, type]
    batches: AsyncIterator[Batch]


def marked(table: Table, mark: str) -> Table:
    """Return the table with a first column that says by this mark that all of it is made up."""
    columns = mark_columns(mark)

    async def batches() -> AsyncIterator[Batch]:
        async for batch in table.batches:
            yield [*([value] * len(batch[0]) for value in columns.values()), *batch]

    return Table({**dict.fromkeys(columns, str), **table.columns}, batches())


async def scores(
    run: RunPlace, settings: Settings, dataset: Dataset | None = None, *, with_texts: bool = False
) -> Table:
    """Return a row for each row of the `dataset` (None: for each item): the columns of scores.csv, rated
    as the settings say; `with_texts` the beginnings of the texts too, as far as these may be shown.

    Raises NoVerdictsError where nothing was judged, and RunError.
    """
    rated = (await results.read(run, settings)).scores
    if dataset is not None:
        rated = replace(rated, texts=dataset.texts if with_texts else None, rows=dataset.rows)
    rated = rated.by_row()
    numbers = rated.numbers
    named = {"id": rated.ids, **({} if rated.groups is None else {"group": rated.groups})}
    texts = rated.texts if settings.texts else None
    kinds: dict[str, type] = dict.fromkeys(named, str)
    kinds |= {name: float if of.dtype.kind == "f" else int for name, of in numbers.items()}
    kinds |= {} if texts is None else {"text": str}

    async def batches() -> AsyncIterator[Batch]:
        for rows in _spans(len(rated.ids), ROWS):
            names = [column[rows] for column in named.values()]
            beginnings = [] if texts is None else [[excerpt(text, TEXT) for text in texts[rows]]]
            yield [*names, *(cells(name, of[rows]) for name, of in numbers.items()), *beginnings]

    return Table(kinds, batches())


async def comparisons_of(run: RunPlace) -> Table:
    """A row for each comparison that the verdicts imply: k(k−1)/2 for a ranking of k, job by job; a tie
    is two, one each way, of weight ½, and of an order that a partial ranking doesn't know there is
    none. Of pairs asked in both orders those that are rated: the couples, a flip being a tie. Raises
    RunError.
    """
    async with rounds.reading(run) as store:
        ids, info = (await store.items()).ids, run.info()
        judged = (await results.replayed(info, store)).verdicts
        judges = (await results.with_people(info, store))[0].judge_names

    async def batches() -> AsyncIterator[Batch]:
        for round, verdicts in enumerate(judged, start=1):
            winner, loser, weight, of = _implied(verdicts)
            asked = verdicts.judges[of]
            for rows in _spans(len(of), ROWS):
                yield [
                    [ids[row] for row in winner[rows].tolist()],
                    [ids[row] for row in loser[rows].tolist()],
                    weight[rows],
                    np.full(len(of[rows]), round),
                    [judges[judge] for judge in asked[rows].tolist()],
                    verdicts.matches[of[rows]],
                ]

    return Table(COMPARISONS, batches())


def _implied(verdicts: Verdicts) -> tuple[Rows, Rows, Floats, Offsets]:
    """Winners, losers, weights, and the verdicts that imply them, one after the other."""
    first, second, tied = comparisons.pairs_of(verdicts)
    winner, loser = (
        np.concatenate([one, other[tied]]) for one, other in ((first, second), (second, first))
    )
    weight = np.concatenate([np.where(tied, 0.5, 1.0), np.full(int(tied.sum()), 0.5)])
    order = np.lexsort((np.maximum(winner, loser), np.minimum(winner, loser)))
    winner, loser = winner[order], loser[order]
    of = np.searchsorted(verdicts.offsets, winner, "right") - 1
    return verdicts.items[winner], verdicts.items[loser], weight[order], of


async def calls(run: RunPlace, *, replies: bool = False) -> Table:
    """A row for each call, job by job, in the order in which a job's ended; with `replies` the raw reply
    and the reason in it, or a person's note. Raises RunError.

    `judge` is the person who answered, where one did; `error` why they skipped a question.
    Times are in seconds, `at` since the epoch. `cost` is in dollars, None where it is unknown. Of a
    "cached" call, which the cache answered, tokens and cost are what it once took.
    """

    async def batches() -> AsyncIterator[Batch]:
        async with rounds.reading(run) as store:
            judges, first = (await results.with_people(run.info(), store))[0].judge_names, 0
            for round, counts in enumerate((await rounds.planned(store))[0], start=1):
                asked = (await store.matches(round)).judges
                if not 0 <= asked.min() <= asked.max() < len(judges):
                    raise RunError(
                        f"{run.label} is damaged: a question is for a judge that isn't there."
                    )
                for span in _spans(counts.total, ROWS):
                    ended = await store.calls(range(first + span.start, first + span.stop))
                    rows = [
                        (
                            job,
                            round,
                            judges[_judge(call, asked[job - first], judges)],
                            *_fields(call),
                        )
                        for job in sorted(ended)
                        for call in ended[job]
                    ]
                    if rows:
                        yield list(zip(*rows, strict=True))[: len(columns)]
                first += counts.total

    columns = CALLS | (REPLIES if replies else {})
    return Table(columns, batches())


def _judge(call: Call, asked: int, judges: Sequence[str]) -> int:
    """The number of who answered: a person, or the judge that was `asked`."""
    return asked if call.judge is None or call.judge >= len(judges) else call.judge


def _fields(call: Call) -> Sequence[Any]:
    """From `attempt` to the reason, or a person's note."""
    text, reason = call.reply or None, None
    answered = call.outcome in ANSWERED
    if call.outcome == "skipped":
        text = remark(call)
    elif answered and call.judge is not None:
        reason = remark(call)
    elif answered and text is not None:
        reason = reason_in(text)
    reply, error = (text, call.problem) if answered else (None, text)
    amounts = (*call.usage, call.cost, call.latency, call.at, *call.answerer)
    return [call.attempt, call.outcome, *amounts, error, reply, reason]


def _spans(n: int, size: int) -> Iterator[slice]:
    """The numbers below n, so many at a time."""
    return (slice(begin, min(begin + size, n)) for begin in range(0, n, size))


# How a table is written


async def write(table: Table, kind: Format, file: IO[bytes], *, excel: bool = False) -> None:
    """Write the table, in UTF-8, half a character as "?"; numbers read back as the same bits.

    CSV is what people open in a spreadsheet: a text that it would run is written with "'" before it.
    For `excel` it begins with a byte order mark, without which Excel reads it in another encoding.
    Raises UsageError for a format without the package that writes it, and for more rows than it takes;
    and OSError.
    """
    names = [*table.columns]
    batches = ([*map(_plain, batch)] async for batch in table.batches)
    if kind == "parquet":
        return await _write_parquet(table.columns, batches, file)
    rows = (row async for batch in batches for row in zip(*batch, strict=True))
    if kind == "xlsx":
        await _write_excel(names, rows, file)
    elif kind == "jsonl":
        async for row in rows:
            line = dict(zip(names, row, strict=True))
            file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    else:
        if excel:
            file.write(codecs.BOM_UTF8)
        lines = csv.writer(codecs.getwriter("utf-8")(file), lineterminator="\n")
        lines.writerow([for_spreadsheet(name, excel=excel) for name in names])
        async for row in rows:
            lines.writerow([for_spreadsheet(cell, excel=excel) for cell in row])
    return None


EXCEL_ROWS = 1_048_576
"""Rows of an Excel sheet, with its header."""
EXCEL_CHARACTERS = 32_767
"""Characters of a cell of an Excel sheet."""
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_LIKE_AN_ESCAPE = re.compile(r"_(?=x[0-9A-Fa-f]{4}_)")


async def _write_excel(
    names: Sequence[str], rows: AsyncIterator[Sequence[Any]], file: IO[bytes]
) -> None:
    """Write an Excel workbook with one sheet. Texts are texts, whatever they begin with; a longer one
    than a cell takes is cut."""
    openpyxl, cells = packages("excel", "Excel", "openpyxl", "openpyxl.cell")
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("judgeq")

    def cell_of(value: Any) -> Any:
        if not isinstance(value, str):
            return value
        text = _LIKE_AN_ESCAPE.sub("_x005F_", value)
        text = _NOT_IN_XML.sub(lambda found: f"_x{ord(found[0]):04X}_", text)
        if len(text) > EXCEL_CHARACTERS:
            text = text[: EXCEL_CHARACTERS - 1] + "…"
        cell = cells.WriteOnlyCell(sheet, text)
        cell.data_type = "s"  # not a formula
        return cell

    sheet.append([cell_of(name) for name in names])
    count = 1
    async for row in rows:
        count += 1
        if count > EXCEL_ROWS:
            raise UsageError(
                f"The table has more than {EXCEL_ROWS:,} rows, which no Excel sheet holds. Write "
                "--format csv or parquet."
            )
        sheet.append([cell_of(value) for value in row])
    book.save(file)


async def _write_parquet(
    columns: Mapping[str, type], batches: AsyncIterator[Batch], file: IO[bytes]
) -> None:
    pa, parquet = packages("parquet", "Parquet", "pyarrow", "pyarrow.parquet")
    types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
    schema = pa.schema([(name, types[kind]) for name, kind in columns.items()])
    with parquet.ParquetWriter(file, schema) as writer:
        async for cells in batches:
            writer.write_batch(pa.record_batch([*map(pa.array, cells, schema.types)], schema))


def _plain(column: Any) -> list[Any]:
    """A column's cells, None for nan."""
    return [
        cell.encode(errors="replace").decode()
        if isinstance(cell, str)
        else None
        if cell != cell
        else cell
        for cell in (column.tolist() if isinstance(column, np.ndarray) else column)
    ]
