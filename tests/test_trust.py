"""A run folder decides nothing about this user's keys, files and money."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from judgeq import config, run_places, trust
from judgeq.cli import app
from judgeq.cli import run as running
from judgeq.engine import session
from judgeq.errors import RunError
from judgeq.events import Event, Notice
from judgeq.run_places import RunFolder, RunPlace
from tests.cli import json_of, judgeq
from tests.mock import mock, stats

EVENTS: list[tuple[str, str]] = []
WATCHING: list[bool] = []


KINDS = ("open", "os.listdir", "socket.connect", "socket.getaddrinfo", "sqlite3.connect")


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if WATCHING and event in KINDS:
        EVENTS.append((event, str(arguments)))


sys.addaudithook(_watch)  # for good: it listens only while WATCHING


@contextmanager
def watched() -> Iterator[None]:
    """While inside, what is opened and connected to is an event."""
    EVENTS.clear()
    WATCHING.append(True)
    try:
        yield
    finally:
        WATCHING.clear()


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def begun(root: Path, **settings: Any) -> RunPlace:
    """A run that this user began, of which nothing was asked yet."""
    prepared = session.prepare(config.settle({"dataset": "demo", **settings}), root)
    with prepared.folder.locked():
        session._begin(prepared, lambda _: None)
    return prepared.folder


def forget(tmp_path: Path) -> None:
    for path in (tmp_path / "state" / "judgeq" / "runs").glob("*.json"):
        path.unlink()


def invoke(*arguments: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.split())  # without where its lines end


def change(folder: RunPlace, **settings: Any) -> None:
    path = folder.path / "config.json"
    values = json.loads(path.read_text())
    values["settings"] |= settings
    path.write_text(json.dumps(values))


def refused(folder: RunPlace, *flags: str, **changes: Any) -> str:
    """The run isn't gone on with, and nothing was opened but its config.json and the mark."""
    with watched(), pytest.raises(RunError) as error:
        session.resume(folder, changes)
    opened = [what for _, what in EVENTS if "config.json" not in what and "state" not in what]
    assert not opened
    assert {kind for kind, _ in EVENTS} <= {"open", "os.listdir"}
    message = str(error.value)
    for flag in flags:
        assert flag in message
    return message


THIEF = "http://thief.example/v1"
ASKS: list[tuple[str, Any, str]] = [
    ("base_url", THIEF, f"--base-url {THIEF}"),
    ("openai_base_url", THIEF, f"OPENAI_BASE_URL={THIEF} judgeq resume"),
    ("anthropic_base_url", THIEF, f"ANTHROPIC_BASE_URL={THIEF} judgeq resume"),
    ("api", "anthropic", "--api anthropic"),
    ("api_key_env", "OPENAI_API_KEY", "--api-key-env OPENAI_API_KEY"),
    ("api_key_file", "/home/me/.key", "--api-key-file /home/me/.key"),
    ("headers", ("X-Team: env:AWS_SECRET",), "--header 'X-Team: env:AWS_SECRET'"),
    ("proxy", "http://thief.example:3128", "--proxy http://thief.example:3128"),
    ("ca_file", "/tmp/thief.pem", "--ca-file /tmp/thief.pem"),
    ("cache_dir", "/home/me/cache", "--cache-dir /home/me/cache"),
    ("extra_body", {"a": 1}, """--extra-body '{"a":1}'"""),
    ("data_dir", "/home/me/data", "--data-dir /home/me/data"),
    ("dataset", "/home/me/mails.csv", "--dataset /home/me/mails.csv"),
    ("prompt", "/home/me/my.toml", "--prompt /home/me/my.toml"),
    ("max_cost", 1e9, "--max-cost 1000000000.0"),
    ("price", (0.0, 0.0), "--price 0.0,0.0"),
    ("total_rounds", 9, "--rounds 9"),
    ("prices", {"gpt-m": {"input": 0, "output": 0}}, "--price IN,OUT"),
    # Left out of what is remembered, they must not pass for what was given: nothing.
    ("proxy", "http://user@thief.example:3128", "--proxy"),
    ("headers", ["X-Team: theirs"], "--header"),
]


