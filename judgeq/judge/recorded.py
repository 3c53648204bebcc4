"""A judge that says what was recorded: nothing is asked, nothing is paid."""

from __future__ import annotations

from collections.abc import Sequence

from judgeq import prompts
from judgeq.errors import JudgeError
from judgeq.imports.recordings import Judgment
from judgeq.judge.backend import Prepared, Reply, Request
from judgeq.types import Usage

NO_TOKENS = Usage()
NOTHING = Prepared()


class RecordedJudge:
    """The backend. Answers a match about the same items as a recorded one, whatever their order; of
    several with one of the match's round, of those with one in the order presented, else the last."""

    version = 0

    def __init__(self, name: str, judgments: Sequence[Judgment]) -> None:
        self.name = name
        self._known: dict[frozenset[int], list[Judgment]] = {}
        for judgment in reversed(judgments):
            self._known.setdefault(frozenset(judgment.presented), []).append(judgment)

    async def open(self) -> None:
        """Nothing is needed."""

    def prepare(self, request: Request) -> Prepared:
        """Nothing is sent, and nothing to be kept in a cache."""
        return NOTHING

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """The recorded verdict. Raises JudgeError for a match that wasn't recorded."""
        match = request.match
        known = self._known.get(frozenset(match.items))
        if known is None:
            raise JudgeError(
                f"{self.name} holds no judgment on the items in rows "
                f"{', '.join(map(str, sorted(match.items)))}. It can judge only what was asked when "
                "it was recorded: give the same dataset, strategy and seed, or use `judgeq import`.",
                cost=0.0,
            )
        best = max(
            known, key=lambda each: (each.round == match.round, each.presented == match.items)
        )
        return Reply(prompts.reply(best.verdict, match), NO_TOKENS, 0.0)

    async def close(self) -> None:
        """Nothing is held."""
