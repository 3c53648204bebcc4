"""A run's result as plain JSON, for `--json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from judgeq.engine.results import Result
from judgeq.rating import comparisons
from judgeq.types import Totals


def as_json(result: Result) -> dict[str, Any]:
    """The result."""
    return {
        **about(result),
        "scores": str(result.run.scores),
        "items": len(result.scores.ids),
        "items_judged": int(result.scores.judged.sum()),
        "rounds": result.rounds,
        "rounds_planned": result.rounds_planned,
        "jobs": asdict(result.counts),
        **spent(result.totals),
        "cost_equivalent_calls": result.cost_equivalent_calls,
        "left_early": int((result.scores.left_after > 0).sum()),
        "certainty": None if result.known is None else asdict(result.known),
        "ended": result.ended and result.ended.model_dump(),
        "evaluation": result.evaluation,
        "order": order(result),
    }


def about(result: Result) -> dict[str, Any]:
    """Which run it is, and by what it was rated."""
    sizes = comparisons.component_sizes(result.scores.component)
    return {
        **result.run.facts(),
        "partial": result.partial,
        "components": {"count": len(sizes), "largest": sizes[:10].tolist()},
        "rating": result.main.as_json(result.fit),
        "damage": list(result.damage),
    }


def order(result: Result) -> dict[str, Any]:
    """Whether a place in the order presented is favoured, and what it is worth."""
    slots, flips = result.slots, result.flips
    order: dict[str, Any] = {"slots": [], "effects": [], "taken_out": result.fit.position}
    if slots is not None:
        order["unknown"] = slots.unordered
        columns = (slots.rate, slots.low, slots.high, slots.matches)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        order["slots"] = [
            {"slot": slot, "win_rate": rate, "low": low, "high": high, "matches": matches}
            for slot, (rate, low, high, matches) in enumerate(rows, start=1)
        ]
        order["favoured"] = None if slots.favoured is None else slots.favoured + 1
        order["slighted"] = None if slots.slighted is None else slots.slighted + 1
        order["chance"] = slots.chance
        names = result.judges
        order["effects"] = [
            effect._asdict() | {"judges": [names[number] for number in effect.judges]}
            for effect in result.effects
        ]
    return order | ({} if flips is None else {"both_orders": asdict(flips)})


def spent(totals: Totals) -> dict[str, Any]:
    """What was asked, and what it cost."""
    return {
        "calls": totals.calls,
        "retries": totals.retries,
        "unusable_replies": totals.unusable,
        "unknown_attempts": totals.unknown,
        "tokens": totals.usage._asdict() if any(totals.usage) or not totals.uncounted else None,
        "replies_without_usage": totals.uncounted,
        "cost": totals.cost if not totals.unpriced else None,
        "cost_of_priced_calls": totals.cost,
        "unpriced_calls": totals.unpriced,
        "possibly_paid_at_most": totals.at_risk,
        "cache": {"hits": totals.hits, "saved": totals.saved},
    }
