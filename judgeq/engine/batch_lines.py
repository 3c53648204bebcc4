"""The lines of batches: the requests that stand for jobs, and the results by which each is settled.

Results are told by their ids, never by their order or number: they may lack lines, hold them twice, hold
errors in their place, or hold what isn't ours. A line is read by the code that reads live replies. What
came of it is one of four things: a verdict; an unusable reply, asked again once; no answer, asked again;
an error that stops the run. What a kill cuts off is settled by the next session.
"""

from __future__ import annotations

import asyncio
import math
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from judgeq.errors import BrokenResultsError, CallError, JudgeError, UnusableReplyError
from judgeq.events import CallEnded, Emit, JobEnded, Notice
from judgeq.judge.backend import BatchAPI, Prepared, Remote, Reply, Request, Result
from judgeq.judge.budget import Budget
from judgeq.judge.judge import ASKS, Judge, cut_reply
from judgeq.judge.panel import Panel
from judgeq.store import Store
from judgeq.types import Batch, BatchState, Call, Job, JobState, Line, Outcome, Usage, Verdict

if TYPE_CHECKING:
    from judgeq.judge.http.model_backend import ModelBackend

GROUP = 500
"""Results that are committed together."""
TRIES = 3
"""Times that results are asked for again which are broken, or hold less than was answered."""
NO_ANSWER = {
    "cancelled": "its batch was cancelled before it was asked",
    "expired": "its batch expired before it was asked",
    "missing": "the results of its batch lack it: it may have been paid for",
    "not_sent": "its batch was not taken",
}
"""Why a line has no answer, by the outcome of its call in the ledger."""
FREE = ("cancelled", "expired", "not_sent")


def backend_of(judge: Judge) -> ModelBackend:
    """The backend of a judge that is asked in batches. Raises JudgeError for one that never is."""
    if judge.batches is None:
        raise JudgeError(f"{judge.backend.name} can't be asked in batches.")
    return judge.batches


def prepared(judge: Judge, job: Job) -> tuple[Request, Prepared]:
    """The request that asks about a job now; after an unusable reply it says what was wrong."""
    problem = job.error if job.unusable else None
    request = judge.questions.request(job.match, job.attempts, job.unusable + 1, problem)
    return request, judge.prepared(request, backend_of(judge), problem)


def named(batch: Batch) -> str:
    """A batch, as messages name it."""
    return f"batch {batch.name} of {batch.jobs:,} questions"


