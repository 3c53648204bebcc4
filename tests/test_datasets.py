"""Datasets from files and DataFrames, made up, and corpora that are known and fetched."""

import asyncio
import csv
import gzip
import hashlib
import io
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from aiohttp import web
from numpy.testing import assert_allclose, assert_array_equal

from judgeq import files
from judgeq.config import Settings
from judgeq.datasets import Dataset, DatasetSpec, catalog, load, tables
from judgeq.datasets.corpora import fetch
from judgeq.datasets.tables import delimiter_of
from judgeq.engine import session
from judgeq.errors import DataError, RunError, StoppedError, UsageError
from judgeq.events import Event, RoundRated
from tests.build import SHARED
from tests.cli import LONGEST, judgeq, only_run, score_columns
from tests.web import serving

TEXTS = ["Wann kommt die Rechnung?", 'Er sagt: "nie"; ich warte', "Danke"]
Rows = list[list[object]]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, no data of the user's, and a cache of the test's own."""
    monkeypatch.setattr(files, "user_cache", lambda: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


def load_file(name: str, content: str | bytes, **settings: object) -> Dataset:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return load(DatasetSpec.model_validate({"dataset": name, **settings}))


def sheet(*rows: list[object], more: Callable[[Any], None] = lambda book: None) -> bytes:
    """An Excel file of these rows."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    more(book)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


R = b"""\
"","text","Note"
"1","Wann kommt die Rechnung?",1.5
"2","Er sagt: ""nie""; ich warte",2.25
"3","Danke",NA
"""
GERMAN_EXCEL = """\
Nr;text;Note
1;Wann kommt die Rechnung?;1,5
2;"Er sagt: ""nie""; ich warte";2,25
3;Danke;
""".replace("\n", "\r\n")
POSTGRES = b"""\
text|Note
Wann kommt die Rechnung?|1.5
"Er sagt: ""nie""; ich warte"|2.25
Danke|NULL
"""
SPSS = POSTGRES.replace(b"|", b"\t").replace(b"NULL", b".")
JSON = rb"""[
  {"text": "Wann kommt die Rechnung?", "Note": 1.5},
  {"text": "Er sagt: \"nie\"; ich warte", "Note": 2.25},
  {"text": "Danke", "Note": null}
]"""
LINES = JSON.replace(b",\n", b"\n").strip(b"[]\n").replace(b"Note", b"a.b")
NO_HEADER = {"no_header": True, "text_column": "1", "gold_column": "2"}


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("excel.csv", GERMAN_EXCEL.encode("windows-1252"), {}),
        ("utf16.csv", GERMAN_EXCEL.encode("utf-16"), {}),
        ("big.csv", ("\ufeff" + GERMAN_EXCEL).encode("utf-16-be"), {}),
        ("cp1252.csv", GERMAN_EXCEL.encode("cp1252"), {"encoding": "Windows-1252"}),
        ("bom.CSV", GERMAN_EXCEL.encode("utf-8-sig"), {}),
        ("r.csv", R, {}),
        ("pandas.csv", R.replace(b"NA", b"NaN"), {}),
        ("postgres.csv", POSTGRES, {}),
        ("caret.csv", POSTGRES.replace(b"|", b"^"), {"delimiter": "^"}),
        ("spss.TSV", SPSS, {}),
        ("columns.txt", SPSS, {}),
        ("none.tsv", SPSS.split(b"\n", 1)[1], NO_HEADER),
        ("a.json", JSON, {}),
        ("a.jsonl", JSON, {}),
        ("a.ndjson", LINES, {"gold_column": "a.b"}),
        ("nested.jsonl", LINES.replace(b'"a.b": ', b'"a": {"b": ').replace(b"}", b"}}"),
         {"gold_column": "a.b"}),
        ("a.csv.gz", gzip.compress(R), {}),
    ],
)  # fmt: skip
def test_a_file_that_people_have(name: str, content: bytes, settings: dict[str, object]) -> None:
    data = load_file(name, content, **{"gold_column": "Note", **settings})
    assert data.texts == TEXTS
    assert_array_equal(data.gold, [1.5, 2.25, np.nan])
    assert (list(data.ids), data.notices) == (["0", "1", "2"], ())
    assert data.name == name.split(".", maxsplit=1)[0]
    plain = load_file("plain.csv", R, gold_column="Note")
    assert (data.content, data.labels) == (plain.content, plain.labels)


