"""The Python interface: the same as the command line, with arrays for results.

A dataset is what `--dataset` names, a DataFrame (pandas, polars), or a list of texts. Ctrl-C, or a
notebook's Stop, once: no new calls, those in flight are let finish, then StoppedError; twice: at once.
The same call goes on with the run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from judgeq import config, datasets, runs
from judgeq.config import Settings
from judgeq.datasets.frames import DataFrame, Frame, frame_of
from judgeq.engine import estimate as estimates
from judgeq.engine import pilot as pilots
from judgeq.engine import results, session
from judgeq.engine.assembly import Run
from judgeq.engine.pilot import Pilot
from judgeq.engine.session import Emit
from judgeq.engine.stopping import Interrupts, awaited, outside_a_loop
from judgeq.errors import UsageError
from judgeq.evaluation import compare as comparing
from judgeq.evaluation import evaluate as evaluating
from judgeq.evaluation.gold import Plan
from judgeq.events import Event
from judgeq.ui import notebook
from judgeq.ui.json import plain
from judgeq.ui.notebook import Result

T = TypeVar("T")
Data = str | os.PathLike[str] | DataFrame | Sequence[str]
"""What is judged: a dataset's name, a file, a DataFrame, or texts."""
OnEvent = Callable[[Event], None]


def load_dataset(dataset: Data, *, seed: int = 0, **settings: Any) -> datasets.Dataset:
    """The dataset; settings are those of DatasetSpec (`text_column` …).

    Raises DataError or UsageError.
    """
    given, frame = _settle(dataset, {"seed": seed, **settings})
    return datasets.load(given, seed=seed, frame=frame)


def run(
    dataset: Data,
    *,
    runs_dir: str | Path = "runs",
    new: bool = False,
    retry_failed: bool = False,
    progress: bool | None = None,
    on_event: OnEvent | None = None,
    **settings: Any,
) -> Result:
    """Judge a dataset, or go on with an interrupted run of the same; a finished one is returned.

    Of a DataFrame the columns are named as of a file (`text_column` …, by default "text" and "id");
    texts in a list are numbered from 0. `settings` are the flags of `judgeq run`
    (`strategy="listwise10"`, `sim_accuracy=0.9` …). `progress` shows a bar on standard error (None:
    on a terminal and in a notebook); `on_event` is called with every event. With judge="people" it
    opens their page, and returns when all is judged. Raises a JudgeqError; nothing answered is ever
    lost.
    """
    given, frame = _settle(dataset, settings)
    prepared = session.prepare(given, Path(runs_dir), new=new, frame=frame)
    return _played(prepared, retry_failed, progress, on_event)


def resume(
    name: str = "last",
    *,
    dataset: Data | None = None,
    runs_dir: str | Path = "runs",
    retry_failed: bool = False,
    progress: bool | None = None,
    on_event: OnEvent | None = None,
    rounds: int | None = None,
    **settings: Any,
) -> Result:
    """Go on with a run that was stopped or killed, as `judgeq resume`; `rounds` in all, more than the
    run has, buys further ones.

    The texts of a DataFrame or a list are not kept: give them again as `dataset`. Raises as `run`.
    """
    folder = runs.runs_in(Path(runs_dir), settings.get("store")).find(name)
    changes: dict[str, Any] = {**settings, "total_rounds": rounds}
    frame = None
    if dataset is not None:
        kept = folder.info().settings
        changes["dataset"], frame = _named(dataset, kept.text_column)
    prepared = session.resume(folder, changes, frame=frame)
    return _played(prepared, retry_failed, progress, on_event)


def estimate(
    dataset: Data,
    *,
    runs_dir: str | Path = "runs",
    new: bool = False,
    pilot: int | None = None,
    progress: bool | None = None,
    on_event: OnEvent | None = None,
    **settings: Any,
) -> estimates.Estimate:
    """What `run` with the same arguments would take: calls, tokens and dollars. Nothing is sent but
    the run's first `pilot` questions, by whose answers it is then estimated; what ended these early,
    though some were answered, is its `pilot.error`."""
    given, frame = _settle(dataset, settings)
    prepared = session.prepare(given, Path(runs_dir), new=new, frame=frame)
    asked = None
    if pilot is not None:

        def ask(emit: Emit, **more: Any) -> Pilot | None:
            return pilots.ask(prepared, pilot, emit, new=new, **more)

        asked = _shown(ask, progress, on_event)
    return awaited(lambda: estimates.estimate(prepared, asked))


