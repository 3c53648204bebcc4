"""The command line's root: what it is called, its exit codes, and how errors end it."""

from __future__ import annotations

import inspect
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group_from_info

from judgeq.cli import printing
from judgeq.cli.printing import OutputError, complain, error_json, print_json, show_text
from judgeq.errors import JudgeqError, StoppedError, UsageError

EXIT_CODES = (
    "Exit codes: 0 done; 1 a bug in judgeq; 2 usage; 3 data; 4 judge (it can't be used, or jobs "
    "failed); 5 stopped, can be resumed; 6 budget used up; 7 run (not there, in use, changed or "
    "damaged); 8 a rating did not converge."
)

COMMANDS = {
    "run": ("running", "Judge a dataset from start to scores, or continue a run."),
    "estimate": (
        "running",
        "Show what a run would take: calls, tokens and dollars, before anything is sent.",
    ),
    "resume": ("running", "Continue a run that was stopped or killed."),
    "annotate": ("annotating", "Open the page on which people judge a run, until all is judged."),
    "judges": ("judging", "Manage human judges and their links."),
    "worker": (
        "working",
        "Work on the runs of a store: take their jobs and ask the judges, until stopped.",
    ),
    "workers": (
        "working",
        "Start workers on your Dask or Ray cluster, watch them and stop them.",
    ),
    "rate": ("showing", "Recompute scores from saved answers."),
    "status": ("showing", "Show how far a run is, while it runs or afterwards."),
    "runs": ("showing", "List the runs, the latest first."),
    "datasets": ("showing", "List the datasets: size, licence, whether the texts are here."),
    "strategies": ("showing", "List the strategies, what they cost, and when to use them."),
    "prompts": ("showing", "List the prompt sets, or show what one would send."),
    "show": (
        "looking",
        "Show a run's items with their texts: the highest and the lowest, or others.",
    ),
    "explain": (
        "looking",
        "Show the evidence behind one score: every judgment that an item was in.",
    ),
    "evaluate": ("evaluating", "Report how good a run's scores are, with and without gold labels."),
    "compare": ("evaluating", "Compare runs over the same items: their scores and their rankings."),
    "report": (
        "reporting",
        "Write a report of a run: the result, how sure it is, and what a paper needs.",
    ),
    "serve": ("serving", "Show all runs in the browser: their reports, and live progress."),
    "import": ("sharing", "Make a finished run out of recorded judgments."),
    "export": ("sharing", "Write a run's judgments, to publish and share them; or a table of it."),
    "simulate": ("studying", "Run the paper's simulation study, or one of your own."),
    "reproduce": (
        "studying",
        "Reproduce the paper's published rows from its published judgments.",
    ),
    "doctor": ("tools", "Check what a run needs: disk, cache, key, server, model, price."),
    "init": ("tools", "Write a job file and a prompt set to start from, with comments."),
    "guide": ("tools", "Guide for scripts and AI agents: what to call, in which order."),
    "models": ("tools", "List the models whose prices are known."),
    "batches": (
        "batches",
        "List the batches of all runs, cancel those of one, or give up lost ones.",
    ),
    "store": ("storing", "Look after a PostgreSQL store: check, drop or copy a run."),
    "cache": ("tools", "Show the reply cache, prune or clear it."),
    "mock-server": ("tools", "A local server like OpenAI's, for rehearsals."),
}
"""Each command's module, and its first sentence: `judgeq --help` loads none of them."""
_DEFAULT = re.compile(r"default: \((.*)\)(?=\]$|; )")
_TYPE = re.compile(r" <(\w+)[^>]*>")
_METAVARS = {"str": "TEXT", "path": "PATH", "int": "N", "integer": "N", "float": "X"}
# What comes after the first sentence, but for the default.
_MORE = re.compile(r"(?<=\.) (?! ).*?(?=  \[|$)", re.DOTALL)
_LIMITS = (
    (re.compile(r"([\d.]+)<=x<=([\d.]+)"), r"\1 to \2"),
    (re.compile(r"x>=([\d.]+)"), r"\1 or more"),
)
_EXAMPLES = "Examples:\n\n"
CLOSED_PIPE = 141
"""As the shell's own tools end when nobody reads what they write: 128 + SIGPIPE."""
# typer brings click along, as a package or as a part of its own: its errors are known by typer's.
_ClickError: type[Any] = next(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)


