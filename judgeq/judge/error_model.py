"""How a simulated judge errs: from latent scores to answers.

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
`ErrorModel` answers one question, `answers` a whole round at once.
"""

from __future__ import annotations

import numpy as np

from judgeq import seeds
from judgeq.settings import Simulation
from judgeq.types import Floats, Matches, Verdicts

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


class ErrorModel:
    """How a judge ranks a list, given the items' latent scores as it sees them."""

    def __init__(self, settings: Simulation) -> None:
        self._settings = settings
        self._tau = settings.tau
        self._lapse = settings.lapse
        unbiased = self._order_vg if settings.sim_model == "vg" else self._order_rrt
        self._unbiased = unbiased
        self.order = self._order_biased if settings.sim_position_bias else unbiased

    def score(self, score: float, rng: np.random.Generator) -> float:
        """What an item alone is said to have of the feature, 0 to 1."""
        (seen,) = self._seen([score], rng)
        return round(min(1.0, max(0.0, (seen - LOW) / (HIGH - LOW))), 2)

    def _order_biased(self, scores: list[float], rng: np.random.Generator) -> list[int]:
        shifts = shift(len(scores), self._settings).tolist()
        return self._unbiased([a + b for a, b in zip(scores, shifts, strict=True)], rng)

    def _order_vg(self, scores: list[float], rng: np.random.Generator) -> list[int]:
        return sorted(range(len(scores)), key=self._seen(scores, rng).__getitem__, reverse=True)

    def _seen(self, scores: list[float], rng: np.random.Generator) -> list[float]:
        """The scores of one question's items with `vg`'s noise."""
        # Plain lists: for ten items they are several times faster than arrays.
        # Gamma(½, scale τ) is τ/2 times a squared standard normal, which is quicker to draw.
        k, half = len(scores), self._tau / 2
        normal: list[float] = rng.standard_normal(2 * k).tolist()
        lapse: list[float] = rng.random(k).tolist()
        seen = [
            score + half * (up * up - down * down)
            for score, up, down in zip(scores, normal[:k], normal[k:], strict=True)
        ]
        if min(lapse) < self._lapse:
            among: list[float] = rng.random(k).tolist()
            for i in range(k):
                if lapse[i] < self._lapse:
                    # Far beyond every score, at either end; among themselves in random order.
                    end = 1e9 if lapse[i] < self._lapse / 2 else -1e9
                    seen[i] = end * (1 + among[i])
        return seen

    def _order_rrt(self, scores: list[float], rng: np.random.Generator) -> list[int]:
        latent = np.array(scores)
        a, b = np.triu_indices(len(latent), 1)
        gap = latent[a] - latent[b]
        right = rng.random(len(gap)) < probability_correct(np.abs(gap), self._settings)
        first_wins = (gap > 0) == right
        wins = np.bincount(np.where(first_wins, a, b), minlength=len(latent))
        order: list[int] = np.lexsort((*_lots(latent, rng), -latent, -wins)).tolist()
        return order


def answers(
    matches: Matches, scores: Floats, settings: Simulation, rng: np.random.Generator
) -> Verdicts:
    """Verdicts on all pairs, lists or single items of a round, as `ErrorModel` gives them one by one;
    numbered from 0. `scores` are the latent scores as seen, shape (items,).
    """
    ranked = np.empty_like(matches.items)
    sizes = np.diff(matches.offsets)
    alone: Floats | None = None
    for size in np.unique(sizes).tolist():
        slots = matches.offsets[:-1][sizes == size][:, None] + np.arange(size)
        items = matches.items[slots]
        seen = scores[items]
        if size == 1:
            alone = np.full(len(sizes), np.nan)
            said = (_seen_vg(seen, settings, rng)[:, 0] - LOW) / (HIGH - LOW)
            alone[sizes == 1] = np.round(np.clip(said, 0, 1), 2)
            ranked[slots] = items
            continue
        if settings.sim_position_bias:
            seen = seen + shift(size, settings)
        if settings.sim_model == "vg":
            noisy = _seen_vg(seen, settings, rng)
            order = np.argsort(-noisy, axis=1)
        else:
            wins = _wins_rrt(seen, settings, rng)
            order = np.lexsort((*_lots(seen, rng), -seen, -wins), axis=1)
        ranked[slots] = np.take_along_axis(items, order, axis=1)
    return Verdicts(
        matches=np.arange(len(matches)),
        items=ranked,
        offsets=matches.offsets,
        tied=np.zeros(len(ranked), dtype=np.bool_),
        presented=matches.items,
        scores=alone,
    )


def _lots(scores: Floats, rng: np.random.Generator) -> tuple[Floats, ...]:
    """Of scores of shape (k,) or (lists, k): a random order where some of a list are equal; nothing is
    drawn where none are."""
    if not (np.diff(np.sort(scores, axis=-1), axis=-1) == 0).any():
        return ()
    return (rng.random(scores.shape),)


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
