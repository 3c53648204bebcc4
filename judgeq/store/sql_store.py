"""The store of one run in the tables of a database: what the scheduler writes, and whoever keeps people.

A store holds one run: its items, rounds, jobs, calls and verdicts. The scheduler (`lead`, `plan_round`,
`round_state`, `verdicts`) and the workers (`claim`, `begin`, `settle`) are the same code on every
database; nothing else writes. Every operation is one transaction: it happened whole, or not at all.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Sequence
from itertools import islice

from judgeq.errors import LedError, RunError
from judgeq.person import Check, Handed, Person
from judgeq.store import rows
from judgeq.store.protocol import Crew, Items, Prospect, holder_name
from judgeq.store.rows import NEVER
from judgeq.store.schema import inserts
from judgeq.store.workers import VERDICTS, SqlWorkers, whole
from judgeq.types import Attempt, Batch, Bools, JobState, Line, Matches, Verdict

_ITEMS = inserts(
    "items",
    "row int, id text, gold float8, part text",
    "ON CONFLICT (run, row) DO UPDATE SET gold = excluded.gold",
)
_JOBS = inserts(
    "jobs",
    "id bigint, round int, items bytea, state text, judge int, ordered boolean, repeat int",
)
AT_ONCE = 100_000
"""Rows that are in memory at a time while a round is planned."""
_TOUCH = "UPDATE @.runs SET touched = @now WHERE run = @run"
LEADER = "SELECT epoch, holder, until, until >= @now FROM @.lead WHERE run = @run"
_LEAD = """
INSERT INTO @.lead (run, epoch, holder, until) VALUES (@run, 1, :holder, @now + :ttl)
ON CONFLICT (run) DO UPDATE SET epoch = lead.epoch + 1, holder = excluded.holder, until = excluded.until
WHERE lead.until < @now OR lead.holder = excluded.holder
"""
# The last round; who planned this one, if it is planned; and where new jobs begin, or end.
_PLANNED = """
SELECT coalesce(max(CASE WHEN round > 0 THEN round END), 0),
    (SELECT epoch FROM @.rounds WHERE run = @run AND round = :round),
    coalesce(max(CASE WHEN round > 0 THEN last END), -1) + 1, coalesce(min(first), 0)
FROM @.rounds WHERE run = @run
"""
_NOTE_BATCH = """
UPDATE @.batches SET judge = :judge, api = :api, address = :address, form = :form, made = :made,
    jobs = :jobs, reserved = :reserved, tokens = :tokens, state = :state, remote = :remote,
    status = :status, total = :total, done = :done, failed = :failed, seen = :seen, expires = :expires,
    cost = :cost, answered = :answered, error = :error, doubt = :doubt,
    doubted_since = :doubted_since, doubted_looks = :doubted_looks
WHERE run = @run AND worker = (SELECT worker FROM @.workers WHERE run = @run AND name = :name)
"""
_PUT_PERSON = """
ON CONFLICT (run, number) DO UPDATE SET name = excluded.name, token = excluded.token,
    quota = excluded.quota, state = excluded.state
WHERE people.since = excluded.since
"""
_HAND_OUT = """
INSERT INTO @.handed (run, person, lease, at, job, checking)
SELECT @run, CAST(:person AS int), CAST(:lease AS text), CAST(:at AS float8), CAST(:job AS bigint),
    CAST(:check AS int)
WHERE :job IS NULL OR EXISTS (
    SELECT 1 FROM @.jobs WHERE run = @run AND id = CAST(:job AS bigint) AND state = 'pending')
ON CONFLICT DO NOTHING
"""
_PUT_CHECK = """
ON CONFLICT (run, number) DO UPDATE SET person = excluded.person, lease = excluded.lease,
    ranking = excluded.ranking, ties = excluded.ties, score = excluded.score,
    seconds = excluded.seconds, at = excluded.at
