"""Items of a run as sections: tables of ranks, scores, intervals and texts; and the evidence behind the
score of one item, or of two."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from judgeq.engine.results import Result
from judgeq.engine.scores import TEXT, Scores
from judgeq.escaping import excerpt, plain
from judgeq.evaluation.evaluate import apart
from judgeq.evaluation.explanation import Explanation, who
from judgeq.evaluation.items import View
from judgeq.evaluation.trail import Appearance, Trail, Versus
from judgeq.people import answers
from judgeq.text import count, money, several
from judgeq.types import Call
from judgeq.ui.sections import Cell, Column, Section, numbers, words

Further = tuple[Column, Sequence[Cell]]
"""A column, and its cell for each row of the table."""
NOTES = {
    "spread": "spread: the standard deviation of the scores that the item was given.",
    "z": "z: how much less predictable an item's comparisons are than those of the others, as its "
    "standardised infit; 2 and more is unusual.",
    "gap": "gap: how far the judge ranks it above its place by gold, as a share of the items; below 0 "
    "gold ranks it higher.",
}
SIGNED = ("z", "gap")
TITLES = {
    "top": "The {n} highest of {of}, by score ({by})",
    "bottom": "The {n} lowest of {of}, by score ({by})",
    "around": "The items around {around}",
    "all": "All {of}, by score ({by})",
    "uncertain": "{n} of {of} with the least certain scores",
    "contested": "{n} of {of} whose judgments contradict one another most",
    "against gold": "{n} of {of} on which judge and gold labels disagree most",
}
LONG, REPLY = 400, 2000
"""Characters of a text, and of a raw reply, that are shown."""
NAME, NOTE = 24, 60
SIGNS = {1.0: ">", 0.0: "<", 0.5: "=", None: "?"}
"""How an item was ranked to another."""


def views(result: Result, views: Sequence[View]) -> Iterator[Section]:
    """The tables of `judgeq show`."""
    scores = result.scores
    of = several(len(scores.ids), "item")
    yield Section(f"{result.run.id}: {result.state}")
    for view in views:
        n, around = count(len(view.rows)), view.around
        title = TITLES[view.name].format(n=n, of=of, by=scores.main[0], around=around)
        if not view.rows:
            yield Section(title, notes=[f"–: {view.why or 'there is none'}."])
            continue
        marks = ["→" if row == view.marked else "" for row in view.rows]
        first = [] if view.marked is None else [(Column("", whole=True), marks)]
        notes = [NOTES[name] for name in view.measures if name in NOTES]
        columns, rows = table(scores, view.rows, [*_measures(view, scores)], first)
        yield Section(title, columns=columns, rows=rows, notes=notes)
    warnings = [*result.cautions] if (note := apart(scores)) is None else [*result.cautions, note]
    if never := int((~scores.judged).sum()):
        warnings.append(f"{several(never, 'item')} not judged yet, and not ranked.")
    if result.partial:
        warnings.append("The run isn't finished: these scores are from the answers so far.")
    yield Section(warnings=warnings, close=True)


def _measures(view: View, scores: Scores) -> Iterator[Further]:
    """The columns that only this view has; and gold."""
    rows = list(view.rows)
    if view.name == "uncertain":
        yield numbers("se")[0], scores.se[rows].tolist()
    if not np.isnan(scores.gold).all():
        yield numbers("gold", show="{:g}".format)[0], scores.gold[rows].tolist()
    for name, values in view.measures.items():
        show = "{:+.2f}".format if name in SIGNED else None
        yield numbers(name, show=show)[0], values[rows].tolist()


def table(
    scores: Scores,
    rows: Sequence[int],
    further: Sequence[Further] = (),
    first: Sequence[Further] = (),
) -> tuple[list[Column], list[tuple[Cell, ...]]]:
    """The columns and rows of a table of these items: ranks and scores with their 95 % intervals, other
    columns, and the texts, as far as they are available."""
    sure, ranks, chosen = scores.intervals, scores.rank, list(rows)
    columns = [*first, (numbers("rank")[0], [int(ranks[row]) or None for row in chosen])]
    if sure is not None:
        reach = [f"{sure.rank_low[row]}–{sure.rank_high[row]}" for row in chosen]
        columns.append((Column("95 %", whole=True, spare=2), reach))
    columns.append((Column("item", at_most=20, least=10), [scores.ids[row] for row in chosen]))
    columns.append((numbers("score", show=score)[0], scores.main[1][chosen].tolist()))
    if sure is not None:
        reach = [f"{sure.low[row]:z.2f} to {sure.high[row]:z.2f}" for row in chosen]
        columns.append((Column("95 % interval", whole=True, spare=3), reach))
    columns += further
    if scores.texts is not None:
        excerpts = [plain(scores.texts[row], TEXT) for row in chosen]
        columns.append((Column("text", at_most=40, least=16, spare=1), excerpts))
    heads = [head for head, _ in columns]
    return heads, list(zip(*(cells for _, cells in columns), strict=True))


def score(value: float) -> str:
    """An Elo without decimals, any other score with two; "–" for none."""
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:z.2f}"


# The evidence behind scores


def explain(found: Explanation) -> Iterator[Section]:
    """Why an item stands where it does; or which of two items stands higher."""
    result, about, trail = found.run, found.about, found.trails[0]
    row, ids = trail.row, result.scores.ids
    state = " (the run isn't finished)" if result.partial else ""
    name = plain(ids[row], NAME)
    if isinstance(about, Versus):
        name += f" and {plain(ids[about.other], NAME)}"
        facts = [*_compared(result, about)]
    else:
        facts = [*_facts(result, row), *_judged(found, trail)]
    yield Section(f"{name} in {result.run.id}{state}", facts, warnings=result.cautions)
    if isinstance(about, Versus):
        columns, rows = table(result.scores, [about.one, about.other])
        yield Section(columns=columns, rows=rows)
    if trail.appearances:
        yield _judgments(result, trail, about.other if isinstance(about, Versus) else None)
    unanswered = () if isinstance(about, Versus) else found.unanswered[row]
    if unanswered:
        yield _unanswered(found, row)
    yield from _reasons(found, trail)
    if found.with_replies:
        jobs = [one.judgment.job for one in trail.appearances]
        yield from _replies(found, [*jobs, *(one.id for one in unanswered)])


def _facts(result: Result, row: int) -> Iterator[tuple[str, str]]:
    """What the item is, and where it stands."""
    scores, sure = result.scores, result.scores.intervals
    if scores.texts is not None:
        more = len(scores.texts[row]) - LONG
        rest = f" … ({several(more, 'more character')})" if more > 0 else ""
        yield "text", excerpt(scores.texts[row], LONG) + rest
    if not scores.rank[row]:
        yield "rank", "–: it was never judged"
    else:
        ranked = (scores.rank > 0) & (scores.component == scores.component[row])
        rank, rating = f"{count(int(scores.rank[row]))} of {count(int(ranked.sum()))}", ""
        if sure is not None:
            rank += f" (95 % interval {sure.rank_low[row]} to {sure.rank_high[row]})"
            rating = f" (95 % interval {sure.low[row]:z.2f} to {sure.high[row]:z.2f})"
        yield "rank", rank
        yield f"score ({scores.main[0]})", f"{score(scores.main[1][row])}{rating}"
    if not math.isnan(scores.gold[row]):
        yield "gold", f"{scores.gold[row]:g}"
    if scores.left_after[row]:
        yield "left", f"early, after round {scores.left_after[row]}"
    if scores.apart and scores.rank[row]:
        yield "group", f"{scores.component[row]}: never compared with items of other groups"


def _judged(found: Explanation, trail: Trail) -> Iterator[tuple[str, str]]:
    """How often it was judged, with what results; and how its Elo moved."""
    seen = trail.appearances
    if seen:
        results = Counter(_result(one) for one in seen)
        counts = ", ".join(f"{n} {result}" for result, n in results.most_common())
        yield "judged", f"{several(len(seen), 'time')}: {counts}"
    if seen and "elo" in found.run.scores.ratings:
        elo = found.by_round[:, 0].tolist()
        rounds = sorted({one.judgment.round for one in seen})
        yield "Elo by round", " → ".join(f"{elo[at]:.0f}" for at in (0, *rounds))


def _result(one: Appearance) -> str:
    return (one.outcome or "no expectation") if one.judgment.rated else "not in the score"


def _judgments(result: Result, trail: Trail, versus: int | None) -> Section:
    """A row for each judgment and each text ranked next to the item; or for the text of the row
    `versus`."""
    row, ids, texts = trail.row, result.scores.ids, result.scores.texts
    judges = [Column("judge", at_most=20, spare=1)] if len(result.judges) > 1 else []
    columns = [
        *(Column("round", right=True), *judges, Column("position", whole=True, spare=3)),
        *(Column("won", whole=True), Column("expected", right=True, spare=2)),
        Column("result", whole=True),
        Column("next to" if versus is None else "the other", at_most=NAME, least=16),
        *([] if texts is None else [Column("text", at_most=40, least=24, spare=1)]),
    ]
    rows: list[list[Cell]] = []
    for one in trail.appearances:
        judgment, k = one.judgment, len(one.judgment.presented)
        won = f"{one.wins:g} of {judgment.compared(row)}" if k > 1 else ""
        cells: list[Cell] = [
            *(judgment.round, *([judgment.judge] if judges else [])),
            "–" if one.slot is None else f"{one.slot} of {k}",
            won if judgment.score is None else f"score {judgment.score:.3g}",
            "" if math.isnan(one.expected) else f"{one.expected:.1f}",
            _result(one),
        ]
        for other in judgment.next_to(row) if versus is None else [versus]:
            near = f"{SIGNS[judgment.above(row, other)]} {plain(ids[other], NAME)}"
            rows.append([*cells, near, *([] if texts is None else [plain(texts[other], TEXT)])])
            cells = [""] * len(cells)
        if cells[0]:  # an item judged alone
            rows.append([*cells, *[""] * (len(columns) - len(cells))])
    notes = [
        "Result: did it win as often as its score lets expect?",
        "> it was ranked above this text, < below it, = tied, ? their order wasn't asked.",
    ]
    return Section("Judgments", columns=columns, rows=rows, notes=notes)


def _compared(result: Result, versus: Versus) -> Iterator[tuple[str, str]]:
    """Which of two is higher, by the scores and in the judgments of both."""
    p, direct, name = versus.probability, versus.direct, plain(result.scores.ids[versus.one], NAME)
    if p is None:
        yield "probability", f"–: {versus.why}"
    else:
        share = "over 99.9 %" if p > 0.999 else "under 0.1 %" if p < 0.001 else f"{100 * p:.1f} %"
        yield (
            "probability",
            f"{share} that {name} has more of the feature, by {result.scores.main[0]}",
        )
    if not direct.met:
        yield "directly", "never in one judgment"
        return
    places = {"above": direct.above, "below": direct.below, "tied": direct.tied}
    places["order not asked"] = direct.met - direct.compared
    met = ", ".join(f"{how} in {n}" for how, n in places.items() if n or how in ("above", "below"))
    yield "directly", f"in {several(direct.met, 'judgment')}: {name} {met}"


def _unanswered(found: Explanation, row: int) -> Section:
    """The questions about the item that have no verdict."""
    rows = []
    for match in found.unanswered[row]:
        others = [plain(found.run.scores.ids[one], NAME) for one in match.items if one != row]
        calls = [_call(found.run, call) for call in found.calls.get(match.id, ())]
        rows.append((match.round, ", ".join(others), "; ".join(calls)))
    columns = [Column("with", at_most=50, least=16), *words("calls", at_most=80)]
    title = "Questions without a verdict: failed, invalid, or not answered yet"
    return Section(title, columns=[*numbers("round"), *columns], rows=rows)


def _reasons(found: Explanation, trail: Trail) -> Iterator[Section]:
    reasons, judgments = found.reasons, [one.judgment for one in trail.appearances]
    facts = [
        (f"round {one.round}, {one.judge or found.run.judge}", plain(reasons[one.job], LONG))
        for one in judgments
        if one.job in reasons
    ]
    if facts:
        yield Section("The judge's reasons and notes", facts)


def _replies(found: Explanation, jobs: Sequence[int]) -> Iterator[Section]:
    """The raw replies, call by call; their lines are indented."""
    calls = [(job, call) for job in jobs for call in found.calls.get(job, ())]
    none = "–: there are none, since the judgments were imported or are still to come."
    if jobs:
        yield Section("Replies", notes=[] if calls else [none])
    for job, call in calls:
        lines, left = (call.reply or "–")[:REPLY].split("\n"), len(call.reply or "") - REPLY
        if left > 0:
            lines.append(f"… ({several(left, 'more character')}; --json has all)")
        reply = "\n".join(f"  {line}" for line in lines)
        yield Section(blocks=[(f"job {job}: {_call(found.run, call)}", reply)], close=True)


def _call(result: Result, call: Call) -> str:
    """Whose call it was, its outcome, and what it took; with a person's remark."""
    if (person := who(result, call)) is not None:
        note = "" if (remark := answers.remark(call)) is None else f" ({plain(remark, NOTE)})"
        return f"{plain(person, NAME)}: {call.outcome}{note}, {call.latency:.1f} s"
    tokens = f"{count(call.usage.input + call.usage.cached)} + {count(call.usage.output)} tokens"
    cost = "cost unknown" if call.cost is None else money(call.cost)
    return f"attempt {call.attempt}: {call.outcome}, {tokens}, {cost}, {call.latency:.2f} s"
