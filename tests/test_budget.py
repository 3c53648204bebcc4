"""What calls cost, and the cap that they keep to."""

import asyncio
from datetime import UTC, datetime

import genai_prices
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from judgeq.errors import BudgetError, UsageError
from judgeq.judge import check
from judgeq.judge.budget import NANO, Allowance, Budget
from judgeq.judge.prices import (
    HIDDEN,
    OUTPUT_BOUND,
    RAISE,
    REASON_BOUND,
    Bounds,
    Pricing,
    find,
    output_bound,
)
from judgeq.settings.model import Model, Price
from judgeq.types import Usage
from tests.fakes import turns

OPENAI = "https://api.openai.com/v1"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
FLAT = Price(input=1.0, output=10.0, cached=0.25)

USAGES = st.builds(
    lambda new, cached, output, reasoning: Usage(new, cached, output, min(reasoning, output)),
    *[st.integers(0, 300_000)] * 4,
)


def priced(model: str, base_url: str = OPENAI, tier: str | None = None) -> Pricing | None:
    return find(model, base_url=base_url, flat=None, table={}, service_tier=tier, at=NOW)


def certainly(pricing: Pricing | None) -> Pricing:
    assert pricing is not None
    return pricing


def test_flags_go_over_the_table_and_the_table_over_what_is_known() -> None:
    table = {"gpt-5-mini": Price(input=5, output=6)}
    both, mine = (
        certainly(find("gpt-5-mini", base_url=OPENAI, flat=flat, table=table, at=NOW))
        for flat in (FLAT, None)
    )
    assert (both.price, "--price" in both.source) == (FLAT, True)
    assert mine.price == table["gpt-5-mini"]
    theirs = certainly(priced("gpt-5-mini")).source
    assert ("genai-prices" in theirs, "openai gpt-5-mini" in theirs) == (True, True)


@pytest.mark.parametrize(
    ("model", "base_url"),
    [
        ("gpt-5-mini", "http://127.0.0.1:8000/v1"),  # nobody bills a server of one's own
        ("gpt-5-mini", "https://gateway.example.org/v1"),
        ("no-such-model-at-all", OPENAI),
    ],
)
def test_what_is_not_known_is_unknown(model: str, base_url: str) -> None:
    assert priced(model, base_url) is None


def test_other_providers_are_known_by_their_address() -> None:
    assert "deepseek" in certainly(priced("deepseek-chat", "https://api.deepseek.com/v1")).source
    azure = "https://mine.openai.azure.com/openai/v1"
    assert "azure" in certainly(priced("gpt-4o-mini", azure)).source


def test_a_service_tier_is_priced_only_if_it_is_known() -> None:
    usual, flex = certainly(priced("gpt-5-mini")), certainly(priced("gpt-5-mini", tier="flex"))
    usage = Usage(1000, 0, 1000, 0)
    assert flex.cost(usage) < usual.cost(usage)
    # A provider may fall back to the default tier, and bill that.
    assert flex.bound(1000, 1000) >= usual.cost(usage)
    assert priced("gpt-5-mini", tier="turbo") is None
    for tier in ("auto", "default"):
        assert certainly(priced("gpt-5-mini", tier=tier)).price == usual.price


def test_a_flat_price_by_hand() -> None:
    pricing = certainly(find("m", base_url=OPENAI, flat=FLAT, table={}, at=NOW))
    # 100 new and 1,000 cached tokens in, 50 out, of which 40 reasoning: never added again.
    assert pricing.cost(Usage(100, 1000, 50, 40)) == pytest.approx((100 + 250 + 500) / 1e6)
    without = Pricing("", Price(input=1.0, output=10.0), Price(input=1.0, output=10.0))
    assert without.cost(Usage(100, 1000, 0, 0)) == pytest.approx(1100 / 1e6)
    assert pricing.bound(1100, 50) == pytest.approx((1100 + 500) / 1e6)


@settings(max_examples=40)
@given(USAGES, st.sampled_from(["gpt-5-mini", "gpt-5.4", "gpt-4.1"]))
def test_costs_are_those_of_genai_prices_and_within_the_bound(usage: Usage, model: str) -> None:
    pricing = certainly(priced(model))
    read = usage.input + usage.cached
    named = {"input_tokens": read, "cache_read_tokens": usage.cached, "output_tokens": usage.output}
    theirs = genai_prices.calc_price(genai_prices.Usage(**named), model, provider_id="openai")
    assert pricing.cost(usage) == pytest.approx(float(theirs.total_price), abs=1e-12)
    bound = pricing.bound(read, usage.output)
    assert pricing.cost(usage) <= bound * (1 + 1e-9)


def test_prices_that_can_not_be() -> None:
    for wrong in ({"input": -1}, {"input": float("inf")}, {"input": 1, "outputs": 1}, {}):
        with pytest.raises(ValidationError):
            Price(**{"output": 1, **wrong})


