"""What rounds bring, in closed form; `benchmarks rounds` compares it with simulated judges."""

from __future__ import annotations

import pytest

from judgeq.rating.information import expected_rho, growth, variance


@pytest.mark.parametrize(
    ("sd", "rankings", "k", "simulated"),
    [
        (2, 1, 10, 0.750),
        (2, 3, 10, 0.903),
        (1, 3, 10, 0.759),
        (4, 3, 10, 0.964),
        (2, 8, 2, 0.881),
        (2, 3, 20, 0.919),
    ],
)
def test_it_is_what_simulated_judges_bring(
    sd: float, rankings: float, k: float, simulated: float
) -> None:
    """Spearman's ρ of `pl` with the true values, of 300 items, which the model's own judge ranked."""
    assert expected_rho(sd, rankings, k) == pytest.approx(simulated, abs=0.015)


def test_the_number_stays_the_same() -> None:
    assert expected_rho(2.0, 3, 10) == pytest.approx(0.9065, abs=0.00005)


def test_nothing_is_known_without_rankings_and_all_after_endless_ones() -> None:
    assert variance(1.5, 0, 10) == pytest.approx(1.5**2)
    assert expected_rho(1.5, 0, 10) == pytest.approx(0)
    assert expected_rho(1.5, 1e6, 10) == pytest.approx(1, abs=1e-4)
    # Once the prior says nothing, twice the rankings halve the variance.
    assert growth(1.0, 1e5, 1e5, 2) == pytest.approx(2, rel=1e-3)
    assert 1 < growth(0.5, 1, 1, 10) < 1.3
