"""Tables as other programs and people write them: each is read, or refused with what to do."""

import gzip
import io
import json
import zipfile
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import judgeq as package
from judgeq.config import Settings
from judgeq.datasets import Dataset, DatasetSpec, load, tables
from judgeq.errors import DataError, UsageError
from judgeq.imports import votes
from judgeq.settings.declaration import in_words
from tests.cli import judgeq, only_run, score_columns

ROWS: list[dict[str, Any]] = [{"id": f"m{n}", "text": f"message {n}", "label": n} for n in range(3)]
TEXTS = [str(row["text"]) for row in ROWS]


@pytest.fixture(autouse=True)
def _in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def load_file(name: str, content: str | bytes, **settings: object) -> Dataset:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return load(DatasetSpec.model_validate({"dataset": name, **settings}))


def assert_read(data: Dataset, gold: list[float] | None = None) -> None:
    assert data.texts == TEXTS
    assert list(data.ids) == ["m0", "m1", "m2"]
    if gold is not None:
        assert_array_equal(data.gold, gold)


def workbook(sheets: dict[str, list[list[object]]]) -> bytes:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def with_part(book: bytes, part: str, content: str) -> bytes:
    """The workbook with another content of one of its parts."""
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(book)) as old, zipfile.ZipFile(file, "w", 8) as new:
        for name in old.namelist():
            new.writestr(name, content if name == part else old.read(name))
    return file.getvalue()


# JSON


def test_nan_in_json_lines_is_no_label() -> None:
    lines = [
        json.dumps(row | {"label": float("nan")} if row["id"] == "m1" else row) for row in ROWS
    ]
    assert_read(load_file("a.jsonl", "\n".join(lines), gold_column="label"), [0, np.nan, 2])
    array = f"[{','.join(lines)}]"
    assert_read(load_file("a.json", array, gold_column="label"), [0, np.nan, 2])


def test_the_union_of_all_keys_is_the_columns() -> None:
    lines = [json.dumps({"id": "m0", "text": TEXTS[0]}), *map(json.dumps, ROWS[1:])]
    assert_read(load_file("a.jsonl", "\n".join(lines), gold_column="label"), [np.nan, 1, 2])


def columns_of_rows() -> dict[str, dict[str, Any]]:
    return {column: {str(n): row[column] for n, row in enumerate(ROWS)} for column in ROWS[0]}


PANDAS = {
    "columns": columns_of_rows(),
    "index": {str(n): row for n, row in enumerate(ROWS)},
    "split": {
        "columns": [*ROWS[0]],
        "index": [0, 1, 2],
        "data": [[*row.values()] for row in ROWS],
    },
    "table": {"schema": {"fields": []}, "data": ROWS},
    "list": {column: [row[column] for row in ROWS] for column in ROWS[0]},
    "ids as index": {
        "text": {row["id"]: row["text"] for row in ROWS},
        "label": {row["id"]: row["label"] for row in ROWS},
    },
    "wrapped": {"meta": {"version": 1}, "items": ROWS},
    "Hugging Face": {
        "features": [],
        "rows": [{"row_idx": n, "row": row, "truncated_cells": []} for n, row in enumerate(ROWS)],
    },
}


@pytest.mark.parametrize("shape", PANDAS)
@pytest.mark.parametrize("indent", [None, 2])
def test_one_json_object_that_is_a_table(shape: str, indent: int | None) -> None:
    content = json.dumps(PANDAS[shape], indent=indent)
    assert_read(load_file("a.json", content, gold_column="label"), [0, 1, 2])


def test_indented_objects_one_after_the_other() -> None:
    content = "\n".join(json.dumps(row, indent=2) for row in ROWS)
    assert_read(load_file("a.json", content, gold_column="label"), [0, 1, 2])


