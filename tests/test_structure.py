"""The house stays one house: floors of imports, sizes, nothing undocumented; and the promises of
tests/promises.md are guarded by tests that exist, and that run."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgeq import cli, datasets, prompts
from judgeq.judge import JUDGES
from judgeq.strategies import REGISTRY
from tests.cli import REPO, commands
from tests.promises import PAGE, SHORT, Promise, read, unkept

PACKAGE = REPO / "judgeq"
DOCS = {path.name: path.read_text(encoding="utf-8") for path in (REPO / "docs").glob("*.md")}
# The package's table is the plan of the floors: rooms in the order in which they may be imported.
TABLE = (PACKAGE / "README.md").read_text(encoding="utf-8")
FLOORS = re.findall(r"^\| (?:\d [a-z ]+)?\| `(\w+(?:/|\.py))` \| \S.*\|$", TABLE, re.MULTILINE)
FILES = sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


def room(path: str) -> str:
    """The entry of the table that a file belongs to."""
    first, slash, _ = path.partition("/")
    return first + slash


def module(path: str) -> str:
    return ("judgeq/" + path).removesuffix(".py").removesuffix("/__init__").replace("/", ".")


@cache
def nodes(path: str) -> list[ast.AST]:
    """All that a file says."""
    return list(ast.walk(ast.parse((PACKAGE / path).read_text(encoding="utf-8"))))


def imported(path: str) -> Iterator[str]:
    """The judgeq modules that a file imports, wherever in it."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("judgeq"))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("judgeq"):
            assert node.module is not None
            for name in node.names:
                inner = f"{node.module}.{name.name}"
                yield inner if inner in MODULES else node.module


MODULES = {module(path): path for path in FILES}


def test_each_room_has_its_line_in_the_packages_readme() -> None:
    assert set(FLOORS) == set(map(room, FILES))
    assert len(FLOORS) == len(set(FLOORS))


def test_imports_point_downwards() -> None:
    # The names of judgeq itself are loaded when used.
    graph = {module(path): {*imported(path)} - {"judgeq", module(path)} for path in FILES}
    floor = {name: FLOORS.index(room(path)) for name, path in MODULES.items()}
    uses = [(name, other) for name, used in graph.items() for other in used]
    assert not [pair for pair in uses if floor[pair[1]] > floor[pair[0]]]
    # No files use each other:
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError, naming the circle


def test_the_core_does_no_io_and_knows_no_clock() -> None:
    core = [path for path in FILES if FLOORS.index(room(path)) < FLOORS.index("settings/")]
    assert core
    for path in core:
        text = (PACKAGE / path).read_text(encoding="utf-8")
        imports = r"^(?:import|from) (asyncio|time|os|pathlib|sqlite3|random)\b"
        assert not re.findall(imports, text, re.MULTILINE), path


def test_no_assert_no_catch_all_no_print_no_module_state() -> None:
    for path in FILES:
        for node in nodes(path):
            where = f"{path}:{getattr(node, 'lineno', '')}"
            assert not isinstance(node, ast.Assert | ast.Global), where
            if isinstance(node, ast.ExceptHandler):
                assert node.type is not None, where
                # A catch-all may tidy up, but what it caught goes on.
                if ast.unparse(node.type) in ("Exception", "BaseException"):
                    assert any(isinstance(inner, ast.Raise) for inner in node.body), where
            ends = ("print", "exit", "sys.exit")
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ends:
                assert path.startswith("cli/"), where


def test_every_command_strategy_judge_and_dataset_is_documented() -> None:
    written = "".join(text for name, text in DOCS.items() if name not in ("cli.md", "settings.md"))
    for name in commands():
        assert f"### judgeq {name}\n" in DOCS["cli.md"], name
        assert re.search(rf"\bjudgeq {name}\b", written), name
    for name in REGISTRY:
        assert f"`{name}" in DOCS["strategies.md"]
    for name in JUDGES:
        assert f"`{name}" in DOCS["judges.md"]
    for info in datasets.catalog():
        assert f"`{info.name}`" in DOCS["own-data.md"]
    for prompt in prompts.catalog():
        assert (REPO / "prompts" / f"{prompt.name}.toml").is_file()


