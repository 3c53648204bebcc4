"""Runs in a PostgreSQL store: everything that works on a run's folder works on them."""

import asyncio
import shutil
import sqlite3
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from judgeq import api, prompts, run_places
from judgeq.engine import session
from judgeq.engine.results import Result
from judgeq.errors import RunError, UsageError
from judgeq.run_places.stored import StoredRun, StoredRuns, copy
from judgeq.store import Store, schema
from judgeq.store.link import parse
from judgeq.types import Job
from tests import python
from tests.chaos import Cutter
from tests.cli import ended, json_of, judgeq
from tests.postgres import new_store, server, sql, unix_socket
from tests.test_runs import PRINT, info

ME = ("--store", "postgresql://me:secret@127.0.0.1:9/nowhere")


@pytest.fixture
def store() -> str:
    return new_store()


@pytest.fixture
def there(store: str, tmp_path: Path) -> StoredRuns:
    return StoredRuns.at(store, tmp_path / "runs")


def made(there: StoredRuns, fingerprint: str = PRINT, new: bool = False) -> StoredRun:
    run = there.called(there.place("demo", fingerprint, new).id)
    run.write_info(info(fingerprint))
    return run


def test_runs_are_made_named_and_listed_as_in_folders(store: str, there: StoredRuns) -> None:
    assert there.all() == []
    run = there.place("demo list/../x", PRINT, new=False)
    assert (run.id, run.exists) == ("demo-list-..-x-0123456789", False)
    assert sql(store, "SELECT to_regclass('@.runs')") == [(None,)]  # nothing was written
    first = made(there)
    assert (first.exists, first.info(), first.is_running()) == (True, info(), False)
    assert there.place("demo", PRINT, new=False) == first
    second = made(there, new=True)
    assert second.id == f"{first.id}-2"
    assert there.place("demo", PRINT, new=False) == second
    sql(store, "UPDATE @.runs SET touched = touched + 10 WHERE name = %s", first.id)
    assert [run.id for run in there.all()] == [first.id, second.id]
    assert there.find("last") == first
    assert there.find(second.id) == second
    for name, told in (("demo-0123", "means 2 runs"), ("zzz", "there is no run 'zzz'")):
        with pytest.raises(RunError, match=told):
            there.find(name)
    sql(store, "UPDATE @.runs SET fingerprint = 'x' WHERE name = %s", first.id)
    with pytest.raises(RunError, match="another run"):
        there.place("demo", PRINT, new=False)


def test_a_strangers_rows_lead_nowhere(store: str, there: StoredRuns) -> None:
    run = made(there)
    insert = "INSERT INTO @.runs (name, fingerprint, info) VALUES (%s, 'x', '{}')"
    for name in ("../../etc", "/tmp/x", ".hidden", "a\nb", "x" * 300, ""):
        sql(store, insert, name)
    assert there.all() == [run]
    sql(store, insert, "odd")
    with pytest.raises(RunError, match="#odd can't be read: judgeq: Field required"):
        there.find("odd").info()


def test_a_password_is_nowhere_shown(tmp_path: Path) -> None:
    there = StoredRuns.at(f"{ME[1]}?sslpassword=secret2&application_name=x", tmp_path)
    run = there.called("demo")
    shown = [run.label, run.command("status"), run.identity, repr(run), there.label]
    with pytest.raises(RunError) as raised:
        there.all()
    for text in (*shown, str(raised.value), str(run.store_address)):
        assert "secret" not in text
    address = "postgresql://me@127.0.0.1:9/nowhere?application_name=x"
    assert run.command("status") == f"judgeq status demo --store '{address}'"
    assert parse(address).label == address


@pytest.mark.parametrize(
    "login", ["me:se@cret@h", "me:1/secret@h", "me:1#secret@h", "me:1?secret@h"]
)
def test_a_password_that_is_written_wrong_is_not_shown(login: str) -> None:
    with pytest.raises(UsageError, match="%40") as raised:
        parse(f"postgresql://{login}/d")
    assert "cret" not in str(raised.value)


