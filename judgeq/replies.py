"""Reply text → verdict, and its reason. And back: the reply that a simulated judge gives.

A reply is a verdict only if it names every label exactly once; nothing is repaired or guessed. Of a
model that thinks in its reply, the answer is what follows the end of its thinking.
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
CUT_OFF = "the answer was cut off at the limit of output tokens."
EMPTY = "the answer was empty"
THINKING_UNFINISHED = "the answer ends within the model's thinking."
THINKING_QUOTED = "the end of the model's thinking may be one that it quotes."
_OPENED = re.compile(r'\{\s*"')
# The marks of thinking, as chat templates write them: DeepSeek, Qwen and many others; Seed-OSS;
# Gemini; Magistral; Kimi; gpt-oss.
_THINKING_START = re.compile(
    r"\s*(?:<(?:seed:)?th(?:ink(?:ing)?|ought)>|\[THINK\]|◁think▷|<\|channel\|>analysis)",
    re.IGNORECASE,
)
_THINKING_END = re.compile(
    r"</(?:seed:)?th(?:ink(?:ing)?|ought)>|\[/THINK\]|◁/think▷|<\|channel\|>final<\|message\|>",
    re.IGNORECASE,
)
# A label as some models write it: "a", "text A", "<text A>".
_LOOSE_LABEL = re.compile(r"\s*<?(?:text\s+)?([a-z]{1,9})>?\s*", re.IGNORECASE)
_BEFORE_OBJECT = re.compile(r"\s*(?:```\w*\s*)?(?=\{)")
_MAX_OBJECTS = 100
_MAX_FAILURES = 20


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


def kind_of(problem: str) -> str:
    """Return what kind of fault a problem with a reply is, without what is in brackets or quoted."""
    return problem.partition(" (")[0].partition(", not ")[0].rstrip(". ")


def _score(text: str) -> float:
    answer = _answer(text, "score")
    if type(answer) not in (int, float) or not 0 <= answer <= 1:
        raise UnusableReplyError(f'"score" must be a number from 0 to 1, not {_excerpt(answer)}.')
    return float(answer)


def _winner(answer: Any, match: Match, names: Sequence[str], ties: bool) -> Verdict:
    first, second = match.items
    label = _read_label(answer, frozenset(names)) if isinstance(answer, str) else answer
    if label == names[0]:
        return Verdict((first, second))
    if label == names[1]:
        return Verdict((second, first))
    if ties and isinstance(answer, str) and answer.strip().lower() == TIE:
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
    label_set = frozenset(names)
    places = [[_read_label(label, label_set) for label in place] for place in places]
    flat = [label for place in places for label in place]
    if len(flat) != len(names) or set(flat) != set(names):
        raise UnusableReplyError(_miscounted(flat, names))
    if not all(places):
        raise UnusableReplyError("the ranking holds an empty place.")
    if not ties and any(len(place) > 1 for place in places):
        raise UnusableReplyError("ties are not allowed: each label needs a place of its own.")
    return Verdict.of([rows[label] for label in place] for place in places)


def _read_label(name: str, labels: frozenset[str]) -> str:
    """Return the label that a name surely stands for: A for "a" or "text A". Others stay as they are."""
    if name in labels:
        return name
    loose = _LOOSE_LABEL.fullmatch(name)
    label = loose[1].upper() if loose else name
    return label if label in labels else name


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
    """Return the value of `key` in the reply's JSON object.

    Thinking before it, code fences and prose around it are read through, as long as the key is there
    exactly once. Raises UnusableReplyError, which says what is wrong.
    """
    try:
        whole = orjson.loads(text)
    except orjson.JSONDecodeError:
        text = without_thinking(text)
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
        raise UnusableReplyError(f"{EMPTY}.")
    if values:
        raise UnusableReplyError(f'the answer gives "{key}" {len(values)} times.')
    raise UnusableReplyError(f'the answer holds no JSON object with "{key}".')


def without_thinking(text: str) -> str:
    """Return what follows the end of the model's thinking; the text itself where it has none.

    A judged text may hold an end mark, and an answer of its own after it, which a model may quote.
    Raises UnusableReplyError where that can't be told apart, or where the thinking has no end.
    """
    ends, is_open = _ends_of_thinking(text)
    begins = _THINKING_START.match(text) is not None
    if not ends:
        if begins:
            raise UnusableReplyError(THINKING_UNFINISHED)
        return text
    if len(ends) > 1:
        raise UnusableReplyError(THINKING_QUOTED)
    thinking = text[: ends[0].start()]
    answer = text[ends[0].end() :]
    if _THINKING_START.match(answer):
        raise UnusableReplyError(THINKING_UNFINISHED)
    if begins or not thinking.strip():
        is_quoted = is_open and bool(answer.strip()) and not _is_alone(answer)
    else:  # perhaps no thinking, but an answer that quotes the mark
        begins_with_object = _BEFORE_OBJECT.match(thinking) is not None
        is_quoted = is_open or begins_with_object or not _is_alone(answer)
    if is_quoted:
        raise UnusableReplyError(THINKING_QUOTED)
    return answer


def _ends_of_thinking(text: str) -> tuple[list[re.Match[str]], bool]:
    """Return the first two ends of thinking, and whether an object before the first can't be read.

    Ends within a closed JSON object are left out: they are quoted there. Raises UnusableReplyError after
    many objects that can't be read, so that a hostile reply costs little.
    """
    decoder = json.JSONDecoder(strict=False)
    ends: list[re.Match[str]] = []
    is_open = False
    position = 0
    failures = 0
    for mark in _THINKING_END.finditer(text):
        while opened := _OPENED.search(text, position, mark.start()):
            try:
                position = decoder.raw_decode(text, opened.start())[1]
            except (ValueError, RecursionError):
                position = opened.end()
                is_open = is_open or not ends
                failures += 1
                if failures > _MAX_FAILURES:
                    raise UnusableReplyError(_UNREADABLE) from None
        if position > mark.start():
            continue
        ends.append(mark)
        position = mark.end()
        if len(ends) == 2:
            break
    return ends, is_open


def _is_alone(answer: str) -> bool:
    """Return whether an answer is one JSON object, with only blanks and a code fence around it."""
    end = _end_of_first_object(answer)
    return end is not None and not answer[end:].strip("` \t\r\n")


def is_complete(text: str) -> bool:
    """Return whether a reply that was cut off holds a whole answer before that.

    It does if the answer begins with a JSON object that is closed, and opens no brace after it. After
    thinking only blanks may follow: what was cut off may be a thought that quotes an answer.
    """
    with suppress(UnusableReplyError):
        answer = without_thinking(text)
        if len(answer) < len(text):
            return _is_alone(answer)
        end = _end_of_first_object(answer)
        return end is not None and "{" not in answer[end:]
    return False


def _end_of_first_object(answer: str) -> int | None:
    """Return where the JSON object ends that an answer begins with; None where it begins otherwise."""
    start = _BEFORE_OBJECT.match(answer)
    if start is None:
        return None
    with suppress(ValueError, RecursionError):
        return json.JSONDecoder(strict=False).raw_decode(answer, start.end())[1]
    return None


def _objects(text: str, key: str) -> Iterator[Sequence[tuple[str, Any]]]:
    """The JSON objects in a text, outermost only, as pairs: a key may stand there twice.

    Line breaks and the like may stand in strings as they are. Raises UnusableReplyError where an object
    may lie within one that can't be read, as where a reason quotes a text with its marks: nothing
    closes that one before it, or the key has a value outside of all objects after it. And after 100
    tries, so that a hostile reply costs little.
    """
    decoder = json.JSONDecoder(strict=False, object_pairs_hook=tuple)
    at, last = text.find("{"), len(text)
    for _ in range(_MAX_OBJECTS):
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
