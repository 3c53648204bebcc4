"""New texts placed onto the scale of an earlier run (--onto): as a user runs it."""

import csv
import itertools
import json
import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import judgeq as package
from judgeq.engine import session
from judgeq.types import Verdicts
from tests import people as judging
from tests.batch_killing import COMMITS, Forks, forks
from tests.cli import exact_columns, json_of, judgeq, only_run, query, score_columns
from tests.mock import mock

JUDGED = ("--gold-column", "gold", "--judge", "simulated", "--feature", "how angry it is", "-q")
SCORES = ("id", "elo", "pl", "se", "low", "high")
LISTS = 3 * 5
"""Of 36 new texts and their anchors, in three rounds."""


def write(path: Path, rows: Sequence[int], mean: float = 0.0) -> Path:
    """Texts by number, with a gold around the mean."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text", "topic", "gold"])
        for row in rows:
            gold = random.Random(row).gauss(mean, 1)
            writer.writerow([f"a{row}", f"text {row}", "ab"[row % 2], f"{gold:.4f}"])
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the run february, and datasets; no test changes what is in it."""
    folder = tmp_path_factory.mktemp("onto")
    write(folder / "february.csv", range(60))
    write(folder / "march.csv", range(60, 96), 1.0)
    write(folder / "april.csv", range(96, 120))
    judgeq(folder, "run", "february.csv", *JUDGED, "--name", "february")
    return folder


def place(
    home: Path, to: Path, data: str = "march.csv", *flags: str | Path, expect: int = 0
) -> Any:
    """Run judgeq on a dataset, with its run under another folder."""
    words = ("run", data, *JUDGED, "--runs-dir", to / "runs", *flags)
    return judgeq(home, *words, expect=expect)


def placed(home: Path, to: Path, data: str, *onto: Path) -> Path:
    """The run of a dataset that was placed onto these."""
    place(home, to, data, *(word for run in onto for word in ("--onto", run)))
    return only_run(to)


def settled(run: Path, n: int = 60) -> dict[str, list[str]]:
    """What its scores say of the first n items."""
    columns = exact_columns(run)
    return {name: columns[name][:n] for name in SCORES}


def test_settled_scores_stay_as_they_are_and_new_ones_are_on_their_scale(
    home: Path, tmp_path: Path
) -> None:
    february = only_run(home)
    kept = ("run.db", "config.json", "scores.csv")
    before = {name: (february / name).read_bytes() for name in kept}
    place(home, tmp_path, "march.csv", "--onto", february, "--name", "march")
    march = only_run(tmp_path)
    assert settled(march) == settled(february)
    assert {name: (february / name).read_bytes() for name in kept} == before
    shown = json_of(home, "show", march)
    assert shown["strategy"] == "listwise10"
    columns = exact_columns(march)
    assert columns["settled"] == ["1"] * 60 + [""] * 36
    theta, gold = (np.array(columns[name], float) for name in ("pl", "gold"))
    slope, cut = np.polyfit(gold[:60], theta[:60], 1)
    # The mean of march isn't pulled back.
    assert abs((theta - cut - slope * gold)[60:].mean()) < 0.8
    assert np.corrcoef(theta[60:], gold[60:])[0, 1] > 0.6
    state = json_of(home, "status", march)
    assert (state["jobs"]["done"], state["rounds"], state["items"]) == (LISTS, 3, 96)
    assert query(march, "SELECT count(*) FROM verdicts") == [(18 + LISTS,)]
    told = judgeq(home, "status", march).stdout
    assert "36 texts, and 60 settled ones" in told
    assert f"{LISTS} of {LISTS} done" in told
    words = ("run", "march.csv", *JUDGED[:-1], "--onto", february, "--dry-run")
    about = judgeq(home, *words, "--runs-dir", tmp_path / "dry").stdout
    assert f"{LISTS} calls" in about
    assert not (tmp_path / "dry").exists()


def test_kept_columns_and_groups_of_drift_are_of_old_and_new_texts(
    home: Path, tmp_path: Path
) -> None:
    place(home, tmp_path, "march.csv", "--onto", only_run(home), "--keep-columns")
    march = only_run(tmp_path)
    assert score_columns(march)["topic"] == ["ab"[row % 2] for row in range(96)]
    asked = judgeq(home, "drift", march, "--group-column", "topic", expect=2)
    assert "has no question that was asked again" in asked.stderr  # and not: no such column


