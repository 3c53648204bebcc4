"""What there is, as sections: runs and their batches, datasets, strategies, prompt sets, the reply
cache, a PostgreSQL store, and a doctor's checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from judgeq.datasets import DatasetInfo
from judgeq.engine.status import Listed, State, Unreadable
from judgeq.errors import UsageError
from judgeq.judge.backend import Remote
from judgeq.prompts import PromptSet
from judgeq.run_places import RunPlace
from judgeq.strategies import REGISTRY, parameters
from judgeq.text import count, duration, money, several
from judgeq.types import Batch
from judgeq.ui.progress import batch_state
from judgeq.ui.sections import Column, Field, Section, stated, table
from judgeq.ui.show.status import deadlines, unsettled

if TYPE_CHECKING:
    from judgeq.doctor import Check
    from judgeq.judge.cache import Overview


def runs(states: Sequence[State | Unreadable]) -> Section:
    """The runs, a line each; the id outlasts all else."""
    unreadable = [state for state in states if isinstance(state, Unreadable)]
    readable = [state for state in states if state not in unreadable]
    notes = [f"{state.run.id}: unreadable" for state in unreadable]
    return table(readable, OF_RUNS, notes=notes) if readable else Section(notes=notes)


def _price(state: State) -> str:
    """What is known of the cost, briefly."""
    totals = state.totals
    if totals.unpriced and not totals.cost:
        return "unknown"
    return f"{'≥ ' if totals.unpriced or totals.unknown else ''}{money(totals.cost)}"


OF_RUNS: Sequence[Field] = (
    (Column("run", whole=True), "run.id"),
    (Column("state"), "word"),
    (Column("cost", right=True), _price),
    (Column("begun"), lambda state: f"{state.info.created.astimezone():%Y-%m-%d %H:%M}"),
    (Column("ranked by", at_most=40, least=12, spare=True), "info.feature"),
    (
        Column("jobs done", right=True, spare=True),
        lambda state: f"{count(state.counts.done)}/{count(state.counts.total)}",
    ),
    (Column("name", at_most=40, spare=True), "info.settings.name"),
    (Column("texts", right=True, spare=True), "info.items"),
)


def batches(listed: Sequence[Listed], now: float) -> Section:
    """The batches of all runs; `now` in seconds since the epoch."""
    if not listed:
        note = "No run has batches. `judgeq run --batch` sends its rounds as batches."
        return Section(notes=[note])
    fields: Sequence[Field] = (
        (Column("run", at_most=40), "run.id"),
        (Column("batch", spare=True), "batch.name"),
        (Column("state"), lambda one: batch_state(one.batch)),
        (Column("age", right=True, show=duration), lambda one: now - one.batch.made),
        (Column("questions", right=True), "batch.jobs"),
        (Column("answered", right=True), lambda one: max(one.batch.done, one.batch.answered)),
        (Column("cost", right=True, show=money), "batch.cost"),
        (Column("at most", right=True, spare=True), lambda one: _at_most(one.batch)),
    )
    out = {one.run.label: one.run for one in listed if one.batch.open and not one.running}
    notes = [
        f"No process waits for the batches of {run.id}: `{run.command('resume')}` collects them, "
        f"`{run.command('runs batches cancel')}` ends them."
        for _, run in sorted(out.items())
    ]
    title = several(len(listed), "batch", "batches")
    found = [one.batch for one in listed]
    late = [*deadlines(found, now), *unsettled(found, now)]
    return table(listed, fields, title, notes=notes, warnings=late)


def cancelled(batches: Sequence[tuple[Batch, Remote]], run: RunPlace) -> Section:
    """Those that providers were asked to cancel."""
    names = ", ".join(batch.name for batch, _ in batches)
    resume = run.command("resume")
    note = f"Answers so far are billed: `{resume}` collects them, and asks the rest again."
    return Section(notes=[f"Asked to cancel: {names}.", note] if names else ["No batch is out."])


def _at_most(batch: Batch) -> str:
    """What it may cost in all, while that isn't certain."""
    if batch.at_risk is None:
        return "unknown"
    return money(batch.cost + batch.at_risk) if batch.at_risk else ""


def datasets(infos: Sequence[DatasetInfo]) -> Iterator[Section]:
    """The known datasets, and what each is."""
    fields: list[Field] = [
        (Column("dataset"), "name"),
        (Column("gold"), lambda info: info.gold_kind or "none"),
        (Column("texts"), _where),
        (Column("items", right=True), lambda info: info.items or "any (--n)"),
        (Column("size", right=True), lambda info: info.size and megabytes(info.size)),
    ]
    yield table(infos, fields)
    yield from (stated("dataset", info=info) for info in infos)
    note = "Any CSV, TSV, JSONL or Parquet file does too: --dataset my.csv --text-column body"
    yield Section(notes=[note])


def _where(info: DatasetInfo) -> str:
    if info.where is not None:
        return "here"
    if info.name.startswith("synthetic:"):
        return "none needed"
    return "labels only" if info.labels else "not here"


def strategies_over(n: int) -> list[dict[str, Any]]:
    """The strategies, with what they cost over n items."""
    rows = []
    for name, kind in REGISTRY.items():
        strategy, refused = kind(), None
        try:
            strategy.check(n)
        except UsageError as error:
            refused = str(error)
        rows.append(
            {
                "name": name,
                "usage": kind.usage,
                "summary": kind.summary,
                "when": kind.when,
                "settings": parameters(kind),
                "rounds": strategy.rounds,
                "prunes": strategy.prunes,
                "items": n,
                "calls": None if refused else strategy.calls(n),
                "cost_equivalent_calls": None if refused else strategy.cost(n),
                "refused": refused,
            }
        )
    return rows


def strategies(n: int) -> Iterator[Section]:
    """The strategies, and what their defaults cost over n items."""
    return (stated("strategy", row=row) for row in strategies_over(n))


def prompts(prompt_sets: Sequence[PromptSet]) -> Section:
    """The prompt sets, a line each."""
    return Section(facts=[(prompt.name, prompt.title) for prompt in prompt_sets])


def messages(request: Sequence[Mapping[str, str]], schema: Mapping[str, Any]) -> Iterator[Section]:
    """The messages of a question, as they would be sent, and the schema that goes with them where
    the server takes one."""
    blocks = [(f"── {message['role']} ──", message["content"]) for message in request]
    answer = "── response_format (json_schema, strict) ──"
    yield Section(blocks=[*blocks, (answer, orjson.dumps(schema).decode())])


def checks(checks: Sequence[Check]) -> Section:
    """A doctor's checks, a line each."""
    return Section(facts=[(check.name, f"{check.state}: {check.report}") for check in checks])


def cache(cache: Overview) -> Section:
    """The cache's size."""
    return stated("cache", cache=cache, megabytes=megabytes)


def megabytes(size: int) -> str:
    """ "1,234.5 MB"."""
    return f"{size / 1e6:,.1f} MB"
