"""What an answer means that is no success: one of the errors of errors.py, with what to do.

The status decides; where one stands for several things, patterns of words do: money and quota, context,
model, key, structured output, system role, filter. Whatever else a server says is quoted.
tests/replies/ holds what providers answer, and where it is documented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson
from multidict import CIMultiDict

from judgeq.errors import (
    ContextTooLongError,
    JudgeError,
    KeyRefusedError,
    QuotaError,
    RateLimitedError,
    RefusedRequestError,
    ServerFailedError,
    SteppedDownError,
    UnknownModelError,
    UnusableReplyError,
)
from judgeq.judge.http import headers as head
from judgeq.types import Fields, Headers

SHOWN = 300
LONGEST = 10_000  # characters of a body that are read
DEEPEST = 12  # levels of a body that are read
_RATE = (429, 498)  # 498: Groq has no capacity for flex
# 424: Bedrock's ModelErrorException, and TGI's failure while it generates. 499: whoever asked hung up,
# of a gateway and its own server.
PASSING = (408, 409, 424, 425, 499)
# Behind a gateway that gave up, or a server that ran out of time, the model may have worked.
_PERHAPS_PAID = (408, 424, 499, 502, 504, 520, 524)
# No server behind the gateway, or one that is starting or overloaded.
_UNAVAILABLE = (502, 503, 521, 522, 523, 529)

QUOTA = re.compile(
    r"insufficient[ _](quota|balance|credit|funds)|exceeded your current quota"
    r"|(billing|spend|usage)_(hard_)?limit_(reached|exceeded)|billing_not_active"
    r"|credit_balance_exhausted|exceeded_?budget|exceeded budget|crossed budget|over budget"
    r"|budget_exceeded|budget has been exceeded|credit balance|out of credits|payment required"
    r"|spend_limit_reached|reached your specified (workspace )?(api )?usage limits"
    r"|quota exhausted|out of call volume quota|arrearage|free-models-per-day",
    re.IGNORECASE,
)
# Money that is used up, in words that no limit a minute is spoken of: xAI, Moonshot, Zhipu, Gemini's
# prepaid accounts, SiliconFlow, Volcengine.
MONEY = re.compile(
    r"credits? (is|are|has been|have been) (depleted|exhausted|used up)"
    r"|used all (of )?(the |its |your )?(available )?credits|purchase more credits"
    r"|(spending|spend) (limit|cap)|balance is (insufficient|not enough)"
    r"|insufficient[ _](account )?balance|exceeded_current_quota|account_?overdue|overdue[ _]balance"
    r"|欠费|余额不足|请充值|账户余额",
    re.IGNORECASE,
)
_MONEY_CODES = frozenset({"1113"})  # Zhipu's
CONTEXT = re.compile(
    r"context[ _]?length|context[ _]?window|context size|maximum context|max(imum)?[ _]model[ _]len"
    r"|exceed_context_size|prompt is too long|too many (input )?tokens|input is too long"
    r"|exceed context limit|string_above_max_length|input tokens exceed|reduce the length"
    r"|maximum (input )?length",
    re.IGNORECASE,
)
# A 429 that no waiting mends: this one request is more than a minute's tokens.
_TOO_LARGE = re.compile(r"request too large for|tokens must be reduced", re.IGNORECASE)
# llama.cpp: the slots share one pool of context, and what all of them hold together was too much.
_FULL = re.compile(r"context size has been exceeded", re.IGNORECASE)
# A dot within a model's name ends no sentence.
MODEL = re.compile(
    r"model_not_found|deploymentnotfound|unknown model|invalid model|no such model|not a valid model"
    r"|model(?:[^.]|\.(?=\S)){0,120}"
    r"(not found|(does ?n[o']t|not) exist|is not (available|supported|loaded)|unknown)"
    r"|no (endpoints|model|allowed providers)[^.]{0,40}(found(?! that can)|loaded|available)"
    r"|does not have access to model|server is pinned to |unexpected endpoint",
    re.IGNORECASE,
)
KEY = re.compile(
    r"no connected db"  # LiteLLM without a database knows no key but its master's
    r"|api[ _-]?key[ _](is )?(not|in)[ _]?valid|(invalid|incorrect|wrong|missing|no)[ _]api[ _-]?key"
    r"|unauthori[sz]ed|authentication|access denied",
    re.IGNORECASE,
)
STRUCTURED = re.compile(
    r"response_?format|response format|json[ _-]?schema|json_object|json mode|structured[ _]output"
    r"|response_?schema|response_?mime_?type|additional_?properties|schema in format"
    r"|output_config(?!\.effort)|output[_ ]format|tool_choice|support tool"
    r"|guided[ _](decoding|json)|grammar|required for format|handle the requested parameters",
    re.IGNORECASE,
)
# Vertex: "`answer` schema specified other fields alongside any_of". In a refusal only: a server that
# broke down may speak of any schema.
_SCHEMA = re.compile(r"\bschema\b", re.IGNORECASE)
_CANT = re.compile(
    r"not support|unsupported|not implemented|unavailable|failed to (parse|load|init|compile)|invalid"
    r"|unknown name",
    re.IGNORECASE,
)
# Templates of Gemma and others, o1-mini, Gemini's API for Gemma, Bedrock. Mixtral's want user and
# assistant in turns, which a system's words before the first user's aren't.
_REFUSED = r"(support|allow|enabl|accept|permit|implement)"
_SYSTEM_PART = r"system[ _](role|message|prompt|instruction|field)s?\b"
SYSTEM = re.compile(
    rf"({_SYSTEM_PART}|['\"`]system['\"`])[^.]{{0,40}}(not |n't |un)(be )?{_REFUSED}"
    rf"|(not |n't |un){_REFUSED}\w*[^.]{{0,40}}({_SYSTEM_PART}|['\"`]system['\"`])"
    r"|(unsupported|invalid|unexpected|unknown) (message )?role:? ?['\"`]?system"
    r"|input should be ['\"`]user['\"`] or ['\"`]assistant['\"`]|developer instruction is not"
    r"|only ['\"`]?user\b((?!system)[^.]){0,40}roles? (are|is) (supported|allowed)"
    r"|roles must alternate",
    re.IGNORECASE,
)
FILTER = re.compile(
    r"content[_ ]?filter|content_?policy|content management policy|responsibleaipolicy|invalid_prompt"
    r"|moderation|flagged|usage policy|safety system|content exists risk|data_?inspection_?failed"
    r"|new_sensitive",
    re.IGNORECASE,
)
_NO_JSON_CAME = re.compile(r"json_validate_failed|failed to generate json", re.IGNORECASE)
_SLOWER = re.compile(r"rate.?limit|too many requests|throttl", re.IGNORECASE)
# Said with 400 or 403, by AWS and gateways to it.
_THROTTLED = re.compile(
    r"throttl|too many requests|rate.?limit.?exceeded|wait before trying again", re.IGNORECASE
)
# What MiniMax says with status 200 in base_resp.status_code, as a status.
_MINIMAX = {"1001": 504, "1002": 429, "1004": 401, "1008": 402, "1039": 429, "2049": 401}
REFUSED_KEY = (
    "The server refused the API key, or the key lacks access. "
    "Check --api-key-env or --api-key-file."
)
_FINISHED_BADLY = frozenset(
    {
        *("error", "failed", "abort", "aborted", "cancelled", "canceled"),
        "insufficient_system_resource",  # DeepSeek
        "network_error",  # Zhipu
    }
)
"""Reasons for which an answer ended that say that the server failed."""
NO_MESSAGE = "no message"
"""Stands for the reason for which an answer ended that holds no message."""
_FLAGS = {
    "--temperature": re.compile("temperature"),
    "--reasoning-effort": re.compile(r"reasoning|effort|thinking"),
    "--max-output-tokens": re.compile(r"max_\w*tokens"),
}
_WAIT = re.compile(
    r"(?:retry|try again) (?:after|in) (\d[\w.]*)(?: (ms|s|seconds?|m|minutes?|h|hours?)\b)?", re.I
)
_LIMIT = re.compile(r"\b(max_completion_tokens|max_tokens)\b")
_OUTPUT = re.compile(r"\W?max_(completion_)?tokens")
# "Unsupported value": the name is known.
_REFUSING = re.compile(
    r"not support(ed)?|unsupported(?! value)|unknown|unrecognized|unexpected|extra"
    r"|not (permitted|allowed)",
    re.IGNORECASE,
)
# "loc" is FastAPI's: which field of the body.
_MESSAGES = ("error", "message", "detail", "loc", "msg", "raw", "status_msg", "error_msg")
_CODES = (
    *("code", "type", "status", "statusCode", "status_code", "error_type", "error_code", "param"),
    "__type",  # AWS
)


class ErrorText(NamedTuple):
    """What an error body says: its sentences, and its codes and the fields that it names."""

    message: str = ""
    codes: tuple[str, ...] = ()

    @property
    def quote(self) -> str:
        """The server's words on one line, cut."""
        words = self.message or " ".join(self.codes) or "no reason given"
        cut = words if len(words) <= SHOWN else f"{words[:SHOWN].rstrip()}…"
        return f"{cut.rstrip('.')}."

    def find(self, words: re.Pattern[str]) -> re.Match[str] | None:
        """Where it speaks of what these words stand for."""
        return words.search(" ".join((*self.codes, self.message[:4000])))


