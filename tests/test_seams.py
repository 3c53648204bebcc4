"""The examples of judgeq/README.md, by which estimators and strategies are added, work as they stand."""

from __future__ import annotations

import re
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from judgeq.rating import Estimator, Parameters
from judgeq.settings.providers import Provider
from judgeq.strategies.strategy import History
from judgeq.types import Standings
from tests.build import verdicts
from tests.cli import REPO

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
    elo = np.arange(7.0)
    history = History(Standings(elo, np.ones(7, np.bool_)))
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