def test_one_json_object_of_which_it_is_not_clear_says_what_to_do() -> None:
    frame = {"body": {"x": "one", "y": "two"}, "note": {"x": 1, "y": 2}}
    with pytest.raises(DataError, match=r'to_json\(\)\. Write it with .*orient="records"'):
        load_file("a.json", json.dumps(frame))
    assert load_file("a.json", json.dumps(frame), text_column="body").texts == ["one", "two"]
    two_lists = {"train": ROWS, "test": ROWS}
    with pytest.raises(DataError, match="one JSON object, with 'train', 'test'"):
        load_file("a.json", json.dumps(two_lists))


def test_a_text_within_a_list_is_named_by_its_place() -> None:
    lines = [
        json.dumps({"id": row["id"], "messages": [{"role": "user", "content": row["text"]}]})
        for row in ROWS
    ]
    content = "\n".join(lines)
    assert_read(load_file("a.jsonl", content, text_column="messages.0.content"))
    with pytest.raises(DataError, match=r"--text-column 'messages\.0\.content'"):
        load_file("a.jsonl", content, text_column="messages")
    with pytest.raises(DataError, match=r"no column 'messages\.7\.content'"):
        load_file("a.jsonl", content, text_column="messages.7.content")


def test_advice_fits_the_format() -> None:
    with pytest.raises(DataError) as caught:
        load_file("a.jsonl", '{"body":"x"}\n{"body":"y"}')
    assert "--delimiter" not in str(caught.value)
    with pytest.raises(DataError, match="--no-header and --sheet") as caught:
        load_file("a.xlsx", workbook({"one": [["body"], ["x"], ["y"]]}))
    assert "--delimiter" not in str(caught.value)


# CSV


def test_the_separator_that_excel_writes_in_the_first_line() -> None:
    for line in ("sep=;", '"sep=;"', "SEP=;"):
        data = load_file("a.csv", f"{line}\nid;text\nm0;message 0, with a comma\nm1;two\n")
        assert data.texts == ["message 0, with a comma", "two"]
    with pytest.raises(DataError, match=r"row 2 \(line 4\): too many fields"):
        load_file("a.csv", "sep=;\nid;text\na;b\na;b;c\n")


def test_comments_are_left_out_if_they_are_named() -> None:
    content = '# exported\n#\nid,text\nm0,"one\n# within"\n# between\nm1,two\n'
    data = load_file("a.csv", content, comment="#")
    assert data.texts == ["one\n# within", "two"]
    with pytest.raises(DataError, match="--comment '#'"):
        load_file("a.csv", content)
    with pytest.raises(DataError, match="a comment, add --comment '#'"):
        load_file("a.csv", "# exported\nx\ny\n")
    with pytest.raises(DataError, match=r"row 2 \(line 6\): too few fields"):
        load_file("a.csv", "# exported\nid,text\n\na,b\n# x\nc\n", comment="#")
    assert load_file("a.txt", "# x\none\ntwo\n", comment="#").texts == ["one", "two"]


def test_escaped_quotation_marks_are_read_if_they_are_named() -> None:
    content = 'id,text\nm0,"He said \\"yes\\", then left"\nm1,"C:\\\\dir"\n'
    assert load_file("a.csv", content, escape="\\").texts == ['He said "yes", then left', "C:\\dir"]
    assert load_file("a.csv", content, escape="backslash").texts == [
        'He said "yes", then left',
        "C:\\dir",
    ]
    with pytest.raises(DataError, match=r"row 1 \(line 2\): broken quoting.*add --escape '\\'"):
        load_file("a.csv", content)


@pytest.mark.parametrize(
    ("name", "flag", "value"),
    [("a.csv", "sheet", "x"), ("a.jsonl", "comment", "#"), ("a.jsonl", "escape", "\\")],
)
def test_a_setting_of_another_format_is_an_error(name: str, flag: str, value: str) -> None:
    content = "text\nx\ny\n" if name == "a.csv" else '{"text":"x"}\n{"text":"y"}'
    with pytest.raises(UsageError, match=f"--{flag} is for"):
        load_file(name, content, **{flag: value})


