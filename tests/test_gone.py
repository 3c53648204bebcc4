from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from judgeq import prompts
from judgeq.errors import ConnectionFailedError
from judgeq.judge.backend import Request
from judgeq.judge.http import gone
from judgeq.judge.http.deadlines import Deadlines, InFlight
from judgeq.judge.http.gone import Gone
from judgeq.judge.http.network import connects
from judgeq.judge.http.openai_chat import OpenAIChat
from judgeq.settings.model import Access, Model
from judgeq.types import Match
from tests.fakes import turns


class Scope:
    """A call's asyncio.timeout, as far as it is ended."""

    def reschedule(self, when: float) -> None:
        pass


class Waiting:
    """Calls in flight, and seconds that pass when a test says so."""

    def __init__(self, connects: Callable[[], Awaitable[bool | None]] | None = None) -> None:
        self.deadlines = Deadlines(silence=3000, total=3000)
        assert self.deadlines.interval == 1.0
        self.looks = 0
        self.open: bool | None = True
        self.gone = Gone(self.deadlines, connects or self._connects)

    async def _connects(self) -> bool | None:
        self.looks += 1
        return self.open

    def send(self) -> InFlight:
        call = InFlight(cast("asyncio.Timeout", Scope()), self.deadlines._tick)
        self.deadlines.calls.add(call)
        return call

    def answer(self, call: InFlight) -> None:
        self.gone.answered(call)
        self.deadlines.calls.discard(call)

    async def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.deadlines._tick += 1
            self.deadlines.on_tick()
            await turns(3)

    async def round_trip(self, seconds: int) -> None:
        call = self.send()
        await self.wait(seconds)
        self.answer(call)


def test_a_slow_server_is_waited_for_however_long_it_is_silent() -> None:
    async def story() -> None:
        waiting = Waiting()
        await waiting.round_trip(1)
        call = waiting.send()
        await waiting.wait(2000)
        assert call.why is None
        assert 300 < waiting.looks <= 400  # every five seconds, not every second
        waiting.open = None  # nor where nothing can be said
        await waiting.wait(900)
        assert call.why is None

    asyncio.run(story())


def test_where_connections_are_refused_old_calls_are_given_up_when_they_had_their_time() -> None:
    async def story() -> None:
        waiting = Waiting()
        call, begun = waiting.send(), waiting.send()
        begun.body = asyncio.StreamReader()  # type: ignore[assignment]
        waiting.open = False
        await waiting.wait(5 + 10)
        assert call.why is None
        await waiting.wait(2)
        assert call.why == "the server has refused connections since"
        assert begun.why is None

    asyncio.run(story())


def test_patience_is_learned_from_what_replies_take() -> None:
    async def story() -> None:
        waiting = Waiting()
        await waiting.round_trip(30)
        call = waiting.send()
        waiting.gone.refused()  # a call that was to be sent found out
        await waiting.wait(1)
        waiting.gone.refused()
        await waiting.wait(88)
        assert call.why is None
        await waiting.wait(5)
        assert call.why is not None

    asyncio.run(story())


def test_calls_to_the_server_that_came_after_are_left_alone() -> None:
    async def story() -> None:
        waiting = Waiting()
        old = waiting.send()
        await waiting.wait(2)
        waiting.gone.refused()
        await waiting.wait(1)
        new = waiting.send()
        await waiting.wait(60)
        assert old.why is not None
        assert new.why is None

    asyncio.run(story())


@pytest.mark.parametrize(
    ("others", "takes", "given_up"), [(10, 1, True), (9, 1, False), (40, 9, False)]
)
def test_calls_that_many_overtook_by_far_are_given_up(
    others: int, takes: int, given_up: bool
) -> None:
    """Restarted so fast that nobody saw it; and one slow answer among many is none of that."""

    async def story() -> None:
        waiting = Waiting()
        await waiting.round_trip(takes)
        call = waiting.send()
        await waiting.wait(61)
        together = [waiting.send() for _ in range(others)]
        await waiting.wait(takes)
        for other in together:
            waiting.answer(other)
        await waiting.wait(1)
        assert (call.why == "calls sent long after it were answered") is given_up

    asyncio.run(story())


def test_what_listens_and_what_refuses() -> None:
    async def story() -> None:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        assert await connects("127.0.0.1", port, 10) is True
        assert await connects("localhost", port, 10) is True
        server.close()
        assert await connects("127.0.0.1", port, 10) is False
        assert await connects("localhost", port, 10) is False
        assert await connects("no-such-host.invalid", port, 10) is None

    asyncio.run(story())


def test_a_server_that_stopped_listening_and_keeps_connections_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As uvicorn does after SIGTERM. The ticks are half a second here."""
    monkeypatch.setattr(gone, "PATIENCE", 0.5)
    monkeypatch.setattr(gone, "UNHEARD", 0.5)
    prompt = prompts.load("bias")
    request = Request(Match(0, 1, (0, 1)), 1, 1, lambda: prompts.messages(prompt, ["a", "b"]))

    async def story() -> None:
        here, over, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            here.set()
            await over.wait()
            writer.close()
            await writer.wait_closed()
            closed.set()

        listening = socket.create_server(("127.0.0.1", 0))
        server = await asyncio.start_server(hold, sock=listening)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        made = OpenAIChat(
            "m", Model(base_url=url), Access(first_byte_timeout=10, timeout=600), None
        )
        await made.open()
        call = asyncio.create_task(made.complete(request, made.prepare(request)))
        await here.wait()
        server.close()
        with pytest.raises(ConnectionFailedError, match="has refused connections since") as caught:
            await call
        assert caught.value.cost is None  # it may have been paid: it stays among the unknown
        await made.close()
        over.set()
        await closed.wait()

    asyncio.run(story())
