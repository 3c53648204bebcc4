"""What a run, and a session of one, are made of; and judges, ready to be asked: backend, limits, budget
and cache together."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from judgeq import judge, prompts
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.datasets.dataset import tokens_of, without_alone, without_long
from judgeq.engine.interrupts import Stop
from judgeq.errors import DataError, UsageError
from judgeq.events import Emit, Notice
from judgeq.files import user_cache
from judgeq.judge import prices
from judgeq.judge.backend import Backend
from judgeq.judge.budget import NANO, Allowance, Budget, Slices
from judgeq.judge.function import FunctionJudge, JudgeFunction
from judgeq.judge.judge import Judge
from judgeq.judge.limiter import Limiter
from judgeq.judge.panel import Panel
from judgeq.judge.prices import Pricing, answer_tokens, output_bound
from judgeq.judge.questions import Questions, Unusable
from judgeq.judge.secrets import api_key, extra_headers
from judgeq.judge.simulated import SimulatedJudge, rehearsal_scores, scores_of, seen_scores
from judgeq.judge.unread import ReadingCheck
from judgeq.people.people import People
from judgeq.prompts import PromptSet
from judgeq.run_places import RunPlace
from judgeq.settings.model import Access
from judgeq.store import Items, Store
from judgeq.strategies import Strategy
from judgeq.text import several
from judgeq.types import Batch, Floats, Totals

if TYPE_CHECKING:
    from judgeq.engine.onto import Onto
    from judgeq.judge.http.model_backend import ModelBackend

SURCHARGED = frozenset({"speed", "inference_geo", "cache_control", "models", "route"})
"""Fields of --extra-body by which tokens cost more than genai-prices knows: Anthropic's speed, place and
writing to its cache (1.25 or 2 times the price), and OpenRouter's other models to fall back on. With
them a price has to be given."""
OFF = (None, False)
"""Values by which a field asks for nothing; an empty object asks for all defaults."""
FEES = frozenset(
    {
        *(
            "web_search_options",
            "web_search",
            "enable_search",
            "search_parameters",
            "search_options",
        ),
        *("plugins", "tools", "mcp_servers", "container", "functions", "connectors"),
        *("modalities", "audio", "prediction"),
    }
)
"""Fields of --extra-body for which providers bill by the request, or tokens that no limit bounds: web
search and its results, OpenRouter's plugins, tools that run at the provider, speech, and predicted
outputs that are thrown away. No price of tokens covers them."""
NAMED = 5
"""So many of the texts that are too long are named, the longest first."""
Page = Callable[[People], AbstractAsyncContextManager[None]]
"""What opens a page, or a terminal, on which people answer while it is entered."""
Prices = Mapping[str, Pricing | None]
"""What a call is priced by, by model; None where that is unknown."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run as settings describe it: all that is known before anything is written or asked. `known` are
    the rankings that people are held against."""

    settings: Settings
    dataset: Dataset
    strategy: Strategy
    prompt: PromptSet | None
    pricing: Prices
    facts: Mapping[str, Any]
    folder: RunPlace
    known: Sequence[tuple[int, ...]] = ()
    function: JudgeFunction | None = None
    """The judge that is a Python function."""
    onto: Onto | None = None
    """Where a run begins that is placed onto settled ones, until that is written."""
    grown: str = ""
    """That some of its texts were judged before."""
    others: tuple[str, ...] = ()
    """Judges of settled runs that aren't asked any more; their numbers follow those of the run's own."""

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges' names by their numbers."""
        return (*self.settings.judges, *self.others)

    @property
    def rounds(self) -> int:
        """How many rounds of its own it has, at most."""
        return self.strategy.rounds - self.strategy.before

    @property
    def items(self) -> Items:
        """What the store knows of the dataset."""
        dataset, gold = self.dataset, self.dataset.gold
        none = gold is None or np.isnan(gold).all()
        return Items(dataset.ids, None if none else gold, dataset.subsets, dataset.groups)


