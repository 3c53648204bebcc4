"""Tables of votes on pairs and of best-worst answers, and their import."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from judgeq.errors import DataError
from judgeq.imports import votes
from judgeq.imports.recordings import Judgment
from judgeq.imports.votes import Columns
from judgeq.types import Verdict
from tests.cli import judgeq

IDS = ["t1", "t2", "t3", "t4", "t5"]
TEXTS = ["Good morning", "Hi, there", "Hello", "Hey", "Hey"]
PAIRS = Columns(("a", "b"), "w", judge="who", ties=())
BEST_WORST = Columns(["a", "b", "c", "d"], "best", "worst", "who")
MIDDLE = Verdict.of([[1], [0, 3], [2]], partial=True)


def table(folder: Path, *rows: str, header: str = "a,b,w,who") -> Path:
    path = folder / "votes.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def bws(folder: Path, *rows: str) -> Path:
    return table(folder, *rows, header="a,b,c,d,best,worst,who")


def read(path: Path, columns: Columns = PAIRS) -> list[Judgment]:
    return votes.read(path, columns, IDS, TEXTS).judgments


def vote(winner: int, loser: int, *, shown: tuple[int, int], judge: str | None = None) -> Judgment:
    return Judgment(1, shown, Verdict((winner, loser)), judge)


def test_ids_sides_ties_and_repeated_pairs(tmp_path: Path) -> None:
    rows = ("t1,t2,t2,Ann", "t3,t1,tie,Bob", "t1,t2,t2,Ann", "t1,t2,,Ann", "t2,t3,t2,Bob")
    path = table(tmp_path, *rows)
    recording = votes.read(path, PAIRS, IDS, TEXTS)
    assert recording.judgments == [
        vote(1, 0, shown=(0, 1), judge="Ann"),
        Judgment(1, (2, 0), Verdict.of([(2, 0)]), "Bob"),
        vote(1, 0, shown=(0, 1), judge="Ann"),
        vote(1, 2, shown=(1, 2), judge="Bob"),
    ]
    assert recording.notices == (
        f"{path}: rows without an answer were left out: 1.",
        f"{path}: 1 judgments repeat an earlier one, by the same judge: each counts.",
    )


@pytest.mark.parametrize("word", ["LEFT", "a", "1", "first", "t1", " t1 ", "Good morning"])
def test_the_first_text_wins_by_any_of_its_names(tmp_path: Path, word: str) -> None:
    assert read(table(tmp_path, f"t1,t2,{word},Ann")) == [vote(0, 1, shown=(0, 1), judge="Ann")]


@pytest.mark.parametrize("answer", ["t2,t3", " t2 ,t3", '"Hi, there",Hello', "2,3", "b,C", "2.0,3"])
def test_the_best_and_the_worst_by_any_of_their_names(tmp_path: Path, answer: str) -> None:
    path = bws(tmp_path, f"t1,t2,t3,t4,{answer},Ann")
    if answer == "2.0,3":  # as a table of numbers has it
        path = tmp_path / "bws.jsonl"
        row = dict(zip("abcd", IDS, strict=False)) | {"best": 2.0, "worst": 3, "who": "Ann"}
        path.write_text(json.dumps(row))
    assert read(path, BEST_WORST) == [Judgment(1, (0, 1, 2, 3), MIDDLE, "Ann")]


def test_one_of_the_two_is_enough_and_fewer_texts_too(tmp_path: Path) -> None:
    """Of three the best and the worst are a ranking; of two the best is the winner."""
    rows = ("t1,t2,t3,t4,t2,,Ann", "t1,t2,t3,t4,,t3,Ann", "t1,t2,t3,t4,,,Ann")
    fewer = ("t1,,t3,t4,t3,t1,Ann", "t1,t2,,,,t2,Bob")
    assert [one.verdict for one in read(bws(tmp_path, *rows, *fewer), BEST_WORST)] == [
        Verdict.of([[1], [0, 2, 3]], partial=True),
        Verdict.of([[0, 1, 3], [2]], partial=True),
        Verdict((2, 3, 0)),
        Verdict((0, 1)),
    ]


def test_where_the_winner_stands_in_a_column_of_its_own_the_order_is_not_known(
    tmp_path: Path,
) -> None:
    path = table(tmp_path, "J7,t2,t3", header="judgeId,chosen,notChosen")
    (judgment,) = read(path, Columns(("chosen", "notChosen"), "chosen", judge="judgeId", ties=()))
    assert (judgment.verdict.items, judgment.ordered) == ((1, 2), False)


def test_what_may_be_a_text_or_a_side_is_asked_for(tmp_path: Path) -> None:
    ids, path = ["1", "2", "3"], table(tmp_path, "2,1,1,Ann", "1,2,1,Ann")
    with pytest.raises(DataError, match=r"row 1 \(line 2\): an answer may name a text or a side"):
        votes.read(path, PAIRS, ids, None)
    for says, winners in (("text", [0, 0]), ("side", [1, 0])):
        columns = PAIRS._replace(says=says)  # type: ignore[arg-type]
        found = votes.read(path, columns, ids, None).judgments
        assert [one.verdict.items[0] for one in found] == winners
    # A row that only one of them can be settles it for all.
    path = table(tmp_path, "2,1,1,Ann", "1,3,3,Ann")
    found = votes.read(path, PAIRS, ids, None).judgments
    assert [one.verdict.items[0] for one in found] == [0, 2]
    with pytest.raises(DataError, match="may name a text or a side"):
        votes.read(table(tmp_path, "1,3,3,Ann", "3,2,1,Ann"), PAIRS, ids, None)


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("t1,t2,t3,t9,t1,t2,Ann", "d is 't9', which is no item's id or text"),
        ("t1,t2,t3,Hey,t1,t2,Ann", "d is 'Hey', which is the text of several items"),
        ("t1,Good morning,t3,t4,t3,t4,Ann", "one text is shown twice"),
        ("t1,,,,t1,,Ann", "fewer than two texts are shown"),
        ("t1,t2,t3,t4,t2,t2,Ann", "best and worst name the same text"),
        ("t1,t2,t3,t4,t2,Hi there,Ann", "worst is 'Hi there', which is none of its texts"),
        ("t1,t2,t3,t4,\x1b[31mt5,t2,Ann", "which is none of its texts"),
        ("t1,t2,t3,t4,t1,t2,", "who is empty"),
    ],
)
def test_what_is_wrong_is_reported_with_its_row(tmp_path: Path, row: str, wrong: str) -> None:
    settled = BEST_WORST._replace(says="side") if ",1,4," in row else BEST_WORST
    with pytest.raises(DataError, match="row 2") as caught:
        read(
            bws(tmp_path, "t1,t2,t3,t4,a,b,Ann" if settled.says else "t1,t2,t3,t4,t1,t2,Ann", row),
            settled,
        )
    assert wrong in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_vote_that_names_neither_text_nor_side_nor_a_tie(tmp_path: Path) -> None:
    path = table(tmp_path, "t1,t2,t1,Ann", "t1,t2,t3,Ann")
    with pytest.raises(
        DataError, match=r"row 2.*w is 't3', which is none of its texts, and no word"
    ):
        read(path)
    with pytest.raises(DataError, match="has no column 'v'"):
        read(path, PAIRS._replace(best="v"))


def test_rounds_are_kept_apart_and_in_order(tmp_path: Path) -> None:
    path = table(tmp_path, "t1,t2,t1,7", "t2,t3,t2,3", header="a,b,w,r")
    columns = Columns(("a", "b"), "w", round="r", ties=())
    assert [(one.round, one.presented) for one in read(path, columns)] == [(1, (1, 2)), (2, (0, 1))]
    with pytest.raises(DataError, match=r"row 1.*r is 'first', which is no whole number"):
        read(table(tmp_path, "t1,t2,t1,first", header="a,b,w,r"), columns)


def test_votes_by_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("id,text\nt1,One\nt2,Two\nt3,Three\n")
    table(tmp_path, "t1,t2,t1,Ann", "t2,t3,t2,Bob", "t1,t3,x,Bob")
    flags = ("-d", "texts.csv", "votes.csv", "--left", "a", "--right", "b", "--winner", "w")
    done = judgeq(tmp_path, "import", *flags, "--judge-column", "who", "--tie", "x", "--json")
    assert json.loads(done.stdout)["jobs"]["done"] == 3
    assert json.loads(judgeq(tmp_path, "status", "--json").stdout)["judge"] == "Ann + Bob"
    wrong = judgeq(tmp_path, "import", *flags[:5], expect=2)
    assert "--right" in wrong.stderr


def test_best_worst_answers_by_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("id,text\nt1,One\nt2,Two\nt3,Three\nt4,Four\n")
    bws(tmp_path, "t1,t2,t3,t4,t2,t3,Ann")
    flags = ("--item-columns", "a, b,c,d", "--best", "best", "--worst", "worst")
    judgeq(
        tmp_path, "import", "-d", "texts.csv", "votes.csv", *flags, "--judge-column", "who", "-q"
    )
    (line,) = map(json.loads, judgeq(tmp_path, "export").stdout.splitlines())
    assert (line["partial_ranking"], line["judge"]) == ([1, [0, 3], 2], "Ann")


@pytest.mark.parametrize(
    ("flags", "wrong"),
    [
        (("--best", "best"), "--item-columns a,b,c,d"),
        (("--item-columns", "a,b,c,d"), "--best, --worst or both"),
        (("--item-columns", "a,b,a", "--best", "best"), "each once"),
        (("--item-columns", "a,b", "--best", "best", "--left", "a"), "name the columns"),
        ((), "name the columns. Votes have --left, --right and --winner"),
    ],
)
def test_flags_that_do_not_go_together(tmp_path: Path, flags: tuple[str, ...], wrong: str) -> None:
    bws(tmp_path, "t1,t2,t3,t4,t1,t2,Ann")
    (tmp_path / "texts.csv").write_text("id,text\nt1,One\n")
    done = judgeq(tmp_path, "import", "-d", "texts.csv", "votes.csv", *flags, expect=2)
    assert wrong in done.stderr
