"""What settings become: flags and a TOML file → one validated, frozen Settings, and a fingerprint; and
flags again.

Some settings decide a run's result, and with the dataset's content and the prompt's text they make
its fingerprint; the others (SESSION) may change between one session and the next.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson
from pydantic import ValidationError, model_validator

from judgeq import judge, strategies
from judgeq.datasets import Dataset
from judgeq.datasets.tables import did_you_mean, format_of
from judgeq.errors import DataError, UsageError
from judgeq.escaping import PLACEHOLDER
from judgeq.files import read_toml
from judgeq.prompts import PromptSet
from judgeq.rating import Parameters
from judgeq.settings.declaration import in_words
from judgeq.settings.model import Access, Model, from_environment
from judgeq.settings.run import (
    REHEARSAL,
    SETTINGS,
    Asking,
    Choices,
    DatasetSpec,
    Simulation,
    simulation_facts,
)
from judgeq.strategies import Strategy
from judgeq.strategies.strategy import Goal


class Panelist(NamedTuple):
    """One of the judges of a run: a judge's name, and the persona it is asked as."""

    judge: str
    persona: str | None = None

    @property
    def name(self) -> str:
        """As it is reported."""
        return self.judge if self.persona is None else f"{self.judge} as {self.persona}"


MAX_PANELISTS = 10_000
"""Judges of a run at most, each counted as often as it has personas."""
PAGE = ("anchors", "host", "port", "url_prefix", "open_to_all")
"""Settings of where people are asked, and a file for it: no run decides them."""
NEVER_KEPT: dict[str, Any] = {
    "store": None,
    "standby": False,
    "workers": 1,
    **{name: Asking.model_fields[name].default for name in PAGE},
}
"""Settings that say where the run itself is, and where people are asked: they aren't written down
there."""
SENT_TO_ALL = ("api_key_env", "api_key_file", "headers", "extra_body")
"""Settings that every model's server is sent, and that may hold a key."""
SESSION = frozenset(name for name, setting in SETTINGS.items() if setting.session)
"""Settings that may change between one session of a run and the next: they don't decide the result."""


