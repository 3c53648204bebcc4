"""The page on which people judge: its server, and the calls that the page makes.

The page itself holds nothing of the run. All that it shows comes by calls, each with the token of the
person who judges, as JSON; all that they send is checked here before `People` sees it.
"""

from __future__ import annotations

import json
import math
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from judgeq.engine.assembly import Run
from judgeq.errors import (
    JudgeqError,
    PersonError,
    StaleError,
    StoreAwayError,
    UnknownPersonError,
    UsageError,
)
from judgeq.events import Event, Notice
from judgeq.files import problems
from judgeq.people.people import LONGEST, Answer, People, Turn
from judgeq.ui import html
from judgeq.ui.dataclass_json import plain
from judgeq.web.connections import ConnectionLimits, Handler, read_body
from judgeq.web.control import controlled
from judgeq.web.guard import (
    Entrance,
    Rates,
    RefusedError,
    assets,
    listening,
    logger,
    refusal,
    response,
    token_of,
    unable,
)

SCRIPTS = ("page", "server", "questions", "ranking", "dragging", "dialogs", "clock", "elements")
ASSETS = {
    "style.css": "style.css",
    "annotate.css": "annotate/annotate.css",
    **{f"{name}.js": f"annotate/{name}.js" for name in SCRIPTS},
}
LARGEST = 64 * 1024
"""Bytes of a call."""
KNOWN, UNKNOWN, JOINING = (10.0, 60.0), (0.5, 30.0), (0.5, 100.0)
"""Calls a second, and at once: of a person's link; of an address without one; of those who join from an
address, which may be a reverse proxy's. A person's link waits for its own calls alone. If the address
isn't known, unknown links count for themselves: nobody guesses one of 24 random bytes."""
AGAIN = 5
"""Seconds after which to try again if the store can't be reached."""
STATUS: dict[type[JudgeqError], int] = {UnknownPersonError: 401, StaleError: 409}
Words = Annotated[
    str, Field(max_length=LONGEST), AfterValidator(lambda text: text.replace("\0", ""))
]
"""No store keeps a zero byte."""


class Call(BaseModel):
    """What the page sends."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class OfQuestion(Call):
    """A call about the question that a person has, by its id."""

    question: Annotated[str, Field(min_length=1, max_length=200)]


class Skip(OfQuestion):
    """A question that a person doesn't answer, and why."""

    reason: Literal["undecided", "broken", "known", "other"]
    note: Words = ""


class Answered(OfQuestion):
    """An answer: see `Answer`."""

    ranking: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=1_000)] = ()
    tied: bool = False
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    seconds: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    note: Words = ""


class Join(Call):
    """Somebody who wants to take part."""

    name: Annotated[str, Field(min_length=1, max_length=100)]


Does = Callable[..., Awaitable[Any]]
"""What a call does, by its token and the fields of its form; it returns what the page is sent."""


