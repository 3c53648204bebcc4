"""Reliability and misfit of a run, from the ledger to the command line; and of people's judgments."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import judgeq as package
from judgeq.evaluation import scale
from judgeq.rating import (
    ESTIMATORS,
    Parameters,
    correlation,
    plackett_luce,
    scale_quality,
)
from judgeq.rating.comparisons import imply, joined
from judgeq.types import Bools, Comparisons, Floats, Verdicts
from tests.build import SHARED, fit_map, verdicts
from tests.cli import judgeq

pytestmark = pytest.mark.usefixtures("rated_once")

PEOPLE = SHARED / "data" / "convincing"
needs_people = pytest.mark.skipif(
    not PEOPLE.is_dir(), reason="the people's judgments may not be shipped and are not at ../shared"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("scale")
    for name, job in JOBS.items():
        judgeq(
            path, "run", "-d", "synthetic:normal", "--n", "60", *job, "--quiet", "--runs-dir", name
        )
    return path


N = ("--n", "60")
JOBS: Mapping[str, tuple[str, ...]] = {
    "similar": (*N, "-s", "listwise6x4:matchmaking=similar"),
    "random": (*N, "-s", "listwise6x4", "--matchmaking", "random"),
    "direct": (*N, "-s", "direct"),
    "complete": ("--n", "8", "-s", "complete:m=4", "--sim-accuracy", "0.6"),
    "panel": (*N, "-s", "pairwise8", "--judge", "simulated", "--judge", "simulated"),
}


# Runs


def test_evaluate_shows_reliability_and_misfit(runs: Path) -> None:
    found = json.loads(
        judgeq(runs, "evaluate", "--runs-dir", "similar", "--splits", "12", "--json").stdout
    )
    half = found["reliability"]["split_half"]
    run = package.open_run(runs_dir=runs / "similar")
    theta, se = run.scores.main[1], run.scores.se
    ssr = theta.var(ddof=1) / (theta.var(ddof=1) + (se * se).mean())
    assert found["reliability"]["separation"]["ssr"] == pytest.approx(ssr)
    assert found["reliability"]["separation"]["g"] == pytest.approx((1 - ssr) ** -0.5)
    assert half["splits"] == 12
    assert half["by"] == "judgments"
    assert 0.25 < half["low"] <= half["median"] <= half["high"] < 1
    assert half["whole"] == pytest.approx(2 * half["median"] / (1 + half["median"]))
    said = judgeq(runs, "evaluate", "--runs-dir", "similar", "--splits", "12").stdout
    words = " ".join(said.split())
    assert "median of 12 splits of the judgments" in words
    assert "Misfit with the scores" in words
    assert "outside the 95 % range" in words
    misfits = found["misfit"]
    assert misfits["judges"] is None  # one judge can't be held against others
    assert misfits["items"]["known"] == 60


def test_the_ssr_of_comparative_judgement_stands_under_its_own_name(runs: Path) -> None:
    flags = ("--runs-dir", "random", "--splits", "0", "--resamples", "0")
    found = json.loads(judgeq(runs, "evaluate", *flags, "--json").stdout)["reliability"]
    run = package.open_run(runs_dir=runs / "random")
    theta, se = scale.cj(imply(joined(run.history.verdicts)), 60)
    ssr = 1 - (se * se).mean() / theta.var(ddof=1)
    assert found["separation_cj"]["ssr"] == pytest.approx(ssr, abs=1e-9)
    assert found["separation_cj"]["g"] == pytest.approx((1 - ssr) ** -0.5)
    shown = " ".join(judgeq(runs, "evaluate", *flags).stdout.split())
    assert f"SSR (CJ) {ssr:.3f} as studies of comparative judgement publish it" in shown


def test_halves_are_rated_as_the_whole_with_its_prior_and_without_the_position(
    tmp_path: Path,
) -> None:
    job = ("-d", "synthetic:normal", "--n", "60", "-s", "pairwise8", "--sim-position-bias", "200")
    judgeq(tmp_path, "run", *job, "-q")
    run = package.open_run(runs_dir=tmp_path / "runs")
    assert run.fit.position

    def rate(half: Verdicts, n: int) -> Floats:
        return ESTIMATORS["pl"].fit(half, n, Parameters(run.fit.sigma, position=True)).theta

    expected = scale_quality.split_half(joined(run.history.verdicts), rate, 0, 3)
    assert scale.reliability_of(run, splits=3).split_half == expected


def test_halves_that_know_few_items_in_common_have_no_r(tmp_path: Path) -> None:
    """Of items that are in one or two lists, most are in one half alone."""
    job = ("-d", "synthetic:normal", "--n", "200", "-s", "listwise5x1", "--quiet")
    judgeq(tmp_path, "run", *job)
    shown = judgeq(tmp_path, "evaluate", "--resamples", "0").stdout
    assert "split halves" not in shown
    judgeq(tmp_path, "run", *job[:-2], "listwise5x2", "--quiet")
    run = package.open_run(runs_dir=tmp_path / "runs")
    half = scale.reliability_of(run, splits=5).split_half
    assert (half.r, half.low, half.whole) == (None, None, None)
    assert half.why == f"both halves know only {half.items} of the 200 items judged"
    shown = " ".join(judgeq(tmp_path, "evaluate", "--resamples", "0").stdout.split())
    assert "No split halves: both halves know only" in shown


def test_a_warning_stands_beside_an_adaptive_designs_separation(runs: Path) -> None:
    flags = ("--splits", "0", "--resamples", "0")
    for name, adaptive in (("similar", True), ("random", False)):
        said = judgeq(runs, "evaluate", "--runs-dir", name, *flags).stdout
        assert ("Bramley and Vitello" in said) == adaptive
    judgments = judgeq(runs, "export", "--runs-dir", "random").stdout
    (runs / "judged.jsonl").write_text(judgments)
    job = ("-d", "synthetic:normal", "--n", "60", "judged.jsonl", "--runs-dir", "imported")
    judgeq(runs, "import", *job)
    said = judgeq(runs, "evaluate", "--runs-dir", "imported", *flags).stdout
    assert "How these judgments were chosen isn't known" in said


def test_items_judged_alone_say_why_there_is_nothing(runs: Path) -> None:
    flags = ("--runs-dir", "direct", "--resamples", "0", "--json")
    found = json.loads(judgeq(runs, "evaluate", *flags).stdout)
    assert found["misfit"]["why"] == "items judged alone imply no comparisons"
    assert found["misfit"]["items"] is None
    assert (
        found["reliability"]["separation"]["why"] == "the estimator direct has no standard errors"
    )
    assert found["reliability"]["split_half"]["why"] == "both halves connect no two items"
    assert "imply no comparisons" in judgeq(runs, "evaluate", *flags[:-1]).stdout


def test_from_python_and_by_the_papers_estimator(runs: Path) -> None:
    run = package.open_run(runs_dir=runs / "complete", rating="bt-mm")
    found = run.evaluate(splits=4, resamples=0)
    half = found["reliability"]["split_half"]
    assert (found["reliability"]["halves_by"], half["splits"]) == (
        "bt",
        4,
    )  # bt-mm would take minutes
    assert found["reliability"]["separation"]["why"] == "the estimator bt-mm has no standard errors"
    assert run.evaluate(splits=4, resamples=0) == found
    assert scale.reliability_of(run, splits=4, seed=1).split_half.r != half["median"]
    with pytest.raises(package.UsageError, match="0 or more"):
        run.evaluate(splits=-1)


# The recipe of published studies of comparative judgement


def recipe(pairs: Sequence[tuple[str, str]]) -> tuple[dict[str, float], dict[str, float], float]:
    """Plain Python from the description of the recipe: θ, se, SSR; pairs are (winner, loser)."""
    items = sorted({item for pair in pairs for item in pair})
    asked = {item: sum(item in pair for pair in pairs) for item in items}
    wins = {item: sum(item == pair[0] for pair in pairs) for item in items}
    score = {i: 0.3 + (asked[i] - 2 * 0.3) * wins[i] / asked[i] for i in items}
    raw = {i: (score[i] / asked[i] + 0.1) / 1.2 for i in items}
    theta = {i: math.log(raw[i] / (1 - raw[i])) for i in items}
    middle = sum(theta.values()) / len(items)
    theta = {i: theta[i] - middle for i in items}
    for iteration in range(1, 401):
        expected, information = dict.fromkeys(items, 0.0), dict.fromkeys(items, 0.0)
        for one, other in pairs:
            p = math.exp(theta[one]) / (math.exp(theta[one]) + math.exp(theta[other]))
            expected[one] += p
            expected[other] += 1 - p
            information[one] += p * (1 - p)
            information[other] += p * (1 - p)
        new = {}
        for i in items:
            step = (score[i] - expected[i]) / information[i]
            new[i] = theta[i] + math.copysign(min(abs(step), 0.98**iteration), step)
        middle = sum(new.values()) / len(items)
        new = {i: new[i] - middle for i in items}
        change = max(abs(new[i] - theta[i]) for i in items)
        theta = new
        if change <= 1e-4:
            break
    se = {i: 1 / math.sqrt(information[i]) for i in items}
    mean = sum(theta.values()) / len(items)
    variance = sum((theta[i] - mean) ** 2 for i in items) / (len(items) - 1)
    return theta, se, 1 - sum(one * one for one in se.values()) / len(items) / variance


@pytest.mark.parametrize(("n", "count", "seed"), [(12, 90, 0), (25, 120, 1), (6, 40, 2)])
def test_cj_is_the_published_recipe(n: int, count: int, seed: int) -> None:
    """By a second, independent implementation, for items that won or lost everything too."""
    rng = np.random.default_rng(seed)
    pairs: list[tuple[int, int]] = []
    while len(pairs) < count:
        a, b = (int(row) for row in rng.choice(n, 2, replace=False))
        pairs.append((a, b) if rng.random() < 1 / (1 + math.exp((a - b) / n * 6)) else (b, a))
    theta, se = scale.cj(imply(verdicts(pairs)), n + 1)
    named = [(f"{a:02}", f"{b:02}") for a, b in pairs]
    by_name, se_by_name, ssr = recipe(named)
    rows = [int(name) for name in by_name]
    assert theta[rows] == pytest.approx([*by_name.values()], abs=1e-12)
    assert se[rows] == pytest.approx([*se_by_name.values()], abs=1e-12)
    assert scale_quality.separation(theta, se, likeliest=True).ssr == pytest.approx(ssr, abs=1e-12)
    assert np.isnan(theta[n])  # never compared
    assert np.isnan(se[n])


def test_cj_golden_values() -> None:
    """A small tournament, to the digits that the recipe's plain implementation gave."""
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (3, 2), (1, 0), (2, 3)]
    theta, se = scale.cj(imply(verdicts(pairs)), 4)
    expected, _, ssr = recipe([(str(a), str(b)) for a, b in pairs])
    assert theta == pytest.approx([*expected.values()], abs=1e-13)
    assert scale_quality.separation(theta, se, likeliest=True).ssr == pytest.approx(ssr, abs=1e-13)
    assert theta.sum() == pytest.approx(0, abs=1e-12)


