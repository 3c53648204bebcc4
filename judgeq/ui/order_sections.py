"""Whether the order presented mattered, as sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from judgeq.engine.results import Result
from judgeq.rating import position_bias
from judgeq.rating.position_effect import Effect
from judgeq.ui.sections import Section, numbers, words
from judgeq.ui.text import count, several

SLOTS_SHOWN = 12


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
    if len(result.effects) == 1:
        notes.append(_effect(result, result.effects[0]))
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
    if len(result.effects) > 1:
        yield _effects(result)


def _effect(result: Result, effect: Effect) -> str:
    """What the place is worth, in a sentence."""
    how = "higher" if effect.value >= 0 else "lower"
    size = f"{abs(effect.value):.2f} ± {effect.high - effect.value:.2f} {how}"
    text = f"A text shown last is preferred as if its {_score(result)} were {size} than if"
    return f"{text} shown first (95 % interval){_taken_out(result)}."


def _effects(result: Result) -> Section:
    """The same of several judges."""
    names = result.judges
    return Section(
        "Effect of the place, by judge",
        columns=[*words("judge"), *numbers("last over first", "95 % interval", "n")],
        rows=[
            (
                names[effect.judges[0]]
                if len(effect.judges) == 1
                else several(len(effect.judges), "other judge"),
                f"{effect.value:+z.2f}",
                f"{effect.low:z.2f} to {effect.high:z.2f}",
                effect.matches,
            )
            for effect in result.effects
        ],
        notes=[
            f"A text shown last is preferred as if its {_score(result)} were so much higher than if "
            f"shown first{_taken_out(result)}."
        ],
    )


def _taken_out(result: Result) -> str:
    if result.fit.position:
        return f"; {result.scores.main[0]} is without it"
    if result.flips is not None:
        return "; asking in both orders takes it out"
    return "; --unbias-position takes it out"


def _score(result: Result) -> str:
    return f"score ({result.scores.main[0]})"
