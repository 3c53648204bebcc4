"""What can be known of a run's scores without gold: how reliable they are, which judges and items don't
fit them, and whether longer texts score higher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from judgeq import seeds
from judgeq.engine.results import Result
from judgeq.engine.scores import Scores
from judgeq.errors import UsageError
from judgeq.evaluation.metrics import Measured, bootstrap
from judgeq.rating import (
    ESTIMATORS,
    Estimator,
    Parameters,
    comparisons,
    correlation,
    scale_quality,
)
from judgeq.rating.comparisons import Comparisons, joined
from judgeq.rating.scale_quality import Fit, Separation, SplitHalf
from judgeq.types import Floats, Verdicts

MOST = 2_000_000
"""Comparisons above which the SSR of comparative judgement would take long, and is left out."""
ONE_ANSWER = "one round of comparisons can't show reliability: nothing is repeated"
MADE_UP = "the answers are made up"
EPSILON, ITERATIONS, TOLERANCE = 0.3, 400, 1e-4
"""Those of sirt's `btm`."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """How reliable the rating `rating` is: its separation; `separation_cj`, as published studies of
    comparative judgement have it (`cj`); and split halves, each rated by the estimator `halves_by`.

    `adaptive`: earlier answers decided what was asked later, which makes separations too high; None
    where it isn't known how the judgments were chosen.
    """

    rating: str
    separation: Separation
    separation_cj: Separation
    split_half: SplitHalf
    halves_by: str
    adaptive: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Misfit:
    """What doesn't fit the rating `rating`: by judge (None where there is one alone, which can't be
    compared with others) and by item. Of items judged alone there is nothing of it, and `why`."""

    rating: str
    judges: Fit | None
    items: Fit | None
    why: str | None = None


def fitted(run: Result) -> Parameters:
    """By what parts of a run's judgments are rated: as all of them were, with the σ that these chose."""
    sigma = run.parameters.sigma if run.fit.sigma is None else run.fit.sigma
    return Parameters(sigma, run.fit.position)


def quick(estimator: Estimator) -> Estimator:
    """The estimator that rates parts of the judgments many times over: not one that takes minutes."""
    return ESTIMATORS["bt"] if estimator.name == "bt-mm" else estimator


def reliability_of(run: Result, splits: int | None = None, seed: int = 0) -> Reliability:
    """How reliable a run's main rating is; `splits` as of `split_half`. Raises UsageError."""
    if splits is not None and splits < 0:
        raise UsageError(f"--splits {splits}: give 0 or more.")
    strategy, scores, verdicts = run.history.strategy, run.scores, joined(run.history.verdicts)
    halves, parameters = quick(run.main), fitted(run)

    def rate(half: Verdicts, n: int) -> Floats:
        return halves.fit(half, n, parameters).maximum

    separation = scale_quality.separation(scores.main[1], scores.se, scores.component)
    if scores.intervals is None:
        separation = Separation(why=f"the estimator {run.main.name} has no standard errors")
    one_answer = run.fit.posterior is not None and not run.fit.posterior.is_repeated
    if one_answer:  # both would be the same whatever was answered
        separation = Separation(why=ONE_ANSWER)
    if run.info.settings.rehearsal:
        separation = Separation(why=MADE_UP)
    return Reliability(
        rating=run.main.column,
        separation=separation,
        separation_cj=separation
        if separation.why in (ONE_ANSWER, MADE_UP)
        else _separation_cj(verdicts, run),
        split_half=scale_quality.split_half(verdicts, rate, seed, splits),
        halves_by=halves.name,
        adaptive=None if strategy is None else strategy.adaptive,
    )


def _separation_cj(verdicts: Verdicts, run: Result) -> Separation:
    if run.history.alone:
        return Separation(why="items judged alone imply no comparisons")
    if verdicts.sizes.max(initial=0) > 2:
        # It takes pairs for independent: of lists ranked as presented it was 0.98.
        return Separation(why="the pairs that a list implies aren't independent of one another")
    if (count := int((verdicts.sizes * (verdicts.sizes - 1) // 2).sum())) > MOST:
        return Separation(why=f"{count:,} comparisons would take long")
    component = run.scores.component
    theta, se = cj(comparisons.imply(verdicts), len(component))
    return scale_quality.separation(theta, se, component, likeliest=True)


def cj(compared: Comparisons, n: int) -> tuple[Floats, Floats]:
    """θ and its standard error as published studies of comparative judgement estimate them, each of
    shape (n,), nan for items that were never compared.

    It is what `btm` of the R package sirt (Robitzsch) does by default, without its parameters for ties
    and home advantage: maximum likelihood with wins drawn in by ε, each iteration taking a Newton step
    of every item at once, of 0.98^iteration at most, and centring; standard errors are from the diagonal
    of the information of the last step, as if all other items were known. A tie is half a win each way.
    """
    n_compared = len(compared.winner)
    rows, own = np.unique(np.append(compared.winner, compared.loser), return_inverse=True)
    theta, se = np.full((2, n), np.nan)
    if not len(rows):
        return theta, se
    other, weight = np.roll(own, n_compared), np.tile(compared.weight, 2)

    def total(of: Floats) -> Floats:
        """The sum over each item's comparisons, each of which stands once for the winner, then once for
        the loser."""
        return np.bincount(own, of, len(rows)).astype(np.float64)

    asked, won = total(weight), np.bincount(own[:n_compared], compared.weight, len(rows))
    score = EPSILON + (1 - 2 * EPSILON / asked) * won
    share = (score / asked + 0.1) / 1.2
    values = np.log(share / (1 - share))
    values -= values.mean()
    for iteration in range(1, ITERATIONS + 1):
        p = 1 / (1 + np.exp(values[other] - values[own]))
        information, before = total(weight * p * (1 - p)), values
        step, largest = (score - total(weight * p)) / information, 0.98**iteration
        values = values + np.clip(step, -largest, largest)
        values -= values.mean()
        if np.abs(values - before).max() <= TOLERANCE:
            break
    theta[rows], se[rows] = values, 1 / np.sqrt(information)
    return theta, se


def misfit_of(run: Result) -> Misfit:
    """What doesn't fit a run's main rating."""
    (main, theta), names, judges = run.scores.main, run.judges, None
    if run.history.alone:
        return Misfit(main, None, None, "items judged alone imply no comparisons")
    verdicts = joined(run.history.verdicts)
    if len(names) > 1:
        # Each order of a pair is answered by another person.
        asked = verdicts if run.said is None else joined(run.history.asked)
        judges = replace(scale_quality.fit_of_judges(asked, theta, len(names)), names=names)
    items = replace(scale_quality.fit_of_items(verdicts, theta), names=run.items.ids)
    return Misfit(main, judges, items)


def with_length(scores: Scores, texts: Sequence[str], times: int, seed: int) -> Measured:
    """Spearman's ρ of the main rating with the length of the texts, over judged items, with its 95 %
    interval from `times` resamples: rewarding length is the commonest fault of judges."""
    rows = np.flatnonzero(scores.scored)
    lengths = np.array([*map(len, texts)], dtype=np.float64)[rows]
    part = None if scores.group is None else scores.group[rows]
    measure = {"": correlation.spearman(scores.main[1][rows], lengths, part)}
    found = bootstrap(measure, len(rows), times, seeds.rng(seed, "bootstrap", "length"))[""]
    why = "all texts are of one length, or all scores equal"
    return Measured(None, why=why) if found.value is None else found
