"""The mock server says what it was told to say, enforces what it says, and speaks OpenAI's batch API."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgeq import prompts
from judgeq.mock_server import Limit, MockServer, running
from judgeq.replies import read_reply
from judgeq.settings.mock_server import MockSettings
from judgeq.types import Match
from tests.fakes import Clock
from tests.faulty_server import FaultyServer, FaultySettings

BIAS = prompts.load("bias")
SCORES = {"calm": 1.0, "loud": 700.0, "shrill": 1000.0, "plain": 300.0}


@dataclass
class Asked:
    """A mock server, and a client that asks it."""

    server: MockServer
    url: str
    session: aiohttp.ClientSession

    async def post(self, sent: Any) -> Any:
        async with self.session.post(f"{self.url}/chat/completions", json=sent) as answer:
            return answer.status, answer.headers, await answer.json()


@asynccontextmanager
async def serving(scores: dict[str, float] | None = None, **settings: Any) -> AsyncIterator[Asked]:
    server = FaultyServer(FaultySettings(port=0, **settings), scores)
    async with running(server) as url, aiohttp.ClientSession() as session:
        yield Asked(server, url, session)


def body(*texts: str) -> dict[str, Any]:
    return {"model": "m", "messages": prompts.messages(BIAS, texts or [*SCORES])}


def content(answer: Any) -> Any:
    return answer["choices"][0]["message"]["content"]


async def test_it_ranks_the_texts_by_their_scores_the_same_each_time() -> None:
    async with serving(SCORES) as asked:
        status, _, first = await asked.post(body())
        assert status == 200
        verdict = read_reply(content(first), Match(0, 1, (0, 1, 2, 3)))
        assert sorted(verdict.items) == [0, 1, 2, 3]
        assert verdict.items.index(2) < verdict.items.index(0)
        _, _, again = await asked.post(body())
        assert content(again) == content(first)
        _, _, pair = await asked.post(body("calm", "shrill"))
        assert content(pair) == '{"winner": "B"}'
        _, _, alone = await asked.post(body("plain"))
        score = read_reply(content(alone), Match(0, 1, (0,))).score
        assert score is not None
        assert 0 <= score <= 1
        seen = asked.server.stats.as_json()
        assert (seen["questions"], seen["asked_again"]) == (3, 1)
        usage = first["usage"]
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


async def test_errors() -> None:
    async with serving(rate_limited=1.0, retry_after=0.5) as asked:
        waits = {(await asked.post(body()))[1].get("Retry-After") for _ in range(2)}
        assert waits == {None, "0.5"}
    async with serving(dropped=1.0) as asked:
        for _ in range(2):  # before the answer, and in its middle
            with pytest.raises((aiohttp.ClientError, ConnectionError)):
                await asked.post(body())
        assert asked.server.stats.outcomes == {"dropped": 2}


@pytest.mark.parametrize(
    ("settings", "sent", "status", "code"),
    [
        ({"key": "sk-1"}, body(), 401, "invalid_api_key"),
        ({}, {"messages": []}, 400, None),
        ({}, ["no", "object"], 400, None),
    ],
)
async def test_what_it_refuses(settings: Any, sent: Any, status: int, code: str | None) -> None:
    async with serving(**settings) as asked:
        got, _, answer = await asked.post(sent)
        assert (got, answer["error"]["code"]) == (status, code)
        assert asked.server.stats.answered == 0


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


async def test_a_batch_of_openai_goes_through_its_states() -> None:
    import openai

    clock, path = Clock(), "/v1/chat/completions"
    server = MockServer(MockSettings(port=0, batch_time=100.0), clock=clock)
    questions = {f"x-{number}": body("a", str(number)) for number in range(10)}
    lines = [
        {"custom_id": name, "method": "POST", "url": path, "body": asked}
        for name, asked in questions.items()
    ]
    async with (
        running(server) as url,
        openai.AsyncOpenAI(base_url=url, api_key="sk-1", max_retries=0) as client,
    ):
        data = "\n".join(map(json.dumps, lines)).encode()
        file = await client.files.create(file=("in.jsonl", data), purpose="batch")
        how: Any = {"endpoint": path, "completion_window": "24h", "metadata": {"judgeq": "name"}}
        batch: Any = await client.batches.create(input_file_id=file.id, **how)
        assert batch.status == "in_progress"
        assert batch.metadata == {"judgeq": "name"}
        assert batch.expires_at == batch.created_at + 86_400
        seen = []
        for seconds in (5, 50, 45):
            clock.now += seconds
            batch = await client.batches.retrieve(batch.id)
            seen.append((batch.status, batch.request_counts.total, batch.request_counts.completed))
        assert seen == [("in_progress", 10, 0), ("in_progress", 10, 5), ("completed", 10, 10)]
        assert batch.error_file_id is None
        assert batch.completed_at == batch.created_at + 100
        output = await client.files.content(batch.output_file_id)
        results = [json.loads(result) for result in output.text.splitlines()]
        names = [result["custom_id"] for result in results]
        assert sorted(names) == sorted(questions)
        assert names != sorted(names)
        for result in results:
            asked: Any = questions[result["custom_id"]]
            live = (await client.chat.completions.create(**asked)).to_dict()
            assert result["response"]["status_code"] == 200
            answer = result["response"]["body"]
            assert [answer[key] for key in ("choices", "usage")] == [live["choices"], live["usage"]]
        assert server.report()["batches"] == {"created": 1, "billed": 10}


async def test_a_batch_and_its_results_are_not_found_for_as_long_as_was_asked() -> None:
    clock = Clock()
    server = MockServer(MockSettings(port=0, batch_time=100.0, batch_not_found=60.0), clock=clock)
    batches = server.batches
    batch = batches.add([{"custom_id": "a", "body": body("a", "0")}], {})
    assert batches.found(batch.id) is None
    clock.now += 60
    assert batches.found(batch.id) is batch
    clock.now += 40
    shown = batches.batch_json(batch, batches.catch_up(batch))
    assert batch.closed
    (file,) = filter(None, (shown["output_file_id"], shown["error_file_id"]))
    async with running(server) as url, aiohttp.ClientSession() as session:
        address = f"{url}/files/{file}/content"
        for seconds, status in ((0, 404), (59, 404), (1, 200)):
            clock.now += seconds
            async with session.get(address) as response:
                assert response.status == status
