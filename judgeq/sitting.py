"""One sitting of a run: from settings to a locked folder, an open store and a judge, and play.

The command line and the Python interface both come through here.
"""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from judgeq import asking, config, datasets, judge, prompts, results, runs
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.errors import RunError, StoppedError, UsageError
from judgeq.prompts import PromptSet
from judgeq.queue import Stop
from judgeq.runner import Run, play
from judgeq.runs import RunFolder, RunInfo
from judgeq.store import Items
from judgeq.store.sqlite import SqliteStore
from judgeq.strategies import Strategy
from judgeq.types import Event, JobState, Notice, Stopping

T = TypeVar("T")
GIVING_BACK = 0.05  # seconds
SELDOM = (100_000, 50, 100)
Emit = Callable[[Event], None]
Beside = Callable[[], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """All that is known before anything is written or asked."""

    settings: Settings
    dataset: Dataset
    strategy: Strategy
    prompt: PromptSet | None
    pricing: asking.Prices
    facts: Mapping[str, Any]
    folder: RunFolder


def prepare(settings: Settings, root: Path, *, new: bool = False) -> Prepared:
    """The run that these settings describe, under `root`; nothing is written.

    Raises UsageError, DataError or RunError for what can't be.
    """
    settings = settings.rooted()
    for name in settings.judge:
        judge.check(name, settings)
    _check_panel(settings)
    strategy = settings.make_strategy()
    dataset = datasets.load(settings, seed=settings.seed)
    strategy.check(len(dataset))
    if settings.both_orders and strategy.kind in ("listwise", "direct"):
        raise UsageError(f"--both-orders goes with pairs, not with --strategy {strategy.name}.")
    prompt = _prompt(settings, dataset)
    facts = config.deciding_facts(settings, strategy, dataset, prompt)
    # Where a recording lies must not decide the run, nor its folder's name.
    judges = ["recorded" if judge.recording_of(each) else each for each in settings.judge]
    who = "+".join(judges) if len(judges) < 4 else f"{len(judges)} judges"
    name = f"{dataset.name}-{strategy.name}-{who}"
    folder = runs.place(root, name, config.fingerprint(facts), new)
    pricing = asking.check(settings, dataset, prompt)
    return Prepared(settings, dataset, strategy, prompt, pricing, facts, folder)


def _check_panel(settings: Settings) -> None:
    """Raise UsageError for judges that can't be asked together."""
    models = [name for name in settings.judge if judge.is_model(name)]
    for name in {name for name in models if models.count(name) > 1}:
        raise UsageError(
            f"--judge {name} is given twice: it would be asked the same. Ask one model several "
            "times by --persona."
        )
    if models and len(models) < len(settings.judge):
        raise UsageError("--judge: models and judges that are none can't be asked together.")
    for name in {name for name in settings.persona if settings.persona.count(name) > 1}:
        raise UsageError(f"--persona {name} is given twice.")
    if settings.persona and not models:
        raise UsageError("--persona goes with a model, which --judge names.")


def take_up(folder: RunFolder, changes: Mapping[str, Any]) -> Prepared:
    """An existing run, with settings of the sitting changed (None: as before).

    Raises RunError when what decides its result has changed since it was begun.
    """
    info = folder.info()
    if info.imported:
        raise RunError(
            f"run {folder.id} was imported: there is nothing to go on with. `judgeq rate` rates it "
            "anew."
        )
    settings = info.settings_with(changes).rooted()
    strategy = settings.make_strategy()
    dataset = datasets.load(settings, seed=settings.seed)
    prompt = _prompt(settings, dataset)
    facts = config.deciding_facts(settings, strategy, dataset, prompt)
    changed = [name for name in facts if facts[name] != info.facts.get(name)]
    if changed or config.fingerprint(facts) != info.fingerprint:
        raise RunError(
            f"run {folder.id} can't go on: its {' and '.join(changed) or 'configuration'} changed "
            f"since it was begun (dataset: {dataset.source}). Put back what it was, or start "
            "another run with `judgeq run`; nothing was changed."
        )
    pricing = asking.check(settings, dataset, prompt)
    return Prepared(settings, dataset, strategy, prompt, pricing, facts, folder)


def _prompt(settings: Settings, dataset: Dataset) -> PromptSet | None:
    """The prompt set asked for, or the one that fits the dataset, or none."""
    name = settings.prompt or ("generic" if settings.feature else dataset.prompt)
    prompt = prompts.load(name, settings.feature) if name else None
    if prompt is not None:
        for persona in settings.persona:
            prompt.as_persona(persona)  # complains of one that isn't there
    return prompt


def sit(
    prepared: Prepared, emit: Emit, *, beside: Beside | None = None, retry_failed: bool = False
) -> results.Result:
    """Play the run until it is finished or stopped, and write its scores.

    `beside` is a coroutine function (a face's drawing) that runs beside it, and is then cancelled.
    Ctrl-C or SIGTERM asks for a stop, a second one cancels at once. Raises StoppedError then, and
    JudgeError, RunError as they come; all that was answered is kept.
    """
    folder = prepared.folder
    if not (folder.path / "config.json").exists():
        asking.check_access(prepared.settings)  # before anything is written
    with folder.locked():
        _begin(prepared, emit)
        result = run_loop(_with(beside, _sit(prepared, emit, retry_failed)))
        results.write_scores(result.scores, folder.scores)
    return result


def run_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on an event loop: uvloop's where there is one (not on Windows), which makes a call
    about a third cheaper."""
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None
    with suppress(ImportError):
        import uvloop

        factory = uvloop.new_event_loop
    with _collecting_seldom(), asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(work)


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Have Python look for garbage in cycles seldom: by default it took a fifth of a call's time, and
    replies that came meanwhile waited uncommitted."""
    before = gc.get_threshold()
    gc.set_threshold(*SELDOM)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _begin(prepared: Prepared, emit: Emit) -> None:
    """Tell what is to be told, and write config.json of a new run."""
    dataset, folder = prepared.dataset, prepared.folder
    for text in dataset.notices:
        emit(Notice(text))
    kind = runs.network_file_system(folder.path)
    if kind is not None:
        emit(
            Notice(
                f"{folder.path} is on a network file system ({kind}), on which SQLite's locks are "
                "not to be trusted: never run one run from two machines, or set --runs-dir to a "
                "local disk.",
                warning=True,
            )
        )
    if (folder.path / "config.json").exists():
        info = folder.info()
        if info.labels != dataset.labels:
            folder.write_info(info.model_copy(update={"labels": dataset.labels}))
        return
    settings, strategy = prepared.settings, prepared.strategy
    folder.write_info(
        RunInfo.begun(
            settings,
            dataset,
            prepared.facts,
            strategy=strategy.name,
            rounds=strategy.rounds,
            judges=() if len(settings.members) == 1 else settings.judges,
        )
    )


async def _with(beside: Beside | None, work: Coroutine[Any, Any, results.Result]) -> results.Result:
    drawing = asyncio.create_task(beside()) if beside is not None else None
    try:
        return await work
    except asyncio.CancelledError as error:
        raise StoppedError("stopped at once; calls in flight were given up") from error
    finally:
        if drawing is not None:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)


