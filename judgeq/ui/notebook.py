"""Results in Python: what the commands show, as data that shows itself, and figures to draw."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ContextDecorator
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from judgeq.engine import estimate as estimates
from judgeq.engine import results, scores
from judgeq.engine.datasets import dataset_of
from judgeq.engine.interrupts import awaited
from judgeq.errors import JudgeqError, UsageError
from judgeq.evaluation import compare as comparing
from judgeq.evaluation import evaluate as evaluating
from judgeq.evaluation import items
from judgeq.evaluation.gold import Plan
from judgeq.ui.dataclass_json import plain

if TYPE_CHECKING:
    import pandas

    from judgeq.datasets.tables import Table
    from judgeq.ui.figures import Plots
    from judgeq.ui.sections import Section

WIDTH = 100
"""Columns of what is shown as text."""
_QUOTED = re.compile(r"(`[^`]*`)")
_FLAG = re.compile(r"(?<![\w-])--(no-)?([a-z]+(?:-[a-z]+)*)")
_COLUMNS = {"text_column": "text", "gold_column": "gold", "id_column": "id"}


class InPython(ContextDecorator):
    """Around what is called from Python: errors name parameters, not flags, in one paragraph."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, JudgeqError):
            words = " ".join(str(error).split())
            parts = _QUOTED.split(words)  # commands stay as they are typed
            parts[::2] = [_FLAG.sub(_parameter, part) for part in parts[::2]]
            error.args = ("".join(parts), *error.args[1:])


def _parameter(flag: re.Match[str]) -> str:
    name = flag[2].replace("-", "_")
    return f"{name}=False" if flag[1] else _COLUMNS.get(name, name)


class Shown(dict[str, Any]):
    """What a command prints with `--json`, as a dict that shows itself as the command does."""

    def __init__(self, made: object, sections: Iterable[Section]) -> None:
        super().__init__(plain(made))
        self.sections = [*sections]

    def __repr__(self) -> str:
        from judgeq.ui.sections import terminal

        return "\n".join(line.plain for line in terminal(self.sections, WIDTH))

    def _repr_html_(self) -> str:
        return _html(self.sections)


class Estimate(estimates.Estimate):  # noqa: D101  (its base's docstring)
    __slots__ = ()
    __doc__ = estimates.Estimate.__doc__

    def _repr_html_(self) -> str:
        from judgeq.ui.show import run as show_run

        return _html([show_run.estimate(self)])


def presented_estimate(estimate: estimates.Estimate) -> Estimate:
    """Return the same estimate, as Python has it."""
    return Estimate(**{field.name: getattr(estimate, field.name) for field in fields(estimate)})


class Scores(scores.Scores):  # noqa: D101  (its base's docstring)
    __slots__ = ()
    __doc__ = scores.Scores.__doc__

    def _repr_html_(self) -> str:
        from judgeq.ui.show import run as show_run

        title = f"{self.mark}{' '.join(self.marked.values())}" if self.mark else ""
        return _html([replace(show_run.ends(self), title=title)])


class Result(results.Result):  # noqa: D101  (its base's docstring)
    __slots__ = ("_frame",)
    __doc__ = results.Result.__doc__
    scores: Scores
    _frame: Table | None

    @property
    def plot(self) -> Plots:
        """The figures of the run: `plot.scale()` and others draw them."""
        from judgeq.ui.figures import Plots

        return Plots(self)

    @property
    @InPython()
    def df(self) -> pandas.DataFrame:
        """The scores and the other columns of the input, a row for each of its rows, as a DataFrame of
        pandas. Raises UsageError without pandas."""
        whole = dataset_of(self.run, frame=getattr(self, "_frame", None), keep_columns=True)
        if whole is None:
            return self.scores.to_pandas()
        others = whole.columns or self.scores.others
        return replace(self.scores, others=others, rows=whole.rows).to_pandas()

    @InPython()
    def show(
        self,
        n: int | None = None,
        *,
        around: str | None = None,
        group: str | None = None,
        uncertain: bool = False,
        contested: bool = False,
        against_gold: bool = False,
    ) -> Shown:
        """Return items with their texts: the n (by default 10) highest and lowest, of each group or of
        one, or those around an item by its id, or with the least certain scores, the most contradictory
        judgments, the largest distance to gold."""
        from judgeq.ui.show import items as show_items

        wanted = {"uncertain": uncertain, "contested": contested, "against_gold": against_gold}
        kinds = [kind for kind in items.VIEWS if wanted[kind]]
        views = items.chosen(self, n, around, kinds, group)
        return Shown(items.Views(self, views), show_items.views(self, views))

    @InPython()
    def explain(self, item: str, vs: str | None = None, *, replies: bool = False) -> Shown:
        """The evidence behind the score of an item, or about two, by their ids."""
        from judgeq.ui.show import items as show_items

        row, other = self.row_of(item), None if vs is None else self.row_of(vs)
        found = awaited(items.explanation(self, row, other, replies=replies))
        return Shown(found, show_items.explain(found))

    @InPython()
    def evaluate(self, splits: int | None = None, **how: Any) -> Shown:
        """How good the scores are; reliability and misfit need no gold. `splits` is how often the
        judgments are halved (0: not at all); `how` are the flags of `judgeq evaluate`
        (`threshold="best"`, …). `gold` is a file of labels, or a number for each item (nan: none)."""
        from judgeq.ui.show import evaluation as show_evaluation

        evaluated = evaluating.evaluation(self, Plan(**how), splits)
        return Shown(evaluated, show_evaluation.evaluation(evaluated))

    @InPython()
    def compare(self, *others: results.Result, **how: Any) -> Shown:
        """This run and others over the same items; `how` as of `evaluate`."""
        from judgeq.ui.show import evaluation as show_evaluation

        if not others:
            raise UsageError("Give two runs or more to compare; `evaluate` is about one.")
        compared = comparing.compare([self, *others], Plan(**how))
        return Shown(compared, show_evaluation.comparison(compared))

    @InPython()
    def report(self, path: str | Path | None = None, *, texts: int = 2_000) -> Path:
        """Write the report with so many ranked texts, to `path` (.html or .md) or into the run's
        folder; where it is. Raises RunError, DataError or UsageError."""
        from judgeq.ui import report, report_texts

        to = self.run.path / "report.html" if path is None else Path(path)
        report.check(to.suffix[1:])
        made = evaluating.evaluation(self, Plan(), shown=self.info.settings.texts)
        table = awaited(report_texts.gathered(made, texts))
        return report.write(made, table, to)[0]

    def _repr_html_(self) -> str:
        from judgeq.ui.show import run as show_run

        return _html(show_run.result(self))


def presented(result: results.Result, frame: Table | None = None) -> Result:
    """The same result, as Python has it; `frame` is the table that was judged, where that was given
    itself."""
    held = {field.name: getattr(result, field.name) for field in fields(result)}
    rated = {field.name: getattr(result.scores, field.name) for field in fields(result.scores)}
    made = Result(**held | {"scores": Scores(**rated)})
    object.__setattr__(made, "_frame", frame)
    return made


def _html(sections: Iterable[Section]) -> str:
    """Sections as a part of a page that isn't ours: in its colours, without a script, and with a style
    that holds for them alone."""
    from judgeq.ui import html

    style = html.trusted(html.asset("notebook.css"))
    return html.rendered("notebook.html", sections=[*sections], style=style)
