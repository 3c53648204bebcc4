"""The commands that report how good scores are: evaluate, compare."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli import running, showing  # noqa: F401 - their commands are listed before these
from judgeq.cli.app import command
from judgeq.cli.looking import CsvFile, rated
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

RATED = ("rating", "sigma", "unbias_position")
"""The settings that decide the scores."""
LONG = 50_000_000
"""Items drawn in all resamples above which it takes half a minute and more."""


_gold: Any = partial(typer.Option, rich_help_panel="Gold labels")
_how: Any = partial(typer.Option, rich_help_panel="Evaluation")
GoldFile = Annotated[
    Path | None,
    _gold(
        "--gold",
        help="Gold labels other than the run's: a CSV, TSV, JSONL or Parquet file.",
        metavar="FILE",
        show_default="the run's",
    ),
]
GoldColumn = Annotated[str | None, _gold(help="The file's column of labels.", show_default="gold")]
IdColumn = Annotated[
    str | None,
    _gold(help="The file's column of the items' ids.", show_default="id, else the row number"),
]
GoldLevels = Annotated[
    str | None,
    _gold(
        help="The file's labels from least to most of the feature, if they are words.",
        metavar="LOW,…,HIGH",
    ),
]
PositiveOver = Annotated[
    float | None,
    _gold(help="Items with gold above this are positive.", show_default="the larger of two labels"),
]


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


Threshold = Annotated[
    Any,
    _how(
        help="The score above which an item is labelled positive. default "
        f"({', '.join(f'{name} {value:g}' for name, value in THRESHOLDS.items())}), a number; "
        "best: the highest F1 by 10-fold cross-validation; mixture: where two Gaussian components of "
        "the scores cross, without using the gold.",
        metavar="default|best|mixture|NUMBER",
        parser=_number,
    ),
]
RatingOnly = Annotated[
    str | None, _how("--rating-name", help="Only this rating.", metavar="|".join(THRESHOLDS))
]
Subset = Annotated[str | None, _how(help="Only this subset of the items.", metavar="NAME")]
Resamples = Annotated[
    int,
    _how(help="Bootstrap resamples for the 95 % intervals; 0: no intervals.", min=0, max=1_000_000),
]
EvaluationSeed = Annotated[int, _how("--seed", help="Seed of the resamples and folds.", min=0)]
Splits = Annotated[
    int | None,
    _how(
        help="Number of splits for the split-half reliability; 0: none.",
        min=0,
        max=100_000,
        show_default="100, fewer of large runs",
    ),
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
@with_settings(*RATED, flags_of=plan_flags)
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
    plan, (run,) = opened_runs([name], runs_dir, store, flags)
    evaluated = evaluation(run, plan, splits)
    if csv is not None:
        write_csv(csv, [*rows(plain(evaluated), labels={"run": run.run.id})])
    if as_json:
        print_json(evaluated)
    else:
        show(*show_evaluation.evaluation(evaluated))


@command("compare")
@with_settings(*RATED, flags_of=plan_flags)
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
    plan, runs = opened_runs(names, runs_dir, store, flags)
    compared = compare(runs, plan)
    if csv is not None:
        known = plain(compared)
        known["runs"] = [{key: run[key] for key in ("run", "evaluation")} for run in known["runs"]]
        write_csv(csv, [*rows(known)])
    if as_json:
        print_json(compared)
    else:
        show(*show_evaluation.comparison(compared))


def opened_runs(
    names: Sequence[str], runs_dir: Path, store: str | None, flags: dict[str, Any]
) -> tuple[Plan, list[Result]]:
    """How to evaluate, and the runs named, rated."""
    from judgeq.evaluation.gold import Plan

    changes = {name: flags.pop(name) for name in RATED}
    accept_damage, levels = flags.pop("accept_damage"), flags.pop("gold_levels")
    plan = Plan(**flags, gold_levels=levels and levels.split(","))
    opened = [rated(name, runs_dir, store, accept_damage, changes) for name in names]
    items = len(opened[0].items.ids)
    if items * plan.resamples > LONG:
        complain(
            f"{plan.resamples:,} resamples of {items:,} items take a while. Give fewer with "
            "--resamples, or 0 for no intervals."
        )
    return plan, opened
