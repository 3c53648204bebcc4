"""The mock server speaks both batch APIs: the packages of their providers drive it."""

from __future__ import annotations

import asyncio
import io
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import anthropic
import openai
import pytest

from judgeq import prompts
from judgeq.mock_server import MockServer, running
from judgeq.mock_server.behaviour import MockSettings
from tests.fakes import Clock
from tests.mock import mock, stats

BIAS = prompts.load("bias")
CHAT = "/v1/chat/completions"


class Rig(NamedTuple):
    """A mock server, its clock, and a client of result API, which tries nothing twice."""

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
    data = "\n".join(asked if isinstance(asked, str) else json.dumps(asked) for asked in lines)
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
    return [json.loads(result) for result in content.text.splitlines()]


async def results_of(rig: Rig, batch: str) -> list[Any]:
    return [result async for result in await rig.anthropic.messages.batches.results(batch)]


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
        results = await results_of(rig, batch.id)
        assert {result.custom_id for result in results} == {f"x-{number}" for number in range(10)}
        for result in results:
            live = await rig.anthropic.messages.create(**params(int(result.custom_id[2:])))
            assert result.result.type == "succeeded"
            assert result.result.message.content == live.content
            assert result.result.message.usage == live.usage

    rehearsed(story)


async def listed(pages: Any) -> list[str]:
    return [batch.id async for batch in pages]


@pytest.mark.parametrize(("limit", "most"), [(3, None), (100, 2)])
def test_lists_come_in_pages_the_newest_first(limit: int, most: int | None) -> None:
    async def story(rig: Rig) -> None:
        made = [(await create(rig, 1)).id for _ in range(7)]
        assert await listed(rig.openai.batches.list(limit=limit)) == made[::-1]
        first = await rig.openai.batches.list(limit=limit)
        size = most or limit
        assert [batch.id for batch in first.data] == made[::-1][:size]
        assert first.has_more
        last = await rig.openai.batches.list(limit=limit, after=made[1])
        assert [batch.id for batch in last.data] == [made[0]]
        assert not last.has_more
        for wrong in ({"limit": 101}, {"after": "batch_none"}):
            with pytest.raises(openai.BadRequestError):
                await rig.openai.batches.list(**wrong)

        batches = rig.anthropic.messages.batches
        made = [(await message_batch(rig, 1)).id for _ in range(7)]
        assert await listed(batches.list(limit=limit)) == made[::-1]
        page: Any = await batches.list(limit=limit, after_id=made[3])
        assert [batch.id for batch in page.data] == made[2::-1][:size]
        page = await batches.list(limit=limit, before_id=made[3])
        assert [batch.id for batch in page.data] == made[:3:-1][-size:]
        assert (page.first_id, page.last_id) == (page.data[0].id, page.data[-1].id)
        with pytest.raises(anthropic.BadRequestError):
            await batches.list(after_id="msgbatch_none")

    rehearsed(story, batch_page=most)


def test_a_cancelled_batch_keeps_what_was_answered() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await create(rig)
        rig.clock.now += 50
        batch = await rig.openai.batches.cancel(batch.id)
        assert batch.status == "cancelling"
        assert (await rig.openai.batches.cancel(batch.id)).cancelling_at == batch.cancelling_at
        assert batch.output_file_id is None
        rig.clock.now += 10
        batch = await rig.openai.batches.retrieve(batch.id)
        assert batch.status == "cancelled"
        assert batch.cancelled_at == batch.cancelling_at + 10
        assert batch.request_counts.to_dict() == {"total": 10, "completed": 5, "failed": 5}
        assert len(await lines_of(rig, batch.output_file_id)) == 5
        for result in await lines_of(rig, batch.error_file_id):
            assert result["response"] is None
            assert result["error"]["code"] == "batch_cancelled"
        with pytest.raises(openai.ConflictError, match="Cannot cancel a batch with status"):
            await rig.openai.batches.cancel(batch.id)

        batches = rig.anthropic.messages.batches
        asked: Any = await message_batch(rig)
        with pytest.raises(anthropic.BadRequestError, match="cancel it first"):
            await batches.delete(asked.id)
        rig.clock.now += 50
        asked = await batches.cancel(asked.id)
        assert asked.processing_status == "canceling"
        assert asked.request_counts.processing == 10
        rig.clock.now += 10
        asked = await batches.retrieve(asked.id)
        assert asked.processing_status == "ended"
        assert (asked.request_counts.succeeded, asked.request_counts.canceled) == (5, 5)
        kinds = [result.result.type for result in await results_of(rig, asked.id)]
        assert sorted(kinds) == ["canceled"] * 5 + ["succeeded"] * 5
        with pytest.raises(anthropic.BadRequestError):
            await batches.cancel(asked.id)
        assert (await batches.delete(asked.id)).type == "message_batch_deleted"
        with pytest.raises(anthropic.NotFoundError):
            await batches.retrieve(asked.id)
        seen = await rig.server.seen()
        assert [batch["billed"] for batch in seen["batches"]["list"]] == [5, 5]
        assert seen["answered"] == 10

    rehearsed(story)


