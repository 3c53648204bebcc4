"""How often somebody may ask for something."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable


class Rates:
    """A bucket of `burst` requests for each of those who ask, which `rate` a second fill up again. Those
    who asked longest ago are forgotten beyond `most`."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float], *, most: int = 10_000
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __contains__(self, who: str) -> bool:
        return who in self._buckets

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, who: str) -> float:
        """Take a request: 0.0, or the seconds until there is one to take."""
        left = self._left(who)
        taken = left >= 1
        self._put(who, left - taken)
        return 0.0 if taken else (1 - left) / self._rate

    def give_back(self, who: str) -> None:
        """What was taken doesn't count."""
        self._put(who, min(self._burst, self._left(who) + 1))

    def _left(self, who: str) -> float:
        left, at = self._buckets.get(who, (self._burst, self._clock()))
        return min(self._burst, left + (self._clock() - at) * self._rate)

    def _put(self, who: str, left: float) -> None:
        self._buckets[who] = (left, self._clock())
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)


def neighbourhood(address: str | None) -> str:
    """Whom requests of an address are counted for: IPv6 gives everybody 2^64 of them."""
    try:
        version = ipaddress.ip_address(address or "")
    except ValueError:
        return address or ""
    if version.version == 4:
        return str(version)
    return str(ipaddress.ip_network((version, 64), strict=False))
