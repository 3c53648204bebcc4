"""How good scores are: evaluate and compare, from the arrays to the command line."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

from judgeq.engine.results import Result, read
from judgeq.errors import RunError, UsageError
from judgeq.evaluation import scale
from judgeq.evaluation.compare import Comparison, compare
from judgeq.evaluation.evaluate import Assessment, Evaluation, evaluate
from judgeq.evaluation.gold import Gold, Plan, gold_of
from judgeq.evaluation.metrics import Measured
from judgeq.rating import mixture
from judgeq.run_places import RunFolder
from judgeq.strategies import History
from judgeq.types import Floats
from judgeq.ui.dataclass_json import plain
from judgeq.ui.sections import terminal
from judgeq.ui.show import evaluation as sections
from tests.cli import json_of, judgeq, only_run, score_columns

pytestmark = pytest.mark.usefixtures("rated_once")

QUICK = Plan(resamples=100)
FEWER = Plan(resamples=0)
JOBS: Mapping[str, Sequence[str]] = {
    "demo": ("-d", "demo"),
    "seed": ("-d", "demo", "--seed", "1"),
    "direct": ("-d", "demo", "-s", "direct"),
    "babe": ("-d", "babe"),
    "few": ("-d", "synthetic:normal", "--n", "30", "-s", "listwise5"),
    "other": ("-d", "synthetic:normal", "--n", "30", "-s", "listwise5", "--seed", "1"),
}

Say = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run in a folder of each job's name."""
    path = tmp_path_factory.mktemp("evaluated")
    for name, job in JOBS.items():
        judgeq(path, "run", *job, "--quiet", "--runs-dir", f"{name}/runs")
    return path


@pytest.fixture
def say(folder: Path) -> Say:
    """The command line; a run is named by its job. Its judgments are halved twice: test_scale.py
    looks at what comes of it."""

    def run(*arguments: str, expect: int = 0) -> Any:
        words = [str(one(folder, word)) if word in JOBS else word for word in arguments]
        if words[0] == "evaluate" and "--splits" not in words:
            words += ["--splits", "2"]
        return judgeq(folder, *words, expect=expect)

    return run


def one(folder: Path, name: str) -> Path:
    return only_run(folder / name)


def scored(folder: Path, name: str) -> Result:
    run = RunFolder(one(folder, name))
    return asyncio.run(read(run, run.info().settings))


def own(run: Result, over: float | None = None) -> Gold:
    return gold_of(run.items.gold, "its run", over)


def with_scores(run: Result, **ratings: Floats) -> Result:
    return replace(run, scores=replace(run.scores, ratings=ratings))


def by_rating(rows: Sequence[Assessment]) -> dict[str, Assessment]:
    return {row.rating: row for row in rows}


def values(row: Assessment) -> dict[str, float | None]:
    return {name: found.value for name, found in row.measures.items()}


def evaluated(run: Result, gold: Gold, rows: Sequence[Assessment]) -> Evaluation:
    reliability, misfit = scale.reliability_of(run, splits=0), scale.misfit_of(run)
    return Evaluation(replace(run, evaluation=rows), QUICK, gold, reliability, misfit)


def test_intervals_depend_on_the_seed_and_on_nothing_else(folder: Path) -> None:
    run = scored(folder, "demo")
    gold = own(run, 2)
    first, again = evaluate(run, gold, QUICK), evaluate(run, gold, QUICK)
    assert [row.measures for row in first] == [row.measures for row in again]
    (alone,) = evaluate(run, gold, replace(QUICK, rating_name="pl"))
    assert alone.measures == by_rating(first)["pl"].measures
    (other,) = evaluate(run, gold, replace(QUICK, rating_name="pl", seed=1))
    assert values(other) == values(alone)
    assert other.measures["kendall"] != alone.measures["kendall"]


