"""`judgeq serve`: all runs in the browser, which are only read: their list, the report of each, and the
progress of one while a process works on it.

A run in an address is a key that is compared with those of the runs; it never becomes a path. The
templates escape what they show.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from typing import Any, TypeVar

from aiohttp import web

from judgeq.engine import results, status
from judgeq.engine.interrupts import LOOK, Interrupts, signals
from judgeq.engine.status import State, Unreadable
from judgeq.errors import JudgeqError, NoVerdictsError, RunError
from judgeq.escaping import plain
from judgeq.evaluation.evaluate import evaluation, state_with_agreement
from judgeq.evaluation.gold import Plan
from judgeq.run_places import RunPlace, Runs
from judgeq.ui import html, report, report_texts
from judgeq.ui.sections import Section, words
from judgeq.ui.show import lists
from judgeq.ui.show import status as show_status
from judgeq.web.connections import ConnectionLimits, Handler
from judgeq.web.guard import Guard, RefusedError, assets, listening, logger, response

ASSETS = {name: name for name in ("style.css", "served.css", "live.js", "token.js")}
TITLES = {
    401: "A token is needed",
    403: "Not for other sites",
    404: "Not found",
    405: "Read only",
    421: "Another address",
    422: "This run can't be shown",
}
LONGEST, REASON = 200, 1_000
"""Characters of a name in a title, and of why a run can't be read."""
T = TypeVar("T")
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,230}")


def key_of(run: RunPlace) -> str:
    """What stands for a run in an address: its id, or a digest of one that others wrote."""
    if _PLAIN.fullmatch(run.id):
        return run.id
    return f"~{hashlib.sha256(os.fsencode(run.id)).hexdigest()[:32]}"


class Server:
    """The handlers. `with_texts`: reports show texts, as far as they are here."""

    def __init__(self, runs: Runs, guard: Guard, *, with_texts: bool = True) -> None:
        self._runs = runs
        self._guard = guard
        self._with_texts = with_texts
        self._ranked: dict[str, State] = {}
        self._report_of: tuple[object, str] = (None, "")  # the last one, until its run changes
        # One at a time: Matplotlib's settings are those of the process.
        self._drawing = asyncio.Lock()

    def app(self) -> web.Application:
        """The routes."""
        routes = {
            "/": self._list,
            "/runs/{run}": self._run,
            "/runs/{run}/report": self._report,
            "/runs/{run}/status": self._status,
            "/assets/{name}": assets(ASSETS),
        }
        app = web.Application(middlewares=[self._guarded])
        for path, handler in routes.items():
            app.router.add_get(path, handler)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """An answer, or a plain page that says why there is none."""
        try:
            self._guard.check(request)
            return await handler(request)
        except RefusedError as error:
            return _refused(error.status, str(error))
        except web.HTTPException as error:
            return _refused(error.status, "There is no such page.")
        except NoVerdictsError:
            return _refused(404, "Nothing has been judged yet, so there is no report.")
        except JudgeqError as error:
            return _refused(422, str(error))

    # The pages

    async def _list(self, _: web.Request) -> web.Response:
        """All runs: those that a process works on first, then the latest."""
        states = await _in_thread(lambda: status.states(self._runs.all()))
        states.sort(key=lambda state: not getattr(state, "running", False))
        readable = [state for state in states if isinstance(state, State)]
        links = [f"/runs/{key_of(state.run)}" for state in readable]
        rows = [
            (plain(state.run.id, LONGEST), plain(state.reason, REASON))
            for state in states
            if isinstance(state, Unreadable)
        ]
        return _page(
            "runs.html",
            "All runs",
            where=self._runs.label,
            runs=html.linked(lists.runs(readable), "run", links) if readable else "",
            unreadable=html.sections(
                [Section(columns=words("run", "why"), rows=rows)] * bool(rows)
            ),
        )

    async def _run(self, request: web.Request) -> web.Response:
        """A run: its report; its progress while a process works on it, or if nothing is judged yet."""
        run = await self._find(request)
        state = await self._state(run)
        if state.counts.done and not state.running:
            return await self._reported(run)
        return _page(
            "run.html",
            run.id,
            sections=html.sections(show_status.status(state)),
            running=state.running,
            judged=state.counts.done > 0,
            home=f"/runs/{key_of(run)}",
        )

    async def _status(self, request: web.Request) -> web.Response:
        """The progress of a run, as a part of its page; 205, to load the page again, once no process
        works on it."""
        state = await self._state(await self._find(request))
        if not state.running:
            return web.Response(status=205)
        return response(str(html.sections(show_status.status(state))))

    async def _report(self, request: web.Request) -> web.Response:
        """A run's report, of its judgments so far."""
        return await self._reported(await self._find(request))

    async def _reported(self, run: RunPlace) -> web.Response:
        async with self._drawing:
            stamp = run.id, _stamp(run)
            if self._report_of[0] != stamp:
                self._report_of = stamp, await _in_thread(lambda: self._write(run))
            written = self._report_of[1]
        answer = response(written)
        policy = html.policy(style=html.asset("style.css"), script=html.asset("table.js"))
        answer.headers["Content-Security-Policy"] = f"{policy}; frame-ancestors 'none'"
        return answer

    # The runs

    async def _find(self, request: web.Request) -> RunPlace:
        """The run of an address. Raises RunError if runs can't be listed."""
        runs: Sequence[RunPlace] = await asyncio.to_thread(self._runs.all)
        for run in runs:
            if key_of(run) == request.match_info["run"]:
                return run
        raise web.HTTPNotFound

    async def _state(self, run: RunPlace) -> State:
        """A run's state, with its ranking. Raises RunError."""
        before = self._ranked.get(run.id)
        state = await _in_thread(lambda: status.state(run, rated=True, before=before))
        if before is None or before.result is not state.result:
            state = await asyncio.to_thread(state_with_agreement, state)
        self._ranked[run.id] = state
        return state

    async def _write(self, run: RunPlace) -> str:
        """A run's report as a page. Raises RunError, DataError, NotConvergedError."""
        settings = run.info().settings
        result = await results.read(run, settings)
        shown = self._with_texts and settings.texts
        evaluated = evaluation(result, Plan(), shown=shown)
        return report.page(evaluated, await report_texts.gathered(evaluated), "/")


