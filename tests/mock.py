"""The mock server in a thread of this process, where it also speaks Anthropic's API and fails as tests
ask, or as `judgeq mock-server`, and what it saw."""

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from judgeq.cli.options import given
from judgeq.mock_server import running
from judgeq.settings.declaration import settings_of
from judgeq.settings.mock_server import MockSettings
from tests.anthropic_server import AnthropicServer
from tests.cli import LONGEST, commands, start
from tests.faulty_server import FaultySettings
from tests.web import in_thread


@contextmanager
def mock(folder: Path, *flags: str, gate: threading.Event | None = None) -> Iterator[str]:
    """The base URL of a mock server that runs in a thread while inside. With a gate it answers
    nothing that takes --latency before that is opened."""

    async def sleep(seconds: float) -> None:
        if gate is not None:
            await asyncio.to_thread(gate.wait, LONGEST)
        await asyncio.sleep(seconds)

    with in_thread(running(AnthropicServer(_settings(flags), sleep=sleep))) as url:
        yield url


def _settings(flags: tuple[str, ...]) -> FaultySettings:
    """What flags of `judgeq mock-server` say, and those of faults that only tests know."""
    left, faults = list(flags), dict[str, Any]()
    for name in FaultySettings.model_fields.keys() - MockSettings.model_fields.keys():
        if (flag := f"--{name.replace('_', '-')}") in left:
            at = left.index(flag)
            faults[name] = left.pop(at + 1)
            del left[at]
    with commands()["mock-server"].make_context("mock-server", ["--port", "0", *left]) as context:
        return FaultySettings(**given(context.params, settings_of(MockSettings)), **faults)


@contextmanager
def mock_process(folder: Path, *flags: str) -> Iterator[str]:
    """The base URL of a `judgeq mock-server` that runs while inside."""
    process = start(folder, "mock-server", "--port", "0", "--json", *flags)
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield json.loads(line)["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=20)
        finally:
            process.kill()
    assert process.returncode == 0


def stats(url: str, *, questions: bool = False) -> dict[str, Any]:
    """What the server at a base URL saw."""
    address = url.removesuffix("/v1") + "/stats" + ("?questions=1" if questions else "")
    with urlopen(address, timeout=20) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def billed(seen: dict[str, Any]) -> float:
    """What batches cost at a server that saw nothing else, in dollars: half of 1 and 2 a million."""
    doubled: int = seen["tokens"]["input"] + 2 * seen["tokens"]["output"]
    return doubled / 2 / 1e6
