"""How good runs are, and which is better, for other programs: as JSON, and as CSV in long form."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from judgeq.comparison import Comparison, zero_outside
from judgeq.ensembles import Ensemble
from judgeq.errors import UsageError
from judgeq.evaluation import COUNTS, THRESHOLDED, Plan, Row, Scored
from judgeq.gold import Gold
from judgeq.rating.quality import LEVEL, Estimate

EVALUATION_COLUMNS = ("run", "rating", "items", "measure", "value", "low", "high", "n", "threshold")
COMPARISON_COLUMNS = ("what", *EVALUATION_COLUMNS, "against", "against_rating")


def evaluation_json(
    run: Scored, gold: Gold | None, plan: Plan, rows: Sequence[Row], judges: Ensemble | None = None
) -> dict[str, Any]:
    """For `judgeq evaluate --json`."""
    return {
        **_run_json(run),
        **({} if gold is None else _plan_json(gold, plan)),
        "ratings": [_row_json(row) for row in rows],
        "judges": None if judges is None else _judges_json(judges),
    }


def _judges_json(judges: Ensemble) -> dict[str, Any]:
    return {
        "names": list(judges.names),
        "verdicts": list(judges.verdicts),
        "kendall": {
            rating: [[None if math.isnan(value) else value for value in row] for row in matrix]
            for rating, matrix in ((name, each.tolist()) for name, each in judges.kendall.items())
        },
        "krippendorff_alpha": asdict(judges.alpha),
        "judged_by_several": judges.shared,
    }


def comparison_json(
    runs: Sequence[Scored], gold: Gold, plan: Plan, found: Comparison, notices: Sequence[str]
) -> dict[str, Any]:
    """For `judgeq compare --json`; runs are numbered from 1."""
    return {
        "runs": [_run_json(run) for run in runs],
        "items": found.items,
        **_plan_json(gold, plan),
        "ratings": [
            {"number": at, **_row_json(row)}
            for at, rows in enumerate(found.rows, start=1)
            for row in rows
        ],
        "differences": [
            {
                "number": each.run + 1,
                "run": runs[each.run].id,
                "rating": each.rating,
                "against": runs[each.against].id,
                "against_rating": each.against_rating,
                "n": each.n,
                "measures": {
                    name: {**asdict(value), "zero_outside": zero_outside(value)}
                    for name, value in each.measures.items()
                },
            }
            for each in found.differences
        ],
        "agreement": [
            {
                "numbers": [each.against + 1, each.run + 1],
                "run": runs[each.run].id,
                "rating": each.rating,
                "against": runs[each.against].id,
                "against_rating": each.against_rating,
                "n": each.n,
                "kendall": each.kendall,
                "spearman": each.spearman,
            }
            for each in found.agreement
        ],
        "notices": list(notices),
    }


def _run_json(run: Scored) -> dict[str, Any]:
    return {
        "run": run.id,
        "folder": str(run.result.run.path),
        "partial": run.result.partial,
        "dataset": run.info.dataset,
        "strategy": run.info.strategy,
        "judge": run.info.judge,
        "rating": {"name": run.result.rating}
        | ({"sigma": run.result.bt_sigma} if run.result.rating == "bt" else {}),
    }


def _plan_json(gold: Gold, plan: Plan) -> dict[str, Any]:
    return {
        "gold": {
            "source": gold.source,
            "positive": None if gold.positive is None else gold.classes,
            "no_detection": gold.classes if gold.positive is None else None,
        },
        "threshold": plan.threshold,
        "intervals": {"level": LEVEL, "resamples": plan.resamples, "seed": plan.seed},
    }


def _row_json(row: Row) -> dict[str, Any]:
    return {
        "run": row.run,
        "rating": row.rating,
        "items": row.items,
        "n": row.n,
        "without_gold": row.without_gold,
        "without_score": row.without_score,
        "threshold": None if row.threshold is None else asdict(row.threshold),
        "measures": {
            name: {
                "value": _whole(name, found.value),
                "low": found.low,
                "high": found.high,
                **({"why": row.why[name]} if name in row.why else {}),
            }
            for name, found in row.measures.items()
        },
    }


def _whole(name: str, value: float | None) -> float | None:
    """Counts as whole numbers."""
    return int(value) if name in COUNTS and value is not None else value


# CSV


def evaluation_cells(rows: Sequence[Row]) -> list[list[object]]:
    """For `judgeq evaluate --csv`: EVALUATION_COLUMNS, a row each measure."""
    return [cells for row in rows for cells in _cells(row)]


def comparison_cells(runs: Sequence[Scored], found: Comparison) -> list[list[object]]:
    """For `judgeq compare --csv`: COMPARISON_COLUMNS, a row each measure of a run, difference and
    agreement."""
    rows: list[list[object]] = [
        ["value", *cells, None, None] for some in found.rows for cells in evaluation_cells(some)
    ]
    for each in found.differences:
        one = runs[each.run].id, each.rating, found.items
        other = runs[each.against].id, each.against_rating
        for name, value in each.measures.items():
            numbers = _numbers(name, value)
            rows.append(["difference", *one, name, *numbers, each.n, None, *other])
    for pair in found.agreement:
        one = runs[pair.run].id, pair.rating, found.items
        other = runs[pair.against].id, pair.against_rating
        for name, tau in (("kendall", pair.kendall), ("spearman", pair.spearman)):
            rows.append(["agreement", *one, name, tau, None, None, pair.n, None, *other])
    return rows


def _cells(row: Row) -> Iterator[list[object]]:
    threshold = None if row.threshold is None else row.threshold.value
    for name, found in row.measures.items():
        yield [
            *(row.run, row.rating, row.items, name, *_numbers(name, found), row.n),
            threshold if name in THRESHOLDED else None,
        ]


def _numbers(name: str, found: Estimate) -> tuple[float | None, float | None, float | None]:
    return _whole(name, found.value), found.low, found.high


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A header and rows; None is an empty cell, and numbers read back as the same bits.

    Raises UsageError where the file can't be written.
    """
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows([columns, *rows])
    try:
        path.write_text(content.getvalue(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--csv {path} can't be written: {error.strerror}.") from error
