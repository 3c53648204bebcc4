"""Which items comparisons connect, and what is said of those that they don't."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq.rating import comparisons, correlation
from judgeq.rating.bradley_terry import fit_mm
from judgeq.rating.comparisons import component_sizes, components
from tests.build import Ranking, fit_map, rankings, verdicts
from tests.cli import judgeq, only_run, score_columns

N = 12


@given(st.lists(rankings(4).flatmap(lambda ranking: st.permutations(range(N)).map(
    lambda rows: [[rows[i] for i in ([g] if isinstance(g, int) else g)] for g in ranking]
)), max_size=6))  # fmt: skip
def test_components_are_scipys(many: list[Ranking]) -> None:
    some = verdicts(many)
    found = components(some, N)
    pairs = comparisons.imply(some)
    edges = scipy.sparse.coo_matrix((pairs.weight, (pairs.winner, pairs.loser)), shape=(N, N))
    _, expected = scipy.sparse.csgraph.connected_components(edges, directed=False)
    judged = comparisons.matches_of(some, N) > 0
    assert_array_equal(found > 0, judged)
    rows = np.flatnonzero(judged)
    same = found[rows][:, None] == found[rows]
    assert_array_equal(same, expected[rows][:, None] == expected[rows])
    assert list(dict.fromkeys(found[rows].tolist())) == list(
        range(1, len(component_sizes(found)) + 1)
    )
    assert component_sizes(found).sum() == len(rows)


def test_long_chains_in_any_order_are_one_component() -> None:
    rows = np.random.default_rng(0).permutation(20_000).tolist()
    chain = verdicts([[a, b] for a, b in pairwise(rows)])
    assert component_sizes(components(chain, 20_001)).tolist() == [20_000]


def test_each_component_is_rated_by_itself() -> None:
    one, other = [[0, 1, 2], [1, 0, 2]], [[4, 3], [3, 5], [5, 4], [4, 3]]
    both = verdicts([*one, *other])
    theta = fit_map(both, 6, 2.0)
    mm = fit_mm(comparisons.imply(both), 6, component=components(both, 6))
    for rows, alone in (((0, 1, 2), one), ((3, 4, 5), other)):
        assert theta[list(rows)].sum() == pytest.approx(0, abs=1e-8)
        expected = fit_mm(comparisons.imply(verdicts(alone)), 6)[list(rows)]
        assert mm[list(rows)] == pytest.approx(expected - expected.mean(), abs=1e-4)


def test_correlation_within_is_the_mean_over_components() -> None:
    random = np.random.default_rng(1)
    component = np.repeat([1, 2, 3, 4], [30, 10, 5, 1])
    x = np.round(random.normal(size=46), 1) + 100 * component
    y = np.round(x + random.normal(size=46), 1) * np.array([0, 1, -1, 0, 1])[component]
    pearson, spearman, n = correlation.within(x, y, component)
    parts = [component == number for number in (1, 2)]  # of 3 y is constant, 4 is one item
    weights = [30, 10]
    assert n == 40
    for value, by in ((pearson, scipy.stats.pearsonr), (spearman, scipy.stats.spearmanr)):
        expected = [by(x[part], y[part]).statistic for part in parts]
        assert value == pytest.approx(np.average(expected, weights=weights), abs=1e-12)
    assert correlation.within(x[:1], y[:1], component[:1]) == (None, None, 0)


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
    said = judgeq(topics, "import", *flags).stdout
    assert note in " ".join(said.split())
    assert "within groups Spearman 1.00" in said
    cells = score_columns(only_run(topics))["component"]
    assert cells == ["1"] * 10 + ["2"] * 10 + [""]

    rated = json.loads(judgeq(topics, "show", "--write", "--json").stdout)
    assert rated["components"] == {"count": 2, "largest": [10, 10]}
    _, pl = rated["evaluation"]
    assert pl["measures"]["spearman"]["value"] < 0.6
    assert pl["within_components"]["spearman"] == pytest.approx(1)
    assert pl["within_components"]["components"] == 2

    said = judgeq(topics, "evaluate", "--resamples", "0").stdout
    assert note in " ".join(said.split())
    assert "Correlation within groups of compared items" in said
    evaluated = json.loads(judgeq(topics, "evaluate", "--resamples", "0", "--json").stdout)
    assert evaluated["components"]["count"] == 2
    assert evaluated["evaluation"][1]["within_components"] == pl["within_components"]
    run = only_run(topics).name
    compared = judgeq(topics, "compare", run, run, "--resamples", "0").stdout
    assert note in " ".join(compared.split())
    assert "Correlation within groups of compared items" in compared


def test_connected_runs_say_nothing_of_components(tmp_path: Path) -> None:
    done = json.loads(judgeq(tmp_path, "run", "-d", "demo", "--json").stdout)
    assert done["components"] == {"count": 1, "largest": [240]}
    assert [one["within_components"] for one in done["evaluation"]] == [None, None]
    assert "component" not in score_columns(only_run(tmp_path))
    shown = judgeq(tmp_path, "evaluate", "--resamples", "0").stdout
    assert "component" not in shown
    assert "never compared" not in shown
    judgeq(tmp_path, "run", "-d", "demo", "-s", "direct", "--quiet")
    assert "component" not in judgeq(tmp_path, "show", "--write").stdout
