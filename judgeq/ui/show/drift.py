"""Whether a run's judge has changed, as sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from judgeq.engine.drift import Drifted
from judgeq.rating.drift import SPREAD, Drift
from judgeq.ui.sections import Section, numbers, stated, words


def drift(found: Drifted) -> Iterator[Section]:
    """A sentence, and a row for each way in which the judge may have drifted."""
    facts = stated("drift", d=found)
    yield replace(facts, notes=[])
    yield Section(
        columns=[*words("drift"), *numbers("p", "change", "95 % interval", "would be found from")],
        rows=[_row(one) for one in found.tests],
        notes=facts.notes,
    )


def _row(one: Drift) -> Sequence[str]:
    p, *sizes = one[1:]
    form = "{:+.0%}" if one.kind == SPREAD else "{:+.2f} sd"
    change, low, high, least = ("–" if size is None else form.format(size) for size in sizes)
    return (
        one.kind,
        f"{p:.2g}",
        change,
        "–" if one.low is None else f"{low} to {high}",
        least.replace("+", "±"),
    )
