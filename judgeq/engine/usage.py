"""What questions take: tokens, dollars and time, by those that were answered, or by a rule of thumb."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.engine import rounds
from judgeq.engine.assembly import Run
from judgeq.engine.pilot import Pilot
from judgeq.judge.backend import Prepared, Reply, Request
from judgeq.judge.budget import REASON, answer_tokens
from judgeq.judge.limiter import MARGIN
from judgeq.judge.panel import Panel
from judgeq.store import Store
from judgeq.store.protocol import Spent
from judgeq.types import Match, Matches, Usage

MOST = 2_000
"""Answered questions of a run that are looked at."""
LOOKED_UP = 1_000
"""Of more questions so many are looked up in the cache, and all only if it has one of these."""
SIMILAR = 1000
"""Questions by whose length that of others is estimated."""
ENOUGH = 20
"""Answers that tell better than a rule of thumb what one takes, where no pilot was asked for."""
BYTES_A_TOKEN = (4.8, 3.0)
"""Of English text with its JSON around it; other scripts take more tokens a byte, up to one each."""
REASONING = 2_000
"""Tokens that a call may take for reasoning, where no limit is set and nothing is known."""
FAR = 4
"""The factor by which a mean is said to be off at most."""


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


class Needs(NamedTuple):
    """What the questions to be asked need."""

    input: Range = NOTHING  # tokens
    output: Range = NOTHING
    cost: Range | None = NOTHING  # dollars; None where the price is unknown
    basis: str = ""  # where that comes from
    seconds: Range | None = None  # None where no answer tells how long one takes
    latency: Range | None = None  # what those seen took


class Sample(NamedTuple):
    """What a question that was answered took."""

    size: int  # bytes
    labels: int  # about so many tokens name its items
    usage: Usage
    cost: float | None
    latency: float  # 0 where the cache answered


@dataclass(slots=True)
class Questions:
    """The questions to be asked of models, and what similar ones took."""

    calls: int = 0  # to be asked
    size: float = 0.0  # bytes of all of them
    items: float = 0.0  # texts in all of them
    hits: int = 0  # other ones, which the cache answers
    samples: list[Sample] = field(default_factory=list)
    of_run: int = 0  # samples that this run asked; the cache has the others
    sampled: bool = False  # the cache may answer a few of the calls


def single(matches: Matches) -> list[Match]:
    """A round's questions one by one."""
    judges, repeats = (
        [0] * len(matches) if column is None else column.tolist()
        for column in (matches.judges, matches.repeats)
    )
    each = enumerate(zip(matches, judges, repeats, strict=True))
    return [Match(m, 1, tuple(of.tolist()), judge, repeat) for m, (of, judge, repeat) in each]


async def look(
    run: Run, judge: Panel, store: Store | None, left: Sequence[Match], later: int
) -> Questions:
    """The questions `left`, as far as the cache doesn't answer them, and so many in `later` rounds; with
    those that were answered. People are sent nothing. Of many questions some stand for the others, if
    the cache has none of them."""
    asked = Questions(later)

    def sample(size: int, spent: Spent) -> None:
        if spent.usage.output:
            pricing = run.pricing.get(run.settings.panelists[spent.match.judge].judge)
            cost = spent.cost if pricing is None else pricing.cost(spent.usage)
            labels = 3 + len(spent.match.items)
            asked.samples.append(Sample(size, labels, spent.usage, cost, spent.latency))

    for spent in [] if store is None else await store.spent(MOST):
        if judge.is_sent(spent.match):
            sample(len(_sent(judge, spent.match)[1].body), spent)
    asked.of_run = len(asked.samples)
    to_send = list(filter(judge.is_sent, left))
    looked_up = _look_up(judge, _some(to_send, run.dataset.texts or ()))
    asked.sampled = len(looked_up) < len(to_send) and not any(one.known for one in looked_up)
    if len(looked_up) < len(to_send) and not asked.sampled:
        looked_up = _look_up(judge, [(match, 1) for match in to_send])
    for one in looked_up:
        if one.known is None:
            asked.calls += one.times
            asked.size += one.times * one.size
            asked.items += one.times * len(one.match.items)
        else:
            asked.hits += 1
            sample(one.size, Spent(one.match, one.known.usage, one.known.cost, 0.0))
    if later:
        history = rounds.begin(len(run.dataset), run.strategy, run.settings)
        questions = run.strategy.later(history, seeds.rng(history.seed, "estimate"))
        first = judge.judges.index(judge.asked[0])
        some = [match._replace(judge=first) for match in single(questions)[:SIMILAR]]
        asked.size += later * mean_of([len(_sent(judge, match)[1].body) for match in some])
        asked.items += later * mean_of([len(match.items) for match in some])
    return asked


