"""The page on which people judge, in a real browser."""

from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest

from judgeq.engine import session
from judgeq.people.people import People
from judgeq.web.annotate import annotating
from tests import people as engine
from tests.browser import opened, violations
from tests.cli import LONGEST, query
from tests.people import PROMPT, Study, asking
from tests.people import register as register_people
from tests.test_report import PAGE_TEXTS as HOSTILE
from tests.web import in_thread

pytestmark = pytest.mark.browser
READY = "#question:not([hidden]):not([aria-busy])"


@contextmanager
def judging(
    study: Study, token: str | None = None, error: str = "-", **context: Any
) -> Iterator[Any]:
    """The page of Anna, or of who has this token, in which nothing goes wrong but this error, and which
    asks nobody else."""
    with in_thread(study.served()) as at:
        link = at.link(study.anna if token is None else token)
        with opened(link, **context) as seen:
            yield seen.page
        assert [one for one in seen.errors if error not in one] == []
        assert [url for url in seen.asked if not url.startswith(at.address_shown)] == []


def question(page: Any, kind: str, text: str) -> None:
    """Wait until a question of this kind is shown that has this text, and may be answered."""
    page.locator(f"{READY} [data-kind={kind}]").get_by_text(text, exact=True).wait_for()


def until(page: Any, holds: Callable[[], bool]) -> None:
    """Wait for something that the page makes happen elsewhere."""
    for _ in range(1_000):
        if holds():
            return
        page.wait_for_timeout(10)
    pytest.fail("it didn't happen")


def said(page: Any, title: str) -> None:
    """Wait until there is no question, with this title."""
    page.get_by_role("heading", name=title, exact=True).wait_for()


def finished(page: Any, study: Study, *kept: dict[str, Any]) -> None:
    """Wait until nothing is left to answer; these answers are kept."""
    said(page, "All done, thank you")
    assert study.kept() == [*kept]


def test_all_kinds_are_answered_by_keyboard_alone(tmp_path: Path) -> None:
    study = asking(tmp_path, "pair", "pair", "list", "direct")
    with judging(study) as page:
        question(page, "pair", "right 0")
        page.keyboard.press("2")
        question(page, "pair", "left 1")
        page.keyboard.press("=")
        question(page, "list", "gamma 2")
        page.keyboard.type("314")
        page.keyboard.press("Enter")
        question(page, "direct", "one 3")
        page.keyboard.press("7")
        pairs = ({"winner": "B"}, {"winner": "tie"})
        finished(page, study, *pairs, {"ranking": [*"CADB"]}, {"score": 7 / 9})


def order(page: Any) -> list[str]:
    return [text.inner_text() for text in page.locator(".ranking .text").all()]


@pytest.mark.long
def test_a_list_is_ranked_by_touch_and_scrolls_along(tmp_path: Path) -> None:
    study = asking(tmp_path, "list", texts={"list": tuple(f"{name} " * 40 for name in "abcdefgh")})
    size = {"width": 390, "height": 700}
    with judging(study, viewport=size, has_touch=True, is_mobile=True) as page:
        page.locator(READY).wait_for()
        touch = page.context.new_cdp_session(page)

        def finger(kind: str, *at: float) -> None:
            points = [{"x": at[0], "y": at[1]}] if at else []
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

        page.evaluate("scrollTo(0, 0)")
        box = page.get_by_role("button", name="Text 1, 1st of 8").bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        finger("touchStart", x, y)
        finger("touchMove", x, y + 20)
        bottom = page.locator("#bar").bounding_box()["y"]
        finger("touchMove", x, bottom - 5)
        page.locator(".ranking li:last-child[data-index='0']").wait_for()
        finger("touchEnd")
        assert page.evaluate("scrollY") > 300
        # Elsewhere a finger scrolls, and moves nothing.
        before = order(page)
        finger("touchStart", 150, 300)
        finger("touchMove", 150, 500)
        finger("touchEnd")
        assert order(page) == before
        page.get_by_role("button", name="Move Text 2 down").tap()
        page.get_by_role("button", name="Send this order").tap()
        finished(page, study, {"ranking": [*"CBDEFGHA"]})


