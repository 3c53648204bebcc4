"""Fifty people who judge over HTTP, and a server that is killed again and again: every answer that was
acknowledged is in the ledger, once."""

import asyncio
import hashlib
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

from judgeq.person import Person
from judgeq.store.sqlite import SqliteStore
from judgeq.types import Verdict
from tests.cli import end_started, only_run, query, start, wait_until
from tests.judging import dataset, number

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

    @property
    def base(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Start the server."""
        self.process = start(
            self.folder,
            *("run", "-d", str(self.folder / "texts.csv"), "--gold-column", "gold"),
            *("--judge", "people", "--feature", "size", "--strategy", "complete"),
            *("--port", str(self.port)),
        )

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
    chance = random.Random(seed)

    async def call(what: str, **body: Any) -> tuple[int, Any]:
        while True:
            try:
                async with session.post(
                    f"{study.base}api/{what}",
                    json=body,
                    headers={"Authorization": f"Bearer {token}"},
                ) as response:
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


def put_in(run: Path, tokens: Sequence[str]) -> None:
    async def put() -> None:
        store = SqliteStore(run / "run.db")
        for at, token in enumerate(tokens):
            digest = hashlib.sha256(token.encode()).digest()
            await store.put_person(Person(at, f"judge {at}", digest))
        await store.close()

    asyncio.run(put())


def test_fifty_people_and_five_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    dataset(tmp_path, TEXTS)
    study = Study(tmp_path, free_port())
    tokens = [f"token-of-judge-{at}" for at in range(PEOPLE)]
    try:
        study.start()
        assert study.process is not None
        wait_until(partial(answers, study.port), study.process)
        study.process.kill()
        study.process.communicate()
        run = only_run(tmp_path)
        put_in(run, tokens)
        study.start()
        asyncio.run(all_judge(study, tokens))
        study.process.communicate()
        assert study.process.returncode == 0
    finally:
        end_started()
    assert study.kills == KILLS
    calls = query(run, "SELECT job, reply, answered_by FROM calls WHERE outcome = 'ok'")
    kept: dict[str, int] = {}
    for job, reply, _ in calls:
        lease = str(reply).partition('"question":"')[2].partition('"')[0]
        assert lease not in kept, "an answer is there twice"
        kept[lease] = job
    assert len(calls) == len(set(kept.values())) == ANSWERS
    assert study.said.keys() <= kept.keys(), "an answer that was acknowledged is lost"
    verdicts = dict(_verdicts(run))
    for lease, texts in study.said.items():
        assert verdicts[kept[lease]].items == tuple(map(number, texts))
    by_person = {(answered_by, frozenset(verdicts[job].items)) for job, _, answered_by in calls}
    assert len(by_person) == ANSWERS, "nobody was asked the same twice"


def _verdicts(run: Path) -> list[tuple[int, Verdict]]:
    async def read() -> list[tuple[int, Verdict]]:
        store = SqliteStore(run / "run.db", read_only=True)
        verdicts = await store.verdicts()
        await store.close()
        return [
            (job, Verdict(tuple(verdicts.items[2 * at : 2 * at + 2].tolist())))
            for at, job in enumerate(verdicts.matches.tolist())
        ]

    return asyncio.run(read())
