"""How reliable a scale is, and what doesn't fit it, for other programs: as JSON, and as rows of CSV."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from judgeq.evaluation.scale import Judgment, Misfit, Reliability
from judgeq.rating.misfit import Fit
from judgeq.rating.reliability import Separation, SplitHalf

LISTED = 100
"""So many judges, or items, outside the expected range are listed."""


def reliability_json(reliability: Reliability) -> dict[str, Any]:
    """The key "reliability" of `judgeq evaluate --json`."""
    return {
        "rating": reliability.rating,
        "recipe": reliability.recipe,
        **_separation(reliability.separation),
        "adaptive": reliability.adaptive,
        "split_half": _split_half(reliability.split_half, reliability.halves_by),
    }


def _separation(separation: Separation) -> dict[str, Any]:
    facts = {"ssr": separation.ssr, "separation": separation.g, "items": separation.n}
    return facts | _why(separation.why)


def _split_half(half: SplitHalf, estimator: str) -> dict[str, Any]:
    return {
        "median": half.r,
        "low": half.low,
        "high": half.high,
        "whole": half.whole,
        "splits": half.splits,
        "by": half.by,
        "estimator": estimator,
        "items": half.items,
        "components": half.components,
        **_why(half.why),
    }


def _why(why: str | None) -> dict[str, str]:
    return {} if why is None else {"why": why}


def misfit_json(misfit: Misfit, ids: Sequence[str]) -> dict[str, Any]:
    """The key "misfit" of `judgeq evaluate --json`."""
    return {
        "rating": misfit.rating,
        "judges": None if misfit.judges is None else _fit(misfit.judges, misfit.names),
        "items": None if misfit.items is None else _fit(misfit.items, ids),
        "least_expected": [_judgment(judgment, ids) for judgment in misfit.least_expected],
        **_why(misfit.why),
    }


def worst(fit: Fit, most: int) -> list[int]:
    """The numbers of the units outside the expected range, the furthest first."""
    outside = np.flatnonzero(fit.above | fit.below)
    order = np.argsort(-np.abs(fit.z[outside]), kind="stable")[:most]
    chosen: list[int] = outside[order].tolist()
    return chosen


def _fit(fit: Fit, names: Sequence[str]) -> dict[str, Any]:
    return {
        "known": int(fit.known.sum()),
        "expected": None if math.isnan(fit.expected) else fit.expected,
        "above": int(fit.above.sum()),
        "below": int(fit.below.sum()),
        "outside": [
            {
                "name": names[unit],
                "infit": float(fit.infit[unit]),
                "low": float(fit.low[unit]),
                "high": float(fit.high[unit]),
                "z": float(fit.z[unit]),
                "outfit": float(fit.outfit[unit]),
                "comparisons": int(fit.comparisons[unit]),
            }
            for unit in worst(fit, LISTED)
        ],
    }


def _judgment(judgment: Judgment, ids: Sequence[str]) -> dict[str, Any]:
    return {
        "round": judgment.round,
        "judge": judgment.judge,
        "ranking": [[ids[row] for row in group] for group in judgment.groups],
        "partial": judgment.partial,
        "surprise": judgment.surprise,
    }


# CSV: rating, items, measure, value, low, high, n


def reliability_cells(reliability: Reliability) -> Iterator[list[object]]:
    """Rows of the separation and of split halves."""
    rating, one, half = reliability.rating, reliability.separation, reliability.split_half
    name = "ssr" if reliability.recipe == "judgeq" else f"ssr_{reliability.recipe}"
    yield [rating, "all", name, one.ssr, None, None, one.n]
    yield [rating, "all", name.replace("ssr", "separation"), one.g, None, None, one.n]
    yield [rating, "all", "split_half", half.r, half.low, half.high, half.items]


def misfit_cells(misfit: Misfit, ids: Sequence[str]) -> Iterator[list[object]]:
    """Rows of infit (with its expected range) and outfit of every judge and item."""
    for kind, fit, names in (("judge", misfit.judges, misfit.names), ("item", misfit.items, ids)):
        if fit is None:
            continue
        columns = (fit.infit, fit.low, fit.high, fit.outfit, fit.comparisons)
        rows = zip(names, *(column.tolist() for column in columns), strict=True)
        for name, infit, low, high, outfit, n in rows:
            if n:
                what = f"{kind} {name}"
                yield [misfit.rating, what, "infit", infit, *map(_cell, (low, high)), n]
                yield [misfit.rating, what, "outfit", outfit, None, None, n]


def _cell(value: float) -> float | None:
    return None if math.isnan(value) else value