def test_answers_are_taken_back_and_given_again(tmp_path: Path) -> None:
    study = asking(tmp_path, "list", "pair")
    with judging(study) as page:
        question(page, "list", "alpha 0")
        assert page.get_by_role("button", name="Undo").is_disabled()
        page.keyboard.press("n")
        page.get_by_label("Whoever runs the study reads it").fill("odd")
        page.keyboard.press("Control+Enter")
        page.keyboard.type("4321")
        page.keyboard.press("Enter")
        question(page, "pair", "left 1")
        page.keyboard.press("u")
        question(page, "list", "alpha 0")
        assert order(page) == ["delta 0", "gamma 0", "beta 0", "alpha 0"]
        page.get_by_role("button", name="Move Text 1 up").click()
        page.keyboard.press("Tab")
        page.get_by_role("button", name="Send this order").click()
        question(page, "pair", "left 1")
        assert page.get_by_role("button", name="Note", exact=True).is_visible()
        page.keyboard.press("1")
        finished(page, study, {"ranking": [*"DCAB"], "note": "odd"}, {"winner": "A"})


def test_questions_are_skipped_with_a_reason(tmp_path: Path) -> None:
    study = asking(tmp_path, "pair", "pair", "pair")
    with judging(study) as page:
        question(page, "pair", "left 0")
        page.keyboard.press("s")
        page.keyboard.press("Escape")
        page.keyboard.press("s")
        page.keyboard.press("1")
        question(page, "pair", "left 1")
        page.get_by_role("button", name="Skip").click()
        page.get_by_label("Details (optional)").fill("1 of the texts is mine")
        page.get_by_role("button", name="I know too much about it").click()
        question(page, "pair", "left 2")
        page.keyboard.press("1")
        known = {"skipped": "known", "note": "1 of the texts is mine"}
        finished(page, study, {"skipped": "undecided"}, known, {"winner": "A"})


def test_a_pause_gives_the_question_back_and_keeps_what_was_done(tmp_path: Path) -> None:
    study = asking(tmp_path, "list")
    with judging(study) as page:
        question(page, "list", "alpha 0")
        page.keyboard.press("4")
        page.keyboard.press("p")
        said(page, "Paused")
        assert violations(page) == []
        until(page, lambda: not study.is_asked)
        page.keyboard.press("1")
        page.keyboard.press("p")
        question(page, "list", "alpha 0")
        assert order(page)[0] == "delta 0"
        page.keyboard.type("12")
        page.keyboard.press("Enter")
        finished(page, study, {"ranking": [*"DABC"]})


@pytest.mark.long
def test_only_the_time_in_which_somebody_reads_counts(tmp_path: Path) -> None:
    study = asking(tmp_path, "pair", "pair", "pair")
    with judging(study) as plain:
        page = with_clock(plain)

        def answer() -> None:
            study.ahead += 3600.0  # no answer takes longer than it was out by the server's clock
            page.keyboard.press("1")

        question(page, "pair", "left 0")
        page.clock.fast_forward(30_000)
        page.mouse.move(5, 5)
        page.clock.fast_forward(20_000)
        answer()
        shown(page, "left 1")
        page.clock.fast_forward(600_000)  # two minutes of which count
        answer()
        shown(page, "left 2")
        page.keyboard.press("p")
        said(page, "Paused")
        page.clock.fast_forward(60_000)
        page.keyboard.press("p")
        shown(page, "left 2")
        page.clock.fast_forward(25_000)
        answer()
        said(page, "All done, thank you")
        minutes = page.locator("#time").inner_text()
    times = [
        float(seconds) for (seconds,) in query(tmp_path, "SELECT latency FROM calls ORDER BY at")
    ]
    assert times == [pytest.approx(50, abs=3), pytest.approx(120, abs=3), pytest.approx(25, abs=3)]
    assert minutes == "3 min"


