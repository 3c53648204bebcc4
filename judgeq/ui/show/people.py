"""The people who judge a run: what they did, how well they agree, and models with them, as sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

from judgeq.evaluation.people import ModelAgreement, PersonRecord, Share, Yardstick
from judgeq.people.checks import remarks
from judgeq.people.registry import Change, Changed
from judgeq.run_places import RunPlace
from judgeq.text import several
from judgeq.ui.sections import (
    Column,
    Field,
    Section,
    cell_text,
    line,
    numbers,
    stated,
    table,
    words,
)

NOTES = {
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
    return stated("changed", what=change.what, run=place, **facts)


def listed(place: RunPlace, people: Sequence[PersonRecord]) -> Section:
    """The people who judge a run: how far they are, and how they do."""
    if not people:
        add = place.command("annotate add", positionals=["NAME"])
        note = f"Nobody judges it yet. Add somebody: `{add}`."
        return Section(notes=[note])
    fields: list[Field] = [
        (Column("judge", at_most=40), "name"),
        (Column("state"), lambda one: str(one.state)),
        (Column("done", right=True), "done"),
        (Column("quota", right=True), "quota"),
        (Column("skipped", right=True), lambda one: one.skipped or None),
        (Column("median time", right=True, show="{:.1f} s".format), "seconds"),
        (Column("with others", right=True, show="{:.0%}".format), "agreement.value"),
        (Column("repeats alike", right=True, spare=True), lambda one: _share(one.repeats)),
        (Column("known right", right=True, spare=True), lambda one: _share(one.known)),
    ]
    warnings = [
        text
        for one in people
        for text in remarks(one.name, one.done, one.seconds, one.first_by_slot, one.first_counts)
    ]
    title = several(len(people), "judge")
    made = table(people, fields, title, warnings=warnings)
    return replace(made, notes=[NOTES[one.name] for one in made.columns if one.name in NOTES])


def _share(share: Share) -> str | None:
    return f"{round(share.count, 1):g} of {share.total}" if share.total else None


def people(found: Yardstick) -> Iterator[Section]:
    """How well people agree with one another, models with them, and questions that check them."""
    models, two = found.models, found.agreement
    rows = [
        ("two people", two, found.questions),
        *((f"{one.name} and a person", one.agreement, one.questions) for one in models),
    ]
    columns = [*words("", at_most=40), *numbers("ordered alike", "questions")]
    gave = f"{several(found.n, 'person', 'people')} gave {several(found.verdicts, 'answer')}"
    alpha = f"Krippendorff's α {cell_text(found.krippendorff_alpha)}"
    reasons = dict.fromkeys(why for why in (two.why, *(one.agreement.why for one in models)) if why)
    notes = [f"{gave}; {alpha}.", *map(sentence, models), *(f"–: {why}." for why in reasons)]
    title = "Agreement of people: the share of pairs of texts ordered alike"
    fields = ((column, itemgetter(at)) for at, column in enumerate(columns))
    yield table(rows, fields, title, notes=notes)
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
