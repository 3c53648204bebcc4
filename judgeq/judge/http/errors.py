"""What an answer means that is no success: one of the errors of errors.py, with what to do.

Servers that speak like OpenAI differ in their error bodies: tests/replies/ holds them, provider by
provider, with where they are documented. What the user reads are the server's own words, cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import orjson

from judgeq.errors import (
    ContextTooLongError,
    JudgeError,
    KeyRefusedError,
    QuotaError,
    RateLimitedError,
    RefusedRequestError,
    ServerFailedError,
    ServerFullError,
    SteppedDownError,
    UnknownModelError,
    UnusableReplyError,
)
from judgeq.judge.http import headers as head
from judgeq.settings.model import LIMIT_FIELDS

SHOWN = 300
FLAGS = {
    "temperature": "--temperature",
    "top_p": "--extra-body",
    "reasoning_effort": "--reasoning-effort",
    "max_tokens": "--max-output-tokens",
    "max_completion_tokens": "--max-output-tokens",
    "seed": "--extra-body",
    "service_tier": "--extra-body",
    "effort": "--reasoning-effort",
}
# Behind a gateway that gave up, or a server that ran out of time, the model may have worked.
_PERHAPS_PAID = (408, 502, 504, 520, 524)
# No server behind the gateway, or one that is starting or overloaded.
_UNAVAILABLE = (502, 503, 521, 522, 523, 529)

_TOO_LONG = re.compile(
    r"context[ _]?length|context[ _]?window|context size|maximum context|max(imum)?[ _]model[ _]len"
    r"|exceed_context_size|prompt is too long|too many (input )?tokens|input is too long"
    r"|exceed context limit|string_above_max_length|input tokens exceed|reduce the length"
    r"|maximum (input )?length",
    re.IGNORECASE,
)
# llama.cpp: the slots share one pool of context, and what all of them hold together was too much.
_FULL = re.compile(r"context size has been exceeded", re.IGNORECASE)
# llama.cpp: the model answered, and the server can't take its answer apart.
_UNREADABLE = re.compile(r"output that does not match the expected \S+ format", re.IGNORECASE)
# A 429 that no waiting mends: this one request is more than a minute's tokens.
_TOO_LARGE = re.compile(r"request too large for|tokens must be reduced", re.IGNORECASE)
_QUOTA = re.compile(
    r"insufficient[ _](quota|balance|credit|funds)|exceeded your current quota"
    r"|(billing|spend|usage)_(hard_)?limit_(reached|exceeded)|billing_not_active"
    r"|credit_balance_exhausted|exceeded_?budget|exceeded budget|crossed budget|over budget"
    r"|budget_exceeded|budget has been exceeded|credit balance|out of credits|payment required"
    r"|spend_limit_reached|reached your specified (workspace )?(api )?usage limits"
    r"|quota exhausted|out of call volume quota|arrearage|free-models-per-day",
    re.IGNORECASE,
)
_STRUCTURED = re.compile(
    r"response_format|response format|json_schema|json_object|json mode|structured[ _]output"
    r"|output_config(?!\.effort)|output[_ ]format|tool_choice|support tool"
    r"|guided[ _](decoding|json)|grammar|required for format|handle the requested parameters",
    re.IGNORECASE,
)
_CANT = re.compile(
    r"not support|unsupported|not implemented|unavailable|failed to (parse|load|init)|invalid",
    re.IGNORECASE,
)
_NO_JSON_CAME = re.compile(r"json_validate_failed|failed to generate json", re.IGNORECASE)
_FILTERED = re.compile(
    r"content[_ ]?filter|content_?policy|content management policy|responsibleaipolicy|invalid_prompt"
    r"|moderation|flagged|usage policy|safety system|content exists risk|data_?inspection_?failed",
    re.IGNORECASE,
)
# A dot within a model's name ends no sentence.
_NO_MODEL = re.compile(
    r"model_not_found|deploymentnotfound|unknown model|invalid model|no such model|not a valid model"
    r"|model(?:[^.]|\.(?=\S)){0,120}"
    r"(not found|(does ?n[o']t|not) exist|is not (available|supported|loaded)|unknown)"
    r"|no (endpoints|model|allowed providers)[^.]{0,40}(found(?! that can)|loaded|available)"
    r"|does not have access to model|server is pinned to ",
    re.IGNORECASE,
)
# Anthropic names the field first: "max_tokens: 9000 > 8192, which is …".
_FIELD_FIRST = re.compile(r"([a-z_]+(?:\.\w+)*): ")
_KEY = re.compile(
    r"no connected db"  # LiteLLM without a database knows no key but its master's
    r"|api[ _-]?key[ _](is )?(not|in)[ _]?valid|(invalid|incorrect|wrong|missing|no)[ _]api[ _-]?key"
    r"|unauthori[sz]ed|authentication|access denied",
    re.IGNORECASE,
)
# LiteLLM; its Retry-After then is the length of its window, which such a limit doesn't have.
_AT_ONCE = re.compile(r"max_parallel_requests\b.{0,40}?current limit: (\d+)", re.IGNORECASE | re.S)
_IN_WORDS = re.compile(
    r"(?:retry|try again) (?:after|in) (\d[\w.]*)(?: (ms|s|seconds?|m|minutes?|h|hours?)\b)?", re.I
)
_PARAMETER = re.compile(rf"\b({'|'.join(FLAGS)})\b")
_REFUSING = re.compile(
    r"not support(ed)?|unsupported|unknown|unrecognized|unexpected|extra|not (permitted|allowed)",
    re.IGNORECASE,
)
_TOO_MUCH_OUTPUT = re.compile(r"(max_(?:completion_)?tokens)['\"`]? is too (?:large|high)", re.I)
# By the name that is refused; the other is to be sent.
_OTHER_NAME: Mapping[Literal["max_tokens", "max_completion_tokens"], re.Pattern[str]] = {
    "max_tokens": re.compile(
        r"max_tokens.{0,80}(not supported|unsupported).{0,200}max_completion_tokens", re.S
    ),
    "max_completion_tokens": re.compile(
        r"(unknown|unrecognized|unexpected|extra|not (permitted|supported|allowed)|unsupported)"
        r".{0,80}max_completion_tokens|max_completion_tokens.{0,80}"
        r"(unknown|unrecognized|unexpected|extra|not (permitted|supported|allowed)|unsupported)",
        re.S | re.I,
    ),
}
# What an error without a status would have had, by its words.
_STATUS = {
    re.compile(r"rate.?limit|too many requests", re.I): 429,
    re.compile(r"unexpected endpoint", re.I): 404,
    re.compile(r"overloaded", re.I): 529,
    **dict.fromkeys((_TOO_LONG, _FILTERED, _NO_MODEL, _KEY), 400),
    re.compile(r"invalid_?request|bad_?request|validation", re.I): 400,
}


class Said(NamedTuple):
    """What an error body says, whatever its form; "" where it doesn't."""

    message: str = ""
    code: str = ""
    kind: str = ""
    parameter: str = ""

    @property
    def all(self) -> str:
        """All that may tell what it is about."""
        return " ".join((self.code, self.kind, self.message[:4000]))

    def names(self, words: re.Pattern[str]) -> bool:
        """Whether it is about what these words stand for."""
        return words.search(self.all) is not None


