"""The commands around runs: help, init, doctor, list, cache, mock-server, guide."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import click

from judgeq.cli.app import EVERYTHING, EXIT_CODES, app
from judgeq.cli.options import DATASET, Values, argument, command, of_settings, option
from judgeq.cli.printing import Answer, confirm, show_text
from judgeq.errors import DataError, JudgeError, UsageError
from judgeq.escaping import shell_command
from judgeq.files import shipped
from judgeq.settings.declaration import GROUPS, in_words, settings_of
from judgeq.settings.mock_server import MockSettings
from judgeq.settings.run import SETTINGS
from judgeq.text import several

MOCK_SETTINGS = settings_of(MockSettings)
EXAMPLE_FEATURE = "how urgent the message is"
EXAMPLE_VALUES = {
    "price": "[0.25, 2]",
    tuple: '["low", "high"]',
    int: "1000",
    float: "1.0",
}
"""Examples of settings without a default, by name or type."""


@command("help", argument("topic", "[all | exit-codes | COMMAND]", "What about.", nargs=-1))
def help_of(context: click.Context, topic: tuple[str, ...]) -> None:
    """Show help: of a command, all commands, or exit-codes."""
    if topic == ("exit-codes",):
        show_text(EXIT_CODES)
    elif topic == ("all",):
        root = context.find_root()
        root.meta[EVERYTHING] = True
        show_text(root.get_help())
    else:
        app.main([*topic, "--help"])


@command(
    "init",
    argument("job", "[JOB]", "The job file to write.", type=Path, default=Path("job.toml")),
    option("--prompt", "The prompt set to write.", Path, default=Path("prompt.toml")),
)
def init(job: Path, prompt: Path) -> Answer:
    """Write a job file and a prompt set to start from.

    Both explain themselves in comments. The job runs as it is, offline and free:
    `judgeq run --config job.toml`. Nothing is overwritten.
    """
    files = {job: job_file(prompt), prompt: prompt_set(prompt.stem)}
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
    start = shell_command("run", options=["--config", str(job)])
    return Answer(
        {"files": [*files]},
        lambda _: f"{job} and {prompt} are written. Change them, then: `{start}`",
    )


def job_file(prompt: Path) -> str:
    """A job file (TOML) that runs as it is; common settings that it does not set are comments."""
    from judgeq.ui import html

    values = {"dataset": "demo", "strategy": "listwise10", "prompt": str(prompt)}
    toml = partial(json.dumps, ensure_ascii=False)
    groups = {group: [one for one in SETTINGS.values() if one.group == group] for group in GROUPS}
    return html.rendered(
        "job.txt", groups=groups, values=values, toml=toml, examples=EXAMPLE_VALUES
    )


def prompt_set(name: str) -> str:
    """A prompt set to start from (TOML): the shipped "generic", about an example of a feature."""
    from judgeq.ui import html

    text = (shipped("prompts") / "generic.toml").read_text(encoding="utf-8")
    rest = "\n".join(text.replace("$feature", EXAMPLE_FEATURE).splitlines()[2:])
    return html.rendered("prompt.txt", name=json.dumps(name), rest=rest)


@command(
    "doctor",
    *of_settings(
        *("judge", "base_url", "api", "structured", "price", "api_key_env", "api_key_file"),
        *("headers", "proxy", "ca_file", "timeout", "cache_dir"),
    ),
)
def doctor(given: Values, runs_dir: Path) -> Answer:
    """Check what a run needs: disk, key, server, model, price.

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

    settings = config.settle({"dataset": "demo", **given}).rooted()
    judges.check(settings.judge[0], settings)
    checks = asyncio.run(examination.examine(settings, runs_dir))
    failed = [check.name for check in checks if check.state == "failed"]
    error = JudgeError(f"{several(len(failed), 'check')} failed: {', '.join(failed)}.")
    return Answer(checks, show_lists.checks, error if failed else None)


@command("list")
def kinds(context: click.Context) -> None:
    """List strategies, prompts or datasets."""
    show_text(context.get_help())


@command(
    "list strategies",
    option("--n", "Items to show the cost for.", int, default=1000, least=2, most=10_000_000),
)
def strategies(n: int) -> Answer:
    """List the strategies, their costs, and when to use them."""
    from judgeq.ui.show import lists as show_lists

    return Answer(show_lists.strategies_over(n), lambda _: show_lists.strategies(n))


@command("list datasets", *of_settings("data_dir"))
def datasets(given: Values) -> Answer:
    """List the datasets: size, licence, whether they are here."""
    from judgeq import datasets as known_datasets
    from judgeq.ui.show import lists as show_lists

    return Answer(known_datasets.catalog(given.get("data_dir")), show_lists.datasets)


