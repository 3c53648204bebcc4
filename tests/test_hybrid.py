"""Direct scores and lists together: the estimator, the strategy, and runs of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from judgeq import seeds, strategies
from judgeq.datasets import synthetic
from judgeq.errors import UsageError
from judgeq.judge import simulated
from judgeq.rating import ESTIMATORS, Parameters, correlation, direct
from judgeq.rating.comparisons import components, joined
from judgeq.rating.direct import standardised
from judgeq.rating.posterior import Posterior, wider
from judgeq.settings.run import Simulation
from judgeq.strategies import History
from judgeq.types import Floats, Verdicts
from tests.build import ranked, verdicts
from tests.cli import json_of, judgeq, only_run, score_columns
from tests.test_ranks import posterior_and_matrix


def scored(scores: Sequence[float] | Floats) -> Verdicts:
    """The first items, each judged alone; nan: no answer."""
    known = np.flatnonzero(~np.isnan(scores))
    alone = verdicts([(int(item),) for item in known])
    return replace(alone, scores=np.asarray(scores, dtype=np.float64)[known])


def in_lists(theta: Floats, k: int, rounds: int, rng: np.random.Generator) -> Verdicts:
    lists = np.concatenate([rng.permutation(len(theta)) for _ in range(rounds)]).reshape(-1, k)
    return ranked(lists.tolist(), theta, rng)


def test_of_what_lists_alone_say_a_share_counts() -> None:
    """t = f + κ(θ − f), and its variance with the doubt about the rest: against the whole matrix."""
    rng = np.random.default_rng(2)
    scores = rng.beta(2, 2, 40).round(2)
    theta = 1.5 * standardised(scores) + rng.normal(0, 1, 40)
    judged = joined([scored(scores), in_lists(theta, 8, 3, rng)])
    fitted = direct.fit_hybrid(judged, 40, Parameters(1.2))
    posterior = fitted.posterior
    assert isinstance(posterior, Posterior)
    assert fitted.share == 0.75
    z = standardised(ESTIMATORS["direct"].fit(judged, 40, Parameters()).theta)
    epsilon, beta = posterior.parameters[:40], posterior.parameters[40]
    assert_allclose(posterior.theta, beta * z + 0.75 * epsilon)
    v, _ = posterior_and_matrix(posterior)
    turn = np.concatenate([0.75 * np.eye(40), z[:, None]], axis=1)
    variance = np.diag(turn @ v @ turn.T) - (0.75 * 1.2) ** 2 / 40
    wide = wider(posterior._variance, 1.2)
    expected = wide**2 * posterior.dispersion * variance + 0.75 * 0.25 * 1.2**2
    assert_allclose(posterior.errors**2, expected, rtol=1e-4)


@pytest.mark.parametrize("noise", [0.4, 1.0])
def test_the_share_by_the_reliability_of_direct_scores(noise: float) -> None:
    """Two judges' scores, each with noise of its own: their mean's reliability, and from it κ."""
    n, rng = 600, np.random.default_rng(4)
    trait = rng.normal(0, 1, n)
    first, second = (scored(trait + rng.normal(0, noise, n)) for _ in range(2))
    assert second.scores is not None
    second = replace(second, scores=second.scores + 3)  # a judge's level is no disagreement
    judges = np.repeat(np.arange(2, dtype=np.int32), n)
    both = replace(joined([first, second]), judges=judges)
    reliability = direct.reliability(both, n)
    assert reliability == pytest.approx(1 / (1 + noise**2 / 2), abs=0.04)
    assert direct.reliability(first, n) is None
    few = joined([first, second.where(np.arange(n) < 99)])
    assert direct.reliability(few, n) is None
    # Lists that measure the trait and nothing else: κ is near 1; and less where half is their own.
    for own, least, most in ((0.0, 0.85, 1.0), (1.5, 0.2, 0.6)):
        theta = 1.5 * trait + rng.normal(0, own, n)
        fitted = direct.fit_hybrid(joined([both, in_lists(theta, 10, 6, rng)]), n, Parameters())
        assert fitted.reliability == reliability
        assert least <= (fitted.share or 0) <= most, (own, fitted.share)


def test_without_comparisons_nothing_says_what_a_score_is_worth() -> None:
    assert np.isnan(direct.fit_hybrid(scored([0.1, 0.9]), 2, Parameters()).theta).all()


def test_scores_connect_what_comparisons_dont() -> None:
    lists = verdicts([(0, 1), (2, 3), (4, 5), (6, 7)])
    alone = scored([np.nan, 0.3, 0.4, np.nan, np.nan, np.nan, np.nan, np.nan, 0.5])
    both = joined([alone, lists])
    assert components(both, 10, scored=True).tolist() == [1, 1, 1, 1, 2, 2, 3, 3, 1, 0]
    assert components(lists, 9, scored=True).tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 0]
    posterior = direct.fit_hybrid(both, 10, Parameters()).posterior
    assert posterior
    assert np.isfinite(posterior.errors).all()


def played(text: str, seed: int, lists: Simulation, alone: Simulation) -> tuple[History, Floats]:
    """A run in which texts alone and lists are judged as these settings say, and the true order."""
    truth = synthetic.draw("normal", 300, seeds.rng(seed, "latent"))
    history = History.begin(300, strategies.parse(text), seed)
    for round in history.to_come():
        matches = history.next_round()
        judge = alone if int(matches.sizes.max()) == 1 else lists
        answers = simulated.answers(matches, truth, judge, seeds.rng(seed, "answers", round))
        history.add(answers, len(matches))
    return history, truth


def test_first_alone_then_lists() -> None:
    exact = Simulation(sim_accuracy=0.97, sim_pmax=0.999)
    history, truth = played("hybrid10x2:matchmaking=similar", 0, exact, exact)
    alone, lists = history.verdicts
    assert_array_equal(alone.items, np.arange(300))
    assert_array_equal(np.diff(lists.offsets), 10)
    # Of like scores, if asked for: lists of all ranges of scores would spread as all do.
    within = truth[lists.items].reshape(-1, 10).std(axis=1).mean()
    assert within < truth.std() / 2
    assert history.basis == "both"
    assert history.latest[0] == "elo"
    begun = History.begin(300, history.strategy, 0)
    assert begun.basis == "comparisons"
    begun.add(alone, 300)
    assert (begun.alone, begun.latest[0]) == (True, "direct")
    assert begun.standings.elo.mean() == pytest.approx(1500)
    assert correlation.point(correlation.spearman(begun.standings.elo, truth), 300) > 0.8  # type: ignore[operator]
    # Elo of all verdicts at once is that of round by round.
    every = joined(history.verdicts)
    assert_array_equal(ESTIMATORS["elo"].fit(every, 300, Parameters()).theta, history.standings.elo)


def test_some_texts_are_scored_twice() -> None:
    """By which the share that lists count is known."""
    strategy = strategies.parse("hybrid10:repeat=120,overlap=1")
    assert strategies.parse(strategy.name) == strategy
    assert strategy.asked(1, 300)[0] == 420
    noisy = Simulation(sim_accuracy=0.7)
    history, _ = played("hybrid10x4:repeat=120", 1, noisy, noisy)
    alone = history.verdicts[0]
    assert np.bincount(np.bincount(alone.items, minlength=300)).tolist() == [0, 180, 120]
    fitted = history.fit(ESTIMATORS["hybrid"], Parameters())
    assert fitted.reliability is not None
    assert fitted.share != direct.SHARE
    plain, _ = played("hybrid10x4", 1, noisy, noisy)
    assert plain.fit(ESTIMATORS["hybrid"], Parameters()).reliability is None
    with pytest.raises(UsageError, match=r"at least 100 texts are scored twice, .*, not 99"):
        strategies.parse("hybrid10:repeat=99")
    with pytest.raises(UsageError, match="100 items, of which 120 can't be scored twice"):
        strategy.check(100)


RUN = ("-d", "synthetic:normal", "--n", "60", "-s", "hybrid6x4", "--sim-position-bias", "300")


def test_a_run_of_it(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", *RUN, "-q")
    run = only_run(tmp_path)

    def written(*flags: str) -> tuple[dict[str, Any], dict[str, list[str]]]:
        """What was printed, and the columns of the scores."""
        return json_of(tmp_path, "show", "--write", *flags), score_columns(run)

    text = " ".join(judgeq(tmp_path, "status").stdout.split())
    assert "hybrid (direct scores and comparisons together); also" in text
    assert "components" not in judgeq(tmp_path, "show", "--write").stdout
    columns = ["id", "rank", "direct", "elo", "pl", "hybrid", "se"]
    assert list(score_columns(run))[:7] == columns
    by_bt, plain = written("--rating", "bt")
    assert by_bt["rating"] == "hybrid"
    assert by_bt["components"]["count"] == 1
    assert list(plain)[2:6] == ["direct", "elo", "bt", "hybrid"]
    without, _ = written()
    assert without["fit"]["position_taken_out"]
    assert without["effect"]["low"] > 0
    assert written("--no-unbias-position")[1]["hybrid"] != plain["hybrid"]
    assert written()[1]["hybrid"] == plain["hybrid"]