@dataclass(frozen=True, slots=True, eq=False)
class Session:
    """A run, open: its store and its judges, until it is finished or stopped."""

    run: Run
    store: Store
    judge: Panel
    stop: Stop
    emit: Emit
    people: People | None = None
    page: Page | None = None


def fitted(
    settings: Settings, dataset: Dataset, prompt: PromptSet | None
) -> tuple[Settings, Dataset]:
    """The settings and the items without texts that are too long for a model, where these are to be
    skipped. Which texts meet is decided later: so the longest are left out until the k longest of the
    others fit together with the prompt and the reply.

    Raises DataError naming the texts where it isn't said what to do with them.
    """
    texts, strategy = dataset.texts, settings.make_strategy()
    if texts is None or prompt is None or settings.skip_long is False or not settings.models:
        return settings, dataset
    k = getattr(strategy, "k", 2 if strategy.pairs else 1)
    parts = prompts.messages(prompt, [""] * k, reasons=settings.reasons)
    asked = tokens_of("".join(part["content"] for part in parts))
    rooms = [_room(settings, name, k) for name in settings.models]
    room, reads, model = min((one for one in rooms if one[1]), default=(math.inf, 0, ""))
    tokens = np.fromiter(map(tokens_of, texts), np.float64, len(texts))
    longest = longest_of(tokens, k, room - asked)
    if longest >= tokens.max(initial=0):
        return settings, dataset
    if settings.skip_long and longest >= 0:
        settings = settings.model_copy(update={"longest_text": longest})
        return settings, without_alone(without_long(dataset, longest))
    long = np.argsort(-tokens, kind="stable")[: int((tokens > longest).sum())]
    names = [f"{dataset.ids[i]!r} (about {round(tokens[i]):,} tokens)" for i in long[:NAMED]]
    raise DataError(
        f"{several(len(long), 'text')} of {len(dataset):,} may be too long for {model}, which reads "
        f"{reads:,} tokens: the prompt, the reply and any {several(k, 'text')} together. They are "
        f"{', '.join(names)}{', …' if len(long) > NAMED else ''}.\n--skip-long leaves them out, "
        "--no-skip-long asks all the same. To keep all: smaller lists, or a model that reads more."
    )


def _room(settings: Settings, model: str, k: int) -> tuple[float, int, str]:
    """The tokens that a model leaves for a question about k texts, all that it reads (0: unknown), and
    its name."""
    reads = prices.context_window(settings.id_of(model), settings.address_of(model)) or 0
    reply = settings.output_limit or answer_tokens(k, settings.reasons)
    if settings.output_limit is None and settings.api_of(model) == "anthropic":
        reply = output_bound(settings.reasons)  # which is sent as its limit
    return reads - reply, reads, model


def longest_of(tokens: Floats, k: int, room: float) -> float:
    """The longest that a text may be, in tokens, so that any k of them fit; -1 if none may."""
    sizes = -np.sort(-tokens)
    upto = np.concatenate([[0.0], np.cumsum(sizes)])
    ends = np.minimum(np.arange(len(sizes)) + k, len(sizes))
    too_much = int((upto[ends] - upto[:-1] > room).sum())  # of the first so many, with those after
    rest = sizes[sizes < sizes[too_much - 1]] if too_much else sizes
    return float(rest[0]) if len(rest) else -1.0


def check(settings: Settings, dataset: Dataset, prompt: PromptSet | None) -> Prices:
    """What a call of each model is priced by. Opens nothing and asks nobody.

    Raises UsageError or DataError for a judge that can't judge the dataset.
    """
    kinds = [judge.kind_of(name) for name in settings.judge]
    reads_text = any(kind.reads_text for kind in kinds)
    if dataset.texts is None and (reads_text or settings.rehearsal):
        raise DataError(dataset.missing_texts)
    if judge.SIMULATED in kinds:
        _simulated(settings, dataset, 0)
    if reads_text and prompt is None:
        raise UsageError(
            "It isn't said what to judge: name a prompt set with --prompt (`judgeq list prompts` shows "
            'them), or the feature: --feature "how urgent the message is".'
        )
    known = {name: price_of(settings, name, batch=settings.batch) for name in settings.models}
    if settings.max_cost is not None:
        _check_fees(settings, settings.max_cost)
        _check_prices(known, settings.max_cost, settings)
    return known


