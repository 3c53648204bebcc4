"""Prompt sets → messages. What comes back is replies.py's.

Texts are untrusted: each stands between fences. A fence is a line that carries a text's label, none of
which a text can make itself: what a reader may take for one, "<" and "text" in whatever letters and with
whatever between them, is changed where it stands: its "<" becomes "‹". All else is sent to the letter.

A reason is asked for before the verdict, and never decides whether there is one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from string import Template
from typing import Any, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_serializer,
    field_validator,
)

from judgeq.datasets.tables import did_you_mean
from judgeq.errors import DataError, UsageError
from judgeq.files import problems, read_toml, shipped
from judgeq.replies import labels

ASK_REASON = 'First comes "reason": why you decide so, in one short sentence.'
"""Said about the form of an answer where reasons are asked for."""
FOR_PEOPLE = ("title", "guidelines", "pair", "list", "direct")
Table: TypeAlias = tuple[tuple[str, str], ...]  # not a dict: prompt sets are hashed


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
    def _check_people(cls, people: Table) -> Table:
        for name, words in people:
            if name not in FOR_PEOPLE or not words.strip():
                raise ValueError(f"[people] may hold {', '.join(FOR_PEOPLE)}, each with words")
        return people

    @field_serializer("personas", "people")
    def _as_table(self, table: Table) -> dict[str, str]:
        return dict(table)

    def persona(self, name: str) -> str:
        """The words of a persona. Raises UsageError for a name that isn't in the prompt set."""
        personas = dict(self.personas)
        if name not in personas:
            known = ", ".join(personas) or "none"
            raise UsageError(
                f"--persona {name!r}: prompt set {self.name!r} has no such persona; it has {known}."
            )
        return personas[name]

    def as_persona(self, name: str) -> PromptSet:
        """The same asked of somebody: the persona's words come before the system's. Raises as
        `persona`."""
        words = f"{self.persona(name).strip()}\n\n{self.system.strip()}"
        return self.model_copy(update={"system": words})


def catalog() -> list[PromptSet]:
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
            names = [prompt.name for prompt in catalog()]
            raise UsageError(
                f"--prompt {name!r}: no such prompt set.{did_you_mean(name, names)} Give "
                f"{', '.join(names)}, or the path of a .toml file of your own."
            )
    prompt = _read(path)
    fields = {name: words for name, words in prompt if isinstance(words, str)}
    wants = any("feature" in Template(words).get_identifiers() for words in fields.values())
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

    def filled(words: Mapping[str, str]) -> dict[str, str]:  # $count is when the question is asked
        return {
            name: Template(text).safe_substitute(feature=feature) for name, text in words.items()
        }

    people = tuple(filled(dict(prompt.people)).items())
    return prompt.model_copy(update={**filled(fields), "people": people})


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


def without_system_role(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Return messages without a system role: its words come before the user's."""
    system = [part["content"] for part in messages if part["role"] == "system"]
    kept = [dict(part) for part in messages if part["role"] != "system"]
    if system and kept:
        kept[0]["content"] = "\n\n".join((*system, kept[0]["content"]))
    return kept


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

    How many labels an array holds is left to `read_reply`: not every server that knows strict schemas
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


# Fences around texts

# What looks like "<" besides it; "‹" is what look-alikes become, and no fence.
_OPENERS = (
    "\u02c2\u1438\u16b2\u2329\u226a\u226e\u227a\u22d6\u276c\u276e\u27e8\u29fc\u2a79\u2aa1\u3008"
    "\ufe64\uff1c\U0001d236"
)
_OPENER = re.compile(f"[<{_OPENERS}]")
# From Unicode's confusables.txt, beyond what decomposes to the letters.
_LOOKS = {
    look: letter
    for letter, looks in {
        "t": "τтᴛꞇŧƭ†⊤⟙ⲧᎢꓔ𖼊𑢼𐊗𐊱𐌕",
        "e": "еєεҽəɛɇꬲ℮⋿ⲉⴹᎬꓰ𑢦𑢮𐊆",
        "x": "хχ×✕✖⨯⤫⤬ҳᕁᕽ᙮᙭╳ⲭⵝᚷꓫꭓ𐌢𑣬𐊐𐊴𐌗𐔧",
    }.items()
    for look in (*looks, *looks.casefold())
}
_WORD = "text"
# Letters and marks that are not seen, which Unicode doesn't count as format characters.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
# The quick way, and all there is to see in ASCII: anything but letters and digits in between.
_FENCE_IN_ASCII = re.compile(r"<(?=(?:[^\w<]|_)*text)", re.IGNORECASE)

_FENCED = re.compile(r"^<text ([A-Z]+)>\n(.*?)\n</text \1>$", re.DOTALL | re.MULTILINE)


def fenced(label: str, text: str) -> str:
    """The text between its fences, with look-alikes inside it changed ("<text" to "‹text")."""
    return f"<text {label}>\n{without_fences(text)}\n</text {label}>"


def texts_in(content: str) -> list[tuple[str, str]]:
    """The labels and texts that `fenced` put into a message, look-alikes as it changed them."""
    return _FENCED.findall(content)


def without_fences(text: str) -> str:
    """The text, with "‹" where something in it opens what looks like a fence."""
    if "<" not in text and (text.isascii() or _OPENER.search(text) is None):
        return text
    text = _FENCE_IN_ASCII.sub("‹", text)
    if text.isascii() and text.isprintable():
        return text
    openers = [match.start() for match in _OPENER.finditer(text)]
    kept, done = [], 0
    for at, after in pairwise((*openers, len(text))):
        if _opens(text, at + 1, after):
            kept += [text[done:at], "‹"]
            done = at + 1
    return "".join((*kept, text[done:])) if kept else text


def _opens(text: str, start: int, end: int) -> bool:
    """Whether the first letters there, as a reader sees them, are those of a fence."""
    read = 0
    for at in range(start, end):
        for char in _seen(text[at]):
            if char == _WORD[read]:
                read += 1
                if read == len(_WORD):
                    return True
            elif read or char.isalnum() or char == "‹":
                return False
    return False


@lru_cache(maxsize=4096)
def _seen(char: str) -> str:
    """What a reader sees in a character: decomposed, small, without marks, look-alikes resolved."""
    seen = []
    for part in unicodedata.normalize("NFKD", char).casefold():
        unseen = unicodedata.category(part) in ("Mn", "Me", "Cf", "Cc") or part in _BLANK
        if not unseen or part.isspace():
            seen.append(_LOOKS.get(part, part))
    return "".join(seen)
