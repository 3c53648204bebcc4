"""Keys and headers of a model behind an API: taken from the environment and files, never shown.

Whatever a server or a proxy says is masked before anything else reads it: a secret as it is, as in a
URL, as in JSON, and in base64; and in disguise, which is anything that judgeq's own decoding and
cleaning would put together again. Masking comes before cutting, parsing and storing, so that nothing
further on has to know of secrets.
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import orjson

from judgeq.errors import KeyMissingError, UsageError
from judgeq.escaping import ANSI_SEQUENCE
from judgeq.files import ordinary
from judgeq.settings.model import SECRETIVE, VARIABLE, Access, Model
from judgeq.types import Headers

OWN_KEY = "JUDGEQ_API_KEY"
"""The variable of the key of a server that is no provider's."""
SHOWN = "***"
KEY_SHOWN = "***key***"
"""Stands for a key as a whole: a reply that holds this is unusable."""
SHORTEST = 6
"""Characters. What is shorter would be found in any text, and is no secret worth the name; behind a
scheme or a user ("Bearer x", "user:x") it is masked all the same."""
KEY_CHARACTERS = 16
"""What is shorter, or an ordinary word such as "not-needed", is masked as it is only, and a reply that
holds it is used: the words of any model may hold it."""
DISGUISED_CHARACTERS = 16
"""The shortest piece of a key that is one with white space or unseen characters between its letters:
ordinary words, such as "iPhone 15 Pro Max", may hold a shorter one."""
SLOW_LOOK_BYTES = 128 * 1024
"""What isn't surely clean, and is longer, is given up: to look at all its strings takes seconds."""
MOST_LAYERS_OF_LONG = 4
"""What is longer than SLOW_LOOK_BYTES, and has more layers of escapes, is given up as well."""
_PUBLIC_PREFIX = re.compile(r"\A(?:[a-z]{1,8}[0-9]{0,2}[-_]){1,3}")
"""How keys of a provider begin ("sk-ant-api03-"), which is no secret."""
_ESCAPE = re.compile(r"""\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))""")
_CONTROLS = dict(zip("bfnrt", "\b\f\n\r\t", strict=True))
_SEQUENCE_START_ESCAPED = re.compile(rb"\\u00(?:1[bB]|9[bBdD])")
_ESCAPE_BEYOND_ASCII = re.compile(rb"\\u(?!00[0-7])[0-9a-fA-F]{4}")
_ESCAPE_OF_ASCII = re.compile(rb"\\u00([0-7][0-9a-fA-F])")
_NOT_ASCII = re.compile(r"[^\x21-\x7e]+")
ESCAPE_LAYERS = 16
"""So many layers of JSON within JSON are decoded; what has more of them is masked as a whole."""
_NOT_VISIBLE = bytes(code for code in range(256) if not 0x21 <= code <= 0x7E)
"""Bytes that are no visible ASCII character, and so no part of a key."""
_AS_SPACES = bytes.maketrans(_NOT_VISIBLE, b" " * len(_NOT_VISIBLE))
_SEQUENCE_STARTS = tuple(char.encode() for char in "\x1b\x9b\x9d")

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
    """Everything secret that one session sends, and how it is kept from coming back.

    `secrets` and `keys` are masked as a whole. Keys that nobody can guess (`_is_key`) are masked in
    pieces and in disguise, too.
    """

    def __init__(self, secrets: Iterable[str], keys: Iterable[str] = ()) -> None:
        all_secrets = {
            secret
            for secret in {*secrets, *keys}
            if len(secret) >= SHORTEST and secret not in _PUBLIC
        }
        real_keys = {key for key in keys if _is_key(key)}
        shown = {
            form: KEY_SHOWN if any(key in secret for key in real_keys) else SHOWN
            for secret in all_secrets
            for form in _forms(secret)
        }
        self._shown = dict(sorted(shown.items(), key=lambda item: (-len(item[0]), item[0])))
        self._has_words = SHOWN in shown.values()  # secrets that are no keys
        self._disguised = {_NOT_ASCII.sub("", form) for key in real_keys for form in _forms(key)}
        self._pieces = _Pieces(real_keys)
        self._disguised_bytes = [form.encode() for form in self._disguised]
        self._shown_bytes = [form.encode() for form in shown]
        self._shown_in_json = [orjson.dumps(form)[1:-1] for form in shown]

    @classmethod
    def of(cls, access: Access, key: str | None, headers: Headers, proxy: str | None) -> Mask:
        """What must not come back of a key, the headers of `access` (as sent), and a proxy's
        address."""
        secrets, keys = set[str](), {key or "", *_in_proxy(proxy)}
        for header in access.headers:
            name, _, given = header.partition(":")
            value = headers.get(name.strip(), "")
            secrets.add(value)
            if given.strip().startswith("env:") or SECRETIVE.search(name):
                keys |= _behind_scheme(value)
        return cls(secrets, keys)

    def text(self, text: str) -> str:
        """Return the text without the secrets.

        Of a text that holds a key in disguise nothing is left.
        """
        data = text.encode(errors="ignore")  # surrogates can't be seen
        if not self._shown or self._is_surely_clean(data):
            return text
        masked = self._without_forms(text)
        if len(data) > SLOW_LOOK_BYTES:
            return masked if self._is_surely_clean(masked.encode(errors="ignore")) else KEY_SHOWN
        masked = self._pieces.masked(masked)
        return KEY_SHOWN if self._is_disguise(masked) else masked

    def body(self, body: bytes) -> bytes:
        """Return an answer's body without the secrets, still JSON if it was.

        Of a body that is long, and holds more than secrets as they are, nothing is left.
        """
        if not self._shown or (self._is_surely_clean(body) and not self._hides_word(body)):
            return body
        text = body.decode(errors="replace")
        masked = self.text(text)
        if len(body) > SLOW_LOOK_BYTES:
            data = masked.encode()
            return KEY_SHOWN.encode() if self._hides_word(data) else data
        try:
            content = orjson.loads(body)
            within = self._within(content)
            # Of a name that is given twice only the last value is in the content.
            return body if within == content and masked == text else orjson.dumps(within)
        except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError):
            # No JSON, or nested deeper than any API's answer.
            return body if masked == text else masked.encode(errors="replace")

    def headers(self, headers: Headers) -> dict[str, str]:
        """An answer's headers without the secrets."""
        return {name: self.text(value) for name, value in headers.items()}

    def _without_forms(self, text: str) -> str:
        for form, shown in self._shown.items():
            if form in text:
                text = text.replace(form, shown)
        return text

    def _is_surely_clean(self, data: bytes) -> bool:
        """Return whether some text holds no secret, nor any disguise of a key; False where that needs
        a closer look.

        Nearly every answer is clean, so this is what a call costs: it takes no step by character, but
        for escapes of ASCII characters, and time in proportion to the text.
        """
        if any(form in data for form in self._shown_bytes):
            return False
        if not self._disguised:
            return True
        if any(start in data for start in _SEQUENCE_STARTS):
            return False
        spaced = data.translate(_AS_SPACES)
        visible = data.translate(None, _NOT_VISIBLE)
        for layer in range(ESCAPE_LAYERS):
            if layer > MOST_LAYERS_OF_LONG and len(visible) > SLOW_LOOK_BYTES:
                return False
            if self._may_hold_key(spaced) and self._holds_key(spaced.decode(), SHORTEST):
                return False
            if self._may_hold_key(visible) and self._holds_key(
                visible.decode(), DISGUISED_CHARACTERS
            ):
                return False
            if b"\\" not in spaced and b"\\" not in visible:
                return True
            if _has_escaped_sequence(spaced) or _has_escaped_sequence(visible):
                return False
            before = spaced, visible
            spaced = _without_escapes(spaced, b" ")
            visible = _without_escapes(visible, b"")
            if before == (spaced, visible):
                return True
        return False

    def _hides_word(self, body: bytes) -> bool:
        """Return whether a body of JSON holds a secret that is no key, written with escapes."""
        if not self._has_words or not (b"\\u" in body or b"\\/" in body):
            return False
        try:
            plainly_written = orjson.dumps(orjson.loads(body))
        except (orjson.JSONDecodeError, orjson.JSONEncodeError, RecursionError):
            return False  # its escapes stand for nothing, or nobody reads them
        return any(form in plainly_written for form in self._shown_in_json)

    def _is_disguise(self, text: str) -> bool:
        """Return whether a text holds a key in disguise, or more escapes than are decoded."""
        if not self._disguised:
            return False
        return any(
            visible is None or self._holds_key(visible, shortest)
            for gap, shortest in ((" ", SHORTEST), ("", DISGUISED_CHARACTERS))
            for without_sequences in (False, True)
            for visible in _undisguised(text, gap, without_sequences=without_sequences)
        )

    def _may_hold_key(self, data: bytes) -> bool:
        """Return whether ASCII characters may hold a key, or a piece of one; False is sure."""
        return any(form in data for form in self._disguised_bytes) or self._pieces.may_be_in(data)

    def _holds_key(self, visible: str, shortest: int) -> bool:
        """Return whether characters hold a key, or a piece of one that has so many of them."""
        if any(form in visible for form in self._disguised):
            return True
        return self._pieces.are_in(visible, shortest)

    def _within(self, value: Any) -> Any:
        """The same with all strings masked."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._within(part) for part in value]
        if isinstance(value, dict):
            return {self.text(name): self._within(part) for name, part in value.items()}
        return value


class _Pieces:
    """Pieces of keys, of SHORTEST characters and more, as no text holds by chance."""

    def __init__(self, keys: Iterable[str]) -> None:
        parts = [_PUBLIC_PREFIX.sub("", key) for key in keys]
        self._windows = {
            part[at : at + SHORTEST]
            for part in parts
            for at in range(len(part) - SHORTEST + 1)
            if part[at : at + SHORTEST] not in _PUBLIC
        }
        self._trigrams = {window[at : at + 3] for window in self._windows for at in range(4)}
        self._trigram_codes = {tuple(trigram.encode()) for trigram in self._trigrams}

    def may_be_in(self, data: bytes) -> bool:
        """Return whether ASCII characters may hold a piece; False is sure."""
        # Of six characters in a row one of the first four stands at a multiple of four.
        every_fourth = zip(data[::4], data[1::4], data[2::4], strict=False)
        return not self._trigram_codes.isdisjoint(every_fourth)

    def are_in(self, text: str, shortest: int) -> bool:
        """Return whether the text holds a piece of so many characters."""
        return any(end - start >= shortest for start, end in self._found(text))

    def masked(self, text: str) -> str:
        """Return the text without the pieces."""
        kept = []
        end = 0
        for start, piece_end in self._found(text):
            kept += [text[end:start], SHOWN]
            end = piece_end
        return "".join([*kept, text[end:]]) if kept else text

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each piece in a text."""
        # Of six characters in a row one of the first four stands at a multiple of four.
        trigrams = [text[at : at + 3] for at in range(0, len(text) - 2, 4)]
        if self._trigrams.isdisjoint(trigrams):
            return
        end = 0
        for place, trigram in enumerate(trigrams):
            if trigram not in self._trigrams:
                continue
            for start in range(max(end, 4 * place - 3), 4 * place + 1):
                stop = start
                while text[stop : stop + SHORTEST] in self._windows:
                    stop += 1
                if stop > start and start >= end:
                    stop += SHORTEST - 1
                    if _looks_random(text[start:stop]):
                        yield start, stop
                    end = stop


