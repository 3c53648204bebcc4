"""What a run would take, before anything is sent: calls, tokens and dollars.

Calls × tokens × price. The run's ledger says what is answered, and the cache what it would answer of the
round that comes next; which items meet in later rounds nobody knows, so that these are taken to be as
large as the strategy makes them, and their questions as long as others of theirs.

What a question takes is known from those that this run has answered. Otherwise it is a rule of thumb,
which spans a factor of twenty; so a pilot asks the first questions. They are the run's own: kept in its
ledger, as all that is paid for, and in the cache; neither the run nor a second pilot asks them again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from judgeq import seeds
from judgeq.engine import assembly, rounds, runner
from judgeq.engine.assembly import Run, Session
from judgeq.engine.interrupts import Beside, Stop, awaited
from judgeq.engine.queue import drain
from judgeq.engine.session import at_work
from judgeq.errors import BudgetError, JudgeError, RunError, StoppedError, UsageError
from judgeq.events import Emit, Notice, RoundStarted
from judgeq.judge.panel import Panel
from judgeq.judge.prices import REASON, answer_tokens
from judgeq.rating import UNKNOWN
from judgeq.rating.comparisons import is_repeated
from judgeq.rating.ranks import expected_rho
from judgeq.store import Store
from judgeq.store.protocol import Spent
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
class Pilot:
    """What a pilot of so many `questions` brought: the jobs of the first round by state, and the error
    that ended it early, if one did."""

    questions: int
    counts: Counts
    error: JudgeError | BudgetError | None = field(default=None, metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {"jobs": "counts"}


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is left to be done of a run."""

    prepared: Run = field(metadata=LEFT_OUT)
    done: int  # jobs that have an outcome
    calls: int  # questions to be asked
    rounds_open: int  # rounds that could not be looked into
    answers: int  # those that people are still to give
    totals: Totals = field(metadata=LEFT_OUT)
    basis: str = "nothing is left to ask a model: it costs nothing"  # where the tokens come from
    hits: int = 0  # questions that the cache answers
    size: float = field(default=0.0, metadata=LEFT_OUT)  # bytes of all questions
    texts: float = field(default=0.0, metadata=LEFT_OUT)  # in all questions
    input: Range = NOTHING  # tokens
    output: Range = NOTHING
    cost: Range | None = NOTHING  # dollars; None where the price is unknown
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
        judged alone, may leave, or get one answer each."""
        strategy, sizes = self.prepared.strategy, self.prepared.dataset.sizes
        k = 2 * strategy.cost(*sizes) / max(1, strategy.calls(*sizes))
        if strategy.prunes or strategy.mixed or k <= 1 or self.one_answer:
            return None
        answers = self._answers_per_text
        return Range(*(expected_rho(UNKNOWN * by, answers, k) for by in (0.5, 2, 1)))

    @property
    def one_answer(self) -> bool:
        """Whether texts are compared so seldom that the answers can't show reliability."""
        strategy = self.prepared.strategy
        if strategy.before or strategy.kind == "direct":
            return False
        orders = 2 if self.prepared.settings.both_orders else 1  # which make one answer
        return not is_repeated(self._answers_per_text / orders)

    @property
    def _answers_per_text(self) -> float:
        """Return in how many answers that compare texts each text is, at most, in all rounds."""
        strategy, settings = self.prepared.strategy, self.prepared.settings
        compared = sum(
            items * rounds.judgments_per_match(settings, round)
            for round, (questions, items) in enumerate(
                strategy.asked_by_round(*self.prepared.dataset.sizes), start=1
            )
            if items > questions
        )
        return compared / max(1, self.items)


