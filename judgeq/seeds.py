"""Named, order-free randomness: the same names give the same draws, whoever asks first.

Both forms use the counter-based generator Philox (Salmon et al. 2011, "Parallel random numbers: as
easy as 1, 2, 3"), keyed by a hash of the seed and the names.
"""

from __future__ import annotations

import hashlib

import numpy as np


def _key(seed: int, names: tuple[str | int, ...]) -> int:
    """A 128-bit key; every part is hashed with its type and length, so that no two can run together."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (seed, *names):
        data = repr(part).encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little")


def rng(seed: int, *names: str | int) -> np.random.Generator:
    """A generator of its own for `names`, for example `rng(seed, "round", 2)`."""
    return np.random.Generator(np.random.Philox(key=_key(seed, names)))


class Stream:
    """Many small independent generators under one name, addressed by two numbers.

    `at(a, b)` moves one generator to the block of its counter that belongs to (a, b): ten times
    faster than making one anew, which matters when each match has its own. What `at` returned is
    valid until the next call of `at`, so draw what you need before you await anything.
    """

    def __init__(self, seed: int, *names: str | int) -> None:
        self._bits = np.random.Philox(key=_key(seed, names))
        self._generator = np.random.Generator(self._bits)
        self._state = self._bits.state
        self._counter = self._state["state"]["counter"]

    def at(self, a: int, b: int = 0) -> np.random.Generator:
        """The generator for (a, b), at its beginning; of numbers of 64 bits, a negative a as
        unsigned."""
        self._counter[:] = (0, 0, a % 2**64, b)
        # A Philox block gives 4 words; position 4 says that none of the old block is left.
        self._state["buffer_pos"] = 4
        self._state["has_uint32"] = 0
        self._bits.state = self._state
        return self._generator
