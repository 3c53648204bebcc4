"""`judgeq doctor`: is everything there that a run needs? Looks, asks the server once, and tells.

Naming a model costs one tiny call. The key is looked for, and never shown.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, urlsplit

from judgeq import asking, prompts, runs
from judgeq.config import Settings
from judgeq.errors import JudgeqError, SteppedDownError, UnusableReplyError
from judgeq.judge import cache_folder
from judgeq.judge.backend import Reply, Request
from judgeq.judge.limiter import RateHeaders
from judgeq.judge.model import api_key, extra_headers
from judgeq.judge.openai_chat import OpenAIChat, proxy_for, tls_of
from judgeq.judge.prices import Pricing
from judgeq.types import Match

LITTLE_SPACE = 1_000_000_000  # bytes
CLOCK_OFF = 60.0  # seconds
STEPS_DOWN = 4
TEXTS = ("The council met on Monday.", "The shameful council finally bothered to meet on Monday.")


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, and what was found or is to be done."""

    name: str
    state: Literal["ok", "warning", "failed"]
    told: str


async def examine(settings: Settings, runs_dir: Path) -> list[Check]:
    """All checks; those of a model only where `settings.judge` names one (the first)."""
    checks = [_program(), _disk(runs_dir), _cache(settings)]
    if not settings.models:
        return checks
    checks.append(key := _key(settings))
    if key.state == "failed":
        return checks
    pricing = asking.price_of(settings, settings.judge[0])
    checks += [check async for check in _listed(settings)]
    checks += [check async for check in _asked(settings, pricing)]
    return checks


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
    told = f"{free / 1e9:,.1f} GB free for {folder}"
    if not os.access(there, os.W_OK):
        return Check("disk", "failed", f"{there} can't be written to: set --runs-dir.")
    kind = runs.network_file_system(there)
    if kind is not None:
        return Check(
            "disk", "warning", f"{told}; a network file system ({kind}): SQLite is not safe there."
        )
    return Check("disk", "warning" if free < LITTLE_SPACE else "ok", told)


def _cache(settings: Settings) -> Check:
    folder = asking.cache_folder(settings)
    try:
        found = cache_folder.overview(folder)
    except JudgeqError as error:
        return Check("cache", "failed", str(error))
    return Check(
        "cache", "ok", f"{found.entries:,} replies, {found.bytes / 1e6:,.1f} MB in {folder}"
    )


def _key(settings: Settings) -> Check:
    try:
        key = api_key(settings, settings)
        extra_headers(settings)
    except JudgeqError as error:
        return Check("key", "failed", str(error))
    if key is None:
        return Check("key", "ok", "none, which a server of your own may not need")
    return Check("key", "ok", "there (not shown)")


async def _listed(settings: Settings) -> AsyncIterator[Check]:
    """Whether the server answers, knows the model, and agrees on the time: by the openai package."""
    import openai

    parts = urlsplit(settings.address)
    client = openai.AsyncOpenAI(
        api_key=api_key(settings, settings) or "none",
        base_url=parts._replace(query="").geturl(),
        default_query=dict(parse_qsl(parts.query)),
        default_headers=extra_headers(settings),
        max_retries=0,
        timeout=settings.connect_timeout * 3,
        http_client=openai.DefaultAsyncHttpxClient(
            proxy=proxy_for(settings.address, settings), verify=tls_of(settings)
        ),
    )
    try:
        raw = await client.models.with_raw_response.list()
        names = [model.id for model in raw.parse().data]
        date = raw.headers.get("date")
    except openai.APIConnectionError as error:
        yield Check("address", "failed", f"{settings.address} can't be reached: {error.__cause__}")
        return
    except openai.AuthenticationError:
        yield Check("address", "ok", f"{settings.address} answers")
        yield Check("key", "failed", "the server doesn't accept it")
        return
    except openai.OpenAIError as error:
        yield Check("address", "ok", f"{settings.address} answers")
        said = type(error).__name__
        yield Check("model", "warning", f"the server doesn't list its models ({said})")
        return
    finally:
        await client.close()
    yield Check("address", "ok", f"{settings.address} answers")
    yield _model(settings.judge[0], names)
    yield from_clock(date, time.time())


def _model(name: str, names: list[str]) -> Check:
    if name in names:
        return Check("model", "ok", f"{name} is known to the server")
    near = get_close_matches(name, names, 3)
    known = near or names[:5]
    return Check(
        "model",
        "warning",
        f"{name} is not among the server's {len(names)} models"
        + (f"; there is {', '.join(known)}" if known else ""),
    )


def from_clock(date: str | None, now: float) -> Check:
    """How far the clock here is from the server's, by its Date header."""
    try:
        theirs = parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        return Check("clock", "ok", "the server doesn't tell the time")
    off = now - theirs
    told = f"{abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the server's"
    return Check("clock", "ok" if abs(off) < CLOCK_OFF else "warning", told)


async def _asked(settings: Settings, pricing: Pricing | None) -> AsyncIterator[Check]:
    """One tiny question, as a run would ask it."""
    rates: list[RateHeaders] = []
    backend = OpenAIChat(settings.judge[0], settings, settings, pricing, believe=rates.append)
    started = time.monotonic()
    try:
        await backend.open()
        reply = await _answer(backend)
    except JudgeqError as error:
        yield Check("call", "failed", str(error))
        return
    finally:
        await backend.close()
    seconds = time.monotonic() - started
    for check in _told(reply, backend.mode, seconds, pricing):
        yield check
    yield _limits(rates)


async def _answer(backend: OpenAIChat) -> Reply:
    prompt = prompts.load("bias")
    match = Match(0, 1, (0, 1))
    request = Request(match, 1, 1, lambda: prompts.messages(prompt, TEXTS))
    for _ in range(STEPS_DOWN):
        try:
            return await backend.complete(request, backend.prepare(request))
        except SteppedDownError as error:
            last = error
    raise last


def _told(reply: Reply, mode: str, seconds: float, pricing: Pricing | None) -> Iterator[Check]:
    usage = reply.usage
    tokens = f"{usage.input + usage.cached:,} tokens in, {usage.output:,} out"
    if usage.reasoning:
        tokens += f" ({usage.reasoning:,} of them reasoning)"
    try:
        if reply.problem is not None:
            raise UnusableReplyError(reply.problem)
        prompts.parse(reply.text, Match(0, 1, (0, 1)))
    except UnusableReplyError as error:
        yield Check("call", "failed", f"answered in {seconds:.1f} s, but not usably: {error}")
    else:
        yield Check("call", "ok", f"answered in {seconds:.1f} s; {tokens}")
    if reply.cost is None:
        told = "unknown: give --price-in and --price-out, or costs can't be shown or capped"
        yield Check("price", "warning", told)
    else:
        source = f" ({pricing.source})" if pricing else ""
        yield Check("price", "ok", f"${reply.cost:.6f} for this call{source}")
    does = {"schema": "strict schemas", "json": "JSON, but no schemas", "text": "none"}
    yield Check("structured", "ok" if mode == "schema" else "warning", does[mode])


def _limits(rates: list[RateHeaders]) -> Check:
    if not rates:
        return Check("limits", "ok", "the server tells none: set --rpm and --tpm if you know them")
    last = rates[-1]
    parts = [
        f"{limit:,.0f} {what} a minute"
        for limit, what in ((last.requests_limit, "requests"), (last.tokens_limit, "tokens"))
        if limit is not None
    ]
    return Check("limits", "ok", ", ".join(parts) or "told only in part")
