"""What a run would take, told before anything is sent: calls, tokens, dollars, and how long.

As far as the answers are known already (from the run's ledger, or from the cache) the rounds are
played through, so that what need not be asked is found exactly. From the first round with an unknown
answer on, nobody can tell who will meet whom: those rounds are taken to be as large as the strategy
makes them, and their questions as long as the others.

What a question takes is told by those that were answered: of this run, where a pilot may have asked
the first ones (pilot.py), and in the cache; else by rule of thumb, which spans a factor of twenty.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from judgeq.engine import assembly, extent, results
from judgeq.engine.assembly import Prices, Run
from judgeq.engine.pilot import Pilot
from judgeq.engine.queue import Stop
from judgeq.engine.runner import numbered, questions
from judgeq.engine.samples import NOTHING, Range, Sample, mean_of, plausible
from judgeq.judge.backend import Prepared, Request
from judgeq.judge.panel import Panel
from judgeq.judge.spending import MARGIN
from judgeq.store import Store, rows
from judgeq.strategies.repeats import Repeats
from judgeq.types import (
    Event,
    Match,
    Matches,
    Rows,
    Totals,
    Usage,
    Verdict,
    Verdicts,
)

AT_ONCE = 1000
ENOUGH = 20
"""So many answers tell better than a rule of thumb what one takes, where no pilot was asked for."""
MOST = 2_000
"""So many of them are looked at."""
BYTES_A_TOKEN = (4.8, 3.0)
"""Of English text with its JSON around it; other scripts take more tokens a byte, up to one each."""
REASONING = 2_000
"""Tokens that a call may take for reasoning, where no limit is set and nothing is known."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is left to be done of a run.

    `calls` will be asked, `hits` come from the cache, `rounds_open` rounds could not be looked into.
    `cost` is in dollars, None where the price is unknown. `basis` says where the tokens come from.
    `seconds` is None where no answer tells how long one takes; `latency` is what those seen took.
    """

    prepared: Run
    done: int
    calls: int
    hits: int
    rounds_open: int
    totals: Totals
    input: Range
    output: Range
    cost: Range | None
    basis: str
    seconds: Range | None = None
    latency: Range | None = None
    pilot: Pilot | None = None

    def __repr__(self) -> str:
        cost = (
            "price unknown"
            if self.cost is None
            else f"${self.cost.low:.2f} to ${self.cost.high:.2f}"
        )
        return f"<Estimate {self.prepared.folder.id}: {self.calls:,} calls, {cost}>"

    @property
    def price_source(self) -> str | None:
        """Where the prices come from; None where one is unknown."""
        known = [pricing for pricing in self.prepared.pricing.values() if pricing is not None]
        if not known or len(known) < len(self.prepared.pricing):
            return None
        return "; ".join(dict.fromkeys(pricing.source for pricing in known))

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        prepared, cost = self.prepared, self.cost
        return {
            "run": prepared.folder.id,
            "judge": " + ".join(prepared.settings.judges),
            "strategy": prepared.strategy.name,
            "items": len(prepared.dataset),
            "rounds": extent.most_rounds(prepared.strategy, prepared.settings),
            "jobs_done": self.done,
            "calls": self.calls,
            "from_cache": self.hits,
            "rounds_not_looked_into": self.rounds_open,
            "input_tokens": [round(self.input.low), round(self.input.high)],
            "output_tokens": [round(self.output.low), round(self.output.high)],
            "cost": None if cost is None else [cost.low, cost.high],
            "cost_expected": None if cost is None else cost.expected,
            "seconds": None if self.seconds is None else [self.seconds.low, self.seconds.high],
            "cost_so_far": None if self.totals.unpriced else self.totals.cost,
            "price": self.price_source,
            "basis": self.basis,
            "max_cost": prepared.settings.max_cost,
            "latency": self.latency and [self.latency.expected, self.latency.high],
            "pilot": self.pilot and self.pilot.as_json(),
        }


@dataclass(slots=True)
class _Looked:
    """What was seen of the questions: bytes of those to be asked, and what answered ones took, of
    which so many were in the cache."""

    done: int = 0
    hits: int = 0
    sizes: list[int] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    cached: int = 0

    @property
    def source(self) -> str:
        """Where the sample comes from."""
        judged = len(self.samples) - self.cached
        parts = [f"{_calls(judged)} of this run"] if judged else []
        parts += [f"{_calls(self.cached)} in the cache"] if self.cached else []
        return f"from {' and '.join(parts)}"

    @property
    def latencies(self) -> list[float]:
        """How long each question took that the cache didn't answer."""
        return [sample.latency for sample in self.samples if sample.latency]

    def add(self, sample: Sample) -> bool:
        """Take a question into the sample, if it tells and there is room."""
        if not sample.usage.output or len(self.samples) >= MOST:
            return False
        self.samples.append(sample)
        return True


