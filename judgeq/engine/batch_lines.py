"""The lines of batches: the requests that stand for jobs, and the results by which each is settled.

Results are told by their ids, never by their order or number: they may lack lines, hold them twice, hold
errors in their place, or hold what isn't ours. A line is read by the code that reads live replies. What
came of it is one of four things: a verdict; an unusable reply, asked again once; no answer, asked again;
an error that stops the run. What a kill cuts off is settled by the next session.
"""

from __future__ import annotations

import asyncio
import math
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from judgeq.engine.assembly import Run, Session
from judgeq.errors import (
    BrokenResultsError,
    BudgetError,
    CallError,
    JudgeError,
    JudgeqError,
    RunError,
    UnusableReplyError,
)
from judgeq.events import CallEnded, CallStarted, JobEnded, Notice
from judgeq.judge.backend import Prepared, Remote, Reply, Request, Result
from judgeq.judge.budget import Budget
from judgeq.judge.judge import ASKS, Judge, cut_reply
from judgeq.judge.panel import Panel
from judgeq.types import Batch, BatchState, Call, Job, JobState, Line, Outcome, Usage

if TYPE_CHECKING:
    from judgeq.judge.http.batch_api import BatchAPI
    from judgeq.judge.http.model_backend import ModelBackend

PATIENCE = 5.0
"""Seconds that a batch is kept open for money that other processes may give back."""
GROUP = 500
"""Results that are committed together."""
NO_ANSWER = {
    "cancelled": "its batch was cancelled before it was asked",
    "expired": "its batch expired before it was asked",
    "missing": "the results of its batch lack it: it may have been paid for",
}
"""Why a line has no answer, by what is said of it in the results."""


def backend_of(judge: Judge) -> ModelBackend:
    """The backend of a judge that is asked in batches. Raises JudgeError for one that never is."""
    if judge.batches is None:
        raise JudgeError(f"{judge.backend.name} can't be asked in batches.")
    return judge.batches


def budget_of(session: Session) -> Budget:
    """What a session may spend."""
    return session.judge.asked[0].budget


def prepared(judge: Judge, job: Job) -> tuple[Request, Prepared]:
    """The request that asks about a job now; after an unusable reply it says what was wrong."""
    problem = job.error if job.unusable else None
    request = judge.questions.request(job.match, job.attempts, job.unusable + 1, problem)
    return request, judge.prepared(request, backend_of(judge), problem)


def named(batch: Batch) -> str:
    """A batch, as messages name it."""
    return f"batch {batch.name} of {batch.jobs:,} questions"


def results_of(run: Run) -> Path:
    """The folder in which results of batches are kept until they are in the store."""
    return run.folder.scores.parent / "batches"


def tidy(run: Run) -> None:
    """Remove what a killed session left of results: they are downloaded again, for nothing."""
    shutil.rmtree(results_of(run), ignore_errors=True)  # which follows no link


def asked(panel: Panel, batch: Batch) -> Judge:
    """The judge whose batch it is.

    Raises JudgeError where it is at another server than its judge is asked at now: which server gets a
    key is not the ledger's to say.
    """
    judge = panel.judges[batch.judge] if 0 <= batch.judge < len(panel.judges) else None
    if judge is None:
        raise JudgeError(f"{named(batch)} is for judge {batch.judge}, and there is no such model.")
    address = backend_of(judge).address
    if batch.address != address:
        raise JudgeError(
            f"{named(batch)} is at {batch.address!r}, and its judge is asked at {address} now: give "
            "the address that it had (--base-url) until it is collected."
        )
    return judge


