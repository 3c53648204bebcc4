"""All that is on record about a run: what a report of it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from judgeq import prompts
from judgeq.engine import results
from judgeq.evaluation import evaluate
from judgeq.evaluation.evaluate import Evaluation
from judgeq.evaluation.gold import Plan
from judgeq.evaluation.trail import ANSWERED
from judgeq.prompts import PromptSet
from judgeq.store import Store

AT_ONCE = 10_000
"""Questions whose calls are read together."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)  # asyncio.run asks for its result's repr
class Record:
    """A run's evaluation and the evidence behind its scores; `texts` are the items', None where they
    aren't here. `prompt` is the prompt set, where the judge was asked with one. `outcomes` counts the
    calls that brought no verdict; `days` are those on which calls ended."""

    evaluation: Evaluation
    texts: Sequence[str] | None
    prompt: PromptSet | None
    outcomes: Counter[str]
    days: set[date]


async def of_run(run: results.Result, plan: Plan, *, shown: bool = True) -> Record:
    """Read all of it, also while another process goes on with the run; not `shown`: without the texts.
    Raises RunError, DataError."""
    texts = evaluate.texts_of(run) if shown else None
    store = run.run.store(read_only=True)
    try:
        outcomes, days = await _calls(run, store)
    finally:
        await store.close()
    known = replace(run, scores=replace(run.scores, texts=texts))
    return Record(evaluate.evaluation(known, plan), texts, _prompt(run), outcomes, days)


async def _calls(run: results.Result, store: Store) -> tuple[Counter[str], set[date]]:
    """The outcomes of calls without a verdict, and the days on which calls ended."""
    outcomes: Counter[str] = Counter()
    days: set[date] = set()
    before = run.info.verdicts_before
    last = before + run.counts.total
    for first in range(before, last, AT_ONCE):
        of_jobs = await store.calls(range(first, min(first + AT_ONCE, last)))
        for call in (call for calls in of_jobs.values() for call in calls):
            if call.outcome not in ANSWERED:
                outcomes[call.outcome] += 1
            if call.outcome != "cached":
                days.add(datetime.fromtimestamp(call.at, UTC).date())
    return outcomes, days


def _prompt(run: results.Result) -> PromptSet | None:
    """The prompt set that decided the run, as its facts hold it in full; None where there was none."""
    facts = run.info.facts
    if not isinstance(facts.get("prompt"), dict):
        return None
    try:
        return prompts.of_facts(facts)
    except (TypeError, ValueError):
        return None  # another version's, or changed by hand
