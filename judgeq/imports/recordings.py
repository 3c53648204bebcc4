"""Recorded judgments: one JSON object a line, as they are published and shared.

    {"round": 1, "group": 0, "presented": [5, 2, 9], "ranking": [9, [5, 2]]}
    {"round": 1, "group": 1, "presented": ["a", "b"], "winner": "b"}
    {"round": 1, "group": 2, "presented": [7], "score": 0.25}
    {"round": 1, "group": 3, "presented": [5, 2, 9, 4], "partial_ranking": [9, [5, 2], 4]}

Items are row numbers of the dataset (numbers, from 0) or ids (strings). `presented` is the order
shown to the judge, `ranking` has the most of the feature first, tied items in an inner list; `winner`
is "tie" where there is none. `partial_ranking` has one inner list, of items whose order isn't known:
only the best and the worst were named, or the first few. `"ordered": false` says that the order shown
isn't known. Lines stand in the order in which they are rated. A file is read whole or not at all: what
is wrong is reported with the number of its line.
"""

from __future__ import annotations

import hashlib
import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from judgeq.datasets.dataset import RowIds
from judgeq.datasets.tables import listed, unpacked
from judgeq.errors import DataError
from judgeq.files import contents
from judgeq.rating.unread import (
    MIN_LIST,
    expected_as_presented,
    is_as_presented,
    is_too_many,
)
from judgeq.replies import TIE, answer_of
from judgeq.settings.run import REHEARSAL
from judgeq.text import several
from judgeq.types import Verdict, Verdicts

ANSWERS = frozenset(("ranking", "partial_ranking", "winner", "score"))
REPEATED = "{:,} judgments repeat an earlier one, by the same judge"
"""A sentence's beginning: a file may have been joined to itself, or a judge asked again."""

Numbers: TypeAlias = Literal["rows", "ids"]
"""What a number without quotes stands for."""
Item: TypeAlias = int | str


class _Line(BaseModel):
    """A line as it is written; the descriptions are what messages say is expected."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)
    round: int = Field(1, ge=1, description="a whole number from 1")
    group: Any = None
    presented: list[Item] = Field(min_length=1, description="an array of items, in the order shown")
    # No default of its own is made for each line.
    ranking: list[Item | list[Item]] | None = Field(None, description="an array of items")
    partial_ranking: list[Item | list[Item]] | None = Field(None, description="an array of items")
    winner: Item | None = Field(None, description="an item or null")
    score: float = Field(0.0, ge=0, le=1, description="a number from 0 to 1")
    judge: str | None = Field(None, min_length=1, description="a name")
    ordered: bool = Field(True, description="true or false")


class Judgment(NamedTuple):
    """One line: the items in the order presented, and the verdict on them. `judge` is the judge,
    where several did; `ordered` is False where the order presented isn't known."""

    round: int
    presented: tuple[int, ...]
    verdict: Verdict
    judge: str | None = None
    ordered: bool = True


class Recording(NamedTuple):
    """The judgments of a file, and what its reader should know: lines left out, keys not known."""

    judgments: list[Judgment]
    notices: tuple[str, ...]


