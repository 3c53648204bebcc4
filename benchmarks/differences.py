"""How often `judgeq compare` marks a difference between two runs: of one judge, where there is none, and
of two whose agreement with gold differs by 0.09."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

import judgeq
from judgeq import seeds, strategies
from judgeq.engine.results import Result
from judgeq.evaluation.compare import compare
from judgeq.evaluation.gold import Plan, gold_of
from judgeq.evaluation.metrics import Measured, interval
from judgeq.rating import ESTIMATORS, Parameters, comparisons
from judgeq.strategies import History
from judgeq.types import Floats, Matches, Verdicts

N = 200
PAIRS = 200
"""Pairs of runs: what is 5 % comes out between 2 and 8 % nineteen times in twenty."""
SD = 2.0
MEASURES = ("spearman", "pearson")
Seen = Callable[[Matches, Floats, np.random.Generator], Floats]
"""The values by which a judge ranks, by slot; `truth` has a second quality as its second row."""


def _model(matches: Matches, truth: Floats, rng: np.random.Generator) -> Floats:
    seen: Floats = truth[0, matches.items] + rng.gumbel(size=len(matches.items))
    return seen


def _thurstone(matches: Matches, truth: Floats, rng: np.random.Generator) -> Floats:
    seen: Floats = truth[0, matches.items] + rng.normal(0, 1.2, len(matches.items))
    return seen


def _dependent(matches: Matches, truth: Floats, rng: np.random.Generator) -> Floats:
    """Each list weighs the second quality anew."""
    weight = np.repeat(rng.normal(0, 0.7, len(matches)), matches.sizes)
    seen: Floats = _model(matches, truth, rng) + weight * truth[1, matches.items]
    return seen


def _careless(share: float) -> Seen:
    def seen(matches: Matches, truth: Floats, rng: np.random.Generator) -> Floats:
        at_random = np.repeat(rng.random(len(matches)) < share, matches.sizes)
        own = _model(matches, truth, rng)
        return np.where(at_random, rng.random(len(own)), own)

    return seen


def _uneven(matches: Matches, truth: Floats, rng: np.random.Generator) -> Floats:
    """Of three texts in ten the noise is four times as large."""
    hard = np.where(np.arange(truth.shape[1]) % 10 < 3, 4, 1)
    noise = rng.gumbel(size=len(matches.items)) * hard[matches.items]
    seen: Floats = truth[0, matches.items] + noise
    return seen


def _first_favoured(matches: Matches, truth: Floats, rng: np.random.Generator) -> Floats:
    seen = _model(matches, truth, rng)
    seen[matches.offsets[:-1]] += 1.5
    return seen


JUDGES: Mapping[str, Seen] = {
    "model": _model,
    "normal noise": _thurstone,
    "dependent lists": _dependent,
    "5 % at random": _careless(0.05),
    "20 % at random": _careless(0.2),
    "uneven texts": _uneven,
    "first favoured": _first_favoured,
}
DESIGNS = {"lists": "listwise10x3", "pairs": "pairwise12"}


def differences() -> None:
    """Goal: of runs of one judge 3 to 7 % are marked, of those 0.09 apart nearly all."""
    with tempfile.TemporaryDirectory() as folder:
        base = judgeq.run(
            "synthetic:normal", runs_dir=folder, progress=False, settings={"n": N, "texts": False}
        )
    names = "  ".join(f"{name:>24}" for name in MEASURES)
    print(f"{'judge':16} {'design':6} {'apart':>6}  {names}\n{'':33}" + "  (by items) compare" * 2)
    for design, strategy in DESIGNS.items():
        for judge in JUDGES:
            for apart in (0.0, 0.5):
                times = PAIRS if not apart else PAIRS // 6
                made = [_marked(base, judge, strategy, apart, seed) for seed in range(times)]
                marks = np.array([marks for marks, _ in made]).mean(axis=0)
                cells = "  ".join(f"{'':6}{items:8.1%}{both:9.1%}" for items, both in marks)
                gap = np.mean([gap for _, gap in made])
                print(f"{judge:16} {design:6} {gap:+6.3f}  {cells}", flush=True)


def _marked(
    base: Result, judge: str, strategy: str, apart: float, seed: int
) -> tuple[list[tuple[bool, bool]], float]:
    """Whether each measure's difference is marked, by drawing items alone and by `compare`; and the
    difference of ρ. The second run's judge has an opinion of its own of each text, of sd `apart` · SD.
    """
    rng = seeds.rng(seed, "truth")
    truth = rng.normal(0, SD, (2, N))
    gold = gold_of(truth[0] + 0.5 * truth[1], "both qualities")
    opinions = np.zeros((2, N))
    opinions[0] = rng.normal(0, apart * SD, N)
    runs = [
        _run(base, JUDGES[judge], strategy, seen, 2 * seed + at)
        for at, seen in enumerate((truth, truth + opinions))
    ]
    compared = compare(runs, Plan(resamples=500, rating_name="pl"), gold)
    (pair,) = compared.differences
    marks = []
    for name in MEASURES:
        one, other = (run.evaluation[0].measures[name].resampled for run in compared.runs)
        by_items = Measured(0.0, *interval(other - one))
        marks.append((by_items.zero_outside, pair.measures[name].zero_outside))
    return marks, float(pair.measures["spearman"].value or 0.0)


def _run(base: Result, seen: Seen, strategy: str, truth: Floats, seed: int) -> Result:
    """A run whose judge ranks by what it has seen, in place of the base's."""
    history = History.begin(N, strategies.parse(strategy, matchmaking="random"), seed)
    for round in history.to_come():
        matches = history.next_round()
        values = seen(matches, truth, seeds.rng(seed, "answers", round))
        history.add(_ranked(matches, values), len(matches))
    fit = ESTIMATORS["pl"].fit(comparisons.joined(history.verdicts), N, Parameters())
    scores = replace(base.scores, ratings={"pl": fit.theta}, matches=np.ones(N, np.int64))
    return replace(base, history=history, fit=fit, scores=scores)


def _ranked(matches: Matches, values: Floats) -> Verdicts:
    number = np.repeat(np.arange(len(matches)), matches.sizes)
    items = matches.items[np.lexsort((-values, number))]
    tied = np.zeros(len(items), dtype=np.bool_)
    return Verdicts(np.arange(len(matches)), items, matches.offsets, tied, matches.items)
