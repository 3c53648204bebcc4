"""Models, keys and addresses; settings from flags and files; and what decides a run."""

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from judgeq import prompts
from judgeq.config import SESSION, Settings, as_flags, deciding_facts, fingerprint, settle
from judgeq.datasets import Dataset, load
from judgeq.errors import DataError, UsageError
from judgeq.judge.secrets import api_key, extra_headers, from_environment
from judgeq.settings.model import Access, Model
from judgeq.settings.run import DatasetSpec, Simulation


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("http://h/v1/chat/completions", "http://h/v1"),
        ("https://x.openai.azure.com/openai/v1?api-version=2", "https://x.openai.azure.com/openai/v1?api-version=2"),
        ("https://api.openai.com/v1/", None),
        (None, None),
    ],
)  # fmt: skip
def test_one_address_one_spelling(given: str | None, kept: str | None) -> None:
    model = Model(base_url=given)
    assert model.base_url == kept
    assert model.address_of("m") == kept or model.address_of("m") == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("localhost:8000", "give an address such as"),
        ("ftp://h/v1", "give an address such as"),
        ("http:///v1", "give an address such as"),
        ("https://me:secret@h/v1", "no user or password in the address"),
        ("https://h/v1?access_token=abc", "no key in the address"),
    ],
)
def test_addresses_that_can_not_be_kept(given: str, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        Model(base_url=given)


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, None),
        ({"max_output_tokens": 5}, 5),
        ({"extra_body": {"max_tokens": 7}}, 7),
        ({"extra_body": {"max_completion_tokens": 8}, "max_output_tokens": 5}, 8),
        ({"extra_body": {"max_tokens": 0}}, None),
        ({"extra_body": {"max_tokens": True}}, None),
        ({"extra_body": {"max_tokens": 2**63 - 1}}, None),
        ({"extra_body": {"max_tokens": -1}, "max_output_tokens": 5}, None),
    ],
)
def test_the_limit_of_output(given: dict[str, Any], limit: int | None) -> None:
    assert Model(**given).output_limit == limit


def test_a_key_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    path = tmp_path / "key"
    path.write_text("sk-file\n")
    assert api_key("m", Model(), Access(api_key_file=path)) == "sk-file"
    with pytest.raises(UsageError, match=r"--api-key-file .*none can't be read: No such file"):
        api_key("m", Model(), Access(api_key_file=tmp_path / "none"))


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"two words", b"a\nb", "schlüssel".encode(), b"\xff"]
)
def test_a_file_that_holds_no_key_is_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        api_key("m", Model(), Access(api_key_file=path))
    assert str(path) in str(caught.value)
    assert "words" not in str(caught.value)


def test_headers_with_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "t0ken\n")
    access = Access(headers=("X-Token: env:MY_TOKEN", "X-Plain:  a: b "))
    assert extra_headers(access) == {"X-Token": "t0ken", "X-Plain": "a: b"}
    with pytest.raises(UsageError, match="--header X names the environment variable NOT_THERE"):
        extra_headers(Access(headers=("X: env:NOT_THERE",)))
    assert from_environment("plain", "--x") == "plain"
    monkeypatch.setenv("BROKEN", "t0ken\nX-More: 1")
    with pytest.raises(UsageError, match=r"--header X: .* BROKEN holds control characters"):
        extra_headers(Access(headers=("X: env:BROKEN",)))


def test_a_key_in_the_place_of_a_variable_is_not_repeated() -> None:
    for given in ({"api_key_env": "sk-secret-1"}, {"headers": ("X: env:sk-secret-1",)}):
        with pytest.raises(UsageError) as caught:
            extra_headers(settle({"dataset": "demo", **given}))
        assert "variable" in str(caught.value)
        assert "secret" not in str(caught.value)


