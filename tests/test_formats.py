"""Files that people have, as their programs write them: golden cases, and what is wrong with them."""

from __future__ import annotations

import gzip
import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from judgeq.datasets import Dataset, DatasetSpec, formats, load
from judgeq.errors import DataError, UsageError
from tests.cli import judgeq, only_run, score_columns

TEXTS = ["Wann kommt die Rechnung?", 'Er sagt: "nie"; ich warte', "Danke"]


def load_file(name: str, content: str | bytes, **settings: object) -> Dataset:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return load(DatasetSpec.model_validate({"dataset": name, **settings}))


Rows = list[list[object]]


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


@pytest.fixture(autouse=True)
def _there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


# As programs write them

GERMAN_EXCEL = (
    'Nr;text;Note\r\n1;Wann kommt die Rechnung?;1,5\r\n2;"Er sagt: ""nie""; ich warte";2,25\r\n'
    "3;Danke;\r\n"
).encode("windows-1252")
R = (
    b'"","text","Note"\n"1","Wann kommt die Rechnung?",1.5\n'
    b'"2","Er sagt: ""nie""; ich warte",2.25\n"3","Danke",NA\n'
)
PANDAS = (
    b",text,Note\n0,Wann kommt die Rechnung?,1.5\n"
    b'1,"Er sagt: ""nie""; ich warte",2.25\n2,Danke,NaN\n'
)
POSTGRES = b"text|Note\nWann kommt die Rechnung?|1.5\n" + (
    b'"Er sagt: ""nie""; ich warte"|2.25\nDanke|NULL\n'
)
SPSS = b"text\tNote\nWann kommt die Rechnung?\t1.5\n" + (
    b'"Er sagt: ""nie""; ich warte"\t2.25\nDanke\t.\n'
)
JSON = rb"""[
  {"text": "Wann kommt die Rechnung?", "Note": 1.5},
  {"text": "Er sagt: \"nie\"; ich warte", "Note": 2.25},
  {"text": "Danke", "Note": null}
]"""
NO_HEADER = "\n".join(POSTGRES.decode().replace("|", "\t").splitlines()[1:])


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("excel.csv", GERMAN_EXCEL, {}),
        ("r.csv", R, {}),
        ("pandas.csv", PANDAS, {}),
        ("postgres.csv", POSTGRES, {}),
        ("spss.tsv", SPSS, {}),
        ("a.json", JSON, {}),
        ("a.jsonl", JSON, {}),
        ("a.csv.gz", gzip.compress(R), {}),
        ("a.JSONL.GZ", gzip.compress(JSON.replace(b"\n", b" ")), {}),
        ("none.tsv", NO_HEADER, {"no_header": True, "text_column": "1", "gold_column": "2"}),
        ("columns.txt", SPSS, {}),
    ],
)
def test_a_file_that_people_have(name: str, content: bytes, settings: dict[str, object]) -> None:
    data = load_file(name, content, **{"gold_column": "Note", **settings})
    assert data.texts == TEXTS
    assert_array_equal(data.gold, [1.5, 2.25, np.nan])
    assert (list(data.ids), data.notices) == (["0", "1", "2"], ())
    assert data.name == name.split(".", maxsplit=1)[0]


def test_an_excel_file() -> None:
    header: list[object] = ["ID", "text", "Note", None, "2020"]
    rows: Rows = [
        [1, TEXTS[0], 1.5],
        ["b", TEXTS[1], 2.25],
        [None],
        [3, TEXTS[2], None],
    ]
    data = load_file("a.xlsx", sheet(header, *rows), id_column="ID", gold_column="Note")
    assert (list(data.ids), data.texts) == (["1", "b", "3"], TEXTS)
    assert_array_equal(data.gold, [1.5, 2.25, np.nan])
    bare = load_file("b.xlsx", sheet(*(row[:2] for row in rows)), no_header=True, text_column="2")
    assert bare.texts == TEXTS
    with pytest.raises(DataError, match=r"row 2 \(line 3\), column 'text': expected text, got 7"):
        load_file("c.xlsx", sheet(["text"], ["a"], [7]))


def test_a_formula_is_not_run_and_scribbles_beside_the_table_are_not_read() -> None:
    def scribble(book: Any) -> None:
        book.active.cell(formats.MOST_ROWS, 16_384, "x")
        book.create_sheet("other").append(["text"])

    assert load_file("a.xlsx", sheet(["text"], ["a"], ["b"], more=scribble)).texts == ["a", "b"]
    with pytest.raises(DataError, match=r"row 2 .*the text is empty"):
        load_file("b.xlsx", sheet(["text", "n"], ["a", 1], ["=1+1", 2]))


