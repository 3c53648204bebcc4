from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, cast

import pytest

from judgeq import errors, prompts
from judgeq.events import CallEnded, CallStarted, Event, Notice
from judgeq.judge.backend import Prepared, Reply, Request
from judgeq.judge.budget import NANO, Allowance, Budget
from judgeq.judge.judge import Judge, kept_reply
from judgeq.judge.limiter import Limiter, Outage
from judgeq.judge.questions import FIRST, LAST, Questions, Unusable, advice_for
from judgeq.judge.retry import Policy
from judgeq.replies import CUT_OFF, read_reply, reason_in
from judgeq.types import Attempt, Call, Job, JobState, Match, Outcome, Usage, Verdict
from tests.fakes import Answer, Clock, FakeBackend, turns

if TYPE_CHECKING:
    from judgeq.judge.cache import ReplyCache

LIST = Match(7, 1, (4, 0, 2))
TEXTS = ["zero", "one", "two", "three", "four"]
GOOD = '{"ranking": ["B", "A", "C"]}'
BAD = '{"ranking": ["B", "A"]}'
MISSING = "each label must be named exactly once (missing: 'C')."


class Asking:
    """A judge over a scripted backend, whose every step is written down in order."""

    def __init__(
        self,
        *answers: Answer,
        job: Job | None = None,
        policy: Policy | None = None,
        stop_at: int | None = None,
        cap: float | None = None,
        cache: FakeCache | None = None,
        among_others: bool = False,
    ) -> None:
        """`among_others`: other calls of the same server are answered between ours."""
        self.clock, self.backend = Clock(0.0), FakeBackend(*answers)
        self.steps: list[str] = []
        self.noted: list[Outcome] = []
        self.events: list[Event] = []
        self._job, self._stop_at, self._among_others = job or Job(LIST), stop_at, among_others
        self.limiter = Limiter(concurrency=9, clock=self.clock, sleep=self._pass)
        self.budget = Budget(Allowance(cap))
        self.judge = Judge(
            Questions(prompts.load("bias"), TEXTS, ["i0", "i1", "i2", "i3", "i4"]),
            self,
            self.events.append,
            self._sleep,
            self.limiter,
            self.budget,
            cast("ReplyCache | None", cache),
            policy=policy or Policy(),
            clock=self.clock,
            wall_clock=lambda: 5000.0 + self.clock.now,
        )

    # What the judge sees: a backend, a ledger and a clock

    name = "fake"

    @property
    def version(self) -> int:
        return self.backend.version

    def output_within(self, prepared: Prepared, dollars: float) -> int:
        return self.backend.output_within(prepared, dollars)

    async def open(self) -> None:
        pass

    def prepare(self, request: Request) -> Prepared:
        prepared = self.backend.prepare(request)
        key = prepared.key and f"{prepared.key} {request.ask}"  # as the problem is part of it
        return prepared._replace(version=self.version, key=key)

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        self.steps.append(f"send {request.attempt}/{request.ask}")
        self.clock.now += 0.5
        if self._among_others:
            self.limiter.outage = Outage(self.clock, trying=False)
        return await self.backend.complete(request, prepared)

    async def close(self) -> None:
        pass

    async def begin(self, attempt: Attempt) -> None:
        assert attempt[:2] == (self._job.match.id, self.backend.prepared.bound)
        assert attempt.number is not None
        assert attempt.number > self._job.attempts
        self.steps.append("begin")

    def settle(self, outcome: Outcome) -> None:
        assert outcome.state is JobState.RUNNING
        assert outcome.verdict is None
        self.steps.append("note")
        self.noted.append(outcome)

    async def _pass(self, seconds: float) -> None:
        self.clock.now += seconds

    async def _sleep(self, seconds: float) -> None:
        if len(self.clock.slept) == self._stop_at:
            raise errors.StoppedError("the run was stopped")
        await self.clock.sleep(seconds)

    # What the test asks

    async def ask(self) -> Outcome:
        return await self.judge.ask(self._job, self)

    def outcome(self) -> Outcome:
        return asyncio.run(self.ask())

    def said(self, request: int) -> str:
        """The user's message of a request, rendered late as a backend does."""
        return self.backend.requests[request].messages()[1]["content"]

    @property
    def ledger(self) -> list[tuple[int, str]]:
        """Attempt and outcome of every call that was noted on the way."""
        return [(call.attempt, call.outcome) for each in self.noted for call in each.calls]


