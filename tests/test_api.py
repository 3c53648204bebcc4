"""The Python interface: DataFrames and lists, functions as judges, results, errors, progress."""

import asyncio
import math
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import judgeq
from judgeq import errors
from judgeq.events import Event, RoundRated
from judgeq.judge.function import judge_name
from tests.cli import judgeq as command
from tests.test_dashboard import Screen

pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
GOLD = [float(n % 5) for n in range(40)]
TEXTS = [f"text {n}" for n in range(40)]


def frame_of(**columns: Iterable[object]) -> Any:
    """A DataFrame whose cells are as they are given."""
    return pandas.DataFrame(columns, dtype=object)


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JUDGEQ_CACHE", str(tmp_path / "cache"))
    ASKED.clear()


def test_a_data_frame_is_read_as_a_file_is(tmp_path: Path) -> None:
    frame = frame_of(id=[7, 8, 9], text=["a", "b", "c"], g=[1, math.nan, 0], other=[[], {}, None])
    data = judgeq.load_dataset(frame, gold="g")
    (tmp_path / "a.csv").write_text("id,text,g\n7,a,1\n8,b,\n9,c,0\n", encoding="utf-8")
    file = judgeq.load_dataset("a.csv", gold="g")
    assert (data.content, data.labels) == (file.content, file.labels)
    assert_array_equal(data.gold, [1, np.nan, 0])
    assert data.source == "the DataFrame"
    named = frame_of(body=["a", "b", "c"], key=["7", "8", "9"])
    other = judgeq.load_dataset(named, text="body", id="key")
    assert other.content == data.content


@pytest.mark.parametrize(
    "texts",
    [["a", "b", "c"], ("a", "b", "c"), np.array(["a", "b", "c"]), polars.Series(["a", "b", "c"])],
)
def test_a_list_of_texts_is_numbered(texts: Any) -> None:
    data = judgeq.load_dataset(texts)
    assert (list(data.ids), data.texts) == (["0", "1", "2"], ["a", "b", "c"])
    assert judgeq.load_dataset(texts, text="body").content == data.content
    assert len(judgeq.load_dataset(texts, sample=2)) == 2


def test_missing_texts_of_a_data_frame() -> None:
    frame = frame_of(text=["a", None, math.nan, pandas.NA, "", "f"])
    with pytest.raises(judgeq.DataError, match=r"DataFrame, row 2, column 'text': .*\(4 bad cells"):
        judgeq.load_dataset(frame)
    data = judgeq.load_dataset(frame, settings={"skip_empty": True})
    assert (list(data.ids), data.texts) == (["0", "5"], ["a", "f"])


