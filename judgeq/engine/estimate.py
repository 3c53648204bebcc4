"""What a run would take, told before anything is sent: calls, tokens, dollars, and how long.

As far as the answers are known already (from the run's ledger, or from the cache) the rounds are
played through, so that what need not be asked is found exactly. From the first round with an unknown
answer on, nobody can tell who will meet whom: those rounds are taken to be as large as the strategy
makes them, and their questions as long as the others.

What a question takes is told by those that were answered: of this run, where a pilot may have asked
the first ones (pilot.py), and in the cache; else by rule of thumb, which spans a factor of twenty.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from judgeq import seeds
from judgeq.config import Settings
from judgeq.engine import assembly, extent, questions, results
from judgeq.engine.assembly import Prices, Run
from judgeq.engine.looked import MOST, Kinds, Looked
from judgeq.engine.pilot import Pilot
from judgeq.engine.queue import Stop
from judgeq.engine.samples import NOTHING, Range, Sample, mean_of, plausible, total
from judgeq.events import Event
from judgeq.json_marks import LEFT_OUT
from judgeq.judge.backend import Prepared, Request
from judgeq.judge.limiter import MARGIN
from judgeq.judge.model import REASON
from judgeq.judge.panel import Panel
from judgeq.store import Store, answers, rows
from judgeq.strategies import History
from judgeq.strategies.repeats import Repeats
from judgeq.types import Match, Matches, Rows, Totals, Usage, Verdict, Verdicts

AT_ONCE = 1000
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
        "rounds": "rounds",
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
        known = [pricing for pricing in self.prepared.pricing.values() if pricing is not None]
        if not known or len(known) < len(self.prepared.pricing):
            return None
        return "; ".join(dict.fromkeys(pricing.source for pricing in known))

    @property
    def judge(self) -> str:
        """The judges."""
        return " + ".join(self.prepared.settings.judges)

    @property
    def items(self) -> int:
        """How many there are."""
        return len(self.prepared.dataset)

    @property
    def rounds(self) -> int:
        """All rounds, at most."""
        return self.prepared.strategy.rounds


async def estimate(prepared: Run, pilot: Pilot | None = None) -> Estimate:
    """Look at ledger and cache, send nothing, write nothing; `pilot` is what was asked before.

    Raises UsageError or RunError as `judgeq run` would.
    """
    looked, totals = Kinds.of(prepared), Totals()
    store = None
    if prepared.folder.exists:
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


async def _sample(judge: Panel, store: Store, looked: Kinds) -> None:
    """Look at what the questions that were judged took."""
    for match, usage, cost, latency in await store.spent(MOST):
        if not judge.is_sent(match):
            continue
        size = len(_prepared(judge, match)[1].body)
        looked.of_round(match.round).add(Sample(match.judge, size, usage, cost, latency))


async def _look(prepared: Run, judge: Panel, store: Store | None, looked: Kinds) -> int:
    """Play the known part of the run through. How many rounds remain that nobody can look into."""
    n, strategy, settings = len(prepared.dataset), prepared.strategy, prepared.settings
    history = results.begin(n, strategy, settings)
    repeats, rounds = Repeats(), strategy.rounds
    first = 0
    for round in history.to_come():
        counts = None
        if store is not None:
            counts = await results.fold_round(history, store, len(settings.panelists))
        if store is not None and counts is not None:
            looked.of_round(round).done += counts.total - counts.left
            looked.gave += _by_people(history.asked[-1], settings)
            first += counts.total
            left = await store.left(round)
            if left:
                _ask_cache(judge, left, looked.of_round(round))
                if await store.round_state(round + 1) is None:  # people's are all planned
                    _like_later(history, judge, looked, round)
                    return rounds - round
            continue
        matches = questions.of_round(history, settings)
        matches = await questions.numbered(matches, repeats, store, round)
        of_round = looked.of_round(round)
        verdicts = _ask_cache(judge, _numbered(matches, round, first), of_round)
        if len(verdicts) < len(matches):
            _like_later(history, judge, looked, round)
            return rounds - round
        history.add(_verdicts(verdicts, matches, first, n), len(matches))
        first += len(matches)
    return 0


def _by_people(verdicts: Verdicts, settings: Settings) -> int:
    """How many of a round's answers are people's."""
    numbers = _or_0(verdicts.judges, verdicts)
    return sum(judge >= len(settings.panelists) for judge in numbers)


def _like_later(history: History, judge: Panel, looked: Kinds, round: int) -> None:
    """Where the rounds after this one ask otherwise than it, look at some questions like theirs."""
    if looked.of_round(round) is looked.others or history.strategy is None or not judge.asked:
        return
    sent = judge.judges.index(judge.asked[0])
    matches = history.strategy.later(history, seeds.rng(history.seed, "estimate"))
    for match in _numbered(matches, round + 1, 0)[:AT_ONCE]:
        looked.others.like.append(len(_prepared(judge, match._replace(judge=sent))[1].body))


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


def _or_0(column: Rows | None, matches: Matches | Verdicts) -> list[int]:
    return [0] * len(matches) if column is None else column.tolist()


def _ask_cache(judge: Panel, matches: Sequence[Match], looked: Looked) -> list[Verdict]:
    """The verdicts that the cache knows; the others' sizes are noted. People are sent nothing, and count
    where no model is asked."""
    verdicts = []
    sent = [match for match in matches if judge.is_sent(match)]
    if looked.share == 1:
        looked.sizes += [0] * (len(matches) - len(sent))
    for match in sent:
        verdict, sample = _cached(judge, match)
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


def _cached(judge: Panel, match: Match) -> tuple[Verdict | None, Sample]:
    """What the cache knows of a question, and what it took."""
    request, prepared = _prepared(judge, match)
    known = judge.of(match).recall(request, prepared)
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
    return answers.verdicts(stored, n)


def _estimated(
    prepared: Run, looked: Kinds, totals: Totals, open_rounds: int, pilot: Pilot | None
) -> Estimate:
    done, hits = sum(kind.done for kind in looked), sum(kind.hits for kind in looked)
    calls = sum(kind.calls(open_rounds) for kind in looked)
    most = extent.most_calls(prepared.strategy, prepared.settings, len(prepared.dataset))
    people = max(0, round(most * extent.share_of_people(prepared.settings)) - looked.gave)
    if not prepared.settings.models:
        basis = "the simulated judge costs nothing"
        if prepared.settings.people is not None:
            basis = "people answer, and nothing is sent"
        nothing = (NOTHING, NOTHING, NOTHING)
        return Estimate(
            prepared, done, calls, 0, open_rounds, totals, *nothing, basis, answers=people
        )
    least = ENOUGH if pilot is None else 1
    taken = [_taken(prepared, kind, kind.calls(open_rounds), least) for kind in looked]
    asked = [one for one, kind in zip(taken, looked, strict=True) if kind.calls(open_rounds)]
    asked = asked or taken[-1:]
    input_, output = total([one.input for one in asked]), total([one.output for one in asked])
    costs = [one.cost for one in asked if one.cost is not None]
    seconds = latency = None
    if all(one.sampled for one in asked):
        each = 1 / max(1, calls)
        tokens = input_.times(each), output.times(each)
        if not prepared.settings.batch:
            seconds = _seconds(prepared, looked.latencies, calls, open_rounds, pilot, *tokens)
        if latencies := looked.latencies:
            latency = Range(min(latencies), max(latencies), mean_of(latencies))
    return Estimate(
        prepared,
        done,
        calls,
        hits,
        open_rounds,
        totals,
        input_,
        output,
        total(costs) if len(costs) == len(asked) else None,
        "; ".join(one.basis for one in asked),
        seconds,
        latency,
        pilot,
        people,
    )


class _Taken(NamedTuple):
    """What all questions of a kind to be asked take, and where that comes from."""

    input: Range
    output: Range
    cost: Range | None
    basis: str
    sampled: bool


def _taken(prepared: Run, looked: Looked, calls: int, least: int) -> _Taken:
    """By the answered questions of this kind, if there are at least so many, else by rule of thumb."""
    sampled = len(looked.samples) >= least
    if sampled:
        input_, output, cost = _from_samples(prepared, looked, calls)
        basis = looked.source + (", reasons included" if prepared.settings.reasons else "")
    else:
        input_, output, basis = _by_rule_of_thumb(prepared, looked)
        cost = _priced(prepared.pricing, input_, output)
    if looked.name:
        basis = f"{looked.name}: {basis}"
    dollars = None if cost is None else cost.times(calls)
    return _Taken(input_.times(calls), output.times(calls), dollars, basis, sampled)


def _from_samples(prepared: Run, looked: Looked, calls: int) -> tuple[Range, Range, Range | None]:
    """Tokens in and out and dollars of one question, as those in the sample suggest."""
    samples, settings = looked.samples, prepared.settings
    size = looked.size or mean_of([sample.size for sample in samples])
    scaled = [sample.of_size(size) for sample in samples]
    input_ = plausible([sample.usage.input + sample.usage.cached for sample in scaled], calls, 0.03)
    output = plausible([sample.usage.output for sample in scaled], calls, 0.1)
    costs = []
    for sample in scaled:
        pricing = prepared.pricing.get(settings.panelists[sample.judge].judge)
        costs.append(sample.cost if pricing is None else pricing.cost(sample.usage))
    known = [cost for cost in costs if cost is not None]
    cost = plausible(known, calls, 0.05) if len(known) == len(costs) else None
    return input_, output, cost


def _seconds(
    prepared: Run,
    latencies: Sequence[float],
    calls: int,
    open_rounds: int,
    pilot: Pilot | None,
    input_: Range,
    output: Range,
) -> Range | None:
    """How long the calls may take: from all in flight that may be, to as many as the pilot had."""
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


def _by_rule_of_thumb(prepared: Run, looked: Looked) -> tuple[Range, Range, str]:
    """Tokens in and out of one call, and where that comes from."""
    size, labels = looked.size, looked.labels
    reason = REASON if prepared.settings.reasons else (0, 0)
    # Between a label with its marks as one token, and as four.
    answer, shortest = 8 + 4 * labels + reason[1], 3 + labels + reason[0]
    longest = prepared.settings.output_limit or answer + REASONING
    more = f", {reason[0]} to {reason[1]} of them for a reason" if reason[1] else ""
    source = (
        f"by rule of thumb: {BYTES_A_TOKEN[0]:g} to {BYTES_A_TOKEN[1]:g} bytes a token; an answer "
        f"without reasoning, or with it {longest:,.0f} tokens{more}; no retries"
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
