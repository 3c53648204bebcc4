from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from io import StringIO

import pytest
from rich.cells import cell_len
from rich.console import Console

from judgeq.events import (
    BatchesOpen,
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
from judgeq.types import Batch, Counts, JobState, Totals, Usage
from judgeq.ui.dashboard import Dashboard, choose
from judgeq.ui.lines import Face, PlainLines, Quiet

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
EVIL = (
    "[red]m[/red]\x1b[31;5mA\x1b[0m\x1b[2J\x1b[9;9H\x1b]0;owned\x07\x9b1mB\r\x08\u202eC\u2066\x00D"
)


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Screen(StringIO):
    """A file that says it is a terminal, and counts how often it was written to."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.writes += 1
        return super().write(text)


class Fragile(Screen):
    """A terminal that is closed at some time."""

    gone = False

    def write(self, text: str) -> int:
        if self.gone:
            raise OSError(5, "Input/output error")
        return super().write(text)


def terminal(width: int = 100, height: int = 40, file: StringIO | None = None) -> Console:
    return Console(
        file=file or Screen(), force_terminal=True, width=width, height=height, _environ={}
    )


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
        "1 in flight · 0 retries · 0 cache hits · 0 unusable replies",
        "$0.91 so far · about $1.50 in all",
        "1 min 05 s so far · 42 s left",
        "91,000 in · 18,200 cached · 27,300 out (9,100 reasoning)",
        "rank correlation with round 1: 0.93",
        "1504 word4",
        "1500 word0",
    ):
        assert part in text
    assert "by Elo for now; the final scores are fitted at the end" in text
    assert len(text.splitlines()) <= 24


def test_wide_and_tall_it_has_100_columns_and_ten_of_each_end() -> None:
    ends = [Placed(f"i{n}", f"text {n}", 2000.0 - n) for n in range(10)]
    lowest = [Placed(f"i{n}", f"text {n}", 2000.0 - n) for n in range(90, 100)]
    started: list[Event] = [RunStarted("r", 100, 1, "j"), RoundStarted(1, Counts(pending=5))]
    face = shown(*started, RoundRated(1, None, ends, lowest))
    lines = picture(face, 200, 50).splitlines()
    assert max(map(cell_len, lines)) == 100
    rows = [line.split()[-4:] for line in lines if "text" in line]
    assert [row[1] for row in rows] == [f"i{n}" for n in (*range(10), *range(90, 100))]
    few = [line for line in picture(face, 80, 24).splitlines() if "text" in line]
    assert few[0].startswith("highest")
    assert few[len(few) // 2].startswith("lowest")
    assert few[-1].endswith("text 99")
    direct = shown(*started, RoundRated(1, None, ends[:1], ends[:1], rating="direct"))
    assert "2000.00 i0" in picture(direct)
    assert "Elo" not in picture(direct)


def test_a_picture_before_any_event() -> None:
    assert picture(Dashboard(terminal())) == "judgeq · starting\n"
    with Dashboard(terminal()) as face:
        face.draw()
    assert "judgeq" in written(face._console)


def test_a_run_that_has_no_round_yet() -> None:
    face = shown(RunStarted("r", 9, 3, "j"))
    assert "round" not in picture(face)
    assert "nothing spent yet" in picture(face)


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


def test_after_a_resume_the_cost_goes_on_from_what_was_spent() -> None:
    counts, totals = Counts(pending=5, done=5), Totals(calls=5, cost=0.1)
    face = shown(RunStarted("r", 9, 1, "j", [counts], totals), RoundStarted(1, counts), *job())
    assert "$0.11 so far · about $0.15 in all" in picture(face)


def test_stopping_says_how_many_calls_are_out() -> None:
    face = shown(*a_run(), JobStarted(3), CallStarted(), JobStarted(4), Stopping())
    line = "stopping: letting 2 calls finish (Ctrl-C again to stop now)"
    assert picture(face).splitlines()[-1] == line
    assert " left" not in picture(face)
    shown(call(), call(outcome="timeout"), face=face)
    assert picture(face).splitlines()[-1] == "stopped"


@pytest.mark.parametrize("width", [16, 40, 60, 80, 200, 300])
@pytest.mark.parametrize("height", [5, 10, 24, 100])
@pytest.mark.parametrize("word", ["word", "日本語テキスト", EVIL])
def test_the_picture_fits_any_terminal(width: int, height: int, word: str) -> None:
    face = shown(*a_run(word), Stopping())
    lines = picture(face, width, height).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert len(lines) <= height
    assert lines[0].startswith("judgeq")
    assert lines[-1].startswith("stopping"[:width])


def test_a_resize_between_two_draws() -> None:
    with shown(*a_run(), face=Dashboard(terminal(200, 50))) as face:
        for size in ((200, 50), (40, 10), (300, 12), (16, 5)):
            face._console.size = size
            face.draw()


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


def test_events_are_folded_and_nothing_is_drawn() -> None:
    screen = Screen()
    with Dashboard(terminal(file=screen)) as face:
        before = screen.writes
        shown(*a_run(), Notice("x"), Stopping(), face=face)
        assert screen.writes == before
        face.draw()
        assert screen.writes == before + 1


def broken(error: str) -> CallEnded:
    return CallEnded("server_error", Usage(), 0.0, 0.5, error=error)


def test_why_calls_fail_is_shown_while_no_answer_comes_between_them() -> None:
    begun: list[Event] = [RunStarted("r", 100, 3, "m"), RoundStarted(1, Counts(pending=50))]
    line = (
        "1 call in a row without an answer, the last: the server answered 500: [red]no[/red] cheese"
    )
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


def test_notices_stand_above_the_picture_and_the_last_picture_stays() -> None:
    console = terminal()
    with shown(*a_run(), face=Dashboard(console)) as face:
        face(Notice("It is late.", warning=True))
        face.draw()
        face(Notice("It is done."))
        face(JobEnded(2, JobState.DONE))
    text = written(console)
    assert "\x1b[33mwarning: It is late." in text
    assert text.index("It is done.") < text.rindex("90 done")
    assert text.count("It is late.") == 1
    assert text.endswith("\n\x1b[?25h")


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


def run_drawing(
    face: Face, clock: Clock, monkeypatch: pytest.MonkeyPatch, *, seconds: float
) -> list[float]:
    """Run `draw_forever` on the clock, thousands of events in every pause; returns the pauses."""
    pauses: list[float] = []
    end = clock.now + seconds

    async def sleep(pause: float) -> None:
        pauses.append(pause)
        for event in job() * 500:
            face(event)
        clock.now += pause
        if clock.now >= end:
            raise asyncio.CancelledError

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(face.draw_forever())
    return pauses


def test_it_draws_ten_times_a_second_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, screen = Clock(), Screen()
    face = shown(*a_run(), face=Dashboard(terminal(file=screen), clock=clock, interval=0.001))
    with face:
        before = screen.writes
        run_drawing(face, clock, monkeypatch, seconds=10)
        assert screen.writes - before <= 101


@pytest.mark.parametrize(
    ("cost", "pause"),
    [(0.001, 0.25), (0.02, 1.0), (3.0, 5.0)],
)
def test_slow_drawing_draws_seldomer(
    monkeypatch: pytest.MonkeyPatch, cost: float, pause: float
) -> None:
    clock = Clock()

    class Slow(Dashboard):
        def draw(self) -> None:
            clock.now += cost

    face = Slow(terminal(), clock=clock)
    pauses = run_drawing(face, clock, monkeypatch, seconds=60)
    assert pauses[-1] == pytest.approx(pause, rel=0.02)


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
        "round 3/3 · 1/50 jobs · 1 failed · 1 invalid · 0.0 calls/s · $0.91 so far"
        " · about $1.50 in all · 19 s left",
        "stopping: letting 1 call finish",
        "round 3/3 · 1/50 jobs · 1 failed · 1 invalid · 0.0 calls/s · $0.91 so far"
        " · about $1.50 in all",
    ]


def test_plain_lines_of_a_resumed_run() -> None:
    console = log()
    counts = Counts(pending=1200, running=3, done=5000, invalid=1, failed=2)
    PlainLines(console)(RunStarted("r", 1000, 24, "j", [counts]))
    assert "resumed: 5,000 jobs done, 2 failed, 1 invalid, 1,203 left\n" in written(console)


def test_plain_lines_have_no_codes_even_where_colour_is_forced() -> None:
    console = Console(file=StringIO(), force_terminal=True, color_system="truecolor", _environ={})
    with PlainLines(console) as face:
        for event in [*a_run(EVIL), Notice(EVIL, warning=True), Stopping()]:
            face(event)
    assert "\x1b" not in written(console)
    assert not set(written(console)) & set("\x9b\x07\x08\r\u202e")


def test_plain_lines_keep_their_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    console, clock = log(), Clock()
    face = PlainLines(console, clock=clock, every=5)
    for event in a_run():
        face(event)
    run_drawing(face, clock, monkeypatch, seconds=61)
    lines = [line for line in written(console).splitlines() if line.startswith("round 3/3 ·")]
    assert len(lines) == 12


def test_plain_lines_go_on_while_nothing_moves() -> None:
    console, clock = log(), Clock()
    face = PlainLines(console, clock=clock, every=5)
    face.draw()
    assert written(console) == ""  # nothing to tell before the run has begun
    for event in a_run():
        face(event)
    before = written(console).count("\n")
    for _ in range(40):
        clock.now += 0.5
        face.draw()
    assert written(console).count("\n") == before + 4


def test_plain_lines_say_nothing_more_of_a_finished_run() -> None:
    console = log()
    with PlainLines(console) as face:
        for event in [*a_run(), RoundRated(3, 0.99, [], [])]:
            face(event)
    assert written(console).splitlines()[-1].startswith("round 3/3 rated")


def test_quiet_shows_only_warnings() -> None:
    console = log()
    with Quiet(console) as face:
        for event in [*a_run(), Notice("By the way."), Notice(f"Oh {EVIL}", warning=True)]:
            face(event)
        face.draw()
    assert written(console) == "warning: Oh [red]m[/red]AB CD\n"


def test_choose() -> None:
    assert isinstance(choose(terminal(), quiet=True), Quiet)
    assert isinstance(choose(terminal(), quiet=False), Dashboard)
    assert isinstance(choose(log(), quiet=False), PlainLines)
    dumb = Console(file=Screen(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(choose(dumb, quiet=False), PlainLines)
    coloured_file = Console(file=StringIO(), _environ={"FORCE_COLOR": "1"})
    assert isinstance(choose(coloured_file, quiet=False), PlainLines)


def test_plain_lines_say_how_batches_stand_when_that_changes() -> None:
    console, clock = log(), Clock()
    sent = Batch(
        "jq1", 0, "openai", "http://h/v1", "schema", 0.0, 48, 1.0, 1.0, status="validating"
    )
    with PlainLines(console, clock=clock, every=5) as face:
        face(RunStarted("r", 100, 2, "j"))
        face(RoundStarted(1, Counts(pending=48)))
        for batch in (sent, sent, sent._replace(status="in_progress", done=20)):
            face(BatchesOpen((batch,), 300.0))
            for _ in range(60):
                clock.now += 5.0
                face.draw()
        face(RoundRated(1, None, (), ()))
    lines = [line for line in written(console).splitlines() if "batch" in line]
    assert [line.partition("batch out ")[2].partition(", next")[0] for line in lines] == [
        "(validating), 0 of 48 answered",
        "(in_progress), 20 of 48 answered",
    ]
    assert "next look in 5 min" in lines[0]
    assert " left" not in lines[0]