def calls(outcome: Outcome) -> list[tuple[int, str]]:
    return [(call.attempt, call.outcome) for call in outcome.calls]


def waits(asking: Asking) -> list[float]:
    return [seconds for seconds in asking.clock.slept if seconds]


def test_a_verdict_at_once() -> None:
    asking = Asking(GOOD)
    usage = Usage(10, 2, 5, 3)
    called = (Call(1, "ok", usage, 0.25, 0.5, GOOD, 5000.5, 0.5, prompt_size=11),)
    assert asking.outcome() == Outcome(7, JobState.DONE, Verdict((0, 4, 2)), called)
    assert asking.steps == ["begin", "send 1/1"]
    assert asking.events == [CallStarted(), CallEnded("ok", usage, 0.25, 0.5)]
    assert [f"<text {label}>\n{TEXTS[row]}\n</text {label}>" in asking.said(0)
            for label, row in zip("ABC", LIST.items, strict=True)] == [True] * 3  # fmt: skip
    assert "could not be used" not in asking.said(0)


def test_an_unusable_reply_is_asked_again_naming_the_problem() -> None:
    asking = Asking(BAD, GOOD)
    outcome = asking.outcome()
    assert (outcome.state, outcome.verdict) == (JobState.DONE, Verdict((0, 4, 2)))
    assert asking.steps == ["begin", "send 1/1", "note", "begin", "send 2/2"]
    assert MISSING in asking.said(1)
    assert MISSING not in asking.said(0)
    (noted,) = asking.noted
    assert (noted.error, calls(noted), calls(outcome)) == (MISSING, [(1, "unusable")], [(2, "ok")])
    assert (noted.calls[0].reply, noted.calls[0].cost) == (BAD, 0.25)  # it was paid for
    ended = [event.outcome for event in asking.events if isinstance(event, CallEnded)]
    assert ended == ["unusable", "ok"]


def test_of_a_long_reply_that_is_no_verdict_the_beginning_is_kept() -> None:
    garbage, good = "é" * 1_000_000, f"{GOOD}{' ' * 60_000}"
    asking = Asking(garbage, good)
    outcome = asking.outcome()
    begun, _, note = (asking.noted[0].calls[0].reply or "").rpartition("\n")
    assert begun == garbage[: len(begun)]
    assert len(begun.encode()) == 65_536
    assert "2,000,000 bytes" in note
    assert outcome.calls[0].reply == good  # a verdict's is whole, up to that size


@pytest.mark.parametrize(
    "reason", ["é" * 1_000_000, "", 'It says {"ranking": []} \\ "so".' * 10_000]
)
def test_a_valid_reply_of_megabytes_is_kept_as_its_verdict_and_its_cut_reason(reason: str) -> None:
    long = f'{{"reason": {json.dumps(reason)}, {GOOD[1:]}{" " * 100_000}'
    cache = FakeCache()
    outcome = keyed(long, cache=cache).outcome()
    assert outcome.verdict == Verdict((0, 4, 2))
    kept = outcome.calls[0].reply or ""
    assert len(kept.encode()) <= 65_536
    shown = reason_in(kept) or ""
    assert shown.startswith(reason[:5_000])
    assert f"[cut here: the reply had {len(long.encode()):,} bytes]" in shown
    # Nobody buys it again: what the cache has is the same verdict, and as short.
    assert [reply.text for reply in cache.values()] == [kept]
    again = keyed(cache=cache).outcome()
    assert again.verdict == Verdict((0, 4, 2))
    assert again.calls[0].reply == kept


def test_a_long_reply_that_the_cache_has_whole_is_not_copied_into_the_run() -> None:
    cache = FakeCache()
    cache["k 1"] = Reply(f"{GOOD}{' ' * 100_000}", Usage(), 0.25)
    outcome = keyed(cache=cache).outcome()
    assert outcome.calls[0].outcome == "cached"
    assert len(outcome.calls[0].reply or "") < 1_000


