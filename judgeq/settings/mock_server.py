"""The settings of `judgeq mock-server`: how it behaves, and how it fails."""

from __future__ import annotations

from typing import Any

from judgeq.settings.declaration import BATCHES, Declarations, setting

SERVER, BEHAVIOUR = "Server", "Behaviour"
FAULTS = ("rate_limited", "errors", "dropped", "hung", "unreadable")
"""What may take an answer's place."""


def _share(of: str) -> Any:
    return setting(f"Share of {of}.", BEHAVIOUR, 0.0, ge=0, le=1)


class MockSettings(Declarations):
    """How the mock server behaves. Shares are from 0 to 1, times in seconds."""

    host: str = setting("The address to listen on.", SERVER, "127.0.0.1")
    port: int = setting("The port; 0: any free one.", SERVER, 8000, ge=0, le=65535)
    seed: int = setting("The seed of its answers and faults.", SERVER, 0, ge=0)
    latency: float = setting("Seconds that an answer takes (× 0.5 to 1.5).", BEHAVIOUR, 0.0, ge=0)
    rpm: float | None = setting("Requests a minute, enforced exactly.", BEHAVIOUR, None, gt=0)
    tpm: float | None = setting("Tokens a minute, enforced exactly.", BEHAVIOUR, None, gt=0)
    rate_limited: float = _share("requests refused with 429")
    retry_after: float = setting("Seconds that half of those ask to wait.", BEHAVIOUR, 1.0, ge=0)
    errors: float = _share("requests answered with 500")
    dropped: float = _share("connections cut")
    hung: float = _share("requests never answered")
    unreadable: float = _share("replies in prose")
    key: str | None = setting("The API key it wants.", BEHAVIOUR, None, secretive=True)
    model_after: int | None = setting(
        "Answers until it says that another model answers.",
        BEHAVIOUR, None, ge=0,
    )  # fmt: skip
    batch_time: float = setting("Seconds that a batch takes.", BATCHES, 2.0, ge=0)
    batch_not_found: float = setting(
        "Seconds for which a new batch, and new results, are answered with 404.", BATCHES, 0.0, ge=0
    )
