"""Where things lie: what judgeq ships, the user's cache, and what judgeq remembers of the user."""

from __future__ import annotations

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def shipped(kind: str) -> Path:
    """The folder of shipped `kind` ("datasets" or "prompts"): in the wheel, or in a checkout."""
    installed = PACKAGE / "shipped" / kind
    return installed if installed.is_dir() else PACKAGE.parent / kind


def user_cache() -> Path:
    """The user's cache folder for judgeq; it may not exist yet."""
    from platformdirs import user_cache_path

    return user_cache_path("judgeq")


def user_state() -> Path:
    """The folder of what judgeq remembers of this user's own doings; it may not exist yet."""
    from platformdirs import user_state_path

    return user_state_path("judgeq")


def remembered(kind: str, identity: str) -> Path:
    """The file of what judgeq remembers of this `kind` about the place with an `identity`."""
    key = identity.encode("utf-8", "backslashreplace")
    return user_state() / kind / f"{hashlib.sha256(key).hexdigest()[:40]}.json"
