"""A round of 60,000 questions in batches: how it is cut, and what memory it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import LONGEST, REPO, environment

pytest.importorskip("resource", reason="there is no ru_maxrss here")
ITEMS = 347
JOBS = ITEMS * (ITEMS - 1) // 2
LARGEST = 250 * 1024**2
"""Bytes; it was 175 MB. Of 120,000 questions 500 MB are allowed, and it was 195 MB."""
CHILD = """
import json, os, resource, sys
from pathlib import Path
from judgeq.cli import app
from judgeq.engine import batch, runner
from judgeq.judge import batches as providers
from tests.fake_batches import FakeBatches

fake, judge_round = FakeBatches(), runner.judge_round

def most():
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss begins with what the process had that started this one
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

async def measured(session, round, **how):
    await judge_round(session, round, **how)
    state = await session.store.round_state(round)
    sizes = [len(lines) for lines in fake.created.values()]
    print(json.dumps([most(), state.done, sizes, fake.asked]), flush=True)
    os._exit(0)  # what is known of the scores is worked out next, which is no part of this

runner.judge_round = measured
batch.FIRST_WAIT = 0.01
providers.api_of = lambda backend: fake
app(sys.argv[1:])
"""


@pytest.mark.long
def test_60_000_questions_are_cut_into_batches_in_a_quarter_of_a_gigabyte(tmp_path: Path) -> None:
    texts = "".join(f"i{n},{f'text number {n} ' * 10}\n" for n in range(ITEMS))
    (tmp_path / "texts.csv").write_text(f"id,text\n{texts}", encoding="utf-8")
    flags = "-d texts.csv --feature length -s complete --judge m --price 1,2 --quiet"
    more = ("--batch", "--base-url", "http://127.0.0.1:9/v1", "--max-cost", "10000")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, "run", *flags.split(), *more],
        cwd=tmp_path,
        env=environment(tmp_path) | {"PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    peak, settled, sizes, asked = json.loads(done.stdout.splitlines()[-1])
    assert settled == JOBS
    assert sizes == [50_000, JOBS - 50_000]
    assert asked == ["create"] * 2 + ["get", "download"] * 2
    assert peak < LARGEST
