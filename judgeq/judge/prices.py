"""What a call costs, from flags, a table in the configuration, or genai-prices (never the network); and
the most that it can cost.

An unknown price is None, never 0. genai-prices is asked only for the addresses it knows: a server of
one's own, or a gateway, isn't billed by OpenAI's table. It takes a third of a second to import, so it
is imported where it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from importlib.metadata import version
from typing import TYPE_CHECKING

from judgeq.settings.model import Price
from judgeq.settings.providers import PROVIDERS
from judgeq.types import Notify, Usage

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, Provider

MILLION = 1_000_000
OUTPUT_BOUND = 16_384
"""Tokens that a reply is taken to have at most where no limit is sent to the server."""
REASON = (15, 80)
"""Tokens that a reason takes, of one short sentence: from a few plain words to a script with a token a
letter."""
REASON_BOUND = 1_024
"""Tokens that a reason is taken to have at most, beside the rest of its reply: not all are short."""
HIDDEN = 256
"""Tokens that a server may add to what it is sent: roles, the schema's frame."""
RAISE = 2.0
"""By how much the new bound exceeds the reply that broke the old one."""
TOLERANCE = 1e-9
"""By how much of itself a bound may be exceeded: sums of the same floats may differ so."""
NEAR_NAME = 0.85
"""How like a known model's name a misspelt one is, by difflib's ratio."""
_SEPARATORS = re.compile(r"[-._@]+")
_VERSIONS = re.compile(r"[-._@]*v?[0-9][0-9.]*")
_NO_TIER = (None, "auto", "default", "standard", "standard_only")
BATCH = {"processing": "batch"}
_KINDS = {"input": "input_mtok", "output": "output_mtok", "cached": "cache_read_mtok"}


@dataclass(frozen=True, slots=True)
class Pricing:
    """What one model's calls cost, in dollars; `source` says who says so.

    `dearest` is the highest price that any of its calls may be billed at. `exact` computes a call's
    cost where the price changes with its length or the hour; else `price` does. Of all that a `share` is
    billed: half for batches, where only the price of single calls is known.
    """

    source: str
    price: Price
    dearest: Price
    exact: Callable[[Usage], float] | None = None
    share: float = 1.0

    @property
    def halved(self) -> Pricing:
        """Half of this, which is what providers bill for batches."""
        return replace(self, source=f"half of {self.source}", share=0.5)

    def cost(self, usage: Usage) -> float:
        """Dollars. Reasoning tokens are inside output, and never added again."""
        if self.exact is not None:
            return self.exact(usage) * self.share
        price = self.price
        cached = price.input if price.cached is None else price.cached
        dollars = usage.input * price.input + usage.cached * cached + usage.output * price.output
        return dollars * self.share / MILLION

    def bound(self, input_tokens: int, output_tokens: int) -> float:
        """The most that a call with at most so many tokens can cost, in dollars."""
        dearest = self.dearest
        reading = max(dearest.input, dearest.cached or 0.0)
        dollars = input_tokens * reading + output_tokens * dearest.output
        return dollars * self.share / MILLION


def find(
    model: str,
    *,
    base_url: str,
    model_id: str | None = None,
    flat: Price | None,
    table: Mapping[str, Price],
    service_tier: str | None = None,
    batch: bool = False,
    at: datetime,
) -> Pricing | None:
    """The price of `model` at `base_url`: `flat` first, then `table`, then genai-prices as of `at`, by
    the `model_id` that the server has for it (None: the same). With `batch` that of its batches, or
    where that isn't known half of it.

    None where it is unknown. A service tier is priced only if genai-prices knows it.
    """
    price = flat or table.get(model)
    if price is not None:
        source = "--price" if flat is not None else "the configuration's prices"
        if batch and price.batch is not None:
            return Pricing(f"{source} of batches", price.batch, price.batch)
        mine = Pricing(source, price, price)
        return mine.halved if batch else mine
    found = _in_table(model_id or model, base_url)
    if found is None:
        return None
    provider, info = found
    source = f"genai-prices {version('genai-prices')}, {provider.id} {info.id}"
    if batch and _knows(info, BATCH, at):
        return _from_genai(f"{source}, batch", info, BATCH, at)
    tier = None if service_tier in _NO_TIER else service_tier
    context = {"service_tier": tier} if tier else None
    if context is not None and not _knows(info, context, at):
        return None
    pricing = _from_genai(source, info, context, at)
    return pricing.halved if batch and pricing is not None else pricing


