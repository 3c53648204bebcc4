"""The options of commands: those of settings, made from their declarations, and those that commands
share; and how a command is declared with them."""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from judgeq.cli.app import EVERYTHING, MODULES, app, list_commands
from judgeq.cli.printing import Answer, answer, spare, write_log
from judgeq.errors import UsageError
from judgeq.settings import SETTINGS
from judgeq.settings.declaration import (
    BATCHES,
    CONNECTION,
    GROUPS,
    JUDGE,
    MODEL,
    MONEY,
    PEOPLE,
    RATING,
    RUNNING,
    SIMULATED,
    STRATEGY,
    Setting,
)

if TYPE_CHECKING:
    from judgeq.runs import RunPlace, Runs

MANY = 24
"""Of more options than this, `--help` shows the common ones, and `--help-all` all."""
OPTIONS = "Options"
SHORT = {
    **dict.fromkeys((STRATEGY, MODEL, CONNECTION, PEOPLE, SIMULATED), JUDGE),
    BATCHES: MONEY,
    **dict.fromkeys((RATING, OPTIONS), RUNNING),
}
"""Where the common options of a group stand, if only those are shown."""
METAVARS = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
_EXAMPLES = "Examples:\n\n"
# What comes after the first sentence, but for the default.
_MORE = re.compile(r"(?<=\.) (?! ).*?(?=  \[|$)", re.DOTALL)


class Option(click.Option):
    """An option of a group of the help, with the setting that it gives, if any."""

    group = OPTIONS
    common = False
    setting: Setting | None = None

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        if isinstance(self.show_default, str):  # click would bracket it twice
            extra["default"] = self.show_default
        if isinstance(self.type, click.IntRange | click.FloatRange) and "range" in extra:
            low, high = self.type.min, self.type.max
            extra["range"] = f"{low} or more" if high is None else f"{low} to {high}"
        return extra


def option(
    names: str,
    text: str,
    kind: Any = bool,
    *,
    group: str = OPTIONS,
    common: bool = False,
    min: float | None = None,  # noqa: A002 - as click calls it
    max: float | None = None,  # noqa: A002
    shown: str | bool | None = None,
    **how: Any,
) -> Option:
    """An option: a flag, or one that takes a value of a type or out of a tuple of choices; `shown` is its
    default in words (False: none is shown)."""
    if isinstance(kind, tuple):
        how = {"metavar": "|".join(kind)} | how
        kind = click.Choice(kind)
    elif kind is bool:
        how["is_flag"] = True
    else:
        how = {"metavar": METAVARS.get(kind)} | how
        if min is not None:
            kind = {int: click.IntRange, float: click.FloatRange}[kind](min, max)
    made = Option(
        names.split(),
        type=kind,
        help=text,
        show_default=shown,
        show_envvar="envvar" in how,
        **how,
    )
    made.group, made.common = group, common
    return made


def of_settings(
    *names: str, known: Mapping[str, Setting] = SETTINGS, of_run: bool = False
) -> list[Option]:
    """The options of these settings, by their groups; where a run has them already (`of_run`), no default
    of judgeq's is shown."""
    ordered = list(known)
    if known is SETTINGS:
        ordered.sort(key=lambda name: GROUPS.index(known[name].declared.group))
    return [_of_setting(known[name], of_run) for name in ordered if name in names]


def _of_setting(setting: Setting, of_run: bool) -> Option:
    declared, flag = setting.declared, setting.flag
    kind = {tuple: str, dict: str}.get(setting.type, setting.type)
    how: dict[str, Any] = {"envvar": declared.envvar} if declared.envvar else {}
    if kind is not bool:
        how["metavar"] = setting.metavar
    completion = COMPLETIONS.get(setting.name) or (lambda: setting.choices)
    made = option(
        f"{setting.name} {declared.short} {flag}{f'/--no-{flag[2:]}' if declared.undone else ''}",
        declared.help,
        kind,
        group=declared.group,
        common=declared.common,
        shown=(not of_run and setting.shown_default) or False,
        default=None,
        multiple=setting.repeatable,
        shell_complete=_completing(completion),
        **how,
    )
    made.setting = setting
    return made


