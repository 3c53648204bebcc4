import asyncio
import json
import os
import pickle
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

import judgeq.judge.cache
from judgeq.engine.interrupts import run_loop
from judgeq.errors import DataError
from judgeq.judge.backend import Reply
from judgeq.judge.cache import ReplyCache, clear, overview
from judgeq.types import Answerer, Usage
from tests.fakes import turns

pytestmark = pytest.mark.usefixtures("rated_by_elo")

ANSWERER = Answerer("m-2026", "fp_1")
REPLY = Reply('{"winner": "A"}', Usage(100, 20, 5, 3), 0.25, None, ANSWERER)


@pytest.fixture(autouse=True)
def _written_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgeq.judge.cache, "TOGETHER", 0.0)


@asynccontextmanager
async def opened(folder: Path, told: list[str], **how: bool) -> AsyncIterator[ReplyCache]:
    """A cache, and what it tells."""
    cache = ReplyCache(folder, warn=told.append, **how)
    try:
        yield cache
    finally:
        await cache.close()


def filled(folder: Path, **replies: Reply) -> None:
    assert lookups(folder, **(replies or {"k": REPLY})) == ([], [])


def lookups(folder: Path, *keys: str, **replies: Reply) -> tuple[list[Reply | None], list[str]]:
    """What is found by keys once replies are put in, and what was told."""
    told: list[str] = []

    async def story() -> list[Reply | None]:
        async with opened(folder, told) as cache:
            for name, reply in replies.items():
                cache.put(name, reply)
            return [*map(cache.get, keys)]

    return run_loop(story()), told


def execute(folder: Path, sql: str, *values: object) -> list[Any]:
    with closing(sqlite3.connect(folder / "cache.db", isolation_level=None)) as db:
        return db.execute(sql, values).fetchall()


def test_what_is_kept_is_found_again_to_the_last_bit(tmp_path: Path) -> None:
    odd = Reply("ü\n\U0001f600", Usage(0, 0, 0, 0), 0.1 + 0.2)
    filled(tmp_path, k=REPLY, odd=odd)
    assert lookups(tmp_path, "k", "odd", "other") == ([REPLY, odd, None], [])
    filled(tmp_path / "new")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700


async def test_what_another_run_keeps_meanwhile_is_found(tmp_path: Path) -> None:
    async with opened(tmp_path, []) as one, opened(tmp_path, []) as other:
        one.put("own", REPLY)
        assert one.get("k") is None
        await asyncio.sleep(0)  # it is written
        other.put("k", REPLY)
        await other.close()
        assert [one.get("own"), one.get("k"), one.get("none")] == [REPLY, REPLY, None]


async def test_who_only_looks_keeps_nothing_and_makes_no_folder(tmp_path: Path) -> None:
    folder, told, every = tmp_path / "cache", list[str](), "SELECT * FROM Cache"

    async def look(folder: Path, *keys: str) -> list[Reply | None]:
        async with opened(folder, told, read_only=True) as cache:
            cache.put("new", REPLY)
            return [*map(cache.get, keys)]

    assert await look(tmp_path / "none", "k") == [None]
    assert not (tmp_path / "none").exists()
    await asyncio.to_thread(filled, folder)
    before = execute(folder, every)
    assert await look(folder, "k", "none") == [REPLY, None]
    assert execute(folder, every) == before
    async with opened(folder, told) as cache:  # while a run has it open
        cache.put("late", REPLY)
        await turns()
        assert await look(folder, "late") == [REPLY]
    assert told == []


async def test_an_unusable_folder_is_told_once_and_the_run_goes_on(tmp_path: Path) -> None:
    folder, told = tmp_path / "file", list[str]()
    folder.write_text("no folder")
    async with opened(folder, told) as cache:
        assert cache.get("k") is None
        cache.put("k", REPLY)
        assert cache.get("k") is None
    (warning,) = told
    assert (str(folder) in warning, "--no-cache" in warning) == (True, True)


@pytest.mark.parametrize(
    ("folder_mode", "file_mode", "is_refused"),
    [
        (0o777, 0o644, True),
        (0o1777, 0o644, True),
        (0o775, 0o644, True),
        (0o755, 0o666, True),
        (0o750, 0o664, True),
        (0o755, 0o644, False),
        (0o700, 0o664, False),  # as a umask of 002 leaves it: nobody else reaches it
    ],
)
def test_a_cache_that_others_may_write_to_is_refused(
    tmp_path: Path, folder_mode: int, file_mode: int, is_refused: bool
) -> None:
    filled(tmp_path, k=REPLY)
    (tmp_path / "cache.db").chmod(file_mode)
    tmp_path.chmod(folder_mode)
    try:
        answers, warnings = lookups(tmp_path, "k")
        assert answers == [None if is_refused else REPLY]
        assert ["chmod go-w" in warning for warning in warnings] == [True] * is_refused
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o777, 0o644), (0o755, 0o666)])
def test_a_cache_that_is_a_link_to_where_others_may_write_is_refused(
    tmp_path: Path, folder_mode: int, file_mode: int
) -> None:
    own = tmp_path / "own"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    filled(own, k=REPLY)
    tmp_path.chmod(0o755)
    own.chmod(0o755)
    (own / "cache.db").rename(elsewhere / "theirs.db")
    (own / "cache.db").symlink_to(elsewhere / "theirs.db")
    (elsewhere / "theirs.db").chmod(file_mode)
    elsewhere.chmod(folder_mode)
    answers, warnings = lookups(own, "k")
    assert answers == [None]
    assert "chmod go-w" in warnings[0]
    (elsewhere / "theirs.db").chmod(0o644)
    elsewhere.chmod(0o755)
    assert lookups(own, "k") == ([REPLY], [])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_another_users_file_in_ones_own_folder_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, k=REPLY)
    os.chown(tmp_path / "cache.db", 12345, 12345)
    answers, warnings = lookups(tmp_path, "k")
    assert answers == [None]
    assert ["belongs to another user" in warning for warning in warnings] == [True]


