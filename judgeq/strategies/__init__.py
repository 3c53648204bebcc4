"""How rounds of questions are made: the registry of strategies, and reading a name.

A strategy is a frozen dataclass of its parameters. They stand in its name ("listwise10x3": lists of
10, 3 rounds; "tail:w=8,p=20"); rounds and matchmaking also in flags, not in both with different values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from judgeq.errors import UsageError
from judgeq.rating.direct import ENOUGH
from judgeq.strategies.listwise import Direct, Hybrid, Listwise
from judgeq.strategies.pairwise import Complete, Pairwise, Streak, Tail
from judgeq.strategies.strategy import History, Strategy

__all__ = ["FLAGS", "MOST_ROUNDS", "REGISTRY", "History", "Strategy", "parse"]

REGISTRY: Mapping[str, type[Strategy]] = {
    one.kind: one for one in (Listwise, Hybrid, Pairwise, Streak, Tail, Complete, Direct)
}
FLAGS = ("rounds", "matchmaking")
"""The parameters that have a flag of their own, too."""
NAME = re.compile(r"([a-z]+)(\d{1,9})?(?:x(\d{1,9}))?")
"""A kind, and the numbers of its short form."""
MOST, MOST_ROUNDS = 10**9, 10_000
LIMITS: Mapping[str, tuple[int, int, str]] = {
    "k": (2, MOST, "a list needs at least 2 items"),
    "rounds": (1, MOST_ROUNDS, f"there are 1 to {MOST_ROUNDS:,} rounds"),
    "overlap": (0, MOST, "no lists share fewer than 0 items"),
    "repeat": (
        ENOUGH,
        MOST,
        f"at least {ENOUGH} texts are scored twice, to know their reliability",
    ),
    "r": (1, MOST, "a streak is at least 1 match long"),
    "d": (1, MOST, "a streak is against at least 1 opponent"),
    "w": (1, MOST, "the first to leave can do so after round 1"),
    "p": (1, 49, "1 to 49 % leave from each end"),
    "m": (1, MOST, "all pairs are compared at least once"),
}


def parse(text: str, *, at_once: bool = False, **flags: Any) -> Strategy:
    """The strategy that `text` and FLAGS (None = not given) describe. Where all rounds are asked
    `at_once` items meet at random, unless the one or the other says else.

    Raises UsageError for an unknown name, a setting the strategy doesn't have, a setting given
    twice with different values, or a value that can't be.
    """
    short, _, long = text.strip().lower().partition(":")
    kind, *numbers = found.groups() if (found := NAME.fullmatch(short)) else (short,)
    strategy = REGISTRY.get(kind)
    if strategy is None or any(numbers[len(strategy.short) :]):
        forms = ", ".join(one.usage for one in REGISTRY.values())
        raise UsageError(
            f"--strategy {text!r}: no such strategy. Give one of {forms}, for example listwise10; "
            "`judgeq list strategies` explains them."
        )
    known, by_text = parameters(strategy), f"--strategy {text}"
    pairs = [*zip(strategy.short, numbers, strict=False)]
    pairs += [part.partition("=")[::2] for part in long.split(",") if part]
    given = [(by_text, name.strip(), value) for name, value in pairs]
    given += [(f"--{flag} {value}", flag, value) for flag, value in flags.items()]
    settings: dict[str, Any] = {}
    for by, name, said in given:
        if said is None:
            continue
        if name not in known:
            has = ", ".join(f"{name}=…" for name in known) or "nothing"
            raise UsageError(f"{by}: {name} is no setting of {short}; it takes {has}.")
        value = _value(by, name, str(said).strip())
        if settings.setdefault(name, value) != value:
            raise UsageError(
                f"{by} says {name} = {value}, and before it {settings[name]}: give it once."
            )
    if at_once and "matchmaking" in known:
        settings.setdefault("matchmaking", "random")
    if "r" in settings:  # by default no more opponents than matches are asked for
        settings.setdefault("d", min(Streak().d, settings["r"]))
    return strategy(**settings)


def parameters(strategy: type[Strategy]) -> list[str]:
    """The names of its parameters, which may stand after a colon ("tail:w=8")."""
    return [field.name for field in fields(strategy)]  # type: ignore[arg-type]


def _value(by: str, name: str, value: str) -> int | str:
    if name == "matchmaking":
        if value not in ("similar", "random"):
            raise UsageError(f"{by}: matchmaking is similar or random.")
        return value
    least, most, why = LIMITS[name]
    if re.fullmatch(r"-\d{1,9}", value):
        named = by if by.startswith(f"--{name} ") else f"{by}: {name} = {value}"
        raise UsageError(f"{named}: must be {least} or more.")
    if not re.fullmatch(r"\d{1,9}", value):
        raise UsageError(f"{by}: {name} = {value!r} is no whole number.")
    if not least <= int(value) <= most:
        raise UsageError(f"{by}: {why}, not {int(value):,}.")
    return int(value)
