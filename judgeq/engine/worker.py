"""Workers: each takes a job, asks the judge, hands in the outcome, until none is left."""

from __future__ import annotations

import asyncio
import math
from typing import Protocol

from judgeq.engine.assembly import Session
from judgeq.engine.queue import AT_ONCE, AT_ONCE_UNPAID, Queue, Stop
from judgeq.errors import JobLostError
from judgeq.events import Emit, JobEnded, JobStarted
from judgeq.judge.judge import Ledger
from judgeq.run_places import whoami
from judgeq.types import Job, JobState, Outcome


class Asked(Protocol):
    """What is asked about a job: a judge, or several as one."""

    async def ask(self, job: Job, ledger: Ledger) -> Outcome:
        """As Judge.ask."""


def queue_of(session: Session, most: float = math.inf) -> Queue:
    """This process's side of a session's queue, for `most` jobs in all."""
    at_once = AT_ONCE if session.run.settings.models else AT_ONCE_UNPAID
    return Queue(session.store, whoami(), session.stop, at_once=at_once, most=most)


async def work(queue: Queue, judge: Asked, stop: Stop, emit: Emit) -> None:
    """One worker. An error asks all others to stop, and is raised when its job is given back."""
    while (job := await queue.get()) is not None:
        number = job.match.id
        if stop.asked:  # between the claim and this turn: nothing has been sent
            queue.settle(Outcome(number, JobState.PENDING))
            return
        try:
            emit(JobStarted(number))
            outcome = await judge.ask(job, queue)
        except JobLostError:  # another worker has it by now, or will
            emit(JobEnded(number, JobState.PENDING))
            continue
        except Exception:
            queue.settle(Outcome(number, JobState.PENDING))
            stop.ask()
            emit(JobEnded(number, JobState.PENDING))
            raise
        queue.settle(outcome)
        emit(JobEnded(number, outcome.state))


async def drain(queue: Queue, judge: Asked, stop: Stop, emit: Emit, workers: int) -> None:
    """Let `workers` workers empty the queue. Those in flight are let finish, whatever one raises.

    Raises the first error of a worker. Cancelled, it cancels them all at once.
    """
    tasks = [asyncio.create_task(work(queue, judge, stop, emit)) for _ in range(workers)]
    # Cancelled, gather cancels what it waits for, and still waits for it.
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
