"""What a run would take, before anything is sent: calls, tokens, dollars, and how long.

Calls × tokens × price. What was answered is counted by the run's ledger. What is planned, or else the
first round, is looked up in the cache; nobody can tell which items meet in later rounds, which are taken
to be as large as the strategy makes them, and their questions as long as others of theirs.

What a question takes is known from those that were answered: of this run, where a pilot may have asked
the first ones (pilot.py), and in the cache. Otherwise it is a rule of thumb, which spans a factor of
twenty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

from judgeq import seeds
from judgeq.engine import assembly, predecessor, rounds
from judgeq.engine.assembly import Run
from judgeq.engine.pilot import NOTHING, Pilot, Range, mean_of, plausible
from judgeq.engine.predecessor import Predecessor
from judgeq.engine.queue import Stop
from judgeq.engine.stopping import awaited
from judgeq.json_marks import LEFT_OUT
from judgeq.judge.backend import Prepared, Request
from judgeq.judge.budget import REASON, answer_tokens
from judgeq.judge.limiter import MARGIN
from judgeq.judge.panel import Panel
from judgeq.store import Store
from judgeq.store.protocol import Spent
from judgeq.strategies.repeats import Repeats
from judgeq.text import money
from judgeq.types import Counts, Match, Matches, Totals, Usage

MOST = 2_000
"""Answered questions of a run that are looked at."""
SIMILAR = 1000
"""Questions by whose length that of others is estimated."""
ENOUGH = 20
"""Answers that tell better than a rule of thumb what one takes, where no pilot was asked for."""
BYTES_A_TOKEN = (4.8, 3.0)
"""Of English text with its JSON around it; other scripts take more tokens a byte, up to one each."""
REASONING = 2_000
"""Tokens that a call may take for reasoning, where no limit is set and nothing is known."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is left to be done of a run."""

    prepared: Run = field(metadata=LEFT_OUT)
    done: int  # jobs that have an outcome
    calls: int  # questions to be asked
    hits: int  # questions that the cache answers
    rounds_open: int  # rounds that could not be looked into
    totals: Totals = field(metadata=LEFT_OUT)
    input: Range
    output: Range
    cost: Range | None  # dollars; None where the price is unknown
    basis: str  # where the tokens come from
    seconds: Range | None = None  # None where no answer tells how long one takes
    latency: Range | None = None  # what those seen took
    pilot: Pilot | None = None
    answers: int = 0  # those that people are still to give
    earlier: Predecessor | None = None  # of a run that is to begin
    JSON_KEYS: ClassVar = {
        "run": "prepared.folder.id",
        "judge": "judge",
        "asked_at": "prepared.settings.addresses",
        "strategy": "prepared.strategy.name",
        "items": "items",
        "rounds": "prepared.strategy.rounds",
        "max_cost": "prepared.settings.max_cost",
        "jobs_done": "done",
        "from_cache": "hits",
        "rounds_not_looked_into": "rounds_open",
        "input_tokens": "input",
        "output_tokens": "output",
        "cost_so_far": "totals.known_cost",
        "price": "price_source",
        "batch_waits": "waits",
    }

    def __repr__(self) -> str:
        cost = "price unknown"
        if self.cost:
            cost = f"{money(self.cost.low, 2)} to {money(self.cost.high, 2)}"
        return f"<Estimate {self.prepared.folder.id}: {self.calls:,} calls, {cost}>"

    @property
    def waits(self) -> int | None:
        """How many times batches are waited for, a round each, at most; None where none are sent."""
        if not self.prepared.settings.batch or not self.prepared.settings.models:
            return None
        return self.rounds_open + 1 if self.calls else 0

    @property
    def price_source(self) -> str | None:
        """Where the prices come from; None where one is unknown."""
        known = [pricing.source for pricing in self.prepared.pricing.values() if pricing]
        if not known or len(known) < len(self.prepared.pricing):
            return None
        return "; ".join(dict.fromkeys(known))

    @property
    def judge(self) -> str:
        """The judges."""
        return " + ".join(self.prepared.settings.judges)

    @property
    def items(self) -> int:
        """How many items the run has."""
        return len(self.prepared.dataset)


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
    store = prepared.folder.store(read_only=True) if prepared.folder.exists else None
    try:
        totals = Totals() if store is None else await store.totals()
        panel = assembly.panel(prepared, totals, Stop(), lambda event: None, look_only=True)
        async with panel as judge:
            return await _estimate(prepared, judge, store, totals, pilot, retry_failed)
    finally:
        if store is not None:
            await store.close()


