"""All that is on record about a run: what a report of it is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from judgeq import prompts
from judgeq.engine import results, session
from judgeq.evaluation import evaluate, trail
from judgeq.evaluation.evaluate import Evaluation
from judgeq.evaluation.explanation import answer
from judgeq.evaluation.gold import Plan
from judgeq.evaluation.trail import Evidence
from judgeq.imports import recordings
from judgeq.prompts import PromptSet
from judgeq.store import Store
from judgeq.types import Call, Floats

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

    def add(self, round: int, call: Call) -> None:
        """Count a call of a round (from 1)."""
        while len(self.rounds) < round:
            self.rounds.append(Round())
        self.rounds[round - 1].add(call)
        self.outcomes[call.outcome] += 1
        if call.outcome != "cached":
            self.at.append(call.at)


@dataclass(frozen=True, slots=True)
class Example:
    """A question as it was sent, and the raw reply to it (None where the ledger has none, as of an
    import)."""

    job: int
    messages: Sequence[Mapping[str, str]]
    reply: str | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)  # asyncio.run asks for its result's repr
class Record:
    """A run's evaluation and the evidence behind its scores; `texts` are the items', None where they
    aren't here. `elo` is that after each round, shape (rounds, n). `prompt` is the prompt set, where the
    judge was asked with one. `failures`: why the recording seems to contain failures."""

    evaluation: Evaluation
    evidence: Evidence
    texts: Sequence[str] | None
    elo: Floats
    spending: Spending
    prompt: PromptSet | None
    example: Example | None
    failures: str | None


async def of_run(run: results.Result, plan: Plan, *, shown: bool = True) -> Record:
    """Read all of it, also while another process goes on with the run; not `shown`: without the texts.
    Raises RunError, DataError."""
    dataset = session.dataset_of(run.run) if shown else None
    texts = None if dataset is None else dataset.texts
    evidence = trail.gathered(run)
    store = run.run.store(read_only=True)
    try:
        spending = await _spending(run, store)
        prompt = _prompt(run)
        example = await _example(run, store, prompt, texts)
    finally:
        await store.close()
    return Record(
        evaluation=evaluate.evaluation(run, plan, texts=texts),
        evidence=evidence,
        texts=texts,
        elo=trail.elo_by_round(run)[1:],
        spending=spending,
        prompt=prompt,
        example=example,
        failures=_failures(evidence),
    )


async def _spending(run: results.Result, store: Store) -> Spending:
    spending, first = Spending(), 0
    answered = {int(job) for part in run.history.asked for job in part.matches.tolist()}
    for round in range(1, run.rounds_planned + 1):
        counts = await store.round_state(round)
        last = first + (0 if counts is None else counts.total)
        for begin in range(first, last, AT_ONCE):
            calls = await store.calls(range(begin, min(begin + AT_ONCE, last)))
            for job, of_job in sorted(calls.items()):
                for call in of_job:
                    spending.add(round, call)
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


async def _example(
    run: results.Result, store: Store, prompt: PromptSet | None, texts: Sequence[str] | None
) -> Example | None:
    """The first question that was answered."""
    verdicts = run.history.asked[0]
    if prompt is None or texts is None or not len(verdicts):
        return None
    job = int(verdicts.matches[0])
    presented = verdicts.presented[: verdicts.offsets[1]].tolist()
    settings = run.info.settings
    judge = 0 if verdicts.judges is None else int(verdicts.judges[0])
    if run.said is not None and judge >= run.said.first:
        return None  # people are sent no messages
    persona = settings.panelists[judge].persona if judge < len(settings.panelists) else None
    if persona is not None:
        prompt = prompt.as_persona(persona)
    messages = prompts.messages(prompt, [texts[row] for row in presented], reasons=settings.reasons)
    calls = (await store.calls([job])).get(job, ())
    call = answer(calls)
    return Example(job, messages, None if call is None else call.reply)


def _failures(evidence: Evidence) -> str | None:
    """Why the judgments look as if failed calls were among them."""
    verdicts = evidence.verdicts
    same = np.logical_and.reduceat(verdicts.items == verdicts.presented, verdicts.offsets[:-1])
    if verdicts.tied.any():
        same &= ~np.logical_or.reduceat(verdicts.tied, verdicts.offsets[:-1])
    sizes = np.diff(verdicts.offsets)
    lists = sizes >= recordings.LIST
    if verdicts.ordered is not None:
        lists &= verdicts.ordered
    return recordings.beyond_chance(sizes[lists].tolist(), int(same[lists].sum()))
