"""Keys and headers of a model behind an API: taken from the environment and files, never shown.

Whatever a server or a proxy says is masked before anything else reads it: a secret as it is, as in a
URL, as in JSON, and in base64. Masking comes before cutting, parsing and storing, so that nothing
further on has to know of secrets.
"""

from __future__ import annotations

import json
import os
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import orjson

from judgeq.errors import KeyMissingError, UsageError
from judgeq.files import ordinary
from judgeq.settings.model import SECRETIVE, VARIABLE, Access, Model
from judgeq.types import Headers

OWN_KEY = "JUDGEQ_API_KEY"
"""The variable of the key of a server that is no provider's."""
SHOWN = "***"
SHORTEST = 6
"""Characters. What is shorter would be found in any text, and is no secret worth the name; behind a
scheme or a user ("Bearer x", "user:x") it is masked all the same."""

# Verdicts are read from masked texts: what is kept in the ledger and in the cache is what was read.
# So the words by which an answer is read are never masked, even where a secret holds one of them;
# masked, such an answer would be unusable, never another verdict.
_PUBLIC = (
    '"reason" "ranking" "winner" "score" "tie" choices message content refusal finish_reason length '
    "content_filter usage prompt_tokens completion_tokens total_tokens prompt_tokens_details "
    "cached_tokens completion_tokens_details reasoning_tokens prompt_cache_hit_tokens "
    "error code detail status metadata assistant Bearer Basic Token "
    "input_tokens output_tokens cache_creation cache_creation_input_tokens cache_read_input_tokens "
    "ephemeral_5m_input_tokens ephemeral_1h_input_tokens output_tokens_details thinking_tokens "
    "custom_id response status_code result succeeded errored canceled expired "
    "batch_expired batch_cancelled "
    "stop_reason end_turn max_tokens model_context_window_exceeded pause_turn tool_use thinking input "
)


def from_environment(value: str, what: str) -> str:
    """The value itself, or that of the variable it names as "env:NAME".

    Raises UsageError when there is no such variable.
    """
    if not value.startswith("env:"):
        return value
    name = value.removeprefix("env:").strip()
    if not VARIABLE.fullmatch(name):  # not repeated: it may be the secret itself
        raise UsageError(f"{what}: what stands after env: is no name of an environment variable.")
    if name not in os.environ:
        raise UsageError(f"{what} names the environment variable {name}, which is not set.")
    held = os.environ[name].strip()
    if not held.isprintable():
        raise UsageError(
            f"{what}: the environment variable {name} holds control characters: one line is expected."
        )
    return held


