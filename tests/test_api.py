"""The Python interface: DataFrames and lists, keywords, errors, reprs, progress."""

from __future__ import annotations

import asyncio
import io
import math
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import judgeq
from judgeq import errors
from judgeq.events import Event, RoundRated

GOLD = [float(n % 5) for n in range(40)]
TEXTS = [f"text {n}" for n in range(40)]


class Series:
    """A column as pandas and polars have them."""

    def __init__(self, cells: Iterable[object]) -> None:
        self._cells = cells

    def to_list(self) -> list[object]:
        return list(self._cells)


class Frame:
    """A DataFrame as pandas and polars have them; `columns` need not be a list, nor names strings."""

    def __init__(self, **columns: Iterable[object]) -> None:
        self._columns = columns

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._columns)

    def __getitem__(self, name: str) -> Series:
        return Series(self._columns[name])


class NAType:
    """pandas.NA: what it is compared to is neither equal nor not."""

    def __ne__(self, other: object) -> bool:
        raise TypeError("boolean value of NA is ambiguous")

    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_data_frame_is_read_as_a_file_is(tmp_path: Path) -> None:
    frame = Frame(
        id=[np.int64(7), np.int64(8), np.int64(9)],
        text=[np.str_("a"), "b", "c"],
        g=[np.float64(1), math.nan, np.float64(0)],
        other=[[], {}, None],
    )
    data = judgeq.load_dataset(frame, gold="g")
    (tmp_path / "a.csv").write_text("id,text,g\n7,a,1\n8,b,\n9,c,0\n", encoding="utf-8")
    file = judgeq.load_dataset("a.csv", gold="g")
    assert (data.content, data.labels) == (file.content, file.labels)
    assert_array_equal(data.gold, [1, np.nan, 0])
    assert data.source == "the DataFrame"
    named = Frame(body=["a", "b", "c"], key=["7", "8", "9"])
    other = judgeq.load_dataset(named, text="body", id="key")
    assert other.content == data.content


@pytest.mark.parametrize(
    "texts", [["a", "b", "c"], ("a", "b", "c"), np.array(["a", "b", "c"]), Series(["a", "b", "c"])]
)
def test_a_list_of_texts_is_numbered(texts: Any) -> None:
    data = judgeq.load_dataset(texts)
    assert (list(data.ids), data.texts) == (["0", "1", "2"], ["a", "b", "c"])
    assert judgeq.load_dataset(texts, text="body").content == data.content
    assert len(judgeq.load_dataset(texts, sample=2)) == 2


def test_missing_texts_of_a_data_frame() -> None:
    frame = Frame(text=["a", None, math.nan, NAType(), "", "f"])
    with pytest.raises(judgeq.DataError, match=r"DataFrame, row 2, column 'text': .*\(4 bad cells"):
        judgeq.load_dataset(frame)
    data = judgeq.load_dataset(frame, settings={"skip_empty": True})
    assert (list(data.ids), data.texts) == (["0", "5"], ["a", "f"])


