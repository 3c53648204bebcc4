"""What goes out in batches: pending jobs are claimed, looked up in the cache, and cut into files.

A file holds questions for one model, as many as its provider takes, --batch-size allows, and --max-cost
pays for: the most that they can cost together is reserved before the file is sent.
"""

from __future__ import annotations

import math
import secrets
import tempfile
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from judgeq.engine.batch_lines import Collecting, backend_of, prepared
from judgeq.engine.queue import Stop
from judgeq.errors import CallError, JudgeError, RunError, StoppedError
from judgeq.events import CallStarted, Emit, JobEnded, JobStarted, Notice
from judgeq.judge.backend import BatchAPI, Identified, Limits, Prepared, Remote, is_refusal
from judgeq.judge.judge import Judge
from judgeq.judge.panel import Panel
from judgeq.run_places import whoami
from judgeq.store import Store
from judgeq.types import Batch, BatchState, Job, JobState, Line, Outcome

CLAIMED = 1_000
"""Jobs that are claimed, and looked up in the cache, together."""
TRIES, FIRST_WAIT, LONGEST_WAIT = 8, 1.0, 60.0
"""How often a batch is offered that the provider surely did not take, and the seconds in between."""
SETTLING = 120.0
"""Seconds after which a provider lists a batch that it was asked to create, if it ever will."""
FULL_WAIT, LONGEST_FULL = 60.0, 900.0
"""Seconds until a batch is sent again after one was refused because too much waits."""
PATIENCE = 5.0
"""Seconds that a batch is kept open for money that other processes may give back."""


@dataclass(slots=True)
class Chunk:
    """A file of questions that is being filled, for one model; it has no name on the disk, since it
    holds texts, and a kill must leave none."""

    judge: Judge
    limits: Limits
    file: BinaryIO
    form: str
    name: str = field(default_factory=lambda: f"jq{secrets.token_hex(10)}")
    lines: list[Line] = field(default_factory=list)
    size: int = 0
    tokens: float = 0.0

    def is_full(self, size: int) -> bool:
        """Whether a line of so many bytes may not follow."""
        room = len(self.lines) < self.limits.lines and self.size + size <= self.limits.bytes
        return bool(self.lines) and not room

    def add(self, line: Line, data: bytes, tokens: float) -> None:
        """Put a job's line in."""
        self.lines.append(line)
        self.size += len(data)
        self.tokens += tokens
        try:
            self.file.write(data)
        except OSError as error:
            raise RunError(
                f"a batch can't be put together on the disk: {error.strerror}."
            ) from error

    def batch(self, made: float) -> Batch:
        """The batch as it is written down before it is sent."""
        backend, jobs = backend_of(self.judge), len(self.lines)
        bounds = [line.bound for line in self.lines if line.bound is not None]
        reserved = math.fsum(bounds) if len(bounds) == jobs else None
        return Batch(
            name=self.name,
            judge=self.lines[0].job.match.judge,
            api=backend.model.api_of(backend.name),
            address=backend.address,
            form=self.form,
            made=made,
            jobs=jobs,
            reserved=reserved,
            tokens=self.tokens,
            left=jobs,
            at_risk=reserved,
        )


@dataclass(slots=True)
class Outlet:
    """The way to one backend: by which API, in batches of so many lines at most (None: as its provider
    takes them); the file that is being filled; why its server takes none now."""

    api: BatchAPI
    most: int | None
    chunk: Chunk | None = None
    down: CallError | None = None


