"""How reliable a scale is, what doesn't fit it, and whether the order of presentation mattered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from judgeq.certainty import Certainty
from judgeq.engine.results import Result
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.scale import Misfit, Reliability
from judgeq.rating import position_bias
from judgeq.rating.misfit import UNEXPECTED, Fit
from judgeq.text import count, several
from judgeq.ui.sections import Cell, Section, numbers, shown, words
from judgeq.ui.text import NOT_ASKED, group

WORST = 3
"""Judges, items and judgments that are named at most."""
BY_CHANCE = 0.05
SLOTS_SHOWN = 12

ADAPTIVE = (
    "Earlier answers decided what was asked later, so the SSR is too high (Bramley and Vitello 2019). "
    "Rely on the split halves."
)
UNKNOWN = (
    "How these judgments were chosen isn't known. If earlier answers decided later questions, the SSR "
    "is too high."
)


def reliability_line(run: Result, found: Reliability) -> str:
    """How reliable the scale is, in a line."""
    numbers = {
        "order, ρ̂": None if run.known is None else run.known.rho,
        "split halves": found.split_half.whole,
        "scores, SSR": found.separation.ssr,
    }
    parts = [f"{value:.2f} ({name})" for name, value in numbers.items() if value is not None]
    return ", ".join(parts) or f"unknown: {found.split_half.why or found.separation.why}"


def reliability(found: Reliability, known: Certainty | None = None) -> Section:
    """The expected agreement of the order, the separation and the split halves; when not to rely on
    them."""
    one, half = found.separation, found.split_half
    facts, warnings = [], []
    if known is not None:
        facts.append(
            ("ρ̂", f"{known.rho:.3f} expected correlation with the order by endless answers")
        )
    if one.ssr is None:
        facts.append(("SSR", f"–: {one.why}"))
    else:
        spread = "" if one.g is None else f" (G = {one.g:.2f})"
        share = f"{shown(one.ssr)} of the variance of the scores isn't error"
        facts.append(("SSR", f"{share}{spread}"))
        if found.adaptive is not False:
            warnings.append(ADAPTIVE if found.adaptive else UNKNOWN)
    if half.r is None:
        facts.append(("split halves", f"–: {half.why}"))
    else:
        splits = f"{several(half.splits, 'split')} of the {half.by}"
        reach = f"{shown(half.low)} to {shown(half.high)}"
        facts.append(("split halves", f"r = {shown(half.r)} (median of {splits}: {reach})"))
        more = f"for all {half.by} together {shown(half.whole)}"
        if half.components > 1:
            more += f", within {count(half.components)} groups of compared items"
        facts.append(("", more))
    note = "This measures how well the judgments agree with one another, not with the truth."
    return Section(
        f"Reliability of the scores ({found.rating})", facts, notes=[note], warnings=warnings
    )


def misfit(found: Misfit) -> Iterator[Section]:
    """How many judges and items don't fit, the worst of them, and judgments that are unexpected."""
    title = f"Misfit with the scores ({found.rating})"
    if found.why is not None:
        yield Section(title, notes=[f"–: {found.why}."])
        return
    parts = {"judge": found.judges, "item": found.items}
    fits = {what: fit for what, fit in parts.items() if fit is not None}
    yield Section(title, facts=[(f"{what}s", _direction(fit)) for what, fit in fits.items()])
    rows = [row for what, fit in fits.items() for row in _worst(what, fit)]
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
                    " > ".join(group(ids, partial=one.partial) for ids in one.groups),
                )
                for one in least
            ],
            notes=[NOT_ASKED] if any(one.partial for one in least) else [],
        )


def misfits(fit: Fit) -> str:
    """How many judges or items are outside the range."""
    known, above, below = (int(part.sum()) for part in (fit.known, fit.above, fit.below))
    if not known:
        return "too few comparisons each"
    chance = count(round(known * BY_CHANCE))
    of = f"{count(above + below)} of {count(known)}"
    return f"{of} outside the 95 % range ({chance} expected by chance)"


def _direction(fit: Fit) -> str:
    above, below = (count(int(part.sum())) for part in (fit.above, fit.below))
    which = f": {above} less predictable, {below} more" if fit.known.any() else ""
    return f"{misfits(fit)}{which}"


def _worst(what: str, fit: Fit) -> Iterator[Sequence[Cell]]:
    for unit in fit.furthest(fit.above | fit.below, WORST):
        infit = Measured(float(fit.infit[unit]), float(fit.low[unit]), float(fit.high[unit]))
        yield what, fit.names[unit], infit, int(fit.comparisons[unit])


def order(result: Result) -> Iterator[Section]:
    """How often each position wins, and what a position is worth; of long lists only the extremes."""
    slots = result.slots
    if slots is None:
        return
    notes = []
    if slots.unordered:
        unknown = several(slots.unordered, "verdict")
        notes.append(f"The order of presentation isn't known for {unknown}, left out here.")
    if not len(slots.rate):
        yield Section(notes=notes)
        return
    places: Sequence[int] = range(len(slots.rate))
    if len(places) > SLOTS_SHOWN:
        places = sorted({int(slots.rate.argmax()), int(slots.rate.argmin())})
    yield Section(
        "How often each position wins (0.5: it makes no difference)",
        columns=numbers("position", "win rate", "95 % interval", "n"),
        rows=[
            (
                place + 1,
                float(slots.rate[place]),
                f"{slots.low[place]:z.3f} to {slots.high[place]:z.3f}",
                int(slots.matches[place]),
            )
            for place in places
        ],
        notes=[*notes, position_bias.sentence(slots), *_effects(result)],
    )


def _effects(result: Result) -> Iterator[str]:
    """What the position is worth, by judge, and what corrects for it."""
    flips, main = result.flips, result.scores.main[0]
    if flips is not None:
        share = flips.flipped / max(1, flips.couples - flips.incomplete)
        both = f"Both orders: {several(flips.couples, 'pair')}, {count(flips.flipped)} flipped"
        yield f"{both} ({share:.1%}) and counted as ties."
        if flips.incomplete:
            yield f"{count(flips.incomplete)} answered in one order only are left out."
    remedy = "asking in both orders cancels it" if flips else "--unbias-position corrects for it"
    if result.fit.position:
        remedy = f"{main} is corrected for it"
    for one in result.effects:
        judge = ""
        if len(result.effects) > 1:
            several_judges = several(len(one.judges), "other judge")
            name = result.judges[one.judges[0]] if len(one.judges) == 1 else several_judges
            judge = f" by {name}"
        yield (
            f"Being shown last instead of first changes a score ({main}){judge} by {one.value:+z.2f} "
            f"(95 % interval {one.low:+z.2f} to {one.high:+z.2f}); {remedy}."
        )
