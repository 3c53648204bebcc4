from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq import files
from judgeq.config import settle
from judgeq.datasets import Dataset, formats, load
from judgeq.errors import DataError, UsageError
from judgeq.settings.run import DatasetSpec


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, no data of the user's, and a cache of the test's own."""
    monkeypatch.setattr(files, "user_cache", lambda: tmp_path / "cache")
    monkeypatch.setenv("JUDGEQ_OFFLINE", "1")
    monkeypatch.delenv("JUDGEQ_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def put(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return name


def load_file(name: str, content: str | bytes, **settings: object) -> Dataset:
    return load(DatasetSpec.model_validate({"dataset": put(name, content), **settings}))


# Files


def test_csv_defaults() -> None:
    data = load_file("my.csv", 'name,text\na,"one, two\nthree"\n\nb,four\n')
    assert (data.name, list(data.ids), len(data)) == ("my", ["0", "1"], 2)
    assert data.texts == ["one, two\nthree", "four"]
    assert (data.gold, data.gold_kind, data.latent, data.subsets) == (None, None, None, {})
    assert data.source.endswith("my.csv")
    assert (data.notices, data.missing_texts, data.prompt) == ((), "", None)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "\ufeffid,text,g,x\r\n1,one,0.5,3\r\n2,two,,-1e1\r\n"),
        ("a.TSV", "x\tg\ttext\tid\n3\t.5\tone\t1\n-10\t\ttwo\t2"),
        (
            "a.jsonl",
            '\ufeff{"id":1,"text":"one","g":0.5,"x":3}\n\n{"id":"2","text":"two","g":null,"x":-10}',
        ),
        (
            "a.ndjson",
            '{"id":1,"text":"one","g":"0.5","x":"3"}\r\n{"id":2,"text":"two","g":"","x":-10.0}\r\n',
        ),
    ],
)
def test_every_format_gives_the_same(name: str, content: str) -> None:
    data = load_file(name, content, id_column="id", gold_column="g", latent_column="x")
    assert list(data.ids) == ["1", "2"]
    assert data.texts == ["one", "two"]
    assert_array_equal(data.gold, [0.5, np.nan])
    assert_array_equal(data.latent, [3, -10])
    plain = load_file(
        "b.csv",
        "id,text,g,x\n1,one,0.5,3\n2,two,,-10\n",
        id_column="id",
        gold_column="g",
        latent_column="x",
    )
    assert (data.content, data.labels) == (plain.content, plain.labels)


def test_parquet() -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"id": [7, 8], "text": ["one", "two"], "g": [True, None], "rest": [{"a": 1}, None]}
    parquet.write_table(pa.table(columns), "a.parquet")
    data = load(DatasetSpec(dataset="a.parquet", id_column="id", gold_column="g"))
    assert (list(data.ids), data.texts) == (["7", "8"], ["one", "two"])
    assert_array_equal(data.gold, [1, np.nan])
    with pytest.raises(DataError, match=r"row 1, column 'id': expected text, got 7\.\nrow 2"):
        load(DatasetSpec(dataset="a.parquet", text_column="id"))
    with pytest.raises(DataError, match=r"no column 'txt'; it has 'id', 'text'.* mean 'text'"):
        load(DatasetSpec(dataset="a.parquet", text_column="txt"))
    with pytest.raises(DataError, match=r"b\.parquet can't be read as Parquet"):
        load_file("b.parquet", b"PAR1 not at all")
    half = pa.array([b"one", b"\xff"]).view(pa.string())
    parquet.write_table(pa.table({"text": half}), "c.parquet")
    with pytest.raises(DataError, match=r"c\.parquet can't be read as Parquet: .*UTF8"):
        load(DatasetSpec(dataset="c.parquet"))
    twice = pa.table([pa.array(["one", "two"])] * 2, ["text", "text"])
    parquet.write_table(twice, "d.parquet")
    with pytest.raises(DataError, match=r"d\.parquet has more than one column 'text'"):
        load(DatasetSpec(dataset="d.parquet"))


def test_parquet_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'judgeq\[parquet\]'"):
        load_file("a.parquet", b"PAR1")


ID: dict[str, object] = {"id_column": "i"}
JSON_X = '{"text":"x","i":1}\n'
BROKEN: list[tuple[str, str | bytes, dict[str, object], str]] = [
    ("a.csv", "", {}, r"a\.csv is empty"),
    ("a.csv", "\n\n", {}, r"a\.csv is empty"),
    ("a.jsonl", "\n", {}, r"a\.jsonl is empty"),
    ("a.csv", "text\n", {}, r"a\.csv has no rows.* at least two"),
    ("a.csv", "text\none\n", {}, r"a\.csv has one row.* at least two"),
    ("a.csv", "Text,i\na,1\n", {}, r"no column 'text'; it has 'Text', 'i'\. Did you mean 'Text'"),
    ("a.csv", "Text,i\na,1\n", {"text_column": "text"}, r"no column 'text'.*mean 'Text'"),
    ("a.csv", "txt\nx\ny\n", {}, r"no column 'text'.*--text-column"),
    ("a.csv", "text^id\na^1\nb^2\n", {}, r"no column 'text'; it has 'text\^id'"),
    ("a.csv", "text|i;g\na|1;x\n", {}, r"something else separates .* --delimiter"),
    ("a.csv", "text;i\tg\na;1\tx\n", {}, r"something else separates .* --delimiter"),
    ("a.csv", "text,id\na,1\n", {"gold_column": "gold"}, r"no column 'gold'.*--gold-column"),
    ("a.csv", "text,text\na,b\n", {}, r"more than one column 'text'"),
    ("a.csv", "text,b\nx,1\n\ny,2,3\n", {}, r"row 2 \(line 4\): too many fields: 3, .* has 2"),
    ("a.csv", 'text,b\n"x\nx",1\ny\n', {}, r"row 2 \(line 4\): too few fields: 1"),
    ("a.csv", 'text,b\nx,1\n"y"z,2\n', {}, r"row 2 \(line 3\): broken quoting"),
    ("a.csv", 'text,b\nx,1\n"y,2\nz,3\n', {}, r"row 2 \(line 3\): broken quoting.*never closed"),
    ("a.csv", "text\nx\ny\0\n", {}, r"row 2 \(line 3\), .*holds a NUL character"),
    ("a.csv", b"text\nx\nca\xe9\n", {}, r"line 3, byte 3 \(0xe9\): not UTF-8"),
    (
        "a.csv",
        "text\nx\n".encode("utf-16-le"),
        {},
        r"no column 'text'.* another encoding, .*--encoding",
    ),
    ("a.csv", b"text\nx\nca\xe9\n", {"encoding": "utf-8"}, r"line 3, byte 3 \(0xe9\): not UTF-8"),
    (
        "a.csv",
        b"text\nx\nca\xe9\n",
        {"encoding": "ascii"},
        r"line 3, byte 3 \(0xe9\): not ASCII\. .*--encoding",
    ),
    (
        "a.jsonl",
        b'{"text":"\xff"}\n',
        {"encoding": "utf-16"},
        r"a\.jsonl, line 1, byte 1 .*: not UTF-16\.",
    ),
    ("a.csv", 'text,b\nx,1\n" ",2\n', {}, r"row 2 \(line 3\), column 'text': the text is empty"),
    ("a.csv", "text,i\nx,a\ny,\n", ID, r"row 2 \(line 3\), column 'i': the id is empty"),
    ("a.csv", "text,i\nx,a\ny,a\n", ID, r"row 2 \(line 3\).* 'a' is .*row 1 \(line 2\)"),
    ("a.csv", "text,i\nx,a\ny,\x1b[2J\n", ID, r"row 2.*the id '\\x1b\[2J' holds a control"),
    ("a.csv", "text,x\na,1\nb,\n", {"latent_column": "x"}, r"row 2 .*'x': '' is not a number"),
    ("a.jsonl", "{}\n" + JSON_X * 2, {}, r"row 1 \(line 1\): \{\} is an empty JSON object"),
    ("a.jsonl", JSON_X + "\n[1]\n", {}, r"row 2 \(line 3\): \[1\] is no JSON object"),
    ("a.jsonl", JSON_X + '{"text":\n', {}, r"row 2 \(line 2\): broken JSON: .* at column"),
    ("a.jsonl", b'{"text":"x"}\n{"text":"\xff"}\n', {}, r"line 2, byte 10 \(0xff\): not UTF-8"),
    ("a.jsonl", JSON_X + '{"t":"y"}', {}, r"row 2 \(line 2\), column 'text': the text is empty"),
    ("a.jsonl", JSON_X + '{"text":5}', {}, r"row 2 .*column 'text': expected text, got 5"),
    ("a.jsonl", JSON_X + '{"text":null}', {}, r"row 2.*the text is empty"),
    ("a.jsonl", JSON_X + '{"text":"\\u0000"}', {}, r"row 2.*NUL"),
    ("a.jsonl", JSON_X + '{"text":"\\ud800"}', {}, r"row 2 \(line 2\): broken JSON: .*surrogate"),
    ("a.jsonl", JSON_X + '{"text":"y","i":"\\udc00"}', ID, r"row 2 \(line 2\).*surrogate"),
    ("a.csv", b"text\nx\n\xed\xa0\x80\n", {}, r"line 3, byte 1 \(0xed\): not UTF-8"),
    ("a.jsonl", JSON_X + '{"text":"y","i":1.5}', ID, r"1\.5 can't be an id"),
    ("a.jsonl", JSON_X + '{"text":"y","i":true}', ID, r"True can't be an id"),
    ("a.jsonl", JSON_X + '{"text":"y","i":null}', ID, r"the id is empty"),
    ("a.jsonl", JSON_X + '{"text":"y","i":"1"}', ID, r"'1' is also that of"),
]


@pytest.mark.parametrize(("name", "content", "settings", "message"), BROKEN)
def test_a_broken_file_says_where(
    name: str, content: str | bytes, settings: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message) as caught:
        load_file(name, content, **settings)
    assert name in str(caught.value)


def test_a_long_field_is_read_and_the_limit_put_back() -> None:
    before = csv.field_size_limit()
    data = load_file("a.csv", f"text\n{'x' * 200_000}\ny\n")
    assert data.texts is not None
    assert len(data.texts[0]) == 200_000
    assert csv.field_size_limit() == before


def test_a_field_beyond_every_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "MAX_FIELD", 10)
    long = "x" * (csv.field_size_limit() + 1)
    with pytest.raises(DataError, match=r"row 2 \(line 3\): broken quoting \(field larger"):
        load_file("a.csv", f'text\ny\n"{long}\n')


def test_repeated_texts_are_a_notice() -> None:
    (notice,) = load_file("a.csv", "text\nx\ny\nx\n").notices
    assert notice.startswith("1 of 3 texts repeat an earlier one, and each is judged as an item")
    assert "--merge-duplicates" in notice


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    (tmp_path / "d").mkdir()
    put("a.docx", "x")
    with pytest.raises(DataError, match=r"There is no file .*x\.csv"):
        load(DatasetSpec(dataset="x.csv"))
    for folder in ("d.csv", "d"):
        with pytest.raises(DataError, match=rf"{folder} is a folder"):
            load(DatasetSpec(dataset=folder))
    with pytest.raises(UsageError, match=r"a\.docx .*\.csv, .*\.parquet"):
        load(DatasetSpec(dataset="a.docx"))
    with pytest.raises(UsageError, match=r"called 'bab'\. Did you mean 'babe'\? Known are 'babe'"):
        load(DatasetSpec(dataset="bab"))
    with pytest.raises(UsageError, match="No dataset is called ''"):
        load(DatasetSpec(dataset=""))
    with pytest.raises(UsageError, match="No dataset is called 'xxx"):
        load(DatasetSpec(dataset="x" * 5000))
    with pytest.raises(DataError, match=r"can't be read: File name too long"):
        load(DatasetSpec(dataset=f"{'x' * 5000}.csv"))
    os.mkfifo("pipe.csv")
    with pytest.raises(DataError, match=r"pipe\.csv can't be read: it is a pipe; save its content"):
        load(DatasetSpec(dataset="pipe.csv"))


def test_paths_are_relative_to_base(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    put("deep/a.csv", "text\nx\ny\n")
    assert len(load(DatasetSpec(dataset="a.csv"), base=tmp_path / "deep")) == 2


# Gold


def gold_of(cells: Sequence[str], **settings: object) -> Dataset:
    rows = "".join(f"t{row},{cell}\n" for row, cell in enumerate(cells))
    return load_file("g.csv", f"text,g\n{rows}", gold_column="g", **settings)


@pytest.mark.parametrize(
    ("cells", "levels", "kind", "gold"),
    [
        (["0", "1", ""], None, "binary", [0, 1, np.nan]),
        (["2", "-1", "2"], None, "binary", [2, -1, 2]),
        (["true", "FALSE"], None, "binary", [1, 0]),
        (["1", "2", "3"], None, "ordinal", [1, 2, 3]),
        (["4", "4"], None, "ordinal", [4, 4]),
        (["1", "2", ".5"], None, "continuous", [1, 2, 0.5]),
        ([str(i) for i in range(21)], None, "continuous", range(21)),
        (["hi", " lo ", ""], ("lo", "hi"), "binary", [1, 0, np.nan]),
        (["hi", "hi"], ("lo", "hi"), "binary", [1, 1]),
        (["c", "a"], ("a", "b", "c"), "ordinal", [2, 0]),
        (["", " "], None, None, None),
    ],
)
def test_gold_and_its_kind(
    cells: list[str], levels: tuple[str, ...] | None, kind: str | None, gold: list[float] | None
) -> None:
    data = gold_of(cells, gold_levels=levels)
    assert data.gold_kind == kind
    if gold is None:
        assert data.gold is None
    else:
        assert_array_equal(data.gold, gold)


@pytest.mark.parametrize(
    ("cells", "levels", "message"),
    [
        (["1", "inf"], None, r"row 2 \(line 3\), column 'g': 'inf' is not a number"),
        (["1", "-inf"], None, "'-inf' is not a number"),
        (["1", "1e999"], None, "'1e999' is not a number"),
        (["1", "1_0"], None, "'1_0' is not a number"),
        (["B", "A", "B"], None, r"(?s)row 1 .*'B' is not a number.*levels .*: 'B', 'A'\)"),
        (["lo", "Hi"], ("lo", "hi"), r"'Hi' is none of the levels 'lo', 'hi'\. Did you mean 'hi'"),
    ],
)
def test_unreadable_gold(cells: list[str], levels: tuple[str, ...] | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        gold_of(cells, gold_levels=levels)


def test_labels_in_jsonl_are_named_as_json_writes_them() -> None:
    lines = '{"text":"a","g":true}\n{"text":"b","g":1}\n{"text":"c","g":false}'
    data = load_file("a.jsonl", lines, gold_column="g", gold_levels=("false", "1", "true"))
    assert_array_equal(data.gold, [2, 1, 0])


# Settings that can't be


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"dataset": "babe", "text_column": "x"}, "--text-column is for files"),
        ({"dataset": "babe", "gold_levels": ["a", "b"]}, "--gold-levels is for files"),
        ({"dataset": "babe", "n": 5}, "--n is for synthetic"),
        ({"dataset": "babe", "delimiter": ";"}, "--delimiter is for files"),
        ({"dataset": "babe", "skip_empty": True}, "--skip-empty is for files"),
        ({"dataset": "synthetic:linear", "encoding": "latin-1"}, "--encoding is not for synth"),
        ({"dataset": "a.jsonl", "delimiter": ";"}, "--delimiter is for CSV"),
        (
            {"dataset": "a.parquet", "encoding": "latin-1"},
            "--encoding is for CSV, TSV, TXT, JSONL, and .* PARQUET",
        ),
        ({"dataset": "babe", "data_dir": "nowhere"}, "--data-dir nowhere: there is no folder"),
        ({"dataset": "a.csv", "n": 5}, "--n is for synthetic"),
        ({"dataset": "a.csv", "gold_levels": ["a", "b"]}, "needs --gold-column"),
        ({"dataset": "a.csv", "gold_column": "g", "gold_levels": ["a"]}, "at least two"),
        ({"dataset": "a.csv", "gold_column": "g", "gold_levels": ["a", "a "]}, "different"),
        ({"dataset": "a.csv", "id_column": "text"}, "--id-column can't be the column of the texts"),
        ({"dataset": "synthetic:normal", "latent_column": "x"}, "--latent-column is not for synth"),
        ({"dataset": "synthetic:norm"}, "Did you mean 'synthetic:normal'"),
        ({"dataset": "synthetic"}, "Known are .*'synthetic:linear', "),
    ],
)
def test_impossible_settings(spec: dict[str, object], message: str) -> None:
    put("a.csv", "text,g\nx,a\ny,b\n")
    with pytest.raises(UsageError, match=message):
        load(DatasetSpec.model_validate(spec))


@pytest.mark.parametrize(("n", "message"), [(1, "--n 1: give 2 or"), (10**8, "10,000,000 or less")])
def test_synthetic_items_are_two_to_ten_million(n: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        settle({"dataset": "synthetic:normal", "n": n})


# Synthetic items


@pytest.mark.parametrize("shape", ["linear", "bimodal", "normal", "binary"])
def test_synthetic(shape: str) -> None:
    data = load(DatasetSpec(dataset=f"synthetic:{shape}"), seed=3)
    again = load(DatasetSpec(dataset=f"synthetic:{shape}"), seed=3)
    other = load(DatasetSpec(dataset=f"synthetic:{shape}"), seed=4)
    assert data.content == again.content
    assert data.labels == again.labels != other.labels
    assert data.latent is not None
    assert data.gold is not None
    assert (data.name, len(data), data.texts) == (f"synthetic-{shape}", 1000, None)
    assert "simulated judge" in data.missing_texts
    assert data.latent.min() >= 1
    assert data.latent.max() <= 1000
    # The row number tells nothing about the score.
    assert abs(np.corrcoef(np.arange(1000), data.latent)[0, 1]) < 0.15
    if shape == "linear":
        assert_array_equal(np.sort(data.latent), np.linspace(1, 1000, 1000))
    if shape == "bimodal":
        halves = np.sort(data.latent).reshape(2, 500)
        assert_array_equal(np.round(halves.mean(axis=1), -1), [300, 700])
    if shape == "normal":
        assert abs(data.latent.mean() - 500) < 20
        assert abs(data.latent.std() - 150) < 15
    if shape == "binary":
        assert_array_equal(np.unique(data.latent, return_counts=True), [[250, 750], [500, 500]])
        assert_array_equal(data.gold, data.latent == 750)
        assert data.gold_kind == "binary"
    else:
        assert data.gold is data.latent
        assert data.gold_kind == "continuous"


def test_synthetic_content_is_shape_and_size() -> None:
    """The seed is no part of it: the run's fingerprint holds it already."""
    data = load(DatasetSpec(dataset="synthetic:linear", n=5), seed=1)
    assert data.content == "synthetic:linear n=5"


