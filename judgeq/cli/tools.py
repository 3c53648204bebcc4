"""The commands around models: doctor, models, cache, mock-server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from judgeq.cli.app import EXIT_CODES, app, cache_app
from judgeq.cli.model_options import (
    ApiKeyEnv,
    ApiKeyFile,
    BaseUrl,
    CacheDir,
    CaFile,
    Header,
    PriceIn,
    PriceOut,
    Proxy,
    Structured,
    Timeout,
)
from judgeq.cli.options import Json, Judge, RunsDir
from judgeq.cli.printing import print_json, show
from judgeq.errors import JudgeError, UsageError


def _trouble(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Behaviour", **more)


UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


@app.command(epilog=EXIT_CODES)
def doctor(
    judge: Judge = None,
    base_url: BaseUrl = None,
    structured: Structured = None,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    api_key_env: ApiKeyEnv = None,
    api_key_file: ApiKeyFile = None,
    header: Header = None,
    proxy: Proxy = None,
    ca_file: CaFile = None,
    timeout: Timeout = None,
    cache_dir: CacheDir = None,
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
) -> None:
    """Check what a run needs: disk, cache, key, server, model, price.

    With --judge one tiny call is made, and paid. The key is never shown.
    Ends with 4 when something failed.

    Examples:

      judgeq doctor --judge gpt-5-mini

      judgeq doctor --judge my-model --base-url http://127.0.0.1:8000/v1
    """
    import asyncio
    from dataclasses import asdict

    from judgeq import config, listings
    from judgeq import doctor as examination
    from judgeq import judge as judges

    given = {
        name: value for name, value in locals().items() if name in config.Settings.model_fields
    }
    given["headers"] = tuple(header) if header else None
    settings = config.settle({**given, "dataset": "demo"}).rooted()
    judges.check(settings.judge[0], settings)
    checks = asyncio.run(examination.examine(settings, runs_dir))
    if as_json:
        print_json([asdict(check) for check in checks])
    else:
        show(listings.check_table(checks))
    failed = [check.name for check in checks if check.state == "failed"]
    if failed:
        raise JudgeError(f"not all is well: {', '.join(failed)}.")


@app.command(epilog=EXIT_CODES)
def models(
    pattern: Annotated[
        str | None, typer.Argument(help="Part of a name, as 'mini' or 'openai/gpt-5'.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the models whose prices are known.

    Any other model can be named as well: its price is then unknown, until
    --price-in and --price-out tell it.
    """
    from judgeq import listings
    from judgeq.judge import prices

    known = prices.known(pattern)
    if as_json:
        print_json([model._asdict() for model in known])
    elif known:
        show(*listings.model_table(known))
    else:
        show(f"No model with {pattern!r} in its name has a known price.")


@cache_app.callback()
def cache(context: typer.Context, cache_dir: CacheDir = None, as_json: Json = False) -> None:
    """Show the reply cache: size, hits, and what it holds by model."""
    if context.invoked_subcommand is not None:
        return
    from judgeq import listings
    from judgeq.judge import cache_folder as replies

    found = replies.overview(_folder(cache_dir))
    if as_json:
        print_json(listings.cache_json(found))
    else:
        show(*listings.cache_table(found))


