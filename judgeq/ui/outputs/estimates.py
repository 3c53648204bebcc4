"""What `judgeq estimate` prints."""

from __future__ import annotations

from judgeq.ui.outputs.runs import ErrorFacts, Output, Span


class PilotFacts(Output):
    """The first questions of the run; calls, tokens and dollars are those of this pilot alone."""

    questions: int
    done: int
    invalid: int
    failed: int
    calls: int
    from_cache: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    cost_at_most: float | None


class EstimateOutput(Output):
    """What is left to be paid of a run: pairs are from low to high, dollars null where unknown."""

    run: str
    judge: str
    strategy: str
    items: int
    rounds: int
    jobs_done: int
    calls: int
    answers: int
    """Those that people are still asked for."""
    from_cache: int
    rounds_not_looked_into: int
    input_tokens: tuple[int, int]
    output_tokens: tuple[int, int]
    cost: Span | None
    cost_expected: float | None
    seconds: Span | None
    cost_so_far: float | None
    price: str | None
    basis: str
    max_cost: float | None
    latency: Span | None
    """Seconds a question, on average and the longest."""
    batch_waits: int | None
    """Rounds whose batches are waited for, up to 24 hours each, at most; null without --batch."""
    pilot: PilotFacts | None
    error: ErrorFacts | None = None
    """What ended the pilot early."""
