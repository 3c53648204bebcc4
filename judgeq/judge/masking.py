"""No key comes back: whatever a server or a proxy says is masked before anything else reads it.

A secret is masked bare, in pieces of six characters or more, in base64, and behind any mix of
percent, JSON and HTML escapes. Masking comes before cutting, parsing and storing, so that nothing
further on has to know of secrets.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import orjson

from judgeq.settings.model import SECRETIVE, Access

SHOWN = "***"
SHORTEST = 6
"""Characters. What is shorter would be found in any text, and is no secret worth the name; behind a
scheme or a user ("Bearer x", "user:x") it is masked all the same."""
_ANCHOR = 4  # characters; every so often one of a secret is searched for, and the piece around it
_MOST_PIECES = 100_000
_MOST_ESCAPES = 1_000_000
_LAYERS = 4

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

# What only answers of models hold, and no errors.
_ANSWERS = (b'"choices"', b'"stop_reason"')

# Invisible characters are dropped by whoever shows a text, and would then give the secret back.
_INVISIBLE = (
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    "\ue000-\uf8ff\ufe00-\ufe0f\ufeff\ufff9-\ufffb\U000e0000-\U000e01ef]"
)
_LETTER = r"\\(?:u(?:00[0-9a-fA-F]{2}|20[0-6][0-9a-fA-F]|[fF][eE][fF]{2})|x[0-9a-fA-F]{2}|/)"
_ESCAPE = re.compile(
    r"\\{0,7}" + _LETTER + r"|(?:%(?:25){0,3}[0-9a-fA-F]{2})+"
    r"|&(?:amp;){0,3}#(?:[0-9]{2,6}|[xX][0-9a-fA-F]{2,5});"
    r"|\x1b\[[0-?]{0,20}[@-~]"
    "|" + _INVISIBLE
)
_PERCENT = re.compile("%[0-9a-fA-F]{2}")
_LETTERS = re.compile(_LETTER)
_LAYERED_PERCENT = re.compile("%(?:25)+")


class Mask:
    """Everything secret that one session sends, and how it is kept from coming back.

    `secrets` are masked whole and in pieces; `values` may be ordinary words, and are masked whole.
    """

    def __init__(self, secrets: Iterable[str], values: Iterable[str] = ()) -> None:
        hidden, whole = (
            {
                form
                for value in given
                for form in (value, _ESCAPE.sub(_resolved, value))
                if len(form) >= SHORTEST and form not in _PUBLIC
            }
            for given in (secrets, values)
        )
        for secret in hidden:
            whole |= {secret, *_base64(secret)}
        self._whole = tuple(sorted(whole, key=len, reverse=True))
        self._pieces = tuple(
            (secret, least, at, secret[at : at + _ANCHOR])
            for secret in sorted(hidden)
            for least in (max(SHORTEST, len(secret) // 20),)
            # Whatever piece has `least` characters holds one of these whole.
            for at in range(0, len(secret) - _ANCHOR + 1, least - _ANCHOR + 1)
        )

    @classmethod
    def of(
        cls, access: Access, key: str | None, headers: Mapping[str, str], proxy: str | None
    ) -> Mask:
        """What must not come back of a key, the headers of `access` (as sent), and a proxy's
        address."""
        secrets, values = {key or ""}, set()
        for header in access.headers:
            name, _, given = header.partition(":")
            value = headers.get(name.strip(), "")
            if given.strip().startswith("env:") or SECRETIVE.search(name):
                secrets |= {value, *_behind_scheme(value)}
            else:
                values.add(value)
        return cls(secrets | _in_proxy(proxy), values)

    def text(self, text: str) -> str:
        """The text without the secrets. Where one hid behind escapes, these are resolved."""
        text = self._bare(text)
        if not self._whole or not _escaped(text):
            return text
        if sum(map(text.count, "\\%&")) > _MOST_ESCAPES:
            return SHOWN  # made to keep us busy
        resolved = text
        for _ in range(_LAYERS):
            resolved = _ESCAPE.sub(_resolved, resolved)
            masked = self._bare(resolved)
            if masked != resolved:
                text = resolved = masked
        return text

    def body(self, body: bytes) -> bytes:
        """An answer's body without the secrets, still JSON if it was."""
        text = body.decode(errors="replace")
        if any(mark in body for mark in _ANSWERS) and not self.holds(text):
            return body  # a model's words: it knows no secret to give a piece of
        masked = self.text(text)
        if masked == text:
            return body
        try:
            return orjson.dumps(self._within(orjson.loads(body)))
        except (orjson.JSONDecodeError, TypeError, RecursionError):  # no JSON, or too deep
            return masked.encode(errors="replace")

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """An answer's headers without the secrets."""
        return {name: self.text(value) for name, value in headers.items()}

    def holds(self, text: str) -> bool:
        """Whether a whole secret may be in the text; the fast way."""
        return _escaped(text) or any(secret in text for secret in self._whole)

    def _within(self, value: Any) -> Any:
        """The same with all strings masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._within(part) for part in value]
        if isinstance(value, dict):
            return {self.text(name): self._within(part) for name, part in value.items()}
        return value

    def _bare(self, text: str) -> str:
        for secret in self._whole:
            if secret in text:
                text = text.replace(secret, SHOWN)
        looked = 0
        for secret, least, offset, anchor in self._pieces:
            kept, done, at = [], 0, text.find(anchor)
            while at >= 0:
                looked += 1
                if looked > _MOST_PIECES:
                    return SHOWN  # made to keep us busy
                start, end = _piece(text, at, secret, offset, done)
                if end - start >= least and text[start:end] not in _PUBLIC:
                    kept += [text[done:start], SHOWN]
                    done = end
                at = text.find(anchor, max(done, at + 1))
            if kept:
                text = "".join((*kept, text[done:]))
        return text


def _piece(text: str, at: int, secret: str, offset: int, first: int) -> tuple[int, int]:
    """From where to where the text, from `first` on, is as the secret is around its `offset`."""
    start, end, after = at, at + _ANCHOR, offset + _ANCHOR
    while start > first and offset > 0 and text[start - 1] == secret[offset - 1]:
        start, offset = start - 1, offset - 1
    while end < len(text) and after < len(secret) and text[end] == secret[after]:
        end, after = end + 1, after + 1
    return start, end


def _escaped(text: str) -> bool:
    """Whether there may be escapes in the text: each question is answered far faster than all."""
    return (
        ("\\" in text and _LETTERS.search(text) is not None)
        or ("%" in text and _PERCENT.search(text) is not None)
        or "&#" in text
        or "&amp;" in text
        or not (text.isprintable() or text.replace("\n", "").isprintable())
    )


def _resolved(escape: re.Match[str]) -> str:
    """What an escape stands for. One for a quote or a backslash stays: these end JSON's strings."""
    text = escape[0]
    match text[0]:
        case "%":
            plain = unquote(_LAYERED_PERCENT.sub("%", text), errors="replace")
            return plain.replace('"', "%22").replace("\\", "%5C")
        case "&":
            number = text[text.index("#") + 1 : -1]
            code = int(number[1:], 16) if number[0] in "xX" else int(number)
        case "\\":
            digits = text.lstrip("\\")
            code = ord("/") if digits == "/" else int(digits[1:], 16)
        case _:
            return ""
    char = chr(code)
    if re.match(_INVISIBLE, char):
        return ""
    return char if char.isprintable() and char not in '"\\' else text


def _base64(secret: str) -> set[str]:
    """How the secret reads within base64, wherever in the encoded text it stands."""
    raw = secret.encode(errors="surrogateescape")
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
