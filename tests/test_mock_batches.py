"""The mock server speaks OpenAI's batch API: the package of that provider drives it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest

from judgeq import prompts
from judgeq.mock_server import MockServer, batches, running
from judgeq.settings.mock_server import MockSettings
from tests import faulty_server
from tests.fakes import Clock
from tests.faulty_server import FaultyServer, FaultySettings
from tests.mock import mock, stats

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


def rehearsed(story: Callable[[Rig], Awaitable[None]], **settings: Any) -> None:
    import openai

    async def run() -> None:
        clock = Clock()
        more = {"port": 0, "batch_time": 100.0, **settings}
        server = (
            MockServer(MockSettings(**more), clock=clock)
            if more.keys() <= MockSettings.model_fields.keys()
            else FaultyServer(FaultySettings(**more), clock=clock)
        )
        async with (
            running(server) as url,
            openai.AsyncOpenAI(base_url=url, api_key="sk-1", max_retries=0) as client,
            aiohttp.ClientSession() as http,
        ):
            await story(Rig(url, server, clock, client, http))

    asyncio.run(run())


def question(number: int, **more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": prompts.messages(BIAS, ["a", str(number)]), **more}


def line(number: int, **more: Any) -> dict[str, Any]:
    asked = {"custom_id": f"x-{number}", "method": "POST", "url": CHAT, "body": question(number)}
    return {**asked, **more}


async def upload(rig: Rig, lines: Iterable[Any], **more: Any) -> Any:
    data = "\n".join(asked if isinstance(asked, str) else json.dumps(asked) for asked in lines)
    return await rig.openai.files.create(file=("in.jsonl", data.encode()), purpose="batch", **more)


async def create(rig: Rig, count: int = 10, **more: Any) -> Any:
    file = await upload(rig, map(line, range(count)))
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


@pytest.mark.parametrize("time", [100, 0])
def test_an_expired_batch_keeps_what_was_answered(time: float) -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await create(rig)
        rig.clock.now += time
        batch = await rig.openai.batches.retrieve(batch.id)
        assert batch.status == "expired"
        assert batch.expired_at == batch.created_at + time
        answered = await lines_of(rig, batch.output_file_id)
        missed = await lines_of(rig, batch.error_file_id)
        assert {result["error"]["code"] for result in missed} == {"batch_expired"}
        assert (len(answered), len(missed)) == (5, 5)

    rehearsed(story, batch_expire=1.0, batch_time=time)


def test_a_batch_of_one_line_that_expires_is_answered() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await rig.openai.batches.retrieve((await create(rig, 1)).id)
        assert (batch.status, batch.request_counts.completed) == ("expired", 1)

    rehearsed(story, batch_expire=1.0, batch_time=0)


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
        [seen] = rig.server.report()["batches"]["list"]
        assert seen["failed"] == len(failed) == batch.request_counts.failed
        assert seen["billed"] == batch.request_counts.completed == 200 - len(failed)
        assert len(names) - len(set(names)) == seen["doubled"] > 0
        assert seen["billed"] - len(set(names)) == seen["lost"] > 0
        again = await rig.openai.files.content(batch.output_file_id)
        assert again.text.splitlines() == [
            json.dumps(result, separators=(",", ":")) for result in answered
        ]

    rehearsed(story, batch_failing=0.1, batch_lost=0.1, batch_doubled=0.1, batch_time=0)


def test_creations_that_are_limited_or_whose_answers_are_lost() -> None:
    import openai

    async def story(rig: Rig) -> None:
        outcomes: Counter[str] = Counter()
        for _ in range(80):
            try:
                await create(rig, 1)
                outcome = "created"
            except openai.RateLimitError as error:
                outcome = f"wait {error.response.headers['retry-after']}"
            except openai.APIConnectionError:
                outcome = "dropped"
            except openai.InternalServerError:
                outcome = "failed"
            outcomes[outcome] += 1
        assert min(outcomes[name] for name in ("created", "wait 7", "dropped", "failed")) > 4
        assert rig.server.report()["batches"]["created"] == 80 - outcomes["wait 7"]

    rehearsed(story, batch_limited=0.3, batch_unanswered=0.6, retry_after=7)


def test_downloads_that_end_half_way() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await rig.openai.batches.retrieve((await create(rig)).id)
        address, got, cut = f"{rig.url}/files/{batch.output_file_id}/content", list[bytes](), 0
        for _ in range(40):
            try:
                async with rig.http.get(address) as answer:
                    got.append(await answer.read())
            except aiohttp.ClientPayloadError:
                cut += 1
        whole = max(got, key=len)
        assert whole.count(b"\n") == 10
        assert {len(result) for result in got} == {len(whole), len(whole) // 2}
        assert {result for result in got if len(result) == len(whole)} == {whole}
        assert cut > 4
        (seen,) = rig.server.report()["batches"]["list"]
        assert seen["downloads"] == 40
        assert seen["broken"] > cut / 2

    rehearsed(story, batch_broken=0.6, batch_time=0)


def test_results_are_deleted_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    import openai

    monkeypatch.setattr(faulty_server, "KEPT", 50)

    async def story(rig: Rig) -> None:
        batch: Any = await create(rig)
        rig.clock.now += 100
        batch = await rig.openai.batches.retrieve(batch.id)
        rig.clock.now += 49
        assert await lines_of(rig, batch.output_file_id)
        rig.clock.now += 1
        batch = await rig.openai.batches.retrieve(batch.id)
        with pytest.raises(openai.NotFoundError, match="No such File object"):
            await lines_of(rig, batch.output_file_id)

    rehearsed(story, batch_expire=0.0)


def test_files() -> None:
    import openai

    async def story(rig: Rig) -> None:
        file = await upload(rig, [line(1)])
        assert (await rig.openai.files.content(file.id)).text == json.dumps(line(1))
        assert (await rig.openai.files.delete(file.id)).deleted
        with pytest.raises(openai.NotFoundError):
            await rig.openai.files.content(file.id)
        async with rig.http.post(f"{rig.url}/files", json={}) as answer:
            assert answer.status == 400
        with pytest.raises(openai.BadRequestError) as refused:
            await create(rig, 1, input_file_id=file.id)
        assert refused.value.param == "input_file_id"
        with pytest.raises(openai.NotFoundError):
            await rig.openai.batches.retrieve("batch_none")
        assert rig.server.report()["batches"]["created"] == 0

    rehearsed(story)


def test_keys_are_wanted() -> None:
    import openai

    async def story(rig: Rig) -> None:
        for ask in (create(rig), rig.openai.batches.retrieve("batch_1")):
            with pytest.raises(openai.AuthenticationError):
                await ask

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

    faults = {"unreadable": 0.3, "refused": 0.3, "errors": 0.2, "dropped": 0.1, "hung": 0.1}
    rehearsed(story, batch_time=0, **faults)


def test_a_model_that_is_not_known_is_an_error_of_the_line() -> None:
    async def story(rig: Rig) -> None:
        batch: Any = await rig.openai.batches.retrieve((await create(rig, 1)).id)
        assert (batch.status, batch.output_file_id) == ("completed", None)
        [result] = await lines_of(rig, batch.error_file_id)
        assert result["response"]["status_code"] == 404
        assert result["response"]["body"]["error"]["code"] == "model_not_found"

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


def test_other_requests_that_fail() -> None:
    import openai

    async def story(rig: Rig) -> None:
        outcomes: Counter[str] = Counter()
        batch = None
        for _ in range(60):
            try:
                if batch is None:
                    batch = await create(rig, 1)
                await rig.openai.batches.retrieve(batch.id)
                outcomes["answered"] += 1
            except openai.APIError as error:
                outcomes[type(error).__name__] += 1
        names = {"answered", "RateLimitError", "InternalServerError", "APIConnectionError"}
        assert set(outcomes) == names
        assert min(outcomes.values()) > 3

    rehearsed(story, batch_flaky=0.3, batch_time=0)


def test_flags_say_how_batches_behave(tmp_path: Path) -> None:
    import openai

    with mock(tmp_path, "--batch-time", "0", "--unreadable", "1") as url:

        async def story() -> None:
            async with openai.AsyncOpenAI(base_url=url, api_key="sk-1") as client:
                data = json.dumps(line(1)).encode()
                file = await client.files.create(file=("in.jsonl", data), purpose="batch")
                endpoint: Any = CHAT
                batch = await client.batches.create(
                    input_file_id=file.id, endpoint=endpoint, completion_window="24h"
                )
                assert (await client.batches.retrieve(batch.id)).status == "completed"

        asyncio.run(story())
        assert stats(url)["batches"]["billed"] == 1
        assert stats(url)["outcomes"] == {"unreadable": 1}
