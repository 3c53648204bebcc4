"""What a run is made of; and its judges, ready to be asked: backend, limits, budget, cache together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgeq import judge
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.engine.queue import Stop
from judgeq.errors import DataError, UsageError
from judgeq.events import Event, Notice
from judgeq.imports import recordings
from judgeq.judge import prices
from judgeq.judge.backend import Backend
from judgeq.judge.budget import Budget
from judgeq.judge.function import FunctionJudge, JudgeFunction
from judgeq.judge.judge import Judge
from judgeq.judge.limiter import Limiter
from judgeq.judge.model import api_key, extra_headers, output_bound
from judgeq.judge.panel import Panel
from judgeq.judge.prices import Pricing
from judgeq.judge.questions import Questions
from judgeq.judge.recorded import RecordedJudge
from judgeq.judge.sending import Sender
from judgeq.judge.shared_spending import Keeper, SharedSpending
from judgeq.judge.simulated import make_simulated
from judgeq.judge.spending import OwnSpending, Spending
from judgeq.judge.unusable import Unusable
from judgeq.paths import user_cache
from judgeq.prompts import PromptSet
from judgeq.runs import RunPlace
from judgeq.settings.model import PROVIDERS, Access, from_environment
from judgeq.store import Items
from judgeq.strategies import Strategy
from judgeq.types import Totals

if TYPE_CHECKING:
    from judgeq.judge.cache import ReplyCache
    from judgeq.judge.http.model_backend import ModelBackend

Emit = Callable[[Event], None]
SURCHARGED = frozenset({"speed", "inference_geo"})
"""Fields of --extra-body by which Anthropic bills more than genai-prices knows."""
Prices = Mapping[str, Pricing | None]
"""What a call is priced by, by model; None where that is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run as settings describe it: all that is known before anything is written or asked.

    `held` are the settings whose files were not needed, since what they name came from the store: they
    are not this user's word. `known` are the rankings that people are held against.
    """

    settings: Settings
    dataset: Dataset
    strategy: Strategy
    prompt: PromptSet | None
    pricing: Prices
    facts: Mapping[str, Any]
    folder: RunPlace
    held: Sequence[str] = ()
    known: Sequence[tuple[int, ...]] = ()
    function: JudgeFunction | None = None
    """The judge that is a Python function."""

    @property
    def items(self) -> Items:
        """What the store knows of the dataset."""
        return Items(self.dataset.ids, self.dataset.gold, self.dataset.subsets)


def check(settings: Settings, dataset: Dataset, prompt: PromptSet | None) -> Prices:
    """What a call of each model is priced by. Opens nothing and asks nobody.

    Raises UsageError or DataError for a judge that can't judge the dataset.
    """
    for number, name in enumerate(settings.judge):
        if name in ("simulated", judge.REHEARSAL):
            _simulated(settings, dataset, number)
    if not any(judge.kind_of(name).reads_text for name in settings.judge):
        return {}
    if dataset.texts is None:
        raise DataError(dataset.missing_texts)
    if prompt is None and any(judge.kind_of(name) is judge.FUNCTION for name in settings.judge):
        raise UsageError(
            'a judge needs the feature: judgeq.run(texts, "how urgent the message is", …).'
        )
    if prompt is None:
        who = "a model needs" if settings.models else "people need"
        raise UsageError(
            f"{who} to be told what to judge: name a prompt set with --prompt (`judgeq "
            'prompts` lists them), or the feature: --feature "how urgent is the message".'
        )
    known = {name: price_of(settings, name, batch=settings.batch) for name in settings.models}
    if settings.max_cost is not None:
        check_prices(known, settings.max_cost)
    return known


def check_prices(prices: Prices, cap: float) -> None:
    """Raise UsageError where a cap is to be held and the price of a model is unknown."""
    for name, pricing in prices.items():
        if pricing is None:
            raise UsageError(
                f"--max-cost {cap:g}: the price of {name} is not known, so that no cap "
                "could be held. Give --price IN,OUT (dollars per million tokens)."
            )


def price_of(settings: Settings, model: str, *, batch: bool = False) -> Pricing | None:
    """What a call of a model, or of a batch, is priced by today; None where that is unknown."""
    extra = settings.extra_body or {}
    surcharged = SURCHARGED.intersection(extra)
    if surcharged and settings.price is None and model not in settings.prices:
        return None
    return prices.find(
        model,
        base_url=settings.address_of(model),
        flat=settings.flat,
        table=settings.prices,
        service_tier=extra.get("service_tier"),
        batch=batch,
        at=datetime.now(UTC),
    )


def check_access(settings: Settings) -> None:
    """Raise KeyMissingError or UsageError for a key or header that can't be had."""
    if settings.models and settings.workers:
        for name in settings.models:
            api_key(name, settings, settings)
        extra_headers(settings)


