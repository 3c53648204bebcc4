"""How good runs are, and which is better: as tables that fit into 100 columns."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from judgeq.comparison import Comparison, Difference, zero_outside
from judgeq.ensembles import Ensemble
from judgeq.evaluation import CORRELATION, COUNTS, DETECTION, FOLDS, Plan, Row, Scored
from judgeq.gold import Gold
from judgeq.rating.quality import LEVEL, Estimate
from judgeq.report import SIMULATED, grid, number, spoken
from judgeq.words import count, several

NAMES: Mapping[str, str] = {
    "pearson": "Pearson",
    "spearman": "Spearman",
    "kendall": "Kendall",
    "recall": "recall",
    "precision": "precision",
    "f1": "F1 (positive)",
    "accuracy": "accuracy",
    "macro_f1": "macro F1",
    "auc": "ROC AUC",
    "tp": "true positive",
    "fp": "false positive",
    "fn": "false negative",
    "tn": "true negative",
}
# Three values with their intervals are what fits into 100 columns.
POSITIVE, BOTH = DETECTION[:3], DETECTION[3:]
PAPER = {"recall": "recall", "accuracy": "accuracy", "precision": "precision", "f1": "F1"} | {
    "macro_f1": "macro F1", "auc": "AUC", **{name: NAMES[name] for name in CORRELATION}
}  # fmt: skip


def evaluation(
    run: Scored, gold: Gold | None, plan: Plan, rows: Sequence[Row], judges: Ensemble | None = None
) -> Iterator[RenderableType]:
    """All that is to be said of one run, from top to bottom."""
    yield Text.assemble(spoken(run.id, "bold"), (f": {_state(run)}", "bold"))
    if gold is not None:
        yield from _against(gold, plan, rows)
    else:
        yield Text("No gold labels: --gold names a file that has them.")
    if judges is not None:
        yield Text()
        yield from agreement_of_judges(judges)
    yield from _simulated([run])


def agreement_of_judges(judges: Ensemble) -> Iterator[RenderableType]:
    """How well several judges of a run agree."""
    table = _table("Agreement between the judges' ratings", "rating")
    for name in ("judge", "judge"):
        table.add_column(name)
    table.add_column("Kendall's τ-b", justify="right")
    for rating, matrix in judges.kendall.items():
        for one, other in combinations(range(len(judges.names)), 2):
            value = float(matrix[one, other])
            table.add_row(
                rating,
                spoken(judges.names[one]),
                spoken(judges.names[other]),
                number(None if math.isnan(value) else value),
            )
    yield table
    what = "items" if "direct" in judges.kendall else "pairs of items, which their answers imply"
    told = _value(judges.alpha) if judges.shared else "– (they judged nothing in common)"
    yield Text(f"Krippendorff's α {told}, on {count(judges.shared)} {what}, judged by several.")
    for name, verdicts in zip(judges.names, judges.verdicts, strict=True):
        yield spoken(f"{count(verdicts)} verdicts by {name}")


def _against(gold: Gold, plan: Plan, rows: Sequence[Row]) -> Iterator[RenderableType]:
    """A run's ratings against gold."""
    yield grid(*_facts(gold, plan, [rows]))
    if gold.positive is not None:
        yield Text()
        yield _measured("Detection: the positive items", POSITIVE, rows)
        yield _measured("Detection: both classes", BOTH, rows)
        yield _counts(rows)
    else:
        yield Text()
    yield _measured("Correlation with the gold labels", CORRELATION, rows)
    yield from _untold([rows])


def comparison(
    runs: Sequence[Scored],
    gold: Gold,
    plan: Plan,
    found: Comparison,
    notices: Sequence[str],
) -> Iterator[RenderableType]:
    """Several runs side by side, their differences to the first, and how alike they rank."""
    over = "" if found.items == "all" else f', "{found.items}" only'
    yield spoken(f"{len(runs)} runs over {count(len(runs[0].items.ids))} items{over}", "bold")
    yield grid(*((f"run {at}", f"{run.id}: {_state(run)}") for at, run in enumerate(runs, start=1)))
    yield Text()
    yield grid(*_facts(gold, plan, found.rows))
    yield Text()
    yield _side_by_side(gold, found)
    if found.differences:
        told = "Differences to run 1"
        if plan.resamples:
            told += " (paired: the same items are drawn for both; *: 0 is outside the interval)"
        yield Text(told)
        parts = (POSITIVE, BOTH, CORRELATION) if gold.positive is not None else (CORRELATION,)
        for names in parts:
            yield _differences(names, found.differences)
    if found.agreement:
        yield _agreement(found)
    yield from _untold(found.rows, numbered=True)
    for notice in notices:
        yield spoken(notice, "yellow")
    yield from _simulated(runs)


def _state(run: Scored) -> str:
    return "partial" if run.result.partial else "finished"


def _simulated(runs: Sequence[Scored]) -> Iterator[RenderableType]:
    if any("simulated" in run.info.judge.split(" + ") for run in runs):
        yield Text(SIMULATED, style="yellow")


def _facts(gold: Gold, plan: Plan, runs: Sequence[Sequence[Row]]) -> Iterator[tuple[str, str]]:
    """What the numbers are made from; of several runs `runs[r]` are the rows of the r-th."""
    labelled = int((~np.isnan(gold.values)).sum())
    yield "gold", f"{several(labelled, 'label')} of {gold.source}"
    if gold.positive is None:
        yield "detection", f"none: {gold.classes}"
    else:
        yield "positive", gold.classes
        yield from _thresholds(runs)
    if plan.resamples:
        how = f"percentile bootstrap over items, {several(plan.resamples, 'resample')}"
        yield "intervals", f"{LEVEL * 100:g} %, {how}"
    first = [[row for row in rows if row.items == rows[0].items] for rows in runs]
    left = [f"{several(first[0][0].without_gold, 'item')} without a gold label"]
    left = left if first[0][0].without_gold else []
    left += [
        f"{several(row.without_score, 'item')} without a score ({_who(row, at, len(runs))})"
        for at, rows in enumerate(first, start=1)
        for row in rows
        if row.without_score
    ]
    if left:
        yield "left out", "; ".join(left)


