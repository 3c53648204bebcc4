"""The report in a real browser: nothing goes wrong or out, the table works, by keyboard too."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser import Seen, opened, violations
from tests.cli import judgeq

pytestmark = pytest.mark.browser
HOSTILE = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "</script><script>window.hacked = 1</script>",
    "[bold]=cmd()|' /C calc'!A0 <!-- -->",
    "\u202egnp.exe\u202c \x1b[31mred\x1b[0m \x07",
    "😀🏳️‍🌈 مرحبا \u2028 line",
    "long " * 20_000,
)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run over hostile texts with hostile ids, whose scores the gold decides."""
    folder = tmp_path_factory.mktemp("report")
    with (folder / "texts.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "text", "gold"])
        for number in range(120):
            hostile = HOSTILE[number % len(HOSTILE)]
            # Ids with what can't be seen are refused.
            seen = "".join(filter(str.isprintable, hostile[:40]))
            name = f"{seen} {number}" if number < 21 else f"plain {number}"
            table.writerow([name, f"{number} {hostile}", number % 3])
    job = ("run", "-d", "texts.csv", "--id-column", "id", "--gold-column", "gold", "--quiet")
    judgeq(folder, *job, "-s", "listwise6")
    judgeq(folder, "report", "--positive-over", "1", "--quiet")
    (page,) = folder.glob("runs/*/report.html")
    return page


@pytest.fixture
def seen(report: Path) -> Iterator[Seen]:
    with opened(report.as_uri()) as seen:
        seen.page.wait_for_selector("#table tbody tr")
        yield seen
        assert seen.errors == []
        assert seen.asked == [report.as_uri()]
        assert seen.page.evaluate("window.hacked") is None


def rows(page: Any) -> list[str]:
    names: list[str] = page.locator("#table [data-item]").all_inner_texts()
    return names


def test_the_table_sorts_searches_filters_and_turns(seen: Seen) -> None:
    page = seen.page
    first = rows(page)
    assert len(first) == 50
    assert page.get_by_role("status").inner_text() == "1 to 50 of 120"
    page.get_by_role("button", name="Later").click()
    assert page.get_by_role("status").inner_text() == "51 to 100 of 120"
    assert rows(page) != first
    page.get_by_role("button", name="Score").click()  # from the highest, as the ranking
    assert rows(page) == first
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="Score").click()
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert rows(page) != first
    page.get_by_label("Search").fill("plain 10")
    assert sorted(rows(page)) == [f"plain {number}" for number in range(100, 111)]
    page.get_by_role("combobox", name="Gold label").select_option("2")
    assert sorted(rows(page)) == ["plain 101", "plain 104", "plain 107", "plain 110"]
    page.get_by_label("Search").fill("no such words")
    assert page.get_by_role("status").inner_text() == "No text matches."


def test_an_item_opens_to_its_text_and_judgments_by_keyboard_alone(seen: Seen) -> None:
    page = seen.page
    page.get_by_label("Search").focus()
    page.keyboard.type("<script>window.hacked")
    name = page.locator("#table [data-item]").first
    while page.evaluate("document.activeElement.dataset.item") is None:
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert name.get_attribute("aria-expanded") == "true"
    assert page.evaluate("document.activeElement.dataset.item") is not None  # focus stays
    detail = page.locator("tr.detail")
    assert "<script>window.hacked = 1</script>" in detail.inner_text()
    assert detail.locator("li").count() == 3
    assert " > " in detail.locator("li").first.inner_text()
    assert "round " in detail.locator("li").first.inner_text()
    page.keyboard.press("Space")
    assert detail.count() == 0


