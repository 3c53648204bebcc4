"""Elo, Bradley-Terry and the registry of estimators; the threshold of a mixture."""

import csv
import math
import re
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from judgeq.config import settle
from judgeq.errors import NotConvergedError, StoppedError, UsageError
from judgeq.rating import (
    CHOICES,
    ESTIMATORS,
    THRESHOLDS,
    Estimator,
    Parameters,
    comparisons,
    mixture,
    of_run,
)
from judgeq.rating.bradley_terry import fit_mm
from judgeq.rating.curvature import SIGMAS
from judgeq.rating.elo import fold, start
from judgeq.settings.providers import Provider
from judgeq.strategies.strategy import History, Standings
from judgeq.types import Floats, Verdicts
from judgeq.ui.dataclass_json import plain
from tests.build import SHARED, Ranking, grouped, needs_recordings, rankings, recording, verdicts
from tests.cli import REPO
from tests.test_comparisons import implied

RATINGS = st.lists(st.floats(0, 3000), min_size=7, max_size=7).map(np.array)


def naive(ratings: Floats, many: list[Ranking]) -> Floats:
    """Elo over lists by its definition."""
    folded = ratings.tolist()
    for ranking in many:
        # Tied items in the order presented, which is by rows in tests/build.py.
        groups = map(sorted, grouped(ranking))
        flat = [(item, place) for place, group in enumerate(groups) for item in group]
        for at, (a, place) in enumerate(flat):
            for b, other in flat[at + 1 :]:
                expected = 1 / (1 + 10 ** ((folded[b] - folded[a]) / 400))
                change = 32 * ((0.5 if place == other else 1) - expected)
                folded[a] += change
                folded[b] -= change
    return np.array(folded)


@needs_recordings
@pytest.mark.parametrize(
    "name", ["babe_gpt-5-mini_listwise10x3", "us_vs_them_gpt-5-mini_listwise10x3"]
)
def test_the_published_elo_comes_out_to_the_last_bit(name: str) -> None:
    with (SHARED / "recordings" / f"{name}.scores.csv").open(newline="") as file:
        published = {int(line["row"]): float(line["elo"]) for line in csv.DictReader(file)}
    ratings = start(len(published))
    for some in recording(name):
        ratings = fold(ratings, some)
    assert dict(enumerate(ratings.tolist())) == published


def test_a_list_by_hand() -> None:
    """Each pair reads what the one before it has left: (0,1), (0,2), (1,2)."""
    first, second, third = 1500.0, 1500.0, 1500.0
    first, second = first + 16, second - 16
    change = 32 * (1 - 1 / (1 + 10 ** ((third - first) / 400)))
    first, third = first + change, third - change
    change = 32 * (1 - 1 / (1 + 10 ** ((third - second) / 400)))
    second, third = second + change, third - change
    assert_array_equal(fold(start(3), verdicts([(0, 1, 2)])), [first, second, third])


@settings(max_examples=100)
@given(ratings=RATINGS, many=st.lists(rankings(7), min_size=1, max_size=5))
def test_lists_are_folded_one_after_the_other(ratings: Floats, many: list[Ranking]) -> None:
    assert_array_equal(fold(ratings, verdicts(many)), naive(ratings, many))


def mm_by_loops(many: list[Ranking], n: int, prior: float, tolerance: float) -> Floats:
    won = np.zeros((n, n))
    for (winner, loser, weight), often in implied(many).items():
        won[winner, loser] += weight * often
    strength = [1.0] * n
    while True:
        new = []
        for i in range(n):
            rate = sum((won[i, j] + won[j, i]) / (strength[i] + strength[j]) for j in range(n))
            new.append((won[i].sum() + prior) / (rate + prior))
        mean = math.prod(new) ** (1 / n)
        new = [each / mean for each in new]
        change = max(abs(math.log(a / b)) for a, b in zip(new, strength, strict=True))
        strength = new
        if change < tolerance:
            return np.log(strength)


MIXED: list[Ranking] = [(0, 1, 2), ([1, 0], 3), (4, 2), (3, [5, 4], 0), (5, 1), (2, [0, 5]), (1, 4)]


def test_mm_is_its_definition() -> None:
    theta = fit_mm(comparisons.imply(verdicts(MIXED)), 6)
    assert_allclose(theta, mm_by_loops(MIXED, 6, 1e-6, 1e-6), atol=1e-9)
    assert theta.mean() == pytest.approx(0, abs=1e-12)


def test_mm_that_has_not_converged_raises() -> None:
    with pytest.raises(NotConvergedError, match=r"did not converge in 1 sweeps: .*--rating bt"):
        fit_mm(comparisons.imply(verdicts([(0, 1, 2), (1, 0)])), 3, sweeps=1)


def test_settings_know_the_bounds_of_sigma() -> None:
    for sigma in SIGMAS:
        assert settle({"dataset": "demo", "sigma": sigma}).sigma == sigma
        outside = sigma * (0.99 if sigma < 1 else 1.01)
        with pytest.raises(UsageError, match=r"--sigma .*: give .* or (more|less)"):
            settle({"dataset": "demo", "sigma": outside})


