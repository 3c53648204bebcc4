"""Both adapters through whole batches of the mock server, with its faults."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from judgeq import prompts
from judgeq.errors import BatchGoneError, CallError, JudgeError, RateLimitedError
from judgeq.judge.backend import Identified, Remote, Result
from judgeq.judge.batches import api_of
from judgeq.judge.batches.provider import BatchAPI
from judgeq.judge.http.anthropic import AnthropicMessages
from judgeq.judge.http.model_backend import ModelBackend
from judgeq.judge.http.openai import OpenAIChat
from judgeq.mock_server import MockServer, batches, running
from judgeq.settings.model import Access, Model
from judgeq.types import Match
from tests import faulty_server
from tests.anthropic_server import AnthropicServer
from tests.fakes import Clock
from tests.faulty_server import FaultySettings
from tests.test_openai_chat import request

Form = Literal["openai", "anthropic"]
BIAS = prompts.load("bias")
NAME = "jq-0a1b2c3d"
forms = pytest.mark.parametrize("form", ["openai", "anthropic"])


class Rig(NamedTuple):
    """A batch API at a mock server, the backend that it is beside, and the server's clock."""

    api: BatchAPI
    backend: ModelBackend
    server: MockServer
    clock: Clock


def rehearsed(form: Form, story: Callable[[Rig], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        clock = Clock()
        made = FaultySettings(port=0, **{"batch_time": 100.0, **settings})
        server = AnthropicServer(made, clock=clock)
        async with running(server) as url:
            kind = AnthropicMessages if form == "anthropic" else OpenAIChat
            backend = kind("m", Model(base_url=url, api=form), Access(), None)
            await backend.open()
            try:
                await story(Rig(api_of(backend), backend, server, clock))
            finally:
                await backend.close()

    asyncio.run(run())


def lines(rig: Rig, count: int = 10, name: str = NAME) -> io.BytesIO:
    bodies = [rig.backend.prepare(request(Match(n, 1, (0, 1)))).body for n in range(count)]
    return io.BytesIO(b"".join(rig.api.line(f"{name}-{n}", body) for n, body in enumerate(bodies)))


async def ended(rig: Rig, remote: Remote) -> Remote:
    rig.clock.now += 1_000_000
    return await rig.api.get(remote.id)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def collected(rig: Rig, remote: Remote, folder: Path) -> list[Result]:
    files = await rig.api.download(remote, folder)
    return [result for file in files for result in rig.api.results(file)]


@forms
def test_a_batch_goes_out_and_its_results_are_read_as_live_answers_are(
    form: Form, tmp_path: Path
) -> None:
    async def story(rig: Rig) -> None:
        file = lines(rig)
        file.read()  # wherever it stands
        made = await rig.api.create(NAME, file)
        assert (made.stands, made.results) == ("working", [])
        remote = await ended(rig, made)
        assert (remote.stands, remote.total, remote.done, remote.failed) == ("ended", 10, 10, 0)
        results = await collected(rig, remote, tmp_path)
        assert sorted(r.custom_id for r in results) == sorted(f"{NAME}-{n}" for n in range(10))
        for result in results:
            reply = rig.backend.read_result(result, 400, rig.backend.form)
            assert reply.problem is None
            assert reply.usage.input > 0
            assert "winner" in reply.text

    rehearsed(form, story)


@forms
def test_what_failed_beside_what_succeeded_is_read(form: Form, tmp_path: Path) -> None:
    async def story(rig: Rig) -> None:
        remote = await ended(rig, await rig.api.create(NAME, lines(rig, 40)))
        assert remote.done + remote.failed == 40
        results = await collected(rig, remote, tmp_path)
        assert len(results) == 40
        bad = [result for result in results if result.status != 200]
        assert len(bad) == remote.failed > 0
        for result in bad:
            with pytest.raises(JudgeError):
                rig.backend.read_result(result, 400, rig.backend.form)

    rehearsed(form, story, batch_failing=0.4)


@forms
def test_a_cancelled_batch_ends_and_cancelling_again_is_no_error(
    form: Form, tmp_path: Path
) -> None:
    async def story(rig: Rig) -> None:
        made = await rig.api.create(NAME, lines(rig))
        rig.clock.now += 50
        assert (await rig.api.cancel(made.id)).stands == "working"
        remote = await ended(rig, made)
        assert remote.stands == "ended"
        assert (await rig.api.cancel(made.id)).stands == "ended"
        kinds = {result.ended for result in await collected(rig, remote, tmp_path)}
        assert kinds == {None, "cancelled"}

    rehearsed(form, story)


def test_a_batch_that_failed_its_validation_says_which_line_and_why() -> None:
    async def story(rig: Rig) -> None:
        remote = await ended(rig, await rig.api.create(NAME, lines(rig)))
        assert remote.stands == "refused"
        assert not remote.full
        assert any(problem.startswith("line ") for problem in remote.problems)

    rehearsed("openai", story, batch_invalid=1.0)


@forms
def test_a_broken_download_leaves_nothing_and_can_be_tried_again(
    form: Form, tmp_path: Path
) -> None:
    async def story(rig: Rig) -> None:
        remote = await ended(rig, await rig.api.create(NAME, lines(rig)))
        failures = 0
        for _ in range(60):
            try:
                results = await collected(rig, remote, tmp_path)
            except CallError:
                failures += 1
                assert names(tmp_path) == []
            else:
                break
        assert failures
        assert len(results) == 10

    rehearsed(form, story, batch_broken=0.9)


@forms
def test_results_that_were_deleted_are_gone(
    form: Form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faulty_server, "KEPT", 200.0)

    async def story(rig: Rig) -> None:
        made = await rig.api.create(NAME, lines(rig))
        rig.clock.now += 150
        remote = await rig.api.get(made.id)
        rig.clock.now += 1_000
        with pytest.raises(BatchGoneError) as raised:
            await rig.api.download(remote, tmp_path)
        assert raised.value.cost is None
        with pytest.raises(BatchGoneError):
            await rig.api.get("batch_nobody")

    rehearsed(form, story)


@forms
def test_a_batch_that_is_limited_is_believed_when_the_list_agrees(form: Form) -> None:
    async def story(rig: Rig) -> None:
        with pytest.raises(RateLimitedError) as raised:
            await rig.api.create(NAME, lines(rig))
        assert raised.value.cost is None
        assert raised.value.retry_after
        assert await rig.api.identify(NAME, 10, 0.0, ()) == Identified(None, [])

    rehearsed(form, story, batch_limited=1.0)


@forms
def test_a_batch_whose_creation_got_no_answer_is_known_again(
    form: Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LARGEST_PAGE", 3)

    async def story(rig: Rig) -> None:
        before = 0.0
        with pytest.raises(CallError) as raised:
            await rig.api.create(NAME, lines(rig))
        assert raised.value.cost is None
        for other in range(7):
            with pytest.raises(CallError):
                await rig.api.create(f"jq-other{other}", lines(rig, name=f"jq-other{other}"))
        early = await rig.api.identify(NAME, 10, before, ())
        if form == "anthropic":
            assert early.remote is None
            assert len(early.doubtful) == 8
        else:
            assert early.remote is not None
        rig.clock.now += 1_000
        late = await rig.api.identify(NAME, 10, before, ())
        assert late.remote is not None
        assert late.remote.stands == "ended"
        assert not late.doubtful
        assert await rig.api.identify("jq-nobody", 10, before, ()) == Identified(None, [])
        if form == "anthropic":
            none = Identified(None, [])
            assert await rig.api.identify(NAME, 9, before, ()) == none
            assert await rig.api.identify(NAME, 10, before, [late.remote.id]) == none
            assert await rig.api.identify(NAME, 10, late.remote.made + 601, ()) == none

    rehearsed(form, story, batch_unanswered=1.0)
