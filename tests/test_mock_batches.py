"""The mock server speaks both batch APIs: the packages of their providers drive it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

import aiohttp
import anthropic
import openai
import pytest

from judgeq import prompts
from judgeq.mock_server import MockServer, running
from judgeq.mock_server.behaviour import MockSettings
from tests.fakes import Clock

BIAS = prompts.load("bias")
CHAT = "/v1/chat/completions"


class Rig(NamedTuple):
    """A mock server, its clock, and a client of each API, which tries nothing twice."""

    url: str
    server: MockServer
    clock: Clock
    openai: openai.AsyncOpenAI
    anthropic: anthropic.AsyncAnthropic
    http: aiohttp.ClientSession


def rehearsed(story: Callable[[Rig], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        clock = Clock()
        made = MockSettings(port=0, **{"batch_time": 100.0, **settings})
        async with (
            running(made, clock=clock) as (url, server),
            openai.AsyncOpenAI(base_url=url, api_key="sk-1", max_retries=0) as one,
            anthropic.AsyncAnthropic(
                base_url=url.removesuffix("/v1"), api_key="sk-1", max_retries=0
            ) as other,
            aiohttp.ClientSession() as http,
        ):
            await story(Rig(url, server, clock, one, other, http))

    asyncio.run(run())


def question(number: int, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": prompts.messages(BIAS, ["a", str(number)]), **more}


def line(number: int, **more: Any) -> dict[str, Any]:
    asked = {"custom_id": f"x-{number}", "method": "POST", "url": CHAT, "body": question(number)}
    return {**asked, **more}


def params(number: int) -> Any:
    system, *others = prompts.messages(BIAS, ["a", str(number)])
    return {"model": "m", "max_tokens": 50, "system": system["content"], "messages": others}


async def upload(rig: Rig, lines: Iterable[Any], **more: Any) -> Any:
    data = "\n".join(each if isinstance(each, str) else json.dumps(each) for each in lines)
    return await rig.openai.files.create(file=("in.jsonl", data.encode()), purpose="batch", **more)


async def create(rig: Rig, count: int = 10, **more: Any) -> Any:
    file = await upload(rig, map(line, range(count)))
    return await rig.openai.batches.create(
        **{"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **more}
    )


async def message_batch(rig: Rig, count: int = 10) -> Any:
    requests = [{"custom_id": f"x-{n}", "params": params(n)} for n in range(count)]
    return await rig.anthropic.messages.batches.create(requests=requests)  # type: ignore[arg-type]


async def lines_of(rig: Rig, file: str | None) -> list[Any]:
    assert file is not None
    content = await rig.openai.files.content(file)
    return [json.loads(each) for each in content.text.splitlines()]


async def results_of(rig: Rig, batch: str) -> list[Any]:
    return [each async for each in await rig.anthropic.messages.batches.results(batch)]


def test_a_batch_of_openai_goes_through_its_states() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await create(rig, metadata={"judgeq": "name"})
        assert batch.status == "validating"
        assert batch.metadata == {"judgeq": "name"}
        assert batch.expires_at == batch.created_at + 86_400
        seen = []
        for seconds in (5, 45, 45, 10):
            rig.clock.now += seconds
            batch = await rig.openai.batches.retrieve(batch.id)
            seen.append((batch.status, batch.request_counts.total, batch.request_counts.completed))
        assert seen == [
            ("validating", 0, 0),
            ("in_progress", 10, 5),
            ("finalizing", 10, 10),
            ("completed", 10, 10),
        ]
        assert batch.error_file_id is None
        assert batch.usage.input_tokens > 0
        assert batch.created_at < batch.in_progress_at < batch.finalizing_at < batch.completed_at
        found = await lines_of(rig, batch.output_file_id)
        names = [each["custom_id"] for each in found]
        assert sorted(names) == sorted(f"x-{number}" for number in range(10))
        assert names != sorted(names)
        for each in found:
            number = int(each["custom_id"].removeprefix("x-"))
            live = await rig.openai.chat.completions.create(**question(number))
            body = each["response"]["body"]
            assert each["response"]["status_code"] == 200
            assert body["choices"][0] == live.to_dict()["choices"][0]
            assert body["usage"] == live.to_dict()["usage"]
        [seen_batch] = (await rig.server.seen())["batches"]["list"]
        assert seen_batch["billed"] == 10
        assert seen_batch["metadata"] == {"judgeq": "name"}
        assert seen_batch["downloads"] == 1

    rehearsed(story)


def test_a_batch_of_anthropic_goes_through_its_states() -> None:
    async def story(rig: Rig) -> None:
        batches = rig.anthropic.messages.batches
        batch: Any = await message_batch(rig)
        assert batch.processing_status == "in_progress"
        rig.clock.now += 95
        batch = await batches.retrieve(batch.id)
        assert batch.processing_status == "in_progress"
        assert batch.request_counts.to_dict() == {
            **dict.fromkeys(("succeeded", "errored", "canceled", "expired"), 0),
            "processing": 10,
        }
        assert batch.results_url is None
        with pytest.raises(anthropic.AnthropicError):
            await results_of(rig, batch.id)
        async with rig.http.get(f"{rig.url}/messages/batches/{batch.id}/results") as answer:
            assert answer.status == 400
        rig.clock.now += 5
        batch = await batches.retrieve(batch.id)
        assert batch.processing_status == "ended"
        assert batch.request_counts.succeeded == 10
        assert (batch.ended_at - batch.created_at).total_seconds() == 100
        found = await results_of(rig, batch.id)
        assert {each.custom_id for each in found} == {f"x-{number}" for number in range(10)}
        for each in found:
            live = await rig.anthropic.messages.create(**params(int(each.custom_id[2:])))
            assert each.result.type == "succeeded"
            assert each.result.message.content == live.content
            assert each.result.message.usage == live.usage

    rehearsed(story)
