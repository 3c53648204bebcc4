"""What the forms of API that the mock server speaks have to say, each in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from aiohttp import web

from judgeq.mock_server.asked import Asked
from judgeq.mock_server.behaviour import Room
from judgeq.types import Usage


class Answered(NamedTuple):
    """An answer before it has a form: `message` holds its content, or a refusal, and `reason` is why it
    ended, as OpenAI names it. `beside` are the reasoning tokens that are counted beside the others."""

    number: int
    at: float
    message: Mapping[str, Any]
    reason: str
    usage: Usage | None
    beside: int = 0
    logprobs: Mapping[str, Any] | None = None


class Form(Protocol):
    """A form of API: how a question is read, an answer written, and a refusal worded."""

    def read(self, data: bytes, headers: Mapping[str, str]) -> Asked | web.Response:
        """What a body asks for, or the answer that refuses it."""

    def key_in(self, headers: Mapping[str, str]) -> str:
        """The key that was sent, as the header has it; "" for none."""

    def fits(self, key: str, headers: Mapping[str, str]) -> bool:
        """Whether this key was sent."""

    def rates(self, rooms: Mapping[str, Room | None], now: float) -> dict[str, str]:
        """The headers that report limits: of "requests" and "tokens", None where there is none."""

    def answer(self, asked: Asked, answered: Answered) -> dict[str, Any]:
        """The body of an answer."""

    def listed(self, name: str) -> web.Response:
        """The list of models, with one in it."""

    def model(self, name: str) -> web.Response:
        """One model."""

    def no_model(self, name: object) -> web.Response:
        """The refusal of a model that isn't known."""

    def wrong_key(self, shown: str) -> web.Response:
        """The refusal of a key, `shown` if it is to be repeated."""

    def unstructured(self, asked: Asked, shown: str) -> web.Response:
        """The refusal of more form than it can give a reply."""

    def too_long(self, sent: int, longest: int) -> web.Response:
        """The refusal of a question of so many tokens."""

    def no_quota(self) -> web.Response:
        """The money is gone."""

    def limited(self, wait: float, headers: Mapping[str, str]) -> web.Response:
        """A limit is reached, for so many seconds."""

    def slow_down(self, seconds: float | None) -> web.Response:
        """A refusal for no reason of ours, which may say for how long."""

    def failed(self, shown: str, *, even: bool) -> web.Response:
        """The server failed, in one of two ways."""
