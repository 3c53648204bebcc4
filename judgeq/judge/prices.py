"""What a call costs: from flags, a table in the configuration, or genai-prices (never the network).

An unknown price is None, never 0. genai-prices is asked only for the addresses it knows: a server of
one's own, or a gateway, isn't billed by OpenAI's table. It takes a third of a second to import, so it
is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from judgeq.settings.model import Price
from judgeq.types import Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice

MILLION = 1_000_000
_NO_TIER = (None, "auto", "default", "standard", "standard_only")
_NO_TIER = (None, "auto", "default", "standard", "standard_only")
_KINDS = {"input": "input_mtok", "output": "output_mtok", "cached": "cache_read_mtok"}


@dataclass(frozen=True, slots=True)
class Pricing:
    """What one model's calls cost, in dollars; `source` says who says so.

    `dearest` is the highest price that any of its calls may be billed at. `exact` computes a call's
    cost where the price changes with its length or the hour; else `price` does.
    """

    source: str
    price: Price
    dearest: Price
    exact: Callable[[Usage], float] | None = None

    def cost(self, usage: Usage) -> float:
        """Dollars. Reasoning tokens are inside output, and never added again."""
        if self.exact is not None:
            return self.exact(usage)
        price = self.price
        cached = price.input if price.cached is None else price.cached
        dollars = usage.input * price.input + usage.cached * cached + usage.output * price.output
        return dollars / MILLION

    def bound(self, input_tokens: int, output_tokens: int) -> float:
        """The most that a call with at most so many tokens can cost, in dollars."""
        dearest = self.dearest
        reading = max(dearest.input, dearest.cached or 0.0)
        return (input_tokens * reading + output_tokens * dearest.output) / MILLION


def find(
    model: str,
    *,
    base_url: str,
    flat: Price | None,
    table: Mapping[str, Price],
    service_tier: str | None = None,
    at: datetime,
) -> Pricing | None:
    """The price of `model` at `base_url`: `flat` first, then `table`, then genai-prices as of `at`.

    None where it is unknown. A service tier is priced only if genai-prices knows it.
    """
    if flat is not None:
        return Pricing("--price-in and --price-out", flat, flat)
    if model in table:
        return Pricing("the configuration's prices", table[model], table[model])
    from genai_prices.data_snapshot import get_snapshot

    try:
        provider, info = get_snapshot().find_provider_model(model, None, None, base_url)
    except LookupError:
        return None
    tier = None if service_tier in _NO_TIER else service_tier
    if tier is not None and not _knows_tier(info, tier, at):
        return None
    context = {"service_tier": tier} if tier else None
    source = f"genai-prices {version('genai-prices')}, {provider.id} {info.id}"
    return _from_genai(source, info, context, at)


def _knows_tier(info: ModelInfo, tier: str, at: datetime) -> bool:
    return any(
        variant.when == {"service_tier": tier}
        and (variant.constraint is None or variant.constraint.active(at))
        for variant in info.price_variants or ()
    )


def _from_genai(
    source: str, info: ModelInfo, context: Mapping[str, str] | None, at: datetime
) -> Pricing | None:
    # The tier that was asked for, or the default one, which a provider may fall back to; other hours.
    every = [info.get_prices(at, context), info.get_prices(at)]
    by_the_hour = False
    if not hasattr(info.prices, "calc_price"):
        every += [period.prices for period in info.prices]
        by_the_hour = any(hasattr(period.constraint, "start_time") for period in info.prices)
    values = _values(every[0])
    price, dearest = _price(values, itemgetter(0)), _price(_values(*every), max)
    if price is None or dearest is None:
        return None
    if not by_the_hour and all(len(prices) <= 1 for prices in values.values()):
        return Pricing(source, price, dearest)

    def exact(usage: Usage) -> float:
        from genai_prices import Usage as Counts

        counts = Counts(
            input_tokens=usage.input + usage.cached,
            cache_read_tokens=usage.cached,
            output_tokens=usage.output,
        )
        now = datetime.now(UTC)
        return float(info.get_prices(now, context).calc_price(counts)["total_price"])

    return Pricing(source, price, dearest, exact)


def _values(*prices: ModelPrice) -> dict[str, list[float]]:
    """All prices of each kind of token, the base first, then those of longer calls."""
    values: dict[str, list[float]] = {}
    for kind, name in _KINDS.items():
        of_kind = [price for model in prices if (price := getattr(model, name, None)) is not None]
        values[kind] = [
            float(value)
            for price in of_kind
            for value in (
                (price.base, *(tier.price for tier in price.tiers))
                if hasattr(price, "tiers")
                else (price,)
            )
        ]
    return values


def _price(
    values: Mapping[str, list[float]], one_of: Callable[[list[float]], float]
) -> Price | None:
    """One price of each kind of token; None unless both directions have one."""
    if not values["input"] or not values["output"]:
        return None
    return Price(**{kind: one_of(prices) for kind, prices in values.items() if prices})


class Known(NamedTuple):
    """A model whose price is known; dollars per million tokens, None where there is none."""

    provider: str
    model: str
    input: float | None
    cached: float | None
    output: float | None
    context_window: int | None


def known(pattern: str | None = None, at: datetime | None = None) -> list[Known]:
    """All text models whose "provider/model" contains `pattern`, sorted by it."""
    from genai_prices.data_snapshot import get_snapshot

    at = at or datetime.now(UTC)
    models = []
    for provider in get_snapshot().providers:
        for info in provider.models:
            price = _price(_values(info.get_prices(at)), itemgetter(0))
            name = f"{provider.id}/{info.id}".lower()
            if price is not None and (pattern is None or pattern.lower() in name):
                dollars = (price.input, price.cached, price.output)
                models.append(Known(provider.id, info.id, *dollars, info.context_window))
    return sorted(models)
