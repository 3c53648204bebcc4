"""How often a run is stopped whose judge leans to the order presented, as one that doesn't read."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from itertools import product

from judgeq import seeds
from judgeq.rating.unread import AnswerPatterns
from judgeq.types import Verdict

RUNS, QUESTIONS = 400, 4_000
SHARES = (0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
DESIGNS = {"pairs": (2, False), "pairs, --both-orders": (2, True), "lists of 3": (3, False)}


def reading() -> None:
    """400 runs of 4,000 questions whose answer is the order presented with a given probability, and else
    the reverse: how many in 100 are stopped, by their first answers and in all. The table of
    docs/judges.md. Goal: next to none up to 0.9, and all at 1."""
    cells = list(product(DESIGNS, SHARES))
    with ProcessPoolExecutor() as processes:
        found = dict(zip(cells, processes.map(stopped, cells), strict=True))
    print("| | " + " | ".join(f"{share:.2f}" for share in SHARES) + " |")
    print("|---|" + "---|" * len(SHARES))
    for design in DESIGNS:
        row = [
            f"{100 * first:.1f}, {100 * ever:.1f}"
            for first, ever in (found[design, share] for share in SHARES)
        ]
        print(f"| {design} | " + " | ".join(row) + " |")


def stopped(about: tuple[str, float]) -> tuple[float, float]:
    """Return the share of runs that are stopped by their first 80 answers, and in all."""
    design, share = about
    size, both_orders = DESIGNS[design]
    presented = tuple(range(size))
    verdicts = Verdict(presented[::-1]), Verdict(presented)
    stops = []
    for run in range(RUNS):
        follows = seeds.rng(run, "reading", design).random(QUESTIONS) < share
        patterns = AnswerPatterns(both_orders=both_orders)
        for number, as_presented in enumerate(follows.tolist(), 1):
            patterns.add(presented, verdicts[as_presented])
            if patterns.problem is not None:
                stops.append(number)
                break
    return sum(number <= 80 for number in stops) / RUNS, len(stops) / RUNS
