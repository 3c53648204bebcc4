"""What goes out in batches: pending jobs are claimed, looked up in the cache, and cut into files.

A file holds questions for one model, as many as its provider takes, --batch-size allows, and --max-cost
pays for: the most that they can cost together is reserved before the file is sent.
"""

from __future__ import annotations

import math
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import BinaryIO, cast

from judgeq.config import Settings
from judgeq.engine import batch_lines
from judgeq.engine.batch_lines import Collecting, looked_for
from judgeq.engine.queue import Stop
from judgeq.errors import CallError, JudgeError, RunError, StoppedError
from judgeq.events import CallStarted, Event, JobEnded, JobStarted, Notice
from judgeq.judge.backend import Prepared
from judgeq.judge.batches import BatchAPI, Limits, noted
from judgeq.judge.batches.adapter import is_refusal
from judgeq.judge.budget import Budget
from judgeq.judge.judge import Judge
from judgeq.judge.panel import Panel
from judgeq.runs import whoami
from judgeq.store import Store
from judgeq.types import Batch, BatchState, Job, JobState, Line, Outcome

CLAIMED = 1_000
"""Jobs that are claimed, and looked up in the cache, together."""
TRIES, FIRST_WAIT, LONGEST_WAIT = 8, 1.0, 60.0
"""How often a batch is offered that the provider surely did not take, and the seconds in between."""
LISTED_WAIT = 10.0
"""Seconds until a batch is looked for at a provider that said it wasn't created, and may be wrong."""
FULL_WAIT, LONGEST_FULL = 60.0, 900.0
"""Seconds until a batch is sent again after one was refused because too much waits."""
PATIENCE = 5.0
"""Seconds that a batch is kept open for money that other processes may give back."""


@dataclass(slots=True)
class Chunk:
    """A file of questions that is being filled, for one model; it has no name on the disk, since it
    holds texts, and a kill must leave none."""

    judge: Judge
    number: int
    limits: Limits
    file: BinaryIO
    form: str
    name: str = field(default_factory=lambda: f"jq{secrets.token_hex(10)}")
    lines: list[Line] = field(default_factory=list)
    size: int = 0
    tokens: float = 0.0

    def takes(self, size: int) -> bool:
        """Whether a line of so many bytes may follow."""
        room = len(self.lines) < self.limits.lines and self.size + size <= self.limits.bytes
        return room or not self.lines

    def add(self, line: Line, data: bytes, tokens: float) -> None:
        """Put a job's line in."""
        try:
            self.file.write(data)
        except OSError as error:
            raise RunError(
                f"a batch can't be put together on the disk: {error.strerror}."
            ) from error
        self.lines.append(line)
        self.size += len(data)
        self.tokens += tokens


