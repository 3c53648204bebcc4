"""The notebooks of docs/tutorials/ run from top to bottom, and print what is kept of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import tutorials

NOTEBOOKS = {path.stem: path for path in tutorials.NOTEBOOKS}
DRAWN_BY_LOT = {"people"}
"""Notebooks whose numbers depend on links, which are new each time."""


def printed(notebook: dict[str, Any]) -> list[str]:
    """The outputs as text."""
    outputs = [one for cell in notebook["cells"] for one in cell.get("outputs", ())]
    return ["".join(one.get("text") or one["data"]["text/plain"]) for one in outputs]


def anonymous(texts: list[str]) -> list[str]:
    """Without the part of a run's id that the port of a server decides."""
    return [re.sub(r"(?<=-mock-)[0-9a-f]{10}", "", text) for text in texts]


@pytest.mark.long
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_tutorial_prints_what_is_kept(name: str, tmp_path: Path) -> None:
    for needed in ("nbclient", "ipykernel", "pandas", "openpyxl"):
        pytest.importorskip(needed)
    kept = printed(json.loads(NOTEBOOKS[name].read_text("utf-8")))
    now = printed(tutorials.executed(NOTEBOOKS[name], tmp_path))
    assert len(now) == len(kept) >= 3
    if name not in DRAWN_BY_LOT:
        assert anonymous(now) == anonymous(kept)


def test_a_tutorial_is_a_page_with_all_that_it_shows(tmp_path: Path) -> None:
    (tmp_path / "tutorials").mkdir()
    listing = tmp_path / "tutorials.md"
    listing.write_text("[one](tutorials/people.ipynb)", "utf-8")
    tutorials.write_pages(tmp_path)
    assert listing.read_text("utf-8") == "[one](tutorials/people.md)"
    for name, path in NOTEBOOKS.items():
        page = (tmp_path / "tutorials" / f"{name}.md").read_text("utf-8")
        notebook = json.loads(path.read_text("utf-8"))
        for cell in notebook["cells"]:
            assert "".join(cell["source"]) in page
        for text in printed(notebook):
            assert text.splitlines()[-1] in page or "<Figure" in text
        assert f"({path.name})" in page
    headlines = (tmp_path / "tutorials" / "headlines.md").read_text("utf-8")
    assert "](data:image/png;base64," in headlines
