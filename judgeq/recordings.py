"""Recorded judgments: one JSON object a line, as they are published and shared.

    {"round": 1, "group": 0, "presented": [5, 2, 9], "ranking": [9, [5, 2]]}
    {"round": 1, "group": 1, "presented": ["a", "b"], "winner": "b"}
    {"round": 1, "group": 2, "presented": [7], "score": 0.25}

Items are row numbers of the dataset (numbers, from 0) or ids (strings). `presented` is the order
shown to the judge, `ranking` has the most of the feature first, tied items in an inner list; `winner`
is "tie" where there is none. Lines stand in the order in which they are rated. A file is read whole
or not at all: what is wrong is told with the number of its line.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

import orjson

from judgeq.errors import DataError
from judgeq.types import Verdict, Verdicts

TIE = "tie"
ANSWERS = ("ranking", "winner", "score")


class Judgment(NamedTuple):
    """One line: the items in the order presented, and the verdict on them. `judge` is who answered,
    where several did."""

    round: int
    presented: tuple[int, ...]
    verdict: Verdict
    judge: str | None = None


def read(path: Path, ids: Sequence[str]) -> list[Judgment]:
    """The judgments of a file over the dataset with these ids.

    Raises DataError naming the file, and the line of what is wrong.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}.") from error
    rows = {name: row for row, name in enumerate(ids)}
    judgments: list[Judgment] = []
    for number, line in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            judgment = _judgment(line, rows)
            _follow(judgments[-1] if judgments else None, judgment)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
        judgments.append(judgment)
    if not judgments:
        raise DataError(f"{path} holds no judgments.")
    return judgments


def _follow(last: Judgment | None, this: Judgment) -> None:
    """Raise ValueError unless `this` may come after `last`."""
    if last is None:
        if this.round != 1:
            raise ValueError(f"the first round is 1, not {this.round}.")
        return
    if this.round not in (last.round, last.round + 1):
        raise ValueError(f"round {this.round} can't follow round {last.round}.")
    if (this.verdict.score is None) != (last.verdict.score is None):
        raise ValueError("scores of single items and comparisons can't stand in one recording.")


def _judgment(line: bytes, rows: Mapping[str, int]) -> Judgment:
    """Raises ValueError that says what is wrong."""
    try:
        found = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"no valid JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ValueError("a JSON object is expected.")
    round_ = found.get("round", 1)
    if type(round_) is not int or round_ < 1:
        raise ValueError(f'"round" must be a whole number from 1, not {_shown(round_)}.')
    judge = found.get("judge")
    if judge is not None and (not isinstance(judge, str) or not judge):
        raise ValueError(f'"judge" must be a name, not {_shown(judge)}.')
    given = found.get("presented")
    if not isinstance(given, list) or not given:
        raise ValueError('"presented" must be an array of an item or more, in the order shown.')
    presented = tuple([_row(item, rows) for item in given])
    for item, times in Counter(presented).items():
        if times > 1:
            raise ValueError(
                f'"presented" names item {_shown(given[presented.index(item)])} twice.'
            )
    answers = [name for name in ANSWERS if name in found]
    if len(answers) != 1:
        raise ValueError(
            f'exactly one of "ranking", "winner" and "score" is expected, not {answers}.'
        )
    verdict = _verdict(answers[0], found[answers[0]], presented, given, rows)
    return Judgment(round_, presented, verdict, judge)


