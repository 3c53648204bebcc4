"""A wheel, installed into an empty environment, does the main job from another folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.cli import REPO, environment


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # From a copy, so that nothing is left in the checkout, and what git ignores stays out.
    shutil.copytree(
        REPO, source, ignore=shutil.ignore_patterns(".*", "runs", "build", "dist", "*.egg-info")
    )
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, source)
    (built,) = folder.glob("judgeq-*.whl")
    return built


def run(*command: str | Path, cwd: Path | None = None, folder: Path | None = None) -> str:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment(folder) if folder else None,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_prompts_and_datasets_and_no_corpus(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "judgeq/shipped/prompts/bias.toml" in names
    assert "judgeq/shipped/datasets/babe/labels.csv" in names
    assert "judgeq/shipped/datasets/demo/demo.csv" in names
    assert "judgeq/py.typed" in names
    assert not [name for name in names if "final_labels" in name or "UsVsThem" in name]
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]


def test_installed_into_an_empty_environment_it_runs_from_another_folder(
    wheel: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    run(sys.executable, "-m", "venv", "--without-pip", empty)
    python = empty / "bin" / "python"
    # Not compiled: most of what is installed is never imported here.
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    run(*pip, wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    judgeq = empty / "bin" / "judgeq"
    done = json.loads(
        run(judgeq, "run", "--dataset", "babe", "--json", cwd=elsewhere, folder=tmp_path)
    )
    assert done["jobs"]["done"] == 1104
    run(judgeq, "run", "--dataset", "demo", "-s", "pairwise3", cwd=elsewhere, folder=tmp_path)
    assert "bias_us_vs_them" in run(judgeq, "prompts", cwd=elsewhere, folder=tmp_path)
    assert "labels only" in run(judgeq, "datasets", cwd=elsewhere, folder=tmp_path)
