"""What a budget buys: strategies simulated within it, and how well each would know the order.

Each line (a strategy with its size of lists) goes through as many rounds as the budget pays, and is
rated after some of them, so that one simulation gives its whole curve. Seeds are common to all lines:
they differ in what they ask, and not in the items. What is measured is the correlation with latent
scores, so that the judge's errors count and its opinions don't: a judge that is consistently wrong
looks as good as one that is right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import NamedTuple

from judgeq import seeds, strategies
from judgeq.datasets import synthetic
from judgeq.engine.results import Result
from judgeq.errors import UsageError
from judgeq.judge import error_model
from judgeq.rating import CHOICES, ESTIMATORS, Parameters, correlation
from judgeq.settings import Simulation
from judgeq.strategies import REGISTRY, History
from judgeq.study import processes
from judgeq.types import Floats

MOST_ITEMS = 1_000
"""Of more items so many are simulated, with as many calls an item: what matters is calls an item."""
SEEDS = 6
SIZES = {"listwise": (5, 10, 20)}
OTHER_SIZES = (2, 10, 20)
MOST_ROUNDS = 200
CHECKPOINTS = 5
CLOSE = 0.01
"""A cheaper strategy whose ρ is within this of the best is named too."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be planned: `n` items, a budget in cost-equivalent calls (1 a pair, k/2 a list of k),
    and the judge. `price` is in dollars for a cost-equivalent call, None where it is unknown;
    `unreadable` is the share of replies that are no verdict: a question is asked twice. `lines` are
    strategies without rounds (None: all that the registry has)."""

    n: int
    calls: float
    judge: Simulation
    price: float | None = None
    unreadable: float = 0.0
    shape: str = "normal"
    seeds: int = SEEDS
    lines: tuple[str, ...] | None = None

    @property
    def simulated(self) -> int:
        """How many items are simulated."""
        return min(self.n, MOST_ITEMS)

    @property
    def scale(self) -> float:
        """Calls of the plan for one that is simulated."""
        return self.n / self.simulated


class Point(NamedTuple):
    """A strategy of so many rounds: mean and standard deviation of ρ over seeds, the standard error of
    the mean, cost in cost-equivalent calls, questions, and dollars where a price is known. `rhos` are by
    seed."""

    line: str
    strategy: str
    rounds: int
    rho: float
    sd: float
    se: float
    cost: float
    questions: float
    dollars: float | None
    rhos: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Planned:
    """All points, line by line with rising cost; `best` has the highest mean ρ. `alike` are the lines
    whose last point can't be told from it by these seeds; `cheaper` is the cheapest point that is nearly
    as good, where there is one. `left_out` says why lines aren't there."""

    request: Request
    points: tuple[Point, ...]
    best: Point
    alike: tuple[str, ...]
    cheaper: Point | None
    left_out: tuple[str, ...]

    @property
    def last(self) -> list[Point]:
        """Each line with all that the budget pays, the best first."""
        last = {point.line: point for point in self.points}
        return sorted(last.values(), key=lambda point: -point.rho)


class _Line(NamedTuple):
    text: str
    rounds: tuple[int, ...]
    seed: int


def lines() -> Iterator[str]:
    """The strategies that are planned with, by the registry: those of rounds in which all items stay,
    each with some sizes of lists. Not those that also ask about texts alone, which isn't simulated."""
    for kind, entry in REGISTRY.items():
        strategy = strategies.parse(kind)
        if "rounds" not in entry.settings.values() or strategy.prunes or strategy.mixed:
            continue
        if "k" not in entry.settings:
            yield kind
        else:
            yield from (f"{kind}{k}" for k in SIZES.get(kind, OTHER_SIZES))


