"""A Python function as judge: it gets a question's texts and the feature, and returns their order."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from operator import index
from types import CodeType
from typing import Any

from judgeq.errors import JudgeError, UsageError
from judgeq.judge import FUNCTION_PREFIX
from judgeq.judge.backend import Prepared, Reply, Request
from judgeq.judge.simulated import NO_TOKENS, Offline
from judgeq.replies import write_reply
from judgeq.types import Match, Verdict

JudgeFunction = Callable[[Sequence[str], str], Any]
"""Takes texts and the feature. Returns their places (from 0), most of the feature first; a number from 0
to 1 for a single text. It may be a coroutine function."""


def judge_name(function: JudgeFunction) -> str:
    """The judge that a function is: its name and a hash of its code, and of the plain values that it was
    made with, since changed code is another judge. What it calls, and objects it holds, aren't seen.
    Raises UsageError for a callable without code of its own, as a built-in one."""
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    if code is None:
        raise UsageError(
            f"judge: {function!r} has no code of its own. Give a function that calls it."
        )
    own = getattr(function, "__name__", type(function).__name__)
    name = re.sub(r"\W+", "", own) or "function"
    closure = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    held = [*closure.values(), *(getattr(function, "__defaults__", None) or ())]
    plain = repr([value for value in held if isinstance(value, str | int | float)])
    digest = hashlib.sha256(_source(code) + plain.encode()).hexdigest()
    return f"{FUNCTION_PREFIX}{name}-{digest[:8]}"


def _source(code: CodeType) -> bytes:
    """What a function does, wherever it stands: its bytecode, names and constants."""
    constants = [
        _source(one) if isinstance(one, CodeType) else repr(one).encode() for one in code.co_consts
    ]
    return b"\0".join([code.co_code, repr((code.co_names, code.co_freevars)).encode(), *constants])


class FunctionJudge(Offline):
    """The backend. A plain function is called in a thread, once at a time; a coroutine function as often
    at once as `--concurrency` allows. `texts` by row."""

    def __init__(
        self, name: str, function: JudgeFunction, texts: Sequence[str], feature: str
    ) -> None:
        self.name = name
        self._function = function
        self._texts = texts
        self._feature = feature
        self._one_at_a_time = asyncio.Lock()

    def prepare(self, request: Request) -> Prepared:
        """A free call, kept in the cache by the function's name and code, the feature and the texts."""
        from judgeq.judge.cache import key_of  # brings diskcache

        texts = [text.encode() for text in self._of(request.match)]
        return Prepared(key=key_of(b"function", self.name.encode(), self._feature.encode(), *texts))

    def _of(self, match: Match) -> list[str]:
        return [self._texts[item] for item in match.items]

    def output_within(self, prepared: Prepared, dollars: float) -> int:
        """Return 0: it costs nothing, so that no cap refuses it."""
        return 0

    async def complete(self, request: Request, prepared: Prepared) -> Reply:
        """The function's order as a reply. Raises JudgeError for what it raises, and for what is no
        order."""
        match = request.match
        try:
            answer = await self._called(self._of(match))
        except Exception as error:
            raise JudgeError(
                f"the judge {self.name} raised {type(error).__name__}: {error}.", cost=0.0
            ) from error
        verdict = _verdict(answer, match)
        if verdict is None:
            raise JudgeError(
                f"the judge {self.name} returned {repr(answer)[:100]}, not an order of the places 0 to "
                f"{len(match.items) - 1}, most of the feature first; or, of a single text, a number "
                "from 0 to 1.",
                cost=0.0,
            )
        return Reply(write_reply(verdict, match), NO_TOKENS, 0.0)

    async def _called(self, texts: list[str]) -> Any:
        if inspect.iscoroutinefunction(self._function):
            return await self._function(texts, self._feature)
        async with self._one_at_a_time:
            answer = await asyncio.to_thread(self._function, texts, self._feature)
        return await answer if isinstance(answer, Awaitable) else answer


def _verdict(answer: Any, match: Match) -> Verdict | None:
    """The verdict that a function's answer is; None where it is none."""
    try:
        if match.kind == "direct":
            score = float(answer)
            return Verdict(match.items, (), score) if 0 <= score <= 1 else None
        places = [index(place) for place in answer]
    except (TypeError, ValueError):
        return None
    if sorted(places) != list(range(len(match.items))):
        return None
    return Verdict(tuple(match.items[place] for place in places))
