"""The most that a call of a model can cost: before it is sent, and when its answer never came.

What a server is sent as its limit need not hold (some count reasoning beside it, some don't know the
field), so a reply that cost more than its bound raises the bound of all that follow.
"""

from __future__ import annotations

from collections.abc import Callable

from judgeq.judge.model import OUTPUT_BOUND
from judgeq.judge.prices import Pricing
from judgeq.types import Usage

HIDDEN = 256
"""Tokens that a server may add to what it is sent: roles, the schema's frame."""
RAISE = 2.0
"""By how much the new bound exceeds the reply that broke the old one."""
ENOUGH = 20
"""So many replies say how long the others may be."""
LONGEST = 4
"""A lost reply is taken to be at most so many times as long as the longest of those that came."""


class Bounds:
    """Bounds in dollars, by the bytes of a request; None where the price is unknown.

    `output_limit` is what the server is sent, None if it is sent none: then a reply is taken to have
    `output_bound` tokens at most. `warn` gets a warning when a reply has cost more than its bound.
    """

    def __init__(
        self,
        pricing: Pricing | None,
        output_limit: int | None,
        warn: Callable[[str], None] = lambda _: None,
        output_bound: int = OUTPUT_BOUND,
    ) -> None:
        self._pricing = pricing
        self._limit = output_limit
        self._most = output_limit or output_bound
        self._warn = warn
        self._factor = 1.0
        self._replies = 0
        self._longest = 0

    def most(self, size: int) -> float | None:
        """The most that a call of `size` bytes can cost."""
        return self._of(size, self._most)

    def lost(self, size: int) -> float | None:
        """The most that a call whose answer was lost is taken to have cost, where no limit is sent and
        enough replies came to say so; None: as `most`."""
        if self._limit is not None or self._replies < ENOUGH:
            return None
        return self._of(size, min(self._most, LONGEST * self._longest))

    def learn(self, size: int, usage: Usage, cost: float | None) -> bool:
        """A call of `size` bytes took so much, in tokens and dollars. Whether that raised the bounds."""
        self._replies += 1
        self._longest = max(self._longest, usage.output)
        bound = self.most(size)
        if cost is None or bound is None or cost <= bound * (1 + 1e-9):
            return False
        self._factor *= RAISE * cost / bound
        self._warn(
            f"A reply cost ${cost:.3g}, and its bound was ${bound:.3g}: it took {usage.output:,} output "
            f"tokens ({usage.reasoning:,} of them reasoning), bounded by {self._most:,}, and "
            f"{usage.input + usage.cached:,} input tokens. The server doesn't keep to the limit, or "
            "counts reasoning beside it. The calls that follow are reserved for --max-cost with "
            f"{self._factor:,.3g} times their bound; what is in flight now may exceed the cap."
        )
        return True

    def _of(self, size: int, output: int) -> float | None:
        # No tokenizer makes more tokens than there are bytes.
        if self._pricing is None:
            return None
        return self._pricing.bound(size + HIDDEN, output) * self._factor
