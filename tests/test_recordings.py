"""Recorded judgments, and tables of votes: read as they were; what is wrong is told with its line. And
judgments shared: exported and imported."""

import asyncio
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgeq import api, config, run_places
from judgeq.datasets.dataset import RowIds
from judgeq.engine import import_run, results
from judgeq.engine.results import Result
from judgeq.engine.status import state
from judgeq.errors import DataError, RunError, UsageError
from judgeq.evaluation.evaluate import evaluated
from judgeq.imports import recordings, votes
from judgeq.imports.recordings import Judgment, too_many_as_presented
from judgeq.imports.votes import Columns
from judgeq.run_places import RunFolder, RunPlace
from judgeq.types import Verdict
from judgeq.ui.dataclass_json import plain
from tests import python
from tests.build import grouped, rankings
from tests.cli import execute, json_of, judgeq, only_run, query, scores
from tests.fakes import faults

IDS = ("a", "b", "c", "d", "tie")
WORDS = ("tie", "", "0", "3", "null", '"', "\\", "\n", "\r\n", "\u2028", "\x00", "é😀")
ODD = st.sampled_from(WORDS)


@st.composite
def compared(draw: st.DrawFn, n: int) -> tuple[tuple[int, ...], Verdict]:
    """Items as presented, and a ranking of them with ties."""
    presented = tuple(draw(st.permutations(range(n)))[: draw(st.integers(1, n))])
    places = draw(rankings(n=len(presented), size=len(presented)))
    groups = [[presented[at] for at in group] for group in grouped(places)]
    if len(presented) == 2 and len(groups) == 1:  # "tie" doesn't say who comes first
        groups = [list(presented)]
    may = len(groups) > 1 and sum(len(group) > 1 for group in groups) == 1
    return presented, Verdict.of(groups, partial=may and draw(st.booleans()))


@st.composite
def scored(draw: st.DrawFn, n: int) -> tuple[tuple[int, ...], Verdict]:
    item = draw(st.integers(0, n - 1))
    return (item,), Verdict((item,), (), draw(st.floats(0, 1)))


@st.composite
def recorded(draw: st.DrawFn) -> tuple[list[str], list[Judgment]]:
    """The ids of a dataset, and judgments on it."""
    ids = draw(st.lists(ODD | st.text(max_size=8), min_size=1, max_size=8, unique=True))
    kind = draw(st.sampled_from([compared, scored]))(len(ids))
    rounds = draw(st.lists(st.lists(kind, min_size=1, max_size=4), min_size=1, max_size=3))
    judges = draw(st.sampled_from([st.none(), st.just("gpt") | st.text(min_size=1)]))
    return ids, [
        Judgment(number, presented, said, draw(judges), draw(st.booleans()))
        for number, some in enumerate(rounds, start=1)
        for presented, said in some
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "r.jsonl"


def read(path: Path, text: str | bytes) -> list[Judgment]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return recordings.read(path, IDS).judgments


def line(**values: Any) -> str:
    """A line about rows 0 and 1, the first of which wins, with some of it changed (... to leave out)."""
    found = {"round": 1, "presented": [0, 1], "winner": 0} | values
    return json.dumps({name: value for name, value in found.items() if value is not ...})


@given(recorded(), st.sampled_from(["row", "id"]))
def test_what_is_written_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    case: tuple[list[str], list[Judgment]],
    by: Literal["row", "id"],
) -> None:
    ids, judgments = case
    path = tmp_path_factory.getbasetemp() / "recording.jsonl"
    written = [*recordings.lines(judgments, ids, by)]
    assert len(written) == len(judgments)
    path.write_bytes("".join(f"{each}\n" for each in written).encode())
    again, notices = recordings.read(path, ids, "rows" if by == "row" else None)
    assert again == judgments
    assert not notices
    assert [*recordings.lines(again, ids, by)] == written
    assert recordings.checksum(again) == recordings.checksum(judgments)


def partial(*groups: list[int]) -> Verdict:
    return Verdict.of(groups, partial=True)