def _stamp(run: RunPlace) -> object:
    """What changes with a run's record, or if another run takes its place."""
    try:
        return run.info(), run.touched()
    except RunError as error:
        return str(error)


async def _in_thread(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What a coroutine returns that runs on an event loop of its own, in a thread, while the server
    answers others."""
    return await asyncio.to_thread(lambda: asyncio.run(work()))


def _page(template: str, title: str, **values: Any) -> web.Response:
    above = [] if template == "runs.html" else [("All runs", "/")]
    more = {"title": plain(title, LONGEST), "above": above, "version": version("judgeq")}
    return response(html.rendered(template, **more, **values))


def _refused(status: int, why: str) -> web.Response:
    answer = _page("error.html", TITLES.get(status, TITLES[404]), why=why, token=status == 401)
    answer.set_status(status)
    if status == 401:  # it becomes the page that was asked for, which may be a report
        answer.headers["Content-Security-Policy"] = html.policy_of_all()
    return answer


@asynccontextmanager
async def serving(
    runs: Runs,
    host: str,
    port: int,
    *,
    token: str | None = None,
    with_texts: bool = True,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[Guard]:
    """The server, listening; port 0 is any free one. Raises OSError if it can't listen."""
    guard = Guard(host, port, token)
    app = Server(runs, guard, with_texts=with_texts).app()
    async with listening(app, host, port, logger("serve"), limits=limits) as guard.port:
        yield guard


async def serve(server: AbstractAsyncContextManager[Guard], ready: Callable[[Guard], None]) -> None:
    """Serve until SIGINT or SIGTERM; `ready` is called with the address. Raises as `serving`."""
    interrupts = Interrupts()
    with signals(interrupts):
        async with server as guard:
            ready(guard)
            while not interrupts:  # noqa: ASYNC110 - signals set no event
                await asyncio.sleep(LOOK)
