"""Stand-ins for what a test must hold still: time, a store, the backend of a judge, a batch API."""

import asyncio
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import orjson
import pytest
from hypothesis import strategies as st

from judgeq import seeds
from judgeq.errors import (
    CallError,
    CallTimeoutError,
    JudgeError,
    RateLimitedError,
    StoreAwayError,
)
from judgeq.judge.backend import Download, Prepared, Remote, Reply, Request, Result
from judgeq.judge.http.openai import OpenAIChat
from judgeq.judge.limiter import Limiter, Permit
from judgeq.judge.simulated import SimulatedJudge
from judgeq.rating import Fit
from judgeq.replies import write_reply
from judgeq.strategies import History
from judgeq.types import Answerer, Attempt, Call, Job, Match, Outcome, Usage, Verdict

T = TypeVar("T")


class Clock:
    """Seconds that pass only when told to, or slept."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


async def turns(some: int = 20) -> None:
    """Let everything that can go on do so."""
    for _ in range(some):
        await asyncio.sleep(0)


ADDING_UP = (
    "UPDATE jobs SET attempts = open + (SELECT count(*) FROM calls WHERE job = jobs.id "
    "AND outcome <> 'cached' AND answered_by IS NULL)",
    "UPDATE workers SET calls = 0, hits = 0, tokens = 0, saved = 0, spent = 0, at_risk = 0",
    "INSERT INTO workers (run, name, until, over, calls, tokens, spent, at_risk) "
    "SELECT 1, hex(randomblob(4)), 0, true, count(*), "
    "coalesce(sum(input + cached + output + reasoning), 0), "
    "CAST(1e9 * total(max(cost, 0)) AS bigint), (SELECT coalesce(sum(at_risk), 0) FROM jobs) FROM calls",
)
"""Statements that make the counts of a run's file agree again with the calls that a test left in it."""


def call(
    attempt: int = 1, outcome: str = "ok", cost: float | None = 0.25, usage: Usage | None = None
) -> Call:
    """A call whose attempt was begun with a bound of $0.5."""
    usage = usage or Usage(10, 2, 5, 3)
    by = Answerer("m-2026", "fp_1")
    return Call(attempt, outcome, usage, cost, 0.5, "a reply", 1000.0, 0.5, answerer=by)


class FakeStore:
    """The workers' side of a store, in memory: pairs (0, 1) to ask about, and what was done.

    An operation named in `fails` raises its error; one named in `gates` waits for its event.
    """

    blocking = False
    lease = 600.0
    keeper: object = None

    def __init__(self, jobs: int = 0) -> None:
        self.pending = deque(Job(Match(number, 1, (0, 1))) for number in range(jobs))
        self.done: list[tuple[str, list[int]]] = []
        self.outcomes: list[Outcome] = []
        self.lost: set[int] = set()
        self.fails: dict[str, BaseException] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.on_claim: Callable[[], None] = lambda: None

    async def again(self, work: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await work()
            except StoreAwayError:
                await self._do("again", [])

    @asynccontextmanager
    async def together(self) -> AsyncIterator[None]:
        yield
        if "commit" in self.fails:
            raise self.fails["commit"]

    async def claim(self, worker: str, n: int, lease: float) -> list[Job]:
        await self._do("claim", [n])
        self.on_claim()
        return [self.pending.popleft() for _ in range(min(n, len(self.pending)))]

    async def begin(self, worker: str, attempts: Sequence[Attempt]) -> set[int]:
        jobs = [attempt.job for attempt in attempts]
        await self._do("begin", jobs)
        return self.lost & set(jobs)

    async def settle(self, worker: str, outcomes: Sequence[Outcome]) -> None:
        await self._do("settle", [outcome.job for outcome in outcomes])
        self.outcomes += outcomes

    items = 4

    async def n_items(self) -> int:
        return self.items

    async def reap(self) -> int:
        return 0

    async def take_unbegun(self) -> int:
        return 0

    async def _do(self, operation: str, what: Iterable[int]) -> None:
        if operation in self.gates:
            await self.gates[operation].wait()
        if operation in self.fails:
            raise self.fails[operation]
        self.done.append((operation, list(what)))


Answer = str | Exception | Callable[[Request], Awaitable[str]]


class FakeBackend:
    """Gives the scripted answers, one a request, and the presented order when they are used up."""

    name = "fake"
    version = 0

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []
        self.prepared = Prepared(bound=0.5)
        self._numbers = count()

    async def open(self) -> None:
        pass

    def prepare(self, request: Request) -> Prepared:
        return self.prepared

    def output_within(self, prepared: Prepared, dollars: float) -> int:
        return round(dollars * 10_000)

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        self.requests.append(request)
        number = next(self._numbers)
        answer = self.answers[number] if number < len(self.answers) else in_order(request.match)
        if isinstance(answer, Exception):
            raise answer
        text = answer if isinstance(answer, str) else await answer(request)
        return Reply(text, Usage(10, 2, 5, 3), 0.25)

    async def close(self) -> None:
        pass


def any_json(*words: str) -> st.SearchStrategy[Any]:
    """What JSON can say, with these names and words in it."""
    word = st.sampled_from(words)
    return st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | word,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(word, inner, max_size=5),
        max_leaves=12,
    )