def plan(
    request: Request,
    jobs: int = 1,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Planned:
    """Simulate all lines within the budget. `report` is called with how many of how many simulations are
    done. Raises UsageError for what can't be planned."""
    if request.shape not in synthetic.SHAPES:
        raise UsageError(f"--shape {request.shape}: there are {', '.join(synthetic.SHAPES)}.")
    n, budget = request.simulated, request.calls / request.scale
    left_out, tasks = [], []
    for text in dict.fromkeys(request.lines or lines()):
        try:
            rounds = _affordable(text, n, budget)
        except UsageError as error:
            if request.lines is not None:
                raise
            left_out.append(f"{text}: {error}")
            continue
        if not rounds:
            least = strategies.parse(text, rounds=1).cost(n) * request.scale
            left_out.append(f"{text}: a round takes {least:,.0f} cost-equivalent calls.")
            continue
        steps = {max(1, round(rounds * at / CHECKPOINTS)) for at in range(1, CHECKPOINTS + 1)}
        tasks += [_Line(text, tuple(sorted(steps)), seed) for seed in range(request.seeds)]
    if not tasks:
        raise UsageError(
            f"{request.calls:,.0f} cost-equivalent calls don't pay one round: {' '.join(left_out)}"
        )
    # All lines of a seed before the next seed's: the time left is then known early.
    tasks.sort(key=lambda task: task.seed)
    done: dict[_Line, list[tuple[float, float, int]]] = {}
    report(0, len(tasks))
    for task, curve in processes.spread(_Simulated(request), tasks, jobs):
        done[task] = curve
        report(len(done), len(tasks))
    points = tuple(_points(request, {task: done[task] for task in tasks}))
    best = max(points, key=lambda point: point.rho)
    planned = Planned(request, points, best, (), None, tuple(left_out))
    alike = tuple(point.line for point in planned.last if _alike(point, best))
    near = [p for p in points if p.rho >= best.rho - CLOSE and p.cost < best.cost]
    cheaper = min(near, key=lambda point: point.cost) if near else None
    return Planned(request, points, best, alike, cheaper, tuple(left_out))


def _affordable(text: str, n: int, budget: float) -> int:
    """How many rounds of a strategy the budget pays. Raises UsageError where it can't have n items."""
    strategies.parse(text, rounds=1).check(n)
    rounds = 0
    while rounds < MOST_ROUNDS:
        if strategies.parse(text, rounds=rounds + 1).cost(n) > budget * (1 + 1e-9):
            break
        rounds += 1
    return rounds


@dataclass(frozen=True, slots=True)
class _Simulated:
    """Simulates a line: called in another process."""

    request: Request

    def __call__(self, task: _Line) -> list[tuple[float, float, int]]:
        """ρ, cost-equivalent calls and questions after each of its rounds that is looked at."""
        request, seed = self.request, task.seed
        judge, n = request.judge, request.simulated
        latent = synthetic.draw(request.shape, n, seeds.rng(seed, "latent", request.shape))
        seen = error_model.seen_scores(latent, judge, seed)
        strategy = strategies.parse(task.text, rounds=max(task.rounds))
        history = History.begin(n, strategy, seed)
        cost, questions, curve = 0.0, 0, []
        for round in history.to_come():
            matches = history.next_round()
            if not len(matches):
                break
            if int(matches.sizes.min()) < 2:
                raise UsageError(f"{task.text} asks about texts alone, which isn't simulated here.")
            rng = seeds.rng(seed, "answers", round)
            answers = error_model.answers(matches, seen, judge, rng)
            if request.unreadable:  # asked twice, and then given up
                lost = seeds.rng(seed, "lost", round).random(len(answers))
                answers = answers.where(lost >= request.unreadable**2)
            cost, questions = cost + matches.cost, questions + len(matches)
            history.add(answers, len(matches))
            if round in task.rounds:
                curve.append((_rho(history, latent, n), cost, questions))
        return curve


def _rho(history: History, latent: Floats, n: int) -> float:
    theta = history.rate(ESTIMATORS[CHOICES[0]], Parameters())
    return correlation.point(correlation.spearman(theta, latent), n) or 0.0


def _points(request: Request, done: dict[_Line, list[tuple[float, float, int]]]) -> Iterator[Point]:
    """The means over seeds, line by line."""
    for text, rounds in dict.fromkeys((task.text, task.rounds) for task in done):
        curves = [done[_Line(text, rounds, seed)] for seed in range(request.seeds)]
        for at in range(min(map(len, curves))):
            rhos = tuple(curve[at][0] for curve in curves)
            cost = fmean(curve[at][1] for curve in curves) * request.scale
            sd = stdev(rhos) if len(rhos) > 1 else math.nan
            yield Point(
                line=text,
                strategy=strategies.parse(text, rounds=rounds[at]).name,
                rounds=rounds[at],
                rho=fmean(rhos),
                sd=sd,
                se=sd / math.sqrt(len(rhos)),
                cost=cost,
                questions=fmean(curve[at][2] for curve in curves) * request.scale,
                dollars=None if request.price is None else cost * request.price,
                rhos=rhos,
            )


def _alike(point: Point, best: Point) -> bool:
    """Whether two points can't be told apart: their mean difference over seeds is within two standard
    errors."""
    if point.line == best.line or len(best.rhos) < 2:
        return False
    differences = [one - other for one, other in zip(best.rhos, point.rhos, strict=True)]
    return fmean(differences) <= 2 * stdev(differences) / math.sqrt(len(differences))


def price_of(run: Result) -> float | None:
    """What a run paid for a cost-equivalent call that was answered, in dollars, with all its repeats;
    None where that isn't known. Tokens go with the texts of a question: a list of k costs k/2 pairs."""
    answered = run.cost_equivalent_calls
    if run.totals.unpriced or not run.totals.cost or not answered:
        return None
    return run.totals.cost / answered


def checked_lines(text: str | None) -> tuple[str, ...] | None:
    """Strategies out of a list with commas. Raises UsageError for one with rounds of its own."""
    if text is None:
        return None
    names: Sequence[str] = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if strategies.parse(name).mixed:
            raise UsageError(f"{name} asks about texts alone, which isn't simulated here.")
        strategies.parse(name, rounds=strategies.parse(name).rounds + 1)
    return tuple(names)
