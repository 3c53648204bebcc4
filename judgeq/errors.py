"""Every error judgeq raises on purpose, and the exit code each ends the command with.

    JudgeqError
    ├── UsageError                2   a flag, a setting or a name that can't be
    ├── DataError                 3   a dataset, a prompt set or a gold label that can't be read
    ├── JudgeError                4   the judge can't be used, or not any longer
    │   ├── KeyMissingError           no API key was given
    │   ├── KeyRefusedError           the server doesn't accept the key (401, 403)
    │   ├── UnknownModelError         the server doesn't know the model, or the address (404)
    │   ├── QuotaError                the account's money or quota is used up
    │   ├── ContextTooLongError       a question is longer than the model can read
    │   ├── RefusedRequestError       the server won't take the request as it is (400, 422 …)
    │   ├── BatchGoneError            the provider has a batch, or its results, no longer
    │   ├── BatchNotFoundError        the provider doesn't find a batch, or its results, just now
    │   ├── UnusableReplyError        an answer came, and is no verdict
    │   └── CallError                 one call failed; another try may mend it
    │       ├── RateLimitedError          the server asked for a pause (429), or for fewer at once
    │       ├── ServerFailedError         the server failed (408, 409, 5xx, or an answer in no form)
    │       ├── CallTimeoutError          no answer in time
    │       ├── ConnectionFailedError     no connection, or it broke
    │       └── SteppedDownError          the server can't do what was asked; it is asked for less
    ├── StoppedError              5   the run was stopped and can go on
    ├── BudgetError               6   the money or the calls allowed are used up
    ├── RunError                  7   a run's folder: not there, in use, of another version, changed
    │   ├── NoVerdictsError           it has no verdict: there is nothing to rate
    │   ├── StoreAwayError            its store can't be reached, or can't commit, just now
    │   ├── LedError                  another process is its scheduler
    │   ├── JobLostError              a job that another worker may have by now; nobody sees it
    │   └── PersonError               what a person who judges can't have; said to them alone
    │       ├── UnknownPersonError        nobody has this link
    │       ├── StaleError                the question is no longer theirs
    │       └── BadAnswerError            an answer that can't be
    └── NotConvergedError         8   a rating's fit did not reach its tolerance

An error's message says what happened, to what, and what to do next, in words for the user.
"""

from __future__ import annotations

from typing import Literal


class JudgeqError(Exception):
    """The root; `exit_code` is what the command ends with."""

    exit_code = 1


class UsageError(JudgeqError):
    """A flag, a setting or a name that can't be."""

    exit_code = 2


class DataError(JudgeqError):
    """A dataset, a prompt set or a gold label that can't be read."""

    exit_code = 3


class JudgeError(JudgeqError):
    """The judge can't be used, or not any longer: the run stops at once and can be resumed.

    Where a call failed with it, `outcome` names it in the ledger, and `cost` is what that call cost in
    dollars: 0 when it surely cost nothing, None when it may have been paid for.
    """

    exit_code = 4
    outcome = "error"

    def __init__(self, message: str, *, cost: float | None = 0.0) -> None:
        super().__init__(message)
        self.cost = cost


class KeyMissingError(JudgeError):
    """No API key was given, and the server needs one."""


class KeyRefusedError(JudgeError):
    """The server doesn't accept the key, or what it allows (401, 403)."""

    outcome = "key_refused"


class UnknownModelError(JudgeError):
    """The server doesn't know the model, or has nothing at this address (404)."""

    outcome = "unknown_model"


class QuotaError(JudgeError):
    """The account's money or quota is used up: waiting doesn't help."""

    outcome = "quota"


class ContextTooLongError(JudgeError):
    """A question is longer than the model can read."""

    outcome = "too_long"


class RefusedRequestError(JudgeError):
    """The server won't take the request as it is (400, 422 and other refusals)."""

    outcome = "refused"


class BatchGoneError(JudgeError):
    """The provider has a batch, or its results, no longer (410)."""


