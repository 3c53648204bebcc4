"""How good runs are, and which is better, for other programs: as JSON, and as CSV in long form."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from judgeq.engine.result_data import about, order
from judgeq.engine.results import Result
from judgeq.errors import UsageError
from judgeq.evaluation.agreement import PanelAgreement
from judgeq.evaluation.compare import Comparison, Pair, zero_outside
from judgeq.evaluation.evaluate import THRESHOLDED, Assessment, Plan
from judgeq.evaluation.gold import Gold
from judgeq.evaluation.metrics import LEVEL, Measured
from judgeq.evaluation.whole import Evaluation
from judgeq.evaluation.yardstick import Yardstick
from judgeq.ui import judge_sections, scale_data
from judgeq.untrusted import for_spreadsheet

EVALUATION_COLUMNS = ("run", "rating", "items", "measure", "value", "low", "high", "n", "threshold")
COMPARISON_COLUMNS = ("what", *EVALUATION_COLUMNS, "against", "against_rating")


def evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    """For `judgeq evaluate --json`."""
    gold, judges = evaluation.gold, evaluation.judges
    return {
        **_run_json(evaluation.run),
        **({} if gold is None else _plan_json(gold, evaluation.plan)),
        "ratings": [_assessment_json(assessment) for assessment in evaluation.assessments],
        "judges": None if judges is None else _judges_json(judges),
        "people": None if evaluation.people is None else _people_json(evaluation.people),
        "reliability": scale_data.reliability_json(evaluation.reliability),
        "misfit": scale_data.misfit_json(evaluation.misfit, evaluation.run.items.ids),
        "order": order(evaluation.run),
        "length": None if evaluation.length is None else _measured_json(evaluation.length),
    }


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """For `judgeq compare --json`; runs are numbered from 1."""
    return {
        "runs": [_run_json(run) for run in comparison.runs],
        "items": comparison.items,
        **_plan_json(comparison.gold, comparison.plan),
        "ratings": [
            {"number": number, **_assessment_json(assessment)}
            for number, of_run in enumerate(comparison.assessments, start=1)
            for assessment in of_run
        ],
        "differences": [
            {
                "number": pair.run + 1,
                **_pair_json(pair, comparison),
                "measures": {
                    name: {**_measured_json(measured), "zero_outside": zero_outside(measured)}
                    for name, measured in pair.measures.items()
                },
            }
            for pair in comparison.differences
        ],
        "agreement": [
            {
                "numbers": [pair.against + 1, pair.run + 1],
                **_pair_json(pair, comparison),
                **{name: measured.value for name, measured in pair.measures.items()},
                "without_noise": None if pair.noise is None else pair.noise.corrected,
                "beyond_noise": None if pair.noise is None else int(pair.noise.beyond.sum()),
            }
            for pair in comparison.agreement
        ],
        "notices": list(comparison.notices),
    }


def _run_json(run: Result) -> dict[str, Any]:
    return {
        **about(run),
        "dataset": run.info.dataset,
        "strategy": run.info.strategy,
        "judge": run.judge,
    }


def _plan_json(gold: Gold, plan: Plan) -> dict[str, Any]:
    return {
        "gold": {
            "source": gold.source,
            "not_in_run": gold.others,
            "positive": None if gold.positive is None else gold.classes,
            "no_detection": gold.classes if gold.positive is None else None,
        },
        "threshold": plan.threshold,
        "intervals": {"level": LEVEL, "resamples": plan.resamples, "seed": plan.seed},
    }


def _assessment_json(assessment: Assessment) -> dict[str, Any]:
    fields = asdict(assessment)
    del fields["resampled"]
    if assessment.threshold is not None and assessment.threshold.why is None:
        del fields["threshold"]["why"]
    measures = assessment.measures.items()
    return fields | {"measures": {name: _measured_json(value) for name, value in measures}}


def _measured_json(measured: Measured) -> dict[str, Any]:
    why = {"why": measured.why} if measured.why else {}
    return {"value": measured.value, "low": measured.low, "high": measured.high, **why}


def _pair_json(pair: Pair, comparison: Comparison) -> dict[str, Any]:
    return {
        "run": comparison.runs[pair.run].run.id,
        "rating": pair.rating,
        "against": comparison.runs[pair.against].run.id,
        "against_rating": pair.against_rating,
        "n": pair.n,
    }


def _judges_json(judges: PanelAgreement) -> dict[str, Any]:
    return {
        "names": list(judges.names),
        "verdicts": list(judges.verdicts),
        "kendall": {
            rating: [[None if math.isnan(value) else value for value in row] for row in matrix]
            for rating, matrix in ((name, tau.tolist()) for name, tau in judges.kendall.items())
        },
        "krippendorff_alpha": _measured_json(judges.alpha),
        "judged_by_several": judges.shared,
        "others": {"judges": judges.others, "verdicts": judges.others_verdicts},
    }


def _people_json(people: Yardstick) -> dict[str, Any]:
    alpha_models = people.alpha_models
    return {
        "people": people.persons,
        "verdicts": people.verdicts,
        "questions": people.questions,
        "alike": _measured_json(people.alike),
        "krippendorff_alpha": _measured_json(people.alpha),
        "kendall_with_all": people.tau_all,
        "models": [
            {
                "name": held.name,
                "verdicts": held.verdicts,
                "questions": held.questions,
                "alike": _measured_json(held.alike),
                "people_alike": _measured_json(held.people),
                "difference": _measured_json(held.difference),
                "krippendorff_alpha": _measured_json(held.alpha),
                "kendall_with_people": held.tau,
                "kendall_with_all": held.tau_all,
            }
            for held in people.models
        ],
        "krippendorff_alpha_of_models": None
        if alpha_models is None
        else _measured_json(alpha_models),
        "each": [judge_sections.person_json(one) for one in people.each],
    }


# CSV


def evaluation_cells(assessments: Sequence[Assessment]) -> list[list[object]]:
    """For `judgeq evaluate --csv`: EVALUATION_COLUMNS, a row each measure."""
    rows: list[list[object]] = []
    for one in assessments:
        for name, measured in one.measures.items():
            threshold = one.threshold if name in THRESHOLDED else None
            cut = None if threshold is None else threshold.value
            numbers = (measured.value, measured.low, measured.high, one.n, cut)
            rows.append([one.run, one.rating, one.items, name, *numbers])
    return rows


def scale_cells(evaluation: Evaluation) -> list[list[object]]:
    """For `judgeq evaluate --csv`: the same columns, of reliability and misfit."""
    run = evaluation.run
    return [
        [run.run.id, *cells, None]
        for cells in (
            *scale_data.reliability_cells(evaluation.reliability),
            *scale_data.misfit_cells(evaluation.misfit, run.items.ids),
        )
    ]


def people_cells(evaluation: Evaluation) -> list[list[object]]:
    """For `judgeq evaluate --csv`: the same columns, of people and of models held against them; `items`
    is who is meant."""
    people = evaluation.people
    if people is None:
        return []
    measures: list[tuple[str, str, Measured, int]] = [
        ("people", "alike", people.alike, people.questions),
        ("people", "krippendorff_alpha", people.alpha, people.verdicts),
    ]
    for held in people.models:
        who = f"{held.name} and people"
        measures += [
            (who, "alike", held.alike, held.questions),
            (who, "alike_less_people", held.difference, held.questions),
            (who, "krippendorff_alpha", held.alpha, held.verdicts),
            (who, "kendall", Measured(held.tau), held.verdicts),
        ]
    for one in people.each:
        who = f"judge {one.name}"
        measures += [
            (who, "alike", Measured(one.others.share), one.others.questions),
            (who, "repeats_alike", one.repeats.measured, one.repeats.of),
            (who, "known_right", one.known.measured, one.known.of),
        ]
    return [
        [
            evaluation.run.run.id,
            people.rating,
            who,
            name,
            value.value,
            value.low,
            value.high,
            n,
            None,
        ]
        for who, name, value, n in measures
    ]


def comparison_cells(comparison: Comparison) -> list[list[object]]:
    """For `judgeq compare --csv`: COMPARISON_COLUMNS, a row each measure of a run, difference and
    agreement."""
    rows: list[list[object]] = [
        ["value", *cells, None, None]
        for of_run in comparison.assessments
        for cells in evaluation_cells(of_run)
    ]
    for what, pairs in (
        ("difference", comparison.differences),
        ("agreement", comparison.agreement),
    ):
        for pair in pairs:
            run, against = (comparison.runs[at].run.id for at in (pair.run, pair.against))
            for name, measured in pair.measures.items():
                numbers = (measured.value, measured.low, measured.high, pair.n, None)
                left = (what, run, pair.rating, comparison.items, name)
                rows.append([*left, *numbers, against, pair.against_rating])
    return rows


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A header and rows; None is an empty cell, and numbers read back as the same bits. People open
    it in spreadsheets, which must not run what a run, rating or subset is named.

    Raises UsageError where the file can't be written.
    """
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows(
        [columns, *(map(for_spreadsheet, row) for row in rows)]
    )
    try:
        path.write_text(content.getvalue(), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--csv {path} can't be written: {error.strerror}.") from error
