"""Items of a run as sections: tables of ranks, ratings, their intervals and texts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from judgeq.engine.results import Result
from judgeq.engine.scores import TEXT, Scores
from judgeq.evaluation.evaluate import apart
from judgeq.evaluation.items import View
from judgeq.evaluation.metrics import Measured
from judgeq.text import count, several
from judgeq.ui.sections import Cell, Column, Section, numbers
from judgeq.untrusted import plain

Further = tuple[Column, Sequence[Cell]]
"""A column, and its cell for each row of the table."""
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
    of, by = several(len(scores.ids), "item"), f"by {scores.main[0]}"
    yield Section(f"{result.run.id}: {result.state}")
    for view in views:
        shown = count(len(view.rows))
        title = {
            "top": f"The highest {shown} of {of}, {by}",
            "bottom": f"The lowest {shown} of {of}, {by}",
            "around": f"The items around {view.around}",
            "all": f"{of}, {by}",
            "uncertain": f"{shown} of {of} whose ratings are least certain",
            "contested": f"{shown} of {of} whose judgments contradict one another most",
            "against gold": f"{shown} of {of} that judge and gold place furthest apart",
        }[view.name]
        if not view.rows:
            yield Section(title, notes=[f"–: {view.why or 'there is none'}."])
            continue
        marks = ["→" if row == view.marked else "" for row in view.rows]
        first = [] if view.marked is None else [(Column("", whole=True), marks)]
        notes = [NOTES[name] for name in view.measures if name in NOTES]
        columns, rows = table(scores, view.rows, [*_further(view, scores)], first)
        yield Section(title, columns=columns, rows=rows, notes=notes)
    warnings = [*result.cautions] if (note := apart(scores)) is None else [*result.cautions, note]
    if never := int((~scores.judged).sum()):
        warnings.append(f"{several(never, 'item')} without a verdict so far: not ranked.")
    if result.partial:
        warnings.append("The run isn't finished: these are the ratings of what was judged so far.")
    yield Section(warnings=warnings, close=True)


def _further(view: View, scores: Scores) -> Iterator[Further]:
    """The columns of a view beside those of all tables."""
    rows = list(view.rows)
    if view.name == "uncertain":
        yield numbers("se")[0], scores.se[rows].tolist()
    if not np.isnan(scores.gold).all():
        yield numbers("gold", show="{:g}".format)[0], scores.gold[rows].tolist()
    for name, values in view.measures.items():
        cells = values[rows].tolist()
        if name in view.ranges:
            low, high = (part[rows].tolist() for part in view.ranges[name])
            cells = [Measured(*three) for three in zip(cells, low, high, strict=True)]
            yield Column(f"{name} [expected]", right=True, spare=2), cells
        else:
            yield numbers(name, show=None if name == "spread" else "{:+.2f}".format)[0], cells


def table(
    scores: Scores,
    rows: Sequence[int],
    further: Sequence[Further] = (),
    first: Sequence[Further] = (),
) -> tuple[list[Column], list[tuple[Cell, ...]]]:
    """The columns and rows of a table of these items: ranks and scores with their 95 % intervals, other
    columns, and the texts, as far as they are available."""
    sure, ranks, chosen = scores.intervals, scores.rank, list(rows)
    columns = [*first, (numbers("rank")[0], [int(ranks[row]) or None for row in chosen])]
    if sure is not None:
        reach = [f"{sure.rank_low[row]}–{sure.rank_high[row]}" for row in chosen]
        columns.append((Column("95 %", whole=True, spare=2), reach))
    columns.append((Column("item", at_most=20, least=10), [scores.ids[row] for row in chosen]))
    columns.append((numbers("score", show=score)[0], scores.main[1][chosen].tolist()))
    if sure is not None:
        reach = [f"{sure.low[row]:z.2f} to {sure.high[row]:z.2f}" for row in chosen]
        columns.append((Column("95 % interval", whole=True, spare=3), reach))
    columns += further
    if scores.texts is not None:
        excerpts = [plain(scores.texts[row], TEXT) for row in chosen]
        columns.append((Column("text", at_most=40, least=16, spare=1), excerpts))
    heads = [head for head, _ in columns]
    return heads, list(zip(*(cells for _, cells in columns), strict=True))


def score(value: float) -> str:
    """An Elo without decimals, any other score with two; "–" for none."""
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:z.2f}"
