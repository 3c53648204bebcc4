from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from judgeq.config import Settings
from judgeq.errors import RunError
from judgeq.files import replacing
from judgeq.run_places import FolderRuns, RunFolder, RunInfo, folders, network_file_system, whoami
from judgeq.run_places.folders import file_system

PRINT = "0123456789abcdef" * 4


def info(fingerprint: str = PRINT) -> RunInfo:
    return RunInfo(
        judgeq="0.1.0", created=datetime(2026, 1, 2, tzinfo=UTC), fingerprint=fingerprint,
        facts={"seed": 1, "dataset": "ü"}, settings=Settings(dataset="demo", data_dir=Path("x")),
        dataset="demo", source="here", items=3, labels="", licence="", gold_kind=None,
        gold_meaning="", strategy="listwise10", rounds=3,
    )  # fmt: skip


def made(folder: RunFolder, *, fingerprint: str = PRINT, touched: float | None = None) -> RunFolder:
    folder.path.mkdir(parents=True)
    folder.write_info(info(fingerprint))
    if touched is not None:
        folder.database.write_bytes(b"x")
        os.utime(folder.database, (touched, touched))
    return folder


# config.json


def test_what_a_run_is_comes_back(tmp_path: Path) -> None:
    folder = made(RunFolder(tmp_path / "a"))
    assert folder.info() == info()
    assert {path.name for path in folder.path.iterdir()} == {"config.json", "run.db"}
    assert (folder.id, folder.database.name, folder.scores.name) == ("a", "run.db", "scores.csv")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, r"is no run: .*config\.json can't be read \(No such file"),
        (
            b"{",
            r"config\.json can't be read: .*JSON.*another version of judgeq, or changed by hand",
        ),
        (b"\xff", r"config\.json can't be read: "),
        (b"{}", r"config\.json can't be read: judgeq: Field required"),
        (info().model_dump_json().replace('"seed":0', '"seed":-1').encode(), r"settings\.seed: "),
        (info().model_dump_json().replace('"rounds":3', '"turns":3').encode(), "rounds: Field req"),
    ],
)
def test_what_is_no_run_is_told(tmp_path: Path, text: bytes | None, told: str) -> None:
    if text is not None:
        (tmp_path / "config.json").write_bytes(text)
    with pytest.raises(RunError, match=told):
        RunFolder(tmp_path).info()


def test_touched_is_when_the_ledger_was_last_written(tmp_path: Path) -> None:
    folder = made(RunFolder(tmp_path / "a"))
    folder.database.unlink()
    assert folder.touched() == 0
    folder.database.write_bytes(b"x")
    os.utime(folder.database, (50, 50))
    log = folder.path / "run.db-wal"
    log.touch()  # as a reader leaves it
    assert folder.touched() == 50
    log.write_bytes(b"x")
    os.utime(log, (70, 70))
    assert folder.touched() == 70


# Replacing a file


def test_replacing_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write("new")
        assert path.read_text() == "old"
        assert len(list(tmp_path.iterdir())) == 2
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["scores.csv"]


def test_a_replaced_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "other").touch()
    with replacing(tmp_path / "scores.csv"):
        pass
    assert (tmp_path / "scores.csv").stat().st_mode == (tmp_path / "other").stat().st_mode


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_replacing_leaves_nothing_behind_on_an_error(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "scores.csv"
    path.write_text("old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write("half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["scores.csv"]


def test_replacing_in_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(RunError, match="can't be written: No such file"),
        replacing(tmp_path / "none" / "scores.csv"),
    ):
        pass


# Where a run is


def test_a_new_run_gets_a_name_that_can_be_a_folder(tmp_path: Path) -> None:
    folder = FolderRuns(tmp_path).place("synthetic:normal-listwise10/../x y", PRINT, new=False)
    assert folder.path == tmp_path / "synthetic-normal-listwise10-..-x-y-0123456789"
    assert not folder.path.exists()
    assert FolderRuns(tmp_path).place("::", PRINT, new=False).id == "run-0123456789"
    assert FolderRuns(tmp_path).place("..", PRINT, new=False).id == "run-0123456789"


def test_the_same_run_is_found_again_and_new_ones_are_numbered(tmp_path: Path) -> None:
    found: list[str] = []
    for _ in range(3):
        assert FolderRuns(tmp_path).place("demo", PRINT, new=False).id == (
            found[-1] if found else "demo-0123456789"
        )
        folder = made(FolderRuns(tmp_path).place("demo", PRINT, new=True))
        found.append(folder.id)
    assert found == ["demo-0123456789", "demo-0123456789-2", "demo-0123456789-3"]
    assert FolderRuns(tmp_path).place("demo", PRINT, new=False).id == "demo-0123456789-3"
    assert FolderRuns(tmp_path).place("demo", "f" + PRINT, new=False).id == "demo-f012345678"


def test_a_run_killed_before_it_said_what_it_is_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "demo-0123456789").mkdir()
    assert FolderRuns(tmp_path).place("demo", PRINT, new=False).id == "demo-0123456789"


def test_another_runs_folder_is_refused(tmp_path: Path) -> None:
    other = PRINT[:10] + "f" * 54
    made(RunFolder(tmp_path / "demo-0123456789"), fingerprint=other)
    for new in (False, True):
        with pytest.raises(RunError, match=r"holds another run.*move it away"):
            FolderRuns(tmp_path).place("demo", PRINT, new)


