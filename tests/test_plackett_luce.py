"""Plackett-Luce, against its definition; and partial rankings, such as best-worst answers."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from judgeq import seeds
from judgeq.errors import NotConvergedError
from judgeq.rating import Parameters, comparisons, curvature, plackett_luce, scale_quality
from judgeq.rating.curvature import Curvature
from judgeq.rating.plackett_luce import fit, rankings_of
from judgeq.types import Floats, Verdicts
from tests.build import (
    Ranking,
    dense,
    fit_map,
    grouped,
    partial_rankings,
    ranked,
    several,
    verdicts,
)
from tests.build import rankings as any_rankings
from tests.cli import json_of, judgeq
from tests.test_comparisons import columns, implied
from tests.test_ranks import posterior_of

N = 6
MANY = st.lists(any_rankings(N), min_size=1, max_size=8)
MANY_PARTIAL = st.lists(partial_rankings(N), min_size=1, max_size=8)
THETA = st.lists(st.floats(-4, 4), min_size=N, max_size=N).map(np.array)
Groups: TypeAlias = list[list[int]]


def orders(groups: Groups) -> list[Groups]:
    """A ranking's two orders, each at half the weight: its ties as presented (by row), and reversed."""
    rows = [sorted(group) for group in groups]
    return [[[item] for group in rows for item in group[::way]] for way in (1, -1)]


def chosen(items: Sequence[int], among: Sequence[int], theta: Floats) -> float:
    """The logarithm of the probability that these are chosen, one after the other."""
    left, total = list(among), 0.0
    for item in items:
        total += theta[item] - np.log(np.exp(theta[left]).sum())
        left.remove(item)
    return total


def log_likelihood(groups: Groups, theta: Floats) -> float:
    """The mean of two models, by definition: the top is chosen first, or the bottom, by −θ; of one group
    at most the order isn't known."""
    every = [item for group in groups for item in group]
    unknown = [group for group in groups if len(group) > 1]
    if not unknown:
        return (chosen(every, every, theta) + chosen(every[::-1], every, -theta)) / 2
    at = groups.index(unknown[0])
    top, bottom = ([item for [item] in some] for some in (groups[:at], groups[:at:-1]))
    top_first = chosen(top, every, theta) + chosen(bottom, sorted({*every} - {*top}), -theta)
    rest = sorted({*every} - {*bottom})
    return (top_first + chosen(bottom, every, -theta) + chosen(top, rest, theta)) / 2


def minus_log_likelihood(theta: Floats, many: list[Ranking], *, partial: bool = False) -> float:
    total = 0.0
    for groups in map(grouped, many):
        both = [groups] if partial else orders(groups)
        total += sum(log_likelihood(one, theta) for one in both) / len(both)
    return -total


def theta_of(many: list[Ranking], sigma: float = 2.0) -> Floats:
    return fit(verdicts(many), N, Parameters(sigma=sigma)).maximum


@settings(max_examples=12)
@given(many=MANY, sigma=st.sampled_from([0.3, 2.0, 5.0]))
def test_the_map_is_the_optimum(many: list[Ranking], sigma: float) -> None:
    def objective(theta: Floats) -> float:
        return minus_log_likelihood(theta, many) + float(theta @ theta) / (2 * sigma**2)

    best = scipy.optimize.minimize(objective, np.zeros(N), method="BFGS", options={"gtol": 1e-7})
    theta = theta_of(many, sigma=sigma)
    assert objective(theta) <= best.fun + 1e-12 * abs(best.fun)
    assert_allclose(theta, best.x, atol=1e-5 * max(1, sigma**2))
    assert theta.sum() == pytest.approx(0, abs=1e-7)


def check_derivatives(many: list[Ranking], theta: Floats, way: Floats, *, partial: bool) -> None:
    """The loss is that of the definition, and has its derivatives."""
    some = rankings_of(verdicts(many, several if partial else None), N)
    step, every = 1e-5, np.eye(N)

    def slopes(function: Callable[[Floats], Any]) -> Floats:
        ends = [(function(theta + step * one), function(theta - step * one)) for one in every]
        return np.array([(after - before) / (2 * step) for after, before in ends])

    def loss(theta: Floats) -> float:
        return minus_log_likelihood(theta, many, partial=partial)

    exact, curvature = (Curvature(some, theta, prior) for prior in (np.zeros(N), np.ones(N)))
    assert some.loss(theta) == pytest.approx(loss(theta))
    assert exact.loss == pytest.approx(loss(theta))
    assert_allclose(exact.gradient, slopes(loss), atol=1e-6)
    assert_allclose(curvature.gradient, exact.gradient + theta, atol=1e-6)
    hessian = slopes(lambda at: Curvature(some, at, np.zeros(N)).gradient)
    assert_allclose(exact.times(way), hessian @ way, atol=1e-5)
    assert_allclose(exact.diagonal, np.diag(hessian), atol=1e-6)
    assert_allclose(dense(curvature), hessian + np.eye(N), atol=1e-5)
    assert_allclose(curvature.diagonal, np.diag(hessian) + 1, atol=1e-5)
    assert np.isfinite(curvature.variance).all()


