"""The reference of settings, `judgeq init`, and the help that is made from the declarations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from judgeq.cli import app
from judgeq.cli.app import COMMANDS
from judgeq.cli.options import COMPLETIONS, _parameter
from judgeq.reference import job_file, reference
from judgeq.settings import SETTINGS
from tests.cli import REPO, judgeq


def test_the_reference_is_what_is_declared() -> None:
    """`make settings` writes it."""
    assert (REPO / "judgeq" / "settings.md").read_text(encoding="utf-8") == reference()


def test_a_job_file_has_every_common_setting() -> None:
    lines = job_file(Path("p.toml")).splitlines()
    for name, setting in SETTINGS.items():
        shown = [line for line in lines if line.removeprefix("# ").startswith(f"{name} = ")]
        assert len(shown) == setting.declared.common


def test_init_writes_a_job_that_runs_and_overwrites_nothing(tmp_path: Path) -> None:
    judgeq(tmp_path, "init")
    done = judgeq(tmp_path, "run", "--config", "job.toml", "--json")
    assert json.loads(done.stdout)["partial"] is False
    assert "how urgent the message is" in judgeq(tmp_path, "prompts", "show", "prompt.toml").stdout
    assert "job.toml is there already" in judgeq(tmp_path, "init", expect=2).stderr
    again = judgeq(tmp_path, "init", "other.toml", expect=2)
    assert "prompt.toml is there already" in again.stderr
    assert not (tmp_path / "other.toml").exists()


def test_help_shows_the_common_flags_and_help_all_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = judgeq(tmp_path, "run", "--help").stdout
    whole = judgeq(tmp_path, "run", "--help-all").stdout
    for setting in SETTINGS.values():
        assert not setting.flag or f"{setting.flag}" in whole
        assert (f"{setting.flag} " in common) == setting.declared.common or not setting.flag


def helps(command: Any, name: str = "judgeq", parent: Any = None) -> Iterator[tuple[str, str]]:
    """The help of every command, 100 columns wide."""
    context = command.context_class(command, info_name=name, parent=parent, terminal_width=100)
    yield context.command_path, command.get_help(context)
    for sub, subcommand in getattr(command, "commands", {}).items():
        yield from helps(subcommand, sub, context)


def test_help_is_short_and_without_noise() -> None:
    texts = dict(helps(get_command(app)))
    assert len(texts) > 20
    assert len(texts["judgeq run"].splitlines()) <= 49
    for name, text in texts.items():
        for noise in (r"<\w+", r"\[\[", r"\]\]", r"default: \(", r"\{\w+\}", "INTEGER", "<=", ">="):
            assert re.search(noise, text) is None, (name, noise)


def test_the_list_of_commands_says_what_each_says_first() -> None:
    made = get_command(app).commands  # type: ignore[attr-defined]
    for name, (_, sentence) in COMMANDS.items():
        assert " ".join(made[name].help.split()).startswith(sentence), name


def test_what_stands_by_itself_is_asked_about(tmp_path: Path) -> None:
    said = judgeq(tmp_path, "run", "demo", expect=2).stderr
    assert "did you mean `judgeq run --dataset demo`?" in said


def test_choices_complete() -> None:
    option = _parameter(SETTINGS["rating"]).annotation.__metadata__[0]
    assert option.autocompletion("bt-") == ["bt-mm"]
    assert "bias" in COMPLETIONS["prompt"]("b")


def test_the_prompt_sets_of_prompts_show_complete() -> None:
    shown: Any = get_command(app)
    for name in ("prompts", "show"):
        shown = shown.commands[name]
    (named,) = (each for each in shown.params if each.param_type_name == "argument")
    context = shown.context_class(shown, info_name="show")
    completed = [item.value for item in named.shell_complete(context, "bias_")]
    assert completed == ["bias_us_vs_them"]


def test_a_judge_with_a_near_name_is_asked_about(tmp_path: Path) -> None:
    done = judgeq(tmp_path, "run", "-d", "demo", "--judge", "simulatd", expect=2)
    assert "'simulatd': did you mean simulated?" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_import_and_prompts_show_read_tables_as_runs_do(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_bytes("id|text\n1|café\n2|\n3|two\n".encode("latin-1"))
    (tmp_path / "j.jsonl").write_text('{"presented": ["1", "3"], "winner": "3"}', "utf-8")
    table = ("-d", "d.csv", "--delimiter", "|", "--encoding", "latin-1", "--skip-empty")
    assert "café" in judgeq(tmp_path, "prompts", "show", "bias", *table, "--k", "2").stdout
    shown = judgeq(tmp_path, "import", *table, "--id-column", "id", "j.jsonl").stdout
    assert "2 texts" in shown
    assert "café" in shown
