"""What verdicts imply, and which items they connect."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq.rating import comparisons
from judgeq.rating.bradley_terry import fit_mm
from tests.build import Ranking, fit_map, grouped, rankings, verdicts
from tests.cli import json_of, judgeq, only_run, score_columns

N = 7
MANY = st.lists(rankings(N), max_size=8)


def implied(many: list[Ranking]) -> Counter[tuple[int, int, float]]:
    """(winner, loser, weight) by the definition."""
    found: Counter[tuple[int, int, float]] = Counter()
    for ranking in many:
        groups = grouped(ranking)
        for place, group in enumerate(groups):
            for item in group:
                found.update((item, other, 0.5) for other in group if other != item)
                found.update((item, other, 1.0) for after in groups[place + 1 :] for other in after)
    return found


def columns(found: comparisons.Comparisons) -> Counter[tuple[int, int, float]]:
    rows = zip(found.winner.tolist(), found.loser.tolist(), found.weight.tolist(), strict=True)
    return Counter(rows)


@settings(max_examples=100)
@given(many=MANY)
def test_imply(many: list[Ranking]) -> None:
    some = verdicts(many)
    found = comparisons.imply(some)
    assert columns(found) == implied(many)
    assert (found.winner.dtype.name, found.weight.dtype.name) == ("int32", "float64")
    sizes = np.diff(some.offsets)
    assert found.weight.sum() == (sizes * (sizes - 1) / 2).sum()


@settings(max_examples=100)
@given(many=MANY)
def test_wins_and_matches_are_those_of_the_comparisons(many: list[Ranking]) -> None:
    some, n = verdicts(many), N + 2
    found = comparisons.imply(some)
    assert_array_equal(comparisons.wins_of(some, n), np.bincount(found.winner, found.weight, n))
    presented = [item for ranking in many for group in grouped(ranking) for item in group]
    assert_array_equal(
        comparisons.matches_of(some, n), [presented.count(item) for item in range(n)]
    )


FEW_OF_12 = st.tuples(rankings(4), st.permutations(range(12)))


@given(st.lists(FEW_OF_12, max_size=6))
def test_components_are_scipys(many: list[tuple[Ranking, list[int]]]) -> None:
    some = verdicts(
        [[rows[item] for item in group] for group in grouped(ranking)] for ranking, rows in many
    )
    found = comparisons.components(some, 12)
    pairs = comparisons.imply(some)
    edges = scipy.sparse.coo_matrix((pairs.weight, (pairs.winner, pairs.loser)), shape=(12, 12))
    _, expected = scipy.sparse.csgraph.connected_components(edges, directed=False)
    judged = comparisons.matches_of(some, 12) > 0
    assert_array_equal(found > 0, judged)
    rows = np.flatnonzero(judged)
    same = found[rows][:, None] == found[rows]
    assert_array_equal(same, expected[rows][:, None] == expected[rows])
    sizes = comparisons.component_sizes(found)
    assert list(dict.fromkeys(found[rows].tolist())) == list(range(1, len(sizes) + 1))
    assert sizes.sum() == len(rows)


def test_each_component_is_rated_by_itself() -> None:
    one, other = [[0, 1, 2], [1, 0, 2]], [[4, 3], [3, 5], [5, 4], [4, 3]]
    both = verdicts([*one, *other])
    theta = fit_map(both, 6, 2.0)
    mm = fit_mm(comparisons.imply(both), 6, component=comparisons.components(both, 6))
    for rows, alone in (((0, 1, 2), one), ((3, 4, 5), other)):
        assert theta[list(rows)].sum() == pytest.approx(0, abs=1e-8)
        expected = fit_mm(comparisons.imply(verdicts(alone)), 6)[list(rows)]
        assert mm[list(rows)] == pytest.approx(expected - expected.mean(), abs=1e-4)


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    """Two topics, never compared with each other: the judge is right about each, and all items of the
    second have more of the feature by their labels."""
    rows = [f"text {row},{row % 10 + 10 * (row // 10)}" for row in range(20)]
    (tmp_path / "my.csv").write_text("\n".join(["text,gold", *rows, "never judged,7"]))
    first, second = list(range(9, -1, -1)), list(range(19, 9, -1))
    lines = [json.dumps({"presented": some, "ranking": some}) for some in (first, second)]
    (tmp_path / "judged.jsonl").write_text("\n".join(lines * 2))
    return tmp_path


def test_what_nothing_connects_is_reported_and_not_pooled_in_silence(topics: Path) -> None:
    flags = ("-d", "my.csv", "--gold-column", "gold", "judged.jsonl")
    note = "The texts form 2 separate groups (of 10) that were never compared with one another."
    pooled = "correlations within each of 2 groups, pooled"

    def said(*words: str) -> str:
        return " ".join(judgeq(topics, *words).stdout.split())

    shown = said("import", *flags)
    assert shown.index(note) < shown.index(" rank ")
    assert shown.count(note) == 1
    assert "within 2 groups Spearman 1.00" in shown
    cells = score_columns(only_run(topics))["component"]
    assert cells == ["1"] * 10 + ["2"] * 10 + [""]

    rated = json_of(topics, "show", "--write")
    assert rated["components"] == {"count": 2, "largest": [10, 10]}
    _, pl = rated["evaluation"]
    assert pl["measures"]["spearman"]["value"] == pytest.approx(1)
    assert pl["parts"] == 2

    run = only_run(topics).name
    for command in (("evaluate",), ("compare", run, run)):
        shown = said(*command, "--resamples", "0")
        assert note in shown
        assert pooled in shown
        if command[0] == "compare":
            assert shown.index(f"Run 1: {note}") < shown.index(f"Run 2: {note}")
            assert shown.count(note) == 2
            assert "ranks like run 1: Spearman 1.000 within 2 groups" in shown
    evaluated = json_of(topics, "evaluate", "--resamples", "0")
    assert evaluated["components"]["count"] == 2
    assert evaluated["evaluation"][1]["parts"] == 2