def test_wholly_empty_rows_are_left_out_and_counted() -> None:
    data = load_file("a.csv", "text;g;h\none;1;\n;;;;;\n ; ;\ntwo;2;\n;;\n", gold_column="g")
    assert data.texts == ["one", "two"]
    assert list(data.ids) == ["0", "3"]  # as rows that --skip-empty leaves out keep their numbers
    assert data.notices == ("3 rows are left out: all cells are empty.",)
    lines = '{"text":"one","g":1}\n{"text":"","g":null}\n{"text":"two","g":2}'
    assert load_file("a.jsonl", lines).notices == ("1 row is left out: all cells are empty.",)
    with pytest.raises(DataError, match=r"row 2 \(line 3\), column 'text': the text is empty"):
        load_file("a.csv", "text,g\none,1\n,2\ntwo,3\n")


# Texts that are none


NO_TEXTS = ["NA", "n/a", "null", "None", "-", "#NAME?", "#WERT!"]


def test_texts_that_stand_for_none_are_named_and_left_out_if_asked_to() -> None:
    texts = ["one", "NA means not asked", "NA", *NO_TEXTS, "- a list"]
    content = "text,g\n" + "".join(f"{text},1\n" for text in texts)
    data = load_file("a.csv", content)
    assert len(data) == len(texts)
    (caution,) = data.cautions
    assert caution.startswith("8 of 11 texts hold only 'NA' (2 times), 'n/a', 'null'")
    assert caution.endswith("They are judged as texts; leave them out with --skip-empty.")
    skipped = load_file("a.csv", content, skip_empty=True)
    assert skipped.texts == ["one", "NA means not asked", "- a list"]
    assert skipped.cautions == ()
    (notice,) = skipped.notices
    assert notice.startswith("Left out: 8 of 11 rows, whose text is only 'NA' (2 times)")


@pytest.mark.parametrize(
    "text", ["\u200b", "\ufeff \u00ad", "\u2060\u200d\ufe0f", "\u3164", "\x07"]
)
def test_a_text_of_unseen_characters_is_empty(text: str) -> None:
    content = f"text,g\none,1\n{text},2\ntwo,3\n"
    with pytest.raises(DataError, match=r"row 2 .*the text is empty.*--skip-empty"):
        load_file("a.csv", content)
    assert load_file("a.csv", content, skip_empty=True).texts == ["one", "two"]


def test_what_is_judged_in_place_of_a_text_is_said_before_it_is_paid(tmp_path: Path) -> None:
    Path("a.csv").write_text("text\none\ntwo\nNA\nn/a\n")
    said = "2 of 4 texts hold only 'NA', 'n/a'. They are judged as texts"
    price = ("--base-url", "http://127.0.0.1:9/v1", "--price", "1,4", "--judge", "m")
    estimate = judgeq(tmp_path, "estimate", "-d", "a.csv", "--feature", "x", *price)
    assert said in " ".join(estimate.stdout.split())
    run = judgeq(tmp_path, "run", "-d", "a.csv", "--feature", "x")
    assert said in " ".join(run.stderr.split())


def test_words_for_no_label_among_numbers() -> None:
    cells = "".join(
        f"t{n},{cell}\n" for n, cell in enumerate(["1", "n/a", "N/A", "-", "#N/A", "2"])
    )
    data = load_file("a.csv", f"text,g\n{cells}", gold_column="g")
    assert_array_equal(data.gold, [1, np.nan, np.nan, np.nan, np.nan, 2])
    with pytest.raises(DataError, match=r"'x' is not a number.*2 of 3 labels are numbers: correct"):
        load_file("a.csv", "text,g\na,1\nb,x\nc,2\n", gold_column="g")


# Excel


