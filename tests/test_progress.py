from __future__ import annotations

import pytest

from judgeq.events import (
    CallEnded,
    CallStarted,
    Event,
    JobEnded,
    JobStarted,
    Notice,
    Placed,
    RoundRated,
    RoundStarted,
    RunStarted,
    Stopping,
)
from judgeq.types import Counts, JobState, Totals, Usage
from judgeq.ui.progress import NOTICES, SLOT, SLOTS, Progress

DONE, FAILED, INVALID, PENDING = (
    JobState.DONE,
    JobState.FAILED,
    JobState.INVALID,
    JobState.PENDING,
)


def started(*planned: Counts, rounds: int = 3, totals: Totals | None = None) -> RunStarted:
    return RunStarted("r1", 100, rounds, "sim", planned, totals or Totals())


def call(cost: float | None = 0.01, outcome: str = "ok", *, cached: bool = False) -> CallEnded:
    return CallEnded(outcome, Usage(100, 20, 30, 10), cost, 0.5, cached)


def folded(*events: Event, now: float = 0.0) -> Progress:
    progress = Progress()
    for event in events:
        progress.fold(event, now)
    return progress


def finish(progress: Progress, n: int, now: float, state: JobState = DONE) -> None:
    for job in range(n):
        progress.fold(JobStarted(job), now)
        progress.fold(call(), now)
        progress.fold(JobEnded(job, state), now)


def test_nothing_yet() -> None:
    progress = Progress()
    assert progress.of_run == Counts()
    assert progress.call_rate(5.0) == 0
    assert progress.time_left(5.0) is None
    assert progress.projected_cost() is None
    assert not progress.finished


def test_jobs_go_from_pending_through_flight_to_their_outcome() -> None:
    progress = folded(started(), RoundStarted(1, Counts(pending=10)), *map(JobStarted, range(5)))
    assert progress.of_round == Counts(pending=5, running=5)
    for job, state in enumerate((DONE, DONE, INVALID, FAILED, PENDING)):
        progress.fold(JobEnded(job, state), 1.0)
    assert progress.of_round == Counts(pending=6, running=0, done=2, invalid=1, failed=1)
    assert progress.of_run == progress.of_round
    assert progress.ended == 4
    assert progress.in_flight == 0


def test_a_call_is_in_flight_from_leaving_to_coming_back_and_a_cache_hit_never() -> None:
    sent: list[Event] = [JobStarted(1), JobStarted(2), JobStarted(3), CallStarted(), CallStarted()]
    progress = folded(started(), RoundStarted(1, Counts(pending=10)), *sent)
    assert (progress.in_flight, progress.of_round.running) == (2, 3)
    progress.fold(CallEnded("ok", Usage(), 0.0, 0.1, cached=True), 1.0)
    assert progress.in_flight == 2
    progress.fold(CallEnded("timeout", Usage(), None, 0.1), 1.0)
    assert progress.in_flight == 1


def test_rounds_add_up() -> None:
    progress = folded(started(), RoundStarted(1, Counts(pending=10)))
    finish(progress, 9, 1.0)
    finish(progress, 1, 1.0, FAILED)
    progress.fold(RoundRated(1, None, [], []), 1.0)
    progress.fold(RoundStarted(2, Counts(pending=8)), 1.0)
    finish(progress, 3, 2.0)
    assert progress.of_round == Counts(pending=5, done=3)
    assert progress.of_run == Counts(pending=5, done=12, failed=1)
    assert progress.expected == 10 + 8 + 8  # the third round as large as the second


def test_a_round_taken_up_again_is_not_counted_twice() -> None:
    earlier = Counts(done=9, invalid=1), Counts(pending=3, running=1, done=6)
    progress = folded(started(*earlier), RoundStarted(2, Counts(pending=4, done=6)))
    assert progress.of_run == Counts(pending=4, done=15, invalid=1)
    assert progress.expected == 20 + 10
    finish(progress, 4, 1.0)
    progress.fold(RoundStarted(3, Counts(pending=10)), 1.0)
    assert progress.of_run == Counts(pending=10, done=19, invalid=1)
    assert progress.expected == 30


