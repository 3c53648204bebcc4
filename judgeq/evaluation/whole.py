"""All that is known about how good a run is: against gold, and by its judgments alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from judgeq import seeds
from judgeq.engine import session
from judgeq.engine.results import Result
from judgeq.engine.scores import Scores
from judgeq.evaluation import agreement, metrics, scale, yardstick
from judgeq.evaluation.agreement import PanelAgreement
from judgeq.evaluation.evaluate import Assessment, Plan, evaluate, evaluated, gold_for, measured
from judgeq.evaluation.gold import Gold
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.scale import Misfit, Reliability
from judgeq.evaluation.yardstick import Yardstick
from judgeq.json_marks import INLINE
from judgeq.rating import correlation


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """A run's ratings against gold, as planned; how reliable its scale is, what doesn't fit it, whether
    longer texts score higher, and how well its judges agree, which need no gold. `gold` is None where
    there is none, `judges` where there is one, `length` where the texts aren't here; `people` where none
    judged."""

    run: Result = field(metadata=INLINE)
    plan: Plan
    gold: Gold | None
    assessments: Sequence[Assessment]
    reliability: Reliability
    misfit: Misfit
    judges: PanelAgreement | None = None
    length: Measured | None = None
    people: Yardstick | None = None


def evaluation(
    run: Result,
    plan: Plan,
    splits: int | None = None,
    texts: Sequence[str] | None = None,
) -> Evaluation:
    """All that is known about how good a run is; `splits` is how often the judgments are halved (None:
    as `splits_for` says); `texts` are the items' (None: looked for). A run without gold is evaluated
    without, unless something of the plan is about gold. Raises UsageError or DataError."""
    labelled = run.items.gold is not None and not np.isnan(run.items.gold).all()
    names = (
        "gold",
        "gold_column",
        "id_column",
        "gold_levels",
        "positive_over",
        "rating_name",
        "subset",
    )
    about_gold = any(getattr(plan, name) is not None for name in names)
    about_gold |= plan.threshold != "default"
    gold = gold_for(run, plan) if labelled or about_gold else None
    judges = agreement.of_run(run, plan.resamples, plan.seed)
    if texts is None and (dataset := session.dataset_of(run.run)) is not None:
        texts = dataset.texts
    return Evaluation(
        run=evaluated(run),
        plan=plan,
        gold=gold,
        assessments=[] if gold is None else evaluate(run, gold, plan, judges),
        reliability=scale.reliability_of(run, splits, plan.seed),
        misfit=scale.misfit_of(run),
        judges=judges,
        length=None if texts is None else with_length(run.scores, texts, plan.resamples, plan.seed),
        people=yardstick.of_run(run, plan.resamples, plan.seed),
    )


def with_length(scores: Scores, texts: Sequence[str], resamples: int, seed: int) -> Measured:
    """Spearman's ρ of the main rating with the length of the texts, over judged items, with its 95 %
    interval by a bootstrap: rewarding length is the commonest fault of judges."""
    rows = np.flatnonzero(scores.scored)
    measure = correlation.spearman(
        scores.main[1][rows], np.array([*map(len, texts)], dtype=np.float64)[rows]
    )
    value = correlation.point(measure, len(rows))
    if value is None:
        return Measured(None, why="all texts are of one length, or all scores equal")
    rng = seeds.rng(seed, "bootstrap", "length")
    drawn = [measure(weights) for weights in metrics.resamples(len(rows), resamples, rng)]
    return measured(value, np.concatenate(drawn) if drawn else None)
