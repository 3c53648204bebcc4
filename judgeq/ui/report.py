"""A run's report: its chapters as data, the answer first; as one HTML page that needs nothing else, or
as Markdown with its figures. The table of all texts is that of report_texts.py."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from judgeq import prompts
from judgeq.engine.results import Result
from judgeq.errors import UsageError
from judgeq.evaluation import items
from judgeq.evaluation.evaluate import Evaluation
from judgeq.files import make_folder, replacing, shipped
from judgeq.prompts import PromptSet
from judgeq.rating import of_run
from judgeq.text import count, listed, several
from judgeq.ui import figures, html, markdown
from judgeq.ui.figures import EACH, Plots, figure
from judgeq.ui.report_texts import Texts
from judgeq.ui.sections import Chapter, Picture, Section
from judgeq.ui.show import evaluation as show_evaluation
from judgeq.ui.show import items as show_items
from judgeq.ui.show import run as show_run
from judgeq.ui.show.people import sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = ("html", "md")
FIGURES_FOLDER = "report-figures"
"""The folder of a Markdown report's figures."""
AT_ODDS = 10
"""Texts that are listed on which judge and gold disagree most."""
QUOTED = 400
"""Characters of the wording of questions that are quoted at most."""
NO_PROBLEM = "Every question was answered, every text was judged, and no position bias was found."
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
    "link": (
        "Settled texts, then and now",
        "Each anchor's settled score by what the new answers say of it, with 95 % intervals: where "
        "nothing has changed, they lie around the line.",
    ),
    "gold": (
        "Scores and gold labels",
        "Each text's score by its gold label; lines are medians, if labels are few.",
    ),
}
"""The titles of figures, and what they show, in words."""


def title(evaluation: Evaluation) -> str:
    """How many texts were ranked by what, and who judged."""
    return next(show_run.result(evaluation.run)).title


def chapters(evaluation: Evaluation, texts: Chapter) -> list[Chapter]:
    """All chapters in their order, without those that would be empty; the table of `texts` is the
    second."""
    made = [
        Chapter("result", "The result", [*result(evaluation)]),
        texts,
        Chapter("certainty", "How sure it is", [*certainty(evaluation)]),
        Chapter("gold", "Gold labels", [*against_gold(evaluation)]),
        Chapter("judges", "Judges and positions", [*judges(evaluation)]),
        Chapter("paper", "For your paper", [*paper(evaluation)]),
    ]
    return [chapter for chapter in made if chapter.sections]


def check(kind: str) -> None:
    """Raise UsageError for a format that isn't one of FORMATS."""
    if kind not in FORMATS:
        raise UsageError(f"--format {kind}: give {' or '.join(FORMATS)}.")


def page(evaluation: Evaluation, texts: Texts, home: str | None = None) -> str:
    """The whole page; if it is served, it leads back `home`."""
    style, script = html.asset("style.css"), html.asset("table.js")
    return html.rendered(
        "report.html",
        title=title(evaluation),
        home=home,
        chapters=chapters(evaluation, texts.chapter),
        sections=html.sections,
        data=html.embedded(texts.data),
        style=html.trusted(style),
        script=html.trusted(script),
        policy=html.policy(style=style, script=script),
        version=version("judgeq"),
    )


def write(evaluation: Evaluation, texts: Texts, path: Path) -> list[Path]:
    """Write the report in that of FORMATS which the path names; all paths written, the report first.
    Each file is written whole or not at all. Raises RunError if one can't be."""
    contents = {}
    if path.suffix == ".html":
        contents[path] = page(evaluation, texts).encode()
    else:
        made, folder = chapters(evaluation, texts.chapter), path.parent / FIGURES_FOLDER
        document = markdown.document(title(evaluation), made, f"{FIGURES_FOLDER}/")
        contents[path] = document.encode()
        for chapter in made:
            for section in chapter.sections:
                if section.picture is not None:
                    image = figures.content(section.picture.draw(), "png")
                    contents[folder / f"{section.picture.name}.png"] = image
    for file, content in contents.items():
        make_folder(file.parent)
        with replacing(file) as opened:
            opened.buffer.write(content)
    return [*contents]


# The chapters


def result(evaluation: Evaluation) -> Iterator[Section]:
    """How reliable the scores are, what they cost, what to be careful about, and the ranking's ends."""
    run = evaluation.run
    headline, _, numbers, *careful = show_run.result(run)
    facts = dict(show_evaluation.answers(evaluation))
    gold = ("Gold labels", "Detection") if evaluation.gold is not None else ()
    found = {name: facts[name] for name in ("Reliability", *gold) if name in facts}
    about = [run.info.dataset, run.info.strategy, several(run.rounds_planned, "round")]
    about += [f"{run.info.created:%Y-%m-%d}", run.run.id]
    never = int((~run.scores.judged).sum())
    warnings = list[str]()
    if never:
        warnings.append(f"{several(never, 'text')} never judged, without a score.")
    for section in careful:
        warnings += [one.removesuffix(show_run.SEE) for one in section.warnings]
    if headline.warnings:
        yield Section(warnings=[one.removesuffix(show_run.SEE) for one in headline.warnings])
    yield Section(
        facts=[*(dict(numbers.facts) | found | {"Run": ", ".join(about)}).items()],
        warnings=warnings,
        notes=[NO_PROBLEM] if {*headline.warnings, *warnings} <= {show_run.SIMULATED} else [],
    )
    yield replace(show_run.ends(run.scores), title="The highest and lowest texts")


