"""What is shown of a run when it is done, or asked about: rich renderables, made from its result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from judgeq.datasets import DatasetInfo
from judgeq.errors import UsageError
from judgeq.prompts import PromptSet
from judgeq.rating import order_bias
from judgeq.results import MIDDLE, Result, State
from judgeq.runs import RunInfo
from judgeq.strategies import REGISTRY
from judgeq.types import Counts, Floats, Totals
from judgeq.words import count, money, plain, several

SLOTS_SHOWN = 12
SIMULATED = (
    "The judge was simulated: no model was asked, no money was spent. It answers from the gold "
    "labels, so its agreement with them is so by construction."
)


def spoken(text: str, style: str = "") -> Text:
    """Untrusted text as one plain line: no markup, no control characters."""
    return Text(plain(text, 10_000), style=style)


def summary(result: Result, info: RunInfo) -> Iterator[RenderableType]:
    """The result of a run, from top to bottom."""
    state = "partial" if result.partial else "finished"
    yield spoken(f"{result.run.id}: {state}", "bold")
    yield facts(result, info)
    if result.evaluation:
        if "detection" in result.evaluation:
            yield Text()
            yield detection(result.evaluation["detection"])
        yield Text()
        yield correlation(result.evaluation["correlation"])
    yield from order(result)
    if "simulated" in info.settings.judge and not info.imported:
        yield Text(SIMULATED, style="yellow")
    yield Text()
    yield (
        Text("Scores ")
        .append(str(result.run.scores), "bold")
        .append(f"  ({', '.join(result.scores.columns)})")
    )
    yield Text(f"Ledger {result.run.database}  (every call and verdict)")
    yield Text(f"Config {result.run.path / 'config.json'}")


def facts(result: Result, info: RunInfo) -> Table:
    """Dataset, strategy, judge, jobs, calls and cost, a line each."""
    source = f"{info.dataset}, {count(info.items)} items"
    rounds = f"{result.rounds_planned} of {result.rounds} rounds"
    left = int((result.scores.left_after > 0).sum())
    if left:
        rounds += f"; {several(left, 'item')} left early"
    return grid(
        ("dataset", source),
        ("strategy", f"{info.strategy}, {rounds}"),
        ("judge", info.judge),
        ("jobs", jobs(result.counts)),
        ("calls", calls(result.totals)),
        (
            "cost",
            f"{cost(result.totals)}; {result.cost_equivalent_calls:,.0f} cost-equivalent calls "
            "(1 a pair, k/2 a list of k)",
        ),
        ("ratings", ratings(result)),
    )


def ratings(result: Result) -> str:
    """How the scores were made, in words."""
    if "direct" in result.scores.ratings:
        return "direct scores, 0 to 1, of each item judged alone"
    if result.rating == "bt":
        return f"Elo; Bradley-Terry (bt, MAP with σ = {result.bt_sigma:g})"
    return "Elo; Bradley-Terry (bt-mm, the paper's)"


def grid(*rows: tuple[str, str]) -> Table:
    """Names and what is to be said of each, a line each."""
    grid = Table.grid(padding=(0, 2))
    for name, value in rows:
        grid.add_row(Text(name, style="dim"), spoken(value))
    return grid


def _titled(title: str) -> Table:
    return Table(box=SIMPLE_HEAD, title=title, title_justify="left", title_style="")


def jobs(counts: Counts) -> str:
    """Job counts in words; what is zero and unremarkable is left out."""
    parts = [f"{count(counts.done)} of {count(counts.total)} done"]
    if counts.invalid:
        parts.append(f"{count(counts.invalid)} invalid (left out of the ratings)")
    if counts.failed:
        parts.append(f"{count(counts.failed)} failed (--retry-failed asks them again)")
    if counts.left:
        parts.append(f"{count(counts.left)} left")
    return ", ".join(parts)


def calls(totals: Totals) -> str:
    """Calls, retries and unknowns in words."""
    parts = [f"{count(totals.calls)}"]
    if totals.retries:
        parts.append(f"{count(totals.retries)} of them without a usable answer")
    if totals.unknown:
        parts.append(
            f"{count(totals.unknown)} more were sent and never answered (unknown, possibly paid)"
        )
    if totals.hits:
        parts.append(f"{several(totals.hits, 'answer')} from the cache")
    return ", ".join(parts)


def cost(totals: Totals) -> str:
    """What the calls cost; unknown where a price is, and what may have been paid besides."""
    told = money(totals.cost)
    if totals.at_risk is None and (totals.unpriced or totals.unknown):
        unknown = f"({count(totals.unpriced + totals.unknown)} calls of unknown price)"
        told = f"at least {told} {unknown}" if totals.cost else f"unknown {unknown}"
    elif totals.at_risk and (totals.unpriced or totals.unknown):
        told += f", and possibly up to {money(totals.at_risk)} for calls that brought no answer"
    if totals.saved:
        told += f"; the cache saved {money(totals.saved)}"
    return told


def detection(rows: dict[str, dict[str, Any]]) -> Table:
    """Positive against negative, by rating."""
    over = ", ".join(f"{name} > {MIDDLE[name]:g}" for name in rows)
    table = _titled(f"Detection against the gold labels (positive: {over})")
    table.add_column("rating")
    for name in ("recall", "accuracy", "precision", "F1 (positive)", "macro F1", "n"):
        table.add_column(name, justify="right")
    for rating, row in rows.items():
        table.add_row(
            rating,
            *(number(row[key]) for key in ("recall", "accuracy", "precision", "f1", "macro_f1")),
            count(row["n"]),
        )
    return table


def correlation(subsets: dict[str, dict[str, dict[str, Any]]]) -> Table:
    """Spearman and Pearson against the gold, by subset and rating."""
    table = _titled("Correlation with the gold labels")
    for name in ("items", "rating"):
        table.add_column(name)
    for name in ("Spearman", "Pearson", "n"):
        table.add_column(name, justify="right")
    for subset, ratings in subsets.items():
        for rating, row in ratings.items():
            table.add_row(
                spoken(subset),
                rating,
                number(row["spearman"]),
                number(row["pearson"]),
                count(row["n"]),
            )
    return table


def order(result: Result) -> Iterator[RenderableType]:
    """Whether a place in the order presented was favoured; of long lists only the ends are shown."""
    slots, flips = result.slots, result.flips
    if slots is None:
        return
    table = _titled("Win rate by slot (in the order presented; 0.5: the place makes no difference)")
    table.add_column("slot", justify="right")
    for name in ("win rate", "95 % interval", "n"):
        table.add_column(name, justify="right")
    shown = range(len(slots.rate))
    if len(slots.rate) > SLOTS_SHOWN:
        ends = {int(slots.rate.argmax()), int(slots.rate.argmin())}
        shown = sorted(ends)  # type: ignore[assignment]
    for slot in shown:
        table.add_row(
            str(slot + 1),
            number(slots.rate[slot]),
            f"{slots.low[slot]:.3f} to {slots.high[slot]:.3f}",
            count(int(slots.matches[slot])),
        )
    yield Text()
    yield table
    yield Text(f"Order of presentation: {order_bias.sentence(slots)}")
    if flips is not None:
        share = flips.flipped / max(1, flips.couples - flips.incomplete)
        told = f"Both orders: {several(flips.couples, 'pair')}, {count(flips.flipped)} flipped"
        told += f" ({share:.1%}), counted as ties"
        if flips.incomplete:
            told += f"; {count(flips.incomplete)} answered in one order only, left out"
        yield Text(f"{told}.")


def number(value: float | None) -> str:
    """Three decimals, or a dash for what can't be told."""
    return "–" if value is None else f"{value:.3f}"