def test_an_excel_file() -> None:
    header: list[object] = ["ID", "text", "Note", None, "2020"]
    rows: Rows = [[1, TEXTS[0], 1.5], ["b", TEXTS[1], 2.25], [None], [3, TEXTS[2], None]]

    def scribble(book: Any) -> None:
        book.active.cell(tables.MOST_ROWS, 16_384, "x")
        book.create_sheet("other").append(["text"])

    content = sheet(header, *rows, more=scribble)
    for name in ("a.xlsx", "its name is wrong.csv"):
        data = load_file(name, content, id_column="ID", gold_column="Note", skip_empty=True)
        assert (list(data.ids), data.texts) == (["1", "b", "3"], TEXTS)
        assert_array_equal(data.gold, [1.5, 2.25, np.nan])
    bare = load_file("b.xlsx", sheet(*(row[:2] for row in rows)), no_header=True, text_column="2")
    assert bare.texts == TEXTS
    with pytest.raises(DataError, match=r"row 2 \(line 3\), column 'text': expected text, got 7"):
        load_file("c.xlsx", sheet(["text"], ["a"], [7]))
    with pytest.raises(DataError, match=r"row 2 .*the text is empty"):  # a formula isn't run
        load_file("b.xlsx", sheet(["text", "n"], ["a", 1], ["=1+1", 2]))


def test_parquet() -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    columns = {"id": [7, 8], "text": ["one", "two"], "g": [True, None], "rest": [{"a": 1}, None]}
    parquet.write_table(pa.table(columns), "a.parquet")
    data = load(DatasetSpec(dataset="a.parquet", id_column="id", gold_column="g"))
    assert (list(data.ids), data.texts) == (["7", "8"], ["one", "two"])
    assert_array_equal(data.gold, [1, np.nan])
    half = pa.array([b"one", b"\xff"]).view(pa.string())
    parquet.write_table(pa.table({"text": half}), "c.parquet")
    parquet.write_table(pa.table([pa.array(["one", "two"])] * 2, ["text", "text"]), "d.parquet")
    for name, column, wrong in (
        ("a", "id", r"row 1, column 'id': expected text, got 7 \(2 bad cells"),
        ("c", "text", r"c\.parquet can't be read as Parquet: .*UTF8"),
        ("d", "text", r"d\.parquet has more than one column 'text'"),
    ):
        with pytest.raises(DataError, match=wrong):
            load(DatasetSpec(dataset=f"{name}.parquet", text_column=column))


@pytest.mark.parametrize(
    ("module", "name", "content"),
    [("pyarrow", "parquet", b"PAR1"), ("openpyxl", "excel", b"PK\x03\x04")],
)
def test_a_file_without_the_package_that_reads_it(
    module: str, name: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UsageError, match=rf"pip install 'judgeq\[{name}\]'"):
        load_file("a.csv", content)


def test_what_unpacks_to_more_than_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[list[object]] = [[f"{n}{'a' * 30_000}"] for n in range(9)]
    book = sheet(["text"], *rows)
    monkeypatch.setattr(tables, "LARGEST", 50_000)
    for name, content in (("a.csv.gz", gzip.compress(b"text\n" * 20_000)), ("a.xlsx", book)):
        assert len(content) < 50_000
        with pytest.raises(DataError, match=rf"{name} unpacks to more than"):
            load_file(name, content)


def test_a_text_a_line() -> None:
    data = load_file("a.txt", 'One, two.\r\n\n  Three; "four\n{five}\n')
    assert data.texts == ["One, two.", 'Three; "four', "{five}"]
    assert list(data.ids) == ["0", "1", "2"]
    assert load_file("a.json", '["One", "two"]').texts == ["One", "two"]


def test_what_separates_columns_is_seen_in_the_lines() -> None:
    assert delimiter_of(['"a,b";text']) == ";"  # not what stands between quotation marks
    assert delimiter_of(["1;0,5;Eins", "2;1,5;Zwei, drei", "3;;Vier"]) == ";"  # what each line has
    assert delimiter_of(["id;text,more"]) == delimiter_of([]) == ","


def test_decimal_commas_where_semicolons_separate() -> None:
    cells = "text;g\na;0,5\nb;1.5\nc;-2\n"
    assert_array_equal(load_file("a.csv", cells, gold_column="g").gold, [0.5, 1.5, -2])
    for old, new, cell in (("0,5", "1.234,5", r"1\.234,5"), (";", "\t", "0,5")):
        with pytest.raises(DataError, match=f"'{cell}' is not a number"):
            load_file("a.csv", cells.replace(old, new), gold_column="g")