# Settings that decide the verdicts by themselves, and another value of each.
DECIDING: Mapping[str, Any] = {
    "strategy": "pairwise",
    "rounds": 2,
    "matchmaking": "similar",
    "judge": "another",
    "seed": 1,
    "both_orders": True,
    "reasons": True,
    "sim_model": "rrt",
    "sim_accuracy": 0.7,
    "sim_pmax": 0.95,
    "sim_distance": 80.0,
    "sim_spread": 50.0,
    "sim_biased_items": 3,
    "sim_bias": 100.0,
    "sim_position_bias": 20.0,
}
# Settings that decide what a model answers.
OF_A_MODEL: Mapping[str, Any] = {
    **dict.fromkeys(
        ("base_url", "openai_base_url", "anthropic_base_url"), "http://127.0.0.1:8000/v1"
    ),
    "api": "anthropic",
    "temperature": 0.0,
    "reasoning_effort": "low",
    "extra_body": {"top_k": 20},
    "structured": "json",
}
# Settings that choose the items, the prompt or who is asked, whose content then decides.
CHOOSING = {
    *DatasetSpec.model_fields,
    *("prompt", "feature", "persona", "ensemble", "onto", "other_prompt", "each", "name"),
} - SESSION
# Settings of a session, and another value of each.
OTHER_SESSION: Mapping[str, Any] = {
    # the run
    "keep_columns": True,
    "total_rounds": 9,
    "joined": (2,),
    "repeats": 0.05,
    "until": "0.9",
    "batch": True,
    "wait": False,
    "batch_size": 10,
    "max_invalid": 0.9,
    "check_reading": False,
    "concurrency": 1,
    # its ratings and where it is
    "rating": "bt-mm",
    "sigma": 1.0,
    "unbias_position": True,
    "refit": True,
    "texts": False,
    "split_models": True,
    "store": "postgresql://localhost/judgeq",
    "workers": 0,
    "standby": True,
    "sim_latency": 0.5,
    "anchors": Path("known.csv"),
    # how a model is reached, and what it may cost
    "api_key_env": "MY_KEY",
    "api_key_file": Path("key"),
    "headers": ("X-Team: blue",),
    "proxy": "http://proxy:3128",
    "ca_file": Path("ca.pem"),
    "timeout": 1.0,
    "rpm": 60.0,
    "tpm": 60.0,
    "max_cost": 1.0,
    "max_output_tokens": 100,
    "price": (1.0, 1.0, 1.0),
    "prices": {"m": {"input": 1, "output": 2}},
    "cache": False,
    "cache_dir": Path("cache"),
    # the page of people
    "host": "0.0.0.0",
    "port": 1,
    "url_prefix": "/study",
    "open_to_all": True,
}

BASE: Mapping[str, Any] = {"dataset": "synthetic:normal", "n": 20, "strategy": "listwise"}


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load(Settings(**BASE), seed=0)


def facts_of(dataset: Dataset, prompt: prompts.PromptSet | None = None, **changes: Any) -> Any:
    return deciding_facts(Settings(**{**BASE, **changes}), dataset, prompt)


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "my.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_flags_go_over_the_file_and_what_is_not_given_does_not(tmp_path: Path) -> None:
    text = 'dataset = "demo"\nseed = 3\nsim-spread = 5\nsim_accuracy = 0.7\n'
    path = written(tmp_path, text + 'gold_levels = ["low", "high"]\ndata_dir = "there"\n')
    settings = settle({"seed": 4, "sim_accuracy": None, "sim_latency": 0.0}, path)
    assert (settings.dataset, settings.seed, settings.sim_spread) == ("demo", 4, 5)
    assert (settings.sim_accuracy, settings.gold_levels) == (0.7, ("low", "high"))
    assert (settings.data_dir, settings.sim_latency) == (Path("there"), 0)


