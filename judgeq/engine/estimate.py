"""What a run would take, before anything is sent: calls, tokens, dollars, and how long.

Calls × tokens × price. The run's ledger says what is answered, and the cache what it would answer of the
round that comes next; which items meet in later rounds nobody knows, so that these are taken to be as
large as the strategy makes them, and their questions as long as others of theirs.

What a question takes is known from those that this run has answered, where a pilot may have asked the
first ones. Otherwise it is a rule of thumb, which spans a factor of twenty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from judgeq import seeds
from judgeq.engine import assembly, rounds, runner
from judgeq.engine.assembly import Run
from judgeq.engine.interrupts import awaited
from judgeq.engine.pilot import Pilot
from judgeq.engine.queue import Stop
from judgeq.judge.limiter import MARGIN
from judgeq.judge.panel import Panel
from judgeq.judge.prices import REASON, answer_tokens
from judgeq.rating import UNKNOWN
from judgeq.rating.order import expected_rho
from judgeq.store import Store
from judgeq.strategies.matchmaking import Repeats
from judgeq.text import LEFT_OUT, money, several
from judgeq.types import Counts, Match, Totals, Usage

MOST = 2_000
"""Answered questions of a run that are looked at."""
LOOKED_UP = 1_000
"""Of more questions about so many are looked up in the cache, and all only if it has one of these."""
SIMILAR = 1_000
"""Questions by whose length that of others is estimated."""
ENOUGH = 20
"""Answers that tell better than a rule of thumb what one takes, where no pilot was asked for."""
BYTES_A_TOKEN = (4.8, 3.0)
"""Of English text with its JSON around it; other scripts take more tokens a byte, up to one each."""
REASONING = 2_000
"""Tokens that a call may take for reasoning, where no limit is set and nothing is known."""
FAR = math.log(4)
"""The log of the factor by which a mean is said to be off at most."""


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, and what is `expected` where answers tell."""

    low: float
    high: float
    expected: float | None = None

    def __mul__(self, n: float) -> Range:
        expected = None if self.expected is None else self.expected * n
        return Range(self.low * n, self.high * n, expected)


