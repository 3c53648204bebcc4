from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from judgeq import prompts
from judgeq.errors import (
    CallTimeoutError,
    ConnectionFailedError,
    JudgeError,
    RateLimitedError,
    StoppedError,
    UsageError,
)
from judgeq.judge import check, make_simulated
from judgeq.judge.backend import Reply, Request
from judgeq.judge.judge import Judge
from judgeq.judge.retry import Policy
from judgeq.judge.simulated import Faults, SimulatedJudge, Simulation
from judgeq.types import (
    Call,
    CallEnded,
    Event,
    Floats,
    Job,
    JobState,
    Match,
    Outcome,
    Usage,
    Verdict,
)
from tests.fakes import Answer, Clock, FakeBackend, turns

LIST = Match(7, 1, (4, 0, 2))
PAIR = Match(8, 1, (3, 1))
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
        prompt: prompts.PromptSet | None = None,
        policy: Policy | None = None,
        stop_at: int | None = None,
    ) -> None:
        self.clock = Clock(0.0)
        self.backend = FakeBackend(*answers)
        self.steps: list[str] = []
        self.noted: list[Outcome] = []
        self.events: list[Event] = []
        self._job = job or Job(LIST)
        self._stop_at = stop_at
        prompt = prompt or prompts.load("bias")
        self._judge = Judge(
            self, prompt, TEXTS, self.events.append, self._sleep,
            policy or Policy(), self.clock, lambda: 5000.0 + self.clock.now,
        )  # fmt: skip

    # What the judge sees: a backend, a ledger and a clock

    name, reads_text = "fake", True

    async def complete(self, request: Request) -> Reply:
        self.steps.append(f"send {request.attempt}/{request.ask}")
        self.clock.now += 0.5
        return await self.backend.complete(request)

    async def close(self) -> None:
        pass

    async def begin(self, job: int) -> None:
        assert job == self._job.match.id
        self.steps.append("begin")

    def settle(self, outcome: Outcome) -> None:
        assert outcome.state is JobState.RUNNING
        assert outcome.verdict is None
        self.steps.append("note")
        self.noted.append(outcome)

    async def _sleep(self, seconds: float) -> None:
        if len(self.clock.slept) == self._stop_at:
            raise StoppedError("the run was stopped")
        await self.clock.sleep(seconds)

    # What the test asks

    async def ask(self) -> Outcome:
        return await self._judge.ask(self._job, self)

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


# Answers


def test_a_verdict_at_once() -> None:
    asking = Asking(GOOD)
    usage = Usage(10, 2, 5, 3)
    assert asking.outcome() == Outcome(
        7, JobState.DONE, Verdict((0, 4, 2)), (Call(1, "ok", usage, 0.25, 0.5, GOOD, 5000.5),)
    )
    assert asking.steps == ["send 1/1"]
    assert asking.events == [CallEnded("ok", usage, 0.25, 0.5)]
    assert [f"<text {label}>\n{TEXTS[row]}\n</text {label}>" in asking.said(0)
            for label, row in zip("ABC", LIST.items, strict=True)] == [True] * 3  # fmt: skip
    assert "could not be used" not in asking.said(0)


def test_an_unusable_reply_is_asked_again_naming_the_problem() -> None:
    asking = Asking(BAD, GOOD)
    outcome = asking.outcome()
    assert (outcome.state, outcome.verdict) == (JobState.DONE, Verdict((0, 4, 2)))
    assert asking.steps == ["send 1/1", "note", "begin", "send 2/2"]
    assert MISSING in asking.said(1)
    assert MISSING not in asking.said(0)
    assert asking.noted[0].error == MISSING
    assert (asking.ledger, calls(outcome)) == ([(1, "unusable")], [(2, "ok")])
    assert asking.noted[0].calls[0].reply == BAD
    assert asking.noted[0].calls[0].cost == 0.25  # it was paid for
    assert [event.outcome for event in asking.events if isinstance(event, CallEnded)] == [
        "unusable",
        "ok",
    ]


def test_unusable_twice_is_invalid() -> None:
    asking = Asking(BAD, "no", GOOD)
    outcome = asking.outcome()
    assert (outcome.state, outcome.verdict) == (JobState.INVALID, None)
    assert outcome.error is not None
    assert "no JSON object" in outcome.error
    assert asking.steps == ["send 1/1", "note", "begin", "send 2/2"]
    assert (asking.ledger, calls(outcome)) == ([(1, "unusable")], [(2, "unusable")])


