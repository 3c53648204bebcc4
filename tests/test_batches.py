"""Runs that are asked in batches: what goes out, comes back, and is left in the ledger."""

import itertools
import math
import re
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from judgeq.engine import batch, batch_jobs
from judgeq.engine.batch_jobs import Requests, budget_of
from judgeq.engine.interrupts import Stop
from judgeq.errors import (
    BatchGoneError,
    BatchNotFoundError,
    BrokenResultsError,
    BudgetError,
    ConnectionFailedError,
    JudgeError,
    KeyRefusedError,
    RefusedRequestError,
)
from judgeq.judge.backend import Download, Remote
from judgeq.judge.budget import Budget
from judgeq.store.sqlite import SqliteStore
from judgeq.types import Batch, BatchState, Job, JobState, Line, Outcome
from judgeq.ui.show.status import DAY, deadlines
from tests.batch_killing import quick
from tests.batch_server import APIS, texts_in
from tests.cli import ended, execute, json_of, judgeq, only_run, query, scores
from tests.fakes import FakeBatches, by_model
from tests.faulty_server import FaultyBatches
from tests.mock import billed, mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo")

LISTS = ("-d", "demo", "-s", "listwise5x2", "--price", "1,2", "--quiet", "--judge", "m")
by_api = pytest.mark.parametrize("api", APIS)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, short_waits: None) -> None:
    quick(monkeypatch.setattr)


def status(folder: Path) -> Any:
    return json_of(folder, "status")


def by_question(url: str) -> list[int]:
    """How often each question was answered."""
    return [one["answered"] for one in stats(url, questions=True)["by_question"].values()]


@pytest.mark.parametrize(("api", "how"), [("openai", ""), ("anthropic", "--batch")])
def test_what_was_asked_again_is_not_bought_again(tmp_path: Path, api: str, how: str) -> None:
    with mock(tmp_path, "--batch-time", "0", "--unreadable", "0.1", "--seed", "1") as url:
        run = ("run", *LISTS, "--base-url", url, *APIS[api], *how.split())
        judgeq(tmp_path, *run)
        assert status(tmp_path)["jobs"]["done"] == 96
        bought = by_question(url)
        assert len(bought) > 96
        judgeq(tmp_path, *run, "--new")
        assert by_question(url) == bought
    first, second = (scores(path.parent) for path in tmp_path.glob("runs/*/scores.csv"))
    assert first == second


@pytest.mark.usefixtures("undrawn")
def test_equal_questions_are_bought_once_also_in_one_batch(tmp_path: Path) -> None:
    texts = tmp_path / "texts.csv"
    texts.write_text("id,text\na,good\nb,bad\nc,good\nd,good\n")
    run = ("run", "-d", str(texts), "--prompt", "bias", "-s", "direct", *LISTS[4:], "--batch")
    with mock(tmp_path, "--batch-time", "0") as url:
        judgeq(tmp_path, *run, "--base-url", url)
        assert by_question(url) == [1, 1]
    state = status(tmp_path)
    assert (state["jobs"]["done"], state["calls"], state["cache_hits"]) == (4, 2, 2)
    report = json_of(tmp_path, "report", "--format", "md")
    assert "2 calls (sent in batches)" in Path(tmp_path, report["files"][0]).read_text("utf-8")


SENT = Batch("jq1", 0, "openai", "http://h/v1", "schema", 0.0, 48, 1.0, 1.0, BatchState.SENT, "b")


def test_results_that_are_soon_deleted_are_warned_of() -> None:
    theirs = SENT._replace(api="anthropic")
    assert deadlines([SENT, theirs], 19 * DAY) == []
    (warning,) = deadlines([SENT, theirs], 19.5 * DAY)
    assert "deleted by its provider on about 1970-01-30" in warning
    assert len(deadlines([SENT, theirs], 21 * DAY)) == 2
    assert "may be gone" in deadlines([SENT], 31 * DAY)[0]
    assert deadlines([SENT._replace(state=BatchState.COLLECTED)], 31 * DAY) == []


