"""The served pages in a real browser: nothing goes wrong or out, and a run that goes on is followed."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from judgeq.mock_server import MockServer
from judgeq.settings.mock_server import MockSettings
from tests.browser import Seen, opened, violations
from tests.cli import LONGEST, start
from tests.test_report_page import HOSTILE
from tests.test_serve import Served, original, served, with_texts
from tests.web import in_thread, serving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A run over hostile texts, served."""
    folder = tmp_path_factory.mktemp("served")
    rows = [
        # Ids with what can't be seen are refused.
        ("".join(filter(str.isprintable, text[:40])) + f" {number}", f"{number} {text}")
        for number, text in enumerate(HOSTILE * 9)
    ]
    with with_texts(folder, rows), served(folder) as here:
        yield here


@contextmanager
def seen_at(here: Served, path: str, **context: Any) -> Iterator[Seen]:
    """A page in a browser, in which nothing goes wrong, and which asks nobody else."""
    home = here.guard.address
    with opened(home.rstrip("/") + path, **context) as seen:
        yield seen
        assert seen.errors == []
        assert [address for address in seen.asked if not address.startswith(home)] == []
        assert seen.page.evaluate("window.hacked") is None


@pytest.mark.parametrize(
    ("scheme", "width"), [("dark", 390), pytest.param("light", 1200, marks=pytest.mark.long)]
)
def test_all_pages_are_accessible_and_fit(here: Served, scheme: str, width: int) -> None:
    size = {"width": width, "height": 800}
    with seen_at(here, "/", color_scheme=scheme, viewport=size) as seen:
        for path in ("/", here.run(), "/nothing"):
            seen.page.goto(here.guard.address.rstrip("/") + path)
            assert violations(seen.page) == []
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width
        seen.errors[:] = [error for error in seen.errors if "404 (Not Found)" not in error]


def test_the_link_with_the_token_lets_in(here: Served) -> None:
    with served(here.folder, token="of-a-test") as guarded:
        with opened(guarded.guard.address) as seen:
            page = seen.page
            page.get_by_role("heading", name="All runs").wait_for()
            assert page.url == guarded.guard.address_shown
            page.get_by_role("link", name=original(here.folder).name).click()
            page.wait_for_selector("#table tbody tr")  # by the report's own script
            assert page.locator("figure svg").count() > 3
            assert page.evaluate("getComputedStyle(document.body).margin") == "0px"
            page.get_by_role("link", name="All runs").click()
            page.get_by_role("heading", name="All runs").wait_for()
            page.go_back()
            page.wait_for_selector("#table tbody tr")
            another = page.context.new_page()
            another.goto(guarded.guard.address_shown + "#token=of-somebody-else")
            another.get_by_role("heading", name="All runs").wait_for()
            assert violations(page) == []
            assert [error for error in seen.errors if "401" not in error] == []
            assert page.evaluate("document.cookie + window.hacked") == "undefined"
        with opened(guarded.guard.address_shown) as other:
            other.page.get_by_role("heading", name="A token is needed").wait_for()
        with opened(guarded.guard.address, java_script_enabled=False) as other:
            assert "need JavaScript" in other.page.locator("noscript").inner_text()


ATTACK = """<!doctype html><title>waiting</title><script>
const tried = {};
const of = (name, promise) => promise
  .then((way) => { tried[name] = way; }, () => { tried[name] = "refused"; });
const loaded = (name, tag, key) => of(name, new Promise((resolve, reject) => {
  const element = document.createElement(tag);
  element.onload = () => resolve("loaded");
  element.onerror = () => reject();
  element[key] = HOME + (tag === "script" ? "/assets/live.js" : "/");
  document.head.append(element);
}));
Promise.all([
  of("read", fetch(HOME + "/").then((answer) => answer.text())),
  of("seen", fetch(HOME + "/", {mode: "no-cors"}).then((answer) => answer.type)),
  of("posted", fetch(HOME + "/", {method: "POST", body: "x"}).then((answer) => answer.text())),
  of("status", fetch(HOME + RUN + "/status").then((answer) => answer.text())),
  loaded("script", "script", "src"),
  loaded("image", "img", "src"),
]).then(() => { document.title = JSON.stringify(tried); });
</script>"""


def test_a_page_of_another_site_learns_nothing(here: Served) -> None:
    home = here.guard.address.rstrip("/")
    page = ATTACK.replace("HOME", f'"{home}"').replace("RUN", f'"{here.run()}"')

    async def attack(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    with serving(attack) as url:
        for site in (url, url.replace("127.0.0.1", "localhost")):  # of the same site, and another
            with opened(site) as seen:
                seen.page.wait_for_function("document.title !== 'waiting'")
                assert set(json.loads(seen.page.title()).values()) == {"refused"}


class Gate:
    """Lets a server answer some questions, and the others when it is opened."""

    def __init__(self, free: int) -> None:
        self._free = free
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    async def wait(self, _: float) -> None:
        self._free -= 1
        if self._free < 0:
            await asyncio.to_thread(self._open.wait, LONGEST)


@asynccontextmanager
async def gated(gate: Gate) -> AsyncIterator[str]:
    """The base URL of a mock server whose answers wait at a gate."""
    server = MockServer(MockSettings(latency=1.0), sleep=gate.wait)
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        gate.open()
        await runner.cleanup()


def test_a_run_that_goes_on_is_followed_to_its_end(tmp_path: Path) -> None:
    gate = Gate(30)
    with in_thread(gated(gate)) as url, served(tmp_path) as here:
        model = ("--judge", "m", "--base-url", url, "--price", "1,1")
        process = start(
            tmp_path, "run", "-d", "demo", "-s", "listwise10x2", *model, "-q", "--concurrency", "4"
        )
        with seen_at(here, "/") as seen:
            page = seen.page
            while not page.get_by_role("cell", name="running").count():
                assert process.poll() is None
                page.reload()
            page.locator("td a").click()
            page.get_by_text("30 of 48 done").wait_for()  # it came by itself
            assert page.get_by_text("$0.0").first.is_visible()
            assert violations(page) == []
            gate.open()
            page.wait_for_selector("#table tbody tr")  # the report, once nobody works on it
        assert process.wait(LONGEST) == 0
        out, err = process.communicate()
        assert (out, err) == ("", "")
