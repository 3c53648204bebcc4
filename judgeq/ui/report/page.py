"""A report as one HTML page that needs nothing else, or as Markdown with its figures."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from judgeq.errors import UsageError
from judgeq.evaluation.evaluate import Evaluation
from judgeq.files import make_folder, replacing
from judgeq.ui import figures, html, markdown
from judgeq.ui.report import chapters
from judgeq.ui.report.texts import Texts

FORMATS = ("html", "md")
FIGURES = "report-figures"
"""The folder of a Markdown report's figures."""


def check(kind: str) -> None:
    """Raise UsageError for a format that isn't one of FORMATS."""
    if kind not in FORMATS:
        raise UsageError(f"--format {kind}: give {' or '.join(FORMATS)}.")


def page(evaluation: Evaluation, texts: Texts, home: str | None = None) -> str:
    """The whole page; if it is served, it leads back `home`."""
    style, script = html.asset("style.css"), html.asset("table.js")
    return html.rendered(
        "report.html",
        title=chapters.title(evaluation),
        home=home,
        chapters=chapters.chapters(evaluation, texts.chapter),
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
        made, folder = chapters.chapters(evaluation, texts.chapter), path.parent / FIGURES
        document = markdown.document(chapters.title(evaluation), made, f"{FIGURES}/")
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