def test_lines_are_as_published() -> None:
    judgments = [
        Judgment(1, (2, 0, 1), Verdict.of([[1], [0, 2]])),
        Judgment(1, (1, 0), Verdict((0, 1)), "gpt"),
        Judgment(2, (1, 0), Verdict.of([[1, 0]])),
        Judgment(2, (0, 4), Verdict.of([[0, 4]])),
    ]
    assert [*recordings.lines(judgments, IDS)] == [
        '{"round": 1, "group": 0, "presented": [2, 0, 1], "ranking": [1, [0, 2]]}',
        '{"round": 1, "group": 1, "presented": [1, 0], "winner": 0, "judge": "gpt"}',
        '{"round": 2, "group": 0, "presented": [1, 0], "winner": "tie"}',
        '{"round": 2, "group": 1, "presented": [0, 4], "winner": "tie"}',
    ]
    (best,) = recordings.lines([Judgment(1, (2, 0, 1), partial([1], [0, 2]))], IDS)
    assert best.endswith('"presented": [2, 0, 1], "partial_ranking": [1, [0, 2]]}')
    *_, last = recordings.lines(judgments, IDS, "id")
    assert last == '{"round": 2, "group": 1, "presented": ["a", "tie"], "winner": null}'
    (alone,) = recordings.lines([Judgment(1, (3,), Verdict((3,), (), 0.25))], IDS, "id")
    assert alone == '{"round": 1, "group": 0, "presented": ["d"], "score": 0.25}'


def test_what_a_file_may_look_like(path: Path) -> None:
    expected = [Judgment(1, (0, 1), Verdict((0, 1))), Judgment(2, (0, 1), Verdict((0, 1)))]
    both = [line(), line(round=2)]
    assert read(path, "\n".join(both)) == expected  # no newline at the end
    assert read(path, "\n \t\n" + "\n\n\n".join(both) + "\n\n") == expected
    assert read(path, "\r\n".join(both) + "\r\n") == expected
    assert read(path, b"\xef\xbb\xbf" + "\n".join(both).encode()) == expected
    assert read(path, line(round=..., group="any", more=[1])) == expected[:1]


def without(**values: Any) -> str:
    return line(winner=..., **values)


THREE: dict[str, Any] = {"presented": [3, "c", 0]}


