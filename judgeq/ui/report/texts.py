"""A report's texts, in a table that opens to the judgments behind each score: which items are in it,
and what the page's script is given of them.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from judgeq import seeds
from judgeq.engine.results import Result
from judgeq.engine.scores import Scores
from judgeq.escaping import multiline, plain
from judgeq.evaluation import items, trail
from judgeq.evaluation.record import Record
from judgeq.evaluation.trail import Appearance, Judgment, Trail
from judgeq.types import Floats, Offsets

MOST = 2_000
"""Of more items than these a part is in the table."""
LISTED = 100
"""So many judgments of an item are listed: of more those that argue most against its place."""
LONGEST = 20_000
"""Characters of a text that are shown."""
REASON = 500


@dataclass(frozen=True, slots=True)
class Texts:
    """The items in the table, by row, and `why` these; as plain JSON what the script shows of them."""

    rows: Sequence[int]
    why: str | None
    data: Mapping[str, Any]


def chosen(scores: Scores, most: int, seed: int) -> tuple[Offsets, str | None]:
    """The rows of the table, in the order of the ranking; and a sentence where they aren't all."""
    values = np.where(scores.judged, scores.main[1], -np.inf)
    order = np.argsort(-values, kind="stable")
    n = len(order)
    if n <= most:
        return order, None
    part = most // 5
    middle = max(0, n // 2 - part // 2)
    errors = np.where(np.isnan(scores.se), -1.0, scores.se)
    kept = np.zeros(n, dtype=np.bool_)
    for rows in (
        order[:part],
        order[n - part :],
        order[middle : middle + part],
        np.argsort(-errors, kind="stable")[:part],
    ):
        kept[rows] = True
    others = seeds.rng(seed, "report").permutation(np.flatnonzero(~kept))
    kept[others[: most - int(kept.sum())]] = True
    why = (
        f"{most:,} of {n:,} items: the {part:,} with the highest scores, the {part:,} with the lowest, "
        f"{part:,} in the middle, the {part:,} that are least certain, and others drawn at random. "
        "--texts N lists more."
    )
    return order[kept[order]], why


async def gathered(record: Record, most: int = MOST) -> Texts:
    """The table's items with their judgments; reasons only with the texts, which they may quote. Raises
    RunError."""
    run = record.evaluation.run
    rows, why = chosen(run.scores, most, run.info.settings.seed)
    trails = trail.trails(record.evidence, rows.tolist())
    listed = [_listed(one) for one in trails]
    jobs = {one.judgment.job for part in listed for one in part}
    reasons = {} if record.texts is None else await _reasons(run, jobs)
    return Texts(rows.tolist(), why, _data(run, trails, listed, record.texts, reasons))


def _listed(one: Trail) -> Sequence[Appearance]:
    if len(one.appearances) <= LISTED:
        return one.appearances
    most = {id(appearance) for appearance in one.against[:LISTED]}
    return [appearance for appearance in one.appearances if id(appearance) in most]


async def _reasons(run: Result, jobs: Collection[int]) -> dict[int, str]:
    """The reasons, and people's notes, that were given, by job."""
    if not (run.info.settings.reasons or run.said is not None) or not jobs:
        return {}
    store = run.run.store(read_only=True)
    try:
        calls = await store.calls(sorted(jobs))
    finally:
        await store.close()
    reasons = {}
    for job, of_job in calls.items():
        reason = trail.words(trail.answer(of_job))
        if reason is not None:
            reasons[job] = plain(reason, REASON)
    return reasons


def _data(
    run: Result,
    trails: Sequence[Trail],
    listed: Sequence[Sequence[Appearance]],
    texts: Sequence[str] | None,
    reasons: Mapping[int, str],
) -> dict[str, Any]:
    scores = run.scores
    name, values = scores.main
    sure, rank = scores.intervals, scores.rank
    measure, contested = _contested(run)
    place = {one.row: at for at, one in enumerate(trails)}
    numbers: dict[int, int] = {}
    judgments: list[dict[str, Any]] = []

    def named(row: int) -> int:
        return place.setdefault(row, len(place))

    def number(judgment: Judgment) -> int:
        if judgment.job not in numbers:
            numbers[judgment.job] = len(judgments)
            judgments.append(_judgment(judgment, named, reasons.get(judgment.job)))
        return numbers[judgment.job]

    listing = []
    for one, appearances in zip(trails, listed, strict=True):
        row = one.row
        listing.append(
            {
                "id": plain(scores.ids[row], 200),
                "rank": int(rank[row]) or None,
                "score": _rounded(values[row]) if scores.judged[row] else None,
                "low": None if sure is None else _rounded(sure.low[row]),
                "high": None if sure is None else _rounded(sure.high[row]),
                "gold": _rounded(scores.gold[row]),
                "contested": _rounded(contested[row]),
                "matches": int(scores.matches[row]),
                "text": None if texts is None else multiline(texts[row][:LONGEST]),
                "cut": texts is not None and len(texts[row]) > LONGEST,
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


def _contested(run: Result) -> tuple[str | None, Floats]:
    """How much the judgments of each item contradict one another, as `judgeq show --contested` has it:
    the name of the measure, None where there is none, and its values, shape (n,)."""
    n = len(run.scores.ids)
    measures = items.contested(run, 0).measures
    for name in ("z", "spread"):
        if name in measures and not np.isnan(measures[name]).all():
            return name, measures[name]
    return None, np.full(n, np.nan)


def _judgment(judgment: Judgment, named: Any, reason: str | None) -> dict[str, Any]:
    """What is shown of a judgment; items by their place in the table, then among the others."""
    return {
        "job": judgment.job,
        "round": judgment.round,
        "judge": None if judgment.judge is None else plain(judgment.judge, 80),
        "groups": [[named(row) for row in group] for group in judgment.groups],
        "partial": judgment.partial,
        "score": _rounded(judgment.score),
        "surprise": _rounded(judgment.surprise),
        "reason": reason,
    }


def _rounded(value: float | None) -> float | None:
    """Four digits after the point, as the page shows three; None for what isn't known."""
    if value is None or not math.isfinite(value):
        return None
    return round(float(value), 4)
