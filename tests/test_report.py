"""A report: the run's own numbers, everything escaped, no text where none is wanted; and its page in a
browser."""

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import pytest
import yaml

from judgeq.ui import html, markdown
from judgeq.ui.report import bibtex
from judgeq.ui.sections import Chapter, Section, words
from tests.browser import Seen, opened, violations
from tests.cli import REPO, execute, json_of, judgeq, only_run, score_columns
from tests.fakes import faults

pytestmark = pytest.mark.usefixtures("rated_once")

JOB = ("run", "-d", "demo", "--sample", "60", "--quiet")


class Structure(HTMLParser):
    """The elements of a page, and whether each that is opened is closed."""

    VOID = frozenset({"meta", "link", "input", "br", "img", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.elements: list[str] = []
        self.links: list[str] = []

    @classmethod
    def of(cls, page: str) -> Self:
        """That of a page in which all that is opened is closed, and each id stands once."""
        structure = cls()
        structure.feed(page)
        assert structure.open == []
        assert len(set(structure.ids)) == len(structure.ids)
        return structure

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.elements.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        links = ("href", "src", "xlink:href", "srcset")
        self.links += [value for name, value in attrs if name in links]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    judgeq(folder, *JOB)
    return folder


def report(folder: Path, *flags: str) -> str:
    done = judgeq(folder, "report", "--resamples", "20", *flags)
    return (folder / done.stdout.strip()).read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_page_is_whole_in_itself(folder: Path) -> None:
    page = report(folder)
    structure = Structure.of(page)
    assert all(link.startswith(("#", "data:image/png")) for link in structure.links)
    assert structure.elements.count("script") == 2
    headings = re.findall(r"<h2 [^>]*>([^<]*)</h2>", page)
    assert headings[:3] == ["The result", "The ranked texts", "How sure it is"]
    assert headings[3:] == ["Gold labels", "Judges and positions", "For your paper"]
    assert len(page.encode()) < 1_000_000


@pytest.mark.usefixtures("undrawn")
def test_a_text_opens_to_the_judgments_behind_its_score(folder: Path) -> None:
    data = data_of(report(folder))
    first = data["items"][0]
    assert first["rank"] == 1
    assert len(first["judgments"]) == first["matches"] == 3
    for number, slot, _ in first["judgments"]:
        judgment = data["judgments"][number]
        items = [item for group in judgment["groups"] for item in group]
        assert 0 in items
        assert 1 <= slot <= len(items) == 10


@pytest.mark.usefixtures("undrawn")
def test_without_texts_none_is_in_it(folder: Path) -> None:
    with_texts = report(folder)
    page = report(folder, "--no-texts")
    texts = [item["text"] for item in data_of(with_texts)["items"]]
    assert len(texts) == 60
    for text in texts:
        assert text[:40] in with_texts.replace("&#39;", "'").replace("&#34;", '"') or "\\u" in text
        assert text[:40] not in page.replace("&#39;", "'").replace("&#34;", '"')
    assert all(item["text"] is None for item in data_of(page)["items"])
    assert ">The ranked items<" in page
    written = report(folder, "--no-texts", "--format", "md")
    assert not any(text[:40] in written for text in texts)


@pytest.mark.usefixtures("undrawn")
def test_where_files_lie_is_in_nothing_that_is_shared(tmp_path: Path) -> None:
    """Their names are; config.json, which the run is resumed by, holds their paths."""
    home, work = tmp_path / "home-of-anna", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    rows = [f"{row},text {row},{row % 2}" for row in range(12)]
    (home / "mine.csv").write_text("\n".join(("id,text,gold", *rows)))
    (home / "labels.csv").write_text("\n".join(("id,gold", *(f"{row},{row}" for row in range(12)))))
    job = ("-d", home / "mine.csv", "-s", "pairwise2", "--gold-column", "gold", "-q")
    judgeq(work, "run", *job, "--cache-dir", home / "cache")
    gold = ("--gold", home / "labels.csv")
    shared = [
        judgeq(work, *command, "--json").stdout
        for command in (("evaluate", *gold), ("show",), ("status",), ("runs",))
    ]
    shared.append(judgeq(work, "export", "last").stdout)
    for kind in ("html", "md"):
        judgeq(work, "report", "--format", kind, *gold, "-q")
        run = max((work / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
        shared.append((run / f"report.{kind}").read_text())
    assert str(home) in (run / "config.json").read_text()
    assert not [text for text in shared if "home-of-anna" in text]
    assert [name in shared[-1] for name in ("mine.csv", "labels.csv")] == [True, True]


def test_markdown_has_its_figures_beside_it(folder: Path) -> None:
    written = report(folder, "--format", "md")
    figures = re.findall(r"!\[[^\]]*\]\((report-figures/[a-z]+\.png)\)", written)
    assert len(figures) == len(set(figures)) == 4
    for figure in figures:
        assert (only_run(folder) / figure).read_bytes().startswith(b"\x89PNG")
    assert written.count("\n## ") == 6
    table = written.split("## The ranked texts")[1].split("## How sure it is")[0]
    assert len(re.findall(r"^\| \d+ \|", table, re.MULTILINE)) == 60


@pytest.mark.usefixtures("undrawn")
def test_what_went_wrong_is_on_the_first_screen(tmp_path: Path) -> None:
    with faults(unreadable=0.5, timeouts=0.3):
        judgeq(tmp_path, "run", "-d", "synthetic:normal", "--quiet", "--n", "30")
    page = report(tmp_path)
    wrong = page.index("got no usable answer, left out of the scores")
    assert wrong < page.index("The highest and lowest texts") < page.index('id="texts"')
    assert "Every question was answered" not in page


@pytest.mark.usefixtures("undrawn")
def test_a_report_is_not_written_through_a_link(folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.html"
    elsewhere.write_text("mine")
    path = only_run(folder) / "report.html"
    path.unlink(missing_ok=True)
    path.symlink_to(elsewhere)
    assert "<!doctype html>" in report(folder)
    assert not path.is_symlink()
    assert elsewhere.read_text() == "mine"


@pytest.mark.usefixtures("undrawn")
def test_its_numbers_are_those_of_the_commands(folder: Path) -> None:
    evaluated = json_of(folder, "evaluate", "--resamples", "20")
    page = report(folder)
    for one in evaluated["evaluation"]:
        for name in ("pearson", "spearman", "kendall"):
            measure = one["measures"][name]
            text = f"{measure['value']:.3f} [{measure['low']:.3f}, {measure['high']:.3f}]"
            assert f">{text}</td>" in page
    assert f"{evaluated['reliability']['separation']['ssr']:.3f} of the variance" in page
    looked = json_of(folder, "show", "--contested", "--n", "5")
    data = data_of(page)
    listed = {item["id"]: item["contested"] for item in data["items"]}
    for item in looked["views"][0]["items"]:
        assert listed[item["id"]] == pytest.approx(item["z"], abs=1e-4)
    assert {*score_columns(only_run(folder))["id"]} == listed.keys()


def test_the_paper_and_the_software_are_cited_as_citation_cff_has_them() -> None:
    cited = yaml.safe_load((REPO / "CITATION.cff").read_text("utf-8"))
    (paper,) = cited["references"]
    of_paper, own = bibtex().split("@software{judgeq,")
    number = paper["identifiers"][0]["value"].removeprefix("arXiv:")
    for one in (paper["title"], "Haak, Fabian and Schaer, Philipp", number):
        assert f"{{{one}}}" in of_paper
    name, code = cited["authors"][0]["name"], cited["repository-code"]
    for one in (cited["title"], f"{{{name}}}", version("judgeq"), code):
        assert f"{{{one}}}" in own


BAD = "<b>&\"'</b></script><!-- [x](javascript:1) `` ``` \x1b[31m \u202e | = *a* _b_ \n# c"


def test_words_stay_words_in_html_and_markdown() -> None:
    pair, said = [(BAD, BAD)], [BAD]
    section = Section(BAD, pair, words(BAD, BAD), pair, notes=said, warnings=said, blocks=pair)
    page = str(html.sections([section, replace(section, folded=True)]))
    structure = Structure.of(page)
    assert structure.elements.count("details") == 1
    assert not {"b", "script"} & {*structure.elements}
    assert not set(page) & {"\x1b", "\u202e"}
    text = markdown.document(BAD, [Chapter("a", BAD, [section])], "x/")
    assert not set(text) & {"\x1b", "\u202e"}
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)[<`*]", outside.replace("> **", "").replace("**", ""))
    assert not re.search(r"(?<!\\)\]\(", outside)
    assert text.count("\n````text\n") == 1  # longer than any fence within


HOSTILE = "</script></pre><script>x</script><img src=x onerror=x>\x1b[2J\u202e"


@pytest.mark.usefixtures("undrawn")
def test_a_strangers_run_stays_text(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--reasons")
    run = only_run(tmp_path)
    config = json.loads((run / "config.json").read_text())
    config |= dict.fromkeys(("dataset", "source", "strategy", "licence", "gold_meaning"), HOSTILE)
    parts = ("name", "feature", "system", "pair", "list", "direct")
    config["settings"]["dataset"] = "gone.csv"  # so that nothing tells that the ids are others
    config["facts"]["prompt"] = dict.fromkeys(parts, HOSTILE)
    (run / "config.json").write_text(json.dumps(config))
    reply = json.dumps({"reason": HOSTILE, "ranking": []})
    named = ("UPDATE items SET id = ? || id WHERE row < 9", (HOSTILE,))
    execute(run / "run.db", named, ("UPDATE calls SET reply = ?", (reply,)))
    page = report(tmp_path)
    structure = Structure.of(page)
    assert structure.elements.count("script") == 2
    assert "img" not in structure.elements
    assert not set(page) & {"\x1b", "\u202e"}
    assert not set(report(tmp_path, "--format", "md")) & {"\x1b", "\u202e"}


PAGE_TEXTS = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "</script><script>window.hacked = 1</script>",
    "[bold]=cmd()|' /C calc'!A0 <!-- -->",
    "\u202egnp.exe\u202c \x1b[31mred\x1b[0m \x07",
    "😀🏳️‍🌈 مرحبا \u2028 line",
    "long " * 20_000,
)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run over hostile texts with hostile ids, whose scores the gold decides."""
    folder = tmp_path_factory.mktemp("report")
    with (folder / "texts.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["id", "text", "gold"])
        for number in range(60):
            hostile = PAGE_TEXTS[number % len(PAGE_TEXTS)]
            # Ids with what can't be seen are refused.
            seen = "".join(filter(str.isprintable, hostile[:40]))
            name = f"{seen} {number}" if number < 21 else f"plain {number}"
            table.writerow([name, f"{number} {hostile}", number % 3])
    job = ("run", "-d", "texts.csv", "--id-column", "id", "--gold-column", "gold", "--quiet")
    judgeq(folder, *job, "-s", "listwise6")
    judgeq(folder, "report", "--quiet")
    (page,) = folder.glob("runs/*/report.html")
    return page


@pytest.fixture
def seen(written: Path) -> Iterator[Seen]:
    with opened(written.as_uri()) as seen:
        seen.page.wait_for_selector("#table tbody tr")
        yield seen
        assert seen.errors == []
        assert seen.asked == [written.as_uri()]
        assert seen.page.evaluate("window.hacked") is None


def rows(page: Any) -> list[str]:
    names: list[str] = page.locator("#table [data-item]").all_inner_texts()
    return names


@pytest.mark.browser
def test_the_table_sorts_searches_filters_and_turns(seen: Seen) -> None:
    page = seen.page
    first = rows(page)
    assert len(first) == 50
    assert page.get_by_role("status").inner_text() == "1 to 50 of 60"
    page.get_by_role("button", name="Later").click()
    assert page.get_by_role("status").inner_text() == "51 to 60 of 60"
    assert rows(page) != first
    page.get_by_role("button", name="Score").click()  # from the highest, as the ranking
    assert rows(page) == first
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"
    page.get_by_role("button", name="Score").click()
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    assert rows(page) != first
    page.get_by_label("Search").fill("plain 5")
    fives = [number for number in range(21, 60) if "5" in str(number)]
    assert sorted(rows(page)) == [f"plain {number}" for number in fives]
    page.get_by_role("combobox", name="Gold label").select_option("2")
    assert sorted(rows(page)) == [f"plain {number}" for number in fives if number % 3 == 2]
    page.get_by_label("Search").fill("no such words")
    assert page.get_by_role("status").inner_text() == "No text matches."


@pytest.mark.browser
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


@pytest.mark.browser
@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 390), pytest.param("dark", 1200, marks=pytest.mark.long)]
)
def test_it_is_accessible_and_fits_in_light_and_dark(
    written: Path, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 800}
    with opened(written.as_uri(), color_scheme=scheme, viewport=size) as seen:
        seen.page.wait_for_selector("#table tbody tr")
        seen.page.locator("#table [data-item]").first.click()
        assert violations(seen.page) == []
        assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        assert seen.errors == []
