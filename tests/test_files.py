"""What is written: whole or not at all, and never through a link; and what a run does when there is no
room for more open files."""

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from judgeq import files
from judgeq.errors import ConnectionFailedError, RunError
from judgeq.files import ordinary, read_start, refuse_links, replacing, write_new
from judgeq.run_places import RunFolder, folders
from judgeq.store.sqlite import SqliteStore
from tests.cli import LONGEST, command, ended, only_run, query, started
from tests.mock import mock, stats
from tests.test_openai_chat import ask, backend, saying
from tests.web import answering

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]
pytestmark = pytest.mark.usefixtures("rated_by_elo")

RUN = ("run", "--dataset", "synthetic:normal", "--n", "20", "--strategy", "listwise5", "--quiet")
JOBS = 600
needs_limits = pytest.mark.skipif(resource is None, reason="there is no ulimit here")
WRITTEN = ("holder", "lock", "run.db", "run.db-journal", "config.json", "scores.csv")


def invoke(folder: Path, *arguments: str | Path) -> tuple[int, str]:
    done = ended(folder, *arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text("dear diary\n")
    return path


@pytest.mark.parametrize("name", WRITTEN)
def test_a_run_writes_through_no_link(tmp_path: Path, mine: Path, name: str) -> None:
    assert invoke(tmp_path, *RUN)[0] == 0
    run = only_run(tmp_path)
    (run / name).unlink(missing_ok=True)
    if name == "config.json":  # the folder that somebody made beforehand
        shutil.rmtree(run)
        run.mkdir()
    if name in ("lock", "run.db", "scores.csv"):
        os.link(mine, run / name)
    else:
        (run / name).symlink_to(mine)
    before = mine.stat()
    for words in (RUN, ("resume", run.name), ("show", run.name, "--write"), ("status", run.name)):
        code, output = invoke(tmp_path, *words)
        assert code in (0, 7), output
        assert mine.read_text() == "dear diary\n"
        after = mine.stat()
        assert (after.st_ino, after.st_mode) == (before.st_ino, before.st_mode)
    assert not (tmp_path / "mine.txt-wal").exists()


@pytest.mark.parametrize("name", ["run.db", "run.db-wal", "run.db-shm"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_says_which_file_is_a_link(tmp_path: Path, name: str, read_only: bool) -> None:
    store = SqliteStore(tmp_path / "run.db")
    asyncio.run(store.close())
    (tmp_path / "run.db").rename(tmp_path / "elsewhere.db")
    shutil.copy(tmp_path / "elsewhere.db", tmp_path / "run.db")
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(tmp_path / "elsewhere.db")
    before = (tmp_path / "elsewhere.db").read_bytes()
    with pytest.raises(RunError, match=rf"{name} is a link: what is written"):
        SqliteStore(tmp_path / "run.db", read_only=read_only)
    assert (tmp_path / "elsewhere.db").read_bytes() == before


def test_a_journal_is_never_played_back(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    asyncio.run(SqliteStore(path).close())
    (tmp_path / "run.db-journal").write_bytes(b"\xd9\xd5\x05\xf9 \xa1c\xd7" + bytes(600))
    with pytest.raises(RunError, match=r"run\.db-journal is a journal that judgeq doesn't make"):
        SqliteStore(path)
    assert (tmp_path / "run.db-journal").exists()


def test_a_linked_run_folder_is_read_and_not_written(tmp_path: Path) -> None:
    assert invoke(tmp_path, *RUN)[0] == 0
    run = only_run(tmp_path)
    run.rename(tmp_path / "real")
    run.symlink_to(tmp_path / "real")
    before = {path.name: path.read_bytes() for path in (tmp_path / "real").iterdir()}
    assert invoke(tmp_path, "status", run.name)[0] == 0
    for words in (RUN, ("resume", run.name), ("show", run.name, "--write")):
        code, output = invoke(tmp_path, *words)
        assert (code, "is a link to a folder" in output) == (7, True), output
        assert str(tmp_path / "real") in output
    for name, content in before.items():
        assert (tmp_path / "real" / name).read_bytes() == content
    shutil.rmtree(tmp_path / "real")  # the link leads nowhere
    code, output = invoke(tmp_path, *RUN)
    assert (code, "is a link to a folder" in output) == (7, True), output
    assert not (tmp_path / "real").exists()
    assert invoke(tmp_path, *RUN, "--new")[0] == 0


def test_a_folder_or_a_pipe_in_place_of_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run.db").mkdir()
    with pytest.raises(RunError, match=r"run\.db is no ordinary file"):
        SqliteStore(tmp_path / "run.db")
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(RunError, match="lock is no ordinary file"), RunFolder(tmp_path).locked():
        pass
    os.mkfifo(tmp_path / "holder")
    assert read_start(tmp_path / "holder", 9) == ""


def test_small_files(tmp_path: Path, mine: Path) -> None:
    refuse_links(mine, tmp_path / "none", tmp_path / "none" / "either")
    (tmp_path / "holder").symlink_to(mine)
    with pytest.raises(OSError, match=r"symbolic link"):
        read_start(tmp_path / "holder", 4)
    write_new(tmp_path / "holder", "me\n")
    assert (read_start(tmp_path / "holder", 2), mine.read_text()) == ("me", "dear diary\n")
    with replacing(tmp_path / "secret", private=True) as file:
        file.write("x\r\n")
    assert (tmp_path / "secret").read_bytes() == b"x\r\n"
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600


def test_a_swapped_temporary_file_is_not_written_through(tmp_path: Path, mine: Path) -> None:
    with replacing(tmp_path / "scores.csv") as file:
        (temporary,) = tmp_path.glob(".scores.csv.*")
        temporary.unlink()
        temporary.symlink_to(mine)
        file.write("id\n")
    assert mine.read_text() == "dear diary\n"
    assert mine.stat().st_mode & 0o777 == 0o644


def test_who_holds_a_run_is_not_read_through_a_link(
    tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "LOCK_WAIT", 0)
    folder = RunFolder(tmp_path / "demo")
    with folder.locked():
        (folder.path / "holder").unlink()
        (folder.path / "holder").symlink_to(mine)
        with pytest.raises(RunError, match=r"run demo is in use\. "), folder.locked():
            pass
    assert mine.read_text() == "dear diary\n"


def test_nothing_is_read_that_is_waited_for_or_never_ends(tmp_path: Path, mine: Path) -> None:
    (tmp_path / "link").symlink_to(mine)
    assert ordinary(tmp_path / "link").read_text() == "dear diary\n"
    os.mkfifo(tmp_path / "pipe")
    for path, what in ((tmp_path / "pipe", "pipe"), (Path("/dev/zero"), "device")):
        with pytest.raises(OSError, match=f"it is a {what}; save its content"):
            ordinary(path)


# Room for more open files


@needs_limits
def test_the_soft_limit_is_raised_as_far_as_it_is_needed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (150, hard))
    try:
        assert files.room_for(100) == 100
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (100 + files.RESERVE, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@needs_limits
@pytest.mark.parametrize("kind", [pytest.param("-Sn", marks=pytest.mark.long), "-n"])
def test_256_open_files_are_enough_for_the_default_concurrency(tmp_path: Path, kind: str) -> None:
    (tmp_path / "t.csv").write_text("text\n" + "".join(f"text {i}\n" for i in range(2 * JOBS)))
    job = ("run", "-d", "t.csv", "--prompt", "bias", "--strategy", "pairwise1", "--no-cache")
    with mock(tmp_path, "--latency", "1", "--rpm", "100000") as url:
        words = command(*job, "--judge", "m", "--base-url", url)
        process = started(tmp_path, "sh", "-c", f'ulimit {kind} 256 && exec "$@"', "sh", *words)
        _, told = process.communicate(timeout=LONGEST)
        seen = stats(url)
    assert process.returncode == 0, told
    assert seen["requests"] == JOBS
    assert "retries" not in told.replace("0 retries", "")
    assert ("few files open at once" in told) == (kind == "-n")
    assert (seen["most_in_flight"] > 200) == (kind == "-Sn")
    assert 100 < seen["most_in_flight"] <= 256
    counted = query(only_run(tmp_path), "SELECT count(*), sum(outcome = 'ok') FROM calls")
    assert counted == [(JOBS, JOBS)]


@needs_limits
def test_few_open_files_still_allow_several_calls_at_once(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("text\n" + "".join(f"text {i}\n" for i in range(400)))
    job = ("run", "-d", "t.csv", "--prompt", "bias", "--strategy", "pairwise1")
    with mock(tmp_path, "--latency", "0.2") as url:
        words = command(*job, "--judge", "m", "--base-url", url)
        process = started(tmp_path, "sh", "-c", 'ulimit -n 64 && exec "$@"', "sh", *words)
        _, told = process.communicate(timeout=LONGEST)
        seen = stats(url)
    assert process.returncode == 0, told
    assert "24 calls are in flight together at most" in " ".join(told.split())
    assert "can't be used" not in told  # the cache, for which there was a file as well
    assert seen["requests"] == 200
    assert 4 < seen["most_in_flight"] <= 24


@contextmanager
def full() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/dev/fd").iterdir())) + 8, hard))
    opened: list[int] = []
    try:
        with suppress(OSError):
            while True:
                opened.append(os.dup(0))
        yield
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@needs_limits
async def test_no_room_for_a_connection_means_fewer_at_once_and_no_failed_server() -> None:
    async with answering(saying({})) as url, backend(url) as made:
        with full(), pytest.raises(ConnectionFailedError, match="Too many open") as caught:
            await ask(made)
    assert (caught.value.cost, caught.value.unavailable) == (0.0, True)
    assert caught.value.too_many