def status(state: State) -> Iterator[RenderableType]:
    """How far a run is."""
    yield spoken(f"{state.run.id}: {state.word}", "bold")
    info = state.info
    yield grid(
        ("dataset", f"{info.dataset}, {count(info.items)} items"),
        ("strategy", f"{info.strategy}, {len(state.rounds)} of {info.rounds} rounds"),
        ("judge", info.judge),
        ("jobs", jobs(state.counts)),
        ("calls", calls(state.totals)),
        ("cost", cost(state.totals)),
        *((f"round {number}", jobs(counts)) for number, counts in enumerate(state.rounds, start=1)),
    )
    if state.ratings is not None:
        yield Text()
        yield _ends(state.ids, state.ratings, len(state.rounds))
    if state.word == "stopped":
        yield Text(f"`judgeq resume {state.run.id}` goes on.")


def _ends(ids: Sequence[str], ratings: Floats, round: int) -> Table:
    """The items that round began with at the top and the bottom."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column(f"before round {round}")
    table.add_column("item")
    table.add_column("elo", justify="right")
    order = np.argsort(-ratings, kind="stable")
    shown = min(3, len(order) // 2)
    for end, rows in (("top", order[:shown]), ("bottom", order[-shown:])):
        for row in rows.tolist():
            table.add_row(end, Text(plain(ids[row], 60)), f"{ratings[row]:.0f}")
    return table


def run_table(states: Sequence[State]) -> Table:
    """The runs, a line each; dataset, strategy and judge are in the id."""
    table = Table(box=SIMPLE_HEAD)
    table.add_column("run", overflow="fold")
    for name in ("state", "begun"):
        table.add_column(name, no_wrap=True)
    for name in ("items", "jobs done", "cost"):
        table.add_column(name, justify="right", no_wrap=True)
    for state in states:
        table.add_row(
            spoken(state.run.id),
            state.word,
            f"{state.info.created.astimezone():%Y-%m-%d %H:%M}",
            count(state.info.items),
            f"{count(state.counts.done)}/{count(state.counts.total)}",
            cost(state.totals),
        )
    return table


def dataset_tables(known: Sequence[DatasetInfo]) -> Iterator[RenderableType]:
    """The known datasets, and what each is."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("dataset", "gold", "texts"):
        table.add_column(name, no_wrap=True)
    table.add_column("items", justify="right")
    table.add_column("size", justify="right")
    for info in known:
        table.add_row(
            Text(info.name),
            info.gold_kind or "none",
            _where(info),
            "any (--n)" if info.items is None else count(info.items),
            "–" if info.size is None else f"{info.size / 1e6:.1f} MB",
        )
    yield table
    for info in known:
        yield Text()
        yield Text(info.name, "bold").append(f"  {info.title}", "")
        yield Text(f"  {info.description}")
        if info.gold_meaning:
            yield Text(f"  Gold: {info.gold_meaning}.")
        if info.prompt:
            yield Text(f"  Prompt set: {info.prompt}.")
        if info.licence:
            yield Text(f"  Licence: {info.licence}.")
        if info.citation:
            yield Text(f"  Cite: {info.citation}")
    yield Text()
    yield Text("Any CSV, TSV, JSONL or Parquet file does too: --dataset my.csv --text-column body")


