"""People among themselves as the yardstick of models: does a model agree with people as they do with one
another?

All shares are of pairs of items ordered alike, in questions that both answered. Within a question it is
the mean over all couples of answers, so that a model that is as good as one more person has the same
share as two people, on the same questions, however many people answered each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from judgeq import seeds
from judgeq.engine.results import Result
from judgeq.evaluation.agreement import alpha_of, judges_of, kendall_by_pair
from judgeq.evaluation.metrics import Measured, interval, resamples
from judgeq.evaluation.people import (
    Couples,
    PersonRecord,
    are_people,
    couples,
    people_of,
)
from judgeq.rating import Parameters, comparisons
from judgeq.types import Floats, Offsets, Verdicts

NOBODY = "no question was answered by two people: --each 2 asks two about each"
LEAST = 10
"""Questions below which a share has no interval: resamples of a few that agree say nothing."""
ALONE = "items judged alone are put in no order; α is of their scores"
APART = "it answered no question that people answered: --ensemble each asks all about the same"


@dataclass(frozen=True, slots=True)
class Held:
    """A model held against the people: on `questions` that it and people answered, two of these where
    there are such, its share with a person is `alike`, that of two `people`, and the one less the other
    is `difference`. `alpha` is Krippendorff's α of the people and it; `tau` Kendall's τ-b of its rating
    with the people's."""

    name: str
    verdicts: int
    questions: int
    alike: Measured
    people: Measured
    difference: Measured
    alpha: Measured
    tau: float | None
    tau_all: float | None
    JSON_KEYS: ClassVar = {
        "agreement": "alike",
        "people_agreement": "people",
        "krippendorff_alpha": "alpha",
        "kendall_with_people": "tau",
        "kendall_with_all": "tau_all",
    }


@dataclass(frozen=True, slots=True, eq=False)
class Yardstick:
    """The people of a run, `persons` of whom gave `verdicts`: the share `alike` of two people on
    `questions` that two or more answered, `alpha` among them, and `tau_all`, Kendall's τ-b of what they
    all say with the run's rating (`rating`). Then the models, with `alpha_models` among these (None:
    there are fewer than two), and every person."""

    rating: str
    persons: int
    verdicts: int
    questions: int
    alike: Measured
    alpha: Measured
    tau_all: float | None
    models: Sequence[Held]
    alpha_models: Measured | None
    each: Sequence[PersonRecord]
    JSON_KEYS: ClassVar = {
        "n": "persons",
        "agreement": "alike",
        "krippendorff_alpha": "alpha",
        "krippendorff_alpha_of_models": "alpha_models",
        "kendall_with_all": "tau_all",
        "people": "each",
    }


def of_run(run: Result, times: int, seed: int) -> Yardstick | None:
    """The people of a run and its models, with intervals from so many resamples of the questions; None
    where no people judge it."""
    if run.said is None:
        return None
    verdicts = comparisons.joined(run.history.asked)
    judges = judges_of(verdicts)
    people = are_people(run.said, len(run.judges))
    counts = np.bincount(judges, minlength=len(people))
    models = np.flatnonzero(~people & (counts > 0)).tolist()
    both = couples(verdicts, people)
    shares = _Shares(both.between(people, people), run.history.alone, times, seed)

    def alpha(numbers: Sequence[int]) -> Measured:
        return alpha_of(verdicts.where(np.isin(judges, numbers)), times, seed)

    persons = np.flatnonzero(people & (counts > 0)).tolist()
    ratings = [
        _rating(run, verdicts.where(np.isin(judges, of)))
        for of in (persons, *([model] for model in models))
    ]
    tau = kendall_by_pair([*ratings, run.scores.main[1]])
    held = []
    for at, model in enumerate(models, start=1):
        alone = np.arange(len(people)) == model
        questions, with_it, people_alike, difference = shares.against(both.between(people, alone))
        held.append(
            Held(
                name=run.judges[model],
                verdicts=int(counts[model]),
                questions=questions,
                alike=with_it,
                people=people_alike,
                difference=difference,
                alpha=alpha([*persons, model]),
                tau=_known(tau[0, at]),
                tau_all=_known(tau[at, -1]),
            )
        )
    return Yardstick(
        rating=run.main.column,
        persons=len(persons),
        verdicts=int(counts[people].sum()),
        questions=shares.questions,
        alike=shares.alike,
        alpha=alpha(persons),
        tau_all=_known(tau[0, -1]),
        models=held,
        alpha_models=alpha(models) if len(models) > 1 else None,
        each=people_of(run),
    )


def _rating(run: Result, own: Verdicts) -> Floats:
    """The run's main rating by some judges' answers alone, shape (n,); nan where they saw nothing."""
    n = len(run.scores.ids)
    parameters = Parameters(run.fit.sigma, run.parameters.position)
    theta = run.main.fit(own, n, parameters).theta
    return np.where(comparisons.matches_of(own, n) == 0, np.nan, theta)


def _known(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


class _Shares:
    """The shares of two people, and of models and people on the same questions."""

    def __init__(self, among: Couples, alone: bool, times: int, seed: int) -> None:
        self._among, self._times, self._seed = among, times, seed
        self._numbers = np.unique(among.question)
        self._alone = alone
        (self.alike,) = self._measured(NOBODY, [_by_question(among, self._numbers)])

    @property
    def questions(self) -> int:
        """How many two people or more answered."""
        return len(self._numbers)

    def against(self, model: Couples) -> tuple[int, Measured, Measured, Measured]:
        """About how many questions, the share of a model with a person, that of two people, and the one
        less the other: on questions that two people answered, where there are such."""
        numbers = np.unique(model.question)
        common = np.intersect1d(numbers, self._numbers)
        if not len(common):
            (alike,) = self._measured(APART, [_by_question(model, numbers)])
            none = Measured(None, why=self.alike.why or APART)
            return len(numbers), alike, none, none
        parts = [_by_question(one, common) for one in (model, self._among)]
        alike, people, difference = self._measured(APART, parts)
        return len(common), alike, people, difference

    def _measured(self, why: str, parts: Sequence[Floats]) -> list[Measured]:
        """Of each part, (alike, pairs) by question, the share; of two also the one less the other. All
        on the same resamples of the questions."""
        n = parts[0].shape[1]
        if not n:
            return [Measured(None, why=ALONE if self._alone else why)] * len(parts)
        drawn = [np.ones((1, n))]
        if n >= LEAST and self._times:
            drawn += resamples(n, self._times, seeds.rng(self._seed, "bootstrap", "alike"))
        shares = [np.concatenate([_share(weights, part) for weights in drawn]) for part in parts]
        if len(shares) == 2:
            shares.append(shares[0] - shares[1])
        return [Measured(float(share[0]), *interval(share[1:])) for share in shares]


def _share(weights: Floats, part: Floats) -> Floats:
    alike, pairs = weights @ part.T[:, 0], weights @ part.T[:, 1]
    share: Floats = np.divide(alike, pairs, out=np.full(len(alike), np.nan), where=pairs > 0)
    return share


def _by_question(both: Couples, numbers: Offsets) -> Floats:
    """How many pairs of items two answers to each of these questions order alike, and of how many: the
    means over the couples of answers, shape (2, questions)."""
    both = both.where(np.isin(both.question, numbers))
    at, n = np.searchsorted(numbers, both.question), len(numbers)
    counts = np.maximum(np.bincount(at, minlength=n), 1)
    return np.stack([np.bincount(at, part, n) / counts for part in (both.alike, both.pairs)])
