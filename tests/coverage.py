"""How often 95 % intervals hold, counted over simulated runs of judges that fit the model and of
others: `python -m tests.coverage` prints the table, `test_coverage.py` looks at some of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np

from judgeq import seeds, strategies
from judgeq.judge import error_model
from judgeq.rating import Fit, Parameters, plackett_luce
from judgeq.rating.comparisons import joined
from judgeq.rating.intervals import intervals, ranks
from judgeq.settings import Simulation
from judgeq.strategies import History
from judgeq.types import Floats, Matches, Verdicts

AT_RANDOM = {"lists": "listwise10", "pairs": "pairwise15"}
"""Three rounds of lists of 10 and fifteen of pairs, at random."""
DESIGNS = ("lists", "listwise10", "pairs", "pairwise24")
"""The strategies match what is rated alike."""
MANY = 1000
"""So many answers an item are taken for what a judge says in the end."""
Judge = Callable[[Matches, Floats, np.random.Generator], Verdicts]


def answered(matches: Matches, noisy: Floats) -> Verdicts:
    """Lists ranked by values by slot."""
    number = np.repeat(np.arange(len(matches)), matches.sizes)
    items = matches.items[np.lexsort((-noisy, number))]
    tied = np.zeros(len(items), dtype=np.bool_)
    return Verdicts(np.arange(len(matches)), items, matches.offsets, tied, matches.items)


def gumbel(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """Fits Plackett-Luce."""
    return answered(matches, truth[matches.items] + rng.gumbel(size=len(matches.items)))


def careless(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """As `gumbel`, and answers every fifth list at random."""
    noisy = truth[matches.items] + rng.gumbel(size=len(matches.items))
    at_random = np.repeat(rng.random(len(matches)) < 0.2, matches.sizes)
    return answered(matches, np.where(at_random, rng.random(len(noisy)), noisy))


def laplace(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """`vg`: noise by item that isn't Gumbel's, and lapses."""
    return error_model.answers(matches, 75 * truth, Simulation(sim_model="vg"), rng)


def by_pair(matches: Matches, truth: Floats, rng: np.random.Generator) -> Verdicts:
    """All pairs of a list are drawn independently, and it is ranked by wins."""
    return error_model.answers(matches, 75 * truth, Simulation(sim_model="rrt"), rng)


JUDGES = (gumbel, laplace, by_pair, careless)


class Counted(NamedTuple):
    """The shares of items whose rating, and whose true rank, lies within its interval; and σ."""

    ratings: float
    ranks: float
    sigma: float


def counted(
    judge: Judge,
    design: str,
    n: int,
    runs: Iterable[int],
    spread: float = 2.0,
    fit: Callable[..., Fit] = plackett_luce.fit,
) -> Counted:
    """Over runs of these seeds, of n items whose true values have the sd `spread`; σ chosen. The rating
    that should be covered is the same judge's after MANY answers an item."""
    of_each = [_of_run(judge, design, n, seed, spread, fit) for seed in runs]
    ratings, of_ranks, sigma = np.mean(of_each, axis=0).tolist()
    return Counted(ratings, of_ranks, sigma)


def _of_run(
    judge: Judge, design: str, n: int, seed: int, spread: float, fit: Callable[..., Fit]
) -> Counted:
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, spread, n)
    k = 2 if design in ("pairs", "pairwise24") else 10
    many = fit(judge(at_random(n, k, MANY // k, rng), truth, rng), n, Parameters(sigma=20.0))
    history = History.begin(n, strategies.parse(AT_RANDOM.get(design, design)), seed)
    for round in history.to_come():
        drawn = design in AT_RANDOM
        matches = at_random(n, k, 1, rng) if drawn else history.next_round()
        answers = judge(matches, truth, seeds.rng(seed, "answers", round))
        history.add(answers, len(matches))
    rated = fit(joined(history.verdicts), n, Parameters())
    assert rated.posterior is not None
    assert rated.sigma is not None
    sure = intervals(rated.posterior)
    rank = ranks(truth, np.ones(n, dtype=np.int64))
    return Counted(
        float(((sure.low <= many.theta) & (many.theta <= sure.high)).mean()),
        float(((sure.rank_low <= rank) & (rank <= sure.rank_high)).mean()),
        rated.sigma,
    )


def at_random(n: int, k: int, rounds: int, rng: np.random.Generator) -> Matches:
    """Partitions of all items into lists of k, at random."""
    items = np.concatenate([rng.permutation(n)[: n // k * k] for _ in range(rounds)])
    return Matches(items.astype(np.int32), np.arange(len(items) // k + 1, dtype=np.int64) * k)


def main() -> None:
    """200 items, ten runs each, true values of sd 2 and 4."""
    print("ratings and true ranks within their 95 % intervals, in %; and σ")
    print("judge    sd" + "".join(f"{design:>16}" for design in DESIGNS))
    for judge in JUDGES:
        for spread in (2.0, 4.0):
            cells = ""
            for design in DESIGNS:
                share = counted(judge, design, 200, range(10), spread)
                cells += f"{share.ratings:7.0%} {share.ranks:4.0%} {share.sigma:3.1f}"
            print(f"{judge.__name__:8} {spread:2.0f}{cells}", flush=True)


if __name__ == "__main__":
    main()
