"""What is shown of a PostgreSQL store: its check, and its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from judgeq.runs.stored import StoredRun
from judgeq.store.postgres.upkeep import MOST_SKEW, Overview
from judgeq.ui.sections import Section, numbers, words


def check(overview: Overview, runs: Sequence[StoredRun]) -> Iterator[Section]:
    """A store's state, and its runs."""
    facts = [
        ("server", overview.server),
        ("schema", _schema(overview)),
        ("rights", _rights(overview)),
        ("clock", f"{overview.ahead:+.3f} s from this machine's"),
        ("size", f"{overview.bytes / 1e6:,.1f} MB"),
        ("runs", f"{len(runs):,}"),
    ]
    warnings = []
    if abs(overview.ahead) > MOST_SKEW:
        warnings.append(
            "This machine's clock is off. Leases are on the database's, but times of calls aren't."
        )
    yield Section(overview.address.shown, facts, warnings=warnings)
    if overview.tables:
        yield Section(
            columns=[*words("table"), *numbers("rows, about", "MB", "dead rows")],
            rows=[
                (table.name, table.rows, f"{table.bytes / 1e6:,.1f}", table.dead)
                for table in overview.tables
            ],
        )
    if runs:
        names = words("last written", "led by", "texts", whole=True)
        yield Section(
            columns=[*words("run"), *names, *numbers("workers")], rows=[_run(run) for run in runs]
        )


def _run(run: StoredRun) -> tuple[str, str, str, str, int]:
    row = run.row()
    texts = "shared" if row.texts else ""
    return run.id, _moment(row.touched), row.leader or "", texts, row.workers


def _schema(overview: Overview) -> str:
    if overview.version is None:
        return f"{overview.address.schema}: not there yet; the first `judgeq run --store` makes it"
    return f"{overview.address.schema}, version {overview.version}"


def _rights(overview: Overview) -> str:
    if overview.version is None:
        if overview.may_create:
            return "may make the schema"
        return (
            "may not make the schema: have somebody who may run "
            f'CREATE SCHEMA "{overview.address.schema}" AUTHORIZATION this user'
        )
    return "may write" if overview.may_write else "may read only"


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
