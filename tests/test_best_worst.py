from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from judgeq.errors import DataError
from judgeq.imports import votes
from judgeq.imports.recordings import Judgment
from judgeq.imports.votes import Columns
from judgeq.rating import correlation
from judgeq.types import Verdict
from tests.cli import judgeq
from tests.postgres import new_store

IDS = ["t1", "t2", "t3", "t4", "t5"]
TEXTS = ["Good morning", "Hi, there", "Hello", "Hey", "Hey"]
NAMED = Columns(["a", "b", "c", "d"], "best", "worst", "who")
MIDDLE = Verdict.of([[1], [0, 3], [2]], partial=True)


def table(folder: Path, *rows: str, header: str = "a,b,c,d,best,worst,who") -> Path:
    path = folder / "bws.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def read(path: Path, columns: Columns = NAMED) -> list[Judgment]:
    return votes.read(path, columns, IDS, TEXTS).judgments


@pytest.mark.parametrize(
    "answer",
    ["t2,t3", " t2 ,t3", '"Hi, there",Hello', "2,3", "b,c", "B,C", "2,c", "2.0,3"],
)
def test_the_best_and_the_worst_by_any_of_their_names(tmp_path: Path, answer: str) -> None:
    path = table(tmp_path, f"t1,t2,t3,t4,{answer},Ann")
    if answer == "2.0,3":  # as a table of numbers has it
        path = tmp_path / "bws.jsonl"
        row = dict(zip("abcd", IDS, strict=False)) | {"best": 2.0, "worst": 3, "who": "Ann"}
        path.write_text(json.dumps(row))
    assert read(path) == [Judgment(1, (0, 1, 2, 3), MIDDLE, "Ann")]


def test_texts_name_what_was_shown(tmp_path: Path) -> None:
    path = table(tmp_path, 'Good morning,"Hi, there",Hello,t4,"Hi, there",t3,Ann')
    assert read(path) == [Judgment(1, (0, 1, 2, 3), MIDDLE, "Ann")]


def test_one_of_the_two_is_enough_and_without_both_it_is_no_answer(tmp_path: Path) -> None:
    rows = ("t1,t2,t3,t4,t2,,Ann", "t1,t2,t3,t4,,t3,Ann", "t1,t2,t3,t4,,,Ann")
    path = table(tmp_path, *rows)
    recording = votes.read(path, NAMED, IDS, TEXTS)
    best = Verdict.of([[1], [0, 2, 3]], partial=True)
    worst = Verdict.of([[0, 1, 3], [2]], partial=True)
    assert [one.verdict for one in recording.judgments] == [best, worst]
    assert recording.notices == (
        f"{path}: rows that name neither the best nor the worst were left out: 1.",
    )
    (alone,) = read(table(tmp_path, rows[0]), NAMED._replace(worst=None))
    assert alone.verdict == best


def test_fewer_texts_in_a_row(tmp_path: Path) -> None:
    """Of three the best and the worst are a ranking; of two the best is the winner."""
    path = table(tmp_path, "t1,,t3,t4,t3,t1,Ann", "t1,t2,,,t2,,Bob", "t1,t2,,,,t2,Bob")
    assert [one.verdict for one in read(path)] == [
        Verdict((2, 3, 0)),
        Verdict((1, 0)),
        Verdict((0, 1)),
    ]
    assert [one.presented for one in read(path)] == [(0, 2, 3), (0, 1), (0, 1)]


