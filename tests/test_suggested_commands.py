"""Commands that judgeq suggests are safe to paste into a shell, whatever names they hold."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest
from aiohttp import web
from hypothesis import example, given, settings
from hypothesis import strategies as st

from judgeq.cli.app import MODULES
from judgeq.cli.run import _advised, _lost
from judgeq.errors import BudgetError, StoppedError
from judgeq.escaping import escaped, plain, shell_command, shell_word, unwrapped
from judgeq.people.registry import Change
from judgeq.run_places import RunFolder
from judgeq.text import log_lines, wrapped
from judgeq.ui.show import lists, people
from tests.cli import commands, ended, judgeq, only_run
from tests.test_structure import FILES, PACKAGE, nodes
from tests.web import completion, serving

HOSTILE = (
    "it's\u200b$(>PWNED)",
    "$(>PWNED)",
    "a\"b'$(>PWNED)",
    "`>PWNED`",
    "a; >PWNED #",
    "a\n>PWNED\n",
    "a  b | >PWNED",
    "\x1b[31m';>PWNED;'",
    "it's\\u0027;>PWNED;'",
    "!!",
    "~ *",
    "-x",
    "--help",
    "",
)
QUOTED = r"""(?:[^`'"]|'[^']*'|"[^"]*")*"""
COMMAND = re.compile(
    rf"`((?:[A-Z_]+=\S+ )?judgeq {QUOTED})`|^ *(?:\w+ +)?(judgeq [a-z-]+ .*)$", re.M
)
"""A command in a message, and one that stands alone on a line, perhaps after a label."""


def pasted(folder: Path, lines: Sequence[str]) -> list[list[str]]:
    """Return the words that `judgeq` gets when bash runs each of these lines in an empty folder."""
    folder.mkdir()
    script = 'judgeq() { printf "%s\\0" "$@" "\x01"; }\n' + "\n".join(lines)
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=folder, capture_output=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, b""), lines
    assert not [*folder.iterdir()], lines
    folder.rmdir()
    calls = done.stdout.decode().split("\x01\0")
    return [call.split("\0")[:-1] for call in calls[:-1]]


def suggested(*texts: str) -> list[str]:
    """Return the commands in what judgeq printed."""
    return [first or second for text in texts for first, second in COMMAND.findall(text)]


@settings(max_examples=30)
@example([(word, other) for word in HOSTILE for other in HOSTILE])
@given(
    st.lists(
        st.tuples(st.text(st.characters(codec="utf-8")), st.sampled_from(HOSTILE)), max_size=60
    )
)
def test_a_shell_reads_the_words_to_the_letter(
    tmp_path_factory: pytest.TempPathFactory, words: list[tuple[str, str]]
) -> None:
    lines = [shell_command("explain", [run, item], ["--n", item]) for run, item in words]
    calls = pasted(tmp_path_factory.mktemp("shell") / "empty", lines)
    for (run, item), call in zip(words, calls, strict=True):
        run, item = escaped(run), escaped(item)
        if run.startswith("-") or item.startswith("-"):
            assert call == ["explain", "--n", item, "--", run, item]
        else:
            assert call == ["explain", run, item, "--n", item]


@pytest.mark.parametrize("item", [word for word in HOSTILE if word])
def test_the_command_takes_them_for_what_they_are(item: str, tmp_path: Path) -> None:
    line = shell_command("explain", ["run", item], ["--replies"])
    ((_, *words),) = pasted(tmp_path / "empty", [line])
    context = commands()["explain"].make_context("explain", words, resilient_parsing=True)
    assert context.params["words"] == ("run", escaped(item))
    assert context.params["replies"]


def test_variables_are_set_for_the_command_alone(tmp_path: Path) -> None:
    line = shell_command("resume", ["r"], variables={"ADDRESS": HOSTILE[0]})
    (tmp_path / "empty").mkdir()
    script = f'judgeq() {{ printf %s "$ADDRESS"; }}\n{line}\nprintf %s "$ADDRESS"'
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path / "empty", capture_output=True, text=True, check=True
    )
    assert done.stdout == escaped(HOSTILE[0])
    assert not [*(tmp_path / "empty").iterdir()]


@pytest.mark.parametrize("value", [word for word in HOSTILE if word])
def test_no_line_of_a_message_is_a_part_of_a_command(value: str, tmp_path: Path) -> None:
    """Pasted, the second line of a broken command would be run: a value may be a program's name."""
    flags = ["--dataset", value, "--feature", value, "--judge", "reboot"]
    command = shell_command("resume", [value], flags, {"BASE": value})
    message = f"it isn't `yours` {'and so on ' * 9}give it again: `{command}`. Nothing was sent."
    lines = log_lines(unwrapped(message, 10_000), 60).split("\n    ")
    assert [line for line in lines if f"`{command}`." in line]
    assert " ".join(lines) == message
    bare = shell_command("resume", [value], flags)
    assert wrapped(bare, 20) == [bare]


STRAY = (
    "`",
    "``",
    "```",
    "g`o",
    "a` `b",
    "the key ` isn't known",
    "`judgeq 'x",
    "`judgeq x\\",
    "\x1b[",
)


@pytest.mark.parametrize("value", ["g`o x", "g``o x", "`g`o` x", "it's `judgeq run x", "a\\ `b"])
@pytest.mark.parametrize("before", STRAY)
def test_a_backtick_in_the_words_before_breaks_no_command(
    before: str, value: str, tmp_path: Path
) -> None:
    command = shell_command(
        "resume", [value], ["--dataset", value, "--judge", "reboot"], {"A": value}
    )
    words = [value, "--dataset", value, "--judge", "reboot"]
    printed = []
    for said in (
        before,
        f"{before} and {before}",
        f"it isn't `yours`, {before} {'so ' * 30}{before}",
    ):
        message = f"{said} `{command}`. It's said {before}: `{command}`."
        for width in (40, 60, 80, 120):
            lines = log_lines(unwrapped(message, 10_000), width).split("\n    ")
            whole = [line for line in lines if f"`{command}`." in line]
            assert "".join(whole).count(command) == 2, lines
            assert not any(line.lstrip().startswith("reboot") for line in lines)
            printed += [command for line in whole for _ in range(line.count(f"`{command}`"))]
    for call in pasted(tmp_path / "empty", printed):
        assert call == ["resume", *words]


@settings(max_examples=300)
@example("my \u2764\ufe0f run")
@example("e\u0301\u0301\u0301")
@example("\U0001f469\u200d\ufe0f\U0001f469")
@given(
    st.text(st.characters(codec="utf-8") | st.sampled_from("\ufe0f\u0301\u200d\u0e33\u2764 '`\x9b"))
)
def test_a_printed_command_has_the_words_of_the_command(word: str) -> None:
    quoted = shell_word(word)
    assert unwrapped(quoted, 100_000) == quoted
    assert plain(quoted, 100_000) == quoted
    command = f"`{shell_command('resume', [word])}`"
    assert unwrapped(f"\x1b]{word} {command}", 100_000).endswith(command)


def test_a_message_that_is_cut_ends_before_a_command() -> None:
    command = shell_command("resume", ["it's `a` run"], ["--judge", "reboot"])
    message = f"Words `judgeq 'so: give `{command}`, or `{command}`."
    for characters in range(len(message)):
        cut = unwrapped(message, characters)
        assert cut.endswith("…")
        assert "reboot" not in cut.replace(command, "")
        assert "judgeq resume" not in cut.replace(command, "")


def literals(node: ast.JoinedStr) -> str:
    """Return an f-string with its values as \0."""
    parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
    return "".join(map(str, parts))


BARE = re.compile(rf"judgeq (?:{'|'.join(MODULES)})\b[^`\0\n]*\0")
"""A value within a command that is spelled out, as in f"judgeq resume {run}"."""


def test_no_message_puts_a_value_into_a_command() -> None:
    """Only `shell_command` does: what it returns stands in a message as a whole."""
    for path in FILES:
        for node in nodes(path):
            if isinstance(node, ast.JoinedStr):
                where = f"{path}:{node.lineno}: put the command together with shell_command"
                assert not BARE.search(literals(node)), where
    for template in PACKAGE.rglob("templates/**/*"):
        if template.is_file():
            text = re.sub(r"\{\{.*?\}\}|\$\{.*?\}", "\0", template.read_text("utf-8"))
            assert not BARE.search(text), template
    assert BARE.search("to continue, `judgeq resume \0`")
    assert not BARE.search("`judgeq run` \0")


# What commands print

CANARY = "it's\u200b$(>PWNED)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with texts whose file and ids are hostile."""
    rows = "".join(f'"-{n}{CANARY}",text {n},{n}\n' for n in range(10))
    (tmp_path / f"{CANARY}.csv").write_text(f"id,text,gold\n{rows}")
    return tmp_path


def check(folder: Path, *printed: str) -> list[list[str]]:
    """Return the words of all suggested commands, after bash ran nothing else of them."""
    found = [line for line in suggested(*printed) if "< FILE" not in line]
    assert found
    calls = pasted(folder / "empty", found)
    assert len(calls) == len(found)
    assert not [*folder.rglob("PWNED")]
    return calls


@contextmanager
def answering_once() -> Iterator[str]:
    """A server that answers one question, and then doesn't accept the key."""
    asked = count()

    async def handler(request: web.Request) -> web.Response:
        if next(asked):
            return web.json_response({"error": {"message": "the key ` isn't known"}}, status=401)
        await request.read()
        return web.json_response(completion('{"ranking": ["A", "B", "C", "D", "E"]}'))

    with serving(handler) as url:
        yield url


NAMES = [CANARY, "$(>PWNED)", "-$(>PWNED) x", "g`o $(>PWNED)"]


@pytest.mark.parametrize("name", NAMES)
def test_an_unfinished_run_in_a_folder_of_any_name(folder: Path, name: str) -> None:
    with answering_once() as url:
        run = ["run", f"{CANARY}.csv", "-s", "listwise5", "--feature", f"it {CANARY}"]
        asked = ["--judge", f"m{CANARY}", "--base-url", url, "--concurrency", "1"]
        judgeq(folder, *run, *asked, expect=4)
    only_run(folder).rename(folder / "runs" / name)
    calls = []
    for command in ("resume", "status", "show"):
        for more in ([], ["--json"]):
            done = ended(folder, command, *more, "--", name)
            printed = [done.stdout, done.stderr]
            if more:
                printed = [json.loads(done.stdout).get("error", {}).get("message", "")]
            if suggested(*printed):
                calls += check(folder, *printed)
    assert {call[0] for call in calls} >= {"resume"}
    assert any(escaped(name) in call for call in calls)
    assert all(call[0] in commands() for call in calls)


@pytest.mark.parametrize("name", NAMES)
def test_settings_of_a_strangers_folder(folder: Path, name: str) -> None:
    """`resume` lists what the folder asks for as a command, also with --json, which assistants read."""
    with answering_once() as url:
        run = ["run", f"{CANARY}.csv", "-s", "listwise5", "--feature", f"it {CANARY}"]
        judgeq(folder, *run, "--judge", "m", "--base-url", url, expect=4)
    gift = only_run(folder).rename(folder / "runs" / name)
    path = gift / "config.json"
    config = json.loads(path.read_text())
    address = f"http://127.0.0.1:9/v1?{quote(name)}"
    asks: dict[str, str] = {
        "dataset": f"/x/{name}.csv",
        **dict.fromkeys(("prompt", "data_dir", "cache_dir", "api_key_file"), f"/x/{name}.toml"),
        **dict.fromkeys(("base_url", "openai_base_url"), address),
    }
    config["settings"] |= asks | {"judge": [f"m{CANARY}"], "headers": ["X-A: it's$(>PWNED)"]}
    path.write_text(json.dumps(config))
    shown = ended(folder, "resume", "--", name)
    told = json.loads(ended(folder, "resume", "--json", "--", name).stdout)["error"]["message"]
    for text in (shown.stderr, told):
        ((command, *words),) = check(folder, text)
        assert command == "resume"
        assert words[words.index("--dataset") + 1] == escaped(f"/x/{name}.csv")
        for flag in ("prompt", "data-dir", "cache-dir", "api-key-file"):
            assert words[words.index(f"--{flag}") + 1] == escaped(f"/x/{name}.toml"), flag
        assert words[words.index("--judge") + 1] == escaped(f"m{CANARY}")
        assert words[words.index("--header") + 1] == "X-A: it's$(>PWNED)"
        assert escaped(name) in " ".join(words)


def test_what_comes_next_after_a_run(folder: Path) -> None:
    """The id of the highest text, and the words of a rehearsal."""
    run = ["run", f"{CANARY}.csv", "-s", "listwise5", "--feature", f"it {CANARY}"]
    done = judgeq(folder, *run, "--gold-column", "gold")
    calls = check(folder, done.stdout, done.stderr)
    (explained,) = [call for call in calls if call[0] == "explain"]
    assert re.fullmatch(rf"-\d{re.escape(escaped(CANARY))}", explained[-1])
    assert explained[-2] == "--"
    done = judgeq(folder, *run, "--judge", "rehearsal", "--name", "a b")
    calls = check(folder, done.stdout, done.stderr)
    (real,) = {tuple(call) for call in calls if call[0] == "run"}
    assert real[real.index("--feature") + 1] == f"it {escaped(CANARY)}"
    assert real[real.index("--dataset") + 1] == f"{escaped(CANARY)}.csv"


def test_messages_that_few_see(folder: Path) -> None:
    """Of commands that need a server or people, the messages alone."""
    run = RunFolder(folder / "runs" / CANARY)
    printed = [
        str(_advised(StoppedError("Stopped"), run)),
        str(_advised(BudgetError("Too dear."), run)),
        str(_lost(3, run)),
        *lists.cancelled([], run).notes,
        *people.listed(run, []).notes,
        *people.changed(run, Change(what="add", names=("x",)), [], served=False).notes,
    ]
    calls = check(folder, *printed)
    assert all(escaped(CANARY) in call for call in calls)
