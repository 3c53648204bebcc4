"""What a report says in words: the paragraph for a methods section, what went wrong, its tables."""

from __future__ import annotations

import json
import re
from html import unescape
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from judgeq.engine.scores import Scores
from judgeq.ui.plots import Plots
from tests.cli import REPO, judgeq
from tests.mock import mock

pytestmark = pytest.mark.usefixtures("undrawn")

JOB = ("run", "-d", "demo", "--quiet")


def made(folder: Path, *flags: str) -> dict[str, Any]:
    """The sections of a report by their titles, those without as one."""
    judgeq(folder, "report", "--format", "json", *flags)
    (path,) = folder.glob("runs/*/report.json")
    sections: dict[str, Any] = {}
    for chapter in json.loads(path.read_text())["chapters"]:
        for section in chapter["sections"]:
            sections.setdefault(section["title"] or chapter["title"], section)
    return sections


def paragraph(folder: Path) -> str:
    judgeq(folder, "report")
    (path,) = folder.glob("runs/*/report.html")
    match = re.search(
        r"Methods</figcaption><pre[^>]*>(.*?)</pre>", path.read_text("utf-8"), re.DOTALL
    )
    assert match is not None
    return unescape(match[1])


# The paragraph


def test_texts_judged_alone_have_no_order_and_no_connection(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--sample", "30", "-s", "direct")
    text = paragraph(tmp_path)
    assert 'were scored one by one for "biased wording".' in text
    assert "30 questions about single texts in 1 round" in text
    assert "the order within a question" not in text
    facts = [fact for one in made(tmp_path).values() for fact in one["facts"]]
    assert ["judgments", "1.0 per text (1 to 1)"] in facts
    assert "connected" not in dict(facts)


def test_a_reliability_that_is_too_high_is_said_to_be(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--sample", "60", "--matchmaking", "similar")
    text = paragraph(tmp_path)
    assert re.search(
        r"The median split-half correlation is \S+ \(100 splits\)\. The scale separation reliability "
        r"is \S+, which is too high where earlier answers decided what was asked later, as here",
        text,
    )


def test_a_reliability_that_may_be_believed_has_no_more_beside_it(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--sample", "60", "-s", "listwise10", "--matchmaking", "random")
    assert re.search(r"separation reliability is [0-9.]+\. judgeq", paragraph(tmp_path))


def test_models_are_named_with_their_day_and_what_they_were_asked(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        server = ("-j", "one", "-j", "two", "-j", "three", "--base-url", url, "--ensemble", "each")
        judgeq(tmp_path, *JOB, "--sample", "20", "-s", "listwise10x1", "--reasons", *server)
    text = paragraph(tmp_path)
    assert (
        "one, two and three answered 6 questions about lists of up to 10 texts in 1 round" in text
    )
    assert re.search(r" in 1 round (on|from) \d{4}-\d\d-\d\d( to \S+)? \(strategy", text)
    assert ", with a sentence of reason before each verdict;" in text
    assert "Each question was put to each of them." in text
    assert re.search(r'The question was "Below are \d+ texts\. Rank them by [^"]*\." ', text)


def test_pairs_of_one_judge_are_put_to_one_of_several(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        server = ("-j", "one", "-j", "two", "--base-url", url)
        judgeq(tmp_path, *JOB, "--sample", "12", "-s", "pairwise2", *server)
    text = paragraph(tmp_path)
    assert "Each question was put to one of them, drawn at random and equally often." in text
    assert (
        'The question was "Below are two texts. Which of them is worded with more bias?" ' in text
    )


def test_imported_lists_of_several_sizes_are_of_one_kind(tmp_path: Path) -> None:
    lines = [{"presented": [*range(k)], "ranking": [*range(k)]} for k in (3, 4, 2, 4)]
    (tmp_path / "judged.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    judgeq(tmp_path, "import", "-d", "demo", "judged.jsonl")
    text = paragraph(tmp_path)
    assert "4 judgments of pairs of texts and lists of up to 4 texts, made elsewhere" in text


def test_the_paper_and_the_software_are_cited_as_citation_cff_has_them(tmp_path: Path) -> None:
    cited = yaml.safe_load((REPO / "CITATION.cff").read_text("utf-8"))
    (paper,) = cited["references"]
    judgeq(tmp_path, *JOB, "--sample", "12", "-s", "listwise6x1")
    entries = dict(made(tmp_path)["For your paper"]["blocks"])["BibTeX"]
    of_paper, own = entries.split("@software{judgeq,")
    assert f"{{{paper['title']}}}" in of_paper
    assert "{Haak, Fabian and Schaer, Philipp}" in of_paper
    number = paper["identifiers"][0]["value"].removeprefix("arXiv:")
    assert f"= {{{number}}}" in of_paper
    assert f"{{{cited['title']}}}" in own
    assert f"{{{{{cited['authors'][0]['name']}}}}}" in own
    assert f"version = {{{version('judgeq')}}}" in own
    assert f"url     = {{{cited['repository-code']}}}" in own


# What went wrong


@pytest.fixture(scope="module")
def troubled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which one in three replies refuses, and some calls fail."""
    folder = tmp_path_factory.mktemp("troubled")
    with mock(folder, "--refused", "0.5", "--errors", "0.1") as url:
        server = ("-j", "m", "--base-url", url, "--price", "1,1")
        flags = ("-s", "pairwise3", "--max-invalid", "0.9")
        judgeq(folder, *JOB, "--sample", "40", *flags, *server)
    return folder


def test_what_became_of_calls_is_in_words(troubled: Path) -> None:
    sections = made(troubled)
    names = [name for name, _ in sections["Calls without a verdict"]["facts"]]
    assert "server error" in names
    assert "unusable reply" in names
    assert not any("_" in name for name in names)


def test_questions_without_a_verdict_are_listed_with_what_was_said(troubled: Path) -> None:
    section = made(troubled)["Questions without a verdict"]
    assert section["columns"][-1] == "reply or error"
    assert len(section["rows"]) == 10
    assert section["notes"] == ["Only the first 10 are listed."]
    jobs = [row[0] for row in section["rows"]]
    assert jobs == sorted(jobs)
    for _, number, calls, outcome, said in section["rows"]:
        assert number in (1, 2, 3)
        assert calls >= 1
        assert outcome in ("unusable reply", "server error")
        assert said
    without = made(troubled, "--no-texts")["Questions without a verdict"]
    assert "reply or error" not in without["columns"]
    assert "rank these" not in str(without["rows"])
    assert all(len(row) == len(without["columns"]) == 4 for row in without["rows"])


# Tables and figures


def test_a_text_that_is_cut_ends_in_dots_and_gold_is_as_it_was_given(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--sample", "60")
    judgeq(tmp_path, "report", "--format", "md")
    (path,) = tmp_path.glob("runs/*/report.md")
    table = path.read_text("utf-8").split("judge and gold labels disagree most")[1]
    rows = table.split("\n\n")[1].splitlines()[2:]
    assert len(rows) == 10
    assert all(row.endswith("… |") for row in rows)
    assert all(re.search(r" \| [0-5] \| [+-]", row.replace("\\", "")) for row in rows)


def test_contested_items_are_those_of_show(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--sample", "60")
    view = judgeq(tmp_path, "show", "--contested", "--n", "5", "--json").stdout
    shown = json.loads(view)["views"][0]["items"]
    judgeq(tmp_path, "report", "--format", "json")
    (path,) = tmp_path.glob("runs/*/report.json")
    texts = json.loads(path.read_text())["texts"]
    assert texts["contested"] == "z"
    listed = {item["id"]: item["contested"] for item in texts["items"]}
    assert len(shown) == 5
    for item in shown:
        assert listed[item["id"]] == pytest.approx(item["z"], abs=1e-4)
    assert max(listed.values()) == pytest.approx(shown[0]["z"], abs=1e-4)


def test_items_judged_alone_once_are_not_contested(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--sample", "20", "-s", "direct")
    judgeq(tmp_path, "report", "--format", "json")
    (path,) = tmp_path.glob("runs/*/report.json")
    texts = json.loads(path.read_text())["texts"]
    assert texts["contested"] is None
    assert {item["contested"] for item in texts["items"]} == {None}


def _plots(n: int, texts: list[str] | None = None) -> Plots:
    values = np.arange(n, dtype=np.float64)
    scores = Scores(
        ids=[str(at) for at in range(n)],
        ratings={"direct": values},
        matches=np.ones(n, np.int32),
        wins=values,
        left_after=np.zeros(n, np.int32),
        gold=values % 3,
        component=np.ones(n, np.int32),
        texts=texts,
    )
    return Plots(SimpleNamespace(scores=scores))  # type: ignore[arg-type]


def test_lengths_far_apart_have_few_ticks() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    _plots(3, ["abcde", "a" * 200, "a" * 100_000]).length(axes)
    low, high = axes.get_xlim()
    assert len([tick for tick in axes.get_xticks() if low <= tick <= high]) <= 6


def test_few_gold_labels_have_their_medians_and_ticks() -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    _plots(9).gold(axes)
    assert axes.get_xticks().tolist() == [0, 1, 2]
    (medians,) = axes.collections
    assert [path.vertices[0][1] for path in medians.get_paths()] == [3, 4, 5]  # type: ignore[index]


@pytest.mark.parametrize(
    ("feature", "question"),
    [
        ("how slanted the wording is", "How slanted is the wording?"),
        ("how urgent the demands of the writer are", "How urgent are the demands of the writer?"),
        ("urgency", "Urgency:"),
    ],
)
def test_the_title_asks_the_question(tmp_path: Path, feature: str, question: str) -> None:
    judgeq(tmp_path, *JOB, "--sample", "12", "-s", "listwise6x1", "--feature", feature)
    judgeq(tmp_path, "report", "--format", "json")
    (path,) = tmp_path.glob("runs/*/report.json")
    title = json.loads(path.read_text())["title"]
    assert title == f"{question} 12 texts ranked by a simulated judge"


# The appendix


@pytest.mark.parametrize("kind", ["html", "md", "json"])
def test_an_appendix_has_what_a_paper_needs_and_no_table_of_texts(
    tmp_path: Path, kind: str
) -> None:
    judgeq(tmp_path, *JOB, "--sample", "60")
    done = judgeq(tmp_path, "report", "--appendix", "--format", kind)
    path = tmp_path / done.stdout.strip()
    assert path.name == f"appendix.{kind}"
    text = path.read_text("utf-8")
    parts = ["Methods", "The prompt", "The scale", "Reliability and checks"]
    places = [text.rindex(part) for part in parts]
    assert places == sorted(places)
    assert "60 texts of the dataset demo were put on a scale" in text
    assert "<script" not in text
    assert not list(tmp_path.glob("runs/*/report.*"))


# Checks


def test_only_unexpected_judgments_are_listed_and_positions_are_folded_away(tmp_path: Path) -> None:
    judgeq(tmp_path, *JOB, "--sample", "60", "--matchmaking", "similar")
    judgeq(tmp_path, "report")
    (path,) = tmp_path.glob("runs/*/report.html")
    page = path.read_text("utf-8")
    evaluated = json.loads(judgeq(tmp_path, "evaluate", "--json").stdout)
    slots = evaluated["slots"]
    assert slots["favoured"] is slots["slighted"] is None
    assert re.search(r"<details><summary>How often each position wins", page)
    assert 'class="good"' in page
    surprises = [one["surprise"] for one in evaluated["misfit"]["least_expected"]]
    assert max(surprises) < 1.6
    assert "Judgments least expected" not in page
