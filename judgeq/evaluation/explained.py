"""The evidence behind the scores of one item or two, with what the ledger holds of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from judgeq.engine.results import OF_RUN, Result
from judgeq.evaluation.trail import Ledger, Trail, Versus, answer, words
from judgeq.json_marks import INLINE, LEFT_OUT
from judgeq.types import Call, Floats


def reasons(ledger: Ledger) -> dict[int, str]:
    """The reasons, and people's notes, that were given, by job."""
    given = {job: words(answer(calls)) for job, calls in ledger.calls.items()}
    return {job: said for job, said in given.items() if said is not None}


def who(run: Result, call: Call) -> str | None:
    """The person whose call it is; None of a model's."""
    if call.judge is None or call.judge >= len(run.judges):
        return None
    return run.judges[call.judge]


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """The evidence `about` one item, or two, with what the ledger holds of them; the raw replies only
    `with_replies`."""

    run: Result
    about: Trail | Versus = field(metadata=INLINE)
    ledger: Ledger = field(metadata=LEFT_OUT)
    with_replies: bool = field(metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {
        **OF_RUN,
        "items": "items",
        "elo": "elo",
        "without_verdict": "without_verdict",
        "reasons": "reasons",
        "replies": "replies",
    }

    @property
    def items(self) -> list[dict[str, Any]]:
        """The items, with the columns of scores.csv."""
        return self.run.scores.records(self.ledger.rows)

    @property
    def elo(self) -> list[Floats]:
        """Of each item its Elo before the first round and after each."""
        return [*self.ledger.elo.T]

    @property
    def without_verdict(self) -> list[dict[str, Any]]:
        """The questions about them that brought no verdict."""
        names, ids = self.run.judges, self.run.scores.ids
        matches = {match.id: match for of_item in self.ledger.open.values() for match in of_item}
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
    def reasons(self) -> dict[int, str]:
        """The reasons, and people's notes, that were given, by job."""
        return reasons(self.ledger)

    @property
    def replies(self) -> dict[int, list[dict[str, Any]]] | None:
        """The calls, by job; `judge` is the person whose call it is (None: a model's)."""
        if not self.with_replies:
            return None
        return {
            job: [call._asdict() | {"judge": who(self.run, call)} for call in calls]
            for job, calls in self.ledger.calls.items()
        }
