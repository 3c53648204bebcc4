"""The command line itself: how it begins, what it prints where, and how it ends."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from judgeq.cli import app
from judgeq.cli.app import COMMANDS
from judgeq.cli.tools import job_file
from judgeq.run_places import RunFolder
from judgeq.settings.run import SETTINGS
from tests.cli import command, commands, environment, json_of, judgeq, only_run, started

SMALL = ("run", "--dataset", "synthetic:normal", "--n", "40", "--strategy", "listwise10x1")
WORDS = "é–σ–ρ–漢"


def about(stdout: str) -> Any:
    value = json.loads(stdout)
    assert isinstance(value, dict)
    return value


def test_ctrl_c_while_modules_load_ends_quietly(tmp_path: Path) -> None:
    arguments = (*SMALL, "--sim-latency", "1000", "--json")
    process = started(tmp_path, sys.executable, "-X", "importtime", "-m", "judgeq", *arguments)
    assert process.stderr is not None
    for line in process.stderr:  # a line a module, as soon as it is loaded
        if line.rpartition("|")[2].strip() == "numpy":
            break
    else:
        pytest.fail("numpy was never loaded")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    if said and "stopping" in said[-2 if len(said) > 1 else -1]:
        pytest.skip("the modules were loaded before the signal came")
    assert process.returncode == 5, err
    assert not re.search("Traceback|ignored", err)
    assert said[-1].startswith("judgeq: stopped")
    assert about(out)["error"]["exit_code"] == 5


@pytest.fixture
def worded(tmp_path: Path) -> Path:
    """A folder with a dataset whose ids aren't ASCII."""
    rows = "".join(f"{WORDS}{i},t{i},{i}\n" for i in range(6))
    (tmp_path / "d.csv").write_text(f"id,text,gold\n{rows}", encoding="utf-8")
    columns = ("--id-column", "id", "--gold-column", "gold")
    judgeq(tmp_path, "run", "-d", "d.csv", *columns, "-s", "listwise3x2", "--quiet")
    return tmp_path


def test_what_an_output_cannot_show_is_replaced(worded: Path) -> None:
    for arguments in (("run", "--help"), ("status",), ("run", "-d", f"{WORDS}.csv")):
        expect = 3 if arguments[-1] == f"{WORDS}.csv" else 0
        judgeq(worded, *arguments, expect=expect, encoding="ascii")
    assert "é" in judgeq(worded, "status", encoding="latin-1").stdout


def test_json_loses_nothing_whatever_the_encoding(worded: Path) -> None:
    done = judgeq(worded, "export", "--by", "id", encoding="latin-1")
    line = json.loads(done.stdout.splitlines()[0])
    assert all(name.startswith(WORDS) for name in line["presented"])
    done = judgeq(worded, "run", "-d", f"{WORDS}.csv", "--json", expect=3, encoding="latin-1")
    assert WORDS in about(done.stdout)["error"]["message"]


