"""The simulation study: its grids, one case, going on after a kill, and the tables it writes; and the
published recordings, which may be pickles."""

import hashlib
import json
import multiprocessing
import os
import pickle
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from filelock import FileLock

from judgeq import strategies
from judgeq.errors import DataError, StoppedError, UsageError
from judgeq.imports.recordings import Judgment
from judgeq.settings.run import Simulation
from judgeq.study import reproduction, simulation
from judgeq.study.simulation import Case, Grid, StudyRow, load_grid, scored, simulate, study
from judgeq.types import Floats, Verdict
from tests.build import SHARED, needs_recordings
from tests.cli import judgeq

PAPER, RANDOM = load_grid("paper"), load_grid("paper-random")
SMALL = Grid(
    n=30,
    distributions=("linear", "binary"),
    bias=(0, 5),
    strategies=("listwise5x2", "streak:r=2,d=2"),
    seeds=2,
)


def nothing(done: int, total: int) -> None:
    pass


def cases_of(folder: Path) -> Path:
    (path,) = folder.glob("cases-*.jsonl")
    return path


@pytest.mark.parametrize("grid", [PAPER, RANDOM], ids=["paper", "paper-random"])
def test_the_grid_of_the_paper(grid: Grid) -> None:
    assert len(grid.strategies) == len(set(grid.strategies)) == 22
    assert grid.distributions == ("linear", "bimodal", "normal", "binary")
    assert (grid.n, grid.bias, grid.seeds, grid.ratings) == (1000, (0, 50, 200), 2, ("elo", "bt"))
    assert len(grid.cases()) == 22 * 4 * 3 * 2 == 528
    assert grid.judge == Simulation(sim_model="rrt")
    kinds = Counter(strategies.parse(text).kind for text in grid.strategies)
    assert kinds == {"streak": 7, "tail": 7, "pairwise": 1, "listwise": 7}


def test_a_grid_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'n = 50\ndistributions = ["normal"]\nbias = [0, 7]\nstrategies = ["listwise5x2"]\n'
        'ratings = ["bt-mm"]\nseeds = 3\nsigma = 1.5\n[judge]\nsim_model = "vg"\n'
    )
    grid, judge = load_grid(str(path)), Simulation(sim_model="vg")
    where: dict[str, Any] = {"distributions": ("normal",), "bias": (0, 7), "ratings": ("bt-mm",)}
    how: dict[str, Any] = {"strategies": ("listwise5x2",), "sigma": 1.5, "judge": judge}
    assert grid == Grid(n=50, seeds=3, **where, **how)
    assert len(grid.cases()) == 6
    path.write_text('strategies = ["pairwise24"]')
    assert load_grid(str(path)) == PAPER.model_copy(update={"strategies": ("pairwise24",)})


LISTS = 'strategies = ["listwise10"]\n'


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("n = [1", "is no valid TOML"),
        ("", "strategies: Field required"),
        (LISTS + "rounds = 3", "rounds: Extra inputs are not permitted. A grid has n, distr"),
        (LISTS + 'distributions = ["flat"]', "distributions.0: Input should be 'linear', 'bimo"),
        (LISTS + "bias = [0, -1]", "bias.1: Input should be greater than or equal to 0"),
        (LISTS + 'ratings = ["glicko"]', "Input should be 'elo', 'pl', 'bt', 'bt-mm' or 'hybrid'"),
        (LISTS + "sigma = nan", "sigma: Input should be a finite number"),
        (LISTS + "[judge]\nsim_accuracy = 0.99", "judge: --sim-accuracy must be below --sim-pmax"),
    ],
)
def test_a_grid_that_can_not_be(tmp_path: Path, toml: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(toml)
    with pytest.raises(DataError) as error:
        load_grid(str(path))
    assert str(error.value).startswith(f"--grid {path}")
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        ("swiss", "no such strategy"),
        ("direct", "ranks by comparisons"),
        ("listwise40", "larger than the dataset"),
    ],
)
def test_a_strategy_that_can_not_be(tmp_path: Path, strategy: str, message: str) -> None:
    grid = SMALL.model_copy(update={"strategies": ("pairwise3", strategy)})
    with pytest.raises(UsageError, match=message):
        study(grid, tmp_path / "out", 1, nothing)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "pairs", "lists", "implied", "cost"),
    [
        ("listwise10x3:overlap=0", 0, 300, 13_500, 1500),
        ("tail:w=8,p=20", 4759, 0, 4759, 4759),
        ("tail:w=12,p=10", 7871, 0, 7871, 7871),
    ],
)
def test_the_published_costs(text: str, pairs: int, lists: int, implied: int, cost: int) -> None:
    for row in simulate(Case(text, "linear", 0, 0), PAPER):
        found = (row.pairs, row.lists, row.implied_pairs, row.cost)
        assert found == (pairs, lists, implied, cost)