def test_a_job_taken_up_again_is_in_its_second_asking() -> None:
    asking = Asking(BAD, GOOD, job=Job(LIST, attempts=4, unusable=1, error=MISSING))
    outcome = asking.outcome()
    assert outcome.state is JobState.INVALID
    assert asking.steps == ["send 4/2"]
    assert MISSING in asking.said(0)


def test_an_old_network_error_is_not_told_to_the_model() -> None:
    asking = Asking(GOOD, job=Job(LIST, attempts=2, error="no answer in time"))
    assert asking.outcome().state is JobState.DONE
    assert asking.steps == ["send 2/1"]
    assert "no answer in time" not in asking.said(0)


@pytest.mark.parametrize("ties", [True, False])
def test_ties_are_as_the_prompt_set_says(ties: bool) -> None:
    prompt = prompts.load("bias").model_copy(update={"ties": ties})
    tie = '{"winner": "tie"}'
    asking = Asking(tie, tie, job=Job(PAIR), prompt=prompt)
    tied = Verdict((3, 1), (False, True)) if ties else None
    assert asking.outcome().verdict == tied


# Failures


def test_failures_are_tried_again_each_attempt_committed_before_it_is_sent() -> None:
    asking = Asking(
        CallTimeoutError("no answer in time"),
        RateLimitedError("slow down", cost=0.0),
        ConnectionFailedError("cut off"),
        GOOD,
    )
    outcome = asking.outcome()
    assert outcome.state is JobState.DONE
    assert asking.steps == [
        "send 1/1", "note", "begin", "send 2/1", "note", "begin", "send 3/1", "note", "begin",
        "send 4/1",
    ]  # fmt: skip
    assert asking.ledger == [(1, "timeout"), (2, "rate_limited"), (3, "connection")]
    assert calls(outcome) == [(4, "ok")]
    told = [each.calls[0] for each in asking.noted]
    assert [call.cost for call in told] == [None, 0.0, None]  # unknown is not nothing
    assert [call.reply for call in told] == ["no answer in time", "slow down", "cut off"]
    assert [call.usage for call in told] == [Usage()] * 3
    assert len(waits(asking)) == 3
    assert all(0 < seconds <= 0.5 * 2**n for n, seconds in enumerate(waits(asking)))


def test_what_the_server_asks_for_is_waited_up_to_a_cap() -> None:
    policy = Policy(longest_wait=30)
    asking = Asking(
        RateLimitedError("429", retry_after=5.0),
        RateLimitedError("429", retry_after=0.0),
        RateLimitedError("429", retry_after=3600.0),
        GOOD,
        policy=policy,
    )
    assert asking.outcome().state is JobState.DONE
    first, second, third = asking.clock.slept
    assert 5 < first <= 6
    assert 0 < second <= 1
    assert 30 < third <= 31


def test_without_an_answer_a_job_fails() -> None:
    asking = Asking(*[CallTimeoutError(f"silence {n}") for n in range(9)], policy=Policy(3))
    outcome = asking.outcome()
    assert outcome == Outcome(7, JobState.FAILED, error="silence 2")
    assert asking.ledger == [(1, "timeout"), (2, "timeout"), (3, "timeout")]
    assert [each.error for each in asking.noted] == ["silence 0", "silence 1", "silence 2"]
    assert asking.steps.count("begin") == 2


def test_waits_grow_up_to_the_longest() -> None:
    asking = Asking(*[CallTimeoutError("silence")] * 40, policy=Policy(41, 0.5, longest_wait=4))
    assert asking.outcome().state is JobState.DONE
    assert 2 < max(waits(asking)) <= 4
    assert len(set(waits(asking))) == 40  # jitter: many workers don't come back together


@pytest.mark.parametrize("policy", [Policy(attempts=1), Policy(in_all=0)])
def test_one_attempt_means_one(policy: Policy) -> None:
    asking = Asking(CallTimeoutError("silence"), GOOD, policy=policy)
    assert asking.outcome().state is JobState.FAILED
    assert asking.steps == ["send 1/1", "note"]


