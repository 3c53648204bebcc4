"""How far rankings scatter, against how far they should if the model held: φ.

φ = Σ g_lᵀ V_l g_l / Σ [tr(V_l H_l) − tr((V_l H_l)²)], with g_l, H_l and V_l the gradient, the
Hessian and the block of V of ranking l. What is subtracted is what fitting takes off the residuals
of a ranking, as 1 − leverage does in regression: with one number for all it is a sandwich estimator
(McCullagh and Nelder 1989, section 9.2.4, of clusters).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgeq import seeds
from judgeq.rating.covariance import Part, by_parameter, with_covariates
from judgeq.rating.curvature import Curvature
from judgeq.rating.rankings import Values
from judgeq.types import Floats

SAMPLE = 20_000
"""φ is a mean over rankings, which needs no more."""


@dataclass(slots=True)
class Scatter:
    """How far the rankings' gradients scatter, and should if the model held."""

    observed: float = 0.0
    expected: float = 0.0

    @property
    def dispersion(self) -> float:
        """φ, and at least 1: of a judge that scatters less than the model expects the ratings aren't
        taken to be surer than the model says."""
        return max(1.0, self.observed / self.expected) if self.expected > 0 else 1.0

    def add(self, curvature: Curvature, slopes: Sequence[Floats], part: Part) -> None:
        """Add the rankings of some components, of which V is known."""
        by_list, n = curvature.rankings.by_list, curvature.rankings.n
        for matrices, slope, items, numbers in zip(
            curvature.matrices, slopes, by_list.items, by_list.covariates, strict=True
        ):
            lists = np.flatnonzero(part.number[items[:, 0]] >= 0)
            at = items[lists]
            if numbers is not None:
                at = with_covariates(at, numbers[lists], n)
            number, place = part.number[at[:, 0]], part.place[at]
            v = part.covariance[number[:, None, None], place[:, :, None], place[:, None, :]]
            if numbers is not None:
                slots = by_parameter(numbers[lists])
                v = slots @ v @ slots.transpose(0, 2, 1)
            self._add(v, matrices[lists], slope[lists])

    def add_sample(
        self, curvature: Curvature, slopes: Sequence[Floats], variance: Floats, seed: int = 0
    ) -> None:
        """Add SAMPLE of all rankings, drawn at random, with V of their items by the series D(1 + ED +
        (ED)² + (ED)³) within a list, and its diagonal `variance`."""
        items_of = curvature.rankings.by_list.items
        share = min(1.0, SAMPLE / max(1, sum(map(len, items_of))))
        rng = seeds.rng(seed, "dispersion")
        inverse = 1 / curvature.diagonal[: curvature.rankings.n]
        for matrices, slope, items in zip(curvature.matrices, slopes, items_of, strict=True):
            some = rng.permutation(len(items))[: math.ceil(share * len(items))]
            h, g, at = matrices[some].astype(np.float64), slope[some], items[some]
            each, d = np.arange(h.shape[1]), inverse[at]
            bent = -h * d[:, None, :]
            bent[:, each, each] = 0
            v = d[:, :, None] * (bent + bent @ bent + bent @ bent @ bent)
            v[:, each, each] = variance[at]
            self._add(v, h, g)

    def _add(self, v: Floats, h: Values, g: Floats) -> None:
        """Add rankings by V, (rankings, k, k), Hessians and gradients of their places."""
        product = v @ h
        self.observed += float(((v @ g[:, :, None])[:, :, 0] * g).sum())
        self.expected += float(np.trace(product, axis1=1, axis2=2).sum())
        self.expected -= float((product * product.transpose(0, 2, 1)).sum())
