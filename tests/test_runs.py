"""Run folders: what they hold, made, found, held; those that can't be read; and how far runs are."""

import asyncio
import json
import os
import shutil
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

import judgeq as package
from judgeq.cli import show
from judgeq.config import Settings
from judgeq.engine import results, status
from judgeq.engine.results import Result
from judgeq.errors import RunError
from judgeq.run_places import FolderRuns, RunFolder, RunInfo, RunPlace, folders, whoami
from judgeq.run_places.folders import file_system
from tests.cli import ended, json_of, judgeq, only_run

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


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, r"is no run: .*config\.json can't be read \(No such file"),
        (b"{", r"config\.json can't be read: .*JSON.*another version of judgeq, or changed by h"),
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


def placed(root: Path, name: str, fingerprint: str = PRINT) -> str:
    return FolderRuns(root).place(name, fingerprint, new=False).id


def test_a_new_run_gets_a_name_that_can_be_a_folder(tmp_path: Path) -> None:
    odd = "synthetic:normal-listwise10/../x y"
    assert placed(tmp_path, odd) == "synthetic-normal-listwise10-..-x-y-0123456789"
    assert not (tmp_path / placed(tmp_path, odd)).exists()
    assert placed(tmp_path, "::") == placed(tmp_path, "..") == "run-0123456789"


def test_the_same_run_is_found_again_and_new_ones_are_numbered(tmp_path: Path) -> None:
    for name in ("demo-0123456789", "demo-0123456789-2", "demo-0123456789-3"):
        assert made(FolderRuns(tmp_path).place("demo", PRINT, new=True)).id == name
        assert placed(tmp_path, "demo") == name
    assert placed(tmp_path, "demo", "f" + PRINT) == "demo-f012345678"


def test_another_runs_folder_is_refused(tmp_path: Path) -> None:
    other = PRINT[:10] + "f" * 54
    made(RunFolder(tmp_path / "demo-0123456789"), fingerprint=other)
    for new in (False, True):
        with pytest.raises(RunError, match=r"holds another run.*move it away"):
            FolderRuns(tmp_path).place("demo", PRINT, new)


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
    [("ba", "babe-1"), ("last", "demo-1"), ("demo-1", "demo-1"), ("demo-12", "demo-12")],
)
def test_a_run_is_found_by_a_beginning_of_its_id(root: Path, name: str, found: str) -> None:
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
    with pytest.raises(RunError, match=r"'b' means 2 runs: babe-1, begun\. Give more"):
        FolderRuns(root).find("b")
    for name in ("last", "demo", ""):
        with pytest.raises(RunError, match=r"No runs yet in .*none"):
            FolderRuns(root / "none").find(name)
    for number in range(9):
        made(RunFolder(root / f"many-{number}"))
    with pytest.raises(RunError, match=r"means 9 runs: many-\d(, many-\d){4} …\. Give more"):
        FolderRuns(root).find("many")


def test_a_run_is_held_by_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "LOCK_WAIT", 0)
    folder = made(RunFolder(tmp_path / "demo"))
    (folder.path / "holder").write_text("one that died\n")  # and is no hindrance
    assert not folder.is_running()
    with folder.locked():
        assert (folder.path / "holder").read_text() == f"{whoami()}\n"
        assert folder.is_running()
        told = f"run demo is in use by process {os.getpid()} on .*`judgeq status demo`.*--new"
        with pytest.raises(RunError, match=told), folder.locked():
            pass
        assert (folder.path / "holder").exists()
    assert not folder.is_running()
    assert not (folder.path / "holder").exists()


def test_a_folder_that_can_not_be_locked_or_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "demo" / "lock").mkdir(parents=True)
    (tmp_path / "file").touch()
    for name, told in (
        ("demo", "demo/lock is no ordinary file"),
        ("file/demo", "file/demo can't be written: Not a directory"),
    ):
        with pytest.raises(RunError, match=told), RunFolder(tmp_path / name).locked():
            pass


MOUNTS = r"""
/dev/sda1 / ext4 rw,relatime 0 0
server:/home /home nfs4 rw,vers=4.2 0 0
/dev/sdb1 /home/me/local xfs rw 0 0
//nas/team /mnt/team\040share cifs rw 0 0
me@host: /mnt/ssh fuse.sshfs rw 0 0
""".strip()


def test_network_file_systems_are_known() -> None:
    for folder, kind in (
        ("/var/runs", None),
        ("/home/me/runs", "nfs4"),
        ("/homestead/runs", None),
        ("/home/me/local/runs", None),
        ("/mnt/team share/runs", "cifs"),
        ("/mnt/ssh", "fuse.sshfs"),
    ):
        assert file_system(Path(folder), MOUNTS) == kind


RUN = ("run", "--dataset", "synthetic:normal", "--n", "20", "--strategy", "listwise5", "--quiet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unreadable")
    judgeq(folder, *RUN)
    return only_run(folder)