@pytest.mark.parametrize(
    ("data", "settings", "error", "message"),
    [
        (5, {}, judgeq.UsageError, "can't be made of a int"),
        ({"a": ["a"], "b": "b"}, {}, judgeq.DataError, "the dict of texts, row 1, .*expected text"),
        (["a", 5], {}, judgeq.DataError, r"the list of texts, row 2, .*expected text, got 5"),
        (["a", "\ud800"], {}, judgeq.DataError, "half a character"),
        (["a"], {}, judgeq.DataError, "the list of texts has one row"),
        (["a", "b"], {"n": 5}, judgeq.UsageError, "^n is for synthetic"),
        (frame_of(txt=["a", "b"]), {}, judgeq.DataError, "DataFrame has no column 'text'.*'txt'"),
    ],
)
def test_what_is_no_dataset(
    data: Any, settings: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        judgeq.load_dataset(data, settings=settings)


async def test_from_data_frame_to_evaluation_within_a_loop() -> None:
    frame = frame_of(text=TEXTS, gold=GOLD)
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
    with pytest.raises(judgeq.UsageError, match="two runs or more"):
        result.compare()
    with pytest.raises(judgeq.UsageError, match=r"gold has the shape \(3,\).* 40 items"):
        result.evaluate(gold=[1, 2, 3])


def stop(event: Event) -> None:
    if isinstance(event, RoundRated):
        raise judgeq.StoppedError("for the test")


def test_a_run_of_a_data_frame_goes_on_with_it() -> None:
    frame = frame_of(text=TEXTS, gold=GOLD)
    with pytest.raises(judgeq.StoppedError):
        judgeq.run(frame, gold="gold", on_event=stop)
    for dataset, told in (
        (None, r"not kept.*judgeq\.resume\(…, dataset=…\)"),
        (frame_of(text=TEXTS[::-1], gold=GOLD), "its dataset changed"),
    ):
        with pytest.raises(judgeq.RunError, match=told):
            judgeq.resume(dataset=dataset)
    events: list[Event] = []
    result = judgeq.resume(dataset=frame, concurrency=2, on_event=events.append)
    assert events
    assert not result.partial
    assert list(judgeq.open_run().scores.ids) == list(result.scores.ids)


def test_every_name_is_there_and_every_family_of_errors_exported() -> None:
    for name in judgeq.__all__:
        assert getattr(judgeq, name) is not None
    families: list[type[Exception]] = [errors.JudgeqError, *errors.JudgeqError.__subclasses__()]
    for error in families:
        assert error.__name__ in judgeq.__all__
        assert getattr(judgeq, error.__name__) is error
    with pytest.raises(AttributeError, match="no attribute 'ru'"):
        _ = judgeq.ru


def test_progress_is_a_bar_where_it_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Screen()
    monkeypatch.setattr(sys, "stderr", terminal)
    judgeq.run("demo", strategy="listwise10x2", sample=50)
    shown = terminal.getvalue()
    assert "50 of 240 items only (--sample 50, by --seed 0)." in shown
    assert "round 2/2" in shown
    assert "5/5" in shown
    judgeq.run("demo", strategy="listwise10x2", sample=20, progress=False)
    assert terminal.getvalue() == shown


LETTERS = ["a" * n for n in (3, 9, 1, 7, 5, 2, 8, 4, 6, 10)]
FEATURE = "how many letters it has"
ASKED: list[Sequence[str]] = []


def by_length(texts: Sequence[str], feature: str) -> list[int]:
    assert feature == FEATURE
    ASKED.append(texts)
    return sorted(range(len(texts)), key=lambda place: -len(texts[place]))


async def by_length_later(texts: Sequence[str], feature: str) -> np.ndarray[Any, Any]:
    await asyncio.sleep(0)
    return np.argsort([-len(text) for text in texts])


@pytest.mark.parametrize(
    ("judge", "strategy"), [(by_length, "listwise10"), (by_length_later, "complete")]
)
def test_a_function_that_counts_letters_ranks_by_length(judge: Any, strategy: str) -> None:
    result = judgeq.run(LETTERS, FEATURE, judge=judge, strategy=strategy)
    order = np.argsort(-result.scores.ratings["pl"])
    assert [len(LETTERS[row]) for row in order] == sorted(map(len, LETTERS), reverse=True)
    assert result.totals.cost == 0


def test_its_answers_are_kept_and_its_code_is_part_of_the_run() -> None:
    first = judgeq.run(LETTERS, FEATURE, judge=by_length, strategy="listwise4")
    asked = len(ASKED)
    assert asked == first.totals.calls
    judgeq.run(LETTERS, FEATURE, judge=by_length, strategy="listwise4")
    again = judgeq.run(LETTERS, FEATURE, judge=by_length, strategy="listwise4", new=True)
    assert len(ASKED) == asked
    assert again.totals.hits == asked
    other = judgeq.run(LETTERS, FEATURE, judge=lambda texts, _: [*range(len(texts))][::-1])
    assert other.run.id != first.run.id
    assert judge_name(by_length).startswith("python:by_length-")


def test_a_run_of_a_function_is_continued_from_python_only(tmp_path: Path) -> None:
    with pytest.raises(judgeq.StoppedError):
        judgeq.run(LETTERS, FEATURE, judge=by_length, strategy="listwise4", on_event=stop)
    (tmp_path / "texts.csv").write_text("text\n" + "\n".join(LETTERS) + "\n")
    refused = command(tmp_path, "resume", "-d", "texts.csv", expect=2).stderr
    assert "Continue it from Python: judgeq.resume(run, judge=function)" in refused
    with pytest.raises(judgeq.RunError, match="its judge changed"):
        judgeq.resume(dataset=LETTERS, judge=by_length_later)
    assert not judgeq.resume(dataset=LETTERS, judge=by_length).partial


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([0, 0, 1, 2], r"returned \[0, 0, 1, 2\], not an order of the places 0 to 3"),
        (None, "returned None, not an order"),
    ],
)
def test_what_is_no_order_stops_the_run(answer: Any, message: str) -> None:
    with pytest.raises(judgeq.JudgeError, match=message):
        judgeq.run(LETTERS, FEATURE, judge=lambda *_: answer, strategy="listwise4:overlap=2")