def api_key(judge: str, model: Model, access: Access) -> str | None:
    """The API key of a model: from the file or the variable named, else from its provider's own
    variable ($OPENAI_API_KEY, of gemini/… $GEMINI_API_KEY), or from $JUDGEQ_API_KEY for any other
    server, which may do without, as Ollama does.

    Raises KeyMissingError when the server needs one and none is there, and UsageError when what was
    named holds none. A provider's key is sent nowhere else unless it is named, or the provider's own
    variable ($OPENAI_BASE_URL, $ANTHROPIC_BASE_URL) gave the address.
    """
    own = model.provider_of(judge).key if model.base_url is None else OWN_KEY
    name = access.api_key_env or own
    if access.api_key_file is not None:
        try:
            key = ordinary(access.api_key_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
            raise UsageError(
                f"--api-key-file {access.api_key_file} can't be read: {reason}. "
                "--api-key-env names a variable instead."
            ) from error
        where = f"--api-key-file {access.api_key_file}"
    else:
        needed = bool(name) and (model.base_url is None or access.api_key_env)
        key = os.environ.get(name, "").strip() if name else ""
        if not key and needed:
            raise KeyMissingError(
                f"no API key: the environment variable {name} is not set, which {judge} needs. Set it, "
                "or give --api-key-env NAME, --api-key-file FILE, or --base-url for your own server. "
                "Nothing was sent."
            )
        if not key:
            return None
        where = f"the environment variable {name}"
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{where} holds no API key: one line of plain characters is expected.")
    return key


def extra_headers(access: Access) -> dict[str, str]:
    """The headers of --header, variables put in. Raises UsageError for one that isn't set."""
    sent = {}
    for header in access.headers:
        name, _, value = header.partition(":")
        sent[name.strip()] = from_environment(value.strip(), f"--header {name.strip()}")
    return sent


class Mask:
    """Everything secret that one session sends, and how it is kept from coming back."""

    def __init__(self, secrets: Iterable[str]) -> None:
        forms = {
            form
            for secret in secrets
            if len(secret) >= SHORTEST and secret not in _PUBLIC
            for form in _forms(secret)
        }
        self._forms = sorted(forms, key=len, reverse=True)

    @classmethod
    def of(cls, access: Access, key: str | None, headers: Headers, proxy: str | None) -> Mask:
        """What must not come back of a key, the headers of `access` (as sent), and a proxy's
        address."""
        secrets = {key or "", *_in_proxy(proxy)}
        for header in access.headers:
            name, _, given = header.partition(":")
            value = headers.get(name.strip(), "")
            secrets.add(value)
            if given.strip().startswith("env:") or SECRETIVE.search(name):
                secrets |= _behind_scheme(value)
        return cls(secrets)

    def text(self, text: str) -> str:
        """The text without the secrets."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, SHOWN)
        return text

    def body(self, body: bytes) -> bytes:
        """An answer's body without the secrets, still JSON if it was."""
        text = body.decode(errors="replace")
        masked = self.text(text)
        if masked == text and "\\u" not in text and "\\/" not in text:  # escapes may hide a secret
            return body
        try:
            given = orjson.loads(body)
            within = self._within(given)
        except (orjson.JSONDecodeError, RecursionError):  # no JSON, or too deep
            return body if masked == text else masked.encode(errors="replace")
        return body if within == given else orjson.dumps(within)

    def headers(self, headers: Headers) -> dict[str, str]:
        """An answer's headers without the secrets."""
        return {name: self.text(value) for name, value in headers.items()}

    def holds(self, text: str) -> bool:
        """Whether a secret is in the text."""
        return any(form in text for form in self._forms)

    def _within(self, value: Any) -> Any:
        """The same with all strings masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._within(part) for part in value]
        if isinstance(value, dict):
            return {self.text(name): self._within(part) for name, part in value.items()}
        return value


def _forms(secret: str) -> set[str]:
    """How a secret may be written."""
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    raw = secret.encode(errors="surrogateescape")
    percent = {quote(raw), quote(raw, safe=""), quote_plus(raw)}
    slashes = {form.replace("/", "\\/") for form in escaped}
    return {secret, *escaped, *slashes, *percent, *_base64(raw)}


def _base64(raw: bytes) -> set[str]:
    """How a secret reads within base64, wherever in the encoded text it stands."""
    forms = set()
    for before, skipped in ((0, 0), (1, 2), (2, 3)):
        encoded = b64encode(bytes(before) + raw).decode()
        own = encoded[skipped : (before + len(raw)) * 4 // 3]
        forms |= {own, own.replace("+", "-").replace("/", "_")}
    return forms


def _behind_scheme(value: str) -> set[str]:
    """The credentials of a header "Bearer x" or "Basic x"; of the latter also what was encoded."""
    scheme, _, given = value.partition(" ")
    given = given.strip()
    if scheme.lower() != "basic":
        return {given}
    try:
        decoded = b64decode(given, validate=True).decode()
    except ValueError:
        return {given}
    return {given, decoded, decoded.partition(":")[2]}


def _in_proxy(proxy: str | None) -> set[str]:
    """The user and password in a proxy's address, as given and percent-decoded."""
    given = (proxy or "").rpartition("@")[0].rpartition("//")[2]
    secrets = set()
    for both in (given, unquote(given)):
        user, _, password = both.partition(":")
        secrets |= {both, password or user}
    return secrets
