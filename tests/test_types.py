from __future__ import annotations

from hypothesis import given, settings

from judgeq.types import Verdict
from tests.build import Ranking, grouped, rankings


@settings(max_examples=50)
@given(ranking=rankings())
def test_a_verdict_gives_back_its_groups(ranking: Ranking) -> None:
    groups = grouped(ranking)
    verdict = Verdict.of(groups)
    assert verdict.groups == tuple(map(tuple, groups))
    assert verdict.items == tuple(item for group in groups for item in group)


def test_a_verdict_without_ties_is_its_items_alone() -> None:
    """So that one made of groups and one made of items are equal."""
    assert Verdict.of([[3], [1]]) == Verdict((3, 1))
