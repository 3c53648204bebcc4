"""`python -m benchmarks [name …]`: print the numbers."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from benchmarks.calls import calls, exposure, limiter, memory, million, slope
from benchmarks.comparing import comparing
from benchmarks.coverage import coverage, once, strategies
from benchmarks.differences import differences
from benchmarks.drift import drift
from benchmarks.growing import growing
from benchmarks.hybrid import hybrid, recorded
from benchmarks.information import buying, rounds
from benchmarks.measure import JUDGEQ, PYTHON, by_turns, cost, cpu
from benchmarks.ratings import ratings
from benchmarks.reading import reading
from benchmarks.reporting import report
from benchmarks.stores import plans, stores
from benchmarks.thresholds import humps, thresholds


def help_() -> None:
    """`judgeq --help` against a bare import of its two face libraries. Goal: under 3 times."""
    ours, bare = by_turns(
        7,
        ((*JUDGEQ, "--help"), False),
        ((PYTHON, "-c", "import click, rich"), False),
    )
    print(f"judgeq --help                        {cpu(ours):6.3f} s CPU")
    print(f'python -c "import click, rich"       {cpu(bare):6.3f} s CPU')
    print(f"ratio                                {cpu(ours) / cpu(bare):6.2f}   (goal: under 3)")


def babe() -> None:
    """All of BABE, from start to scores. Goal: under 3 s of CPU."""
    job = (*JUDGEQ, "run", "--dataset", "babe", "--strategy", "listwise10", "--quiet")
    libraries = "import asyncio, numpy, orjson, pydantic, rich, sqlite3, tenacity, click"
    ours, bare = by_turns(5, (job, False), ((PYTHON, "-c", libraries), False))
    print(f"judgeq run --dataset babe            {cpu(ours):6.3f} s CPU   (goal: under 3)")
    print(f"importing its libraries alone        {cpu(bare):6.3f} s CPU")
    print(f"ratio                                {cpu(ours) / cpu(bare):6.2f}")


def imported() -> None:
    """113,638 votes on pairs of 4,000 texts, ties among them: their import, and the evaluation of its
    scores. Goal: 3 s of CPU together."""
    random = np.random.default_rng(0)
    latent = random.normal(0, 1, 4000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "texts.csv").open("w") as file:
            file.write("id,gold,text\n")
            file.writelines(f"t{i},{x:.3f},text {i}\n" for i, x in enumerate(latent.tolist()))
        with (folder / "votes.jsonl").open("w") as file:
            for _ in range(113_638):
                i, further = random.integers((4000, 3999)).tolist()
                j = (i + 1 + further) % 4000
                gap = latent[i] - latent[j] + random.logistic()
                winner = "tie" if abs(gap) < 0.3 else f"t{i if gap > 0 else j}"
                vote = {"presented": [f"t{i}", f"t{j}"], "winner": winner}
                file.write(json.dumps(vote) + "\n")
        data = ("--dataset", str(folder / "texts.csv"), "--gold-column", "gold")
        runs = ("--runs-dir", str(folder / "runs"))
        for _ in range(3):
            read = cost((*JUDGEQ, "import", *data, str(folder / "votes.jsonl"), "--new", *runs))
            evaluated = cost((*JUDGEQ, "evaluate", *runs))
            print(f"import {read.cpu:6.2f} s, evaluate {evaluated.cpu:6.2f} s   (goal: 3 together)")


def scaling() -> None:
    """10⁴ to 10⁶ items, 3 rounds of lists of 10. Goals: at 10⁵ items 5,000 durable jobs a second
    end to end and under 1 GB; time growing no faster than n·log n."""
    print("    items      jobs    wall s   jobs/s   × floor   peak MB   growth   n·log n")
    before: tuple[int, float] | None = None
    for n in (10_000, 100_000, 1_000_000):
        jobs = 3 * math.ceil(n / 10)
        floor = _floor(jobs)
        job = (*JUDGEQ, "run", "--dataset", "synthetic:normal", "--n", str(n), "--quiet")
        best = min((cost(job) for _ in range(3 if n < 1_000_000 else 2)), key=lambda c: c.wall)
        growth = allowed = ""
        if before is not None:
            growth = f"{best.wall / before[1]:.1f}×"
            allowed = f"{n * math.log(n) / (before[0] * math.log(before[0])):.1f}×"
        print(
            f"{n:9,} {jobs:9,} {best.wall:9.2f} {jobs / best.wall:8,.0f} {best.wall / floor:9.1f} "
            f"{best.memory:9,.0f} {growth:>8} {allowed:>9}"
        )
        before = n, best.wall
    print("floor: committing as many small rows to SQLite (WAL), 64 at a time, and nothing else")


def _floor(jobs: int) -> float:
    """Seconds to commit this many rows of a reply's size, 64 at a time, as the queue does."""
    reply = '{"ranking":["A","B","C","D","E","F","G","H","I","J"]}'
    with tempfile.TemporaryDirectory() as folder:
        database = sqlite3.connect(Path(folder) / "floor.db", isolation_level=None)
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("CREATE TABLE calls (id INTEGER PRIMARY KEY, reply TEXT)")
        begun = time.perf_counter()
        for start in range(0, jobs, 64):
            database.execute("BEGIN")
            database.executemany(
                "INSERT INTO calls VALUES (?, ?)",
                [(row, reply) for row in range(start, min(start + 64, jobs))],
            )
            database.execute("COMMIT")
        seconds = time.perf_counter() - begun
        database.close()
    return seconds


