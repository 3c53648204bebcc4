"""What every store must do with batches: workers that never die, under their own names."""

from collections.abc import Sequence

import pytest

from judgeq.errors import RunError
from judgeq.store import Store
from judgeq.types import Batch, BatchState, Counts, Doubt, Job, JobState, Line, Outcome
from tests.fakes import Clock, call
from tests.test_store import LEASE, Place, answer, begun, claimed, contract, die
from tests.test_store import place as place  # noqa: PLC0414  (a fixture)

PENDING, RUNNING, DONE, INVALID, FAILED = JobState


def batch(name: str = "jq-1a_B", jobs: int = 2, **known: object) -> Batch:
    made = Batch(
        name, 0, "openai", "https://api.test/v1", "schema", 1000.5, jobs, 0.5 * jobs, 1234.5
    )
    return made._replace(**known)  # type: ignore[arg-type]


def lines(jobs: Sequence[Job], bound: float | None = 0.5) -> list[Line]:
    return [Line(job, bound, 100 + job.match.id) for job in jobs]


async def handed(store: Store, jobs: int, name: str = "jq-1a_B") -> list[int]:
    """Claim jobs, and hand them over to a new batch; each may cost $0.5."""
    taken = await store.claim("w", jobs, LEASE)
    assert not await store.hand_over("w", batch(name, jobs), lines(taken))
    return [job.match.id for job in taken]


@contract
async def test_a_batch_is_written_down_with_its_jobs(store: Store, clock: Clock) -> None:
    await begun(store, 5)
    jobs = await store.claim("w", 4, LEASE)
    given = [Line(jobs[2], 0.1 + 0.2, 7), Line(jobs[0], None, 0), Line(jobs[3], 1e-10, 256 * 2**20)]
    assert list(await store.hand_over("w", batch(jobs=3, reserved=None), given)) == []
    (kept,) = await store.batches()
    assert kept == batch(jobs=3, reserved=None, left=3, at_risk=None)
    assert kept.state is BatchState.INTENDED
    # Bounds come back to the last bit, or what is released would not be what was committed.
    begun_once = [line._replace(job=line.job._replace(attempts=1)) for line in given]
    assert await store.lines(kept.name) == [begun_once[1], begun_once[0], begun_once[2]]
    assert await store.counts() == Counts(pending=1, running=4)
    totals = await store.totals()
    assert (totals.in_flight, totals.unknown, totals.at_risk) == (3, 0, None)


@contract
async def test_what_is_known_of_a_batch_is_noted(store: Store, clock: Clock) -> None:
    await begun(store, 4)
    await handed(store, 1, "b")
    await handed(store, 2, "a")
    noted = batch("a")._replace(
        state=BatchState.SENT, remote="batch_68ä\u202e", status="in_progress", total=2, done=1,
        failed=1, seen=2000.0, expires=88400.25, cost=0.125, answered=1, error="line 2: \x1b[31mno",
        reserved=0.75, jobs=1, tokens=0.0, doubt=Doubt.RESULTS, doubted_since=1999.5, doubted_looks=3,
    )  # fmt: skip
    await store.note_batch(noted)
    kept = await store.batches()
    assert [one.name for one in kept] == ["b", "a"]  # as they were made
    assert kept[1] == noted._replace(left=2, at_risk=1.0)
    assert kept[0] == batch("b", 1, left=1, at_risk=0.5)
    for state in BatchState:
        await store.note_batch(noted._replace(state=state))
        assert (await store.batches())[1].state is state
    with pytest.raises(RunError, match="has no batch 'c'"):
        await store.note_batch(batch("c"))


@contract
async def test_whatever_a_provider_says_is_kept_as_far_as_it_can_be(
    store: Store, clock: Clock
) -> None:
    """What can't be written down loses the batch; what can't be read back, the run."""
    await begun(store, 1)
    await handed(store, 1)
    odd = batch()._replace(
        remote="b\0", status="half \ud83d", error="\0", total=-1, done=2**70, failed=2**31,
        expires=1e300,
    )  # fmt: skip
    await store.note_batch(odd)
    (kept,) = await store.batches()
    assert (kept.remote, kept.status, kept.error) == ("b\ufffd", "half ?", "\ufffd")
    assert (kept.total, kept.done, kept.failed) == (0, 2**31 - 1, 2**31 - 1)
    for expires in (float("nan"), -1.0):
        await store.note_batch(odd._replace(expires=expires))
        assert (await store.batches())[0].expires is None


