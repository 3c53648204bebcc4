"""The people who judge a run: how each of them does, how well they agree with one another, and whether a
model agrees with them as well as one more person would.

That is by couples of answers: how often two judges order the same two items the same, question by
question. The share of two items in a question is the mean over all couples of answers to it. So a model
as good as one more person has the share of two people on the same questions, however many people
answered each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from statistics import median

import numpy as np

from judgeq import seeds
from judgeq.engine import results, rounds
from judgeq.engine.results import Result
from judgeq.errors import RunError
from judgeq.evaluation.agreement import Orders, Shared, alpha, codings, judges_of
from judgeq.evaluation.metrics import Measured, bootstrap
from judgeq.person import Check, PersonState, Said
from judgeq.rating import comparisons
from judgeq.rating.posterior import Z
from judgeq.run_places import RunPlace
from judgeq.types import Verdict, Verdicts

LEAST = 10
"""Questions below which a share has no interval: resamples of a few that agree mean nothing."""
STEP = 1 / 9
"""Scores of single texts that differ by no more are alike: the scale goes from 0 to 9."""
NOBODY = "no question was answered by two people: --each 2 asks two about each"
ALONE = "items judged alone are put in no order; α is of their scores"
APART = "it answered no question that people answered: --ensemble each asks all about the same"


@dataclass(frozen=True, slots=True)
class Share:
    """`count` of `total` questions; a list counts with its share of the pairs of items."""

    count: float = 0.0
    total: int = 0

    @property
    def measured(self) -> Measured:
        """The share with its 95 % interval."""
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
    both = Orders(codings(verdicts), len(judges))
    for person in said.people:
        me = judges == said.first + person.number
        own = verdicts.where(me[judges_of(verdicts)])
        shared = both.between(me, judges >= said.first)
        seconds = said.seconds.get(person.number, ())
        checks = [
            (check, check.verdict)
            for check in said.checks
            if check.person == person.number and check.verdict is not None
        ]
        known = [_same(Verdict(check.known), answer) for check, answer in checks if check.known]
        repeats = [*_repeats(checks, own)]
        there = shared.questions
        agreement = float((shared.alike[there] / shared.pairs[there]).sum())
        people.append(
            PersonRecord(
                number=person.number,
                name=person.name,
                state=person.state,
                quota=person.quota,
                done=len(own) + len(checks),
                skipped=said.skipped.get(person.number, 0),
                seconds=median(seconds) if seconds else None,
                first_by_slot=_first(own),
                agreement=Share(agreement, len(there)),
                repeats=Share(math.fsum(repeats), len(repeats)),
                known=Share(math.fsum(known), len(known)),
            )
        )
    return people


def _first(own: Verdicts) -> tuple[float, ...]:
    """The share of answers that put the text of each slot first; a tie for it counts by parts."""
    own = own.where(np.diff(own.offsets) > 1)
    sizes, begin = np.diff(own.offsets), own.offsets[:-1]
    group = comparisons.tie_groups(own)
    top = group == np.repeat(group[begin], sizes)
    tied = np.repeat(np.add.reduceat(top, begin), sizes) if len(own) else sizes
    slot = comparisons.presented_at(own) - np.repeat(begin, sizes)
    first = np.bincount(slot[top], 1 / tied[top], int(sizes.max(initial=0)))
    return tuple((first / max(len(own), 1)).tolist())


def _repeats(checks: Sequence[tuple[Check, Verdict]], own: Verdicts) -> Iterator[float]:
    """How far each repeated question was answered as before."""
    rows = {job: at for at, job in enumerate(own.matches.tolist())}
    for check, answer in checks:
        if check.repeats is None or check.repeats not in rows:
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
    verdicts, judges = comparisons.joined(run.history.asked), np.arange(len(run.judges))
    counts = np.bincount(judges_of(verdicts), minlength=len(judges))
    people, given = judges >= run.said.first, codings(verdicts)
    both, why = Orders(given, len(judges)), ALONE if given.alone else APART
    among, models = both.between(people, people), []
    (agreement,) = shares_alike([among], ALONE if given.alone else NOBODY, times, seed)
    for model in np.flatnonzero(~people & (counts > 0)).tolist():
        own = both.between(people, judges == model)
        common = np.intersect1d(own.questions, among.questions)
        sides = [own, among] if len(common) else [own]
        unknown = Measured(None, why=agreement.why or APART)
        found = [*shares_alike(sides, why, times, seed), unknown, unknown]
        questions = len(common if len(common) else own.questions)
        models.append(ModelAgreement(run.judges[model], int(counts[model]), questions, *found[:3]))
    rng = seeds.rng(seed, "bootstrap", "agreement")
    return Yardstick(
        n=int((people & (counts > 0)).sum()),
        verdicts=int(counts[people].sum()),
        questions=len(among.questions),
        agreement=agreement,
        krippendorff_alpha=alpha(given.where(people[given.judge]), times, rng)[0],
        models=models,
        people=records(run.said, verdicts),
    )


def shares_alike(sides: Sequence[Shared], why: str, times: int, seed: int) -> list[Measured]:
    """The share of pairs ordered alike of each side, on the questions that all sides have; of two sides
    also the first less the second. All on the same resamples of the questions; `why` there is none
    without a question."""
    questions = reduce(np.intersect1d, [side.questions for side in sides])
    if not (n := len(questions)):
        return [Measured(None, why=why)] * len(sides)
    measures = {str(at): side.measure(questions) for at, side in enumerate(sides)}
    if len(sides) == 2:
        first, second = measures.values()
        measures["difference"] = lambda weights: first(weights) - second(weights)
    rng = seeds.rng(seed, "bootstrap", "alike")
    return [*bootstrap(measures, n, times if n >= LEAST else 0, rng).values()]