# Finding


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    for touched, name in enumerate(["babe-1", "demo-1", "demo-12", "demo-1-2"], 100):
        made(RunFolder(root / name), touched=touched)
    made(RunFolder(root / "begun")).database.unlink()  # the ledger was lost
    (root / "not a run").mkdir()
    (root / "demo-file").touch()
    os.utime(root / "demo-1" / "run.db", (900, 900))
    return root


def test_runs_are_listed_the_latest_first(root: Path) -> None:
    listed = [folder.id for folder in FolderRuns(root).all()]
    assert listed == ["demo-1", "demo-1-2", "demo-12", "babe-1", "begun"]
    assert FolderRuns(root / "none").all() == []


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("b", None),
        ("ba", "babe-1"),
        ("last", "demo-1"),
        ("demo-1", "demo-1"),
        ("demo-12", "demo-12"),
    ],
)
def test_a_run_is_found_by_a_beginning_of_its_id(root: Path, name: str, found: str | None) -> None:
    if found is None:
        with pytest.raises(RunError, match=r"'b' means 2 runs: babe-1, begun\. Give more"):
            FolderRuns(root).find(name)
    else:
        assert FolderRuns(root).find(name).path == root / found


def test_a_run_is_found_by_its_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert FolderRuns(root).find(str(root / "demo-12")).path == root / "demo-12"
    monkeypatch.chdir(root)
    for name in ("demo-12", "./demo-12/", "../runs/demo-12"):
        assert FolderRuns(Path("elsewhere")).find(name).path == root / "demo-12"
    monkeypatch.chdir("demo-12")
    assert FolderRuns(Path("elsewhere")).find(".").id == "demo-12"


def test_what_is_not_found_is_told(root: Path) -> None:
    with pytest.raises(RunError, match=r"there is no run 'zzz' in .*runs; `judgeq runs` lists"):
        FolderRuns(root).find("zzz")
    with pytest.raises(RunError, match="no run 'not a run'"):
        FolderRuns(root).find("not a run")
    for name in ("last", "demo", ""):
        with pytest.raises(RunError, match=r"No runs yet in .*none"):
            FolderRuns(root / "none").find(name)
    for number in range(9):
        made(RunFolder(root / f"many-{number}"))
    with pytest.raises(RunError, match=r"means 9 runs: many-\d(, many-\d){4} …\. Give more"):
        FolderRuns(root).find("many")


# Locks

HOLDS = """
import sys
from pathlib import Path
from judgeq.run_places import RunFolder
with RunFolder(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_process(folder: RunFolder) -> Iterator[subprocess.Popen[str]]:
    """A process that holds the run until it is told to end."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_run_is_held_by_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LOCK_WAIT", 0)
    folder = made(RunFolder(tmp_path / "demo"))
    assert not folder.is_running()
    with another_process(folder) as process:
        assert folder.is_running()
        told = f"run demo is in use by process {process.pid} on .*`judgeq status demo`.*--new"
        with pytest.raises(RunError, match=told), folder.locked():
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.wait(10)
        assert not folder.is_running()
        with folder.locked():  # what the dead left is no hindrance
            assert (folder.path / "holder").read_text() == f"{whoami()}\n"
            assert folder.is_running()
            with (
                pytest.raises(RunError, match=f"in use by process {os.getpid()} on"),
                folder.locked(),
            ):
                pass
            assert (folder.path / "holder").exists()
    assert not folder.is_running()
    assert not (folder.path / "holder").exists()


def test_an_error_lets_the_run_go(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "demo")  # locked makes it

    def fail() -> None:
        with folder.locked():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not folder.is_running()
    assert not (folder.path / "holder").exists()


def test_a_folder_that_can_not_be_locked_or_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "demo" / "lock").mkdir(parents=True)
    with (
        pytest.raises(RunError, match="demo/lock is no ordinary file"),
        RunFolder(tmp_path / "demo").locked(),
    ):
        pass
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunError, match="file/demo can't be written: Not a directory"),
        RunFolder(tmp_path / "file" / "demo").locked(),
    ):
        pass


# File systems

MOUNTS = r"""
/dev/sda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
systemd-1 /home autofs rw 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/sdb1 /home/me/local xfs rw 0 0
//nas/team /mnt/team\040share cifs rw 0 0
10.0.0.1@tcp:/scratch /scratch lustre rw 0 0
tmpfs /scratch/tmp tmpfs rw 0 0
me@host: /mnt/ssh fuse.sshfs rw 0 0
C:\134 /mnt/c 9p rw 0 0
""".strip()


@pytest.mark.parametrize(
    ("folder", "kind"),
    [
        ("/", None),
        ("/var/runs", None),
        ("/home/me/runs", "nfs4"),
        ("/home", "nfs4"),
        ("/homestead/runs", None),
        ("/home/me/local/runs", None),
        ("/mnt/team share/runs", "cifs"),
        ("/mnt/team", None),
        ("/scratch/me", "lustre"),
        ("/scratch/tmp/me", None),
        ("/mnt/ssh", "fuse.sshfs"),
        ("/mnt/c/runs", "9p"),
    ],
)
def test_network_file_systems_are_known(folder: str, kind: str | None) -> None:
    assert file_system(Path(folder), MOUNTS) == kind


def test_a_mount_over_another_counts() -> None:
    mounts = "server:/a /data nfs rw 0 0\n/dev/sdc /data ext4 rw 0 0\n"
    assert file_system(Path("/data/runs"), mounts) is None
    assert file_system(Path("/data/runs"), "") is None


def test_this_machine_has_a_table_or_none(tmp_path: Path) -> None:
    assert isinstance(network_file_system(tmp_path), str | None)
