"""The flags of the command line: those of settings, made from their declarations, and the others."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from judgeq.errors import UsageError
from judgeq.settings import SETTINGS
from judgeq.settings.declaration import GROUPS, RUNNING, Setting

MANY = 20
"""Of more settings than this, `--help` shows the common ones, and `--help-all` all."""


def _completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _datasets() -> Iterable[str]:
    from judgeq import datasets

    return (info.name for info in datasets.known())


def _runs() -> Iterable[str]:
    from judgeq.runs import FolderRuns

    return ("last", *(run.id for run in FolderRuns(Path("runs")).all()))


def _strategies() -> Iterable[str]:
    from judgeq.strategies import REGISTRY

    return ("listwise10", *REGISTRY)


def _prompts() -> Iterable[str]:
    from judgeq import prompts

    return (prompt.name for prompt in prompts.known())


def _running(text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=RUNNING, **more)


ALL = [name for name, setting in SETTINGS.items() if setting.flag]
RESUMED = [
    *("dataset", "data_dir", "judge", "prompt", "base_url", "api", "extra_body"),
    *(name for name in ALL if SETTINGS[name].declared.session),
]
"""What may change when a run is resumed, and what a folder that isn't one's own is asked for."""
COMPLETIONS = {
    "dataset": _completing(_datasets),
    "strategy": _completing(_strategies),
    "prompt": _completing(_prompts),
}
RunsDir = Annotated[
    Path, _running("Where run folders are kept.", envvar="JUDGEQ_RUNS", metavar="PATH")
]
StoreAddress = Annotated[
    str | None,
    _running(
        "The PostgreSQL database that keeps the runs.",
        "--store",
        envvar=SETTINGS["store"].declared.envvar,
        metavar=SETTINGS["store"].metavar,
        show_default="run folders",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object; all else goes to standard error.")
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="Show nothing but warnings, errors, and where people judge."
    ),
]
RunName = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's id, a unique beginning of it, its folder, or 'last' (the default).",
        autocompletion=_completing(_runs),
        show_default=False,
    ),
]
NamedRun = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="A run's id, a unique beginning of it, its folder, or 'last'.",
        autocompletion=_completing(_runs),
    ),
]
RunNames = Annotated[
    list[str],
    typer.Argument(
        metavar="RUN1 RUN2 …",
        help="Two runs or more over the same items, each by its id, a unique beginning of it, "
        "its folder, or 'last'. The others are compared with the first.",
        autocompletion=_completing(_runs),
    ),
]
PromptName = Annotated[
    str,
    typer.Argument(
        help="A prompt set's name, or a .toml file's path.",
        metavar="PROMPT",
        autocompletion=_completing(_prompts),
    ),
]
AcceptDamage = Annotated[
    bool,
    _running(
        "Rate what is left of a run whose record doesn't add up, because something else changed it; "
        "the result says so.",
        "--accept-damage",
    ),
]
RetryFailed = Annotated[bool, _running("Ask failed and invalid jobs again.", "--retry-failed")]
StartAfresh = Annotated[bool, _running("Start another run of the same.", "--new")]
DryRun = Annotated[
    bool,
    _running("Show calls, tokens and dollars, and stop before anything is sent.", "--dry-run"),
]
Yes = Annotated[
    bool,
    _running("Begin without asking, whatever it may cost.", "--yes"),
]
LogFile = Annotated[
    Path | None, _running("Write every call to this file, a line each.", "--log", metavar="PATH")
]
ConfigFile = Annotated[
    Path | None,
    _running("A TOML file of settings, named as these flags; flags win.", metavar="PATH"),
]


def _show_all(context: typer.Context, value: bool) -> None:
    if value:
        context.meta["judgeq.all"] = True
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option("--help-all", help="Show all flags, and exit.", is_eager=True, callback=_show_all),
]


def with_settings(
    *names: str,
    flags_of: Callable[..., None] | None = None,
    known: Mapping[str, Setting] = SETTINGS,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the flags of these settings (`known` has them) beside its own, and those of another
    function.

    What typer reads of them comes to the command as `**flags`, for `given`.
    """

    def give(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command, eval_str=True)
        ordered = sorted(names, key=_place) if known is SETTINGS else names
        parameters = [_parameter(known[name]) for name in ordered]
        parameters += [
            parameter.replace(kind=parameter.KEYWORD_ONLY)
            for function in filter(None, (flags_of, command))
            for parameter in inspect.signature(function, eval_str=True).parameters.values()
            if parameter.kind is not parameter.VAR_KEYWORD
        ]
        if len(names) > MANY and known is SETTINGS:
            rare = (name for name in names if not SETTINGS[name].declared.common)
            command.rare = frozenset(rare)  # type: ignore[attr-defined]
            parameters.append(_keyword("help_all", HelpAll, default=False))
        command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {one.name: one.annotation for one in parameters}
        return command

    return give


def _place(name: str) -> tuple[int, int]:
    return GROUPS.index(SETTINGS[name].declared.group), list(SETTINGS).index(name)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _parameter(setting: Setting) -> inspect.Parameter:
    """A setting's flag, as a parameter that typer reads; None where it isn't given."""
    declared = setting.declared
    kind: Any = {tuple: list[str] if setting.repeatable else str, dict: str}.get(
        setting.type, setting.type
    )
    option = typer.Option(
        f"{setting.flag}/--no-{setting.flag[2:]}" if declared.undone else setting.flag,
        *filter(None, [declared.short]),
        help=declared.help,
        metavar=setting.metavar or None,
        show_default=setting.shown_default or False,
        rich_help_panel=declared.group,
        autocompletion=COMPLETIONS.get(setting.name)
        or (_completing(lambda: setting.choices) if setting.choices else None),
        envvar=declared.envvar,
    )
    return _keyword(setting.name, Annotated[kind | None, option], default=None)


def given(flags: Mapping[str, Any], known: Mapping[str, Setting] = SETTINGS) -> dict[str, Any]:
    """The settings that were given by flags, by name. Raises UsageError for what is no JSON."""
    values = {}
    for name, value in flags.items():
        setting = known.get(name)
        if setting is None or value is None or value == []:
            continue
        if setting.type is bool:
            value = value != setting.default if setting.flag.startswith("--no-") else value
        elif setting.type is dict:
            value = _json_object(setting.flag, value)
        elif setting.repeatable:  # '': none
            value = tuple(filter(None, value)) if not setting.default else tuple(value)
        elif setting.type is tuple:
            value = tuple(value.split(","))
        values[name] = value
    return values


def _json_object(flag: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UsageError(f"{flag} is no JSON: {error}.") from error
    except RecursionError as error:
        raise UsageError(f"{flag} nests too deep to be read.") from error
    if not isinstance(value, dict):
        raise UsageError(f"{flag} must be a JSON object, as '{{\"top_k\": 20}}'.")
    return value
