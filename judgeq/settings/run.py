"""All that a user can set about a run, each setting declared once.

Flags, their help and completion, the job file of `judgeq init` and docs/settings.md are
made from these declarations. Nothing heavy is loaded here, so that `--help` stays quick; what
settings become is config.py's.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import field_validator, model_validator

from judgeq.rating import CHOICES, ESTIMATORS
from judgeq.settings.declaration import (
    DATA,
    JUDGE,
    PEOPLE,
    RATING,
    RUNNING,
    SIMULATED,
    STRATEGY,
    Declarations,
    Setting,
    setting,
    settings_of,
)
from judgeq.settings.model import Access, Model

if TYPE_CHECKING:
    Rating = str
else:
    Rating = Literal[CHOICES]
REHEARSAL = "REHEARSAL"
MARK_SIMULATED = "SIMULATED"
"""The mark of the user's own texts as the simulated judge ranked them."""
"""The simulated judge of texts without gold labels, whose answers are made up. It is called so that
nobody takes them for real: runs, files and screens say the name of their judge."""
Ensemble = Literal["rotate", "each"]


def _described(rating: str) -> str:
    return f"{rating}: {ESTIMATORS[rating].label}, {ESTIMATORS[rating].about}"


class DatasetSpec(Declarations):
    """What to load.

    `dataset` is a known name, "synthetic:<shape>", the path of a table, or "-": a table on standard
    input. `n` is for synthetic items; the columns, levels, and how a table is read, are for tables of
    the user's, except `latent_column`, which names a numeric column for the simulated judge of known
    ones too. Without `id_column` the ids are the column "id", where there is one of an id of its own
    in every row; else the row numbers. Of all datasets, `sample` draws some items at random.
    """

    dataset: Annotated[
        str,
        setting(
            "A dataset's name, a file's path, or - for standard input. Names are babe, us_vs_them, "
            "demo and synthetic:normal (linear, bimodal, binary); a file is CSV, TSV, JSON, JSONL, "
            "Excel (.xlsx), Parquet or .txt (a text a line), also with .gz.",
            DATA, common=True, short="-d", metavar="NAME|PATH|-",
        ),
    ]  # fmt: skip
    text_column: str | None = setting(
        "A file's column of texts. Within a JSON object, a list or a Parquet struct its path, as "
        "meta.text or messages.0.content.",
        DATA, None,
        common=True, unset="text", metavar="NAME",
    )  # fmt: skip
    id_column: str | None = setting(
        "A file's column of ids.", DATA, None,
        common=True, unset="id, else the row number", metavar="NAME",
    )  # fmt: skip
    gold_column: str | None = setting(
        "A file's column of gold labels.", DATA, None, common=True, metavar="NAME"
    )
    gold_levels: tuple[str, ...] | None = setting(
        "The gold labels, where they are words, from least to most.", DATA, None,
        metavar="LOW,…,HIGH",
    )  # fmt: skip
    group_column: str | None = setting(
        "A file's column of groups, such as the question that each text answers. Only texts of a "
        "group are compared.",
        DATA, None, common=True, metavar="NAME",
    )  # fmt: skip
    latent_column: str | None = setting(
        "A column of numbers that the simulated judge answers from.", DATA, None,
        unset="the gold", metavar="NAME",
    )  # fmt: skip
    delimiter: str | None = setting(
        "What separates the columns: a character, or tab.", DATA, None,
        unset="comma; semicolon, tab or | where a CSV's header has more of these", metavar="CHARACTER",
    )  # fmt: skip
    encoding: str | None = setting(
        "A file's encoding, such as windows-1252.", DATA, None,
        unset="UTF-8, or what a byte order mark says", metavar="NAME",
    )  # fmt: skip
    sheet: str | None = setting(
        "The sheet of an Excel file.", DATA, None, unset="the first", metavar="NAME"
    )
    comment: str | None = setting(
        "Leave out lines of a CSV or text file that begin with this, such as #.", DATA, None,
        metavar="TEXT",
    )  # fmt: skip
    escape: str | None = setting(
        "The character before quotation marks within a text of a CSV file, such as a backslash (Spark "
        "writes it), where marks aren't doubled.",
        DATA, None, metavar="CHARACTER",
    )  # fmt: skip
    no_header: bool = setting(
        "The first line is a row: columns are named by number, from 1.", DATA, False
    )
    skip_empty: bool = setting(
        "Leave out rows without a text, or with nothing but NA, n/a, null, none, - or an Excel error, "
        "and count them.",
        DATA, False,
    )  # fmt: skip
    skip_long: bool | None = setting(
        "Leave out texts that are too long for the model, and name them. --no-skip-long asks about "
        "them all the same.",
        DATA, None, undone=True, unset="refuse them",
    )  # fmt: skip
    longest_text: float | None = setting(
        "Leave out texts of more tokens than this, which is kept where --skip-long leaves out some.",
        DATA, None, only="", ge=0,
    )  # fmt: skip
    merge_duplicates: bool = setting(
        "Judge equal texts as one item, with the first one's id and gold.", DATA, False
    )
    keep_columns: bool = setting(
        "Carry the table's other columns into scores.csv.", DATA, False, session=True
    )
    sample: int | None = setting(
        "Only this many items, drawn by --seed. A pilot before you pay for all.", DATA, None,
        common=True, ge=2,
    )  # fmt: skip
    n: int | None = setting(
        "How many synthetic items.", DATA, None, unset="1000", ge=2, le=10_000_000
    )
    data_dir: Path | None = setting("Where the known corpora's files lie.", DATA, None)

    @field_validator("delimiter")
    @classmethod
    def _one_character(cls, delimiter: str | None) -> str | None:
        delimiter = {"tab": "\t", "\\t": "\t"}.get(delimiter or "", delimiter)
        if delimiter is not None and (len(delimiter) != 1 or delimiter in '"\r\n\0'):
            raise ValueError('give one character, as ";", or "tab"')
        return delimiter

    @field_validator("comment")
    @classmethod
    def _begins_lines(cls, comment: str | None) -> str | None:
        if comment is not None and not comment.strip():
            raise ValueError('give what such lines begin with, as "#"')
        return comment

    @field_validator("escape")
    @classmethod
    def _before_quotes(cls, escape: str | None) -> str | None:
        escape = {"backslash": "\\", "\\\\": "\\"}.get(escape or "", escape)
        if escape is not None and (len(escape) != 1 or escape in '"\r\n\0 '):
            raise ValueError('give one character, as "\\"')
        return escape

    @field_validator("encoding")
    @classmethod
    def _of_text(cls, encoding: str | None) -> str | None:
        try:
            if encoding is not None:
                "a".encode(encoding)
        except (LookupError, UnicodeError, ValueError) as error:
            raise ValueError(
                "no such encoding; give one such as utf-8, windows-1252, latin-1 or utf-16"
            ) from error
        return encoding