@dataclass(slots=True)
class Collecting:
    """What settles the jobs of batches; results are kept in a folder until they are in the ledger, those
    of each batch in one of its name. `error` is the first of those that are to stop the run."""

    store: Store
    panel: Panel
    emit: Emit
    budget: Budget
    folder: Path
    error: JudgeError | None = None
    _tries: dict[str, int] = field(default_factory=dict)  # that brought broken results, by batch
    _fetched: set[Path] = field(default_factory=set)  # what this session downloaded

    async def collect(self, api: BatchAPI, batch: Batch, remote: Remote) -> Batch:
        """Settle every job of a batch that ended; the batch then. Raises CallError where its results are
        to be asked for again, and BatchGoneError where they are no longer there."""
        files = await self._downloaded(api, batch, remote)
        lines = {line.job.match.id: line for line in await self.store.lines(batch.name)}
        left = dict(lines)
        results = (result for file in files for result in api.results(file))
        # What lay there before may be anybody's: it is the run's, and not for the cache of all runs.
        fresh, answered = self._fetched.issuperset(files), batch.answered

        def outcomes() -> Iterator[Outcome]:
            nonlocal answered
            for line, result in self._ours(batch, lines, left, results):
                answered += result.status == 200
                yield self._settled(batch, line, result, keep=fresh)

        batch = await self._settle(batch, lines, outcomes(), BatchState.COLLECTED)
        said_why = remote.status in ("expired", "cancelled")
        whole = answered >= remote.done and (remote.total > 0 or not files)
        why = remote.status if said_why and whole and not any(map(_left_out, files)) else "missing"
        if left and why == "missing":
            self._notify(
                f"the results of {named(batch)} lack {len(left):,} of its lines, which may have been "
                "paid for. These questions are asked again.",
                warning=True,
            )
        if said_why:
            self._notify(f"{named(batch)} {remote.status}; what it had answered is kept.")
        return await self.give_back(batch, list(left.values()), why, BatchState.COLLECTED)

    async def give_back(
        self,
        batch: Batch,
        lines: Sequence[Line],
        why: str,
        over: BatchState,
        error: str | None = None,
    ) -> Batch:
        """Give the jobs of these lines back, unanswered, `why` as in NO_ANSWER; the batch then, which
        is `over` with its last job."""
        by_job = {line.job.match.id: line for line in lines}
        outcomes = (self._unanswered(line, why, error) for line in lines)
        return await self._settle(batch, by_job, outcomes, over)

    async def _settle(
        self,
        batch: Batch,
        lines: Mapping[int, Line],
        outcomes: Iterable[Outcome],
        over: BatchState,
    ) -> Batch:
        """Commit outcomes of a batch's jobs, and what they make of the batch, whatever is killed."""
        outcomes = iter(outcomes)
        while group := list(islice(outcomes, GROUP)):
            calls = [call for outcome in group for call in outcome.calls]
            replies = sum(call.outcome in ("ok", "unusable") for call in calls)
            left = batch.left - len(group)
            batch = batch._replace(
                cost=math.fsum([batch.cost, *(call.cost or 0.0 for call in calls)]),
                answered=batch.answered + replies,
                left=left,
                state=batch.state if left else over,
            )
            async with self.store.together():
                await self.store.settle(batch.name, group)
                await self.store.note_batch(batch)
            for outcome in group:
                cost = outcome.calls[-1].cost if outcome.calls else None
                self.budget.settle(lines[outcome.job].bound, cost)
            await asyncio.sleep(0)
        return batch

    def _ours(
        self,
        batch: Batch,
        lines: Mapping[int, Line],
        left: dict[int, Line],
        results: Iterable[Result],
    ) -> Iterator[tuple[Line, Result]]:
        """The first result that there is of each line, which is then no longer `left`."""
        twice = strange = 0
        for result in results:
            number = _number(batch, result.custom_id)
            line = left.pop(number, None) if number is not None else None
            if line is not None:
                yield line, result
            elif number in lines:
                twice += 1
            elif number is None:
                strange += 1
        if twice:
            self._notify(
                f"the results of {named(batch)} held {twice:,} lines twice: the first counts."
            )
        if strange:
            self._notify(f"the results of {named(batch)} held {strange:,} lines that aren't ours.")

    def _settled(self, batch: Batch, line: Line, result: Result, *, keep: bool) -> Outcome:
        """What a result says of its job; with `keep` a verdict's reply is kept for other runs."""
        if result.ended is not None or not result.status:
            return self._unanswered(line, result.ended or "missing")
        judge = self.panel.of(line.job.match)
        backend = backend_of(judge)
        try:
            reply = backend.read_result(result, line.size, batch.form)
        except JudgeError as error:
            again = isinstance(error, CallError)
            state = JobState.FAILED if again and self._often(line) else JobState.PENDING
            if not again:
                self.error = self.error or error
            failed = Reply(str(error), Usage(), error.cost, str(error))
            return self._ended(line, state, error.outcome, failed)
        try:
            verdict = judge.questions.read(reply, line.job.match)
        except UnusableReplyError as error:
            try:
                judge.unusable.unusable(str(error), reply.text)
            except JudgeError as too_many:
                self.error = self.error or too_many
            again = line.job.unusable + 1 < ASKS
            state = JobState.PENDING if again else JobState.INVALID
            return self._ended(line, state, "unusable", reply._replace(problem=None), str(error))
        judge.unusable.usable()
        outcome = self._ended(line, JobState.DONE, "ok", reply, verdict=verdict)
        # Under the request that it answers, which would be sent so now: what a run's file says must not
        # decide what replies are kept under.
        if keep and judge.cache is not None and batch.form == backend.form:
            _, now = prepared(judge, line.job)
            if now.key is not None and len(now.body) == line.size:
                judge.keep(now.key, backend.name, reply, outcome.calls[-1].at)
        return outcome

    def _unanswered(self, line: Line, why: str, error: str | None = None) -> Outcome:
        """A line without an answer: the job goes back. Unless it cost nothing for sure, its attempt
        stays in the ledger as one that may have been paid for; after too many the job has failed."""
        error = error or f"{NO_ANSWER[why]}."
        if why in FREE:
            return self._ended(line, JobState.PENDING, why, Reply(error, Usage(), 0.0), error)
        state = JobState.FAILED if self._often(line) else JobState.PENDING
        job = line.job.match.id
        self.emit(JobEnded(job, state))
        return Outcome(job, state, None, (), None if line.job.unusable else error)

    def _often(self, line: Line) -> bool:
        """Whether a job was asked so often that it isn't asked again."""
        return line.job.attempts >= self.panel.of(line.job.match).policy.attempts

    def _ended(
        self,
        line: Line,
        state: JobState,
        how: str,
        reply: Reply,
        error: str | None = None,
        verdict: Verdict | None = None,
    ) -> Outcome:
        """The outcome of a line with an answer. How long that took isn't known: a batch ends as a whole.
        What was wrong with a job's last reply stays, since that is asked again."""
        job, problem = line.job, reply.problem
        self.emit(CallEnded(how, reply.usage, reply.cost, 0.0, error=problem))
        self.emit(JobEnded(job.match.id, state))
        text = reply.text if how == "ok" else cut_reply(reply.text)
        at = self.panel.of(job.match).wall_clock()
        call = Call(job.attempts, how, reply.usage, reply.cost, 0.0, text, at, line.bound)
        if how != "unusable" and job.unusable:
            error = problem = None
        return Outcome(job.match.id, state, verdict, (call,), error or problem)

    async def _downloaded(self, api: BatchAPI, batch: Batch, remote: Remote) -> list[Path]:
        """The files of a batch's results; asked for again a few times where they are broken, or hold
        less than was answered."""
        folder, tries = self.folder / batch.name, self._tries.get(batch.name, 0)
        before, last = _files(folder), tries >= TRIES
        try:
            files = await api.download(remote, folder, as_it_is=last)
            if not last and sum(map(_lines, files)) < remote.done:
                remove(folder)
                raise BrokenResultsError("its results came shorter than they are said to be.")
        except BrokenResultsError:
            self._tries[batch.name] = tries + 1
            raise
        finally:
            self._fetched |= _files(folder) - before
        return files

    def _notify(self, text: str, *, warning: bool = False) -> None:
        self.emit(Notice(text, warning=warning))


def _lines(file: Path) -> int:
    with file.open("rb") as lines:
        return sum(1 for _ in lines)


def _files(folder: Path) -> set[Path]:
    return set(folder.iterdir()) if folder.is_dir() else set()


def _left_out(file: Path) -> bool:
    """Whether a line was broken: it is empty."""
    with file.open("rb") as lines:
        return any(not line.strip() for line in lines)


def _number(batch: Batch, custom_id: str) -> int | None:
    """The job that a line is about; None where it is none of this batch's."""
    name, dash, number = custom_id.rpartition("-")
    if name != batch.name or not dash or not number.isascii() or not number.isdigit():
        return None
    return int(number) if len(number) < 19 else None


def remove(results: Path) -> None:
    """Remove a batch's folder of results, as far as that can be done."""
    shutil.rmtree(results, ignore_errors=True)


def tidy(folder: Path, needed: Collection[str]) -> None:
    """Remove what killed sessions left in the folder of results, but for the batches named."""
    if folder.is_symlink() or not folder.is_dir():
        return
    for results in folder.iterdir():
        if results.name not in needed:
            remove(results)
    with suppress(OSError):  # what isn't empty is needed
        folder.rmdir()
