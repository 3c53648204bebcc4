"""The Python interface: the same as the command line, with arrays for results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from judgeq import config, datasets, results, runs, sitting
from judgeq.types import Event

T = TypeVar("T")


def load_dataset(dataset: str, *, seed: int = 0, **settings: Any) -> datasets.Dataset:
    """The dataset that `--dataset` names; settings are those of DatasetSpec (`text_column` …).

    Raises DataError or UsageError.
    """
    given = config.settle({"dataset": dataset, "seed": seed, **settings})
    return datasets.load(given, seed=seed)


def run(
    dataset: str,
    *,
    runs_dir: str | Path = "runs",
    new: bool = False,
    retry_failed: bool = False,
    on_event: Callable[[Event], None] | None = None,
    **settings: Any,
) -> results.Result:
    """Judge a dataset, or go on with an interrupted run of the same; a finished one is returned.

    `settings` are the flags of `judgeq run` (`strategy="listwise10"`, `sim_accuracy=0.9` …).
    `on_event` is called with every event. Raises a JudgeqError; nothing answered is ever lost.
    """
    given = config.settle({"dataset": dataset, **settings})
    prepared = sitting.prepare(given, Path(runs_dir), new=new)
    emit = on_event or _ignore
    return _outside_a_loop(lambda: sitting.sit(prepared, emit, retry_failed=retry_failed))


def open_run(
    name: str = "last",
    *,
    runs_dir: str | Path = "runs",
    rating: str | None = None,
    bt_sigma: float | None = None,
) -> results.Result:
    """The result of a run by its id (or a beginning of it, its folder, or "last").

    Made from the ledger, whether or not the run is finished. Raises RunError.
    """
    folder = runs.find(Path(runs_dir), name)
    settings = folder.info().settings_with({"rating": rating, "bt_sigma": bt_sigma})
    return _outside_a_loop(
        lambda: asyncio.run(results.read(folder, settings.rating, settings.bt_sigma))
    )


def _outside_a_loop(work: Callable[[], T]) -> T:
    """Run `work`, which starts an event loop, also where one is running: a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return work()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def _ignore(event: Event) -> None:
    """No face."""
