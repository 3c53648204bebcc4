"""All that is on record about a run: what a report of it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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


@dataclass(slots=True)
class Round:
    """What the calls of a round took: how many, how many answers the cache gave, tokens in and out,
    dollars, and how many calls have an unknown cost."""

    calls: int = 0
    cached: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def add(self, call: Call) -> None:
        """Count a call."""
        if call.outcome == "cached":
            self.cached += 1
            return
        self.calls += 1
        self.input += call.usage.input
        self.output += call.usage.output
        if call.cost is None:
            self.unpriced += 1
        else:
            self.cost += call.cost


@dataclass(frozen=True, slots=True)
class Lost:
    """A question that was asked and brought no verdict: its round (from 1), how many calls it took, and
    the last of them."""

    job: int
    round: int
    calls: int
    last: Call


@dataclass(slots=True)
class Spending:
    """The calls of a run by round; how many had which of the `outcomes`; and when those that were sent
    ended (`at`, seconds since the epoch). `lost` are the first questions without a verdict, at most one
    more than LOST."""

    rounds: list[Round] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    at: list[float] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)


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
    answered = {int(job) for part in run.history.asked for job in part.matches.tolist()}
    for round in range(1, run.rounds_planned + 1):
        counts = await store.round_state(round)
        last = first + (0 if counts is None else counts.total)
        spending.rounds.append(Round())
        for begin in range(first, last, AT_ONCE):
            calls = await store.calls(range(begin, min(begin + AT_ONCE, last)))
            for job, of_job in sorted(calls.items()):
                for call in of_job:
                    spending.rounds[-1].add(call)
                    spending.outcomes[call.outcome] += 1
                    if call.outcome != "cached":
                        spending.at.append(call.at)
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
