"""Items of a run as JSON, and the tables of `judgeq show` as CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from judgeq.engine.result_data import about
from judgeq.engine.results import Result
from judgeq.engine.scores import SURE, TEXT
from judgeq.evaluation.items import View
from judgeq.untrusted import excerpt


def items_json(result: Result, rows: Sequence[int]) -> list[dict[str, Any]]:
    """What is known of these items; null for what an item hasn't."""
    scores, sure = result.scores, result.scores.intervals
    ranks, texts = scores.rank, scores.texts
    return [
        {
            "id": scores.ids[row],
            "rank": int(ranks[row]) or None,
            "ratings": {name: number(values[row]) for name, values in scores.ratings.items()},
            **{
                name: None
                if sure is None or not scores.judged[row]
                else number(getattr(sure, name)[row])
                for name in SURE
            },
            "matches": int(scores.matches[row]),
            "wins": float(scores.wins[row]),
            "left_after": int(scores.left_after[row]) or None,
            "gold": number(scores.gold[row]),
            "component": int(scores.component[row]) or None,
            "text": None if texts is None else texts[row],
        }
        for row in rows
    ]


def number(value: Any) -> float | int | None:
    """A number as Python's; None for nan and infinities, which JSON doesn't have."""
    plain: float | int = value.item() if hasattr(value, "item") else value
    return plain if math.isfinite(plain) else None


def views_json(
    result: Result, views: Sequence[View], where: Sequence[str], left: int
) -> dict[str, Any]:
    """For `judgeq show --json`."""
    return {
        **about(result),
        "where": list(where),
        "items_left": left,
        "texts": result.scores.texts is not None,
        "views": [
            {
                "view": view.name,
                "why": view.why,
                "around": None if view.marked is None else result.scores.ids[view.marked],
                "items": [
                    item | {"measures": {n: number(of[row]) for n, of in view.measures.items()}}
                    for item, row in zip(items_json(result, view.rows), view.rows, strict=True)
                ],
            }
            for view in views
        ],
    }


def columns(result: Result, views: Sequence[View]) -> list[str]:
    """The columns of `judgeq show --csv`."""
    measures = dict.fromkeys(name for view in views for name in view.measures)
    counts = ("matches", "wins", "left_after", "gold", "component")
    names = ["view", "id", "rank", *result.scores.ratings, *SURE, *counts, *measures]
    return names if result.scores.texts is None else [*names, "text"]


def cells(result: Result, views: Sequence[View]) -> Iterator[list[object]]:
    """For `judgeq show --csv`: a row an item of each view."""
    names = columns(result, views)
    for view in views:
        for item, row in zip(items_json(result, view.rows), view.rows, strict=True):
            text = None if item["text"] is None else excerpt(item["text"], TEXT)
            measures = {name: number(values[row]) for name, values in view.measures.items()}
            known = item | item["ratings"] | measures | {"view": view.name, "text": text}
            yield [known.get(name) for name in names]
