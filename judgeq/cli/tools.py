"""The commands around models, and to begin with: doctor, init, guide, models, cache, mock-server."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from judgeq.cli.app import cache_app, command
from judgeq.cli.options import Json, RunsDir, given, with_settings
from judgeq.cli.printing import fail, print_json, show, show_text
from judgeq.errors import JudgeError, UsageError


def _trouble(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Behaviour", show_default=False, **more)


def _batch(text: str, **more: Any) -> Any:
    return typer.Option(help=text, rich_help_panel="Batches", show_default=False, **more)


UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


@command("doctor")
@with_settings(
    *(
        "base_url",
        "api",
        "structured",
        "price",
        "api_key_env",
        "api_key_file",
        "headers",
    ),
    *("proxy", "ca_file", "timeout", "cache_dir"),
)
def doctor(
    judge: Annotated[
        str | None, typer.Option("--judge", "-j", help="The model.", metavar="NAME")
    ] = None,
    runs_dir: RunsDir = Path("runs"),
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Check what a run needs: disk, cache, key, server, model, price.

    With --judge one tiny call is made, and paid. The key is never shown.
    Ends with 4 when something failed.

    Examples:

      judgeq doctor --judge claude-haiku-4-5

      judgeq doctor --judge my-model --base-url http://127.0.0.1:8000/v1
    """
    import asyncio

    from judgeq import config
    from judgeq import doctor as examination
    from judgeq import judge as judges
    from judgeq.ui.show import lists as show_lists

    named = {} if judge is None else {"judge": judge}
    settings = config.settle({"dataset": "demo", **named, **given(flags)}).rooted()
    judges.check(settings.judge[0], settings)
    checks = asyncio.run(examination.examine(settings, runs_dir))
    if as_json:
        print_json(checks)
    else:
        show(show_lists.checks(checks))
    failed = [check.name for check in checks if check.state == "failed"]
    if failed:
        fail(JudgeError(f"not all is well: {', '.join(failed)}."))


@command("init")
def init(
    job: Annotated[Path, typer.Argument(help="The job file to write.", metavar="JOB")] = Path(
        "job.toml"
    ),
    prompt: Annotated[Path, typer.Option(help="The prompt set to write.", metavar="PATH")] = Path(
        "prompt.toml"
    ),
) -> None:
    """Write a job file and a prompt set to start from, with comments.

    The job runs as it is, offline and free: `judgeq run --config job.toml`.
    Nothing is overwritten.
    """
    from judgeq.ui import reference

    files = {job: reference.job_file(prompt), prompt: reference.prompt_set(prompt.stem)}
    for path in files:
        if path.suffix != ".toml" or len(files) < 2:
            raise UsageError(f"{path}: give two files, each with a name that ends in .toml.")
        if path.exists():
            raise UsageError(f"{path} is there already: move it, or name another file.")
    for path, text in files.items():
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise UsageError(f"{path} can't be written: {error.strerror}.") from error
    show(f"{job} and {prompt} are written. Change them, then: judgeq run --config {job}")


@command("guide")
def guide() -> None:
    """Print a guide for scripts and assistants: what to call, in which order."""
    from importlib.resources import files

    show_text(files("judgeq").joinpath("guide.md").read_text("utf-8").rstrip())


