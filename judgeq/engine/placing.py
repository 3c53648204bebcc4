"""A run whose new items are placed onto the scale of runs before it: their record is where it begins.

What was judged there is copied into the new run's ledger as its first rounds, so that it goes on like
every run, whatever becomes of the old ones; these are only read. The run appears in its place whole or
not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from judgeq import config, prompts, seeds, trust
from judgeq.config import Settings
from judgeq.engine import results
from judgeq.engine.datasets import blocks
from judgeq.engine.interrupts import awaited
from judgeq.engine.results import Result
from judgeq.errors import RunError, UsageError
from judgeq.prompts import PromptSet
from judgeq.rating import comparisons
from judgeq.run_places import RunFolder, RunInfo, RunPlace, Runs, copying
from judgeq.run_places.info import Settled
from judgeq.store import Items
from judgeq.strategies.placing import choose_anchors
from judgeq.types import Bools, Matches, Rows, Verdict, Verdicts

NAMED = 10
"""More judges than this are one, by how many they were."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """What was judged together in a settled run: its rounds of verdicts, and what that run's rows, shape
    (n,), and judges, shape (judges,), are in the new run."""

    settled: Settled
    rows: Rows
    rounds: Sequence[Verdicts]
    judges: Rows


@dataclass(frozen=True, slots=True, eq=False)
class Onto:
    """Where a run begins that is placed onto settled ones: what they came to, the `anchors` that new
    items meet, and all judges' names, those of the new run first."""

    parts: Sequence[Part]
    anchors: tuple[int, ...]
    judges: tuple[str, ...]

    @property
    def settled(self) -> tuple[Settled, ...]:
        """The items that are settled, batch by batch."""
        return tuple(part.settled for part in self.parts)

    @property
    def checksum(self) -> str:
        """Of what decides the run: the settled items' verdicts, and how they are rated."""
        digest = hashlib.sha256()
        for part in self.parts:
            digest.update(part.settled.model_dump_json(exclude={"run", "judges"}).encode())
            for one in part.rounds:
                for column in (one.offsets, one.items, one.tied, one.presented, one.partial):
                    if column is not None:
                        digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()


def runs_of(settings: Settings, there: Runs) -> tuple[Settings, list[RunPlace]]:
    """The runs that --onto names; and the settings with their ids, and their prompt or feature where
    none is given. Raises RunError for one that isn't there, and UsageError for one whose scale
    nothing can be placed onto."""
    if not settings.onto:
        return settings, []
    found = [there.find(name) for name in settings.onto]
    for place in found:
        _check(place, place.info(), settings)
    names = [
        place.id if there.called(place.id).path == place.path else str(place.path)
        for place in found
    ]
    if len(set(names)) < len(names):
        raise UsageError("--onto names a run twice.")
    changes: dict[str, Any] = {"onto": tuple(names)}
    if settings.prompt is None and settings.feature is None:
        changes |= _words(found[0], found[0].info())
    return settings.model_copy(update=changes), found


def _words(place: RunPlace, info: RunInfo) -> dict[str, Any]:
    """The settings that say what a run's judges were asked; no file that a stranger's folder names."""
    if trust.owns(place, info, "prompt") and (info.settings.prompt or info.settings.feature):
        return {"prompt": info.settings.prompt, "feature": info.settings.feature}
    prompt = info.facts.get("prompt")
    name = prompt.get("name") if isinstance(prompt, dict) else None
    return {"prompt": name} if name in [one.name for one in prompts.catalog()] else {}


def _check(place: RunPlace, info: RunInfo, settings: Settings) -> None:
    """Raise UsageError or RunError for a run that nothing can be placed onto, whatever was answered."""
    run, old = f"--onto {place.id}", info.settings
    if place.is_running():
        raise RunError(f"{run}: a process works on that run now. Wait until it is finished.")
    simulated = "simulated" in old.judge and not info.imported
    problems = {
        "it is a rehearsal, and its answers are made up": old.rehearsal,
        "its answers are simulated, and those of this run wouldn't be": simulated
        and "simulated" not in settings.judge
        and not settings.rehearsal,
        "it is the judgments of real judges, and this run's answers would be simulated. Name the judge "
        "with --judge": not simulated and "simulated" in settings.judge,
        f"it is rated by {old.rating}, and only a scale by pl can be continued": old.rating != "pl",
        "its scores are made of several runs by --refit: give --refit again": old.refit
        and not settings.refit,
        "its texts are in groups, on no one scale": old.group_column,
        "it asked pairs in both orders, and this run doesn't. Give --both-orders": old.both_orders
        and not settings.both_orders,
        "this run would ask pairs in both orders, and that one doesn't. Leave --both-orders out": (
            settings.both_orders and not old.both_orders
        ),
    }
    for problem, there in problems.items():
        if there:
            raise UsageError(f"{run}: {problem}.")


def check_prompt(places: Sequence[RunPlace], prompt: PromptSet | None, settings: Settings) -> None:
    """Raise UsageError where settled items were judged by another feature or prompt, and that isn't said
    to be meant."""
    now = config.prompt_facts(prompt)
    for place in places if not settings.other_prompt else ():
        info = place.info()
        then = info.facts.get("prompt")
        if then == now and not info.imported:
            continue
        if not isinstance(then, dict) or now is None:
            what = "it isn't known that its judges were asked the same"
        elif then.get("feature") != now["feature"]:
            what = f"it asked for {info.feature!r}, and this run for {now['feature']!r}"
        else:
            what = "its prompt has other words"
        raise UsageError(f"--onto {place.id}: {what}. Where that is meant, add --other-prompt.")