async def _sit(prepared: Prepared, emit: Emit, retry_failed: bool) -> results.Result:
    stop = Stop()
    store = SqliteStore(prepared.folder.database)
    try:
        with _signals(stop, emit):
            dataset = prepared.dataset
            await _fill(store, dataset, prepared.folder)
            if retry_failed:
                reopened = await store.reopen(JobState.FAILED, JobState.INVALID)
                emit(Notice(f"{reopened} failed or invalid jobs are asked again."))
            settings, pricing = prepared.settings, prepared.pricing
            async with asking.panel(
                settings, dataset, prepared.prompt, pricing, await store.totals(), stop, emit
            ) as judge:
                return await play(
                    Run(
                        prepared.folder,
                        settings,
                        dataset,
                        prepared.strategy,
                        store,
                        judge,
                        stop,
                        emit,
                    )
                )
    finally:
        await store.close()


async def _fill(store: SqliteStore, dataset: Dataset, folder: RunFolder) -> None:
    """Put the items into a new store, or changed gold into an old one."""
    kept = await store.items()
    items = Items(dataset.ids, dataset.gold, dataset.subsets)
    if not kept.same_as(items):
        if kept.ids and list(kept.ids) != list(items.ids):
            raise RunError(f"{folder.database} holds other items than the dataset.")
        await store.set_items(items)


@contextmanager
def _signals(stop: Stop, emit: Emit) -> Iterator[None]:
    """While inside, the first SIGINT or SIGTERM asks for a stop, the second cancels this task."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def asked() -> None:
        if stop.asked and task is not None:
            task.cancel()
        stop.ask()
        # Jobs whose call had not left yet are given back meanwhile: only the others are waited for.
        loop.call_later(GIVING_BACK, emit, Stopping())

    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        for number in numbers:
            loop.add_signal_handler(number, asked)
    except (NotImplementedError, RuntimeError, ValueError):
        # Windows, or not the main thread (a notebook): there, whoever called us handles signals.
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
