"""Models that no provider has are caught by name; newer ones aren't."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

from judgeq.errors import UsageError
from judgeq.judge import check
from judgeq.judge.prices import models_at
from judgeq.settings.model import Model
from judgeq.settings.providers import PREFIXED, PROVIDERS
from tests.cli import judgeq

EVERYBODY = {"": PROVIDERS["openai"], " ": PROVIDERS["anthropic"], **PREFIXED}


def refused(name: str, **model: Any) -> str:
    with pytest.raises(UsageError, match=f"^--judge {name}: ") as caught:
        check(name, Model(**model))
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("gpt-5-mni", "gpt-5-mini"),
        ("gtp-5-mini", "gpt-5-mini"),
        ("gpt5-mini", "gpt-5-mini"),
        ("GPT-5-mini", "gpt-5-mini"),
        ("gpt-4-1", "gpt-4.1"),
        ("o4-mnii", "o4-mini"),
        ("claude-haiku-4.5", "claude-haiku-4-5"),
        ("claude-4-5-haiku", "claude-haiku-4-5"),
        ("claude-hiaku-4-5", "claude-haiku-4-5"),
        ("cluade-haiku-4-5", "claude-haiku-4-5"),
        ("gemini/gemini-2.5-flsh", "gemini/gemini-2.5-flash"),
        ("mistral/mistral-smal-latest", "mistral/mistral-small-latest"),
        ("groq/llama-3.3-70b-versatil", "groq/llama-3.3-70b-versatile"),
        ("gemni-2.5-flash", "gemini/gemini-2.5-flash"),
        ("gemini-2.5-flash", "gemini/gemini-2.5-flash"),
        ("gemini-99-flash", "gemini/gemini-99-flash"),
        ("ministral-8b-latest", "mistral/ministral-8b-latest"),
        ("deepseek-chat", "deepseek/deepseek-chat"),
        ("grok-99", "xai/grok-99"),
        ("gpt-oss-20b", "groq/gpt-oss-20b or ollama/gpt-oss-20b"),
        ("llama3.2", "groq/llama3.2 or ollama/llama3.2"),
        ("zephyr:7b", "ollama/zephyr:7b"),
        ("openai/gpt-5-mini", "gpt-5-mini or openrouter/openai/gpt-5-mini"),
        ("google/gemini-2.5-pro", "gemini/gemini-2.5-pro or openrouter/google/gemini-2.5-pro"),
        ("some/model", "openrouter/some/model"),
        ("gorq/some-model", "groq/some-model"),
    ],
)
def test_a_slip_is_told_with_what_was_meant_and_how_to_insist(name: str, meant: str) -> None:
    message = refused(name)
    assert f"Did you mean {meant}? " in message
    flags = shlex.split(message.rpartition("all the same: ")[2].removesuffix("."))
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    insisting = Model(base_url=given["--base-url"], api=given.get("--api"))
    check(name.partition("/")[2] if name.partition("/")[0] in PREFIXED else name, insisting)
    for one in meant.split(" or "):
        check(one, Model())


@pytest.mark.parametrize(
    "name",
    [
        *(
            "gpt-5.7-mini",
            "gpt-99",
            "gpt-5o",
            "gpt-5-mini-2031-01-01",
            "gpt-6.9-sol",
            "o5",
            "o9-mini",
        ),
        *("chatgpt-9-latest", "ft:gpt-4o-mini:my-org:mni:1", "gpt-7-medium", "codex-mini-latest"),
        *("claude-haiku-99", "claude-haiku-4-5-20251001", "claude-epic-9-1"),
        *(
            "gemini/gemini-99-flash",
            "gemini/gemma-9-9b-it",
            "mistral/brandnew-large",
            "xai/grok-5x",
        ),
        *("openrouter/anthropic/claude-haiku-4.5", "openrouter/openai/gpt-5-mni", "groq/new/model"),
        *("ollama/llama3.2", "ollama/gpt-5-mni", "xai/grok-4-0719", "gemini/gemma-4-31b-pt"),
    ],
)
def test_a_model_that_is_newer_than_the_list_is_asked(name: str) -> None:
    check(name, Model())


@pytest.mark.parametrize("prefix", EVERYBODY)
def test_all_models_that_are_known_are_asked(prefix: str) -> None:
    provider = EVERYBODY[prefix]
    asked = [one for one in models_at(provider.address) if not one.startswith("gpt-oss")]
    asked = [one for one in asked if provider.address != PROVIDERS["openai"].address or _chats(one)]
    assert asked or prefix == "ollama"
    for one in asked:
        check(f"{prefix}/{one}" if prefix in PREFIXED else one, Model())


def _chats(name: str) -> bool:
    """Not one of OpenAI's that hears, speaks, moderates or was withdrawn before chats were."""
    return not name.startswith(("ada", "curie", "moderation", "tts", "whisper"))


def test_a_name_that_is_nobodys_is_told_what_to_name() -> None:
    message = refused("my-model")
    assert "--base-url URL, or one of gemini/…, mistral/…, deepseek/…, xai/…, groq/…" in message
    check("my-model", Model(api="openai"))
    check("my-model", Model(base_url="https://api.openai.com/v1"))


@pytest.mark.parametrize("given", [{"base_url": "http://h/v1"}, {"openai_base_url": "http://h/v1"}])
def test_a_server_of_ones_own_may_call_its_models_anything(given: dict[str, Any]) -> None:
    for name in ("gpt-5-mni", "my-model", "gemini-2.5-flash", "some/model"):
        check(name, Model(**given))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("groq/", {}),
        ("gemini/gemini-2.5-flash", {"api": "openai"}),
        ("gemini/gemini-2.5-flash", {"base_url": "https://api.openai.com/v1"}),
    ],
)
def test_a_prefix_says_where_and_nothing_else_does(name: str, given: dict[str, Any]) -> None:
    prefix = name.partition("/")[0]
    assert f"write {prefix}/MODEL, without --base-url and --api" in refused(name, **given)


def test_nothing_is_written_or_sent_for_a_slip(tmp_path: Path) -> None:
    for command in ("run", "estimate"):
        done = judgeq(
            *(tmp_path, command, "-d", "demo", "--judge", "gpt-5-mni", "--max-cost", "1"),
            expect=2,
            variables={"OPENAI_API_KEY": "k"},
        )
        assert "Did you mean gpt-5-mini?" in " ".join(done.stderr.split())
    assert not (tmp_path / "runs").exists()