def test_a_subset_is_evaluated_as_if_it_were_all(folder: Path) -> None:
    run = scored(folder, "demo")
    half = np.arange(240) % 2 == 0
    split = replace(run, items=replace(run.items, subsets={"half": half}))
    gold = own(run, 2)
    rows = evaluate(split, gold, QUICK)
    named = [f"{row.items} {row.rating}" for row in rows]
    assert named == ["all elo", "all pl", "half elo", "half pl"]
    masked = gold_of(np.where(half, gold.values, np.nan), "half", 2)
    assert rows[3].measures == evaluate(run, masked, QUICK)[1].measures
    only = evaluate(split, gold, replace(QUICK, subset="half"))
    assert [row.measures for row in only] == [row.measures for row in rows[2:]]
    with pytest.raises(UsageError, match=r"--subset 'hal'.*'all', 'half'.*Did you mean 'half'"):
        evaluate(split, gold, replace(QUICK, subset="hal"))


def test_what_cannot_be_told_says_why(folder: Path) -> None:
    run = scored(folder, "demo")
    assert run.items.gold is not None
    n = len(run.items.ids)
    none, one = np.zeros(n) > 0, np.arange(n) == 0
    subsets = {"low": run.items.gold <= 2, "one": one, "\x1b[31mnone": none}
    odd = replace(run, items=replace(run.items, subsets=subsets))
    odd = with_scores(odd, elo=np.full(n, 1400.0), pl=run.scores.ratings["pl"])
    gold = own(run, 2)
    rows = {(row.items, row.rating): row for row in evaluate(odd, gold, QUICK)}
    for items, rating, name, why in (
        ("all", "elo", "pearson", "all scores are equal"),
        ("all", "elo", "precision", "no item is labelled positive"),
        ("low", "pl", "recall", "the gold is of one class only"),
        ("one", "pl", "kendall", "too few items (1) have both gold and score"),
    ):
        assert rows[items, rating].measures[name].why == why
    assert values(rows["all", "elo"])["auc"] == 0.5
    for row in rows.values():
        assert all(np.isfinite(value) for value in values(row).values() if value is not None)
        assert all(each.why for each in row.measures.values() if each.value is None)
    evaluation = evaluated(odd, gold, list(rows.values()))
    said = "\n".join(map(str, terminal(sections.evaluation(evaluation), 100)))
    assert "–" in said
    assert "the gold is of one class only (recall of elo over low" in " ".join(said.split())
    assert "\x1b" not in said
    json.dumps(plain(evaluation), allow_nan=False)


def test_all_commands_report_the_same_of_what_was_judged(tmp_path: Path) -> None:
    """Of 400 items 20 are judged, rightly: the others are in no number, and are counted."""
    gold = [0, 1] * 200
    rows = "".join(f"text {row},{label}\n" for row, label in enumerate(gold))
    (tmp_path / "my.csv").write_text(f"text,gold\n{rows}")
    lists = [[*range(at + 1, at + 10, 2), *range(at, at + 10, 2)] for at in (0, 10)]
    lists.append([9, 19, 0, 10])
    lines = [json.dumps({"presented": some, "ranking": some}) for some in lists]
    (tmp_path / "judged.jsonl").write_text("\n".join(lines))
    flags = ("-d", "my.csv", "--gold-column", "gold")
    imported = json_of(tmp_path, "import", *flags, "judged.jsonl")
    assert (imported["items"], imported["items_judged"]) == (400, 20)
    reported = {one["rating"]: one for one in imported["evaluation"]}
    assert list(reported) == ["elo", "pl"]
    for one in reported.values():
        assert (one["items"], one["n"], one["without_score"]) == ("all", 20, 380)
        found = {name: each["value"] for name, each in one["measures"].items()}
        assert (found["recall"], found["accuracy"], found["tp"]) == (1, 1, 10)
        assert found["spearman"] > 0.85
    rated = json_of(tmp_path, "show", "--write")
    assert rated["evaluation"] == imported["evaluation"]
    again = judgeq(tmp_path, "import", *flags, "judged.jsonl").stdout
    assert again.startswith("20 of 400 texts of my ranked")
    evaluated = json_of(tmp_path, "evaluate", "--resamples", "0")
    for row in evaluated["evaluation"]:
        known = reported[row["rating"]]
        assert known["measures"].items() <= row["measures"].items()
        assert (row["n"], row["without_score"]) == (known["n"], known["without_score"])


