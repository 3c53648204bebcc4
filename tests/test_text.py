from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from judgeq.escaping import escaped, for_spreadsheet, plain
from judgeq.text import count, duration, money, rate, several


@given(st.text(alphabet=st.characters(codec=None)), st.integers(1, 40))
def test_plain_is_one_visible_line_that_fits(text: str, width: int) -> None:
    line = plain(text, width)
    assert cell_len(line) <= width
    assert not {unicodedata.category(char) for char in line} & {"Cc", "Cf", "Cs", "Co"}
    assert "\n" not in line
    assert "  " not in line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  two\n\twords\u2028more ", "two words more"),
        ("\x1b[31mred\x1b[0m \x1b[2J\x1b[10;3Hmoved", "red moved"),
        ("\x9b31mred", "red"),
        ("\x1b]0;title\x07seen \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "seen link"),
        ("cut \x1b[", "cut ["),
        ("safe\u202eevil\u2066 \u200bzero\ufeff", "safeevil zero"),
        ("\ud800lone \ue000private", "lone private"),
        ("[bold]kept[/bold]", "[bold]kept[/bold]"),
        ("z\u0300\u0301\u0302\u0303\u0304", "z\u0300\u0301"),
        ("\u2764\ufe0f", "\u2764"),
        ("", ""),
    ],
)
def test_plain_strips_what_steers_a_terminal(text: str, line: str) -> None:
    assert plain(text, 40) == line


def test_plain_cuts_at_cells_not_characters() -> None:
    assert plain("abcdef", 6) == "abcdef"
    assert plain("abcdefg", 6) == "abcde…"
    assert plain("日本語", 6) == "日本語"
    assert plain("日本語だ", 6) == "日本…"
    assert plain("ab cdef", 4) == "ab…"


def test_plain_says_so_when_it_reads_only_the_start_of_a_huge_text() -> None:
    assert plain("\x00" * 10_000_000 + "end", 10) == "…"
    assert plain(" " * 1000, 10) == "…"
    assert plain("a" * 10_000_000, 10) == "a" * 9 + "…"


def test_numbers() -> None:
    assert [count(7), count(1234567)] == ["7", "1,234,567"]
    assert [rate(0), rate(23.14), rate(5012.3)] == ["0.0", "23.1", "5,012"]
    assert several(1, "retry", "retries") == "1 retry"
    assert several(1200, "call") == "1,200 calls"


@pytest.mark.parametrize(
    ("dollars", "text"),
    [
        (0, "$0"),
        (1e-9, "< $0.000001"),
        (0.00001234, "$0.0000123"),
        (0.012345, "$0.0123"),
        (0.05, "$0.05"),
        (0.5, "$0.50"),
        (0.99999, "$1.00"),
        (12.345, "$12.35"),
        (12345.6, "$12,345.60"),
    ],
)
def test_money(dollars: float, text: str) -> None:
    assert money(dollars) == text


def test_money_of_a_guess_has_fewer_digits() -> None:
    assert money(0.04567, digits=2) == "$0.046"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (12.3, "12 s"),
        (59.7, "1 min 00 s"),
        (200, "3 min 20 s"),
        (1500, "25 min"),
        (3900, "1 h 05 min"),
        (90_000, "1 d 01 h"),
    ],
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@given(st.text(alphabet=st.characters(codec=None)))
def test_what_is_escaped_is_one_line_that_can_be_seen(text: str) -> None:
    line = escaped(text)
    assert line.isprintable()
    if text.isprintable():
        assert line == text


def test_escapes_are_those_of_python() -> None:
    assert escaped("\x1b[31mred\x9b\n\u200b\ud800é") == "\\x1b[31mred\\x9b\\n\\u200b\\ud800é"


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＠"])
def test_what_a_spreadsheet_would_run_is_words(start: str) -> None:
    assert for_spreadsheet(f"{start}cmd|' /C calc'!A0") == f"'{start}cmd|' /C calc'!A0"


@pytest.mark.parametrize("cell", ["babe-listwise10", "a=b", "", None, -1.5, -3, 0.25, True])
def test_words_and_numbers_are_left_to_spreadsheets(cell: object) -> None:
    assert for_spreadsheet(cell) is cell
