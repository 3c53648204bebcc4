"""How well an order is known, in numbers that can be shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Certainty:
    """How well the order is known after a round: agreement with the judge, not with the truth.

    `rho` is ρ̂, the expected Spearman's ρ between the ratings and what they may be, and `next_rho`
    what it is expected to be after one more round, which would take `next_calls` questions (0: there
    can't be one) and `next_cost` dollars (None: unknown). Where the first `top` items matter,
    `top_share` is the share of them that are expected among the first.
    """

    round: int
    rho: float
    next_rho: float | None
    next_calls: int
    next_cost: float | None = None
    top: int | None = None
    top_share: float | None = None
    next_top_share: float | None = None
