"""The options of commands: those of settings, made from their declarations, and those that commands
share; and how a command is declared with them."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click
from click import Context, HelpFormatter, Parameter

from judgeq.cli.app import EVERYTHING, MODULES, app, write_commands
from judgeq.cli.printing import Answer, answer, show_text, spare, write_log
from judgeq.errors import UsageError
from judgeq.settings.declaration import (
    BATCHES,
    DATA,
    GROUPS,
    JUDGE,
    MONEY,
    RATING,
    RUNNING,
    Setting,
)
from judgeq.settings.run import SETTINGS

if TYPE_CHECKING:
    from judgeq.run_places import RunPlace, Runs

Values: TypeAlias = dict[str, Any]
"""Values of options or settings, by name."""
F = TypeVar("F", bound=Callable[..., Answer | None])

MANY = 24
"""Of more options than this, `--help` shows the common ones, and `--help-all` all."""
OPTIONS = "Options"
SHORT = {
    **dict.fromkeys(GROUPS, JUDGE),
    DATA: DATA,
    MONEY: MONEY,
    BATCHES: MONEY,
    **dict.fromkeys((RUNNING, RATING, OPTIONS), RUNNING),
}
"""Where the common options of a group stand, if only those are shown."""
METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
# What comes after the first sentence, but for the default.
_MORE = re.compile(r"(?<=\.) (?! ).*?(?=  \[|$)", re.DOTALL)


class Option(click.Option):
    """An option of a group of the help, with the setting that it gives, if any."""

    group = OPTIONS
    common = True
    setting: Setting | None = None

    def get_help_extra(self, ctx: Context) -> Any:
        """What stands in brackets: the default as it is in words, and no range."""
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        if isinstance(self.show_default, str):  # click would bracket it twice
            extra["default"] = self.show_default
        return extra


def option(
    names: str,
    text: str,
    kind: Any = bool,
    *,
    group: str = OPTIONS,
    common: bool = True,
    least: Any = None,
    most: Any = None,
    shown: str | bool | None = None,
    **how: Any,
) -> Option:
    """An option: a flag, or one that takes a value of a type (a number within limits) or of a tuple.

    `shown` is its default in words (False: none is shown). Where there are many options, those that
    aren't `common` are shown by --help-all only.
    """
    if isinstance(kind, tuple):
        how.setdefault("metavar", "|".join(kind))
        kind = click.Choice(kind)
    elif kind is bool:
        how["is_flag"] = True
    else:
        how.setdefault("metavar", METAVARS.get(kind))
    if least is not None:
        kind = {int: click.IntRange, float: click.FloatRange}[kind](least, most)
    made = Option(
        names.split(), type=kind, help=text, show_default=shown, show_envvar="envvar" in how, **how
    )
    made.group, made.common = group, common
    return made


def of_settings(
    *names: str, known: Mapping[str, Setting] = SETTINGS, of_run: bool = False
) -> list[Option]:
    """The options of these settings, by their groups; where a run has them already (`of_run`), no
    default of judgeq's is shown."""
    chosen = [setting for name, setting in known.items() if name in names]
    if known is SETTINGS:
        chosen.sort(key=lambda setting: GROUPS.index(setting.group))
    made = [_of_setting(setting, of_run) for setting in chosen]
    for one in made:
        one.common |= known is not SETTINGS
    return made


def _of_setting(setting: Setting, of_run: bool) -> Option:
    flag = setting.flag
    kind = {tuple: str, dict: str}.get(setting.type, setting.type)
    how: Values = {"envvar": setting.envvar} if setting.envvar else {}
    if kind is not bool:
        how["metavar"] = setting.metavar
    made = option(
        f"{setting.name} {setting.short} {flag}{f'/--no-{flag[2:]}' if setting.undone else ''}",
        setting.help,
        kind,
        group=setting.group,
        common=setting.common,
        shown=(not of_run and setting.shown_default) or False,
        default=None,
        multiple=setting.repeatable,
        shell_complete=_choices(setting),
        **how,
    )
    made.setting = setting
    return made


