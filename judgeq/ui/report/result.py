"""The first screen of a report: the question, how sure its answer is, and both ends of the scale."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from judgeq.evaluation.evaluate import apart
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.record import Record
from judgeq.text import count, listed, several
from judgeq.ui.sections import Cell, Column, Section, words
from judgeq.ui.show import evaluation as show_evaluation
from judgeq.ui.show import run as show_run
from judgeq.untrusted import plain

PART = 3
"""Texts that are shown from the top, the middle and the bottom of the ranking."""
EXCERPT = 56
"""Characters of a text that are shown: a line."""
NO_TROUBLE = "Every question was answered, every text was judged, and no position bias was found."


def title(record: Record) -> str:
    """The question, and who answered it about how many texts."""
    run, prompt = record.evaluation.run, record.prompt
    info = run.info
    judge = {"simulated": "a simulated judge", "recorded": "imported judgments"}.get(info.judge)
    judge = judge or listed(run.judge.split(" + "))
    asked = f"{info.dataset}:"
    if prompt is not None:
        feature = plain(prompt.feature, 200)
        asked = re.sub(r"^how (.+?) (the .+) (is|are)$", r"how \1 \3 \2?", feature)
        asked = asked[:1].upper() + asked[1:] + ("" if asked.endswith("?") else ":")
    done = "scored" if run.history.alone else "ranked"
    return f"{asked} {several(info.items, 'text')} {done} by {judge}"


def result(record: Record) -> Iterator[Section]:
    """How reliable the scores are, what they cost, what to be careful about, and the ranking's ends."""
    run = record.evaluation.run
    info, warnings = run.info, [*cautions(record)]
    about = [info.dataset, info.strategy, several(run.rounds_planned, "round")]
    about += [f"{info.created:%Y-%m-%d}", run.run.id]
    yield Section(
        facts=[*answers(record), *effort(record), ("Run", ", ".join(about))],
        warnings=[*warnings, *simulated(record)],
        good=[] if warnings else [NO_TROUBLE],
    )
    yield ends(record)


def answers(record: Record) -> Iterator[tuple[str, str]]:
    """How reliable the order is, and how well it agrees with gold."""
    evaluation = record.evaluation
    run, found = evaluation.run, evaluation.reliability
    half, ssr = found.split_half.whole, found.separation.ssr
    parts = [] if run.known is None else [f"{run.known.rho:.2f} (expected order, ρ̂)"]
    parts += [] if half is None else [f"{half:.2f} by split halves"]
    parts += [] if ssr is None else [f"{ssr:.2f} by standard errors (SSR)"]
    yield "Reliability", ", ".join(parts) or f"unknown: {found.split_half.why}"
    for one in evaluation.assessments:
        if one.rating == run.scores.main[0] and one.items == "all":
            measures = [
                f"{show_evaluation.NAMES[name]} {one.measures[name].value:.2f}"
                for name in ("spearman", "pearson", "f1", "auc")
                if name in one.measures and one.measures[name].value is not None
            ]
            yield "Gold labels", f"{', '.join(measures) or 'none'} (n = {count(one.n)})"


def effort(record: Record) -> Iterator[tuple[str, str]]:
    """What the answers took."""
    run = record.evaluation.run
    if run.said is not None:
        yield "Answers", show_run.by_people(run.said)
    if not run.info.settings.only_people and not run.info.imported:
        calls = show_run.calls(show_run.of_models(run))
        yield "Cost", f"{show_run.cost(run.totals)}; calls: {calls}"


def cautions(record: Record) -> Iterator[str]:
    """What a reader must know before relying on the scores."""
    run = record.evaluation.run
    slots = run.slots
    yield from run.cautions
    if run.partial:
        yield "The run isn't finished: this report covers what was judged so far."
    for n, one, what in (
        (run.counts.failed, "question", "without an answer. judgeq resume --retry-failed repeats"),
        (run.counts.invalid, "question", "without a valid answer, left out of the scores"),
        (int((~run.scores.judged).sum()), "text", "never judged, without a score"),
        (run.totals.unknown, "call", "sent and never answered, perhaps billed"),
    ):
        if n:
            yield f"{several(n, one)} {what}."
    yield from filter(None, [record.failures, apart(run.scores)])
    if slots is not None and (slots.favoured or slots.slighted):
        often = "more" if slots.favoured == slots.furthest else "less"
        yield f"Position bias: position {slots.furthest} wins {often} often than chance explains."


def simulated(record: Record) -> Iterator[str]:
    """That the judge was simulated, if it was."""
    for section in show_run.cautions(record.evaluation.run):
        yield from (one for one in section.warnings if one == show_run.SIMULATED)


def ends(record: Record) -> Section:
    """The texts at the top, in the middle and at the bottom, on the scale."""
    scores, texts = record.evaluation.run.scores, record.texts
    (name, values), sure, rank = scores.main, scores.intervals, scores.rank
    order = np.argsort(-np.where(scores.scored, values, -np.inf), kind="stable")
    order = order[: int(scores.scored.sum())]
    if len(order) > 3 * PART:
        middle = (len(order) - PART) // 2
        order = np.concatenate([order[:PART], order[middle : middle + PART], order[-PART:]])
    low, high = (values, values) if sure is None else (sure.low, sure.high)
    rows: list[list[Cell]] = []
    for row in order.tolist():
        ranks = "" if sure is None else f" ({sure.rank_low[row]}–{sure.rank_high[row]})"
        text = [] if texts is None else [plain(texts[row], EXCERPT)]
        reach = (None, None) if sure is None else (float(low[row]), float(high[row]))
        score = Measured(float(values[row]), *reach)
        rows.append([f"{rank[row]}{ranks}", *text, score, scores.ids[row]])
    axis = (float(low[order].min(initial=0)), float(high[order].max(initial=0)))
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
