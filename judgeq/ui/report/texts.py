"""A report's table of ranked texts, which opens to the judgments behind each score: its rows, and the
data from which the page's script draws it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from judgeq.engine.results import Result
from judgeq.escaping import multiline, plain
from judgeq.evaluation import explanation, items, trail
from judgeq.evaluation.record import Record
from judgeq.evaluation.trail import Appearance, Judgment, Trail
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
    """The items in the table: as a section, and as plain JSON from which the script draws it."""

    table: Section
    data: Mapping[str, Any]

    @property
    def chapter(self) -> Chapter:
        """The table as one that can't be sorted or opened, for readers without a script."""
        texts = any(column.name == "text" for column in self.table.columns)
        title = "The ranked texts" if texts else "The ranked items"
        return Chapter("texts", title, [self.table])


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


async def gathered(record: Record, most: int = MOST) -> Texts:
    """The table's items with their judgments; reasons only with the texts, which they may quote. Raises
    RunError."""
    run = record.evaluation.run
    values = np.where(run.scores.judged, run.scores.main[1], -np.inf)
    rows, partial = chosen(np.argsort(-values, kind="stable"), most)
    trails = trail.trails(record.evidence, rows.tolist())
    listed = [_listed(one) for one in trails]
    jobs = {one.judgment.job for part in listed for one in part}
    reasons = {} if record.texts is None else await _reasons(run, jobs)
    columns, cells = show_items.table(replace(run.scores, texts=record.texts), rows.tolist())
    table = Section(columns=columns, rows=cells, notes=[] if partial is None else [partial])
    return Texts(table, _data(run, trails, listed, record.texts, reasons))


def _listed(one: Trail) -> Sequence[Appearance]:
    most = {id(appearance) for appearance in one.against[:LISTED]}
    few = len(one.appearances) <= LISTED
    return [appearance for appearance in one.appearances if few or id(appearance) in most]


async def _reasons(run: Result, jobs: Collection[int]) -> dict[int, str]:
    """The reasons, and people's notes, by job."""
    if not (run.info.settings.reasons or run.said is not None) or not jobs:
        return {}
    store = run.run.store(read_only=True)
    try:
        calls = await store.calls(sorted(jobs))
    finally:
        await store.close()
    reasons = {job: explanation.words(explanation.answer(of_job)) for job, of_job in calls.items()}
    return {job: plain(reason, REASON) for job, reason in reasons.items() if reason is not None}


def _data(
    run: Result,
    trails: Sequence[Trail],
    listed: Sequence[Sequence[Appearance]],
    texts: Sequence[str] | None,
    reasons: Mapping[int, str],
) -> dict[str, Any]:
    """Items and judgments name one another by number: items by their place in the table, then in
    `others`."""
    scores = run.scores
    (name, values), sure, rank = scores.main, scores.intervals, scores.rank
    measures = items.contested(run, 0).measures
    measure = next(
        (one for one in ("z", "spread") if not np.isnan(measures.get(one, np.nan)).all()), None
    )
    place = {one.row: at for at, one in enumerate(trails)}
    numbers: dict[int, int] = {}
    judgments: list[dict[str, Any]] = []

    def number(judgment: Judgment) -> int:
        if judgment.job not in numbers:
            numbers[judgment.job] = len(judgments)
            groups = [
                [place.setdefault(row, len(place)) for row in part] for part in judgment.groups
            ]
            about = {"groups": groups, "reason": reasons.get(judgment.job)}
            judgments.append(_judgment(judgment) | about)
        return numbers[judgment.job]

    listing = []
    for one, appearances in zip(trails, listed, strict=True):
        row, text = one.row, None if texts is None else texts[one.row]
        listing.append(
            {
                "id": plain(scores.ids[row], 200),
                "rank": int(rank[row]) or None,
                "score": _rounded(values[row]) if scores.judged[row] else None,
                "low": None if sure is None else _rounded(sure.low[row]),
                "high": None if sure is None else _rounded(sure.high[row]),
                "gold": _rounded(scores.gold[row]),
                "contested": None if measure is None else _rounded(measures[measure][row]),
                "matches": int(scores.matches[row]),
                "text": None if text is None else multiline(text[:LONGEST]),
                "cut": text is not None and len(text) > LONGEST,
                "judgments": [
                    [number(seen.judgment), seen.slot, _rounded(seen.residual)]
                    for seen in appearances
                ],
                "more": len(one.appearances) - len(appearances),
            }
        )
    others = [plain(scores.ids[row], 80) for row in list(place)[len(listing) :]]
    return {
        "rating": name,
        "contested": measure,
        "items": listing,
        "others": others,
        "judgments": judgments,
    }


def _judgment(judgment: Judgment) -> dict[str, Any]:
    return {
        "job": judgment.job,
        "round": judgment.round,
        "judge": None if judgment.judge is None else plain(judgment.judge, 80),
        "partial": judgment.partial,
        "score": _rounded(judgment.score),
        "surprise": _rounded(judgment.surprise),
    }


def _rounded(value: float | None) -> float | None:
    """Four digits after the point, as the page shows three; None for what isn't known."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), 4)
