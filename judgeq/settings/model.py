"""The settings of a model behind an API: what decides its answers, and how it is reached."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator

from judgeq.settings.declaration import (
    BATCHES,
    CONNECTION,
    MODEL,
    MONEY,
    Declarations,
    setting,
)
from judgeq.settings.providers import ANTHROPIC, OPENAI, PREFIXED, PROVIDERS, Api, Provider

SECRETIVE = re.compile(r"key|token|secret|sig|password|auth", re.IGNORECASE)
DEAREST = 1_000_000.0
"""A dollar a token at most: no model costs near as much, and sums stay numbers that can be shown."""
Dollars = Annotated[float, Field(ge=0, le=DEAREST)]
TOKENS = 1_000_000_000
"""Tokens of a reply at most: a greater limit bounds nothing."""
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OWN = {"anthropic_base_url": ANTHROPIC}
LIMIT_FIELDS = ("max_completion_tokens", "max_tokens")

Structured = Literal["auto", "schema", "json", "text"]


class Model(Declarations):
    """What decides a model's answers. What is None is not sent."""

    base_url: str | None = setting(
        "The server's address. As http://127.0.0.1:8000/v1, of one that speaks like OpenAI's or (--api) "
        "Anthropic's. It wins over $OPENAI_BASE_URL and $ANTHROPIC_BASE_URL.",
        MODEL, None,
        common=True, secretive=True, metavar="URL",
        unset="$OPENAI_BASE_URL, or the provider's",
    )  # fmt: skip
    openai_base_url: str | None = setting(
        "Where models of OpenAI are asked, with its key, where base_url isn't given. Kept with a run.",
        MODEL, None, secretive=True, unset="$OPENAI_BASE_URL", only="", envvar="OPENAI_BASE_URL",
    )  # fmt: skip
    anthropic_base_url: str | None = setting(
        "The same of Anthropic's, with /v1 at its end.",
        MODEL, None, secretive=True, unset="$ANTHROPIC_BASE_URL", only="",
        envvar="ANTHROPIC_BASE_URL",
    )  # fmt: skip
    api: Api | None = setting(
        "The form of API that the models' server speaks: OpenAI's chat completions, or Anthropic's "
        "messages.",
        MODEL, None, unset="anthropic for claude-… without --base-url, else openai",
    )  # fmt: skip
    temperature: float | None = setting(
        "Sampling temperature; some models refuse it.", MODEL, None, ge=0, le=10
    )
    reasoning_effort: str | None = setting(
        "For models that reason: minimal, low, medium, high.", MODEL, None,
        metavar="EFFORT", min_length=1)  # fmt: skip
    max_output_tokens: int | None = setting(
        "The longest reply in tokens, reasoning included. A shorter limit costs no answer twice.",
        MODEL, None, session=True, metavar="N", ge=1, le=TOKENS,
    )  # fmt: skip
    extra_body: dict[str, Any] | None = setting(
        "More fields for every request, as a JSON object: top_p, seed, service_tier.", MODEL, None,
        secretive=True, metavar="JSON",
    )  # fmt: skip
    structured: Structured = setting(
        "How a reply's form is asked for: by a strict schema, as JSON, or in words alone; auto "
        "steps down when the server refuses.",
        MODEL,
        "auto",
    )

    @model_validator(mode="before")
    @classmethod
    def _official(cls, given: Any) -> Any:
        """A provider's own address is none of the user's: there the default key may go."""
        if not isinstance(given, dict) or not isinstance(url := given.get("base_url"), str):
            return given
        here = _base(url)
        of_anthropic = given.get("api") == "anthropic"
        if here == OPENAI and of_anthropic:
            raise ValueError("--api anthropic: that is not what OpenAI's own address speaks")
        if here == OPENAI:
            return {**given, "api": "openai"}
        return {**given, "base_url": None} if here == ANTHROPIC and of_anthropic else given

    @field_validator("base_url", "openai_base_url", "anthropic_base_url")
    @classmethod
    def _address(cls, url: str | None, field: ValidationInfo) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("give an address such as http://127.0.0.1:8000/v1")
        if parts.username or parts.password:
            raise ValueError("no user or password in the address: it is kept on disk; use --header")
        for name, _ in parse_qsl(parts.query):
            if SECRETIVE.search(name):
                raise ValueError(
                    f"no key in the address ({name}=…): it is kept on disk; use --header"
                )
        clean = _base(url)
        return None if clean == _OWN.get(field.field_name or "", OPENAI) else clean

    @field_validator("extra_body")
    @classmethod
    def _extra(cls, body: dict[str, Any] | None) -> dict[str, Any] | None:
        import orjson  # not needed for --help

        for name in body or ():
            if name in ("model", "messages", "stream", "n", "response_format"):
                raise ValueError(f"{name!r} is judgeq's own to send")
        try:
            orjson.dumps([[[[[[[[body]]]]]]]])  # so deep within what is sent or kept
        except TypeError as error:
            raise ValueError(f"it can't be sent as JSON: {error}") from error
        return body or None

    def prefixed(self, name: str) -> Provider | None:
        """The provider that a model's prefix stands for, where neither a server nor a form is given."""
        prefix, slash, _ = name.partition("/")
        return None if not slash or self.base_url or self.api else PREFIXED.get(prefix)

    def provider_of(self, name: str) -> Provider:
        """Who is asked for a model, where no server is given: by its prefix, else by form of API."""
        return self.prefixed(name) or PROVIDERS[self.api_of(name)]

    def id_of(self, name: str) -> str:
        """What its server calls a model: its name without the provider's prefix."""
        return name.partition("/")[2] if self.prefixed(name) else name

    def api_of(self, name: str) -> Api:
        """The form of API that a model is asked in."""
        named = self.base_url is None and name.startswith("claude-")
        return self.api or ("anthropic" if named else "openai")

    def address_of(self, name: str) -> str:
        """The base URL that a model is asked at: by default its provider's own."""
        api = self.api_of(name)
        named = {"openai": self.openai_base_url, "anthropic": self.anthropic_base_url}[api]
        if self.prefixed(name):
            named = None
        return self.base_url or named or self.provider_of(name).address

    @property
    def output_limit(self) -> int | None:
        """The most tokens a reply may have, as the server is sent it; None if it is sent none, or
        (-1, say) what bounds nothing."""
        extra = self.extra_body or {}
        given: list[Any] = [extra[name] for name in LIMIT_FIELDS if name in extra]
        given += [] if self.max_output_tokens is None else [self.max_output_tokens]
        limits = [limit for limit in given if type(limit) is int and 0 < limit <= TOKENS]
        return max(limits) if limits and len(limits) == len(given) else None

    def deciding(self) -> dict[str, Any]:
        """What of this is set, for the fingerprint: not the limit of a reply, since a whole reply is the
        same under any. OpenAI's API is what all were asked in once."""
        names = set(Model.model_fields) - {"max_output_tokens"}
        decided = self.model_dump(include=names, exclude_defaults=True)
        return {
            name: value for name, value in decided.items() if (name, value) != ("api", "openai")
        }


