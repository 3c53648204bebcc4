"""`python -m benchmarks.reference`: write docs/cli.md and docs/settings.md from what is declared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from judgeq.cli import app
from judgeq.cli.app import COMMANDS, EXIT_CODES
from judgeq.files import replacing
from judgeq.settings.declaration import GROUPS
from judgeq.settings.run import SETTINGS

DOCS = Path(__file__).parent.parent / "docs"
WIDTH = 88


def main() -> None:
    for name, page in pages().items():
        with replacing(DOCS / name) as file:
            file.write(page)


def pages() -> dict[str, str]:
    """The reference pages by their names in docs/."""
    return {
        name: "\n".join(lines) + "\n"
        for name, lines in (("cli.md", _commands()), ("settings.md", _settings()))
    }


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield "`make reference` writes this page. `judgeq COMMAND --help` prints the same of one command."
    yield "Where `--help-all` is listed, it shows the less common options, too;"
    yield "[settings](settings.md) has them all."
    root = click.Context(app, info_name="judgeq", terminal_width=WIDTH)
    for heading, modules in COMMANDS.items():
        yield f"\n## {heading}"
        for name in (name for commands in modules.values() for name in commands):
            command = app.get_command(root, name)
            assert command is not None
            context = click.Context(command, parent=root, info_name=name, terminal_width=WIDTH)
            yield f"\n### judgeq {name}\n\n```text\n{command.get_help(context)}\n```"
    _, *codes = EXIT_CODES.splitlines()
    yield "\n## Exit codes\n\n| code | what happened |\n|---|---|"
    yield from (f"| {code} | {words} |" for code, words in (line.split(None, 1) for line in codes))


def _settings() -> Iterator[str]:
    yield "# Settings\n"
    yield "Each is a flag of `judgeq run` and a key of the file of `--config`. Those marked S may change"
    yield "from one session of a run to the next; every other decides the result, so that another value"
    yield "is another run. `make reference` writes this page."
    for group in GROUPS:
        yield f"\n## {group}\n\n| key | flag | default | | what it is |\n|---|---|---|---|---|"
        for one in SETTINGS.values():
            if one.group == group:
                flags = ", ".join(f"`{flag}`" for flag in (one.short, one.flag) if flag)
                session = "S" if one.session else ""
                cells = (f"`{one.name}`", flags, one.shown_default, session, one.help)
                yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    main()
