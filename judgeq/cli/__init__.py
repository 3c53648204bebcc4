"""The command line: `main` is the `judgeq` command. Only this package prints or ends the process."""

from __future__ import annotations

from judgeq.cli import (
    evaluating,
    running,
    sharing,
    showing,
    studying,
    tools,
)  # each brings its commands to `app`
from judgeq.cli.app import EXIT_CODES, app

__all__ = [
    "EXIT_CODES",
    "app",
    "evaluating",
    "main",
    "running",
    "sharing",
    "showing",
    "studying",
    "tools",
]


def main() -> None:
    """The `judgeq` command."""
    app()