class Settings(Choices, DatasetSpec, Simulation, Model, Access, Asking):
    """Everything a user can set about a run; the defaults are the command's."""

    @property
    def panelists(self) -> tuple[Panelist, ...]:
        """The judges: each that was named, as each persona; people as themselves."""
        return tuple(
            Panelist(name, persona)
            for name in self.judge
            for persona in (not judge.kind_of(name).is_person and self.persona) or (None,)
        )

    def panel_of(self, round: int) -> range:
        """The numbers of the judges that answer in a round: those that the run was begun with, or from
        its first round on a judge that was added."""
        each = max(1, len(self.persona))
        last = sum(first <= round for first in self.joined)
        begun = len(self.panelists) - each * len(self.joined)
        return range(begun + each * (last - 1), begun + each * last) if last else range(begun)

    @property
    def rehearsal(self) -> bool:
        """Whether all answers are made up."""
        return REHEARSAL in self.judge

    @property
    def mark(self) -> str:
        """What the title of all that shows a rehearsal begins with; "" for a real run."""
        return f"{REHEARSAL}: " if self.rehearsal else ""

    @property
    def people(self) -> int | None:
        """The number of people on the panel; None where none are asked."""
        judges = [judge.kind_of(panelist.judge) for panelist in self.panelists]
        return next((number for number, one in enumerate(judges) if one.is_person), None)

    @property
    def only_people(self) -> bool:
        """Whether people are asked and no model, so that there are no calls to pay for."""
        return self.people is not None and not self.models

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges as they are reported; those of the same name are numbered."""
        return _numbered_names(tuple(panelist.name for panelist in self.panelists))

    @property
    def models(self) -> tuple[str, ...]:
        """Those of the judges that are models: they read texts, and cost money."""
        return tuple(name for name in self.judge if judge.kind_of(name).costs_money)

    @model_validator(mode="after")
    def _not_too_many(self) -> Self:
        """A stranger's run folder may name any number of judges, which are looked through often."""
        if len(self.judge) * max(1, len(self.persona)) > MAX_PANELISTS:
            raise ValueError(
                f"--judge, --persona: more than {MAX_PANELISTS:,} judges, each as each persona. Name "
                "fewer"
            )
        return self

    @model_validator(mode="after")
    def _one_provider(self) -> Self:
        """What is sent to the server of every model may hold a key: never to two providers'."""
        asked = {self.address_of(name): self.provider_of(name) for name in self.models}
        sent = [name for name in SENT_TO_ALL if getattr(self, name)]
        if len(asked) > 1 and sent:
            flags = ", ".join(SETTINGS[name].flag for name in sent)
            names = " and ".join(provider.name for provider in asked.values())
            keys = " and ".join(f"${provider.key}" for provider in asked.values() if provider.key)
            raise ValueError(
                f"{flags}: the judges are models of {names}, and it would be sent to all of them. "
                f"Leave it out (keys are read from {keys}), or ask one provider's models"
            )
        return self

    @model_validator(mode="after")
    def _batches(self) -> Self:
        """Batches are sent by the two APIs for them that are known."""
        for name in self.models if self.batch else ():
            if provider := self.prefixed(name):
                raise ValueError(
                    f"--batch: batches go to OpenAI and Anthropic, not to {provider.name}, "
                    f"which {name} is asked at. Leave it out"
                )
        return self

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where the models are asked."""
        return tuple(dict.fromkeys(map(self.address_of, self.models)))

    @property
    def parameters(self) -> Parameters:
        """Of the estimators."""
        return Parameters(sigma=self.sigma, position=self.unbias_position)

    @property
    def goal(self) -> Goal:
        """When enough is known."""
        return Goal.read(self.until)

    def rooted(self) -> Settings:
        """With absolute paths, so that a run can be taken up from another folder."""
        return self._with_paths(Path.absolute)

    def without_folders(self) -> Settings:
        """With the names of files alone, for others to read: where they lie is this user's own."""
        return self._with_paths(lambda path: Path(path.name))

    def _with_paths(self, change: Callable[[Path], Path]) -> Settings:
        changes: dict[str, Any] = {}
        if format_of(self.dataset) is not None:
            changes["dataset"] = str(change(Path(self.dataset)))
        if self.prompt is not None and Path(self.prompt).suffix == ".toml":
            changes["prompt"] = str(change(Path(self.prompt)))
        for name in ("data_dir", "api_key_file", "ca_file", "cache_dir", "anchors"):
            path: Path | None = getattr(self, name)
            if path is not None:
                changes[name] = change(path)
        return self.model_copy(update=changes)

    def kept(self) -> Settings:
        """As they may be kept with a run: without what could hold a secret, or says where that is."""
        return self.model_copy(update=self.on_disk() | NEVER_KEPT)

    def make_strategy(self) -> Strategy:
        """The strategy, with all rounds of the run. Raises UsageError for one that can't be."""
        strategy = self.strategy_at_start()
        return strategy if self.total_rounds is None else strategy.extended(self.total_rounds)

    def strategy_at_start(self) -> Strategy:
        """The strategy with the rounds that the run was begun with, which decide its fingerprint."""
        given = {name: getattr(self, name) for name in strategies.FLAGS}
        return strategies.parse(self.strategy, at_once=self.people is not None, **given)


