"""Settings: flags and a TOML file → one validated, frozen Settings; and a run's fingerprint.

A setting's name is its flag's: `sim_accuracy` in the file is `--sim-accuracy`. Some settings decide
a run's result, and with the dataset's content and the prompt's text they make its fingerprint; the
others (SITTING) may change between one sitting and the next.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from difflib import get_close_matches
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson
from pydantic import ConfigDict, Field, ValidationError, field_validator

from judgeq import judge, recordings, strategies
from judgeq.datasets import Dataset, DatasetSpec
from judgeq.datasets.tables import FORMATS
from judgeq.errors import DataError, UsageError
from judgeq.judge.model import Access, Model
from judgeq.judge.noise import Simulation
from judgeq.judge.simulated import Faults
from judgeq.prompts import PromptSet
from judgeq.strategies import Strategy
from judgeq.strategies.matchmaking import Matchmaking

Rating = Literal["bt", "bt-mm"]
Ensemble = Literal["rotate", "each"]


class Member(NamedTuple):
    """One of the judges of a run: a judge's name, and the persona it is asked as."""

    judge: str
    persona: str | None = None

    @property
    def name(self) -> str:
        """As it is told."""
        return self.judge if self.persona is None else f"{self.judge} as {self.persona}"


SITTING = frozenset(
    {"concurrency", "rating", "bt_sigma", *Faults.model_fields, *Access.model_fields}
)


class Settings(DatasetSpec, Simulation, Faults, Model, Access):
    """Everything a user can set about a run; the defaults are the command's."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    strategy: str = "listwise"
    rounds: int | None = None
    k: int | None = None
    overlap: int | None = None
    matchmaking: Matchmaking | None = None
    streak_length: int | None = None
    opponents: int | None = None
    warm_up: int | None = None
    cut: int | None = None
    repeats: int | None = None
    both_orders: bool = False

    judge: tuple[str, ...] = Field(("simulated",), min_length=1)
    persona: tuple[str, ...] = ()
    ensemble: Ensemble = "rotate"
    prompt: str | None = None
    feature: str | None = None
    seed: int = Field(0, ge=0, lt=2**63)

    concurrency: int = Field(256, ge=1, le=10_000)
    rating: Rating = "bt"
    bt_sigma: float = Field(2.0, gt=0, le=100)

    @field_validator("judge", "persona", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @property
    def members(self) -> tuple[Member, ...]:
        """The judges: each that was named, as each persona."""
        return tuple(Member(*each) for each in product(self.judge, self.persona or (None,)))

    @property
    def judges(self) -> tuple[str, ...]:
        """The judges as they are told; those of the same name are numbered."""
        names = [member.name for member in self.members]
        seen: Counter[str] = Counter()
        for place, name in enumerate(names):
            seen[name] += 1
            if names.count(name) > 1 or seen[name] > 1:
                names[place] = f"{name} {seen[name]}"
        return tuple(names)

    @property
    def models(self) -> bool:
        """Whether a model is asked, which reads texts and costs money."""
        return any(map(judge.is_model, self.judge))

    def rooted(self) -> Settings:
        """With absolute paths, so that a run can be taken up from another folder."""
        changes: dict[str, Any] = {}
        if Path(self.dataset).suffix.lower() in FORMATS:
            changes["dataset"] = str(Path(self.dataset).absolute())
        if self.prompt is not None and Path(self.prompt).suffix == ".toml":
            changes["prompt"] = str(Path(self.prompt).absolute())
        recordings = [judge.recording_of(name) for name in self.judge]
        if any(recordings):
            changes["judge"] = tuple(
                name if path is None else f"recorded:{path.absolute()}"
                for name, path in zip(self.judge, recordings, strict=True)
            )
        for name in ("data_dir", "api_key_file", "ca_file", "cache_dir"):
            path: Path | None = getattr(self, name)
            if path is not None:
                changes[name] = path.absolute()
        return self.model_copy(update=changes)

    def kept(self) -> Settings:
        """As they may be kept on disk: without what could hold a secret."""
        return self.model_copy(update=self.on_disk())

    def make_strategy(self) -> Strategy:
        """The strategy. Raises UsageError for one that can't be."""
        given = {name: getattr(self, name) for name in strategies.FLAGS}
        return strategies.parse(self.strategy, **given)


