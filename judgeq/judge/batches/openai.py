"""Batches of OpenAI, of Azure, and of servers that speak like them; asked through the openai package.

A file of requests is uploaded, a batch made of it, and its results come as up to two files: of the
requests that were answered, and of those that failed (platform.openai.com/docs/guides/batch).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Literal
from urllib.parse import parse_qsl, urlsplit

import orjson
from typing_extensions import override

from judgeq.errors import ConnectionFailedError, JudgeError
from judgeq.judge.backend import Identified, Limits, Remote, Result
from judgeq.judge.batches.provider import (
    PAGE,
    BatchAPI,
    count,
    encoded,
    object_from,
    seconds,
)
from judgeq.judge.http.connection import bounded, system_authorities
from judgeq.judge.http.model_backend import ModelBackend, api_url, count_in, fields_in, objects_in
from judgeq.judge.http.openai import is_azure
from judgeq.types import Fields, Sleep

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NAME = "judgeq"
"""What our name for a batch stands under in its metadata."""
DAY = 86_400.0
WAITS = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds between looks whether Azure has read a file that was uploaded."""
KEPT = {"host", "user-agent", "content-type", "content-length", "transfer-encoding"}
"""Headers of a request that are the package's."""
_STANDS: Mapping[str, Literal["working", "ended", "refused"]] = {
    "completed": "ended",
    "expired": "ended",
    "cancelled": "ended",
    "failed": "refused",
}
_ENDED: Mapping[str, Literal["cancelled", "expired"]] = {
    "batch_expired": "expired",
    "batch_cancelled": "cancelled",
}


