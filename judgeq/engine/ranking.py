"""The ranking after a round, as the event that reports it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from judgeq.certainty import Certainty
from judgeq.events import Placed, RoundRated
from judgeq.rating import correlation
from judgeq.types import Floats

SHOWN = 3
"""So many items are reported from each end."""
_TEXT = 200


def round_rated(
    round: int,
    before: Floats,
    after: Floats,
    ids: Sequence[str],
    texts: Sequence[str] | None,
    known: Certainty | None = None,
) -> RoundRated:
    """A round that took the ratings from `before` to `after`, both of shape (items,); an item without a
    rating (nan) counts as 0."""
    after = np.nan_to_num(after)
    moved = (
        correlation.point(correlation.spearman(before, after), len(after)) if round > 1 else None
    )

    def placed(rows: Sequence[int]) -> list[Placed]:
        shown = (None if texts is None else texts[row][:_TEXT] for row in rows)
        return [
            Placed(ids[row], text, float(after[row])) for row, text in zip(rows, shown, strict=True)
        ]

    order = np.lexsort((np.arange(len(after)), -after)).tolist()
    shown = min(SHOWN, len(after))
    return RoundRated(
        round, moved, placed(order[:shown]), placed(order[len(order) - shown :]), known
    )