def test_synthetic_items_stay_the_same_from_version_to_version() -> None:
    linear = load(DatasetSpec(dataset="synthetic:linear", n=5), seed=1)
    assert_array_equal(linear.latent, [500.5, 250.75, 1000, 1, 750.25])
    normal = load(DatasetSpec(dataset="synthetic:normal", n=5), seed=1)
    assert normal.latent is not None
    assert_array_equal(np.round(normal.latent[:3], 3), [459.096, 568.683, 676.049])


def test_row_ids_are_a_sequence() -> None:
    ids = load(DatasetSpec(dataset="synthetic:linear", n=5)).ids
    assert (list(ids), ids[-1], ids[1:3], len(ids)) == (list("01234"), "4", ["1", "2"], 5)
    with pytest.raises(IndexError):
        ids[5]


# Ids by default, and items without texts


def test_the_column_id_holds_the_ids_where_it_can() -> None:
    data = load_file("a.csv", "id,text\nx,one\ny,two\n")
    assert (list(data.ids), data.notices) == (["x", "y"], ())
    assert data.content == load_file("a.csv", "id,text\nx,one\ny,two\n", id_column="id").content
    assert list(load_file("a.jsonl", '{"id":7,"text":"a"}\n{"id":9,"text":"b"}').ids) == ["7", "9"]
    for table in ("id,text\nx,one\nx,two\n", "id,text\nx,one\n,two\n"):
        data = load_file("a.csv", table)
        assert list(data.ids) == ["0", "1"]
        assert "row 2 (line 3), column 'id'" in data.notices[0]
        assert "row numbers are the ids" in data.notices[0]
    data = load_file("a.jsonl", '{"id":7,"text":"a"}\n{"text":"b"}')
    assert (list(data.ids), len(data.notices)) == (["0", "1"], 1)
    assert list(load_file("a.csv", "id,text\n1,x\n2,y\n", gold_column="id").ids) == ["0", "1"]


