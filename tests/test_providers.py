"""Providers by prefix: address, key, model, price. A local server stands in for each."""

from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from judgeq import run
from judgeq.config import settle
from judgeq.engine import assembly
from judgeq.errors import KeyMissingError, UsageError
from judgeq.judge.http.openai import OpenAIChat
from judgeq.judge.secrets import api_key
from judgeq.settings.model import Access, Model
from judgeq.settings.providers import PREFIXED, PROVIDERS, Provider
from tests.cli import REPO
from tests.mock import mock, stats
from tests.test_openai_chat import LIST, ask
from tests.web import answering, completion

MODEL = {
    "gemini": "gemini-3.8-flash",
    "mistral": "mistral-small-latest",
    "deepseek": "deepseek-v4-flash",
    "xai": "grok-4.3",
    "groq": "openai/gpt-oss-20b",
    "openrouter": "anthropic/claude-haiku-4.5",
    "ollama": "llama3.2:3b",
}
KEYS = {one.key: f"sk-{one.name}-0123456789" for one in (*PROVIDERS.values(), *PREFIXED.values())}
KEYS["JUDGEQ_API_KEY"] = "sk-of-ones-own-0123456789"
del KEYS[""]


@pytest.fixture(autouse=True)
def _all_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who has keys of all providers."""
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)


def standing_in(patch: pytest.MonkeyPatch, prefix: str, url: str) -> None:
    """Let a local server be the provider's own address; OpenAI and Anthropic are named by their APIs."""
    providers = cast("dict[str, Provider]", PREFIXED if prefix in PREFIXED else PROVIDERS)
    patch.setitem(providers, prefix, providers[prefix]._replace(address=url))


@pytest.mark.parametrize("prefix", PREFIXED)
def test_a_prefix_names_the_address_the_key_and_the_model(prefix: str) -> None:
    provider, name = PREFIXED[prefix], f"{prefix}/{MODEL[prefix]}"
    settings = settle({"dataset": "demo", "judge": name})
    assert settings.address_of(name) == provider.address
    assert (settings.api_of(name), settings.id_of(name)) == ("openai", MODEL[prefix])
    assert api_key(name, settings, Access()) == KEYS.get(provider.key)
    assert settings.judges == (name,)
    assert settings.addresses == (provider.address,)
    pricing = assembly.price_of(settings, name)
    assert (pricing is None) == (prefix == "ollama")  # which nobody bills
    mine = settle({"dataset": "demo", "judge": name, "prices": {name: {"input": 7, "output": 8}}})
    priced = assembly.price_of(mine, name)
    assert priced is not None
    assert priced.price.input == 7


@pytest.mark.parametrize("prefix", PREFIXED)
async def test_a_provider_is_sent_its_own_key_and_no_other(
    monkeypatch: pytest.MonkeyPatch, prefix: str
) -> None:
    seen: list[tuple[web.Request, bytes]] = []

    async def handler(got: web.Request) -> web.Response:
        seen.append((got, await got.read()))
        return web.json_response(completion('{"ranking": ["A", "B", "C"]}'))

    async with answering(handler) as url:
        standing_in(monkeypatch, prefix, url)
        made = OpenAIChat(f"{prefix}/{MODEL[prefix]}", Model(), Access(), None)
        await made.open()
        await ask(made, LIST)
        await made.close()
    ((got, body),) = seen
    key = KEYS.get(PREFIXED[prefix].key)
    assert got.headers.get("Authorization") == (key and f"Bearer {key}")
    assert got.path == "/v1/chat/completions"
    assert f'"model":"{MODEL[prefix]}"'.encode() in body
    sent = f"{got.rel_url} {dict(got.headers)} {body.decode()}"
    assert [one for one in KEYS.values() if one in sent] == ([key] if key else [])


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        *((f"{prefix}/{MODEL[prefix]}", provider.key) for prefix, provider in PREFIXED.items()),
        *(("gpt-5-mini", "OPENAI_API_KEY"), ("claude-haiku-4-5", "ANTHROPIC_API_KEY")),
    ],
)
def test_a_missing_key_is_named_not_replaced(
    monkeypatch: pytest.MonkeyPatch, name: str, variable: str
) -> None:
    if variable:
        assert api_key(name, Model(), Access()) == KEYS[variable]
        monkeypatch.delenv(variable)
        with pytest.raises(KeyMissingError, match=f"variable {variable} is not set, which {name}"):
            api_key(name, Model(), Access())
    else:
        assert api_key(name, Model(), Access()) is None
    named = Access(api_key_env="JUDGEQ_API_KEY")
    assert api_key(name, Model(), named) == KEYS["JUDGEQ_API_KEY"]
    monkeypatch.delenv("JUDGEQ_API_KEY")
    with pytest.raises(KeyMissingError, match="JUDGEQ_API_KEY is not set"):
        api_key(name, Model(), named)
    for api in ("anthropic", "openai", None):
        assert api_key(name, Model(base_url="http://h/v1", api=api), Access()) is None


