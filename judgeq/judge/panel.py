"""Several judges as one: each match knows which of them is asked.

A run with one judge is a panel of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgeq.errors import JudgeError
from judgeq.judge.judge import Judge, Ledger
from judgeq.types import Job, Match, Matches, Outcome, Rows


@dataclass(frozen=True, slots=True)
class Panel:
    """The judges, by the number that a match has of its own (None: people, who are handed questions),
    and their name as one."""

    judges: Sequence[Judge | None]
    name: str

    def of(self, match: Match) -> Judge:
        """The judge that is asked. Raises JudgeError for a number that nobody has."""
        if not 0 <= match.judge < len(self.judges):
            raise JudgeError(
                f"match {match.id} is for judge {match.judge}, and there are {len(self.judges)}."
            )
        judge = self.judges[match.judge]
        if judge is None:
            raise JudgeError(f"match {match.id} is for people, and they are sent nothing.")
        return judge

    def is_sent(self, match: Match) -> bool:
        """Whether a question is sent to a judge, and not handed to people."""
        return not 0 <= match.judge < len(self.judges) or self.judges[match.judge] is not None

    @property
    def asked(self) -> list[Judge]:
        """Those that are sent questions."""
        return [judge for judge in self.judges if judge is not None]

    async def open(self) -> None:
        """Get all of them ready. Raises JudgeError when one can't be."""
        for judge in self.asked:
            await judge.backend.open()
            if judge.batches is not None:
                await judge.batches.open()

    async def ask(self, job: Job, ledger: Ledger) -> Outcome:
        """As Judge.ask."""
        return await self.of(job.match).ask(job, ledger)


def draw_judges(
    matches: Matches, judges: range, rng: np.random.Generator, unit: int = 1
) -> Matches:
    """The matches of a round with the judge of each, drawn at random: as many for every judge, or one
    more for those that are drawn. Matches stand in the order of their items' ratings, so that judges
    in turn would each get a part of the scale.

    `unit` consecutive matches stay together: 2 where pairs are asked in both orders.
    """
    in_turn = np.resize(judges.start + rng.permutation(len(judges)), len(matches) // unit)
    judge_of = np.repeat(rng.permutation(in_turn), unit).astype(np.int32)
    return Matches(matches.items, matches.offsets, judge_of)


def copy_for_each(
    matches: Matches, judges: Sequence[int], rng: np.random.Generator, unit: int = 1
) -> Matches:
    """Every match for each of these judges, one after the other; of one who is there several times for
    as many people, each in another order. `unit` as in `draw_judges`."""
    if tuple(judges) == (0,):
        return matches
    every, asked = [*matches], list[tuple[Rows, int]]()
    for start in range(0, len(every), unit):
        for place, judge in enumerate(judges):
            turned = unit == 1 and judge in judges[:place]
            for items in every[start : start + unit]:
                asked.append((rng.permutation(items) if turned else items, judge))
    offsets = np.cumsum([0, *(len(items) for items, _ in asked)])
    judge_of = np.array([judge for _, judge in asked], np.int32)
    return Matches(
        np.concatenate([matches.items[:0], *(items for items, _ in asked)]), offsets, judge_of
    )