def test_another_users_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(tmp_path, k=REPLY)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    answers, warnings = lookups(tmp_path, "k")
    assert answers == [None]
    assert ["belongs to another user" in warning for warning in warnings] == [True]
    with pytest.raises(DataError, match="belongs to another user"):
        overview(tmp_path)


class Bomb:
    """What runs when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.path,)


def test_pickles_are_refused_and_never_run(tmp_path: Path) -> None:
    exploded = tmp_path / "exploded"
    folder = tmp_path / "cache"
    filled(folder)
    bomb = pickle.dumps(Bomb(exploded))
    execute(folder, "UPDATE Cache SET mode = 4, value = ? WHERE key = 'k'", bomb)
    row = "INSERT INTO Cache (key, raw, mode, value, tag) VALUES (?, 0, 4, ?, ?)"
    execute(folder, row, bomb, bomb, "m")
    assert lookups(folder, "k", "j") == ([None, None], [])
    filled(folder, j=REPLY)
    overview(folder)
    clear(folder)
    assert not exploded.exists()


def test_values_in_files_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    filled(folder)
    secret = tmp_path / "secret"
    secret.write_bytes(b"{}")
    outside = "UPDATE Cache SET mode = ?, filename = '../secret', value = NULL WHERE key = 'k'"
    for mode in (2, 3, 4):
        execute(folder, outside, mode)
        assert lookups(folder, "k") == ([None], [])
    clear(folder)
    assert secret.exists()


@pytest.mark.parametrize(
    "value",
    [
        *(b"", b"null", b"[]", b"{}", b"\xff", b'{"text": "x"}', "x", 7),
        *({"text": 3}, {"usage": [0, 0, 0]}, {"usage": [0, 0, 0, -1]}, {"usage": [0, 0, 0, 1.5]}),
        *({"cost": -1}, {"cost": "0"}, {"answerer": [None]}),
    ],
)
def test_rows_that_we_never_wrote_are_misses(tmp_path: Path, value: Any) -> None:
    filled(tmp_path)
    if isinstance(value, dict):  # what is wrong in a row that is right otherwise
        ((right,),) = execute(tmp_path, "SELECT value FROM Cache WHERE key = 'k'")
        assert {*value} < {*json.loads(right)}
        value = json.dumps(json.loads(right) | value).encode()
    execute(tmp_path, "UPDATE Cache SET value = ? WHERE key = 'k'", value)
    assert lookups(tmp_path, "k") == ([None], [])
    overview(tmp_path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sqlite_journal_mode = delete; DROP TABLE Cache; --", "x"),
        ("disk_path", "/etc"),
        ("eviction_policy", "x'; DROP TABLE Cache; --"),
        ("sqlite_mmap_size", b"\x80\x04"),
        ("count", "x"),
        ("surprise", 1),
    ],
)
def test_settings_in_the_file_are_never_applied(tmp_path: Path, name: str, value: object) -> None:
    filled(tmp_path)
    execute(tmp_path, "INSERT OR REPLACE INTO Settings VALUES (?, ?)", name, value)
    filled(tmp_path, j=REPLY)
    assert lookups(tmp_path, "k", "j") == ([REPLY, REPLY], [])
    assert clear(tmp_path) == 2
    kept = execute(tmp_path, "SELECT value FROM Settings WHERE key = ?", name)
    assert kept != [(value,)]


def test_several_that_make_the_file_at_a_time_share_it(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "cache"
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: filled(folder, **{f"k{number}": REPLY}), range(8)))
    assert (overview(folder).replies, overview(folder).bytes > 0) == (8, True)


def test_none_is_lost_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judgeq.judge.cache, "AGAIN", 0.01)
    filled(tmp_path)
    told: list[str] = []

    async def story() -> None:
        async with opened(tmp_path, told) as cache:
            assert cache.get("k") == REPLY
            with closing(sqlite3.connect(tmp_path / "cache.db", isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                cache.put("j", REPLY)
                await turns()
                assert cache.get("j") == REPLY
                other.execute("COMMIT")

    run_loop(story())
    assert told == []
    assert lookups(tmp_path, "j") == ([REPLY], [])
