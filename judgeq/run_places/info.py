"""What a run is, and what it was made from: config.json of a folder, a row's text in a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from judgeq.config import Settings, as_flags, fingerprint, settle
from judgeq.datasets import FROM_PYTHON, STDIN, Dataset, dataset_names
from judgeq.errors import RunError
from judgeq.escaping import shell_command
from judgeq.rating import Parameters
from judgeq.rating.placing import Batch
from judgeq.settings.run import MARK_SIMULATED, SETTINGS
from judgeq.strategies import Strategy
from judgeq.strategies.placing import placing
from judgeq.strategies.strategy import Goal
from judgeq.text import listed

JUDGES_NAMED = 10
"""Of more judges than this only the first are named on screens."""

FEW = 15
"""Of fewer texts than this the intervals are wide."""
FEATURE = "WHAT TO COMPARE BY"
"""Stands in a command for the feature that its user has to name."""
MODELS = ("gpt-5-mini",)
"""Judges that a rehearsal's user may name."""
_EARLIEST, _LATEST = datetime(1971, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


class Ended(BaseModel):
    """That a run ended after a `round` because enough was known: by which goal, and what was known
    then."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    round: int
    goal: str
    rho: float
    top_share: float | None = None

    @property
    def sentence(self) -> str:
        """What was known, and by what that was enough."""
        parts = [f"reliability {self.rho:.3f}"]
        if self.top_share is not None:
            parts.append(f"{self.top_share:.0%} of the first items settled")
        return f"{', '.join(parts)} (--until {self.goal})"


class Settled(BaseModel):
    """Items that were judged in a `run` before, by these judges, in so many rounds with so many
    verdicts: how they are rated, and onto which of those before them they were placed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    judges: tuple[str, ...]
    items: int = Field(ge=1)
    rounds: int = Field(ge=1)
    verdicts: int = Field(ge=1)
    onto: tuple[int, ...] = ()
    sigma: float | None = Field(None, gt=0)
    position: bool | None = None

    @property
    def batch(self) -> Batch:
        """The same, as it is rated."""
        return Batch(self.items, self.rounds, self.onto, Parameters(self.sigma, self.position))


class RunInfo(BaseModel):
    """What the run is, and what it was made from; never a secret, never a text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    judgeq: str
    created: Annotated[AwareDatetime, Field(gt=_EARLIEST, lt=_LATEST)]
    fingerprint: str
    facts: dict[str, Any]
    settings: Settings
    dataset: str
    source: str
    items: int
    labels: str
    licence: str
    gold_kind: str | None
    gold_meaning: str
    strategy: str
    rounds: int
    imported: bool = False
    judges: tuple[str, ...] = ()  # where there are several, or an import names them
    ended: Ended | None = None  # by --until
    onto: tuple[Settled, ...] = ()  # those whose scale it is placed onto; its own items follow them
    anchors: tuple[int, ...] = ()  # rows of settled items that new ones meet
    # Jobs with a verdict that the written scores rest on; None: begun by a version that didn't say.
    scored_jobs: int | None = None
    # The round (negative) of the last `judgeq drift` whose answers were shown; None: as above.
    drift_shown: int | None = None

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        rests = all(
            not at or (part.onto and all(0 <= one < at for one in part.onto))
            for at, part in enumerate(self.onto)
        )
        settled = self.items - self.new_items
        among = all(0 <= row < settled for row in self.anchors)
        if self.onto and not (rests and among and self.new_items > 0):
            raise ValueError("settled items, and what is placed onto them, don't add up")
        return self

    @classmethod
    def begun(
        cls, settings: Settings, dataset: Dataset, facts: Mapping[str, Any], **more: Any
    ) -> RunInfo:
        """That of a run which begins now; `more` are the fields that these don't say."""
        return cls(
            judgeq=version("judgeq"),
            created=datetime.now(UTC),
            fingerprint=fingerprint(facts),
            facts=dict(facts),
            settings=settings.kept(),
            dataset=dataset.name,
            source=Path(dataset.source).name,
            items=len(dataset),
            labels=dataset.labels,
            licence=dataset.licence,
            gold_kind=dataset.gold_kind,
            gold_meaning=dataset.gold_meaning,
            scored_jobs=0,
            drift_shown=0,
            **more,
        )

    @property
    def mark(self) -> str:
        """What the title of all begins with that shows a rehearsal, or the user's own texts as the
        simulated judge ranked them by their labels; "" for a real run, and a known dataset."""
        own = self.settings.dataset not in dataset_names()
        return f"{MARK_SIMULATED}: " if self.simulated and own else self.settings.mark

    @property
    def simulated(self) -> bool:
        """Whether the simulated judge answered, which reads the gold labels."""
        return "simulated" in self.settings.judge and not self.imported

    def ended_after(self, rounds: int, goal: Goal | None = None) -> Ended | None:
        """How the run ended after this round because enough was known: by this goal, or (None) by its
        own of now. None if it didn't."""
        goal, ended = self.settings.goal if goal is None else goal, self.ended
        same = ended is not None and (ended.round, ended.goal) == (rounds, goal.name)
        return ended if same else None

    def most_rounds(self, planned: int, over: bool) -> int:
        """All rounds, at most, where so many are planned; of a run that ended early those that there
        were: by its goal, or (`over`) with too few items left."""
        return planned if over or self.ended_after(planned) else max(planned, self.rounds)

    def has_scores(self, done: int) -> bool:
        """Return whether scores were written of `done` jobs with a verdict.

        An imported run is rated when it is read; an older version's run is taken to have them.
        """
        return self.imported or self.scored_jobs in (None, done)

    @property
    def new_items(self) -> int:
        """Its own items: all that aren't settled."""
        return self.items - sum(settled.items for settled in self.onto)

    @property
    def verdicts_before(self) -> int:
        """The verdicts on settled items."""
        return sum(settled.verdicts for settled in self.onto)

    @property
    def rounds_before(self) -> int:
        """The rounds in which settled items were judged."""
        return sum(settled.rounds for settled in self.onto)

    def strategy_of(self, settings: Settings) -> Strategy | None:
        """The strategy by these settings of it; None of an imported run."""
        if self.imported:
            return None
        strategy = settings.make_strategy()
        if not self.onto:
            return strategy
        return placing(strategy, [one.batch for one in self.onto], self.anchors)

    @property
    def feature(self) -> str:
        """What its texts are compared by, in words; "" where that isn't known."""
        prompt = self.facts.get("prompt")
        feature = prompt.get("feature") if isinstance(prompt, dict) else None
        return feature if isinstance(feature, str) else ""

    @property
    def judge_names(self) -> Sequence[str]:
        """The judges' names by their numbers, as they are reported."""
        names = self.judges or (() if self.imported else self.settings.judges)
        return [name or "unnamed" for name in names] or ["recorded"]

    @property
    def judge(self) -> str:
        """The judges, for screens: of many judges their number and the first names."""
        names = self.judge_names
        if len(names) > JUDGES_NAMED:
            return f"{len(names):,} judges: {', '.join(names[:3])} …"
        if all(name.strip().isdecimal() for name in names):  # of an import
            return f"{'judges' if len(names) > 1 else 'judge'} {listed(names)}"
        return " + ".join(names)

    @property
    def cautions(self) -> list[str]:
        """What a reader of the scores must know, whatever was answered."""
        return [*self.first_cautions, *self.further_cautions]

    @property
    def first_cautions(self) -> list[str]:
        """That the answers are made up, or read from the labels of the user's own texts."""
        if self.settings.rehearsal:
            return [
                f"{self.settings.mark}no model is named as judge, so the answers are made up. Scores, "
                "reliability and agreement with gold labels mean nothing."
            ]
        if self.mark:
            return [
                f"{self.mark}the simulated judge reads the gold labels of these texts. Scores, "
                "reliability and agreement with the labels mean nothing. No model was asked."
            ]
        return []

    @property
    def further_cautions(self) -> list[str]:
        """That there are few texts."""
        cautions = []
        if self.items < FEW:
            whole = self.strategy.startswith(f"listwise{self.items}")
            lists = f", all in lists of {self.items}" if whole else ""
            cautions.append(f"Only {self.items} texts{lists}: expect wide intervals.")
        return cautions

    def real_run(self, judges: Sequence[str] = MODELS) -> list[str]:
        """How to estimate, and to run, with these judges what was rehearsed: commands, or calls of
        Python where the texts came from there."""
        changes: dict[str, Any] = {"judge": judges, "name": None}
        needs_feature = self.facts.get("prompt") is None
        if needs_feature:  # which a model has to be told
            changes["feature"] = FEATURE
        given = self.settings.model_copy(update=changes)
        if given.dataset == STDIN and self.dataset == FROM_PYTHON:
            feature = f', feature="{FEATURE}"' if needs_feature else ""
            named = ("estimate", "run")
            return [f'judgeq.{name}(…{feature}, judge="{judges[0]}")' for name in named]
        flags = [
            word.removeprefix(f"{Path.cwd()}/")
            for name, setting in SETTINGS.items()
            if setting.flag and getattr(given, name) != setting.default
            for word in as_flags(name, getattr(given, name))
        ]
        return [shell_command(name, options=flags) for name in ("estimate", "run")]

    @classmethod
    def read(cls, text: str | bytes, where: str) -> RunInfo:
        """What was written down as JSON. Raises RunError, which names `where` it was, for what can't be
        read."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"])) + ": " if first["loc"] else ""
            raise RunError(
                f"{where} can't be read: {field}{first['msg']}. It was written by another version "
                "of judgeq, or changed by hand."
            ) from error

    def settings_with(self, changes: Mapping[str, Any]) -> Settings:
        """The run's settings with these changed (None: as before). Raises as `config.settle`."""
        given = {name: value for name, value in changes.items() if value is not None}
        return settle(self.settings.model_dump() | given, resumed=True)
