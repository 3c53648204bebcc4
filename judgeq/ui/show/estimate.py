"""What a run would take, as a section: calls, dollars, tokens and time."""

from __future__ import annotations

from collections.abc import Callable

from judgeq.engine.estimate import Estimate
from judgeq.engine.pilot import Range
from judgeq.text import count, duration, money, several
from judgeq.ui.sections import Section
from judgeq.ui.show.run import cost as cost_of
from judgeq.ui.show.run import filled, in_words

FEW_WAITS = 3
"""So many rounds of batches are no reason to think of another strategy."""


def estimate(estimate: Estimate) -> Section:
    """What a run would take."""
    prepared, pilot, seconds = estimate.prepared, estimate.pilot, estimate.seconds
    settings, strategy = prepared.settings, prepared.strategy
    people = settings.people is not None
    asked = bool(settings.models) or not people
    calls = asked and estimate.calls
    by = several(settings.each, "person", "people")
    tokens = f"{_tokens(estimate.input)} in, {_tokens(estimate.output)} out ({estimate.basis})"
    facts = filled(
        ("dataset", f"{prepared.dataset.name}, {several(len(prepared.dataset), 'text')}"),
        ("judge", " + ".join(settings.judges)),
        ("asked at", ", ".join(settings.servers)),
        ("strategy", f"{strategy.name}, {several(strategy.rounds, 'round')}"),
        ("answers", people and f"{_most(estimate)}{count(estimate.answers)}, {by} a question"),
        ("calls", asked and _calls(estimate)),
        ("cost", asked and _cost(estimate)),
        ("tokens", calls and tokens),
        ("batches", estimate.waits and _waits(estimate.waits)),
        ("time", calls and seconds and _between(seconds, duration)),
        ("so far", asked and estimate.totals.calls and _so_far(estimate)),
        ("pilot", pilot and f"{several(pilot.questions, 'question')} asked"),
        ("answered", pilot and in_words(pilot.counts)),
        ("paid", pilot and cost_of(pilot.totals)),
    )
    name = prepared.folder.id
    if pilot is None:
        return Section(f"Estimate for {name}; nothing was sent", facts)
    note = "The pilot's answers are saved: `judgeq run` with the same flags uses them."
    return Section(f"Estimate for {name}, after a pilot", facts, notes=[note])


def _most(estimate: Estimate) -> str:
    """Whether the run may end earlier."""
    early = estimate.prepared.strategy.prunes or estimate.prepared.settings.goal
    return "at most " if estimate.rounds_open and early else ""


def _calls(estimate: Estimate) -> str:
    """How many calls are still to be made."""
    last = estimate.prepared.strategy.rounds
    rounds = [str(round) for round in range(last - estimate.rounds_open + 1, last + 1)]
    text = f"{_most(estimate)}{several(estimate.calls, 'call')}"
    if rounds and estimate.calls:
        which = f"rounds {rounds[0]} to {rounds[-1]} depend"
        if len(rounds) < 3:
            which = (
                f"rounds {' and '.join(rounds)} depend" if rounds[1:] else f"round {last} depends"
            )
        text += f" ({which} on earlier answers)"
    done = f", {count(estimate.done)} already answered" if estimate.done else ""
    hits = f", {count(estimate.hits)} in the cache" if estimate.hits else ""
    return f"{text}{done}{hits}"


def _cost(estimate: Estimate) -> str:
    """What they would cost, by which prices, and the cap."""
    settings, source = estimate.prepared.settings, estimate.price_source
    if not settings.models:
        return "$0"
    if estimate.cost is None:
        return "unknown: give --price IN,OUT ($ per million tokens)"
    span = _between(estimate.cost, lambda amount: money(amount, 2))
    cap = "" if settings.max_cost is None else f"; capped at {money(settings.max_cost)}"
    return f"{span}, {source or 'as the server reports'}{cap}"


def _so_far(estimate: Estimate) -> str:
    return f"{several(estimate.totals.calls, 'call')}, {cost_of(estimate.totals)}"


def _waits(waits: int) -> str:
    """How long batches may take, and what that means for the choice of a strategy."""
    text = f"up to {several(waits, 'wait')} of 24 hours, one for each round"
    few = "; three rounds of lists (listwise10x3) suit batches better"
    return text + (few if waits > FEW_WAITS else "")


def _tokens(tokens: Range) -> str:
    """To three digits: an estimate isn't more precise."""
    return _between(tokens, lambda n: count(round(whole := round(n), min(0, 3 - len(str(whole))))))


def _between(span: Range, shown: Callable[[float], str]) -> str:
    """A range in words, with what is expected if that is known."""
    low, high = shown(span.low), shown(span.high)
    if low == high:
        return low
    if span.expected is None:
        return f"{low} to {high}"
    return f"about {shown(span.expected)} ({low} to {high})"
