"""The simulated judge fitted to a run: which noise, lapses and position bias would give such answers?

The scores of a run shrink towards 0, and rounds that were made of them are no random sample: so the
run is not read directly, but simulated (indirect inference; Gouriéroux, Monfort and Renault 1993).
Judges of many settings go through the rounds of its strategy, over latent scores of their own, and
those settings are kept whose answers look like the run's in the statistics of `looks`. How precisely
they are known is known by the same simulations. Where no strategy is known, as of an import, the
run's own questions are answered, over latent scores that they could be of: as far as the run's scores
are reliable these decide the order. That is right for questions that earlier answers didn't choose.

A judge's noise counts in units of the items' spread: that is 150 on the scale of 1..1000 (the shape
"normal"), or what another shape has.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from judgeq import seeds, strategies
from judgeq.datasets import synthetic
from judgeq.engine.results import Result
from judgeq.errors import DataError, UsageError
from judgeq.judge import error_model
from judgeq.rating import comparisons
from judgeq.settings import Simulation
from judgeq.strategies import History, Strategy
from judgeq.study import processes
from judgeq.study.looks import LEAST, Looks, looks, reliability, scores
from judgeq.types import Floats, Matches, Offsets, Verdicts

STAGES = (40, 40, 60)
"""Settings that are simulated: over all that can be, then around the best."""
BOX = np.array([[math.log(5.0), 0.6, -3.0], [math.log(3000.0), 1.0, 3.0]])
"""What settings can be: log τ, pmax, and position bias in units of τ."""
DISTANCE = Simulation().sim_distance
PARAMETERS = ("sim_accuracy", "sim_pmax", "sim_position_bias")
_DRAWS = 20_000
_WIDEST = 1e-3


class Estimated(NamedTuple):
    """A fitted setting with its 95 % interval."""

    value: float
    low: float
    high: float


class Look(NamedTuple):
    """A statistic of the run, what judges with the fitted settings give, and its standard deviation from
    one simulated run to the next."""

    name: str
    observed: float
    simulated: float
    sd: float

    @property
    def off(self) -> float:
        """By how many standard deviations the run is off."""
        return (self.observed - self.simulated) / self.sd


@dataclass(frozen=True, slots=True)
class Fitted:
    """The simulated judge that answers as a run's judge did. `estimates` are by the names of settings;
    `looks` say how alike the answers are; `reliability` is the correlation of a run's scores with the
    latent ones, where it was needed. `ordered`: whether the order presented is known, and with it the
    position bias. `strategy` is what was simulated; None: the run's own questions. `unreadable` is the
    share of replies that were no verdict; None where none is known of."""

    judge: Simulation
    estimates: dict[str, Estimated]
    looks: tuple[Look, ...]
    shape: str
    reliability: float | None
    questions: int
    simulations: int
    ordered: bool
    strategy: str | None = None
    unreadable: float | None = None

    @property
    def alike(self) -> bool:
        """Whether no statistic is off by more than three standard deviations."""
        return all(abs(look.off) <= 3 for look in self.looks)


def fit(
    verdicts: Verdicts,
    n: int,
    *,
    strategy: Strategy | None = None,
    rounds: int = 0,
    shape: str = "normal",
    model: str = "vg",
    seed: int = 0,
    jobs: int = 1,
    stages: Sequence[int] | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Fitted:
    """The simulated judge of `model` that answers as these verdicts on n items do, were the items'
    latent scores spread as `shape`. They are of so many `rounds` of `strategy` (None: unknown).

    `report` is called with how many of how many simulations are done. Raises UsageError for scores of
    items alone, and DataError where the verdicts say too little: where items aren't judged in several
    questions, nothing tells noise from differences between items.
    """
    if verdicts.scores is not None:
        raise UsageError("the items were judged alone: a judge is fitted to pairs or lists.")
    asked = _comparing(verdicts)
    observed = looks(asked, n, seed)
    if observed is None:
        raise DataError(
            f"{len(asked):,} verdicts are too few to fit a judge to: items must be judged in several "
            f"questions, so that {LEAST} comparisons can be held against scores made without them."
        )
    theta, half = scores(asked, n), reliability(asked, n, seed)
    run = _Run(asked, n, strategy, rounds, theta, half, shape, model, seed)
    stages = STAGES if stages is None else stages
    box, done, total = BOX.copy(), 0, sum(stages)
    if observed.bias is None:
        box[:, 2] = 0.0
    target = observed.array
    points, values = np.empty((0, 3)), np.empty((0, len(target)))
    for step, count in enumerate(stages):
        tasks = [*enumerate(_within(box, count, seed, step), start=step * 1000)]
        rows: dict[int, tuple[Floats, Floats, float]] = {}
        for (number, point), outcome in processes.spread(partial(_simulated, run), tasks, jobs):
            done += 1
            report(done, total)
            if outcome is not None:
                rows[number] = (point, *outcome)
        at, looked, alike = _stacked([rows[number] for number in sorted(rows)])
        points, values = np.concatenate([points, at]), np.concatenate([values, looked])
        best = _nearest(looked, target)
        run = replace(run, reliability=float(alike[best].mean()))
        if step < len(stages) - 1:
            box = _around(at[best], box)
    inside = ((points >= box[0]) & (points <= box[1])).all(axis=1)
    known = _posterior(points[inside], values[inside], target, box, seed)
    return _fitted(run, known, observed, box, done)


def fit_run(
    run: Result,
    *,
    strategy: str | None = None,
    shape: str = "normal",
    model: str = "vg",
    jobs: int = 1,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Fitted:
    """As `fit`, of a run that is finished or under way; `strategy` names that of an imported run.

    Raises UsageError for a strategy of a run that has its own.
    """
    history, info = run.history, run.info
    if shape not in synthetic.SHAPES:
        raise UsageError(f"--shape {shape}: there are {', '.join(synthetic.SHAPES)}.")
    if strategy is not None and not info.imported:
        raise UsageError(
            f"strategy {strategy}: run {run.run.id} has its own, {info.strategy}; an import has none."
        )
    made = history.strategy if strategy is None else strategies.parse(strategy)
    several = len(info.settings.panelists) > 1 and info.settings.ensemble == "each"
    if history.both_orders or several:  # more questions than its strategy's
        made = None
    rounds = history.asked
    if run.counts.left and len(rounds) > 1:
        rounds = rounds[:-1]  # not all of it is answered yet
    joined = comparisons.joined(rounds)
    n = len(run.items.ids)
    if made is not None:
        made.check(n)
    fitted = fit(
        joined,
        n,
        strategy=made,
        rounds=len(rounds),
        shape=shape,
        model=model,
        jobs=jobs,
        report=report,
    )
    replies = run.totals.calls - run.totals.retries
    unreadable = round(run.totals.unusable / replies, 4) if replies > 0 else None
    return replace(fitted, unreadable=unreadable)


def _comparing(verdicts: Verdicts) -> Verdicts:
    """Those of two items and more; tied ones in the order presented, half of each tie's agreement."""
    return verdicts.where(np.diff(verdicts.offsets) > 1)


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """What every simulation needs of the run."""

    verdicts: Verdicts
    n: int
    strategy: Strategy | None
    rounds: int
    theta: Floats
    reliability: float
    shape: str
    model: str
    seed: int

    def judge(self, point: Floats) -> Simulation:
        """The judge of a point of the box."""
        tau, pmax = math.exp(point[0]), float(point[1])
        accuracy = 0.5 + (pmax - 0.5) * -math.expm1(-DISTANCE / tau)
        return Simulation(
            sim_model=self.model,
            sim_accuracy=min(accuracy, pmax - 1e-9),
            sim_pmax=pmax,
            sim_position_bias=float(point[2]) * tau,
        )