@pytest.mark.parametrize("prefix", PREFIXED)
def test_a_server_that_is_given_gets_the_whole_name_and_no_providers_key(prefix: str) -> None:
    name = f"{prefix}/{MODEL[prefix]}"  # as LiteLLM has it
    for address in ("http://h/v1", f"{PREFIXED[prefix].address}.thief.example"):
        own = Model(base_url=address)
        assert (own.address_of(name), own.id_of(name)) == (address, name)
        assert api_key(name, own, Access()) == KEYS["JUDGEQ_API_KEY"]


def test_models_of_several_providers_judge_one_run_each_with_its_own_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (
        mock(tmp_path, "--key", KEYS["GROQ_API_KEY"], "--only-model", "org/a") as groq,
        mock(tmp_path, "--only-model", "b") as ollama,
    ):
        standing_in(monkeypatch, "groq", groq)
        standing_in(monkeypatch, "ollama", ollama)
        monkeypatch.delenv("JUDGEQ_API_KEY")
        asked: dict[str, Any] = {"prompt": "bias", "strategy": "pairwise1", "runs_dir": tmp_path}
        result = run("demo", judge=("groq/org/a", "ollama/b"), sample=20, **asked)
        assert result.judges == ["groq/org/a", "ollama/b"]
        assert [stats(url)["outcomes"] for url in (groq, ollama)] == [{"ok": 5}, {"ok": 5}]
        # A reply is known by where it came from and what the server calls the model.
        run("demo", judge="ollama/b", sample=20, **asked)
        before = stats(ollama)["requests"]
        run("demo", judge="b", base_url=ollama, sample=20, **asked)
        assert stats(ollama)["requests"] == before


@pytest.mark.parametrize(
    ("given", "flag"),
    [
        ({"api_key_env": "MY_KEY"}, "--api-key-env"),
        ({"headers": ("X-Team: mine",)}, "--header"),
        ({"extra_body": {"token": "s3cret"}}, "--extra-body"),
    ],
)
def test_nothing_that_may_hold_a_key_is_sent_to_several(given: dict[str, Any], flag: str) -> None:
    judges = ("gpt-5-mini", "groq/a", "ollama/b")
    with pytest.raises(UsageError, match=f"{flag}: .* OpenAI and Groq and Ollama") as caught:
        settle({"dataset": "demo", "judge": judges, **given})
    assert "from $OPENAI_API_KEY and $GROQ_API_KEY)" in str(caught.value)
    assert "s3cret" not in str(caught.value)
    settle({"dataset": "demo", "judge": ("groq/a", "groq/b"), **given})


def test_the_page_lists_every_provider() -> None:
    lines = (REPO / "docs" / "providers.md").read_text(encoding="utf-8").splitlines()
    for prefix, provider in PREFIXED.items():
        key = f"`{provider.key}`" if provider.key else "none"
        row = f"| {provider.name} | `{prefix}/{MODEL[prefix]}` | {provider.address} | {key} |"
        assert row in lines
