"""What the commands around the people who judge print."""

from __future__ import annotations

from typing import Literal

from judgeq.ui.outputs.runs import Output


class ChangedJudge(Output):
    """Somebody as they are now; `link` is a new one, null where none was made."""

    name: str
    state: Literal["active", "paused", "removed"]
    quota: int | None
    link: str | None


class ChangedJudges(Output):
    """Those who were changed; `open`: whether the page is."""

    run: str
    open: bool
    judges: list[ChangedJudge]


class JudgeAgreement(Output):
    """The share of pairs of items ordered alike on so many questions that both answered; null without
    any."""

    share: float | None
    questions: int


class JudgeRepeats(Output):
    """Questions asked again turned round: so many answered alike, and with the same slot first; of lists
    each counts with its share of the pairs."""

    alike: float
    of: int
    same_place: float


class JudgeKnown(Output):
    """Questions whose answer is known."""

    right: float
    of: int


class ListedJudge(Output):
    """One of the people who judge a run. `seconds`: the median of an answer; `first_by_slot`: the share
    of answers that put the text of each slot first; `infit` with the range in which it is expected, null
    before anything is rated."""

    name: str
    state: Literal["active", "paused", "removed"]
    quota: int | None
    done: int
    skipped: int
    seconds: float | None
    first_by_slot: list[float]
    infit: float | None
    infit_low: float | None
    infit_high: float | None
    others: JudgeAgreement
    models: dict[str, JudgeAgreement]
    repeats: JudgeRepeats
    known: JudgeKnown


class ListedJudges(Output):
    """The people who judge a run."""

    run: str
    judges: list[ListedJudge]
