"""The registry of estimators."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from judgeq.errors import StoppedError
from judgeq.rating import (
    CHOICES,
    ESTIMATORS,
    THRESHOLDS,
    Estimator,
    Parameters,
    comparisons,
    elo,
    of_run,
)
from judgeq.settings.providers import Provider
from judgeq.strategies.strategy import History
from judgeq.types import Standings, Verdicts
from judgeq.ui.json import plain
from tests.build import verdicts
from tests.cli import REPO

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


# The examples of judgeq/README.md, by which estimators and strategies are added, work as they stand


README = (REPO / "judgeq" / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def example(part: str) -> str:
    (found,) = [text for text in EXAMPLES if part in text]
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
    assert {frozenset(pair) for pair in first.items.reshape(-1, 2).tolist()} == {
        frozenset(pair) for pair in ((6, 5), (4, 3), (2, 1))
    }
    history.verdicts.append(verdicts([(6, 5)]))
    assert 6 not in strategy.next_round(history, rng).items
    assert strategy.asked(1, 7) == (3, 6)
    assert strategy.cost(7) == 18


def test_a_provider_is_a_line() -> None:
    (made,) = eval(f"{{{example('together')}}}", {"Provider": Provider, "_OPEN": "llama"}).values()
    assert made.key == "TOGETHER_API_KEY"
