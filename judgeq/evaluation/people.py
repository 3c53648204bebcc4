"""The people who judge a run: how each of them does, how well they agree with one another, and whether a
model agrees with them as well as one more person would.

That is by couples of answers: how often two judges order the same two items alike, question by question
(a question is a set of items). The share of two items in a question is the mean over all couples of
answers to it. So a model as good as one more person has the share of two people on the same questions,
however many people answered each.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import combinations
from statistics import median
from typing import NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.engine import results, rounds
from judgeq.engine.results import Result
from judgeq.errors import NotConvergedError, NoVerdictsError, RunError
from judgeq.evaluation.agreement import alpha, implied, judges_of, sets
from judgeq.evaluation.metrics import Measured, bootstrap
from judgeq.person import Check, PersonState, Said
from judgeq.rating import comparisons, misfit
from judgeq.rating.correlation import Measure
from judgeq.rating.posterior import Z
from judgeq.run_places import RunPlace
from judgeq.types import Bools, Floats, Offsets, Verdict, Verdicts

LEAST = 10
"""Questions below which a share has no interval: resamples of a few that agree mean nothing."""
STEP = 1 / 9
"""Scores of single texts that differ by no more are alike: the scale goes from 0 to 9."""
NOBODY = "no question was answered by two people: --each 2 asks two about each"
ALONE = "items judged alone are put in no order; α is of their scores"
APART = "it answered no question that people answered: --ensemble each asks all about the same"


# Couples of answers

ALIKE = np.array([[1, 0.5, 0], [0.5, 1, 0.5], [0, 0.5, 1]])
"""How far two answers, each that the one item is lower, tied or higher, order the two alike."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The share of pairs of items ordered alike in `questions` that both answered; None without any."""

    share: float | None = None
    questions: int = 0


class Couples(NamedTuple):
    """The couples of answers of two judges, or two groups of them, about each two items of a question:
    how many there are (`pairs`), and how many of them order the two `alike` (a tie of one alone counts
    ½); with the number of the `question`, all of shape (units,)."""

    question: Offsets
    alike: Floats
    pairs: Floats

    @property
    def questions(self) -> Offsets:
        """The numbers of the questions that they are about."""
        return np.unique(self.question[self.pairs > 0])

    @property
    def agreement(self) -> Agreement:
        """How well the two of each couple agree."""
        questions, pairs = len(self.questions), self.pairs.sum()
        return Agreement(float(self.alike.sum() / pairs) if questions else None, questions)

    def measure(self, questions: Offsets) -> Measure:
        """The share, for any weighting of these questions."""
        kept = np.isin(self.question, questions) & (self.pairs > 0)
        at = np.searchsorted(questions, self.question[kept])
        alike, n = np.bincount(at, (self.alike / self.pairs.clip(1))[kept]), np.bincount(at)

        def shares(weights: Floats) -> Floats:
            share: Floats = weights @ alike / (weights @ n)
            return share

        return shares


class Orders:
    """How judges ordered each two items of the questions that people answered. Items judged alone have
    no order, and are in none."""

    def __init__(self, verdicts: Verdicts, people: Bools) -> None:
        question, judges = sets(verdicts), judges_of(verdicts)
        asked = np.isin(question, question[people[judges]]) & (np.diff(verdicts.offsets) > 1)
        pairs, at, value = implied(verdicts.where(asked))
        units = np.stack([question[asked][at], pairs])
        units, unit = np.unique(units, axis=1, return_inverse=True)
        self.question, self._judge = units[0], judges[asked][at]
        self._cell = unit.reshape(-1) * 3 + (2 * value).astype(np.int64)

    def between(self, these: Bools, those: Bools) -> Couples:
        """The couples of an answer of `these` judges and one of `those`, both of shape (judges,); of two
        judges who are both of both each couple twice."""
        alike, pairs = self._couples(these, those)
        for judge in np.flatnonzero(these & those):
            alone = np.arange(len(these)) == judge
            own_alike, own_pairs = self._couples(alone, alone)
            alike, pairs = alike - own_alike, pairs - own_pairs
        return Couples(self.question, alike, pairs)

    def _couples(self, these: Bools, those: Bools) -> tuple[Floats, Floats]:
        one, other = (
            np.bincount(self._cell[judges[self._judge]], minlength=3 * len(self.question))
            .reshape(-1, 3)
            .astype(np.float64)
            for judges in (these, those)
        )
        return (one @ ALIKE * other).sum(axis=1), one.sum(axis=1) * other.sum(axis=1)


