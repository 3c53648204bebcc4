from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgeq.errors import DataError
from judgeq.imports import votes
from judgeq.imports.recordings import Judgment
from judgeq.imports.votes import Columns
from judgeq.types import Verdict
from tests.cli import judgeq

IDS = ["t1", "t2", "t3"]
TEXTS = ["Good morning", "Hi, there", "Hello"]
NAMED = Columns(("a", "b"), "w", judge="who", ties=())


def table(folder: Path, *rows: str, header: str = "a,b,w,who") -> Path:
    path = folder / "votes.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def read(path: Path, columns: Columns = NAMED) -> list[Judgment]:
    return votes.read(path, columns, IDS, TEXTS).judgments


def vote(winner: int, loser: int, *, shown: tuple[int, int], judge: str | None = None) -> Judgment:
    return Judgment(1, shown, Verdict((winner, loser)), judge)


def test_ids_sides_ties_and_repeated_pairs(tmp_path: Path) -> None:
    path = table(tmp_path, "t1,t2,t2,Ann", "t3,t1,tie,Bob", "t1,t2,t2,Ann", "t2,t3,t2,Bob")
    recording = votes.read(path, NAMED, IDS, TEXTS)
    assert recording.judgments == [
        vote(1, 0, shown=(0, 1), judge="Ann"),
        Judgment(1, (2, 0), Verdict.of([(2, 0)]), "Bob"),
        vote(1, 0, shown=(0, 1), judge="Ann"),
        vote(1, 2, shown=(1, 2), judge="Bob"),
    ]
    assert recording.notices == (
        f"{path}: 1 of the votes repeat another, by the same judge: each counts.",
    )


@pytest.mark.parametrize("word", ["left", "LEFT", "a", "1", "l", "first", "t1", " t1 "])
def test_the_first_text_wins_by_any_of_its_names(tmp_path: Path, word: str) -> None:
    path = table(tmp_path, f"t1,t2,{word},Ann")
    assert read(path) == [vote(0, 1, shown=(0, 1), judge="Ann")]


def test_texts_name_items_too(tmp_path: Path) -> None:
    path = table(tmp_path, 'Good morning,"Hi, there",right,3', header="text1,text2,pw,annotator")
    columns = Columns(("text1", "text2"), "pw", judge="annotator", ties=())
    assert read(path, columns) == [vote(1, 0, shown=(0, 1), judge="3")]


def test_numbers_in_other_tables_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "votes.jsonl"
    rows = [{"a": "t1", "b": "t2", "w": 2.0}, {"a": "t1", "b": "t3", "w": 1}]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert read(path, Columns(("a", "b"), "w", ties=())) == [
        vote(1, 0, shown=(0, 1)),
        vote(0, 2, shown=(0, 2)),
    ]


def test_a_row_without_a_winner_is_no_vote(tmp_path: Path) -> None:
    path = table(tmp_path, "t1,t2,,Ann", "t1,t1,t1,Ann", "t1,t2,t1,Ann")
    recording = votes.read(path, NAMED, IDS, TEXTS)
    assert len(recording.judgments) == 1
    assert "no winner were left out: 1" in recording.notices[0]
    assert "with itself were left out: 1" in recording.notices[1]


def test_where_the_winner_stands_in_a_column_of_its_own_the_order_is_not_known(
    tmp_path: Path,
) -> None:
    path = table(tmp_path, "J7,t2,t3", header="judgeId,chosen,notChosen")
    (judgment,) = read(path, Columns(("chosen", "notChosen"), "chosen", judge="judgeId", ties=()))
    assert (judgment.verdict.items, judgment.ordered) == ((1, 2), False)