@pytest.mark.parametrize("arguments", [("list", "strategies", "--json"), SMALL])
def test_a_closed_pipe_ends_quietly(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    with subprocess.Popen(
        command(*arguments), cwd=tmp_path, env=environment(tmp_path), stdout=write,
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        os.close(write)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 141, err
    assert all("judgeq ·" in line or "round" in line for line in err.splitlines())


def test_outputs_that_are_closed_or_full(tmp_path: Path) -> None:
    words = ("sh", *command("list", "strategies"))
    assert started(tmp_path, "sh", "-c", '"$@" >&- 2>&-', *words).wait() == 0
    if Path("/dev/full").exists():
        full = started(tmp_path, "sh", "-c", '"$@" > /dev/full', *words)
        _, told = full.communicate(timeout=60)
        assert full.returncode == 1
        assert told.startswith("judgeq: standard output can't be written to: No space")
        assert "ignored" not in told


def on_a_terminal(folder: Path, *arguments: str, typed: str = "", **variables: str) -> str:
    """What is shown on a terminal, where something is typed."""
    master, slave = os.openpty()
    variables = {"TERM": "xterm-256color"} | variables
    with subprocess.Popen(
        command(*arguments), cwd=folder, env=environment(folder) | variables, stdout=slave,
        stderr=slave, stdin=slave,
    ) as process:  # fmt: skip
        os.close(slave)
        os.write(master, typed.encode())
        shown = b""
        with contextlib.suppress(OSError):  # EIO: all have closed it
            while part := os.read(master, 4096):
                shown += part
        process.wait(timeout=60)
    os.close(master)
    return shown.decode()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    judgeq(tmp_path, "run", "demo", "-s", "listwise10x1", "--sample", "20", "--name", "pilot", "-q")
    return only_run(tmp_path)


def test_a_run_is_removed_whole_once_that_is_confirmed(run: Path) -> None:
    folder = run.parents[1]
    left = judgeq(folder, "runs", "rm", "pilot", expect=2)
    assert re.search(r"Remove 1 run, with all that was answered\?.*--yes", left.stderr, re.DOTALL)
    assert re.search(f"{run.name}.*2/2", left.stdout, re.DOTALL)
    refused = judgeq(folder, "runs", "rm", "last", "--yes", expect=2).stderr
    assert "'last' may be another by now" in refused
    assert run.is_dir()
    assert f"Removed: {run.name}" in on_a_terminal(folder, "runs", "rm", "pilot", typed="y\n")
    assert not run.exists()
    judgeq(folder, "runs", "rm", "pilot", "--yes", expect=7)


def test_a_run_in_use_is_never_removed_nor_another_beside_it(run: Path) -> None:
    folder = run.parents[1]
    judgeq(folder, "run", "demo", "-s", "listwise10x1", "--sample", "22", "--name", "other", "-q")
    with RunFolder(run).locked():
        told = judgeq(folder, "runs", "rm", "other", "pilot", "--yes", expect=7).stderr
    assert f"run {run.name} is in use: stop it first. Nothing was removed." in told
    assert len(list(run.parent.iterdir())) == 2


def test_json_is_an_object_of_the_error_where_there_is_no_run(tmp_path: Path) -> None:
    for code, kind, *arguments in (
        (2, "UsageError", "run"),
        (2, "UsageError", "run", "--bogus"),
        (2, "UsageError", "bogus"),
        (2, "UsageError", "compare", "a"),
        (3, "DataError", "run", "-d", "gone.csv"),
        (4, "KeyMissingError", "run", "-d", "demo", "--judge", "gpt-5-mini"),
        (7, "RunError", "status"),
        (7, "RunError", "show", "--write"),
    ):
        done = judgeq(tmp_path, *map(str, arguments), "--json", expect=int(str(code)))
        error = about(done.stdout)["error"]
        assert (error["type"], error["exit_code"]) == (kind, code)
        assert " ".join(error["message"].split()) in " ".join(done.stderr.split())


def test_a_job_file_has_every_common_setting() -> None:
    lines = job_file(Path("p.toml")).splitlines()
    for name, setting in SETTINGS.items():
        shown = [line for line in lines if line.removeprefix("# ").startswith(f"{name} = ")]
        assert len(shown) == setting.common


def test_init_writes_a_job_that_runs_and_overwrites_nothing(tmp_path: Path) -> None:
    assert json_of(tmp_path, "init") == {"files": ["job.toml", "prompt.toml"]}
    assert json_of(tmp_path, "run", "--config", "job.toml")["partial"] is False
    assert "how urgent the message is" in judgeq(tmp_path, "list", "prompts", "prompt.toml").stdout
    assert "job.toml is there already" in judgeq(tmp_path, "init", expect=2).stderr
    again = judgeq(tmp_path, "init", "other.toml", expect=2)
    assert "prompt.toml is there already" in again.stderr
    assert not (tmp_path / "other.toml").exists()


def test_help_shows_the_common_options_and_help_all_the_rest(tmp_path: Path) -> None:
    common = judgeq(tmp_path, "run", "--help").stdout
    assert len(common.splitlines()) <= 65
    whole = judgeq(tmp_path, "run", "--help-all").stdout
    for setting in SETTINGS.values():
        assert not setting.flag or f"{setting.flag}" in whole
        assert (f"{setting.flag} " in common) == setting.common or not setting.flag


def test_the_help_of_judgeq_has_19_commands_in_groups(tmp_path: Path) -> None:
    text = click.Context(app, info_name="judgeq", terminal_width=80).get_help()
    *groups, _ = re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", text, re.MULTILINE)
    shown = {heading: re.findall(r"^  (\S+)  ", rows, re.MULTILINE) for heading, rows in groups}
    assert list(shown) == ["Start", "Look", "Share", "People", "Choose"]
    assert sum(map(len, shown.values())) == 19
    whole = judgeq(tmp_path, "help", "all").stdout
    for name in commands():
        assert re.search(rf"^  {name}  ", whole, re.MULTILINE), name
    assert "  7 run (not there" in judgeq(tmp_path, "help", "exit-codes").stdout
    asked = ("help", "runs", "rm"), ("runs", "rm", "-h")
    assert len({judgeq(tmp_path, *words).stdout for words in asked}) == 1
    assert "No such command 'bogus'" in judgeq(tmp_path, "help", "bogus", expect=2).stderr


def test_the_list_of_commands_says_what_each_says_first() -> None:
    for modules in COMMANDS.values():
        for listed in modules.values():
            for name, sentence in listed.items():
                assert (commands()[name].help or "").split("\n\n")[0] == sentence
                assert len(sentence) < 64


def test_the_dataset_is_the_argument(tmp_path: Path) -> None:
    job = ("-s", "listwise10x1", "--sample", "20")
    named = json_of(tmp_path, "run", "demo", *job)["run"]
    for dataset in (("-d", "demo"), ("demo", "--dataset", "demo")):
        assert json_of(tmp_path, "run", *dataset, *job)["run"] == named
    assert "0 calls, 2 already answered" in judgeq(tmp_path, "estimate", "demo", *job).stdout
    for each in ("run", "estimate"):
        told = judgeq(tmp_path, each, "demo", "-d", "babe", expect=2).stderr
        assert "Two datasets are given: demo and --dataset babe. Give one." in told
    (tmp_path / "job.toml").write_text('dataset = "babe"', encoding="utf-8")
    assert json_of(tmp_path, "run", "demo", "--config", "job.toml", *job)["run"] == named
    more = judgeq(tmp_path, "run", "demo", "more", expect=2).stderr
    assert "unexpected extra argument (more)" in more


def completed(*words: str) -> list[str]:
    """What a shell is told that the last word may become."""
    complete = ShellComplete(app, {}, "judgeq", "_JUDGEQ_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def test_words_complete() -> None:
    for words, expected in (
        (("ann",), "annotate"),
        (("annotate", "re"), "remove"),
        (("runs", "batches", "c"), "cancel"),
        (("list", "p"), "prompts"),
        (("run", "--rating", "bt-"), "bt-mm"),
    ):
        assert completed(*words) == [expected]
    assert "--retry-failed" in completed("resume", "--re")


def test_no_color_holds_for_errors(tmp_path: Path) -> None:
    assert "\x1b[31m" in on_a_terminal(tmp_path, "status")
    assert "\x1b" not in on_a_terminal(tmp_path, "status", NO_COLOR="1")


def test_what_may_have_no_end_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file.toml").symlink_to("/dev/null")  # which has an end: a failure fills no memory
    model = ("-d", "demo", "--judge", "gpt-m", "--api-key-file")
    for code, *flags in ((3, "--config"), (2, *model)):
        given = ("run", *map(str, flags), "file.toml")
        shown = judgeq(tmp_path, *given, expect=code, variables={"OPENAI_API_KEY": "k"}).stderr
        assert "it is a device; save its content to a file and name that" in shown


def test_a_run_that_cannot_be_read_can_be_removed(run: Path) -> None:
    (run / "run.db").write_text("garbage")
    found = json_of(run.parents[1], "runs", "rm", run.name, "--yes")
    assert found == {"removed": [run.name]}
    assert not run.exists()
