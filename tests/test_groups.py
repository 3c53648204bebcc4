"""Texts that are compared only within groups: what is asked, how it is rated, and what is shown."""

import itertools
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from judgeq import strategies
from judgeq.errors import UsageError
from judgeq.evaluation.metrics import Sample, bootstrap, measures
from judgeq.rating import ESTIMATORS, Parameters, comparisons, ranks
from judgeq.rating.correlation import Kendall, pearson, point, spearman, within
from judgeq.strategies import History
from judgeq.types import Floats
from tests.batch_killing import forks, quick
from tests.build import ranked, verdicts
from tests.cli import json_of, judgeq, only_run, query, score_columns
from tests.mock import mock, stats
from tests.postgres import new_store
from tests.python import run
from tests.test_worker_processes import planning

pytestmark = pytest.mark.usefixtures("undrawn", "rated_once")

SIZES = (2, 3, 5, 9, 10, 11, 23)


def named(sizes: Sequence[int], seed: int = 0) -> list[str]:
    """The group of each item, in no order."""
    names = [f"g{at}" for at, size in enumerate(sizes) for _ in range(size)]
    mixed: list[str] = np.random.default_rng(seed).permutation(names).tolist()
    return mixed


@pytest.mark.parametrize(
    "text",
    [
        *("listwise10", "listwise4", "listwise10:matchmaking=similar", "listwise5:overlap=2"),
        *("pairwise3", "pairwise3:matchmaking=random", "complete", "hybrid10"),
    ],
)
def test_every_question_is_within_a_group(text: str) -> None:
    """Each item that has others in its group is asked about; estimates count right."""
    groups, strategy = named(SIZES), strategies.parse(text)
    strategy.check(*SIZES)
    history, asked = History.begin(len(groups), strategy, group=comparisons.numbered(groups)), 0
    for round in history.to_come():
        matches = history.next_round()
        assert len(matches) == strategy.asked(round, *SIZES)[0]
        asked += len(matches)
        if matches.sizes.max() > 1:
            assert matches.sizes.min() > 1
            for one in matches:
                assert len({groups[row] for row in one}) == 1
            met = Counter(groups[row] for row in {*matches.items.tolist()})
            odd = "pairwise" in text  # of an odd number one sits out
            assert sorted(met.values()) == [n - n % 2 if odd else n for n in SIZES]
        history.add(verdicts([tuple(one.tolist()) for one in matches]), len(matches))
    assert asked == strategy.calls(*SIZES)


def test_lists_are_those_of_each_group_and_spread_over_the_round() -> None:
    groups = named((40, 4, 6))
    strategy, group = strategies.parse("listwise10"), comparisons.numbered(groups)
    matches = History.begin(50, strategy, group=group).next_round()
    lists = [(groups[one[0]], len(one)) for one in matches]
    assert Counter(lists) == {("g0", 10): 4, ("g1", 4): 1, ("g2", 6): 1}
    assert {name for name, _ in lists[:3]} == {"g0", "g1", "g2"}


