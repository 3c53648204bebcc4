"""A report's chapters as data, the answer first; the table of all texts is texts.py's."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

import numpy as np
import orjson

from judgeq.escaping import plain
from judgeq.evaluation import items
from judgeq.evaluation.record import LOST, Record, Round
from judgeq.people.answers import remark
from judgeq.rating import comparisons
from judgeq.text import count, money, several
from judgeq.types import Call
from judgeq.ui import figures
from judgeq.ui.figures import figure
from judgeq.ui.report import methods, result
from judgeq.ui.sections import Cell, Chapter, Picture, Section, numbers, words
from judgeq.ui.show import evaluation as show_evaluation
from judgeq.ui.show import items as show_items
from judgeq.ui.show import quality as show_quality

AT_ODDS = 10
"""Texts that are listed on which judge and gold disagree most."""
REPLY = 160
"""Characters of a reply or an error that are shown."""
ANSWERED = ("answered", "cached")
_OUTCOMES = {
    "ok": "answered",
    "unusable": "unusable reply",
    "skipped": "skipped by a person",
    "undone": "withdrawn by a person",
    "rate_limited": "refused: rate limit",
    "server_full": "refused: server full",
    "server_error": "server error",
    "timeout": "timed out",
    "connection": "connection failed",
    "stepped_down": "sent again in another form",
    "quota": "refused: quota used up",
    "key_refused": "refused: key",
    "unknown_model": "refused: unknown model",
    "too_long": "refused: too long",
    "refused": "refused by the server",
    "error": "another error",
    "cancelled": "batch cancelled before it was sent",
    "expired": "batch expired before it was sent",
    "missing": "missing in the results of its batch",
    "not_sent": "batch not accepted",
}


def chapters(record: Record, *ranked: Chapter) -> list[Chapter]:
    """All chapters in their order, without those that would be empty; `ranked` come second."""
    people = record.evaluation.run.info.settings.only_people
    made = [
        Chapter("result", "The result", [*result.result(record)]),
        *ranked,
        Chapter("certainty", "How sure it is", [*certainty(record)]),
        Chapter("gold", "Gold labels", [*against_gold(record)]),
        Chapter("judges", "Judges and positions", [*judges(record)]),
        Chapter("cost", "Answers" if people else "Calls and cost", [*spent(record)]),
        Chapter("paper", "For your paper", [*paper(record)]),
    ]
    return [chapter for chapter in made if chapter.sections]


def appendix(record: Record) -> list[Chapter]:
    """What a paper's appendix needs: methods, prompt, scale, reliability and checks."""
    evaluation = record.evaluation
    checks = [
        Section(
            facts=[*show_evaluation.answers(evaluation)],
            warnings=[*result.cautions(record)],
        ),
        show_quality.reliability(evaluation.reliability, evaluation.run.known),
        *show_evaluation.against_gold(evaluation),
    ]
    made = [
        Chapter("methods", "Methods", [Section(notes=[methods.paragraph(record)])]),
        Chapter("prompt", "The prompt", [replace(one, title="") for one in prompt(record)]),
        Chapter("scale", "The scale", [result.ends(record), *scale(record)]),
        Chapter("checks", "Reliability and checks", checks),
    ]
    return [chapter for chapter in made if chapter.sections]


def certainty(record: Record) -> Iterator[Section]:
    """How reliable the scores are, how they are spread, and how they settled."""
    run = record.evaluation.run
    matches, sizes = run.scores.matches, comparisons.component_sizes(run.scores.component)
    each = f"{count(int(matches.min()))} to {count(int(matches.max()))}"
    facts = [("judgments", f"{matches.mean():.1f} per text ({each})")]
    if not run.history.alone:
        facts.append(("connected", f"{several(len(sizes), 'group')} of texts"))
    yield show_quality.reliability(record.evaluation.reliability, run.known)
    yield Section(facts=facts, close=True)
    yield from scale(record)
    if len(record.elo) > 1:
        about = "Spearman's ρ of the Elo after each round with the final scores."
        drawn = (figures.settling, run.scores, record.elo)
        yield _pictured("How the order settled", "settling", about, drawn)


def scale(record: Record) -> Iterator[Section]:
    """How the scores are spread, and their intervals."""
    scores, gold = record.evaluation.run.scores, record.evaluation.gold
    if gold is not None:
        scores = replace(scores, gold=gold.values)
    drawn = (figures.distribution, scores)
    about = "How many texts have which score."
    yield _pictured("Distribution of the scores", "distribution", about, drawn)
    if scores.intervals is not None:
        n = int(scores.scored.sum())
        some = "" if n <= figures.EACH else f" ({figures.EACH} of {count(n)}, evenly chosen)"
        about = f"The scores of all texts in their order{some}, with 95 % intervals."
        title = "Scores with their 95 % intervals"
        yield _pictured(title, "intervals", about, (figures.intervals, scores))


def _pictured(title: str, name: str, about: str, *panels: tuple[Any, ...]) -> Section:
    """A section with a figure, of panels as `figure` takes them."""
    return Section(title, picture=Picture(name, about, partial(figure, *panels)))


