"""When enough is known: what `--until` says."""

from __future__ import annotations

from dataclasses import dataclass

SETTLED = 0.95
"""The share of the first items that have to be among the first in draws of the posterior."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a run ends at: ρ̂, or the first `top` items settled. None of them: when its rounds are
    over."""

    rho: float | None = None
    top: int | None = None

    @classmethod
    def read(cls, text: str | None) -> Goal:
        """What `--until` says, as the setting lets it be said: "0.95", "top20"."""
        if text is None:
            return cls()
        return cls(top=int(text[3:])) if text.startswith("top") else cls(rho=float(text))

    def __bool__(self) -> bool:
        return self != Goal()

    @property
    def name(self) -> str:
        """As it is written."""
        if self.rho is not None:
            return f"{self.rho:g}"
        return "" if self.top is None else f"top{self.top}"

    def reached(self, rho: float, top_share: float | None) -> bool:
        """Whether an order is known well enough, of which this is ρ̂ and the share of the first items."""
        if self.rho is not None and rho >= self.rho:
            return True
        return self.top is not None and top_share is not None and top_share >= SETTLED