def test_scales_grow_onto_all_so_far_and_onto_several(home: Path, tmp_path: Path) -> None:
    february = only_run(home)
    march = placed(home, tmp_path / "m", "march.csv", february)
    april = placed(home, tmp_path / "a", "april.csv", march)  # onto all so far
    assert settled(april, 96) == settled(march, 96)
    aside = placed(home, tmp_path / "f", "april.csv", february)  # onto the first, next to march
    write(home / "may.csv", range(120, 140))
    both = exact_columns(placed(home, tmp_path / "b", "may.csv", march, aside))
    assert {name: both[name][:96] for name in SCORES} == settled(march, 96)
    next_to = exact_columns(aside)
    assert all(both[name][96:120] == next_to[name][60:] for name in SCORES)
    other = placed(home, tmp_path / "own", "april.csv")
    done = place(home, tmp_path / "x", "may.csv", "--onto", march, "--onto", other, expect=2)
    assert "two scales" in done.stderr


def test_more_rounds_and_refit(home: Path, tmp_path: Path) -> None:
    march = placed(home, tmp_path, "march.csv", only_run(home))
    before = settled(march)
    judgeq(home, "resume", march, "--rounds", "4", "-q")
    assert settled(march) == before
    assert json_of(home, "status", march)["rounds"] == 4
    refit = exact_columns(march, "--refit")
    assert refit["pl"][:60] != before["pl"]
    both = np.array([refit["pl"], exact_columns(march)["pl"]], float)
    assert np.corrcoef(both)[0, 1] > 0.97
    done = place(home, tmp_path / "x", "april.csv", "--refit", expect=2)
    assert "--refit goes with" in done.stderr


def test_which_texts_are_new(home: Path, tmp_path: Path) -> None:
    """Known by id and text; a text that has changed under its id is another item, and is named."""
    rows = (home / "february.csv").read_text().splitlines()
    rows[3] = rows[3].replace("text 2", "text 2 corrected")
    grown = [*rows, *(home / "march.csv").read_text().splitlines()[1:]]
    (tmp_path / "grown.csv").write_text("\n".join(grown) + "\n")
    done = place(home, tmp_path / "r", str(tmp_path / "grown.csv"), "--onto", only_run(home))
    columns = exact_columns(only_run(tmp_path / "r"))
    assert columns["id"][60:62] == ["grown:a2", "a60"]
    assert len(columns["id"]) == 60 + 37
    where = ("--runs-dir", tmp_path / "r/runs", "--onto", only_run(home))
    told = judgeq(home, "run", tmp_path / "grown.csv", *JUDGED[:-1], *where)
    assert done.stderr == ""
    assert "grown:a2" not in told.stderr  # finished: nothing begins


