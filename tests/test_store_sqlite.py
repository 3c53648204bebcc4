"""What is particular to the store in a SQLite file: whose file, damage, kills, readers, the disk."""

import asyncio
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from judgeq.errors import RunError
from judgeq.store import Items, schema
from judgeq.store.sqlite import Flusher, SqliteStore
from judgeq.types import Attempt, Counts, JobState, Outcome, Verdict
from tests.cli import execute, query
from tests.fakes import call
from tests.test_store import pairs


@contextmanager
def opened(path: Path, *, read_only: bool = False) -> Iterator[SqliteStore]:
    store = SqliteStore(path, read_only=read_only)
    try:
        yield store
    finally:
        asyncio.run(store.close())


def done(job: int, *items: int) -> Outcome:
    return Outcome(job, JobState.DONE, Verdict(items), (call(),))


async def fill(store: SqliteStore) -> None:
    """Four items, and a round of pairs (0, 1), (1, 2), (2, 3)."""
    everybody = np.ones(4, dtype=np.bool_)
    await store.set_items(Items(list("abcd"), np.arange(4, dtype=np.float64), {"x": everybody}))
    epoch = await store.lead("test", 60)
    await store.plan_round(1, epoch, everybody, pairs(3))


async def answered(store: SqliteStore) -> None:
    """Three jobs, two of them answered."""
    await fill(store)
    await store.claim("a", 2, 60)
    await store.begin("a", [Attempt(0, 0.5), Attempt(1, 0.5)])
    await store.settle("a", [done(0, 1, 0), done(1, 1, 2)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A run's file, closed."""
    path = tmp_path / "run.db"
    with opened(path) as store:
        asyncio.run(answered(store))
    return path


def refused(path: Path, match: str, modes: Sequence[bool] = (False, True)) -> None:
    """Nobody opens it, whether to read only or not, and it stays as it was."""
    before = path.read_bytes()
    for read_only in modes:
        with pytest.raises(RunError, match=match):
            SqliteStore(path, read_only=read_only)
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [1, schema.VERSION - 1, schema.VERSION + 1])
def test_another_schema_is_refused_and_left_alone(path: Path, version: int) -> None:
    execute(path, f"PRAGMA user_version = {version}")
    message = (
        rf"run\.db has schema version {version}, and this judgeq writes version {schema.VERSION}: "
    )
    message += "continue it with the judgeq that made it, or begin anew with --new"
    refused(path, message)


@pytest.mark.parametrize("version", [0, schema.VERSION])
def test_another_programs_file_is_left_alone(tmp_path: Path, version: int) -> None:
    path = tmp_path / "run.db"
    execute(path, "CREATE TABLE t (a)", f"PRAGMA user_version = {version}")
    refused(path, "no judgeq run: it is another program's")


def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    path.write_text("id,score\n" * 200, encoding="utf-8")
    refused(path, r"run\.db: .*not a database.*not a judgeq run")


def test_only_a_writer_makes_a_file(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with pytest.raises(RunError, match="is missing or empty: the run was begun"):
        SqliteStore(path, read_only=True)
    assert not path.exists()
    path.touch()
    refused(path, "is missing or empty: the run was begun", [True])
    with opened(path):
        pass
    with opened(path, read_only=True) as store:
        assert asyncio.run(store.counts()) == Counts()


def test_a_damaged_page_is_told(path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb+") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    told = r"run\.db: .*(malformed|not a database).*damaged"
    with pytest.raises(RunError, match=told), opened(path, read_only=True) as store:
        asyncio.run(store.verdicts())


def test_a_text_that_is_none_is_told(path: Path) -> None:
    execute(path, "UPDATE items SET id = CAST(x'ff' AS TEXT) WHERE row = 1")
    with pytest.raises(RunError, match=r"run\.db.*decode"), opened(path) as store:
        asyncio.run(store.items())


async def test_a_reader_looks_while_a_writer_works(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    writer = SqliteStore(path)
    await fill(writer)
    reader = SqliteStore(path, read_only=True)
    assert await reader.counts() == Counts(pending=3)
    await writer.claim("a", 2, 60)
    assert await reader.counts() == Counts(pending=1, running=2)  # committed by the claim
    await writer.begin("a", [Attempt(0)])
    assert query(path.parent, "SELECT attempts FROM jobs") == [(1,), (0,), (0,)]
    await writer.settle("a", [done(0, 1, 0)])
    assert (await reader.verdicts()).items.tolist() == [1, 0]
    with pytest.raises(RunError, match="readonly"):
        await reader.claim("b", 1, 60)
    await reader.close()
    await writer.close()


def test_the_log_is_emptied_even_beside_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    with opened(path) as writer:
        asyncio.run(fill(writer))
        reader = SqliteStore(path, read_only=True)
        assert asyncio.run(reader.counts()).total == 3
    assert (tmp_path / "run.db-wal").stat().st_size == 0
    assert asyncio.run(reader.counts()).total == 3
    asyncio.run(reader.close())


class Turns(threading.Event):
    """In place of time: at each wait, the next thing happens; then it is time to stop."""

    def __init__(self, *happenings: Callable[[], object]) -> None:
        super().__init__()
        self._happenings = list(happenings)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._happenings:
            return True
        self._happenings.pop(0)()
        return False


@pytest.fixture
def writer(path: Path) -> Iterator[sqlite3.Connection]:
    """A writer without a flusher, as the store sets it up."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as db:
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA wal_autocheckpoint = 0")
        yield db


def flush(path: Path, *happenings: Callable[[], object]) -> Flusher:
    """A flusher whose turns come after these happenings; run to its end on this thread."""
    thread = Flusher(path)
    thread._stop_asked = Turns(*happenings)
    thread.run()
    return thread


def in_the_database_alone(path: Path) -> list[tuple[object, ...]]:
    """What the run's last job would hold, were the log lost."""
    with closing(sqlite3.connect(f"{path.as_uri()}?immutable=1", uri=True)) as connection:
        return connection.execute("SELECT error FROM jobs WHERE id = 2").fetchall()


def written(writer: sqlite3.Connection, error: str) -> None:
    writer.execute("UPDATE jobs SET error = ? WHERE id = 2", (error,))


def test_each_turn_the_log_is_synced_and_moves_into_the_database(
    path: Path, writer: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, synced = list[list[tuple[object, ...]]](), list[bool]()
    log = path.with_name("run.db-wal")

    def fsync(file: int) -> None:
        synced.append(os.path.samestat(os.fstat(file), log.stat()))

    monkeypatch.setattr(os, "fsync", fsync)

    def write() -> None:
        seen.append(in_the_database_alone(path))
        written(writer, f"turn {len(seen)}")

    assert flush(path, write, write, lambda: None, write).error is None
    assert seen == [[(None,)], [("turn 1",)], [("turn 2",)]]
    assert in_the_database_alone(path) == [("turn 3",)]
    assert synced == [True] * 4


async def test_a_disk_that_fails_is_told_to_the_writer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Flusher, "_flush", fail)
    store = SqliteStore(path)
    try:
        assert store.flusher is not None
        while store.flusher.error is None:
            await store.lead("test", 60)
            store.flusher.join(0.2)
        with pytest.raises(RunError, match=r"run\.db can't be written.*No space left"):
            await store.lead("test", 60)
    finally:
        monkeypatch.undo()
        await store.close()


async def test_a_folder_that_was_moved_or_deleted_is_noticed_at_the_next_commit(
    tmp_path: Path,
) -> None:
    folder, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    folder.mkdir()
    store = SqliteStore(folder / "run.db")
    await fill(store)
    async with store.together():
        (first, *_) = await store.claim("w", 3, 60)
        await store.begin("w", [Attempt(first.match.id)])
    folder.rename(elsewhere)
    with pytest.raises(RunError, match="/run was moved or deleted during the run"):
        async with store.together():
            pytest.fail("it goes on")
    await store.settle("w", [done(0, 0, 1)])
    await store.close()
    assert query(elsewhere, "SELECT id FROM jobs WHERE state = 'done'") == [(0,)]
    store = SqliteStore(elsewhere / "run.db")
    while elsewhere.exists():  # its flusher may make a file beside us
        with suppress(OSError):
            shutil.rmtree(elsewhere)
    with pytest.raises(RunError, match="moved or deleted"):
        store.check()
    await store.close()
    assert not elsewhere.exists()