@pytest.mark.parametrize(
    ("settings", "wait"),
    [
        ({"batch_expire": 1.0}, 100),
        ({"batch_expire": 1.0, "batch_time": 0}, 0),
        ({"batch_crawl": True}, 86_400),
        ({"batch_crawl": True, "batch_time": 0, "batch_window": 20}, 20),
        ({"batch_window": 50}, 50),
    ],
)
def test_an_expired_batch_keeps_what_was_answered(settings: dict[str, Any], wait: float) -> None:
    async def story(rig: Rig) -> None:
        batch, asked = await create(rig), await message_batch(rig)
        rig.clock.now += 0.99 * wait
        if wait:
            seen: Any = await rig.openai.batches.retrieve(batch.id)
            assert seen.status == "in_progress"
            assert seen.request_counts.completed == 4
        rig.clock.now += 0.01 * wait
        batch = await rig.openai.batches.retrieve(batch.id)
        assert batch.status == "expired"
        assert batch.expired_at == batch.expires_at == int(batch.created_at + wait)
        assert batch.completed_at is None
        answered = await lines_of(rig, batch.output_file_id)
        missed = await lines_of(rig, batch.error_file_id)
        assert {result["error"]["code"] for result in missed} == {"batch_expired"}
        assert (len(answered), len(missed)) == (5, 5)
        asked = await rig.anthropic.messages.batches.retrieve(asked.id)
        assert (asked.request_counts.succeeded, asked.request_counts.expired) == (5, 5)
        kinds = [result.result.type for result in await results_of(rig, asked.id)]
        assert sorted(kinds) == ["expired"] * 5 + ["succeeded"] * 5

    rehearsed(story, **settings)


def test_a_batch_of_one_line_that_expires_is_answered() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await rig.openai.batches.retrieve((await create(rig, 1)).id)
        assert (batch.status, batch.request_counts.completed) == ("expired", 1)

    rehearsed(story, batch_expire=1.0, batch_time=0)


@pytest.mark.parametrize(
    ("lines", "code", "number", "param"),
    [
        ([line(1), "{"], "invalid_json_line", 2, None),
        ([line(1), "", line(2)], "invalid_json_line", 2, None),
        ([line(1), "7"], "invalid_json_line", 2, None),
        ([line(1), line(2), line(1)], "duplicate_custom_id", 3, "custom_id"),
        ([line(1), line(2, url="/v1/responses")], "invalid_url", 2, "url"),
        ([line(1, method="GET")], "invalid_method", 1, "method"),
        ([line(1, body=None)], "missing_required_parameter", 1, "body"),
        ([line(1), line(2, body={"model": "other"})], "mismatched_model", 2, "body.model"),
        ([line(1, body={})], "missing_required_parameter", 1, "body.model"),
        ([], "empty_file", None, "input_file_id"),
    ],
)
def test_lines_that_fail_validation(
    lines: list[Any], code: str, number: int | None, param: str | None
) -> None:
    async def story(rig: Rig) -> None:
        file = await upload(rig, lines)
        endpoint: Any = CHAT
        batch: Any = await rig.openai.batches.create(
            input_file_id=file.id, endpoint=endpoint, completion_window="24h"
        )
        assert (batch.status, batch.errors) == ("validating", None)
        rig.clock.now += 10
        batch = await rig.openai.batches.retrieve(batch.id)
        assert batch.status == "failed"
        assert batch.failed_at == batch.created_at + 10
        [problem] = batch.errors.data
        assert (problem.code, problem.line, problem.param) == (code, number, param)
        assert (batch.output_file_id, batch.error_file_id) == (None, None)
        assert batch.request_counts.total == 0
        assert (await rig.server.seen())["batches"]["billed"] == 0
        with pytest.raises(openai.ConflictError):
            await rig.openai.batches.cancel(batch.id)

    rehearsed(story)