def test_an_excel_file_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(UsageError, match=r"pip install 'judgeq\[excel\]'"):
        load_file("a.xlsx", b"PK\x03\x04")


def test_what_unpacks_to_more_than_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    long: Rows = [[f"{n}{'a' * 30_000}"] for n in range(9)]
    book = sheet(["text"], *long)
    monkeypatch.setattr(formats, "LARGEST", 50_000)
    for name, content in (("a.csv.gz", gzip.compress(b"text\n" * 20_000)), ("a.xlsx", book)):
        assert len(content) < 50_000
        with pytest.raises(DataError, match=rf"{name} unpacks to more than"):
            load_file(name, content)


@pytest.mark.parametrize("damage", ["cut", "not a book", "no xml"])
def test_a_broken_excel_file_is_a_sentence(damage: str) -> None:
    content = sheet(["text"], ["a"], ["b"])
    if damage == "cut":
        content = content[: len(content) // 2]
    else:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as parts, zipfile.ZipFile(io.BytesIO(content)) as old:
            for name in old.namelist() if damage == "no xml" else ["x"]:
                parts.writestr(name, b"<" if "sheet1" in name or name == "x" else old.read(name))
        content = file.getvalue()
    with pytest.raises(DataError, match=r"a\.xlsx can't be read as an Excel file"):
        load_file("a.xlsx", content)


def test_a_broken_gz_file_is_a_sentence() -> None:
    for content in (b"text\na\nb\n", gzip.compress(b"text\na\nb\n")[:-9]):
        with pytest.raises(DataError, match=r"a\.csv\.gz can't be unpacked"):
            load_file("a.csv.gz", content)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04....", r"is an Excel file, .* ends in \.xlsx"),
        (b"\xd0\xcf\x11\xe0...", r"is an Excel file of the old kind.* Save it as \.xlsx"),
        (gzip.compress(R), r"is compressed, .* ends in \.csv\.gz"),
        (b"PAR1...", r"is a Parquet file, .* ends in \.parquet"),
    ],
)
def test_another_file_under_the_name_of_a_csv(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_file("a.csv", content)


# A text a line, and JSON


def test_a_text_a_line() -> None:
    data = load_file("a.txt", 'One, two.\r\n\n  Three; "four\n{five}\n')
    assert data.texts == ["One, two.", 'Three; "four', "{five}"]
    assert list(data.ids) == ["0", "1", "2"]
    assert load_file("a.json", '["One", "two"]').texts == ["One", "two"]


@pytest.mark.parametrize(
    ("content", "settings", "texts"),
    [
        ("One, two.\nThree\n", {}, ["One, two.", "Three"]),
        ("Hello\nthere, you\n", {"no_header": True}, ["Hello", "there, you"]),
        ("id,text,how urgent is it in words\n1,One,x\n2,Two,y\n", {}, ["One", "Two"]),
        ("1,One\n2,Two\n", {"no_header": True, "text_column": "2"}, ["One", "Two"]),
        ('[{"text":"One"},\n{"text":"Two"}]', {}, ["One", "Two"]),
    ],
)
def test_standard_input_in_the_format_that_it_looks_like(
    content: str, settings: dict[str, object], texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
    assert load(DatasetSpec.model_validate({"dataset": "-", **settings})).texts == texts


def test_an_excel_file_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(sheet(["text"], ["a"], ["b"]))))
    assert load(DatasetSpec(dataset="-")).texts == ["a", "b"]


def test_a_column_within_objects() -> None:
    lines = '{"meta":{"text":"one","n":{"g":1}}}\n{"meta":{"text":"two","n":{"g":2}},"meta.x":5}'
    data = load_file("a.jsonl", lines, text_column="meta.text", gold_column="meta.n.g")
    assert data.texts == ["one", "two"]
    assert_array_equal(data.gold, [1, 2])
    with pytest.raises(DataError, match=r"it has 'meta\.text', 'meta\.n\.g'\."):
        load_file("a.jsonl", lines)
    deep = '{"a":' * 900 + "1" + "}" * 900
    assert load_file("a.jsonl", f'{{"text":"a","x":{deep}}}\n{{"text":"b"}}').texts == ["a", "b"]


# Columns and rows


