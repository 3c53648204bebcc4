"""Small inputs for many tests: verdicts from rankings, any rankings, and the published recordings."""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import strategies as st

from judgeq.rating import GoOn, Parameters, always, bradley_terry
from judgeq.rating.curvature import Curvature
from judgeq.types import Floats, Verdict, Verdicts

Ranking: TypeAlias = Sequence[int | Sequence[int]]
"""Items, most of the feature first; a group of tied ones stands as a sequence."""

SHARED = Path(__file__).resolve().parents[2] / "shared"
needs_recordings = pytest.mark.skipif(
    not (SHARED / "recordings").is_dir(),
    reason="the recordings may not be shipped and are not at ../shared",
)


def fit_map(judged: Verdicts, n: int, sigma: float = 2.0, *, go_on: GoOn = always) -> Floats:
    """Return θ by `bt`, at the maximum."""
    return bradley_terry.fit(judged, n, Parameters(sigma), go_on).maximum


def dense(curvature: Curvature) -> Floats:
    """A itself."""
    return np.stack([curvature.times(way) for way in np.eye(len(curvature.precision))])


def grouped(ranking: Ranking) -> list[list[int]]:
    """The ranking's groups, those of one item too."""
    return [[each] if isinstance(each, int) else list(each) for each in ranking]


def judged(given: Iterable[tuple[Sequence[int], Verdict]], judges: Sequence[int] = ()) -> Verdicts:
    """The answers to matches 0, 1, 2 …, each as presented and judged; by these judges, or by judge 0."""
    every = list(given)
    tied = [verdict.tied or (False,) * len(verdict.items) for _, verdict in every]
    scores = [np.nan if verdict.score is None else verdict.score for _, verdict in every]
    return Verdicts(
        matches=np.arange(len(every)),
        items=np.array([item for _, verdict in every for item in verdict.items], np.int32),
        offsets=np.cumsum([0, *(len(verdict.items) for _, verdict in every)]),
        tied=np.array([each for some in tied for each in some], np.bool_),
        presented=np.array([item for presented, _ in every for item in presented], np.int32),
        scores=np.array(scores, np.float64),
        judges=np.array(judges or [0] * len(every), np.int32),
        partial=np.array([verdict.partial for _, verdict in every], np.bool_),
    )


def verdicts(
    rankings: Iterable[Ranking], partial: Callable[[Sequence[Sequence[int]]], bool] | None = None
) -> Verdicts:
    """The answers to matches 0, 1, 2 …, which presented the items in the order of their rows; `partial`
    says of groups whether their order isn't known."""
    every = [grouped(ranking) for ranking in rankings]
    said = [Verdict.of(one, partial=partial is not None and partial(one)) for one in every]
    return judged((sorted(verdict.items), verdict) for verdict in said)


def ranked(lists: Iterable[Iterable[int]], truth: Floats, random: np.random.Generator) -> Verdicts:
    """Lists as Plackett and Luce rank them: with Gumbel's noise."""
    noisy = ([(truth[item] + random.gumbel(), item) for item in items] for items in lists)
    return verdicts([item for _, item in sorted(one, reverse=True)] for one in noisy)


def several(groups: Sequence[Sequence[int]]) -> bool:
    """Whether there are groups of several items: of best-worst answers all of these are partial."""
    return any(len(group) > 1 for group in groups)


@st.composite
def rankings(draw: st.DrawFn, n: int = 7, size: int | None = None, ties: bool = True) -> Ranking:
    """A ranking of `size` (default: 2 to n) of n items."""
    items = draw(st.permutations(range(n)))[: size or draw(st.integers(2, n))]
    groups: list[list[int]] = []
    for item in items:
        if groups and ties and draw(st.booleans()):
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


@st.composite
def partial_rankings(draw: st.DrawFn, n: int = 7) -> Ranking:
    """A ranking of 3 to n of n items, of which those of one group are in no known order, if any."""
    items = draw(st.permutations(range(n)))[: draw(st.integers(3, n))]
    top = draw(st.integers(0, len(items) - 1))
    bottom = draw(st.integers(0 if top else 1, len(items) - top - 1))
    end = len(items) - bottom
    return [*([item] for item in items[:top]), items[top:end], *([item] for item in items[end:])]


def recording(name: str) -> list[Verdicts]:
    """The verdicts of a published recording, round by round."""
    lines = (SHARED / "recordings" / f"{name}.jsonl").read_text().splitlines()
    rounds = groupby(map(json.loads, lines), key=lambda line: line["round"])
    return [verdicts(line["ranking"] for line in some) for _, some in rounds]