def dashboard() -> None:
    """The same run with the dashboard drawn on a terminal, and quiet. Goal: under 5 % more CPU."""
    job = (*JUDGEQ, "run", "--dataset", "synthetic:normal", "--n", "20000", "--sim-latency", "0.2")
    on, off = by_turns(7, (job, True), ((*job, "--quiet"), False))
    print(f"dashboard on                         {cpu(on):6.3f} s CPU")
    print(f"dashboard off (--quiet)              {cpu(off):6.3f} s CPU")
    more = (cpu(on) / cpu(off) - 1) * 100
    print(f"more                                 {more:6.1f} %  (goal: under 5)")


def simulation() -> None:
    """The whole paper grid: 528 cases, each rated by Elo and BT. Goal: under 60 s on two cores."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "study"
        job = (*JUDGEQ, "simulate", "--grid", "paper", "--quiet")
        ours = cost((*job, "--out", str(out)))
        with (out / "study.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
    drawn = sum(int(row["implied_pairs"]) for row in rows) // 2
    begun = time.process_time()
    random = np.random.default_rng(0)
    right = sum(int((random.random(100_000) < 0.8).sum()) for _ in range(0, drawn, 100_000))
    floor = time.process_time() - begun
    print(f"528 cases, {drawn:,} judged pairs     {ours.wall:6.1f} s   (goal: under 60)")
    print(f"CPU                                  {ours.cpu:6.1f} s")
    print(f"drawing {right / drawn:.0%} of as many coins alone    {floor:6.2f} s CPU")
    print(f"ratio                                {ours.cpu / floor:6.0f}")


BENCHMARKS: Mapping[str, Callable[[], None]] = {
    "help": help_,
    "babe": babe,
    "imported": imported,
    "scaling": scaling,
    "dashboard": dashboard,
    "calls": calls,
    "slope": slope,
    "million": million,
    "memory": memory,
    "exposure": exposure,
    "limiter": limiter,
    "simulation": simulation,
    "comparing": comparing,
    "differences": differences,
    "drift": drift,
    "ratings": ratings,
    "report": report,
    "reading": reading,
    "thresholds": thresholds,
    "humps": humps,
    "hybrid": hybrid,
    "recorded": recorded,
    "growing": growing,
    "coverage": coverage,
    "once": once,
    "strategies": strategies,
    "rounds": rounds,
    "buying": buying,
    "stores": stores,
    "plans": plans,
}


def main() -> None:
    chosen = sys.argv[1:] or list(BENCHMARKS)
    for name in chosen:
        if name not in BENCHMARKS:
            raise SystemExit(f"no benchmark {name!r}; there are {', '.join(BENCHMARKS)}")
        print(f"── {name} ──")
        BENCHMARKS[name]()
        print()


if __name__ == "__main__":
    main()
