"""The people who judge a run: how each of them does, how well they agree with one another, and whether a
model agrees with them as well as one more person would.

That is by couples of answers: how often two judges order the same items alike, question by question (a
question is a set of items). The share of a question is the mean over all couples of answers to it. So a
model as good as one more person has the share of two people on the same questions, however many people
answered each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from statistics import median
from typing import NamedTuple

import numpy as np

from judgeq import seeds
from judgeq.engine import results, rounds
from judgeq.engine.results import Result
from judgeq.errors import NotConvergedError, NoVerdictsError, RunError
from judgeq.evaluation.agreement import alpha, judges_of, sets
from judgeq.evaluation.metrics import Measured, bootstrap
from judgeq.person import Check, PersonState, Said
from judgeq.rating import comparisons, misfit
from judgeq.rating.correlation import Measure
from judgeq.rating.position_bias import wilson
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


@dataclass(frozen=True, slots=True)
class Agreement:
    """The share of pairs of items ordered alike in `questions` that both answered; None without any."""

    share: float | None = None
    questions: int = 0


class Couples(NamedTuple):
    """Each two answers of different judges to one question, at least one of them a person's: arrays of
    shape (m,). `one` and `other` are the judges' numbers; of the `pairs` of items whose order both know
    they order `alike` many the same way (a tie of one alone counts ½)."""

    question: Offsets
    one: Offsets
    other: Offsets
    alike: Floats
    pairs: Floats

    def between(self, these: Bools, those: Bools) -> Couples:
        """The couples of one of `these` judges and one of `those`, both of shape (judges,)."""
        one, other = self.one, self.other
        chosen = (these[one] & those[other]) | (those[one] & these[other])
        return Couples._make(column[chosen] for column in self)

    @property
    def questions(self) -> Offsets:
        """The numbers of their questions."""
        return np.unique(self.question)

    @property
    def agreement(self) -> Agreement:
        """How well the two of each couple agree."""
        return Agreement(self.share, len(self.questions))

    @property
    def share(self) -> float | None:
        """The share of the pairs of items ordered alike; None without any."""
        pairs = float(self.pairs.sum())
        return float(self.alike.sum()) / pairs if pairs else None

    def measure(self, questions: Offsets) -> Measure:
        """The share, for any weighting of these questions: each has the mean over its couples."""
        chosen = np.isin(self.question, questions)
        at, n = np.searchsorted(questions, self.question[chosen]), len(questions)
        counts = np.maximum(np.bincount(at, minlength=n), 1)
        alike, pairs = (
            np.bincount(at, column[chosen], n) / counts for column in (self.alike, self.pairs)
        )

        def shares(weights: Floats) -> Floats:
            total = weights @ pairs
            none = np.full(len(total), np.nan)
            share: Floats = np.divide(weights @ alike, total, out=none, where=total > 0)
            return share

        return shares


def couples(verdicts: Verdicts, people: Bools) -> Couples:
    """All couples in the verdicts; `people`, shape (judges,), tells which judges are people. Items
    judged alone have no order, and are in none."""
    judges, question = judges_of(verdicts), sets(verdicts)
    asked = np.isin(question, question[people[judges]]) & (np.diff(verdicts.offsets) > 1)
    place = comparisons.tie_groups(verdicts)
    answers: dict[int, list[tuple[int, Floats]]] = defaultdict(list)
    found: list[tuple[float, ...]] = []
    for at in np.flatnonzero(asked).tolist():
        slots = slice(verdicts.offsets[at], verdicts.offsets[at + 1])
        judge, mine = int(judges[at]), signs(place[slots][np.argsort(verdicts.items[slots])])
        if verdicts.partial is not None and verdicts.partial[at]:
            mine[mine == 0] = np.nan
        for other, theirs in answers[int(question[at])]:
            if other != judge and (people[other] or people[judge]):
                alike = ordered_alike(mine, theirs)
                pairs = (~np.isnan(alike)).sum()
                found.append((question[at], other, judge, np.nansum(alike), pairs))
        answers[int(question[at])].append((judge, mine))
    table = np.array(found, dtype=np.float64).reshape(-1, 5).T
    return Couples(*table[:3].astype(np.int64), *table[3:])


def signs(places: Offsets) -> Floats:
    """How each two of k items are ordered by their `places`: -1, 0 (tied) or 1, shape (k(k−1)/2,)."""
    low, high = np.triu_indices(len(places), 1)
    ordered: Floats = np.sign(places[low] - places[high]).astype(np.float64)
    return ordered


def ordered_alike(first: Floats, second: Floats) -> Floats:
    """By the signs of two answers: 1 for each pair ordered alike, ½ for a tie in one of them, nan where
    one doesn't know the order."""
    alike: Floats = 1 - np.abs(first - second) / 2
    return alike


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

    @classmethod
    def of(cls, parts: Sequence[float]) -> Share:
        """The sum of the parts, out of as many as there are."""
        return cls(math.fsum(parts), len(parts))

    @property
    def measured(self) -> Measured:
        """The share with its 95 % interval."""
        if not self.total:
            return Measured(None, why="there are none")
        share = self.count / self.total
        low, high = wilson(np.array([share]), np.array([self.total]))
        return Measured(share, float(low[0]), float(high[0]))


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
        if said is None:
            return []
        verdicts = comparisons.joined((await results.replayed(run.info(), store)).asked)
        return list(_records(said, verdicts, info.judge_names))


