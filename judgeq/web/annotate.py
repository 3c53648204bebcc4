"""The server of the page on which people judge: the page, and the calls that it makes.

The page itself holds nothing of the run. All that it shows comes by calls, each with the token of
whoever judges, as JSON; all that they send is checked here before the engine sees it.
"""

from __future__ import annotations

import json
import logging
import math
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from judgeq.errors import (
    BadAnswerError,
    JudgeqError,
    StaleError,
    StoreAwayError,
    UnknownPersonError,
    UsageError,
)
from judgeq.files import problems
from judgeq.people.answers import Answer, Turn
from judgeq.people.people import People
from judgeq.ui import html
from judgeq.web.guard import RefusedError, protect
from judgeq.web.links import Entrance, token_of
from judgeq.web.listening import listening, logger
from judgeq.web.rates import Rates

ASSETS = {"style.css": "style.css"} | {
    name: f"annotate/{name}"
    for name in (
        *("annotate.css", "page.js", "server.js", "questions.js", "ranking.js", "dragging.js"),
        *("dialogs.js", "clock.js", "elements.js"),
    )
}
TYPES = {"css": "text/css", "js": "text/javascript"}
LARGEST = 64 * 1024
"""Bytes of a call."""
ACTIVE, STRANGE, JOINING = (10.0, 60.0), (0.5, 30.0), (0.5, 100.0)
"""Calls a second, and at once: of a known link; of an address without one; of those who want to take
part at an address, which may be a reverse proxy's. A known link waits for its own calls alone. Where the
address isn't known, unknown links count for themselves: nobody guesses one of 24 random bytes."""
AGAIN = 5
"""Seconds after which to try again, where the store is away."""


class Asked(BaseModel):
    """A call."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class Held(Asked):
    """A call about a question that they have, by its id."""

    question: Annotated[str, Field(min_length=1, max_length=200)]


class Skipped(Held):
    """A question that they don't answer, and why."""

    reason: Literal["undecided", "broken", "known", "other"]
    note: Annotated[str, Field(max_length=2_000)] = ""


class Answered(Held):
    """An answer: see `engine.people.Answer`."""

    ranking: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=1_000)] = ()
    tied: bool = False
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    note: Annotated[str, Field(max_length=2_000)] = ""

    def answer(self) -> Answer:
        """As the engine takes it: no store keeps a zero byte."""
        values = self.model_dump(exclude={"question", "note"})
        return Answer(**values, note=self.note.replace("\0", ""))


