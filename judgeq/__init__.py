"""judgeq puts texts on a continuous scale by having a judge compare them.

    import judgeq

    result = judgeq.run(texts, "how urgent the message is", judge="gpt-5-mini", max_cost=5)
    result.scores.ratings["pl"]    # a NumPy array, one number an item, as result.scores.ids

`judgeq --help` is the same on the command line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from judgeq.api import (
        arun,
        drift,
        estimate,
        load_dataset,
        open_run,
        resume,
        run,
        runs,
    )
    from judgeq.datasets import Dataset
    from judgeq.engine.estimate import Estimate
    from judgeq.errors import (
        BudgetError,
        DataError,
        JudgeError,
        JudgeqError,
        NotConvergedError,
        NoVerdictsError,
        RunError,
        StoppedError,
        UsageError,
    )
    from judgeq.ui.notebook import Result, Scores

__all__ = [
    "BudgetError",
    "DataError",
    "Dataset",
    "Estimate",
    "JudgeError",
    "JudgeqError",
    "NoVerdictsError",
    "NotConvergedError",
    "Result",
    "RunError",
    "Scores",
    "StoppedError",
    "UsageError",
    "__version__",
    "arun",
    "drift",
    "estimate",
    "load_dataset",
    "open_run",
    "resume",
    "run",
    "runs",
]

_HOMES = {
    "Dataset": "datasets",
    "Estimate": "engine.estimate",
    "Result": "ui.notebook",
    "Scores": "ui.notebook",
}


def __getattr__(name: str) -> Any:
    # Loaded when first used: `import judgeq` stays light, and Ctrl-C is heard from its first line on.
    if name == "__version__":
        return import_module("importlib.metadata").version("judgeq")
    if name in __all__:
        home = _HOMES.get(name, "errors" if name.endswith("Error") else "api")
        return getattr(import_module(f"judgeq.{home}"), name)
    raise AttributeError(f"module 'judgeq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