@contract
async def test_only_what_the_worker_has_is_handed_over(store: Store, clock: Clock) -> None:
    await begun(store, 5)
    jobs = await store.claim("w", 2, LEASE)
    await die(store, clock)
    others = await store.claim("v", 1, LEASE)
    assert [job.match.id for job in others] == [0]
    again = await store.claim("w", 1, LEASE)
    assert [job.match.id for job in again] == [1]
    given = [lines(jobs)[0], Line(jobs[1], 0.25, 9)]
    assert set(await store.hand_over("w", batch(jobs=2), given)) == {0}
    (kept,) = await store.batches()
    assert (kept.jobs, kept.reserved, kept.left, kept.at_risk) == (1, 0.25, 1, 0.25)
    assert [line.job.match.id for line in await store.lines(kept.name)] == [1]
    # A batch of nothing isn't there.
    assert set(await store.hand_over("w", batch("nothing"), given)) == {0, 1}
    assert set(await store.hand_over("stranger", batch("nothing"), given)) == {0, 1}
    assert list(await store.hand_over("v", batch("nothing"), [])) == []
    assert len(await store.batches()) == 1
    assert (await store.totals()).at_risk == 0.25


async def test_a_batch_keeps_its_jobs_whoever_comes_and_goes(place: Place) -> None:
    async with place.open() as store:
        await begun(store, 4)
        assert await handed(store, 2) == [0, 1]
        assert await claimed(store, "w") == [2]
    place.clock.now += 1e9
    async with place.open() as store:
        await store.lead("another", 60)
        await store.reap()
        assert await store.counts() == Counts(pending=2, running=2)
        jobs = [job.match.id for job in await store.claim("w", 9, LEASE)]
        assert jobs == [2, 3]
        await die(store, place.clock)
        assert await store.counts() == Counts(pending=2, running=2)
        (kept,) = await store.batches()
        assert (kept.left, kept.at_risk) == (2, 1.0)
        totals = await store.totals()
        assert (totals.in_flight, totals.unknown, totals.at_risk) == (2, 1, 1.5)
    # A process that never saw the batch settles in its name; killed in between, another goes on.
    async with place.open() as store:
        await store.settle("jq-1a_B", [answer(0, 1, 0)])
        assert [line.job.match.id for line in await store.lines("jq-1a_B")] == [1]
    async with place.open() as store:
        await store.lead("third", 60)
        assert await store.counts() == Counts(pending=2, running=1, done=1)
        unusable = Outcome(1, PENDING, None, (call(1, "unusable"),), "missing: B")
        await store.settle("jq-1a_B", [unusable])
        (kept,) = await store.batches()
        assert (kept.left, kept.at_risk) == (0, 0.0)
        assert await store.lines("jq-1a_B") == []
        (job, *_) = await store.claim("w", 1, LEASE)
        assert (job.match.id, job.attempts, job.unusable, job.error) == (1, 1, 1, "missing: B")


@contract
async def test_a_batchs_outcomes_are_those_of_any_worker(store: Store, clock: Clock) -> None:
    await begun(store, 5)
    await handed(store, 5)
    lost = call(1, "connection", None)
    outcomes = [
        answer(0, 1, 0),
        Outcome(1, INVALID, None, (call(1, "unusable"),), "no verdict"),
        Outcome(2, FAILED, None, (lost,), "expired"),
        Outcome(3, PENDING, None, (), "nobody knows"),
        Outcome(4, RUNNING, None, (call(1, "timeout", 0.0),)),
    ]
    await store.settle("jq-1a_B", outcomes)
    assert await store.counts() == Counts(pending=1, running=1, done=1, invalid=1, failed=1)
    totals = await store.totals()
    assert (totals.calls, totals.cost, totals.unknown, totals.in_flight) == (4, 0.5, 1, 0)
    assert totals.at_risk == 1.0
    (kept,) = await store.batches()
    assert (kept.left, kept.at_risk) == (1, 0.0)
    assert [line.job.match.id for line in await store.lines("jq-1a_B")] == [4]
    assert (await store.verdicts()).items.tolist() == [1, 0]
    await store.settle("jq-1a_B", [Outcome(3, RUNNING, None, (), "late note")])
    assert (await store.counts()).pending == 1  # it isn't taken up again


@contract
async def test_an_answer_after_the_batch_gave_the_job_back_is_a_paid_duplicate(
    store: Store, clock: Clock
) -> None:
    await begun(store, 2)
    await handed(store, 2)
    await store.settle("jq-1a_B", [Outcome(0, PENDING), Outcome(1, PENDING)])
    assert (await store.totals()).unknown == 2
    assert await claimed(store, "w", 2) == [0, 1]
    await store.settle("w", [answer(0, 1, 0, attempt=2)])
    await store.settle("jq-1a_B", [answer(0, 0, 1), answer(1, 1, 2)])
    assert await store.counts() == Counts(done=2)
    assert (await store.verdicts()).items.tolist() == [1, 0, 1, 2]
    assert [kept.outcome for kept in (await store.calls([0]))[0]] == ["ok", "duplicate"]
    totals = await store.totals()
    assert (totals.calls, totals.cost, totals.unknown, totals.at_risk) == (3, 0.75, 1, 0.5)
    await store.settle("jq-1a_B", [Outcome(1, PENDING)])
    await store.settle("w", [answer(1, 2, 1, attempt=2)])
    assert (await store.totals()).at_risk == 0.0
    assert await store.counts() == Counts(done=2)