async def _estimate(
    prepared: Run,
    judge: Panel,
    store: Store | None,
    totals: Totals,
    pilot: Pilot | None,
    retry_failed: bool,
) -> Estimate:
    settings, strategy, n = prepared.settings, prepared.strategy, len(prepared.dataset)
    planned, over, answered = list[Counts](), False, 0
    if store is not None:
        planned, over = await rounds.planned(store)
        over = over or prepared.folder.info().ended_after(len(planned), settings.goal)
        judges = (await store.verdicts()).judges
        if judges is not None:
            answered = int((judges >= len(settings.panelists)).sum())
    if store is not None and (planned or over):
        left = [match for round in range(len(planned)) for match in await store.left(round + 1)]
        # Which ones batches have makes no difference: they are of one kind.
        left = left[sum(one.left for one in await store.batches() if one.open) :]
    else:
        first = rounds.questions(rounds.begin(n, strategy, settings), settings)
        left = _matches(replace(first, repeats=Repeats().add(first)))
    most = rounds.judgments_per_match(settings) * strategy.calls(n)
    for_people, later = rounds.share_of_people(settings), 0
    rounds_open = 0 if over else max(0, strategy.rounds - max(1, len(planned)))
    if rounds_open:
        left_out = most - (sum(counts.total for counts in planned) or len(left))
        later = max(0, round(left_out * (1 - for_people if settings.models else 1)))
    if retry_failed:
        later += sum(counts.failed + counts.invalid for counts in planned)
    asked = _Questions(len(left) + later)
    basis = "the simulated judge costs nothing"
    if settings.people is not None:
        basis = "people answer, and nothing is sent"
    needs = _Needs(NOTHING, NOTHING, NOTHING, basis)
    if settings.models:
        asked = await _look(prepared, judge, store, left, later)
        enough = len(asked.samples) >= (ENOUGH if pilot is None else 1)
        needs = (_by_samples if enough else _by_rule)(prepared, asked)
    latencies = [spent.latency for _, spent in asked.samples if spent.latency]
    earlier = None
    if prepared.earlier is not None:
        new = await predecessor.new_texts(prepared.dataset, prepared.earlier)
        looked_at = asked.calls + asked.hits - later
        earlier = Predecessor(prepared.earlier.id, new, looked_at, asked.hits)
    known = bool(latencies) and needs.input.expected is not None
    return Estimate(
        prepared,
        sum(counts.total - counts.left for counts in planned),
        asked.calls,
        asked.hits,
        rounds_open,
        totals,
        *needs,
        _seconds(prepared, asked.calls, latencies, rounds_open, pilot, needs) if known else None,
        Range(min(latencies), max(latencies), mean_of(latencies)) if known else None,
        pilot,
        max(0, round(most * for_people) - answered),
        earlier,
    )


# The questions


@dataclass(slots=True)
class _Questions:
    """The questions to be asked of models, and what similar ones took."""

    calls: int = 0  # to be asked
    size: float = 0.0  # bytes of all of them
    items: float = 0.0  # texts in all of them
    hits: int = 0  # other ones, which the cache answers
    samples: list[tuple[int, Spent]] = field(default_factory=list)  # bytes of one, and what it took
    of_run: int = 0  # samples that this run asked; the cache has the others


def _matches(matches: Matches) -> list[Match]:
    """A round's questions one by one."""
    judges, repeats = (
        [0] * len(matches) if column is None else column.tolist()
        for column in (matches.judges, matches.repeats)
    )
    each = enumerate(zip(matches, judges, repeats, strict=True))
    return [Match(m, 1, tuple(of.tolist()), judge, repeat) for m, (of, judge, repeat) in each]


async def _look(
    prepared: Run, judge: Panel, store: Store | None, left: Sequence[Match], later: int
) -> _Questions:
    """The questions `left`, as far as the cache doesn't answer them, and so many in `later` rounds; with
    those that were answered. People are sent nothing."""
    asked = _Questions()
    for spent in [] if store is None else await store.spent(MOST):
        if judge.is_sent(spent.match) and spent.usage.output:
            asked.samples.append((len(_sent(judge, spent.match)[1].body), spent))
    asked.of_run = len(asked.samples)
    for match in filter(judge.is_sent, left):
        request, sent = _sent(judge, match)
        known = judge.of(match).recall(request, sent)
        if known is None:
            asked.calls += 1
            asked.size += len(sent.body)
            asked.items += len(match.items)
            continue
        asked.hits += 1
        reply, _ = known
        if reply.usage.output:
            taken = Spent(match, reply.usage, reply.cost, 0.0)
            asked.samples.append((len(sent.body), taken))
    if later:
        history = rounds.begin(len(prepared.dataset), prepared.strategy, prepared.settings)
        questions = prepared.strategy.later(history, seeds.rng(history.seed, "estimate"))
        first = judge.judges.index(judge.asked[0])
        some = [match._replace(judge=first) for match in _matches(questions)[:SIMILAR]]
        asked.calls += later
        asked.size += later * mean_of([len(_sent(judge, match)[1].body) for match in some])
        asked.items += later * mean_of([len(match.items) for match in some])
    return asked


