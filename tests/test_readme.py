"""What the README, the quickstart and the page about Python show is what happens. test_docs.py runs the
commands of all pages."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from judgeq.datasets import DatasetInfo
from tests.cli import REPO, environment, judgeq
from tests.pages import DOCS, WRITTEN, blocks

README = WRITTEN["README.md"]


def test_the_main_commands_output_is_real(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```console\n\$ judgeq (.*?)```", README, re.DOTALL)
    command, output = shown.split("\n", 1)
    done = judgeq(tmp_path, *command.split())
    assert [line.rstrip() for line in done.stdout.splitlines()] == output.splitlines()


def test_the_tour_can_be_walked(tmp_path: Path) -> None:
    tours = [one.text for one in blocks("quickstart.md") if "judgeq run demo" in one.text]
    lines = [shlex.split(line, comments=True) for line in "".join(tours).splitlines()]
    outputs = [judgeq(tmp_path, *words[1:]).stdout for words in lines]
    assert len(outputs) > 8
    assert outputs[0] == outputs[1]
    assert outputs[lines.index(["judgeq", "runs"])].count("finished") == 2


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


def python(folder: Path, code: str) -> str:
    """What a piece of Python prints, run in `folder`."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def snippet(name: str) -> str:
    """The Python of a page."""
    (found,) = (one.text for one in blocks(name) if one.language == "python")
    return found


def test_the_python_snippet_runs(tmp_path: Path) -> None:
    shown = python(tmp_path, snippet("python.md"))
    first, *_, plan = shown.splitlines()
    assert re.search(r"^REHEARSAL: python-listwise4-REHEARSAL-\w+: finished", first)
    assert re.search(r"^3  3 +\d +Nice weather\.$", shown, re.MULTILINE)
    assert re.search(
        r"^school-uniform-5 7\.\d+ 1\.\d+\nschool-uniform-5 in demo-", shown, re.MULTILINE
    )
    assert re.fullmatch(r"<Estimate python-listwise4-gpt-5-mini-\w+: \d+ calls, \$.*>", plan)


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
    assert README.index("docs/scale.svg") < README.index("\n## ")
    for name in linked:
        picture = (DOCS / name).read_text(encoding="utf-8")
        root = ElementTree.fromstring(picture)
        assert root.tag.endswith("}svg")
        assert len(picture.encode()) < 150_000
        assert not {element.tag.rpartition("}")[2] for element in root.iter()} & {
            *("script", "foreignObject", "image"),
        }
        references = re.findall(r"""(?:href="|url\(|@import)["']?([^"')]*)""", picture)
        assert not [one for one in references if not one.startswith("#")]


def test_its_pictures_can_be_drawn_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import pictures

    for name in ("DASHBOARD", "SCALE"):
        monkeypatch.setattr(pictures, name, tmp_path / f"{name}.svg")
    pictures.main()
    words = ElementTree.parse(tmp_path / "DASHBOARD.svg").getroot().itertext()
    shown = " ".join("".join(words).split())
    assert "round 3/3" in shown
    assert "simulated" in shown
    assert len((tmp_path / "SCALE.svg").read_bytes()) > 50_000