def _has_escaped_sequence(data: bytes) -> bool:
    """Return whether some text may hold the start of a terminal's sequence as an escape of JSON."""
    return b"\\u" in data and _SEQUENCE_START_ESCAPED.search(data) is not None


@cache
def _escaped_characters(gap: bytes, backslash: bytes) -> dict[int, bytes]:
    """Return what stands for each ASCII character that was written as an escape, by its code."""
    characters = {code: bytes([code]) if 0x21 <= code <= 0x7E else gap for code in range(0x80)}
    characters[ord("\\")] = backslash
    return characters


def _without_escapes(data: bytes, gap: bytes) -> bytes:
    """Return ASCII characters with the escapes of JSON decoded once: a gap for what can't be seen."""
    backslash = b"\0"  # which is not visible, so that it stands for nothing else
    decoded = data.replace(b"\\\\", backslash)
    if b"\\u" in decoded:
        decoded = _ESCAPE_BEYOND_ASCII.sub(gap, decoded)
        characters = _escaped_characters(gap, backslash)
        decoded = _ESCAPE_OF_ASCII.sub(lambda escape: characters[int(escape[1], 16)], decoded)
    for control in b"bfnrt":
        decoded = decoded.replace(b"\\%c" % control, gap)
    decoded = decoded.replace(b'\\"', b'"').replace(b"\\/", b"/")
    return decoded.replace(backslash, b"\\")


