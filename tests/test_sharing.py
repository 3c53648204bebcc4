"""Judgments shared: exported, imported, and said again by a recorded judge."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from judgeq import api, config, run_places
from judgeq.engine import import_run, results
from judgeq.engine.results import Result
from judgeq.engine.status import state
from judgeq.errors import DataError, RunError, UsageError
from judgeq.evaluation.evaluate import evaluated
from judgeq.evaluation.metrics import Measured
from judgeq.imports import recordings
from judgeq.run_places import RunFolder, RunPlace
from judgeq.ui.dataclass_json import plain
from tests import python
from tests.cli import execute, json_of, judgeq, only_run, query, score_columns, scores
from tests.fakes import faults


def exported(folder: RunPlace, path: Path) -> Path:
    """A file of the run's judgments, as `judgeq export` writes it."""
    ids, rounds, judges = asyncio.run(results.judgments(folder))
    lines = recordings.lines(recordings.of(rounds, judges), ids)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def imported(path: Path, root: Path, dataset: str = "demo", **settings: Any) -> Result:
    """The result of the run that `judgeq import` makes."""
    given = config.settle({"dataset": dataset, **settings})
    folder, before, _ = import_run.import_judgments(given, import_run.reading(path), root)
    assert not before
    return evaluated(asyncio.run(results.read(folder, given)))


def measures(result: Result) -> dict[tuple[str, str], Mapping[str, Measured]]:
    return {(one.items, one.rating): one.measures for one in result.evaluation}


def same(one: Result, other: Result) -> None:
    """Equal scores, bit by bit; `left_after` aside, which an import can't know."""
    assert list(one.scores.ids) == list(other.scores.ids)
    assert one.scores.ratings.keys() == other.scores.ratings.keys()
    for name, values in one.scores.ratings.items():
        np.testing.assert_array_equal(values, other.scores.ratings[name])
    np.testing.assert_array_equal(one.scores.matches, other.scores.matches)
    np.testing.assert_array_equal(one.scores.wins, other.scores.wins)
    assert measures(one) == measures(other)
    assert order(one) == order(other)


def order(result: Result) -> Any:
    return nameless(plain(result))


def nameless(order: Any) -> Any:
    """Without the judges' names: an import of one judge alone doesn't know it."""
    return {name: order[name] for name in ("slots", "both_orders", "effect")}


def changed(path: Path, number: int, **values: Any) -> None:
    """Change values of a line of a recording (numbered from 1)."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | values)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of the demo in runs/, and its judgments in demo.jsonl."""
    folder = tmp_path_factory.mktemp("demo")
    judgeq(folder, "run", "-d", "demo", "--quiet")
    done = judgeq(folder, "export", "last", "--out", "demo.jsonl")
    assert done.stdout == ""
    return folder


def test_an_imported_run_is_as_the_one_that_was_exported(demo: Path, tmp_path: Path) -> None:
    file = demo / "demo.jsonl"
    run = only_run(demo)
    first = plain(api.open_run(str(run)))
    done = judgeq(tmp_path, "import", "-d", "demo", file, "--json")
    second = json.loads(done.stdout)
    there = only_run(tmp_path)
    assert second["run"] == there.name
    assert there.name.startswith("demo-imported-")
    for one, other in zip(first["evaluation"], second["evaluation"], strict=True):
        assert one == other
    assert nameless(second) == nameless(first)
    assert second["jobs"] == first["jobs"]
    assert (second["rounds"], second["calls"], second["cost"]) == (3, 0, 0)
    assert second["cost_equivalent_calls"] == first["cost_equivalent_calls"] == 360
    assert not second["partial"]
    assert scores(there) == scores(run)
    shown = judgeq(tmp_path, "export").stdout
    assert shown.encode() == file.read_bytes()
    again = judgeq(tmp_path, "import", "-d", "demo", file)
    assert "was imported before; --new imports it again beside it" in again.stderr
    assert "judged by recorded" in again.stdout
    assert "simulated" not in again.stdout
    assert only_run(tmp_path) == there
    # Named by ids, they are the same judgments.
    ids = score_columns(run)["id"]
    by_id = judgeq(demo, "export", "--by", "id").stdout
    row = json.loads(shown.split("\n")[0])["presented"][0]
    assert json.loads(by_id.split("\n")[0])["presented"][0] == ids[row]
    (tmp_path / "by-id.jsonl").write_text(by_id, encoding="utf-8")
    read = import_run.reading(tmp_path / "by-id.jsonl")
    given = config.settle({"dataset": "demo"}), read, tmp_path / "runs"
    assert import_run.import_judgments(*given) == (
        RunFolder(tmp_path / "runs" / there.name),
        True,
        (),
    )
    folder, before, _ = import_run.import_judgments(*given, new=True)
    assert (folder.id, before) == (f"{there.name}-2", False)