@pytest.mark.parametrize("address", ["mysql://x/y", "postgresql://h/d?schema=a-b", "runs"])
def test_what_is_no_address_is_a_usage_error(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--store"):
        run_places.runs_in(tmp_path, address)


def test_without_the_right_to_make_a_schema_it_says_what_to_do(there: StoredRuns) -> None:
    role = f"r_{there.address.schema}"
    sql(server(), f"CREATE ROLE {role} LOGIN")
    joint = "&" if "?" in server() else "?"
    address = f"{server()}{joint}user={role}&schema={there.address.schema}"
    theirs = StoredRuns.at(address, there.root)
    with pytest.raises(RunError, match="CREATE SCHEMA"):
        made(theirs)
    sql(server(), f'CREATE SCHEMA "{there.address.schema}" AUTHORIZATION {role}')
    assert made(theirs).exists  # CREATE on the schema is enough
    sql(server(), f"DROP OWNED BY {role}")
    sql(server(), f"DROP ROLE {role}")


def test_another_schema_and_another_programs_are_left_alone(
    store: str, there: StoredRuns, tmp_path: Path
) -> None:
    at = ("--store", store)
    made(there)
    for version in (schema.VERSION - 1, schema.VERSION + 1):
        sql(store, f"UPDATE @.meta SET version = {version}")
        for command in (("run", "-d", "demo"), ("runs",), ("status",), ("show", "--write")):
            refused = ended(tmp_path, *command, *at)
            message = f"has version {version} of judgeq's schema, and this judgeq writes version"
            assert (refused.returncode, message in refused.stderr) == (7, True)
        assert sql(store, "SELECT count(*) FROM @.runs") == [(1,)]
    sql(store, "DROP TABLE @.meta")
    refused = ended(tmp_path, "run", "-d", "demo", *at)
    assert (refused.returncode, "another program's" in refused.stderr) == (7, True)


async def claimed(store: Store) -> list[Job]:
    try:
        return await store.claim("a", 1, 60.0)
    finally:
        await store.close()


def test_a_run_is_dropped_unless_somebody_leads_it(
    store: str, there: StoredRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, stays = made(there), made(there, new=True)
    items = "INSERT INTO @.items SELECT %s, row, 'i' || row, NULL FROM generate_series(0, 4) row"
    for run in (gone, stays):
        sql(store, items, run.row().run)
    until = "extract(epoch FROM now()) + 60"
    sql(store, f"INSERT INTO @.lead SELECT run, 7, 'a machine', {until} FROM @.runs")
    with pytest.raises(RunError, match="led by a machine"):
        gone.remove()
    assert len(sql(store, "SELECT * FROM @.items")) == 10
    still_open = gone.store()
    sql(store, "UPDATE @.lead SET until = 0")
    gone.remove()
    with pytest.raises(RunError, match=r"a run in .* isn't there any more: it was deleted"):
        asyncio.run(claimed(still_open))
    assert there.all() == [stays]
    assert sql(store, "SELECT DISTINCT run FROM @.items") == [(stays.row().run,)]


def judge_demo(root: Path, store: str | None, **more: Any) -> Result:
    return python.run("demo", strategy="listwise10x2", runs_dir=root, store=store, **more)


def csv(result: Result) -> str:
    return result.run.scores.read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The run in a folder."""
    return judge_demo(tmp_path_factory.mktemp("folder") / "runs", None)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """The same run in a store, and where its results were put."""
    store, root = new_store(), tmp_path_factory.mktemp("stored") / "runs"
    judge_demo(root, store)
    return store, root


def test_scores_are_those_of_a_folder_to_the_last_bit(
    folder: Result, stored: tuple[str, Path], tmp_path: Path
) -> None:
    store, root = stored
    (there,) = StoredRuns.at(store, root).all()
    assert there.id == folder.run.id
    assert [path.name for path in there.path.iterdir()] == ["scores.csv"]
    assert there.scores.read_text() == csv(folder)
    again = judge_demo(root, store)  # finished: nothing is asked
    assert again.totals.calls == folder.totals.calls
    opened = api.open_run("last", store=store, runs_dir=tmp_path)
    assert opened.evaluation == folder.evaluation
    assert not list(tmp_path.iterdir())  # reading writes nothing


def test_every_command_needs_only_the_address_and_a_name(
    folder: Result, stored: tuple[str, Path], tmp_path: Path
) -> None:
    at = ("--store", stored[0])
    name = folder.run.id[:9]
    status = json_of(tmp_path, "status", name, *at)
    assert (status["state"], status["run"]) == ("finished", folder.run.id)
    assert status["store"] == parse(stored[0]).label
    machines = status.pop("machines")
    assert not machines["leader"]["leads"]
    assert {worker["state"] for worker in machines["workers"]} == {"left"}
    (listed,) = json_of(tmp_path, "runs", *at)
    nothing = dict.fromkeys(("machines", "certainty"))
    assert listed == {**status, **nothing, "last_failure": listed["last_failure"]}
    judgeq(tmp_path, "show", "--write", name, *at)
    assert (tmp_path / "runs" / folder.run.id / "scores.csv").read_text() == csv(folder)
    assert json_of(tmp_path, "evaluate", *at, "--resamples", "10")["evaluation"]
    judgeq(tmp_path, "export", "last", *at, "--out", "judgments.jsonl")
    judgeq(tmp_path, "import", "-d", "demo", "judgments.jsonl", *at, "--quiet")
    compared = json_of(tmp_path, "compare", "demo-list", "demo-imp", *at, "--resamples", "0")
    assert {one["store"] for one in compared["runs"]} == {status["store"]}
    estimate = json_of(tmp_path, "estimate", "-d", "demo", "-s", "listwise10x2", *at)
    assert estimate["calls"] == 0
    json_of(tmp_path, "runs", "rm", "demo-imp", *at, "--yes")


def test_the_prompt_comes_from_the_store(store: str, tmp_path: Path) -> None:
    """On a machine that doesn't have it."""
    mine = tmp_path / "mine.toml"
    mine.write_text(Path("prompts/bias.toml").read_text().replace('"bias"', '"mine"'))
    judge_demo(tmp_path, store, prompt=str(mine))
    mine.unlink()
    prompt = session.resume(StoredRuns.at(store, tmp_path / "other").find("last"), {}).prompt
    assert prompt
    assert (prompt.name, prompt.pair) == ("mine", prompts.load("bias").pair)


TABLES = ["items", "subsets", "rounds", "jobs", "calls", "verdicts", "batches", "people", "checks"]


def tables(database: str) -> dict[str, list[Any]]:
    """All that a ledger holds, but for leases."""
    work = "worker, run, name, host, pid, since, seen, done, calls, tokens, hits, spent, at_risk"
    selected = {table: f"SELECT * FROM {table} ORDER BY 1, 2" for table in TABLES}
    selected["workers"] = f"SELECT {work} FROM workers ORDER BY 1"
    selected["lead"] = "SELECT epoch, holder FROM lead"
    with closing(sqlite3.connect(database)) as connection:
        return {name: connection.execute(sql).fetchall() for name, sql in selected.items()}


AS_KILLED = r"""
UPDATE jobs SET state = 'failed', attempts = 4, open = 2, at_risk = 7, unbounded = 1,
  error = 'was ''ist' || char(9) WHERE id = 3;
DELETE FROM verdicts WHERE job = 3;
INSERT INTO calls (run, job, attempt, outcome, input, cached, output, reasoning, cost, latency, reply,
  at, worker) VALUES (1, 3, 2, 'timeout', 5, 6, 7, 8, 0.1, 0.30000000000000004, 'ü\', 1.5, 1);
UPDATE workers SET calls = calls + 1, tokens = tokens + 26, spent = spent + 100000000, at_risk = 7;
INSERT INTO subsets SELECT 1, 'odd', zeroblob(count(*)) FROM items;
INSERT INTO workers (worker, run, name, until, at_risk) VALUES (2, 1, 'jq_-2', 9e999, 0),
  (3, 1, 'jq_-1', 9e999, 5);
INSERT INTO batches VALUES (1, 2, 0, 'openai', 'h', 'f', 1.5, 1, 0.5, 2.5, 'collected', 'r', 's', 1, 1,
  0, 2.5, NULL, 0.125, 1, NULL, NULL, NULL, 0, zeroblob(20)), (1, 3, 0, 'openai', 'h', 'f', 1.5, 1, NULL,
  2.5, 'sent', NULL, '', 1, 1, 0, NULL, 3.25, 0.0, 0, 'ü', 'results', 2.25, 3, x'05');
UPDATE jobs SET state = 'running', worker = 3, attempts = 2, open = 1, at_risk = 5 WHERE id = 5;
DELETE FROM verdicts WHERE job = 5;
UPDATE items SET gold = NULL WHERE row = 5;
INSERT INTO people VALUES (1, 0, 'Zoë', zeroblob(32), NULL, 'active', 1.5);
INSERT INTO checks SELECT 1, 0, items, 0, NULL, items, 'l', NULL, NULL, NULL, 0.1, 2.5 FROM jobs
  WHERE id = 3;
"""
"""What makes a finished run one as a killed run with a model leaves it."""


def test_a_run_is_copied_there_and_back_losing_nothing(
    folder: Result, store: str, tmp_path: Path
) -> None:
    shutil.copytree(folder.run.path, tmp_path / "runs" / folder.run.id)
    database = tmp_path / "runs" / folder.run.id / "run.db"
    with closing(sqlite3.connect(database)) as ledger:
        ledger.executescript(AS_KILLED)
    before = tables(str(database))
    json_of(tmp_path, "store", "copy", folder.run.id, "--to", store)
    (there,) = StoredRuns.at(store, tmp_path).all()
    assert there.info() == folder.run.info()
    ((spent, at_risk),) = sql(store, "SELECT sum(spent), sum(at_risk) FROM @.workers")
    assert (spent, at_risk) == (100_000_000, 7 + 5)
    batches = "SELECT name, at_risk FROM @.workers WHERE until = 'infinity' ORDER BY worker"
    assert sql(store, batches) == [("jq_-2", 0), ("jq_-1", 5)]
    refused = ended(tmp_path, "store", "copy", folder.run.id, "--to", store)
    assert (refused.returncode, "is there already" in refused.stderr) == (7, True)
    judgeq(tmp_path, "store", "copy", "--store", store, "--to", "back")
    assert tables(str(tmp_path / "back" / folder.run.id / "run.db")) == before
    for root, more in (("runs", ()), ("back", ()), ("stored", ("--store", store))):
        judgeq(tmp_path, "show", "--write", folder.run.id, "--runs-dir", root, *more)
    one, *others = (path.read_text() for path in sorted(tmp_path.glob("*/*/scores.csv")))
    assert others == [one, one]
    # It goes on there, once the batch gave its job back.
    sql(store, "DELETE FROM @.batches")
    sql(store, "UPDATE @.jobs SET state = 'pending' WHERE state = 'running'")
    result = api.resume(folder.run.id, runs_dir=tmp_path, store=store, retry_failed=True)
    assert (result.counts.failed, result.counts.left) == (0, 0)


@pytest.mark.long
@pytest.mark.parametrize("message", [1, 2])
def test_a_run_outlasts_the_loss_of_each_connection(tmp_path: Path, message: int) -> None:
    """Each of those that it makes one after the other is cut as it opens, or at its first statement, in
    a run of its own: before the database has that, or before its answer."""
    socket, cut, scores = unix_socket(), 0, set[str]()
    given = ("run", "-d", "demo", "--sample", "8", "-s", "pairwise2", "--quiet")
    # The first message says who connects.
    with Cutter(lambda: socket, lambda *at: at[:2] == (cut, message)).running() as cutter:
        while cutter.cuts >= cut - 1:  # nothing is cut in the first run, and in the last
            cutter.arm()
            folder = tmp_path / str(cut)
            folder.mkdir()
            done = ended(folder, *given, "--store", cutter.store(f"cut_{uuid.uuid4().hex}"))
            assert (done.returncode, done.stderr) == (0, ""), f"connection {cut}"
            (path,) = folder.rglob("scores.csv")
            scores.add(path.read_text())
            cut += 1
    assert cutter.cuts > 8
    assert len(scores) == 1


def test_a_run_that_is_worked_on_is_not_copied(
    store: str, there: StoredRuns, tmp_path: Path
) -> None:
    run = made(there)
    until = "extract(epoch FROM now()) + 60"
    sql(store, f"INSERT INTO @.workers (run, name, until) SELECT run, 'w', {until} FROM @.runs")
    with pytest.raises(RunError, match="worked on by 1 worker"):
        copy(run, run_places.FolderRuns(tmp_path))
    assert not list(tmp_path.glob("*/config.json"))
    sql(store, "UPDATE @.workers SET over = true")
    copied = copy(run, run_places.FolderRuns(tmp_path))
    assert copied.info() == run.info()
    with pytest.raises(UsageError, match="between a folder and a store"):
        copy(run, there)
