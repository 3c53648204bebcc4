"""What commands print with `--json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from judgeq.cli import app
from tests.cli import judgeq
from tests.mock import mock

pytestmark = pytest.mark.usefixtures("undrawn", "rated_once")

PRICES = ("--price", "1,10")
LISTS = ("-d", "demo", "-s", "listwise10x1")


def checked(command: str, folder: Path, *flags: str, expect: int = 0) -> Any:
    """The JSON that a command prints."""
    return json.loads(judgeq(folder, *command.split(), *flags, "--json", expect=expect).stdout)


def test_what_runs_print(tmp_path: Path) -> None:
    first = checked("run", tmp_path, *LISTS)
    binary = ("-d", "synthetic:binary", "--n", "40", "-s", "direct")
    assert checked("run", tmp_path, *binary)["evaluation"]["detection"]
    pairs = checked("run", tmp_path, "-d", "demo", "-s", "pairwise2", "--both-orders")
    assert pairs["order"]["both_orders"]["couples"] == 240
    checked("run", tmp_path, *LISTS, "--dry-run")
    checked("rate", tmp_path, first["run"], "--rating", "bt-mm")
    checked("status", tmp_path)
    checked("evaluate", tmp_path, first["run"], "--resamples", "20", "--positive-over", "2")
    found = checked("compare", tmp_path, first["run"], pairs["run"], "--resamples", "20")
    assert found["differences"]
    assert found["agreement"]
    looks = ("--uncertain", "--contested", "--against-gold", "--n", "2", "--where", "gold>0")
    assert len(checked("show", tmp_path, first["run"], *looks)["views"]) == 3
    assert checked("show", tmp_path, pairs["run"], "--no-texts")["texts"] is False
    reported = checked("report", tmp_path, first["run"], "--no-texts", "--format", "md")
    assert len(reported["files"]) > 5
    one, other = "pub-buyout-1", "bank-branch-5"
    for more in ((), ("--replies",), ("--vs", other), ("--vs", other, "--replies")):
        assert checked("explain", tmp_path, first["run"], one, *more)["texts"] is True
        checked("explain", tmp_path, pairs["run"], one, *more, "--no-texts")
    judgments = judgeq(tmp_path, "export", first["run"]).stdout
    (tmp_path / "judgments.jsonl").write_text(judgments, encoding="utf-8")
    checked("import", tmp_path, "-d", "demo", "judgments.jsonl")
    (tmp_path / "runs" / "broken").mkdir()
    (tmp_path / "runs" / "broken" / "config.json").write_text("{")
    assert {run["state"] for run in checked("runs", tmp_path)} == {"finished", "unreadable"}
    assert set(checked("run", tmp_path, "-d", "nothing", expect=2)) == {"error"}


def test_what_runs_of_models_print(tmp_path: Path) -> None:
    with mock(tmp_path, "--unreadable", "0.2") as url:
        flags = (*LISTS, "--base-url", url, *PRICES)
        both = ("--judge", "a", "--judge", "b", "--max-invalid", "1")
        assert checked("estimate", tmp_path, *flags, *both, "--pilot", "2")["pilot"]
        panel = checked("run", tmp_path, *flags, *both)
        assert checked("evaluate", tmp_path, panel["run"], "--resamples", "0")["judges"]
        capped = ("--judge", "c", "--max-output-tokens", "100", "--concurrency", "1")
        assert "error" in checked("run", tmp_path, *flags, *capped, "--max-cost", "0.01", expect=6)
        checked("resume", tmp_path, "--max-cost", "0.1")
        none = checked(
            "run", tmp_path, *flags, *capped, "--max-cost", "1e-6", "--seed", "5", expect=6
        )
        assert none["state"] == "stopped"
        checked("doctor", tmp_path, "--judge", "a", "--base-url", url)
        free = ("-d", "demo", "-s", "listwise10x1", "--sample", "20", "--base-url", url)
        unpriced = checked("run", tmp_path, *free, "--judge", "d", "--max-invalid", "1")
        assert unpriced["cost"] is None
    assert checked("cache", tmp_path)["models"]["d"]["cost"] is None
    for command in ("cache", "cache prune", "cache clear"):
        more = {"cache prune": ("--older-than", "1d"), "cache clear": ("--yes",)}
        checked(command, tmp_path, *more.get(command, ()))


def test_what_studies_and_lists_print(tmp_path: Path) -> None:
    for command in ("datasets", "strategies", "prompts", "models"):
        assert checked(command, tmp_path)
    checked("prompts show", tmp_path, "bias")
    (tmp_path / "grid.toml").write_text(
        'strategies = ["listwise5x1"]\nn = 20\nseeds = 1\nbias = [0]\ndistributions = ["linear"]'
    )
    flags = ("--grid", "grid.toml", "--jobs", "1", "--no-figures")
    assert checked("simulate", tmp_path, *flags)["ranking"]
    parts = checked("reproduce", tmp_path, "--recordings", str(tmp_path), expect=3)
    assert all(part["missing"] for part in parts)


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield " ".join((*path, name)), command
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


def test_the_guide_knows_all_commands_and_codes_that_it_needs(tmp_path: Path) -> None:
    guide = judgeq(tmp_path, "guide").stdout
    names = dict(commands(get_command(app)))
    for name in ("doctor", "estimate", "run", "status", "evaluate", "compare", "export", "resume"):
        assert f"judgeq {name}" in guide
        assert name in names
    for code in (*range(9), 141):
        assert f"| {code} |" in guide or f"\n{code} means" in guide
