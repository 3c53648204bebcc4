"""What an estimate has seen of a run's questions, by their kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from judgeq.engine import extent
from judgeq.engine.assembly import Run
from judgeq.engine.samples import Sample, mean_of

MOST = 2_000
"""So many answered questions of a kind are looked at."""


@dataclass(slots=True)
class Looked:
    """What was seen of the questions of one kind, named where there are several, of which there are
    `whole` in all rounds, about so many `items`: bytes of those to be asked, and what answered ones
    took, of which so many were in the cache. `like` are bytes of questions like those to come."""

    name: str
    whole: int
    items: float
    done: int = 0
    hits: int = 0
    sizes: list[int] = field(default_factory=list)
    like: list[int] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    cached: int = 0
    share: float = 1.0
    """Of them that are sent."""

    def calls(self, open_rounds: int) -> int:
        """How many are to be asked, so many rounds of which could not be looked into."""
        seen = len(self.sizes)
        left = round((self.whole - self.done) * self.share) - self.hits
        return max(seen, left) if open_rounds else seen

    @property
    def size(self) -> float:
        """The bytes of a question to be asked; 0 where none was seen."""
        return mean_of(self.sizes or self.like)

    @property
    def labels(self) -> float:
        """The items of a question."""
        return self.items / max(1, self.whole)

    @property
    def source(self) -> str:
        """Where the sample comes from."""
        judged = len(self.samples) - self.cached
        parts = [f"{_calls(judged)} of this run"] if judged else []
        parts += [f"{_calls(self.cached)} in the cache"] if self.cached else []
        return f"from {' and '.join(parts)}"

    @property
    def latencies(self) -> list[float]:
        """How long each question took that the cache didn't answer."""
        return [sample.latency for sample in self.samples if sample.latency]

    def add(self, sample: Sample) -> bool:
        """Take a question into the sample, if it tells and there is room."""
        if not sample.usage.output or len(self.samples) >= MOST:
            return False
        self.samples.append(sample)
        return True


@dataclass(slots=True)
class Kinds:
    """The questions of the `first` round, where it asks about items alone and the others compare; and
    all `others`. People `gave` so many answers."""

    first: Looked | None
    others: Looked
    gave: int = 0

    @classmethod
    def of(cls, prepared: Run) -> Kinds:
        """Before anything was seen of a run."""
        n, strategy, settings = len(prepared.dataset), prepared.strategy, prepared.settings
        times, share = extent.times(settings), extent.share_sent(settings)
        whole, items = strategy.calls(n), strategy.cost(n) * 2
        if not strategy.mixed:
            most = extent.most_calls(strategy, settings, n)
            return cls(None, Looked("", most, items * most / max(1, whole), share=share))
        alone = Looked("texts alone", n * times, n * times, share=share)
        lists = Looked("lists", (whole - n) * times, (items - n) * times, share=share)
        return cls(alone, lists)

    def __iter__(self) -> Iterator[Looked]:
        return iter([self.others] if self.first is None else [self.first, self.others])

    def of_round(self, round: int) -> Looked:
        """Those of a round."""
        return self.others if self.first is None or round > 1 else self.first

    @property
    def latencies(self) -> list[float]:
        """Of all of them."""
        return [latency for kind in self for latency in kind.latencies]


def _calls(n: int) -> str:
    return "1 call" if n == 1 else f"{n:,} calls"