class Requests:
    """The requests of a batch for one judge that is to be created, in a file that has no name on the
    disk, since it holds texts, and a kill must leave none. Use as `with`. A question of which one of
    the `keys`, or of those that are `out`, is the same waits: the cache will answer it."""

    def __init__(self, session: Session, judge: int, api: BatchAPI, out: Set[str]) -> None:
        self.name = f"jq{secrets.token_hex(10)}"
        folder = results_of(session.run)
        self.file = cast(BinaryIO, tempfile.TemporaryFile(dir=folder))  # noqa: SIM115 - closed by `with`
        self.lines: list[Line] = []
        self.keys: set[str] = set()
        self._out = out
        self._session, self._judge, self._api = session, judge, api
        self._size, self._tokens = 0, 0.0

    def __enter__(self) -> Requests:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    async def fill(self, jobs: Sequence[Job], cached: list[Outcome]) -> BudgetError | None:
        """Put jobs in, as far as there is room and money; `cached` gets the outcomes of those that the
        cache knows. The error where there was no money."""
        for job in jobs:
            judge = self._session.judge.of(job.match)
            request, how = prepared(judge, job)
            known = judge.recall(request, how)
            if known is not None:
                cached.append(known)
                continue
            if how.key is not None and (how.key in self.keys or how.key in self._out):
                continue
            line = self._api.line(f"{self.name}-{job.match.id}", how.body)
            if self.lines and self._size + len(line) > self._api.most_bytes:
                break
            if not await self._pay(how.bound):
                return budget_of(self._session).exceeded(how.bound)
            if how.key is not None:
                self.keys.add(how.key)
            self.lines.append(Line(job, how.bound, len(how.body)))
            self._size += len(line)
            self._tokens += how.tokens
            try:
                self.file.write(line)
            except OSError as error:
                raise RunError(
                    f"a batch can't be put together on the disk: {error.strerror}."
                ) from error
        return None

    async def _pay(self, bound: float | None) -> bool:
        """Reserve what a request may cost at most; False where that can't be had soon."""
        budget, stop = budget_of(self._session), self._session.stop
        until = time.monotonic() + PATIENCE
        while wait := budget.reserve_now(bound):
            if wait == math.inf or time.monotonic() > until or stop.asked:
                return False
            await asyncio.sleep(wait)
        return wait is not None

    def batch(self) -> Batch:
        """The batch as it is written down before it is created."""
        line, jobs = self.lines[0], len(self.lines)
        backend = backend_of(self._session.judge.of(line.job.match))
        bounds = [line.bound for line in self.lines if line.bound is not None]
        reserved = math.fsum(bounds) if len(bounds) == jobs else None
        return Batch(
            name=self.name,
            judge=self._judge,
            api=backend.model.api_of(backend.name),
            address=backend.address,
            form=backend.form,
            made=time.time(),
            jobs=jobs,
            reserved=reserved,
            tokens=self._tokens,
            left=jobs,
            at_risk=reserved,
        )


