"""How rounds of questions are made: the Strategy protocol, the registry, and reading a name.

A strategy is a frozen dataclass of its parameters. "listwise10x3" reads: lists of 10, 3 rounds;
"pairwise24": pairs, 24 rounds. A setting may stand in the name or in a flag, not in both with
different values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from judgeq.errors import UsageError
from judgeq.strategies.listwise import Listwise
from judgeq.strategies.pairwise import Pairwise
from judgeq.types import Matches, Standings


class Strategy(Protocol):
    """What the runner asks of a strategy."""

    @property
    def kind(self) -> str:
        """The registered name, for example "listwise"."""

    @property
    def name(self) -> str:
        """The strategy as one writes it on the command line."""

    @property
    def rounds(self) -> int:
        """How many rounds there will be."""

    @property
    def least_items(self) -> int:
        """The fewest items it can work on."""

    def next_round(self, standings: Standings, rng: np.random.Generator) -> Matches:
        """The next round's questions over the active items."""

    def calls(self, n: int) -> int:
        """Questions asked over n items in all rounds."""

    def cost(self, n: int) -> float:
        """Cost-equivalent calls over n items in all rounds."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered strategy: how it is written, read and told."""

    pattern: re.Pattern[str]
    make: type[Listwise] | type[Pairwise]
    usage: str
    summary: str
    settings: tuple[str, ...]


REGISTRY: Mapping[str, Entry] = {
    "listwise": Entry(
        re.compile(r"listwise(?P<k>\d{1,9})?(?:x(?P<rounds>\d{1,9}))?"),
        Listwise,
        "listwise<k>[x<rounds>]",
        "Lists of k (10) are ranked, in 3 rounds: the best ranking for the money. Choose it first.",
        ("k", "rounds", "overlap", "matchmaking"),
    ),
    "pairwise": Entry(
        re.compile(r"pairwise(?P<rounds>\d{1,9})?"),
        Pairwise,
        "pairwise[<rounds>]",
        "Pairs are compared, in 24 rounds: the simplest question, for judges that can't rank lists.",
        ("rounds", "matchmaking"),
    ),
}


def parse(text: str, **flags: Any) -> Strategy:
    """The strategy that `text` and the flags (None = not given) describe.

    Raises UsageError for an unknown name, a setting the strategy doesn't have, a setting given
    twice with different values, or a value that can't be.
    """
    for entry in REGISTRY.values():
        found = entry.pattern.fullmatch(text.strip().lower())
        if found:
            break
    else:
        forms = ", ".join(entry.usage for entry in REGISTRY.values())
        raise UsageError(
            f"--strategy {text!r}: no such strategy. Give one of {forms}, for example listwise10; "
            "`judgeq strategies` explains them."
        )
    settings: dict[str, Any] = {
        name: int(value) for name, value in found.groupdict().items() if value is not None
    }
    for name, value in flags.items():
        if value is None:
            continue
        if name not in entry.settings:
            raise UsageError(
                f"--{name} doesn't go with --strategy {text}, which has "
                + ", ".join(f"--{setting}" for setting in entry.settings)
                + "."
            )
        if settings.get(name, value) != value:
            raise UsageError(
                f"--strategy {text} says {name} = {settings[name]}, but --{name} says {value}: "
                "give it once."
            )
        settings[name] = value
    _check(text, settings, flags)
    return entry.make(**settings)


def _check(text: str, settings: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
    """Raise UsageError, naming the flag that says so, for values that can't be."""

    def said(name: str) -> str:
        value = flags.get(name)
        return f"--strategy {text}" if value is None else f"--{name} {value}"

    k = settings.get("k", 10)
    if k < 2:
        raise UsageError(f"{said('k')}: a list needs at least 2 items, not {k}.")
    rounds = settings.get("rounds", 1)
    if rounds < 1:
        raise UsageError(f"{said('rounds')}: at least 1 round is needed, not {rounds}.")
    overlap = settings.get("overlap", 0)
    if not 0 <= overlap < k:
        raise UsageError(
            f"--overlap {overlap}: consecutive lists of {k} can share 0 to {k - 1} items."
        )
    how = settings.get("matchmaking", "similar")
    if how not in ("similar", "random"):
        raise UsageError(f"--matchmaking {how!r}: give similar or random.")
