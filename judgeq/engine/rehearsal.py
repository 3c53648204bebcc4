"""A run whose user named no judge: texts without gold labels are rehearsed, with made-up answers, and
the commands of the real run are shown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from judgeq.config import NEVER_KEPT, Settings
from judgeq.datasets import STDIN, Dataset
from judgeq.judge import FUNCTION, kind_of
from judgeq.settings import REHEARSAL, SETTINGS, Simulation
from judgeq.strategies.listwise import Listwise
from judgeq.trust import as_flags

MODELS = ("gpt-5-mini",)
"""Judges that could be named."""
OWN = {"name", "total_rounds", *NEVER_KEPT, *Simulation.model_fields, "sim_latency"}
"""Settings of the rehearsal itself, which the real run doesn't take over."""


def fitting(settings: Settings, dataset: Dataset) -> Settings:
    """The settings with a judge and a strategy that fit the dataset, where the user named none: texts
    without gold are rehearsed, and few of them are ranked in one list."""
    n, changes = len(dataset), dict[str, Any]()
    if "judge" not in settings.model_fields_set and dataset.gold is None and dataset.latent is None:
        changes["judge"] = (REHEARSAL,)
    if "strategy" not in settings.model_fields_set and 1 < n < Listwise().k:
        changes["strategy"] = f"listwise{n}"
    return settings.model_copy(update=changes)


def real_run(settings: Settings, dataset: str, judges: Sequence[str] = MODELS) -> list[str]:
    """How to estimate, and to run, with these judges what was rehearsed: commands; or calls in Python,
    where the judge is a function or a `dataset` so called came from there."""
    function = kind_of(judges[0]) is FUNCTION
    if function or (settings.dataset == STDIN and dataset == "python"):
        judge = "…" if function else f'"{judges[0]}"'
        return [f"judgeq.{name}(…, judge={judge})" for name in ("estimate", "run")]
    given = settings.model_copy(update={"dataset": _seen_from_here(settings), "judge": judges})
    words = [
        word
        for name, setting in SETTINGS.items()
        if setting.flag and name not in OWN and getattr(given, name) != setting.default
        for word in as_flags(name, getattr(given, name))
    ]
    words += ["< FILE"] if settings.dataset == STDIN else []
    return [f"judgeq {name} {' '.join(words)}" for name in ("estimate", "run")]


def _seen_from_here(settings: Settings) -> str:
    """The dataset as a command names it, a file in this folder without the path to it."""
    path = Path(settings.dataset)
    here = path.is_relative_to(Path.cwd())
    return str(path.relative_to(Path.cwd())) if here else settings.dataset