class BatchNotFoundError(JudgeError):
    """The provider doesn't find a batch, or its results (404), which may be there all the same."""


class UnusableReplyError(JudgeError):
    """An answer came and is no verdict. The message says what was wrong with it."""

    outcome = "unusable"


class CallError(JudgeError):
    """One call failed; another try may mend it.

    `retry_after` is how many seconds the server asked to wait, or None. `unavailable`: the server
    takes no calls now, which time mends. `too_many`: fewer calls at once would fare better.
    `misdirected`: the address may be wrong, or its server isn't started. Before any answer has come
    from there, another try mends nothing.
    """

    unavailable = False
    too_many = False
    misdirected = False

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = None,
        cost: float | None = None,
        unavailable: bool | None = None,
        too_many: bool | None = None,
        misdirected: bool = False,
    ) -> None:
        super().__init__(message, cost=cost)
        self.retry_after = retry_after
        if unavailable is not None:
            self.unavailable = unavailable
        if too_many is not None:
            self.too_many = too_many
        self.misdirected = misdirected


class RateLimitedError(CallError):
    """The server asked for a pause (429), or for fewer calls at once."""

    outcome = "rate_limited"
    unavailable = True
    too_many = True


class ServerFailedError(CallError):
    """The server failed (408, 409, 5xx), or what it answered has no form."""

    outcome = "server_error"


class BrokenResultsError(ServerFailedError):
    """A provider's file of results isn't what it should be."""


class CallTimeoutError(CallError):
    """No answer came in time; whether it was paid for is unknown."""

    outcome = "timeout"
    too_many = True


class ConnectionFailedError(CallError):
    """No connection could be made, or it broke before the answer was whole."""

    outcome = "connection"


class SteppedDownError(CallError):
    """The server can't do what was asked of it; it is asked for less at once.

    `what` it refused: "structured" replies, the "system" role, or a name of the limit on output.
    """

    outcome = "stepped_down"

    def __init__(
        self,
        message: str,
        *,
        retry_after: float | None = 0.0,
        cost: float | None = 0.0,
        what: Literal["structured", "system", "max_tokens", "max_completion_tokens"] = "structured",
    ) -> None:
        super().__init__(message, retry_after=retry_after, cost=cost)
        self.what = what


class StoppedError(JudgeqError):
    """The run was stopped, lost nothing, and can go on."""

    exit_code = 5


class BudgetError(JudgeqError):
    """The money or the calls allowed are used up; the run can go on when more is allowed.

    `cap` are the dollars that are allowed, `left` those that are left, and `flags` what to give so that
    the same run goes on.
    """

    exit_code = 6

    def __init__(
        self,
        message: str,
        *,
        cap: float = 0.0,
        left: float = 0.0,
        flags: str = "--max-cost DOLLARS",
    ) -> None:
        super().__init__(message)
        self.cap = cap
        self.left = left
        self.flags = flags


class RunError(JudgeqError):
    """A run's folder is not there, in use, of another version, or doesn't fit what it was made of."""

    exit_code = 7


class NoVerdictsError(RunError):
    """A run has no verdict, so that there is nothing to rate."""


class StoreAwayError(RunError):
    """The store can't be reached, or can't commit, just now: what was asked of it may be tried again."""


class LedError(RunError):
    """Another process leads the run. `until` changes when that renews its lease."""

    def __init__(self, message: str, *, until: float) -> None:
        super().__init__(message)
        self.until = until


class JobLostError(RunError):
    """A worker lost a job before it sent a request for it: its lease was over."""


class NotConvergedError(JudgeqError):
    """A rating's fit did not reach its tolerance; its numbers are not shown."""

    exit_code = 8


class PersonError(RunError):
    """What a person who judges asked for, and can't have; said to them, never to a user."""


class UnknownPersonError(PersonError):
    """Nobody has this link."""


class StaleError(PersonError):
    """The question is no longer theirs."""


class BadAnswerError(PersonError):
    """An answer that can't be."""