@pytest.mark.parametrize(
    ("match", "verdict"),
    [
        (Match(1, 1, (5, 3)), Verdict((3, 5))),
        (Match(1, 1, (5, 3)), Verdict((5, 3), (False, True))),
        (Match(1, 1, (5,)), Verdict((5,), (), 0.125)),
        (Match(1, 1, (5, 3, 4)), Verdict((4, 5, 3), (False, False, True))),
    ],
)
def test_what_is_kept_of_a_long_reply_reads_as_the_same_verdict(
    match: Match, verdict: Verdict
) -> None:
    long = Reply(" " * 100_000, Usage(), 0.25)
    assert read_reply(kept_reply(long, verdict, match).text, match, ties=True) == verdict


def test_unusable_twice_is_invalid() -> None:
    asking = Asking(BAD, "no", GOOD)
    outcome = asking.outcome()
    assert (outcome.state, outcome.verdict) == (JobState.INVALID, None)
    assert "no JSON object" in (outcome.error or "")
    assert asking.steps == ["begin", "send 1/1", "note", "begin", "send 2/2"]
    assert (asking.ledger, calls(outcome)) == ([(1, "unusable")], [(2, "unusable")])


def test_a_job_that_was_tried_often_before_does_not_end_the_run_each_time() -> None:
    """It may be the only one that is left, and the one at which the server fails."""
    asking = Asking(*[REFUSED] * 999, job=Job(LIST, attempts=8))
    assert asking.outcome().state is JobState.FAILED


def test_a_job_taken_up_again_is_in_its_second_asking() -> None:
    asking = Asking(BAD, GOOD, job=Job(LIST, attempts=3, unusable=1, error=MISSING))
    outcome = asking.outcome()
    assert outcome.state is JobState.INVALID
    assert asking.steps == ["begin", "send 4/2"]
    assert MISSING in asking.said(0)


def test_failures_are_tried_again_each_attempt_committed_before_it_is_sent() -> None:
    asking = Asking(
        errors.CallTimeoutError("no answer in time"),
        errors.RateLimitedError("slow down", cost=0.0),
        errors.ConnectionFailedError("cut off"),
        GOOD,
        among_others=True,
    )
    outcome = asking.outcome()
    assert outcome.state is JobState.DONE
    sends = [["begin", f"send {attempt}/1", "note"] for attempt in (1, 2, 3)]
    assert asking.steps == [*chain(*sends), "begin", "send 4/1"]
    assert asking.ledger == [(1, "timeout"), (2, "rate_limited"), (3, "connection")]
    assert calls(outcome) == [(4, "ok")]
    told = [(call.cost, call.reply, call.usage) for each in asking.noted for call in each.calls]
    assert told == [  # an unknown cost is not nothing
        *((None, "no answer in time", Usage()), (0.0, "slow down", Usage())),
        (None, "cut off", Usage()),
    ]
    assert len(waits(asking)) == 3
    assert all(0 < seconds <= 0.5 * 2**n for n, seconds in enumerate(waits(asking)))


def test_what_the_server_asks_for_is_waited_up_to_a_cap() -> None:
    policy = Policy(longest_wait=30)
    refused = [
        errors.RateLimitedError("429", retry_after=seconds) for seconds in (5.0, 0.0, 3600.0)
    ]
    asking = Asking(*refused, GOOD, policy=policy, among_others=True)
    assert asking.outcome().state is JobState.DONE
    first, second, third = asking.clock.slept
    assert 5 < first <= 6
    assert 0 < second <= 1
    assert 30 < third <= 31


def test_without_an_answer_a_job_fails() -> None:
    asking = Asking(*[errors.CallTimeoutError(f"silence {n}") for n in range(9)], policy=Policy(3))
    outcome = asking.outcome()
    assert outcome == Outcome(7, JobState.FAILED, error="silence 2")
    assert asking.ledger == [(1, "timeout"), (2, "timeout"), (3, "timeout")]
    assert [each.error for each in asking.noted] == ["silence 0", "silence 1", "silence 2"]
    assert asking.steps.count("begin") == 3


@pytest.mark.parametrize("after", [(), (errors.CallTimeoutError("silence"),), (BAD,)])
def test_what_no_other_try_can_mend_is_raised_and_in_the_ledger(after: Sequence[Answer]) -> None:
    asking = Asking(*after, errors.JudgeError("no such model: x"), GOOD)
    with pytest.raises(errors.JudgeError, match="no such model: x"):
        asking.outcome()
    assert asking.ledger[-1] == (len(after) + 1, "error")
    assert asking.steps[-1] == "note"
    assert len(asking.backend.requests) == len(after) + 1


