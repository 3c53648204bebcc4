"""What was done, in a paragraph fit for the methods section of a paper; and what to cite."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version

import numpy as np

from judgeq.engine.results import Result
from judgeq.evaluation.record import Record
from judgeq.evaluation.whole import Evaluation
from judgeq.rating import of_run
from judgeq.ui.people_sections import sentence
from judgeq.ui.run_sections import of_models
from judgeq.ui.sections import shown
from judgeq.ui.text import count, duration, money, several

PAPER = """@misc{haak2025pairwise,
  title         = {Pairwise Comparison for Bias Identification and Quantification},
  author        = {Haak, Fabian and Schaer, Philipp},
  year          = {2025},
  eprint        = {2512.14565},
  archivePrefix = {arXiv}
}"""


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
        *_asked(evaluation.run),
        *_people(evaluation),
        *_cost(evaluation.run),
        _rated(evaluation.run),
    ]
    return " ".join([*parts, *_reliable(evaluation), f"{_software(evaluation.run)}"])


def _judged(record: Record) -> str:
    run, prompt = record.evaluation.run, record.prompt
    info = run.info
    what = f"{several(info.items, 'item')} of the dataset {info.dataset}"
    about = f' of "{prompt.feature}"' if prompt is not None else ""
    scored = "scored one by one" if run.history.alone else "put on a scale"
    if run.history.basis == "both":
        scored = "scored one by one, compared, and put on a scale"
    return f"{what} were {scored}{about}."


def _asked(run: Result) -> Iterator[str]:
    info = run.info
    questions = sum(map(len, run.history.asked))
    sizes = sorted(
        {int(size) for part in run.history.asked for size in set(np.diff(part.offsets).tolist())}
    )
    if info.imported:
        judgments = several(questions, "judgment")
        who = "" if info.judge == "recorded" else f" by {info.judge}"
        yield f"{judgments}{who}, made elsewhere, were imported."
        partial = sum(
            int(part.partial.sum()) for part in run.history.asked if part.partial is not None
        )
        if partial:
            yield (
                f"{count(partial)} of these are partial rankings, as of the best and the worst of a "
                "list: items whose order wasn't asked are not compared with one another."
            )
        return
    kinds = " and ".join(_kind(size) for size in (sizes if len(sizes) < 3 else sizes[-1:]))
    who = "A simulated judge" if info.judge == "simulated" else " and ".join(run.judge.split(" + "))
    yield (
        f"{who} answered {several(questions, 'question')} about {kinds} in "
        f"{several(run.rounds_planned, 'round')} (strategy {info.strategy}, seed "
        f"{info.settings.seed}); the order within a question was random"
        + (", and each pair was asked in both orders." if run.history.both_orders else ".")
    )
    lost = run.counts.invalid + run.counts.failed
    if lost and run.info.settings.only_people:
        yield f"{several(lost, 'question')} that they skipped stayed without an answer."
    elif lost:
        yield f"Without a usable answer stayed {several(lost, 'question')}, left out of the ratings."
    if run.partial:
        yield "The run isn't finished."


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
    if ssr is not None:
        parts.append(f"the scale separation reliability is {shown(ssr)}")
    if half.r is not None:
        parts.append(f"the median split-half correlation {shown(half.r)} ({half.splits} splits)")
    if parts:
        text = " and ".join(parts)
        yield f"{text[0].upper()}{text[1:]}."


def _software(run: Result) -> str:
    begun = run.info.judgeq
    now = version("judgeq")
    rated = "" if begun == now else f", rated with {now}"
    return f"judgeq {begun} was used{rated}, which implements the method of Haak and Schaer (2025)."