ASKED = ("--prompt", "bias", "--quiet", "--price", "1,2", "--max-output-tokens", "200")
FOURS = ("--strategy", "listwise4x2", "--judge", "m", *ASKED)
QUESTIONS = 8


def live(folder: Path, texts: Path, *words: str) -> str:
    """The scores of the same run asked live."""
    place = folder / "live"
    place.mkdir()
    with mock(place) as url:
        judgeq(place, "run", "-d", texts, *words, "--base-url", url, "--no-cache")
    return scores(only_run(place))


KINDS = {
    "two models": "--strategy listwise4x2 --judge m --judge n",
    "each": "--strategy listwise4x2 --judge m --judge n --ensemble each",
    "personas": "--strategy listwise4x2 --judge m --persona journalist --persona reader",
    "both orders": "--strategy pairwise2 --judge m --both-orders",
    "direct": "--strategy direct --judge m",
    "hybrid": "--strategy hybrid --judge m",
    "reasons": "--strategy listwise4x2 --judge m --reasons",
    "until": "--strategy listwise10x9 --judge m --until 0.5",
}


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts_in(tmp_path_factory.mktemp("texts"), 16)


@pytest.mark.parametrize(("api", "kind"), list(zip(itertools.cycle(APIS), KINDS, strict=False)))
def test_runs_of_every_kind_have_the_scores_of_live_ones(
    tmp_path: Path, texts: Path, api: str, kind: str
) -> None:
    words = (*KINDS[kind].split(), *ASKED, *APIS[api])
    with mock(tmp_path, "--batch-time", "0") as url:
        batched = ("--base-url", url, "--batch", "--batch-size", "5")
        judgeq(tmp_path, "run", "-d", texts, *words, *batched)
        seen = stats(url)
    assert seen["requests"] == 0
    assert seen["batches"]["billed"] == query(only_run(tmp_path), "SELECT count(*) FROM jobs")[0][0]
    assert scores(only_run(tmp_path)) == live(tmp_path, texts, *words)


@by_api
def test_a_cap_cuts_rounds_into_batches_and_is_never_exceeded(
    tmp_path: Path, texts: Path, api: str
) -> None:
    words = (*FOURS, *APIS[api])
    codes, cap, paid, most = list[int](), 0.0006, 0.0, 0
    with mock(tmp_path, "--batch-time", "0.02") as url:
        while codes[-1:] != [0] and len(codes) < 20:
            flags = ("--base-url", url, "--batch", "--max-cost", str(cap))
            done = ended(tmp_path, "run", "-d", texts, *words, *flags)
            codes.append(done.returncode)
            seen = stats(url)
            most = max([most, *(batch["lines"] for batch in seen["batches"]["list"])])
            paid = billed(seen)
            assert paid <= cap
            assert codes[-1] == 0 or "might exceed --max-cost" in done.stderr
            cap += 0.0002
            answered = by_question(url)
    assert set(codes[:-1]) == {6}
    assert codes[-1] == 0
    assert answered == [1] * QUESTIONS
    assert most < QUESTIONS // 2, "no batch was a whole round"
    assert status(tmp_path)["cost"] == pytest.approx(paid, rel=1e-12)
    assert scores(only_run(tmp_path)) == live(tmp_path, texts, *words)


PAIRS = ("-d", "demo", "--sample", "48", "-s", "pairwise1", "--price", "1,2")
PAIRED = (*PAIRS, "--judge", "m", "--base-url", "http://127.0.0.1:9/v1")
RUN = ("run", *PAIRED, "--quiet", "--batch")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeBatches:
    """The provider of the model m."""
    fake = FakeBatches()
    by_model(monkeypatch, m=fake)
    return fake


def edit(folder: Path, statement: str, *values: object) -> None:
    """Change the ledger of the folder's run."""
    execute(only_run(folder) / "run.db", (statement, values))