def test_a_stop_during_a_wait_gives_the_job_back() -> None:
    asking = Asking(*[errors.CallTimeoutError("silence")] * 3, GOOD, stop_at=1)
    assert asking.outcome() == Outcome(7, JobState.PENDING)
    assert asking.steps == ["begin", "send 1/1", "note", "begin", "send 2/1", "note"]


async def test_cancelling_is_not_swallowed() -> None:
    async def hang(_: Request) -> str:
        await asyncio.Event().wait()
        return GOOD

    asking = Asking(errors.CallTimeoutError("silence"), hang, GOOD)
    task = asyncio.create_task(asking.ask())
    await turns()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert asking.steps == ["begin", "send 1/1", "note", "begin", "send 2/1"]


def test_a_step_down_asks_anew_at_once_and_not_for_the_policy() -> None:
    async def step_down(_: Request) -> str:
        asking.backend.version += 1
        raise errors.SteppedDownError("no schemas here", retry_after=0.0, cost=0.0)

    asking = Asking(step_down, step_down, GOOD, policy=Policy(attempts=1))
    assert asking.outcome().state is JobState.DONE
    assert asking.ledger == [(1, "stepped_down"), (2, "stepped_down")]
    assert waits(asking) == []


async def test_what_was_prepared_before_a_step_down_is_not_sent() -> None:
    first, second = Asking(), Asking()
    second.judge.limiter = first.limiter  # which lets one through until an answer came
    sent = asyncio.Event()

    async def step_down(_: Request) -> str:
        sent.set()
        await turns()
        second.backend.version += 1
        raise errors.SteppedDownError("no schemas here", retry_after=0.0, cost=0.0)

    first.backend.answers.append(step_down)
    leading = asyncio.create_task(first.ask())
    await sent.wait()
    following = asyncio.create_task(second.ask())
    await asyncio.gather(leading, following)
    assert second.steps == ["begin", "send 1/1"]


def test_a_place_is_given_back_however_it_ends() -> None:
    for answer in (GOOD, BAD, errors.JudgeError("x"), errors.CallTimeoutError("x"), KeyError("x")):
        asking = Asking(answer, policy=Policy(attempts=1), cap=9.0)
        with suppress(errors.JudgeError, KeyError):
            asking.outcome()
        assert asking.limiter.in_flight == 0
        assert asking.budget._own.reserved == 0


def test_what_may_have_been_paid_counts_as_spent() -> None:
    asking = Asking(
        errors.CallTimeoutError("silence"), errors.RateLimitedError("429", cost=0.0), GOOD, cap=9.0
    )
    assert asking.outcome().state is JobState.DONE
    assert asking.budget._own.spent == (0.5 + 0.25) * NANO


def test_too_long_a_question_names_the_longest_item() -> None:
    asking = Asking(errors.ContextTooLongError("too long for this model."))
    with pytest.raises(
        errors.ContextTooLongError, match="of its 3 items is item 'i4', with 4 characters"
    ):
        asking.outcome()
    assert asking.ledger == [(1, "too_long")]


REFUSED = errors.ConnectionFailedError("no connection", cost=0.0, unavailable=True)


def asked_together(asking: Asking, jobs: int) -> list[Outcome | BaseException]:
    """What becomes of so many jobs that are asked at once."""

    async def story() -> list[Outcome | BaseException]:
        return await asyncio.gather(*(asking.ask() for _ in range(jobs)), return_exceptions=True)

    return asyncio.run(story())


def notices(asking: Asking) -> list[str]:
    return [event.text for event in asking.events if isinstance(event, Notice)]


def test_a_refusal_of_the_key_costs_one_call_however_many_wait() -> None:
    asking = Asking(*[errors.KeyRefusedError("401")] * 20)
    outcomes = asked_together(asking, 8)
    assert len(asking.backend.requests) == 1
    assert isinstance(outcomes[0], errors.KeyRefusedError)
    assert outcomes[1:] == [Outcome(7, JobState.PENDING)] * 7


