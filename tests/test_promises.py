"""The promises of tests/promises.md are guarded by tests that exist, and that run."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import REPO
from tests.promises import PAGE, SHORT, Promise, read, unkept

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
    assert len(PROMISES) <= 50
    for promise in PROMISES:
        assert promise.words, promise
        assert 1 <= len(promise.tests) <= 2, promise


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: str(promise.number))
def test_the_tests_of_a_promise_exist(promise: Promise) -> None:
    for test in promise.tests:
        file, name = test.split("::")
        assert name in collectible(PAGE.with_name(file)), f"{promise.number}: {test}"


def test_a_page_is_read() -> None:
    page = """# T

Words `test_x.py::test_no`.

1. One, on
   two lines.
   `test_a.py::test_a`
   `test_b.py::TestB`

2. Two. `test_c.py::test_c`
"""
    assert read(page) == [
        Promise(1, "One, on two lines.", ("test_a.py::test_a", "test_b.py::TestB")),
        Promise(2, "Two.", ("test_c.py::test_c",)),
    ]


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
    (tests / "promises.md").write_text(
        "1. A.\n   `test_a.py::test_kept`\n2. B.\n   `test_a.py::test_lost`\n"
    )
    (tests / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests.promises import Watch\n"
        "def pytest_configure(config):\n"
        "    if not hasattr(config, 'workerinput'):\n"
        "        config.pluginmanager.register(Watch(Path(__file__).with_name('promises.md')))\n"
    )
    (tests / "test_a.py").write_text("def test_kept(): pass\n\ndef test_other(): pass\n")

    words = ("-q", "--import-mode=importlib", "-n", "0", "-m", SHORT)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr
    assert "promise 2: test_a.py::test_lost did not run" in done.stdout
    assert done.returncode == 1