def test_every_command_and_option_has_help() -> None:
    for name, command in commands().items():
        assert command.help, name
        for parameter in command.params:
            assert parameter.help, f"judgeq {name}: {parameter.name}"


def test_what_is_said_names_commands_that_there_are() -> None:
    names = {name.split()[0] for name in commands()} | {"--help", "--version"}
    pages = [REPO / page for page in ("README.md", "CHANGELOG.md")]
    pages += [*REPO.glob("*/README.md"), *PACKAGE.rglob("*.md")]
    pages += [REPO / "docs" / name for name in (*DOCS, "judgeq.sbatch", "judgeq-workers.yaml")]
    for path in (*PACKAGE.rglob("*.py"), *PACKAGE.rglob("templates/**/*.txt"), *pages):
        text = path.read_text(encoding="utf-8")
        code = [] if path.suffix == ".py" else re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
        before = "`|(?:with|then|is|judge): " if path.suffix == ".py" else "`"
        said = re.findall(rf"(?:{before})judgeq ([a-z-]+)", text)
        for name in said + re.findall(r"^(?:\$ )?judgeq ([a-z-]+)", "\n".join(code), re.MULTILINE):
            assert name in names, f"{path}: judgeq {name}"


def test_a_release_is_stated_alike() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    cited = yaml.safe_load((REPO / "CITATION.cff").read_text("utf-8"))
    changes = (REPO / "CHANGELOG.md").read_text("utf-8")
    (number, date), *_ = re.findall(r"^## \[(\d.*)\] - (.*)$", changes, re.MULTILINE)
    assert number == project["version"] == cited["version"]
    assert date == cited["date-released"]
    assert cited["authors"] == project["authors"]
    assert cited["authors"][0]["name"] in (REPO / "LICENSE").read_text("utf-8")


# The first versions without a published vulnerability that judgeq's use of the package can reach.
SAFE_VERSIONS = {
    "aiohttp": "3.14.3",  # CVE-2026-69244: out-of-bounds read on a malformed response
    "filelock": "3.20.3",  # CVE-2025-68146: a lock swapped for a link empties the reader's file
    "orjson": "3.11.6",  # CVE-2025-67221
    "pyarrow": "23.0.1",  # CVE-2026-25087
}


def test_no_allowed_version_has_a_known_vulnerability() -> None:
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["parquet"]]
    lowest = dict(line.split(";")[0].split(">=") for line in requirements)
    for package, version in SAFE_VERSIONS.items():
        allowed = tuple(map(int, lowest[package].strip().split(".")))
        assert allowed >= tuple(map(int, version.split("."))), package


def test_exit_codes_are_documented_and_distinct() -> None:
    from judgeq import errors

    codes = [kind.exit_code for kind in errors.JudgeqError.__subclasses__()]
    assert sorted(codes) == [2, 3, 4, 5, 6, 7, 8]
    _, *lines = map(str.strip, cli.EXIT_CODES.splitlines())
    assert [line.split()[0] for line in lines] == [str(code) for code in (0, 1, *sorted(codes))]
    for code, words in (line.split(None, 1) for line in lines):
        assert f"| {code} | {words} |" in DOCS["cli.md"]