def test_gold_of_few_values_is_that_of_both(tmp_path: Path) -> None:
    """The new texts' two labels alone would be of another kind."""
    for name, rows in (("old", range(12)), ("new", (12, 13, 17))):
        lines = [f"a{row},text {row},{row % 5}" for row in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,text,gold", *lines]) + "\n")
    judgeq(tmp_path, "run", "old.csv", *JUDGED)
    judgeq(tmp_path, "run", "new.csv", *JUDGED, "--onto", "last")
    found = json_of(tmp_path, "evaluate", "last")
    assert found["evaluation"][0]["n"] == 15
    assert found["link"]["holds"]


@pytest.mark.usefixtures("undrawn")
def test_a_link_that_does_not_hold_is_said_first(home: Path, tmp_path: Path) -> None:
    """The judge sees settled texts the other way round."""
    write(tmp_path / "february.csv", range(60))
    judgeq(tmp_path, "run", "february.csv", *JUDGED)
    rows = (tmp_path / "february.csv").read_text().splitlines()
    turned = [row.rsplit(",", 1) for row in rows[1:]]
    lines = [rows[0], *(f"{row},{-float(gold)}" for row, gold in turned)]
    (tmp_path / "february.csv").write_text("\n".join(lines) + "\n")
    write(tmp_path / "march.csv", range(60, 96))
    words = ("run", "march.csv", *JUDGED[:-1], "--onto", "last")
    told = judgeq(tmp_path, *words).stdout.splitlines()
    assert "placed among 60 settled texts" in told[0]
    first = told[: next(at for at, line in enumerate(told) if line.startswith("rank"))]
    assert "The settled texts don't keep their places" in " ".join(first)
    found = json_of(tmp_path, "evaluate")["link"]
    assert not found["holds"]
    assert found["p"] < 0.01
    assert "don't keep their places" in judgeq(tmp_path, "evaluate").stdout
    judgeq(tmp_path, "report")
    (report,) = (tmp_path / "runs").glob("march*/report.html")
    page = report.read_text()
    assert "Settled texts, then and now" in page
    assert "keep their places in the new answers" in page[: page.index("Reliability")]


@pytest.mark.parametrize(
    ("data", "flags", "says", "code"),
    [
        ("february.csv", "", "nothing is new", 2),
        ("march.csv", "--onto {run}", "names a run twice", 2),
        ("march.csv", "--onto nothing", "No runs yet", 7),
        ("march.csv", "--feature joy", "--other-prompt", 2),
        ("march.csv", "-s streak", "doesn't place texts", 2),
        ("march.csv", "-s hybrid10", "doesn't place texts", 2),
        ("march.csv", "--rating bt", "--rating pl", 2),
        ("march.csv", "-s pairwise --both-orders", "Leave out", 2),
        ("march.csv", "-s listwise99", "listwise96", 2),
        ("other.csv", "", "other texts", 3),
    ],
)
def test_what_can_not_be_placed_is_refused(
    home: Path, tmp_path: Path, data: str, flags: str, says: str, code: int
) -> None:
    run = only_run(home)
    other = (home / "february.csv").read_text().replace("text ", "another text ")
    (home / "other.csv").write_text(other)
    onto = () if "nothing" in flags else ("--onto", run)
    given = [word.format(run=run) for word in flags.split()]
    done = place(home, tmp_path / "r", data, *onto, *given, expect=code)
    assert says in done.stderr
    assert not (tmp_path / "r").exists()


def test_settled_runs_that_can_not_be_continued(home: Path, tmp_path: Path) -> None:
    def refused(*words: str | Path, says: str) -> None:
        done = judgeq(home, *words, "--feature", "f", "-q", "--runs-dir", tmp_path / "r", expect=2)
        assert says in done.stderr

    judgeq(
        home, "run", "april.csv", *JUDGED, "-s", "direct", "--runs-dir", tmp_path / "direct/runs"
    )
    march = ("run", "march.csv", "--gold-column", "gold", "--judge", "simulated", "--onto")
    alone = (*march, only_run(tmp_path / "direct"))
    refused(*alone, "--other-prompt", says="judged alone")
    votes = [{"presented": pair, "winner": pair[0]} for pair in ((0, 1), (1, 2), (3, 4), (4, 5))]
    (tmp_path / "votes.jsonl").write_text("\n".join(map(json.dumps, votes)))
    imported = ("import", tmp_path / "votes.jsonl", "-d", "april.csv")
    judgeq(home, *imported, "--runs-dir", tmp_path / "apart/runs")
    apart = only_run(tmp_path / "apart")
    refused("run", "march.csv", "--onto", apart, "-j", "simulated", "--gold-column", "gold",
            says="Name the judge")  # fmt: skip


def test_a_forged_description_is_refused(home: Path, tmp_path: Path) -> None:
    config = placed(home, tmp_path, "march.csv", only_run(home)) / "config.json"
    kept = json.loads(config.read_text())
    (onto,) = kept["onto"]
    for forged in (
        {"anchors": [0, 70]},  # one that is new
        {"onto": [onto | {"items": 500}]},  # more settled items than there are
        {"onto": [onto | {"rounds": 0}]},
        {"onto": [onto | {"onto": [0]}, onto | {"onto": [1], "items": 1}]},  # onto itself
    ):
        config.write_text(json.dumps(kept | forged))
        done = judgeq(home, "show", config.parent, expect=7)
        assert "can't be read" in done.stderr


def test_nothing_is_half_made(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Verdicts, "each", fails)
    with pytest.raises(OSError, match="No space"):
        place(home, tmp_path, "march.csv", "--onto", only_run(home))
    assert not list((tmp_path / "runs").iterdir())


@pytest.fixture(scope="module")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Forks]]:
    """A folder with the run february, and what forks sessions."""
    folder = tmp_path_factory.mktemp("forking")
    write(folder / "february.csv", range(60))
    write(folder / "march.csv", range(60, 72), 1.0)
    with forks(folder, ("run", "february.csv", *JUDGED, "--name", "february")) as forking:
        yield only_run(folder), forking


