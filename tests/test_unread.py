"""A judge that doesn't read the texts, and a server that cuts questions off, are noticed and stopped."""

import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import reading
from judgeq import seeds
from judgeq.judge.unread import (
    CHARACTERS_A_TOKEN,
    SMALLEST_PROMPT,
    STOP_CALLS,
    PromptTokens,
    is_cut_off,
    size_of,
)
from judgeq.rating.unread import (
    SHORT_ANSWERS,
    AnswerPatterns,
    cautions,
    log_chance_of,
    orders_of,
    signature_of,
)
from judgeq.types import Verdict
from tests.build import grouped, judged, rankings
from tests.cli import json_of, judgeq, only_run, query
from tests.mock import mock, stats

TEXTS = 40


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of short texts."""
    path = tmp_path_factory.mktemp("texts") / "texts.csv"
    rows = [f"t{i},This is text number {i}." for i in range(TEXTS)]
    path.write_text("\n".join(["id,text", *rows]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def long_texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of texts of 300 to 1,500 words."""
    path = tmp_path_factory.mktemp("texts") / "long.csv"
    rows = []
    for i in range(TEXTS):
        words = " ".join(f"word{j % 97}" for j in range(300 + 30 * i))
        rows.append(f"t{i},Text {i}: {words}")
    path.write_text("\n".join(["id,text", *rows]), encoding="utf-8")
    return path


def run_flags(texts: Path, url: str, *flags: str) -> tuple[str, ...]:
    model = ("--judge", "m", "--base-url", url, "--price", "1,10")
    return ("run", "-d", str(texts), "--feature", "length", *model, *flags)


