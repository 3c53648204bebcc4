"""What several judges of one run say by themselves, and about one another."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from judgeq.evaluation.agreement import PanelAgreement, of_run
from judgeq.rating import ESTIMATORS, Estimator, Fit, Parameters
from judgeq.strategies import History
from judgeq.types import Verdicts
from tests.build import fit_map, verdicts
from tests.cli import judgeq

BT, DIRECT = ESTIMATORS["bt"], ESTIMATORS["direct"]
TWO = ("--judge", "simulated", "--judge", "simulated")


def by(some: Verdicts, *judges: int) -> Verdicts:
    return replace(some, judges=np.array(judges, dtype=np.int32))


def agreed(
    main: Estimator, names: Sequence[str], n: int, *rounds: Verdicts, resamples: int = 0
) -> PanelAgreement:
    """How well the judges of these rounds over n items agree."""
    history = History.begin(n, None)
    for some in rounds:
        history.add(some)
    fit, items = Fit(np.zeros(n)), SimpleNamespace(ids=range(n))
    of = {"main": main, "judges": names, "history": history, "fit": fit, "scores": items}
    run: Any = SimpleNamespace(**of, said=None, parameters=Parameters(2.0))
    found = of_run(run, resamples, 0)
    assert found is not None
    return found


def test_the_ratings_of_a_judge_are_those_of_its_verdicts_alone() -> None:
    one = by(verdicts([(0, 1, 2), (1, 0, 2), (3, 1)]), 0, 1, 0)
    other = by(verdicts([(2, 3), (3, 2)]), 0, 1)
    found = agreed(BT, ["a", "b"], 5, one, other)
    mine = fit_map(verdicts([(0, 1, 2), (3, 1), (2, 3)]), 5, 2.0)
    assert_array_equal(found.ratings[0][:4], mine[:4])
    assert np.isnan(found.ratings[0][4])
    theirs = fit_map(verdicts([(1, 0, 2), (3, 2)]), 5, 2.0)
    assert_array_equal(found.ratings[1][:4], theirs[:4])
    assert [part.tolist() for part in found.components] == [[1, 1, 1, 1, 0]] * 2
    assert list(found.verdicts) == [3, 2]
    assert found.judged_by_several == 4  # 01, 02, 12 and 23


def test_judges_who_say_the_same_agree_wholly() -> None:
    rankings = [(0, 1, 2, 3), (3, 1, 0, 2), (2, 1, 0)]
    both = by(verdicts([each for each in rankings for _ in "ab"]), *([0, 1] * 3))
    found = agreed(BT, ["a", "b"], 4, both, resamples=200)
    assert found.krippendorff_alpha.value == pytest.approx(1)
    assert found.kendall[0, 1] == pytest.approx(1)


def test_scores_of_items_alone_have_an_alpha_of_their_own() -> None:
    items = verdicts([(row,) for row in range(6) for _ in "ab"])
    scores = np.array([0.1, 0.1, 0.2, 0.2, 0.5, 0.5, 0.7, 0.7, 0.9, 0.9, 1.0, 1.0])
    some = replace(by(items, *([0, 1] * 6)), scores=scores)
    found = agreed(DIRECT, ["a", "b"], 6, some)
    assert found.krippendorff_alpha.value == pytest.approx(1)
    assert_array_equal(found.ratings[1], scores[1::2])
    assert found.judged_by_several == 6


def test_evaluate_tells_of_each_judge_and_of_their_agreement(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", "-d", "demo", *TWO, "--ensemble", "each", "--quiet")
    done = judgeq(tmp_path, "evaluate", "--resamples", "100")
    for words in ("pl by simulated 2", "Kendall's τ-b", "Krippendorff's α"):
        assert words in done.stdout
    assert re.search(r"simulated 1 +72", done.stdout)
    found = json.loads(judgeq(tmp_path, "evaluate", "--resamples", "100", "--json").stdout)
    ratings = {each["rating"]: each for each in found["evaluation"]}
    assert list(ratings) == [
        *("elo", "pl", "pl by simulated 1", "pl by simulated 2"),
    ]
    judges = found["judges"]
    assert judges["names"] == ["simulated 1", "simulated 2"]
    assert judges["verdicts"] == [72, 72]
    assert judges["judged_by_several"] > 3000
    alpha = judges["krippendorff_alpha"]
    assert 0.4 < alpha["low"] < alpha["value"] < alpha["high"] < 0.8
    assert judges["kendall"][0][1] == judges["kendall"][1][0]


def test_of_many_judges_none_is_rated_alone_and_all_agree_or_not() -> None:
    """As in what thousands of people judged."""
    rankings = [(0, 1), (1, 2), (2, 3), (0, 3)]
    both = by(verdicts([rankings[at % 4] for at in range(40)]), *range(40))
    names = [f"w{number}" for number in range(40)]
    found = agreed(BT, names, 4, both)
    assert (found.names, found.others, found.judged_by_several) == ([], 40, 4)
    assert found.krippendorff_alpha.value == pytest.approx(1)
