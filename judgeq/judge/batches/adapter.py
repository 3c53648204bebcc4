"""What the batch APIs of all providers have in common.

Results come through the backend's own session: its key and headers, proxy, certificates and time limits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

from judgeq.errors import (
    BatchGoneError,
    CallError,
    JudgeError,
    RateLimitedError,
    RefusedRequestError,
    ServerFailedError,
)
from judgeq.judge.batches import Remote, Result, downloads, fields
from judgeq.judge.http.connection import Passed, parts_of
from judgeq.judge.http.model_backend import ModelBackend, beside

PAGE, MOST_PAGES = 100, 1_000
PIECE = 262_144
"""Bytes of a file of requests that are read at once."""
_MAYBE_DONE = (408, 409, 425, 429, 498)
"""Refusals that don't prove that nothing was done: a gateway may have tried twice, and says how the
second try ended. What the others are about (the key, the address, the request) fails every time."""
Explain = Callable[[int, JudgeError], JudgeError]
"""From the status of an answer, and what it means anywhere, to what it means here."""


class ProviderBatches(ABC):
    """See BatchAPI."""

    results_path: ClassVar[str]
    """Where results are, by their name, from the base URL on."""

    def __init__(self, backend: ModelBackend) -> None:
        self._connection = backend.connection
        self._address = backend.address

    @abstractmethod
    def remote(self, batch: Mapping[str, Any]) -> Remote:
        """A batch as Remote. Raises ServerFailedError for what is none."""

    @abstractmethod
    def result(self, custom_id: str, line: Mapping[str, Any]) -> Result:
        """What became of a request, by its line in the results. Status 0 stands also for what is not as
        documented."""

    async def looked_at(self, batch: Mapping[str, Any]) -> Remote:
        """A batch that was asked about."""
        return self.remote(batch)

    @abstractmethod
    async def one(self, what: Literal["get", "cancel"], remote: str) -> dict[str, Any]:
        """A batch as the provider says it. Raises as `gone`."""

    @abstractmethod
    async def page(self, after: str) -> dict[str, Any]:
        """A page of the list of batches, newest first, after this one ("": from the first on)."""

    async def get(self, remote: str) -> Remote:
        """See BatchAPI. Raises BatchGoneError where the provider doesn't know it."""
        return await self.looked_at(await self.one("get", self.known(remote)))

    async def cancel(self, remote: str) -> Remote:
        """See BatchAPI: one that has ended can't be cancelled, and that is no error."""
        try:
            return await self.looked_at(await self.one("cancel", self.known(remote)))
        except (RefusedRequestError, ServerFailedError):
            now = await self.get(remote)
            if now.stands == "working":
                raise
            return now

    async def listed(self, since: float) -> AsyncIterator[dict[str, Any]]:
        """The batches that were made since, newest first, over all pages."""
        after = ""
        seen: set[str] = set()
        for _ in range(MOST_PAGES):
            page = await self.page(after)
            data = page.get("data")
            if not isinstance(data, list):
                raise ServerFailedError(f"{self._address} answered with no list of batches.")
            batches = [batch for batch in data if isinstance(batch, dict)]
            for batch in batches:
                yield batch
            made = [fields.seconds(batch.get("created_at")) for batch in batches]
            older = all(at is not None and at < since for at in made)
            if older or page.get("has_more") is False:
                return
            after = self.known(batches[-1].get("id"))
            if after in seen:  # it knows no pages
                return
            seen.add(after)
        raise ServerFailedError(f"{self._address} lists batches without an end.")

    async def download(self, remote: Remote, folder: Path, *, as_it_is: bool = False) -> list[Path]:
        """See BatchAPI. Raises BatchGoneError for results that the provider has deleted."""
        mask = self._connection.mask
        return [
            await downloads.fetch(folder, name, self.content, mask, as_it_is=as_it_is)
            for name in map(self.known, remote.results)
        ]

    @asynccontextmanager
    async def content(self, name: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """Results, from the address we were given: never from one that the server names, for the key
        goes with it."""
        url, passed = self.url(self.results_path.format(self.known(name))), Passed()
        async with (
            self._connection.watched(url, passed),
            self._connection.request("GET", url) as response,
        ):
            if not 200 <= response.status < 300:
                error = await self._connection.refused(response, url)
                raise gone(f"the results in {name}")(response.status, error)
            yield passed.through(parts_of(response))

    def results(self, file: Path) -> Iterator[Result]:
        """See BatchAPI. Lines without an id that can be ours are left out."""
        for line in downloads.read(file):
            custom_id = fields.custom_id(line)
            if custom_id is not None:
                yield self.result(custom_id, line)

    def none_here(self, status: int, error: JudgeError) -> JudgeError:
        """What a refusal means of what every server has that has batches. Where it broke down, or asked
        for a pause, what it was asked to create may be there."""
        if status in (404, 405):
            return RefusedRequestError(
                f"the server at {self._address} has no batch API, as it seems: leave --batch out, and "
                f"each question is sent by itself. ({error})"
            )
        if status >= 500 or status in _MAYBE_DONE:
            error.cost = None
        return error

    def known(self, name: Any) -> str:
        """A provider's id of a batch or file. Raises ServerFailedError for what is none."""
        return fields.identity(name, self._connection.mask)

    def url(self, path: str, query: str = "") -> str:
        """An address of the API."""
        return beside(self._address, path, query)


def is_refusal(error: JudgeError) -> bool:
    """Whether a server refused what it was asked to create, in words: not one that broke down."""
    return isinstance(error, RateLimitedError) or not isinstance(error, CallError)


def gone(what: str) -> Explain:
    """What a refusal means of what was there once."""

    def explained(status: int, error: JudgeError) -> JudgeError:
        if status in (404, 410):
            return BatchGoneError(
                f"the provider doesn't have {what}, or not for this key: it was deleted, or made with "
                f"the key of another project. ({error})",
                cost=None,
            )
        return error

    return explained
