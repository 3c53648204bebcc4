"""One run folder that can't be read is listed as that, and stands in nobody's way."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest

from judgeq.errors import RunError
from judgeq.run_places import RunFolder
from tests.cli import ended, judgeq, only_run

pytestmark = pytest.mark.usefixtures("rated_by_elo")

RUN = ("run", "--dataset", "synthetic:normal", "--n", "20", "--strategy", "listwise5", "--quiet")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unreadable")
    judgeq(folder, *RUN)
    return only_run(folder)


@pytest.fixture
def root(finished: Path, tmp_path: Path) -> Path:
    """Two runs; the later is "bad"."""
    for name, touched in (("good", 1_000), ("bad", 2_000)):
        shutil.copytree(finished, tmp_path / "runs" / name)
        os.utime(tmp_path / "runs" / name / "run.db", (touched, touched))
    return tmp_path / "runs"


def invoke(root: Path, *arguments: str) -> tuple[int, str, str]:
    done = ended(root.parent, *arguments, "--runs-dir", root)
    return done.returncode, done.stdout, done.stderr


def newest(path: Path) -> None:
    os.utime(path, (3_000, 3_000), follow_symlinks=False)


def garbage_config(run: Path) -> None:
    (run / "config.json").write_text("{")


def odd_date(run: Path) -> None:
    text = (run / "config.json").read_text()
    values = json.loads(text) | {"created": "0001-01-01T00:00:00Z"}
    (run / "config.json").write_text(json.dumps(values))


def garbage_database(run: Path) -> None:
    (run / "run.db").write_bytes(b"garbage" * 1000)
    newest(run / "run.db")


def no_database_but_a_folder(run: Path) -> None:
    (run / "run.db").unlink()
    (run / "run.db").mkdir()
    newest(run / "run.db")


def a_link_to_itself(run: Path) -> None:
    (run / "run.db").unlink()
    (run / "run.db").symlink_to("run.db")


def no_database(run: Path) -> None:
    (run / "run.db").unlink()


def no_database_but_its_log(run: Path) -> None:
    (run / "run.db").rename(run / "run.db-wal")


def an_emptied_database(run: Path) -> None:
    (run / "run.db").write_bytes(b"")


def a_database_without_tables(run: Path) -> None:
    (run / "run.db").unlink()
    with closing(sqlite3.connect(run / "run.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


LOST = [no_database, no_database_but_its_log, an_emptied_database, a_database_without_tables]
SPOILT = [
    *(garbage_config, odd_date, garbage_database, no_database_but_a_folder, a_link_to_itself),
    *LOST,
]


@pytest.mark.parametrize("spoil", SPOILT)
def test_it_is_listed_with_the_reason(root: Path, spoil: Callable[[Path], None]) -> None:
    spoil(root / "bad")
    code, output, errors = invoke(root, "runs")
    assert code == 0
    assert "finished" in output
    assert "unreadable" in output
    assert "bad can't be read: " in errors
    code, output, _ = invoke(root, "runs", "--json")
    listed = {run["run"]: run for run in json.loads(output)}
    assert listed["good"]["state"] == "finished"
    assert listed["bad"]["state"] == "unreadable"
    assert listed["bad"]["reason"] in errors


@pytest.mark.parametrize("spoil", SPOILT)
def test_the_others_are_used_as_before(root: Path, spoil: Callable[[Path], None]) -> None:
    spoil(root / "bad")
    for command in ("status", "show --write", "resume"):
        code, _, errors = invoke(root, *command.split(), "good")
        assert code == 0, errors
    code, _, errors = invoke(root, "status", "bad")
    assert code == 7
    assert "bad" in errors


@pytest.mark.parametrize("spoil", [garbage_config, garbage_database, no_database_but_a_folder])
@pytest.mark.parametrize("command", ["status", "resume", "show --write"])
def test_last_names_it_rather_than_another(
    root: Path, spoil: Callable[[Path], None], command: str
) -> None:
    spoil(root / "bad")
    code, _, errors = invoke(root, *command.split(), "last")
    assert code == 7
    assert str(root / "bad") in errors
    if spoil is garbage_config:
        assert "the last run, bad, can't be read" in errors
        assert "can't be read: Invalid JSON" in errors
        assert "The latest before it is good." in errors


def test_a_folder_that_may_not_be_looked_into(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = os.stat

    def refuse(path: object, *arguments: object, **more: object) -> os.stat_result:
        if str(path).startswith(str(root / "bad") + os.sep):
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", refuse)
    read = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        refuse(path)
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    code, output, errors = invoke(root, "runs")
    assert (code, "unreadable" in output) == (0, True)
    assert "Permission denied" in errors
    assert invoke(root, "status", "last")[0] == 0


def test_a_run_that_can_not_be_read_is_begun_anew_beside_it(finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    shutil.copytree(finished, root / finished.name)
    garbage_config(root / finished.name)
    code, _, errors = invoke(root, *RUN)
    assert code == 7
    assert "begin beside it with --new" in errors
    assert invoke(root, *RUN, "--new")[0] == 0
    assert (root / f"{finished.name}-2").is_dir()


@pytest.mark.parametrize("spoil", LOST)
def test_a_run_whose_ledger_is_lost_is_not_begun_anew_in_its_place(
    finished: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    root = tmp_path / "runs"
    run = root / finished.name
    shutil.copytree(finished, run)
    spoil(run)
    before = {path.name: path.read_bytes() for path in run.iterdir() if path.name != "lock"}
    commands = [RUN, (*RUN, "--dry-run"), ("resume", run.name), ("show", run.name, "--write")]
    if spoil is no_database:
        commands += [
            (name, run.name) for name in ("status", "show", "evaluate", "export", "report")
        ]
        commands += [("status", run.name, "--watch")]
    for command in commands:
        code, _, errors = invoke(root, *command)
        assert code == 7, (command, errors)
        assert f"{run / 'run.db'} is " in errors
        assert "the same `judgeq run` with --new" in " ".join(errors.split())
    assert {name: (run / name).read_bytes() for name in before} == before
    assert invoke(root, *RUN, "--new")[0] == 0
    assert invoke(root, *RUN)[0] == 0  # of the new one from now on
    assert (root / f"{finished.name}-2" / "scores.csv").read_bytes() == before["scores.csv"]


@pytest.mark.parametrize("step", ["make_store", "replacing"])
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


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_in_place_of_the_configuration_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(RunError, match="no ordinary file"):
        RunFolder(tmp_path).info()
