"""How sure the mock server is of each token, in the form of OpenAI's `logprobs`.

A label is as likely as the simulated judge's curve makes it: of a pair exactly, of a list's labels
that are left by exp(score / τ). All other tokens are certain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from judgeq.judge.error_model import probability_correct
from judgeq.settings import Simulation

_TOKEN = re.compile(r"[^\W\d_]+|\d+|\s+|.", re.DOTALL)
LEAST = 1e-6


def tokens(text: str) -> list[str]:
    """The text in words, numbers, blanks and single signs, so that each label is a token."""
    return _TOKEN.findall(text)


def logprobs(
    text: str, scores: Mapping[str, float], settings: Simulation, top: int
) -> dict[str, Any]:
    """The `logprobs` of a choice with this text; `scores` are the latent scores by label, and `top`
    how many of the likeliest tokens are listed beside each."""
    parts = tokens(text)
    left, content = dict(scores), []
    for before, token in zip(["", *parts], parts, strict=False):
        likely = {token: 1.0}
        if before == '"' and token in scores:
            left.setdefault(token, scores[token])  # named twice
            likely = _likely(left, settings)
            del left[token]
        listed = sorted(likely, key=lambda name: (-likely[name], name))[:top]
        content.append(
            {**_entry(token, likely), "top_logprobs": [_entry(name, likely) for name in listed]}
        )
    return {"content": content, "refusal": None}


def _likely(left: Mapping[str, float], settings: Simulation) -> dict[str, float]:
    """How likely each label is to be named next."""
    if len(left) == 2:
        (first, a), (second, b) = left.items()
        right = float(probability_correct(np.abs(np.array(a - b)), settings))
        return {first: right if a >= b else 1 - right, second: 1 - right if a >= b else right}
    most = max(left.values())
    weights = {name: math.exp((score - most) / settings.tau) for name, score in left.items()}
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _entry(token: str, likely: Mapping[str, float]) -> dict[str, Any]:
    return {
        "token": token,
        "logprob": math.log(max(LEAST, likely[token])),
        "bytes": list(token.encode()),
    }
