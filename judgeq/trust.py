"""Which settings of a run are this user's own: no folder or database decides where a key is sent.

A folder may be a stranger's, or lie where others can write; so may a database. What names a secret, a
file or an address, or bounds what is paid, is taken from it only if this user gave it for this run
before. That is remembered outside: a mark for each run, keyed by the run's place and its fingerprint.

A file of --config may be a stranger's, too. What of it decides which texts and keys are sent where is
shown and needs a yes, or is given as flags. A yes is remembered by a mark for each file. It holds for
these settings together: with another dataset, the same address needs another yes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from judgeq.config import NEVER_KEPT, Settings, as_flags, as_text, settle
from judgeq.datasets import STDIN, dataset_names
from judgeq.datasets.tables import format_of
from judgeq.errors import RunError
from judgeq.escaping import PLACEHOLDER, quoted, shell_command
from judgeq.files import remembered, write_private
from judgeq.judge.secrets import OWN_KEY
from judgeq.run_places import RunInfo, RunPlace
from judgeq.settings.model import from_environment
from judgeq.settings.providers import PROVIDERS
from judgeq.settings.run import SETTINGS
from judgeq.store.link import parse

OPENED = ("dataset", "data_dir", "onto", "prompt", "judge")
"""Settings that may name a file, of any run; and the judge, which may cost money."""
ADDRESSES = ("base_url", "openai_base_url", "anthropic_base_url")
OF_MODELS = (
    *ADDRESSES,
    *("api", "extra_body", "api_key_env", "api_key_file", "headers", "proxy", "ca_file"),
    *("cache_dir", "max_cost", "price", "prices", "total_rounds"),
)
"""Settings by which a model is reached and paid: secrets, addresses, files, the cap, the prices."""

OF_A_FILE = (
    *("store", *ADDRESSES, "api_key_env", "api_key_file", "headers", "extra_body"),
    *("proxy", "ca_file", "cache_dir", "onto", "price", "prices"),
)
"""Settings of a --config file that need a yes: they decide what is sent where, or how a cap is kept."""
READ_FILES = ("dataset", "data_dir", "prompt", "anchors")
"""Settings of a --config file that need a yes where they name a file outside its own folder."""
AGREED_TOGETHER = (*OF_A_FILE, *READ_FILES, "text_column", "sheet", "judge", "api")
"""Settings of a --config file that a yes covers, all together."""

Mark = Mapping[str, list[str]]
"""By setting, the digests of all values that this user gave it for the run."""


def own_settings(folder: RunPlace, info: RunInfo, changes: Mapping[str, Any]) -> Settings:
    """The run's settings with what was given now (None: not given). Opens nothing but the mark.

    Raises RunError listing what the folder asks for that this user didn't give; and as
    `config.settle`.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if "api_key_env" in given or "api_key_file" in given:  # one key in place of the other
        given = {"api_key_env": None, "api_key_file": None} | given
    if "price" in given:
        given = {"prices": {}} | given
    settings = settle(info.settings.model_dump() | NEVER_KEPT | given, resumed=True)
    mark = _read(_mark_of(folder, info.fingerprint))
    watched = (*OPENED, *OF_MODELS) if settings.models else OPENED
    asked = [name for name in watched if name not in given and not _own(settings, name, mark)]
    if asked:
        raise RunError(_explained(folder, settings, asked, mark))
    return settings


def owns(folder: RunPlace, info: RunInfo, *names: str) -> bool:
    """Whether what the folder says of these settings is this user's own, or nobody's."""
    mark = _read(_mark_of(folder, info.fingerprint))
    return all(_own(info.settings, name, mark) for name in names)


def remember(folder: RunPlace, fingerprint: str, settings: Settings) -> str | None:
    """Mark the run as this user's, with these settings. What kept it from being written, or None."""
    path = _mark_of(folder, fingerprint)
    before, kept = _read(path) or {}, settings.kept()
    said = {
        name: sorted({*before.get(name, ()), _digest(kept, name)}) for name in (*OPENED, *OF_MODELS)
    }
    if said == before:
        return None
    return _write(folder, fingerprint, said)


def _write(folder: RunPlace, fingerprint: str, mark: Mark) -> str | None:
    """Write a mark. What kept it from being written, or None."""
    path = _mark_of(folder, fingerprint)
    try:
        write_private(path, orjson.dumps({"folder": folder.identity, "settings": mark}).decode())
    except RunError as error:
        return str(error)
    return None


def carry(source: RunPlace, copy: RunPlace, fingerprint: str) -> str | None:
    """Let a copy of a run be this user's as far as the run is. As `remember`."""
    mark = _read(_mark_of(source, fingerprint))
    return None if mark is None else _write(copy, fingerprint, mark)