def test_too_many_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("judgeq.mock_server.openai_validation.MOST_LINES", 2)
    monkeypatch.setattr("judgeq.mock_server.anthropic_batches.MOST_LINES", 2)

    async def story(rig: Rig) -> None:
        batch: Any = await rig.openai.batches.retrieve((await create(rig, 3)).id)
        assert batch.errors.data[0].code == "too_many_tasks"
        with pytest.raises(anthropic.BadRequestError, match="items"):
            await message_batch(rig, 3)

    rehearsed(story, batch_time=0)


def test_too_many_bytes_but_more_than_live(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 66 * 1024 * 1024
    monkeypatch.setattr("judgeq.mock_server.openai_batches.MOST_BYTES", most)
    monkeypatch.setattr("judgeq.mock_server.anthropic_batches.MOST_BYTES", most)

    async def story(rig: Rig) -> None:
        for size, status in ((most, 200), (most + 1, 413)):
            form = aiohttp.FormData({"purpose": "batch"})
            form.add_field("file", io.BytesIO(bytes(size)), filename="in.jsonl")
            async with rig.http.post(f"{rig.url}/files", data=form) as answer:
                assert answer.status == status
        headers = {"anthropic-version": "2023-06-01"}
        for size, status in ((most, 400), (most + 1, 413)):
            address = f"{rig.url}/messages/batches"
            async with rig.http.post(
                address, data=io.BytesIO(bytes(size)), headers=headers
            ) as answer:
                assert answer.status == status
                error = (await answer.json())["error"]
            assert error["type"] == (
                "request_too_large" if status == 413 else "invalid_request_error"
            )
        async with rig.http.post(
            f"{rig.url}/chat/completions", data=io.BytesIO(bytes(most))
        ) as answer:
            assert answer.status == 413

    rehearsed(story)


def test_a_batch_that_exceeds_the_queue_fails_later() -> None:
    async def story(rig: Rig) -> None:
        first = await create(rig)
        second: Any = await create(rig)
        assert second.status == "validating"
        rig.clock.now += 10
        second = await rig.openai.batches.retrieve(second.id)
        assert second.status == "failed"
        [problem] = second.errors.data
        assert problem.code == "token_limit_exceeded"
        assert "Limit: 3,000 enqueued tokens" in problem.message
        assert (await rig.openai.batches.retrieve(first.id)).status == "in_progress"
        await message_batch(rig)
        with pytest.raises(anthropic.RateLimitError):
            await message_batch(rig)
        rig.clock.now += 90
        third = await create(rig)
        rig.clock.now += 10
        assert (await rig.openai.batches.retrieve(third.id)).status == "in_progress"

    rehearsed(story, batch_queue_tokens=3000)


def test_batches_that_fail_validation_for_rehearsal() -> None:
    async def story(rig: Rig) -> None:
        states = []
        for _ in range(12):
            batch: Any = await rig.openai.batches.retrieve((await create(rig)).id)
            states.append(batch.status)
            if batch.errors:
                assert 1 <= batch.errors.data[0].line <= 10
        assert set(states) == {"failed", "completed"}
        refused = []
        for _ in range(12):
            try:
                await message_batch(rig)
            except anthropic.BadRequestError as error:
                refused.append(str(error))
        assert 0 < len(refused) < 12
        assert all("requests." in problem for problem in refused)

    rehearsed(story, batch_invalid=0.5, batch_time=0)


def test_lines_that_fail_get_lost_and_come_twice() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await rig.openai.batches.retrieve((await create(rig, 200)).id)
        assert batch.status == "completed"
        answered = await lines_of(rig, batch.output_file_id)
        failed = await lines_of(rig, batch.error_file_id)
        statuses = {result["response"]["status_code"] for result in failed}
        assert statuses == {500, 429, 0}
        assert all(result["error"] is None for result in failed)
        names = [result["custom_id"] for result in answered]
        [seen] = (await rig.server.seen())["batches"]["list"]
        assert seen["failed"] == len(failed) == batch.request_counts.failed
        assert seen["billed"] == batch.request_counts.completed == 200 - len(failed)
        assert len(names) - len(set(names)) == seen["doubled"] > 0
        assert seen["billed"] - len(set(names)) == seen["lost"] > 0
        again = await rig.openai.files.content(batch.output_file_id)
        assert again.text.splitlines() == [
            json.dumps(result, separators=(",", ":")) for result in answered
        ]

        asked: Any = await message_batch(rig, 200)
        results = await results_of(rig, asked.id)
        kinds = {
            result.result.error.error.type for result in results if result.result.type == "errored"
        }
        assert kinds == {"api_error", "rate_limit_error"}
        assert 100 < len({result.custom_id for result in results}) < 200

    rehearsed(story, batch_failing=0.1, batch_lost=0.1, batch_doubled=0.1, batch_time=0)


def test_creations_that_are_limited_or_whose_answers_are_lost() -> None:
    async def story(rig: Rig) -> None:
        outcomes: Counter[str] = Counter()
        for make in (create, message_batch):
            for _ in range(40):
                try:
                    await make(rig, 1)
                    outcome = "created"
                except (openai.RateLimitError, anthropic.RateLimitError) as error:
                    outcome = f"wait {error.response.headers['retry-after']}"
                except (openai.APIConnectionError, anthropic.APIConnectionError):
                    outcome = "dropped"
                except (openai.InternalServerError, anthropic.InternalServerError):
                    outcome = "failed"
                outcomes[outcome] += 1
        assert min(outcomes[name] for name in ("created", "wait 7", "dropped", "failed")) > 4
        assert (await rig.server.seen())["batches"]["created"] == 80 - outcomes["wait 7"]

    rehearsed(story, batch_limited=0.3, batch_unanswered=0.6, retry_after=7)


def test_downloads_that_end_half_way() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await rig.openai.batches.retrieve((await create(rig)).id)
        asked: Any = await rig.anthropic.messages.batches.retrieve((await message_batch(rig)).id)
        headers = {"anthropic-version": "2023-06-01"}
        for address in (f"{rig.url}/files/{batch.output_file_id}/content", asked.results_url):
            got: list[bytes] = []
            cut = 0
            for _ in range(40):
                try:
                    async with rig.http.get(address, headers=headers) as answer:
                        got.append(await answer.read())
                except aiohttp.ClientPayloadError:
                    cut += 1
            whole = max(got, key=len)
            assert whole.count(b"\n") == 10
            assert {len(result) for result in got} == {len(whole), len(whole) // 2}
            assert {result for result in got if len(result) == len(whole)} == {whole}
            assert cut > 4
        for seen in (await rig.server.seen())["batches"]["list"]:
            assert seen["downloads"] == 40
            assert seen["broken"] > cut / 2

    rehearsed(story, batch_broken=0.6, batch_time=0)


def test_results_are_deleted_after_a_while() -> None:
    async def story(rig: Rig) -> None:
        batch, asked = await create(rig), await message_batch(rig)
        rig.clock.now += 100
        batch = await rig.openai.batches.retrieve(batch.id)
        rig.clock.now += 49
        assert await lines_of(rig, batch.output_file_id)
        assert await results_of(rig, asked.id)
        rig.clock.now += 1
        batch = await rig.openai.batches.retrieve(batch.id)
        with pytest.raises(openai.NotFoundError, match="No such File object"):
            await lines_of(rig, batch.output_file_id)
        asked = await rig.anthropic.messages.batches.retrieve(asked.id)
        assert asked.results_url is None
        assert asked.archived_at is not None
        address = f"{rig.url}/messages/batches/{asked.id}/results"
        async with rig.http.get(address) as answer:
            assert answer.status == 404

    rehearsed(story, batch_gone=50)


def test_files() -> None:
    async def story(rig: Rig) -> None:
        files = rig.openai.files
        file = await upload(rig, [line(1)])
        assert file.expires_at == file.created_at + 30 * 86_400
        assert (await files.retrieve(file.id)) == file
        assert (await files.content(file.id)).text == json.dumps(line(1))
        assert (await files.delete(file.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await files.retrieve(file.id)
        short = await upload(
            rig, [line(1)], expires_after={"anchor": "created_at", "seconds": 3600}
        )
        rig.clock.now += 3600
        with pytest.raises(openai.NotFoundError):
            await files.content(short.id)
        data = b"{}"
        with pytest.raises(openai.BadRequestError, match="purpose"):
            await files.create(file=("in.jsonl", data), purpose="vision")
        with pytest.raises(openai.BadRequestError, match=r"Must be \.jsonl"):
            await files.create(file=("in.txt", data), purpose="batch")
        with pytest.raises(openai.BadRequestError, match="expires_after"):
            await upload(rig, [line(1)], expires_after={"anchor": "created_at", "seconds": 60})
        async with rig.http.post(f"{rig.url}/files", json={}) as answer:
            assert answer.status == 400

    rehearsed(story)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"endpoint": "/v1/embeddings"}, "endpoint"),
        ({"completion_window": "1h"}, "completion_window"),
        ({"input_file_id": "file-none"}, "input_file_id"),
        ({"metadata": {str(number): "" for number in range(17)}}, "metadata"),
        ({"metadata": {"k" * 65: ""}}, "metadata"),
        ({"metadata": {"k": "v" * 513}}, "metadata"),
        ({"metadata": {"k": 1}}, "metadata.k"),
    ],
)
def test_batches_that_openai_refuses(more: dict[str, Any], param: str) -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            await create(rig, 1, **more)
        assert refused.value.param == param
        with pytest.raises(openai.NotFoundError):
            await rig.openai.batches.retrieve("batch_none")
        assert (await rig.server.seen())["batches"]["created"] == 0

    rehearsed(story)


