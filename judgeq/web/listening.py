"""A server's beginning and end, and what it logs."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from judgeq.escaping import multiline


def logger(name: str) -> logging.Logger:
    """What is logged: bugs of ours, with nothing in them that could act on a terminal. Not what
    strangers send that is no request, nor who asked for what."""

    class Visible(logging.Formatter):
        def format(self, record: logging.LogRecord) -> str:
            return multiline(super().format(record))

    def is_ours(record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
        return not isinstance(error, HttpProcessingError)

    logger = logging.Logger(f"judgeq.{name}", logging.ERROR)
    handler = logging.StreamHandler()
    handler.setFormatter(Visible(f"judgeq {name}: %(message)s"))
    handler.addFilter(is_ours)
    logger.addHandler(handler)
    return logger


@asynccontextmanager
async def listening(
    app: web.Application, host: str, port: int, log: logging.Logger
) -> AsyncIterator[int]:
    """While inside, the app is served; the port, of which 0 is any free one. Raises OSError where it
    can't listen."""
    runner = web.AppRunner(
        app, access_log=None, logger=log, shutdown_timeout=1.0, handle_signals=False
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