def shares_alike(sides: Sequence[Couples], why: str, times: int, seed: int) -> list[Measured]:
    """The share of pairs ordered alike by each side's couples, on the questions that all sides have; of
    two sides also the first less the second. All on the same resamples of the questions; `why` there is
    none without a question."""
    questions = reduce(np.intersect1d, [side.questions for side in sides])
    if not (n := len(questions)):
        return [Measured(None, why=why)] * len(sides)
    measures = {str(at): side.measure(questions) for at, side in enumerate(sides)}
    if len(sides) == 2:
        first, second = measures.values()
        measures["difference"] = lambda weights: first(weights) - second(weights)
    rng = seeds.rng(seed, "bootstrap", "alike")
    return [*bootstrap(measures, n, times if n >= LEAST else 0, rng).values()]


# Each person


@dataclass(frozen=True, slots=True)
class Share:
    """`count` of `total` questions; a list counts with its share of the pairs of items."""

    count: float = 0.0
    total: int = 0

    @property
    def measured(self) -> Measured:
        """The share with its 95 % interval (Wilson 1927)."""
        if not self.total:
            return Measured(None, why="there are none")
        share, n = self.count / self.total, self.total
        reach = Z * math.sqrt(share * (1 - share) / n + (Z / n / 2) ** 2)
        low, high = ((share + Z * Z / n / 2 + end) / (1 + Z * Z / n) for end in (-reach, reach))
        return Measured(share, max(low, 0.0), min(high, 1.0))


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
    first_by_slot: tuple[float, ...] = ()  # how often the text of each position came first
    infit: Measured = Measured(None)  # noqa: RUF009  # with the range expected
    agreement: Agreement = Agreement()  # with all other people
    agreement_with_models: Mapping[str, Agreement] = field(default_factory=dict)
    repeats: Share = Share()  # questions asked again turned round, answered alike
    known: Share = Share()  # questions of known answer, answered right


async def read(run: RunPlace) -> list[PersonRecord]:
    """The people of a run, also before anything was answered and while another process continues it;
    none if no people judge. Raises RunError."""
    try:
        return people_of(await results.read(run, run.info().settings))
    except (NoVerdictsError, NotConvergedError):
        pass
    async with rounds.reading(run) as store:
        info, said = await results.with_people(run.info(), store)
        verdicts = comparisons.joined((await results.replayed(run.info(), store)).asked)
        return [] if said is None else [*_records(said, verdicts, info.judge_names)]


def people_of(run: Result) -> list[PersonRecord]:
    """The people who judge a run, by number; none if no people do."""
    if run.said is None:
        return []
    verdicts = comparisons.joined(run.history.asked)
    records = [*_records(run.said, verdicts, run.judges)]
    if run.history.alone:
        return records
    fit = misfit.fit_of_judges(verdicts, run.scores.main[1], len(run.judges))
    infits = np.stack([fit.infit, fit.low, fit.high], axis=1)[run.said.first :].astype(object)
    infits[np.isnan(infits.astype(float))] = None
    return [
        replace(record, infit=Measured(*infit))
        for record, infit in zip(records, infits, strict=True)
    ]


def _records(said: Said, verdicts: Verdicts, names: Sequence[str]) -> Iterator[PersonRecord]:
    """Without infit."""
    judges, answered = np.arange(len(names)), judges_of(verdicts)
    people = judges >= said.first
    both = Orders(verdicts, people)
    models = [judge for judge in range(said.first) if (answered == judge).any()]
    for person in said.people:
        me = judges == said.first + person.number
        own = verdicts.where(me[answered])
        seconds = said.seconds.get(person.number, ())
        checks = [
            (check, check.verdict)
            for check in said.checks
            if check.person == person.number and check.verdict is not None
        ]
        known = [_same(Verdict(check.known), answer) for check, answer in checks if check.known]
        repeats = [*_repeats(checks, own)]
        yield PersonRecord(
            number=person.number,
            name=person.name,
            state=person.state,
            quota=person.quota,
            done=len(own) + len(checks),
            skipped=said.skipped.get(person.number, 0),
            seconds=median(seconds) if seconds else None,
            first_by_slot=_first(own),
            agreement=both.between(me, people).agreement,
            agreement_with_models={
                names[model]: both.between(me, judges == model).agreement for model in models
            },
            repeats=Share(math.fsum(repeats), len(repeats)),
            known=Share(math.fsum(known), len(known)),
        )