class _LookedUp(NamedTuple):
    """A question that was looked up in the cache."""

    match: Match
    times: int  # questions that it stands for
    size: int  # bytes
    known: Reply | None


def _look_up(judge: Panel, some: Iterable[tuple[Match, int]]) -> list[_LookedUp]:
    found = []
    for match, times in some:
        request, sent = _sent(judge, match)
        known = judge.of(match).recall(request, sent)
        found.append(_LookedUp(match, times, len(sent.body), known and known[0]))
    return found


def _some(matches: Sequence[Match], texts: Sequence[str]) -> list[tuple[Match, int]]:
    """LOOKED_UP of these questions at most, and for how many each stands: for as many as are about as
    long, and none of which is longer, so that no bill is shown too low."""
    if len(matches) <= LOOKED_UP:
        return [(match, 1) for match in matches]
    size = np.array([len(text.encode()) for text in texts])
    counts = np.array([len(match.items) for match in matches])
    items = np.fromiter(chain.from_iterable(match.items for match in matches), np.int64)
    length = np.add.reduceat(size[items], np.cumsum(counts) - counts)
    parts = np.array_split(np.argsort(-length, kind="stable"), LOOKED_UP)
    return [(matches[int(part[0])], len(part)) for part in parts]


def _sent(judge: Panel, match: Match) -> tuple[Request, Prepared]:
    """A question, and how it would be sent."""
    asked = judge.of(match)
    request = asked.questions.request(match)
    return request, asked.backend.prepare(request)


def needs(run: Run, asked: Questions, rounds_open: int, pilot: Pilot | None) -> Needs:
    """What they need: by those that were answered, if these are enough."""
    if len(asked.samples) < (ENOUGH if pilot is None else 1):
        return _by_rule(run, asked)
    by_samples = _by_samples(run, asked)
    latencies = [sample.latency for sample in asked.samples if sample.latency]
    if not latencies:
        return by_samples
    return by_samples._replace(
        seconds=_seconds(run, asked.calls, latencies, rounds_open, pilot, by_samples),
        latency=Range(min(latencies), max(latencies), mean_of(latencies)),
    )


def _by_samples(run: Run, asked: Questions) -> Needs:
    """What the questions need as those in the sample suggest: input and cost by their bytes, output by
    their labels."""
    samples, n = asked.samples, asked.calls
    read = [(one.usage.input + one.usage.cached) / one.size for one in samples]
    written = [one.usage.output / one.labels for one in samples]
    costs = [one.cost / one.size for one in samples if one.cost is not None]
    counts = (asked.of_run, "of this run"), (len(samples) - asked.of_run, "in the cache")
    parts = [f"{n:,} call{'' if n == 1 else 's'} {where}" for n, where in counts if n]
    reasons = ", reasons included" if run.settings.reasons else ""
    return Needs(
        plausible(read, n, 0.03) * asked.size,
        plausible(written, n, 0.1) * (3 * n + asked.items),
        plausible(costs, n, 0.05) * asked.size if len(costs) == len(samples) else None,
        f"from {' and '.join(parts)}{reasons}",
    )


