"""Replies that are no verdicts: how much of one is kept, and when a run of them is stopped, since each
is paid for, asked again, and paid for once more."""

from __future__ import annotations

import hashlib
from collections import Counter, deque

from judgeq.errors import JudgeError

FIRST = 10
"""When none of so many first replies is usable, the next won't be."""
LAST = 100
"""Replies whose unusable share is looked at, once so many came."""
MOST = 0.5
SHOWN = 100  # characters of a reply

KEPT = 65_536
"""Bytes that are kept of a reply."""

_CUT_OFF = (
    "Give the replies more room (--max-output-tokens; a model that reasons may need thousands), or have "
    "it reason less (--reasoning-effort)"
)
_REFUSED = "Take another model, or other words (--prompt)"
_OTHERS = (
    "Take another model, or ask for the form otherwise (--structured schema, json or text); `judgeq "
    "prompts show` prints what is sent"
)
_ADVICE = {"cut off at the limit": _CUT_OFF, "refused": _REFUSED, "content filter": _REFUSED}


def kept(reply: str) -> str:
    """A masked reply as the ledger keeps it: its beginning, with a note of its length and checksum where
    it was cut. It may have megabytes, and a run many like it."""
    data = reply.encode(errors="replace")
    if len(data) <= KEPT:
        return reply
    begun, digest = data[:KEPT].decode(errors="ignore"), hashlib.sha256(data).hexdigest()
    return f"{begun}\n[cut here: the reply had {len(data):,} bytes, with the SHA-256 {digest}]"


class Unusable:
    """The last replies of one judge. `most` is the share of them that may be unusable; 1: all.
    `problems` holds all that was wrong with replies that this session read."""

    def __init__(self, most: float = MOST) -> None:
        self.problems: set[str] = set()
        self._most = most
        self._replies = 0
        self._usable = 0
        self._last: deque[str | None] = deque(maxlen=LAST)  # what was wrong with each, if anything
        self._unusable = 0  # of the last

    def usable(self) -> None:
        """A reply was a verdict."""
        self._usable += 1
        self._add(None)

    def unusable(self, problem: str, reply: str) -> None:
        """A reply was none. Raises JudgeError when too many were."""
        self._add(problem)
        self.problems.add(problem)
        none = self._replies >= FIRST and not self._usable
        often = self._replies >= LAST and self._unusable / LAST > self._most
        if self._most < 1 and (none or often):
            raise JudgeError(self._message(problem, reply))

    def _add(self, problem: str | None) -> None:
        if len(self._last) == LAST:
            self._unusable -= self._last[0] is not None
        self._last.append(problem)
        self._unusable += problem is not None
        self._replies += 1

    def _message(self, problem: str, reply: str) -> str:
        problems = Counter(problem for problem in self._last if problem is not None)
        usual, times = problems.most_common(1)[0]
        share = f"none of the first {self._replies} replies"
        if self._usable:
            share = f"only {LAST - self._unusable} of the last {LAST} replies"
        said = (
            f"what is wrong: {usual}" if times == self._unusable else f"mostly ({times}): {usual}"
        )
        advice = next((text for words, text in _ADVICE.items() if words in usual), _OTHERS)
        return (
            f"{share} could be used; {said} The last one began {_shown(reply)}. {advice}. The run was "
            "stopped so that no more is paid for that; --max-invalid sets how large the unusable share "
            f"may be (now {self._most:g}), and --retry-failed asks again what is invalid."
        )


def _shown(reply: str) -> str:
    """The start of a reply, on one line and quoted."""
    words = " ".join("".join(c if c.isprintable() else " " for c in reply[: 4 * SHOWN]).split())
    if not words:
        return "with nothing: it was empty"
    return f'"{words}"' if len(words) <= SHOWN else f'"{words[:SHOWN]}…"'
