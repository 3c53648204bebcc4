"""What ratings and their errors take, beside the fastest fits of choix and evalica; each in a process of
its own.

`python -m benchmarks.ratings WHAT N` is such a process: it prints seconds and its peak memory as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from judgeq.rating import Fit, Parameters, bradley_terry, curvature, order, plackett_luce
from judgeq.rating.order import intervals
from judgeq.types import Floats, Verdicts

RECORDING = Path("../shared/recordings/babe_gpt-5-mini_listwise10x3.jsonl")
BABE = 3674
SIGMA = 2.0
CHOIX = """
import choix
choix.opt_pairwise(n, pairs, alpha=1 / 8)
"""
EVALICA = """
import evalica
from evalica import Winner
xs, ys = [a for a, b in pairs], [b for a, b in pairs]
begun = time.perf_counter()
evalica.newman(xs, ys, [Winner.X] * len(xs), tolerance=1e-6, limit=100_000)
"""
LIMIT = 300
"""Seconds that a peer is given."""
PEER = """
import json, resource, sys, time
n, pairs = json.load(open(sys.argv[1]))
pairs = [tuple(pair) for pair in pairs]
begun = time.perf_counter()
{}
used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([time.perf_counter() - begun, used]))
"""


def judged(n: int) -> Verdicts:
    """The recorded judgments where n is BABE's and they are there; else three rounds of lists of
    10, ranked with Gumbel's noise."""
    if n == BABE and RECORDING.exists():
        lines = [json.loads(line) for line in RECORDING.read_text().splitlines()]
        lists = [line["ranking"] for line in lines]
        items = np.array([item for ranking in lists for item in ranking], dtype=np.int32)
        presented = np.array([item for line in lines for item in line["presented"]], dtype=np.int32)
        offsets = np.cumsum([0, *map(len, lists)])
    else:
        random = np.random.default_rng(0)
        truth = random.normal(0, SIGMA, n)
        rounds = [random.permutation(n)[: n // 10 * 10].reshape(-1, 10) for _ in range(3)]
        drawn = np.concatenate(rounds)
        noisy = truth[drawn] + random.gumbel(size=drawn.shape)
        order = np.argsort(-noisy, axis=1)
        items = drawn[np.arange(len(drawn))[:, None], order].astype(np.int32).reshape(-1)
        offsets = np.arange(len(drawn) + 1) * 10
        presented = drawn.astype(np.int32).reshape(-1)
    tied = np.zeros(len(items), dtype=np.bool_)
    return Verdicts(np.arange(len(offsets) - 1), items, offsets, tied, presented)


def _pl(verdicts: Verdicts, n: int, sigma: float | None = SIGMA) -> Fit:
    return plackett_luce.fit(verdicts, n, Parameters(sigma=sigma))


def _errors(fit: Fit) -> Floats:
    if fit.posterior is None:
        raise SystemExit("no posterior")
    errors: Floats = fit.posterior.errors
    return errors


def _bt(verdicts: Verdicts, n: int) -> None:
    bradley_terry.fit(verdicts, n, Parameters(sigma=SIGMA))


def _intervals(verdicts: Verdicts, n: int) -> None:
    fit = _pl(verdicts, n)
    if fit.posterior is not None:
        intervals(fit.posterior)


def _everything(verdicts: Verdicts, n: int) -> None:
    """All that a result says of its ratings: σ, errors, intervals, tiers, ρ̂ now and after a round."""
    posterior = _pl(verdicts, n, None).posterior
    if posterior is not None:
        intervals(posterior)
        order.known(posterior.mean, posterior.errors_across, 4 / 3, 100)


WHAT: dict[str, Callable[[Verdicts, int], object]] = {
    "bt, σ given": _bt,
    "pl, σ given": _pl,
    "pl, σ chosen": lambda verdicts, n: _pl(verdicts, n, None),
    "pl, σ given, standard errors": lambda verdicts, n: _errors(_pl(verdicts, n)),
    "pl, σ given, all intervals": _intervals,
    "pl, all that is said": _everything,
}


def measure(what: str, n: int) -> None:
    """Print the seconds of CPU and the peak megabytes of one of WHAT, in this process."""
    verdicts = judged(n)
    begun = time.process_time()
    WHAT[what](verdicts, n)
    seconds = time.process_time() - begun
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))


def ratings() -> None:
    """Fits and errors of BABE's size beside the peers', their growth with the items, and how near errors
    in closed form are to the exact ones."""
    _beside_peers()
    _growth()
    _nearness()


def _beside_peers() -> None:
    print(f"BABE's {BABE:,} items" + ("" if RECORDING.exists() else " (simulated judgments)"))
    ours = {what: min(_run(what, BABE) for _ in range(3)) for what in WHAT}
    for what, (seconds, memory) in ours.items():
        print(f"  {what:32} {seconds:8.3f} s {memory:6.0f} MB")
    peers = os.environ.get("JUDGEQ_PEERS")
    if not peers:
        print("  choix and evalica: $JUDGEQ_PEERS names no Python that has them")
        return
    base = ours["bt, σ given"][0]
    for name, script in (("choix, Newton-CG, the same σ", CHOIX), ("evalica, Newman's", EVALICA)):
        known = _peer(peers, script)
        if known is None:
            print(f"  {name:32}   stopped after {LIMIT} s   over {LIMIT / base:,.0f} × bt")
            continue
        seconds, memory = known
        print(f"  {name:32} {seconds:8.3f} s {memory:6.0f} MB   {seconds / base:,.0f} × bt")


def _growth() -> None:
    print(
        "three rounds of lists of 10; seconds of CPU: a fit with σ given, with its errors, with all"
    )
    print("intervals, and all that is said of a run's ratings, σ chosen")
    for n in (10_000, 100_000, 1_000_000):
        cells = [_run(what, n) for what in WHAT if what.startswith("pl") and what != "pl, σ chosen"]
        shown = "   ".join(f"{seconds:8.2f} {memory:7.0f}" for seconds, memory in cells)
        print(f"  {n:9,} {shown}")


def _nearness() -> None:
    print(f"errors in closed form against the exact ones, σ = {SIGMA:g}: off by")
    exact_to = curvature.DENSE
    for n in (1_000, 4_000):
        exact = _errors(_pl(judged(n), n))
        curvature.DENSE = 10
        off = _errors(_pl(judged(n), n)) / exact - 1
        curvature.DENSE = exact_to
        print(
            f"  {n:6,} items: {np.sqrt((off**2).mean()):.2%} rms, {np.abs(off).max():.1%} at most"
        )


def _run(what: str, n: int) -> tuple[float, float]:
    command = (sys.executable, "-m", "benchmarks.ratings", what, str(n))
    seconds, memory = json.loads(subprocess.check_output(command))
    return seconds, memory


def _peer(python: str, script: str) -> tuple[float, float] | None:
    """Seconds and peak megabytes; None where it takes longer than LIMIT."""
    verdicts = judged(BABE)
    pairs = [
        (int(ranking[a]), int(ranking[b]))
        for ranking in np.split(verdicts.items, verdicts.offsets[1:-1])
        for a in range(len(ranking))
        for b in range(a + 1, len(ranking))
    ]
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"judgeq-pairs-{os.getpid()}.json"
    path.write_text(json.dumps([BABE, pairs]))
    try:
        command = (python, "-c", PEER.format(script), str(path))
        out = subprocess.check_output(command, timeout=LIMIT)
        seconds, memory = json.loads(out.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return None
    finally:
        path.unlink()
    return seconds, memory


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]))