@pytest.mark.parametrize(
    ("said", "presented", "verdict"),
    [
        (line(winner="b"), (0, 1), Verdict((1, 0))),
        (line(winner="tie"), (0, 1), Verdict.of([[0, 1]])),
        (line(winner=None), (0, 1), Verdict.of([[0, 1]])),
        (line(presented=["tie", 1], winner="tie"), (4, 1), Verdict((4, 1))),
        (line(presented=["tie", 1], winner=None), (4, 1), Verdict.of([[4, 1]])),
        (without(ranking=["b", "a"]), (0, 1), Verdict((1, 0))),
        (without(**THREE, ranking=[[2, 0], "d"]), (3, 2, 0), Verdict.of([[2, 0], [3]])),
        (without(**THREE, partial_ranking=["d", ["c", 0]]), (3, 2, 0), partial([3], [2, 0])),
        (without(**THREE, partial_ranking=["d", "c", [0]]), (3, 2, 0), Verdict((3, 2, 0))),
        (without(presented=[3], ranking=[3]), (3,), Verdict((3,))),
        (without(presented=[3], score=1), (3,), Verdict((3,), (), 1.0)),
    ],
)
def test_what_a_line_says(
    path: Path, said: str, presented: tuple[int, ...], verdict: Verdict
) -> None:
    assert read(path, said) == [Judgment(1, presented, verdict)]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("{", "no valid JSON"),
        ("{\xff}", "no valid JSON"),
        ("[" * 5000, "no valid JSON"),
        ("[1]", "a JSON object is expected"),
        (line(round=0), "whole number from 1, not 0"),
        (line(round=4), "round 4 can't follow round 2"),
        (line(round=1), "round 1 can't follow round 2"),
        (line(presented=["a", "a"], winner="a"), '"presented" names item "a" twice'),
        (line(presented=...), '"presented" must be an array'),
        (line(presented=[]), '"presented" must be an array'),
        (line(presented=[1, 0, 1]), '"presented" names item 1 twice'),
        (line(presented=[0, "e"]), 'no item with the id "e"'),
        (line(presented=[0, True]), "not true"),
        (line(presented=[0, 1.0]), "not 1.0"),
        (line(presented=[0, [1]]), "not [1]"),
        (line(presented=[0, 5]), "rows 0 to 4, and none is 5"),
        (line(presented=[0, 10**30]), "and none is 1000"),
        (line(winner=...), "exactly one of"),
        (line(winner=2), "the winner 2 was not presented"),
        (line(winner=[0]), "not [0]"),
        (line(winner="none"), 'no item with the id "none"'),
        (line(presented=["tie", "a"], winner="b"), 'the winner "b" was not presented'),
        (line(presented=[0, 1, 2]), '"winner" is of 2 items, and 3'),
        (without(ranking=0), '"ranking" must be an array of items, not 0'),
        *((without(ranking=places), '"ranking" must name each item that was presented exactly once')
          for places in ([1], None, [0, [1, 1]], [0, 2], [0, [], 1])),
        (without(ranking=[[0, [1]]]), "not [0, [1]]"),
        (without(ranking=[0, False]), "not false"),
        (without(partial_ranking=[[0, 1]]), "one group of items whose order isn't known"),
        (without(ranking=[0, 1], partial_ranking=[0, 1]), "exactly one of"),
        (without(presented=[0], score=1.01), "0 to 1, not 1.01"),
        (without(presented=[0], score=True), "0 to 1, not true"),
        (without(presented=[0], score=float("nan")), "0 to 1, not NaN"),
        (without(presented=[0], score=0.5).replace("0.5", "1e999"), "line 4: "),
        (without(score=0.5), '"score" is of 1 item, and 2 were presented'),
        (without(round=2, presented=[0], score=0.5), "scores of single items and comparisons"),
        (line(judge=3), '"judge" must be a name, not 3'),
        (line(round="x" * 99), "x" * 59 + "…"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_told_with_its_number(path: Path, wrong: str, told: str) -> None:
    text = "\n".join([line(), "", line(round=2), wrong, line(round=2)])
    with pytest.raises(DataError) as error:
        read(path, text.encode("latin-1"))
    message = str(error.value)
    assert message.startswith(f"{path}, line 4: ")
    assert told in message


def test_the_first_round_is_1_and_scores_stay_among_themselves(path: Path) -> None:
    with pytest.raises(DataError, match="line 1: the first round is 1, not 2"):
        read(path, line(round=2))
    with pytest.raises(DataError, match="line 2: scores of single items and comparisons"):
        read(path, f"{without(presented=[0], score=0.5)}\n{line()}")


def test_a_file_without_judgments_or_none_at_all(path: Path) -> None:
    for empty in (b"", b"\n\r\n  \n", b"\xef\xbb\xbf"):
        with pytest.raises(DataError, match="holds no judgments"):
            read(path, empty)
    with pytest.raises(DataError, match=r"gone\.jsonl can't be read .*: No such file"):
        recordings.read(path.with_name("gone.jsonl"), IDS)
    with pytest.raises(DataError, match="can't be read"):
        recordings.read(path.parent, IDS)


def reported(path: Path, *lines: str) -> tuple[list[Judgment], tuple[str, ...]]:
    path.write_text("\n".join(lines), encoding="utf-8")
    return recordings.read(path, IDS)


def test_what_repeats_an_earlier_line_counts_and_is_reported(path: Path) -> None:
    named = [line(judge="x"), line(judge="y"), line(judge="x", group=1)]
    judgments, (notice,) = reported(path, *named, *named)
    assert len(judgments) == 6
    assert f"{path}: 3 judgments repeat an earlier one, by the same judge" in notice
    other = [line(judge="x", winner=1), line(judge="x", presented=[1, 0]), line(judge="x", round=2)]
    judgments, notices = reported(path, named[0], *other)
    assert (len(judgments), notices) == (4, ())


def test_keys_that_are_not_known_are_reported_once(path: Path) -> None:
    assert reported(path, line(group=1, judge="x", ordered=True))[1] == ()
    _, (notice,) = reported(path, line(judges="x"), line(judges="y", worker=3, presented=[2, 0]))
    assert "keys that aren't known were not read: 'judges', 'worker'. Known are round," in notice


def test_whether_the_order_is_known(path: Path) -> None:
    first, second = read(path, f"{line(ordered=False)}\n{line(ordered=True)}")
    assert (first.ordered, second.ordered) == (False, True)
    (said,) = recordings.lines([first], IDS)
    assert said.endswith('"group": 0, "presented": [0, 1], "winner": 0, "ordered": false}')
    assert recordings.checksum([first]) != recordings.checksum([second])
    with pytest.raises(DataError, match='line 1: "ordered" must be true or false, not "no"'):
        read(path, line(ordered="no"))


def test_numbers_that_are_ids_too_are_asked_about(path: Path) -> None:
    ids = ["1", "0", "x", "3", "70"]

    def rows(*presented: object, numbers: recordings.Numbers | None = None) -> tuple[int, ...]:
        path.write_text(line(presented=presented, winner=None))
        return recordings.read(path, ids, numbers).judgments[0].presented

    assert rows(2, 3) == (2, 3)  # 2 is no id, 3 is that of row 3
    assert rows("0", "1") == (1, 0)
    either = r"1: 0 may be row 0 or the item in row 1, whose id is \"0\""
    with pytest.raises(DataError, match=either):
        rows(2, 0)
    with pytest.raises(DataError, match=r"none is 70.*--items ids"):
        rows(2, 70)
    assert rows(1, 0, numbers="rows") == (1, 0)
    assert rows(1, 0, numbers="ids") == (0, 1)
    assert rows(70, "x", numbers="ids") == (4, 2)
    with pytest.raises(DataError, match='no item with the id "2"'):
        rows(1, 2, numbers="ids")
    assert recordings.by_default(ids) == "id"
    assert recordings.by_default(["0", "1", "x", "70"]) == "row"
    assert recordings.by_default(RowIds(3)) == "row"


def checksum(path: Path, *lines: str) -> str:
    return recordings.checksum(read(path, "\n".join(lines)))


def test_the_checksum_is_of_what_was_judged_however_it_is_written(path: Path) -> None:
    ranked = without(round=2, presented=[0, 2, 1], ranking=[2, [0, 1]])
    first = checksum(path, line(), ranked)
    by_id = without(round=2, presented=["a", "c", "b"], ranking=[["c"], ["a", "b"]])
    named = line(presented=["a", "b"], winner="a")
    spaced = json.dumps(json.loads(ranked), indent=None, separators=(" ,  ", " : "))
    assert checksum(path, line(group=7), ranked) == first
    assert checksum(path, named, by_id) == first
    assert checksum(path, "", f"  {line(round=...)}\r", spaced, "") == first
    assert checksum(path, without(ranking=[0, 1]), ranked) == first


def test_the_checksum_tells_all_else_apart(path: Path) -> None:
    some = without(presented=[0, 2, 1], ranking=[2, 0, 1])
    every = [
        [line(), some],
        [some, line()],
        [line(), some, some],
        [line(), without(round=2, presented=[0, 2, 1], ranking=[2, 0, 1])],
        [line(), without(presented=[2, 0, 1], ranking=[2, 0, 1])],
        [line(), without(presented=[0, 2, 1], ranking=[2, [0, 1]])],
        [line(), without(presented=[0, 2, 1], ranking=[[2, 0], 1])],
        [line(), without(presented=[0, 2, 1], partial_ranking=[[2, 0], 1])],
        [line(), without(presented=[0, 3, 1], ranking=[3, 0, 1])],
        [line(), json.dumps(json.loads(some) | {"judge": "x"})],
        [without(presented=[0], score=0.5)],
        [without(presented=[0], score=0.25)],
        [without(presented=[0], ranking=[0])],
    ]
    assert len({checksum(path, *lines) for lines in every}) == len(every)


def judged(k: int, as_presented: bool, times: int, ordered: bool = True) -> list[Judgment]:
    items = tuple(range(k))
    ranked = items if as_presented else items[::-1]
    return [Judgment(1, items, Verdict(ranked), None, ordered)] * times


@pytest.mark.parametrize(
    ("judgments", "warns"),
    [
        (judged(10, True, 4) + judged(10, False, 1000), True),
        (judged(2, True, 1000), False),  # a pair is so in half of the cases
        (judged(10, True, 1000, ordered=False), False),
        (judged(3, True, 17) + judged(3, False, 83), False),
        (judged(3, True, 37) + judged(3, False, 63), True),
        (judged(4, True, 2) + judged(4, False, 10), False),
        ([Judgment(1, (0, 1, 2), Verdict.of([(0, 1), (2,)]))] * 50, False),
        ([Judgment(1, (0,), Verdict((0,), (), 0.5))] * 50, False),
        (judged(400, True, 4), True),
    ],
)
def test_more_lists_as_presented_than_chance_allows(judgments: list[Judgment], warns: bool) -> None:
    assert (too_many_as_presented(judgments) is not None) is warns


NAMES = ["t1", "t2", "t3", "t4", "t5"]
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


def votes_in(path: Path, columns: Columns = PAIRS) -> list[Judgment]:
    return votes.read(path, columns, NAMES, TEXTS).judgments


def vote(winner: int, loser: int, *, shown: tuple[int, int], judge: str | None = None) -> Judgment:
    return Judgment(1, shown, Verdict((winner, loser)), judge)


def test_ids_sides_ties_and_repeated_pairs(tmp_path: Path) -> None:
    rows = ("t1,t2,t2,Ann", "t3,t1,tie,Bob", "t1,t2,t2,Ann", "t1,t2,,Ann", "t2,t3,t2,Bob")
    path = table(tmp_path, *rows)
    recording = votes.read(path, PAIRS, NAMES, TEXTS)
    assert recording.judgments == [
        vote(1, 0, shown=(0, 1), judge="Ann"),
        Judgment(1, (2, 0), Verdict.of([(2, 0)]), "Bob"),
        vote(1, 0, shown=(0, 1), judge="Ann"),
        vote(1, 2, shown=(1, 2), judge="Bob"),
    ]
    repeated = f"{path}: 1 judgments repeat an earlier one, by the same judge: each counts."
    assert recording.notices == (f"{path}: rows without an answer were left out: 1.", repeated)


@pytest.mark.parametrize("word", ["LEFT", "a", "1", "first", "t1", " t1 ", "Good morning"])
def test_the_first_text_wins_by_any_of_its_names(tmp_path: Path, word: str) -> None:
    assert votes_in(table(tmp_path, f"t1,t2,{word},Ann")) == [vote(0, 1, shown=(0, 1), judge="Ann")]


@pytest.mark.parametrize("answer", ["t2,t3", " t2 ,t3", '"Hi, there",Hello', "2,3", "b,C", "2.0,3"])
def test_the_best_and_the_worst_by_any_of_their_names(tmp_path: Path, answer: str) -> None:
    path = bws(tmp_path, f"t1,t2,t3,t4,{answer},Ann")
    if answer == "2.0,3":  # as a table of numbers has it
        path = tmp_path / "bws.jsonl"
        row = dict(zip("abcd", NAMES, strict=False)) | {"best": 2.0, "worst": 3, "who": "Ann"}
        path.write_text(json.dumps(row))
    assert votes_in(path, BEST_WORST) == [Judgment(1, (0, 1, 2, 3), MIDDLE, "Ann")]


def test_one_of_the_two_is_enough_and_fewer_texts_too(tmp_path: Path) -> None:
    """Of three the best and the worst are a ranking; of two the best is the winner."""
    rows = ("t1,t2,t3,t4,t2,,Ann", "t1,t2,t3,t4,,t3,Ann", "t1,t2,t3,t4,,,Ann")
    fewer = ("t1,,t3,t4,t3,t1,Ann", "t1,t2,,,,t2,Bob")
    assert [one.verdict for one in votes_in(bws(tmp_path, *rows, *fewer), BEST_WORST)] == [
        Verdict.of([[1], [0, 2, 3]], partial=True),
        Verdict.of([[0, 1, 3], [2]], partial=True),
        Verdict((2, 3, 0)),
        Verdict((0, 1)),
    ]


def test_where_the_winner_has_a_column_of_its_own_the_order_is_not_known(tmp_path: Path) -> None:
    path = table(tmp_path, "J7,t2,t3", header="judgeId,chosen,notChosen")
    columns = Columns(("chosen", "notChosen"), "chosen", judge="judgeId", ties=())
    (judgment,) = votes_in(path, columns)
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
    with pytest.raises(DataError, match="row 2") as caught:
        votes_in(bws(tmp_path, "t1,t2,t3,t4,t1,t2,Ann", row), BEST_WORST)
    assert wrong in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_a_vote_that_names_neither_text_nor_side_nor_a_tie(tmp_path: Path) -> None:
    path = table(tmp_path, "t1,t2,t1,Ann", "t1,t2,t3,Ann")
    none = r"row 2.*w is 't3', which is none of its texts, and no word"
    with pytest.raises(DataError, match=none):
        votes_in(path)
    with pytest.raises(DataError, match="has no column 'v'"):
        votes_in(path, PAIRS._replace(best="v"))


def test_rounds_are_kept_apart_and_in_order(tmp_path: Path) -> None:
    path = table(tmp_path, "t1,t2,t1,7", "t2,t3,t2,3", header="a,b,w,r")
    columns = Columns(("a", "b"), "w", round="r", ties=())
    found = [(one.round, one.presented) for one in votes_in(path, columns)]
    assert found == [(1, (1, 2)), (2, (0, 1))]
    with pytest.raises(DataError, match=r"row 1.*r is 'first', which is no whole number"):
        votes_in(table(tmp_path, "t1,t2,t1,first", header="a,b,w,r"), columns)


def test_votes_by_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("id,text\nt1,One\nt2,Two\nt3,Three\n")
    table(tmp_path, "t1,t2,t1,Ann", "t2,t3,t2,Bob", "t1,t3,x,Bob")
    flags = ("-d", "texts.csv", "votes.csv", "--left", "a", "--right", "b", "--winner", "w")
    done = json_of(tmp_path, "import", *flags, "--judge-column", "who", "--tie", "x")
    assert done["jobs"]["done"] == 3
    assert json_of(tmp_path, "status")["judge"] == "Ann + Bob"
    wrong = judgeq(tmp_path, "import", *flags[:5], expect=2)
    assert "--right" in wrong.stderr


def test_best_worst_answers_by_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "texts.csv").write_text("id,text\nt1,One\nt2,Two\nt3,Three\nt4,Four\n")
    bws(tmp_path, "t1,t2,t3,t4,t2,t3,Ann")
    flags = ("--item-columns", "a, b,c,d", "--best", "best", "--worst", "worst", "-q")
    judgeq(tmp_path, "import", "-d", "texts.csv", "votes.csv", *flags, "--judge-column", "who")
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


