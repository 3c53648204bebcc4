"""A wheel, installed into an empty environment, does the main job from another folder."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.cli import REPO, environment

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    # From a copy, so that nothing is left in the checkout, and what git ignores stays out.
    patterns = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info")

    def ignored(folder: str, names: list[str]) -> set[str]:
        return patterns(folder, names) | ({"runs"} if Path(folder) == REPO else set())

    shutil.copytree(REPO, source, ignore=ignored)
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
    assert {"judgeq/py.typed", "judgeq/guide.md"} <= {*names}
    assert "judgeq/ui/templates/report.html" in names
    assert not [name for name in names if "final_labels" in name or "UsVsThem" in name]
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]


def link_requirements(environment: Path) -> None:
    """Put into an environment what its judgeq requires, and what that requires, as links to what is
    installed here: to download all of it takes longer than all else."""
    (packages,) = environment.glob("lib/python*/site-packages")
    (installed,) = metadata.distributions(name="judgeq", path=[str(packages)])
    linked: set[str] = set()
    waiting = [(requirement, "") for requirement in installed.requires or []]
    while waiting:
        text, extra = waiting.pop()
        requirement = Requirement(text)
        marker = requirement.marker
        if marker is not None and not marker.evaluate({"extra": extra}):
            continue
        distribution = metadata.distribution(requirement.name)
        for extra in ("", *requirement.extras):
            key = f"{distribution.name}[{extra}]"
            if key not in linked:
                linked.add(key)
                waiting += [(each, extra) for each in distribution.requires or []]
        for name in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (packages / name).exists():
                (packages / name).symlink_to(Path(str(distribution.locate_file(name))))


def test_installed_into_an_empty_environment_it_runs_from_another_folder(
    wheel: Path, tmp_path: Path
) -> None:
    empty = tmp_path / "empty"
    run(sys.executable, "-m", "venv", "--without-pip", empty)
    pip = (sys.executable, "-m", "pip", "--python", empty / "bin" / "python", "install", "--quiet")
    run(*pip, "--no-deps", "--no-compile", wheel)
    link_requirements(empty)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    judgeq = empty / "bin" / "judgeq"
    done = json.loads(
        run(judgeq, "run", "--dataset", "babe", "--json", cwd=elsewhere, folder=tmp_path)
    )
    assert done["jobs"]["done"] == 1104
    run(judgeq, "run", "--dataset", "demo", "-s", "pairwise3", cwd=elsewhere, folder=tmp_path)
    assert "bias_us_vs_them" in run(judgeq, "list", "prompts", cwd=elsewhere, folder=tmp_path)
    assert "labels only" in run(judgeq, "list", "datasets", cwd=elsewhere, folder=tmp_path)
