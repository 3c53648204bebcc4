"""What is written from the declarations of settings: their reference, and a job file to start from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from judgeq.files import shipped
from judgeq.settings import SETTINGS
from judgeq.settings.declaration import GROUPS, Setting

EXAMPLE = "how urgent the message is"


def reference() -> str:
    """All settings as Markdown, a table a group: settings.md beside this file."""
    lines = [
        "# Settings",
        "",
        "Each is a flag of `judgeq run` and a key of the file of `--config`. Those marked S may change",
        "from one session of a run to the next; every other decides the result, so that another value",
        "is another run. `make settings` writes this file.",
    ]
    for group in GROUPS:
        lines += ["", f"## {group}", "", "| key | flag | default | | what it is |"]
        lines += ["|---|---|---|---|---|", *map(_row, _of(group))]
    return "\n".join(lines) + "\n"


def job_file(prompt: Path) -> str:
    """A job file (TOML) that runs as it is; common settings that it does not set are comments."""
    values = {"dataset": "demo", "strategy": "listwise10", "prompt": str(prompt)}
    lines = ["# A job for judgeq: `judgeq run --config` and this file's path. Flags win over it."]
    for group in GROUPS:
        common = [setting for setting in _of(group) if setting.declared.common]
        lines += ["", f"# {group}"] if common else []
        for setting in common:
            value = values.get(setting.name)
            mark = "" if value is not None else "# "
            shown = _toml(setting) if value is None else json.dumps(value, ensure_ascii=False)
            lines += [f"# {setting.declared.help}", f"{mark}{setting.name} = {shown}"]
    return "\n".join(lines) + "\n"


def prompt_set(name: str) -> str:
    """A prompt set to start from (TOML): the shipped "generic", about an example of a feature."""
    text = (shipped("prompts") / "generic.toml").read_text(encoding="utf-8")
    lines = text.replace("$feature", EXAMPLE).splitlines()[2:]
    head = [
        "# What to compare by, and how it is asked. Change the feature in all its places;",
        "# `judgeq prompts show` and this file's path prints what would be sent.",
        f"name = {json.dumps(name)}",
        'title = "A feature of your own"',
    ]
    return "\n".join(head + lines) + "\n"


def _of(group: str) -> Iterator[Setting]:
    return (setting for setting in SETTINGS.values() if setting.declared.group == group)


def _row(setting: Setting) -> str:
    declared = setting.declared
    flags = ", ".join(f"`{flag}`" for flag in (declared.short, setting.flag) if flag)
    session = "S" if declared.session else ""
    cells = (f"`{setting.name}`", flags, setting.shown_default, session, declared.help)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _toml(setting: Setting) -> str:
    """The default as TOML writes it; an example where there is none."""
    default = setting.default
    if isinstance(default, tuple):
        return json.dumps(list(default))
    if default is not None:
        return json.dumps(default)
    if setting.type is tuple:
        return "[0.25, 2]" if setting.name == "price" else '["low", "high"]'
    return {int: "1000", float: "1.0", str: '""'}.get(setting.type, '""')
