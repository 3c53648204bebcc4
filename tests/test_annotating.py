"""The server of the page on which people judge: what it takes, from whom, and what it says otherwise."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from judgeq.errors import RunError, StoreAwayError, UsageError
from judgeq.people.people import People
from judgeq.web import annotate as server
from judgeq.web.guard import Entrance, Rates, neighbourhood
from tests.fakes import Clock
from tests.people import PROMPT, Study, asking
from tests.test_serve import SAFE
from tests.web import Answer, answer_of, in_thread

JSON = "application/json"


class Reply(Answer):
    @property
    def content(self) -> Any:
        return json.loads(self.text)


@dataclass
class Site:
    """A server that listens, and whom it asks."""

    entrance: Entrance
    study: Study

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str | None
    ) -> Reply:
        return Reply(**vars(answer_of(self.entrance.port, path, method, body, **headers)))

    def call(
        self,
        name: str,
        token: str | None = "Anna",
        /,
        at: str = "",
        forwarded: str | None = None,
        **body: Any,
    ) -> Reply:
        """A call as the page makes it, with the token of somebody, or another; `forwarded` for an
        address, by a reverse proxy."""
        token = None if token is None else self.study.tokens.get(token, token)
        headers = {"Content_Type": JSON, "X_Forwarded_For": forwarded}
        headers["Authorization"] = None if token is None else f"Bearer {token}"
        return self.ask(f"{at}/api/{name}", "POST", json.dumps(body), **headers)


@contextmanager
def site(study: Study, **how: Any) -> Iterator[Site]:
    with in_thread(study.served(**how)) as entrance:
        yield Site(entrance, study)


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Site]:
    with site(asking(tmp_path, "pair", "list", "direct")) as here:
        yield here


def test_questions_are_answered_one_after_the_other(here: Site) -> None:
    about = here.call("about").content
    assert (about["title"], about["questions"]["pair"]) == (PROMPT.title, PROMPT.pair)
    assert (about["ties"], about["open_to_all"]) == (True, False)
    first = here.call("turn").content
    assert first["question"]["kind"] == "pair"
    assert first["question"]["texts"] == ["left 0", "right 0"]
    named = {"question": first["question"]["id"]}
    second = here.call("answer", **named, ranking=[1, 0], seconds=2.5, note="so\0 so").content
    assert (second["done"], second["undo"]) == (1, True)
    assert here.study.kept() == [{"winner": "B", "note": "so so"}]
    again = here.call("undo").content
    assert again["question"]["texts"] == ["left 0", "right 0"]
    named = {"question": again["question"]["id"]}
    third = here.call("skip", **named, reason="undecided", note="hm").content
    assert here.study.kept() == [{"skipped": "undecided", "note": "hm"}]
    named = {"question": third["question"]["id"]}
    assert here.call("renew", **named).content == {}
    assert here.call("leave", **named).content == {}
    assert here.call("renew", **named).status == 409


def test_the_page_and_its_files_hold_nothing_of_the_run(here: Site) -> None:
    page = here.ask("/")
    assert page.status == 200
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    for name in server.ASSETS:
        answer = here.ask(f"/assets/{name}")
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith(("text/css", "text/javascript"))
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
    for answer in (here.ask("/"), here.ask("/x"), here.call("turn"), here.call("turn", "nobody")):
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; ")
        assert {name: answer.headers[name] for name in SAFE} == SAFE
        assert not {"Access-Control-Allow-Origin", "Set-Cookie"} & {*answer.headers}


@pytest.mark.parametrize(
    "body",
    [
        *("", "{", "[]", '"x"', "[" * 60_000, "{}", '{"question": 7}'),
        *('{"question": "Q", "more": 1}', '{"question": "Q", "tied": 1}'),
        *('{"question": "Q", "ranking": [1.5]}', '{"question": "Q", "ranking": [-1, 0]}'),
        *('{"question": "Q", "score": 1.01}', '{"question": "Q", "score": NaN}'),
        *('{"question": "Q", "seconds": -1}', '{"question": "Q", "seconds": Infinity}'),
        json.dumps({"question": "Q", "note": "x" * 2_001}),
        '{"question": "Q", "ranking": [0, 0]}',  # refused by People
    ],
)
def test_what_cannot_be_an_answer_is_refused(here: Site, body: str) -> None:
    question = here.call("turn").content["question"]["id"]
    headers = {"Authorization": f"Bearer {here.study.anna}", "Content_Type": JSON}
    answer = here.ask("/api/answer", "POST", body.replace("Q", question), **headers)
    assert answer.status == 400
    assert isinstance(answer.content["error"], str)
    assert here.study.kept() == []
    assert here.call("turn").content["question"]["id"] == question


def test_what_is_refused_says_why(here: Site) -> None:
    question = here.call("turn").content["question"]["id"]
    for answer, status in (
        (here.call("skip", question=question, reason="<script>"), 400),
        (here.call("join", None, name="Zoë"), 403),
        (here.call("answer", question="0-77", ranking=[0, 1]), 409),
        (here.call("answer", question="x" * (server.LARGEST + 1)), 413),
        (here.ask("/api/turn"), 405),
        (here.ask("/assets/../x"), 404),
    ):
        assert answer.status == status
        assert isinstance(answer.content["error"], str)


def test_a_store_that_is_away_is_waited_for_and_other_errors_say_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Any] = [StoreAwayError("postgresql://secret"), RunError, KeyError]

    async def fail(people: People, token: str) -> None:
        error = errors.pop(0)
        raise error if isinstance(error, Exception) else error(f"/home/secret of {token}")

    monkeypatch.setattr(People, "turn", fail)
    with site(asking(tmp_path, "pair")) as here:
        away = here.call("turn")
        assert (away.status, away.headers["Retry-After"]) == (503, str(server.AGAIN))
        for _ in range(2):
            answer = here.call("turn")
            assert answer.status == 500
            assert "Tell whoever runs it" in answer.content["error"]
            assert answer.headers["Server"] == "judgeq"
    assert "secret" not in away.text + answer.text
    logged = capfd.readouterr().err
    assert "judgeq annotate: /home/secret of (token)\n" in logged
    assert "KeyError: '/home/secret of (token)'" in logged
    assert here.study.anna not in logged


@pytest.mark.parametrize(
    "given", [None, "nobody", "", "x" * 300, "ännä".encode().decode("latin-1")]
)
@pytest.mark.parametrize("name", ["about", "turn", "undo"])
def test_without_a_known_token_nothing_is_said(here: Site, given: str | None, name: str) -> None:
    answer = here.call(name, given)
    assert answer.status == 401
    assert "link" in answer.content["error"]


def test_a_page_of_another_site_changes_nothing(here: Site) -> None:
    good = {"Authorization": f"Bearer {here.study.anna}", "Content_Type": JSON}
    port = here.entrance.port
    for wrong, status in (
        ({"Sec_Fetch_Site": "cross-site"}, 403),
        ({"Sec_Fetch_Site": "same-site"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": f"http://127.0.0.1:{port + 1}"}, 403),
        ({"Content_Type": "text/plain"}, 415),
        ({"Content_Type": "application/x-www-form-urlencoded"}, 415),
        ({"Content_Type": None}, 415),
        ({"Host": "evil.example"}, 421),
        ({"Host": f"evil.example:{port}"}, 421),
        ({"Host": "evil.example", "X_Forwarded_Host": f"127.0.0.1:{port}"}, 421),
    ):
        assert here.ask("/api/turn", "POST", "{}", **good | wrong).status == status
    assert not here.study.is_asked
    own = {"Origin": f"http://127.0.0.1:{port}", "Sec_Fetch_Site": "same-origin"}
    assert here.ask("/api/turn", "POST", "{}", **good | own).status == 200
    assert here.ask("/api/turn", "POST", "{}", **good | {"Origin": own["Origin"]}).status == 200
    evil = good | {"Origin": "https://evil.example"}
    assert here.ask("/api/turn", "OPTIONS", **evil).status == 405
    # A link in a mail leads here; a frame or a script of another site doesn't.
    led = {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    assert here.ask("/", **led, Sec_Fetch_Dest="document").status == 200
    assert here.ask("/", **led, Sec_Fetch_Dest="iframe").status == 403


def test_tokens_are_in_no_request_line_and_no_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with site(asking(tmp_path, "pair")) as here:
        link = urlsplit(here.entrance.link("anna"))
        assert (link.path, link.query, link.fragment) == ("/", "", "anna")
        here.call("turn")
        here.call("turn", "nobody")
        here.call("answer", question="x")
    assert capfd.readouterr() == ("", "")


def test_who_asks_too_often_is_to_wait(tmp_path: Path) -> None:
    clock = Clock()
    with site(asking(tmp_path, "pair", names=["Anna", "Ben"]), clock=clock) as here:
        assert here.call("turn").status == 200
        many = [here.call("turn").status for _ in range(60)]
        assert many == [200] * 59 + [429]
        refused = here.call("turn")
        assert refused.headers["Retry-After"] == "1"
        assert here.call("turn", "Ben").status == 200
        clock.now += 1
        assert here.call("turn").status == 200


PROXY = {"prefix": "https://lab.example.org/study1"}


def flood(here: Site, client: str | None) -> list[int]:
    """What forty guesses are answered that come through the proxy from one address."""
    return [here.call("turn", f"guess{n}", forwarded=client).status for n in range(40)]


@pytest.mark.parametrize("how", [{}, PROXY])
def test_guesses_of_others_keep_no_good_link_out(tmp_path: Path, how: dict[str, str]) -> None:
    names = [f"Judge {n}" for n in range(40)]
    with site(asking(tmp_path, "pair", names=names), clock=Clock(), **how) as here:
        for client in (None, "203.0.113.9"):
            flood(here, client)
            assert {here.call("turn", name, forwarded=client).status for name in names} == {200}


def test_guesses_are_counted_by_the_address_that_the_named_proxy_gives(tmp_path: Path) -> None:
    with site(asking(tmp_path, "pair"), clock=Clock(), **PROXY) as here:
        assert flood(here, "203.0.113.9")[29:31] == [401, 429]
        assert flood(here, "203.0.113.9, 203.0.113.10")[0] == 401  # the last is the proxy's word
    unnamed = {"clock": Clock(), "prefix": "/study1"}
    with site(asking(tmp_path / "other", "pair"), **unnamed) as here:  # no proxy is named
        statuses = [here.call("turn", f"g{n}", forwarded=f"10.0.0.{n}").status for n in range(31)]
        assert statuses == [401] * 30 + [429]


def test_what_is_remembered_of_who_asked_is_bounded() -> None:
    rates = Rates(1.0, 2.0, Clock(), most=3)
    for who in "abcd":
        assert rates.take(who) == 0
    assert len(rates._clients) == 3
    assert "a" not in rates._clients
    assert [rates.take("d") for _ in range(2)] == [0.0, 1.0]
    rates.give_back("d")
    assert rates.take("d") == 0
    assert neighbourhood("2001:db8::1") == neighbourhood("2001:db8::ffff:2") == "2001:db8::/64"


@pytest.mark.parametrize(
    ("prefix", "address"),
    [
        ("", "http://127.0.0.1:8765/"),
        ("/study1", "http://127.0.0.1:8765/study1/"),
        ("study1/", "http://127.0.0.1:8765/study1/"),
        ("https://Lab.example.org:8443/a/b/", "https://lab.example.org:8443/a/b/"),
    ],
)
def test_links_begin_with_the_prefix(prefix: str, address: str) -> None:
    assert Entrance.at("127.0.0.1", 8765, prefix).link("t") == f"{address}#t"


@pytest.mark.parametrize(
    "prefix",
    [
        *("ftp://lab.example.org", "https:///x", "https://a@b/x", "/a/../b", "/a b", "/a#b"),
        *("https://lab.example.org:x/", "https://lab.example.org?x", "/<b>", "/ä"),
    ],
)
def test_what_is_no_prefix_is_named(prefix: str) -> None:
    with pytest.raises(UsageError, match="--url-prefix"):
        Entrance.at("127.0.0.1", 8765, prefix)


def test_it_answers_with_the_prefix_and_without(tmp_path: Path) -> None:
    with site(asking(tmp_path, "pair"), prefix="https://lab.example.org/study1") as here:
        for at in ("", "/study1"):
            assert here.ask(f"{at}/").status == 200
            assert here.ask(f"{at}/assets/page.js").status == 200
            assert here.call("turn", at=at).status == 200
        moved = here.ask("/study1")
        assert (moved.status, moved.headers["Location"]) == (308, "/study1/")
        good = {"Authorization": f"Bearer {here.study.anna}", "Content_Type": JSON}
        good["Host"] = "lab.example.org"
        good["Origin"] = "https://lab.example.org"
        assert here.ask("/study1/api/turn", "POST", "{}", **good).status == 200
        good["Origin"] = "https://lab.example.org.evil.example"
        assert here.ask("/study1/api/turn", "POST", "{}", **good).status == 403
