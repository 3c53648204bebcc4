"""The registry of estimators."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from judgeq.errors import StoppedError
from judgeq.rating import (
    CHOICES,
    ESTIMATORS,
    THRESHOLDS,
    Parameters,
    comparisons,
    elo,
    of_run,
)
from judgeq.types import Verdicts
from judgeq.ui.json import plain
from tests.build import verdicts

JUDGED: list[list[Any]] = [[(0, 1, 2), ((3, 1),)], [(2, 3), (3, 0, 1)], [(4, 0), (2, 4)]]


def scored(*scores: float) -> Verdicts:
    alone = verdicts([(row // 2,) for row in range(len(scores))])
    return replace(alone, scores=np.array(scores))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_rates_all_items_and_those_never_judged(name: str) -> None:
    estimator = ESTIMATORS[name]
    judged = verdicts([ranking for some in JUDGED for ranking in some])
    if name == "direct":
        judged = scored(0.1, 0.3, 1.0, 0.5)
    theta = estimator.fit(judged, 6, Parameters()).theta
    assert theta.shape == (6,)
    assert theta.dtype == np.float64
    nothing = estimator.fit(verdicts([]), 2, Parameters()).theta
    expected = np.nan if name in ("direct", "hybrid") else estimator.threshold
    assert_array_equal(nothing, [expected, expected])


def test_elo_of_all_verdicts_is_that_of_its_rounds_to_the_last_bit() -> None:
    rounds = [verdicts(some) for some in [*JUDGED, [(0, 1), (2, 3)]]]
    ratings = elo.start(5)
    for some in rounds:
        ratings = elo.fold(ratings, some)
    fitted = ESTIMATORS["elo"].fit(comparisons.joined(rounds), 5, Parameters())
    assert_array_equal(fitted.theta, ratings)


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
    assert bt.described(given) == "Bradley-Terry (bt, MAP with σ = 0.5)"
    assert mm.described(paper) == "Bradley-Terry (bt-mm, the paper's)"
    assert bt.described() == "Bradley-Terry (bt, MAP)"
    assert plain(given) == {
        "sigma": 0.5,
        "sigma_chosen": False,
        "sigma_at_limit": False,
        "dispersion": pytest.approx(given.posterior.dispersion if given.posterior else None),
        "position_taken_out": False,
        "share": None,
        "share_by_reliability": None,
    }
    assert plain(paper)["sigma"] is None
    assert plain(paper)["dispersion"] is None
    assert bt.fit(judged, 3, Parameters()).sigma == 2
    chosen = pl.fit(judged, 3, Parameters())
    assert chosen.chosen
    assert chosen.sigma is not None
    said = f"Plackett-Luce (pl, MAP of whole lists with σ = {chosen.sigma:.3g}, chosen)"
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