@pytest.mark.parametrize(
    ("data", "settings", "error", "message"),
    [
        (5, {}, judgeq.UsageError, "can't be made of a int"),
        (
            {"a": ["a"], "b": "b"},
            {},
            judgeq.DataError,
            r"the dict of texts, row 1, .*expected text, got",
        ),
        (["a", 5], {}, judgeq.DataError, r"the list of texts, row 2, .*expected text, got 5"),
        (["a", "\ud800"], {}, judgeq.DataError, "half a character"),
        (["a"], {}, judgeq.DataError, "the list of texts has one row"),
        (["a", "b"], {"n": 5}, judgeq.UsageError, "^n is for synthetic"),
        (Frame(txt=["a", "b"]), {}, judgeq.DataError, "the DataFrame has no column 'text'.*'txt'"),
    ],
)
def test_what_is_no_dataset(
    data: Any, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        judgeq.load_dataset(data, settings=settings)


@pytest.mark.parametrize("in_a_loop", [False, True])
def test_from_data_frame_to_evaluation(in_a_loop: bool, tmp_path: Path) -> None:
    def cell() -> None:
        frame = Frame(text=TEXTS, gold=GOLD)
        estimate = judgeq.estimate(frame, gold="gold", strategy="listwise10x2")
        assert (estimate.calls, estimate.items) == (8, 40)
        result = judgeq.run(frame, gold="gold", strategy="listwise10x2")
        assert result.run.id == estimate.prepared.folder.id
        assert judgeq.run(frame, gold="gold", strategy="listwise10x2").run == result.run
        direct = judgeq.run(frame, gold="gold", strategy="direct")
        evaluated = result.evaluate(resamples=10)
        rho = {row["rating"]: row["measures"]["spearman"] for row in evaluated["evaluation"]}
        assert 0.3 < rho["pl"]["value"] < 1
        assert evaluated["length"]["value"] is not None  # the texts are here alone
        again = judgeq.open_run(result.run.id)
        by_name = again.evaluate(resamples=0, threshold=0, rating_name="pl", positive_over=2)
        assert [row["rating"] for row in by_name["evaluation"]] == ["pl"]
        reverse = result.evaluate(gold=[-value for value in GOLD], resamples=0)
        assert reverse["evaluation"][0]["measures"]["spearman"]["value"] < -0.3
        compared = result.compare(judgeq.open_run(direct.run.id), resamples=10)
        assert [run["run"] for run in compared["runs"]] == [result.run.id, direct.run.id]

    async def notebook() -> None:
        cell()

    asyncio.run(notebook()) if in_a_loop else cell()


def test_arguments_that_cannot_be(tmp_path: Path) -> None:
    result = judgeq.run(Frame(text=TEXTS, gold=GOLD), gold="gold", strategy="listwise10x1")
    with pytest.raises(judgeq.UsageError, match="two runs or more"):
        result.compare()
    with pytest.raises(judgeq.UsageError, match="resamples is -1"):
        result.evaluate(resamples=-1)
    with pytest.raises(judgeq.UsageError, match="threshold bset: give default"):
        result.evaluate(threshold="bset")
    with pytest.raises(judgeq.UsageError, match=r"gold has the shape \(3,\).* 40 items"):
        result.evaluate(gold=[1, 2, 3])


def test_a_run_of_a_data_frame_goes_on_with_it() -> None:
    def stop(event: Event) -> None:
        if isinstance(event, RoundRated):
            raise judgeq.StoppedError("for the test")

    frame = Frame(text=TEXTS, gold=GOLD)
    with pytest.raises(judgeq.StoppedError):
        judgeq.run(frame, gold="gold", on_event=stop)
    with pytest.raises(judgeq.RunError, match=r"not kept.*judgeq\.resume\(…, dataset=…\)"):
        judgeq.resume()
    with pytest.raises(judgeq.RunError, match="its dataset changed"):
        judgeq.resume(dataset=Frame(text=TEXTS[::-1], gold=GOLD))
    events: list[Event] = []
    result = judgeq.resume(dataset=frame, concurrency=2, on_event=events.append)
    assert events
    assert not result.partial
    assert list(judgeq.open_run().scores.ids) == list(result.scores.ids)


# Keywords, names, reprs


def test_every_name_is_there_and_every_family_of_errors_exported() -> None:
    for name in judgeq.__all__:
        assert getattr(judgeq, name) is not None
    families: list[type[Exception]] = [errors.JudgeqError, *errors.JudgeqError.__subclasses__()]
    for error in families:
        assert error.__name__ in judgeq.__all__
        assert getattr(judgeq, error.__name__) is error
    with pytest.raises(AttributeError, match="no attribute 'ru'"):
        _ = judgeq.ru


def test_importing_stays_light() -> None:
    heavy = "numpy, pydantic, rich, asyncio, orjson, pandas, polars"
    code = f"import sys, judgeq; print([m for m in {heavy!r}.split(', ') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_reprs_are_short() -> None:
    result = judgeq.run("demo", strategy="listwise10x2")
    assert repr(result) == (f"<Result {result.run.id}: 240 items, 2 rounds, 48 calls, $0; elo, pl>")
    assert repr(result.scores) == "<Scores of 240 items, 240 judged: elo, pl>"
    assert repr(judgeq.load_dataset("demo")) == "<Dataset demo: 240 items>"
    linear = judgeq.load_dataset("synthetic:linear", settings={"n": 50})
    assert repr(linear) == "<Dataset synthetic-linear: 50 items>"
    assert repr(judgeq.estimate("demo")).endswith(": 72 calls, $0 to $0>")


# Progress


class Terminal(io.StringIO):
    """A terminal, or what a notebook has in its place."""

    def isatty(self) -> bool:
        return True


def test_progress_is_a_bar_where_it_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    judgeq.run("demo", strategy="listwise10x2", sample=50)
    shown = terminal.getvalue()
    assert "50 of 240 items only (--sample 50, by --seed 0)." in shown
    assert "round 2/2" in shown
    assert "5/5" in shown
    judgeq.run("demo", strategy="listwise10x2", sample=20, progress=False)
    assert terminal.getvalue() == shown
