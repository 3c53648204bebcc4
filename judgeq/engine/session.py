"""A session: from settings to a locked folder, an open store and judges, and through all rounds.

The command line and the Python interface both come through here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from judgeq import config, datasets, files, prompts, run_places, trust
from judgeq.config import Settings
from judgeq.datasets import STDIN, Dataset
from judgeq.datasets.tables import Table
from judgeq.engine import admission, assembly, results, rounds, status, unread
from judgeq.engine.assembly import Page, Run, Session
from judgeq.engine.batch_jobs import tidy
from judgeq.engine.datasets import Given, check_ids, judged_before, load, placed, runs_onto
from judgeq.engine.interrupts import Beside, Interrupts, Stop, awaited, run_stoppable
from judgeq.engine.onto import (
    Onto,
    begin_record,
    can_be_base,
    check_prompt,
    checked_runs,
    read_settled,
)
from judgeq.engine.runner import go_through
from judgeq.engine.scores import write_scores
from judgeq.errors import RunError, UsageError
from judgeq.events import Emit, Notice
from judgeq.judge.budget import Allowance
from judgeq.judge.function import JudgeFunction
from judgeq.people import checks
from judgeq.people.assignment import Assignment
from judgeq.people.checks import known_in
from judgeq.people.people import People
from judgeq.prompts import PromptSet
from judgeq.run_places import RunInfo, RunPlace, Runs
from judgeq.settings.run import REHEARSAL
from judgeq.store import Store
from judgeq.strategies.listwise import Listwise
from judgeq.strategies.placing import placing as placing_by

T = TypeVar("T")

KEPT_IF_GIVEN = ("max_cost", "max_output_tokens")
"""Settings that bound what is paid: a later session without them leaves the run's as they are."""
KEPT_AS_USED = ("api_key_env", "api_key_file", "headers", "proxy", "ca_file")
"""Settings by which a server is reached: the run's are those of its last session."""


def prepare(
    settings: Settings,
    root: Path,
    *,
    new: bool = False,
    frame: Table | None = None,
    function: JudgeFunction | None = None,
    there: Runs | None = None,
    given: Given | None = None,
) -> Run:
    """The run that these settings describe, under `root`, or `there`; nothing is written. `frame` as in
    `datasets.load`; `function` is the judge of a run that a Python function judges; `given` are texts of
    runs that it is placed onto.

    Raises UsageError, DataError or RunError for what can't be.
    """
    settings, there = settings.rooted(), there or run_places.runs_in(root, settings.store)
    admission.check_panel(settings)
    admission.check_workers(settings)
    dataset = datasets.load(settings, seed=settings.seed, frame=frame)
    settings, places = checked_runs(_fitting(settings, dataset), there)
    prompt, onto, grown = _prompt(settings, dataset), None, ""
    settings, dataset = assembly.fitted(settings, dataset, prompt)
    if places:
        check_prompt(places, prompt, settings)
        dataset, onto = placed(dataset, places, given or {}), read_settled(places, settings)
    facts = config.deciding_facts(
        settings, dataset, prompt, None if onto is None else onto.checksum
    )
    judges = settings.judge
    by = "+".join(judges) if len(judges) < 4 else f"{len(judges)} judges"
    fingerprint, strategy = config.fingerprint(facts), settings.make_strategy().name
    folder = there.place(f"{dataset.name}-{strategy}-{by}", fingerprint, new)
    admission.check_name(settings.name, folder, there)
    trust.refuse_strangers(folder, fingerprint)
    if not folder.exists:
        assembly.check_names(settings)
    if folder.exists:
        info = folder.info()
        if trust.owns(folder, info, "total_rounds", *(["judge"] if info.settings.joined else [])):
            settings = admission.again(settings, info)
        elif info.settings.joined:
            trust.own_settings(folder, info, {})  # which says what to give
    elif onto is None and (settings.models or settings.people is not None):
        base = partial(can_be_base, settings=settings)
        grown = judged_before(dataset, facts["prompt"], there, base)
    return _run(settings, dataset, prompt, facts, folder, onto, function=function, grown=grown)