"""


class Store(SqlWorkers):
    """The operations. The time is always the store's own clock; rounds count from 1."""

    def __init__(self) -> None:
        super().__init__()
        self._token = secrets.token_hex(4)  # tells this process from others of its name
        self._leads: str | None = None  # the name under which it leads, or led
        self.epoch: int | None = None  # in which it does

    # The dataset's edge

    @whole
    async def set_items(self, items: Items) -> None:
        """Put the items in, or change the gold and subsets of those that are there."""
        await self._each(_ITEMS, rows.item_rows(items))
        await self._change("DELETE FROM @.subsets WHERE run = @run")
        for name, mask in items.subsets.items():
            await self._insert("subsets", name=name, members=mask.tobytes())
        await self._change(_TOUCH)

    # The scheduler

    @whole
    async def lead(self, holder: str, ttl: float) -> int:
        """Become the scheduler for `ttl` seconds; the epoch returned fences off earlier ones. Workers go
        on meanwhile: what they hold stays theirs.

        Raises LedError while another process leads.
        """
        self._leads = f"{holder} ({self._token})"
        for statement in self.TAKE_OVER:
            await self._change(statement)
        taken = await self._change(_LEAD, holder=self._leads, ttl=ttl)
        epoch, other, until, _ = await self._one(LEADER)
        if not taken:
            raise LedError(f"{self.label} is led by {holder_name(other)}.", until=until)
        self.epoch = epoch
        return int(epoch)

    @whole
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

        Matches get the next canonical numbers, which are their jobs' ids. Questions that are asked again
        are planned apart from the run's rounds and all that is read of them: their round has a negative
        number, below those before it, and so have their jobs. Nothing is done for a round that this
        process planned already. Raises RunError when the epoch is over, or the round is out of turn.
        """
        last, by, after, before = await self._one(_PLANNED, round=round)
        is_next = by is None if round < 0 else round == last + 1
        if is_next:
            first = before - len(matches) if round < 0 else after
            end = first + len(matches) - 1
            values = {"round": round, "epoch": epoch, "first": first, "last": end}
            await self._insert("rounds", **values, active=active.tobytes())
            state = JobState.PENDING if verdicts is None else JobState.DONE
            planned = rows.jobs(matches, round, first, state)
            while some := [*islice(planned, AT_ONCE)]:
                await self._each(_JOBS, some)
            answers = [
                (first + m, *rows.verdict(given), None) for m, given in enumerate(verdicts or ())
            ]
            await self._each(VERDICTS, answers)
            await self._change(_TOUCH)
        # Only now: from here on nobody can renew the lease.
        there, holder, *_ = await self._one(f"{LEADER} @lock") or (None, "nobody")
        if there != epoch:
            raise RunError(
                f"{self.label}: another process has taken the run over (epoch {there}, ours was "
                f"{epoch}); it is led by {holder_name(holder)}; nothing was changed."
            )
        if not is_next and by != epoch:
            raise RunError(f"{self.label}: round {round} can't follow round {last}.")

    @whole
    async def reopen(self) -> int:
        """Put all jobs that are invalid or failed back in the queue; how many they were."""
        lost = """
        UPDATE @.jobs SET state = 'pending', unusable = 0, error = NULL
        WHERE run = @run AND state IN ('invalid', 'failed') AND id >= 0
        """
        return await self._change(lost)

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
            register = """
            INSERT INTO @.workers (run, name, since, seen, until)
            VALUES (@run, :name, @now, @now, :never) ON CONFLICT (run, name) DO NOTHING
            """
            if not await self._change(register, name=batch.name, never=NEVER):
                raise RunError(f"{self.label}: there is a batch {batch.name!r} already.")
            heir = await self._number(batch.name) or 0
            wanted = [Attempt(line.job.match.id, line.bound) for line in lines]
            ours = await self._begin(turn, row, heir, wanted)
            risk = turn.work[heir]["at_risk"]
            if ours:
                kept = [line for line in lines if line.job.match.id in ours]
                await self._insert("batches", worker=heir, **rows.batch_columns(batch, kept))
                handed = "UPDATE @.workers SET handed = handed + :risk WHERE worker = :worker"
                await self._change(handed, worker=row, risk=risk)
            else:
                del turn.work[heir]
                await self._change("DELETE FROM @.workers WHERE worker = :worker", worker=heir)
            turn.ended |= ours
            if row == self.worker:
                turn.reserved += risk
        return gone - ours

    @whole
    async def note_batch(self, batch: Batch) -> None:
        """Write down what is known of a batch by now; `left` and `at_risk` aside. Its counts and
        `expires` are kept as far as they can be, whatever the provider says. Raises RunError where
        there is no batch of its name."""
        if not await self._change(_NOTE_BATCH, **rows.batch_columns(batch), name=batch.name):
            raise RunError(f"{self.label} has no batch {batch.name!r}.")

    # People: who has which question is written down here, and by one process. The job of one that is
    # out stays pending: workers claim the jobs of other judges (`judges`). What a person says is
    # settled as any outcome, by a call that names them as its judge

    async def put_person(self, person: Person) -> None:
        """Add a person, or change one: all but when they came, by which it is known to be the same.
        Raises RunError where another has the number, the name or the token, and ValueError for one that
        can't be kept."""
        values = rows.person_columns(person)
        same = """
        SELECT number FROM @.people
        WHERE run = @run AND number <> :number AND (name = :name OR token = :token)
        """
        if await self._read(same, **values):
            raise RunError(f"{self.label} has a person named {person.name!r} already.")
        if not await self._insert("people", _PUT_PERSON, **values):
            raise RunError(
                f"{person.name!r} can't be added just now: somebody else added a judge at the same "
                "time. Try again."
            )

    async def hand_out(self, handed: Handed) -> bool:
        """Hand a question to a person, unless they have one, somebody has it, or its job isn't
        pending."""
        return await self._change(_HAND_OUT, **handed._asdict()) > 0

    async def take_back(self, lease: str) -> bool:
        """Whether a question was out under this lease, which is over now."""
        out = "DELETE FROM @.handed WHERE run = @run AND lease = :lease"
        return await self._change(out, lease=lease) > 0

    @whole
    async def retract(self, job: int, judge: int) -> bool:
        """Undo the verdict that a person (by their number among all judges) gave on a job, which is
        pending again; the call stays, as "undone". False where there is none."""
        gave = "WHERE run = @run AND job = :job AND answered_by = :judge"
        if not await self._change(f"DELETE FROM @.verdicts {gave}", job=job, judge=judge):
            return False
        undo = f"UPDATE @.calls SET outcome = 'undone' {gave} AND outcome = 'ok'"
        await self._change(undo, job=job, judge=judge)
        again = (
            "UPDATE @.jobs SET state = 'pending' WHERE run = @run AND id = :job AND state = 'done'"
        )
        await self._change(again, job=job)
        return True

    async def put_check(self, check: Check) -> None:
        """Add a check, or change one."""
        await self._insert("checks", _PUT_CHECK, **rows.check_columns(check))

    # Who else is there

    async def prospects(self) -> list[Prospect]:
        """All runs of the store by the work that they have now, the first that was begun first. Raises
        RunError while the store can't be read."""
        raise NotImplementedError

    async def crew(self) -> Crew | None:
        """Who works on the run, and what they share; None where only one process can."""
        return None
