"""Reliability and misfit of a run, from the ledger to the command line; and of people's judgments."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import judgeq as package
from judgeq.evaluation import scale
from judgeq.rating import (
    ESTIMATORS,
    Parameters,
    reliability,
)
from judgeq.rating.comparisons import imply, joined
from judgeq.types import Comparisons, Floats, Verdicts
from tests.build import verdicts
from tests.cli import judgeq

pytestmark = pytest.mark.usefixtures("rated_once")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scale")
    for name, job in JOBS.items():
        judgeq(
            path, "run", "-d", "synthetic:normal", "--n", "60", *job, "--quiet", "--runs-dir", name
        )
    return path


N = ("--n", "60")
JOBS: Mapping[str, tuple[str, ...]] = {
    "similar": (*N, "-s", "listwise6x4:matchmaking=similar"),
    "random": (*N, "-s", "listwise6x4", "--matchmaking", "random"),
    "direct": (*N, "-s", "direct"),
    "complete": ("--n", "8", "-s", "complete:m=4", "--sim-accuracy", "0.6"),
    "panel": (*N, "-s", "pairwise8", "--judge", "simulated", "--judge", "simulated"),
}


# Runs


def test_evaluate_shows_reliability_and_misfit(runs: Path) -> None:
    found = json.loads(
        judgeq(runs, "evaluate", "--runs-dir", "similar", "--splits", "12", "--json").stdout
    )
    half = found["reliability"]["split_half"]
    run = package.open_run(runs_dir=runs / "similar")
    theta, se = run.scores.main[1], run.scores.se
    ssr = theta.var(ddof=1) / (theta.var(ddof=1) + (se * se).mean())
    assert found["reliability"]["separation"]["ssr"] == pytest.approx(ssr)
    assert found["reliability"]["separation"]["g"] == pytest.approx((1 - ssr) ** -0.5)
    assert half["splits"] == 12
    assert half["by"] == "judgments"
    assert 0.25 < half["low"] <= half["median"] <= half["high"] < 1
    assert half["whole"] == pytest.approx(2 * half["median"] / (1 + half["median"]))
    said = judgeq(runs, "evaluate", "--runs-dir", "similar", "--splits", "12").stdout
    words = " ".join(said.split())
    assert "median of 12 splits of the judgments" in words
    assert "Misfit with the scores" in words
    assert "outside the 95 % range" in words
    misfits = found["misfit"]
    assert misfits["judges"] is None  # one judge can't be held against others
    assert misfits["items"]["known"] == 60


def test_the_ssr_of_comparative_judgement_stands_under_its_own_name(runs: Path) -> None:
    flags = ("--runs-dir", "random", "--splits", "0", "--resamples", "0")
    found = json.loads(judgeq(runs, "evaluate", *flags, "--json").stdout)["reliability"]
    run = package.open_run(runs_dir=runs / "random")
    theta, se = scale.cj(imply(joined(run.history.verdicts)), 60)
    ssr = 1 - (se * se).mean() / theta.var(ddof=1)
    assert found["separation_cj"]["ssr"] == pytest.approx(ssr, abs=1e-9)
    assert found["separation_cj"]["g"] == pytest.approx((1 - ssr) ** -0.5)
    shown = " ".join(judgeq(runs, "evaluate", *flags).stdout.split())
    assert f"SSR (CJ) {ssr:.3f} as studies of comparative judgement publish it" in shown


def test_halves_are_rated_as_the_whole_with_its_prior_and_without_the_position(
    tmp_path: Path,
) -> None:
    job = ("-d", "synthetic:normal", "--n", "60", "-s", "pairwise8", "--sim-position-bias", "200")
    judgeq(tmp_path, "run", *job, "-q")
    run = package.open_run(runs_dir=tmp_path / "runs")
    assert run.fit.position

    def rate(half: Verdicts, n: int) -> Floats:
        return ESTIMATORS["pl"].fit(half, n, Parameters(run.fit.sigma, position=True)).theta

    expected = reliability.split_half(joined(run.history.verdicts), rate, 0, 3)
    assert scale.reliability_of(run, splits=3).split_half == expected


def test_a_warning_stands_beside_an_adaptive_designs_separation(runs: Path) -> None:
    flags = ("--splits", "0", "--resamples", "0")
    for name, adaptive in (("similar", True), ("random", False)):
        said = judgeq(runs, "evaluate", "--runs-dir", name, *flags).stdout
        assert ("Bramley and Vitello" in said) == adaptive
    judgments = judgeq(runs, "export", "--runs-dir", "random").stdout
    (runs / "judged.jsonl").write_text(judgments)
    job = ("-d", "synthetic:normal", "--n", "60", "judged.jsonl", "--runs-dir", "imported")
    judgeq(runs, "import", *job)
    said = judgeq(runs, "evaluate", "--runs-dir", "imported", *flags).stdout
    assert "How these judgments were chosen isn't known" in said


def test_items_judged_alone_say_why_there_is_nothing(runs: Path) -> None:
    flags = ("--runs-dir", "direct", "--resamples", "0", "--json")
    found = json.loads(judgeq(runs, "evaluate", *flags).stdout)
    assert found["misfit"]["why"] == "items judged alone imply no comparisons"
    assert found["misfit"]["items"] is None
    assert (
        found["reliability"]["separation"]["why"] == "the estimator direct has no standard errors"
    )
    assert found["reliability"]["split_half"]["why"] == "both halves connect no two items"
    assert "imply no comparisons" in judgeq(runs, "evaluate", *flags[:-1]).stdout


def test_from_python_and_by_the_papers_estimator(runs: Path) -> None:
    run = package.open_run(runs_dir=runs / "complete", rating="bt-mm")
    found = run.evaluate(splits=4, resamples=0)
    half = found["reliability"]["split_half"]
    assert (found["reliability"]["halves_by"], half["splits"]) == (
        "bt",
        4,
    )  # bt-mm would take minutes
    assert found["reliability"]["separation"]["why"] == "the estimator bt-mm has no standard errors"
    assert run.evaluate(splits=4, resamples=0) == found
    assert scale.reliability_of(run, splits=4, seed=1).split_half.r != half["median"]
    with pytest.raises(package.UsageError, match="0 or more"):
        run.evaluate(splits=-1)


# The recipe of published studies of comparative judgement


def recipe(pairs: Sequence[tuple[str, str]]) -> tuple[dict[str, float], dict[str, float], float]:
    """Plain Python from the description of the recipe: θ, se, SSR; pairs are (winner, loser)."""
    items = sorted({item for pair in pairs for item in pair})
    asked = {item: sum(item in pair for pair in pairs) for item in items}
    wins = {item: sum(item == pair[0] for pair in pairs) for item in items}
    score = {i: 0.3 + (asked[i] - 2 * 0.3) * wins[i] / asked[i] for i in items}
    raw = {i: (score[i] / asked[i] + 0.1) / 1.2 for i in items}
    theta = {i: math.log(raw[i] / (1 - raw[i])) for i in items}
    middle = sum(theta.values()) / len(items)
    theta = {i: theta[i] - middle for i in items}
    for iteration in range(1, 401):
        expected, information = dict.fromkeys(items, 0.0), dict.fromkeys(items, 0.0)
        for one, other in pairs:
            p = math.exp(theta[one]) / (math.exp(theta[one]) + math.exp(theta[other]))
            expected[one] += p
            expected[other] += 1 - p
            information[one] += p * (1 - p)
            information[other] += p * (1 - p)
        new = {}
        for i in items:
            step = (score[i] - expected[i]) / information[i]
            new[i] = theta[i] + math.copysign(min(abs(step), 0.98**iteration), step)
        middle = sum(new.values()) / len(items)
        new = {i: new[i] - middle for i in items}
        change = max(abs(new[i] - theta[i]) for i in items)
        theta = new
        if change <= 1e-4:
            break
    se = {i: 1 / math.sqrt(information[i]) for i in items}
    mean = sum(theta.values()) / len(items)
    variance = sum((theta[i] - mean) ** 2 for i in items) / (len(items) - 1)
    return theta, se, 1 - sum(one * one for one in se.values()) / len(items) / variance


@pytest.mark.parametrize(("n", "count", "seed"), [(12, 90, 0), (25, 120, 1), (6, 40, 2)])
def test_cj_is_the_published_recipe(n: int, count: int, seed: int) -> None:
    """By a second, independent implementation, for items that won or lost everything too."""
    rng = np.random.default_rng(seed)
    pairs: list[tuple[int, int]] = []
    while len(pairs) < count:
        a, b = (int(row) for row in rng.choice(n, 2, replace=False))
        pairs.append((a, b) if rng.random() < 1 / (1 + math.exp((a - b) / n * 6)) else (b, a))
    theta, se = scale.cj(imply(verdicts(pairs)), n + 1)
    named = [(f"{a:02}", f"{b:02}") for a, b in pairs]
    by_name, se_by_name, ssr = recipe(named)
    rows = [int(name) for name in by_name]
    assert theta[rows] == pytest.approx([*by_name.values()], abs=1e-12)
    assert se[rows] == pytest.approx([*se_by_name.values()], abs=1e-12)
    assert reliability.separation(theta, se, likeliest=True).ssr == pytest.approx(ssr, abs=1e-12)
    assert np.isnan(theta[n])  # never compared
    assert np.isnan(se[n])


def test_cj_at_its_maximum_is_a_closed_form() -> None:
    """A ring in which each of three beats the next 3 times of 4: all are equal, p = ½."""
    ring = [(0, 1), (1, 2), (2, 0)] * 3 + [(1, 0), (2, 1), (0, 2)]
    theta, se = scale.cj(imply(verdicts(ring)), 3)
    assert theta == pytest.approx(np.zeros(3))
    assert se == pytest.approx(np.full(3, 1 / math.sqrt(8 / 4)))
    none = Comparisons(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))
    assert np.isnan(scale.cj(none, 2)[0]).all()


# People
