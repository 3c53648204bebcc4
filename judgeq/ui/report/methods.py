"""What was done, in a paragraph fit for the methods section of a paper; and what to cite."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import metadata, version

import numpy as np

from judgeq import prompts
from judgeq.engine.results import Result
from judgeq.evaluation.record import Record
from judgeq.rating import of_run
from judgeq.text import count, duration, listed, money, several
from judgeq.ui.sections import shown
from judgeq.ui.show.people import sentence
from judgeq.ui.show.run import of_models

PAPER = """@misc{haak2025pairwise,
  title         = {Pairwise Comparison for Bias Identification and Quantification},
  author        = {Haak, Fabian and Schaer, Philipp},
  year          = {2025},
  eprint        = {2512.14565},
  archivePrefix = {arXiv}
}"""
SOFTWARE = {
    "title": "judgeq: texts on a continuous scale, by comparative judgement",
    "author": "{The judgeq authors}",
    "year": "2026",
}
"""The citation of judgeq; its version and address are the package's (pyproject.toml)."""
QUOTED = 400
"""Characters of the wording of questions that are quoted at most."""
TOO_HIGH = {
    False: "",
    True: ", which is too high where earlier answers decided what was asked later, as here (Bramley and "
    "Vitello 2019)",
    None: ", which is too high if earlier answers decided what was asked later (Bramley and Vitello "
    "2019)",
}
"""A caution about the separation reliability, by whether the choice of questions was adaptive."""


def bibtex() -> str:
    """The entries of the paper and of this software."""
    facts = SOFTWARE | {"version": version("judgeq")}
    for address in metadata("judgeq").get_all("Project-URL", [])[:1]:
        facts["url"] = address.split(", ")[-1]
    fields = ",\n".join(f"  {name:7} = {{{value}}}" for name, value in facts.items())
    return f"{PAPER}\n\n@software{{judgeq,\n{fields}\n}}"


def paragraph(record: Record) -> str:
    """The run in some sentences."""
    run = record.evaluation.run
    asked = _imported(run) if run.info.imported else _asked(record)
    parts = [*asked, *_people(record), *_cost(run), _rated(run), *_reliable(record)]
    return " ".join([_scaled(record), *parts, _software(run)])


def _scaled(record: Record) -> str:
    run, prompt = record.evaluation.run, record.prompt
    scored, of = ("scored one by one", "for") if run.history.alone else ("put on a scale", "of")
    if run.history.basis == "both":
        scored = "scored one by one, compared, and put on a scale"
    about = f' {of} "{prompt.feature}"' if prompt is not None else ""
    texts = several(run.info.items, "text")
    return f"{texts} of the dataset {run.info.dataset} were {scored}{about}."


def sizes(run: Result) -> list[int]:
    """The sizes of questions: single texts, pairs, and the longest list, as far as there are some."""
    sizes = sorted({int(size) for part in run.history.asked for size in np.diff(part.offsets)})
    return [*{min(size, 3): size for size in sizes}.values()]


def _kinds(run: Result) -> str:
    kinds = {1: "single texts", 2: "pairs of texts"}
    return listed([kinds.get(size, f"lists of up to {size} texts") for size in sizes(run)])


def _imported(run: Result) -> Iterator[str]:
    by = "" if run.info.judge == "recorded" else f" by {run.info.judge}"
    judgments = several(sum(map(len, run.history.asked)), "judgment")
    yield f"{judgments} of {_kinds(run)}{by}, made elsewhere, were imported."
    partial = sum(int(one.partial.sum()) for one in run.history.asked if one.partial is not None)
    if partial:
        yield (
            f"{count(partial)} of these are partial rankings, as of the best and the worst of a list: "
            "texts whose order wasn't asked are not compared with one another."
        )