ID: dict[str, object] = {"id_column": "i"}
JSON_X = '{"text":"x","i":1}\n'
NO_WORKBOOK = r"a\.xlsx isn't a whole Excel workbook: save it again, or export it as CSV\."


BROKEN: list[tuple[str, str | bytes, dict[str, object], str]] = [
    ("a.xlsx", b"PK\x03\x04 not at all", {}, NO_WORKBOOK),
    ("a.jsonl", JSON_X + f'{{"text":{"[" * 99_999}{"]" * 99_999}}}\n', {}, "is nested too deeply"),
    ("a.jsonl", f'{{"text":{"[" * 99_999}{"]" * 99_999}}}\n{JSON_X}', {}, "is nested too deeply"),
    ("a.json", f'[{{"text":{"[" * 99_999}{"]" * 99_999}}}]', {}, "is nested too deeply"),
    ("a.parquet", b"PAR1 not at all", {}, "can't be read as Parquet"),
    ("a.csv.gz", gzip.compress(R)[:-9], {}, "can't be unpacked"),
    ("a.csv", b"\xd0\xcf\x11\xe0", {}, "not UTF-8"),
    ("a.csv", "", {}, r"a\.csv is empty"),
    ("a.csv", "text\n", {}, r"a\.csv has no rows.* at least two"),
    ("a.csv", "text\none\n", {}, r"a\.csv has one row.* at least two"),
    ("a.csv", "Text,i\na,1\n", {}, r"no column 'text'; it has 'Text', 'i'\. Did you mean 'Text'"),
    ("a.csv", "text^id\na^1\nb^2\n", {}, r"no column 'text'; it has 'text\^id'.*--delimiter"),
    ("a.csv", "text,id\na,1\n", {"gold_column": "gold"}, r"no column 'gold'.*--gold-column"),
    ("a.csv", "text,text\na,b\n", {}, r"more than one column 'text'"),
    ("a.csv", "text,b\nx,1\n\ny,2,3\n", {}, r"row 2 \(line 4\): too many fields: 3, .* has 2"),
    ("a.csv", 'text,b\n"x\nx",1\ny\n', {}, r"row 2 \(line 4\): too few fields: 1"),
    ("a.csv", 'text,b\nx,1\n"y"z,2\n', {}, r"row 2 \(line 3\): broken quoting"),
    ("a.csv", 'text,b\nx,1\n"y,2\nz,3\n', {}, r"row 2 \(line 3\): broken quoting.*never closed"),
    ("a.csv", "text\nx\ny\0\n", {}, r"row 2 \(line 3\), .*holds a NUL character"),
    ("a.csv", b"text\nx\nca\xe9\n", {}, r"line 3, byte 3: not UTF-8"),
    ("a.csv", "text\nx\n".encode("utf-16-le"), {}, r"no column 'text'.*--encoding"),
    ("a.csv", b"text\nx\nca\xe9\n", {"encoding": "ascii"}, r"not ASCII\. .*--encoding"),
    ("a.csv", b"text\nx\n\\ud800\n", {"encoding": "unicode_escape"}, "row 2.*half a character"),
    ("a.csv", 'text,b\nx,1\n" ",2\n', {}, r"row 2 \(line 3\), column 'text': the text is empty"),
    ("a.csv", "text,i\nx,a\ny,\n", ID, r"row 2 \(line 3\), column 'i': the id is empty"),
    ("a.csv", "text,i\nx,a\ny,a\n", ID, r"row 2 \(line 3\).* 'a' is .*row 1 \(line 2\)"),
    ("a.csv", "text,i\nx,a\ny,\x1b[2J\n", ID, r"row 2.*the id '\\x1b\[2J' holds a control"),
    ("a.csv", "text,x\na,1\nb,\n", {"latent_column": "x"}, r"row 2 .*'x': '' is not a number"),
    ("a.jsonl", "{}\n" + JSON_X * 2, {}, r"row 1 \(line 1\): \{\} is no JSON object"),
    ("a.jsonl", JSON_X + "\n[1]\n", {}, r"row 2 \(line 3\): \[1\] is no JSON object"),
    ("a.json", '[{"text":"a"},["b"]]', {}, r"row 2: \['b'\] is no JSON object"),
    ("a.json", '[{"text":"a"},\n{"text":}]', {}, "broken JSON: .* at column 9 of line 2"),
    ("a.jsonl", JSON_X + '{"text":\n', {}, r"row 2 \(line 2\): broken JSON: .* at column"),
    ("a.jsonl", b'{"text":"x"}\n{"text":"\xff"}\n', {}, r"line 2, byte 10: not UTF-8"),
    ("a.jsonl", JSON_X + '{"t":"y"}', {}, r"row 2 \(line 2\), column 'text': the text is empty"),
    ("a.jsonl", JSON_X + '{"text":5}', {}, r"row 2 .*column 'text': expected text, got 5"),
    ("a.jsonl", JSON_X + '{"text":"\\ud800"}', {}, r"row 2 \(line 2\): broken JSON: .*surrogate"),
    ("a.jsonl", JSON_X + '{"text":"y","i":1.5}', ID, r"1\.5 can't be the id"),
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


def test_a_long_field_is_read_and_one_beyond_every_limit_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = load_file("a.csv", f"text\n{'x' * 200_000}\ny\n")
    assert data.texts == ["x" * 200_000, "y"]
    monkeypatch.setattr(csv, "field_size_limit", lambda *_: 1)
    long = "x" * (tables.MAX_FIELD + 1)
    with pytest.raises(DataError, match=r"row 2 \(line 3\): broken quoting \(field larger"):
        load_file("a.csv", f'text\ny\n"{long}\n')


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    (tmp_path / "d.csv").mkdir()
    Path("a.docx").write_text("x")
    os.mkfifo("pipe.csv")
    for path, error, message in (
        ("x.csv", DataError, r"x\.csv can't be read .*: No such file"),
        ("d.csv", DataError, r"d\.csv can't be read .*: Is a directory"),
        (f"{'x' * 5000}.csv", DataError, r"can't be read .*: File name too long"),
        ("pipe.csv", DataError, r"it is a pipe; save its content"),
        ("a.docx", UsageError, r"a\.docx has no suffix .*\.csv, .*\.parquet"),
        ("bab", UsageError, r"called 'bab'\. Did you mean 'babe'\? Known are 'babe'"),
        ("", UsageError, "No dataset is called ''"),
        ("x" * 5000, UsageError, "No dataset is called 'xxx"),
    ):
        with pytest.raises(error, match=message):
            load(DatasetSpec(dataset=path))
    (tmp_path / "deep").mkdir()
    Path("deep/a.csv").write_text("text\nx\ny\n")
    assert len(load(DatasetSpec(dataset="a.csv"), base=tmp_path / "deep")) == 2


def gold_of(cells: list[str], **settings: object) -> Dataset:
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
    assert (data.gold is None) == (gold is None)
    assert_array_equal([] if data.gold is None else data.gold, gold or [])


@pytest.mark.parametrize(
    ("cells", "levels", "message"),
    [
        (["1", "inf"], None, r"row 2 \(line 3\), column 'g': 'inf' is not a number"),
        (["1", "1e999"], None, "'1e999' is not a number"),
        (["1", "1_0"], None, "'1_0' is not a number"),
        (["B", "A", "B"], None, r"row 1 .*'B' is not a number.*levels .*: 'B', 'A'\)"),
        (["lo", "Hi"], ("lo", "hi"), r"'Hi' is none of the levels 'lo', 'hi'"),
    ],
)
def test_unreadable_gold(cells: list[str], levels: tuple[str, ...] | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        gold_of(cells, gold_levels=levels)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"dataset": "babe", "text_column": "x"}, "--text-column is for files"),
        ({"dataset": "babe", "n": 5}, "--n is for synthetic"),
        ({"dataset": "babe", "delimiter": ";"}, "--delimiter is for files"),
        ({"dataset": "synthetic:linear", "encoding": "latin-1"}, "--encoding is not for synth"),
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
    Path("a.csv").write_text("text,g\nx,a\ny,b\n")
    with pytest.raises(UsageError, match=message):
        load(DatasetSpec.model_validate(spec))