class OpenAIBatches(BatchAPI):
    """Batches as OpenAI has them: a file of lines that is uploaded, and files of results."""

    results_path = "files/{}/content"

    def __init__(self, backend: ModelBackend, sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(backend)
        self._azure = is_azure(backend.address)
        self._endpoint = "/chat/completions" if self._azure else "/v1/chat/completions"
        self._sleep = sleep

    @property
    @override
    def limits(self) -> Limits:
        return Limits(lines=100_000 if self._azure else 50_000, bytes=200_000_000)

    @override
    def line(self, custom_id: str, body: bytes) -> bytes:
        before = {"custom_id": custom_id, "method": "POST", "url": self._endpoint}
        return orjson.dumps(before)[:-1] + b',"body":' + body + b"}\n"

    @override
    async def create(self, name: str, lines: BinaryIO) -> Remote:
        """A file of which surely no batch was made is deleted again."""
        file = await self._upload(name, lines)
        try:
            async with self._client("batches") as client:
                made = client.batches.with_streaming_response.create(
                    input_file_id=file,
                    endpoint=self._endpoint,  # type: ignore[arg-type]  # Azure's has no version in it
                    completion_window="24h",
                    metadata={NAME: name},
                )
                return self.remote(await self._answer(made))
        except JudgeError as error:
            if error.cost is not None:
                await self._delete(file)
            raise

    async def _upload(self, name: str, lines: BinaryIO) -> str:
        """The id of a file with the lines, once it can be used. Raises errors of no cost."""
        try:
            async with self._client("files") as client:
                lines.seek(0)
                made = client.files.with_streaming_response.create(
                    file=(f"{name}.jsonl", lines, "application/jsonl"), purpose="batch"
                )
                said = await self._answer(made)
            file = self.checked_id(said.get("id"))
            for wait in WAITS:
                if said.get("status") not in ("pending", "running"):
                    break
                await self._sleep(wait)
                async with self._client(f"files/{file}") as client:
                    said = await self._answer(client.files.with_streaming_response.retrieve(file))
        except JudgeError as error:
            error.cost = 0.0
            raise
        return file

    @override
    async def one(self, what: Literal["get", "cancel"], remote: str) -> Fields:
        async with self._client(f"batches/{remote}", f"the batch {remote}") as client:
            batches = client.batches.with_streaming_response
            asked = batches.cancel if what == "cancel" else batches.retrieve
            return await self._answer(asked(remote))

    @override
    async def page(self, after: str) -> Fields:
        async with self._client("batches") as client:
            more = {"after": after} if after else None
            batches = client.batches.with_streaming_response
            return await self._answer(batches.list(limit=PAGE, extra_query=more))

    @asynccontextmanager
    async def _client(self, path: str, what: str = "") -> AsyncIterator[AsyncOpenAI]:
        """The package's client for one call: our key and headers, proxy, certificates and time limit,
        no redirect and no second try. Raises as BatchAPI.refusal, and as live calls."""
        import httpx2  # openai's own, which comes with it
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient, OpenAIError

        connection, url, own = self._connection, api_url(self._address, path), dict[str, str]()

        async def ask(request: Any) -> None:
            # Of the package's own headers, which variables of the environment may add to, none is sent.
            for name in set(request.headers) - KEPT:
                own[name] = request.headers.pop(name)
            for name, value in connection.sent.items():
                request.headers.setdefault(name, value)

        async def answered(response: Any) -> None:
            response.request.headers.update(own)  # by them the package knows what it asked for
            if not 200 <= response.status_code < 300:
                data = connection.mask.body(await bounded(response.aiter_bytes()))
                headers = connection.mask.headers(response.headers)
                refused = connection.refusal(response.status_code, headers, data, url)
                raise self.refusal(response.status_code, refused, what)

        parts = urlsplit(self._address)
        async with connection.watched(url, connection.timeout), AsyncOpenAI(
            api_key="among the headers",
            base_url=parts._replace(query="").geturl(),
            default_query=dict(parse_qsl(parts.query)),
            max_retries=0,
            timeout=None,
            http_client=DefaultAsyncHttpxClient(
                proxy=connection.proxy,
                verify=system_authorities() if connection.tls is True else connection.tls,
                trust_env=False,
                follow_redirects=False,
                timeout=None,
                event_hooks={"request": [ask], "response": [answered]},
            ),
        ) as client:  # fmt: skip
            try:
                yield client
            except (OpenAIError, httpx2.HTTPError) as error:
                cause = error.__cause__ or error
                if isinstance(cause, JudgeError):
                    raise cause from None
                what = f"{url}: {connection.mask.text(str(cause)) or type(cause).__name__}"
                if isinstance(cause, httpx2.ConnectError):
                    raise ConnectionFailedError(
                        f"no connection: {what}.", cost=0.0, unavailable=True
                    ) from None
                raise ConnectionFailedError(f"the connection broke: {what}.") from None

    async def _answer(self, asked: AbstractAsyncContextManager[Any]) -> Fields:
        """The JSON object of an answer."""
        async with asked as response:
            return object_from(await bounded(response.iter_bytes()), str(response.url))

    @override
    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Identified:
        """By its metadata."""
        ours = [
            self.remote(batch)
            async for batch in self.listed(since - DAY)
            if fields_in(batch.get("metadata")).get(NAME) == name
        ]
        ours.sort(key=lambda remote: remote.stands == "refused")
        return Identified(ours[0] if ours else None, [remote.id for remote in ours[1:]])

    @override
    def remote(self, batch: Fields) -> Remote:
        status = self.words(batch.get("status"), 40)
        counts, made = batch.get("request_counts"), seconds(batch.get("created_at"))
        files = [batch.get(name) for name in ("output_file_id", "error_file_id")]
        results = [self.checked_id(file) for file in files if file]
        stands, done = _STANDS.get(status, "working"), count(counts, "completed")
        if stands == "refused" and (results or done):
            stands = "ended"  # other servers' word for one that broke down half-way
        problems = objects_in(fields_in(batch.get("errors")).get("data"))
        return Remote(
            id=self.checked_id(batch.get("id")),
            status=status,
            stands=stands,
            made=time.time() if made is None else made,
            total=count(counts, "total"),
            done=done,
            failed=count(counts, "failed"),
            expires=seconds(batch.get("expires_at")),
            problems=[self._problem(part) for part in problems[:20]],
            full=any(part.get("code") == "token_limit_exceeded" for part in problems),
            results=results,
        )

    def _problem(self, error: Fields) -> str:
        line = count_in(error, "line")
        where = "" if line is None else f"line {line}: "
        return where + (self.words(error.get("message")) or "no reason given")

    @override
    async def looked_at(self, batch: Fields) -> Remote:
        """The batch; when it has ended the file of our texts goes, whose work is done."""
        remote = self.remote(batch)
        if remote.stands != "working" and batch.get("input_file_id"):
            await self._delete(batch["input_file_id"])
        return remote

    async def _delete(self, file: str) -> None:
        """Delete a file, if that can be done."""
        with suppress(JudgeError):
            async with self._client(f"files/{self.checked_id(file)}") as client:
                await self._answer(client.files.with_streaming_response.delete(file))

    @override
    def result(self, custom_id: str, line: Fields) -> Result:
        response, error = fields_in(line.get("response")), line.get("error")
        status = count_in(response, "status_code") or 0
        if 100 <= status < 600:
            return Result(custom_id, status, encoded(response.get("body")))
        ended = _ENDED.get(str(fields_in(error).get("code")))
        return Result(custom_id, 0, b"" if error is None else encoded({"error": error}), ended)