async def estimate(prepared: Run, pilot: Pilot | None = None) -> Estimate:
    """Look at ledger and cache, send nothing, write nothing; `pilot` is what was asked before.

    Raises UsageError or RunError as `judgeq run` would.
    """
    looked, totals = _Looked(), Totals()
    store = None
    if prepared.folder.begun:
        store = prepared.folder.store(read_only=True)
    try:
        if store is not None:
            totals = await store.totals()
        async with assembly.panel(prepared, totals, Stop(), _ignore, look_only=True) as judge:
            if store is not None and prepared.settings.models:
                await _sample(judge, store, looked)
            open_rounds = await _look(prepared, judge, store, looked)
    finally:
        if store is not None:
            await store.close()
    return _estimated(prepared, looked, totals, open_rounds, pilot)


async def _sample(judge: Panel, store: Store, looked: _Looked) -> None:
    """Look at what the questions that were judged took."""
    for match, usage, cost, latency in await store.spent(MOST):
        size = len(_prepared(judge, match)[1].body)
        looked.add(Sample(match.judge, size, usage, cost, latency))


async def _look(prepared: Run, judge: Panel, store: Store | None, looked: _Looked) -> int:
    """Play the known part of the run through. How many rounds remain that nobody can look into."""
    n, strategy, settings = len(prepared.dataset), prepared.strategy, prepared.settings
    history = results.begin(n, strategy, settings)
    repeats, rounds = Repeats(), extent.most_rounds(strategy, settings)
    first = 0
    for round in history.to_come():
        counts = None
        if store is not None:
            counts = await results.fold_round(history, store, len(settings.panelists))
        if store is not None and counts is not None:
            looked.done += counts.total - counts.left
            first += counts.total
            left = await store.left(round)
            if left:
                await _ask_cache(judge, left, looked)
                return rounds - round
            continue
        matches = await numbered(questions(history, settings), repeats, store, round)
        verdicts = await _ask_cache(judge, _numbered(matches, round, first), looked)
        if len(verdicts) < len(matches):
            return rounds - round
        history.add(_verdicts(verdicts, matches, first, n), len(matches), first=first)
        first += len(matches)
    return 0


def _numbered(matches: Matches, round: int, first: int) -> list[Match]:
    return [
        Match(first + number, round, tuple(items.tolist()), judge, repeat)
        for number, (items, judge, repeat) in enumerate(
            zip(
                matches,
                _or_0(matches.judges, matches),
                _or_0(matches.repeats, matches),
                strict=True,
            )
        )
    ]


def _or_0(column: Rows | None, matches: Matches) -> list[int]:
    return [0] * len(matches) if column is None else column.tolist()


async def _ask_cache(judge: Panel, matches: Sequence[Match], looked: _Looked) -> list[Verdict]:
    """The verdicts that the cache knows; the others' sizes are noted."""
    verdicts = []
    for start in range(0, len(matches), AT_ONCE):
        part = matches[start : start + AT_ONCE]
        for verdict, sample in await asyncio.gather(*(_cached(judge, match) for match in part)):
            if verdict is None:
                looked.sizes.append(sample.size)
            else:
                looked.hits += 1
                looked.cached += looked.add(sample)
                verdicts.append(verdict)
    return verdicts


def _prepared(judge: Panel, match: Match) -> tuple[Request, Prepared]:
    """A question, and how it would be sent."""
    asked = judge.of(match)
    request = asked.questions.request(match)
    return request, asked.backend.prepare(request)


async def _cached(judge: Panel, match: Match) -> tuple[Verdict | None, Sample]:
    """What the cache knows of a question, and what it took."""
    request, prepared = _prepared(judge, match)
    known = await judge.of(match).recall(request, prepared)
    size = len(prepared.body)
    if known is None:
        return None, Sample(match.judge, size, Usage(), None, 0.0)
    reply, verdict = known
    return verdict, Sample(match.judge, size, reply.usage, reply.cost, 0.0)


def _verdicts(verdicts: Sequence[Verdict], matches: Matches, first: int, n: int) -> Verdicts:
    """A whole round's verdicts, as the ledger would give them."""
    presented = matches.items.astype("<i4", copy=False).tobytes()
    bounds = (matches.offsets * 4).tolist()
    stored = [
        (*rows.verdict(first + m, verdict), presented[bounds[m] : bounds[m + 1]], judge, 1)
        for m, (verdict, judge) in enumerate(
            zip(verdicts, _or_0(matches.judges, matches), strict=True)
        )
    ]
    return rows.verdicts(stored, n)