def read(path: Path, ids: Sequence[str], numbers: Numbers | None = None) -> Recording:
    """The judgments of a file over the dataset with these ids. `numbers` says what a number without
    quotes stands for (None: a row, unless it could be another item's id).

    Raises DataError naming the file, and the line of what is wrong.
    """
    data = unpacked(str(path), contents(path)).removeprefix(BOM_UTF8)
    rows, judgments, groups, unknown = (
        _Rows(ids, numbers),
        list[Judgment](),
        list[str](),
        set[str](),
    )
    for number, text in enumerate(data.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            line = _Line.model_validate_json(text)
            judgment = _judgment(line, rows)
            _follow(judgments[-1] if judgments else None, judgment)
        except ValueError as error:
            wrong = _wrong(error) if isinstance(error, ValidationError) else error
            raise DataError(f"{path}, line {number}: {wrong}") from error
        judgments.append(judgment)
        groups.append(repr(line.group))
        unknown.update(line.model_extra or ())
    if not judgments:
        raise DataError(f"{path} holds no judgments.")
    notices = []
    if repeated := len(judgments) - len({*zip(judgments, groups, strict=True)}):
        notices.append(f"{REPEATED.format(repeated)}, group included: each counts.")
    if unknown:
        names, known = listed(sorted(unknown)), ", ".join(_Line.model_fields)
        notices.append(f"keys that aren't known were not read: {names}. Known are {known}.")
    return Recording(judgments, tuple(f"{path}: {notice}" for notice in notices))


def _wrong(errors: ValidationError) -> str:
    """What is expected of a line that is wrong."""
    error = errors.errors()[0]
    if error["type"] == "json_invalid":
        return f"no valid JSON: {error['ctx']['error']}."
    if not error["loc"]:
        return "a JSON object is expected."
    name, *inside = error["loc"]
    expected = f'"{name}" must be {_Line.model_fields[str(name)].description}'
    if any(isinstance(place, int) for place in inside):
        expected = "an item is a row number or an id in quotes"
    return f"{expected}, not {_quote(None if error['type'] == 'missing' else error['input'])}."


def _follow(last: Judgment | None, this: Judgment) -> None:
    """Raise ValueError unless `this` may come after `last`."""
    if last is None:
        if this.round != 1:
            raise ValueError(f"the first round is 1, not {this.round}.")
    elif this.round not in (last.round, last.round + 1):
        raise ValueError(f"round {this.round} can't follow round {last.round}.")
    elif this.round == last.round and (this.verdict.score is None) != (last.verdict.score is None):
        raise ValueError("scores of single items and comparisons can't stand in one round.")


def _judgment(line: _Line, rows: _Rows) -> Judgment:
    """Raises ValueError that says what is wrong."""
    if line.judge and line.judge.startswith(REHEARSAL):
        raise ValueError("it is from a rehearsal: its answer is made up, and no judgment.")
    presented = tuple(map(rows.__getitem__, line.presented))
    answers = [*ANSWERS & line.model_fields_set]
    if len(answers) != 1:
        raise ValueError(f"exactly one of {', '.join(sorted(ANSWERS))} is expected, not {answers}.")
    if len(set(presented)) < len(presented):
        twice = line.presented[presented.index(max(presented, key=presented.count))]
        raise ValueError(f'"presented" names item {_quote(twice)} twice.')
    verdict = _verdict(answers[0], line, presented, rows)
    return Judgment(line.round, presented, verdict, line.judge, line.ordered)


def _verdict(kind: str, line: _Line, presented: tuple[int, ...], rows: _Rows) -> Verdict:
    """What is said of the items presented. Raises ValueError as `_judgment`."""
    n = len(presented)
    expected = {"score": 1, "winner": 2}.get(kind, n)
    if n != expected:
        raise ValueError(f'"{kind}" is of {several(expected, "item")}, and {n} were presented.')
    if kind == "score":
        return Verdict(presented, (), line.score)
    if kind == "winner":
        if line.winner is None or (line.winner == TIE and TIE not in line.presented):
            return Verdict.of([presented])
        winner = rows[line.winner]
        if winner not in presented:
            raise ValueError(f"the winner {_quote(line.winner)} was not presented.")
        return Verdict((winner, presented[presented[0] == winner]))
    places: list[Item | list[Item]] = getattr(line, kind) or []
    groups = [
        [rows[i] for i in (place if isinstance(place, list) else [place])] for place in places
    ]
    flat = [item for group in groups for item in group]
    if sorted(flat) != sorted(presented) or not all(groups):
        raise ValueError(f'"{kind}" must name each item that was presented exactly once.')
    partial = kind == "partial_ranking"
    if len(groups) == 1 and n == 2 and not partial:
        groups = [[*presented]]  # a tie of two is as a "winner" says it
    return Verdict.of(groups, partial=partial)


class _Rows(dict[Item, int]):
    """The rows of items by id, and by number as far as asked for. Raises ValueError where there is none,
    or no one."""

    def __init__(self, ids: Sequence[str], numbers: Numbers | None) -> None:
        super().__init__((name, row) for row, name in enumerate(ids))
        self._n, self._numbers = len(ids), numbers

    def __missing__(self, item: Item) -> int:
        row = named = self.get(str(item))
        if isinstance(item, int) and self._numbers != "ids":
            if not 0 <= item < self._n:
                hint = "" if named is None else " --items ids takes numbers for ids."
                raise ValueError(
                    f"the dataset has rows 0 to {self._n - 1}, and none is {item}.{hint}"
                )
            if self._numbers is None and named not in (None, item):
                raise ValueError(
                    f'{item} may be row {item} or the item in row {named}, whose id is "{item}": '
                    "--items rows or --items ids says which. (In quotes it is always an id.)"
                )
            row = item
        if row is None:
            raise ValueError(f"the dataset has no item with the id {_quote(str(item))}.")
        self[item] = row
        return row


def _quote(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:60] + "…"


def check_groups(judgments: Iterable[Judgment], groups: Sequence[str]) -> None:
    """Raise DataError for a judgment that compares items of several groups."""
    for number, judgment in enumerate(judgments, start=1):
        names = dict.fromkeys(groups[row] for row in judgment.presented)
        if len(names) > 1:
            raise DataError(
                f"judgment {number:,} compares items of {several(len(names), 'group')}: "
                f"{listed(names, 5)}. With --group-column all are within a group."
            )


def renumbered(judgments: list[Judgment]) -> list[Judgment]:
    """With rounds from 1 without a gap: one whose lines were all left out is none."""
    rounds = sorted({judgment.round for judgment in judgments})
    number = {round_: place for place, round_ in enumerate(rounds, start=1)}
    return [judgment._replace(round=number[judgment.round]) for judgment in judgments]


# Lists ranked as presented, as some programs record a call that failed


def as_presented(judgment: Judgment) -> bool:
    """Return whether a list was ranked exactly in the order presented, where that is known; never of
    fewer than MIN_LIST items."""
    presented = judgment.presented
    is_list = len(presented) >= MIN_LIST and judgment.ordered
    return is_list and is_as_presented(presented, judgment.verdict)


def without_as_presented(recording: Recording) -> Recording:
    """A recording without the lists that were ranked `as_presented`, and a sentence that counts them.

    Raises DataError where nothing is left.
    """
    kept = [judgment for judgment in recording.judgments if not as_presented(judgment)]
    dropped = len(recording.judgments) - len(kept)
    if not kept:
        raise DataError(f"every one of the {dropped:,} judgments is a list ranked as presented.")
    notice = f"{several(dropped, 'list')} ranked exactly as presented: left out."
    return Recording(renumbered(kept), (*recording.notices, notice))


def too_many_as_presented(judgments: Iterable[Judgment]) -> str | None:
    """Return a warning where more lists were ranked `as_presented` than chance allows, or None."""
    lists = [one for one in judgments if len(one.presented) >= MIN_LIST and one.ordered]
    count = sum(map(as_presented, lists))
    expected = expected_as_presented([len(one.presented) for one in lists])
    if not is_too_many(count, expected):
        return None
    return (
        f"{count:,} of {len(lists):,} lists were ranked exactly in the order presented, where chance "
        f"gives {expected:.2g}. Some programs record calls that failed so: `judgeq import "
        "--drop-identity` leaves such lists out."
    )


# From a run, and how it is written down


def of(rounds: Iterable[Verdicts], judges: Sequence[str]) -> Iterator[Judgment]:
    """The judgments in a run's verdicts, round by round; `judges` are their names, if known."""
    # Rounds without a verdict don't count: a recording has none.
    for number, verdicts in enumerate(filter(len, rounds), start=1):
        places, known = verdicts.judges.tolist(), verdicts.ordered.tolist()
        columns = verdicts.questions, verdicts.each(), places, known
        for shown, said, place, ordered in zip(*columns, strict=True):
            judge = judges[place] or None if judges else None
            yield Judgment(number, tuple(shown.tolist()), said, judge, ordered)


def lines(
    judgments: Iterable[Judgment], ids: Sequence[str], by: Literal["row", "id"] = "row"
) -> Iterator[str]:
    """The lines of a file that `read` reads as these judgments."""

    def name(row: int) -> int | str:
        return row if by == "row" else ids[row]

    for round_, of_round in groupby(judgments, key=lambda judgment: judgment.round):
        for number, (_, presented, verdict, judge, ordered) in enumerate(of_round):
            shown = [name(row) for row in presented]
            line = {"round": round_, "group": number, "presented": shown}
            line |= answer_of(verdict, name, None if TIE in shown else TIE)
            if judge is not None:
                line["judge"] = judge
            if not ordered:
                line["ordered"] = False
            yield json.dumps(line, ensure_ascii=False)


def by_default(ids: Sequence[str]) -> Literal["row", "id"]:
    """How to name items so that they are read back: by row, unless a row's number is the id of
    another row."""
    rows = {} if isinstance(ids, RowIds) else {name: row for row, name in enumerate(ids)}
    clear = all(rows.get(str(row), row) == row for row in range(len(rows)))
    return "row" if clear else "id"


def checksum(judgments: Iterable[Judgment]) -> str:
    """SHA-256, hexadecimal, of what was judged, however it was written down."""
    digest = hashlib.sha256()
    for round_, presented, verdict, judge, ordered in judgments:
        groups = verdict.groups if verdict.tied else zip(verdict.items)
        said = [list(group) for group in groups]
        fields = [round_, presented, said, verdict.score, judge]
        fields += [False] * (not ordered) + ["partial"] * verdict.partial
        digest.update(orjson.dumps(fields) + b"\n")
    return digest.hexdigest()