@settings(max_examples=12)
@given(many=MANY, theta=THETA, way=THETA)
def test_loss_and_derivatives(many: list[Ranking], theta: Floats, way: Floats) -> None:
    check_derivatives(many, theta, way, partial=False)


@settings(max_examples=12)
@given(many=MANY_PARTIAL, theta=THETA, way=THETA)
def test_derivatives_of_partial_rankings(many: list[Ranking], theta: Floats, way: Floats) -> None:
    check_derivatives(many, theta, way, partial=True)


@settings(max_examples=12)
@given(pairs=st.lists(any_rankings(N, size=2), min_size=1, max_size=12))
def test_of_pairs_it_is_bradley_terry(pairs: list[Ranking]) -> None:
    assert_allclose(theta_of(pairs), fit_map(verdicts(pairs), N, 2.0), atol=2.1e-8)


def test_undefeated_never_judged_and_apart() -> None:
    fitted = fit(verdicts([(0, 1, 2)] * 20 + [(4, 5)]), 7, Parameters(sigma=2.0))
    theta, posterior = fitted.theta, fitted.posterior
    assert posterior
    assert np.isfinite(theta).all()
    assert theta[0] > theta[1] > theta[2]
    assert theta[3] == theta[6] == 0
    assert_allclose([theta[:3].sum(), theta[4] + theta[5]], 0, atol=1e-8)
    assert (posterior.errors > 0).all()
    assert posterior.errors[3] == posterior.errors[6] == 2.0
    assert posterior.component.tolist() == [1, 1, 1, 0, 2, 2, 0]


def test_it_raises_unless_it_has_converged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Curvature, "solve", lambda _, b, *__: np.zeros_like(b))
    with pytest.raises(NotConvergedError, match=r"Plackett-Luce \(MAP, σ = 3\) did not converge"):
        fit(verdicts([(0, 1)]), 2, Parameters(sigma=3.0))


@settings(max_examples=12)
@given(many=MANY_PARTIAL, theta=THETA)
def test_only_known_pairs_are_implied(many: list[Ranking], theta: Floats) -> None:
    some = verdicts(many, several)
    known = Counter({pair: often for pair, often in implied(many).items() if pair[2] == 1})
    assert columns(comparisons.imply(some)) == known
    above, below = (np.array([pair[side] for pair in known.elements()]) for side in (0, 1))
    assert_array_equal(comparisons.wins_of(some, N), np.bincount(above, minlength=N))
    both = np.bincount(some.items, comparisons.compared_by_slot(some), N)
    assert_array_equal(both, np.bincount(np.concatenate([above, below]), minlength=N))
    # Bradley-Terry, and its derivatives, are those of the pairs.
    pairs = verdicts([pair[:2] for pair in known.elements()])
    assert_allclose(fit_map(some, N), fit_map(pairs, N), atol=2.1e-8)
    alone = rankings_of(pairs, N)
    whole = rankings_of(some, N, ways=())
    assert whole.loss(theta) == pytest.approx(alone.loss(theta))
    of_whole, of_alone = (Curvature(one, theta, np.zeros(N)) for one in (whole, alone))
    assert_allclose(of_whole.gradient, of_alone.gradient, atol=1e-9)
    assert_allclose(of_whole.times(theta), of_alone.times(theta), atol=1e-9)
    assert_allclose(of_whole.diagonal, of_alone.diagonal, atol=1e-9)
    one, other = (dense(Curvature(each, theta, np.ones(N))) for each in (whole, alone))
    assert_allclose(one, other, atol=1e-6)


def test_residuals_are_over_the_items_compared() -> None:
    some = verdicts([[[1], [0, 3], [2]], [0, 1, 2, 3]], several)
    theta = np.array([0.5, 0.0, -0.5, 1.0])
    residual, _, expected = scale_quality.residuals(some, theta)
    p = 1 / (1 + np.exp(theta[None] - theta[:, None]))
    assert expected[0] == pytest.approx(p[1, [0, 2, 3]].sum())
    assert expected[1] == pytest.approx(p[0, [1, 2]].sum())
    assert expected[2] == pytest.approx(p[3, [1, 2]].sum())
    assert expected[4] == pytest.approx(p[0, 1:].sum())
    assert residual[2] < 0 < residual[0]  # one of two, where more was expected; all of three
    whole = scale_quality.residuals(verdicts([[0, 1, 2, 3]]), theta)
    assert_allclose(residual[4:], whole.residual)


