from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from pathlib import Path

import pytest
from aiohttp import web

from judgeq.judge.http.deadlines import Deadlines, InFlight
from tests.cli import only_run, query, start
from tests.web import answering, completion

AT_ONCE = 16


class Stream:
    """An answer that comes bit by bit."""

    total_bytes = 0


async def watch(deadlines: Deadlines, seconds: float, body: Stream | None = None) -> float:
    """When a call that takes `seconds` ended, in the loop's time; TimeoutError when it was given up."""
    async with asyncio.timeout(None) as scope:
        call = deadlines.begin(scope)
        call.body = body
        try:
            await asyncio.sleep(seconds)
        finally:
            deadlines.end(call)
    return asyncio.get_running_loop().time()


def test_a_call_may_take_its_time_and_no_longer() -> None:
    async def story() -> None:
        deadlines = Deadlines(silence=0.1, total=10.0)
        await watch(deadlines, 0.05)
        with pytest.raises(TimeoutError):
            await watch(deadlines, 60.0)
        assert not deadlines.calls

    asyncio.run(story())


def test_bytes_that_come_end_the_silence_and_not_the_whole_time() -> None:
    async def story() -> None:
        deadlines = Deadlines(silence=0.1, total=0.4)
        body = Stream()

        async def drip() -> None:
            while True:
                body.total_bytes += 1
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        await watch(deadlines, 0.3, body)
        with pytest.raises(TimeoutError):
            await watch(deadlines, 60.0, body)
        dripping.cancel()

    asyncio.run(story())


def test_a_pause_is_one_tick_and_what_came_meanwhile_is_read_first() -> None:
    async def story() -> None:
        deadlines = Deadlines(silence=0.2, total=0.2)
        call = asyncio.create_task(watch(deadlines, 0.05))
        await asyncio.sleep(0)
        (flying,) = deadlines.calls
        time.sleep(0.6)  # nothing of this process runs  # noqa: ASYNC251
        await call
        assert isinstance(flying, InFlight)
        assert deadlines.seconds(flying.started) <= 2 * deadlines.interval

    asyncio.run(story())


def test_a_loop_that_is_always_late_gives_up_calls_all_the_same() -> None:
    async def story() -> None:
        deadlines = Deadlines(silence=0.02, total=0.02)

        async def block() -> None:
            while True:
                time.sleep(0.08)  # noqa: ASYNC251
                await asyncio.sleep(0)

        blocking = asyncio.create_task(block())
        with pytest.raises(TimeoutError):
            await watch(deadlines, 60.0)
        blocking.cancel()

    asyncio.run(story())


def test_a_process_that_was_stopped_asks_nothing_again_that_was_answered(tmp_path: Path) -> None:
    """SIGSTOP for longer than the timeouts, while the server answers all that is in flight."""
    limit, pause = 3.0, 5.0
    (tmp_path / "t.csv").write_text("text\n" + "".join(f"text {i}\n" for i in range(48)))

    async def story() -> tuple[subprocess.Popen[str], str, int]:
        requests = in_flight = delivered = 0
        all_here, stopped = asyncio.Event(), asyncio.Event()

        async def handler(_: web.Request) -> web.StreamResponse:
            nonlocal requests, in_flight, delivered
            requests += 1
            in_flight += requests > 1
            if in_flight == AT_ONCE:
                all_here.set()
            if requests > 1:
                await stopped.wait()
            delivered += 1
            return web.json_response(completion('{"winner": "A"}'))

        async with answering(handler) as url:
            process = start(
                tmp_path,
                *("run", "-d", "t.csv", "--prompt", "bias", "--judge", "m", "--base-url", url),
                *("--strategy", "pairwise1", "--quiet", "--concurrency", str(AT_ONCE)),
                *("--timeout", f"{limit}", "--first-byte-timeout", f"{limit}"),
            )
            try:
                await asyncio.wait_for(all_here.wait(), 60)
                process.send_signal(signal.SIGSTOP)
                stopped.set()
                await asyncio.sleep(pause)  # this is what it is about
                assert delivered == 1 + AT_ONCE
                process.send_signal(signal.SIGCONT)
                _, err = await asyncio.to_thread(process.communicate, timeout=60)
            finally:
                process.kill()
        return process, err, requests

    process, err, requests = asyncio.run(story())
    assert process.returncode == 0, err
    assert query(only_run(tmp_path), "SELECT count(*), sum(outcome = 'ok') FROM calls") == [
        (24, 24)
    ]
    assert requests == 24
