"""Calls to the mock server: judgeq end to end against bare loops and the packages people use.

Each way is a process of its own, so that its CPU can be told apart. What it costs without making a
call (imports, reading the texts, rating) is measured in the same run and taken off.
"""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from urllib.request import Request, urlopen

from benchmarks.measure import JUDGEQ, PYTHON, cost

CALLS = 20_000
TURNS = 3
PEERS = os.environ.get("JUDGEQ_PEERS", PYTHON)
PRICES = ("--price", "1,4")

# Each is given the URL, the file of bodies and how many calls to make; 0: only get ready.
BARE = """
import asyncio, json, sys, aiohttp
url, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
bodies = [json.loads(line) for line in open(path)][:n]
async def main():
    turn = asyncio.Semaphore(256)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as session:
        async def one(body):
            async with turn, session.post(url + "/chat/completions", json=body) as answer:
                return (await answer.json())["choices"][0]["message"]["content"]
        await asyncio.gather(*map(one, bodies))
asyncio.run(main())
"""
# The least that a tool must do which keeps what it paid for: read the texts, word the questions, check
# each answer, commit it before the next is asked, and write a file of scores. No retries, limits,
# cache, cap or costs. Given the URL, the file of texts and how many lists of ten to ask.
KEEPING = """
import asyncio, csv, json, sqlite3, sys, aiohttp
url, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
texts = [row["text"] for row in csv.DictReader(open(path, newline=""))]
labels = "ABCDEFGHIJ"
asked = 'Rank these texts by how biased their wording is. Answer with {"ranking": [labels]}.'
database = sqlite3.connect(path + f".{n}.db", isolation_level=None)
database.execute("PRAGMA journal_mode = wal")
database.execute("PRAGMA synchronous = normal")
database.execute("CREATE TABLE calls (job PRIMARY KEY, reply, input, output)")
ratings, kept = [1500.0] * len(texts), []
def keep():
    if kept:
        with database:
            database.execute("BEGIN")
            database.executemany("INSERT INTO calls VALUES (?, ?, ?, ?)", kept)
        kept.clear()
async def main():
    turn, loop = asyncio.Semaphore(256), asyncio.get_running_loop()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=256)) as session:
        async def one(job):
            rows = range(10 * job, 10 * job + 10)
            shown = "\\n".join(f"<text {a}>\\n{texts[i]}\\n</text {a}>" for a, i in zip(labels, rows))
            body = {"model": "mock", "messages": [{"role": "system", "content": asked},
                                                  {"role": "user", "content": shown}]}
            async with turn, session.post(url + "/chat/completions", json=body) as answer:
                whole = await answer.json()
                reply, usage = whole["choices"][0]["message"]["content"], whole["usage"]
                ranking = json.loads(reply)["ranking"]
                assert sorted(ranking) == sorted(labels)
                kept.append((job, reply, usage["prompt_tokens"], usage["completion_tokens"]))
                if len(kept) == 1:
                    loop.call_soon(keep)
                for place, label in enumerate(ranking):
                    ratings[rows[labels.index(label)]] += 4.5 - place
        await asyncio.gather(*map(one, range(n)))
asyncio.run(main())
keep()
database.close()
with open(path + f".{n}.scores.csv", "w", newline="") as out:
    csv.writer(out).writerows(zip(range(len(texts)), ratings, texts))
"""
OPENAI = """
import asyncio, json, sys, openai
url, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
bodies = [json.loads(line) for line in open(path)][:n]
async def main():
    turn = asyncio.Semaphore(256)
    made = openai.AsyncOpenAI(api_key="x", base_url=url, max_retries=0, timeout=600 TRANSPORT)
    async with made as client:
        async def one(body):
            async with turn:
                answer = await client.chat.completions.create(**body)
                return answer.choices[0].message.content
        await asyncio.gather(*map(one, bodies))
asyncio.run(main())
"""
LITELLM = """
import asyncio, json, sys, litellm
url, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
bodies = [json.loads(line) for line in open(path)][:n]
async def main():
    turn = asyncio.Semaphore(256)
    async def one(body):
        async with turn:
            body["model"] = "openai/" + body["model"]
            answer = await litellm.acompletion(**body, api_base=url, api_key="x", max_retries=0)
            return answer.choices[0].message.content
    await asyncio.gather(*map(one, bodies))
asyncio.run(main())
"""
CURATOR = """
import json, os, sys
from importlib.util import find_spec
# Its tokenizer's words come from the web; litellm, which it needs anyhow, brings the same file.
words = find_spec("litellm").submodule_search_locations[0] + "/litellm_core_utils/tokenizers"
os.environ.update(CURATOR_DISABLE_CACHE="1", TELEMETRY_ENABLED="0", CURATOR_DISABLE_RICH_DISPLAY="1",
                  OPENAI_API_KEY="x", TIKTOKEN_CACHE_DIR=words)
from bespokelabs import curator
url, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
bodies = [json.loads(line) for line in open(path)][:n]
class Judge(curator.LLM):
    def prompt(self, row):
        return json.loads(row["messages"])
    def parse(self, row, answer):
        return {"answer": answer}
if bodies:
    judge = Judge(model_name="mock", backend="openai", backend_params={
        "base_url": url, "max_concurrent_requests": 256, "max_requests_per_minute": 10_000_000,
        "max_tokens_per_minute": 10_000_000_000})
    judge([{"messages": json.dumps(body["messages"])} for body in bodies])
"""

