"""What is written: whole or not at all, and never through a link."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from judgeq.errors import RunError
from judgeq.files import ordinary, read_start, refuse_links, replacing, write_new
from judgeq.run_places import RunFolder, folders
from judgeq.store.sqlite import SqliteStore
from tests.cli import ended

pytestmark = pytest.mark.usefixtures("rated_by_elo")

RUN = ("run", "--dataset", "synthetic:normal", "--n", "20", "--strategy", "listwise5", "--quiet")
WRITTEN = ("holder", "lock", "run.db", "run.db-journal", "config.json", "scores.csv")


def invoke(folder: Path, *arguments: str | Path) -> tuple[int, str]:
    done = ended(folder, *arguments)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A file of this user's, elsewhere."""
    path = tmp_path / "mine.txt"
    path.write_text("dear diary\n")
    return path


@pytest.mark.parametrize("name", WRITTEN)
def test_a_run_writes_through_no_link(tmp_path: Path, mine: Path, name: str) -> None:
    root = tmp_path / "runs"
    assert invoke(tmp_path, *RUN)[0] == 0
    (run,) = root.iterdir()
    (run / name).unlink(missing_ok=True)
    if name == "config.json":  # the folder that somebody made beforehand
        shutil.rmtree(run)
        run.mkdir()
    if name in ("lock", "run.db", "scores.csv"):
        os.link(mine, run / name)
    else:
        (run / name).symlink_to(mine)
    before = mine.stat()
    for command in (RUN, ("resume", run.name), ("show", run.name, "--write"), ("status", run.name)):
        code, output = invoke(tmp_path, *command)
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
    root = tmp_path / "runs"
    assert invoke(tmp_path, *RUN)[0] == 0
    (run,) = root.iterdir()
    run.rename(tmp_path / "real")
    run.symlink_to(tmp_path / "real")
    before = {path.name: path.read_bytes() for path in (tmp_path / "real").iterdir()}
    assert invoke(tmp_path, "status", run.name)[0] == 0
    for command in (RUN, ("resume", run.name), ("show", run.name, "--write")):
        code, output = invoke(tmp_path, *command)
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


def test_a_temporary_file_that_somebody_swapped_is_not_written_through(
    tmp_path: Path, mine: Path
) -> None:
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


def test_a_file_to_read_is_none_that_is_waited_for_or_never_ends(
    tmp_path: Path, mine: Path
) -> None:
    (tmp_path / "link").symlink_to(mine)
    assert ordinary(tmp_path / "link").read_text() == "dear diary\n"
    os.mkfifo(tmp_path / "pipe")
    for path, what in ((tmp_path / "pipe", "pipe"), (Path("/dev/zero"), "device")):
        with pytest.raises(OSError, match=f"it is a {what}; save its content"):
            ordinary(path)
