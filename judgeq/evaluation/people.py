"""The people who judge a run: how each of them does, how well they agree with one another, and whether a
model agrees with them as well as one more person would.

That is by couples of answers: how often two judges order the same two items the same, question by
question. The share of two items in a question is the mean over all couples of answers to it. So a model
as good as one more person has the share of two people on the same questions, however many people
answered each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import median

import numpy as np

from judgeq import seeds
from judgeq.engine import results, rounds
from judgeq.engine.results import Result
from judgeq.errors import RunError
from judgeq.evaluation.agreement import Shared, alpha, between, codings
from judgeq.evaluation.metrics import Measured, bootstrap
from judgeq.people.checks import first_counts
from judgeq.person import PersonState, Said
from judgeq.rating import comparisons
from judgeq.rating.correlation import Measure
from judgeq.run_places import RunPlace
from judgeq.text import LEFT_OUT
from judgeq.types import Offsets, Verdict, Verdicts

STEP = 1 / 9
"""Scores of single texts that differ by no more are alike: the scale goes from 0 to 9."""
APART = (
    "no two of them answered the same question (--each 2 and --ensemble each ask several), or it was "
    "about a single text"
)


@dataclass(frozen=True, slots=True)
class Share:
    """`count` of `total` questions; a list counts with its share of the pairs of items."""

    count: float = 0.0
    total: int = 0

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.count / self.total if self.total else None


@dataclass(frozen=True, slots=True)
class PersonRecord:
    """One of the people who judge a run, numbered from 0."""

    number: int
    name: str
    state: PersonState
    quota: int | None
    done: int  # answers that stand, with those to checks
    skipped: int
    seconds: float | None  # the median time of an answer
    first_by_slot: Sequence[float] = ()  # how often the text of each position came first
    first_counts: Sequence[int] = field(default=(), metadata=LEFT_OUT)  # the same as counts
    agreement: Share = Share()  # with all other people, in questions in common
    repeats: Share = Share()  # questions asked again turned round, answered alike
    known: Share = Share()  # questions of known answer, answered right


async def read(run: RunPlace) -> list[PersonRecord]:
    """The people of a run, by number, also before anything was answered and while another process
    continues it; none if no people judge. Raises RunError."""
    async with rounds.reading(run) as store:
        info, said = await results.with_people(run.info(), store)
        if said is None:
            return []
        history = await results.replayed(info, store)
    return records(said, comparisons.joined(history.asked))


def records(said: Said, verdicts: Verdicts) -> list[PersonRecord]:
    """The people who judge a run, by number, of whose verdicts they are."""
    judges, people = np.arange(said.first + len(said.people)), []
    given = codings(verdicts)
    first = first_counts(verdicts, len(judges))
    for person in said.people:
        me = judges == said.first + person.number
        own = verdicts.where(me[verdicts.judges])
        shared = between(given, me, judges >= said.first)
        seconds = said.seconds.get(person.number, ())
        before = dict(zip(own.matches.tolist(), own.each(), strict=True))
        answers = [
            (check, check.verdict)
            for check in said.checks
            if check.person == person.number and check.verdict is not None
        ]
        known = [_alike(answer, Verdict(one.known)) for one, answer in answers if one.known]
        repeats = [
            _alike(answer, before[one.repeats])
            for one, answer in answers
            if one.repeats in before  # else that answer was taken back since
        ]
        there = shared.pairs > 0
        agreement = float((shared.alike[there] / shared.pairs[there]).sum())
        people.append(
            PersonRecord(
                number=person.number,
                name=person.name,
                state=person.state,
                quota=person.quota,
                done=len(own) + len(answers),
                skipped=said.skipped.get(person.number, 0),
                seconds=median(seconds) if seconds else None,
                first_by_slot=shares(first[said.first + person.number]),
                first_counts=first[said.first + person.number].tolist(),
                agreement=Share(agreement, int(there.sum())),
                repeats=Share(sum(repeats), len(repeats)),
                known=Share(sum(known), len(known)),
            )
        )
    return people


def shares(first: Offsets) -> list[float]:
    """Return the share of answers that put the text of each position first; [] of no position."""
    found: list[float] = (first / max(1, int(first.sum()))).tolist()
    return found


def _alike(one: Verdict, other: Verdict) -> float:
    """The share of the pairs of items that two answers order alike, a tie of one alone counting ½; of
    single texts whether the scores are alike. Raises RunError for other items."""
    if {*one.items} != {*other.items}:
        raise RunError("run.db is damaged: a check repeats a question about other items.")
    if one.score is not None and other.score is not None:
        return float(abs(one.score - other.score) <= STEP + 1e-9)
    a, b = (
        {item: place for place, group in enumerate(answer.groups) for item in group}
        for answer in (one, other)
    )
    ways = [np.sign((a[x] - a[y], b[x] - b[y])) for x, y in combinations(a, 2)]
    return float(1 - np.mean(np.abs(np.diff(ways))) / 2)


# Models and people


@dataclass(frozen=True, slots=True)
class ModelAgreement:
    """How well a model agrees with the people, on `questions` that it and people answered (two of them,
    if there are such): its share with a person less that of two people is `difference`."""

    name: str
    verdicts: int
    questions: int
    agreement: Measured
    people_agreement: Measured
    difference: Measured


@dataclass(frozen=True, slots=True, eq=False)
class Yardstick:
    """How well a run's `n` people agree, on `questions` that two or more answered, and each model with
    them."""

    n: int
    verdicts: int
    questions: int
    agreement: Measured
    krippendorff_alpha: Measured
    models: Sequence[ModelAgreement]
    people: Sequence[PersonRecord]


def yardstick(run: Result, times: int, seed: int) -> Yardstick | None:
    """The agreement of a run's people and models, with intervals from `times` resamples of their
    questions; None if no people judge it."""
    if run.said is None:
        return None
    names = run.judges
    verdicts = comparisons.joined(run.history.asked)
    judges = np.arange(len(names))
    counts = np.bincount(verdicts.judges, minlength=len(judges))
    people, given = judges >= run.said.first, codings(verdicts)
    among, models = between(given, people, people), []
    for model in np.flatnonzero(~people & (counts > 0)).tolist():
        own = between(given, people, judges == model)
        questions, found = shares_alike(own, among, times, seed)
        models.append(ModelAgreement(names[model], int(counts[model]), questions, *found))
    questions, (agreement, _, _) = shares_alike(among, among, times, seed)
    rng = seeds.rng(seed, "bootstrap", "agreement")
    return Yardstick(
        n=int((people & (counts > 0)).sum()),
        verdicts=int(counts[people].sum()),
        questions=questions,
        agreement=agreement,
        krippendorff_alpha=alpha(codings(verdicts.where(people[verdicts.judges])), times, rng)[0],
        models=models,
        people=records(run.said, verdicts),
    )


def shares_alike(own: Shared, among: Shared, times: int, seed: int) -> tuple[int, list[Measured]]:
    """The number of questions that two sides have in common; the share of pairs ordered alike of each,
    and their difference, on the same resamples of these questions. Where they have none in common, the
    questions and the share are of the first alone."""
    common = np.flatnonzero((own.pairs > 0) & (among.pairs > 0))
    questions = common if len(common) else np.flatnonzero(own.pairs)

    def share(of: Shared) -> Measure:
        return lambda weights: weights @ of.alike[questions] / (weights @ of.pairs[questions])

    one, other = share(own), share(among)
    measures: dict[str, Measure] = {"own": one} if len(questions) else {}
    if len(common):
        measures |= {"among": other, "gap": lambda weights: one(weights) - other(weights)}
    found = bootstrap(measures, len(questions), times, seeds.rng(seed, "bootstrap", "alike"))
    sides = ("own", "among", "gap")
    return len(questions), [found.get(side, Measured(None, why=APART)) for side in sides]