def forecast(prepared: Run, *, retry_failed: bool = False) -> Estimate | None:
    """What is left to pay for of a run with models, before its first call; None where nothing is, or
    another process is at work on it. Raises as `judgeq run`."""
    folder = prepared.folder
    if not prepared.settings.models or (folder.exists and folder.is_running()):
        return None
    left = awaited(estimate(prepared, retry_failed=retry_failed))
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
    store, samples = None, list[tuple[int, Spent]]()
    async with AsyncExitStack() as stack:
        if prepared.folder.exists:
            store = await stack.enter_async_context(rounds.reading(prepared.folder))
        opening = assembly.panel(prepared, Stop(), lambda event: None, store, look_only=True)
        judge = await stack.enter_async_context(opening)
        left, planned, later = await _left(prepared, store, retry_failed)
        sent = [match for match in planned if judge.is_sent(match)]
        answers = left.answers + len(planned) - len(sent)
        left = replace(left, answers=answers, pilot=pilot)
        if not prepared.settings.models:
            return left
        left = _to_ask(left, judge, sent, later)
        for spent in [] if store is None else await store.spent(MOST):
            if spent.usage.output and judge.is_sent(spent.match):
                pricing = prepared.pricing.get(_panelist(prepared, spent.match.judge))
                if pricing is not None:  # that of today
                    spent = spent._replace(cost=pricing.cost(spent.usage))
                samples.append((_size(judge, spent.match), spent))
    if not left.calls:
        return left
    if len(samples) < (ENOUGH if pilot is None else 1):
        return _by_rule(left)
    return _by_samples(left, samples)


def _panelist(run: Run, number: int) -> str:
    """Return the model with this number. Raises RunError where no judge has it."""
    panelists = run.settings.panelists
    if not 0 <= number < len(panelists):
        raise RunError(
            f"{run.folder.label} is damaged: it has an answer of judge {number}, and there are "
            f"{len(panelists)}. Put back a copy of the record that nothing else wrote to."
        )
    return panelists[number].judge


# What is left to ask


async def _left(
    run: Run, store: Store | None, retry_failed: bool
) -> tuple[Estimate, Sequence[Match], int]:
    """How much is left, but for what people are asked of the questions of the rounds that are planned,
    or of the first one; these; and how many there are for others in other rounds."""
    settings, by_people = run.settings, 0.0
    if settings.people is not None:
        by_people = settings.each / (settings.each - 1 + len(settings.panelists))
    of_round = rounds.sizes(settings, run.strategy, run.dataset.sizes)
    counts, over, totals, left = list[Counts](), False, Totals(), list[Match]()
    if store is not None:
        before, totals = run.strategy.before, await store.totals()
        counts, over = await rounds.planned(store, before)
        for number, _ in enumerate(counts, before + 1):
            left += await store.left(number)
        # Which ones batches have makes no difference: they are of one kind.
        left = left[sum(one.left for one in await assembly.out_of(store)) :]
        over = over or bool(run.folder.info().ended_after(len(counts), settings.goal))
    if not counts and not over:
        history = runner.begin(run)
        first = rounds.questions(history, settings)
        left = rounds.single(replace(first, repeats=history.repeats.add(first)))
    to_come, total = [] if over else of_round[max(1, len(counts)) :], sum(counts, Counts())
    later = round(sum(to_come) * (1 - by_people if settings.models else 1))
    later += total.failed + total.invalid if retry_failed else 0
    known = Estimate(
        prepared=run,
        done=total.total - total.left,
        calls=len(left) + later,
        rounds_open=len(to_come),
        answers=round(sum(to_come) * by_people),
        totals=totals,
    )
    return known, left, later


