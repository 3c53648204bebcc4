"""Fetches one file whose checksum is known."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

from judgeq.errors import DataError
from judgeq.files import replacing

TIMEOUT = 10.0
"""Seconds without a byte, after which a file is given up."""


class _NotFetchedError(Exception):
    """There was no way to the file; says why."""


def fetch(url: str, target: Path, *, sha256: str, size: int, timeout: float = TIMEOUT) -> str:
    """Puts the file at `url` to `target`, whole or not at all; "" or why it couldn't be had.

    $JUDGEQ_OFFLINE, no network, a refusal, a silence, a body that breaks off, and a folder that can't
    be written to are reasons given. Raises DataError where something did come and it is not the file.
    """
    if os.environ.get("JUDGEQ_OFFLINE", "") not in ("", "0"):
        return "JUDGEQ_OFFLINE is set"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        body = _body(url, size, timeout)
        digest = hashlib.sha256(body).hexdigest()
        if digest != sha256:
            instead = f"more than {size:,} bytes" if len(body) > size else digest
            raise DataError(
                f"What {url} gave is not {target.name}: expected sha256 {sha256}, got {instead}. "
                "Nothing was kept. Something on the way may have changed it (a proxy, a login "
                f"page); get the file by another way and put it at {target}."
            )
        with replacing(target, refusal=lambda _, error: OSError(*error.args)) as file:
            file.buffer.write(body)
    except _NotFetchedError as error:
        return str(error)
    except OSError as error:
        return f"{target.parent} can't be written to: {error.strerror or error}"
    return ""


def _body(url: str, size: int, timeout: float) -> bytes:
    """What is at `url`, at most one byte more than `size`, by the proxies of the environment; a redirect
    to plain http is refused. Raises _NotFetchedError."""
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import HTTPRedirectHandler, Request, build_opener

    class Redirects(HTTPRedirectHandler):
        def redirect_request(self, *received: Any) -> Request | None:
            address = urljoin(url, received[-1])
            if urlsplit(address).scheme not in ("https", urlsplit(url).scheme):
                received[1].close()  # the answer so far
                raise URLError(f"it redirects to {address}, which is not https")
            return super().redirect_request(*received)

    host = urlsplit(url).netloc
    request = Request(url, headers={"User-Agent": "judgeq"})  # noqa: S310  corpora checks the scheme
    try:
        with build_opener(Redirects).open(request, timeout=timeout) as response:
            body: bytes = response.read(size + 1)
            # A broken connection reads as the end, except in a chunked answer.
            broken = not response.chunked and response.length != 0 and len(body) < size
    except HTTPError as error:
        error.close()
        raise _NotFetchedError(f"{host} answered {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        silent = isinstance(reason, TimeoutError)
        why = f"was silent for {timeout:g} s" if silent else f"can't be reached: {reason}"
        raise _NotFetchedError(f"{host} {why}") from error
    if broken:
        raise _NotFetchedError(f"the answer from {host} broke off")
    return body
