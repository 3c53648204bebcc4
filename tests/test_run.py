"""The whole run, from the command line: what it writes, says, and does the second time."""

import json
import socket
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
from filelock import FileLock

from tests.cli import json_of, judgeq, only_run, query, score_columns, scores
from tests.fakes import faults

SURE = ("se", "low", "high", "rank_low", "rank_high", "tier")
SMALL = ("run", "--dataset", "synthetic:normal", "--n", "120")


def test_babe_without_its_texts_goes_from_start_to_scores(tmp_path: Path) -> None:
    done = judgeq(tmp_path, "run", "--dataset", "babe", "--strategy", "listwise10")
    run = only_run(tmp_path)
    assert "texts of babe are not here" in done.stderr
    assert "The simulated judge reads the gold labels" in done.stdout
    assert '3,674 texts of babe ranked by "biased wording", judged by the simulated' in done.stdout
    assert "F1 0.96, accuracy 0.96, Spearman 0.85" in done.stdout
    assert f"runs/{run.name}/scores.csv" in done.stdout
    assert query(run, "SELECT count(*) FROM jobs") == [(3 * 368,)]
    columns = score_columns(run)
    assert list(columns) == ["id", "rank", "elo", "pl", *SURE, "matches", "wins", "gold"]
    assert columns["id"] == [str(row) for row in range(3674)]
    assert set(columns["matches"]) == {"3"}
    assert sorted(set(columns["gold"])) == ["", "0.0", "1.0"]
    assert sum(map(float, columns["elo"])) == pytest.approx(1500 * 3674)
    assert sum(map(float, columns["wins"])) == 3 * (362 * 45 + 6 * 36)


