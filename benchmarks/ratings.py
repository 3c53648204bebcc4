"""What ratings and their errors take, beside the fastest fits of choix and evalica; each in a process of
its own.

`python -m benchmarks.ratings WHAT N` is such a process: it prints seconds and its peak memory as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from judgeq.rating import Fit, Parameters, bradley_terry, curvature, elo, plackett_luce, ranks
from judgeq.rating.ranks import intervals
from judgeq.types import Floats, Verdicts

RECORDING = Path("../shared/recordings/babe_gpt-5-mini_listwise10x3.jsonl")
BABE = 3674
SIGMA = 2.0
CHOIX = """
import choix
pairs = pairs.tolist()
begun = time.process_time()
choix.opt_pairwise(n, pairs, alpha=1 / 8)
"""
_EVALICA = """
import evalica
from evalica import Winner
xs, ys = pairs.T.tolist()
winners = [Winner.X] * len(xs)
begun = time.process_time()
"""
EVALICA = _EVALICA + "evalica.newman(xs, ys, winners, tolerance=1e-6, limit=100_000)"
EVALICA_ELO = _EVALICA + "evalica.elo(xs, ys, winners)"
PEERS = (
    ("evalica, Elo", EVALICA_ELO, "Elo"),
    ("choix, Newton-CG, the same σ", CHOIX, "bt, σ given"),
    ("evalica, Newman's", EVALICA, "bt, σ given"),
)
"""Each with what it is held against."""
LIMIT = 300
"""Seconds that a peer is given."""
ROOM = 16
"""Gigabytes that a peer is given."""
PEER = """
import resource, sys, time
import numpy as np
resource.setrlimit(resource.RLIMIT_AS, ({room} << 30, {room} << 30))
n, pairs = int(sys.argv[1]), np.load(sys.argv[2])
try:
    exec(sys.argv[3])
except MemoryError:
    sys.exit({no_room})
print(time.process_time() - begun, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
NO_ROOM = 3
"""The exit code of a peer that wants more than it is given."""


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
        ranks.reliability(posterior.mean, posterior.errors_across)
        ranks.top_share(posterior.mean, posterior.errors_across, 100)


WHAT: dict[str, Callable[[Verdicts, int], object]] = {
    "Elo": lambda verdicts, n: elo.fit(verdicts, n, Parameters()),
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
    for n in (BABE, 10_000, 100_000, 1_000_000):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "pairs.npy"
            np.save(path, _pairs(judged(n)))
            for name, script, like in PEERS:
                base = _run(like, n)[0] if n != BABE else ours[like][0]
                print(f"  {n:9,} {name:30} {_peer(peers, script, n, path, base)} × our {like}")


def _pairs(verdicts: Verdicts) -> NDArray[np.int64]:
    """The pairs that lists imply, the higher item first, in the order in which Elo folds them."""
    pairs = [
        np.stack([ranking[above], ranking[below]], axis=1)
        for ranking in np.split(verdicts.items, verdicts.offsets[1:-1])
        for above, below in [np.triu_indices(len(ranking), 1)]
    ]
    return np.concatenate(pairs).astype(np.int64)


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
        curvature.DENSE = n
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


def _peer(python: str, script: str, n: int, pairs: Path, base: float) -> str:
    """Seconds and peak megabytes of a peer, and how many times `base` seconds that is."""
    program = PEER.format(room=ROOM, no_room=NO_ROOM)
    command = (python, "-c", program, str(n), str(pairs), script)
    try:
        done = subprocess.run(command, check=False, timeout=LIMIT, capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return f"stopped after {LIMIT} s, over {LIMIT / base:,.0f}"
    if done.returncode in (NO_ROOM, -signal.SIGABRT):  # evalica aborts
        return f"needs more than {ROOM} GB:"
    done.check_returncode()
    seconds, memory = map(float, done.stdout.split())
    return f"{seconds:8.2f} s {memory:6.0f} MB  {seconds / base:8,.1f}"


if __name__ == "__main__":
    measure(sys.argv[1], int(sys.argv[2]))
