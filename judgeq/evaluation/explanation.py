"""The evidence behind one score, or about two items: their judgments, and the calls, reasons and open
questions that the ledger holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from judgeq import prompts
from judgeq.engine.results import OF_RUN, Result
from judgeq.errors import RunError
from judgeq.evaluation.trail import Trail, Versus, elo_by_round, gathered, trails, versus
from judgeq.json_marks import INLINE, LEFT_OUT
from judgeq.people import answers
from judgeq.store import Store
from judgeq.types import Call, Floats, Match

ANSWERED = ("ok", "cached")
"""The outcomes of calls that brought a verdict."""


def answer(calls: Sequence[Call]) -> Call | None:
    """The call that brought a question's verdict, of those about it; None if none did."""
    return next((call for call in reversed(calls) if call.outcome in ANSWERED), None)


def words(call: Call | None) -> str | None:
    """The reason that a model gave with its verdict, or a person's note; None if there is none. It is
    untrusted: whoever shows it makes it safe."""
    if call is None or call.reply is None:
        return None
    return prompts.reason(call.reply) if call.judge is None else answers.remark(call)


def who(run: Result, call: Call) -> str | None:
    """The person whose call it is; None of a model's."""
    if call.judge is None or call.judge >= len(run.judges):
        return None
    return run.judges[call.judge]


@dataclass(frozen=True, slots=True, eq=False)
class Explanation:
    """The evidence `about` one item, or two."""

    run: Result
    about: Trail | Versus = field(metadata=INLINE)
    # The judgments that each item was in; of two items those that both were in.
    trails: Sequence[Trail] = field(metadata=LEFT_OUT)
    by_round: Floats = field(
        metadata=LEFT_OUT
    )  # Elo at the start and after each round, (rounds + 1, items)
    # By row the questions without a verdict: failed, invalid, or not answered yet.
    unanswered: Mapping[int, Sequence[Match]] = field(metadata=LEFT_OUT)
    calls: Mapping[int, Sequence[Call]] = field(metadata=LEFT_OUT)  # by job, as they ended
    with_replies: bool = field(metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {
        **OF_RUN,
        "items": "items",
        "elo": "by_round.T",
        "without_verdict": "without_verdict",
        "reasons": "reasons",
        "replies": "replies",
    }

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items, with the columns of scores.csv."""
        return self.run.scores.records([trail.row for trail in self.trails])

    @property
    def reasons(self) -> dict[int, str]:
        """The reasons and people's notes, by job."""
        reasons = {job: words(answer(calls)) for job, calls in self.calls.items()}
        return {job: reason for job, reason in reasons.items() if reason is not None}

    @property
    def without_verdict(self) -> list[dict[str, Any]]:
        """The questions without a verdict, each once."""
        names, ids = self.run.judges, self.run.scores.ids
        matches = {match.id: match for part in self.unanswered.values() for match in part}
        return [
            {
                "job": match.id,
                "round": match.round,
                "judge": names[match.judge] if 1 < len(names) > match.judge else None,
                "presented": [ids[row] for row in match.items],
            }
            for match in matches.values()
        ]

    @property
    def replies(self) -> dict[int, list[dict[str, Any]]] | None:
        """The calls, by job, with the person whose call it is (None: a model's)."""
        if not self.with_replies:
            return None
        return {
            job: [call._asdict() | {"judge": who(self.run, call)} for call in calls]
            for job, calls in self.calls.items()
        }


async def explanation(
    run: Result, row: int, other: int | None = None, *, replies: bool = False
) -> Explanation:
    """The evidence about an item, or two. Calls are read only with `replies`, which may be long, or if
    they may hold reasons or notes. Another process may continue the run. Raises RunError."""
    evidence, rows = gathered(run), [row] if other is None else [row, other]
    found, about = trails(evidence, rows), None
    if other is not None:
        about = versus(evidence, row, other)
        both = {judgment.job for judgment in about.together}
        found = [
            replace(
                one,
                appearances=tuple(part for part in one.appearances if part.judgment.job in both),
            )
            for one in found
        ]
    store = run.run.store(read_only=True)
    try:
        unanswered = await _unanswered(run, store, rows)
        jobs = {one.judgment.job for trail in found for one in trail.appearances}
        jobs |= {match.id for matches in unanswered.values() for match in matches}
        wanted = replies or run.info.settings.reasons or run.said is not None
        calls = await store.calls(sorted(jobs)) if wanted else {}
    finally:
        await store.close()
    elo = elo_by_round(run)[:, rows]
    return Explanation(run, about or found[0], found, elo, unanswered, calls, replies)


async def _unanswered(run: Result, store: Store, rows: Sequence[int]) -> dict[int, list[Match]]:
    """By row its questions in the planned rounds that have no verdict."""
    answered = np.concatenate([part.matches for part in run.history.asked])
    unanswered: dict[int, list[Match]] = {row: [] for row in rows}
    first, n = 0, len(run.scores.ids)
    for round in range(1, run.rounds_planned + 1):
        matches = await store.matches(round)
        if len(matches.items) and not 0 <= matches.items.min() <= matches.items.max() < n:
            raise RunError(f"{run.run.shown} is damaged: it asks about an item that isn't there.")
        about = np.flatnonzero(np.isin(matches.items, rows))
        of = np.unique(np.searchsorted(matches.offsets, about, side="right") - 1)
        for at in of[~np.isin(first + of, answered)].tolist():
            items = tuple(matches.items[matches.offsets[at] : matches.offsets[at + 1]].tolist())
            judge = 0 if matches.judges is None else int(matches.judges[at])
            for row in unanswered.keys() & set(items):
                unanswered[row].append(Match(first + at, round, items, judge))
        first += len(matches)
    return unanswered
