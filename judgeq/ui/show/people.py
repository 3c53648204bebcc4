"""The people who judge a run, what became of them, and how they agree with one another, and models with
them, as sections."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from judgeq.evaluation.people import PersonRecord, Share
from judgeq.evaluation.yardstick import Held, Yardstick
from judgeq.people.checks import remarks
from judgeq.people.registry import Change, Changed
from judgeq.runs import RunPlace
from judgeq.text import count, several
from judgeq.ui.sections import Cell, Column, Section, numbers, shown, words

SLOTS = 4
"""Of longer lists the share of one slot is shown, and not of each."""
NOTES = {
    "first by slot": "First by slot: how often the text of each place presented came first.",
    "infit [expected]": "Infit over the range expected: judges less regularly than the others.",
    "with others": "With others: the share of pairs of texts ordered alike on questions in common.",
    "repeats alike": "Repeats: questions asked again, turned round, that were answered alike.",
}


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
    elif change.what == "forget":
        notes = [
            f"Forgotten; called {', '.join(one.name for one in people)} from now on.",
            "Reports and exports that were made before still have the names: they are files of yours.",
        ]
    else:
        notes = [f"{one.name} is {one.state}." for one in people]
    return Section(notes=notes)


def listed(place: RunPlace, people: Sequence[PersonRecord]) -> Section:
    """The people who judge a run: how far they are, how they do."""
    if not people:
        return Section(
            notes=[
                f"Nobody judges it yet: `judgeq judges add {place.argument} NAME` adds somebody."
            ]
        )
    models = list(people[0].models)
    percent = "{:.0%}".format
    columns = [
        Column("judge", at_most=40),
        Column("state"),
        *numbers("done", "quota", "skipped"),
        Column("median time", right=True, show="{:.1f} s".format, spare=1),
        Column("first by slot", right=True, spare=5),
        Column("infit [expected]", right=True, spare=4),
        Column("with others", right=True, show=percent, spare=2),
        *(
            Column(f"with {model}", right=True, show=percent, spare=3, at_most=30)
            for model in models
        ),
        *(Column(name, right=True, spare=2) for name in ("repeats alike", "known right")),
    ]
    rows: list[list[Cell]] = [
        [
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
            *(
                f"{round(share.count, 1):g} of {share.of}" if share.of else None
                for share in (person.repeats, person.known)
            ),
        ]
        for person in people
    ]
    columns, rows = _filled(columns, rows)
    names = {column.name for column in columns}
    return Section(
        several(len(people), "judge"),
        columns=columns,
        rows=rows,
        notes=[words for name, words in NOTES.items() if name in names],
        warnings=[
            text for one in people for text in remarks(one.name, one.done, one.seconds, one.first)
        ],
    )


def _filled(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]]
) -> tuple[list[Column], list[list[Cell]]]:
    """Without the columns of which all cells are None."""
    kept = [at for at in range(len(columns)) if any(row[at] is not None for row in rows)]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


def _slots(first: Sequence[float]) -> str | None:
    if len(first) > SLOTS:
        most = max(range(len(first)), key=first.__getitem__)
        return f"{first[most]:.0%} in slot {most + 1} of {len(first)}"
    return " / ".join(f"{share:.0%}" for share in first) or None


def people(yardstick: Yardstick) -> Iterator[Section]:
    """People among themselves as the yardstick, models held against it, and what checks say."""
    models, alike = yardstick.models, yardstick.alike
    tau = yardstick.tau_all if models else None
    rows: list[list[Cell]] = [
        ["two people", alike, yardstick.questions, yardstick.alpha, None, tau],
        *(
            [
                f"{held.name} and a person",
                held.alike,
                held.questions,
                held.alpha,
                held.tau,
                held.tau_all,
            ]
            for held in models
        ),
    ]
    if yardstick.alpha_models is not None:
        rows.append(["the models among themselves", None, None, yardstick.alpha_models, None, None])
    heads = numbers("ordered alike", "questions", "α", "τ people", "τ all")
    columns, rows = _filled([*words("", at_most=40), *heads], rows)
    gave = f"{several(yardstick.persons, 'person', 'people')} gave "
    gave += several(yardstick.verdicts, "answer")
    of = "α: Krippendorff's, of people"
    if models:
        of += " and the model; τ: Kendall's τ-b of the ratings by it and by people, and by all"
    reasons = dict.fromkeys(why for why in (alike.why, *(one.alike.why for one in models)) if why)
    yield Section(
        "People as the yardstick: the share of pairs of items ordered alike",
        columns=columns,
        rows=rows,
        notes=[f"{gave}. {of}.", *map(sentence, models), *(f"–: {why}." for why in reasons)],
    )
    facts = [*_checks(yardstick.each)]
    if facts:
        yield Section("Questions that check people", facts=facts)


def sentence(held: Held) -> str:
    """Whether a model is as good as one more person."""
    gap, questions = held.difference, several(held.questions, "question")
    if gap.value is None or gap.low is None or gap.high is None:
        why = f"{questions} in common are too few"
        if gap.value is None:
            why = gap.why or "there are no questions in common"
        return f"Whether {held.name} is as good as one more person can't be told: {why}."
    if gap.low <= 0 <= gap.high:
        means = "as good as one more person, as far as these questions can tell"
    elif gap.high < 0:
        means = "not as good as one more person"
    else:
        means = "in closer agreement with people than they are with one another"
    difference = f"{gap.value:+z.3f} [{gap.low:+z.3f}, {gap.high:+z.3f}]"
    return (
        f"{held.name} is {means}: with a person it orders {shown(held.alike.value)} of the pairs alike, "
        f"two people {shown(held.people.value)}, on the same {questions} (difference {difference})."
    )


def _checks(each: Sequence[PersonRecord]) -> Iterator[tuple[str, str]]:
    """What repeated questions and known answers say of all people together."""
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