@command(
    "list prompts",
    argument(
        "name", "[PROMPT]", "A prompt set's name, or a .toml file's path: what it would send.",
        required=False,
    ),
    *of_settings(
        *("dataset", "text_column", "delimiter", "encoding", "skip_empty", "data_dir", "feature"),
        "reasons",
    ),
    option("--k", "1: a text by itself; 2: a pair; more: a list.", int, default=3, least=1),
)  # fmt: skip
def prompts(name: str | None, k: int, given: Values) -> Answer:
    """List the prompt sets, or show what one would send.

    With a PROMPT, exactly what a model would be sent about the first items of a
    dataset (demo, by default).

    Examples:

      judgeq list prompts

      judgeq list prompts bias -d babe --k 2
    """
    from judgeq import config
    from judgeq import datasets as known_datasets
    from judgeq import prompts as prompt_sets
    from judgeq.ui.show import lists as show_lists

    if name is None:
        return Answer(prompt_sets.catalog(), show_lists.prompts)
    settings = config.settle({"dataset": "demo", **given})
    prompt = prompt_sets.load(name, settings.feature)
    loaded = known_datasets.load(settings)
    if loaded.texts is None:
        raise DataError(loaded.missing_texts)
    texts, reasons = list(loaded.texts[:k]), settings.reasons
    messages = prompt_sets.messages(prompt, texts, reasons=reasons)
    schema = prompt_sets.schema(k, prompt.ties, reasons)
    return Answer(messages, lambda messages: show_lists.messages(messages, schema))


CACHE = of_settings("cache_dir")


@command("cache", *CACHE)
def cache(given: Values) -> Answer:
    """Show the reply cache: its size."""
    from judgeq.judge import cache as replies
    from judgeq.ui.show import lists as show_lists

    return Answer(replies.overview(_folder(given)), show_lists.cache)


@command("cache clear", *CACHE)
def clear_cache(yes: bool, given: Values) -> Answer:
    """Remove all replies.

    They were paid for: it asks before.
    """
    from judgeq.judge import cache as replies

    folder = _folder(given)
    entries = replies.overview(folder).replies
    question = f"Remove {several(entries, 'reply', 'replies')} from {folder}? They were paid for."
    confirm(question, yes=yes or not entries)
    removed = replies.clear(folder)
    words = f"{several(removed, 'reply', 'replies')} removed."
    return Answer({"removed": removed}, lambda _: words)


def _folder(given: Mapping[str, Any]) -> Path:
    from judgeq.engine import assembly
    from judgeq.settings.model import Access

    return assembly.cache_folder(Access(**given))


@command(
    "mock-server",
    *of_settings(*MOCK_SETTINGS, known=MOCK_SETTINGS),
    *of_settings("dataset", "text_column", "gold_column"),
    DATASET,
)
def mock_server(given: Values, as_json: bool) -> Answer:
    """Run a local server like OpenAI's, for rehearsals.

    It answers as the simulated judge does, live and in batches: from the gold labels
    of a dataset, or by a hash. It takes time, enforces limits and fails as it is
    asked to.

    /stats shows what it saw. Ctrl-C ends it.

    Examples:

      judgeq mock-server --latency 0.5 --rate-limited 0.1

      judgeq mock-server demo --batch-time 60

      judgeq run demo --judge mock --base-url http://127.0.0.1:8000/v1
    """
    from pydantic import ValidationError

    from judgeq import mock_server as server
    from judgeq.engine import interrupts

    try:
        settings = MockSettings(
            **{name: given.pop(name) for name in MOCK_SETTINGS if name in given}
        )
    except ValidationError as error:
        first = error.errors()[0]
        flag = MOCK_SETTINGS[str(first["loc"][0])].flag
        raise UsageError(f"{flag} {first['input']}: {in_words(first)}.") from error
    scores = _scores(given) if given else None

    def ready(url: str) -> None:
        if as_json:
            show_text(json.dumps({"url": url}))
        else:
            show_text(f"Listening on {url} (Ctrl-C ends it). Try, from another terminal:")
            options = ["--judge", "mock", "--base-url", url]
            show_text(f"  {shell_command('run', ['demo'], options)}")

    try:
        stats = interrupts.run_loop(server.serve(settings, scores, ready))
    except OSError as error:
        raise UsageError(
            f"can't listen on {settings.host}, port {settings.port}: {error.strerror}."
        ) from error
    return Answer(stats)


def _scores(given: Values) -> dict[str, float]:
    """The latent scores of a dataset's texts, by text."""
    from judgeq import datasets
    from judgeq.judge.simulated import latent_scores
    from judgeq.settings.run import DatasetSpec, Simulation

    loaded = datasets.load(DatasetSpec(**given))
    if loaded.texts is None:
        raise DataError(loaded.missing_texts)
    if loaded.gold is None:
        raise UsageError(f"{loaded.name} has no gold labels: give --gold-column.")
    scores = latent_scores(loaded.gold, Simulation(), 0).tolist()
    return dict(zip(loaded.texts, scores, strict=True))


@command("guide")
def guide() -> None:
    """Print the guide for scripts and AI agents."""
    from importlib.resources import files

    show_text(files("judgeq").joinpath("guide.md").read_text("utf-8").rstrip())
