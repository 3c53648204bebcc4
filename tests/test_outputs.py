"""What commands print with `--json`."""

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import judgeq as package
from judgeq.evaluation.metrics import Measured
from judgeq.run_places.info import Ended
from judgeq.text import INLINE, LEFT_OUT
from judgeq.types import JobState, Usage
from judgeq.ui.dataclass_json import plain, rows
from tests.cli import exact_columns, json_of, judgeq, only_run, score_columns
from tests.mock import mock

pytestmark = pytest.mark.usefixtures("undrawn", "rated_once")

LISTS = ("-d", "demo", "-s", "listwise10x1")
KEYS = Path(__file__).parent / "json_keys.json"
"""By test and command the paths of all keys that it prints: lists as [], maps keyed by data as *.
JUDGEQ_WRITE_KEYS=1 has the tests write it, in one process, where keys were changed on purpose."""
BY_DATA = {"models", "reasons", "replies", "machines"}
"""The maps whose keys are data."""


def paths(value: Any, path: str = "") -> Iterator[str]:
    """The paths of the keys in a value; a measure with its interval ends one."""
    if isinstance(value, dict) and value.keys() != {"value", "low", "high", "why"}:
        for key, inner in value.items():
            at = f"{path}.{'*' if path in BY_DATA else key}".removeprefix(".")
            yield at
            yield from paths(inner, at)
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{path}[]")


SEEN: dict[str, set[str]] = {}
"""By command the paths of all keys that it printed in the test that is running."""


def checked(command: str, folder: Path, *flags: str, expect: int = 0) -> Any:
    """The JSON that a command prints."""
    found = json_of(folder, *command.split(), *flags, expect=expect)
    SEEN.setdefault(command, set()).update(paths(found))
    return found


@pytest.fixture(autouse=True)
def _nothing_seen() -> None:
    SEEN.clear()


def check_keys(test: str) -> None:
    """Compare the keys that the commands of a test printed with those that are written down: a key that
    vanishes or appears breaks, or surprises, programs of users."""
    written = json.loads(KEYS.read_text(encoding="utf-8"))
    if os.environ.get("JUDGEQ_WRITE_KEYS"):
        seen = {command: sorted(found) for command, found in SEEN.items()}
        KEYS.write_text(json.dumps(written | {test: seen}, indent=1, sort_keys=True) + "\n")
        return
    assert SEEN.keys() == written[test].keys()
    for command, keys in SEEN.items():
        old = set(written[test][command])
        new, gone = sorted(keys - old), sorted(old - keys)
        assert new == gone == [], f"judgeq {command} --json: new {new}, gone {gone}"


def test_what_runs_print(tmp_path: Path) -> None:
    first = checked("run", tmp_path, *LISTS)
    binary = ("-d", "synthetic:binary", "--n", "40", "-s", "direct")
    assert checked("run", tmp_path, *binary)["evaluation"]
    pairs = checked("run", tmp_path, "-d", "demo", "-s", "pairwise2", "--both-orders")
    assert pairs["both_orders"]["couples"] == 240
    checked("run", tmp_path, "-d", "demo", "-s", "listwise10x2", "--dry-run")
    checked("show --write", tmp_path, first["run"], "--rating", "bt-mm")
    checked("status", tmp_path)
    checked("evaluate", tmp_path, first["run"], "--resamples", "20", "--positive-over", "2")
    found = checked("compare", tmp_path, first["run"], pairs["run"], "--resamples", "20")
    assert found["others"][0]["differences"]
    looks = ("--uncertain", "--contested", "--against-gold", "--n", "2")
    assert len(checked("show", tmp_path, first["run"], *looks)["views"]) == 3
    assert checked("show", tmp_path, pairs["run"], "--no-texts")["texts"] is False
    reported = checked("report", tmp_path, first["run"], "--no-texts", "--format", "md")
    names = [Path(file).name for file in reported["files"]]
    assert names == ["report.md", "distribution.png", "intervals.png", "gold.png"]
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
    check_keys("runs")


def test_a_score_is_the_same_wherever_it_is_shown(tmp_path: Path) -> None:
    """It is the posterior mean, by which texts are ranked, everywhere."""
    judgeq(tmp_path, "run", "-d", "demo", "--sample", "40", "-s", "listwise5x3")
    run = only_run(tmp_path)
    result = package.open_run(str(run))
    assert result.fit.posterior is not None
    mean = result.fit.posterior.mean
    expected = dict(zip(result.scores.ids, mean.tolist(), strict=True))
    best = max(expected, key=expected.__getitem__)

    exact = exact_columns(run)
    assert [float(score) for score in exact["pl"]] == [expected[item] for item in exact["id"]]
    by_rank = sorted(exact["id"], key=lambda item: -expected[item])
    assert by_rank[0] == best
    assert exact["rank"][exact["id"].index(best)] == "1"
    columns = score_columns(run)
    assert [float(score) for score in columns["pl"]] == pytest.approx(mean.round(4).tolist())
    for low, score, high in zip(columns["low"], columns["pl"], columns["high"], strict=True):
        assert float(low) < float(score) < float(high)

    (view, *_) = json_of(tmp_path, "show", "--n", "3")["views"]
    assert view["items"][0]["pl"] == pytest.approx(expected[best])
    (item,) = json_of(tmp_path, "explain", best)["items"]
    assert item["pl"] == pytest.approx(expected[best])
    assert f"{expected[best]:.2f}" in judgeq(tmp_path, "show", "--n", "3").stdout
    evaluated = json_of(tmp_path, "evaluate", "--resamples", "0", "--splits", "0")
    of_pl = next(of for of in evaluated["evaluation"] if of["rating"] == "pl")
    pearson = np.corrcoef(mean, result.scores.gold)[0, 1]
    assert of_pl["measures"]["pearson"]["value"] == pytest.approx(pearson)
    judgeq(tmp_path, "report", "--format", "md")
    (report,) = tmp_path.rglob("report.md")
    assert f"{expected[best]:.2f}" in report.read_text(encoding="utf-8").replace("\\", "")


