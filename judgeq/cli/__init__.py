"""The command line: `main` is the `judgeq` command. Only this package prints or ends the process."""

from __future__ import annotations

from judgeq.cli.app import EXIT_CODES, app

__all__ = ["EXIT_CODES", "app", "main"]


def main() -> None:
    """The `judgeq` command."""
    app()
