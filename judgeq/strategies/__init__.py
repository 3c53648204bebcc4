"""How rounds of questions are made: the registry of strategies, and reading a name.

A strategy is a frozen dataclass of its parameters. They stand in its name ("listwise10x3": lists of
10, 3 rounds; "tail:w=8,p=20"); rounds and matchmaking also in flags, not in both with different values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from judgeq.errors import UsageError
from judgeq.rating.direct import ENOUGH
from judgeq.strategies.hybrid import Direct, Hybrid
from judgeq.strategies.listwise import Listwise
from judgeq.strategies.pairwise import Complete, Pairwise, Streak, Tail
from judgeq.strategies.strategy import History, Strategy

FLAGS = ("rounds", "matchmaking")
"""The parameters that have a flag of their own, too."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One registered strategy: how it is written, read and described.

    `pattern` reads its short form. `settings` are its parameters, which may stand after a colon
    ("tail:w=8"); the class has the same.
    """

    pattern: re.Pattern[str]
    make: Callable[..., Strategy]
    usage: str
    summary: str
    when: str
    settings: tuple[str, ...]


REGISTRY: Mapping[str, Entry] = {
    "listwise": Entry(
        re.compile(r"listwise(?P<k>\d{1,9})?(?:x(?P<rounds>\d{1,9}))?"),
        Listwise,
        "listwise<k>[x<rounds>]",
        "Lists of k (10) are ranked, in 3 rounds.",
        "The best ranking for the money: choose it first. Lists of 20 rank better still (ρ +0.01 "
        "for as many texts read), if a pilot shows that the judge can order 20.",
        ("k", "rounds", "overlap", "matchmaking"),
    ),
    "hybrid": Entry(
        re.compile(r"hybrid(?P<k>\d{1,9})?(?:x(?P<rounds>\d{1,9}))?"),
        Hybrid,
        "hybrid<k>[x<rounds>][:repeat=100]",
        "Each text is scored alone, 0 to 1, then lists of k (10) are ranked; in 3 rounds with the "
        "first, and both make one rating. `repeat` texts are scored twice: how reliable scores are "
        "decides what lists add.",
        "Where the judge scores single texts well: with two rounds of lists it beat either alone on "
        "published judgments.",
        ("k", "rounds", "overlap", "repeat", "matchmaking"),
    ),
    "pairwise": Entry(
        re.compile(r"pairwise(?P<rounds>\d{1,9})?"),
        Pairwise,
        "pairwise[<rounds>]",
        "Pairs are compared, in 24 rounds.",
        "The simplest question, for judges that can't rank lists.",
        FLAGS,
    ),
    "streak": Entry(
        re.compile(r"streak"),
        Streak,
        "streak[:r=4,d=3]",
        "As pairwise, but an item leaves once it has won, or lost, r matches in a row against at "
        "least d distinct opponents.",
        "To repeat the paper: plain pairs for the same money rank better (ρ +0.01 to +0.03).",
        ("r", "d", *FLAGS),
    ),
    "tail": Entry(
        re.compile(r"tail"),
        Tail,
        "tail[:w=8,p=20]",
        "As pairwise, but from round w on, after each round p % of the active items leave from "
        "each end of the ranking.",
        "To repeat the paper: plain pairs for the same money rank better (ρ +0.01 to +0.04).",
        ("w", "p", *FLAGS),
    ),
    "complete": Entry(
        re.compile(r"complete"),
        Complete,
        "complete[:m=1]",
        "All pairs are compared, m times.",
        "For a few hundred items at most, as a yardstick for the others.",
        ("m",),
    ),
    "direct": Entry(
        re.compile(r"direct"),
        Direct,
        "direct",
        "Each text is scored alone, 0 to 1.",
        "The baseline: one short call an item, and usually the coarsest ranking.",
        (),
    ),
}

__all__ = ["FLAGS", "MOST_ROUNDS", "REGISTRY", "History", "Strategy", "parse"]

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
    for entry in REGISTRY.values():
        match = entry.pattern.fullmatch(short)
        if match:
            break
    else:
        forms = ", ".join(entry.usage for entry in REGISTRY.values())
        raise UsageError(
            f"--strategy {text!r}: no such strategy. Give one of {forms}, for example listwise10; "
            "`judgeq list strategies` explains them."
        )
    in_text: list[tuple[Any, ...]] = [*match.groupdict().items()]
    in_text += [tuple(map(str.strip, part.split("=", 1))) for part in long.split(",") if part]
    given: list[tuple[Any, ...]] = [(f"--strategy {text}", *pair) for pair in in_text]
    given += [(f"--{flag} {value}", flag, value) for flag, value in flags.items()]
    settings: dict[str, Any] = {}
    for by, name, *values in given:
        if values and values[0] is None:
            continue
        if name not in entry.settings or not values:
            has = ", ".join(f"{name}=…" for name in entry.settings) or "nothing"
            raise UsageError(f"{by}: {name} is no setting of {short}; it takes {has}.")
        value = _value(by, name, str(values[0]))
        if settings.setdefault(name, value) != value:
            raise UsageError(
                f"{by} says {name} = {value}, and before it {settings[name]}: give it once."
            )
    k, overlap = settings.get("k", 10), settings.get("overlap", 0)
    if overlap >= k:
        raise UsageError(
            f"--strategy {text}: consecutive lists of {k} can share 0 to {k - 1} items."
        )
    if at_once and "matchmaking" in entry.settings:
        settings.setdefault("matchmaking", "random")
    if "r" in settings:  # by default no more opponents than matches are asked for
        settings.setdefault("d", min(Streak().d, settings["r"]))
    return entry.make(**settings)


def _value(by: str, name: str, value: str) -> int | str:
    if name == "matchmaking":
        if value not in ("similar", "random"):
            raise UsageError(f"{by}: matchmaking is similar or random.")
        return value
    if not re.fullmatch(r"\d{1,9}", value):
        raise UsageError(f"{by}: {name} = {value!r} is no whole number.")
    least, most, why = LIMITS[name]
    if not least <= int(value) <= most:
        raise UsageError(f"{by}: {why}, not {int(value):,}.")
    return int(value)
