"""The page of a report of every kind of run, in a browser: it shows its texts, and no script fails."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from judgeq.strategies import REGISTRY
from tests import people
from tests.browser import Seen, opened
from tests.cli import judgeq
from tests.mock import mock

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("undrawn", "rated_once")]

TEXTS = 24
FLAGS = ("texts.csv", "-q", "--feature", "how long it is")
GOLD = ("--gold-column", "gold")
TOPICS = ("--group-column", "topic")
MODELS = ("--judge", "m", "--judge", "m-two", "--price", "1,2")
CLICK_EACH = """
(selector) => {
  const count = document.querySelectorAll(selector).length;
  for (let at = 0; at < count; at++) document.querySelectorAll(selector)[at].click();
}
"""
"""The table is drawn anew after each click."""
STOPPED = ("--max-output-tokens", "40", "--concurrency", "1", "--max-cost", "0.003")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with texts in two groups, and with votes on them."""
    rows = [f"t{row},text number {row},{'ab'[row % 2]},{row}" for row in range(TEXTS)]
    (tmp_path / "texts.csv").write_text("\n".join(["id,text,topic,gold", *rows]) + "\n")
    votes = [f"t{row},t{row + 1},{'tie' if row % 5 == 0 else 'left'}" for row in range(TEXTS - 1)]
    (tmp_path / "votes.csv").write_text("\n".join(["one,two,won", *votes]) + "\n")
    return tmp_path


@contextmanager
def page_of(folder: Path, *flags: str) -> Iterator[Seen]:
    """The page of the last run's report, of which no script has failed."""
    name = judgeq(folder, "report", "--resamples", "20", *flags).stdout.strip()
    with opened((folder / name).as_uri()) as seen:
        assert seen.errors == []
        yield seen
        assert seen.errors == []


def check_texts(folder: Path, *flags: str, texts: int = TEXTS) -> None:
    """Fail unless the report lists all texts, sorts them by each column, and opens each to its
    judgments."""
    with page_of(folder, *flags) as seen:
        page = seen.page
        assert page.get_by_role("status").inner_text() == f"1 to {texts} of {texts}"
        ids = page.locator("#table [data-item]")
        assert ids.count() == texts
        page.evaluate(CLICK_EACH, "#table [data-sort]")
        assert ids.count() == texts
        page.evaluate(CLICK_EACH, "#table [data-item]")
        assert page.locator("tr.detail").count() == texts
        page.get_by_label("Search").fill("no such words")
        assert page.get_by_role("status").inner_text() == "No text matches."


@pytest.mark.parametrize("strategy", REGISTRY)
def test_a_report_of_each_strategy_shows_its_texts(folder: Path, strategy: str) -> None:
    judgeq(folder, "run", *FLAGS, *GOLD, "-s", strategy)
    check_texts(folder)


@pytest.mark.parametrize(
    "flags",
    [
        (),  # a rehearsal, without gold
        TOPICS,
        (*GOLD, *TOPICS),
        (*GOLD, *TOPICS, "-s", "direct"),
        (*GOLD, "-s", "pairwise3", "--both-orders"),
        (*GOLD, "-s", "listwise10x1"),
    ],
)
def test_a_report_of_a_run_with_these_settings_shows_its_texts(
    folder: Path, flags: tuple[str, ...]
) -> None:
    judgeq(folder, "run", *FLAGS, *flags)
    check_texts(folder)


@pytest.mark.parametrize("flags", [("--no-texts",), ("--rating", "bt"), ("--rating", "bt-mm")])
def test_a_report_with_these_options_shows_its_texts(folder: Path, flags: tuple[str, ...]) -> None:
    judgeq(folder, "run", *FLAGS, *GOLD, *TOPICS)
    check_texts(folder, *flags)


def test_a_report_lists_some_of_many_texts(folder: Path) -> None:
    judgeq(folder, "run", *FLAGS, *TOPICS)
    check_texts(folder, "--texts", "8", texts=8)


@pytest.mark.parametrize("flags", [(), TOPICS, ("--ensemble", "each"), ("--reasons",)])
def test_a_report_of_several_models_shows_their_texts(folder: Path, flags: tuple[str, ...]) -> None:
    with mock(folder) as url:
        judgeq(folder, "run", *FLAGS, *MODELS, "--base-url", url, *flags)
    check_texts(folder)


def test_a_report_of_a_judge_that_joined_shows_its_texts(folder: Path) -> None:
    with mock(folder) as url:
        judgeq(folder, "run", *FLAGS, "--judge", "m", "--price", "1,2", "--base-url", url)
        judgeq(folder, "resume", "--judge", "other", "--rounds", "1", "-q")
    check_texts(folder)


def test_a_report_of_a_stopped_run_shows_the_texts_it_has(folder: Path) -> None:
    with mock(folder) as url:
        job = ("run", *FLAGS, *TOPICS, "--judge", "m", "--price", "1,10", "--base-url", url)
        judgeq(folder, *job, "-s", "listwise4", *STOPPED, expect=6)
    check_texts(folder)


def test_a_report_of_people_shows_their_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    people.run(tmp_path)
    check_texts(tmp_path)


@pytest.mark.parametrize("flags", [(), TOPICS])
def test_a_report_of_imported_votes_shows_their_texts(folder: Path, flags: tuple[str, ...]) -> None:
    if flags:  # neighbors are in different groups
        votes = [f"t{row},t{row + 2},left" for row in range(TEXTS - 2)]
        (folder / "votes.csv").write_text("\n".join(["one,two,won", *votes]) + "\n")
    columns = ("--left", "one", "--right", "two", "--winner", "won")
    judgeq(folder, "import", "-d", "texts.csv", "votes.csv", *columns, *flags)
    check_texts(folder)


def test_a_report_of_texts_placed_onto_a_scale_shows_them(folder: Path) -> None:
    judgeq(folder, "run", *FLAGS, *GOLD, "--judge", "simulated", "--name", "first")
    rows = [f"n{row},new text {row},a,{row}" for row in range(6)]
    (folder / "new.csv").write_text("\n".join(["id,text,topic,gold", *rows]) + "\n")
    judged = ("new.csv", *FLAGS[1:], *GOLD, "--judge", "simulated")
    judgeq(folder, "run", *judged, "--onto", "first")
    check_texts(folder, texts=TEXTS + 6)
