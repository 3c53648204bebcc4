"""The Python interface: the same as the command line, with arrays for results.

A dataset is what `--dataset` names, a DataFrame (pandas, polars; an index of ids stays), a dataset of
Hugging Face, a list of texts or of dicts, or a dict of texts by id.
Ctrl-C, or a notebook's Stop, once: no new calls, those in flight are let finish, then StoppedError;
twice: at once. The same call continues the run.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from judgeq import config, datasets, run_places
from judgeq.config import Settings
from judgeq.datasets.tables import ColumnarDataset, DataFrame, Table, table_of
from judgeq.engine import drift as drifting
from judgeq.engine import estimate as estimates
from judgeq.engine import results, session
from judgeq.engine.assembly import Run
from judgeq.engine.datasets import dataset_of
from judgeq.engine.interrupts import Interrupts, awaited
from judgeq.engine.status import states
from judgeq.errors import StoppedError, UsageError
from judgeq.evaluation import evaluate as evaluating
from judgeq.events import Emit, Event
from judgeq.judge.function import JudgeFunction, judge_name
from judgeq.run_places import RunPlace
from judgeq.ui import notebook
from judgeq.ui.dataclass_json import plain
from judgeq.ui.notebook import InPython, Result, presented_estimate
from judgeq.ui.show import run as show_run

T = TypeVar("T")
Data = (
    str
    | os.PathLike[str]
    | DataFrame
    | ColumnarDataset
    | Sequence[str]
    | Sequence[Mapping[str, Any]]
    | Mapping[str, str]
)
"""What is judged: a dataset's name, a file, a DataFrame, a dataset of Hugging Face, texts, dicts of
columns, or texts by id."""
Column = str | Sequence[Any]
"""The name of a column, or its values, one a text."""
COLUMNS = ("text", "gold", "id", "group")
OnEvent = Callable[[Event], None]


@InPython()
def load_dataset(
    dataset: Data,
    *,
    text: Column | None = None,
    gold: Column | None = None,
    id: Column | None = None,  # noqa: A002 - the users' word
    group: Column | None = None,
    sample: int | None = None,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
) -> datasets.Dataset:
    """The dataset; parameters as of `run`. Raises DataError or UsageError."""
    given, frame, _ = _asked(locals())
    return datasets.load(given, seed=seed, frame=frame)


@InPython()
def run(
    dataset: Data,
    feature: str | None = None,
    *,
    text: Column | None = None,
    gold: Column | None = None,
    id: Column | None = None,  # noqa: A002 - the users' word
    group: Column | None = None,
    sample: int | None = None,
    judge: str | JudgeFunction | Sequence[str] | None = None,
    prompt: str | None = None,
    base_url: str | None = None,
    api_key_env: str | None = None,
    strategy: str | None = None,
    rounds: int | None = None,
    onto: str | Result | Sequence[str | Result] | None = None,
    until: str | None = None,
    rating: str | None = None,
    seed: int | None = None,
    max_cost: float | None = None,
    max_output_tokens: int | None = None,
    batch: bool | None = None,
    concurrency: int | None = None,
    store: str | None = None,
    settings: Mapping[str, Any] | None = None,
    runs_dir: str | Path = "runs",
    new: bool = False,
    retry_failed: bool = False,
    progress: bool | None = None,
    on_event: OnEvent | None = None,
) -> Result:
    """Judge a dataset, or continue an interrupted run of the same; a finished one is returned.

    dataset, feature: what is ranked, and by what ("how urgent the message is").
    text, gold, id: the columns of the texts, the gold labels and the ids: their names (by default
        "text", none, "id"), or their values.
    group: the same of groups, within which alone texts are compared.
    sample: only this many items, drawn by `seed`.
    judge: a model ("gpt-5-mini"), "simulated" or "people"; or a function of texts and feature that
        returns the places of the texts, most of the feature first. By default "simulated", which
        knows the gold labels; without these a rehearsal, with made-up answers.
    prompt, base_url, api_key_env: how a model is asked, where, and the variable that holds its key.
    strategy, rounds, until: "listwise10"; how many rounds; when to stop early ("0.95", "top20").
    onto: a finished run, or several of one scale: texts that are new get scores on that scale.
    rating, seed: "pl", "bt" or "bt-mm"; the seed of all randomness.
    max_cost, max_output_tokens: dollars that the run may cost; the longest reply.
    batch, concurrency: send rounds as batches; calls in flight at most.
    settings: all others by name, as the flags of `judgeq run --help-all` ({"sim_accuracy": 0.9}).
    store, runs_dir, new: where runs are kept; start afresh next to a run of the same.
    retry_failed: ask failed and invalid jobs again.
    progress: show it on standard error (None: on a terminal and in a notebook).
    on_event: called with every event.

    With judge="people" it opens their page, and returns when all is judged. Raises a JudgeqError;
    nothing that was answered is lost.
    """
    return _played(*_prepared(locals()), retry_failed, progress, on_event)


async def arun(*args: Any, **parameters: Any) -> Result:
    """As `run`, to be awaited, while the event loop does other things. If it is cancelled the run stops
    at once, and the same call continues it."""
    named, interrupts = _of_run(args, parameters), Interrupts()

    @InPython()
    def play() -> Result:
        how = {name: named[name] for name in ("retry_failed", "progress", "on_event")}
        return _played(*_prepared(named), **how, interrupts=interrupts)

    work = asyncio.create_task(asyncio.to_thread(play))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        interrupts.extend([signal.SIGINT] * 2)  # the second one gives up calls in flight
        with suppress(StoppedError):
            await work
        raise


@InPython()
def resume(
    name: str = "last",
    *,
    dataset: Data | None = None,
    judge: str | JudgeFunction | None = None,
    rounds: int | None = None,
    until: str | None = None,
    max_cost: float | None = None,
    concurrency: int | None = None,
    store: str | None = None,
    settings: Mapping[str, Any] | None = None,
    runs_dir: str | Path = "runs",
    retry_failed: bool = False,
    progress: bool | None = None,
    on_event: OnEvent | None = None,
) -> Result:
    """Continue a run that was stopped or killed, as `judgeq resume`; `rounds` in all, more than the run
    has, buys further ones. A model as `judge` is added to a finished run, for so many `rounds`.

    Texts of a DataFrame or a list, and a `judge` that is a function, are not kept: give them again.
    `settings` are others that may change (`judgeq resume --help-all`). Raises as `run`.
    """
    folder = run_places.runs_in(Path(runs_dir), store).find(name)
    changes: dict[str, Any] = dict(settings or {}) | {"total_rounds": rounds, "until": until}
    changes |= {"max_cost": max_cost, "concurrency": concurrency, "store": store}
    function = judge if callable(judge) else None
    if judge is not None and function is None:
        changes["judge"] = (judge,)
    given, frame = _given_again(folder, dataset, function)
    prepared = session.resume(folder, changes | given, frame=frame, function=function)
    return _played(prepared, frame, retry_failed, progress, on_event)


@InPython()
def drift(
    name: str = "last",
    *,
    ask: int | None = None,
    max_cost: float | None = None,
    group_column: str | None = None,
    dataset: Data | None = None,
    judge: JudgeFunction | None = None,
    store: str | None = None,
    settings: Mapping[str, Any] | None = None,
    runs_dir: str | Path = "runs",
    progress: bool | None = None,
    on_event: OnEvent | None = None,
) -> drifting.Drifted:
    """Ask so many of a run's questions again, for `max_cost` dollars at most, and test whether the judge
    has changed, as `judgeq drift`; without `ask` by those that were asked last. Raises as `resume`."""
    folder = run_places.runs_in(Path(runs_dir), store).find(name)
    groups = drifting.groups_in(folder, group_column)
    if ask is not None:
        given, frame = _given_again(folder, dataset, judge)
        changes = {**(settings or {}), "max_cost": max_cost, **given}
        prepared = drifting.prepare(folder, changes, frame=frame, function=judge)
        _presented(partial(drifting.ask, prepared, ask, cap=max_cost), progress, on_event)
    try:
        return awaited(drifting.read(folder, groups))
    finally:
        if ask is not None:
            drifting.record_shown(folder)


def _given_again(
    folder: RunPlace, dataset: Data | None, judge: JudgeFunction | None
) -> tuple[dict[str, Any], Table | None]:
    """The settings of what isn't kept with a run, and the table of texts that are given themselves."""
    given: dict[str, Any] = {} if judge is None else {"judge": (judge_name(judge),)}
    if dataset is None:
        return given, None
    kept = folder.info().settings
    columns = {name: getattr(kept, f"{name}_column") for name in COLUMNS}
    name, frame, _ = _table(dataset, columns)
    return given | {"dataset": name}, frame