def test_what_may_be_a_text_or_a_place_is_asked_for(tmp_path: Path) -> None:
    ids = ["1", "2", "3", "4"]
    path = table(tmp_path, "2,1,3,4,1,4,Ann")
    with pytest.raises(DataError, match=r"row 1 \(line 2\): best may name a text or a side"):
        votes.read(path, NAMED, ids, None)
    for says, best in (("text", 0), ("side", 1)):
        columns = NAMED._replace(says=says)  # type: ignore[arg-type]
        (one,) = votes.read(path, columns, ids, None).judgments
        assert one.verdict.items[0] == best
    # A row that only a place can be settles it for those that follow.
    rows = ("2,1,3,4,d,c,Ann", "2,1,3,4,1,4,Ann")
    (_, second) = votes.read(table(tmp_path, *rows), NAMED, ids, None).judgments
    assert second.verdict.items[0] == 1


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("t1,t2,t3,t9,t1,t2,Ann", "d is 't9', which is no item's id or text"),
        ("t1,t2,t3,Hey,t1,t2,Ann", "d is 'Hey', which is the text of several items"),
        ("t1,t2,t3,t1,t2,t3,Ann", "a and d are the same text"),
        ("t1,Good morning,t3,t4,t3,t4,Ann", "a and b are the same text"),
        ("t1,,,,t1,,Ann", "fewer than two texts are shown"),
        (",,,,t1,,Ann", "fewer than two texts are shown"),
        ("t1,t2,t3,t4,t2,t2,Ann", "best and worst name the same text"),
        (
            "t1,t2,t3,t4,t2,Hi there,Ann",
            "worst is 'Hi there', which is none of the texts of its row",
        ),
        ("t1,t2,t3,t4,t5,t2,Ann", "best is 't5', which is none of the texts of its row"),
        ("t1,t2,t3,t4,\x1b[31mt5,t2,Ann", "which is none of the texts of its row"),
        ("t1,t2,t3,t4,t1,t2,", "who is empty"),
    ],
)
def test_what_is_wrong_is_reported_with_its_row(tmp_path: Path, row: str, wrong: str) -> None:
    path = table(tmp_path, "t1,t2,t3,t4,t1,t2,Ann", row)
    with pytest.raises(DataError, match="row 2") as caught:
        read(path)
    assert wrong in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_place_that_was_not_shown(tmp_path: Path) -> None:
    path = table(tmp_path, "t1,t2,t3,t4,1,4,Ann", "t1,t2,t3,,1,4,Ann")
    with pytest.raises(DataError, match="row 2"):
        read(path)


def test_rounds_are_kept_apart_and_repeats_count(tmp_path: Path) -> None:
    rows = ("t1,t2,t3,t4,t2,t3,9", "t1,t2,t3,t4,t2,t3,4", "t1,t2,t3,t4,t2,t3,9")
    path = table(tmp_path, *rows, header="a,b,c,d,best,worst,r")
    columns = NAMED._replace(judge=None, round="r")
    recording = votes.read(path, columns, IDS, TEXTS)
    assert [one.round for one in recording.judgments] == [1, 2, 2]
    assert "1 of the best-worst answers repeat another" in recording.notices[0]


def test_an_import_by_the_command_line(tmp_path: Path) -> None:
    """As a user would: each rating ranks about as well as counting (on average pl ranks better:
    test_partial_rankings.py)."""
    rng, n = np.random.default_rng(0), 40
    theta = rng.normal(0, 1.5, n)
    lines = [f"e{row},Text {row},{theta[row]:.6f}" for row in range(n)]
    (tmp_path / "texts.csv").write_text("\n".join(["id,text,gold", *lines]))
    count, rows = np.zeros(n), []
    for number in range(8):
        for items in rng.permutation(n).reshape(-1, 4).tolist():
            seen = sorted(items, key=lambda item: -theta[item] - rng.gumbel())
            count[seen[0]], count[seen[-1]] = count[seen[0]] + 1, count[seen[-1]] - 1
            cells = [f"e{item}" for item in (*items, seen[0], seen[-1])]
            rows.append(",".join([*cells, f"judge {number % 3}"]))
    header = "Item1,Item2,Item3,Item4,BestItem,WorstItem,who"
    table(tmp_path, *rows, header=header)
    given = ("-d", "texts.csv", "bws.csv", "--gold-column", "gold")
    flags = ("--item-columns", "Item1, Item2,Item3,Item4", "--best", "BestItem")
    ends = ("--worst", "WorstItem", "--judge-column", "who", "-q")
    judgeq(tmp_path, "import", *given, *flags, *ends)
    rho = {}
    for name in ("pl", "bt", "bt-mm"):
        scores = judgeq(tmp_path, "export", "--table", "scores", "--rating", name).stdout
        names, *table_rows = [line.split(",") for line in scores.splitlines()]
        column = names.index("pl" if name == "pl" else "bt")
        by_id = {row[names.index("id")]: float(row[column]) for row in table_rows}
        values = np.array([by_id[f"e{row}"] for row in range(n)])
        rho[name] = correlation.point(correlation.spearman(values, theta), n) or 0.0
    counted = correlation.point(correlation.spearman(count, theta), n) or 0.0
    assert min(rho.values()) > counted - 0.03
    assert json.loads(judgeq(tmp_path, "status", "--json").stdout)["judge"].count("+") == 2


