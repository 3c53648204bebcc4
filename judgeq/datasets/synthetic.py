"""Synthetic latent scores on 1..1000, as in the paper's simulation study, in random order."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from judgeq.datasets.dataset import Dataset, DatasetInfo, RowIds, refuse
from judgeq.datasets.tables import OF_COLUMNS, OF_TABLES
from judgeq.seeds import rng
from judgeq.settings.run import DatasetSpec
from judgeq.types import Floats

SYNTHETIC = "synthetic:"
DEFAULT_N = 1_000
LOWEST, HIGHEST = 1.0, 1000.0

SHAPES: Mapping[str, str] = {
    "linear": "Latent scores evenly spaced on 1..1000.",
    "bimodal": "Half of the latent scores around 300, half around 700 (sd 70).",
    "normal": "Latent scores around 500 (sd 150).",
    "binary": "Half of the latent scores at 250, half at 750.",
}
NAMES = [SYNTHETIC + shape for shape in SHAPES]
MEANING = "the latent score that the items were made with"


def catalog() -> list[DatasetInfo]:
    """The shapes."""
    return [
        DatasetInfo(
            name=SYNTHETIC + shape,
            title=f"Synthetic items, {shape}",
            description=description,
            gold_meaning=MEANING,
            gold_kind="binary" if shape == "binary" else "continuous",
        )
        for shape, description in SHAPES.items()
    ]


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


def load(spec: DatasetSpec, seed: int) -> Dataset:
    """The items of a shape that `spec` names. Raises UsageError for settings that can't be."""
    refuse(spec, (*OF_COLUMNS, "gold_levels", *OF_TABLES), "is not for synthetic datasets")
    shape, n = spec.dataset.removeprefix(SYNTHETIC), spec.n or DEFAULT_N
    latent = draw(shape, n, rng(seed, "synthetic", shape))
    binary = shape == "binary"
    return Dataset(
        name=f"synthetic-{shape}",
        ids=RowIds(n),
        texts=None,
        gold=(latent > latent.mean()).astype(np.float64) if binary else latent,
        gold_kind="binary" if binary else "continuous",
        gold_meaning=MEANING,
        latent=latent,
        known_as=f"synthetic:{shape} n={n}",
        source="synthetic",
        missing_texts=(
            f"The items of {spec.dataset} are numbers without texts, so only a simulated judge can "
            "compare them. For a judge that reads, name a dataset with texts: --dataset demo"
        ),
    )
