"""What the batch APIs of all providers have in common: a round goes out as files of lines, each with an
id of its own; a day later at most it comes back as files of results, in any order, which may lack lines,
hold them twice, or hold errors in their place. What becomes of a result is engine/batch_jobs.py's.

A provider's server may be anybody's: what it says is checked, its words are masked, and nothing of it
decides where the key goes. Results come through the backend's own session. They are written whole or not
at all; no key reaches the disk, whatever the server puts into a file.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

import aiohttp
import orjson

from judgeq.errors import (
    BatchGoneError,
    BatchNotFoundError,
    BrokenResultsError,
    JudgeError,
    RateLimitedError,
    RefusedRequestError,
    ServerFailedError,
)
from judgeq.escaping import plain
from judgeq.files import make_folder, replacing, unwritable
from judgeq.judge.backend import Download, Remote, Result
from judgeq.judge.http.connection import (
    LARGEST_REPLY,
    Answer,
    Body,
    Connection,
    count_in,
    object_in,
    objects_in,
)
from judgeq.judge.http.errors import PASSING, read
from judgeq.judge.http.headers import moment
from judgeq.types import Fields, Headers

PAGE, MOST_PAGES = 100, 1_000
LISTED_MARGIN_SECONDS = 86_400.0
"""Seconds by which a provider's clock may be behind ours, when a batch is looked for in its list."""
LARGEST_FILE = 4 * 1024**3
LARGEST_LINE = LARGEST_REPLY + 65_536
PROBLEM = 300
"""Cells of a terminal that a server's words may take."""
_MAYBE_DONE = (*PASSING, 429, 498)
"""Refusals that don't prove that nothing was done: a gateway may have tried twice, and says how the
second try ended. What the others are about (the key, the address, the request) fails every time."""
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_CUSTOM_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class BatchAPI(ABC):
    """A provider's batch API. All raise CallError where another try may mend it, and JudgeError where
    none can, as backends do; an error's `cost` is None where the batch may have been created all the
    same."""

    results_path: ClassVar[str]
    """Where results are, by their name, from the base URL on."""
    most_bytes: ClassVar[int]
    """What one batch may hold, and as lines."""
    most_lines = 100_000

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    @abstractmethod
    def line(self, custom_id: str, body: bytes) -> bytes:
        """A request, by its body as it would be sent live, as it stands in a batch's file, whose parts
        are these and nothing else. Its id has at most 64 letters, digits, - and _."""

    @abstractmethod
    async def create(self, name: str, lines: BinaryIO) -> Remote:
        """Create a batch of the lines in a file, wherever it stands; the provider is sent our name for
        it, if it keeps any."""

    @abstractmethod
    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Remote | None:
        """The batch of our name with so many lines, made at that time or later, if the provider has
        it: by its name, or by the ids of its lines (`NAME-…`). `known` are the provider's ids of
        other batches of ours. Raises CallError where it can't be said yet."""

    @abstractmethod
    def remote(self, batch: Fields) -> Remote:
        """A batch as Remote. Raises ServerFailedError for what is none."""

    @abstractmethod
    def result(self, custom_id: str, line: Fields) -> Result:
        """What became of a request, by its line in the results. Status 0 stands also for what is not as
        documented."""

    @abstractmethod
    async def one(self, what: Literal["get", "cancel"], remote: str) -> Fields:
        """Return a batch as the provider says it.

        Raises BatchNotFoundError where it doesn't find it, and BatchGoneError where it has it no longer.
        """

    @abstractmethod
    async def page(self, after: str) -> Fields:
        """A page of the list of batches, newest first, after this one ("": from the first on)."""

    async def looked_at(self, batch: Fields) -> Remote:
        """A batch that was asked about."""
        return self.remote(batch)

    async def get(self, remote: str) -> Remote:
        """Return how a batch stands, by the provider's id. Raises as `one`."""
        return await self.looked_at(await self.one("get", self.checked_id(remote)))

    async def cancel(self, remote: str) -> Remote:
        """Ask the provider to stop working on a batch: what it has answered by then is billed. One that
        has ended can't be cancelled, and that is no error."""
        try:
            return await self.looked_at(await self.one("cancel", self.checked_id(remote)))
        except (RefusedRequestError, ServerFailedError):
            now = await self.get(remote)
            if now.stands == "working":
                raise
            return now

    async def find_listed(self, remote: str, since: float) -> Remote | None:
        """Return the batch with this id as the provider's list of batches has it; None if it hasn't.

        `since` is when the batch was made. Raises RefusedRequestError where the provider has no list.
        """
        async with aclosing(self.listed(since - LISTED_MARGIN_SECONDS)) as batches:
            async for batch in batches:
                if batch.get("id") == remote:
                    return self.remote(batch)
        return None

    async def listed(self, since: float) -> AsyncGenerator[Fields, None]:
        """The batches that were made since, newest first, over all pages."""
        after, seen = "", set[str]()
        for _ in range(MOST_PAGES):
            page = await self.page(after)
            if not isinstance(page.get("data"), list):
                address = self.connection.address
                raise ServerFailedError(f"{address} answered with no list of batches.")
            batches = objects_in(page["data"])
            for batch in batches:
                yield batch
            made = [seconds(batch.get("created_at")) for batch in batches]
            if all(at is not None and at < since for at in made) or page.get("has_more") is False:
                return
            after = self.checked_id(batches[-1].get("id"))
            if after in seen:  # it knows no pages
                return
            seen.add(after)
        raise ServerFailedError(f"{self.connection.address} lists batches without an end.")

    async def download(self, remote: Remote, folder: Path, *, as_it_is: bool = False) -> Download:
        """Write the files of results of a batch that ended into a folder, each whole or not at all.

        A file that can't be read keeps no other from being read: its error is returned. That is
        BatchNotFoundError for one that the provider doesn't find, BatchGoneError for one that it has
        deleted, and BrokenResultsError where a line can't be one; `as_it_is` leaves such lines empty.
        Raises RunError where a file can't be written.
        """
        paths = {name: folder / f"{self.checked_id(name)}.jsonl" for name in remote.results}
        make_folder(folder)
        files: list[Path] = []
        refused: list[JudgeError] = []
        for name, path in paths.items():
            try:
                await self._download_file(name, path, as_it_is=as_it_is)
                files.append(path)
            except JudgeError as error:
                refused.append(error)
        return Download(files, refused)

    async def _download_file(self, name: str, path: Path, *, as_it_is: bool) -> None:
        """Write one file of results, whole or not at all."""
        with replacing(path) as file:
            async with (
                self.content(name) as parts,
                aclosing(lines_of(parts, as_it_is)) as lines,
            ):
                async for line in lines:
                    kept = self._masked(line, as_it_is)
                    try:
                        file.buffer.write(kept + b"\n")
                    except OSError as error:  # before it is taken for one of the connection's
                        raise unwritable(path, error) from error

    def _masked(self, line: bytes, as_it_is: bool) -> bytes:
        """A line as it may be kept. Raises BrokenResultsError for one that can't be one of results; or
        (`as_it_is`) it is empty."""
        given = object_in(line)
        if given is not None and isinstance(given.get("custom_id"), str):
            masked = self.connection.mask.body(line)
            return masked if masked == line or object_in(masked) is not None else b""
        if as_it_is:
            return b""
        raise BrokenResultsError(
            "a file of results came broken: a line of it is no JSON object with a custom_id."
        )

    def results(self, file: Path) -> Iterator[Result]:
        """What a downloaded file of results says, line by line; lines without an id that can be ours are
        left out."""
        with file.open("rb") as lines:
            for line in filter(bytes.strip, lines):
                fields = orjson.loads(line)
                custom_id = fields.get("custom_id")
                if isinstance(custom_id, str) and _CUSTOM_ID.fullmatch(custom_id):
                    yield self.result(custom_id, fields)

    @asynccontextmanager
    async def content(self, name: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Results, from the address we were given: never from one that the server names, for the key
        goes with it."""
        url = self.connection.url(self.results_path.format(self.checked_id(name)))
        async with self.connection.request("GET", url, long=True) as response:
            if not 200 <= response.status < 300:
                answer = await self.connection.answer(response)
                raise self.refusal(answer, url, f"the results in {name}")
            yield parts_of(response)

    async def answered(
        self, method: str, url: str, body: Body, headers: Headers | None, what: str
    ) -> Answer:
        """The answer to a call, which has time enough to send a file. Raises as `refusal` of `what`."""
        long = body is not None
        async with self.connection.request(method, url, body, headers, long=long) as response:
            answer = await self.connection.answer(response)
        if not 200 <= answer.status < 300:
            raise self.refusal(answer, url, what)
        return answer

    def refusal(self, answer: Answer, url: str, what: str = "") -> JudgeError:
        """What a refusal means of `what` was there once, or of what every server has that has batches.
        Where it broke down, or asked for a pause, what it was asked to create may be there."""
        error, status = self.connection.refusal(answer, url), answer.status
        if what and status == 410:
            quote = read(answer.body).quote.rstrip(".")
            return BatchGoneError(
                f"the provider doesn't have {what} any longer (410: {quote})", cost=None
            )
        if what and status == 404:
            quote = read(answer.body).quote.rstrip(".")
            return BatchNotFoundError(
                f"the provider doesn't find {what} (404: {quote}). It was deleted, or made with the "
                "key of another project, or the provider is wrong for a while.",
                cost=None,
            )
        if not what and status in (404, 405):
            return RefusedRequestError(
                f"the server at {self.connection.address} has no batch API, as it seems: leave --batch "
                f"out, and each question is sent by itself. ({error})"
            )
        throttled = isinstance(error, RateLimitedError)
        if not what and (status >= 500 or status in _MAYBE_DONE or throttled):
            error.cost = None
        return error

    def checked_id(self, name: Any) -> str:
        """A provider's id of a batch or file, which may stand in an address and in a file's name. Raises
        ServerFailedError for what is none."""
        if (
            isinstance(name, str)
            and _ID.fullmatch(name)
            and self.connection.mask.text(name) == name
        ):
            return name
        raise ServerFailedError(
            "the server named a batch, or a file, by an id that can't be one: up to 128 letters, "
            "digits, - and _ are expected. Is --base-url right?"
        )


def words(value: Any, width: int = PROBLEM) -> str:
    """A server's words, masked by now, on one line and cut."""
    return plain(value, width) if isinstance(value, str) else ""


async def parts_of(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    """The body of a long answer, part by part as it comes; aiohttp raises for one that breaks off.

    Raises ServerFailedError for one whose end can't be told from a broken connection.
    """
    chunked = "chunked" in response.headers.get("Transfer-Encoding", "").lower()
    if response.content_length is None and not chunked:
        raise ServerFailedError(
            "the file came without its length, so that nobody can say whether it is whole. See to the "
            "server, or to the proxy in between."
        )
    async for part in response.content.iter_any():
        yield part


async def lines_of(
    parts: AsyncIterator[bytes], as_it_is: bool = False
) -> AsyncGenerator[bytes, None]:
    """The lines of a stream, without their ends. Raises BrokenResultsError for what is too long; or
    (`as_it_is`) ends there, with a line that is none."""
    pending, size = b"", 0
    async for part in parts:
        size += len(part)
        *whole, pending = (pending + part).split(b"\n")
        for line in filter(bytes.strip, whole):
            yield line
        if size > LARGEST_FILE or len(pending) > LARGEST_LINE:
            if as_it_is:
                yield b"cut off"
                return
            raise BrokenResultsError("the server's file of results is longer than any can be.")
    if pending.strip():
        yield pending


def count(fields: Any, name: str) -> int:
    """A number of lines; 0 where it doesn't say."""
    return count_in(fields, name) or 0


def seconds(value: Any) -> float | None:
    """A moment in seconds since the epoch, given as such or as a date (RFC 3339); None for neither."""
    if isinstance(value, str) and len(value) <= 60:
        value = moment(value)
    return float(value) if type(value) in (int, float) and 0 <= value < 2**53 else None