FULL = {"status": "failed", "stands": "refused", "full": True, "problems": ["too much waits"]}


@pytest.mark.parametrize("refused", [{}, FULL])
def test_under_a_cap_a_live_session_first_collects_what_may_hold_the_rest(
    tmp_path: Path, fake: FakeBatches, refused: dict[str, Any]
) -> None:
    """Or what is refused meanwhile for too much that waits."""
    capped = ("--max-cost", "0.015", "--max-output-tokens", "100")
    with mock(tmp_path) as url:
        said = judgeq(tmp_path, *RUN, "--base-url", url, *capped, "--no-wait", expect=5).stderr
        jobs = status(tmp_path)["jobs"]
        assert f"1 batch still out, with {jobs['running']} questions" in said
        assert jobs["running"] + jobs["pending"] == 24 > jobs["running"]
        judgeq(tmp_path, "estimate", *PAIRED, "--base-url", url, "--pilot", "20", *capped, expect=7)
        fake.stands |= refused
        judgeq(tmp_path, *RUN[:-1], "--base-url", url, *capped)
        assert stats(url)["requests"] == (24 if refused else jobs["pending"])
    assert status(tmp_path)["state"] == "finished"


def test_a_batch_that_may_not_have_been_created_cant_be_cancelled_which_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: FakeBatches
) -> None:
    fake.errors["create"] = ConnectionFailedError("the connection broke.")
    fake.doubtful = ["r7"]
    sleep = Stop.sleep

    async def stopped(stop: Stop, seconds: float) -> None:
        if fake.asked.count("identify") > 1:
            stop.ask()
        await sleep(stop, seconds)

    monkeypatch.setattr(Stop, "sleep", stopped)
    done = judgeq(tmp_path, "run", *PAIRED, "--batch", expect=5)
    assert done.stderr.count("may be r7") == 1 < fake.asked.count("identify")
    said = judgeq(tmp_path, "runs", "batches", "cancel", expect=4).stderr
    assert "Nobody knows yet whether batch jq" in said


@pytest.mark.parametrize("years", [-1, 0, 1])
def test_a_batch_that_nobody_lists_is_given_up_whatever_the_clock_said_when_it_was_made(
    tmp_path: Path, fake: FakeBatches, years: int
) -> None:
    fake.errors["create"] = ConnectionFailedError("the connection broke.")
    judgeq(tmp_path, *RUN, "--no-wait", expect=5)
    edit(tmp_path, "UPDATE batches SET made = made + ?", years * 31_557_600)
    fake.errors.clear()
    judgeq(tmp_path, "resume", "--wait")
    assert status(tmp_path)["unknown_attempts"] == 24


def test_a_line_of_results_that_is_always_broken_counts_as_possibly_paid_and_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "DOUBT_LOOKS", 2)
    by_model(monkeypatch, m=(fake := Breaking()))
    done = judgeq(tmp_path, "run", *PAIRED, "--batch")
    assert "lack 1 of its lines, which may have been paid for" in done.stderr
    assert fake.asked.count("download") == 2 + 1 + 1
    state = status(tmp_path)
    assert (state["jobs"]["done"], state["unknown_attempts"]) == (24, 1)


class Breaking(FakeBatches):
    """Its first batch has a broken line among its results."""

    async def download(self, remote: Remote, folder: Path, *, as_it_is: bool = False) -> Download:
        download = await super().download(remote, folder)
        (file,) = download.files
        if len(self.created) == 1:
            if not as_it_is:
                return Download([], [BrokenResultsError("a line of it is none.")])
            _, *rest = file.read_bytes().splitlines()
            file.write_bytes(b"\n".join((b"", *rest)))
        return download


NOT_FOUND = BatchNotFoundError("the provider doesn't find it (404).")
MINUTE = 60.0
HOUR = 60 * MINUTE


