"""Several judges: who is asked what, what it costs, and what they say about one another."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from judgeq import config, prompts, seeds, trust
from judgeq.engine import import_run, results, session
from judgeq.engine.results import Result
from judgeq.errors import JudgeError, UsageError
from judgeq.evaluation.agreement import PanelAgreement, furthest_apart, of_run
from judgeq.evaluation.evaluate import evaluated
from judgeq.imports import recordings
from judgeq.judge import panel
from judgeq.judge.panel import copy_for_each, draw_judges
from judgeq.mock_server import MockServer
from judgeq.rating import (
    ESTIMATORS,
    Estimator,
    Fit,
    Parameters,
    plackett_luce,
    position_bias,
    ranks,
)
from judgeq.replies import write_reply
from judgeq.run_places import RunFolder
from judgeq.settings.mock_server import MockSettings
from judgeq.strategies import History
from judgeq.types import Match, Matches, Verdict, Verdicts
from tests import python
from tests.build import fit_map, verdicts
from tests.cli import execute, json_of, judgeq, only_run, query, scores
from tests.mock import mock
from tests.web import serving

TWO = ("simulated", "simulated")


def same(one: Result, other: Result) -> None:
    """Equal scores, bit by bit."""
    assert one.scores.ratings.keys() == other.scores.ratings.keys()
    for name, values in one.scores.ratings.items():
        assert_array_equal(values, other.scores.ratings[name])
    assert_array_equal(one.scores.wins, other.scores.wins)


def by_judge(run: Path, what: str = "count(*)") -> dict[int, float]:
    """Something summed over the calls of each judge."""
    rows = query(run, f"SELECT judge, {what} FROM calls JOIN jobs ON jobs.id = job GROUP BY judge")
    return {row[0]: row[1] for row in rows}


@st.composite
def some_matches(draw: st.DrawFn) -> tuple[Matches, int]:
    """Lists; or pairs in both orders, which stay together two by two."""
    if draw(st.booleans()):
        pairs = draw(st.lists(st.permutations(range(6)), max_size=8))
        flat = np.array([item for pair in pairs for item in pair[:2]], dtype=np.int32)
        offsets = np.arange(len(pairs) + 1, dtype=np.int64) * 2
        return position_bias.doubled(Matches(flat, offsets)), 2
    lists = draw(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), max_size=8))
    items = np.array([item for some in lists for item in some], dtype=np.int32)
    return Matches(items, np.cumsum([0, *map(len, lists)], dtype=np.int64)), 1


def told(matches: Matches) -> list[tuple[int, ...]]:
    return [tuple(items.tolist()) for items in matches]


@given(some_matches(), st.integers(2, 4), st.integers(0, 2**32))
def test_judges_are_drawn_equally_often_for_the_same_matches(
    case: tuple[Matches, int], judges: int, seed: int
) -> None:
    matches, unit = case
    assigned = draw_judges(matches, range(judges), seeds.rng(seed), unit)
    assert told(assigned) == told(matches)
    assert assigned.judges.dtype == np.int32
    couples = assigned.judges.reshape(-1, unit)
    assert (couples == couples[:, :1]).all()
    counts = np.bincount(couples[:, 0], minlength=judges)
    assert counts.max() - counts.min() <= 1
    assert len(counts) == judges


def orders(judges: int) -> list[np.random.Generator]:
    return [seeds.rng(0, "order", place) for place in range(judges)]


@given(some_matches(), st.integers(2, 4))
def test_each_is_asked_everything_one_after_another(case: tuple[Matches, int], judges: int) -> None:
    matches, unit = case
    found = copy_for_each(matches, range(judges), orders(judges), unit)
    kinds = [found.judges.dtype, found.items.dtype, found.offsets.dtype]
    assert kinds == [np.dtype(kind) for kind in ("i4", "i4", "i8")]
    every, couples = told(matches), range(len(matches) // unit)
    expected = [
        (number, every[unit * couple + place])
        for couple, number, place in product(couples, range(judges), range(unit))
    ]
    asked = [*zip(found.judges.tolist(), told(found), strict=True)]
    if unit == 2:
        assert asked == expected
    in_any_order = [(number, sorted(items)) for number, items in asked]
    assert in_any_order == [(number, sorted(items)) for number, items in expected]
    of_first = [row for row in asked if row[0] == 0]
    assert of_first == [row for row in expected if row[0] == 0]


def test_each_judge_sees_an_order_of_its_own() -> None:
    matches = Matches(np.arange(3000, dtype=np.int32), np.arange(0, 3001, 3))
    found = copy_for_each(matches, range(3), orders(3))
    first, second, third = np.moveaxis(found.items.reshape(1000, 3, 3), 1, 0)
    assert (np.sort(second) == np.sort(first)).all()
    every = [*permutations(range(3))]
    for one, another in ((first, second), (first, third), (second, third)):
        seen = (one[:, :, None] == another[:, None]).argmax(axis=1)  # where each text of one stands
        counts = [int((seen == order).all(axis=1).sum()) for order in every]
        assert sum(counts) == 1000
        assert max(abs(count - 1000 / 6) for count in counts) < 60, "some orders are favoured"


def test_a_further_judge_changes_no_question_of_those_before() -> None:
    matches = Matches(np.arange(40, dtype=np.int32), np.arange(0, 41, 4))
    two = copy_for_each(matches, range(2), orders(2))
    three = copy_for_each(matches, range(3), orders(3))
    of_both = [items for items, judge in zip(told(three), three.judges, strict=True) if judge < 2]
    assert of_both == told(two)


def test_a_run_whose_judges_saw_one_order_goes_on_as_it_was_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds that an older version planned stay as they are; those after them are in orders of their
    own."""

    def in_one_order(matches: Matches, judges: Any, *_: Any) -> Matches:
        twice = np.repeat(matches.items.reshape(-1, 10), 2, axis=0)
        offsets = np.arange(len(twice) + 1, dtype=np.int64) * 10
        return Matches(twice.reshape(-1), offsets, np.resize(judges, len(twice)).astype(np.int32))

    with monkeypatch.context() as patched:
        patched.setattr(panel, "copy_for_each", in_one_order)
        judges = ("--judge", "simulated", "--judge", "simulated", "--ensemble", "each")
        judgeq(tmp_path, "run", "demo", *judges, "-s", "listwise10x1")
    run = only_run(tmp_path)
    statement = "SELECT items FROM jobs WHERE round = %s ORDER BY id"
    before = query(run, statement % 1)
    assert before[::2] == before[1::2]
    judgeq(tmp_path, "resume", "last", "--rounds", "2")
    assert by_judge(run) == {0: 48, 1: 48}
    assert query(run, statement % 1) == before
    second = query(run, statement % 2)
    assert not any(one == other for one, other in zip(second[::2], second[1::2], strict=True))


