"""The commands that look into a run, and ask no judge: show, explain."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from judgeq.cli.app import command
from judgeq.cli.options import (
    AcceptDamage,
    Json,
    RunName,
    RunsDir,
    StoreAddress,
    given,
    with_settings,
)
from judgeq.cli.printing import complain, print_json, show, spare
from judgeq.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from judgeq.engine.results import Result

NO_TEXTS = (
    "the texts aren't here: the dataset was moved, changed, read from standard input, or isn't yours. "
    "--no-texts hides this warning."
)


_view: Any = partial(typer.Option, rich_help_panel="Which items")
Around = Annotated[
    str | None,
    _view(help="Those ranked next above and below an item.", metavar="ITEM", show_default=False),
]
Uncertain = Annotated[bool, _view("--uncertain", help="Those with the least certain scores.")]
Contested = Annotated[
    bool,
    _view(
        "--contested",
        help="Those whose judgments contradict one another most, by infit as in `judgeq evaluate`.",
    ),
]
AgainstGold = Annotated[
    bool, _view("--against-gold", help="Those on which judge and gold labels disagree most.")
]
Number = Annotated[int, _view("--n", help="How many items.", min=1, max=1_000_000)]
Words = Annotated[
    list[str],
    typer.Argument(
        metavar="[RUN] ITEM",
        help="The item's id; before it a run's id, a unique beginning of it, its folder, or 'last' "
        "(the default).",
    ),
]
Other = Annotated[
    str | None,
    typer.Option(
        "--vs",
        metavar="ITEM",
        help="The evidence about these two items.",
        show_default=False,
    ),
]
Replies = Annotated[bool, typer.Option("--replies", help="Show the judge's raw replies too.")]
CsvFile = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write the numbers to a CSV file too."),
]


@command("show")
@with_settings("rating", "sigma", "unbias_position", "texts")
def show_items(
    name: RunName = "last",
    around: Around = None,
    uncertain: Uncertain = False,
    contested: Contested = False,
    against_gold: AgainstGold = False,
    n: Number = 10,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    accept_damage: AcceptDamage = False,
    csv: CsvFile = None,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Show a run's items with their texts: the highest and the lowest, or others.

    Items are in the order of the score, with 95 % intervals of rank and score.
    Several flags give several tables. Asks no judge.

    Examples:

      judgeq show

      judgeq show babe-list --n 20

      judgeq show last --around 42 --n 5

      judgeq show last --uncertain --contested --against-gold --csv look.csv
    """
    from judgeq.engine.scores import TEXT
    from judgeq.escaping import excerpt
    from judgeq.evaluation.items import Views, chosen
    from judgeq.ui.json import plain, write_csv
    from judgeq.ui.show import items as show_items

    spare(csv, "--csv")
    result = _opened(name, runs_dir, store, accept_damage, flags)
    kinds = {"uncertain": uncertain, "contested": contested, "against_gold": against_gold}
    views = chosen(result, n, around, [kind for kind, wanted in kinds.items() if wanted])
    if csv is not None:
        rows = [{"view": view.name, **item} for view in views for item in plain(view.items)]
        for row in rows if result.scores.with_texts else ():
            row["text"] = excerpt(row["text"], TEXT)
        write_csv(csv, rows)
    if as_json:
        print_json(Views(result, views))
    else:
        show(*show_items.views(result, views))


def rated(
    name: str, runs_dir: Path, store: str | None, accept_damage: bool, changes: Mapping[str, Any]
) -> Result:
    """A run by its ledger, rated as these settings say."""
    import asyncio

    from judgeq import runs
    from judgeq.engine import results

    folder = runs.runs_in(runs_dir, store).find(name, accept_damage)
    return asyncio.run(results.read(folder, folder.info().settings_with(changes)))


def _opened(
    name: str, runs_dir: Path, store: str | None, accept_damage: bool, flags: dict[str, Any]
) -> Result:
    """A run by its ledger, with its texts if they can be had."""
    from judgeq.engine import session

    changes = given(flags)
    result = rated(name, runs_dir, store, accept_damage, changes)
    settings = result.run.info().settings_with(changes)
    if not settings.texts:
        return result
    dataset = session.dataset_of(result.run)
    if dataset is None:
        complain(NO_TEXTS)
    elif dataset.texts is None and dataset.source != "synthetic":
        complain(dataset.missing_texts)
    return session.with_texts(result, settings, dataset)


@command("explain")
@with_settings("rating", "sigma", "unbias_position", "texts")
def explain(
    words: Words,
    vs: Other = None,
    replies: Replies = False,
    runs_dir: RunsDir = Path("runs"),
    store: StoreAddress = None,
    accept_damage: AcceptDamage = False,
    as_json: Json = False,
    **flags: Any,
) -> None:
    """Show the evidence behind one score: every judgment that an item was in.

    One word is an item of the last run; of two words the first is the run. With
    --vs, the evidence about two items. Asks no judge.

    For each judgment: how many comparisons the item won and was expected to win,
    and the texts that were ranked next to it. Also how its Elo moved, and questions
    without a verdict.

    Examples:

      judgeq explain 42

      judgeq explain babe-list 42 --replies

      judgeq explain 42 --vs 17
    """
    import asyncio

    from judgeq.datasets.tables import shown
    from judgeq.evaluation.trail import explanation
    from judgeq.ui.show import items as show_items

    if len(words) > 2:
        raise UsageError(
            f"explain takes [RUN] ITEM, and got {len(words)} words. Compare two items with --vs ITEM."
        )
    name, item = words if len(words) == 2 else ("last", words[0])
    result = _opened(name, runs_dir, store, accept_damage, flags)
    if vs == item:
        raise UsageError(f"--vs {shown(vs)}: name another item than {shown(item)}.")
    row, other = result.row_of(item), None if vs is None else result.row_of(vs)
    found = asyncio.run(explanation(result, row, other, replies=replies))
    if as_json:
        print_json(found)
    else:
        show(*show_items.explain(found))
