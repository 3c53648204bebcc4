"""How a setting is declared, and read again: type, limits, default, help text, group and flag.

A setting's name is its key in a TOML file; its flag follows from it (`sim_accuracy` is
`--sim-accuracy`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field

DATA, STRATEGY, JUDGE, MODEL = "Texts", "Strategy", "Judge", "Model"
MONEY, BATCHES, PEOPLE = "Money", "Batches", "People as judges"
CONNECTION, SIMULATED = "Connection", "Simulated judge"
RATING, RUNNING = "Rating", "Running"
GROUPS = (
    DATA,
    STRATEGY,
    JUDGE,
    MODEL,
    MONEY,
    BATCHES,
    PEOPLE,
    CONNECTION,
    SIMULATED,
    RATING,
    RUNNING,
)

LIMITS = frozenset(("gt", "ge", "lt", "le", "min_length"))
METAVARS = {bool: "", int: "N", float: "X", str: "TEXT"}
IN_WORDS = {
    "greater_than_equal": "give {ge:,.10g} or more",
    "greater_than": "give more than {gt:,.10g}",
    "less_than_equal": "give {le:,.10g} or less",
    "less_than": "give less than {lt:,.10g}",
    "literal_error": "give {expected}",
    "int_parsing": "give a whole number",
    "int_from_float": "give a whole number",
    "float_parsing": "give a number",
    "bool_parsing": "give true or false",
}
"""What pydantic finds wrong with a value, by its name for it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as it is declared; its name, type, choices and default are those of its field.

    `common` ones are shown by `--help`, the others by `--help-all`. A setting of a `session` doesn't
    decide the result, and may change when a run is resumed. A `secretive` one may hold a key: its
    value is never repeated. `unset` says what holds where it is None. `only` gives a flag of another
    name; "" none, so that only a file can give it; "--no-…" turns it off. `undone`: --no-NAME turns off
    again what was given before.
    `metavar` stands for its value in the help; "" of a flag that takes none.
    """

    help: str
    group: str
    common: bool = False
    session: bool = False
    secretive: bool = False
    unset: str = ""
    only: str | None = None
    undone: bool = False
    short: str = ""
    metavar: str = ""
    envvar: str | None = None
    name: str = ""
    type: Any = None
    choices: tuple[str, ...] = ()
    default: Any = None

    @property
    def flag(self) -> str:
        """Its flag; "" where there is none."""
        return "--" + self.name.replace("_", "-") if self.only is None else self.only

    @property
    def repeatable(self) -> bool:
        """Whether its flag may be given several times; another tuple is split at commas."""
        return self.type is tuple and self.default is not None

    @property
    def shown_default(self) -> str:
        """What holds where it isn't given, in words; "" for nothing."""
        if self.unset or self.default is None or isinstance(self.default, bool | dict):
            return self.unset
        if isinstance(self.default, tuple):
            return ", ".join(self.default)
        return f"{self.default:g}" if isinstance(self.default, float) else str(self.default)


def setting(help: str, group: str, default: Any = ..., **declared: Any) -> Any:  # noqa: A002
    """A pydantic field that carries its declaration: fields of Setting, and pydantic's LIMITS."""
    limits: Any = {name: declared.pop(name) for name in LIMITS & declared.keys()}
    extra: Any = {"declared": Setting(help, group, **declared)}
    return Field(default, json_schema_extra=extra, **limits)


class Declarations(BaseModel):
    """The base of all models of settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def settings_of(model: type[BaseModel]) -> dict[str, Setting]:
    """The settings that a model declares, by name."""
    return {name: _setting(name, field) for name, field in model.model_fields.items()}


def _setting(name: str, field: Any) -> Setting:
    kind = field.annotation
    if get_origin(kind) in (Union, UnionType):
        (kind,) = (part for part in get_args(kind) if part is not NoneType)
    choices = get_args(kind) if get_origin(kind) is Literal else ()
    kind = str if choices else get_origin(kind) or kind
    declared: Setting = field.json_schema_extra["declared"]
    return replace(
        declared,
        name=name,
        type=kind,
        choices=choices,
        metavar=declared.metavar or "|".join(choices) or METAVARS.get(kind, "PATH"),
        default=None if field.is_required() else field.get_default(call_default_factory=True),
    )


def in_words(problem: Mapping[str, Any]) -> str:
    """What pydantic found wrong with a setting, in our words."""
    words = IN_WORDS.get(problem["type"])
    message: str = problem["msg"].removeprefix("Value error, ")
    return message if words is None else words.format(**problem.get("ctx", {}))