def shown(page: Any, text: str) -> None:
    """As `question`, where the page's own clock stands still."""
    page.get_by_text(text, exact=True).wait_for()
    page.clock.run_for(400)
    question(page, "pair", text)


def with_clock(plain: Any) -> Any:
    """The page in another window, whose clock a test sets."""
    page = plain.context.new_page()
    page.clock.install()
    page.goto(plain.url)
    plain.close()
    return page


@pytest.mark.long
def test_a_page_that_is_left_open_gives_its_question_back(tmp_path: Path) -> None:
    study = asking(tmp_path, "pair")
    with judging(study) as plain:
        page = with_clock(plain)
        question(page, "pair", "left 0")
        with page.expect_request("**/api/renew"):
            page.clock.run_for(60_000)
        page.clock.fast_forward(16 * 60_000)
        said(page, "Paused")
        until(page, lambda: not study.is_asked)


class Wire:
    """What becomes of a page's calls of a name: they go `on`, until `does` is something else. The page
    is loaded again: what one that is open asks for at once may pass Chromium's interception."""

    def __init__(self, page: Any, name: str) -> None:
        self.does: Callable[[Any], None] = self.on
        page.route(f"**/api/{name}", self._becomes)
        page.reload()

    def _becomes(self, route: Any) -> None:
        self.does(route)

    @staticmethod
    def on(route: Any) -> None:
        route.continue_()

    @staticmethod
    def cut(route: Any) -> None:
        route.abort()


def test_an_answer_whose_reply_is_lost_is_sent_again_and_counts_once(tmp_path: Path) -> None:
    study = asking(tmp_path, "pair", "pair")
    with judging(study, error="ERR_FAILED") as page:
        wire, lost = Wire(page, "answer"), list[str]()
        question(page, "pair", "left 0")

        def lose(route: Any) -> None:
            lost.append(route.fetch().text())
            route.abort()

        wire.does = lose
        page.keyboard.press("1")
        page.get_by_text("Your answer is kept here").first.wait_for()
        wire.does = wire.on
        page.locator("#link-button").dispatch_event("click")  # if it isn't sent again just now
        question(page, "pair", "left 1")
        assert len(lost) > 0
        assert not page.get_by_text("Your answer is kept here").first.is_visible()
    assert study.kept() == [{"winner": "A"}]


def test_anybody_takes_part_under_a_name_where_it_is_open_to_all(tmp_path: Path) -> None:
    study = asking(tmp_path, "pair", open_to_all=True)
    with judging(study, "", "400 (Bad Request)") as page:
        page.get_by_label("Your name in this study").fill("Anna")
        assert violations(page) == []
        page.keyboard.press("Enter")
        page.get_by_text("There is a judge named 'Anna' already").wait_for()
        page.get_by_label("Your name in this study").fill("Zoë")
        page.keyboard.press("Enter")
        question(page, "pair", "left 0")
        assert page.url.partition("#")[2] not in ("", study.anna)
        page.reload()
        question(page, "pair", "left 0")
        page.keyboard.press("1")
        finished(page, study, {"winner": "A"})


@pytest.mark.parametrize(
    ("token", "title"), [("", "A link is needed"), ("nobody", "This link doesn't work")]
)
def test_who_has_no_link_is_told_what_is_needed(tmp_path: Path, token: str, title: str) -> None:
    study = asking(tmp_path, "pair")
    with judging(study, token, "401 (Unauthorized)") as page:
        said(page, title)
        assert violations(page) == []
        assert page.locator("header").is_hidden()


