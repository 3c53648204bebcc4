"""Results as JSON for `--json`, and as rows of CSV: one encoder for every dataclass.

A field stands under its own name, unless its class says otherwise: by the marks LEFT_OUT and INLINE of
text.py, and by `JSON_KEYS`, from further keys to attributes (with dots; a method is called). A field
that such a key names does not stand under its own name too.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from judgeq.errors import UsageError
from judgeq.escaping import for_spreadsheet
from judgeq.text import INLINE, LEFT_OUT

DOLLARS = (
    "cost",
    "cost_so_far",
    "known_cost",
    "next_cost",
    "at_risk",
    "max_cost",
    "spent",
    "possibly_paid",
)
"""Keys of the JSON whose values are dollars."""
DOLLAR_DECIMALS = 9
"""Decimals of dollars in the JSON: the ledger counts billionths."""


def plain(value: Any) -> Any:
    """A value as plain JSON: null for nan and infinities, arrays as lists. Raises TypeError for what
    has no form in JSON: its field has to be marked."""
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else None
        case np.generic() | np.ndarray():
            return plain(value.tolist())
        case Path():
            return str(value)
        case datetime():
            return value.isoformat()
        case BaseModel():
            return plain(value.model_dump())
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
    if is_dataclass(value) or hasattr(value, "_fields"):
        return _object(value)
    if isinstance(value, Iterable):
        return [plain(inner) for inner in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _object(value: Any) -> dict[str, Any]:
    """A dataclass, or a named tuple."""
    keys: Mapping[str, str] = getattr(value, "JSON_KEYS", {})
    known: dict[str, Any] = {}
    for key, path in keys.items():
        found = attrgetter(path)(value)
        known[key] = plain(found() if callable(found) else found)
    for name, mark in _marks(value).items():
        if mark == INLINE:
            known |= plain(getattr(value, name))
        elif mark != LEFT_OUT and name not in {*keys, *keys.values()}:
            known[name] = plain(getattr(value, name))
    return {key: _nano_dollars(inner) if key in DOLLARS else inner for key, inner in known.items()}


def _nano_dollars(value: Any) -> Any:
    """Return dollars, one number or several, without the digits that sums of floats leave."""
    if isinstance(value, float):
        return round(value, DOLLAR_DECIMALS)
    if isinstance(value, dict):
        return {key: _nano_dollars(inner) for key, inner in value.items()}
    return value


def _marks(value: Any) -> dict[str, Mapping[Any, Any]]:
    """The names of its fields, and what they are marked with."""
    if is_dataclass(value):
        return {field.name: field.metadata for field in fields(value)}
    return {name: {} for name in value._fields}


def numbers(value: Any) -> Iterator[Any]:
    """The numbers of a result as `rows`, each with the name of the run that all of it is about."""
    known = plain(value)
    return rows(known, labels={"run": known["run"]} if "run" in known else None)


def rows(value: Any, key: str = "", labels: Mapping[str, str] | None = None) -> Iterator[Any]:
    """Plain JSON as rows in long form: a row each number under its `key` (with dots), with its interval
    as `low` and `high` where it has one. What texts a list's objects hold (a name, a rating) are columns
    of the rows below; objects without, and numbers in lists, are numbered from 1."""
    labels = labels or {}
    if isinstance(value, dict):
        if {"value", "low", "high"} <= value.keys():
            others = {name: inner for name, inner in value.items() if name not in LAST}
            row = {"key": key, **labels, **_texts(others)}
            yield row | {name: value[name] for name in LAST}
            value = others
        for name, inner in value.items():
            yield from rows(inner, f"{key}.{name}" if key else name, labels)
    elif isinstance(value, list):
        for number, inner in enumerate(value, start=1):
            texts = _texts(inner) if isinstance(inner, dict) else {}
            yield from rows(inner, key if texts else f"{key}.{number}", {**labels, **texts})
    elif isinstance(value, int | float):
        yield {"key": key, **labels, "value": value}


def _texts(value: Mapping[str, Any]) -> dict[str, str]:
    return {name: text for name, text in value.items() if isinstance(text, str)}


LAST = ("value", "low", "high")
"""The columns that stand last in long form, which has a "value"."""


def write_csv(path: Path, table: Sequence[Mapping[str, object]]) -> None:
    """A header of all that rows have, and the rows; None is an empty cell, and numbers read back as the
    same bits. People open it in spreadsheets, which must not run what a run, rating or subset is named.

    Raises UsageError where the file can't be written.
    """
    columns = list(dict.fromkeys(name for row in table for name in row))
    if "value" in columns:
        columns.sort(key=LAST.__contains__)
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows(
        [columns, *([for_spreadsheet(row.get(name)) for name in columns] for row in table)]
    )
    try:
        path.write_text(content.getvalue(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--csv {path} can't be written: {error.strerror}.") from error
