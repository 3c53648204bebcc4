"""Prompt sets → messages; reply text → verdict. And back: the reply a simulated judge gives.

Texts are untrusted: each stands between fences (escaping.py). A reply is a verdict only if it names
every label exactly once; nothing is repaired or guessed. A reason is asked for before the verdict, and
never decides whether there is one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from string import Template
from typing import Any, TypeAlias

import orjson
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
)

from judgeq.errors import DataError, UnusableReplyError, UsageError
from judgeq.escaping import fenced
from judgeq.files import problems, read_toml, shipped
from judgeq.types import Match, Verdict

ASK_REASON = 'First comes "reason": why you decide so, in one short sentence.'
"""Said about the form of an answer where reasons are asked for."""
FOR_PEOPLE = ("title", "guidelines", "pair", "list", "direct")
Table: TypeAlias = tuple[tuple[str, str], ...]  # not a dict: prompt sets are hashed
_UNREADABLE = "the answer holds JSON that can't be read."
_OPENED = re.compile(r'\{\s*"')


class PromptSet(BaseModel):
    """What the feature is, and the words to ask about it. Its text in full decides the run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    title: str = ""
    feature: str = Field(min_length=1)
    ties: bool = False
    system: str = Field(min_length=1)
    pair: str = Field(min_length=1)
    list: str = Field(min_length=1)
    direct: str = Field(min_length=1)
    personas: Table = ()
    people: Table = ()
    """What people read, as far as it is other than what models do."""

    @field_validator("personas", "people", mode="before")
    @classmethod
    def _by_name(cls, table: Any) -> Any:
        return tuple(table.items()) if isinstance(table, dict) else table

    @field_validator("people")
    @classmethod
    def _known(cls, people: Table) -> Table:
        for name, words in people:
            if name not in FOR_PEOPLE or not words.strip():
                raise ValueError(f"[people] may hold {', '.join(FOR_PEOPLE)}, each with words")
        return people

    @field_serializer("personas", "people")
    def _as_table(self, table: Table) -> dict[str, str]:
        return dict(table)

    def as_persona(self, name: str) -> PromptSet:
        """The same asked of somebody: the persona's words come before the system's.

        Raises UsageError for a name that isn't in the prompt set.
        """
        personas = dict(self.personas)
        if name not in personas:
            known = ", ".join(personas) or "none"
            raise UsageError(
                f"--persona {name!r}: prompt set {self.name!r} has no such persona; it has {known}."
            )
        words = f"{personas[name].strip()}\n\n{self.system.strip()}"
        return self.model_copy(update={"system": words})


def known() -> list[PromptSet]:
    """The shipped prompt sets, by name."""
    return [_read(path) for path in sorted(shipped("prompts").glob("*.toml"))]


def load(name: str, feature: str | None = None) -> PromptSet:
    """A shipped prompt set by name, or a user's own by path, with `$feature` put in.

    Raises UsageError for an unknown name or a feature missing or not asked for; DataError for a
    file that can't be read as a prompt set.
    """
    path = Path(name)
    if path.suffix != ".toml":
        path = shipped("prompts") / f"{name}.toml"
        if not re.fullmatch(r"[\w-]+", name) or not path.is_file():
            names = [prompt.name for prompt in known()]
            near = get_close_matches(name, names, 1)
            raise UsageError(
                f"--prompt {name!r}: no such prompt set."
                + (f" Did you mean {near[0]}?" if near else "")
                + f" Give {', '.join(names)}, or the path of a .toml file of your own."
            )
    prompt = _read(path)
    fields = prompt.model_dump()
    wants = any(
        "feature" in Template(value).get_identifiers()
        for value in fields.values()
        if isinstance(value, str)
    )
    if wants and not feature:
        raise UsageError(
            f"prompt set {prompt.name!r} needs --feature, for example "
            '--feature "how urgent is the message".'
        )
    if feature and not wants:
        raise UsageError(
            f"--feature doesn't go with prompt set {prompt.name!r}, which is about "
            f"{prompt.feature!r}; --prompt generic takes it."
        )
    # $count is filled in when the question is asked.
    filled = {
        key: Template(value).safe_substitute(feature=feature)
        for key, value in fields.items()
        if isinstance(value, str)
    }
    people = tuple(
        (name, Template(words).safe_substitute(feature=feature)) for name, words in prompt.people
    )
    return prompt.model_copy(update={**filled, "people": people})


