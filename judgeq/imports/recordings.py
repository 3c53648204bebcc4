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
is wrong is reported with the number of its line. What is left out all the same (an item compared with
itself, a copy of an earlier line) is reported too.
"""

from __future__ import annotations

import hashlib
import json
import math
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from judgeq.datasets.dataset import RowIds
from judgeq.errors import DataError
from judgeq.files import ordinary
from judgeq.settings.run import REHEARSAL
from judgeq.text import listed, several
from judgeq.types import Verdict, Verdicts

TIE = "tie"
ANSWERS = ("ranking", "partial_ranking", "winner", "score")
EXPECTED = {
    "round": "a whole number from 1",
    "presented": "an array of an item or more, in the order shown",
    "ranking": "an array of items",
    "partial_ranking": "an array of items",
    "score": "a number from 0 to 1",
    "judge": "a name",
    "ordered": "true or false",
}
ITSELF = "compared an item with itself, which says nothing: left out."
COPY = (
    "repeated an earlier line (the same round, group, judge, items and answer), as a file does that was "
    "joined to itself: left out, each judgment counts once."
)
LISTED = 10
"""So many lines are named in a notice; the others are counted."""
LIST = 3
"""A list has so many items at least. Of two items the order presented is the answer in half of the
cases, whoever answers: where it is more, that is position bias, which the win rates by slot show."""
CHANCE = 1e-3
"""Lists that were ranked as presented are reported where chance alone gives so many more rarely."""

Numbers: TypeAlias = Literal["rows", "ids"]
"""What a number without quotes stands for."""


class _Line(BaseModel):
    """A line as it is written."""

    model_config = ConfigDict(strict=True)
    round: Annotated[int, Field(ge=1)] = 1
    group: Any = None
    presented: Annotated[list[Any], Field(min_length=1)]
    ranking: list[Any] = []
    partial_ranking: list[Any] = []
    winner: Any = None
    score: Annotated[float, Field(ge=0, le=1)] = 0.0
    judge: Annotated[str, Field(min_length=1)] | None = None
    ordered: bool = True


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

    A line is a copy where it repeats another's round, group, judge, items and answer. Without group
    and judge that can't be known, since several people may have said the same. Raises DataError naming
    the file, and the line of what is wrong.
    """
    try:
        data = ordinary(path).read_bytes()
    except OSError as error:
        raise DataError(f"{path} can't be read: {error.strerror}.") from error
    items = _Items({name: row for row, name in enumerate(ids)}, numbers)
    judgments: list[Judgment] = []
    seen: set[tuple[str, Judgment]] = set()
    odd: dict[str, list[int]] = {
        ITSELF: [],
        COPY: [],
    }  # what lines are left out for, with their numbers
    alike = 0
    unknown: Counter[str] = Counter()
    last: Judgment | None = None
    for number, data_line in enumerate(data.removeprefix(BOM_UTF8).split(b"\n"), start=1):
        if not data_line.strip():
            continue
        try:
            line, others = _line(data_line)
            judgment = _judgment(line, items)
            _follow(last, judgment)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
        last = judgment
        unknown.update(others)
        key = repr(line.group), judgment
        if _is_of_itself(judgment.presented):
            odd[ITSELF].append(number)
        elif key in seen and (line.group is not None or line.judge):
            odd[COPY].append(number)
        else:
            alike += key in seen
            seen.add(key)
            judgments.append(judgment)
    if not judgments:
        but = " but of items with themselves" if odd[ITSELF] else ""
        raise DataError(f"{path} holds no judgments{but}.")
    notices = [f"{_lines(numbers)} {what}" for what, numbers in odd.items() if numbers]
    if alike:
        notices.append(
            f"{alike:,} of the lines are equal to an earlier one. They name neither "
            '"group" nor "judge", so that they may be of several people: each counts.'
        )
    if unknown:
        named = [f"{_quote(name)} ({several(n, 'line')})" for name, n in unknown.most_common()]
        notices.append(
            f"keys that aren't known were not read: {', '.join(_first(named))}. "
            f"Known are {', '.join(sorted(_Line.model_fields))}."
        )
    return Recording(renumbered(judgments), tuple(f"{path}: {text}" for text in notices))


def as_presented(judgment: Judgment) -> bool:
    """Whether a list was ranked exactly in the order presented, where that is known: as some programs
    record a call that failed. Never of fewer than LIST items."""
    ranked = judgment.verdict
    return (
        len(judgment.presented) >= LIST
        and judgment.ordered
        and not any(ranked.tied)
        and ranked.items == judgment.presented
    )


