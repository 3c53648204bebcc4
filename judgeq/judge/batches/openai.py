"""Batches of OpenAI, of Azure, and of servers that speak like them.

A file of requests is uploaded, a batch made of it, and its results come as up to two files: of the
requests that were answered, and of those that failed (platform.openai.com/docs/guides/batch).
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, BinaryIO, Literal

import orjson

from judgeq.errors import JudgeError
from judgeq.judge.batches import Identified, Limits, Remote, Result, fields
from judgeq.judge.batches.adapter import ProviderBatches, framed, is_refusal
from judgeq.judge.http.connection import Passed
from judgeq.judge.http.model_backend import ModelBackend
from judgeq.judge.http.openai_chat import is_azure

NAME = "judgeq"
"""What our name for a batch stands under in its metadata."""
DAY = 86_400.0
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


class OpenAIBatches(ProviderBatches):
    """See BatchAPI."""

    path = "batches"
    results_path = "files/{}/content"
    after = "after"

    def __init__(
        self, backend: ModelBackend, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        super().__init__(backend)
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
        asked = {
            "input_file_id": file,
            "endpoint": self._endpoint,
            "completion_window": "24h",
            "metadata": {NAME: name},
        }
        try:
            url = self.url(self.path)
            return self.remote(await self.asked("POST", url, self.none_here, orjson.dumps(asked)))
        except JudgeError as error:
            if error.cost is not None:
                await self._delete(file)
            elif is_refusal(error):
                self._refused[name] = file
            raise

    async def _upload(self, name: str, lines: BinaryIO) -> str:
        """The id of a file with the lines, once it can be used. Raises errors of no cost."""
        url, passed, boundary = self.url("files"), Passed(), secrets.token_hex(16)
        before = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
            f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{name}.jsonl"'
            "\r\nContent-Type: application/jsonl\r\n\r\n"
        ).encode()
        length, pieces = framed(before, lines, f"\n\r\n--{boundary}--\r\n".encode(), b"\n")
        kind = f"multipart/form-data; boundary={boundary}"
        sent = {"Content-Type": kind, "Content-Length": str(length)}
        try:
            body = passed.through(pieces)
            said = await self.asked("POST", url, self.none_here, body, sent, passed)
            file = self.known(said.get("id"))
            for wait in WAITS:
                if said.get("status") not in ("pending", "running"):
                    break
                await self._sleep(wait)
                said = await self.asked("GET", self.url(f"files/{file}"), lambda _, error: error)
        except JudgeError as error:
            error.cost = 0.0
            raise
        return file

    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Identified:
        """See BatchAPI: by its metadata."""
        ours: list[Remote] = []
        async for batch in self.listed(since - DAY):
            metadata = batch.get("metadata")
            if isinstance(metadata, dict) and metadata.get(NAME) == name:
                ours.append(self.remote(batch))
        file = self._refused.pop(name, None)
        if file is not None and not ours:
            await self._delete(file)
        ours.sort(key=lambda remote: remote.stands == "refused")
        return Identified(ours[0] if ours else None, [remote.id for remote in ours[1:]])

    def remote(self, batch: Mapping[str, Any]) -> Remote:
        """See ProviderBatches."""
        mask, connection = self._connection.mask, self._connection
        status = fields.shown(batch.get("status"), mask, 40)
        counts, made = batch.get("request_counts"), fields.seconds(batch.get("created_at"))
        files = [batch.get(name) for name in ("output_file_id", "error_file_id")]
        results = [self.known(file) for file in files if file]
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
            id=self.known(batch.get("id")),
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

    async def looked_at(self, batch: Mapping[str, Any]) -> Remote:
        """The batch; when it has ended the file of our texts goes, whose work is done."""
        remote = self.remote(batch)
        if remote.stands != "working" and batch.get("input_file_id"):
            with suppress(JudgeError):
                await self._delete(self.known(batch["input_file_id"]))
        return remote

    async def _delete(self, file: str) -> None:
        """Delete a file once, if that can be done."""
        if file in self._deleted:
            return
        self._deleted.add(file)
        with suppress(JudgeError):
            await self.asked("DELETE", self.url(f"files/{file}"), lambda _, error: error)

    def result(self, custom_id: str, line: Mapping[str, Any]) -> Result:
        """See ProviderBatches."""
        response, error = line.get("response"), line.get("error")
        if isinstance(response, dict):
            status = response.get("status_code")
            if type(status) is int and 100 <= status < 600:
                return Result(custom_id, status, fields.encoded(response.get("body")))
        code = error.get("code") if isinstance(error, dict) else None
        ended = _ENDED.get(code) if isinstance(code, str) else None
        body = b"" if error is None else fields.encoded({"error": error})
        return Result(custom_id, 0, body, ended)
