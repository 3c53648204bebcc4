"""A real browser for the tests of pages: Debian's chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest


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


@contextmanager
def opened(address: str, **context: Any) -> Iterator[Seen]:
    """A page in a headless browser. Skips the test where there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium: `apt-get install chromium` lets pages be tested")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            seen = Seen(browser.new_context(**context).new_page())
            page = seen.page
            page.on("console", seen.said)
            page.on("pageerror", lambda error: seen.errors.append(str(error)))
            page.on("request", lambda request: seen.asked.append(request.url))
            page.goto(address)
            yield seen
        finally:
            browser.close()


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
