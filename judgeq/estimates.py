"""What a run would take, told before anything is sent: calls, tokens, dollars.

As far as the answers are known already (from the run's ledger, or from the cache) the rounds are
played through, so that what need not be asked is found exactly. From the first round with an unknown
answer on, nobody can tell who will meet whom: those rounds are taken to be as large as the strategy
makes them, and their questions as long as the others.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from judgeq import asking, prompts, results
from judgeq.errors import UnusableReplyError
from judgeq.judge.backend import Request
from judgeq.judge.panel import Panel
from judgeq.queue import Stop
from judgeq.runner import asked
from judgeq.sitting import Prepared
from judgeq.store import rows
from judgeq.store.sqlite import SqliteStore
from judgeq.types import (
    Event,
    Match,
    Matches,
    Totals,
    Usage,
    Verdict,
    Verdicts,
)

AT_ONCE = 1000
ENOUGH = 20
"""So many earlier calls tell better than a rule of thumb what one takes."""
BYTES_A_TOKEN = (4.8, 3.0)
"""Of English text with its JSON around it; other scripts take more tokens a byte, up to one each."""
REASONING = 2_000
"""Tokens that a call may take for reasoning, where no limit is set and nothing is known."""


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is left to be done of a run.

    `calls` will be asked, `hits` come from the cache, `rounds_open` rounds could not be looked into.
    `cost` is in dollars, None where the price is unknown. `basis` says where the tokens come from.
    """

    prepared: Prepared
    done: int
    calls: int
    hits: int
    rounds_open: int
    totals: Totals
    input: Range
    output: Range
    cost: Range | None
    basis: str

    @property
    def price_source(self) -> str | None:
        """Where the prices come from; None where one is unknown."""
        found = [None if each is None else each.source for each in self.prepared.pricing.values()]
        return None if None in found or not found else "; ".join(dict.fromkeys(map(str, found)))

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        prepared, cost = self.prepared, self.cost
        return {
            "run": prepared.folder.id,
            "judge": " + ".join(prepared.settings.judges),
            "strategy": prepared.strategy.name,
            "items": len(prepared.dataset),
            "rounds": prepared.strategy.rounds,
            "jobs_done": self.done,
            "calls": self.calls,
            "from_cache": self.hits,
            "rounds_not_looked_into": self.rounds_open,
            "input_tokens": [round(self.input.low), round(self.input.high)],
            "output_tokens": [round(self.output.low), round(self.output.high)],
            "cost": None if cost is None else [cost.low, cost.high],
            "cost_so_far": self.totals.cost,
            "price": self.price_source,
            "basis": self.basis,
            "max_cost": prepared.settings.max_cost,
        }


@dataclass(slots=True)
class _Looked:
    """What was seen of the questions: bytes of those to be asked, and what cached ones took."""

    done: int = 0
    hits: int = 0
    sizes: list[int] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)


async def estimate(prepared: Prepared) -> Estimate:
    """Look at ledger and cache, send nothing, write nothing.

    Raises UsageError or RunError as `judgeq run` would.
    """
    looked, totals = _Looked(), Totals()
    store = None
    if prepared.folder.database.exists():
        store = SqliteStore(prepared.folder.database, read_only=True)
    try:
        if store is not None:
            totals = await store.totals()
        async with asking.panel(
            prepared.settings,
            prepared.dataset,
            prepared.prompt,
            prepared.pricing,
            totals,
            Stop(),
            _ignore,
        ) as judge:
            open_rounds = await _look(prepared, judge, store, looked)
    finally:
        if store is not None:
            await store.close()
    return _told(prepared, looked, totals, open_rounds)


async def _look(
    prepared: Prepared, judge: Panel, store: SqliteStore | None, looked: _Looked
) -> int:
    """Play the known part of the run through. How many rounds remain that nobody can look into."""
    n, strategy, settings = len(prepared.dataset), prepared.strategy, prepared.settings
    judged = results.Judged.begin(n, strategy, settings)
    first = 0
    for round in range(1, strategy.rounds + 1):
        if judged.over:
            break
        counts = None if store is None else await store.round_state(round)
        if store is not None and counts is not None:
            judged.add(await store.verdicts(round), counts.total)
            looked.done += counts.total - counts.left
            first += counts.total
            left = await store.left(round)
            if left:
                await _ask_cache(judge, left, looked)
                return strategy.rounds - round
            continue
        matches = asked(judged.standings, strategy, settings, round)
        found = await _ask_cache(judge, _numbered(matches, round, first), looked)
        if len(found) < len(matches):
            return strategy.rounds - round
        judged.add(_verdicts(found, matches, first, n), len(matches))
        first += len(matches)
    return 0


def _numbered(matches: Matches, round: int, first: int) -> list[Match]:
    return [
        Match(first + number, round, tuple(items.tolist()), judge)
        for number, (items, judge) in enumerate(zip(matches, _judges(matches), strict=True))
    ]


def _judges(matches: Matches) -> list[int]:
    return [0] * len(matches) if matches.judges is None else matches.judges.tolist()


