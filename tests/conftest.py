"""What holds for all tests: nothing is remembered in this user's own folders, nothing runs on, no
test hangs, and what judgeq's processes compile is kept for the next."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from judgeq.judge import limiter, retry
from judgeq.settings.providers import PREFIXED, PROVIDERS
from tests import promises
from tests.browser import executable
from tests.cli import end_started

if TYPE_CHECKING:  # NumPy isn't imported before `pytest_configure` has said by how many threads
    from judgeq.config import Settings
    from judgeq.engine.results import Result

MEMORY = Path("/dev/shm")
"""Where there is such a place, tests have their folders in it: on a disk they wait a sixth of their time
for what they write to be there for good."""

FIRST = (
    "test_shared_spending",
    "test_files",
    "test_people_kills",
    "test_kill",
    "test_report",
    "test_wheel",
)
"""The files of tests that take longest: begun last, they would keep one process when all others are
done."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest."""
    items.sort(key=lambda item: item.path.stem not in FIRST)


def pytest_configure(config: pytest.Config) -> None:
    """Have all processes of the tests share what they compile, beside the repository's own files:
    without, each of hundreds compiles all of judgeq, which takes longer than what it does. No example of
    hypothesis is timed: a loaded machine is no defect."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell begins what runs beside it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    hypothesis.settings.register_profile("unhurried", hypothesis.settings(), deadline=None)
    hypothesis.settings.load_profile("unhurried")
    # Several processes whose matrices are each worked on by all cores hinder one another threefold.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if hasattr(config, "workerinput"):
        return  # a worker of xdist, which was started as said here
    config.pluginmanager.register(promises.Watch())
    if _has_room(MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    try:
        folder = config.cache.mkdir("compiled")
    except (OSError, AttributeError):
        folder = None  # a read-only repository, or -p no:cacheprovider
    if folder is not None:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(folder)
        sys.dont_write_bytecode = False


def _has_room(folder: Path) -> bool:
    """Whether tests may have their folders, which hold 80 MB in the end, and some programs, there."""
    try:
        there = os.statvfs(folder)
    except (OSError, AttributeError):
        return False
    room = there.f_bavail * there.f_frsize
    return room > 2 * 1024**3 and not there.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test of a page is skipped before it starts anything, where there is no browser; with
    JUDGEQ_TEST_BROWSER=required, as in CI, it fails."""
    if item.get_closest_marker("browser") is None or executable() is not None:
        return
    why = "no chromium here: `apt-get install chromium` lets pages be tested"
    if os.environ.get("JUDGEQ_TEST_BROWSER") == "required":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    named = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in named}))
    return True


def pytest_xdist_auto_num_workers() -> int:
    """Of `-n auto`: half as many again as there are cores, since tests of processes mostly wait."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (cores or 1) * 3 // 2


@pytest.fixture(scope="session", autouse=True)
def _own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No folder, key, proxy or address of this user, and no download."""
    providers = [*PROVIDERS.values(), *PREFIXED.values()]
    names = {name for one in providers for name in (one.variable, one.key)}
    names |= {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "JUDGEQ_API_KEY", "JUDGEQ_CACHE"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("JUDGEQ_OFFLINE", "1")
        for name in names - {""}:
            patch.delenv(name, raising=False)
            patch.delenv(name.lower(), raising=False)
        yield


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reply that another test kept would be known here, once a mock server has the same port."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _nothing_left_running() -> Iterator[None]:
    yield
    end_started()


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits between tries, within this process, are short: of tests that aren't about them."""

    wait = retry.Policy.wait
    monkeypatch.setattr(retry.Policy, "wait", lambda *how: wait(*how) / 50)
    monkeypatch.setattr(limiter, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(limiter, "LONGEST_WAIT", 0.01)
    monkeypatch.setattr("judgeq.engine.batch.FIRST_WAIT", 0.05)


@pytest.fixture(scope="module")
def rated_by_elo() -> Iterator[None]:
    """Runs within this process are rated by Elo alone: of files whose tests aren't about ratings."""
    from tests.fakes import by_elo

    with pytest.MonkeyPatch.context() as patch:
        by_elo(patch.setattr)
        yield


@pytest.fixture(scope="module")
def rated_once() -> Iterator[None]:
    """A run that hasn't changed is rated once, however many commands within this process read it: of
    files many of whose tests look at the same runs."""
    from judgeq.engine import results
    from judgeq.run_places import RunFolder

    read = results.read
    known: dict[object, Result] = {}

    async def once(run: Any, settings: Settings) -> Result:
        if not isinstance(run, RunFolder):
            return await read(run, settings)
        parts = (run.path / name for name in ("run.db", "run.db-wal", "config.json"))
        files = [part.stat() for part in parts if part.exists()]
        stamps = [(file.st_ino, file.st_mtime_ns, file.st_size) for file in files if file.st_size]
        key = (run.path.resolve(), settings.model_dump_json(), *stamps)
        if key not in known:
            known[key] = await read(run, settings)
        return dataclasses.replace(known[key], run=run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(results, "read", once)
        yield


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures of reports are empty, within this process: of tests that look at words and numbers. To
    draw them takes four fifths of a report's time."""
    from matplotlib.figure import Figure

    from judgeq.ui import report

    monkeypatch.setattr(report, "figure", lambda *_: Figure())