def given(flags: Mapping[str, Any], known: Mapping[str, Setting] = SETTINGS) -> Values:
    """The settings that were given by flags, by name. Raises UsageError for what is no JSON."""
    values: Values = {}
    for name, value in flags.items():
        setting = known.get(name)
        if setting is None or value is None or value == ():
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


def _json_object(flag: str, text: str) -> Values:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{flag} is no JSON: {error}.") from error
    if not isinstance(value, dict):
        raise UsageError(f"{flag} must be a JSON object, as '{{\"top_k\": 20}}'.")
    return value


def _given(command: click.Command, values: Values) -> Values:
    """The settings that a command was given, the dataset also by its argument."""
    known = {
        one.name: one.setting for one in command.params if isinstance(one, Option) and one.setting
    }
    found, dataset = given(values, known), values.get("data")
    if dataset is not None and found.setdefault("dataset", dataset) != dataset:
        raise UsageError(
            f"Two datasets are given: {dataset} and --dataset {found['dataset']}. Give one."
        )
    return found


def _there(command: click.Command, values: Values) -> Runs:
    from judgeq import run_places

    return run_places.runs_in(values["runs_dir"], values["store"])


def _place(command: click.Command, values: Values) -> RunPlace:
    return _there(command, values).find(values["run"])


MADE: Mapping[str, Callable[[click.Command, Values], Any]] = {
    "given": _given,
    "there": _there,
    "place": _place,
}
"""What a command's function may name besides its options: the settings that were given, where the runs
are, or the run that is meant; and `values` of all options, and click's `context`."""


class Command(click.Command):
    """A command with plain help: of many options the common ones, or all in their groups."""

    def invoke(self, ctx: Context) -> None:
        """Call the function with what it names, and print its answer."""
        spare(ctx.params.get("csv"), "--csv", ctx.params.get("gold"))
        function: Any = self.callback
        have = {"values": ctx.params, "context": ctx, **ctx.params}
        found = function(
            **{
                name: MADE[name](self, ctx.params) if name in MADE else have[name]
                for name in inspect.signature(function).parameters
            }
        )
        if found is not None:
            answer(found, *map(ctx.params.get, ("csv", "as_json", "quiet")))

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """The options by their groups, and the commands of this command."""
        short = HELP_ALL in self.params and not ctx.meta.get(EVERYTHING)
        sections: dict[str, list[tuple[str, str]]] = {}
        for one in self.params:
            if not isinstance(one, Option) or (short and not one.common):
                continue
            group, (flag, text) = one.group, one.get_help_record(ctx) or ("", "")
            if short:
                group, text = SHORT.get(group, group), _MORE.sub("", text)
            sections.setdefault(group, []).append((flag, text))
        for group in sorted(sections, key=OPTIONS.__eq__):  # which come last
            with formatter.section(group):
                formatter.write_dl(sections[group])
        write_commands(formatter, str(self.name))

    def shell_complete(self, ctx: Context, incomplete: str) -> list[Any]:
        """The commands of this command, and its options."""
        from click.shell_completion import CompletionItem

        words = [CompletionItem(name) for name in _within(ctx, incomplete)]
        return words + super().shell_complete(ctx, incomplete)


def command(name: str, *params: Parameter) -> Callable[[F], F]:
    """Make a function a command of judgeq. It is called with what it names: its options (those that are
    SHARED it has by naming them) and what is MADE of them; the Answer that it returns is printed."""

    def declare(function: F) -> F:
        have = {one.name: one for one in params}
        for wanted in (*inspect.signature(function).parameters, function.__annotations__["return"]):
            for one in SHARED.get(wanted, ()):
                have.setdefault(one.name, one)
        if len(have) > MANY and not all(getattr(one, "common", True) for one in have.values()):
            have["help_all"] = HELP_ALL
        have["help"] = HELP
        text = inspect.cleandoc(function.__doc__ or "").replace("Examples:\n", "\b\nExamples:")
        text = re.sub(r"\n\n(?=  judgeq )", "\n", text)
        how: Values = {"params": [*have.values()], "help": text, "add_help_option": False}
        app.add_command(Command(name, callback=function, **how))
        return function

    return declare


