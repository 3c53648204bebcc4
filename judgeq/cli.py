"""The command line. Only this module prints and ends the process.

What a command needs is imported when it runs, so that `judgeq --help` stays quick.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from judgeq.errors import JudgeError, JudgeqError, RunError, StoppedError
from judgeq.options import (
    BtSigma,
    Concurrency,
    ConfigFile,
    DataDir,
    Dataset,
    Feature,
    GoldColumn,
    GoldLevels,
    IdColumn,
    Json,
    Judge,
    LatentColumn,
    ListSize,
    Matchmaking,
    Overlap,
    Prompt,
    Quiet,
    RatingName,
    RetryFailed,
    Rounds,
    RunName,
    RunsDir,
    Seed,
    SimAccuracy,
    SimBias,
    SimBiasedItems,
    SimDistance,
    SimLatency,
    SimModel,
    SimPmax,
    SimRateLimited,
    SimSpread,
    SimTimeouts,
    SimUnreadable,
    StartAfresh,
    Strategy,
    SyntheticSize,
    TextColumn,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from judgeq.results import Result
    from judgeq.sitting import Prepared

EXIT_CODES = (
    "Exit codes: 0 done; 1 a bug in judgeq; 2 usage; 3 data; 4 judge (it can't be used, or jobs "
    "failed); 5 stopped, can be resumed; 6 budget used up; 7 run (not there, in use, changed or "
    "damaged); 8 a rating did not converge."
)


class _Group(TyperGroup):
    """Turns our errors into a message and an exit code; a user's mistake gets no traceback."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        # The list of commands comes plain: typer's rich help imports a Markdown parser and would
        # take twice as long. The commands' own help, with its groups of options, is rich.
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except JudgeqError as error:
            _complain(str(error))
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            _complain("stopped.")
            raise typer.Exit(StoppedError.exit_code) from None


app = typer.Typer(
    name="judgeq",
    cls=_Group,
    help="Put texts on a continuous scale by having a judge compare them.\n\n"
    "Start with `judgeq run --dataset demo`: it is offline and free. No money is ever spent "
    "unless a model is named with --judge.",
    epilog=EXIT_CODES,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
prompts_app = typer.Typer(
    help="List the prompt sets, or show what one would send.", invoke_without_command=True
)
app.add_typer(prompts_app, name="prompts")


def main() -> None:
    """The `judgeq` command."""
    app()


# Commands


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"judgeq {installed('judgeq')}")
        raise typer.Exit


