"""Fifty people who judge over HTTP, and a server that is killed again and again: every answer that was
acknowledged is in the ledger, once."""

import asyncio
import random
import socket
import subprocess
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np

from tests.cli import json_of, only_run, query, start, wait_until
from tests.people import dataset, number

PEOPLE, ANSWERS, KILLS = 50, 465, 5
TEXTS = 31
AGAIN = 0.1
"""Seconds after which somebody asks again whose server is away, or has nothing for them."""


@dataclass
class Study:
    """A server on a port of its own, killed and started again; what it acknowledged, by the question's
    lease: what was answered, by texts."""

    folder: Path
    port: int
    process: subprocess.Popen[str] | None = None
    said: dict[str, tuple[str, ...]] = field(default_factory=dict)
    kills: int = 0

    def start(self) -> subprocess.Popen[str]:
        """Start the server."""
        self.process = start(
            self.folder,
            *("run", "-d", "texts.csv", "--gold-column", "gold", "--port", str(self.port)),
            *("--judge", "people", "--feature", "size", "--strategy", "complete"),
        )
        return self.process

    async def acknowledged(self, lease: str, texts: tuple[str, ...]) -> None:
        """An answer was acknowledged: now and then the server is killed upon it."""
        self.said[lease] = texts
        if self.kills < KILLS and len(self.said) >= (self.kills + 1) * ANSWERS // (KILLS + 1):
            self.kills += 1
            assert self.process is not None
            self.process.kill()
            await asyncio.to_thread(self.process.communicate)
            self.start()


async def judge(study: Study, session: aiohttp.ClientSession, token: str, seed: int) -> None:
    """Answer until all is judged, whatever the server does."""
    chance, base = random.Random(seed), f"http://127.0.0.1:{study.port}/api"
    headers = {"Authorization": f"Bearer {token}"}

    async def call(what: str, **body: Any) -> tuple[int, Any]:
        while True:
            try:
                async with session.post(f"{base}/{what}", json=body, headers=headers) as response:
                    if response.status != 429:
                        return response.status, await response.json()
                    await asyncio.sleep(float(response.headers["Retry-After"]))
            except (aiohttp.ClientError, OSError):
                await asyncio.sleep(AGAIN)

    status, turn = await call("turn")
    while True:
        assert status in (200, 409), turn
        question = turn["question"] if status == 200 else None
        if question is None:
            if status == 200 and turn["why"] == "over":
                return
            await asyncio.sleep(AGAIN)
            status, turn = await call("turn")
            continue
        seen = [number(text) + chance.gauss(0, 20) for text in question["texts"]]
        ranking = sorted(range(2), key=lambda at: -seen[at])
        status, turn = await call("answer", question=question["id"], ranking=ranking, seconds=1)
        if status == 200:
            texts = tuple(question["texts"][at] for at in ranking)
            await study.acknowledged(question["id"], texts)


async def all_judge(study: Study, tokens: Sequence[str]) -> None:
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        asyncio.TaskGroup() as tasks,
    ):
        for seed, token in enumerate(tokens):
            tasks.create_task(judge(study, session, token, seed))


def free_port() -> int:
    """One that no connection is given by itself: those that ask for a server which is away would at some
    time be connected with themselves."""
    for port in random.Random().sample(range(15_000, 30_000), 100):
        with closing(socket.socket()) as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def answers(port: int) -> bool:
    """Whether the server is there."""
    with closing(socket.socket()) as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


def test_fifty_people_and_five_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    dataset(tmp_path, TEXTS)
    study = Study(tmp_path, free_port())
    wait_until(partial(answers, study.port), study.start())
    names = [f"judge {at}" for at in range(PEOPLE)]
    added = json_of(tmp_path, "annotate", "add", "last", *names)
    tokens = [one["link"].rpartition("#")[2] for one in added["judges"]]
    asyncio.run(all_judge(study, tokens))
    assert study.process is not None
    study.process.communicate()
    assert (study.process.returncode, study.kills) == (0, KILLS)
    run = only_run(tmp_path)
    calls = query(run, "SELECT job, reply, answered_by FROM calls WHERE outcome = 'ok'")
    kept: dict[str, int] = {}
    for job, reply, _ in calls:
        lease = str(reply).partition('"question":"')[2].partition('"')[0]
        assert lease not in kept, "an answer is there twice"
        kept[lease] = job
    assert len(calls) == len(set(kept.values())) == ANSWERS
    assert study.said.keys() <= kept.keys(), "an answer that was acknowledged is lost"
    stored: list[Any] = query(run, "SELECT job, ranking FROM verdicts")
    verdicts = {job: tuple(np.frombuffer(ranking, "<i4").tolist()) for job, ranking in stored}
    for lease, texts in study.said.items():
        assert verdicts[kept[lease]] == tuple(map(number, texts))
    by_person = {(answered_by, frozenset(verdicts[job])) for job, _, answered_by in calls}
    assert len(by_person) == ANSWERS, "nobody was asked the same twice"
