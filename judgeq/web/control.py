"""How other commands of this user reach the process that has a run: it alone writes to the run's file.

It listens on this machine, for whoever has a secret, which is in a file that nobody but this user can
read; never in the run's folder, which may be a stranger's.
"""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from judgeq.engine.people import People
from judgeq.engine.registering import Change, Changed, What, linked
from judgeq.errors import JudgeqError, RunError, UsageError
from judgeq.events import Event, Notice
from judgeq.files import problems, read_start, remembered, write_private
from judgeq.runs import RunPlace
from judgeq.web.guard import Place, RefusedError, protect
from judgeq.web.links import token_of
from judgeq.web.listening import listening, logger

HOST = "127.0.0.1"
LARGEST = 4 * 1024 * 1024
"""Bytes of a request."""
LONGEST = 20.0
"""Seconds for which an answer is waited for."""
_CHANGED = TypeAdapter(tuple[Changed, ...])


class Asked(BaseModel):
    """A change that is asked for: see `Change`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    what: What
    names: Annotated[tuple[str, ...], Field(min_length=1, max_length=10_000)]
    quota: Annotated[int, Field(ge=1, lt=2**31)] | None = None


class Written(BaseModel):
    """What the file says."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    port: Annotated[int, Field(ge=1, le=65535)]
    secret: Annotated[str, Field(pattern=r"^[\w-]{20,100}$", repr=False)]


def _file(place: RunPlace) -> Path:
    return remembered("people", place.identity)


# The process that has the run


@asynccontextmanager
async def controlled(
    people: People,
    place: RunPlace,
    link: Callable[[str], str],
    emit: Callable[[Event], None] = lambda event: None,
) -> AsyncIterator[None]:
    """While inside, this user's other commands reach these people. `link`: what leads whoever has a
    token to the page."""
    secret, path = secrets.token_urlsafe(32), _file(place)
    log = logger("annotate")
    server = _Server(people, link, secret, Place(HOST, 0))
    async with listening(server.app(), HOST, 0, log) as server.place.port:
        written = Written(port=server.place.port, secret=secret)
        try:
            write_private(path, written.model_dump_json())
        except RunError as error:
            emit(
                Notice(
                    f"`judgeq judges` can't change anything while this goes on: {error}",
                    warning=True,
                )
            )
        try:
            yield
        finally:
            if _read(path) == written:
                with suppress(OSError):
                    path.unlink()


@dataclass
class _Server:
    people: People
    link: Callable[[str], str]
    secret: str = field(repr=False)
    place: Place

    def app(self) -> web.Application:
        app = web.Application(client_max_size=LARGEST)
        app.router.add_get("/", self._hello)
        app.router.add_post("/", self._change)
        app.on_response_prepare.append(protect)
        return app

    def _refused(self, request: web.Request) -> web.Response | None:
        try:
            self.place.check_name(request)
        except RefusedError as error:
            return _said(error.status, {"error": str(error)})
        if not secrets.compare_digest(token_of(request) or "", self.secret):
            return _said(401, {"error": "This needs the secret."})
        return None

    async def _hello(self, request: web.Request) -> web.Response:
        return self._refused(request) or _said(200, {})

    async def _change(self, request: web.Request) -> web.Response:
        if (refused := self._refused(request)) is not None:
            return refused
        try:
            asked = Asked.model_validate_json(await request.read())
            changed = await self.people.change(Change(asked.what, asked.names, asked.quota))
        except ValidationError as error:
            return _said(400, {"error": f"This can't be taken: {problems(error)}."})
        except UsageError as error:
            return _said(400, {"error": str(error)})
        except JudgeqError as error:
            return _said(409, {"error": str(error)})
        return _said(200, _CHANGED.dump_python(linked(changed, self.link), mode="json"))


def _said(status: int, content: Any) -> web.Response:
    return web.json_response(content, status=status, dumps=json.dumps)


# Other commands


@dataclass(frozen=True, slots=True)
class Control:
    """What changes the people of a run that a process has."""

    _at: Written

    def change(self, change: Change) -> tuple[Changed, ...]:
        """As `registering.make`, by that process. Raises UsageError, and RunError where it doesn't
        answer."""
        try:
            status, content = _asked(self._at, json.dumps(asdict(change)))
            if status == 200:
                return _CHANGED.validate_json(content)
            words = str(json.loads(content)["error"])
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            raise RunError(
                f"the process that has the run gave no answer ({str(error) or type(error).__name__}). "
                "`judgeq judges list` shows whether it was done."
            ) from error
        raise UsageError(words) if status == 400 else RunError(words)


def of(place: RunPlace) -> Control | None:
    """What reaches the process that has a run. None where no process does, or none that lets others
    change its people."""
    written = _read(_file(place))
    # Once nobody has the run, whatever listens there is another's.
    if written is None or not place.is_running():
        return None
    try:
        status, _ = _asked(written)
    except (OSError, http.client.HTTPException):
        return None
    return Control(written) if status == 200 else None


def _read(path: Path) -> Written | None:
    try:
        return Written.model_validate_json(read_start(path, 1000))
    except (OSError, ValidationError):
        return None


def _asked(at: Written, body: str | None = None) -> tuple[int, bytes]:
    """The status and content of an answer; by no proxy."""
    headers = {"Authorization": f"Bearer {at.secret}", "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection(HOST, at.port, timeout=LONGEST)) as connection:
        connection.request("GET" if body is None else "POST", "/", body, headers)
        response = connection.getresponse()
        return response.status, response.read()