@pytest.mark.parametrize(
    "requests",
    [
        None,
        [],
        [{"custom_id": "a b", "params": params(1)}],
        [{"custom_id": "x" * 65, "params": params(1)}],
        [{"custom_id": "x", "params": 1}],
        [{"custom_id": "x", "params": params(1)}] * 2,
    ],
)
def test_batches_that_anthropic_refuses(requests: Any) -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(anthropic.BadRequestError, match="requests"):
            await rig.anthropic.messages.batches.create(requests=requests)
        with pytest.raises(anthropic.NotFoundError):
            await rig.anthropic.messages.batches.retrieve("msgbatch_none")
        async with rig.http.post(f"{rig.url}/messages/batches", json={}) as answer:
            assert "anthropic-version" in await answer.text()

    rehearsed(story)


def test_keys_are_wanted() -> None:
    async def story(rig: Rig) -> None:
        for ask in (create(rig), rig.openai.batches.retrieve("batch_1")):
            with pytest.raises(openai.AuthenticationError):
                await ask
        with pytest.raises(anthropic.AuthenticationError):
            await message_batch(rig)

    rehearsed(story, key="sk-other")


def test_lines_are_refused_and_spoilt_as_live() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await rig.openai.batches.retrieve((await create(rig)).id)
        answered = await lines_of(rig, batch.output_file_id)
        contents = [result["response"]["body"]["choices"][0]["message"] for result in answered]
        assert any(result["refusal"] for result in contents)
        assert any("rather not" in (result["content"] or "") for result in contents)
        [failed, *_] = await lines_of(rig, batch.error_file_id)
        assert failed["response"]["body"]["error"]["type"] == "server_error"
        hot: Any = [{"custom_id": "x", "params": {**params(1), "temperature": 7}}]
        asked: Any = await rig.anthropic.messages.batches.create(requests=hot)
        [result] = await results_of(rig, asked.id)
        assert result.result.error.error.type == "invalid_request_error"
        assert "temperature" in result.result.error.error.message

    faults = {"unreadable": 0.3, "refused": 0.3, "errors": 0.2, "dropped": 0.1, "hung": 0.1}
    rehearsed(story, batch_time=0, **faults)


