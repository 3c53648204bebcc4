"""The settings of `judgeq mock-server`: how it behaves, and how it fails."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from judgeq.settings.declaration import BATCHES, SHARE, Declarations, setting

SERVER, BEHAVIOUR = "Server", "Behaviour"
FAULTS = (
    *("rate_limited", "errors", "dropped", "hung", "refused", "cut_off", "filtered"),
    *("unreadable", "incomplete", "wrapped"),
)
"""What may take an answer's place."""
_NOT_NEGATIVE, _POSITIVE = {"ge": 0}, {"gt": 0}


def _share(of: str, group: str = BEHAVIOUR) -> Any:
    return setting(f"Share of {of}.", group, 0.0, limits=SHARE)


_of_batches = partial(_share, group=BATCHES)


class MockSettings(Declarations):
    """How the mock server behaves. Shares are from 0 to 1, times in seconds."""

    host: str = setting("The address to listen on.", SERVER, "127.0.0.1")
    port: int = setting("The port; 0: any free one.", SERVER, 8000, limits={"ge": 0, "le": 65535})
    seed: int = setting("The seed of its answers and faults.", SERVER, 0, limits=_NOT_NEGATIVE)
    only_model: str | None = setting("Know no other model than this.", SERVER, None, metavar="NAME")
    latency: float = setting(
        "Seconds that an answer takes (× 0.5 to 1.5).", BEHAVIOUR, 0.0, limits=_NOT_NEGATIVE
    )
    rpm: float | None = setting(
        "Requests a minute, enforced exactly.", BEHAVIOUR, None, limits=_POSITIVE
    )
    tpm: float | None = setting(
        "Tokens a minute, enforced exactly.", BEHAVIOUR, None, limits=_POSITIVE
    )
    rate_limited: float = _share("requests refused with 429")
    retry_after: float = setting(
        "Seconds that half of those ask to wait.", BEHAVIOUR, 1.0, limits=_NOT_NEGATIVE
    )
    errors: float = _share("requests answered with 500")
    dropped: float = _share("connections cut")
    hung: float = _share("requests never answered")
    unreadable: float = _share("replies in prose")
    incomplete: float = _share("replies that lack a label")
    refused: float = _share("replies that refuse")
    cut_off: float = _share("replies cut off by length")
    filtered: float = _share("replies cut off by a filter")
    wrapped: float = _share("good replies inside fences and prose")
    key: str | None = setting("The API key it wants.", BEHAVIOUR, None, secretive=True)
    echo_key: bool = setting("Repeat the key received in error messages.", BEHAVIOUR, False)
    structured: Literal["schema", "ignored", "json", "text"] = setting(
        "The structured replies it can do; ignored takes a schema and doesn't keep to it.",
        BEHAVIOUR, "schema",
    )  # fmt: skip
    max_input_tokens: int | None = setting(
        "The longest question it reads.", BEHAVIOUR, None, limits={"ge": 1}
    )
    quota_after: int | None = setting(
        "Answers until the quota is used up.", BEHAVIOUR, None, limits=_NOT_NEGATIVE
    )
    reasoning_tokens: int = setting(
        "Reasoning tokens of every reply.", BEHAVIOUR, 0, limits=_NOT_NEGATIVE
    )
    reasoning_beside: bool = setting(
        "Count reasoning apart from completion_tokens and their limit, as xAI does.",
        BEHAVIOUR,
        False,
    )
    cached_share: float = _share("input that it says was cached")
    usage: bool = setting("Whether replies say their tokens.", BEHAVIOUR, True, undone=True)
    batch_time: float = setting("Seconds that a batch takes.", BATCHES, 2.0, limits=_NOT_NEGATIVE)
    batch_expire: float = _of_batches("batches that expire half-way")
    batch_invalid: float = _of_batches("batches that fail validation")
    batch_queue_tokens: int | None = setting(
        "The most tokens in batches that wait, at four bytes a token.", BATCHES, None,
        limits={"ge": 1},
    )  # fmt: skip
    batch_limited: float = _of_batches("creations refused with 429")
    batch_unanswered: float = _of_batches("creations that succeed and whose answer is lost")
    batch_flaky: float = _of_batches(
        "other requests about batches that fail, with 429, 500 or no answer"
    )
    batch_failing: float = _of_batches("lines that fail, with 500, 429 or status 0")
    batch_lost: float = _of_batches("answered lines that results lack")
    batch_doubled: float = _of_batches("lines that results hold twice")
    batch_broken: float = _of_batches("downloads that end half-way")

    @property
    def failures(self) -> tuple[tuple[str, float], ...]:
        """The faults that take an answer's place, and their shares."""
        return tuple((name, getattr(self, name)) for name in FAULTS)
