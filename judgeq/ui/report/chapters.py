"""A report's chapters as data, the answer first; the table of all texts is texts.py's."""

from __future__ import annotations

import json
import platform
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from judgeq import prompts
from judgeq.engine.results import Result
from judgeq.escaping import plain
from judgeq.evaluation import items
from judgeq.evaluation.record import LOST, Record
from judgeq.files import shipped
from judgeq.people.answers import remark
from judgeq.rating import comparisons, of_run
from judgeq.text import count, listed, money, several
from judgeq.types import Call
from judgeq.ui import html
from judgeq.ui.figures import figure
from judgeq.ui.plots import EACH, Plots
from judgeq.ui.report import result
from judgeq.ui.sections import Cell, Chapter, Picture, Section, numbers, words
from judgeq.ui.show import evaluation as show_evaluation
from judgeq.ui.show import items as show_items
from judgeq.ui.show import quality as show_quality
from judgeq.ui.show.people import sentence
from judgeq.ui.show.run import of_models

if TYPE_CHECKING:
    from matplotlib.axes import Axes

AT_ODDS = 10
"""Texts that are listed on which judge and gold disagree most."""
QUOTED = 400
"""Characters of the wording of questions that are quoted at most."""
REPLY = 160
"""Characters of a reply or an error that are shown."""
FIGURES = {
    "settling": (
        "How the order settled",
        "Spearman's ρ of the Elo after each round with the final scores.",
    ),
    "distribution": ("Distribution of the scores", "How many texts have which score."),
    "intervals": (
        "Scores with their 95 % intervals",
        f"The scores of the texts in their order, with 95 % intervals; at most {EACH}, evenly chosen.",
    ),
    "gold": (
        "Scores and gold labels",
        "Each text's score by its gold label; lines are medians, if labels are few.",
    ),
    "roc": (
        "ROC curve and thresholds",
        "Left: ROC curve of each rating. Right: precision, recall and F1 by the score above which a "
        "text is labelled positive; dashed: the threshold used.",
    ),
}
"""The titles of figures, and what they show, in words."""
_OUTCOMES = {
    "ok": "answered",
    "cached": "answered",
    "unusable": "unusable reply",
    "skipped": "skipped by a person",
    "undone": "withdrawn by a person",
    "rate_limited": "refused: rate limit",
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
    facts, warnings = [*show_evaluation.answers(evaluation)], [*result.cautions(record)]
    checks = [
        Section(facts=facts, warnings=warnings),
        show_quality.reliability(evaluation.reliability, evaluation.run.known),
        *show_evaluation.against_gold(evaluation),
    ]
    made = [
        Chapter("methods", "Methods", [Section(notes=[paragraph(record)])]),
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
    if len(run.history.verdicts) > 1:
        yield _pictured("settling", Plots(run).settling)


def scale(record: Record) -> Iterator[Section]:
    """How the scores are spread, and their intervals."""
    run = with_gold(record)
    yield _pictured("distribution", Plots(run).scale)
    if run.scores.intervals is not None:
        yield _pictured("intervals", Plots(run).intervals)


def with_gold(record: Record) -> Result:
    """The run, with the gold labels it is evaluated with and the texts, as far as they are shown."""
    run, gold = record.evaluation.run, record.evaluation.gold
    labels = run.scores.gold if gold is None else gold.values
    return replace(run, scores=replace(run.scores, gold=labels, texts=record.texts))


def _pictured(name: str, *panels: Callable[[Axes], object]) -> Section:
    """A section with a figure of FIGURES, made of what the panels draw."""
    title, about = FIGURES[name]
    return Section(title, picture=Picture(name, about, partial(figure, *panels)))


def against_gold(record: Record) -> Iterator[Section]:
    """Correlation, detection, a figure, and the texts on which judge and gold disagree most."""
    evaluation = record.evaluation
    run, gold = with_gold(record), evaluation.gold
    if gold is None:
        return
    facts = show_evaluation.gold_facts(gold, evaluation.plan, [evaluation.run.evaluation])
    yield replace(facts, title="")
    yield from show_evaluation.against_gold(evaluation)
    if np.isnan(gold.values[run.scores.scored]).all():
        return
    if gold.positive is None:
        yield _pictured("gold", Plots(run).gold)
    else:
        over, name = evaluation.plan.positive_over, run.scores.main[0]
        used = next(one.threshold for one in evaluation.run.evaluation if one.rating == name)
        cut = float("nan") if used is None else used.value
        curves = partial(Plots(run).roc, positive_over=over)
        yield _pictured("roc", curves, partial(Plots(run).thresholds, positive_over=over, used=cut))
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
            yield Section(notes=section.notes)
            yield replace(section, notes=(), folded=True)
    yield from show_quality.misfit(evaluation.misfit)
    if evaluation.judges is not None:
        yield show_evaluation.agreement_of_judges(evaluation.judges)
    yield from show_evaluation.people(evaluation)
    if evaluation.length is not None and record.texts is not None:
        yield show_evaluation.length(evaluation.run.scores.main[0], evaluation.length)


def spent(record: Record) -> Iterator[Section]:
    """Calls, tokens and dollars by round, and what brought no verdict."""
    people, spending = record.evaluation.run.info.settings.only_people, record.spending
    calls = "answers, with those skipped and withdrawn" if people else "calls"
    heads = numbers("round", calls, "from the cache", "tokens in", "tokens out", "cost")
    rows: list[list[Cell]] = [
        [at, *(one[name] for name in ("calls", "cached", "input", "output")), _cost(one)]
        for at, one in enumerate(spending.rounds, start=1)
    ]
    used = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    if len(used) > 1:
        cells = [[row[at] for at in used] for row in rows]
        yield Section("By round", columns=[heads[at] for at in used], rows=cells)
    missed = {outcome(name): n for name, n in spending.outcomes.items()}
    facts = [(name, count(n)) for name, n in sorted(missed.items()) if name != "answered"]
    if facts:
        yield Section("Calls without a verdict", facts)
    if spending.lost:
        columns = [*numbers("job", "round", "calls"), *words("last call", "reply or error")]
        columns = columns if record.texts is not None else columns[:-1]
        cells = [
            [one.job, one.round, one.calls, outcome(one.last.outcome), _reply(one.last)]
            for one in spending.lost[:LOST]
        ]
        notes = [f"Only the first {LOST} are listed."] if len(spending.lost) > LOST else []
        rows = [row[: len(columns)] for row in cells]
        yield Section("Questions without a verdict", columns=columns, rows=rows, notes=notes)


def outcome(name: str) -> str:
    """The outcome of a call, as the record names it, in words."""
    return _OUTCOMES.get(name, name.replace("_", " "))


def _reply(call: Call) -> str:
    """What a call brought in place of a verdict, which may quote a text."""
    return plain((call.reply if call.judge is None else remark(call)) or "", REPLY)


def _cost(of: Counter[str]) -> str:
    """In dollars; "" for nothing."""
    if of["unpriced"]:
        return f"at least {money(of['cost'])}" if of["cost"] else "unknown"
    return money(of["cost"]) if of["cost"] else ""


def paper(record: Record) -> Iterator[Section]:
    """A methods paragraph, what to cite, the prompt, and all that identifies the run."""
    run, info = record.evaluation.run, record.evaluation.run.info
    blocks = [("Methods", paragraph(record)), ("BibTeX", bibtex())]
    yield Section(blocks=blocks)
    yield from prompt(record)
    versions = [f"{name} {version(name)}" for name in ("judgeq", "numpy")]
    facts = [
        ("run", run.run.id),
        ("dataset", f"{info.dataset} ({info.source}), licence: {info.licence or 'unknown'}"),
        ("checksum of the texts", str(info.facts.get("dataset", "unknown"))),
        ("scored with", ", ".join([*versions, f"Python {platform.python_version()}"])),
    ]
    shared = info.model_copy(update={"settings": info.settings.without_folders()})
    text = json.dumps(shared.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False)
    title = "What identifies the run, and all settings"
    yield Section(title, facts, blocks=[("As JSON", text)], folded=True)


def prompt(record: Record) -> Iterator[Section]:
    """The words that questions of this run have of the prompt set."""
    if record.prompt is not None:
        of = {1: "direct", 2: "pair", 3: "list"}
        names = ["system", *(of[min(size, 3)] for size in sizes(record.evaluation.run))]
        blocks = [(name, getattr(record.prompt, name).strip()) for name in names]
        yield Section("The prompt", blocks=blocks)


def bibtex() -> str:
    """The entries of the paper and of this software, as CITATION.cff has them."""
    text = shipped("CITATION.cff").read_text(encoding="utf-8")
    values = re.findall(r"^([\w-]+): (.+(?:\n .+)*)", text, re.MULTILINE)
    software = {key: json.loads(value) for key, value in values}
    (paper,) = software["references"]
    return html.rendered("citation.txt", paper=paper, software=software).strip()


def sizes(run: Result) -> list[int]:
    """The sizes of questions: single texts, pairs, and the longest list, as far as there are some."""
    sizes = sorted({int(size) for part in run.history.asked for size in np.diff(part.offsets)})
    return [*{min(size, 3): size for size in sizes}.values()]


def paragraph(record: Record) -> str:
    """The run in some sentences: the template's, with these facts."""
    run, asked = record.evaluation.run, record.evaluation.run.history.asked
    of, kinds = sizes(run), {1: "single texts", 2: "pairs of texts"}
    wordings = [] if record.prompt is None else [prompts.wording(record.prompt, n) for n in of]
    text = html.rendered(
        "methods.txt",
        record=record,
        run=run,
        people=record.evaluation.people,
        reliability=record.evaluation.reliability,
        simulated=run.info.judge == "simulated",
        sizes=of,
        kinds=listed([kinds.get(size, f"lists of up to {size} texts") for size in of]),
        judged=sum(map(len, asked)),
        partial=sum(int(one.partial.sum()) for one in asked if one.partial is not None),
        days=[*map(str, sorted(record.spending.days))],
        question=" and ".join(f'"{" ".join(words.split())}"' for words in wordings),
        quoted_at_most=QUOTED,
        agreement=sentence,
        totals=of_models(run),
        rating=of_run(run.rating, run.history.basis)[-1].described(run.fit),
        version=version("judgeq"),
    )
    return " ".join(text.split())
