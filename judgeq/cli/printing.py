"""All that the command line prints: tables and text, JSON, complaints. Nobody else prints."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from judgeq.errors import JudgeqError, UsageError

_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
MOST_LINES = 25
"""Of a message with more lines the last are printed as one."""

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from judgeq.engine.results import Result
    from judgeq.ui.sections import Section


class OutputError(Exception):
    """Standard output can't be written to."""

    exit_code = 1


def begin() -> None:
    """Before anything is printed: what an output's encoding doesn't have is replaced."""
    for stream in _outputs():
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def end() -> None:
    """After all is printed: what nobody takes any longer is let go, without a word."""
    for stream in _outputs():
        try:
            stream.flush()
        except (OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _outputs() -> list[TextIO]:
    """The two outputs, without those that were closed before we were started."""
    return [stream for stream in (sys.stdout, sys.stderr) if stream is not None]


@contextmanager
def _writing() -> Iterator[None]:
    """While inside, standard output is written to.

    Raises BrokenPipeError where its reader has left, as `head` does (of rich a SystemExit), and
    OutputError for a full disk and the like. A terminal that is gone is nobody's loss.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno != errno.EIO:
            raise OutputError(f"standard output can't be written to: {error.strerror}.") from error


def show_text(text: str) -> None:
    """Print to standard output as it is."""
    if sys.stdout is not None:
        with _writing():
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()


def write_log(path: Path | None) -> None:
    """From here on, write what judgeq logs to a file, at the finest level, a line each.

    Not what its libraries log: that may hold what a server said before secrets were masked.
    Raises UsageError when the file can't be written.
    """
    if path is None:
        return
    import logging

    from judgeq.escaping import escaped

    try:
        handler = logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--log {path} can't be written: {error.strerror}.") from error

    class Visible(logging.Formatter):
        """Control characters, of a terminal say, are written as escapes."""

        def format(self, record: logging.LogRecord) -> str:
            return escaped(super().format(record))

    handler.setFormatter(Visible("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("judgeq")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)


def console(*, stderr: bool = False) -> Console:
    """A rich console for one of the two outputs."""
    from rich.console import Console

    from judgeq.text import LINE

    # A file or a pipe has no width to fit into.
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream is not None and stream.isatty() else LINE
    return Console(stderr=stderr, highlight=False, width=width)


def is_terminal() -> bool:
    """Whether somebody can be asked: both what is typed and what is said come through a terminal."""
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def agreed(question: str) -> bool:
    """Whether the user on the terminal says yes."""
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().casefold() in ("y", "yes")


def show(parts: Iterable[Section] | Section | str) -> None:
    """Print sections, or a line of text, to standard output."""
    from judgeq.ui.sections import Section, terminal

    if isinstance(parts, str):
        parts = Section(notes=[parts])
    sections = [parts] if isinstance(parts, Section) else [*parts]
    target = console()
    with _writing():
        for line in terminal(sections, target.width, on_screen=target.is_terminal):
            # What is longer (a path, a prompt) is left for the terminal to wrap.
            target.print(line, soft_wrap=True, markup=False)


def print_json_lines(lines: Iterable[str]) -> None:
    """Print lines of JSON to standard output as they are."""
    for line in lines:
        show_text(_encodable(line))


@contextmanager
def binary_output(never_shown: str | None) -> Iterator[IO[bytes]]:
    """A place for bytes that are printed to standard output once they are all there; raises UsageError
    for those of `never_shown`, which are no text, where that is a terminal."""
    import shutil
    import tempfile

    if never_shown is not None and sys.stdout is not None and sys.stdout.isatty():
        raise UsageError(f"{never_shown}: that is nothing for a terminal. Give --out FILE.")
    with _writing(), tempfile.TemporaryFile() as file:
        yield file
        file.seek(0)
        if sys.stdout is not None:
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def print_json(value: Any, error: JudgeqError | None = None) -> None:
    """Print a result as JSON to standard output, with the error that it ended with."""
    from judgeq.ui.dataclass_json import plain

    known = plain(value)
    if error is not None and isinstance(known, dict):
        known |= error_json(error)
    show_text(_encodable(json.dumps(known, ensure_ascii=False, indent=2, allow_nan=False)))


def _encodable(text: str) -> str:
    """JSON in which nothing must be replaced: escaped, unless the output is UTF-8."""
    encoding = getattr(sys.stdout, "encoding", None) or "ascii"
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8") and not _SURROGATES.search(text):
        return text
    return _BEYOND_ASCII.sub(lambda part: json.dumps(part[0])[1:-1], text)


def error_json(error: JudgeqError) -> dict[str, Any]:
    """What `--json` says of an error."""
    about = {"type": type(error).__name__, "message": str(error), "exit_code": error.exit_code}
    return {"error": about}


class Answer(NamedTuple):
    """What a command found: a value for `--json`, what makes sections or a line of it for people (None:
    nothing), the error that it ended with, and what makes the rows for `--csv` of it (None: its
    numbers)."""

    value: Any
    words: Callable[[Any], Any] | None = None
    error: JudgeqError | None = None
    rows: Callable[[Any], Iterable[Mapping[str, Any]]] | None = None


def answer(found: Answer, csv: Path | None, as_json: bool | None, quiet: bool | None) -> None:
    """Print what a command found; its error ends the command."""
    if csv is not None:
        from judgeq.ui.dataclass_json import numbers, write_csv

        write_csv(csv, [*(found.rows or numbers)(found.value)])
    if as_json:
        print_json(found.value, found.error)
    elif found.words is not None and not quiet:
        show(found.words(found.value))
    if found.error is not None:
        complain(str(found.error))
        raise click.exceptions.Exit(found.error.exit_code)


def answer_of(result: Result, error: JudgeqError | None = None) -> Answer:
    """What a run came to, with the error that it ended with."""
    from judgeq.evaluation.evaluate import evaluated
    from judgeq.ui.show import run as show_run

    def words(result: Result) -> Iterator[Section]:
        yield from show_run.result(result)
        yield show_run.ending(result, _argument(result))

    return Answer(evaluated(result), words, error)


def _argument(result: Result) -> Sequence[str]:
    """Return the words by which a command names the run from here, not yet quoted.

    None for the last run, which commands take by default.
    """
    from judgeq.run_places import FolderRuns

    run, name = result.run, result.info.settings.name
    if run.store_address is not None:
        return run.words
    folder = Path(os.environ.get("JUDGEQ_RUNS") or "runs")
    if run.path.parent.absolute() != folder.absolute():
        return (str(run.path),)
    return () if FolderRuns(folder).all()[0].id == run.id else (name or run.id,)


def complain(message: str) -> None:
    """Print an error or a warning to standard error; of several lines all but the first indented."""
    import shutil

    from judgeq.escaping import unwrapped
    from judgeq.text import LINE, log_lines

    if sys.stderr is None:
        return
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else LINE
    lines = [unwrapped(line, 10_000) for line in f"judgeq: {message}".split("\n", MOST_LINES)]
    text = "\n  ".join(log_lines(line, width) for line in lines)
    with suppress(OSError):  # the terminal may be gone; the exit code says it as well
        if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
            text = click.style(text, fg="red")
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


def confirm(question: str, *, yes: bool) -> None:
    """Ask on a terminal, unless the answer was given by --yes. Raises UsageError for a no."""
    if not yes and not is_terminal():
        raise UsageError(f"{question} Nobody can be asked here: to do it, add --yes.")
    if not yes and not agreed(question):
        raise UsageError("nothing was removed.")


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
