"""judgeq puts texts on a continuous scale by having a judge compare them.

    import judgeq

    result = judgeq.run("demo", strategy="listwise10", seed=1)
    result.scores.ratings["elo"]    # a NumPy array, one number an item, as result.scores.ids
    result.evaluation        # against the gold labels

`judgeq --help` is the same on the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judgeq.api import load_dataset, open_run, run
    from judgeq.results import Result, Scores

__all__ = ["Result", "Scores", "load_dataset", "open_run", "run"]


def __getattr__(name: str) -> Any:
    # Loaded when first used, so that `import judgeq` (and `judgeq --help`) stays light.
    if name in ("load_dataset", "open_run", "run"):
        from judgeq import api

        return getattr(api, name)
    if name in ("Result", "Scores"):
        from judgeq import results

        return getattr(results, name)
    raise AttributeError(f"module 'judgeq' has no attribute {name!r}")
