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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from judgeq.errors import BrokenResultsError, CallError, JudgeError, UnusableReplyError
from judgeq.events import CallEnded, Event, JobEnded, Notice
from judgeq.judge.backend import Prepared, Reply, Request
from judgeq.judge.batches import BatchAPI, Identified, Remote, Result
from judgeq.judge.budget import Budget
from judgeq.judge.judge import ASKS, Judge
from judgeq.judge.panel import Panel
from judgeq.judge.sending import kept
from judgeq.store import Store
from judgeq.types import Batch, BatchState, Call, Job, JobState, Line, Outcome, Usage

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


class Settled(NamedTuple):
    """What became of a line, and the error that is to stop the run once all lines are settled."""

    outcome: Outcome
    error: JudgeError | None = None


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


def recalled(judge: Judge, request: Request, prepared: Prepared) -> Outcome | None:
    """The outcome of a job by a reply that was paid for before; None where the cache knows none."""
    known = judge.recall(request, prepared)
    return known and judge.for_nothing(request, *known)


def settled(judge: Judge, line: Line, result: Result, form: str, *, keep: bool) -> Settled:
    """What a result says of its job, which was asked in that form; with `keep` a reply that gives a
    verdict is kept for other runs."""
    if result.ended is not None:
        return Settled(unanswered(judge, line, result.ended))
    if not result.status:
        return Settled(unanswered(judge, line, "missing"))
    try:
        reply = backend_of(judge).read_result(result, line.size, form)
    except JudgeError as error:
        call = _call(judge, line, error.outcome, Usage(), error.cost, str(error))
        judge.sender.emit(CallEnded(call.outcome, call.usage, call.cost, 0.0, error=str(error)))
        failed = isinstance(error, CallError) and _often(judge, line)
        state = JobState.FAILED if failed else JobState.PENDING
        stops = None if isinstance(error, CallError) else error
        return Settled(_ended(judge, line, state, call, _why(line, str(error))), stops)
    return _read(judge, line, reply, keep=keep and form == backend_of(judge).form)


def _read(judge: Judge, line: Line, reply: Reply, *, keep: bool) -> Settled:
    match, stops = line.job.match, None
    try:
        verdict = judge.questions.read(reply, match)
    except UnusableReplyError as error:
        call = _call(judge, line, "unusable", *_of(reply))
        judge.sender.emit(CallEnded("unusable", reply.usage, reply.cost, 0.0))
        try:
            judge.unusable.unusable(str(error), reply.text)
        except JudgeError as too_many:
            stops = too_many
        asked = line.job.unusable + 1
        state = JobState.INVALID if asked >= ASKS else JobState.PENDING
        return Settled(_ended(judge, line, state, call, str(error)), stops)
    judge.unusable.usable()
    call = _call(judge, line, "ok", *_of(reply))
    judge.sender.emit(CallEnded("ok", reply.usage, reply.cost, 0.0))
    if keep:
        _keep(judge, line, call, reply)
    judge.sender.emit(JobEnded(match.id, JobState.DONE))
    return Settled(Outcome(match.id, JobState.DONE, verdict, (call,)))


def unanswered(judge: Judge, line: Line, why: str, error: str | None = None) -> Outcome:
    """The outcome of a line without an answer: the job goes back. Unless it cost nothing for sure, its
    attempt stays in the ledger as one that may have been paid for; after too many the job has failed."""
    error = error or f"{NO_ANSWER[why]}."
    calls: tuple[Call, ...] = ()
    if why in FREE:
        calls = (_call(judge, line, why, Usage(), 0.0, error),)
        judge.sender.emit(CallEnded(why, Usage(), 0.0, 0.0))  # no server failed
    state = JobState.PENDING if why in FREE or not _often(judge, line) else JobState.FAILED
    judge.sender.emit(JobEnded(line.job.match.id, state))
    return Outcome(line.job.match.id, state, None, calls, _why(line, error))


def _often(judge: Judge, line: Line) -> bool:
    """Whether a job was asked so often that it isn't asked again."""
    return line.job.attempts >= judge.sender.policy.attempts


def _why(line: Line, error: str) -> str | None:
    """What the ledger is to say of a job without an answer; what was wrong with its last reply stays,
    since that is asked again."""
    return None if line.job.unusable else error


def _ended(judge: Judge, line: Line, state: JobState, call: Call, error: str | None) -> Outcome:
    judge.sender.emit(JobEnded(line.job.match.id, state))
    return Outcome(line.job.match.id, state, None, (call,), error)


def _of(reply: Reply) -> tuple[Usage, float | None, str]:
    return reply.usage, reply.cost, reply.text


def _call(
    judge: Judge, line: Line, outcome: str, usage: Usage, cost: float | None, text: str
) -> Call:
    """How long an answer took isn't known: a batch ends as a whole."""
    at, attempt = judge.sender.wall_clock(), line.job.attempts
    text = text if outcome == "ok" else kept(text)
    return Call(attempt, outcome, usage, cost, 0.0, text, at, line.bound)


def _keep(judge: Judge, line: Line, call: Call, reply: Reply) -> None:
    """Keep a reply for other runs, under the request that it answers, which would be sent so now: what a
    run's file says must not decide what replies are kept under."""
    # What was asked before this attempt: the ledger has counted it since.
    _, now = prepared(judge, line.job)
    if now.key is not None and len(now.body) == line.size:
        judge.keep(now.key, backend_of(judge).name, reply, call.at)


@dataclass(slots=True)
class _Seen:
    """The lines of results: those of ours that haven't come yet, how many answers came, and how many
    lines came twice or aren't ours; and the first error that is to stop the run."""

    left: dict[int, Line]
    answered: int
    twice: int = 0
    strange: int = 0
    error: JudgeError | None = None


