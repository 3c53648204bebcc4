"""The settings of how people are asked."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import field_validator

from judgeq.settings.declaration import PEOPLE, Declarations, setting


class Asking(Declarations):
    """How people are asked, with --judge people."""

    each: int = setting(
        "How many people judge each question.", PEOPLE, 1, limits={"ge": 1, "le": 1000}
    )
    repeats: float = setting(
        "The share of questions asked again in reverse order, as a check that scores don't use.",
        PEOPLE, 0.0, session=True, limits={"ge": 0, "le": 0.5},
    )  # fmt: skip
    anchors: Path | None = setting(
        "A table of pairs with a known answer (columns left, right and winner: ids or texts), mixed in "
        "as a check.",
        PEOPLE, None, session=True, metavar="PATH",
    )  # fmt: skip
    host: str = setting(
        "The address that the page listens on; if others reach it, the connection isn't encrypted.",
        PEOPLE, "127.0.0.1", session=True,
    )  # fmt: skip
    port: int = setting(
        "The page's port; 0: any free one.",
        PEOPLE,
        8766,
        session=True,
        limits={"ge": 0, "le": 65535},
    )
    url_prefix: str = setting(
        "The beginning of links behind a reverse proxy: a path, or a whole address.",
        PEOPLE, "", session=True, metavar="/PATH|https://…",
    )  # fmt: skip
    open_to_all: bool = setting(
        "Let anybody who reaches the page judge, under a name of their own.", PEOPLE, False,
        session=True,
    )  # fmt: skip

    @field_validator("url_prefix")
    @classmethod
    def _of_an_address(cls, prefix: str) -> str:
        return "".join(split_prefix(prefix))


_PREFIX = re.compile(
    r"(?:(https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?)(?=/|$))?/*([\w.~-]+(?:/[\w.~-]+)*)?/*",
    re.ASCII | re.IGNORECASE,
)


def split_prefix(prefix: str) -> tuple[str, str]:
    """What links begin with, as the address of a reverse proxy ("https://lab.example.org"; "": none) and
    the path behind it ("/study1"; "": none). Raises ValueError for what is neither."""
    found = _PREFIX.fullmatch(prefix.strip())
    site, path = found.groups(default="") if found else ("", "..")
    if {".", ".."} & {*path.split("/")}:
        raise ValueError(
            f"{prefix!r} is neither a path, such as /study1, nor the address of a reverse proxy, such "
            "as https://lab.example.org/study1"
        )
    return site.lower(), path and f"/{path}"