# Judgments shared: exported and imported


def exported(folder: RunPlace, path: Path) -> Path:
    """A file of the run's judgments, as `judgeq export` writes it."""
    ids, rounds, judges = asyncio.run(results.judgments(folder))
    lines = recordings.lines(recordings.of(rounds, judges), ids)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def imported(path: Path, root: Path, dataset: str = "demo", **settings: Any) -> Result:
    given = config.settle({"dataset": dataset, **settings})
    folder, before, _ = import_run.import_judgments(given, import_run.reading(path), root)
    assert not before
    return evaluated(asyncio.run(results.read(folder, given)))


COMPARED = ("evaluation", "slots", "both_orders", "effect")
"""What is in a result as data, but for the judges' names: an import of one alone doesn't know it."""


def same(one: Result, other: Result) -> None:
    """Equal scores, bit by bit; `left_after` aside, which an import can't know."""
    assert list(one.scores.ids) == list(other.scores.ids)
    mine, theirs = ({**each.scores.numbers, "left_after": None} for each in (one, other))
    np.testing.assert_equal(mine, theirs)
    first, second = plain(one), plain(other)
    assert [first[name] for name in COMPARED] == [second[name] for name in COMPARED]


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
    second = json_of(tmp_path, "import", "-d", "demo", file)
    there = only_run(tmp_path)
    assert second["run"] == there.name
    assert there.name.startswith("demo-imported-")
    assert [first[name] for name in COMPARED] == [second[name] for name in COMPARED]
    assert second["jobs"] == first["jobs"]
    assert (second["rounds"], second["calls"], second["cost"]) == (3, 0, 0)
    assert second["cost_equivalent_calls"] == first["cost_equivalent_calls"] == 360
    assert not second["partial"]
    assert scores(there) == scores(run)
    shown = judgeq(tmp_path, "export").stdout
    assert shown.encode() == file.read_bytes()
    again = judgeq(tmp_path, "import", "-d", "demo", file)
    assert "was imported before; --new imports it again beside it" in again.stderr
    assert ", from recorded judgments" in again.stdout
    assert "simulated" not in again.stdout
    assert only_run(tmp_path) == there
    # Named by ids, they are the same judgments.
    by_id = judgeq(demo, "export", "--by", "id").stdout
    assert by_id != shown
    (tmp_path / "by-id.jsonl").write_text(by_id, encoding="utf-8")
    judgments = import_run.reading(tmp_path / "by-id.jsonl")
    given = config.settle({"dataset": "demo"}), judgments, tmp_path / "runs"
    assert import_run.import_judgments(*given) == (RunFolder(there), True, ())
    assert import_run.import_judgments(*given, new=True)[0].id == f"{there.name}-2"


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


