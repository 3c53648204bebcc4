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
from judgeq.strategies.direct import Direct
from judgeq.strategies.hybrid import Hybrid
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

MOST_ROUNDS = 10_000
LEAST: Mapping[str, tuple[int, str]] = {
    "k": (2, "a list needs at least 2 items"),
    "rounds": (1, "at least 1 round is needed"),
    "overlap": (0, "no lists share fewer than 0 items"),
    "repeat": (ENOUGH, "at least 100 texts are scored twice, to know how reliable scores are"),
    "r": (1, "a streak is at least 1 match long"),
    "d": (1, "a streak is against at least 1 opponent"),
    "w": (1, "the first to leave can do so after round 1"),
    "p": (1, "at least 1 % leave"),
    "m": (1, "all pairs are compared at least once"),
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
    said: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for name, value in [*match.groupdict().items(), *_pairs_in(text, long, entry)]:
        if value is not None:
            _take(settings, said, name, _number(text, name, value), f"--strategy {text}")
    for flag, value in flags.items():
        if value is None:
            continue
        if flag not in entry.settings:
            raise UsageError(f"--{flag} doesn't go with --strategy {text}.")
        _take(settings, said, flag, value, f"--{flag} {value}")
    _check(settings, said)
    if at_once and "matchmaking" in entry.settings:
        settings.setdefault("matchmaking", "random")
    if "r" in settings:  # by default no more opponents than matches are asked for
        settings.setdefault("d", min(Streak().d, settings["r"]))
    return entry.make(**settings)


def _pairs_in(text: str, long: str, entry: Entry) -> list[tuple[str, str]]:
    """The settings after the colon: "w=8,p=20"."""
    pairs = []
    for part in filter(None, long.split(",")):
        name, equals, value = part.partition("=")
        name = name.strip()
        if name not in entry.settings or not equals:
            has = ", ".join(f"{name}=…" for name in entry.settings) or "nothing"
            raise UsageError(f"--strategy {text}: {part!r} is no setting of it; it takes {has}.")
        pairs.append((name, value.strip()))
    return pairs


def _number(text: str, name: str, value: str) -> int | str:
    if name == "matchmaking":
        return value
    if not re.fullmatch(r"\d{1,9}", value):
        raise UsageError(f"--strategy {text}: {name} = {value!r} is no whole number.")
    return int(value)


def _take(settings: dict[str, Any], said: dict[str, str], name: str, value: Any, by: str) -> None:
    if settings.get(name, value) != value:
        raise UsageError(
            f"{said[name]} says {name} = {settings[name]}, but {by} says {value}: give it once."
        )
    settings[name] = value
    said[name] = by


def _check(settings: Mapping[str, Any], said: Mapping[str, str]) -> None:
    """Raise UsageError, naming what says so, for values that can't be."""
    for name, (least, why) in LEAST.items():
        if settings.get(name, least) < least:
            raise UsageError(f"{said[name]}: {why}, not {settings[name]}.")
    if settings.get("rounds", 1) > MOST_ROUNDS:
        raise UsageError(
            f"{said['rounds']}: at most {MOST_ROUNDS:,} rounds, not {settings['rounds']:,}."
        )
    k, overlap = settings.get("k", 10), settings.get("overlap", 0)
    if overlap >= k:
        raise UsageError(
            f"{said['overlap']}: consecutive lists of {k} can share 0 to {k - 1} items."
        )
    if settings.get("p", 1) > 49:
        raise UsageError(f"{said['p']}: at most 49 % can leave from each end.")
    how = settings.get("matchmaking", "similar")
    if how not in ("similar", "random"):
        raise UsageError(f"{said['matchmaking']}: matchmaking is similar or random.")