def kept(text: str) -> PromptSet:
    """A prompt set as a store keeps it, with `$feature` put in. Raises DataError for what is none."""
    try:
        return PromptSet.model_validate_json(text)
    except ValidationError as error:
        raise DataError(
            f"the prompt set that the run was begun with: {problems(error)}."
        ) from error


def of_facts(facts: Mapping[str, Any]) -> PromptSet:
    """The prompt set that a run was begun with, as its facts hold it. Raises TypeError or ValueError for
    what is none."""
    tables = {name: dict(facts.get(name, ())) for name in ("personas", "people")}
    return PromptSet(**facts["prompt"] | tables)


def _read(path: Path) -> PromptSet:
    try:
        return PromptSet(**read_toml(path, "prompt set"))
    except ValidationError as error:
        raise DataError(
            f"prompt set {path}: {problems(error)}. It needs name, feature, system, pair, list and "
            "direct; title, ties, personas and people may be given."
        ) from error


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


def messages(
    prompt: PromptSet, texts: Sequence[str], problem: str | None = None, *, reasons: bool = False
) -> list[dict[str, str]]:
    """What is sent to a model about these texts, in the order presented: one text is scored by
    itself, two are a pair, more a list.

    `problem` says what was wrong with the reply before, when the question is asked again. With
    `reasons` a sentence of reason is asked for, before the verdict.
    """
    k = len(texts)
    system, question, answer_format = _frame(prompt, k, reasons)
    parts = [question, *map(fenced, labels(k), texts), answer_format]
    if problem:
        parts.append(
            f"Your last answer to this could not be used: {problem} Answer again, in the form asked."
        )
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n\n".join(parts)},
    ]


def wording(prompt: PromptSet, k: int) -> str:
    """The question about k texts, in the prompt set's words."""
    words = {1: prompt.direct, 2: prompt.pair}.get(k, prompt.list)
    return Template(words.strip()).safe_substitute(count=k)


@lru_cache(maxsize=256)
def _frame(prompt: PromptSet, k: int, reasons: bool) -> tuple[str, str, str]:
    """What stands around k texts: the system's words, the question, the form of the answer."""
    question = wording(prompt, k)
    answer_format = _answer_format(k, prompt.ties, '"reason": "...", ' if reasons else "")
    return prompt.system.strip(), question, answer_format + (f" {ASK_REASON}" if reasons else "")


def _answer_format(k: int, ties: bool, reason: str) -> str:
    names = labels(k)
    if k == 1:
        is_ = "where s is " if reason else ""
        return f'Answer with JSON only: {{{reason}"score": s}}, {is_}a number from 0 to 1.'
    if k == 2:
        first, second, tie = (f'{{{reason}"winner": "{name}"}}' for name in (*names, "tie"))
        third = f", or {tie} if you see no difference" if ties else ""
        return f"Answer with JSON only: {first} or {second}{third}."
    tie = (
        " Texts that you see no difference between may share a place as an inner list."
        if ties
        else ""
    )
    return (
        f'Answer with JSON only: {{{reason}"ranking": [...]}}, an array of the labels '
        f"{names[0]} to {names[-1]}, each exactly once.{tie}"
    )


