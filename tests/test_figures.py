from __future__ import annotations

import csv
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from itertools import product
from pathlib import Path

import pytest

from judgeq.errors import RunError
from judgeq.study.simulation import StudyRow
from judgeq.ui.show import study as figures
from judgeq.ui.show.study import Ranked


@dataclass(frozen=True)
class Run(StudyRow):
    strategy: str = "listwise"
    parameters: str = "k=10,rounds=3"
    rating: str = "elo"
    distribution: str = "linear"
    bias: int = 0
    seed: int = 0
    rho: float = 0.9
    pairs: int = 0
    lists: int = 100
    implied_pairs: int = 4500
    cost: float = 500.0
    score: float = 0.8


def study() -> Iterator[Run]:
    """Two strategies on three distributions; the numbers are long, and no two rhos are the same."""
    cases = product(("listwise", "pairwise"), ("elo", "bt"), ("linear", "normal", "binary"))
    for place, (strategy, rating, distribution) in enumerate(cases):
        for bias, seed in product((0, 50, 200), (1, 2)):
            rho = 0.9 - bias / 1000 - place / 70 + seed / 300
            cost = 500 / 3 if strategy == "listwise" else 7000.1
            asked = (0, 33) if strategy == "listwise" else (7000, 0)
            yield Run(
                *(strategy, "rounds=3", rating, distribution, bias, seed, rho),
                *(*asked, 1485 if strategy == "listwise" else 7000, cost, rho - cost / 1e5),
            )


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("figures") / "made" / "here"
    return figures.write(list(study()), folder)


def test_ranked_are_means_over_distributions_biases_and_seeds() -> None:
    rows = [
        Run(seed=1, bias=0, rho=0.9, score=0.5, cost=10, pairs=1, lists=4),
        Run(seed=1, bias=50, rho=0.7, score=0.3, cost=20, pairs=2, lists=4),
        Run(seed=2, bias=0, rho=0.6, score=0.2, cost=30, pairs=3, lists=4),
        Run(seed=2, bias=0, distribution="binary", rho=0.4, score=0.0, cost=40, pairs=4, lists=8),
    ]
    (found,) = figures.ranked(rows)
    # Seed means 0.8 and 0.5: a standard deviation of 0.3/√2, over √2.
    assert found.rho_se == pytest.approx(0.15)
    means = (found.rho, found.score, found.cost, found.pairs, found.lists)
    assert means == pytest.approx((0.65, 0.25, 25, 2.5, 5))
    assert found.runs == 4
    assert figures.ranked(rows[::-1]) == [found]


def test_one_seed_has_no_standard_error() -> None:
    (found,) = figures.ranked([Run(bias=0), Run(bias=50)])
    assert found.rho_se is None


def test_the_best_score_comes_first_and_ties_go_by_name() -> None:
    rows = [
        Run("b", "x", "elo", score=0.1),
        Run("a", "y", "elo", score=0.1),
        Run("a", "x", "elo", score=0.1),
        Run("a", "x", "bt", score=0.1),
        Run("c", "x", "elo", score=0.2, rho=0.1),
    ]
    names = [(one.strategy, one.parameters, one.rating) for one in figures.ranked(rows)]
    ties = [("a", "x", "bt"), ("a", "x", "elo"), ("a", "y", "elo"), ("b", "x", "elo")]
    assert names == [("c", "x", "elo"), *ties]


def test_all_files_are_written_and_nothing_else(written: list[Path]) -> None:
    names = ["rho_by_cost.png", "rho_by_cost.svg", "ranking.csv"]
    assert [path.name for path in written] == names
    assert set(written[0].parent.iterdir()) == set(written)
    for path in written:
        start = {".png": b"\x89PNG", ".svg": b"<?xml"}.get(path.suffix, b"")
        assert path.read_bytes().startswith(start)


def test_the_same_rows_give_the_same_bytes(written: list[Path], tmp_path: Path) -> None:
    import matplotlib

    with matplotlib.rc_context({"font.size": 20, "axes.grid": True, "svg.hashsalt": "other"}):
        before = dict(matplotlib.rcParams)
        again = figures.write(list(study()), tmp_path)
        assert dict(matplotlib.rcParams) == before
    for one, other in zip(written, again, strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_runs_are_drawn_where_they_lie_in_the_panel_of_their_distribution() -> None:
    figure = figures.figure(list(study()))
    assert [axes.get_title() for axes in figure.axes] == ["linear", "normal", "binary"]
    assert len({(axes.get_xlim(), axes.get_ylim()) for axes in figure.axes}) == 1
    assert figure.axes[0].get_xscale() == "log"
    drawn = [point for line in figure.axes[0].lines for point in line.get_xydata().tolist()]  # type: ignore[union-attr]
    rows = [row for row in study() if row.distribution == "linear"]
    assert sorted(drawn) == sorted([row.cost, row.rho] for row in rows)


def test_the_ranking_reads_back(written: list[Path]) -> None:
    order = figures.ranked(list(study()))
    lines = read(written[-1])
    assert list(lines[0]) == [field.name for field in fields(Ranked)]
    for line, one in zip(lines, order, strict=True):
        for text, value in zip(line.values(), astuple(one), strict=True):
            assert type(value)(text) == value


def test_a_file_that_cannot_be_replaced_leaves_no_part(tmp_path: Path) -> None:
    (tmp_path / "rho_by_cost.png").mkdir()
    with pytest.raises(RunError, match="rho_by_cost"):
        figures.write([Run()], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["rho_by_cost.png"]


def test_matplotlib_is_imported_when_drawing_and_pyplot_never(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from judgeq.ui.show import study as figures\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from tests.test_figures import Run\n"
        "figures.write([Run()], Path(sys.argv[1]))\n"
        "assert 'matplotlib' in sys.modules\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(tmp_path)],
        cwd=Path(__file__).parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