def _simulated(run: _Run, task: tuple[int, Floats]) -> tuple[Floats, float] | None:
    """The statistics of a simulated run, and how its scores correlate with the latent ones; None where
    its verdicts have no statistics."""
    number, point = task
    rng = seeds.rng(run.seed, "fit", "answers", number)
    judge = run.judge(point)
    if run.strategy is None:
        latent, asked = _latent(run, rng), run.verdicts
        matches = Matches(asked.presented, asked.offsets)
        answers = error_model.answers(matches, latent, judge, rng)
        answers = replace(answers, ordered=asked.ordered)
        if asked.partial is not None:  # only so much of them is asked for
            unknown = np.repeat(asked.partial, np.diff(asked.offsets)) & asked.tied
            answers = replace(answers, tied=unknown, partial=asked.partial)
    else:
        latent = synthetic.draw(run.shape, run.n, rng)
        history = History.begin(run.n, run.strategy, int(rng.integers(2**31)))
        while len(history.verdicts) < run.rounds and not history.over:
            matches = history.next_round()
            history.add(error_model.answers(matches, latent, judge, rng), len(matches))
        answers = comparisons.joined(history.verdicts)
    seen = looks(answers, run.n, run.seed)
    if seen is None:
        return None
    if run.strategy is not None:  # nothing hangs on it
        return seen.array, 0.0
    judged = comparisons.matches_of(answers, run.n) > 0
    alike = float(np.corrcoef(scores(answers, run.n)[judged], latent[judged])[0, 1])
    return seen.array, alike if math.isfinite(alike) else 0.0


def _latent(run: _Run, rng: np.random.Generator) -> Floats:
    """Latent scores that the run could be of: as far as its scores are reliable they decide the order,
    the rest is drawn; spread as the shape is."""
    r = min(max(run.reliability, 0.05), 0.999)
    spread = float(run.theta.std())
    z = r * run.theta / (spread or 1.0)
    z = z + math.sqrt(1 - r * r) * rng.standard_normal(run.n)
    scores = np.empty(run.n)
    scores[np.argsort(z, kind="stable")] = np.sort(synthetic.draw(run.shape, run.n, rng))
    return scores


def _within(box: Floats, count: int, seed: int, step: int) -> Floats:
    """Points in a box, evenly spread along each side (a Latin hypercube), shape (count, 3)."""
    rng = seeds.rng(seed, "fit", "settings", step)
    places = rng.permuted(np.tile(np.arange(count), (len(box[0]), 1)), axis=1).T
    points: Floats = box[0] + (box[1] - box[0]) * (places + rng.random(places.shape)) / count
    return points


