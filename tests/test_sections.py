"""Words and sections, rendered to a terminal; and those that a run shows in the end."""

import asyncio
import math
import re
import unicodedata
from contextlib import chdir
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import Environment, UndefinedError
from rich.cells import cell_len

import judgeq as package
from judgeq import run_places
from judgeq.engine import status
from judgeq.engine.results import Result
from judgeq.escaping import escaped, excerpt, for_spreadsheet, multiline, plain
from judgeq.evaluation.evaluate import evaluated
from judgeq.evaluation.metrics import Measured
from judgeq.rating.position_bias import Effect
from judgeq.study.simulation import StudyRow
from judgeq.text import count, duration, money, rate, several
from judgeq.types import Counts, Totals
from judgeq.ui.sections import FOLDER, Column, Section, numbers, stated, table, terminal, words
from judgeq.ui.show import lists
from judgeq.ui.show import run as show_run
from judgeq.ui.show.study import ranked
from tests.cli import judgeq

ANY = st.text(alphabet=st.characters(codec=None))


@given(ANY, st.integers(1, 40))
def test_plain_is_one_visible_line_that_fits(text: str, width: int) -> None:
    line = plain(text, width)
    assert cell_len(line) <= width
    unjoined = line.replace("\u200c", "").replace("\u200d", "")
    assert not {unicodedata.category(char) for char in unjoined} & {"Cc", "Cf", "Cs", "Co"}
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


@given(ANY)
def test_what_is_escaped_is_one_line_that_can_be_seen(text: str) -> None:
    line = escaped(text)
    assert line.isprintable()
    if text.isprintable():
        assert line == text


@pytest.mark.parametrize("start", ["=", "+", "-", "\t", "\r", "\n", "＝"])
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


def printed(*sections: Section) -> str:
    return "\n".join(map(str, terminal(sections, 200)))


def test_on_a_terminal_nothing_is_markup_or_acts() -> None:
    section = Section(
        "A [bold]title[/]",
        columns=[*words("name", at_most=12), *numbers("ρ", "n")],
        rows=[
            ("[red]x\x1b[31m | *y* <b>\nz", Measured(0.5, 0.25, 0.75), 12_345),
            ("=1+1", math.nan, None),
        ],
        notes=["the \x1b[2J end"],
        warnings=["partial"],
    )
    text = printed(section)
    for part in ("A [bold]title[/]", "[red]x | *y…", "0.500 [0.250, 0.750]", "12,345"):
        assert part in text
    assert text.count("–") == 2
    assert "\x1b" not in text


def test_lines_break_between_words_and_are_not_padded() -> None:
    words_of = "to be or not to be that is the question whether " * 5 + "end"
    notes = [words_of, "/a/path/without/a/blank/is/longer/than/the/terminal"]
    section = Section(words_of, [("a fact", words_of)], notes=notes, warnings=[words_of])
    lines = list(map(str, terminal([section], 40)))
    assert all(line == line.rstrip() for line in lines)
    assert [line for line in lines if len(line) > 40] == [str(section.notes[1])]
    known = {*words_of.split(), "a", "fact", section.notes[1]}
    assert {word for line in lines for word in line.split()} == known
    wide = [line for line in map(str, terminal([section], 300)) if line.startswith("to be")]
    assert max(map(len, wide)) <= 100


def test_a_table_leaves_out_columns_and_cuts_texts_where_it_must() -> None:
    columns = [Column("id", least=4), Column("n", right=True, spare=True), Column("text", least=6)]
    section = Section(columns=columns, rows=[("a name", 1, "some words of a text")])
    for width, head, row in (
        (40, "id      n  text", "a name  1  some words of a text"),
        (25, "id      n  text", "a name  1  some words of…"),
        (16, "id     n  text", "a na…  1  some…"),
        (12, "id    text", "a n…  some…"),
    ):
        assert [line.plain for line in terminal([section], width)] == [head, row]


def test_columns_without_content_are_left_out() -> None:
    things = [SimpleNamespace(a=1, b=None), SimpleNamespace(a=2, b=None)]
    made = table(things, [(Column("a"), "a"), (Column("b"), "b"), (Column("c"), lambda _: "c")])
    assert [column.name for column in made.columns] == ["a", "c"]
    assert made.rows == [[1, "c"], [2, "c"]]