def _estimated(
    prepared: Run, looked: _Looked, totals: Totals, open_rounds: int, pilot: Pilot | None
) -> Estimate:
    settings, strategy = prepared.settings, prepared.strategy
    whole = strategy.calls(len(prepared.dataset))
    whole *= 2 if settings.both_orders else 1
    whole *= len(settings.panelists) if settings.ensemble == "each" else 1
    calls = len(looked.sizes)
    if open_rounds:
        calls = max(calls, whole - looked.done - looked.hits)
    if not settings.models:
        basis = "the simulated judge costs nothing"
        return Estimate(
            prepared, looked.done, calls, 0, open_rounds, totals, NOTHING, NOTHING, NOTHING, basis
        )
    seconds = latency = None
    if len(looked.samples) >= (ENOUGH if pilot is None else 1):
        input_, output, cost = _from_samples(prepared, looked, calls)
        seconds = _seconds(prepared, looked, calls, open_rounds, pilot, input_, output)
        if latencies := looked.latencies:
            latency = Range(min(latencies), max(latencies), mean_of(latencies))
        basis = looked.source
    else:
        input_, output, basis = _by_rule_of_thumb(prepared, mean_of(looked.sizes))
        cost = _priced(prepared.pricing, input_, output)
    return Estimate(
        prepared,
        looked.done,
        calls,
        looked.hits,
        open_rounds,
        totals,
        input_.times(calls),
        output.times(calls),
        None if cost is None else cost.times(calls),
        basis,
        seconds,
        latency,
        pilot,
    )


def _from_samples(prepared: Run, looked: _Looked, calls: int) -> tuple[Range, Range, Range | None]:
    """Tokens in and out and dollars of one question, as those in the sample suggest."""
    samples, settings = looked.samples, prepared.settings
    size = mean_of(looked.sizes) or mean_of([sample.size for sample in samples])
    scaled = [sample.of_size(size) for sample in samples]
    input_ = plausible([sample.usage.input + sample.usage.cached for sample in scaled], calls, 0.03)
    output = plausible([sample.usage.output for sample in scaled], calls, 0.1)
    costs = []
    for sample in scaled:
        model = settings.judge[sample.judge // max(1, len(settings.persona))]
        pricing = prepared.pricing.get(model)
        costs.append(sample.cost if pricing is None else pricing.cost(sample.usage))
    known = [cost for cost in costs if cost is not None]
    cost = plausible(known, calls, 0.05) if len(known) == len(costs) else None
    return input_, output, cost


def _seconds(
    prepared: Run,
    looked: _Looked,
    calls: int,
    open_rounds: int,
    pilot: Pilot | None,
    input_: Range,
    output: Range,
) -> Range | None:
    """How long the calls may take: from all in flight that may be, to as many as the pilot had."""
    latencies = looked.latencies
    if not latencies or not calls:
        return None if calls else NOTHING
    settings, rounds = prepared.settings, max(1, open_rounds)
    models = len(prepared.pricing)
    at_once = proven = settings.concurrency * models
    rpm, tpm = (limit and limit * models for limit in (settings.rpm, settings.tpm))
    if pilot is not None:
        proven = min(proven, pilot.questions)
        rpm, tpm = pilot.requests_a_minute, pilot.tokens_a_minute
    latency = plausible(latencies, calls, 0.1)

    def lasting(in_flight: int, latency: float, tokens: float, last: float) -> float:
        paced = max(60 / rpm if rpm else 0, 60 * tokens / tpm if tpm else 0) * calls / MARGIN
        in_turn = latency * max(1, calls / rounds / in_flight)
        return max(paced, rounds * (in_turn + last))

    return Range(
        lasting(at_once, latency.low, input_.low + output.low, 0),
        lasting(proven, latency.high, input_.high + output.high, max(latencies)),
    )


def _by_rule_of_thumb(prepared: Run, size: float) -> tuple[Range, Range, str]:
    """Tokens in and out of one call of `size` bytes, and where that comes from."""
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


def _priced(pricing: Prices, input_: Range, output: Range) -> Range | None:
    """What a call costs, each judge getting about as many as any other; None where a price is
    unknown."""
    known = [each for each in pricing.values() if each is not None]
    if len(known) < len(pricing):
        return None

    def mean(tokens_in: float, tokens_out: float) -> float:
        usage = Usage(math.ceil(tokens_in), 0, math.ceil(tokens_out))
        return mean_of([each.cost(usage) for each in known])

    return Range(mean(input_.low, output.low), mean(input_.high, output.high))


def _ignore(event: Event) -> None:
    """No face."""


def _calls(n: int) -> str:
    return "1 call" if n == 1 else f"{n:,} calls"