def _show_help(context: Context, option: Parameter, value: bool) -> None:
    if value:
        context.meta[EVERYTHING] = option is HELP_ALL
        show_text(context.get_help())
        context.exit()


def _within(context: Context, incomplete: str) -> list[str]:
    before = f"{context.command.name} "
    begun = before + incomplete
    return [name.removeprefix(before) for name in MODULES if name.startswith(begun)]


def _choices(setting: Setting) -> Any:
    return lambda context, parameter, incomplete: [
        name for name in setting.choices if name.startswith(incomplete)
    ]


def argument(name: str, metavar: str, text: str, **how: Any) -> click.Argument:
    """An argument, in whose place a word may also be a command of its command."""
    return click.Argument(
        [name],
        metavar=metavar,
        help=text,
        shell_complete=lambda context, _, incomplete: _within(context, incomplete),
        **how,
    )


ALL = [name for name, setting in SETTINGS.items() if setting.flag]
RESUMED = [
    *("dataset", "data_dir", "onto", "judge", "prompt", "base_url", "api", "extra_body"),
    *(name for name in ALL if SETTINGS[name].session),
]
"""What may change when a run is resumed, and what a folder that isn't one's own is asked for."""
RATED = ("rating", "sigma", "unbias_position", "refit", "split_models")
"""The settings that decide how a run's comparisons become scores."""

_IS_A_RUN = "A run's id, a unique beginning of it, its name or folder, or 'last'"
RUN = argument("run", "[RUN]", f"{_IS_A_RUN} (the default).", default="last")
NAMED_RUN = argument("run", "RUN", f"{_IS_A_RUN}.")
DATASET = argument("data", "[DATASET]", "The texts, as --dataset names them.", required=False)
RUNS_DIR = option(
    "--runs-dir", "Where run folders are kept.", Path,
    group=RUNNING, common=False, envvar="JUDGEQ_RUNS", default=Path("runs"),
)  # fmt: skip
STORE = option(
    "--store", "The PostgreSQL database that keeps the runs.", str, group=RUNNING,
    envvar=SETTINGS["store"].envvar, metavar=SETTINGS["store"].metavar, shown="run folders",
)  # fmt: skip
CSV = option("--csv", "Write the numbers to a CSV file too.", Path, metavar="FILE")
LOG = option(
    "--log", "Write every call to this file, a line each.", Path, group=RUNNING, common=False,
    expose_value=False, callback=lambda context, option, path: write_log(path),
)  # fmt: skip
EAGER: Values = {"is_eager": True, "expose_value": False, "callback": _show_help}
HELP_ALL = option("--help-all", "Show all options, and exit.", **EAGER)
HELP = option("-h --help", "Show this message and exit.", **EAGER)
QUIET = option("-q --quiet", "Show nothing but warnings, errors, and where people judge.")
JSON = option("as_json --json", "Print one JSON object; all else goes to standard error.")
SHARED: Mapping[str, tuple[Parameter, ...]] = {
    "place": (RUN, RUNS_DIR, STORE),
    "there": (RUNS_DIR, STORE),
    "runs_dir": (RUNS_DIR,),
    "new": (option("--new", "Start another run of the same."),),
    "retry_failed": (option("--retry-failed", "Ask failed and invalid jobs again."),),
    "open": (option("--open", "Open the page in the browser."),),
    "yes": (option("-y --yes", "Don't ask."),),
    "quiet": (QUIET,),
    "as_json": (JSON,),
    "Answer": (JSON,),
}
"""The options that a command has because its function names them, or returns an Answer."""