def test_a_round_planned_and_never_begun_is_taken_up_again() -> None:
    earlier = Counts(done=10), Counts(pending=10)
    progress = folded(started(*earlier), RoundStarted(2, Counts(pending=8, running=2)))
    assert progress.of_run == Counts(pending=10, done=10)


def test_rounds_planned_by_earlier_sittings_count_before_they_are_reached() -> None:
    """The runner goes through the rounds from the first, also when only the last has work left."""
    earlier = Counts(done=10), Counts(pending=3, done=5)
    progress = folded(started(*earlier))
    assert progress.resumed
    assert progress.of_run == Counts(pending=3, done=15)
    progress.fold(RoundStarted(1, Counts(done=10)), 1.0)
    assert progress.of_round == Counts(done=10)
    assert progress.of_run == Counts(pending=3, done=15)
    assert progress.left == 3 + 10  # and a third round, the size of this one
    progress.fold(RoundRated(1, None, [], []), 1.0)
    progress.fold(RoundStarted(2, Counts(pending=3, done=5)), 1.0)
    assert progress.of_run == Counts(pending=3, done=15)


def test_a_new_run_is_not_resumed() -> None:
    assert not folded(started(), RoundStarted(1, Counts(pending=3))).resumed


def test_a_new_round_after_a_resume_between_rounds() -> None:
    progress = folded(started(Counts(done=10)), RoundStarted(2, Counts(pending=10)))
    assert progress.of_run == Counts(pending=10, done=10)


def test_a_round_that_only_needs_rating_is_known() -> None:
    progress = folded(started(Counts(done=10)), RoundStarted(1, Counts(done=10)))
    assert progress.of_run == Counts(done=10)


def test_earlier_sittings_are_progress_but_not_pace() -> None:
    progress = folded(
        started(Counts(pending=50, done=50), rounds=1),
        RoundStarted(1, Counts(pending=50, done=50)),
    )
    finish(progress, 10, 20.0)
    assert progress.of_run.done == 60
    assert progress.time_left(20.0) == pytest.approx(40 * 20 / 10)


def test_calls_retries_cache_and_tokens() -> None:
    progress = folded(
        started(), call(), call(0.002, "unusable"), call(0.0, "timeout"), call(cached=True)
    )
    assert (progress.calls, progress.retries, progress.cache_hits) == (3, 1, 1)
    assert progress.unusable == 1
    assert (progress.input, progress.cached) == (300, 60)
    assert (progress.output, progress.reasoning) == (90, 30)
    assert progress.cost == pytest.approx(0.012)
    assert progress.unpriced == 0


def test_replies_without_usage_are_counted_and_not_taken_for_no_tokens() -> None:
    unknown, known = CallEnded("ok", Usage(), None, 0.1), CallEnded("ok", Usage(1), None, 0.1)
    lost, free = CallEnded("timeout", Usage(), None, 0.1), CallEnded("ok", Usage(), 0.0, 0.1)
    progress = folded(started(), unknown, known, lost, free, unknown._replace(outcome="unusable"))
    assert (progress.unpriced, progress.uncounted) == (4, 2)


def test_calls_go_on_from_those_of_earlier_sittings() -> None:
    totals = Totals(calls=7, retries=2, usage=Usage(700, 70, 30, 10), cost=0.5, unpriced=1)
    progress = folded(started(Counts(pending=5, done=5), totals=totals), now=100.0)
    assert (progress.calls, progress.retries, progress.unpriced) == (7, 2, 1)
    assert (progress.input, progress.cached) == (700, 70)
    assert (progress.output, progress.reasoning) == (30, 10)
    assert progress.cost == pytest.approx(0.5)
    progress.fold(call(), 101.0)
    assert (progress.calls, progress.input) == (8, 800)
    assert progress.cost == pytest.approx(0.51)
    # What earlier sittings asked is no pace of this one's.
    assert progress.call_rate(104.0) == pytest.approx(1 / 4)


def test_earlier_spending_is_kept_apart_in_the_rate_of_a_finished_run() -> None:
    counts = Counts(pending=5, done=5)
    progress = folded(started(counts, rounds=1, totals=Totals(calls=90)), RoundStarted(1, counts))
    finish(progress, 5, 10.0)
    progress.fold(RoundRated(1, None, [], []), 20.0)
    assert progress.call_rate(500.0) == pytest.approx(5 / 20)