def test_what_a_strangers_folder_asks_for_is_listed_and_not_done(tmp_path: Path) -> None:
    folder = begun(tmp_path / "runs", judge="gpt-m")
    session.resume(folder, {})
    config_json = folder.path / "config.json"
    before = config_json.read_text()
    for changed_later in (True, False):  # and then: a run that we never began
        for name, value, flag in ASKS:
            change(folder, **{name: value})
            message = refused(folder, f"{name} = ", flag, "Nothing was opened or sent")
            command = message.rpartition("judgeq resume")[2]
            assert ("says other things than you gave" in message) == changed_later
            assert ("--judge gpt-m" in command) != changed_later
            config_json.write_text(before)
        forget(tmp_path)


def test_an_address_that_this_users_environment_names_is_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("OPENAI_BASE_URL", "http://mine.example/v1/")
        folder = begun(tmp_path / "runs", judge="gpt-m")
    assert session.resume(folder, {}).settings.openai_base_url == "http://mine.example/v1"
    forget(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://other.example/v1")
    refused(folder, "OPENAI_BASE_URL=http://mine.example/v1 judgeq resume", judge=("gpt-m",))
    monkeypatch.setenv("OPENAI_BASE_URL", "http://mine.example/v1")
    session.resume(folder, {"judge": ("gpt-m",)})


def test_a_cap_that_somebody_removed_is_missed(tmp_path: Path) -> None:
    prices = {"price": (1.0, 1.0)}
    folder = begun(tmp_path / "runs", judge="gpt-m", max_cost=2.0, **prices)
    assert session.resume(folder, {}).settings.max_cost == 2
    change(folder, max_cost=None)
    refused(folder, "max_cost = null", "--max-cost …")
    assert session.resume(folder, {"max_cost": 1.0}).settings.max_cost == 1


def test_a_model_is_named_again_for_a_run_of_somebody_elses(tmp_path: Path) -> None:
    """With OpenAI's own address and key, it would still be this user's money."""
    folder = begun(tmp_path / "runs", judge="gpt-5-mini")
    forget(tmp_path)
    refused(folder, "--judge gpt-5-mini", "--max-cost DOLLARS caps what you pay")
    assert session.resume(folder, {"judge": ("gpt-5-mini",)}).settings.judge == ("gpt-5-mini",)


def test_what_was_given_again_is_remembered(tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_text("text,gold\n" + "".join(f"text {i},{i}\n" for i in range(12)))
    mine = {"dataset": str(tmp_path / "my.csv"), "gold_column": "gold"}
    folder = begun(tmp_path / "runs", **mine, strategy="listwise4")
    forget(tmp_path)
    refused(folder, f"--dataset {tmp_path / 'my.csv'}")
    code, output = invoke("resume", folder.path, "--quiet")
    assert (code, "--dataset" in output) == (7, True)
    assert invoke("resume", folder.path, "--quiet", "--dataset", tmp_path / "my.csv")[0] == 0
    assert invoke("resume", folder.path, "--quiet")[0] == 0
    (mark,) = (tmp_path / "state" / "judgeq" / "runs").iterdir()
    assert mark.stat().st_mode & 0o777 == 0o600
    assert "my.csv" not in mark.read_text()  # digests
    mark.write_text("{")
    refused(folder, "--dataset")


def test_prices_of_a_stranger_are_not_used(tmp_path: Path) -> None:
    folder = begun(tmp_path / "runs", judge="gpt-m", prices={"gpt-m": {"input": 0, "output": 0}})
    forget(tmp_path)
    given = {"judge": ("gpt-m",), "price": (1.0, 2.0)}
    assert session.resume(folder, given).settings.prices == {}


@pytest.mark.parametrize("name", ["gpt-m", "groq/m"])
def test_a_mark_is_of_one_folder(tmp_path: Path, name: str) -> None:
    folder = begun(tmp_path / "runs", judge=name)
    folder.path.rename(tmp_path / "gift")
    refused(RunFolder(tmp_path / "gift"), f"--judge {name}")


def test_what_a_folder_says_is_shown_safely(tmp_path: Path) -> None:
    folder = begun(tmp_path / "runs", judge="gpt-m")
    change(folder, ca_file="\x1b[2J\u202eKEY; rm -rf ~", headers=["X: " + "y" * 5000])
    message = refused(folder, r"'\x1b[2J\u202eKEY; rm -rf ~'")
    assert "\x1b" not in message
    assert len(message) < 2000


def test_a_run_that_can_not_be_remembered_runs_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("no folder")
    prepared = session.prepare(config.settle({"dataset": "demo"}), tmp_path / "runs")
    events: list[Event] = []
    session.execute(prepared, events.append)
    (notice,) = (e for e in events if isinstance(e, Notice) and e.warning)
    assert "`judgeq resume` will ask for its settings again" in notice.text


def test_another_users_folder_is_not_taken_for_ones_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = begun(tmp_path / "runs")
    settings = config.settle({"dataset": "demo"})
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    session.prepare(settings, tmp_path / "runs")  # worked on before
    forget(tmp_path)
    with pytest.raises(RunError, match=r"belongs to another user.*judgeq resume .*--new"):
        session.prepare(settings, tmp_path / "runs")
    assert session.prepare(settings, tmp_path / "runs", new=True).folder.id == f"{folder.id}-2"


def test_commands_that_read_open_nothing_but_the_run(tmp_path: Path) -> None:
    mails, key = tmp_path / "private" / "mails.csv", tmp_path / "private" / "key"
    mails.parent.mkdir()
    mails.write_text("text\na\n")
    key.write_text("KEY")
    job = ("run", "-d", "demo", "--sample", "40", "--quiet")
    assert invoke(*job, "--runs-dir", tmp_path / "runs")[0] == 0
    (folder,) = run_places.FolderRuns(tmp_path / "runs").all()
    texts = {"dataset": str(mails), "prompt": str(mails.with_suffix(".toml")), "judge": ["gpt-m"]}
    keys = dict.fromkeys(("api_key_file", "ca_file"), str(key))
    folders = dict.fromkeys(("cache_dir", "data_dir"), str(mails.parent))
    change(folder, **texts, **keys, **folders, base_url=THIEF)
    forget(tmp_path)
    with watched():
        for command in (
            ("status", folder.path),
            ("runs", "--runs-dir", tmp_path / "runs"),
            ("show", folder.path, "--write"),
            ("evaluate", folder.path, "--resamples", "10"),
            ("compare", folder.path, folder.path, "--resamples", "10"),
            ("export", folder.path),
        ):
            code, output = invoke(*command)
            assert code == 0, output
    assert any("run.db" in what for _, what in EVENTS)
    assert not [what for _, what in EVENTS if "private" in what or "thief" in what]
    assert not [kind for kind, _ in EVENTS if kind.startswith("socket")]


def test_a_gift_sends_no_key_to_its_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of it: somebody begins a run of their server, and gives its folder away."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine-and-nobody-elses")
    monkeypatch.setenv("JUDGEQ_CACHE", str(tmp_path / "cache"))
    with mock(tmp_path) as url:
        key = ("--api-key-env", "OPENAI_API_KEY")
        asks = ("--judge", "mock", "--base-url", url, *key, "--price", "1,1")
        job = ("run", "-d", "demo", "-s", "listwise10", *asks, "--max-output-tokens", "100")
        theirs = ("--max-cost", "0.01", "--quiet", "--runs-dir", tmp_path / "theirs-runs")
        code, output = invoke(*job, *theirs)
        assert code == 6, output
        (run,) = (tmp_path / "theirs-runs").iterdir()
        run.rename(tmp_path / "gift")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        before = (tmp_path / "gift" / "run.db").read_bytes()
        code, output = invoke("resume", tmp_path / "gift", "--max-cost", "9", "--quiet")
        assert code == 7, output
        assert f"--base-url {url}" in output
        assert "--api-key-env OPENAI_API_KEY" in output
        assert "sk-mine" not in output
        assert (tmp_path / "gift" / "run.db").read_bytes() == before
        code, output = invoke("resume", tmp_path / "gift", *asks, "--max-cost", "9", "--quiet")
        assert code == 0, output
        gift = RunFolder(tmp_path / "gift")
        assert trust.own_settings(gift, gift.info(), {"max_cost": 9.0}).models


# A file of --config


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody can be asked."""
    monkeypatch.setattr(running, "is_terminal", lambda: True)


def job(folder: Path, url: str, *lines: str) -> tuple[str, ...]:
    (folder / "texts.csv").write_text("text\n" + "".join(f"text {n}\n" for n in range(4)))
    common = ['dataset = "texts.csv"', 'strategy = "pairwise1"', 'feature = "it"', 'judge = "m"']
    (folder / "job.toml").write_text("\n".join([*common, f'base_url = "{url}"', *lines]))
    return "run", "--config", "job.toml"


STRANGE = [
    ('api_key_env = "OPENAI_API_KEY"', "$OPENAI_API_KEY", "--api-key-env OPENAI_API_KEY"),
    ('api_key_file = "token"', "the key in token", "--api-key-file token"),
    ('headers = ["X-A: env:SECRET"]', "X-A: env:SECRET", "--header 'X-A: env:SECRET'"),
    ('headers = ["X-A: pw-1234567"]', "header X-A: …", "--header …"),
    ('proxy = "http://me:pw-1234567@127.0.0.1:9"', "through the proxy …", "--proxy …"),
    ("extra_body = {api_base = 'x'}", '{"api_base":"x"}', '--extra-body \'{"api_base":"x"}\''),
    ('cache_dir = "cache"', "replies that are in cache", "--cache-dir cache"),
]


@pytest.mark.parametrize(("line", "said", "flag"), STRANGE)
def test_what_a_job_file_sends_where_is_shown_and_not_sent(
    tmp_path: Path, line: str, said: str, flag: str
) -> None:
    (tmp_path / "token").write_text("key-from-a-file")
    with mock(tmp_path) as url:
        for words in (
            job(tmp_path, url, line),
            ("estimate", "--pilot", "2", "--config", "job.toml"),
        ):
            how: Any = {"variables": {"OPENAI_API_KEY": "k" * 20, "SECRET": "s" * 20}}
            refused = json_of(tmp_path, *words, expect=2, **how)["error"]["message"]
            assert f"to {url}: the texts of texts.csv" in refused
            assert said in refused
            assert f"--base-url {url}" in refused
            assert flag in refused
            assert "pw-1234567" not in refused
        assert stats(url)["requests"] == 0
    assert not (tmp_path / "runs").exists()


def test_an_address_that_is_given_as_a_flag_needs_no_yes(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        judgeq(tmp_path, *job(tmp_path, "http://thief.example/v1"), "--base-url", url)
        assert stats(url)["requests"] == 2
        # Where nothing is sent, nothing is asked.
        judgeq(tmp_path, "estimate", "--config", "job.toml", "--seed", "7")
        assert stats(url)["requests"] == 2


@pytest.mark.usefixtures("terminal")
def test_on_a_terminal_a_job_file_is_asked_about_once(tmp_path: Path) -> None:
    with mock(tmp_path) as url:
        words = job(tmp_path, url)
        for answer in ("n\n", ""):
            refused = judgeq(tmp_path, *words, expect=5, stdin=answer)
            assert (
                f"to {url}: the texts of texts.csv, with the key in $JUDGEQ_API_KEY"
                in refused.stderr
            )
        assert stats(url)["requests"] == 0
        assert "Send that?" in judgeq(tmp_path, *words, stdin="y\n").stderr
        assert stats(url)["requests"] == 2
        assert "Send that?" not in judgeq(tmp_path, *words, "--seed", "7").stderr
        # What was changed since is asked about again.
        job(tmp_path, url, 'headers = ["X-A: env:SECRET"]')
        again = judgeq(tmp_path, *words, "--seed", "8", expect=5)
        assert "X-A: env:SECRET" in again.stderr
        assert "Send that?" in again.stderr


def test_a_job_files_database_is_not_connected_to(tmp_path: Path) -> None:
    job(tmp_path, "http://127.0.0.1:9/v1", 'store = "postgresql://me:pw-1234567@127.0.0.1:9/db"')
    for words in ("estimate", "run", "run --dry-run", "run --judge rehearsal"):
        refused = json_of(tmp_path, *words.split(), "--config", "job.toml", expect=2)["error"][
            "message"
        ]
        assert "kept in postgresql://me@127.0.0.1:9/db" in refused
        assert "pw-1234567" not in refused


def written_job(folder: Path, **settings: Any) -> tuple[str, ...]:
    """Write a job file that asks a model about "it"; the command that runs it."""
    common = {"strategy": "pairwise1", "feature": "it", "judge": "m"}
    lines = [f"{name} = {json.dumps(value)}" for name, value in (common | settings).items()]
    (folder / "job.toml").write_text("\n".join(lines))
    return "run", "--config", "job.toml"


def table(path: Path) -> str:
    path.write_text("text,other\n" + "".join(f"text {n},other {n}\n" for n in range(4)))
    return str(path)


CHANGED: list[dict[str, Any]] = [
    {"dataset": "secret.csv"},
    {"judge": "other"},
    {"prompt": "other.toml", "feature": ""},
    {"text_column": "other"},
    {"price": [0, 0]},
    {"onto": ["last"]},
    {"data_dir": "."},
    {"anchors": "texts.csv"},
]


@pytest.mark.usefixtures("terminal")
def test_a_yes_to_a_job_file_covers_all_that_was_shown_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(tmp_path / "texts.csv")
    table(tmp_path / "secret.csv")
    with mock(tmp_path) as url:
        first = {"dataset": "texts.csv", "base_url": url}
        judgeq(tmp_path, *written_job(tmp_path, **first), stdin="y\n")
        with monkeypatch.context() as patch:
            patch.setattr(running, "is_terminal", lambda: False)
            judgeq(tmp_path, *written_job(tmp_path, **first, seed=7))
            sent = stats(url)["requests"]
            for change_of in CHANGED:
                refused = judgeq(
                    tmp_path, *written_job(tmp_path, **first | change_of), "--seed", "8", expect=2
                )
                assert "Nothing was sent" in refused.stderr, change_of
                assert str(next(iter(change_of.values()))).strip("[]'")[:4] in refused.stderr
            assert stats(url)["requests"] == sent
            # What is given as an option is this user's own; all else was agreed to.
            words = written_job(tmp_path, **first)
            judgeq(tmp_path, *words, "--dataset", "secret.csv", "--seed", "9")
        # Two that were each agreed to aren't agreed to in a new combination.
        judgeq(tmp_path, *written_job(tmp_path, **first | {"judge": "n"}), stdin="y\n")
        secret = first | {"dataset": "secret.csv"}
        judgeq(tmp_path, *written_job(tmp_path, **secret), "--seed", "5", stdin="y\n")
        refused = judgeq(tmp_path, *written_job(tmp_path, **secret, judge="n"), expect=5)
        assert "Send that?" in refused.stderr


def requested(file: Path, *given: str) -> trust.FileRequest | None:
    return trust.requested_by(file, config.settle({}, file), given, sends=True)


def test_a_job_file_sends_a_file_of_another_folder_only_after_a_yes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an address, it is still this user's file, key and money."""
    folder = tmp_path / "gift"
    (folder / "data").mkdir(parents=True)
    secret = table(tmp_path / "secret.csv")
    table(folder / "data" / "texts.csv")
    (folder / "link.csv").symlink_to(secret)
    monkeypatch.chdir(folder)
    job_file = folder / "job.toml"
    for dataset in (secret, "../secret.csv", "link.csv"):
        written_job(folder, dataset=dataset)
        refused = json_of(folder, "run", "--config", "job.toml", expect=2)["error"]["message"]
        assert f"the texts of {secret}, with the key in $OPENAI_API_KEY" in refused
        assert "--dataset" in refused
        assert requested(job_file, "dataset") is None
    for dataset in ("data/texts.csv", "demo", "-"):
        written_job(folder, dataset=dataset)
        assert requested(job_file) is None
    written_job(folder, dataset="demo", prompt="../prompt.toml")
    request = requested(job_file)
    assert request is not None
    assert request.names == ["prompt"]


def test_a_yes_is_for_the_file_that_a_path_led_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "texts.csv")
    secret = table(tmp_path / "secret.csv")
    written_job(tmp_path, dataset="texts.csv", base_url="http://127.0.0.1:9/v1")
    request = requested(tmp_path / "job.toml")
    assert request is not None
    trust.agree_to(request)
    assert requested(tmp_path / "job.toml") is None
    (tmp_path / "texts.csv").unlink()
    (tmp_path / "texts.csv").symlink_to(secret)
    assert requested(tmp_path / "job.toml") is not None


def test_a_job_file_does_not_set_the_price_of_a_cap(tmp_path: Path) -> None:
    for price in ({"price": [0, 0]}, {"prices": {"m": {"input": 0, "output": 0}}}):
        (tmp_path / "job.toml").write_text(
            'dataset = "demo"\njudge = "m"\n'
            + ("price = [0, 0]" if "price" in price else "[prices.m]\ninput = 0\noutput = 0")
        )
        refused = judgeq(tmp_path, "run", "--config", "job.toml", "--max-cost", "1", expect=2)
        assert "counting what you pay" in refused.stderr
        assert "--price" in refused.stderr
        assert requested(tmp_path / "job.toml", "price") is None