@InPython()
def estimate(*args: Any, pilot: int | None = None, **parameters: Any) -> estimates.Estimate:
    """What `run` with the same parameters would take: calls, tokens and dollars. Nothing is sent but the
    run's first `pilot` questions, by whose answers it is then estimated; what ended these early, though
    some were answered, is its `pilot.error`."""
    named = _of_run(args, parameters)
    prepared, _ = _prepared(named)
    asked = None
    if pilot is not None:
        ask = partial(estimates.ask_first, prepared, pilot)
        asked = _presented(ask, named["progress"], named["on_event"])
    return presented_estimate(awaited(estimates.estimate(prepared, asked)))


@InPython()
def runs(*, runs_dir: str | Path = "runs", store: str | None = None) -> list[dict[str, Any]]:
    """The runs, the latest first, each as a dict: what `judgeq runs --json` prints. Raises RunError."""
    there = run_places.runs_in(Path(runs_dir), store)
    return [plain(state) for state in awaited(states(there.all()))]


@InPython()
def open_run(
    name: str = "last",
    *,
    runs_dir: str | Path = "runs",
    store: str | None = None,
    rating: str | None = None,
    sigma: float | None = None,
    unbias_position: bool | None = None,
    split_models: bool | None = None,
) -> Result:
    """The result of a run by its id (or a beginning of it, its folder, or "last").

    Made from the ledger, whether or not the run is finished. Raises RunError.
    """
    place = run_places.runs_in(Path(runs_dir), store).find(name)
    changes: dict[str, Any] = {"rating": rating, "sigma": sigma}
    changes |= {"unbias_position": unbias_position, "split_models": split_models}
    settings, dataset = place.info().settings_with(changes), dataset_of(place)
    result = awaited(results.read(place, settings))
    return notebook.presented(evaluating.evaluated(session.with_texts(result, settings, dataset)))


