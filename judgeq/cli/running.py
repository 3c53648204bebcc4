"""The commands that judge: run, estimate, resume.

What a command needs is imported when it runs, so that `judgeq --help` stays quick.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from judgeq.cli.app import EXIT_CODES, app
from judgeq.cli.model_options import (
    ApiKeyEnv,
    ApiKeyFile,
    ApiSeed,
    BaseUrl,
    BothOrders,
    CacheDir,
    CaFile,
    ConnectTimeout,
    ExtraBody,
    FirstByteTimeout,
    Header,
    MaxCost,
    MaxOutputTokens,
    NoCache,
    PriceCached,
    PriceIn,
    PriceOut,
    Proxy,
    ReasoningEffort,
    Rpm,
    ServiceTier,
    Structured,
    Temperature,
    Timeout,
    TopP,
    Tpm,
)
from judgeq.cli.options import (
    BtSigma,
    Concurrency,
    ConfigFile,
    Cut,
    DataDir,
    Dataset,
    DryRun,
    Ensemble,
    Feature,
    GoldColumn,
    GoldLevels,
    IdColumn,
    Json,
    Judges,
    LatentColumn,
    ListSize,
    LogFile,
    Matchmaking,
    Opponents,
    Overlap,
    Persona,
    Prompt,
    Quiet,
    RatingName,
    Repeats,
    RetryFailed,
    Rounds,
    RunName,
    RunsDir,
    Seed,
    SimAccuracy,
    SimBias,
    SimBiasedItems,
    SimDistance,
    SimLatency,
    SimModel,
    SimPmax,
    SimRateLimited,
    SimSpread,
    SimTimeouts,
    SimUnreadable,
    StartAfresh,
    Strategy,
    StreakLength,
    SyntheticSize,
    TextColumn,
    WarmUp,
)
from judgeq.cli.printing import console, print_json, show, show_result, write_log
from judgeq.errors import BudgetError, JudgeError, StoppedError, UsageError

if TYPE_CHECKING:
    from judgeq.sitting import Prepared

NO_SETTINGS = frozenset(
    {"name", "config", "runs_dir", "quiet", "log", "as_json", "new", "retry_failed", "dry_run"}
)


def _with_the_flags_of(
    command: Callable[..., None], *, but: Iterable[str]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command another's flags, so that they are named once."""

    def give(other: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        kept = [each for name, each in signature.parameters.items() if name not in set(but)]
        other.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        other.__annotations__ = {each.name: each.annotation for each in kept} | {"return": None}
        return other

    return give


@app.command(epilog=EXIT_CODES)
def run(
    dataset: Dataset = None,
    text_column: TextColumn = None,
    id_column: IdColumn = None,
    gold_column: GoldColumn = None,
    gold_levels: GoldLevels = None,
    latent_column: LatentColumn = None,
    n: SyntheticSize = None,
    data_dir: DataDir = None,
    strategy: Strategy = None,
    rounds: Rounds = None,
    k: ListSize = None,
    overlap: Overlap = None,
    matchmaking: Matchmaking = None,
    streak_length: StreakLength = None,
    opponents: Opponents = None,
    warm_up: WarmUp = None,
    cut: Cut = None,
    repeats: Repeats = None,
    judge: Judges = None,
    persona: Persona = None,
    ensemble: Ensemble = None,
    prompt: Prompt = None,
    feature: Feature = None,
    seed: Seed = None,
    both_orders: BothOrders = None,
    base_url: BaseUrl = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    reasoning_effort: ReasoningEffort = None,
    max_output_tokens: MaxOutputTokens = None,
    api_seed: ApiSeed = None,
    service_tier: ServiceTier = None,
    extra_body: ExtraBody = None,
    structured: Structured = None,
    rpm: Rpm = None,
    tpm: Tpm = None,
    max_cost: MaxCost = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    price_cached: PriceCached = None,
    no_cache: NoCache = False,
    cache_dir: CacheDir = None,
    api_key_env: ApiKeyEnv = None,
    api_key_file: ApiKeyFile = None,
    header: Header = None,
    proxy: Proxy = None,
    ca_file: CaFile = None,
    connect_timeout: ConnectTimeout = None,
    first_byte_timeout: FirstByteTimeout = None,
    timeout: Timeout = None,
    sim_model: SimModel = None,
    sim_accuracy: SimAccuracy = None,
    sim_pmax: SimPmax = None,
    sim_distance: SimDistance = None,
    sim_spread: SimSpread = None,
    sim_biased_items: SimBiasedItems = None,
    sim_bias: SimBias = None,
    sim_latency: SimLatency = None,
    sim_rate_limited: SimRateLimited = None,
    sim_timeouts: SimTimeouts = None,
    sim_unreadable: SimUnreadable = None,
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    concurrency: Concurrency = None,
    retry_failed: RetryFailed = False,
    new: StartAfresh = False,
    dry_run: DryRun = False,
    config: ConfigFile = None,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Judge a dataset from start to scores, or go on with it.

    The same command again goes on with the same run: interrupted, it resumes;
    finished, it shows its result and asks nothing. Ctrl-C once lets the calls
    in flight finish, twice stops now.

    Examples:

      judgeq run --dataset babe --strategy listwise10

      judgeq run -d my.csv --text-column body --gold-column label

      judgeq run -d demo --judge gpt-5-mini --max-cost 1

      judgeq run -d demo --judge my-model --base-url http://127.0.0.1:8000/v1
    """
    given = _settings(locals())
    write_log(log)
    from judgeq import config as configuration
    from judgeq import sitting

    settings = configuration.settle(given, config)
    prepared = sitting.prepare(settings, runs_dir, new=new)
    if dry_run:
        _estimate(prepared, as_json)
    else:
        _play(prepared, quiet, as_json, retry_failed)


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """What was given on the command line, by the settings' names."""
    given = {name: value for name, value in given.items() if name not in NO_SETTINGS}
    if given.get("gold_levels") is not None:
        given["gold_levels"] = tuple(given["gold_levels"].split(","))
    if given.get("extra_body") is not None:
        given["extra_body"] = _json_object("--extra-body", given["extra_body"])
    given["cache"] = False if given.pop("no_cache", False) else None
    header = given.pop("header", None)
    given["headers"] = tuple(header) if header else None
    for name in ("judge", "persona"):
        if name in given:  # none given is an empty list
            given[name] = tuple(given[name]) if given[name] else None
    return given


def _json_object(flag: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{flag} is no JSON: {error}.") from error
    if not isinstance(value, dict):
        raise UsageError(f"{flag} must be a JSON object, as '{{\"top_k\": 20}}'.")
    return value


@app.command(epilog=EXIT_CODES)
@_with_the_flags_of(run, but=("retry_failed", "dry_run", "quiet"))
def estimate(as_json: bool, **given: Any) -> None:
    """Tell what a run would take: calls, tokens and dollars, before anything is sent.

    Takes the flags of `judgeq run`, the cache and what is judged already into
    account. The same as `judgeq run --dry-run`.

    Examples:

      judgeq estimate --dataset babe --strategy listwise10 --judge gpt-5-mini
    """
    run(**given, as_json=as_json, dry_run=True)


def _estimate(prepared: Prepared, as_json: bool) -> None:
    import asyncio

    from judgeq import estimates, listings

    found = asyncio.run(estimates.estimate(prepared))
    if as_json:
        print_json(found.as_json())
    else:
        show(*listings.estimate(found))


@app.command(epilog=EXIT_CODES)
def resume(
    name: RunName = "last",
    concurrency: Concurrency = None,
    rpm: Rpm = None,
    tpm: Tpm = None,
    max_cost: MaxCost = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    price_cached: PriceCached = None,
    no_cache: NoCache = False,
    cache_dir: CacheDir = None,
    api_key_env: ApiKeyEnv = None,
    api_key_file: ApiKeyFile = None,
    header: Header = None,
    proxy: Proxy = None,
    ca_file: CaFile = None,
    connect_timeout: ConnectTimeout = None,
    first_byte_timeout: FirstByteTimeout = None,
    timeout: Timeout = None,
    rating: RatingName = None,
    bt_sigma: BtSigma = None,
    sim_latency: SimLatency = None,
    sim_rate_limited: SimRateLimited = None,
    sim_timeouts: SimTimeouts = None,
    sim_unreadable: SimUnreadable = None,
    retry_failed: RetryFailed = False,
    runs_dir: RunsDir = Path("runs"),
    quiet: Quiet = False,
    log: LogFile = None,
    as_json: Json = False,
) -> None:
    """Go on with a run that was stopped or killed.

    What was answered is never asked again.
    """
    changes = _settings(locals())
    from judgeq import runs, sitting

    write_log(log)
    folder = runs.find(runs_dir, name)
    _play(sitting.take_up(folder, changes), quiet, as_json, retry_failed)


def _play(prepared: Prepared, quiet: bool, as_json: bool, retry_failed: bool) -> None:
    import asyncio

    from judgeq import dashboard, results, sitting

    face = dashboard.choose(console(stderr=True), quiet=quiet)
    folder = prepared.folder
    try:
        with face:
            result = sitting.sit(
                prepared, face, beside=face.draw_forever, retry_failed=retry_failed
            )
    except StoppedError as error:
        if as_json:
            print_json(asyncio.run(results.state(folder)).as_json())
        raise StoppedError(
            f"{error}. Nothing that was answered is lost: the same command, or "
            f"`judgeq resume {folder.id}`, goes on."
        ) from error
    except BudgetError as error:
        settings = prepared.settings
        result = asyncio.run(results.read(folder, settings.rating, settings.bt_sigma))
        results.write_scores(result.scores, folder.scores)
        show_result(result, quiet, as_json)
        raise BudgetError(
            f"{error} The ratings are of what there is. The same command with a higher --max-cost, "
            f"or `judgeq resume {folder.id} --max-cost …`, goes on."
        ) from error
    except JudgeError as error:
        raise type(error)(
            f"{error} Nothing that was answered is lost: when that is mended, the same command or "
            f"`judgeq resume {folder.id}` goes on."
        ) from error
    show_result(result, quiet, as_json)
    if result.counts.failed:
        raise JudgeError(
            f"{result.counts.failed} jobs failed and are left out of the ratings; "
            f"`judgeq resume {result.run.id} --retry-failed` asks them again."
        )
