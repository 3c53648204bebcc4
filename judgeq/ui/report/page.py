"""A report as one HTML page that needs nothing else, or as Markdown with its figures beside it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import orjson

from judgeq.errors import UsageError
from judgeq.evaluation.record import Record
from judgeq.files import refuse_linked_folder, replacing, unwritable
from judgeq.ui import drawing, html, markdown
from judgeq.ui.json import plain
from judgeq.ui.report import chapters
from judgeq.ui.report.texts import Texts
from judgeq.ui.sections import Chapter

FORMATS = ("html", "md", "json")
FIGURES = "report-figures"
"""The folder of a Markdown report's figures."""


def check(kind: str) -> None:
    """Raise UsageError for a format that isn't one of FORMATS."""
    if kind not in FORMATS:
        raise UsageError(f"--format {kind}: give {', '.join(FORMATS)}.")


def title(record: Record) -> str:
    """What the report is called."""
    return f"{record.evaluation.run.info.dataset}: {record.evaluation.run.run.id}"


def page(record: Record, texts: Texts, home: str | None = None) -> str:
    """The whole page; where it is served, it leads back `home`."""
    style, script = html.asset("style.css"), html.asset("table.js")
    return html.rendered(
        "report.html",
        title=title(record),
        home=home,
        chapters=chapters.chapters(record),
        sections=html.sections,
        texts=texts,
        data=html.embedded(texts.data),
        style=html.trusted(style),
        script=html.trusted(script),
        policy=html.policy(style=style, script=script),
        version=version("judgeq"),
    )


def write(record: Record, texts: Texts, folder: Path, kind: str) -> list[Path]:
    """Write the report into a folder, one of FORMATS; the paths of what was written, the report first.
    Each file is written whole or not at all. Raises RunError where one can't be."""
    for place in (folder, folder / FIGURES):
        refuse_linked_folder(place)
    try:
        (folder / FIGURES if kind == "md" else folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(folder, error) from error
    if kind == "html":
        return [_written(folder / "report.html", page(record, texts).encode())]
    made = chapters.chapters(record)
    if kind == "json":
        values = {"title": title(record), "chapters": plain(made), "texts": texts.data}
        content = orjson.dumps(values, option=orjson.OPT_INDENT_2)
        return [_written(folder / "report.json", content)]
    return _markdown(title(record), made, folder)


def _markdown(name: str, made: Sequence[Chapter], folder: Path) -> list[Path]:
    document = markdown.document(name, made, f"{FIGURES}/")
    pictures = [
        section.picture for chapter in made for section in chapter.sections if section.picture
    ]
    figures = [
        _written(folder / FIGURES / f"{picture.name}.png", drawing.content(picture.draw(), "png"))
        for picture in pictures
    ]
    return [_written(folder / "report.md", document.encode()), *figures]


def _written(path: Path, content: bytes) -> Path:
    with replacing(path) as file:
        file.buffer.write(content)
    return path
