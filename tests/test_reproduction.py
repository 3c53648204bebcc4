from __future__ import annotations

import hashlib
import json
import os
import pickle
from pathlib import Path

import pytest

from judgeq.errors import DataError
from judgeq.study import reproduction
from judgeq.types import Verdict
from tests.build import SHARED, needs_recordings
from tests.cli import judgeq

LISTS = [
    {"round": 1, "group": 0, "input_indices": [0, 1, 2], "ranked_indices": [2, 0, 1]},
    {"round": 2, "group": 0, "input_indices": [2, 1], "ranked_indices": [1, 2]},
]
GOOD = [{0: 1.0, 1: 2.0, 2: 3.0}, {0: -1.0, 1: 0.0, 2: 1.0}, {0: 0.5, 1: 0.5, 2: 0.5}, LISTS]


def put(path: Path, content: object) -> str:
    """Write a pickle; its checksum."""
    data = pickle.dumps(content)
    path.write_bytes(data)
    return hashlib.sha256(data).hexdigest()


class Evil:
    """What runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def test_a_pickle_of_plain_things_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    judgments, elo, theta = reproduction.read_pickle(path, put(path, GOOD), 3)
    assert [each.presented for each in judgments] == [(0, 1, 2), (2, 1)]
    assert [each.round for each in judgments] == [1, 2]
    assert judgments[0].verdict == Verdict((2, 0, 1))
    assert (elo.tolist(), theta.tolist()) == ([1.0, 2.0, 3.0], [-1.0, 0.0, 1.0])


def test_a_file_of_another_checksum_is_not_even_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    put(path, Evil(tmp_path / "mark"))
    with pytest.raises(DataError, match=r"not the published file: expected sha256 0.*not opened"):
        reproduction.read_pickle(path, "0" * 64, 3)
    assert not (tmp_path / "mark").exists()


def test_every_global_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.pkl"
    checksum = put(path, [Evil(tmp_path / "mark"), *GOOD[1:]])
    with pytest.raises(DataError, match=r"it names (posix|nt)\.system"):
        reproduction.read_pickle(path, checksum, 3)
    assert not (tmp_path / "mark").exists()
    checksum = put(path, [*GOOD[:3], Path("x")])
    with pytest.raises(DataError, match="it names pathlib"):
        reproduction.read_pickle(path, checksum, 3)


@pytest.mark.parametrize(
    "content",
    [
        GOOD[:3],
        [*GOOD[:3], [{"round": 1}]],
        [{0: 1.0}, *GOOD[1:]],
        [*GOOD[:3], [{**LISTS[0], "input_indices": ["x"]}]],
        7,
    ],
)
def test_something_else_than_expected_is_told(tmp_path: Path, content: object) -> None:
    path = tmp_path / "a.pkl"
    with pytest.raises(DataError, match=r"a\.pkl holds something else than expected"):
        reproduction.read_pickle(path, put(path, content), 3)


def test_without_judgments_it_says_what_is_missing_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = judgeq(tmp_path, "reproduce", "paper", "--recordings", "empty", expect=3)
    assert "--recordings empty holds none of 5mini_10listwise3_clean.pkl" in done.stdout
    assert "not reproduced, since data is missing: babe, us_vs_them" in done.stderr
    assert not (tmp_path / "runs").exists()
    assert "'table9' is not 'paper'" in judgeq(tmp_path, "reproduce", "table9", expect=2).stderr


@pytest.mark.long
@needs_recordings
def test_the_published_rows(tmp_path: Path) -> None:
    done = judgeq(
        tmp_path,
        *("reproduce", "paper", "--json", "--recordings", str(SHARED / "recordings/original")),
        *("--data-dir", str(SHARED / "data" / "us_vs_them")),
    )
    found = {part["dataset"]: part for part in json.loads(done.stdout)}
    ours = {
        (each["row"], each["measure"]): (each["exact"], round(each["ours"], 3))
        for part in found.values()
        for each in part["numbers"]
    }
    assert ours == {
        ("mini_listwise_Elo", "recall"): (True, 0.783),
        ("mini_listwise_Elo", "accuracy"): (True, 0.779),
        ("mini_listwise_Elo", "precision"): (True, 0.772),
        ("mini_listwise_Elo", "f1"): (True, 0.778),
        ("mini_listwise_BT", "recall"): (False, 0.850),
        ("mini_listwise_BT", "accuracy"): (False, 0.802),
        ("mini_listwise_BT", "precision"): (False, 0.772),
        ("mini_listwise_BT", "f1"): (False, 0.809),
        ("Elo, all comments", "pearson"): (True, 0.564),
        ("Elo, critical", "pearson"): (True, 0.501),
        ("BT, all comments", "pearson"): (False, 0.570),
        ("BT, critical", "pearson"): (True, 0.536),
    }
    for part in found.values():
        for each in part["numbers"]:
            assert each["exact"] or each["why"]
            # What is published follows from their own ratings.
            assert round(each["theirs"], 3) == each["published"]
        assert part["elo_equal_to_the_last_bit"] is True
        assert "is the authors' file, by its sha256" in part["checked"]