def without_as_presented(recording: Recording) -> Recording:
    """A recording without the lists that were ranked `as_presented`, and a sentence that counts them.

    Raises DataError where nothing is left.
    """
    kept = [judgment for judgment in recording.judgments if not as_presented(judgment)]
    dropped = len(recording.judgments) - len(kept)
    if not kept:
        raise DataError(f"every one of the {dropped:,} judgments is a list ranked as presented.")
    lists = sum(len(judgment.presented) >= LIST for judgment in recording.judgments)
    return Recording(
        renumbered(kept),
        (
            *recording.notices,
            f"{dropped:,} of {lists:,} lists were ranked exactly as presented: left out.",
        ),
    )


def too_many_as_presented(judgments: Iterable[Judgment]) -> str | None:
    """A warning where more lists were ranked `as_presented` than chance allows; None where not.

    By chance a list of k is with probability 1/k!. Of independent lists, of which μ are expected, c > μ
    or more are with a probability of at most exp(c − μ)·(μ/c)^c (Chernoff's bound, which holds for
    lists of any sizes): the warning comes where that is below CHANCE.
    """
    lists = [one for one in judgments if len(one.presented) >= LIST and one.ordered]
    count = sum(map(as_presented, lists))
    sizes = Counter(len(one.presented) for one in lists)
    expected = sum(times / math.factorial(size) for size, times in sizes.items())
    # Logarithms: a factorial of hundreds is beyond every float, and its inverse 0.
    if count <= expected or (
        expected > 0 and count - expected + count * math.log(expected / count) > math.log(CHANCE)
    ):
        return None
    return (
        f"{count:,} of {len(lists):,} lists were ranked exactly in the order presented, where chance "
        f"gives {expected:.2g}. Some programs record calls that failed so: `judgeq import "
        "--drop-identity` leaves such lists out. (Where lists were shown in the order of a rating, it "
        "may be what the judge said.)"
    )


def _lines(numbers: Sequence[int]) -> str:
    """ "lines 3, 5 and 7"."""
    return f"line{'s' * (len(numbers) > 1)} {listed(_first([f'{number:,}' for number in numbers]))}"


def _first(names: list[str]) -> list[str]:
    """The first LISTED of these, and how many more there are."""
    return [*names[:LISTED], *([f"{len(names) - LISTED:,} more"] if names[LISTED:] else [])]


def renumbered(judgments: Sequence[Judgment]) -> list[Judgment]:
    """With rounds from 1 without a gap: one whose lines were all left out is none."""
    rounds = dict.fromkeys(judgment.round for judgment in judgments)
    number = {round_: place for place, round_ in enumerate(rounds, start=1)}
    return [judgment._replace(round=number[judgment.round]) for judgment in judgments]


def _is_of_itself(presented: Sequence[int]) -> bool:
    return len(presented) == 2 and presented[0] == presented[1]


def _follow(last: Judgment | None, this: Judgment) -> None:
    """Raise ValueError unless `this` may come after `last`."""
    if last is None:
        if this.round != 1:
            raise ValueError(f"the first round is 1, not {this.round}.")
    elif this.round not in (last.round, last.round + 1):
        hint = " Import each recording by itself." if this.round == 1 else ""
        raise ValueError(f"round {this.round} can't follow round {last.round}.{hint}")
    elif this.round == last.round and (this.verdict.score is None) != (last.verdict.score is None):
        raise ValueError("scores of single items and comparisons can't stand in one round.")


def _line(data: bytes) -> tuple[_Line, set[str]]:
    """A line, and its keys that aren't known. Raises ValueError that says what is wrong."""
    try:
        fields = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"no valid JSON: {error}.") from error
    if not isinstance(fields, dict):
        raise ValueError("a JSON object is expected.")
    try:
        return _Line.model_validate(fields), fields.keys() - _Line.model_fields
    except ValidationError as errors:
        name = str(errors.errors()[0]["loc"][0])
        wrong = f'"{name}" must be {EXPECTED[name]}, not {_quote(fields.get(name))}.'
        raise ValueError(wrong) from errors


def _judgment(line: _Line, items: _Items) -> Judgment:
    """Raises ValueError that says what is wrong."""
    if str(line.judge).startswith(REHEARSAL):
        raise ValueError("it is from a rehearsal: its answer is made up, and no judgment.")
    presented = tuple([items.row(item) for item in line.presented])
    answers = [name for name in ANSWERS if name in line.model_fields_set]
    if len(answers) != 1:
        raise ValueError(
            'exactly one of "ranking", "partial_ranking", "winner" and "score" is expected, not '
            f"{answers}."
        )
    verdict = Verdict(presented)
    if not _is_of_itself(presented):
        if len(set(presented)) < len(presented):
            twice = line.presented[presented.index(max(presented, key=presented.count))]
            raise ValueError(f'"presented" names item {_quote(twice)} twice.')
        verdict = _verdict(answers[0], line, presented, items)
    return Judgment(line.round, presented, verdict, line.judge, line.ordered)