def test_a_sheet_is_chosen_by_its_name() -> None:
    book = workbook({"old": [["text"], ["a"], ["b"]], "new": [["text"], ["c"], ["d"]]})
    assert load_file("a.xlsx", book).texts == ["a", "b"]
    assert load_file("a.xlsx", book, sheet="new").texts == ["c", "d"]
    with pytest.raises(
        UsageError, match=r"no sheet 'nwe'; it has 'old', 'new'\. Did you mean 'new'"
    ):
        load_file("a.xlsx", book, sheet="nwe")


def test_characters_that_excel_escapes_are_read_as_they_are() -> None:
    rows: list[list[object]] = [
        ["text"],
        ["one_x000D_\ntwo"],
        ["_x005F_x000D_"],
        ["_xD83D__xDE00_"],
    ]
    assert load_file("a.xlsx", workbook({"s": rows})).texts == ["one\r\ntwo", "_x000D_", "😀"]


def test_entities_in_a_workbook_are_refused() -> None:
    entity = '<!DOCTYPE x [<!ENTITY a "aaaa">]>'
    sheet = f'<?xml version="1.0"?><!-- first -->{entity}<worksheet/>'
    book = workbook({"s": [["text"], ["a"], ["b"]]})
    bomb = with_part(book, "xl/worksheets/sheet1.xml", sheet)
    with pytest.raises(DataError, match=r"declares XML entities, .*Save it anew"):
        load_file("a.xlsx", bomb)


def test_a_sheet_of_much_text_or_many_cells_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    texts: list[list[object]] = [["x" * 1000] for _ in range(100)]
    rows: list[list[object]] = [["text"], *texts]
    book = workbook({"s": rows})
    with monkeypatch.context() as limits:
        limits.setattr(tables, "LARGEST", 50_000)
        with pytest.raises(DataError, match="unpacks to more than 50,000 bytes"):
            load_file("a.xlsx", book)
    monkeypatch.setattr(tables, "UNPACKED_CELLS", 50)
    with pytest.raises(DataError, match="unpacks to more than 50 cells"):
        load_file("a.xlsx", book)


# Parquet and gzip


def write_parquet(name: str, columns: dict[str, Any], **how: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table(columns), name, **how)


def load_parquet(name: str, **settings: object) -> Dataset:
    return load(DatasetSpec.model_validate({"dataset": name, **settings}))


def test_texts_within_structs_and_lists_of_parquet() -> None:
    nested = [{"text": text, "turns": [{"content": text}]} for text in TEXTS]
    write_parquet("a.parquet", {"id": ["m0", "m1", "m2"], "meta": nested})
    assert_read(load_parquet("a.parquet", text_column="meta.text"))
    assert_read(load_parquet("a.parquet", text_column="meta.turns.0.content"))
    with pytest.raises(DataError, match=r"it has 'id', 'meta\.text', 'meta\.turns'"):
        load_parquet("a.parquet", text_column="text")


