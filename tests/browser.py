"""A real browser for the tests of pages: Debian's chromium, driven by Playwright."""

import asyncio
import atexit
import shutil
import threading
from asyncio import events
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

PATIENCE = 60
"""Seconds that a page may take for anything, on however loaded a machine."""


def executable() -> str | None:
    return shutil.which("chromium")


@dataclass
class Seen:
    """A page, and what went on in it: errors on its console, and what it asked for."""

    page: Any
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def said(self, message: Any) -> None:
        """Keep what is an error."""
        if message.type == "error":
            self.errors.append(message.text)


class Browser:
    """A headless Chromium, one for all tests of this process: to start it takes longer than most pages.

    Playwright's sync interface leaves its event loop marked as running in this thread. It is so marked
    only while a page is open, so that other tests may run loops of their own.
    """

    def __init__(self, executable: str) -> None:
        from playwright.sync_api import sync_playwright

        self._playwright = sync_playwright().start()
        self._loop = asyncio.get_running_loop()
        self._browser = self._playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox"]
        )
        events._set_running_loop(None)

    @contextmanager
    def running(self) -> Iterator[Any]:
        """The browser, whose contexts made inside are closed in the end."""
        outer = events._get_running_loop()
        events._set_running_loop(self._loop)
        before = self._browser.contexts
        try:
            yield self._browser
        finally:
            for context in self._browser.contexts:
                if context not in before:
                    context.close()
            events._set_running_loop(outer)

    def end(self) -> None:
        events._set_running_loop(self._loop)
        self._browser.close()
        self._playwright.stop()


@cache
def _shared(executable: str) -> Browser:
    browser = Browser(executable)
    atexit.register(browser.end)
    return browser


@contextmanager
def _chromium() -> Iterator[Browser]:
    program = executable()
    assert program, "a test that opens a page is marked: @pytest.mark.browser"
    if threading.current_thread() is threading.main_thread():
        yield _shared(program)
        return
    browser = Browser(program)  # Playwright's objects are of the thread that made them
    try:
        yield browser
    finally:
        browser.end()


@contextmanager
def opened(address: str, **context: Any) -> Iterator[Seen]:
    """A page in a headless browser, for a test that is marked `browser`."""
    with _chromium() as chromium, chromium.running() as browser:
        made = browser.new_context(**context)
        made.set_default_timeout(1000 * PATIENCE)
        seen = Seen(made.new_page())
        page = seen.page
        page.on("console", seen.said)
        page.on("pageerror", lambda error: seen.errors.append(str(error)))
        page.on("request", lambda request: seen.asked.append(request.url))
        page.goto(address)
        yield seen


def violations(page: Any) -> list[str]:
    """What axe-core finds against WCAG 2.2, A and AA: each rule and the first place."""
    from axe_playwright_python.sync_playwright import Axe

    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}
    response = Axe().run(page, options=rules).response
    return [
        f"{one['id']} ({len(one['nodes'])}): {one['nodes'][0]['html'][:200]} "
        f"{one['nodes'][0]['failureSummary'][:300]}"
        for one in response["violations"]
    ]