def check_names(settings: Settings) -> None:
    """Raise UsageError for a model whose name looks misspelt, before anything is paid for it.

    A price says that it is meant: a new model is in no table yet.
    """
    for name in settings.models:
        if settings.price is not None or name in settings.prices:
            continue
        model = settings.id_of(name)
        near = prices.near_name(model, settings.address_of(name))
        if near is not None:
            meant = f"{name.removesuffix(model)}{near}"
            raise UsageError(
                f"--judge {name}: no such model is known at {settings.address_of(name)}. Did you mean "
                f"{meant}? If it is a new one, give its --price IN,OUT (dollars per million tokens)."
            )


def _check_prices(known: Prices, cap: float, settings: Settings) -> None:
    """Raise UsageError where a cap is to be held and the price of a model is unknown."""
    for name in [name for name, pricing in known.items() if pricing is None]:
        raise UsageError(
            f"--max-cost {cap:g}: the price of {name} is unknown, so no cap can be kept. Give "
            f"--price IN,OUT (dollars per million tokens).{price_hint(settings, name)}"
        )


def price_hint(settings: Settings, name: str) -> str:
    """Return what a model behind --base-url costs at those who sell it; "" where nobody is known to."""
    sold = prices.elsewhere(settings.id_of(name), datetime.now(UTC))
    if sold is None:
        return ""
    seller, price = sold
    parts = [price.input, price.output, *([] if price.cached is None else [price.cached])]
    return f" At {seller} it costs --price {','.join(f'{part:g}' for part in parts)}."


def _check_fees(settings: Settings, cap: float) -> None:
    """Raise UsageError where requests cost more than their tokens, which no cap could hold."""
    fees = fee_fields(settings.extra_body or {})
    if fees:
        raise UsageError(
            f"--max-cost {cap:g}: the provider may charge for {', '.join(fees)} of --extra-body beside "
            "tokens, so no cap can be kept. Leave it out, or leave --max-cost out."
        )
    online = [name for name in settings.models if settings.id_of(name).endswith(":online")]
    if online:
        raise UsageError(
            f"--max-cost {cap:g}: {online[0]} searches the web, at a price beside tokens, so no cap can "
            "be kept. Take it without :online, or leave --max-cost out."
        )


def fee_fields(value: object) -> list[str]:
    """Return the fields, wherever they stand in a body, for which more than tokens is billed."""
    found = dict[str, None]()
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        found.update(
            dict.fromkeys(name for name, of in value.items() if name in FEES and of not in OFF)
        )
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    for part in inner:
        found.update(dict.fromkeys(fee_fields(part)))
    return [*found]


def _has_surcharge(value: object) -> bool:
    """Return whether a body asks for what makes tokens dearer, wherever that stands in it."""
    if isinstance(value, dict):
        return bool(SURCHARGED & value.keys()) or any(map(_has_surcharge, value.values()))
    return isinstance(value, list) and any(map(_has_surcharge, value))


