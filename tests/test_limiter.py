"""The limits of a server, and a server that is away."""

import asyncio
import heapq
import math
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgeq.errors import BudgetError, CallError, ConnectionFailedError, StoppedError
from judgeq.judge.limiter import (
    FIRST_WINDOW,
    IN_A_ROW,
    MARGIN,
    Limiter,
    Permit,
    RateHeaders,
    Turnstile,
)
from judgeq.mock_server import Limit
from tests.fakes import opened, turns

SENT = Permit(0.0, 0)


def done(limiter: Limiter, permit: Permit) -> None:
    """The call was answered."""
    limiter.succeeded(permit)
    limiter.release(permit, None)


class Time:
    """Virtual time for many tasks: it passes only when all of them wait."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._due: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._due, (self.now + seconds, next(self._numbers), future))
        await future

    async def pass_until(self, end: float) -> None:
        while True:
            await turns(4)
            if not self._due or self._due[0][0] > end:
                self.now = end
                return
            due, _, future = heapq.heappop(self._due)
            self.now = max(self.now, due)
            if not future.done():
                future.set_result(None)


class Bucket:
    """A server that enforces a token bucket: so much a minute, and a minute's worth at once."""

    def __init__(self, limit: float, clock: Callable[[], float]) -> None:
        self._limit, self._clock = limit, clock
        self._level, self._at = limit, clock()

    def wait(self, amount: float) -> float:
        self._level += (self._clock() - self._at) * self._limit / 60
        self._level, self._at = min(self._level, self._limit), self._clock()
        return max(0.0, (amount - self._level) * 60 / self._limit)

    def take(self, amount: float) -> None:
        self._level -= amount


def achieved(
    limit: float,
    server: type[Limit] | type[Bucket],
    *,
    minutes: float = 10.0,
    tokens: Callable[[int], tuple[float, float]] | None = None,
    learned: bool = False,
) -> tuple[float, int, int]:
    """What a long run gets of a limit: its share, how many calls were let through, and refused.

    `tokens` makes it a limit of tokens: (estimate, what it takes) by call.
    """
    time, refused, passed, used = Time(), 0, 0, 0.0

    async def run() -> None:
        kind: dict[str, Any] = {"tpm" if tokens else "rpm": None if learned else limit}
        limiter = Limiter(concurrency=64, clock=time, sleep=time.sleep, **kind)
        enforced = server(limit, time)
        numbers = count()

        async def work() -> None:
            nonlocal refused, passed, used
            while True:
                number = next(numbers)
                guess, takes = tokens(number) if tokens else (0.0, 1.0)
                permit = await limiter.acquire(guess)
                await time.sleep(0.02 + 0.01 * (number % 7))
                wait = enforced.wait(takes)
                if wait > 0:
                    refused += 1
                    limiter.slow_down(permit, wait)
                else:
                    enforced.take(takes)
                    passed += 1
                    used += takes
                    await time.sleep(0.3)
                    if learned:
                        limiter.believe(RateHeaders(requests_limit=limit))
                    limiter.succeeded(permit)
                limiter.release(permit, takes if tokens else None)

        tasks = [asyncio.create_task(work()) for _ in range(64)]
        await time.pass_until(time.now + minutes * 60)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        limiter.abort()
        await turns()

    asyncio.run(run())
    return used / (limit * minutes), passed, refused


