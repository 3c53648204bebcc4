"""What was done, in a paragraph fit for the methods section of a paper; and what to cite."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import metadata, version

import numpy as np

from judgeq import prompts
from judgeq.engine.results import Result
from judgeq.evaluation.record import Record
from judgeq.rating import of_run
from judgeq.text import listed
from judgeq.ui import html
from judgeq.ui.show.people import sentence
from judgeq.ui.show.run import of_models

QUOTED = 400
"""Characters of the wording of questions that are quoted at most."""


def bibtex() -> str:
    """The entries of the paper and of this software, at the version and address of the package."""
    urls = [one.split(", ")[-1] for one in metadata("judgeq").get_all("Project-URL", [])]
    return html.rendered("citation.txt", version=version("judgeq"), urls=urls).strip()


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
        days=sorted({f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" for at in record.spending.at}),
        question=" and ".join(f'"{" ".join(words.split())}"' for words in wordings),
        quoted_at_most=QUOTED,
        agreement=sentence,
        totals=of_models(run),
        rating=of_run(run.rating, run.history.basis)[-1].described(run.fit),
        version=version("judgeq"),
    )
    return " ".join(text.split())
