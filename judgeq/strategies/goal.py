"""When enough is known: what `--until` says."""

from __future__ import annotations

from dataclasses import dataclass

from judgeq.rating.certainty import Focus, above, first

SETTLED = 0.95
"""The share of the first items that have to be among the first in draws of the posterior."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a run ends at: ρ̂, or the first `top` items settled, or all labels, or any of them. None of
    them: when its rounds are over."""

    rho: float | None = None
    top: int | None = None
    labels: bool = False

    @classmethod
    def read(cls, text: str | None, *, labels: bool = False) -> Goal:
        """What `--until` says, as the setting lets it be said: "0.95", "top20", "labels"."""
        if text is None or text == "labels":
            return cls(labels=labels or text == "labels")
        if text.startswith("top"):
            return cls(top=int(text[3:]), labels=labels)
        return cls(rho=float(text), labels=labels)

    def __bool__(self) -> bool:
        return self != Goal()

    @property
    def name(self) -> str:
        """As it is written: "0.95", "top20", "labels", "0.95 or labels"."""
        rho = [] if self.rho is None else [f"{self.rho:g}"]
        top = [] if self.top is None else [f"top{self.top}"]
        return " or ".join([*rho, *top, *(["labels"] if self.labels else [])])

    @property
    def focus(self) -> Focus | None:
        """Which items an adaptive strategy has to tell from the others; None: all."""
        if self.top is not None:
            return first(self.top)
        return above(0.0) if self.labels else None

    def reached(self, rho: float, top_share: float | None) -> bool:
        """Whether an order is known well enough, of which this is ρ̂ and the share of the first items."""
        if self.rho is not None and rho >= self.rho:
            return True
        return self.top is not None and top_share is not None and top_share >= SETTLED
