"""Running judgeq as a user does: in a folder of its own, within this process or as its own."""

import csv
import gc
import io
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, Unpack
from unittest.mock import patch

import click

from judgeq.cli import app
from judgeq.cli.app import MODULES

REPO = Path(__file__).resolve().parent.parent
LONGEST = 90.0
"""Seconds that a process may take: less than a test may (pyproject.toml)."""
SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


def environment(folder: Path) -> dict[str, str]:
    """No network, no corpora of this machine, no cache of this user."""
    others = ("JUDGEQ", "COLUMNS", "OPENAI", "ANTHROPIC")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(others)}
    return kept | {
        "JUDGEQ_OFFLINE": "1",
        "XDG_CACHE_HOME": str(folder / "cache"),
        "XDG_STATE_HOME": str(folder / "state"),
        "HOME": str(folder),
        "PYTHONWARNINGS": "error",
    }


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "judgeq", *map(str, arguments)]


class How(TypedDict, total=False):
    """How judgeq is run; `encoding` is that of its outputs."""

    stdin: str
    variables: Mapping[str, str]
    encoding: str


def judgeq(
    folder: Path, *arguments: str | Path, expect: int = 0, **how: Unpack[How]
) -> subprocess.CompletedProcess[str]:
    """Run judgeq in `folder` to its end, within this process, and check its exit code: a process of its
    own (`start`) takes a second: for what only that shows, as signals, limits, what is imported."""
    done = ended(folder, *arguments, **how)
    assert done.returncode == expect, (done.args, done.returncode, done.stdout, done.stderr)
    assert "Traceback" not in done.stderr
    return done


def json_of(folder: Path, *arguments: str | Path, expect: int = 0, **how: Unpack[How]) -> Any:
    """What judgeq prints with --json."""
    return json.loads(judgeq(folder, *arguments, "--json", expect=expect, **how).stdout)


def ended(
    folder: Path, *arguments: str | Path, **how: Unpack[How]
) -> subprocess.CompletedProcess[str]:
    """As `judgeq`, whatever the exit code."""
    words, encoding = list(map(str, arguments)), how.get("encoding", "utf-8")
    variables = environment(folder) | dict(how.get("variables", {}))
    outputs = [_output(encoding, "strict"), _output(encoding, "backslashreplace")]
    with _as_a_process(folder, variables, words, how.get("stdin", ""), outputs):
        try:
            app(words)
        except SystemExit as error:
            code = error.code or 0
    out, err = map(_text, outputs)
    # Its long lines are whole again.
    return subprocess.CompletedProcess(words, int(code), out, err.replace("\n    ", " "))


def python(folder: Path, code: str) -> str:
    """What a piece of Python prints, run in `folder` within this process."""
    outputs = [_output("utf-8", "strict"), _output("utf-8", "backslashreplace")]
    with _as_a_process(folder, environment(folder), [], "", outputs):
        exec(compile(code, "<page>", "exec"), {"__name__": "__main__"})
    return _text(outputs[0])


@cache
def commands() -> dict[str, click.Command]:
    """All commands by name, made once: that takes longer than most of them."""
    context = click.Context(app)
    made = {name: app.get_command(context, name) for name in MODULES}
    return {name: command for name, command in made.items() if command is not None}


def _output(encoding: str, errors: str) -> io.TextIOWrapper:
    """What is like a pipe: bytes, and no terminal."""
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors=errors)


def _text(output: io.TextIOWrapper) -> str:
    output.flush()
    output.seek(0)
    return output.read()


