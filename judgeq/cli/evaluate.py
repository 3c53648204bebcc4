"""The commands that report how good scores are, to one who reads: evaluate, compare, report, serve."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from judgeq.cli.options import (
    CSV,
    RATED,
    RESUMED,
    Values,
    argument,
    command,
    of_settings,
    option,
)
from judgeq.cli.printing import Answer, complain, console, show_text
from judgeq.cli.run import restore_ctrl_c
from judgeq.cli.show import rated
from judgeq.errors import BudgetError, JudgeError, JudgeqError, StoppedError, UsageError
from judgeq.rating import THRESHOLDS
from judgeq.settings.declaration import CONNECTION, DATA, JUDGE, MODEL, MONEY
from judgeq.settings.run import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from judgeq.engine.results import Result
    from judgeq.evaluation.gold import Plan
    from judgeq.run_places import RunPlace, Runs
    from judgeq.web.guard import Guard

LONG = 50_000_000
"""Items drawn in all resamples above which it takes half a minute and more."""
GOLD, HOW = "Gold labels", "Evaluation"


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


PLAN = (
    option(
        "--gold", "Gold labels other than the run's: a CSV, TSV, JSONL or Parquet file.", Path,
        group=GOLD, metavar="FILE", shown="the run's",
    ),
    option("--gold-column", "The file's column of labels.", str, group=GOLD, shown="gold"),
    option(
        "--id-column", "The file's column of the items' ids.", str,
        group=GOLD, shown="id, else the row number",
    ),
    option(
        "--gold-levels", "The file's labels from least to most of the feature, if they are words.", str,
        group=GOLD, metavar="LOW,…,HIGH",
    ),
    option(
        "--positive-over", "Items with gold above this are positive.", float,
        group=GOLD, shown="the larger of two labels",
    ),
    option(
        "--threshold",
        "The score above which an item is labelled positive. default "
        f"({', '.join(f'{name} {value:g}' for name, value in THRESHOLDS.items())}), a number; "
        "mixture: where two Gaussian components of "
        "the scores cross, without using the gold.",
        _number, group=HOW, default="default", metavar="default|mixture|NUMBER",
    ),
    option("--rating-name", "Only this rating.", str, group=HOW, metavar="|".join(THRESHOLDS)),
    option("--subset", "Only this subset of the items.", str, group=HOW, metavar="NAME"),
    option(
        "--resamples", "Bootstrap resamples for the 95 % intervals; 0: no intervals.", int,
        group=HOW, default=1000, least=0, most=1_000_000,
    ),
    option("--seed", "Seed of the resamples.", int, group=HOW, default=0, least=0),
)  # fmt: skip
"""How to evaluate: the fields of `gold.Plan`."""
ASKED_AGAIN = [
    name
    for name in RESUMED
    if SETTINGS[name].group in (DATA, JUDGE, MODEL, MONEY, CONNECTION) or name == "concurrency"
]
"""The settings by which questions of a run are asked again."""
RATINGS = of_settings(*RATED, of_run=True)


@command(
    "evaluate", *RATINGS, *PLAN,
    option(
        "--splits", "Number of splits for the split-half reliability; 0: none.", int,
        group=HOW, least=0, most=100_000, shown="100, fewer of large runs",
    ),
    CSV,
)  # fmt: skip
def evaluate(place: RunPlace, given: Values, splits: int | None, values: Values) -> Answer:
    """Report how good a run's scores are.

    The first lines are the answers: agreement with gold, reliability, position
    bias, text length, misfit, agreement of judges. Below are all numbers, with
    95 % intervals by a bootstrap over the items. Asks no judge.

    Gold of two classes is also detected. Several judges are also evaluated each
    alone, and models by how well they agree with people.

    Examples:

      judgeq evaluate

      judgeq evaluate babe-list --threshold mixture

      judgeq evaluate last --gold other.csv --id-column id --gold-levels no,yes

      judgeq evaluate last --positive-over 2 --csv numbers.csv
    """
    from judgeq.evaluation.evaluate import evaluation
    from judgeq.ui.show import evaluation as show_evaluation

    plan, (run,) = _opened([place], given, values)
    return Answer(evaluation(run, plan, splits), show_evaluation.evaluation)


@command(
    "compare",
    argument(
        "names", "RUN1 RUN2 [RUN …]",
        "Two runs or more over the same items, each by its id, a unique beginning of it, its name or "
        "folder, or 'last'. The others are compared with the first.",
        nargs=-1, required=True,
    ),
    *RATINGS, *PLAN, CSV,
)  # fmt: skip
def compare(
    names: tuple[str, ...],
    there: Runs,
    given: Values,
    values: Values,
) -> Answer:
    """Compare the scores and rankings of several runs.

    The runs have the same items. Shows how similar the rankings are. With gold
    labels, of the first run or of --gold, also which run agrees better with them.

    Compared are their main ratings, or those named by --rating-name.

    Examples:

      judgeq compare babe-listwise10-simulated-e8 babe-direct-simulated-ab

      judgeq compare RUN1 RUN2 RUN3 --csv numbers.csv
    """
    from judgeq.evaluation.compare import compare
    from judgeq.ui.show import evaluation as show_evaluation

    if len(names) < 2:
        raise UsageError(
            "name two runs or more to compare. `judgeq runs` lists them; `judgeq evaluate` is for one."
        )
    plan, runs = _opened([there.find(name) for name in names], given, values)
    return Answer(compare(runs, plan), show_evaluation.comparison)


def _opened(places: Sequence[RunPlace], given: Values, values: Values) -> tuple[Plan, list[Result]]:
    """How to evaluate, and the runs, rated."""
    from judgeq.evaluation.gold import Plan

    fields = {one.name: values[one.name] for one in PLAN}
    levels = fields.pop("gold_levels")
    plan = Plan(**fields, gold_levels=levels and levels.split(","))
    opened = [rated(place, given) for place in places]
    items = len(opened[0].items.ids)
    if items * plan.resamples > LONG:
        complain(
            f"{plan.resamples:,} resamples of {items:,} items take a while. Give fewer with "
            "--resamples, or 0 for no intervals."
        )
    return plan, opened


@command(
    "drift", *of_settings(*ASKED_AGAIN, of_run=True),
    option(
        "--ask", "Ask so many of the run's questions again, drawn at random; without it what was "
        "asked last is shown.", int, group=MONEY, least=2, metavar="N", shown=False,
    ),
    option(
        "--group-column", "Test each group of texts that this column of the dataset names.", str,
        group=HOW, metavar="NAME",
    ),
    CSV,
)  # fmt: skip
def drift(
    place: RunPlace,
    given: Values,
    ask: int | None,
    group_column: str | None,
    quiet: bool,
) -> Answer:
    """Ask questions of a run again: has the judge changed?

    A model may change under its name. Some questions of the run are asked again
    today, past the cache, and the answers of then and now are compared: is the judge
    noisier or sharper, does it favour a position, have texts shifted? The run's
    scores stay as they are. Interrupted, the same command goes on.

    --max-cost is the most that these questions may cost.

    Examples:

      judgeq drift --ask 100 --max-cost 0.5

      judgeq drift last --ask 200 --max-cost 1 --group-column topic

      judgeq drift last
    """
    import asyncio

    from judgeq.engine import drift
    from judgeq.ui import dashboard
    from judgeq.ui.show import evaluation as show_evaluation

    ended: JudgeqError | None = None
    groups = drift.groups_in(place, group_column)
    if ask is not None:
        prepared = drift.prepare(place, given)
        face = dashboard.choose(console(stderr=True), quiet=quiet)
        restore_ctrl_c()
        try:
            with face:
                cap = given.get("max_cost")
                drift.ask(prepared, ask, face, cap=cap, beside=face.draw_forever)
        except BudgetError as error:
            ended = error
        except (JudgeError, StoppedError) as error:
            saved = "All answers so far are saved; the same command goes on."
            raise type(error)(f"{str(error).rstrip('.')}. {saved}") from error
    try:
        found = asyncio.run(drift.read(place, groups))
    except JudgeError:
        raise ended or JudgeError("none of the questions was answered usably.") from None
    finally:
        if ask is not None:
            drift.record_shown(place)
    return Answer(found, show_evaluation.drift, ended)


@command(
    "report", *of_settings(*RATED, "texts", of_run=True), *PLAN,
    option("kind --format", "Format of the report.", str, default="html", metavar="html|md"),
    option(
        "listed --texts",
        "Texts in the table at most. Of more, the highest, the lowest and some in between.", int,
        default=2_000, least=1, most=100_000,
    ),
)  # fmt: skip
def report(
    place: RunPlace,
    given: Values,
    values: Values,
    kind: str,
    listed: int,
    open: bool,  # noqa: A002 - as its option
    quiet: bool,
    as_json: bool,
) -> Answer:
    """Write a report of a run: a page to read and to share.

    report.html in the run's folder is one file that needs no network. It opens with
    the highest and lowest texts, reliability, agreement with gold labels, and cost;
    each text opens to the judgments behind its score. Calls no model.

    --no-texts leaves texts out, for corpora that may not be shared.

    Examples:

      judgeq report --open

      judgeq report babe-list --texts 5000 --threshold mixture

      judgeq report last --no-texts --format md
    """
    import asyncio

    from judgeq.evaluation.evaluate import evaluation
    from judgeq.ui import report as reports
    from judgeq.ui import report_texts

    reports.check(kind)
    plan, (run,) = _opened([place], given, values)
    shown = run.info.settings_with(given).texts
    made = evaluation(run, plan, shown=shown)
    table = asyncio.run(report_texts.gathered(made, listed))
    paths = reports.write(made, table, run.run.path / f"report.{kind}")
    if open:
        click.launch(paths[0].resolve().as_uri())
    if shown and made.run.scores.texts is None and not quiet and not as_json:
        complain("The texts of this run aren't on this machine: the report shows ids only.")
    found = {
        "run": run.run.id,
        "folder": run.run.path,
        "store": run.run.store_address,
        "partial": run.partial,
        "format": kind,
        "files": paths,
        "items": run.info.items,
        "listed": len(table.data["items"]),
        "texts": made.run.scores.with_texts,
    }
    return Answer(found, lambda _: str(paths[0]))


@command(
    "serve",
    option("--port", "The port; 0: any free one.", int, default=8765, least=0, most=65535),
    option(
        "--host", "The address to listen on. If others reach it, they need the printed link.", str,
        default="127.0.0.1",
    ),
    option(
        "--token", "Ask for the token on this machine's own address, too: if others log in to it."
    ),
    *of_settings("texts"),
)  # fmt: skip
def serve(
    there: Runs,
    given: Values,
    host: str,
    port: int,
    token: bool,
    open: bool,  # noqa: A002 - as its option
    as_json: bool,
) -> None:
    """Show all runs in the browser, with live progress.

    A list of the runs, the report of each, and the progress of one that is running.
    Only this machine reaches it, and runs are only read. Ctrl-C ends it.

    With another --host, others need the printed link, which has a token; the
    connection isn't encrypted.

    Examples:

      judgeq serve --open

      judgeq serve --runs-dir studies --port 9000 --no-texts

      judgeq serve --store postgresql://db/judgeq --token
    """
    import json
    import secrets
    import tempfile

    from judgeq.engine import interrupts
    from judgeq.web import guard
    from judgeq.web import serve as server

    secret = secrets.token_urlsafe(32) if token or not guard.is_local(host) else None

    def ready(at: Guard) -> None:
        if as_json:
            show_text(json.dumps({"address": at.address}))
        else:
            show_text(f"{at.address}\nShows the runs in {there.label}. Ctrl-C ends it.")
        if open:
            click.launch(at.address if secret is None else _private(Path(folder), at.address))

    restore_ctrl_c()
    with tempfile.TemporaryDirectory(prefix="judgeq-") as folder:
        try:
            with_texts = given.get("texts", True)
            served = server.serving(there, host, port, token=secret, with_texts=with_texts)
            interrupts.run_loop(server.serve(served, ready))
        except KeyboardInterrupt:
            return
        except BrokenPipeError:  # nobody reads what is printed
            raise
        except OSError as error:
            raise guard.unable(host, port, error) from error


def _private(folder: Path, address: str) -> str:
    """A file that leads to an address, in a folder that only this user can read: the words of the
    command that opens a browser are seen by all who are on the machine."""
    from judgeq.ui import html

    file = folder / "open.html"
    file.write_text(html.rendered("open.html", address=address), encoding="utf-8")
    return file.as_uri()
