"""What a person who judges did so far, as their calls and checks in the store say it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from judgeq.people.answers import lease_of
from judgeq.person import Check, Handed, Person, PersonState
from judgeq.types import Call, Match

NEVER = float("-inf")


@dataclass(slots=True)
class LastAnswer:
    """The last answer of a person."""

    at: float
    lease: str
    match: Match
    reply: str
    """As the call keeps it; "" of a check that was read from the store."""
    check: int | None = None


@dataclass(slots=True, eq=False)
class PersonProgress:
    """A person, what they have, and what they did in this run."""

    person: Person
    last_seen: float = NEVER
    """When their page last asked for something, by the monotonic clock."""
    handed: Handed | None = None
    """The question that they have."""
    seen: set[frozenset[int]] = field(default_factory=set)
    """The sets of items that they judged or skipped."""
    judged: Counter[tuple[int, frozenset[int]]] = field(default_factory=Counter)
    """How often they judged a set of items in a round."""
    skipped: Counter[int] = field(default_factory=Counter)
    """How often they skipped a job."""
    answered: list[Match] = field(default_factory=list)
    """What their answers are about, the oldest first, without checks."""
    checks: int = 0
    """Checks that they answered."""
    seconds: float = 0.0
    """The time that all answers took."""
    last: LastAnswer | None = None
    notified_end: bool = False
    """Whether their page knows that the run is over."""

    @property
    def done(self) -> int:
        """Their answers, also to checks."""
        return len(self.answered) + self.checks

    @property
    def may_be_asked(self) -> bool:
        """Whether they are active, and gave fewer answers than they are asked for."""
        quota = self.person.quota
        return self.person.state is PersonState.ACTIVE and (quota is None or self.done < quota)

    def is_new(self, match: Match) -> bool:
        """Whether they neither judged nor skipped these items."""
        return frozenset(match.items) not in self.seen

    def times_judged(self, match: Match) -> int:
        """How often they judged these items in this round."""
        return self.judged[match.round, frozenset(match.items)]

    def add_call(self, match: Match, call: Call) -> None:
        """Count an answer or a skip; an answer that was taken back is neither."""
        if call.outcome not in ("ok", "skipped"):
            return
        items = frozenset(match.items)
        self.seen.add(items)
        if call.outcome == "skipped":
            self.skipped[match.id] += 1
            return
        self.answered.append(match)
        self.judged[match.round, items] += 1
        self.seconds += call.latency
        reply = call.reply or ""
        self._set_last(LastAnswer(call.at, lease_of(reply), match, reply))

    def add_check(self, match: Match, check: Check, reply: str = "") -> None:
        """Count the answer to a check, if it has one."""
        if check.verdict is None:
            return
        self.seen.add(frozenset(check.items))
        self.checks += 1
        self.seconds += check.seconds
        self._set_last(LastAnswer(check.at, check.lease, match, reply, check.number))

    def ask_again(self, match: Match) -> None:
        """Forget that they skipped a question."""
        if self.skipped.pop(match.id, 0):
            self.seen.discard(frozenset(match.items))

    def _set_last(self, answer: LastAnswer) -> None:
        if self.last is None or answer.at >= self.last.at:
            self.last = answer