class SleepingClock:
    """Seconds since the epoch, which pass only while a session waits."""

    def __init__(self) -> None:
        self.now = self.start = time.time()

    def __call__(self) -> float:
        return self.now

    @property
    def passed(self) -> float:
        """Return the seconds since the test began."""
        return self.now - self.start


class ForgetfulBatches(FakeBatches):
    """A provider that at times doesn't find its first batch ("get"), or its results ("download")."""

    def __init__(self, clock: SleepingClock, method: str, *times: tuple[float, float]) -> None:
        super().__init__()
        self._clock = clock
        self._method = method
        self._times = times
        self.looked_at: list[float] = []

    def _ask(self, method: str) -> None:
        super()._ask(method)
        if method == self._method and len(self.created) == 1:
            self.looked_at.append(self._clock.passed)
            if any(first <= self._clock.passed < last for first, last in self._times):
                raise NOT_FOUND


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SleepingClock:
    """The clock of batches, with the waits as they are for users; a session that waits moves it."""
    clock = SleepingClock()

    async def sleep(stop: Stop, seconds: float) -> None:
        clock.now += seconds

    monkeypatch.setattr(Stop, "sleep", sleep)
    monkeypatch.setattr(batch, "Batches", partial(batch.Batches, clock=clock))
    for name, seconds in {"FIRST_WAIT": 10.0, "LONGEST_WAIT": 300.0, "DOUBT_SECONDS": HOUR}.items():
        monkeypatch.setattr(batch, name, seconds)
    return clock


by_method = pytest.mark.parametrize("method", ["get", "download"])


@by_method
def test_a_batch_that_isnt_found_for_a_while_is_not_bought_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SleepingClock, method: str
) -> None:
    provider = ForgetfulBatches(clock, method, (0, 50 * MINUTE))
    by_model(monkeypatch, m=provider)
    done = judgeq(tmp_path, "run", *PAIRED, "--batch")
    assert len(provider.created) == 1
    assert done.stderr.count("is in doubt since") == 1
    assert "nothing of it is sent again before" in done.stderr
    assert 50 * MINUTE <= clock.passed < HOUR
    state = status(tmp_path)
    assert state["jobs"]["done"] == 24
    assert state["unknown_attempts"] == 0
    doubtful = "SELECT 1 FROM batches WHERE error IS NOT NULL OR doubt IS NOT NULL"
    assert query(only_run(tmp_path), doubtful) == []


@by_method
def test_a_batch_that_isnt_found_for_an_hour_is_lost_and_its_questions_are_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SleepingClock, method: str
) -> None:
    provider = ForgetfulBatches(clock, method, (0, math.inf))
    by_model(monkeypatch, m=provider)
    done = judgeq(tmp_path, "run", *PAIRED, "--batch")
    assert len(provider.created) == 2
    said = " ".join(done.stderr.split())
    assert re.search(r"is lost: the provider doesn't find it .*It has said so since 20", said)
    looks = provider.looked_at
    waits = [later - earlier for earlier, later in itertools.pairwise(looks)]
    assert looks[-1] - looks[0] >= HOUR > looks[-2] - looks[0]
    assert waits == pytest.approx(sorted(waits))
    assert waits[0] < 20
    assert waits[-1] == pytest.approx(300.0)
    state = status(tmp_path)
    assert state["jobs"]["done"] == 24
    assert state["unknown_attempts"] == 24


@by_method
def test_a_doubt_about_a_batch_is_kept_over_sessions_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SleepingClock, method: str
) -> None:
    """Each session looks once, 14 minutes after the last: the fifth before the hour is over."""
    provider = ForgetfulBatches(clock, method, (0, math.inf))
    by_model(monkeypatch, m=provider)
    judgeq(tmp_path, *RUN, "--no-wait", expect=5)
    for _ in range(5):
        stopped = judgeq(tmp_path, "resume", "--no-wait", expect=5)
        assert "of 1 it isn't sure yet" in stopped.stderr
        for screen in ("status", "runs batches"):
            shown = " ".join(judgeq(tmp_path, *screen.split()).stdout.split())
            assert "in doubt until" in shown, screen
            assert "nothing of it is sent again before" in shown, screen
        clock.now += 14 * MINUTE
    (kept,) = json_of(tmp_path, "runs", "batches")
    assert kept["doubt"] == {"get": "batch", "download": "results"}[method]
    assert kept["doubted_looks"] == 5
    assert kept["doubted_since"] == pytest.approx(clock.start)
    assert len(provider.created) == 1
    judgeq(tmp_path, "resume", "--wait")
    assert len(provider.created) == 2


