"""The open connections of a server of ours: silent ones are closed, and no address can hold all of them.

A connection costs an open file. Whoever opens many and says nothing would keep everybody else out.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from judgeq import files

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

SILENT_SECONDS = 20.0
BODY_SECONDS = 20.0
MAX_CONNECTIONS = 512
MIN_CONNECTIONS = 16


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """How long connections may be silent, and how many may be open."""

    silent_seconds: float = SILENT_SECONDS
    """Time in which a connection has to bring a whole head of a request, also the next one."""
    body_seconds: float = BODY_SECONDS
    """Time in which a request's body has to come."""
    connections: int = MAX_CONNECTIONS
    """Connections that may be open."""
    connections_by_address: int = MAX_CONNECTIONS // 2
    """Connections that one address may have open."""

    @classmethod
    def of_process(cls) -> ConnectionLimits:
        """Return the limits that this process's limit of open files allows."""
        connections = max(MIN_CONNECTIONS, files.room_for(MAX_CONNECTIONS))
        return cls(connections=connections, connections_by_address=connections // 2)


class Connections:
    """The open connections of one server. `address_of` gives the address that a peer is counted for, ""
    for a reverse proxy, whose connections are many people's."""

    def __init__(self, limits: ConnectionLimits, address_of: Callable[[str], str]) -> None:
        self.limits = limits
        self._address_of = address_of
        self._by_address = defaultdict[str, dict[WatchedConnection, None]](dict)
        self._silent: dict[WatchedConnection, None] = {}  # the longest silent first
        self._addresses: dict[WatchedConnection, str] = {}

    def add(self, connection: WatchedConnection, peer: str) -> None:
        """Count a connection. Where there are too many, the one that has been silent longest is closed,
        or else the new one."""
        address = self._address_of(peer)
        of_address = self._by_address[address]
        self._addresses[connection] = address
        of_address[connection] = None
        if address and len(of_address) > self.limits.connections_by_address:
            self._close(next((one for one in of_address if one in self._silent), connection))
        elif len(self._addresses) > self.limits.connections:
            self._close(next(iter(self._silent), connection))

    def _close(self, connection: WatchedConnection) -> None:
        """Close a connection. It counts until it is lost, but isn't chosen again."""
        self._silent.pop(connection, None)
        connection.abort()

    def remove(self, connection: WatchedConnection) -> None:
        """Forget a connection that is closed."""
        self._silent.pop(connection, None)
        address = self._addresses.pop(connection, None)
        if address is not None:
            del self._by_address[address][connection]
            if not self._by_address[address]:
                del self._by_address[address]

    def note_silent(self, connection: WatchedConnection) -> None:
        """Note that a connection has no request that is being answered."""
        self._silent[connection] = None

    def note_busy(self, connection: WatchedConnection) -> None:
        """Note that a connection has a request that is being answered."""
        self._silent.pop(connection, None)


class WatchedConnection(web.RequestHandler):
    """A connection that is closed if it is silent for too long."""

    def __init__(
        self, server: web.Server, connections: Connections, logger: logging.Logger
    ) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(server, loop=loop, logger=logger, access_log=None)  # type: ignore[arg-type]
        self._connections = connections
        self._timer: asyncio.TimerHandle | None = None
        self._watched_transport: asyncio.Transport | None = None
        """The transport until it is lost. aiohttp forgets its own when it begins to close."""
        self._unsent: int | None = None
        """Bytes of answers that weren't sent when the time was last up; None before that."""

    @property
    def limits(self) -> ConnectionLimits:
        """The limits that hold for this connection."""
        return self._connections.limits

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to watch the connection."""
        super().connection_made(transport)
        if isinstance(transport, asyncio.Transport):
            self._watched_transport = transport
        peer = transport.get_extra_info("peername") or ("",)
        self._connections.add(self, str(peer[0]))
        self.begin_silence()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop watching the connection."""
        self._cancel_timer()
        self._watched_transport = None
        self._connections.remove(self)
        super().connection_lost(exc)

    def begin_silence(self) -> None:
        """Give the client the time for a request's head."""
        if self.transport is not None:
            self._connections.note_silent(self)
            self._unsent = None  # the answer isn't written yet
            self._set_timer()

    def end_silence(self) -> None:
        """Give our answer any time."""
        self._cancel_timer()
        self._connections.note_busy(self)

    def abort(self) -> None:
        """Close the connection at once; a client that doesn't read can't delay it."""
        transport = self._watched_transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def _set_timer(self) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(self.limits.silent_seconds, self._time_is_up)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        """Close the connection, unless its client received a part of an answer in this time."""
        transport = self._watched_transport
        unsent = 0 if transport is None else transport.get_write_buffer_size()
        if (
            unsent > 0 and unsent != self._unsent
        ):  # also the first time, which began before the answer
            self._unsent = unsent
            self._set_timer()
        else:
            self.abort()


@web.middleware
async def watch(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request; while that is done, its connection isn't silent."""
    connection = request.protocol
    if not isinstance(connection, WatchedConnection):
        return await handler(request)
    connection.end_silence()
    try:
        return await handler(request)
    finally:
        connection.begin_silence()


async def read_body(request: web.Request) -> bytes:
    """Return a request's body. Raises TimeoutError where it doesn't come in time."""
    connection = request.protocol
    limits = ConnectionLimits()
    if isinstance(connection, WatchedConnection):
        limits = connection.limits
    async with asyncio.timeout(limits.body_seconds):
        return await request.read()
