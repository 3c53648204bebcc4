"""The command line. Only this module prints and ends the process.

What a command needs is imported when it runs, so that `judgeq --help` stays quick.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from judgeq.errors import JudgeqError, RunError, StoppedError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from judgeq.results import Result
    from judgeq.sitting import Prepared

EXIT_CODES = (
    "Exit codes: 0 done; 1 a bug in judgeq; 2 usage; 3 data; 4 judge (it can't be used, or jobs "
    "failed); 5 stopped, can be resumed; 6 budget used up; 7 run (not there, in use, changed or "
    "damaged)."
)


class _Group(TyperGroup):
    """Turns our errors into a message and an exit code; a user's mistake gets no traceback."""

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
    "Start with [bold]judgeq run --dataset demo[/bold]: it is offline and free. No money is ever "
    "spent unless a model is named with --judge.",
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


# What options share

DATA, STRATEGY, JUDGE = "Dataset", "Strategy", "Judge"
SIMULATED, RATING, SITTING = "Simulated judge", "Rating", "Running"


def _complete_dataset(incomplete: str) -> list[str]:
    from judgeq import datasets

    return [info.name for info in datasets.known() if info.name.startswith(incomplete)]


def _complete_run(incomplete: str) -> list[str]:
    from judgeq import runs

    names = ["last", *(run.id for run in runs.all_runs(Path("runs")))]
    return [name for name in names if name.startswith(incomplete)]


def _complete_strategy(incomplete: str) -> list[str]:
    return [name for name in ("listwise10", "pairwise") if name.startswith(incomplete)]


RunsDir = Annotated[
    Path,
    typer.Option(envvar="JUDGEQ_RUNS", help="Where run folders are kept.", rich_help_panel=SITTING),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object; all else goes to standard error.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show nothing but warnings and errors.")]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's id, a unique beginning of it, its folder, or 'last'.",
        autocompletion=_complete_run,
        show_default=False,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1, help="Calls in flight at most.", show_default="64", rich_help_panel=SITTING
    ),
]
RatingName = Annotated[
    str | None,
    typer.Option(
        "--rating",
        metavar="bt|bt-mm",
        help="Bradley-Terry: bt is the MAP under θ ~ N(0, σ²); bt-mm the paper's estimator.",
        show_default="bt",
        rich_help_panel=RATING,
    ),
]
BtSigma = Annotated[
    float | None,
    typer.Option(help="σ of bt's prior.", show_default="2", rich_help_panel=RATING),
]
RetryFailed = Annotated[
    bool,
    typer.Option(
        "--retry-failed", help="Ask failed and invalid jobs again.", rich_help_panel=SITTING
    ),
]


def _simulated(text: str, default: str) -> Any:
    return typer.Option(help=text, show_default=default, rich_help_panel=SIMULATED)


