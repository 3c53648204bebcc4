"""One sitting, in this process: what is told, what is refused before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from judgeq import config
from judgeq.engine import session
from judgeq.engine.assembly import Run
from judgeq.errors import DataError, UsageError
from judgeq.evaluation.evaluate import evaluated
from judgeq.events import Event, Notice, RoundRated, RunStarted
from judgeq.run_places import folders

pytestmark = pytest.mark.usefixtures("rated_by_elo")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JUDGEQ_OFFLINE", "1")
    monkeypatch.setattr("judgeq.files.user_cache", lambda: tmp_path / "cache")


def prepared(root: Path, **settings: object) -> Run:
    return session.prepare(config.settle(settings), root)


def test_a_model_gets_a_clear_error_where_the_texts_are_not(tmp_path: Path) -> None:
    with pytest.raises(DataError) as told:
        prepared(tmp_path, dataset="babe", judge="gpt-m")
    message = str(told.value)
    for words in ("final_labels_SG2.csv", "https://raw.githubusercontent.com/", "c02ebe82"):
        assert words in message
    with pytest.raises(DataError, match="without texts"):
        prepared(tmp_path, dataset="synthetic:linear", judge="gpt-m")
    assert not list(tmp_path.glob("*"))
    assert prepared(tmp_path, dataset="demo", judge="gpt-m").dataset.texts


def test_what_a_model_needs_is_told_before_anything_is_written(tmp_path: Path) -> None:
    data = tmp_path / "my.csv"
    data.write_text("text\na\nb\nc\n")
    mine = {"dataset": str(data), "judge": "gpt-m", "strategy": "pairwise"}
    with pytest.raises(UsageError, match=r"name a prompt set with --prompt .* --feature"):
        prepared(tmp_path / "runs", **mine)
    with pytest.raises(UsageError, match="--max-cost 1: the price of gpt-m is unknown"):
        prepared(tmp_path / "runs", **mine, feature="zest", max_cost=1.0)
    with pytest.raises(UsageError, match="--both-orders goes with pairs, not with"):
        prepared(tmp_path / "runs", **mine | {"strategy": "listwise3"}, both_orders=True)
    assert not (tmp_path / "runs").exists()
    flat = {"max_cost": 1.0, "price": (1.0, 1.0)}
    pricing = prepared(tmp_path / "runs", **mine, feature="zest", **flat).pricing
    (found,) = pricing.values()
    assert found is not None
    assert found.source == "--price"


def test_events_tell_the_story(tmp_path: Path) -> None:
    events: list[Event] = []
    this = prepared(tmp_path, dataset="demo", strategy="listwise10x2")
    result = session.execute(this, events.append)
    (started,) = (e for e in events if isinstance(e, RunStarted))
    first, second = (e for e in events if isinstance(e, RoundRated))
    assert (started.items, started.rounds, list(started.planned)) == (240, 2, [])
    assert first.moved is None
    assert second.moved is not None
    assert 0 < second.moved <= 1
    best = result.scores.ratings["elo"].argmax()
    assert second.top[0].id == result.scores.ids[int(best)]
    assert this.dataset.texts is not None
    assert second.top[0].text == this.dataset.texts[int(best)][:200]
    assert second.bottom[-1].rating == result.scores.ratings["elo"].min()

    events.clear()
    again = session.execute(session.resume(this.folder, {}), events.append)
    assert again.totals.calls == 48
    assert events == []  # it is finished: nothing is gone through again
    again = session.execute(session.resume(this.folder, {}), events.append, retry_failed=True)
    (started,) = (e for e in events if isinstance(e, RunStarted))
    assert [counts.done for counts in started.planned] == [24, 24]
    assert started.totals.calls == again.totals.calls == 48


def test_a_network_file_system_gets_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "network_file_system", lambda _: "nfs4")
    events: list[Event] = []
    session.execute(prepared(tmp_path, dataset="synthetic:linear", n=20), events.append)
    (notice,) = (e for e in events if isinstance(e, Notice))
    assert notice.warning
    assert "network file system (nfs4)" in notice.text


def test_gold_that_changed_is_taken_over_without_asking_again(tmp_path: Path) -> None:
    """A model never sees the labels; so a new gold column is no new run, but new in scores.csv."""
    data = tmp_path / "d.csv"
    data.write_text("text,latent,gold\n" + "".join(f"t{i},{i},{i % 2}\n" for i in range(20)))
    given = {"dataset": str(data), "latent_column": "latent"}
    first = session.execute(prepared(tmp_path, **given), lambda _: None)
    assert not evaluated(first).evaluation
    changed = prepared(tmp_path, **given, gold_column="gold")
    # The simulated judge's answers come from the labels: for it this is another run.
    assert changed.folder.id != first.run.id
    result = session.execute(changed, lambda _: None)
    assert [one.n for one in evaluated(result).evaluation] == [20, 20]
