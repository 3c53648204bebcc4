"""`judgeq serve`: the routes, and what errors become."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime

import orjson
from aiohttp import web

from judgeq.engine.stopping import signals
from judgeq.errors import JudgeqError, NoVerdictsError
from judgeq.runs import Runs
from judgeq.ui import html
from judgeq.ui.web import pages
from judgeq.ui.web.beside import BusyError
from judgeq.ui.web.desk import Desk, MissingError
from judgeq.ui.web.guard import Guard, RefusedError, protect
from judgeq.ui.web.listening import listening, logger
from judgeq.ui.web.live import Live

ASSETS = {
    "style.css": "text/css",
    "served.css": "text/css",
    "live.js": "text/javascript",
    "token.js": "text/javascript",
}
TITLES = {
    401: "A token is needed",
    403: "Not for other sites",
    404: "Not here",
    405: "Only to be read",
    421: "Another name",
    422: "This can't be shown",
    503: "Busy",
}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """The handlers, of runs that are only read."""

    def __init__(self, desk: Desk, guard: Guard) -> None:
        self._desk = desk
        self._guard = guard
        self._live = Live()

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(middlewares=[self._guarded])
        app.router.add_get("/", self.overview)
        app.router.add_get("/runs/{run}", self.run)
        app.router.add_get("/runs/{run}/report", self.report)
        app.router.add_get("/runs/{run}/items", self.items)
        app.router.add_get(r"/runs/{run}/items/{row:\d{1,9}}", self.item)
        app.router.add_get("/runs/{run}/events", self.events, allow_head=False)
        app.router.add_get("/assets/{name}", self.asset)
        app.on_response_prepare.append(protect)
        app.on_shutdown.append(self._end)
        return app

    async def _end(self, _: web.Application) -> None:
        await self._live.close()
        await self._desk.close()

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """What is asked for, or a plain page that says why not."""
        try:
            self._guard.check(request)
            return await handler(request)
        except RefusedError as error:
            return _refused(error.status, str(error))
        except web.HTTPException as error:
            return _refused(error.status, "There is no such page.")
        except MissingError as error:
            return _refused(404, str(error))
        except BusyError:
            response = _refused(503, "Too much is asked for at once: try again in a while.")
            response.headers["Retry-After"] = "10"
            return response
        except NoVerdictsError:
            return _refused(404, "Nothing is judged yet: there is no report, and no scores.")
        except JudgeqError as error:
            return _refused(422, str(error))

    # The pages

    async def overview(self, _: web.Request) -> web.Response:
        """All runs."""
        states = await self._desk.states()
        return _page(pages.overview(states, self._desk.runs.shown, datetime.now(UTC)))

    async def run(self, request: web.Request) -> web.Response:
        """A run."""
        run = await self._desk.find(request.match_info["run"])
        key = "" if self._guard.token is None else self._guard.key
        return _page(pages.run(await self._desk.state(run), key))

    async def report(self, request: web.Request) -> web.Response:
        """A run's report."""
        run = await self._desk.find(request.match_info["run"])
        response = _page(await self._desk.report(run, pages.address_of(run)))
        style, script = html.asset("style.css"), html.asset("table.js")
        policy = html.policy(style=style, script=script)
        response.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
        return response

    async def items(self, request: web.Request) -> web.Response:
        """A page of a run's items: `?q=` some words, `?page=` from 1."""
        run = await self._desk.find(request.match_info["run"])
        opened = await self._desk.opened(run)
        words = request.query.get("q", "").strip()
        rows = await self._desk.sought(opened, words)
        return _page(pages.items(opened, rows, words, _number(request.query.get("page", ""))))

    async def item(self, request: web.Request) -> web.Response:
        """An item by its row; `?replies=1`: with the raw replies."""
        run = await self._desk.find(request.match_info["run"])
        opened = await self._desk.opened(run)
        replies = request.query.get("replies") == "1"
        item = await self._desk.item(opened, int(request.match_info["row"]), replies=replies)
        return _page(pages.item(item, replies=replies))

    async def asset(self, request: web.Request) -> web.Response:
        """A style sheet or script of ours."""
        name = request.match_info["name"]
        if name not in ASSETS:
            raise MissingError("There is no such file.")
        return web.Response(text=html.asset(name), content_type=ASSETS[name], charset="utf-8")

    async def events(self, request: web.Request) -> web.StreamResponse:
        """What is seen of a run while it goes on, as server-sent events."""
        key = request.match_info["run"]
        run = await self._desk.find(key)
        if not self._live.has_room(key):
            raise BusyError
        texts = await self._desk.texts(run)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        frames = self._live.frames(key, run, texts)
        with suppress(ConnectionError, BusyError):  # the page was closed
            async for frame in frames:
                data = b": still here" if frame is None else b"data: " + orjson.dumps(frame)
                await response.write(data + b"\n\n")
        await frames.aclose()  # type: ignore[attr-defined]
        return response


def _page(content: str) -> web.Response:
    return web.Response(text=content, content_type="text/html", charset="utf-8")


def _refused(status: int, why: str) -> web.Response:
    response = _page(pages.refused(TITLES.get(status, "Not here"), why, token=status == 401))
    response.set_status(status)
    if status == 401:  # it becomes the page that was asked for, which may be a report
        response.headers["Content-Security-Policy"] = html.policy_of_all()
    return response


def _number(text: str) -> int:
    """A page's number, from 1."""
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 10 else 1


@asynccontextmanager
async def serving(
    runs: Runs, host: str, port: int, *, token: str | None = None, shown: bool = True
) -> AsyncIterator[Guard]:
    """The server, listening; port 0 is any free one. Raises OSError where it can't listen."""
    guard = Guard(host, port, token)
    server = Server(Desk(runs, shown=shown), guard)
    async with listening(server.app(), host, port, logger("serve")) as guard.port:
        yield guard


async def serve(
    runs: Runs,
    host: str,
    port: int,
    ready: Callable[[Guard], None],
    *,
    token: str | None = None,
    shown: bool = True,
) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is given what knows the address. Raises as `serving`."""
    stop = asyncio.Event()
    with signals(stop.set, stop.set):
        async with serving(runs, host, port, token=token, shown=shown) as guard:
            ready(guard)
            await stop.wait()
