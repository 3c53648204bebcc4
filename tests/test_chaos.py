"""A little chaos: what `python -m tests.chaos` does a hundred times."""

from __future__ import annotations

from pathlib import Path

from tests.chaos import KINDS, trial

EVENTS = ("worker", "pause", "cut", "scheduler", "worker", "cut", "database")
"""After a database comes back nobody is found dead for a while: it is last."""


def test_whatever_goes_wrong_nothing_is_lost_or_bought_twice(tmp_path: Path) -> None:
    result = trial(tmp_path, 3, EVENTS, workers=3, n=600, apart=0.3)
    assert set(result["events"]) == set(KINDS)
    assert result["unknown"], "nothing was in flight when it went wrong"