def test_ids_without_texts_are_a_dataset() -> None:
    for name, table in (
        ("a.csv", "id,g\nx,1\ny,2\n"),
        ("a.jsonl", '{"id":"x","g":1}\n{"id":"y","g":2}'),
    ):
        data = load_file(name, table, gold_column="g")
        assert (list(data.ids), data.texts) == (["x", "y"], None)
        assert "no column 'text'; it has 'id', 'g'." in data.missing_texts
        assert data.missing_texts in data.notices[0]
    assert data.content != load_file("a.csv", "id,g\nx,1\nz,2\n", gold_column="g").content
    with pytest.raises(DataError, match="no column 'text'"):
        load_file("a.csv", "i,g\nx,1\ny,2\n", gold_column="g")
    assert load_file("a.csv", "i,g\nx,1\ny,2\n", id_column="i").texts is None


# Content and labels


def test_content_tells_items_apart() -> None:
    tables = [
        "id,text\na,bc\nd,e\n",
        "id,text\nd,e\na,bc\n",  # another order
        "id,text\na,b\nd,ce\n",  # the same characters, cut elsewhere
        "id,text\nab,c\nd,e\n",
        "id,text\na,bc\nd,e\nf,g\n",
    ]
    contents = [load_file("a.csv", table, id_column="id").content for table in tables]
    contents.append(load_file("a.csv", tables[0].replace("id,", "name,")).content)
    assert len(set(contents)) == len(contents)
    assert load_file("b.csv", tables[0], id_column="id").content == contents[0]


