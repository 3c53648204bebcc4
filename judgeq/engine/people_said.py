"""What people who judge are shown, and what they say: as data, and as it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import orjson

from judgeq.errors import BadAnswerError
from judgeq.prompts import PromptSet, labels
from judgeq.types import Call, Match

LONGEST = 2_000
"""Characters of a note."""
Why = Literal["", "wait", "quota", "removed", "over"]


class Question(NamedTuple):
    """A question as a person is shown it: `texts` in the order presented. `id` is its lease."""

    id: str
    kind: Literal["pair", "list", "direct"]
    texts: tuple[str, ...]


class Turn(NamedTuple):
    """What a person is to do now. Without a `question`, `why` says so: others have what is left, or it
    can't be theirs (wait); their quota is reached; they are removed; or the run is over.
    `done` counts their answers, on which they spent so many `seconds`; `undo` says whether the last can
    still be taken back."""

    name: str
    question: Question | None
    why: Why
    done: int
    quota: int | None
    seconds: float
    undo: bool


class Answer(NamedTuple):
    """`ranking` are places in Question.texts, from 0, most of the feature first; `tied`: a pair's two
    are a tie; `score`, 0 to 1, is that of a single text. `seconds` were spent on it."""

    ranking: tuple[int, ...] = ()
    tied: bool = False
    score: float | None = None
    seconds: float = 0.0
    note: str = ""


class About(NamedTuple):
    """What is asked: the wording by kind of question ($count stands for how many texts), and guidelines
    as paragraphs."""

    title: str
    feature: str
    questions: Mapping[str, str]
    guidelines: str
    ties: bool


class Last(NamedTuple):
    """The last answer of a person: under which lease, what it said, about what."""

    lease: str
    said: str
    match: Match
    check: int | None = None


def about(prompt: PromptSet) -> About:
    """What a prompt set asks of people."""
    words = {"pair": prompt.pair, "list": prompt.list, "direct": prompt.direct}
    own = dict(prompt.people)
    return About(
        title=own.get("title", prompt.title) or prompt.name,
        feature=prompt.feature,
        questions={kind: _worded(own.get(kind, text)) for kind, text in words.items()},
        guidelines=own.get("guidelines", prompt.system).strip(),
        ties=prompt.ties,
    )


def _worded(text: str) -> str:
    """The wording of a question as one paragraph."""
    return " ".join(text.split())


def said(answer: Answer, k: int) -> str:
    """An answer about k texts as a reply: what models write, too. Raises BadAnswerError."""
    names = labels(k)
    if k == 1:
        if answer.score is None:
            raise BadAnswerError("This can't be an answer: it has no score.")
        return orjson.dumps({"score": answer.score}).decode()
    if sorted(answer.ranking) != list(range(k)):
        raise BadAnswerError(f"This can't be an answer: it has to rank {k} texts, each once.")
    if k == 2:
        winner = "tie" if answer.tied else names[answer.ranking[0]]
        return orjson.dumps({"winner": winner}).decode()
    return orjson.dumps({"ranking": [names[place] for place in answer.ranking]}).decode()


def noted(words: str, lease: str, note: str) -> str:
    """What a person said, as it is kept."""
    kept: dict[str, Any] = orjson.loads(words) | {"question": lease}
    if note.strip():
        kept["note"] = note.strip()[:LONGEST]
    return orjson.dumps(kept).decode()


def beside(call: Call) -> str | None:
    """What a person said beside an answer, in their own words: their note, or why they skipped the
    question. None of a model's call, and where they said nothing more. To be made safe where it is shown
    (escaping.py)."""
    if call.judge is None:
        return None
    try:
        kept = orjson.loads(call.reply or "")
        parts = [kept.get("skipped"), kept.get("note")]
    except (orjson.JSONDecodeError, AttributeError):
        return None
    words = ": ".join(part for part in parts if isinstance(part, str) and part)
    return words.encode(errors="replace").decode().strip() or None


def last_of(match: Match, reply: str) -> Last | None:
    """The last answer from what is kept of it; None for what can't be."""
    try:
        kept = orjson.loads(reply)
        lease = str(kept.pop("question"))
        kept.pop("note", None)
    except (orjson.JSONDecodeError, KeyError, AttributeError):
        return None
    return Last(lease, orjson.dumps(kept).decode(), match)