def context_window(model: str, base_url: str) -> int | None:
    """The tokens that `model` at `base_url` reads, its reply included; None where that is unknown."""
    found = _in_table(model, base_url)
    return None if found is None else found[1].context_window


def near_name(model: str, base_url: str) -> str | None:
    """Return the known model at `base_url` that a misspelt name may mean; None for a name that is known
    or is like none. A name that differs in its version alone may be a newer one, unless it is a known
    name with other separators."""
    provider = _provider_at(base_url)
    if provider is None or _in_table(model, base_url) is not None:
        return None
    known = {info.id for info in provider.models if not info.deprecated}
    by_characters = {_SEPARATORS.sub("", name.lower()): name for name in sorted(known)}
    characters = _SEPARATORS.sub("", model.lower())
    if characters in by_characters:
        return by_characters[characters]
    if _without_version(model) in map(_without_version, known):
        return None
    near = get_close_matches(model, sorted(known), 1, cutoff=NEAR_NAME)
    if not near or model.startswith(tuple(f"{near[0]}{mark}" for mark in "-:@")):
        return None  # like none; or a variant of it, or the user's own
    return near[0]


def _without_version(name: str) -> str:
    """Return a model's name without its numbers: claude-haiku of claude-haiku-5 and claude-haiku-4-5."""
    return _SEPARATORS.sub("-", _VERSIONS.sub("", name.lower())).strip("-")


def elsewhere(model: str, at: datetime) -> tuple[str, Price] | None:
    """Return who sells a model of this name, and their price, for a server whose own isn't known."""
    for provider in PROVIDERS.values():
        if _in_table(model, provider.address) is None:
            continue
        found = find(model, base_url=provider.address, flat=None, table={}, at=at)
        if found is not None:
            return provider.name, found.price
    return None


def _provider_at(base_url: str) -> Provider | None:
    """Return who is at an address, as genai-prices knows them."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider(None, None, base_url)
    except LookupError:
        return None


def _in_table(model: str, base_url: str) -> tuple[Provider, ModelInfo] | None:
    """A model and its provider as genai-prices knows them."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, None, base_url)
    except LookupError:
        return None


def _knows(info: ModelInfo, context: Mapping[str, str], at: datetime) -> bool:
    """Whether a model has prices of its own for a tier, or for batches."""
    return any(
        variant.when == context and (variant.constraint is None or variant.constraint.active(at))
        for variant in info.price_variants or ()
    )


def _from_genai(
    source: str, info: ModelInfo, context: Mapping[str, str] | None, at: datetime
) -> Pricing | None:
    price, periods = info.get_prices(at, context), info.prices
    others = [period.prices for period in periods] if isinstance(periods, list) else []
    if context is not BATCH:  # a provider may fall back to its default tier
        others.append(info.get_prices(at))
    now, ever = _rates([price]), _rates([price, *others])
    if not {"input", "output"} <= now.keys():
        return None
    flat = Price(**{kind: values[0] for kind, values in now.items()})
    dearest = Price(**{kind: max(values) for kind, values in ever.items()})
    by_length = any(len(values) > 1 for values in now.values())
    by_the_hour = isinstance(periods, list) and any(
        hasattr(period.constraint, "start_time") for period in periods
    )
    if not (by_length or by_the_hour):
        return Pricing(source, flat, dearest)

    def exact(usage: Usage) -> float:
        from genai_prices import Usage as Counts

        counts = Counts(
            input_tokens=usage.input + usage.cached,
            cache_read_tokens=usage.cached,
            output_tokens=usage.output,
        )
        prices = info.get_prices(datetime.now(UTC), context)
        return float(prices.calc_price(counts)["total_price"])

    return Pricing(source, flat, dearest, exact)


def _rates(every: Iterable[ModelPrice]) -> dict[str, list[float]]:
    """Dollars per million tokens by kind: the base prices, and those of longer calls."""
    rates = dict[str, list[float]]()
    for prices in every:
        for kind, name in _KINDS.items():
            price = getattr(prices, name)
            tiers = (
                (price.base, *(tier.price for tier in price.tiers))
                if hasattr(price, "tiers")
                else (price,)
            )
            rates.setdefault(kind, []).extend(float(one) for one in tiers if one is not None)
    return {kind: values for kind, values in rates.items() if values}


# The most that a call can cost