def test_a_dataset_is_needed() -> None:
    with pytest.raises(UsageError, match=r"No dataset is given \(--dataset\): name one"):
        settle({"seed": 1, "dataset": None})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sim_acuracy = 0.9", "there is no setting 'sim_acuracy'. Did you mean 'sim_accuracy'?"),
        ("seed = ", "is no valid TOML"),
        (f"seed = {'[' * 5000}{']' * 5000}", "nests too deep"),
        (f"extra_body = {{a = {'[' * 260}{']' * 260}}}", "can't be sent as JSON"),
        (b"dataset = '\xe9'", "is not UTF-8 (byte 11)"),
        ("seed = 'x'", "seed = 'x': give a whole number"),
        ("sim_accuracy = 0.4", "sim_accuracy = 0.4: give more than 0.5"),
        ("[sim_model]\nx = 1", "sim_model = {'x': 1}: give 'vg' or 'rrt'"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_file_and_key(
    tmp_path: Path, text: str | bytes, told: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(DataError) as caught:
        settle({"dataset": "demo"}, path)
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"seed": -1}, "--seed -1: give 0 or more"),
        ({"matchmaking": "best"}, "--matchmaking best: give 'similar' or 'random'"),
        ({"sim_accuracy": 0.9, "sim_pmax": 0.9}, "--sim-accuracy must be below --sim-pmax"),
        ({"seed": "x", "rating": "elo"}, "--seed x: "),
        *(({"delimiter": value}, "give one character") for value in ("", ";;", '"', "\n")),
        *(({"encoding": name}, "no such encoding") for name in ("", "utf-9", "hex", "a\0b")),
        ({"seed": "x", "rating": "elo"}, "; --rating elo: "),
    ],
)
def test_what_is_wrong_in_a_flag_is_told_with_the_flag(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        settle({"dataset": "demo", **given})


def test_every_setting_is_known_to_decide_or_not() -> None:
    """A new setting fails here until somebody says whether it makes another run."""
    kinds = [set(DECIDING), set(OF_A_MODEL), CHOOSING, set(SESSION)]
    assert set.union(*kinds) == set(Settings.model_fields)
    assert sum(map(len, kinds)) == len(Settings.model_fields)
    assert set(OTHER_SESSION) == SESSION
    defaults = Settings(dataset="x")
    for name, other in {**DECIDING, **OF_A_MODEL, **OTHER_SESSION}.items():
        assert getattr(defaults, name) != other


def test_what_decides_makes_another_run(dataset: Dataset) -> None:
    whole = [*DECIDING.items(), ("strategy", "listwise9"), ("strategy", "listwise10:overlap=3")]
    whole += [("strategy", f"streak:r={r}") for r in (4, 5)]
    found = [fingerprint(facts_of(dataset, **{name: other})) for name, other in whole]
    assert len({*found, fingerprint(facts_of(dataset))}) == len(whole) + 1


def test_what_decides_a_models_answers_makes_another_run(dataset: Dataset) -> None:
    facts = facts_of(dataset, judge="m")
    for name, other in OF_A_MODEL.items():
        changed = facts_of(dataset, judge="m", **{name: other})
        assert fingerprint(changed) != fingerprint(facts)
        assert changed["judge"][name] == other
        assert name not in facts["judge"]  # a setting to come makes no other run of this one


@pytest.mark.parametrize("judge", ["simulated", "m"])
def test_what_is_of_the_session_makes_no_other_run(dataset: Dataset, judge: str) -> None:
    facts = facts_of(dataset, judge=judge)
    for name, other in OTHER_SESSION.items():
        asked = (judge, "m2") if name == "joined" else judge
        assert facts_of(dataset, judge=asked, **{name: other}) == facts, name


def test_what_people_read_decides_where_they_are_asked(dataset: Dataset) -> None:
    prompt = prompts.load("bias")
    other = prompt.model_copy(update={"people": (("pair", "Which?"),)})
    assert facts_of(dataset, prompt) == facts_of(dataset, other)
    assert facts_of(dataset, prompt, judge="people") != facts_of(dataset, other, judge="people")
    facts = facts_of(dataset, other, judge="people")
    assert prompts.of_facts(facts) == other.model_copy(update={"personas": ()})


SECRET = "hunter22-very-secret"


@pytest.mark.parametrize(
    "given",
    [
        {"headers": (f"X Bad: {SECRET}",)},
        {"proxy": f"socks5://me:{SECRET}@proxy:1"},
        {"base_url": f"https://me:{SECRET}@h/v1"},
        {"base_url": f"https://h/v1?api-key={SECRET}"},
    ],
)
def test_what_may_hold_a_key_is_not_repeated(tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        settle({"dataset": "demo", **given})
    assert SECRET not in str(caught.value)
    ((name, value),) = given.items()
    value = list(value) if isinstance(value, tuple) else value
    path = written(tmp_path, f"{name} = {value!r}")
    with pytest.raises(DataError) as told:
        settle({"dataset": "demo"}, path)
    assert SECRET not in str(told.value)
    assert name in str(told.value)


@pytest.mark.parametrize(
    "given",
    [
        {"price": (1e308, 1.0)},
        {"prices": {"m": {"input": 1, "output": 1, "batch": {"input": 1, "output": 1e300}}}},
        {"max_output_tokens": 2**63 - 1},
    ],
)
def test_numbers_that_no_sum_could_hold_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"give [\d,]+ or less"):
        settle({"dataset": "demo", **given})


def test_only_what_holds_no_secret_is_kept_on_disk() -> None:
    named = ("X-Named:env:VAR", "X-Other: env:OTHER")
    for proxy, kept in ((f"http://me:{SECRET}@p:1", None), ("http://p:1", "http://p:1")):
        settings = settle(
            {"dataset": "demo", "headers": (f"X-Key: {SECRET}", *named), "proxy": proxy}
        ).kept()
        assert (settings.headers, settings.proxy) == (named, kept)
        assert SECRET not in settings.model_dump_json()


def test_items_and_prompt_decide_by_what_they_hold(dataset: Dataset) -> None:
    bias = prompts.load("bias")
    relabelled = replace(dataset, gold=np.arange(len(dataset), dtype=np.float64))
    others = [dataset, replace(dataset, known_as="other items"), relabelled]
    asked = [bias, *(prompts.load("generic", feature) for feature in ("zest", "zeal"))]
    changes: list[dict[str, Any]] = [{"pair": bias.pair + " "}, {"ties": True}]
    asked += [bias.model_copy(update=change) for change in changes]
    facts = [*map(facts_of, others), *(facts_of(dataset, prompt) for prompt in asked)]
    assert len({fingerprint(each) for each in facts}) == len(facts)
    same = replace(dataset, source="elsewhere", licence="?", notices=("!",), name="renamed")
    assert facts_of(same) == facts_of(dataset)


def test_a_judge_that_reads_never_sees_the_labels(dataset: Dataset) -> None:
    relabelled = replace(dataset, gold=np.arange(len(dataset), dtype=np.float64))
    assert facts_of(relabelled, judge="m") == facts_of(dataset, judge="m")
    for name in Simulation.model_fields:
        changed = facts_of(dataset, judge="m", **{name: DECIDING[name]})
        assert changed == facts_of(dataset, judge="m")


def test_the_same_strategy_written_otherwise_is_the_same_run(dataset: Dataset) -> None:
    for same in ({"strategy": "listwise10x3"}, {"strategy": "listwise:k=10"}, {"rounds": 3}):
        assert facts_of(dataset, **same) == facts_of(dataset)


def test_fingerprints_are_the_same_in_every_version(dataset: Dataset) -> None:
    """With another fingerprint a command would not find the run that it began."""
    odd = fingerprint({"b": [1, 0.5, None, True, "ü"], "a": {"d": 1, "c": 2}})
    assert odd == "187a1bf325bf71215fe5b171930cc8fdf69890f6b394da6348ea92a209387b2d"
    usual = fingerprint(facts_of(dataset))
    assert usual == "70d3c589250779784b49f21fd4c6090e3cc92dfd7c6c7bb4deed99a60e8167ea"


@pytest.mark.parametrize(
    ("name", "value", "flags"),
    [
        ("merge_duplicates", True, ["--merge-duplicates"]),
        ("cache", False, ["--no-cache"]),
        ("unbias_position", False, ["--no-unbias-position"]),
        ("wait", False, ["--no-wait"]),
        ("judge", ("a", "b c"), ["--judge", "a", "--judge", "b c"]),
        ("gold_levels", ("low", "high"), ["--gold-levels", "low,high"]),
        ("price", (0.25, 2.0), ["--price", "0.25,2.0"]),
        ("total_rounds", 4, ["--rounds", "4"]),
        ("max_cost", None, ["--max-cost", "…"]),
    ],
)
def test_settings_are_said_as_flags(name: str, value: object, flags: list[str]) -> None:
    assert [*as_flags(name, value)] == flags