def _to_ask(known: Estimate, judge: Panel, planned: Sequence[Match], later: int) -> Estimate:
    """What is left to be sent of these questions, and of so many later ones."""
    for step in (len(planned) // LOOKED_UP or 1, 1):
        looked_up = planned[::step]
        unknown = [match for match in looked_up if not _cached(judge, match)]
        hits = len(looked_up) - len(unknown)
        if not hits:
            break
    parts = [(len(planned) - hits, unknown)]
    if later:
        run = known.prepared
        history = runner.begin(run)
        questions = run.strategy.later(history, seeds.rng(history.seed, "estimate"))
        first = judge.judges.index(judge.asked[0])
        similar = [match._replace(judge=first) for match in rounds.single(questions)[:SIMILAR]]
        parts.append((later, similar))
    return replace(
        known,
        calls=sum(n for n, _ in parts),
        hits=hits,
        size=sum(n * _mean([_size(judge, match) for match in like]) for n, like in parts),
        texts=sum(n * _mean([len(match.items) for match in like]) for n, like in parts),
    )


def _size(judge: Panel, match: Match) -> int:
    """The bytes of a question."""
    asked = judge.of(match)
    return len(asked.backend.prepare(asked.questions.request(match)).body)


def _cached(judge: Panel, match: Match) -> bool:
    """Whether the cache answers a question."""
    asked = judge.of(match)
    request = asked.questions.request(match)
    return asked.recall(request, asked.backend.prepare(request)) is not None


# What a question takes


def _by_samples(known: Estimate, samples: Sequence[tuple[int, Spent]]) -> Estimate:
    """As answered questions suggest: input and cost by their bytes, output by their texts."""
    n = known.calls
    read = [(one.usage.input + one.usage.cached) / size for size, one in samples]
    written = [one.usage.output / (3 + len(one.match.items)) for _, one in samples]
    costs = [one.cost / size for size, one in samples if one.cost is not None]
    return replace(
        known,
        input=plausible(read, n, 0.03) * known.size,
        output=plausible(written, n, 0.1) * (3 * n + known.texts),
        cost=plausible(costs, n, 0.05) * known.size if len(costs) == len(samples) else None,
        basis=f"from {several(len(samples), 'answered call')}",
    )


def _by_rule(known: Estimate) -> Estimate:
    """By rule of thumb; each judge gets about as many questions as any other."""
    settings, n, pricing = known.prepared.settings, known.calls, known.prepared.pricing.values()
    size, texts = known.size / n, known.texts / n
    longest = settings.output_limit or answer_tokens(texts, settings.reasons) + REASONING
    least = min(3 + texts + (REASON[0] if settings.reasons else 0), longest)
    low, high = (
        Usage(math.ceil(size / bytes_a_token), 0, math.ceil(written))
        for bytes_a_token, written in zip(BYTES_A_TOKEN, (least, longest), strict=True)
    )
    prices = [price for price in pricing if price is not None]
    costs = [_mean([price.cost(usage) for price in prices]) for usage in (low, high)]
    return replace(
        known,
        input=Range(low.input, high.input) * n,
        output=Range(low.output, high.output) * n,
        cost=Range(*costs) * n if len(prices) == len(pricing) else None,
        basis=f"rough: assumes answers of up to {longest:,.0f} tokens with reasoning, and no retries; "
        "--pilot 20 measures instead",
    )


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
    return float(np.mean(values)) if values else 0.0


# A pilot


def ask_first(
    run: Run,
    questions: int,
    emit: Emit,
    *,
    beside: Beside | None = None,
) -> Pilot | None:
    """Have so many questions of the run judged, or all of its first round; None where that would tell
    nothing, since no model is asked. `beside` as of the run.

    What ends it early is raised if no question was judged, else returned. Raises UsageError, RunError
    and StoppedError as `session.execute` does.
    """
    if questions < 1:
        raise UsageError(f"A pilot of {questions} questions can't be: ask 1 or more.")
    if not run.settings.models:
        emit(Notice("No model is asked, so that there is nothing to pay: no pilot is needed."))
        return None

    async def first(session: Session) -> Pilot:
        error: JudgeError | BudgetError | None = None
        try:
            await _judge_first(session, questions)
        except (JudgeError, BudgetError) as raised:
            error = raised
        counts = await session.store.round_state(run.strategy.before + 1) or Counts()
        if not counts.done:
            raise error or JudgeError(
                f"no question of the pilot brought a verdict ({counts.invalid:,} invalid, "
                f"{counts.failed:,} failed), so it gives no estimate."
            )
        return Pilot(min(questions, counts.total), counts, error)

    return at_work(run, emit, first, beside=beside)


async def _judge_first(session: Session, questions: int) -> None:
    """Have so many questions of the first round judged, unless they are already: failed ones don't
    count, nor invalid ones where there is nothing else."""
    run = session.run
    first = run.strategy.before + 1
    epoch, history = await runner.lead(session), runner.begin(run)
    session.emit(await runner.start_event(session))
    for _ in range(first - 1):
        await rounds.fold(history, session.store, len(run.judges))
    counts = await runner.plan(session, epoch, history)
    to_ask = min(questions - (counts.done and counts.done + counts.invalid), counts.left)
    if to_ask <= 0:
        return
    if await assembly.out_of(session.store):
        raise RunError(
            f"run {run.folder.id} has batches that are out: `{run.folder.command('resume')}` collects "
            "them, and then no pilot is needed."
        )
    session.emit(RoundStarted(first, counts))
    await drain(session, to_ask)
    after = await session.store.round_state(first) or counts
    if session.stop.asked and counts.left - after.left < to_ask:
        raise StoppedError("stopped")
