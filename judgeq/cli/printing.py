"""All that the command line prints: tables and text, JSON, complaints. Nobody else prints."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from judgeq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from rich.console import Console, RenderableType

    from judgeq.results import Result


def write_log(path: Path | None) -> None:
    """From here on, write what judgeq and its libraries log to a file, at the finest level.

    Raises UsageError when the file can't be written.
    """
    if path is None:
        return
    import logging

    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--log {path} can't be written: {error.strerror}.") from error
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG, handlers=[handler], force=True)


def console(*, stderr: bool = False) -> Console:
    """A rich console for one of the two outputs."""
    from rich.console import Console

    # A file or a pipe has no width to fit into.
    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 160
    return Console(stderr=stderr, highlight=False, width=width)


def show(*renderables: RenderableType) -> None:
    """Print to standard output."""
    from rich.table import Table

    target = console()
    for renderable in renderables:
        # Only tables are laid out; a line of text (a path, a prompt) is left for the terminal to wrap.
        target.print(renderable, soft_wrap=not isinstance(renderable, Table), markup=False)


def show_lines(lines: Iterable[str]) -> None:
    """Print lines to standard output as they are."""
    for line in lines:
        typer.echo(line)


def print_json(value: Any) -> None:
    """Print as JSON to standard output."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False))


def show_result(result: Result, quiet: bool, as_json: bool) -> None:
    """Print what a run came to."""
    from judgeq import report, results

    if as_json:
        print_json(results.as_json(result))
    elif not quiet:
        show(*report.summary(result, result.run.info()))


def complain(message: str) -> None:
    """Print an error or a warning to standard error, in one line."""
    from judgeq.words import plain

    text = plain(message, 10_000)
    if sys.stderr.isatty():
        typer.secho(f"judgeq: {text}", err=True, fg=typer.colors.RED)
    else:
        typer.echo(f"judgeq: {text}", err=True)


def spare(path: Path | None, flag: str, *inputs: Path | None) -> None:
    """Raise UsageError for a file to be written that is a run's own, or one of the `inputs`."""
    if path is None:
        return
    if (path.parent / "run.db").exists():
        raise UsageError(
            f"{flag} {path} is in a run's folder, which is judgeq's own: name another."
        )
    for given in inputs:
        if given is not None and path.exists() and given.exists() and path.samefile(given):
            raise UsageError(f"{flag} {path} is the file that is read: name another.")