class Named(BaseModel):
    """Somebody who wants to take part."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    name: Annotated[str, Field(min_length=1, max_length=100)]


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Annotating:
    """The handlers."""

    def __init__(
        self, people: People, entrance: Entrance, log: logging.Logger, clock: Callable[[], float]
    ) -> None:
        self._people = people
        self._entrance = entrance
        self._log = log
        self._active = Rates(*ACTIVE, clock)
        self._strange = Rates(*STRANGE, clock)
        self._joining = Rates(*JOINING, clock)

    def app(self) -> web.Application:
        """The routes, as they are and behind the prefix: a reverse proxy may take it away, or not."""
        app = web.Application(middlewares=[self._guarded], client_max_size=LARGEST)
        calls: dict[str, tuple[type[BaseModel], Callable[[str, Any], Awaitable[Any]]]] = {
            "about": (Asked, self._about),
            "turn": (Asked, self._turn),
            "answer": (Answered, self._answer),
            "skip": (Skipped, self._skip),
            "undo": (Asked, self._undo),
            "renew": (Held, self._renew),
            "leave": (Held, self._leave),
            "join": (Named, self._join),
        }
        for base in {"", self._entrance.path}:
            app.router.add_get(f"{base}/", self._page)
            app.router.add_get(f"{base}/assets/{{name}}", self._asset)
            for name, (form, answer) in calls.items():
                app.router.add_post(f"{base}/api/{name}", partial(self._call, form, answer))
        if self._entrance.path:
            app.router.add_get(self._entrance.path, self._to_page)
        app.on_response_prepare.append(protect)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """What is asked for, or a sentence that says why not."""
        try:
            self._entrance.check(request)
            return await handler(request)
        except RefusedError as error:
            return _refused(error.status, str(error))
        except web.HTTPRequestEntityTooLarge:
            return _refused(413, "This is too much to be sent at once.")
        except web.HTTPClientError as error:
            return _refused(error.status, "There is nothing here by this name.")
        except (web.HTTPException, ConnectionError):
            raise
        except Exception:  # noqa: BLE001  (it goes on, as a fault)
            # Here, since its words may hold a token.
            token = token_of(request) or "\0"
            self._log.error("%s", traceback.format_exc().replace(token, "(token)"))
            raise _fault() from None

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(
            text=html.asset("annotate/page.html"), content_type="text/html", charset="utf-8"
        )

    async def _to_page(self, _: web.Request) -> web.Response:
        return web.Response(status=308, headers={"Location": f"{self._entrance.path}/"})

    async def _asset(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in ASSETS:
            raise web.HTTPNotFound
        kind = TYPES[name.rpartition(".")[2]]
        return web.Response(text=html.asset(ASSETS[name]), content_type=kind, charset="utf-8")

    # Calls

    async def _call(
        self,
        form: type[BaseModel],
        answer: Callable[[str, Any], Awaitable[Any]],
        request: web.Request,
    ) -> web.Response:
        """A call: whose it is, whether it is too soon, what it says, and what becomes of it."""
        token, client = token_of(request) or "", self._entrance.client(request)
        try:
            if form is Named:
                rates, who = self._joining, client
            elif token and await self._people.knows(token):
                rates, who = self._active, token
            else:
                rates, who = self._strange, client or token
            if wait := rates.take(who):
                return _refused(429, "This is too fast. Wait a moment.", math.ceil(wait))
            said = form.model_validate_json(await request.read())
            done = await answer(token, said)
        except ValidationError as error:
            return _refused(400, f"This can't be taken: {problems(error)}.")
        except UnknownPersonError:
            return _refused(401, "This link isn't known. Ask whoever gave it to you.")
        except StaleError as error:
            return _refused(409, str(error))
        except (BadAnswerError, UsageError) as error:
            return _refused(400, str(error))
        except StoreAwayError:
            return _refused(503, "The study can't be reached just now.", AGAIN)
        except JudgeqError as error:
            self._log.error("%s", str(error).replace(token or "\0", "(token)"))
            raise _fault() from None
        if rates is self._strange:
            rates.give_back(who)
        return _said(200, done)

    async def _about(self, token: str, _: Asked) -> dict[str, Any]:
        known = bool(token) and await self._people.knows(token)
        if not known and (token or not self._people.open_to_all):
            await self._people.turn(token)  # raises where the token isn't known
        about = self._people.about._asdict()
        return about | {
            "questions": dict(about["questions"]),
            "open_to_all": self._people.open_to_all,
        }

    async def _turn(self, token: str, _: Asked) -> dict[str, Any]:
        return _shown(await self._people.turn(token))

    async def _answer(self, token: str, said: Answered) -> dict[str, Any]:
        return _shown(await self._people.answer(token, said.question, said.answer()))

    async def _skip(self, token: str, said: Skipped) -> dict[str, Any]:
        note = said.note.replace("\0", "")
        return _shown(await self._people.skip(token, said.question, said.reason, note))

    async def _undo(self, token: str, _: Asked) -> dict[str, Any]:
        return _shown(await self._people.undo(token))

    async def _renew(self, token: str, said: Held) -> dict[str, Any]:
        await self._people.renew(token, said.question)
        return {}

    async def _leave(self, token: str, said: Held) -> dict[str, Any]:
        await self._people.leave(token, said.question)
        return {}

    async def _join(self, _: str, said: Named) -> dict[str, Any]:
        if not self._people.open_to_all:
            raise RefusedError(403, "This study is for those who were given a link.")
        return {"token": await self._people.join(said.name)}


def _shown(turn: Turn) -> dict[str, Any]:
    """A turn as the page reads it."""
    question = turn.question
    return turn._asdict() | {"question": None if question is None else question._asdict()}


def _said(status: int, content: Any) -> web.Response:
    # Not orjson: a text may hold half of a character.
    return web.json_response(content, status=status, dumps=json.dumps)


def _refused(status: int, why: str, wait: int = 0) -> web.Response:
    response = _said(status, {"error": why})
    if wait:
        response.headers["Retry-After"] = str(wait)
    return response


def _fault() -> web.HTTPInternalServerError:
    words = "Something is wrong with the study. Tell whoever runs it; what you sent is tried again."
    return web.HTTPInternalServerError(
        text=json.dumps({"error": words}), content_type="application/json"
    )


@asynccontextmanager
async def annotating(
    people: People,
    host: str,
    port: int,
    *,
    prefix: str = "",
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Entrance]:
    """The server, listening; port 0 is any free one. `prefix`: the path or the whole address by which a
    reverse proxy makes it known. Raises UsageError for one that is neither, OSError where it can't
    listen."""
    entrance = Entrance.at(host, port, prefix)
    log = logger("annotate")
    app = Annotating(people, entrance, log, clock).app()
    async with listening(app, host, port, log) as entrance.port:
        yield entrance
