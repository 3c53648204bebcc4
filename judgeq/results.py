"""What a run's ledger says: scores, how good they are, what they cost. Always made again from it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from judgeq import seeds
from judgeq.config import Rating, Settings
from judgeq.errors import RunError
from judgeq.rating import comparisons, elo, metrics, order_bias
from judgeq.rating.order_bias import Flips, Slots
from judgeq.runs import RunFolder, RunInfo, replacing
from judgeq.store import Items, Store
from judgeq.store.sqlite import SqliteStore
from judgeq.strategies import Strategy
from judgeq.types import Bools, Counts, Floats, Offsets, Standings, Totals, Verdicts

MIDDLE: Mapping[str, float] = {"elo": elo.START, "bt": 0.0, "direct": 0.5}
"""What divides positive from negative, by rating."""


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The ratings of n items; all arrays of shape (n,).

    `ratings` are by name: `elo` starts at 1500 and `bt` is Bradley-Terry's θ (0 is the middle); or
    `direct`, the score of each item judged alone (0 to 1; nan where there is none). `matches` counts
    the judged questions that the item was in; `wins` the comparisons they imply that it won (a tie
    counts ½); `left_after` is the round after which it left early, or 0; `gold` is nan where there
    is no label.
    """

    ids: Sequence[str]
    ratings: Mapping[str, Floats]
    matches: Offsets
    wins: Floats
    left_after: Offsets
    gold: Floats

    @property
    def columns(self) -> list[str]:
        """The columns of scores.csv."""
        return ["id", *self.ratings, "matches", "wins", "left_after", "gold"]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """All that a finished, or partial, run has to show. `flips` only where both orders were asked."""

    run: RunFolder
    scores: Scores
    evaluation: dict[str, Any]
    rating: Rating
    bt_sigma: float
    rounds: int
    rounds_planned: int
    counts: Counts
    totals: Totals
    cost_equivalent_calls: float
    slots: Slots | None = None
    flips: Flips | None = None

    @property
    def partial(self) -> bool:
        """Whether rounds or jobs are still to come."""
        return self.rounds_planned < self.rounds or self.counts.left > 0


@dataclass(slots=True, eq=False)
class Judged:
    """The verdicts of the rounds so far, and what they fold to: arrays of shape (n,).

    `elo` are the ratings, `active` who is still compared, `left_after` the round after which an item
    left (0: it didn't). With `both_orders`, `verdicts` are those of the couples, and `asked` those
    of the matches. `strategy` is None for judgments that were imported. `over` once a round is
    planned that has no matches: the strategy had nobody left to compare.
    """

    elo: Floats
    active: Bools
    left_after: Offsets
    strategy: Strategy | None
    seed: int = 0
    both_orders: bool = False
    verdicts: list[Verdicts] = field(default_factory=list)
    asked: list[Verdicts] = field(default_factory=list)
    flips: Flips | None = None
    over: bool = False

    @classmethod
    def begin(cls, n: int, strategy: Strategy | None, settings: Settings) -> Judged:
        """Before anything was judged."""
        return cls(
            elo=elo.start(n),
            active=np.ones(n, dtype=np.bool_),
            left_after=np.zeros(n, dtype=np.int64),
            strategy=strategy,
            seed=settings.seed,
            both_orders=settings.both_orders,
        )

    @property
    def standings(self) -> Standings:
        """What the next round is made from."""
        return Standings(self.elo, self.active)

    @property
    def direct(self) -> Floats | None:
        """The scores of items that were judged alone (of several judges the mean), nan where there
        is none; None for others."""
        alone = [some for some in self.verdicts if some.scores is not None]
        if not alone and (self.strategy is None or self.strategy.kind != "direct"):
            return None
        return comparisons.scores_of(alone, len(self.elo))

    def add(self, verdicts: Verdicts, planned: int | None = None) -> None:
        """Fold the next round's verdicts; `planned` is how many matches it had."""
        if planned == 0:
            self.over = True
            return
        self.asked.append(verdicts)
        if self.both_orders:
            verdicts, flips = order_bias.merged(verdicts)
            self.flips = flips if self.flips is None else order_bias.plus(self.flips, flips)
        self.verdicts.append(verdicts)
        if verdicts.scores is None:
            self.elo = elo.fold(self.elo, verdicts)
        if self.strategy is not None and self.strategy.prunes:
            rng = seeds.rng(self.seed, "leave", len(self.verdicts))
            stay = self.strategy.stay(self.standings, self.verdicts, rng)
            self.left_after[self.active & ~stay] = len(self.verdicts)
            self.active = stay


def fit(verdicts: Verdicts, n: int, rating: Rating, sigma: float) -> Floats:
    """θ of shape (n,) by the named estimator; `sigma` is the prior's, for `bt`."""
    from judgeq.rating import bradley_terry

    if rating == "bt-mm":
        return bradley_terry.fit_mm(comparisons.imply(verdicts), n)
    return bradley_terry.fit_map(verdicts, n, sigma)