def people_of(run: Result) -> list[PersonRecord]:
    """The people who judge a run, by number; none if no people do."""
    if run.said is None:
        return []
    verdicts = comparisons.joined(run.history.asked)
    records = list(_records(run.said, verdicts, run.judges))
    if run.history.alone:
        return records
    fit = misfit.fit_of_judges(verdicts, run.scores.main[1], len(run.judges))
    rows = np.stack([fit.infit, fit.low, fit.high], axis=1)[run.said.first :].tolist()
    return [
        replace(record, infit=Measured(*(None if math.isnan(x) else x for x in row)))
        for record, row in zip(records, rows, strict=True)
    ]


def _records(said: Said, verdicts: Verdicts, names: Sequence[str]) -> Iterator[PersonRecord]:
    """Without infit."""
    judges, answered = np.arange(len(names)), judges_of(verdicts)
    people = judges >= said.first
    both = couples(verdicts, people)
    models = [judge for judge in range(said.first) if (answered == judge).any()]
    for person in said.people:
        judge = said.first + person.number
        own, me = verdicts.where(answered == judge), judges == judge
        checks = [check for check in said.checks if check.person == person.number and check.verdict]
        seconds = said.seconds.get(person.number, ())

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
            repeats=_repeats(checks, own),
            known=Share.of(
                [
                    _same(Verdict(check.known), check.verdict)
                    for check in checks
                    if check.known and check.verdict is not None
                ]
            ),
        )


def _first(own: Verdicts) -> tuple[float, ...]:
    """The share of answers that put the text of each slot first; a tie for it counts by parts."""
    own = own.where(np.diff(own.offsets) > 1)
    if not len(own):
        return ()
    starts, sizes = own.offsets[:-1], np.diff(own.offsets)
    place = comparisons.tie_groups(own)
    first = (place == np.repeat(place[starts], sizes)).astype(np.float64)
    first /= np.repeat(np.add.reduceat(first, starts), sizes)
    slots = comparisons.presented_at(own) - np.repeat(starts, sizes)
    return tuple((np.bincount(slots, first) / len(own)).tolist())


def _repeats(checks: Sequence[Check], own: Verdicts) -> Share:
    """How many repeated questions were answered as before."""
    rows = {int(match): at for at, match in enumerate(own.matches.tolist())}
    same = []
    for check in checks:
        at = rows.get(check.repeats) if check.repeats is not None else None
        if at is None or check.verdict is None:
            continue  # taken back since
        presented = own.presented[own.offsets[at] : own.offsets[at + 1]].tolist()
        if sorted(presented) != sorted(check.items):
            raise RunError(
                f"run.db is damaged: check {check.number} repeats a question about other items."
            )
        score = None if own.scores is None else float(own.scores[at])
        before = Verdict.of(comparisons.groups_of(own, at))._replace(score=score)
        same.append(_same(before, check.verdict))
    return Share.of(same)


def _same(one: Verdict, other: Verdict) -> float:
    """The share of the pairs of items that two verdicts order alike, a tie of one alone counting ½; of
    single texts whether the scores are alike."""
    if len(one.items) < 2:
        return float(abs((one.score or 0.0) - (other.score or 0.0)) <= STEP + 1e-9)
    places = [
        {item: at for at, group in enumerate(verdict.groups) for item in group}
        for verdict in (one, other)
    ]
    first, second = (signs(np.array([place[item] for item in one.items])) for place in places)
    return float(ordered_alike(first, second).mean())


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
    persons = np.flatnonzero(people & (counts > 0)).tolist()
    models = np.flatnonzero(~people & (counts > 0)).tolist()
    both = couples(verdicts, people)
    among = both.between(people, people)

    def alpha_of(judges: Sequence[int]) -> Measured:
        rng = seeds.rng(seed, "bootstrap", "agreement")
        return alpha(verdicts.where(np.isin(answered, judges)), times, rng)

    alone = ALONE if run.history.alone else None
    (agreement,) = shares_alike([among], alone or NOBODY, times, seed)
    held = []
    for model in models:
        own = both.between(people, judges == model)
        common = np.intersect1d(own.questions, among.questions)
        with_it, *others = shares_alike(
            [own, among] if len(common) else [own], alone or APART, times, seed
        )
        two, difference = others or 2 * [Measured(None, why=agreement.why or APART)]
        held.append(
            ModelAgreement(
                name=run.judges[model],
                verdicts=int(counts[model]),
                questions=len(common if len(common) else own.questions),
                agreement=with_it,
                people_agreement=two,
                difference=difference,
                krippendorff_alpha=alpha_of([*persons, model]),
            )
        )
    return Yardstick(
        n=len(persons),
        verdicts=int(counts[people].sum()),
        questions=len(among.questions),
        agreement=agreement,
        krippendorff_alpha=alpha_of(persons),
        models=held,
        people=people_of(run),
    )
