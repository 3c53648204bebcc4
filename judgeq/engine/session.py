"""A session: from settings to a locked folder, an open store and judges, and through all rounds.

The command line and the Python interface both come through here.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from judgeq import config, datasets, judge, open_files, prompts, runs, trust
from judgeq.config import Settings
from judgeq.datasets import STDIN, Dataset
from judgeq.datasets.frames import Frame
from judgeq.engine import assembly, batch, conflicts, results
from judgeq.engine.assembly import Run
from judgeq.engine.people import People
from judgeq.engine.people_checks import Checks, known_in
from judgeq.engine.queue import Stop
from judgeq.engine.runner import Session, go_through
from judgeq.engine.scores import write_scores
from judgeq.engine.stopping import Interrupts, stoppable
from judgeq.errors import JudgeqError, RunError, StoppedError, UsageError
from judgeq.events import Event, Notice
from judgeq.files import writable
from judgeq.judge.function import JudgeFunction
from judgeq.prompts import PromptSet
from judgeq.runs import RunInfo, RunPlace
from judgeq.store import DATABASE, Store
from judgeq.strategies.listwise import Listwise
from judgeq.types import JobState

T = TypeVar("T")
SELDOM = (100_000, 50, 100)
FEW = 15
"""Of fewer items than this the intervals are wide."""
Emit = Callable[[Event], None]
Beside = Callable[[], Coroutine[Any, Any, None]]
Page = Callable[[People], AbstractAsyncContextManager[None]]
"""What opens a page, or a terminal, on which people answer while it is entered."""


def prepare(
    settings: Settings,
    root: Path,
    *,
    new: bool = False,
    frame: Frame | None = None,
    function: JudgeFunction | None = None,
) -> Run:
    """The run that these settings describe, under `root`; nothing is written. `frame` as in
    `datasets.load`; `function` is the judge of a run that a Python function judges.

    Raises UsageError, DataError or RunError for what can't be.
    """
    settings = settings.rooted()
    there = runs.runs_in(root, settings.store)
    conflicts.check_panel(settings)
    conflicts.check_workers(settings)
    if settings.share_texts and not settings.store:
        raise UsageError("--share-texts goes with --store: a run folder never holds texts.")
    strategy = settings.make_strategy()
    dataset = datasets.load(settings, seed=settings.seed, frame=frame)
    settings = _fitting(settings, dataset)
    strategy = settings.make_strategy()
    strategy.check(len(dataset))
    if settings.both_orders and not strategy.pairs:
        raise UsageError(f"--both-orders goes with pairs, not with --strategy {strategy.name}.")
    conflicts.check_strategy(settings, strategy, len(dataset))
    prompt = _prompt(settings, dataset)
    facts = config.deciding_facts(settings, dataset, prompt)
    # Where a recording lies must not decide the run, nor its folder's name.
    judges = ["recorded" if judge.recording_of(name) else name for name in settings.judge]
    by = "+".join(judges) if len(judges) < 4 else f"{len(judges)} judges"
    name = f"{dataset.name}-{strategy.name}-{by}"
    folder = there.place(name, config.fingerprint(facts), new)
    trust.refuse_strangers(folder, config.fingerprint(facts))
    if folder.exists and trust.owns(folder, info := folder.info(), "total_rounds"):
        settings = settings.model_copy(update={"total_rounds": info.settings.total_rounds})
        strategy = settings.make_strategy()
    pricing = assembly.check(settings, dataset, prompt)
    known = _known(settings, dataset)
    return Run(
        settings, dataset, strategy, prompt, pricing, facts, folder, known=known, function=function
    )


def resume(
    folder: RunPlace,
    changes: Mapping[str, Any],
    *,
    frame: Frame | None = None,
    function: JudgeFunction | None = None,
) -> Run:
    """An existing run, with settings of this session changed (None: as before). `frame` and `function`
    as in `prepare`.

    Raises RunError when what decides its result has changed since it was begun, or where its folder
    asks for a key, a file, an address or money that this user didn't give (`trust.py`).
    """
    info = folder.info()
    if info.imported:
        raise RunError(
            f"run {folder.id} was imported: there is nothing to go on with. `judgeq rate` rates it "
            "anew."
        )
    held = None if changes.get("dataset") else folder.dataset()
    if info.settings.dataset == STDIN and held is None and not changes.get("dataset"):
        raise RunError(
            f"the texts of run {folder.id} came on standard input or from Python, and are not kept. "
            f"Give the same ones again: judgeq resume {folder.argument} --dataset - < FILE (or "
            "--dataset FILE), or in Python judgeq.resume(…, dataset=…); the same `run` goes on, too."
        )
    kept = None if changes.get("prompt") else folder.prompt()
    there = [] if held is None else ["dataset", "data_dir"]
    there += [] if kept is None else ["prompt"]
    settings = trust.own_settings(folder, info, changes, there).rooted()
    conflicts.check_workers(settings)
    if changes.get("total_rounds"):
        conflicts.check_more_rounds(folder.id, settings, info)
    strategy = settings.make_strategy()
    dataset = held or datasets.load(settings, seed=settings.seed, frame=frame)
    conflicts.check_strategy(settings, strategy, len(dataset))
    prompt = _prompt(settings, dataset) if kept is None else prompts.kept(kept)
    facts = config.deciding_facts(settings, dataset, prompt)
    conflicts.check_unchanged(folder.id, facts, info, dataset.source)
    pricing = assembly.check(settings, dataset, prompt)
    known = _known(settings, dataset)
    return Run(settings, dataset, strategy, prompt, pricing, facts, folder, there, known, function)


def _fitting(settings: Settings, dataset: Dataset) -> Settings:
    """The settings with a judge and a strategy that fit the dataset, where the user named none: texts
    without gold are rehearsed, and few of them are ranked in one list."""
    n, changes = len(dataset), dict[str, Any]()
    if "judge" not in settings.model_fields_set and dataset.gold is None and dataset.latent is None:
        changes["judge"] = (judge.REHEARSAL,)
    if "strategy" not in settings.model_fields_set and 1 < n < Listwise().k:
        changes["strategy"] = f"listwise{n}"
    return settings.model_copy(update=changes)


def _known(settings: Settings, dataset: Dataset) -> Sequence[tuple[int, ...]]:
    """The questions whose answer is known. Raises DataError."""
    if settings.anchors is None:
        return ()
    return known_in(settings.anchors, dataset.ids, dataset.texts)


def _prompt(settings: Settings, dataset: Dataset) -> PromptSet | None:
    """The prompt set asked for, or the one that fits the dataset, or none."""
    name = settings.prompt or ("generic" if settings.feature else dataset.prompt)
    prompt = prompts.load(name, settings.feature) if name else None
    if prompt is not None:
        for persona in settings.persona:
            prompt.as_persona(persona)  # complains of one that isn't there
    return prompt


def execute(
    run: Run,
    emit: Emit,
    *,
    beside: Beside | None = None,
    page: Page | None = None,
    retry_failed: bool = False,
    interrupts: Interrupts | None = None,
) -> results.Result:
    """Go on with the run until it is finished or stopped, and write its scores.

    `page` is needed where people are asked. `beside` is a coroutine function (a face's drawing) that
    runs beside it, and is then cancelled. Ctrl-C or SIGTERM asks for a stop, a second one cancels at
    once; so do `interrupts`, by which another thread asks. SIGHUP, which may come twice when a terminal
    is closed, only asks. Raises StoppedError then, and JudgeError, RunError as they come; all that was
    answered is kept.
    """

    async def judged(session: Session) -> results.Result:
        if retry_failed:
            reopened = await session.store.reopen(JobState.FAILED, JobState.INVALID)
            jobs = "job is" if reopened == 1 else "jobs are"
            emit(Notice(f"{reopened:,} failed or invalid {jobs} asked again."))
        return await go_through(session)

    path = run.folder.path
    closed = run.folder.exists and not writable(path, path / "lock", path / DATABASE)
    if closed and not retry_failed and run.settings.total_rounds is None:
        there = run_loop(results.finished(run.folder, run.settings))
        if there is not None:
            return with_texts(there, run.settings, run.dataset)
    if run.settings.people is not None and page is None:
        raise UsageError("--judge people: there is no page to ask them on here.")
    with begun(run, emit):
        work = at_work(run, emit, judged, interrupts or Interrupts(), beside=beside, page=page)
        result = with_texts(run_loop(work), run.settings, run.dataset)
        write_scores(result.scores, run.folder.scores)
    return result


@contextmanager
def begun(run: Run, emit: Emit) -> Iterator[None]:
    """While inside, the run's folder is there, and locked. Raises as `execute`."""
    if not run.folder.exists:
        assembly.check_access(run.settings)  # before anything is written
    with run.folder.locked():
        _begin(run, emit)
        yield


async def at_work(
    run: Run,
    emit: Emit,
    work: Callable[[Session], Awaitable[T]],
    interrupts: Interrupts,
    *,
    beside: Beside | None = None,
    page: Page | None = None,
) -> T:
    """What `work` makes of a run that is begun, with its store and its judges open; arguments and
    errors as of `execute`."""
    return await with_beside(beside, _open(run, emit, work, interrupts, page))


def with_texts(
    result: results.Result, settings: Settings, dataset: Dataset | None
) -> results.Result:
    """The result, with the items' texts if they are had and not unwanted."""
    if not settings.texts or dataset is None or dataset.texts is None:
        return result
    return replace(result, scores=replace(result.scores, texts=dataset.texts))


def dataset_of(folder: RunPlace) -> Dataset | None:
    """The dataset of a run that is only looked at, if it can be had at once: downloads nothing, reads
    no standard input, and opens no file that somebody else's folder names."""
    info = folder.info()
    settings = info.settings
    with suppress(RunError):
        shared = folder.dataset()
        if shared is not None:
            return shared
    if settings.dataset == STDIN or not trust.owns(folder, info, "dataset", "data_dir"):
        return None
    try:
        dataset = datasets.load(settings, seed=settings.seed, download=False)
    except JudgeqError:
        return None  # gone, changed or unreadable: a run's scores need no texts
    return dataset if dataset.content == info.facts.get("dataset") else None


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
        if before != SELDOM:  # else another loop of this process, which began earlier, does it
            gc.set_threshold(*before)


def _begin(run: Run, emit: Emit) -> None:
    """Report what the user should know, and write down what a new run is."""
    dataset, folder = run.dataset, run.folder
    for text in dataset.notices:
        emit(Notice(text))
    if (n := len(dataset)) < FEW:
        lists = f", all in lists of {n}" if run.strategy.name.startswith(f"listwise{n}") else ""
        emit(Notice(f"Only {n} texts{lists}: expect wide intervals."))
    caution = folder.caution()
    if caution is not None:
        emit(Notice(caution, warning=True))
    unmarked = trust.remember(folder, config.fingerprint(run.facts), run.settings, run.held)
    if unmarked is not None:
        emit(
            Notice(
                "It can't be remembered that this run and its settings are yours, so that `judgeq "
                f"resume` will ask for them again: {unmarked}",
                warning=True,
            )
        )
    if folder.exists:
        _look_again(run, folder.info())
    else:
        _write_down(run)
    if run.settings.share_texts:
        info = folder.info()
        if not info.shared:
            folder.write_info(info.model_copy(update={"shared": dataset.shared}))
        folder.share(dataset)


def _look_again(run: Run, info: RunInfo) -> None:
    """Write down what has changed of a run that was begun before."""
    goal = {name: getattr(run.settings, name) for name in ("until", "batch", "total_rounds")}
    changed = info.model_copy(
        update={
            "labels": run.dataset.labels,
            "rounds": run.strategy.rounds,
            "settings": info.settings.model_copy(update=goal),
        }
    )
    if changed != info:
        run.folder.write_info(changed)


def _write_down(run: Run) -> None:
    """Write down what a new run is."""
    settings, strategy, prompt = run.settings, run.strategy, run.prompt
    info = RunInfo.begun(
        settings,
        run.dataset,
        run.facts,
        strategy=strategy.name,
        rounds=strategy.rounds,
        judges=() if len(settings.panelists) == 1 else settings.judges,
        shared=run.dataset.shared if settings.share_texts else "",
    )
    run.folder.write_info(info, None if prompt is None else prompt.model_dump_json())


async def with_beside(beside: Beside | None, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns, while `beside` runs. Raises StoppedError where it is cancelled."""
    drawing = asyncio.create_task(beside()) if beside is not None else None
    try:
        return await work
    except asyncio.CancelledError as error:
        raise StoppedError("stopped at once; calls in flight were given up") from error
    finally:
        if drawing is not None:
            drawing.cancel()
            await asyncio.gather(drawing, return_exceptions=True)


async def _open(
    run: Run,
    emit: Emit,
    work: Callable[[Session], Awaitable[T]],
    interrupts: Interrupts,
    page: Page | None,
) -> T:
    stop = Stop()
    store = run.folder.store()
    store.report_to(emit)
    stop.calls(store.hurry)
    try:
        with stoppable(stop, emit, interrupts):
            await _fill(store, run)
            totals, out = await store.totals(), await batch.held(store)
            with within_open_files(run, emit) as run:
                async with (
                    assembly.sharing(store.keeper, emit) as shared,
                    assembly.panel(
                        run,
                        totals,
                        stop,
                        emit,
                        out=out,
                        spending=shared,
                        processes=lambda: store.processes,
                    ) as judge,
                    AsyncExitStack() as stack,
                ):
                    people = await _people(run, store, emit)
                    opened = Session(run, store, judge, stop, emit, people=people)
                    if people is not None and page is not None:
                        opened = replace(opened, page=_once(stack, page(people)))
                    result = await work(opened)
            store.check()
            return result
    finally:
        await store.close()


async def _people(run: Run, store: Store, emit: Emit) -> People | None:
    """The people who are asked; None where none are."""
    settings, number = run.settings, run.settings.people
    if number is None:
        return None
    panelists = range(len(settings.panelists))
    store.claim_for([other for other in panelists if other != number])
    checks = Checks(store, repeats=settings.repeats, seed=settings.seed)
    if run.known:
        added = await checks.add_known(run.known)
        emit(Notice(f"{added:,} more pairs with a known answer are asked now and then."))
    (asked,) = assembly.questions(run, settings.panelists[number].judge)
    return People(
        store,
        asked,
        checks,
        judge=number,
        panel=settings.judges,
        open_to_all=settings.open_to_all,
        most=2 if settings.both_orders else 1,
        emit=emit,
    )


def _once(
    stack: AsyncExitStack, page: AbstractAsyncContextManager[None]
) -> Callable[[], Awaitable[None]]:
    """What opens a page, unless it is open already."""
    closed = [page]

    async def opened() -> None:
        if closed:
            await stack.enter_async_context(closed.pop())

    return opened


@contextmanager
def within_open_files(run: Run, emit: Emit) -> Iterator[Run]:
    """The run, with as many calls in flight as this process may have connections open."""
    models = len(run.settings.models)
    if not models:
        yield run
        return
    wanted = run.settings.concurrency
    with open_files.room_for(wanted * models) as connections:
        possible = max(1, min(wanted, connections // models))
        if possible < wanted:
            emit(
                Notice(
                    f"This process may have few files open at once (`ulimit -Hn`): {possible:,} calls "
                    f"are in flight together at most, and not {wanted:,}."
                )
            )
        yield replace(run, settings=run.settings.model_copy(update={"concurrency": possible}))


async def _fill(store: Store, run: Run) -> None:
    """Put the items into a new store, or changed gold into an old one."""
    kept, items = await store.items(), run.items
    if not kept.same_as(items):
        if kept.ids and list(kept.ids) != list(items.ids):
            raise RunError(f"{run.folder.ledger} holds other items than the dataset.")
        await store.set_items(items)