class _Answer(NamedTuple):
    """A refusal: its status, what was said, and to what; `words` are for the user. The server asked to
    `wait` so many seconds."""

    status: int
    said: Said
    words: str
    model: str
    url: str
    wait: float | None


def error_for(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    model: str,
    url: str,
    now: float,
) -> JudgeError:
    """The error that this answer means: never raises. `now` is seconds since the epoch, for dates in
    headers. Its `cost` is 0, but None where the model may have worked before it was given up."""
    said, number = read(body), head.request_id(headers)
    quoted = f" (request {_one_line(number)})" if number else ""
    words = f"the server answered {status}: {_shown(said)}{quoted}"
    if 300 <= status < 400:
        where = next((value for name, value in headers.items() if name.lower() == "location"), "")
        where = _one_line(where)[:200] or "elsewhere"
        return RefusedRequestError(f"{url} has moved to {where}: set --base-url. ({words})")
    wait = head.retry_after(headers, now)
    wait = _in_words(said.message) if wait is None else wait
    if head.is_about_parallel(headers):
        wait = None
    return _named(_Answer(status, said, words, model, url, wait))


def error_in(answer: Mapping[str, Any], *, model: str, url: str) -> JudgeError | None:
    """The error that an answer with status 200 holds, or None.

    OpenRouter sends one when the model failed at its work (openrouter.ai/docs/api/reference/errors-
    and-debugging), so that a failure may have been paid; LM Studio and old vLLM send any.
    """
    if not answer.get("error") and str(answer.get("object")).lower() != "error":
        return None
    said = _from(answer)
    status = _status(said)
    which = f"error {said.code}" if said.code == str(status) else "an error"
    words = f"the server answered 200 with {which}: {_shown(said)}"
    error = _named(_Answer(status, said, words, model, url, _in_words(said.message)))
    if isinstance(error, ServerFailedError):
        error.cost = None
    return error


