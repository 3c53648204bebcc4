"""Batches of OpenAI, of Azure, and of servers that speak like them; asked through the openai package.

A file of requests is uploaded, a batch made of it, and its results come as up to two files: of the
requests that were answered, and of those that failed (platform.openai.com/docs/guides/batch).
"""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import orjson

from judgeq.errors import JudgeError, RefusedRequestError, ServerFailedError
from judgeq.judge.batches import Identified, Limits, Remote, Result, downloads, fields
from judgeq.judge.batches.refusals import Explain, as_it_is, gone, is_refusal, none_at
from judgeq.judge.http.connection import Passed
from judgeq.judge.http.model_backend import ModelBackend, beside
from judgeq.judge.http.openai_chat import is_azure

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NAME = "judgeq"
"""What our name for a batch stands under in its metadata."""
DAY = 86_400.0
PAGE, MOST_PAGES = 100, 1_000
WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between looks whether Azure has read a file that was uploaded."""
_STANDS: Mapping[str, Literal["working", "ended", "refused"]] = {
    "completed": "ended",
    "expired": "ended",
    "cancelled": "ended",
    "failed": "refused",
}
_ENDED: Mapping[Any, Literal["cancelled", "expired"]] = {
    "batch_expired": "expired",
    "batch_cancelled": "cancelled",
}


class OpenAIBatches:
    """See BatchAPI."""

    def __init__(
        self, backend: ModelBackend, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._connection = backend.connection
        self._address = backend.address
        self._azure = is_azure(backend.address)
        self._endpoint = "/chat/completions" if self._azure else "/v1/chat/completions"
        self._sleep = sleep
        self._deleted: set[str] = set()
        self._refused: dict[str, str] = {}  # files of which no batch was made, perhaps; by its name

    @property
    def limits(self) -> Limits:
        """See BatchAPI."""
        return Limits(lines=100_000 if self._azure else 50_000, bytes=200_000_000)

    def line(self, custom_id: str, body: bytes) -> bytes:
        """See BatchAPI."""
        before = {"custom_id": custom_id, "method": "POST", "url": self._endpoint}
        return orjson.dumps(before)[:-1] + b',"body":' + body + b"}\n"

    async def create(self, name: str, lines: BinaryIO) -> Remote:
        """See BatchAPI. A file of which no batch was made is deleted again, once that is certain."""
        file = await self._upload(name, lines)
        url = self._url("batches")
        try:
            async with self._client(url, none_at(self._address)) as client:
                answer = await client.batches.with_raw_response.create(
                    input_file_id=file,
                    # Azure's has no version in it.
                    endpoint=self._endpoint,  # type: ignore[arg-type]
                    completion_window="24h",
                    metadata={NAME: name},
                )
            return self._remote(fields.object_in(answer.content, url))
        except JudgeError as error:
            if error.cost is not None:
                await self._delete(file)
            elif is_refusal(error):
                self._refused[name] = file
            raise

    async def _upload(self, name: str, lines: BinaryIO) -> str:
        """The id of a file with the lines, once it can be used. Raises errors of no cost."""
        url = self._url("files")
        try:
            async with self._client(url, none_at(self._address)) as client:
                answer = await client.files.with_raw_response.create(
                    file=(f"{name}.jsonl", io.BufferedReader(_Rest(lines)), "application/jsonl"),
                    purpose="batch",
                )
            said = fields.object_in(answer.content, url)
            file = fields.identity(said.get("id"), self._connection.mask)
            for wait in WAITS:
                if said.get("status") not in ("pending", "running"):
                    break
                await self._sleep(wait)
                async with self._client(url, as_it_is) as client:
                    answer = await client.files.with_raw_response.retrieve(file)
                said = fields.object_in(answer.content, url)
        except JudgeError as error:
            error.cost = 0.0
            raise
        return file

    async def get(self, remote: str) -> Remote:
        """See BatchAPI. Raises BatchGoneError where the provider doesn't know it."""
        remote = fields.identity(remote, self._connection.mask)
        url = self._url(f"batches/{remote}")
        async with self._client(url, gone(f"the batch {remote}")) as client:
            answer = await client.batches.with_raw_response.retrieve(remote)
        return await self._looked_at(fields.object_in(answer.content, url))

    async def cancel(self, remote: str) -> Remote:
        """See BatchAPI: one that has ended can't be cancelled, and that is no error."""
        remote = fields.identity(remote, self._connection.mask)
        url = self._url(f"batches/{remote}/cancel")
        try:
            async with self._client(url, gone(f"the batch {remote}")) as client:
                answer = await client.batches.with_raw_response.cancel(remote)
        except (RefusedRequestError, ServerFailedError):
            now = await self.get(remote)
            if now.stands == "working":
                raise
            return now
        return await self._looked_at(fields.object_in(answer.content, url))

    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Identified:
        """See BatchAPI: by its metadata."""
        ours: list[Remote] = []
        async for batch in self._listed(since - DAY):
            metadata = batch.get("metadata")
            if isinstance(metadata, dict) and metadata.get(NAME) == name:
                ours.append(self._remote(batch))
        file = self._refused.pop(name, None)
        if file is not None and not ours:
            await self._delete(file)
        ours.sort(key=lambda remote: remote.stands == "refused")
        return Identified(ours[0] if ours else None, [remote.id for remote in ours[1:]])

    async def _listed(self, since: float) -> AsyncIterator[dict[str, Any]]:
        """The batches that were made since, newest first, over all pages."""
        url, after = self._url("batches"), ""
        seen: set[str] = set()
        for _ in range(MOST_PAGES):
            async with self._client(url, none_at(self._address)) as client:
                answer = await client.batches.with_raw_response.list(
                    limit=PAGE, extra_query={"after": after} if after else None
                )
            page = fields.object_in(answer.content, url)
            data = page.get("data")
            batches = [batch for batch in data or () if isinstance(batch, dict)]
            if not isinstance(data, list):
                raise ServerFailedError(f"{url} answered with no list of batches.")
            made = []
            for batch in batches:
                yield batch
                made.append(fields.seconds(batch.get("created_at")))
            older = all(at is not None and at < since for at in made)
            if older or page.get("has_more") is False:
                return
            after = fields.identity(batches[-1].get("id"), self._connection.mask)
            if after in seen:  # it knows no pages
                return
            seen.add(after)
        raise ServerFailedError(f"{url} lists batches without an end.")

    async def download(self, remote: Remote, folder: Path, *, as_it_is: bool = False) -> list[Path]:
        """See BatchAPI. Raises BatchGoneError for results that the provider has deleted."""
        mask = self._connection.mask
        names = [fields.identity(name, mask) for name in remote.results]
        return [
            await downloads.fetch(folder, name, self._content, mask, as_it_is=as_it_is)
            for name in names
        ]

    @asynccontextmanager
    async def _content(self, file: str) -> AsyncIterator[AsyncIterator[bytes]]:
        url = self._url(f"files/{file}/content")
        async with (
            self._client(url, gone(f"the results in {file}")) as client,
            client.files.with_streaming_response.content(file) as response,
        ):
            yield response.iter_bytes()

    def results(self, file: Path) -> Iterator[Result]:
        """See BatchAPI. Lines without an id that can be ours are left out."""
        for line in downloads.read(file):
            custom_id = fields.custom_id(line)
            if custom_id is not None:
                yield _result(custom_id, line)

    def _remote(self, batch: Mapping[str, Any]) -> Remote:
        """A batch as Remote. Raises ServerFailedError for what is none."""
        mask, connection = self._connection.mask, self._connection
        status = fields.shown(batch.get("status"), mask, 40)
        counts, made = batch.get("request_counts"), fields.seconds(batch.get("created_at"))
        files = [batch.get(name) for name in ("output_file_id", "error_file_id")]
        results = [fields.identity(file, mask) for file in files if file]
        done = fields.count(counts, "completed")
        stands = _STANDS.get(status, "working")
        if stands == "refused" and (results or done):
            stands = "ended"  # other servers' word for one that broke down half-way
        errors = batch.get("errors")
        said = errors.get("data") if isinstance(errors, dict) else None
        problems = (
            [part for part in said if isinstance(part, dict)] if isinstance(said, list) else []
        )
        return Remote(
            id=fields.identity(batch.get("id"), mask),
            status=status,
            stands=stands,
            made=connection.now() if made is None else made,
            total=fields.count(counts, "total"),
            done=done,
            failed=fields.count(counts, "failed"),
            expires=fields.seconds(batch.get("expires_at")),
            problems=[self._problem(part) for part in problems[:20]],
            full=any(part.get("code") == "token_limit_exceeded" for part in problems),
            results=results,
        )

    def _problem(self, error: Mapping[str, Any]) -> str:
        mask, line = self._connection.mask, error.get("line")
        where = f"line {line}: " if type(line) is int and 0 <= line < 2**53 else ""
        message = fields.shown(error.get("message"), mask) or "no reason given"
        code = fields.shown(error.get("code"), mask, 60)
        return f"{where}{message}{f' ({code})' if code else ''}"

    async def _looked_at(self, batch: Mapping[str, Any]) -> Remote:
        """The batch; when it has ended the file of our texts goes, whose work is done."""
        remote = self._remote(batch)
        if remote.stands != "working" and batch.get("input_file_id"):
            with suppress(JudgeError):
                await self._delete(fields.identity(batch["input_file_id"], self._connection.mask))
        return remote

    async def _delete(self, file: str) -> None:
        """Delete a file once, if that can be done."""
        if file in self._deleted:
            return
        self._deleted.add(file)
        with suppress(JudgeError):
            async with self._client(self._url(f"files/{file}"), as_it_is) as client:
                await client.files.with_raw_response.delete(file)

    @asynccontextmanager
    async def _client(self, url: str, explain: Explain) -> AsyncIterator[AsyncOpenAI]:
        """The package's client, for one call to `url`. Raises as `explain` makes of refusals."""
        import httpx2
        from openai import AsyncOpenAI, OpenAIError

        from judgeq.judge.batches.transport import Through

        passed = Passed()
        async with self._connection.watched(url, passed):
            through = Through(self._connection, self._address, passed, explain)
            client = AsyncOpenAI(
                api_key="unused",  # as the address: both are the session's
                base_url="http://server.invalid",
                max_retries=0,
                timeout=None,
                http_client=httpx2.AsyncClient(transport=through, trust_env=False, timeout=None),
            )
            try:
                yield client
            except OpenAIError as error:
                if isinstance(error.__cause__, Exception):  # what our transport raised
                    raise error.__cause__ from None
                what = self._connection.mask.text(str(error)) or type(error).__name__
                raise ServerFailedError(f"{url}: {what}") from None
            finally:
                await client.close()

    def _url(self, path: str) -> str:
        return beside(self._address, path)


def _result(custom_id: str, line: Mapping[str, Any]) -> Result:
    """What became of a request. Status 0 stands also for what is not as documented."""
    response, error = line.get("response"), line.get("error")
    if isinstance(response, dict):
        status = response.get("status_code")
        if type(status) is int and 100 <= status < 600:
            return Result(custom_id, status, fields.encoded(response.get("body")))
    code = error.get("code") if isinstance(error, dict) else None
    ended = _ENDED.get(code) if isinstance(code, str) else None
    body = b"" if error is None else fields.encoded({"error": error})
    return Result(custom_id, 0, body, ended)


class _Rest(io.RawIOBase):
    """A file from its place on, for those who would read it from its beginning."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._start = file.tell()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET:
            offset += self._start
        return self._file.seek(offset, whence) - self._start

    def tell(self) -> int:
        return self._file.tell() - self._start
