"""The people who judge a run, one by one: how much they did, how they fit, and whom they agree with:
how often a person and another judge order the same items alike, question by question."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import ClassVar, NamedTuple

import numpy as np

from judgeq.engine import results
from judgeq.engine.results import Result
from judgeq.errors import NotConvergedError, NoVerdictsError, RunError
from judgeq.evaluation.agreement import judges_of, sets
from judgeq.evaluation.metrics import Measured
from judgeq.person import Check, PersonState, Said
from judgeq.rating import comparisons, misfit
from judgeq.rating.position_bias import wilson
from judgeq.runs import RunPlace
from judgeq.types import Bools, Floats, Offsets, Verdict, Verdicts

STEP = 1 / 9
"""Scores of single texts that differ by no more are alike: the scale goes from 0 to 9."""


class Couples(NamedTuple):
    """Each two answers of different judges to one question (a set of items), one of them a person's at
    least: arrays of shape (m,). `one` and `other` are the judges' numbers; of the `pairs` of items whose
    order both know they order as many `alike` (where one has a tie and the other not, ½)."""

    question: Offsets
    one: Offsets
    other: Offsets
    alike: Floats
    pairs: Floats

    def where(self, chosen: Bools) -> Couples:
        """Those alone for which `chosen`, shape (m,), is true."""
        return Couples._make(column[chosen] for column in self)

    def between(self, these: Bools, those: Bools) -> Couples:
        """Those of one of `these` judges and one of `those`, both of shape (judges,)."""
        one, other = self.one, self.other
        return self.where((these[one] & those[other]) | (those[one] & these[other]))

    @property
    def questions(self) -> int:
        """About how many questions they are."""
        return len(np.unique(self.question))

    @property
    def share(self) -> float | None:
        """The share of the pairs of items that they order alike; None without any."""
        pairs = float(self.pairs.sum())
        return float(self.alike.sum()) / pairs if pairs else None


def couples(verdicts: Verdicts, people: Bools) -> Couples:
    """All couples in the verdicts; `people`, shape (judges,), says which judges are people. Without
    items judged alone, which have no order."""
    judges, question = judges_of(verdicts), sets(verdicts)
    asked = np.isin(question, question[people[judges]]) & (np.diff(verdicts.offsets) > 1)
    place = comparisons.tie_groups(verdicts)
    answers: dict[int, list[tuple[int, Offsets, Bools]]] = defaultdict(list)
    found: list[tuple[float, ...]] = []
    for at in np.flatnonzero(asked).tolist():
        slots = slice(verdicts.offsets[at], verdicts.offsets[at + 1])
        judge, mine = int(judges[at]), _signs(place[slots][np.argsort(verdicts.items[slots])])
        known = mine != 0 if verdicts.partial is not None and verdicts.partial[at] else mine == mine
        for other, theirs, also in answers[int(question[at])]:
            if other != judge and (people[other] or people[judge]):
                alike, both = _agreeing(mine, theirs), known & also
                found.append((question[at], other, judge, alike[both].sum(), both.sum()))
        answers[int(question[at])].append((judge, mine, known))
    table = np.array(found, dtype=np.float64).reshape(-1, 5).T
    return Couples(*table[:3].astype(np.int64), *table[3:])


def _signs(places: Offsets) -> Offsets:
    """How each two of k items are ordered by their `places`: -1, 0 (tied) or 1, shape (k(k−1)/2,)."""
    low, high = np.triu_indices(len(places), 1)
    ordered: Offsets = np.sign(places[low] - places[high])
    return ordered


def _agreeing(first: Offsets, second: Offsets) -> Floats:
    """By how much two agree on each pair of items, of which they have the signs: 1 where they order it
    alike, ½ where one of them alone has a tie."""
    same: Floats = 1 - np.abs(first - second) / 2
    return same


@dataclass(frozen=True, slots=True)
class Share:
    """`count` of `of` questions; of lists each counts with its share of the pairs of items."""

    count: float = 0.0
    of: int = 0
    JSON_KEYS: ClassVar = {"total": "of"}

    @property
    def measured(self) -> Measured:
        """The share with its 95 % interval."""
        if not self.of:
            return Measured(None, why="there are none")
        share = self.count / self.of
        low, high = wilson(np.array([share]), np.array([self.of]))
        return Measured(share, float(low[0]), float(high[0]))

    def __add__(self, other: Share) -> Share:
        return Share(self.count + other.count, self.of + other.of)


@dataclass(frozen=True, slots=True)
class Agreement:
    """The share of pairs of items ordered alike in `questions` that both answered; None without any."""

    share: float | None = None
    questions: int = 0

    @classmethod
    def of(cls, couples: Couples) -> Agreement:
        """That of these couples."""
        return cls(couples.share, couples.questions)


@dataclass(frozen=True, slots=True)
class PersonRecord:
    """One of the people who judge a run, numbered from 0.

    `done` are their answers that stand, also to checks (their `quota` counts these), of which one took
    `seconds` (the median; None without answers). `first` is the share of their answers that put the text
    of each slot first, as many as there are slots (none of single texts). `infit` is that of misfit.py
    with the range in which it is expected; None where nothing is rated. They agree with the `others`
    (all other people), and with each of the `models` by name. Of `repeats`, asked again turned round,
    they answered so many alike, and in `same_place` put the same slot first; of `known` answers so
    many were right.
    """

    number: int
    name: str
    state: PersonState
    quota: int | None
    done: int
    skipped: int
    seconds: float | None
    first: tuple[float, ...] = ()
    infit: Measured = Measured(None)  # noqa: RUF009  (immutable)
    others: Agreement = Agreement()
    models: Mapping[str, Agreement] = field(default_factory=dict)
    repeats: Share = Share()
    same_place: Share = Share()
    known: Share = Share()
    JSON_KEYS: ClassVar = {
        "first_by_slot": "first",
        "agreement": "others",
        "agreement_with_models": "models",
    }


async def read(run: RunPlace) -> list[PersonRecord]:
    """The people of a run as its ledger knows them, also before anything was answered and while another
    process goes on with it; none where no people judge. Raises RunError."""
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
    """The people who judge a run, by number; none where no people do."""
    if run.said is None:
        return []
    verdicts = comparisons.joined(run.history.asked)
    records = list(_records(run.said, verdicts, run.judges))
    if run.history.alone:
        return records
    fit = misfit.fit_of_judges(verdicts, run.scores.main[1], len(run.judges))
    rows = [*zip(fit.infit.tolist(), fit.low.tolist(), fit.high.tolist(), strict=True)]
    return [
        replace(record, infit=Measured(*(None if math.isnan(x) else x for x in row)))
        for record, row in zip(records, rows[run.said.first :], strict=True)
    ]


def are_people(said: Said, judges: int) -> Bools:
    """Which of the judges are people, shape (judges,)."""
    return np.arange(judges) >= said.first


def _records(said: Said, verdicts: Verdicts, names: Sequence[str]) -> Iterator[PersonRecord]:
    """Without infit."""
    people = are_people(said, len(names))
    both = couples(verdicts, people)
    answered = judges_of(verdicts)
    models = np.bincount(answered, minlength=len(names))[: said.first].nonzero()[0].tolist()
    for person in said.people:
        judge = said.first + person.number
        me = np.arange(len(names)) == judge
        own = verdicts.where(answered == judge)
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
            first=_first(own),
            others=Agreement.of(both.between(me, people)),
            models={
                names[model]: Agreement.of(both.between(me, np.arange(len(names)) == model))
                for model in models
            },
            repeats=repeats,
            same_place=same_place,
            known=sum(
                (
                    Share(_alike(Verdict(check.known), check.verdict), 1)
                    for check in checks
                    if check.known and check.verdict is not None
                ),
                Share(),
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
    """How many repeated questions were answered as before, and in how many the same place came first."""
    rows = {int(match): at for at, match in enumerate(own.matches.tolist())}
    same, place = Share(), Share()
    for check in checks:
        at = rows.get(check.repeats) if check.repeats is not None else None
        if at is None or check.verdict is None:
            continue  # taken back since
        score = None if own.scores is None else float(own.scores[at])
        presented = own.presented[own.offsets[at] : own.offsets[at + 1]].tolist()
        if sorted(presented) != sorted(check.items):
            raise RunError(
                f"the run's ledger is damaged: check {check.number} repeats a question about other "
                "items."
            )
        before = Verdict.of(comparisons.groups_of(own, at))
        same += Share(_alike(before._replace(score=score), check.verdict), 1)
        if len(check.items) > 1 and len(before.groups[0]) == len(check.verdict.groups[0]) == 1:
            was, now = presented.index(before.items[0]), check.items.index(check.verdict.items[0])
            place += Share(float(was == now), 1)
    return same, place


def _alike(one: Verdict, other: Verdict) -> float:
    """The share of the pairs of items that two verdicts order alike, a tie of one alone being half of
    it; of single texts whether the scores are alike."""
    if len(one.items) < 2:
        apart = abs((one.score or 0.0) - (other.score or 0.0))
        return float(apart <= STEP + 1e-9)
    places = [
        {item: at for at, group in enumerate(verdict.groups) for item in group}
        for verdict in (one, other)
    ]
    first, second = (_signs(np.array([place[item] for item in one.items])) for place in places)
    return float(_agreeing(first, second).mean())
