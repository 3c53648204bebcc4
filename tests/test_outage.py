from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from aiohttp import web

from judgeq.errors import CallError, ConnectionFailedError
from judgeq.judge.limiter import FIRST_WINDOW, IN_A_ROW, Limiter, Permit
from tests.cli import judgeq, only_run, query
from tests.fakes import opened, turns
from tests.mock import mock, stats
from tests.test_limiter import Time
from tests.web import serving

pytestmark = pytest.mark.usefixtures("rated_by_elo")

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
    first = await limiter.acquire(0)
    limiter.succeeded(first)
    limiter.release(first, 0.0)
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


async def test_the_first_answer_to_a_try_lets_many_go_and_soon_all() -> None:
    time = Time()
    limiter = Limiter(concurrency=64, clock=time, sleep=time.sleep)
    limiter.succeeded(Permit(0.0, 0))
    assert limiter.window == 64
    for _ in range(IN_A_ROW):
        await sent(limiter, BROKEN)
    waiting = [asyncio.create_task(sent(limiter)) for _ in range(99)]
    await time.pass_until(1001)
    assert (limiter.in_flight, limiter.window) == (1, 1)
    limiter.succeeded(waiting[0].result())
    limiter.release(waiting[0].result(), 0.0)
    await turns()
    assert limiter.in_flight == limiter.window == FIRST_WINDOW
    for task in waiting[1 : 1 + 48]:
        limiter.succeeded(task.result())
        limiter.release(task.result(), 0.0)
        await turns()
    assert limiter.window == 64
    limiter.abort()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_an_answer_to_what_was_sent_before_says_that_it_was_no_outage() -> None:
    limiter = opened(64)
    before = await limiter.acquire(0)
    for _ in range(IN_A_ROW):
        await sent(limiter, BROKEN)
    assert limiter.window == 1
    limiter.succeeded(before)
    assert limiter.window == 64


# Whole runs


def texts(folder: Path) -> tuple[str, ...]:
    """The flags of a run of 48 texts, in 24 pairs."""
    (folder / "t.csv").write_text("text\n" + "".join(f"text {i}\n" for i in range(48)))
    return ("run", "-d", "t.csv", "--prompt", "bias", "--judge", "m", "--strategy", "pairwise1")


def test_a_wrong_key_costs_one_call_and_resumed_one_more(tmp_path: Path) -> None:
    with mock(tmp_path, "--key", "sk-right-0123456789") as url:
        flags = ("--base-url", url, "--concurrency", "8")
        for calls in (1, 2):
            done = judgeq(tmp_path, *texts(tmp_path), *flags, expect=4)
            assert "doesn't accept the API key" in done.stderr
            assert stats(url)["requests"] == calls


@pytest.mark.usefixtures("short_waits")
def test_a_server_that_always_fails_is_asked_ten_times_and_its_words_are_shown(
    tmp_path: Path,
) -> None:
    requests = 0

    async def handler(_: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        return web.json_response({"error": {"message": f"out of cheese {requests}"}}, status=500)

    with serving(handler) as url:
        done = judgeq(tmp_path, *texts(tmp_path), "--base-url", url, expect=4)
    assert requests == 10
    assert "warning: m doesn't answer; one call at a time is tried" in done.stderr
    assert "out of cheese 2" in done.stderr
    assert "10 calls in a row failed" in done.stderr
    assert "out of cheese 10" in done.stderr
    assert query(only_run(tmp_path), "SELECT count(*) FROM jobs WHERE state != 'pending'") == [(0,)]
    status = " ".join(judgeq(tmp_path, "status").stdout.split())
    assert "10 calls since the last answer: the server answered 500: out of cheese 10." in status
    last = json.loads(judgeq(tmp_path, "status", "--json").stdout)["last_failure"]
    assert last["in_a_row"] == 10
