"""The people who judge a run, one by one: how much they did, how they fit, and whom they agree with."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import ClassVar

import numpy as np

from judgeq.engine import results
from judgeq.engine.results import Result
from judgeq.errors import NotConvergedError, NoVerdictsError, RunError
from judgeq.evaluation.alike import Couples, agreeing, couples, signs
from judgeq.evaluation.metrics import Measured
from judgeq.people import Check, PersonState, Said
from judgeq.rating import comparisons, misfit
from judgeq.rating.position_bias import wilson
from judgeq.runs import RunPlace
from judgeq.types import Bools, Verdict, Verdicts

STEP = 1 / 9
"""Scores of single texts that differ by no more are alike: the scale goes from 0 to 9."""


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
    answered = np.zeros(len(verdicts), np.int32) if verdicts.judges is None else verdicts.judges
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
            others=_agreement(both.between(me, people)),
            models={
                names[model]: _agreement(both.between(me, np.arange(len(names)) == model))
                for model in models
            },
            repeats=repeats,
            same_place=same_place,
            known=_known(checks),
        )


def _agreement(both: Couples) -> Agreement:
    return Agreement(both.share, both.questions)


def _first(own: Verdicts) -> tuple[float, ...]:
    """The share of answers that put the text of each slot first; a tie for it counts by parts."""
    own = own.where(np.diff(own.offsets) > 1)
    if not len(own):
        return ()
    sizes = np.diff(own.offsets)
    first = np.zeros(int(sizes.max()))
    begins = own.offsets[:-1]
    group = comparisons.tie_groups(own)
    best = group == np.repeat(group[begins], sizes)
    slot = comparisons.presented_at(own) - np.repeat(begins, sizes)
    parts = np.add.reduceat(best.astype(np.float64), begins)
    np.add.at(first, slot[best], (1 / np.repeat(parts, sizes))[best])
    return tuple((first / len(own)).tolist())


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


def _known(checks: Sequence[Check]) -> Share:
    """How many known answers were right."""
    shares = (
        Share(_alike(Verdict(check.known), check.verdict), 1)
        for check in checks
        if check.known and check.verdict is not None
    )
    return sum(shares, Share())


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
    first, second = (signs(np.array([place[item] for item in one.items])) for place in places)
    return float(agreeing(first, second).mean())
