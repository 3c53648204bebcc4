"""Where people are asked: on a page, which other commands can reach while it is open."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from judgeq.engine.assembly import Run
from judgeq.errors import UsageError
from judgeq.events import Event, Notice
from judgeq.people.people import People

if TYPE_CHECKING:
    from judgeq.web.links import Entrance


def page(
    run: Run, emit: Callable[[Event], None], opened: Callable[[str], None] | None = None
) -> Callable[[People], AbstractAsyncContextManager[None]]:
    """What opens the page of a run's people; `opened` is given its address. Raises UsageError where it
    can't be opened."""

    @asynccontextmanager
    async def on_a_page(people: People) -> AsyncIterator[None]:
        from judgeq.web.annotate import annotating  # brings aiohttp
        from judgeq.web.control import controlled

        settings = run.settings
        async with AsyncExitStack() as stack:
            served = annotating(people, settings.host, settings.port, prefix=settings.url_prefix)
            try:
                entrance = await stack.enter_async_context(served)
            except OSError as error:
                raise unable(settings.host, settings.port, error) from error
            await stack.enter_async_context(controlled(people, run.folder, entrance.link, emit))
            emit(Notice(_said(run, entrance), needed=True))
            if opened is not None:
                opened(entrance.address_shown)
            yield

    return on_a_page


def _said(run: Run, entrance: Entrance) -> str:
    address = entrance.address_shown
    if run.settings.open_to_all:
        text = f"Whoever opens {address} may judge, under a name of their own."
    else:
        text = (
            f"People judge at {address}, each by a link of their own: `judgeq judges add "
            f"{run.folder.argument} NAME` prints it."
        )
    if entrance.leads_here:
        text += (
            " Only this machine reaches it: for others name the address of a reverse proxy with "
            "--url-prefix, or one of this machine with --host."
        )
    return text


def unable(host: str, port: int, error: OSError) -> UsageError:
    """That nothing can listen there, and what to do."""
    what = f"can't listen on {host}, port {port}"
    if error.errno == errno.EADDRINUSE:
        return UsageError(f"{what}: it is in use. Give another --port; 0 takes any free one.")
    reason = error.strerror or str(error)
    return UsageError(f"{what}: {reason}. Give another --port, or a --host of this machine.")
