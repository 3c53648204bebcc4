from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from judgeq import files
from judgeq.datasets import corpora, known, load
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
    info = known(tmp_path / "own")[0]
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
    infos = {info.name: info for info in known()}
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