def error_for(
    status: int, headers: Headers, body: bytes, *, model: str, url: str, now: float
) -> JudgeError:
    """The error that this answer means: never raises. `now` is seconds since the epoch, for dates in
    headers. Its `cost` is 0, but None where the model may have worked before it was given up."""
    text, number = read(body), head.request_id(headers)
    words = f"the server answered {status}: {text.quote}"
    words += f" (request {_one_line(number)})" if number else ""
    if 300 <= status < 400:
        place = _one_line(CIMultiDict(headers).get("location", "elsewhere"))[:200]
        return RefusedRequestError(f"{url} has moved to {place}: set --base-url. ({words})")
    return _meaning(status, text, words, head.retry_after(headers, now), model, url)


def error_in(answer: Fields, *, model: str, url: str, reason: object = None) -> JudgeError | None:
    """Return the error that an answer with status 200 holds; None where it holds none.

    OpenRouter sends one when the model failed at its work (openrouter.ai/docs/api/reference/errors-
    and-debugging), so that a failure may have been paid; LM Studio and old vLLM send any. Gateways put
    it into the first choice; MiniMax has a status of its own. `reason` is why the answer ended, or
    NO_MESSAGE.
    """
    ended = str(reason)
    said = _failure_in(answer)
    if said is None and ended not in _FINISHED_BADLY and ended != NO_MESSAGE:
        return None
    text = _error_text(answer if said is None else said)
    code = next((code for code in text.codes if re.fullmatch("[45][0-9][0-9]", code)), "")
    what = f"error {code}" if code else "an error"
    if said is None:
        what = "no message" if ended == NO_MESSAGE else f"finish_reason {ended!r}"
    if said is not None or text.message:
        what += f": {text.quote.removesuffix('.')}"
    refused = any(map(text.find, (CONTEXT, FILTER, MODEL, KEY)))
    status = int(code or (429 if text.find(_SLOWER) else 400 if refused else 500))
    if "base_resp" in answer:
        status = next((_MINIMAX[code] for code in text.codes if code in _MINIMAX), status)
    words = f"the server answered 200 with {what}."
    error = _meaning(status, text, words, None, model, url)
    if isinstance(error, ServerFailedError):
        error.cost = None
    return error


