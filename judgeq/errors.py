"""Every error judgeq raises on purpose, and the exit code each ends the command with.

    JudgeqError
    ├── UsageError                2   a flag, a setting or a name that can't be
    ├── DataError                 3   a dataset, a prompt set or a gold label that can't be read
    ├── JudgeError                4   the judge can't be used, or not any longer
    │   ├── CallError                 one call failed; another try may mend it
    │   │   ├── RateLimitedError          the server asked for a pause
    │   │   ├── CallTimeoutError          no answer in time
    │   │   └── ConnectionFailedError     no connection, or it broke
    │   └── UnusableReplyError        an answer came, and is no verdict
    ├── StoppedError              5   the run was stopped and can go on
    ├── BudgetError               6   the money or the calls allowed are used up
    ├── RunError                  7   a run's folder: not there, in use, of another version, changed
    └── NotConvergedError         8   a rating's fit did not reach its tolerance

An error's message says what happened, to what, and what to do next, in words for the user.
"""

from __future__ import annotations


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
    """The judge can't be used, or not any longer: the run stops at once and can be resumed."""

    exit_code = 4


class CallError(JudgeError):
    """One call failed; another try may mend it.

    `retry_after` is how many seconds the server asked to wait, or None. `cost` is what the call may
    have cost in dollars, None where that is unknown. `outcome` names the error in the ledger.
    """

    outcome = "error"

    def __init__(
        self, message: str, *, retry_after: float | None = None, cost: float | None = None
    ) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.cost = cost


class RateLimitedError(CallError):
    """The server asked for a pause (429)."""

    outcome = "rate_limited"


class CallTimeoutError(CallError):
    """No answer came in time; whether it was paid for is unknown."""

    outcome = "timeout"


class ConnectionFailedError(CallError):
    """No connection could be made, or it broke before the answer was whole."""

    outcome = "connection"


class UnusableReplyError(JudgeError):
    """An answer came, was paid for, and is no verdict. The message says what was wrong with it."""


class StoppedError(JudgeqError):
    """The run was stopped, lost nothing, and can go on."""

    exit_code = 5


class BudgetError(JudgeqError):
    """The money or the calls allowed are used up; the run can go on when more is allowed."""

    exit_code = 6


class RunError(JudgeqError):
    """A run's folder is not there, in use, of another version, or doesn't fit what it was made of."""

    exit_code = 7


class NotConvergedError(JudgeqError):
    """A rating's fit did not reach its tolerance; its numbers are not shown."""

    exit_code = 8
