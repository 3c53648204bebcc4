"""The first screen of a report: the question, how sure its answer is, and the ends of the scale."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from judgeq.escaping import plain
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.record import Record
from judgeq.text import listed, several
from judgeq.ui.sections import Column, Section, words
from judgeq.ui.show import evaluation as show_evaluation
from judgeq.ui.show import run as show_run

PART = 3
"""Texts that are shown from the top, the middle and the bottom of the ranking."""
EXCERPT = 56
"""Characters of a text that are shown: a line."""
NO_PROBLEM = "Every question was answered, every text was judged, and no position bias was found."


def title(record: Record) -> str:
    """The question, and who answered it about how many texts."""
    run = record.evaluation.run
    judges = {"simulated": "a simulated judge", "recorded": "imported judgments"}
    judge = judges.get(run.info.judge) or listed(run.judge.split(" + "))
    question = f"{run.info.dataset}:"
    if run.info.feature:
        feature = plain(run.info.feature, 200)
        asked = re.sub(r"^how (.+?) (the .+) (is|are)$", r"how \1 \3 \2?", feature)
        question = asked[:1].upper() + asked[1:] + ("" if asked.endswith("?") else ":")
    done = "scored" if run.history.alone else "ranked"
    return f"{question} {several(run.info.items, 'text')} {done} by {judge}"


def result(record: Record) -> Iterator[Section]:
    """How reliable the scores are, what they cost, what to be careful about, and the ranking's ends."""
    evaluation = record.evaluation
    run = evaluation.run
    _, _, numbers, *_ = show_run.result(run)
    facts = dict(show_evaluation.answers(evaluation))
    gold = ("Gold labels", "Detection") if evaluation.gold is not None else ()
    found = {name: facts[name] for name in ("Reliability", *gold) if name in facts}
    about = [run.info.dataset, run.info.strategy, several(run.rounds_planned, "round")]
    about += [f"{run.info.created:%Y-%m-%d}", run.run.id]
    warnings = [*cautions(record)]
    yield Section(
        facts=[*(dict(numbers.facts) | found | {"Run": ", ".join(about)}).items()],
        warnings=warnings,
        good=[NO_PROBLEM] if {*warnings} <= {show_run.SIMULATED} else [],
    )
    yield ends(record)


def cautions(record: Record) -> Iterator[str]:
    """What a reader must know before relying on the scores."""
    run = record.evaluation.run
    never = int((~run.scores.judged).sum())
    if never:
        yield f"{several(never, 'text')} never judged, without a score."
    if record.failures is not None:
        yield record.failures
    for section in show_run.result(run):
        yield from (one.removesuffix(" See `judgeq evaluate`.") for one in section.warnings)


def ends(record: Record) -> Section:
    """The texts at the top, in the middle and at the bottom, on the scale."""
    scores, texts = record.evaluation.run.scores, record.texts
    (name, values), sure = scores.main, scores.intervals
    order = np.argsort(-np.where(scores.scored, values, -np.inf), kind="stable")
    order = order[: int(scores.scored.sum())]
    if len(order) > 3 * PART:
        middle = (len(order) - PART) // 2
        order = np.concatenate([order[:PART], order[middle : middle + PART], order[-PART:]])
    low, high = (values, values) if sure is None else (sure.low, sure.high)
    rows = []
    for row in order.tolist():
        rank, score = str(scores.rank[row]), Measured(float(values[row]))
        if sure is not None:
            rank += f" ({sure.rank_low[row]}–{sure.rank_high[row]})"
            score = Measured(float(values[row]), float(low[row]), float(high[row]))
        text = [] if texts is None else [plain(texts[row], EXCERPT)]
        rows.append([rank, *text, score, scores.ids[row]])
    axis = float(low[order].min()), float(high[order].max())
    return Section(
        "The highest, middle and lowest texts",
        columns=[
            *words("rank", whole=True),
            *([] if texts is None else words("text")),
            Column(f"score ({name})", axis=axis),
            *words("item", at_most=24),
        ],
        rows=rows,
        notes=[]
        if sure is None
        else ["In brackets and as lines: 95 % intervals of rank and score."],
    )