def test_a_server_that_fails_from_the_start_is_asked_ten_times_and_no_job_fails() -> None:
    asking = Asking(*[errors.ServerFailedError(f"500 number {n}", cost=0.0) for n in range(99)])
    outcomes = asked_together(asking, 30)
    assert len(asking.backend.requests) == 10
    (error,) = (each for each in outcomes if isinstance(each, BaseException))
    assert isinstance(error, errors.JudgeError)
    assert re.search(r"10 calls in a row failed, within \d+ s.*500 number 9", str(error))
    states = {each.state for each in outcomes if isinstance(each, Outcome)}
    assert states == {JobState.PENDING}
    (said,) = notices(asking)
    assert said.endswith("and all others wait. The last: 500 number 1")
    told = [event.error for event in asking.events if isinstance(event, CallEnded)]
    assert told == [f"500 number {n}" for n in range(10)]


def test_a_server_that_is_away_for_minutes_is_waited_for() -> None:
    """More failures than a job has attempts, and none of them counts."""
    asking = Asking(GOOD, *[REFUSED] * 30)
    outcomes = asked_together(asking, 20)
    assert {each.state for each in outcomes if isinstance(each, Outcome)} == {JobState.DONE}
    assert len(outcomes) == 20
    assert 9 * 60 - 130 < asking.clock.now < 600
    (told,) = notices(asking)
    assert "doesn't answer; one call at a time is tried, for up to 10 minutes" in told


class FakeCache(dict[str, Reply]):
    """Replies by key, in memory."""

    def put(self, key: str, reply: Reply) -> None:
        self[key] = reply


def keyed(*answers: Answer, cache: FakeCache | None = None, job: Job | None = None) -> Asking:
    asking = Asking(*answers, cache=FakeCache() if cache is None else cache, job=job)
    asking.backend.prepared = Prepared(key="k", bound=0.5)
    return asking


def test_a_reply_is_bought_once() -> None:
    cache = FakeCache()
    first = keyed(GOOD, cache=cache)
    bought = first.outcome()
    second = keyed(cache=cache)
    outcome = second.outcome()
    assert (outcome.state, outcome.verdict) == (JobState.DONE, bought.verdict)
    assert second.steps == []
    (call,) = outcome.calls
    assert (call.outcome, call.usage) == ("cached", Usage(10, 2, 5, 3))
    assert (call.cost, call.reply) == (0.25, GOOD)
    assert second.events == [CallEnded("ok", Usage(10, 2, 5, 3), 0.25, 0.0, cached=True)]


def test_a_reply_that_was_asked_for_again_is_kept_under_its_question() -> None:
    cache = FakeCache()
    assert keyed(BAD, GOOD, cache=cache).outcome().state is JobState.DONE
    assert [(key, kept.text) for key, kept in cache.items()] == [("k 1", GOOD)]
    again = keyed(cache=cache)
    assert (again.outcome().calls[0].outcome, again.steps) == ("cached", [])


def test_a_reply_to_words_that_only_a_runs_file_says_is_not_kept_under_its_question() -> None:
    asking = keyed(GOOD, cache=(cache := FakeCache()), job=Job(LIST, 1, 1, error="Say B first."))
    assert asking.outcome().state is JobState.DONE
    assert list(cache) == ["k 2"]


@pytest.mark.parametrize(
    "answer", [BAD, errors.CallTimeoutError("silence"), errors.JudgeError("no key")]
)
def test_only_valid_replies_are_kept(answer: Answer) -> None:
    cache = FakeCache()
    asking = keyed(*[answer] * 20, cache=cache)
    with suppress(errors.JudgeError):
        asking.outcome()
    assert cache == {}


async def test_the_same_question_in_flight_is_asked_once() -> None:
    asking = keyed(GOOD)
    outcomes = await asyncio.gather(*(asking.ask() for _ in range(5)))
    assert {outcome.state for outcome in outcomes} == {JobState.DONE}
    assert len(asking.backend.requests) == 1
    assert sorted(outcome.calls[0].outcome for outcome in outcomes) == ["cached"] * 4 + ["ok"]


async def test_when_the_first_has_no_luck_the_next_asks() -> None:
    async def bad_at_first(request: Request) -> str:
        unlucky = request.ask == 2 or len(asking.backend.requests) == 1
        await turns()
        return BAD if unlucky else GOOD

    asking = keyed(*[bad_at_first] * 9)
    outcomes = await asyncio.gather(*(asking.ask() for _ in range(4)))
    states = [outcome.state for outcome in outcomes]
    assert states == [JobState.DONE] * 4  # the first, too: it is asked again, and known by then
    assert len(asking.backend.requests) == 2


