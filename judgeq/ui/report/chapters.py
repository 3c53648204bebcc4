"""A report's chapters, as data; its texts are a chapter of their own (texts.py)."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version

import numpy as np
import orjson

from judgeq.engine.results import Result
from judgeq.evaluation import items
from judgeq.evaluation.record import Record, Round
from judgeq.rating import comparisons, of_run
from judgeq.text import count, duration, money, several
from judgeq.ui import run_figures
from judgeq.ui.report import methods, trouble
from judgeq.ui.run_figures import figure
from judgeq.ui.sections import Chapter, Column, Picture, Section, numbers, words
from judgeq.ui.show import evaluation as show_evaluation
from judgeq.ui.show import quality as show_quality
from judgeq.ui.show import run as show_run
from judgeq.untrusted import plain

AT_ODDS = 10
"""So many items are listed on whose place judge and gold disagree most."""
EXCERPT = 160
FAST = 0.01
"""Seconds that a call takes at least whose duration is reported: a simulated judge takes less."""
_UNITS = ((86_400.0, "days"), (3_600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))


def chapters(record: Record) -> list[Chapter]:
    """All chapters but the texts', in their order; those without sections are left out."""
    made = [
        Chapter("methods", "What was done", [*done(record)]),
        Chapter("trouble", "What went wrong", [*trouble.trouble(record)]),
        Chapter("scale", "The scale", [*scale(record)]),
        Chapter("gold", "Against the gold labels", [*against_gold(record)]),
        Chapter("judge", "The judge", [*judge(record)]),
        Chapter("money", _spent_title(record), [*spent(record)]),
        Chapter("design", "The design", [*design(record)]),
        Chapter("again", "To make it again", [*again(record)]),
    ]
    return [chapter for chapter in made if chapter.sections]


def done(record: Record) -> Iterator[Section]:
    """A paragraph for a methods section, what to cite, and the run in facts."""
    yield Section(
        blocks=[
            ("For a methods section", methods.paragraph(record)),
            ("BibTeX", methods.bibtex()),
        ]
    )
    yield Section("The run", facts=[*show_run.facts(record.evaluation.run)])
    yield from show_run.cautions(record.evaluation.run)


def scale(record: Record) -> Iterator[Section]:
    """How the scores are spread, how sure they are, and how they settled."""
    run = record.evaluation.run
    scores, gold = run.scores, record.evaluation.gold
    name = scores.main[0]
    classes = [] if gold is None else run_figures.classes(gold.values[scores.scored])
    coloured = ", coloured by gold label" if classes else ""
    judged = int(scores.scored.sum())
    band = ", shown as a band" if judged > run_figures.EACH else ""
    yield Section(
        "Distribution of the scores",
        picture=Picture(
            "distribution",
            f"How many items have which score ({name}){coloured}.",
            partial(
                figure, run_figures.distribution, scores, None if gold is None else gold.values
            ),
        ),
    )
    if scores.intervals is not None:
        yield Section(
            "Scores with their 95 % intervals",
            picture=Picture(
                "intervals",
                f"The {several(judged, 'judged item')} by score ({name}), with 95 % intervals{band}.",
                partial(figure, run_figures.caterpillar, scores),
            ),
        )
    yield show_quality.reliability(record.evaluation.reliability)
    if len(record.elo) > 1:
        yield Section(
            "How the order settled",
            picture=Picture(
                "settling",
                f"Spearman's correlation of the ratings after each round with the scores ({name}) in "
                "the end.",
                partial(figure, run_figures.settling, scores, record.elo),
            ),
        )


def against_gold(record: Record) -> Iterator[Section]:
    """Detection or correlation, with curves; and the items that judge and gold disagree on most."""
    evaluation = record.evaluation
    run, gold = evaluation.run, evaluation.gold
    if gold is None:
        return
    yield Section(
        facts=[*show_evaluation.gold_facts(gold, evaluation.plan, [evaluation.assessments])]
    )
    yield from show_evaluation.against_gold(evaluation)
    name = run.scores.main[0]
    labelled = (run.scores.scored & ~np.isnan(gold.values)).any()
    if gold.positive is not None and labelled:
        yield Section(
            "ROC curves",
            picture=Picture(
                "roc",
                f"ROC curve of each rating ({gold.classes}).",
                partial(figure, run_figures.roc, run.scores, gold),
            ),
        )
        cuts = [one for one in evaluation.assessments if one.rating == name and one.items == "all"]
        cut = cuts[0].threshold.value if cuts and cuts[0].threshold is not None else None
        yield Section(
            "Thresholds",
            picture=Picture(
                "thresholds",
                f"Precision, recall and F1 by the score ({name}) over which an item is labelled "
                "positive; the dashed line is the threshold used.",
                partial(figure, run_figures.thresholds, run.scores, gold, cut),
            ),
        )
    elif labelled:
        labels = np.unique(gold.values[run.scores.scored & ~np.isnan(gold.values)])
        medians = "; the lines are the medians of each label" if run_figures.few(labels) else ""
        yield Section(
            "Scores and gold labels",
            picture=Picture(
                "gold",
                f"Each item's score ({name}) by its gold label{medians}.",
                partial(figure, run_figures.by_gold, run.scores, gold.values),
            ),
        )
    yield from _odds(record, replace(run, scores=replace(run.scores, gold=gold.values)))


