"""The commands that tell how good scores are, and ask nobody: evaluate, compare."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from judgeq.cli import running, showing  # noqa: F401 - their commands are listed before these
from judgeq.cli.app import EXIT_CODES, app
from judgeq.cli.options import BtSigma, Json, RatingName, RunName, RunsDir, _complete_run
from judgeq.cli.printing import complain, print_json, show, spare
from judgeq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgeq.evaluation import Plan, Scored
    from judgeq.gold import Gold

LONG = 50_000_000
"""So many items drawn take half a minute and more."""


def _gold(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Gold labels", **more)


def _how(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Evaluation", **more)


GoldFile = Annotated[
    Path | None,
    _gold(
        "Other gold labels than the run's: a CSV, TSV, JSONL or Parquet file.",
        "--gold",
        metavar="FILE",
        show_default="the run's",
    ),
]
GoldColumn = Annotated[str | None, _gold("The file's column of labels.", show_default="gold")]
IdColumn = Annotated[
    str | None, _gold("The file's column of the items' ids.", show_default="the row number")
]
GoldLevels = Annotated[
    str | None,
    _gold(
        "The file's labels from least to most of the feature, where they are words.",
        metavar="LOW,…,HIGH",
    ),
]
PositiveOver = Annotated[
    float | None,
    _gold("Items whose gold is over this are positive.", show_default="the larger of two labels"),
]
Threshold = Annotated[
    str,
    _how(
        "Over which score an item is labelled positive: default (elo 1500, bt 0, direct 0.5), a "
        "number, or best: chosen for the highest F1 by 10-fold cross-validation.",
        metavar="default|best|NUMBER",
    ),
]
RatingOnly = Annotated[
    str | None, _how("Only this rating.", "--rating-name", metavar="elo|bt|direct")
]
Subset = Annotated[str | None, _how("Only this subset of the items.", metavar="NAME")]
Resamples = Annotated[
    int,
    _how("Bootstrap resamples for the 95 % intervals; 0: no intervals.", min=0, max=1_000_000),
]
EvaluationSeed = Annotated[int, _how("The seed of resamples and folds.", "--seed", min=0)]
CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write every number to a CSV file, a row each."),
]


@app.command(epilog=EXIT_CODES)
def evaluate(
    name: RunName = "last",
    gold: GoldFile = None,
    gold_column: GoldColumn = None,
    id_column: IdColumn = None,
    gold_levels: GoldLevels = None,
    positive_over: PositiveOver = None,
    threshold: Threshold = "default",
    rating_name: RatingOnly = None,
    subset: Subset = None,
    resamples: Resamples = 1000,
    seed: EvaluationSeed = 0,
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    runs_dir: RunsDir = Path("runs"),
    csv: CsvFile = None,
    as_json: Json = False,
) -> None:
    """Tell how good a run's scores are against gold labels.

    Correlation for any gold, detection for gold of two classes; each with a
    95 % interval, by a bootstrap over the items. Of several judges also each by
    itself, and how well they agree. Asks nothing.

    Examples:

      judgeq evaluate

      judgeq evaluate babe-list --threshold best

      judgeq evaluate last --gold other.csv --id-column id --gold-levels no,yes

      judgeq evaluate last --positive-over 2 --csv numbers.csv
    """
    from judgeq import evaluation, tables, tidy

    spare(csv, "--csv", gold)
    plan = _plan(threshold, rating_name, subset, resamples, seed)
    (run,) = _open([name], runs_dir, rating, bt_sigma)
    judges = evaluation.judges_of(run, plan)
    labels, rows = None, []
    # How well judges agree can be told without gold.
    if judges is None or gold is not None or run.items.gold is not None:
        labels = _labels(run, gold, gold_column, id_column, gold_levels, positive_over)
        _warn_of_length(run, plan)
        rows = evaluation.evaluate(run, labels, plan, judges)
    if csv is not None:
        tidy.write_csv(csv, tidy.EVALUATION_COLUMNS, tidy.evaluation_cells(rows))
    if as_json:
        print_json(tidy.evaluation_json(run, labels, plan, rows, judges))
    else:
        show(*tables.evaluation(run, labels, plan, rows, judges))


@app.command(epilog=EXIT_CODES)
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN1 RUN2 …",
            help="Two runs or more over the same items, each by its id, a unique beginning of it, "
            "its folder, or 'last'. The others are held against the first.",
            autocompletion=_complete_run,
        ),
    ],
    gold: GoldFile = None,
    gold_column: GoldColumn = None,
    id_column: IdColumn = None,
    gold_levels: GoldLevels = None,
    positive_over: PositiveOver = None,
    threshold: Threshold = "default",
    rating_name: RatingOnly = None,
    subset: Subset = None,
    resamples: Resamples = 1000,
    seed: EvaluationSeed = 0,
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    runs_dir: RunsDir = Path("runs"),
    csv: CsvFile = None,
    as_json: Json = False,
) -> None:
    """Compare runs over the same items: scores, and how alike they rank.

    Gold is the first run's, or that of --gold. Differences are between the
    ratings that two runs have in common; and, where these have other names,
    between their main ratings (bt, or direct where that is all there is).

    Examples:

      judgeq compare babe-listwise10-simulated-e8 babe-direct-simulated-ab

      judgeq compare RUN1 RUN2 RUN3 --threshold best --csv numbers.csv
    """
    from judgeq import comparison, tables, tidy

    if len(names) < 2:
        raise UsageError(
            "name two runs or more to compare; `judgeq evaluate` tells about one, `judgeq runs` "
            "lists them."
        )
    spare(csv, "--csv", gold)
    plan = _plan(threshold, rating_name, subset, resamples, seed)
    runs = _open(names, runs_dir, rating, bt_sigma)
    labels = _labels(runs[0], gold, gold_column, id_column, gold_levels, positive_over)
    _warn_of_length(runs[0], plan)
    found = comparison.compare(runs, labels, plan)
    notices = comparison.notices(runs, labels)
    if csv is not None:
        tidy.write_csv(csv, tidy.COMPARISON_COLUMNS, tidy.comparison_cells(runs, found))
    if as_json:
        print_json(tidy.comparison_json(runs, labels, plan, found, notices))
    else:
        show(*tables.comparison(runs, labels, plan, found, notices))


def _plan(threshold: str, rating: str | None, subset: str | None, times: int, seed: int) -> Plan:
    from judgeq.evaluation import Plan

    return Plan(
        resamples=times, seed=seed, threshold=_threshold(threshold), rating=rating, subset=subset
    )


def _threshold(text: str) -> float | Literal["default", "best"]:
    if text == "default":
        return "default"
    if text == "best":
        return "best"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise UsageError(f"--threshold {text!r}: give default, best, or a number.")
    return value


def _open(
    names: Sequence[str], runs_dir: Path, rating: str | None, sigma: float | None
) -> list[Scored]:
    import asyncio

    from judgeq import evaluation, runs

    found = []
    for folder in [runs.find(runs_dir, name) for name in names]:
        settings = folder.info().settings_with({"rating": rating, "bt_sigma": sigma})
        opened = evaluation.open_run(folder, settings.rating, settings.bt_sigma)
        found.append(asyncio.run(opened))
    return found


def _labels(
    run: Scored,
    file: Path | None,
    gold_column: str | None,
    id_column: str | None,
    gold_levels: str | None,
    positive_over: float | None,
) -> Gold:
    from judgeq import gold

    if file is None:
        for flag, value in (
            ("--gold-column", gold_column),
            ("--id-column", id_column),
            ("--gold-levels", gold_levels),
        ):
            if value is not None:
                raise UsageError(f"{flag} is about a file of labels: name it with --gold FILE.")
        return gold.gold_of(run.items.gold, f"run {run.id}", positive_over)
    levels = None if gold_levels is None else gold_levels.split(",")
    values = gold.read_gold_file(file, run.items.ids, gold_column or "gold", id_column, levels)
    return gold.gold_of(values, str(file), positive_over)


def _warn_of_length(run: Scored, plan: Plan) -> None:
    if len(run.items.ids) * plan.resamples > LONG:
        complain(
            f"drawing {len(run.items.ids):,} items {plan.resamples:,} times takes a while; fewer "
            "--resamples are quicker, and 0 gives the values without intervals."
        )