@contextmanager
def _as_a_process(
    folder: Path,
    variables: Mapping[str, str],
    arguments: list[str],
    stdin: str,
    outputs: list[io.TextIOWrapper],
) -> Iterator[None]:
    """While inside, what belongs to the whole process is as a new one would find it."""
    assert threading.current_thread() is threading.main_thread(), "use start"
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    collecting = gc.get_threshold()
    logger = logging.getLogger("judgeq")
    level, logs = logger.level, list(logger.handlers)
    read = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    streams: dict[str, Any] = {"stdin": read, "stdout": outputs[0], "stderr": outputs[1]}
    try:
        with (
            warnings.catch_warnings(),
            chdir(folder),
            patch.dict(os.environ, variables, clear=True),
            patch.multiple(sys, argv=["judgeq", *arguments], **streams),
        ):
            warnings.simplefilter("error")
            # aiohttp's own, where a chunk of an uploaded form ends within a boundary.
            warnings.filterwarnings("ignore", "unread_data", DeprecationWarning)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            yield
        assert gc.get_threshold() == collecting
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        logger.setLevel(level)
        for added in set(logger.handlers) - set(logs):
            logger.removeHandler(added)
            added.close()


STARTED: list[subprocess.Popen[str]] = []
"""The processes of the test that is running; tests/conftest.py ends what is left of them."""


def start(
    folder: Path, *arguments: str | Path, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start judgeq in `folder`, and let it run."""
    return started(folder, *command(*arguments), variables=variables)


def started(
    folder: Path, *words: str, variables: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start a program in `folder`, and let it run."""
    process = subprocess.Popen(
        words,
        cwd=folder,
        env=environment(folder) | dict(variables or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    STARTED.append(process)
    return process


def end_started() -> None:
    """End the processes that a test left behind, because it failed."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait(LONGEST)


def wait_until(condition: Callable[[], object], process: subprocess.Popen[Any]) -> None:
    """Return when the condition holds; fail when the process ends before."""
    while not condition():
        assert process.poll() is None, "it ended too early"
        time.sleep(0.02)  # leaves it the processor


def answered(folder: Path) -> int:
    """How many jobs of a run are done that another process is at."""
    return len(look(folder, "SELECT id FROM jobs WHERE state = 'done'"))


def in_flight(folder: Path) -> int:
    """How many attempts wait for an answer in a run that another process is at."""
    return sum(count for (count,) in look(folder, "SELECT open FROM jobs WHERE state = 'running'"))


def look(folder: Path, sql: str) -> list[tuple[int, ...]]:
    """What the ledger of a run says that another process is at; nothing before it is there."""
    try:
        return query(only_run(folder), sql)
    except (FileNotFoundError, ValueError, sqlite3.OperationalError):
        return []


def only_run(folder: Path) -> Path:
    (run,) = (path for path in (folder / "runs").iterdir() if path.is_dir())
    return run


def scores(run: Path, *at: str) -> str:
    """What a run wrote as scores.csv, with four decimals, and what `judgeq export` reads out of its
    ledger, to the last bit; `at` says in which store."""
    name = run.name if at else run
    exact = judgeq(run.parent.parent, "export", name, "--table", "scores", *at).stdout
    assert exact.count("\n") > 2
    return (run / "scores.csv").read_text(encoding="utf-8") + exact


def _columns(table: str) -> dict[str, list[str]]:
    rows = list(csv.DictReader(io.StringIO(table)))
    return {name: [row[name] for row in rows] for name in rows[0]}


def score_columns(run: Path) -> dict[str, list[str]]:
    return _columns((run / "scores.csv").read_text(encoding="utf-8"))


def exact_columns(run: Path, *flags: str) -> dict[str, list[str]]:
    """The columns of its scores to the last bit, as `judgeq export` reads them out of its ledger."""
    return _columns(judgeq(run.parent.parent, "export", run, "--table", "scores", *flags).stdout)


def query(run: Path, sql: str) -> list[tuple[int, ...]]:
    """What the ledger says, read as another process would."""
    address = f"{(run / 'run.db').as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        return connection.execute(sql).fetchall()


def execute(database: Path, *statements: str | tuple[str, Sequence[object]]) -> None:
    """Change a database, as a stranger could; statements may have values."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(*([statement] if isinstance(statement, str) else statement))
