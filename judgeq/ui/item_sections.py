"""Items of a run as sections: tables of ranks, ratings, their intervals and texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from judgeq.engine.results import Result
from judgeq.engine.scores import TEXT, Scores
from judgeq.evaluation.evaluate import apart
from judgeq.evaluation.items import View
from judgeq.evaluation.metrics import Measured
from judgeq.types import Floats
from judgeq.ui.sections import Cell, Column, Section, numbers
from judgeq.ui.text import count, several
from judgeq.untrusted import plain

Further = tuple[Column, Sequence[Cell]]
"""A column, and its cell for each row of the table."""
SINGLE = {
    "uncertain": "whose ratings are least certain",
    "contested": "whose judgments contradict one another most",
    "against gold": "that judge and gold place furthest apart",
}
NOTES = {
    "spread": "spread: the standard deviation of the scores that the item was given.",
    "infit": "Infit, with the range in which 95 % are expected, and z, by which they are ordered: how "
    "much less predictable the comparisons of an item are than those of the others.",
    "gap": "gap: the share of the items by which the judge ranks it above where gold does; below 0 gold "
    "ranks it higher.",
}


def views(result: Result, views: Sequence[View]) -> Iterator[Section]:
    """The tables of `judgeq show`."""
    scores = result.scores
    of = several(len(scores.ids), "item")
    yield Section(f"{result.run.id}: {result.state}")
    for view in views:
        if not view.rows:
            why = view.why or "there is none"
            yield Section(_title(view, scores, of), notes=[f"–: {why}."])
            continue
        yield Section(
            _title(view, scores, of),
            *table(scores, view.rows, [*_further(view, scores)], first=_first(view)),
            notes=[NOTES[name] for name in view.measures if name in NOTES],
        )
    warnings = [*result.cautions] if (note := apart(scores)) is None else [*result.cautions, note]
    if never := int((~scores.judged).sum()):
        warnings.append(f"{several(never, 'item')} without a verdict so far: not ranked.")
    if result.partial:
        warnings.append("The run isn't finished: these are the ratings of what was judged so far.")
    yield Section(warnings=warnings, close=True)


def _title(view: View, scores: Scores, of: str) -> str:
    shown, rating = count(len(view.rows)), scores.main[0]
    match view.name:
        case "top":
            return f"The highest {shown} of {of}, by {rating}"
        case "bottom":
            return f"The lowest {shown} of {of}, by {rating}"
        case "around":
            return f"The items around {view.around}"
        case "all":
            return f"{of[:1].upper()}{of[1:]}, by {rating}"
    return f"{shown} of {of} {SINGLE[view.name]}"


def _first(view: View) -> list[Further]:
    if view.marked is None:
        return []
    return [(Column("", whole=True), ["→" if row == view.marked else "" for row in view.rows])]


def _further(view: View, scores: Scores) -> Iterator[Further]:
    """The columns of a view beside those of all tables."""
    rows = list(view.rows)
    if view.name == "uncertain":
        yield numbers("se")[0], scores.se[rows].tolist()
    if not np.isnan(scores.gold).all():
        yield numbers("gold", show=lambda value: f"{value:g}")[0], scores.gold[rows].tolist()
    for name, values in view.measures.items():
        if name in view.ranges:
            low, high = (part[rows].tolist() for part in view.ranges[name])
            measured = zip(values[rows].tolist(), low, high, strict=True)
            yield (
                Column(f"{name} [expected]", right=True, spare=2),
                [Measured(*three) for three in measured],
            )
        else:
            show = (lambda value: f"{value:+.2f}") if name in ("gap", "z") else None
            yield numbers(name, show=show)[0], values[rows].tolist()


def table(
    scores: Scores,
    rows: Sequence[int],
    further: Sequence[Further] = (),
    first: Sequence[Further] = (),
) -> tuple[tuple[()], list[Column], list[tuple[Cell, ...]]]:
    """The facts (none), columns and rows of a section on these items: their ranks and main ratings, with
    95 % intervals where there are some, and what else is given; their texts where they are had."""
    rating, values = scores.main
    ranks, sure, chosen = scores.rank, scores.intervals, list(rows)
    columns: list[Further] = [
        *first,
        (numbers("rank")[0], [int(ranks[row]) or None for row in chosen]),
    ]
    if sure is not None:
        reach = [f"{sure.rank_low[row]} to {sure.rank_high[row]}" for row in chosen]
        columns.append((Column("ranks", whole=True, spare=2), reach))
    columns.append((Column("item", at_most=20, least=10), [scores.ids[row] for row in chosen]))
    columns.append((numbers(rating)[0], _floats(values, chosen)))
    if sure is not None:
        low, high = sure.low, sure.high
        between = [f"{low[row]:z.2f} to {high[row]:z.2f}" for row in chosen]
        columns.append((Column("interval", whole=True, spare=3), between))
    columns += [*further]
    if scores.texts is not None:
        texts = [plain(scores.texts[row], TEXT) for row in chosen]
        columns.append((Column("text", at_most=40, least=16, spare=1), texts))
    heads = [head for head, _ in columns]
    return (), heads, list(zip(*(cells for _, cells in columns), strict=True))


def _floats(values: Floats, rows: Sequence[int]) -> list[float]:
    floats: list[float] = values[list(rows)].tolist()
    return floats
