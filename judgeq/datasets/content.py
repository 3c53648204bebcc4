"""What items and labels are, in 256 bits each; and ids that are row numbers, which cost no memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from judgeq.types import Floats


@dataclass(frozen=True, slots=True)
class RowIds(Sequence[str]):
    """The row numbers as ids, without a string for each of millions."""

    n: int

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[str]:
        return map(str, range(self.n))

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[str]: ...
    def __getitem__(self, key: int | slice) -> str | Sequence[str]:
        rows = range(self.n)[key]
        return str(rows) if isinstance(rows, int) else [str(row) for row in rows]


def content(ids: Sequence[str], texts: Sequence[str]) -> str:
    """A sha256 that two lists of items share only if ids and texts are the same, in their order.

    Strings go in with their lengths, so that no two can run together.
    """
    digest = hashlib.sha256(b"judgeq items 1\n")
    if isinstance(ids, RowIds):
        digest.update(f"rows {len(ids)}\n".encode())
    else:
        _hash_strings(digest, "ids", ids)
    _hash_strings(digest, "texts", texts)
    return digest.hexdigest()


def labels(gold: Floats | None, latent: Floats | None) -> str:
    """A sha256 of what a simulated judge answers from: the same bits on every machine."""
    digest = hashlib.sha256(b"judgeq labels 1\n")
    for name, values in (("gold", gold), ("latent", latent)):
        if values is not None:
            digest.update(f"{name} {len(values)}\n".encode())
            # One nan and one zero only: both have several bit patterns.
            plain = np.where(np.isnan(values), np.nan, values + 0.0)
            digest.update(plain.astype("<f8", copy=False).data)
    return digest.hexdigest()


def _hash_strings(digest: hashlib._Hash, name: str, strings: Sequence[str]) -> None:
    lengths = np.fromiter(map(len, strings), dtype="<i8", count=len(strings))
    digest.update(f"{name} {len(strings)}\n".encode())
    digest.update(lengths.data)
    for start in range(0, len(strings), 10_000):
        digest.update("".join(strings[start : start + 10_000]).encode())
