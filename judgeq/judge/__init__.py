"""Judges: the backends that answer, by name, and (judge.py) how one is asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from judgeq.errors import UsageError
from judgeq.judge.backend import Backend
from judgeq.judge.simulated import (
    Faults,
    SimulatedJudge,
    Simulation,
    latent_scores,
    seen_scores,
)
from judgeq.types import Floats

JUDGES: Mapping[str, str] = {
    "simulated": "Knows the gold labels and errs like a real judge. Reads no text, costs nothing.",
}


def check(name: str) -> None:
    """Raise UsageError unless there is a judge of this name."""
    if name not in JUDGES:
        raise UsageError(
            f"--judge {name!r}: no such judge. This version has {', '.join(JUDGES)}; "
            "models behind an API are not built in yet."
        )


def make_simulated(
    settings: Simulation,
    faults: Faults,
    *,
    latent: Floats | None,
    gold: Floats | None,
    synthetic: bool,
    seed: int,
    sleep: Callable[[float], Awaitable[None]],
) -> Backend:
    """The simulated judge over a dataset's latent scores: `latent` if given, else `gold`.

    Synthetic latents are on the scale already and used as they are.
    Raises UsageError when there is neither.
    """
    source = latent if latent is not None else gold
    if source is None:
        raise UsageError(
            "the simulated judge answers from gold labels, and this dataset has none: give "
            "--gold-column or --latent-column, or name a model with --judge."
        )
    scores = source if synthetic else latent_scores(source, settings, seed)
    return SimulatedJudge(seen_scores(scores, settings, seed), settings, faults, seed, sleep)
