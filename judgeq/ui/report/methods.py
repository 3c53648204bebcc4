"""What was done, in a paragraph fit for the methods section of a paper; and what to cite."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import numpy as np

from judgeq import prompts
from judgeq.engine.results import Result
from judgeq.evaluation.record import Record
from judgeq.evaluation.whole import Evaluation
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

QUOTED = 400
"""Characters of the wording of questions that is quoted at most."""
OVER = {
    False: "",
    True: ", which is too high where earlier answers decided what was asked later, as here (Bramley and "
    "Vitello 2019)",
    None: ", which is too high if earlier answers decided what was asked later (Bramley and Vitello "
    "2019)",
}
"""What is said beside the separation, by whether the choice of questions was adaptive."""


def bibtex() -> str:
    """The entries of the paper and of this software."""
    own = f"""@software{{judgeq,
  title   = {{judgeq: texts on a continuous scale, by comparative judgement}},
  version = {{{version("judgeq")}}}
}}"""
    return f"{PAPER}\n\n{own}"


def paragraph(record: Record) -> str:
    """The run in some sentences."""
    evaluation = record.evaluation
    parts = [
        _judged(record),
        *_asked(record),
        *_people(evaluation),
        *_cost(evaluation.run),
        _rated(evaluation.run),
    ]
    return " ".join([*parts, *_reliable(evaluation), f"{_software(evaluation.run)}"])


def _judged(record: Record) -> str:
    run, prompt = record.evaluation.run, record.prompt
    info = run.info
    what = f"{several(info.items, 'item')} of the dataset {info.dataset}"
    scored, of = ("scored one by one", "for") if run.history.alone else ("put on a scale", "of")
    if run.history.basis == "both":
        scored = "scored one by one, compared, and put on a scale"
    about = f' {of} "{prompt.feature}"' if prompt is not None else ""
    return f"{what} were {scored}{about}."


def _asked(record: Record) -> Iterator[str]:
    run = record.evaluation.run
    info, settings = run.info, run.info.settings
    questions = sum(map(len, run.history.asked))
    sizes = sorted(
        {int(size) for part in run.history.asked for size in set(np.diff(part.offsets).tolist())}
    )
    kinds = listed([_kind(size) for size in _largest(sizes)])
    if info.imported:
        judgments = several(questions, "judgment")
        of = f" of {kinds}" if sizes else ""
        who = "" if info.judge == "recorded" else f" by {info.judge}"
        yield f"{judgments}{of}{who}, made elsewhere, were imported."
        partial = sum(
            int(part.partial.sum()) for part in run.history.asked if part.partial is not None
        )
        if partial:
            yield (
                f"{count(partial)} of these are partial rankings, as of the best and the worst of a "
                "list: items whose order wasn't asked are not compared with one another."
            )
        return
    who = "A simulated judge" if info.judge == "simulated" else listed(run.judge.split(" + "))
    text = (
        f"{who} answered {several(questions, 'question')} about {kinds} in "
        f"{several(run.rounds_planned, 'round')}{_when(record)} (strategy {info.strategy}, seed "
        f"{settings.seed})"
    )
    if settings.reasons:
        text += ", with a sentence of reason before each verdict"
    if sizes and sizes[-1] > 1:
        text += "; the order within a question was random"
        text += ", and each pair was asked in both orders" if run.history.both_orders else ""
    yield f"{text}."
    if len(settings.panelists) > 1:
        each = settings.ensemble == "each"
        drawn = "each of them" if each else "one of them, drawn at random and equally often"
        yield f"Each question was put to {drawn}."
    yield from _worded(record, sizes)
    lost = run.counts.invalid + run.counts.failed
    if lost and settings.only_people:
        yield f"{several(lost, 'question')} that they skipped stayed without an answer."
    elif lost:
        yield f"Without a usable answer stayed {several(lost, 'question')}, left out of the ratings."
    if run.partial:
        yield "The run isn't finished."


def _when(record: Record) -> str:
    """The days on which answers came, of judges that answer differently another day."""
    if record.evaluation.run.info.judge == "simulated" or not record.spending.at:
        return ""
    ends = min(record.spending.at), max(record.spending.at)
    first, last = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" for at in ends)
    return f" on {first}" if first == last else f" from {first} to {last}"


def _worded(record: Record, sizes: Sequence[int]) -> Iterator[str]:
    """What was asked, in the prompt set's words, where these are short."""
    if record.prompt is None or record.evaluation.run.info.judge == "simulated" or not sizes:
        return
    asked = [prompts.wording(record.prompt, size) for size in _largest(sizes)]
    quoted = " and ".join(f'"{words}"' for words in map(_one_line, asked))
    if len(quoted) <= QUOTED:
        yield f"The question was {quoted}{'' if asked[-1].endswith(('.', '?', '!')) else '.'}"