def _who(row: Row, number: int, runs: int) -> str:
    return row.rating if runs == 1 else f"run {number}, {row.rating}"


def _thresholds(runs: Sequence[Sequence[Row]]) -> Iterator[tuple[str, str]]:
    fixed: dict[str, str] = {}
    chosen: dict[str, str] = {}
    for at, rows in enumerate(runs, start=1):
        for row in rows:
            found = row.threshold
            if found is None:
                continue
            if found.low is None or found.high is None:
                given = " (given)" if found.rule == "given" else ""
                fixed[row.rating] = f"{row.rating} > {found.value:g}{given}"
            else:
                chosen[_who(row, at, len(runs))] = (
                    f"median {found.value:.5g}, from {found.low:.5g} to {found.high:.5g}"
                )
    if fixed:
        yield "threshold", ", ".join(fixed.values())
    if chosen:
        yield "threshold", f"chosen by {FOLDS}-fold cross-validation for the highest F1"
        yield from chosen.items()


def _table(title: str, *left: str) -> Table:
    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", title_style="")
    for name in left:
        table.add_column(name, no_wrap=True)
    return table


def _with_items(rows: Sequence[Row]) -> bool:
    return any(row.items != "all" for row in rows)


def _measured(title: str, names: Sequence[str], rows: Sequence[Row]) -> Table:
    """A row each rating, a column each measure with its interval."""
    table = _table(title, *(("items",) if _with_items(rows) else ()), "rating")
    for name in (*(NAMES[name] for name in names), "n"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            *((spoken(row.items),) if _with_items(rows) else ()),
            spoken(row.rating),
            *(_value(row.measures[name]) for name in names),
            count(row.n),
        )
    return table


def _value(found: Estimate) -> str:
    """ "0.779 [0.765, 0.793]"."""
    return number(found.value) + _interval(found)


def _interval(found: Estimate) -> str:
    if found.low is None or found.high is None:
        return ""
    return f" [{found.low:.3f}, {found.high:.3f}]"


def _counts(rows: Sequence[Row]) -> Table:
    table = _table("Confusion counts", *(("items",) if _with_items(rows) else ()), "rating")
    for name in (*(NAMES[name] for name in COUNTS), "n"):
        table.add_column(name, justify="right")
    for row in rows:
        values = (row.measures[name].value for name in COUNTS)
        table.add_row(
            *((spoken(row.items),) if _with_items(rows) else ()),
            spoken(row.rating),
            *("–" if value is None else count(int(value)) for value in values),
            count(row.n),
        )
    return table


def _side_by_side(gold: Gold, found: Comparison) -> Table:
    """The paper's table: a row each run and rating. Nine measures leave no room for intervals."""
    if gold.positive is None:
        table = _table("Correlation with the gold labels", "run", "rating")
        names: Mapping[str, str] = {name: NAMES[name] for name in CORRELATION}
    else:
        table = _table("Detection of, and correlation with, the gold labels", "run", "rating")
        table.padding = (0, 1, 0, 0)
        names = PAPER
    for name in names.values():
        table.add_column(name, justify="right")
    for at, rows in enumerate(found.rows, start=1):
        for row in rows:
            told = _value if gold.positive is None else _plain
            table.add_row(
                str(at), spoken(row.rating), *(told(row.measures[name]) for name in names)
            )
    return table


def _plain(found: Estimate) -> str:
    return number(found.value)


def _differences(names: Sequence[str], differences: Sequence[Difference]) -> Table:
    table = _table("", "run", "rating")
    table.padding = (0, 1, 0, 0)
    for name in names:
        table.add_column(NAMES[name], justify="right")
    for each in differences:
        table.add_row(
            f"{each.run + 1} − {each.against + 1}",
            _ratings(each.rating, each.against_rating, "−"),
            *(_difference(each.measures[name]) for name in names),
        )
    return table


def _ratings(one: str, other: str, between: str) -> str:
    return one if one == other else f"{one} {between} {other}"


def _difference(found: Estimate) -> str:
    """ "+0.012 [0.003, 0.021]*"; what isn't marked ends with a blank, so that columns stand straight."""
    if found.value is None:
        return "– "
    mark = "*" if zero_outside(found) else " "
    return f"{found.value:+.3f}{_interval(found)}{mark}"


def _agreement(found: Comparison) -> Table:
    table = _table("Do they rank alike? (gold is no matter)", "runs", "rating")
    for name in ("Kendall", "Spearman", "n"):
        table.add_column(name, justify="right")
    for each in found.agreement:
        table.add_row(
            f"{each.against + 1} and {each.run + 1}",
            _ratings(each.against_rating, each.rating, "and"),
            number(each.kendall),
            number(each.spearman),
            count(each.n),
        )
    return table


def _untold(runs: Sequence[Sequence[Row]], *, numbered: bool = False) -> Iterator[RenderableType]:
    """Why there is a dash."""
    reasons: dict[str, dict[str, None]] = {}
    for at, rows in enumerate(runs, start=1):
        for row in rows:
            where = f"run {at}, {row.rating}" if numbered else row.rating
            if row.items != "all":
                where += f" over {row.items}"
            for name, reason in row.why.items():
                reasons.setdefault(reason, {})[f"{NAMES[name]} of {where}"] = None
    for reason, places in reasons.items():
        yield spoken(f"–: {reason} ({', '.join(places)}).")
