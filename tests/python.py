"""`judgeq.run` with every setting as a keyword, as tests like it."""

import inspect
from typing import Any

import judgeq

NAMED = frozenset(inspect.signature(judgeq.run).parameters)


def run(dataset: Any = "demo", **given: Any) -> judgeq.Result:
    named = {name: value for name, value in given.items() if name in NAMED}
    others = {name: value for name, value in given.items() if name not in NAMED}
    return judgeq.run(dataset, **named, settings=others)
