"""The commands that report how good scores are: evaluate, compare."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli import running, showing  # noqa: F401 - their commands are listed before these
from judgeq.cli.app import command
from judgeq.cli.options import (
    AcceptDamage,
    Json,
    RunName,
    RunNames,
    RunsDir,
    StoreAddress,
    with_settings,
)
from judgeq.cli.printing import complain, print_json, show, spare
from judgeq.errors import UsageError
from judgeq.rating import THRESHOLDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgeq.engine.results import Result
    from judgeq.evaluation.gold import Plan

LONG = 50_000_000
"""Items drawn in all resamples above which it takes half a minute and more."""


def _gold(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Gold labels", **more)


def _how(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel="Evaluation", **more)


GoldFile = Annotated[
    Path | None,
    _gold(
        "Gold labels other than the run's: a CSV, TSV, JSONL or Parquet file.",
        "--gold",
        metavar="FILE",
        show_default="the run's",
    ),
]
GoldColumn = Annotated[str | None, _gold("The file's column of labels.", show_default="gold")]
IdColumn = Annotated[
    str | None,
    _gold("The file's column of the items' ids.", show_default="id, else the row number"),
]
GoldLevels = Annotated[
    str | None,
    _gold(
        "The file's labels from least to most of the feature, if they are words.",
        metavar="LOW,…,HIGH",
    ),
]
PositiveOver = Annotated[
    float | None,
    _gold("Items with gold above this are positive.", show_default="the larger of two labels"),
]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


Threshold = Annotated[
    Any,
    _how(
        "The score above which an item is labelled positive. default "
        f"({', '.join(f'{name} {value:g}' for name, value in THRESHOLDS.items())}), a number; "
        "best: the highest F1 by 10-fold cross-validation; mixture: where two Gaussian components of "
        "the scores cross, without using the gold.",
        metavar="default|best|mixture|NUMBER",
        parser=_number,
    ),
]
RatingOnly = Annotated[
    str | None, _how("Only this rating.", "--rating-name", metavar="|".join(THRESHOLDS))
]
Subset = Annotated[str | None, _how("Only this subset of the items.", metavar="NAME")]
Resamples = Annotated[
    int,
    _how("Bootstrap resamples for the 95 % intervals; 0: no intervals.", min=0, max=1_000_000),
]
EvaluationSeed = Annotated[int, _how("Seed of the resamples and folds.", "--seed", min=0)]
Splits = Annotated[
    int | None,
    _how(
        "Number of splits for the split-half reliability; 0: none.",
        min=0,
        max=100_000,
        show_default="100, fewer of large runs",
    ),
]
CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write every number to a CSV file, one a row."),
]


def plan_flags(
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
    accept_damage: AcceptDamage = False,
) -> None:
    """How both commands evaluate: the fields of `evaluate.Plan`; also a damaged run, or not."""


@command("evaluate")
@with_settings("rating", "sigma", "unbias_position", flags_of=plan_flags)
def evaluate(
    name: RunName = "last",
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    splits: Splits = None,
    csv: CsvFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Report how good a run's scores are, with and without gold labels.

    The first lines are the answers: agreement with gold, reliability, position
    bias, text length, misfit, agreement of judges. Below are all numbers, with
    95 % intervals by a bootstrap over the items. Asks no judge.

    Gold of two classes is also detected. Several judges are also evaluated each
    alone, and models by how well they agree with people.

    Examples:

      judgeq evaluate

      judgeq evaluate babe-list --threshold best

      judgeq evaluate babe-list --threshold mixture

      judgeq evaluate last --gold other.csv --id-column id --gold-levels no,yes

      judgeq evaluate last --positive-over 2 --csv numbers.csv
    """
    from judgeq.evaluation.evaluate import evaluation
    from judgeq.ui.json import plain, rows, write_csv
    from judgeq.ui.show import evaluation as show_evaluation

    spare(csv, "--csv", flags["gold"])
    plan, (run,) = opened_runs([name], runs_dir, store, **flags)
    evaluated = evaluation(run, plan, splits)
    if csv is not None:
        write_csv(csv, [*rows(plain(evaluated), labels={"run": run.run.id})])
    if as_json:
        print_json(evaluated)
    else:
        show(*show_evaluation.evaluation(evaluated))


@command("compare")
@with_settings("rating", "sigma", "unbias_position", flags_of=plan_flags)
def compare(
    names: RunNames,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    csv: CsvFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Compare runs over the same items: their scores and their rankings.

    Shows how similar the rankings are. With gold labels, of the first run or of
    --gold, also which run agrees better with them.

    Compared are the ratings that two runs have in common, and their main ratings
    if their names differ.

    Examples:

      judgeq compare babe-listwise10-simulated-e8 babe-direct-simulated-ab

      judgeq compare RUN1 RUN2 RUN3 --threshold best --csv numbers.csv
    """
    from judgeq.evaluation.compare import compare
    from judgeq.ui.json import plain, rows, write_csv
    from judgeq.ui.show import evaluation as show_evaluation

    if len(names) < 2:
        raise UsageError(
            "name two runs or more to compare. `judgeq runs` lists them; `judgeq evaluate` is for one."
        )
    spare(csv, "--csv", flags["gold"])
    plan, runs = opened_runs(names, runs_dir, store, **flags)
    compared = compare(runs, plan)
    if csv is not None:
        write_csv(csv, [*rows(plain(replace(compared, runs=())))])
    if as_json:
        print_json(compared)
    else:
        show(*show_evaluation.comparison(compared))


def opened_runs(
    names: Sequence[str],
    runs_dir: Path,
    store: str | None,
    gold_levels: str | None,
    rating: str | None,
    sigma: float | None,
    unbias_position: bool | None,
    accept_damage: bool,
    **how: Any,
) -> tuple[Plan, list[Result]]:
    """How to evaluate, and the runs named, rated."""
    import asyncio

    from judgeq import runs
    from judgeq.engine import results
    from judgeq.evaluation.gold import Plan

    plan = Plan(**how, gold_levels=None if gold_levels is None else gold_levels.split(","))
    opened = []
    for folder in [runs.runs_in(runs_dir, store).find(name, accept_damage) for name in names]:
        changes = {"rating": rating, "sigma": sigma, "unbias_position": unbias_position}
        settings = folder.info().settings_with(changes)
        opened.append(asyncio.run(results.read(folder, settings)))
    items = len(opened[0].items.ids)
    if items * plan.resamples > LONG:
        complain(
            f"{plan.resamples:,} resamples of {items:,} items take a while. Give fewer with "
            "--resamples, or 0 for no intervals."
        )
    return plan, opened
