"""Texts that are too long for a model: named before anything is paid, or left out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from judgeq.datasets.dataset import tokens_of
from judgeq.engine.length import _longest
from judgeq.judge import prices
from tests.cli import judgeq, only_run, query
from tests.mock import mock, stats

pytestmark = pytest.mark.usefixtures("rated_by_elo", "undrawn")


def table(folder: Path, *words: int) -> None:
    """Texts of so many words, of two tokens each."""
    rows = "".join(f"t{i},{'wordier ' * n}\n" for i, n in enumerate(words))
    (folder / "my.csv").write_text(f"id,text\n{rows}")


JOB = ("-d", "my.csv", "--feature", "length", "-s", "listwise4x2")
FEW = (3000, 2000, *[50] * 10)
"""Of these 6,000, 4,000 and 100 tokens, the first two don't fit together into 8,192."""


def test_texts_that_are_too_long_are_named_before_anything_is_sent(tmp_path: Path) -> None:
    table(tmp_path, *FEW)
    gpt4 = ("--judge", "gpt-4")
    refused = judgeq(tmp_path, "estimate", *JOB, *gpt4, expect=3).stderr
    assert "1 text of 12 may be too long for gpt-4, which reads 8,192 tokens" in refused
    assert "any 4 texts together. They are 't0' (about 6,000 tokens)." in " ".join(refused.split())
    assert "--strategy" not in refused  # not even two of them fit together
    assert not (tmp_path / "runs").exists()

    # Smaller lists do, a model that reads more, none of which that is known, and a wish.
    table(tmp_path, *[1100] * 4, *[50] * 8)
    refused = judgeq(tmp_path, "run", *JOB, *gpt4, expect=3).stderr
    assert "4 texts of 12" in refused
    assert "--strategy listwise3, or a model that reads more" in " ".join(refused.split())
    for instead in (
        (*gpt4, "-s", "listwise3"),
        ("--judge", "gpt-5-mini"),
        ("--judge", "m", "--base-url", "http://127.0.0.1:9/v1"),
        (*gpt4, "--no-skip-long"),
    ):
        judgeq(tmp_path, "estimate", *JOB[:4], *(JOB[4:] if "-s" not in instead else ()), *instead)
    # What the reply may take is not there for texts.
    limit = ("--max-output-tokens", "8000")
    assert "12 texts of 12" in judgeq(tmp_path, "run", *JOB, *gpt4, *limit, expect=3).stderr


def test_the_others_are_judged_and_stay_the_same_when_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(tmp_path, *FEW)
    reads = [8192]
    monkeypatch.setattr(prices, "context_window", lambda model, base_url: reads[0])
    with mock(tmp_path) as url:
        model = ("--judge", "m", "--base-url", url, "--skip-long")
        first = judgeq(tmp_path, "run", *JOB, *model, "--json")
        assert "1 of 12 texts are left out (--skip-long)" in first.stderr
        assert "tokens: 't0'." in " ".join(first.stderr.split())
        assert json.loads(first.stdout)["items"] == 11
        asked = stats(url)["requests"]
        again = json.loads(judgeq(tmp_path, "run", *JOB, *model, "--json").stdout)
        assert (again["items"], stats(url)["requests"]) == (11, asked)
        # What the run was begun with holds, whatever is known of the model later.
        reads[0] = 1000
        more = json.loads(judgeq(tmp_path, "resume", "--rounds", "3", "--json").stdout)
        assert (more["items"], more["rounds"]) == (11, 3)
        assert "wordier" in judgeq(tmp_path, "show").stdout
    assert query(only_run(tmp_path), "SELECT count(*) FROM items") == [(11,)]


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=12),
    k=st.integers(1, 5),
    room=st.integers(0, 120),
)
@settings(max_examples=200, deadline=None)
def test_any_k_of_the_others_fit_and_no_longer_ones_do(sizes: list[int], k: int, room: int) -> None:
    longest = _longest(np.array(sizes, dtype=float), k, room)

    def fits(most: float) -> bool:
        return sum(sorted((size for size in sizes if size <= most), reverse=True)[:k]) <= room

    assert fits(longest)
    assert longest in {-1, *sizes}
    assert not any(fits(size) for size in sizes if size > longest)


def test_about_how_many_tokens_a_text_has() -> None:
    assert tokens_of("plain words.") == 3
    assert tokens_of("日本語") == 3
    assert tokens_of("für") == 1.5