@pytest.fixture
def spoilable(finished: Path, tmp_path: Path) -> Path:
    """Two runs; the later is "bad"."""
    for name, touched in (("good", 1_000), ("bad", 2_000)):
        shutil.copytree(finished, tmp_path / "runs" / name)
        os.utime(tmp_path / "runs" / name / "run.db", (touched, touched))
    return tmp_path / "runs"


def invoke(root: Path, *arguments: str) -> tuple[int, str, str]:
    done = ended(root.parent, *arguments, "--runs-dir", root)
    return done.returncode, done.stdout, done.stderr


LOST = ("no database", "only its log", "empty", "no tables")
SPOILT = ("garbage in config", "odd date", "garbage", "folder", "link to itself", *LOST)


def spoil(run: Path, how: str) -> None:
    """Spoil a run's config.json or its run.db, which is then the newest."""
    database, config = run / "run.db", run / "config.json"
    if how == "garbage in config":
        config.write_text("{")
    elif how == "odd date":
        values = json.loads(config.read_text()) | {"created": "0001-01-01T00:00:00Z"}
        config.write_text(json.dumps(values))
    elif how == "only its log":
        database.rename(run / "run.db-wal")
    else:
        database.unlink()
        if how in ("garbage", "empty"):
            database.write_bytes(b"garbage" * 1000 if how == "garbage" else b"")
        elif how == "folder":
            database.mkdir()
        elif how == "link to itself":
            database.symlink_to("run.db")
        elif how == "no tables":
            with closing(sqlite3.connect(database)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
    if os.path.lexists(database):
        os.utime(database, (3_000, 3_000), follow_symlinks=False)


@pytest.mark.parametrize("how", SPOILT)
def test_it_is_listed_with_the_reason_and_others_are_used(spoilable: Path, how: str) -> None:
    spoil(spoilable / "bad", how)
    code, output, errors = invoke(spoilable, "runs", "--json")
    listed = {run["run"]: run for run in json.loads(output)}
    assert (code, listed["good"]["state"], listed["bad"]["state"]) == (0, "finished", "unreadable")
    assert f"bad can't be read: {listed['bad']['reason']}" in errors
    assert invoke(spoilable, "status", "good")[0] == 0
    assert invoke(spoilable, "status", "bad")[0] == 7


@pytest.mark.parametrize("how", LOST)
def test_a_run_whose_ledger_is_lost_is_not_begun_anew_in_its_place(
    finished: Path, tmp_path: Path, how: str
) -> None:
    root = tmp_path / "runs"
    run = root / finished.name
    shutil.copytree(finished, run)
    spoil(run, how)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.name != "lock"}
    for command in (RUN, (*RUN, "--dry-run"), ("resume", run.name), ("status", run.name)):
        code, _, errors = invoke(root, *command)
        assert code == 7, (command, errors)
        assert f"{run / 'run.db'} is " in errors
        assert "the same `judgeq run` with --new" in " ".join(errors.split())
    assert {name: (run / name).read_bytes() for name in before} == before
    assert invoke(root, *RUN, "--new")[0] == 0
    assert invoke(root, *RUN)[0] == 0  # of the new one from now on
    assert (root / f"{finished.name}-2" / "scores.csv").read_bytes() == before["scores.csv"]


