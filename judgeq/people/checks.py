"""Questions that check the people who judge: their own earlier ones with the texts in reverse order, and
those whose answer is known. No question waits for them, and no score uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from judgeq import seeds
from judgeq.errors import DataError
from judgeq.imports import votes
from judgeq.person import Check
from judgeq.rating import comparisons
from judgeq.store import Store
from judgeq.types import Match, Offsets, Verdicts

EVERY = 10
"""One in this many questions has a known answer, while there are such."""
APART = 5
"""Answers between a question and its repetition, at least."""
ENOUGH, QUICK, SAME = 20, 1.0, 0.9
"""Answers after which a person is remarked on; the median seconds below which they are too fast; the
share of answers with the same position first that is no chance."""
ONE_SIDED_ANSWERS = 8
"""Answers, all with the same position first, after which a person who is fast is remarked on."""
ONE_SIDED_SECONDS = 1.5
"""The median time of an answer below which they are fast."""
ONE_SIDED_CHANCE = 0.001
"""The probability below which chance doesn't put the same position first in all answers, however long
they take."""


def known_in(path: Path, ids: Sequence[str], texts: Sequence[str] | None) -> list[tuple[int, ...]]:
    """The rankings of the table of --anchors, over the dataset with these ids and texts. Raises
    DataError for a table that can't be read, for ties, and for pairs that contradict each other."""
    votes_there = votes.read(path, votes.Columns(("left", "right"), "winner", ties=()), ids, texts)
    rankings = {vote.verdict.items: vote.verdict for vote in votes_there.judgments}
    for ranking, verdict in rankings.items():
        pair = " and ".join(repr(ids[row]) for row in ranking)
        if any(verdict.tied):
            raise DataError(f"--anchors {path}: {pair} are a tie, which is no known answer.")
        if ranking[::-1] in rankings:
            raise DataError(f"--anchors {path}: of {pair} each wins once. Leave one row out.")
    return list(rankings)


async def add_known(store: Store, rankings: Sequence[tuple[int, ...]]) -> int:
    """Add questions whose answer is known, most of the feature first; how many are new."""
    kept = await store.checks()
    before = {check.known for check in kept if check.person is None}
    new = [ranking for ranking in dict.fromkeys(rankings) if ranking not in before]
    for number, ranking in enumerate(new, len(kept)):
        await store.put_check(Check(number, ranking, known=ranking))
    return len(new)


def due(
    checks: Sequence[Check], answered: Sequence[Match], repeats: float, seed: int, person: int
) -> Check | None:
    """The check that a person is to be asked now, if any, after all `checks` of the run, and these
    answers of theirs: a share `repeats` of them again, and some of the known rankings."""
    asked = [check for check in checks if check.person == person]
    repeated = {check.repeats for check in asked if check.repeats is not None}
    if int(repeats * len(answered)) > len(repeated):
        able = [match for match in answered[:-APART] if match.id not in repeated]
        if able:
            rng = seeds.rng(seed, "repeat", person, len(repeated))
            match = able[int(rng.integers(len(able)))]
            return Check(len(checks), match.items[::-1], person, repeats=match.id)
    there = {check.known for check in asked if check.known}
    left = [one.known for one in checks if one.person is None and one.known not in there]
    if left and len(answered) // EVERY > len(there):
        rng = seeds.rng(seed, "known", person, len(there))
        ranking = left[int(rng.integers(len(left)))]
        items = tuple(ranking[place] for place in rng.permutation(len(ranking)))
        return Check(len(checks), items, person, known=ranking)
    return None


def first_counts(verdicts: Verdicts, judges: int) -> Offsets:
    """Return how often each judge put the text of each position first, of shape (judges, positions).
    Ties, single texts, and questions whose order isn't known are left out."""
    tied = np.bincount(verdicts.of_slot, verdicts.tied, len(verdicts))
    own = verdicts.where((verdicts.sizes > 1) & (tied == 0) & verdicts.ordered)
    positions = int(own.sizes.max(initial=0))
    position = comparisons.presented_at(own)[own.offsets[:-1]] - own.offsets[:-1]
    cells = own.judges.astype(np.int64) * positions + position
    return np.bincount(cells, minlength=judges * positions).reshape(judges, positions)


def one_sided(name: str, first: Sequence[int], seconds: float | None) -> str | None:
    """Return a sentence where a judge always put the text in the same position first, and chance doesn't
    explain it; else None. `first` counts answers by the position that came first; `seconds` is the
    median time of a person's answer."""
    total = sum(first)
    if not total or max(first) < total:
        return None
    is_fast = seconds is not None and seconds < ONE_SIDED_SECONDS and total >= ONE_SIDED_ANSWERS
    if not is_fast and len(first) ** (1.0 - total) >= ONE_SIDED_CHANCE:
        return None
    how_fast = f" (median {seconds:.1f} s)" if is_fast else ""
    return (
        f"{name} chose position {list(first).index(total) + 1} in all {total:,} answers{how_fast}: "
        "these answers don't depend on the texts."
    )


def remarks(
    name: str,
    answers: int,
    seconds: float | None,
    first: Sequence[float],
    first_counts: Sequence[int] = (),
) -> list[str]:
    """Return what is odd about a person's answers: their median `seconds`, and how often the text in
    each position came `first`, as shares and as counts."""
    odd = []
    if answers >= ENOUGH and seconds is not None and seconds < QUICK:
        odd.append(f"{name} answers in {seconds:.1f} s (median), too fast to read the texts.")
    if one := one_sided(name, first_counts, seconds):
        odd.append(one)
    elif answers >= ENOUGH and max(first, default=0.0) >= SAME:
        position = max(range(len(first)), key=first.__getitem__)
        odd.append(
            f"{name} put the text in position {position + 1} first in {first[position]:.0%} of "
            f"{answers:,} answers, whatever it said."
        )
    return odd
