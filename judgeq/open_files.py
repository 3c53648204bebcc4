"""How many files, connections among them, this process may have open at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RESERVE = 48
"""Files for all but connections: the ledger, the cache, a log, look-ups of names."""
NO_LISTING = 32
"""Files taken to be open where that can't be seen."""


@contextmanager
def room_for(connections: int) -> Iterator[int]:
    """While inside, the soft limit (`ulimit -n`) is raised as far as these connections need it and
    the hard one allows; how many of them there is room for then."""
    try:
        import resource
    except ImportError:  # Windows: there is no such limit
        yield connections
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = _open_now() + RESERVE
    needed = taken + connections
    allowed = soft
    if resource.RLIM_INFINITY != soft < needed:
        wanted = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):  # macOS has another limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            allowed = wanted
    try:
        yield (
            connections if allowed == resource.RLIM_INFINITY else min(connections, allowed - taken)
        )
    finally:
        if allowed != soft:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _open_now() -> int:
    try:
        return len(list(Path("/dev/fd").iterdir()))
    except OSError:
        return NO_LISTING
