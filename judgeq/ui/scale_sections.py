"""How reliable a scale is, and what doesn't fit it, as sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.scale import Judgment, Misfit, Reliability
from judgeq.rating.misfit import Fit
from judgeq.rating.reliability import SplitHalf
from judgeq.ui.sections import Section, numbers, shown, words
from judgeq.ui.text import NOT_ASKED, count, group, several

WORST = 3
"""So many judges, items and judgments are named."""
BY_CHANCE = 0.05

ADAPTIVE = (
    "Earlier answers decided what was asked later, which makes the SSR too high: runs so designed "
    "reported 0.97 where 0.84 was true, and coin tosses reached 0.89 (Bramley and Vitello 2019). "
    "Rely on the split halves."
)
UNKNOWN = (
    "How these judgments were chosen isn't known: where earlier answers decided what was asked later, "
    "the SSR is too high."
)


def reliability(found: Reliability) -> Iterator[Section]:
    """The separation and the split halves, what they mean, and when not to believe them."""
    one = found.separation
    notes = ["This says how well the judgments agree with one another, not with the truth."]
    if one.ssr is None:
        facts = [("SSR", f"–: {one.why}")]
    else:
        spread = "" if one.g is None else f" (G = {one.g:.2f}: the spread in standard errors)"
        facts = [("SSR", f"{shown(one.ssr)}{spread}")]
        notes.append("SSR is the share of the variance of the ratings that isn't error.")
    yield Section(
        f"Reliability of the scale ({found.rating}): no gold is used",
        facts=[*facts, *_halves(found.split_half, found.halves_by, found.rating)],
        notes=notes,
        warnings=()
        if one.ssr is None or found.adaptive is False
        else [ADAPTIVE if found.adaptive else UNKNOWN],
    )


def _halves(half: SplitHalf, estimator: str, rating: str) -> Iterator[tuple[str, str]]:
    if half.r is None:
        yield "split halves", f"–: {half.why}"
        return
    reach = f"{shown(half.low)} to {shown(half.high)}"
    splits = f"{several(half.splits, 'split')} of the {half.by}"
    yield "split halves", f"r = {shown(half.r)}: median of {splits}, {reach}"
    more = [] if half.whole is None else [f"predicts {shown(half.whole)} of all {half.by} together"]
    more += [f"rated by {estimator}"] if estimator != rating else []
    more += [f"within {count(half.components)} components"] if half.components > 1 else []
    if more:
        yield "", ", ".join(more)


def misfit(found: Misfit) -> Iterator[Section]:
    """How many judges and items don't fit, the worst of them; the least expected judgments."""
    title = f"Misfit with the scale ({found.rating})"
    if found.why is not None:
        yield Section(title, notes=[f"–: {found.why}."])
        return
    parts = [("judges", found.judges), ("items", found.items)]
    facts = [(what, _counts(fit)) for what, fit in parts if fit is not None]
    yield Section(title, facts=facts)
    rows = [row for what, fit in parts if fit is not None for row in _worst(what[:-1], fit)]
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
    if found.least_expected:
        yield _least_expected(found.least_expected)


def _counts(fit: Fit) -> str:
    known, above, below = (int(part.sum()) for part in (fit.known, fit.above, fit.below))
    if not known:
        return "too few comparisons each"
    chance = round(known * BY_CHANCE)
    which = f"{count(above)} less predictable, {count(below)} more"
    of = f"{count(above + below)} of {count(known)}"
    return f"{of} outside the range of 95 % (by chance {count(chance)}): {which}"


def _worst(what: str, fit: Fit) -> Iterator[Sequence[str | int | Measured]]:
    for unit in fit.furthest(fit.above | fit.below, WORST):
        columns = (fit.infit, fit.low, fit.high, fit.outfit, fit.z)
        infit, low, high, outfit, z = (float(column[unit]) for column in columns)
        n = int(fit.comparisons[unit])
        yield what, fit.names[unit], Measured(infit, low, high), f"{outfit:.3f}", f"{z:+.1f}", n


def _least_expected(judgments: Sequence[Judgment]) -> Section:
    several_judges = any(judgment.judge is not None for judgment in judgments)
    return Section(
        "Judgments least expected (most of the feature first)",
        columns=[
            *numbers("round"),
            *words(*(["judge"] if several_judges else []), at_most=20),
            *words("judgment", at_most=60),
            *numbers("surprise"),
        ],
        rows=[
            (
                judgment.round,
                *([judgment.judge] if several_judges else []),
                " > ".join(group(ids, partial=judgment.partial) for ids in judgment.groups),
                f"{judgment.surprise:+.1f}",
            )
            for judgment in judgments[:WORST]
        ],
        notes=[
            "Surprise is standardised: where the model of the ratings holds, 1 of 20 is above 1.6.",
            *([NOT_ASKED] if any(judgment.partial for judgment in judgments[:WORST]) else []),
        ],
        close=True,
    )
