"""A run whose new items are placed onto the scale of runs before it: their record is where it begins.

What was judged there is copied into the new run's ledger as its first rounds, so that it goes on like
every run, whatever becomes of the old ones; these are only read. The run appears in its place whole or
not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from judgeq import config, prompts, seeds, trust
from judgeq.config import Settings
from judgeq.engine import results, rounds
from judgeq.engine.interrupts import awaited
from judgeq.engine.results import Result
from judgeq.errors import JudgeqError, RunError, UsageError
from judgeq.prompts import PromptSet
from judgeq.rating import Parameters, comparisons
from judgeq.rating.placing import Batch
from judgeq.run_places import RunFolder, RunInfo, RunPlace, Runs
from judgeq.run_places.info import Settled
from judgeq.store import Items
from judgeq.strategies import History
from judgeq.strategies.placing import evenly, placing
from judgeq.types import Bools, Floats, Matches, Rows, Verdict, Verdicts

ANCHORS = 150
"""How many settled items serve as anchors, at most."""
NAMED = 10
"""More judges than this are one, by how many they were."""


class Part(NamedTuple):
    """What was judged together in a settled run: its rounds of verdicts, and what that run's rows, shape
    (n,), and judges, shape (judges,), are in the new run."""

    settled: Settled
    rows: Rows
    rounds: Sequence[Verdicts]
    judges: Rows


class Onto(NamedTuple):
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
                    digest.update(np.ascontiguousarray(column).data)
        return digest.hexdigest()


def checked_runs(settings: Settings, there: Runs) -> tuple[Settings, list[RunPlace]]:
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


def can_be_base(place: RunPlace, info: RunInfo, settings: Settings) -> bool:
    """Return whether texts that are judged by these settings can be placed onto a run: it has verdicts
    that put its texts on one scale."""
    try:
        _check(place, info, settings)
        batch = Batch(info.new_items, 1, (), Parameters())
        placing(settings.make_strategy(), [batch], [])
    except JudgeqError:
        return False

    async def replayed() -> History:
        async with rounds.reading(place) as store:
            return await results.replayed(info, store)

    history = awaited(replayed())
    if history.basis != "comparisons" or not rounds.own_verdicts(history):
        return False
    component = comparisons.components(comparisons.joined(history.asked), info.items)
    return bool(component.max(initial=0) == 1)


def _check(place: RunPlace, info: RunInfo, settings: Settings) -> None:
    """Raise UsageError or RunError for a run that nothing can be placed onto, whatever was answered."""
    run, old = f"--onto {place.id}", info.settings
    if place.is_running():
        raise RunError(f"{run}: a process works on that run now. Wait until it is finished.")
    simulated = "simulated" in old.judge and not info.imported
    real = "simulated" not in settings.judge
    problems = {
        "it is a rehearsal, and its answers are made up": old.rehearsal,
        "its answers are simulated, and those of this run wouldn't be": simulated
        and real
        and not settings.rehearsal,
        "it is the judgments of real judges, and this run's answers would be simulated. Name the judge "
        "with --judge": not simulated and not real,
        f"it is rated by {old.rating}, and only a scale by pl can be continued": old.rating != "pl",
        "its scores are made of several runs by --refit: give --refit again": old.refit
        and not settings.refit,
        "its texts are in groups, on no one scale": old.group_column,
        f"{'it' if old.both_orders else 'this run'} asks pairs in both orders, and the other doesn't. "
        f"{'Give' if old.both_orders else 'Leave out'} --both-orders": old.both_orders
        != settings.both_orders,
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


def read_settled(places: Sequence[RunPlace], settings: Settings) -> Onto:
    """What settled runs came to, read from their records. Raises RunError for one that is damaged, and
    UsageError for one whose items have no common scale, or whose scale isn't that of the others."""
    parts, first_of = dict[str, Part](), dict[str, int]()
    judges, scales = [*settings.judges], dict[str, str]()
    ratings, compared, n = list[Floats](), list[Bools](), 0
    for place in places:
        result = awaited(results.read(place, place.info().settings))
        among, own = _on_one_scale(place, result), [*result.info.onto, _settled(result, place)]
        scales[own[0].run] = place.id
        if len(scales) > 1:
            raise UsageError(
                f"--onto {' and '.join(scales.values())} are two scales: their texts were never "
                "compared. Judge one of them onto the other first, and then these onto both."
            )
        names = _names(result)
        known_names = {*judges}
        judges += [name for name in names if name not in known_names]
        number_of = {name: number for number, name in reversed([*enumerate(judges)])}
        last = len(names) - 1
        numbers = [number_of[names[min(at, last)]] for at in range(len(result.judges))]
        rows, asked = np.empty(0, np.int32), iter(result.history.asked)
        for settled in own:
            run, rounds = settled.run, [*islice(asked, settled.rounds)]
            first, at = first_of.setdefault(run, n), slice(len(rows), len(rows) + settled.items)
            rows = np.append(rows, np.arange(first, first + settled.items, dtype=np.int32))
            if run not in parts:
                order = [*parts]
                onto = tuple(order.index(own[number].run) for number in settled.onto)
                settled = settled.model_copy(update={"onto": onto})
                parts[run] = Part(settled, rows, rounds, np.array(numbers, np.int32))
                ratings.append(result.fit.theta[at])
                compared.append(among[at])
                n += settled.items
    rng = seeds.rng(settings.seed, "anchors")
    anchors = choose_anchors(np.concatenate(ratings), np.concatenate(compared), rng)
    return Onto([*parts.values()], tuple(anchors.tolist()), tuple(judges))