@pytest.mark.parametrize(
    ("shape", "latent"),
    [
        ("linear", [500.5, 250.75, 1000, 1, 750.25]),
        ("bimodal", [705.597, 812.03, 247.428, 715.258, 268.746]),
        ("normal", [459.096, 568.683, 676.049, 597.542, 606.574]),
        ("binary", [750, 750, 250, 750, 250]),
    ],
)
def test_synthetic_items_stay_the_same_from_version_to_version(
    shape: str, latent: list[float]
) -> None:
    spec, binary = DatasetSpec(dataset=f"synthetic:{shape}", n=5), shape == "binary"
    data, other = (load(spec, seed=seed) for seed in (1, 4))
    assert_allclose(np.asarray(data.latent), latent, atol=5e-4)
    assert_array_equal(data.gold, np.asarray(data.latent) == 750 if binary else data.latent)
    assert data.gold_kind == ("binary" if binary else "continuous")
    assert (data.content == other.content, data.labels == other.labels) == (True, False)
    assert (data.name, len(data), data.texts) == (f"synthetic-{shape}", 5, None)
    assert "simulated judge" in data.missing_texts
    many = np.asarray(load(DatasetSpec(dataset=f"synthetic:{shape}", n=5000)).latent)
    assert 1 <= many.min() <= many.max() <= 1000