def begin(places: Sequence[RunPlace], settings: Settings) -> Onto:
    """What settled runs came to, read from their records. Raises RunError for one that is damaged, and
    UsageError for one whose items have no common scale, or whose scale isn't that of the others."""
    parts, judges = list[Part](), [*settings.judges]
    ratings, roots = np.empty(0), dict[str, str]()
    among = np.empty(0, np.bool_)
    number_of, first_of = dict[str, int](), dict[str, int]()
    for place in places:
        result = awaited(lambda: results.read(place, place.info().settings))  # noqa: B023
        among_own = _on_one_scale(place, result)
        own, numbers = blocks(result.info, place.id), _numbers(result, judges)
        roots[own[0].run] = place.id
        if len(roots) > 1:
            raise UsageError(
                f"--onto {' and '.join(roots.values())} are two scales: their texts were never "
                "compared. Judge one of them onto the other first, and then these onto both."
            )
        rows, round = np.empty(0, np.int32), 0
        for block, settled in zip(own, _settled(result, place), strict=True):
            done, round = (
                result.history.asked[round : round + settled.rounds],
                round + settled.rounds,
            )
            new = block.run not in number_of
            if new:
                number_of[block.run], first_of[block.run] = len(parts), len(ratings)
                ratings = np.append(ratings, result.fit.theta[block.rows])
                among = np.append(among, among_own[block.rows])
            first = first_of[block.run]
            rows = np.append(rows, np.arange(first, first + settled.items, dtype=np.int32))
            if new:
                onto = tuple(number_of[own[one].run] for one in settled.onto)
                settled = settled.model_copy(update={"onto": onto})
                parts.append(Part(settled, rows, done, numbers))
    anchors = choose_anchors(ratings, among, seeds.rng(settings.seed, "anchors"))
    return Onto(parts, tuple(anchors.tolist()), tuple(judges))


def _on_one_scale(place: RunPlace, result: Result) -> Bools:
    """Which items of a settled run were compared, shape (n,). Raises UsageError where these don't hang
    together."""
    if result.history.basis != "comparisons":
        raise UsageError(
            f"--onto {place.id}: its texts were judged alone, and comparisons have another scale."
        )
    component = result.scores.component
    if len(np.unique(component[component > 0])) > 1:
        raise UsageError(
            f"--onto {place.id}: its texts have no common scale, since groups of them were never "
            "compared with one another. More rounds would connect them: judgeq resume … --rounds."
        )
    return component > 0


def _settled(result: Result, place: RunPlace) -> list[Settled]:
    """A run's items, batch by batch, as they are settled for another."""
    info = result.info
    before = info.rounds_before
    own = Settled(
        run=place.id,
        judges=_names(result),
        items=info.new_items,
        rounds=len(result.history.asked) - before,
        verdicts=sum(map(len, result.history.asked[before:])),
        onto=tuple(range(len(info.onto))),
        sigma=info.settings.sigma,
        position=info.settings.unbias_position,
    )
    return [*info.onto, own]


def _names(result: Result) -> tuple[str, ...]:
    """The judges of a run; many are named as one, and people by no names, for these may be forgotten."""
    names = tuple(result.judges)
    if result.said is not None:
        names = (*names[: result.said.first], f"people of {result.run.id}")
    return names if len(names) <= NAMED else (f"{len(names):,} judges of {result.run.id}",)


def _numbers(result: Result, judges: list[str]) -> Rows:
    """The numbers of a run's judges among all, which are added to `judges` where they are new."""
    names = _names(result)
    judges += [name for name in names if name not in judges]
    numbers = [judges.index(name) for name in names]
    numbers += numbers[-1:] * (len(result.judges) - len(numbers))
    return np.array(numbers, np.int32)


# The record that a run begins with


def make(place: RunFolder, info: RunInfo, onto: Onto, items: Items) -> None:
    """Put a run in its place, with all that was judged before it; nothing where another process has just
    done so. Raises as the store does."""
    several = len(onto.judges) > 1
    done = [(part, verdicts) for part in onto.parts for verdicts in part.rounds]
    rounds = ((_matches(*one, several), [*_verdicts(*one)]) for one in done)
    awaited(lambda: copying.record(place.path.parent, place, info, items, rounds))


def _matches(part: Part, verdicts: Verdicts, several: bool) -> Matches:
    """What was asked, as it is in the new run; only what was answered."""
    judges = comparisons.judges_of(verdicts)
    return Matches(
        items=part.rows[verdicts.presented],
        offsets=verdicts.offsets,
        judges=part.judges[judges] if several else None,
        ordered=verdicts.ordered,
    )


def _verdicts(part: Part, verdicts: Verdicts) -> Iterator[Verdict]:
    items, tied = part.rows[verdicts.items].tolist(), verdicts.tied.tolist()
    bounds = verdicts.offsets.tolist()
    partial = [False] * len(verdicts) if verdicts.partial is None else verdicts.partial.tolist()
    for begin, end, part_of in zip(bounds, bounds[1:], partial, strict=False):
        ties = tuple(tied[begin:end])
        yield Verdict(tuple(items[begin:end]), ties if any(ties) else (), partial=part_of)
