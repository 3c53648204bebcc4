"""The simulated judge fitted to a run, as sections and for `--json`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from judgeq.study.fitting import Fitted
from judgeq.ui.sections import Section, numbers, words
from judgeq.ui.text import count, several

MEANING = {
    "sim_accuracy": "noise: share of right answers to a pair 90 apart",
    "sim_pmax": "lapses: share of right answers however far apart",
    "sim_position_bias": "how much higher the last item is seen than the first",
}


def fit(fitted: Fitted) -> Iterator[Section]:
    """What was fitted, how alike the answers are, and how to use it."""
    how = "its own questions" if fitted.strategy is None else f"the rounds of {fitted.strategy}"
    facts = [
        ("fitted to", f"{several(fitted.questions, 'answer')}, by simulating {how}"),
        ("simulated", f"{count(fitted.simulations)} times, latent scores {fitted.shape}"),
    ]
    if fitted.unreadable is not None:
        facts.append(("unusable", f"{fitted.unreadable:.2%} of the replies (sim_unreadable)"))
    yield Section("The simulated judge that answers as this run's did", facts, close=True)
    yield Section(
        columns=[
            *words("setting", whole=True),
            *numbers("value", "low", "high", show=_shown),
            *words(""),
        ],
        rows=[
            (name, *estimate, MEANING[name])
            for name, estimate in fitted.estimates.items()
            if fitted.ordered or name != "sim_position_bias"
        ],
        notes=["low, high: 95 % interval, were the judge like the model."],
        close=True,
    )
    off = [look for look in fitted.looks if abs(look.off) > 3]
    yield Section(
        "How alike the answers are",
        columns=[
            *words("", whole=True),
            *numbers("run", "simulated", "s.d.", "off by s.d."),
        ],
        rows=[
            (look.name, look.observed, look.simulated, look.sd, look.off) for look in fitted.looks
        ],
        warnings=[
            f"The run's judge isn't quite like the simulated one: {look.name} is off by "
            f"{abs(look.off):.1f} standard deviations."
            for look in off
        ],
        close=True,
    )
    yield Section(notes=[f"As flags: {' '.join(flags(fitted))}"], close=True)
    yield Section(notes=["In a grid:", *toml(fitted)], close=True)


def _shown(value: float) -> str:
    return f"{value:g}"


def settings(fitted: Fitted) -> dict[str, str | float]:
    """The settings of the judge that differ from what holds anyway, or were fitted."""
    values: dict[str, str | float] = {"sim_model": fitted.judge.sim_model}
    values |= {name: getattr(fitted.judge, name) for name in fitted.estimates}
    return values


def flags(fitted: Fitted) -> list[str]:
    """For `judgeq run` and `judgeq plan`."""
    values = settings(fitted)
    if fitted.unreadable:
        values["sim_unreadable"] = fitted.unreadable
    return [f"--{name.replace('_', '-')} {value}" for name, value in values.items()]


def toml(fitted: Fitted) -> list[str]:
    """The table [judge] of a grid, line by line."""
    return [
        "[judge]",
        *(
            f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value}"
            for name, value in settings(fitted).items()
        ),
    ]


def fit_json(fitted: Fitted) -> dict[str, Any]:
    """For `--json`."""
    return {
        "judge": settings(fitted),
        "sim_unreadable": fitted.unreadable,
        "estimates": {name: one._asdict() for name, one in fitted.estimates.items()},
        "statistics": [look._asdict() | {"off": look.off} for look in fitted.looks],
        "alike": fitted.alike,
        "shape": fitted.shape,
        "strategy": fitted.strategy,
        "questions": fitted.questions,
        "simulations": fitted.simulations,
        "order_known": fitted.ordered,
        "flags": flags(fitted),
        "toml": "\n".join(toml(fitted)) + "\n",
    }
