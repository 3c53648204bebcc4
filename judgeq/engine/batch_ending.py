"""The batches of runs from outside: listed, cancelled at their provider, given up for lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from judgeq.engine import assembly, batch, batch_collecting, batch_lines
from judgeq.engine.assembly import Run
from judgeq.engine.queue import Stop
from judgeq.engine.runner import Session, batches_of
from judgeq.errors import JudgeError, RunError
from judgeq.events import Event
from judgeq.json_marks import INLINE
from judgeq.judge.batches import Remote
from judgeq.runs import RunPlace, Runs
from judgeq.types import Batch


@dataclass(frozen=True, slots=True)
class Listed:
    """A batch of a run; whether a session works on the run now."""

    run: RunPlace
    batch: Batch = field(metadata=INLINE)
    running: bool
    JSON_KEYS: ClassVar = {"run": "run.id"}


async def listed(runs: Runs) -> tuple[list[Listed], list[str]]:
    """The batches of all runs, the latest run first; and what could not be read of which runs."""
    batches, errors = list[Listed](), list[str]()
    for place in runs.all():
        try:
            running, store = place.is_running(), place.store(read_only=True)
            try:
                batches += [Listed(place, batch, running) for batch in await store.batches()]
            finally:
                await store.close()
        except (RunError, OSError) as error:
            errors.append(f"{place.shown}: {error}")
    return batches, errors


async def cancel(run: Run, emit: Callable[[Event], None]) -> Sequence[tuple[Batch, Remote]]:
    """Ask the providers to stop working on the open batches of a run. Nothing is written: whoever goes
    on with the run collects what they had answered. Raises JudgeError where one can't be asked, when all
    were."""
    store = run.folder.store(read_only=True)
    try:
        totals, out = await store.totals(), await batch.held(store)
        batches = await batch.out_of(store)
    finally:
        await store.close()
    if not batches:
        return []
    from judgeq.judge.batches.providers import api_of  # brings aiohttp

    cancelled, failed = list[tuple[Batch, Remote]](), None
    async with assembly.panel(run, totals, Stop(), emit, out=out, look_only=True) as judges:
        await judges.open()
        for one in batches:
            try:
                api = api_of(batch_lines.backend_of(batch.asked(judges, one)))
                if one.remote is None:
                    raise JudgeError(
                        f"Nobody knows yet whether {batch_collecting.named(one)} was created: "
                        f"`judgeq resume {run.folder.argument}` looks for it."
                    )
                cancelled.append((one, await api.cancel(one.remote)))
            except JudgeError as error:
                failed = failed or error
    if failed is not None:
        raise failed
    return cancelled


async def release(session: Session) -> int:
    """Take the batches for lost that were never found at their provider: their questions are asked
    again, and they count as possibly paid. How many there were."""
    return await batches_of(session).give_up()
