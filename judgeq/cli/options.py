"""The options of the command line, as annotated types: one home for each flag, its help and group."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

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
    from judgeq.strategies import REGISTRY

    return [name for name in ("listwise10", *REGISTRY) if name.startswith(incomplete)]


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
        help="A run's id, a unique beginning of it, its folder, or 'last' (the default).",
        autocompletion=_complete_run,
        show_default=False,
    ),
]
Concurrency = Annotated[
    int | None,
    typer.Option(
        min=1, help="Calls in flight at most.", show_default="256", rich_help_panel=SITTING
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

Dataset = Annotated[
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
]
TextColumn = Annotated[
    str | None,
    typer.Option(help="A file's column of texts.", show_default="text", rich_help_panel=DATA),
]
IdColumn = Annotated[
    str | None,
    typer.Option(
        help="A file's column of ids.", show_default="the row number", rich_help_panel=DATA
    ),
]
GoldColumn = Annotated[
    str | None,
    typer.Option(help="A file's column of gold labels.", rich_help_panel=DATA),
]
GoldLevels = Annotated[
    str | None,
    typer.Option(
        metavar="LOW,…,HIGH",
        help="The gold labels from least to most of the feature, where they are words.",
        rich_help_panel=DATA,
    ),
]
LatentColumn = Annotated[
    str | None,
    typer.Option(
        help="A column of numbers that the simulated judge answers from.",
        show_default="the gold",
        rich_help_panel=DATA,
    ),
]
SyntheticSize = Annotated[
    int | None,
    typer.Option(
        "--n", help="How many synthetic items.", show_default="1000", rich_help_panel=DATA
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(help="Where the known corpora's files lie.", rich_help_panel=DATA),
]
Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        "-s",
        help="listwise10 (k), listwise10x3 (k, rounds), pairwise24 (rounds), streak:r=4,d=3, "
        "tail:w=8,p=20, complete, direct; `judgeq strategies` explains them.",
        show_default="listwise10",
        rich_help_panel=STRATEGY,
        autocompletion=_complete_strategy,
    ),
]
Rounds = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Rounds.",
        show_default="3 of lists, 24 of pairs",
        rich_help_panel=STRATEGY,
    ),
]
ListSize = Annotated[
    int | None,
    typer.Option("--k", help="Items a list.", show_default="10", rich_help_panel=STRATEGY),
]
Overlap = Annotated[
    int | None,
    typer.Option(
        help="Items that consecutive lists share.", show_default="0", rich_help_panel=STRATEGY
    ),
]
Matchmaking = Annotated[
    str | None,
    typer.Option(
        metavar="similar|random",
        help="Who meets whom: items of similar rating, or any.",
        show_default="similar",
        rich_help_panel=STRATEGY,
    ),
]
StreakLength = Annotated[
    int | None,
    typer.Option(
        help="streak: matches won, or lost, in a row after which an item leaves (r).",
        show_default="4",
        rich_help_panel=STRATEGY,
    ),
]
Opponents = Annotated[
    int | None,
    typer.Option(
        help="streak: distinct opponents that this takes (d).",
        show_default="3",
        rich_help_panel=STRATEGY,
    ),
]
WarmUp = Annotated[
    int | None,
    typer.Option(
        help="tail: the round from which on items leave (w).",
        show_default="8",
        rich_help_panel=STRATEGY,
    ),
]
Cut = Annotated[
    int | None,
    typer.Option(
        help="tail: percent of the active items that leave from each end, each round (p).",
        show_default="20",
        rich_help_panel=STRATEGY,
    ),
]
Repeats = Annotated[
    int | None,
    typer.Option(
        help="complete: how often each pair is asked (m).",
        show_default="1",
        rich_help_panel=STRATEGY,
    ),
]
Judges = Annotated[
    list[str] | None,
    typer.Option(
        "--judge",
        "-j",
        help="Who answers; several times for several judges. The simulated judge knows the gold "
        "labels and costs nothing; recorded:FILE says what was judged before; any other name is a "
        "model's.",
        show_default="simulated",
        rich_help_panel=JUDGE,
    ),
]
Judge = Annotated[
    str | None,
    typer.Option("--judge", "-j", help="The model.", show_default="none", rich_help_panel=JUDGE),
]
Persona = Annotated[
    list[str] | None,
    typer.Option(
        help="A persona of the prompt set, as which a model is asked; several times for several.",
        show_default=False,
        rich_help_panel=JUDGE,
    ),
]
Ensemble = Annotated[
    str | None,
    typer.Option(
        metavar="rotate|each",
        help="Of several judges: who is asked about a match, one in turn or each of them.",
        show_default="rotate",
        rich_help_panel=JUDGE,
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(
        help="A prompt set's name, or the path of one of your own.",
        show_default="the dataset's",
        rich_help_panel=JUDGE,
    ),
]
Feature = Annotated[
    str | None,
    typer.Option(
        help="What to compare by, in words, for the prompt set 'generic'.",
        rich_help_panel=JUDGE,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, help="The seed of all randomness.", show_default="0", rich_help_panel=STRATEGY
    ),
]
SimModel = Annotated[
    str | None,
    typer.Option(
        metavar="vg|rrt",
        help="How lists are ranked: vg, noise by item; rrt, noise by pair.",
        show_default="vg",
        rich_help_panel=SIMULATED,
    ),
]
SimAccuracy = Annotated[
    float | None, _simulated("Share of right answers to a pair at --sim-distance.", "0.8")
]
SimPmax = Annotated[float | None, _simulated("Share of right answers however far apart.", "0.99")]
SimDistance = Annotated[
    float | None, _simulated("The distance of --sim-accuracy, on a scale of 1..1000.", "90")
]
SimSpread = Annotated[
    float | None, _simulated("Spread (sd) of the two groups of a binary gold.", "100")
]
SimBiasedItems = Annotated[
    int | None, _simulated("Items that the judge always sees wrongly, by --sim-bias.", "0")
]
SimBias = Annotated[float | None, _simulated("How much higher or lower it sees them.", "200")]
StartAfresh = Annotated[
    bool,
    typer.Option("--new", help="Start afresh beside a run of the same.", rich_help_panel=SITTING),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Tell calls, tokens and dollars, and stop before anything is sent.",
        rich_help_panel=SITTING,
    ),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log",
        help="Write down every call, and what the libraries say, in this file.",
        rich_help_panel=SITTING,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        help="A TOML file of settings, named as these flags; flags win.",
        rich_help_panel=SITTING,
    ),
]
