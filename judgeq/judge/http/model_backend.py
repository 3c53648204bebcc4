"""What the backends of models behind an API share, whatever form the API has; posted with aiohttp.

Bodies are built with orjson: through a provider's package a call costs several times the CPU. Knows
nothing of retries, limits or the cache: it sends one request, and says what became of it. A server may
be anybody's: what isn't as documented is reported as a problem, never guessed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import ClassVar, Protocol

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
from judgeq.judge.http.connection import Answer, Connection, fields_in, name_in, object_from
from judgeq.judge.http.errors import error_in
from judgeq.judge.limiter import RateHeaders
from judgeq.judge.prices import REASON, Bounds, Pricing, output_bound
from judgeq.judge.secrets import KEY_SHOWN, api_key
from judgeq.replies import CUT_OFF, EMPTY, is_complete
from judgeq.settings.model import LIMIT_FIELDS, Access, Model
from judgeq.types import Answerer, Fields, Headers, Notify, Usage

_CUT_OFF = {
    "length": CUT_OFF,
    "max_tokens": CUT_OFF,
    "model_context_window_exceeded": "the answer was cut off at the end of the model's context.",
}
_FILTERED = "the provider's content filter cut the answer off."
_PROBLEMS = {
    **_CUT_OFF,
    "content_filter": _FILTERED,
    "sensitive": _FILTERED,  # Zhipu's word
    "pause_turn": "the model paused before its answer was whole.",
    "refusal": "the model refused to answer.",
}
"""Why a text is no answer, by the reason for which it ended."""
_HOLDS_KEY = "the answer held a key that was sent with the question, so it isn't used."
MAX_CALL_TOKENS = 1_000_000_000
"""A call that is said to take more isn't believed: the ledger's sums have to stay whole numbers."""


class Overpricing(Protocol):
    """What knows the calls of earlier sessions: the store (store/reader.py)."""

    async def overpricing(
        self, judges: Sequence[int], dollars_a_call: float, dollars_a_byte: float
    ) -> float:
        """Return how many times its price the dearest call cost that broke its bound; 0: none did."""


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
        self._has_system_role = True
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
        reason for which it ended; NO_MESSAGE where it has none."""

    @abstractmethod
    def thinking(self, answer: Fields) -> tuple[str, str]:
        """Return the name of the field that holds the model's thinking, and its text; or nothing."""

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
        form = f"{self.mode} {self.limit_field}"
        return form if self._has_system_role else f"{form} without system"

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
        the limit on output, for a whole reply is the same under any, and the word not to stream; what is
        asked again on purpose has a key of its own."""
        k, repeat = len(request.match.items), request.match.repeat
        messages = request.messages()
        if not self._has_system_role:
            messages = prompts.without_system_role(messages)
        fields = {"model": self.model_id, **self.body(messages, k)}
        limits = {name: fields.pop(name) for name in LIMIT_FIELDS if name in fields}
        asked, output = orjson.dumps(fields), self._output_a_call
        body = asked[:-1] + b"," + orjson.dumps({**limits, "stream": False})[1:]
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

    def output_within(self, prepared: Prepared, dollars: float) -> int:
        """Return the limit on output tokens with which a request costs so many dollars at most."""
        return self._bounds.output_within(len(prepared.body), dollars)

    async def recall_overpricing(self, store: Overpricing, judges: Sequence[int]) -> None:
        """Raise the bounds of calls by what earlier sessions learned when asking as these judges."""
        if self._pricing is not None:
            self._bounds.recall(await store.overpricing(judges, *self._bounds.price_of_requests))

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
            if result.status != 200:
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
        usage, text, reason = self.read(fields)
        text = self.connection.mask.text(text)  # which may have been put together from parts
        if usage is not None:
            usage = Usage(*[min(tokens, MAX_CALL_TOKENS) for tokens in usage])
            if usage.input + usage.cached == 0 or (text and not usage.output):
                usage = None  # a text for nothing: it may have been paid for
        cost = reported_cost(fields, answer.headers)
        is_reported = cost is not None
        if cost is None and usage is not None and self._pricing is not None:
            cost = min(self._pricing.cost(usage), headers.MAX_DOLLARS_PER_CALL)
        if self._bounds.learn(size, usage or Usage(), cost, is_reported=is_reported):
            self.version += 1  # those that wait have the old bound
        error = error_in(fields, model=self.name, url=self._url, reason=reason)
        if error is not None:
            error.cost = error.cost if cost is None else cost
            raise self.connection.masked(error)
        answerer = Answerer(*[name_in(fields, name) for name in ("model", "system_fingerprint")])
        if usage is not None:
            self._observe(usage, size)
        problem = self._problem(fields, text, str(reason))
        if KEY_SHOWN.encode() in answer.body or KEY_SHOWN in text:
            problem = _HOLDS_KEY
        return Reply(text, usage or Usage(), cost, problem, answerer)

    def _problem(self, answer: Fields, text: str, reason: str) -> str | None:
        """Return why the text of an answer can't be a verdict; None where it may be one."""
        if reason in _CUT_OFF and is_complete(text):
            return None
        if reason in _PROBLEMS:
            return _PROBLEMS[reason]
        if text.strip():
            return None
        field, words = self.thinking(answer)
        if not words.strip():
            return f"{EMPTY}."
        # Without a length: equal problems are counted together.
        return f'{EMPTY}: the server put the words into "{field}".'

    def _observe(self, usage: Usage, size: int) -> None:
        """Learn what a call takes: a moving average over about the last fifty."""
        seen = (usage.input + usage.cached) / size
        self._tokens_a_byte += (seen - self._tokens_a_byte) * 0.02
        if self._output_a_call is None:
            self._output_a_call, self._tokens_a_byte = float(usage.output), seen
        self._output_a_call += (usage.output - self._output_a_call) * 0.02

    def _stepped_down(self, error: SteppedDownError) -> JudgeError:
        """Ask for less from now on, if there is less and we may."""
        if error.what == "system":
            if not self._has_system_role:
                return RefusedRequestError(f"{error} It was sent no system role.")
            self._has_system_role = False
            self.version += 1
            return error
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


def reported_cost(answer: Fields, answer_headers: Headers) -> float | None:
    """Return the dollars that a server says a call cost; None where it doesn't.

    LiteLLM says it in a header; OpenRouter in `usage.cost`, to which a call by the user's own key
    (`is_byok`) adds what the provider bills (openrouter.ai/docs/use-cases/usage-accounting); Perplexity
    in an object with a total. A cost of 0 is believed where `is_byok` stands beside it, as for
    OpenRouter's free models: others say 0 of models that they don't know.
    """
    cost = headers.price(answer_headers)
    if cost is not None:
        return cost
    usage = fields_in(answer.get("usage"))
    cost = dollars_in(usage, "cost")
    if cost is None:
        cost = dollars_in(fields_in(usage.get("cost")), "total_cost")
    if cost is None:
        return None
    own_key = usage.get("is_byok") is True
    if own_key:
        upstream = dollars_in(fields_in(usage.get("cost_details")), "upstream_inference_cost")
        if upstream is None:
            return None
        cost += upstream
    free = usage.get("is_byok") is False
    return cost if cost or free else None


def dollars_in(fields: Fields, name: str) -> float | None:
    """Return an amount of dollars; None where it doesn't say, or says what can't be."""
    value = fields.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value <= headers.MAX_DOLLARS_PER_CALL else None


def _unusable(error: UnusableReplyError) -> Reply:
    return Reply(str(error), Usage(), error.cost, str(error))
