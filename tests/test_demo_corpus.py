"""The shipped demo corpus keeps its promises: complete, tidy, and not sortable by length."""

from __future__ import annotations

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy

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
