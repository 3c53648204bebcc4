"""The evidence behind scores as sections: of one item, and of two."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from judgeq.engine.results import Result
from judgeq.evaluation.trail import (
    Appearance,
    Judgment,
    Ledger,
    Trail,
    Versus,
    who,
)
from judgeq.people.answers import remark
from judgeq.text import count, money, several
from judgeq.types import Call
from judgeq.ui.sections import Cell, Column, Section, numbers, words
from judgeq.ui.show import items as show_items
from judgeq.ui.text import NOT_ASKED, group
from judgeq.untrusted import excerpt, plain

TEXT, REPLY = 400, 2000
"""So many characters of a text, and of a raw reply, are shown."""
IN_A_TIE = 4
MOST = 3
"""So many of the judgments that argue most are shown by themselves."""
NAME, SHORT, NOTE = 24, 16, 60
RESIDUAL = (
    "Residual: how much a judgment argues for a higher place (+) or a lower one (−) than the item has, "
    "in standard deviations of what its rating lets expect. Surprise: how unexpected the whole judgment "
    "is; 1 of 20 is above 1.6 where the model holds."
)


def explain(
    result: Result, trail: Trail, ledger: Ledger, *, replies: bool = False
) -> Iterator[Section]:
    """The audit trail of one score."""
    scores, row, seen = result.scores, trail.row, trail.appearances
    judgments = [one.judgment for one in seen]
    state = " (the run isn't finished)" if result.partial else ""
    facts = [*_facts(result, row)]
    if seen:
        rated = [one.residual for one in seen if one.judgment.rated]
        judged = several(len(seen), "judgment")
        if len(rated) < len(seen):
            judged += f", {count(len(rated))} of them in the rating"
        higher, lower = (count(sum(sign * one > 0 for one in rated)) for sign in (1, -1))
        judged += f": {higher} for a higher place, {lower} for a lower one"
        facts.append(("judged", f"in {judged}"))
    title = f"{plain(scores.ids[row], NAME)} in {result.run.id}{state}"
    yield Section(title, facts, warnings=result.cautions)
    if seen:
        title = "Judgments, in the order asked (most of the feature first)"
        yield _appearances(title, result, seen, row, [RESIDUAL, *_not_asked(judgments)])
        arguing = trail.against[:MOST]
        if len(seen) > len(arguing) > 0:
            yield _appearances("Those that argue most against its place", result, arguing, row)
    if ledger.open[row]:
        yield _without(result, trail, ledger)
    yield from _reasons(judgments, ledger)
    if seen and "elo" in scores.ratings:
        elo = ledger.elo[:, ledger.rows.index(row)].tolist()
        rounds = [one.round for one in judgments]
        yield Section(
            "How its Elo moved",
            columns=numbers("round", "judgments", "Elo", "change"),
            rows=[
                (at, rounds.count(at), f"{elo[at]:.0f}", f"{elo[at] - elo[at - 1]:+.1f}")
                for at in sorted(set(rounds))
            ],
        )
    if replies:
        jobs = [one.job for one in judgments]
        yield from _replies(result, [*jobs, *(match.id for match in ledger.open[row])], ledger)


def versus(
    result: Result, versus: Versus, ledger: Ledger, *, replies: bool = False
) -> Iterator[Section]:
    """What is known of two items."""
    scores, rows, together = result.scores, [versus.one, versus.other], versus.together
    one, other = (plain(scores.ids[row], NAME) for row in rows)
    values = scores.gold[rows].tolist()
    gold = (
        [] if all(map(math.isnan, values)) else [(numbers("gold", show="{:g}".format)[0], values)]
    )
    columns, table = show_items.table(scores, rows, gold)
    title = f"{one} and {other} in {result.run.id}"
    yield Section(title, columns=columns, rows=table, warnings=result.cautions)
    p, direct, how = versus.probability, versus.direct, "never in one judgment"
    said = f"–: {versus.why}"
    if p is not None:
        share = "over 99.9 %" if p > 0.999 else "under 0.1 %" if p < 0.001 else f"{100 * p:.1f} %"
        said = f"{share} that {one} has more of the feature, by {scores.main[0]}"
    if direct.met:
        how = f"in {several(direct.met, 'judgment')}: {one} above in {direct.above}, "
        how += f"below in {direct.below}"
        how += f", tied in {direct.tied}" if direct.tied else ""
        unknown = direct.met - direct.compared
        how += f", their order not asked in {unknown}" if unknown else ""
    yield Section(facts=[("probability", said), ("directly", how)])
    if together:
        slots = [
            " and ".join(str(judgment.presented.index(row) + 1) for row in rows)
            if judgment.ordered
            else "–"
            for judgment in together
        ]
        cells = [
            [verdict(result, judgment, rows, near=0), _signed(judgment.surprise)]
            for judgment in together
        ]
        title = "Judgments of both (most of the feature first)"
        columns, notes = numbers("surprise"), _not_asked(together)
        yield _judgments(title, result, together, slots, columns, cells, notes)
    yield from _reasons(together, ledger)
    if replies:
        yield from _replies(result, [judgment.job for judgment in together], ledger)


def _facts(result: Result, row: int) -> Iterator[tuple[str, str]]:
    """What the item is, and where it stands."""
    scores, sure = result.scores, result.scores.intervals
    if scores.texts is not None:
        text = scores.texts[row]
        more = len(text) - TEXT
        rest = f" … ({several(more, 'character')} more)" if more > 0 else ""
        yield "text", excerpt(text, TEXT) + rest
    ranks, component, (main, values) = scores.rank, scores.component, scores.main
    if not ranks[row]:
        yield "rank", "–: it was never judged"
    else:
        ranked = int(((ranks > 0) & (component == component[row])).sum())
        where, rating = f"{count(int(ranks[row]))} of {count(ranked)}", f"{values[row]:z.3f}"
        if sure is not None:
            where += f" (95 %: {sure.rank_low[row]} to {sure.rank_high[row]})"
            where += f", tier {sure.tier[row]} of {count(int(sure.tier.max()))}"
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
    if scores.apart and ranks[row]:
        yield "component", f"{component[row]}: nothing compares it with items of another"


def _appearances(
    title: str, result: Result, seen: Sequence[Appearance], row: int, notes: Sequence[str] = ()
) -> Section:
    """A table of the judgments that an item was in."""
    slots, cells = [], []
    for one in seen:
        judgment, k = one.judgment, len(one.judgment.presented)
        slots.append("–" if one.slot is None else f"{one.slot} of {k}")
        cells.append(
            [
                verdict(result, judgment, {row}) + ("" if judgment.rated else " (not rated)"),
                "" if k == 1 else f"{one.wins:g} of {judgment.compared(row)}",
                None if math.isnan(one.expected) else f"{one.expected:.1f}",
                _signed(one.residual),
                _signed(judgment.surprise),
            ]
        )
    columns = [
        Column("won", whole=True),
        Column("expected", right=True, spare=2),
        *numbers("residual", "surprise"),
    ]
    return _judgments(title, result, [one.judgment for one in seen], slots, columns, cells, notes)


def _judgments(
    title: str,
    result: Result,
    judgments: Sequence[Judgment],
    slots: Sequence[str],
    columns: Sequence[Column],
    cells: Sequence[Sequence[Cell]],
    notes: Sequence[str],
) -> Section:
    """A row each judgment: where it is from, the slots, and in cells its verdict and what stands under
    `columns`."""
    judge = [Column("judge", at_most=20, spare=1)] if len(result.judges) > 1 else []
    slot, said = Column("slot", whole=True, spare=3), Column("verdict", at_most=60, least=20)
    return Section(
        title,
        columns=[*numbers("round", "job"), *judge, slot, said, *columns],
        rows=[
            [one.round, one.job, *([one.judge or ""] if judge else []), at, *further]
            for one, at, further in zip(judgments, slots, cells, strict=True)
        ],
        notes=notes,
    )


def verdict(result: Result, judgment: Judgment, rows: Collection[int], near: int = 1) -> str:
    """A verdict in words: these rows in brackets, and of a list the places so near to them."""
    if judgment.score is not None:
        return f"score {judgment.score:.3g}"
    at = [place for place, group in enumerate(judgment.groups) if set(group) & set(rows)]
    parts, before = [], -1
    for place, placed in enumerate(judgment.groups):
        if all(abs(place - one) > near for one in at):
            continue
        parts += ["…"] if place > before + 1 else []
        before = place
        names = [
            f"[{name}]" if row in rows else name
            for row in sorted(placed, key=lambda row: row not in rows)
            for name in [plain(result.scores.ids[row], SHORT)]
        ]
        more = [f"{len(names) - IN_A_TIE} more"] if len(names) > IN_A_TIE else []
        parts.append(group([*names[:IN_A_TIE], *more], partial=judgment.partial))
    parts += ["…"] if before + 1 < len(judgment.groups) else []
    return " > ".join(parts)


def _not_asked(judgments: Sequence[Judgment]) -> list[str]:
    return [NOT_ASKED] if any(one.partial for one in judgments) else []


def _without(result: Result, trail: Trail, ledger: Ledger) -> Section:
    """The questions about the item that brought no verdict."""
    rows = []
    for match in ledger.open[trail.row]:
        others = [plain(result.scores.ids[row], NAME) for row in match.items if row != trail.row]
        calls = []
        for call in ledger.calls.get(match.id, ()):
            person, said = who(result, call), remark(call)
            name = "" if person is None else f" by {plain(person, SHORT)}"
            calls.append(
                f"{call.outcome}{name}" + ("" if said is None else f" ({plain(said, NOTE)})")
            )
        rows.append((match.round, match.id, ", ".join(others), ", ".join(calls)))
    return Section(
        "Without a verdict",
        columns=[
            *numbers("round", "job"),
            Column("with", at_most=50, least=16),
            *words("calls", at_most=60),
        ],
        rows=rows,
        notes=["These questions about it failed, were invalid, or are still to come."],
    )


def _reasons(judgments: Sequence[Judgment], ledger: Ledger) -> Iterator[Section]:
    said = ledger.reasons
    facts = [
        (
            f"round {one.round}, job {one.job}" + ("" if one.judge is None else f", {one.judge}"),
            plain(said[one.job], TEXT),
        )
        for one in judgments
        if said.get(one.job)
    ]
    if facts:
        yield Section("The judge's reasons and notes", facts)


def _replies(result: Result, jobs: Sequence[int], ledger: Ledger) -> Iterator[Section]:
    """The raw replies, call by call; their lines stand apart from ours."""
    calls = [(job, call) for job in jobs for call in ledger.calls.get(job, ())]
    if jobs:
        none = [] if calls else ["–: the ledger has none: imported, or not asked yet."]
        yield Section("Replies", notes=none)
    for job, call in calls:
        reply = call.reply or "–"
        lines, left = [f"  {line}" for line in reply[:REPLY].split("\n")], len(reply) - REPLY
        if left > 0:
            lines.append(f"  … ({several(left, 'character')} more; --json has all)")
        yield Section(facts=[(f"job {job}", _call(result, call))], notes=lines, close=True)


def _call(result: Result, call: Call) -> str:
    if (person := who(result, call)) is not None:
        return f"{plain(person, NAME)}: {call.outcome}, {call.latency:.1f} s"
    usage = call.usage
    tokens = f"{count(usage.input + usage.cached)} + {count(usage.output)} tokens"
    cost = "cost unknown" if call.cost is None else money(call.cost)
    return f"attempt {call.attempt}: {call.outcome}, {tokens}, {cost}, {call.latency:.2f} s"


def _signed(value: float) -> str | None:
    return None if math.isnan(value) else f"{value:+.1f}"