NOT_SETTINGS = {"dataset", "settings", *COLUMNS, "judge", "onto"}
NOT_SETTINGS |= {"runs_dir", "new", "retry_failed", "progress", "on_event"}


def _of_run(args: Sequence[Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `run` by name. Raises TypeError as a call of it would."""
    bound = inspect.signature(run).bind(*args, **parameters)
    bound.apply_defaults()
    return dict(bound.arguments)


def _prepared(parameters: Mapping[str, Any]) -> tuple[Run, Table | None]:
    """The run that parameters of `run` describe, and the table where the texts themselves are given."""
    settings, frame, function = _asked(parameters)
    root, new, onto = Path(parameters["runs_dir"]), parameters["new"], _onto(parameters["onto"])
    given = {
        one.run.id: one.scores.texts
        for one in onto
        if not isinstance(one, str) and one.scores.texts is not None
    }
    how = {"new": new, "frame": frame, "function": function, "given": given}
    return session.prepare(settings, root, **how), frame


def _onto(given: Any) -> Sequence[str | results.Result]:
    """The runs that new texts are placed onto, as they are given: none, one or several."""
    if given is None:
        return ()
    return (given,) if isinstance(given, str | results.Result) else tuple(given)


def _asked(
    parameters: Mapping[str, Any],
) -> tuple[Settings, Table | None, JudgeFunction | None]:
    """What parameters of `run` ask for (None: not given): settings, the table where the texts themselves
    are given, and the judge where it is a function."""
    columns = {name: parameters[name] for name in COLUMNS}
    name, frame, columns = _table(parameters["dataset"], columns)
    values: dict[str, Any] = {f"{kind}_column": column for kind, column in columns.items()}
    for setting in parameters.keys() - NOT_SETTINGS:
        if parameters[setting] is not None:
            values[setting] = parameters[setting]
    runs = _onto(parameters.get("onto"))
    if runs:
        values["onto"] = tuple(one if isinstance(one, str) else one.run.words[0] for one in runs)
    judge = parameters.get("judge")
    function = judge if callable(judge) else None
    if judge is not None:
        values["judge"] = judge if function is None else judge_name(function)
    others = parameters["settings"] or {}
    if twice := sorted(values.keys() & others.keys()):
        raise UsageError(f"{', '.join(twice)}: given twice, by itself and in settings.")
    return config.settle({**values, **others, "dataset": name}), frame, function


def _table(
    dataset: Data, columns: Mapping[str, Column | None]
) -> tuple[str, Table | None, dict[str, str]]:
    """What a dataset is called in the settings, its table where it is given itself, and the names of its
    columns. Raises UsageError."""
    given = {kind: column for kind, column in columns.items() if column is not None}
    names = {kind: column for kind, column in given.items() if isinstance(column, str)}
    values = {kind: column for kind, column in given.items() if not isinstance(column, str)}
    if isinstance(dataset, str | os.PathLike):
        if values:
            raise UsageError(f"{', '.join(values)}: give the name of a column of {dataset}.")
        return os.fspath(dataset), None, names
    frame = table_of(dataset, names.get("text", datasets.TEXT), values)
    return datasets.STDIN, frame, names | {kind: kind for kind in values}


def _played(
    prepared: Run,
    frame: Table | None,
    retry_failed: bool,
    progress: bool | None,
    on_event: OnEvent | None,
    interrupts: Interrupts | None = None,
) -> Result:
    left = estimates.forecast(prepared, retry_failed=retry_failed)

    def execute(emit: Emit, **more: Any) -> results.Result:
        for notice in [] if left is None else show_run.forecast(left):
            emit(notice)
        page = None
        if prepared.settings.people is not None:
            from judgeq.web import annotate

            page = annotate.page(prepared, emit)
        return session.execute(prepared, emit, retry_failed=retry_failed, page=page, **more)

    result = _presented(partial(execute, interrupts=interrupts), progress, on_event)
    return notebook.presented(evaluating.evaluated(result), frame)


def _presented(work: Callable[..., T], progress: bool | None, on_event: OnEvent | None) -> T:
    """What `work` returns, with its progress if that is wanted."""
    from judgeq.ui import dashboard

    face = dashboard.choose_in_python(sys.stderr, progress)

    def emit(event: Event) -> None:
        face(event)
        if on_event is not None:
            on_event(event)

    with face:
        return work(emit, beside=face.draw_forever)