def _simulated(settings: Settings, dataset: Dataset, number: int) -> Backend:
    return make_simulated(
        settings,
        latency=settings.sim_latency,
        latent=dataset.latent,
        gold=dataset.gold,
        synthetic=dataset.source == "synthetic",
        seed=settings.seed,
        sleep=asyncio.sleep,
        number=number,
        reasons=settings.reasons,
        rehearsed=dataset.texts if settings.judge[number] == judge.REHEARSAL else None,
    )


def cache_folder(settings: Access) -> Path:
    """Where replies are kept for all runs."""
    return settings.cache_dir or user_cache() / "replies"


@asynccontextmanager
async def sharing(keeper: Keeper | None, emit: Emit) -> AsyncIterator[SharedSpending | None]:
    """This process's slices of what a keeper keeps for several, given back when left; None where a run
    has none. Raises RunError where it can't be reached."""
    if keeper is None:
        yield None
        return
    spending = SharedSpending(keeper, notify=lambda text: emit(Notice(text, warning=True)))
    await spending.open()
    try:
        yield spending
    finally:
        await spending.close()


@asynccontextmanager
async def panel(
    run: Run,
    totals: Totals,
    stop: Stop,
    emit: Emit,
    *,
    out: float | None = None,
    look_only: bool = False,
    spending: Spending | None = None,
    own: OwnSpending | None = None,
    processes: Callable[[], int] = lambda: 1,
) -> AsyncIterator[Panel]:
    """The judges of a session; `totals` are what earlier ones spent. Let go of when left. Batches of
    theirs that are still out hold `out` of that, in dollars (None: there are none). With `look_only`
    nothing is written to the cache's folder. `spending` may be shared with others; then this
    process takes no more of it than `own` allows, by default its user's own cap: whoever can write
    to the store can change the shared one. Each of the `processes` takes its part of a server's limits.

    Judges have the budget and the cache in common; one model asked as several personas has one
    limiter, for its provider counts all of it together.
    """
    settings = run.settings
    check_totals(totals, settings.max_cost)
    if not settings.workers:  # others ask
        yield Panel((), " + ".join(settings.judges))
        return
    if spending is None:
        lost = max(0.0, (totals.at_risk or 0.0) - (out or 0.0))
        spending = OwnSpending(settings.max_cost, totals.cost, lost, reserved=out or 0.0)
    elif own is None:
        own = OwnSpending(settings.max_cost, reserved=out or 0.0)
    budget = Budget(spending, own)
    stop.calls(budget.abort)
    cache = _cache(settings, emit, look_only)
    backends, judges = list[Backend](), list[Judge | None]()
    for number, name in enumerate(settings.judge):
        if judge.kind_of(name).is_person:
            judges.append(None)  # who are handed questions (people.py)
            continue
        limiter = _limiter(run, processes, stop, emit)
        backend = _backend(run, name, number, limiter, cache, emit)
        sender = Sender(backend, emit, stop.sleep, limiter, budget)
        backends.append(backend)
        batches = None
        if settings.models and (settings.batch or out is not None):
            batches = _model(run, name, limiter, cache, emit, batch=True)
            backends.append(batches)
        judges += [
            Judge(asked, sender, cache, Unusable(settings.max_invalid), batches)
            for asked in questions(run, name)
        ]
    try:
        yield Panel(judges, " + ".join(settings.judges))
    finally:
        for backend in backends:
            await backend.close()
        if cache is not None:
            await cache.close()


def _cache(settings: Settings, emit: Emit, read_only: bool) -> ReplyCache | None:
    functions = any(judge.kind_of(name) is judge.FUNCTION for name in settings.judge)
    if not (settings.models or functions) or not settings.cache:
        return None
    from judgeq.judge.cache import ReplyCache  # brings diskcache

    return ReplyCache(
        cache_folder(settings),
        warn=lambda text: emit(Notice(text, warning=True)),
        read_only=read_only,
    )


def _limiter(run: Run, processes: Callable[[], int], stop: Stop, emit: Emit) -> Limiter:
    settings = run.settings
    limiter = Limiter(
        concurrency=settings.concurrency,
        rpm=settings.rpm,
        tpm=settings.tpm,
        notify=lambda text: emit(Notice(text)),
        processes=processes,
    )
    stop.calls(limiter.abort)
    return limiter


def _backend(
    run: Run, name: str, number: int, limiter: Limiter, cache: ReplyCache | None, emit: Emit
) -> Backend:
    recording = judge.recording_of(name)
    if judge.kind_of(name) is judge.FUNCTION:
        return _function(run, name)
    if judge.kind_of(name) is judge.MODEL:
        return _model(run, name, limiter, cache, emit)
    if recording is not None:
        return _recorded(name, recording, run.dataset, emit)
    return _simulated(run.settings, run.dataset, number)


def _function(run: Run, name: str) -> Backend:
    """Raises UsageError where the function isn't given, as by the command line."""
    if run.function is None or run.dataset.texts is None or run.prompt is None:
        raise UsageError(
            f"run {run.folder.id} is judged by a Python function. Continue it from Python: "
            "judgeq.resume(run, judge=function)."
        )
    return FunctionJudge(name, run.function, run.dataset.texts, run.prompt.feature)


