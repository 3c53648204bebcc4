"""What README.md and docs/ show is what happens: commands and Python run, links lead somewhere."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from benchmarks import reference
from judgeq.datasets import DatasetInfo
from judgeq.engine import batch
from judgeq.judge import prices
from judgeq.settings.providers import OPENAI, PREFIXED, PROVIDERS
from tests.cli import (
    LONGEST,
    REPO,
    command,
    commands,
    environment,
    exact_columns,
    judgeq,
    python,
    started,
)
from tests.mock import mock
from tests.postgres import new_store
from tests.test_providers import standing_in

DOCS = REPO / "docs"
GENERATED = {"cli.md", "settings.md"}
PAGES = {"README.md": REPO / "README.md", **{path.name: path for path in sorted(DOCS.glob("*.md"))}}
WRITTEN = {name: path.read_text("utf-8") for name, path in PAGES.items() if name not in GENERATED}
FENCE = re.compile(r'^```(\w*)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
SIZES = {"README.md": 12_000, "methods.md": 15_000}
"""Bytes that a page may have; others 11,000."""
OTHERS = {"uv", "pip", "make", "ssh", "sbatch", "scancel", "kubectl"}
"""Programs that are not judgeq's, and not run."""
PARSED = {
    "workers": "there is no cluster",
    "reproduce": "the published judgments aren't part of the repository: test_simulation.py",
}
"""Commands whose flags are only read here, and why."""
QUICK = {
    "evaluate": ("--resamples=20", "--splits=4"),
    "compare": ("--resamples=20",),
    "report": ("--resamples=20",),
}
"""Flags by which a command takes less time; the numbers aren't looked at."""
SERVERS = ("serve", "mock-server")
"""Commands that go on until they are stopped; so does a run that people judge."""


class Block(NamedTuple):
    """What stands between fences; `title` is the file that it shows."""

    language: str
    title: str
    text: str


def blocks(name: str) -> list[Block]:
    return [Block(*found.groups(default="")) for found in FENCE.finditer(WRITTEN[name])]