def resume(
    folder: RunPlace,
    changes: Mapping[str, Any],
    *,
    frame: Table | None = None,
    function: JudgeFunction | None = None,
) -> Run:
    """An existing run, with settings of this session changed (None: as before). `frame` and `function`
    as in `prepare`.

    Raises RunError when what decides its result has changed since it was begun, or where its folder
    asks for a key, a file, an address or money that this user didn't give (`trust.py`).
    """
    info, given = folder.info(), {name for name, value in changes.items() if value}
    if info.imported:
        raise RunError(
            f"run {folder.id} was imported: nothing is left to ask. "
            f"`{folder.command('show', '--write')}` computes its scores."
        )
    if info.settings.dataset == STDIN and "dataset" not in given:
        raise RunError(
            f"the texts of run {folder.id} came on standard input or from Python, and are not kept. "
            f"Give the same ones: `{folder.command('resume', '--dataset', '-')} < FILE`, or in Python "
            "judgeq.resume(…, dataset=…)."
        )
    stored = folder.store_address is not None and "prompt" not in given
    prompt = admission.kept_prompt(folder, info) if stored else None
    if prompt is not None:  # which no file is needed for
        kept = info.settings.model_copy(update={"prompt": None})
        info = info.model_copy(update={"settings": kept})
    changes = admission.with_judge(folder, info, changes)
    if changes.get("total_rounds") is None:
        given.discard("total_rounds")  # the same command, again
    settings = trust.own_settings(folder, info, changes).rooted()
    admission.check_workers(settings)
    if "total_rounds" in given:
        admission.check_rounds(folder.id, settings, info)
    elif "until" in given:
        settings = admission.until_reached(settings, folder, info)
    dataset = load(settings, runs_onto(folder, info), frame=frame)
    prompt = prompt or _prompt(settings, dataset)
    # What it is placed onto is in its first rounds, whatever became of that.
    facts = config.deciding_facts(settings, dataset, prompt, info.facts.get("onto"))
    admission.check_unchanged(folder.id, facts, info, dataset.source)
    return _run(settings, dataset, prompt, facts, folder, function=function)


def _run(
    settings: Settings,
    dataset: Dataset,
    prompt: PromptSet | None,
    facts: Mapping[str, Any],
    folder: RunPlace,
    onto: Onto | None = None,
    **more: Any,
) -> Run:
    strategy, judges = settings.make_strategy(), settings.judges
    if onto is not None:
        batches = [settled.batch for settled in onto.settled]
        strategy, judges = placing_by(strategy, batches, onto.anchors), onto.judges
    elif folder.exists and (info := folder.info()).onto:
        strategy, judges = info.strategy_of(settings) or strategy, info.judges
    admission.check_strategy(settings, strategy, dataset.sizes)
    more |= {"onto": onto, "others": tuple(judges[len(settings.judges) :])}
    pricing = assembly.check(settings, dataset, prompt)
    if settings.anchors is not None:
        more["known"] = known_in(settings.anchors, dataset.ids, dataset.texts)
    return Run(settings, dataset, strategy, prompt, pricing, facts, folder, **more)


def _fitting(settings: Settings, dataset: Dataset) -> Settings:
    """The settings with a judge and a strategy that fit the dataset, where the user named none: texts
    without gold are rehearsed, and few of them are ranked in one list."""
    n, changes = max(dataset.sizes), dict[str, Any]()
    if "judge" not in settings.model_fields_set and dataset.gold is None and dataset.latent is None:
        changes["judge"] = (REHEARSAL,)
    few = 1 < n < Listwise().k and not settings.onto
    if "strategy" not in settings.model_fields_set and few:
        changes["strategy"] = f"listwise{n}"
    return settings.model_copy(update=changes)


def _prompt(settings: Settings, dataset: Dataset) -> PromptSet | None:
    """The prompt set asked for, or the one that fits the dataset, or none."""
    name = settings.prompt or ("generic" if settings.feature else dataset.prompt)
    return prompts.load(name, settings.feature) if name else None


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
    _report_renaming(run, emit)
    finished = None if retry_failed else _finished(run)
    if finished is not None:
        return finished
    if run.settings.people is not None and page is None:
        raise UsageError("--judge people: there is no page to ask them on here.")

    async def judged(session: Session) -> results.Result:
        if retry_failed:
            reopened = await session.store.reopen()
            jobs = "job is" if reopened == 1 else "jobs are"
            emit(Notice(f"{reopened:,} failed or invalid {jobs} asked again."))
        result = _written(run, await go_through(session))
        mark = partial(record_scored, run.folder, result)
        await session.store.again(partial(asyncio.to_thread, mark))
        return result

    return at_work(run, emit, judged, beside=beside, page=page, interrupts=interrupts)