def refuse_strangers(folder: RunPlace, fingerprint: str) -> None:
    """Raise RunError when the run's folder belongs to another user, and this one isn't known to have
    worked on it."""
    owner = folder.owner
    if owner is None or owner == getattr(os, "getuid", lambda: owner)():
        return
    if _mark_of(folder, fingerprint).exists():
        return
    raise RunError(
        f"{folder.path} belongs to another user (uid {owner}), and you haven't worked on it before. "
        f"`{shell_command('resume', [str(folder.path)])}` continues it; --new begins a run of your own. "
        "Nothing was changed."
    )


class FileRequest(NamedTuple):
    """What a --config file asks for that this user didn't agree to yet."""

    file: Path
    settings: Settings
    names: Sequence[str]
    """The settings that need a yes."""
    agreement: Mapping[str, str]
    """Digests of all settings that a yes covers, by name."""

    @property
    def lines(self) -> list[str]:
        """What would be sent where, a line each, without secrets."""
        settings = self.settings
        shown = settings.model_dump(mode="json") | settings.on_disk()
        lines = [
            f"to {settings.address_of(model)}: the texts of {quoted(self._dataset)}, with "
            f"{_key_of(settings, model)}"
            for model in settings.models
        ]
        for header in settings.headers if "headers" in self.agreement else ():
            name, _, value = header.partition(":")
            is_kept = header in shown["headers"]
            lines.append(
                f"with the header {quoted(name)}: {quoted(value.strip()) if is_kept else '…'}"
            )
        said = {
            "text_column": "the texts are in the column",
            "sheet": "the texts are in the sheet",
            "data_dir": "with the corpora in",
            "onto": "with the texts of the run",
            "anchors": "with the pairs in",
            "prompt": "asked by the prompt set",
            "judge": "asking the model",
            "store": "the run is kept in",
            "proxy": "through the proxy",
            "extra_body": "with these fields in each request:",
            "ca_file": "trusting the certificates in",
            "cache_dir": "with the replies that are in",
            "price": "counting what you pay in dollars per million tokens:",
            "prices": "counting what you pay in dollars per million tokens:",
        }
        for name in [name for name in said if name in self.agreement]:
            value = (
                parse(settings.store).label if name == "store" and settings.store else shown[name]
            )
            lines.append(f"{said[name]} {PLACEHOLDER if value is None else quoted(as_text(value))}")
        return lines

    @property
    def _dataset(self) -> str:
        """The dataset: the whole path of a file that isn't in the job file's folder."""
        path = _file_of(self.settings, "dataset")
        is_outside = path is not None and not path.is_relative_to(_folder_of(self.file))
        return str(path) if is_outside else self.settings.dataset

    def command(self, name: str) -> str:
        """Return the command that gives what the file asks for as flags, without secrets."""
        settings = self.settings.model_copy(update=self.settings.on_disk())
        if settings.store is not None:
            settings = settings.model_copy(update={"store": parse(settings.store).label})
        variables, flags = _as_words(self.names, settings)
        return shell_command(
            name, options=["--config", str(self.file), *flags], variables=variables
        )


def requested_by(
    file: Path, settings: Settings, given: Collection[str], *, sends: bool
) -> FileRequest | None:
    """Return what a --config file asks for that needs this user's yes; None for nothing.

    `given` are the settings that this user gave otherwise. Where nothing `sends` texts, only the
    database of the run counts.
    """
    counting = AGREED_TOGETHER if sends and settings.models else ("store",)
    from_file = [name for name in counting if not _is_given(settings, name, given)]
    names = [name for name in from_file if _needs_yes(file, settings, name)]
    if not names:
        return None
    agreement = {
        name: _digest_with_file(settings, name)
        for name in from_file
        if not _is_default(settings, name)
    }
    for earlier in _agreements(file):
        if {name: earlier[name] for name in from_file if name in earlier} == agreement:
            return None
    return FileRequest(file, settings, names, agreement)


def agree_to(request: FileRequest) -> None:
    """Remember that this user agreed to what a file asks for. Raises RunError."""
    agreements = [*_agreements(request.file), dict(request.agreement)]
    record = {"file": str(request.file), "agreements": agreements}
    write_private(_mark_of_file(request.file), orjson.dumps(record).decode())


def _agreements(file: Path) -> list[dict[str, str]]:
    """Return what this user agreed to for a --config file: digests by setting, of each yes."""
    try:
        agreements = orjson.loads(_mark_of_file(file).read_bytes())["agreements"]
        return [
            {str(name): str(digest) for name, digest in agreement.items()}
            for agreement in agreements
        ]
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return []  # none, or not ours: as if nothing was agreed to


def _is_given(settings: Settings, name: str, given: Collection[str]) -> bool:
    """Return whether a setting is this user's own: an option, or of the environment."""
    if name == "prices" and "price" in given:  # which wins
        return True
    value = getattr(settings, name)
    return name in given or (value is not None and value == _here(name))


