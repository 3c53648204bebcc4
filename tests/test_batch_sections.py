from __future__ import annotations

from judgeq.types import Batch, BatchState
from judgeq.ui.show.status import DAY, deadlines

SENT = Batch("jq1", 0, "openai", "http://h/v1", "schema", 0.0, 48, 1.0, 1.0, BatchState.SENT, "b")


def test_results_that_are_soon_deleted_are_warned_of() -> None:
    theirs = SENT._replace(api="anthropic")
    assert deadlines([SENT, theirs], 19 * DAY) == []
    (warning,) = deadlines([SENT, theirs], 19.5 * DAY)
    assert "deleted by its provider on about 1970-01-30" in warning
    assert len(deadlines([SENT, theirs], 21 * DAY)) == 2
    assert "may be gone" in deadlines([SENT], 31 * DAY)[0]
    assert deadlines([SENT._replace(state=BatchState.COLLECTED)], 31 * DAY) == []
