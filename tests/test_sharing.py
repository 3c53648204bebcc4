"""Judgments shared: exported, imported, and said again by a recorded judge."""

from __future__ import annotations

import asyncio
import csv
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import copytree
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
from judgeq.ui.json import plain
from tests import python
from tests.build import SHARED, needs_recordings, recording
from tests.cli import judgeq, only_run, query, score_columns, scores
from tests.fakes import faults

ASKED = ("id", "matches", "wins", "gold")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGEQ_OFFLINE", "1")
    monkeypatch.delenv("JUDGEQ_DATA", raising=False)


def exported(folder: RunPlace, path: Path) -> Path:
    """A file of the run's judgments, as `judgeq export` writes it."""
    ids, rounds, judges = asyncio.run(results.judgments(folder))
    lines = recordings.lines(recordings.of(rounds, judges), ids)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def imported(path: Path, root: Path, dataset: str = "demo", **settings: Any) -> Result:
    """The result of the run that `judgeq import` makes."""
    given = config.settle({"dataset": dataset, **settings})
    folder, before, _ = import_run.import_file(given, path, root)
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
    effects = [effect | {"judges": []} for effect in order["effects"]]
    return {"slots": order["slots"], "both_orders": order["both_orders"], "effects": effects}


def changed(path: Path, number: int, **values: Any) -> None:
    """Change values of a line of a recording (numbered from 1)."""
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[number - 1] = json.dumps(json.loads(lines[number - 1]) | values)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


# The commands


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
        assert one | {"run": second["run"]} == other
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
    given = config.settle({"dataset": "demo"}), tmp_path / "by-id.jsonl", tmp_path / "runs"
    assert import_run.import_file(*given) == (RunFolder(tmp_path / "runs" / there.name), True, ())
    folder, before, _ = import_run.import_file(*given, new=True)
    assert (folder.id, before) == (f"{there.name}-2", False)


def test_the_other_commands_know_an_imported_run(demo: Path, tmp_path: Path) -> None:
    imported(demo / "demo.jsonl", tmp_path / "runs")
    run, before = only_run(tmp_path), score_columns(only_run(demo))
    rated = judgeq(tmp_path, "show", "--write", "--sigma", "0.5")
    assert f"{run.name}/scores.csv" in rated.stdout
    after = score_columns(run)
    assert after["elo"] == before["elo"]
    assert max(map(float, after["pl"])) < max(map(float, before["pl"]))
    state = json.loads(judgeq(tmp_path, "status", "--json").stdout)
    assert (state["state"], state["strategy"]) == ("finished", "imported")
    assert [jobs["done"] for jobs in state["jobs_by_round"]] == [24, 24, 24]
    assert run.name in judgeq(tmp_path, "runs").stdout
    done = judgeq(tmp_path, "resume", expect=7)
    assert "was imported: nothing is left to ask" in done.stderr
    assert score_columns(run) == after