def against_gold(record: Record) -> Iterator[Section]:
    """Correlation, detection, a figure, and the texts on which judge and gold disagree most."""
    evaluation = record.evaluation
    run, gold = evaluation.run, evaluation.gold
    if gold is None:
        return
    scores = replace(run.scores, gold=gold.values, texts=record.texts)
    facts = show_evaluation.gold_facts(gold, evaluation.plan, [evaluation.assessments])
    yield Section(facts=[*facts])
    yield from show_evaluation.against_gold(evaluation)
    if not (scores.scored & ~np.isnan(gold.values)).any():
        return
    if gold.positive is None:
        by_gold = (figures.by_gold, scores)
        about = "Each text's score by its gold label; lines are medians, if labels are few."
        yield _pictured("Scores and gold labels", "gold", about, by_gold)
    else:
        about = (
            f"Left: ROC curve of each rating ({gold.classes}). Right: precision, recall and F1 by the "
            "score above which a text is labelled positive; dashed: the threshold used."
        )
        curves = (figures.roc, scores, gold)
        main = [one for one in evaluation.assessments if one.rating == scores.main[0]]
        cut = main[0].threshold and main[0].threshold.value
        cuts = (figures.thresholds, scores, gold, cut)
        yield _pictured("ROC curve and thresholds", "roc", about, curves, cuts)
    run = replace(run, scores=scores)
    _, table, *_ = show_items.views(run, [items.against_gold(run, AT_ODDS)])
    yield table


def judges(record: Record) -> Iterator[Section]:
    """Position bias, misfit, agreement of several judges, and whether longer texts score higher."""
    evaluation = record.evaluation
    slots = evaluation.run.slots
    biased = slots is not None and (slots.favoured or slots.slighted)
    for section in show_quality.order(evaluation.run):
        if biased or not section.columns:
            yield section
        else:
            yield replace(section, title="", columns=())
            yield replace(section, notes=(), folded=True)
    yield from show_quality.misfit(evaluation.misfit)
    if evaluation.judges is not None:
        yield from show_evaluation.agreement_of_judges(evaluation.judges)
    yield from show_evaluation.people(evaluation)
    if evaluation.length is not None and record.texts is not None:
        yield show_evaluation.length(evaluation.run.scores.main[0], evaluation.length)


def spent(record: Record) -> Iterator[Section]:
    """Calls, tokens and dollars by round, and what brought no verdict."""
    people, spending = record.evaluation.run.info.settings.only_people, record.spending
    rounds = spending.rounds
    amounts: dict[str, list[Cell]] = {
        "answers, with those skipped and withdrawn" if people else "calls": [
            one.calls for one in rounds
        ],
        "from the cache": [one.cached for one in rounds],
        "tokens in": [one.input for one in rounds],
        "tokens out": [one.output for one in rounds],
        "cost": [_cost(one) for one in rounds],
    }
    columns = [name for name, cells in amounts.items() if any(cells)]
    if columns:
        rows = zip(range(1, len(rounds) + 1), *(amounts[name] for name in columns), strict=True)
        yield Section("By round", columns=numbers("round", *columns), rows=[*rows])
    missed = {outcome(name): n for name, n in spending.outcomes.items()}
    facts = [(name, count(n)) for name, n in sorted(missed.items()) if name not in ANSWERED]
    if facts:
        yield Section("Calls without a verdict", facts)
    if spending.lost:
        columns = ["last call", *(["reply or error"] if record.texts is not None else [])]
        cells = [
            (one.job, one.round, one.calls, outcome(one.last.outcome), _reply(one.last))
            for one in spending.lost[:LOST]
        ]
        yield Section(
            "Questions without a verdict",
            columns=[*numbers("job", "round", "calls"), *words(*columns)],
            rows=[row[: 3 + len(columns)] for row in cells],
            notes=[f"Only the first {LOST} are listed."] if len(spending.lost) > LOST else [],
        )


def outcome(name: str) -> str:
    """The outcome of a call, as the record names it, in words."""
    return _OUTCOMES.get(name, name)


def _reply(call: Call) -> str:
    """What a call brought in place of a verdict, which may quote a text."""
    return plain((call.reply if call.judge is None else remark(call)) or "", REPLY)


def _cost(of: Round) -> str:
    """In dollars; "" for nothing."""
    if of.unpriced:
        return f"at least {money(of.cost)}" if of.cost else "unknown"
    return money(of.cost) if of.cost else ""


def paper(record: Record) -> Iterator[Section]:
    """A methods paragraph, what to cite, the prompt, and all that identifies the run."""
    run, example = record.evaluation.run, record.example
    info = run.info
    blocks = [("Methods", methods.paragraph(record)), ("BibTeX", methods.bibtex())]
    yield Section(blocks=blocks)
    yield from prompt(record)
    if example is not None:
        blocks = [(message["role"], message["content"]) for message in example.messages]
        blocks += [] if example.reply is None else [("the raw reply", example.reply)]
        yield Section(f"Question {count(example.job)}, as it was sent", blocks=blocks, folded=True)
    versions = [f"{name} {version(name)}" for name in ("judgeq", "numpy")]
    facts = [
        ("run", run.run.id),
        ("dataset", f"{info.dataset} ({info.source}), licence: {info.licence or 'unknown'}"),
        ("checksum of the texts", str(info.facts.get("dataset", "unknown"))),
        ("scored with", ", ".join([*versions, f"Python {platform.python_version()}"])),
    ]
    shared = info.model_copy(update={"settings": info.settings.without_folders()})
    content = shared.model_dump(mode="json")
    text = orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()
    title = "What identifies the run, and all settings"
    yield Section(title, facts, blocks=[("As JSON", text)], folded=True)


def prompt(record: Record) -> Iterator[Section]:
    """The words that questions of this run have of the prompt set."""
    if record.prompt is None:
        return
    sizes = methods.sizes(record.evaluation.run)
    names = ["system", *(("direct", "pair", "list")[min(size, 3) - 1] for size in sizes)]
    blocks = [(name, getattr(record.prompt, name).strip()) for name in names]
    yield Section("The prompt", blocks=blocks)
