"""Signs that a judge didn't read the texts: answers that follow the order presented, or never differ.

The order within each question is drawn at random. So whatever a judge prefers, it names the k texts of a
question in the order presented with probability 1/k!, in the reverse order with the same probability,
and in the order of labels of its last answer, too. With ties, in groups of g texts, that is ∏ g!/k!.
Answers are independent in this, since each question is shuffled by itself.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from judgeq.rating.comparisons import presented_at
from judgeq.text import count, several
from judgeq.types import Bools, Floats, Verdict, Verdicts

MIN_STREAK = 3
"""Answers in a row that are needed, whatever their chance."""
FIRST_CHANCE = 1e-12
"""A judge is stopped whose answers, from its first on, follow one pattern with less chance than this."""
LATER_CHANCE = 1e-18
"""The same of long lists in a row that begin later: there are as many such beginnings as questions.

How often a judge that reads is stopped: of its first answers at most FIRST_CHANCE for each of the three
patterns, of later ones LATER_CHANCE for each pattern and question. Over a million questions that is
3e-12 + 3e-12, about one of 160 billion runs.
"""
LONG_LIST = 5
"""So many texts make a long list. Pairs and shorter lists are given back in the order presented also by
judges that read but lean to one place, which is position bias: it is reported, and --both-orders
cancels it. So a short list is no more evidence than a pair, and a pair of both orders half as much,
since a pair and its reverse are one draw."""
SHORT_ANSWERS = 400
"""After its first answers a judge of pairs or short lists is stopped by its last so many of one size,"""
SHORT_SHARE = 0.99
"""where this share of them is the same. How often that stops judges that lean: benchmarks/reading.py."""
MIN_LIST = 3
"""A list has so many texts at least. Of two texts the order presented is the answer in half of the
cases, whoever answers: where it is more, that is position bias."""
CONSTANT_SHARE = 0.9
"""Answers are nearly constant where this share of them is the same."""
CONSTANT_ANSWERS = 10
"""Fewer answers aren't called constant."""
CONSTANT_CHANCE = 1e-9
"""Answers that name the labels in one order are reported where chance gives less than this."""
SIGNS_REPORTED = 3
"""Of more signs than this only the first are reported one by one."""
MEANING = "A judge that doesn't read answers so: read some replies before you use the scores."

Signature = tuple[int, ...]
"""For each text of a question, in the order presented, the rank that it was given, from 0."""


def signature_of(presented: Sequence[int], verdict: Verdict) -> Signature:
    """Return the rank of each item in the order presented; tied items have the same."""
    rank_of = {}
    for rank, group in enumerate(verdict.groups):
        for item in group:
            rank_of[item] = rank
    return tuple(rank_of[item] for item in presented)


def log_chance_of(signature: Signature) -> float:
    """Return the natural logarithm of the probability of one order, given its tie groups."""
    log_chance = -math.lgamma(len(signature) + 1)
    if len(set(signature)) < len(signature):
        for rank in set(signature):
            log_chance += math.lgamma(signature.count(rank) + 1)
    return log_chance


def is_as_presented(presented: Sequence[int], verdict: Verdict) -> bool:
    """Return whether items were ranked exactly in the order presented, without ties."""
    return not any(verdict.tied) and verdict.items == tuple(presented)


# While a judge is asked


class AnswerStreak(NamedTuple):
    """Answers in a row that follow one pattern. `log_chance`: the logarithm of their probability."""

    answers: int = 0
    log_chance: float = 0.0
    from_first: bool = True
    """Whether it began with the judge's first answer."""

    def extended(self, log_chance: float) -> AnswerStreak:
        """Return the streak with one more answer."""
        return self._replace(answers=self.answers + 1, log_chance=self.log_chance + log_chance)

    def followed(self, size: int, log_chance: float, both_orders: bool) -> AnswerStreak:
        """Return the streak with one more answer of this size and chance: see LONG_LIST."""
        if size >= LONG_LIST:
            return self.extended(log_chance)
        if not self.from_first:
            return self.extended(0.0)
        return self.extended(-math.log(2) / (2 if both_orders else 1))

    @property
    def is_beyond_chance(self) -> bool:
        """Return whether no judge that reads gives such answers."""
        limit = FIRST_CHANCE if self.from_first else LATER_CHANCE
        return self.answers >= MIN_STREAK and self.log_chance < math.log(limit)


