"""What a run of people looks like in every output, with names and words that mean harm."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console

import judgeq as package
from judgeq.engine import session
from judgeq.ui.dashboard import PlainLines
from judgeq.ui.progress import figures, progress_line
from tests import judging as them
from tests.cli import judgeq

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


def test_explain_shows_who_judged_and_what_they_noted(remarks: Path) -> None:
    shown = judgeq(remarks, "explain", "last", "t3", "--replies").stdout
    assert "Ann: ok" in shown
    assert "=HYPERLINK(1)" in shown
    assert "tokens" not in shown
    assert not {"\x1b", "\u202e"} & set(shown)
    facts = json.loads(judgeq(remarks, "explain", "last", "t3", "--replies", "--json").stdout)
    judgments = facts["judgments"]
    reasons = [facts["reasons"][str(one["job"])] for one in judgments]
    assert all(one["judge"] == "Ann" for one in judgments)
    assert set(reasons) == {NOTE.strip()}
    calls = [call for of_job in facts["replies"].values() for call in of_job]
    assert {call["judge"] for call in calls} <= {"Ann", "Bob"}


def test_explain_shows_who_skipped_a_question_that_has_no_verdict(tmp_path: Path) -> None:
    them.skipping(tmp_path, SKIPPED)
    shown = judgeq(tmp_path, "explain", "last", "t3").stdout
    assert "Ann: skipped (broken <b>text</b>)" in " ".join(shown.split())
    assert "\x1b" not in shown


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


@pytest.mark.usefixtures("undrawn")
def test_a_report_on_people_alone_has_no_dollars(remarks: Path) -> None:
    judgeq(remarks, "report", "--format", "md")
    (page,) = (remarks / "runs").glob("*/report.md")
    text = page.read_text("utf-8")
    assert "1 person answered 8 questions" in text
    assert re.search(r"\d skipped", text)
    assert "tokens in" not in text
    assert "$0" not in text
    assert not {"\x1b", "\u202e"} & set(text)


@pytest.mark.parametrize(
    "command",
    [
        "show --write",
        "evaluate",
        "show --contested",
        "explain last",
        "annotate list last",
        "status",
    ],
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


def test_people_are_compared_with_a_model_over_the_same_items(hostile: Path) -> None:
    alone = them.run(hostile, ["Eve"], strategy="listwise6x2", noise=2.0)
    model = them.run(
        hostile, (), judge=("simulated",), feature=None, latent_column="gold", strategy="listwise6"
    )
    shown = judgeq(hostile, "compare", alone.run.id, model.run.id).stdout
    assert "Do they rank alike?" in shown
    said = json.loads(judgeq(hostile, "compare", alone.run.id, model.run.id, "--json").stdout)
    assert [run["judge"] for run in said["runs"]] == ["1 person", "simulated"]