def _one_line(words: str) -> str:
    return " ".join(words.split())


def _people(evaluation: Evaluation) -> Iterator[str]:
    """How people judged, and how well they agree; and the models with them."""
    run, people = evaluation.run, evaluation.people
    if people is None or run.said is None:
        return
    each = run.info.settings.each
    by = "one person" if each == 1 else f"{count(each)} people"
    took = (
        "" if run.said.median is None else f"; an answer took {duration(run.said.median)} (median)"
    )
    yield f"Each question for people was judged by {by}{took}."
    if people.alike.value is not None:
        alpha = "" if people.alpha.value is None else f" (Krippendorff's α {shown(people.alpha)})"
        yield (
            f"Two people ordered {shown(people.alike)} of the pairs of items in "
            f"{several(people.questions, 'question')} alike{alpha}."
        )
    for held in people.models:
        if held.difference.low is not None:
            yield sentence(held)


def _largest(sizes: Sequence[int]) -> list[int]:
    """Of ascending sizes of questions: single texts, pairs, and the longest list, as far as there are
    some."""
    return list({min(size, 3): size for size in sizes}.values())


def _kind(size: int) -> str:
    if size == 1:
        return "single texts"
    return "pairs of texts" if size == 2 else f"lists of up to {size} texts"


def _cost(run: Result) -> Iterator[str]:
    totals, settings = of_models(run), run.info.settings
    if run.info.imported or not settings.models:
        return
    tokens = totals.usage
    if any(tokens):
        dollars = "an unknown amount" if totals.unpriced else money(totals.cost)
        if totals.unknown and not totals.unpriced:
            dollars = f"at least {dollars}"
        sent = " (sent in batches)" if settings.batch else ""
        yield (
            f"This took {count(totals.calls)} calls{sent}, {count(tokens.input)} tokens in, "
            f"{count(tokens.output)} out, and {dollars}."
        )


def _rated(run: Result) -> str:
    *_, main = of_run(run.rating, run.history.basis)
    text = f"Scores are {main.described(run.fit)}"
    if run.scores.intervals is not None:
        text += (
            ", with 95 % intervals from the posterior, corrected for the dispersion of the judge"
        )
    return f"{text}."


def _reliable(evaluation: Evaluation) -> Iterator[str]:
    reliability = evaluation.reliability
    ssr, half = reliability.separation.ssr, reliability.split_half
    parts = []
    if half.r is not None:
        parts.append(f"the median split-half correlation is {shown(half.r)} ({half.splits} splits)")
    if ssr is not None:
        parts.append(
            f"the scale separation reliability is {shown(ssr)}{OVER[reliability.adaptive]}"
        )
    if parts:
        text = " and ".join(parts)
        yield f"{text[0].upper()}{text[1:]}."


def _software(run: Result) -> str:
    begun = run.info.judgeq
    now = version("judgeq")
    rated = "" if begun == now else f", rated with {now}"
    return f"judgeq {begun} was used{rated}, which implements the method of Haak and Schaer (2025)."