async def _ask_cache(judge: Panel, matches: Sequence[Match], looked: _Looked) -> list[Verdict]:
    """The verdicts that the cache knows; the others' sizes are noted."""
    found = []
    for start in range(0, len(matches), AT_ONCE):
        some = matches[start : start + AT_ONCE]
        for verdict, size, usage in await asyncio.gather(*(_cached(judge, m) for m in some)):
            if verdict is None:
                looked.sizes.append(size)
            else:
                looked.hits += 1
                looked.usages.append(usage)
                found.append(verdict)
    return found


async def _cached(judge: Panel, match: Match) -> tuple[Verdict | None, int, Usage]:
    """What the cache knows of a question, its size in bytes, and what it took."""
    asked = judge.of(match)
    request = Request(match, 0, 1, lambda: asked.messages(match, None))
    prepared = asked.backend.prepare(request)
    size = len(prepared.body)
    if asked.cache is None or prepared.key is None:
        return None, size, Usage()
    cached = await asked.cache.get(prepared.key)
    if cached is None:
        return None, size, Usage()
    ties = asked.prompt is not None and asked.prompt.ties
    try:
        return prompts.parse(cached.text, match, ties), size, cached.usage
    except UnusableReplyError:
        return None, size, Usage()


def _verdicts(found: Sequence[Verdict], matches: Matches, first: int, n: int) -> Verdicts:
    """A whole round's verdicts, as the ledger would give them."""
    presented = matches.items.astype("<i4", copy=False).tobytes()
    bounds = (matches.offsets * 4).tolist()
    stored = [
        (*rows.verdict(first + m, verdict), presented[bounds[m] : bounds[m + 1]], judge)
        for m, (verdict, judge) in enumerate(zip(found, _judges(matches), strict=True))
    ]
    return rows.verdicts(stored, n)


def _told(prepared: Prepared, looked: _Looked, totals: Totals, open_rounds: int) -> Estimate:
    settings, strategy = prepared.settings, prepared.strategy
    whole = strategy.calls(len(prepared.dataset))
    whole *= 2 if settings.both_orders else 1
    whole *= len(settings.members) if settings.ensemble == "each" else 1
    calls = len(looked.sizes)
    if open_rounds:
        calls = max(calls, whole - looked.done - looked.hits)
    if not settings.models:
        nothing = Range(0, 0)
        basis = "the simulated judge costs nothing"
        cost: Range | None = nothing
        return Estimate(
            prepared, looked.done, calls, 0, open_rounds, totals, nothing, nothing, cost, basis
        )
    size = sum(looked.sizes) / len(looked.sizes) if looked.sizes else 0.0
    input_, output, basis = _a_call(prepared, looked, totals, size)
    # Each judge gets about as many of the calls as any other.
    known = [pricing for pricing in prepared.pricing.values() if pricing is not None]
    cost = None
    if len(known) == len(prepared.pricing):
        cost = Range(
            *(
                calls
                * sum(
                    each.cost(Usage(math.ceil(tokens_in), 0, math.ceil(tokens_out)))
                    for each in known
                )
                / len(known)
                for tokens_in, tokens_out in ((input_.low, output.low), (input_.high, output.high))
            )
        )
    return Estimate(
        prepared,
        looked.done,
        calls,
        looked.hits,
        open_rounds,
        totals,
        Range(calls * input_.low, calls * input_.high),
        Range(calls * output.low, calls * output.high),
        cost,
        basis,
    )


def _a_call(
    prepared: Prepared, looked: _Looked, totals: Totals, size: float
) -> tuple[Range, Range, str]:
    """Tokens in and out of one call of `size` bytes, and where that comes from."""
    usage, known = totals.usage, totals.calls - totals.unpriced
    source = f"from {known:,} calls of this run"
    if known < ENOUGH and len(looked.usages) >= ENOUGH:
        known = len(looked.usages)
        usage = Usage(*map(sum, zip(*looked.usages, strict=True)))
        source = f"from {known:,} calls in the cache"
    if known >= ENOUGH and usage.output:
        input_, output = (usage.input + usage.cached) / known, usage.output / known
        return Range(0.9 * input_, 1.1 * input_), Range(0.8 * output, 1.25 * output), source
    k = prepared.strategy.cost(len(prepared.dataset)) * 2
    # Between a label with its marks as one token, and as four.
    labels = k / max(1, prepared.strategy.calls(len(prepared.dataset)))
    answer, shortest = 8 + 4 * labels, 3 + labels
    longest = prepared.settings.output_limit or answer + REASONING
    source = (
        f"by rule of thumb: {BYTES_A_TOKEN[0]:g} to {BYTES_A_TOKEN[1]:g} bytes a token; an answer "
        f"without reasoning, or with it {longest:,.0f} tokens; no retries"
    )
    input_range = Range(size / BYTES_A_TOKEN[0], size / BYTES_A_TOKEN[1])
    return input_range, Range(min(shortest, longest), longest), source


def _ignore(event: Event) -> None:
    """No face."""
