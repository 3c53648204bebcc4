"""Tables as users have them: separators, encodings, empty texts, standard input, many mistakes."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from judgeq import run_places
from judgeq.config import Settings, deciding_facts, fingerprint, settle
from judgeq.datasets import Dataset, DatasetSpec, load
from judgeq.datasets.formats import delimiter_of
from judgeq.engine import session
from judgeq.errors import DataError, RunError, StoppedError, UsageError
from judgeq.events import Event, RoundRated
from tests.cli import judgeq

ROWS = "id;text;gold\nä;één;1\nb;deux, trois;2\n"


def load_file(folder: Path, name: str, content: str | bytes, **settings: object) -> Dataset:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return load(DatasetSpec.model_validate({"dataset": name, **settings}), base=folder)


# Separators


@pytest.mark.parametrize(
    ("header", "columns", "delimiter"),
    [
        ("id,text", {"text"}, ","),
        ("id;text", {"text"}, ";"),
        ("id\ttext\r\n", {"text"}, "\t"),
        ("text\n", {"text"}, ","),
        ("id;text,more", {"text"}, ","),
        ("id;text;score, from 0", {"text"}, ";"),
        ('"a,b";text', {"text"}, ";"),
        ('"a;b",text', {"text"}, ","),
        ("id;text\tmore", {"text"}, ","),  # which of the two can't be said
        ("id;text", {"id;text"}, ","),  # one column of this name was asked for
    ],
)
def test_what_separates_columns_is_seen_in_the_header(
    header: str, columns: set[str], delimiter: str
) -> None:
    assert delimiter_of([header], columns) == delimiter


@pytest.mark.parametrize(
    ("name", "mark", "given"),
    [
        *(("a.csv", ";", None), ("a.csv", "\t", None), ("a.csv", "|", "|"), ("a.csv", "\t", "tab")),
        *(("a.tsv", ";", ";"), ("a.csv", "\t", "\\t"), ("a.csv", ";", ";")),
    ],
)
def test_separators_give_the_same_items(
    tmp_path: Path, name: str, mark: str, given: str | None
) -> None:
    data = load_file(tmp_path, name, ROWS.replace(";", mark), delimiter=given, gold_column="gold")
    assert (list(data.ids), data.texts) == (["ä", "b"], ["één", "deux, trois"])
    usual = load_file(tmp_path, "b.csv", 'id,text\nä,één\nb,"deux, trois"\n')
    assert data.content == usual.content


@pytest.mark.parametrize("delimiter", ["", ";;", '"', "\n"])
def test_a_delimiter_is_one_character(delimiter: str) -> None:
    with pytest.raises(UsageError, match=r"(?s)--delimiter.*give one character"):
        settle({"dataset": "a.csv", "delimiter": delimiter})


# Encodings


@pytest.mark.parametrize(
    ("encoding", "given"),
    [
        *(("utf-8-sig", None), ("utf-16", None), ("utf-32", None), ("utf-16-le", "utf-16-le")),
        *(("windows-1252", "cp1252"), ("latin-1", "Latin-1"), ("utf-8-sig", "utf8")),
    ],
)
def test_encodings_give_the_same_items(tmp_path: Path, encoding: str, given: str | None) -> None:
    lines = '{"id":"ä","text":"één"}\n{"id":"b","text":"deux"}\n'
    tables = {"a.csv": "id;text\nä;één\nb;deux\n", "a.jsonl": lines}
    for name, content in tables.items():
        data = load_file(tmp_path, name, content.encode(encoding), encoding=given)
        assert (list(data.ids), data.texts) == (["ä", "b"], ["één", "deux"])


def test_utf_16_of_the_other_byte_order(tmp_path: Path) -> None:
    data = load_file(tmp_path, "a.csv", "\ufefftext\nä\nb\n".encode("utf-16-be"))
    assert data.texts == ["ä", "b"]


@pytest.mark.parametrize("encoding", ["", "utf-9", "hex", "rot13", "a\0b"])
def test_an_encoding_that_is_none(encoding: str) -> None:
    with pytest.raises(UsageError, match="no such encoding"):
        settle({"dataset": "a.csv", "encoding": encoding})
    with pytest.raises(ValidationError):
        DatasetSpec(dataset="a.csv", encoding=encoding)


def test_another_encoding_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 2, byte 1 .*not UTF-8.*--encoding .*windows-1252"):
        load_file(tmp_path, "a.csv", "text\näh\nb\n".encode("windows-1252"))


def test_half_a_character_is_no_text(tmp_path: Path) -> None:
    rows = b"text\nx\n\\ud800\n"
    with pytest.raises(DataError, match=r"row 2 \(line 3\), column 'text': .*half a character"):
        load_file(tmp_path, "a.csv", rows, encoding="unicode_escape")


# Empty texts


def test_empty_texts_are_left_out_if_asked_to(tmp_path: Path) -> None:
    rows = "text,gold\none,1\n ,\n\n,nonsense\nfour,4\nfive,\n"
    data = load_file(tmp_path, "a.csv", rows, skip_empty=True, gold_column="gold")
    assert (list(data.ids), data.texts) == (["0", "3", "4"], ["one", "four", "five"])
    assert data.notices == (
        "2 of 5 rows are left out (--skip-empty), since they have no text: 2, 3.",
    )
    with pytest.raises(DataError, match=r"(?s)2 problems.*row 2 \(line 3\).*row 3 \(line 5\)"):
        load_file(tmp_path, "a.csv", rows.replace("nonsense", ""))
    whole = "text\none\ntwo\n"
    plain = load_file(tmp_path, "a.csv", whole)
    assert load_file(tmp_path, "a.csv", whole, skip_empty=True).content == plain.content


def test_rows_keep_their_numbers_where_others_are_left_out(tmp_path: Path) -> None:
    lines = '{"text":null}\n{"text":"a","g":1}\n{"text":"b","g":"x"}\n'
    with pytest.raises(DataError, match=r"row 3 \(line 3\), column 'g': 'x' is not a number"):
        load_file(
            tmp_path, "a.jsonl", '{"text":"0","g":0}\n' + lines[14:], skip_empty=True,
            gold_column="g",
        )  # fmt: skip
    data = load_file(tmp_path, "a.jsonl", lines.replace('"x"', "2"), skip_empty=True)
    assert list(data.ids) == ["1", "2"]
    assert "1 of 3 rows are left out" in data.notices[0]


# Everything that is wrong, at once


def test_all_bad_rows_are_listed_in_their_order(tmp_path: Path) -> None:
    rows = "id,text,g\na,one,1\nb,,2\nc,three\na,four,x\n,five,5\n"
    with pytest.raises(DataError) as caught:
        load_file(tmp_path, "a.csv", rows, id_column="id", gold_column="g")
    first, *lines = str(caught.value).splitlines()
    assert first.endswith("a.csv: 5 problems.")
    assert lines[:5] == [
        "row 2 (line 3), column 'text': the text is empty.",
        "row 3 (line 4): too few fields: 2, where the header has 3.",
        "row 4 (line 5), column 'id': the id 'a' is also that of row 1 (line 2).",
        "row 4 (line 5), column 'g': 'x' is not a number.",
        "row 5 (line 6), column 'id': the id is empty.",
    ]
    assert len(lines) == 9  # what to do, said once for each kind
    assert sum("--id-column" in line for line in lines) == 1


def test_ten_bad_rows_are_listed_and_the_others_counted(tmp_path: Path) -> None:
    rows = "text\n" + '" "\n' * 30 + "one\ntwo\n"
    with pytest.raises(DataError) as caught:
        load_file(tmp_path, "a.csv", rows)
    lines = str(caught.value).splitlines()
    assert lines[0].endswith("a.csv: 30 problems.")
    assert lines[10].startswith("row 10 (line 11)")
    assert lines[11] == "And 20 more."


def test_bad_lines_of_jsonl(tmp_path: Path) -> None:
    lines = '{"text":\n[1]\n{"text":"a","g":1}\n{"text":"b"}\n\n{"text":7,"g":"?"}\n'
    with pytest.raises(DataError) as caught:
        load_file(tmp_path, "a.jsonl", lines, gold_column="g")
    text = str(caught.value)
    assert "a.jsonl: 5 problems." in text
    for part in (
        "row 1 (line 1): broken JSON: ",
        "row 2 (line 2): [1] is no JSON object.",
        "row 4 (line 4): no key 'g'; it has 'text'.",
        "row 5 (line 6), column 'text': expected text, got 7.",
        "row 5 (line 6), column 'g': '?' is not a number.",
    ):
        assert f"\n{part}" in text


def test_what_is_wrong_before_broken_quoting_is_listed_with_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)row 1 .*too many.*row 2 \(line 3\): broken quoting"):
        load_file(tmp_path, "a.csv", 'text\na,b\n"c\n')


def test_the_command_prints_them_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("text\none\n\x1b[2J,x\ntwo,y\n", encoding="utf-8")
    done = judgeq(tmp_path, "run", "-d", "a.csv", expect=3)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("judgeq: ")
    assert lines[1].startswith("  row 2 (line 3): too many fields")
    assert not (tmp_path / "runs").exists()


# Pilots


GOLD = "id,text,gold\n" + "".join(f"i{n},text {n},{n % 3}\n" for n in range(60))


def test_a_sample_is_as_a_file_of_its_items(tmp_path: Path) -> None:
    data = load_file(tmp_path, "a.csv", GOLD, gold_column="gold", sample=5)
    rows = [int(name[1:]) for name in data.ids]
    assert data.gold is not None
    assert (data.gold.tolist(), data.gold_kind) == ([row % 3 for row in rows], "ordinal")
    assert data.notices == ("5 of 60 items only (--sample 5, by --seed 0).",)
    # The same items in a file of their own are the same.
    lines = GOLD.splitlines(keepends=True)
    own = "".join([lines[0], *(lines[row + 1] for row in rows)])
    assert load_file(tmp_path, "b.csv", own, gold_column="gold").content == data.content
    assert load_file(tmp_path, "b.csv", own, gold_column="gold").labels == data.labels


def test_a_sample_is_of_the_seed_and_nested(tmp_path: Path) -> None:
    load_file(tmp_path, "a.csv", GOLD)

    def ids(sample: int, seed: int = 0) -> list[str]:
        spec = DatasetSpec.model_validate({"dataset": "a.csv", "sample": sample})
        return list(load(spec, base=tmp_path, seed=seed).ids)

    ten, twenty = ids(10), ids(20)
    assert ten == ids(10)
    assert ten != ids(10, seed=1)
    assert len(set(ten)) == 10
    assert set(ten) < set(twenty)
    assert ten == sorted(ten, key=lambda name: int(name[1:]))
    assert len(ids(1000)) == 60


def test_numbered_items_of_a_sample_are_the_files_rows(tmp_path: Path) -> None:
    data = load_file(tmp_path, "a.csv", "text\n" + "".join(f"t{n}\n" for n in range(50)), sample=5)
    assert data.texts == [f"t{row}" for row in data.ids]


def test_known_and_synthetic_datasets(tmp_path: Path) -> None:
    whole = load(DatasetSpec(dataset="demo"))
    demo = load(DatasetSpec(dataset="demo", sample=12))
    assert (len(demo), demo.gold_kind) == (12, whole.gold_kind)
    rows = [list(whole.ids).index(name) for name in demo.ids]
    assert whole.texts is not None
    assert whole.gold is not None
    assert demo.gold is not None
    assert demo.texts == [whole.texts[row] for row in rows]
    assert demo.gold.tolist() == whole.gold[rows].tolist()
    linear = load(DatasetSpec(dataset="synthetic:linear", n=50, sample=4))
    assert linear.content.startswith("synthetic:linear n=50 rows=")
    assert len(linear) == 4
    assert load(DatasetSpec(dataset="synthetic:linear", n=50, sample=50)).content == (
        "synthetic:linear n=50"
    )


def test_a_pilot_is_a_run_of_its_own_and_resumes(tmp_path: Path) -> None:
    def facts(**settings: object) -> str:
        made = settle({"dataset": "demo", **settings})
        data = load(made, seed=made.seed)
        return fingerprint(deciding_facts(made, data, None))

    assert len({facts(), facts(sample=20), facts(sample=21)}) == 3
    assert facts(sample=10_000) == facts()
    done = judgeq(tmp_path, "run", "-d", "demo", "--sample", "20", "--json")
    assert '"items": 20,' in done.stdout
    assert "20 of 240 items only (--sample 20, by --seed 0)." in done.stderr
    assert '"items": 20,' in judgeq(tmp_path, "resume", "--json").stdout
    assert len(run_places.FolderRuns(tmp_path / "runs").all()) == 1


# Standard input


def on_stdin(monkeypatch: pytest.MonkeyPatch, data: str | bytes) -> None:
    raw = data.encode() if isinstance(data, str) else data
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize(
    "content",
    [
        *("id,text\na,one\nb,two\n", "id;text\na;one\nb;two\n"),
        '\n {"id":"a","text":"one"}\n{"id":"b","text":"two"}\n',
    ],
)
def test_standard_input_is_read_by_its_content(
    monkeypatch: pytest.MonkeyPatch, content: str, encoding: str
) -> None:
    on_stdin(monkeypatch, content.encode(encoding))
    data = load(DatasetSpec(dataset="-"))
    assert (data.name, list(data.ids), data.texts) == ("stdin", ["a", "b"], ["one", "two"])


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (b"", {}, "standard input is empty"),
        (b"PAR1...", {}, "standard input can't be read as Parquet"),
        (b'[{"text":"a"},["b"]]', {}, r"row 2: \['b'\] is no JSON object"),
        (b'[{"text":"a"},\n{"text":}]', {}, "broken JSON: .* at column 9 of line 2"),
        (b"text\na\n ,b\n", {}, r"standard input, row 2 \(line 3\): too many fields"),
        (b"t\xe4xt\na\n", {}, "standard input, line 1, byte 2"),
    ],
)
def test_what_is_wrong_on_standard_input(
    monkeypatch: pytest.MonkeyPatch, content: bytes, settings: dict[str, object], message: str
) -> None:
    on_stdin(monkeypatch, content)
    with pytest.raises(DataError, match=message):
        load(DatasetSpec.model_validate({"dataset": "-", **settings}))


def test_a_delimiter_with_jsonl_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    on_stdin(monkeypatch, '{"text":"a"}')
    with pytest.raises(UsageError, match="standard input holds JSONL"):
        load(DatasetSpec(dataset="-", delimiter=";"))


def test_a_terminal_is_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    on_stdin(monkeypatch, "")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    with pytest.raises(UsageError, match="nothing is given there: judgeq"):
        load(DatasetSpec(dataset="-"))


def test_a_run_of_standard_input_goes_on_when_it_is_given_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
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
