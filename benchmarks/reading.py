"""How often a run is stopped whose judge leans to the order presented, as one that doesn't read."""

from __future__ import annotations

import numpy as np

from judgeq import seeds
from judgeq.rating.unread import SHORT_ANSWERS, SHORT_SHARE, AnswerPatterns
from judgeq.types import Bools, Verdict

RUNS, QUESTIONS = 400, 4_000
SHARES = (0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
DESIGNS = {"pairs, or lists of 3 or 4": False, "pairs, `--both-orders`": True}


def reading() -> None:
    """400 runs of 4,000 questions whose answer is the order presented with a given probability, and else
    the reverse: how many in 100 are stopped by their first answers, and later. The table of
    docs/judges.md. Goal: next to none up to 0.9, and all at 1."""
    print("| | " + " | ".join(f"{share:.2f}" for share in SHARES) + " |")
    print("|---|" + "---|" * len(SHARES))
    for design, both_orders in DESIGNS.items():
        first = first_answers(both_orders)
        cells = []
        for share in SHARES:
            follows = seeds.rng(0, "reading").random((RUNS, QUESTIONS)) < share
            stops = np.array([stopped_after(one, first) for one in follows])
            by_first, later = float((stops == first).mean()), float((stops > first).mean())
            cells.append(f"{100 * by_first:.1f} + {100 * later:.1f}")
        print(f"| {design} | " + " | ".join(cells) + " |")


def first_answers(both_orders: bool) -> int:
    """Return by how many first answers a judge is stopped that always takes the first text of pairs."""
    patterns = AnswerPatterns(both_orders=both_orders)
    number = 0
    while patterns.problem is None:
        patterns.add((0, 1), Verdict((0, 1)))
        number += 1
    return number


def stopped_after(follows: Bools, first: int) -> int:
    """Return after how many answers AnswerPatterns stops a judge, 0 for never: `first` in the order
    presented, or in the reverse, or nearly all of the last ones. (A test compares them.)"""
    if follows[:first].all() or not follows[:first].any():
        return first
    sums = np.cumsum(np.append(0, follows))
    in_order = sums[SHORT_ANSWERS:] - sums[:-SHORT_ANSWERS]
    most = np.maximum(in_order, SHORT_ANSWERS - in_order)
    (ends,) = np.nonzero(most >= SHORT_SHARE * SHORT_ANSWERS)
    return int(ends[0]) + SHORT_ANSWERS if len(ends) else 0