def test_what_can_not_be_imported_leaves_nothing(demo: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    lines = (demo / "demo.jsonl").read_text().splitlines()
    bad.write_text("\n".join([*lines[:40], '{"round": 2}', *lines[40:]]))
    runs_dir = tmp_path / "runs"
    runs_dir.mkdir()
    done = judgeq(tmp_path, "import", "-d", "demo", bad, expect=3)
    assert "bad.jsonl, line 41: " in done.stderr
    assert not list(runs_dir.iterdir())
    given = (demo / "demo.jsonl", runs_dir)
    assert (
        "No dataset is given (--dataset)" in judgeq(tmp_path, "import", given[0], expect=2).stderr
    )
    with pytest.raises(UsageError, match="Did you mean 'demo'"):
        imported(*given, dataset="demos")
    with pytest.raises(DataError, match=r"can't be read"):
        imported(*given, dataset=str(tmp_path / "gone.csv"))
    with pytest.raises(DataError, match=r"gone\.jsonl can't be read"):
        imported(tmp_path / "gone.jsonl", runs_dir)
    with pytest.raises(DataError, match="can't be written"):
        imported(given[0], bad)
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

    monkeypatch.setattr("judgeq.store.sqlite.SqliteStore.settle", full)
    with pytest.raises(RunError, match="the disk is full"):
        imported(demo / "demo.jsonl", tmp_path / "runs")
    assert seen == [[]]  # nor is it seen while it is filled: the process may be killed then
    assert not list((tmp_path / "runs").iterdir())


# Runs of every kind


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
    assert [line["group"] for line in lines if line["round"] == 2] == [
        *range(lines[-1]["group"] + 1)
    ]
    same(part, imported(file, tmp_path / "two"))

    database = sqlite3.connect(part.run.database)
    with database:
        database.execute("DELETE FROM verdicts WHERE job >= 20")
        database.execute("UPDATE jobs SET state = 'pending' WHERE id >= 20")
    database.close()
    assert asyncio.run(state(part.run)).word == "stopped"
    lines = exported(part.run, tmp_path / "part.jsonl").read_text().splitlines()
    found = query(part.run.path, "SELECT count(*) FROM verdicts")
    assert [(len(lines),)] == found
    assert imported(tmp_path / "part.jsonl", tmp_path / "three").rounds == 1


def test_both_orders_are_exported_as_they_were_asked(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"strategy": "pairwise2", "both_orders": True}
    both = python.run("demo", **settings, runs_dir=tmp_path / "one")
    assert both.flips is not None
    assert both.flips.flipped > 10
    file = exported(both.run, tmp_path / "one.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(lines) == 480
    for one, other in zip(lines[::2], lines[1::2], strict=True):
        assert one["presented"] == other["presented"][::-1]
    assert sum(
        a["winner"] != b["winner"] for a, b in zip(lines[::2], lines[1::2], strict=True)
    ) == (both.flips.flipped)
    again = imported(file, tmp_path / "two")
    # A recording has no couples: the rates are the same, but not how sure one is of them.
    rates, asked = (order(each)["slots"]["rate"] for each in (again, both))
    assert rates == asked
    assert exported(again.run, tmp_path / "two.jsonl").read_bytes() == file.read_bytes()


def test_an_order_that_is_not_known_is_no_bias(tmp_path: Path) -> None:
    """As in what people judged, where the winner often stands first in each line."""
    data, file = tmp_path / "my.csv", tmp_path / "my.jsonl"
    data.write_text("text\n" + "".join(f"text {i}\n" for i in range(20)))
    lines = [
        {"presented": [a, b], "winner": a, "judge": "x", "ordered": False}
        for a in range(20)
        for b in range(a + 1, 20)
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    shown = judgeq(tmp_path, "import", "-d", data, file).stdout
    assert "Position bias" not in shown
    shown = judgeq(tmp_path, "evaluate").stdout
    assert "The order of presentation isn't known for 190 verdicts" in shown
    assert "osition bias" not in shown
    again = judgeq(tmp_path, "export").stdout
    assert {json.loads(line)["ordered"] for line in again.splitlines()} == {False}

    for line in lines[:100]:
        del line["ordered"]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    result = imported(file, tmp_path / "runs", str(data))
    assert order(result)["slots"]["unordered"] == 90
    assert order(result)["slots"]["matches"] == [100, 100]
    assert exported(result.run, tmp_path / "out.jsonl").read_text().count('"ordered": false') == 90


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
    file = failed(tmp_path / "failed.jsonl", demo, 3)
    given = ("import", "-d", "demo", file, "--quiet")
    done = judgeq(tmp_path, *given)
    assert "3 of 72 lists were ranked exactly in the order presented" in done.stderr
    assert "--drop-identity" in done.stderr
    done = judgeq(tmp_path, *given, "--drop-identity", "--json")
    assert "3 lists ranked exactly as presented: left out" in done.stderr
    dropped = json.loads(done.stdout)["run"]
    assert "imported before" not in done.stderr
    assert len(judgeq(tmp_path, "export", dropped).stdout.splitlines()) == 69
    # The same as a recording that never had them.
    lines = file.read_text().splitlines()[3:]
    file.write_text("".join(f"{line}\n" for line in lines))
    assert json.loads(judgeq(tmp_path, *given, "--json").stdout)["run"] == dropped
    assert "lists" not in judgeq(tmp_path, *given).stderr


def test_a_recording_of_nothing_but_failures_is_none(tmp_path: Path) -> None:
    data, file = tmp_path / "my.csv", tmp_path / "my.jsonl"
    data.write_text("text\na\nb\nc\n")
    file.write_text('{"presented": [0, 1, 2], "ranking": [0, 1, 2]}\n')
    done = judgeq(tmp_path, "import", "-d", data, file, "--drop-identity", expect=3)
    assert "every one of the 1 judgments is a list ranked as presented" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_other_labels_make_another_run(tmp_path: Path) -> None:
    data, file = tmp_path / "my.csv", tmp_path / "my.jsonl"
    data.write_text("text,gold\n" + "".join(f"text {i},{i}\n" for i in range(6)))
    file.write_text('{"presented": [0, 1, 2, 3, 4, 5], "ranking": [5, 4, 3, 2, 1, 0]}\n')
    first = imported(file, tmp_path / "runs", str(data))
    assert not first.evaluation
    second = imported(file, tmp_path / "runs", str(data), gold_column="gold")
    assert measures(second)["all", "elo"]["spearman"].value == pytest.approx(1)
    assert second.run.id != first.run.id


def test_names_out_of_a_file_can_not_style_or_move_the_terminal(demo: Path, tmp_path: Path) -> None:
    file = tmp_path / "evil\x1b[2J.jsonl"
    file.write_bytes((demo / "demo.jsonl").read_bytes())
    changed(file, 1, judge="\x1b[2J[red]x\nrun.db")
    shown = judgeq(tmp_path, "import", "-d", "demo", file).stdout
    assert "[red]x" in shown
    assert "\x1b" not in shown


def test_a_ledger_with_a_judge_that_nobody_is_can_not_be_exported(
    demo: Path, tmp_path: Path
) -> None:
    for number in ("1", "-1", "1.5", "'x'", str(2**40)):
        run = RunFolder(tmp_path / f"run {number}")
        copytree(only_run(demo), run.path)
        database = sqlite3.connect(run.database)
        with database:
            database.execute(f"UPDATE jobs SET judge = {number} WHERE id = 3")
        database.close()
        with pytest.raises(RunError, match="is damaged"):
            exported(run, tmp_path / "out.jsonl")


# The published recordings


def published(name: str) -> tuple[Path, list[dict[str, str]]]:
    """The file of a recording, and the rows of its published scores."""
    path = SHARED / "recordings" / f"{name}_gpt-5-mini_listwise10x3.jsonl"
    with path.with_suffix(".scores.csv").open(encoding="utf-8", newline="") as file:
        return path, list(csv.DictReader(file))


@needs_recordings
@pytest.mark.parametrize("name", ["babe", "us_vs_them"])
def test_published_recordings_give_the_published_ratings(tmp_path: Path, name: str) -> None:
    """The published Elo; and of BABE, whose gold labels are here, the published detection."""
    path, rows = published(name)
    dataset = name
    if name != "babe":  # its items are not shipped; for the ratings, any will do
        dataset = str(tmp_path / "items.csv")
        Path(dataset).write_text("text\n" + "".join(f"text {i}\n" for i in range(len(rows))))
    result = imported(path, tmp_path / "runs", dataset)
    assert result.scores.ratings["elo"].tolist() == [float(row["elo"]) for row in rows]
    assert exported(result.run, tmp_path / "again.jsonl").read_bytes() == path.read_bytes()
    if name == "babe":
        found = measures(result)["all", "elo"]
        names = ("recall", "accuracy", "precision", "f1")
        assert [round(found[name].value or 0.0, 3) for name in names] == [
            0.783,
            0.779,
            0.772,
            0.778,
        ]
    # What bt-mm makes of these verdicts takes seconds: test_bradley_terry.py has it.
    _, rounds, _ = asyncio.run(results.judgments(result.run))
    for mine, theirs in zip(rounds, recording(path.stem), strict=True):
        np.testing.assert_array_equal(mine.items, theirs.items)
        np.testing.assert_array_equal(mine.offsets, theirs.offsets)
        np.testing.assert_array_equal(mine.tied, theirs.tied)


def test_a_single_judge_keeps_its_name(tmp_path: Path) -> None:
    lines = [
        '{"round": 1, "group": 0, "presented": [0, 1], "winner": 0, "judge": "gpt"}',
        '{"round": 1, "group": 1, "presented": [3, 2], "winner": "tie", "judge": "gpt"}',
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    done = judgeq(tmp_path, "import", "-d", "demo", "a.jsonl")
    assert "judged by gpt" in " ".join(done.stdout.split())
    assert judgeq(tmp_path, "export").stdout.splitlines() == lines


def written(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_several_judges_of_single_items_give_their_mean(tmp_path: Path) -> None:
    judged = [("x", 0, 0.9), ("y", 0, 0.2), ("x", 1, 0.5)]
    path = written(
        tmp_path / "direct.jsonl",
        *({"presented": [row], "score": score, "judge": who} for who, row, score in judged),
    )
    direct = imported(path, tmp_path / "runs").scores.ratings["direct"]
    assert direct[:2] == pytest.approx([0.55, 0.5])
    assert np.isnan(direct[2:]).all()


def test_nobody_is_no_name_of_a_judge(tmp_path: Path) -> None:
    path = written(tmp_path / "no.jsonl", {"presented": [0, 1], "winner": 0, "judge": ""})
    with pytest.raises(DataError, match='line 1: "judge" must be a name'):
        imported(path, tmp_path / "runs")


def test_who_was_never_judged_is_left_out_of_the_evaluation(tmp_path: Path) -> None:
    lines = [{"presented": [row, 239 - row], "winner": row} for row in range(10)]
    path = written(tmp_path / "few.jsonl", *lines)
    judgeq(tmp_path, "import", "-d", "demo", path, "--quiet")
    shown = json.loads(judgeq(tmp_path, "evaluate", "last", "--json").stdout)
    assert {row["n"] for row in shown["evaluation"]} == {20}


def test_a_configuration_of_other_items_than_the_ledger_is_damaged(
    demo: Path, tmp_path: Path
) -> None:
    folder = RunFolder(copytree(only_run(demo), tmp_path / only_run(demo).name))
    path = folder.path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "items": 2}))
    with pytest.raises(RunError, match=r"is damaged: config\.json has 2 items, run\.db 240"):
        asyncio.run(results.read(folder, folder.info().settings))


def test_a_name_out_of_a_file_does_not_style_a_table_of_judges(tmp_path: Path) -> None:
    lines = [
        {"presented": [row, 239 - row], "winner": row, "judge": who}
        for row in range(10)
        for who in ("\x1b[31mred\x9b\u202e", "other")
    ]
    judgeq(tmp_path, "import", "-d", "demo", written(tmp_path / "x.jsonl", *lines), "--quiet")
    shown = judgeq(tmp_path, "evaluate", "last").stdout
    assert "pl by" in shown
    assert not {"\x1b", "\x9b", "\u202e"} & set(shown)


def test_an_export_spares_runs_and_says_what_a_recording_can_not(tmp_path: Path) -> None:
    run = ("run", "-d", "synthetic:normal", "--n", "20", "--seed", "3", "-s", "pairwise2")
    judgeq(tmp_path, *run, "--both-orders", "--quiet")
    before = (only_run(tmp_path) / "run.db").read_bytes()
    told = judgeq(
        tmp_path, "export", "last", "--out", only_run(tmp_path) / "run.db", expect=2
    ).stderr
    assert "is in a run's folder" in told
    assert (only_run(tmp_path) / "run.db").read_bytes() == before
    told = judgeq(tmp_path, "export", "last", "--out", "no/where.jsonl", expect=2).stderr
    assert "--out no/where.jsonl can't be written" in told
    assert "in both orders" in judgeq(tmp_path, "export", "last", "--out", "some.jsonl").stderr


def test_what_a_simulated_corpus_was_is_told_to_the_import(tmp_path: Path) -> None:
    corpus = ("-d", "synthetic:normal", "--n", "20", "--seed", "3")
    judgeq(tmp_path, "run", *corpus, "-s", "pairwise8", "--quiet")
    before = score_columns(only_run(tmp_path))
    judgeq(tmp_path, "export", "last", "--out", "some.jsonl")
    judgeq(tmp_path, "import", *corpus, "some.jsonl", "--runs-dir", "others", "--quiet")
    (other,) = (tmp_path / "others").iterdir()
    assert score_columns(other) == before
