"""The evidence behind scores as sections: of one item, and of two."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from judgeq.engine.people_said import beside
from judgeq.engine.results import Result
from judgeq.evaluation.trail import (
    Appearance,
    Judgment,
    Ledger,
    Trail,
    Versus,
    reasons,
    who,
)
from judgeq.types import Call
from judgeq.ui import item_sections
from judgeq.ui.sections import Cell, Column, Section, numbers, words
from judgeq.ui.text import NOT_ASKED, count, group, money, several
from judgeq.untrusted import excerpt, plain

TEXT, REPLY = 400, 2000
"""So many characters of a text, and of a raw reply, are shown."""
IN_A_TIE = 4
MOST = 3
"""So many of the judgments that argue most, of the opponents, and of those that both of two met."""
NAME, SHORT, NOTE = 24, 16, 60
NO_CALLS = "–: the ledger has none: imported, or not asked yet."
RESIDUAL = (
    "Residual: how much a judgment argues for a higher place (+) or a lower one (−) than the item has, "
    "in standard deviations of what its rating lets expect. Surprise: how unexpected the whole judgment "
    "is; 1 of 20 is above 1.6 where the model holds."
)


def explain(
    result: Result, trail: Trail, ledger: Ledger, *, replies: bool = False
) -> Iterator[Section]:
    """The audit trail of one score."""
    scores, row = result.scores, trail.row
    state = " (the run isn't finished)" if result.partial else ""
    yield Section(
        f"{_name(scores.ids[row])} in {result.run.id}{state}",
        facts=[*_facts(result, row), *_met(result, trail)],
        warnings=result.cautions,
    )
    if trail.appearances:
        arguing = trail.against[:MOST]
        yield _judgments(result, trail.appearances, row)
        if len(trail.appearances) > len(arguing) > 0:
            yield _arguing(result, arguing, row)
    yield from _without(result, trail, ledger)
    yield from _reasons([one.judgment for one in trail.appearances], ledger)
    if trail.appearances and "elo" in scores.ratings:
        yield _moved(trail, ledger)
    if replies:
        jobs = [one.judgment.job for one in trail.appearances]
        yield from _replies(result, [*jobs, *(match.id for match in ledger.open[row])], ledger)


def versus(
    result: Result, versus: Versus, ledger: Ledger, *, replies: bool = False
) -> Iterator[Section]:
    """What is known of two items."""
    scores, ids = result.scores, result.scores.ids
    one, other = (_name(ids[row]) for row in (versus.one, versus.other))
    yield Section(
        f"{one} and {other} in {result.run.id}",
        *item_sections.table(scores, [versus.one, versus.other], gold(result, versus)),
        warnings=result.cautions,
    )
    facts = [
        ("probability", _probability(result, versus, one)),
        ("directly", _directly(versus, one)),
    ]
    yield Section(facts=facts)
    if versus.together:
        yield _together(result, versus)
    yield from _reasons(versus.together, ledger)
    if replies:
        yield from _replies(result, [judgment.job for judgment in versus.together], ledger)


def _probability(result: Result, versus: Versus, one: str) -> str:
    if versus.probability is None:
        return f"–: {versus.why}"
    p = versus.probability
    said = "over 99.9 %" if p > 0.999 else "under 0.1 %" if p < 0.001 else f"{100 * p:.1f} %"
    return f"{said} that {one} has more of the feature, by {result.scores.main[0]}"


def _directly(versus: Versus, one: str) -> str:
    direct = versus.direct
    if not direct.met:
        return "never in one judgment"
    said = f"in {several(direct.met, 'judgment')}: {one} above in {direct.above}, "
    said += f"below in {direct.below}"
    said += f", tied in {direct.tied}" if direct.tied else ""
    unknown = direct.met - direct.compared
    return said + (f", their order not asked in {unknown}" if unknown else "")


def gold(result: Result, versus: Versus) -> list[item_sections.Further]:
    """The column of gold, where one of the two has some."""
    values = result.scores.gold[[versus.one, versus.other]].tolist()
    if all(map(math.isnan, values)):
        return []
    return [(numbers("gold", show=lambda value: f"{value:g}")[0], values)]


def _facts(result: Result, row: int) -> Iterator[tuple[str, str]]:
    """What the item is, and where it stands."""
    scores, sure = result.scores, result.scores.intervals
    if scores.texts is not None:
        text = scores.texts[row]
        more = len(text) - TEXT
        rest = f" … ({several(more, 'character')} more)" if more > 0 else ""
        yield "text", excerpt(text, TEXT) + rest
    ranks, (main, values) = scores.rank, scores.main
    rank = int(ranks[row])
    if not rank:
        yield "rank", "–: it was never judged"
    else:
        ranked = int(((ranks > 0) & (scores.component == scores.component[row])).sum())
        where = f"{count(rank)} of {count(ranked)}"
        rating = f"{values[row]:z.3f}"
        if sure is not None:
            tiers = int(sure.tier.max())
            where += f" (95 %: {sure.rank_low[row]} to {sure.rank_high[row]})"
            where += f", tier {sure.tier[row]} of {count(tiers)}"
            rating += f" ± {sure.se[row]:.3f} (95 %: {sure.low[row]:z.2f} to {sure.high[row]:z.2f})"
        yield "rank", where
        yield main, rating
    for name, others in scores.ratings.items():
        if name != main and not math.isnan(others[row]):
            yield name, f"{others[row]:.0f}" if name == "elo" else f"{others[row]:z.3f}"
    if not math.isnan(scores.gold[row]):
        yield "gold", f"{scores.gold[row]:g}"
    if scores.left_after[row]:
        yield "left", f"early, after round {scores.left_after[row]}"
    if scores.apart and rank:
        yield "component", f"{scores.component[row]}: nothing compares it with items of another"


def _met(result: Result, trail: Trail) -> Iterator[tuple[str, str]]:
    """How often it was judged, and against which."""
    if not trail.appearances:
        return
    rated = [one for one in trail.appearances if one.judgment.rated]
    higher = sum(one.residual > 0 for one in rated)
    lower = sum(one.residual < 0 for one in rated)
    judged = several(len(trail.appearances), "judgment")
    if len(rated) < len(trail.appearances):
        judged += f", {count(len(rated))} of them in the rating"
    yield (
        "judged",
        f"in {judged}: {count(higher)} for a higher place, {count(lower)} for a lower one",
    )


def _judgments(result: Result, appearances: Sequence[Appearance], row: int) -> Section:
    return Section(
        "Judgments, in the order asked (most of the feature first)",
        columns=[*_columns(result), *numbers("residual", "surprise")],
        rows=[
            (*_cells(result, one, row), _signed(one.residual), _signed(one.judgment.surprise))
            for one in appearances
        ],
        notes=[RESIDUAL, *_not_asked([one.judgment for one in appearances])],
    )


def _arguing(result: Result, arguing: Sequence[Appearance], row: int) -> Section:
    return Section(
        "Those that argue most against its place",
        columns=[*_columns(result), *words("argues for")],
        rows=[
            (*_cells(result, one, row), f"a {'higher' if one.residual > 0 else 'lower'} place")
            for one in arguing
        ],
    )


def _columns(result: Result) -> list[Column]:
    judge = [Column("judge", at_most=20, spare=1)] if len(result.judges) > 1 else []
    return [
        *numbers("round", "job"),
        *judge,
        Column("slot", whole=True, spare=3),
        Column("verdict", at_most=60, least=20),
        Column("won", whole=True),
        Column("expected", right=True, spare=2),
    ]


def _cells(result: Result, one: Appearance, row: int) -> list[Cell]:
    judgment, several_judges = one.judgment, len(result.judges) > 1
    k = len(judgment.presented)
    won = "" if k == 1 else f"{one.wins:g} of {judgment.compared(row)}"
    return [
        judgment.round,
        judgment.job,
        *([judgment.judge or ""] if several_judges else []),
        "–" if one.slot is None else f"{one.slot} of {k}",
        verdict(result, judgment, {row}) + ("" if judgment.rated else " (not rated)"),
        won,
        None if math.isnan(one.expected) else f"{one.expected:.1f}",
    ]


def verdict(result: Result, judgment: Judgment, rows: Collection[int], near: int = 1) -> str:
    """A verdict in words: these rows in brackets, and of a list the places so near to them."""
    ids = result.scores.ids
    if judgment.score is not None:
        return f"score {judgment.score:.3g}"
    at = [place for place, group in enumerate(judgment.groups) if set(group) & set(rows)]
    parts, before = [], -1
    for place, placed in enumerate(judgment.groups):
        if all(abs(place - one) > near for one in at):
            continue
        parts += ["…"] if place > before + 1 else []
        before = place
        ordered = sorted(placed, key=lambda row: row not in rows)
        names = [plain(ids[row], SHORT) for row in ordered]
        names = [
            f"[{name}]" if row in rows else name for name, row in zip(names, ordered, strict=True)
        ]
        more = [f"{len(names) - IN_A_TIE} more"] if len(names) > IN_A_TIE else []
        parts.append(group([*names[:IN_A_TIE], *more], partial=judgment.partial))
    parts += ["…"] if before + 1 < len(judgment.groups) else []
    return " > ".join(parts)


def _together(result: Result, versus: Versus) -> Section:
    rows = {versus.one, versus.other}
    judges = words("judge", at_most=20) if len(result.judges) > 1 else []
    return Section(
        "Judgments of both (most of the feature first)",
        columns=[
            *numbers("round", "job"),
            *judges,
            *words("slots", whole=True),
            Column("verdict", at_most=70, least=20),
            *numbers("surprise"),
        ],
        rows=[
            (
                one.round,
                one.job,
                *([one.judge or ""] if judges else []),
                _slots(one, (versus.one, versus.other)),
                verdict(result, one, rows, near=0),
                _signed(one.surprise),
            )
            for one in versus.together
        ],
        notes=_not_asked(versus.together),
    )


def _not_asked(judgments: Sequence[Judgment]) -> list[str]:
    return [NOT_ASKED] if any(one.partial for one in judgments) else []


def _slots(judgment: Judgment, rows: Sequence[int]) -> str:
    if not judgment.ordered:
        return "–"
    return " and ".join(str(judgment.presented.index(row) + 1) for row in rows)


def _without(result: Result, trail: Trail, ledger: Ledger) -> Iterator[Section]:
    """The questions about the item that brought no verdict."""
    unanswered, ids = ledger.open[trail.row], result.scores.ids
    if not unanswered:
        return
    rows = [
        (
            match.round,
            match.id,
            ", ".join(_name(ids[row]) for row in match.items if row != trail.row),
            _outcomes(result, ledger.calls.get(match.id)),
        )
        for match in unanswered
    ]
    yield Section(
        "Without a verdict",
        columns=[
            *numbers("round", "job"),
            Column("with", at_most=50, least=16),
            *(words("calls", at_most=60) if any(row[3] for row in rows) else ()),
        ],
        rows=rows if any(row[3] for row in rows) else [row[:3] for row in rows],
        notes=["These questions about it failed, were invalid, or are still to come."],
    )


def _outcomes(result: Result, calls: Sequence[Call] | None) -> str:
    parts = []
    for call in calls or ():
        name = "" if (person := who(result, call)) is None else f" by {plain(person, SHORT)}"
        said = "" if (more := beside(call)) is None else f" ({plain(more, NOTE)})"
        parts.append(f"{call.outcome}{name}{said}")
    return ", ".join(parts)


def _reasons(judgments: Sequence[Judgment], ledger: Ledger) -> Iterator[Section]:
    said = reasons(ledger)
    given = [(one, said.get(one.job)) for one in judgments]
    facts = [
        (
            f"round {one.round}, job {one.job}" + ("" if one.judge is None else f", {one.judge}"),
            plain(words, TEXT),
        )
        for one, words in given
        if words
    ]
    if facts:
        yield Section("The judge's reasons and notes", facts)


def _moved(trail: Trail, ledger: Ledger) -> Section:
    """Elo after each round in which it was judged."""
    elo = ledger.elo[:, ledger.rows.index(trail.row)].tolist()
    judged = [one.judgment.round for one in trail.appearances]
    return Section(
        "How its Elo moved",
        columns=[*numbers("round", "judgments"), *numbers("Elo", "change")],
        rows=[
            (
                number,
                judged.count(number),
                f"{elo[number]:.0f}",
                f"{elo[number] - elo[number - 1]:+.1f}",
            )
            for number in range(1, len(elo))
            if number in judged
        ],
    )


def _replies(result: Result, jobs: Sequence[int], ledger: Ledger) -> Iterator[Section]:
    """The raw replies, call by call; their lines stand apart from ours."""
    if not jobs:
        return
    if not any(ledger.calls.get(job) for job in jobs):
        yield Section("Replies", notes=[NO_CALLS])
        return
    yield Section("Replies")
    for job in jobs:
        for call in ledger.calls.get(job, ()):
            lines = (call.reply or "–").split("\n")
            shown, left = [], REPLY
            for line in lines:
                shown += [line[:left]] if left > 0 else []
                left -= len(line) + 1
            if left < 0:
                shown.append(f"… ({several(-left, 'character')} more; --json has all)")
            yield Section(
                facts=[(f"job {job}", _call(result, call))],
                notes=[f"  {line}" for line in shown],
                close=True,
            )


def _call(result: Result, call: Call) -> str:
    if (person := who(result, call)) is not None:
        return f"{plain(person, NAME)}: {call.outcome}, {call.latency:.1f} s"
    usage = call.usage
    tokens = f"{count(usage.input + usage.cached)} + {count(usage.output)} tokens"
    cost = "cost unknown" if call.cost is None else money(call.cost)
    return f"attempt {call.attempt}: {call.outcome}, {tokens}, {cost}, {call.latency:.2f} s"


def _name(item: str) -> str:
    return plain(item, NAME)


def _signed(value: float) -> str | None:
    return None if math.isnan(value) else f"{value:+.1f}"
