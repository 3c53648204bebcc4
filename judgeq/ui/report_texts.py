"""A report's table of ranked texts, which opens to the judgments behind each score: its rows, and the
data from which the page's script draws it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from judgeq.escaping import multiline, plain
from judgeq.evaluation import items
from judgeq.evaluation.evaluate import Evaluation
from judgeq.evaluation.items import Appearance
from judgeq.types import Offsets
from judgeq.ui.sections import Chapter
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
    run, scores = evaluation.run, evaluation.run.scores
    (rating, values), texts, sure, rank = scores.main, scores.texts, scores.intervals, scores.rank
    order, group = (
        np.argsort(-np.where(scores.judged, values, -np.inf), kind="stable"),
        scores.group,
    )
    order = order if group is None else order[np.argsort(group[order], kind="stable")]
    rows, partial = chosen(order, most)
    trails = items.trails(run, rows.tolist())
    listed = [_listed(one) for one in trails]
    judgments = {one.job: one for part in listed for one in part}
    number = {job: at for at, job in enumerate(judgments)}
    reasons = {} if texts is None else await items.reasons_of(run, [*judgments])
    place = {scores.ids[row]: at for at, row in enumerate(rows.tolist())}
    contested = items.contested(run, 0).measures.get("z")
    numbers = {
        "score": np.where(scores.judged, values, np.nan),
        "low": None if sure is None else sure.low,
        "high": None if sure is None else sure.high,
        "gold": scores.gold,
        "contested": contested,
    }

    def item(row: int, every: Sequence[Appearance], shown: Sequence[Appearance]) -> dict[str, Any]:
        text = None if texts is None else texts[row]
        return {
            "id": plain(scores.ids[row], 200),
            "group": None if scores.groups is None else plain(scores.groups[row], 200),
            "rank": int(rank[row]) or None,
            "matches": int(scores.matches[row]),
            "text": None if text is None else multiline(text[:LONGEST]),
            "cut": text is not None and len(text) > LONGEST,
            "judgments": [[number[one.job], one.slot, _rounded(one.residual)] for one in shown],
            "more": len(every) - len(shown),
            **{key: None if of is None else _rounded(of[row]) for key, of in numbers.items()},
        }

    def judgment(one: Appearance) -> dict[str, Any]:
        """Its items are numbers: their place in the table; others come after these."""
        return {
            "job": one.job,
            "round": one.round,
            "judge": None if one.judge is None else plain(one.judge, 80),
            "partial": one.partial,
            "score": _rounded(one.score),
            "groups": [
                [place.setdefault(name, len(place)) for name in part] for part in one.groups
            ],
            "reason": plain(reasons[one.job], REASON) if one.job in reasons else None,
        }

    data: dict[str, Any] = {
        "rating": rating,
        "contested": None if contested is None else "z",
        "items": [*map(item, rows.tolist(), trails, listed)],
        "judgments": [*map(judgment, judgments.values())],
    }
    data["others"] = [plain(name, 80) for name in list(place)[len(rows) :]]
    notes = [] if partial is None else [partial]
    table = show_items.items(scores, rows.tolist(), notes=notes)
    title = f"The ranked {'items' if texts is None else 'texts'}"
    return Texts(Chapter("texts", title, [table]), data)


def _listed(appearances: Sequence[Appearance]) -> Sequence[Appearance]:
    if len(appearances) <= LISTED:
        return appearances
    residuals = np.nan_to_num([one.residual for one in appearances])
    most = np.argsort(-np.abs(residuals), kind="stable")[:LISTED]
    return [appearances[at] for at in sorted(most.tolist())]


def _rounded(value: float | None) -> float | None:
    """Four digits after the point, as the page shows three; None for what isn't known."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), 4)
