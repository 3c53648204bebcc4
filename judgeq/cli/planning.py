"""The command that says what a budget buys: plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli.app import command
from judgeq.cli.options import Json, Quiet, RunsDir, StoreAddress, given, with_settings
from judgeq.cli.printing import console, print_json, show
from judgeq.cli.studying import Jobs, Shape, opened, progress
from judgeq.errors import StoppedError, UsageError

if TYPE_CHECKING:
    from judgeq.settings import Simulation
    from judgeq.study.fitting import Fitted
    from judgeq.study.planning import Request


@command("plan")
@with_settings(
    *("dataset", "text_column", "id_column", "gold_column", "gold_levels", "latent_column"),
    *("delimiter", "encoding", "skip_empty", "limit", "sample", "data_dir"),
    *("sim_model", "sim_accuracy", "sim_pmax", "sim_distance", "sim_position_bias"),
    "sim_unreadable",
)
def plan(
    n: Annotated[
        int | None,
        typer.Option(min=2, help="How many items.", show_default="the dataset's, or the run's"),
    ] = None,
    calls: Annotated[
        float | None,
        typer.Option(
            "--calls",
            min=1,
            metavar="N",
            help="The budget in cost-equivalent calls: 1 a pair, k/2 a list of k.",
            show_default="three for every two items",
        ),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(metavar="DOLLARS", min=0, help="The budget in dollars.", show_default=False),
    ] = None,
    price: Annotated[
        float | None,
        typer.Option(
            "--price-per-call",
            metavar="DOLLARS",
            min=0,
            help="What a pair costs; a list of k costs k/2 of it.",
            show_default="measured on the run of --like",
        ),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            "--like",
            metavar="RUN",
            help="A finished or running run of the judge: it is fitted to that.",
            show_default="the judge of the --sim flags",
        ),
    ] = None,
    like_strategy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="With --like of an imported run: the strategy that asked its questions.",
            show_default="its questions as they are",
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            help="Strategies without rounds, as listwise10,pairwise.",
            show_default="all in which no item leaves early",
        ),
    ] = None,
    shape: Shape = "normal",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Simulations of each strategy.")] = 6,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw quality against cost: a .png or .svg file."),
    ] = None,
    jobs: Jobs = None,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    quiet: Quiet = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Say which strategy buys the most certainty for a budget, by simulation.

    Each strategy goes through as many rounds as the budget pays, over simulated
    items, and is held against their latent scores (Spearman's ρ, its mean and
    spread over seeds). The judge is the simulated one, with the --sim flags or
    fitted to a run (--like), whose price of a call is then known, too. Of more
    than 1,000 items 1,000 are simulated, with as many calls an item. ρ is about
    the judge's own scale: how near that is to the truth, no simulation knows.

    Examples:

      judgeq plan --n 1000 --calls 1500

      judgeq plan --dataset babe --budget 5 --like last --plot plan.png

      judgeq plan --n 300 --calls 2000 --sim-accuracy 0.7 --strategies listwise10,pairwise
    """
    from judgeq.study import planning, processes
    from judgeq.ui import figures, plan_sections

    if plot is not None:
        figures.kind_of(plot)
    count = jobs or processes.default_jobs()
    settings = given(flags)
    request, fitted = _request(
        settings, n, calls, budget, price, (like, like_strategy), shape, seeds,
        count, runs_dir, store, quiet, planning.checked_lines(strategies),
    )  # fmt: skip
    try:
        with progress(console(stderr=True), quiet=quiet, what="planning") as report:
            planned = planning.plan(request, count, report)
    except KeyboardInterrupt:
        raise StoppedError("stopped. Nothing is kept of a plan.") from None
    if plot is not None:
        figures.write_curves(planned, plot)
    if as_json:
        print_json(plan_sections.plan_json(planned, fitted, like, plot))
    elif not quiet:
        show(*plan_sections.plan(planned, fitted, like, plot))


def _request(
    settings: dict[str, Any],
    n: int | None,
    calls: float | None,
    budget: float | None,
    price: float | None,
    like_run: tuple[str | None, str | None],
    shape: str,
    seeds: int,
    jobs: int,
    runs_dir: Path,
    store: str | None,
    quiet: bool,
    lines: tuple[str, ...] | None,
) -> tuple[Request, Fitted | None]:
    """What is to be planned, and the fit of --like, a run and its strategy. Raises UsageError for flags
    that don't fit together."""
    from judgeq.study import fitting, planning

    if calls is not None and budget is not None:
        raise UsageError("--calls and --budget are both the budget: give one.")
    like, strategy = like_run
    if strategy is not None and like is None:
        raise UsageError("--like-strategy is about an imported run: name it with --like.")
    own = {name: settings.pop(name) for name in list(settings) if name.startswith("sim_")}
    unreadable = own.pop("sim_unreadable", 0.0)
    fitted = None
    if like is None:
        judge = _judge(own)
    else:
        if own or unreadable:
            raise UsageError(
                f"--like {like} says what the judge is like: leave the --sim flags out."
            )
        run = opened(like, runs_dir, store)
        price = planning.price_of(run) if price is None else price
        n = len(run.items.ids) if n is None and not settings else n
        with progress(console(stderr=True), quiet=quiet, what="fitting") as report:
            try:
                fitted = fitting.fit_run(
                    run, strategy=strategy, shape=shape, jobs=jobs, report=report
                )
            except KeyboardInterrupt:
                raise StoppedError("stopped. Nothing is kept of a fit.") from None
        judge, unreadable = fitted.judge, fitted.unreadable or 0.0
    if n is None:
        n = _items(settings)
    elif settings:
        raise UsageError("--n is of no dataset: give --n or --dataset.")
    if budget is not None:
        if not price:
            raise UsageError(
                "--budget needs a price: give --price-per-call, or --like a run whose cost is known."
            )
        calls = budget / price
    calls = 1.5 * n if calls is None else calls
    return planning.Request(n, calls, judge, price, unreadable, shape, seeds, lines), fitted


def _judge(values: dict[str, Any]) -> Simulation:
    from pydantic import ValidationError

    from judgeq.settings import Simulation

    try:
        return Simulation(**values)
    except ValidationError as error:
        what = "; ".join(
            f"{' '.join(str(at).replace('sim_', '--sim-') for at in wrong['loc'])} "
            f"{wrong['msg'].removeprefix('Value error, ')}".strip()
            for wrong in error.errors()
        )
        raise UsageError(f"{what}.") from error


def _items(settings: dict[str, Any]) -> int:
    """How many items the dataset has."""
    from judgeq import config, datasets

    if not settings:
        raise UsageError("how many items? Give --n, --dataset, or --like a run.")
    settled = config.settle(settings)
    return len(datasets.load(settled, seed=settled.seed))