def test_failures_recorded_as_presented_are_reported_and_left_out(
    demo: Path, tmp_path: Path
) -> None:
    lines = [json.loads(line) for line in (demo / "demo.jsonl").read_text().splitlines()]
    for line in lines[:4]:  # as a failed call is recorded by some
        line["ranking"] = line["presented"]
    file = tmp_path / "failed.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
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
    file.write_text("\n".join(map(json.dumps, lines[4:])))
    assert json_of(tmp_path, *given)["run"] == dropped
    assert "lists" not in judgeq(tmp_path, *given).stderr


def test_a_gzipped_recording_is_read(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", "demo", "-s", "listwise10x1")
    judgeq(tmp_path, "export", "--out", "votes.jsonl")
    plain = (tmp_path / "votes.jsonl").read_bytes()
    (tmp_path / "votes.jsonl.gz").write_bytes(gzip.compress(plain))
    imported = json_of(tmp_path, "import", "votes.jsonl.gz", "-d", "demo", "--runs-dir", "theirs")
    assert imported["jobs"]["done"] == len(plain.splitlines())


def test_judges_whose_names_are_numbers_are_called_judges(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", "demo", "-s", "listwise10x1")
    judgeq(tmp_path, "export", "--out", "votes.jsonl")
    lines = (tmp_path / "votes.jsonl").read_text().splitlines()
    numbered = [{**json.loads(line), "judge": str(at % 3 + 1)} for at, line in enumerate(lines)]
    (tmp_path / "n.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in numbered))
    shown = judgeq(tmp_path, "import", "n.jsonl", "-d", "demo", "--runs-dir", "theirs").stdout
    assert "judged by judges 1, 2 and 3" in " ".join(shown.split())