class Server:
    """The handlers."""

    def __init__(self, people: People, entrance: Entrance, clock: Callable[[], float]) -> None:
        self.log = logger("annotate")
        self._people = people
        self._entrance = entrance
        self._known, self._unknown, self._joining = (
            Rates(*limits, clock) for limits in (KNOWN, UNKNOWN, JOINING)
        )

    def app(self) -> web.Application:
        """The routes, with the prefix and without: a reverse proxy may take it away, or not."""
        people, path = self._people, self._entrance.path
        calls: dict[str, tuple[type[Call], Does]] = {
            "about": (Call, self._about),
            "turn": (Call, people.turn),
            "answer": (Answered, self._answer),
            "skip": (Skip, people.skip),
            "undo": (Call, people.undo),
            "renew": (OfQuestion, people.renew),
            "leave": (OfQuestion, people.leave),
            "join": (Join, self._join),
        }
        app = web.Application(middlewares=[self._guarded], client_max_size=LARGEST)
        for base in {"", path}:
            app.router.add_get(f"{base}/", self._page)
            app.router.add_get(f"{base}/assets/{{name}}", assets(ASSETS))
            for name, (form, does) in calls.items():
                app.router.add_post(f"{base}/api/{name}", partial(self._call, form, does))
        if path:
            app.router.add_get(path, self._to_page)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """An answer, or a sentence that says why there is none."""
        try:
            self._entrance.check(request)
            return await handler(request)
        except RefusedError as error:
            return refusal(error.status, str(error))
        except ValidationError as error:
            return refusal(400, f"This can't be used: {problems(error)}.")
        except StoreAwayError:
            return refusal(503, "The study can't be reached just now.", AGAIN)
        except (PersonError, UsageError) as error:
            return refusal(STATUS.get(type(error), 400), str(error))
        except web.HTTPRequestEntityTooLarge:
            return refusal(413, "This is too large to be sent at once.")
        except web.HTTPClientError as error:
            return refusal(error.status, "There is nothing at this address.")
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:  # noqa: BLE001  (raised again, as a fault)
            # Logged here, since its words may hold a token.
            words = str(error) if isinstance(error, JudgeqError) else traceback.format_exc()
            self.log.error("%s", words.replace(token_of(request) or "\0", "(token)"))
            text = "Something is wrong with the study. Tell whoever runs it; your answer is sent again."
            raise web.HTTPInternalServerError(
                text=json.dumps({"error": text}), content_type="application/json"
            ) from None

    async def _page(self, _: web.Request) -> web.Response:
        return response(html.asset("annotate/page.html"))

    async def _to_page(self, _: web.Request) -> web.Response:
        raise web.HTTPPermanentRedirect(f"{self._entrance.path}/")

    async def _call(self, form: type[Call], does: Does, request: web.Request) -> web.Response:
        """Answer a call: limit its rate, check its content, do what it asks."""
        token, client = token_of(request), self._entrance.client(request)
        rates = self._joining if form is Join else self._unknown
        if rates is self._unknown:
            client = client or token
            if token and await self._people.knows(token):
                rates, client = self._known, token
        if wait := rates.take(client):
            return refusal(429, "Too many requests. Wait a moment.", math.ceil(wait))
        try:
            body = await read_body(request)
        except TimeoutError:
            raise RefusedError(408, "The rest of this call didn't come.") from None
        call = form.model_validate_json(body)
        content = await does(token, **dict(call))
        if rates is self._unknown:
            rates.give_back(client)
        # Not orjson: a text may hold half of a character.
        return web.json_response(plain(content or {}))

    async def _about(self, token: str) -> dict[str, Any]:
        if (token or not self._people.open_to_all) and not await self._people.knows(token):
            await self._people.turn(token)  # raises UnknownPersonError
        return self._people.about

    async def _answer(self, token: str, question: str, **answer: Any) -> Turn:
        return await self._people.answer(token, question, Answer(**answer))

    async def _join(self, _: str, name: str) -> dict[str, Any]:
        if not self._people.open_to_all:
            raise RefusedError(403, "This study is for people who were given a link.")
        return {"token": await self._people.join(name)}


@asynccontextmanager
async def annotating(
    people: People,
    host: str,
    port: int,
    *,
    prefix: str = "",
    clock: Callable[[], float] = time.monotonic,
    limits: ConnectionLimits | None = None,
) -> AsyncIterator[Entrance]:
    """The server, listening; port 0 is any free one. `prefix`: the path or the whole address at which a
    reverse proxy has it. Raises UsageError for one that is neither, OSError if it can't listen."""
    entrance = Entrance.at(host, port, prefix)
    server = Server(people, entrance, clock)
    listener = listening(
        server.app(), host, port, server.log, limits=limits, behind_proxy=bool(prefix)
    )
    async with listener as entrance.port:
        yield entrance


def page(
    run: Run, emit: Callable[[Event], None], opened: Callable[[str], object] | None = None
) -> Callable[[People], AbstractAsyncContextManager[None]]:
    """What opens the page of a run's people, and lets other commands change them; `opened` is called
    with its address. Raises UsageError if it can't be opened."""
    settings = run.settings

    @asynccontextmanager
    async def on_a_page(people: People) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            served = annotating(people, settings.host, settings.port, prefix=settings.url_prefix)
            try:
                entrance = await stack.enter_async_context(served)
            except OSError as error:
                raise unable(settings.host, settings.port, error) from error
            await stack.enter_async_context(controlled(people, run.folder, entrance.link, emit))
            emit(Notice(_invitation(run, entrance), needed=True))
            if opened is not None:
                opened(entrance.address_shown)
            yield

    return on_a_page


def _invitation(run: Run, entrance: Entrance) -> str:
    address = entrance.address_shown
    text = f"Anybody who opens {address} may judge, under a name of their own."
    if not run.settings.open_to_all:
        text = (
            f"People judge at {address}, each with a link of their own: "
            f"`{run.folder.command('annotate add', positionals=['NAME'])}` prints one."
        )
    if entrance.is_only_here:
        text += " Only this machine reaches it: for others give --url-prefix or --host."
    return text
