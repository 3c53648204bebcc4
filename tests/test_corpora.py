import asyncio
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from aiohttp import web
from numpy.testing import assert_array_equal

from judgeq import files
from judgeq.datasets import catalog, load
from judgeq.datasets.corpora import fetch
from judgeq.errors import DataError
from judgeq.settings.run import DatasetSpec
from tests.cli import LONGEST
from tests.web import serving

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
needs_corpora = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the corpora may not be shipped and are not at ../shared"
)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, no data of the user's, and a cache of the test's own."""
    monkeypatch.setattr(files, "user_cache", lambda: tmp_path / "cache")
    monkeypatch.chdir(tmp_path)


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


@needs_corpora
def test_babe_itself_agrees_with_its_labels() -> None:
    data = load(DatasetSpec(dataset="babe", data_dir=SHARED))
    assert len(data.texts or ()) == 3674
    assert data.missing_texts == ""
    without = load(DatasetSpec(dataset="babe"))
    assert_array_equal(data.gold, without.gold)
    assert (data.content, data.labels) == (without.content, without.labels)


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
    "place", ["own/mini.csv", "shipped/mini/mini.csv", "datasets/mini/mini.csv"]
)
def test_where_a_corpus_is_found(place: str, mini: Path, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).write_bytes(TEXTS)
    data = load(DatasetSpec(dataset="mini", data_dir=Path("own")))
    assert (data.source, data.texts) == (str(tmp_path / place), ["one", "two"])
    assert_array_equal(data.gold, [1, 2])
    assert_array_equal(data.subsets["marked"], [True, False])
    told = (data.gold_kind, data.gold_meaning, data.notices)
    assert told == ("ordinal", "how much", ("Be kind.",))
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