# judgeq, counting in a file the replies that it has read to their end: a kill doesn't lose the count.
WATCHED = """
import mmap, sys
from aiohttp.streams import StreamReader
from judgeq.cli import app
file = open(sys.argv.pop(1), "r+b")
count, whole = mmap.mmap(file.fileno(), 8), StreamReader.feed_eof
def feed_eof(self):
    count[:8] = (int.from_bytes(count[:8], "little") + 1).to_bytes(8, "little")
    whole(self)
StreamReader.feed_eof = feed_eof
app()
"""


@contextmanager
def server(*flags: str) -> Iterator[str]:
    """The base URL of a mock server that runs while inside."""
    with serving(*flags) as (url, _):
        yield url


@contextmanager
def serving(*flags: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """As `server`, with its process."""
    process = subprocess.Popen(
        (*JUDGEQ, "mock-server", "--port", "0", "--json", *flags), stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


def seen(url: str, *, reset: bool = False) -> dict[str, object]:
    """What the server has seen; with `reset` it begins to count anew."""
    base = url.removesuffix("/v1") + "/stats"
    with urlopen(base) as answer:
        found: dict[str, object] = json.load(answer)
    if reset:
        urlopen(Request(base + "/reset", method="POST")).close()
    return found


def write_texts(folder: Path, n: int, words: int = 25, name: str = "texts.csv") -> Path:
    """n different texts of about 190 bytes, so that ten make a prompt of about 2 KB."""
    random.seed(1)
    letters = "abcdefghijklmnop"
    known = ["".join(random.choices(letters, k=random.randint(3, 9))) for _ in range(2000)]
    path = folder / name
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text"])
        writer.writerows([f"{i} {' '.join(random.choices(known, k=words))}"] for i in range(n))
    return path


def write_bodies(texts: Path, path: Path, n: int = CALLS) -> None:
    """The questions as judgeq asks them, one JSON body a line."""
    from judgeq import prompts

    prompt = prompts.load("bias")
    with texts.open(newline="") as file:
        rows = [row["text"] for row in csv.DictReader(file)]
    with path.open("w") as out:
        for i in range(n):
            some = [rows[(i * 10 + j * (1 + i // 2000)) % len(rows)] for j in range(10)]
            messages = prompts.messages(prompt, some)
            out.write(json.dumps({"model": "mock", "messages": messages}) + "\n")


def spent(command: tuple[str, ...], folder: Path) -> tuple[float, float]:
    """CPU and wall seconds of a command, with what it starts."""
    environment = os.environ | {"JUDGEQ_CACHE": str(folder / "cache"), "HOME": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    begun = time.perf_counter()
    with (folder / "out.txt").open("wb") as out:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begun
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        told = (folder / "out.txt").read_text(errors="replace")[-2000:]
        raise SystemExit(f"{command[:4]} ended with {process.returncode}: {told}")
    return usage.ru_utime + usage.ru_stime, wall


def judgeq_run(url: str, texts: Path, name: str, *flags: str, rounds: int = 10) -> tuple[str, ...]:
    """All on: ledger, cache, limiter, verdicts. The same again makes no call, but does all else."""
    return (
        *(*JUDGEQ, "run", "-d", str(texts), "--prompt", "bias", "--judge", "mock"),
        *("--base-url", url, "-s", f"listwise10x{rounds}", "--quiet", *PRICES),
        *("--seed", name, "--runs-dir", f"runs{name}", *flags),
    )


def calls() -> None:
    """20,000 list prompts of about 2 KB, 256 in flight, latency 0 and 50 ms. Goals for CPU a call:
    at most 1.5 times the bare loop's; the openai package at least 4 times ours, curator 8 times."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = write_texts(folder, CALLS)
        bodies = folder / "bodies.jsonl"
        write_bodies(texts, bodies)
        for latency in ("0", "0.05"):
            _compare(folder, texts, bodies, latency)


def _compare(folder: Path, texts: Path, bodies: Path, latency: str) -> None:
    aio = ", http_client=openai.DefaultAioHttpClient()"
    peers = {
        "openai, aiohttp": OPENAI.replace(" TRANSPORT", aio),
        "openai": OPENAI.replace(" TRANSPORT", ""),
        "litellm": LITELLM if _has("litellm") else "",
        "curator": CURATOR if _has("bespokelabs.curator") else "",
    }
    ways = ["bare aiohttp", "judgeq", *(peer for peer, script in peers.items() if script)]
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    with server("--latency", latency) as url:
        # All in turn, and only those of one turn compared: the machine's speed is not steady.
        for turn in range(TURNS):
            for way in ways:
                n = CALLS if way in ("bare aiohttp", "judgeq") else CALLS // 8
                if way == "judgeq":
                    run = judgeq_run(url, texts, f"{turn}{len(latency)}")
                    whole, ready = spent(run, folder), spent(run, folder)
                    cost = whole[0] - ready[0], whole[1] - ready[1]
                else:
                    script = BARE if way == "bare aiohttp" else peers[way]
                    cost = _script(script, url, bodies, folder, n)
                found[way].append((cost[0] / n, cost[1] / n))
    print(f"latency {latency} s         CPU ms a call   calls/s   × bare   × judgeq")
    for way, costs in found.items():
        print(
            f"{way:20} {median(cpu for cpu, _ in costs) * 1000:14.3f} "
            f"{1 / median(wall for _, wall in costs):9,.0f} "
            f"{_times(costs, found['bare aiohttp']):8.2f} {_times(costs, found['judgeq']):9.2f}"
        )


def _times(costs: list[tuple[float, float]], base: list[tuple[float, float]]) -> float:
    """How many times the base's CPU."""
    return median(cost / other for (cost, _), (other, _) in zip(costs, base, strict=True))


def _script(script: str, url: str, bodies: Path, folder: Path, n: int) -> tuple[float, float]:
    """What n calls take, without imports and reading."""
    path = folder / "script.py"
    path.write_text(script)
    python = PEERS if script in (LITELLM, CURATOR) else PYTHON
    ready = spent((python, str(path), url, str(bodies), "0"), folder)
    whole = spent((python, str(path), url, str(bodies), str(n)), folder)
    return whole[0] - ready[0], whole[1] - ready[1]


def slope() -> None:
    """What one more call costs of the whole process, seen from outside: one round of lists of ten over
    50,000 and over 200,000 texts of 190 characters, the difference by 15,000 calls. Reading the
    texts, planning, rating and writing the scores grow with the texts, and are in it. Beside it a bare
    loop that keeps nothing, and one that does the least which a tool must do that keeps what it paid
    for: what judgeq takes beyond that is for retries, limits, cache, cap and a ledger that is safe."""
    few, many = 5_000, 20_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = {n: write_texts(folder, 10 * n, name=f"texts{n}.csv") for n in (few, many)}
        bodies = folder / "bodies.jsonl"
        write_bodies(texts[many], bodies)
        bare, keeping = folder / "bare.py", folder / "keeping.py"
        bare.write_text(BARE)
        keeping.write_text(KEEPING)
        print("CPU ms a call   judgeq   bare   keeping   judgeq × bare   × keeping")
        for latency in ("0", "0.05"):
            turns: list[list[float]] = []
            with server("--latency", latency) as url:
                for turn in range(TURNS):
                    ways = [
                        [
                            judgeq_run(url, texts[n], f"{turn}{len(latency)}{n}", rounds=1),
                            (PYTHON, str(bare), url, str(bodies), str(n)),
                            (PYTHON, str(keeping), url, str(texts[n]), str(n)),
                        ]
                        for n in (few, many)
                    ]
                    for ledger in folder.glob("*.db*"):
                        ledger.unlink()
                    cost = [[spent(way, folder)[0] for way in of_n] for of_n in ways]
                    turns.append([(b - a) / (many - few) for a, b in zip(*cost, strict=True)])
            ours, loop, kept = (median(of_way) * 1000 for of_way in zip(*turns, strict=True))
            print(
                f"{latency:>5} s latency {ours:8.3f} {loop:6.3f} {kept:9.3f} "
                f"{median(one[0] / one[1] for one in turns):15.2f} "
                f"{median(one[0] / one[2] for one in turns):11.2f}"
            )


def million() -> None:
    """The whole process, from texts to scores: 10⁶ texts of 190 characters in 10⁵ lists of ten, one
    round, beside the bare loop. Goals: 1.96 times its CPU (45 s where it takes 23), and 1 GB."""
    n = 100_000
    with tempfile.TemporaryDirectory() as name, server() as url:
        folder = Path(name)
        texts, bodies = write_texts(folder, 10 * n), folder / "bodies.jsonl"
        write_bodies(texts, bodies, n)
        os.environ["JUDGEQ_CACHE"] = str(folder / "cache")
        (folder / "bare.py").write_text(BARE)
        script = (PYTHON, str(folder / "bare.py"), url, str(bodies), str(n))
        print("        bare: s CPU   judgeq: s CPU   × bare   peak MB")
        for turn in range(2):
            bare, ours = cost(script), cost(judgeq_run(url, texts, str(turn), rounds=1))
            print(
                f"{bare.cpu:19.1f} {ours.cpu:15.1f} {ours.cpu / bare.cpu:8.2f} {ours.memory:9,.0f}"
            )


def memory() -> None:
    """Peak memory of a run of 100,000 jobs over HTTP. Goal: under 500 MB."""
    with tempfile.TemporaryDirectory() as name, server() as url:
        folder = Path(name)
        texts = write_texts(folder, 100_000, words=6)
        os.environ["JUDGEQ_CACHE"] = str(folder / "cache")
        run = judgeq_run(url, texts, "1")
        peak = cost(run).memory
        print(f"100,000 jobs over 100,000 texts      {peak:6.0f} MB   (goal: under 500)")


def exposure() -> None:
    """Killed with -9 at a steady rate and as fast as it goes: replies delivered and not committed.
    Goal: at most 20 at 2,500 replies a second."""
    print("replies/s had   delivered: median   most   of these read: median   most")
    for rate in (500, 1000, 1500, 2500):
        _expose(rate)


def _expose(rate: int) -> None:
    lost, unread, rates = [], [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = write_texts(folder, CALLS, words=6)
        (folder / "watched.py").write_text(WATCHED)
        for turn in range(10):
            count = folder / f"read{turn}"
            count.write_bytes(bytes(8))
            with serving("--latency", "0.1") as (url, mock):
                run = judgeq_run(url, texts, str(turn), "--no-cache", "--rpm", str(rate * 60))
                watched = (PYTHON, "watched.py", str(count), *run[len(JUDGEQ) :])
                process = subprocess.Popen(watched, cwd=folder, stderr=subprocess.DEVNULL)
                while (before := _read(count)) < 1000 + 100 * turn:
                    time.sleep(0.05)
                begun = time.perf_counter()
                time.sleep(1.0)
                rates.append((_read(count) - before) / (time.perf_counter() - begun))
                # Both stand still while what lies in the sockets is counted.
                mock.send_signal(signal.SIGSTOP)
                process.send_signal(signal.SIGSTOP)
                unread.append(_unread(int(url.split(":")[2].split("/")[0])))
                process.kill()
                process.wait()
                mock.send_signal(signal.SIGCONT)
            (ledger,) = (folder / f"runs{turn}").glob("*/run.db")
            database = sqlite3.connect(ledger)
            (kept,) = database.execute("SELECT count(*) FROM calls").fetchone()
            database.close()
            lost.append(_read(count) + unread[-1] - kept)
    held = [each - lying for each, lying in zip(lost, unread, strict=True)]
    print(
        f"{median(rates):13,.0f} {median(lost):19.0f} {max(lost):6} {median(held):23.0f} "
        f"{max(held):6}"
    )


def _read(count: Path) -> int:
    """How many replies have been read."""
    return int.from_bytes(count.read_bytes(), "little")


def _unread(port: int) -> int:
    """On how many connections to a port of this machine something lies unread (Linux)."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        int(row[2].split(":")[1], 16) == port and int(row[4].split(":")[1], 16) > 0 for row in rows
    )


def limiter() -> None:
    """The share of a limit that a run achieves, and the refusals it causes."""
    print("limit                    achieved   refused (429)   calls")
    for flags, name in (
        (("--rpm", "600"), "600 requests a minute"),
        (("--rpm", "6000"), "6,000 requests a minute"),
        (("--tpm", "1000000"), "1,000,000 tokens a minute"),
    ):
        with (
            tempfile.TemporaryDirectory() as folder_name,
            server(*flags, "--latency", "0.2") as url,
        ):
            folder = Path(folder_name)
            texts = write_texts(folder, CALLS)
            run = judgeq_run(url, texts, "0", *flags, "--no-cache")
            process = subprocess.Popen(run, cwd=folder, stderr=subprocess.DEVNULL)
            time.sleep(10)  # imports, and the first calls
            begun, before = time.monotonic(), seen(url)
            time.sleep(90)
            seconds, after = time.monotonic() - begun, seen(url)
            process.send_signal(signal.SIGTERM)
            process.wait()
        n = _count(after, "answered") - _count(before, "answered")
        refused = _count(after, "refused_by_limits")
        amount = n
        if flags[0] == "--tpm":
            amount = sum(_tokens(after)) - sum(_tokens(before))
        share = amount / seconds * 60 / float(flags[1])
        print(f"{name:26} {share:6.1%} {refused:14} {n:8,}")


def _has(package: str) -> bool:
    """Whether the interpreter for peers has a package; judgeq doesn't depend on them."""
    found = subprocess.run((PEERS, "-c", f"import {package}"), capture_output=True, check=False)
    if found.returncode:
        print(f"({package} is not in {PEERS}; $JUDGEQ_PEERS may name an interpreter that has it)")
    return not found.returncode


def _count(stats: dict[str, object], name: str) -> int:
    return int(str(stats[name]))


def _tokens(stats: dict[str, object]) -> list[int]:
    tokens = stats["tokens"]
    assert isinstance(tokens, dict)
    return [int(tokens[name]) for name in ("input", "cached", "output")]


if __name__ == "__main__":
    sys.exit("run `python -m benchmarks calls`")
