"""Which model answered; and has the judge changed? Questions are asked again, apart from the scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.judges import answered
from judgeq.judge.backend import MOST_OF_A_NAME
from judgeq.rating import ESTIMATORS, Parameters, drift
from judgeq.rating.comparisons import joined
from judgeq.types import Floats, Matches, Verdicts
from tests.batch_killing import forks
from tests.batch_server import APIS, texts_in
from tests.cli import json_of, judgeq, only_run, query, scores, start, wait_until
from tests.mock import mock, stats
from tests.postgres import new_store
from tests.test_openai_chat import ask, saying, told
from tests.web import completion

MODEL = ("--prompt", "bias", "--judge", "m", "--price", "1,2")
SAYS = "2 models answered for m: m (5 calls), m-next (3 calls)."


@pytest.fixture(scope="module")
def few_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts_in(tmp_path_factory.mktemp("few_texts"), 16)


def of_two_models(texts: Path, url: str, *more: str) -> tuple[str | Path, ...]:
    """A run of which the server (`--model-after 5`) names another model for the last three calls."""
    job = ("run", "-d", texts, *MODEL, "--strategy", "listwise4x2", "--base-url", url)
    return (*job, "--concurrency", "1", *more)


@pytest.fixture
def two_models(tmp_path: Path, few_texts: Path) -> Any:
    with mock(tmp_path, "--model-after", "5") as url:
        return json_of(tmp_path, *of_two_models(few_texts, url))


@pytest.mark.usefixtures("undrawn")
def test_a_run_answered_by_several_models_says_so_everywhere(
    tmp_path: Path, two_models: Any
) -> None:
    found = two_models
    by_model = [(one["model"], one["calls"]) for one in found["answered_by"]]
    assert by_model == [("m", 5), ("m-next", 3)]
    assert {one["judge"] for one in found["answered_by"]} == {"m"}
    assert len({one["fingerprint"] for one in found["answered_by"]}) == 2
    assert [one for one in found["cautions"] if SAYS in one]
    for command in ("evaluate", "show", "show --write"):
        assert SAYS in " ".join(judgeq(tmp_path, *command.split()).stdout.split()), command
    judgeq(tmp_path, "report", "--format", "md")
    assert SAYS in (only_run(tmp_path) / "report.md").read_text(encoding="utf-8")
    calls = judgeq(tmp_path, "export", "--table", "calls").stdout
    assert calls.count(",m-next,fp_") == 3


def test_a_cached_reply_keeps_the_model_that_answered_then(tmp_path: Path, few_texts: Path) -> None:
    with mock(tmp_path, "--model-after", "5") as url:
        words = of_two_models(few_texts, url)
        bought, free = json_of(tmp_path, *words), json_of(tmp_path, *words, "--new")
    assert free["cache_hits"] == 8
    assert free["answered_by"] == bought["answered_by"]


@pytest.mark.usefixtures("two_models")
def test_the_models_are_one_judge_unless_they_are_split(tmp_path: Path) -> None:
    assert json_of(tmp_path, "evaluate")["judges"] is None
    split = json_of(tmp_path, "evaluate", "--split-models")
    assert split["judges"]["names"] == ["m (m)", "m (m-next)"]
    assert split["judges"]["verdicts"] == [5, 3]
    assert split["judge"] == "m (m) + m (m-next)"


@pytest.mark.parametrize("api", APIS)
def test_a_batch_says_which_model_answered_too(
    tmp_path: Path, few_texts: Path, api: str, short_waits: None
) -> None:
    with mock(tmp_path, "--model-after", "5", "--batch-time", "0") as url:
        found = json_of(tmp_path, *of_two_models(few_texts, url, *APIS[api], "--batch"))
    assert [one["calls"] for one in found["answered_by"]] == [5, 3]


async def test_what_a_server_names_is_bounded_and_no_more_than_a_name() -> None:
    named = {"model": "\x1b[31m" + "x" * 1000, "system_fingerprint": ["no name"]}
    async with told(saying(completion('{"winner": "A"}') | named)) as made:
        answerer = (await ask(made)).answerer
    assert answerer.model == ("\x1b[31m" + "x" * 1000)[:MOST_OF_A_NAME]
    assert answerer.fingerprint is None


ANSWERED_AGAIN = "SELECT count(*) FROM calls WHERE job < 0 AND outcome = 'ok'"


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts_in(tmp_path_factory.mktemp("texts"), 40)


def run(folder: Path, texts: Path, url: str, *more: str) -> None:
    """Thirty questions, in three rounds."""
    job = ("--strategy", "listwise4x3", *MODEL, "--base-url", url, "-q", *more)
    judgeq(folder, "run", "-d", texts, *job)


def asked(
    truth: Floats, rng: np.random.Generator, matches: Matches, slope: float = 0.0
) -> Verdicts:
    place = np.arange(len(matches.items)) % 10 / 9 - 0.5
    noise = rng.gumbel(size=len(matches.items))
    return answered(matches, truth[matches.items] + slope * place + noise)


def answered_twice(
    spread: float = 1.0, slope: float = 0.0, shift: float = 0.0
) -> dict[str, drift.Drift]:
    """The tests of 150 lists of ten that were answered twice, by kind."""
    rng, n = np.random.default_rng(3), 500
    truth, shifted = rng.normal(0, 2, n), np.arange(n) < 50
    items = np.concatenate([rng.permutation(n) for _ in range(3)]).astype(np.int32)
    matches = Matches(items, np.arange(151, dtype=np.int64) * 10)
    before = asked(truth, rng, matches)
    after = asked(truth * spread + shift * 2 * shifted, rng, matches, slope)
    theta = ESTIMATORS["pl"].fit(joined([before, after]), n, Parameters(position=False)).theta
    groups = {"shifted": shifted.astype(np.float64)}
    return {one.kind: one for one in drift.tests(before, after, theta, groups)}


def test_a_judge_that_stays_the_same_has_not_drifted() -> None:
    assert not any(one.found for one in answered_twice().values())


@pytest.mark.parametrize(
    ("how", "kind", "change"),
    [
        ({"spread": 0.7}, "spread", -0.2),
        ({"slope": 1.0}, "position", 0.5),
        ({"shift": 0.7}, "group shifted", 0.63),
    ],
)
def test_drift_of_each_kind_is_found_with_its_size(how: Any, kind: str, change: float) -> None:
    one = answered_twice(**how)[kind]
    low, high = np.array([one.low, one.high], dtype=float)
    assert one.found
    assert low < change < high
    assert one.change == pytest.approx(change, abs=0.15)


def test_signs_have_the_probabilities_of_students_t() -> None:
    u = np.array([1.0, -1.0] * 5 + [0.0]) + 0.7052  # of 11, so that t is 2.228, its 5 % point
    t = u.mean() / (u.std(ddof=1) / np.sqrt(11))
    u = (u - u.mean()) * t / 2.228 + u.mean()
    assert drift.by_signs(u) == pytest.approx(0.05, abs=0.001)
    assert drift.by_signs(-u) == drift.by_signs(u)
    assert drift.by_signs(np.zeros(9)) == drift.by_signs(np.ones(1)) == 1


def test_drift_changes_no_score_and_nothing_that_is_read_of_the_run(
    tmp_path: Path, texts: Path
) -> None:
    alone, both = tmp_path / "alone", tmp_path / "both"
    for folder in (alone, both):
        folder.mkdir()
        with mock(folder) as url:
            run(folder, texts, url)
            if folder == both:
                before, shown = scores(only_run(both)), judgeq(both, "status", "--json").stdout
                assert json_of(both, "drift", "--ask", "20", "--max-cost", "0.5")["drift"] is False
                assert json_of(both, "drift")["same"] == 20
                assert scores(only_run(both)) == before
                assert judgeq(both, "status", "--json").stdout == shown
            judgeq(folder, "resume", "--rounds", "4", "-q")
    assert scores(only_run(alone)) == scores(only_run(both))


def test_killed_it_goes_on_and_pays_for_nothing_twice(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path, "--latency", "0.1") as url:
        run(tmp_path, texts, url)
        place, before = only_run(tmp_path), stats(url)["answered"]
        words = ("drift", "--ask", "24", "--max-cost", "0.5", "--concurrency", "3")
        process = start(tmp_path, *words)
        wait_until(lambda: query(place, ANSWERED_AGAIN)[0][0] >= 6, process)
        process.kill()
        process.communicate()
        assert 6 <= query(place, ANSWERED_AGAIN)[0][0] < 24
        judgeq(tmp_path, *words)
        judgeq(tmp_path, "drift")
        assert query(place, ANSWERED_AGAIN) == [(24,)]
        assert stats(url)["answered"] <= before + 24 + 3


def test_killed_after_its_last_answer_it_shows_them_and_asks_nothing(
    tmp_path: Path, texts: Path
) -> None:
    (warm := tmp_path / "warm").mkdir()
    (folder := tmp_path / "run").mkdir()
    again = ("drift", "--ask", "12", "--max-cost", "0.5")
    with mock(tmp_path) as url:
        with forks(warm, ("run", "demo", "--sample", "20", "-q")) as sessions:
            run(folder, texts, url)
            before = stats(url)["answered"]
            assert sessions.session(folder, again, "before answers are read", 1).code is None
            assert stats(url)["answered"] == before + 12
            done = judgeq(folder, *again)
            assert "weren't shown yet" in done.stderr
            assert "12 questions" in done.stdout
            assert stats(url)["answered"] == before + 12
        judgeq(folder, *again)  # it was shown: these are new ones
        assert stats(url)["answered"] == before + 24
    assert query(only_run(folder), ANSWERED_AGAIN) == [(24,)]


def test_its_cap_holds_and_a_higher_one_goes_on(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path, "--model-after", "40") as url:
        run(tmp_path, texts, url)
        judgeq(tmp_path, "drift", "--ask", "20", expect=2)
        some = json_of(tmp_path, "drift", "--ask", "20", "--max-cost", "0.035", expect=6)
        assert some["error"]["exit_code"] == 6
        assert some["totals"]["cost"] <= 0.035
        assert 0 < some["jobs"]["done"] < 20
        rest = json_of(tmp_path, "drift", "--ask", "20", "--max-cost", "0.5")
        assert rest["jobs"]["done"] == 20
        assert {one["model"] for one in rest["then"]} == {"m"}
        assert "m-next" in {one["model"] for one in rest["now"]}


def test_what_can_not_be_asked_again_is_told(tmp_path: Path) -> None:
    demo = ("run", "demo", "--sample", "40", "-q", "--strategy")

    def refused(*words: str, expect: int = 2) -> str:
        return judgeq(tmp_path, "drift", *words, expect=expect).stderr

    judgeq(tmp_path, *demo, "listwise10x1")
    assert "give --ask" in refused()
    assert "has 4 answered questions" in refused("--ask", "5")
    assert "no such column" in refused("--group-column", "x")
    judgeq(tmp_path, *demo, "direct", "--new")
    assert "has 0 answered" in refused("--ask", "5")
    refused("nobody", "--ask", "5", expect=7)


@pytest.mark.parametrize("within", [(), ("--group-column", "topic")])
def test_a_group_is_named_by_a_column(tmp_path: Path, within: tuple[str, ...]) -> None:
    rows = [f"{i},{'sport' if i % 3 else 'politics'},{i % 7}" for i in range(60)]
    table = "\n".join(["text,topic,gold", *rows])
    (tmp_path / "texts.csv").write_text(table, encoding="utf-8")
    judgeq(tmp_path, "run", "texts.csv", "--gold-column", "gold", "-q", *within)
    found = json_of(tmp_path, "drift", "--ask", "10", "--group-column", "topic")
    assert [one["kind"] for one in found["tests"]][2:] == ["group politics", "group sport", "items"]


def test_in_a_store_its_spending_is_no_part_of_the_runs_cap(tmp_path: Path, texts: Path) -> None:
    at = ("--store", new_store())
    with mock(tmp_path) as url:
        run(tmp_path, texts, url, *at, "--max-output-tokens", "40", "--max-cost", "1")
        cost = json_of(tmp_path, "status", *at)["cost"]
        found = json_of(tmp_path, "drift", "--ask", "12", "--max-cost", "0.5", *at)
        assert found["same"] == found["jobs"]["done"] == 12
        assert json_of(tmp_path, "status", *at)["jobs"]["done"] == 30
        # The fourth round of ten lists costs less than what drift has: the cap is for the run alone.
        more = ("--rounds", "4", "--max-cost", str(cost * 1.6), "--concurrency", "1", "-q")
        judgeq(tmp_path, "resume", *more, *at)
        assert json_of(tmp_path, "status", *at)["jobs"]["done"] == 40
