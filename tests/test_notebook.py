"""Results in a notebook, and the figures drawn from them; and the notebooks of docs/tutorials/, which
print what is kept of them."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import judgeq
from benchmarks import tutorials
from judgeq.ui import figures
from tests import python
from tests.test_api import frame_of
from tests.test_report import Structure

HOSTILE = "</style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}\x1b[31m\u202e"


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MPLBACKEND", "agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


def run(folder: Path, dataset: Any = "demo", **settings: Any) -> judgeq.Result:
    return python.run(dataset, runs_dir=folder / "runs", progress=False, **settings)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> judgeq.Result:
    return run(tmp_path_factory.mktemp("notebook"), sample=60)


def shown(result: Any) -> str:
    """What a notebook shows: whole elements, nothing that runs or is asked for."""
    page: str = result._repr_html_()
    structure = Structure()
    structure.feed(page)
    assert structure.open == structure.ids == structure.links == []
    assert not {"script", "img", "iframe", "link", "svg"} & {*structure.elements}
    assert structure.elements[:2] == ["div", "style"]
    assert structure.elements.count("style") == 1
    return page


def test_what_run_open_and_resume_return_shows_itself(result: judgeq.Result) -> None:
    page = shown(result)
    assert "60 texts of demo ranked" in page
    assert "Gold labels" in page
    again = judgeq.open_run(result.run.id, runs_dir=result.run.scores.parents[1])
    assert type(again) is type(result) is judgeq.Result
    for one in (result, again):
        assert isinstance(one.scores, judgeq.Scores)
        assert shown(one.scores).count("<tr>") == 1 + 7
        assert ">text</th>" in shown(one.scores)
    assert "plot" in dir(result)
    assert replace(result)._repr_html_() == page


def test_hostile_texts_and_ids_stay_text(tmp_path: Path) -> None:
    rows = range(12)
    ids, texts = [f"{row}{HOSTILE}" for row in rows], [f"{HOSTILE} {row}" for row in rows]
    result = run(tmp_path, frame_of(id=ids, text=texts, g=rows), gold_column="g")
    info = result.info.model_copy(update={"dataset": HOSTILE, "judge": HOSTILE})
    for page in (shown(replace(result, info=info)), shown(result.scores)):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert "{{7*7}}" in page
        assert not {"\x1b", "\u202e"} & {*page}


@pytest.mark.parametrize("name", sorted({*figures.NAMES} - {"link"}))
def test_a_figure_is_drawn_into_axes_of_ours_or_the_users(name: str, result: judgeq.Result) -> None:
    from matplotlib import pyplot
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots(2)[1]
    draw = getattr(result.plot, name)
    assert draw(axes) is axes
    assert axes.has_data()
    assert axes.get_xlabel()
    assert not figure.axes[0].has_data()
    assert not pyplot.get_fignums()
    own = draw()
    assert own.figure is pyplot.gcf()
    assert draw.__doc__


def test_a_figure_shows_the_runs_numbers(result: judgeq.Result) -> None:
    scores = result.scores
    bars = result.plot.scale().patches
    assert sum(bar.get_height() for bar in bars) == 60  # type: ignore[attr-defined]
    (line,) = result.plot.gold().lines
    assert np.array_equal(line.get_xydata(), np.stack([scores.gold, scores.ratings["pl"]], 1))
    assert len(result.plot.settling().lines[0].get_xdata()) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "name", "why"),
    [
        ({"strategy": "direct", "latent_column": "g"}, "intervals", "has no standard errors"),
        ({"latent_column": "g"}, "gold", "no judged item has a gold label"),
    ],
)
def test_what_cannot_be_drawn_says_why(settings: Any, name: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "d.csv"
    file.write_text("id,text,g\n" + "".join(f"{n},t {n},{n % 5}\n" for n in range(20)))
    result = run(tmp_path, file, **settings)
    with pytest.raises(judgeq.UsageError, match=f"plot.{name}: .*{why}"):
        getattr(result.plot, name)()
    assert result.plot.scale().has_data()
    shown(result)


@pytest.mark.long
def test_a_notebook_in_a_real_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MPLBACKEND")
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    how = f"sample=20, strategy='listwise10x2', runs_dir={str(tmp_path)!r}"
    first = (
        f"import asyncio, judgeq\nasyncio.get_running_loop()\nresult = judgeq.run('demo', {how})"
    )
    cells = [first, "result", "result.plot.settling()"]
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbclient.NotebookClient(notebook, kernel_name="python3", timeout=60).execute()
    ran, showed, drew = (cell.outputs for cell in notebook.cells)
    progress = "".join(output.text for output in ran if output.output_type == "stream")
    assert "round 2/2 rated · 2 done" in progress
    assert showed[0].data["text/plain"].startswith("<Result demo-listwise10x2")
    assert showed[0].data["text/html"].startswith('<div class="judgeq">')
    kinds = [name for output in drew for name in output.data]
    assert kinds == ["text/plain", "text/plain", "image/png"]


NOTEBOOKS = {path.stem: path for path in tutorials.NOTEBOOKS}
DRAWN_BY_LOT = {"people"}
"""Notebooks whose numbers depend on links, which are new each time."""


def printed(notebook: dict[str, Any]) -> list[str]:
    outputs = [one for cell in notebook["cells"] for one in cell.get("outputs", ())]
    return ["".join(one.get("text") or one["data"]["text/plain"]) for one in outputs]


def anonymous(texts: list[str]) -> list[str]:
    """Without the part of a run's id that the port of a server decides."""
    return [re.sub(r"(?<=-mock-)[0-9a-f]{10}", "", text) for text in texts]


@pytest.mark.long
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_tutorial_prints_what_is_kept(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MPLBACKEND")
    for needed in ("nbclient", "ipykernel", "pandas", "openpyxl"):
        pytest.importorskip(needed)
    kept = printed(json.loads(NOTEBOOKS[name].read_text("utf-8")))
    now = printed(tutorials.executed(NOTEBOOKS[name], tmp_path))
    assert len(now) == len(kept) >= 3
    if name not in DRAWN_BY_LOT:
        assert anonymous(now) == anonymous(kept)


def test_a_tutorial_is_a_page_with_all_that_it_shows(tmp_path: Path) -> None:
    (tmp_path / "tutorials").mkdir()
    listing = tmp_path / "tutorials.md"
    listing.write_text("[one](tutorials/people.ipynb)", "utf-8")
    tutorials.write_pages(tmp_path)
    assert listing.read_text("utf-8") == "[one](tutorials/people.md)"
    for name, path in NOTEBOOKS.items():
        page = (tmp_path / "tutorials" / f"{name}.md").read_text("utf-8")
        notebook = json.loads(path.read_text("utf-8"))
        for cell in notebook["cells"]:
            assert "".join(cell["source"]) in page
        for text in printed(notebook):
            assert text.splitlines()[-1] in page or "<Figure" in text
        assert f"({path.name})" in page
    headlines = (tmp_path / "tutorials" / "headlines.md").read_text("utf-8")
    assert "](data:image/png;base64," in headlines


def test_figures_and_an_estimate_show_themselves(result: judgeq.Result, tmp_path: Path) -> None:
    page = result.plot._repr_html_()
    images = re.findall(r'<img alt="(\w+)" src="data:image/png;base64,[\w+/=]{1000,}">', page)
    assert {"scale", "intervals", "gold"} <= {*images}
    assert "link" not in images, "there is nothing to draw"
    estimate = judgeq.estimate("demo", judge="gpt-5-mini", runs_dir=tmp_path / "runs")
    assert "gpt-5-mini" in shown(estimate)