def _looks_random(word: str) -> bool:
    """Return whether a word mixes letters and digits, or small letters and capitals as no name does."""
    letters = [char for char in word if char.isalpha()]
    if any(map(str.isdigit, word)):
        return bool(letters)
    return any(map(str.islower, letters)) and any(map(str.isupper, letters)) and not word.istitle()


def _is_key(secret: str) -> bool:
    """Return whether a secret is a key that nobody can guess, rather than a word such as "ollama"."""
    part = _PUBLIC_PREFIX.sub("", secret)
    return len(part) >= KEY_CHARACTERS and _looks_random(part)


def _undisguised(text: str, gap: str, *, without_sequences: bool) -> Iterator[str | None]:
    """Yield a text as it reads after each step of what may put a key in it together again.

    Each time with its visible ASCII characters alone, and the gap for all others. Then escapes of JSON
    are decoded, until there are none; None stands for a text that has more than ESCAPE_LAYERS of them.
    Without a terminal's sequences these are dropped first.
    """
    current = text
    for _ in range(ESCAPE_LAYERS):
        if without_sequences:
            current = ANSI_SEQUENCE.sub("", current)
        visible = _NOT_ASCII.sub(gap, current)
        yield visible
        if "\\" not in visible:
            return
        current = _ESCAPE.sub(_decoded, visible)
        if current == visible:
            return
    yield None


def _decoded(escape: re.Match[str]) -> str:
    code, char = escape.groups()
    return chr(int(code, 16)) if code else _CONTROLS.get(char, char)


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
