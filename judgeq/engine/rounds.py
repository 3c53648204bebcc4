"""The rounds of a run: the history before the first one, the questions of the next one, what the store
has of those that are planned, and how well the order is known after one.

That is agreement with the judge, not with the truth. It takes a fit: little next to a round of a model's
answers, and much next to a simulated judge's. So after each round it is worked out where a model is
asked about up to LARGE items, or `--until` needs it; otherwise only at the end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np

from judgeq import seeds
from judgeq.config import Settings
from judgeq.errors import RunError, UsageError
from judgeq.escaping import plain
from judgeq.events import Certainty, Emit, Event, RoundRated, RoundStarted
from judgeq.judge import panel
from judgeq.person import Said
from judgeq.rating import Parameters, comparisons, position_bias, ranks
from judgeq.run_places import RunInfo, RunPlace
from judgeq.store import Store
from judgeq.strategies import History, Strategy
from judgeq.types import Counts, Match, Matches, Rows, Totals, Verdicts

LARGE = 20_000
"""Of more items a fit after each round takes too long."""
NAME_SHOWN = 80
"""Cells that are shown of the name of a model that a server gave."""


@asynccontextmanager
async def reading(run: RunPlace) -> AsyncIterator[Store]:
    """A run's store, open for reading while inside. Raises RunError."""
    store = run.store(read_only=True)
    try:
        yield store
    finally:
        await store.close()


def begin(
    n: int, strategy: Strategy | None, settings: Settings, groups: Sequence[str] | None = None
) -> History:
    """The history of a run of n items, in these groups, before anything was judged."""
    if settings.refit and (strategy is None or not strategy.before):
        raise UsageError("--refit goes with a run that is placed onto another one (--onto).")
    how = {"both_orders": settings.both_orders, "goal": settings.goal, "refit": settings.refit}
    return History.begin(n, strategy, settings.seed, group=comparisons.numbered(groups), **how)


def questions(history: History, settings: Settings) -> Matches:
    """The questions of the next round: the strategy's, for the judges and in the orders that the
    settings ask for."""
    matches, round = history.next_round(), len(history.verdicts) + 1
    unit = 1
    if settings.both_orders:
        matches, unit = position_bias.doubled(matches), 2
    judges = settings.panel_of(round)
    if settings.ensemble == "each" or len(judges) == 1:
        people = [settings.people or 0] * (settings.each - 1)
        asked = sorted([*judges, *people])
        # By place: a judge more changes no question of those before it.
        rngs = [seeds.rng(settings.seed, "order", round, place) for place in range(len(asked))]
        return panel.copy_for_each(matches, asked, rngs, unit)
    rng = seeds.rng(settings.seed, "panel", round)
    return panel.draw_judges(matches, judges, rng, unit)


def own_verdicts(history: History) -> list[Verdicts]:
    """What was asked of items that aren't settled, round by round; [] where nothing can be rated."""
    rated = any(map(len, history.verdicts[history.before :]))
    return history.asked[history.before :] if rated else []


async def own_counts(store: Store, info: RunInfo) -> Counts:
    """The jobs of a run without those of settled items."""
    counts = await store.counts()
    return replace(counts, done=counts.done - info.verdicts_before)


def own_rounds(emit: Emit, strategy: Strategy) -> Emit:
    """The same, with the rounds of settled items left out, and those after them numbered from 1."""
    if not strategy.before:
        return emit

    def numbered(event: Event) -> None:
        if isinstance(event, RoundStarted | RoundRated):
            event = replace(event, round=event.round - strategy.before)
            if event.round < 1:
                return
            if event.round == 1 and isinstance(event, RoundRated):
                event = replace(event, moved=None)  # there is no round before it to be like
        emit(event)

    return numbered


def single(matches: Matches) -> list[Match]:
    """The questions of a first round one by one, as they would be numbered."""
    each = zip(matches, matches.judges.tolist(), matches.repeats.tolist(), strict=True)
    return [Match(m, 1, tuple(items.tolist()), *more) for m, (items, *more) in enumerate(each)]


async def planned(store: Store, before: int = 0) -> tuple[list[Counts], bool]:
    """The jobs of the rounds that are planned after so many `before`, by state, round by round; and
    whether no more come, since the last one that was planned has no matches."""
    rounds: list[Counts] = []
    while (counts := await store.round_state(before + len(rounds) + 1)) is not None:
        if not counts.total:
            return rounds, True
        rounds.append(counts)
    return rounds, False


async def fold(history: History, store: Store, judges: int) -> Counts | None:
    """Fold the next round as the store has it; its jobs, or None where it isn't planned.

    Raises RunError for a verdict of a judge that the run, which has `judges` and the store's people,
    doesn't have.
    """
    round = len(history.verdicts) + 1
    counts = await store.round_state(round)
    if counts is None:
        return None
    verdicts = await store.verdicts(round)
    highest = int(verdicts.judges.max(initial=0))
    if highest >= judges and highest >= (judges := judges + len(await store.people())):
        raise RunError(
            f"the run's record is damaged: it has an answer of judge {highest}, and there are {judges}."
        )
    history.add(verdicts, counts.total, await store.active(round + 1))
    return counts


