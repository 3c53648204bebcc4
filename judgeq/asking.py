"""From settings to a judge that can be asked: backend, limits, budget and cache put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from judgeq import judge, recordings
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.errors import DataError, UsageError
from judgeq.judge import prices
from judgeq.judge.backend import Backend
from judgeq.judge.budget import Budget
from judgeq.judge.cache import ReplyCache, key
from judgeq.judge.judge import Judge
from judgeq.judge.limiter import Limiter
from judgeq.judge.model import OUTPUT_BOUND, Access, api_key, extra_headers
from judgeq.judge.panel import Panel
from judgeq.judge.prices import Pricing
from judgeq.judge.recorded import RecordedJudge
from judgeq.paths import user_cache
from judgeq.prompts import PromptSet
from judgeq.queue import Stop
from judgeq.types import Event, Notice, Totals

Emit = Callable[[Event], None]
Prices = Mapping[str, Pricing | None]
"""What a call is priced by, by model; None where that is unknown."""


def check(settings: Settings, dataset: Dataset, prompt: PromptSet | None) -> Prices:
    """What a call of each model is priced by. Opens nothing and asks nobody.

    Raises UsageError or DataError for a judge that can't judge the dataset.
    """
    for number, name in enumerate(settings.judge):
        if name == "simulated":
            _simulated(settings, dataset, number)
    if not settings.models:
        return {}
    if dataset.texts is None:
        raise DataError(dataset.missing_texts)
    if prompt is None:
        raise UsageError(
            "a model needs to be told what to judge: name a prompt set with --prompt (`judgeq "
            'prompts` lists them), or the feature: --feature "how urgent is the message".'
        )
    found = {name: price_of(settings, name) for name in settings.judge if judge.is_model(name)}
    for name, pricing in found.items():
        if settings.max_cost is not None and pricing is None:
            raise UsageError(
                f"--max-cost {settings.max_cost:g}: the price of {name} is not known, so that no cap "
                "could be held. Give --price-in and --price-out (dollars per million tokens)."
            )
    return found


def price_of(settings: Settings, model: str) -> Pricing | None:
    """What a call of a model is priced by today; None where that is unknown."""
    return prices.find(
        model,
        base_url=settings.address,
        flat=settings.price,
        table=settings.prices,
        service_tier=settings.service_tier,
        at=datetime.now(UTC),
    )


def check_access(settings: Settings) -> None:
    """Raise KeyMissingError or UsageError for a key or header that can't be had."""
    if settings.models:
        api_key(settings, settings)
        extra_headers(settings)


def _simulated(settings: Settings, dataset: Dataset, number: int) -> Backend:
    return judge.make_simulated(
        settings,
        settings,
        latent=dataset.latent,
        gold=dataset.gold,
        synthetic=dataset.source == "synthetic",
        seed=settings.seed,
        sleep=asyncio.sleep,
        number=number,
    )


def cache_folder(settings: Access) -> Path:
    """Where replies are kept for all runs."""
    return settings.cache_dir or user_cache() / "replies"


@asynccontextmanager
async def panel(
    settings: Settings,
    dataset: Dataset,
    prompt: PromptSet | None,
    pricing: Prices,
    totals: Totals,
    stop: Stop,
    emit: Emit,
) -> AsyncIterator[Panel]:
    """The judges of a sitting; `totals` are what earlier ones spent. Let go of when left.

    Judges have the budget and the cache in common; one model asked as several personas has one
    limiter, for its provider counts all of it together.
    """
    budget = Budget(settings.max_cost, spent_at_most(totals, settings.max_cost))
    stop.tells(budget.abort)
    cache: ReplyCache | None = None
    if settings.models and settings.cache:
        cache = ReplyCache(
            cache_folder(settings), tell=lambda text: emit(Notice(text, warning=True))
        )
    backends: list[tuple[Backend, Limiter]] = []
    for number, name in enumerate(settings.judge):
        limiter = Limiter(
            concurrency=settings.concurrency,
            rpm=settings.rpm,
            tpm=settings.tpm,
            tell=lambda text: emit(Notice(text)),
        )
        stop.tells(limiter.abort)
        if judge.is_model(name):
            priced = pricing[name]
            backend = await _model(name, settings, prompt, priced, limiter, cache)
            for text in _to_be_told(name, settings, priced):
                emit(Notice(text))
        else:
            backend = _without_model(name, settings, dataset, number)
        backends.append((backend, limiter))
    personas = [prompt and prompt.as_persona(name) for name in settings.persona] or [prompt]
    judges = [
        Judge(
            backend=backend,
            prompt=asked,
            texts=dataset.texts,
            emit=emit,
            sleep=stop.sleep,
            ids=dataset.ids,
            limiter=limiter,
            budget=budget,
            cache=cache if backend.reads_text else None,
        )
        for backend, limiter in backends
        for asked in personas
    ]
    try:
        yield Panel(judges, " + ".join(settings.judges))
    finally:
        for backend, _ in backends:
            await backend.close()
        if cache is not None:
            await cache.close()


def _without_model(name: str, settings: Settings, dataset: Dataset, number: int) -> Backend:
    path = judge.recording_of(name)
    if path is None:
        return _simulated(settings, dataset, number)
    judgments = recordings.read(path, dataset.ids)
    said_by: dict[tuple[int, frozenset[int]], str | None] = {}
    for each in judgments:
        if said_by.setdefault((each.round, frozenset(each.presented)), each.judge) != each.judge:
            raise UsageError(
                f"--judge {name}: several judges were recorded on the same items, and which of them "
                "is to answer can't be told: keep the lines of one, or use `judgeq import`."
            )
    return RecordedJudge(name, judgments)


async def _model(
    name: str,
    settings: Settings,
    prompt: PromptSet | None,
    pricing: Pricing | None,
    limiter: Limiter,
    cache: ReplyCache | None,
) -> Backend:
    from judgeq.judge.openai_chat import OpenAIChat  # brings aiohttp

    backend = OpenAIChat(
        name,
        settings,
        settings,
        pricing,
        ties=prompt is not None and prompt.ties,
        connections=settings.concurrency,
        believe=limiter.believe,
    )
    if cache is not None:
        backend.key, backend.recall, backend.remember = key, cache.recall, cache.remember
        await backend.learn()
    return backend


def spent_at_most(totals: Totals, cap: float | None) -> float:
    """What earlier sittings spent, with what they may have paid for without an answer.

    Raises UsageError where a cap is to be held and that is unknown.
    """
    if totals.at_risk is None:
        if cap is not None:
            raise UsageError(
                f"--max-cost {cap:g}: this run has calls of unknown price behind it, so that no cap "
                "could be held. Begin it anew with --new: what was answered comes from the cache, "
                "for nothing."
            )
        return totals.cost
    return totals.cost + totals.at_risk


def _to_be_told(model: str, settings: Settings, pricing: Pricing | None) -> Iterator[str]:
    if pricing is None:
        yield (
            f"The price of {model} is not known: costs can't be shown. --price-in and "
            "--price-out (dollars per million tokens) tell it."
        )
    elif settings.max_cost is not None and settings.output_limit is None:
        yield (
            f"No limit of output tokens is set: for --max-cost each call is reserved as if it took "
            f"{OUTPUT_BOUND:,} of them (${pricing.bound(0, OUTPUT_BOUND):.2g}). The cap holds as "
            "long as no reply is longer; --max-output-tokens makes that certain."
        )