def _odds(record: Record, run: Result) -> Iterator[Section]:
    """The items that `judgeq show --against-gold` lists first, of a run with the gold of the report."""
    scores, texts = run.scores, record.texts
    view = items.against_gold(run, AT_ODDS)
    if not view.rows:
        return
    rank, gap = scores.rank, view.measures["gap"]
    yield Section(
        "Where judge and gold disagree most",
        columns=[
            *words("item", at_most=40),
            *numbers("rank", scores.main[0]),
            *numbers("gold", show=lambda label: f"{label:g}"),
            *numbers("places apart", show=lambda share: f"{share:+.0%}"),
            *([] if texts is None else words("text", at_most=EXCERPT)),
        ],
        rows=[
            (
                scores.ids[row],
                int(rank[row]),
                float(scores.main[1][row]),
                float(scores.gold[row]),
                float(gap[row]),
                *([] if texts is None else [plain(texts[row], EXCERPT)]),
            )
            for row in view.rows
        ],
        notes=[
            "Places apart: by score less by gold, of all places; +50 % stands half of the scale higher "
            "than its gold label does."
        ],
    )


def judge(record: Record) -> Iterator[Section]:
    """Position bias, misfit, several judges' agreement, and whether longer texts score higher."""
    evaluation = record.evaluation
    run = evaluation.run
    if run.slots is not None and len(run.slots.rate):
        yield Section(
            "Does the place decide?",
            picture=Picture(
                "slots",
                "The win rate of each slot in the order presented, with its 95 % interval; at 0.5 the "
                "place makes no difference.",
                partial(figure, run_figures.win_rates, run.slots),
            ),
        )
    yield from show_quality.order(run)
    yield from show_quality.misfit(evaluation.misfit)
    if evaluation.judges is not None:
        yield from show_evaluation.agreement_of_judges(evaluation.judges)
    yield from show_evaluation.people(evaluation)
    if evaluation.length is not None and record.texts is not None:
        name = run.scores.main[0]
        yield Section(
            "Does length decide?",
            picture=Picture(
                "length",
                f"Each item's score ({name}) by the length of its text.",
                partial(figure, run_figures.by_length, run.scores, record.texts),
            ),
        )
        yield show_evaluation.length(name, evaluation.length)


def _spent_title(record: Record) -> str:
    only_people = record.evaluation.run.info.settings.only_people
    return "Answers and time" if only_people else "Calls and money"


def spent(record: Record) -> Iterator[Section]:
    """Calls, tokens and dollars by round, and calls over time."""
    run, spending = record.evaluation.run, record.spending
    if not spending.outcomes:
        return
    only_people = run.info.settings.only_people
    facts = [] if run.said is None else [("answers", show_run.by_people(run.said))]
    if not only_people:
        facts.append(("calls", show_run.calls(show_run.of_models(run))))
        facts.append(("cost", show_run.cost(run.totals)))
    latency = np.array(spending.latency)
    if len(latency) and np.median(latency) >= FAST:
        facts.append(
            (
                "latency",
                f"{np.median(latency):.2f} s (median), {np.quantile(latency, 0.95):.2f} s (95 %)",
            )
        )
        took = max(spending.at) - min(spending.at)
        facts.append(("from first to last", duration(took)))
    yield Section("All answers" if only_people else "All calls", facts=facts)
    if only_people:
        yield Section(
            "By round",
            columns=numbers("round", "answers, with those skipped and taken back"),
            rows=[(number, of.calls) for number, of in enumerate(spending.rounds, start=1)],
        )
        yield from _time_line(record)
        return
    priced = bool(run.info.settings.models)
    yield Section(
        "By round",
        columns=[
            *numbers("round", "calls", "from the cache", "tokens in", "tokens out"),
            *([Column("cost", right=True)] if priced else []),
        ],
        rows=[
            (
                number,
                *(of.calls, of.cached, of.input, of.output),
                *([_cost(of)] if priced else []),
            )
            for number, of in enumerate(spending.rounds, start=1)
        ],
    )
    yield from _time_line(record)


