"""What a judge is asked, how its reply is read, and when too many replies are no answer."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from judgeq import prompts
from judgeq.errors import JudgeError, UnusableReplyError
from judgeq.escaping import plain
from judgeq.judge.backend import Reply, Request
from judgeq.judge.unread import size_of
from judgeq.replies import CUT_OFF, EMPTY, THINKING_UNFINISHED, kind_of, read_reply
from judgeq.types import Match, Verdict

FIRST, LAST = 10, 100
"""A run is stopped when none of so many first replies is usable, or too few of so many last ones."""
SHOWN = 100  # cells of a reply in an error


@dataclass(frozen=True, slots=True)
class Questions:
    """What a judge is asked: a prompt set, and the items' texts and ids by row; with `reasons`, for a
    reason as well. A judge that reads no text has none of it, and isn't bound by what a prompt set
    allows."""

    prompt: prompts.PromptSet | None = None
    texts: Sequence[str] | None = None
    ids: Sequence[str] = ()
    reasons: bool = False
    _sizes: dict[int, int] = field(default_factory=dict)  # of texts that were asked about, by row

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
        return read_reply(reply.text, match, self.ties)

    def size(self, match: Match) -> int:
        """Return the characters of the texts in a question, as judge/unread.py counts them."""
        if self.texts is None:
            return 0
        total = 0
        for item in match.items:
            size = self._sizes.get(item)
            if size is None:
                size = self._sizes[item] = size_of(self.texts[item])
            total += size
        return total

    def longest(self, match: Match) -> str:
        """Which item of a match is the longest, and what can be done, for an error."""
        texts = self.texts or ()
        if not texts:
            return ""
        longest = max(match.items, key=lambda item: len(texts[item]))
        return (
            f" The longest of its {len(match.items)} items is item "
            f"{self.ids[longest] if self.ids else longest!r}, with {len(texts[longest]):,} characters: "
            "leave it out or shorten it, take smaller lists (--strategy listwise5, say), or a model "
            "that reads more."
        )

    def _messages(self, match: Match, problem: str | None) -> list[dict[str, str]]:
        if self.prompt is None or self.texts is None:
            raise JudgeError("the judge reads texts, and there are none.")
        texts = [self.texts[item] for item in match.items]
        return prompts.messages(self.prompt, texts, problem, reasons=self.reasons)


class Unusable:
    """Replies of one judge that were no verdicts: each was paid for, and is paid for once more. `most`
    is the share of the last ones that may be so; 1: all. `problems` holds all that was wrong with
    replies that this session read."""

    def __init__(self, most: float = 0.5) -> None:
        self.problems: set[str] = set()
        self._most = most
        self._none_usable = True
        self._last: deque[str | None] = deque(maxlen=LAST)  # what was wrong with each, if anything

    def usable(self) -> None:
        """A reply was a verdict."""
        self._none_usable = False
        self._last.append(None)

    def unusable(self, problem: str, reply: str) -> None:
        """A reply was none. Raises JudgeError when too many were."""
        self.problems.add(problem)
        self._last.append(problem)
        seen = len(self._last)
        problems = Counter(kind_of(one) for one in self._last if one is not None)
        none = self._none_usable and seen >= FIRST
        often = seen == LAST and problems.total() > self._most * LAST
        if self._most == 1 or not (none or often):
            return
        ((usual, times),) = problems.most_common(1)
        example = next(one for one in reversed(self._last) if one and kind_of(one) == usual)
        usable = seen - problems.total()
        could = f"Only {usable}" if usable else "None"
        shown = plain(reply, SHOWN)
        last = f' The last one was "{shown}".' if shown.strip() else ""
        raise JudgeError(
            f"{could} of the last {seen} replies could be used. Reason ({times} of "
            f"{problems.total()}): {example}{last} {advice_for(example)} `--retry-failed` asks them "
            f"again; `--max-invalid` sets the tolerated share (now {self._most:g})."
        )


def advice_for(problem: str) -> str:
    """Return what a user can do about replies with this problem, in one sentence."""
    if problem in (CUT_OFF, THINKING_UNFINISHED):
        return (
            "Give replies more room (--max-output-tokens: a model that reasons may need thousands), or "
            "have it reason less (--reasoning-effort)."
        )
    if problem.startswith(f"{EMPTY}:"):
        return (
            "The server put the answer into the field for reasoning. Turn off its reasoning parser "
            "(vLLM: --reasoning-parser), or the model's thinking (for many by --extra-body "
            """'{"chat_template_kwargs": {"enable_thinking": false}}')."""
        )
    if problem.startswith(EMPTY):
        return "Try another reply format (`--structured json` or `text`), or another model."
    if "content filter" in problem or "refused" in problem:
        return "Try another model or another prompt (`--prompt`): this one won't judge these texts."
    if problem.startswith("each label"):
        return "Take smaller lists (--strategy listwise5, say), pairs, or a larger model."
    return (
        "Try another reply format (`--structured`), another prompt (`--prompt`) or another model."
    )