def test_the_column_id_holds_the_ids_where_it_can() -> None:
    data = load_file("a.csv", "id,text\nx,one\ny,two\n")
    assert (list(data.ids), data.notices) == (["x", "y"], ())
    assert data.content == load_file("a.csv", "id,text\nx,one\ny,two\n", id_column="id").content
    assert list(load_file("a.jsonl", '{"id":7,"text":"a"}\n{"id":9,"text":"b"}').ids) == ["7", "9"]
    for table in ("id,text\nx,one\nx,two\n", "id,text\nx,one\n,two\n"):
        data = load_file("a.csv", table)
        assert list(data.ids) == ["0", "1"]
        assert "row 2 (line 3)" in data.notices[0]
        assert "ow numbers are used as ids" in data.notices[0]
        assert "--id-column" in data.notices[0]
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


def test_empty_texts_are_left_out_if_asked_to() -> None:
    rows = "text,gold\none,1\n ,\n\n,nonsense\nfour,4\nfive,\n"
    data = load_file("a.csv", rows, skip_empty=True, gold_column="gold")
    assert (list(data.ids), data.texts) == (["0", "3", "4"], ["one", "four", "five"])
    assert data.notices == (
        "1 row is left out: all cells are empty.",
        "Left out: 1 of 4 rows without a text.",
    )
    with pytest.raises(DataError, match=r"row 4 \(line 6\), column 'gold': 'x' is not a number"):
        load_file("a.csv", rows.replace("four,4", "four,x"), skip_empty=True, gold_column="gold")
    whole = "text\none\ntwo\n"
    plain = load_file("a.csv", whole)
    assert load_file("a.csv", whole, skip_empty=True).content == plain.content


def test_equal_texts_are_judged_once_if_asked_to() -> None:
    rows = "id,text,g\na,x,1\nb,y,2\nc,x,3\nd,y,4\n"
    data = load_file("a.csv", rows, merge_duplicates=True, gold_column="g")
    assert (list(data.ids), data.texts) == (["a", "b"], ["x", "y"])
    assert_array_equal(data.gold, [1, 2])
    (notice,) = data.notices
    assert notice.endswith("and are judged once with it (--merge-duplicates): 2 texts for 4 rows.")
    assert data.content == load_file("a.csv", "id,text\na,x\nb,y\n").content
    (notice,) = load_file("a.csv", rows).notices
    assert notice.startswith("2 of 4 texts repeat an earlier one, and each is judged as an item")


GOLD = "id,text,gold\n" + "".join(f"i{n},text {n},{n % 3}\n" for n in range(60))


def test_a_sample_is_as_a_file_of_its_items() -> None:
    data = load_file("a.csv", GOLD, gold_column="gold", sample=5)
    rows = [int(name[1:]) for name in data.ids]
    assert_array_equal(data.gold, [row % 3 for row in rows])
    assert data.gold_kind == "ordinal"
    assert data.notices == ("5 of 60 items only (--sample 5, by --seed 0).",)
    header, *lines = GOLD.splitlines(keepends=True)
    own = load_file("b.csv", header + "".join(lines[row] for row in rows), gold_column="gold")
    assert (own.content, own.labels) == (data.content, data.labels)
    numbered = load_file("a.csv", "text\n" + "".join(f"t{n}\n" for n in range(50)), sample=5)
    assert numbered.texts == [f"t{row}" for row in numbered.ids]
    linear = load(DatasetSpec(dataset="synthetic:linear", n=50, sample=4))
    assert linear.content.startswith("synthetic:linear n=50 rows=")
    assert len(linear) == 4
    whole = load(DatasetSpec(dataset="synthetic:linear", n=50, sample=50))
    assert whole.content == "synthetic:linear n=50"


