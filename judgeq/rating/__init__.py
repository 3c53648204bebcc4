"""The registry of estimators: from verdicts to one number an item.

A new estimator is one file, with a function `fit(verdicts, n, parameters, go_on) -> Fit`, and one line
here. Reading the registry is light: an estimator's code is imported when it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from judgeq.text import LEFT_OUT

if TYPE_CHECKING:
    from judgeq.types import Floats, Verdicts

LIMITS = (0.25, 8.0)
"""The least and the largest σ that is chosen."""
UNKNOWN = 2.0
"""σ where none is given and it isn't chosen: by `bt`, since implied comparisons are no probability of a
list. Before items are in two rankings on average σ is averaged over what it may be, about this."""
Basis = Literal["comparisons", "scores", "both"]
"""What was judged: items against one another, each alone, or both."""
GoOn = Callable[[], None]
"""Called in each step of a fit; what it raises ends the fit."""


def always() -> None:
    """A fit that is never given up."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What can be set about estimators; each uses those that it names. `sigma` is that of the prior
    of θ; None: chosen from the judgments by `pl` and `hybrid`, UNKNOWN by `bt`. `position`: the effect
    of the place presented is estimated jointly with θ, which is then without it
    (`Estimator.likelihood`); None: where it is significant."""

    sigma: float | None = None
    position: bool | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """What an estimator makes of verdicts: a score of each item, `theta`.

    An estimator with errors gives a `posterior`, a `posterior.Posterior`, whose means are the scores.
    An estimator without errors gives the scores as `values`, shape (n,). `chosen` where
    σ was chosen by the judgments, from within LIMITS. `position`: the effect of the place is taken out
    of θ; its columns are the posterior's last covariates. `reliability` is that of direct scores, by
    which it was found how much counts what comparisons alone say (`share`); None where that is assumed.
    `effect` is that of the place, where it was looked for: a `position_bias.Effect`.
    `link` is how items placed onto settled ones are tied to them, a `placing.Link`."""

    values: Floats | None = field(default=None, metadata=LEFT_OUT)
    posterior: Any | None = field(default=None, metadata=LEFT_OUT)
    chosen: bool = False
    position: bool = False
    reliability: float | None = field(default=None, metadata=LEFT_OUT)
    effect: Any | None = field(default=None, metadata=LEFT_OUT)
    link: Any | None = field(default=None, metadata=LEFT_OUT)
    JSON_KEYS: ClassVar = {
        "sigma": "sigma",
        "sigma_chosen": "chosen",
        "sigma_at_limit": "at_limit",
        "sigma_averaged": "averaged",
        "dispersion": "dispersion",
        "position_taken_out": "position",
        "share": "share",
        "share_by_reliability": "reliability",
    }

    @property
    def theta(self) -> Floats:
        """Return the score of each item, shape (n,): the posterior's mean, not its maximum."""
        if self.values is not None:
            return self.values
        if self.posterior is None:
            raise ValueError("a fit has values or a posterior")
        mean: Floats = self.posterior.mean
        return mean

    @property
    def maximum(self) -> Floats:
        """Return θ at the posterior's maximum, shape (n,), or the `values`: near the scores, without the
        inverse of a matrix that their means take."""
        if self.posterior is None:
            return self.theta
        maximum: Floats = self.posterior.theta
        return maximum

    @property
    def averaged(self) -> bool:
        """Whether nothing tells σ, and scores and errors are averaged over what it may be."""
        return hasattr(self.posterior, "by_sigma")

    @property
    def at_limit(self) -> bool:
        """Whether the σ that was chosen is the least or the largest that is tried."""
        return self.chosen and self.sigma in LIMITS

    @property
    def sigma(self) -> float | None:
        """σ of the prior, where there is one."""
        return None if self.posterior is None else self.posterior.sigma

    @property
    def share(self) -> float | None:
        """κ of `hybrid`: how much counts what comparisons alone say; None of other estimators."""
        return None if self.posterior is None else self.posterior.share

    @property
    def dispersion(self) -> float | None:
        """φ, where there are errors."""
        return None if self.posterior is None else self.posterior.dispersion


