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
    matches: Matches, judges: Sequence[int], rngs: Sequence[np.random.Generator], unit: int = 1
) -> Matches:
    """Return every match once for each of these judges, one judge after the other.

    The first judge sees a match in the order in which it was planned. Each further judge sees it in an
    order of its own, drawn from the generator at its place in `rngs`: then a position that all judges
    favour favours no text, and their answers are independent of one another. A judge who stands there
    several times is as many people. `unit` consecutive matches stay together, as in `draw_judges`;
    pairs that are asked in both orders (`unit` 2) keep these.
    """
    if tuple(judges) == (0,):
        return matches
    planned = np.arange(len(matches))
    further = rngs[1 : len(judges)]
    shown = [matches.items if unit > 1 else _reshuffled(matches, rng) for rng in further]
    match = np.tile(planned, len(judges))
    place = np.repeat(np.arange(len(judges)), len(planned))
    order = np.lexsort((match % unit, place, match // unit))
    sizes = matches.sizes[match]
    asked_as = np.argsort(order)  # the number of each copy in the new round
    slots = np.argsort(np.repeat(asked_as, sizes), kind="stable")
    return Matches(
        items=np.concatenate([matches.items, *shown])[slots],
        offsets=np.append(0, np.cumsum(sizes[order])),
        judges=np.array(judges, np.int32)[place[order]],
    )


def _reshuffled(matches: Matches, rng: np.random.Generator) -> Rows:
    """Return the items of all matches, each match in a random order."""
    match = np.repeat(np.arange(len(matches)), matches.sizes)
    items: Rows = matches.items[np.lexsort((rng.random(len(match)), match))]
    return items
