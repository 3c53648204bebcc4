"""The keys and headers of a model behind an API, from the environment and from files."""

from __future__ import annotations

import os

from judgeq.errors import KeyMissingError, UsageError
from judgeq.files import ordinary
from judgeq.settings.model import PROVIDERS, VARIABLE, Access, Model


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
    variable ($OPENAI_API_KEY, $ANTHROPIC_API_KEY), or from $JUDGEQ_API_KEY for any other server, which
    may do without.

    Raises KeyMissingError when the server needs one and none is there, and UsageError when what was
    named holds none. A provider's key is sent nowhere else unless it is named, or the provider's own
    variable ($OPENAI_BASE_URL, $ANTHROPIC_BASE_URL) gave the address.
    """
    name = key_name(judge, model, access)
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
        official = model.base_url is None
        key = os.environ.get(name, "").strip()
        if not key and (official or access.api_key_env):
            raise KeyMissingError(
                f"no API key: the environment variable {name} is not set, which {judge} needs. Set it, "
                "or name another with --api-key-env, or a file that holds the key with "
                "--api-key-file. For a server of your own give --base-url. Nothing was sent."
            )
        if not key:
            return None
        where = f"the environment variable {name}"
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{where} holds no API key: one line of plain characters is expected.")
    return key


def key_name(judge: str, model: Model, access: Access) -> str:
    """The variable, or the file, that holds the API key of a model."""
    if access.api_key_file is not None:
        return str(access.api_key_file)
    own = PROVIDERS[model.api_of(judge)].key if model.base_url is None else "JUDGEQ_API_KEY"
    return access.api_key_env or own


def extra_headers(access: Access) -> dict[str, str]:
    """The headers of --header, variables put in. Raises UsageError for one that isn't set."""
    sent = {}
    for header in access.headers:
        name, _, value = header.partition(":")
        sent[name.strip()] = from_environment(value.strip(), f"--header {name.strip()}")
    return sent
