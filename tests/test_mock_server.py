"""The mock server says what it was told to say, enforces what it says, and speaks OpenAI's batch API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgeq import prompts
from judgeq.mock_server import Limit, MockServer, running
from judgeq.mock_server.chat import question_id
from judgeq.replies import read_reply
from judgeq.settings.mock_server import MockSettings
from judgeq.types import Match
from tests.fakes import Clock
from tests.faulty_server import FaultyServer, FaultySettings

BIAS = prompts.load("bias")


TEXTS = ["calm", "loud", "shrill", "plain"]


SCORES = {"calm": 1.0, "plain": 300.0, "loud": 700.0, "shrill": 1000.0}


@asynccontextmanager
async def serving(
    scores: dict[str, float] | None = None, **settings: Any
) -> AsyncIterator[tuple[aiohttp.ClientSession, str, MockServer]]:
    server = FaultyServer(FaultySettings(port=0, **settings), scores)
    async with running(server) as url, aiohttp.ClientSession() as session:
        yield session, url, server


def body(texts: list[str] | None = None, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": prompts.messages(BIAS, texts or TEXTS), **more}


async def post(session: aiohttp.ClientSession, url: str, sent: Any, **more: Any) -> Any:
    async with session.post(f"{url}/chat/completions", json=sent, **more) as answer:
        return answer.status, answer.headers, await answer.json()


def content(answer: Any) -> Any:
    return answer["choices"][0]["message"]["content"]


async def test_it_ranks_the_texts_by_their_scores_the_same_each_time() -> None:

    async with serving(SCORES) as (session, url, server):
        status, _, first = await post(session, url, body())
        assert status == 200
        verdict = read_reply(content(first), Match(0, 1, (0, 1, 2, 3)))
        assert sorted(verdict.items) == [0, 1, 2, 3]
        assert verdict.items.index(2) < verdict.items.index(0)
        _, _, again = await post(session, url, body())
        assert content(again) == content(first)
        _, _, pair = await post(session, url, body(["calm", "shrill"]))
        assert content(pair) == '{"winner": "B"}'
        _, _, alone = await post(session, url, body(["plain"]))
        score = read_reply(content(alone), Match(0, 1, (0,))).score
        assert score is not None
        assert 0 <= score <= 1
        assert server.stats.as_json()["asked_again"] == 1
        usage = first["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_errors() -> None:

    async with serving(errors=1.0) as (session, url, server):
        assert (await post(session, url, body()))[0] == 500
        assert server.stats.answered == 0
    async with serving(rate_limited=1.0, retry_after=0.5) as (session, url, _):
        waits = {(await post(session, url, body()))[1].get("Retry-After") for _ in range(2)}
        assert waits == {None, "0.5"}
    async with serving(dropped=1.0) as (session, url, server):
        for _ in range(2):  # before the answer, and in its middle
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                await post(session, url, body())
        assert server.stats.outcomes == {"dropped": 2}
    async with serving(hung=1.0) as (session, url, _):
        with pytest.raises(TimeoutError):
            await post(session, url, body(), timeout=aiohttp.ClientTimeout(total=0.1))


@pytest.mark.parametrize(
    ("settings", "sent", "status", "code"),
    [
        ({"key": "sk-1"}, body(), 401, "invalid_api_key"),
        ({}, {"messages": []}, 400, None),
        ({}, ["no", "object"], 400, None),
    ],
)
async def test_what_it_refuses(
    settings: dict[str, Any], sent: Any, status: int, code: str | None
) -> None:

    async with serving(**settings) as (session, url, server):
        got, _, answer = await post(session, url, sent)
        assert (got, answer["error"]["code"]) == (status, code)
        assert server.stats.answered == 0


async def test_statistics_add_up() -> None:

    async with serving(cached_share=0.5, reasoning_tokens=7) as (session, url, _):
        answers = [await post(session, url, body([f"{i}", "x"])) for i in range(5)]
        base = url.removesuffix("/v1")
        async with session.get(f"{base}/stats?questions=1") as answer:
            seen = await answer.json()
        assert (seen["requests"], seen["answered"], seen["questions"]) == (5, 5, 5)
        told = [answer["usage"] for _, _, answer in answers]
        assert seen["tokens"]["input"] + seen["tokens"]["cached"] == sum(
            usage["prompt_tokens"] for usage in told
        )
        assert seen["tokens"]["output"] == sum(usage["completion_tokens"] for usage in told)
        assert seen["by_question"][question_id(body(["0", "x"])["messages"])] == {
            "asked": 1,
            "answered": 1,
        }


@given(st.lists(st.floats(0, 5), min_size=1, max_size=60), st.integers(1, 10))
def test_never_more_than_the_limit_in_any_minute(gaps: list[float], limit: int) -> None:
    clock = Clock()
    enforced = Limit(limit, clock)
    passed: list[float] = []
    for gap in gaps:
        clock.now += gap
        wait = enforced.wait(1)
        if wait <= 0:
            enforced.take(1)
            passed.append(clock.now)
        else:
            assert sum(at > clock.now - 60 for at in passed) == limit
    for at in passed:
        assert sum(at - 60 < other <= at for other in passed) <= limit


if TYPE_CHECKING:  # it takes most of a second
    import openai


CHAT = "/v1/chat/completions"


class Rig(NamedTuple):
    """A mock server, its clock, and a client, which tries nothing twice."""

    url: str
    server: MockServer
    clock: Clock
    openai: openai.AsyncOpenAI
    http: aiohttp.ClientSession


@asynccontextmanager
async def rehearsed() -> AsyncIterator[Rig]:
    import openai

    clock = Clock()
    server = MockServer(MockSettings(port=0, batch_time=100.0), clock=clock)
    async with (
        running(server) as url,
        openai.AsyncOpenAI(base_url=url, api_key="sk-1", max_retries=0) as client,
        aiohttp.ClientSession() as http,
    ):
        yield Rig(url, server, clock, client, http)


def question(number: int) -> dict[str, Any]:
    return {"model": "m", "messages": prompts.messages(BIAS, ["a", str(number)])}


def batch_line(number: int) -> dict[str, Any]:
    return {"custom_id": f"x-{number}", "method": "POST", "url": CHAT, "body": question(number)}


async def create(rig: Rig, count: int = 10, **more: Any) -> Any:
    data = "\n".join(json.dumps(batch_line(number)) for number in range(count))
    file = await rig.openai.files.create(file=("in.jsonl", data.encode()), purpose="batch")
    return await rig.openai.batches.create(
        **{"input_file_id": file.id, "endpoint": CHAT, "completion_window": "24h", **more}
    )


async def lines_of(rig: Rig, file: str | None) -> list[Any]:
    assert file is not None
    content = await rig.openai.files.content(file)
    return [json.loads(result) for result in content.text.splitlines()]


async def test_a_batch_of_openai_goes_through_its_states() -> None:

    async with rehearsed() as rig:
        batch: Any = await create(rig, metadata={"judgeq": "name"})
        assert batch.status == "in_progress"
        assert batch.metadata == {"judgeq": "name"}
        assert batch.expires_at == batch.created_at + 86_400
        seen = []
        for seconds in (5, 50, 45):
            rig.clock.now += seconds
            batch = await rig.openai.batches.retrieve(batch.id)
            seen.append((batch.status, batch.request_counts.total, batch.request_counts.completed))
        assert seen == [("in_progress", 10, 0), ("in_progress", 10, 5), ("completed", 10, 10)]
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
        assert rig.server.report()["batches"] == {"created": 1, "billed": 10}