def choose_anchors(ratings: Floats, among: Bools, rng: np.random.Generator) -> Rows:
    """Rows of settled items, out of these, spread evenly over their ranking, the lowest first."""
    rows = np.flatnonzero(among)
    rows = rows[np.argsort(ratings[rows], kind="stable")]
    return rows[evenly(min(ANCHORS, len(rows)), len(rows), rng)].astype(np.int32)


def _on_one_scale(place: RunPlace, result: Result) -> Bools:
    """Which items of a settled run were compared, shape (n,). Raises UsageError where these don't hang
    together."""
    if result.history.basis != "comparisons":
        raise UsageError(
            f"--onto {place.id}: its texts were judged alone, and comparisons have another scale."
        )
    if result.scores.component.max(initial=0) > 1:
        raise UsageError(
            f"--onto {place.id}: its texts have no common scale, since groups of them were never "
            "compared with one another. More rounds would connect them: judgeq resume … --rounds."
        )
    return result.scores.component > 0


def _settled(result: Result, place: RunPlace) -> Settled:
    """A run's own items, as they are settled for another."""
    info = result.info
    own = result.history.asked[info.rounds_before :]
    return Settled(
        run=place.id,
        judges=_names(result),
        items=info.new_items,
        rounds=len(own),
        verdicts=sum(map(len, own)),
        onto=tuple(range(len(info.onto))),
        sigma=info.settings.sigma,
        position=info.settings.unbias_position,
    )


def _names(result: Result) -> tuple[str, ...]:
    """The judges of a run; many are named as one, and people by no names, for these may be forgotten."""
    names = tuple(result.judges)
    if result.said is not None:
        names = (*names[: result.said.first], f"people of {result.run.id}")
    return names if len(names) <= NAMED else (f"{len(names):,} judges of {result.run.id}",)


# The record that a run begins with


def begin_record(place: RunFolder, info: RunInfo, onto: Onto, items: Items) -> None:
    """Put a run in its place, with all that was judged before it; nothing where another process has just
    done so. Raises as the store does."""
    awaited(place.record(info, items, _rounds(onto)))


def _rounds(onto: Onto) -> Iterator[tuple[Matches, list[Verdict]]]:
    """What was asked and answered in each round, as it is in the new run."""
    for part in onto.parts:
        for verdicts in part.rounds:
            matches = Matches(  # only what was answered
                items=part.rows[verdicts.presented],
                offsets=verdicts.offsets,
                judges=part.judges[verdicts.judges],
                ordered=verdicts.ordered,
            )
            own = replace(verdicts, items=part.rows[verdicts.items])
            yield matches, [*own.each()]
