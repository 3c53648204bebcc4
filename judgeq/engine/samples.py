"""What answered questions took, and what that says of those to come."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from judgeq.rating import student
from judgeq.types import Usage

FAR = 4
"""A mean is never said to be further off than by this factor."""


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, and what is `expected` where answers tell."""

    low: float
    high: float
    expected: float | None = None

    def times(self, n: float) -> Range:
        """The same of so many."""
        expected = None if self.expected is None else n * self.expected
        return Range(n * self.low, n * self.high, expected)


NOTHING = Range(0.0, 0.0, 0.0)


def total(ranges: Sequence[Range]) -> Range:
    """Their sum; what is expected where it is known of all."""
    known = [each.expected for each in ranges if each.expected is not None]
    expected = sum(known) if len(known) == len(ranges) else None
    return Range(sum(each.low for each in ranges), sum(each.high for each in ranges), expected)


class Sample(NamedTuple):
    """What a question to a judge took, which was of so many bytes; as `Spent`."""

    judge: int
    size: int
    usage: Usage
    cost: float | None
    latency: float

    def of_size(self, size: float) -> Sample:
        """The same, were it so long."""
        input_, cached, *output = self.usage
        longer = size / max(1, self.size)
        usage = Usage(round(longer * input_), round(longer * cached), *output)
        return self._replace(usage=usage)


def plausible(values: Sequence[float], to_come: int, least: float) -> Range:
    """What the mean of so many values to come may be: within a 95 % prediction interval, and at least
    the share `least` to either side, for later rounds ask about more similar texts.

    The interval is by factors, since a few questions may take many times what most do, and seldom are
    among the first. As if one value more had been seen, a whole mean off: a few that happen to be alike,
    or one alone, don't tell how far others may lie.
    """
    n, mean = len(values), mean_of(values)
    if not mean:
        return NOTHING
    off = sum((value / mean - 1) ** 2 for value in values) + 1
    margin = student.quantile(0.95, n) * math.sqrt(off / n * (1 / n + 1 / max(1, to_come)))
    factor = math.exp(min(margin, math.log(FAR)))
    return Range(mean * min(1 / factor, 1 - least), mean * max(factor, 1 + least), mean)


def mean_of(values: Sequence[float]) -> float:
    """The mean; 0 of none."""
    return sum(values) / len(values) if values else 0.0
