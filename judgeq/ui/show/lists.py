"""What there is, as sections: datasets, strategies, prompt sets, the reply cache, a
PostgreSQL store, and a doctor's checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import orjson

from judgeq.datasets import DatasetInfo
from judgeq.errors import UsageError
from judgeq.prompts import PromptSet
from judgeq.strategies import REGISTRY, parameters
from judgeq.ui.sections import Column, Field, Section, stated, table

if TYPE_CHECKING:
    from judgeq.doctor import Check
    from judgeq.judge.cache import Overview


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