def two(n: int, share: float, gap: float, seed: int = 0, wide: float = 1.0) -> Floats:
    rng = np.random.default_rng(seed)
    upper = rng.random(n) < share
    return np.where(upper, gap + wide * rng.standard_normal(n), rng.standard_normal(n))


@pytest.mark.parametrize(
    ("share", "gap", "wide", "expected", "likelihood"),
    [
        (0.5, 4, 1, [0.4904, 0.5096, 0.0012, 3.9956, 0.9980, 1.0322], -2.0615882),
        (0.1, 5, 0.7, [0.8939, 0.1061, 0.0274, 4.9266, 0.9919, 0.7335], -1.7128748),
        (0.3, 3, 1.5, [0.6749, 0.3251, -0.0184, 2.8486, 0.9879, 1.5228], -1.9191719),
    ],
)
def test_a_mixture_is_that_of_scikit_learn_and_parts_the_scores_where_its_densities_cross(
    share: float, gap: float, wide: float, expected: list[float], likelihood: float
) -> None:
    """Shares, means and deviations by its GaussianMixture, of five starts."""
    scores = two(2000, share, gap, wide=wide)
    ours = mixture.fit(scores)
    assert [*ours.weights, *ours.means, *ours.deviations] == pytest.approx(expected, abs=3e-3)
    assert ours.likelihood == pytest.approx(likelihood, abs=1e-6)
    alone = scipy.stats.norm.logpdf(scores, scores.mean(), scores.std()).mean()
    assert ours.one == pytest.approx(alone)
    cut = mixture.threshold(scores).value
    assert cut is not None
    assert ours.means[0] < cut < ours.means[1]
    lower, upper = scipy.stats.norm.pdf(cut, ours.means, ours.deviations) * ours.weights
    assert lower == pytest.approx(upper, rel=1e-6)


def test_only_the_scores_count_not_their_order_place_or_scale() -> None:
    scores = two(500, 0.2, 4)
    value = mixture.threshold(scores).value
    assert value is not None
    rng = np.random.default_rng(1)
    assert mixture.threshold(rng.permutation(scores)).value == value
    assert mixture.threshold(np.append(scores, np.nan)).value == value
    assert mixture.threshold(1500 + 40 * scores).value == pytest.approx(1500 + 40 * value)
    assert mixture.threshold(-scores).value == pytest.approx(-value, abs=1e-3)


def test_scores_have_two_humps_where_a_valley_lies_between_them() -> None:
    assert mixture.has_two_humps(two(200, 0.3, 4))
    assert mixture.has_two_humps(np.append(two(200, 0.3, 4), np.nan))
    # Skew scores have a threshold, but one hump.
    skew = np.random.default_rng(0).gamma(2, 1, 1000)
    assert mixture.threshold(skew).value is not None
    assert not mixture.has_two_humps(skew)
    assert not mixture.has_two_humps(np.zeros(100))
    assert not mixture.has_two_humps(np.arange(20.0))


@pytest.mark.parametrize("n", [50, 200])
def test_normal_scores_hardly_ever_have_two_humps(n: int) -> None:
    draws = np.random.default_rng(n).normal(size=(200, n))
    assert sum(map(mixture.has_two_humps, draws)) <= 0.05 * len(draws)


def test_many_scores_are_fitted_by_their_quantiles() -> None:
    scores = two(200_000, 0.2, 4)
    value = mixture.threshold(scores).value
    fewer = mixture.threshold(scores[: mixture.AT_MOST]).value
    assert value == pytest.approx(fewer, abs=0.1)
    # Where N(0, 1) and N(4, 1) with weights 0.8 and 0.2 cross.
    assert value == pytest.approx(2 + np.log(4) / 4, abs=0.02)


@pytest.mark.parametrize(
    ("scores", "why"),
    [
        (np.arange(29.0), "needs 30 scores, and there are 29"),
        (np.ones(50), "all scores are equal"),
        (np.random.default_rng(0).normal(size=1000), "hardly better than one"),
        (np.append(np.random.default_rng(0).normal(size=1000), [40.0, 41.0]), "fewer than 5 items"),
        (  # one component within the other
            np.random.default_rng(0).normal(size=2000) * np.repeat([1.0, 6.0], 1000),
            "don't cross between their means",
        ),
    ],
)
def test_where_nothing_parts_the_scores_it_says_why(scores: Floats, why: str) -> None:
    cut = mixture.threshold(scores)
    assert cut.value is None
    assert why in str(cut.why)


