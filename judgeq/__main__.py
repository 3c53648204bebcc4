"""`python -m judgeq`, and the `judgeq` command.

Loads next to nothing itself, so that Ctrl-C ends quietly also while the rest is loaded. What comes
before this file, Python's own start, can't be helped.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """The `judgeq` command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    try:
        from judgeq.cli import app

        app()
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python's end is silent, too


def _interrupted(number: int, frame: FrameType | None) -> None:
    """Ctrl-C: as usual; but while a module is loaded, end at once. An exception would pass through
    code that isn't made for it, and be lost or shown as a traceback."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os.write(2, b"judgeq: stopped.\n")
            if "--json" in sys.argv:
                os.write(
                    1,
                    b'{"error": {"type": "StoppedError", "message": "stopped.", "exit_code": 5}}\n',
                )
            os._exit(5)
        frame = frame.f_back
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
