"""Which of a run's items to look at: those that conditions leave, ordered by what one looks for."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from judgeq.datasets.tables import did_you_mean, shown
from judgeq.engine.results import Result
from judgeq.engine.scores import Scores
from judgeq.errors import UsageError
from judgeq.rating import comparisons, misfit
from judgeq.rating.correlation import Order
from judgeq.types import Bools, Floats

_CONDITION = re.compile(r"\s*([A-Za-z_]+)\s*(<=|>=|!=|!~|==?|<|>|~)\s*(.*?)\s*", re.DOTALL)
_NUMBERS: Mapping[str, Callable[[Floats, float], Bools]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_WORDS = ("=", "!=", "~", "!~")


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Some items in an order: their `rows`, most remarkable first; `name` says what they are. `measures`
    are further numbers of all items by name, shape (n,), by the first of which they are ordered;
    `ranges` those in which a measure is expected. `why` there are none. `marked` is the row that was
    asked for.
    """

    name: str
    rows: Sequence[int]
    measures: Mapping[str, Floats] = field(default_factory=dict)
    ranges: Mapping[str, tuple[Floats, Floats]] = field(default_factory=dict)
    why: str | None = None
    marked: int | None = None


# Conditions


def numbers_of(scores: Scores) -> dict[str, Floats]:
    """The columns of numbers that conditions can name, shape (n,); nan where an item has none."""
    known = scores.judged
    columns = {"rank": np.where(scores.rank > 0, scores.rank, np.nan), **scores.ratings}
    if scores.intervals is not None:
        sure = scores.intervals
        for name in ("se", "low", "high", "rank_low", "rank_high", "tier"):
            columns[name] = np.where(known, getattr(sure, name), np.nan)
    counts = {name: getattr(scores, name).astype(np.float64) for name in ("matches", "left_after")}
    counts["component"] = np.where(known, scores.component, np.nan)
    return {**columns, **counts, "wins": scores.wins, "gold": scores.gold}


def left(run: Result, conditions: Sequence[str]) -> Bools:
    """The items that all conditions hold for, shape (n,).

    A condition is a field, an operator and a value: numbers are compared (`rank<=20`, `gold=1`), words
    equal, contain or don't, whatever their case (`id=x`, `text~word`, `text!~word`), and `subset=name`.
    An empty value means none (`gold=`, `gold!=`); an item without a number satisfies no other condition
    on it. Raises UsageError for anything else.
    """
    keep = np.ones(len(run.scores.ids), dtype=np.bool_)
    numbers = numbers_of(run.scores) if conditions else {}
    for condition in conditions:
        keep &= _holds(run, numbers, condition)
    return keep


def _holds(run: Result, numbers: Mapping[str, Floats], condition: str) -> Bools:
    parts = _CONDITION.fullmatch(condition)
    if parts is None:
        raise UsageError(
            f"--where {shown(condition)} is no condition: give FIELD, one of = != < <= > >= ~ !~, and a "
            'value, as in --where "rank<=20" or --where "text~word".'
        )
    name, sign, value = parts[1].casefold(), parts[2].replace("==", "="), parts[3]
    if name in numbers:
        return _compared(condition, numbers[name], sign, value)
    fields = [*numbers, "id", "text", "subset"]
    if name not in fields:
        hint = did_you_mean(name, fields)
        raise UsageError(
            f"--where {shown(condition)}: there is no field {shown(parts[1])}.{hint} There are "
            f"{', '.join(fields)}."
        )
    if sign not in _WORDS:
        raise UsageError(f"--where {shown(condition)}: {name} takes {', '.join(_WORDS)}.")
    if name == "subset":
        return _in_subset(run, condition, sign, value)
    return _worded(run.scores, condition, name, sign, value)


def _compared(condition: str, column: Floats, sign: str, value: str) -> Bools:
    missing: Bools = np.isnan(column)
    if not value and sign in ("=", "!="):
        return missing if sign == "=" else ~missing
    try:
        number = float(value)
    except ValueError:
        raise UsageError(f"--where {shown(condition)}: {shown(value)} is no number.") from None
    if sign not in _NUMBERS:
        raise UsageError(f"--where {shown(condition)}: a number takes {', '.join(_NUMBERS)}.")
    return _NUMBERS[sign](column, number) & ~missing


def _worded(scores: Scores, condition: str, name: str, sign: str, value: str) -> Bools:
    cells = scores.ids if name == "id" else scores.texts
    if cells is None:
        raise UsageError(
            f"--where {shown(condition)}: the texts of this run aren't here; conditions on the other "
            "fields work."
        )
    wanted = value.casefold()
    if sign in ("=", "!="):
        holds = np.array([cell.casefold() == wanted for cell in cells], dtype=np.bool_)
    else:
        holds = np.array([wanted in cell.casefold() for cell in cells], dtype=np.bool_)
    return ~holds if sign.startswith("!") else holds