def test_two_doubts_about_a_batch_are_not_one_long_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SleepingClock
) -> None:
    provider = ForgetfulBatches(clock, "get", (0, 40 * MINUTE), (50 * MINUTE, 90 * MINUTE))
    provider.stands = {"status": "in_progress", "stands": "working"}
    by_model(monkeypatch, m=provider)
    judgeq(tmp_path, *RUN, "--no-wait", expect=5)
    for minutes in (0, 10, 20, 30, 39, 45, 50, 60, 70, 80, 89):
        clock.now = clock.start + minutes * MINUTE
        judgeq(tmp_path, "resume", "--no-wait", expect=5)
    provider.stands = {"status": "completed", "stands": "ended"}
    clock.now = clock.start + 2 * HOUR
    judgeq(tmp_path, "resume", "--wait")
    assert len(provider.created) == 1


def test_a_batch_that_isnt_found_but_is_listed_is_taken_from_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SleepingClock
) -> None:
    provider = ForgetfulBatches(clock, "get", (0, math.inf))
    provider.listed = ["r0"]
    by_model(monkeypatch, m=provider)
    done = judgeq(tmp_path, *RUN)
    assert done.stderr == ""
    assert len(provider.created) == 1
    assert status(tmp_path)["jobs"]["done"] == 24


@pytest.mark.parametrize(
    ("error", "hours"),
    [(RefusedRequestError("no batch API"), 24), (ConnectionFailedError("it broke."), 72)],
)
def test_while_the_list_cant_be_had_a_batch_stays_in_doubt_for_longer(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    clock: SleepingClock,
    error: JudgeError,
    hours: int,
) -> None:
    """For a day where there is no list; for as long as the list can't be asked."""
    provider = ForgetfulBatches(clock, "get", (0, math.inf))
    provider.errors["find_listed"] = error
    by_model(monkeypatch, m=provider)
    judgeq(tmp_path, *RUN, "--no-wait", expect=5)
    while clock.passed < hours * HOUR:
        judgeq(tmp_path, "resume", "--no-wait", expect=5)
        clock.now += 4 * HOUR
    assert len(provider.created) == 1
    if isinstance(error, ConnectionFailedError):
        provider.errors.clear()
    judgeq(tmp_path, "resume", "--wait")
    assert len(provider.created) == 2


@by_method
def test_a_batch_that_is_said_to_be_gone_is_asked_again_at_once(
    tmp_path: Path, clock: SleepingClock, fake: FakeBatches, method: str
) -> None:
    fake.errors[method] = BatchGoneError("the provider doesn't have it any longer (410)")
    judgeq(tmp_path, *RUN, "--no-wait", expect=5)
    lost = judgeq(tmp_path, "resume", "--no-wait", expect=5)
    assert "is lost: the provider doesn't have it any longer" in " ".join(lost.stderr.split())
    assert len(fake.created) == 2
    assert clock.passed == 0


def test_results_that_come_short_are_asked_for_again_for_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SleepingClock
) -> None:
    by_model(monkeypatch, m=(provider := Breaking()))
    done = judgeq(tmp_path, "run", *PAIRED, "--batch")
    assert "lack 1 of its lines" in done.stderr
    assert clock.passed >= HOUR
    assert len(provider.created) == 2


FAILED_LINES = 6
OUTPUT_FILE = "output_file_id"
ERROR_FILE = "error_file_id"


