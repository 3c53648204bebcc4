"""What each command prints with `--json`: `judgeq guide --schema`. Tests hold real output against it."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from judgeq.errors import UsageError
from judgeq.ui.outputs.estimates import EstimateOutput
from judgeq.ui.outputs.evaluations import CompareOutput, EvaluateOutput
from judgeq.ui.outputs.items import (
    ExplainOutput,
    ReportOutput,
    ServeOutput,
    ShowOutput,
    VersusOutput,
)
from judgeq.ui.outputs.judges import ChangedJudges, ListedJudges
from judgeq.ui.outputs.lists import (
    CacheOutput,
    CheckFacts,
    Copied,
    DatasetFacts,
    Dropped,
    FitOutput,
    Message,
    ModelFacts,
    PlanOutput,
    PromptFacts,
    Removed,
    ReproducedFacts,
    StoreOutput,
    StrategyFacts,
    StudyOutput,
    Vacuumed,
)
from judgeq.ui.outputs.runs import (
    BatchFacts,
    Failed,
    Released,
    RunBatch,
    RunOutput,
    StatusOutput,
    UnreadableRun,
)
from judgeq.ui.outputs.workers import WorkerOutput, WorkerReport

OUTPUTS: dict[str, Any] = {
    "run": RunOutput | StatusOutput | EstimateOutput,  # the last with --dry-run
    "estimate": EstimateOutput,
    "resume": RunOutput | StatusOutput,
    "annotate": RunOutput | StatusOutput,
    "judges list": ListedJudges,
    "judges add": ChangedJudges,
    "judges link": ChangedJudges,
    "judges pause": ChangedJudges,
    "judges resume": ChangedJudges,
    "judges remove": ChangedJudges,
    "judges forget": ChangedJudges,
    "worker": WorkerOutput,
    "workers": list[WorkerReport],
    "batches": list[RunBatch],
    "batches cancel": list[BatchFacts],
    "batches release": Released,
    "rate": RunOutput,
    "import": RunOutput,
    "status": StatusOutput,
    "runs": list[StatusOutput | UnreadableRun],
    "show": ShowOutput,
    "report": ReportOutput,
    "serve": ServeOutput,
    "explain": ExplainOutput | VersusOutput,  # the latter with --vs
    "evaluate": EvaluateOutput,
    "compare": CompareOutput,
    "simulate": StudyOutput | FitOutput,  # the latter with --fit and no --grid
    "plan": PlanOutput,
    "reproduce": list[ReproducedFacts],
    "datasets": list[DatasetFacts],
    "strategies": list[StrategyFacts],
    "prompts": list[PromptFacts],
    "prompts show": list[Message],
    "doctor": list[CheckFacts],
    "models": list[ModelFacts],
    "store check": StoreOutput,
    "store vacuum": Vacuumed,
    "store drop-run": Dropped,
    "store copy": Copied,
    "cache": CacheOutput,
    "cache prune": Removed,
    "cache clear": Removed,
}
"""By command. Each may print `Failed` instead."""


def adapter(command: str) -> TypeAdapter[Any]:
    """What checks a command's output. Raises UsageError for one that prints no JSON."""
    if command not in OUTPUTS:
        raise UsageError(f"{command!r} has no schema; these have: {', '.join(OUTPUTS)}.")
    return TypeAdapter(OUTPUTS[command] | Failed)


def schema(command: str) -> dict[str, Any]:
    """The JSON schema of a command's output. Raises as `adapter`."""
    return adapter(command).json_schema() | {"title": f"judgeq {command} --json"}
