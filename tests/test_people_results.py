"""What is reported of the people who judge a run, in every output, with names and words that mean
harm."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import sqlite3
from contextlib import closing
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import judgeq as package
from judgeq.engine import session
from judgeq.errors import RunError
from judgeq.evaluation import people
from judgeq.evaluation.agreement import between, codings
from judgeq.evaluation.people import Share
from judgeq.person import Check, Person, PersonState, Said
from judgeq.types import Verdict, Verdicts
from judgeq.ui.dashboard import PlainLines
from judgeq.ui.progress import figures, progress_line
from tests import judging as them
from tests.cli import judgeq


def of(answers: list[tuple[int, tuple[int, ...], Verdict]]) -> Verdicts:
    """The verdicts of (judge, presented, verdict), one a match."""
    sizes = [len(verdict.items) for _, _, verdict in answers]
    scores = [np.nan if verdict.score is None else verdict.score for *_, verdict in answers]
    return Verdicts(
        matches=np.arange(len(answers)),
        items=np.concatenate([verdict.items for *_, verdict in answers]).astype(np.int32),
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        tied=np.concatenate(
            [verdict.tied or (False,) * k for (*_, verdict), k in zip(answers, sizes, strict=True)]
        ),
        presented=np.concatenate([presented for _, presented, _ in answers]).astype(np.int32),
        scores=None if np.isnan(scores).all() else np.array(scores),
        judges=np.array([judge for judge, *_ in answers], np.int32),
        partial=np.array([verdict.partial for *_, verdict in answers]),
    )


def test_couples_are_two_answers_to_one_question_by_hand() -> None:
    full, turned = Verdict((0, 1, 2)), Verdict((2, 1, 0))
    tied = Verdict.of([(0, 1), (2,)])
    best = Verdict.of([(0,), (1, 2)], partial=True)
    verdicts = of(
        [
            (1, (0, 1, 2), full),
            (2, (1, 0, 2), turned),
            (3, (2, 1, 0), tied),
            (0, (0, 2, 1), best),
            (0, (3, 4), Verdict((3, 4))),  # nobody else
            (0, (5, 6), Verdict((5, 6))),  # models alone
            (4, (6, 5), Verdict((5, 6))),
            (1, (7, 8), Verdict((8, 7))),
            (0, (8, 7), Verdict((8, 7))),
        ]
    )
    judges = np.arange(5)
    is_person = (judges > 0) & (judges < 4)
    given = codings(verdicts)
    counted = {}
    for one, other in combinations(range(5), 2):
        if is_person[one] or is_person[other]:
            two = between(given, judges == one, judges == other)
            counted[one, other] = two.alike.sum(), two.pairs.sum()
    assert {between: found for between, found in counted.items() if found[1]} == {
        (1, 2): (0, 3),
        (1, 3): (2.5, 3),
        (2, 3): (0.5, 3),
        (0, 1): (2 + 1, 2 + 1),
        (0, 2): (0, 2),
        (0, 3): (1.5, 2),
    }
    among = between(given, is_person, is_person)
    assert (among.pairs > 0).sum() == 1
    assert among.alike.sum() / among.pairs.sum() == pytest.approx(1 / 3)
    model = between(given, is_person, judges == 0)
    assert (model.pairs > 0).sum() == 2
    # Of two items the mean over all couples of answers, then over the pairs of items.
    assert model.alike.sum() / model.pairs.sum() == pytest.approx((0.5 + 2 / 3 + 1) / 3)
    nobody = judges > 9
    assert not between(given, nobody, nobody).pairs.any()


def said(checks: list[Check]) -> Said:
    return Said(1, [Person(0, "Ann", b"x" * 32, 9)], checks, {0: [1.0, 5.0, 2.0]}, {0: 2})


def test_checks_are_counted_by_hand() -> None:
    own = of(
        [
            (1, (0, 1), Verdict((0, 1))),
            (1, (2, 3), Verdict((2, 3))),
            (1, (4, 5, 6), Verdict((4, 5, 6))),
            (1, (7, 8), Verdict.of([(7, 8)])),
        ]
    )
    checks = [
        Check(0, (1, 0), 0, repeats=0, verdict=Verdict((0, 1))),  # alike
        Check(1, (3, 2), 0, repeats=1, verdict=Verdict((3, 2))),  # the same place
        Check(2, (6, 5, 4), 0, repeats=2, verdict=Verdict((4, 6, 5))),
        Check(3, (8, 7), 0, repeats=3, verdict=Verdict((7, 8))),  # was a tie
        Check(4, (9, 8), 0, repeats=9, verdict=Verdict((8, 9))),  # taken back since
        Check(5, (0, 5), 0, known=(5, 0), verdict=Verdict((5, 0))),
        Check(6, (0, 6), 0, known=(6, 0), verdict=Verdict((0, 6))),
        Check(7, (0, 7), 0, known=(7, 0)),  # not answered
        Check(8, (0, 8), None, known=(8, 0)),
    ]
    (record,) = people.records(said(checks), own)
    assert record.repeats.count == pytest.approx(1 + 0 + 2 / 3 + 0.5)
    assert record.repeats.total == 4
    assert record.known == Share(1, 2)
    assert (record.done, record.skipped, record.seconds) == (11, 2, 2.0)
    assert record.first_by_slot == [1, 0, 0]
    assert record.agreement == Share()


def test_repeated_single_texts_are_alike_within_a_step_of_the_scale() -> None:
    own = of([(1, (row,), Verdict((row,), score=5 / 9)) for row in range(3)])
    checks = [
        Check(row, (row,), 0, repeats=row, verdict=Verdict((row,), score=score))
        for row, score in enumerate((5 / 9, 6 / 9, 7 / 9))
    ]
    (record,) = people.records(said(checks), own)
    assert record.repeats == Share(2, 3)
    assert record.first_by_slot == []


def test_everybody_is_listed_before_anything_is_answered_and_in_a_run_that_goes_on(
    tmp_path: Path,
) -> None:
    begun = them.stopped(tmp_path, 0)
    before = asyncio.run(people.read(begun.folder))
    assert [(one.name, one.state, one.done, one.seconds) for one in before] == [
        ("Ann", PersonState.ACTIVE, 0, None),
        ("Bob", PersonState.ACTIVE, 0, None),
    ]
    begun = them.stopped(tmp_path, 12, each=2)
    ann, bob = asyncio.run(people.read(begun.folder))
    assert (ann.done, bob.done, ann.quota) == (12, 12, 12)
    assert sum(ann.first_by_slot) == pytest.approx(1)


def test_a_check_that_repeats_another_question_is_a_damaged_ledger(tmp_path: Path) -> None:
    result = them.run(tmp_path, ["Ann"], repeats=0.2)
    with closing(sqlite3.connect(result.run.database)) as ledger, ledger:
        changed = "UPDATE checks SET {} = x'0000000001000000' WHERE repeats IS NOT NULL"
        for column in ("items", "ranking"):
            ledger.execute(changed.format(column))
    with pytest.raises(RunError, match=r"damaged: a check repeats a question about other items"):
        asyncio.run(people.read(result.run))


# Outputs


NOTE, SKIPPED = (
    "=HYPERLINK(1) \x1b[31m<img src=x onerror=alert(1)>\u202e",
    "broken <b>text</b>\x1b[2J",
)


@pytest.fixture(scope="module")
def remarks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("remarks")
    them.remarked(folder, NOTE, SKIPPED, strategy="listwise6x2")
    return folder


def table(text: str) -> list[dict[str, str]]:
    return [*csv.DictReader(io.StringIO(text))]


def test_exports_name_who_answered(remarks: Path) -> None:
    calls = table(judgeq(remarks, "export", "--table", "calls", "--replies").stdout)
    assert sorted({call["judge"] for call in calls}) == ["Ann", "Bob"]
    (skipped,) = [call for call in calls if call["outcome"] == "skipped"]
    assert (skipped["judge"], skipped["reply"]) == ("Bob", "")
    assert skipped["error"].startswith("broken")
    answered = [call for call in calls if call["outcome"] == "ok"]
    assert all(call["reason"].startswith("'=HYPERLINK") for call in answered)
    compared = table(judgeq(remarks, "export", "--table", "comparisons").stdout)
    assert {row["judge"] for row in compared} == {"Ann"}
    recorded = [json.loads(line) for line in judgeq(remarks, "export").stdout.splitlines()]
    assert {line["judge"] for line in recorded} == {"Ann"}


ALONE = ("--judge", "people", "--dataset", "texts.csv", "--feature", "how large the number is")


def test_an_estimate_says_how_many_answers_are_needed_and_no_dollars(tmp_path: Path) -> None:
    them.dataset(tmp_path)
    shown = judgeq(tmp_path, "estimate", *ALONE, "--strategy", "pairwise2", "--each", "2").stdout
    assert "48, 2 people a question" in shown
    assert "$" not in shown
    said = json.loads(
        judgeq(
            *(tmp_path, "run", "--dry-run", *ALONE, "--judge", "gpt-5-mini", "--ensemble", "each"),
            *("--strategy", "pairwise2", "--json"),
        ).stdout
    )
    assert (said["answers"], said["calls"]) == (24, 24)
    assert said["cost"] is not None


def test_what_was_answered_is_no_more_to_be_given(tmp_path: Path) -> None:
    begun = them.stopped(tmp_path, 5, each=2)
    flags = ("--gold-column", "gold", "--strategy", "pairwise2", "--each", "2", "--json")
    said = json.loads(judgeq(tmp_path, "estimate", *ALONE, *flags).stdout)
    assert (said["run"], said["answers"]) == (begun.folder.id, 38)
    status = judgeq(tmp_path, "status").stdout
    assert "10 of 48 done" in status
    assert "$" not in status
    assert "judgeq annotate" in status


def test_a_result_counts_answers_and_no_dollars(remarks: Path) -> None:
    shown = " ".join(judgeq(remarks, "show", "--write").stdout.split())
    assert "judged by 1 person" in shown
    assert "8 by 1 person, 0 s each (median), 1 skipped" in shown
    assert "$" not in shown


def test_faces_count_answers_and_who_is_there(tmp_path: Path) -> None:
    lines = io.StringIO()
    face = PlainLines(Console(file=lines, width=200), every=0.0)
    prepared = session.prepare(them.settings(tmp_path, each=2), tmp_path / "runs")
    with face:
        session.execute(prepared, face, page=them.judged_by(["Ann", "Bob", "Eve"]))
    face.progress.here = 1
    said = progress_line(face.progress, 9.0)
    assert said == "48/48 answers · 1 person there"
    assert figures(face.progress, 9.0).keys() == {"answers", "time"}
    assert face.progress.rated is not None
    assert len(face.progress.rated.top) == 10
    assert face.progress.time_left(9.0) is None
    assert "calls" not in lines.getvalue()


HOSTILE = ["<script>alert(1)</script>", "=1+1", "[red]Ann[/red]"]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    them.run(
        *(folder, HOSTILE),
        noise=3.0,
        each=2,
        repeats=0.2,
        strategy="listwise6x3",
        judge=("people", "simulated"),
        ensemble="each",
        latent_column="gold",
    )
    return folder


@pytest.mark.usefixtures("undrawn")
def test_a_report_says_how_many_people_judged_and_how_well_they_agree(hostile: Path) -> None:
    judgeq(hostile, "report")
    (page,) = (hostile / "runs").glob("*/report.html")
    html = page.read_text("utf-8")
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert "3 people and simulated answered 36 questions" in html
    assert "Each question for people was judged by 2 people; an answer took" in html
    assert "Two people agreed on the order of 0." in html
    assert "Agreement of people: the share of pairs of texts ordered alike" in html


@pytest.mark.parametrize(
    "command", ["show --write", "evaluate", "explain last", "annotate list last", "status"]
)
def test_names_can_do_no_harm(hostile: Path, command: str) -> None:
    words = command.split()
    if command == "explain last":  # an item that Ann judged
        run = package.open_run(runs_dir=hostile / "runs")
        first, ann = run.history.asked[0], list(run.judges).index("[red]Ann[/red]")
        assert first.judges is not None
        words.append(run.scores.ids[first.items[first.offsets[:-1][first.judges == ann][0]]])
    shown = judgeq(hostile, *words).stdout
    assert "\x1b" not in shown
    if command in ("explain last", "annotate list last"):
        assert "[red]Ann[/red]" in shown


def test_tables_for_spreadsheets_hold_no_formulas(hostile: Path) -> None:
    judgeq(hostile, "evaluate", "--resamples", "0", "--csv", "numbers.csv")
    for text in (
        (hostile / "numbers.csv").read_text("utf-8"),
        judgeq(hostile, "export", "--table", "calls").stdout,
        judgeq(hostile, "export", "--table", "comparisons").stdout,
    ):
        cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
        assert not [cell for cell in cells if cell.startswith("=")]
