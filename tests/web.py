"""A local HTTP server that says whatever a test wants it to say."""

import asyncio
import http.client
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager as AsyncManager
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from aiohttp import web

from tests.cli import LONGEST

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


@contextmanager
def in_thread(server: AsyncManager[T]) -> Iterator[T]:
    """What `server` gives while it is open on an event loop of a thread of its own."""
    begun, given, leave = threading.Event(), list[T](), list[Callable[[], object]]()

    async def serve() -> None:
        stop = asyncio.Event()
        leave.append(partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set))
        try:
            async with server as value:
                given.append(value)
                begun.set()
                await stop.wait()
        finally:
            begun.set()

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    try:
        assert begun.wait(LONGEST)
        assert given, "the server didn't begin"
        yield given[0]
    finally:
        if given:
            leave[0]()
        thread.join(LONGEST)


def serving(handler: Handler) -> AbstractContextManager[str]:
    """`answering`, in a thread."""
    return in_thread(answering(handler))


@asynccontextmanager
async def answering(handler: Handler, ssl_context: Any = None) -> AsyncIterator[str]:
    """Serve every path with `handler`; the address is that of its /v1."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=ssl_context)
    await site.start()
    try:
        port = runner.addresses[0][1]
        yield f"{'https' if ssl_context else 'http'}://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


@dataclass
class Answer:
    """What a server answered."""

    status: int
    headers: http.client.HTTPMessage
    text: str


def answer_of(
    port: int, path: str, method: str = "GET", body: str | None = None, **headers: str | None
) -> Answer:
    """What the server at a port of this machine answers; `Host` is as a browser would say it, if not
    given, and headers that are None are left out."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    named = {name.replace("_", "-"): said for name, said in headers.items() if said is not None}
    try:
        connection.request(method, path, body, named)
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read().decode())
    finally:
        connection.close()


def completion(content: Any, *, reason: str = "stop", usage: Any = "some") -> dict[str, Any]:
    """A chat completion as servers answer it."""
    message = {"role": "assistant", "content": content}
    found: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    }
    if usage is not None:
        some = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
        found["usage"] = some if usage == "some" else usage
    return found
