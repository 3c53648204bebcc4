"""What README.md and docs/ show is what happens: commands run, links lead somewhere."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from benchmarks import reference
from judgeq.engine import batch
from judgeq.judge import prices
from judgeq.settings.providers import OPENAI, PREFIXED, PROVIDERS
from tests.cli import REPO, judgeq
from tests.mock import mock
from tests.pages import DOCS, PAGES, TUTORIALS, WRITTEN, Reader, blocks, prose, sentences
from tests.postgres import new_store
from tests.test_providers import standing_in

LONGEST = {"README.md": 12_000, "methods.md": 9_800}
"""Bytes that a page may have; others 8,500."""
WITH_COMMANDS = [name for name in WRITTEN if any(one.language == "sh" for one in blocks(name))]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the runs of the quickstart were made, and those that pages compare."""
    folder = tmp_path_factory.mktemp("before")
    for strategy in ("direct", "pairwise2", "listwise10"):
        judgeq(folder, "run", "demo", "-s", strategy)
    rows = (f"{name},{'yes' if name.endswith('5') else 'no'}" for name in _ids(folder))
    (folder / "gold.csv").write_text("\n".join(["id,label", *rows]) + "\n", "utf-8")
    for block in chain.from_iterable(map(blocks, WRITTEN)):
        if block.title:
            (folder / block.title).write_text(block.text, "utf-8")
    return folder


def _ids(folder: Path) -> list[str]:
    exported = judgeq(folder, "export", "last", "--table", "scores", "--format", "csv").stdout
    return [line.partition(",")[0] for line in exported.splitlines()[1:]]


@pytest.mark.usefixtures("undrawn", "short_waits", "rated_once")
@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_every_command_runs(
    name: str, before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "FIRST_WAIT", 0.05)
    folder = tmp_path / "reader"
    shutil.copytree(before, folder)
    store = new_store() if "postgresql://me@db.example/lab" in WRITTEN[name] else ""
    with mock(tmp_path, "--batch-time", "0") as url:
        named = url.replace("127.0.0.1", "localhost")  # OpenAI's own address is no other's
        for prefix in (*PREFIXED, *PROVIDERS):
            standing_in(monkeypatch, prefix, named if prefix == "openai" else url)
        find = prices.find

        def priced(model: str, *, base_url: str, **others: Any) -> prices.Pricing | None:
            return find(model, base_url=OPENAI if base_url in (url, named) else base_url, **others)

        monkeypatch.setattr(prices, "find", priced)
        reader = Reader(folder, url, store)
        assert sum(map(reader.read, blocks(name)))
        reader.stop()


def test_the_reference_is_what_is_declared() -> None:
    """`make reference` writes it."""
    for name, page in reference.pages().items():
        assert (DOCS / name).read_text(encoding="utf-8") == page, name


def test_every_page_is_short_and_in_the_site() -> None:
    site = tomllib.loads((DOCS / "zensical.toml").read_text("utf-8"))["project"]
    sections = [value for entry in site["nav"] for value in entry.values()]
    listed = list(chain.from_iterable([one] if isinstance(one, str) else one for one in sections))
    tutorials = {f"tutorials/{name}.md" for name in TUTORIALS}
    assert sorted(listed) == sorted(PAGES.keys() - {"README.md"} | tutorials)
    for name, text in WRITTEN.items():
        assert len(text.encode()) <= LONGEST.get(name, 8_500), name


def anchors(path: Path) -> set[str]:
    """What can follow # in a link to a page, as the site names it."""
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", one).strip().lower().replace(" ", "-") for one in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    path = PAGES[name]
    text = re.sub(r"^```.*?^```", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.is_file(), link
        in_site = target.parent in (path.parent, DOCS / "tutorials")
        assert in_site or name == "README.md", f"not in the site: {link}"
        assert not anchor or anchor in anchors(target), link


def test_the_readme_and_the_first_page_list_every_page() -> None:
    for name in PAGES.keys() - {"README.md", "index.md"}:
        assert f"(docs/{name})" in WRITTEN["README.md"], name
        assert f"({name})" in WRITTEN["index.md"], name


def test_no_sentence_stands_twice() -> None:
    texts = {name: prose(name) for name in WRITTEN} | TUTORIALS
    assert all(f"(tutorials/{name}.ipynb)" in WRITTEN["tutorials.md"] for name in TUTORIALS)
    for page in (
        "judgeq/guide.md",
        "prompts/README.md",
        "datasets/README.md",
        "benchmarks/README.md",
    ):
        texts[page] = re.sub(r"```.*?```", "", (REPO / page).read_text("utf-8"), flags=re.DOTALL)
    counted = Counter(chain.from_iterable(map(sentences, texts.values())))
    assert not [sentence for sentence, times in counted.items() if times > 1]
