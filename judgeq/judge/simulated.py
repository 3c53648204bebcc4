"""The simulated judge, which reads no text, asks nobody and costs nothing; and how it errs.

It knows the items' latent scores. What it answers to a match depends on the seed and the match alone,
whatever the attempt: so a call that is tried again, a kill or another order of completion never changes
a score.

A pair Δ apart is judged rightly with P(Δ) = ½ + (pmax − ½)(1 − exp(−Δ/τ)), with τ set by one point
of the curve: P = `sim_accuracy` at Δ = `sim_distance` (Haak and Schaer, who give 0.8 at 90 on a
scale of 1..1000). Lists follow one of two models:

`vg`   one noise value for each item and list, G₁ − G₂ with G ~ Gamma(½, scale τ), so that the noise
       of a pair is a Laplace variable of scale τ; and each item lapses with probability
       1 − √(2·pmax − 1), to the top or the bottom. Every pair follows P(Δ) exactly, and the pairs of
       a list hang together as those of a real judge do.
`rrt`  all pairs of the list are drawn independently, and it is ranked by wins, ties by latent score, and
       by lot where that is equal.

With `sim_position_bias` b an item in slot s of k (from 0, in the order presented) is seen
b·(s/(k−1) − ½) higher. A text alone is scored as `vg` sees it, on a scale from 0 to 1 in hundredths.
`verdict_on` answers one question, `answers` a whole round at once.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import numpy as np

from judgeq import seeds
from judgeq.datasets.dataset import Dataset
from judgeq.errors import UsageError
from judgeq.judge.backend import Prepared, Reply, Request
from judgeq.rating.comparisons import slots_by_size
from judgeq.replies import labels, write_reply
from judgeq.settings.run import Simulation
from judgeq.types import Floats, Match, Matches, Offsets, Usage, Verdict, Verdicts

LOW, HIGH = 1.0, 1000.0


def probability_correct(gap: Floats, settings: Simulation) -> Floats:
    """P(Δ) for the gaps Δ ≥ 0, same shape."""
    return 0.5 + (settings.sim_pmax - 0.5) * -np.expm1(-gap / settings.tau)


def latent_scores(gold: Floats, settings: Simulation, seed: int) -> Floats:
    """Gold on the simulation's scale 1..1000, same shape.

    Two values make two groups around 250 and 750 with sd `sim_spread`; more are scaled linearly from
    least to most. An item without gold (nan) gets a uniform score: somebody must judge it too.
    """
    known = ~np.isnan(gold)
    values = np.unique(gold[known])
    scores = seeds.rng(seed, "latent", "unlabelled").uniform(LOW, HIGH, len(gold))
    if len(values) == 2:
        noise = seeds.rng(seed, "latent", "spread").normal(0, settings.sim_spread, len(gold))
        groups = np.where(gold == values[1], 750.0, 250.0) + noise
        scores[known] = np.clip(groups, LOW, HIGH)[known]
    elif len(values) > 2:
        share = (gold[known] - values[0]) / (values[-1] - values[0])
        scores[known] = LOW + share * (HIGH - LOW)
    else:
        scores[known] = (LOW + HIGH) / 2
    return scores


def seen_scores(latent: Floats, settings: Simulation, seed: int, judge: int = 0) -> Floats:
    """Latent scores as the annotator sees them: `sim_biased_items` of them always `sim_bias` off, up or
    down, each with probability ½ (the paper's annotator bias)."""
    seen = latent.copy()
    rng = seeds.rng(seed, "annotator bias", *([judge] if judge else []))
    chosen = rng.choice(
        len(latent), size=min(settings.sim_biased_items, len(latent)), replace=False
    )
    seen[chosen] += settings.sim_bias * rng.choice([-1.0, 1.0], size=len(chosen))
    return seen


def shift(k: int, settings: Simulation) -> Floats:
    """By how much higher each slot of a question of k items is seen, shape (k,)."""
    return settings.sim_position_bias * (np.arange(k) / max(1, k - 1) - (0.5 if k > 1 else 0.0))


def verdict_on(
    match: Match, scores: Sequence[float], settings: Simulation, rng: np.random.Generator
) -> Verdict:
    """How a judge answers one question, given the latent scores of the match's items as it sees them."""
    seen = np.array([scores])
    if len(scores) == 1:
        return Verdict(match.items, (), float(_alone(seen, settings, rng)[0]))
    order = _orders(seen, settings, rng)[0].tolist()
    return Verdict(tuple([match.items[place] for place in order]))


def answers(
    matches: Matches, scores: Floats, settings: Simulation, rng: np.random.Generator
) -> Verdicts:
    """Verdicts on all pairs, lists or single items of a round, as `verdict_on` gives them one by one;
    numbered from 0. `scores` are the latent scores as seen, shape (items,).
    """
    ranked, alone = matches.items.copy(), np.full(len(matches), np.nan)
    for by_place in slots_by_size(matches):
        slots = by_place.T
        items = matches.items[slots]
        if len(by_place) == 1:
            alone[matches.sizes == 1] = _alone(scores[items], settings, rng)
        else:
            order = _orders(scores[items], settings, rng)
            ranked[slots] = np.take_along_axis(items, order, axis=1)
    return Verdicts(
        matches=np.arange(len(matches)),
        items=ranked,
        offsets=matches.offsets,
        tied=np.zeros(len(ranked), dtype=np.bool_),
        presented=matches.items,
        scores=alone,
    )


def _alone(scores: Floats, settings: Simulation, rng: np.random.Generator) -> Floats:
    """What single items, shape (items, 1), are said to have of the feature, shape (items,)."""
    shares = (_seen_vg(scores, settings, rng)[:, 0] - LOW) / (HIGH - LOW)
    return np.asarray(np.clip(shares, 0, 1).round(2), np.float64)


def _orders(scores: Floats, settings: Simulation, rng: np.random.Generator) -> Offsets:
    """The places of the items of lists, most of the feature first, all of shape (lists, k)."""
    if settings.sim_position_bias:
        scores = scores + shift(scores.shape[1], settings)
    if settings.sim_model == "vg":
        return np.argsort(-_seen_vg(scores, settings, rng), axis=1)
    wins = _wins_rrt(scores, settings, rng)
    ties = (np.diff(np.sort(scores, axis=1), axis=1) == 0).any()
    lots = [rng.random(scores.shape)] if ties else []
    return np.lexsort((*lots, -scores, -wins), axis=1)


def _seen_vg(scores: Floats, settings: Simulation, rng: np.random.Generator) -> Floats:
    """Scores of shape (lists, k) with the noise of `vg`."""
    up, down = rng.standard_normal((2, *scores.shape))
    seen: Floats = scores + settings.tau / 2 * (up * up - down * down)
    lapse, among = rng.random((2, *scores.shape))
    lapses = lapse < settings.lapse
    end = np.where(lapse < settings.lapse / 2, 1e9, -1e9)
    return np.where(lapses, end * (1 + among), seen)


def _wins_rrt(scores: Floats, settings: Simulation, rng: np.random.Generator) -> Floats:
    """How many of its list's pairs each item wins, shape (lists, k)."""
    wins = np.zeros_like(scores)
    for first in range(scores.shape[1] - 1):
        gap = scores[:, first, None] - scores[:, first + 1 :]
        right = rng.random(gap.shape) < probability_correct(np.abs(gap), settings)
        won = (gap > 0) == right
        wins[:, first] += won.sum(axis=1)
        wins[:, first + 1 :] += ~won
    return wins


# The judge


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
    which one it is; each errs in its own way. `latency` is how many seconds an answer takes. With
    `reasons` its replies have one, which changes no verdict."""

    def __init__(
        self,
        scores: Floats,
        settings: Simulation,
        seed: int = 0,
        number: int = 0,
        *,
        latency: float = 0.0,
        reasons: bool = False,
        name: str = "simulated",
    ) -> None:
        self.name = name
        self._scores: list[float] = scores.tolist()
        self._latency = latency
        self._reasons = reasons
        self._settings = settings
        self._answers = seeds.Stream(seed, "judge", *([number] if number else []))
        self._late = seeds.Stream(seed, "latency")

    def output_within(self, prepared: Prepared, dollars: float) -> int:
        """Return 0: it costs nothing, so that no cap refuses it."""
        return 0

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """Answer, after the latency. Costs nothing."""
        match = request.match
        if self._latency:
            late = self._late.at(match.id, request.attempt).random()
            await asyncio.sleep(self._latency * (0.5 + late))
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


def scores_of(dataset: Dataset, settings: Simulation, seed: int) -> Floats:
    """The latent scores of a dataset's items: as given, or from gold. Synthetic ones are on the scale
    already and used as they are. Raises UsageError when there is neither."""
    source = dataset.latent if dataset.latent is not None else dataset.gold
    if source is None:
        raise UsageError(
            "the simulated judge answers from gold labels, and this dataset has none. Give "
            "--gold-column or --latent-column, or --judge rehearsal for made-up answers."
        )
    return source if dataset.source == "synthetic" else latent_scores(source, settings, seed)