def test_what_can_not_be_imported_leaves_nothing(demo: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    lines = (demo / "demo.jsonl").read_text().splitlines()
    bad.write_text("\n".join([*lines[:40], '{"round": 2}', *lines[40:]]))
    runs_dir = tmp_path / "runs"
    runs_dir.mkdir()
    done = judgeq(tmp_path, "import", "-d", "demo", bad, expect=3)
    assert "bad.jsonl, line 41: " in done.stderr
    assert not list(runs_dir.iterdir())
    good, gone = demo / "demo.jsonl", tmp_path / "gone.jsonl"
    told = judgeq(tmp_path, "import", good, expect=2).stderr
    assert "No dataset is given (--dataset)" in told
    for file, root, dataset, error, message in (
        (good, runs_dir, "demos", UsageError, "Did you mean 'demo'"),
        (good, runs_dir, str(tmp_path / "gone.csv"), DataError, r"can't be read"),
        (gone, runs_dir, "demo", DataError, r"gone\.jsonl can't be read"),
        (good, bad, "demo", DataError, "can't be written"),
    ):
        with pytest.raises(error, match=message):
            imported(file, root, dataset)
    assert not list(runs_dir.iterdir())
    done = judgeq(demo, "export", "--by", "name", expect=2)
    assert "'--by': 'name' is not one of 'row', 'id'" in done.stderr


def test_a_run_appears_whole_or_not_at_all(
    demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Sequence[RunFolder]] = []

    async def full(*_: object) -> None:
        seen.append(run_places.FolderRuns(tmp_path / "runs").all())
        raise RunError("the disk is full")

    monkeypatch.setattr("judgeq.store.sqlite.SqliteStore.plan_round", full)
    with pytest.raises(RunError, match="the disk is full"):
        imported(demo / "demo.jsonl", tmp_path / "runs")
    assert seen == [[]]  # nor is it seen while it is filled: the process may be killed then
    assert not list((tmp_path / "runs").iterdir())


@pytest.mark.parametrize(
    "strategy", ["direct", "pairwise3", "listwise7x2", "tail:w=2,p=20,rounds=5", "streak:r=2,d=2"]
)
def test_runs_come_back_as_they_went(tmp_path: Path, strategy: str) -> None:
    whole = python.run("demo", strategy=strategy, runs_dir=tmp_path / "one")
    file = exported(whole.run, tmp_path / "one.jsonl")
    again = imported(file, tmp_path / "two")
    same(whole, again)
    assert again.rounds == whole.rounds
    pruned = strategy.startswith(("tail", "streak"))
    assert bool(whole.scores.left_after.any()) == pruned
    assert not again.scores.left_after.any()
    assert exported(again.run, tmp_path / "two.jsonl").read_bytes() == file.read_bytes()


def test_only_verdicts_are_exported(tmp_path: Path) -> None:
    with faults(unreadable=0.5):
        part = python.run("demo", strategy="listwise10x2", runs_dir=tmp_path / "one")
    assert part.counts.invalid > 5
    file = exported(part.run, tmp_path / "one.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == part.counts.done
    groups = [line["group"] for line in lines if line["round"] == 2]
    assert groups == [*range(len(groups))]
    same(part, imported(file, tmp_path / "two"))
    left = "UPDATE jobs SET state = 'pending' WHERE id >= 20"
    execute(part.run.database, "DELETE FROM verdicts WHERE job >= 20", left)
    assert asyncio.run(state(part.run)).word == "stopped"
    lines = exported(part.run, tmp_path / "part.jsonl").read_text().splitlines()
    found = query(part.run.path, "SELECT count(*) FROM verdicts")
    assert [(len(lines),)] == found
    assert imported(tmp_path / "part.jsonl", tmp_path / "three").rounds == 1


def test_what_an_import_should_know_is_reported(tmp_path: Path) -> None:
    data, file = tmp_path / "my.csv", tmp_path / "my.jsonl"
    data.write_text("id,text\n1,a\n0,b\n2,c\n")
    lines = ['{"presented": ["0", "1"], "winner": "0", "judge": "x", "worker": 7}'] * 2
    file.write_text("\n".join(lines))
    done = judgeq(tmp_path, "import", "-d", data, "--id-column", "id", file, "--quiet")
    assert "1 judgments repeat an earlier one" in done.stderr
    assert "'worker'" in done.stderr
    # Row numbers that are other rows' ids are written as ids, and asked about.
    for line in judgeq(tmp_path, "export").stdout.splitlines():
        assert json.loads(line)["presented"] == ["0", "1"]
    file.write_text(judgeq(tmp_path, "export", "--by", "row").stdout)
    given = ("import", "-d", data, "--id-column", "id", file)
    done = judgeq(tmp_path, *given, expect=3)
    assert "1 may be row 1 or the item in row 0" in done.stderr
    done = judgeq(tmp_path, *given, "--items", "rows")
    assert "was imported before" in done.stderr
    assert "was imported before" not in judgeq(tmp_path, *given, "--items", "ids").stderr
    wrong = judgeq(tmp_path, *given, "--items", "row", expect=2).stderr
    assert "'--items': 'row' is not one of 'rows', 'ids'" in wrong


def failed(file: Path, demo: Path, times: int) -> Path:
    """The demo's recording, with the first lists as a failed call is recorded by some."""
    file.write_text((demo / "demo.jsonl").read_text())
    for number in range(1, times + 1):
        line = json.loads(file.read_text().splitlines()[number - 1])
        changed(file, number, ranking=line["presented"])
    return file


def test_failures_recorded_as_presented_are_reported_and_left_out(
    demo: Path, tmp_path: Path
) -> None:
    file = failed(tmp_path / "failed.jsonl", demo, 4)
    given = ("import", "-d", "demo", file, "--quiet")
    done = judgeq(tmp_path, *given)
    assert "4 of 72 lists were ranked exactly in the order presented" in done.stderr
    assert "--drop-identity" in done.stderr
    done = judgeq(tmp_path, *given, "--drop-identity", "--json")
    assert "4 lists ranked exactly as presented: left out" in done.stderr
    dropped = json.loads(done.stdout)["run"]
    assert "imported before" not in done.stderr
    assert len(judgeq(tmp_path, "export", dropped).stdout.splitlines()) == 68
    # The same as a recording that never had them.
    lines = file.read_text().splitlines()[4:]
    file.write_text("".join(f"{line}\n" for line in lines))
    assert json_of(tmp_path, *given)["run"] == dropped
    assert "lists" not in judgeq(tmp_path, *given).stderr
