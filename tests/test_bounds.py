from __future__ import annotations

import pytest

from judgeq.judge.budget import (
    ENOUGH,
    HIDDEN,
    LONGEST,
    OUTPUT_BOUND,
    RAISE,
    REASON_BOUND,
    Bounds,
    output_bound,
)
from judgeq.judge.prices import Pricing
from judgeq.settings.model import Price
from judgeq.types import Usage

PRICE = Price(input=1.0, output=10.0)
PRICING = Pricing("a test", PRICE, PRICE)
SIZE = 744  # bytes: with what is hidden a thousand


def replied(bounds: Bounds, output: int, reasoning: int = 0) -> None:
    usage = Usage(100, 0, output, reasoning)
    bounds.learn(SIZE, usage, PRICING.cost(usage))


def test_the_bound_is_of_all_bytes_and_the_limit_of_output() -> None:
    assert SIZE + HIDDEN == 1000
    assert Bounds(PRICING, 50).most(SIZE) == pytest.approx((1000 + 50 * 10) / 1e6)
    assert Bounds(PRICING, None).most(SIZE) == pytest.approx((1000 + OUTPUT_BOUND * 10) / 1e6)


def test_without_a_price_there_is_no_bound_and_nothing_is_learned() -> None:
    bounds = Bounds(None, 50, pytest.fail)
    for _ in range(ENOUGH):
        bounds.learn(SIZE, Usage(100, 0, 5000), None)
    assert bounds.most(SIZE) is None
    assert bounds.lost(SIZE) is None


def test_a_reply_that_broke_its_bound_raises_that_of_all_that_follow() -> None:
    said: list[str] = []
    bounds = Bounds(PRICING, 50, said.append)
    replied(bounds, 50)
    assert said == []
    replied(bounds, 5000, reasoning=4950)
    cost = (100 + 5000 * 10) / 1e6
    assert bounds.most(SIZE) == pytest.approx(RAISE * cost)
    (text,) = said
    assert "5,000 output tokens (4,950 of them reasoning), bounded by 50" in text
    replied(bounds, 9000)  # within the new bound
    assert len(said) == 1
    replied(bounds, 50_000)
    assert len(said) == 2
    assert bounds.most(SIZE) == pytest.approx(RAISE * (100 + 50_000 * 10) / 1e6)


def test_a_lost_call_is_bounded_by_the_replies_that_came_once_they_are_enough() -> None:
    bounds = Bounds(PRICING, None)
    for _ in range(ENOUGH - 1):
        replied(bounds, 20)
    assert bounds.lost(SIZE) is None
    replied(bounds, 30)
    assert bounds.lost(SIZE) == pytest.approx((1000 + LONGEST * 30 * 10) / 1e6)
    replied(bounds, OUTPUT_BOUND)
    assert bounds.lost(SIZE) == bounds.most(SIZE)


def test_a_limit_that_is_sent_stays_the_bound_of_lost_calls() -> None:
    bounds = Bounds(PRICING, 5000)
    for _ in range(2 * ENOUGH):
        replied(bounds, 20)
    assert bounds.lost(SIZE) is None


def test_without_a_limit_a_reason_has_room_of_its_own() -> None:
    assert output_bound(reasons=False) == OUTPUT_BOUND
    most = output_bound(reasons=True)
    bounds = Bounds(PRICING, None, output_bound=most)
    assert most == OUTPUT_BOUND + REASON_BOUND
    assert bounds.most(SIZE) == pytest.approx((1000 + most * 10) / 1e6)
    # What the server is sent as its limit is that of the reason, too.
    assert Bounds(PRICING, 50, output_bound=most).most(SIZE) == Bounds(PRICING, 50).most(SIZE)
