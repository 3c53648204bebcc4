"""What a report holds: the run's own numbers, everything escaped, no text where none is wanted."""

from __future__ import annotations

import csv
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from judgeq.ui import html, markdown
from judgeq.ui.figures import inline
from judgeq.ui.report import chapters
from judgeq.ui.sections import Chapter, Section, words
from tests.cli import REPO, judgeq, only_run
from tests.fakes import faults
from tests.mock import mock

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

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        attributes = dict(attrs)
        self.elements.append(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [
            value for name, value in attrs if name in ("href", "src", "xlink:href", "srcset")
        ]
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
    """A folder with a run of the demo corpus."""
    folder = tmp_path_factory.mktemp("report")
    judgeq(folder, *JOB)
    return folder


def report(folder: Path, *flags: str) -> str:
    done = judgeq(folder, "report", *flags)
    return (folder / done.stdout.strip()).read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def test_a_page_is_whole_in_itself(folder: Path) -> None:
    page = report(folder)
    structure = Structure()
    structure.feed(page)
    assert structure.open == []
    assert len(set(structure.ids)) == len(structure.ids)
    assert all(link.startswith(("#", "data:image/png")) for link in structure.links)
    assert structure.elements.count("script") == 2
    headings = re.findall(r"<h2 [^>]*>([^<]*)</h2>", page)
    assert headings == [
        "The result",
        "The ranked texts",
        "How sure it is",
        "Gold labels",
        "Judges and positions",
        "For your paper",
    ]
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
def test_a_part_of_many_texts_is_listed_and_says_so(folder: Path) -> None:
    page = report(folder, "--texts", "20")
    data = data_of(page)
    assert len(data["items"]) == 20
    assert len(data["others"]) == 40  # whom they met
    ranks = [item["rank"] for item in data["items"]]
    assert ranks == sorted(ranks)
    assert {1, 2, 3, 4, 57, 58, 59, 60} <= set(ranks)
    assert "Listed are 20 of 60 texts: the 5 highest, the 5 lowest" in page


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


def test_where_files_lie_is_in_nothing_that_is_shared(tmp_path: Path) -> None:
    """Their names are; config.json, which the run is resumed by, holds their paths."""
    home, work = tmp_path / "home-of-anna", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    rows = [f"{row},text {row},{row % 2}" for row in range(12)]
    (home / "mine.csv").write_text("\n".join(("id,text,gold", *rows)))
    (home / "labels.csv").write_text("\n".join(("id,gold", *(f"{row},{row}" for row in range(12)))))
    judgeq(work, "run", "-d", home / "mine.csv", "-s", "pairwise2", "--gold-column", "gold", "-q")
    again = (
        "-s",
        "pairwise2",
        "--gold-column",
        "gold",
        "--cache-dir",
        home / "cache",
        "--seed",
        "2",
    )
    judgeq(work, "run", "-d", home / "mine.csv", *again, "-q", "--no-texts")
    gold = ("--gold", home / "labels.csv")
    shared = [
        judgeq(work, *command, "--json").stdout
        for command in (
            ("evaluate", *gold),
            ("show",),
            ("status",),
            ("runs",),
            ("explain", "last", "3"),
        )
    ]
    shared.append(judgeq(work, "export", "last").stdout)
    for kind in ("html", "md"):
        judgeq(work, "report", "--format", kind, *gold, "-q")
        run = max((work / "runs").iterdir(), key=lambda path: path.stat().st_mtime)
        shared.append((run / f"report.{kind}").read_text())
    assert str(home) in (run / "config.json").read_text()
    for text in shared:
        assert "home-of-anna" not in text
    for name in ("mine.csv", "labels.csv"):
        assert name in shared[-1]


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
    assert "unusable" in page
    assert "timeout" in page


def test_a_wrong_format_is_an_error(folder: Path) -> None:
    said = judgeq(folder, "report", "--format", "pdf", expect=2).stderr
    assert "--format pdf: give html or md." in said


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
    evaluated = json.loads(judgeq(folder, "evaluate", "--json").stdout)
    page = report(folder)
    for one in evaluated["evaluation"]:
        for name in ("pearson", "spearman", "kendall"):
            measure = one["measures"][name]
            text = f"{measure['value']:.3f} [{measure['low']:.3f}, {measure['high']:.3f}]"
            assert f">{text}</td>" in page
    assert f"{evaluated['reliability']['separation']['ssr']:.3f} of the variance" in page
    looked = json.loads(judgeq(folder, "show", "--contested", "--n", "5", "--json").stdout)
    data = data_of(page)
    listed = {item["id"]: item["contested"] for item in data["items"]}
    for item in looked["views"][0]["items"]:
        assert listed[item["id"]] == pytest.approx(item["z"], abs=1e-4)
    with (only_run(folder) / "scores.csv").open(newline="") as file:
        assert {row["id"] for row in csv.DictReader(file)} == listed.keys()


# Words


def paragraph(folder: Path) -> str:
    match = re.search(r"Methods</figcaption><pre[^>]*>(.*?)</pre>", report(folder), re.DOTALL)
    assert match is not None
    return unescape(match[1])


@pytest.mark.usefixtures("undrawn")
def test_texts_judged_alone_have_no_order(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "-s", "direct")
    text = paragraph(tmp_path)
    assert 'were scored one by one for "biased wording".' in text
    assert "60 questions about single texts in 1 round" in text
    assert "the order within a question" not in text
    assert data_of(report(tmp_path))["contested"] is None


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    ("matchmaking", "more"),
    [("similar", ", which is too high where earlier answers decided what"), ("random", ". judgeq")],
)
def test_a_reliability_that_is_too_high_is_said_to_be(
    tmp_path: Path, matchmaking: str, more: str
) -> None:
    judgeq(tmp_path, *JOB, "--matchmaking", matchmaking)
    assert re.search(rf"separation reliability is [0-9.]+{re.escape(more)}", paragraph(tmp_path))


