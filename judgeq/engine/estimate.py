"""What a run would take, told before anything is sent: calls, tokens, dollars, and how long.

Calls × tokens × price. What was answered is counted by the run's ledger. What is planned, or else the
first round, is looked up in the cache; nobody can tell who will meet whom in later rounds, which are
taken to be as large as the strategy makes them, and their questions as long as others of theirs.

What a question takes is told by those that were answered: of this run, where a pilot may have asked
the first ones (pilot.py), and in the cache; else by rule of thumb, which spans a factor of twenty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field
from operator import mul
from typing import Any, ClassVar, NamedTuple, TypeAlias

from judgeq import seeds
from judgeq.engine import assembly, questions, results
from judgeq.engine.assembly import Run
from judgeq.engine.pilot import NOTHING, Pilot, Range, mean_of, plausible
from judgeq.engine.queue import Stop
from judgeq.json_marks import LEFT_OUT
from judgeq.judge.backend import Prepared, Request
from judgeq.judge.budget import REASON
from judgeq.judge.limiter import MARGIN
from judgeq.judge.panel import Panel
from judgeq.store import Store
from judgeq.store.protocol import Spent
from judgeq.strategies import Strategy
from judgeq.strategies.repeats import Repeats
from judgeq.types import Match, Matches, Totals, Usage

MOST = 2_000
"""So many answered questions of a run are looked at."""
LIKE = 1000
"""So many questions tell how long others are."""
ENOUGH = 20
"""So many answers tell better than a rule of thumb what one takes, where no pilot was asked for."""
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
    `answers` are those that people are still to give.
    """

    prepared: Run = field(metadata=LEFT_OUT)
    done: int
    calls: int
    hits: int
    rounds_open: int
    totals: Totals = field(metadata=LEFT_OUT)
    input: Range
    output: Range
    cost: Range | None
    basis: str
    seconds: Range | None = None
    latency: Range | None = None
    pilot: Pilot | None = None
    answers: int = 0
    JSON_KEYS: ClassVar = {
        "run": "prepared.folder.id",
        "judge": "judge",
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
        cost = (
            "price unknown"
            if self.cost is None
            else f"${self.cost.low:.2f} to ${self.cost.high:.2f}"
        )
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
        """How many there are."""
        return len(self.prepared.dataset)


_Sized: TypeAlias = tuple[int, Spent]
"""The bytes of a question, and what it took."""


@dataclass(slots=True)
class _Kind:
    """Questions of one kind, named where a run has two, each about so many `items`: the `sizes`, in
    bytes, of those to be asked, as many as are `later` in rounds that can't be looked into, and what
    those took that were `judged`, or answered by the cache, by as many `hits`."""

    name: str
    items: float
    later: int = 0
    hits: int = 0
    sizes: list[int] = field(default_factory=list)
    judged: list[_Sized] = field(default_factory=list)
    cached: list[_Sized] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """How many are to be asked."""
        return len(self.sizes) + self.later

    @property
    def source(self) -> str:
        """Where the sample comes from."""
        parts = ((len(self.judged), "of this run"), (len(self.cached), "in the cache"))
        told = [f"{n:,} call{'' if n == 1 else 's'} {where}" for n, where in parts if n]
        return f"from {' and '.join(told)}"


async def estimate(prepared: Run, pilot: Pilot | None = None) -> Estimate:
    """Look at ledger and cache, send nothing, write nothing; `pilot` is what was asked before.

    Raises UsageError or RunError as `judgeq run` would.
    """
    store = prepared.folder.store(read_only=True) if prepared.folder.exists else None
    try:
        totals = Totals() if store is None else await store.totals()
        panel = assembly.panel(prepared, totals, Stop(), lambda event: None, look_only=True)
        async with panel as judge:
            return await _estimate(prepared, judge, store, totals, pilot)
    finally:
        if store is not None:
            await store.close()


async def _estimate(
    prepared: Run, judge: Panel, store: Store | None, totals: Totals, pilot: Pilot | None
) -> Estimate:
    settings, strategy, n = prepared.settings, prepared.strategy, len(prepared.dataset)
    planned, over = ([], False) if store is None else await questions.planned(store)
    if store is not None and (planned or over):
        left = [match for round in range(len(planned)) for match in await store.left(round + 1)]
    else:
        history = results.begin(n, strategy, settings)
        matches = questions.of_round(history, settings)
        left = _matches(await questions.numbered(matches, Repeats(), None, 1))
    most = questions.most_calls(strategy, settings, n)
    answers = round(most * questions.share_of_people(settings))
    if answers and store is not None:
        judges = (await store.verdicts()).judges
        answers -= 0 if judges is None else int((judges >= len(settings.panelists)).sum())
    rounds_open = 0 if over else max(0, strategy.rounds - max(1, len(planned)))
    kinds = _kinds(strategy, n)
    if rounds_open:
        to_come = most - (sum(counts.total for counts in planned) or len(left))
        kinds[-1].later = max(0, round(to_come * questions.share_sent(settings)))
    if settings.models:
        await _look(judge, store, left, kinds)
        taken = _taken(prepared, judge, kinds, ENOUGH if pilot is None else 1)
    else:
        kinds[0].sizes = [0] * len(left)
        basis = "the simulated judge costs nothing"
        if settings.people is not None:
            basis = "people answer, and nothing is sent"
        taken = _Taken(NOTHING, NOTHING, NOTHING, basis)
    seconds, latency = _time(prepared, kinds, rounds_open, pilot, taken)
    return Estimate(
        prepared,
        sum(counts.total - counts.left for counts in planned),
        sum(kind.calls for kind in kinds),
        sum(kind.hits for kind in kinds),
        rounds_open,
        totals,
        *taken,
        seconds,
        latency,
        pilot,
        max(0, answers),
    )


def _kinds(strategy: Strategy, n: int) -> list[_Kind]:
    """What a strategy asks about n items: one kind of questions, or one of the first round, about items
    alone, and one of the others."""
    calls, items = strategy.calls(n), 2 * strategy.cost(n)
    if strategy.mixed:
        return [_Kind("texts alone", 1), _Kind("lists", (items - n) / max(1, calls - n))]
    return [_Kind("", items / max(1, calls))]


def _matches(matches: Matches) -> list[Match]:
    """A round's questions one by one."""
    judges, repeats = (
        [0] * len(matches) if column is None else column.tolist()
        for column in (matches.judges, matches.repeats)
    )
    each = enumerate(zip(matches, judges, repeats, strict=True))
    return [Match(m, 1, tuple(of.tolist()), judge, repeat) for m, (of, judge, repeat) in each]


async def _look(
    judge: Panel, store: Store | None, left: Sequence[Match], kinds: Sequence[_Kind]
) -> None:
    """Look at what the questions took that were judged, and which of those `left` the cache knows;
    people are sent nothing."""
    for spent in [] if store is None else await store.spent(MOST):
        if judge.is_sent(spent.match) and spent.usage.output:
            size = len(_prepared(judge, spent.match)[1].body)
            kinds[-1 if spent.match.round > 1 else 0].judged.append((size, spent))
    for match in filter(judge.is_sent, left):
        kind = kinds[-1 if match.round > 1 else 0]
        request, prepared = _prepared(judge, match)
        size, known = len(prepared.body), judge.of(match).recall(request, prepared)
        if known is None:
            kind.sizes.append(size)
            continue
        kind.hits += 1
        reply, _ = known
        if reply.usage.output:
            kind.cached.append((size, Spent(match, reply.usage, reply.cost, 0.0)))


def _prepared(judge: Panel, match: Match) -> tuple[Request, Prepared]:
    """A question, and how it would be sent."""
    asked = judge.of(match)
    request = asked.questions.request(match)
    return request, asked.backend.prepare(request)


def _like(prepared: Run, judge: Panel, *, later: bool) -> list[int]:
    """Bytes of questions like those of the first round, or of `later` ones."""
    strategy, sent = prepared.strategy, judge.judges.index(judge.asked[0])
    history = results.begin(len(prepared.dataset), strategy, prepared.settings)
    ask = strategy.later if later else strategy.next_round
    matches = _matches(ask(history, seeds.rng(history.seed, "estimate")))[:LIKE]
    return [len(_prepared(judge, match._replace(judge=sent))[1].body) for match in matches]


class _Taken(NamedTuple):
    """What questions take: tokens in and out, dollars (None: unknown), and where that comes from."""

    input: Range
    output: Range
    cost: Range | None
    basis: str


def _taken(prepared: Run, judge: Panel, kinds: Sequence[_Kind], least: int) -> _Taken:
    """What all questions to be asked take: by the answered ones of each kind, if there are at least so
    many, else by rule of thumb."""
    each, asked = list[_Taken](), [kind for kind in kinds if kind.calls] or kinds[-1:]
    for kind in asked:
        size = mean_of(kind.sizes or _like(prepared, judge, later=kind is kinds[-1]))
        if len(kind.judged + kind.cached) >= least:
            taken = _from_samples(prepared, kind, size)
        else:
            taken = _by_rule_of_thumb(prepared, kind, size)
        if kind.name:
            taken = taken._replace(basis=f"{kind.name}: {taken.basis}")
        each.append(taken)
    inputs, outputs, costs, sources = zip(*each, strict=True)
    times = [kind.calls for kind in asked]
    cost = None if None in costs else _sum(costs, times)
    return _Taken(_sum(inputs, times), _sum(outputs, times), cost, "; ".join(sources))


def _from_samples(prepared: Run, kind: _Kind, size: float) -> _Taken:
    """One question of so many bytes, as those in the sample suggest."""
    usages, costs = list[Usage](), list[float | None]()
    for its_size, spent in kind.judged + kind.cached:
        input_, cached, *output = spent.usage
        longer = size / max(1, its_size)
        usage = Usage(round(longer * input_), round(longer * cached), *output)
        pricing = prepared.pricing.get(prepared.settings.panelists[spent.match.judge].judge)
        usages.append(usage)
        costs.append(spent.cost if pricing is None else pricing.cost(usage))
    known = [cost for cost in costs if cost is not None]
    source = kind.source + (", reasons included" if prepared.settings.reasons else "")
    return _Taken(
        plausible([usage.input + usage.cached for usage in usages], kind.calls, 0.03),
        plausible([usage.output for usage in usages], kind.calls, 0.1),
        plausible(known, kind.calls, 0.05) if len(known) == len(costs) else None,
        source,
    )


def _by_rule_of_thumb(prepared: Run, kind: _Kind, size: float) -> _Taken:
    """One question; each judge gets about as many as any other."""
    reason = REASON if prepared.settings.reasons else (0, 0)
    # Between a label with its marks as one token, and as four.
    answer, shortest = 8 + 4 * kind.items + reason[1], 3 + kind.items + reason[0]
    longest = prepared.settings.output_limit or answer + REASONING
    more = f", {reason[0]} to {reason[1]} of them for a reason" if reason[1] else ""
    source = (
        f"rough: assumes {BYTES_A_TOKEN[1]:g} to {BYTES_A_TOKEN[0]:g} bytes a token, answers of up to "
        f"{longest:,.0f} tokens with reasoning{more}, no retries; --pilot 20 measures instead"
    )
    input_ = Range(*(size / bytes_a_token for bytes_a_token in BYTES_A_TOKEN))
    output = Range(min(shortest, longest), longest)
    known = [pricing for pricing in prepared.pricing.values() if pricing is not None]
    cost = None
    if len(known) == len(prepared.pricing):
        low, high = (
            mean_of(
                [pricing.cost(Usage(math.ceil(read), 0, math.ceil(written))) for pricing in known]
            )
            for read, written in ((input_.low, output.low), (input_.high, output.high))
        )
        cost = Range(low, high)
    return _Taken(input_, output, cost, source)


def _time(
    prepared: Run, kinds: Sequence[_Kind], rounds_open: int, pilot: Pilot | None, taken: _Taken
) -> tuple[Range | None, Range | None]:
    """How long the calls may take, from all in flight that may be, to as many as the pilot had; and what
    one took. None where no answer tells."""
    calls, settings, pricing = (
        sum(kind.calls for kind in kinds),
        prepared.settings,
        prepared.pricing,
    )
    latencies = [spent.latency for kind in kinds for _, spent in kind.judged if spent.latency]
    if taken.input.expected is None or not latencies:
        return None, None
    seen = Range(min(latencies), max(latencies), mean_of(latencies))
    if settings.batch or not calls:
        return None, seen
    at_once = proven = settings.concurrency * len(pricing)
    rpm, tpm = (limit and limit * len(pricing) for limit in (settings.rpm, settings.tpm))
    if pilot is not None:
        proven = min(proven, pilot.questions)
        rpm, tpm = pilot.requests_a_minute, pilot.tokens_a_minute
    latency, rounds = plausible(latencies, calls, 0.1), max(1, rounds_open)

    def lasting(in_flight: int, latency: float, tokens: float, last: float) -> float:
        needed = ((calls, rpm), (tokens, tpm))
        paced = max(60 * n / limit / MARGIN if limit else 0.0 for n, limit in needed)
        return max(paced, rounds * (latency * max(1, calls / rounds / in_flight) + last))

    low = lasting(at_once, latency.low, taken.input.low + taken.output.low, 0)
    high = lasting(proven, latency.high, taken.input.high + taken.output.high, seen.high)
    return Range(low, high), seen


def _sum(ranges: Sequence[Range], times: Sequence[float]) -> Range:
    """Each so many times, all together; what is expected where it is known of all."""

    def of(values: Sequence[Any]) -> Any:
        return None if None in values else sum(map(mul, values, times))

    low, high, expected = zip(*map(astuple, ranges), strict=True)
    return Range(of(low), of(high), of(expected))