def _first(own: Verdicts) -> tuple[float, ...]:
    """The share of answers that put the text of each slot first; a tie for it counts by parts."""
    first, several = Counter[int](), np.flatnonzero(np.diff(own.offsets) > 1).tolist()
    for at in several:
        top = comparisons.groups_of(own, at)[0]
        presented = own.presented[own.offsets[at] : own.offsets[at + 1]].tolist()
        first.update({slot: 1 / len(top) for slot, row in enumerate(presented) if row in top})
    slots = int(np.diff(own.offsets).max(initial=0)) if several else 0
    return tuple(first[slot] / len(several) for slot in range(slots))


def _repeats(checks: Sequence[tuple[Check, Verdict]], own: Verdicts) -> Iterator[float]:
    """How far each repeated question was answered as before."""
    rows: Mapping[int | None, int] = {job: at for at, job in enumerate(own.matches.tolist())}
    for check, answer in checks:
        if check.repeats not in rows:
            continue  # it repeats none, or one whose answer was taken back since
        at = rows[check.repeats]
        slots = slice(own.offsets[at], own.offsets[at + 1])
        score = None if own.scores is None else float(own.scores[at])
        before = Verdict(tuple(own.items[slots].tolist()), tuple(own.tied[slots].tolist()), score)
        if sorted(before.items) != sorted(check.items):
            raise RunError(
                f"run.db is damaged: check {check.number} repeats a question about other items."
            )
        yield _same(before, answer)


def _same(one: Verdict, other: Verdict) -> float:
    """The share of the pairs of items that two verdicts order alike, a tie of one alone counting ½; of
    single texts whether the scores are alike."""
    if len(one.items) < 2:
        return float(abs((one.score or 0.0) - (other.score or 0.0)) <= STEP + 1e-9)
    first, second = (
        {item: place for place, group in enumerate(verdict.groups) for item in group}
        for verdict in (one, other)
    )
    apart = [
        abs(np.sign(first[a] - first[b]) - np.sign(second[a] - second[b])) / 2
        for a, b in combinations(one.items, 2)
    ]
    return float(1 - np.mean(apart))


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
    krippendorff_alpha: Measured  # of the people and it


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
    verdicts = comparisons.joined(run.history.asked)
    answered, judges = judges_of(verdicts), np.arange(len(run.judges))
    counts, people = np.bincount(answered, minlength=len(judges)), judges >= run.said.first
    both = Orders(verdicts, people)
    among = both.between(people, people)
    alone = ALONE if run.history.alone else None
    (agreement,) = shares_alike([among], alone or NOBODY, times, seed)

    def alpha_of(these: Bools) -> Measured:
        rng = seeds.rng(seed, "bootstrap", "agreement")
        return alpha(verdicts.where(these[answered]), times, rng)

    models = []
    for model in np.flatnonzero(~people & (counts > 0)).tolist():
        own = both.between(people, judges == model)
        common = np.intersect1d(own.questions, among.questions)
        sides = [own, among] if len(common) else [own]
        unknown = Measured(None, why=agreement.why or APART)
        found = [*shares_alike(sides, alone or APART, times, seed), unknown, unknown]
        models.append(
            ModelAgreement(
                name=run.judges[model],
                verdicts=int(counts[model]),
                questions=len(common if len(common) else own.questions),
                agreement=found[0],
                people_agreement=found[1],
                difference=found[2],
                krippendorff_alpha=alpha_of(people | (judges == model)),
            )
        )
    return Yardstick(
        n=int((people & (counts > 0)).sum()),
        verdicts=int(counts[people].sum()),
        questions=len(among.questions),
        agreement=agreement,
        krippendorff_alpha=alpha_of(people),
        models=models,
        people=people_of(run),
    )
