"""New texts placed onto a settled scale: as right as all judged together, and for how long."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np

from benchmarks.coverage import true_rho
from benchmarks.hybrid import SHARED, read
from benchmarks.judges import JUDGES, asked, in_the_end
from judgeq import strategies
from judgeq.datasets import load
from judgeq.engine.onto import choose_anchors
from judgeq.rating import ESTIMATORS, Fit, Parameters, placing
from judgeq.rating.comparisons import joined
from judgeq.rating.placing import Batch, Part
from judgeq.settings.run import DatasetSpec
from judgeq.strategies.placing import lists
from judgeq.types import Bools, Floats, Verdicts

OLD, NEW, K, ROUNDS, RUNS = 1000, 200, 10, 3, 20
MONTHS, CHAINS = 10, 40
SPLITS = 5
SPREADS = (0.5, 1.0, 2.0)
FOUR = ("model, sd 2", "vg", "dependent lists", "20 % at random")


class Months:
    """A scale that begins with OLD items, and on which a judge places NEW ones every month, whose true
    values lie a `shift` higher, in standard deviations, and have `spread` times the spread."""

    def __init__(self, judge: str, seed: int, shift: float = 0.0, spread: float = 1.0) -> None:
        self._judge, self.sd = JUDGES[judge]
        self._shift, self._spread = shift, spread
        self.rng = np.random.default_rng(seed)
        self.truth = self.rng.normal(0, self.sd, OLD)
        first = strategies.parse(f"listwise{K}x{ROUNDS}", matchmaking="random")
        self._rounds = list(asked(self._judge, first, self.truth, seed).verdicts)
        self._batches, self.parts = [Batch(OLD, ROUNDS)], list[Part]()
        self.calls = 0
        self.fit = self._fitted()

    def month(self, onto: Sequence[int]) -> None:
        """One more, onto batches of these numbers."""
        new = np.arange(NEW, dtype=np.int32) + len(self.truth)
        added = self.rng.normal(self._shift * self.sd, self._spread * self.sd, NEW)
        self.truth = np.append(self.truth, added)
        among = np.zeros(len(self.fit.theta), np.bool_)
        for number in onto:
            among[self.parts[number].rows] = True
        anchors = choose_anchors(self.fit.theta, among, self.rng)
        for _ in range(ROUNDS):
            matches = lists(new, anchors, K, self.rng)
            self.calls += len(matches)
            self._rounds.append(self._judge(matches, self.truth, self.rng))
        self._batches.append(Batch(NEW, ROUNDS, tuple(onto)))
        self.fit = self._fitted()

    def _fitted(self, *, refit: bool = False) -> Fit:
        self.parts = placing.settled(self._batches, self._rounds, before=self.parts)
        n = len(self.truth)
        return placing.fit(self._batches, self._rounds, n, refit=refit, parts=self.parts)

    def refitted(self) -> Fit:
        """All rated together."""
        return self._fitted(refit=True)

    def judged_together(self, seed: int) -> tuple[Fit, int]:
        """A run of all items from nothing, and its calls."""
        design = strategies.parse(f"listwise{K}x{ROUNDS}", matchmaking="random")
        rounds = asked(self._judge, design, self.truth, seed).verdicts
        together = ESTIMATORS["pl"].fit(joined(rounds), len(self.truth), Parameters())
        return together, sum(map(len, rounds))

    def in_the_end(self) -> Floats:
        """What the judge says of all in the end, with the mean of the first items as 0."""
        theta = in_the_end(self._judge, self.truth, K, self.rng)
        theta -= theta[:OLD].mean()
        return theta


class Month(NamedTuple):
    """Of the new items: ρ with the true values, the median standard error, and the share of intervals
    that hold what the judge says in the end, placed, by a refit, and where all were judged together; the
    error of the link and how far off the mean is, and whether the anchors are found to have moved;
    calls, as a share of those of all together."""

    rho: float
    rho_refit: float
    rho_together: float
    se: float
    se_refit: float
    se_together: float
    covered: float
    covered_refit: float
    covered_together: float
    link: float
    off: float
    moved: float
    calls: float


def _month(judge: str, shift: float, seed: int) -> Month:
    months = Months(judge, seed, shift)
    published = months.fit
    months.month([0])
    fit, (together, calls) = months.fit, months.judged_together(seed + 1000)
    for name in ("theta", "errors"):
        kept = getattr(fit.posterior, name)[:OLD] == getattr(published.posterior, name)
        if not kept.all():
            raise AssertionError("published scores have moved")
    end, truth = months.in_the_end(), months.truth[OLD:]
    rhos, errors, covered = [], [], []
    for one in (fit, months.refitted(), together):
        assert one.posterior is not None
        low, high = one.posterior.interval
        to = end - (end.mean() if one is together else 0)
        rhos.append(true_rho(one.theta[OLD:], truth))
        errors.append(float(np.median(one.posterior.errors[OLD:])))
        covered.append(float(((low <= to) & (to <= high))[OLD:].mean()))
    assert fit.link is not None
    off = float((fit.theta - end)[OLD:].mean())
    share = months.calls / calls
    link = fit.link.error, off, fit.link.p < 0.05, share
    return Month._make([*rhos, *errors, *covered, *link])


def growing() -> None:
    """1,000 items of three rounds of lists, 200 new ones placed onto them, as high on average and one
    standard deviation higher; ten months in a row; batches of another spread; and published judgments.
    Goals: ρ and errors as of a run of all 1,200, by a quarter of its calls; intervals 92 to 98 %; the
    mean of the tenth month 0.15 off at most (root mean square)."""
    print(f"{OLD:,} settled, {NEW} new, {RUNS} runs: placed / refit / all judged together")
    print(
        "judge             higher  ρ                      standard error         intervals hold       "
        "link   off   moved  calls"
    )
    cases = [(judge, shift) for judge in FOUR for shift in (0.0, 1.0)]
    with ProcessPoolExecutor() as pool:
        asked_for = [
            [pool.submit(_month, judge, shift, seed) for seed in range(RUNS)]
            for judge, shift in cases
        ]
        for (judge, shift), futures in zip(cases, asked_for, strict=True):
            runs = np.array([future.result() for future in futures])
            mean = Month._make(runs.mean(axis=0).tolist())
            off = float(np.sqrt(np.mean(runs[:, Month._fields.index("off")] ** 2)))
            triples = [
                " / ".join(f"{value:.3f}" for value in mean[at : at + 3]) for at in (0, 3, 6)
            ]
            print(
                f"{judge:<17} {shift:<7g} {'  '.join(triples)}  {mean.link:.3f}  {off:.3f} "
                f"{mean.moved:.0%}  {mean.calls:.1%}",
                flush=True,
            )
        print(f"{MONTHS} months of {NEW}: how far off the mean of the last is (rms), and its link")
        for judge in FOUR[::2]:
            for name in ONTO:
                chains = np.array(
                    list(pool.map(_chain, [judge] * CHAINS, [name] * CHAINS, range(CHAINS)))
                )
                rms, link = np.sqrt((chains**2).mean(axis=0))
                print(f"{judge:<17} onto {name:<14} {rms:.3f}  {link:.3f}", flush=True)
        print(
            "a batch of another spread: intervals hold, slope of what the judge says in the end, rmse, σ"
        )
        for spread in SPREADS:
            jobs = [pool.submit(_spread, FOUR[0], spread, seed) for seed in range(RUNS)]
            covered, slope, rmse, sigma = np.mean([job.result() for job in jobs], axis=0)
            print(
                f"{FOUR[0]:<17} ×{spread:<5g} {covered:.3f}  {slope:.2f}  {rmse:.3f}  {sigma:.2f}",
                flush=True,
            )
    held_out()


def _spread(judge: str, spread: float, seed: int) -> tuple[float, float, float, float]:
    """Of a batch that is `spread` times as wide as the settled texts: the share of intervals that hold
    what the judge says in the end, the slope of that on the scores, how far off these are, and σ."""
    months = Months(judge, seed, spread=spread)
    months.month([0])
    fit, end = months.fit, months.in_the_end()[OLD:]
    assert fit.posterior is not None
    low, high = (side[OLD:] for side in fit.posterior.interval)
    scores = fit.theta[OLD:]
    slope = np.cov(end, scores)[0, 1] / scores.var(ddof=1)
    rmse = np.sqrt(np.mean((scores - end) ** 2))
    covered = np.mean((low <= end) & (end <= high))
    return float(covered), float(slope), float(rmse), float(fit.posterior.sigma)


ONTO: dict[str, Callable[[int], Iterable[int]]] = {
    "the first": lambda month: [0],
    "all so far": range,
    "the one before": lambda month: [month - 1],
}


def _chain(judge: str, onto: str, seed: int) -> tuple[float, float]:
    """How far off the mean of the last month is, and the error of its link."""
    months = Months(judge, seed)
    for month in range(1, MONTHS + 1):
        months.month(list(ONTO[onto](month)))
    assert months.fit.link is not None
    off = months.fit.theta - months.in_the_end()
    return float(off[-NEW:].mean()), months.fit.link.error


def held_out() -> None:
    """Published judgments of GPT-5-mini: of four fifths of the texts the first two rounds are February;
    the others are placed by the third round. Their own first two rounds, rated by February's σ, say
    where they should be. Both are pulled to the mean by the same prior, so that V1 + V2 − 2·V1·V2/σ² is
    the variance of what is between them."""
    if not (SHARED / "recordings").exists():
        print("the recordings aren't at ../shared")
        return
    print(f"texts placed by one round of recorded lists, against two of their own: {SPLITS} splits")
    print("           link   r with them  off     within 95 %  r with gold: placed, together")
    for title, name in (("BABE", "babe"), ("Us vs. Them", "us_vs_them")):
        data = load(DatasetSpec(dataset=name, data_dir=SHARED / "data"), download=False)
        assert data.gold is not None
        rounds = read(name, "listwise10x3")
        splits = [_held_out(rounds, data.gold, seed) for seed in range(SPLITS)]
        link, r, off, within, *by_gold = np.mean(splits, axis=0).tolist()
        print(
            f"{title:<11} {link:.3f}  {r:.3f}        {off:+.3f}  {within:.1%}        "
            f"{by_gold[0]:.3f}, {by_gold[1]:.3f}",
            flush=True,
        )


def _held_out(rounds: Sequence[Verdicts], gold_of: Floats, seed: int) -> list[float]:
    n = len(gold_of)
    settled = np.zeros(n, np.bool_)
    settled[np.random.default_rng(seed).permutation(n)[: n * 4 // 5]] = True
    row = np.empty(n, np.int32)  # the settled ones first
    row[np.argsort(~settled, kind="stable")] = np.arange(n)
    old = int(settled.sum())
    every = [*(_of(one, row, row < old) for one in rounds[:2]), _of(rounds[2], row, row < n)]
    batches = [Batch(old, 2), Batch(n - old, 1, (0,))]
    fit = placing.fit(batches, every, n)
    refit = placing.fit(batches, every, n, refit=True)
    whole = joined([_of(one, row, row < n) for one in rounds[:2]])
    alone = ESTIMATORS["pl"].fit(whole, n, Parameters(fit.sigma))
    assert fit.link is not None
    assert fit.sigma is not None
    assert fit.posterior is not None
    assert alone.posterior is not None
    gold = np.empty(n)
    gold[row] = gold_of
    own = alone.theta - alone.theta[:old].mean()
    new = slice(old, n)
    apart = (fit.theta - own)[new]
    one, other = (errors[new] ** 2 for errors in (fit.posterior.errors, alone.posterior.errors))
    errors = np.sqrt(one + other - 2 * one * other / fit.sigma**2)
    told = ~np.isnan(gold)
    told[:old] = False
    return [
        fit.link.error,
        float(np.corrcoef(fit.theta[new], own[new])[0, 1]),
        float(apart.mean()),
        float((np.abs(apart) < 1.96 * errors).mean()),
        *(float(np.corrcoef(each.theta[told], gold[told])[0, 1]) for each in (fit, refit)),
    ]


def _of(verdicts: Verdicts, row: np.ndarray, kept: Bools) -> Verdicts:
    """Rankings of the texts that are `kept`, under new row numbers; those of one text are left out."""
    inside = kept[verdicts.items]
    match = np.repeat(np.arange(len(verdicts)), np.diff(verdicts.offsets))
    sizes = np.bincount(match[inside], minlength=len(verdicts))
    inside &= sizes[match] > 1
    shown = kept[verdicts.presented] & (sizes[match] > 1)
    sizes = sizes[sizes > 1]
    items = row[verdicts.items[inside]]
    return Verdicts(
        np.arange(len(sizes)),
        items,
        np.append(0, np.cumsum(sizes)),
        np.zeros(len(items), np.bool_),
        row[verdicts.presented[shown]],
    )
