"""The paper's simulation study: strategies × latent distributions × annotator bias × seeds.

Each case runs on the same strategies, noise and ratings as a real run, without queue or text, a whole
round at a time. Cases are independent of one another and of the order they are run in, so they are
spread over processes, written down as they end, and an interrupted study goes on where it was.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

import numpy as np
import orjson
from filelock import FileLock, Timeout
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    ValidationError,
    field_validator,
)

from judgeq import seeds, strategies
from judgeq.datasets import synthetic
from judgeq.engine import export
from judgeq.errors import DataError, NotConvergedError, StoppedError, UsageError
from judgeq.files import problems, read_toml, replacing
from judgeq.judge import simulated
from judgeq.rating import CHOICES, ESTIMATORS, Parameters, comparisons, correlation
from judgeq.settings.run import Simulation, simulation_facts
from judgeq.strategies import History, Strategy
from judgeq.types import Floats

if TYPE_CHECKING:
    Rating = str
    Shape = str
else:
    Rating = Literal[("elo", *CHOICES, "hybrid")]
    Shape = Literal[tuple(synthetic.SHAPES)]

GRIDS = {name: Path(__file__).with_name(f"{name}.toml") for name in ("paper", "paper-random")}
"""The grids of this name: that of Haak and Schaer, and the same with random matchmaking."""
ALPHA = 0.4
"""The weight of effectiveness in score_α."""
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
"""What says how many threads NumPy's linear algebra has, by who made it."""
Task = TypeVar("Task")
Outcome = TypeVar("Outcome")


class Grid(BaseModel):
    """What is varied. A study is every combination of strategy, distribution, bias and seed."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    n: int = Field(1000, ge=2, le=1_000_000)
    distributions: tuple[Shape, ...] = Field(tuple(synthetic.SHAPES), min_length=1)
    bias: tuple[NonNegativeInt, ...] = Field((0, 50, 200), min_length=1)
    strategies: tuple[str, ...] = Field(min_length=1)
    ratings: tuple[Rating, ...] = Field(("elo", "bt"), min_length=1)
    seeds: int = Field(2, ge=1, le=10_000)
    sigma: float | None = Field(None, ge=1e-3, le=100)
    judge: Simulation = Simulation(sim_model="rrt")

    @field_validator("judge")
    @classmethod
    def _without_bias(cls, judge: Simulation) -> Simulation:
        if judge.sim_biased_items:
            raise ValueError("how many items are seen wrongly is `bias`, not sim_biased_items")
        return judge

    def cases(self) -> list[Case]:
        """All cases, in order, each once. Raises UsageError for a strategy that can't be."""
        for text in self.strategies:
            strategy = strategies.parse(text)
            strategy.check(self.n)
            if strategy.kind == "direct":
                raise UsageError("the study ranks by comparisons: `direct` has none.")
        axes = (self.strategies, self.distributions, self.bias, range(self.seeds))
        return list(dict.fromkeys(Case(*values) for values in product(*axes)))

    @property
    def fingerprint(self) -> str:
        """Of all that decides the results."""
        facts = {
            "version": 2,
            **self.model_dump(mode="json"),
            "judge": simulation_facts(self.judge),
        }
        return sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def load_grid(name: str) -> Grid:
    """A grid by name, or a TOML file by path. Raises UsageError or DataError."""
    path = GRIDS.get(name, Path(name))
    if path.suffix != ".toml":
        raise UsageError(f"--grid {name!r}: give {', '.join(GRIDS)}, or the path of a .toml file.")
    try:
        return Grid(**read_toml(path, "--grid"))
    except ValidationError as error:
        known = ", ".join(Grid.model_fields)
        raise DataError(f"--grid {path}: {problems(error)}. A grid has {known}.") from error


@dataclass(frozen=True, slots=True)
class Case:
    """One combination: `bias` is how many items the annotator always sees wrongly."""

    strategy: str
    distribution: str
    bias: int
    seed: int


@dataclass(frozen=True, slots=True)
class StudyRow:
    """What one rating made of one case.

    `rho` is Spearman's ρ against the latent order. `pairs` and `lists` were asked, `implied_pairs`
    are what the answers imply; `cost` is in cost-equivalent calls (1 a pair, k/2 a list of k).
    `score` is score_α, which depends on all rows of the study.
    """

    strategy: str
    parameters: str
    rating: str
    distribution: str
    bias: int
    seed: int
    rho: float
    pairs: int
    lists: int
    implied_pairs: int
    cost: float
    score: float = float("nan")


def simulate(case: Case, grid: Grid) -> list[StudyRow]:
    """One case from start to ratings: a row for each of the grid's ratings."""
    strategy, seed = strategies.parse(case.strategy), case.seed
    truth = synthetic.draw(case.distribution, grid.n, seeds.rng(seed, "latent", case.distribution))
    judge = grid.judge.model_copy(update={"sim_biased_items": case.bias})
    seen = simulated.seen_scores(truth, judge, seed)
    history = History.begin(grid.n, strategy, seed)
    for round in history.to_come():
        matches = history.next_round()
        rng = seeds.rng(seed, "answers", round)
        history.add(simulated.answers(matches, seen, judge, rng), len(matches))
    return [_row(case, grid, history, rating, truth) for rating in grid.ratings]


