"""Reliability and misfit: from arrays, and of a run, from the ledger to the command line."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import judgeq as package
from judgeq.errors import NotConvergedError
from judgeq.evaluation import scale
from judgeq.rating import ESTIMATORS, Parameters
from judgeq.rating.comparisons import Comparisons, imply, joined
from judgeq.rating.scale_quality import (
    Separation,
    SplitHalf,
    fit_of_items,
    fit_of_judges,
    residuals,
    separation,
    split_half,
)
from judgeq.types import Floats, Verdicts
from tests.build import Ranking, fit_map, grouped, verdicts
from tests.cli import json_of, judgeq


def by_judges(rankings: Sequence[Sequence[int]], judges: Sequence[int]) -> Verdicts:
    return replace(verdicts(rankings), judges=np.array(judges, dtype=np.int32))


def test_separation_is_its_closed_form() -> None:
    theta, se = np.array([-1.0, 0, 1]), np.array([0.3, 0.5, math.sqrt(0.41)])
    # The variance is 1, the mean squared error (0.09 + 0.25 + 0.41)/3.
    found, likeliest = separation(theta, se), separation(theta, se, likeliest=True)
    assert found.ssr == pytest.approx(1 / 1.25)
    assert likeliest.ssr == pytest.approx(1 - 0.25)
    assert found.g == pytest.approx(1 / math.sqrt(1 - 0.8))
    assert likeliest.g == pytest.approx(1 / math.sqrt(1 - 0.75))
    assert (found.n, found.why) == (3, None)


def test_separation_is_within_components() -> None:
    """How far two components lie apart is no spread that judgments know of."""
    theta = np.array([-1.0, 1, 99, 101, 7])
    component = np.array([1, 1, 2, 2, 3])
    found = separation(theta, np.full(5, 0.5), component, likeliest=True)
    assert found.ssr == pytest.approx(1 - 0.25 / 2)  # Σ 4 · 1² over 4 items less 2 components
    assert found.n == 4  # one alone in its component says nothing


def test_undefined_separation_says_why() -> None:
    nan = np.full(3, np.nan)
    why = "fewer than two items have a standard error"
    assert separation(np.arange(3.0), nan) == Separation(why=why)
    assert separation(np.zeros(3), np.ones(3)).why == "all items are rated the same"
    worse = separation(np.array([-1.0, 1]), np.array([2.0, 2]), likeliest=True)
    assert worse.ssr == -1.0  # errors larger than the spread
    assert worse.g == pytest.approx(1 / math.sqrt(2))


def test_consistent_judges_agree_in_both_halves() -> None:
    pairs = list(combinations(range(6), 2))
    judged = by_judges(pairs * 12, np.repeat(range(12), len(pairs)).tolist())
    found = split_half(judged, fit_map, 0, 10)
    assert (found.r, found.whole) == pytest.approx((1, 1))
    assert (found.by, found.splits, found.items) == ("judges", 10, 6)


def test_halves_of_coin_tosses_do_not_correlate() -> None:
    rng = np.random.default_rng(0)
    lists = [rng.permutation(200)[:10].tolist() for _ in range(120)]
    found = split_half(verdicts(lists), fit_map, 0, 20)
    assert found.by == "judgments"
    low, r, high = np.array([found.low, found.r, found.high], dtype=float)
    assert abs(r) < 0.1
    assert low < r < high


def test_halves_without_a_common_scale_say_so() -> None:
    disjoint = verdicts([[0, 1], [2, 3], [4, 5]])
    assert split_half(disjoint, fit_map, 0, 5).why == "both halves connect no two items"
    assert split_half(disjoint.where(np.arange(3) < 1), fit_map, 0).why is not None
    same = verdicts([[0, 1], [1, 0]] * 20)
    assert split_half(same, lambda half, n: np.zeros(n), 0, 5).why == "all items are rated the same"
    none = SplitHalf("judgments", why="no splits were asked for")
    assert split_half(same, fit_map, 0, 0) == none

    def fails(half: Verdicts, n: int) -> Floats:
        raise NotConvergedError("no end")

    assert split_half(same, fails, 0, 2).why == "half of the judgments can't be rated: no end"


THETA = np.array([1.5, 0.2, -0.3, -2.0, 0.9, 0.0, -1.0])


def test_mean_squares_of_pairs_by_definition() -> None:
    pairs: list[Ranking] = [(0, 1), (3, 0), (2, 4), (4, 2), (5, 1), ((6, 0),), (0, 6), (1, 0)]
    judged = replace(verdicts(pairs), judges=np.arange(8, dtype=np.int32) % 2)
    sums: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for at, pair in enumerate(pairs):
        groups = grouped(pair)
        (a, b), y = (groups[0], 0.5) if len(groups) == 1 else (groups[0] + groups[1], 1.0)
        p = 1 / (1 + math.exp(THETA[b] - THETA[a]))
        for key in (("item", a), ("item", b), ("judge", at % 2)):
            sums[key].append(((y - p) ** 2, p * (1 - p)))
    items, judges = fit_of_items(judged, THETA), fit_of_judges(judged, THETA, 2)
    for kind, fit in (("item", items), ("judge", judges)):
        for unit, comparisons in enumerate(fit.comparisons.tolist()):
            parts = sums[kind, unit]
            infit = sum(r for r, _ in parts) / sum(w for _, w in parts)
            outfit = sum(r / w for r, w in parts) / len(parts)
            assert comparisons == len(parts)
            assert (fit.infit[unit], fit.outfit[unit]) == pytest.approx((infit, outfit))


def test_mean_squares_of_lists_are_those_of_score_residuals() -> None:
    judged = verdicts([(0, 1, 2, 3), (5, 4, 0), (1, 0)])
    found = residuals(judged, THETA)
    fit = fit_of_items(judged, THETA)
    mine = judged.items == 0
    squares, h = found.residual[mine] ** 2, found.variance[mine]
    assert fit.infit[0] == pytest.approx((squares * h).sum() / h.sum())
    assert fit.outfit[0] == pytest.approx(squares.mean())
    assert fit.comparisons.tolist() == [6, 4, 3, 3, 2, 2, 0]
    assert np.isnan(fit.infit[6])


def test_judges_that_answer_at_random_misfit() -> None:
    """Four of eighty, each asked about sixty pairs."""
    rng, judges = np.random.default_rng(0), np.arange(4800, dtype=np.int32) % 80
    theta = rng.normal(0, 2, 200)
    ranked = list[list[int]]()
    for judge in judges:
        pair = rng.choice(200, 2, replace=False)
        value = (judge >= 4) * theta[pair] + rng.gumbel(size=2)
        ranked.append(pair[np.argsort(-value)].tolist())
    judged = by_judges(ranked, judges.tolist())
    above = fit_of_judges(judged, fit_map(judged, 200), 80).above
    assert above[:4].all()
    assert above[4:].mean() <= 0.05


def test_nothing_is_said_of_few_comparisons() -> None:
    fit = fit_of_judges(verdicts([[0, 1, 2], [2, 1, 0]]), THETA, 2)
    assert fit.comparisons.tolist() == [6, 0]
    assert not fit.judged.any()
    assert not (fit.above | fit.below).any()
    empty = fit_of_judges(verdicts([]), THETA, 1)
    assert np.isnan(empty.infit).all()
    assert not fit_of_items(verdicts([]), THETA).judged.any()


def test_residuals_of_pairs_ties_and_items_alone() -> None:
    judged = verdicts([(3, 0), (0, 3), [(0, 3)], (1,), (5, 2, 1)])
    residual, _, expected = residuals(judged, THETA)
    p = 1 / (1 + math.exp(3.5))  # that 3 is above 0
    assert_allclose(residual[:2], [math.sqrt((1 - p) / p), -math.sqrt((1 - p) / p)])
    assert_allclose(residual[2:4], [math.sqrt(p / (1 - p)), -math.sqrt(p / (1 - p))])
    assert_allclose(residual[4], -residual[5])
    assert residual[4] < 0
    assert_allclose(expected[4:6], [1 - p, p])
    assert np.isnan([residual[6], expected[6]]).all()
    # Whatever the reply's own order of tied items, each has its own residual.
    turned = residuals(verdicts([[(3, 0)]]), THETA)
    assert_allclose(turned.residual, residual[5:3:-1])
    assert_allclose(turned.expected, expected[5:3:-1])
    far = residuals(verdicts([(1, 0), (0, 1)]), np.array([2000.0, 0.0])).residual
    assert np.isfinite(far).all()
    assert np.isnan(residuals(verdicts([(1, 0)]), np.array([np.nan, 0.0])).residual).all()


pytestmark = pytest.mark.usefixtures("rated_once")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scale")
    for name, job in JOBS.items():
        judgeq(path, "run", "-d", "synthetic:normal", *job, "--quiet", "--runs-dir", name)
    return path


N = ("--n", "60")
JOBS: Mapping[str, tuple[str, ...]] = {
    "similar": (*N, "-s", "listwise6x4:matchmaking=similar"),
    "random": (*N, "-s", "listwise6x4", "--matchmaking", "random"),
    "direct": (*N, "-s", "direct"),
    "complete": ("--n", "8", "-s", "complete:m=4", "--sim-accuracy", "0.6"),
    "panel": (*N, "-s", "pairwise8", "--judge", "simulated", "--judge", "simulated"),
}


def test_evaluate_shows_reliability_and_misfit(runs: Path) -> None:
    found = json_of(runs, "evaluate", "--runs-dir", "similar", "--splits", "12")
    half = found["reliability"]["split_half"]
    run = package.open_run(runs_dir=runs / "similar")
    theta, se = run.scores.main[1], run.scores.se
    ssr = theta.var(ddof=1) / (theta.var(ddof=1) + (se * se).mean())
    assert found["reliability"]["separation"]["ssr"] == pytest.approx(ssr)
    assert found["reliability"]["separation"]["g"] == pytest.approx((1 - ssr) ** -0.5)
    assert (half["splits"], half["by"]) == (12, "judgments")
    assert 0.25 < half["low"] <= half["median"] <= half["high"] < 1
    assert half["whole"] == pytest.approx(2 * half["median"] / (1 + half["median"]))
    said = judgeq(runs, "evaluate", "--runs-dir", "similar", "--splits", "12").stdout
    words = " ".join(said.split())
    for part in ("12 splits of the judgments", "Misfit with the scores", "outside the 95 % range"):
        assert part in words
    assert found["misfit"]["judges"] is None  # one judge can't be held against others
    assert found["misfit"]["items"]["known"] == 60


def test_the_ssr_of_comparative_judgement_stands_under_its_own_name(runs: Path) -> None:
    judgeq(
        runs, "run", "-d", "synthetic:normal", "--n", "60", "-s", "pairwise8", "--runs-dir", "pairs"
    )
    flags = ("--runs-dir", "pairs", "--splits", "0", "--resamples", "0")
    found = json_of(runs, "evaluate", *flags)["reliability"]
    run = package.open_run(runs_dir=runs / "pairs")
    theta, se = scale.cj(imply(joined(run.history.verdicts)), 60)
    ssr = 1 - (se * se).mean() / theta.var(ddof=1)
    assert found["separation_cj"]["ssr"] == pytest.approx(ssr, abs=1e-9)
    assert found["separation_cj"]["g"] == pytest.approx((1 - ssr) ** -0.5)
    shown = " ".join(judgeq(runs, "evaluate", *flags).stdout.split())
    assert f"SSR (CJ) {ssr:.3f} as studies of comparative judgement publish it" in shown


def test_lists_have_no_ssr_of_comparative_judgement(runs: Path) -> None:
    """It takes the pairs of a list for independent."""
    flags = ("--runs-dir", "random", "--splits", "0", "--resamples", "0")
    found = json_of(runs, "evaluate", *flags)["reliability"]["separation_cj"]
    assert found["ssr"] is None
    assert found["why"] == "the pairs that a list implies aren't independent of one another"
    assert "SSR (CJ)" not in judgeq(runs, "evaluate", *flags).stdout


def test_halves_are_rated_with_the_prior_of_all_and_without_the_position(tmp_path: Path) -> None:
    job = ("-d", "synthetic:normal", "--n", "60", "-s", "pairwise8", "--sim-position-bias", "200")
    judgeq(tmp_path, "run", *job, "-q")
    run = package.open_run(runs_dir=tmp_path / "runs")
    assert run.fit.position

    def rate(half: Verdicts, n: int) -> Floats:
        return ESTIMATORS["pl"].fit(half, n, Parameters(run.fit.sigma, position=True)).maximum

    expected = split_half(joined(run.history.verdicts), rate, 0, 3)
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
    flags = ("--runs-dir", "direct", "--resamples", "0")
    found = json_of(runs, "evaluate", *flags)
    separation, half = (found["reliability"][name] for name in ("separation", "split_half"))
    assert found["misfit"]["why"] == "items judged alone imply no comparisons"
    assert found["misfit"]["items"] is None
    assert separation["why"] == "the estimator direct has no standard errors"
    assert half["why"] == "each text was judged once"
    assert "imply no comparisons" in judgeq(runs, "evaluate", *flags).stdout


def test_from_python_and_by_the_papers_estimator(runs: Path) -> None:
    run = package.open_run(runs_dir=runs / "complete", rating="bt-mm")
    found = run.evaluate(splits=4, resamples=0)
    half = found["reliability"]["split_half"]
    assert found["reliability"]["halves_by"] == "bt"  # bt-mm would take minutes
    assert half["splits"] == 4
    assert found["reliability"]["separation"]["why"] == "the estimator bt-mm has no standard errors"
    assert run.evaluate(splits=4, resamples=0) == found
    assert scale.reliability_of(run, splits=4, seed=1).split_half.r != half["median"]
    with pytest.raises(package.UsageError, match="0 or more"):
        run.evaluate(splits=-1)


def test_cj_is_the_published_recipe() -> None:
    """As plain Python made it of the recipe's description; the fourth lost all, the last is alone."""
    pairs = zip("aaaabbbcccbaabe", "bbcdacdbddddeec", strict=True)
    judged = verdicts([["abcde".index(item) for item in pair] for pair in pairs])
    theta, se = scale.cj(imply(judged), 6)
    expected = [1.653032422, 0.779559776, -0.127781387, -2.430100506, 0.125289694, np.nan]
    assert_allclose(theta, expected, atol=1e-9)
    errors = [1.039216896, 0.866222554, 1.028969924, 1.915509275, 1.272453536, np.nan]
    assert_allclose(se, errors, atol=1e-9)
    assert separation(theta, se, likeliest=True).ssr == pytest.approx(0.294872151, abs=1e-9)


def test_cj_at_its_maximum_is_a_closed_form() -> None:
    """A ring in which each of three beats the next 3 times of 4: all are equal, p = ½."""
    ring = [(0, 1), (1, 2), (2, 0)] * 3 + [(1, 0), (2, 1), (0, 2)]
    theta, se = scale.cj(imply(verdicts(ring)), 3)
    assert theta == pytest.approx(np.zeros(3))
    assert se == pytest.approx(np.full(3, 1 / math.sqrt(8 / 4)))
    none = Comparisons(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))
    assert np.isnan(scale.cj(none, 2)[0]).all()