def _report_renaming(run: Run, emit: Emit) -> None:
    """Report a name that takes the place of another."""
    new = run.settings.name
    old = run.folder.info().settings.name if run.folder.exists and new else None
    if old and old != new:
        emit(Notice(f"The run was named {old!r}, and is named {new!r} from now on.", warning=True))


def _written(run: Run, result: results.Result) -> results.Result:
    """The result, with texts, its scores written."""
    result = with_texts(result, run.settings, run.dataset)
    write_scores(result.scores, run.folder.scores)
    return result


def record_scored(folder: RunPlace, result: results.Result) -> None:
    """Write down that a run's scores are written, and of how many verdicts: then it is finished."""
    info = folder.info()
    if info.scored_jobs != result.counts.done:
        folder.write_info(info.model_copy(update={"scored_jobs": result.counts.done}))


def _finished(run: Run) -> results.Result | None:
    """Return the result of a run of which all is answered, its scores written; None of another. A kill
    between the last answer and the scores left it so."""
    settings = run.settings
    if not run.folder.exists:
        return None
    info = run.folder.info()
    now = (settings.goal, run.rounds, run.dataset.labels)
    if now != (info.settings.goal, info.rounds, info.labels):
        return None
    state = awaited(status.state(run.folder))
    if state.running or not state.all_answered or not state.counts.done or state.batches:
        return None
    with run.folder.locked():
        trust.remember(run.folder, config.fingerprint(run.facts), run.settings)
        _write_info(run)
        tidy(run)  # a kill may have left results that are in the store
        result = _written(run, awaited(results.read(run.folder, settings)))
        record_scored(run.folder, result)
        return result


def at_work(
    run: Run,
    emit: Emit,
    work: Callable[[Session], Awaitable[T]],
    *,
    beside: Beside | None = None,
    page: Page | None = None,
    interrupts: Interrupts | None = None,
) -> T:
    """What `work` returns, with the run's folder there and locked, its store and its judges open;
    arguments and errors as of `execute`."""

    async def worked(stop: Stop) -> T:
        async with opened(run, stop, emit) as session:
            people = await _people(run, session.store, emit)
            result = await work(replace(session, people=people, page=page))
            session.store.check()
            return result

    if not run.folder.exists:
        assembly.check_access(run.settings)  # before anything is written
        if run.onto is not None:
            begin_record(run.folder, _info(run), run.onto, run.items)
    with run.folder.locked():
        _begin(run, emit)
        return run_stoppable(worked, emit, beside, interrupts)


def with_texts(
    result: results.Result, settings: Settings, dataset: Dataset | None
) -> results.Result:
    """Return the result with texts, if they are here and wanted, columns to keep, and merged rows.

    Raises RunError where the run's record has other ids than the dataset.
    """
    if dataset is None:
        return replace(result, scores=replace(result.scores, texts=None, others={}, rows=None))
    check_ids(result.run.label, result.scores.ids, dataset)
    texts = dataset.texts if settings.texts else None
    scores = replace(result.scores, texts=texts, others=dataset.columns, rows=dataset.rows)
    return replace(result, scores=scores)


def _begin(run: Run, emit: Emit) -> None:
    """Write down what the run is, and report what the user should know."""
    folder, settings = run.folder, run.settings
    warnings = [folder.caution()]
    unmarked = trust.remember(folder, config.fingerprint(run.facts), settings)
    if unmarked is not None:
        warnings.append(
            "judgeq can't remember that this run is yours, so `judgeq resume` will ask for its "
            f"settings again: {unmarked}"
        )
    info = _write_info(run)
    cautions = info.cautions
    if settings.rehearsal:  # the result says the rest
        cautions = [f"{info.mark}made-up answers.", *info.further_cautions]
        if info.facts.get("prompt") is None:
            cautions.append('No feature is given. Give --feature "what to compare by".')
    if not settings.models:  # else it stands in the forecast
        warnings += [run.grown, *run.dataset.cautions]
    for text in filter(None, warnings):
        emit(Notice(text, warning=True))
    for text in (*run.dataset.notices, *cautions):
        emit(Notice(text))