def given(flags: Mapping[str, Any], known: Mapping[str, Setting] = SETTINGS) -> dict[str, Any]:
    """The settings that were given by flags, by name. Raises UsageError for what is no JSON."""
    values = {}
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


def _given(command: click.Command, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a command was given, the dataset also by its argument."""
    known = {
        one.name: one.setting for one in command.params if isinstance(one, Option) and one.setting
    }
    found, dataset = given(values, known), values.get("data")
    if dataset is not None:
        if found.get("dataset", dataset) != dataset:
            raise UsageError(
                f"Two datasets are given: {dataset} and --dataset {found['dataset']}. Give one."
            )
        found["dataset"] = dataset
    return found


def _there(command: click.Command, values: Mapping[str, Any]) -> Runs:
    from judgeq import runs

    return runs.runs_in(values["runs_dir"], values["store"])


def _place(command: click.Command, values: Mapping[str, Any]) -> RunPlace:
    return _there(command, values).find(values["run"], values.get("accept_damage", False))


MADE: Mapping[str, Callable[[click.Command, Mapping[str, Any]], Any]] = {
    "given": _given,
    "there": _there,
    "place": _place,
    "values": lambda command, values: values,
}
"""What a command's function may ask for besides its options: the settings that were given, where the runs
are, the run that is named, or all options by name."""


class Command(click.Command):
    """A command with plain help: of many options the common ones, or all in their groups."""

    def invoke(self, ctx: click.Context) -> None:
        """Call the function with what it names, and print its answer."""
        if self.callback is None:
            return
        csv = ctx.params.get("csv")
        spare(csv, "--csv", ctx.params.get("gold"))
        parts = {
            name: MADE[name](self, ctx.params) if name in MADE else ctx.params[name]
            for name in inspect.signature(self.callback).parameters
        }
        found = ctx.invoke(self.callback, **parts)
        if found is not None:
            as_json, quiet = (ctx.params.get(name, False) for name in ("as_json", "quiet"))
            answer(found, as_json=as_json, quiet=quiet, csv=csv)

    def get_help(self, ctx: click.Context) -> str:
        encoding = sys.stdout.encoding or "utf-8"  # in which click itself would not replace
        return super().get_help(ctx).encode(encoding, "replace").decode(encoding)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        text, heading, examples = inspect.cleandoc(self.help or "").partition(_EXAMPLES)
        lines = "\n".join(filter(None, examples.split("\n")))
        self.help = f"{text}\b\n{heading.strip()}\n{lines}" if heading else text
        super().format_help_text(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        short = len(self.params) > MANY and EVERYTHING not in ctx.meta
        sections: dict[str, list[tuple[str, str]]] = {}
        for one in self.get_params(ctx):
            record = one.get_help_record(ctx)
            if isinstance(one, click.Argument) or record is None:
                continue
            group = getattr(one, "group", OPTIONS)
            if short and getattr(one, "common", True):
                flag, text = record
                sections.setdefault(SHORT.get(group, group), []).append((flag, _MORE.sub("", text)))
            elif not short:
                sections.setdefault(group, []).append(record)
        for group in sorted(sections, key=OPTIONS.__eq__):  # which come last
            with formatter.section(group):
                formatter.write_dl(sections[group])
        list_commands(formatter, self.name or "", everything=False)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """The completions of options, and the commands of this command."""
        from click.shell_completion import CompletionItem

        begun = f"{self.name} {incomplete}"
        within = [name for name in MODULES if name.startswith(begun)]
        words = [CompletionItem(name.removeprefix(f"{self.name} ")) for name in within]
        return words + super().shell_complete(ctx, incomplete)


def command(
    name: str, *params: click.Parameter
) -> Callable[[Callable[..., Answer | None]], Callable[..., Answer | None]]:
    """Make a function a command of judgeq. It is called with the options that it names, and with what
    MADE has; the Answer that it returns is printed."""

    def declare(function: Callable[..., Answer | None]) -> Callable[..., Answer | None]:
        more = [HELP_ALL] if len(params) > MANY else []
        made = Command(name, callback=function, params=[*params, *more], help=function.__doc__)
        app.add_command(made)
        return function

    return declare


def _show_all(context: click.Context, option: click.Parameter, value: bool) -> None:
    if value:
        context.meta[EVERYTHING] = True
        click.echo(context.get_help())
        context.exit()


def _completing(names: Callable[[], Iterable[str]]) -> Any:
    return lambda context, parameter, incomplete: [
        name for name in names() if name.startswith(incomplete)
    ]


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


def argument(
    name: str,
    metavar: str,
    text: str,
    names: Callable[[], Iterable[str]] = tuple,
    **how: Any,
) -> click.Argument:
    """An argument, whose completions are `names`."""
    return click.Argument(
        [name], metavar=metavar, help=text, shell_complete=_completing(names), **how
    )


COMPLETIONS: Mapping[str, Callable[[], Iterable[str]]] = {
    "dataset": _datasets,
    "strategy": _strategies,
    "prompt": _prompts,
}
ALL = [name for name, setting in SETTINGS.items() if setting.flag]
RESUMED = [
    *("dataset", "data_dir", "judge", "prompt", "base_url", "api", "extra_body"),
    *(name for name in ALL if SETTINGS[name].declared.session),
]
"""What may change when a run is resumed, and what a folder that isn't one's own is asked for."""
RATED = ("rating", "sigma", "unbias_position")
"""The settings that decide how a run's comparisons become scores."""

_IS_A_RUN = "A run's id, a unique beginning of it, its name or folder, or 'last'"
RUN = argument("run", "[RUN]", f"{_IS_A_RUN} (the default).", _runs, default="last")
NAMED_RUN = argument("run", "RUN", f"{_IS_A_RUN}.", _runs)
DATASET = argument(
    "data", "[DATASET]", "The texts, as --dataset names them.", _datasets, required=False
)
RUNS_DIR = option(
    "--runs-dir", "Where run folders are kept.", Path,
    group=RUNNING, envvar="JUDGEQ_RUNS", default=Path("runs"),
)  # fmt: skip
STORE = option(
    "--store", "The PostgreSQL database that keeps the runs.", str, group=RUNNING,
    envvar=SETTINGS["store"].declared.envvar, metavar=SETTINGS["store"].metavar, shown="run folders",
)  # fmt: skip
ON_RUN = (RUN, RUNS_DIR, STORE)
JSON = option(
    "as_json --json", "Print one JSON object; all else goes to standard error.", common=True
)
QUIET = option(
    "-q --quiet", "Show nothing but warnings, errors, and where people judge.", common=True
)
YES = option("-y --yes", "Don't ask.")
CSV = option("--csv", "Write the numbers to a CSV file too.", Path, metavar="FILE")
ACCEPT_DAMAGE = option(
    "--accept-damage",
    "Rate what is left of a run whose record doesn't add up, because something else changed it; the "
    "result says so.",
    group=RUNNING,
)
RETRY_FAILED = option("--retry-failed", "Ask failed and invalid jobs again.", group=RUNNING)
NEW = option("--new", "Start another run of the same.", group=RUNNING, common=True)
LOG = option(
    "--log", "Write every call to this file, a line each.", Path, group=RUNNING,
    expose_value=False, callback=lambda context, option, path: write_log(path),
)  # fmt: skip
OPEN = option("--open", "Open the page in the browser.")
HELP_ALL = option(
    "--help-all", "Show all options, and exit.", common=True,
    is_eager=True, expose_value=False, callback=_show_all,
)  # fmt: skip