def test_cj_at_its_maximum_is_a_closed_form() -> None:
    """A ring in which each of three beats the next 3 times of 4: all are equal, p = ½."""
    ring = [(0, 1), (1, 2), (2, 0)] * 3 + [(1, 0), (2, 1), (0, 2)]
    theta, se = scale.cj(imply(verdicts(ring)), 3)
    assert theta == pytest.approx(np.zeros(3))
    assert se == pytest.approx(np.full(3, 1 / math.sqrt(8 / 4)))
    none = Comparisons(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0))
    assert np.isnan(scale.cj(none, 2)[0]).all()


# People


def people() -> tuple[Verdicts, Bools, int]:
    """The published judgments of pairs of arguments, which of them are ties, and how many arguments
    there are."""
    with (PEOPLE / "arguments.csv").open(encoding="utf-8") as file:
        rows = {row["id"]: at for at, row in enumerate(csv.DictReader(file))}
    text = (PEOPLE / "judgments.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.splitlines()]
    numbers: dict[str, int] = {}
    judges = [numbers.setdefault(line["judge"], len(numbers)) for line in lines]
    presented = np.array([[rows[name] for name in line["presented"]] for line in lines], np.int32)
    second = [line["winner"] == line["presented"][1] for line in lines]
    tie = np.array([line["winner"] == "tie" for line in lines])
    return pairs(presented, np.array(second), tie, np.array(judges, np.int32)), tie, len(rows)


def pairs(presented: np.ndarray, second: Bools, tie: Bools, judges: np.ndarray) -> Verdicts:
    tied = np.zeros(presented.shape, dtype=np.bool_)
    tied[:, 1] = tie
    return Verdicts(
        matches=np.arange(len(presented)),
        items=np.where(second[:, None], presented[:, ::-1], presented).reshape(-1),
        offsets=np.arange(len(presented) + 1) * 2,
        tied=tied.reshape(-1),
        presented=presented.reshape(-1),
        judges=judges,
    )


@needs_people
def test_people_agree_with_the_published_ranks() -> None:
    """Within topics, where the most convincing argument has the lowest rank."""
    judged, _, n = people()
    with (PEOPLE / "arguments.csv").open(encoding="utf-8") as file:
        published = list(csv.DictReader(file))
    ranks = np.array([float(row["rank"]) for row in published])
    topics = np.unique([row["topic"] for row in published], return_inverse=True)[1]
    fit = plackett_luce.fit(judged, n, Parameters(sigma=2.0))
    agreement = [
        correlation.point(correlation.spearman(fit.theta[of], -ranks[of]), int(of.sum()))
        for of in (topics == topic for topic in range(32))
    ]
    assert None not in agreement
    assert np.mean([rho for rho in agreement if rho is not None]) >= 0.905


@needs_people
def test_peoples_judgments() -> None:
    """Compared within 32 topics: the judges halved, the scale is reliable; and those made to answer at
    random are found."""
    judged, tie, n = people()
    half = scale_quality.split_half(judged, fit_map, 0, 2)
    assert (half.by, half.items) == ("judges", 1052)
    assert half.r is not None
    assert half.r > 0.9

    assert judged.judges is not None
    judges = int(judged.judges.max()) + 1
    found = bad = alarms = fair = 0
    for seed in range(2):
        rng = np.random.default_rng(seed)
        random = rng.random(judges) < 0.05
        at_random = random[judged.judges]
        items = judged.items.reshape(-1, 2)
        second = at_random & (rng.random(len(items)) < 0.5)
        made = pairs(items, second, tie & ~at_random, judged.judges)
        fit = scale_quality.fit_of_judges(made, fit_map(made, n), judges)
        found += int(fit.above[random].sum())
        bad += int((random & fit.judged).sum())
        alarms += int(fit.above[~random].sum())
        fair += int((~random & fit.judged).sum())
    assert bad > 80
    assert found / bad > 0.9  # measured: 0.96
    assert alarms / fair < 0.05  # measured: 0.03, of whom some answer oddly indeed
