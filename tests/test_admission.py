"""What a worker takes of a run in a store, and what is its own: the database may be a stranger's."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from judgeq import config, trust
from judgeq.config import Settings
from judgeq.engine import admission
from judgeq.engine.assembly import Run
from judgeq.errors import DataError, JudgeqError, RunError, UsageError
from judgeq.run_places import RunFolder
from tests import test_trust
from tests.test_trust import EVENTS, watched
from tests.test_trust import state as state  # noqa: PLC0414  (a fixture)


def table(folder: Path, name: str = "texts.csv", *texts: str) -> Path:
    path = folder / name
    rows = texts or ("one", "two", "three")
    path.write_text("text,secret,label\n" + "".join(f"{row},x,{len(row)}\n" for row in rows))
    return path


def begun(root: Path, **settings: Any) -> RunFolder:
    """A run that another user began."""
    place = test_trust.begun(root, **{"strategy": "pairwise1"} | settings)
    test_trust.forget(root.parent)
    assert isinstance(place, RunFolder)
    return place


Own = tuple[Settings, Sequence[Path]]


def own(*datasets: Path, **given: Any) -> Own:
    """What is the worker's own."""
    return config.settle({"dataset": "demo", **given}), datasets


def admit(place: RunFolder, mine: Own, **how: Any) -> Run:
    return admission.admit(place, *mine, **how)


def changed(place: RunFolder, facts: Any = None, **settings: Any) -> RunFolder:
    """As somebody who can write to the database would change the run."""
    path = place.path / "config.json"
    values = json.loads(path.read_text())
    values["settings"] |= settings
    values["facts"] |= facts or {}
    values["fingerprint"] = config.fingerprint(values["facts"])
    path.write_text(json.dumps(values))
    return place


def refused(place: RunFolder, mine: Own, **how: Any) -> str:
    """What is said of a run that isn't worked on, of which nothing was opened or sent."""
    with watched(), pytest.raises(JudgeqError) as caught:
        admit(place, mine, **how)
    known = ("judgeq/", "/lib/python", str(place.path))
    assert not [what for _, what in EVENTS if not any(one in what for one in known)]
    return str(caught.value)


def test_what_decides_the_result_is_the_runs_and_all_else_the_workers(tmp_path: Path) -> None:
    theirs = {"api_key_env": "HOME", "headers": ("X-Stolen: env:HOME",), "max_cost": 1e9}
    theirs |= {"proxy": "http://evil.example", "ca_file": tmp_path / "ca.pem", "timeout": 1e9}
    theirs |= {"cache_dir": tmp_path / "theirs", "price": (0.0, 0.0), "concurrency": 9999}
    judged = {"judge": ("gpt-5-mini",), "temperature": 0.3, "max_output_tokens": 50}
    place = begun(tmp_path / "runs", **theirs, **judged, prompt="bias", max_invalid=1.0)
    mine = own(judge=("gpt-5-mini", "simulated"), max_cost=2.0, cache_dir=tmp_path / "mine")
    run = admit(place, mine)
    decided = ("judge", "temperature", "max_output_tokens", "seed", "persona")
    for name in Settings.model_fields:
        value = getattr(run.settings, name)
        if name in decided:
            assert value == getattr(place.info().settings, name), name
        elif name in (*trust.OF_MODELS, *config.SESSION, "data_dir"):
            assert value == getattr(mine[0], name), name
    assert admit(place, own(judge="gpt-5-mini", max_output_tokens=9)).settings.output_limit == 9
    assert run.settings.prompt is None  # its words come with the run, and no file is read
    prompt, pricing = run.prompt, run.pricing["gpt-5-mini"]
    assert prompt
    assert prompt.name == "bias"
    assert pricing
    assert pricing.bound(1000, 1000) > 0


GPT, CLAUDE, OF_GROQ = ({"judge": (name,)} for name in ("gpt-a", "claude-haiku-4-5", "groq/m"))
HERE = {"base_url": "http://127.0.0.1:1/v1"}
GROQ = "https://api.groq.com/openai/v1"
ANOTHER = f"--base-url {GROQ} --api openai model m --extra-body '{{}}', and this worker has another"
ITS_BODY = "--extra-body '{}', and this worker has another --extra-body."