def _sent(judge: Panel, match: Match) -> tuple[Request, Prepared]:
    """A question, and how it would be sent."""
    asked = judge.of(match)
    request = asked.questions.request(match)
    return request, asked.backend.prepare(request)


# What they need


class _Needs(NamedTuple):
    """Tokens in and out, dollars (None: unknown), and where that comes from."""

    input: Range
    output: Range
    cost: Range | None
    basis: str


def _by_samples(prepared: Run, asked: _Questions) -> _Needs:
    """What the questions need as those in the sample suggest: input and cost by their bytes, output by
    their labels."""
    costs, settings = list[float | None](), prepared.settings
    for size, spent in asked.samples:
        pricing = prepared.pricing.get(settings.panelists[spent.match.judge].judge)
        cost = spent.cost if pricing is None else pricing.cost(spent.usage)
        costs.append(None if cost is None else cost / max(1, size))
    known = [cost for cost in costs if cost is not None]
    read = [(took.usage.input + took.usage.cached) / max(1, size) for size, took in asked.samples]
    written = [took.usage.output / (3 + len(took.match.items)) for _, took in asked.samples]
    counts = (asked.of_run, "of this run"), (len(costs) - asked.of_run, "in the cache")
    parts = [f"{n:,} call{'' if n == 1 else 's'} {where}" for n, where in counts if n]
    reasons = ", reasons included" if settings.reasons else ""
    return _Needs(
        plausible(read, asked.calls, 0.03) * asked.size,
        plausible(written, asked.calls, 0.1) * (3 * asked.calls + asked.items),
        plausible(known, asked.calls, 0.05) * asked.size if len(known) == len(costs) else None,
        f"from {' and '.join(parts)}{reasons}",
    )


def _by_rule(prepared: Run, asked: _Questions) -> _Needs:
    """What the questions need by rule of thumb; each judge gets about as many as any other."""
    calls, reason = max(1, asked.calls), REASON if prepared.settings.reasons else (0, 0)
    size, items = asked.size / calls, asked.items / calls
    answer = answer_tokens(items, prepared.settings.reasons)
    shortest = 3 + items + reason[0]
    longest = prepared.settings.output_limit or answer + REASONING
    more = f", {reason[0]} to {reason[1]} of them for a reason" if reason[1] else ""
    source = (
        f"rough: assumes {BYTES_A_TOKEN[1]:g} to {BYTES_A_TOKEN[0]:g} bytes a token, answers of up to "
        f"{longest:,.0f} tokens with reasoning{more}, no retries; --pilot 20 measures instead"
    )
    input_ = Range(*(size / bytes_a_token for bytes_a_token in BYTES_A_TOKEN)) * asked.calls
    output = Range(min(shortest, longest), longest) * asked.calls

    def cost(read: float, written: float) -> float:
        usage = Usage(math.ceil(read / calls), 0, math.ceil(written / calls))
        return asked.calls * mean_of([pricing.cost(usage) for pricing in known])

    known = [pricing for pricing in prepared.pricing.values() if pricing is not None]
    if len(known) < len(prepared.pricing):
        return _Needs(input_, output, None, source)
    costs = Range(cost(input_.low, output.low), cost(input_.high, output.high))
    return _Needs(input_, output, costs, source)


def _seconds(
    prepared: Run,
    calls: int,
    latencies: Sequence[float],
    rounds_open: int,
    pilot: Pilot | None,
    needs: _Needs,
) -> Range | None:
    """How long the calls may take, from all in flight that may be, to as many as the pilot had. None
    where that isn't up to us."""
    settings, models = prepared.settings, len(prepared.pricing)
    if settings.batch or not calls:
        return None
    at_once = proven = settings.concurrency * models
    rpm, tpm = (limit and limit * models for limit in (settings.rpm, settings.tpm))
    if pilot is not None:
        proven = min(proven, pilot.questions)
        rpm, tpm = pilot.requests_a_minute, pilot.tokens_a_minute
    latency, rounds_left = plausible(latencies, calls, 0.1), max(1, rounds_open)

    def lasting(in_flight: int, latency: float, tokens: float, last: float) -> float:
        paced = max(
            60 * n / limit / MARGIN if limit else 0 for n, limit in ((calls, rpm), (tokens, tpm))
        )
        return max(paced, rounds_left * (latency * max(1, calls / rounds_left / in_flight) + last))

    low = lasting(at_once, latency.low, needs.input.low + needs.output.low, 0)
    return Range(
        low, lasting(proven, latency.high, needs.input.high + needs.output.high, max(latencies))
    )