def test_decimal_labels_and_ids_of_parquet() -> None:
    columns = {"id": [Decimal(n) for n in range(3)], "text": TEXTS, "g": [*map(Decimal, "012")]}
    write_parquet("a.parquet", columns)
    data = load_parquet("a.parquet", gold_column="g", id_column="id")
    assert_array_equal(data.gold, [0, 1, 2])
    assert list(data.ids) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("text", ["x" * 1000] * 100),
        ("m.text", [{"text": "x" * 1000}] * 100),
        ("m.0", [["x" * 1000]] * 100),
    ],
)
def test_a_small_parquet_file_of_much_text_is_refused(
    column: str, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet("a.parquet", {column.split(".", maxsplit=1)[0]: values})
    assert Path("a.parquet").stat().st_size < 5_000
    monkeypatch.setattr(tables, "LARGEST", 50_000)
    with pytest.raises(DataError, match="unpacks to more than 50,000 bytes"):
        load_parquet("a.parquet", text_column=column)


def test_a_parquet_file_that_says_that_it_unpacks_to_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [f"{n} {'x' * 10_000}" for n in range(20)]
    write_parquet("a.parquet", {"text": texts, "n": range(20)}, use_dictionary=False)
    monkeypatch.setattr(tables, "_decoded_columns", None)  # nothing is decoded
    monkeypatch.setattr(tables, "LARGEST", 50_000)
    with pytest.raises(DataError, match="unpacks to more than 50,000 bytes"):
        load_parquet("a.parquet")
    monkeypatch.setattr(tables, "UNPACKED_ROWS", 10)
    with pytest.raises(DataError, match="unpacks to more than 10 rows"):
        load_parquet("a.parquet")


def test_a_gzipped_file_of_very_many_lines_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "UNPACKED_LINES", 100)
    for name, content in (("a.csv.gz", b"text\n" * 200), ("b.txt.gz", b"\r" * 200)):
        with pytest.raises(DataError, match="unpacks to more than 100 lines"):
            load_file(name, gzip.compress(content))
    monkeypatch.setattr(tables, "UNPACKED_ROWS", 10)
    with pytest.raises(DataError, match="unpacks to more than 10 rows"):
        load_file("c.csv.gz", gzip.compress(b"text\n" + b"x\n" * 20))
    array = json.dumps(["x"] * 20).encode()
    for characters in (10, 1_000_000):  # an element at a time, and whole
        monkeypatch.setattr(tables, "STREAMED_CHARACTERS", characters)
        with pytest.raises(DataError, match="unpacks to more than 10 rows"):
            load_file("d.json.gz", gzip.compress(array))
    monkeypatch.setattr(tables, "UNPACKED_LINE_BYTES", 30)
    with pytest.raises(DataError, match="more than 30 bytes in a line"):
        load_file("e.csv.gz", gzip.compress(b"text\n" + b"x," * 40 + b"\n"))
    assert load_file("e.csv", "text\n" + "x" * 40 + "\ny\n").texts == ["x" * 40, "y"]


def test_a_streamed_array_is_the_same_table(monkeypatch: pytest.MonkeyPatch) -> None:
    content = gzip.compress(json.dumps(ROWS, indent=1).encode())
    whole = load_file("a.json.gz", content)
    monkeypatch.setattr(tables, "STREAMED_CHARACTERS", 10)
    assert load_file("a.json.gz", content).content == whole.content
    with pytest.raises(DataError, match="the array doesn't end"):
        load_file("b.json.gz", gzip.compress(json.dumps(ROWS).encode()[:-1]))


def test_a_file_beyond_the_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise MemoryError

    monkeypatch.setattr(tables, "_csv_rows", full)
    with pytest.raises(DataError, match=r"a\.csv doesn't fit into this machine's memory"):
        load_file("a.csv", "text\nx\ny\n")


# Python


def test_an_index_of_pandas_is_the_ids() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(ROWS)
    assert_read(package.load_dataset(frame.set_index("id")))
    assert_read(package.load_dataset(frame.set_index("id")["text"]))
    named = frame.rename(columns={"id": "tweet"}).set_index("tweet")
    assert_read(package.load_dataset(named, id="tweet"))
    assert_read(package.load_dataset(named))
    assert list(package.load_dataset(frame["text"]).ids) == ["0", "1", "2"]
    part = frame[frame.label > 0]
    assert list(package.load_dataset(part).ids) == ["m1", "m2"]  # a column of ids comes first
    assert list(package.load_dataset(part["text"]).ids) == ["1", "2"]


class HuggingFace:
    """What `datasets.Dataset` has of it."""

    column_names: Sequence[str] = ("id", "text", "label")

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, column: str) -> Any:
        return (row[column] for row in ROWS)  # as it may be a column that is only iterated over