@dataclass(frozen=True, slots=True)
class Estimator:
    """One way to rate. `column` is the name of its ratings in scores.csv and wherever they are
    evaluated; those above `threshold` are labelled positive. `code` is its function, as
    "module:function" of this package. `about` is which of those with its label it is. `choice`:
    `--rating` may name it. `likelihood`: it has one, so that its fits have errors, and it can take the
    effect of the place presented out.
    """

    name: str
    label: str
    column: str
    threshold: float
    code: str
    about: str = ""
    choice: bool = False
    likelihood: bool = False

    def fit(self, verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
        """Rate n items. What `go_on` raises ends the fit; raises NotConvergedError."""
        module, function = self.code.split(":")
        rate: Callable[..., Fit] = getattr(import_module(f"{__name__}.{module}"), function)
        return with_position(
            lambda parameters: rate(verdicts, n, parameters, go_on), verdicts, parameters, go_on
        )

    def described(self, fit: Fit | None = None) -> str:
        """What it is, and by which σ a fit of it was made."""
        about = self.about + (", without the effect of the place" if fit and fit.position else "")
        if fit is not None and fit.sigma is not None:
            if fit.averaged:
                about += f", averaged over what σ may be, about {fit.sigma:.3g}"
            else:
                about += f" with σ = {fit.sigma:.3g}" + (", chosen" if fit.chosen else "")
        return f"{self.label} ({self.name}, {about})" if about else self.label


def with_position(
    rate: Callable[[Parameters], Fit], verdicts: Verdicts, parameters: Parameters, go_on: GoOn
) -> Fit:
    """What `rate` makes of parameters; where they leave it open, with the effect of the place taken out
    if it is significant."""
    plain = rate(replace(parameters, position=bool(parameters.position)))
    if parameters.position is not None or plain.posterior is None:
        return plain
    place = import_module(f"{__name__}.position_bias")
    effect = place.effect(plain.posterior, verdicts, joint=False, go_on=go_on)
    if effect is not None and effect.significant:
        return rate(replace(parameters, position=True))
    return replace(plain, effect=effect)


# fmt: off
ESTIMATORS: Mapping[str, Estimator] = {estimator.name: estimator for estimator in (
    Estimator("elo", "Elo", "elo", 1500.0, "elo:fit"),
    Estimator("pl", "Plackett-Luce", "pl", 0.0, "plackett_luce:fit",
              "posterior means by whole lists", True, True),
    Estimator("bt", "Bradley-Terry", "bt", 0.0, "bradley_terry:fit", "posterior means", True, True),
    Estimator("bt-mm", "Bradley-Terry", "bt", 0.0, "bradley_terry:fit_paper", "the paper's", True),
    Estimator("direct", "direct scores, 0 to 1, of each item judged alone", "direct", 0.5, "direct:fit"),
    Estimator("hybrid", "direct scores and comparisons together", "hybrid", 0.0, "direct:fit_hybrid",
              "posterior means", likelihood=True),
)}
# fmt: on
CHOICES = tuple(name for name, estimator in ESTIMATORS.items() if estimator.choice)
"""The estimators that `--rating` can name: all are made of comparisons, and the first is the default."""
THRESHOLDS: Mapping[str, float] = {one.column: one.threshold for one in ESTIMATORS.values()}
"""Over which rating an item is labelled positive, by the columns of scores.csv."""


def of_run(choice: str, basis: Basis) -> list[Estimator]:
    """The estimators of a run whose `--rating` of comparisons is `choice`; the last one is its main
    rating."""
    names = {
        "comparisons": ("elo", choice),
        "scores": ("direct",),
        "both": ("direct", "elo", choice, "hybrid"),
    }
    return [ESTIMATORS[name] for name in names[basis]]