def test_what_may_be_a_text_or_a_side_is_asked_for(tmp_path: Path) -> None:
    ids, path = ["1", "2", "3"], table(tmp_path, "2,1,1,Ann", "1,2,1,Ann")
    with pytest.raises(DataError, match=r"row 1 \(line 2\): w may name a text or a side"):
        votes.read(path, NAMED, ids, None)
    for says, winners in (("text", [0, 0]), ("side", [1, 0])):
        columns = NAMED._replace(says=says)  # type: ignore[arg-type]
        found = votes.read(path, columns, ids, None).judgments
        assert [one.verdict.items[0] for one in found] == winners
    # One row that only a text can be settles it for those that follow.
    path = table(tmp_path, "1,2,1,Ann", "1,3,3,Ann", "2,1,1,Ann")
    found = votes.read(path, NAMED, ids, None).judgments
    assert [one.verdict.items[0] for one in found] == [0, 2, 0]
    path = table(tmp_path, "1,3,3,Ann", "3,2,1,Ann")
    with pytest.raises(DataError, match=r"row 2 .*: w is '1', which is neither of its texts"):
        votes.read(path, NAMED, ids, None)


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        ("t1,t9,t1,Ann", "b is 't9', which is no item's id or text"),
        ("t1,Same,t1,Ann", "b is 'Same', which is the text of several items"),
        (
            "t1,t2,t3,Ann",
            "w is 't3', which is neither of its texts, nor a side, nor a word for a tie",
        ),
        ("t1,t2,t1,", "who is empty"),
    ],
)
def test_what_is_wrong_is_reported_with_its_row(tmp_path: Path, row: str, wrong: str) -> None:
    path = table(tmp_path, "t1,t2,t1,Ann", row)
    with pytest.raises(DataError, match="row 2") as caught:
        votes.read(path, NAMED, [*IDS, "t4", "t5"], [*TEXTS, "Same", "Same"])
    assert wrong in str(caught.value)


def test_rounds_are_kept_apart_and_in_order(tmp_path: Path) -> None:
    path = table(tmp_path, "t1,t2,t1,7", "t2,t3,t2,3", header="a,b,w,r")
    judgments = read(path, Columns(("a", "b"), "w", round="r", ties=()))
    assert [(one.round, one.presented) for one in judgments] == [(1, (1, 2)), (2, (0, 1))]


@given(
    st.lists(
        st.tuples(st.permutations(list(range(3))), st.sampled_from(["left", "right", "tie"])),
        min_size=1,
    )
)
def test_every_vote_comes_in(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[list[int], str]]
) -> None:
    folder = tmp_path_factory.mktemp("votes")
    path = table(folder, *(f"{IDS[i]},{IDS[j]},{said},Ann" for (i, j, _), said in rows))
    judgments = read(path)
    assert len(judgments) == len(rows)
    for judgment, ((i, j, _), said) in zip(judgments, rows, strict=True):
        expected = {"left": ((i,), (j,)), "right": ((j,), (i,)), "tie": ((i, j),)}[said]
        assert judgment.verdict.groups == expected


def test_an_import_by_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("id,text\nt1,One\nt2,Two\nt3,Three\n")
    table(tmp_path, "t1,t2,t1,Ann", "t2,t3,t2,Bob", "t1,t3,x,Bob")
    flags = ("-d", "texts.csv", "votes.csv", "--left", "a", "--right", "b", "--winner", "w")
    done = judgeq(tmp_path, "import", *flags, "--judge-column", "who", "--tie", "x", "--json")
    assert json.loads(done.stdout)["jobs"]["done"] == 3
    assert json.loads(judgeq(tmp_path, "status", "--json").stdout)["judge"] == "Ann + Bob"
    wrong = judgeq(tmp_path, "import", "-d", "texts.csv", "votes.csv", expect=2)
    assert "name the columns. Votes have --left, --right and --winner" in wrong.stderr
    wrong = judgeq(tmp_path, "import", *flags[:3], *flags[3:5], expect=2)
    assert "--right" in wrong.stderr
    wrong = judgeq(tmp_path, "import", *flags[:-1], "v", expect=3)
    assert "Name the right one with --winner." in wrong.stderr