def price_of(settings: Settings, model: str, *, batch: bool = False) -> Pricing | None:
    """What a call of a model, or of a batch, is priced by today; None where that is unknown."""
    extra = settings.extra_body or {}
    unpriced = settings.price is None and model not in settings.prices
    if unpriced and (_has_surcharge(extra) or fee_fields(extra)):
        return None
    return prices.find(
        model,
        model_id=settings.id_of(model),
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


def cache_folder(settings: Access) -> Path:
    """Where replies are kept for all runs."""
    return settings.cache_dir or user_cache() / "replies"


def questions(run: Run, name: str) -> list[Questions]:
    """What a judge is asked, as each persona; what people are."""
    prompt, dataset, settings = run.prompt, run.dataset, run.settings
    kind = judge.kind_of(name)
    if not kind.reads_text:
        return [Questions()]
    if kind.is_person:
        return [Questions(prompt, dataset.texts, dataset.ids)]
    asked = [prompt and prompt.as_persona(persona) for persona in settings.persona] or [prompt]
    return [Questions(one, dataset.texts, dataset.ids, settings.reasons) for one in asked]


# The judges of a session


async def out_of(store: Store) -> list[Batch]:
    """The batches of a run that are out, in the order in which they were made."""
    return [batch for batch in await store.batches() if batch.open]


@asynccontextmanager
async def panel(
    run: Run,
    stop: Stop,
    emit: Emit,
    store: Store | None = None,
    *,
    look_only: bool = False,
    allowance: Allowance | None = None,
) -> AsyncIterator[Panel]:
    """The judges of a session, let go of when left. With `look_only`, or where others ask (`--workers
    0`), nothing is written to the cache's folder.

    Processes that share a `store` share its cap, and divide the servers' limits. None spends more than
    its `allowance`, by default this user's own cap: whoever can write to the store can change the
    shared one. Judges have the budget and the cache in common; one model asked as several personas has
    one limiter, for its provider counts all of it together.
    """

    settings, cache, out = run.settings, None, list[Batch]()
    is_worker = allowance is not None  # of its own process, which may start beside its server
    async with AsyncExitStack() as stack:
        shared = None
        if store is not None and store.keeper is not None and not look_only:
            shared = Slices(store.keeper, notify=partial(_warn, emit))
            await shared.open()
            stack.push_async_callback(shared.close)
            if allowance is not None and shared.cap is not None:
                _check_fees(settings, shared.cap / NANO)
                _check_prices(run.pricing, shared.cap / NANO, settings)
        if allowance is None:
            totals = Totals() if store is None else await store.totals()
            out = [] if store is None else await out_of(store)
            allowance = _allowance(settings.max_cost, totals, out, shared is not None)
        budget = Budget(allowance, shared)
        stop.calls(budget.abort)
        kinds = [judge.kind_of(name) for name in settings.judge]
        if settings.cache and (settings.models or judge.FUNCTION in kinds):
            from judgeq.judge.cache import ReplyCache  # brings diskcache

            read_only = look_only or not settings.workers
            folder = cache_folder(settings)
            cache = ReplyCache(folder, warn=partial(_warn, emit), read_only=read_only)
            stack.push_async_callback(cache.close)
        judges = list[Judge | None]()
        for number, name in enumerate(settings.judge):
            kind = kinds[number]
            if kind.is_person:
                judges.append(None)  # who are handed questions (people.py)
                continue
            limiter = Limiter(
                concurrency=settings.concurrency,
                rpm=settings.rpm,
                tpm=settings.tpm,
                notify=lambda text: emit(Notice(text)),
                processes=lambda: 1 if store is None else store.processes,
            )
            stop.calls(limiter.abort)
            backend, batches = _backend(run, number, limiter, emit), None
            stack.push_async_callback(backend.close)
            if settings.models and (settings.batch or out):
                batches = _model(run, name, limiter, emit, batch=True)
                stack.push_async_callback(batches.close)
            asked_as = questions(run, name)
            if store is not None and kind is judge.MODEL:
                numbers = range(len(judges), len(judges) + len(asked_as))
                for model in (cast("ModelBackend", backend), batches):
                    if model is not None:
                        await model.recall_overpricing(store, numbers)
            shares = (emit, stop.sleep, limiter, budget, cache)
            judges += [
                Judge(
                    asked,
                    backend,
                    *shares,
                    Unusable(settings.max_invalid),
                    ReadingCheck(
                        name,
                        stops=settings.check_reading and kind is not judge.SIMULATED,
                        both_orders=settings.both_orders,
                    ),
                    batches,
                    awaits_server=is_worker,
                )
                for asked in asked_as
            ]
        yield Panel(judges, " + ".join(settings.judges))


def _allowance(cap: float | None, totals: Totals, out: Sequence[Batch], shared: bool) -> Allowance:
    """What this user's own cap leaves after what was spent before, which several processes keep count of
    where it is `shared`. What batches hold that are still `out` will be settled."""
    if cap is not None and totals.at_risk is None:
        raise UsageError(
            f"--max-cost {cap:g}: earlier calls of this run have an unknown price: no cap can be kept. "
            "Start again with --new: answers come from the cache, for nothing."
        )
    reserved = sum(round((batch.at_risk or 0.0) * NANO) for batch in out) / NANO
    if shared:
        return Allowance(cap, reserved=reserved)
    lost = max(0.0, (totals.at_risk or 0.0) - reserved)
    return Allowance(cap, totals.cost, lost, reserved=reserved)


def _warn(emit: Emit, text: str) -> None:
    emit(Notice(text, warning=True))


def _backend(run: Run, number: int, limiter: Limiter, emit: Emit) -> Backend:
    """The backend of a judge by its number. Raises UsageError for a function that isn't given, as by the
    command line."""
    name = run.settings.judge[number]
    kind = judge.kind_of(name)
    if kind is judge.MODEL:
        return _model(run, name, limiter, emit)
    if kind is not judge.FUNCTION:
        return _simulated(run.settings, run.dataset, number)
    if run.function is None or run.dataset.texts is None or run.prompt is None:
        raise UsageError(
            f"run {run.folder.id} is judged by a Python function. Continue it from Python: "
            "judgeq.resume(run, judge=function)."
        )
    return FunctionJudge(name, run.function, run.dataset.texts, run.prompt.feature)


def backend_of(settings: Settings, model: str) -> type[ModelBackend]:
    """The backend that speaks the API that a model is asked in."""
    from judgeq.judge.http.anthropic import AnthropicMessages  # brings aiohttp
    from judgeq.judge.http.openai import OpenAIChat

    return AnthropicMessages if settings.api_of(model) == "anthropic" else OpenAIChat


def _model(
    run: Run,
    name: str,
    limiter: Limiter,
    emit: Emit,
    *,
    batch: bool = False,
) -> ModelBackend:
    """A model's backend, for single calls or for batches; it speaks of costs where that is how the run
    is asked."""
    settings = run.settings
    pricing = run.pricing[name]
    if batch is settings.batch:
        for text in _notices(name, settings, pricing):
            emit(Notice(text))
    else:
        pricing = price_of(settings, name, batch=batch)

    return backend_of(settings, name)(
        name,
        settings,
        settings,
        pricing,
        ties=run.prompt is not None and run.prompt.ties,
        reasons=settings.reasons,
        connections=settings.concurrency,
        believe=limiter.believe,
        warn=(lambda text: None) if settings.max_cost is None else partial(_warn, emit),
    )


def _notices(model: str, settings: Settings, pricing: Pricing | None) -> Iterator[str]:
    """Where a model is asked and at what price, and what to know of the cap."""
    address = settings.address_of(model)
    yield f"{model} is asked at {address}."
    if pricing is None:
        yield (
            f"No price known for {model}: costs won't be shown, unless the server reports them. Give "
            f"--price IN,OUT (dollars per million tokens).{price_hint(settings, model)}"
        )
    elif pricing.share < 1:
        yield f"No batch price known for {model}: half of its price is assumed."
    if pricing is not None and settings.max_cost is not None and settings.output_limit is None:
        most = output_bound(settings.reasons)
        yield (
            f"No output limit is set, so each call reserves ${pricing.bound(0, most):.2g} ({most:,} "
            "tokens) of --max-cost. Set --max-output-tokens to reserve less."
        )


def _simulated(settings: Settings, dataset: Dataset, number: int) -> Backend:
    if settings.rehearsal:
        scores = rehearsal_scores(dataset.texts or ())
    else:
        scores = scores_of(dataset, settings, settings.seed)
    return SimulatedJudge(
        seen_scores(scores, settings, settings.seed, number),
        settings,
        settings.seed,
        number,
        latency=settings.sim_latency,
        reasons=settings.reasons,
        name=settings.judge[number],
    )
