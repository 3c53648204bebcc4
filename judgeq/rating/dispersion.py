"""How far rankings scatter, against how far they should if the model held: φ.

φ = Σ g_lᵀ V_l g_l / Σ [tr(V_l H_l) − tr((V_l H_l)²)], with g_l, H_l and V_l the gradient, the
Hessian and the block of V of ranking l. What is subtracted is what fitting takes off the residuals
of a ranking, as 1 − leverage does in regression: with one number for all it is a sandwich estimator
(McCullagh and Nelder 1989, section 9.2.4, of clusters).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from judgeq.rating.covariance import Part, by_parameter, with_covariates
from judgeq.rating.curvature import Curvature
from judgeq.rating.rankings import Values
from judgeq.types import Floats


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
            product = v @ matrices[lists]
            g = slope[lists]
            self.observed += float(((v @ g[:, :, None])[:, :, 0] * g).sum())
            self.expected += float(np.trace(product, axis1=1, axis2=2).sum())
            self.expected -= float((product * product.transpose(0, 2, 1)).sum())

    def add_draws(self, curvature: Curvature, slopes: Sequence[Floats], draws: Values) -> None:
        """Add all rankings by draws x of N(0, V), shape (n + p, samples): (g·x)² has the mean gᵀVg,
        xᵀHx the mean tr(VH), and (xᵀHy)² of two draws the mean tr((VH)²)."""

        def scatter(part: Values, matrices: Values, slope: Floats) -> tuple[float, float]:
            pull = (slope.astype(np.float32)[:, :, None] * part).sum(axis=1)
            bent = matrices @ part
            of_one = (part * bent).sum(dtype=np.float64)
            of_two = (np.roll(part, 1, axis=2) * bent).sum(axis=1)
            observed = (pull * pull).sum(dtype=np.float64)
            return float(observed), float(of_one - (of_two * of_two).sum(dtype=np.float64))

        rankings = curvature.rankings
        for observed, expected in rankings.each(scatter, draws, curvature.matrices, slopes):
            self.observed += observed
            self.expected += expected