@dataclass(slots=True)
class Sending:
    """What sends the batches of a run; `budget` pays for them, and `collecting` settles what was not
    taken. `limited` says that more is pending than could be sent."""

    store: Store
    panel: Panel
    stop: Stop
    emit: Callable[[Event], None]
    budget: Budget
    collecting: Collecting
    most: int | None = None
    wall_clock: Callable[[], float] = time.time
    limited: bool = True
    _apis: dict[int, BatchAPI] = field(default_factory=dict)  # by backend
    _asked: dict[str, list[str]] = field(default_factory=dict)  # keys of what is out, by batch
    _keys: set[str] = field(default_factory=set)  # all of these
    _largest: dict[int, int] = field(default_factory=dict)  # by backend, after a refusal
    _full_wait: float = field(default_factory=lambda: FULL_WAIT)
    _full_until: float | None = None
    clock: Callable[[], float] = time.monotonic

    @classmethod
    def of(
        cls,
        settings: Settings,
        store: Store,
        panel: Panel,
        stop: Stop,
        emit: Callable[[Event], None],
        collecting: Collecting,
    ) -> Sending:
        """That of a session, whose files lie beside the results while they are filled."""
        return cls(
            store,
            panel,
            stop,
            emit,
            collecting.budget,
            collecting,
            most=settings.batch_size,
        )

    def api(self, judge: Judge) -> BatchAPI:
        """The batch API that a judge is asked by."""
        backend = batch_lines.backend_of(judge)
        if id(backend) not in self._apis:
            from judgeq.judge.batches.providers import api_of  # brings aiohttp

            self._apis[id(backend)] = api_of(backend)
        return self._apis[id(backend)]

    @property
    def waits(self) -> bool:
        """Whether something is to be sent in a while, though no batch is out."""
        return self._full_until is not None

    def waits_until(self, now: float) -> float:
        """When more may be sent though no batch has ended, by the monotonic clock; infinite: never."""
        return math.inf if self._full_until is None else max(now, self._full_until)

    def too_much(self, judge: Judge, jobs: int) -> float:
        """A batch of so many jobs was refused, because too much waits at its provider: the next are half
        as large. Seconds until one is tried, unless one of ours ends before."""
        backend = batch_lines.backend_of(judge)
        self._largest[id(backend)] = max(1, jobs // 2)
        wait, self._full_wait = self._full_wait, min(2 * self._full_wait, LONGEST_FULL)
        self._full_until, self.limited = self.clock() + wait, True
        return wait

    def ended(self, name: str) -> None:
        """A batch is over: there may be room for another."""
        self._full_until = None
        self._keys.difference_update(self._asked.pop(name, ()))

    async def send(self, out: Collection[str]) -> list[Batch]:
        """Send what is pending, as far as that may go now, while the batches named are out: those that
        were sent. What was given back meanwhile waits until all are in, so that it goes as one.

        Raises BudgetError where nothing is out, and the next question can't be paid; JudgeError where
        the provider refuses a batch for good.
        """
        if self._full_until is not None and self.clock() < self._full_until:
            return []
        if out and not self.limited:
            return []
        self._full_until = None
        filling = _Filling(self)
        try:
            while not self.stop.asked:
                jobs = await self.store.claim(whoami(), CLAIMED, self.store.lease)
                filling.held = {job.match.id: job for job in jobs}
                asked = await self._unknown(jobs)
                filling.held = {job.match.id: job for job, _ in asked}
                if not jobs or not await filling.take(asked):
                    break
            await filling.submit()
        finally:
            await filling.give_back()
        if filling.error is not None:
            if not (out or filling.sent):
                raise filling.error
            self._full_until = math.inf  # until one has ended
            self.emit(
                Notice(f"{filling.error} What is left is sent once a batch of ours has ended.")
            )
        self.limited = filling.limited
        if filling.unpaid is not None and not (out or filling.sent or self.stop.asked):
            raise self.budget.exceeded(filling.unpaid)
        return filling.sent

    async def _unknown(self, jobs: Sequence[Job]) -> list[tuple[Job, Prepared]]:
        """The jobs that the cache doesn't know, with their requests; the others are settled."""
        asked, known = list[tuple[Job, Prepared]](), list[Outcome | None]()
        for job in jobs:
            judge = self.panel.of(job.match)
            request, prepared = batch_lines.prepared(judge, job)
            asked.append((job, prepared))
            known.append(batch_lines.recalled(judge, request, prepared))
        outcomes = [outcome for outcome in known if outcome is not None]
        if outcomes:
            await self.store.settle(whoami(), outcomes)
            for outcome in outcomes:
                self.emit(JobStarted(outcome.job))
                self.emit(JobEnded(outcome.job, outcome.state))
        return [one for one, outcome in zip(asked, known, strict=True) if outcome is None]

    def chunk(self, judge: Judge, number: int) -> Chunk:
        """A new file for a judge's model."""
        backend = batch_lines.backend_of(judge)
        limits = self.api(judge).limits
        most = [self.most, self._largest.get(id(backend))]
        lines = min([limits.lines, *(limit for limit in most if limit is not None)])
        file = tempfile.TemporaryFile(dir=self.collecting.folder)  # noqa: SIM115 - _Filling closes it
        return Chunk(
            judge, number, limits._replace(lines=lines), cast(BinaryIO, file), backend.form
        )

    async def pay(self, bound: float | None) -> bool:
        """Reserve what a request may cost at most; False where that can't be had soon."""
        until = self.clock() + PATIENCE
        while True:
            wait = self.budget.reserve_now(bound)
            if wait == 0:
                return True
            if wait is None or wait == math.inf or self.clock() > until:
                return False
            try:
                await self.stop.sleep(wait)
            except StoppedError:
                return False

    async def submit(self, chunk: Chunk) -> Batch | None:
        """Write down that a file is about to be sent, and send it. None where it surely wasn't taken,
        and its jobs went back."""
        backend = batch_lines.backend_of(chunk.judge)
        bounds = [line.bound for line in chunk.lines if line.bound is not None]
        batch = Batch(
            name=chunk.name,
            judge=chunk.number,
            api=backend.model.api_of(backend.name),
            address=backend.address,
            form=chunk.form,
            made=self.wall_clock(),
            jobs=len(chunk.lines),
            reserved=math.fsum(bounds) if len(bounds) == len(chunk.lines) else None,
            tokens=chunk.tokens,
            left=len(chunk.lines),
        )
        batch = batch._replace(at_risk=batch.reserved)
        lost = await self.store.hand_over(whoami(), batch, chunk.lines)
        for line in chunk.lines:
            if line.job.match.id in lost:
                self.budget.release(line.bound)
                continue
            self.emit(JobStarted(line.job.match.id))
            self.emit(CallStarted())
        if len(lost) == len(chunk.lines):  # nothing was written down
            return None
        if lost:
            await self._take_back(
                batch, f"{len(lost):,} of its questions are another process's by now"
            )
            return None
        return await self._created(batch, chunk, self.api(chunk.judge))

    async def _created(self, batch: Batch, chunk: Chunk, api: BatchAPI) -> Batch:
        """Create a batch; again where the provider asked for a pause, or surely did not take it."""
        wait = FIRST_WAIT
        for tries in range(1, TRIES + 1):
            if batch.error is not None:  # from here on it may be there for another reason
                batch = batch._replace(error=None)
                await self.store.note_batch(batch)
            try:
                chunk.file.seek(0)
                remote = await api.create(batch.name, chunk.file)
                break
            except JudgeError as error:
                unsure = error.cost is None  # it may be there all the same: it is looked for
                if unsure and not is_refusal(error):
                    return self._may_be_there(batch, error)
                again = isinstance(error, CallError) and tries < TRIES and not self.stop.asked
                after = error.retry_after if isinstance(error, CallError) else None
                if unsure:
                    batch, wait = batch._replace(error=str(error)), max(wait, LISTED_WAIT)
                    await self.store.note_batch(batch)
                if unsure or again:
                    with suppress(StoppedError):  # it is looked for, or tried, once more
                        await self.stop.sleep(max(wait, after or 0.0))
                if unsure:
                    try:
                        found = await looked_for(self.store, batch, api, self.wall_clock())
                    except CallError:  # it can't be asked about just now
                        return self._may_be_there(batch, error)
                    if found.remote is not None:
                        self.emit(Notice(f"batch {batch.name} was created all the same: {error}"))
                        remote = found.remote
                        break
                    if found.doubtful:
                        return self._may_be_there(batch, error)
                if not again:
                    await self._take_back(batch, str(error))
                    raise
                wait = min(2 * wait, LONGEST_WAIT)
        sent = noted(batch._replace(error=None), remote, self.wall_clock())
        await self.store.note_batch(sent)
        return sent

    def _may_be_there(self, batch: Batch, error: JudgeError) -> Batch:
        text = f"batch {batch.name} may not have been created: {error} It is looked for at its provider."
        self.emit(Notice(text))
        return batch

    async def _take_back(self, batch: Batch, why: str) -> None:
        """A batch surely wasn't taken: its jobs go back, and cost nothing."""
        lines = await self.store.lines(batch.name)
        batch, error = batch._replace(error=why, left=len(lines)), f"its batch was not sent: {why}"
        await self.collecting.give_back(batch, lines, "not_sent", BatchState.REFUSED, error)

    def keep_key(self, name: str, key: str) -> None:
        """What is asked by a batch is not asked by another until it is over."""
        self._asked.setdefault(name, []).append(key)
        self._keys.add(key)

    def is_asked(self, key: str | None) -> bool:
        """Whether a batch that is out asks just that."""
        return key in self._keys


class _Filling:
    """Files being filled with jobs that are claimed, one for each model; `held` are those that are in
    none yet, by number. `unpaid` is the most that the request costs for which there was no money;
    `error` is that of a server that takes no batch now."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._chunks: dict[int, Chunk] = {}
        self.held: dict[int, Job] = {}
        self._back: list[Job] = []
        self.sent: list[Batch] = []
        self.unpaid: float | None = None
        self.limited = False
        self.error: CallError | None = None
        self._down: set[int] = set()  # backends

    async def take(self, asked: Sequence[tuple[Job, Prepared]]) -> bool:
        """Put jobs into files, and send those that are full. False where no more may follow."""
        sending = self._sending
        for job, prepared in asked:
            if sending.is_asked(prepared.key) or self._is_down(job):
                self._back.append(job)
            else:
                if not await sending.pay(prepared.bound):
                    self.unpaid, self.limited = prepared.bound, True
                    return False
                try:
                    await self._put(job, prepared)
                except BaseException:
                    sending.budget.release(prepared.bound)
                    raise
            del self.held[job.match.id]
        return True

    def _is_down(self, job: Job) -> bool:
        return id(batch_lines.backend_of(self._sending.panel.of(job.match))) in self._down

    async def _put(self, job: Job, prepared: Prepared) -> None:
        sending, number = self._sending, job.match.judge
        judge = sending.panel.of(job.match)
        backend = batch_lines.backend_of(judge)
        chunk = self._chunks.get(id(backend))
        api, line = sending.api(judge), Line(job, prepared.bound, len(prepared.body))
        if chunk is not None:
            data = api.line(f"{chunk.name}-{job.match.id}", prepared.body)
            if not chunk.takes(len(data)):
                await self._submit(self._chunks.pop(id(backend)))
                chunk = None
        if chunk is None:
            chunk = self._chunks[id(backend)] = sending.chunk(judge, number)
            data = api.line(f"{chunk.name}-{job.match.id}", prepared.body)
        chunk.add(line, data, prepared.tokens)
        if prepared.key is not None:
            sending.keep_key(chunk.name, prepared.key)

    async def submit(self) -> None:
        """Send all files."""
        while self._chunks and not self._sending.stop.asked:
            await self._submit(self._chunks.pop(next(iter(self._chunks))))

    async def _submit(self, chunk: Chunk) -> None:
        batch = None
        with chunk.file:
            try:
                batch = await self._sending.submit(chunk)
            except CallError as error:  # its jobs went back; other servers are asked all the same
                self.error, self.limited = self.error or error, True
                self._down.add(id(batch_lines.backend_of(chunk.judge)))
        if batch is None:
            self._sending.ended(chunk.name)
        else:
            self.sent.append(batch)

    async def give_back(self) -> None:
        """What was claimed and isn't sent goes back into the queue, and its money."""
        sending = self._sending
        for chunk in self._chunks.values():
            chunk.file.close()
            sending.ended(chunk.name)
            for line in chunk.lines:
                self._back.append(line.job)
                sending.budget.release(line.bound)
        self._chunks.clear()
        back = [*self._back, *self.held.values()]
        self._back, self.held = [], {}
        if back:
            outcomes = [Outcome(job.match.id, JobState.PENDING) for job in back]
            await sending.store.settle(whoami(), outcomes)
