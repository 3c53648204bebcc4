"""A verdict in words."""

from __future__ import annotations

from collections.abc import Sequence

NOT_ASKED = "{ }: the order of these was not asked."


def group(names: Sequence[str], *, partial: bool) -> str:
    """Items at one place of a verdict: tied, or `partial`, in an order that isn't known."""
    return f"{{{', '.join(names)}}}" if partial and len(names) > 1 else " = ".join(names)