@command("models")
def models(
    pattern: Annotated[
        str | None,
        typer.Argument(help="Part of a name, as 'mini' or 'openai/gpt-5'.", metavar="PATTERN"),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the models whose prices are known.

    Any other model can be named as well: its price is then unknown, until
    --price gives it.
    """
    from judgeq.judge import prices
    from judgeq.ui.show import lists as show_lists

    known = prices.known(pattern)
    if as_json:
        print_json(known)
    elif known:
        show(show_lists.models(known))
    else:
        show(f"No model with {pattern!r} in its name has a known price.")


@cache_app.callback()
@with_settings("cache_dir")
def cache(context: typer.Context, as_json: Json = False, **flags: Any) -> None:
    """Show the reply cache: size, hits, and what it holds by model."""
    if context.invoked_subcommand is not None:
        source = context.get_parameter_source("cache_dir")
        if source is not None and source.name == "COMMANDLINE":  # it would mean the usual folder
            raise UsageError(
                f"--cache-dir comes after the command: judgeq cache {context.invoked_subcommand} "
                f"--cache-dir {flags['cache_dir']}"
            )
        return
    from judgeq.judge import cache as replies
    from judgeq.ui.show import lists as show_lists

    overview = replies.overview(_folder(flags))
    if as_json:
        print_json(overview)
    else:
        show(*show_lists.cache(overview))


@command("prune", cache_app)
@with_settings("cache_dir")
def prune_cache(
    older_than: Annotated[
        str | None, typer.Option(help="An age, as 12h, 30d, 8w.", metavar="AGE")
    ] = None,
    model: Annotated[str | None, typer.Option(help="A model's name.")] = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Remove replies that are old, or a model's."""
    import time

    from judgeq.judge import cache as replies

    if older_than is None and model is None:
        raise UsageError("say what to prune: --older-than 30d, --model NAME, or both.")
    seconds = None if older_than is None else _seconds(older_than)
    removed = replies.prune(_folder(flags), older_than=seconds, model=model, now=time.time())
    _removed(removed, as_json)


@command("clear", cache_app)
@with_settings("cache_dir")
def clear_cache(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Remove all replies. They were paid for: it asks before."""
    from judgeq.judge import cache as replies

    folder = _folder(flags)
    entries = replies.overview(folder).replies
    question = f"Remove {_replies(entries)} from {folder}? They were paid for."
    if entries and not yes and not typer.confirm(question, err=True):
        raise UsageError("nothing was removed.")
    _removed(replies.clear(folder), as_json)


def _removed(count: int, as_json: bool) -> None:
    if as_json:
        print_json({"removed": count})
    else:
        show(f"{_replies(count)} removed.")


def _replies(count: int) -> str:
    from judgeq.text import several

    return several(count, "reply", "replies")


def _folder(flags: Mapping[str, Any]) -> Path:
    from judgeq.engine import assembly
    from judgeq.settings.model import Access

    return assembly.cache_folder(Access(**given(flags)))


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([mhdw])", age.strip())
    if not match:
        raise UsageError(f"--older-than {age!r}: give an age as 90m, 12h, 30d or 8w.")
    return float(match[1]) * UNITS[match[2]]


@command("mock-server")
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
    retry_after: Annotated[float, _trouble("Seconds that half of those ask to wait (1).")] = 1.0,
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
        str,
        _trouble("The structured replies it can do (schema).", metavar="schema|ignored|json|text"),
    ] = "schema",
    max_input_tokens: Annotated[int | None, _trouble("The longest question it reads.")] = None,
    quota_after: Annotated[int | None, _trouble("Answers until the quota is used up.")] = None,
    reasoning_tokens: Annotated[int, _trouble("Reasoning tokens of every reply.")] = 0,
    reasoning_beside: Annotated[
        bool, _trouble("Count reasoning beside completion_tokens and their limit, as xAI does.")
    ] = False,
    cached_share: Annotated[float, _trouble("Share of input that it says was cached.")] = 0.0,
    usage: Annotated[bool, _trouble("Whether replies say their tokens.")] = True,
    batch_time: Annotated[float, _batch("Seconds that a batch takes (2).")] = 2.0,
    batch_expire: Annotated[float, _batch("Share of batches that expire half-way.")] = 0.0,
    batch_invalid: Annotated[float, _batch("Share of batches that fail validation.")] = 0.0,
    batch_queue_tokens: Annotated[
        int | None, _batch("The most tokens in batches that wait, at four bytes a token.")
    ] = None,
    batch_limited: Annotated[float, _batch("Share of creations refused with 429.")] = 0.0,
    batch_unanswered: Annotated[
        float, _batch("Share of creations that succeed and whose answer is lost.")
    ] = 0.0,
    batch_flaky: Annotated[
        float,
        _batch("Share of other requests about batches that fail, with 429, 500 or no answer."),
    ] = 0.0,
    batch_failing: Annotated[
        float, _batch("Share of lines that fail, with 500, 429 or status 0.")
    ] = 0.0,
    batch_lost: Annotated[float, _batch("Share of answered lines that results lack.")] = 0.0,
    batch_doubled: Annotated[float, _batch("Share of lines that results hold twice.")] = 0.0,
    batch_broken: Annotated[float, _batch("Share of downloads that end half-way.")] = 0.0,
    as_json: Json = False,
) -> None:
    """A local server like OpenAI's, for rehearsals.

    It answers as the simulated judge does, live and in batches, takes time,
    enforces limits and fails as it is asked to; /stats shows what it saw.
    Ctrl-C ends it.

    Examples:

      judgeq mock-server --latency 0.5 --rate-limited 0.1

      judgeq mock-server --batch-time 60 --batch-expire 0.2 --batch-lost 0.01

      judgeq run -d demo --judge mock --base-url http://127.0.0.1:8000/v1
    """
    given = {
        name: value
        for name, value in locals().items()
        if name not in ("dataset", "text_column", "gold_column", "as_json") and value is not None
    }
    from pydantic import ValidationError

    from judgeq import mock_server as server
    from judgeq.engine import session
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
        stats = session.run_loop(server.serve(settings, scores, ready))
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
    from judgeq.judge.error_model import latent_scores
    from judgeq.settings import DatasetSpec, Simulation

    loaded = datasets.load(
        DatasetSpec(dataset=dataset, text_column=text_column, gold_column=gold_column)
    )
    if loaded.texts is None:
        raise DataError(loaded.missing_texts)
    if loaded.gold is None:
        raise UsageError(f"--dataset {dataset} has no gold labels: give --gold-column.")
    scores = latent_scores(loaded.gold, Simulation(), 0).tolist()
    return dict(zip(loaded.texts, scores, strict=True))
