"""The people who judge a run: what they did, how well they agree, and models with them, as sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from judgeq.evaluation.people import ModelAgreement, PersonRecord, Share, Yardstick
from judgeq.people.checks import remarks
from judgeq.people.registry import Change, Changed
from judgeq.run_places import RunPlace
from judgeq.text import several
from judgeq.ui.sections import Cell, Column, Section, cell_text, line, numbers, stated, words

SLOTS = 4
"""Of longer lists the share of one position is shown, and not of each."""
NOTES = {
    "first by position": "First by position: how often the text in each position came first.",
    "with others": "With others: the share of pairs of texts ordered alike in questions in common.",
    "repeats alike": "Repeats: questions asked again in reversed order, and answered alike.",
}


def changed(
    place: RunPlace,
    change: Change,
    people: Sequence[Changed],
    served: bool,
    *,
    here: bool = False,
) -> Section:
    """What a change did to people of a run; `served`: its page is open; `here`: their links lead to this
    machine."""
    facts = {"people": people, "served": served, "here": here}
    return stated("changed", what=change.what, run=place.argument, **facts)


def listed(place: RunPlace, people: Sequence[PersonRecord]) -> Section:
    """The people who judge a run: how far they are, and how they do."""
    if not people:
        note = f"Nobody judges it yet. Add somebody: `judgeq annotate add {place.argument} NAME`."
        return Section(notes=[note])
    columns = [
        Column("judge", at_most=40),
        Column("state"),
        *numbers("done", "quota", "skipped"),
        Column("median time", right=True, show="{:.1f} s".format, spare=1),
        Column("first by position", right=True, spare=5),
        Column("with others", right=True, show="{:.0%}".format, spare=2),
        *(Column(name, right=True, spare=2) for name in ("repeats alike", "known right")),
    ]
    rows: list[list[Cell]] = [
        [
            one.name,
            str(one.state),
            one.done,
            one.quota,
            one.skipped or None,
            one.seconds,
            _positions(one.first_by_slot),
            one.agreement.measured.value,
            *(
                f"{round(share.count, 1):g} of {share.total}" if share.total else None
                for share in (one.repeats, one.known)
            ),
        ]
        for one in people
    ]
    columns, rows = _without_empty(columns, rows)
    names = {column.name for column in columns}
    notes = [note for name, note in NOTES.items() if name in names]
    warnings = [
        text
        for one in people
        for text in remarks(one.name, one.done, one.seconds, one.first_by_slot)
    ]
    title = several(len(people), "judge")
    return Section(title, columns=columns, rows=rows, notes=notes, warnings=warnings)


def _without_empty(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]]
) -> tuple[list[Column], list[list[Cell]]]:
    """Without the columns whose cells are all None."""
    kept = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _positions(first: Sequence[float]) -> str | None:
    if len(first) > SLOTS:
        most = max(range(len(first)), key=first.__getitem__)
        return f"{first[most]:.0%} in position {most + 1} of {len(first)}"
    return " / ".join(f"{share:.0%}" for share in first) or None


def people(found: Yardstick) -> Iterator[Section]:
    """How well people agree with one another, models with them, and questions that check them."""
    models, two = found.models, found.agreement
    rows: list[Sequence[Cell]] = [
        ("two people", two, found.questions),
        *((f"{one.name} and a person", one.agreement, one.questions) for one in models),
    ]
    heads = numbers("ordered alike", "questions")
    columns, kept = _without_empty([*words("", at_most=40), *heads], rows)
    gave = f"{several(found.n, 'person', 'people')} gave {several(found.verdicts, 'answer')}"
    alpha = f"Krippendorff's α {cell_text(found.krippendorff_alpha)}"
    reasons = dict.fromkeys(why for why in (two.why, *(one.agreement.why for one in models)) if why)
    yield Section(
        "Agreement of people: the share of pairs of texts ordered alike",
        columns=columns,
        rows=kept,
        notes=[f"{gave}; {alpha}.", *map(sentence, models), *(f"–: {why}." for why in reasons)],
    )
    if (checks := _checks(found.people)).facts:
        yield checks


def sentence(model: ModelAgreement) -> str:
    """Whether a model is as good as one more person."""
    return line("as_good", model=model)


def _checks(people: Sequence[PersonRecord]) -> Section:
    """What repeated questions and known answers show of all people together."""
    repeats, known = (
        Share(sum(share.count for share in of), sum(share.total for share in of))
        for of in zip(*((one.repeats, one.known) for one in people), strict=True)
    )
    return stated("checks", repeats=repeats, known=known)