@dataclass
class UnreadableFile:
    """A file of results of a server's first batch that can't be read until some time has passed."""

    clock: SleepingClock
    name: str  # of the field with the file's id
    status: int  # of the answer in place of the file
    seconds: float

    def is_unreadable(self, server: FaultyBatches, file_id: str) -> bool:
        """Return whether it is this file, and can't be read yet."""
        first = next(iter(server.batches.values()))
        return first.fields.get(self.name) == file_id and self.clock.passed < self.seconds


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch, clock: SleepingClock) -> UnreadableFile:
    """The unreadable file of a server that fails the first lines of its first batch."""
    unreadable = UnreadableFile(clock, ERROR_FILE, 404, math.inf)
    content = FaultyBatches.content
    answer_line = FaultyBatches.answer_line
    failures = iter(range(FAILED_LINES))

    async def refuse(self: FaultyBatches, request: web.Request) -> web.StreamResponse:
        if unreadable.is_unreadable(self, request.match_info["id"]):
            return web.json_response({"error": {"message": "gone"}}, status=unreadable.status)
        return await content(self, request)

    def fail(self: FaultyBatches, data: bytes) -> web.Response:
        if next(failures, None) is not None:
            return web.json_response({"error": {"message": "failed"}}, status=500)
        return answer_line(self, data)

    monkeypatch.setattr(FaultyBatches, "content", refuse)
    monkeypatch.setattr(FaultyBatches, "answer_line", fail)
    return unreadable


def lines_sent(url: str) -> list[int]:
    """Return how many lines each batch at a server had."""
    return [sent["lines"] for sent in stats(url)["batches"]["list"]]


FILES_UNREADABLE = [(404, 50 * MINUTE), (404, math.inf), (410, math.inf)]


@pytest.mark.parametrize(("status_code", "seconds"), FILES_UNREADABLE)
def test_answers_are_settled_at_once_though_the_file_of_failed_lines_cant_be_read(
    tmp_path: Path, unreadable: UnreadableFile, status_code: int, seconds: float
) -> None:
    """The lines in it are asked again, at no cost, once it is read or given up."""
    unreadable.name = ERROR_FILE
    unreadable.status = status_code
    unreadable.seconds = seconds
    with mock(tmp_path, "--batch-time", "0") as url:
        judgeq(tmp_path, *RUN, "--base-url", url, "--no-wait", expect=5)
        judgeq(tmp_path, "resume", "--no-wait", expect=5)
        assert status(tmp_path)["jobs"]["done"] == 24 - FAILED_LINES
        assert lines_sent(url) == ([24] if status_code == 404 else [24, FAILED_LINES])
        done = judgeq(tmp_path, "resume", "--wait")
        assert lines_sent(url) == [24, FAILED_LINES]
        assert by_question(url) == [1] * 24
        paid = billed(stats(url))
    if status_code == 404 and seconds == math.inf:
        assert "cost nothing" in done.stderr
        assert unreadable.clock.passed >= HOUR
    state = status(tmp_path)
    assert state["jobs"]["done"] == 24
    assert state["unknown_attempts"] == 0
    assert state["cost"] == pytest.approx(paid)
    open_batches = "SELECT 1 FROM batches WHERE state <> 'collected' OR doubt IS NOT NULL"
    assert query(only_run(tmp_path), open_batches) == []