def questions(run: Run, name: str) -> list[Questions]:
    """What a judge is asked, as each persona; what people are."""
    if not judge.kind_of(name).reads_text:
        return [Questions()]
    prompt, dataset = run.prompt, run.dataset
    if judge.kind_of(name).is_person:
        return [Questions(prompt, dataset.texts, dataset.ids)]
    personas = [prompt and prompt.as_persona(persona) for persona in run.settings.persona] or [
        prompt
    ]
    reasons = run.settings.reasons
    return [Questions(persona, dataset.texts, dataset.ids, reasons) for persona in personas]


def _recorded(name: str, path: Path, dataset: Dataset, emit: Emit) -> Backend:
    judgments = recordings.read(path, dataset.ids).judgments
    if warning := recordings.too_many_as_presented(judgments):
        emit(Notice(f"--judge {name}: {warning}", warning=True))
    if any(judgment.verdict.partial for judgment in judgments):
        raise UsageError(
            f"--judge {name}: it holds partial rankings, as of best-worst questions, and a judge is "
            "asked for whole ones: `judgeq import` makes a run of them."
        )
    said_by: dict[tuple[int, frozenset[int]], str | None] = {}
    for judgment in judgments:
        if (
            said_by.setdefault((judgment.round, frozenset(judgment.presented)), judgment.judge)
            != judgment.judge
        ):
            raise UsageError(
                f"--judge {name}: several judges were recorded on the same items, and which of them "
                "is to answer is not known: keep the lines of one, or use `judgeq import`."
            )
    return RecordedJudge(name, judgments)


def backend_of(settings: Settings, model: str) -> type[ModelBackend]:
    """The backend that speaks the API that a model is asked in."""
    from judgeq.judge.http.anthropic import AnthropicMessages  # brings aiohttp
    from judgeq.judge.http.openai_chat import OpenAIChat

    return AnthropicMessages if settings.api_of(model) == "anthropic" else OpenAIChat


def _model(
    run: Run,
    name: str,
    limiter: Limiter,
    cache: ReplyCache | None,
    emit: Emit,
    *,
    batch: bool = False,
) -> ModelBackend:
    """A model's backend, for single calls or for batches; it speaks of costs where that is how the run
    is asked."""
    settings = run.settings
    pricing = run.pricing[name]
    if batch is settings.batch:
        for text in (*_on_address(name, settings), *_on_cost(name, settings, pricing)):
            emit(Notice(text))
    else:
        pricing = price_of(settings, name, batch=batch)

    def warn(text: str) -> None:
        if settings.max_cost is not None:
            emit(Notice(text, warning=True))

    backend = backend_of(settings, name)(
        name,
        settings,
        settings,
        pricing,
        ties=run.prompt is not None and run.prompt.ties,
        reasons=settings.reasons,
        connections=settings.concurrency,
        memory=cache,
        believe=limiter.believe,
        warn=warn,
    )
    backend.learn()
    return backend


def check_totals(totals: Totals, cap: float | None) -> None:
    """Raise UsageError where a cap is to be held and what was spent before is unknown."""
    if cap is not None and totals.at_risk is None:
        raise UsageError(
            f"--max-cost {cap:g}: this run has calls of unknown price behind it, so that no cap could "
            "be held. Begin it anew with --new: what was answered comes from the cache, for nothing."
        )


def _on_address(model: str, settings: Settings) -> Iterator[str]:
    """Where a model is asked, unless that is its provider's own address, as everybody expects."""
    address, api = settings.address_of(model), settings.api_of(model)
    named = from_environment(api)
    if settings.base_url is None and named is not None and named != address:
        yield (
            f"{model} is asked at {address}, as the run says, and not where "
            f"${PROVIDERS[api].variable} does: `judgeq run` starts one there."
        )
    elif address in settings.servers:
        yield f"{model} is asked at {address}."


def _on_cost(model: str, settings: Settings, pricing: Pricing | None) -> Iterator[str]:
    if pricing is not None and pricing.assumed:
        price = pricing.price
        yield (
            f"What batches of {model} cost is not known: half of its price is assumed, ${price.input:g} "
            f"and ${price.output:g} for a million tokens in and out."
        )
    if pricing is None:
        yield (
            f"The price of {model} is not known: costs can't be shown, unless the server reports what "
            "each call cost (LiteLLM does). --price IN,OUT (dollars per million tokens) tells it."
        )
    elif settings.max_cost is not None and settings.output_limit is None:
        most = output_bound(settings.reasons)
        if settings.api_of(model) == "anthropic":
            yield (
                f"{model} has to be sent a limit of output tokens, and none is set: it is sent "
                f"{most:,}, and for --max-cost each call is reserved as if it took them "
                f"(${pricing.bound(0, most):.2g}). --max-output-tokens sets it lower."
            )
            return
        yield (
            f"No limit of output tokens is set: for --max-cost each call is reserved as if it took "
            f"{most:,} of them (${pricing.bound(0, most):.2g}). The cap holds as "
            "long as no reply is longer; --max-output-tokens makes that certain."
        )