@app.command(epilog=EXIT_CODES)
def run(
    dataset: Dataset = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    gold_column: GoldColumn = None,
    gold_levels: GoldLevels = None,
    latent_column: LatentColumn = None,
    n: SyntheticSize = None,
    data_dir: DataDir = None,
    strategy: Strategy = None,
    rounds: Rounds = None,
    k: ListSize = None,
    overlap: Overlap = None,
    matchmaking: Matchmaking = None,
    judge: Judge = None,
    prompt: Prompt = None,
    feature: Feature = None,
    seed: Seed = None,
    sim_model: SimModel = None,
    sim_accuracy: SimAccuracy = None,
    sim_pmax: SimPmax = None,
    sim_distance: SimDistance = None,
    sim_spread: SimSpread = None,
    sim_biased_items: SimBiasedItems = None,
    sim_bias: SimBias = None,
    sim_latency: SimLatency = None,
    sim_rate_limited: SimRateLimited = None,
    sim_timeouts: SimTimeouts = None,
    sim_unreadable: SimUnreadable = None,
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    concurrency: Concurrency = None,
    retry_failed: RetryFailed = False,
    new: StartAfresh = False,
    config: ConfigFile = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Judge a dataset from start to scores, or go on with it.

    The same command again goes on with the same run: interrupted, it resumes;
    finished, it shows its result and asks nothing. Ctrl-C once lets the calls
    in flight finish, twice stops now.

    Examples:

      judgeq run --dataset babe --strategy listwise10

      judgeq run -d my.csv --text-column body --gold-column label

      judgeq run -d demo -s pairwise --sim-latency 0.5
    """
    given = dict(locals())
    for name in ("config", "runs_dir", "quiet", "as_json", "new", "retry_failed"):
        del given[name]
    if gold_levels is not None:
        given["gold_levels"] = tuple(gold_levels.split(","))
    from judgeq import config as configuration
    from judgeq import sitting

    settings = configuration.settle(given, config)
    _play(sitting.prepare(settings, runs_dir, new=new), quiet, as_json, retry_failed)


@app.command(epilog=EXIT_CODES)
def resume(
    name: RunName = "last",
    concurrency: Concurrency = None,
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    sim_latency: SimLatency = None,
    sim_rate_limited: SimRateLimited = None,
    sim_timeouts: SimTimeouts = None,
    sim_unreadable: SimUnreadable = None,
    retry_failed: RetryFailed = False,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Go on with a run that was stopped or killed.

    What was answered is never asked again.
    """
    changes = {
        "concurrency": concurrency,
        "rating": rating,
        "bt_sigma": bt_sigma,
        "sim_latency": sim_latency,
        "sim_rate_limited": sim_rate_limited,
        "sim_timeouts": sim_timeouts,
        "sim_unreadable": sim_unreadable,
    }
    from judgeq import runs, sitting

    folder = runs.find(runs_dir, name)
    _play(sitting.take_up(folder, changes), quiet, as_json, retry_failed)


def _play(prepared: Prepared, quiet: bool, as_json: bool, retry_failed: bool) -> None:
    import asyncio

    from judgeq import dashboard, results, sitting

    face = dashboard.choose(_console(stderr=True), quiet=quiet)
    try:
        with face:
            result = sitting.sit(
                prepared, face, beside=face.draw_forever, retry_failed=retry_failed
            )
    except StoppedError as error:
        if as_json:
            _print_json(asyncio.run(results.state(prepared.folder)).as_json())
        raise StoppedError(
            f"{error}. Nothing that was answered is lost: the same command, or "
            f"`judgeq resume {prepared.folder.id}`, goes on."
        ) from error
    _show(result, quiet, as_json)
    if result.counts.failed:
        raise JudgeError(
            f"{result.counts.failed} jobs failed and are left out of the ratings; "
            f"`judgeq resume {result.run.id} --retry-failed` asks them again."
        )


@app.command(epilog=EXIT_CODES)
def rate(
    name: RunName = "last",
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make the ratings again from a run's ledger.

    Writes scores.csv; asks nothing. A run that isn't finished is rated by
    what there is, and marked as partial.
    """
    import asyncio

    from judgeq import results, runs

    folder = runs.find(runs_dir, name)
    settings = folder.info().settings_with({"rating": rating, "bt_sigma": bt_sigma})
    result = asyncio.run(results.read(folder, settings.rating, settings.bt_sigma))
    results.write_scores(result.scores, folder.scores)
    _show(result, quiet, as_json)


@app.command(epilog=EXIT_CODES)
def status(name: RunName = "last", runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """Show how far a run is, while it runs or afterwards."""
    import asyncio

    from judgeq import report, results, runs

    folder = runs.find(runs_dir, name)
    found = asyncio.run(results.state(folder, ratings=True))
    if as_json:
        _print_json(found.as_json())
    else:
        _print(*report.status(found))


@app.command("runs", epilog=EXIT_CODES)
def list_runs(runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """List the runs, the latest first."""
    import asyncio

    from judgeq import report, results, runs

    states, problems = [], []
    for folder in runs.all_runs(runs_dir):
        try:
            states.append(asyncio.run(results.state(folder)))
        except RunError as error:
            problems.append(str(error))
    if as_json:
        _print_json([state.as_json() for state in states])
    elif states:
        _print(report.run_table(states))
    elif not problems:
        _print(f"No runs in {runs_dir}. `judgeq run --dataset demo` makes one.")
    for problem in problems:
        _complain(problem)


@app.command(epilog=EXIT_CODES)
def datasets(
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the known corpora's files lie.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the datasets: size, licence, whether the texts are here."""
    from judgeq import datasets as known_datasets
    from judgeq import report

    known = known_datasets.known(data_dir)
    if as_json:
        _print_json(report.datasets_json(known))
    else:
        _print(*report.dataset_tables(known))


@app.command(epilog=EXIT_CODES)
def strategies(
    n: Annotated[int, typer.Option("--n", min=2, help="Items to tell the cost for.")] = 1000,
    as_json: Json = False,
) -> None:
    """List the strategies, what they cost, and when to use them."""
    from judgeq import report

    if as_json:
        _print_json(report.strategies_json(n))
    else:
        _print(*report.strategy_table(n))


@prompts_app.callback()
def prompts(context: typer.Context, as_json: Json = False) -> None:
    """List the prompt sets."""
    if context.invoked_subcommand is not None:
        return
    from judgeq import prompts as prompt_sets
    from judgeq import report

    known = prompt_sets.known()
    if as_json:
        _print_json([prompt.model_dump() for prompt in known])
    else:
        _print(report.prompt_table(known))


@prompts_app.command("show")
def show_prompt(
    name: Annotated[str, typer.Argument(help="A prompt set's name, or a .toml file's path.")],
    dataset: Annotated[
        str, typer.Option("--dataset", "-d", help="Whose first items to show it with.")
    ] = "demo",
    text_column: Annotated[str | None, typer.Option(help="A file's column of texts.")] = None,
    feature: Annotated[str | None, typer.Option(help="For the prompt set 'generic'.")] = None,
    k: Annotated[int, typer.Option("--k", min=2, help="2 for a pair, more for a list.")] = 3,
    as_json: Json = False,
) -> None:
    """Print exactly what would be sent about the first items of a dataset."""
    from judgeq import datasets as known_datasets
    from judgeq import prompts as prompt_sets
    from judgeq import report
    from judgeq.errors import DataError

    prompt = prompt_sets.load(name, feature)
    loaded = known_datasets.load(
        known_datasets.DatasetSpec(dataset=dataset, text_column=text_column)
    )
    if loaded.texts is None:
        raise DataError(loaded.missing_texts)
    messages = prompt_sets.messages(prompt, list(loaded.texts[:k]))
    if as_json:
        _print_json(messages)
    else:
        _print(*report.messages(messages))


# Printing


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    # A file or a pipe has no width to fit into.
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 160
    return Console(stderr=stderr, highlight=False, width=width)


def _print(*renderables: RenderableType) -> None:
    from rich.table import Table

    console = _console()
    for renderable in renderables:
        # Only tables are laid out; a line of text (a path, a prompt) is left for the terminal to wrap.
        console.print(renderable, soft_wrap=not isinstance(renderable, Table), markup=False)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def _show(result: Result, quiet: bool, as_json: bool) -> None:
    from judgeq import report, results

    if as_json:
        _print_json(results.as_json(result))
    elif not quiet:
        _print(*report.summary(result, result.run.info()))


def _complain(message: str) -> None:
    from judgeq.words import plain

    text = plain(message, 10_000)
    if sys.stderr.isatty():
        typer.secho(f"judgeq: {text}", err=True, fg=typer.colors.RED)
    else:
        typer.echo(f"judgeq: {text}", err=True)
