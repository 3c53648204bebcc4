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


def test_plain_says_so_when_it_reads_only_the_start_of_a_huge_text() -> None:
    assert plain("\x00" * 10_000_000 + "end", 10) == "…"
    assert plain(" " * 1000, 10) == "…"
    assert plain("a" * 10_000_000, 10) == "a" * 9 + "…"


@given(st.text(alphabet=st.characters(codec=None)))
def test_what_is_escaped_is_one_line_that_can_be_seen(text: str) -> None:
    line = escaped(text)
    assert line.isprintable()
    if text.isprintable():
        assert line == text


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "＠"])
def test_what_a_spreadsheet_would_run_is_words(start: str) -> None:
    assert for_spreadsheet(f"{start}cmd|' /C calc'!A0") == f"'{start}cmd|' /C calc'!A0"
    assert for_spreadsheet(start) != start


@pytest.mark.parametrize("cell", ["babe-listwise10", "a=b", "", None, -1.5, True])
def test_words_and_numbers_are_left_to_spreadsheets(cell: object) -> None:
    assert for_spreadsheet(cell) is cell


def test_numbers_in_words() -> None:
    assert [count(1234567), several(1, "retry", "retries")] == ["1,234,567", "1 retry"]
    assert [rate(0), rate(23.14), rate(5012.3)] == ["0.0", "23.1", "5,012"]
    dollars = [money(x) for x in (0, 1e-9, 0.00001234, 0.012345, 0.5, 0.99999, 12345.6)]
    assert dollars == ["$0", "< $0.000001", "$0.0000123", "$0.0123", "$0.50", "$1.00", "$12,345.60"]
    times = [duration(x) for x in (0.2, 59.7, 200, 1500, 3900, 90_000)]
    assert times == ["0 s", "1 min 00 s", "3 min 20 s", "25 min", "1 h 05 min", "1 d 01 h"]
