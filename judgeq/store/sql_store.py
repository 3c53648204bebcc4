"""The store of one run in the tables of a database: what the scheduler writes, and whoever keeps people.

A store holds one run: its items, rounds, jobs, calls and verdicts. The scheduler (`lead`, `plan_round`,
`round_state`, `verdicts`) and the workers (`claim`, `begin`, `settle`, `renew`) are the same code on
every database; nothing else writes. Every operation is one transaction: it happened whole, or not at
all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from judgeq.errors import LedError, RunError
from judgeq.person import Check, Handed, Person
from judgeq.store import batches, rows
from judgeq.store import statements as sql
from judgeq.store.protocol import Crew, Items, Prospect, holder_name
from judgeq.store.statements import NEVER
from judgeq.store.verdicts import packed
from judgeq.store.verdicts import verdict as codec
from judgeq.store.workers import SqlWorkers, whole
from judgeq.types import Attempt, Batch, Bools, JobState, Line, Matches, Verdict


class Store(SqlWorkers):
    """The operations. The time is always the store's own clock; rounds count from 1."""

    _leads: str | None = None
    """The name under which this process leads, or led."""

    # The dataset's edge

    @whole
    async def set_items(self, items: Items) -> None:
        """Put the items in, or change the gold and subsets of those that are there."""
        await self._db.each(sql.PUT_ITEM, list(rows.item_rows(items)))
        await self._db.change(sql.DROP_SUBSETS)
        for name, mask in items.subsets.items():
            members = packed(np.flatnonzero(mask).tolist())
            await self._db.change(sql.PUT_SUBSET, name=name, members=members)
        await self._db.change(sql.TOUCH)

    # The scheduler

    @whole
    async def lead(self, holder: str, ttl: float) -> int:
        """Become the scheduler for `ttl` seconds; the epoch returned fences off earlier ones. Workers go
        on meanwhile: what they hold stays theirs.

        Raises LedError while another process leads.
        """
        self._leads = f"{holder} ({self._token})"
        await self._take_over()
        before = await self._one(sql.LEADER)
        with self._reading():
            rows.check_range("who led last", before and before[0], below=2**62)
        taken = await self._db.change(sql.LEAD, holder=self._leads, ttl=ttl)
        epoch, other, until, _ = await self._one(sql.LEADER)
        if not taken:
            raise LedError(f"{self._db.label} is led by {holder_name(other)}.", until=until)
        return int(epoch)

    async def _take_over(self) -> None:
        """Before this process leads: what a database knows of others that did."""

    async def _check_epoch(self, epoch: int) -> None:
        """Raise RunError unless the epoch is in force; it is then until the transaction ends."""
        there, holder, *_ = await self._one(f"{sql.LEADER} @lock") or (None, "nobody")
        if there != epoch:
            raise RunError(
                f"{self._db.label}: another process has taken the run over (epoch {there}, ours was "
                f"{epoch}); it is led by {holder_name(holder)}; nothing was changed."
            )

    async def plan_round(
        self,
        round: int,
        epoch: int,
        active: Bools,
        matches: Matches,
        verdicts: Sequence[Verdict] | None = None,
    ) -> None:
        """In one transaction: the items that could be asked about in the round, shape (n,), its matches,
        its jobs; and where they were answered elsewhere, the verdict of each.

        Matches get the next canonical numbers, which are their jobs' ids. Raises RunError when the
        epoch is over, or the round is planned already or out of turn.
        """
        tried = False

        async def plan() -> None:
            nonlocal tried
            async with self._db.transaction():
                planned, first, by = await self._one(sql.PLANNED, round=round)
                if tried and by == epoch:  # the first try was committed, and nobody said so
                    return
                tried = True
                if round == planned + 1:
                    last, bits = first + len(matches) - 1, rows.active_bits(active)
                    values = {"round": round, "epoch": epoch, "first": first, "last": last}
                    await self._db.change(sql.INSERT_ROUND, **values, active=bits)
                    state = JobState.PENDING if verdicts is None else JobState.DONE
                    await self._db.load(*sql.JOBS, rows.jobs(matches, first, state))
                    if verdicts is not None:
                        answers = ((first + m, *codec(given)) for m, given in enumerate(verdicts))
                        await self._db.load(*sql.VERDICTS, answers)
                    await self._db.change(sql.TOUCH)
                # Only now: meanwhile the lease must be renewed.
                await self._check_epoch(epoch)
                if round != planned + 1:
                    raise RunError(f"{self._db.label}: round {round} can't follow round {planned}.")

        await self._db.again(plan)

    @whole
    async def plan_again(self, round: int, epoch: int, matches: Matches) -> None:
        """Plan questions that are asked again, apart from the run's rounds and all that is read of
        them: the round has a negative number, below those before it, and so have its jobs. Nothing
        is done where it is planned. Raises RunError when the epoch is over."""
        await self._check_epoch(epoch)
        if await self._span(round) is None:
            _, before = await self._one(sql.LAST_AGAIN)
            first = before - len(matches)
            values = {"round": round, "epoch": epoch, "first": first, "last": before - 1}
            await self._db.change(sql.INSERT_ROUND, **values, active=b"")
            await self._db.load(*sql.JOBS, rows.jobs(matches, first, JobState.PENDING))

    @whole
    async def reopen(self, *states: JobState) -> int:
        """Put all jobs in these states (INVALID, FAILED) back in the queue; how many they were."""
        return sum([await self._db.change(sql.REOPEN, state=str(state)) for state in states])

    # Batches

    async def hand_over(self, worker: str, batch: Batch, lines: Sequence[Line]) -> Collection[int]:
        """In one transaction: write the batch down, give it these jobs of this worker, and commit one
        more attempt of each with its bound. They are the batch's (state running) until it is settled,
        whoever leads, reaps or leaves meanwhile. Nothing is done for those that are returned: they are
        no longer this worker's. The batch's `jobs` and `reserved` are then those of the rest; without
        any it isn't written down. What the worker reserved for a line is its bound, rounded up.

        Raises RunError where the name is taken, and ValueError for one that isn't of 1 to 64 letters,
        digits, - and _.
        """
        gone = {line.job.match.id for line in lines}
        async with self._writing() as turn:
            row = await self._live(turn, worker)
            if row is None or not lines:
                return gone
            if not await self._db.change(sql.REGISTER_BATCH, name=batch.name, never=NEVER):
                raise RunError(f"{self._db.label}: there is a batch {batch.name!r} already.")
            (heir,) = await self._one(sql.WORKER, name=batch.name)
            wanted = [Attempt(line.job.match.id, line.bound) for line in lines]
            ours = await self._begin(turn, row, heir, wanted)
            gone -= ours
            if not ours:
                del turn.work[heir]
                await self._db.change(sql.FORGET_WORKER, worker=heir)
                return gone
            given = [line for line in lines if line.job.match.id in ours]
            kept = batches.columns(batches.of_lines(batch, given))
            sent = batches.packed(given)
            await self._db.change(sql.INSERT_BATCH, **kept, worker=heir, sent=sent)
            risk = turn.work[heir].at_risk
            await self._db.change(sql.HANDED_OVER, worker=row, risk=risk)
            turn.ended |= ours
            if row == self._row_now:
                turn.back = turn.back[0] + risk, turn.back[1]
        return gone

    @whole
    async def note_batch(self, batch: Batch) -> None:
        """Write down what is known of a batch by now; `left` and `at_risk` aside. Its counts and
        `expires` are kept as far as they can be, whatever the provider says. Raises RunError where
        there is no batch of its name."""
        if not await self._db.change(sql.NOTE_BATCH, **batches.columns(batch)):
            raise RunError(f"{self._db.label} has no batch {batch.name!r}.")

    # People: who has which question is written down here, and by one process. The job of one that is
    # out stays pending: workers claim the jobs of other judges (`claim_for`). What a person says is
    # settled as any outcome, by a call that names them as its judge

    async def put_person(self, person: Person) -> None:
        """Add a person, or change one: all but when they came, by which it is known to be the same.
        Raises RunError where another has the number, the name or the token, and ValueError for one that
        can't be kept."""
        values = rows.person_columns(person)
        async with self._db.transaction():
            if await self._db.read(sql.SAME_PERSON, **values):
                raise RunError(f"{self._db.label} has a person named {person.name!r} already.")
            if not await self._db.change(sql.PUT_PERSON, **values):
                raise RunError(
                    f"{person.name!r} can't be added just now: somebody else added a judge at the same "
                    "time. Try again."
                )

    async def hand_out(self, handed: Handed) -> bool:
        """Hand a question to a person, unless they have one, somebody has it, or its job isn't
        pending."""
        async with self._db.transaction():
            return await self._db.change(sql.HAND_OUT, **handed._asdict()) > 0

    async def take_back(self, lease: str) -> bool:
        """Whether a question was out under this lease, which is over now."""
        async with self._db.transaction():
            return await self._db.change(sql.TAKE_BACK, lease=lease) > 0

    async def retract(self, job: int, judge: int) -> bool:
        """Undo the verdict that a person (by their number among all judges) gave on a job, which is
        pending again; the call stays, as "undone". False where there is none."""
        async with self._db.transaction():
            if not await self._db.change(sql.RETRACT, job=job, judge=judge):
                return False
            await self._db.change(sql.UNDO, job=job, judge=judge)
            await self._db.change(sql.OPEN_AGAIN, job=job)
        return True

    async def put_check(self, check: Check) -> None:
        """Add a check, or change one."""
        async with self._db.transaction():
            await self._db.change(sql.PUT_CHECK, **rows.check_columns(check))

    # Who else is there

    async def prospects(self) -> list[Prospect]:
        """All runs of the store by the work that they have now, the first that was begun first. Raises
        RunError while the store can't be read."""
        raise NotImplementedError

    async def crew(self) -> Crew | None:
        """Who works on the run, and what they share; None where only one process can."""
        return None
