"""What evaluate and compare print."""

from __future__ import annotations

from judgeq.ui.outputs.judges import ListedJudge
from judgeq.ui.outputs.runs import Components, Order, Output, Rating, Within


class Measured(Output):
    """A number with its 95 % interval; null with the reason `why`."""

    value: float | None
    low: float | None
    high: float | None
    why: str | None = None


class Difference(Measured):
    """`zero_outside`: 0 isn't in the interval."""

    zero_outside: bool


class Evaluated(Output):
    """A run that is evaluated."""

    run: str
    folder: str
    store: str | None = None
    partial: bool
    components: Components
    damage: list[str]
    """What doesn't add up in run.db, where --accept-damage rates it all the same."""
    dataset: str
    strategy: str
    judge: str
    rating: Rating


class GoldFacts(Output):
    """Which gold is positive, or why there is no detection; rows about items that the run lacks."""

    source: str
    not_in_run: int
    positive: str | None
    no_detection: str | None


class Intervals(Output):
    """How intervals were made."""

    level: float
    resamples: int
    seed: int


class ThresholdFacts(Output):
    """Over which score an item is labelled positive; of one that the gold chose the range over folds;
    null with the reason `why` where a mixture has none."""

    rule: str
    value: float | None
    low: float | None
    high: float | None
    why: str | None = None


class AssessmentFacts(Output):
    """One rating on some of the items (`items`: "all" or a subset's name)."""

    run: str
    rating: str
    items: str
    n: int
    without_gold: int
    without_score: int
    threshold: ThresholdFacts | None
    within_components: Within | None
    measures: dict[str, Measured]


class Others(Output):
    """Judges that aren't listed."""

    judges: int
    verdicts: int


class Judges(Output):
    """How well the judges of one run agree: Kendall's τ of their ratings, by rating."""

    names: list[str]
    verdicts: list[int]
    kendall: dict[str, list[list[float | None]]]
    krippendorff_alpha: Measured
    judged_by_several: int
    others: Others


class HeldModel(Output):
    """A model held against people: the share of pairs of items that it and a person order alike, on
    `questions` in common, that of two people on these, and the one less the other; Krippendorff's α of
    people and it; Kendall's τ-b of its rating with that of people and with that of all."""

    name: str
    verdicts: int
    questions: int
    alike: Measured
    people_alike: Measured
    difference: Measured
    krippendorff_alpha: Measured
    kendall_with_people: float | None
    kendall_with_all: float | None


class PeopleFacts(Output):
    """How well people who judge agree, as HeldModel; and `each` of them. α of models is null where there
    are fewer than two."""

    people: int
    verdicts: int
    questions: int
    alike: Measured
    krippendorff_alpha: Measured
    kendall_with_all: float | None
    models: list[HeldModel]
    krippendorff_alpha_of_models: Measured | None
    each: list[ListedJudge]


class SplitHalfFacts(Output):
    """Pearson's r of ratings by two halves of the `by`, "judges" or "judgments": the median, and the
    range over the splits; `whole` is what it predicts of all of them; null with the reason `why`."""

    median: float | None
    low: float | None
    high: float | None
    whole: float | None
    splits: int
    by: str
    estimator: str
    items: int
    components: int
    why: str | None = None


class HeldOutFacts(Output):
    """The separation by judgments held out of the adaptive choice; `whole` is what it predicts of
    all."""

    judgments: int
    ssr: float | None
    separation: float | None
    items: int
    whole: float | None
    why: str | None = None


class ReliabilityFacts(Output):
    """How reliable the scale is, by a `recipe`; `adaptive` is null where it isn't known how judgments
    were chosen."""

    rating: str
    recipe: str
    ssr: float | None
    separation: float | None
    items: int
    why: str | None = None
    adaptive: bool | None
    split_half: SplitHalfFacts
    held_out: HeldOutFacts | None


class MisfitOf(Output):
    """A judge (a name) or item (an id) whose infit is outside the range expected in 95 % of cases."""

    name: str
    infit: float
    low: float
    high: float
    z: float
    outfit: float
    comparisons: int


class MisfitCounts(Output):
    """How many judges, or items, were looked at; how many are `above` and `below` the range; those
    outside, 100 at most, the worst first. `expected` is the infit of all comparisons together."""

    known: int
    expected: float | None
    above: int
    below: int
    outside: list[MisfitOf]


class JudgmentFacts(Output):
    """A judgment as groups of tied ids, most of the feature first (`partial`: of ids whose order wasn't
    asked); `surprise` is standardised."""

    round: int
    judge: str | None
    ranking: list[list[str]]
    partial: bool
    surprise: float


class CircleFacts(Output):
    """Triads of three items that a judge compared with one another, and repeated pairs."""

    triads: int
    circular: int
    share: float | None
    zeta: float | None
    drawn: bool
    repeated_pairs: int
    inconsistent: int
    why: str | None = None


class MisfitFacts(Output):
    """What doesn't fit the scale; null with the reason `why`. `judges` is null of one judge alone."""

    rating: str
    judges: MisfitCounts | None
    items: MisfitCounts | None
    least_expected: list[JudgmentFacts]
    circles: CircleFacts | None
    why: str | None = None


class EvaluateOutput(Evaluated):
    """A run's ratings against gold; the gold's keys are there if there is any."""

    gold: GoldFacts | None = None
    threshold: float | str | None = None
    intervals: Intervals | None = None
    ratings: list[AssessmentFacts]
    judges: Judges | None
    people: PeopleFacts | None
    """Null where no people judged."""
    reliability: ReliabilityFacts
    length: Measured | None
    """Spearman's correlation of the main rating with the length of the texts; null without these."""
    misfit: MisfitFacts
    order: Order


class ComparedAssessment(AssessmentFacts):
    """`number`: which of the runs, from 1."""

    number: int


class Pair(Output):
    """A run's rating held against another's."""

    run: str
    rating: str
    against: str
    against_rating: str
    n: int


class DifferenceFacts(Pair):
    """Run `number` minus the first."""

    number: int
    measures: dict[str, Difference]


class AgreementFacts(Pair):
    """How alike two runs rank."""

    numbers: tuple[int, int]
    kendall: float | None
    spearman: float | None
    without_noise: float | None
    beyond_noise: int | None


class CompareOutput(Output):
    """Several runs against gold, the others held against the first."""

    runs: list[Evaluated]
    items: str
    gold: GoldFacts
    threshold: float | str
    intervals: Intervals
    ratings: list[ComparedAssessment]
    differences: list[DifferenceFacts]
    agreement: list[AgreementFacts]
    notices: list[str]
