"""What a budget buys, as sections and for `--json`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from judgeq.settings import simulation_facts
from judgeq.study.fitting import Fitted
from judgeq.study.planning import CLOSE, Planned, Point
from judgeq.ui import fit_sections
from judgeq.ui.sections import Section, numbers, words
from judgeq.ui.text import count


def plan(
    planned: Planned, fitted: Fitted | None, like: str | None, plot: Path | None
) -> Iterator[Section]:
    """The strategies with all that the budget pays, the best first, and which to take."""
    request, best = planned.request, planned.best
    priced = request.price is not None
    facts = [
        ("items", count(request.n)),
        ("budget", _budget(planned)),
        ("judge", _judge(planned, like)),
    ]
    if request.simulated < request.n:
        each = f"{count(request.simulated)} items, with as many calls an item"
        facts.append(("simulated", each))
    warnings = [f"Left out: {text}" for text in planned.left_out]
    if fitted is not None and not fitted.alike:
        warnings.append(
            f"{like}: its judge isn't quite like the simulated one; `judgeq simulate --fit {like}` "
            "shows in what."
        )
    yield Section("What the budget buys", facts, warnings=warnings)
    yield Section(
        columns=[
            *words("strategy", whole=True),
            *numbers("rounds", whole=True),
            *numbers("ρ", "s.d.", whole=True, show=_rho),
            *numbers("calls", "questions", whole=True, show=lambda value: f"{value:,.0f}"),
            *(numbers("dollars", whole=True, show=lambda value: f"{value:,.2f}") if priced else []),
        ],
        rows=[
            (
                *(point.strategy, point.rounds, point.rho, point.sd, point.cost, point.questions),
                *((point.dollars,) if priced else ()),
            )
            for point in planned.last
        ],
        notes=[
            f"ρ: Spearman's, against the latent order; mean and s.d. over {request.seeds} seeds. "
            "calls: cost-equivalent, 1 a pair, k/2 a list of k."
        ],
    )
    notes = [f"The most for it: --strategy {best.strategy} (ρ {best.rho:.3f})."]
    if planned.alike:
        notes.append(f"Not told apart from it by these seeds: {', '.join(planned.alike)}.")
    if planned.cheaper is not None:
        notes.append(f"Within {CLOSE:g} of it for less: {_short(planned.cheaper)}.")
    if plot is not None:
        notes.append(f"Figure {plot}")
    yield Section(notes=notes, close=True)


def _rho(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.3f}"


def _short(point: Point) -> str:
    dollars = "" if point.dollars is None else f", ${point.dollars:,.2f}"
    return f"--strategy {point.strategy} (ρ {point.rho:.3f}, {point.cost:,.0f} calls{dollars})"


def _budget(planned: Planned) -> str:
    request = planned.request
    calls = f"{request.calls:,.0f} cost-equivalent calls"
    if request.price is None:
        return calls
    return f"${request.calls * request.price:,.2f}: {calls} at ${request.price:.4g}"


def _judge(planned: Planned, like: str | None) -> str:
    judge = planned.request.judge
    what = f"right in {judge.sim_accuracy:.0%} at distance {judge.sim_distance:g}"
    what += f", at most {judge.sim_pmax:.0%}"
    if judge.sim_position_bias:
        what += f", position bias {judge.sim_position_bias:g}"
    what += f"; latent scores {planned.request.shape}"
    return f"simulated, {what}" if like is None else f"as that of {like}: {what}"


def plan_json(
    planned: Planned, fitted: Fitted | None, like: str | None, plot: Path | None
) -> dict[str, Any]:
    """For `--json`."""
    request = planned.request
    return {
        "n": request.n,
        "simulated": request.simulated,
        "calls": request.calls,
        "price": request.price,
        "budget": None if request.price is None else request.calls * request.price,
        "judge": simulation_facts(request.judge),
        "sim_unreadable": request.unreadable,
        "shape": request.shape,
        "seeds": request.seeds,
        "like": like,
        "fit": None if fitted is None else fit_sections.fit_json(fitted),
        "points": [_point(point) for point in planned.points],
        "best": _point(planned.best),
        "not_told_apart": list(planned.alike),
        "cheaper": None if planned.cheaper is None else _point(planned.cheaper),
        "left_out": list(planned.left_out),
        "plot": None if plot is None else str(plot),
    }


def _point(point: Point) -> dict[str, Any]:
    values = point._asdict()
    for name in ("sd", "se"):  # of one seed there is none
        values[name] = None if math.isnan(values[name]) else values[name]
    return values | {"rhos": list(point.rhos)}