async def rate(
    run: RunFolder,
    store: Store,
    items: Items,
    judged: Judged,
    rounds: int,
    rating: Rating,
    sigma: float,
) -> Result:
    """The result of a run that was judged so far: Bradley-Terry, and all else that is shown."""
    n = len(items.ids)
    verdicts = comparisons.joined(judged.verdicts)
    asked = comparisons.joined(judged.asked) if judged.both_orders else verdicts
    direct = judged.direct
    if direct is None:
        ratings = {"elo": judged.elo, "bt": fit(verdicts, n, rating, sigma)}
    else:
        ratings = {"direct": direct}
    scores = Scores(
        ids=items.ids,
        ratings=ratings,
        matches=comparisons.matches_of(verdicts, n),
        wins=comparisons.wins_of(verdicts, n),
        left_after=judged.left_after,
        gold=np.full(n, np.nan) if items.gold is None else items.gold,
    )
    return Result(
        run=run,
        scores=scores,
        evaluation=evaluate(scores, items),
        rating=rating,
        bt_sigma=sigma,
        rounds=len(judged.verdicts) if judged.over else rounds,
        rounds_planned=len(judged.verdicts),
        counts=await store.counts(),
        totals=await store.totals(),
        cost_equivalent_calls=asked.cost,
        slots=order_bias.slots(asked),
        flips=judged.flips,
    )


async def read(run: RunFolder, rating: Rating, sigma: float) -> Result:
    """Rate a run from its folder alone, also while another process goes on with it."""
    return (await opened(run, rating, sigma))[0]


async def opened(run: RunFolder, rating: Rating, sigma: float) -> tuple[Result, Items, Judged]:
    """As `read`, with the items and all that was judged."""
    info = run.info()
    store = SqliteStore(run.database, read_only=True)
    try:
        items = await store.items()
        if len(items.ids) != info.items:
            raise RunError(
                f"{run.path} is damaged: config.json tells of {info.items} items, run.db of "
                f"{len(items.ids)}."
            )
        judged = await replayed(info, store)
        result = await rate(run, store, items, judged, info.rounds, rating, sigma)
        return result, items, judged
    finally:
        await store.close()


async def judgments(run: RunFolder) -> tuple[Sequence[str], list[Verdicts], Sequence[str]]:
    """What a run's judges said: the items' ids, the verdicts round by round, the judges' names if
    they are told."""
    info = run.info()
    store = SqliteStore(run.database, read_only=True)
    try:
        rounds, _ = await planned(store)
        verdicts = [await _verdicts(info, store, round) for round in range(1, len(rounds) + 1)]
        return (await store.items()).ids, verdicts, info.judges
    finally:
        await store.close()


async def replayed(info: RunInfo, store: Store) -> Judged:
    """All that a run's ledger says, folded round by round."""
    strategy = None if info.imported else info.settings.make_strategy()
    judged = Judged.begin(info.items, strategy, info.settings)
    round = 1
    while (counts := await store.round_state(round)) is not None:
        judged.add(await _verdicts(info, store, round), counts.total)
        round += 1
    return judged


async def _verdicts(info: RunInfo, store: Store, round: int) -> Verdicts:
    """A round's verdicts. Raises RunError for one of a judge that the run doesn't have."""
    verdicts = await store.verdicts(round)
    judges = max(1, len(info.judges))
    if verdicts.judges is not None and int(verdicts.judges.max()) >= judges:
        raise RunError(
            f"the run's ledger is damaged: it has an answer of judge {verdicts.judges.max()}, and "
            f"there are {judges}."
        )
    return verdicts


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """How far a run is; `ratings` are those that its latest round was made from.

    `over` when the strategy had nobody left to compare, so that no more rounds come.
    """

    run: RunFolder
    info: RunInfo
    running: bool
    rounds: Sequence[Counts]
    totals: Totals
    ids: Sequence[str]
    ratings: Floats | None
    over: bool = False

    @property
    def counts(self) -> Counts:
        """The jobs of all planned rounds."""
        return sum(self.rounds, Counts())

    @property
    def word(self) -> str:
        """ "running", "finished", or "stopped"."""
        if self.running:
            return "running"
        whole = (self.over or len(self.rounds) == self.info.rounds) and not self.counts.left
        return "finished" if whole else "stopped"

    def as_json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "run": self.run.id,
            "folder": str(self.run.path),
            "state": self.word,
            "created": self.info.created.isoformat(),
            "dataset": self.info.dataset,
            "items": self.info.items,
            "strategy": self.info.strategy,
            "judge": self.info.judge,
            "seed": self.info.settings.seed,
            "rounds": self.info.rounds,
            "rounds_planned": len(self.rounds),
            "jobs": asdict(self.counts),
            "jobs_by_round": [asdict(counts) for counts in self.rounds],
            **_spent(self.totals),
        }