def test_dicts_and_datasets_are_tables() -> None:
    assert_read(package.load_dataset(ROWS, gold="label"), [0, 1, 2])
    assert_read(package.load_dataset(HuggingFace(), gold="label"), [0, 1, 2])
    chats = [{"id": row["id"], "turns": [{"content": row["text"]}]} for row in ROWS]
    assert_read(package.load_dataset(chats, text="turns.0.content"))
    late: list[dict[str, Any]] = [{"id": "m0", "text": TEXTS[0]}, *ROWS[1:]]
    assert_read(package.load_dataset(late, gold="label"), [np.nan, 1, 2])


# Merged duplicates


def test_each_row_of_merged_texts_has_the_score_of_its_text(tmp_path: Path) -> None:
    Path("d.csv").write_text("id,text,g\na,x,1\nb,y,2\nc,x,3\nd,z,4\ne,y,2\n")
    flags = ("-d", "d.csv", "--gold-column", "g", "-s", "pairwise4", "--merge-duplicates")
    shown = judgeq(tmp_path, "run", *flags)
    assert "3 texts for 5 rows" in " ".join(shown.stderr.split())
    run = only_run(tmp_path)
    columns = score_columns(run)
    assert columns["id"] == ["a", "b", "c", "d", "e"]
    assert columns["gold"] == ["1.0", "2.0", "3.0", "4.0", "2.0"]
    for name in ("rank", "pl", "se", "text"):
        cells = columns[name]
        assert (cells[2], cells[4]) == (cells[0], cells[1]), name
    exported = judgeq(tmp_path, "export", "last", "--table", "scores").stdout.splitlines()
    assert [line.split(",")[1] for line in exported] == ["id", "a", "b", "c", "d", "e"]
    Path("d.csv").unlink()
    gone = judgeq(tmp_path, "show", "--write")
    assert "texts that were merged (--merge-duplicates) have one row" in " ".join(
        gone.stderr.split()
    )
    assert score_columns(run)["id"] == ["a", "b", "d"]


