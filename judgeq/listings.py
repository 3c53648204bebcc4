"""What the commands around models show: an estimate, a doctor's checks, prices, the cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from judgeq.estimates import Estimate, Range
from judgeq.report import grid, spoken
from judgeq.words import count, money, several

if TYPE_CHECKING:
    from judgeq.doctor import Check
    from judgeq.judge.cache_folder import Overview
    from judgeq.judge.prices import Known

COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}


def estimate(found: Estimate) -> Iterator[RenderableType]:
    """What a run would take."""
    prepared = found.prepared
    strategy = prepared.strategy
    yield spoken(f"{prepared.folder.id}: nothing is sent", "bold")
    rows = [
        ("dataset", f"{prepared.dataset.name}, {several(len(prepared.dataset), 'item')}"),
        ("strategy", f"{strategy.name}, {several(strategy.rounds, 'round')}"),
        ("judge", " + ".join(prepared.settings.judges)),
        ("calls", _calls(found)),
    ]
    if found.calls:
        rows += [
            ("tokens in", f"{_tokens(found.input)}"),
            ("tokens out", f"{_tokens(found.output)}"),
            ("basis", found.basis),
        ]
    rows.append(("cost", _cost(found)))
    if found.totals.calls:
        spent = found.totals
        rows.append(("so far", f"{several(spent.calls, 'call')}, {money(spent.cost)}"))
    yield grid(*rows)


def _calls(found: Estimate) -> str:
    most = "at most " if found.rounds_open and found.prepared.strategy.prunes else ""
    parts = [f"{most}{count(found.calls)} to be asked"]
    if found.done:
        parts.append(f"{count(found.done)} done")
    if found.hits:
        parts.append(f"{count(found.hits)} in the cache")
    if found.rounds_open and found.prepared.settings.models:
        rounds = several(found.rounds_open, "round")
        parts.append(f"{rounds} of it unknown until the others are judged")
    return ", ".join(parts)


def _tokens(tokens: Range) -> str:
    low, high = _rounded(tokens.low), _rounded(tokens.high)
    return count(low) if low == high else f"{count(low)} to {count(high)}"


def _rounded(tokens: float) -> int:
    """To three digits: an estimate knows no more."""
    whole = round(tokens)
    return round(whole, 3 - len(str(whole))) if whole >= 1000 else whole


def _cost(found: Estimate) -> str:
    cost, source = found.cost, found.price_source
    if not found.prepared.settings.models:
        return "$0"
    if cost is None or source is None:
        return "unknown: --price-in and --price-out (dollars per million tokens) tell the price"
    told = (
        money(cost.low, 2)
        if cost.low == cost.high
        else f"{money(cost.low, 2)} to {money(cost.high, 2)}"
    )
    cap = found.prepared.settings.max_cost
    return f"{told} ({source})" + ("" if cap is None else f"; capped at {money(cap)}")


def check_table(checks: Sequence[Check]) -> Table:
    """A doctor's checks, a line each."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("check", "state"):
        table.add_column(name, no_wrap=True)
    table.add_column("found", overflow="fold")
    for check in checks:
        table.add_row(check.name, Text(check.state, COLOURS[check.state]), spoken(check.told))
    return table


def model_table(known: Sequence[Known]) -> Iterator[RenderableType]:
    """Models and their prices, a line each."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("provider", "model"):
        table.add_column(name, no_wrap=True)
    for name in ("input", "cached", "output", "reads"):
        table.add_column(name, justify="right", no_wrap=True)
    for model in known:
        reads = "–" if model.context_window is None else count(model.context_window)
        prices = (_price(model.input), _price(model.cached), _price(model.output))
        table.add_row(spoken(model.provider), spoken(model.model), *prices, reads)
    yield table
    yield Text("Dollars per million tokens, from genai-prices; what a model reads, in tokens.")


def _price(dollars: float | None) -> str:
    return "–" if dollars is None else f"{dollars:,.4g}"


def cache_json(found: Overview) -> dict[str, Any]:
    """For `--json`."""
    return {
        "folder": str(found.folder),
        "replies": found.entries,
        "bytes": found.bytes,
        "hits": found.hits,
        "misses": found.misses,
        "oldest": _day(found.oldest),
        "newest": _day(found.newest),
        "models": {
            name: {"replies": replies, "cost": cost}
            for name, (replies, cost) in found.by_model.items()
        },
    }


def cache_table(found: Overview) -> Iterator[RenderableType]:
    """The cache's size and hits, and what it holds by model."""
    yield grid(
        ("folder", str(found.folder)),
        ("replies", count(found.entries)),
        ("size", f"{found.bytes / 1e6:,.1f} MB"),
        ("hits", f"{count(found.hits)}, and {count(found.misses)} misses"),
    )
    if found.oldest is None or found.newest is None:
        return
    table = Table(box=SIMPLE_HEAD)
    table.add_column("model", no_wrap=True)
    table.add_column("replies", justify="right")
    table.add_column("once paid", justify="right")
    for name, (replies, cost) in sorted(found.by_model.items()):
        table.add_row(spoken(name), count(replies), "unknown" if cost is None else money(cost))
    yield table
    yield Text(f"From {_day(found.oldest)} to {_day(found.newest)}.")


def _day(at: float | None) -> str | None:
    return None if at is None else f"{datetime.fromtimestamp(at, UTC).astimezone():%Y-%m-%d %H:%M}"