def from_environment(api: Api) -> str | None:
    """The base URL that the environment gives a provider's package, None for none. Anthropic's is
    without the version, which its package adds."""
    url = _base(os.environ.get(PROVIDERS[api].variable, "").strip())
    if url and api == "anthropic" and not url.endswith("/v1"):
        url += "/v1"
    return url or None


def _base(url: str) -> str:
    """An API's address without what is asked there; as it is where it can't be one."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    path = parts.path.rstrip("/")
    for end in ("/chat/completions", "/messages"):
        path = path.removesuffix(end)
    return parts._replace(path=path, fragment="").geturl()


class Price(Declarations):
    """Dollars per million tokens. `cached` is for input that the provider had cached (None: as
    other input). `batch` are those of batches (None: half)."""

    input: Dollars
    output: Dollars
    cached: Dollars | None = None
    batch: Price | None = None


class Access(Declarations):
    """How a model is reached, how fast, and for how much: none of it decides an answer."""

    api_key_env: str | None = setting(
        "The environment variable that holds the API key.", CONNECTION, None,
        common=True, session=True, secretive=True, metavar="NAME",
        unset="the provider's own; JUDGEQ_API_KEY with --base-url",
        min_length=1)  # fmt: skip
    api_key_file: Path | None = setting(
        "A file that holds the API key.", CONNECTION, None, session=True
    )
    headers: tuple[str, ...] = setting(
        "One more header, 'Name: value' or 'Name: env:VARIABLE'; may be repeated. Only the second "
        "form is kept with the run.",
        CONNECTION, (), session=True, secretive=True, only="--header", metavar="HEADER",
    )  # fmt: skip
    proxy: str | None = setting(
        "A proxy's address, or env:VARIABLE.", CONNECTION, None,
        session=True, secretive=True, unset="$HTTPS_PROXY", metavar="URL",
    )  # fmt: skip
    ca_file: Path | None = setting(
        "Certificates of the authorities to trust (PEM).", CONNECTION, None, session=True
    )
    timeout: float = setting("Seconds for a call.", CONNECTION, 600.0, session=True, gt=0)
    rpm: float | None = setting(
        "Requests a minute.", CONNECTION, None, session=True, unset="what the server says", gt=0
    )
    tpm: float | None = setting(
        "Tokens a minute.", CONNECTION, None, session=True, unset="what the server says", gt=0
    )
    max_cost: float | None = setting(
        "Dollars that the run may cost; it stops before that, and can go on.", MONEY, None,
        common=True, session=True, metavar="DOLLARS", ge=0)  # fmt: skip
    price: tuple[Dollars, ...] | None = setting(
        "Dollars per million tokens: of input, of output, and perhaps of cached input.", MONEY, None,
        session=True, unset="genai-prices", metavar="IN,OUT[,CACHED]")  # fmt: skip
    prices: dict[str, Price] = setting(
        "Prices by model: tables [prices.\"my-model\"] with input, output and cached, and for batches "
        "[prices.\"my-model\".batch].",
        MONEY, {}, session=True, only="",
    )  # fmt: skip
    batch: bool = setting(
        "Send rounds as batches, for half the price at most providers. They answer within 24 hours.",
        BATCHES, False, common=True, session=True,
    )  # fmt: skip
    wait: bool = setting(
        "Wait until all batches are in. --no-wait only sends and collects what is due, and ends with "
        "exit code 5.",
        BATCHES, True, session=True, undone=True,
    )  # fmt: skip
    batch_size: int | None = setting(
        "Questions in a batch at most.", BATCHES, None,
        session=True, unset="what the provider takes", ge=1,
    )  # fmt: skip
    cache: bool = setting(
        "Neither take replies from the cache nor keep them there.", MONEY, True,
        session=True, only="--no-cache",
    )  # fmt: skip
    cache_dir: Path | None = setting(
        "Where replies are kept for all runs.", MONEY, None,
        session=True, unset="your cache folder", envvar="JUDGEQ_CACHE",
    )  # fmt: skip

    @field_validator("api_key_env")
    @classmethod
    def _variable(cls, name: str | None) -> str | None:
        if name is not None and not VARIABLE.fullmatch(name):
            raise ValueError("give the name of an environment variable, not the key itself")
        return name

    @field_validator("headers")
    @classmethod
    def _headers(cls, headers: tuple[str, ...]) -> tuple[str, ...]:
        for header in headers:
            name, colon, value = header.partition(":")
            if not colon or not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name.strip()):
                raise ValueError("a header is given as 'Name: value' or 'Name: env:VARIABLE'")
            if not value.strip().isprintable():
                raise ValueError(f"the value of {name.strip()} holds control characters")
        return headers

    @field_validator("proxy")
    @classmethod
    def _proxy(cls, proxy: str | None) -> str | None:
        if not proxy:
            return None
        if not proxy.startswith("env:"):
            parts = urlsplit(proxy)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("give an address such as http://127.0.0.1:3128, or env:VARIABLE")
        return proxy

    @field_validator("price", mode="before")
    @classmethod
    def _split(cls, price: Any) -> Any:
        return price.split(",") if isinstance(price, str) else price

    @field_validator("price")
    @classmethod
    def _in_dollars(cls, price: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if price is not None and len(price) not in (2, 3):
            raise ValueError(
                "give dollars per million tokens of input and output, and perhaps of cached input: "
                "0.25,2 or 0.25,2,0.025"
            )
        return price

    @property
    def flat(self) -> Price | None:
        """The price given for all models."""
        if self.price is None:
            return None
        return Price(**dict(zip(("input", "output", "cached"), self.price, strict=False)))

    def on_disk(self) -> dict[str, Any]:
        """What of this may be kept in a run's folder: nothing that could hold a secret."""
        headers = tuple(
            header for header in self.headers if header.partition(":")[2].strip().startswith("env:")
        )
        proxy = self.proxy
        if proxy is not None and not proxy.startswith("env:") and "@" in proxy:
            proxy = None
        return {"headers": headers, "proxy": proxy}
