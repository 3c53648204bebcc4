"""A key that a server gives back in disguise is neither shown nor kept."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from judgeq.judge.backend import Result
from judgeq.judge.http.anthropic import AnthropicMessages
from judgeq.judge.http.openai import OpenAIChat
from judgeq.judge.secrets import ESCAPE_LAYERS, KEY_SHOWN, Mask
from judgeq.settings.model import Access, Model
from tests.cli import ended, judgeq, only_run, query
from tests.test_masking import KEY, Echo, echo, leaks
from tests.web import completion, serving

__all__ = ["echo"]

pytestmark = pytest.mark.usefixtures("rated_by_elo")


def parted(by: str) -> Callable[[str], str]:
    """Return a disguise: something that can't be seen between all characters."""
    return by.join


def as_escapes(key: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in key)


DISGUISES: dict[str, Callable[[str], str]] = {
    "none": str,
    "escapes": as_escapes,
    "escapes of escapes": lambda key: as_escapes(as_escapes(key)),
    "escapes of unseen characters": "\\u200b".join,
    "U+200B": parted("\u200b"),
    "U+00AD": parted("\u00ad"),
    "U+FE0F": parted("\ufe0f"),
    "U+200D": parted("\u200d"),
    "U+034F": parted("\u034f"),
    "U+202E": parted("\u202e"),
    "NUL": parted("\0"),
    "a sequence": parted("\x1b[0m"),
    "a sequence of one character": parted("\x9b0m"),
    "a title": lambda key: "\x1b]0;" + key.replace("", "\u200b") + "\x07",
    "escapes, and unseen between": lambda key: "\u200b".join(map(as_escapes, key)),
}

ANSWERS: dict[str, Callable[[str], Any]] = {
    "reason": lambda text: completion(f'{{"reason": "it is {text}", "winner": "A"}}'),
    "winner": lambda text: completion(f'{{"winner": "{text}"}}'),
    "name": lambda text: completion(f'{{"winner": "A", "{text}": 1}}'),
    "words": lambda text: completion(f"I say {text}."),
    "parts": lambda text: completion(
        [{"type": "text", "text": part} for part in ('{"reason": "', *text, '", "winner": "A"}')]
    ),
    "model": lambda text: {**completion('{"winner": "A"}'), "model": text},
    "fingerprint": lambda text: {**completion('{"winner": "A"}'), "system_fingerprint": text},
    "refusal": lambda text: {"choices": [{"message": {"refusal": text}}]},
    "error": lambda text: {"error": {"message": text, "code": 500}},
}
"""Answers with status 200."""
FAILURES: dict[str, Callable[[str], tuple[int, dict[str, str], Any]]] = {
    "message": lambda text: (500, {}, {"error": {"message": text}}),
    "code": lambda text: (500, {}, {"error": {"code": text}}),
    "refused": lambda text: (400, {}, {"error": {"message": text}}),
    "key refused": lambda text: (403, {}, {"error": {"message": text}}),
    "sentences": lambda text: (422, {}, {"detail": [{"msg": part} for part in text]}),
    "page": lambda text: (502, {}, f"<html><b>{'</b><b>'.join(text)}</b></html>"),
    "body": lambda text: (500, {}, text),
    "request id": lambda text: (400, {"x-request-id": text}, {"error": {"message": "no"}}),
    "moved": lambda text: (307, {"Location": text}, "elsewhere"),
}