def read(body: bytes) -> Said:
    """What an error body says: OpenAI's form and those that differ from it, else its text."""
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        text = body[:10_000].decode("utf-8", errors="replace")
        return Said(_one_line(re.sub(r"<(?:style|script)[^<>]*>[^<]*|<[^<>]*>", " ", text)))
    if isinstance(answer, list) and answer and isinstance(answer[0], dict):
        answer = answer[0]  # Google's compatible endpoint
    return _from(answer) if isinstance(answer, dict) else Said(_one_line(_text(answer)))


def _from(answer: Mapping[str, Any]) -> Said:
    detail = answer.get("detail")
    if isinstance(detail, dict) and "error" in detail:  # FastAPI around an error of this form
        answer = detail
    inner = answer.get("error")
    fields = inner if isinstance(inner, dict) else answer
    message = fields.get("message") or fields.get("detail") or fields.get("msg")
    if isinstance(inner, str):
        message = inner
    if isinstance(message, dict) and "detail" in message:  # Mistral
        message = message["detail"]
    parameter = fields.get("param")
    if isinstance(message, list):
        message, parameter = _details(message)
    metadata = fields.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):  # OpenRouter: what its provider said
        message = f"{_text(message)}: {_text(metadata['raw'])}"
    code = fields.get("code")
    if code is None:
        code = fields.get("status") or fields.get("statusCode")
    if answer.get("type") == "error":  # Anthropic
        first = _FIELD_FIRST.match(_text(message))
        parameter = parameter or (first and first[1])
        details = fields.get("details")
        code = code or (isinstance(details, dict) and details.get("error_code")) or None
    kind = fields.get("type") or fields.get("status") or answer.get("error_type")
    return Said(*(_one_line(_text(part)) for part in (message, code, kind, parameter)))


def _details(problems: list[Any]) -> tuple[str, str]:
    """What FastAPI says of a body's fields, and the first of them. Not what they held: our texts."""
    said, first = [], ""
    for problem in problems[:3]:
        if isinstance(problem, dict):
            place = problem.get("loc")
            place = [_text(part) for part in place[:6]] if isinstance(place, list) else []
            place = place[1:] if place[:1] == ["body"] else place
            first = first or (place[0] if place else "")
            said.append(
                f"{'.'.join(place)}: {_text(problem.get('msg'))}" if place else _text(problem)
            )
        else:
            said.append(_text(problem))
    return "; ".join(said), first


def _text(value: Any) -> str:
    """A value as text, up to 10,000 characters; "" for what nests too deep to be shown."""
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return str(value)[:10_000]
    try:
        return orjson.dumps(value, default=str)[:10_000].decode("utf-8", errors="replace")
    except TypeError:
        return ""


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _shown(said: Said) -> str:
    """The server's words on one line, cut."""
    message = said.message or said.code or said.kind or "no reason given"
    if len(message) > SHOWN:
        message = message[:SHOWN].rstrip() + "…"
    return f"{message.rstrip('.')}."


def _status(said: Said) -> int:
    """The status that an error without one would have had."""
    if code := re.match(r"([45]\d\d)(\d\d)?$", said.code, re.ASCII):  # FastChat has 40303 and such
        return int(code[1])
    return next((status for words, status in _STATUS.items() if said.names(words)), 500)


def _named(answer: _Answer) -> JudgeError:
    """By its status; by its words, where a status is used for several things."""
    status, said, words, _, _, wait = answer
    # Gemini says "quota" of a limit a minute, and when to come again.
    passing = status == 429 and "insufficient_quota" not in (said.code, said.kind)
    passing = passing and _in_words(said.message) is not None
    if status == 402 or (said.names(_QUOTA) and not passing):
        return QuotaError(
            f"{words} The account's money or quota is used up: see to it at the provider's."
        )
    if status in (429, 498):  # 498: Groq has no capacity for flex
        if said.names(_TOO_LARGE):
            return _too_long(answer)
        together = _AT_ONCE.search(said.message)
        if together:
            return RateLimitedError(words, cost=0.0, at_once=int(together[1][:9]))
        return RateLimitedError(words, cost=0.0, retry_after=wait)
    if status in (500, 501):
        if said.names(_UNREADABLE):
            return UnusableReplyError(f"the server couldn't read the answer. ({words})", cost=None)
        if said.names(_FULL):
            shared = f"{words} All calls in flight share its context."
            return ServerFullError(shared, retry_after=wait)
        if said.names(_TOO_LONG):
            return _too_long(answer)
        if said.names(_STRUCTURED) and said.names(_CANT):
            return SteppedDownError(words, what="structured")
    if status in (408, 409, 425) or status >= 500:
        cost, unavailable = None if status in _PERHAPS_PAID else 0.0, status in _UNAVAILABLE
        return ServerFailedError(words, retry_after=wait, cost=cost, unavailable=unavailable)
    if status < 300:
        return ServerFailedError(f"{words} That is no completion.", retry_after=wait, cost=None)
    return _refused(answer)


