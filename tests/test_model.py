from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from judgeq.config import settle
from judgeq.errors import UsageError
from judgeq.judge.secrets import api_key, extra_headers, from_environment
from judgeq.settings.model import Access, Model


@pytest.fixture(autouse=True)
def _no_keys_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "JUDGEQ_API_KEY"):
        monkeypatch.delenv(name, raising=False)


# Addresses


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("http://h/v1/chat/completions", "http://h/v1"),
        ("https://x.openai.azure.com/openai/v1?api-version=2", "https://x.openai.azure.com/openai/v1?api-version=2"),
        ("https://api.openai.com/v1/", None),
        (None, None),
    ],
)  # fmt: skip
def test_one_address_one_spelling(given: str | None, kept: str | None) -> None:
    model = Model(base_url=given)
    assert model.base_url == kept
    assert model.address_of("m") == kept or model.address_of("m") == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("localhost:8000", "give an address such as"),
        ("ftp://h/v1", "give an address such as"),
        ("http:///v1", "give an address such as"),
        ("https://me:secret@h/v1", "no user or password in the address"),
        ("https://h/v1?api-key=abc", "no key in the address"),
        ("https://h/v1?access_token=abc", "no key in the address"),
    ],
)
def test_addresses_that_can_not_be_kept(given: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Model(base_url=given)


# What decides


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, None),
        ({"max_output_tokens": 5}, 5),
        ({"extra_body": {"max_tokens": 7}}, 7),
        ({"extra_body": {"max_completion_tokens": 8}, "max_output_tokens": 5}, 8),
        ({"extra_body": {"max_tokens": 0}}, None),
        ({"extra_body": {"max_tokens": True}}, None),
        ({"extra_body": {"max_tokens": 2**63 - 1}}, None),
        ({"extra_body": {"max_tokens": -1}, "max_output_tokens": 5}, None),
    ],
)
def test_the_limit_of_output(given: dict[str, Any], limit: int | None) -> None:
    assert Model(**given).output_limit == limit


# Keys


def test_a_key_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    path = tmp_path / "key"
    path.write_text("sk-file\n")
    assert api_key("m", Model(), Access(api_key_file=path)) == "sk-file"
    with pytest.raises(UsageError, match=r"--api-key-file .*none can't be read: No such file"):
        api_key("m", Model(), Access(api_key_file=tmp_path / "none"))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"two words", b"a\nb", "schlüssel".encode(), b"\xff"]
)
def test_a_file_that_holds_no_key_is_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        api_key("m", Model(), Access(api_key_file=path))
    assert str(path) in str(caught.value)
    assert "words" not in str(caught.value)


# Headers, proxies


def test_headers_with_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "t0ken\n")
    access = Access(headers=("X-Token: env:MY_TOKEN", "X-Plain:  a: b "))
    assert extra_headers(access) == {"X-Token": "t0ken", "X-Plain": "a: b"}
    with pytest.raises(UsageError, match="--header X names the environment variable NOT_THERE"):
        extra_headers(Access(headers=("X: env:NOT_THERE",)))
    assert from_environment("plain", "--x") == "plain"
    monkeypatch.setenv("BROKEN", "t0ken\nX-More: 1")
    with pytest.raises(UsageError, match=r"--header X: .* BROKEN holds control characters"):
        extra_headers(Access(headers=("X: env:BROKEN",)))


def test_a_key_in_the_place_of_a_variable_is_not_repeated() -> None:
    for given in ({"api_key_env": "sk-secret-1"}, {"headers": ("X: env:sk-secret-1",)}):
        with pytest.raises(UsageError) as caught:
            extra_headers(settle({"dataset": "demo", **given}))
        assert "variable" in str(caught.value)
        assert "secret" not in str(caught.value)


def test_what_may_hold_a_secret_is_not_kept_on_disk() -> None:
    access = Access(
        headers=("X-Token: s3cret", "X-Kept:env:MY_TOKEN"), proxy="http://me:s3cret@proxy:3128"
    )
    assert access.on_disk() == {"headers": ("X-Kept:env:MY_TOKEN",), "proxy": None}
    plain = Access(proxy="http://proxy:3128")
    assert plain.on_disk() == {"headers": (), "proxy": "http://proxy:3128"}
