from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from judgeq.strategies.repeats import Repeats
from judgeq.types import Matches

Question = tuple[int, tuple[int, ...]]
QUESTIONS = st.tuples(
    st.integers(0, 1), st.permutations(range(4)).map(lambda items: tuple(items[:3]))
) | st.tuples(st.integers(0, 1), st.tuples(st.integers(0, 3)))


def matches(questions: list[Question]) -> Matches:
    items = [item for _, presented in questions for item in presented]
    sizes = [len(presented) for _, presented in questions]
    judges = np.array([judge for judge, _ in questions], dtype=np.int32)
    return Matches(np.array(items, dtype=np.int32), np.cumsum([0, *sizes]), judges)


@given(st.lists(st.lists(QUESTIONS, max_size=30), max_size=4))
def test_each_question_is_numbered_by_those_before_it(rounds: list[list[Question]]) -> None:
    seen: Counter[Question] = Counter()
    repeats = Repeats()
    for questions in rounds:
        expected = []
        for question in questions:
            expected.append(seen[question])
            seen[question] += 1
        assert repeats.add(matches(questions)).tolist() == expected
    assert repeats.rounds == len(rounds)


def test_other_items_another_order_or_another_judge_is_another_question() -> None:
    repeats = Repeats()
    alone = [
        (0, (0, 1)),
        (0, (1, 0)),
        (1, (0, 1)),
        (0, (0, 1, 2)),
        (0, (0,)),
        (0, (1,)),
        (0, (0, 2)),
    ]
    assert repeats.add(matches(alone)).tolist() == [0] * len(alone)
    one_judge = matches([(0, (0, 1))])
    without = Matches(one_judge.items, one_judge.offsets)
    assert repeats.add(without).tolist() == [1]


def test_many_questions_are_not_mistaken_for_one_another() -> None:
    pairs = np.stack(np.triu_indices(1500, 1), axis=1).astype(np.int32)
    repeats = Repeats()
    found = repeats.add(Matches(pairs.reshape(-1), np.arange(len(pairs) + 1) * 2))
    assert found.max() == 0
