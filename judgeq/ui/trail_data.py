"""The evidence behind scores as JSON: of one item, and of two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from judgeq.engine.result_data import about
from judgeq.engine.results import Result
from judgeq.evaluation.trail import Judgment, Ledger, Opponent, Trail, Versus, answer, words
from judgeq.types import Call, Match
from judgeq.ui.item_data import items_json, number


def explain_json(
    result: Result, trail: Trail, ledger: Ledger, *, replies: bool = False
) -> dict[str, Any]:
    """For `judgeq explain --json`."""
    ids = result.scores.ids
    (item,) = items_json(result, [trail.row])
    return {
        **about(result),
        "texts": result.scores.texts is not None,
        "item": item,
        "judgments": [
            _judgment(result, one.judgment, ledger, replies)
            | {"slot": one.slot, "wins": one.wins}
            | {name: number(getattr(one, name)) for name in ("expected", "residual")}
            for one in trail.appearances
        ],
        "argue_most": [one.judgment.job for one in trail.against],
        "elo": ledger.elo[:, 0].tolist(),
        "opponents": [_opponent(ids, opponent) for opponent in trail.opponents],
        "without_verdict": [
            _open(result, match, ledger, replies) for match in ledger.open[trail.row]
        ],
    }


def versus_json(
    result: Result, versus: Versus, ledger: Ledger, *, replies: bool = False
) -> dict[str, Any]:
    """For `judgeq explain --vs --json`."""
    direct = versus.direct
    return {
        **about(result),
        "texts": result.scores.texts is not None,
        "items": items_json(result, [versus.one, versus.other]),
        "probability_above": versus.probability,
        "why": versus.why,
        "direct": {name: getattr(direct, name) for name in ("met", "above", "below", "tied")},
        "together": [
            _judgment(result, judgment, ledger, replies)
            | {"above": judgment.above(versus.one, versus.other)}
            for judgment in versus.together
        ],
    }


def _judgment(result: Result, judgment: Judgment, ledger: Ledger, replies: bool) -> dict[str, Any]:
    ids = result.scores.ids
    return {
        "job": judgment.job,
        "round": judgment.round,
        "judge": judgment.judge,
        "presented": [ids[row] for row in judgment.presented],
        "order_known": judgment.ordered,
        "verdict": [[ids[row] for row in group] for group in judgment.groups],
        "partial": judgment.partial,
        "score": judgment.score,
        "surprise": number(judgment.surprise),
        "rated": judgment.rated,
        "reason": reason(ledger, judgment.job),
        "calls": _calls(result, ledger.calls.get(judgment.job, ())) if replies else None,
    }


def _open(result: Result, match: Match, ledger: Ledger, replies: bool) -> dict[str, Any]:
    judges = result.judges
    return {
        "job": match.id,
        "round": match.round,
        "judge": judges[match.judge] if 1 < len(judges) > match.judge else None,
        "presented": [result.scores.ids[row] for row in match.items],
        "calls": _calls(result, ledger.calls.get(match.id, ())) if replies else None,
    }


def _opponent(ids: Sequence[str], opponent: Opponent) -> dict[str, Any]:
    counts = {name: getattr(opponent, name) for name in ("met", "above", "below", "tied")}
    return {"id": ids[opponent.row], **counts}


def _calls(result: Result, calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [
        {
            "attempt": call.attempt,
            "judge": who(result, call),
            "outcome": call.outcome,
            "tokens": call.usage._asdict(),
            "cost": call.cost,
            "latency": call.latency,
            "at": call.at,
            "reply": call.reply,
        }
        for call in calls
    ]


def who(result: Result, call: Call) -> str | None:
    """The person whose call it is; None of a model's."""
    if call.judge is None or call.judge >= len(result.judges):
        return None
    return result.judges[call.judge]


def reason(ledger: Ledger, job: int) -> str | None:
    """The reason, or a person's note, that was given with a verdict; None where none was, or replies
    weren't read."""
    return words(answer(ledger.calls.get(job, ())))
