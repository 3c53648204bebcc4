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
from dataclasses import dataclass
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import orjson

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
from judgeq.judge.model import api_key, extra_headers
from judgeq.judge.prices import Pricing
from judgeq.types import Match
from judgeq.ui.text import several

LITTLE_SPACE = 1_000_000_000  # bytes
CLOCK_OFF = 60.0  # seconds
LISTED_WITHIN = 30.0  # seconds
STEPS_DOWN = 4
PAIR = Match(0, 1, (0, 1))
NO_KEY = "none, which a server of your own may not need"
REFUSED_KEY = "there (not shown), but the server doesn't accept it"
CONTRARY = ("left", "right")
TEXTS = ("The council met on Monday.", "The shameful council finally bothered to meet on Monday.")


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, and what was found or is to be done."""

    name: str
    state: Literal["ok", "warning", "failed"]
    report: str


async def examine(settings: Settings, runs_dir: Path) -> list[Check]:
    """All checks; those of a model only where `settings.judge` names one (the first)."""
    checks = [_program(), _disk(runs_dir), _cache(settings)]
    if not settings.models:
        return checks
    key = _key(settings)
    if key.state == "failed":
        return [*checks, key]
    rates: list[RateHeaders] = []
    name = settings.judge[0]
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
        refusal = "none, and the server wants one" if key.report == NO_KEY else REFUSED_KEY
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
    report = f"{free / 1e9:,.1f} GB free for {folder}"
    if not os.access(there, os.W_OK):
        return Check("disk", "failed", f"{there} can't be written to: set --runs-dir.")
    kind = runs.network_file_system(there)
    if kind is not None:
        return Check(
            "disk",
            "warning",
            f"{report}; a network file system ({kind}): SQLite is not safe there.",
        )
    return Check("disk", "warning" if free < LITTLE_SPACE else "ok", report)


def _cache(settings: Settings) -> Check:
    from judgeq.judge import cache as replies  # brings diskcache

    folder = assembly.cache_folder(settings)
    try:
        kept = replies.overview(folder)
    except JudgeqError as error:
        return Check("cache", "failed", str(error))
    return Check(
        "cache",
        "ok",
        f"{several(kept.replies, 'reply', 'replies')}, {kept.bytes / 1e6:,.1f} MB in {folder}",
    )


def _key(settings: Settings) -> Check:
    try:
        key = api_key(settings.judge[0], settings, settings)
        extra_headers(settings)
    except JudgeqError as error:
        return Check("key", "failed", str(error))
    if key is None:
        return Check("key", "ok", NO_KEY)
    return Check("key", "ok", "there (not shown)")


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
        return [
            there,
            Check("model", "warning", f"the server doesn't list its models: {error}"),
        ], False
    return [
        there,
        _model(backend.name, listed.names),
        from_clock(listed.date, time.time()),
    ], False


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
    report = f"{abs(off):.0f} s {'ahead of' if off > 0 else 'behind'} the server's"
    return Check("clock", "ok" if abs(off) < CLOCK_OFF else "warning", report)


async def _asked(backend: ModelBackend, pricing: Pricing | None) -> tuple[list[Check], bool | None]:
    """One tiny question, as a run would ask it; whether the key was refused (None: not known)."""
    started = time.monotonic()
    try:
        reply, contrary = await _answer(backend)
    except KeyRefusedError as error:
        return [Check("call", "failed", str(error))], True
    except JudgeqError as error:
        return [Check("call", "failed", str(error))], None
    seconds = time.monotonic() - started
    return list(_of_call(reply, backend.mode, contrary, seconds, pricing)), False


async def _answer(backend: ModelBackend) -> tuple[Reply, bool]:
    """The reply, and whether a schema that contradicts the prompt was sent."""
    prompt = prompts.load("bias")
    request = Request(PAIR, 1, 1, lambda: prompts.messages(prompt, TEXTS))
    for _ in range(STEPS_DOWN):
        prepared = backend.prepare(request)
        contrary = backend.mode == "schema"
        if contrary:
            prepared = prepared._replace(body=_contradicted(backend, prepared.body))
        try:
            return await backend.complete(request, prepared), contrary
        except SteppedDownError as error:
            last = error
    raise last


def _contradicted(backend: ModelBackend, body: bytes) -> bytes:
    """The same question with a schema that allows other words than the prompt asks for: a server
    that doesn't keep to schemas is known by answering as the prompt says."""
    sent = orjson.loads(body)
    backend.schema_in(sent)["properties"]["winner"]["enum"] = list(CONTRARY)
    return orjson.dumps(sent)


def _keeps_to_schema(text: str) -> bool:
    try:
        answer = orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return isinstance(answer, dict) and answer.get("winner") in CONTRARY


def _of_call(
    reply: Reply, mode: str, contrary: bool, seconds: float, pricing: Pricing | None
) -> Iterator[Check]:
    usage = reply.usage
    tokens = f"{usage.input + usage.cached:,} tokens in, {usage.output:,} out"
    if usage.reasoning:
        tokens += f" ({usage.reasoning:,} of them reasoning)"
    kept = contrary and reply.problem is None and _keeps_to_schema(reply.text)
    usable = kept
    try:
        if reply.problem is not None:
            raise UnusableReplyError(reply.problem)
        if not kept:
            prompts.parse(reply.text, PAIR)
            usable = True
    except UnusableReplyError as error:
        yield Check("call", "failed", f"answered in {seconds:.1f} s, but not usably: {error}")
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
    yield _structured(mode, kept=kept, usable=usable)


def _structured(mode: str, *, kept: bool, usable: bool) -> Check:
    if mode != "schema":
        does = {"json": "JSON, but no schemas", "text": "none"}
        return Check("structured", "warning", does[mode])
    if kept:
        return Check("structured", "ok", "strict schemas")
    if usable:
        report = (
            "schemas are accepted, but replies don't keep to them: more of them may be unusable"
        )
    else:
        report = "not known, as the reply is not usable"
    return Check("structured", "warning", report)


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
