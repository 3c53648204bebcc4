"""What the backends of models behind an API share, whatever form the API has; posted with aiohttp.

Bodies are built with orjson: through a provider's package a call costs several times the CPU. Knows
nothing of retries, limits or the cache: it sends one request, and says what became of it. A server may
be anybody's: what isn't as documented is reported as a problem, never guessed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

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
from judgeq.judge.backend import MOST_OF_A_NAME, Prepared, Reply, Request, Result, key_of
from judgeq.judge.budget import REASON, Bounds, output_bound
from judgeq.judge.http import headers
from judgeq.judge.http.connection import Connection
from judgeq.judge.http.errors import error_in
from judgeq.judge.limiter import RateHeaders
from judgeq.judge.prices import Pricing
from judgeq.judge.secrets import api_key
from judgeq.settings.model import LIMIT_FIELDS, Access, Model
from judgeq.types import Answerer, Fields, Headers, Notify, Usage

STEPS = ("schema", "json", "text")
EMPTY, REFUSED = "the answer was empty.", "the model refused to answer."


class Answer(NamedTuple):
    """What a successful answer says: its tokens (None where it doesn't say), its text, and why that is
    no answer, if it is none."""

    usage: Usage | None
    text: str
    problem: str | None = None


class ModelBackend(ABC):
    """A backend that posts each question to a server, and what a form of API has to say beside that.

    `believe` gets every answer's rate limits, `warn` what the user should know about costs.
    """

    path: ClassVar[str]
    """Where questions are posted, from the base URL on."""
    limit_fields: ClassVar[Sequence[str]] = LIMIT_FIELDS[1:]
    """The names that servers of this form may have for the limit on output."""

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
        self.schema = partial(prompts.schema, ties=ties, reasons=reasons)
        self._believe = believe
        self.address, self.model_id = model.address_of(name), model.id_of(name)
        self._url = api_url(self.address, self.path)
        self.head = b'{"model":' + orjson.dumps(self.model_id)
        self.mode = STEPS[0] if model.structured == "auto" else model.structured
        self.limit_field = self.first_limit()
        self._tails: dict[int, tuple[bytes, bytes]] = {}
        self.output_bound = output_bound(reasons)
        self._bounds = Bounds(pricing, model.output_limit, warn, self.output_bound)
        self.connection = Connection(name, self._url, access, connections)
        # Learned from usage, for the estimate that limits work with.
        self._tokens_a_byte = 0.25
        self._output_a_call: float | None = None
        self._reason = REASON[1] if reasons else 0

    # What a form of API decides

    @abstractmethod
    def authorize(self, headers: dict[str, str], secret: str | None) -> None:
        """Add to the headers what lets us in, unless the user's own do."""

    @abstractmethod
    def opening(self, messages: Sequence[Mapping[str, str]]) -> bytes:
        """A body up to its messages, and these."""

    @abstractmethod
    def fields(self, k: int) -> Fields:
        """What follows in the body of a question about k texts."""

    @abstractmethod
    def read(self, answer: Fields) -> Answer:
        """What a successful answer says."""

    def first_limit(self) -> str:
        """The name of the limit on output that is tried first."""
        return self.limit_fields[0]

    # What is the same for all

    async def open(self) -> None:
        """Take the key, and make the session; once.

        Raises KeyMissingError or UsageError for a key, certificate or header that can't be had.
        """
        if not self.connection.is_open:
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
        if k not in self._tails:
            fields = self.fields(k)
            bounded = {name: fields.pop(name) for name in LIMIT_FIELDS if name in fields}
            decided = orjson.dumps(fields)
            tail = b"," + orjson.dumps({**bounded, **fields})[1:] if bounded or fields else b"}"
            self._tails[k] = tail, decided
        opening, (tail, decided) = self.opening(request.messages()), self._tails[k]
        body, output = opening + tail, self._output_a_call
        if output is None:
            output = 8.0 * k + 16 + self._reason
        again = (b"repeat %d" % repeat,) if repeat else ()
        return Prepared(
            body=body,
            key=key_of(self._url.encode(), opening, decided, *again),
            tokens=len(body) * self._tokens_a_byte + output,
            bound=self._bounds.most(len(body)),
            version=self.version,
        )

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """Post it. Raises JudgeErrors as the answer, or the want of one, says."""
        try:
            answer = await self.connection.exchange("POST", self._url, prepared.body)
        except UnusableReplyError as error:
            return _unusable(error)
        rate = headers.rate(answer[1])
        if rate is not None:
            self._believe(rate)
        return self._reply(*answer, len(prepared.body), prepared.version == self.version)

    @property
    def form(self) -> str:
        """How questions are asked now: what a batch was sent as, for `read_result`."""
        return f"{self.mode} {self.limit_field}"

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
            return self._reply(result.status, {}, result.body, size, form == self.form)
        except CallError as error:
            if result.status == 429 or result.status >= 500:
                error.cost = 0.0
            raise

    def _reply(
        self, status: int, answer_headers: Headers, data: bytes, size: int, current: bool
    ) -> Reply:
        """What an answer says to a request of `size` bytes; `current`: one that would be sent as it was
        once more."""
        try:
            if status != 200:
                raise self.connection.refusal(status, answer_headers, data, self._url)
            return self._read(data, answer_headers, size)
        except SteppedDownError as error:
            # Another call may have found out already.
            raise self._stepped_down(error) if current else error from None
        except UnusableReplyError as error:
            return _unusable(error)

    def _read(self, data: bytes, answer_headers: Headers, size: int) -> Reply:
        """The reply in a successful answer, which may still hold an error."""
        answer = object_in(data)
        if answer is None:
            raise ServerFailedError(
                f"{self._url} answered with something other than JSON: "
                f"{data[:100].decode(errors='replace')!r}. Is --base-url right?"
            )
        error = error_in(answer, model=self.name, url=self._url)
        if error is not None:
            raise error
        usage, text, problem = self.read(answer)
        answerer = Answerer(name_in(answer, "model"), name_in(answer, "system_fingerprint"))
        if usage is None or usage.input + usage.cached == 0 or (text and not usage.output):
            # It doesn't say, or gives a text for nothing: it may have been paid for.
            return Reply(text, Usage(), headers.price(answer_headers), problem, answerer)
        # Where we know no price a LiteLLM proxy may.
        cost = self._pricing.cost(usage) if self._pricing else headers.price(answer_headers)
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
            others = [name for name in self.limit_fields if name != error.what]
            if error.what != self.limit_field or not others:
                return RefusedRequestError(f"{error} Leave --max-output-tokens out.")
            self.limit_field = others[0]
        elif self.model.structured != "auto":
            return RefusedRequestError(
                f"{error} The server can't do --structured {self.model.structured}: take auto."
            )
        elif self.mode == STEPS[-1]:
            return RefusedRequestError(str(error))
        else:
            self.mode = STEPS[STEPS.index(self.mode) + 1]
        self.version += 1
        self._tails.clear()
        return error


def _unusable(error: UnusableReplyError) -> Reply:
    return Reply(str(error), Usage(), error.cost, str(error))


def api_url(base: str, name: str, query: str = "") -> str:
    """An address of the API: the path before the query, of which Azure has one, and more of that."""
    parts = urlsplit(base)
    path, query = f"{parts.path.rstrip('/')}/{name}", "&".join(filter(None, (parts.query, query)))
    return parts._replace(path=path, query=query).geturl()


# Fields of a JSON that may be anybody's


def object_in(data: bytes) -> Fields | None:
    """A JSON object; None for anything else."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def fields_in(value: Any) -> Fields:
    """A JSON object's fields; none for anything else."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Fields]:
    """The objects in a list; none for anything else."""
    return [part for part in value if isinstance(part, dict)] if isinstance(value, list) else []


def count_in(fields: Any, name: str) -> int | None:
    """A number of something; None where it doesn't say."""
    value = fields_in(fields).get(name)
    return value if type(value) is int and 0 <= value < 2**53 else None


def name_in(fields: Fields, name: str) -> str | None:
    """The beginning of a name; None where it doesn't say."""
    value = fields.get(name)
    return value[:MOST_OF_A_NAME] or None if isinstance(value, str) else None


def text_in(content: Any) -> str:
    """A message's content: a string, or parts of which some are text."""
    if isinstance(content, str):
        return content
    parts = [part.get("text") for part in objects_in(content)]
    return "".join(part for part in parts if isinstance(part, str))
