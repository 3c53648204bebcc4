"""Sections as plain JSON: the values of tables, not how they are shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from judgeq.evaluation.metrics import Measured
from judgeq.ui.sections import Cell, Chapter, Section


def chapters_json(chapters: Sequence[Chapter]) -> list[dict[str, Any]]:
    """Chapters with their sections."""
    return [
        {
            "anchor": chapter.anchor,
            "title": chapter.title,
            "sections": [_section(section) for section in chapter.sections],
        }
        for chapter in chapters
    ]


def _section(section: Section) -> dict[str, Any]:
    return {
        "title": section.title,
        "facts": [{"name": name, "value": value} for name, value in section.facts],
        "columns": [column.name for column in section.columns],
        "rows": [[_value(cell) for cell in row] for row in section.rows],
        "blocks": [{"caption": caption, "text": text} for caption, text in section.blocks],
        "notes": list(section.notes),
        "warnings": list(section.warnings),
        "picture": None if section.picture is None else section.picture.alt,
    }


def _value(cell: Cell) -> Any:
    """A number, a word, or a measure with its interval; None for what can't be known."""
    if isinstance(cell, Measured):
        return {"value": cell.value, "low": cell.low, "high": cell.high}
    return None if isinstance(cell, float) and math.isnan(cell) else cell
