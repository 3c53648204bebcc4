"""Whether a run's judges read the texts, by its ledger: for a result's first lines, and for a session
that goes on. The signs are those of rating/unread.py and judge/unread.py."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from judgeq import judge
from judgeq.judge.panel import Panel
from judgeq.judge.unread import BAND, CHARACTERS_A_TOKEN, SMALLEST_PROMPT, PromptTokens
from judgeq.rating import unread
from judgeq.rating.unread import SHORT_ANSWERS
from judgeq.replies import kind_of
from judgeq.run_places import RunInfo
from judgeq.store import Store
from judgeq.store.protocol import PromptCount, ReplyProblem
from judgeq.text import several
from judgeq.types import Verdicts

ANSWERS_RECALLED = 2 * SHORT_ANSWERS
"""Of a judge's earlier answers the last so many are looked at when a run goes on."""
PROBLEMS_SHOWN = 3
"""So many kinds of unusable replies are named, the most frequent first."""


def answer_cautions(info: RunInfo, asked: Verdicts) -> list[str]:
    """Return a sentence for each sign, in all that was asked, that a judge didn't read the texts.

    Simulated judges read none, and people are warned of among their own results.
    """
    if info.imported:
        return unread.cautions(asked, info.judge_names)
    left_out = []
    for number, panelist in enumerate(info.settings.panelists):
        kind = judge.kind_of(panelist.judge)
        if kind is judge.SIMULATED or kind.is_person:
            left_out.append(number)
    return unread.cautions(asked, info.settings.judges, without=left_out)


async def prompt_cautions(store: Store, info: RunInfo) -> list[str]:
    """Return a sentence for each judge whose server cut questions off, replies of the cache included."""
    names = () if info.imported else info.settings.judges
    counts = await store.prompt_counts(SMALLEST_PROMPT, CHARACTERS_A_TOKEN, BAND) if names else []
    cautions = []
    for number, name in enumerate(names):
        prompts = _prompts_of([one for one in counts if one.judge == number])
        if prompts.sentence:
            of_judge = f"{name}: " if len(names) > 1 else ""
            cautions.append(f"{of_judge}{prompts.sentence}")
    return cautions


def _prompts_of(counts: Sequence[PromptCount]) -> PromptTokens:
    prompts = PromptTokens()
    for counted in counts:
        prompts.add(
            counted.smallest,
            counted.tokens,
            calls=counted.calls,
            largest=counted.largest,
            too_few=counted.too_few,
        )
    return prompts


async def recall(store: Store, panel: Panel) -> None:
    """Let each judge of a session know what the ledger says of its reading, so that a run which was
    stopped for it stops again before it pays. Replies of the cache don't stop a run."""
    checked = [
        (number, one.reading)
        for number, one in enumerate(panel.judges)
        if one is not None and one.reading.stops
    ]
    if not checked:
        return
    counts = await store.prompt_counts(SMALLEST_PROMPT, CHARACTERS_A_TOKEN, BAND)
    verdicts = await store.verdicts()
    for number, reading in checked:
        reading.prompts = _prompts_of(
            [one for one in counts if one.judge == number and not one.is_cached]
        )
        last = np.flatnonzero(verdicts.judges == number)
        begun = len(last) > ANSWERS_RECALLED
        chosen = np.zeros(len(verdicts), dtype=np.bool_)
        chosen[last[-ANSWERS_RECALLED:]] = True
        of_judge = verdicts.where(chosen)
        presented = [items.tolist() for items in of_judge.questions]
        reading.recall(zip(presented, of_judge.each(), strict=True), begun=begun)


# Why replies are unusable


async def reply_problems(store: Store) -> list[ReplyProblem]:
    """Return what was wrong with a run's unusable replies by kind, the most frequent first, each with
    its most frequent words as the example."""
    kinds: dict[str, ReplyProblem] = {}
    for found in await store.reply_problems():
        first = kinds.setdefault(kind_of(found.problem), found._replace(replies=0))
        total = first.replies + found.replies
        kinds[kind_of(found.problem)] = first._replace(replies=total)
    return sorted(kinds.values(), key=lambda one: -one.replies)[:PROBLEMS_SHOWN]


def problem_sentence(problems: Sequence[ReplyProblem]) -> str:
    """Return what was most often wrong with unusable replies, "" where nothing was."""
    if not problems:
        return ""
    parts = [f"{several(one.replies, 'time')}: {one.problem.rstrip('.')}" for one in problems]
    return f"Unusable replies, {'; '.join(parts)}."
