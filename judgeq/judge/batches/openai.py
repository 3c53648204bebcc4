"""Batches of OpenAI, of Azure, and of servers that speak like them.

A file of requests is uploaded, a batch made of it, and its results come as up to two files: of the
requests that were answered, and of those that failed (platform.openai.com/docs/guides/batch).
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import BinaryIO, Literal

import orjson
from typing_extensions import override

from judgeq.errors import JudgeError
from judgeq.judge.backend import Identified, Limits, Remote, Result
from judgeq.judge.batches.provider import PAGE, ProviderBatches, count, encoded, seconds
from judgeq.judge.http.model_backend import ModelBackend, count_in, fields_in, objects_in
from judgeq.judge.http.openai import is_azure
from judgeq.types import Fields, Sleep

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
_ENDED: Mapping[str, Literal["cancelled", "expired"]] = {
    "batch_expired": "expired",
    "batch_cancelled": "cancelled",
}


class OpenAIBatches(ProviderBatches):
    """Batches as OpenAI has them: a file of lines that is uploaded, and files of results."""

    path = "batches"
    results_path = "files/{}/content"

    def __init__(self, backend: ModelBackend, sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(backend)
        self._azure = is_azure(backend.address)
        self._endpoint = "/chat/completions" if self._azure else "/v1/chat/completions"
        self._sleep = sleep
        self._deleted: set[str] = set()

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
        try:
            file = await self._upload(name, lines)
        except JudgeError as error:
            error.cost = 0.0
            raise
        asked = {
            "input_file_id": file,
            "endpoint": self._endpoint,
            "completion_window": "24h",
            "metadata": {NAME: name},
        }
        try:
            return self.remote(await self.asked("POST", self.path, body=orjson.dumps(asked)))
        except JudgeError as error:
            if error.cost is not None:
                await self._delete(file)
            raise

    async def _upload(self, name: str, lines: BinaryIO) -> str:
        """The id of a file with the lines, once it can be used."""
        mark = secrets.token_hex(16)
        part = f'--{mark}\r\nContent-Disposition: form-data; name="'
        before = (
            f'{part}purpose"\r\n\r\nbatch\r\n{part}file"; filename="{name}.jsonl"\r\n'
            "Content-Type: application/jsonl\r\n\r\n"
        )
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        after = f"\r\n--{mark}--\r\n"
        made = await self.sent("files", before.encode(), lines, after.encode(), b"\n", kind)
        file = self.checked_id(made.get("id"))
        for wait in WAITS:
            if made.get("status") not in ("pending", "running"):
                break
            await self._sleep(wait)
            made = await self.asked("GET", f"files/{file}")
        return file

    @override
    async def page(self, after: str) -> Fields:
        return await self.asked("GET", self.path, f"limit={PAGE}" + f"&after={after}" * bool(after))

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
            with suppress(JudgeError):
                await self._delete(self.checked_id(batch["input_file_id"]))
        return remote

    async def _delete(self, file: str) -> None:
        """Delete a file once, if that can be done."""
        if file not in self._deleted:
            self._deleted.add(file)
            with suppress(JudgeError):
                await self.asked("DELETE", f"files/{file}")

    @override
    def result(self, custom_id: str, line: Fields) -> Result:
        response, error = fields_in(line.get("response")), line.get("error")
        status = count_in(response, "status_code") or 0
        if 100 <= status < 600:
            return Result(custom_id, status, encoded(response.get("body")))
        ended = _ENDED.get(str(fields_in(error).get("code")))
        return Result(custom_id, 0, b"" if error is None else encoded({"error": error}), ended)