def test_a_run_is_awaited_and_stops_when_cancelled() -> None:
    async def both() -> judgeq.Result:
        loop, started = asyncio.get_running_loop(), asyncio.Event()
        whole = await judgeq.arun(LETTERS, FEATURE, judge=by_length_later, strategy="listwise4")

        def begun(_: Event) -> None:
            loop.call_soon_threadsafe(started.set)

        asked = judgeq.arun("demo", settings={"sim_latency": 30}, on_event=begun)
        slow = asyncio.create_task(asked)
        await started.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        return whole

    assert not asyncio.run(both()).partial


BODIES = [f"text {'x' * n}" for n in range(1, 13)]
LENGTHS = [float(len(text)) for text in BODIES]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("python")


@pytest.fixture(scope="module")
def result(folder: Path) -> judgeq.Result:
    made = {"key": [f"k{n}" for n in range(12)], "body": BODIES, "gold": LENGTHS, "rank": range(12)}
    frame = pandas.DataFrame(made | {"day": pandas.date_range("2026-01-01", periods=12)})
    columns: dict[str, Any] = {"text": "body", "gold": "gold", "id": "key"}
    how: dict[str, Any] = {"sample": 8, "strategy": "listwise4", "progress": False}
    return judgeq.run(frame, "how long it is", **columns, **how, runs_dir=folder / "runs")


def test_df_has_the_scores_and_the_columns_of_the_input(result: judgeq.Result) -> None:
    frame = result.df
    assert len(frame) == 8
    assert list(frame["id"]) == list(result.scores.ids)
    assert [*frame.columns[:3]] == ["SIMULATED", "id", "rank"]
    # A column of the input that is called as one of the scores keeps its values, under another name.
    assert [f"k{number}" for number in frame["data_rank"]] == list(frame["id"])
    assert [str(day)[8:10] for day in frame["day"]] == [f"{n + 1:02}" for n in frame["data_rank"]]
    assert frame["text"].equals(frame["data_rank"].map(dict(enumerate(BODIES))))


def test_what_commands_show_is_data_that_shows_itself(result: judgeq.Result, folder: Path) -> None:
    top = result.show(2)
    assert [len(view["items"]) for view in top["views"]] == [2, 2]
    assert repr(top).count("text x") == 4
    assert "<table" in top._repr_html_()
    first = top["views"][0]["items"][0]["id"]
    views = result.show(around=first, uncertain=True)["views"]
    assert [view["name"] for view in views] == ["around", "uncertain"]
    assert first in repr(result.explain(first))
    other = judgeq.run(BODIES, "length", gold=LENGTHS, id=[f"k{n}" for n in range(12)], sample=8,
                       strategy="direct", runs_dir=folder / "runs")  # fmt: skip
    compared = result.compare(other, resamples=10)
    assert "Spearman" in repr(compared)
    printed = command(folder, "show", result.run.id, "--n", "2").stdout
    assert {*re.findall(r"\bk\d+\b", printed)} == {*re.findall(r"\bk\d+\b", repr(top))}


@pytest.mark.usefixtures("undrawn")
def test_a_report_is_written_where_it_is_wanted(result: judgeq.Result, tmp_path: Path) -> None:
    path = result.report(tmp_path / "mine.md")
    assert path == tmp_path / "mine.md"
    assert BODIES[0].split()[0] in path.read_text()
    assert result.report() == result.run.path / "report.html"
    with pytest.raises(judgeq.UsageError, match="html or md"):
        result.report(tmp_path / "report.pdf")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: judgeq.run("demo", sample=1), r"(?<!-)\bsample\b"),
        (lambda: judgeq.run(BODIES, settings={"n": 4}), r"^n is for synthetic datasets only"),
        (lambda: judgeq.run(BODIES, judge="simulated"), r"Give gold or latent_column, or judge"),
        (lambda: judgeq.open_run().evaluate(threshold="bset"), r"^threshold bset"),
    ],
)
def test_errors_name_parameters_in_one_paragraph(call: Any, message: str) -> None:
    judgeq.run("demo", sample=10, strategy="direct")
    with pytest.raises(judgeq.JudgeqError) as caught:
        call()
    words = str(caught.value)
    assert re.search(message, words)
    assert "--" not in re.sub("`[^`]*`", "", words)
    assert "\n" not in words
