from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy
from numpy.testing import assert_array_equal

from judgeq import files
from judgeq.datasets import catalog, corpora, load
from judgeq.errors import DataError
from judgeq.settings.run import DatasetSpec

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_corpora = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the corpora may not be shipped and are not at ../shared"
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, no data of the user's, and a cache of the test's own."""
    monkeypatch.setattr(files, "user_cache", lambda: tmp_path / "cache")
    monkeypatch.setenv("JUDGEQ_OFFLINE", "1")
    monkeypatch.delenv("JUDGEQ_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def test_labels_of_babe_stand_in_for_its_texts() -> None:
    data = load(DatasetSpec(dataset="babe"))
    assert data.gold is not None
    assert (len(data), data.texts, data.gold_kind, data.prompt) == (3674, None, "binary", "bias")
    ones, zeros, none = (data.gold == 1).sum(), (data.gold == 0).sum(), np.isnan(data.gold).sum()
    assert (ones, zeros, none) == (1810, 1863, 1)
    assert "labels only" in data.notices[0]
    assert "no licence" in data.notices[1]
    for told in ("final_labels_SG2.csv", "https://", "sha256 c02ebe", "--data-dir", "cache"):
        assert told in data.missing_texts


def test_without_labels_missing_texts_are_an_error() -> None:
    with pytest.raises(DataError, match=r"us_vs_them are not .* \(JUDGEQ_OFFLINE is set\).*461d07"):
        load(DatasetSpec(dataset="us_vs_them"))
    with pytest.raises(DataError, match="The texts of babe are not on this machine"):
        load(DatasetSpec(dataset="babe", latent_column="x"))


def test_download_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGEQ_OFFLINE")
    assert "turned off" in load(DatasetSpec(dataset="babe"), download=False).missing_texts


@needs_corpora
def test_babe_itself_agrees_with_its_labels() -> None:
    data = load(DatasetSpec(dataset="babe", data_dir=SHARED))
    assert data.texts is not None
    assert len(data.texts) == 3674
    assert data.missing_texts == ""
    without = load(DatasetSpec(dataset="babe"))
    assert_array_equal(data.gold, without.gold)
    assert (data.content, data.labels) == (without.content, without.labels)


@needs_corpora
def test_us_vs_them_itself() -> None:
    spec = DatasetSpec(dataset="us_vs_them", data_dir=SHARED, latent_column="usVSthem_scale")
    data = load(spec)
    assert data.texts is not None
    assert (len(data), data.gold_kind, data.licence) == (2261, "continuous", "CC BY-NC 4.0")
    assert data.subsets["critical"].sum() == 1244
    assert_array_equal(data.latent, data.gold)
    assert "non-commercial" in data.notices[0]


TEXTS = b"body;y;z\none;1;k\ntwo;2;\n"
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
    sha256 = hashlib.sha256(TEXTS).hexdigest()
    (folder / "dataset.toml").write_text(TOML.format(sha256=sha256))
    monkeypatch.setattr(files, "shipped", lambda kind: folder.parent)
    return folder


@pytest.mark.parametrize(
    "place",
    [
        "own/mini.csv",
        "own/mini/mini.csv",
        "env/mini.csv",
        "env/mini/mini.csv",
        "shipped/mini/mini.csv",
        "datasets/mini/mini.csv",
        "cache/datasets/mini/mini.csv",
    ],
)
def test_where_a_corpus_is_found(
    place: str, mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("JUDGEQ_DATA", str(tmp_path / "env"))
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_bytes(TEXTS)
    data = load(DatasetSpec(dataset="mini", data_dir=Path("own")))
    assert (data.source, data.texts) == (str(tmp_path / place), ["one", "two"])
    assert_array_equal(data.gold, [1, 2])
    assert_array_equal(data.subsets["marked"], [True, False])
    assert (data.gold_kind, data.gold_meaning, data.notices) == (
        "ordinal",
        "how much",
        ("Be kind.",),
    )
    info = catalog(tmp_path / "own")[0]
    assert (info.name, info.where, info.size) == ("mini", tmp_path / place, len(TEXTS))


def test_a_wrong_file_is_never_taken_for_the_corpus(mini: Path) -> None:
    (mini / "mini.csv").write_bytes(TEXTS + b"x")
    with pytest.raises(DataError, match=r"mini\.csv is not the file.* --dataset .*mini\.csv"):
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


def test_shipped_labels_are_those_of_the_rows_in_order() -> None:
    for corpus in map(corpora.corpus, corpora.names()):
        if corpus.labels is not None:
            table = files.shipped("datasets") / corpus.name / corpus.labels
            rows = [line.split(",")[0] for line in table.read_text().splitlines()]
            assert rows == ["row", *map(str, range(corpus.items or 0))]


def test_known_lists_all() -> None:
    infos = {info.name: info for info in catalog()}
    assert [name for name in infos if name.startswith("synthetic:")] == [
        f"synthetic:{shape}" for shape in ("linear", "bimodal", "normal", "binary")
    ]
    assert infos["babe"].labels
    assert (infos["us_vs_them"].items, infos["us_vs_them"].labels) == (2261, None)
    for name in corpora.names():
        corpus = corpora.corpus(name)
        if corpus.url is not None:
            assert corpus.url.startswith("https://")
            assert corpus.sha256
            assert corpus.size
        assert (corpus.gold_column is None) == (corpus.gold_kind is None)
        assert corpus.labels is None or (corpus.gold_kind and corpus.items)
        assert all(Path(file or "x").name == (file or "x") for file in (corpus.file, corpus.labels))
        assert infos[name].licence
        assert infos[name].citation


# The demo corpus


DEMO = Path(__file__).parents[1] / "datasets" / "demo" / "demo.csv"
COLUMNS = ["id", "event", "level", "text"]
EVENTS = 40
LEVELS = range(6)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    with DEMO.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, strict=True))


def words(text: str) -> int:
    return len(text.split())


def test_file_is_plain_utf8_with_lf_line_ends_and_the_four_columns() -> None:
    raw = DEMO.read_bytes()
    assert not raw.startswith(b"\xef\xbb\xbf")
    assert b"\r" not in raw
    assert raw.endswith(b"\n")
    with DEMO.open(encoding="utf-8", newline="") as file:
        table = list(csv.reader(file, strict=True))
    assert table[0] == COLUMNS
    assert {len(row) for row in table} == {len(COLUMNS)}


def test_every_event_has_every_level_once(rows: list[dict[str, str]]) -> None:
    assert len(rows) == EVENTS * len(LEVELS) == 240
    events = sorted({row["event"] for row in rows})
    assert len(events) == EVENTS
    # This also fixes the order of the rows: by event, then by level.
    expected = [(event, str(level)) for event in events for level in LEVELS]
    assert [(row["event"], row["level"]) for row in rows] == expected


def test_ids_are_event_and_level(rows: list[dict[str, str]]) -> None:
    ids = [row["id"] for row in rows]
    assert len(set(ids)) == len(ids)
    assert ids == [f"{row['event']}-{row['level']}" for row in rows]
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*-[0-5]", name) for name in ids)


def test_texts_are_tidy_and_unique(rows: list[dict[str, str]]) -> None:
    texts = [row["text"] for row in rows]
    assert len({text.casefold() for text in texts}) == len(texts)
    for text in texts:
        assert text == " ".join(text.split())
        assert text[-1] in ".?!"


def test_texts_have_20_to_45_words(rows: list[dict[str, str]]) -> None:
    lengths = {row["id"]: words(row["text"]) for row in rows}
    assert {name: n for name, n in lengths.items() if not 20 <= n <= 45} == {}


def test_length_does_not_tell_the_level(rows: list[dict[str, str]]) -> None:
    levels = np.array([int(row["level"]) for row in rows])
    lengths = np.array([words(row["text"]) for row in rows])
    assert abs(float(scipy.stats.spearmanr(levels, lengths).statistic)) < 0.1
    # The six wordings of one event are about as long as each other.
    spread = np.ptp(lengths.reshape(EVENTS, len(LEVELS)), axis=1)
    assert int(spread.max()) <= 6


def test_nothing_shouts(rows: list[dict[str, str]]) -> None:
    texts = [row["text"] for row in rows]
    assert sum(text.count("!") for text in texts) <= 5
    assert [text for text in texts if re.search(r"[A-Z]{2,}", text)] == []


def test_no_word_gives_the_game_away(rows: list[dict[str, str]]) -> None:
    giveaway = re.compile(r"\b(un)?(bias|neutral|slant|partisan|propaganda)", re.IGNORECASE)
    assert [row["id"] for row in rows if giveaway.search(row["text"])] == []


def test_no_loaded_word_is_worn_out(rows: list[dict[str, str]]) -> None:
    """A word that only slanted wordings use turns up in few events, so it cannot stand for them."""
    plain: set[str] = set()
    slanted: Counter[str] = Counter()
    events: dict[str, set[str]] = {}
    for row in rows:
        found = {word for word in re.findall(r"[a-z'-]+", row["text"].lower()) if len(word) > 5}
        if int(row["level"]) < 2:
            plain |= found
        else:
            events.setdefault(row["event"], set()).update(found)
    for found in events.values():
        slanted.update(found)
    assert {word: n for word, n in slanted.items() if word not in plain and n > 6} == {}