async def planned(store: Store) -> tuple[list[Counts], bool]:
    """The jobs of the planned rounds by state, round by round; and whether no more come, because
    the last one planned has no matches."""
    rounds: list[Counts] = []
    while (counts := await store.round_state(len(rounds) + 1)) is not None:
        if not counts.total:
            return rounds, True
        rounds.append(counts)
    return rounds, False


async def state(run: RunFolder, *, ratings: bool = False) -> State:
    """How far a run is, read from its folder while it runs or afterwards."""
    info, running = run.info(), run.is_running()
    if not run.database.exists():  # begun this very moment, or killed before anything was asked
        return State(run, info, running, [], Totals(), [], None)
    store = SqliteStore(run.database, read_only=True)
    try:
        rounds, over = await planned(store)
        totals = await store.totals()
        if not running:  # what a killed process had in flight
            totals = replace(totals, unknown=totals.unknown + totals.in_flight, in_flight=0)
        return State(
            run=run,
            info=info,
            running=running,
            rounds=rounds,
            totals=totals,
            ids=(await store.items()).ids if ratings else [],
            ratings=await store.ratings(len(rounds)) if ratings and len(rounds) > 1 else None,
            over=over,
        )
    finally:
        await store.close()


def evaluate(scores: Scores, items: Items) -> dict[str, Any]:
    """Scores against gold: detection for binary gold, correlation for any, subsets apart.

    Empty when there is no gold.
    """
    if items.gold is None:
        return {}
    correlation: dict[str, Any] = {}
    everything = np.ones(len(items.ids), dtype=np.bool_)
    for subset, mask in {"all": everything, **items.subsets}.items():
        correlation[subset] = {
            name: {
                "n": int((mask & ~np.isnan(items.gold) & ~np.isnan(values)).sum()),
                "spearman": metrics.spearman(values[mask], items.gold[mask]),
                "pearson": metrics.pearson(values[mask], items.gold[mask]),
            }
            for name, values in scores.ratings.items()
        }
    found = {
        name: metrics.detection(values, items.gold, MIDDLE[name])
        for name, values in scores.ratings.items()
    }
    detection = {name: asdict(value) for name, value in found.items() if value is not None}
    return {"correlation": correlation} | ({"detection": detection} if detection else {})


def write_scores(scores: Scores, path: Path) -> None:
    """scores.csv, whole or not at all: `scores.columns`, where empty cells say that there is none.

    Numbers are written so that reading them gives the same bits.
    """
    columns = (
        scores.ids,
        *(_cells(values) for values in scores.ratings.values()),
        scores.matches.tolist(),
        _cells(scores.wins),
        [round or "" for round in scores.left_after.tolist()],
        _cells(scores.gold),
    )
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(scores.columns)
        writer.writerows(zip(*columns, strict=True))


def _cells(values: Floats) -> list[str]:
    """Numbers as the shortest text that reads back as the same bits; "" for nan."""
    text = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY).decode()
    return ["" if cell == "null" else cell for cell in text[1:-1].split(",")]


def as_json(result: Result) -> dict[str, Any]:
    """The result as plain JSON, for `--json`."""
    counts, totals = result.counts, result.totals
    return {
        "run": result.run.id,
        "folder": str(result.run.path),
        "scores": str(result.run.scores),
        "partial": result.partial,
        "items": len(result.scores.ids),
        "rounds": result.rounds,
        "rounds_planned": result.rounds_planned,
        "jobs": asdict(counts),
        **_spent(totals),
        "cost_equivalent_calls": result.cost_equivalent_calls,
        "rating": {"name": result.rating}
        | ({"sigma": result.bt_sigma} if result.rating == "bt" else {}),
        "left_early": int((result.scores.left_after > 0).sum()),
        "evaluation": result.evaluation,
        "order": _order(result),
    }


def _order(result: Result) -> dict[str, Any]:
    slots, flips = result.slots, result.flips
    found: dict[str, Any] = {"slots": []}
    if slots is not None:
        columns = (slots.rate, slots.low, slots.high, slots.matches)
        found["slots"] = [
            {"slot": slot, "win_rate": rate, "low": low, "high": high, "matches": matches}
            for slot, (rate, low, high, matches) in enumerate(
                zip(*(column.tolist() for column in columns), strict=True), start=1
            )
        ]
        found["favoured"] = None if slots.favoured is None else slots.favoured + 1
        found["slighted"] = None if slots.slighted is None else slots.slighted + 1
    return found | ({} if flips is None else {"both_orders": asdict(flips)})


def _spent(totals: Totals) -> dict[str, Any]:
    return {
        "calls": totals.calls,
        "retries": totals.retries,
        "unknown_attempts": totals.unknown,
        "tokens": totals.usage._asdict(),
        "cost": totals.cost if not totals.unpriced else None,
        "cost_of_priced_calls": totals.cost,
        "unpriced_calls": totals.unpriced,
        "possibly_paid_at_most": totals.at_risk,
        "cache": {"hits": totals.hits, "saved": totals.saved},
    }