@pytest.mark.parametrize(
    ("words", "heavy"), [(["--help"], "pydantic rich judgeq.settings"), (["run", "--help"], "")]
)
def test_help_stays_light(words: list[str], heavy: str) -> None:
    heavy += " numpy scipy pyarrow asyncio tenacity orjson aiohttp openai matplotlib psycopg"
    code = (
        "import sys, judgeq\n"
        "assert 'numpy' not in sys.modules\n"
        "from judgeq.cli import app\n"
        f"try: app({words})\n"
        "except SystemExit: pass\n"
        f"loaded = [name for name in '{heavy}'.split() if name in sys.modules]\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_top_level_holds_what_was_agreed() -> None:
    listing = ["git", "ls-files"]
    tracked = subprocess.run(listing, cwd=REPO, capture_output=True, text=True, check=False)
    if tracked.returncode:
        pytest.skip("not a git checkout")
    top = {line.split("/")[0] for line in tracked.stdout.splitlines()}
    agreed = {"judgeq", "prompts", "datasets", "runs", "tests", "pyproject.toml", "README.md"}
    agreed |= {"LICENSE", "CHANGELOG.md", "Makefile", "benchmarks", "docs", ".ci", ".gitignore"}
    agreed |= {"CONTRIBUTING.md", "CITATION.cff", "SECURITY.md"}
    agreed |= {".github", ".pre-commit-config.yaml", "zensical.toml"}
    assert top <= agreed
    assert not [line for line in tracked.stdout.splitlines() if "final_labels_SG2" in line]


PROMISES = read(PAGE.read_text(encoding="utf-8"))


def collectible(file: Path) -> set[str]:
    """The names at the top of a file that pytest takes for tests."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names |= {node.name} if node.name.startswith("test") else set()
        elif isinstance(node, ast.ClassDef):
            names |= {node.name} if node.name.startswith("Test") else set()
        elif isinstance(node, ast.Assign):  # a state machine of hypothesis
            given = {target.id for target in node.targets if isinstance(target, ast.Name)}
            names |= {name for name in given if name.startswith("Test")}
    return names


def test_promises_are_numbered_and_name_one_or_two_tests() -> None:
    assert [promise.number for promise in PROMISES] == [*range(1, len(PROMISES) + 1)]
    assert len(PROMISES) == len(re.findall(r"^\d", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    for promise in PROMISES:
        assert promise.words, promise
        assert 1 <= len(promise.tests) <= 2, promise


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: str(promise.number))
def test_the_tests_of_a_promise_exist(promise: Promise) -> None:
    for test in promise.tests:
        file, name = test.split("::")
        assert name in collectible(PAGE.with_name(file)), f"{promise.number}: {test}"


def test_a_promise_is_kept_if_its_tests_passed() -> None:
    promises = [
        Promise(1, "", ("test_a.py::test_cases", "test_a.py::TestB")),
        Promise(2, "", ("test_a.py::test_gone", "test_a.py::test_here")),
        Promise(3, "", ("test_a.py::test_bad", "test_a.py::test_skipped")),
    ]
    outcomes = {
        "tests/test_a.py::test_cases[a/b::c]": "passed",
        "tests/test_a.py::test_cases[2]": "skipped",
        "tests/test_a.py::TestB::runTest": "passed",
        "tests/test_a.py::test_here": "passed",
        "tests/test_a.py::test_gone_too": "passed",
        "tests/test_a.py::test_bad[1]": "passed",
        "tests/test_a.py::test_bad[2]": "failed",
        "tests/test_a.py::test_skipped": "skipped",
    }
    assert unkept(promises, outcomes) == (
        ["promise 2: test_a.py::test_gone did not run", "promise 3: test_a.py::test_bad failed"],
        ["promise 3: test_a.py::test_skipped was skipped"],
    )


def test_a_whole_run_without_a_promised_test_ends_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = checks\n")
    tests = tmp_path / "checks"
    tests.mkdir()
    page = "Words `test_x.py::test_x`.\n\n1. One, on\n   two lines.\n   `test_a.py::test_kept`\n\n"
    page += "2. Two. `test_a.py::test_kept`\n   `test_a.py::test_lost`\n"
    (tests / "promises.md").write_text(page)
    (tests / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests.promises import Watch\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(Watch(Path(__file__).with_name('promises.md')))\n"
    )
    (tests / "test_a.py").write_text("def test_kept(): pass\n\ndef test_other(): pass\n")
    flags = ("-q", "--import-mode=importlib", "-n", "0", "-m", SHORT)
    how: dict[str, Any] = {"cwd": tmp_path, "env": {"PYTHONPATH": str(REPO)}}
    words = [sys.executable, "-m", "pytest", *flags]
    done = subprocess.run(words, **how, check=False, capture_output=True, text=True)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("promise")]
    assert said == ["promise 2: test_a.py::test_lost did not run (see promises.md)"]
    assert done.returncode == 1