class Reader:
    """Somebody who has a folder, follows a page from top to bottom, and types what stands there."""

    def __init__(self, folder: Path, url: str, store: str) -> None:
        self.folder = folder
        self.url = url
        self.real = {"http://127.0.0.1:8000/v1": url, "postgresql://me@db.example/lab": store}
        providers = (*PROVIDERS.values(), *PREFIXED.values())
        keys = {one.key for one in providers if one.key} | {"JUDGEQ_API_KEY"}
        self.variables = dict.fromkeys(keys, "sk-0123456789abcdef")
        self.servers = list[subprocess.Popen[str]]()
        binary = folder / "bin" / "judgeq"
        binary.parent.mkdir()
        binary.write_text(f'#!/bin/sh\nexec {shlex.join(command())} "$@"\n')
        binary.chmod(0o755)

    def read(self, block: Block) -> int:
        """Write the file, or run the commands, that a block shows; how many commands those are."""
        if block.title:
            self._write(block.title, self._as_here(block.text))
        if block.language != "sh":
            return 0
        lines = block.text.replace("\\\n", "").splitlines()
        return sum(self._run(self._as_here(line)) for line in lines)

    def stop(self) -> None:
        for server in self.servers:
            server.send_signal(signal.SIGINT)
        for server in self.servers:
            output, _ = server.communicate(timeout=LONGEST)
            assert server.returncode in (0, 5), output

    def _as_here(self, text: str) -> str:
        for shown, real in self.real.items():
            text = text.replace(shown, real)
        return text

    def _write(self, name: str, text: str) -> None:
        """A last line of "…" stands for more rows."""
        if text.endswith("\n…\n"):
            text = text.removesuffix("…\n")
            text += "".join(f"more-{i},Message {i} is about {i % 7}.\n" for i in range(60))
        (self.folder / name).write_text(text, "utf-8")

    def _run(self, line: str) -> int:
        words = shlex.split(line, comments=True)
        if not words or words[0] in OTHERS:
            return 0
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            self.variables.setdefault(name, value)
            return 0
        if words[0] != "judgeq" or "|" in words:
            self._in_a_shell(line)
            return 1
        end = words.index(">") if ">" in words else len(words)
        name, arguments = _command(words[1:end])
        if name in PARSED:
            commands()[name].make_context(name, arguments)
        elif name in SERVERS or (name == "run" and "--judge people" in line):
            self._start(*words[1:end])
        else:
            expected = re.search(r"# .*exit code (\d)", line)
            code = int(expected[1]) if expected else 0
            given = (*words[1:end], *QUICK.get(name, ()))
            done = judgeq(self.folder, *given, expect=code, variables=self.variables)
            if ">" in words:
                self._write(words[end + 1], done.stdout)
        return 1

    def _in_a_shell(self, line: str) -> None:
        variables = environment(self.folder) | self.variables
        variables["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        how: dict[str, Any] = {"cwd": self.folder, "env": variables, "capture_output": True}
        done = subprocess.run(["bash", "-ec", line], **how, check=False, text=True)
        assert done.returncode == 0, (line, done.stderr)

    def _start(self, *words: str) -> None:
        """Start what goes on until it is stopped, and wait until it says where it listens. A process of
        its own knows the addresses of real providers, so it is told another."""
        if "gpt-5-mini" in words:
            words += ("--base-url", self.url, "--price", "0.25,2")
        all_to_one = ("sh", "-c", 'exec "$@" 2>&1', "sh")
        served = command(*words, "--port", "0")
        process = started(self.folder, *all_to_one, *served, variables=self.variables)
        assert process.stdout is not None
        output = ""
        while "http://" not in output:
            output += (line := process.stdout.readline())
            assert line, output
        self.servers.append(process)


def _command(words: list[str]) -> tuple[str, list[str]]:
    """The name of a command, which may be of several words, and what follows it."""
    known = commands()
    count = max(n for n in range(4) if " ".join(words[:n]) in {"", *known})
    assert count or words[0].startswith("-"), words
    return " ".join(words[:count]), words[count:]


WITH_COMMANDS = [name for name in WRITTEN if any(one.language == "sh" for one in blocks(name))]


def written_commands(name: str) -> Iterator[list[str]]:
    """The commands of a page that are judgeq's, as words, but for those that are to fail."""
    for block in blocks(name):
        for line in block.text.replace("\\\n", "").splitlines() if block.language == "sh" else ():
            words = shlex.split(line, comments=True)
            if words[:1] == ["judgeq"] and "exit code" not in line:
                end = next((at for at, word in enumerate(words) if word in (">", "|", "&")), None)
                yield words[1:end]


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_every_command_has_these_flags(name: str) -> None:
    for words in written_commands(name):
        found, arguments = _command(words)
        if found:  # and no `judgeq --version`
            commands()[found].make_context(found, arguments).close()


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the runs of the quickstart were made, and those that pages compare."""
    folder = tmp_path_factory.mktemp("before")
    for strategy in ("direct", "pairwise2", "listwise10"):
        judgeq(folder, "run", "demo", "-s", strategy)
    names = exact_columns(max((folder / "runs").iterdir()))["id"]
    rows = (f"{name},{'yes' if name.endswith('5') else 'no'}" for name in names)
    (folder / "gold.csv").write_text("\n".join(["id,label", *rows]) + "\n", "utf-8")
    for block in chain.from_iterable(map(blocks, WRITTEN)):
        if block.title:
            (folder / block.title).write_text(block.text, "utf-8")
    return folder


FIRST_READ = ("README.md", "quickstart.md", "growing.md")


@pytest.mark.usefixtures("undrawn", "short_waits", "rated_once")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in FIRST_READ else pytest.mark.long)
        for name in WITH_COMMANDS
    ],
)
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
    tutorials = {f"tutorials/{path.stem}.md" for path in (DOCS / "tutorials").glob("*.ipynb")}
    assert sorted(listed) == sorted(PAGES.keys() - {"README.md"} | tutorials)
    for name, text in WRITTEN.items():
        assert len(text.encode()) <= SIZES.get(name, 11_000), name


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


def test_the_main_commands_output_is_real(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```console\n\$ judgeq (.*?)```", WRITTEN["README.md"], re.DOTALL)
    command, output = shown.split("\n", 1)
    done = judgeq(tmp_path, *command.split())
    assert [line.rstrip() for line in done.stdout.splitlines()] == output.splitlines()


def test_the_example_of_a_prompt_set_is_one(tmp_path: Path) -> None:
    (example,) = (one for one in blocks("features-and-prompts.md") if one.language == "toml")
    (tmp_path / "my.toml").write_text(example.text, encoding="utf-8")
    shown = judgeq(tmp_path, "list", "prompts", "my.toml", "-d", "demo").stdout
    assert "Rank them by how urgent" in shown


def test_the_example_of_a_dataset_is_one() -> None:
    text = (REPO / "datasets" / "README.md").read_text("utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    example = example.replace("…", "0" * 64)
    corpus = DatasetInfo.model_validate({"name": "messages", **tomllib.loads(example)})
    assert {*DatasetInfo.model_fields} - {"where"} == corpus.model_fields_set


def snippet(name: str) -> str:
    (found,) = (one.text for one in blocks(name) if one.language == "python")
    return found


def test_the_python_snippet_runs(tmp_path: Path) -> None:
    shown = python(tmp_path, snippet("python.md"))
    first, *_, plan = shown.splitlines()
    assert re.search(r"^REHEARSAL: python-listwise4-REHEARSAL-\w+: finished", first)
    assert re.search(r"^3  3 +\d +Nice weather\.$", shown, re.MULTILINE)
    placed = r"^school-uniform-5 \d\.\d+ \d\.\d+\nschool-uniform-5 in demo-"
    assert re.search(placed, shown, re.MULTILINE)
    assert re.fullmatch(r"<Estimate python-listwise4-gpt-5-mini-\w+: \d+ calls, \$.*>", plan)


@pytest.mark.usefixtures("undrawn")
def test_the_readmes_python_runs(tmp_path: Path) -> None:
    shown = python(tmp_path, snippet("README.md"))
    assert re.search(r"^3  3 +\d +Nice weather\.$", shown, re.MULTILINE)
    assert "Nice weather." in (tmp_path / "report.html").read_text("utf-8")


def test_its_pictures_are_there_and_ask_nobody_for_anything() -> None:
    linked = {
        picture.removeprefix("docs/")
        for text in WRITTEN.values()
        for picture in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text)
    }
    assert linked == {path.name for path in DOCS.glob("*.svg")}
    assert WRITTEN["README.md"].index("docs/scale.svg") < WRITTEN["README.md"].index("\n## ")
    for name in linked:
        picture = (DOCS / name).read_text(encoding="utf-8")
        root = ElementTree.fromstring(picture)
        assert root.tag.endswith("}svg")
        assert len(picture.encode()) < 150_000
        tags = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not tags & {"script", "foreignObject", "image"}
        references = re.findall(r"""(?:href="|url\(|@import)["']?([^"')]*)""", picture)
        assert not [one for one in references if not one.startswith("#")]