def test_each_asking_has_its_attempts_and_keeps_its_problem() -> None:
    silence = [CallTimeoutError("silence")] * 2
    asking = Asking(*silence, BAD, *silence, GOOD, policy=Policy(3))
    outcome = asking.outcome()
    assert (outcome.state, calls(outcome)) == (JobState.DONE, [(6, "ok")])
    sent = [step for step in asking.steps if step.startswith("send")]
    assert sent == ["send 1/1", "send 2/1", "send 3/1", "send 4/2", "send 5/2", "send 6/2"]
    # A network error must not take the place of the problem that the model is to be told.
    assert [each.error for each in asking.noted] == ["silence"] * 2 + [MISSING] * 3
    assert MISSING in asking.said(5)


@pytest.mark.parametrize("after", [(), (CallTimeoutError("silence"),), (BAD,)])
def test_what_no_other_try_can_mend_is_raised_and_in_the_ledger(after: Sequence[Answer]) -> None:
    asking = Asking(*after, JudgeError("no such model: x"), GOOD)
    with pytest.raises(JudgeError, match="no such model: x"):
        asking.outcome()
    assert asking.ledger[-1] == (len(after) + 1, "error")
    assert asking.steps[-1] == "note"
    assert len(asking.backend.requests) == len(after) + 1


def test_a_bug_is_no_failure_of_the_network() -> None:
    asking = Asking(KeyError("choices"), GOOD)
    with pytest.raises(KeyError):
        asking.outcome()
    assert asking.steps == ["send 1/1"]


# Stops


def test_a_stop_during_a_wait_gives_the_job_back() -> None:
    asking = Asking(*[CallTimeoutError("silence")] * 3, GOOD, stop_at=1)
    assert asking.outcome() == Outcome(7, JobState.PENDING)
    assert asking.steps == ["send 1/1", "note", "begin", "send 2/1", "note"]


def test_a_stop_before_the_second_asking_gives_the_job_back_with_its_problem() -> None:
    asking = Asking(BAD, GOOD, stop_at=0)
    assert asking.outcome() == Outcome(7, JobState.PENDING, error=MISSING)
    assert asking.steps == ["send 1/1", "note"]


def test_cancelling_is_not_swallowed() -> None:
    async def story() -> None:
        async def hang(_: Request) -> str:
            await asyncio.Event().wait()
            return GOOD

        asking = Asking(CallTimeoutError("silence"), hang, GOOD)
        task = asyncio.create_task(asking.ask())
        await turns()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asking.steps == ["send 1/1", "note", "begin", "send 2/1"]

    asyncio.run(story())


# What a backend needs


def test_a_backend_that_reads_needs_texts() -> None:
    judge = Judge(FakeBackend(), None, None, print, asyncio.sleep)
    with pytest.raises(JudgeError, match="fake reads texts, and there are none"):
        judge.messages(LIST, None)


def test_a_judge_that_reads_none_needs_none() -> None:
    asking = Asking()
    backend = SimulatedJudge(np.linspace(1, 1000, 5), Simulation())
    judge = Judge(backend, None, None, asking.events.append, asyncio.sleep)
    assert asyncio.run(judge.ask(Job(LIST), asking)).state is JobState.DONE


# Judges by name


def test_judges_by_name() -> None:
    check("simulated")
    with pytest.raises(
        UsageError, match=r"'gpt-5-mini': no such judge. This version has simulated"
    ):
        check("gpt-5-mini")


def simulated(latent: Floats | None, gold: Floats | None, synthetic: bool = False) -> Verdict:
    """How the items 0, 1 and 2 are ranked by a judge that hardly errs."""
    backend = make_simulated(
        Simulation(sim_accuracy=0.999, sim_pmax=1, sim_distance=1),
        Faults(),
        latent=latent,
        gold=gold,
        synthetic=synthetic,
        seed=1,
        sleep=asyncio.sleep,
    )
    match = Match(0, 1, (0, 1, 2))
    reply = asyncio.run(backend.complete(Request(match, 1, 1, list)))
    asyncio.run(backend.close())
    assert reply.cost == 0
    return prompts.parse(reply.text, match)


def test_the_simulated_judge_answers_from_latent_scores_else_gold() -> None:
    up, down = np.array([0.0, 0.5, 1.0]), np.array([3.0, 2.0, 1.0])
    assert simulated(None, up) == Verdict((2, 1, 0))
    assert simulated(down, up) == Verdict((0, 1, 2))
    assert simulated(np.array([300.0, 100.0, 200.0]), up, synthetic=True) == Verdict((0, 2, 1))
    with pytest.raises(UsageError, match="this dataset has none: give --gold-column"):
        simulated(None, None)
