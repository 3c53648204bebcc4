"""How well an order is known: intervals of ratings and ranks, tiers, ρ̂, and what rounds bring."""

from statistics import NormalDist

import numpy as np
import pytest
from numpy.testing import assert_allclose

from benchmarks.coverage import counted
from judgeq.rating import Parameters, plackett_luce
from judgeq.rating.ranks import (
    _rank_intervals,
    expected_rho,
    grown,
    growth,
    intervals,
    ranks,
    reliability,
    top_share,
    variance,
)
from judgeq.types import Floats
from tests.build import Ranking, verdicts
from tests.test_posterior import SIGMA, of_lists, posterior_of


@pytest.mark.parametrize(
    ("judge", "design"),
    [("model, sd 4", "lists"), ("vg", "pairs, similar"), ("20 % at random", "pairs")],
)
def test_intervals_cover(judge: str, design: str) -> None:
    """Of so few runs; over many of them it is 92 to 97 % (`python -m benchmarks coverage`)."""
    share = counted(judge, design, 120, range(4))
    assert 0.9 <= share.ratings <= 0.985, share
    assert 0.9 <= share.ranks <= 0.985, share
    assert abs(share.known - share.rho) < 0.05, share
    if design == "lists":  # by the prior as it is, items far out are in 60 to 90 % of cases
        assert share.ends > 0.85, share


def test_an_interval_is_that_by_a_prior_twice_as_wide() -> None:
    """From normal distributions: the prior's precision taken off, and a quarter of it added."""
    posterior = of_lists(60, 6, 4, 0)
    sure = intervals(posterior)
    v = (posterior.errors_apart / posterior.dispersion**0.5) ** 2
    freed = 1 / (1 / v - 1 / SIGMA**2 + 1 / (2 * SIGMA) ** 2)
    middle = posterior.mean * freed / v
    reach = NormalDist().inv_cdf(0.975) * sure.se * np.sqrt(freed / v)
    assert_allclose(sure.low, np.minimum(middle - reach, posterior.theta))
    assert_allclose(sure.high, np.maximum(middle + reach, posterior.theta))
    assert (sure.low <= posterior.theta).all()
    assert (posterior.theta <= sure.high).all()
    own = ranks(posterior.theta, posterior.component)
    assert (sure.rank_low <= own).all()
    assert (own <= sure.rank_high).all()
    assert sure.rank_low.min() == 1
    assert sure.rank_high.max() == 60


def test_ranks_within_components() -> None:
    theta = np.array([0.0, 3.0, -1.0, 5.0, 1.0])
    assert ranks(theta, np.array([1, 1, 1, 0, 2])).tolist() == [2, 1, 3, 0, 1]
    assert ranks(theta, np.ones(5, dtype=np.int64)).tolist() == [4, 2, 5, 1, 3]
    tied = np.array([1.0, 2.0, 2.0, np.nan, 0.0])
    assert ranks(tied, np.ones(5, dtype=np.int64)).tolist() == [3, 1, 1, 0, 4]


def test_tiers_part_what_can_be_told_apart() -> None:
    """Three bands, far apart, of items that are alike."""
    random = np.random.default_rng(0)
    many: list[Ranking] = []
    for _ in range(40):
        bands = [random.permutation(range(3 * band, 3 * band + 3)).tolist() for band in range(3)]
        many.append([item for band in bands for item in band])
    posterior = posterior_of(plackett_luce.fit(verdicts(many), 10, Parameters(sigma=6.0)))
    sure = intervals(posterior)
    assert sure.tier.tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3, 0]
    assert sure.rank_high[:3].max() <= 3 < sure.rank_low[3:6].min()
    assert sure.rank_low[9] == sure.rank_high[9] == 0


def test_tiers_within_components() -> None:
    many: list[Ranking] = [(0, 1), (2, 3, 4)] * 60
    posterior = posterior_of(plackett_luce.fit(verdicts(many), 5, Parameters(sigma=SIGMA)))
    assert intervals(posterior).tier.tolist() == [1, 2, 1, 2, 3]


@pytest.mark.parametrize(("n", "first"), [(30, 5), (400, 20)])
def test_an_order_by_draws(n: int, first: int) -> None:
    """ρ̂, the share of the first, both after another round, and intervals of ranks: as by draws."""
    random, many = np.random.default_rng(n), 4000
    mean, se = random.normal(0, 2, n), random.uniform(0.3, 1.0, n)

    def places(values: Floats) -> Floats:
        ordered: Floats = np.argsort(np.argsort(-values, axis=-1), axis=-1).astype(np.float64)
        return ordered

    def drawn(about: Floats, left: float) -> Floats:
        values: Floats = about + left**0.5 * se * random.normal(size=(many, n))
        return values

    def agreement(one: Floats, other: Floats) -> tuple[float, float]:
        square = ((one - other) ** 2).sum(axis=-1).mean()
        both = ((one < first) & (other < first)).sum(axis=-1).mean()
        return 1 - 6 * square / (n * (n * n - 1)), both / first

    values = places(drawn(mean, 1.0))
    rho = reliability(mean, se)
    assert (rho, top_share(mean, se, first)) == pytest.approx(
        agreement(places(mean), values), abs=0.01
    )
    moved = drawn(mean, 1 - 1 / 1.3)
    later = agreement(places(moved), places(drawn(moved, 1 / 1.3)))
    assert grown(rho, 1.3) == pytest.approx(later[0], abs=0.015)
    exact = np.quantile(values + 1, [0.025, 0.975], axis=0)
    low, high = _rank_intervals(mean, se, np.zeros(n, np.int64))
    inside = (np.rint(low) <= values + 1) & (values + 1 <= np.rint(high))
    assert 0.94 < inside.mean() < 0.98
    assert (high - low).mean() == pytest.approx((exact[1] - exact[0]).mean(), rel=0.05)


def test_of_many_items_few_nodes_say_the_same() -> None:
    random = np.random.default_rng(1)
    mean, se = random.normal(0, 1.5, 4000), random.uniform(0.3, 0.9, 4000)
    many = reliability(np.tile(mean, 125), np.tile(se, 125))
    assert many == pytest.approx(reliability(mean, se), abs=0.002)
    one = mean[:1], se[:1]
    assert (reliability(*one), top_share(*one, 5)) == pytest.approx((1, 1))


def test_the_number_stays_the_same() -> None:
    assert expected_rho(2.0, 3, 10) == pytest.approx(0.9065, abs=0.00005)


def test_nothing_is_known_without_rankings_and_all_after_endless_ones() -> None:
    assert variance(1.5, 0, 10) == pytest.approx(1.5**2)
    assert expected_rho(1.5, 0, 10) == pytest.approx(0)
    assert expected_rho(1.5, 1e6, 10) == pytest.approx(1, abs=1e-4)
    # Once the prior says nothing, twice the rankings halve the variance.
    assert growth(1.0, 1e5, 1e5, 2) == pytest.approx(2, rel=1e-3)
    assert 1 < growth(0.5, 1, 1, 10) < 1.3