def _stacked(
    rows: Sequence[tuple[Floats, Floats, float]],
) -> tuple[Floats, Floats, Floats]:
    if len(rows) < 20:
        raise DataError("too few simulated runs have scores that could be compared: judge more.")
    points, values, alike = zip(*rows, strict=True)
    return np.array(points), np.array(values), np.array(alike)


class _Posterior(NamedTuple):
    """Settings drawn from a box, how likely each is, the statistics that they give, and how these vary
    from one simulated run to the next: shapes (draws, 3), (draws,), (draws, statistics), twice
    (statistics, statistics)."""

    points: Floats
    weights: Floats
    expected: Floats
    covariance: Floats

    def mean(self, values: Floats) -> Floats:
        """Weighted, over the draws."""
        mean: Floats = (self.weights[:, None] * values).sum(axis=0)
        return mean


def _nearest(values: Floats, target: Floats) -> Offsets:
    """The rows, of shape (a quarter,), of the simulated runs that look most like the target."""
    scale = values.std(axis=0) + 1e-9
    distance = (((values - target) / scale) ** 2).sum(axis=1)
    rows: Offsets = np.argsort(distance, kind="stable")[: max(8, len(values) // 4)]
    return rows


def _around(points: Floats, box: Floats) -> Floats:
    """Where these points are and a little more, within what can be."""
    low, high = points.min(axis=0), points.max(axis=0)
    more = 0.25 * (high - low) + 0.02 * (box[1] - box[0])
    return np.stack([np.maximum(box[0], low - more), np.minimum(box[1], high + more)])


def _posterior(
    points: Floats, values: Floats, target: Floats, box: Floats, seed: int
) -> _Posterior:
    """What is known of the settings: statistics are taken for quadratic in them, by least squares over
    the simulated runs, and normal about that; all settings in the box are equally likely before."""
    middle, width = box.mean(axis=0), np.maximum((box[1] - box[0]) / 2, 1e-12)
    free = box[1] > box[0]

    def terms(at: Floats) -> Floats:
        x = ((at - middle) / width)[:, free]
        columns = [np.ones(len(x)), *x.T]
        columns += [x[:, a] * x[:, b] for a in range(x.shape[1]) for b in range(a, x.shape[1])]
        return np.stack(columns, axis=1)

    coefficients, *_ = np.linalg.lstsq(terms(points), values, rcond=None)
    rest = values - terms(points) @ coefficients
    covariance = rest.T @ rest / max(1, len(values) - coefficients.shape[0])
    covariance = covariance + 1e-10 * np.eye(len(target))
    drawn = box[0] + (box[1] - box[0]) * seeds.rng(seed, "fit", "posterior").random((_DRAWS, 3))
    expected = terms(drawn) @ coefficients
    off = expected - target
    distance = (off * np.linalg.solve(covariance, off.T).T).sum(axis=1)
    weights = np.exp(-0.5 * (distance - distance.min()))
    return _Posterior(drawn, weights / weights.sum(), expected, covariance)


def _fitted(run: _Run, known: _Posterior, observed: Looks, box: Floats, done: int) -> Fitted:
    """The fit as settings, rounded to digits that mean something."""
    tau, pmax = np.exp(known.points[:, 0]), known.points[:, 1]
    accuracy = 0.5 + (pmax - 0.5) * -np.expm1(-DISTANCE / tau)
    columns = np.stack([accuracy, pmax, known.points[:, 2] * tau], axis=1)
    # The mean of what was drawn from, and not of the settings: these are skewed where little is known.
    middle = known.mean(known.points)
    judge = run.judge(middle)
    best = (judge.sim_accuracy, judge.sim_pmax, judge.sim_position_bias)
    estimates = {}
    for name, column, value, digits in zip(PARAMETERS, columns.T, best, (4, 4, 1), strict=True):
        order = np.argsort(column)
        share = np.cumsum(known.weights[order])
        low, high = (float(column[order][np.searchsorted(share, at)]) for at in (0.025, 0.975))
        estimates[name] = Estimated(*(round(each, digits) for each in (value, low, high)))
    values = {name: estimate.value for name, estimate in estimates.items()}
    values["sim_accuracy"] = min(max(values["sim_accuracy"], 0.5001), values["sim_pmax"] - 1e-4)
    judge = Simulation(sim_model=run.model, **values)
    expected, sds = known.mean(known.expected), np.sqrt(np.diag(known.covariance))
    return Fitted(
        judge=judge,
        estimates=estimates,
        looks=tuple(
            Look(name, *map(float, numbers))
            for name, *numbers in zip(observed.names, observed.array, expected, sds, strict=True)
        ),
        shape=run.shape,
        reliability=run.reliability if run.strategy is None else None,
        questions=len(run.verdicts),
        simulations=done,
        ordered=observed.bias is not None,
        strategy=None if run.strategy is None else run.strategy.name,
    )