@pytest.mark.usefixtures("undrawn")
def test_a_run_of_them_is_explained_and_written_as_it_was(tmp_path: Path) -> None:
    """Imported, shown with what wasn't asked, exported; no judge can be asked for it again."""
    texts = "".join(f"{name},Text {name}\n" for name in "abcd")
    (tmp_path / "texts.csv").write_text(f"id,text\n{texts}")
    lines = [
        {"round": 1, "group": 0, "presented": [0, 1, 2, 3], "partial_ranking": [1, [0, 2], 3]},
        {"round": 1, "group": 1, "presented": [3, 1, 2, 0], "partial_ranking": [[3, 1, 2], 0]},
        {"round": 1, "group": 2, "presented": [0, 2], "winner": 2},
    ]
    path = tmp_path / "best.jsonl"
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    judgeq(tmp_path, "import", "-d", "texts.csv", path.name, "-q")
    judgeq(tmp_path, "export", "-o", "again.jsonl")
    assert (tmp_path / "again.jsonl").read_text() == path.read_text()
    pairs = judgeq(tmp_path, "export", "--table", "comparisons").stdout.splitlines()[1:]
    expected = ("ba", "bc", "bd", "ad", "cd", "da", "ba", "ca", "ca")
    assert [line.split(",")[:3] for line in pairs] == [[*pair, "1.0"] for pair in expected]
    two = json_of(tmp_path, "explain", "last", "a", "--vs", "c")
    assert two["direct"] == {"met": 3, "above": 0, "below": 2, "tied": 0}
    assert [one["partial"] for one in two["judgments"]] == [True, True, False]
    assert two["judgments"][0]["groups"] == [["b"], ["a", "c"], ["d"]]
    shown = judgeq(tmp_path, "explain", "last", "a", "--vs", "c").stdout
    for part in ("order not asked in 1", "? c", "? their order wasn't asked"):
        assert part in shown
    shown = judgeq(tmp_path, "explain", "last", "b").stdout
    assert "1 of 1" in shown  # of the second question, where it is above a alone
    judgeq(tmp_path, "report", "-q")
    (page,) = tmp_path.glob("runs/*/report.html")
    for part in ('"partial":true', "2 of these are partial rankings"):
        assert part in page.read_text()


def votes(n: int, count: int) -> Verdicts:
    """So many votes on random pairs of n items."""
    rng = seeds.rng(1, "votes", n)
    shown = rng.permuted(np.tile(np.arange(n, dtype=np.int32), (count, 1)), axis=1)[:, :2]
    utility = np.linspace(-1, 1, n)[shown] + rng.gumbel(size=shown.shape)
    ranked = np.take_along_axis(shown, np.argsort(-utility, axis=1), axis=1)
    return Verdicts(
        matches=np.arange(count),
        items=ranked.reshape(-1),
        offsets=np.arange(count + 1, dtype=np.int64) * 2,
        tied=np.zeros(ranked.size, np.bool_),
        presented=shown.reshape(-1),
    )


def test_many_votes_on_few_items_converge_whatever_sigma_is() -> None:
    """Rounding of sums of 50,000 terms was taken for a slope that is left, and the prior's doubt about
    the mean hid the errors."""
    some, sigmas = votes(4, 100_000), (2.0, 20.0, 60.0, 100.0)
    fits = [posterior_of(plackett_luce.fit(some, 4, Parameters(sigma))) for sigma in sigmas]
    for wide in fits[1:]:
        assert_allclose(wide.theta, fits[0].theta, atol=1e-3)
        assert_allclose(wide.errors, fits[0].errors, rtol=1e-3)


@pytest.mark.parametrize("exact", [True, False])
def test_errors_are_right_under_a_wide_prior(
    monkeypatch: pytest.MonkeyPatch,
    exact: bool,
) -> None:
    """Also by the closed form of many items, whose errors were 0 from a σ of 20 on."""
    monkeypatch.setattr(curvature, "DENSE", 2000 if exact else 10)
    rng = seeds.rng(2, "wide")
    lists = [one for _ in range(12) for one in rng.permutation(100).reshape(-1, 10).tolist()]
    some = ranked(lists, np.linspace(-3, 3, 100), np.random.default_rng(2))
    narrow, wide = (
        posterior_of(plackett_luce.fit(some, 100, Parameters(sigma))) for sigma in (5.0, 90.0)
    )
    middle = slice(20, 80)  # those at the ends are held by the prior
    ratio = (wide.errors / narrow.errors)[middle]
    assert 0.95 < ratio.min() <= ratio.max() < 1.15