def test_each_match_is_put_to_each_judge(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"judge": TWO, "ensemble": "each", "strategy": "listwise10x2"}
    whole = python.run("demo", **settings, runs_dir=tmp_path / "one", concurrency=1)
    assert whole.counts.done == 2 * 48
    assert by_judge(whole.run.path) == {0: 48, 1: 48}
    jobs = query(whole.run.path, "SELECT judge, items FROM jobs ORDER BY id")
    assert [number for number, _ in jobs] == [0, 1] * 48
    asked = [np.frombuffer(bytes(row[1]), np.int32) for row in jobs]
    for planned, turned in zip(asked[::2], asked[1::2], strict=True):
        assert sorted(planned) == sorted(turned)
        assert planned.tolist() != turned.tolist()
    said = [row[0] for row in query(whole.run.path, "SELECT ranking FROM verdicts ORDER BY job")]
    assert sum(a == b for a, b in zip(said[::2], said[1::2], strict=True)) < 10
    assert set(whole.scores.matches.tolist()) == {4}
    assert whole.cost_equivalent_calls == 2 * 240
    hurried = {"concurrency": 200, "sim_latency": 0.01}
    same(whole, python.run("demo", **settings, runs_dir=tmp_path / "two", **hurried))
    facts = whole.run.info().facts
    assert (facts["judge"]["name"], facts["ensemble"]) == (list(TWO), "each")
    # Alone, it is as if there never were others.
    alone: dict[str, Any] = {"strategy": "listwise10x2", "runs_dir": tmp_path / "three"}
    one = python.run("demo", **alone)
    facts = one.run.info().facts
    assert facts["judge"]["name"] == "simulated"
    assert not {"ensemble", "personas"} & facts.keys()
    assert (one.run.info().judges, by_judge(one.run.path)) == ((), {0: 48})
    assert python.run("demo", **alone, ensemble="each").run == one.run


