"""How reliable a scale is, what doesn't fit it, and whether the order of presentation mattered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from judgeq.engine.results import Result
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.scale import Misfit, Reliability
from judgeq.events import Certainty
from judgeq.rating import position_bias
from judgeq.rating.misfit import UNEXPECTED, Fit
from judgeq.ui.sections import Cell, Section, numbers, stated, words

WORST = 3
"""Judges, items and judgments that are named at most."""
SLOTS_SHOWN = 12
NOT_ASKED = "{ }: the order of these was not asked."


def reliability(found: Reliability, known: Certainty | None = None) -> Section:
    """The expected agreement of the order, the separation and the split halves; when not to rely on
    them."""
    return stated("reliability_of", r=found, known=known)


def misfit(found: Misfit) -> Iterator[Section]:
    """How many judges and items don't fit, the worst of them, and judgments that are unexpected."""
    parts = (("judge", found.judges), ("item", found.items))
    fits = [(what, fit) for what, fit in parts if fit is not None]
    yield stated("misfit", m=found, fits=fits)
    rows = [row for what, fit in fits for row in _worst(what, fit)]
    if rows:
        yield Section(
            columns=[
                *words("misfit", whole=True),
                *words("id", at_most=30),
                *numbers("infit [expected]", "comparisons"),
            ],
            rows=rows,
            notes=["Infit above the range: less predictable than the others; below: more so."],
            close=True,
        )
    least = [one for one in found.least_expected[:WORST] if one.surprise > UNEXPECTED]
    if least:
        judges = words("judge", at_most=20) if any(one.judge is not None for one in least) else []
        yield Section(
            "Judgments least expected (most of the feature first)",
            columns=[*numbers("round"), *judges, *words("judgment", at_most=70)],
            rows=[
                (
                    one.round,
                    *([one.judge] if judges else []),
                    " > ".join(_group(ids, one.partial) for ids in one.groups),
                )
                for one in least
            ],
            notes=[NOT_ASKED] if any(one.partial for one in least) else [],
        )


def _group(names: Sequence[str], partial: bool) -> str:
    """Items at one place of a judgment: tied, or `partial`, in an order that isn't known."""
    return f"{{{', '.join(names)}}}" if partial and len(names) > 1 else " = ".join(names)


def _worst(what: str, fit: Fit) -> Iterator[Sequence[Cell]]:
    for unit in fit.furthest(fit.above | fit.below, WORST):
        infit = Measured(float(fit.infit[unit]), float(fit.low[unit]), float(fit.high[unit]))
        yield what, fit.names[unit], infit, int(fit.comparisons[unit])


def order(result: Result) -> Iterator[Section]:
    """How often each position wins, and what a position is worth; of long lists only the extremes."""
    slots = result.slots
    if slots is None:
        return
    places: Sequence[int] = range(len(slots.rate))
    if len(places) > SLOTS_SHOWN:
        places = sorted({int(slots.rate.argmax()), int(slots.rate.argmin())})
    rows = [
        (
            place + 1,
            float(slots.rate[place]),
            f"{slots.low[place]:z.3f} to {slots.high[place]:z.3f}",
            int(slots.matches[place]),
        )
        for place in places
    ]
    columns = numbers("position", "win rate", "95 % interval", "n") if rows else []
    words_of = stated("positions", r=result, sentence=position_bias.sentence)
    yield replace(words_of, columns=columns, rows=rows)
