"""A report as one HTML page that needs nothing else, as Markdown with its figures, or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import orjson

from judgeq.errors import UsageError
from judgeq.evaluation.record import Record
from judgeq.files import refuse_linked_folder, replacing, unwritable
from judgeq.ui import figures, html, markdown
from judgeq.ui.json import plain
from judgeq.ui.report import chapters, result
from judgeq.ui.report.texts import Texts
from judgeq.ui.sections import Chapter

FORMATS = ("html", "md", "json")
FIGURES = "report-figures"
"""The folder of a Markdown report's figures."""


def check(kind: str) -> None:
    """Raise UsageError for a format that isn't one of FORMATS."""
    if kind not in FORMATS:
        raise UsageError(f"--format {kind}: give {', '.join(FORMATS)}.")


def page(record: Record, texts: Texts | None, home: str | None = None) -> str:
    """The whole page, or of an appendix that without `texts`; if it is served, it leads back `home`."""
    style, script = html.asset("style.css"), html.asset("table.js")
    return html.rendered(
        "report.html",
        title=result.title(record),
        home=home,
        chapters=_chapters(record, texts),
        sections=html.sections,
        data=None if texts is None else html.embedded(texts.data),
        style=html.trusted(style),
        script=html.trusted(script),
        policy=html.policy(style=style, script=script),
        version=version("judgeq"),
    )


def write(record: Record, texts: Texts | None, path: Path) -> list[Path]:
    """Write the report, without `texts` the appendix, in that of FORMATS which the path names; all paths
    written, the report first. Each file is written whole or not at all. Raises RunError if one can't
    be."""
    folder, kind = path.parent, path.suffix[1:]
    pictures = folder / FIGURES if kind == "md" else folder
    for place in (folder, pictures):
        refuse_linked_folder(place)
    try:
        pictures.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    if kind == "html":
        return [_written(path, page(record, texts).encode())]
    title, made = result.title(record), _chapters(record, texts)
    if kind == "md":
        document = markdown.document(title, made, f"{FIGURES}/")
        return [_written(path, document.encode()), *_pictures(made, pictures)]
    others = [chapter for chapter in made if texts is None or chapter != texts.chapter]
    values = {"title": title, "chapters": plain(others), "texts": texts and texts.data}
    return [_written(path, orjson.dumps(values, option=orjson.OPT_INDENT_2))]


def _chapters(record: Record, texts: Texts | None) -> list[Chapter]:
    return chapters.appendix(record) if texts is None else chapters.chapters(record, texts.chapter)


def _pictures(made: Sequence[Chapter], folder: Path) -> Iterator[Path]:
    for chapter in made:
        for section in chapter.sections:
            if section.picture is not None:
                image = figures.content(section.picture.draw(), "png")
                yield _written(folder / f"{section.picture.name}.png", image)


def _written(path: Path, content: bytes) -> Path:
    with replacing(path) as file:
        file.buffer.write(content)
    return path
