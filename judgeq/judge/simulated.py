"""The simulated judge, which reads no text, asks nobody and costs nothing.

It knows the items' latent scores, and errs as a real one would (error_model.py). What it
answers to a match depends on the seed and the match alone, whatever the attempt: so a call that is tried
again, a kill or another order of completion never changes a score.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import numpy as np

from judgeq import seeds
from judgeq.errors import UsageError
from judgeq.judge.backend import Prepared, Reply, Request
from judgeq.judge.error_model import HIGH, LOW, latent_scores, seen_scores, verdict_on
from judgeq.replies import labels, write_reply
from judgeq.settings.run import REHEARSAL, Simulation
from judgeq.types import Floats, Match, Sleep, Usage, Verdict

NO_TOKENS = Usage()
NOTHING = Prepared()


class Offline:
    """What their backends have in common."""

    version = 0

    async def open(self) -> None:
        """Nothing is needed."""

    def prepare(self, request: Request) -> Prepared:
        """Nothing is sent, and nothing to be kept in a cache."""
        return NOTHING

    async def close(self) -> None:
        """Nothing is held."""


class SimulatedJudge(Offline):
    """The backend. `scores` are the latent scores as seen, shape (items,). Of several `number` says
    which one it is, `latency` how many seconds an answer takes. With `reasons` its replies have one,
    which changes no verdict."""

    def __init__(
        self,
        scores: Floats,
        settings: Simulation,
        latency: float = 0.0,
        seed: int = 0,
        sleep: Sleep = asyncio.sleep,
        number: int = 0,
        reasons: bool = False,
        name: str = "simulated",
    ) -> None:
        self.name = name
        self._scores: list[float] = scores.tolist()
        self._latency = latency
        self._sleep = sleep
        self._reasons = reasons
        self._settings = settings
        self._answers = seeds.Stream(seed, "judge", *([number] if number else []))
        self._late = seeds.Stream(seed, "latency")

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """Answer, after the latency. Costs nothing."""
        match = request.match
        if self._latency:
            late = self._late.at(match.id, request.attempt).random()
            await self._sleep(self._latency * (0.5 + late))
        verdict = self.judge(match)
        reason = reason_for(verdict, match, self._scores) if self._reasons else None
        return Reply(write_reply(verdict, match, reason), NO_TOKENS, 0.0)

    def judge(self, match: Match) -> Verdict:
        """The verdict on a match: the same whenever it is asked."""
        scores = [self._scores[item] for item in match.items]
        return verdict_on(match, scores, self._settings, self._answers.at(match.id))


def reason_for(verdict: Verdict, match: Match, scores: Sequence[float]) -> str:
    """The reason of a verdict, from the scores seen by row: a sentence marked as simulated."""
    if verdict.score is not None:
        (item,) = match.items
        return f"Simulated: seen at {scores[item]:.0f} on a scale from 1 to 1000."
    label = dict(zip(match.items, labels(len(match.items)), strict=True))
    first, last = verdict.items[0], verdict.items[-1]
    return (
        f"Simulated: {label[first]} comes first, seen at {scores[first]:.0f}, and {label[last]} last, "
        f"seen at {scores[last]:.0f}."
    )


def rehearsal_scores(texts: Sequence[str]) -> Floats:
    """A made-up score for each text, 1 to 1000 by its hash: the same text always gets the same."""
    hashes = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    shares = np.array([int.from_bytes(digest, "little") / 2**64 for digest in hashes])
    return LOW + shares * (HIGH - LOW)


def make_simulated(
    settings: Simulation,
    *,
    latency: float = 0.0,
    latent: Floats | None,
    gold: Floats | None,
    synthetic: bool,
    seed: int,
    sleep: Sleep,
    number: int = 0,
    reasons: bool = False,
    rehearsed: Sequence[str] | None = None,
) -> SimulatedJudge:
    """The simulated judge over a dataset's latent scores: `latent` if given, else `gold`; in a rehearsal
    the scores of the `rehearsed` texts.

    Synthetic latents are on the scale already and used as they are. Of several judges, `number`
    tells them apart: each errs in its own way. Raises UsageError when there is neither.
    """
    if rehearsed is not None:
        scores = seen_scores(rehearsal_scores(rehearsed), settings, seed, number)
        return SimulatedJudge(scores, settings, latency, seed, sleep, number, reasons, REHEARSAL)
    source = latent if latent is not None else gold
    if source is None:
        raise UsageError(
            "the simulated judge answers from gold labels, and this dataset has none. Give "
            "--gold-column or --latent-column, or --judge rehearsal for made-up answers."
        )
    scores = source if synthetic else latent_scores(source, settings, seed)
    seen = seen_scores(scores, settings, seed, number)
    return SimulatedJudge(seen, settings, latency, seed, sleep, number, reasons)
