from __future__ import annotations

import asyncio
import math

import pytest

from judgeq.errors import BudgetError, StoppedError
from judgeq.judge.turnstile import Turnstile, Wait
from tests.fakes import turns


class Places:
    """So many places, which those who enter take."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.turnstile: Turnstile[str] = Turnstile(self.take, self.give_back)

    def take(self, amount: int) -> str | Wait:
        if amount > 9:
            raise BudgetError("never")
        if amount > self.free:
            return Wait(math.inf)
        self.free -= amount
        return f"{amount} of them"

    def give_back(self, amount: int, given: str) -> None:
        assert given == f"{amount} of them"
        self.free += amount


def test_what_is_given_to_one_who_is_cancelled_in_the_same_turn_goes_to_the_next() -> None:
    async def story() -> None:
        places = Places(0)
        first, second = (asyncio.create_task(places.turnstile.enter(1)) for _ in range(2))
        await turns()
        places.free += 1
        places.turnstile.serve()
        first.cancel()
        await turns()
        assert first.cancelled()
        assert (second.done(), places.free) == (True, 0)

    asyncio.run(story())


def test_a_large_one_is_not_overtaken_and_one_that_never_fits_lets_the_others_by() -> None:
    async def story() -> None:
        places = Places(1)
        large, small = (asyncio.create_task(places.turnstile.enter(n)) for n in (3, 1))
        await turns()
        assert not small.done()
        never = asyncio.create_task(places.turnstile.enter(10))
        places.free += 3
        places.turnstile.serve()
        assert (await large, await small) == ("3 of them", "1 of them")
        with pytest.raises(BudgetError):
            await never
        waiting = asyncio.create_task(places.turnstile.enter(5))
        await turns()
        places.turnstile.abort()
        with pytest.raises(StoppedError):
            await waiting
        with pytest.raises(StoppedError):
            await places.turnstile.enter(0)

    asyncio.run(story())
