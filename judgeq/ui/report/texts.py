"""A report's table of ranked texts, which opens to the judgments behind each score: its rows, and the
data from which the page's script draws it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from judgeq.engine.results import Result
from judgeq.escaping import multiline, plain
from judgeq.evaluation import items, trail
from judgeq.evaluation.evaluate import Evaluation
from judgeq.evaluation.trail import Appearance
from judgeq.types import Offsets
from judgeq.ui.sections import Chapter, Section
from judgeq.ui.show import items as show_items

MOST = 2_000
"""Of more items than these, some are in the table."""
LISTED = 100
"""Judgments of an item that are listed; of more, those that argue most against its place."""
LONGEST = 20_000
"""Characters of a text that are shown."""
REASON = 500


@dataclass(frozen=True, slots=True)
class Texts:
    """The items in the table: as a chapter, for readers without a script, whose table can't be sorted or
    opened; and as plain JSON from which the script draws it."""

    chapter: Chapter
    data: Mapping[str, Any]


def chosen(order: Offsets, most: int) -> tuple[Offsets, str | None]:
    """Which rows are in the table, of all in the order of the ranking; and a sentence if some aren't."""
    n, end = len(order), most // 4
    if n <= most:
        return order, None
    between = np.linspace(end, n - end - 1, most - 2 * end).round().astype(np.int64)
    at = np.concatenate([np.arange(end), between, np.arange(n - end, n)])
    which = (
        f"Listed are {most:,} of {n:,} texts: the {end:,} highest, the {end:,} lowest, and others "
        "in between. scores.csv has all; judgeq report --texts N lists more."
    )
    return order[at], which


async def gathered(evaluation: Evaluation, most: int = MOST) -> Texts:
    """The table's items with their judgments; reasons only with the texts, which they may quote. Raises
    RunError."""
    run = evaluation.run
    texts = run.scores.texts
    values = np.where(run.scores.judged, run.scores.main[1], -np.inf)
    order, group = np.argsort(-values, kind="stable"), run.scores.group
    order = order if group is None else order[np.argsort(group[order], kind="stable")]
    rows, partial = chosen(order, most)
    trails = trail.trails(run, rows.tolist())
    listed = [_listed(one) for one in trails]
    judgments = {one.job: one for part in listed for one in part}
    reasons = {} if texts is None else await trail.reasons_of(run, [*judgments])
    columns, cells = show_items.table(run.scores, rows.tolist())
    table = Section(columns=columns, rows=cells, notes=[] if partial is None else [partial])
    place = {run.scores.ids[row]: at for at, row in enumerate(rows.tolist())}
    seen = zip(rows.tolist(), trails, listed, strict=True)
    data = _items(run, seen, texts, {job: at for at, job in enumerate(judgments)})
    data["judgments"] = [_judgment(one, place, reasons) for one in judgments.values()]
    data["others"] = [plain(item, 80) for item in list(place)[len(rows) :]]
    return Texts(
        Chapter("texts", f"The ranked {'items' if texts is None else 'texts'}", [table]), data
    )


def _listed(appearances: Sequence[Appearance]) -> Sequence[Appearance]:
    if len(appearances) <= LISTED:
        return appearances
    residuals = np.nan_to_num([one.residual for one in appearances])
    most = np.argsort(-np.abs(residuals), kind="stable")[:LISTED]
    return [appearances[at] for at in sorted(most.tolist())]


def _items(
    run: Result,
    seen: Iterable[tuple[int, Sequence[Appearance], Sequence[Appearance]]],
    texts: Sequence[str] | None,
    number: Mapping[int, int],
) -> dict[str, Any]:
    """The items, each given by its row with all its judgments and those listed; `number` is that of a
    job's judgment."""
    scores = run.scores
    (name, values), sure, rank = scores.main, scores.intervals, scores.rank
    measures = items.contested(run, 0).measures
    measure = "z" if "z" in measures else None
    numbers = {
        "score": np.where(scores.judged, values, np.nan),
        "low": None if sure is None else sure.low,
        "high": None if sure is None else sure.high,
        "gold": scores.gold,
        "contested": None if measure is None else measures[measure],
    }
    listing = []
    for row, every, listed in seen:
        text = None if texts is None else texts[row]
        about = {
            "id": plain(scores.ids[row], 200),
            "group": None if scores.groups is None else plain(scores.groups[row], 200),
            "rank": int(rank[row]) or None,
            "matches": int(scores.matches[row]),
            "text": None if text is None else multiline(text[:LONGEST]),
            "cut": text is not None and len(text) > LONGEST,
            "judgments": [[number[one.job], one.slot, _rounded(one.residual)] for one in listed],
            "more": len(every) - len(listed),
        }
        listing.append(
            about | {key: None if of is None else _rounded(of[row]) for key, of in numbers.items()}
        )
    return {"rating": name, "contested": measure, "items": listing}


def _judgment(
    judgment: Appearance, place: dict[str, int], reasons: Mapping[int, str]
) -> dict[str, Any]:
    """A judgment, whose items are numbers: their `place` in the table; others come after these."""
    return {
        "job": judgment.job,
        "round": judgment.round,
        "judge": None if judgment.judge is None else plain(judgment.judge, 80),
        "partial": judgment.partial,
        "score": _rounded(judgment.score),
        "groups": [
            [place.setdefault(item, len(place)) for item in part] for part in judgment.groups
        ],
        "reason": plain(reasons[judgment.job], REASON) if judgment.job in reasons else None,
    }


def _rounded(value: float | None) -> float | None:
    """Four digits after the point, as the page shows three; None for what isn't known."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), 4)
