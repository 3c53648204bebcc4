"""A judge that reads no text: it knows the items' latent scores, and errs as a real one would.

How it errs is noise.py's. What it answers to a match depends on the seed and the match alone,
whatever the attempt: so a failure that is retried, a kill or another order of completion never
changes a score. Failures are drawn from the seed, the match and the attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from judgeq import prompts, seeds
from judgeq.errors import CallTimeoutError, RateLimitedError
from judgeq.judge.backend import Prepared, Reply, Request
from judgeq.judge.noise import Noise, Simulation
from judgeq.types import Floats, Match, Usage, Verdict

NO_TOKENS = Usage()
NOTHING = Prepared()


class Faults(BaseModel):
    """Failures for rehearsal, as shares of attempts; they don't decide what is answered."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    sim_latency: float = Field(0.0, ge=0)
    sim_rate_limited: float = Field(0.0, ge=0, le=1)
    sim_timeouts: float = Field(0.0, ge=0, le=1)
    sim_unreadable: float = Field(0.0, ge=0, le=1)

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.sim_rate_limited + self.sim_timeouts > 1:
            raise ValueError("--sim-rate-limited and --sim-timeouts together exceed 1")
        return self


class SimulatedJudge:
    """The backend. `scores` are the latent scores as seen, shape (items,). Of several `number` says
    which one it is."""

    name = "simulated"
    reads_text = False
    version = 0

    def __init__(
        self,
        scores: Floats,
        settings: Simulation,
        faults: Faults | None = None,
        seed: int = 0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        number: int = 0,
    ) -> None:
        self._scores: list[float] = scores.tolist()
        self._faults = faults or Faults()
        self._any_fault = any(getattr(self._faults, name) for name in Faults.model_fields)
        self._sleep = sleep
        noise = Noise(settings)
        self._order, self._score = noise.order, noise.score
        self._answers = seeds.Stream(seed, "judge", *([number] if number else []))
        self._failures = seeds.Stream(seed, "failures")
        self._unreadable = seeds.Stream(seed, "unreadable")

    async def open(self) -> None:
        """Nothing is needed."""

    def prepare(self, request: Request) -> Prepared:
        """Nothing is sent, and nothing to be kept in a cache."""
        return NOTHING

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """Answer, after the latency, or fail as told. Costs nothing."""
        if self._any_fault:
            garbled = await self._misbehave(request)
            if garbled is not None:
                return Reply(garbled, NO_TOKENS, 0.0)
        verdict = self.judge(request.match)
        return Reply(prompts.reply(verdict, request.match), NO_TOKENS, 0.0)

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
        """Wait, fail, or return an unreadable reply, as told; None to answer properly."""
        faults, match = self._faults, request.match
        fail, late = self._failures.at(match.id, request.attempt).random(2).tolist()
        # By asking, not by attempt: a kill in between must not change which jobs become invalid.
        garble = self._unreadable.at(match.id, request.ask).random()
        if faults.sim_latency:
            await self._sleep(faults.sim_latency * (0.5 + late))
        if fail < faults.sim_rate_limited:
            raise RateLimitedError(
                "the simulated judge was told to refuse this one (429)", cost=0.0
            )
        if fail < faults.sim_rate_limited + faults.sim_timeouts:
            raise CallTimeoutError("the simulated judge was told not to answer this one", cost=0.0)
        if garble < faults.sim_unreadable:
            return "I would rather not rank these, sorry."
        return None