def _cost(of: Round) -> str:
    if of.unpriced:
        return f"at least {money(of.cost)}" if of.cost else "unknown"
    return money(of.cost)


def _time_line(record: Record) -> Iterator[Section]:
    """Calls over time, by what became of them."""
    spending = record.spending
    if len(spending.at) < 2:
        return
    what = "answer" if record.evaluation.run.info.settings.only_people else "call"
    at = np.array(spending.at) - min(spending.at)
    size, unit = next((one for one in _UNITS if at.max() >= 2 * one[0]), _UNITS[-1])
    edges = np.linspace(0, max(float(at.max()), 1e-3), min(60, max(2, len(at) // 4)) + 1)
    kinds = sorted(set(spending.outcome), key=lambda kind: (kind != "ok", kind))
    became = np.array(spending.outcome)
    parts = [
        (
            trouble.outcome(kind),
            np.histogram(at[became == kind], edges)[0].astype(np.float64),
        )
        for kind in kinds
    ]
    gaps = np.diff(np.sort(at))
    pauses = gaps[gaps > max(60.0, 20 * float(np.median(gaps)))]
    notes = []
    if len(pauses):
        waits, in_all = several(len(pauses), "pause"), duration(float(pauses.sum()))
        notes.append(f"{waits} of a minute and more, {in_all} in all.")
    yield Section(
        "Over time",
        picture=Picture(
            "time",
            f"{what.capitalize()}s by when they ended (in {unit} since the first), and what became of "
            "them.",
            partial(figure, run_figures.time_line, edges / size, parts, unit, what),
        ),
        notes=notes,
    )


def design(record: Record) -> Iterator[Section]:
    """How often each item was judged, and whether the comparisons hang together."""
    run = record.evaluation.run
    matches = run.scores.matches
    times = np.bincount(matches)
    sizes = comparisons.component_sizes(run.scores.component)
    together = (
        "all judged items in one"
        if len(sizes) == 1
        else f"{count(len(sizes))} components, the largest of {several(int(sizes[0]), 'item')}"
        if len(sizes)
        else "none"
    )
    facts = [
        (
            "judgments of an item",
            f"{matches.mean():.1f} on average, {count(int(matches.min()))} to "
            f"{count(int(matches.max()))}",
        ),
        *([] if run.history.alone else [("connected", together)]),
    ]
    first = int(np.flatnonzero(times)[0])
    picture = None
    if len(times) > first + 1:
        picture = Picture(
            "judgments",
            "How many items were judged how often.",
            partial(figure, run_figures.judgments, run.scores),
        )
    yield Section("How often items were judged", facts=facts, picture=picture)


def again(record: Record) -> Iterator[Section]:
    """Settings, versions, checksums, the prompt, and a question with its reply."""
    run = record.evaluation.run
    info = run.info
    main = of_run(run.rating, run.history.basis)[-1]
    yield Section(
        "What decides the run",
        facts=[
            ("run", run.run.id),
            ("fingerprint", info.fingerprint),
            ("begun", f"{info.created:%Y-%m-%d %H:%M:%S %Z}"),
            ("judged with", f"judgeq {info.judgeq}"),
            ("rated with", _versions()),
            ("dataset", f"{info.dataset} ({info.source})"),
            ("licence", info.licence or "unknown"),
            ("checksum of the texts", str(info.facts.get("dataset", "unknown"))),
            ("checksum of the labels", info.labels or "none"),
            ("rated by", main.described(run.fit)),
        ],
        blocks=[("All of it, as JSON", _pretty(info.facts))],
    )
    shown = info.model_copy(update={"settings": info.settings.without_folders()})
    settings = shown.model_dump(mode="json")["settings"]
    yield Section("Settings", blocks=[("As JSON", _pretty(settings))])
    if record.prompt is not None:
        prompt = record.prompt.model_dump()
        parts = [(name, str(prompt[name])) for name in ("system", "pair", "list", "direct")]
        yield Section("The prompt set", blocks=parts)
    if record.example is not None:
        yield from _example(record)


def _versions() -> str:
    """Those that a rating depends on."""
    names = ", ".join(f"{name} {version(name)}" for name in ("judgeq", "numpy"))
    return f"{names}, Python {platform.python_version()}"


def _pretty(values: object) -> str:
    return orjson.dumps(values, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode()


def _example(record: Record) -> Iterator[Section]:
    example = record.example
    if example is None:
        return
    blocks: list[tuple[str, str]] = [
        (message["role"], message["content"]) for message in example.messages
    ]
    if example.reply is not None:
        blocks.append(("the raw reply", example.reply))
    yield Section(f"The question of job {count(example.job)}, as it was sent", blocks=blocks)
