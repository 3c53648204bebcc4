"""Connections to the served pages: who opens many and says nothing keeps nobody out."""

import queue
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from aiohttp import web

from judgeq import run_places
from judgeq.web import guard, serve
from judgeq.web.connections import ConnectionLimits, Connections, WatchedConnection
from tests.cli import LONGEST
from tests.people import asking
from tests.web import in_thread

PAGES = ("annotate", "serve")
SHORT = ConnectionLimits(silent_seconds=0.2, body_seconds=0.2)
PATIENT = ConnectionLimits(silent_seconds=600, connections=6, connections_by_address=3)


@contextmanager
def served(page: str, folder: Path, limits: ConnectionLimits) -> Iterator[int]:
    """The port of a page that is served while inside."""
    if page == "annotate":
        study = asking(folder, "pair")
        with in_thread(study.served(limits=limits)) as entrance:
            yield entrance.port
    else:
        runs = run_places.runs_in(folder / "runs")
        with in_thread(serve.serving(runs, "127.0.0.1", 0, limits=limits)) as guard:
            yield guard.port


def connect(port: int, address: str = "127.0.0.1") -> socket.socket:
    """A connection from an address of this machine."""
    return socket.create_connection(("127.0.0.1", port), LONGEST, (address, 0))


def ask(connection: socket.socket, port: int) -> bytes:
    """Ask for the first page; the first line of the answer, b"" of a connection that was closed."""
    try:
        connection.sendall(f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        return connection.recv(100_000).partition(b"\r\n")[0]
    except ConnectionError:
        return b""


def is_closed(connection: socket.socket) -> bool:
    """Wait until the server says something or closes the connection; whether it did the latter."""
    try:
        return connection.recv(100_000) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: 127", b"\x16\x03\x01"])
def test_a_connection_that_brings_no_whole_request_is_closed(
    tmp_path: Path, page: str, said: bytes
) -> None:
    with served(page, tmp_path, SHORT) as port, connect(port) as connection:
        connection.sendall(said)
        while not is_closed(connection):
            pass


@pytest.mark.parametrize("page", PAGES)
def test_a_connection_that_is_silent_after_a_request_is_closed(tmp_path: Path, page: str) -> None:
    with served(page, tmp_path, SHORT) as port, connect(port) as connection:
        assert ask(connection, port) == b"HTTP/1.1 200 OK"
        connection.sendall(b"GET / HT")
        while not is_closed(connection):
            pass


def test_a_body_that_does_not_come_is_not_awaited(tmp_path: Path) -> None:
    head = "POST /api/turn HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: application/json\r\n"
    with served("annotate", tmp_path, SHORT) as port, connect(port) as connection:
        connection.sendall((head.format(port) + "Content-Length: 9\r\n\r\n{").encode())
        assert connection.recv(100_000).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("page", PAGES)
def test_one_address_holds_some_of_the_connections_and_its_oldest_silent_ones_give_way(
    tmp_path: Path, page: str
) -> None:
    with served(page, tmp_path, PATIENT) as port:
        silent = [connect(port) for _ in range(3)]
        with connect(port, "127.0.0.2") as other:
            assert ask(other, port) == b"HTTP/1.1 200 OK"
            with connect(port) as fourth:
                assert ask(fourth, port) == b"HTTP/1.1 200 OK"
            assert is_closed(silent[0])
            assert ask(silent[1], port) == b"HTTP/1.1 200 OK", "it was not the oldest"
            assert ask(other, port) == b"HTTP/1.1 200 OK", "it is of another address"
        for connection in silent:
            connection.close()


@pytest.mark.parametrize("page", PAGES)
def test_connections_of_many_addresses_keep_nobody_out(tmp_path: Path, page: str) -> None:
    with served(page, tmp_path, PATIENT) as port:
        silent = [connect(port, f"127.0.0.{2 + at // 2}") for at in range(8)]
        with connect(port) as new:
            assert ask(new, port) == b"HTTP/1.1 200 OK"
        assert all(is_closed(connection) for connection in silent[:2])
        for connection in silent:
            connection.close()


LARGE_BYTES = 20_000_000


@asynccontextmanager
async def large(limits: ConnectionLimits, lost: queue.SimpleQueue[int]) -> AsyncIterator[int]:
    """The port of a server whose answers are LARGE_BYTES. `lost` gets the number of connections that
    count when one is lost, and still counts."""

    class Watched(Connections):
        def remove(self, connection: WatchedConnection) -> None:
            if connection in self._addresses:
                lost.put(len(self._addresses))
            super().remove(connection)

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"x" * LARGE_BYTES)

    app = web.Application()
    app.router.add_get("/", answer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "Connections", Watched)
        async with guard.listening(
            app, "127.0.0.1", 0, guard.logger("test"), limits=limits
        ) as port:
            yield port


def unread(port: int, requests: bytes) -> socket.socket:
    """A connection that sent requests and has room for little of the answers."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    connection.settimeout(LONGEST)
    connection.connect(("127.0.0.1", port))
    connection.sendall(requests)
    return connection


REQUEST = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.parametrize(
    "requests", [(REQUEST + b"\r\n") * 40, REQUEST + b"Connection: close\r\n\r\n"]
)
def test_a_client_that_does_not_read_is_closed(requests: bytes) -> None:
    lost = queue.SimpleQueue[int]()
    with in_thread(large(SHORT, lost)) as port, unread(port, requests):
        assert lost.get(timeout=LONGEST) == 1, "it counts until it is lost"


def test_a_client_that_reads_slowly_and_steadily_is_not_closed() -> None:
    slowness = threading.Event()  # never set
    limits = ConnectionLimits(silent_seconds=0.6)
    served_large = in_thread(large(limits, queue.SimpleQueue()))
    with served_large as port, unread(port, REQUEST + b"\r\n") as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1_000_000)
        received = 0
        for part_end in range(LARGE_BYTES // 20, LARGE_BYTES + 1, LARGE_BYTES // 20):
            slowness.wait(
                limits.silent_seconds / 5
            )  # the whole takes four times as long as silence may
            while received < part_end:
                part = connection.recv(part_end - received)
                assert part, f"closed after {received} bytes"
                received += len(part)


def test_connections_that_do_not_read_count_until_they_are_lost() -> None:
    """More are added than one address may have: those that are closed for them make room."""
    lost = queue.SimpleQueue[int]()
    with in_thread(large(PATIENT, lost)) as port:
        greedy = [unread(port, (REQUEST + b"\r\n") * 40) for _ in range(3)]
        for connection in greedy:
            assert connection.recv(1) == b"H", "its answer began"
        with unread(port, REQUEST + b"\r\n") as fourth:
            assert fourth.recv(1) == b"H"
            assert lost.get(timeout=LONGEST) == 4, "the closed one still counted"
            with unread(port, REQUEST + b"\r\n") as fifth:
                assert fifth.recv(1) == b"H"
                assert lost.get(timeout=LONGEST) == 4, "no more than one above the limit"
        for connection in greedy:
            connection.close()