def test_other_columns_are_kept_if_asked_to() -> None:
    rows = ",id,text,g,who\n0,a,x,1,Ann\n1,b,y,2,\n2,c,z,3,Bob\n"
    data = load_file("a.csv", rows, gold_column="g", keep_columns=True)
    assert data.columns == {"who": ["Ann", "", "Bob"]}
    part = load_file("a.csv", rows, gold_column="g", keep_columns=True, sample=2)
    who = dict(zip("abc", ["Ann", "", "Bob"], strict=True))
    assert part.columns == {"who": [who[name] for name in part.ids]}
    plain = load_file("a.csv", rows, gold_column="g")
    assert (plain.columns, plain.content) == ({}, data.content)
    lines = '{"text":"a","m":{"n":[1]}}\n{"text":"b"}'
    assert load_file("a.jsonl", lines, keep_columns=True).columns == {"m.n": [[1], None]}


def test_other_columns_stand_in_scores_csv(tmp_path: Path) -> None:
    rows = "id,text,who,rank\n" + "".join(f"i{n},text {n},=A{n},{n}\n" for n in range(12))
    Path("a.csv").write_text(rows)
    flags = ("run", "-d", "a.csv", "--latent-column", "rank", "-s", "listwise5x1")
    judgeq(tmp_path, *flags)
    run = only_run(tmp_path)
    assert not {"who", "data_rank"} & score_columns(run).keys()
    judgeq(tmp_path, *flags, "--keep-columns")
    there = score_columns(run)
    for name, who, rank in zip(there["id"], there["who"], there["data_rank"], strict=True):
        assert (who, rank) == (f"'=A{name[1:]}", name[1:])


def on_stdin(monkeypatch: pytest.MonkeyPatch, data: str | bytes) -> None:
    raw = data.encode() if isinstance(data, str) else data
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


