"""What can be known of a run's scores without gold: how reliable they are, which judges, items and
judgments don't fit them, and whether longer texts score higher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from judgeq import seeds
from judgeq.engine.results import Result
from judgeq.engine.scores import Scores
from judgeq.errors import UsageError
from judgeq.evaluation import trail
from judgeq.evaluation.metrics import Measured, bootstrap
from judgeq.evaluation.trail import Judgment
from judgeq.rating import ESTIMATORS, Parameters, comparisons, correlation, misfit, reliability
from judgeq.rating.misfit import Fit
from judgeq.rating.reliability import Separation, SplitHalf
from judgeq.types import Floats, Verdicts

LEAST_EXPECTED = 10
"""Judgments listed that are least expected."""
_QUICK = {"bt-mm": "bt"}
"""The estimator that rates halves of the judgments in place of one that takes minutes."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """How reliable the rating `rating` is: its separation, and split halves, each rated by
    the estimator `halves_by`.

    `adaptive`: earlier answers decided what was asked later, which makes the separation too high; None
    where it isn't known how the judgments were chosen.
    """

    rating: str
    separation: Separation
    split_half: SplitHalf
    halves_by: str
    adaptive: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class Misfit:
    """What doesn't fit the rating `rating`: by judge (None where there is one alone, which can't be
    compared with others) and by item; and the judgments `least_expected`, the worst first. Of items
    judged alone there is nothing of it, and `why`."""

    rating: str
    judges: Fit | None
    items: Fit | None
    least_expected: Sequence[Judgment]
    why: str | None = None


def reliability_of(run: Result, splits: int | None = None, seed: int = 0) -> Reliability:
    """How reliable a run's main rating is; `splits` as of `split_half`. Raises UsageError."""
    if splits is not None and splits < 0:
        raise UsageError(f"--splits {splits}: give 0 or more.")
    history = run.history
    verdicts = comparisons.joined(history.verdicts)
    halves = ESTIMATORS[_QUICK.get(run.main.name, run.main.name)]
    # σ as it was chosen from all judgments.
    sigma = run.parameters.sigma if run.fit.sigma is None else run.fit.sigma
    parameters = Parameters(sigma, position=False)

    def rate(half: Verdicts, n: int) -> Floats:
        return halves.fit(half, n, parameters).theta

    strategy = history.strategy
    return Reliability(
        rating=run.main.column,
        separation=_separation(run),
        split_half=reliability.split_half(verdicts, rate, seed, splits),
        halves_by=halves.name,
        adaptive=None if strategy is None else strategy.adaptive,
    )


def _separation(run: Result) -> Separation:
    se, component = run.scores.se, run.scores.component
    if np.isnan(se).all():
        return Separation(None, None, 0, f"the estimator {run.main.name} has no standard errors")
    se = np.where(component > 0, se, np.nan)
    return reliability.separation(run.scores.main[1], se, component)


def misfit_of(run: Result) -> Misfit:
    """What doesn't fit a run's main rating."""
    main, theta = run.scores.main
    if run.history.alone:
        return Misfit(main, None, None, [], "items judged alone imply no comparisons")
    verdicts, judges = comparisons.joined(run.history.verdicts), None
    names = run.info.judges or run.info.settings.judges
    several = len(names) > 1 and verdicts.judges is not None
    if several:
        # Each order of a pair is answered by another person.
        asked = run.history.verdicts if run.said is None else run.history.asked
        judges = misfit.fit_of_judges(comparisons.joined(asked), theta, len(names))
        judges = replace(judges, names=names)
    return Misfit(
        rating=main,
        judges=judges,
        items=replace(misfit.fit_of_items(verdicts, theta), names=run.items.ids),
        least_expected=_least_expected(run, verdicts),
    )


def _least_expected(run: Result, verdicts: Verdicts) -> list[Judgment]:
    surprise = misfit.surprise(verdicts, run.scores.main[1])
    least = np.argsort(-surprise, kind="stable")[:LEAST_EXPECTED].tolist()
    return [trail.judgment(run, verdicts, at, float(surprise[at])) for at in least]


def with_length(scores: Scores, texts: Sequence[str], times: int, seed: int) -> Measured:
    """Spearman's ρ of the main rating with the length of the texts, over judged items, with its 95 %
    interval from `times` resamples: rewarding length is the commonest fault of judges."""
    rows = np.flatnonzero(scores.scored)
    lengths = np.array([*map(len, texts)], dtype=np.float64)[rows]
    measure = {"": correlation.spearman(scores.main[1][rows], lengths)}
    found = bootstrap(measure, len(rows), times, seeds.rng(seed, "bootstrap", "length"))[""]
    why = "all texts are of one length, or all scores equal"
    return Measured(None, why=why) if found.value is None else found