SimLatency = Annotated[
    float | None, _simulated("Seconds that an answer takes (× 0.5 to 1.5).", "0")
]
SimRateLimited = Annotated[
    float | None, _simulated("Share of calls refused with 'rate limited', for rehearsal.", "0")
]
SimTimeouts = Annotated[
    float | None, _simulated("Share of calls that time out, for rehearsal.", "0")
]
SimUnreadable = Annotated[
    float | None, _simulated("Share of unusable replies, for rehearsal.", "0")
]


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
    dataset: Annotated[
        str | None,
        typer.Option(
            "--dataset",
            "-d",
            help="babe, us_vs_them, demo, synthetic:normal (linear, bimodal, binary), or the path "
            "of a CSV, TSV, JSONL or Parquet file.",
            rich_help_panel=DATA,
            autocompletion=_complete_dataset,
            show_default=False,
        ),
    ] = None,
    text_column: Annotated[
        str | None,
        typer.Option(help="A file's column of texts.", show_default="text", rich_help_panel=DATA),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            help="A file's column of ids.", show_default="the row number", rich_help_panel=DATA
        ),
    ] = None,
    gold_column: Annotated[
        str | None,
        typer.Option(help="A file's column of gold labels.", rich_help_panel=DATA),
    ] = None,
    gold_levels: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,…,HIGH",
            help="The gold labels from least to most of the feature, where they are words.",
            rich_help_panel=DATA,
        ),
    ] = None,
    latent_column: Annotated[
        str | None,
        typer.Option(
            help="A column of numbers that the simulated judge answers from.",
            show_default="the gold",
            rich_help_panel=DATA,
        ),
    ] = None,
    n: Annotated[
        int | None,
        typer.Option(
            "--n", help="How many synthetic items.", show_default="1000", rich_help_panel=DATA
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(help="Where the known corpora's files lie.", rich_help_panel=DATA),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            "--strategy",
            "-s",
            help="listwise<k>[x<rounds>] or pairwise[<rounds>]; see `judgeq strategies`.",
            show_default="listwise10",
            rich_help_panel=STRATEGY,
            autocompletion=_complete_strategy,
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rounds.",
            show_default="3 of lists, 24 of pairs",
            rich_help_panel=STRATEGY,
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("--k", help="Items a list.", show_default="10", rich_help_panel=STRATEGY),
    ] = None,
    overlap: Annotated[
        int | None,
        typer.Option(
            help="Items that consecutive lists share.", show_default="0", rich_help_panel=STRATEGY
        ),
    ] = None,
    matchmaking: Annotated[
        str | None,
        typer.Option(
            metavar="similar|random",
            help="Who meets whom: items of similar rating, or any.",
            show_default="similar",
            rich_help_panel=STRATEGY,
        ),
    ] = None,
    judge: Annotated[
        str | None,
        typer.Option(
            "--judge",
            "-j",
            help="Who answers. The simulated judge knows the gold labels and costs nothing.",
            show_default="simulated",
            rich_help_panel=JUDGE,
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            help="A prompt set's name, or the path of one of your own.",
            show_default="the dataset's",
            rich_help_panel=JUDGE,
        ),
    ] = None,
    feature: Annotated[
        str | None,
        typer.Option(
            help="What to compare by, in words, for the prompt set 'generic'.",
            rich_help_panel=JUDGE,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="The seed of all randomness.", show_default="0", rich_help_panel=STRATEGY
        ),
    ] = None,
    sim_model: Annotated[
        str | None,
        typer.Option(
            metavar="vg|rrt",
            help="How lists are ranked: vg, noise by item; rrt, noise by pair.",
            show_default="vg",
            rich_help_panel=SIMULATED,
        ),
    ] = None,
    sim_accuracy: Annotated[
        float | None, _simulated("Share of right answers to a pair at --sim-distance.", "0.8")
    ] = None,
    sim_pmax: Annotated[
        float | None, _simulated("Share of right answers however far apart.", "0.99")
    ] = None,
    sim_distance: Annotated[
        float | None, _simulated("The distance of --sim-accuracy, on a scale of 1..1000.", "90")
    ] = None,
    sim_spread: Annotated[
        float | None, _simulated("Spread (sd) of the two groups of a binary gold.", "100")
    ] = None,
    sim_biased_items: Annotated[
        int | None, _simulated("Items that the judge always sees wrongly, by --sim-bias.", "0")
    ] = None,
    sim_bias: Annotated[
        float | None, _simulated("How much higher or lower it sees them.", "200")
    ] = None,
    sim_latency: SimLatency = None,
    sim_rate_limited: SimRateLimited = None,
    sim_timeouts: SimTimeouts = None,
    sim_unreadable: SimUnreadable = None,
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    concurrency: Concurrency = None,
    retry_failed: RetryFailed = False,
    new: Annotated[
        bool,
        typer.Option(
            "--new", help="Start afresh beside a run of the same.", rich_help_panel=SITTING
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file of settings, named as these flags; flags win.",
            rich_help_panel=SITTING,
        ),
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Judge a dataset from start to scores, or go on with a run that was interrupted.

    The same command again goes on with the same run: interrupted, it resumes; finished, it shows
    its result and asks nothing. Ctrl-C once lets the calls in flight finish, twice stops now.
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
    """Go on with a run that was stopped or killed; what was answered is never asked again."""
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
        _complain(
            f"{result.counts.failed} jobs failed and are left out of the ratings; "
            f"`judgeq resume {result.run.id} --retry-failed` asks them again."
        )
        raise typer.Exit(4)


@app.command(epilog=EXIT_CODES)
def rate(
    name: RunName = "last",
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make the ratings again from a run's ledger, and write scores.csv. Asks nothing.

    A run that isn't finished is rated by what there is, and marked as partial.
    """
    from judgeq import config, results, runs

    folder = runs.find(runs_dir, name)
    changes = {"rating": rating, "bt_sigma": bt_sigma}
    given = {key: value for key, value in changes.items() if value is not None}
    settings = config.settle(folder.info().settings.model_dump() | given)
    result = asyncio.run(results.read(folder, settings.rating, settings.bt_sigma))
    results.write_scores(result.scores, folder.scores)
    _show(result, quiet, as_json)


@app.command(epilog=EXIT_CODES)
def status(name: RunName = "last", runs_dir: RunsDir = Path("runs"), as_json: Json = False) -> None:
    """Show how far a run is, from any terminal, while it runs or afterwards."""
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
    """List the known datasets: size, licence, and whether the texts are here."""
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
    """List the strategies: how they are written, what they cost, when to use them."""
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