def _where(info: DatasetInfo) -> str:
    if info.where is not None:
        return "here"
    if info.name.startswith("synthetic:"):
        return "none needed"
    return "labels only" if info.labels_only else "not here"


def datasets_json(known: Sequence[DatasetInfo]) -> list[dict[str, Any]]:
    """For `--json`."""
    return [asdict(info) | {"where": str(info.where) if info.where else None} for info in known]


def strategies_json(n: int) -> list[dict[str, Any]]:
    """The strategies with their cost over n items, for `--json`."""
    found = []
    for name, entry in REGISTRY.items():
        strategy = entry.make()
        try:
            strategy.check(n)
        except UsageError as error:
            refused: str | None = str(error)
        else:
            refused = None
        found.append(
            {
                "name": name,
                "usage": entry.usage,
                "summary": entry.summary,
                "when": entry.when,
                "settings": list(entry.settings.values()),
                "rounds": strategy.rounds,
                "prunes": strategy.prunes,
                "items": n,
                "calls": None if refused else strategy.calls(n),
                "cost_equivalent_calls": None if refused else strategy.cost(n),
                "refused": refused,
            }
        )
    return found


def strategy_table(n: int) -> Iterator[RenderableType]:
    """The strategies, and what their defaults cost over n items."""
    for row in strategies_json(n):
        yield Text(row["usage"], "bold")
        yield Text(f"  {row['summary']} {row['when']}")
        if row["settings"]:
            flags = ", ".join("--" + name.replace("_", "-") for name in row["settings"])
            yield Text(f"  Settings: {flags}.")
        if row["refused"]:
            yield Text(f"  {row['refused']}")
        else:
            most = "at most " if row["prunes"] else ""
            yield Text(
                f"  Over {count(n)} items by default: {most}{several(row['calls'], 'call')} in "
                f"{most}{several(row['rounds'], 'round')}, {row['cost_equivalent_calls']:,.0f} "
                "cost-equivalent."
            )


def prompt_table(known: Sequence[PromptSet]) -> Table:
    """The prompt sets, a line each."""
    table = Table(box=SIMPLE_HEAD)
    for name in ("prompt set", "about", "feature"):
        table.add_column(name)
    for prompt in known:
        feature = "given by --feature" if "$feature" in prompt.feature else prompt.feature
        table.add_row(Text(prompt.name), Text(prompt.title), Text(feature))
    return table


def messages(
    sent: Sequence[Mapping[str, str]], schema: Mapping[str, Any]
) -> Iterator[RenderableType]:
    """The messages of a question, as they would be sent (control characters can't act), and the
    schema that goes with them where the server takes one."""
    for message in sent:
        yield Text(f"── {message['role']} ──", "bold")
        yield Text("\n".join(plain(line, 100_000) for line in message["content"].split("\n")))
    yield Text("── response_format (json_schema, strict) ──", "bold")
    yield Text(orjson.dumps(schema).decode())
