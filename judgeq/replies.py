"""Reply text → verdict, and its reason. And back: the reply that a simulated judge gives.

A reply is a verdict only if it names every label exactly once; nothing is repaired or guessed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import orjson

from judgeq.errors import UnusableReplyError
from judgeq.types import Match, Verdict

TIE = "tie"
"""What stands for a winner of two where there is none."""
_UNREADABLE = "the answer holds JSON that can't be read."
_OPENED = re.compile(r'\{\s*"')


@lru_cache(maxsize=256)
def labels(k: int) -> tuple[str, ...]:
    """The labels of k items as presented: A … Z, AA … ZZ, AAA …"""
    labels = []
    for number in range(1, k + 1):
        label = ""
        while number:
            number, letter = divmod(number - 1, 26)
            label = chr(ord("A") + letter) + label
        labels.append(label)
    return tuple(labels)


def answer_of(
    verdict: Verdict, name: Callable[[int], Any], tie: str | None = TIE
) -> dict[str, Any]:
    """What a verdict says, as replies and recordings write it, whose items have these names."""
    if verdict.score is not None:
        return {"score": verdict.score}
    places: list[Any] = [*map(name, verdict.items)]
    if len(places) == 2:
        return {"winner": tie if verdict.tied else places[0]}
    if verdict.tied:
        groups = [[*map(name, group)] for group in verdict.groups]
        places = [group[0] if len(group) == 1 else group for group in groups]
    return {"partial_ranking" if verdict.partial else "ranking": places}


def write_reply(verdict: Verdict, match: Match, reason: str | None = None) -> str:
    """The reply that says this verdict, and why, as a well-behaved judge would write it."""
    if reason is not None:
        return f'{{"reason": {json.dumps(reason)}, {write_reply(verdict, match)[1:]}'
    names = dict(zip(match.items, labels(len(match.items)), strict=True))
    said = answer_of(verdict, names.__getitem__)
    return orjson.dumps(said).decode() if "ranking" in said else json.dumps(said)


def read_reply(text: str, match: Match, ties: bool = False) -> Verdict:
    """The verdict that a reply gives. Raises UnusableReplyError, which says what is wrong with it."""
    names = labels(len(match.items))
    if match.kind == "pair":
        return _winner(_answer(text, "winner"), match, names, ties)
    if match.kind == "direct":
        return Verdict(match.items, (), _score(text))
    answer = _answer(text, "ranking")
    if not isinstance(answer, list):
        raise UnusableReplyError(f'"ranking" must be an array of labels, not {_excerpt(answer)}.')
    return _ranking(answer, match, names, ties)


def reason_in(reply: str) -> str | None:
    """The reason that a raw reply gives, in full; None where it gives none, or no words.

    A stranger's words of any length: to be made safe and cut where they are shown (escaping.py).
    """
    try:
        words = _answer(reply, "reason")
    except UnusableReplyError:
        return None
    if not isinstance(words, str):
        return None
    return words.encode(errors="replace").decode().strip() or None  # half a surrogate is no text


def _score(text: str) -> float:
    answer = _answer(text, "score")
    if type(answer) not in (int, float) or not 0 <= answer <= 1:
        raise UnusableReplyError(f'"score" must be a number from 0 to 1, not {_excerpt(answer)}.')
    return float(answer)


def _winner(answer: Any, match: Match, names: Sequence[str], ties: bool) -> Verdict:
    first, second = match.items
    if answer == names[0]:
        return Verdict((first, second))
    if answer == names[1]:
        return Verdict((second, first))
    if answer == TIE and ties:
        return Verdict((first, second), (False, True))
    raise UnusableReplyError(
        f'"winner" must be "{names[0]}" or "{names[1]}"'
        + (' or "tie"' if ties else "")
        + f", not {_excerpt(answer)}."
    )


def _ranking(answer: list[Any], match: Match, names: Sequence[str], ties: bool) -> Verdict:
    """The verdict of a ranking."""
    rows = dict(zip(names, match.items, strict=True))
    with suppress(KeyError, TypeError):  # most are labels alone
        ranked = tuple([rows[label] for label in answer])
        if len(set(ranked)) == len(ranked) == len(rows):
            return Verdict(ranked)
    places = [place if isinstance(place, list) else [place] for place in answer]
    flat = [label for place in places for label in place]
    if not all(isinstance(label, str) for label in flat):
        raise UnusableReplyError("the ranking holds something other than labels.")
    if len(flat) != len(names) or set(flat) != set(names):
        raise UnusableReplyError(_miscounted(flat, names))
    if not all(places):
        raise UnusableReplyError("the ranking holds an empty place.")
    if not ties and any(len(place) > 1 for place in places):
        raise UnusableReplyError("ties are not allowed: each label needs a place of its own.")
    return Verdict.of([rows[label] for label in place] for place in places)


def _miscounted(given: Sequence[str], names: Sequence[str]) -> str:
    counts = Counter(given)
    wrong = {
        "missing:": [name for name in names if name not in counts],
        "named more than once:": [name for name in names if counts[name] > 1],
        "no such label:": sorted(counts.keys() - names),
    }
    parts = [
        f"{what} {', '.join(map(_excerpt, labels[:20]))}"
        for what, labels in wrong.items()
        if labels
    ]
    return f"each label must be named exactly once ({'; '.join(parts)})."


def _excerpt(value: Any) -> str:
    try:
        text = value if isinstance(value, str) else json.dumps(value)
    except RecursionError:
        text = "(nested too deeply)"
    return repr(text if len(text) <= 40 else text[:40] + "…")


def _answer(text: str, key: str) -> Any:
    """The value of `key` in the reply's JSON object; code fences and prose around it are read
    through, as long as the key is there exactly once."""
    try:
        whole = orjson.loads(text)
    except orjson.JSONDecodeError:
        pass
    else:
        if not isinstance(whole, dict) or key not in whole:
            raise UnusableReplyError(f'the answer must be a JSON object with "{key}".')
        # orjson takes the last of several equal keys: look closer where there may be some.
        if text.count(key) == 1 and "\\" not in text:
            return whole[key]
    values = [value for pairs in _objects(text, key) for name, value in pairs if name == key]
    if len(values) == 1:
        return values[0]
    if not text.strip():
        raise UnusableReplyError("the answer was empty.")
    if values:
        raise UnusableReplyError(f'the answer gives "{key}" {len(values)} times.')
    raise UnusableReplyError(f'the answer holds no JSON object with "{key}".')


def _objects(text: str, key: str) -> Iterator[Sequence[tuple[str, Any]]]:
    """The JSON objects in a text, outermost only, as pairs: a key may stand there twice.

    Line breaks and the like may stand in strings as they are. Raises UnusableReplyError where an object
    may lie within one that can't be read, as where a reason quotes a text with its marks: nothing
    closes that one before it, or the key has a value outside of all objects after it. And after 100
    tries, so that a hostile reply costs little.
    """
    decoder = json.JSONDecoder(strict=False, object_pairs_hook=tuple)
    at, last = text.find("{"), len(text)
    for _ in range(100):
        if at < 0:
            break
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            end = at + 1
            inner = text.find("{", end)
            if inner > 0 and _OPENED.match(text, at) and text.find("}", end, inner) < 0:
                raise UnusableReplyError(_UNREADABLE) from None
        else:
            last = end
            yield value
        at = text.find("{", end)
    if re.search(rf'"{key}"\s*:', text[last:]):
        raise UnusableReplyError(_UNREADABLE)
    if at >= 0:
        raise UnusableReplyError("the answer is cluttered with braces that open no JSON object.")