def _info(run: Run) -> RunInfo:
    """What a run is: as it begins now; or as it was begun, with what has changed since."""
    settings, onto = run.settings, run.onto
    judges = run.judges if settings.rehearsal or len(run.judges) > 1 else ()
    now: dict[str, Any] = {"judges": judges, "rounds": run.rounds}
    if run.folder.exists:
        kept = run.folder.info()
        # From here on the version that writes this knows of which answers there are scores.
        now["scored_jobs"] = kept.scored_jobs or 0
        names = ("until", "batch", "total_rounds", "judge", "joined")
        changed = {name: getattr(settings, name) for name in names}
        changed |= {"name": settings.name} if settings.name else {}
        changed |= _of_payment(settings)
        now |= {"labels": run.dataset.labels, "settings": kept.settings.model_copy(update=changed)}
        return kept.model_copy(update=now)
    if onto is not None:
        now |= {"onto": onto.settled, "anchors": onto.anchors}
    return RunInfo.begun(settings, run.dataset, run.facts, strategy=run.strategy.name, **now)


def _of_payment(settings: Settings) -> dict[str, Any]:
    """Return what the run keeps of how this session reaches and pays models, so that whoever resumes it
    pays no more, by the same key. Nothing of it is a secret."""
    if not settings.models:
        return {}
    session = settings.kept()
    kept = {name: getattr(session, name) for name in KEPT_AS_USED}
    bounds = {name: getattr(session, name) for name in KEPT_IF_GIVEN}
    kept |= {name: value for name, value in bounds.items() if value is not None}
    if session.price or session.prices:
        kept |= {"price": session.price, "prices": session.prices}
    return kept


def _write_info(run: Run) -> RunInfo:
    """Write down what the run is, where that is new; as it is kept, without what is never written."""
    info, folder = _info(run), run.folder
    if not folder.exists or info != folder.info():
        folder.write_info(info)
    return folder.info()


@asynccontextmanager
async def opened(
    run: Run, stop: Stop, emit: Emit, allowance: Allowance | None = None
) -> AsyncIterator[Session]:
    """The run with its store and its judges open, and with the calls in flight that this process may
    have. A worker process, which only takes jobs, gives its own `allowance`."""
    store = run.folder.store()
    store.emit = emit
    stop.calls(store.hurry)
    try:
        if allowance is None:
            await _fill(store, run)
        models, wanted = len(run.settings.models), run.settings.concurrency
        room = files.room_for(wanted * models) // models if models else wanted
        if room < wanted:
            emit(
                Notice(
                    f"This process may have few files open at once (`ulimit -Hn`): {max(1, room):,} "
                    f"calls are in flight together at most, and not {wanted:,}."
                )
            )
        possible = {"concurrency": max(1, min(wanted, room))}
        run = replace(run, settings=run.settings.model_copy(update=possible))
        async with assembly.panel(run, stop, emit, store, allowance=allowance) as judge:
            if allowance is None:
                await unread.recall(store, judge)
            yield Session(run, store, judge, stop, rounds.own_rounds(emit, run.strategy))
    finally:
        await store.close()


async def _fill(store: Store, run: Run) -> None:
    """Put the items into a new store, or changed gold into an old one."""
    kept, items = await store.items(), run.items
    if not kept.same_as(items):
        if kept.ids:
            check_ids(run.folder.label, kept.ids, run.dataset)
        await store.set_items(items)


async def _people(run: Run, store: Store, emit: Emit) -> People | None:
    """The people who are asked; None where none are."""
    settings, number = run.settings, run.settings.people
    if number is None:
        return None
    panelists = range(len(settings.panelists))
    store.judges = [other for other in panelists if other != number]
    if run.known:
        added = await checks.add_known(store, run.known)
        emit(Notice(f"{added:,} pairs with a known answer were added as checks."))
    (asked,) = assembly.questions(run, settings.panelists[number].judge)
    assignment = Assignment(
        store,
        panel=run.judges,
        judge=number,
        open_to_all=settings.open_to_all,
        most=2 if settings.both_orders else 1,
        repeats=settings.repeats,
        seed=settings.seed,
    )
    return People(asked, assignment, run=run.folder, emit=emit)
