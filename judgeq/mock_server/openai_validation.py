"""Why OpenAI refuses a batch after it was created: its lines, and the tokens that wait.

The codes are those that are seen in `errors.data` of failed batches, and those that
learn.microsoft.com/azure/ai-services/openai/how-to/batch lists.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson

from judgeq.mock_server.batches import BURST, Batches, Lines

MOST_LINES = 50_000
MOST_PROBLEMS = 100


async def checked(
    lines: Lines, endpoint: str, batches: Batches
) -> tuple[str | None, list[dict[str, Any]]]:
    """The model of the lines, and why they don't pass validation, as entries of `errors.data`."""
    if not len(lines):
        text = (
            "The input file is empty. Please ensure that your batch contains at least one request."
        )
        return None, [_problem("empty_file", text, "input_file_id")]
    if len(lines) > MOST_LINES:
        text = f"The number of requests in the input file exceeds the maximum of {MOST_LINES}."
        return None, [_problem("too_many_tasks", text)]
    known: set[str] = set()
    problems, model = [], None
    for number in range(len(lines)):
        try:
            line = orjson.loads(lines[number])
        except orjson.JSONDecodeError:
            line = None
        problem = _line_problem(line, endpoint, known, model)
        if problem is not None:
            problems.append({**problem, "line": number + 1})
            if len(problems) == MOST_PROBLEMS:
                break
        elif model is None:
            model = line["body"]["model"]
        if number % BURST == 0:
            await asyncio.sleep(0)
    if not problems and (drawn := batches.drawn("invalid")) is not None:
        text = "The request body is not valid."
        problems = [_problem("invalid_request", text, "body", int(drawn * len(lines)) + 1)]
    if not problems and batches.full("openai", lines):
        most = batches.settings.batch_queue_tokens
        text = (
            f"Enqueued token limit reached for {model} in organization org-mock. Limit: {most:,} "
            "enqueued tokens. Please try again once some in_progress batches have been completed."
        )
        problems = [_problem("token_limit_exceeded", text)]
    return model, problems


def _line_problem(
    line: Any, endpoint: str, known: set[str], model: str | None
) -> dict[str, Any] | None:
    """Why a line doesn't pass, or None; its custom id is `known` from then on."""
    if not isinstance(line, dict):
        return _problem("invalid_json_line", "This line is not parseable as valid JSON.")
    for name in ("custom_id", "method", "url", "body"):
        if not isinstance(line.get(name), dict if name == "body" else str):
            return _problem(
                "missing_required_parameter", f"Missing required parameter: '{name}'.", name
            )
    if line["method"] != "POST":
        text = f"Invalid value: '{line['method']}'. Supported values are: 'POST'."
        return _problem("invalid_method", text, "method")
    if line["url"] != endpoint:
        text = "The URL provided for this request does not match the batch endpoint."
        return _problem("invalid_url", text, "url")
    custom_id, named = line["custom_id"], line["body"].get("model")
    if custom_id in known:
        text = (
            f"The custom_id '{custom_id}' for this request is a duplicate of another request. The "
            "custom_id parameter must be unique for each request in a batch."
        )
        return _problem("duplicate_custom_id", text, "custom_id")
    known.add(custom_id)
    if not isinstance(named, str):
        return _problem(
            "missing_required_parameter", "Missing required parameter: 'model'.", "body.model"
        )
    if model not in (None, named):
        text = (
            f"The model '{named}' for this request does not match the rest of the batch. Each batch "
            "must contain requests for a single model."
        )
        return _problem("mismatched_model", text, "body.model")
    return None


def _problem(
    code: str, message: str, param: str | None = None, line: int | None = None
) -> dict[str, Any]:
    return {"code": code, "line": line, "message": message, "param": param}