def test_a_model_that_is_not_known_is_an_error_of_the_line() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await rig.openai.batches.retrieve((await create(rig, 1)).id)
        assert (batch.status, batch.output_file_id) == ("completed", None)
        [result] = await lines_of(rig, batch.error_file_id)
        assert result["response"]["status_code"] == 404
        assert result["response"]["body"]["error"]["code"] == "model_not_found"
        [asked] = await results_of(rig, (await message_batch(rig, 1)).id)
        assert asked.result.error.error.type == "not_found_error"

    rehearsed(story, batch_time=0, only_model="other")


def test_azures_endpoint() -> None:
    async def story(rig: Rig) -> None:
        file = await upload(rig, [line(1, url="/chat/completions")])
        endpoint: Any = "/chat/completions"
        batch: Any = await rig.openai.batches.create(
            input_file_id=file.id, endpoint=endpoint, completion_window="24h"
        )
        batch = await rig.openai.batches.retrieve(batch.id)
        assert (batch.status, batch.request_counts.completed) == ("completed", 1)

    rehearsed(story, batch_time=0)


def test_a_line_is_asked_once_however_often_one_looks() -> None:
    async def story(rig: Rig) -> None:
        batch = await create(rig, 200)
        rig.clock.now += 50
        await asyncio.gather(*(rig.openai.batches.retrieve(batch.id) for _ in range(5)))
        assert (await rig.server.seen())["batches"]["billed"] == 100
        rig.clock.now += 50
        shown = await asyncio.gather(*(rig.openai.batches.retrieve(batch.id) for _ in range(5)))
        assert len({result.output_file_id for result in shown}) == 1
        address = f"{rig.url.removesuffix('/v1')}/stats?questions=1"
        async with rig.http.get(address) as answer:
            seen = await answer.json()
        assert seen["batches"]["billed"] == 200
        assert list(seen["by_question"].values()) == [{"asked": 1, "answered": 1}] * 200

    rehearsed(story)