class _Loaded(Mapping[str, Any]):
    """The commands by name, each loaded and made when it is asked for: all of them take longer than
    most that they do."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            import_module(f"judgeq.cli.{COMMANDS[name][0]}")
            how: Any = {"pretty_exceptions_short": True, "rich_markup_mode": None}
            for command in app.registered_commands:
                if command.name == name:
                    self._made[name] = get_command_from_info(command, **how)
            for group in app.registered_groups:
                if group.name == name:
                    self._made[name] = get_group_from_info(group, suggest_commands=True, **how)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    """Turns errors into a message and an exit code; a user's mistake gets no traceback."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.commands = _Loaded()  # type: ignore[assignment]  # none is added or removed

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, sentence) for name, (_, sentence) in COMMANDS.items()])

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run the command that `args` (default: the command line's) name, and end the process."""
        printing.begin()
        self._main_shell_completion({}, prog_name or "judgeq", complete_var)
        code = self._ended(list(sys.argv[1:] if args is None else args))
        printing.end()
        sys.exit(code)

    def _ended(self, args: list[str]) -> int:
        """The exit code of a command, of which all is said that is to be said."""
        try:
            return self._run(args)
        except BrokenPipeError:
            return CLOSED_PIPE
        except OutputError as error:
            complain(str(error))
            return error.exit_code
        except SystemExit as error:  # rich ends so where it prints the help
            if isinstance(error.__context__, BrokenPipeError):
                return CLOSED_PIPE
            raise

    def _run(self, args: list[str]) -> int:
        try:
            with self.make_context("judgeq", args) as context:
                self.invoke(context)
        except typer.Exit as error:
            return error.exit_code
        except (KeyboardInterrupt, typer.Abort):
            ended: JudgeqError = StoppedError("stopped.")
        except JudgeqError as error:
            ended = error
        except _ClickError as error:
            ended = _usage(error)
        else:
            return 0
        if "--json" in args:
            print_json(error_json(ended))
        complain(str(ended))
        return ended.exit_code


def _usage(error: Any) -> UsageError:
    """typer's complaint about flags and commands, in our form."""
    message = error.format_message()
    point = "" if message.endswith((".", "?", "!")) else "."
    command = error.ctx.command_path if getattr(error, "ctx", None) is not None else "judgeq"
    return UsageError(f"{message}{point} `{command} --help` shows what there is.")


def _records(parameter: Any, ctx: Any) -> Iterator[tuple[str, str]]:
    """A flag or argument, and what is said of it, if it is to be shown: in our words for typer's types
    and limits, and with a default in words bracketed once."""
    record = parameter.get_help_record(ctx)
    if record is not None:
        flag, text = record
        if parameter.param_type_name == "argument":
            flag = _TYPE.sub("", flag)
        flag = _TYPE.sub(lambda kind: f" {_METAVARS[kind[1]]}", flag)
        for limit, words in _LIMITS:
            text = limit.sub(words, text)
        yield flag, _DEFAULT.sub(r"default: \1", text)


class _Commands(TyperGroup):
    """A command that has others, with plain help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Options"):
            formatter.write_dl(
                [record for each in self.get_params(ctx) for record in _records(each, ctx)]
            )
        self.format_commands(ctx, formatter)


class _Command(TyperCommand):
    """A command with plain help: of many flags the common ones, or all in their groups."""

    def get_help(self, ctx: Any) -> str:
        encoding = sys.stdout.encoding or "utf-8"  # in which click itself would not replace
        help_text: str = super().get_help(ctx)
        return help_text.encode(encoding, "replace").decode(encoding)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [
            piece.removesuffix("...").strip("{}") for piece in super().collect_usage_pieces(ctx)
        ]

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        text, heading, examples = inspect.cleandoc(self.help or "").partition(_EXAMPLES)
        lines = "\n".join(filter(None, examples.split("\n")))
        self.help = f"{text}\b\n{heading.strip()}\n{lines}" if heading else text
        super().format_help_text(ctx, formatter)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if not self._short(ctx):
            super().format_epilog(ctx, formatter)

    def _short(self, ctx: Any) -> bool:
        """Whether only the common ones of many flags are shown."""
        return hasattr(self.callback, "rare") and not ctx.meta.get("judgeq.all")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        short = self._short(ctx)
        rare: frozenset[str] = getattr(self.callback, "rare", frozenset())
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if parameter.name in rare and short:
                continue
            group = getattr(parameter, "rich_help_panel", None)
            if parameter.param_type_name == "argument":
                group = "Arguments"
            elif group is None or short:
                group = "Options"
            for flag, text in _records(parameter, ctx):
                shown = _MORE.sub("", text, count=1) if short else text
                sections.setdefault(group, []).append((flag, shown))
        for group in sorted(
            sections, key=lambda group: (group == "Options") - (group == "Arguments")
        ):
            with formatter.section(group):
                formatter.write_dl(sections[group])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_extra_args = True
        rest: list[str] = super().parse_args(ctx, args)
        if rest and not ctx.resilient_parsing:
            meant = "give it with its flag."
            if "dataset" in (parameter.name for parameter in self.params):
                meant = f"did you mean `{ctx.command_path} --dataset {shlex.quote(rest[0])}`?"
            raise UsageError(f"{rest[0]!r} stands by itself: {meant}")
        return rest


def command(
    name: str, group: typer.Typer | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command of judgeq, or of a group of its commands."""
    return (group or app).command(name, cls=_Command, epilog=EXIT_CODES)


app = typer.Typer(
    name="judgeq",
    cls=_Group,
    help="Put texts on a continuous scale by having a judge compare them.\n\n"
    "Start with `judgeq run --dataset demo`: it is offline and free. No money is ever spent "
    "unless a model is named with --judge.",
    epilog=EXIT_CODES,
    rich_markup_mode=None,  # rich help imports a Markdown parser and takes twice as long
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
prompts_app = typer.Typer(
    cls=_Commands,
    help="List the prompt sets, or show what one would send.",
    invoke_without_command=True,
)
app.add_typer(prompts_app, name="prompts")
cache_app = typer.Typer(
    cls=_Commands, help="Show the reply cache, prune or clear it.", invoke_without_command=True
)
app.add_typer(cache_app, name="cache")
batches_app = typer.Typer(
    cls=_Commands,
    help="List the batches of all runs, cancel those of one, or give up lost ones.",
    invoke_without_command=True,
)
app.add_typer(batches_app, name="batches")
judges_app = typer.Typer(
    cls=_Commands,
    help="Manage human judges and their links.",
    invoke_without_command=True,
)
app.add_typer(judges_app, name="judges")
store_app = typer.Typer(
    cls=_Commands,
    help="Look after a PostgreSQL store: check, drop or copy a run.",
    invoke_without_command=True,
)
app.add_typer(store_app, name="store")


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        typer.echo(f"judgeq {installed('judgeq')}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        show_text(context.get_help().rstrip())