NOTHING = Range(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is left to be done of a run."""

    prepared: Run = field(metadata=LEFT_OUT)
    done: int  # jobs that have an outcome
    calls: int  # questions to be asked
    rounds_open: int  # rounds that could not be looked into
    answers: int  # those that people are still to give
    totals: Totals = field(metadata=LEFT_OUT)
    basis: str  # where the tokens come from
    hits: int = 0  # questions that the cache answers
    input: Range = NOTHING  # tokens
    output: Range = NOTHING
    cost: Range | None = NOTHING  # dollars; None where the price is unknown
    seconds: Range | None = None  # None where no answer tells how long one takes
    pilot: Pilot | None = None
    JSON_KEYS: ClassVar = {
        "run": "prepared.folder.id",
        "judge": "judge",
        "asked_at": "prepared.settings.addresses",
        "strategy": "prepared.strategy.name",
        "items": "items",
        "rounds": "prepared.rounds",
        "max_cost": "prepared.settings.max_cost",
        "jobs_done": "done",
        "from_cache": "hits",
        "rounds_not_looked_into": "rounds_open",
        "input_tokens": "input",
        "output_tokens": "output",
        "cost_so_far": "totals.known_cost",
        "price": "price_source",
        "batch_waits": "waits",
        "reliability": "reliability",
    }

    def __repr__(self) -> str:
        cost = "price unknown"
        if self.cost:
            cost = f"{money(self.cost.low, 2)} to {money(self.cost.high, 2)}"
        return f"<Estimate {self.prepared.folder.id}: {self.calls:,} calls, {cost}>"

    @property
    def judge(self) -> str:
        """The judges."""
        return " + ".join(self.prepared.settings.judges)

    @property
    def items(self) -> int:
        """How many items the run has that aren't settled."""
        return len(self.prepared.dataset) - self.prepared.strategy.first_new

    @property
    def waits(self) -> int | None:
        """How many times batches are waited for, a round each, at most; None where none are sent."""
        if not self.prepared.settings.batch or not self.prepared.settings.models:
            return None
        return self.rounds_open + 1 if self.calls else 0

    @property
    def price_source(self) -> str | None:
        """Where the prices come from; None where one is unknown."""
        prices = self.prepared.pricing.values()
        known = dict.fromkeys(pricing.source for pricing in prices if pricing)
        return None if None in prices else "; ".join(known) or None

    @property
    def reliability(self) -> Range | None:
        """What ρ̂ is expected to be after all rounds, of a judge of whom nothing is known: where what it
        says of the texts has an sd of UNKNOWN, and of half and twice that. None where texts are
        judged alone, or may leave."""
        strategy, n, sizes = self.prepared.strategy, self.items, self.prepared.dataset.sizes
        items, each = 2 * strategy.cost(*sizes), rounds.judgments_per_match(self.prepared.settings)
        k = items / max(1, strategy.calls(*sizes))
        if strategy.prunes or strategy.mixed or k <= 1:
            return None
        return Range(*(expected_rho(UNKNOWN * by, items * each / n, k) for by in (0.5, 2, 1)))


def forecast(prepared: Run, *, retry_failed: bool = False) -> Estimate | None:
    """What is left to pay for of a run with models, before its first call; None where nothing is, or
    another process is at work on it. Raises as `judgeq run`."""
    folder = prepared.folder
    if not prepared.settings.models or (folder.exists and folder.is_running()):
        return None
    left = awaited(lambda: estimate(prepared, retry_failed=retry_failed))
    if not left.calls:
        return None
    assembly.check_access(prepared.settings)
    return left


async def estimate(
    prepared: Run, pilot: Pilot | None = None, *, retry_failed: bool = False
) -> Estimate:
    """Look at ledger and cache, send nothing, write nothing; `pilot` is what was asked before. Jobs that
    failed are left to do where they are to be asked again.

    Raises UsageError or RunError as `judgeq run` would.
    """
    settings, store, totals = prepared.settings, None, Totals()
    async with AsyncExitStack() as stack:
        if prepared.folder.exists:
            store = await stack.enter_async_context(rounds.reading(prepared.folder))
            totals = await store.totals()
        opening = assembly.panel(prepared, totals, Stop(), lambda event: None, look_only=True)
        judge = await stack.enter_async_context(opening)
        left = await _left(prepared, store, retry_failed)
        known = Estimate(
            prepared=prepared,
            done=left.done,
            calls=len(left.next) + left.later,
            rounds_open=left.rounds_open,
            answers=left.answers,
            totals=totals,
            basis="nothing is left to ask a model: it costs nothing",
            pilot=pilot,
        )
        if not settings.models:
            return known
        asked = _to_ask(prepared, judge, left)
        samples = [] if store is None else await _answered(prepared, judge, store)
    known = replace(known, calls=asked.calls, hits=asked.hits)
    if not asked.calls:
        return known
    if len(samples) < (ENOUGH if pilot is None else 1):
        return _by_rule(known, asked)
    return _by_samples(known, asked, samples)


# What is left to ask


class _Left(NamedTuple):
    done: int  # jobs that have an outcome
    next: Sequence[Match]  # questions of the rounds that are planned, or of the first one
    later: int  # questions in other rounds
    rounds_open: int
    answers: int  # those that people are still to give


async def _left(run: Run, store: Store | None, retry_failed: bool) -> _Left:
    settings, strategy = run.settings, run.strategy
    by_round = enumerate(strategy.asked_by_round(*run.dataset.sizes), start=1)
    asked = (rounds.judgments_per_match(settings, round) * calls for round, (calls, _) in by_round)
    most, of_people = sum(asked), 0.0
    if settings.people is not None:
        of_people = settings.each / (settings.each - 1 + len(settings.panelists))
    planned, over, answers, left = list[Counts](), False, round(most * of_people), list[Match]()
    if store is not None:
        planned, over = await rounds.planned(store)
        for number in range(1, len(planned) + 1):
            left += await store.left(number)
        # Which ones batches have makes no difference: they are of one kind.
        left = left[sum(one.left for one in await store.batches() if one.open) :]
        planned = planned[strategy.before :]  # those before are of settled items
        over = over or run.folder.info().ended_after(len(planned), settings.goal)
        answers -= sum(call.outcome == "ok" for _, call in await store.people_calls())
    if not planned and not over:
        first = rounds.questions(runner.begin(run), settings)
        left = rounds.single(replace(first, repeats=Repeats().add(first)))
    total = sum(planned, Counts())
    rounds_open = 0 if over else max(0, run.rounds - max(1, len(planned)))
    later = max(0, most - (total.total or len(left))) if rounds_open else 0
    if settings.models:
        later = round(later * (1 - of_people))
    later += total.failed + total.invalid if retry_failed else 0
    return _Left(total.total - total.left, left, later, rounds_open, max(0, answers))


# What a question takes


class _Answered(NamedTuple):
    """The bytes of a question that was answered, its texts, and what it took."""

    size: int
    items: int
    usage: Usage
    cost: float | None
    latency: float  # 0 where the cache answered


class _ToAsk(NamedTuple):
    """Questions that are left to be sent, the bytes and the texts of all of them; those that the cache
    answers, which are not sent."""

    calls: int
    size: float
    items: float
    hits: int


async def _answered(run: Run, judge: Panel, store: Store) -> list[_Answered]:
    """What questions of this run took, at today's price."""
    found = []
    for match, usage, cost, latency in await store.spent(MOST):
        if usage.output and judge.is_sent(match):
            pricing = run.pricing.get(run.settings.panelists[match.judge].judge)
            cost = cost if pricing is None else pricing.cost(usage)
            size = _size(judge, match)
            found.append(_Answered(size, len(match.items), usage, cost, latency))
    return found


def _size(judge: Panel, match: Match) -> int:
    """The bytes of a question."""
    asked = judge.of(match)
    return len(asked.backend.prepare(asked.questions.request(match)).body)


def _cached(judge: Panel, match: Match) -> bool:
    """Whether the cache answers a question."""
    asked = judge.of(match)
    request = asked.questions.request(match)
    return asked.recall(request, asked.backend.prepare(request)) is not None


def _to_ask(run: Run, judge: Panel, left: _Left) -> _ToAsk:
    """What is left to be sent."""
    to_send = list(filter(judge.is_sent, left.next))
    looked_up = to_send[:: len(to_send) // LOOKED_UP or 1]
    unknown = [match for match in looked_up if not _cached(judge, match)]
    if len(unknown) < len(looked_up) < len(to_send):
        looked_up, unknown = to_send, [match for match in to_send if not _cached(judge, match)]
    hits = len(looked_up) - len(unknown)
    parts = [(len(to_send) - hits, unknown)]
    if left.later:
        history = runner.begin(run)
        questions = run.strategy.later(history, seeds.rng(history.seed, "estimate"))
        first = judge.judges.index(judge.asked[0])
        similar = [match._replace(judge=first) for match in rounds.single(questions)[:SIMILAR]]
        parts.append((left.later, similar))
    return _ToAsk(
        sum(n for n, _ in parts),
        sum(n * _mean([_size(judge, match) for match in like]) for n, like in parts),
        sum(n * _mean([len(match.items) for match in like]) for n, like in parts),
        hits,
    )


def _by_samples(known: Estimate, asked: _ToAsk, samples: Sequence[_Answered]) -> Estimate:
    """As answered questions suggest: input and cost by their bytes, output by their texts."""
    n = asked.calls
    read = [(one.usage.input + one.usage.cached) / one.size for one in samples]
    written = [one.usage.output / (3 + one.items) for one in samples]
    costs = [one.cost / one.size for one in samples if one.cost is not None]
    latencies = [one.latency for one in samples if one.latency]
    known = replace(
        known,
        input=plausible(read, n, 0.03) * asked.size,
        output=plausible(written, n, 0.1) * (3 * n + asked.items),
        cost=plausible(costs, n, 0.05) * asked.size if len(costs) == len(samples) else None,
        basis=f"from {several(len(samples), 'answered call')}",
    )
    if known.prepared.settings.batch or not n or not latencies:
        return known
    return replace(known, seconds=_seconds(known, latencies))


def _by_rule(known: Estimate, asked: _ToAsk) -> Estimate:
    """By rule of thumb; each judge gets about as many questions as any other."""
    settings, n = known.prepared.settings, max(1, asked.calls)
    size, items, pricing = asked.size / n, asked.items / n, known.prepared.pricing
    prices = [one for one in pricing.values() if one is not None]
    least = REASON[0] if settings.reasons else 0
    longest = settings.output_limit or answer_tokens(items, settings.reasons) + REASONING
    read = Range(*(size / bytes_a_token for bytes_a_token in BYTES_A_TOKEN))
    written = Range(min(3 + items + least, longest), longest)
    low, high = (
        _mean([price.cost(Usage(math.ceil(into), 0, math.ceil(out))) for price in prices])
        for into, out in ((read.low, written.low), (read.high, written.high))
    )
    return replace(
        known,
        input=read * asked.calls,
        output=written * asked.calls,
        cost=Range(low, high) * asked.calls if len(prices) == len(pricing) else None,
        basis=f"rough: assumes answers of up to {longest:,.0f} tokens with reasoning, and no retries; "
        "--pilot 20 measures instead",
    )


def _seconds(known: Estimate, latencies: Sequence[float]) -> Range:
    """How long the calls may take, from all in flight that may be, to as many as the pilot had."""
    settings, models, pilot = known.prepared.settings, len(known.prepared.pricing), known.pilot
    most = settings.concurrency * models
    least = most if pilot is None else min(most, pilot.questions)
    latency, left = plausible(latencies, known.calls, 0.1), max(1, known.rounds_open)

    def lasting(at_once: int, latency: float, tokens: float) -> float:
        limits = ((known.calls, settings.rpm), (tokens, settings.tpm))
        paced = [60 / MARGIN * n / limit / models for n, limit in limits if limit]
        return max(*paced, 0, left * latency * max(1, known.calls / left / at_once))

    low = lasting(most, latency.low, known.input.low + known.output.low)
    high = lasting(least, latency.high, known.input.high + known.output.high)
    return Range(low, high + left * max(latencies))


def plausible(values: Sequence[float], to_come: int, least: float) -> Range:
    """What the mean of so many values to come may be: within a 95 % prediction interval, and at least
    the share `least` to either side, for later rounds ask about more similar texts.

    The interval is by factors, since a few questions may take many times what most do, and seldom are
    among the first. As if one value more had been seen, a whole mean off: a few that happen to be
    similar, or one alone, don't tell how far others may lie.
    """
    n, mean = len(values), _mean(values)
    if not mean:
        return NOTHING
    off = sum((value / mean - 1) ** 2 for value in values) + 1
    t = 1.96 + 2.4 / n + 6 / n**2  # Student's for 95 %, or a little more
    margin = t * math.sqrt(off / n * (1 / n + 1 / max(1, to_come)))
    factor = math.exp(min(margin, FAR))
    return Range(mean * min(1 / factor, 1 - least), mean * max(factor, 1 + least), mean)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