def test_a_data_frame_has_a_row_for_each_row(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    texts = {"a": "x", "b": "y", "c": "x"}
    how: dict[str, Any] = {"gold": [1, 2, 1], "strategy": "pairwise2", "progress": False}
    how |= {"settings": {"merge_duplicates": True}, "runs_dir": tmp_path}
    result = package.run(texts, **how)
    assert len(result.scores.ids) == 2
    frame = result.df.set_index("id")
    assert [*frame.index] == ["a", "b", "c"]
    assert frame["pl"]["c"] == frame["pl"]["a"]


def test_merged_rows_follow_a_sample_and_stay_in_their_group() -> None:
    content = "id,text,g\na,x,1\nb,y,1\nc,x,1\nd,z,1\ne,x,2\nf,w,2\ng,w,2\n"
    whole = load_file("a.csv", content, merge_duplicates=True, group_column="g")
    assert list(whole.ids) == ["a", "b", "d", "e", "f"]
    assert whole.rows is not None
    assert list(whole.rows.ids) == ["a", "b", "c", "d", "e", "f", "g"]
    assert_array_equal(whole.rows.item, [0, 1, 0, 2, 3, 4, 4])
    part = load_file("a.csv", content, merge_duplicates=True, sample=2)
    assert part.rows is not None
    assert [part.ids[item] for item in part.rows.item] == [
        {"c": "a", "e": "a", "g": "f"}.get(name, name) for name in part.rows.ids
    ]


def test_merged_rows_of_new_texts_next_to_settled_ones(tmp_path: Path) -> None:
    flags = ("-s", "pairwise4", "--latent-column", "g")
    Path("old.csv").write_text("id,text,g\n" + "".join(f"o{n},old {n},{n}\n" for n in range(8)))
    judgeq(tmp_path, "run", "-d", "old.csv", *flags)
    run = only_run(tmp_path)
    rows = "".join(f"n{n},new {n % 3},{n % 3}\n" for n in range(6))
    Path("new.csv").write_text(f"id,text,g\n{rows}x,old 2,2\n")
    judgeq(tmp_path, "run", "-d", "new.csv", *flags, "--merge-duplicates", "--onto", run.name)
    (second,) = {*(tmp_path / "runs").iterdir()} - {run}
    columns = score_columns(second)
    score = dict(zip(columns["id"], columns["pl"], strict=True))
    assert {"n0", "n5", "o7"} <= score.keys()
    assert (score["n3"], score["n4"]) == (score["n0"], score["n1"])


# For spreadsheets


@pytest.fixture
def handles(tmp_path: Path) -> Path:
    Path("d.csv").write_text("id,text,g\na,@ann hällo,1\nb,=1+1,2\nc,-x,3\n", encoding="utf-8")
    judgeq(tmp_path, "run", "-d", "d.csv", "--gold-column", "g", "-s", "pairwise2")
    return only_run(tmp_path)


def test_a_name_with_an_at_sign_stays_as_it_is(handles: Path) -> None:
    assert score_columns(handles)["text"] == ["@ann hällo", "'=1+1", "'-x"]


def test_csv_for_excel_has_a_mark_and_runs_nothing(tmp_path: Path, handles: Path) -> None:
    judgeq(tmp_path, "export", "last", "--for", "excel", "--out", "s.csv")
    written = Path("s.csv").read_bytes()
    assert written.startswith(b"\xef\xbb\xbfSIMULATED,id,")
    assert "'@ann hällo" in written.decode("utf-8-sig")
    plain = judgeq(tmp_path, "export", "last", "--table", "scores").stdout
    assert not plain.startswith("\ufeff")
    assert "hällo" not in plain


def test_an_excel_file_is_one_whose_texts_are_texts(tmp_path: Path, handles: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    judgeq(tmp_path, "export", "last", "--for", "excel", "--out", "s.xlsx")
    header, *rows = openpyxl.load_workbook("s.xlsx").active.iter_rows()
    text = [cell.value for cell in header].index("text")
    assert [row[text].value for row in rows] == ["@ann hällo", "=1+1", "-x"]
    assert {row[text].data_type for row in rows} == {"s"}


@pytest.mark.parametrize("suffix", ["csv", "xlsx", "parquet"])
def test_a_recording_is_not_written_under_another_formats_name(
    suffix: str, tmp_path: Path, handles: Path
) -> None:
    failed = judgeq(tmp_path, "export", "last", "--out", f"r.{suffix}", expect=2)
    assert "a recording is JSONL. Give --table scores" in " ".join(failed.stderr.split())
    assert not Path(f"r.{suffix}").exists()


# Votes

IDS = ["1", "2", "3"]
NAMES = votes.Columns(("a", "b"), "w", ties=())


def read_votes(content: str, columns: votes.Columns) -> tuple[list[Any], tuple[str, ...]]:
    Path("v.csv").write_text(content)
    recording = votes.read(Path("v.csv"), columns, IDS, None)
    found = [(one.presented, one.verdict.groups, one.judge) for one in recording.judgments]
    return found, recording.notices


def test_ids_that_became_floats_are_found() -> None:
    found, _ = read_votes("a,b,w\n1.0,2.0,1.0\n2.0,3.0,3.0\n", NAMES)
    assert [groups for _, groups, _ in found] == [((0,), (1,)), ((2,), (1,))]


def test_a_column_for_each_outcome() -> None:
    content = "a,b,wa,wb,tie\n1,2,1,0,0\n2,3,0.0,1.0,0\n1,3,0,0,1\n1,2,0,0,0\n"
    columns = NAMES._replace(best=None, outcomes=("wa", "wb", "tie"))
    found, notices = read_votes(content, columns)
    assert [groups for _, groups, _ in found] == [((0,), (1,)), ((2,), (1,)), ((0, 2),)]
    assert "without an answer were left out: 1" in notices[0]
    with pytest.raises(DataError, match="left and right are both marked"):
        read_votes("a,b,wa,wb,tie\n1,2,1,1,0\n", columns)
    with pytest.raises(DataError, match="--winner winner_a,winner_b,winner_tie"):
        read_votes("a,b,winner_a,winner_b,winner_tie\n1,2,1,0,0\n", NAMES)


def test_a_text_compared_with_itself_is_left_out_and_counted() -> None:
    found, notices = read_votes("a,b,w\n1,2,1\n3,3,3\n", NAMES)
    assert len(found) == 1
    assert "1 row that compares a text with itself is left out." in notices[0]


def test_a_column_of_winners_for_each_judge() -> None:
    content = "a,b,ann,gpt\n1,2,Text1,Text2\n2,3,Text1,\n"
    found, notices = read_votes(content, NAMES._replace(best=None, by_judge=("ann", "gpt")))
    assert found == [
        ((0, 1), ((0,), (1,)), "ann"),
        ((1, 2), ((1,), (2,)), "ann"),
        ((0, 1), ((1,), (0,)), "gpt"),
    ]
    assert "without an answer were left out: 1" in notices[0]


@pytest.mark.parametrize(
    ("word", "won"),
    [
        ("A is better", 0),
        ("model_b", 1),
        ("Text 2", 1),
        ("[[A]]", 0),
        ("B>A", 1),
        ("a<<b", 1),
        ("the second response is slightly better", 1),
        ("left wins.", 0),
    ],
)
def test_a_side_in_words(word: str, won: int) -> None:
    ((_, groups, _),), _ = read_votes(f"a,b,w\n1,2,{word}\n", NAMES)
    assert groups == ((won,), (1 - won,))


@pytest.mark.parametrize("word", ["A is worse", "A and B", "maybe a", "A>A"])
def test_a_side_that_is_not_clear_is_an_error(word: str) -> None:
    with pytest.raises(DataError, match="none of its texts"):
        read_votes(f"a,b,w\n1,2,{word}\n", NAMES)


def test_what_0_and_1_mean_has_to_be_said() -> None:
    ids = "a,b,w\n2,3,1\n2,3,0\n"
    with pytest.raises(DataError, match=r"--winner-is left-won .*--winner-is index"):
        read_votes(ids, NAMES)
    for says, first in (("left-won", 1), ("index", 2)):
        found, _ = read_votes(ids, NAMES._replace(says=says))  # type: ignore[arg-type]
        assert [groups[0][0] for _, groups, _ in found] == [first, 3 - first]


def test_an_import_has_a_name(tmp_path: Path) -> None:
    Path("t.csv").write_text("id,text\n1,x\n2,y\n")
    Path("v.csv").write_text("a,b,w\n1,2,1\n")
    flags = ("--left", "a", "--right", "b", "--winner", "w", "--name", "votes of May")
    judgeq(tmp_path, "import", "-d", "t.csv", "v.csv", *flags)
    assert "votes of May" in judgeq(tmp_path, "runs").stdout
    other = judgeq(tmp_path, "import", "-d", "t.csv", "v.csv", *flags, "--new", expect=2)
    assert "has that name" in other.stderr


# Very many names


def test_names_of_judges_are_numbered_in_one_pass() -> None:
    settings = Settings(dataset="demo", judge=("gpt-5",), persona=("p", "q", "p"))
    assert settings.judges == ("gpt-5 as p 1", "gpt-5 as q", "gpt-5 as p 2")
    many = Settings(dataset="demo", judge=("gpt-5",), persona=("p",) * 10_000)
    assert many.judges[-1] == "gpt-5 as p 10000"


def test_a_run_of_very_many_judges_is_refused() -> None:
    from pydantic import ValidationError

    with pytest.raises(ValidationError) as caught:
        Settings(dataset="demo", judge=("gpt-5",), persona=[f"p{n}" for n in range(100_000)])
    assert "more than 10,000 judges" in in_words(caught.value.errors()[0])
