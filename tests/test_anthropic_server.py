"""The double of Anthropic's API answers as that API does, and is as strict about what it is sent."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from judgeq import prompts
from judgeq.judge.http.anthropic import AnthropicMessages
from judgeq.mock_server import MockServer, running
from judgeq.replies import read_reply
from judgeq.settings.model import Access, Model
from judgeq.types import Match
from tests.anthropic_server import AnthropicServer
from tests.faulty_server import FaultySettings
from tests.test_mock_server import SCORES, TEXTS, Story

BIAS = prompts.load("bias")
SENT = {"x-api-key": "sk-1", "anthropic-version": "2023-06-01"}
LISTED = Match(0, 1, (0, 1, 2, 3))
SCHEMA: dict[str, Any] = prompts.schema(4, False)


def body(texts: list[str] = TEXTS, **more: Any) -> dict[str, Any]:
    system, *others = prompts.messages(BIAS, texts)
    asked = {"model": "m", "max_tokens": 100, "system": system["content"], "messages": others}
    return {name: value for name, value in {**asked, **more}.items() if value is not None}


def structured(schema: Any) -> dict[str, Any]:
    return {"format": {"type": "json_schema", "schema": schema}}


def tool(schema: Any = SCHEMA) -> dict[str, Any]:
    return {
        "tools": [{"name": "answer", "input_schema": schema}],
        "tool_choice": {"type": "tool", "name": "answer"},
    }


async def post(
    session: aiohttp.ClientSession, url: str, sent: Any, headers: dict[str, str] | None = None
) -> Any:
    how = SENT if headers is None else headers
    async with session.post(f"{url}/messages", json=sent, headers=how) as answer:
        return answer.status, answer.headers, await answer.json()


READER = AnthropicMessages("m", Model(api="anthropic"), Access(), None)


def serving(story: Story, **settings: Any) -> None:
    async def run() -> None:
        made = FaultySettings(port=0, **settings)
        server = AnthropicServer(made, SCORES)
        async with running(server) as url, aiohttp.ClientSession() as session:
            await story(session, url, server)

    asyncio.run(run())


@pytest.mark.parametrize("how", [{}, {"output_config": structured(SCHEMA)}, tool()])
def test_it_ranks_the_texts_by_their_scores(how: dict[str, Any]) -> None:
    async def story(session: aiohttp.ClientSession, url: str, server: MockServer) -> None:
        status, headers, answer = await post(session, url, body(**how))
        assert status == 200
        assert headers["request-id"].startswith("req_")
        assert answer["type"] == "message"
        assert answer["stop_reason"] == ("tool_use" if how == tool() else "end_turn")
        read = READER.read(answer)
        verdict = read_reply(read.text, LISTED)
        assert verdict.items.index(2) < verdict.items.index(0)
        assert read.usage is not None
        assert server.stats.as_json()["tokens"] == read.usage._asdict()

    serving(story)


@pytest.mark.parametrize(
    ("settings", "status", "kind", "words"),
    [
        ({"key": "other"}, 401, "authentication_error", "invalid x-api-key"),
        ({"key": "other", "echo_key": True}, 401, "authentication_error", "sk-1"),
        ({"only_model": "other"}, 404, "not_found_error", "model: m"),
        ({"max_input_tokens": 5}, 400, "invalid_request_error", "prompt is too long: "),
        ({"quota_after": 0}, 400, "invalid_request_error", "credit balance is too low"),
        ({"structured": "json"}, 400, "invalid_request_error", "output_config.format: Extra"),
        ({"rate_limited": 1.0}, 429, "rate_limit_error", "exceeded"),
    ],
)
def test_refusals(settings: dict[str, Any], status: int, kind: str, words: str) -> None:
    async def story(session: aiohttp.ClientSession, url: str, server: MockServer) -> None:
        got, _, answer = await post(session, url, body(output_config=structured(SCHEMA)))
        assert (got, answer["type"], answer["error"]["type"]) == (status, "error", kind)
        assert words in answer["error"]["message"]
        assert server.stats.answered == 0

    serving(story, **settings)
