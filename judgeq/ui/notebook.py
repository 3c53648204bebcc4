"""Results as a notebook shows them: their sections, and figures to draw."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

from judgeq.engine import results, scores

if TYPE_CHECKING:
    from collections.abc import Iterable

    from judgeq.ui.plots import Plots
    from judgeq.ui.sections import Section


class Scores(scores.Scores):  # noqa: D101  (its base's docstring)
    __slots__ = ()
    __doc__ = scores.Scores.__doc__

    def _repr_html_(self) -> str:
        from judgeq.ui.show import run as show_run

        title = f"{self.mark}made-up scores" if self.mark else ""
        return _html([replace(show_run.ends(self), title=title)])


class Result(results.Result):  # noqa: D101  (its base's docstring)
    __slots__ = ()
    __doc__ = results.Result.__doc__
    scores: Scores

    @property
    def plot(self) -> Plots:
        """The figures of the run: `plot.scale()` and others draw them."""
        from judgeq.ui.plots import Plots

        return Plots(self)

    def _repr_html_(self) -> str:
        from judgeq.ui.show import run as show_run

        return _html(show_run.result(self))


def shown(result: results.Result) -> Result:
    """The same result, as a notebook shows it."""
    held = {field.name: getattr(result, field.name) for field in fields(result)}
    rated = {field.name: getattr(result.scores, field.name) for field in fields(result.scores)}
    return Result(**held | {"scores": Scores(**rated)})


def _html(sections: Iterable[Section]) -> str:
    """Sections as a part of a page that isn't ours: in its colours, without a script, and with a style
    that holds for them alone."""
    from judgeq.ui import html

    style = html.trusted(html.asset("notebook.css"))
    return html.rendered("notebook.html", sections=[*sections], style=style)
