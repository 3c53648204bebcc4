"""A rehearsal: texts without gold labels are judged by a hash of each, for free."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgeq.judge.simulated import rehearsal_scores
from tests.cli import judgeq, only_run, scores

JOB = ("run", "-d", "my.csv", "--feature", "how urgent the message is", "-s", "listwise3")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = "\n".join(f"m{number},message {number}" for number in range(9))
    (tmp_path / "my.csv").write_text(f"id,text\n{rows}\n")
    return tmp_path


def test_texts_without_gold_are_rehearsed_and_no_judge_named_so_is_another_run(
    folder: Path,
) -> None:
    judgeq(folder, *JOB)
    run = only_run(folder)
    assert "rehearsal" in run.name
    before = scores(run)
    judgeq(folder, *JOB, "--judge", "rehearsal")
    assert scores(only_run(folder)) == before
    (folder / "my.csv").write_text(
        (folder / "my.csv").read_text().replace("\n", ",1\n").replace("text,1", "text,gold")
    )
    judgeq(folder, *JOB, "--gold-column", "gold")
    assert len(list((folder / "runs").glob("my-listwise3-simulated-*"))) == 1


def test_a_text_has_the_same_made_up_score_wherever_it_stands() -> None:
    there, here = rehearsal_scores(["a", "b", "ü"]), rehearsal_scores(["ü", "a"])
    assert [there[2], there[0]] == here.tolist()
    assert len({*there}) == 3
    assert ((there >= 1) & (there <= 1000)).all()


def test_few_texts_are_ranked_in_one_list(folder: Path) -> None:
    few = judgeq(folder, *JOB[:-2]).stderr
    assert "listwise9" in only_run(folder).name
    assert "Only 9 texts, all in lists of 9: expect wide intervals." in few
    assert "which has 9 items" in judgeq(folder, *JOB[:-1], "listwise10", expect=2).stderr