def scored(*scores: float) -> Verdicts:
    alone = verdicts([(row // 2,) for row in range(len(scores))])
    return replace(alone, scores=np.array(scores))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_rates_all_items_and_those_never_judged(name: str) -> None:
    estimator = ESTIMATORS[name]
    judged = verdicts([(0, 1, 2), ((3, 1),), (2, 3), (3, 0, 1), (4, 0), (2, 4)])
    if name == "direct":
        judged = scored(0.1, 0.3, 1.0, 0.5)
    theta = estimator.fit(judged, 6, Parameters()).theta
    assert theta.shape == (6,)
    assert theta.dtype == np.float64
    nothing = estimator.fit(verdicts([]), 2, Parameters()).theta
    expected = np.nan if name in ("direct", "hybrid") else estimator.threshold
    assert_array_equal(nothing, [expected, expected])


def test_direct_scores_are_means_over_judges() -> None:
    theta = ESTIMATORS["direct"].fit(scored(0.1, 0.3, 1.0, 0.5), 3, Parameters()).theta
    assert_array_equal(theta, [0.2, 0.75, np.nan])


def test_a_run_has_elo_and_what_was_chosen_or_direct_scores() -> None:
    for name in CHOICES:
        assert [one.name for one in of_run(name, "comparisons")] == ["elo", name]
    assert [one.name for one in of_run("bt", "scores")] == ["direct"]
    names = [one.name for one in of_run("bt", "both")]
    assert names == ["direct", "elo", "bt", "hybrid"]
    assert THRESHOLDS == {"elo": 1500, "pl": 0, "bt": 0, "direct": 0.5, "hybrid": 0}


def test_an_estimator_says_what_it_is() -> None:
    bt, mm, pl = ESTIMATORS["bt"], ESTIMATORS["bt-mm"], ESTIMATORS["pl"]
    judged = verdicts([(0, 1, 2), (1, 0, 2), (2, 1, 0)])
    given, paper = bt.fit(judged, 3, Parameters(0.5)), mm.fit(judged, 3, Parameters())
    assert bt.described(given) == "Bradley-Terry (bt, posterior means with σ = 0.5)"
    assert mm.described(paper) == "Bradley-Terry (bt-mm, the paper's)"
    assert bt.described() == "Bradley-Terry (bt, posterior means)"
    no = dict.fromkeys(
        ("sigma_chosen", "sigma_at_limit", "sigma_averaged", "position_taken_out"), False
    )
    none = dict.fromkeys(("share", "share_by_reliability"))
    dispersion = pytest.approx(given.posterior.dispersion if given.posterior else None)
    assert plain(given) == {"sigma": 0.5, "dispersion": dispersion, **no, **none}
    assert (plain(paper)["sigma"], plain(paper)["dispersion"]) == (None, None)
    assert bt.fit(judged, 3, Parameters()).sigma == 2
    chosen = pl.fit(judged, 3, Parameters())
    assert chosen.chosen
    assert chosen.sigma
    said = f"Plackett-Luce (pl, posterior means by whole lists with σ = {chosen.sigma:.3g}, chosen)"
    assert pl.described(chosen) == said
    by_hand = pl.fit(judged, 3, Parameters(chosen.sigma))
    assert (by_hand.chosen, by_hand.at_limit) == (False, False)
    assert_array_equal(by_hand.theta.round(7), chosen.theta.round(7))


@pytest.mark.parametrize("name", CHOICES)
def test_what_go_on_raises_ends_the_fit(name: str) -> None:
    def stop() -> None:
        raise StoppedError("given up")

    with pytest.raises(StoppedError):
        ESTIMATORS[name].fit(verdicts([(0, 1, 2)]), 3, Parameters(), stop)


# The examples of judgeq/README.md, by which estimators and strategies are added, work as they stand


def example(part: str) -> str:
    readme = (REPO / "judgeq" / "README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    (found,) = [text for text in examples if part in text]
    return str(found)


def module(name: str, text: str, patch: pytest.MonkeyPatch) -> Any:
    made = ModuleType(name)
    patch.setitem(sys.modules, name, made)
    exec(text, made.__dict__)
    return made


def test_an_estimator_is_a_function_and_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module("judgeq.rating.won_share", example("def fit("), monkeypatch)
    estimator = eval(example('Estimator("won"'), {"Estimator": Estimator})
    fitted = estimator.fit(verdicts([(0, 1, 2), (0, 1)]), 4, Parameters())
    np.testing.assert_allclose(fitted.theta, [1, 1 / 3, 0, np.nan])


def test_a_strategy_is_a_dataclass(monkeypatch: pytest.MonkeyPatch) -> None:
    made = module("judgeq.strategies.neighbours", example("class Neighbours"), monkeypatch)
    strategy = made.Neighbours()
    strategy.check(7)
    history = History(Standings(np.arange(7.0), np.ones(7, np.bool_)))
    rng = np.random.default_rng(0)
    first = strategy.next_round(history, rng)
    met = sorted(sorted(pair) for pair in first.items.reshape(-1, 2).tolist())
    assert met == [[1, 2], [3, 4], [5, 6]]
    history.verdicts.append(verdicts([(6, 5)]))
    assert 6 not in strategy.next_round(history, rng).items
    assert strategy.asked(1, 7) == (3, 6)
    assert strategy.cost(7) == 18


def test_a_provider_is_a_line() -> None:
    (made,) = eval(f"{{{example('together')}}}", {"Provider": Provider, "_OPEN": "llama"}).values()
    assert made.key == "TOGETHER_API_KEY"