@dataclass(slots=True)
class Sending:
    """What sends the batches of a run; `collecting` settles what was not taken, and has the budget."""

    store: Store
    panel: Panel
    stop: Stop
    emit: Emit
    collecting: Collecting
    most: int | None = None
    again_at: float | None = None
    """When more is sent though no batch has ended, by the monotonic clock; None: never so."""
    _more: bool = True  # more is pending than could be sent
    _outlets: dict[int, Outlet] = field(default_factory=dict)  # by backend
    _asked: dict[str, list[str]] = field(default_factory=dict)  # keys of what is out, by batch
    _keys: set[str] = field(default_factory=set)  # all of these
    _full_wait: float = field(default_factory=lambda: FULL_WAIT)
    _claimed: dict[int, Job] = field(
        default_factory=dict
    )  # and not handed over, while files are filled

    def outlet(self, judge: Judge) -> Outlet:
        """The way to a judge."""
        backend = backend_of(judge)
        if id(backend) not in self._outlets:
            from judgeq.judge import batches  # brings aiohttp

            self._outlets[id(backend)] = Outlet(batches.api_of(backend), self.most)
        return self._outlets[id(backend)]

    def too_much(self, judge: Judge, jobs: int) -> float:
        """A batch of so many jobs was refused, because too much waits at its provider: the next are half
        as large. Seconds until one is tried, unless one of ours ends before."""
        self.outlet(judge).most = max(1, jobs // 2)
        wait, self._full_wait = self._full_wait, min(2 * self._full_wait, LONGEST_FULL)
        self.again_at, self._more = time.monotonic() + wait, True
        return wait

    def ended(self, name: str) -> None:
        """A batch is over: there may be room for another."""
        self.again_at = None
        self._keys.difference_update(self._asked.pop(name, ()))

    async def send(self, out: Collection[str]) -> list[Batch]:
        """Send what is pending, as far as that may go now, while the batches named are out: those that
        were sent. What was given back meanwhile waits until all are in, so that it goes as one.

        Raises BudgetError where nothing is out, and the next question can't be paid; JudgeError where
        the provider refuses a batch for good.
        """
        if self.again_at is not None and time.monotonic() < self.again_at:
            return []
        if out and not self._more:
            return []
        self.again_at = None
        for outlet in self._outlets.values():
            outlet.down = None
        sent, unpaid = list[Batch](), None
        try:
            while unpaid is None and not self.stop.asked:
                jobs = await self.store.claim(whoami(), CLAIMED, self.store.lease)
                if not jobs:
                    break
                self._claimed |= {job.match.id: job for job in jobs}
                unpaid = await self._fill(jobs, sent)
            for outlet in self._outlets.values():
                if not self.stop.asked:
                    await self._submit(outlet, sent)
        finally:
            await self._give_back()
        down = [outlet.down for outlet in self._outlets.values() if outlet.down is not None]
        self._more = unpaid is not None or bool(down)
        for error in down:
            if not (out or sent):
                raise error
            self.again_at = math.inf  # until one has ended
            self.emit(Notice(f"{error} What is left is sent once a batch of ours has ended."))
        if unpaid is not None and not (out or sent or self.stop.asked):
            raise self.collecting.budget.exceeded(unpaid)
        return sent

    async def _fill(self, jobs: Sequence[Job], sent: list[Batch]) -> float | None:
        """Put jobs into files, but for those that the cache knows, and send files that are full. The
        bound of a request for which there was no money; None: all could be paid."""
        for job, request in await self._unknown(jobs):
            judge = self.panel.of(job.match)
            outlet = self.outlet(judge)
            if request.key in self._keys or outlet.down is not None:
                continue  # what a batch asks isn't asked by another until it is over
            if not await self._pay(request.bound):
                return request.bound
            try:
                chunk, data = self._line(outlet, judge, job, request)
                if chunk.is_full(len(data)):
                    await self._submit(outlet, sent)
                    chunk, data = self._line(outlet, judge, job, request)
            except BaseException:
                self.collecting.budget.release(request.bound)
                raise
            chunk.add(Line(job, request.bound, len(request.body)), data, request.tokens)
            if request.key is not None:
                self._asked.setdefault(chunk.name, []).append(request.key)
                self._keys.add(request.key)
        return None

    async def _unknown(self, jobs: Sequence[Job]) -> list[tuple[Job, Prepared]]:
        """The jobs that the cache doesn't know, with their requests; the others are settled."""
        unknown, outcomes = list[tuple[Job, Prepared]](), list[Outcome]()
        for job in jobs:
            judge = self.panel.of(job.match)
            request, how = prepared(judge, job)
            known = judge.recall(request, how)
            if known is None:
                unknown.append((job, how))
            else:
                outcomes.append(judge.for_nothing(request, *known))
        if outcomes:
            await self.store.settle(whoami(), outcomes)
        for outcome in outcomes:
            del self._claimed[outcome.job]
            self.emit(JobStarted(outcome.job))
            self.emit(JobEnded(outcome.job, outcome.state))
        return unknown

    def _line(
        self, outlet: Outlet, judge: Judge, job: Job, request: Prepared
    ) -> tuple[Chunk, bytes]:
        """The file that is being filled, which is made if there is none, and a job's line for it."""
        if outlet.chunk is None:
            limits, form = outlet.api.limits, backend_of(judge).form
            lines = min(limits.lines, outlet.most or limits.lines)
            file = tempfile.TemporaryFile(dir=self.collecting.folder)  # noqa: SIM115 - closed with its batch
            outlet.chunk = Chunk(judge, limits._replace(lines=lines), cast(BinaryIO, file), form)
        name = f"{outlet.chunk.name}-{job.match.id}"
        return outlet.chunk, outlet.api.line(name, request.body)

    async def _pay(self, bound: float | None) -> bool:
        """Reserve what a request may cost at most; False where that can't be had soon."""
        until = time.monotonic() + PATIENCE
        while wait := self.collecting.budget.reserve_now(bound):
            if wait == math.inf or time.monotonic() > until:
                return False
            try:
                await self.stop.sleep(wait)
            except StoppedError:
                return False
        return wait is not None

    async def _submit(self, outlet: Outlet, sent: list[Batch]) -> None:
        """Send the file that was being filled, if there is one."""
        chunk, outlet.chunk, batch = outlet.chunk, None, None
        if chunk is None:
            return
        with chunk.file:
            try:
                batch = await self._sent(chunk) if chunk.lines else None
            except CallError as error:  # its jobs went back; other servers are asked all the same
                outlet.down = error
        if batch is None:
            self.ended(chunk.name)
        else:
            sent.append(batch)

    async def _sent(self, chunk: Chunk) -> Batch | None:
        """Write down that a file is about to be sent, and send it. None where it surely wasn't taken,
        and its jobs went back."""
        batch = chunk.batch(time.time())
        for line in chunk.lines:
            del self._claimed[line.job.match.id]
        lost = await self.store.hand_over(whoami(), batch, chunk.lines)
        for line in chunk.lines:
            if line.job.match.id in lost:
                self.collecting.budget.release(line.bound)
                continue
            self.emit(JobStarted(line.job.match.id))
            self.emit(CallStarted())
        if not lost:
            return await self._created(batch, chunk, self.outlet(chunk.judge).api)
        if len(lost) < len(chunk.lines):  # else nothing was written down
            why = f"{len(lost):,} of its questions are another process's by now"
            await self._take_back(batch, why)
        return None

    async def _created(self, batch: Batch, chunk: Chunk, api: BatchAPI) -> Batch:
        """Create a batch; again where the provider asked for a pause, or surely did not take it."""
        wait, tries = FIRST_WAIT, 0
        while True:
            tries += 1
            if batch.error is not None:  # from here on it may be there for another reason
                batch = batch._replace(error=None)
                await self.store.note_batch(batch)
            try:
                return await self._noted(batch, await api.create(batch.name, chunk.file))
            except JudgeError as error:
                unsure = error.cost is None  # it may be there all the same: it is looked for
                again = isinstance(error, CallError) and tries < TRIES
                if unsure and not is_refusal(error):
                    return self._may_be_there(batch, error)
                if unsure:
                    batch = batch._replace(error=str(error))
                    await self.store.note_batch(batch)
                if unsure or again:
                    asked = error.retry_after if isinstance(error, CallError) else None
                    with suppress(StoppedError):
                        await self.stop.sleep(max(wait, asked or 0.0, SETTLING if unsure else 0.0))
                if unsure:
                    try:
                        found = await looked_for(self.store, batch, api, time.time())
                    except CallError:  # it can't be asked about just now
                        return self._may_be_there(batch, error)
                    if found.remote is not None:
                        self.emit(Notice(f"batch {batch.name} was created all the same: {error}"))
                        return await self._noted(batch, found.remote)
                    if found.doubtful or self.stop.asked:
                        return self._may_be_there(batch, error)
                if not again or self.stop.asked:
                    await self._take_back(batch, str(error))
                    raise
            wait = min(2 * wait, LONGEST_WAIT)

    async def _noted(self, batch: Batch, remote: Remote) -> Batch:
        return await note(self.store, batch._replace(error=None), remote, time.time())

    def _may_be_there(self, batch: Batch, error: JudgeError) -> Batch:
        text = f"batch {batch.name} may not have been created: {error} It is looked for at its provider."
        self.emit(Notice(text))
        return batch

    async def _take_back(self, batch: Batch, why: str) -> None:
        """A batch surely wasn't taken: its jobs go back, and cost nothing."""
        lines = await self.store.lines(batch.name)
        batch, error = batch._replace(error=why, left=len(lines)), f"its batch was not sent: {why}"
        await self.collecting.give_back(batch, lines, "not_sent", BatchState.REFUSED, error)

    async def _give_back(self) -> None:
        """What was claimed and isn't sent goes back into the queue, and its money."""
        for outlet in self._outlets.values():
            chunk, outlet.chunk = outlet.chunk, None
            if chunk is not None:
                chunk.file.close()
                self.ended(chunk.name)
                for line in chunk.lines:
                    self.collecting.budget.release(line.bound)
        back = [Outcome(job, JobState.PENDING) for job in self._claimed]
        self._claimed.clear()
        if back:
            await self.store.settle(whoami(), back)


async def note(store: Store, batch: Batch, remote: Remote, at: float) -> Batch:
    """The batch with what its provider says of it at that time, written down."""
    batch = batch._replace(
        remote=remote.id,
        state=BatchState.SENT,
        status=remote.status,
        total=remote.total,
        done=remote.done,
        failed=remote.failed,
        expires=remote.expires,
        seen=at,
    )
    await store.note_batch(batch)
    return batch


async def looked_for(store: Store, batch: Batch, api: BatchAPI, now: float) -> Identified:
    """What the provider's list says of a batch that may have been created."""
    known = {one.remote for one in await store.batches() if one.remote is not None}
    return await api.identify(batch.name, batch.jobs, min(batch.made, now), known)