@pytest.mark.parametrize(
    ("header", "command"),
    [
        ("ID,content,label", "--text-column content --id-column ID --gold-column label"),
        ("Body", "--text-column Body"),
        ("my text,Message ", "--text-column 'Message '"),
    ],
)
def test_columns_that_nearly_fit_come_in_a_command(header: str, command: str) -> None:
    with pytest.raises(DataError) as caught:
        load_file(
            "my data.csv", f"{header}\n1,a,x\n2,b,y\n".replace("Body\n1,a,x\n2,b,y", "Body\na\nb")
        )
    assert str(caught.value).endswith(f"Try: judgeq run --dataset 'my data.csv' {command}")


@pytest.mark.parametrize(
    ("content", "flags"),
    [
        ("1,The server is down since noon\n2,Thanks\n", "--no-header --text-column 2"),
        ("The server is down since noon\nThanks\n", "--no-header"),
    ],
)
def test_a_file_without_header_is_named_as_such(content: str, flags: str) -> None:
    with pytest.raises(DataError, match=rf"looks like a row: .* add {flags}\.") as caught:
        load_file("a.csv", content)
    words = str(caught.value).split(" add ")[1].split(".")[0].split()
    named = {"text_column": words[2]} if len(words) > 1 else {}
    data = load_file("a.csv", content, no_header=True, **named)
    assert data.texts == ["The server is down since noon", "Thanks"]


@pytest.mark.parametrize(
    "content",
    [
        "1;0,5;Das ist eins\n2;1,5;Zwei, drei\n3;;Vier\n",
        '1,0.5,"Das; ist eins"\n2,1.5,"Zwei, drei"\n3,,Vier; 5\n',
        "1|0.5|Das ist eins\n2|1.5|Zwei, drei\n3||Vier\n",
    ],
)
def test_what_separates_rows_without_a_header(content: str) -> None:
    named = {"text_column": "3", "id_column": "1", "gold_column": "2"}
    data = load_file("a.csv", content, no_header=True, **named)
    assert list(data.ids) == ["1", "2", "3"]
    assert_array_equal(data.gold, [0.5, 1.5, np.nan])
    if ";0," in content:
        with pytest.raises(DataError, match=r"looks like a row: .* --no-header --text-column 3"):
            load_file("a.csv", content)


def test_decimal_commas_where_semicolons_separate() -> None:
    cells = "text;g\na;0,5\nb;1.5\nc;-2\n"
    assert_array_equal(load_file("a.csv", cells, gold_column="g").gold, [0.5, 1.5, -2])
    with pytest.raises(DataError, match=r"'1\.234,5' is not a number"):
        load_file("a.csv", cells.replace("0,5", "1.234,5"), gold_column="g")
    with pytest.raises(DataError, match="'0,5' is not a number"):
        load_file("a.csv", cells.replace(";", "\t"), gold_column="g")


def test_missing_gold_may_be_a_level_of_its_name() -> None:
    cells = "text,g\na,NA\nb,low\nc,null\n"
    assert_array_equal(
        load_file("a.csv", cells, gold_column="g", gold_levels=["low", "NA"]).gold, [1, 0, np.nan]
    )


def test_ids_with_gaps() -> None:
    (notice,) = load_file("a.csv", "id,text\nx,a\n,b\n,c\n").notices
    assert notice.endswith(
        "a.csv, row 2 (line 3), column 'id': the id is empty, so row numbers are the ids, "
        "not that column."
    )
    with pytest.raises(DataError, match="2 problems"):
        load_file("a.csv", "id,text\nx,a\n,b\n,c\n", id_column="id")


def test_equal_texts_are_judged_once_if_asked_to() -> None:
    rows = "id,text,g\na,x,1\nb,y,2\nc,x,3\nd,y,4\n"
    data = load_file("a.csv", rows, merge_duplicates=True, gold_column="g")
    assert (list(data.ids), data.texts) == (["a", "b"], ["x", "y"])
    assert_array_equal(data.gold, [1, 2])
    assert data.notices == (
        "2 of 4 texts repeat an earlier one, and are judged once with it (--merge-duplicates).",
    )
    assert data.content == load_file("a.csv", "id,text\na,x\nb,y\n").content


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


def test_a_sample_of_none_is_refused_in_words(tmp_path: Path) -> None:
    done = judgeq(tmp_path, "run", "-d", "demo", "--sample", "0", expect=2)
    assert "--sample 0: give 2 or more." in done.stderr
