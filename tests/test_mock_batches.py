"""The mock server speaks OpenAI's batch API: the package of that provider drives it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest

from judgeq import prompts
from judgeq.mock_server import MockServer, batches, running
from judgeq.settings.mock_server import MockSettings
from tests.fakes import Clock

if TYPE_CHECKING:  # it takes most of a second
    import openai

BIAS = prompts.load("bias")
CHAT = "/v1/chat/completions"


class Rig(NamedTuple):
    """A mock server, its clock, and a client, which tries nothing twice."""

    url: str
    server: MockServer
    clock: Clock
    openai: openai.AsyncOpenAI
    http: aiohttp.ClientSession


def rehearsed(story: Callable[[Rig], Awaitable[None]]) -> None:
    import openai

    async def run() -> None:
        clock = Clock()
        server = MockServer(MockSettings(port=0, batch_time=100.0), clock=clock)
        async with (
            running(server) as url,
            openai.AsyncOpenAI(base_url=url, api_key="sk-1", max_retries=0) as client,
            aiohttp.ClientSession() as http,
        ):
            await story(Rig(url, server, clock, client, http))

    asyncio.run(run())


def question(number: int) -> dict[str, Any]:
    return {"model": "m", "messages": prompts.messages(BIAS, ["a", str(number)])}


def line(number: int) -> dict[str, Any]:
    return {"custom_id": f"x-{number}", "method": "POST", "url": CHAT, "body": question(number)}


async def create(rig: Rig, count: int = 10, **more: Any) -> Any:
    data = "\n".join(json.dumps(line(number)) for number in range(count))
    file = await rig.openai.files.create(file=("in.jsonl", data.encode()), purpose="batch")
    return await rig.openai.batches.create(
        **{"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **more}
    )


async def lines_of(rig: Rig, file: str | None) -> list[Any]:
    assert file is not None
    content = await rig.openai.files.content(file)
    return [json.loads(result) for result in content.text.splitlines()]


def test_a_batch_of_openai_goes_through_its_states() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await create(rig, metadata={"judgeq": "name"})
        assert batch.status == "validating"
        assert batch.metadata == {"judgeq": "name"}
        assert batch.expires_at == batch.created_at + 86_400
        seen = []
        for seconds in (5, 50, 45):
            rig.clock.now += seconds
            batch = await rig.openai.batches.retrieve(batch.id)
            seen.append((batch.status, batch.request_counts.total, batch.request_counts.completed))
        assert seen == [
            ("validating", 0, 0),
            ("in_progress", 10, 5),
            ("completed", 10, 10),
        ]
        assert batch.error_file_id is None
        assert batch.completed_at == batch.created_at + 100
        results = await lines_of(rig, batch.output_file_id)
        names = [result["custom_id"] for result in results]
        assert sorted(names) == sorted(f"x-{number}" for number in range(10))
        assert names != sorted(names)
        for result in results:
            number = int(result["custom_id"].removeprefix("x-"))
            live = await rig.openai.chat.completions.create(**question(number))
            body = result["response"]["body"]
            assert result["response"]["status_code"] == 200
            assert body["choices"][0] == live.to_dict()["choices"][0]
            assert body["usage"] == live.to_dict()["usage"]
        [seen_batch] = rig.server.report()["batches"]["list"]
        assert seen_batch["billed"] == 10
        assert seen_batch["metadata"] == {"judgeq": "name"}

    rehearsed(story)


async def listed(pages: Any) -> list[str]:
    return [batch.id async for batch in pages]


@pytest.mark.parametrize(("limit", "most"), [(3, 100), (100, 2)])
def test_lists_come_in_pages_the_newest_first(
    limit: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LARGEST_PAGE", most)

    async def story(rig: Rig) -> None:
        made = [(await create(rig, 1)).id for _ in range(7)]
        assert await listed(rig.openai.batches.list(limit=limit)) == made[::-1]
        first = await rig.openai.batches.list(limit=limit)
        assert [batch.id for batch in first.data] == made[::-1][: min(most, limit)]
        assert first.has_more
        last = await rig.openai.batches.list(limit=limit, after=made[1])
        assert [batch.id for batch in last.data] == [made[0]]
        assert not last.has_more

    rehearsed(story)


def test_a_cancelled_batch_keeps_what_was_answered() -> None:
    import openai

    async def story(rig: Rig) -> None:
        batch: Any = await create(rig)
        rig.clock.now += 56
        batch = await rig.openai.batches.cancel(batch.id)
        assert batch.status == "cancelling"
        assert (await rig.openai.batches.cancel(batch.id)).status == "cancelling"
        assert batch.output_file_id is None
        rig.clock.now += 10
        batch = await rig.openai.batches.retrieve(batch.id)
        assert batch.status == "cancelled"
        assert batch.cancelled_at == batch.created_at + 66
        assert batch.request_counts.to_dict() == {"total": 10, "completed": 5, "failed": 5}
        assert len(await lines_of(rig, batch.output_file_id)) == 5
        for result in await lines_of(rig, batch.error_file_id):
            assert result["response"] is None
            assert result["error"]["code"] == "batch_cancelled"
        with pytest.raises(openai.ConflictError, match="Cannot cancel a batch that has ended"):
            await rig.openai.batches.cancel(batch.id)

        seen = rig.server.report()
        assert [batch["billed"] for batch in seen["batches"]["list"]] == [5]
        assert seen["answered"] == 5

    rehearsed(story)


def test_a_line_is_asked_once_however_often_one_looks() -> None:
    async def story(rig: Rig) -> None:
        batch = await create(rig, 200)
        rig.clock.now += 55
        await asyncio.gather(*(rig.openai.batches.retrieve(batch.id) for _ in range(5)))
        assert rig.server.report()["batches"]["billed"] == 100
        rig.clock.now += 50
        shown = await asyncio.gather(*(rig.openai.batches.retrieve(batch.id) for _ in range(5)))
        assert len({result.output_file_id for result in shown}) == 1
        address = f"{rig.url.removesuffix('/v1')}/stats?questions=1"
        async with rig.http.get(address) as answer:
            seen = await answer.json()
        assert seen["batches"]["billed"] == 200
        assert list(seen["by_question"].values()) == [{"asked": 1, "answered": 1}] * 200

    rehearsed(story)
