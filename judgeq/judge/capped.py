"""Two caps at once: what a run may spend, and what this process may, whatever run it works on."""

from __future__ import annotations

from judgeq.judge.spending import GRANTED, Grant, OwnSpending, Spending


class Capped:
    """See `Spending`: that of a run, of which this process may take no more than `own` allows.
    `exhausted` once `own` refused for good."""

    def __init__(self, run: Spending, own: OwnSpending) -> None:
        self._run = run
        self._own = own
        self.exhausted = False

    @property
    def _decisive(self) -> Spending:
        """The one whose cap an error is about."""
        return self._own if self.exhausted or self._run.cap is None else self._run

    @property
    def cap(self) -> int | None:
        """See Spending."""
        return self._decisive.cap

    @property
    def spent(self) -> int:
        """See Spending."""
        return self._decisive.spent

    @property
    def at_risk(self) -> int:
        """See Spending."""
        return self._decisive.at_risk

    @property
    def reserved(self) -> int:
        """See Spending."""
        return self._decisive.reserved

    def reserve(self, amount: int) -> Grant:
        """See Spending."""
        grant = self._own.reserve(amount)
        if not grant.granted:
            self.exhausted = grant.wait is None
            return grant
        if self._run.cap is not None:
            grant = self._run.reserve(amount)
            if not grant.granted:
                self._own.release(amount)
                return grant
        return GRANTED

    def settle(self, amount: int, cost: int, at_risk: int) -> None:
        """See Spending."""
        self._own.settle(amount, cost, at_risk)
        if self._run.cap is not None:
            self._run.settle(amount, cost, at_risk)

    def release(self, amount: int) -> None:
        """See Spending."""
        self._own.release(amount)
        if self._run.cap is not None:
            self._run.release(amount)
