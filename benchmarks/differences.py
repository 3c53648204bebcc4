"""How often `judgeq compare` marks a difference between two runs: of one judge, where there is none, and
of two whose agreement with gold differs by 0.09."""

from __future__ import annotations

import tempfile
from dataclasses import replace

import numpy as np

import judgeq
from benchmarks.judges import JUDGES as ALL
from benchmarks.judges import Judge, asked, second_quality
from judgeq import seeds, strategies
from judgeq.engine.results import Result
from judgeq.evaluation.compare import compare
from judgeq.evaluation.gold import Plan, gold_of
from judgeq.evaluation.metrics import measured
from judgeq.rating import ESTIMATORS, Parameters, comparisons
from judgeq.types import Floats

N = 200
PAIRS = 160
"""Pairs of runs: what is 5 % comes out between 2 and 8 % nineteen times in twenty."""
SD = 2.0
MEASURES = ("spearman", "pearson")
JUDGES = ("model, sd 2", "vg", "rrt", "dependent lists", "20 % at random", "uneven texts")
DESIGNS = {"lists": "listwise10x3", "pairs": "pairwise12"}


def differences() -> None:
    """Goal: of runs of one judge 3 to 7 % are marked, of those 0.09 apart nearly all. An hour of CPU."""
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
    truth, opinions = rng.normal(0, SD, N), rng.normal(0, apart * SD, N)
    gold = gold_of(truth + 0.5 * second_quality(truth), "both qualities")
    runs = [
        _run(base, ALL[judge][0], strategy, seen, 2 * seed + at)
        for at, seen in enumerate((truth, truth + opinions))
    ]
    compared = compare(
        runs, Plan(resamples=500, rating_name="pl", measures=frozenset(MEASURES)), gold
    )
    (other,) = compared.others
    marks = []
    for name in MEASURES:
        one, two = (run.evaluation[0].measures[name].resampled for run in compared.runs)
        by_items = measured(0.0, two - one)
        marks.append((by_items.zero_outside, other.differences[name].zero_outside))
    return marks, float(other.differences["spearman"].value or 0.0)


def _run(base: Result, judge: Judge, strategy: str, truth: Floats, seed: int) -> Result:
    """A run that this judge answered, in place of the base's."""
    history = asked(judge, strategies.parse(strategy, matchmaking="random"), truth, seed)
    fit = ESTIMATORS["pl"].fit(comparisons.joined(history.verdicts), N, Parameters())
    scores = replace(base.scores, ratings={"pl": fit.theta}, matches=np.ones(N, np.int64))
    return replace(base, history=history, fit=fit, scores=scores)