def _too_long(answer: _Answer) -> ContextTooLongError:
    return ContextTooLongError(
        f"{answer.words} The question is longer than {answer.model} can read, or may be sent at once."
    )


def _refused(answer: _Answer) -> JudgeError:
    """What a refusal in the 400s means. What is more particular is looked for first."""
    status, said, words, model, url, _ = answer
    output = said.parameter in LIMIT_FIELDS or _TOO_MUCH_OUTPUT.search(said.message)
    if status == 413 or (said.names(_TOO_LONG) and not output):
        return _too_long(answer)
    limit, parameter = _limit_field(said), _parameter(said)
    if limit is not None:
        return SteppedDownError(words, what=limit)
    no_model = said.names(_NO_MODEL) or (status == 404 and said.parameter == "model")
    if no_model and (status == 404 or said.code.lower() == "model_not_found"):
        return _unknown_model(answer)
    if said.names(_NO_JSON_CAME):
        return UnusableReplyError(f"the model's answer was no JSON. ({words})", cost=None)
    structured = said.parameter.startswith("response_format") or said.names(_STRUCTURED)
    if structured and status not in (401, 403):
        return SteppedDownError(words, what="structured")
    if said.names(_FILTERED) and not no_model:
        return UnusableReplyError(f"the provider's content filter refused the question. ({words})")
    if parameter is not None:
        return RefusedRequestError(
            f"{words} {model} won't take {parameter} like that: change {FLAGS[parameter]}, or leave "
            "it out."
        )
    if no_model and status in (400, 422):
        return _unknown_model(answer)
    if status in (401, 403) or said.names(_KEY):
        return KeyRefusedError(
            f"{words} The server doesn't accept the API key, or doesn't let it use this: see "
            "--api-key-env and --api-key-file."
        )
    if status in (404, 405):
        return UnknownModelError(f"{words} There is nothing at {url}: is --base-url right?")
    return RefusedRequestError(f"{words} The server won't take the request as it is.")


def _unknown_model(answer: _Answer) -> UnknownModelError:
    model = answer.model
    return UnknownModelError(
        f"{answer.words} The server doesn't know the model {model!r}, or doesn't let this key use "
        f"it: `judgeq doctor --judge {model}` shows which it has. (Ollama: `ollama pull` it first.)"
    )


def _limit_field(said: Said) -> Literal["max_tokens", "max_completion_tokens"] | None:
    """Which name of the limit on output is refused, if that is what it is about."""
    if "unsupported value" in said.message.lower():
        return None  # the name is known
    for name, words in _OTHER_NAME.items():
        if words.search(said.message) or (
            name == said.parameter and _REFUSING.search(said.message)
        ):
            return name
    return None


def _parameter(said: Said) -> str | None:
    """Which parameter of ours is refused: as the server names it, else as its words do."""
    name = re.split(r"[.\[]", said.parameter.removeprefix("output_config."))[0]
    if name in FLAGS:
        return name
    if "does not support thinking" in said.message:  # Ollama
        return "reasoning_effort"
    named = _TOO_MUCH_OUTPUT.search(said.message)
    if named is None and _REFUSING.search(said.message):
        named = _PARAMETER.search(said.message)
    return None if named is None else named[1].lower()


def _in_words(message: str) -> float | None:
    """Seconds that a message asks to wait: "after 26 seconds" (Azure), "in 1.2s", "in 7m12s"."""
    wait = _IN_WORDS.search(message)
    if wait is None:
        return None
    unit = wait[2][0].lower() if wait[2] and wait[2].lower() != "ms" else wait[2] or ""
    return head.duration(wait[1].rstrip(".") + unit.lower(), None)