def _verdict(kind: str, line: _Line, presented: tuple[int, ...], items: _Items) -> Verdict:
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
        winner = items.row(line.winner)
        if winner not in presented:
            raise ValueError(f"the winner {_quote(line.winner)} was not presented.")
        return Verdict((winner, presented[presented[0] == winner]))
    groups = [
        [items.row(item) for item in (place if isinstance(place, list) else [place])]
        for place in getattr(line, kind)
    ]
    flat = [item for group in groups for item in group]
    if sorted(flat) != sorted(presented) or not all(groups):
        given = zip(line.presented, presented, strict=True)
        missing = [_quote(item) for item, row in given if row not in flat]
        which = f"; missing: {', '.join(missing[:5])}" if missing else ""
        raise ValueError(
            f'"{kind}" must name each item that was presented exactly once '
            f"({len(flat)} places for {n} items{which})."
        )
    partial = kind == "partial_ranking"
    if len(groups) == 1 and n == 2 and not partial:
        groups = [[*presented]]  # a tie of two is as a "winner" says it
    return Verdict.of(groups, partial=partial)


class _Items(NamedTuple):
    """The items of the dataset by id, and what a number without quotes stands for."""

    rows: Mapping[str, int]
    numbers: Numbers | None

    def row(self, item: Any) -> int:
        """The row of an item as it is named. Raises ValueError where there is none, or no one."""
        if type(item) is not int and not isinstance(item, str):
            raise ValueError(f"an item is a row number or an id in quotes, not {_quote(item)}.")
        named = self.rows.get(str(item))
        if isinstance(item, str) or self.numbers == "ids":
            if named is None:
                raise ValueError(f"the dataset has no item with the id {_quote(str(item))}.")
            return named
        if self.numbers == "rows":
            named = None
        if not 0 <= item < len(self.rows):
            hint = f' But there is an item with the id "{item}": --items ids takes numbers for ids.'
            raise ValueError(
                f"the dataset has rows 0 to {len(self.rows) - 1}, and none is {item}."
                + ("" if named is None else hint)
            )
        if named not in (None, item):
            raise ValueError(
                f'{item} may be row {item} or the item in row {named}, whose id is "{item}": '
                "--items rows or --items ids says which. (In quotes it is always an id.)"
            )
        return item


def _quote(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:60] + "…"


def of(rounds: Iterable[Verdicts], judges: Sequence[str]) -> Iterator[Judgment]:
    """The judgments in a run's verdicts, round by round; `judges` are their names, if known."""
    # Rounds without a verdict don't count: a recording has none.
    for number, verdicts in enumerate(filter(len, rounds), start=1):
        items, presented = verdicts.items.tolist(), verdicts.presented.tolist()
        tied, bounds = verdicts.tied.tolist(), verdicts.offsets.tolist()
        columns: list[list[Any]] = [
            [default] * len(verdicts) if values is None else values.tolist()
            for values, default in (
                (verdicts.scores, None),
                (verdicts.partial, False),
                (verdicts.judges, 0),
                (verdicts.ordered, True),
            )
        ]
        for ends, score, partial, place, ordered in zip(pairwise(bounds), *columns, strict=True):
            span = slice(*ends)
            ties = tuple(tied[span])
            said = Verdict(tuple(items[span]), ties if any(ties) else (), score, partial)
            judge = judges[place] or None if judges else None
            yield Judgment(number, tuple(presented[span]), said, judge, ordered)


def lines(
    judgments: Iterable[Judgment], ids: Sequence[str], by: Literal["row", "id"] = "row"
) -> Iterator[str]:
    """The lines of a file that `read` reads as these judgments."""

    def name(row: int) -> int | str:
        return row if by == "row" else ids[row]

    for round_, of_round in groupby(judgments, key=lambda judgment: judgment.round):
        for number, (_, presented, verdict, judge, ordered) in enumerate(of_round):
            shown = [name(row) for row in presented]
            groups = [[name(row) for row in group] for group in verdict.groups]
            line: dict[str, Any] = {"round": round_, "group": number, "presented": shown}
            if verdict.score is not None:
                line["score"] = verdict.score
            elif len(presented) == 2:
                tie = None if TIE in shown else TIE
                line["winner"] = tie if verdict.tied else groups[0][0]
            else:
                kind = "partial_ranking" if verdict.partial else "ranking"
                line[kind] = [group[0] if len(group) == 1 else group for group in groups]
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
    for judgment in judgments:
        round_, presented, verdict, judge, ordered = judgment
        said = [list(group) for group in verdict.groups]
        fields = [round_, presented, said, verdict.score, judge]
        fields += [False] * (not ordered) + ["partial"] * verdict.partial
        digest.update(orjson.dumps(fields) + b"\n")
    return digest.hexdigest()
