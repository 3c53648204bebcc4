"""While a judge is asked: does it read the texts, and does the server show it all of them?

Some servers cut a prompt off that is longer than their context, and answer 200 (Ollama's default). What
they count as `prompt_tokens` gives that away: far fewer tokens than any tokenizer makes of the texts, or
the same number for questions of clearly different size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from judgeq.errors import JudgeError
from judgeq.rating.unread import AnswerPatterns
from judgeq.text import count, several
from judgeq.types import Match, Usage, Verdict

SMALLEST_PROMPT = 4_000
"""Characters. Of smaller questions nothing is concluded: no server's context is so short."""
CHARACTERS_A_TOKEN = 12
"""No tokenizer makes fewer tokens of prose: English has 4 to 5 characters a token, Indic scripts with
their own tokenizers 5. (Of Chinese, Japanese and Korean it has 1 to 3, and a character counts as 3.)"""
SIZES_DIFFER = 1.1
"""The largest of some questions is clearly larger than the smallest by this factor."""
FIRST_IDEOGRAPH = 0x2E80
"""Characters from here on take three bytes or more, and are a token or two: CJK, Hangul, emoji."""
LONGEST_REPEAT = 3
"""Of a character that is repeated (blanks, dashes) only so many count: tokenizers have tokens for rows
of them."""
STOP_CALLS = 10
"""A run is stopped after so many calls whose prompt was cut off."""
CUT_OFF_SHARE = 0.2
"""Nothing is concluded where fewer of the questions were cut off, among those that are as large: a
server does it with all that are too long. Odd counts now and then aren't that."""
BAND = 1_000
"""Characters. How many questions are as large is counted in bands of this width."""
REPORTED_CALLS = 3
"""So many calls with the same count of tokens are reported; one where the count is far too low."""
REMEDY = (
    "Give the server a longer context (Ollama: OLLAMA_CONTEXT_LENGTH) or take smaller lists, and begin "
    "again with --new --no-cache."
)


def size_of(text: str) -> int:
    """Return the characters of a text that bound its tokens from below: see CHARACTERS_A_TOKEN."""
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    same = codes[1:] == codes[:-1]
    repeated = same[LONGEST_REPEAT - 1 :].copy()
    for shift in range(1, LONGEST_REPEAT):
        repeated &= same[LONGEST_REPEAT - 1 - shift : len(same) - shift]
    counts = np.ones(len(codes), dtype=np.bool_)
    counts[LONGEST_REPEAT:] = ~repeated
    wide = counts & (codes >= FIRST_IDEOGRAPH)
    return int(counts.sum()) + 2 * int(wide.sum())


