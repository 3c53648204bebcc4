"""The people who judge a run: how each of them does, how well they agree with one another, and whether a
model agrees with them as well as one more person would.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

import numpy as np

from judgeq.engine import results
from judgeq.engine.results import Result
from judgeq.errors import NotConvergedError, NoVerdictsError, RunError
from judgeq.evaluation.agreement import alpha_of, judges_of, kendall_by_pair, ratings_by
from judgeq.evaluation.couples import Agreement, couples, ordered_alike, shares_alike, signs
from judgeq.evaluation.metrics import Measured
from judgeq.person import Check, PersonState, Said
from judgeq.rating import Parameters, comparisons, misfit
from judgeq.rating.position_bias import wilson
from judgeq.runs import RunPlace
from judgeq.types import Verdict, Verdicts

STEP = 1 / 9
"""Scores of single texts that differ by no more are alike: the scale goes from 0 to 9."""
NOBODY = "no question was answered by two people: --each 2 asks two about each"
ALONE = "items judged alone are put in no order; α is of their scores"
APART = "it answered no question that people answered: --ensemble each asks all about the same"


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
    agreement: Agreement = Agreement()  # noqa: RUF009  # with all other people
    agreement_with_models: Mapping[str, Agreement] = field(default_factory=dict)
    repeats: Share = Share()  # questions asked again turned round, answered alike
    same_place: Share = Share()  # of these, the same position put first
    known: Share = Share()  # questions of known answer, answered right


async def read(run: RunPlace) -> list[PersonRecord]:
    """The people of a run, also before anything was answered and while another process continues it;
    none if no people judge. Raises RunError."""
    try:
        return people_of(await results.read(run, run.info().settings))
    except (NoVerdictsError, NotConvergedError):
        pass
    store = run.store(read_only=True)
    try:
        info = run.info()
        said = await results.said_by_people(info, store)
        if said is None:
            return []
        verdicts = comparisons.joined((await results.replayed(info, store)).asked)
        return list(_records(said, verdicts, (await results.with_people(info, store)).judge_names))
    finally:
        await store.close()


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
        repeats, same_place = _repeats(checks, own)

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
            repeats=repeats,
            same_place=same_place,
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
    first = [0.0] * int(np.diff(own.offsets).max(initial=0))
    for at, begin in enumerate(own.offsets[:-1].tolist()):
        presented = own.presented[begin : own.offsets[at + 1]].tolist()
        best, *_ = comparisons.groups_of(own, at)
        for item in best:
            first[presented.index(item)] += 1 / len(best) / len(own)
    return tuple(first)


def _repeats(checks: Sequence[Check], own: Verdicts) -> tuple[Share, Share]:
    """How many repeated questions were answered as before, and how often the same slot came first."""
    rows = {int(match): at for at, match in enumerate(own.matches.tolist())}
    same, place = [], []
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
        if len(check.items) > 1 and len(before.groups[0]) == len(check.verdict.groups[0]) == 1:
            was, now = presented.index(before.items[0]), check.items.index(check.verdict.items[0])
            place.append(float(was == now))
    return Share.of(same), Share.of(place)


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
    kendall_with_people: float | None  # τ-b of its rating with theirs
    kendall_with_all: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Yardstick:
    """How well a run's `n` people agree, on `questions` that two or more answered, and each model with
    them."""

    rating: str
    n: int
    verdicts: int
    questions: int
    agreement: Measured
    krippendorff_alpha: Measured
    kendall_with_all: float | None
    models: Sequence[ModelAgreement]
    krippendorff_alpha_of_models: Measured | None  # None of fewer than two
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

    def alpha(numbers: Sequence[int]) -> Measured:
        return alpha_of(verdicts.where(np.isin(answered, numbers)), times, seed)

    main, scores = run.scores.main
    parameters = Parameters(run.fit.sigma, run.parameters.position)
    ratings = [
        ratings_by(verdicts, group, len(scores), [run.main], parameters)[main]
        for group in (persons, *([model] for model in models))
    ]
    matrix = kendall_by_pair([*ratings, scores])
    tau = [[None if np.isnan(value) else float(value) for value in row] for row in matrix]
    alone = ALONE if run.history.alone else None
    (agreement,) = shares_alike([among], alone or NOBODY, times, seed)
    held = []
    for at, model in enumerate(models, start=1):
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
                krippendorff_alpha=alpha([*persons, model]),
                kendall_with_people=tau[0][at],
                kendall_with_all=tau[at][-1],
            )
        )
    return Yardstick(
        rating=main,
        n=len(persons),
        verdicts=int(counts[people].sum()),
        questions=len(among.questions),
        agreement=agreement,
        krippendorff_alpha=alpha(persons),
        kendall_with_all=tau[0][-1],
        models=held,
        krippendorff_alpha_of_models=alpha(models) if len(models) > 1 else None,
        people=people_of(run),
    )
