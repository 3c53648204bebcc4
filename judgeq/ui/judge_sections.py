"""The people who judge a run, and what became of them, as sections."""

from __future__ import annotations

from collections.abc import Sequence

from judgeq.engine.registering import Change, Changed
from judgeq.evaluation.people import PersonRecord, Share
from judgeq.runs import RunPlace
from judgeq.ui.sections import Cell, Column, Section, numbers
from judgeq.ui.text import several

SLOTS = 4
"""Of longer lists the share of one slot is shown, and not of each."""


def changed(
    place: RunPlace,
    change: Change,
    people: Sequence[Changed],
    served: bool,
    *,
    here: bool = False,
) -> Section:
    """What became of people of a run whose page is open, or isn't; `here`: their links lead to this
    machine."""
    if change.what == "add":
        width = max(len(one.name) for one in people)
        notes = [f"{one.name:<{width}}  {one.link}" for one in people]
        notes.append("Each link is shown this once: whoever has it judges under that name.")
        if not served:
            notes.append(f"They open the page while `judgeq annotate {place.argument}` runs there.")
        if here:
            notes.append(
                "They lead to this machine, where the page is: for judges elsewhere give `judgeq "
                "annotate`, and this command, --url-prefix (the address of a reverse proxy) or --host."
            )
        return Section(notes=notes)
    if change.what == "forget":
        names = ", ".join(one.name for one in people)
        return Section(
            notes=[
                f"Forgotten; called {names} from now on.",
                "Reports and exports that were made before still have the names: they are files of "
                "yours.",
            ]
        )
    return Section(notes=[f"{one.name} is {one.state}." for one in people])


def listed(place: RunPlace, people: Sequence[PersonRecord]) -> Section:
    """The people who judge a run: how far they are, how they do."""
    if not people:
        return Section(
            notes=[
                f"Nobody judges it yet: `judgeq judges add {place.argument} NAME` adds somebody."
            ]
        )
    models = list(people[0].models)
    columns = [
        Column("judge", at_most=40),
        Column("state"),
        *numbers("done", "quota", "skipped"),
        Column("median time", right=True, show=_seconds, spare=1),
        Column("first by slot", right=True, spare=5),
        Column("infit [expected]", right=True, spare=4),
        Column("with others", right=True, show=_percent, spare=2),
        *(
            Column(f"with {model}", right=True, show=_percent, spare=3, at_most=30)
            for model in models
        ),
        *(Column(name, right=True, spare=2) for name in ("repeats alike", "known right")),
    ]
    rows = [_row(person, models) for person in people]
    kept = [
        at
        for at, column in enumerate(columns)
        if column.name in ("judge", "state", "done") or any(row[at] is not None for row in rows)
    ]
    names = {columns[at].name for at in kept}
    return Section(
        several(len(people), "judge"),
        columns=[columns[at] for at in kept],
        rows=[[row[at] for at in kept] for row in rows],
        notes=[words for name, words in NOTES.items() if name in names],
    )


NOTES = {
    "first by slot": "First by slot: how often the text of each place presented came first.",
    "infit [expected]": "Infit over the range expected: judges less regularly than the others.",
    "with others": "With others: the share of pairs of texts ordered alike on questions in common.",
    "repeats alike": "Repeats: questions asked again, turned round, that were answered alike.",
}


def _row(person: PersonRecord, models: Sequence[str]) -> list[Cell]:
    return [
        person.name,
        str(person.state),
        person.done,
        person.quota,
        person.skipped or None,
        person.seconds,
        _slots(person.first),
        None if person.infit.value is None else person.infit,
        person.others.share,
        *(person.models[model].share for model in models),
        _of(person.repeats),
        _of(person.known),
    ]


def _slots(first: Sequence[float]) -> str | None:
    if len(first) > SLOTS:
        most = max(range(len(first)), key=first.__getitem__)
        return f"{first[most]:.0%} in slot {most + 1} of {len(first)}"
    return " / ".join(f"{share:.0%}" for share in first) or None


def _of(share: Share) -> str | None:
    return f"{round(share.count, 1):g} of {share.of}" if share.of else None


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s"


def _percent(share: float) -> str:
    return f"{share:.0%}"
