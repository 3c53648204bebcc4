"""Names of models that no provider has: caught before anything is sent, with what was meant.

Only a name that would go to a provider's own address is looked at. A model that is newer than
genai-prices' list is let through: what is caught is a slip in a name on that list, and at OpenAI's
address, where all names without a prefix go, a name of none of its families.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import SequenceMatcher

from judgeq.errors import UsageError
from judgeq.judge.prices import models_at
from judgeq.settings.model import Model
from judgeq.settings.providers import PREFIXED, PROVIDERS, Provider

SHORTEST, SIMILAR = 3, 0.66
"""Letters: of a shorter word, one more or another one may be another model's; how similar the misspelt
word is, as difflib counts it: "gtp" to "gpt"."""


def check(name: str, model: Model) -> None:
    """Raise UsageError for a name that the provider that it would be sent to doesn't have."""
    prefix, slash, rest = name.partition("/")
    if slash and prefix in PREFIXED and not model.base_url and (model.api or not rest):
        raise UsageError(f"--judge {name}: write {prefix}/MODEL, without --base-url and --api.")
    provider, own = model.provider_of(name), model.prefixed(name)
    if model.base_url or model.api or model.address_of(name) != provider.address:
        return
    insisting = f"--base-url {provider.address}"
    if own is not None:
        meant = [f"{prefix}/{one}" for one in _meant(rest, own)]
        insisting += f" --api-key-env {own.key}" if own.key else ""
    elif provider is PROVIDERS["openai"] and not re.match(provider.families, name):
        meant = list(dict.fromkeys(_elsewhere(name)))
        if not meant:
            raise UsageError(
                f"--judge {name}: no such model of OpenAI is known, and no provider is named. Write "
                f"--base-url URL, or one of {', '.join(f'{one}/…' for one in PREFIXED)}. To send it to "
                f"OpenAI all the same: {insisting}."
            )
    else:
        meant = _meant(name, provider)
        insisting += " --api anthropic" if provider is PROVIDERS["anthropic"] else ""
    if meant:
        raise UsageError(
            f"--judge {name}: no such model of {provider.name} is known. Did you mean "
            f"{' or '.join(meant)}? To send it to {provider.name} all the same: {insisting}."
        )


def _elsewhere(name: str) -> Iterator[str]:
    """The judges that may be meant by a name that is none of OpenAI's."""
    prefix, slash, rest = name.partition("/")
    bare = name.rpartition("/")[2]
    unprefixed = [("", provider) for provider in PROVIDERS.values()]
    for start, provider in (*unprefixed, *((f"{one}/", PREFIXED[one]) for one in PREFIXED)):
        for one in _meant(bare, provider) or [bare]:
            if provider.families and re.match(provider.families, one, re.IGNORECASE):
                yield start + one
    if slash:
        near = (f"{one}/{rest}" for one in PREFIXED if _is_slip(prefix, one))
        yield next(near, f"openrouter/{name}")


def _meant(name: str, provider: Provider) -> list[str]:
    """The provider's model that a name is a slip of: its parts in another order or joined otherwise
    ("claude-haiku-4.5"), or one word misspelt; none where it is a name of its own."""
    known = models_at(provider.address) if provider.families else []
    if name in known:
        return []
    parts = _parts(name)
    return [
        one for one in known if len(_parts(one)) == len(parts) and _is_same(parts, _parts(one))
    ][:1]


def _parts(name: str) -> list[str]:
    """Its words and numbers."""
    return re.findall(r"[a-z]+|\d+", name.lower())


def _is_same(given: list[str], known: list[str]) -> bool:
    differing = [pair for pair in zip(given, known, strict=True) if pair[0] != pair[1]]
    return sorted(given) == sorted(known) or (len(differing) == 1 and _is_slip(*differing[0]))


def _is_slip(given: str, word: str) -> bool:
    short = min(len(given), len(word)) < SHORTEST or not (given + word).isalpha()
    return not short and SequenceMatcher(None, given, word).ratio() >= SIMILAR
