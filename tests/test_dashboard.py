import re
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from judgeq.events import (
    CallEnded,
    CallStarted,
    Event,
    JobEnded,
    JobStarted,
    Notice,
    Placed,
    RoundRated,
    RoundStarted,
    RunStarted,
    Stopping,
)
from judgeq.types import Counts, JobState, Totals, Usage
from judgeq.ui.dashboard import Dashboard, Face, PlainLines, Quiet, choose, choose_in_python
from judgeq.ui.progress import Progress
from tests.fakes import Clock

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
EVIL = "[red]m[/red]\x1b[31;5mA\x1b[0m\x1b[2J\x1b[9;9H\x1b]0;owned\x07"
EVIL += "\x9b1mB\r\x08\u202eC\u2066\x00D"


class Screen(StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


class Fragile(Screen):
    """A terminal that is closed at some time."""

    gone = False

    def write(self, text: str) -> int:
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def terminal(width: int = 100, height: int = 40, file: StringIO | None = None) -> Console:
    how: dict[str, Any] = {"force_terminal": True, "width": width, "height": height}
    return Console(file=file or Screen(), **how, _environ={})


def log() -> Console:
    return Console(file=StringIO(), _environ={})


def written(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def picture(face: Dashboard, width: int = 100, height: int = 40) -> str:
    """The picture as its terminal shows it, without styles."""
    face._console.size = (width, height)
    sheet = terminal(width, height)
    sheet.print(face.picture())
    return ESCAPES.sub("", written(sheet))


def call(cost: float | None = 0.01, outcome: str = "ok") -> CallEnded:
    return CallEnded(outcome, Usage(1000, 200, 300, 100), cost, 0.5)


def job(state: JobState = JobState.DONE, cost: float | None = 0.01) -> list[Event]:
    return [JobStarted(1), CallStarted(), call(cost), JobEnded(1, state)]


def a_run(word: str = "word", jobs: int = 40) -> list[Event]:
    """The middle of the second of three rounds; `word` stands wherever strangers' words may."""
    ends = [Placed(f"{word}{n}", f"{word} {word * 50}", 1500.4 + n) for n in range(5)]
    return [
        RunStarted(f"r-{word}", 100, 3, f"judge {word}"),
        RoundStarted(1, Counts(pending=50)),
        *(event for _ in range(48) for event in job()),
        *job(JobState.FAILED),
        *job(JobState.INVALID),
        RoundRated(1, None, ends, ends),
        RoundStarted(2, Counts(pending=50)),
        *(event for _ in range(jobs) for event in job()),
        RoundRated(2, 0.93, ends, ends),
        RoundStarted(3, Counts(pending=50)),
        *job(),
        JobStarted(2),
        CallStarted(),
    ]


def shown(*events: Event, face: Dashboard | None = None) -> Dashboard:
    face = face or Dashboard(terminal(), clock=Clock())
    for event in events:
        face(event)
    return face


def test_the_picture_tells_what_matters() -> None:
    clock = Clock()
    face = Dashboard(terminal(), clock=clock)
    shown(*a_run(), face=face)
    clock.now += 65
    text = picture(face)
    assert text.startswith("judgeq · r-word · judge word\n")
    assert re.search(r"round 3/3 +[━╸╺]+ +1/50 +2 %", text)
    assert re.search(r"run +[━╸╺]+ +89/150 +59 %", text)
    for part in (
        "89 done · 1 failed · 1 invalid",
        "1 in flight",
        "$0.91 so far · about $1.50 in all",
        "1 min 05 s so far · 42 s left",
        "91,000 in · 18,200 cached · 27,300 out",
        "rank correlation with round 1: 0.93",
        "highest    1500  word0  word",
        "1504  word4  word",
    ):
        assert part in text
    assert "by Elo for now; the final scores are fitted at the end" in text
    assert len(text.splitlines()) <= 24


@pytest.mark.parametrize(
    ("costs", "text"),
    [
        ([None, None], "cost unknown (2 calls)"),
        ([0.5, None], "≥ $0.50 so far (cost of 1 call unknown)"),
        ([0.0, 0.0], "$0 so far · about $0 in all"),
    ],
)
def test_an_unknown_price_is_never_nothing(costs: list[float | None], text: str) -> None:
    face = shown(
        RunStarted("r", 9, 1, "j"),
        RoundStarted(1, Counts(pending=4)),
        *(event for cost in costs for event in job(cost=cost)),
    )
    assert text in picture(face)


def test_stopping_says_how_many_calls_are_out() -> None:
    face = shown(*a_run(), JobStarted(3), CallStarted(), JobStarted(4), Stopping())
    line = "stopping: letting 2 calls finish (Ctrl-C again to stop now)"
    assert line in picture(face).splitlines()
    assert " left" not in picture(face)
    shown(call(), call(outcome="timeout"), face=face)
    assert "stopped" in picture(face).splitlines()


@pytest.mark.parametrize("width", [16, 80, 300])
@pytest.mark.parametrize("word", ["日本語テキスト", EVIL])
def test_the_picture_is_as_wide_as_any_terminal(width: int, word: str) -> None:
    face = shown(*a_run(word), Stopping())
    lines = picture(face, width).splitlines()
    assert max(map(cell_len, lines)) <= min(width, 100)
    assert lines[0].startswith("judgeq")
    assert any(line.startswith("stopping"[:width]) for line in lines)


def test_no_stranger_steers_the_terminal() -> None:
    tame, evil = Dashboard(terminal(), clock=Clock()), Dashboard(terminal(), clock=Clock())
    for face, word in ((tame, "[red]m[/red]AB CD"), (evil, EVIL)):
        with face:
            shown(*a_run(word), Notice(word, warning=True), Notice(word), face=face)
            face.draw()
    tame_text, evil_text = written(tame._console), written(evil._console)
    assert set(ESCAPES.findall(evil_text)) == set(ESCAPES.findall(tame_text))
    assert not set(ESCAPES.sub("", evil_text)) & set("\x1b\x9b\x07\x08\x00\u202e\u2066")
    assert "[red]m[/red]A" in evil_text


def broken(error: str) -> CallEnded:
    return CallEnded("server_error", Usage(), 0.0, 0.5, error=error)


def test_why_calls_fail_is_shown_while_no_answer_comes_between_them() -> None:
    begun: list[Event] = [RunStarted("r", 100, 3, "m"), RoundStarted(1, Counts(pending=50))]
    line = "1 call in a row without an answer, the last: the server answered 500: [red]no[/red] ch"
    error = "the server answered 500: [red]no[/red] \x1b[2Jcheese"
    face = shown(*begun, CallStarted(), broken(error))
    assert line in " ".join(picture(face, 140).split())
    console, clock = log(), Clock()
    lines = PlainLines(console, clock=clock)
    for event in (*begun, CallStarted(), broken(error)):
        lines(event)
    clock.now += 5
    lines.draw()
    assert line in " ".join(written(console).split())
    shown(CallStarted(), call(), face=face)
    assert "without an answer" not in picture(face, 140)
    shown(*[broken(error)] * 2, face=face)  # now and then a call fails
    assert "without an answer" not in picture(face, 140)
    shown(broken("another"), face=face)
    assert "3 calls in a row without an answer, the last: another" in picture(face, 140)


@pytest.mark.parametrize("kind", [Dashboard, PlainLines, Quiet])
def test_a_terminal_that_goes_away_does_not_stop_the_run(kind: Callable[[Console], Face]) -> None:
    screen = Fragile()
    with kind(terminal(file=screen)) as face:
        for event in [*a_run(), Notice("x", warning=True)]:
            face(event)
        screen.gone = True
        face.draw()
        face(Notice("y", warning=True))
        face(Stopping())
        face.draw()


def test_plain_lines_tell_the_run() -> None:
    console, clock = log(), Clock()
    with PlainLines(console, clock=clock) as face:
        for event in a_run(EVIL):
            face(event)
        clock.now += 30
        face(Notice(EVIL, warning=True))
        face.draw()
        face(Stopping())
        face(Stopping())
    lines = written(console).splitlines()
    name = "[red]m[/red]AB CD"
    assert lines == [
        f"judgeq · r-{name} · judge {name} · 100 items, 3 rounds · new run",
        "round 1/3 rated · 48 done · 1 failed · 1 invalid",
        "round 2/3 rated · 40 done · rank correlation with round 1: 0.93",
        f"warning: {name}",
        "round 3/3 · 1/50 jobs · 1 failed · 1 invalid · 3.0 calls/s · $0.91 so far"
        " · about $1.50 in all · 19 s left",
        "stopping: letting 1 call finish",
        "round 3/3 · 1/50 jobs · 1 failed · 1 invalid · 3.0 calls/s · $0.91 so far"
        " · about $1.50 in all",
    ]


def test_quiet_shows_only_warnings() -> None:
    console = log()
    with Quiet(console) as face:
        for event in [*a_run(), Notice("By the way."), Notice(f"Oh {EVIL}", warning=True)]:
            face(event)
        face.draw()
    assert written(console) == "warning: Oh [red]m[/red]AB CD\n"


def test_choose() -> None:
    dumb = Console(file=Screen(), force_terminal=True, _environ={"TERM": "dumb"})
    notebook = type("OutStream", (StringIO,), {"__module__": "ipykernel.iostream"})()
    for face, kind in (
        (choose(terminal(), quiet=True), Quiet),
        (choose(terminal(), quiet=False), Dashboard),
        (choose(log(), quiet=False), PlainLines),
        (choose(dumb, quiet=False), PlainLines),
        (choose_in_python(Screen(), None), Dashboard),
        (choose_in_python(StringIO(), None), Quiet),
        (choose_in_python(notebook, None), PlainLines),
    ):
        assert type(face) is kind


PENDING, _, DONE, INVALID, FAILED = JobState


def started(*planned: Counts, rounds: int = 3, totals: Totals | None = None) -> RunStarted:
    return RunStarted("r1", 100, rounds, "sim", planned, totals or Totals())


def folded(*events: Event, now: float = 0.0) -> Progress:
    progress = Progress()
    for event in events:
        progress.fold(event, now)
    return progress


def finish(progress: Progress, n: int, now: float, state: JobState = DONE) -> None:
    for event in job(state) * n:
        progress.fold(event, now)


def test_rounds_add_up() -> None:
    progress = folded(started(), RoundStarted(1, Counts(pending=10)))
    for state in (*[DONE] * 7, INVALID, FAILED, PENDING):
        finish(progress, 1, 1.0, state)
    assert progress.ended == 9
    assert progress.of_run == Counts(pending=1, done=7, invalid=1, failed=1)
    progress.fold(RoundStarted(2, Counts(pending=8)), 1.0)
    finish(progress, 3, 2.0)
    assert progress.of_round(2) == Counts(pending=5, done=3)
    assert progress.of_run.done == 10
    assert progress.expected == 10 + 8 + 8  # the third round as large as the second


def test_rounds_of_earlier_sessions_count_once_and_are_no_pace() -> None:
    """The runner goes through the rounds from the first, also when only the last has work left."""
    earlier = Counts(done=10), Counts(pending=3, running=1, done=5)
    progress = folded(started(*earlier))
    assert (progress.of_run.done, progress.of_run.left) == (15, 4)
    progress.fold(RoundStarted(1, Counts(done=10)), 1.0)
    assert progress.left == 4 + 10  # and a third round, the size of this one
    progress.fold(RoundRated(1, None, [], []), 1.0)
    progress.fold(RoundStarted(2, Counts(pending=4, done=5)), 1.0)
    finish(progress, 2, 21.0)
    assert progress.of_run == Counts(pending=2, done=17)
    assert progress.time_left(21.0) == pytest.approx(progress.left * 20 / 2)


def test_calls_go_on_from_those_of_earlier_sessions() -> None:
    totals = Totals(calls=7, retries=2, usage=Usage(700, 70, 30, 10), cost=0.5, unpriced=1)
    progress = folded(started(Counts(pending=5, done=5), totals=totals), now=100.0)
    for event in (call(), call(0.0, "timeout"), call(0.0, "unusable")):
        progress.fold(event, 101.0)
    progress.fold(call()._replace(cached=True), 101.0)
    assert (progress.calls, progress.retries, progress.unusable) == (10, 3, 1)
    assert (progress.cache_hits, progress.unpriced) == (1, 1)
    assert (progress.input, progress.cached, progress.output) == (3700, 670, 930)
    assert progress.cost == pytest.approx(0.51)
    # What earlier sessions asked is no pace of this one's.
    assert progress.call_rate(104.0) == pytest.approx(3 / 4)


def test_replies_without_usage_are_counted_and_not_taken_for_no_tokens() -> None:
    unknown, known = CallEnded("ok", Usage(), None, 0.1), CallEnded("ok", Usage(1), None, 0.1)
    lost, free = CallEnded("timeout", Usage(), None, 0.1), CallEnded("ok", Usage(), 0.0, 0.1)
    progress = folded(started(), unknown, known, lost, free, unknown._replace(outcome="unusable"))
    assert (progress.unpriced, progress.uncounted) == (4, 2)
    assert progress.projected_cost() is None


def test_a_log_reports_an_outage_once() -> None:
    console, clock = log(), Clock()
    lines = PlainLines(console, clock=clock)
    for event in (RunStarted("r", 100, 3, "m"), RoundStarted(1, Counts(pending=50))):
        lines(event)
    for _ in range(20):
        lines(CallStarted())
        lines(broken("no connection"))
        clock.now += 6
        lines.draw()
    assert written(console).count("no connection") == 1
    lines(CallStarted())
    lines(call())
    clock.now += 6
    lines.draw()
    assert written(console).rstrip().endswith("so far")