@pytest.mark.parametrize(("status_code", "seconds"), FILES_UNREADABLE)
def test_failed_lines_are_settled_at_once_though_the_file_of_answers_cant_be_read(
    tmp_path: Path, unreadable: UnreadableFile, status_code: int, seconds: float
) -> None:
    """The answers in it are bought again only once it is given up, and once."""
    unreadable.name = OUTPUT_FILE
    unreadable.status = status_code
    unreadable.seconds = seconds
    answered = 24 - FAILED_LINES
    is_lost = seconds == math.inf
    with mock(tmp_path, "--batch-time", "0") as url:
        judgeq(tmp_path, *RUN, "--base-url", url, "--no-wait", expect=5)
        judgeq(tmp_path, "resume", "--no-wait", expect=5)
        assert lines_sent(url) == [24, FAILED_LINES if status_code == 404 else 24]
        judgeq(tmp_path, "resume", "--wait")
        bought = sorted(by_question(url))
        assert bought == [1] * FAILED_LINES + [2 if is_lost else 1] * answered
        assert sum(lines_sent(url)) == 24 + sum(bought) - answered
    assert (unreadable.clock.passed >= HOUR) == (status_code == 404 and is_lost)
    state = status(tmp_path)
    assert state["jobs"]["done"] == 24
    assert state["unknown_attempts"] == (answered if is_lost else 0)


def test_a_session_killed_while_a_file_is_in_doubt_settles_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: UnreadableFile
) -> None:
    """The answers that were settled stay so, when their own file can't be read any longer."""
    monkeypatch.setattr(batch_jobs, "GROUP", 5)
    settle = SqliteStore.settle
    groups = itertools.count()

    async def killed(self: SqliteStore, worker: str, outcomes: Sequence[Outcome]) -> None:
        if worker.startswith("jq") and next(groups) == 2:
            raise RuntimeError("killed")
        await settle(self, worker, outcomes)

    monkeypatch.setattr(SqliteStore, "settle", killed)
    unreadable.seconds = 50 * MINUTE
    with mock(tmp_path, "--batch-time", "0") as url:
        judgeq(tmp_path, *RUN, "--base-url", url, "--no-wait", expect=5)
        with suppress(RuntimeError):
            ended(tmp_path, "resume", "--no-wait")
        assert status(tmp_path)["jobs"]["done"] == 10
        judgeq(tmp_path, "resume", "--no-wait", expect=5)
        assert status(tmp_path)["jobs"]["done"] == 24 - FAILED_LINES
        judgeq(tmp_path, "resume", "--wait")
        assert by_question(url) == [1] * 24
        paid = billed(stats(url))
    state = status(tmp_path)
    assert state["unknown_attempts"] == 0
    assert state["cost"] == pytest.approx(paid)


def test_a_file_that_isnt_found_next_to_a_broken_one_is_not_asked_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unreadable: UnreadableFile
) -> None:
    """The broken file is read as far as it goes before the rest is given up."""
    write = FaultyBatches.write

    def write_broken(self: FaultyBatches, *values: Any) -> None:
        is_first = len(self.batches) == 1 and not values[0].output
        write(self, *values)
        if is_first and values[0].output:
            values[0].output += b"{broken\n"

    monkeypatch.setattr(FaultyBatches, "write", write_broken)
    with mock(tmp_path, "--batch-time", "0") as url:
        judgeq(tmp_path, "run", *PAIRED, "--batch", "--base-url", url)
        assert by_question(url) == [1] * 24
    assert HOUR <= unreadable.clock.passed < 2 * HOUR


def test_a_batch_past_its_deadline_is_reported_and_not_awaited_for_ever(
    tmp_path: Path, clock: SleepingClock, fake: FakeBatches
) -> None:
    fake.stands = {"status": "in_progress", "stands": "working", "expires": clock.start + DAY}
    stopped = judgeq(tmp_path, *RUN, expect=5)
    said = " ".join(stopped.stderr.split())
    assert said.count("should have ended by") == 1
    assert "`judgeq runs batches cancel" in said
    assert "should have ended over a day ago" in said
    assert 2 * DAY < clock.passed < 2 * DAY + HOUR
    assert len(fake.created) == 1
    edit(tmp_path, "UPDATE batches SET made = made - ?, expires = ?", DAY, clock.start - 601)
    for screen in ("status", "runs batches"):
        shown = " ".join(judgeq(tmp_path, *screen.split()).stdout.split())
        assert "should have ended by" in shown, screen
    looks = fake.asked.count("get")
    judgeq(tmp_path, "resume", "--wait", expect=5)
    assert fake.asked.count("get") == looks + 1
    fake.stands = {"status": "completed", "stands": "ended"}
    judgeq(tmp_path, "resume", "--wait")
    assert len(fake.created) == 1


