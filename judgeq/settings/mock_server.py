"""The settings of `judgeq mock-server`: how it behaves, and how it fails."""

from __future__ import annotations

from typing import Any, Literal

from judgeq.settings.declaration import BATCHES, SHARE, Declarations, setting

SERVER, BEHAVIOUR = "Server", "Behaviour"
FAULTS = (
    *("rate_limited", "errors", "dropped", "hung", "refused", "cut_off", "filtered"),
    *("unreadable", "incomplete", "wrapped"),
)
"""What may take an answer's place."""
_NOT_NEGATIVE, _POSITIVE = {"ge": 0}, {"gt": 0}


def _share(of: str) -> Any:
    return setting(f"Share of {of}.", BEHAVIOUR, 0.0, limits=SHARE)


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
    structured: Literal["schema", "json", "text"] = setting(
        "The structured replies it can do.", BEHAVIOUR, "schema"
    )
    max_input_tokens: int | None = setting(
        "The longest question it reads.", BEHAVIOUR, None, limits={"ge": 1}
    )
    quota_after: int | None = setting(
        "Answers until the quota is used up.", BEHAVIOUR, None, limits=_NOT_NEGATIVE
    )
    model_after: int | None = setting(
        "Answers until it says that another model answers.",
        BEHAVIOUR, None, limits=_NOT_NEGATIVE,
    )  # fmt: skip
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

    @property
    def failures(self) -> tuple[tuple[str, float], ...]:
        """The faults that take an answer's place, and their shares."""
        return tuple((name, getattr(self, name)) for name in FAULTS)