def _is_default(settings: Settings, name: str) -> bool:
    default = Settings.model_fields[name].get_default(call_default_factory=True)
    return bool(getattr(settings, name) == default)


def _needs_yes(file: Path, settings: Settings, name: str) -> bool:
    """Return whether a setting of a --config file is used only after a yes."""
    if name in READ_FILES:
        path = _file_of(settings, name)
        return path is not None and not path.is_relative_to(_folder_of(file))
    return name in OF_A_FILE and not _is_default(settings, name)


def _folder_of(file: Path) -> Path:
    return Path(os.path.realpath(file)).parent


def _file_of(settings: Settings, name: str) -> Path | None:
    """Return the file or folder that a setting names, links resolved; None of a setting that names
    none."""
    value = getattr(settings, name)
    if name == "dataset":
        is_file = value not in (*dataset_names(), STDIN)
    elif name == "prompt":
        is_file = value is not None and Path(value).suffix == ".toml"
    else:
        is_file = isinstance(value, Path)
    if not is_file:
        return None
    return Path(os.path.realpath(str(value).replace("\0", "")))  # one with NUL is never opened


def _digest_with_file(settings: Settings, name: str) -> str:
    """Return a digest of a setting's value and of the whole path of the file that it names."""
    path = _file_of(settings, name)
    return hashlib.sha256(
        f"{_digest(settings, name)}\0{path}".encode(errors="backslashreplace")
    ).hexdigest()


def _mark_of_file(file: Path) -> Path:
    return remembered("jobs", os.fsencode(file.resolve()).decode("utf-8", "backslashreplace"))


def _key_of(settings: Settings, model: str) -> str:
    """Return where the key comes from that a model's server is sent."""
    if settings.api_key_file is not None:
        return f"the key in {quoted(str(settings.api_key_file))}"
    own = settings.provider_of(model).key if settings.base_url is None else OWN_KEY
    name = settings.api_key_env or own
    return f"the key in ${name}, if it is set" if name else "no key"


def _mark_of(folder: RunPlace, fingerprint: str) -> Path:
    return remembered("runs", f"{folder.identity}\0{fingerprint}")


def _read(path: Path) -> Mark | None:
    try:
        settings = orjson.loads(path.read_bytes())["settings"]
        return {
            str(name): [str(digest) for digest in digests] for name, digests in settings.items()
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None  # none, or not ours: as if nothing was given


def _digest(settings: Settings, name: str) -> str:
    value = settings.model_dump(mode="json", include={name})
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _own(settings: Settings, name: str, mark: Mark | None) -> bool:
    """Whether a setting has a value that this user gave it, or that is nobody's."""
    value = getattr(settings, name)
    if value is not None and value == _here(name):
        return True
    if name == "prompt" and (value is None or Path(value).suffix != ".toml"):
        return True  # no file
    if mark is not None and name in mark:
        return _digest(settings, name) in mark[name]
    if name == "dataset":
        return format_of(value) is None
    if name == "judge":
        return not settings.models
    default = Settings.model_fields[name].get_default(call_default_factory=True)
    return bool(value == default)


def _here(name: str) -> str | None:
    """The address that this user's own environment gives; None of another setting."""
    return next((from_environment(api) for api in PROVIDERS if name == f"{api}_base_url"), None)


def _as_words(names: Iterable[str], settings: Settings) -> tuple[dict[str, str], list[str]]:
    """Return the variables and the words of a command that give these settings."""
    variables = dict[str, str]()
    flags = list[str]()
    for name in names:
        setting = SETTINGS[name]
        value = getattr(settings, name)
        if setting.envvar and not setting.flag:
            variables[setting.envvar] = value or ""
        elif setting.repeatable and not value:
            flags += [setting.flag, PLACEHOLDER]
        else:
            flags += as_flags(name, value)
    return variables, flags


def _explained(folder: RunPlace, settings: Settings, asked: list[str], mark: Mark | None) -> str:
    if mark is None:
        why = (
            f"run {folder.id} wasn't begun by you from here. What names a file, a key or an "
            "address, or decides what you pay, is taken from a run's record only if you gave it."
        )
    else:
        why = f"{folder.label} says other things than you gave for this run."
    values = settings.model_dump(mode="json", include=set(asked))
    wanted = "; ".join(f"{name} = {quoted(as_text(values[name]))}" for name in asked)
    variables, flags = _as_words(asked, settings)
    cap = ""
    if settings.models and settings.max_cost is None:
        cap = " (--max-cost DOLLARS caps what you pay)"
    place, *at = folder.words
    command = shell_command("resume", [place], [*at, *flags], variables)
    return (
        f"{why} It asks for: {wanted}. Nothing was opened or sent. If you want all of that, give it "
        f"again{cap}: `{command}`"
    )