def _by_rule(run: Run, asked: Questions) -> Needs:
    """What the questions need by rule of thumb; each judge gets about as many as any other."""
    n, settings = max(1, asked.calls), run.settings
    items = asked.items / n
    least, most = REASON if settings.reasons else (0, 0)
    longest = settings.output_limit or answer_tokens(items, settings.reasons) + REASONING
    written = min(3 + items + least, longest), longest
    read = [asked.size / n / bytes_a_token for bytes_a_token in BYTES_A_TOKEN]
    more = f", {least} to {most} of them for a reason" if most else ""
    basis = (
        f"rough: assumes {BYTES_A_TOKEN[1]:g} to {BYTES_A_TOKEN[0]:g} bytes a token, answers of up to "
        f"{longest:,.0f} tokens with reasoning{more}, no retries; --pilot 20 measures instead"
    )
    cost = None
    prices = [pricing for pricing in run.pricing.values() if pricing is not None]
    if len(prices) == len(run.pricing):
        usages = [Usage(math.ceil(i), 0, math.ceil(o)) for i, o in zip(read, written, strict=True)]
        low, high = (mean_of([pricing.cost(usage) for pricing in prices]) for usage in usages)
        cost = Range(low, high) * asked.calls
    return Needs(Range(*read) * asked.calls, Range(*written) * asked.calls, cost, basis)


def _seconds(
    run: Run,
    n: int,
    latencies: Sequence[float],
    rounds_open: int,
    pilot: Pilot | None,
    needs: Needs,
) -> Range | None:
    """How long n calls may take, from all in flight that may be, to as many as the pilot had. None
    where that isn't up to us."""
    settings, models = run.settings, len(run.pricing)
    if settings.batch or not n:
        return None
    at_once = proven = settings.concurrency * models
    rpm, tpm = (limit and limit * models for limit in (settings.rpm, settings.tpm))
    if pilot is not None:
        proven = min(proven, pilot.questions)
        rpm, tpm = pilot.requests_a_minute, pilot.tokens_a_minute
    latency, rounds_left = plausible(latencies, n, 0.1), max(1, rounds_open)

    def lasting(in_flight: int, latency: float, tokens: float, last: float) -> float:
        limits = (n, rpm), (tokens, tpm)
        paced = [60 * amount / limit / MARGIN for amount, limit in limits if limit]
        turns = max(1, n / rounds_left / in_flight)
        return max(*paced, 0, rounds_left * (latency * turns + last))

    low = lasting(at_once, latency.low, needs.input.low + needs.output.low, 0)
    tokens = needs.input.high + needs.output.high
    return Range(low, lasting(proven, latency.high, tokens, max(latencies)))


def plausible(values: Sequence[float], to_come: int, least: float) -> Range:
    """What the mean of so many values to come may be: within a 95 % prediction interval, and at least
    the share `least` to either side, for later rounds ask about more similar texts.

    The interval is by factors, since a few questions may take many times what most do, and seldom are
    among the first. As if one value more had been seen, a whole mean off: a few that happen to be
    similar, or one alone, don't tell how far others may lie.
    """
    n, mean = len(values), mean_of(values)
    if not mean:
        return NOTHING
    off = sum((value / mean - 1) ** 2 for value in values) + 1
    margin = _t(n) * math.sqrt(off / n * (1 / n + 1 / max(1, to_come)))
    factor = math.exp(min(margin, math.log(FAR)))
    return Range(mean * min(1 / factor, 1 - least), mean * max(factor, 1 + least), mean)


def _t(df: int) -> float:
    """The t within which lies 95 % of Student's distribution (Abramowitz and Stegun 1972, 26.7.8):
    too large, by 1 % of 10 degrees of freedom, by 38 % of 3, and infinite of fewer."""
    room = (1 - 1 / (4 * df)) ** 2 - 1.96**2 / (2 * df)
    return 1.96 / math.sqrt(room) if room > 0 else math.inf


def mean_of(values: Sequence[float]) -> float:
    """The mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0
