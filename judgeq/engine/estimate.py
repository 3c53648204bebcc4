"""What a run would take, before anything is sent: calls, tokens, dollars, and how long.

Calls × tokens × price. What was answered is counted by the run's ledger. What is planned, or else the
first round, is looked up in the cache, of many questions a part; nobody can tell which items meet in
later rounds, which are taken to be as large as the strategy makes them, and their questions as long
as others of theirs.

What a question takes is known from those that were answered: of this run, where a pilot may have asked
the first ones (pilot.py), and in the cache. Otherwise it is a rule of thumb, which spans a factor of
twenty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from judgeq import config
from judgeq.datasets import Dataset
from judgeq.datasets.dataset import RowIds
from judgeq.engine import assembly, rounds, usage
from judgeq.engine.assembly import Run
from judgeq.engine.interrupts import awaited
from judgeq.engine.pilot import Pilot
from judgeq.engine.queue import Stop
from judgeq.engine.usage import Needs, Questions, Range
from judgeq.errors import RunError
from judgeq.rating import UNKNOWN
from judgeq.rating.order import expected_rho
from judgeq.run_places import RunPlace, runs_in
from judgeq.store import Store
from judgeq.strategies.repeats import Repeats
from judgeq.text import LEFT_OUT, money
from judgeq.types import Counts, Match, Totals


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
    sampled: bool = field(default=False, metadata=LEFT_OUT)  # the cache may answer a few calls
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
        "reliability": "reliability",
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
    def reliability(self) -> Range | None:
        """What ρ̂ is expected to be after all rounds, of a judge of whom nothing is known: where what it
        says of the texts has an sd of UNKNOWN, and of half and twice that. None where texts are
        judged alone, or may leave."""
        strategy, n = self.prepared.strategy, self.items
        items, each = 2 * strategy.cost(n), rounds.judgments_per_match(self.prepared.settings)
        k = items / max(1, strategy.calls(n))
        if strategy.prunes or strategy.mixed or k <= 1:
            return None
        return Range(*(expected_rho(UNKNOWN * by, items * each / n, k) for by in (0.5, 2, 1)))

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
    settings, store, totals, earlier = prepared.settings, None, Totals(), None
    async with AsyncExitStack() as stack:
        if prepared.folder.exists:
            store = await stack.enter_async_context(rounds.reading(prepared.folder))
            totals = await store.totals()
        opening = assembly.panel(prepared, totals, Stop(), lambda event: None, look_only=True)
        judge = await stack.enter_async_context(opening)
        plan = await _plan(prepared, store, retry_failed)
        asked, basis = Questions(len(plan.left) + plan.later), "the simulated judge costs nothing"
        if settings.people is not None:
            basis = "people answer, and nothing is sent"
        needs = Needs(basis=basis)
        if settings.models:
            asked = await usage.look(prepared, judge, store, plan.left, plan.later)
            needs = usage.needs(prepared, asked, plan.rounds_open, pilot)
    if settings.models and (store is None or pilot is not None):
        earlier = await _predecessor(prepared, asked.calls + asked.hits - plan.later, asked.hits)
    return Estimate(
        prepared=prepared,
        done=plan.done,
        calls=asked.calls,
        hits=asked.hits,
        rounds_open=plan.rounds_open,
        totals=totals,
        **needs._asdict(),
        pilot=pilot,
        answers=plan.answers,
        earlier=earlier,
        sampled=asked.sampled,
    )


class _Plan(NamedTuple):
    """What is left to ask."""

    done: int  # jobs that have an outcome
    left: Sequence[Match]  # of the rounds that are planned, or of the first one
    later: int  # questions to models in other rounds
    rounds_open: int  # rounds that could not be looked into
    answers: int  # those that people are still to give


async def _plan(prepared: Run, store: Store | None, retry_failed: bool) -> _Plan:
    settings, strategy, n = prepared.settings, prepared.strategy, len(prepared.dataset)
    planned, over, answered = list[Counts](), False, 0
    if store is not None:
        planned, over = await rounds.planned(store)
        over = over or prepared.folder.info().ended_after(len(planned), settings.goal)
        judges = (await store.verdicts()).judges
        answered = 0 if judges is None else int((judges >= len(settings.panelists)).sum())
    if store is not None and (planned or over):
        left = [match for round in range(len(planned)) for match in await store.left(round + 1)]
        # Which ones batches have makes no difference: they are of one kind.
        left = left[sum(one.left for one in await store.batches() if one.open) :]
    else:
        first = rounds.questions(rounds.begin(n, strategy, settings), settings)
        left = usage.single(replace(first, repeats=Repeats().add(first)))
    most, total = rounds.judgments_per_match(settings) * strategy.calls(n), sum(planned, Counts())
    for_people, later = rounds.share_of_people(settings), 0
    rounds_open = 0 if over else max(0, strategy.rounds - max(1, len(planned)))
    if rounds_open:
        left_out = most - (total.total or len(left))
        later = max(0, round(left_out * (1 - for_people if settings.models else 1)))
    if retry_failed:
        later += total.failed + total.invalid
    answers = max(0, round(most * for_people) - answered)
    return _Plan(total.total - total.left, left, later, rounds_open, answers)


# The run before a new one: the same data, with a row more


class Predecessor(NamedTuple):
    """The latest run that differs by its texts alone, and how the new one stands to it."""

    run: str
    new_texts: int | None  # of the new run; None unless all of the earlier one's are in it
    questions: int  # of the new run's first round
    known: int  # of these, answered by the cache


async def _predecessor(prepared: Run, questions: int, known: int) -> Predecessor | None:
    folder, but_texts = prepared.folder, {"dataset": "", "labels": ""}
    begins = folder.id.split(config.fingerprint(prepared.facts)[:10])[0]
    for place in runs_in(folder.path.parent, prepared.settings.store).all():
        facts: Mapping[str, Any] = prepared.facts
        with suppress(RunError):
            if place.id.startswith(begins):
                facts = place.info().facts
        if facts != prepared.facts and {**facts, **but_texts} == {**prepared.facts, **but_texts}:
            new = await _new_texts(prepared.dataset, place)
            return Predecessor(place.id, new, questions, known)
    return None


async def _new_texts(dataset: Dataset, earlier: RunPlace) -> int | None:
    """How many texts an earlier run doesn't have. A run keeps no texts: None unless their checksum says
    that all of its are in the dataset, or where its record is damaged."""
    try:
        async with rounds.reading(earlier) as store:
            ids = (await store.items()).ids
    except RunError:
        return None
    texts = dict(zip(dataset.ids, dataset.texts or (), strict=True))
    names = RowIds(len(ids)) if isinstance(dataset.ids, RowIds) else ids
    kept = [texts[name] for name in ids if name in texts]
    before = Dataset(dataset.name, names, kept, dataset.source)
    same = len(kept) == len(ids) and before.content == earlier.info().facts.get("dataset")
    return len(dataset) - len(ids) if same else None