@lru_cache(maxsize=8)
def _numbered_names(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names, each that occurs several times with its number."""
    times = Counter(names)
    numbers = Counter[str]()
    numbered = list[str]()
    for name in names:
        numbers[name] += 1
        numbered.append(name if times[name] == 1 else f"{name} {numbers[name]}")
    return tuple(numbered)


def settle(
    given: Mapping[str, Any], file: Path | None = None, *, resumed: bool = False
) -> Settings:
    """Settings from flags (None: not given) over those of a TOML file, over the providers' addresses in
    the environment; those of a run that is `resumed` say themselves where its models are asked.

    Raises UsageError naming the flag, or DataError naming the file and key, that can't be.
    """
    from_file = read_file(file) if file is not None else {}
    values = {**from_file, **{name: value for name, value in given.items() if value is not None}}
    if "dataset" not in values:
        raise UsageError(
            "No dataset is given (--dataset): name one (`judgeq list datasets` shows them), or the "
            "path of a CSV, Excel, JSON, Parquet or text file, or - for standard input."
        )
    try:
        settings = Settings(**values)
        named = {} if resumed or "base_url" in values else _addresses(settings)
        return Settings(**named | values) if named else settings
    except ValidationError as error:
        by_flag = {name for name, value in given.items() if value is not None}
        raise _explained(error, set(from_file) - by_flag, file) from error


def _addresses(settings: Settings) -> dict[str, str]:
    """The settings that the environment gives: addresses of those whose models are asked."""
    forms = {settings.api_of(name) for name in settings.models if not settings.prefixed(name)}
    named = {f"{api}_base_url": from_environment(api) for api in forms}
    return {name: address for name, address in named.items() if address is not None}


def _explained(error: ValidationError, from_file: set[str], file: Path | None) -> Exception:
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else ""
        message = in_words(problem)
        secretive = name in SETTINGS and SETTINGS[name].secretive
        given = "" if secretive else f" {str(problem['input'])[:200]}"
        if not name:
            lines.append(message)
        elif problem["type"] == "extra_forbidden":
            return UsageError(_unknown(name))
        elif name in from_file:
            where = ".".join(map(str, problem["loc"]))
            value = f" = {repr(problem['input'])[:200]}" if given else ""
            return DataError(f"{file}: {where}{value}: {message}.")
        else:
            lines.append(f"{_called(name)}{given}: {message}")
    return UsageError("; ".join(lines) + ".")


def _called(name: str) -> str:
    """A setting as it is given outside a file: its flag, else its variable."""
    if name not in SETTINGS:
        return name
    variable = SETTINGS[name].envvar
    return SETTINGS[name].flag or (f"${variable}" if variable else name)


def read_file(file: Path) -> dict[str, Any]:
    """The settings of a TOML file. Raises DataError naming the file and what is wrong in it."""
    values = read_toml(file, "--config")
    values = {name.replace("-", "_"): value for name, value in values.items()}
    for name in values:
        if name not in Settings.model_fields:
            raise DataError(f"--config {file}: {_unknown(name)}")
    return values


def _unknown(name: str) -> str:
    meant = did_you_mean(name, Settings.model_fields)
    named = "Settings are named as the flags of `judgeq run --help`."
    return f"there is no setting {name!r}.{meant} {named}"


def deciding_facts(
    settings: Settings, dataset: Dataset, prompt: PromptSet | None, onto: str | None = None
) -> dict[str, Any]:
    """Everything that decides a run's verdicts, as plain JSON; `onto` is a checksum of what it is placed
    onto."""
    names = settings.judge[: len(settings.judge) - len(settings.joined)]
    simulated = "simulated" in names
    answering = settings.deciding()
    if simulated or settings.rehearsal:
        answering |= simulation_facts(settings)
    facts = {
        "version": 1,
        "dataset": dataset.content,
        "strategy": settings.strategy_at_start().facts(),
        # The simulated judge answers from the labels; a model never sees them, so that adding a
        # gold column to a finished run costs nothing.
        "labels": dataset.labels if simulated else None,
        "judge": {"name": names[0] if len(names) == 1 else [*names], **answering},
        "prompt": prompt_facts(prompt),
        "seed": settings.seed,
    }
    if dataset.groups is not None:
        facts["groups"] = dataset.grouping
    if settings.persona and prompt is not None:
        facts["personas"] = [[name, prompt.persona(name)] for name in settings.persona]
    if onto is not None:
        facts["onto"] = onto
    if len(settings.panel_of(0)) > 1:
        facts["ensemble"] = settings.ensemble
    if settings.people is not None:
        if settings.each > 1:
            facts["each"] = settings.each
        if prompt is not None and prompt.people:
            facts["people"] = [list(words) for words in prompt.people]
    # What came after runs were first kept is a fact only where it is asked for.
    return facts | {name: True for name in ("both_orders", "reasons") if getattr(settings, name)}


def prompt_facts(prompt: PromptSet | None) -> dict[str, Any] | None:
    """What of a prompt set decides a run, as plain JSON."""
    return prompt.model_dump(exclude={"personas", "people"}) if prompt else None


def fingerprint(facts: Mapping[str, Any]) -> str:
    """SHA-256, hexadecimal, of the facts in canonical JSON (sorted keys, no spaces)."""
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def as_flags(name: str, value: Any) -> Iterator[str]:
    """Yield the words that give a setting this value on a command line, not yet quoted."""
    setting = SETTINGS[name]
    if isinstance(value, bool):
        yield f"--no-{setting.flag[2:]}" if setting.undone and not value else setting.flag
    elif name == "total_rounds":
        yield from ("--rounds", str(value))
    elif name == "prices":
        yield from ("--price", "IN,OUT")
    elif isinstance(value, tuple):
        for part in (value or ("",)) if setting.repeatable else [",".join(map(str, value))]:
            yield from (setting.flag, part)
    else:
        yield from (setting.flag, PLACEHOLDER if value is None else as_text(value))


def as_text(value: Any) -> str:
    """A setting's value in words."""
    if isinstance(value, str | Path):
        return str(value)
    if isinstance(value, list) and value:
        return ", ".join(map(str, value))
    return orjson.dumps(value).decode()
