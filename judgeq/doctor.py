"""`judgeq doctor`: is everything there that a run needs? Looks, asks the server once, and tells.

Naming a model costs one tiny call. The key is looked for, and never shown.
"""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from judgeq import prompts, runs
from judgeq.config import Settings
from judgeq.engine import assembly
from judgeq.errors import (
    CallTimeoutError,
    ConnectionFailedError,
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
from judgeq.judge.secrets import api_key, extra_headers
from judgeq.text import several
from judgeq.types import Match

LITTLE_SPACE = 1_000_000_000  # bytes
CLOCK_OFF = 60.0  # seconds
LISTED_WITHIN = 30.0  # seconds
STEPS_DOWN = 4
PAIR = Match(0, 1, (0, 1))
NO_KEY = "none, which a server of your own may not need"
REFUSED_KEY = "there (not shown), but the server doesn't accept it"
TEXTS = ("The council met on Monday.", "The shameful council finally bothered to meet on Monday.")


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, and what was found or is to be done."""

    name: str
    state: Literal["ok", "warning", "failed"]
    report: str


STRUCTURED = {
    "schema": Check("structured", "ok", "strict schemas are accepted"),
    "json": Check("structured", "warning", "JSON, but no schemas"),
    "text": Check("structured", "warning", "none"),
}


async def examine(settings: Settings, runs_dir: Path) -> list[Check]:
    """All checks; those of a model only where `settings.judge` names one (the first)."""
    checks = [_program(), _disk(runs_dir), _cache(settings)]
    if not settings.models:
        return checks
    name = settings.judge[0]
    try:
        report = NO_KEY if api_key(name, settings, settings) is None else "there (not shown)"
        extra_headers(settings)
    except JudgeqError as error:
        return [*checks, Check("key", "failed", str(error))]
    key = Check("key", "ok", report)
    rates: list[RateHeaders] = []
    pricing = assembly.price_of(settings, name)
    make = assembly.backend_of(settings, name)
    backend = make(name, settings, settings, pricing, believe=rates.append)
    try:
        await backend.open()
        listed, refused = await _listed(backend)
        asked, refused_call = await _asked(backend, pricing)
    except JudgeqError as error:
        return [*checks, key, Check("address", "failed", str(error))]
    finally:
        await backend.close()
    # A server may guard its list of models, or only its answers: what the call says counts.
    if refused if refused_call is None else refused_call:
        refusal = "none, and the server wants one" if report == NO_KEY else REFUSED_KEY
        key = Check("key", "failed", refusal)
    if refused_call is False:
        asked.append(_limits(rates))
    return [*checks, key, *listed, *asked]


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
    kind = runs.network_file_system(there)
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


async def _listed(backend: ModelBackend) -> tuple[list[Check], bool]:
    """Whether the server answers, knows the model, and agrees on the time; whether it refused the
    key."""
    url = backend.address
    there = Check("address", "ok", f"{url} answers")
    try:
        async with asyncio.timeout(LISTED_WITHIN):
            listed = await backend.listed()
    except TimeoutError:
        report = f"{url} did not list its models within {LISTED_WITHIN:g} s"
        return [Check("address", "warning", report)], False
    except (ConnectionFailedError, CallTimeoutError, UsageError) as error:
        return [Check("address", "failed", f"{url} can't be reached: {error}")], False
    except KeyRefusedError:
        return [there], True
    except JudgeqError as error:
        report = f"the server doesn't list its models: {error}"
        return [there, Check("model", "warning", report)], False
    model = _model(backend.name, listed.names)
    return [there, model, from_clock(listed.date, time.time())], False


def _model(name: str, names: list[str]) -> Check:
    if name in names:
        return Check("model", "ok", f"{name} is known to the server")
    known = ", ".join(get_close_matches(name, names, 3) or names[:5])
    hint = f"; there is {known}" if known else ""
    report = f"{name} is not among the server's {len(names)} models{hint}"
    return Check("model", "warning", report)


def from_clock(date: str | None, now: float) -> Check:
    """How far the clock here is from the server's, by its Date header."""
    try:
        theirs = parsedate_to_datetime(date or "").timestamp()
    except (TypeError, ValueError):
        return Check("clock", "ok", "the server doesn't tell the time")
    off = now - theirs
    report = f"{abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the server's"
    return Check("clock", "ok" if abs(off) < CLOCK_OFF else "warning", report)


async def _asked(backend: ModelBackend, pricing: Pricing | None) -> tuple[list[Check], bool | None]:
    """One tiny question, as a run would ask it; whether the key was refused (None: not known)."""
    started = time.monotonic()
    try:
        reply = await _answer(backend)
    except JudgeqError as error:
        refused = True if isinstance(error, KeyRefusedError) else None
        return [Check("call", "failed", str(error))], refused
    return list(_of_call(reply, backend.mode, time.monotonic() - started, pricing)), False


async def _answer(backend: ModelBackend) -> Reply:
    prompt = prompts.load("bias")
    request = Request(PAIR, 1, 1, lambda: prompts.messages(prompt, TEXTS))
    for _ in range(STEPS_DOWN):
        with suppress(SteppedDownError):
            return await backend.complete(request, backend.prepare(request))
    return await backend.complete(request, backend.prepare(request))


def _of_call(reply: Reply, mode: str, seconds: float, pricing: Pricing | None) -> Iterator[Check]:
    usage = reply.usage
    tokens = f"{usage.input + usage.cached:,} tokens in, {usage.output:,} out"
    if usage.reasoning:
        tokens += f" ({usage.reasoning:,} of them reasoning)"
    structured = STRUCTURED[mode]
    try:
        if reply.problem is not None:
            raise UnusableReplyError(reply.problem)
        prompts.parse(reply.text, PAIR)
    except UnusableReplyError as error:
        yield Check("call", "failed", f"answered in {seconds:.1f} s, but not usably: {error}")
        if mode == "schema":
            structured = Check("structured", "warning", "not known, as the reply is not usable")
    else:
        yield Check("call", "ok", f"answered in {seconds:.1f} s; {tokens}")
    if reply.cost is None:
        report = "unknown: give --price IN,OUT, or costs can't be shown or capped"
        yield Check("price", "warning", report)
    elif pricing is None:
        report = (
            f"${reply.cost:.6f} for this call, as the server reports it; without --price costs are "
            "shown, but can't be capped"
        )
        yield Check("price", "warning", report)
    else:
        yield Check("price", "ok", f"${reply.cost:.6f} for this call ({pricing.source})")
    yield structured


def _limits(rates: list[RateHeaders]) -> Check:
    if not rates:
        return Check("limits", "ok", "the server tells none: set --rpm and --tpm if you know them")
    last = rates[-1]
    parts = [
        f"{limit:,.0f} {what} a minute"
        for limit, what in ((last.requests_limit, "requests"), (last.tokens_limit, "tokens"))
        if limit is not None
    ]
    if last.calls_limit is not None:
        parts.append(f"{last.calls_limit:,.0f} calls at once")
    return Check("limits", "ok", ", ".join(parts) or "reported only in part")
