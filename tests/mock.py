"""The mock server in a thread of this process, where it also speaks Anthropic's API, or as
`judgeq mock-server`, and what it saw."""

from __future__ import annotations

import json
import signal
import subprocess
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
from tests.cli import command, command_line, environment
from tests.web import in_thread


@contextmanager
def mock(folder: Path, *flags: str) -> Iterator[str]:
    """The base URL of a mock server that runs in a thread while inside."""
    with in_thread(running(AnthropicServer(_settings(flags)))) as url:
        yield url


def _settings(flags: tuple[str, ...]) -> MockSettings:
    """What flags of `judgeq mock-server` say."""
    mock_server_command = command_line().commands["mock-server"]
    with mock_server_command.make_context("mock-server", ["--port", "0", *flags]) as context:
        return MockSettings(**given(context.params, settings_of(MockSettings)))


@contextmanager
def mock_process(folder: Path, *flags: str) -> Iterator[str]:
    """The base URL of a `judgeq mock-server` that runs while inside."""
    process = subprocess.Popen(
        command("mock-server", "--port", "0", "--json", *flags),
        cwd=folder,
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
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
