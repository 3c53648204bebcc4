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
from judgeq.settings.declaration import in_words, settings_of
from judgeq.settings.mock_server import MockSettings
from judgeq.text import several

MOCK_SETTINGS = settings_of(MockSettings)
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
        fail(JudgeError(f"{several(len(failed), 'check')} failed: {', '.join(failed)}."))


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
    """Guide for scripts and AI agents: what to call, in which order."""
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
    question = f"Remove {several(entries, 'reply', 'replies')} from {folder}? They were paid for."
    if entries and not yes and not typer.confirm(question, err=True):
        raise UsageError("nothing was removed.")
    _removed(replies.clear(folder), as_json)


def _removed(count: int, as_json: bool) -> None:
    if as_json:
        print_json({"removed": count})
    else:
        show(f"{several(count, 'reply', 'replies')} removed.")


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
@with_settings(*MOCK_SETTINGS, known=MOCK_SETTINGS)
def mock_server(
    dataset: Annotated[
        str | None,
        typer.Option("--dataset", "-d", help="Whose gold labels it answers from; else by a hash."),
    ] = None,
    text_column: Annotated[str | None, typer.Option(help="A file's column of texts.")] = None,
    gold_column: Annotated[str | None, typer.Option(help="A file's column of gold labels.")] = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """A local server like OpenAI's, for rehearsals.

    It answers as the simulated judge does, live and in batches, takes time,
    enforces limits and fails as it is asked to; /stats shows what it saw.
    Ctrl-C ends it.

    Examples:

      judgeq mock-server --latency 0.5 --rate-limited 0.1

      judgeq mock-server --batch-time 60

      judgeq run -d demo --judge mock --base-url http://127.0.0.1:8000/v1
    """
    from pydantic import ValidationError

    from judgeq import mock_server as server
    from judgeq.engine import stopping

    try:
        settings = MockSettings(**given(flags, MOCK_SETTINGS))
    except ValidationError as error:
        first = error.errors()[0]
        flag = MOCK_SETTINGS[str(first["loc"][0])].flag
        raise UsageError(f"{flag} {first['input']}: {in_words(first)}.") from error
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
        stats = stopping.run_loop(server.serve(settings, scores, ready))
    except OSError as error:
        raise UsageError(
            f"can't listen on {settings.host}, port {settings.port}: {error.strerror}."
        ) from error
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