def output_bound(reasons: bool) -> int:
    """Tokens that a reply is taken to have at most where no limit is sent, with a reason or without."""
    return OUTPUT_BOUND + (REASON_BOUND if reasons else 0)


def answer_tokens(items: float, reasons: bool) -> float:
    """Tokens that an answer about so many items takes at most, without reasoning: a label with its marks
    may be four."""
    return 8 + 4 * items + (REASON[1] if reasons else 0)


def is_over(cost: float, bound: float) -> bool:
    """Whether a call cost more than its bound, but for rounding."""
    return cost > bound * (1 + TOLERANCE)


def overpriced_bytes(size: int, cost: float | None, bound: float | None) -> int | None:
    """Return the `size` of a request that cost more than its bound; None of all others."""
    if cost is None or bound is None or not is_over(cost, bound):
        return None
    return size


class Bounds:
    """The most that calls of a model can cost in dollars, by the bytes of their requests; None where the
    price is unknown.

    `output_limit` is what the server is sent, None if it is sent none: then a reply is taken to have
    `output_bound` tokens at most. A server need not hold its limit (some count reasoning beside it, some
    don't know the field): a reply that cost more than its bound raises that of all that follow, and
    `warn` gets a warning.
    """

    def __init__(
        self,
        pricing: Pricing | None,
        output_limit: int | None,
        warn: Notify = lambda _: None,
        output_bound: int = OUTPUT_BOUND,
    ) -> None:
        self._pricing = pricing
        self._most = output_limit or output_bound
        self._warn = warn
        self._factor = 1.0
        self._least = 0.0  # dollars, where the price is 0

    def most(self, size: int) -> float | None:
        """The most that a call of `size` bytes can cost: no tokenizer makes more tokens than there are
        bytes."""
        if self._pricing is None:
            return None
        return self._pricing.bound(size + HIDDEN, self._most) * self._factor or self._least

    @property
    def is_broken(self) -> bool:
        """Whether calls cost more than their tokens are said to: fewer tokens needn't lower that."""
        return self._factor > 1.0 or self._least > 0.0

    @property
    def price_of_requests(self) -> tuple[float, float]:
        """Return the dollars that a call costs at most by its price: those for any call, and those for
        each byte of it. A free call counts as one dollar."""
        if self._pricing is None:
            return 1.0, 0.0
        per_call = self._pricing.bound(HIDDEN, self._most)
        return (per_call, self._pricing.bound(1, 0)) if per_call else (1.0, 0.0)

    def recall(self, times: float) -> None:
        """Raise the bounds as `learn` did when a call cost so many times `price_of_requests`."""
        if self._pricing is None or not times:
            return
        if not self._pricing.bound(HIDDEN, self._most):
            self._least = max(self._least, RAISE * times)
        elif times > 1 + TOLERANCE:
            self._factor = max(self._factor, RAISE * times)

    def output_within(self, size: int, dollars: float) -> int:
        """Return the limit on output tokens with which a call of `size` bytes costs so much at most; 0
        where no limit makes that sure."""
        if self._pricing is None or self.is_broken:
            return 0
        input_cost = self._pricing.bound(size + HIDDEN, 0)
        token_cost = self._pricing.bound(0, 1)
        return self._most if not token_cost else max(0, int((dollars - input_cost) / token_cost))

    def learn(
        self, size: int, usage: Usage, cost: float | None, *, is_reported: bool = False
    ) -> bool:
        """Raise the bounds of later calls where one of `size` bytes cost more than its own.

        Return whether it did. `is_reported`: the server said the cost itself.
        """
        bound = self.most(size)
        if cost is None or bound is None or not is_over(cost, bound):
            return False
        if self._pricing is not None and self._pricing.bound(size + HIDDEN, self._most):
            self._factor *= RAISE * cost / bound
        else:
            self._least = RAISE * cost
        why = (
            f"{usage.output:,} output tokens ({usage.reasoning:,} of them reasoning), bounded by "
            f"{self._most:,}"
        )
        later = f"${self._least:.3g}"
        if not self._least:
            later = f"{self._factor:,.3g} times their bound"
        if is_reported and self._pricing is not None:
            why = f"so the server says. Its prices are higher than those of {self._pricing.source}"
        self._warn(
            f"A reply cost ${cost:.3g}, more than its bound of ${bound:.3g}: {why}. Later calls "
            f"reserve {later}; those in flight may exceed --max-cost."
        )
        return True