def test_labels_tell_gold_and_latent_apart_and_content_does_not() -> None:
    numbers = ["1,2\n3,4", "1,2\n3,5", "1,2\n4,4", "1,2\n,4", "3,4\n1,2", "2,1\n4,3"]
    data = []
    for pair in numbers:
        first, second = pair.split()
        table = f"text,g,x\nt,{first}\nu,{second}\n"
        data.append(load_file("a.csv", table, gold_column="g", latent_column="x"))
    table = "text,g,x\nt,1,2\nu,3,4\n"
    data.append(load_file("a.csv", table, gold_column="g"))
    data.append(load_file("a.csv", table, latent_column="g"))
    data.append(load_file("a.csv", table))
    assert len({each.labels for each in data}) == len(data)
    assert len({each.content for each in data}) == 1


def test_labels_are_of_values_not_of_bits() -> None:
    """Zero and nan have several bit patterns, and which one a cell gives is nobody's concern."""

    def labels(**values: list[float]) -> str:
        arrays = {name: np.array(column) for name, column in values.items()}
        return Dataset("d", "abc", None, "", **arrays).labels  # type: ignore[arg-type]

    zeros = labels(gold=[0.0, np.nan, 1])
    assert zeros == labels(gold=[-0.0, -np.nan, 1])
    assert zeros != labels(latent=[0.0, np.nan, 1])