def open_run(
    name: str = "last",
    *,
    runs_dir: str | Path = "runs",
    store: str | None = None,
    rating: str | None = None,
    sigma: float | None = None,
    unbias_position: bool | None = None,
) -> Result:
    """The result of a run by its id (or a beginning of it, its folder, or "last").

    Made from the ledger, whether or not the run is finished. Raises RunError.
    """
    opened = _opened(name, runs_dir, store, rating, sigma, unbias_position)
    return notebook.shown(evaluating.evaluated(opened))


def evaluate(
    run: str | Result = "last",
    *,
    runs_dir: str | Path = "runs",
    store: str | None = None,
    rating: str | None = None,
    sigma: float | None = None,
    unbias_position: bool | None = None,
    splits: int | None = None,
    **how: Any,
) -> dict[str, Any]:
    """How good a run's scores are: what `judgeq evaluate --json` prints, as a dict.

    Reliability and misfit need no gold: `splits` is how often the judgments are halved (None: 100
    times, fewer of large runs; 0: not at all).
    `how` are the flags of `judgeq evaluate` (`threshold="best"`, `subset="critical"`, `resamples=200`
    …). `gold` is a file of labels, or a number for each item in the order of the scores (nan: none); by
    default the run's own. Raises RunError, DataError or UsageError.
    """
    plan = Plan(**how)
    opened = _opened(run, runs_dir, store, rating, sigma, unbias_position)
    evaluated: dict[str, Any] = plain(evaluating.evaluation(opened, plan, splits))
    return evaluated


def compare(
    *runs: str | Result,
    runs_dir: str | Path = "runs",
    store: str | None = None,
    rating: str | None = None,
    sigma: float | None = None,
    unbias_position: bool | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Two runs or more over the same items, held against the first: what `judgeq compare --json`
    prints, as a dict. Arguments and errors as of `evaluate`."""
    if len(runs) < 2:
        raise UsageError("Give two runs or more to compare; `judgeq.evaluate` is about one.")
    plan = Plan(**how)
    opened = [_opened(name, runs_dir, store, rating, sigma, unbias_position) for name in runs]
    compared: dict[str, Any] = plain(comparing.compare(opened, plan))
    return compared


def _settle(dataset: Data, settings: Mapping[str, Any]) -> tuple[Settings, Frame | None]:
    name, frame = _named(dataset, settings.get("text_column"))
    return config.settle({**settings, "dataset": name}), frame


def _named(dataset: Data, text_column: str | None) -> tuple[str, Frame | None]:
    """What a dataset is called in the settings, and its table where it is given itself."""
    if isinstance(dataset, str | os.PathLike):
        return os.fspath(dataset), None
    return datasets.STDIN, frame_of(dataset, text_column or datasets.TEXT)


def _played(
    prepared: Run, retry_failed: bool, progress: bool | None, on_event: OnEvent | None
) -> Result:
    def execute(emit: Emit, **more: Any) -> results.Result:
        page = None
        if prepared.settings.people is not None:
            from judgeq.web import annotate

            page = annotate.page(prepared, emit)
        return session.execute(prepared, emit, retry_failed=retry_failed, page=page, **more)

    return notebook.shown(evaluating.evaluated(_shown(execute, progress, on_event)))


def _shown(work: Callable[..., T], progress: bool | None, on_event: OnEvent | None) -> T:
    """What `work` returns, with a bar if that is wanted; it can be interrupted."""
    from judgeq.ui import dashboard

    face = dashboard.choose_bar(sys.stderr, progress)

    def emit(event: Event) -> None:
        face(event)
        if on_event is not None:
            on_event(event)

    def in_sight(interrupts: Interrupts) -> T:
        with face:
            return work(emit, beside=face.draw_forever, interrupts=interrupts)

    return outside_a_loop(in_sight)


def _opened(
    run: str | results.Result,
    runs_dir: str | Path,
    store: str | None,
    rating: str | None,
    sigma: float | None,
    unbias_position: bool | None,
) -> results.Result:
    at = Path(runs_dir)
    folder = run.run if isinstance(run, results.Result) else runs.runs_in(at, store).find(run)
    if isinstance(run, results.Result):  # as it was rated
        rating, sigma = rating or run.rating, sigma or run.parameters.sigma
        if unbias_position is None:
            unbias_position = run.parameters.position
    changes = {"rating": rating, "sigma": sigma, "unbias_position": unbias_position}
    settings = folder.info().settings_with(changes)
    return awaited(lambda: results.read(folder, settings))
