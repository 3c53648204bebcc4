"""The served pages, made of what the desk knows. Everything in them is escaped by the templates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from importlib.metadata import version
from typing import Any
from urllib.parse import urlencode

from judgeq.engine.status import State, Unreadable
from judgeq.runs import RunPlace
from judgeq.ui import html, item_sections, run_sections, trail_sections
from judgeq.ui.sections import Section, numbers, words
from judgeq.ui.text import count, duration, several
from judgeq.ui.web.desk import Item, Opened, key_of
from judgeq.untrusted import multiline, plain

PAGE = 50
"""So many items stand on a page."""
LONGEST, SHORT, REASON = 200, 80, 1_000
"""Characters of a name in a title or a link, of one in a table, of why a run can't be read."""
TEXT = 100_000
"""Characters of a text that are shown."""


def address_of(run: RunPlace, *more: object) -> str:
    """Where a run is served, and what is beneath it."""
    return "/".join(["/runs", key_of(run), *map(str, more)])


def _page(template: str, title: str, above: Sequence[tuple[str, str]] = (), **values: Any) -> str:
    """A page with its `title` and links to the pages above it."""
    links = [] if template == "runs.html" else [("All runs", "/"), *above]
    name = plain(title, LONGEST)
    return html.rendered(template, title=name, above=links, version=version("judgeq"), **values)


def overview(states: Sequence[State | Unreadable], where: str, now: datetime) -> str:
    """All runs, a line each."""
    readable = [state for state in states if isinstance(state, State)]
    others = [state for state in states if isinstance(state, Unreadable)]
    listed = Section(
        columns=[
            *words("run", "dataset", "strategy", "judge"),
            *words("state", whole=True),
            *numbers("items"),
            *words("jobs done", whole=True),
            *numbers("calls"),
            *words("cost"),
            *words("begun", whole=True),
        ],
        rows=[
            (
                plain(state.run.id, LONGEST),
                *(
                    plain(name, SHORT)
                    for name in (state.info.dataset, state.info.strategy, state.info.judge)
                ),
                *(state.word, state.info.items),
                f"{count(state.counts.done)} of {count(state.counts.total)}",
                state.totals.calls,
                run_sections.cost(state.totals),
                f"{duration((now - state.info.created).total_seconds())} ago",
            )
            for state in readable
        ],
    )
    unreadable = Section(
        columns=words("run", "why"),
        rows=[(plain(state.run.id, LONGEST), plain(state.reason, REASON)) for state in others],
    )
    parts = [html.linked(listed, "run", [address_of(state.run) for state in readable])]
    return _page(
        "runs.html",
        "All runs",
        where=where,
        runs=parts if readable else [],
        unreadable=html.sections([unreadable] if others else []),
    )


def run(state: State, key: str) -> str:
    """A run: how far it is, while it goes on as it goes; `key` opens what tells that."""
    place = state.run
    return _page(
        "run.html",
        place.id,
        [(place.id, address_of(place))],
        sections=html.sections(run_sections.status(state)),
        running=state.running,
        judged=state.counts.done > 0,
        home=address_of(place),
        key=key,
    )


def items(opened: Opened, rows: Sequence[int], sought: str, number: int) -> str:
    """A page of a run's items (from 1), those that were sought, in the order of the ranking."""
    result, place = opened.run, opened.run.run
    pages = max(1, -(-len(rows) // PAGE))
    number = min(number, pages)
    shown = rows[(number - 1) * PAGE : number * PAGE]
    section = Section("", *item_sections.table(result.scores, shown))
    home = address_of(place, "items")

    def turned(to: int) -> str | None:
        if not 1 <= to <= pages or to == number:
            return None
        return f"{home}?{urlencode({'q': sought, 'page': to} if sought else {'page': to})}"

    first = (number - 1) * PAGE + 1
    said = f"{count(first)} to {count(first + len(shown) - 1)} of {several(len(rows), 'item')}"
    return _page(
        "items.html",
        f"Items of {place.id}",
        [(place.id, address_of(place))],
        home=home,
        sought=sought,
        said=said if shown else "No item matches.",
        partial=result.partial,
        texts=result.scores.texts is not None,
        table=html.linked(section, "item", [f"{home}/{row}" for row in shown]) if shown else "",
        earlier=turned(number - 1),
        later=turned(number + 1),
    )


def item(shown: Item, *, replies: bool) -> str:
    """The evidence behind an item's score."""
    result, one, ledger = shown.opened.run, shown.trail, shown.ledger
    place, scores = result.run, result.scores
    home = address_of(place, "items")
    text = None if scores.texts is None else scores.texts[one.row]
    without = replace(result, scores=replace(scores, texts=None))  # the text stands above
    sections = [*trail_sections.explain(without, one, ledger)]
    if replies:
        jobs = [seen.judgment.job for seen in one.appearances]
        jobs += [match.id for match in ledger.open[one.row]]
        sections.append(trail_sections.whole_replies(result, jobs, ledger))

    def link(row: int | None) -> tuple[str, str] | None:
        return None if row is None else (_name(scores.ids[row]), f"{home}/{row}")

    return _page(
        "item.html",
        _name(scores.ids[one.row]),
        [(place.id, address_of(place)), ("Items", home)],
        home=f"{home}/{one.row}",
        above_it=link(shown.above),
        below_it=link(shown.below),
        text=None if text is None else multiline(text[:TEXT]),
        cut=text is not None and len(text) > TEXT,
        sections=html.sections(sections),
        met=_met(shown, home),
        replies=replies,
    )


def _met(shown: Item, home: str) -> str:
    """The items that it met, each with a link."""
    opponents, ids = shown.trail.opponents, shown.opened.run.scores.ids
    if not opponents:
        return ""
    section = Section(
        "The items that it met",
        columns=[*words("item", at_most=LONGEST), *numbers("met", "it was above", "below", "tied")],
        rows=[(ids[one.row], one.met, one.above, one.below, one.tied) for one in opponents],
    )
    return html.linked(section, "item", [f"{home}/{one.row}" for one in opponents])


def _name(item: str) -> str:
    return plain(item, LONGEST) or "(no id)"


def refused(title: str, why: str, *, token: bool = False) -> str:
    """A page that says why there is no other; with `token` one that asks again, with the link's."""
    return _page("error.html", title, why=why, token=token)
