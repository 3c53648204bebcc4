"""What the backends of models behind an API share, whatever form the API has; posted with aiohttp.

Bodies are built with orjson: through a provider's package a call costs several times the CPU. Knows
nothing of retries, limits or the cache: it sends one request, and says what became of it. A server may
be anybody's: what isn't as documented is reported as a problem, never guessed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import ClassVar

import orjson

from judgeq import prompts
from judgeq.errors import (
    CallError,
    JudgeError,
    RefusedRequestError,
    ServerFailedError,
    SteppedDownError,
    UnusableReplyError,
)
from judgeq.judge.backend import Prepared, Reply, Request, Result
from judgeq.judge.cache import key_of
from judgeq.judge.http import headers
from judgeq.judge.http.batch_api import BatchAPI
from judgeq.judge.http.connection import Answer, Connection, name_in, object_from
from judgeq.judge.http.errors import error_in
from judgeq.judge.limiter import RateHeaders
from judgeq.judge.prices import REASON, Bounds, Pricing, output_bound
from judgeq.judge.secrets import KEY_SHOWN, api_key
from judgeq.settings.model import LIMIT_FIELDS, Access, Model
from judgeq.types import Answerer, Fields, Notify, Usage

_CUT_OFF = "the answer was cut off at the limit of output tokens."
_PROBLEMS = {
    "length": _CUT_OFF,
    "max_tokens": _CUT_OFF,
    "content_filter": "the provider's content filter cut the answer off.",
    "model_context_window_exceeded": "the answer was cut off at the end of the model's context.",
    "pause_turn": "the model paused before its answer was whole.",
    "refusal": "the model refused to answer.",
    "no message": "the answer held no message.",
}
"""Why a text is no answer, by the reason for which it ended."""
_HOLDS_KEY = "the answer held a key that was sent with the question, so it isn't used."


MAX_CALL_TOKENS = 1_000_000_000
MAX_CALL_DOLLARS = 100_000.0
"""No server is believed that a call took more: the ledger sums nano-dollars in 63 bits."""


class ModelBackend(ABC):
    """A backend that posts each question to a server, and what a form of API has to say beside that.

    `believe` gets every answer's rate limits, `warn` what the user should know about costs.
    """

    path: ClassVar[str]
    """Where questions are posted, from the base URL on."""

    def __init__(
        self,
        name: str,
        model: Model,
        access: Access,
        pricing: Pricing | None,
        *,
        ties: bool = False,
        reasons: bool = False,
        connections: int = 100,
        believe: Callable[[RateHeaders], None] = lambda _: None,
        warn: Notify = lambda _: None,
    ) -> None:
        self.name = name
        self.version = 0
        self.model = model
        self._access = access
        self._pricing = pricing
        self._believe = believe
        self.address, self.model_id = model.address_of(name), model.id_of(name)
        self.schema = cache(partial(prompts.schema, ties=ties, reasons=reasons))
        # What is left to try, the first one now:
        auto = model.structured == "auto"
        self._modes: list[str] = ["schema", "json", "text"] if auto else [model.structured]
        self._limits = self.limit_fields()
        self.output_bound = output_bound(reasons)
        self._bounds = Bounds(pricing, model.output_limit, warn, self.output_bound)
        self.connection = Connection(name, self.address, access, connections)
        self._url = self.connection.url(self.path)
        # Learned from usage, for the estimate that limits work with.
        self._tokens_a_byte = 0.25
        self._output_a_call: float | None = None
        self._reason = REASON[1] if reasons else 0

    # What a form of API decides

    @property
    @abstractmethod
    def batch_api(self) -> BatchAPI:
        """Its batches, asked in its own session: as long as that is open."""

    @abstractmethod
    def authorize(self, headers: dict[str, str], secret: str | None) -> None:
        """Add to the headers what lets us in, unless the user's own do."""

    @abstractmethod
    def limit_fields(self) -> list[str]:
        """The names that the limit on output may have, the likeliest first."""

    @abstractmethod
    def body(self, messages: Sequence[Mapping[str, str]], k: int) -> Fields:
        """What is sent to ask about k texts, but for the model."""

    @abstractmethod
    def read(self, answer: Fields) -> tuple[Usage | None, str, object]:
        """What a successful answer says: its tokens (None where it doesn't say), its text, and the
        reason for which it ended."""

    # What is the same for all

    @property
    def mode(self) -> str:
        """How structured replies are asked for now: schema, json or text."""
        return self._modes[0]

    @property
    def limit_field(self) -> str:
        """The name of the limit on output."""
        return self._limits[0]

    @property
    def form(self) -> str:
        """How questions are asked now: what a batch was sent as, for `read_result`."""
        return f"{self.mode} {self.limit_field}"

    async def open(self) -> None:
        """Take the key, and make the session; once.

        Raises KeyMissingError or UsageError for a key, certificate or header that can't be had.
        """
        secret = api_key(self.name, self.model, self._access)
        await self.connection.open(secret, self.authorize)

    async def close(self) -> None:
        """Let go of the connections."""
        await self.connection.close()

    def prepare(self, request: Request) -> Prepared:
        """The body that would be sent now, and what it may take. Its key in the cache is all of it but
        the limit on output, for a whole reply is the same under any; what is asked again on purpose has
        a key of its own."""
        k, repeat = len(request.match.items), request.match.repeat
        fields = {"model": self.model_id, **self.body(request.messages(), k)}
        limits = {name: fields.pop(name) for name in LIMIT_FIELDS if name in fields}
        asked, output = orjson.dumps(fields), self._output_a_call
        body = asked[:-1] + b"," + orjson.dumps(limits)[1:] if limits else asked
        if output is None:
            output = 8.0 * k + 16 + self._reason
        again = (b"repeat %d" % repeat,) if repeat else ()
        return Prepared(
            body=body,
            key=key_of(self._url.encode(), asked, *again),
            tokens=len(body) * self._tokens_a_byte + output,
            bound=self._bounds.most(len(body)),
            version=self.version,
        )

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """Post it. Raises JudgeErrors as the answer, or the want of one, says."""
        try:
            async with self.connection.request("POST", self._url, prepared.body) as response:
                answer = await self.connection.answer(response)
        except UnusableReplyError as error:
            return _unusable(error)
        rate = headers.rate(answer.headers)
        if rate is not None:
            self._believe(rate)
        return self._reply(answer, len(prepared.body), prepared.version == self.version)

    def read_result(self, result: Result, size: int, form: str) -> Reply:
        """The reply in a line of a batch's results, of a request of `size` bytes that was sent in that
        `form`. Raises JudgeErrors as the line says; one that failed was not billed."""
        if result.ended is not None:
            raise ServerFailedError(
                f"the batch was {result.ended} before this was asked.", cost=0.0
            )
        if result.status == 0:
            raise ServerFailedError("the batch has no result for this request.")
        try:
            return self._reply(Answer(result.status, {}, result.body), size, form == self.form)
        except CallError as error:
            if result.status == 429 or result.status >= 500:
                error.cost = 0.0
            raise

    def _reply(self, answer: Answer, size: int, current: bool) -> Reply:
        """What an answer says to a request of `size` bytes; `current`: one that would be sent as it was
        once more."""
        try:
            if answer.status != 200:
                raise self.connection.refusal(answer, self._url)
            return self._read(answer, size)
        except SteppedDownError as error:
            # Another call may have found out already.
            raise self._stepped_down(error) if current else error from None
        except UnusableReplyError as error:
            return _unusable(error)

    def _read(self, answer: Answer, size: int) -> Reply:
        """The reply in a successful answer, which may still hold an error."""
        fields = object_from(answer.body, self._url)
        error = error_in(fields, model=self.name, url=self._url)
        if error is not None:
            raise self.connection.masked(error)
        usage, text, reason = self.read(fields)
        text = self.connection.mask.text(text)  # which may have been put together from parts
        problem = _PROBLEMS.get(str(reason)) or (None if text.strip() else "the answer was empty.")
        if KEY_SHOWN.encode() in answer.body or KEY_SHOWN in text:
            problem = _HOLDS_KEY
        names = ("model", "system_fingerprint")
        answerer = Answerer(*[name_in(fields, name) for name in names])
        if usage is not None:
            usage = Usage(*[min(tokens, MAX_CALL_TOKENS) for tokens in usage])
        if usage is None or usage.input + usage.cached == 0 or (text and not usage.output):
            # It doesn't say, or gives a text for nothing: it may have been paid for.
            cost = _believable(headers.price(answer.headers))
            return Reply(text, Usage(), cost, problem, answerer)
        # Where we know no price a LiteLLM proxy may.
        cost = self._pricing.cost(usage) if self._pricing else headers.price(answer.headers)
        cost = _believable(cost)
        self._observe(usage, size)
        if self._bounds.learn(size, usage, cost):
            self.version += 1  # those that wait have the old bound
        return Reply(text, usage, cost, problem, answerer)

    def _observe(self, usage: Usage, size: int) -> None:
        """Learn what a call takes: a moving average over about the last fifty."""
        seen = (usage.input + usage.cached) / size
        self._tokens_a_byte += (seen - self._tokens_a_byte) * 0.02
        if self._output_a_call is None:
            self._output_a_call, self._tokens_a_byte = float(usage.output), seen
        self._output_a_call += (usage.output - self._output_a_call) * 0.02

    def _stepped_down(self, error: SteppedDownError) -> JudgeError:
        """Ask for less from now on, if there is less and we may."""
        if error.what != "structured":
            left, remedy = self._limits, " Leave --max-output-tokens out."
        elif self.model.structured == "auto":
            left, remedy = self._modes, ""
        else:
            left = self._modes
            remedy = f" The server can't do --structured {self.mode}: take auto."
        if len(left) == 1 or error.what not in ("structured", left[0]):
            return RefusedRequestError(f"{error}{remedy}")
        left.pop(0)
        self.version += 1
        return error


def _believable(cost: float | None) -> float | None:
    """Return the cost of a call, at most MAX_CALL_DOLLARS; None where it is unknown."""
    return None if cost is None else min(cost, MAX_CALL_DOLLARS)


def _unusable(error: UnusableReplyError) -> Reply:
    return Reply(str(error), Usage(), error.cost, str(error))