def opened(concurrency: int = 100) -> Limiter:
    """A limiter after its first success: it lets many calls through."""
    limiter = Limiter(concurrency=concurrency)
    limiter.succeeded(Permit(0.0, 0))
    return limiter


def in_order(match: Match) -> str:
    """The reply that ranks a match's items as presented."""
    return write_reply(Verdict(match.items), match)


def by_elo(patch: Callable[[Any, str, Any], None]) -> None:
    """Have runs rated by Elo in place of each other rating, without errors: to fit them takes four
    fifths of the time of a small run. Elo is of each answer and of their order, so that what was asked
    or answered otherwise still shows."""
    patch(History, "fit", lambda history, *_: Fit(history.standings.elo))


@contextmanager
def faults(
    *, rate_limited: float = 0.0, timeouts: float = 0.0, unreadable: float = 0.0
) -> Iterator[None]:
    """The simulated judge fails, as long as inside: so large shares of its attempts, and of its askings,
    whatever the order in which they come."""
    plain = SimulatedJudge.complete
    failures, garbled = seeds.Stream(0, "failures"), seeds.Stream(0, "unreadable")

    async def complete(judge: SimulatedJudge, request: Request, prepared: Prepared) -> Reply:
        fail = failures.at(request.match.id, request.attempt).random()
        if fail < rate_limited:
            raise RateLimitedError("the rate limit is reached", cost=0.0)
        if fail < rate_limited + timeouts:
            raise CallTimeoutError("no answer in time", cost=0.0)
        if garbled.at(request.match.id, request.ask).random() < unreadable:
            return Reply("I would rather not rank these, sorry.", Usage(), 0.0)
        return await plain(judge, request, prepared)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SimulatedJudge, "complete", complete)
        yield


# A provider with a batch API, which answers what it is sent, or as a test says

ANSWER = orjson.dumps(
    {
        "choices": [{"message": {"content": '{"winner": "A"}'}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5},
    }
)


class FakeBatches:
    """See BatchAPI. `stands` of all batches and the errors that its methods raise may be set; `created`
    holds the ids of the lines of each batch, which are all that is in a file of results."""

    def __init__(self) -> None:
        self.most_lines, self.most_bytes = 50_000, 200_000_000
        self.created: dict[str, list[str]] = {}
        self.stands: dict[str, Any] = {"status": "completed", "stands": "ended"}
        self.errors: dict[str, JudgeError] = {}
        self.doubtful: Sequence[str] = ()
        self.listed: Sequence[str] = ()
        self.asked: list[str] = []

    def _ask(self, method: str) -> None:
        self.asked.append(method)
        if method in self.errors:
            raise self.errors[method]

    def line(self, custom_id: str, body: bytes) -> bytes:
        return custom_id.encode() + b"\t" + body + b"\n"

    async def create(self, name: str, lines: BinaryIO) -> Remote:
        self._ask("create")
        remote = f"r{len(self.created)}"
        lines.seek(0)
        self.created[remote] = [line.partition(b"\t")[0].decode() for line in lines]
        return self._remote(remote)

    def _remote(self, remote: str) -> Remote:
        count = len(self.created[remote])
        return Remote(remote, made=1.0, **{"total": count, "results": [remote], **self.stands})

    async def get(self, remote: str) -> Remote:
        self._ask("get")
        return self._remote(remote)

    async def find_listed(self, remote: str, since: float) -> Remote | None:
        self._ask("find_listed")
        return self._remote(remote) if remote in self.listed else None

    async def cancel(self, remote: str) -> Remote:
        self._ask("cancel")
        return self._remote(remote)

    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Remote | None:
        self._ask("identify")
        if self.doubtful:
            raise CallError(f"it may be {', '.join(self.doubtful)}")
        return None

    async def download(self, remote: Remote, folder: Path, *, as_it_is: bool = False) -> Download:
        try:
            self._ask("download")
        except JudgeError as error:
            return Download([], [error])
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
        path = folder / f"{remote.id}.txt"
        path.write_text("\n".join(self.created[remote.id]))
        return Download([path], [])

    def results(self, file: Path) -> Iterator[Result]:
        for custom_id in filter(None, file.read_text().splitlines()):
            yield Result(custom_id, 200, ANSWER)


def by_model(monkeypatch: pytest.MonkeyPatch, **apis: FakeBatches) -> None:
    """Have models asked in batches by these."""
    monkeypatch.setattr(OpenAIChat, "batch_api", property(lambda backend: apis[backend.name]))
