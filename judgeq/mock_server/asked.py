"""What a request to the mock server asks for, and why OpenAI would refuse it before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from judgeq.mock_server.wire import error

STRUCTURED = {"json_schema": 2, "json_object": 1, "text": 0}
_EXPECTED = {
    "string_type": "a string",
    "bool_type": "a boolean",
    "int_type": "an integer",
    "float_type": "a decimal",
    "list_type": "an array of objects",
    "dict_type": "an object",
    "model_type": "an object",
}
_GOT = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    list: "an array",
    dict: "an object",
    type(None): "null",
}


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True)


class _Part(_Strict):
    type: Literal["text"]
    text: str


class _Message(_Strict):
    role: Any
    content: list[_Part] = Field(None, validate_default=True)

    @field_validator("content", mode="before")
    @classmethod
    def _in_parts(cls, content: Any) -> Any:
        return [{"type": "text", "text": content}] if isinstance(content, str) else content


class _Schema(_Strict):
    fields: dict[str, Any] = Field(alias="schema")


class _Form(_Strict):
    type: Literal["json_object", "json_schema", "text"]
    json_schema: _Schema | None = None


class _Body(_Strict):
    model: str
    messages: list[_Message] = Field(min_length=1)
    stream: bool | None = None
    n: int | None = Field(None, ge=1, le=128)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    response_format: _Form | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)


class Asked(NamedTuple):
    """A request that can be answered: `messages` as they came, and the text of each.

    `structured` is how much form its reply is to have (STRUCTURED), `schema` the one to keep to.
    `top_logprobs` is None where no log-probabilities are asked for.
    """

    body: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]
    texts: Sequence[str]
    structured: int = 0
    schema: Mapping[str, Any] | None = None
    top_logprobs: int | None = None

    @property
    def content(self) -> str:
        """All of the question's text."""
        return "\n\n".join(self.texts)


def read(data: bytes) -> Asked | web.Response:
    """What a body asks for, or the answer that refuses it, in OpenAI's words."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict):
        return error(400, "We could not parse the JSON body of your request.")
    if not isinstance(body.get("model"), str):
        return error(400, "you must provide a model parameter")
    try:
        asked = _Body.model_validate(body)
    except ValidationError as invalid:
        return refusal(**invalid.errors()[0])
    form = asked.response_format
    for name, value, only in (("stream", asked.stream, False), ("n", asked.n, 1)):
        if value is not None and value != only:
            return _refused(
                f"Unsupported value: '{name}' does not support {orjson.dumps(value).decode()} with "
                f"this model. Only the default ({orjson.dumps(only).decode()}) value is supported.",
                name,
                "unsupported_value",
            )
    if form is not None and form.type == "json_schema" and form.json_schema is None:
        return _missing("response_format.json_schema")
    if asked.top_logprobs is not None and not asked.logprobs:
        return _refused(
            "Invalid value for 'top_logprobs': 'logprobs' must be set to true to use it.",
            "top_logprobs",
            "invalid_value",
        )
    return Asked(
        body,
        body["messages"],
        ["".join(part.text for part in message.content) for message in asked.messages],
        0 if form is None else STRUCTURED[form.type],
        None if form is None or form.json_schema is None else form.json_schema.fields,
        (asked.top_logprobs or 0) if asked.logprobs else None,
    )


def refusal(type: str, loc: tuple[str | int, ...], input: Any, **more: Any) -> web.Response:  # noqa: A002
    """The refusal of what pydantic found wrong."""
    param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)[1:]
    if type == "missing":
        return _missing(param)
    if type == "too_short":
        return _refused(
            f"Invalid '{param}': empty array. Expected an array with minimum length 1, but got an "
            "empty array instead.",
            param,
            "empty_array",
        )
    if type == "literal_error":
        values = more["ctx"]["expected"]
        text = f"Invalid value: '{input}'. Supported values are: {values}."
        return _refused(text, param, "invalid_value")
    if type in _EXPECTED:
        expected = "one of a string or " * param.endswith("content") + _EXPECTED[type]
        got = _GOT[input.__class__]
        text = f"Invalid type for '{param}': expected {expected}, but got {got} instead."
        return _refused(text, param, "invalid_type")
    kind = "decimal" if param in ("temperature", "top_p") else "integer"
    side, sign = ("above max", "<=") if type == "less_than_equal" else ("below min", ">=")
    bound = next(iter(more["ctx"].values()))
    return _refused(
        f"Invalid '{param}': {kind} {side}imum value. Expected a value {sign} {bound:g}, but got "
        f"{input} instead.",
        param,
        f"{kind}_{side.replace(' ', '_')}_value",
    )


def _missing(param: str) -> web.Response:
    text = f"Missing required parameter: '{param}'."
    return _refused(text, param, "missing_required_parameter")


def _refused(text: str, param: str, code: str) -> web.Response:
    return error(400, text, param=param, code=code)