def test_which_gold_is_positive() -> None:
    nan, three = float("nan"), np.array([1.0, 2.0, 3.0])
    two, over = gold_of(np.array([3.0, nan, 1.0]), "x"), gold_of(three, "x", 1)
    np.testing.assert_array_equal(two.positive, [True, False, False])
    np.testing.assert_array_equal(over.positive, [False, True, True])
    assert gold_of(np.array([1.0, 1.0, nan]), "x").classes == "all gold labels are 1"
    assert "--positive-over" in gold_of(three, "x").classes
    for wrong in (3.0, 0.9, nan, float("inf")):
        with pytest.raises(UsageError, match=r"from 1 to 3"):
            gold_of(three, "x", wrong)
    for none in (None, np.full(3, nan)):
        with pytest.raises(UsageError, match=r"x has no gold labels. Give them with --gold FILE"):
            gold_of(none, "x")


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_gold_from_a_file_by_id(folder: Path, say: Say, form: str) -> None:
    from sklearn.metrics import f1_score  # type: ignore[import-untyped]

    columns = score_columns(one(folder, "demo"))
    labels = ["yes" if float(gold) > 2 else "no" for gold in columns["gold"][:100]]
    labels[3] = ""
    pairs = list(zip(columns["id"], labels, strict=False))
    rows = [json.dumps({"who": who, "what": label}) for who, label in pairs]
    if form == "csv":
        rows = ["who,what", *(f"{who},{label}" for who, label in reversed(pairs))]
    path = folder / f"labels.{form}"
    path.write_text("\n".join(rows))
    flags = ("--gold", path.name, "--id-column", "who", "--gold-column", "what", "--json")
    done = say("evaluate", "demo", *flags, "--gold-levels", "no,yes", "--resamples", "0")
    found = json.loads(done.stdout)
    assert (found["gold"]["source"], found["gold"]["classes"]) == (path.name, "gold = 1")
    pl = found["evaluation"][1]
    assert (pl["n"], pl["without_gold"]) == (99, 141)
    truth = [label == "yes" for label in labels if label]
    said = [float(cell) > 0 for cell, label in zip(columns["pl"], labels, strict=False) if label]
    assert pl["measures"]["f1"]["value"] == pytest.approx(f1_score(truth, said))


BY_ID = ("--id-column", "id")


@pytest.mark.parametrize(
    ("content", "flags", "words"),
    [
        ("id,gold\nx,1\n", BY_ID, "no row has a label of an item of the run. By column 'id'"),
        ("gold\n1\n", (), "no row has a label of an item of the run. By row number"),
        ("id,label\nA,1\n", BY_ID, "no column 'gold'; it has 'id', 'label'. Name the right one"),
        ("id,gold\nA,1\n", ("--id-column", "who"), "no column 'who'"),
        ("id,gold\nA,\n", BY_ID, "column 'gold': no row has a label"),
    ],
)
def test_a_gold_file_that_cannot_be(
    folder: Path, say: Say, content: str, flags: Sequence[str], words: str
) -> None:
    first = score_columns(one(folder, "demo"))["id"][0]
    (folder / "bad.csv").write_text(content.replace("A", first))
    done = say("evaluate", "demo", "--gold", "bad.csv", *flags, expect=3)
    assert "bad.csv" in done.stderr
    assert words in done.stderr
    assert done.stdout == ""


def test_a_mixture_threshold_never_sees_the_gold(folder: Path, say: Say) -> None:
    from sklearn.metrics import f1_score

    run = scored(folder, "babe")
    gold = own(run)
    plan = Plan(resamples=0, threshold="mixture", subset="all")
    rows = by_rating(evaluate(run, gold, plan))
    turned = by_rating(evaluate(run, gold_of(1 - gold.values, "turned"), plan))
    for rating, row in rows.items():
        cut = mixture.threshold(run.scores.ratings[rating])
        assert row.threshold == cut
        assert cut.value is not None
        said = run.scores.ratings[rating] > cut.value
        assert values(row)["f1"] == pytest.approx(f1_score(gold.positive, said))
        assert turned[rating].threshold == row.threshold
    flags = ("--threshold", "mixture", "--resamples", "0", "--splits", "0")
    shown = say("evaluate", "babe", *flags).stdout
    assert "the gold isn't used" in " ".join(shown.split())
    assert f"{mixture.threshold(run.scores.ratings['pl']).value:.5g}" in shown


