"""Questions that check the people who judge: their own earlier ones with the texts in reverse order, and
those whose answer is known. No question waits for them, and no score uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from judgeq import seeds
from judgeq.errors import DataError
from judgeq.imports import votes
from judgeq.person import Check
from judgeq.store import Store
from judgeq.types import Match

EVERY = 10
"""One in this many questions has a known answer, while there are such."""
APART = 5
"""Answers between a question and its repetition, at least."""
ENOUGH, QUICK, SAME = 20, 1.0, 0.9
"""Answers after which a person is remarked on; the median seconds below which they are too fast; the
share of answers with the same position first that is no chance."""


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


def remarks(name: str, answers: int, seconds: float | None, first: Sequence[float]) -> list[str]:
    """What is odd about a person's answers: their median `seconds`, and how often the text in each
    position came `first`."""
    odd = []
    if answers >= ENOUGH and seconds is not None and seconds < QUICK:
        odd.append(f"{name} answers in {seconds:.1f} s (median), too fast to read the texts.")
    if answers >= ENOUGH and max(first, default=0.0) >= SAME:
        position = max(range(len(first)), key=first.__getitem__)
        odd.append(
            f"{name} put the text in position {position + 1} first in {first[position]:.0%} of "
            f"{answers:,} answers, whatever it said."
        )
    return odd