def test_a_run_is_judged_on_the_page_to_its_end(tmp_path: Path) -> None:
    links = Queue[str]()

    @asynccontextmanager
    async def served(people: People) -> AsyncIterator[None]:
        async with annotating(people, "127.0.0.1", 0) as at:
            (token,) = await register_people(people, ["Ann"])
            links.put(at.link(token))
            yield

    def judged() -> int:
        with opened(links.get(timeout=LONGEST)) as seen:
            page = seen.page
            page.get_by_role("dialog", name="Guidelines").wait_for()
            page.keyboard.press("Escape")
            over = page.get_by_role("heading", name="All done, thank you")
            ready = page.locator(READY)
            count = 0
            while True:
                over.or_(ready).wait_for()
                if over.is_visible():
                    assert seen.errors == []
                    return count
                texts = order(page)
                for text in sorted(texts, key=lambda text: -engine.number(text)):
                    page.keyboard.press(str(texts.index(text) + 1))
                page.keyboard.press("Enter")
                count += 1
                page.locator("#count").get_by_text(f"{count} of", exact=False).wait_for()

    settings = engine.settings(tmp_path, texts=6, strategy="listwise3x2")
    prepared = session.prepare(settings, tmp_path / "runs")
    with ThreadPoolExecutor(1) as pool:
        count = pool.submit(judged)
        result = session.execute(prepared, lambda _: None, page=served)
        assert count.result() == 4
    assert not result.partial
    for verdicts in result.history.asked:  # the numbers are the rows
        for ranked in np.split(verdicts.items, verdicts.offsets[1:-1]):
            assert list(ranked) == sorted(ranked, reverse=True)


@pytest.mark.parametrize("kind", ["pair", "list", "direct"])
def test_hostile_texts_are_shown_as_they_are_and_do_nothing(tmp_path: Path, kind: str) -> None:
    texts = HOSTILE[:2] if kind == "pair" else HOSTILE[2:3] if kind == "direct" else HOSTILE
    study = asking(tmp_path, kind, texts={kind: texts})
    words = {"title": HOSTILE[0], kind: HOSTILE[1], "feature": HOSTILE[2]}
    study.prompt = PROMPT.model_copy(update=words)
    with judging(study, viewport={"width": 390, "height": 800}) as page:
        page.locator(READY).wait_for()
        shown = page.locator("#texts .text").all()
        assert [text.text_content() for text in shown] == [f"{text} 0" for text in texts]
        assert page.locator("#asked").text_content() == " ".join(HOSTILE[1].split())
        assert page.locator("#texts script, #texts img, #asked img").count() == 0
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize(
    ("scheme", "width", "height"),
    [("dark", 390, 844), pytest.param("light", 320, 400, marks=pytest.mark.long)],
)
def test_all_kinds_are_accessible_and_fit(
    tmp_path: Path, scheme: str, width: int, height: int
) -> None:
    words = "A sentence that somebody wrote, and that is judged. " * 30
    texts: Any = {"pair": (words, "short"), "list": (words, "b", "c"), "direct": (words,)}
    study = asking(tmp_path, "pair", "list", "direct", texts=texts, quota=60)
    size = {"width": width, "height": height}
    with judging(study, color_scheme=scheme, viewport=size, reduced_motion="reduce") as page:
        for kind, keys in (("pair", "1"), ("list", "123"), ("direct", "")):
            page.locator(f"{READY} [data-kind={kind}]").wait_for()
            assert page.evaluate("document.activeElement.id") == "asked"
            assert violations(page) == []
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            sizes = page.evaluate(
                "[...document.querySelectorAll('button')].map((one) => one.getBoundingClientRect())"
                ".filter((box) => box.width).map((box) => Math.min(box.width, box.height))"
            )
            assert min(sizes) >= 44
            for key in ("s", "n", "?") if kind == "pair" else ():
                page.keyboard.press(key)
                page.locator("dialog[open]").wait_for()
                assert violations(page) == []
                page.keyboard.press("Escape")
            page.keyboard.type(keys)
            if kind == "list":
                page.keyboard.press("Enter")