def test_other_requests_that_fail() -> None:
    async def story(rig: Rig) -> None:
        outcomes: Counter[str] = Counter()
        batch, asked = None, await message_batch(rig, 1)
        for _ in range(60):
            try:
                if batch is None:
                    batch = await create(rig, 1)
                await rig.openai.batches.retrieve(batch.id)
                await rig.anthropic.messages.batches.retrieve(asked.id)
                outcomes["answered"] += 1
            except (openai.APIError, anthropic.APIError) as error:
                outcomes[type(error).__name__] += 1
        names = {"answered", "RateLimitError", "InternalServerError", "APIConnectionError"}
        assert set(outcomes) == names
        assert min(outcomes.values()) > 3

    rehearsed(story, batch_flaky=0.3, batch_time=0)


def test_a_batch_whose_lines_are_all_answered_can_still_be_cancelled() -> None:
    async def story(rig: Rig) -> None:
        batch, asked = await create(rig), await message_batch(rig)
        rig.clock.now += 95
        await rig.openai.batches.cancel(batch.id)
        await rig.anthropic.messages.batches.cancel(asked.id)
        rig.clock.now += 10
        shown: Any = await rig.openai.batches.retrieve(batch.id)
        assert (shown.status, shown.request_counts.completed) == ("cancelled", 10)
        assert shown.error_file_id is None
        message: Any = await rig.anthropic.messages.batches.retrieve(asked.id)
        assert (message.request_counts.succeeded, message.request_counts.canceled) == (10, 0)

    rehearsed(story)


def test_a_cancelled_batch_that_would_have_failed_has_no_results() -> None:
    async def story(rig: Rig) -> None:
        file = await upload(rig, ["{"])
        endpoint: Any = CHAT
        batch: Any = await rig.openai.batches.create(
            input_file_id=file.id, endpoint=endpoint, completion_window="24h"
        )
        await rig.openai.batches.cancel(batch.id)
        rig.clock.now += 10
        batch = await rig.openai.batches.retrieve(batch.id)
        assert (batch.status, batch.errors) == ("cancelled", None)
        assert (batch.output_file_id, batch.error_file_id) == (None, None)

    rehearsed(story)


@pytest.mark.parametrize("kind", ["multipart/form-data", "multipart/mixed; boundary=x"])
def test_uploads_that_are_no_forms(kind: str) -> None:
    async def story(rig: Rig) -> None:
        headers = {"Content-Type": kind}
        async with rig.http.post(f"{rig.url}/files", data=b"{}", headers=headers) as answer:
            assert answer.status == 400

    rehearsed(story)


def test_flags_say_how_batches_behave(tmp_path: Path) -> None:
    with mock(tmp_path, "--batch-time", "0", "--batch-expire", "1") as url:

        async def story() -> None:
            async with openai.AsyncOpenAI(base_url=url, api_key="sk-1") as client:
                data = json.dumps(line(1)).encode()
                file = await client.files.create(file=("in.jsonl", data), purpose="batch")
                endpoint: Any = CHAT
                batch = await client.batches.create(
                    input_file_id=file.id, endpoint=endpoint, completion_window="24h"
                )
                assert (await client.batches.retrieve(batch.id)).status == "expired"

        asyncio.run(story())
        assert stats(url)["batches"]["billed"] == 1
