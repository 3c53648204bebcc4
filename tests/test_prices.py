from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import genai_prices
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from judgeq.errors import UsageError
from judgeq.judge import check
from judgeq.judge.prices import Pricing, find, list_prices, models_at
from judgeq.settings.model import Model, Price
from judgeq.settings.providers import PREFIXED, PROVIDERS
from judgeq.types import Usage
from tests.cli import judgeq

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
@given(USAGES, st.sampled_from(["gpt-5-mini", "gpt-4o-mini", "gpt-5.4", "gpt-4.1"]))
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


# The list


def test_known_models_are_filtered_and_sorted() -> None:
    every = list_prices()
    assert len(every) > 100
    assert every == sorted(every)
    found = list_prices("OpenAI/gpt-5-m")
    assert ("openai", "gpt-5-mini") in [(model.provider, model.model) for model in found]
    assert all("openai/gpt-5-m" in f"{model.provider}/{model.model}" for model in found)
    assert list_prices("zzz") == []


# Names of models


EVERYBODY = {"": PROVIDERS["openai"], " ": PROVIDERS["anthropic"], **PREFIXED}


def refused(name: str, **model: Any) -> str:
    with pytest.raises(UsageError, match=f"^--judge {name}: ") as caught:
        check(name, Model(**model))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpt-5-mni", "gpt-5-mini"),
        ("gtp-5-mini", "gpt-5-mini"),
        ("gpt5-mini", "gpt-5-mini"),
        ("GPT-5-mini", "gpt-5-mini"),
        ("gpt-4-1", "gpt-4.1"),
        ("o4-mnii", "o4-mini"),
        ("claude-haiku-4.5", "claude-haiku-4-5"),
        ("claude-4-5-haiku", "claude-haiku-4-5"),
        ("claude-hiaku-4-5", "claude-haiku-4-5"),
        ("cluade-haiku-4-5", "claude-haiku-4-5"),
        ("gemini/gemini-2.5-flsh", "gemini/gemini-2.5-flash"),
        ("mistral/mistral-smal-latest", "mistral/mistral-small-latest"),
        ("groq/llama-3.3-70b-versatil", "groq/llama-3.3-70b-versatile"),
        ("gemni-2.5-flash", "gemini/gemini-2.5-flash"),
        ("gemini-2.5-flash", "gemini/gemini-2.5-flash"),
        ("gemini-99-flash", "gemini/gemini-99-flash"),
        ("ministral-8b-latest", "mistral/ministral-8b-latest"),
        ("deepseek-chat", "deepseek/deepseek-chat"),
        ("grok-99", "xai/grok-99"),
        ("gpt-oss-20b", "groq/gpt-oss-20b or ollama/gpt-oss-20b"),
        ("llama3.2", "groq/llama3.2 or ollama/llama3.2"),
        ("zephyr:7b", "ollama/zephyr:7b"),
        ("openai/gpt-5-mini", "gpt-5-mini or openrouter/openai/gpt-5-mini"),
        ("google/gemini-2.5-pro", "gemini/gemini-2.5-pro or openrouter/google/gemini-2.5-pro"),
        ("some/model", "openrouter/some/model"),
        ("gorq/some-model", "groq/some-model"),
    ],
)
def test_a_slip_is_told_with_what_was_meant_and_how_to_insist(name: str, meant: str) -> None:
    message = refused(name)
    assert f"Did you mean {meant}? " in message
    flags = shlex.split(message.rpartition("all the same: ")[2].removesuffix("."))
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    insisting = Model(base_url=given["--base-url"], api=given.get("--api"))
    check(name.partition("/")[2] if name.partition("/")[0] in PREFIXED else name, insisting)
    for one in meant.split(" or "):
        check(one, Model())


@pytest.mark.parametrize(
    "name",
    [
        *(
            "gpt-5.7-mini",
            "gpt-99",
            "gpt-5o",
            "gpt-5-mini-2031-01-01",
            "gpt-6.9-sol",
            "o5",
            "o9-mini",
        ),
        *("chatgpt-9-latest", "ft:gpt-4o-mini:my-org:mni:1", "gpt-7-medium", "codex-mini-latest"),
        *("claude-haiku-99", "claude-haiku-4-5-20251001", "claude-epic-9-1"),
        *(
            "gemini/gemini-99-flash",
            "gemini/gemma-9-9b-it",
            "mistral/brandnew-large",
            "xai/grok-5x",
        ),
        *("openrouter/anthropic/claude-haiku-4.5", "openrouter/openai/gpt-5-mni", "groq/new/model"),
        *("ollama/llama3.2", "ollama/gpt-5-mni", "xai/grok-4-0719", "gemini/gemma-4-31b-pt"),
    ],
)
def test_a_model_that_is_newer_than_the_list_is_asked(name: str) -> None:
    check(name, Model())


@pytest.mark.parametrize("prefix", EVERYBODY)
def test_all_models_that_are_known_are_asked(prefix: str) -> None:
    provider = EVERYBODY[prefix]
    asked = [one for one in models_at(provider.address) if not one.startswith("gpt-oss")]
    asked = [one for one in asked if provider.address != PROVIDERS["openai"].address or _chats(one)]
    assert asked or prefix == "ollama"
    for one in asked:
        check(f"{prefix}/{one}" if prefix in PREFIXED else one, Model())


def _chats(name: str) -> bool:
    """Not one of OpenAI's that hears, speaks, moderates or was withdrawn before chats were."""
    return not name.startswith(("ada", "curie", "moderation", "tts", "whisper"))


def test_a_name_that_is_nobodys_is_told_what_to_name() -> None:
    message = refused("my-model")
    assert "--base-url URL, or one of gemini/…, mistral/…, deepseek/…, xai/…, groq/…" in message
    check("my-model", Model(api="openai"))
    check("my-model", Model(base_url="https://api.openai.com/v1"))


@pytest.mark.parametrize("given", [{"base_url": "http://h/v1"}, {"openai_base_url": "http://h/v1"}])
def test_a_server_of_ones_own_may_call_its_models_anything(given: dict[str, Any]) -> None:
    for name in ("gpt-5-mni", "my-model", "gemini-2.5-flash", "some/model"):
        check(name, Model(**given))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("groq/", {}),
        ("gemini/gemini-2.5-flash", {"api": "openai"}),
        ("gemini/gemini-2.5-flash", {"base_url": "https://api.openai.com/v1"}),
    ],
)
def test_a_prefix_says_where_and_nothing_else_does(name: str, given: dict[str, Any]) -> None:
    prefix = name.partition("/")[0]
    assert f"write {prefix}/MODEL, without --base-url and --api" in refused(name, **given)


def test_nothing_is_written_or_sent_for_a_slip(tmp_path: Path) -> None:
    for command in ("run", "estimate"):
        done = judgeq(
            *(tmp_path, command, "-d", "demo", "--judge", "gpt-5-mni", "--max-cost", "1"),
            expect=2,
            variables={"OPENAI_API_KEY": "k"},
        )
        assert "Did you mean gpt-5-mini?" in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()
