"""What a person who judges is shown and answers, as data, and as a call keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import orjson

from judgeq.errors import BadAnswerError
from judgeq.prompts import PromptSet
from judgeq.replies import labels
from judgeq.types import Call

LONGEST = 2_000
"""Characters of a note."""
Why = Literal["", "wait", "quota", "removed", "over"]


class Question(NamedTuple):
    """A question as a person is shown it."""

    id: str
    """The lease under which they have it."""
    kind: Literal["pair", "list", "direct"]
    texts: tuple[str, ...]
    """In the order presented."""


class Turn(NamedTuple):
    """What a person is to do now."""

    name: str
    question: Question | None
    why: Why
    """Why there is no question: none is theirs now (wait), their quota is reached, they are removed, or
    the run is over."""
    done: int
    """Their answers."""
    expected: int
    """About how many answers they will have given in the end."""
    left: int
    """Questions of the run that nobody has answered yet."""
    quota: int | None
    seconds: float
    """The time that their answers took."""
    undo: bool
    """Whether their last answer can be taken back."""


class Answer(NamedTuple):
    """An answer to a question."""

    ranking: tuple[int, ...] = ()
    """Places in Question.texts, from 0, most of the feature first."""
    tied: bool = False
    """Whether the two texts of a pair are equal."""
    score: float | None = None
    """Of a single text, 0 to 1."""
    seconds: float = 0.0
    """The time spent on it."""
    note: str = ""


class About(NamedTuple):
    """What people are asked in this run."""

    title: str
    feature: str
    questions: Mapping[str, str]
    """The question by kind; $count stands for the number of texts."""
    guidelines: str
    """Paragraphs."""
    ties: bool


def about(prompt: PromptSet) -> About:
    """What a prompt set asks of people."""
    own = dict(prompt.people)
    words = {"pair": prompt.pair, "list": prompt.list, "direct": prompt.direct}
    return About(
        title=own.get("title", prompt.title) or prompt.name,
        feature=prompt.feature,
        questions={kind: " ".join(own.get(kind, text).split()) for kind, text in words.items()},
        guidelines=own.get("guidelines", prompt.system).strip(),
        ties=prompt.ties,
    )


def reply(answer: Answer, k: int) -> str:
    """An answer about k texts as a model would write it. Raises BadAnswerError."""
    names, content = labels(k), dict[str, Any]()
    if k == 1:
        if answer.score is None:
            raise BadAnswerError("This is not an answer: it has no score.")
        content["score"] = answer.score
    elif sorted(answer.ranking) != list(range(k)):
        raise BadAnswerError(f"This is not an answer: rank {k} texts, each once.")
    elif k == 2:
        content["winner"] = "tie" if answer.tied else names[answer.ranking[0]]
    else:
        content["ranking"] = [names[place] for place in answer.ranking]
    return orjson.dumps(content).decode()


def with_note(reply: str, lease: str, note: str) -> str:
    """A reply as its call keeps it."""
    content = orjson.loads(reply) | {"question": lease}
    if note.strip():
        content["note"] = note.strip()[:LONGEST]
    return orjson.dumps(content).decode()


def lease_of(reply: str) -> str:
    """The lease of the question that a kept reply answers; "" if it names none."""
    return str(_content(reply).get("question", ""))


def remark(call: Call) -> str | None:
    """A person's own words about a question: their note, or why they skipped it. None without any, and
    of a model's call. To be escaped where it is shown (escaping.py)."""
    if call.judge is None:
        return None
    content = _content(call.reply or "")
    parts = [content.get("skipped"), content.get("note")]
    words = ": ".join(part for part in parts if isinstance(part, str) and part)
    return words.encode(errors="replace").decode().strip() or None


def _content(reply: str) -> dict[str, Any]:
    try:
        content = orjson.loads(reply)
    except orjson.JSONDecodeError:
        return {}
    return content if isinstance(content, dict) else {}
