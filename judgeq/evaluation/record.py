"""All that is on record about a run: what a report of it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime

from judgeq import prompts
from judgeq.engine import results
from judgeq.evaluation import evaluate
from judgeq.evaluation.evaluate import Evaluation
from judgeq.evaluation.gold import Plan
from judgeq.prompts import PromptSet
from judgeq.store import Store
from judgeq.types import Call

AT_ONCE = 10_000
"""Questions whose calls are read together."""
LOST = 10
"""Questions without a verdict that are listed at most."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A question that was asked and brought no verdict: its round (from 1), how many calls it took, and
    the last of them."""

    job: int
    round: int
    calls: int
    last: Call


@dataclass(frozen=True, slots=True)
class Spending:
    """The calls of a run by round: how many (`calls`), how many answers the cache gave (`cached`),
    tokens (`input`, `output`), dollars (`cost`), and how many calls have an unknown cost (`unpriced`);
    how many had which of the `outcomes`; and the `days` on which those that were sent ended. `lost` are
    the first questions without a verdict, at most one more than LOST."""

    rounds: list[Counter[str]] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    days: set[date] = field(default_factory=set)
    lost: list[Lost] = field(default_factory=list)

    def add(self, call: Call) -> None:
        """Count a call of the latest round."""
        self.outcomes[call.outcome] += 1
        if call.outcome == "cached":
            self.rounds[-1]["cached"] += 1
            return
        self.days.add(datetime.fromtimestamp(call.at, UTC).date())
        took = {"calls": 1, "input": call.usage.input, "output": call.usage.output}
        cost = {"unpriced": 1} if call.cost is None else {"cost": call.cost}
        self.rounds[-1].update({**took, **cost})


@dataclass(frozen=True, slots=True, eq=False, repr=False)  # asyncio.run asks for its result's repr
class Record:
    """A run's evaluation and the evidence behind its scores; `texts` are the items', None where they
    aren't here. `prompt` is the prompt set, where the judge was asked with one."""

    evaluation: Evaluation
    texts: Sequence[str] | None
    spending: Spending
    prompt: PromptSet | None


async def of_run(run: results.Result, plan: Plan, *, shown: bool = True) -> Record:
    """Read all of it, also while another process goes on with the run; not `shown`: without the texts.
    Raises RunError, DataError."""
    texts = evaluate.texts_of(run) if shown else None
    store = run.run.store(read_only=True)
    try:
        spending = await _spending(run, store)
    finally:
        await store.close()
    return Record(
        evaluation=evaluate.evaluation(replace(run, scores=replace(run.scores, texts=texts)), plan),
        texts=texts,
        spending=spending,
        prompt=_prompt(run),
    )


async def _spending(run: results.Result, store: Store) -> Spending:
    spending, first = Spending(), 0
    answered = {job for part in run.history.asked for job in part.matches.tolist()}
    for round in range(1, run.rounds_planned + 1):
        counts = await store.round_state(round)
        last = first + (0 if counts is None else counts.total)
        spending.rounds.append(Counter())
        for begin in range(first, last, AT_ONCE):
            calls = await store.calls(range(begin, min(begin + AT_ONCE, last)))
            for job, of_job in sorted(calls.items()):
                for call in of_job:
                    spending.add(call)
                if of_job and job not in answered and len(spending.lost) <= LOST:
                    spending.lost.append(Lost(job, round, len(of_job), of_job[-1]))
        first = last
    return spending


def _prompt(run: results.Result) -> PromptSet | None:
    """The prompt set that decided the run, as its facts hold it in full; None where there was none."""
    facts = run.info.facts
    if not isinstance(facts.get("prompt"), dict):
        return None
    try:
        return prompts.of_facts(facts)
    except (TypeError, ValueError):
        return None  # another version's, or changed by hand