class AnswerPatterns:
    """The answers of one judge, as they come: whether the last ones follow a pattern that needs no text.

    `begun`: answers of this judge came before, which aren't added. `both_orders`: each pair is asked in
    both.
    """

    def __init__(self, *, begun: bool = False, both_orders: bool = False) -> None:
        start = AnswerStreak(from_first=not begun)
        self._both_orders = both_orders
        self._as_presented = start
        self._reversed = start
        self._same_labels = start
        self._last_signature: dict[int, Signature] = {}  # by the size of the question
        self._last_size = 0
        self._short: dict[int, ShortAnswers] = {}  # by the size of the question

    def add(self, presented: Sequence[int], verdict: Verdict) -> None:
        """Take an answer in. Scores, and answers that call all texts tied, have no order."""
        if verdict.score is not None or len(presented) < 2:
            return
        signature = signature_of(presented, verdict)
        if len(set(signature)) < 2:
            return
        size = len(signature)
        log_chance = log_chance_of(signature)
        in_order = sorted(signature)
        self._last_size = size
        if size < LONG_LIST:
            self._short.setdefault(size, ShortAnswers()).add(signature)

        def after(streak: AnswerStreak, follows: bool) -> AnswerStreak:
            if not follows:
                return AnswerStreak(from_first=False)
            return streak.followed(size, log_chance, self._both_orders)

        self._as_presented = after(self._as_presented, [*signature] == in_order)
        self._reversed = after(self._reversed, [*signature] == in_order[::-1])
        last = self._last_signature.get(size)
        if last is None:
            self._same_labels = self._same_labels.extended(0.0)  # it has nothing to be like
        elif last == signature:
            self._same_labels = after(self._same_labels, True)
        else:
            self._same_labels = AnswerStreak(answers=1, from_first=False)
            self._last_signature.clear()
        self._last_signature[size] = signature

    @property
    def problem(self) -> str | None:
        """Return what the last answers have in common, a sentence without its dot.

        None if chance or a lean to one place explains it.
        """
        patterns = ("order presented", "reverse order", "labels")
        streaks = (self._as_presented, self._reversed, self._same_labels)
        for streak, pattern in zip(streaks, patterns, strict=True):
            if streak.is_beyond_chance:
                digits = math.floor(-streak.log_chance / math.log(10))
                done = _in_words(pattern, self._last_size, f"the last {count(streak.answers)}")
                return f"It {done} (chance: 1 in 10^{digits})"
        short = self._short.get(self._last_size)
        if short is None or not short.are_same:
            return None
        same, signature = short.most_frequent
        in_order = sorted(signature)
        pattern = "labels"
        if [*signature] == in_order:
            pattern = "order presented"
        elif [*signature] == in_order[::-1]:
            pattern = "reverse order"
        number = f"{count(same)} of the last {count(SHORT_ANSWERS)}"
        return f"It {_in_words(pattern, self._last_size, number)}"


class ShortAnswers:
    """The last SHORT_ANSWERS answers of one size."""

    def __init__(self) -> None:
        self._last = deque[Signature]()
        self._times = Counter[Signature]()

    def add(self, signature: Signature) -> None:
        """Take an answer in."""
        self._last.append(signature)
        self._times[signature] += 1
        if len(self._last) > SHORT_ANSWERS:
            self._times[self._last.popleft()] -= 1

    @property
    def most_frequent(self) -> tuple[int, Signature]:
        """Return the most frequent answer, and how often it is given."""
        signature, times = max(self._times.items(), key=lambda item: item[1])
        return times, signature

    @property
    def are_same(self) -> bool:
        """Return whether nearly all are the same."""
        if len(self._last) < SHORT_ANSWERS:
            return False
        return self.most_frequent[0] >= SHORT_SHARE * SHORT_ANSWERS


def _in_words(pattern: str, size: int, number: str) -> str:
    """Return what a judge did in so many of its answers to questions of a size, by their pattern."""
    if size == 2:
        slots = {"order presented": "the first text", "reverse order": "the second text"}
        return f"chose {slots.get(pattern, 'the same label')} in {number} pairs"
    orders = {"order presented": "in the order shown", "reverse order": "in the reverse order"}
    order = orders.get(pattern, "with the labels in one and the same order")
    return f"returned {number} lists {order}"


# What answers say afterwards


def is_too_many(found: int, expected: float) -> bool:
    """Return whether chance, which gives `expected`, gives `found` in less than one of 1,000 files."""
    return found > expected + 4 * math.sqrt(expected) + 3


def expected_as_presented(sizes: Sequence[int]) -> float:
    """Return how many lists of these sizes chance ranks in the order presented: the sum of 1/k!."""
    # The inverse of a factorial of hundreds is 0, and the factorial itself beyond every float.
    return sum(math.exp(-math.lgamma(size + 1)) for size in sizes)


class AnswerOrders(NamedTuple):
    """The answers that compare, as arrays of shape (verdicts,): whether each follows the order
    presented, or the reverse, and the logarithm of the chance of that. `signatures` has ranks by slot
    of `presented`."""

    as_presented: Bools
    reversed: Bools
    log_chance: Floats
    signatures: Floats


