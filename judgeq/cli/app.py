"""The command line's root: the commands that there are, their exit codes, and how errors end them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NoReturn

import click
from click import Context, HelpFormatter

from judgeq.cli import printing
from judgeq.cli.printing import OutputError, complain, error_json, print_json, show_text
from judgeq.errors import JudgeqError, StoppedError, UsageError

EXIT_CODES = """\
Exit codes:
  0 done
  1 a bug in judgeq
  2 usage
  3 data
  4 judge (it can't be used, or jobs failed)
  5 stopped, can be resumed
  6 budget used up
  7 run (not there, in use, changed or damaged)
  8 a rating did not converge"""
FURTHER = "Further commands"
"""The heading of those that only `judgeq help all` lists."""
COMMANDS: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "Start": {
        "run": {
            "run": "Judge texts from start to scores, or continue a run.",
            "estimate": "Show a run's calls, tokens and dollars before it begins.",
            "resume": "Continue a run that was stopped or killed.",
        },
        "tools": {
            "init": "Write a job file and a prompt set to start from.",
            "doctor": "Check what a run needs: disk, key, server, model, price.",
        },
    },
    "Look": {
        "store": {
            "runs": "List the runs, the latest first.",
            "runs batches": "List the batches of all runs, and what they cost so far.",
            "runs batches cancel": "Ask the provider to stop a run's batches.",
            "runs rm": "Remove runs, with all that was answered.",
        },
        "show": {
            "status": "Show how far a run is, while it runs or afterwards.",
            "show": "Show a run's items with their texts: highest, lowest, others.",
            "explain": "Show every judgment behind an item's score.",
        },
        "evaluate": {
            "evaluate": "Report how good a run's scores are.",
            "compare": "Compare the scores and rankings of several runs.",
            "drift": "Ask questions of a run again: has the judge changed?",
            "report": "Write a report of a run: a page to read and to share.",
            "serve": "Show all runs in the browser, with live progress.",
        },
    },
    "Share": {
        "data": {
            "export": "Write a run's judgments, scores or calls to a file.",
            "import": "Make a finished run out of recorded judgments.",
        },
    },
    "People": {
        "people": {
            "annotate": "Open the page on which people judge a run.",
            "annotate add": "Add people to a run, and print a link for each.",
            "annotate list": "List a run's people: their progress and agreement.",
            "annotate remove": "Stop asking people of a run; their answers count.",
            "annotate forget": "Replace people's names by numbers in a run.",
        },
    },
    "Choose": {
        "tools": {
            "list": "List strategies, prompts or datasets.",
            "list strategies": "List the strategies, their costs, and when to use them.",
            "list prompts": "List the prompt sets, or show what one would send.",
            "list datasets": "List the datasets: size, licence, whether they are here.",
            "help": "Show help: of a command, all commands, or exit-codes.",
        },
    },
    FURTHER: {
        "store": {
            "worker": "Answer the jobs of runs in a store, until stopped.",
            "store": "Look after a PostgreSQL store.",
            "store copy": "Copy a run between a folder and a store, losing nothing.",
        },
        "study": {
            "simulate": "Run the paper's simulation study, or one of your own.",
            "reproduce": "Reproduce the paper's published rows.",
        },
        "tools": {
            "cache": "Show the reply cache: its size.",
            "cache clear": "Remove all replies.",
            "mock-server": "Run a local server like OpenAI's, for rehearsals.",
            "guide": "Print the guide for scripts and AI agents.",
        },
    },
}
"""By heading and module the commands, each with its first sentence: `judgeq --help` loads none. One
that belongs to another has the name of both."""
MODULES = {
    name: module
    for modules in COMMANDS.values()
    for module, commands in modules.items()
    for name in commands
}
EVERYTHING = "judgeq.all"
"""The context's mark that help shows everything."""
CLOSED_PIPE = 141
"""As the shell's own tools end when nobody reads what they write: 128 + SIGPIPE."""


def write_commands(formatter: HelpFormatter, within: str, *, everything: bool = False) -> None:
    """Write the commands by their headings: those of judgeq ("") or of a command, or all of them."""
    for heading, modules in COMMANDS.items():
        rows = [
            (name.ljust(8), sentence)
            for commands in modules.values()
            for name, sentence in commands.items()
            if everything or name.rpartition(" ")[0] == within
        ]
        if rows and (everything or within or heading != FURTHER):
            with formatter.section(heading):
                formatter.write_dl(rows)


class Root(click.Group):
    """Finds commands, and turns errors into a message and an exit code; a user's mistake gets no
    traceback."""

    def list_commands(self, ctx: Context) -> list[str]:
        """The names of the commands that stand alone."""
        return [name for name in MODULES if " " not in name]

    def get_command(self, ctx: Context, cmd_name: str) -> click.Command | None:
        """A command, whose module is loaded now: all of them take longer than most that they do."""
        if cmd_name in MODULES:
            import_module(f"judgeq.cli.{MODULES[cmd_name]}")
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command whose name the first words are, the longest that there is."""
        for count in (3, 2, 1):
            name = " ".join(args[:count])
            if name in MODULES:
                return name, self.get_command(ctx, name), args[count:]
        if ctx.resilient_parsing:
            return None, None, args
        raise click.exceptions.NoSuchCommand(args[0], possibilities=MODULES, ctx=ctx)

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """The commands by their headings, and the options."""
        write_commands(formatter, "", everything=EVERYTHING in ctx.meta)
        click.Command.format_options(self, ctx, formatter)

    def main(self, args: Sequence[str] | None = None, *_: Any, **extra: Any) -> NoReturn:
        """Run the command that `args` (default: the command line's) name, and end the process."""
        printing.begin()
        self._main_shell_completion({}, "judgeq")
        try:
            code = self._run(list(sys.argv[1:] if args is None else args))
        except BrokenPipeError:
            code = CLOSED_PIPE
        except OutputError as error:
            complain(str(error))
            code = error.exit_code
        except SystemExit as error:  # rich ends so where nobody reads what it prints
            if not isinstance(error.__context__, BrokenPipeError):
                raise
            code = CLOSED_PIPE
        printing.end()
        sys.exit(code)

    def _run(self, args: list[str]) -> int:
        try:
            with self.make_context("judgeq", args) as context:
                self.invoke(context)
        except click.exceptions.Exit as error:
            return error.exit_code
        except (KeyboardInterrupt, click.Abort):
            ended: JudgeqError = StoppedError("stopped.")
        except JudgeqError as error:
            ended = error
        except click.ClickException as error:
            ended = _usage(error)
        else:
            return 0
        if "--json" in args:
            print_json(error_json(ended))
        complain(str(ended))
        return ended.exit_code


def _usage(error: click.ClickException) -> UsageError:
    """click's complaint about flags and commands, in our form."""
    message = error.format_message().replace("<=x<=", " to ").replace("x>=", "from ")
    point = "" if message.endswith((".", "?", "!")) else "."
    context = getattr(error, "ctx", None)
    command = "judgeq" if context is None else context.command_path
    return UsageError(f"{message}{point} `{command} --help` shows what there is.")


def _show_version(context: Context, _option: click.Parameter, shown: bool) -> None:
    if shown:
        from importlib.metadata import version

        commit = _commit()
        show_text(f"judgeq {version('judgeq')}" + (f" (commit {commit})" if commit else ""))
        context.exit()


def _commit() -> str:
    """The commit of the clone that this is run from; empty if it is none, or git doesn't say."""
    import shutil
    import subprocess

    from judgeq.files import PACKAGE

    clone, git = PACKAGE.parent, shutil.which("git")
    if git is None or not (clone / ".git").exists():
        return ""
    place = (f"--git-dir={clone / '.git'}", f"--work-tree={clone}")
    words = ("describe", "--always", "--dirty", "--exclude=*", "--abbrev=12")
    command = [git, *place, *words]  # of the installed git, about our own clone
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip()


@click.group(
    "judgeq",
    cls=Root,
    invoke_without_command=True,
    epilog="`judgeq help all` lists all commands, `judgeq help exit-codes` the exit codes.",
    subcommand_metavar="COMMAND ...",
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "show_default": True,
    },
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
@click.pass_context
def app(context: Context) -> None:
    """Put texts on a continuous scale by having a judge compare them.

    Start with `judgeq run demo`: it is offline and free. No money is ever spent
    unless a model is named with --judge.
    """
    if context.invoked_subcommand is None:
        show_text(context.get_help())
