from __future__ import annotations

from datetime import UTC, datetime

import genai_prices
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from judgeq.errors import UsageError
from judgeq.judge import check
from judgeq.judge.prices import Pricing, find
from judgeq.settings.model import Model, Price
from judgeq.types import Usage

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


# Who says so


def test_flags_go_over_the_table_and_the_table_over_what_is_known() -> None:
    table = {"gpt-5-mini": Price(input=5, output=6)}
    both = find("gpt-5-mini", base_url=OPENAI, flat=FLAT, table=table, at=NOW)
    assert certainly(both).price == FLAT
    assert "--price" in certainly(both).source
    mine = find("gpt-5-mini", base_url=OPENAI, flat=None, table=table, at=NOW)
    assert certainly(mine).price == table["gpt-5-mini"]
    theirs = certainly(priced("gpt-5-mini"))
    assert "genai-prices" in theirs.source
    assert "openai gpt-5-mini" in theirs.source


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


# The sums


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
    theirs = genai_prices.calc_price(
        genai_prices.Usage(
            input_tokens=usage.input + usage.cached,
            cache_read_tokens=usage.cached,
            output_tokens=usage.output,
        ),
        model,
        provider_id="openai",
    )
    assert pricing.cost(usage) == pytest.approx(float(theirs.total_price), abs=1e-12)
    bound = pricing.bound(usage.input + usage.cached, usage.output)
    assert pricing.cost(usage) <= bound * (1 + 1e-9)


def test_prices_that_can_not_be() -> None:
    for wrong in ({"input": -1}, {"input": float("inf")}, {"input": 1, "outputs": 1}, {}):
        with pytest.raises(ValidationError):
            Price(**{"output": 1, **wrong})


# Names of models


OTHERS = ["gemini-2.5-flash", "llama3.2", "openai/gpt-5-mini", "zephyr:7b", "my-model"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_name_that_is_none_of_openais_needs_a_provider_or_an_address(name: str) -> None:
    with pytest.raises(UsageError, match=f"^--judge {name}: no such model of OpenAI .* groq/…"):
        check(name, Model())
    for own in ({"base_url": OPENAI}, {"openai_base_url": "http://h/v1"}):
        check(name, Model(**own))


def test_a_model_of_anthropics_is_none_of_openais_wherever_its_variable_points() -> None:
    check("claude-haiku-4-5", Model(anthropic_base_url=OPENAI))


NAMES = ["gpt-99-mini", "o9", "ft:gpt-4o:me::1", "claude-epic-9", "groq/new/model", "ollama/a:1b"]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_is_newer_than_the_list_is_asked(name: str) -> None:
    check(name, Model())
