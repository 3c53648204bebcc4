"""What went wrong in a run, as a report's chapter, and what became of calls in words."""

from __future__ import annotations

from collections.abc import Iterator

from judgeq.evaluation.evaluate import apart
from judgeq.evaluation.record import LOST, Record
from judgeq.people.answers import remark
from judgeq.text import several
from judgeq.types import Call
from judgeq.ui.sections import Section, numbers, words
from judgeq.untrusted import plain

SAID = 160
"""Characters of a reply or an error that are shown."""
_OUTCOMES = {
    "ok": "answered",
    "unusable": "unusable reply",
    "skipped": "skipped by a person",
    "undone": "taken back by a person",
    "rate_limited": "refused for now: rate limit",
    "server_full": "refused for now: server full",
    "server_error": "server error",
    "timeout": "no answer in time",
    "connection": "connection failed or broken",
    "stepped_down": "sent again in another form",
    "quota": "refused: quota used up",
    "key_refused": "refused: key",
    "unknown_model": "refused: unknown model",
    "too_long": "refused: too long",
    "refused": "refused by the server",
    "error": "another error",
    "cancelled": "batch cancelled before it was asked",
    "expired": "batch expired before it was asked",
    "missing": "missing in the results of its batch",
    "not_sent": "batch not taken",
}


def outcome(name: str) -> str:
    """What became of a call, as the ledger names it, in words."""
    return _OUTCOMES.get(name, name)


def trouble(record: Record) -> Iterator[Section]:
    """Jobs and calls that failed, items that were never judged, what looks like failures."""
    run = record.evaluation.run
    warnings = [*run.cautions]
    counts, totals, only_people = run.counts, run.totals, run.info.settings.only_people
    never = int((~run.scores.judged).sum())
    if run.partial:
        warnings.append("The run isn't finished: all that is here is of what was judged so far.")
    for n, one, what in (
        (
            counts.failed,
            "question",
            "failed: no answer came. `judgeq resume --retry-failed` asks again.",
        ),
        (
            counts.invalid,
            "question",
            "skipped by those who were asked, and stayed unanswered."
            if only_people
            else "brought replies that were no verdict, and stayed unanswered.",
        ),
        (never, "item", "never judged, without a score."),
        (totals.unknown, "call", "sent and never answered: possibly paid."),
    ):
        if n:
            warnings.append(f"{several(n, one)}: {what}")
    if record.failures is not None:
        warnings.append(record.failures)
    if (note := apart(run.scores)) is not None:
        warnings.append(note)
    missed = {
        name: n for name, n in record.spending.outcomes.items() if name not in ("ok", "cached")
    }
    rows = [(outcome(name), n) for name, n in sorted(missed.items())]
    columns = [*words("calls without a verdict, by what became of them"), *numbers("calls")]
    notes = [] if warnings or rows else ["Nothing: every question was answered, every item judged."]
    yield Section(columns=columns if rows else (), rows=rows, warnings=warnings, notes=notes)
    yield from _unanswered(record)


def _unanswered(record: Record) -> Iterator[Section]:
    """The questions that were asked and brought no verdict; what was said may quote a text."""
    lost, quoted = record.spending.lost, record.texts is not None
    if not lost:
        return
    more = f"Only the first {LOST} are listed." if len(lost) > LOST else ""
    yield Section(
        "Questions without a verdict",
        columns=[
            *numbers("job", "round", "calls"),
            *words("the last of them"),
            *(words("reply or error") if quoted else ()),
        ],
        rows=[
            (
                *(one.job, one.round, one.calls, outcome(one.last.outcome)),
                *([_said(one.last)] if quoted else []),
            )
            for one in lost[:LOST]
        ],
        notes=[more] if more else [],
    )


def _said(call: Call) -> str:
    said = call.reply if call.judge is None else remark(call)
    return plain(said or "", SAID)
