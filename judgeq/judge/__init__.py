"""Judges: the backends that answer, by name, and (judge.py) how one is asked."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from difflib import get_close_matches
from pathlib import Path

from judgeq.errors import UsageError
from judgeq.judge.backend import Backend
from judgeq.judge.model import Model
from judgeq.judge.noise import Simulation, latent_scores, seen_scores
from judgeq.judge.simulated import Faults, SimulatedJudge
from judgeq.types import Floats

JUDGES: Mapping[str, str] = {
    "simulated": "Knows the gold labels and errs like a real judge. Reads no text, costs nothing.",
    "recorded": "recorded:FILE says what was judged before, as `judgeq export` writes it.",
}
"""The judges that are built in; any other name is a model's, behind an API."""


def is_model(name: str) -> bool:
    """Whether a judge is a model behind an API: it reads texts, and costs money."""
    return name != "simulated" and recording_of(name) is None


def recording_of(name: str) -> Path | None:
    """The file of a recorded judge; None for another."""
    kind, colon, path = name.partition(":")
    return Path(path) if kind == "recorded" and colon and path else None


def check(name: str, model: Model) -> None:
    """Raise UsageError for a judge's name that can't be meant, or settings that don't go with it."""
    if name == "recorded":
        raise UsageError("--judge recorded: name the file as well: recorded:judgments.jsonl.")
    if not is_model(name):
        if given := model.deciding():
            flags = ", ".join("--" + setting.replace("_", "-") for setting in given)
            raise UsageError(f"{flags}: for a model, which --judge names; {name} takes none of it.")
        return
    if not re.fullmatch(r"[^\s\x00-\x1f]{1,200}", name):
        raise UsageError(f"--judge {name!r} can't be a model's name.")
    near = get_close_matches(name.lower(), JUDGES, 1, cutoff=0.8)
    if near and model.base_url is None:
        raise UsageError(f"--judge {name!r}: did you mean {near[0]}?")


def make_simulated(
    settings: Simulation,
    faults: Faults,
    *,
    latent: Floats | None,
    gold: Floats | None,
    synthetic: bool,
    seed: int,
    sleep: Callable[[float], Awaitable[None]],
    number: int = 0,
) -> Backend:
    """The simulated judge over a dataset's latent scores: `latent` if given, else `gold`.

    Synthetic latents are on the scale already and used as they are. Of several judges, `number`
    tells them apart: each errs in its own way. Raises UsageError when there is neither.
    """
    source = latent if latent is not None else gold
    if source is None:
        raise UsageError(
            "the simulated judge answers from gold labels, and this dataset has none: give "
            "--gold-column or --latent-column, or name a model with --judge."
        )
    scores = source if synthetic else latent_scores(source, settings, seed)
    seen = seen_scores(scores, settings, seed, number)
    return SimulatedJudge(seen, settings, faults, seed, sleep, number)
