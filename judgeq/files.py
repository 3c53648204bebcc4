"""Where files lie, and how many may be open; they are written whole or not at all, and never through a
link; TOML files are read.

A run's folder may be one that others can write to: what lies there under a name of ours may lead to a
file that is this user's, elsewhere.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from judgeq.errors import DataError, RunError

if TYPE_CHECKING:
    from pydantic import ValidationError

PACKAGE = Path(__file__).resolve().parent
RESERVE = 96
"""Files for all but connections: the program's own, the ledger, the cache, a log, look-ups of names."""
MIN_RESERVE = 40
"""The same where few files may be open: what a run was seen to need, and some more."""


# Where they lie


def shipped(name: str) -> Path:
    """What is shipped ("datasets", "prompts" or "CITATION.cff"): in the wheel, or in a checkout."""
    installed = PACKAGE / "shipped" / name
    return installed if installed.exists() else PACKAGE.parent / name


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


# What lies there


def refuse_links(*paths: Path) -> None:
    """Raise RunError unless each is an ordinary file with one name, or isn't there."""
    for path in paths:
        try:
            status = path.lstat()
        except OSError:  # not there; or not to be seen, so that opening it will say why
            continue
        if stat.S_ISLNK(status.st_mode):
            what = "is a link"
        elif not stat.S_ISREG(status.st_mode):
            what = "is no ordinary file"
        elif status.st_nlink > 1:
            what = "is a file with several names (hard links)"
        else:
            continue
        raise RunError(
            f"{path} {what}: what is written there would end up elsewhere. Put the file itself in "
            "its place, or remove it; nothing was changed."
        )


def refuse_linked_folder(path: Path) -> None:
    """Raise RunError when the folder is a link: what is written there would end up elsewhere."""
    if path.is_symlink():
        raise RunError(
            f"{path} is a link to a folder, and a run isn't written through a link. If it is yours, "
            f"name the folder itself: {os.path.realpath(path)}. Nothing was changed."
        )


def make_folder(path: Path) -> None:
    """Make a folder, and those above it. Raises RunError for a link, or where it can't be made."""
    refuse_linked_folder(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def write_new(path: Path, text: str) -> None:
    """Write a small file in place of what is there, link or not. Raises OSError."""
    with suppress(FileNotFoundError):
        path.unlink()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def read_start(path: Path, size: int) -> str:
    """The first bytes of an ordinary file as text. Raises OSError; never waits, follows no link."""
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(path, os.O_RDONLY | flags)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        return file.read(size).decode("utf-8", "replace")


def ordinary(path: Path) -> Path:
    """The path of a file to read, which ends, and can be read again. Raises OSError for any other."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # a folder says itself that it is one
        kind = "pipe" if stat.S_ISFIFO(mode) else "socket" if stat.S_ISSOCK(mode) else "device"
        raise OSError(errno.EINVAL, f"it is a {kind}; save its content to a file and name that")
    return path


def contents(path: Path) -> bytes:
    """The bytes of a file. Raises DataError."""
    try:
        return ordinary(path).read_bytes()
    except OSError as error:
        reason = error.strerror or error
        raise DataError(f"{path} can't be read (seen from {Path.cwd()}): {reason}.") from error


def read_toml(path: Path, what: str, remedy: str = "") -> dict[str, Any]:
    """What a TOML file holds. Raises DataError naming `what` the file is, where it lies, and what is
    wrong with it; `remedy` comes last."""
    try:
        return tomllib.loads(ordinary(path).read_text(encoding="utf-8"))
    except OSError as error:
        problem = f"can't be read: {error.strerror}"
    except UnicodeDecodeError as error:
        problem = f"is not UTF-8 (byte {error.start})"
    except tomllib.TOMLDecodeError as error:
        problem = f"is no valid TOML: {error}"
    except RecursionError:
        problem = "nests too deep to be read"
    raise DataError(f"{what} {path} {problem}. {remedy}".strip())


def problems(error: ValidationError) -> str:
    """What pydantic found wrong with a file, field by field."""
    found = [
        (".".join(map(str, problem["loc"])), problem["msg"].removeprefix("Value error, "))
        for problem in error.errors()
    ]
    return "; ".join(f"{where}: {what}" if where else what for where, what in found)


@contextmanager
def replacing(
    path: Path,
    *,
    private: bool = False,
    refusal: Callable[[Path, OSError], Exception] | None = None,
) -> Iterator[TextIO]:
    """A new file, open for UTF-8 text, that takes the place of `path` when all went well.

    What was there is replaced, a link too; `private` is for nobody else to read. Line ends are
    written as they are. Raises RunError, or what `refusal` makes of it, where it can't be written.
    """
    try:
        # Written by its handle alone: whoever owns the folder may put another file under its name.
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
                if not private and hasattr(os, "fchmod"):  # not on Windows
                    os.fchmod(file.fileno(), 0o666 & ~_umask())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise (refusal or unwritable)(path, error) from error


def write_private(path: Path, text: str) -> None:
    """Write a file that nobody else can read, and its folder, if it isn't there. Raises RunError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path.parent, error) from error
    with replacing(path, private=True) as file:
        file.write(text)


def unwritable(path: Path, error: OSError) -> RunError:
    """The error that says that a run's file or folder can't be written."""
    return RunError(
        f"{path} can't be written: {error.strerror}. Make room, or set --runs-dir to a folder that "
        "can be written to; nothing that was answered is lost."
    )


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


# How many may be open


def room_for(connections: int) -> int:
    """How many of these connections this process has room for: the soft limit of open files (`ulimit
    -n`) is raised as far as they need it and the hard one allows."""
    try:
        import resource
    except ImportError:  # Windows: there is no such limit
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless, needed = resource.RLIM_INFINITY, connections + RESERVE
    if soft != endless and soft < needed:
        wanted = needed if hard == endless else min(needed, hard)
        with suppress(OSError, ValueError):  # macOS has another limit below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft == endless:
        return connections
    reserve = min(RESERVE, max(MIN_RESERVE, soft // 2))
    return min(connections, soft - reserve)
