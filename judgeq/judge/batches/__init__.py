"""Batch APIs by provider."""

from __future__ import annotations

from judgeq.judge.batches.anthropic import AnthropicBatches
from judgeq.judge.batches.openai import OpenAIBatches
from judgeq.judge.batches.provider import BatchAPI
from judgeq.judge.http.anthropic import AnthropicMessages
from judgeq.judge.http.model_backend import ModelBackend


def api_of(backend: ModelBackend) -> BatchAPI:
    """The batch API beside a backend, whose session it uses: as long as that is open."""
    if isinstance(backend, AnthropicMessages):
        return AnthropicBatches(backend)
    return OpenAIBatches(backend)