class PromptTokens:
    """What a server counted as tokens of prompts, by the size of their texts in characters."""

    def __init__(self) -> None:
        self._calls_of_band = Counter[int]()  # by their size
        self._too_few = 0  # calls for which far fewer tokens were counted than the texts have
        self._smallest_too_few = 0  # the characters of one of them at least
        self._too_few_example = (0, 0)  # tokens and characters of one of them
        self._most_tokens = 0  # of any call
        self._calls_at_most = 0  # with just so many tokens; and their sizes:
        self._smallest = 0
        self._largest = 0

    def add(
        self,
        size: int,
        tokens: int,
        *,
        calls: int = 1,
        largest: int | None = None,
        too_few: int | None = None,
    ) -> None:
        """Take calls in that had as many tokens: one of this size, or several of this to `largest`, in
        one BAND, for `too_few` of which that is not enough."""
        if size < SMALLEST_PROMPT or tokens <= 0:
            return
        largest = size if largest is None else largest
        if too_few is None:
            too_few = calls * is_cut_off(size, tokens)
        self._calls_of_band[size // BAND] += calls
        if too_few:
            smallest = size // BAND * BAND
            self._smallest_too_few = min(self._smallest_too_few or smallest, smallest)
            self._too_few += too_few
            self._too_few_example = (tokens, largest)
        if tokens > self._most_tokens:
            self._most_tokens = tokens
            self._calls_at_most = 0
            self._smallest = size
            self._largest = largest
        if tokens == self._most_tokens:
            self._calls_at_most += calls
            self._smallest = min(self._smallest, size)
            self._largest = max(self._largest, largest)

    def _is_usual(self, calls: int, smallest: int) -> bool:
        """Return whether calls are CUT_OFF_SHARE of all from a size on: what one cutting server does."""
        if not calls:
            return False
        first = smallest // BAND
        asked = sum(many for band, many in self._calls_of_band.items() if band >= first)
        return calls >= CUT_OFF_SHARE * asked

    @property
    def too_few(self) -> int:
        """Return for how many calls far fewer tokens were counted than the texts have, 0 where that is
        unusual."""
        return self._too_few if self._is_usual(self._too_few, self._smallest_too_few) else 0

    @property
    def at_limit(self) -> int:
        """Return how many calls had the highest count of all, for texts of clearly different size, 0
        where that is unusual.

        A tokenizer gives the highest count to one question, or to several that are alike.
        """
        differ = self._largest > SIZES_DIFFER * self._smallest
        usual = differ and self._is_usual(self._calls_at_most, self._smallest)
        return self._calls_at_most if usual else 0

    @property
    def calls(self) -> int:
        """Return how many calls give away that their prompt was cut off."""
        return max(self.too_few, self.at_limit)

    @property
    def stops(self) -> bool:
        """Return whether a run is to be stopped."""
        return max(self._too_few, self._calls_at_most) >= STOP_CALLS and self.calls >= STOP_CALLS

    @property
    def sentence(self) -> str:
        """Return what was seen, "" where that is nothing."""
        if self.at_limit >= REPORTED_CALLS:
            return (
                "The server cuts questions off: it counted "
                f"{count(self._most_tokens)} tokens for each of "
                f"{several(self.at_limit, 'question')} of {count(self._smallest)} to "
                f"{count(self._largest)} characters. The judge saw a part of the texts only. {REMEDY}"
            )
        if self.too_few:
            tokens, size = self._too_few_example
            return (
                f"The server cuts questions off: it counted {count(tokens)} tokens for "
                f"{count(size)} characters, and too few for {several(self.too_few, 'question')}. The "
                f"judge saw a part of the texts only. {REMEDY}"
            )
        return ""


def is_cut_off(size: int, tokens: int) -> bool:
    """Return whether so few tokens can't be all of texts of this size."""
    return size >= SMALLEST_PROMPT and 0 < tokens * CHARACTERS_A_TOKEN < size


def tokens_read(usage: Usage) -> int:
    """Return the tokens of a prompt, those that were cached among them."""
    return usage.input + usage.cached


class ReadingCheck:
    """Whether one judge reads what it is asked, by all that is known of it; `stops`: or else no more is
    paid for."""

    def __init__(
        self, name: str = "the judge", *, stops: bool = False, both_orders: bool = False
    ) -> None:
        self.name = name
        self.stops = stops
        self._both_orders = both_orders
        self.answers = AnswerPatterns(both_orders=both_orders)
        self.prompts = PromptTokens()
        self._problem: str | None = None

    def add_usage(self, size: int, usage: Usage) -> None:
        """Take in the tokens of a call about texts of this size."""
        if self.stops:
            self.prompts.add(size, tokens_read(usage))

    def add_answer(self, match: Match, verdict: Verdict) -> None:
        """Take in the verdict of a reply that was paid for."""
        if self.stops:
            self.answers.add(match.items, verdict)
            self._problem = self._problem or self.answers.problem

    def recall(self, answers: Iterable[tuple[Sequence[int], Verdict]], *, begun: bool) -> None:
        """Begin with earlier answers, each with the items as presented; `begun`: there were more."""
        self.answers = AnswerPatterns(begun=begun, both_orders=self._both_orders)
        for presented, verdict in answers:
            self.answers.add(presented, verdict)
        self._problem = self.answers.problem

    def error(self) -> JudgeError | None:
        """Return why nothing more is to be sent to this judge, or None."""
        if not self.stops:
            return None
        go_on = "`--no-check-reading` continues anyway."
        if self.prompts.stops:
            return JudgeError(f"{self.name}: {self.prompts.sentence} {go_on}")
        if self._problem is None:
            return None
        return JudgeError(
            f"{self.name} doesn't seem to read the texts. {self._problem}. Scores made of such answers "
            "mean nothing. Read some replies (`judgeq export --table calls --replies`), and try "
            f"another model or prompt (`--prompt`). {go_on}"
        )
