"""What `judgeq init` writes: a job file of the settings that are declared, and a prompt set."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

from judgeq.files import shipped
from judgeq.settings.declaration import GROUPS
from judgeq.settings.run import SETTINGS
from judgeq.ui import html

EXAMPLE = "how urgent the message is"
VALUES = {
    "price": "[0.25, 2]",
    tuple: '["low", "high"]',
    int: "1000",
    float: "1.0",
}
"""Examples of settings without a default, by name or type."""


def job_file(prompt: Path) -> str:
    """A job file (TOML) that runs as it is; common settings that it does not set are comments."""
    values = {"dataset": "demo", "strategy": "listwise10", "prompt": str(prompt)}
    toml = partial(json.dumps, ensure_ascii=False)
    groups = {
        group: [one for one in SETTINGS.values() if one.declared.group == group] for group in GROUPS
    }
    return html.rendered("job.txt", groups=groups, values=values, toml=toml, examples=VALUES)


def prompt_set(name: str) -> str:
    """A prompt set to start from (TOML): the shipped "generic", about an example of a feature."""
    text = (shipped("prompts") / "generic.toml").read_text(encoding="utf-8")
    rest = "\n".join(text.replace("$feature", EXAMPLE).splitlines()[2:])
    return html.rendered("prompt.txt", name=json.dumps(name), rest=rest)