@pytest.mark.parametrize("server", [Limit, Bucket])
@pytest.mark.parametrize(("limit", "minutes"), [(60, 10.0), (600, 10.0), (6000, 3.0)])
def test_a_long_run_gets_97_percent_and_is_hardly_refused(
    server: type[Limit] | type[Bucket], limit: float, minutes: float
) -> None:
    share, passed, refused = achieved(limit, server, minutes=minutes)
    assert 0.97 <= share <= 1.001
    assert refused <= max(1, passed // 1000)


@pytest.mark.parametrize("wrong", [0.5, 1.0, 1.5])
def test_a_limit_of_tokens_is_kept_though_estimates_are_wrong(wrong: float) -> None:
    def tokens(number: int) -> tuple[float, float]:
        takes = 500.0 + 100 * (number % 5)
        return takes * wrong, takes

    share, passed, refused = achieved(200_000, Limit, tokens=tokens, minutes=8)
    assert share >= 0.97
    assert refused <= max(3, passed // 200)


@pytest.mark.parametrize("away", [False, True])
async def test_one_call_goes_first_then_many_then_all(away: bool) -> None:
    """At the beginning, and when a server that was away answers again."""
    time = Time()
    limiter = Limiter(concurrency=40, clock=time, sleep=time.sleep)
    if away:
        limiter.succeeded(SENT)
        assert limiter.window == 40
        for _ in range(IN_A_ROW):
            await sent(limiter, BROKEN)
    waiting = [asyncio.create_task(limiter.acquire(0)) for _ in range(61)]
    await time.pass_until(1001)
    assert limiter.in_flight == limiter.window == 1
    done(limiter, waiting[0].result())
    await turns(100)
    assert limiter.in_flight == limiter.window == FIRST_WINDOW
    for task in waiting[1 : 1 + FIRST_WINDOW]:
        done(limiter, task.result())
    await turns(100)
    assert limiter.in_flight == limiter.window == 2 * FIRST_WINDOW
    for task in waiting[1 + FIRST_WINDOW : 1 + 3 * FIRST_WINDOW]:
        limiter.succeeded(task.result())
    assert limiter.window == 40
    limiter.abort()
    await asyncio.gather(*waiting, return_exceptions=True)


def test_a_refusal_halves_once_for_all_that_were_sent_before_it() -> None:
    limiter = Limiter(concurrency=64, rpm=6000)
    limiter.succeeded(SENT)
    assert limiter.window == 64
    limiter.slow_down(SENT, None)
    limiter.slow_down(SENT, None)
    assert limiter.window == 32
    later = Permit(0.0, 1)
    limiter.slow_down(later, None)
    assert limiter.window == 16
    for _ in range(16):  # a window of successes gives one place more
        limiter.succeeded(later)
    assert 16.8 < limiter._window < 17.1
    for _ in range(50):
        limiter.slow_down(Permit(0.0, limiter._cuts), None)
    assert limiter.window == 1


@pytest.mark.parametrize(("asked", "waited"), [(7.0, 7.0), (3600.0, 60.0)])
async def test_everybody_pauses_as_long_as_asked_up_to_a_minute(
    asked: float, waited: float
) -> None:
    time = Time()
    limiter = Limiter(concurrency=9, clock=time, sleep=time.sleep)
    limiter.slow_down(SENT, asked)
    task = asyncio.create_task(limiter.acquire(0))
    for seconds, is_done in ((waited - 0.1, False), (waited + 0.1, True)):
        await time.pass_until(1000 + seconds)
        assert task.done() is is_done


async def test_a_large_one_is_not_overtaken_and_one_that_never_fits_lets_the_others_by() -> None:
    free = 1

    def take(amount: float) -> str | float:
        nonlocal free
        if amount > 9:
            raise BudgetError("never")
        if amount > free:
            return math.inf
        free -= int(amount)
        return f"{amount} of them"

    turnstile: Turnstile[str] = Turnstile(take)
    gone, large, small, never = (
        asyncio.create_task(turnstile.enter(amount)) for amount in (2, 3, 1, 10)
    )
    await turns()
    assert not small.done()
    free = 4
    turnstile.look()
    gone.cancel()  # in the same turn: nothing was taken for it
    assert (await large, await small) == ("3 of them", "1 of them")
    with pytest.raises(BudgetError):
        await never
    waiting = asyncio.create_task(turnstile.enter(5))
    await turns()
    turnstile.abort()
    for stopped in (waiting, turnstile.enter(0)):
        with pytest.raises(StoppedError):
            await stopped


def test_the_lower_of_two_limits_holds_and_is_told_once() -> None:
    told: list[str] = []
    limiter = Limiter(concurrency=9, rpm=100, notify=told.append)
    for requests, kept in ((500, 100), (50, 50), (0, 100)):
        limiter.believe(RateHeaders(requests_limit=requests, tokens_limit=30_000))
        assert limiter.limits == (kept, 30_000)
    (notice,) = told
    assert notice.startswith("The server allows 100 requests and 30,000 tokens a minute; the run")


async def test_a_question_larger_than_the_limit_goes_out_at_last() -> None:
    time = Time()
    limiter = Limiter(concurrency=9, tpm=1000, clock=time, sleep=time.sleep)
    limiter.succeeded(SENT)
    tasks = [asyncio.create_task(limiter.acquire(5000)) for _ in range(2)]
    await time.pass_until(1000 + 60)
    assert tasks[0].done()
    await time.pass_until(1000 + 60 * 7)
    assert tasks[1].done()


KINDS = st.sampled_from(["acquire", "release", "cancel", "slow", "believe", "pass", "twice"])
STEPS = st.lists(st.tuples(KINDS, st.integers(0, 20)), max_size=60)


@settings(max_examples=60)
@given(STEPS, st.sampled_from([None, 60.0, 6000.0]), st.integers(1, 8))
def test_no_place_is_lost_and_none_given_twice(
    steps: list[tuple[str, int]], rpm: float | None, concurrency: int
) -> None:
    async def story() -> None:
        time = Time()
        limiter = Limiter(concurrency=concurrency, rpm=rpm, clock=time, sleep=time.sleep)
        waiting: list[asyncio.Task[Permit]] = []
        holding: list[Permit] = []

        def collect() -> None:
            for task in [task for task in waiting if task.done()]:
                waiting.remove(task)
                if not task.cancelled():
                    holding.append(task.result())

        async def step(what: str, number: int) -> None:
            if what == "acquire":
                waiting.append(asyncio.create_task(limiter.acquire(number)))
            elif what == "cancel" and waiting:
                waiting[number % len(waiting)].cancel()
            elif what == "release" and holding:
                permit = holding.pop(number % len(holding))
                limiter.succeeded(permit)
                limiter.release(permit, float(number))
            elif what == "slow" and holding:
                limiter.slow_down(holding[number % len(holding)], number / 10)
            elif what == "believe":
                limiter.believe(RateHeaders(requests_limit=float(number * 30)))
            elif what == "pass":
                await time.pass_until(time.now + number)

        for what, number in steps:
            await step(what, number)
            if what != "twice":
                await turns(3)
            collect()
            assert len(holding) <= limiter.in_flight <= concurrency
        while waiting or holding:
            await time.pass_until(time.now + 120)
            collect()
            assert holding or not waiting, "somebody waits for ever"
            while holding:
                limiter.release(holding.pop(), None)
            await turns(3)
        assert limiter.in_flight == 0
        limiter.abort()
        await turns()

    asyncio.run(story())


async def test_several_processes_divide_a_limit_and_a_new_count_holds_at_once() -> None:
    """60 requests a minute for three processes, then for two, each of which has a limiter."""

    time, processes, sent = Time(), 3, [0, 0, 0]

    async def send(which: int, made: Limiter) -> None:
        while True:
            permit = await made.acquire(1)
            sent[which] += 1
            made.succeeded(permit)
            made.release(permit, 1)

    limiters = [
        Limiter(concurrency=1000, rpm=60, clock=time, sleep=time.sleep, processes=lambda: processes)
        for _ in range(3)
    ]
    tasks = [asyncio.create_task(send(*pair)) for pair in enumerate(limiters)]
    await time.pass_until(1000.0 + 600)
    assert sent == pytest.approx([200 * MARGIN] * 3, abs=2)
    processes = 2
    limiters[2].abort()
    await time.pass_until(1000.0 + 1200)
    assert sent[:2] == pytest.approx([500 * MARGIN] * 2, abs=3)
    for made in limiters:
        made.abort()
    await asyncio.gather(*tasks, return_exceptions=True)


BROKEN = ConnectionFailedError("the connection broke")
REFUSED = ConnectionFailedError("no connection", cost=0.0, unavailable=True)


async def sent(limiter: Limiter, error: CallError | None = None) -> Permit:
    """A call on its way, or one that fails with an error."""
    permit = await limiter.acquire(0)
    if error is not None:
        limiter.failed(permit, error)
        limiter.release(permit, 0.0)
    return permit


async def test_some_failures_in_a_row_and_one_call_at_a_time_is_tried_ever_more_seldom() -> None:
    time = Time()
    limiter = Limiter(concurrency=64, clock=time, sleep=time.sleep)
    done(limiter, await limiter.acquire(0))
    for number in range(IN_A_ROW):
        assert not limiter.outage.trying, number
        await sent(limiter, BROKEN)
    tries: list[float] = []

    async def tried() -> None:
        await sent(limiter, REFUSED)
        tries.append(time.now - 1000)

    tasks = [asyncio.create_task(tried()) for _ in range(20)]
    await time.pass_until(1000 + 100)
    assert tries == [0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 51.5, 71.5, 91.5]
    assert limiter.outage.unmended == 0
    assert limiter.outage.lasts == 100
    limiter.abort()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_an_answer_to_what_was_sent_before_says_that_it_was_no_outage() -> None:
    limiter = opened(64)
    before = await limiter.acquire(0)
    for _ in range(IN_A_ROW):
        await sent(limiter, BROKEN)
    assert limiter.window == 1
    limiter.succeeded(before)
    assert limiter.window == 64
