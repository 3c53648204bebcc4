"""The registry of estimators: from verdicts to one number an item.

A new estimator is one file, with a function `fit(verdicts, n, parameters, go_on) -> Fit`, and one line
here. Reading the registry is light: an estimator's code is imported when it fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from judgeq.types import Floats, Verdicts

GoOn = Callable[[], None]
"""Called in each step of a fit; what it raises ends the fit."""


def always() -> None:
    """A fit that is never given up."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What can be set about estimators; each uses those that it names. `sigma` is that of bt's prior."""

    sigma: float = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """What an estimator makes of verdicts: `theta`, a number an item, shape (n,)."""

    theta: Floats


@dataclass(frozen=True, slots=True)
class Estimator:
    """One way to rate. `column` is the name of its ratings in scores.csv and wherever they are
    evaluated; those above `threshold` are labelled positive. `code` is its function, as
    "module:function" of this package. `about` is which of those with its label it is. `choice`:
    `--rating` may name it. `uses` are its parameters by name, as they are written.
    """

    name: str
    label: str
    column: str
    threshold: float
    code: str
    about: str = ""
    choice: bool = False
    uses: Mapping[str, str] = field(default_factory=dict)

    def fit(self, verdicts: Verdicts, n: int, parameters: Parameters, go_on: GoOn = always) -> Fit:
        """Rate n items. What `go_on` raises ends the fit; raises NotConvergedError."""
        module, function = self.code.split(":")
        fitted: Fit = getattr(import_module(f"{__name__}.{module}"), function)(
            verdicts, n, parameters, go_on
        )
        return fitted

    def described(self, parameters: Parameters) -> str:
        """What it is, and by which parameters."""
        used = [f"{sign} = {getattr(parameters, name):g}" for name, sign in self.uses.items()]
        about = self.about + (f" with {', '.join(used)}" if used else "")
        return f"{self.label} ({self.name}, {about})" if about else self.label

    def as_json(self, parameters: Parameters) -> dict[str, str | float]:
        """Its name and parameters, for `--json`."""
        return {"name": self.name, **{name: getattr(parameters, name) for name in self.uses}}


# fmt: off
ESTIMATORS: Mapping[str, Estimator] = {estimator.name: estimator for estimator in (
    Estimator("elo", "Elo", "elo", 1500.0, "elo:fit"),
    Estimator("bt", "Bradley-Terry", "bt", 0.0, "bradley_terry:fit", "MAP", True, {"sigma": "σ"}),
    Estimator("bt-mm", "Bradley-Terry", "bt", 0.0, "bradley_terry:fit_paper", "the paper's", True),
    Estimator("direct", "direct scores, 0 to 1, of each item judged alone", "direct", 0.5, "direct:fit"),
)}
# fmt: on
CHOICES = tuple(name for name, estimator in ESTIMATORS.items() if estimator.choice)
"""The estimators that `--rating` can name: all are made of comparisons, and the first is the default."""
THRESHOLDS: Mapping[str, float] = {one.column: one.threshold for one in ESTIMATORS.values()}
"""Over which rating an item is labelled positive, by the columns of scores.csv."""


def of_run(choice: str, *, alone: bool) -> list[Estimator]:
    """The estimators of a run whose `--rating` is `choice`, or whose items were judged `alone`; the
    last one is its main rating."""
    return [ESTIMATORS[name] for name in (("direct",) if alone else ("elo", choice))]
