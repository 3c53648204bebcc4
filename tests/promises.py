"""The promises of tests/promises.md, and whether a run of the whole suite has kept them."""

from __future__ import annotations  # older pytest has not all the names that its annotations have

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

PAGE = Path(__file__).with_suffix(".md")
SHORT = "not long"
"""What `make test` leaves out; no promised test is among it."""
PARTIAL = ("keyword", "deselect", "ignore", "ignore_glob", "lf", "stepwise", "collectonly")
"""Options of pytest with which not all tests are run."""


class Promise(NamedTuple):
    """A promise, and the tests that fail when it is broken, as `test_x.py::test_y`."""

    number: int
    words: str
    tests: tuple[str, ...]


def read(page: str) -> list[Promise]:
    """The promises on a page: numbered paragraphs that end with the tests' names."""
    paragraphs = re.findall(r"^(\d+)\. (.*(?:\n +\S.*)*)", page, re.MULTILINE)
    promises = []
    for number, paragraph in paragraphs:
        tests = tuple(re.findall(r"`(\S+\.py::\S+)`", paragraph))
        words = " ".join(paragraph.partition("`test_")[0].split())
        promises.append(Promise(int(number), words, tests))
    return promises


def unkept(promises: Iterable[Promise], outcomes: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Lines about promised tests that did not pass, and about those that were skipped.

    `outcomes` has "passed", "failed" or "skipped" for each test that ran, by its id. A test of several
    cases passed if one passed and none failed.
    """
    found: dict[str, set[str]] = {}
    for test, outcome in outcomes.items():
        name = test.partition("[")[0].rpartition("/")[2]
        while name:  # a test counts for its class, too
            found.setdefault(name, set()).add(outcome)
            name = name.rpartition("::")[0]
    broken, skipped = [], []
    for promise in promises:
        for test in promise.tests:
            seen = found.get(test, set())
            line = f"promise {promise.number}: {test}"
            if not seen:
                broken.append(f"{line} did not run")
            elif "failed" in seen:
                broken.append(f"{line} failed")
            elif "passed" not in seen:
                skipped.append(f"{line} was skipped")
    return broken, skipped


class Watch:
    """The plugin that ends a run of the whole suite with an error if a promised test did not pass. It
    belongs to the process that gets all reports: with xdist not to its workers."""

    def __init__(self, page: Path = PAGE) -> None:
        self._page = page
        self._outcomes: dict[str, str] = {}
        self._broken: list[str] = []
        self._skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One of a test's three phases ended."""
        outcome: str = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "failed"  # a promise can't be expected to be broken
        before = self._outcomes.get(report.nodeid)
        if outcome != "passed" or (report.when == "call" and before is None):
            self._outcomes[report.nodeid] = "failed" if before == "failed" else outcome

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """All tests ran, or the run was stopped before."""
        stopped = exitstatus not in (0, 1) or session.shouldstop or session.shouldfail
        if stopped or not is_whole(session.config):
            return
        promises = read(self._page.read_text(encoding="utf-8"))
        self._broken, self._skipped = unkept(promises, self._outcomes)
        if self._broken:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What did not pass is in the last lines."""
        for line in self._skipped:
            terminalreporter.write_line(line)
        for line in self._broken:
            terminalreporter.write_line(f"{line} (see {self._page.name})", red=True)


def is_whole(config: pytest.Config) -> bool:
    """Whether all tests are to run, or all but long ones."""
    folder = config.invocation_params.dir
    asked = {(folder / argument).resolve() for argument in config.args}
    paths = {(config.rootpath / path).resolve() for path in config.getini("testpaths")}
    chosen = config.getoption("markexpr", "") in ("", SHORT)
    return asked == paths and chosen and not any(config.getoption(name, None) for name in PARTIAL)