def test_in_rotation_each_has_half_and_the_export_says_which(tmp_path: Path) -> None:
    result = python.run("demo", judge=TWO, runs_dir=tmp_path / "one")
    assert result.counts.done == 72
    assert by_judge(result.run.path) == {0: 36, 1: 36}
    assert result.run.info().judge == "simulated 1 + simulated 2"
    ids, rounds, judges = asyncio.run(results.judgments(result.run))
    lines = [*recordings.lines(recordings.of(rounds, judges), ids)]
    who = [json.loads(line)["judge"] for line in lines]
    assert sorted(who) == ["simulated 1"] * 36 + ["simulated 2"] * 36
    assert who != ["simulated 1", "simulated 2"] * 36
    file = tmp_path / "export.jsonl"
    file.write_text("".join(f"{line}\n" for line in lines))
    given = config.settle({"dataset": "demo"})
    folder, *_ = import_run.import_judgments(given, import_run.reading(file), tmp_path / "two")
    again = evaluated(asyncio.run(results.read(folder, folder.info().settings)))
    same(result, again)
    assert [one.measures for one in again.evaluation] == [one.measures for one in result.evaluation]
    assert folder.info().judges == tuple(dict.fromkeys(who))
    assert query(folder.path, "SELECT judge, count(*) FROM jobs GROUP BY 1") == [(0, 36), (1, 36)]
    ids, rounds, judges = asyncio.run(results.judgments(folder))
    assert [*recordings.lines(recordings.of(rounds, judges), ids)] == lines


def asked_of_models(root: Path, **settings: Any) -> tuple[Result, list[dict[str, Any]]]:
    """The result of a run of the demo with models, and what their server was asked."""
    server, asked = MockServer(MockSettings()), list[dict[str, Any]]()

    async def complete(request: web.Request) -> web.StreamResponse:
        asked.append(json.loads(await request.read()))
        return await server.complete(request)

    with serving(complete) as url:
        given = {"strategy": "listwise10x2", "prompt": "bias", "base_url": url, **settings}
        return python.run("demo", runs_dir=root, **given), asked


def test_personas_are_asked_in_their_own_words(tmp_path: Path) -> None:
    words = dict(prompts.load("bias").personas)
    chosen = ("journalist", "reader")
    result, asked = asked_of_models(tmp_path, judge="m", persona=chosen)
    assert {each["model"] for each in asked} == {"m"}
    systems = Counter(each["messages"][0]["content"] for each in asked)
    own = prompts.load("bias").system.strip()
    assert systems == {f"{words[name]}\n\n{own}": 24 for name in chosen}
    info = result.run.info()
    assert info.judges == ("m as journalist", "m as reader")
    assert info.facts["personas"] == [[name, words[name]] for name in chosen]

    result, asked = asked_of_models(tmp_path, judge="m", persona="linguist")
    assert all(each["messages"][0]["content"].startswith(words["linguist"]) for each in asked)
    assert result.counts.done == len(asked) == 48
    assert result.run.info().judge == "m as linguist"
    # Models and personas are combined.
    result, asked = asked_of_models(tmp_path, judge=("a", "b"), persona=chosen, ensemble="each")
    combined = Counter((each["model"], each["messages"][0]["content"]) for each in asked)
    assert set(combined.values()) == {48}
    assert len(combined) == 4


