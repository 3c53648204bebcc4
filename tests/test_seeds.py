from collections.abc import Callable

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from judgeq.seeds import Stream, rng

U64 = st.integers(0, 2**64 - 1)
DRAWS: list[Callable[[np.random.Generator], object]] = [
    lambda g: g.random(),
    lambda g: g.random(7),
    lambda g: g.integers(0, 10, dtype=np.int32),  # leaves half a word in the buffer
    lambda g: g.standard_gamma(0.5, 3),
    lambda g: g.permutation(5),
]


def test_every_part_of_the_name_counts() -> None:
    names: list[tuple[str | int, ...]] = [
        *((), ("",), (0,), ("0",), ("a", "b"), ("b", "a"), ("ab",), ("a", 1), ("a1",), ("a", "1")),
        *((1, 23), (12, 3), ("a'", "b"), ("a', 'b",)),
    ]
    draws = {rng(0, *name).random() for name in names} | {rng(seed).random() for seed in (1, -1)}
    assert len(draws) == len(names) + 2


def test_draws_stay_the_same_from_version_to_version() -> None:
    """Who ran something with a seed can run it again with a later version."""
    named, stream = rng(0, "round", 1).bit_generator, Stream(7, "judge").at(3, 1).bit_generator
    assert named.random_raw(2).tolist() == [0xDA77A15F9E8DC7FE, 0xFE3492600AF61C1E]
    assert stream.random_raw(2).tolist() == [0x2AF28B51355A4D8B, 0x256D580177DD41D1]
    assert rng(0, "round", 1).random() == 0.8533879145093612
    assert rng(0, "round", 1).permutation(6).tolist() == [2, 3, 5, 4, 1, 0]


@settings(max_examples=60)
@given(a=U64, b=U64, others=st.lists(st.tuples(U64, U64, st.sampled_from(DRAWS)), max_size=4))
def test_a_stream_gives_the_same_at_a_place_whatever_was_drawn_before(
    a: int, b: int, others: list[tuple[int, int, Callable[[np.random.Generator], object]]]
) -> None:
    fresh = Stream(5, "s").at(a, b).random(6)
    stream = Stream(5, "s")
    for at, bt, draw in others:
        draw(stream.at(at, bt))
    np.testing.assert_array_equal(stream.at(a, b).random(6), fresh)
    np.testing.assert_array_equal(stream.at(a, b).random(6), fresh)
