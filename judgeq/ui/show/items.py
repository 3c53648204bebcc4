"""Items of a run as sections: tables of ranks, scores, intervals and texts; and the evidence behind the
score of one item, or of two."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from judgeq.engine.results import Result
from judgeq.engine.scores import TEXT, Scores
from judgeq.escaping import plain
from judgeq.evaluation.items import Appearance, Explanation, View, who
from judgeq.person import remark
from judgeq.text import count, several
from judgeq.types import Call
from judgeq.ui.sections import Cell, Column, Field, Section, line, stated, table

NOTES = {
    "z": "z: how much less predictable an item's comparisons are than those of the others, as its "
    "standardised infit; 2 and more is unusual.",
    "gap": "gap: how far the judge ranks it above its place by gold, as a share of the items; below 0 "
    "gold ranks it higher.",
}
SIGNED = ("z", "gap")
TITLES = {
    "top": "The {n} highest of {of}, by score ({by})",
    "bottom": "The {n} lowest of {of}, by score ({by})",
    "groups": "The highest and the lowest of a group, by score ({by})",
    "around": "The items around {around}",
    "all": "All {of}, by score ({by})",
    "uncertain": "{n} of {of} with the least certain scores",
    "contested": "{n} of {of} whose judgments contradict one another most",
    "against gold": "{n} of {of} on which judge and gold labels disagree most",
}
LONG, REPLY = 400, 2000
"""Characters of a reason, and of a raw reply, that are shown."""
NAME = 24
SIGNS = {1.0: ">", 0.0: "<", 0.5: "=", None: "?"}
"""How an item was ranked to another."""


def views(result: Result, views: Sequence[View]) -> Iterator[Section]:
    """The tables of `judgeq show`."""
    scores = result.scores
    of = several(len(scores.ids), "item")
    title = f"{result.info.mark}{result.run.id}: {result.state}"
    yield Section(title, warnings=result.first_cautions)
    for view in views:
        n, around, within = count(len(view.rows)), view.around, of
        if scores.groups is not None and view.rows and view.name in ("top", "bottom", "all"):
            group = scores.groups[view.rows[0]]
            within = f"{several(scores.groups.count(group), 'item')} of {plain(group, NAME)}"
        title = TITLES[view.name].format(n=n, of=within, by=scores.main[0], around=around)
        if not view.rows:
            yield Section(title, notes=[f"–: {view.why or 'there is none'}."])
            continue
        notes = [NOTES[name] for name in view.measures if name in NOTES]
        further = _measures(view, scores)
        yield items(scores, view.rows, further, view.marked, title=title, notes=notes)
    above = result.first_cautions
    warnings = [*(one for one in result.cautions if one not in above)]
    if never := int((~scores.judged).sum()):
        warnings.append(f"{several(never, 'item')} not judged yet, and not ranked.")
    if result.partial:
        warnings.append("The run isn't finished: these scores are from the answers so far.")
    yield Section(warnings=warnings, close=True)


def _measures(view: View, scores: Scores) -> Iterator[Field]:
    """The columns that only this view has; and gold."""
    if view.name == "uncertain":
        yield Column("se", right=True), scores.se.__getitem__
    if not np.isnan(scores.gold).all():
        yield Column("gold", right=True, show="{:g}".format), scores.gold.__getitem__
    for name, values in view.measures.items():
        show = "{:+.2f}".format if name in SIGNED else None
        yield Column(name, right=True, show=show), values.__getitem__


def items(
    scores: Scores,
    rows: Sequence[int],
    further: Iterable[Field] = (),
    marked: int | None = None,
    **more: Any,
) -> Section:
    """A table of these items: ranks and scores with their 95 % intervals, other columns, and the texts,
    as far as they are available; an arrow at the row that is `marked`. `more` are other parts of the
    section."""
    sure, ranks, texts, groups = scores.intervals, scores.rank, scores.texts, scores.groups
    fields: list[Field] = [
        (Column(""), lambda row: "→" if row == marked else ""),
        (Column("rank", right=True), lambda row: int(ranks[row]) or None),
        (Column("item", at_most=20, least=10), scores.ids.__getitem__),
        (Column("score", right=True, show=score), scores.main[1].__getitem__),
        *further,
    ]
    if sure is not None:
        ranked, scored = Column("95 %", whole=True), Column("95 % interval", whole=True, spare=True)
        fields.insert(2, (ranked, lambda row: f"{sure.rank_low[row]}–{sure.rank_high[row]}"))
        interval = "{:z.2f} to {:z.2f}".format
        fields.insert(5, (scored, lambda row: interval(sure.low[row], sure.high[row])))
    if groups is not None:
        fields.insert(1, (Column("group", at_most=24, least=12), groups.__getitem__))
    if texts is not None:
        fields.append(
            (Column("text", at_most=40, least=16, grows=True), lambda row: plain(texts[row], TEXT))
        )
    return table(rows, fields, **more)


def score(value: float) -> str:
    """An Elo without decimals, any other score with two; "–" for none."""
    if math.isnan(value):
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:z.2f}"


# The evidence behind scores


def explain(found: Explanation) -> Iterator[Section]:
    """Why an item stands where it does; or which of two items stands higher."""
    result, ids = found.run, found.run.scores.ids
    row, *others = found.rows
    name = plain(ids[row], NAME)
    facts = (
        stated("two", versus=found, name=name, rating=result.scores.main[0])
        if others
        else _facts(found)
    )
    title = " and ".join(plain(ids[one], NAME) for one in found.rows) + f" in {result.run.id}"
    title = result.info.mark + title
    title += " (the run isn't finished)" if result.partial else ""
    yield replace(facts, title=title, warnings=result.cautions)
    if others:
        yield items(result.scores, found.rows)
    if found.judgments:
        yield _judgments(found)
    reasons = [
        (f"round {one.round}, {one.judge or result.judge}", plain(found.reasons[one.job], LONG))
        for one in found.judgments
        if one.job in found.reasons
    ]
    if reasons:
        yield Section("The judge's reasons and notes", reasons)
    if found.replies is not None:
        yield _replies(found.run, found.replies)


def _facts(found: Explanation) -> Section:
    """What the item is, where it stands, and how often it was judged."""
    scores, (row,), seen = found.run.scores, found.rows, found.judgments
    return stated(
        "item",
        scores=scores,
        row=row,
        ranked=int(((scores.rank > 0) & (scores.component == scores.component[row])).sum()),
        score=score,
        seen=seen,
        results=Counter(one.outcome or "no expectation" for one in seen).most_common(),
    )


def _judgments(found: Explanation) -> Section:
    """A row for each judgment and each text ranked next to the item; or for the other of two."""
    ids, texts = found.run.scores.ids, found.run.scores.texts
    own, *others = (ids[row] for row in found.rows)
    text_of = {} if texts is None else dict(zip(ids, texts, strict=True))
    columns = [
        *(Column("round", right=True), Column("judge", at_most=20), Column("position", spare=True)),
        *(Column("won"), Column("expected", right=True, spare=True), Column("result")),
        Column("the other" if others else "next to", at_most=NAME, least=16),
        Column("text", at_most=40, least=24, spare=True),
    ]
    rows: list[Sequence[Cell]] = []
    for one in found.judgments:
        k = len(one.presented)
        won = f"{one.wins:g} of {one.comparisons}" if k > 1 else ""
        cells: Sequence[Cell] = [
            *(one.round, one.judge),
            "–" if one.slot is None else f"{one.slot} of {k}",
            won if one.score is None else f"score {one.score:.3g}",
            "" if math.isnan(one.expected) else f"{one.expected:.1f}",
            one.outcome or "no expectation",
        ]
        near = [
            (
                f"{SIGNS[one.above(own, other)]} {plain(other, NAME)}",
                plain(text_of.get(other, ""), TEXT),
            )
            for other in others or _next_to(one, own)
        ]
        for at, pair in enumerate(near or [("", "")]):  # of an item judged alone none
            rows.append([*([""] * len(cells) if at else cells), *pair])
    notes = [
        "Result: did it win as often as its score lets expect?",
        "> it was ranked above this text, < below it, = tied, ? their order wasn't asked.",
    ]
    fields = ((column, itemgetter(at)) for at, column in enumerate(columns))
    return table(rows, fields, "Judgments", notes=notes)


def _next_to(one: Appearance, item: str) -> list[str]:
    """Items placed next above an item, with it and next below, two of each place at most."""
    at = next(at for at, group in enumerate(one.groups) if item in group)
    near = one.groups[max(at - 1, 0) : at + 2]
    return [other for group in near for other in [name for name in group if name != item][:2]]


def _replies(run: Result, replies: Mapping[int, Sequence[Call]]) -> Section:
    """The raw replies, call by call."""
    blocks = []
    for job, calls in replies.items():
        for call in calls:
            reply = call.reply or "–"
            more = " … (--json has all)" if len(reply) > REPLY else ""
            blocks.append((f"job {job}: {_call(run, call)}", reply[:REPLY] + more))
    none = "–: there are none, since the judgments were imported or are still to come."
    return Section("Replies", blocks=blocks, notes=[] if blocks else [none])


def _call(result: Result, call: Call) -> str:
    """Whose call it was, its outcome, and what it took; with a person's remark."""
    return line("call", person=who(result, call), remark=remark(call), call=call)