def _row(case: Case, grid: Grid, history: History, rating: str, truth: Floats) -> StudyRow:
    strategy, verdicts = strategies.parse(case.strategy), comparisons.joined(history.verdicts)
    how = Parameters(sigma=grid.sigma, position=False)
    try:
        scores = history.fit(ESTIMATORS[rating], how).maximum
    except NotConvergedError as error:
        raise NotConvergedError(f"{case}: {error} Leave {rating} out of `ratings`.") from error
    rho = correlation.point(correlation.spearman(scores, truth), grid.n)
    if rho is None:
        raise DataError(f"{case}: no correlation is defined: a rating, or the truth, is constant.")
    sizes = verdicts.sizes
    return StudyRow(
        strategy=strategy.kind,
        parameters=parameters(strategy),
        rating=rating,
        distribution=case.distribution,
        bias=case.bias,
        seed=case.seed,
        rho=rho,
        pairs=int((sizes == 2).sum()),
        lists=int((sizes > 2).sum()),
        implied_pairs=int((sizes * (sizes - 1) // 2).sum()),
        cost=verdicts.cost,
    )


def parameters(strategy: Strategy) -> str:
    """A strategy's parameters as one reads them: "r=3,d=2"."""
    values = asdict(strategy)  # type: ignore[call-overload]
    if values.get("matchmaking") == "similar":
        del values["matchmaking"]
    if strategy.prunes and values["rounds"] == 24:
        del values["rounds"]
    return ",".join(f"{name}={value}" for name, value in values.items())


def scored(rows: Sequence[StudyRow], alpha: float = ALPHA) -> list[StudyRow]:
    """The rows with score_α = α·e + (1 − α)(1 − c), effectiveness (ρ) and cost each scaled to 0..1
    over all rows (Haak and Schaer)."""
    values = np.array([(row.rho, row.cost) for row in rows]).T
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    effect, expense = (values - low) / np.where(high > low, high - low, 1)
    score = alpha * effect + (1 - alpha) * (1 - expense)
    return [replace(row, score=value) for row, value in zip(rows, score.tolist(), strict=True)]


def study(
    grid: Grid, folder: Path, jobs: int, report: Callable[[int, int], None], alpha: float = ALPHA
) -> list[StudyRow]:
    """All rows of a grid, in order; cases that an interrupted study left in `folder` are taken over.

    `report` is called with how many cases of how many are done. Raises UsageError when the folder holds
    a study of another grid or another process is at it, DataError when it can't be written, and
    StoppedError when a process of ours was killed.
    """
    cases, path = grid.cases(), folder / f"cases-{grid.fingerprint[:12]}.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if {*folder.glob("cases-*.jsonl")} - {path}:
            raise UsageError(
                f"{folder} holds a study of another grid: name another folder with --out."
            )
        with FileLock(folder / "lock", timeout=0), path.open("ab") as file:
            done = _taken_over(path)
            left = [case for case in cases if case not in done]
            report(len(cases) - len(left), len(cases))
            for at, (case, rows) in enumerate(
                spread(partial(simulate, grid=grid), left, jobs),
                len(cases) - len(left) + 1,
            ):
                done[case] = rows
                file.write(b"\n" + orjson.dumps([astuple(case), [astuple(row) for row in rows]]))
                file.flush()
                report(at, len(cases))
    except Timeout as error:
        raise UsageError(
            f"another process is at the study in {folder}: wait for it, or name another folder with "
            "--out."
        ) from error
    except OSError as error:
        raise DataError(f"{folder} can't be written: {error.strerror}.") from error
    except BrokenProcessPool as error:
        raise StoppedError(
            f"a process of the study was killed, perhaps for want of memory. What was simulated is "
            f"kept in {folder}: the same command continues, and --jobs 1 needs less."
        ) from error
    return scored([row for case in cases for row in done[case]], alpha)


def spread(
    work: Callable[[Task], Outcome], tasks: Sequence[Task], jobs: int
) -> Iterator[tuple[Task, Outcome]]:
    """Each task with its outcome, as they end; with one job here, in order. Raises what `work` raises,
    and BrokenProcessPool when a process was killed."""
    if jobs == 1:
        for task in tasks:
            yield task, work(task)
        return
    # Not forked: a thread of ours (the progress bar's) may hold a lock that a fork would copy.
    spawn = multiprocessing.get_context("spawn")
    # Threads of several processes hinder one another. This process has read its environment.
    for name in THREADS:
        os.environ.setdefault(name, "1")
    with ProcessPoolExecutor(jobs, spawn, _serve) as pool:
        waiting = {pool.submit(work, task): task for task in tasks}
        try:
            while waiting:
                ended, _ = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ended:
                    yield waiting.pop(future), future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _serve() -> None:
    """Ctrl-C is for the process that began; when that one is killed, so are we, for we would wait for
    it for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def default_jobs() -> int:
    """As many processes as there are cores for us."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _taken_over(path: Path) -> dict[Case, list[StudyRow]]:
    """The cases that are written down, a line each; not those that a kill cut off."""
    done = {}
    for line in path.read_bytes().splitlines():
        with suppress(ValueError, TypeError):
            case, rows = orjson.loads(line)
            done[Case(*case)] = [StudyRow(*row[:-1]) for row in rows]
    return done


def write_table(rows: Sequence[StudyRow], path: Path) -> None:
    """The rows as CSV, or as Parquet where `path` ends so; whole or not at all.

    Raises UsageError for Parquet without pyarrow.
    """

    async def batches() -> AsyncIterator[Sequence[Any]]:
        yield list(zip(*map(astuple, rows), strict=True))

    table = export.Table(get_type_hints(StudyRow), batches())
    kind: export.Format = "parquet" if path.suffix == ".parquet" else "csv"
    with replacing(path) as file:
        asyncio.run(export.write(table, kind, file.buffer))