def test_the_rate_forgets_what_is_older_than_the_window() -> None:
    progress = folded(started(), now=100.0)
    for tenth in range(1, 51):  # 10 calls a second for 5 s
        progress.fold(call(), 100 + tenth / 10)
    assert progress.call_rate(105.0) == pytest.approx(10)
    for hundredth in range(2000):  # then 100 a second for 20 s
        progress.fold(call(), 105 + hundredth / 100)
    assert progress.call_rate(125.0) == pytest.approx(100, rel=0.02)
    assert 0 < progress.call_rate(129.0) < 70
    assert progress.call_rate(125 + SLOT * SLOTS + SLOT) == 0
    assert progress.call_rate(1e6) == 0
    progress.fold(call(), 1e6)
    assert progress.call_rate(1e6 + 1) < 1


def test_the_rate_of_a_young_run_is_over_its_age() -> None:
    progress = folded(started(), now=100.0)
    for _ in range(50):
        progress.fold(call(), 101.0)
    assert progress.call_rate(102.0) == pytest.approx(25)


def test_the_rate_of_a_finished_run_is_over_all_of_it() -> None:
    progress = folded(started(rounds=1), RoundStarted(1, Counts(pending=40)))
    finish(progress, 40, 10.0)
    progress.fold(RoundRated(1, None, [], []), 20.0)
    assert progress.finished
    assert progress.call_rate(500.0) == pytest.approx(2)


def test_the_window_takes_no_memory_a_call() -> None:
    progress = folded(started())
    for n in range(10_000):
        progress.fold(call(), n / 50)
    assert len(progress._marks) <= SLOTS + 2


def test_projected_cost_is_for_all_rounds() -> None:
    progress = folded(started(), RoundStarted(1, Counts(pending=10)))
    assert progress.projected_cost() is None
    finish(progress, 5, 1.0)
    assert progress.cost == pytest.approx(0.05)
    assert progress.projected_cost() == pytest.approx(0.3)


def test_projected_cost_adds_to_what_earlier_sittings_spent() -> None:
    counts = Counts(pending=4, done=5)
    progress = folded(
        started(counts, rounds=1, totals=Totals(calls=5, cost=7.0)), RoundStarted(1, counts)
    )
    assert progress.projected_cost() is None  # this sitting's prices may be others
    finish(progress, 1, 1.0)
    assert progress.projected_cost() == pytest.approx(7.01 + 3 * 0.01)


def test_one_unpriced_call_makes_the_projection_unknown() -> None:
    progress = folded(started(), RoundStarted(1, Counts(pending=10)))
    finish(progress, 5, 1.0)
    progress.fold(call(None), 1.0)
    assert progress.projected_cost() is None
    assert progress.unpriced == 1
    assert progress.cost == pytest.approx(0.05)


def test_the_ends_of_the_ranking_are_those_of_the_last_rated_round() -> None:
    top, bottom = ([Placed(f"i{elo}", None, elo) for elo in end] for end in ((1700, 1600), (1400,)))
    progress = folded(RoundRated(1, None, bottom, top), RoundRated(2, 0.9, top, bottom))
    assert [item.rating for item in progress.top] == [1700, 1600]
    assert [item.rating for item in progress.bottom] == [1400]
    assert (progress.rated, progress.moved, progress.rating) == (2, 0.9, "elo")


def test_notices_are_taken_once_and_never_pile_up() -> None:
    progress = folded(Notice("a"), Notice("b", warning=True))
    assert [notice.text for notice in progress.take_notices()] == ["a", "b"]
    assert progress.take_notices() == []
    for n in range(NOTICES + 7):
        progress.fold(Notice(str(n)), 0.0)
    taken = progress.take_notices()
    assert len(taken) == NOTICES + 1
    assert taken[0].warning
    assert taken[0].text.startswith("7 earlier")
    assert taken[-1].text == str(NOTICES + 6)


def test_stopping() -> None:
    assert folded(Stopping()).stopping