@dataclass(slots=True)
class Settlement:
    """What settles the jobs of a session's batches. `error` is the first of those that are to stop the
    run."""

    session: Session
    error: JudgeqError | None = None

    async def collect(self, api: BatchAPI, batch: Batch, remote: Remote, *, last: bool) -> Batch:
        """Settle every job of a batch that ended, by its results; the batch then. Raises
        BrokenResultsError for results that are broken, or hold less than was answered; but not at the
        `last` try."""
        folder = results_of(self.session.run) / batch.name
        try:
            files = await api.download(remote, folder, as_it_is=last)
            if not last and sum(map(_lines, files)) < remote.done:
                raise BrokenResultsError("its results came shorter than they are said to be.")
            results = (result for file in files for result in api.results(file))
            return await self._collect(batch, remote, results)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    async def _collect(self, batch: Batch, remote: Remote, results: Iterable[Result]) -> Batch:
        lines = await self.session.store.lines(batch.name)
        left = {f"{batch.name}-{line.job.match.id}": line for line in lines}
        answered = batch.answered

        def outcomes() -> Iterator[tuple[Line, Outcome]]:
            nonlocal answered
            for result in results:
                line = left.pop(result.custom_id, None)
                if line is not None:  # else it is there twice, or isn't ours
                    answered += result.status == 200
                    yield line, self._settled(batch, line, result)

        batch = await self._settle(batch, outcomes(), BatchState.COLLECTED)
        # Of what its provider broke off the rest is free, if all that was answered is there.
        whole = answered >= remote.done and (remote.total > 0 or not remote.results)
        why = remote.status if remote.status in ("expired", "cancelled") and whole else "missing"
        if left and why == "missing":
            text = (
                f"the results of {named(batch)} lack {len(left):,} of its lines, which may have been "
                "paid for. These questions are asked again."
            )
            self.session.emit(Notice(text, warning=True))
        over = ((line, self._unanswered(line, why)) for line in left.values())
        batch = await self._settle(batch, over, BatchState.COLLECTED)
        return batch._replace(state=BatchState.COLLECTED)

    async def give_back(self, batch: Batch, state: BatchState, error: str) -> Batch:
        """Give all jobs back that a batch has, unanswered: of one that is lost as possibly paid for. The
        batch then, which is over."""
        lines = await self.session.store.lines(batch.name)
        why = "not_sent" if state is BatchState.REFUSED else "missing"
        batch = batch._replace(error=error, left=len(lines))
        outcomes = ((line, self._unanswered(line, why, error)) for line in lines)
        return (await self._settle(batch, outcomes, state))._replace(state=state)

    async def _settle(
        self, batch: Batch, outcomes: Iterable[tuple[Line, Outcome]], over: BatchState
    ) -> Batch:
        """Commit outcomes of a batch's jobs, and what they make of the batch, which is `over` with its
        last job; whatever is killed."""
        store, outcomes = self.session.store, iter(outcomes)
        while group := list(islice(outcomes, GROUP)):
            calls = [call for _, outcome in group for call in outcome.calls]
            left = batch.left - len(group)
            batch = batch._replace(
                cost=math.fsum([batch.cost, *(call.cost or 0.0 for call in calls)]),
                answered=batch.answered + sum(c.outcome in ("ok", "unusable") for c in calls),
                left=left,
                state=batch.state if left else over,
            )
            async with store.together():
                await store.settle(batch.name, [outcome for _, outcome in group])
                await store.note_batch(batch)
            for line, outcome in group:
                cost = outcome.calls[-1].cost if outcome.calls else None
                budget_of(self.session).settle(line.bound, cost)
            await asyncio.sleep(0)
        return batch

    def _settled(self, batch: Batch, line: Line, result: Result) -> Outcome:
        """What a result says of its job; a verdict's reply is kept for other runs."""
        if result.ended is not None or not result.status:
            return self._unanswered(line, result.ended or "missing")
        judge = self.session.judge.of(line.job.match)
        backend = backend_of(judge)
        try:
            reply = backend.read_result(result, line.size, batch.form)
        except JudgeError as error:
            failed = Reply(str(error), Usage(), error.cost, str(error))
            if isinstance(error, CallError):
                return self._ended(line, self._again(line), error.outcome, failed)
            self.error = self.error or error
            return self._ended(line, JobState.PENDING, error.outcome, failed)
        try:
            verdict = judge.questions.read(reply, line.job.match)
        except UnusableReplyError as error:
            try:
                judge.unusable.unusable(str(error), reply.text)
            except JudgeError as too_many:
                self.error = self.error or too_many
            again = line.job.unusable + 1 < ASKS
            state = JobState.PENDING if again else JobState.INVALID
            return self._ended(line, state, "unusable", reply._replace(problem=str(error)))
        judge.unusable.usable()
        outcome = self._ended(line, JobState.DONE, "ok", reply)._replace(verdict=verdict)
        # Under the request that it answers, which would be sent so now: what a run's file says must not
        # decide what replies are kept under.
        if judge.cache is not None and batch.form == backend.form:
            _, now = prepared(judge, line.job)
            if now.key is not None and len(now.body) == line.size:
                judge.cache.put(now.key, reply)
        return outcome

    def _unanswered(self, line: Line, why: str, error: str | None = None) -> Outcome:
        """A line without an answer: the job goes back. What wasn't asked for sure cost nothing; else its
        attempt stays in the ledger as one that may have been paid for, and after too many the job has
        failed."""
        error = error or f"{NO_ANSWER[why]}."
        if why != "missing":
            return self._ended(line, JobState.PENDING, why, Reply(error, Usage(), 0.0, error))
        job, state = line.job.match.id, self._again(line)
        self.session.emit(JobEnded(job, state))
        return Outcome(job, state, None, (), None if line.job.unusable else error)

    def _again(self, line: Line) -> JobState:
        """The state of a job without an answer: failed once it was asked too often."""
        policy = self.session.judge.of(line.job.match).policy
        return JobState.FAILED if line.job.attempts >= policy.attempts else JobState.PENDING

    def _ended(self, line: Line, state: JobState, how: str, reply: Reply) -> Outcome:
        """The outcome of a line with an answer. How long that took isn't known: a batch ends as a whole.
        What was wrong with a job's last reply stays, since that is asked again."""
        job = line.job
        shown = None if how == "unusable" else reply.problem
        self.session.emit(CallStarted())
        self.session.emit(CallEnded(how, reply.usage, reply.cost, 0.0, error=shown))
        self.session.emit(JobEnded(job.match.id, state))
        text = reply.text if how == "ok" else cut_reply(reply.text)
        at = self.session.judge.of(job.match).wall_clock()
        usage, cost = reply.usage, reply.cost
        call = Call(
            job.attempts, how, usage, cost, 0.0, text, at, line.bound, answerer=reply.answerer
        )
        error = None if job.unusable and how != "unusable" else reply.problem
        return Outcome(job.match.id, state, None, (call,), error)


def _lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)