@pytest.mark.parametrize("step", ["connect", "replacing"])
def test_a_run_that_was_killed_while_it_was_made_is_begun_all_the_same(
    finished: Path, tmp_path: Path, step: str
) -> None:
    run = RunFolder(tmp_path / "runs" / finished.name)
    info = RunFolder(finished).info()
    with run.locked(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"judgeq.run_places.folders.{step}", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run.write_info(info)
    assert run.database.exists() is (step == "replacing")
    assert not run.exists
    code, _, errors = invoke(run.path.parent, *RUN)
    assert (code, errors) == (0, "")
    assert only_run(tmp_path) == run.path
    assert run.scores.read_bytes() == (finished / "scores.csv").read_bytes()


@pytest.fixture
def run(tmp_path: Path) -> Result:
    return package.run("demo", sample=60, strategy="listwise6x3", runs_dir=tmp_path, progress=False)


def state_of(run: RunPlace) -> status.State:
    return asyncio.run(status.state(run, rated=True))


def forget(run: RunPlace, job: int) -> None:
    """As if this job had not been answered yet."""
    with closing(sqlite3.connect(run.database, isolation_level=None)) as database:
        database.execute("DELETE FROM verdicts WHERE job = ?", [job])
        database.execute("UPDATE jobs SET state = 'pending' WHERE id = ?", [job])


def test_a_finished_run_shows_its_final_ranking(run: Result) -> None:
    state = state_of(run.run)
    assert (state.word, state.complete) == ("finished", 3)
    assert state.result is not None
    np.testing.assert_array_equal(state.result.scores.main[1], run.scores.main[1])
    shown = judgeq(run.run.path.parent, "status", run.run.path).stdout
    best = run.scores.ids[int(run.scores.ratings["pl"].argmax())]
    line = next(line for line in shown.splitlines() if line.split()[:1] == ["1"])
    assert best in line
    assert f"{run.scores.ratings['pl'].max():.2f}" in line
    assert "score        pl (Plackett-Luce); also Elo. Prior σ = " in shown


def test_an_unfinished_run_shows_the_ranking_so_far(run: Result) -> None:
    forget(run.run, 25)  # of round 3
    state = state_of(run.run)
    assert (state.word, state.complete, len(state.rounds)) == ("stopped", 2, 3)
    assert state.result is not None
    assert state.result.partial
    shown = judgeq(run.run.path.parent, "status", run.run.path).stdout
    assert "round 3 of 3" in shown
    assert state.result.scores.ids[int(state.result.scores.main[1].argmax())] in shown
    forget(run.run, 0)
    assert state_of(run.run).result is None  # no round is complete


def test_a_run_is_watched_until_nobody_works_on_it(
    run: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ratings, which are made from all verdicts, are made again only when a round is complete."""
    forget(run.run, 25)
    looks, replayed = [2, 1, 0], list[int]()
    at, replay = time.sleep, results.replayed

    def pass_time(seconds: float) -> None:
        assert seconds == show.EVERY
        looks.pop(0)

    async def counted(*given: Any) -> Any:
        replayed.append(len(looks))
        return await replay(*given)

    monkeypatch.setattr(time, "sleep", pass_time)
    monkeypatch.setattr(results, "replayed", counted)
    monkeypatch.setattr(RunFolder, "is_running", lambda _: len(looks) > 1)
    folder = run.run.path.parent
    done = judgeq(folder, "status", run.run.path, "--watch")
    monkeypatch.setattr(time, "sleep", at)
    assert (looks, replayed) == ([0], [3])
    assert done.stdout == judgeq(folder, "status", run.run.path).stdout
    assert done.stdout.count("stopped") == 1


JOB = ("run", "-d", "demo", "--sample", "60", "-s", "listwise6x2", "-q")


def test_a_name_tells_runs_apart_and_is_taken_for_the_id(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "first try")
    before = only_run(tmp_path)
    judgeq(tmp_path, *JOB, "--seed", "1")
    listed = json_of(tmp_path, "runs")
    assert [one["name"] for one in listed] == [None, "first try"]
    assert {one["feature"] for one in listed} == {"biased wording"}
    shown = judgeq(tmp_path, "runs").stdout
    (line,) = [line for line in shown.splitlines() if line.startswith(before.name)]
    assert "  finished  " in line
    assert "  first try  " in line
    scores = judgeq(tmp_path, "show", "--write", "first try").stdout
    assert "Scores" in scores
    assert "judgeq report 'first try' --open" in scores
    assert FolderRuns(tmp_path / "runs").find("first try").path == before
    # It decides nothing, and goes with the same run; the same command gives it another.
    judgeq(tmp_path, *JOB)
    judgeq(tmp_path, *JOB, "--name", "second")
    assert len([*before.parent.iterdir()]) == 2
    assert before.name in judgeq(tmp_path, "status", "second").stdout


@pytest.mark.parametrize("name", ["last", "a/b", "", "x" * 61, "\x1b[2J", " a"])
def test_a_name_that_can_not_be_is_refused(tmp_path: Path, name: str) -> None:
    assert "--name" in judgeq(tmp_path, *JOB, "--name", name, expect=2).stderr
    assert not (tmp_path / "runs").exists()


def test_a_name_is_given_once(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "mine")
    run = only_run(tmp_path)
    for name in ("mine", run.name):
        done = judgeq(tmp_path, *JOB, "--seed", "1", "--name", name, expect=2)
        assert f"run {run.name} has that name. Choose another." in done.stderr
    assert only_run(tmp_path) == run


def test_a_strangers_names_neither_style_the_terminal_nor_widen_the_list(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--name", "mine")
    run = only_run(tmp_path)
    info = json.loads((run / "config.json").read_text())
    info["facts"]["prompt"]["feature"] = "\x1b[31m[red]evil " * 50
    (run / "config.json").write_text(json.dumps(info))
    run = run.rename(run.with_name("\x1b[2J[bold]evil"))
    shown = judgeq(tmp_path, "runs").stdout
    assert ("\x1b" in shown, "[bold]evil" in shown) == (False, True)
    assert max(map(len, shown.splitlines())) <= 120
    info["settings"]["name"] = "\x1b[2Jmine"
    (run / "config.json").write_text(json.dumps(info))
    done = judgeq(tmp_path, "runs")
    assert "unreadable" in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