class Simulation(Declarations):
    """What decides the simulated judge's answers."""

    sim_model: Literal["vg", "rrt"] = setting(
        "How lists are ranked: vg, noise by item; rrt, noise by pair.", SIMULATED, "vg"
    )
    sim_accuracy: float = setting(
        "Share of right answers to a pair at --sim-distance.", SIMULATED, 0.8, gt=0.5, lt=1
    )
    sim_pmax: float = setting(
        "Share of right answers however far apart.", SIMULATED, 0.99, gt=0.5, le=1
    )
    sim_distance: float = setting(
        "The distance of --sim-accuracy, on a scale of 1..1000.", SIMULATED, 90.0, gt=0
    )
    sim_spread: float = setting(
        "Spread (sd) of the two groups of a binary gold.", SIMULATED, 100.0, ge=0
    )
    sim_biased_items: int = setting(
        "Items that the judge always sees wrongly, by --sim-bias.", SIMULATED, 0, ge=0
    )
    sim_bias: float = setting("How much higher or lower it sees them.", SIMULATED, 200.0, ge=0)
    sim_position_bias: float = setting(
        "How much higher it sees the last item of a question than the first; negative: lower.",
        SIMULATED,
        0.0,
    )

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.sim_accuracy >= self.sim_pmax:
            raise ValueError(
                "--sim-accuracy must be below --sim-pmax, which the curve never reaches"
            )
        return self

    @property
    def tau(self) -> float:
        """τ of the curve: P(`sim_distance`) = `sim_accuracy`."""
        share = (self.sim_accuracy - 0.5) / (self.sim_pmax - 0.5)
        return -self.sim_distance / math.log(1 - share)

    @property
    def lapse(self) -> float:
        """The probability that an item of a `vg` list lapses."""
        return 1 - math.sqrt(2 * self.sim_pmax - 1)


