"""Texts that are too long for a model, found before anything is paid.

A question holds up to k texts, the prompt and the reply. Which texts meet is decided later, so the
longest are left out until the k longest of the others fit together: then any question does.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from judgeq import prompts
from judgeq.config import Settings
from judgeq.datasets import Dataset
from judgeq.datasets.dataset import tokens_of, without_long
from judgeq.errors import DataError
from judgeq.judge import prices
from judgeq.judge.budget import answer_tokens, output_bound
from judgeq.prompts import PromptSet
from judgeq.strategies import Strategy
from judgeq.text import count, several
from judgeq.types import Floats

NAMED = 5
"""So many of the texts are named, the longest first."""


class Room(NamedTuple):
    """What a model reads: tokens in all, and those that a question leaves for its texts."""

    model: str
    reads: int
    texts: float


def fitted(
    settings: Settings, dataset: Dataset, strategy: Strategy, prompt: PromptSet | None
) -> tuple[Settings, Dataset]:
    """The settings and the items without texts that are too long, where these are to be skipped. Where
    nothing is known of how much a model reads, all fit.

    Raises DataError naming the texts where it isn't said what to do with them.
    """
    texts, k = dataset.texts, getattr(strategy, "k", 2 if strategy.pairs else 1)
    room = None if prompt is None or texts is None else _room(settings, prompt, k)
    if texts is None or room is None or settings.skip_long is False:
        return settings, dataset
    tokens = np.array([tokens_of(text) for text in texts])
    longest = _longest(tokens, k, room.texts)
    if longest >= tokens.max(initial=0):
        return settings, dataset
    if settings.skip_long and longest >= 0:
        settings = settings.model_copy(update={"longest_text": longest})
        return settings, without_long(dataset, longest)
    order = np.argsort(-tokens, kind="stable")
    n, fit = int((tokens > longest).sum()), int((tokens[order].cumsum() <= room.texts).sum())
    named = ", ".join(
        f"{dataset.ids[i]!r} (about {count(round(tokens[i]))} tokens)" for i in order[:n][:NAMED]
    )
    smaller = f"--strategy {strategy.kind}{fit}, or " if k > 2 and fit > 1 else ""
    any_k = "the text" if k == 1 else f"any {k} texts"
    raise DataError(
        f"{several(n, 'text')} of {len(dataset):,} may be too long for {room.model}, which reads "
        f"{room.reads:,} tokens: the prompt, the reply and {any_k} together. They are {named}"
        f"{', …' if n > NAMED else ''}.\n"
        f"--skip-long leaves them out, --no-skip-long asks all the same. To keep all: {smaller}a model "
        "that reads more."
    )


def _room(settings: Settings, prompt: PromptSet, k: int) -> Room | None:
    """That of the model that leaves the least; None where it isn't known of any."""
    parts = prompts.messages(prompt, [""] * k, reasons=settings.reasons)
    asked = tokens_of("".join(part["content"] for part in parts))
    rooms = list[Room]()
    for model in settings.models:
        reads = prices.context_window(settings.id_of(model), settings.address_of(model))
        reply = settings.output_limit or answer_tokens(k, settings.reasons)
        if settings.output_limit is None and settings.api_of(model) == "anthropic":
            reply = output_bound(settings.reasons)  # which is sent as its limit
        if reads is not None:
            rooms.append(Room(model, reads, reads - asked - reply))
    return min(rooms, key=lambda room: room.texts, default=None)


def _longest(tokens: Floats, k: int, room: float) -> float:
    """The longest that a text may be, in tokens, so that any k of them fit; -1 if none may."""
    sizes = -np.sort(-tokens)
    upto = np.concatenate([[0.0], np.cumsum(sizes)])
    ends = np.minimum(np.arange(len(sizes)) + k, len(sizes))
    first = np.concatenate([[True], sizes[1:] < sizes[:-1]])[: len(sizes)]  # of those as long
    fits = np.flatnonzero(first & (upto[ends] - upto[:-1] <= room))
    return float(sizes[fits[0]]) if len(fits) else -1.0
