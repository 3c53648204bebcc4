"""How reliable a scale is, what doesn't fit it, and whether the order presented mattered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from judgeq.engine.results import Result
from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.scale import Misfit, Reliability
from judgeq.rating import position_bias
from judgeq.rating.misfit import Fit
from judgeq.text import count, several
from judgeq.ui.sections import Cell, Section, numbers, shown, words
from judgeq.ui.text import NOT_ASKED, group

WORST = 3
"""So many judges, items and judgments are named."""
BY_CHANCE = 0.05
SLOTS_SHOWN = 12

ADAPTIVE = (
    "Earlier answers decided what was asked later, which makes the SSR too high: runs so designed "
    "reported 0.97 where 0.84 was true, and coin tosses reached 0.89 (Bramley and Vitello 2019). "
    "Rely on the split halves."
)
UNKNOWN = (
    "How these judgments were chosen isn't known: where earlier answers decided what was asked later, "
    "the SSR is too high."
)


def reliability(found: Reliability) -> Section:
    """The separation and the split halves, what they mean, and when not to believe them."""
    one, half = found.separation, found.split_half
    notes = ["This says how well the judgments agree with one another, not with the truth."]
    warnings = []
    if one.ssr is None:
        facts = [("SSR", f"–: {one.why}")]
    else:
        spread = "" if one.g is None else f" (G = {one.g:.2f}: the spread in standard errors)"
        facts = [("SSR", f"{shown(one.ssr)}{spread}")]
        notes.append("SSR is the share of the variance of the ratings that isn't error.")
        if found.adaptive is not False:
            warnings.append(ADAPTIVE if found.adaptive else UNKNOWN)
    if half.r is None:
        facts.append(("split halves", f"–: {half.why}"))
    else:
        splits = f"{several(half.splits, 'split')} of the {half.by}"
        reach = f"{shown(half.low)} to {shown(half.high)}"
        facts.append(("split halves", f"r = {shown(half.r)}: median of {splits}, {reach}"))
        more = (
            []
            if half.whole is None
            else [f"predicts {shown(half.whole)} of all {half.by} together"]
        )
        more += [f"rated by {found.halves_by}"] if found.halves_by != found.rating else []
        more += [f"within {count(half.components)} components"] if half.components > 1 else []
        facts += [("", ", ".join(more))] if more else []
    title = f"Reliability of the scale ({found.rating}): no gold is used"
    return Section(title, facts=facts, notes=notes, warnings=warnings)


def misfit(found: Misfit) -> Iterator[Section]:
    """How many judges and items don't fit, the worst of them; the least expected judgments."""
    title = f"Misfit with the scale ({found.rating})"
    if found.why is not None:
        yield Section(title, notes=[f"–: {found.why}."])
        return
    fits = {"judge": found.judges, "item": found.items}
    parts = {what: fit for what, fit in fits.items() if fit is not None}
    yield Section(title, facts=[(f"{what}s", _counts(fit)) for what, fit in parts.items()])
    rows = [row for what, fit in parts.items() for row in _worst(what, fit)]
    if rows:
        yield Section(
            "Outside the range, the furthest",
            columns=[
                *words("", whole=True),
                *words("id", at_most=30),
                *numbers("infit [expected]", "outfit", "z", "comparisons"),
            ],
            rows=rows,
            notes=["Infit above the range: less predictable than the others; below: more so."],
            close=True,
        )
    least = found.least_expected[:WORST]
    if least:
        partial = any(judgment.partial for judgment in least)
        judges = words("judge", at_most=20) if any(one.judge is not None for one in least) else []
        yield Section(
            "Judgments least expected (most of the feature first)",
            columns=[
                *numbers("round"),
                *judges,
                *words("judgment", at_most=60),
                *numbers("surprise"),
            ],
            rows=[
                (
                    one.round,
                    *([one.judge] if judges else []),
                    " > ".join(group(ids, partial=one.partial) for ids in one.groups),
                    f"{one.surprise:+.1f}",
                )
                for one in least
            ],
            notes=[
                "Surprise is standardised: where the model of the ratings holds, 1 of 20 is above 1.6.",
                *([NOT_ASKED] if partial else []),
            ],
            close=True,
        )