@pytest.mark.parametrize(
    ("scheme", "width"),
    [
        ("light", 390),
        pytest.param("dark", 1200, marks=pytest.mark.long),
        pytest.param("light", 1200, marks=pytest.mark.long),
        pytest.param("dark", 390, marks=pytest.mark.long),
    ],
)
def test_it_is_accessible_and_fits_in_light_and_dark(report: Path, scheme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    with opened(report.as_uri(), color_scheme=scheme, viewport=size) as seen:
        seen.page.wait_for_selector("#table tbody tr")
        seen.page.locator("#table [data-item]").first.click()
        assert violations(seen.page) == []
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.errors == []


def test_all_texts_are_printed(seen: Seen) -> None:
    count = "document.querySelectorAll('#table [data-item]').length"
    seen.page.evaluate(f"addEventListener('beforeprint', () => window.printed = {count})")
    seen.page.pdf()
    assert seen.page.evaluate("window.printed") == 120
    seen.page.wait_for_function(f"{count} === 50")


def test_without_a_script_all_texts_can_be_read(report: Path) -> None:
    with opened(report.as_uri(), java_script_enabled=False) as seen:
        table = seen.page.locator("#texts table")
        assert table.locator("tbody tr").count() == 120
        assert "118 long long" in table.inner_text()


def test_the_first_screen_has_the_answer(report: Path) -> None:
    with opened(report.as_uri(), viewport={"width": 1280, "height": 800}) as seen:
        heading = seen.page.get_by_role("heading", level=1).inner_text()
        assert heading == "120 texts of texts ranked, judged by the simulated judge"
        for words in ("Reliability", "Gold labels", "The highest and lowest texts"):
            box = seen.page.locator("#result").get_by_text(words, exact=True).bounding_box()
            assert box is not None
            assert box["y"] + box["height"] < 800
        rows = seen.page.locator("#result tbody tr")
        ranks = [text.split(" ")[0] for text in rows.locator("td:first-child").all_inner_texts()]
        assert ranks[:3] == ["1", "2", "3"]
        assert ranks[-3:] == ["118", "119", "120"]


def test_it_prints_dark_on_white_also_where_the_screen_is_dark(report: Path) -> None:
    with opened(report.as_uri(), color_scheme="dark") as seen:
        seen.page.emulate_media(media="print", color_scheme="dark")
        for selector, name, light in (
            ("pre", "background-color", True),
            ("pre", "color", False),
            ("dt", "color", False),
            ("figure svg text", "fill", False),
        ):
            colour = seen.page.locator(selector).first.evaluate(
                f"one => getComputedStyle(one).getPropertyValue('{name}')"
            )
            shades = [int(shade) for shade in re.findall(r"\d+", colour)[:3]]
            assert all((shade > 127) is light for shade in shades), (selector, colour)


def test_on_a_phone_an_item_is_read_without_moving_the_table(report: Path) -> None:
    with opened(report.as_uri(), viewport={"width": 390, "height": 800}) as seen:
        page = seen.page
        page.get_by_label("Search").fill("plain")
        page.locator("#table [data-item]").first.click()
        for part in ("tr.detail .whole-text", "tr.detail li >> nth=0", "tr.detail .facts"):
            box = page.locator(part).bounding_box()
            assert box is not None
            assert 0 <= box["x"] <= box["x"] + box["width"] <= 390
        assert "Contested" in page.locator("tr.detail .facts").inner_text()
        assert not page.get_by_role("columnheader", name="Contested").is_visible()
        assert page.locator("#table td.text").first.bounding_box()["x"] < 390
        assert seen.errors == []


def test_what_contested_means_is_said_above_the_table(seen: Seen) -> None:
    assert "Contested: yes if the comparisons" in seen.page.locator("#table").inner_text()
    seen.page.get_by_role("button", name="Contested").click()
    cells = seen.page.locator("#table tbody tr td:nth-child(6)").all_inner_texts()
    shown = [re.fullmatch(r"(yes|no) \((.*)\)", cell) for cell in cells if cell != "–"]
    values = [float(one[2].replace("−", "-")) for one in shown if one is not None]
    assert len(values) == len(shown)
    for one, value in zip(filter(None, shown), values, strict=True):  # shown to one digit
        assert value >= 2 if one[1] == "yes" else value <= 2
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 5