@cache_app.command("prune", epilog=EXIT_CODES)
def prune_cache(
    older_than: Annotated[
        str | None, typer.Option(help="An age, as 12h, 30d, 8w.", metavar="AGE")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model's name.")] = None,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """Remove replies that are old, or a model's."""
    import time

    from judgeq.judge import cache_folder as replies

    if older_than is None and model is None:
        raise UsageError("say what to prune: --older-than 30d, --model NAME, or both.")
    seconds = None if older_than is None else _seconds(older_than)
    removed = replies.prune(_folder(cache_dir), older_than=seconds, model=model, now=time.time())
    _removed(removed, as_json)


@cache_app.command("clear", epilog=EXIT_CODES)
def clear_cache(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    cache_dir: CacheDir = None,
    as_json: Json = False,
) -> None:
    """Remove all replies. They were paid for: it asks before."""
    from judgeq.judge import cache_folder as replies

    folder = _folder(cache_dir)
    entries = replies.overview(folder).entries
    question = f"Remove {entries:,} replies from {folder}? They were paid for."
    if entries and not yes and not typer.confirm(question, err=True):
        raise UsageError("nothing was removed.")
    _removed(replies.clear(folder), as_json)


def _removed(count: int, as_json: bool) -> None:
    if as_json:
        print_json({"removed": count})
    else:
        show(f"{count:,} replies removed.")


def _folder(cache_dir: Path | None) -> Path:
    from judgeq import asking
    from judgeq.judge.model import Access

    return asking.cache_folder(Access(cache_dir=cache_dir))


def _seconds(age: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", age.strip())
    if not found:
        raise UsageError(f"--older-than {age!r}: give an age as 90m, 12h, 30d or 8w.")
    return float(found[1]) * UNITS[found[2]]


@app.command("mock-server", epilog=EXIT_CODES)
def mock_server(
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0: any free one.")] = 8000,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", "-d", help="Whose gold labels it answers from; else by a hash."),
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="A file's column of texts.")] = None,
    gold_column: Annotated[str | None, typer.Option(help="A file's column of gold labels.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of its answers and faults.")] = 0,
    only_model: Annotated[
        str | None, typer.Option(help="Know no other model than this.", metavar="NAME")
    ] = None,
    latency: Annotated[float, _trouble("Seconds that an answer takes (× 0.5 to 1.5).")] = 0.0,
    rpm: Annotated[float | None, _trouble("Requests a minute, enforced exactly.")] = None,
    tpm: Annotated[float | None, _trouble("Tokens a minute, enforced exactly.")] = None,
    rate_limited: Annotated[float, _trouble("Share of requests refused with 429.")] = 0.0,
    retry_after: Annotated[float, _trouble("Seconds that half of those ask to wait.")] = 1.0,
    errors: Annotated[float, _trouble("Share of requests answered with 500.")] = 0.0,
    dropped: Annotated[float, _trouble("Share of connections cut.")] = 0.0,
    hung: Annotated[float, _trouble("Share of requests never answered.")] = 0.0,
    unreadable: Annotated[float, _trouble("Share of replies in prose.")] = 0.0,
    incomplete: Annotated[float, _trouble("Share of replies that lack a label.")] = 0.0,
    refused: Annotated[float, _trouble("Share of replies that refuse.")] = 0.0,
    cut_off: Annotated[float, _trouble("Share of replies cut off by length.")] = 0.0,
    filtered: Annotated[float, _trouble("Share of replies cut off by a filter.")] = 0.0,
    wrapped: Annotated[float, _trouble("Share of good replies inside fences and prose.")] = 0.0,
    key: Annotated[str | None, _trouble("The API key it wants.")] = None,
    echo_key: Annotated[bool, _trouble("Repeat the key received in error messages.")] = False,
    structured: Annotated[
        str, _trouble("The structured replies it can do.", metavar="schema|json|text")
    ] = "schema",
    max_input_tokens: Annotated[int | None, _trouble("The longest question it reads.")] = None,
    quota_after: Annotated[int | None, _trouble("Answers until the quota is used up.")] = None,
    reasoning_tokens: Annotated[int, _trouble("Reasoning tokens of every reply.")] = 0,
    cached_share: Annotated[float, _trouble("Share of input that it says was cached.")] = 0.0,
    usage: Annotated[bool, _trouble("Whether replies tell their tokens.")] = True,
    as_json: Json = False,
) -> None:
    """A local server that speaks like OpenAI's, for rehearsals.

    It answers as the simulated judge does, takes time, enforces limits and
    fails as it is told; /stats tells what it saw. Ctrl-C ends it.

    Examples:

      judgeq mock-server --latency 0.5 --rate-limited 0.1

      judgeq run -d demo --judge mock --base-url http://127.0.0.1:8000/v1
    """
    given = {
        name: value
        for name, value in locals().items()
        if name not in ("dataset", "text_column", "gold_column", "as_json") and value is not None
    }
    from pydantic import ValidationError

    from judgeq import mock_server as server
    from judgeq import sitting
    from judgeq.mock_server.behaviour import MockSettings

    try:
        settings = MockSettings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        flag = "--" + str(first["loc"][0]).replace("_", "-")
        raise UsageError(f"{flag} {first['input']}: {first['msg']}.") from error
    scores = _scores(dataset, text_column, gold_column)

    def ready(url: str) -> None:
        if as_json:
            typer.echo(json.dumps({"url": url}))
        else:
            typer.echo(f"Listening on {url} (Ctrl-C ends it). Try, from another terminal:")
            typer.echo(
                f"  judgeq run -d demo --judge {settings.only_model or 'mock'} --base-url {url}"
            )

    try:
        stats = sitting.run_loop(server.serve(settings, scores, ready))
    except OSError as error:
        raise UsageError(f"can't listen on {host}, port {port}: {error.strerror}.") from error
    if as_json:
        typer.echo(json.dumps(stats))


def _scores(
    dataset: str | None, text_column: str | None, gold_column: str | None
) -> dict[str, float] | None:
    """The latent scores of a dataset's texts, by text."""
    if dataset is None:
        return None
    from judgeq import datasets
    from judgeq.errors import DataError
    from judgeq.judge.noise import Simulation, latent_scores

    found = datasets.load(
        datasets.DatasetSpec(dataset=dataset, text_column=text_column, gold_column=gold_column)
    )
    if found.texts is None:
        raise DataError(found.missing_texts)
    if found.gold is None:
        raise UsageError(f"--dataset {dataset} has no gold labels: give --gold-column.")
    scores = latent_scores(found.gold, Simulation(), 0).tolist()
    return dict(zip(found.texts, scores, strict=True))