def simulation_facts(settings: Simulation) -> dict[str, Any]:
    """What decides the simulated judge's answers, as plain JSON; a bias only where there is one."""
    facts = settings.model_dump(include=set(Simulation.model_fields))
    if not settings.sim_position_bias:
        del facts["sim_position_bias"]
    return facts


class Choices(Declarations):
    """Strategy, judges, prompt, and how the run goes."""

    strategy: str = setting(
        "listwise10, hybrid10, pairwise, streak, tail, complete, direct. With parameters: "
        "listwise10x3 (k, rounds), pairwise24 (rounds), streak:r=4,d=3, tail:w=8,p=20.",
        STRATEGY, "listwise", common=True, unset="listwise10", short="-s", metavar="NAME",
    )  # fmt: skip
    rounds: int | None = setting("Rounds.", STRATEGY, None, unset="3 of lists, 24 of pairs")
    total_rounds: int | None = setting(
        "Rounds in all, where a run is given more than it was begun with.",
        STRATEGY, None, session=True, only="", ge=1,
        unset="those that the run was begun with",
    )  # fmt: skip
    joined: tuple[int, ...] = setting(
        "Of judges that were added to a finished run, the last of them, the rounds from which each "
        "answers alone.",
        STRATEGY, (), session=True, only="",
    )  # fmt: skip
    matchmaking: Literal["similar", "random"] | None = setting(
        "Which items meet: items of similar rating, or any.",
        STRATEGY,
        None,
        unset="random for lists, similar for pairs; of people random",
    )
    both_orders: bool = setting(
        "Ask each pair in both orders, and count a flip as a tie.", STRATEGY, False
    )
    onto: tuple[str, ...] = setting(
        "A finished run, on whose scale new texts get scores; several times for runs of one scale.",
        STRATEGY, (), common=True, metavar="RUN",
    )  # fmt: skip
    other_prompt: bool = setting(
        "The run of --onto was asked by another prompt, or another feature, and that is meant.",
        STRATEGY, False,
    )  # fmt: skip

    judge: tuple[str, ...] = setting(
        "simulated, people, or a model. Several times for several judges. The "
        "simulated judge knows the gold; REHEARSAL, the default without gold, makes answers up; people "
        "answer on a page; models: gpt-5-mini, gemini/….",
        JUDGE, ("simulated",), common=True, short="-j", metavar="NAME", min_length=1,
    )  # fmt: skip
    persona: tuple[str, ...] = setting(
        "A persona of the prompt set, as which a model is asked; several times for several.",
        JUDGE, (), metavar="NAME",
    )  # fmt: skip
    ensemble: Ensemble = setting(
        "Of several judges: each match for one, drawn at random and equally often, or for all, "
        "each in an order of its own.",
        JUDGE, "rotate",
    )  # fmt: skip
    prompt: str | None = setting(
        "A prompt set's name, or a file of your own.", JUDGE, None,
        common=True, unset="the dataset's", metavar="NAME|PATH",
    )  # fmt: skip
    feature: str | None = setting(
        "What to compare by, in words, for the prompt set 'generic'.", JUDGE, None, common=True
    )
    reasons: bool = setting(
        "Ask for a sentence of reason before each verdict. It is kept with the reply; each call costs "
        "more.",
        JUDGE, False,
    )  # fmt: skip
    seed: int = setting("The seed of all randomness.", STRATEGY, 0, ge=0, lt=2**63)

    sim_latency: float = setting(
        "Seconds that an answer takes (× 0.5 to 1.5).", SIMULATED, 0.0,
        session=True, ge=0)  # fmt: skip
    concurrency: int = setting(
        "Calls in flight at most.", RUNNING, 256,
        common=True, session=True, ge=1, le=10_000,
    )  # fmt: skip
    max_invalid: float = setting(
        "Stop when a larger share of the last 100 replies is unusable, or all of the first 10; "
        "1 never stops.",
        RUNNING, 0.5, session=True, ge=0, le=1,
    )  # fmt: skip
    check_reading: bool = setting(
        "Go on with a judge whose answers show that it doesn't read the texts, or at a server that cuts "
        "questions off.",
        RUNNING, True, session=True, only="--no-check-reading",
    )  # fmt: skip
    until: str | None = setting(
        "End the run once enough is known: 0.95, the order to ρ̂ = 0.95; top20, the first 20 items. It "
        "says nothing of whether the judge is right.",
        RUNNING, None, common=True, session=True, unset="when its rounds are over",
        metavar="RHO|topK",
    )  # fmt: skip
    name: str | None = setting(
        "A name for the run, next to its id: commands take either.", RUNNING, None,
        common=True, metavar="NAME",
    )  # fmt: skip
    store: str | None = setting(
        "Keep runs in this PostgreSQL database, for any number of machines. Folders then hold "
        "results only; '' keeps runs in folders.",
        RUNNING, None, session=True, secretive=True, unset="run folders",
        metavar="postgresql://…", envvar="JUDGEQ_STORE",
    )  # fmt: skip
    workers: int = setting(
        "1: this process asks the judges, too; 0: it only plans the rounds of a --store, which "
        "workers answer.",
        RUNNING, 1, session=True, ge=0, le=1, metavar="0|1",
    )  # fmt: skip
    standby: bool = setting(
        "Wait while another process leads this run of a --store, and take over once it ends or dies.",
        RUNNING, False, session=True,
    )  # fmt: skip
    rating: Rating = setting(
        f"How comparisons are rated. {'; '.join(map(_described, CHOICES))}.",
        RATING, CHOICES[0], session=True,
    )  # fmt: skip
    sigma: float | None = setting(
        "σ of the prior of θ. By default pl and hybrid fit it, between 0.25 and 8, and bt takes 2.",
        RATING, None, session=True, unset="by the rating", ge=1e-3, le=100,
    )  # fmt: skip
    unbias_position: bool | None = setting(
        "Take out of θ what the place in which a text was shown is worth (pl, bt, hybrid).",
        RATING, None, session=True, undone=True, unset="where it is significant",
    )  # fmt: skip
    refit: bool = setting(
        "With --onto, rate old and new verdicts together, so that settled scores may move.",
        RATING, False, session=True,
    )  # fmt: skip
    split_models: bool = setting(
        "Of a judge that several models answered for, as its provider says, take each as a judge of its "
        "own.",
        RATING, False, session=True,
    )  # fmt: skip
    texts: bool = setting(
        "Neither show texts nor copy their beginnings into scores.csv.", RATING, True,
        session=True, only="--no-texts",
    )  # fmt: skip

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if self.other_prompt and not self.onto:
            raise ValueError("--other-prompt goes with --onto")
        if self.onto and self.rating != CHOICES[0]:
            raise ValueError(f"--onto places by --rating {CHOICES[0]}, not {self.rating}")
        return self

    @model_validator(mode="after")
    def _takes_it_out(self) -> Self:
        if self.unbias_position and not ESTIMATORS[self.rating].likelihood:
            able = " or ".join(name for name in CHOICES if ESTIMATORS[name].likelihood)
            raise ValueError(f"--unbias-position goes with --rating {able}, not {self.rating}")
        return self

    @field_validator("name")
    @classmethod
    def _of_a_run(cls, name: str | None) -> str | None:
        if name is not None and (
            name == "last" or not re.fullmatch(r"\w(?:[\w .+-]{0,58}\w)?", name)
        ):
            raise ValueError("give up to 60 letters, digits, spaces, and . + - _; not 'last'")
        return name

    @field_validator("until")
    @classmethod
    def _check_until(cls, until: str | None) -> str | None:
        if until is None:
            return None
        until = until.strip().lower()
        if re.fullmatch(r"top[1-9]\d{0,8}", until):
            return until
        if not re.fullmatch(r"0?\.\d{1,9}", until) or not float(until):
            raise ValueError("give a ρ̂ between 0 and 1, as 0.95; or topK, as top20")
        return f"{float(until):g}"

    @field_validator("judge", "persona", "onto", mode="before")
    @classmethod
    def _one_or_several(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @field_validator("judge")
    @classmethod
    def _in_capitals(cls, judges: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(REHEARSAL if name.upper() == REHEARSAL else name for name in judges)


class Asking(Declarations):
    """How people are asked, with --judge people."""

    each: int = setting("How many people judge each question.", PEOPLE, 1, ge=1, le=1000)
    repeats: float = setting(
        "The share of questions asked again in reverse order, as a check that scores don't use.",
        PEOPLE, 0.0, session=True, ge=0, le=0.5,
    )  # fmt: skip
    anchors: Path | None = setting(
        "A table of pairs with a known answer (columns left, right and winner: ids or texts), mixed in "
        "as a check.",
        PEOPLE, None, session=True, metavar="PATH",
    )  # fmt: skip
    host: str = setting(
        "The address that the page listens on; if others reach it, the connection isn't encrypted.",
        PEOPLE, "127.0.0.1", session=True,
    )  # fmt: skip
    port: int = setting(
        "The page's port; 0: any free one.", PEOPLE, 8766, session=True, ge=0, le=65535
    )
    url_prefix: str = setting(
        "The beginning of links behind a reverse proxy: a path, or a whole address.",
        PEOPLE, "", session=True, metavar="/PATH|https://…",
    )  # fmt: skip
    open_to_all: bool = setting(
        "Let anybody who reaches the page judge, under a name of their own.", PEOPLE, False,
        session=True,
    )  # fmt: skip

    @field_validator("url_prefix")
    @classmethod
    def _of_an_address(cls, prefix: str) -> str:
        return "".join(split_prefix(prefix))


_PREFIX = re.compile(
    r"(?:(https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?)(?=/|$))?/*([\w.~-]+(?:/[\w.~-]+)*)?/*",
    re.ASCII | re.IGNORECASE,
)


def split_prefix(prefix: str) -> tuple[str, str]:
    """What links begin with, as the address of a reverse proxy ("https://lab.example.org"; "": none) and
    the path behind it ("/study1"; "": none). Raises ValueError for what is neither."""
    found = _PREFIX.fullmatch(prefix.strip())
    site, path = found.groups(default="") if found else ("", "..")
    if {".", ".."} & {*path.split("/")}:
        raise ValueError(
            f"{prefix!r} is neither a path, such as /study1, nor the address of a reverse proxy, such "
            "as https://lab.example.org/study1"
        )
    return site.lower(), path and f"/{path}"


SETTINGS: Mapping[str, Setting] = {
    name: each
    for model in (DatasetSpec, Choices, Model, Access, Asking, Simulation)
    for name, each in settings_of(model).items()
}
"""Every setting by name, in the order in which they are listed within their group."""
