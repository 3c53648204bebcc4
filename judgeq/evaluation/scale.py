"""What a run's judgments say about its own scale, without gold: how reliable it is, and who or what
doesn't fit it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from judgeq.engine.results import Result
from judgeq.errors import UsageError
from judgeq.rating import ESTIMATORS, Parameters, comparisons, misfit, reliability
from judgeq.rating.misfit import Fit
from judgeq.rating.reliability import Separation, SplitHalf
from judgeq.types import Floats, Verdicts

LEAST_EXPECTED = 10
"""So many of the judgments that are least expected are named."""
_QUICK = {"bt-mm": "bt"}
"""What rates halves of the judgments in place of an estimator that takes minutes for them all."""


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


@dataclass(frozen=True, slots=True)
class Judgment:
    """One judgment of a round, as groups of the ids of tied items (`partial`: of items whose order isn't
    known); `surprise` as of `misfit.surprise`."""

    round: int
    judge: str | None
    groups: Sequence[Sequence[str]]
    surprise: float
    partial: bool


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
    parameters = Parameters(run.parameters.sigma if run.fit.sigma is None else run.fit.sigma)

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
    main, history = run.main.column, run.history
    names = run.info.judges or run.info.settings.judges
    # Of a pair in both orders each is answered by another person.
    by_judge = history.verdicts if run.said is None else history.asked
    if history.alone:
        why = "items judged alone imply no comparisons"
        return Misfit(main, None, None, [], why)
    verdicts = comparisons.joined(history.verdicts)
    theta = run.scores.main[1]
    several = len(names) > 1 and verdicts.judges is not None
    judges = None
    if several:
        judges = misfit.fit_of_judges(comparisons.joined(by_judge), theta, len(names))
    return Misfit(
        rating=main,
        judges=judges and replace(judges, names=names),
        items=replace(misfit.fit_of_items(verdicts, theta), names=run.items.ids),
        least_expected=_least_expected(run, verdicts, names if several else None),
    )


def _least_expected(run: Result, verdicts: Verdicts, names: Sequence[str] | None) -> list[Judgment]:
    surprise = misfit.surprise(verdicts, run.scores.main[1])
    ends = np.cumsum([len(part) for part in run.history.verdicts])
    judgments = []
    for at in np.argsort(-surprise, kind="stable")[:LEAST_EXPECTED].tolist():
        judge = None
        if names is not None and verdicts.judges is not None:
            judge = names[int(verdicts.judges[at])]
        round = int(np.searchsorted(ends, at, side="right")) + 1
        groups = [
            [run.items.ids[row] for row in group] for group in comparisons.groups_of(verdicts, at)
        ]
        partial = verdicts.partial is not None and bool(verdicts.partial[at])
        judgments.append(Judgment(round, judge, groups, float(surprise[at]), partial))
    return judgments