def fed(seen: Unusable, pattern: str, problem: str = "no JSON object.") -> int:
    """How many replies (y: usable, n: not) came before it said stop."""
    for number, kind in enumerate(pattern, start=1):
        try:
            if kind == "y":
                seen.usable()
            else:
                seen.unusable(problem, "I'd rather not")
        except errors.JudgeError:
            return number
    return 0


def test_the_first_ten_of_which_none_is_usable_stop_it() -> None:
    assert fed(Unusable(), "n" * 50) == FIRST
    assert fed(Unusable(), "n" * 9 + "y" + "n" * 30) == 0


def test_replies_of_which_none_is_usable_stop_the_run_with_what_is_wrong() -> None:
    asking = Asking(*[BAD] * 99)
    error, *_ = (str(each) for each in asked_together(asking, 30) if not isinstance(each, Outcome))
    said = f"None of the last {FIRST} replies could be used. Reason ({FIRST} of {FIRST}): {MISSING}"
    assert said in error
    assert "Take smaller lists (--strategy listwise5, say)" in error
    assert "--max-output-tokens" not in error
    assert len(asking.backend.requests) < 50


@pytest.mark.parametrize(
    ("reply", "advice"),
    [
        ('<think>Perhaps {"winner": "A"}', "--max-output-tokens"),
        ("", "`--structured json` or `text`"),
        (
            "I can't say.",
            "Try another reply format (`--structured`), another prompt (`--prompt`) or",
        ),
        (
            '{"winner": "C"}',
            "Try another reply format (`--structured`), another prompt (`--prompt`) or",
        ),
        ('{"winner": "A"} {"winner": "B"}', "Try another reply format (`--structured`)"),
    ],
)
def test_the_advice_fits_what_is_wrong_with_a_reply(reply: str, advice: str) -> None:
    with pytest.raises(errors.UnusableReplyError) as caught:
        read_reply(reply, Match(0, 1, (0, 1)))
    assert advice in advice_for(str(caught.value))


def test_the_advice_fits_what_the_server_said_of_a_reply() -> None:
    assert "--max-output-tokens" in advice_for(CUT_OFF)
    elsewhere = 'the answer was empty: the server put the words into "reasoning_content".'
    assert "--reasoning-parser" in advice_for(elsewhere)
    assert "--max-output-tokens" not in advice_for(elsewhere)
    assert "won't judge these texts" in advice_for("the model refused to answer.")


def test_unusable_replies_are_counted_by_kind() -> None:
    seen = Unusable()
    words = [f"each label must be named exactly once (missing: '{name}')." for name in "ABCDEFGHIJ"]
    for problem in words[:-1]:
        seen.unusable(problem, "")
    with pytest.raises(errors.JudgeError) as caught:
        seen.unusable(words[-1], "")
    said = str(caught.value)
    assert f"Reason ({FIRST} of {FIRST}): each label must be named exactly once (missing: " in said
    assert "The last one was" not in said, "there are no words in it"


def test_more_than_half_of_the_last_hundred_stop_it() -> None:
    assert fed(Unusable(), "yn" * 500) == 0
    assert fed(Unusable(), "y" * 1000 + "n" * 100) == 1000 + LAST // 2 + 1
    assert fed(Unusable(), "y" + "n" * 200) == LAST


@pytest.mark.parametrize("known", ["", "answered before", "a worker beside its server"])
def test_where_nobody_is_there_only_a_server_that_may_come_back_is_waited_for(known: str) -> None:
    nobody = errors.ConnectionFailedError(
        "Nothing listens at http://h: is the server running?",
        cost=0.0,
        unavailable=True,
        misdirected=True,
    )
    asking = Asking(nobody, nobody, GOOD)
    asking.limiter.has_answered = known == "answered before"
    asking.judge.awaits_server = known == "a worker beside its server"
    if known:
        assert asking.outcome().state is JobState.DONE
        return
    with pytest.raises(errors.JudgeError, match="Nothing listens at"):
        asking.outcome()
    assert len(asking.backend.requests) == 1