def test_what_runs_of_models_print(tmp_path: Path) -> None:
    with mock(tmp_path, "--unreadable", "0.2") as url:
        flags = (*LISTS, "--base-url", url, "--price", "1,10")
        both = ("--judge", "a", "--judge", "b", "--max-invalid", "1")
        assert checked("estimate", tmp_path, *flags, *both, "--pilot", "2")["pilot"]
        twice = ("-s", "listwise10x2", "--judge", "a")
        assert checked("estimate", tmp_path, *flags, *twice)["reliability"]
        panel = checked("run", tmp_path, *flags, *both)
        assert checked("evaluate", tmp_path, panel["run"], "--resamples", "0")["judges"]
        capped = ("--judge", "c", "--max-output-tokens", "100", "--concurrency", "1")
        assert "error" in checked("run", tmp_path, *flags, *capped, "--max-cost", "0.01", expect=6)
        checked("resume", tmp_path, "--max-cost", "0.1")
        none = ("--max-cost", "1e-6", "--seed", "5")
        assert checked("run", tmp_path, *flags, *capped, *none, expect=6)["state"] == "stopped"
        checked("doctor", tmp_path, "--judge", "a", "--base-url", url)
        unpriced = (*LISTS, "--sample", "20", "--base-url", url, "--judge", "d")
        assert checked("run", tmp_path, *unpriced, "--max-invalid", "1")["cost"] is None
    assert checked("cache", tmp_path)["replies"]
    checked("cache clear", tmp_path, "--yes")
    check_keys("models")


def test_what_studies_and_lists_print(tmp_path: Path) -> None:
    for command in ("datasets", "strategies", "prompts"):
        assert checked(f"list {command}", tmp_path)
    checked("list prompts", tmp_path, "bias")
    (tmp_path / "grid.toml").write_text(
        'strategies = ["listwise5x1"]\nn = 20\nseeds = 1\nbias = [0]\ndistributions = ["linear"]'
    )
    flags = ("--grid", "grid.toml", "--jobs", "1")
    assert checked("simulate", tmp_path, *flags)["ranking"]
    parts = checked("reproduce", tmp_path, "--recordings", str(tmp_path), expect=3)
    assert all(part["missing"] for part in parts)
    check_keys("lists")


@dataclass
class Of:
    array: Any
    left_out: object = field(default=None, metadata=LEFT_OUT)
    inline: Usage = field(default=Usage(1), metadata=INLINE)
    renamed: float = 2.5
    JSON_KEYS: ClassVar = {"sum": "array.sum", "new_name": "renamed"}


def test_all_kinds_of_values_become_plain_json() -> None:
    usage = {"input": 1, "cached": 0, "output": 0, "reasoning": 0}
    assert plain(Of(np.arange(2), left_out=object())) == {
        "array": [0, 1], "sum": 1, "new_name": 2.5, **usage
    }  # fmt: skip
    ended = Ended(round=1, goal="0.9", rho=0.95)
    for value, expected in (
        (-math.inf, None),
        (JobState.DONE, "done"),
        (datetime(2026, 2, 3, tzinfo=UTC), "2026-02-03T00:00:00+00:00"),
        (Path("a/b"), str(Path("a/b"))),
        (ended, ended.model_dump()),
        (Measured(0.5), {"value": 0.5, "low": None, "high": None, "why": None}),
        (Usage(1), usage),
    ):
        assert plain([{"a": value}]) == [{"a": expected}]
    with pytest.raises(TypeError, match="object has no form in JSON"):
        plain({"a": object()})


def test_long_form_has_a_row_each_number() -> None:
    f1 = {"value": 0.5, "low": None, "high": 1.0, "why": "few"}
    rated = [{"rating": "pl", "f1": f1}]
    value = {"n": 2, "why": "left out", "ratings": rated, "slots": [0.25, 0.75]}
    assert [*rows(value, labels={"run": "a"})] == [
        {"key": "n", "run": "a", "value": 2},
        {"key": "ratings.f1", "run": "a", "rating": "pl", **f1},
        {"key": "slots.1", "run": "a", "value": 0.25},
        {"key": "slots.2", "run": "a", "value": 0.75},
    ]
