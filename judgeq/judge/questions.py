"""From a match to the request that a judge is sent, and from its reply to a verdict.

The two ends of asking, whatever carries the request between them. All replies are read here: fresh
ones, those of the cache, and those that were bought by an estimate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from judgeq import prompts
from judgeq.errors import JudgeError, UnusableReplyError
from judgeq.judge.backend import Reply, Request
from judgeq.types import Match, Verdict


@dataclass(frozen=True, slots=True)
class Questions:
    """What a judge is asked: a prompt set, and the items' texts and ids by row; with `reasons`, for a
    reason as well. A judge that reads no text has none of it, and isn't bound by what a prompt set
    allows."""

    prompt: prompts.PromptSet | None = None
    texts: Sequence[str] | None = None
    ids: Sequence[str] = ()
    reasons: bool = False

    @property
    def ties(self) -> bool:
        """Whether a reply may leave items tied."""
        return self.prompt is None or self.prompt.ties

    def request(
        self, match: Match, attempt: int = 0, ask: int = 1, problem: str | None = None
    ) -> Request:
        """The question about a match; `problem` says what was wrong with the last reply to it."""
        return Request(match, attempt, ask, lambda: self._messages(match, problem))

    def read(self, reply: Reply, match: Match) -> Verdict:
        """The verdict that a reply gives. Raises UnusableReplyError, which names what is wrong."""
        if reply.problem is not None:
            raise UnusableReplyError(reply.problem)
        return prompts.parse(reply.text, match, self.ties)

    def longest(self, match: Match) -> str:
        """Which item of a match is the longest, and what can be done, for an error."""
        if self.texts is None:
            return ""
        longest = max(match.items, key=lambda item: len(self.texts[item]))  # type: ignore[index]
        name = self.ids[longest] if self.ids else longest
        return (
            f" The question was about {len(match.items)} items, the longest being item {name!r} "
            f"with {len(self.texts[longest]):,} characters: leave it out or shorten it, take "
            "smaller lists (--k), or a model that reads more."
        )

    def _messages(self, match: Match, problem: str | None) -> list[dict[str, str]]:
        if self.prompt is None or self.texts is None:
            raise JudgeError("the judge reads texts, and there are none.")
        texts = [self.texts[item] for item in match.items]
        return prompts.messages(self.prompt, texts, problem, reasons=self.reasons)
