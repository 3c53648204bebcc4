"""The commands that look into one run, and ask no judge: status, show, explain."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from judgeq.cli.options import (
    CSV,
    QUIET,
    RATED,
    Values,
    argument,
    command,
    of_settings,
    option,
)
from judgeq.cli.printing import Answer, complain, console
from judgeq.cli.run import written
from judgeq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from judgeq.engine.results import Result
    from judgeq.engine.status import State
    from judgeq.run_places import RunPlace, Runs

NO_TEXTS = (
    "the texts aren't here: the dataset was moved, changed, read from standard input, or isn't yours. "
    "--no-texts hides this warning."
)
EVERY = 2.0
"""Seconds between two looks at a run that is watched."""
ITEMS = "Which items"


@command(
    "status",
    option("--watch", "Show it again every two seconds, until the run ends."),
)
def status(place: RunPlace, watch: bool, as_json: bool) -> Answer:
    """Show how far a run is, while it runs or afterwards.

    With --watch it is shown again every two seconds until the run ends, or Ctrl-C;
    the run continues either way. If this isn't a terminal, or with --json, only the
    end is shown.
    """
    import asyncio

    from judgeq.engine.status import state
    from judgeq.evaluation.evaluate import state_with_agreement
    from judgeq.ui.show import status as show_status

    found = asyncio.run(state(place, rated=True))
    if watch:
        found = _watched(found, draw=not as_json)
    return Answer(state_with_agreement(found), show_status.status)


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
            before = asyncio.run(state(before.run, rated=True, before=before))
    return before


@command(
    "show",
    *of_settings(*RATED, "texts", of_run=True),
    option("--around", "Those ranked next above and below an item.", str, group=ITEMS, metavar="ITEM"),
    option("--uncertain", "Those with the least certain scores.", group=ITEMS),
    option("--contested", "Those whose judgments contradict one another most, by infit.", group=ITEMS),
    option(
        "--against-gold", "Those on which judge and gold labels disagree most.", group=ITEMS
    ),
    option("--group", "The highest and lowest of this group.", str, group=ITEMS, metavar="NAME"),
    option(
        "--n", "How many items; of a run with groups, from each end of each group.", int, group=ITEMS,
        least=1, most=1_000_000, shown="10; 1 of each of 10 groups",
    ),
    option("--write", "Write scores.csv by this rating, and show the run's result."),
    CSV,
    QUIET,
)  # fmt: skip
def show(
    place: RunPlace,
    given: Values,
    values: Values,
    around: str | None,
    group: str | None,
    n: int | None,
    write: bool,
) -> Answer:
    """Show a run's items with their texts: highest, lowest, others.

    Items are in the order of the score, with 95 % intervals of rank and score.
    Several options give several tables. Asks no judge.

    --write keeps the scores that --rating, --sigma and --unbias-position make of the
    run's answers: in scores.csv. A run that isn't finished is marked as partial.

    Examples:

      judgeq show

      judgeq show babe-list --n 20

      judgeq show last --around 42 --n 5

      judgeq show last --uncertain --contested --against-gold --csv look.csv

      judgeq show last --rating bt --write
    """
    from judgeq.engine.scores import TEXT
    from judgeq.escaping import excerpt
    from judgeq.evaluation import items
    from judgeq.ui.dataclass_json import plain
    from judgeq.ui.show import items as show_items

    if write:
        return written(place, place.info().settings_with(given))
    result = _opened(place, given)
    kinds = [kind for kind in items.VIEWS if values[kind]]
    found = items.Views(result, items.chosen(result, n, around, kinds, group))

    def rows(found: items.Views) -> Iterator[dict[str, Any]]:
        for view in found.views:
            for row in plain(view.items):
                cut = {"text": excerpt(row["text"], TEXT)} if result.scores.with_texts else {}
                yield {"view": view.name, **row, **cut}

    return Answer(found, lambda found: show_items.views(result, found.views), rows=rows)


def rated(place: RunPlace, given: Values) -> Result:
    """A run by its ledger, rated as these settings say."""
    import asyncio

    from judgeq.engine import results

    return asyncio.run(results.read(place, place.info().settings_with(given)))


def _opened(place: RunPlace, given: Values) -> Result:
    """A run by its ledger, with its texts if they can be had."""
    from judgeq.engine import session
    from judgeq.engine.datasets import dataset_of
    from judgeq.evaluation.evaluate import with_agreement

    result = with_agreement(rated(place, given))
    settings = place.info().settings_with(given)
    if not settings.texts:
        return result
    dataset = dataset_of(place)
    if dataset is None:
        complain(NO_TEXTS)
    elif dataset.texts is None and dataset.source != "synthetic":
        complain(dataset.missing_texts)
    return session.with_texts(result, settings, dataset)


@command(
    "explain",
    argument(
        "words", "[RUN] ITEM",
        "The item's id; before it a run's id, a unique beginning of it, its name or folder, or 'last' "
        "(the default).",
        nargs=-1, required=True,
    ),
    *of_settings(*RATED, "texts", of_run=True),
    option("--vs", "The evidence about these two items.", str, metavar="ITEM"),
    option("--replies", "Show the judge's raw replies too."),
)  # fmt: skip
def explain(
    words: tuple[str, ...],
    given: Values,
    vs: str | None,
    replies: bool,
    there: Runs,
) -> Answer:
    """Show every judgment behind an item's score.

    One word is an item of the last run; of two words the first is the run. With
    --vs, the evidence about two items. Asks no judge.

    For each judgment: how many comparisons the item won and was expected to win,
    and the texts that were ranked next to it; then the reasons that judges gave.

    Examples:

      judgeq explain 42

      judgeq explain babe-list 42 --replies

      judgeq explain 42 --vs 17
    """
    import asyncio

    from judgeq.datasets.tables import display
    from judgeq.evaluation.items import explanation
    from judgeq.ui.show import items as show_items

    if len(words) > 2:
        raise UsageError(
            f"explain takes [RUN] ITEM, and got {len(words)} words. Compare two items with --vs ITEM."
        )
    name, item = ("last", *words)[-2:]
    result = _opened(there.find(name), given)
    if vs == item:
        raise UsageError(f"--vs {display(vs)}: name another item than {display(item)}.")
    row, other = result.row_of(item), None if vs is None else result.row_of(vs)
    return Answer(asyncio.run(explanation(result, row, other, replies=replies)), show_items.explain)
