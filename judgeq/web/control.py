"""How other commands of this user change the people of a run that a process has open: that process alone
writes to the run's file.

It listens on this machine and asks for a secret, which is in a file that only this user can read,
never in the run's folder, which may be a stranger's.
"""

from __future__ import annotations

import http.client
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Annotated

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from judgeq.errors import JudgeqError, RunError, UsageError
from judgeq.events import Event, Notice
from judgeq.files import problems, read_start, remembered, write_private
from judgeq.people.people import People
from judgeq.people.registry import Change, Changed
from judgeq.run_places import RunPlace
from judgeq.web.guard import Place, RefusedError, listening, logger, refusal, token_of

HOST = "127.0.0.1"
LARGEST = 4 * 1024 * 1024
"""Bytes of a request."""
LONGEST = 20.0
"""Seconds to wait for an answer."""
_CHANGE, _CHANGED = TypeAdapter(Change), TypeAdapter(tuple[Changed, ...])


class Door(BaseModel):
    """Where the process listens, and the secret: what the file holds."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    port: Annotated[int, Field(ge=1, le=65535)]
    secret: Annotated[str, Field(pattern=r"^[\w-]{20,100}$", repr=False)]


@asynccontextmanager
async def controlled(
    people: People,
    place: RunPlace,
    make_link: Callable[[str], str],
    emit: Callable[[Event], None] = lambda event: None,
) -> AsyncIterator[None]:
    """While inside, this user's other commands can change these people. `make_link`: the link of a
    token."""
    at, secret, path = Place(HOST, 0), secrets.token_urlsafe(32), _file(place)

    async def change(request: web.Request) -> web.Response:
        try:
            at.check_name(request)
            if not secrets.compare_digest(token_of(request), secret):
                raise RefusedError(401, "This needs the secret.")
            wanted = _CHANGE.validate_json(await request.read())
            changed = await people.change(wanted, make_link)
        except RefusedError as error:
            return refusal(error.status, str(error))
        except ValidationError as error:
            return refusal(400, f"This is no change: {problems(error)}.")
        except JudgeqError as error:
            return refusal(400 if isinstance(error, UsageError) else 409, str(error))
        content = _CHANGED.dump_json(changed)
        return web.Response(body=content, content_type="application/json")

    app = web.Application(client_max_size=LARGEST)
    app.router.add_post("/", change)
    async with listening(app, HOST, 0, logger("annotate")) as at.port:
        door = Door(port=at.port, secret=secret)
        try:
            write_private(path, door.model_dump_json())
        except RunError as error:
            text = f"`judgeq annotate` can't change anything while this command runs: {error}"
            emit(Notice(text, warning=True))
        try:
            yield
        finally:
            if _read(path) == door:
                with suppress(OSError):
                    path.unlink()


def change(place: RunPlace, change: Change) -> tuple[Changed, ...] | None:
    """As `registry.apply`, by the process that has the run open; None if there is none, or none that
    can be reached. Raises UsageError, and RunError if it doesn't answer."""
    door = _read(_file(place))
    # If no process has the run, whatever listens there is another's.
    if door is None or not place.is_running():
        return None
    headers = {"Authorization": f"Bearer {door.secret}", "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection(HOST, door.port, timeout=LONGEST)) as connection:
        try:
            connection.connect()
        except OSError:
            return None
        try:
            connection.request("POST", "/", _CHANGE.dump_json(change), headers)
            response = connection.getresponse()
            if response.status == 200:
                return _CHANGED.validate_json(response.read())
            words = str(json.loads(response.read())["error"])
        except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError) as error:
            raise RunError(
                f"the process that has the run didn't answer ({str(error) or type(error).__name__}). "
                "`judgeq annotate list` shows whether the change was made."
            ) from error
    if response.status == 401:
        return None
    raise UsageError(words) if response.status == 400 else RunError(words)


def _file(place: RunPlace) -> Path:
    return remembered("people", place.identity)


def _read(path: Path) -> Door | None:
    try:
        return Door.model_validate_json(read_start(path, 1000))
    except (OSError, ValidationError):
        return None
