"""What refusals of a batch API mean, beside what any answer that is no success does."""

from __future__ import annotations

from collections.abc import Callable

from judgeq.errors import (
    BatchGoneError,
    CallError,
    JudgeError,
    RateLimitedError,
    RefusedRequestError,
)

Explain = Callable[[int, JudgeError], JudgeError]
"""From the status of an answer, and what it means anywhere, to what it means here."""
_MAYBE_DONE = (408, 409, 425, 429, 498)
"""Refusals that don't prove that nothing was done: a gateway may have tried twice, and says how the
second try ended. What the others are about (the key, the address, the request) fails every time."""


def is_refusal(error: JudgeError) -> bool:
    """Whether a server refused what it was asked to create, in words: not one that broke down."""
    return isinstance(error, RateLimitedError) or not isinstance(error, CallError)


def as_it_is(_: int, error: JudgeError) -> JudgeError:
    """The error."""
    return error


def none_at(address: str) -> Explain:
    """For what every server has that has batches. Where a server broke down, or asked for a pause, what
    it was asked to create may be there."""

    def explained(status: int, error: JudgeError) -> JudgeError:
        if status in (404, 405):
            return RefusedRequestError(
                f"the server at {address} has no batch API, as it seems: leave --batch out, and each "
                f"question is sent by itself. ({error})"
            )
        if status >= 500 or status in _MAYBE_DONE:
            error.cost = None
        return error

    return explained


def gone(what: str) -> Explain:
    """For what was there once."""

    def explained(status: int, error: JudgeError) -> JudgeError:
        if status in (404, 410):
            return BatchGoneError(
                f"the provider doesn't have {what}, or not for this key: it was deleted, or made with "
                f"the key of another project. ({error})",
                cost=None,
            )
        return error

    return explained
