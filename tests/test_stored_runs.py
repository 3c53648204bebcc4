"""Runs in a PostgreSQL store: everything that works on a run's folder works on them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from judgeq import runs
from judgeq.datasets import Dataset
from judgeq.errors import RunError, UsageError
from judgeq.runs import RunInfo
from judgeq.runs.stored import StoredRun, StoredRuns
from judgeq.store.postgres import runs as rows
from judgeq.store.postgres.address import in_schema, parse
from tests.postgres import new_store, server
from tests.test_runs import PRINT, info

ME = ("--store", "postgresql://me:secret@127.0.0.1:9/nowhere")


@pytest.fixture
def store() -> str:
    return new_store()


@pytest.fixture
def there(store: str, tmp_path: Path) -> StoredRuns:
    return StoredRuns.at(store, tmp_path / "runs")


def execute(store: str, statement: str, *values: object) -> list[Any]:
    address = parse(store)
    query: Any = in_schema(statement, address.schema)
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        done = connection.execute(query, values)
        return done.fetchall() if done.description else []


def made(there: StoredRuns, fingerprint: str = PRINT, new: bool = False) -> StoredRun:
    run = there.place("demo", fingerprint, new)
    run.write_info(info(fingerprint), None)
    return run


# Their places


def test_runs_are_made_named_and_listed_as_in_folders(store: str, there: StoredRuns) -> None:
    assert there.all() == []
    run = there.place("demo list/../x", PRINT, new=False)
    assert (run.id, run.exists, run.begun) == ("demo-list-..-x-0123456789", False, False)
    assert execute(store, "SELECT to_regclass('@.runs')") == [(None,)]  # nothing was written

    first = made(there)
    assert (first.exists, first.info(), first.is_running()) == (True, info(), False)
    assert there.place("demo", PRINT, new=False) == first
    second = made(there, new=True)
    assert second.id == f"{first.id}-2"
    assert there.place("demo", PRINT, new=False) == second
    execute(store, "UPDATE @.runs SET touched = now() + interval '1 s' WHERE name = %s", first.id)
    assert [run.id for run in there.all()] == [first.id, second.id]
    assert there.find("last") == first
    assert there.find(second.id) == second
    with pytest.raises(RunError, match="begins 2 runs"):
        there.find("demo-0123")
    with pytest.raises(RunError, match="there is no run 'zzz'"):
        there.find("zzz")
    execute(store, "UPDATE @.runs SET fingerprint = 'x' WHERE name = %s", first.id)
    with pytest.raises(RunError, match="another run"):
        there.place("demo", PRINT, new=False)


def test_of_several_that_make_a_run_at_once_one_does(there: StoredRuns) -> None:
    run = there.place("demo", PRINT, new=False)
    infos = [info().model_copy(update={"judgeq": str(number)}) for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run.write_info, infos))
    (there_is,) = there.all()
    assert there_is.info() in infos


def test_a_run_that_is_led_is_running(store: str, there: StoredRuns) -> None:
    run = made(there)
    lead = "INSERT INTO @.lead SELECT run, 1, 'me', now() + interval '{}' FROM @.runs"
    execute(store, lead.format("1 min"))
    assert run.is_running()
    execute(store, "UPDATE @.lead SET until = now()")
    assert not run.is_running()


def test_a_strangers_rows_lead_nowhere(store: str, there: StoredRuns) -> None:
    run = made(there)
    insert = "INSERT INTO @.runs (name, fingerprint, info) VALUES (%s, 'x', '{}')"
    for name in ("../../etc", "/tmp/x", ".hidden", "a\nb", "x" * 300, ""):
        execute(store, insert, name)
    assert there.all() == [run]
    execute(store, insert, "odd")
    with pytest.raises(RunError, match="#odd can't be read: judgeq: Field required"):
        there.find("odd").info()


# Addresses


def test_a_password_is_nowhere_shown(tmp_path: Path) -> None:
    there = StoredRuns.at(f"{ME[1]}?sslpassword=secret2&application_name=x", tmp_path)
    run = StoredRun(there.address, "demo", tmp_path)
    shown = [run.shown, run.ledger, run.config, run.argument, run.identity, repr(run), there.shown]
    with pytest.raises(RunError) as raised:
        there.all()
    for text in (*shown, str(raised.value), str(run.facts())):
        assert "secret" not in text
    shown = "postgresql://me@127.0.0.1:9/nowhere?application_name=x"
    assert run.argument == f"demo --store {shown}"
    assert parse(shown).shown == shown


def test_identities_are_those_of_places(tmp_path: Path) -> None:
    addresses = ["", "?schema=a", "?dbname=other", "?hostaddr=10.0.0.1", "?service=x"]
    places = [
        StoredRun(parse(f"postgresql://h/d{end}"), name, tmp_path)
        for end in addresses
        for name in ("a", "b")
    ]
    assert len({place.identity for place in places}) == len(places)
    with_password = replace(places[0], address=parse("postgresql://:secret@h/d"))
    assert with_password.identity == places[0].identity


@pytest.mark.parametrize("address", ["mysql://x/y", "postgresql://h/d?schema=a-b", "runs"])
def test_what_is_no_address_is_a_usage_error(address: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--store"):
        runs.runs_in(tmp_path, address)


def test_without_the_right_to_make_a_schema_it_says_what_to_do(there: StoredRuns) -> None:
    role = f"r_{there.address.schema}"
    admin = psycopg.connect(server(), autocommit=True)
    with admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")
    joint = "&" if "?" in server() else "?"
    theirs = StoredRuns.at(
        f"{server()}{joint}user={role}&schema={there.address.schema}", there.root
    )
    with pytest.raises(RunError, match="CREATE SCHEMA"):
        made(theirs)
    with psycopg.connect(server(), autocommit=True) as admin:
        statement: Any = f'CREATE SCHEMA "{there.address.schema}" AUTHORIZATION {role}'
        admin.execute(statement)
    assert made(theirs).exists  # CREATE on the schema is enough
    with psycopg.connect(server(), autocommit=True) as admin:
        for statement in (f"DROP OWNED BY {role}", f"DROP ROLE {role}"):
            admin.execute(statement)


# Texts that are shared


def test_shared_texts_come_back_and_others_are_refused(store: str, there: StoredRuns) -> None:
    run = there.place("demo", PRINT, new=False)
    dataset = Dataset("d", ["a", "b"], ["one\ttab\\", "zwei\nü"], "here")
    run.write_info(info().model_copy(update={"shared": dataset.shared}))
    assert run.dataset() is None
    run.share(dataset)
    run.share(dataset)  # once is enough
    number = run.row().run
    for row, name in enumerate(dataset.ids):
        execute(store, "INSERT INTO @.items VALUES (%s, %s, %s, NULL)", number, row, name)
    kept = run.dataset()
    assert kept is not None
    assert (kept.texts, kept.ids) == (dataset.texts, dataset.ids)
    execute(store, "UPDATE @.texts SET text = 'ein' WHERE row = 0")
    with pytest.raises(RunError, match="not those that the run was begun with"):
        run.dataset()


def test_a_text_that_postgresql_cannot_keep_is_named(there: StoredRuns) -> None:
    run = made(there)
    for text in ("a\0b", "\ud800"):
        with pytest.raises(RunError, match="text of row 1 can't be kept"):
            run.share(Dataset("d", ["a", "b"], ["one", text], "here"))
    assert not run.row().texts


# Taken out


def test_a_run_is_dropped_unless_somebody_leads_it(
    store: str, there: StoredRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "BLOCK", 2)
    gone, stays = made(there), made(there, new=True)
    for run in (gone, stays):
        execute(
            store,
            "INSERT INTO @.items SELECT %s, row, 'i' || row, NULL FROM generate_series(0, 4) row",
            run.row().run,
        )
    execute(
        store,
        "INSERT INTO @.lead SELECT run, 7, 'a machine', now() + interval '1 min' FROM @.runs",
    )
    with pytest.raises(RunError, match="led by a machine"):
        rows.drop(there.address, gone.row())
    assert len(execute(store, "SELECT * FROM @.items")) == 10
    assert rows.drop(there.address, gone.row(), force=True) == 7
    assert there.all() == [stays]
    assert execute(store, "SELECT DISTINCT run FROM @.items") == [(stays.row().run,)]


def test_what_is_kept_says_nothing_of_the_store() -> None:
    text = info().model_dump_json()
    assert "store" not in text
    assert "shared" not in text
    assert RunInfo.model_validate_json(text) == info()