def put_together(text: str) -> Iterable[str]:
    """Yield what a reader, or a program that reads JSON, may make of a text."""
    for _ in range(4):
        yield text
        text = re.sub(r"\x1b\[[0-9;]*m|\x9b0m", "", text)
        text = "".join(char for char in text if "!" <= char <= "~")
        text = re.sub(r"\\u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), text)


def all_leaks(text: str) -> list[str]:
    return [leak for form in put_together(text) for leak in leaks(KEY, form)]


@pytest.mark.parametrize("disguise", DISGUISES)
@pytest.mark.parametrize("place", [*ANSWERS, *FAILURES])
def test_nothing_of_it_leaves_the_backend(echo: Echo, place: str, disguise: str) -> None:
    text = DISGUISES[disguise](KEY)
    if place in ANSWERS:
        status = 200
        headers: dict[str, str] = {}
        body = ANSWERS[place](text)
    else:
        status, headers, body = FAILURES[place](text)
        if headers and re.search(r"[\0\r\n\x1b\x9b]", text):
            pytest.skip("no header may hold it")
    for shown in echo.shown(status, headers, body):
        assert not all_leaks(shown)


@pytest.mark.usefixtures("short_waits")
def test_nothing_of_it_is_left_by_a_run(tmp_path: Path) -> None:
    """A server that answers each question with the key, at another place and in another disguise."""
    combinations = [
        *itertools.product([name for name in ANSWERS if name != "error"], DISGUISES),
        *itertools.product(["message", "code", "sentences", "body"], DISGUISES),
    ]
    rows = "".join(f"t{number},text {number}\n" for number in range(4 * len(combinations)))
    (tmp_path / "texts.csv").write_text(f"id,text\n{rows}")
    turns = itertools.count()

    async def handler(got: web.Request) -> web.Response:
        await got.read()
        key = got.headers["Authorization"].removeprefix("Bearer ")
        turn = next(turns)
        if turn % 2:  # so that the run is not stopped for a server that fails too often
            return web.json_response(completion('{"reason": "so", "winner": "A"}'))
        place, disguise = combinations[turn // 2 % len(combinations)]
        text = DISGUISES[disguise](key)
        if place in ANSWERS:
            return web.json_response(ANSWERS[place](text))
        *_, body = FAILURES[place](text)
        content = body if isinstance(body, str) else json.dumps(body)
        return web.Response(status=500, text=content)  # which doesn't end the run

    with serving(handler) as url:
        how: Any = {"variables": {"JUDGEQ_API_KEY": KEY}}
        done = ended(
            tmp_path, "run", "-d", "texts.csv", "-s", "pairwise1", "--feature", "it", "--reasons",
            "--judge", "m", "--base-url", url, "--log", "log.txt", "--max-invalid", "1",
            "--no-check-reading",
            "--concurrency", "4", **how,
        )  # fmt: skip
    assert done.returncode in (0, 4), done.stderr
    run = only_run(tmp_path)
    assert next(turns) >= 2 * len(combinations), "not all of them were answered"
    assert query(run, "SELECT count(*) FROM verdicts")[0][0] > len(combinations) / 2
    printed = [done.stdout, done.stderr]
    for words in (
        ["status", run], ["status", run, "--json"], ["show", run], ["evaluate", run],
        ["explain", run, "t1", "--replies"], ["explain", run, "t1", "--replies", "--json"],
        ["report", run], ["report", run, "--format", "md"],
        ["export", run, "--table", "calls", "--replies", "-o", "calls.jsonl"],
        ["export", run, "-o", "judgments.jsonl"],
    ):  # fmt: skip
        read = judgeq(tmp_path, *map(str, words))
        printed += [read.stdout, read.stderr]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 6
    assert any(KEY_SHOWN.encode() in content for content in files)
    for text in (*printed, *(content.decode(errors="replace") for content in files)):
        assert not all_leaks(text)
    (usable,) = query(
        run, "SELECT count(*) FROM calls WHERE outcome = 'ok' AND reply LIKE '%***key%'"
    )
    assert usable == (0,)


def test_a_reply_that_holds_it_is_no_verdict(tmp_path: Path) -> None:
    """It is asked again once, and then the question is invalid; the cache keeps neither."""
    (tmp_path / "two.csv").write_text("text\nfirst\nsecond\n")
    asked = itertools.count()

    async def handler(got: web.Request) -> web.Response:
        next(asked)
        return web.json_response(completion(f'{{"reason": "{KEY}", "winner": "A"}}'))

    words = ["-d", "two.csv", "-s", "pairwise1", "--feature", "it", "--reasons", "--judge", "m"]
    with serving(handler) as url:
        how: Any = {"variables": {"JUDGEQ_API_KEY": KEY}}
        for flags in ([], ["--new"]):
            done = judgeq(tmp_path, "run", *words, "--base-url", url, *flags, expect=4, **how)
    assert "0 of" not in done.stdout
    assert next(asked) == 4
    for run in (tmp_path / "runs").iterdir():
        assert query(run, "SELECT count(*) FROM jobs WHERE state = 'invalid'") == [(1,)]
        assert query(run, "SELECT count(*) FROM verdicts") == [(0,)]
        assert "held a key" in str(query(run, "SELECT error FROM jobs"))


@settings(max_examples=100)
@given(
    start=st.integers(len("sk-"), len(KEY) - 6),
    length=st.integers(6, len(KEY)),
    before=st.sampled_from(["", "x", "key ", "\u200b", '"', "9"]),
    after=st.sampled_from(["", "…", " and so on", "Z"]),
)
def test_pieces_of_it_are_masked(start: int, length: int, before: str, after: str) -> None:
    piece = KEY[start : start + length]
    masked = Mask((), [KEY]).text(f"{before}{piece}{after}")
    assert not all_leaks(masked)


@pytest.mark.parametrize(
    "key",
    [
        "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ3sT",
        "my-model-of-ordinary-words",
        "not-needed",
        "ollama",
        "sk-proj-0123456789abcdefABCDEF",
    ],
)
@pytest.mark.parametrize(
    "text",
    [
        "Keys begin with sk-ant-api03- or sk-proj-: see the ordinary docs on models.",
        '{"reason": "ein ordin\u00e4rer Text: roll amazing words, 2024-11", "winner": "A"}',
        "a model of ordi\u00adnary words isn't needed\nhere",
    ],
)
def test_ordinary_words_stay(key: str, text: str) -> None:
    mask = Mask((), [key])
    body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
    assert mask.text(text) == text
    assert mask.body(body) == body


def test_a_reply_that_holds_a_word_that_passes_for_a_key_is_used(echo: Echo) -> None:
    """Servers that need no key are given a word, which their own names may hold."""
    body = Mask((), ["ollama"]).body(json.dumps({"system_fingerprint": "fp_ollama"}).encode())
    assert json.loads(body) == {"system_fingerprint": "fp_***"}
    assert KEY_SHOWN.encode() not in body


def test_more_escapes_than_are_decoded() -> None:
    text = KEY
    for _ in range(ESCAPE_LAYERS + 1):
        text = (
            text.replace("s", "\\u0073", 1) if "\\" not in text else text.replace("\\", "\\u005c")
        )
    assert Mask((), [KEY]).text(text) == KEY_SHOWN


@pytest.mark.parametrize("depth", [253, 254, 255, 400, 900, 1023, 1100])
@pytest.mark.parametrize("form", [KEY, as_escapes(KEY), KEY.replace("/", "\\/")])
def test_a_body_that_is_nested_deeply(depth: int, form: str) -> None:
    body = b'{"a":' * depth + b'"' + form.encode() + b'"' + b"}" * depth
    masked = Mask((), [KEY]).body(body).decode()
    assert not all_leaks(masked)
    harmless = b'{"a":' * depth + b'"\\u00e4"' + b"}" * depth
    assert Mask((), [KEY]).body(harmless) == harmless


def test_a_name_that_is_given_twice() -> None:
    for form in (KEY, as_escapes(KEY)):
        body = b'{"error": "' + form.encode() + b'", "error": "no"}'
        assert Mask((), [KEY]).body(body) == b'{"error":"no"}'


def test_a_line_of_a_batch_that_holds_it_is_no_answer() -> None:
    """What was downloaded is read by another session, and is masked by then."""
    answer = completion(f'{{"reason": "{as_escapes(KEY)}", "winner": "A"}}')
    body = Mask((), [KEY]).body(json.dumps(answer).encode())
    backend = OpenAIChat("m", Model(base_url="http://127.0.0.1:9/v1"), Access(), None)
    reply = backend.read_result(Result("x", 200, body), 100, backend.form)
    assert "held a key" in (reply.problem or "")
    assert not all_leaks(reply.text)


@pytest.mark.parametrize("depth", [200, 254, 900])
def test_an_answer_as_a_tool_call_that_is_nested_deeply(depth: int) -> None:
    """orjson reads 1,024 levels and writes 254."""
    deep: Any = "A"
    for _ in range(depth):
        deep = {"a": deep}
    backend = AnthropicMessages("m", Model(base_url="http://127.0.0.1:9/v1"), Access(), None)
    _, text, _ = backend.read({"content": [{"type": "tool_use", "input": {"winner": deep}}]})
    assert (text == "") == (depth >= 254)


@pytest.mark.parametrize(
    ("tokens", "price"), [(2 * 10**15, (10.0, 10.0)), (10**9, (1e6, 1e6)), (2**52, (1e6, 1e6))]
)
@pytest.mark.parametrize("flags", [[], ["--max-cost", "5", "--max-output-tokens", "10"]])
def test_usage_that_is_absurd(
    tmp_path: Path, tokens: int, price: tuple[float, float], flags: list[str]
) -> None:
    (tmp_path / "texts.csv").write_text("text\n" + "".join(f"text {n}\n" for n in range(40)))
    usage = {"prompt_tokens": tokens, "completion_tokens": 10, "total_tokens": tokens + 10}

    async def handler(got: web.Request) -> web.Response:
        await got.read()
        return web.json_response(completion('{"winner": "A"}', usage=usage))

    with serving(handler) as url:
        judgeq(
            tmp_path, "run", "-d", "texts.csv", "-s", "pairwise1", "--feature", "it", "--judge", "m",
            "--base-url", url, "--price", f"{price[0]:g},{price[1]:g}", *flags,
            expect=6 if flags else 0,
        )  # fmt: skip
    verdicts = query(only_run(tmp_path), "SELECT count(*) FROM verdicts")[0][0]
    assert verdicts == 20 or flags
    assert judgeq(tmp_path, "status", only_run(tmp_path)).stdout


BETWEEN = [
    "",
    "",
    "",
    "\\n",
    "\\t",
    "\\\\n",
    "\u200b",
    "\0",
    " ",
    "\\u200b",
    "\x1b[0m",
    "\x9b0m",
    "\\",
    "ü",
]
AS_WRITTEN: list[Callable[[str], str]] = [str, str, str, as_escapes]


@settings(max_examples=500)
@given(
    start=st.integers(0, len(KEY) - 6),
    length=st.integers(4, len(KEY)),
    between=st.lists(st.sampled_from(BETWEEN), min_size=1, max_size=5),
    written=st.lists(st.sampled_from(AS_WRITTEN), min_size=1, max_size=5),
)
def test_the_quick_look_at_an_answer_overlooks_nothing(
    start: int, length: int, between: list[str], written: list[Callable[[str], str]]
) -> None:
    mask = Mask([], [KEY])
    parts = zip(KEY[start : start + length], itertools.cycle(written), itertools.cycle(between))
    text = "".join(write(char) + gap for char, write, gap in parts)
    if mask._is_surely_clean(text.encode()):
        assert not mask._is_disguise(text)
        assert mask._pieces.masked(mask._without_forms(text)) == text


def test_the_quick_look_finds_ordinary_answers_clean() -> None:
    reply = '{"reason": "Text \\"A\\" says:\\n it\'s urgent \\/ now.", "ranking": ["B", "A"]}'
    body = json.dumps(completion(reply)).encode()
    assert Mask([], [KEY])._is_surely_clean(body)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("mistral2026-workshop", "The final 2026 report is out."),
        ("Local2026-server", "In total 2026 votes were cast."),
        ("sk-A1B2C3D4E5F6G7H8", "A1 B2 C3 D4 E5 F6"),
        ("iPhone15ProMaxTeamKey", "It's an iPhone 15 Pro Max."),
        ("sk-abc123def456abc123", "abc123 def456"),
    ],
)
def test_a_reply_with_a_short_piece_between_spaces_is_used(key: str, text: str) -> None:
    """Six characters in a row, such as "iPhone", are masked; the rest of the reply stays."""
    body = json.dumps({"c": json.dumps({"reason": text})}).encode()
    assert KEY_SHOWN not in Mask((), [key]).text(text)
    masked = json.loads(json.loads(Mask((), [key]).body(body))["c"])["reason"]
    assert masked in (text, text.replace("iPhone", "***"), "*** def456", "*** ***")


@pytest.mark.parametrize("hostile", ["\x9d", "\x9b", "\x1b]", "\\", "\\u001b[", "\\u005cu005c"])
def test_a_long_hostile_answer_is_given_up(hostile: str) -> None:
    """The old look took minutes for some of these."""
    body = ('{"c": "' + hostile * (1_000_000 // len(hostile)) + '"}').encode()
    assert Mask((), [KEY]).body(body) in (body, KEY_SHOWN.encode())


def test_a_long_ordinary_answer_stays() -> None:
    reply = json.dumps({"reason": "\u4e2d\u6587 caf\u00e9 \\alpha \n" * 50_000})
    body = json.dumps(completion(reply)).encode()
    assert Mask(["research"], [KEY]).body(body) == body
