"""How people who judge agree with one another, and models with them, as sections."""

from __future__ import annotations

from collections.abc import Iterator

from judgeq.evaluation.metrics import Measured
from judgeq.evaluation.people import Share
from judgeq.evaluation.yardstick import Held, Yardstick
from judgeq.ui.sections import Section, numbers, shown, words
from judgeq.ui.text import count, several


def people(yardstick: Yardstick) -> Iterator[Section]:
    """People among themselves as the yardstick, models held against it, and what checks say."""
    columns = numbers("ordered alike", "questions", "α", "τ people", "τ all")
    rows: list[list[str | int | float | Measured | None]] = [
        [
            "two people",
            yardstick.alike,
            yardstick.questions,
            yardstick.alpha,
            None,
            yardstick.tau_all if yardstick.models else None,
        ]
    ]
    for held in yardstick.models:
        name = f"{held.name} and a person"
        rows.append([name, held.alike, held.questions, held.alpha, held.tau, held.tau_all])
    if yardstick.alpha_models is not None:
        rows.append(["the models among themselves", None, None, yardstick.alpha_models, None, None])
    kept = [
        at for at in range(len(columns)) if at < 3 or any(row[at + 1] is not None for row in rows)
    ]
    yield Section(
        "People as the yardstick: the share of pairs of items ordered alike",
        columns=[*words("", at_most=40), *(columns[at] for at in kept)],
        rows=[[row[0], *(row[at + 1] for at in kept)] for row in rows],
        notes=[*_notes(yardstick)],
    )
    facts = [*checks(yardstick)]
    if facts:
        yield Section("Questions that check people", facts=facts)


def _notes(yardstick: Yardstick) -> Iterator[str]:
    answers = several(yardstick.verdicts, "answer")
    rated = (
        "; τ: Kendall's τ-b of the ratings by it and by people, and by all"
        if yardstick.models
        else ""
    )
    yield (
        f"{several(yardstick.persons, 'person', 'people')} gave {answers}. α: Krippendorff's, of people"
        f"{' and the model' if yardstick.models else ''}{rated}."
    )
    yield from (sentence(held) for held in yardstick.models)
    reasons = (yardstick.alike.why, *(held.alike.why for held in yardstick.models))
    yield from dict.fromkeys(f"–: {why}." for why in reasons if why is not None)


def sentence(held: Held) -> str:
    """Whether a model is as good as one more person."""
    gap = held.difference
    if gap.value is None or gap.low is None or gap.high is None:
        return f"Whether {held.name} is as good as one more person can't be told: {_why(held)}."
    if gap.low <= 0 <= gap.high:
        means = "as good as one more person, as far as these questions can tell"
    elif gap.high < 0:
        means = "not as good as one more person"
    else:
        means = "in closer agreement with people than they are with one another"
    difference = f"{gap.value:+z.3f} [{gap.low:+z.3f}, {gap.high:+z.3f}]"
    return (
        f"{held.name} is {means}: with a person it orders {shown(held.alike.value)} of the pairs alike, "
        f"two people {shown(held.people.value)}, on the same {several(held.questions, 'question')} "
        f"(difference {difference})."
    )


def _why(held: Held) -> str:
    gap = held.difference
    if gap.value is None:
        return gap.why or "there are no questions in common"
    return f"{several(held.questions, 'question')} in common are too few"


def checks(yardstick: Yardstick) -> Iterator[tuple[str, str]]:
    """What repeated questions and known answers say of all people together."""
    each = yardstick.each
    repeats = sum((one.repeats for one in each), Share())
    place = sum((one.same_place for one in each), Share())
    known = sum((one.known for one in each), Share())
    if repeats.of:
        of = several(repeats.of, "repeated question")
        yield "repeats", f"{shown(repeats.measured)} answered alike, of {of}, turned round"
    if place.of:
        times = f"{count(round(place.count))} of {several(place.of, 'time')}"
        yield "", f"the same place came first {times}: a habit, where it is often"
    if known.of:
        yield "known answers", f"{shown(known.measured)} right, of {count(known.of)}"
