"""A provider with a batch API, within this process: it answers what it is sent, or as a test says."""

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import orjson
import pytest

from judgeq.errors import CallError, JudgeError
from judgeq.judge.backend import Remote, Result
from judgeq.judge.http.openai import OpenAIChat

ANSWER = orjson.dumps(
    {
        "choices": [{"message": {"content": '{"winner": "A"}'}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 5},
    }
)
Answer = Callable[[str], Result | None]
"""From the id of a line to what its results say (None: they lack it)."""


def answered(custom_id: str, body: bytes = ANSWER) -> Result:
    return Result(custom_id, 200, body)


class FakeBatches:
    """See BatchAPI. `stands` of all batches, the errors that its methods raise, and what its lines are
    answered may be set; `created` holds the ids of the lines of each batch."""

    def __init__(self, answer: Answer = answered) -> None:
        self.answer = answer
        self.most_lines, self.most_bytes = 50_000, 200_000_000
        self.created: dict[str, list[str]] = {}
        self.stands: dict[str, Any] = {"status": "completed", "stands": "ended"}
        self.errors: dict[str, JudgeError] = {}
        self.doubtful: Sequence[str] = ()
        self.asked: list[str] = []

    def _ask(self, method: str) -> None:
        self.asked.append(method)
        if method in self.errors:
            raise self.errors[method]

    def line(self, custom_id: str, body: bytes) -> bytes:
        return custom_id.encode() + b"\t" + body + b"\n"

    async def create(self, name: str, lines: BinaryIO) -> Remote:
        self._ask("create")
        remote = f"r{len(self.created)}"
        lines.seek(0)
        self.created[remote] = [line.partition(b"\t")[0].decode() for line in lines]
        return self._remote(remote)

    def _remote(self, remote: str) -> Remote:
        count = len(self.created[remote])
        return Remote(remote, made=1.0, **{"total": count, "results": [remote], **self.stands})

    async def get(self, remote: str) -> Remote:
        self._ask("get")
        return self._remote(remote)

    async def cancel(self, remote: str) -> Remote:
        self._ask("cancel")
        return self._remote(remote)

    async def identify(
        self, name: str, count: int, since: float, known: Collection[str]
    ) -> Remote | None:
        self._ask("identify")
        if self.doubtful:
            raise CallError(f"it may be {', '.join(self.doubtful)}")
        return None

    async def download(self, remote: Remote, folder: Path, *, as_it_is: bool = False) -> list[Path]:
        self._ask("download")
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240
        path = folder / f"{remote.id}.jsonl"
        with path.open("wb") as file:
            for custom_id in self.created[remote.id]:
                result = self.answer(custom_id)
                if result is not None:
                    said = (*result[:2], result.body.decode(), result.ended)
                    file.write(orjson.dumps({"custom_id": custom_id, "said": said}) + b"\n")
        return [path]

    def results(self, file: Path) -> Iterator[Result]:
        for line in map(orjson.loads, filter(None, file.read_bytes().splitlines())):
            custom_id, status, body, ended = line["said"]
            yield Result(custom_id, status, body.encode(), ended)


def by_model(monkeypatch: pytest.MonkeyPatch, **apis: FakeBatches) -> None:
    """Have models asked in batches by these."""
    monkeypatch.setattr(OpenAIChat, "batch_api", property(lambda backend: apis[backend.name]))
