"""The providers whose addresses are known, by the form of their API or by prefix."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

OPENAI = "https://api.openai.com/v1"
ANTHROPIC = "https://api.anthropic.com/v1"
Api = Literal["openai", "anthropic"]


class Provider(NamedTuple):
    """Who runs models: their name, their own address, the variable that holds its key ("": it needs
    none), how the names of their models begin (a pattern; "": as may be), and the variable by which
    their package is sent to another address with that key."""

    name: str
    address: str
    key: str
    families: str = ""
    variable: str = ""


PROVIDERS: Mapping[Api, Provider] = {
    "openai": Provider(
        "OpenAI",
        OPENAI,
        "OPENAI_API_KEY",
        r"(gpt(?!-oss)|chatgpt|codex|computer|ft:|o\d|davinci|babbage|text-)[^/]*$",
        "OPENAI_BASE_URL",
    ),
    "anthropic": Provider(
        "Anthropic", ANTHROPIC, "ANTHROPIC_API_KEY", "claude", "ANTHROPIC_BASE_URL"
    ),
}
"""By form of API, those who defined it."""
_OPEN = "llama|qwen|gpt-oss|mixtral|phi|kimi|glm"
"""Models that many run, and those who made them don't sell."""
PREFIXED: Mapping[str, Provider] = {
    "gemini": Provider(
        "Google",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "gemini|gemma",
    ),
    "mistral": Provider(
        "Mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        "(open-)?m(ini|agi|i)stral|(code|dev)stral",
    ),
    "deepseek": Provider("DeepSeek", "https://api.deepseek.com", "DEEPSEEK_API_KEY", "deepseek"),
    "xai": Provider("xAI", "https://api.x.ai/v1", "XAI_API_KEY", "grok"),
    "groq": Provider("Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", _OPEN),
    "openrouter": Provider("OpenRouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ollama": Provider("Ollama", "http://localhost:11434/v1", "", f"{_OPEN}|[^:]+:"),
}
"""By prefix ("groq/…"), others who speak like OpenAI, as they document it: docs/providers.md."""