GOLDEN = [
    # Strategy, noise, and ρ of Elo and of Bradley-Terry by MAP. Of `complete` only Elo's: items with as
    # many wins have the same θ there, but for its last digits, which may be others elsewhere.
    ("pairwise8", "rrt", 0.7852173913, 0.8739130435),
    ("tail:w=4,p=20", "rrt", 0.88, 0.9356521739),
    ("complete", "rrt", 0.9443478261, None),
    ("listwise6x3:overlap=2,matchmaking=similar", "rrt", 0.9226086957, 0.9547826087),
    ("listwise6x3:matchmaking=similar", "vg", 0.8965217391, 0.9130434783),
    ("pairwise8", "vg", 0.8113043478, 0.9095652174),
]


@pytest.mark.parametrize(("text", "model", "elo", "bt"), GOLDEN)
def test_a_case_gives_the_same_in_every_version(
    text: str, model: Literal["vg", "rrt"], elo: float, bt: float | None
) -> None:
    """A study that goes on in another version would mix two; and the figures are made from these."""
    grid = Grid(n=24, strategies=(text,), judge=Simulation(sim_model=model))
    found = {row.rating: row.rho for row in simulate(Case(text, "normal", 4, 5), grid)}
    assert found["elo"] == pytest.approx(elo, abs=1e-9)
    if bt is not None:
        assert found["bt"] == pytest.approx(bt, abs=1e-9)


def test_lists_of_ten_rank_as_well_as_published() -> None:
    """The paper's means over its four distributions and three biases: 0.925 by Bradley-Terry, 0.879
    by Elo. The means of two seeds lie 0.001 apart, so that 0.006 leaves room for chance, and none
    for another noise, matchmaking or estimator."""
    text = "listwise10x3:overlap=0,matchmaking=similar"
    assert text in PAPER.strategies
    grid = PAPER.model_copy(update={"strategies": (text,)})
    assert len(grid.cases()) == 24
    rows = [row for case in grid.cases() for row in simulate(case, grid)]
    for rating, published in (("bt", 0.925), ("elo", 0.879)):
        found = np.mean([row.rho for row in rows if row.rating == rating])
        assert found == pytest.approx(published, abs=0.006)


@pytest.fixture(scope="module")
def expected() -> list[StudyRow]:
    """The rows of SMALL, each case played by itself."""
    return scored([row for case in SMALL.cases() for row in simulate(case, SMALL)])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Case]:
    cases: list[Case] = []

    def counted(case: Case, grid: Grid) -> list[StudyRow]:
        cases.append(case)
        return simulate(case, grid)

    monkeypatch.setattr(simulation, "simulate", counted)
    return cases


def test_the_rows_are_those_of_the_cases_in_order(tmp_path: Path, expected: list[StudyRow]) -> None:
    told: list[tuple[int, int]] = []
    rows = study(SMALL, tmp_path / "a" / "b", 2, lambda *count: told.append(count))
    assert rows == expected
    assert told == [(done, 16) for done in range(17)]
    lines = cases_of(tmp_path / "a" / "b").read_bytes().splitlines()
    assert len(lines) == len(set(lines)) == 17, "the first is empty"


