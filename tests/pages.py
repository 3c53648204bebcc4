"""The README and the pages of docs/: blocks and sentences, and commands, run as a reader would."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.cli import LONGEST, REPO, STARTED, command, commands, environment, judgeq

DOCS = REPO / "docs"
GENERATED = {"cli.md", "settings.md"}
PAGES = {
    "README.md": REPO / "README.md",
    **{path.name: path for path in sorted(DOCS.glob("*.md"))},
}
WRITTEN = {name: path.read_text("utf-8") for name, path in PAGES.items() if name not in GENERATED}
TUTORIALS = {
    path.stem: "\n\n".join(
        "".join(cell["source"])
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        if cell["cell_type"] == "markdown"
    )
    for path in sorted((DOCS / "tutorials").glob("*.ipynb"))
}
"""The prose of the notebooks, by name."""
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
OTHERS = {"uv", "pip", "make", "ssh", "sbatch", "scancel", "kubectl"}
"""Programs that are not judgeq's, and not run."""
PARSED = {
    "workers": "there is no cluster: test_cluster.py",
    "reproduce": "the published judgments aren't part of the repository: test_reproduction.py",
}
"""Commands whose flags are only read here, and why."""
QUICK = {
    "evaluate": ("--resamples=20", "--splits=4"),
    "compare": ("--resamples=20",),
    "report": ("--resamples=20",),
}
"""Flags by which a command takes less time; the numbers aren't looked at."""
SERVERS = ("serve", "mock-server")
"""Commands that go on until they are stopped; so does a run that people judge."""


class Block(NamedTuple):
    """What stands between fences; `title` is the file that it shows."""

    language: str
    title: str
    text: str


def blocks(name: str) -> list[Block]:
    return [Block(*found.groups(default="")) for found in FENCE.finditer(WRITTEN[name])]


def prose(name: str) -> str:
    """A page without its code, its tables and the addresses of its links."""
    text = re.sub(r"\]\([^)]*\)", "]", FENCE.sub("", WRITTEN[name]))
    return "\n".join(line for line in text.splitlines() if not line.startswith(("|", "#")))


def sentences(text: str) -> Iterator[str]:
    for part in re.split(r"(?<=[.:;!?])\s+|\n\s*\n|\n- |\n\d\. ", text):
        if len(words := re.findall(r"[\w'’.-]+", part)) >= 7:
            yield " ".join(words).lower().rstrip(".")


class Reader:
    """Somebody who has a folder, follows a page from top to bottom, and types what stands there."""

    def __init__(self, folder: Path, url: str, store: str) -> None:
        self.folder = folder
        self.url = url
        self.real = {"http://127.0.0.1:8000/v1": url, "postgresql://me@db.example/lab": store}
        self.variables = {
            f"{name}_API_KEY": "sk-0123456789abcdef"
            for name in (
                *("OPENAI", "ANTHROPIC", "GEMINI", "MISTRAL", "DEEPSEEK", "XAI", "GROQ"),
                *("OPENROUTER", "JUDGEQ"),
            )
        }
        self.servers = list[subprocess.Popen[str]]()
        binary = folder / "bin" / "judgeq"
        binary.parent.mkdir()
        binary.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
        binary.chmod(0o755)

    def read(self, block: Block) -> int:
        """Write the file, or run the commands, that a block shows; how many commands those are."""
        if block.title:
            self._write(block.title, self._as_here(block.text))
        if block.language != "sh":
            return 0
        lines = block.text.replace("\\\n", "").splitlines()
        return sum(self._run(self._as_here(line)) for line in lines)

    def stop(self) -> None:
        """Stop, as Ctrl-C does, what goes on."""
        for server in self.servers:
            server.send_signal(signal.SIGINT)
        for server in self.servers:
            output, _ = server.communicate(timeout=LONGEST)
            assert server.returncode in (0, 5), output

    def _as_here(self, text: str) -> str:
        for shown, real in self.real.items():
            text = text.replace(shown, real)
        return text

    def _write(self, name: str, text: str) -> None:
        """A last line of "…" stands for more rows."""
        if text.endswith("\n…\n"):
            text = text.removesuffix("…\n")
            text += "".join(f"more-{i},Message {i} is about {i % 7}.\n" for i in range(60))
        (self.folder / name).write_text(text, "utf-8")

    def _run(self, line: str) -> int:
        words = shlex.split(line, comments=True)
        if not words or words[0] in OTHERS:
            return 0
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.variables.setdefault(name, value)
            return 0
        if words[0] != "judgeq" or "|" in words:
            self._in_a_shell(line)
            return 1
        end = words.index(">") if ">" in words else len(words)
        name, arguments = _command(words[1:end])
        if name in PARSED:
            commands()[name].make_context(name, arguments)
        elif name in SERVERS or (name == "run" and "--judge people" in line):
            self._start(*words[1:end])
        else:
            expected = re.search(r"# .*exit code (\d)", line)
            code = int(expected[1]) if expected else 0
            done = judgeq(
                self.folder,
                *words[1:end],
                *QUICK.get(name, ()),
                expect=code,
                variables=self.variables,
            )
            if ">" in words:
                self._write(words[end + 1], done.stdout)
        return 1

    def _in_a_shell(self, line: str) -> None:
        variables = self._variables()
        variables["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-ec", line],
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (line, done.stderr)

    def _start(self, *words: str) -> None:
        """Start what goes on until it is stopped, and wait until it says where it listens. A process of
        its own knows the addresses of real providers, so it is told another."""
        if "gpt-5-mini" in words:
            words += ("--base-url", self.url, "--price", "0.25,2")
        process = subprocess.Popen(
            command(*words, "--port", "0"),
            cwd=self.folder,
            env=self._variables(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        STARTED.append(process)
        assert process.stdout is not None
        output = ""
        while "http://" not in output:
            output += (line := process.stdout.readline())
            assert line, output
        self.servers.append(process)

    def _variables(self) -> dict[str, str]:
        return environment(self.folder) | self.variables


def _command(words: list[str]) -> tuple[str, list[str]]:
    """The name of a command, which may be of several words, and what follows it."""
    known = commands()
    count = max(n for n in range(4) if " ".join(words[:n]) in {"", *known})
    assert count or words[0].startswith("-"), words
    return " ".join(words[:count]), words[count:]