def split_by_model(
    history: History, info: RunInfo, people: Said | None, models: Mapping[int, str | None]
) -> tuple[RunInfo, Said | None]:
    """Make each of the models, by job, a judge of its own in the history, where several answered for one
    judge; the run's description, and what is on record of people, with these judges."""
    names = info.judge_names
    first = len(names) if people is None else people.first
    jobs = defaultdict[int, dict[str, list[int]]](lambda: defaultdict(list))  # by judge and model
    for part in history.asked:
        for judge, job in zip(part.judges.tolist(), part.matches.tolist(), strict=True):
            if judge < first:
                jobs[judge][models.get(job) or "unnamed"].append(job)
    labels, moved = [*names[:first]], dict[int, int]()
    for judge, by_model in sorted(jobs.items()):
        for at, (model, of_model) in enumerate(sorted(by_model.items())):
            if len(by_model) > 1:  # the first keeps the judge's number
                number = len(labels) if at else judge
                moved |= dict.fromkeys(of_model, number)
                label = f"{names[judge]} ({plain(model, NAME_SHOWN)})"
                labels[number : number + 1] = [label]
    more = len(labels) - first

    def renumbered(verdicts: Verdicts) -> Rows:
        others = np.where(verdicts.judges < first, verdicts.judges, verdicts.judges + more)
        each = zip(verdicts.matches.tolist(), others.tolist(), strict=True)
        return np.array([moved.get(job, other) for job, other in each], dtype=np.int32)

    history.renumber(renumbered)
    info = info.model_copy(update={"judges": (*labels, *names[first:])})
    return info, people and people._replace(first=first + more)


def judgments_per_match(settings: Settings, round: int = 1) -> int:
    """How many jobs a match of the strategy becomes in a round: one for each judge, and each order."""
    judges = len(settings.panel_of(round)) if settings.ensemble == "each" else 1
    return (settings.each - 1 + judges) * (2 if settings.both_orders else 1)


def sizes(settings: Settings, strategy: Strategy, groups: Sequence[int]) -> list[int]:
    """How many questions each of a run's own rounds has, at most, over groups of these sizes."""
    asked = enumerate(strategy.asked_by_round(*groups), start=1)
    every = [judgments_per_match(settings, round) * calls for round, (calls, _) in asked]
    return every[strategy.before :]


# How well the order is known


def after_each_round(history: History, settings: Settings) -> bool:
    """Whether it is worked out after each round of a session."""
    few = len(history.standings.elo) <= LARGE
    return not history.alone and (bool(history.goal) or (few and bool(settings.models)))


def at_the_end(history: History, settings: Settings) -> bool:
    """Whether a result shows it: where the fit is made anyway, or the run ends by it."""
    by_order = settings.rating == "pl" and settings.parameters == Parameters()
    return not history.alone and (bool(history.goal) or by_order)


def how_well(history: History, settings: Settings, totals: Totals) -> Certainty | None:
    """How well the order is known by all verdicts so far, of the items that aren't settled; None where
    items are judged alone, or there is no verdict. After one round of comparisons that isn't known. A
    rehearsal has no forecast of one more round."""
    posterior, own = history.posterior(), own_verdicts(history)
    if posterior is None or not own:
        return None
    calls = 0 if settings.rehearsal else _next_calls(history, settings)
    compared = [verdicts for verdicts in own if comparisons.compares(verdicts)]
    slots, all_slots = (sum(len(part.items) for part in of) for of in (compared, own))
    k, judged = slots / max(1, sum(map(len, compared))), posterior.component > 0
    judged[: history.first_new] = False
    group, errors = history.group, posterior.errors_across
    if group is not None:  # of which each is to be one component
        whole = np.bincount(posterior.component)[posterior.component] == np.bincount(group)[group]
        errors = np.where(whole, posterior.errors_apart, errors)
        group = group[judged]
    mean, se, top, n = posterior.mean[judged], errors[judged], history.goal.top, int(judged.sum())
    rho, next_rho, top_share = None, None, None
    if posterior.is_repeated:
        rho = ranks.reliability(mean, se, group)
        top_share = None if top is None else ranks.top_share(mean, se, top)
        if calls:
            growth = ranks.growth(posterior.sigma, slots / n, calls * k / n, k)
            next_rho = ranks.grown(rho, growth)
    # A text judged alone costs 1/k of a list of k.
    added = calls * k / max(1, all_slots)
    asked, next_cost = sum(map(len, own)), None
    if settings.models and totals.calls and not totals.unpriced and asked > totals.hits:
        next_cost = totals.cost / (asked - totals.hits) * added * asked
    return Certainty(
        round=len(own),
        rho=rho,
        next_rho=next_rho,
        next_calls=calls,
        next_cost=next_cost,
        top=top,
        top_share=top_share,
    )


def _next_calls(history: History, settings: Settings) -> int:
    """Calls of one more round; 0 where there can't be one."""
    if history.strategy is None or history.over or max(sizes := history.sizes) < 2:
        return 0
    round = len(history.verdicts) + 1
    return history.strategy.asked(round, *sizes)[0] * judgments_per_match(settings, round)
