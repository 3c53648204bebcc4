"""A judge that reads no text: it knows the items' latent scores, and errs as a real one would.

How it errs is error_model.py's. What it answers to a match depends on the seed and the match alone,
whatever the attempt: so a failure that is retried, a kill or another order of completion never
changes a score. Failures are drawn from the seed, the match and the attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from judgeq import prompts, seeds
from judgeq.errors import CallTimeoutError, RateLimitedError, UsageError
from judgeq.judge.backend import Prepared, Reply, Request
from judgeq.judge.error_model import ErrorModel, latent_scores, seen_scores
from judgeq.settings import Faults, Simulation
from judgeq.types import Floats, Match, Usage, Verdict

NO_TOKENS = Usage()
NOTHING = Prepared()


class SimulatedJudge:
    """The backend. `scores` are the latent scores as seen, shape (items,). Of several `number` says
    which one it is. With `reasons` its replies have one, which changes no verdict."""

    name = "simulated"
    version = 0

    def __init__(
        self,
        scores: Floats,
        settings: Simulation,
        faults: Faults | None = None,
        seed: int = 0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        number: int = 0,
        reasons: bool = False,
    ) -> None:
        self._scores: list[float] = scores.tolist()
        self._faults = faults or Faults()
        self._any_fault = any(getattr(self._faults, name) for name in Faults.model_fields)
        self._sleep = sleep
        self._reasons = reasons
        errors = ErrorModel(settings)
        self._order, self._score = errors.order, errors.score
        self._answers = seeds.Stream(seed, "judge", *([number] if number else []))
        self._failures = seeds.Stream(seed, "failures")
        self._unreadable = seeds.Stream(seed, "unreadable")

    async def open(self) -> None:
        """Nothing is needed."""

    def prepare(self, request: Request) -> Prepared:
        """Nothing is sent, and nothing to be kept in a cache."""
        return NOTHING

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """Answer, after the latency, or fail as its settings say. Costs nothing."""
        if self._any_fault:
            garbled = await self._misbehave(request)
            if garbled is not None:
                return Reply(garbled, NO_TOKENS, 0.0)
        match = request.match
        verdict = self.judge(match)
        reason = reason_for(verdict, match, self._scores) if self._reasons else None
        return Reply(prompts.reply(verdict, match, reason), NO_TOKENS, 0.0)

    async def close(self) -> None:
        """Nothing is held."""

    def judge(self, match: Match) -> Verdict:
        """The verdict on a match: the same whenever it is asked."""
        scores = [self._scores[item] for item in match.items]
        if match.kind == "direct":
            return Verdict(match.items, (), self._score(scores[0], self._answers.at(match.id)))
        order = self._order(scores, self._answers.at(match.id))
        return Verdict(tuple([match.items[place] for place in order]))

    async def _misbehave(self, request: Request) -> str | None:
        """Wait, fail, or return an unreadable reply, as the settings say; None to answer properly."""
        faults, match = self._faults, request.match
        fail, late = self._failures.at(match.id, request.attempt).random(2).tolist()
        # By asking, not by attempt: a kill in between must not change which jobs become invalid.
        garble = self._unreadable.at(match.id, request.ask).random()
        if faults.sim_latency:
            await self._sleep(faults.sim_latency * (0.5 + late))
        if fail < faults.sim_rate_limited:
            raise RateLimitedError(
                "the simulated judge refused this call (--sim-rate-limited)", cost=0.0
            )
        if fail < faults.sim_rate_limited + faults.sim_timeouts:
            raise CallTimeoutError(
                "the simulated judge did not answer this call (--sim-timeouts)", cost=0.0
            )
        if garble < faults.sim_unreadable:
            return "I would rather not rank these, sorry."
        return None


def reason_for(verdict: Verdict, match: Match, scores: Sequence[float]) -> str:
    """The reason of a verdict, from the scores seen by row: a sentence marked as simulated."""
    if verdict.score is not None:
        (item,) = match.items
        return f"Simulated: seen at {scores[item]:.0f} on a scale from 1 to 1000."
    label = dict(zip(match.items, prompts.labels(len(match.items)), strict=True))
    first, last = verdict.items[0], verdict.items[-1]
    return (
        f"Simulated: {label[first]} comes first, seen at {scores[first]:.0f}, and {label[last]} last, "
        f"seen at {scores[last]:.0f}."
    )


def make_simulated(
    settings: Simulation,
    faults: Faults,
    *,
    latent: Floats | None,
    gold: Floats | None,
    synthetic: bool,
    seed: int,
    sleep: Callable[[float], Awaitable[None]],
    number: int = 0,
    reasons: bool = False,
) -> SimulatedJudge:
    """The simulated judge over a dataset's latent scores: `latent` if given, else `gold`.

    Synthetic latents are on the scale already and used as they are. Of several judges, `number`
    tells them apart: each errs in its own way. Raises UsageError when there is neither.
    """
    source = latent if latent is not None else gold
    if source is None:
        raise UsageError(
            "the simulated judge answers from gold labels, and this dataset has none: give "
            "--gold-column or --latent-column, or name a model with --judge."
        )
    scores = source if synthetic else latent_scores(source, settings, seed)
    seen = seen_scores(scores, settings, seed, number)
    return SimulatedJudge(seen, settings, faults, seed, sleep, number, reasons)