def _counts(fit: Fit) -> str:
    known, above, below = (int(part.sum()) for part in (fit.known, fit.above, fit.below))
    if not known:
        return "too few comparisons each"
    chance = round(known * BY_CHANCE)
    which = f"{count(above)} less predictable, {count(below)} more"
    of = f"{count(above + below)} of {count(known)}"
    return f"{of} outside the range of 95 % (by chance {count(chance)}): {which}"


def _worst(what: str, fit: Fit) -> Iterator[Sequence[Cell]]:
    for unit in fit.furthest(fit.above | fit.below, WORST):
        columns = (fit.infit, fit.low, fit.high, fit.outfit, fit.z)
        infit, low, high, outfit, z = (float(column[unit]) for column in columns)
        n = int(fit.comparisons[unit])
        yield what, fit.names[unit], Measured(infit, low, high), f"{outfit:.3f}", f"{z:+.1f}", n


def order(result: Result) -> Iterator[Section]:
    """Whether a place in the order presented was favoured, and what it is worth; of long lists only the
    ends are shown."""
    slots, flips = result.slots, result.flips
    if slots is None:
        return
    if slots.unordered:
        unordered = several(slots.unordered, "verdict")
        note = f"The order of presentation isn't known of {unordered}"
        yield Section(notes=[f"{note}, which the win rates by slot leave out."])
    if not len(slots.rate):
        return
    places: Sequence[int] = range(len(slots.rate))
    if len(places) > SLOTS_SHOWN:
        places = sorted({int(slots.rate.argmax()), int(slots.rate.argmin())})
    notes = [f"Order of presentation: {position_bias.sentence(slots)}"]
    if flips is not None:
        share = flips.flipped / max(1, flips.couples - flips.incomplete)
        both = f"Both orders: {several(flips.couples, 'pair')}, {count(flips.flipped)} flipped"
        both += f" ({share:.1%}), counted as ties"
        if flips.incomplete:
            both += f"; {count(flips.incomplete)} answered in one order only, left out"
        notes.append(f"{both}.")
    yield Section(
        "Win rate by slot (in the order presented; 0.5: the place makes no difference)",
        columns=numbers("slot", "win rate", "95 % interval", "n"),
        rows=[
            (
                place + 1,
                float(slots.rate[place]),
                f"{slots.low[place]:z.3f} to {slots.high[place]:z.3f}",
                int(slots.matches[place]),
            )
            for place in places
        ],
        notes=notes,
    )
    if result.effects:
        yield _effects(result)


def _effects(result: Result) -> Section:
    """What the place is worth, in a sentence; of several judges in a table."""
    effects, rating = result.effects, result.scores.main[0]
    out = "--unbias-position takes it out"
    if result.fit.position:
        out = f"{rating} is without it"
    elif result.flips is not None:
        out = "asking in both orders takes it out"
    worth = f"A text shown last is preferred as if its score ({rating}) were"
    if len(effects) == 1:
        (effect,) = effects
        size = f"{abs(effect.value):.2f} ± {effect.high - effect.value:.2f}"
        how = "higher" if effect.value >= 0 else "lower"
        said = f"{worth} {size} {how} than if shown first (95 % interval); {out}."
        return Section(notes=[said], close=True)
    return Section(
        "Effect of the place, by judge",
        columns=[*words("judge"), *numbers("last over first", "95 % interval", "n")],
        rows=[
            (
                result.judges[effect.judges[0]]
                if len(effect.judges) == 1
                else several(len(effect.judges), "other judge"),
                f"{effect.value:+z.2f}",
                f"{effect.low:z.2f} to {effect.high:z.2f}",
                effect.matches,
            )
            for effect in effects
        ],
        notes=[f"{worth} so much higher than if shown first; {out}."],
    )
