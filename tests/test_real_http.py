"""Whole runs against the mock server over real HTTP: storms, caps, errors that stop a run."""

import json
import re
from pathlib import Path

import pytest

from tests.cli import json_of, judgeq, only_run, query, scores
from tests.mock import mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo")

PRICES = ("--price", "1,10")
N = 400


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    rows = [f"This is text number {i}. {'It goes on. ' * (i % 7)}" for i in range(N)]
    path.write_text("\n".join(["text", *rows]), encoding="utf-8")
    return path


@pytest.fixture(params=["openai", pytest.param("anthropic", marks=pytest.mark.long)])
def form(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The flags that say which form of API the server speaks."""
    return ("--api", request.param)


def job(texts: Path, url: str, *flags: str) -> tuple[str, ...]:
    model = ("--judge", "mock", "--base-url", url, *PRICES)
    return ("run", "-d", str(texts), "--prompt", "bias", *model, "--quiet", *flags)


def paid(run: Path) -> tuple[int, ...]:
    """Tokens in and out, and dollars."""
    (row,) = query(run, "SELECT sum(input + cached), sum(output), sum(cost) FROM calls")
    return row


def counted(run: Path, table: str, column: str) -> dict[str, int]:
    """How often each value stands in a column."""
    rows = query(run, f"SELECT {column}, count(*) FROM {table} GROUP BY {column}")
    return {str(value): count for value, count in rows}


def test_the_same_texts_are_bought_once_by_all_runs(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path) as url:
        first = json_of(tmp_path, *job(texts, url))
        run = only_run(tmp_path)
        before = scores(run)
        assert first["calls"] == 120
        assert first["cost"] == pytest.approx(paid(run)[2])
        seen = stats(url)
        assert (seen["answered"], seen["asked_again"]) == (120, 0)
        assert seen["tokens"]["input"] == first["tokens"]["input"]

        again = json_of(tmp_path, *job(texts, url, "--new"))
        assert (again["calls"], again["cost"]) == (0, 0)
        assert (again["cache_hits"], again["cache_saved"]) == (120, pytest.approx(first["cost"]))
        assert stats(url)["requests"] == 120
        for folder in (tmp_path / "runs").iterdir():
            assert scores(folder) == before

        assert json_of(tmp_path, *job(texts, url, "--new", "--no-cache"))["calls"] == 120
        assert stats(url)["requests"] == 240


def test_another_limit_on_output_is_the_same_run_and_a_reply_that_it_cut_off_is_none(
    tmp_path: Path, texts: Path, form: tuple[str, str]
) -> None:
    with mock(tmp_path) as url:
        mine = (*job(texts, url, *form), "--sample", "40", "-s", "listwise10x1")
        cut = ("--max-output-tokens", "5", "--max-invalid", "1")
        assert json_of(tmp_path, *mine, *cut, expect=4)["error"]["exit_code"] == 4
        run = only_run(tmp_path)
        assert counted(run, "jobs", "state") == {"invalid": 4}
        judgeq(tmp_path, "resume", run, "--max-output-tokens", "900", "--retry-failed", "-q")
        assert counted(run, "jobs", "state") == {"done": 4}
        bought = stats(url)["requests"]
        # None of it, with no limit and a third one: neither in this run nor from the cache.
        for more in ((), ("--max-output-tokens", "700"), ("--max-output-tokens", "800", "--new")):
            assert json_of(tmp_path, *mine, *more)["jobs"]["done"] == 4
        assert stats(url)["requests"] == bought


@pytest.mark.usefixtures("short_waits")
def test_a_storm_ends_with_every_job_done_or_honestly_invalid(
    tmp_path: Path, texts: Path, form: tuple[str, str]
) -> None:
    faults = {"rate-limited": 0.2, "errors": 0.1, "dropped": 0.05, "hung": 0.05, "unreadable": 0.05}
    flags = [part for name, share in faults.items() for part in (f"--{name}", str(share))]
    with mock(tmp_path, *flags, "--retry-after", "0.05", "--seed", "3") as url:
        # The server means 0.05 s by Retry-After; half of its 429s don't say so.
        judgeq(tmp_path, *job(texts, url, *form, "--timeout", "0.5", "--rounds", "2"))
        seen = stats(url, questions=True)
    run = only_run(tmp_path)
    states = counted(run, "jobs", "state")
    assert states["done"] + states.get("invalid", 0) == 80
    asked = "SELECT min(attempts), min(unusable), max(unusable) FROM jobs WHERE state = 'invalid'"
    assert query(run, asked) in ([(2, 2, 2)], [(None, None, None)])
    assert query(run, "SELECT count(*) FROM verdicts") == [(states["done"],)]
    # Nothing is made up: each verdict's ranking is in a reply that is in the ledger.
    answered = "SELECT job FROM calls WHERE outcome = 'ok'"
    assert query(run, f"SELECT count(*) FROM verdicts WHERE job NOT IN ({answered})") == [(0,)]
    # The ledger and the server have counted the same.
    outcomes = counted(run, "calls", "outcome")
    assert sum(outcomes.values()) == seen["requests"]
    assert outcomes["ok"] + outcomes["unusable"] == seen["answered"]
    ours = ("rate_limited", "server_error", "connection", "timeout")
    theirs = ("rate_limited", "errors", "dropped", "hung")
    assert [outcomes[name] for name in ours] == [seen["outcomes"][name] for name in theirs]
    read, written, cost = paid(run)
    assert (read, written) == (seen["tokens"]["input"], seen["tokens"]["output"])
    assert cost == pytest.approx((read + 10 * written) / 1e6)


def test_the_cap_is_never_overshot_and_a_higher_one_goes_on(
    tmp_path: Path, texts: Path, form: tuple[str, str]
) -> None:
    mine = ("--strategy", "pairwise3", "--concurrency", "500", "--max-output-tokens", "60")
    flags = ("--latency", "0.05", "--reasoning-tokens", "30", "--dropped", "0.05")
    with mock(tmp_path, *flags) as url:
        cheap = job(texts, url, *form, *mine)
        told = json_of(tmp_path, *cheap, "--dry-run")
        assert stats(url)["requests"] == 0
        assert not (tmp_path / "runs").exists()
        cap = told["cost"]["high"] / 10
        done = judgeq(tmp_path, *cheap, "--max-cost", f"{cap:.6f}", "--json", expect=6)
        result = json.loads(done.stdout)
        assert result["partial"] is True
        assert "the next call might exceed --max-cost" in done.stderr
        seen = stats(url)["tokens"]
        spent = (seen["input"] + 10 * seen["output"]) / 1e6
        assert cap / 3 < spent <= cap
        assert result["cost_of_priced_calls"] == pytest.approx(spent)
        run = only_run(tmp_path)
        assert "elo" in scores(run)
        more = json_of(tmp_path, *cheap, "--max-cost", "100")
        assert more["partial"] is False
        assert more["jobs"]["done"] == 600


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--quota-after", "5"), "quota is used up"),
        (("--max-input-tokens", "100"), "longer than mock can read"),
        (("--key", "sk-right-0123456789"), "No API key was sent. Put it into $JUDGEQ_API_KEY"),
    ],
)
def test_what_no_other_try_mends_stops_the_run_at_once(
    tmp_path: Path, texts: Path, form: tuple[str, str], flags: tuple[str, ...], told: str
) -> None:
    with mock(tmp_path, *flags) as url:
        done = judgeq(tmp_path, *job(texts, url, *form), expect=4)
        assert told in done.stderr
        assert "All answers so far are saved. Fix this, then run the same" in done.stderr
        seen = stats(url)
        assert seen["requests"] - seen["answered"] <= 32  # what was in flight by then
        if "--key" in flags:
            judgeq(tmp_path, "resume", expect=4)
            assert stats(url)["requests"] == 2  # one call each time
        assert json_of(tmp_path, "status")["last_failure"]["in_a_row"] > 0
        said = " ".join(judgeq(tmp_path, "status").stdout.split())
        assert "since the last answer: " in said.lower()
    if "--max-input-tokens" in flags:
        assert "items is item " in done.stderr
    run = only_run(tmp_path)
    assert query(run, "SELECT count(*) FROM jobs WHERE state = 'running'") == [(0,)]


@pytest.mark.usefixtures("short_waits")
def test_failures_inside_a_200_are_tried_again_and_no_text_is_lost(
    tmp_path: Path, texts: Path
) -> None:
    with mock(tmp_path, "--failed-inside", "0.5", "--seed", "3") as url:
        judgeq(tmp_path, *job(texts, url, "--rounds", "1"))
        seen = stats(url)
    run = only_run(tmp_path)
    assert counted(run, "jobs", "state") == {"done": 40}
    outcomes = counted(run, "calls", "outcome")
    assert outcomes.keys() == {"ok", "server_error", "rate_limited"}
    assert outcomes["ok"] == 40
    failed = outcomes["server_error"] + outcomes["rate_limited"]
    assert failed == seen["outcomes"]["failed_inside"]
    assert failed > 10


def test_each_thing_that_a_server_can_not_do_costs_one_refused_call(
    tmp_path: Path, texts: Path
) -> None:
    """No system role, no schemas, streaming unless told not to; and it thinks in the open."""
    flags = ("--system-role", "0", "--structured", "json", "--streams", "1", "--thinks", "1")
    with mock(tmp_path, *flags) as url:
        judgeq(tmp_path, *job(texts, url, "--rounds", "1", "--concurrency", "50"))
    run = only_run(tmp_path)
    assert counted(run, "jobs", "state") == {"done": 40}
    assert counted(run, "calls", "outcome") == {"ok": 40, "stepped_down": 2}


def test_the_reported_cost_counts_also_under_a_cap(tmp_path: Path, texts: Path) -> None:
    """It is higher than the price of its tokens, and lower than what a call reserves."""
    mine = ("--strategy", "pairwise3", "--max-output-tokens", "60", "--concurrency", "50")
    with mock(tmp_path, "--reported-cost", "0.001") as url:
        cap = 0.0505
        capped = (*job(texts, url, *mine), "--max-cost", str(cap), "--json")
        done = judgeq(tmp_path, *capped, expect=6)
        answered = stats(url)["answered"]
    result = json.loads(done.stdout)
    assert result["cost_of_priced_calls"] == pytest.approx(answered * 0.001)
    assert cap / 2 < answered * 0.001 <= cap


@pytest.mark.parametrize(("cost", "cap"), [(0.09, 1.0), (0.5, 0.1)])
def test_sessions_keep_to_a_cap_that_reported_costs_are_above(
    tmp_path: Path, texts: Path, cost: float, cap: float
) -> None:
    """Each cost is many times what the price says, which the first call alone may not know."""
    with mock(tmp_path, "--reported-cost", str(cost)) as url:
        mine = (
            *job(texts, url, "--strategy", "pairwise3"),
            "--price",
            "1,1",
            "--concurrency",
            "20",
        )
        first = judgeq(tmp_path, *mine, "--max-cost", str(cap), expect=6)
        bought = stats(url)["answered"]
        assert bought * cost <= max(cap, cost) + 1e-9
        for words in (mine, ("resume", only_run(tmp_path), "--quiet")):
            again = judgeq(tmp_path, *words, "--max-cost", str(cap), expect=6)
            assert stats(url)["answered"] == bought
        for done in (first, again):
            assert "--max-output-tokens" not in done.stderr
            (bound,) = re.findall(r"may cost up to \$([0-9.]+)\. ", done.stderr)
            assert float(bound) == pytest.approx(2 * cost, rel=0.05)  # questions differ in length
        for _ in range(3):  # what it says pays the next call, and holds
            (remedy,) = re.findall(r"--max-cost ([0-9.]+) is enough", done.stderr)
            done = judgeq(tmp_path, *mine, "--max-cost", remedy, expect=6)
            assert stats(url)["answered"] > bought
            bought = stats(url)["answered"]
            assert bought * cost <= float(remedy) + 1e-9
    assert paid(only_run(tmp_path))[2] == pytest.approx(bought * cost)


def test_a_price_that_is_as_high_as_the_reported_cost_ends_the_larger_reserve(
    tmp_path: Path, texts: Path
) -> None:
    with mock(tmp_path, "--reported-cost", "0.09") as url:
        mine = job(texts, url, "--strategy", "pairwise3", "--max-output-tokens", "100")
        low, right = ("--price", "1,1"), ("--price", "100,500")
        judgeq(tmp_path, *mine, *low, "--max-cost", "0.2", expect=6)
        assert stats(url)["answered"] == 1
        judgeq(tmp_path, *mine, *right, "--max-cost", "0.5", expect=6)
        assert stats(url)["answered"] > 2


def test_a_free_model_that_reports_costs_keeps_to_the_cap(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path, "--reported-cost", "0.5") as url:
        mine = (*job(texts, url, "--strategy", "pairwise3"), "--price", "0,0", "--max-cost", "0.1")
        for _ in range(2):
            done = judgeq(tmp_path, *mine, expect=6)
            assert "may cost up to $1" in done.stderr
            assert stats(url)["answered"] == 1


def test_a_reported_cost_is_shown_where_no_price_is_known(tmp_path: Path, texts: Path) -> None:
    model = ("--judge", "mock", "--prompt", "bias", "-s", "listwise10x1")
    with mock(tmp_path, "--reported-cost", "0.25") as url:
        result = json_of(tmp_path, "run", "-d", str(texts), *model, "--base-url", url)
    assert (result["calls"], result["cost"]) == (40, pytest.approx(10.0))
