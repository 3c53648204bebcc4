"""Does a ledger add up? Counts that agree in all that judgeq writes, compared when a run is opened.

Rows that were removed from a ledger, or changed in it, would otherwise change scores, and what a cap
leaves to spend, without a word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from judgeq.errors import RunError

_EXACT = 1e-9
"""Sums of the same floats, in whatever order, differ by less, relative to them."""


class Counts(NamedTuple):
    """What one query finds, and so all as of one moment.

    `jobs`, and what the rounds say that there are; jobs that are `done`, of these the `answered`, which
    have a verdict, and all `verdicts`; attempts that `ended`, and the calls that are there of them; all
    calls, and how many were `made`; their tokens, their dollars, the nano-dollars at risk, and what
    these were `when_made`.
    """

    jobs: int
    planned: float
    done: int
    answered: int
    verdicts: int
    ended: float
    sent: int
    calls: int
    made: float
    tokens: float
    tokens_when_made: float
    cost: float
    cost_when_made: float
    at_risk: float
    at_risk_when_made: float


def found(of: Counts) -> list[str]:
    """What doesn't add up, in words; nothing where all does."""
    parts = []
    if of.jobs != of.planned:
        parts.append(f"questions: {of.jobs:,} of {of.planned:,.0f}")
    if of.done != of.answered:
        parts.append(f"answered questions without a verdict: {of.done - of.answered:,}")
    if of.verdicts != of.answered:
        parts.append(f"verdicts of unanswered questions: {of.verdicts - of.answered:,}")
    if of.calls != of.made:
        parts.append(f"calls: {of.calls:,} of {of.made:,.0f}")
    elif of.sent != of.ended:
        parts.append(f"attempts that ended: {of.ended:,.0f}, and calls of them: {of.sent:,}")
    if not math.isclose(of.tokens, of.tokens_when_made, rel_tol=_EXACT):
        parts.append(f"tokens of its calls: {of.tokens:,.0f} of {of.tokens_when_made:,.0f}")
    # Each call's dollars were rounded up to the nano-dollar.
    if not math.isclose(of.cost, of.cost_when_made, rel_tol=_EXACT, abs_tol=_EXACT * of.calls):
        parts.append(f"dollars of its calls: {of.cost:,.6g} of {of.cost_when_made:,.6g}")
    if not math.isclose(of.at_risk, of.at_risk_when_made, rel_tol=_EXACT):
        parts.append(f"nano-dollars at risk: {of.at_risk:,.0f} of {of.at_risk_when_made:,.0f}")
    return parts


def refuse(shown: str, parts: Sequence[str]) -> None:
    """Raise RunError where something doesn't add up in the ledger `shown`."""
    if parts:
        raise RunError(
            f"{shown} is damaged, and doesn't add up: {'; '.join(parts)}. Something other than judgeq "
            "changed it. Restore a backup, or use what is left: `judgeq show`, evaluate, export "
            "or report with --accept-damage."
        )


def caution(shown: str, parts: Sequence[str]) -> str:
    """What goes with all that is made of the ledger `shown` where its damage was accepted."""
    return (
        f"{shown} is damaged, and doesn't add up ({'; '.join(parts)}): this is of what is left "
        "(--accept-damage)."
    )
