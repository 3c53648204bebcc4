"""`judgeq doctor`: is everything there that a run needs? Looks, asks the server once, and tells.

Naming a model costs one tiny call, and one long one where the server is not OpenAI's or Anthropic's
own: it may cut questions off. The key is looked for, and never shown.
"""

from __future__ import annotations

import math
import os
import platform
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from judgeq import prompts, run_places
from judgeq.config import Settings
from judgeq.engine import assembly
from judgeq.errors import (
    CallTimeoutError,
    ConnectionFailedError,
    ContextTooLongError,
    JudgeqError,
    KeyRefusedError,
    SteppedDownError,
    UnusableReplyError,
    UsageError,
)
from judgeq.judge.backend import Reply, Request
from judgeq.judge.http.model_backend import ModelBackend
from judgeq.judge.limiter import RateHeaders
from judgeq.judge.prices import Pricing
from judgeq.judge.questions import advice_for
from judgeq.judge.secrets import api_key, extra_headers
from judgeq.judge.unread import tokens_read
from judgeq.replies import read_reply
from judgeq.settings.providers import ANTHROPIC, OPENAI
from judgeq.text import several
from judgeq.types import Match

LITTLE_SPACE = 1_000_000_000  # bytes
STEPS_DOWN = 4
PAIR = Match(0, 1, (0, 1))
NO_KEY = "none, which a server of your own may not need"
NO_PRICE = "unknown: give --price IN,OUT, or costs can't be shown or capped"
REPORTED = ", as the server reports it; without --price costs are shown, but can't be capped"
TEXTS = ("The council met on Monday.", "The shameful council finally bothered to meet on Monday.")
LONG_SENTENCE = "In minute {} of the meeting the council talked about the budget of the city."
LONG_SENTENCES = 250
"""Of each of two texts: 7,500 words, each a token at least. Ollama reads 4,096 tokens by default."""
REFUSING_ADDRESSES = (OPENAI, ANTHROPIC)
"""There, a question that is too long is refused: it isn't cut off, and need not be tried."""

State = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, and what was found or is to be done."""

    name: str
    state: State
    report: str


STRUCTURED = {
    "schema": Check("structured", "ok", "strict schemas are accepted"),
    "json": Check("structured", "warning", "JSON, but no schemas"),
    "text": Check("structured", "warning", "none"),
}


async def examine(settings: Settings, runs_dir: Path) -> list[Check]:
    """All checks; those of a model only where `settings.judge` names one (the first)."""
    checks = [_program(), _disk(runs_dir), _cache(settings)]
    return [*checks, *await _model(settings)] if settings.models else checks


async def _model(settings: Settings) -> list[Check]:
    """The key, the server, and one tiny question, as a run would ask it."""
    name = settings.judge[0]
    try:
        report = NO_KEY if api_key(name, settings, settings) is None else "there (not shown)"
        extra_headers(settings)
    except JudgeqError as error:
        return [Check("key", "failed", str(error))]
    rates: list[RateHeaders] = []
    pricing = assembly.price_of(settings, name)
    backend = assembly.backend_of(settings, name)(
        name, settings, settings, pricing, believe=rates.append
    )
    key, address = Check("key", "ok", report), Check("address", "ok", f"{backend.address} answers")
    started = time.monotonic()
    whole: list[Check] = []
    try:
        await backend.open()
        reply = await _answer(backend)
        seconds = time.monotonic() - started
        if backend.address not in REFUSING_ADDRESSES:
            whole.append(await _of_long_question(backend))
    except (ConnectionFailedError, CallTimeoutError, UsageError) as error:
        report = f"{backend.address} can't be reached: {error}"
        return [key, Check("address", "failed", report)]
    except KeyRefusedError as error:
        untried = Check("call", "failed", "not tried, see key")
        return [Check("key", "failed", str(error)), address, untried]
    except JudgeqError as error:
        return [key, address, Check("call", "failed", str(error))]
    finally:
        await backend.close()
    of_call = _of_call(reply, backend.mode, seconds, pricing)
    return [key, address, *of_call, *whole, _limits(rates)]


def _program() -> Check:
    parts = (
        f"judgeq {version('judgeq')}",
        f"Python {platform.python_version()}",
        f"SQLite {sqlite3.sqlite_version}",
        f"aiohttp {version('aiohttp')}",
    )
    return Check("program", "ok", ", ".join(parts))


def _disk(folder: Path) -> Check:
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        return Check("disk", "failed", f"{there} can't be written to: set --runs-dir.")
    report = f"{free / 1e9:,.1f} GB free for {folder}"
    kind = run_places.network_file_system(there)
    if kind is not None:
        report += f"; a network file system ({kind}): SQLite is not safe there."
    little = kind is not None or free < LITTLE_SPACE
    return Check("disk", "warning" if little else "ok", report)


def _cache(settings: Settings) -> Check:
    from judgeq.judge import cache as replies  # brings diskcache

    folder = assembly.cache_folder(settings)
    try:
        kept = replies.overview(folder)
    except JudgeqError as error:
        return Check("cache", "failed", str(error))
    found = several(kept.replies, "reply", "replies")
    return Check("cache", "ok", f"{found}, {kept.bytes / 1e6:,.1f} MB in {folder}")


async def _of_long_question(backend: ModelBackend) -> Check:
    """Ask about two long texts, and return whether the server read all of them: some cut a question off
    that is longer than their context, and answer all the same."""
    name = "context"
    sentences = [LONG_SENTENCE.format(minute) for minute in range(LONG_SENTENCES)]
    text = " ".join(sentences)
    words = 2 * len(text.split())
    try:
        reply = await _answer(backend, (text, f"Once more. {text}"))
    except ContextTooLongError:
        report = f"a question of {words:,} words is refused as too long, and not cut off"
        return Check(name, "ok", report)
    except JudgeqError as error:
        return Check(name, "warning", f"a question of {words:,} words got no answer: {error}")
    tokens = tokens_read(reply.usage)
    if not tokens:
        report = "the server doesn't say how many tokens it reads, so no cut-off would be seen"
        return Check(name, "warning", report)
    if tokens < words:
        report = (
            f"the server cuts long questions off: it read {tokens:,} tokens of {words:,} words, and "
            "answered. Raise its context length (Ollama: OLLAMA_CONTEXT_LENGTH)"
        )
        return Check(name, "failed", report)
    return Check(name, "ok", f"a question of {words:,} words was read whole: {tokens:,} tokens")


async def _answer(backend: ModelBackend, texts: Sequence[str] = TEXTS) -> Reply:
    prompt = prompts.load("bias")
    request = Request(PAIR, 1, 1, lambda: prompts.messages(prompt, texts))
    for _ in range(STEPS_DOWN):
        with suppress(SteppedDownError):
            return await backend.complete(request, backend.prepare(request))
    return await backend.complete(request, backend.prepare(request))


def _of_call(reply: Reply, mode: str, seconds: float, pricing: Pricing | None) -> Iterator[Check]:
    usage, structured = reply.usage, STRUCTURED[mode]
    tokens = f"{usage.input + usage.cached:,} tokens in, {usage.output:,} out"
    if usage.reasoning:
        tokens += f" ({usage.reasoning:,} of them reasoning)"
    try:
        if reply.problem is not None:
            raise UnusableReplyError(reply.problem)
        read_reply(reply.text, PAIR)
    except UnusableReplyError as error:
        yield Check(
            "call",
            "failed",
            f"answered in {seconds:.1f} s, but not usably: {error} {advice_for(str(error))}",
        )
        if mode == "schema":
            structured = Check("structured", "warning", "not known, as the reply is not usable")
    else:
        yield Check("call", "ok", f"answered in {seconds:.1f} s; {tokens}")
    state: State = "ok" if reply.cost is not None and pricing is not None else "warning"
    report = NO_PRICE if reply.cost is None else f"${reply.cost:.6f} for this call"
    if reply.cost is not None:
        if pricing is None:
            report += REPORTED
        elif math.isclose(reply.cost, pricing.cost(reply.usage)):
            report += f" ({pricing.source})"
        else:
            report += f", as the server reports it (not by {pricing.source})"
    yield Check("price", state, report)
    yield structured


def _limits(rates: list[RateHeaders]) -> Check:
    found = []
    for last in rates[-1:]:
        named = {"requests a minute": last.requests_limit, "tokens a minute": last.tokens_limit}
        found = [f"{limit:,.0f} {what}" for what, limit in named.items() if limit is not None]
    none = "the server reports none: set --rpm and --tpm if you know them"
    return Check("limits", "ok", ", ".join(found) or none)
