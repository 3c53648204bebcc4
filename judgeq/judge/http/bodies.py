"""An answer's bytes, whole and within a limit: a server may be anybody's.

Answers are asked for uncompressed. Some proxies compress them all the same, so that gzip and deflate
are read, as far as what comes out stays within the limit.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

import aiohttp

from judgeq.errors import JudgeError, RefusedRequestError, ServerFailedError, UnusableReplyError

LARGEST_REPLY = 16 * 1024 * 1024
_GZIP = 16 + zlib.MAX_WBITS


async def read_all(response: aiohttp.ClientResponse) -> bytes:
    """The answer's body, from a session that doesn't decompress by itself (auto_decompress=False).

    Raises UnusableReplyError for one that is longer than LARGEST_REPLY, compressed or not, or can't
    be decompressed; RefusedRequestError for a compression that is not known here. Both may have been
    paid for.
    """
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > LARGEST_REPLY:
            response.close()
            raise _too_long()
    return decompressed(b"".join(parts), response.headers.get("Content-Encoding", ""))


async def parts_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body of a long answer, part by part as it comes; aiohttp raises for one that breaks off.

    Raises ServerFailedError for one whose end can't be told from a broken connection, and
    RefusedRequestError for one that came compressed.
    """
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity"):
        raise RefusedRequestError(
            f"the file came compressed{_named(encoding)}, though it was asked for uncompressed. See to "
            "the server, or to the proxy in between.",
            cost=None,
        )
    chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
    if response.content_length is None and not chunked:
        raise ServerFailedError(
            "the file came without its length, so that nobody can say whether it is whole. See to the "
            "server, or to the proxy in between."
        )
    async for part in response.content.iter_any():
        yield part


def decompressed(data: bytes, encoding: str) -> bytes:
    """What a body was before its Content-Encoding. Raises as `read_all`."""
    match encoding.strip().lower():
        case "" | "identity":
            return data
        case "gzip" | "x-gzip":
            kind = _GZIP
        case "deflate":  # with zlib's frame (RFC 9110), which some leave out
            kind = (
                zlib.MAX_WBITS if data[:1] and data[0] & 0x0F == zlib.DEFLATED else -zlib.MAX_WBITS
            )
        case _:
            raise RefusedRequestError(
                f"the answer came compressed{_named(encoding)}, though it was asked for uncompressed, "
                "and judgeq reads only gzip and deflate. See to the server, or to the proxy in "
                "between.",
                cost=None,
            )
    reader = zlib.decompressobj(kind)
    try:
        text = reader.decompress(data, LARGEST_REPLY)
    except zlib.error as error:
        raise UnusableReplyError(
            f"the answer can't be decompressed: {error}.", cost=None
        ) from error
    if reader.eof:
        return text
    raise (
        _too_long()
        if len(text) >= LARGEST_REPLY
        else UnusableReplyError("the answer can't be decompressed: its end is missing.", cost=None)
    )


def _named(encoding: str) -> str:
    """The name of a compression, if it is one: nothing else that a server says goes into an error
    unmasked."""
    known = ("br", "zstd", "compress", "x-compress", "gzip, gzip")
    return f" as {encoding}" if encoding in known else ""


def _too_long() -> JudgeError:
    return UnusableReplyError(f"the answer is longer than {LARGEST_REPLY:,} bytes.", cost=None)