def _in_subset(run: Result, condition: str, sign: str, value: str) -> Bools:
    subsets = run.items.subsets
    if value not in subsets:
        there = f"There are {', '.join(map(shown, subsets))}." if subsets else "It has none."
        raise UsageError(f"--where {shown(condition)}: the run has no such subset. {there}")
    if sign not in ("=", "!="):
        raise UsageError(f"--where {shown(condition)}: subset takes = and !=.")
    return subsets[value] if sign == "=" else ~subsets[value]


# Views


def ends(run: Result, keep: Bools, n: int) -> list[View]:
    """The n highest of the items and the n lowest, each from high to low; all as one where these are
    as many."""
    rows = _ranked(run.scores, keep)
    if len(rows) <= 2 * n:
        return [View("all", rows)]
    return [View("top", rows[:n]), View("bottom", rows[-n:])]


def around(run: Result, keep: Bools, n: int, row: int) -> View:
    """The n items next above an item and the n next below, of those that it can be compared with."""
    scores = run.scores
    if not scores.rank[row]:
        return View("around", [], why="this item was never judged", marked=row)
    near = keep & (scores.component == scores.component[row])
    near[row] = True
    rows = _ranked(scores, near)
    at = rows.index(row)
    return View("around", rows[max(0, at - n) : at + n + 1], marked=row)


def uncertain(run: Result, keep: Bools, n: int) -> View:
    """The items whose main rating has the largest standard errors."""
    if run.scores.intervals is None:
        why = f"the rating {run.main.name} has no standard errors"
        return View("uncertain", [], why=why)
    return View("uncertain", _highest(run.scores.se, keep, n))


def contested(run: Result, keep: Bools, n: int) -> View:
    """The items whose judgments contradict one another most: of the highest infit, standardised (z) to
    allow for how many comparisons it is made of; of those of misfit.LEAST comparisons or more. Of items
    judged alone by several judges, those of the largest standard deviation of their scores."""
    verdicts, scores = comparisons.joined(run.history.verdicts), run.scores
    if run.history.alone:
        spread = _spread(run)
        why = None if (spread > 0).any() else "no item was given two scores that differ"
        rows = [] if why else _highest(spread, keep, n)
        return View("contested", rows, {"spread": spread}, why=why)
    fit = misfit.fit_of_items(verdicts, scores.main[1])
    if not fit.known.any():
        few = f"no item was in {misfit.LEAST} comparisons, which this takes"
        return View("contested", [], why=few)
    measures = {"z": fit.z, "infit": fit.infit}
    return View("contested", _highest(fit.z, keep, n), measures, {"infit": (fit.low, fit.high)})


def _spread(run: Result) -> Floats:
    """The standard deviation of each item's scores; nan of those of one."""
    verdicts, n = comparisons.joined(run.history.verdicts), len(run.scores.ids)
    if verdicts.scores is None:
        return np.full(n, np.nan)
    off = verdicts.scores - run.scores.main[1][verdicts.items]
    count = np.bincount(verdicts.items, minlength=n)
    squares = np.bincount(verdicts.items, off * off, n)
    return np.where(count > 1, np.sqrt(squares / np.maximum(count - 1, 1)), np.nan)


def against_gold(run: Result, keep: Bools, n: int) -> View:
    """The items that judge and gold place furthest apart (`gap_to_gold`), whichever is higher."""
    gap = gap_to_gold(run.scores)
    if np.isnan(gap).all():
        return View("against gold", [], why="no judged item has a gold label")
    return View("against gold", _highest(np.abs(gap), keep, n), {"gap": gap})


def gap_to_gold(scores: Scores) -> Floats:
    """By how much the judge places each item above where gold has it: the difference of its ranks by the
    main rating and by gold, each the mean of those tied, as a share of the items of its component that
    have both. Shape (n,), −1 to 1: below 0 where gold is higher; nan without one of both. Of two
    classes gold's ranks are two, so that a positive at the very bottom is near −1."""
    rating = scores.main[1]
    gap = np.full(len(rating), np.nan)
    known = scores.scored & ~np.isnan(scores.gold)
    for component in np.unique(scores.component[known]).tolist():
        rows = np.flatnonzero(known & (scores.component == component))
        by_rating, by_gold = (
            Order(values[rows]).ranks(np.ones((1, len(rows))))[0]
            for values in (rating, scores.gold)
        )
        gap[rows] = (by_rating - by_gold) / len(rows)
    return gap


def _ranked(scores: Scores, keep: Bools) -> list[int]:
    """The rows of ranked items, from high to low by the main rating."""
    keep = keep & (scores.rank > 0)
    return _highest(scores.main[1], keep, int(keep.sum()))


def _highest(values: Floats, keep: Bools, n: int) -> list[int]:
    """The rows of the n highest values; ties in the order of the rows."""
    rows = np.flatnonzero(keep & ~np.isnan(values))
    highest: list[int] = rows[np.argsort(-values[rows], kind="stable")][:n].tolist()
    return highest