@pytest.mark.parametrize(
    ("given", "mine", "said"),
    [
        ({"judge": ("gpt-5-mini",)}, {}, "--judge gpt-5-mini"),
        ({"judge": ("gpt-a", "gpt-b")}, GPT, "--judge gpt-b"),
        (GPT | {"base_url": "http://evil.example/v1"}, GPT, "--base-url"),
        (GPT, GPT | HERE, "--base-url https://api.openai.com/v1"),
        (GPT | {"extra_body": {"store": True}}, GPT, """--extra-body '{"store":true}'"""),
        (GPT | {"api": "anthropic"}, GPT, "--api anthropic"),
        (GPT, GPT | {"api": "anthropic"}, "--base-url https://api.openai.com"),
        (CLAUDE, CLAUDE | HERE, "--base-url https://api.anthropic.com/v1 --api anthropic"),
        (OF_GROQ, OF_GROQ | HERE, f"{ANOTHER} --base-url and model."),
        (OF_GROQ | {"base_url": GROQ}, OF_GROQ, f"--base-url {GROQ} --api openai"),
        (GPT, GPT | {"extra_body": {"x": 1}}, ITS_BODY),
    ],
)
def test_judges_and_servers_are_the_workers_own(
    tmp_path: Path, given: Any, mine: Any, said: str
) -> None:
    place = begun(tmp_path / "runs", **given)
    assert said in refused(place, own(**mine))


@pytest.mark.parametrize("judges", [("people",), ("simulated", "people")])
def test_a_run_that_asks_people_is_its_own_processs(tmp_path: Path, judges: list[str]) -> None:
    options = {"feature": "size", "dataset": str(table(tmp_path)), "gold_column": "label"}
    place = begun(tmp_path / "runs", judge=judges, ensemble="each", **options)
    assert "its own process does all" in refused(place, own(judge=judges, feature="size"))


def test_a_named_runs_models_may_be_asked_at_another_server(tmp_path: Path) -> None:
    place = begun(tmp_path / "runs", judge=("gpt-a",), base_url="http://node-1:8000/v1")
    mine = own(judge=("gpt-a",), base_url="http://127.0.0.1:8000/v1")
    assert "name the run" in refused(place, mine)
    assert admit(place, mine, named=True).settings.base_url == "http://127.0.0.1:8000/v1"
    assert "--base-url" in refused(place, own(judge=("gpt-a",)), named=True)


def test_texts_come_from_a_file_of_the_worker_with_the_same_content(tmp_path: Path) -> None:
    first = begun(tmp_path / "runs", dataset=str(table(tmp_path)), gold_column="label")
    (tmp_path / "here").mkdir()
    other = table(tmp_path / "here", "other.csv", "not", "these")
    same = table(tmp_path / "here", "same.csv")
    assert list(admit(first, own(other, same)).dataset.texts or ()) == ["one", "two", "three"]
    with pytest.raises(DataError, match=r"other\.csv: its texts, ids or labels are not those"):
        admit(first, own(other))
    assert "--dataset FILE" in refused(first, own())


def test_no_path_and_no_column_of_a_stranger_is_read(tmp_path: Path) -> None:
    mine = table(tmp_path)
    place = begun(tmp_path / "runs", dataset=str(mine), gold_column="label")
    secret = table(tmp_path, "secret.csv", "password", "hunter2")
    for given in ({"dataset": str(secret)}, {"dataset": "-"}, {"dataset": "/dev/stdin"}):
        assert "--dataset FILE" in refused(changed(place, **given), own())
    changed(place, dataset=str(mine), text_column="secret")
    with pytest.raises(DataError, match="are not those of the run"):
        admit(place, own(mine))
    demo = changed(begun(tmp_path / "runs"), data_dir=str(tmp_path))
    assert admit(demo, own()).settings.data_dir is None


def test_what_the_store_says_of_a_run_must_agree(tmp_path: Path) -> None:
    place = begun(tmp_path / "runs", judge=("gpt-a",), prompt="bias")
    with pytest.raises(RunError, match="its judge here and in the store differ"):
        admit(changed(place, temperature=1.5), own(judge=("gpt-a",)))
    path = place.path / "config.json"
    path.write_text(path.read_text().replace("Which", "Whose"))
    mine = own(judge=("gpt-a",))
    assert "doesn't agree" in refused(place, mine)
    another = begun(tmp_path / "others", judge=("gpt-a",))
    with pytest.raises(UsageError, match="no such persona"):
        admit(changed(another, persona=["pirate"]), mine)
    for facts in ({"prompt": "x"}, {"prompt": {"name": "x"}}, {"personas": 5}):
        with pytest.raises(RunError, match="an invalid prompt set"):
            admit(changed(another, facts), mine)