@pytest.mark.parametrize("lost", [1, 24])
def test_what_is_reserved_for_jobs_that_were_lost_before_they_were_sent_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    hand_over, losing = SqliteStore.hand_over, [lost]

    async def late(
        self: SqliteStore, worker: str, batch: Batch, lines: Sequence[Line]
    ) -> Collection[int]:
        gone = [line.job.match.id for line in lines][: losing.pop() if losing else 0]
        await self.settle(worker, [Outcome(job, JobState.PENDING) for job in gone])
        return await hand_over(self, worker, batch, lines)

    monkeypatch.setattr(SqliteStore, "hand_over", late)
    by_model(monkeypatch, m=FakeBatches())
    judgeq(tmp_path, *RUN, "--max-cost", "0.42")
    assert status(tmp_path)["state"] == "finished"


def test_one_provider_that_fails_keeps_no_other_from_being_collected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = FakeBatches(), FakeBatches()
    by_model(monkeypatch, m=bad, n=good)
    run = (*RUN, "--judge", "n", "--ensemble", "each")
    bad.errors["create"] = ConnectionFailedError("no connection.", cost=0.0)
    monkeypatch.setattr(batch, "TRIES", 2)
    judgeq(tmp_path, *run, expect=4)
    jobs = status(tmp_path)["jobs"]
    assert (jobs["done"], jobs["pending"]) == (24, 24)  # and then nothing is out
    assert {*bad.asked} == {"create"}
    bad.errors.clear()
    bad.stands = {"status": "in_progress", "stands": "working"}
    judgeq(tmp_path, "resume", "--no-wait", expect=5)
    bad.errors["get"] = KeyRefusedError("it refuses the key.")
    judgeq(tmp_path, "resume", expect=4)
    bad.errors.clear()
    bad.stands = good.stands
    judgeq(tmp_path, "resume")


@pytest.mark.parametrize("error", [KeyRefusedError("it refuses the key."), None])
def test_what_has_ended_is_collected_before_an_error_of_another_batch_ends_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: KeyRefusedError | None
) -> None:
    good, bad = FakeBatches(), FakeBatches()
    by_model(monkeypatch, m=bad, n=good)
    judgeq(tmp_path, *RUN, "--judge", "n", "--ensemble", "each", "--no-wait", expect=5)
    if error is None:  # it is at another address than its judge is asked at
        edit(tmp_path, "UPDATE batches SET address = 'http://127.0.0.1:8' WHERE judge = 0")
    else:
        bad.errors["get"] = error
    judgeq(tmp_path, "resume", expect=4)
    assert status(tmp_path)["jobs"]["done"] == 24


def test_a_stop_while_a_batch_is_filled_releases_what_was_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake: FakeBatches
) -> None:
    fill, budgets, reserved = Requests.fill, list[Budget](), list[int]()

    async def stopped(requests: Requests, jobs: Sequence[Job]) -> BudgetError | None:
        unpaid = await fill(requests, jobs)
        requests.session.stop.ask()
        budgets.append(budget_of(requests.session))
        reserved.append(budgets[0]._own.reserved)
        return unpaid

    monkeypatch.setattr(Requests, "fill", stopped)
    judgeq(tmp_path, *RUN, "--max-cost", "1", expect=5)
    assert reserved[0] > budgets[0]._own.reserved == 0
    assert fake.created == {}


@pytest.mark.usefixtures("fake")
def test_a_folder_of_results_that_cant_be_made_is_named(tmp_path: Path) -> None:
    judgeq(tmp_path, *RUN, "--no-wait", expect=5)
    (only_run(tmp_path) / "batches").write_text("")
    assert "batches can't be written" in judgeq(tmp_path, "resume", expect=7).stderr