@pytest.mark.parametrize(
    ("text", "what"),
    [("streak", "go with --group-column"), ("tail", "doesn't go"), ("listwise24", "any group")],
)
def test_what_a_strategy_cannot_do(text: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        strategies.parse(text).check(*SIZES)


def test_groups_share_a_prior_and_intervals_cover() -> None:
    """σ is that of all groups together; ranks, intervals and ρ̂ are within a group."""
    sizes = (12,) * 30 + (4,) * 30
    groups, n = named(sizes), sum(sizes)
    group = comparisons.numbered(groups)
    assert group is not None
    truth = np.random.default_rng(3).normal(0, 2, n)
    history = History.begin(n, strategies.parse("listwise4x6"), group=group)
    rng = np.random.default_rng(1)
    for _ in range(6):
        matches = history.next_round()
        lists = (one.tolist() for one in matches)
        history.add(ranked(lists, truth, rng), len(matches))
    fit = ESTIMATORS["pl"].fit(comparisons.joined(history.verdicts), n, Parameters())
    assert fit.posterior is not None
    assert 1.6 < fit.posterior.sigma < 2.4
    means = np.bincount(group, fit.theta) / np.bincount(group).clip(1)
    assert np.abs(means).max() < 1e-6
    centred = truth - (np.bincount(group, truth) / np.bincount(group).clip(1))[group]
    low, high = fit.posterior.interval
    assert 0.92 < ((low <= centred) & (centred <= high)).mean() < 0.985
    rho = ranks.reliability(fit.posterior.mean, fit.posterior.errors_apart, group)
    true = point(spearman(fit.theta, truth, group), n)
    assert rho == pytest.approx(true, abs=0.03)


def test_measures_within_groups() -> None:
    """By SciPy, of deviations from the groups' means and of ranks as shares of a group; Kendall's τ-b
    over the pairs of a group."""
    rng = np.random.default_rng(5)
    part = rng.integers(0, 6, 80)
    x = (rng.normal(0, 1, 80) + 9 * part).round(1)
    y = (x - 18 * part + rng.normal(0, 1, 80)).round(1)

    def shifted(values: Floats) -> Any:
        return values - values.mean()

    def shares(values: Floats) -> Any:
        return (scipy.stats.rankdata(values) - (len(values) + 1) / 2) / len(values)

    inside = [np.flatnonzero(part == one) for one in range(6)]
    off, ranks = ([np.concatenate([of(v[rows]) for rows in inside]) for v in (x, y)]
                  for of in (shifted, shares))  # fmt: skip
    expected = [scipy.stats.pearsonr(*both).statistic for both in (off, ranks)]
    assert [point(kind(x, y, part), 80) for kind in (pearson, spearman)] == pytest.approx(expected)
    with_one_alone = (np.append(values, 7) for values in (x, y, part))
    assert within(*with_one_alone) == pytest.approx((*expected, 80))
    signs = [np.sign(np.subtract.outer(v, v)) for v in (x, y)]
    one, other = (sign[part[:, None] == part] for sign in signs)
    tau = (one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum())
    assert point(Kendall(x, y, part), 80) == pytest.approx(tau)
    weights = rng.multinomial(80, np.ones(80) / 80, 3).astype(float)
    drawn = [np.repeat(np.arange(80), row.astype(int)) for row in weights]
    for kind in (Kendall, pearson):
        whole = kind(x, y, part)(weights)
        for value, rows in zip(whole, drawn, strict=True):
            assert value == pytest.approx(point(kind(x[rows], y[rows], part[rows]), 80))
    found = bootstrap(measures(Sample(x, y, part=part)), 80, 200, rng)
    for one in found.values():
        values = np.array([one.low, one.value, one.high], dtype=float)  # nan: not known
        assert values[0] < values[1] < values[2]


@pytest.fixture(scope="module")
def essays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three prompts of 12, 5 and 4 essays, and one alone; the labels of each are above those before."""
    folder = tmp_path_factory.mktemp("essays")
    rows = [f"{name}{at},{name},text {name} {at},{at + 100 * place}" for place, (name, n) in
            enumerate([("a", 12), ("b", 5), ("c", 4), ("lonely", 1)]) for at in range(n)]  # fmt: skip
    (folder / "essays.csv").write_text("\n".join(["id,prompt,text,gold", *rows]) + "\n")
    return folder


FLAGS = ("essays.csv", "--group-column", "prompt", "--gold-column", "gold")
EXACT = ("--sim-accuracy", "0.98", "--sim-distance", "3")


def test_a_run_in_groups(essays: Path) -> None:
    done = judgeq(essays, "run", *FLAGS, "-s", "listwise6x4", *EXACT)
    assert "1 text left out, alone in a group: 'lonely'" in done.stderr
    assert "21 texts of essays in 3 groups ranked" in done.stdout
    assert "within 3 groups" in done.stdout
    folder = only_run(essays)
    columns = score_columns(folder)
    assert [*columns][:4] == ["SIMULATED", "id", "group", "rank"]
    assert "component" not in columns
    ranked = sorted(zip(columns["group"], map(int, columns["rank"]), strict=True))
    sizes = (("a", 12), ("b", 5), ("c", 4))
    assert ranked == [(name, rank) for name, n in sizes for rank in range(1, n + 1)]
    assert query(folder, "SELECT count(DISTINCT part), count(*) FROM items") == [(3, 21)]
    again = judgeq(essays, "run", *FLAGS, "-s", "listwise6x4", *EXACT)
    assert "new run" not in again.stderr
    ungrouped = (*FLAGS[:1], *FLAGS[3:], "-s", "listwise6x4", *EXACT)
    assert json_of(essays, "estimate", *ungrouped)["run"] != folder.name

    (essays / "essays.csv").rename(essays / "moved.csv")
    try:  # the run itself knows its groups
        found = json_of(essays, "evaluate", "--resamples", "20")
        shown = judgeq(essays, "show", "--n", "2").stdout
        of_b = json_of(essays, "show", "--group", "b")["views"][0]
        none = judgeq(essays, "show", "--group", "d", expect=2).stderr
        whole = judgeq(essays, "show").stdout
    finally:
        (essays / "moved.csv").rename(essays / "essays.csv")
    assert found["groups"] == 3
    assert [(one["group"], one["items"]) for one in found["by_group"]] == [*sizes]
    pl = found["evaluation"][-1]
    assert (pl["parts"], pl["n"]) == (3, 21)
    assert pl["measures"]["spearman"]["value"] > 0.9
    assert found["by_group"][1]["reliability"] > 0.5

    def listed(screen: str) -> str:
        return "".join(line[0] for line in screen.splitlines() if line[:2] in ("a ", "b ", "c "))

    assert listed(whole) == "aabbcc", "the ends of each group"
    assert listed(shown) == "aaaa" + "bbbb" + "cccc", "two from each end of each"
    assert {one["group"] for one in of_b["items"]} == {"b"}
    assert "--group 'd': there is no such group. There are: a, b, c." in " ".join(none.split())
    versus = judgeq(essays, "explain", "a1", "--vs", "b1").stdout
    assert "no judgments connect the two" in versus
    judgeq(essays, "report", "--resamples", "20")
    report = (folder / "report.html").read_text()
    assert "Only texts of the same group were compared (3 groups)" in report
    resumed = judgeq(essays, "resume", "--rounds", "5")
    assert "round 5/5" in resumed.stderr


def test_until_a_reliability_within_groups(essays: Path) -> None:
    flags = ("-s", "listwise4x30", *EXACT, "--until")
    done = json_of(essays, "run", *FLAGS, *flags, "0.9")
    assert done["ended"]["rho"] >= 0.9
    said = judgeq(essays, "run", *FLAGS, *flags, "top3", expect=2).stderr
    assert "goes with one ranking" in said


@pytest.mark.parametrize(
    ("cells", "what"),
    [
        (("x", "", "x"), "row 2.*'topic': the group is empty.*Give every row a group"),
        (("x", "y", "z"), "each of its 3 groups has one text"),
        (("x", "x\x07", "x"), "control character"),
    ],
)
def test_a_table_whose_groups_cannot_be(tmp_path: Path, cells: tuple[str, ...], what: str) -> None:
    rows = [f"text {at},{cell}" for at, cell in enumerate(cells)]
    (tmp_path / "t.csv").write_text("\n".join(["text,topic", *rows]))
    flags = ("--group-column", "topic", "--feature", "x")
    said = judgeq(tmp_path, "run", "t.csv", *flags, expect=3).stderr
    assert re.search(what, " ".join(said.split()))


def test_python_takes_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    texts = [f"text {at}" for at in range(9)]
    found = run(texts, gold=[*range(9)], group=["a", "b", "c"] * 3, strategy="listwise3")
    assert found.scores.groups == ["a", "b", "c"] * 3
    assert found.evaluation[-1].parts == 3
    assert list(found.df["group"][:2]) == ["a", "b"]


def test_an_import_keeps_to_its_groups(essays: Path, tmp_path: Path) -> None:
    lines = [{"presented": [f"{name}{one}", f"{name}{one + 1}"], "winner": f"{name}{one + 1}"}
             for name, n in (("a", 12), ("b", 5), ("c", 4)) for one in range(n - 1)]  # fmt: skip
    flags = ("-d", essays / FLAGS[0], *FLAGS[1:])
    for extra, code in (([], 0), ([{"presented": ["a1", "b1"], "winner": "a1"}], 3)):
        (tmp_path / "judged.jsonl").write_text("\n".join(map(json.dumps, [*lines, *extra])))
        done = judgeq(tmp_path, "import", "judged.jsonl", *flags, expect=code)
    assert "judgment 19 compares items of 2 groups: 'a', 'b'" in " ".join(done.stderr.split())
    found = json_of(tmp_path, "show", "--write")
    assert (found["groups"], found["components"]["count"]) == (3, 3)


def test_batches_and_workers_give_the_scores_of_one_process(
    essays: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick(monkeypatch.setattr)
    model = ("--judge", "m", "--price", "1,2")
    asked = ("-s", "listwise4x2", "--prompt", "bias", *model, "--no-cache")
    table, store = str(essays / FLAGS[0]), new_store()
    live, batch, stored = (tmp_path / name for name in ("live", "batch", "stored"))
    for folder in (live, batch, stored):
        folder.mkdir()
    with mock(tmp_path, "--batch-time", "0") as url:
        flags = (table, *FLAGS[1:], *asked, "--base-url", url)
        judgeq(live, "run", *flags, "-q")
        judgeq(batch, "run", *flags, "-q", "--batch")
        with planning(stored, store, *flags):
            own = (*model, "--base-url", url, "--dataset", table)
            judgeq(stored, "worker", "--store", store, *own, "--exit-when", "done")
    found = [score_columns(only_run(folder)) for folder in (live, batch, stored)]
    assert {*found[0]["group"]} == {"a", "b", "c"}
    assert found[1] == found[2] == found[0]


def test_a_second_judge_joins_a_finished_run(tmp_path: Path) -> None:
    """Its round is asked, nothing else; both are rated, compared, named; what can't be is an error."""
    with mock(tmp_path) as url:
        asked = ("demo", "--sample", "40", "-s", "listwise10x2", "--judge", "mock")
        first = ("run", *asked, "--base-url", url, "--price", "1,10", "--json")
        before = json.loads(judgeq(tmp_path, *first).stdout)
        for flags, what in (
            (("--judge", "other"), "--rounds N says"),
            (("--judge", "simulated", "--rounds", "1"), "only a model can be added"),
            (("--judge", "people", "--rounds", "1"), "only a model can be added"),
            (("--judge", "a", "--judge", "b", "--rounds", "1"), "add one judge"),
        ):
            said = judgeq(tmp_path, "resume", *flags, expect=2).stderr
            assert what in " ".join(said.split())
        joined = ("resume", "--judge", "other", "--rounds", "1")
        after = json_of(tmp_path, *joined)
        assert (after["judge"], after["rounds"], after["jobs"]["done"]) == ("mock + other", 3, 12)
        assert after["calls"] == before["calls"] + 4
        folder = only_run(tmp_path)
        assert query(folder, "SELECT judge, count(*) FROM jobs GROUP BY judge") == [(0, 8), (1, 4)]
        again = json.loads(judgeq(tmp_path, *first).stdout)
        assert (again["run"], again["calls"], again["judge"]) == (before["run"], 12, "mock + other")
        assert json_of(tmp_path, *joined) == after, "the same command on a finished run"
        two = judgeq(tmp_path, "resume", "--judge", "other", "--rounds", "2", expect=2).stderr
        assert "has that judge already" in " ".join(two.split())
        more = json_of(tmp_path, "resume", "--rounds", "4")
        assert (more["calls"], more["rounds"]) == (16, 4)
        again = json_of(tmp_path, *joined)
        assert (again["calls"], again["rounds"]) == (16, 4)
        third = ("resume", "--judge", "third", "--rounds", "1")
        assert json_of(tmp_path, *third)["calls"] == 20
        for command in (joined, third):
            assert json_of(tmp_path, *command)["calls"] == 20
    jobs = query(folder, "SELECT judge, count(*) FROM jobs GROUP BY judge")
    assert jobs == [(0, 8), (1, 8), (2, 4)]
    info = json.loads((folder / "config.json").read_text())
    assert info["facts"]["judge"]["name"] == "mock"
    assert info["settings"]["judge"] == ["mock", "other", "third"]
    assert info["settings"]["joined"] == [3, 5]
    found = json_of(tmp_path, "evaluate", "--resamples", "0")
    assert found["judges"]["names"] == ["mock", "other", "third"]
    judgeq(tmp_path, "report", "--resamples", "0")
    report = (folder / "report.html").read_text()
    assert "other was added to the judges, and answered from round 3 on" in report


SMALL = ("demo", "--sample", "40", "-s", "listwise10x1", "--judge", "mock")
"""A run of four questions."""


def test_killed_at_any_commit_a_joining_judge_answers_each_question_once(tmp_path: Path) -> None:
    """Each time its session is killed one commit later, and the same command ends the round."""
    small = ("run", "demo", "--sample", "20", "-s", "listwise10x1", "--judge", "mock")
    (warm := tmp_path / "warm").mkdir()
    with mock(tmp_path) as url:
        paid = ("--base-url", url, "--price", "1,10", "-q", "--concurrency", "1", "--no-cache")
        joined = ("resume", "--judge", "other", "--rounds", "1", "-q", "--concurrency", "1")
        with forks(warm, (*small, *paid)) as sessions:
            scores = set[str]()
            for kill in itertools.count(1):
                (folder := tmp_path / str(kill)).mkdir()
                assert sessions.session(folder, (*small, *paid)).code == 0
                before = stats(url)["answered"]
                first = sessions.session(folder, joined, "before a transaction", kill)
                assert first.code in (None, 0), first
                if first.code is None:
                    # As long as nothing of it is written down, it is as if it had not begun.
                    assert sessions.session(folder, joined).code == 0
                run = only_run(folder)
                jobs = query(run, "SELECT judge, count(*) FROM jobs GROUP BY judge")
                assert jobs == [(0, 2), (1, 2)]
                calls = "SELECT count(*), count(DISTINCT job) FROM calls WHERE outcome = 'ok'"
                assert query(run, calls) == [(4, 4)]
                assert stats(url)["answered"] - before <= 2 + (first.code is None)
                scores.add((run / "scores.csv").read_text())
                if first.code == 0:
                    break
    assert kill > 6
    assert len(scores) == 1


@pytest.mark.parametrize("step", ["before scores are written", "before scores are recorded"])
def test_killed_after_its_last_answer_a_run_is_not_finished_before_its_scores_are_written(
    tmp_path: Path, step: str
) -> None:
    """Of a run, and of a judge that joins it: the same command ends both, and asks nothing."""
    small = ("run", "demo", "--sample", "20", "-s", "listwise10x1", "--judge", "mock")
    (warm := tmp_path / "warm").mkdir()
    (folder := tmp_path / "run").mkdir()
    with mock(tmp_path) as url:
        first = (*small, "--base-url", url, "--price", "1,10", "-q", "--no-cache")
        joined = ("resume", "--judge", "other", "--rounds", "1", "-q")
        with forks(warm, first) as sessions:
            for command, answers in ((first, 2), (joined, 4)):
                before = stats(url)["answered"]
                assert sessions.session(folder, command, step, 1).code is None
                assert json_of(folder, "status")["state"] == "stopped"
                asked = stats(url)["answered"]
                assert asked - before == 2
                for _ in range(2):
                    done = sessions.session(folder, command)
                    assert done.code == 0, done.err
                    assert json_of(folder, "status")["state"] == "finished"
                assert stats(url)["answered"] == asked
                matches = score_columns(only_run(folder))["matches"]
                assert sum(map(int, matches)) == 10 * answers


def test_further_rounds_for_a_goal_are_given_once(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        judgeq(tmp_path, "run", *SMALL, "--base-url", url, "--price", "1,10", "-q")
        more = ("resume", "--until", "0.999")
        first = json_of(tmp_path, *more)
        assert first["rounds"] > 1
        assert json_of(tmp_path, *more)["calls"] == first["calls"]


def test_a_folder_of_somebody_else_names_no_judge_to_join(tmp_path: Path) -> None:
    """Whoever adds a judge to a run that they didn't begin says its first judge, too."""
    with mock(tmp_path) as url:
        asked = (*SMALL, "--base-url", url)
        judgeq(tmp_path, "run", *asked, "--price", "1,10")
        elsewhere = {"XDG_STATE_HOME": str(tmp_path / "other")}
        joined = ("resume", "--judge", "other", "--rounds", "1")
        said = judgeq(tmp_path, *joined, expect=7, variables=elsewhere).stderr
        assert "wasn't begun by you" in " ".join(said.split())
        both = ("--judge", "mock", "--judge", "other", "--rounds", "1", "--base-url", url)
        done = json_of(tmp_path, "resume", *both, "--price", "1,10", variables=elsewhere)
    assert done["judge"] == "mock + other"


def test_a_joining_judge_that_is_stopped_goes_on(tmp_path: Path) -> None:
    """Under a cap that ends it in its round: the same command, and the first, continue it."""
    with mock(tmp_path) as url:
        asked = (*SMALL, "--base-url", url)
        how = ("--price", "1,10", "--max-output-tokens", "100", "--concurrency", "1")
        judgeq(tmp_path, "run", *asked, *how)
        spent = json_of(tmp_path, "status")["cost"]
        joined = ("resume", "--judge", "other", "--rounds", "1", "--concurrency", "1")
        judgeq(tmp_path, *joined, "--max-cost", str(spent + 0.0075), expect=6)
        jobs = json_of(tmp_path, "status")["jobs"]
        assert 4 < jobs["done"] < 8
        judgeq(tmp_path, *joined, "--max-cost", "1")
        done = json_of(tmp_path, "run", *asked, *how)
    assert (done["jobs"]["done"], done["partial"], done["calls"]) == (8, False, 8)
    assert query(only_run(tmp_path), "SELECT count(*) FROM calls WHERE outcome = 'ok'") == [(8,)]
