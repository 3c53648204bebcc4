from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgeq.errors import BudgetError
from judgeq.judge.budget import NANO, Allowance, Budget
from judgeq.judge.prices import (
    HIDDEN,
    OUTPUT_BOUND,
    RAISE,
    REASON_BOUND,
    Bounds,
    Pricing,
    output_bound,
)
from judgeq.settings.model import Price
from judgeq.types import Usage
from tests.fakes import turns

pytestmark = pytest.mark.usefixtures("rated_by_elo")


def dollars(budget: Budget) -> tuple[float, float]:
    """What is spent, and what is reserved."""
    spending = budget._own
    return spending.spent / NANO, spending.reserved / NANO


def test_a_call_waits_for_those_that_may_turn_out_cheaper() -> None:
    async def story() -> None:
        budget = Budget(Allowance(1.0))
        await budget.reserve(0.6)
        second = asyncio.create_task(budget.reserve(0.6))
        await turns()
        assert not second.done()
        budget.settle(0.6, 0.1)
        await second
        assert dollars(budget) == (0.1, 0.6)

    asyncio.run(story())


def test_what_was_spent_before_counts() -> None:
    async def story() -> None:
        with pytest.raises(BudgetError) as caught:
            await Budget(Allowance(5.0, spent=1.5, at_risk=3.0)).reserve(0.6)
        assert str(caught.value) == (
            "the next call might exceed --max-cost 5: $1.5 is spent, up to $3 more perhaps (calls of "
            "unknown cost), and the call may cost up to $0.6. A smaller --max-output-tokens lowers that."
        )

    asyncio.run(story())


def test_when_it_is_used_up_all_who_wait_are_told() -> None:
    async def story() -> None:
        budget = Budget(Allowance(1.0))
        await budget.reserve(0.9)
        waiting = [asyncio.create_task(budget.reserve(0.5)) for _ in range(3)]
        await turns()
        budget.settle(0.9, None)  # no answer: it may have been paid
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(each, BudgetError) for each in found)
        assert dollars(budget) == (0.9, 0.0)

    asyncio.run(story())


def test_rounding_lets_no_call_too_many_through() -> None:
    async def story() -> None:
        exact = Budget(Allowance(0.3))  # as a binary fraction less than three times 0.1
        for _ in range(3):
            await exact.reserve(0.1)
        budget = Budget(Allowance(1.0))
        for _ in range(9):
            await budget.reserve(0.1 + 1e-12)
            budget.settle(0.1 + 1e-12, 0.1 + 1e-12)
        with pytest.raises(BudgetError):
            await budget.reserve(0.1 + 1e-12)

    asyncio.run(story())


def test_a_cap_needs_a_bound() -> None:
    with pytest.raises(ValueError, match="without knowing what a call may cost"):
        asyncio.run(Budget(Allowance(1.0)).reserve(None))


CALLS = st.lists(
    st.tuples(
        st.floats(0, 0.4), st.floats(0, 1), st.sampled_from(["ok", "unknown", "cancel", "wait"])
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(CALLS, st.floats(0.1, 2))
def test_the_cap_is_never_overshot_and_nobody_waits_for_ever(
    calls: list[tuple[float, float, str]], cap: float
) -> None:
    async def story() -> None:
        budget = Budget(Allowance(cap))
        paid = 0.0
        flying: list[tuple[float, float, str]] = []

        def land() -> None:
            nonlocal paid
            bound, share, how = flying.pop(0)
            paid += bound * share
            budget.settle(bound, None if how == "unknown" else bound * share)

        async def call(bound: float, share: float, how: str) -> None:
            await budget.reserve(bound)
            flying.append((bound, share, how))

        tasks = []
        for bound, share, how in calls:
            task = asyncio.create_task(call(bound, share, how))
            tasks.append(task)
            await turns(2)
            if how == "cancel":
                task.cancel()
            if how == "wait" and flying:
                land()
            await turns(2)
            assert paid + sum(each[0] for each in flying) <= cap + 1e-6
        for _ in tasks:  # whoever waits goes through, one after the other, and lands as well
            if flying:
                land()
            await turns(3 * len(tasks))
        assert all(task.done() for task in tasks)
        assert not flying
        assert paid <= cap
        assert dollars(budget)[1] == 0.0

    asyncio.run(story())


# What several processes share


# Bounds of what a call may cost


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


def test_without_a_limit_a_reason_has_room_of_its_own() -> None:
    assert output_bound(reasons=False) == OUTPUT_BOUND
    most = output_bound(reasons=True)
    bounds = Bounds(PRICING, None, output_bound=most)
    assert most == OUTPUT_BOUND + REASON_BOUND
    assert bounds.most(SIZE) == pytest.approx((1000 + most * 10) / 1e6)
    # What the server is sent as its limit is that of the reason, too.
    assert Bounds(PRICING, 50, output_bound=most).most(SIZE) == Bounds(PRICING, 50).most(SIZE)
