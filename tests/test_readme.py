"""What the README shows is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.cli import REPO, environment, judgeq

README = (REPO / "README.md").read_text(encoding="utf-8")


def test_the_main_commands_output_is_real(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```console\n\$ judgeq (.*?)```", README, re.DOTALL)
    command, output = shown.split("\n", 1)
    done = judgeq(tmp_path, *command.split())
    assert [line.rstrip() for line in done.stdout.splitlines()] == output.splitlines()


def python(folder: Path, code: str) -> str:
    """What a piece of Python prints, run in `folder`."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_python_snippet_runs(tmp_path: Path) -> None:
    (snippet,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    first, best, rho = python(tmp_path, snippet).splitlines()
    assert first.endswith(".")
    assert best.split()[0][-1] in "45"
    assert float(rho) > 0.9


def test_the_python_interface_works_inside_a_running_loop(tmp_path: Path) -> None:
    code = (
        "import asyncio, judgeq\n"
        "async def main():\n"
        "    result = judgeq.run('synthetic:linear', n=50)\n"
        "    assert (result.scores.matches == 3).all()\n"
        "    assert not result.partial\n"
        "asyncio.run(main())\n"
    )
    python(tmp_path, code)