def test_a_template_states_facts_and_no_value_adds_one() -> None:
    evil = "x\n! | warned\n> | noted\nfact | added | y"
    code, on_one_line = "{{ info.name }}", evil.replace("\n", " ")
    words = {"name": evil, "title": "t", "description": evil, "licence": code, "citation": "c"}
    info = SimpleNamespace(**words, gold_meaning=None, prompt="")
    facts = [("about", on_one_line), ("licence", code), ("cite", "c")]
    expected = Section(f"{on_one_line}: t", facts, notes=[], warnings=[])
    assert stated("dataset", info=info) == expected
    with pytest.raises(UndefinedError):
        stated("dataset")


def test_every_template_of_sentences_is_sound_and_used() -> None:
    package = FOLDER.parents[2]
    sources = [*package.rglob("*.py"), *FOLDER.glob("*.txt")]
    used = "".join(path.read_text(encoding="utf-8") for path in sources)
    for path in FOLDER.glob("*.txt"):
        Environment().parse(path.read_text(encoding="utf-8"))
        calls = rf'(stated|line|lines_of)\(\s*"{path.stem}"|import "{path.name}"'
        assert re.search(calls, used), path.name


def test_strategies_are_ranked_by_means_over_distributions_biases_and_seeds() -> None:
    of_a = ((1, 0.9, 0.5), (1, 0.7, 0.3), (2, 0.6, 0.2), (2, 0.4, 0.0))
    rows = [
        StudyRow(name, "x", "elo", "linear", 0, seed, rho, 0, 4, 9, 7.0, score)
        for name, seed, rho, score in (*(("a", *one) for one in of_a), ("b", 1, 0.1, 0.9))
    ]
    best, other = ranked(rows)
    assert (best.strategy, best.rho_se, best.runs) == ("b", None, 1)
    # Seed means 0.8 and 0.5: a standard deviation of 0.3/√2, over √2.
    assert (other.rho, other.rho_se, other.score) == pytest.approx((0.65, 0.15, 0.25))
    assert ranked(rows[::-1]) == [best, other]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    how: Any = {"runs_dir": tmp_path_factory.mktemp("result"), "progress": False}
    return evaluated(package.run("demo", sample=60, strategy="listwise6x2", **how))


def lines(result: Result, width: int) -> list[str]:
    sections = [*show_run.result(result), show_run.ending(result, "")]
    return [str(line) for line in terminal(sections, width)]


def test_the_answer_comes_first_and_fits(result: Result) -> None:
    shown = lines(result, 80)
    assert len(shown) <= 25
    assert all(cell_len(line) <= 80 or "scores.csv" in line for line in shown)
    assert shown[0] == '60 texts of demo ranked by "biased wording", judged by the simulated judge'
    order = ["60", "rank", "1", "60", "Reliability", "Gold", "Cost", "The", "Scores", "Next"]
    assert [line.split()[0] for line in shown if line and line.split()[0] in order] == order
    best = result.scores.ids[int(result.scores.main[1].argmax())]
    for width in (80, 200):
        row = next(line for line in lines(result, width) if line.split()[:1] == ["1"])
        assert best in row
        assert f"{result.scores.main[1].max():.2f}" in row
    following = ["Next judgeq report --open", f"judgeq explain {best}", "judgeq resume --rounds 3"]
    assert [" ".join(line.split()) for line in shown[-3:]] == following


def test_only_what_matters_is_warned_of(result: Result) -> None:
    assert result.slots
    slots = replace(result.slots, rate=np.array([0.4, 0.6]), furthest=2, chance=0.0004)
    totals = Totals(calls=20, cost=0.5, unknown=2, at_risk=0.25, saved=1.0)
    counts, effect = Counts(done=15, invalid=3, failed=2), Effect(-0.5, 0.2, -0.9, -0.1, 20)
    troubled = replace(result, counts=counts, totals=totals, slots=slots, effect=effect)
    text = " ".join(" ".join(lines(troubled, 100)).split())
    for sentence in (
        "2 jobs failed and 3 jobs got no usable answer, left out of the scores: `judgeq resume",
        "2 calls got no answer and may have been paid: up to $0.25.",
        "Position bias: position 2 wins more often than chance (0.600 of its",
        "comparisons), p < 0.001. See `judgeq evaluate`.",
        "Being shown last instead of first changes a score by -0.50 (95 % interval -0.90 to -0.10)",
        "Cost $0.50, and possibly up to $0.25 for 2 calls of unknown cost for 20 calls; 2 failed, 3",
        "the cache saved $1.00",
    ):
        assert sentence in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("👩\u200d👩\u200d👧 at home", "👩\u200d👩\u200d👧 at home"),
        ("🏳\u200d🌈", "🏳\u200d🌈"),
        ("👩🏽\u200d🚀", "👩🏽\u200d🚀"),
        ("क्\u200dष", "क्\u200dष"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("a\u200db\u200cc", "abc"),
        ("\u200d👩\u200d \u200d👧\u200d", "👩 👧"),
        ("👩\u200d\u200d👧", "👩👧"),
        ("👩\u200b\u200d👧", "👩\u200d👧"),
        ("5\u200d6 й\u200dй", "56 йй"),
    ],
)
def test_joiners_stay_where_they_join(text: str, shown: str) -> None:
    assert plain(text, 40) == shown
    assert excerpt(text, 40) == shown
    assert multiline(text) == shown
    assert escaped(shown) == shown