def test_content_and_labels_stay_the_same_from_version_to_version() -> None:
    """Run ids derive from them: a change here makes every user's runs start anew."""
    data = load_file("a.csv", "text,g,x\nä,1,5\ny,,6\nz,0,7\n", gold_column="g", latent_column="x")
    assert data.content[:12] == "edec5af47706"
    assert data.labels[:12] == "8a0c92fd5b1e"
    named = load_file("a.csv", "text,i\nä,b\ny,ü\n", id_column="i")
    assert named.content[:12] == "64e9a348f982"


def test_arrays_cannot_be_changed() -> None:
    data = gold_of(["1", "2"])
    assert data.gold is not None
    with pytest.raises(ValueError, match="read-only"):
        data.gold[0] = 5


TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12
).filter(lambda text: bool(text.strip()))
IDS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=6)
GOLD = st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False))
ROWS = st.lists(st.tuples(IDS, TEXT, GOLD), min_size=2, max_size=8, unique_by=lambda row: row[0])


@settings(max_examples=60)
@given(rows=ROWS)
def test_what_is_written_is_read(
    rows: list[tuple[str, str, float | None]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.getbasetemp()
    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["id", "text", "gold"])
    writer.writerows(rows)
    (folder / "p.csv").write_bytes(text.getvalue().encode())
    keys = ("id", "text", "gold")
    lines = "\n".join(json.dumps(dict(zip(keys, row, strict=True))) for row in rows)
    (folder / "p.jsonl").write_bytes(lines.encode())
    seen = set()
    for name in ("p.csv", "p.jsonl"):
        spec = DatasetSpec(dataset=name, id_column="id", gold_column="gold")
        data = load(spec, base=folder)
        assert list(data.ids) == [row[0] for row in rows]
        assert data.texts == [row[1] for row in rows]
        gold = np.array([row[2] for row in rows], dtype=np.float64)
        if data.gold is None:
            assert np.isnan(gold).all()
        else:
            assert_array_equal(data.gold, gold)
        seen.add((data.content, data.labels))
    assert len(seen) == 1


def test_importing_stays_light() -> None:
    heavy = "pyarrow", "urllib.request", "platformdirs", "scipy", "orjson"
    code = f"import sys, judgeq.datasets; print([m for m in {heavy!r} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_spec_with_an_unknown_setting() -> None:
    with pytest.raises(ValueError, match="Extra inputs"):
        DatasetSpec.model_validate({"dataset": "babe", "texts": "x"})