def orders_of(verdicts: Verdicts) -> AnswerOrders:
    """Return how verdicts that compare follow the order presented. All have known orders."""
    n = len(verdicts)
    starts = verdicts.offsets[:-1]
    new_group = ~verdicts.tied
    group = np.cumsum(new_group)
    rank: Floats = (group - group[starts][verdicts.of_slot]).astype(np.float64)
    signatures: Floats = np.empty(len(rank))
    signatures[presented_at(verdicts)] = rank
    step = np.diff(signatures, prepend=0.0)
    step[starts] = 0.0  # the first slot of a verdict follows none
    below = np.minimum.reduceat(step, starts) if n else np.empty(0)
    above = np.maximum.reduceat(step, starts) if n else np.empty(0)
    log_numbers = np.log(np.arange(1, verdicts.sizes.max(initial=1) + 1))
    log_factorials = np.append(0.0, np.cumsum(log_numbers))
    sizes_of_groups = np.bincount(group)[1:]
    of_verdict = verdicts.of_slot[new_group]
    log_chance: Floats = np.bincount(of_verdict, log_factorials[sizes_of_groups], minlength=n)
    log_chance = log_chance - log_factorials[verdicts.sizes]
    return AnswerOrders(below >= 0, above <= 0, log_chance, signatures)


def cautions(verdicts: Verdicts, names: Sequence[str], *, without: Sequence[int] = ()) -> list[str]:
    """Return a sentence for each sign that a judge didn't read, judge by judge.

    `names` are the judges' by number; `without` are judges that aren't looked at.
    """
    found = list[tuple[str, str]]()
    for judge in np.unique(verdicts.judges).tolist():
        if judge in without or judge >= len(names):
            continue
        of_judge = verdicts if len(names) == 1 else verdicts.where(verdicts.judges == judge)
        found += [(names[judge], sentence) for sentence in _signs(of_judge)]
    several_judges = len(names) > 1
    sentences = [
        f"{name if several_judges else 'The judge'} {sentence}" for name, sentence in found
    ]
    more = len(sentences) - SIGNS_REPORTED
    if more > 0:
        return [*sentences[:SIGNS_REPORTED], f"And {several(more, 'such sign')} of other judges."]
    return sentences


def _signs(verdicts: Verdicts) -> list[str]:
    """Return what the verdicts of one judge show, without the judge's name."""
    signs = [_constant_scores(verdicts)]
    compared = verdicts.where((verdicts.sizes > 1) & verdicts.ordered)
    if len(compared):
        orders = orders_of(compared)
        tells = orders.log_chance < -1e-9  # all texts tied: no order
        signs.append(_all_tied(int((~tells).sum()), len(compared)))
        signs.append(_in_presented_order(compared, orders) or _same_labels(compared, orders, tells))
    return [sign for sign in signs if sign]


def _constant_scores(verdicts: Verdicts) -> str:
    scores = verdicts.scores[verdicts.scored]
    if len(scores) < CONSTANT_ANSWERS:
        return ""
    values, times = np.unique(scores.round(4), return_counts=True)
    most = int(times.argmax())
    if times[most] < CONSTANT_SHARE * len(scores):
        return ""
    return (
        f"gave {count(int(times[most]))} of {several(len(scores), 'text')} the score "
        f"{values[most]:.4g}: such scores don't tell these texts apart."
    )


def _all_tied(tied: int, answers: int) -> str:
    if answers < CONSTANT_ANSWERS or tied < CONSTANT_SHARE * answers:
        return ""
    return (
        f"called all texts tied in {count(tied)} of {several(answers, 'answer')}: the order rests on "
        "the others alone."
    )


def _in_presented_order(compared: Verdicts, orders: AnswerOrders) -> str:
    """Return that more lists than chance allows were ranked as presented, or in reverse."""
    is_list = compared.sizes >= MIN_LIST
    whole = is_list & ~np.logical_or.reduceat(compared.tied, compared.offsets[:-1])
    expected = expected_as_presented(compared.sizes[is_list].tolist())
    for follows, order in (
        (orders.as_presented, "exactly in the order presented"),
        (orders.reversed, "exactly in the reverse of the order presented"),
    ):
        found = int((whole & follows).sum())
        if is_too_many(found, expected):
            lists = several(int(is_list.sum()), "list")
            return (
                f"ranked {count(found)} of {lists} {order}, where chance gives {expected:.2g}. "
                f"{MEANING}"
            )
    return ""


def _same_labels(compared: Verdicts, orders: AnswerOrders, tells: Bools) -> str:
    """Return that nearly all questions of one size were answered with the same order of labels."""
    for size in np.unique(compared.sizes[tells]).tolist():
        chosen = tells & (compared.sizes == size)
        slots = compared.offsets[:-1][chosen][:, None] + np.arange(size)
        answers, times = np.unique(orders.signatures[slots], axis=0, return_counts=True)
        most, asked = int(times.max()), int(chosen.sum())
        chance = float(np.median(orders.log_chance[chosen])) * (most - 1)
        if most < CONSTANT_SHARE * asked or chance > math.log(CONSTANT_CHANCE):
            continue
        if size == 2:
            slot = "first" if answers[times.argmax()][0] == 0 else "second"
            return f"chose the {slot} text in {count(most)} of {several(asked, 'pair')}. {MEANING}"
        return (
            f"named the labels in one and the same order in {count(most)} of {count(asked)} lists of "
            f"{size}. {MEANING}"
        )
    return ""
