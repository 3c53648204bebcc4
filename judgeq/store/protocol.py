"""The Store: the one place where a run's facts are kept, as a protocol that a database carries.

A store holds one run: its items, rounds, jobs, calls and verdicts. The scheduler (`lead`,
`plan_round`, `round_state`, `verdicts`) and the workers (`claim`, `begin`, `settle`, `renew`) are the
same code on every store; nothing else writes. Every operation is one transaction: it happened
whole, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from judgeq.events import Event
from judgeq.judge.slices import Keeper
from judgeq.person import Check, Handed, Person
from judgeq.store.crew import Crew
from judgeq.types import (
    Attempt,
    Batch,
    Bools,
    Call,
    Counts,
    Failure,
    Floats,
    Job,
    JobState,
    Line,
    Match,
    Matches,
    Outcome,
    Standings,
    Totals,
    Usage,
    Verdicts,
)


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """What the store knows of the dataset: n ids, n gold labels (nan: none; None: no gold at all),
    and named subsets as masks of shape (n,). Never the texts."""

    ids: Sequence[str]
    gold: Floats | None
    subsets: Mapping[str, Bools]

    def same_as(self, other: Items) -> bool:
        """Whether ids, gold and subsets are equal."""
        if len(self.ids) != len(other.ids) or list(self.ids) != list(other.ids):
            return False
        if (self.gold is None) != (other.gold is None) or set(self.subsets) != set(other.subsets):
            return False
        if (
            self.gold is not None
            and other.gold is not None
            and not np.array_equal(self.gold, other.gold, equal_nan=True)
        ):
            return False
        return all(np.array_equal(mask, other.subsets[name]) for name, mask in self.subsets.items())


class Spent(NamedTuple):
    """What the replies to one question took together: tokens, dollars (None: unknown), and seconds (0
    where the cache answered)."""

    match: Match
    usage: Usage
    cost: float | None
    latency: float


class Store(Protocol):
    """The operations. `now` is always the store's own clock; rounds count from 1."""

    @property
    def blocking(self) -> bool:
        """Whether operations keep the event loop until they are done, so that nothing runs meanwhile."""

    @property
    def lease(self) -> float:
        """Seconds for which jobs, and the run, are best held."""

    @property
    def damage(self) -> Sequence[str]:
        """What doesn't add up in the ledger, in words, where that was accepted."""

    @property
    def keeper(self) -> Keeper | None:
        """What the processes that work on the run share; None where only one does."""

    @property
    def processes(self) -> int:
        """How many processes work on the runs of the store now, this one included."""

    def report_to(self, emit: Callable[[Event], None]) -> None:
        """Have the user notified of what they should know of the store, from now on."""

    def hurry(self) -> None:
        """A stop was asked for: from now on don't wait for long where the store can't be reached."""

    # The dataset's edge

    async def set_items(self, items: Items) -> None:
        """Put the items in, or change the gold and subsets of those that are there."""

    async def items(self) -> Items:
        """The items as they were put in; none (n = 0) before `set_items`."""

    # The scheduler

    async def lead(self, holder: str, ttl: float) -> int:
        """Become the scheduler for `ttl` seconds; the epoch returned fences off earlier ones.

        Raises LedError while another process leads.
        """

    async def renew_lead(self, epoch: int, ttl: float) -> None:
        """Stay the scheduler for `ttl` seconds from now. Raises RunError when the epoch is over."""

    async def plan_round(
        self, round: int, epoch: int, standings: Standings, matches: Matches
    ) -> None:
        """In one transaction: the ratings and active items that the round was made from, its matches,
        its jobs.

        Matches get the next canonical numbers, which are their jobs' ids. Raises RunError when the
        epoch is over, or the round is planned already or out of turn.
        """

    async def round_state(self, round: int) -> Counts | None:
        """The round's jobs by state (the barrier: `left` is 0); None before it is planned."""

    async def ratings(self, round: int) -> Floats | None:
        """The ratings that a planned round was made from; None before it is planned."""

    async def active(self, round: int) -> Bools | None:
        """The items that could be asked about in a planned round, shape (n,); None before it is
        planned."""

    async def verdicts(self, round: int | None = None) -> Verdicts:
        """The verdicts of one round, or of all, in match order.

        Raises RunError when they don't fit the matches they answer (a damaged file).
        """

    async def matches(self, round: int) -> Matches:
        """A planned round's questions, with their judges; none before it is planned."""

    async def left(self, round: int) -> list[Match]:
        """The matches of a planned round that have no outcome yet."""

    async def counts(self) -> Counts:
        """The jobs of all planned rounds by state."""

    async def totals(self) -> Totals:
        """What the ledger adds up to."""

    async def spent(self, n: int) -> list[Spent]:
        """What the replies to the questions with an outcome took, in match order; of about the first n
        calls."""

    async def calls(self, jobs: Sequence[int]) -> Mapping[int, Sequence[Call]]:
        """The calls about these jobs, by job, in the order in which they ended, without what their
        attempts were begun with; nothing for a job that had none. `reply` is raw, and says of a call
        without an answer why. Raises RunError for calls that can't be."""

    async def last_failure(self) -> Failure | None:
        """The last call that brought no answer; None if there was none."""

    async def crew(self) -> Crew | None:
        """Who works on the run, and what they share; None where only one process can."""

    async def reopen(self, *states: JobState) -> int:
        """Put all jobs in these states (INVALID, FAILED) back in the queue; how many they were."""

    # The workers

    def turn(self) -> int:
        """A number for a worker's next transaction, higher than all before; 0 where `recover` never
        needs it."""

    def together(
        self, worker: str | None = None, turn: int = 0
    ) -> AbstractAsyncContextManager[None]:
        """What the task does inside is one transaction: a commit costs more than what it commits. It
        may be this worker's transaction number `turn`, by which `recover` knows it.

        Raises RunError, before anything is done, where the run's files are no longer in their place:
        what is settled by itself is kept all the same, if they are still anywhere. Raises
        StoreAwayError where the store can't be reached or can't commit just now: it may have been
        committed all the same.
        """

    async def recover(self, worker: str, turn: int, jobs: Collection[int]) -> set[int] | None:
        """After StoreAwayError, wait until the store is back. None where this worker's transaction
        number `turn` was not committed; else those of `jobs` that are still the worker's, and its
        other running jobs are put back in the queue.

        Raises StoreAwayError when that takes too long (see `hurry`).
        """

    def claim_for(self, judges: Sequence[int]) -> None:
        """Have claims be of jobs for these judges alone, from now on."""

    async def claim(self, worker: str, n: int, lease: float) -> list[Job]:
        """Take up to n pending jobs, lowest numbers first, for `lease` seconds."""

    async def begin(self, worker: str, attempts: Sequence[Attempt]) -> Collection[int]:
        """Commit one more attempt of each of these claimed jobs: the intent to pay, and the most it
        can cost, before anything is sent. Nothing is committed for those that are returned: they are
        no longer this worker's."""

    async def settle(self, worker: str, outcomes: Sequence[Outcome]) -> None:
        """In one transaction: the calls, verdicts and new states of these jobs.

        An answer to a job that is still open is kept, whoever holds it now; one to a job that was
        settled meanwhile goes into the ledger as a paid "duplicate" and changes nothing else.
        Without a verdict, only the worker that has the job changes its state. A RUNNING outcome
        leaves it as it is and only adds its calls. An outcome without an error leaves the last one
        standing.
        """

    # Batches: each is a worker that never dies, under its own name, and holds its jobs

    async def hand_over(self, worker: str, batch: Batch, lines: Sequence[Line]) -> Collection[int]:
        """In one transaction: write the batch down, give it these jobs of this worker, and commit one
        more attempt of each with its bound. They are the batch's (state running) until it is settled,
        whoever leads, reaps or leaves meanwhile. Nothing is done for those that are returned: they are
        no longer this worker's. The batch's `jobs` and `reserved` are then those of the rest; without
        any it isn't written down. What the worker reserved for a line is its bound, rounded up.

        Raises RunError where the name is taken, and ValueError for one that isn't of 1 to 64 letters,
        digits, - and _.
        """

    async def note_batch(self, batch: Batch) -> None:
        """Write down what is known of a batch by now; `left` and `at_risk` aside. Its counts and
        `expires` are kept as far as they can be, whatever the provider says. Raises RunError where
        there is no batch of its name."""

    async def batches(self) -> list[Batch]:
        """All batches, in the order in which they were made. Raises RunError for one that can't be."""

    async def lines(self, batch: str) -> list[Line]:
        """The jobs that a batch still has, by number, with just what they were given with. They are
        settled in the batch's name, as its worker; a PENDING outcome gives one back. What is settled
        twice counts as two calls: after StoreAwayError read again what is left."""

    # People: who has which question is written down here, and by one process. The job of one that is
    # out stays pending: workers claim the jobs of other judges (`claim_for`). What a person says is
    # settled as any outcome, by a call that names them as its judge

    async def people(self) -> list[Person]:
        """All of them, by number. Raises RunError for one that can't be."""

    async def put_person(self, person: Person) -> None:
        """Add a person, or change one: all but when they came, by which it is known to be the same.
        Raises RunError where another has the number, the name or the token, and ValueError for one that
        can't be kept."""

    async def handed(self) -> list[Handed]:
        """What people have now."""

    async def hand_out(self, handed: Handed) -> bool:
        """Hand a question to a person, unless they have one, somebody has it, or its job isn't
        pending."""

    async def take_back(self, lease: str) -> bool:
        """Whether a question was out under this lease, which is over now."""

    async def retract(self, job: int, judge: int) -> bool:
        """Undo the verdict that a person (by their number among all judges) gave on a job, which is
        pending again; the call stays, as "undone". False where there is none."""

    async def said(self) -> list[tuple[Match, Call]]:
        """All calls of people, in the order in which they came, each with what it is about."""

    async def checks(self) -> list[Check]:
        """All checks, by number."""

    async def put_check(self, check: Check) -> None:
        """Add a check, or change one."""

    async def renew(self, worker: str, lease: float) -> None:
        """Hold this worker's running jobs for `lease` seconds from now."""

    async def reap(self) -> int:
        """Put running jobs whose lease is over back in the queue; how many they were."""

    def check(self) -> None:
        """Raise RunError where the run's files are no longer in their place."""

    async def close(self) -> None:
        """Write everything out and let go of the run."""
