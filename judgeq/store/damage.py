"""Does a ledger add up? Counts that agree in all that judgeq writes, compared when a run is opened.

Rows that were removed from a ledger, or changed in it, would otherwise change scores, and what a cap
leaves to spend, without a word.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from judgeq.errors import RunError

_EXACT = 1e-9
"""Sums of the same floats, in whatever order, differ by less, relative to them."""


class Counts(NamedTuple):
    """What one query finds, and so all as of one moment.

    `jobs`, and what the rounds say that there are; jobs that are `done`, of these the `answered`, which
    have a verdict, and all `verdicts`; attempts that `ended`, and the calls that are there of them; all
    calls, and how many were `made`; their tokens, their dollars, and what both were `when_made`.
    """

    jobs: int
    planned: float
    done: int
    answered: int
    verdicts: int
    ended: float
    sent: int
    calls: int
    made: int
    tokens: float
    tokens_when_made: float
    cost: float
    cost_when_made: float


# The floats are sums that no number of a stranger's can overflow.
COUNTS = """
SELECT jobs, planned, done, answered, verdicts, ended, sent, c.calls, coalesce(t.calls, 0), c.tokens,
    coalesce(t.tokens, 0.0), c.cost, coalesce(t.cost, 0.0)
FROM (SELECT count(*) AS jobs, coalesce(sum(state = 'done'), 0) AS done,
          coalesce(sum(state = 'done' AND v.job IS NOT NULL), 0) AS answered,
          total(attempts - open) AS ended
      FROM jobs LEFT JOIN verdicts v ON v.job = jobs.id),
    (SELECT total(last - first + 1) AS planned FROM rounds),
    (SELECT count(*) AS verdicts FROM verdicts),
    (SELECT count(*) AS calls, coalesce(sum(outcome <> 'cached' AND answered_by IS NULL), 0) AS sent,
         total(input + cached + output + reasoning) AS tokens, total(cost) AS cost
     FROM calls) AS c
    LEFT JOIN totals t
"""


def of(connection: sqlite3.Connection) -> list[str]:
    """What doesn't add up in a run's file."""
    return found(Counts(*connection.execute(COUNTS).fetchone()))


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
        parts.append(f"calls: {of.calls:,} of {of.made:,}")
    elif of.sent != of.ended:
        parts.append(f"attempts that ended: {of.ended:,.0f}, and calls of them: {of.sent:,}")
    if not math.isclose(of.tokens, of.tokens_when_made, rel_tol=_EXACT):
        parts.append(f"tokens of its calls: {of.tokens:,.0f} of {of.tokens_when_made:,.0f}")
    if not math.isclose(of.cost, of.cost_when_made, rel_tol=_EXACT):
        parts.append(f"dollars of its calls: {of.cost:,.6g} of {of.cost_when_made:,.6g}")
    return parts


def refuse(shown: str, parts: Sequence[str]) -> None:
    """Raise RunError where something doesn't add up in the ledger `shown`."""
    if parts:
        raise RunError(
            f"{shown} is damaged, and doesn't add up: {'; '.join(parts)}. Something other than judgeq "
            "changed it: put a backup in its place, or rate what is left by `judgeq rate` with "
            "--accept-damage (as show, explain, evaluate, compare, export and report). Nothing was "
            "changed."
        )


def caution(shown: str, parts: Sequence[str]) -> str:
    """What goes with all that is made of the ledger `shown` where its damage was accepted."""
    return (
        f"{shown} is damaged, and doesn't add up ({'; '.join(parts)}): this is of what is left "
        "(--accept-damage)."
    )