Lines = list[bytes]
WRONG = [b"\0\0\0\n", b'[["pairwise1","linear",0,0],[[1,2]]]\n']
INTERRUPTED: dict[str, tuple[Callable[[Lines], Lines], int]] = {
    "cut off half way": (lambda lines: [*lines[:-1], lines[-1][: len(lines[-1]) // 2]], 1),
    "five are missing amid the others": (lambda lines: lines[:3] + lines[8:], 5),
    "in any order": (lambda lines: [line.strip() + b"\n" for line in reversed(lines)], 0),
    "some are none of the study's": (lambda lines: [*lines[:4], *WRONG, *lines[6:]], 2),
}
"""What became of the lines of a study's cases, and how many cases that loses."""


@pytest.mark.parametrize("how", INTERRUPTED)
def test_an_interrupted_study_plays_only_what_is_missing(
    tmp_path: Path, expected: list[StudyRow], asked: list[Case], how: str
) -> None:
    interrupt, left = INTERRUPTED[how]
    study(SMALL, tmp_path, 1, nothing)
    assert asked == SMALL.cases()
    asked.clear()
    path = cases_of(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(b"".join(interrupt(whole.splitlines(keepends=True))))
    told: list[tuple[int, int]] = []
    assert study(SMALL, tmp_path, 1, lambda *count: told.append(count)) == expected
    assert len(asked) == len(set(asked)) == left
    assert told == [(done, 16) for done in range(16 - left, 17)]
    assert {*path.read_bytes().split()} >= {*whole.split()}
    asked.clear()
    assert study(SMALL, tmp_path, 1, nothing) == expected
    assert not asked


@pytest.mark.parametrize(
    "change",
    [{"n": 31}, {"judge": Simulation()}, {"ratings": ("bt",)}],
    ids=lambda change: next(iter(change)),
)
def test_a_folder_of_another_grid_is_left_alone(
    tmp_path: Path, asked: list[Case], change: dict[str, Any]
) -> None:
    study(SMALL.model_copy(update={"strategies": ("pairwise1",)}), tmp_path, 1, nothing)
    path = cases_of(tmp_path)
    before = path.read_bytes()
    asked.clear()
    other = SMALL.model_copy(update={"strategies": ("pairwise1",), **change})
    with pytest.raises(UsageError, match="holds a study of another grid: name another folder"):
        study(other, tmp_path, 1, nothing)
    assert path.read_bytes() == before
    assert not asked


def test_two_processes_are_not_at_one_study(tmp_path: Path, expected: list[StudyRow]) -> None:
    with FileLock(tmp_path / "lock"):
        with pytest.raises(UsageError, match=r"another process is at the study in .*--out"):
            study(SMALL, tmp_path, 1, nothing)
        assert not [*tmp_path.glob("cases-*")]
    assert study(SMALL, tmp_path, 1, nothing) == expected


def test_a_killed_helper_is_told_and_nothing_lost(tmp_path: Path, expected: list[StudyRow]) -> None:
    def tell(done: int, total: int) -> None:
        if done == 3:
            for child in multiprocessing.active_children():
                child.kill()

    with pytest.raises(StoppedError, match=r"was killed.*the same command continues, and --jobs 1"):
        study(SMALL, tmp_path, 2, tell)
    assert len(cases_of(tmp_path).read_bytes().splitlines()) >= 1 + 3
    assert study(SMALL, tmp_path, 1, nothing) == expected


def row(rho: float, cost: float) -> StudyRow:
    counts = (int(cost), 0, int(cost), cost)
    return StudyRow("pairwise", "rounds=24", "bt", "linear", 0, 0, rho, *counts)


def test_the_score_weighs_effectiveness_and_cost_by_hand() -> None:
    rows = [row(0.9, 1000), row(0.5, 200), row(0.8, 400)]
    # e: 1, 0, 0.75; c: 1, 0, 0.25
    usual = [0.4 * 1 + 0.6 * 0, 0.4 * 0 + 0.6 * 1, 0.4 * 0.75 + 0.6 * 0.75]
    for given, expected in (((), usual), ((1,), [1, 0, 0.75]), ((0,), [0, 1, 0.75])):
        assert [each.score for each in scored(rows, *given)] == pytest.approx(expected)
    unscored = [[replace(each, score=0) for each in some] for some in (rows, scored(rows))]
    assert unscored[0] == unscored[1]


PICKLED = [
    {"round": 1, "group": 0, "input_indices": [0, 1, 2], "ranked_indices": [2, 0, 1]},
    {"round": 2, "group": 0, "input_indices": [2, 1], "ranked_indices": [1, 2]},
]
GOOD = [{0: 1.0, 1: 2.0, 2: 3.0}, {0: -1.0, 1: 0.0, 2: 1.0}, {0: 0.5, 1: 0.5, 2: 0.5}, PICKLED]


def read(
    folder: Path, content: object, checksum: str = ""
) -> tuple[list[Judgment], Floats, Floats]:
    """What is read of a pickle of this, whose checksum is its own or another."""
    data = pickle.dumps(content)
    (folder / "a.pkl").write_bytes(data)
    expected = checksum or hashlib.sha256(data).hexdigest()
    return reproduction.read_pickle(folder / "a.pkl", expected, 3)


class Evil:
    """What runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.mark}",)


def test_a_pickle_of_plain_things_is_read(tmp_path: Path) -> None:
    judgments, elo, theta = read(tmp_path, GOOD)
    assert [each.presented for each in judgments] == [(0, 1, 2), (2, 1)]
    assert [each.round for each in judgments] == [1, 2]
    assert judgments[0].verdict == Verdict((2, 0, 1))
    assert (elo.tolist(), theta.tolist()) == ([1.0, 2.0, 3.0], [-1.0, 0.0, 1.0])


def test_a_file_of_another_checksum_is_not_even_opened(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not the published file: expected sha256 0.*not opened"):
        read(tmp_path, Evil(tmp_path / "mark"), "0" * 64)
    assert not (tmp_path / "mark").exists()


def test_every_global_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"it names (posix|nt)\.system"):
        read(tmp_path, [Evil(tmp_path / "mark"), *GOOD[1:]])
    assert not (tmp_path / "mark").exists()
    with pytest.raises(DataError, match="it names pathlib"):
        read(tmp_path, [*GOOD[:3], Path("x")])


@pytest.mark.parametrize(
    "content",
    [
        GOOD[:3],
        [*GOOD[:3], [{"round": 1}]],
        [{0: 1.0}, *GOOD[1:]],
        [*GOOD[:3], [{**PICKLED[0], "input_indices": ["x"]}]],
        7,
    ],
)
def test_something_else_than_expected_is_told(tmp_path: Path, content: object) -> None:
    with pytest.raises(DataError, match=r"a\.pkl holds something else than expected"):
        read(tmp_path, content)


def test_without_judgments_it_says_what_is_missing_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = judgeq(tmp_path, "reproduce", "paper", "--recordings", "empty", expect=3)
    assert "--recordings empty holds none of 5mini_10listwise3_clean.pkl" in done.stdout
    assert "not reproduced, since data is missing: babe, us_vs_them" in done.stderr
    assert not (tmp_path / "runs").exists()
    assert "'table9' is not 'paper'" in judgeq(tmp_path, "reproduce", "table9", expect=2).stderr


@pytest.mark.long
@needs_recordings
def test_the_published_rows(tmp_path: Path) -> None:
    done = judgeq(
        tmp_path,
        *("reproduce", "paper", "--json", "--recordings", str(SHARED / "recordings/original")),
        *("--data-dir", str(SHARED / "data" / "us_vs_them")),
    )
    found = {part["dataset"]: part for part in json.loads(done.stdout)}
    ours = {
        (each["row"], each["measure"]): (each["exact"], round(each["ours"], 3))
        for part in found.values()
        for each in part["numbers"]
    }
    babe = ("recall", "accuracy", "precision", "f1")
    elo, bt = zip(babe, (0.783, 0.779, 0.772, 0.778)), zip(babe, (0.850, 0.802, 0.772, 0.809))  # noqa: B905
    assert ours == {
        **{("mini_listwise_Elo", measure): (True, value) for measure, value in elo},
        **{("mini_listwise_BT", measure): (False, value) for measure, value in bt},
        ("Elo, all comments", "pearson"): (True, 0.564),
        ("Elo, critical", "pearson"): (True, 0.501),
        ("BT, all comments", "pearson"): (False, 0.570),
        ("BT, critical", "pearson"): (True, 0.536),
    }
    for part in found.values():
        for each in part["numbers"]:
            assert each["exact"] or each["why"]
            # What is published follows from their own ratings.
            assert round(each["theirs"], 3) == each["published"]
        assert part["elo_equal_to_the_last_bit"] is True
        assert "is the authors' file, by its sha256" in part["checked"]
