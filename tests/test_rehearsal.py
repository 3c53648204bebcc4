"""A rehearsal: texts without gold labels are judged by a hash of each, for free, and nothing that it
shows or writes can be taken for a result."""

import csv
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

import judgeq as package
from judgeq.ui.figures import figure
from tests.cli import json_of, judgeq, only_run, scores

FEATURE = "how urgent the message is"
FIRST = ("run", "-d", "my.csv", "--feature", FEATURE)
JOB = (*FIRST, "-s", "listwise3")
MADE_UP = "REHEARSAL: no model is named as judge, so the answers are made up."
FEW = "Only 9 texts, all in lists of 9: expect wide intervals."


def write(folder: Path) -> Path:
    rows = "\n".join(f"m{number},message {number}" for number in range(9))
    (folder / "my.csv").write_text(f"id,text\n{rows}\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a rehearsal, which tests only look at."""
    folder = write(tmp_path_factory.mktemp("rehearsal"))
    judgeq(folder, *FIRST)
    return folder


def test_texts_without_gold_are_rehearsed_and_no_named_judge_is_another_run(folder: Path) -> None:
    judgeq(folder, *JOB)
    run = only_run(folder)
    assert "REHEARSAL" in run.name
    before = scores(run)
    judgeq(folder, *JOB, "--judge", "rehearsal")
    assert scores(only_run(folder)) == before
    labelled = (folder / "my.csv").read_text().replace("\n", ",1\n").replace("text,1", "text,gold")
    (folder / "my.csv").write_text(labelled)
    judgeq(folder, *JOB, "--gold-column", "gold")
    assert len(list((folder / "runs").glob("my-listwise3-simulated-*"))) == 1


def test_few_texts_are_ranked_in_one_list(folder: Path) -> None:
    few = judgeq(folder, *FIRST)
    assert "listwise9" in only_run(folder).name
    first, second, *_ = few.stderr.split("\n")
    assert first == "REHEARSAL: made-up answers."
    assert second == FEW
    both = " ".join((few.stdout + few.stderr).split())
    assert both.count(MADE_UP) == 1
    assert both.count("To ask a model") == 1
    assert json_of(folder, "runs")[0]["rehearsal"] is True
    assert FEW in few.stdout
    assert FEW in json_of(folder, *FIRST)["cautions"]
    assert "which has 9 items" in judgeq(folder, *FIRST, "-s", "listwise10", expect=2).stderr
    result = package.run(["a", "b", "c"], "x", runs_dir=folder / "theirs", progress=False)
    assert result.cautions[1] == FEW.replace("9", "3")


@pytest.mark.parametrize("command", ["run", "status", "show", "explain m3", "evaluate", "estimate"])
def test_every_screen_says_so_in_its_first_line(made: Path, command: str) -> None:
    words = (command, *FIRST[1:]) if command in ("run", "estimate") else command.split()
    assert judgeq(made, *words).stdout.startswith("REHEARSAL: ")
    if command != "estimate":
        assert json_of(made, *words)["rehearsal"] is True


def test_the_commands_that_ask_a_model_are_shown_and_work(made: Path) -> None:
    *_, estimate, run = judgeq(made, *FIRST).stdout.rstrip().split("\n")
    assert run == estimate.replace("judgeq estimate", "judgeq run")
    shown = judgeq(made, *shlex.split(estimate)[1:]).stdout
    assert "Estimate for my-listwise9-gpt-5-mini-" in shown
    assert "REHEARSAL" not in shown


def test_tables_have_a_first_column_that_says_so(made: Path) -> None:
    import pandas as pd

    table = pd.read_csv(only_run(made) / "scores.csv", dtype={"gold": float})
    assert [*table.columns[:3]] == ["REHEARSAL", "id", "rank"]
    assert {*table.REHEARSAL} == {"made up"}
    assert sorted(table["rank"]) == [*range(1, 10)]
    for name in ("scores", "comparisons", "calls"):
        header, first, *_ = csv.reader(judgeq(made, "export", "--table", name).stdout.splitlines())
        assert header[0] == "REHEARSAL"
        assert first[0] == "made up"
    judgeq(made, "show", "--csv", "show.csv")
    assert "REHEARSAL" in (made / "show.csv").read_text().split("\n")[0]


@pytest.mark.usefixtures("undrawn")
def test_the_report_and_its_figures_say_so(made: Path) -> None:
    for kind, begins in (("html", "<title>REHEARSAL: "), ("md", "# REHEARSAL: ")):
        judgeq(made, "report", "--format", kind)
        assert begins in (only_run(made) / f"report.{kind}").read_text()[:600]
    text = (only_run(made) / "report.md").read_text()
    assert re.search("## For your paper\n\nMethods\n\n```text\nREHEARSAL: 9 texts", text)
    assert "no position bias was found" not in text
    result = package.open_run(str(only_run(made)))
    for draw in (result.plot.scale, result.plot.settling):
        (axes,) = figure(draw).axes
        assert axes.get_title(loc="left") == "REHEARSAL: made-up answers"


def test_python_says_so(made: Path) -> None:
    result = package.open_run(str(only_run(made)))
    for one, name in ((result, "Result"), (result.scores, "Scores")):
        assert repr(one).startswith(f"<{name} REHEARSAL: ")
        assert "<h3>REHEARSAL: " in one._repr_html_()
    assert result.cautions[0].startswith(MADE_UP)
    assert [*result.scores.to_pandas()][:2] == ["REHEARSAL", "id"]
    given: dict[str, Any] = {"dataset": ["a", "b", "c"], "runs_dir": made / "theirs"}
    assert "REHEARSAL" in repr(package.run(feature=FEATURE, progress=False, **given))
    refused = re.escape('To begin a real run: `judgeq.run(…, judge="gpt-5-mini")`')
    with pytest.raises(package.RunError, match=refused):
        package.resume(judge=lambda texts, _: [*range(len(texts))], progress=False, **given)


def test_no_other_judge_continues_it_or_judges_with_it(made: Path) -> None:
    refused = judgeq(made, "resume", "--judge", "gpt-5-nano", expect=7).stderr
    command = refused.split("`")[1]
    assert "--judge gpt-5-nano" in command
    assert "gpt-5-nano" in judgeq(made, *shlex.split(command)[1:], "--dry-run").stdout
    assert "REHEARSAL" in judgeq(made, "resume").stdout.split("\n")[0]
    for other in ("simulated", "people", "gpt-5-mini"):
        refused = judgeq(made, *JOB, "-j", "rehearsal", "-j", other, expect=2).stderr
        assert "its answers are made up" in refused


def test_it_is_compared_with_no_real_run(folder: Path) -> None:
    texts = {"a": "1", "b": "2", "c": "3"}
    runs = [
        package.run(texts, FEATURE, judge=judge, seed=seed, runs_dir=folder, progress=False)
        for judge, seed in ((None, 0), (None, 1), (lambda texts, _: [*range(len(texts))], 0))
    ]
    made, again, real = runs
    for pair in ((made, real), (real, made)):
        with pytest.raises(package.RunError, match="is a rehearsal, and its answers are made up"):
            pair[0].compare(pair[1])
    assert made.compare(again)["runs"][0]["rehearsal"] is True


def test_what_it_wrote_is_read_neither_as_judgments_nor_as_labels(made: Path) -> None:
    judgments = judgeq(made, "export").stdout
    assert all('"judge": "REHEARSAL"' in line for line in judgments.splitlines())
    (made / "judgments.jsonl").write_text(judgments)
    imported = judgeq(made, "import", "-d", "my.csv", "judgments.jsonl", expect=3).stderr
    assert "judgments.jsonl, line 1: it is from a rehearsal" in imported
    for name in ("comparisons.csv", "comparisons.jsonl"):
        judgeq(made, "export", "--table", "comparisons", "-o", name)
        votes = ("--left", "winner", "--right", "loser", "--winner", "winner")
        refused = judgeq(made, "import", "-d", "my.csv", name, *votes, expect=3).stderr
        assert f"{name} is from a rehearsal" in refused
    table = only_run(made) / "scores.csv"
    for words in (("evaluate", "--gold"), ("run", "-d")):
        refused = judgeq(made, *words, table, "--gold-column", "pl", expect=3).stderr
        assert "remove its column REHEARSAL" in refused


def test_a_run_of_labelled_texts_is_no_rehearsal(tmp_path: Path) -> None:
    shown = judgeq(tmp_path, "run", "-d", "demo", "--sample", "20")
    assert "REHEARSAL" not in shown.stdout + shown.stderr
    found = json_of(tmp_path, "run", "-d", "demo", "--sample", "20")
    assert (found["rehearsal"], found["judge"], found["cautions"]) == (False, "simulated", [])


FINDINGS = (
    "Position bias",
    "position bias",
    "Misfit",
    "misfit",
    "Krippendorff",
    "Being shown last",
    "ne more round",
    "can be told apart",
)


def test_nothing_is_found_in_made_up_answers(folder: Path) -> None:
    """Not even by chance: here the judges' answers favour a place."""
    judged = ("--judge", "rehearsal", "--sim-position-bias", "300", "--no-unbias-position")
    judgeq(folder, *FIRST, "-s", "pairwise24", *judged)
    assert json_of(folder, "show")["rehearsal"]
    for command in ("show", "run", "status", "report", "evaluate"):
        words = [command, "--format", "md"] if command == "report" else [command]
        if command == "run":
            words += [*FIRST[1:], "-s", "pairwise24", *judged]
        shown = judgeq(folder, *words).stdout
        if command == "report":
            shown = (only_run(folder) / "report.md").read_text().split("## For your paper")[0]
        shown = shown.replace("Position bias, misfit and agreement of judges aren't looked for", "")
        assert not [word for word in FINDINGS if word in shown], command
    judgeq(folder, "report")
    table = (only_run(folder) / "report.html").read_text()
    assert '"contested":null' in table
    assert "–: the answers are made up." in judgeq(folder, "show", "--contested").stdout
    evaluated = json_of(folder, "evaluate", "--resamples", "0")
    assert evaluated["reliability"]["separation"]["ssr"] is None
    assert [one[:10] for one in evaluated["cautions"]] == ["REHEARSAL:", "Only 9 tex"]


@pytest.mark.usefixtures("undrawn")
def test_it_stands_above_everything(made: Path) -> None:
    """The sentence that says it comes before the first number."""
    judgeq(made, "report", "--format", "md")
    screens = {name: judgeq(made, name).stdout for name in ("show", "evaluate")}
    screens["run"] = judgeq(made, *FIRST).stdout
    screens["report"] = (only_run(made) / "report.md").read_text()
    for name, shown in screens.items():
        words = " ".join(shown.replace("\\", "").split())
        assert words.index("no model is named as judge") < 200, name


def test_own_texts_ranked_by_their_labels_are_marked_as_loudly(folder: Path) -> None:
    labelled = (folder / "my.csv").read_text().replace("\n", ",1\n").replace("text,1", "text,gold")
    (folder / "my.csv").write_text(labelled.replace("m3,message 3,1", "m3,message 3,5"))
    job = (*FIRST, "--gold-column", "gold")
    said = "SIMULATED: the simulated judge reads the gold labels of these texts."
    shown = judgeq(folder, *job).stdout
    assert shown.startswith("SIMULATED: ")
    assert said in " ".join(shown.split())
    assert json_of(folder, *job)["cautions"][0].startswith(said)
    for command in ("show", "evaluate", "status"):
        assert judgeq(folder, command).stdout.startswith("SIMULATED: ")
    header = (only_run(folder) / "scores.csv").read_text().split("\n")[0]
    assert header.startswith("SIMULATED,id,")
    table = judgeq(folder, "export", "--table", "comparisons").stdout
    assert table.startswith("SIMULATED,")
    refused = judgeq(folder, "run", str(only_run(folder) / "scores.csv"), "--dry-run", expect=3)
    assert "is from the simulated judge: its numbers are made up" in refused.stderr
    judgeq(folder, "run", "demo", "--runs-dir", "shipped")
    assert "SIMULATED" not in judgeq(folder, "show", "--runs-dir", "shipped").stdout


def test_the_command_to_ask_a_model_works_as_it_is_printed(tmp_path: Path) -> None:
    """Of texts that nothing says what to compare by, it has the flag for that, and says so."""
    (tmp_path / "mine.csv").write_text("\n".join(["text", *(f"text {row}" for row in range(12))]))
    done = judgeq(tmp_path, "run", "mine.csv")
    assert 'No feature is given. Give --feature "what to compare by".' in " ".join(
        done.stderr.split()
    )
    printed = [line.strip() for line in done.stdout.splitlines() if "judgeq estimate" in line]
    assert len(printed) == 1
    words = shlex.split(printed[0])
    assert words[:2] == ["judgeq", "estimate"]
    assert json_of(tmp_path, *words[1:])["judge"] == "gpt-5-mini"


def test_another_name_for_a_run_is_told(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", "demo", "--sample", "20", "-q", "--name", "one")
    same = judgeq(tmp_path, "run", "demo", "--sample", "20", "-q", "--name", "one")
    assert "named" not in same.stderr
    other = judgeq(tmp_path, "run", "demo", "--sample", "20", "-q", "--name", "two")
    assert "The run was named 'one', and is named 'two' from now on." in other.stderr
