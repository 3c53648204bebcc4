"""Fetches one file whose checksum is known, and gives up in seconds where there is no way out.

Name lookups ignore every socket timeout, so that the answer is waited for in a daemon thread.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from judgeq.errors import DataError

if TYPE_CHECKING:
    from http.client import HTTPResponse

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait, in seconds: `answer` for the first byte, `stall` for each one after it."""

    answer: float = 5.0
    stall: float = 15.0


class _NotFetchedError(Exception):
    """There was no way to the file; says why."""


def fetch(
    url: str, target: Path, *, sha256: str, size: int, patience: Patience | None = None
) -> str:
    """Puts the file at `url` to `target`, whole or not at all; "" or why it couldn't be had.

    $JUDGEQ_OFFLINE, no network, a refusal, a stall, a body that breaks off, and a folder that can't
    be written to are reasons given. Raises DataError where something did come and it is not the file.
    """
    if os.environ.get("JUDGEQ_OFFLINE", "") not in ("", "0"):
        return "JUDGEQ_OFFLINE is set"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _into(target, url, sha256, size, patience or Patience())
    except _NotFetchedError as error:
        return str(error)
    except OSError as error:
        return f"{target.parent} can't be written to: {error.strerror or error}"
    return ""


def _into(target: Path, url: str, sha256: str, size: int, patience: Patience) -> None:
    from tempfile import NamedTemporaryFile

    with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
        part = Path(file.name)
        try:
            digest = hashlib.sha256()
            received = 0
            for chunk in _chunks(url, size, patience):
                received += len(chunk)
                digest.update(chunk)
                file.write(chunk)
            if received > size or digest.hexdigest() != sha256:
                instead = f"more than {size:,} bytes" if received > size else digest.hexdigest()
                raise DataError(
                    f"What {url} gave is not {target.name}: expected sha256 {sha256}, got {instead}. "
                    "Nothing was kept. Something on the way may have changed it (a proxy, a login "
                    f"page); get the file by another way and put it at {target}."
                )
            file.flush()
            os.fsync(file.fileno())
            file.close()
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)


def _chunks(url: str, size: int, patience: Patience) -> Iterator[bytes]:
    """The body as it comes, at most one chunk more than `size`; raises _NotFetchedError."""
    from http.client import HTTPException
    from urllib.error import HTTPError

    host = urlsplit(url).netloc
    try:
        with _opened(url, patience) as response:
            left = size
            while left >= 0 and (chunk := response.read1(CHUNK)):
                left -= len(chunk)
                yield chunk
        # read1 takes a broken connection for the end, except in a chunked answer.
        missing = 0 if response.chunked else left if response.length is None else response.length
        if left > 0 and missing > 0:
            raise _NotFetchedError(f"the answer from {host} broke off")
    except HTTPError as error:
        error.close()
        raise _NotFetchedError(f"{host} answered {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(reason, TimeoutError):
            raise _NotFetchedError(f"{host} was silent for {patience.stall:g} s") from error
        raise _NotFetchedError(f"{host} can't be reached: {reason}") from error


def _opened(url: str, patience: Patience) -> HTTPResponse:
    """The answer, once it has begun. In a thread, which is left behind where that takes too long."""
    from http.client import HTTPException

    answers: SimpleQueue[HTTPResponse | Exception] = SimpleQueue()
    left_behind = Event()

    def ask() -> None:
        try:
            response = _open(url, patience.stall)
        except (OSError, HTTPException, ValueError) as error:
            answers.put(error)
            return
        answers.put(response)
        if left_behind.is_set():
            response.close()

    Thread(target=ask, daemon=True, name="download").start()
    try:
        answer = answers.get(timeout=patience.answer)
    except Empty:
        left_behind.set()
        host = urlsplit(url).netloc
        raise _NotFetchedError(f"{host} was silent for {patience.answer:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def _open(url: str, timeout: float) -> HTTPResponse:
    """Opens `url` through the proxies of the environment; a redirect to plain http is refused."""
    from urllib.error import URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Redirects(HTTPRedirectHandler):
        def redirect_request(self, *received: Any) -> Request | None:
            address = urljoin(url, received[-1])
            if urlsplit(address).scheme not in ("https", urlsplit(url).scheme):
                received[1].close()  # the answer so far
                raise URLError(f"it redirects to {address}, which is not https")
            return super().redirect_request(*received)

    request = Request(url, headers={"User-Agent": "judgeq"})  # noqa: S310  corpora checks the scheme
    response: HTTPResponse = build_opener(Redirects).open(request, timeout=timeout)
    return response