def test_a_text_is_not_cut_after_a_joiner() -> None:
    for cells in range(2, 12):
        assert not plain("👩\u200d👩\u200d👧" * 4, cells).endswith("\u200d…")
        assert not excerpt("👩\u200d👩\u200d👧" * 4, cells).endswith("\u200d")


WIDTHS = (60, 80, 120)
"""Cells of a small, a usual and a wide terminal."""
COMMAND = "`judgeq resume posts-listwise10-words+length-0123456789 --max-cost 2`"
LONG_PATH = (
    "/home/somebody/studies/2026/" + "runs/posts-listwise10-words+length-0123456789/scores.csv"
)


@pytest.mark.parametrize("width", WIDTHS)
def test_no_path_command_or_range_is_broken(width: int) -> None:
    cost = (
        f"To ask: 120 calls, 55,400 tokens in, 4,800 to 96,000 out, $0.051 to $1.05; see {COMMAND}."
    )
    section = Section(
        facts=[("Scores", LONG_PATH), ("cost", cost)],
        notes=[cost],
        warnings=[f"Stopped. {COMMAND}"],
    )
    lines = [line.plain for line in terminal([section], width)]
    assert LONG_PATH in lines or f"Scores  {LONG_PATH}" in lines
    for whole in ("$0.051 to $1.05;", "4,800 to 96,000"):
        assert sum(whole in line for line in lines) == 2, lines
    assert sum(COMMAND in line for line in lines) == 3, lines
    for line in lines:
        assert cell_len(line) <= width or line.strip(" .") in (LONG_PATH, COMMAND), line


@pytest.mark.parametrize("width", WIDTHS)
def test_a_list_of_runs_keeps_state_cost_and_begun(tmp_path: Path, width: int) -> None:
    for name in ("", "spring"):
        named = ("--name", name) if name else ()
        rows = "\n".join(f"text {at} {name}" for at in range(12))
        (tmp_path / f"posts-of-many-people{name}.csv").write_text(f"text\n{rows}\n")
        job = ("run", f"posts-of-many-people{name}.csv", "--feature", "how long it is", *named)
        judgeq(tmp_path, *job, "-q")
    with chdir(tmp_path):
        found = package.runs()
        states = asyncio.run(status.states(run_places.runs_in(Path("runs")).all()))
    lines = [line.plain for line in terminal([lists.runs(states)], width)]
    shown = "\n".join(lines)
    for run in found:
        assert run["run"] in shown
    assert shown.count("finished") == 2
    for name in ("state", "cost", "begun"):
        assert name in shown
    assert all(cell_len(line) <= width for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_result_shows_its_texts(tmp_path: Path, width: int) -> None:
    text = "Somebody wrote these words and then went on for quite a while " * 3
    posts = {f"17950{at:015}": f"{text} {at}" for at in range(12)}
    result = package.run(posts, "how long it is", runs_dir=tmp_path / "runs", progress=False)
    lines = [line.plain for line in terminal([show_run.ends(result.scores)], width, on_screen=True)]
    texts = [line[line.index("Somebody") :] for line in lines if "Somebody" in line]
    assert len(texts) >= 6
    least = {60: 16, 80: 30, 120: 50}[width]
    assert all(cell_len(text) >= least for text in texts), lines
    assert all(cell_len(line) <= width for line in lines)


def test_a_label_that_is_missing_is_a_dash_in_a_table() -> None:
    column = Column("gold", show="{:g}".format)
    assert [column.text(cell) for cell in (2.0, math.nan, np.float64("nan"), None)] == [
        "2",
        *"–––",
    ]