@pytest.mark.parametrize(
    ("content", "settings"),
    [
        ("One\nTwo\n", {"no_header": True}),
        ("id,text,how urgent is it in words\n1,One,x\n2,Two,y\n", {}),
        ("id;text\na;One\nb;Two\n".encode("utf-16"), {}),
        ("1,One\n2,Two\n", {"no_header": True, "text_column": "2"}),
        ('[{"text":"One"},\n{"text":"Two"}]', {}),
        ('\ufeff\n {"text":"One"}\n{"text":"Two"}\n', {}),
        ("excel", {}),
    ],
)
def test_standard_input_in_the_format_that_it_looks_like(
    content: str | bytes, settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    on_stdin(monkeypatch, sheet(["text"], ["One"], ["Two"]) if content == "excel" else content)
    data = load(DatasetSpec.model_validate({"dataset": "-", **settings}))
    assert (data.name, data.texts) == ("stdin", ["One", "Two"])
    on_stdin(monkeypatch, "Hello\nthere, you\n")
    assert load(DatasetSpec(dataset="-", no_header=True)).texts == ["Hello", "there, you"]


def test_what_is_wrong_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, message in (
        (b"", "standard input is empty"),
        (b"who,body\n1,a\n", "no column 'text'; it has 'who', 'body'.*--no-header"),
        (b"text\na\n ,b\n", r"standard input, row 2 \(line 3\): too many fields"),
        (b"t\xe4xt\na\n", "standard input, line 1, byte 2"),
    ):
        on_stdin(monkeypatch, content)
        with pytest.raises(DataError, match=message):
            load(DatasetSpec(dataset="-"))
    on_stdin(monkeypatch, "")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(UsageError, match="nothing is given there: judgeq"):
        load(DatasetSpec(dataset="-"))


def test_a_run_of_standard_input_goes_on_when_it_is_given_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = Settings(dataset="-", gold_column="gold", strategy="listwise10x3")

    def stop(event: Event) -> None:
        if isinstance(event, RoundRated):
            raise StoppedError("stopped for the test")

    on_stdin(monkeypatch, GOLD)
    prepared = session.prepare(settings, tmp_path)
    with pytest.raises(StoppedError):
        session.execute(prepared, stop)
    folder = prepared.folder
    kept = b"".join(path.read_bytes() for path in folder.path.iterdir())
    assert b"text 7" not in kept
    with pytest.raises(RunError, match=r"are not kept.*judgeq resume .* --dataset - < FILE"):
        session.resume(folder, {})
    on_stdin(monkeypatch, GOLD.replace("text 7", "another"))
    with pytest.raises(RunError, match="its dataset changed"):
        session.resume(folder, {"dataset": "-"})
    on_stdin(monkeypatch, GOLD)
    assert session.prepare(settings, tmp_path).folder == folder
    (tmp_path / "a.csv").write_text(GOLD, encoding="utf-8")
    assert session.resume(folder, {"dataset": "a.csv"}).dataset.source.endswith("a.csv")
    on_stdin(monkeypatch, GOLD)
    result = session.execute(session.resume(folder, {"dataset": "-"}), lambda event: None)
    assert not result.partial


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
    tables = ["text,g,x\nt,{}\nu,{}\n".format(*pair.split()) for pair in numbers]
    both = {"gold_column": "g", "latent_column": "x"}
    data = [load_file("a.csv", table, **both) for table in tables]
    one: list[dict[str, str]] = [{"gold_column": "g"}, {"latent_column": "g"}, {}]
    data += [load_file("a.csv", tables[0], **some) for some in one]
    assert len({each.labels for each in data}) == len(data)
    assert len({each.content for each in data}) == 1


def test_content_and_labels_stay_the_same_from_version_to_version() -> None:
    """Run ids derive from them: a change here makes every user's runs start anew."""
    data = load_file("a.csv", "text,g,x\nä,1,5\ny,,6\nz,0,7\n", gold_column="g", latent_column="x")
    assert data.content[:12] == "edec5af47706"
    assert data.labels[:12] == "8a0c92fd5b1e"
    named = load_file("a.csv", "text,i\nä,b\ny,ü\n", id_column="i")
    assert named.content[:12] == "64e9a348f982"


# Corpora that are known


def test_labels_of_babe_stand_in_for_its_texts() -> None:
    data = load(DatasetSpec(dataset="babe"))
    gold = np.asarray(data.gold)
    assert (len(data), data.texts, data.gold_kind, data.prompt) == (3674, None, "binary", "bias")
    assert ((gold == 1).sum(), (gold == 0).sum(), np.isnan(gold).sum()) == (1810, 1863, 1)
    assert ("labels only" in data.notices[0], "no licence" in data.notices[1]) == (True, True)
    for told in ("final_labels_SG2.csv", "https://", "sha256 c02ebe", "--data-dir", "cache"):
        assert told in data.missing_texts


def test_without_labels_missing_texts_are_an_error() -> None:
    with pytest.raises(DataError, match=r"us_vs_them are not .* \(JUDGEQ_OFFLINE is set\).*461d07"):
        load(DatasetSpec(dataset="us_vs_them"))
    with pytest.raises(DataError, match="The texts of babe are not on this machine"):
        load(DatasetSpec(dataset="babe", latent_column="x"))


@pytest.mark.skipif(
    not (SHARED / "data").is_dir(), reason="the corpora may not be shipped and are not at ../shared"
)
def test_babe_itself_agrees_with_its_labels() -> None:
    data = load(DatasetSpec(dataset="babe", data_dir=SHARED / "data"))
    assert len(data.texts or ()) == 3674
    assert data.missing_texts == ""
    without = load(DatasetSpec(dataset="babe"))
    assert_array_equal(data.gold, without.gold)
    assert (data.content, data.labels) == (without.content, without.labels)


CORPUS = b"body;y;z\none;1;k\ntwo;2;\n"
TOML = """
title = "Mini"
description = "Two texts."
licence = "MIT"
citation = "none"
notice = "Be kind."
file = "mini.csv"
delimiter = ";"
sha256 = "{sha256}"
text_column = "body"
gold_column = "y"
gold_kind = "ordinal"
gold_meaning = "how much"
subsets = {{ marked = ["z", "k"] }}
"""


@pytest.fixture
def mini(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shipped folder with the one corpus "mini"; its file is not there yet."""
    folder = tmp_path / "shipped" / "mini"
    folder.mkdir(parents=True)
    sha256 = hashlib.sha256(CORPUS).hexdigest()
    (folder / "dataset.toml").write_text(TOML.format(sha256=sha256))
    monkeypatch.setattr(files, "shipped", lambda kind: folder.parent)
    return folder


@pytest.mark.parametrize(
    "place", ["own/mini.csv", "shipped/mini/mini.csv", "datasets/mini/mini.csv"]
)
def test_where_a_corpus_is_found(place: str, mini: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_bytes(CORPUS)
    data = load(DatasetSpec(dataset="mini", data_dir=Path("own")))
    assert (data.source, data.texts) == (str(tmp_path / place), ["one", "two"])
    assert_array_equal(data.gold, [1, 2])
    assert_array_equal(data.subsets["marked"], [True, False])
    told = (data.gold_kind, data.gold_meaning, data.notices)
    assert told == ("ordinal", "how much", ("Be kind.",))
    info = catalog(tmp_path / "own")[0]
    assert (info.name, info.where, info.size) == ("mini", tmp_path / place, len(CORPUS))


def test_a_wrong_file_is_never_taken_for_the_corpus(mini: Path) -> None:
    (mini / "mini.csv").write_bytes(CORPUS + b"x")
    with pytest.raises(DataError, match=r"mini\.csv is not the file.*`--dataset .*mini\.csv`"):
        load(DatasetSpec(dataset="mini"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("title =", "titel =", "title: Field required; titel: Extra inputs"),
        ('"Mini"', "Mini", "is no valid TOML"),
        ('kind = "ordinal"', 'kind = "nominal"', "gold_kind: Input should be"),
    ],
)
def test_a_broken_dataset_toml(old: str, new: str, message: str, mini: Path) -> None:
    toml = mini / "dataset.toml"
    toml.write_text(toml.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        load(DatasetSpec(dataset="mini"))


BODY = b"body;y;z\n" + b"".join(b"text %d;1;k\n" % row for row in range(20_000))
SHA256 = hashlib.sha256(BODY).hexdigest()
BODIES = {"wrong": b"x" * len(BODY), "long": BODY * 2}


async def faulty(request: web.Request) -> web.StreamResponse:
    """Answer a path that is named after what goes wrong."""
    fault = request.path.rpartition("/")[2]
    if fault == "missing":
        raise web.HTTPNotFound
    if fault == "redirect":
        raise web.HTTPFound("good")
    if fault not in ("silent", "stall", "truncated", "garbage"):
        return web.Response(body=BODIES.get(fault, BODY))
    begun = web.StreamResponse(headers={"Content-Length": str(len(BODY))})
    assert request.transport is not None
    if fault == "garbage":
        request.transport.write(b"nonsense\r\n\r\n")
    elif fault != "silent":
        await begun.prepare(request)
        await begun.write(BODY[:100])
    if fault in ("silent", "stall"):
        await asyncio.sleep(LONGEST)
    request.transport.close()
    return begun


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("JUDGEQ_OFFLINE")
    with serving(faulty) as url:
        yield url


def get(url: str, target: Path) -> str:
    return fetch(url, target, sha256=SHA256, size=len(BODY), timeout=0.3)


@pytest.mark.parametrize("path", ["good", "redirect"])
def test_the_right_file_is_put_in_place(path: str, server: str, tmp_path: Path) -> None:
    target = tmp_path / "new" / "folder" / "f.csv"
    assert get(f"{server}/{path}", target) == ""
    assert target.read_bytes() == BODY
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("silent", r"127\.0\.0\.1:\d+ can't be reached: .*timed out"),
        ("missing", "404"),
        ("stall", "timed out"),
        ("truncated", "gave another file"),
        ("wrong", "gave another file"),
        ("long", "gave another file"),
        ("garbage", "can't be reached"),
    ],
)
def test_why_a_file_cannot_be_had(path: str, why: str, server: str, tmp_path: Path) -> None:
    assert re.search(why, get(f"{server}/{path}", tmp_path / "f.csv"))
    assert list(tmp_path.iterdir()) == []


def test_load_downloads_once(server: str, mini: Path, tmp_path: Path) -> None:
    about = f'url = "{server}/good"\nsize = {len(BODY)}\n'
    (mini / "dataset.toml").write_text(TOML.format(sha256=SHA256) + about)
    data = load(DatasetSpec(dataset="mini"))
    assert data.source == str(tmp_path / "cache/datasets/mini/mini.csv")
    assert len(data) == 20_000
    again = load(DatasetSpec(dataset="mini"), download=False)
    assert (again.source, again.content) == (data.source, data.content)


@pytest.mark.parametrize(
    "change",
    [
        lambda xml: xml[: len(xml) // 2],
        lambda xml: xml.replace(b'"inlineStr"><is><t>id</t></is>', b'"s"><v>99</v>'),
        lambda xml: xml.replace(b'<c r="', b'<c r="!'),
    ],
)
def test_a_broken_workbook_is_refused_in_words(change: Callable[[bytes], bytes]) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["text", "id"], ["one", "1"], ["two", "2"]):
        book.worksheets[0].append(row)
    whole = io.BytesIO()
    book.save(whole)
    broken = io.BytesIO()
    with ZipFile(whole) as parts, ZipFile(broken, "w") as copy:
        for name in parts.namelist():
            part = parts.read(name)
            copy.writestr(name, change(part) if name == "xl/worksheets/sheet1.xml" else part)
    with pytest.raises(DataError, match=NO_WORKBOOK):
        load_file("a.xlsx", broken.getvalue())