def test_without_a_model_nothing_goes_over_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A corpus may be downloaded, unless JUDGEQ_OFFLINE forbids that."""
    refused = Mock(side_effect=OSError("no network"))
    for name in ("connect", "connect_ex", "sendto"):
        monkeypatch.setattr(socket.socket, name, refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setitem(sys.modules, "uvloop", None)  # whose sockets aren't Python's
    judgeq(tmp_path, "run", "--dataset", "demo", variables={"JUDGEQ_OFFLINE": ""})
    judgeq(tmp_path, "status", variables={"JUDGEQ_OFFLINE": ""})
    judgeq(tmp_path, "estimate", "--dataset", "babe")
    assert not refused.called


def test_the_same_command_on_a_finished_run_judges_nothing(tmp_path: Path) -> None:
    first = judgeq(tmp_path, *SMALL).stdout
    run = only_run(tmp_path)
    before = scores(run), query(run, "SELECT * FROM calls")
    (run / "scores.csv").unlink()
    done = judgeq(tmp_path, *SMALL)
    assert done.stderr == ""
    assert done.stdout == first
    assert (scores(run), query(run, "SELECT * FROM calls")) == before


def test_a_run_that_cant_be_written_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judgeq(tmp_path, *SMALL)
    monkeypatch.setattr(FileLock, "acquire", Mock(side_effect=OSError(30, "Read-only")))
    assert "can't be locked" in judgeq(tmp_path, *SMALL, expect=7).stderr
    assert "rank" in judgeq(tmp_path, "show").stdout


@pytest.mark.parametrize(("strategy", "model"), [("listwise7x2", "vg"), ("pairwise5", "rrt")])
def test_concurrency_never_changes_a_score(tmp_path: Path, strategy: str, model: str) -> None:
    job = (*SMALL, "--strategy", strategy, "--sim-model", model, "--quiet")
    found = set()
    for name, failing, flags in (
        ("one", {}, ("--concurrency", "1")),
        ("many", {}, ("--concurrency", "500", "--sim-latency", "0.02")),
        ("faults", {"rate_limited": 0.1, "timeouts": 0.05}, ()),
    ):
        with faults(**failing):
            judgeq(tmp_path, *job, *flags, "--runs-dir", name)
        (run,) = (tmp_path / name).iterdir()
        found.add(scores(run))
    assert len(found) == 1


def test_json_is_one_object_and_all_else_is_on_standard_error(tmp_path: Path) -> None:
    job = ("run", "--dataset", "synthetic:binary", "--n", "120")
    done = judgeq(tmp_path, *job, "--json")
    result = json.loads(done.stdout)
    assert result["jobs"]["done"] == 36
    assert not result["partial"]
    assert [one["rating"] for one in result["evaluation"]] == ["elo", "pl"]
    assert "round 3/3 rated" in done.stderr
    assert judgeq(tmp_path, *job, "--quiet").stdout == ""


def test_status_runs_and_rate_read_what_is_there(tmp_path: Path) -> None:
    judgeq(tmp_path, *SMALL)
    run = only_run(tmp_path)
    state = json_of(tmp_path, "status", "last")
    assert state["jobs_by_round"][2]["done"] == 12
    first = score_columns(run)
    done = json_of(tmp_path, "show", "--write", "--sigma", "0.5")
    assert (done["fit"]["sigma"], done["fit"]["sigma_chosen"]) == (0.5, False)
    assert max(map(float, score_columns(run)["pl"])) < max(map(float, first["pl"]))


def test_a_changed_dataset_prompt_or_configuration_is_not_mixed_in(tmp_path: Path) -> None:
    data, prompt = tmp_path / "my.csv", tmp_path / "my.toml"
    data.write_text("text,gold\n" + "".join(f"text {i},{i}\n" for i in range(12)))
    words = 'name = "mine"\nfeature = "x"\nsystem = "s"\npair = "p"\nlist = "l"\ndirect = "d"\n'
    prompt.write_text(words)
    job = ("run", "--dataset", "my.csv", "--gold-column", "gold", "--prompt", "my.toml")
    judgeq(tmp_path, *job, "-s", "listwise4", "--quiet")
    run = only_run(tmp_path)
    before = scores(run)

    for file, old, new, what in (
        (data, "text 3", "text three", "dataset"),
        (data, ",7", ",70", "labels"),
        (prompt, '"p"', '"q"', "prompt"),
        (run / "config.json", '"strategy": "listwise4"', '"strategy": "listwise5"', "strategy"),
    ):
        whole = file.read_text()
        assert old in whole
        file.write_text(whole.replace(old, new))
        assert f"its {what} changed" in judgeq(tmp_path, "resume", "last", expect=7).stderr
        file.write_text(whole)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    again = ("--dataset", data, "--prompt", prompt)  # another user, so to say: its own HOME
    judgeq(elsewhere, "resume", run, *again, "--quiet")
    assert scores(run) == before


def test_what_a_user_asks_wrongly_is_told_with_its_exit_code(tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("text\na\nb\n")
    (tmp_path / "bad.toml").write_text("sim_acuracy = 1\n")
    for code, words, *arguments in (
        (2, "No dataset is given (--dataset)", "run"),
        (2, "'--n': 0 is not in the range 1 to 1000000.", "show", "--n", "0"),
        (2, "'--pilot': 0 is not in the range from 1.", "estimate", "--pilot", "0"),
        (2, "Did you mean 'babe'?", "run", "--dataset", "bab"),
        (3, "gone.csv can't be read", "run", "--dataset", "gone.csv"),
        (2, "at least 2 items", "run", "--dataset", "demo", "-s", "listwise1"),
        (2, "which has 240 items", "run", "--dataset", "demo", "-s", "listwise241"),
        (2, "--sim-accuracy", "run", "--dataset", "demo", "--sim-accuracy", "1.5"),
        (2, "--rating", "run", "--dataset", "demo", "--rating", "glicko"),
        (4, "OPENAI_API_KEY is not set", "run", "--dataset", "demo", "--judge", "gpt-5-mini"),
        (2, "did you mean simulated?", "run", "--dataset", "demo", "--judge", "simulate"),
        (2, "can't be a model's name", "run", "--dataset", "demo", "--judge", "two words"),
        (2, "--extra-body is no JSON", "run", "--dataset", "demo", "--extra-body", "{"),
        (2, "--base-url: for a model", "run", "--dataset", "demo", "--base-url", "http://h/v1"),
        (2, "has none. Give --gold-column", "run", "-d", "two.csv", "--judge", "simulated"),
        (3, "Did you mean 'sim_accuracy'", "run", "--dataset", "demo", "--config", "bad.toml"),
        (7, "No runs yet", "status"),
        (2, "No such option", "run", "--bogus"),
    ):
        done = judgeq(tmp_path, *arguments, expect=int(str(code)))
        assert str(words) in " ".join(done.stderr.split()), (words, done.stderr)
        assert done.stdout == ""
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_untrusted_words_cannot_style_or_move_the_terminal(tmp_path: Path) -> None:
    rows = [{"id": f"[bold]{i}[/bold]", "text": f"\x1b[2J[red]{i}", "gold": i} for i in range(6)]
    (tmp_path / "evil.jsonl").write_text("\n".join(map(json.dumps, rows)))
    job = ("run", "-d", "evil.jsonl", "--id-column", "id", "--gold-column", "gold")
    done = judgeq(tmp_path, *job, "-s", "listwise3")
    for shown in (done.stdout, judgeq(tmp_path, "status").stdout):
        assert "[bold]5[/bold]" in shown
        assert "\x1b" not in shown
    assert "[red]5" in done.stdout
    assert "\x1b" not in done.stderr


def test_a_run_without_a_verdict_has_no_ratings_and_is_not_finished(tmp_path: Path) -> None:
    job = ("run", "--dataset", "synthetic:binary", "--n", "8", "-s", "listwise4x2")
    with faults(unreadable=1):
        done = judgeq(tmp_path, *job, expect=4)
    assert "none of the 4 jobs brought a verdict (4 invalid, 0 failed)" in done.stderr
    assert "accuracy" not in done.stdout
    run = only_run(tmp_path)
    assert not (run / "scores.csv").exists()
    for command in ("status", "runs"):
        assert "no verdicts" in judgeq(tmp_path, command).stdout
    for words in (("show", "--write"), ("evaluate",)):
        assert "has no verdict" in judgeq(tmp_path, *words, expect=7).stderr
    judgeq(tmp_path, "resume", "--retry-failed")
    assert "finished" in judgeq(tmp_path, "status").stdout