def test_parquet_and_a_store_hold_the_same_as_csv_and_a_folder(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table(tmp_path, "1,2,3,4,b,4,Ann", "5,1,2,,c,a,Bob", "2,3,4,5,,b,Ann", "2,3,4,5,,,")
    columns = {
        "a": [1, 5, 2, 2],
        "b": [2, 1, 3, 3],
        "c": [3, 2, 4, 4],
        "d": [4.0, None, 5.0, 5.0],
        "best": ["b", "c", None, None],
        "worst": ["4", "a", "b", ""],
        "who": pa.array(["Ann", "Bob", "Ann", None]).dictionary_encode(),
    }
    parquet.write_table(pa.table(columns), tmp_path / "bws.parquet")
    (tmp_path / "texts.csv").write_text("id,text\n" + "".join(f"{n},T{n}\n" for n in range(1, 6)))
    flags = ("--item-columns", "a,b,c,d", "--best", "best", "--worst", "worst")
    given = ("--judge-column", "who", "--winner-is", "side", "-q", "--json")
    places = (("bws.csv", ()), ("bws.parquet", ("--store", new_store())))
    imported = [
        json.loads(judgeq(tmp_path, "import", "-d", "texts.csv", file, *flags, *given, *at).stdout)
        for file, at in places
    ]
    scores = [
        judgeq(tmp_path, "export", one["run"], "--table", "scores", *at).stdout
        for one, (_, at) in zip(imported, places, strict=True)
    ]
    assert imported[0]["run"] == imported[1]["run"]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        (("--best", "best"), "--item-columns a,b,c,d"),
        (("--item-columns", "a,b,c,d"), "--best, --worst or both"),
        (("--item-columns", "a", "--best", "best"), "two or more"),
        (("--item-columns", "a,b,a", "--best", "best"), "each once"),
        (("--item-columns", "a,b", "--best", "best", "--left", "a"), "--left is of votes on pairs"),
        ((), "best-worst answers --item-columns a,b,c,d"),
    ],
)
def test_flags_that_do_not_go_together(tmp_path: Path, flags: tuple[str, ...], wrong: str) -> None:
    table(tmp_path, "t1,t2,t3,t4,t1,t2,Ann")
    (tmp_path / "texts.csv").write_text("id,text\nt1,One\n")
    done = judgeq(tmp_path, "import", "-d", "texts.csv", "bws.csv", *flags, expect=2)
    assert wrong in done.stderr


def test_a_column_that_is_not_there(tmp_path: Path) -> None:
    path = table(tmp_path, "t1,t2,t3,t4,t1,t2,Ann")
    with pytest.raises(DataError, match="Name the right one with --item-columns"):
        read(path, NAMED._replace(items=["a", "b", "e"]))
    with pytest.raises(DataError, match="Name the right one with --best"):
        read(path, NAMED._replace(best="most"))
