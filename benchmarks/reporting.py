"""What a report takes."""

from __future__ import annotations

import csv
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measure import JUDGEQ, cost

WORDS = 33
"""Of a text: with the spaces as long as one of BABE's."""


def report() -> None:
    """A report of 240 and of 10,000 texts of BABE's length, all of them in its table. Goals: under 1 MB
    and 15 MB; the larger under 20 s and 1 GB."""
    print("   texts        s   peak MB   report MB   BABE's texts alone, MB")
    for n in (240, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            path, runs = Path(folder) / "texts.csv", Path(folder) / "runs"
            size = _write(path, n)
            job = (*JUDGEQ, "run", "-d", str(path), "--gold-column", "gold", "--quiet")
            subprocess.run((*job, "--runs-dir", str(runs)), check=True)
            flags = ("--runs-dir", str(runs), "--texts", str(n), "--quiet")
            took = cost((*JUDGEQ, "report", *flags))
            (page,) = runs.glob("*/report.html")
            megabytes = page.stat().st_size / 1e6
        print(
            f"{n:8,} {took.wall:8.1f} {took.memory:9.0f} {megabytes:11.2f} {size / 1e6:12.2f}",
            flush=True,
        )


def _write(path: Path, n: int) -> int:
    """A table of so many texts; how many bytes they have."""
    random = np.random.default_rng(0)
    vocabulary = np.array(
        ["".join(chr(97 + at) for at in random.integers(0, 26, 5)) for _ in range(900)]
    )
    size = 0
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["text", "gold"])
        for gold in random.integers(0, 2, n).tolist():
            text = " ".join(random.choice(vocabulary, WORDS))
            size += len(text)
            table.writerow([text, gold])
    return size
