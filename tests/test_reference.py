"""`judgeq init`, and the help that is made from the declarations."""

from __future__ import annotations

import json
import re
from pathlib import Path

import click
from click.shell_completion import ShellComplete

from judgeq.cli import app
from judgeq.cli.app import COMMANDS
from judgeq.settings.run import SETTINGS
from judgeq.ui.job_file import job_file
from tests.cli import commands, judgeq


def test_a_job_file_has_every_common_setting() -> None:
    lines = job_file(Path("p.toml")).splitlines()
    for name, setting in SETTINGS.items():
        shown = [line for line in lines if line.removeprefix("# ").startswith(f"{name} = ")]
        assert len(shown) == setting.declared.common


def test_init_writes_a_job_that_runs_and_overwrites_nothing(tmp_path: Path) -> None:
    written = json.loads(judgeq(tmp_path, "init", "--json").stdout)
    assert written == {"files": ["job.toml", "prompt.toml"]}
    done = judgeq(tmp_path, "run", "--config", "job.toml", "--json")
    assert json.loads(done.stdout)["partial"] is False
    assert "how urgent the message is" in judgeq(tmp_path, "list", "prompts", "prompt.toml").stdout
    assert "job.toml is there already" in judgeq(tmp_path, "init", expect=2).stderr
    again = judgeq(tmp_path, "init", "other.toml", expect=2)
    assert "prompt.toml is there already" in again.stderr
    assert not (tmp_path / "other.toml").exists()


def test_help_shows_the_common_options_and_help_all_the_rest(tmp_path: Path) -> None:
    common = judgeq(tmp_path, "run", "--help").stdout
    whole = judgeq(tmp_path, "run", "--help-all").stdout
    for setting in SETTINGS.values():
        assert not setting.flag or f"{setting.flag}" in whole
        assert (f"{setting.flag} " in common) == setting.declared.common or not setting.flag


def helps(width: int) -> dict[str, str]:
    """The help of every command, so wide, by its name; that of judgeq by ""."""
    root = click.Context(app, info_name="judgeq", terminal_width=width)
    contexts = {
        name: click.Context(command, parent=root, info_name=name, terminal_width=width)
        for name, command in commands().items()
    }
    return {name: each.get_help() for name, each in {"": root, **contexts}.items()}


def test_help_is_short_and_without_noise() -> None:
    texts = helps(100)
    assert len(texts) > 30
    assert len(texts["run"].splitlines()) <= 55
    for name, text in texts.items():
        for noise in (r"<\w+", r"\[\[", r"\]\]", r"default: \(", r"\{\w+\}", "INTEGER", "<=", ">="):
            assert re.search(noise, text) is None, (name, noise)
        assert "Exit codes" not in text


def test_the_help_of_judgeq_has_18_commands_in_groups(tmp_path: Path) -> None:
    text = helps(80)[""]
    *groups, _ = re.findall(r"^(\w[\w ]*):\n((?:  .*\n)+)", text, re.MULTILINE)
    shown = {heading: re.findall(r"^  (\S+)  ", rows, re.MULTILINE) for heading, rows in groups}
    assert list(shown) == ["Start", "Look", "Share", "People", "Choose"]
    assert sum(map(len, shown.values())) == 18
    whole = judgeq(tmp_path, "help", "all").stdout
    for name in commands():
        assert re.search(rf"^  {name}  ", whole, re.MULTILINE), name
    assert "  7 run (not there" in judgeq(tmp_path, "help", "exit-codes").stdout
    assert (
        judgeq(tmp_path, "help", "runs", "rm").stdout == judgeq(tmp_path, "runs", "rm", "-h").stdout
    )
    assert "No such command 'bogus'" in judgeq(tmp_path, "help", "bogus", expect=2).stderr


def test_a_command_on_a_run_names_no_default_of_its_settings() -> None:
    for name in ("resume", "annotate", "runs batches cancel", "show", "evaluate", "export"):
        settings = [one for one in commands()[name].params if getattr(one, "setting", None)]
        assert len(settings) > 2
        for one in settings:
            record = one.get_help_record(click.Context(commands()[name]))
            assert record is not None
            assert "default:" not in record[1], (name, one.name)


def test_the_list_of_commands_says_what_each_says_first() -> None:
    for modules in COMMANDS.values():
        for listed in modules.values():
            for name, sentence in listed.items():
                assert (commands()[name].help or "").split("\n\n")[0] == sentence
                assert len(sentence) < 64


def test_the_dataset_is_the_argument(tmp_path: Path) -> None:
    job = ("-s", "listwise10x1", "--sample", "20")
    named = json.loads(judgeq(tmp_path, "run", "demo", *job, "--json").stdout)["run"]
    for dataset in (("-d", "demo"), ("demo", "--dataset", "demo")):
        assert json.loads(judgeq(tmp_path, "run", *dataset, *job, "--json").stdout)["run"] == named
    assert "0 calls, 2 already answered" in judgeq(tmp_path, "estimate", "demo", *job).stdout
    for command in ("run", "estimate"):
        told = judgeq(tmp_path, command, "demo", "-d", "babe", expect=2).stderr
        assert "Two datasets are given: demo and --dataset babe. Give one." in told
    (tmp_path / "job.toml").write_text('dataset = "babe"', encoding="utf-8")
    config = ("--config", "job.toml", *job, "--json")
    assert json.loads(judgeq(tmp_path, "run", "demo", *config).stdout)["run"] == named
    assert (
        "unexpected extra argument (more)"
        in judgeq(tmp_path, "run", "demo", "more", expect=2).stderr
    )


def completed(*words: str) -> list[str]:
    """What a shell is told that the last word may become."""
    complete = ShellComplete(app, {}, "judgeq", "_JUDGEQ_COMPLETE")
    return [item.value for item in complete.get_completions(list(words[:-1]), words[-1])]


def test_words_complete() -> None:
    assert completed("ann") == ["annotate"]
    assert completed("annotate", "re") == ["remove"]
    assert completed("runs", "batches", "c") == ["cancel"]
    assert completed("list", "p") == ["prompts"]
    assert completed("run", "--rating", "bt-") == ["bt-mm"]
    assert "--retry-failed" in completed("resume", "--re")


def test_import_and_prompts_show_read_tables_as_runs_do(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes("id|text\n1|café\n2|\n3|two\n".encode("latin-1"))
    (tmp_path / "j.jsonl").write_text('{"presented": ["1", "3"], "winner": "3"}', "utf-8")
    table = ("-d", "d.csv", "--delimiter", "|", "--encoding", "latin-1", "--skip-empty")
    assert "café" in judgeq(tmp_path, "list", "prompts", "bias", *table, "--k", "2").stdout
    shown = judgeq(tmp_path, "import", *table, "--id-column", "id", "j.jsonl").stdout
    assert "2 texts" in shown
    assert "café" in shown