def _asked(record: Record) -> Iterator[str]:
    run = record.evaluation.run
    info, settings = run.info, run.info.settings
    simulated = info.judge == "simulated"
    judge = "A simulated judge" if simulated else listed(run.judge.split(" + "))
    questions = several(sum(map(len, run.history.asked)), "question")
    text = (
        f"{judge} answered {questions} about {_kinds(run)} in {several(run.rounds_planned, 'round')}"
        f"{'' if simulated else _when(record)} (strategy {info.strategy}, seed {settings.seed})"
    )
    text += ", with a sentence of reason before each verdict" if settings.reasons else ""
    if sizes(run)[-1:] > [1]:
        text += "; the order within a question was random"
        text += ", and each pair was asked in both orders" if run.history.both_orders else ""
    yield f"{text}."
    if len(settings.panelists) > 1:
        each = settings.ensemble == "each"
        which = "each of them" if each else "one of them, drawn at random and equally often"
        yield f"Each question was put to {which}."
    if record.prompt is not None and not simulated:
        wordings = [prompts.wording(record.prompt, size) for size in sizes(run)]
        quoted = " and ".join(f'"{" ".join(words.split())}"' for words in wordings)
        if 0 < len(quoted) <= QUOTED:
            yield f"The question was {quoted}{'' if quoted[-2] in '.?!' else '.'}"
    if lost := run.counts.invalid + run.counts.failed:
        yield f"{several(lost, 'question')} without a usable answer are left out of the scores."
    if run.partial:
        yield "The run isn't finished."


def _when(record: Record) -> str:
    """The days on which answers came: models and people answer differently another day."""
    at = record.spending.at or [0.0]
    first, last = (f"{datetime.fromtimestamp(end, UTC):%Y-%m-%d}" for end in (min(at), max(at)))
    if not record.spending.at:
        return ""
    return f" on {first}" if first == last else f" from {first} to {last}"


def _people(record: Record) -> Iterator[str]:
    """How people judged, and how well they agree; and the models with them."""
    run, people = record.evaluation.run, record.evaluation.people
    if people is None or run.said is None:
        return
    by = several(run.info.settings.each, "person", "people")
    median = run.said.median
    took = "" if median is None else f"; an answer took {duration(median)} (median)"
    yield f"Each question for people was judged by {by}{took}."
    if people.agreement.value is not None:
        measured = people.krippendorff_alpha
        alpha = "" if measured.value is None else f" (Krippendorff's α {shown(measured)})"
        yield (
            f"Two people agreed on the order of {shown(people.agreement)} of the pairs of texts in "
            f"{several(people.questions, 'question')}{alpha}."
        )
    for model in people.models:
        if model.difference.low is not None:
            yield sentence(model)


def _cost(run: Result) -> Iterator[str]:
    totals, settings = of_models(run), run.info.settings
    tokens = totals.usage
    if run.info.imported or not settings.models or not any(tokens):
        return
    dollars = f"{'at least ' if totals.unknown else ''}{money(totals.cost)}"
    dollars = "an unknown amount" if totals.unpriced else dollars
    sent = " (sent in batches)" if settings.batch else ""
    yield (
        f"This took {count(totals.calls)} calls{sent}, {count(tokens.input)} input tokens, "
        f"{count(tokens.output)} output tokens, and {dollars}."
    )


def _rated(run: Result) -> str:
    *_, main = of_run(run.rating, run.history.basis)
    text = f"Scores are {main.described(run.fit)}"
    if run.scores.intervals is not None:
        text += ", with 95 % credible intervals, widened for overdispersion of the judge's rankings"
    return f"{text}."


def _reliable(record: Record) -> Iterator[str]:
    reliability = record.evaluation.reliability
    ssr, half = reliability.separation.ssr, reliability.split_half
    if half.r is not None:
        yield f"The median split-half correlation is {shown(half.r)} ({half.splits} splits)."
    if ssr is not None:
        caution = TOO_HIGH[reliability.adaptive]
        yield f"The scale separation reliability is {shown(ssr)}{caution}."


def _software(run: Result) -> str:
    first, now = run.info.judgeq, version("judgeq")
    rated = "" if first == now else f", rated with {now}"
    return f"judgeq {first} was used{rated}, which implements the method of Haak and Schaer (2025)."
