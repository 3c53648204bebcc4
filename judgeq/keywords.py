"""The settings of `judgeq.run` and of `judgeq.evaluate` as typed keywords, for editors and type
checkers. A test holds them to the fields of `config.Settings` and `evaluate.Plan`, which have their
defaults and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

from judgeq.settings.model import Price
from judgeq.types import Floats


class DatasetSettings(TypedDict, total=False):
    """How a dataset is read."""

    text_column: str | None
    id_column: str | None
    gold_column: str | None
    gold_levels: Sequence[str] | None
    latent_column: str | None
    delimiter: str | None
    encoding: str | None
    skip_empty: bool
    limit: int | None
    sample: int | None
    n: int | None
    data_dir: str | Path | None


class SessionSettings(TypedDict, total=False):
    """What may change from one session of a run to the next."""

    concurrency: int
    until: str | None
    max_invalid: float
    rating: str
    sigma: float | None
    unbias_position: bool
    texts: bool
    store: str | None
    workers: int
    share_texts: bool
    rpm: float | None
    tpm: float | None
    max_cost: float | None
    price_in: float | None
    price_out: float | None
    price_cached: float | None
    prices: Mapping[str, Price | Mapping[str, Any]]
    batch: bool
    batch_wait: float | None
    batch_size: int | None
    batch_repair: Literal["batch", "live"]
    cache: bool
    cache_dir: str | Path | None
    api_key_env: str | None
    api_key_file: str | Path | None
    headers: Sequence[str]
    proxy: str | None
    ca_file: str | Path | None
    connect_timeout: float
    first_byte_timeout: float
    timeout: float
    anchors: str | Path | None
    host: str
    port: int
    url_prefix: str
    open_to_all: bool
    sim_latency: float
    sim_rate_limited: float
    sim_timeouts: float
    sim_unreadable: float


class RunSettings(DatasetSettings, SessionSettings, total=False):
    """Everything that can be set about a run, but its dataset."""

    strategy: str
    rounds: int | None
    k: int | None
    overlap: int | None
    matchmaking: Literal["similar", "random"] | None
    streak_length: int | None
    opponents: int | None
    warm_up: int | None
    cut: int | None
    repeats: float | None
    both_orders: bool
    reasons: bool
    judge: str | Sequence[str]
    persona: str | Sequence[str]
    ensemble: Literal["rotate", "each"]
    prompt: str | None
    feature: str | None
    seed: int
    base_url: str | None
    api: Literal["openai", "anthropic"] | None
    temperature: float | None
    top_p: float | None
    reasoning_effort: str | None
    max_output_tokens: int | None
    api_seed: int | None
    service_tier: str | None
    extra_body: Mapping[str, Any] | None
    structured: Literal["auto", "schema", "json", "text"]
    each: int
    sim_model: Literal["vg", "rrt"]
    sim_accuracy: float
    sim_pmax: float
    sim_distance: float
    sim_spread: float
    sim_biased_items: int
    sim_bias: float
    sim_position_bias: float


class EvaluationSettings(TypedDict, total=False):
    """How scores are evaluated."""

    gold: str | Path | Sequence[float] | Floats | None
    gold_column: str | None
    id_column: str | None
    gold_levels: Sequence[str] | None
    positive_over: float | None
    threshold: float | Literal["default", "best", "mixture"]
    rating_name: str | None
    subset: str | None
    resamples: int
    seed: int