def test_what_is_asked_wrongly_is_told(folder: Path, say: Say) -> None:
    (folder / "three.csv").write_text("gold\n" + "0\n" * 27 + "1\n" * 3)
    (folder / "labels.docx").write_text("gold\n1\n")
    best = ("--threshold", "mixture")
    over, three = ("--positive-over", "2"), ("--gold", "three.csv")
    same = ("--gold", "three.csv", "--gold-column", "id", "--id-column", "id")
    for code, words, *arguments in (
        (2, "each on a scale of its own", "evaluate", "demo", "--threshold", "3", *over),
        (2, "give default, mixture, or a", "evaluate", "demo", "--threshold", "bset"),
        (2, "give default, mixture, or a", "evaluate", "demo", "--threshold", "nan"),
        (2, "nothing is detected, since the gold has 6 values", "evaluate", "demo", *best),
        (2, "has 'elo', 'pl', not this", "evaluate", "demo", "--rating-name", "direct"),
        (2, "has 'direct', not this", "compare", "demo", "direct", "--rating-name", "pl"),
        (2, "'critical': the dataset has 'all'", "evaluate", "demo", "--subset", "critical"),
        (2, "the gold labels are from 0 to 5", "evaluate", "demo", "--positive-over", "5"),
        (2, "--gold-column is about a file", "evaluate", "demo", "--gold-column", "x"),
        (2, "--id-column is about a file", "compare", "demo", "seed", "--id-column", "x"),
        (2, "--gold-levels is about a file", "compare", "demo", "seed", "--gold-levels", "x"),
        (2, "--id-column and --gold-column are both 'id'", "evaluate", "demo", *same),
        (2, "two different labels", "evaluate", "demo", *three, "--gold-levels", "yes"),
        (2, "expected a file name that ends in", "evaluate", "demo", "--gold", "labels.docx"),
        (3, "gone.csv can't be read", "evaluate", "demo", "--gold", "gone.csv"),
        (2, "--csv gone/x.csv can't be written", "evaluate", "few", "--csv", "gone/x.csv"),
        (2, "--resamples", "evaluate", "demo", "--resamples", "-1"),
        (2, "name two runs or more", "compare", "demo"),
        (2, "Missing argument", "compare"),
        (7, "No runs yet in runs", "evaluate", "nosuch"),
        (7, "are not over the same items", "compare", "demo", "few"),
    ):  # fmt: skip
        done = say(*map(str, arguments), expect=int(str(code)))
        assert str(words) in " ".join(done.stderr.split()), (words, done.stderr)
        assert done.stdout == ""


def test_a_run_without_gold_is_evaluated_without(tmp_path: Path) -> None:
    (tmp_path / "plain.csv").write_text("text,n\n" + "".join(f"text {i},{i}\n" for i in range(12)))
    job = ("-d", "plain.csv", "-s", "listwise4", "--latent-column", "n", "--quiet")
    judgeq(tmp_path, "run", *job)
    said = judgeq(tmp_path, "evaluate", "--splits", "10").stdout
    assert "There are no gold labels" in said
    assert "median of 10 splits of the judgments" in " ".join(said.split())
    found = json_of(tmp_path, "evaluate", "--splits", "10")
    assert (found["evaluation"], found["gold"]) == ([], None)
    assert found["reliability"]["split_half"]["median"] > 0.5
    assert found["misfit"]["items"]["expected"] > 0
    for flags in (("--subset", "all"), ("--threshold", "mixture"), ("--positive-over", "2")):
        asked = judgeq(tmp_path, "evaluate", *flags, expect=2)
        assert "has no gold labels. Give them with --gold FILE" in asked.stderr


def test_differences_are_paired(folder: Path) -> None:
    one_run, other = scored(folder, "demo"), scored(folder, "seed")
    gold = own(one_run, 2)
    found = compare([one_run, other], QUICK, gold)
    (pl,) = found.others
    assert (pl.rating, found.rating, pl.n, pl.n_gold) == ("pl", "pl", 240, 240)
    x, y = one_run.scores.ratings["pl"], other.scores.ratings["pl"]
    before, after = (scipy.stats.kendalltau(some, gold.values).statistic for some in (x, y))
    kendall = pl.differences["kendall"]
    assert kendall.value == pytest.approx(after - before)
    # Of both runs' resamples together, less what chance in each alone makes of it.
    assert (kendall.low, kendall.high) == pytest.approx((-0.02784, 0.05101), abs=1e-5)
    assert pl.agreement["kendall"].value == pytest.approx(scipy.stats.kendalltau(x, y).statistic)
    assert pl.agreement["spearman"].value == pytest.approx(scipy.stats.spearmanr(x, y).statistic)
    single = [evaluate(run, gold, QUICK)[1].measures for run in (one_run, other)]
    assert [run.evaluation[0].measures for run in found.runs] == single