def schema(k: int, ties: bool, reasons: bool = False) -> dict[str, Any]:
    """The strict JSON schema of an answer about k texts, as structured outputs take it: a model writes
    its properties in their order, so that the reason comes before the verdict.

    How many labels an array holds is left to `parse`: not every server that knows strict schemas
    knows minItems, nor maxLength for the reason.
    """
    label: dict[str, Any] = {"type": "string", "enum": list(labels(k))}
    value: dict[str, Any]
    if k == 1:
        name, value = "score", {"type": "number"}
    elif k == 2:
        name, value = "winner", label | {"enum": [*labels(2), *(["tie"] if ties else [])]}
    else:
        place = {"anyOf": [label, {"type": "array", "items": label}]} if ties else label
        name, value = "ranking", {"type": "array", "items": place}
    properties = ({"reason": {"type": "string"}} if reasons else {}) | {name: value}
    return {
        "type": "object",
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def reply(verdict: Verdict, match: Match, reason: str | None = None) -> str:
    """The reply that says this verdict, and why, as a well-behaved judge would write it."""
    if reason is not None:
        return f'{{"reason": {json.dumps(reason)}, {reply(verdict, match)[1:]}'
    names = dict(zip(match.items, labels(len(match.items)), strict=True))
    if verdict.score is not None:
        return f'{{"score": {verdict.score}}}'
    if match.kind == "pair":
        return f'{{"winner": "{"tie" if verdict.tied else names[verdict.items[0]]}"}}'
    ranking: list[str | list[str]] = [names[item] for item in verdict.items]
    if verdict.tied:
        grouped = ([names[item] for item in group] for group in verdict.groups)
        ranking = [group[0] if len(group) == 1 else group for group in grouped]
    return orjson.dumps({"ranking": ranking}).decode()


def parse(text: str, match: Match, ties: bool = False) -> Verdict:
    """The verdict that a reply gives. Raises UnusableReplyError, which says what is wrong with it."""
    names = labels(len(match.items))
    if match.kind == "pair":
        return _winner(_answer(text, "winner"), match, names, ties)
    if match.kind == "direct":
        return Verdict(match.items, (), _score(text))
    answer = _answer(text, "ranking")
    if not isinstance(answer, list):
        raise UnusableReplyError(f'"ranking" must be an array of labels, not {_shown(answer)}.')
    rows = dict(zip(names, match.items, strict=True))
    try:
        items = tuple([rows.pop(label) for label in answer])
    except (KeyError, TypeError):
        return _ranking(answer, match, names, ties)
    if rows:
        raise UnusableReplyError(_miscounted(answer, names))
    return Verdict(items)


def reason(reply: str) -> str | None:
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
        raise UnusableReplyError(f'"score" must be a number from 0 to 1, not {_shown(answer)}.')
    return float(answer)


def _winner(answer: Any, match: Match, names: Sequence[str], ties: bool) -> Verdict:
    first, second = match.items
    if answer == names[0]:
        return Verdict((first, second))
    if answer == names[1]:
        return Verdict((second, first))
    if answer == "tie" and ties:
        return Verdict((first, second), (False, True))
    raise UnusableReplyError(
        f'"winner" must be "{names[0]}" or "{names[1]}"'
        + (' or "tie"' if ties else "")
        + f", not {_shown(answer)}."
    )


def _ranking(answer: list[Any], match: Match, names: Sequence[str], ties: bool) -> Verdict:
    """The slow way: a ranking with ties, or one that names labels wrongly."""
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
    rows = dict(zip(names, match.items, strict=True))
    return Verdict.of([rows[label] for label in place] for place in places)


def _miscounted(given: Sequence[str], names: Sequence[str]) -> str:
    missing = [name for name in names if name not in given]
    double = [name for name in names if given.count(name) > 1]
    strange = sorted({name for name in given if name not in names})
    parts = [
        f"{what} {', '.join(_shown(label) for label in labels[:20])}"
        for what, labels in (
            ("missing:", missing),
            ("named more than once:", double),
            ("no such label:", strange),
        )
        if labels
    ]
    return f"each label must be named exactly once ({'; '.join(parts)})."


def _shown(value: Any) -> str:
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
