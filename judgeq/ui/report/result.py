"""The first screen of a report: the question, how sure its answer is, and the ends of the scale."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from judgeq.escaping import plain
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.record import Record
from judgeq.settings.run import REHEARSAL
from judgeq.text import listed, several
from judgeq.ui.sections import Column, Section
from judgeq.ui.show import evaluation as show_evaluation
from judgeq.ui.show import items as show_items
from judgeq.ui.show import run as show_run

PART = 3
"""Texts that are shown from the top, the middle and the bottom of the ranking."""
EXCERPT = 50
"""Characters of a text that are shown: a line."""
NO_PROBLEM = "Every question was answered, every text was judged, and no position bias was found."


def title(record: Record) -> str:
    """The question, and who answered it about how many texts."""
    run = record.evaluation.run
    judges = {"simulated": "a simulated judge", "recorded": "imported judgments"}
    judges[REHEARSAL] = "made-up answers"
    judge = judges.get(run.info.judge) or listed(run.judge.split(" + "))
    question = f"{run.info.dataset}:"
    if run.info.feature:
        feature = plain(run.info.feature, 200)
        asked = re.sub(r"^how (.+?) (the .+) (is|are)$", r"how \1 \3 \2?", feature)
        question = asked[:1].upper() + asked[1:] + ("" if asked.endswith("?") else ":")
    done = "scored" if run.history.alone else "ranked"
    return f"{run.info.settings.mark}{question} {several(run.info.items, 'text')} {done} by {judge}"


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
    for section in show_run.result(run):
        yield from (one.removesuffix(" See `judgeq evaluate`.") for one in section.warnings)


def ends(record: Record) -> Section:
    """The texts at the top, in the middle and at the bottom, on the scale."""
    texts = record.texts and [plain(text, EXCERPT) for text in record.texts]
    scores = replace(record.evaluation.run.scores, texts=texts)
    (name, values), sure = scores.main, scores.intervals
    rows = np.argsort(-np.where(scores.scored, values, -np.inf), kind="stable").tolist()
    rows = rows[: int(scores.scored.sum())]
    if len(rows) > 3 * PART:
        middle = (len(rows) - PART) // 2
        rows = [*rows[:PART], *rows[middle : middle + PART], *rows[-PART:]]
    low, high = (values, values) if sure is None else (sure.low, sure.high)
    axis = Column(f"score ({name})", axis=(float(low[rows].min()), float(high[rows].max())))

    def measured(row: int) -> Measured:
        return Measured(values[row], *((None, None) if sure is None else (low[row], high[row])))

    heads, table = show_items.table(scores, rows, [(axis, measured)])
    shown = [at for at, head in enumerate(heads) if head.name not in ("score", "95 % interval")]
    return Section(
        "The highest, middle and lowest texts",
        columns=[heads[at] for at in shown],
        rows=[[row[at] for at in shown] for row in table],
        notes=[]
        if sure is None
        else ["The 95 % intervals: of ranks in figures, of scores as lines."],
    )
