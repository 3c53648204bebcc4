"""Sessions of runs in batches that kill themselves at a drawn step, cheaply: a process that has imported
all there is forks one for each."""

import inspect
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from judgeq.engine import batch, batch_jobs, drift, session
from judgeq.engine.batch import Batches
from judgeq.engine.interrupts import Stop
from judgeq.judge.budget import Budget
from judgeq.judge.http import anthropic, batch_api
from judgeq.judge.http.anthropic import AnthropicBatches
from judgeq.judge.http.openai import OpenAIBatches
from judgeq.run_places import RunFolder
from judgeq.store.sqlite import SqliteStore
from tests.cli import ended, environment
from tests.fakes import by_elo

Named: TypeAlias = tuple[tuple[Any, str], ...]
"""Functions, by what has them."""


def of_both(in_openai: str, in_anthropic: str = "") -> Named:
    """What is named so in either form of the API."""
    return (OpenAIBatches, in_openai), (AnthropicBatches, in_anthropic or in_openai)


STEPS: dict[str, Named] = {
    "before the intent": ((Batches, "_submit"),),
    "before it is created": of_both("create"),
    "in the middle of a body": ((anthropic, "framed"), (batch_api, "parts_of")),
    "uploaded": of_both("_upload", "remote"),
    "before its id is written": of_both("create"),
    "its id is written": ((Batches, "_create"),),
    "identified": of_both("identify"),
    "while it is asked about": of_both("remote", "get"),
    "while waiting": ((Stop, "sleep"),),
    "in the middle of a download": ((batch_api, "lines_of"),),
    "downloaded": ((batch_api.BatchAPI, "download"),),
    "in a commit": ((SqliteStore, "note_batch"),),
    "between two commits": ((Budget, "settle"),),
    "with its files": ((batch_jobs, "settle"),),
    "without its files": ((batch, "collect"),),
}
"""Where a session can be killed; at some, before what is named is done, at others after it."""
COMMITS: dict[str, Named] = {
    "before a transaction": ((SqliteStore, "_transaction"),),
    "before it is in its place": ((RunFolder, "put"),),
}
"""Where any session can be killed: between two commits."""
AFTER_ANSWERS: dict[str, Named] = {
    "before scores are written": ((session, "write_scores"),),
    "before scores are recorded": ((session, "record_scored"),),
    "before answers are read": ((drift, "read"),),
}
"""Where a session can be killed that has all its answers."""
BEFORE = (
    *COMMITS,
    *AFTER_ANSWERS,
    *("before the intent", "before it is created", "while it is asked about", "while waiting"),
    "in a commit",
)


class Ended(NamedTuple):
    """How a session ended: its exit code (None: killed), and what it printed."""

    code: int | None
    out: str
    err: str


def quick(patch: Callable[[Any, str, Any], None]) -> None:
    """Have all waits of batches be short, and certificates read once."""
    for name in ("FIRST_WAIT", "AGAIN", "SETTLING", "UNANSWERED_SETTLING", "DOUBT_SECONDS"):
        patch(batch, name, 0.01)
    for name in ("LONGEST_WAIT", "FULL_WAIT"):
        patch(batch, name, 0.05)
    patch(batch_jobs, "PATIENCE", 0.05)


class Killing:
    """Kills this process at the occurrence of a step."""

    def __init__(self, step: str, occurrence: int) -> None:
        self._left = occurrence
        self._before = step in BEFORE
        for owner, name in (STEPS | COMMITS | AFTER_ANSWERS)[step]:
            setattr(owner, name, self._watched(getattr(owner, name)))

    def _now(self) -> None:
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGKILL)

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def step() -> Iterator[None]:
            if self._before:
                self._now()
            yield
            if not self._before:
                self._now()

        async def one(*arguments: Any, **named: Any) -> Any:
            with step():
                return await function(*arguments, **named)

        async def parts(*arguments: Any) -> Any:
            async for part in function(*arguments):
                yield part
                self._now()

        def plain(*arguments: Any, **named: Any) -> Any:
            with step():
                return function(*arguments, **named)

        if inspect.isasyncgenfunction(function):
            return parts
        return one if inspect.iscoroutinefunction(function) else plain


class Forks:
    """The process that forks sessions."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def session(self, folder: Path, words: Sequence[str | Path], *kill: str | int) -> Ended:
        """Run judgeq in `folder`, until it ends, or is killed at the occurrence of a step."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = json.dumps([str(folder), list(map(str, words)), kill])
        self._process.stdin.write(f"{asked}\n")
        self._process.stdin.flush()
        said = self._process.stdout.readline()
        assert said, "the process that forks is gone"
        return Ended(*json.loads(said))


@contextmanager
def forks(folder: Path, warm_up: Sequence[str | Path]) -> Iterator[Forks]:
    """What forks sessions, which are rated by Elo alone, after one that imports all that they need."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.batch_killing"],
        cwd=Path(__file__).parent.parent,
        env=environment(folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            forks = Forks(process)
            first = forks.session(folder, warm_up)
            assert first.code == 0, first
            yield forks
        finally:
            assert process.stdin is not None
            process.stdin.close()


def main() -> None:
    """Read sessions from standard input, one in a line, and write how each ended."""
    quick(setattr)
    batch_jobs.GROUP = 2
    by_elo(setattr)
    warm = False
    for line in sys.stdin:
        folder, words, kill = json.loads(line)
        said = _forked(Path(folder), words, kill) if warm else _ended(Path(folder), words)
        assert warm or threading.active_count() == 1
        warm = True
        sys.stdout.write(f"{json.dumps(said)}\n")
        sys.stdout.flush()


def _ended(folder: Path, words: Sequence[str]) -> Ended:
    done = ended(folder, *words)
    return Ended(done.returncode, done.stdout, done.stderr)


def _forked(folder: Path, words: Sequence[str], kill: Sequence[Any]) -> Ended:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        if kill:
            Killing(*kill)
        try:
            said = _ended(folder, words)
        except BaseException as error:  # noqa: BLE001  (nothing else reports it)
            said = Ended(70, "", repr(error))
        with os.fdopen(writing, "w") as to:
            json.dump(said, to)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as given:
        text = given.read()
    _, status = os.waitpid(child, 0)
    return Ended(None, "", "") if os.WIFSIGNALED(status) else Ended(*json.loads(text))


if __name__ == "__main__":
    main()
