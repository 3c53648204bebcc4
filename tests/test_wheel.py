"""The wheel and the sdist, each in an empty environment, do the main job from another folder."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from tests.cli import REPO, environment

pytestmark = pytest.mark.long

CITATION = yaml.safe_load((REPO / "CITATION.cff").read_text("utf-8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    # From a copy, so that nothing is left in the checkout, and what git ignores stays out.
    patterns = shutil.ignore_patterns(".git", ".venv*", ".*_cache", "build", "dist", "*.egg-info")

    def ignored(folder: str, names: list[str]) -> set[str]:
        return patterns(folder, names) | ({"runs"} if Path(folder) == REPO else set())

    shutil.copytree(REPO, source, ignore=ignored)
    (source / "datasets" / "babe" / "final_labels_SG2.csv").write_text("text\n", "utf-8")
    run(sys.executable, "-m", "build", "--outdir", folder / "dist", source)
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("judgeq-*.whl"))


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    return next(built.glob("judgeq-*.tar.gz"))


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
    shipped = ("prompts/bias.toml", "datasets/babe/labels.csv", "datasets/demo/demo.csv")
    needed = {f"judgeq/shipped/{name}" for name in (*shipped, "CITATION.cff")}
    needed |= {f"judgeq/{name}" for name in ("py.typed", "guide.md", "ui/templates/report.html")}
    assert needed <= {*names}
    assert not [name for name in names if "final_labels" in name or "UsVsThem" in name]
    assert not [name for name in names if name.startswith(("tests", "benchmarks"))]


def test_the_sdist_holds_tests_and_docs_and_no_corpus(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"tests/conftest.py", "docs/index.md", "Makefile", "LICENSE", "SECURITY.md"} <= names
    assert not [name for name in names if "final_labels" in name or "UsVsThem" in name]


def test_a_package_index_is_told_what_it_shows(wheel: Path) -> None:
    (of,) = metadata.distributions(path=[str(wheel)])
    urls = dict(one.split(", ") for one in of.metadata.get_all("Project-URL", []))
    assert urls["Source"] == CITATION["repository-code"]
    assert of.metadata["Author"] == CITATION["authors"][0]["name"]
    assert of.version == CITATION["version"]
    readme = of.read_text("METADATA") or ""
    assert "(https://github.com/judgeq/judgeq/blob/main/docs/quickstart.md)" in readme
    assert not re.findall(r"\]\((?!https://)[^)]*\)", readme)


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


def installed(folder: Path, package: Path) -> Path:
    """The command `judgeq` of a new environment in `folder` that holds only this package."""
    empty = folder / "empty"
    run(sys.executable, "-m", "venv", "--without-pip", empty)
    pip = (sys.executable, "-m", "pip", "--python", empty / "bin" / "python", "install", "--quiet")
    run(*pip, "--no-deps", "--no-compile", package)
    link_requirements(empty)
    return empty / "bin" / "judgeq"


def test_installed_alone_it_runs_from_another_folder(wheel: Path, tmp_path: Path) -> None:
    judgeq = installed(tmp_path, wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def prints(words: str) -> str:
        return run(judgeq, *words.split(), cwd=elsewhere, folder=tmp_path)

    assert json.loads(prints("run --dataset babe --json"))["jobs"]["done"] == 1104
    prints("run --dataset demo -s pairwise3")
    assert "bias_us_vs_them" in prints("list prompts")
    assert "labels only" in prints("list datasets")
    prints("report --format md --resamples=20")
    (report,) = elsewhere.glob("runs/*/report.md")
    assert "@software{judgeq," in report.read_text("utf-8")


def test_the_sdist_installs_and_runs(sdist: Path, tmp_path: Path) -> None:
    judgeq = installed(tmp_path, sdist)
    assert "Reliability" in run(judgeq, "run", "demo", cwd=tmp_path, folder=tmp_path)
