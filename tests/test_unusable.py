from __future__ import annotations

import pytest

from judgeq.errors import JudgeError
from judgeq.judge.judge import FIRST, LAST, SHOWN, Unusable

CUT = "the answer was cut off at the limit of output tokens."


def fed(seen: Unusable, pattern: str, problem: str = "no JSON object.") -> int:
    """How many replies (y: usable, n: not) came before it said stop."""
    for number, kind in enumerate(pattern, start=1):
        try:
            if kind == "y":
                seen.usable()
            else:
                seen.unusable(problem, "I'd rather not")
        except JudgeError:
            return number
    return 0


def test_the_first_ten_of_which_none_is_usable_stop_it() -> None:
    assert fed(Unusable(), "n" * 50) == FIRST
    assert fed(Unusable(), "n" * 9 + "y" + "n" * 30) == 0


def test_more_than_half_of_the_last_hundred_stop_it() -> None:
    assert fed(Unusable(), "yn" * 500) == 0
    assert fed(Unusable(), "y" * 1000 + "n" * 100) == 1000 + LAST // 2 + 1
    assert fed(Unusable(), "y" + "n" * 200) == LAST


@pytest.mark.parametrize(("most", "stopped"), [(0.2, 121), (0.9, 191), (1.0, 0)])
def test_the_share_can_be_set(most: float, stopped: int) -> None:
    assert fed(Unusable(most), "y" * 100 + "n" * 200) == stopped


def test_one_never_stops() -> None:
    assert fed(Unusable(1), "n" * 300) == 0


@pytest.mark.parametrize(
    ("problem", "advice"),
    [
        (CUT, "--max-output-tokens"),
        ("the model refused to answer.", "another model, or other words"),
        ("the provider's content filter cut the answer off.", "--prompt"),
        ("there is no JSON object in it.", "--structured"),
    ],
)
def test_it_says_what_the_replies_looked_like_and_what_to_do(problem: str, advice: str) -> None:
    seen = Unusable()
    for _ in range(FIRST - 1):
        seen.unusable(problem, "")
    with pytest.raises(JudgeError) as caught:
        seen.unusable(problem, "Well,\n\x1b[31mlet me think " + "x" * 1000)
    text = str(caught.value)
    assert "none of the first 10 replies could be used" in text
    assert problem in text
    assert advice in text
    assert '"Well, let me think xxx' in text
    assert "x" * SHOWN not in text
    assert "--max-invalid" in text


def test_it_names_what_is_wrong_most_often() -> None:
    seen = Unusable()
    seen.usable()
    for _ in range(LAST - 31):
        seen.unusable(CUT, "")
    for _ in range(29):
        seen.unusable("it was empty.", "")
    with pytest.raises(
        JudgeError, match=r"only 1 of the last 100 replies .* mostly \(69\): the ans"
    ):
        seen.unusable("it was empty.", "")