def test_a_clear_difference_is_marked(folder: Path) -> None:
    run = scored(folder, "demo")
    noise = np.random.default_rng(0).normal(size=240)
    found = compare([run, with_scores(run, pl=noise)], QUICK, own(run))
    (pl,) = found.others
    assert pl.differences["pearson"].zero_outside
    assert "pearson" in pl.zero_outside
    assert any("]*" in str(line) for line in terminal(sections.comparison(found)))
    constant = compare([run, with_scores(run, pl=np.zeros(240))], QUICK, own(run))
    (pl,) = constant.others
    assert pl.differences["pearson"] == Measured(None)
    assert pl.agreement["kendall"] == Measured(None, why="all scores are equal")


def test_runs_with_other_ratings_are_compared_by_their_main_ones(folder: Path) -> None:
    run, direct = scored(folder, "demo"), scored(folder, "direct")
    gold = own(run, 2)

    def pairs(found: Comparison) -> list[tuple[str, str]]:
        return [(each.rating, found.rating) for each in found.others]

    assert pairs(compare([run, direct], QUICK, gold)) == [("direct", "pl")]
    assert pairs(compare([direct, run], QUICK, gold)) == [("pl", "direct")]
    # Only what both have a score for is compared, with the same items drawn.
    scores = direct.scores.ratings["direct"].copy()
    scores[10:20] = np.nan
    found = compare([run, with_scores(direct, direct=scores)], QUICK, gold)
    assert [row.n for run in found.runs for row in run.evaluation] == [240, 230]
    (each,) = found.others
    assert each.n == each.n_gold == 230
    kept = ~np.isnan(scores)
    direct_rho, pl_rho = (
        scipy.stats.spearmanr(some[kept], gold.values[kept]).statistic
        for some in (scores, run.scores.ratings["pl"])
    )
    assert each.differences["spearman"].value == pytest.approx(direct_rho - pl_rho)


def test_items_in_another_order_are_matched_by_id(folder: Path) -> None:
    run, other = scored(folder, "demo"), scored(folder, "seed")
    order = np.random.default_rng(1).permutation(240)
    ids, gold = [other.items.ids[row] for row in order], np.asarray(other.items.gold)[order]
    mixed = replace(other, items=replace(other.items, ids=ids, gold=gold))
    ratings = {name: some[order] for name, some in other.scores.ratings.items()}
    scores = replace(other.scores, ratings=ratings)
    history, rows = History.begin(240, None), np.argsort(order).astype(np.int32)
    for some in other.history.verdicts:
        history.add(replace(some, items=rows[some.items], presented=rows[some.presented]))
    mixed = replace(mixed, scores=scores, history=history)
    plain, matched = (compare([run, each], QUICK, own(run, 2)) for each in (other, mixed))
    for one, same in zip(plain.others, matched.others, strict=True):
        for name, known in one.differences.items():
            found = same.differences[name]
            assert found.value == known.value
            assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=1e-6)
    assert compare([run, mixed], QUICK).notices == []


def test_runs_over_other_items_are_refused_or_told(folder: Path) -> None:
    run, other = scored(folder, "few"), scored(folder, "other")
    less = replace(run, items=replace(run.items, ids=[*run.items.ids[:29], "30"]))
    with pytest.raises(RunError, match=r"and .*: '29' is in .* only"):
        compare([run, less], QUICK)
    # Synthetic items have the same ids and another truth.
    (notice,) = compare([run, other], FEWER).notices
    assert "gold labels of run" in notice
    assert compare([run, other], replace(FEWER, gold=np.arange(30.0))).notices == []
    facts = replace(other, info=other.info.model_copy(update={"facts": {"dataset": "x"}}))
    assert any("are these the same items?" in each for each in compare([run, facts], FEWER).notices)