OTHERS = ["gemini-2.5-flash", "llama3.2", "openai/gpt-5-mini", "zephyr:7b", "my-model"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_that_is_none_of_openais_needs_a_provider_or_an_address(name: str) -> None:
    with pytest.raises(UsageError, match=f"^--judge {name}: no such model of OpenAI .* groq/…"):
        check(name, Model())
    for own in ({"base_url": OPENAI}, {"openai_base_url": "http://h/v1"}):
        check(name, Model(**own))


def test_a_model_of_anthropics_is_none_of_openais_wherever_its_variable_points() -> None:
    check("claude-haiku-4-5", Model(anthropic_base_url=OPENAI))
    check("simulatd", Model(base_url="http://h/v1"))  # as a server may call it


NAMES = ["gpt-99-mini", "o9", "ft:gpt-4o:me::1", "claude-epic-9", "groq/new/model", "ollama/a:1b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_newer_than_the_list_is_asked(name: str) -> None:
    check(name, Model())


pytestmark = pytest.mark.usefixtures("rated_by_elo")


def dollars(budget: Budget) -> tuple[float, float]:
    """What is spent, and what is reserved."""
    spending = budget._own
    return spending.spent / NANO, spending.reserved / NANO


async def test_a_call_waits_for_those_that_may_turn_out_cheaper() -> None:
    budget = Budget(Allowance(1.0))
    await budget.reserve(0.6)
    second, *others = (asyncio.create_task(budget.reserve(0.6)) for _ in range(3))
    await turns()
    assert not second.done()
    budget.settle(0.6, 0.1)
    await second
    assert dollars(budget) == (0.1, 0.6)
    budget.settle(0.6, None)  # no answer: it may have been paid
    found = await asyncio.gather(*others, return_exceptions=True)
    assert [type(each) for each in found] == [BudgetError] * 2
    assert dollars(budget) == pytest.approx((0.7, 0.0))


async def test_what_was_spent_before_counts() -> None:
    with pytest.raises(BudgetError) as caught:
        await Budget(Allowance(5.0, spent=1.5, at_risk=3.0)).reserve(0.6)
    assert str(caught.value) == (
        "the next call might exceed --max-cost 5: $1.5 is spent, up to $3 more perhaps (calls of "
        "unknown cost), and the call may cost up to $0.6."
    )


async def test_rounding_lets_no_call_too_many_through() -> None:
    exact = Budget(Allowance(0.3))  # as a binary fraction less than three times 0.1
    for _ in range(3):
        await exact.reserve(0.1)
    budget = Budget(Allowance(1.0))
    for _ in range(9):
        await budget.reserve(0.1 + 1e-12)
        budget.settle(0.1 + 1e-12, 0.1 + 1e-12)
    with pytest.raises(BudgetError):
        await budget.reserve(0.1 + 1e-12)


def test_a_cap_needs_a_bound() -> None:
    with pytest.raises(ValueError, match="without knowing what a call may cost"):
        asyncio.run(Budget(Allowance(1.0)).reserve(None))


Call = tuple[float, float, str]
ENDS = st.sampled_from(["ok", "unknown", "cancel", "wait"])
CALLS = st.lists(st.tuples(st.floats(0, 0.4), st.floats(0, 1), ENDS), max_size=40)


@settings(max_examples=150)
@given(CALLS, st.floats(0.1, 2))
def test_the_cap_is_never_overshot_and_nobody_waits_for_ever(calls: list[Call], cap: float) -> None:
    async def story() -> None:
        budget, paid, flying = Budget(Allowance(cap)), 0.0, list[Call]()

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


def test_what_was_learned_is_recalled_from_the_dearest_call() -> None:
    learned, recalled = Bounds(PRICING, 50), Bounds(PRICING, 50)
    replied(learned, 5000)
    a_call, a_byte = recalled.price_of_requests
    assert a_call + a_byte * SIZE == pytest.approx(recalled.most(SIZE))
    assert recalled.output_within(SIZE, 1.0) > 0
    recalled.recall(0.9)  # at a price of before: it is within the bound now
    assert not recalled.is_broken
    recalled.recall((100 + 5000 * 10) / 1e6 / (a_call + a_byte * SIZE))
    assert recalled.most(SIZE) == pytest.approx(learned.most(SIZE))
    assert recalled.output_within(SIZE, 1.0) == learned.output_within(SIZE, 1.0) == 0


def test_without_a_limit_a_reason_has_room_of_its_own() -> None:
    assert output_bound(reasons=False) == OUTPUT_BOUND
    most = output_bound(reasons=True)
    bounds = Bounds(PRICING, None, output_bound=most)
    assert most == OUTPUT_BOUND + REASON_BOUND
    assert bounds.most(SIZE) == pytest.approx((1000 + most * 10) / 1e6)
    # What the server is sent as its limit is that of the reason, too.
    assert Bounds(PRICING, 50, output_bound=most).most(SIZE) == Bounds(PRICING, 50).most(SIZE)