def first_line_after_title(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return next(after for line, after in pairwise(lines) if "ranked by" in line)


# The test itself


def patterns(answers: Sequence[tuple[Sequence[int], Verdict]]) -> AnswerPatterns:
    found = AnswerPatterns()
    for presented, verdict in answers:
        found.add(presented, verdict)
    return found


def answers_until_stopped(size: int, reverse: bool = False) -> int:
    """How many answers in one order are needed until they are a problem."""
    rng = seeds.rng(0, "unread")
    found = AnswerPatterns()
    for number in range(1, 200):
        presented = rng.permutation(1000)[:size].tolist()
        order = presented[::-1] if reverse else presented
        found.add(presented, Verdict(tuple(order)))
        if found.problem is not None:
            return number
    return 0


@pytest.mark.parametrize("reverse", [False, True])
def test_answers_in_the_order_presented_are_a_problem_once_chance_cannot_explain_them(
    reverse: bool,
) -> None:
    needed = {size: answers_until_stopped(size, reverse) for size in (2, 3, 5, 10)}
    assert needed == {2: 40, 3: 40, 5: 6, 10: 3}


def test_the_same_order_of_labels_again_and_again_is_a_problem() -> None:
    rng = seeds.rng(1, "unread")
    order = [3, 0, 2, 1, 4]
    lists = [rng.permutation(50)[:5].tolist() for _ in range(20)]
    every = [(items, Verdict(tuple(items[at] for at in order))) for items in lists]
    assert patterns(every[:6]).problem is None
    assert "in one and the same order" in str(patterns(every).problem)


def test_lists_of_several_sizes_count_together() -> None:
    rng = seeds.rng(2, "unread")
    lists = [rng.permutation(50)[:size].tolist() for size in (5, 6, 5, 6, 7, 7)]
    assert patterns([(items, Verdict(tuple(items))) for items in lists]).problem is not None


def test_ties_are_no_order() -> None:
    """Tied texts have no order among them, whichever way the reply names them."""
    rng = seeds.rng(3, "unread")
    lists = [rng.permutation(50)[:6].tolist() for _ in range(100)]
    assert patterns([(items, Verdict.of([items])) for items in lists]).problem is None
    # Of halves of tied texts: 6!/(3! · 3!) = 20 orders.
    halves = [(items, Verdict.of([items[:3], items[3:]])) for items in lists]
    needed = math.ceil(math.log(1e12) / math.log(20))
    assert patterns(halves[: needed - 1]).problem is None
    assert patterns(halves[:needed]).problem is not None


def test_a_judge_that_reads_is_never_stopped() -> None:
    """Also one of pairs that takes the first text in three of four."""
    rng = seeds.rng(4, "unread")
    for size, questions, favor in (
        (2, 30_000, 0.5),
        (2, 30_000, 0.75),
        (3, 10_000, 0.0),
        (10, 2_000, 0),
    ):
        found = AnswerPatterns()
        for _ in range(questions):
            presented = rng.permutation(100)[:size].tolist()
            if size == 2:
                ranked = presented if rng.random() < favor else presented[::-1]
            else:
                ranked = sorted(presented)
            found.add(presented, Verdict(tuple(ranked)))
            assert found.problem is None


def test_later_answers_need_more_evidence() -> None:
    """A run has one beginning, and as many later streaks as questions."""
    rng = seeds.rng(5, "unread")
    for size, needed, said in (
        (2, SHORT_ANSWERS - 2, "It chose the first text in 399 of the last 400 pairs"),
        (3, SHORT_ANSWERS - 2, "It returned 399 of the last 400 lists in the order shown"),
        (5, 9, "It returned the last 9 lists in the order shown (chance: 1 in 10^"),
    ):
        lists = [rng.permutation(50)[:size].tolist() for _ in range(2 + needed)]
        found = patterns([(items, Verdict(tuple(items))) for items in lists[:1]])
        found.add(lists[1], Verdict(tuple(lists[1][::-1])))
        for presented in lists[2:-1]:
            found.add(presented, Verdict(tuple(presented)))
        assert found.problem is None
        found.add(lists[-1], Verdict(tuple(lists[-1])))
        assert said in str(found.problem)


def stopped_after(answers: Sequence[bool], size: int = 2, *, both_orders: bool = False) -> int:
    """Return after how many answers a judge is stopped that gives the order presented where one is true,
    and else the reverse; 0: never."""
    presented = tuple(range(size))
    found = AnswerPatterns(both_orders=both_orders)
    for number, as_presented in enumerate(answers, 1):
        found.add(presented, Verdict(presented if as_presented else presented[::-1]))
        if found.problem is not None:
            return number
    return 0


@pytest.mark.parametrize(("size", "both_orders"), [(2, False), (2, True), (3, False)])
def test_a_judge_that_leans_to_the_first_place_but_reads_is_not_stopped_later(
    size: int, both_orders: bool
) -> None:
    """One that takes it in 90 %, once it has taken another: by its first 40 answers alone it can't be
    told from one that doesn't read (0.9^40 = 1.5 %)."""
    rng = seeds.rng(8, "unread")
    for _ in range(20):
        answers = rng.random(2_000) < 0.9
        answers[:3] = False, True, False
        assert stopped_after(answers.tolist(), size, both_orders=both_orders) == 0
    always = [True] * 100
    assert stopped_after(always, size, both_orders=both_orders) == (80 if both_orders else 40)


def test_few_runs_of_a_judge_that_leans_are_stopped_by_its_first_answers() -> None:
    rng = seeds.rng(9, "unread")
    runs = rng.random((400, 40)) < 0.9
    stopped = sum(stopped_after(one.tolist()) > 0 for one in runs)
    assert stopped == int(runs.all(axis=1).sum()) <= 12
    both = rng.random((400, 80)) < 0.9
    assert not any(stopped_after(one.tolist(), both_orders=True) for one in both)


@pytest.mark.parametrize("both_orders", [False, True])
def test_the_table_of_the_docs_is_of_the_rule_that_stops(both_orders: bool) -> None:
    rng = seeds.rng(10, "unread")
    first = reading.first_answers(both_orders)
    stops = set()
    for share, mixed in ((1.0, False), (0.9, True), (0.01, True), (0.98, True), (0.99, True)):
        follows = rng.random(1_000) < share
        follows[:2] = [True, not mixed]
        stop = reading.stopped_after(follows, first)
        assert stop == stopped_after(follows.tolist(), both_orders=both_orders)
        stops.add(stop)
    assert {0, first} < stops


@given(st.lists(st.tuples(rankings(), st.randoms(use_true_random=False)), min_size=1, max_size=8))
def test_many_answers_are_looked_at_as_one(drawn: list[tuple[Any, Any]]) -> None:
    answers = []
    for ranking, random in drawn:
        verdict = Verdict.of(grouped(ranking))
        presented = list(verdict.items)
        random.shuffle(presented)
        answers.append((tuple(presented), verdict))
    orders = orders_of(judged(answers))
    signatures = [signature_of(presented, verdict) for presented, verdict in answers]
    assert orders.signatures.tolist() == [rank for one in signatures for rank in one]
    assert orders.log_chance.tolist() == pytest.approx([*map(log_chance_of, signatures)], abs=1e-9)
    assert orders.as_presented.tolist() == [list(one) == sorted(one) for one in signatures]
    assert orders.reversed.tolist() == [list(one) == sorted(one)[::-1] for one in signatures]


def test_what_one_judge_of_several_did_is_said_of_that_one() -> None:
    rng = seeds.rng(6, "unread")
    lists = [tuple(rng.permutation(50)[:5].tolist()) for _ in range(40)]
    answers = [
        (items, Verdict(items if at % 2 else tuple(sorted(items))))
        for at, items in enumerate(lists)
    ]
    (caution,) = cautions(judged(answers, [at % 2 for at in range(40)]), ["reader", "parrot"])
    assert caution.startswith("parrot ranked 20 of 20 lists exactly in the order presented")
    assert cautions(judged(answers, [0] * 40), ["both"], without=[0]) == []


def test_scores_and_ties_that_never_differ_are_named() -> None:
    scored = [((item,), Verdict((item,), (), 0.8 if item else 0.3)) for item in range(40)]
    (constant,) = cautions(judged(scored), ["m"])
    assert "gave 39 of 40 texts the score 0.8" in constant
    varied = [((item,), Verdict((item,), (), item % 5 / 5)) for item in range(40)]
    assert cautions(judged(varied), ["m"]) == []
    tied = [((item, item + 1), Verdict.of([(item, item + 1)])) for item in range(40)]
    (all_tied,) = cautions(judged(tied), ["m"])
    assert "called all texts tied in 40 of 40 answers" in all_tied


# How a server counts


def test_prompts_are_cut_off_where_no_tokenizer_makes_so_few_tokens() -> None:
    english = "The council met on Monday, and nobody was told of it. " * 400
    assert not is_cut_off(size_of(english), len(english) // 6)
    assert is_cut_off(size_of(english), len(english) // (CHARACTERS_A_TOKEN + 1))
    chinese = "理事会于周一召开会议" * 1000
    assert not is_cut_off(size_of(chinese), len(chinese) // 3)
    assert is_cut_off(size_of(chinese), len(chinese) // 5)
    hindi = "परिषद की बैठक सोमवार को हुई। " * 500
    assert not is_cut_off(size_of(hindi), len(hindi) // 6)


def test_rows_of_one_character_are_few_tokens() -> None:
    assert size_of("a" + " " * 10_000 + "b") == 5
    assert size_of("=" * 80 + "\n") == 4
    assert size_of("aabbccdd") == 8
    assert size_of("") == 0
    assert size_of("\ud800x") == 4
    assert size_of("哈" * 3_000) == 9
    assert size_of("哈" * 3_000 + "会议") == 15


def test_short_questions_say_nothing() -> None:
    prompts = PromptTokens()
    for size in range(100, SMALLEST_PROMPT, 50):
        prompts.add(size, 10)
    assert (prompts.calls, prompts.sentence) == (0, "")


def test_the_same_count_for_questions_of_clearly_different_size_is_a_limit() -> None:
    rng = np.random.default_rng(7)
    sizes = rng.integers(20_000, 30_000, 200).tolist()
    honest, cut = PromptTokens(), PromptTokens()
    for size in sizes:
        honest.add(size, round(size / rng.normal(4.5, 0.3)))
        cut.add(size, min(2050, size // 4))
    assert honest.calls < 3
    assert honest.sentence == ""
    assert cut.calls == 200
    assert "2,050 tokens for each of 200 questions" in cut.sentence
    alike = PromptTokens()
    for _ in range(50):
        alike.add(20_000, 5_000)  # one question, asked again
    assert alike.sentence == ""


def test_few_odd_counts_among_many_are_not_a_server_that_cuts_off() -> None:
    prompts = PromptTokens()
    for at in range(1_000):
        size = 5_000 + 10 * (at % 500)
        prompts.add(size, 100 if at % 90 == 0 else size // 4)
    assert (prompts.calls, prompts.sentence, prompts.stops) == (0, "", False)
    for at in range(240):
        prompts.add(9_000 + at, 100)
    assert prompts.calls > 240
    assert prompts.stops
    assert "too few for 252 questions" in prompts.sentence


def test_the_count_of_a_few_of_the_largest_questions_is_not_a_limit() -> None:
    prompts = PromptTokens()
    for at in range(1_000):
        prompts.add(9_000 + at, 4_000 if at % 90 == 0 else 2_500 + at)
    assert (prompts.calls, prompts.sentence, prompts.stops) == (0, "", False)


def test_a_server_that_cuts_off_only_what_is_too_long_is_noticed_among_short_questions() -> None:
    """Nearly all questions fit."""
    prompts = PromptTokens()
    for at in range(2_000):
        prompts.add(5_000 + at, 1_200 + at // 4)
    for at in range(STOP_CALLS):
        prompts.add(80_000 + 1_000 * at, 4_096)
    assert prompts.stops


# Whole runs


def test_a_judge_that_answers_in_the_order_presented_is_stopped(
    tmp_path: Path, texts: Path
) -> None:
    with mock(tmp_path, "--unread", "presented") as url:
        flags = run_flags(texts, url, "-s", "listwise10x6", "--concurrency", "1")
        stopped = judgeq(tmp_path, *flags, expect=4)
        assert "doesn't seem to read the texts" in stopped.stderr
        assert "lists in the order shown (chance: 1 in 10^" in stopped.stderr
        assert stats(url)["requests"] == 3
        # It stops again, and is paid for nothing.
        judgeq(tmp_path, "resume", expect=4)
        judgeq(tmp_path, *flags, expect=4)
        assert stats(url)["requests"] == 3
        done = judgeq(tmp_path, "resume", "--no-check-reading")
        assert stats(url)["requests"] == 24
    said = "The judge ranked 24 of 24 lists exactly in the order presented"
    assert first_line_after_title(done.stdout).startswith(said)
    assert said in " ".join(judgeq(tmp_path, "evaluate").stdout.split())
    assert said in " ".join(judgeq(tmp_path, "status").stdout.split())
    assert json_of(tmp_path, "status")["cautions"][0].startswith(said)
    assert json_of(tmp_path, *flags)["cautions"][0].startswith(said)
    report = json_of(tmp_path, "report", "--format", "md")["files"][0]
    assert said in " ".join(Path(tmp_path, report).read_text("utf-8").split())


def test_a_judge_of_pairs_that_always_takes_one_side_is_stopped(
    tmp_path: Path, texts: Path
) -> None:
    with mock(tmp_path, "--unread", "reversed") as url:
        flags = run_flags(texts, url, "-s", "pairwise9", "--concurrency", "1")
        stopped = judgeq(tmp_path, *flags, expect=4)
        assert "It chose the second text in the last 40 pairs (chance: 1 in" in stopped.stderr
        assert stats(url)["requests"] == 40


def test_one_judge_of_a_panel_is_named(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path, "--unread", "presented", "--unread-model", "parrot") as url:
        flags = run_flags(texts, url, "-s", "listwise10x9", "--judge", "parrot")
        stopped = judgeq(tmp_path, *flags, expect=4)
        assert "parrot doesn't seem to read the texts" in stopped.stderr
        done = judgeq(tmp_path, *flags, "--no-check-reading")
    assert first_line_after_title(done.stdout).startswith("parrot ranked")


def test_constant_scores_are_a_caution_in_the_first_lines(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path, "--unread", "constant") as url:
        done = judgeq(tmp_path, *run_flags(texts, url, "-s", "direct"))
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    assert lines[1].startswith(f"The judge gave {TEXTS} of {TEXTS} texts the score 0.8")


@pytest.mark.usefixtures("short_waits")
def test_batches_of_a_judge_that_does_not_read_stop_with_the_first_results(
    tmp_path: Path, texts: Path
) -> None:
    with mock(tmp_path, "--unread", "presented", "--batch-time", "0") as url:
        flags = run_flags(texts, url, "-s", "listwise10x4", "--batch")
        stopped = judgeq(tmp_path, *flags, expect=4)
        assert "doesn't seem to read the texts" in stopped.stderr
        assert stats(url)["batches"]["billed"] == 4
        judgeq(tmp_path, *flags, expect=4)
        assert stats(url)["batches"]["billed"] == 4


def test_a_server_that_cuts_questions_off_is_noticed_and_the_run_stopped(
    tmp_path: Path, long_texts: Path
) -> None:
    with mock(tmp_path, "--context", "4000") as url:
        flags = run_flags(long_texts, url, "-s", "listwise5x4", "--concurrency", "1")
        stopped = judgeq(tmp_path, *flags, expect=4)
        assert "The server cuts questions off: it counted 4,000 tokens" in stopped.stderr
        assert "OLLAMA_CONTEXT_LENGTH" in stopped.stderr
        as_json = json_of(tmp_path, *flags, expect=4)
        assert "cuts questions off" in as_json["cautions"][0]
        assert stats(url)["requests"] == STOP_CALLS
        assert "cuts questions off" in json_of(tmp_path, "status")["cautions"][0]
        judgeq(tmp_path, *flags, expect=4)
        assert stats(url)["requests"] == STOP_CALLS
        done = judgeq(tmp_path, *flags, "--no-check-reading")
        assert stats(url)["requests"] == 32
        said = "The server cuts questions off: it counted 4,000 tokens for each of 32 questions"
        assert first_line_after_title(done.stdout).startswith(said[:60])
        # Replies of the cache were paid for: they stop nothing, and the caution stays.
        again = json_of(tmp_path, *flags, "--new")
        assert (again["calls"], again["cache_hits"]) == (0, 32)
        assert said in again["cautions"][0]
    assert said in " ".join(judgeq(tmp_path, "evaluate").stdout.split())


def test_replies_to_questions_that_were_surely_cut_off_are_not_kept(
    tmp_path: Path, long_texts: Path
) -> None:
    with mock(tmp_path, "--context", "200") as url:
        flags = run_flags(long_texts, url, "-s", "listwise5x1", "--no-check-reading")
        first = json.loads(judgeq(tmp_path, *flags, "--json").stdout)
        assert (first["calls"], first["cache_hits"]) == (8, 0)
        assert (
            "too few for 8 questions" in first["cautions"][0]
            or "for each of" in first["cautions"][0]
        )
        assert json_of(tmp_path, *flags, "--new")["calls"] == 8


def test_a_server_that_reads_all_is_not_suspected(tmp_path: Path, long_texts: Path) -> None:
    with mock(tmp_path) as url:
        done = json_of(tmp_path, *run_flags(long_texts, url, "-s", "listwise5x4"))
    assert done["cautions"] == []
    sizes = query(only_run(tmp_path), "SELECT min(prompt_size), max(prompt_size) FROM calls")
    assert SMALLEST_PROMPT < sizes[0][0] < sizes[0][1]


# Why replies are unusable


def test_what_was_wrong_with_replies_is_said(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path, "--incomplete", "1") as url:
        flags = run_flags(texts, url, "-s", "listwise8x1", "--max-invalid", "1")
        failed = judgeq(tmp_path, *flags, expect=4)
    assert "Unusable replies, 10 times: each label" in failed.stderr
    assert "named more than once" in failed.stderr
    assert "named more than once" in " ".join(judgeq(tmp_path, "status").stdout.split())
    (problem,) = json_of(tmp_path, "status")["reply_problems"]
    assert problem["replies"] == 10
    table = judgeq(tmp_path, "export", "--table", "calls", "--format", "jsonl").stdout
    errors = [json.loads(line)["error"] for line in table.splitlines()]
    assert len(errors) == 10
    assert all("named more than once" in error for error in errors)


def test_why_some_questions_have_no_answer_is_said_at_the_end(tmp_path: Path, texts: Path) -> None:
    with mock(tmp_path, "--incomplete", "0.5", "--seed", "2") as url:
        flags = run_flags(texts, url, "-s", "listwise8x4", "--max-invalid", "1")
        done = judgeq(tmp_path, *flags)
    shown = " ".join(done.stdout.split())
    assert "got no usable answer" in shown
    assert "Unusable replies, " in shown