def _failure_in(answer: Fields) -> Fields | None:
    """Return the part of an answer with status 200 that says that it failed; None without any."""
    if answer.get("error") or str(answer.get("object")).lower() == "error":
        return answer
    choices = answer.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and first.get("error"):
        return {"error": first["error"]}
    vendor = answer.get("base_resp")
    if isinstance(vendor, dict) and str(vendor.get("status_code") or "0") != "0":
        return vendor
    return None


def read(body: bytes) -> ErrorText:
    """What an error body says: JSON of any form, else its text without tags."""
    try:
        return _error_text(orjson.loads(body))
    except orjson.JSONDecodeError:
        text = body[:LONGEST].decode("utf-8", errors="replace")
        return ErrorText(_one_line(re.sub(r"<(?:style|script)[^<>]*>[^<]*|<[^<>]*>", " ", text)))


def _error_text(answer: Any) -> ErrorText:
    found = list(_words(answer, "error"))
    sentences = dict.fromkeys(text for name, text in found if name in _MESSAGES)
    codes = tuple(_one_line(text) for name, text in found if name in _CODES)
    return ErrorText(_one_line(": ".join(sentences)[:LONGEST]), codes)


def _words(value: Any, name: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    """The words of an error of any form, each with the field that it stood in. Only fields that hold
    a server's own words: others repeat our texts."""
    if isinstance(value, list | dict):
        inner = value.items() if isinstance(value, dict) else ((name, part) for part in value[:6])
        for field, part in inner if depth < DEEPEST else ():
            if field in (*_MESSAGES, *_CODES, "metadata", "details", "innererror"):
                yield from _words(part, field, depth + 1)
    elif value is not None and value != "":
        yield name, str(value)[:LONGEST]


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _meaning(
    status: int, text: ErrorText, words: str, asked: float | None, model: str, url: str
) -> JudgeError:
    """By its status; by its words, where a status is used for several things: what is more particular is
    looked for first. `asked`: seconds to wait, by its headers; `words` are for the user."""
    in_words = _wait_in(text.message)
    wait = in_words if asked is None else asked
    # Gemini says "quota" of a limit a minute, and when to come again.
    passing = status == 429 and in_words is not None and "insufficient_quota" not in text.codes
    no_money = text.find(MONEY) or not _MONEY_CODES.isdisjoint(text.codes)
    if status == 402 or no_money or (text.find(QUOTA) and not passing):
        return QuotaError(
            f"{words} The account's money or quota is used up: see to it at the provider's."
        )
    full = status == 500 and text.find(_FULL) is not None
    is_rate = status in _RATE or (status in (400, 403) and text.find(_THROTTLED) is not None)
    long = status in range(400, 502) and text.find(_TOO_LARGE if is_rate else CONTEXT)
    if status == 413 or (long and not full and not _OUTPUT.match(text.message)):
        return ContextTooLongError(
            f"{words} The question is longer than {model} can read, or may be sent at once."
        )
    if is_rate:
        return RateLimitedError(words, cost=0.0, retry_after=wait)
    if status in (400, 422, 500, 501) and text.find(SYSTEM):
        return SteppedDownError(words, what="system")
    if status in (500, 501) and text.find(STRUCTURED) and text.find(_CANT):
        return SteppedDownError(words, what="structured")
    if status in PASSING or status >= 500 or status < 300:
        perhaps_paid = status in _PERHAPS_PAID or status < 300
        return ServerFailedError(
            words,
            retry_after=wait,
            cost=None if perhaps_paid else 0.0,
            unavailable=status in _UNAVAILABLE,
            too_many=full,
        )
    limit = text.find(_LIMIT)
    if limit and _REFUSING.search(text.message):
        return SteppedDownError(words, what=limit[1])  # type: ignore[arg-type]  # one of the two
    if text.find(_NO_JSON_CAME):
        return UnusableReplyError(f"the model's answer was no JSON. ({words})", cost=None)
    no_model = text.find(MODEL)
    surely = (no_model and status == 404) or "model_not_found" in text.codes
    structured = text.find(STRUCTURED) or (status in (400, 422) and text.find(_SCHEMA))
    if structured and status not in (401, 403) and not surely:
        return SteppedDownError(words, what="structured")
    if status == 405 or (status == 404 and not text.find(FILTER)) or no_model:
        return UnknownModelError(
            f"{words} The server doesn't know the model {model!r}, or has nothing at {url}: is "
            "--base-url right? (Ollama: `ollama pull` it first.)"
        )
    if text.find(FILTER):
        return UnusableReplyError(f"the provider's content filter refused the question. ({words})")
    if status in (401, 403) or text.find(KEY):
        return KeyRefusedError(f"{words} {REFUSED_KEY}")
    named = [flag for flag, name in _FLAGS.items() if text.find(name)]
    what = (
        f"{' or '.join(named)}, or leave it out"
        if named
        else "what it names, if --extra-body sends it"
    )
    return RefusedRequestError(
        f"{words} The server won't take the request as it is: change {what}."
    )


def _wait_in(message: str) -> float | None:
    """Seconds that a message asks to wait: "after 26 seconds" (Azure), "in 1.2s", "in 7m12s"."""
    wait = _WAIT.search(message)
    if wait is None:
        return None
    unit = wait[2][0].lower() if wait[2] and wait[2].lower() != "ms" else wait[2] or ""
    return head.duration(wait[1].rstrip(".") + unit.lower())