def certainty(evaluation: Evaluation) -> Iterator[Section]:
    """How reliable the scores are, how they are spread, and how they settled."""
    run, matches = evaluation.run, evaluation.run.scores.matches
    each = f"{count(int(matches.min()))} to {count(int(matches.max()))}"
    yield show_evaluation.reliability(evaluation.reliability, run.known)
    yield Section(facts=[("judgments", f"{matches.mean():.1f} per text ({each})")], close=True)
    yield from show_evaluation.by_group(evaluation.by_group)
    yield _pictured("distribution", Plots(run).scale)
    if run.scores.intervals is not None and run.scores.groups is None:
        yield _pictured("intervals", Plots(run).intervals)
    if run.fit.link is not None:
        yield _pictured("link", Plots(run).link)
    if run.rounds_planned > 1:
        yield _pictured("settling", Plots(run).settling)


def _pictured(name: str, draw: Callable[[Axes], object]) -> Section:
    """A section with a figure of FIGURES."""
    title, about = FIGURES[name]
    return Section(title, picture=Picture(name, about, partial(figure, draw)))


def against_gold(evaluation: Evaluation) -> Iterator[Section]:
    """Correlation, detection, a figure, and the texts on which judge and gold disagree most."""
    run, gold = evaluation.run, evaluation.gold
    if gold is None:
        return
    facts, *others = show_evaluation.against_gold(gold, evaluation.plan, [run.evaluation])
    yield replace(facts, title="")
    yield from others
    if np.isnan(gold.values[run.scores.scored]).all():
        return
    yield _pictured("gold", Plots(run).gold)
    _, table, *_ = show_items.views(run, [items.against_gold(run, AT_ODDS)])
    yield table


def judges(evaluation: Evaluation) -> Iterator[Section]:
    """Position bias, misfit, agreement of several judges, and whether longer texts score higher."""
    if evaluation.run.info.settings.rehearsal:
        yield Section(notes=[show_evaluation.NOTHING_FOUND])
        return
    for section in show_evaluation.order(evaluation.run):
        yield Section(notes=section.notes)
        if section.columns:
            yield replace(section, notes=(), folded=True)
    yield from show_evaluation.misfit(evaluation.misfit)
    if evaluation.judges is not None:
        yield show_evaluation.agreement_of_judges(evaluation.judges)
    yield from show_evaluation.people(evaluation)
    if evaluation.length is not None and evaluation.run.scores.with_texts:
        yield show_evaluation.length(evaluation.run.scores.main[0], evaluation.length)


def paper(evaluation: Evaluation) -> Iterator[Section]:
    """A methods paragraph, what to cite, the prompt, and all that identifies the run."""
    run, info = evaluation.run, evaluation.run.info
    yield Section(blocks=[("Methods", paragraph(evaluation)), ("BibTeX", bibtex())])
    if (prompt := prompt_of(run)) is not None:
        of = {1: "direct", 2: "pair", 3: "list"}
        names = ["system", *(of[min(size, 3)] for size in sizes(run))]
        blocks = [(name, getattr(prompt, name).strip()) for name in names]
        yield Section("The prompt", blocks=blocks)
    facts = [
        ("run", run.run.id),
        ("dataset", f"{info.dataset} ({info.source}), licence: {info.licence or 'unknown'}"),
        ("checksum of the texts", str(info.facts.get("dataset", "unknown"))),
        ("scored with", f"judgeq {version('judgeq')}, numpy {version('numpy')}"),
        ("Python", platform.python_version()),
    ]
    shared = info.model_copy(update={"settings": info.settings.without_folders()})
    text = json.dumps(shared.model_dump(mode="json"), indent=2, sort_keys=True, ensure_ascii=False)
    title = "What identifies the run, and all settings"
    yield Section(title, facts, blocks=[("As JSON", text)], folded=True)


def prompt_of(run: Result) -> PromptSet | None:
    """The prompt set with which the judge was asked, if it was with one that this version can read."""
    with suppress(KeyError, TypeError, ValueError):
        return prompts.of_facts(run.info.facts)
    return None


def bibtex() -> str:
    """The entries of the paper and of this software, as CITATION.cff has them."""
    text = shipped("CITATION.cff").read_text(encoding="utf-8")
    values = re.findall(r"^([\w-]+): (.+(?:\n .+)*)", text, re.MULTILINE)
    software = {key: json.loads(value) for key, value in values}
    (paper,) = software["references"]
    return html.rendered("citation.txt", paper=paper, software=software).strip()


def sizes(run: Result) -> list[int]:
    """The sizes of questions: single texts, pairs, and the longest list, as far as there are some."""
    sizes = sorted({int(size) for part in run.history.asked for size in part.sizes})
    return [*{min(size, 3): size for size in sizes}.values()]


def paragraph(evaluation: Evaluation) -> str:
    """The run in some sentences: the template's, with these facts."""
    run, asked = evaluation.run, evaluation.run.history.asked
    of, kinds = sizes(run), {1: "single texts", 2: "pairs of texts"}
    prompt = prompt_of(run)
    wordings = [] if prompt is None else [prompts.wording(prompt, n) for n in of]
    text = html.rendered(
        "methods.txt",
        prompt=prompt,
        run=run,
        people=evaluation.people,
        reliability=evaluation.reliability,
        simulated=run.info.judge == "simulated",
        sizes=of,
        kinds=listed([kinds.get(size, f"lists of up to {size} texts") for size in of]),
        judged=sum(map(len, asked)),
        partial=sum(int(one.partial.sum()) for one in asked),
        question=" and ".join(f'"{" ".join(words.split())}"' for words in wordings),
        quoted_at_most=QUOTED,
        agreement=sentence,
        totals=show_run.of_models(run),
        rating=of_run(run.rating, run.history.basis)[-1].described(run.fit),
        version=version("judgeq"),
    )
    return " ".join(text.split())