class Collected(NamedTuple):
    """A batch whose jobs are settled, and the error that is to stop the run."""

    batch: Batch
    error: JudgeError | None


@dataclass(slots=True)
class Collecting:
    """What settles the jobs of batches; results are kept in a folder until they are in the ledger, those
    of each batch in one of its name."""

    store: Store
    panel: Panel
    emit: Callable[[Event], None]
    budget: Budget
    folder: Path
    _tries: dict[str, int] = field(default_factory=dict)  # that brought broken results, by batch
    _fetched: set[Path] = field(default_factory=set)  # what this session downloaded

    async def collect(self, api: BatchAPI, batch: Batch, remote: Remote) -> Collected:
        """Settle every job of a batch that ended. Raises CallError where its results are to be asked
        for again, and BatchGoneError where they are no longer there."""
        files = await self._downloaded(api, batch, remote)
        lines = {line.job.match.id: line for line in await self.store.lines(batch.name)}
        seen = _Seen(dict(lines), batch.answered)
        results = (result for file in files for result in api.results(file))
        # What lay there before may be anybody's: it is the run's, and not for the cache of all runs.
        fresh = self._fetched.issuperset(files)
        outcomes = self._outcomes(batch, lines, results, seen, keep=fresh)
        batch = await self.settle(batch, lines, outcomes, BatchState.COLLECTED)
        counted = seen.answered >= remote.done and (remote.total > 0 or not files)
        all_there = counted and not any(map(_left_out, files))
        ended = remote.status if remote.status in ("expired", "cancelled") else "missing"
        why = ended if all_there else "missing"
        missing = len(seen.left) if why == "missing" else 0
        batch = await self.give_back(batch, list(seen.left.values()), why, BatchState.COLLECTED)
        self._report(batch, remote, seen, missing)
        return Collected(batch, seen.error)

    async def give_back(
        self,
        batch: Batch,
        lines: Sequence[Line],
        why: str,
        over: BatchState,
        error: str | None = None,
    ) -> Batch:
        """Give the jobs of these lines back, unanswered; the batch then. `why` as in
        NO_ANSWER, `over` as in `settle`."""
        judge_of = self.panel.of
        return await self.settle(
            batch,
            {line.job.match.id: line for line in lines},
            (unanswered(judge_of(line.job.match), line, why, error) for line in lines),
            over,
        )

    async def settle(
        self,
        batch: Batch,
        lines: Mapping[int, Line],
        outcomes: Iterable[Outcome],
        over: BatchState,
    ) -> Batch:
        """Commit outcomes of a batch's jobs; the batch then, which is `over` with its last job, whatever
        is killed."""
        outcomes = iter(outcomes)
        while group := list(islice(outcomes, GROUP)):
            batch = _with(batch, group)
            if not batch.left:
                batch = batch._replace(state=over)
            async with self.store.together():
                await self.store.settle(batch.name, group)
                await self.store.note_batch(batch)
            for outcome in group:
                cost = outcome.calls[-1].cost if outcome.calls else None
                self.budget.settle(lines[outcome.job].bound, cost)
            await asyncio.sleep(0)
        return batch

    def _outcomes(
        self,
        batch: Batch,
        lines: Mapping[int, Line],
        results: Iterable[Result],
        seen: _Seen,
        *,
        keep: bool,
    ) -> Iterator[Outcome]:
        """What each result says of its job; the first that there is of one."""
        for result in results:
            number = _number(batch, result.custom_id)
            line = None if number is None else seen.left.pop(number, None)
            if line is None:
                seen.twice += number in lines
                seen.strange += number is None
                continue
            seen.answered += result.status == 200
            judge = self.panel.of(line.job.match)
            done = settled(judge, line, result, batch.form, keep=keep)
            seen.error = seen.error or done.error
            yield done.outcome

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

    def _report(self, batch: Batch, remote: Remote, seen: _Seen, missing: int) -> None:
        """What was odd about the results of a batch."""
        results = f"the results of {named(batch)}"
        if missing:
            self._notify(
                f"{results} lack {missing:,} of its lines, which may have been paid for. These "
                "questions are asked again.",
                warning=True,
            )
        if seen.twice:
            self._notify(f"{results} held {seen.twice:,} lines twice: the first counts.")
        if seen.strange:
            self._notify(f"{results} held {seen.strange:,} lines that aren't ours.")
        if remote.status in ("expired", "cancelled"):
            self._notify(f"{named(batch)} {remote.status}; what it had answered is kept.")

    def _notify(self, text: str, *, warning: bool = False) -> None:
        self.emit(Notice(text, warning=warning))


def _with(batch: Batch, outcomes: list[Outcome]) -> Batch:
    """A batch with what these outcomes add to it."""
    calls = [call for outcome in outcomes for call in outcome.calls]
    replies = sum(call.outcome in ("ok", "unusable") for call in calls)
    cost = math.fsum([batch.cost, *(call.cost or 0.0 for call in calls)])
    return batch._replace(
        cost=cost, answered=batch.answered + replies, left=batch.left - len(outcomes)
    )


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


async def looked_for(store: Store, batch: Batch, api: BatchAPI, now: float) -> Identified:
    """What the provider's list says of a batch that may have been created."""
    known = {one.remote for one in await store.batches() if one.remote is not None}
    return await api.identify(batch.name, batch.jobs, min(batch.made, now), known)


def named(batch: Batch) -> str:
    """A batch, as messages name it."""
    return f"batch {batch.name} of {batch.jobs:,} questions"


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
