"""What the simulated judge says to a question, and what a fault makes of it: live, or in a batch."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import orjson
from aiohttp import web

from judgeq import fences, prompts, seeds
from judgeq.judge.error_model import HIGH, LOW, ErrorModel
from judgeq.judge.simulated import reason_for
from judgeq.mock_server.asked import Asked
from judgeq.mock_server.behaviour import MockSettings, Stats, question_id
from judgeq.mock_server.forms import Answered, Form
from judgeq.mock_server.logprobs import logprobs, tokens
from judgeq.mock_server.wire import kept_to, spoilt
from judgeq.settings import Simulation
from judgeq.types import Match, Usage, Verdict

CAN = {"schema": 2, "ignored": 2, "json": 1, "text": 0}
# The faults that spoil an answer, and so can stand in a batch.
SPOILT = frozenset({"refused", "cut_off", "filtered", "unreadable", "incomplete", "wrapped"})
LINE_HEADERS = {"anthropic-version": "2023-06-01"}  # as the batch itself came with
LIMIT_FIELDS = ("max_completion_tokens", "max_tokens")


class Reply(NamedTuple):
    """The answer to a line of a batch: its HTTP status (0: none) and body, the tokens that it took (None
    where nothing was answered, which isn't billed), and whether it gets "lost" or is "doubled"."""

    status: int
    body: bytes
    usage: Usage | None = None
    fate: Literal["", "lost", "doubled"] = ""


class Answering:
    """The simulated judge. `scores` gives the latent score (1..1000) of the texts that are known."""

    def __init__(self, settings: MockSettings, scores: Mapping[str, float]) -> None:
        self._settings = settings
        # As they stand between the fences of a prompt.
        self._scores = {_as_fenced(text): score for text, score in scores.items()}
        self._errors = ErrorModel(Simulation())
        self._answers = seeds.Stream(settings.seed, "mock answers")
        self._faults = seeds.Stream(settings.seed, "mock faults")
        self._any_fault = any(share for _, share in settings.failures)
        self._lines = seeds.Stream(settings.seed, "mock batch lines")
        shares = (settings.batch_failing, settings.batch_lost, settings.batch_doubled)
        self._any_line_fault = any(shares)

    def refusal(self, stats: Stats, form: Form, asked: Asked, shown: str) -> web.Response | None:
        """What a server refuses before it does anything."""
        settings = self._settings
        name = asked.body["model"]
        if settings.only_model not in (None, name):
            return form.no_model(name)
        if asked.structured > CAN[settings.structured]:
            return form.unstructured(asked, shown)
        longest = settings.max_input_tokens
        if longest is not None and (sent := _tokens(asked.content)) > longest:
            return form.too_long(sent, longest)
        if settings.quota_after is not None and stats.answered >= settings.quota_after:
            return form.no_quota()
        return None

    def fault(self, number: str, times: int) -> tuple[str, float]:
        """The fault of a request, or "", and how long it takes (0 to 1): by how often it came."""
        if not self._any_fault and not self._settings.latency:
            return "", 0.0
        drawn, late = self._faults.at(int(number[:15], 16), times).random(2).tolist()
        for name, share in self._settings.failures:
            drawn -= share
            if drawn < 0:
                return name, late
        return "", late

    def answer(self, number: str, asked: Asked) -> str:
        """What the simulated judge says to the texts between the fences."""
        texts = [text for _, text in fences.texts_in(asked.content)]
        scores = [self._score(text) for text in texts]
        rng = self._answers.at(int(number[:15], 16))
        match = Match(0, 1, tuple(range(len(texts))))
        if len(texts) < 2:
            verdict = Verdict(
                match.items, (), self._errors.score(scores[0], rng) if scores else 0.5
            )
        else:
            verdict = Verdict(tuple(self._errors.order(scores, rng)))
        wanted = texts and prompts.ASK_REASON in asked.content
        reason = reason_for(verdict, match, scores) if wanted else None
        return self._in_form(prompts.reply(verdict, match, reason), asked, len(texts))

    def usage(self, asked: Asked, answer: str) -> Usage:
        """The tokens that an answer takes."""
        prompt = sum(_tokens(text) + 8 for text in asked.texts)
        cached = int(prompt * self._settings.cached_share)
        reasoning = self._settings.reasoning_tokens
        output = _tokens(answer) if asked.top_logprobs is None else len(tokens(answer))
        return Usage(prompt - cached, cached, output + reasoning, reasoning)

    def answered(
        self, asked: Asked, answer: str, usage: Usage, fault: str, number: int, at: float
    ) -> tuple[Answered, Usage]:
        """An answer as its fault and the limits leave it, and the tokens that it took."""
        message, reason = spoilt(answer, fault)
        limits = [value for name in LIMIT_FIELDS if isinstance(value := asked.body.get(name), int)]
        beside = usage.reasoning if self._settings.reasoning_beside else 0
        if limits and usage.output - beside > min(limits):
            message, reason = {"content": answer[: len(answer) // 2]}, "length"
            usage = usage._replace(output=min(limits), reasoning=min(usage.reasoning, *limits))
        answered = Answered(
            number,
            at,
            message,
            reason,
            usage if self._settings.usage else None,
            usage.reasoning if self._settings.reasoning_beside else 0,
            self._logprobs(asked, message),
        )
        return answered, usage

    def line(self, stats: Stats, form: Form, data: bytes, serial: int, at: float) -> Reply:
        """The answer to the body of a batch's line, counted: the same as live."""
        asked = form.read(data, LINE_HEADERS)
        if not isinstance(asked, web.Response):
            asked = self.refusal(stats, form, asked, "") or asked
        if isinstance(asked, web.Response):
            stats.outcomes["refused_request"] += 1
            return _refused(asked)
        number = question_id(asked.messages)
        stats.asked[number] += 1
        times = stats.asked[number]
        fault, _ = self.fault(number, times)
        failed, fate = self._fate(number, times)
        if failed or fault == "errors":
            stats.outcomes["errors"] += 1
            if failed == "silent":
                return Reply(0, b"")
            refusal = (
                form.slow_down(None) if failed == "rate_limited" else form.failed("", even=False)
            )
            return _refused(refusal)
        fault = fault if fault in SPOILT else ""
        stats.outcomes[fault or "ok"] += 1
        answer = self.answer(number, asked)
        answered, usage = self.answered(asked, answer, self.usage(asked, answer), fault, serial, at)
        stats.count(number, usage)
        return Reply(200, orjson.dumps(form.answer(asked, answered)), usage, fate)

    def _fate(self, number: str, times: int) -> tuple[str, Literal["", "lost", "doubled"]]:
        """How a line fails, or "", and what becomes of its answer in the results."""
        if not self._any_line_fault:
            return "", ""
        settings = self._settings
        drawn, how = self._lines.at(int(number[:15], 16), times).random(2).tolist()
        if drawn < settings.batch_failing:
            return ("errors", "rate_limited", "silent")[int(how * 3)], ""
        if how < settings.batch_lost:
            return "", "lost"
        return "", "doubled" if how < settings.batch_lost + settings.batch_doubled else ""

    def _logprobs(self, asked: Asked, message: Mapping[str, Any]) -> dict[str, Any] | None:
        """How sure the server is of the tokens of a message, where that was asked for."""
        if asked.top_logprobs is None:
            return None
        content = message["content"]
        if content is None:
            return {"content": None, "refusal": None}
        scores = [self._score(text) for _, text in fences.texts_in(asked.content)]
        labels = orjson.dumps(prompts.labels(len(scores))).decode()
        by_label = dict(
            zip(orjson.loads(self._in_form(labels, asked, len(scores))), scores, strict=True)
        )
        return logprobs(content, by_label, Simulation(), asked.top_logprobs)

    def _in_form(self, text: str, asked: Asked, k: int) -> str:
        """The text in the words that the schema allows, if there is one and it is kept to."""
        if asked.schema is None or self._settings.structured != "schema":
            return text
        return kept_to(text, prompts.labels(k), asked.schema)

    def _score(self, text: str) -> float:
        """The latent score of a text: as given, else by its hash."""
        score = self._scores.get(text)
        if score is None:
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            score = LOW + int.from_bytes(digest, "big") / 2**64 * (HIGH - LOW)
        return score


def _refused(response: web.Response) -> Reply:
    body = response.body
    return Reply(response.status, body if isinstance(body, bytes) else b"")


def even(times: int, number: str) -> bool:
    """A fair coin of a question and how often it came."""
    return (int(number[-2:], 16) + times) % 2 == 0


def _as_fenced(text: str) -> str:
    texts = fences.texts_in(fences.fenced("A", text))
    return texts[0][1] if texts else text


def _tokens(text: str) -> int:
    """About four bytes a token; never more than there are bytes."""
    return math.ceil(len(text.encode()) / 4)