def flag(name: str) -> str:
    """A setting's flag: "sim_accuracy" → "--sim-accuracy"."""
    return {"headers": "--header", "cache": "--no-cache"}.get(name, "--" + name.replace("_", "-"))


def settle(given: Mapping[str, Any], file: Path | None = None) -> Settings:
    """Settings from flags (None: not given) over those of a TOML file.

    Raises UsageError naming the flag, or DataError naming the file and key, that can't be.
    """
    from_file = read_file(file) if file is not None else {}
    values = {**from_file, **{name: value for name, value in given.items() if value is not None}}
    if "dataset" not in values:
        raise UsageError(
            "--dataset is missing: name one (babe, demo; `judgeq datasets` lists them), or the "
            "path of a CSV, TSV, JSONL or Parquet file."
        )
    try:
        return Settings(**values)
    except ValidationError as error:
        by_flag = {name for name, value in given.items() if value is not None}
        raise _explained(error, set(from_file) - by_flag, file) from error


def _explained(error: ValidationError, from_file: set[str], file: Path | None) -> Exception:
    lines = []
    for problem in error.errors():
        name = str(problem["loc"][0]) if problem["loc"] else ""
        message = problem["msg"].removeprefix("Value error, ")
        # What may hold a key is not repeated.
        given = "" if name in ("headers", "proxy", "base_url") else f" {problem['input']}"
        if not name:
            lines.append(message)
        elif name in from_file:
            where = ".".join(map(str, problem["loc"]))
            value = f" = {problem['input']!r}" if given else ""
            return DataError(f"{file}: {where}{value}: {message}.")
        else:
            lines.append(f"{flag(name)}{given}: {message}")
    return UsageError("; ".join(lines) + ".")


def read_file(file: Path) -> dict[str, Any]:
    """The settings of a TOML file. Raises DataError naming the file and what is wrong in it."""
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"--config {file} can't be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise DataError(f"--config {file} is not UTF-8 (byte {error.start}).") from error
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"--config {file} is no valid TOML: {error}.") from error
    values = {name.replace("-", "_"): value for name, value in values.items()}
    for name in values:
        if name not in Settings.model_fields:
            near = get_close_matches(name, Settings.model_fields, 1)
            raise DataError(
                f"--config {file}: there is no setting {name!r}"
                + (f"; did you mean {near[0]!r}?" if near else ".")
                + " Settings are named as the flags of `judgeq run --help`."
            )
    return values


def deciding_facts(
    settings: Settings, strategy: Strategy, dataset: Dataset, prompt: PromptSet | None
) -> dict[str, Any]:
    """Everything that decides a run's verdicts, as plain JSON."""
    simulated = "simulated" in settings.judge
    answering = settings.deciding()
    if simulated:
        answering |= settings.model_dump(include=set(Simulation.model_fields))
    facts = {
        "version": 1,
        "dataset": dataset.content,
        "strategy": {"kind": strategy.kind, **asdict(strategy)},  # type: ignore[call-overload]
        # The simulated judge answers from the labels; a model never sees them, so that adding a
        # gold column to a finished run costs nothing.
        "labels": dataset.labels if simulated else None,
        "judge": {"name": _names(settings, dataset), **answering},
        "prompt": prompt.model_dump(exclude={"personas"}) if prompt else None,
        "seed": settings.seed,
    }
    if settings.persona and prompt is not None:
        facts["personas"] = [[name, dict(prompt.personas)[name]] for name in settings.persona]
    if len(settings.members) > 1:
        facts["ensemble"] = settings.ensemble
    return facts | ({"both_orders": True} if settings.both_orders else {})


def _names(settings: Settings, dataset: Dataset) -> str | list[str]:
    """Who judges: of a recording what it says decides, not where it lies."""
    names = []
    for name in settings.judge:
        path = judge.recording_of(name)
        if path is not None:
            name = f"recorded:{recordings.checksum(recordings.read(path, dataset.ids))}"
        names.append(name)
    return names[0] if len(names) == 1 else names


def fingerprint(facts: Mapping[str, Any]) -> str:
    """SHA-256, hexadecimal, of the facts in canonical JSON (sorted keys, no spaces)."""
    return hashlib.sha256(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)).hexdigest()