def _verdict(
    kind: str,
    answer: Any,
    presented: tuple[int, ...],
    given: Sequence[Any],
    rows: Mapping[str, int],
) -> Verdict:
    if kind == "score":
        if type(answer) not in (int, float) or not 0 <= answer <= 1:
            raise ValueError(f'"score" must be a number from 0 to 1, not {_shown(answer)}.')
        if len(presented) != 1:
            raise ValueError(f"a score is of one item, and {len(presented)} were presented.")
        return Verdict(presented, (), float(answer))
    if kind == "winner":
        if len(presented) != 2:
            raise ValueError(f'"winner" is of two items, and {len(presented)} were presented.')
        if answer is None or (answer == TIE and TIE not in given):
            return Verdict.of([presented])
        winner = _row(answer, rows)
        if winner not in presented:
            raise ValueError(f"the winner {_shown(answer)} was not presented.")
        return Verdict((winner, presented[presented[0] == winner]))
    if not isinstance(answer, list):
        raise ValueError(f'"ranking" must be an array of items, not {_shown(answer)}.')
    groups = [
        [_row(item, rows) for item in (place if isinstance(place, list) else [place])]
        for place in answer
    ]
    flat = Counter(item for group in groups for item in group)
    if flat != Counter(presented) or not all(groups):
        missing = [item for item, row in zip(given, presented, strict=True) if row not in flat]
        more = len(missing), sum(flat.values()), len(presented)
        raise ValueError(
            '"ranking" must name each item that was presented exactly once '
            f"({more[1]} places for {more[2]} items"
            + (f"; missing: {', '.join(map(_shown, missing[:5]))}" if missing else "")
            + ")."
        )
    if len(groups) == 1 and len(presented) == 2:
        return Verdict.of([presented])  # as a "winner" says it
    return Verdict.of(groups)


def _row(item: Any, rows: Mapping[str, int]) -> int:
    if isinstance(item, str):
        if item not in rows:
            raise ValueError(f"the dataset has no item with the id {_shown(item)}.")
        return rows[item]
    if type(item) is not int:
        raise ValueError(f"an item is a row number or an id in quotes, not {_shown(item)}.")
    if not 0 <= item < len(rows):
        raise ValueError(f"the dataset has rows 0 to {len(rows) - 1}, and none is {item}.")
    return item


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:60] + "…"


def of(rounds: Iterable[Verdicts], judges: Sequence[str]) -> Iterator[Judgment]:
    """The judgments in a run's verdicts, round by round; `judges` are their names, if told."""
    # Rounds without a verdict don't count: a recording has none.
    for number, verdicts in enumerate((some for some in rounds if len(some)), start=1):
        items, presented = verdicts.items.tolist(), verdicts.presented.tolist()
        tied, bounds = verdicts.tied.tolist(), verdicts.offsets.tolist()
        for v in range(len(verdicts)):
            span = slice(bounds[v], bounds[v + 1])
            ties = tuple(tied[span])
            score = None if verdicts.scores is None else float(verdicts.scores[v])
            said = Verdict(tuple(items[span]), ties if any(ties) else (), score)
            who = 0 if verdicts.judges is None else int(verdicts.judges[v])
            judge = judges[who] or None if judges else None
            yield Judgment(number, tuple(presented[span]), said, judge)


def lines(
    judgments: Iterable[Judgment], ids: Sequence[str], by: Literal["row", "id"] = "row"
) -> Iterator[str]:
    """The lines of a file that `read` reads as these judgments."""

    def name(row: int) -> int | str:
        return row if by == "row" else ids[row]

    for round_, some in groupby(judgments, key=lambda each: each.round):
        for group, (_, presented, verdict, judge) in enumerate(some):
            shown = [name(row) for row in presented]
            line: dict[str, Any] = {"round": round_, "group": group, "presented": shown}
            if verdict.score is not None:
                line["score"] = verdict.score
            elif len(presented) == 2:
                tie = None if TIE in shown else TIE
                line["winner"] = tie if verdict.tied else name(verdict.items[0])
            else:
                groups = [[name(row) for row in places] for places in verdict.groups]
                line["ranking"] = [places[0] if len(places) == 1 else places for places in groups]
            if judge is not None:
                line["judge"] = judge
            yield json.dumps(line, ensure_ascii=False)


def checksum(judgments: Iterable[Judgment]) -> str:
    """SHA-256, hexadecimal, of what was judged, however it was written down."""
    digest = hashlib.sha256()
    for judgment in judgments:
        round_, presented, verdict, judge = judgment
        said = [list(group) for group in verdict.groups]
        digest.update(orjson.dumps([round_, presented, said, verdict.score, judge]) + b"\n")
    return digest.hexdigest()
