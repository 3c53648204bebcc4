"""Synthetic latent scores on 1..1000, as in the paper's simulation study, in random order."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from judgeq.types import Floats

LOWEST, HIGHEST = 1.0, 1000.0

SHAPES: Mapping[str, str] = MappingProxyType(
    {
        "linear": "Latent scores evenly spaced on 1..1000.",
        "bimodal": "Half of the latent scores around 300, half around 700 (sd 70).",
        "normal": "Latent scores around 500 (sd 150).",
        "binary": "Half of the latent scores at 250, half at 750.",
    }
)
MEANING = "the latent score that the items were made with"


def draw(shape: str, n: int, random: np.random.Generator) -> Floats:
    """`n` latent scores of one of SHAPES, shape (n,), clipped to 1..1000.

    They are shuffled, so that an item's row number tells nothing about its score. The half of an
    odd `n` is rounded down for the lower group.
    """
    upper = np.arange(n) >= n // 2
    if shape == "linear":
        scores = np.linspace(LOWEST, HIGHEST, n)
    elif shape == "bimodal":
        scores = random.normal(np.where(upper, 700.0, 300.0), 70.0)
    elif shape == "normal":
        scores = random.normal(500.0, 150.0, n)
    elif shape == "binary":
        scores = np.where(upper, 750.0, 250.0)
    else:
        raise ValueError(f"no shape is called {shape!r}")
    return random.permutation(np.clip(scores, LOWEST, HIGHEST))