def test_what_a_persona_is_decides_the_run(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    words = 'name = "own"\nfeature = "zest"\nsystem = "s"\npair = "p"\nlist = "l"\ndirect = "d"\n'
    words += '[personas]\nx = "You are x."\ny = "You are y."\nz = "You are z."\n'
    own.write_text(words)

    def run(**settings: Any) -> str:
        given = {"dataset": "demo", "judge": "gpt-m", "prompt": str(own)} | settings
        return session.prepare(config.settle(given), tmp_path / "runs").folder.id

    personas = ("x", "y", ("x", "y"), ("y", "x"))
    ids = [run(), *(run(persona=some) for some in personas)]
    ids.append(run(persona=("x", "y"), ensemble="each"))
    assert len(set(ids)) == len(ids)
    own.write_text(words.replace("You are z.", "You are another."))
    assert [run(), run(persona="x"), run(persona=("x", "y"))] == [ids[0], ids[1], ids[3]]
    own.write_text(words.replace("You are y.", "You are another."))
    assert run(persona="x") == ids[1]
    assert run(persona="y") not in ids
    assert run(persona=("x", "y")) not in ids


FLAT = {"input": 1, "output": 1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"judge": ("gpt-m", "gpt-n", "gpt-m")}, r"--judge gpt-m is given twice.*--persona"),
        ({"judge": ("gpt-m", "simulated")}, "models and judges that are none"),
        ({"judge": "gpt-m", "persona": "poet"}, r"'poet': prompt set .* has no such persona; it h"),
        ({"judge": "gpt-m", "persona": ("reader", "reader")}, "--persona reader is given twice"),
        ({"persona": "reader"}, "--persona goes with a model"),
        ({"judge": TWO, "persona": "reader"}, "--persona goes with a model"),
        ({"judge": ("gpt-m", "simulate")}, "did you mean simulated"),
        ({"judge": TWO, "temperature": 1.0}, "--temperature: for a model"),
        ({"judge": (), "temperature": 1.0}, "--judge"),
        ({"judge": TWO, "ensemble": "vote"}, "--ensemble vote"),
        (
            {"judge": ("gpt-m", "gpt-n"), "max_cost": 1.0, "prices": {"gpt-m": FLAT}},
            "the price of gpt-n is unknown",
        ),
    ],
)
def test_judges_that_can_not_be_are_told(tmp_path: Path, given: dict[str, Any], said: str) -> None:
    settings = {"dataset": "demo", "prompt": "bias", **given}
    with pytest.raises(UsageError, match=said):
        session.prepare(config.settle(settings), tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


DOLLARS = {"a": (1.0, 10.0), "b": (3.0, 40.0)}


@pytest.fixture
def priced(tmp_path: Path) -> Path:
    """A configuration with two models and their prices."""
    path = tmp_path / "job.toml"
    text = 'dataset = "demo"\nprompt = "bias"\nstrategy = "listwise10x2"\ncache = false\n'
    for name, prices in DOLLARS.items():
        text += '[prices."{}"]\ninput = {}\noutput = {}\n'.format(name, *prices)
    path.write_text(text)
    return path


def spent(run: Path) -> float:
    """What the ledger's tokens cost by the two models' prices."""
    tokens_in, tokens_out = by_judge(run, "sum(input + cached)"), by_judge(run, "sum(output)")
    return sum(
        (tokens_in.get(number, 0) * reading + tokens_out.get(number, 0) * writing) / 1e6
        for number, (reading, writing) in enumerate(DOLLARS.values())
    )


def test_each_model_is_paid_by_its_price_and_the_cap_is_theirs_together(
    tmp_path: Path, priced: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        settings = config.settle({"judge": ("a", "b")}, priced)
        request = trust.requested_by(priced, settings, ["judge", "base_url"], sends=True)
        assert request is not None
        trust.agree_to(request)
    with mock(tmp_path, "--latency", "0.01") as url:
        job = ("run", "--config", priced, "--judge", "a", "--judge", "b", "--base-url", url)
        mine = (*job, "--max-output-tokens", "60", "--concurrency", "20", "--json")
        whole = json.loads(judgeq(tmp_path, *mine, "--runs-dir", "whole").stdout)
        run = RunFolder(tmp_path / "whole" / whole["run"])
        assert whole["calls"] == 48
        assert whole["cost"] == pytest.approx(spent(run.path))
        costs = by_judge(run.path, "sum(cost)")
        assert 2.5 * costs[0] < costs[1] < 5 * costs[0]

        cap = whole["cost"] / 2
        done = judgeq(tmp_path, *mine, "--max-cost", f"{cap:.6f}", expect=6)
        assert "the next call might exceed --max-cost" in done.stderr
        part = only_run(tmp_path)
        assert cap / 3 < spent(part) <= cap
        assert json.loads(done.stdout)["cost"] == pytest.approx(spent(part))
        more = json_of(tmp_path, "resume", "--max-cost", "1")
        assert more["jobs"]["done"] == 48
    assert scores(part) == scores(run.path)


BT, DIRECT = ESTIMATORS["bt"], ESTIMATORS["direct"]
TWO_FLAGS = ("--judge", "simulated", "--judge", "simulated")


def by(some: Verdicts, *judges: int) -> Verdicts:
    return replace(some, judges=np.array(judges, dtype=np.int32))


def agreed(
    main: Estimator, names: Sequence[str], n: int, *rounds: Verdicts, resamples: int = 0
) -> PanelAgreement:
    """How well the judges of these rounds over n items agree."""
    history = History.begin(n, None)
    for some in rounds:
        history.add(some)
    fit, items = Fit(np.zeros(n)), SimpleNamespace(ids=range(n))
    of = {"main": main, "judges": names, "history": history, "fit": fit, "scores": items}
    run: Any = SimpleNamespace(**of, said=None, parameters=Parameters(2.0))
    found = of_run(run, resamples, 0)
    assert found is not None
    return found


def test_the_ratings_of_a_judge_are_those_of_its_verdicts_alone() -> None:
    one = by(verdicts([(0, 1, 2), (1, 0, 2), (3, 1)]), 0, 1, 0)
    other = by(verdicts([(2, 3), (3, 2)]), 0, 1)
    found = agreed(BT, ["a", "b"], 5, one, other)
    mine = fit_map(verdicts([(0, 1, 2), (3, 1), (2, 3)]), 5, 2.0)
    assert_array_equal(found.ratings[0][:4], mine[:4])
    assert np.isnan(found.ratings[0][4])
    theirs = fit_map(verdicts([(1, 0, 2), (3, 2)]), 5, 2.0)
    assert_array_equal(found.ratings[1][:4], theirs[:4])
    assert [part.tolist() for part in found.components] == [[1, 1, 1, 1, 0]] * 2
    assert list(found.verdicts) == [3, 2]
    assert found.judged_by_several == 4  # 01, 02, 12 and 23


def test_evaluate_tells_of_each_judge_and_of_their_agreement(tmp_path: Path) -> None:
    judgeq(tmp_path, "run", "-d", "demo", *TWO_FLAGS, "--ensemble", "each", "--quiet")
    done = judgeq(tmp_path, "evaluate", "--resamples", "100")
    for words in ("pl by simulated 2", "Kendall's τ-b", "Krippendorff's α"):
        assert words in done.stdout
    assert re.search(r"simulated 1 +72", done.stdout)
    found = json_of(tmp_path, "evaluate", "--resamples", "100")
    ratings = {each["rating"]: each for each in found["evaluation"]}
    assert list(ratings) == [*("elo", "pl", "pl by simulated 1", "pl by simulated 2")]
    judges = found["judges"]
    assert (judges["names"], judges["verdicts"]) == (["simulated 1", "simulated 2"], [72, 72])
    assert judges["judged_by_several"] > 3000
    alpha = judges["krippendorff_alpha"]
    assert 0.4 < alpha["low"] < alpha["value"] < alpha["high"] < 0.8
    assert judges["kendall"][0][1] == judges["kendall"][1][0]


def test_of_many_judges_none_is_rated_alone_and_all_agree_or_not() -> None:
    """As in what thousands of people judged."""
    rankings = [(0, 1), (1, 2), (2, 3), (0, 3)]
    both = by(verdicts([rankings[at % 4] for at in range(40)]), *range(40))
    names = [f"w{number}" for number in range(40)]
    found = agreed(BT, names, 4, both)
    assert (found.names, found.others, found.judged_by_several) == ([], 40, 4)
    assert found.krippendorff_alpha.value == pytest.approx(1)


def test_a_judge_that_nobody_is_is_an_error_and_no_crash(tmp_path: Path) -> None:
    result = python.run("demo", judge=TWO, strategy="listwise10x1", runs_dir=tmp_path / "runs")
    execute(result.run.database, "UPDATE jobs SET judge = 7 WHERE id = 3")
    done = judgeq(tmp_path, "export", expect=7)
    assert "is damaged: it has an answer of judge 7, and there are 2" in done.stderr
    open_again = "UPDATE jobs SET state = 'pending' WHERE id = 3"
    execute(result.run.database, open_again, "DELETE FROM verdicts WHERE job = 3")
    with pytest.raises(JudgeError, match="match 3 is for judge 7, and there are 2"):
        session.execute(session.resume(result.run, {}), lambda _: None)


def by_length_or_number(asked: Any) -> str:
    """The answer of a model "length", which ranks texts by their length, or of any other model, which
    ranks them by the number in them."""
    texts = [text for _, text in prompts.texts_in(asked.content)]
    by_length = asked.model == "length"
    values = [float(len(text)) if by_length else float(text.split()[1]) for text in texts]
    match = Match(0, 1, tuple(range(len(texts))))
    order = sorted(match.items, key=lambda item: -values[item])
    return write_reply(Verdict(tuple(order)), match)


@pytest.fixture
def of_two_minds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server whose models disagree, and 60 texts that tell them apart."""
    lengths = seeds.rng(1, "lengths").permutation(60).tolist()
    rows = [f"text {number} {'x' * length}" for number, length in enumerate(lengths)]
    (tmp_path / "texts.txt").write_text("\n".join(rows))
    server = MockServer(MockSettings())
    monkeypatch.setattr(server.chat, "answer", by_length_or_number)
    with serving(server.complete) as url:
        yield url


@pytest.mark.parametrize("ensemble", ["each", "rotate"])
def test_judges_who_disagree_are_named_above_the_ranking(
    tmp_path: Path, of_two_minds: str, ensemble: str
) -> None:
    job = ["run", "texts.txt", "--feature", "x", "--base-url", of_two_minds, "--price", "0,0"]
    job += ["--ensemble", ensemble, "-s", "listwise10x3", "--judge", "words"]
    said = "length and words disagree ("
    shown = judgeq(tmp_path, *job, "--judge", "length")
    above, _ = " ".join(shown.stdout.split()).split(" rank 95 %")
    assert said in above
    assert "Kendall's τ " in above
    assert ("Krippendorff's α " in above) is (ensemble == "each")
    found = json_of(tmp_path, *job, "--judge", "length")
    assert said in found["cautions"][0]
    assert json_of(tmp_path, "evaluate", "--resamples", "0")["cautions"] == found["cautions"]
    for command in ("show", "status"):
        assert json_of(tmp_path, command)["cautions"] == found["cautions"]
    for screen in ("show", "status", "evaluate"):
        text = " ".join(judgeq(tmp_path, screen).stdout.split())
        most = 1000 if screen == "status" else 300  # below what the run is, above the ranking
        assert text.index(said) < most, f"{screen} doesn't begin with it"
        assert ("See `judgeq evaluate`" in text) is (screen != "evaluate")
    judgeq(tmp_path, "report", "--format", "md")
    report = (only_run(tmp_path) / "report.md").read_text()
    assert "length and words disagree" in report[: report.index("Reliability")]
    assert report.count("length and words disagree") == 1
    assert "no position bias was found" not in report
    if ensemble == "rotate":
        text = " ".join(judgeq(tmp_path, "evaluate").stdout.split())
        assert "they judged no questions in common; Kendall's τ between their scores -0" in text


def test_judges_who_agree_are_not_complained_of(tmp_path: Path, of_two_minds: str) -> None:
    job = ["run", "texts.txt", "--feature", "x", "--base-url", of_two_minds, "--price", "0,0"]
    judgeq(tmp_path, *job, "--judge", "words", "--judge", "others")
    assert json_of(tmp_path, "evaluate", "--resamples", "0")["cautions"] == []


@pytest.mark.parametrize("in_common", [True, False])
def test_noise_is_no_disagreement(in_common: bool) -> None:
    """Judges who differ by the noise of few answers alone are hardly ever called apart."""
    apart = 0
    for seed in range(40):
        rng = seeds.rng(seed, "noise")
        theta, ratings, rhos = rng.normal(0, 1.5, 80), [], []
        for _ in range(3):
            lists = [rng.permutation(80).reshape(-1, 10) for _ in range(3 if in_common else 1)]
            shown = np.concatenate(lists).astype(np.int32)
            utility = theta[shown] + rng.gumbel(size=shown.shape)
            ranked = np.take_along_axis(shown, np.argsort(-utility, axis=1), axis=1)
            fit = plackett_luce.fit(verdicts(ranked.tolist()), 80, Parameters(1.5))
            assert fit.posterior is not None
            ratings.append(fit.theta)
            rhos.append(ranks.reliability(fit.posterior.mean, fit.posterior.errors_apart))
        apart += furthest_apart(ratings, rhos)[0] is not None
    assert apart <= 4
