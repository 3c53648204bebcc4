"""Judges by name, and what they are able to do. How one is asked is judge.py's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import get_close_matches

from judgeq.errors import UsageError
from judgeq.settings.model import Model
from judgeq.settings.providers import PREFIXED, PROVIDERS
from judgeq.settings.run import REHEARSAL


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of judge. One that reads text is sent the items' texts, worded by a prompt set; one that
    costs money needs a price, a key and the cache; one that gives reasons can be asked for them. People
    are handed questions, and nothing is sent."""

    reads_text: bool = False
    costs_money: bool = False
    gives_reasons: bool = True
    is_person: bool = False


SIMULATED = Kind()
MODEL = Kind(reads_text=True, costs_money=True)
PEOPLE = Kind(reads_text=True, gives_reasons=False, is_person=True)
FUNCTION = Kind(reads_text=True, gives_reasons=False)
"""A Python function, which is given from Python only; its name has FUNCTION_PREFIX."""
FUNCTION_PREFIX = "python:"
JUDGES = {
    "simulated": SIMULATED,
    REHEARSAL: SIMULATED,
    "people": PEOPLE,
}
"""The judges that are built in; any other name is a model's, behind an API."""


def kind_of(name: str) -> Kind:
    """The kind of judge that a name means."""
    if name.startswith(FUNCTION_PREFIX):
        return FUNCTION
    return JUDGES.get(name, MODEL)


def check(name: str, model: Model) -> None:
    """Raise UsageError for a judge's name that can't be meant, or settings that don't go with it."""
    if kind_of(name) is not MODEL:
        if given := model.deciding():
            flags = ", ".join("--" + setting.replace("_", "-") for setting in given)
            raise UsageError(f"{flags}: for a model, which --judge names; {name} takes none of it.")
        return
    if not re.fullmatch(r"[^\s\x00-\x1f]{1,200}", name):
        raise UsageError(f"--judge {name!r} can't be a model's name.")
    near = get_close_matches(name.partition(":")[0].lower(), map(str.lower, JUDGES), 1, cutoff=0.8)
    if near and model.base_url is None:
        raise UsageError(f"--judge {name!r}: did you mean {near[0]}?")
    openai = PROVIDERS["openai"]
    elsewhere = model.base_url or model.openai_base_url or model.api  # with its form of API, given
    if (
        not elsewhere
        and model.provider_of(name) is openai
        and not re.match(openai.families, name)  # texts that were meant for another server
    ):
        raise UsageError(
            f"--judge {name}: no such model of OpenAI is known, and no provider is named. Write one of "
            f"{', '.join(f'{prefix}/…' for prefix in PREFIXED)}, or --base-url URL; to send it to "
            f"OpenAI all the same: --base-url {openai.address}."
        )
    taken = {"system", "tools", "tool_choice", "output_config", "output_format", "cache_control"}
    if model.api_of(name) == "anthropic" and (fields := taken & set(model.extra_body or ())):
        raise UsageError(
            f"--extra-body: {', '.join(sorted(fields))} can't be sent in the form of Anthropic's API, "
            f"in which {name} is asked. (--reasoning-effort sets output_config's effort, and "
            "--structured its format.)"
        )
