"""People as judges, by the engine alone: who has which question, and what becomes of their answers."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from judgeq import errors
from judgeq.engine import session
from judgeq.engine.estimate import estimate
from judgeq.events import Event, Notice
from judgeq.judge.questions import Questions
from judgeq.people.assignment import LEASE, MAX_UNDONE, SKIPS, Assignment
from judgeq.people.checks import APART, EVERY, add_known, known_in, remarks
from judgeq.people.people import Answer, People, Question, Turn, about_of
from judgeq.people.registry import Change
from judgeq.person import PersonState
from judgeq.prompts import load
from judgeq.store import Items
from judgeq.store.sqlite import SqliteStore
from judgeq.types import Counts, Matches, Verdict
from tests import people as them
from tests.fakes import Clock

N = 12
TEXTS = [f"text number {row} of them" for row in range(N)]
FIRST, SECOND = Answer((0, 1)), Answer((1, 0))
RING = [(row, (row + 1) % N) for row in range(N)]


@dataclass
class Table:
    """A store with one round or two, and its people; opened as often as wanted."""

    path: Path
    couples: Sequence[tuple[int, int]]
    later: Sequence[tuple[int, int]] = ()
    ties: bool = False
    repeats: float = 0.0
    open_to_all: bool = False
    clock: Clock = field(default_factory=Clock)
    planned: bool = False
    events: list[Event] = field(default_factory=list)

    @asynccontextmanager
    async def open(self, *names: str, shared: SqliteStore | None = None) -> AsyncIterator[Any]:
        """The people and the store, and the tokens of those who are registered under these names."""
        store = shared or SqliteStore(self.path, clock=self.clock)
        rounds = [
            Matches(np.array(some, np.int32).reshape(-1), np.arange(len(some) + 1) * 2)
            for some in (self.couples, self.later)
            if some
        ]
        try:
            if not self.planned:
                await store.set_items(Items([f"t{row}" for row in range(N)], None, {}))
                epoch = await store.lead("us", 60)
                for number, matches in enumerate(rounds, 1):
                    await store.plan_round(number, epoch, np.ones(N, dtype=np.bool_), matches)
                self.planned = True
            prompt = load("generic", "size").model_copy(update={"ties": self.ties})
            how = {"repeats": self.repeats, "open_to_all": self.open_to_all}
            assignment = Assignment(store, now=self.clock, clock=self.clock, **how)  # type: ignore[arg-type]
            people = People(Questions(prompt, TEXTS), assignment, emit=self.events.append)
            tokens = await them.register(people, names) if names else []
            yield people, store, *tokens
        finally:
            if shared is None:
                await store.close()


Story = Callable[[Table], Coroutine[None, None, None]]


def table(*couples: tuple[int, int], **options: Any) -> Callable[[Story], Callable[[Path], None]]:
    """A test of people who are asked these pairs."""

    def made(story: Story) -> Callable[[Path], None]:
        def test(tmp_path: Path) -> None:
            asyncio.run(story(Table(tmp_path / "run.db", couples, **options)))

        return test

    return made


def question(turn: Turn) -> Question:
    assert turn.question is not None
    return turn.question


def lease(turn: Turn) -> str:
    return question(turn).id


def texts(turn: Turn) -> tuple[str, ...]:
    return tuple(question(turn).texts)


@table((0, 1), (2, 3))
async def test_each_has_a_question_of_their_own_until_none_is_left(table: Table) -> None:
    async with table.open("Ann", "Bob", "Eve") as (people, store, ann, bob, eve):
        first, second = await people.turn(ann), await people.turn(bob)
        assert set(texts(first)).isdisjoint(texts(second))
        assert (first.name, first.done, first.quota, first.undo) == ("Ann", 0, None, False)
        assert (await people.turn(ann)).question == first.question, "it stays theirs"
        assert (await people.turn(eve)).why == "wait"
        after = await people.answer(ann, lease(first), FIRST)
        assert (after.why, after.done, after.undo) == ("wait", 1, True)
        await people.answer(bob, lease(second), SECOND)
        assert await store.counts() == Counts(done=2)
        verdicts = await store.verdicts()
        assert sorted(verdicts.judges.tolist()) == [1, 2], "after the panel's one"


@table((0, 1))
async def test_a_link_that_is_not_known_opens_nothing(table: Table) -> None:
    async with table.open("Ann") as (people, store, ann):
        for token in ("", "x", ann[:-1], ann + "x", "\udcff"):
            with pytest.raises(errors.UnknownPersonError, match="isn't known"):
                await people.turn(token)
            assert not await people.knows(token)
        (kept,) = await store.people()
        assert ann.encode() not in kept.token
        with pytest.raises(errors.UsageError, match="a link of your own"):
            await people.join("Eve")


@table((0, 1), open_to_all=True)
async def test_whoever_comes_may_join_under_a_name_of_their_own(table: Table) -> None:
    async with table.open() as (people, _):
        token = await people.join("  Eve   Adams ")
        assert (await people.turn(token)).name == "Eve Adams"
        assert (await people.turn(await people.join("Zoe\u0301"))).name == "Zo\u00e9"
        taken = ("eve adams", "ZO\u00c9", "People")
        for name in (*taken, "", " ", "a\x1b[2J", "x" * 81, "a\u202eb"):
            with pytest.raises(errors.UsageError, match=r"already|named"):
                await people.join(name)


@table((0, 1), (2, 3))
async def test_an_answer_is_taken_once(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, store, ann, bob):
        turn = await people.turn(ann)
        after = await people.answer(ann, lease(turn), FIRST)
        assert await people.answer(ann, lease(turn), FIRST) == after, "its reply was lost"
        with pytest.raises(errors.StaleError, match="in another window"):
            await people.answer(ann, lease(turn), SECOND)
        with pytest.raises(errors.StaleError, match="no longer yours"):
            await people.answer(bob, lease(turn), FIRST)
        with pytest.raises(errors.StaleError, match="no longer yours"):
            await people.answer(bob, lease(after), FIRST)
        assert await store.counts() == Counts(pending=1, done=1)
        assert len(await store.people_calls()) == 1


@table((0, 1), ties=True)
async def test_what_is_no_answer_is_refused_and_the_question_stays(table: Table) -> None:
    async with table.open("Ann") as (people, store, ann):
        turn = await people.turn(ann)
        rankings = ((), (0,), (0, 0), (0, 2), (0, 1, 2))
        for answer in (*map(Answer, rankings), Answer(score=0.5)):
            with pytest.raises(errors.BadAnswerError, match="not an answer"):
                await people.answer(ann, lease(turn), answer)
        assert await people.turn(ann) == turn
        assert await store.people_calls() == []
        await people.answer(ann, lease(turn), Answer((0, 1), tied=True))
        assert (await store.verdicts()).tied.tolist() == [False, True]


@table((0, 1), (2, 3))
async def test_the_last_answer_can_be_taken_back_until_the_run_is_over(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, store, ann, bob):
        with pytest.raises(errors.StaleError, match="can't be taken back"):
            await people.undo(ann)
        first = await people.turn(ann)
        second = await people.answer(ann, lease(first), FIRST)
        back = await people.undo(ann)
        assert texts(back) == texts(first)
        assert lease(back) not in (lease(first), lease(second))
        assert (back.done, back.undo) == (0, False)
        assert await store.counts() == Counts(pending=2)
        with pytest.raises(errors.StaleError, match="no longer yours"):
            await people.answer(ann, lease(first), FIRST)
        assert (await people.turn(bob)).question is not None, "what Ann had is anybody's"
        await people.answer(ann, lease(back), SECOND)
        verdicts = await store.verdicts()
        assert verdicts.items.tolist() == list(verdicts.presented[::-1])
        assert not await people.close(), "one is left"
        assert (await people.turn(ann)).undo
        await people.answer(bob, lease(await people.turn(bob)), FIRST)
        assert await people.close()
        assert not (await people.turn(ann)).undo
        for token in (ann, bob):
            with pytest.raises(errors.StaleError, match="can't be taken back"):
                await people.undo(token)


@table(*[*combinations(range(8), 2)][: MAX_UNDONE + 3])
async def test_so_many_answers_can_be_taken_back_and_those_before_them_stand(table: Table) -> None:
    async with table.open("Ann") as (people, store, ann):
        turn = await people.turn(ann)
        for _ in range(MAX_UNDONE + 2):
            turn = await people.answer(ann, lease(turn), FIRST)
        for _ in range(MAX_UNDONE):
            assert turn.undo
            turn = await people.undo(ann)
        assert (turn.done, turn.undo) == (2, False)
        for _ in range(2):  # nor after another answer, which itself can be taken back
            with pytest.raises(errors.StaleError, match="can't be taken back"):
                await people.undo(ann)
            turn = await people.answer(ann, lease(turn), FIRST)
            assert (turn.done, turn.undo) == (3, True)
            turn = await people.undo(ann)
        assert len(await store.verdicts()) == 2


@table((0, 1), (2, 3))
async def test_who_was_removed_takes_nothing_back_and_answers_nothing(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, store, ann, _):
        second = await people.answer(ann, lease(await people.turn(ann)), FIRST)
        (person,) = [one for one in await store.people() if one.name == "Ann"]
        await store.put_person(person._replace(state=PersonState.REMOVED))  # by another process
        assert not (await people.turn(ann)).undo
        with pytest.raises(errors.StaleError, match="You no longer take part; your answers stay"):
            await people.undo(ann)
        with pytest.raises(errors.StaleError, match="no longer yours"):
            await people.answer(ann, lease(second), FIRST)
        assert len(await store.verdicts()) == 1


@table((0, 1), (2, 3), (1, 0), (3, 2))
async def test_nobody_is_told_of_more_answers_than_they_may_give(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, _, ann, bob):
        turn = await people.turn(ann)
        assert (turn.expected, turn.left) == (2, 4)
        turn = await people.answer(ann, lease(turn), FIRST)
        turn = await people.answer(ann, lease(turn), FIRST)
        assert (turn.done, turn.expected, turn.left) == (2, 2, 2)
        assert (await people.turn(bob)).expected == 2
        assert (await people.undo(ann)).expected == 2


@table(*RING, *RING)
async def test_a_person_who_is_asked_all_questions_is_told_their_number_from_the_first_on(
    table: Table,
) -> None:
    async with table.open("Ann", "Bob") as (people, _, ann, bob):
        turn = await people.turn(ann)
        assert turn.expected == N
        for _ in range(6):
            turn = await people.answer(ann, lease(turn), FIRST)
            assert turn.expected == N
        turn = await people.turn(bob)
        while turn.question is not None:
            assert turn.expected == N
            turn = await people.answer(bob, lease(turn), FIRST)
        assert (turn.done, turn.expected) == (N, N)


@table((0, 1), (2, 3))
async def test_what_is_skipped_goes_to_others_until_nobody_is_left(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, store, ann, bob):
        first = await people.turn(ann)
        second = await people.skip(ann, lease(first), "broken", "looks cut off")
        third = await people.skip(ann, lease(second), "broken")
        assert (third.why, third.done) == ("wait", 0)
        assert await store.counts() == Counts(pending=2)
        await people.skip(bob, lease(await people.turn(bob)), "broken")
        assert await store.counts() == Counts(pending=1, invalid=1)
        await people.answer(bob, lease(await people.turn(bob)), FIRST)
        assert await store.counts() == Counts(done=1, invalid=1)
        assert "looks cut off" in ((await store.people_calls())[0][1].reply or "")


@table((0, 1))
async def test_a_question_comes_back_when_its_holder_is_gone(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, store, ann, bob):
        turn = await people.turn(ann)
        for _ in range(3):
            table.clock.now += LEASE - 1
            await people.renew(ann, lease(turn))
        assert (await people.turn(bob)).why == "wait"
        table.clock.now += LEASE + 1
        await people.renew(ann, lease(turn))  # nobody wanted it meanwhile
        table.clock.now += LEASE + 1
        taken = lease(await people.turn(bob))
        for late in (
            people.renew(ann, lease(turn)),
            people.answer(ann, lease(turn), FIRST),
            people.skip(ann, lease(turn), ""),
        ):
            with pytest.raises(errors.StaleError, match="no longer yours"):
                await late
        await people.answer(bob, taken, FIRST)
        assert len(await store.people_calls()) == 1


@table((0, 1))
async def test_what_a_failed_commit_left_is_read_again_by_whoever_waits(table: Table) -> None:
    async def fail(*_: object) -> None:
        raise errors.StoreAwayError("the store is away")

    async with table.open("Ann") as (people, store, ann):
        turn = await people.turn(ann)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store, "settle", fail)
            with pytest.raises(errors.StoreAwayError):
                await people.answer(ann, lease(turn), FIRST)
        assert not people._assignment.matches
        await people.all_done(0.01)
        assert people._assignment.matches
        await people.answer(ann, lease(turn), FIRST)
        assert await store.counts() == Counts(done=1)


@table((0, 1), (1, 0), (0, 1), (2, 3))
async def test_nobody_is_asked_the_same_twice(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, store, ann, bob):
        assert await them.judge(people, ann, waits=False) == 2
        assert (await people.turn(ann)).why == "wait"
        assert await store.counts() == Counts(pending=2, done=2)
        await them.judge(people, bob, waits=False)
        assert await store.counts() == Counts(pending=1, done=3)


@table((0, 1), (2, 3), (4, 5), later=[(6, 7), (8, 9), (10, 11)])
async def test_the_first_round_is_asked_first(table: Table) -> None:
    async with table.open("Ann") as (people, store, ann):
        turn, rounds = await people.turn(ann), list[int]()
        while turn.question is not None:
            turn = await people.answer(ann, lease(turn), FIRST)
            rounds.append((await store.people_calls())[-1][0].round)
        assert rounds == [1, 1, 1, 2, 2, 2]


@table((0, 1), (1, 0))
async def test_nobody_has_twice_what_several_are_asked_in_one_round(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, store, ann, _):
        back = await people.answer(ann, lease(await people.turn(ann)), FIRST)
        assert (back.why, back.done) == ("wait", 1)
        await people.change(Change("remove", ("Bob",)))
        assert (await people.turn(ann)).why == "wait"
        (again,) = await people.change(Change("add", ("Bob",)))
        assert (await people.turn(ann)).why == "wait"
        await people.answer(again.link or "", lease(await people.turn(again.link or "")), FIRST)
        assert await store.counts() == Counts(done=2)


@table((0, 1), (2, 3))
async def test_what_somebody_skipped_is_theirs_again_where_nobody_else_is(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, store, ann, _):
        for _ in range(2):
            turn = await people.turn(ann)
            turn = await people.skip(ann, lease(turn), "undecided")
        assert turn.why == "wait", "Bob may come"
        await people.change(Change("remove", ("Bob",)))
        await people.answer(ann, lease(await people.turn(ann)), FIRST)
        assert (await store.counts()).done == 1


@table((0, 1), (2, 3), (4, 5), (6, 7))
async def test_what_another_process_changed_is_found_out_and_no_fault(table: Table) -> None:
    """As where one that lost its run to another is still asked for a moment: a page whose study is away
    asks again."""

    async def asked(call: Callable[[], Coroutine[None, None, Turn]]) -> Turn:
        with suppress(errors.StoreAwayError):
            return await call()
        return await call()

    async with table.open() as (before, store), table.open(shared=store) as (people, _):
        ann, bob = await them.register(before, ["Ann", "Bob"])
        old = await before.turn(ann)
        assert lease(await asked(lambda: people.turn(ann))) == lease(old)
        new = await people.answer(ann, lease(old), FIRST)
        with pytest.raises(errors.StaleError, match="answered this in another window"):
            await asked(lambda: before.answer(ann, lease(old), SECOND))
        assert await before.turn(ann) == await before.answer(ann, lease(old), FIRST) == new
        theirs = lease(await before.turn(bob))
        assert lease(await asked(lambda: people.turn(bob))) == theirs
        await before.skip(bob, theirs, "other")
        with pytest.raises(errors.StaleError, match="no longer yours"):
            await asked(lambda: people.skip(bob, theirs, "other"))
        await before.undo(ann)
        with pytest.raises(errors.StaleError, match="can't be taken back"):
            await asked(lambda: people.undo(ann))
        await people.answer(ann, lease(await people.turn(ann)), SECOND)
        assert await store.counts() == Counts(pending=3, done=1)
        assert [call.outcome for _, call in await store.people_calls()].count("ok") == 1


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO handed VALUES (1, 9, 'x', 0, 0, NULL)",
        "INSERT INTO handed VALUES (1, 0, 'x', 0, NULL, 9)",
        "INSERT INTO checks VALUES (1, 5, x'0000000001000000', 0, 0, x'', '', NULL, NULL, NULL, 0, 0)",
        "UPDATE people SET number = 7",
        "INSERT INTO checks VALUES (1, 0, x'0000000001000000', 9, 0, x'', 'x', x'0000000001000000', "
        "NULL, NULL, 0, 0)",
    ],
)
def test_a_ledger_of_people_who_are_not_there_is_damaged(tmp_path: Path, statement: str) -> None:
    @table((0, 1))
    async def story(table: Table) -> None:
        async with table.open("Ann"):
            pass
        with closing(sqlite3.connect(table.path)) as db:
            db.execute(statement)
            db.commit()
        with pytest.raises(errors.RunError, match="damaged"):
            async with table.open() as (people, _):
                await people.close()

    story(tmp_path)


@table((0, 1), open_to_all=True, later=[(1, 0)])
async def test_where_anybody_may_come_only_those_who_are_there_are_waited_for(table: Table) -> None:
    async with table.open() as (people, store):
        ann, bob = await people.join("Ann"), await people.join("Bob")
        turn = await people.answer(ann, lease(await people.turn(ann)), FIRST)
        await people.leave(ann, lease(turn))  # Bob's page was never open
        await people.turn(bob)
        await people.leave(bob, lease(await people.turn(bob)))
        await people.change(Change("remove", ("Bob",)))
        for _ in range(SKIPS):
            await people.skip(ann, lease(await people.turn(ann)), "undecided")
        assert await store.counts() == Counts(done=1, invalid=1)
        with pytest.raises(errors.UsageError, match="already"):
            await people.join("Bob")


@table((0, 1), (2, 3), (1, 0))
async def test_who_is_waited_for_is_reported_once(table: Table) -> None:
    def reported() -> list[Notice]:
        return [event for event in table.events if isinstance(event, Notice)]

    async with table.open("Ann", "Bob") as (people, _, ann, bob):
        turn = await people.turn(ann)
        assert (turn.done, turn.expected, turn.left) == (0, 2, 3), "one pair is there twice"
        turn = await people.answer(ann, lease(turn), FIRST)
        assert (turn.done, turn.expected, turn.left) == (1, 2, 2)
        assert reported() == []
        await people.answer(ann, lease(turn), FIRST)
        for _ in range(3):
            assert (await people.turn(ann)).why == "wait"
        (notice,) = reported()
        assert "may answer what is left (1 question). Waiting for Bob." in notice.text
        assert not notice.warning
        turn = await people.turn(bob)
        await people.turn(ann)
        assert len(reported()) == 1, "he has it now"
        await people.change(Change("remove", ("Bob",)))
        await people.turn(ann)
        assert reported()[1].warning
        assert "Waiting for a new judge" in reported()[1].text


@table(*((row, row + 1) for row in range(10)))
async def test_a_quota_is_kept(table: Table) -> None:
    async with table.open() as (people, _):
        (ann,) = await them.register(people, ["Ann"], 3)
        assert await them.judge(people, ann) == 3
        turn = await people.turn(ann)
        assert (turn.why, turn.done, turn.quota) == ("quota", 3, 3)
        assert people.present == 0
        back = await people.undo(ann)
        assert (back.question is not None, back.done) == (True, 2)


@table((0, 1), (2, 3))
async def test_who_is_removed_has_nothing(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, store, ann, bob):
        await people.turn(ann)
        await people.change(Change("remove", ("Ann", "ann")))
        assert await store.handed() == [], "at once"
        assert (await people.turn(ann)).why == "removed"
        await people.change(Change("forget", ("Bob",)))
        with pytest.raises(errors.UnknownPersonError):
            await people.turn(bob)
        assert [person.name for person in await store.people()] == ["Ann", "person 2"]
        (again,) = await people.change(Change("add", ("Ann",)))
        with pytest.raises(errors.UnknownPersonError):
            await people.turn(ann)
        with pytest.raises(
            errors.UsageError, match="no judge named 'Bob'; there are: Ann, person 2"
        ):
            await people.change(Change("remove", ("person 2", "Bob")))
        assert (await people.turn(again.link or "")).name == "Ann"
        assert (await people.turn(again.link or "")).question is not None


@table((0, 1))
async def test_a_forgotten_ones_name_may_be_taken_already(table: Table) -> None:
    async with table.open() as (people, store):
        await them.register(people, ["person 2", "Bob"])
        await people.change(Change("forget", ("Bob",)))
        await people.change(Change("add", ("Eve",)))
        names = [person.name for person in await store.people()]
        assert names == ["person 2", "person 2'", "Eve"]


@table((0, 1), (2, 3), (4, 5))
async def test_all_is_as_before_when_the_server_comes_again(table: Table) -> None:
    async with table.open("Ann", "Bob") as (people, _, ann, bob):
        first = await people.turn(ann)
        mine = await people.answer(ann, lease(first), FIRST._replace(seconds=0.0))
        theirs = await people.turn(bob)
    async with table.open() as (people, store):
        await store.lead("us again", 60)
        again = await people.answer(ann, lease(first), FIRST)
        assert again._replace(expected=mine.expected) == mine, "its reply was lost"
        with pytest.raises(errors.StaleError, match="another window"):
            await people.answer(ann, lease(first), SECOND)
        await people.renew(bob, lease(theirs))
        assert (await people.answer(bob, lease(theirs), FIRST)).why == "wait"
        assert texts(await people.undo(ann)) == texts(first)


@table(*RING, *((row, (row + 3) % N) for row in range(N)), repeats=0.2)
async def test_some_are_asked_again_turned_round_and_count_for_nothing(table: Table) -> None:
    async with table.open("Ann") as (people, store, ann):
        await them.judge(people, ann, waits=False)
        checks = await store.checks()
        asked = {match.id: match.items for match, _ in await store.people_calls()}
        assert len(asked) == 24
        assert 3 <= len(checks) <= 5
        for check in checks:
            assert check.repeats is not None
            assert check.items == asked[check.repeats][::-1]
            assert check.verdict is not None
        assert await store.counts() == Counts(done=24)
        assert (await people.turn(ann)).done == 24 + len(checks)
        order = [match.id for match, _ in await store.people_calls()]
        assert order.index(checks[0].repeats or 0) <= 24 - APART


@table(*RING, *((row, (row + 3) % N) for row in range(N)))
async def test_questions_whose_answer_is_known_are_mixed_in(table: Table) -> None:
    async with table.open() as (people, store):
        assert await add_known(store, [(11, 0), (10, 1), (11, 0)]) == 2
        assert await add_known(store, [(10, 1), (9, 2)]) == 1
    async with table.open("Ann") as (people, store, ann):
        await them.judge(people, ann, waits=False)
        asked = [check for check in await store.checks() if check.person is not None]
        assert len(asked) == 24 // EVERY
        assert len({check.known for check in asked}) == len(asked)
        for check in asked:
            assert check.verdict == Verdict(check.known)
        back = await people.undo(ann)
        assert (await people.answer(ann, lease(back), FIRST)).why == "wait"


@table(*RING)
async def test_answers_are_taken_back_one_by_one_also_after_a_restart(table: Table) -> None:
    async with table.open() as (_, store):
        await add_known(store, [(11, 0)])
    async with table.open("Ann") as (people, store, ann):
        turn = await people.turn(ann)
        while turn.done < EVERY:
            turn = await people.answer(ann, lease(turn), FIRST)
        table.clock.now += 1
        check = lease(turn)
        after = await people.answer(ann, check, FIRST)
        assert after.done == EVERY + 1
    async with table.open() as (people, store):
        assert (await people.answer(ann, check, FIRST)).done == EVERY + 1, "it is known"
        checks = [one for one in await store.checks() if one.person is not None]
        back = await people.undo(ann)
        assert (back.done, back.undo) == (EVERY, True)
        assert texts(back) == tuple(TEXTS[row] for row in checks[0].items)
        back = await people.undo(ann)
        assert (back.done, back.undo) == (EVERY - 1, True)
        assert [one.verdict for one in await store.checks() if one.person is not None] == [None]
        assert await store.counts() == Counts(pending=3, done=EVERY - 1)


def test_who_answers_too_fast_or_always_the_same_is_remarked_on() -> None:
    assert remarks("Ann", 40, 3.0, (0.6, 0.4)) == []
    assert remarks("Ann", 12, 0.5, (1.0, 0.0)) == [], "too few to tell"
    assert remarks("Ann", 40, None, ()) == []
    (careless,) = remarks("Ann", 8, 0.9, (0.0, 1.0), (0, 8))
    assert careless == (
        "Ann chose position 2 in all 8 answers (median 0.9 s): these answers don't depend on the "
        "texts."
    )
    assert remarks("Ann", 8, 1.6, (0.0, 1.0), (0, 8)) == [], "it may be chance"
    assert remarks("Ann", 7, 0.9, (0.0, 1.0), (0, 7)) == []
    assert remarks("Ann", 8, 0.9, (0.1, 0.9), (1, 7)) == []
    assert "in all 11 answers: these" in remarks("Ann", 11, 9.0, (1.0, 0.0), (11, 0))[0]
    fast, same = remarks("Ann", 40, 0.5, (0.1, 0.9))
    assert fast.startswith("Ann answers in 0.5 s")
    assert same.startswith("Ann put the text in position 2 first in 90% of 40 answers")


def test_people_are_asked_in_their_own_words() -> None:
    prompt = load("generic", "how urgent it is")
    about = about_of(prompt)
    assert "0 (none) to 9" in about["questions"]["direct"]
    assert "how urgent it is" in about["guidelines"]
    assert about["title"] == "how urgent it is"
    assert "instructions" not in about["guidelines"]
    without = about_of(prompt.model_copy(update={"people": ()}))
    assert without["guidelines"] == prompt.system.strip()
    assert without["questions"]["pair"] == " ".join(prompt.pair.split())


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (("t0,t1,tie",), "'t0' and 't1' are a tie"),
        (("t0,t1,t0", "t2,t1,t2", "t1,t0,t1"), "each wins once"),
        (("t0,nobody,t0",), "'nobody'"),
    ],
)
def test_known_answers_are_in_one_order(tmp_path: Path, rows: Sequence[str], why: str) -> None:
    path = tmp_path / "known.csv"
    path.write_text("\n".join(["left,right,winner", *rows]))
    with pytest.raises(errors.DataError, match=why):
        known_in(path, [f"t{row}" for row in range(N)], TEXTS)
    path.write_text("left,right,winner\nt0,t1,t1\nt1,t0,t1\n")
    assert known_in(path, [f"t{row}" for row in range(N)], TEXTS) == [(1, 0)]


RUNS: list[dict[str, Any]] = [{"each": 2, "repeats": 0.2}, {"both_orders": True}]
RUNS += [{"strategy": name} for name in ("listwise6x2", "hybrid6")]


@pytest.mark.parametrize("options", RUNS, ids=str)
def test_a_run_of_people_ends_with_their_scores(tmp_path: Path, options: dict[str, Any]) -> None:
    result = them.run(tmp_path, **options)
    assert not result.partial
    assert result.counts.done == result.counts.total
    assert tuple(result.judges) == ("people", "Ann", "Bob")
    gold = np.arange(them.N)
    theta = result.scores.ratings[result.main.column]
    assert scipy.stats.spearmanr(theta, gold).statistic > 0.6
    again = session.prepare(them.settings(tmp_path, **options), tmp_path / "runs")
    assert asyncio.run(estimate(again)).calls == 0
