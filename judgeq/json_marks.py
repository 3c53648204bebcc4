"""Marks of fields that don't stand under their own name in a result's JSON (`ui/json.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LEFT_OUT: Mapping[Any, Any] = {"json": "left out"}
"""The metadata of a field that is no part of the JSON."""
INLINE: Mapping[Any, Any] = {"json": "inline"}
"""The metadata of a field whose own keys stand there in place of its name."""
