"""Sections as HTML, by the templates beside this file; for reports, notebooks and served pages.

Everything is escaped by Jinja2, and what can't be seen is taken out before: no name, id, text or reply
becomes markup. A page holds no script and no style but ours, by their checksums, and asks nobody for
anything.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from judgeq import text
from judgeq.escaping import escaped, multiline, plain
from judgeq.ui import figures
from judgeq.ui.sections import LONGEST, Picture, Section, cell_text

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

FOLDER = Path(__file__).parent / "templates"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src-elem 'self'; style-src-attr 'unsafe-inline'; "
    "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of a served page: our own script and style sheet, from where it is."""


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
    from markupsafe import Markup

    def svg(picture: Picture) -> Markup:
        return Markup(figures.inline(picture.draw(), picture.name))  # noqa: S704  (of Matplotlib)

    def one_line(words: str) -> str:
        return plain(words, LONGEST)

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        # Plain text becomes a part of a section, whose words are escaped.
        autoescape=select_autoescape(disabled_extensions=("txt",), default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"words": escaped, "lines": multiline, "one_line": one_line, "svg": svg}
    of_text = (text.count, text.several, text.listed, text.money, text.duration, cell_text)
    environment.filters |= {one.__name__: one for one in of_text}
    return environment


def rendered(template: str, **values: Any) -> str:
    """A template of ours with these values."""
    return _environment().get_template(template).render(**values)


def sections(sections: Iterable[Section]) -> Markup:
    """Sections one below the other."""
    from markupsafe import Markup

    return Markup("\n").join(_show(section) for section in sections)


def linked(section: Section, column: str, links: Sequence[str | None]) -> Markup:
    """A section with a table, in which the cells of the column so named lead somewhere: a row each."""
    names = [one.name for one in section.columns]
    return _show(section, names.index(column) if column in names else None, links)


def _show(section: Section, at: int | None = None, links: Sequence[str | None] = ()) -> Markup:
    show = _environment().get_template("sections.html").module.show  # type: ignore[attr-defined]
    made: Markup = show(section, at, links)
    return made


def asset(name: str) -> str:
    """A style sheet or script of ours, as it stands in its file."""
    return (FOLDER / name).read_text(encoding="utf-8")


def policy(*, style: str, script: str) -> str:
    """The Content-Security-Policy of a page that is whole in itself: this style sheet and this script,
    the colours of figures, and nothing else."""
    return (
        f"default-src 'none'; script-src {_source(script)}; style-src-elem {_source(style)}; "
        "style-src-attr 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def policy_of_all() -> str:
    """The Content-Security-Policy of a page that becomes another, a served one or a report."""
    also = {"script-src": "table.js", "style-src-elem": "style.css"}
    policy = POLICY
    for kind, name in also.items():
        policy = policy.replace(f"{kind} 'self'", f"{kind} 'self' {_source(asset(name))}")
    return policy


def _source(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def embedded(values: Any) -> Markup:
    """Values as JSON inside of a <script> element: nothing in them ends it, or begins a comment."""
    from markupsafe import Markup

    content = orjson.dumps(values).decode()
    for character in "<>&\u2028\u2029":
        content = content.replace(character, f"\\u{ord(character):04x}")
    return Markup(content)  # noqa: S704  (nothing in it is markup any longer)


def trusted(content: str) -> Markup:
    """A style sheet or script of ours, as it is: escaped it would be another."""
    from markupsafe import Markup

    return Markup(content)  # noqa: S704  (our own files)