@pytest.mark.parametrize("step", COMMITS)
def test_killed_at_any_commit_nothing_is_asked_twice(
    forking: tuple[Path, Forks], tmp_path: Path, step: str
) -> None:
    """Each time the first session is killed one commit later; the second ends the run."""
    (february, sessions), scores = forking, set[str]()
    words = ("run", "march.csv", *JUDGED, "--onto", february, "--strategy", "listwise10x1",
             "--concurrency", "1", "--runs-dir")  # fmt: skip
    for kill in itertools.count(1):
        runs = tmp_path / str(kill)
        first = sessions.session(february.parent.parent, (*words, runs), step, kill)
        assert first.code in (None, 0), first
        for made in runs.glob("march*"):  # whole, or not there
            assert query(made, "SELECT count(*) FROM verdicts")[0][0] >= 18
        assert sessions.session(february.parent.parent, (*words, runs)).code == 0
        (run,) = runs.glob("march*")
        assert query(run, "SELECT count(*), count(DISTINCT job) FROM calls") == [(2, 2)]
        assert query(run, "SELECT count(*) FROM verdicts") == [(18 + 2,)]
        scores.add((run / "scores.csv").read_text())
        if first.code == 0:
            break
    assert kill > (8 if step == "before a transaction" else 1)
    assert len(scores) == 1


def test_people_place_what_people_have_judged(tmp_path: Path) -> None:
    old = judging.run(tmp_path, strategy="pairwise4")
    path = judging.dataset(tmp_path, judging.N + 8)  # the same table, grown
    grown: dict[str, Any] = {"texts": judging.N + 8, "onto": (old.run.id,)}
    settings = judging.settings(tmp_path, **grown, strategy="pairwise4")
    assert settings.dataset == str(path)
    prepared = session.prepare(settings, tmp_path / "runs")
    new = session.execute(prepared, lambda _: None, page=judging.judged_by(["Cleo", "Dan"]))
    assert_array_equal(new.scores.ratings["pl"][: judging.N], old.scores.ratings["pl"])
    assert new.scores.first_new == judging.N
    assert sorted({*new.judges} - {"people"}) == ["Cleo", "Dan", f"people of {old.run.id}"]
    assert "Ann" not in (new.run.path / "config.json").read_text()
    theta = new.scores.ratings["pl"][judging.N :]
    assert theta.min() > np.median(new.scores.ratings["pl"])  # larger numbers than before


def test_a_grown_dataset_is_noticed_before_it_is_paid_for(home: Path, tmp_path: Path) -> None:
    rows = (home / "february.csv").read_text().splitlines()
    (tmp_path / "texts.csv").write_text("\n".join(rows[:31]) + "\n")
    told: dict[str, Any] = {"judge": lambda texts, _: [*range(len(texts))]}
    told["settings"] = {"check_reading": False}  # the judge answers in the order presented
    package.run(str(tmp_path / "texts.csv"), "f", **told, runs_dir=tmp_path / "r")
    (tmp_path / "texts.csv").write_text("\n".join(rows) + "\n")
    words = ("run", "texts.csv", "--feature", "f", "--judge", "m", "--price", "1,1", "--dry-run")
    server = ("--base-url", "http://127.0.0.1:9/v1", "--runs-dir", "r")
    about = judgeq(tmp_path, *words, *server).stdout.replace("\n", " ")
    assert "30 of these 60 texts were judged before" in about
    assert "--onto" in about
    grouped = judgeq(tmp_path, *words, *server, "--group-column", "topic").stdout
    assert "judged before" not in " ".join(grouped.split()), "--onto takes no groups"


def test_a_run_onto_which_nothing_can_be_placed_is_not_offered(tmp_path: Path) -> None:
    rows = [f"t{row},text {row}" for row in range(6)]
    for name, n in (("few", 5), ("all", 6)):
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,text", *rows[:n]]) + "\n")
    few, whole = (
        ("run", f"{name}.csv", "--feature", "f", "--judge", "m", "--price", "1,1")
        for name in ("few", "all")
    )
    nobody, runs = ("--base-url", "http://127.0.0.1:9/v1"), ("--runs-dir", "r")

    def offered() -> bool:
        about = judgeq(tmp_path, *whole, *nobody, *runs, "--dry-run").stdout
        return "judged before" in " ".join(about.split())

    capped = ("--max-cost", "0.000001", "--base-url", "http://127.0.0.1:9/v1")
    judgeq(tmp_path, *few, *capped, *runs, expect=6)
    assert not offered(), "it has no verdicts"
    shutil.rmtree(tmp_path / "r")
    with mock(tmp_path) as url:
        server = ("--base-url", url)
        judgeq(tmp_path, *few, "-s", "direct", *server, *runs)
        assert not offered(), "its texts were judged alone"
        judgeq(tmp_path, *few, *server, *runs)
        assert offered()
