"""The commands that show what there is, and ask no judge: rate, status, runs, and the lists."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli.app import command, prompts_app
from judgeq.cli.options import (
    AcceptDamage,
    Json,
    PromptName,
    Quiet,
    RunName,
    RunsDir,
    StoreAddress,
    given,
    with_settings,
)
from judgeq.cli.printing import complain, console, print_json, show, show_result

if TYPE_CHECKING:
    from judgeq.config import Settings
    from judgeq.engine.status import State
    from judgeq.runs import RunPlace

EVERY = 2.0
"""Seconds between two looks at a run that is watched."""


@command("rate")
@with_settings("rating", "sigma", "unbias_position", "texts")
def rate(
    name: RunName = "last",
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    accept_damage: AcceptDamage = False,
    quiet: Quiet = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Recompute scores from saved answers.

    Writes scores.csv; asks nothing. A run that isn't finished is rated by
    what there is, and marked as partial.
    """
    from judgeq import runs

    folder = runs.runs_in(runs_dir, store).find(name, accept_damage)
    rate_run(folder, folder.info().settings_with(given(flags)), quiet, as_json)


def rate_run(folder: RunPlace, settings: Settings, quiet: bool, as_json: bool) -> None:
    """Rate a run from its ledger, write its scores and show them."""
    import asyncio

    from judgeq.engine import results, session
    from judgeq.engine.scores import write_scores

    result = asyncio.run(results.read(folder, settings))
    if settings.texts:
        result = session.with_texts(result, settings, session.dataset_of(folder))
    write_scores(result.scores, folder.scores)
    show_result(result, quiet, as_json)


@command("status")
def status(
    name: RunName = "last",
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it again every two seconds, until the run ends.")
    ] = False,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    as_json: Json = False,
) -> None:
    """Show how far a run is, while it runs or afterwards.

    With --watch it is shown again every two seconds until the run ends, or Ctrl-C;
    the run continues either way. If this isn't a terminal, or with --json, only the
    end is shown.
    """
    import asyncio

    from judgeq import runs
    from judgeq.engine.status import state
    from judgeq.ui.show import status as show_status

    folder = runs.runs_in(runs_dir, store).find(name)
    run_state = asyncio.run(state(folder, ratings=True))
    if watch:
        run_state = _watched(run_state, draw=not as_json)
    if as_json:
        print_json(run_state)
    else:
        show(*show_status.status(run_state))


def _watched(before: State, *, draw: bool) -> State:
    """How far a run is once nobody works on it any more, looked at every two seconds."""
    import asyncio
    import time

    from rich.console import Group
    from rich.live import Live

    from judgeq.engine.status import state
    from judgeq.ui.sections import terminal
    from judgeq.ui.show import status as show_status

    target = console()
    live = Live(console=target, auto_refresh=False, transient=True)
    draw = draw and target.is_terminal
    with live if draw else nullcontext():
        while before.running:
            if draw:
                sections = show_status.status(before)
                live.update(Group(*terminal(sections, target.width)), refresh=True)
            time.sleep(EVERY)
            before = asyncio.run(state(before.run.anew(), ratings=True, before=before))
    return before


@command("runs")
def list_runs(
    runs_dir: RunsDir = Path("runs"), store: StoreAddress = None, as_json: Json = False
) -> None:
    """List the runs, the latest first."""
    import asyncio

    from judgeq import runs
    from judgeq.engine.status import Unreadable, states
    from judgeq.ui.show import status as show_status

    there = runs.runs_in(runs_dir, store)
    listed = asyncio.run(states(there))
    if as_json:
        print_json(listed)
    elif listed:
        show(show_status.runs(listed))
    else:
        show(f"No runs in {there.shown}. `judgeq run --dataset demo` makes one.")
    for state in listed:
        if isinstance(state, Unreadable):
            complain(f"{state.run.id} can't be read: {state.reason}")


@command("datasets")
@with_settings("data_dir")
def datasets(as_json: Json = False, **flags: Any) -> None:
    """List the datasets: size, licence, whether the texts are here."""
    from judgeq import datasets as known_datasets
    from judgeq.ui.show import lists as show_lists

    known = known_datasets.known(flags["data_dir"])
    if as_json:
        print_json(known)
    else:
        show(*show_lists.datasets(known))


@command("strategies")
def strategies(
    n: Annotated[
        int, typer.Option("--n", min=2, max=10_000_000, help="Items to show the cost for.")
    ] = 1000,
    as_json: Json = False,
) -> None:
    """List the strategies, what they cost, and when to use them."""
    from judgeq.ui.show import lists as show_lists

    if as_json:
        print_json(show_lists.strategies_over(n))
    else:
        show(*show_lists.strategies(n))


@prompts_app.callback()
def prompts(context: typer.Context, as_json: Json = False) -> None:
    """List the prompt sets."""
    if context.invoked_subcommand is not None:
        return
    from judgeq import prompts as prompt_sets
    from judgeq.ui.show import lists as show_lists

    known = prompt_sets.known()
    if as_json:
        print_json(known)
    else:
        show(show_lists.prompts(known))


@command("show", prompts_app)
@with_settings(
    *("dataset", "text_column", "delimiter", "encoding", "skip_empty", "data_dir", "feature"),
    "reasons",
)
def show_prompt(
    name: PromptName,
    k: Annotated[
        int, typer.Option("--k", min=1, help="1: a text by itself; 2: a pair; more: a list.")
    ] = 3,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Print exactly what would be sent about the first items of a dataset (demo, by default)."""
    from judgeq import config
    from judgeq import datasets as known_datasets
    from judgeq import prompts as prompt_sets
    from judgeq.errors import DataError
    from judgeq.ui.show import lists as show_lists

    settings = config.settle({"dataset": "demo", **given(flags)})
    prompt = prompt_sets.load(name, settings.feature)
    loaded = known_datasets.load(settings)
    if loaded.texts is None:
        raise DataError(loaded.missing_texts)
    texts, reasons = list(loaded.texts[:k]), settings.reasons
    messages = prompt_sets.messages(prompt, texts, reasons=reasons)
    if as_json:
        print_json(messages)
    else:
        show(*show_lists.messages(messages, prompt_sets.schema(k, prompt.ties, reasons)))