@pytest.mark.usefixtures("undrawn")
def test_models_are_named_with_their_day_and_what_they_were_asked(tmp_path: Path) -> None:
    with mock(tmp_path, "--refused", "0.2") as url:
        server = ("-j", "one", "-j", "two", "-j", "three", "--base-url", url, "--ensemble", "each")
        more = ("--reasons", "--max-invalid", "1")
        judgeq(tmp_path, *JOB, "-s", "listwise10x1", *more, *server)
    text = paragraph(tmp_path)
    assert re.search(r"one, two and three answered \d+ questions about lists of up to 10", text)
    assert re.search(r" in 1 round, begun on \d{4}-\d\d-\d\d \(strategy", text)
    assert ", with a sentence of reason before each verdict;" in text
    assert "Each question was put to each of them." in text
    assert re.search(r'The question was "Below are \d+ texts\. Rank them by [^"]*\." ', text)


@pytest.mark.usefixtures("undrawn")
def test_imported_lists_of_several_sizes_are_of_one_kind(tmp_path: Path) -> None:
    lines = [{"presented": [*range(k)], "ranking": [*range(k)]} for k in (3, 4, 2, 4)]
    (tmp_path / "judged.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    judgeq(tmp_path, "import", "-d", "demo", "judged.jsonl")
    text = paragraph(tmp_path)
    assert "4 judgments of pairs of texts and lists of up to 4 texts, made elsewhere" in text


def test_the_paper_and_the_software_are_cited_as_citation_cff_has_them() -> None:
    cited = yaml.safe_load((REPO / "CITATION.cff").read_text("utf-8"))
    (paper,) = cited["references"]
    of_paper, own = chapters.bibtex().split("@software{judgeq,")
    number = paper["identifiers"][0]["value"].removeprefix("arXiv:")
    for one in (paper["title"], "Haak, Fabian and Schaer, Philipp", number):
        assert f"{{{one}}}" in of_paper
    name, code = cited["authors"][0]["name"], cited["repository-code"]
    for one in (cited["title"], f"{{{name}}}", version("judgeq"), code):
        assert f"{{{one}}}" in own


@pytest.mark.usefixtures("undrawn")
def test_the_title_is_what_the_run_answers(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "-s", "listwise6x1", "--feature", "how <b> it is")
    title = (
        "60 texts of demo ranked by &#34;how &lt;b&gt; it is&#34;, judged by the simulated judge"
    )
    assert f"<title>{title}</title>" in report(tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_a_text_that_is_cut_ends_in_dots_and_gold_is_as_it_was_given(folder: Path) -> None:
    table = report(folder, "--format", "md").split("judge and gold labels disagree most")[1]
    rows = table.split("\n\n")[1].splitlines()[2:]
    assert len(rows) == 10
    assert all(row.endswith("… |") for row in rows)
    assert all(re.search(r" \| [0-5] \| [+-]", row.replace("\\", "")) for row in rows)


# Hostile words


BAD = "<b>&\"'</b></script><!-- [x](javascript:1) `` ``` \x1b[31m \u202e | = *a* _b_ \n# c"


def test_words_stay_words_in_html_and_markdown() -> None:
    section = Section(
        BAD,
        facts=[(BAD, BAD)],
        columns=words(BAD, BAD),
        rows=[(BAD, BAD)],
        notes=[BAD],
        warnings=[BAD],
        blocks=[(BAD, BAD)],
    )
    page = str(html.sections([section, replace(section, folded=True)]))
    structure = Structure()
    structure.feed(page)
    assert structure.open == []
    assert structure.elements.count("details") == 1
    assert not {"b", "script"} & {*structure.elements}
    assert not set(page) & {"\x1b", "\u202e"}
    text = markdown.document(BAD, [Chapter("a", BAD, [section])], "x/")
    assert not set(text) & {"\x1b", "\u202e"}
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert not re.search(r"(?<!\\)[<`*]", outside.replace("> **", "").replace("**", ""))
    assert not re.search(r"(?<!\\)\]\(", outside)
    assert text.count("\n````text\n") == 1  # longer than any fence within


def test_json_in_a_page_ends_no_script() -> None:
    embedded = str(html.embedded({"a": "</script><!--\u2028&"}))
    assert not set(embedded) & {"<", ">", "&", "\u2028"}
    assert json.loads(embedded) == {"a": "</script><!--\u2028&"}


def test_a_figure_takes_the_colours_of_its_page() -> None:
    from matplotlib.figure import Figure

    figure = Figure()
    figure.subplots().plot([1, 2], color="#0072B2")
    svg = inline(figure, "one")
    assert "var(--series-1" in svg
    assert "<style" not in svg
    assert "metadata" not in svg
    assert all(name.startswith("one-") for name in re.findall(r'\bid="([^"]*)"', svg))
    assert all(name.startswith("one-") for name in re.findall(r"url\(#([^)]*)\)", svg))


HOSTILE = "</script></pre><script>x</script><img src=x onerror=x>\x1b[2J\u202e"


def test_a_strangers_run_stays_text(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--reasons")
    run = only_run(tmp_path)
    config = json.loads((run / "config.json").read_text())
    config |= dict.fromkeys(("dataset", "source", "strategy", "licence", "gold_meaning"), HOSTILE)
    config["facts"]["prompt"] = dict.fromkeys(
        ("name", "feature", "system", "pair", "list", "direct"), HOSTILE
    )
    (run / "config.json").write_text(json.dumps(config))
    reply = json.dumps({"reason": HOSTILE, "ranking": []})
    with closing(sqlite3.connect(run / "run.db", isolation_level=None)) as db:
        db.execute("UPDATE items SET id = ? || id WHERE row < 9", (HOSTILE,))
        db.execute("UPDATE calls SET reply = ?", (reply,))
    page = report(tmp_path)
    structure = Structure()
    structure.feed(page)
    assert structure.open == []
    assert structure.elements.count("script") == 2
    assert "img" not in structure.elements
    assert not set(page) & {"\x1b", "\u202e"}
    assert not set(report(tmp_path, "--format", "md")) & {"\x1b", "\u202e"}


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize(
    "prompt", [5, {"name": []}, {"name": "x", "personas": 7}, {"feature": {"a": 1}}, []]
)
def test_facts_that_hold_no_prompt_set_are_no_matter(tmp_path: Path, prompt: object) -> None:
    judgeq(tmp_path, "run", "-d", "synthetic:normal", "--n", "20", "--quiet")
    path = only_run(tmp_path) / "config.json"
    config = json.loads(path.read_text())
    config["facts"] |= {"prompt": prompt, "personas": [["a"]]}
    path.write_text(json.dumps(config))
    assert ">The prompt<" not in report(tmp_path)
